/* SPDX-License-Identifier: MIT
 *
 * summary.h - a result for people (shape, dtype, range, corner values as NumPy
 * prints them) and for machines (JSON).
 */
#ifndef OGIVE_CLI_SUMMARY_H
#define OGIVE_CLI_SUMMARY_H

#include <jansson.h>
#include <stdio.h>

#include "host_tensor.h"

typedef struct {
    double least, mean, greatest; /* of what is not NaN; NaN if nothing is left */
    int64_t nans;
} summary_range;

/* data is contiguous. */
summary_range summary_measure(const host_layout *layout, const void *data);

/* label ("result 1: ", "") goes before the first line. */
void summary_print(FILE *out, const char *label, const host_layout *layout, const void *data);

/* {"shape", "dtype", "least", "mean", "greatest", "nan"}, and "values", nested,
 * if they are few. NULL: no memory. */
json_t *summary_json(const host_layout *layout, const void *data);

#endif
