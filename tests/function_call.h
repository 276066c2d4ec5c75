/* SPDX-License-Identifier: MIT
 *
 * function_call.h - a call of any row of functions.def as text, for tests that go
 * through all of them, and what tests must know of a row's domain: from the row, so
 * that a new one needs no word anywhere.
 */
#ifndef OG_FUNCTION_CALL_H
#define OG_FUNCTION_CALL_H

#include "formula/functions.h"

#include <math.h>
#include <stdio.h>

/* A SCALAR row without a group that a formula reaches by another function, with that call:
 * %s is the second tensor. NULL: there is none. */
static inline const char *find_overloaded_call(og_op op)
{
    switch ((int)op) {
    case OG_OP_power:
        return "pow(x, %s)";
    case OG_OP_at_least:
        return "clamp(x, min=%s)";
    case OG_OP_at_most:
        return "clamp(x, max=%s)";
    case OG_OP_cross_entropy:
        return "binary_cross_entropy(x, %s, reduction='none')";
    default:
        return NULL;
    }
}

/* "pow(x, 1.5)", "clamp(x, 1.5, 2.5)": function of x, of second if it takes two tensors, and
 * of numbers where the row has none. */
static inline void print_function_call(const og_function *function, const char *second, char *text,
                                       size_t capacity)
{
    int tensors = 0, numbers = 0;
    size_t length = (size_t)snprintf(text, capacity, "%s(", function->name);
    for (const og_parameter *p = function->parameters; p->kind != OG_PARAMETER_NONE; p++) {
        bool is_number = p->kind == OG_PARAMETER_NUMBER && (p->required || !isfinite(p->number));
        if (length >= capacity || !(is_number || p->kind == OG_PARAMETER_TENSOR))
            continue;
        if (is_number)
            length += (size_t)snprintf(text + length, capacity - length, ", %d.5", ++numbers);
        else
            length += (size_t)snprintf(text + length, capacity - length, "%s%s",
                                       tensors ? ", " : "", tensors ? second : "x");
        tensors += !is_number;
    }
    if (length < capacity)
        snprintf(text + length, capacity - length, ")");
}

/* A SCALAR row that gives NaN for negative numbers, as log. */
static inline bool is_for_positive(og_op op, const double *constants)
{
    return isnan(og_function_value(op, (double[]){-1.5, 1}, constants));
}

/* A SCALAR row that is not finite where its last value is 0, as div. */
static inline bool is_singular_at_zero(og_op op, const double *constants)
{
    const og_function *function = og_function_of(op);
    double zero[2] = {function->args == 1 ? 0 : 1, 0};
    return !isfinite(og_function_value(op, zero, constants));
}

#endif
