/* SPDX-License-Identifier: MIT
 *
 * product_data.h - inputs for float32 products x (m, k) times w (n, k) transposed: those on which
 * scaled pairs of float16 lose bits that float32 keeps, ordinary ones, and random ones. The same
 * name and sizes have the same numbers everywhere.
 */
#ifndef OGIVE_CLI_PRODUCT_DATA_H
#define OGIVE_CLI_PRODUCT_DATA_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    int64_t m, n, k;
    float *x, *w; /* (m, k), (n, k), contiguous; the caller's */
    uint64_t random;
} product_data;

typedef struct {
    const char *name;
    void (*make)(product_data *data, double a, double b);
    double a, b;
} product_kind;

/* Adversarial ones first; NULL: no more. */
const product_kind *product_kind_at(size_t index);

/* Fills data->x and data->w. */
void product_data_fill(product_data *data, const product_kind *kind);
/* The same, of a structure that the seed decides: exponents by k, by row or by element; zeros and
 * peaks; where one factor is great the other is often small or 0. */
void product_data_fill_at_random(product_data *data, uint64_t seed);

#endif
