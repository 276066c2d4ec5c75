/* SPDX-License-Identifier: MIT
 *
 * bench_formula.h - `ogive bench` of one's own formula, beside PyTorch if wanted.
 */
#ifndef OGIVE_CLI_BENCH_FORMULA_H
#define OGIVE_CLI_BENCH_FORMULA_H

#include "failure.h"
#include "options.h"
#include "text.h"

typedef struct {
    device_options device;
    const char *peer; /* "torch", or NULL */
    const char *plot; /* the SVG file, or NULL */
    bool json;
} formula_bench;

/* Whether these are a formula and its inputs, not names of workloads. */
bool bench_is_formula(const text_list *arguments);
bool bench_formula(const formula_bench *options, const text_list *arguments, failure *why);

#endif
