/* SPDX-License-Identifier: MIT
 *
 * nearest.c - the known name that a misspelt one most likely means, for error
 * messages: of functions and of parameters.
 */
#include "formula/nearest.h"

#include <string.h>

enum { LONGEST = 32 }; /* longer names have no near one */

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Edit distance, in which two neighbours swapped count once and the case of a
 * letter does not count. Both lengths are at most LONGEST. */
static int measure_distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    int rows[3][LONGEST + 1];
    for (size_t j = 0; j <= b_length; j++)
        rows[0][j] = (int)j;
    for (size_t i = 1; i <= a_length; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        row[0] = (int)i;
        for (size_t j = 1; j <= b_length; j++) {
            bool same = lower(a[i - 1]) == lower(b[j - 1]);
            row[j] = least(above[j - 1] + !same, 1 + least(above[j], row[j - 1]));
            if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                lower(a[i - 2]) == lower(b[j - 1]))
                row[j] = least(row[j], above2[j - 2] + 1);
        }
    }
    return rows[a_length % 3][b_length];
}

static bool begins_with(const char *name, size_t length, const char *start, size_t start_length)
{
    if (start_length > length)
        return false;
    for (size_t i = 0; i < start_length; i++) {
        if (lower(name[i]) != lower(start[i]))
            return false;
    }
    return true;
}

int og_name_distance(const char *name, size_t length, const char *known)
{
    size_t known_length = strlen(known);
    if (length == 0 || length > LONGEST || known_length > LONGEST)
        return -1;
    int distance = measure_distance(name, length, known, known_length);
    if (distance <= ((int)length + 1) / 3 && distance < (int)known_length)
        return distance;
    /* An abbreviation (sig, hardsig) or something appended (relu_, softmax2d). */
    if ((length >= 3 && begins_with(known, known_length, name, length)) ||
        (known_length >= 4 && begins_with(name, length, known, known_length)))
        return LONGEST + distance;
    return -1;
}

const char *og_function_nearest(const char *name, size_t length)
{
    const char *nearest = NULL;
    int best = -1;
    for (int op = 0; op < OG_FUNCTION_COUNT; op++) {
        const og_function *function = og_function_of((og_op)op);
        if (!function->group)
            continue;
        int distance = og_name_distance(name, length, function->name);
        if (distance >= 0 && (best < 0 || distance < best)) {
            best = distance;
            nearest = function->name;
        }
    }
    return nearest;
}

const char *og_parameter_nearest(const og_function *function, const char *name, size_t length)
{
    const char *nearest = NULL;
    int best = -1;
    for (const og_parameter *p = function->parameters; p->kind != OG_PARAMETER_NONE; p++) {
        int distance = p->name ? og_name_distance(name, length, p->name) : -1;
        if (distance >= 0 && (best < 0 || distance < best)) {
            best = distance;
            nearest = p->name;
        }
    }
    return nearest;
}
