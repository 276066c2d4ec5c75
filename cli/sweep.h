/* SPDX-License-Identifier: MIT
 *
 * sweep.h - runs a function of one float32 over every input, or every nth, and
 * compares it with the oracle, or with what the library gives in float64.
 */
#ifndef OGIVE_CLI_SWEEP_H
#define OGIVE_CLI_SWEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "failure.h"
#include "oracle.h"

typedef struct {
    uint64_t hash;   /* of all results: see sweep.c */
    double worst;    /* largest error in ULP; 0 if not measured */
    float at;        /* the input it was found at */
    float got;       /* what the library gave there */
    double want;     /* what it should be */
    uint64_t inputs; /* that were tried */
} sweep_result;

typedef struct {
    const char *formula;      /* of one input */
    const char *level;        /* CPU level */
    int32_t threads;          /* 0: the library's default */
    uint32_t step;            /* 1: all 2^32 inputs */
    bool measures;            /* false: only the hash */
    oracle_function *oracle;  /* NULL: the formula in float64 is what results should be */
    const double *parameters; /* of the oracle */
    /* Called now and then with the part that is done. */
    void (*progress)(void *context, double part);
    void *context;
} sweep;

bool sweep_run(const sweep *s, sweep_result *out, failure *why);

#endif
