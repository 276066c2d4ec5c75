/* SPDX-License-Identifier: MIT
 *
 * cuda_half_tile.h - which tiles hopper_halves.cuh computes a product of halves in. No bit
 * depends on it.
 */
#ifndef OG_CUDA_HALF_TILE_H
#define OG_CUDA_HALF_TILE_H

#include "plan/plan.h"

typedef struct {
    og_matrices of;
    int32_t products;              /* with the same x: 1 or 2 */
    bool x_is_across, w_is_across; /* their lines in memory are across k */
    bool is_long;                  /* sums of several chains are in registers, too */
} og_cuda_half_shape;

typedef struct {
    int32_t groups; /* of 64 rows, a warpgroup each: 1 or 2 */
    int32_t width;  /* columns, of all products: 64, 128 or 256 */
    /* Blocks of a cluster of two share w, in the same columns, or x, in the same rows: each
     * brings one half for both. Not both. */
    bool shares_w, shares_x;
    /* Two warpgroups have tiles of their own: one multiplies, the other one finishes. */
    bool alternates;
} og_cuda_half_tile;

/* Can the kernel do it, and is there something to share? */
bool og_cuda_takes_half_tile(const og_cuda_half_shape *shape, const og_cuda_half_tile *tile,
                             int32_t multiprocessors);
og_cuda_half_tile og_cuda_choose_half_tile(const og_cuda_half_shape *shape,
                                           int32_t multiprocessors);

/* "64x128", "128x256w" with w shared, "128x256x" with x shared, "128x128a" where warpgroups
 * alternate; false if it is nothing such. */
bool og_cuda_read_half_tile(const char *text, og_cuda_half_tile *out);

#endif
