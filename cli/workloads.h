/* SPDX-License-Identifier: MIT
 *
 * workloads.h - what `ogive bench` measures.
 */
#ifndef OGIVE_CLI_WORKLOADS_H
#define OGIVE_CLI_WORKLOADS_H

#include <stddef.h>

typedef enum {
    WORKLOAD_RUN,  /* a planned formula: ogive_plan_run() */
    WORKLOAD_CALL, /* ogive_run(), which finds its plan again */
    WORKLOAD_TEXT  /* from the formula's text to the result */
} workload_kind;

typedef struct {
    const char *name;
    const char *formula;
    const char *inputs[4]; /* as on the command line: "x=4096x4096:float32" */
    workload_kind kind;
} workload;

extern const workload workloads[];
extern const size_t workload_count;

#endif
