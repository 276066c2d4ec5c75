/* SPDX-License-Identifier: MIT
 *
 * cuda_emit_mma.h - what products and convolutions by mma.sync share: tiles of mma_tile.cuh and the
 * numbers that these are compiled for.
 */
#ifndef OG_CUDA_EMIT_MMA_H
#define OG_CUDA_EMIT_MMA_H

#include "cuda/emit/cuda_emit_product.h"

enum { OG_MMA_STEP = 64, OG_MMA_THREADS = 256 };

static inline int64_t og_mma_padded_k(int64_t k)
{
    return og_divide_up(k, OG_MMA_STEP) * OG_MMA_STEP;
}

typedef struct {
    int32_t rows, columns, stages;
    int64_t m_tiles, n_tiles, count;
    size_t shared_bytes;
} og_mma_tile;

/* For so many products; rows: 32, 64 or 128. Of columns those that fill all multiprocessors. scale_k:
 * w comes as pairs, so many k of which have a scale; or 0. */
og_mma_tile og_cuda_choose_mma_tile(const og_matrices *s, int32_t rows, int32_t scale_k,
                                    const og_cuda_limits *limits, bool is_half);

/* Are factors multiplied as they are, or rounded to TF32? Else they are made pairs. */
bool og_cuda_is_plain(const og_cuda_emitter *e, og_dtype dtype);

/* The parameters of mma_tile.cuh, and of what lays x out for it. */
void og_cuda_add_mma_numbers(og_cuda_emitter *e, const og_mma_tile *tile, int64_t k,
                             og_dtype dtype);

/* out->tensor_products and out->units of sums of k. */
void og_cuda_tell_mma_units(og_cuda_emitter *e, int64_t k, bool is_plain, bool is_tf32);

#endif
