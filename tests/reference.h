/* SPDX-License-Identifier: MIT
 *
 * reference.h - the oracle: runs a plan (plan.h) naively in float64, and says
 * with every value how far a float32 implementation may be from it.
 *
 * It reads what the planner hands to a backend and nothing else, so it is also
 * the shortest description of what a backend has to do.
 */
#ifndef OG_REFERENCE_H
#define OG_REFERENCE_H

#include "plan/plan.h"

/* A register of a right implementation lies within bound of value.
 *   bound 0         it has exactly this value (also if that is NaN or infinite)
 *   bound infinity  nothing is known: it depends on a comparison too close to
 *                   call, or on whether something overflowed */
typedef struct {
    double value, bound;
} reference_value;

typedef struct reference reference;

/* Runs plan; inputs[i] points at the first element of input i. */
reference *reference_run(const og_plan *plan, const void *const *inputs);
void reference_free(reference *r);

/* Element index (one number per dim of the result's shape) of a result. */
reference_value reference_result(const reference *r, int32_t result, const int64_t *index);

typedef enum { REFERENCE_RIGHT, REFERENCE_WRONG, REFERENCE_UNDECIDED } reference_verdict;
reference_verdict reference_check(reference_value want, double got);

/* ---- single numbers, written without the library's own conversions --------- */

/* Element of an array of dtype. */
double reference_load(const void *data, og_dtype dtype, int64_t element);
/* The nearest number that dtype has, ties to even. */
double reference_round(double value, og_dtype dtype);
/* Stores value, which must be a number that dtype has. */
void reference_store(void *data, og_dtype dtype, int64_t element, double value);

#endif
