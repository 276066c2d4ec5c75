/* SPDX-License-Identifier: MIT
 *
 * timing.h - how long something takes: the median of many samples.
 */
#ifndef OGIVE_CLI_TIMING_H
#define OGIVE_CLI_TIMING_H

#include <stddef.h>

#include "failure.h"

/* Runs it `repeats` times; *seconds: what one took. */
typedef bool timed_run(void *context, long repeats, double *seconds, failure *why);

/* The median of at least 20 samples and about half a second. A sample lasts `least` seconds or
 * more, so that reading the clock (or waiting for a GPU) does not count. */
bool time_median(timed_run *run, void *context, double least, double *seconds, size_t *samples,
                 failure *why);

#endif
