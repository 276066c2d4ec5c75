/* SPDX-License-Identifier: MIT
 *
 * cuda_choose.h - which kernel computes a matrix product. The choice decides bits, so it
 * depends on what a row's result may depend on (k, n, dtypes, precision, architecture) and, short
 * of sizes that no memory holds, never on how many rows or products there are or how they lie.
 */
#ifndef OG_CUDA_CHOOSE_H
#define OG_CUDA_CHOOSE_H

#include "cuda/emit/cuda_shapes.h"
#include "cuda/emit/cuda_work.h"

typedef struct {
    og_dtype left, right;
    int32_t products, passes;
    bool convolves, by_places; /* see og_product */
    og_matrices of;
    bool has_columns; /* the last dim is that of the formula's right factor, and not its left's */
    int64_t own_n;    /* of one product; of one row of x, of.n may be that of several */
    /* Elements of right from k to k, from column to column. */
    int64_t right_k_stride, right_pitch;
    /* From one product's right to another's it is a multiple of right_slab elements, up to
     * right_last times; below 0 if it is backwards along some dim. */
    int64_t right_slab, right_last;
    size_t sum_bytes; /* of what a pass reduces to */
    /* Of two products: is the left factor the same, and do the right ones differ in their address
     * alone? */
    bool is_alike;
} og_cuda_product_facts;

og_cuda_product_facts og_cuda_product_facts_of(const og_kernel *kernel);

/* How hopper_float32.cuh fetches the right factor. */
og_cuda_fetch og_cuda_fetch_right(const og_cuda_product_facts *facts);

/* NULL: hopper_float32.cuh or, of halves, hopper_halves.cuh takes it. Else why not, for explain:
 * "strict", "sm_80", ... */
const char *og_cuda_refuse_wgmma(const og_cuda_product_facts *facts, const og_cuda_limits *limits,
                                 const og_cuda_wishes *wishes);
/* The same of mma.cuh. */
const char *og_cuda_refuse_mma_sync(const og_cuda_product_facts *facts,
                                    const og_cuda_limits *limits, const og_cuda_wishes *wishes);

/* The same of hopper_windows.cuh and hopper_windows_halves.cuh, but for what cuda_window_tile.h and
 * cuda_window_halves.h say; "" if it is no convolution, or sums over places. */
const char *og_cuda_refuse_convolution(const og_cuda_product_facts *facts,
                                       const og_cuda_limits *limits, const og_cuda_wishes *wishes);
/* The same of mma_windows.cuh, but for what its shape says. */
const char *og_cuda_refuse_mma_convolution(const og_cuda_product_facts *facts,
                                           const og_cuda_limits *limits,
                                           const og_cuda_wishes *wishes);
/* The same of hopper_weights.cuh, but for what cuda_weight_tile.h says; "" if it is no convolution that
 * sums over places, nor, of halves, a product of matrices that was one. */
const char *og_cuda_refuse_by_places(const og_cuda_product_facts *facts,
                                     const og_cuda_limits *limits, const og_cuda_wishes *wishes);

#endif
