/* SPDX-License-Identifier: MIT
 *
 * timing.c - how long something takes; see timing.h.
 */
#include "timing.h"

#include <stdlib.h>

#include "clock.h"

enum { MIN_SAMPLES = 20, MAX_SAMPLES = 2000 };

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

bool time_median(timed_run *run, void *context, double least, double *seconds, size_t *samples,
                 failure *why)
{
    static double taken[MAX_SAMPLES];
    double once = 0, begin = clock_seconds();
    size_t count = 0;

    /* The first run faults pages in and wakes threads; the third is like the rest. */
    for (int i = 0; i < 3; i++)
        if (!run(context, 1, &once, why))
            return false;
    long repeats = once < least ? (long)(least / (once > 1e-9 ? once : 1e-9)) + 1 : 1;
    while (count < MIN_SAMPLES || (count < MAX_SAMPLES && clock_seconds() - begin < 0.5))
        if (!run(context, repeats, &taken[count++], why))
            return false;
    qsort(taken, count, sizeof(taken[0]), compare_doubles);
    *seconds = count % 2 ? taken[count / 2] : 0.5 * (taken[count / 2 - 1] + taken[count / 2]);
    *samples = count;
    return true;
}
