/* SPDX-License-Identifier: MIT
 *
 * cuda_half_tile.h - which tiles cuda_sm90_halves.cuh computes a product of halves in. No bit
 * depends on it.
 */
#ifndef OG_CUDA_HALF_TILE_H
#define OG_CUDA_HALF_TILE_H

#include "base/base.h"

typedef struct {
    int64_t batch, m, n;
    bool w_is_across; /* its lines in memory are across k */
} og_cuda_half_shape;

typedef struct {
    int32_t groups; /* of 64 rows, a warpgroup each: 1 or 2 */
    int32_t width;  /* columns: 64, 128 or 256 */
    bool shares_w;  /* between the two blocks of a cluster, in the same columns */
} og_cuda_half_tile;

og_cuda_half_tile og_cuda_choose_half_tile(const og_cuda_half_shape *shape,
                                           int32_t multiprocessors);

#endif
