/* SPDX-License-Identifier: MIT
 *
 * product_tiles.cuh - a block computes a tile of one or two matrix products on CUDA
 * cores, and applies pass 0 to it.
 *
 * Steps of OG_BK k go from memory through registers, where halves become float32, into one
 * of two shared buffers; meanwhile the other one is multiplied. A warp is 4 x 8 threads, of
 * narrow tiles perhaps 8 x 4; a thread's rows and columns come in fours, those of its
 * neighbours between them, so that a warp reads 16 bytes a thread from shared memory without
 * conflicts and, where OG_TN is 8, OG_RUN neighbouring columns are one warp's. The sum of a
 * block of k (OG_PRODUCT_BLOCK) is in registers, so is that of a group; the sum of groups waits
 * in shared memory, in slots that only their thread touches.
 *
 * PARAMETERS
 *   OG_TM, OG_TN            rows and columns of a thread: multiples of 4; OG_TN of 8 where
 *                           pass 0 reduces, unless OG_SPLIT is 1
 *   OG_LANES_N              threads of a warp side by side in a row: 8, or 4 if OG_TN is 4
 *   OG_WARPS_M, OG_WARPS_N  warps of a block
 *   OG_BLOCKS               blocks that a multiprocessor should hold
 *   OG_LEVELS               1: k is a block at most; 2: a group at most; 3: any
 *   OG_SPLIT                1: a block takes a part of all k, too, and leaves the sums of
 *                           its blocks of k in the scratch, for product_split.cuh, or, if
 *                           OG_LEVELS is 2, those of its groups
 *   OG_CONVOLVES            1: product_windows.cuh, which is included before, reads the factors
 */
#include "cuda/kernels/product.cuh"
#include "cuda/kernels/tiles.cuh"

enum {
    OG_QUADS = OG_TN / 4, /* of a row, that a thread has */
    OG_LANES_M = 32 / OG_LANES_N,
    OG_BM = OG_LANES_M * OG_TM * OG_WARPS_M,
    OG_BN = OG_LANES_N * OG_TN * OG_WARPS_N,
    OG_BUFFER = og_part(OG_BM) + og_part(OG_BN) /* numbers of one of the two */
};

/* ---- places ---------------------------------------------------------------------------- */

/* A block's tile, and its steps of k: all, or (OG_SPLIT) those of a part. */
struct og_tile_part : og_tile {
    og_index step, end;
};

template <class Args> OG_FN og_tile_part og_find_tile_part(const Args &a)
{
    og_tile_part part;
    og_index i = (og_index)blockIdx.x;
    part.step = 0;
    part.end = (a.k + OG_BK - 1) / OG_BK;
    if constexpr (OG_SPLIT) {
        const og_index steps = a.part_k / OG_BK;
        part.step = i % a.parts * steps;
        part.end = part.end - part.step < steps ? part.end : part.step + steps;
        i /= a.parts;
    }
    static_cast<og_tile &>(part) = og_find_tile<OG_BM, OG_BN>(a, i);
    return part;
}

/* A thread's first row and column in the tile; row i is og_tile_row(i) further, quad h of
 * columns 32 h. */
struct og_tile_place {
    int row, column;
};

OG_FN og_tile_place og_find_tile_place()
{
    og_tile_place place;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    place.row = warp % OG_WARPS_M * (OG_LANES_M * OG_TM) + lane / OG_LANES_N * 4;
    place.column = warp / OG_WARPS_M * (OG_LANES_N * OG_TN) + lane % OG_LANES_N * 4;
    return place;
}

OG_FN int og_tile_row(int i)
{
    return i / 4 * (4 * OG_LANES_M) + i % 4;
}

/* ---- sums -------------------------------------------------------------------------------- */

typedef og_number og_sum[OG_TM][OG_TN]; /* a thread's, in registers */

OG_FN og_quad &og_slot(og_number *slots, int i, int h)
{
    return ((og_quad *)slots)[(i * OG_QUADS + h) * OG_THREADS + threadIdx.x];
}

OG_FN void og_fill_sum(og_sum &sum, og_number x)
{
#pragma unroll
    for (int i = 0; i < OG_TM; i++)
#pragma unroll
        for (int j = 0; j < OG_TN; j++)
            sum[i][j] = x;
}

/* to += from; from = +0 */
OG_FN void og_move(og_sum &to, og_sum &from)
{
#pragma unroll
    for (int i = 0; i < OG_TM; i++)
#pragma unroll
        for (int j = 0; j < OG_TN; j++)
            to[i][j] = to[i][j] + from[i][j];
    og_fill_sum(from, 0);
}

/* The slots become from, or (adds) slots + from. */
OG_FN void og_put(og_number *slots, const og_sum &from, bool adds)
{
#pragma unroll
    for (int i = 0; i < OG_TM; i++)
#pragma unroll
        for (int h = 0; h < OG_QUADS; h++) {
            og_quad &slot = og_slot(slots, i, h);
            og_quad y;
#pragma unroll
            for (int j = 0; j < 4; j++)
                y.e[j] = from[i][4 * h + j];
            if (adds) {
                og_quad x = slot;
#pragma unroll
                for (int j = 0; j < 4; j++)
                    y.e[j] = x.e[j] + y.e[j];
            }
            slot = y;
        }
}

/* Adds the products of a step to p. */
OG_FN void og_multiply(const og_number *left, const og_number *right, const og_tile_place &at,
                       og_sum &p)
{
#pragma unroll
    for (int k = 0; k < OG_BK; k++) {
        og_quad x[OG_TM / 4], w[OG_QUADS];
#pragma unroll
        for (int h = 0; h < OG_TM / 4; h++)
            x[h] = *(const og_quad *)&left[og_line(k, OG_BM) + at.row + og_tile_row(4 * h)];
#pragma unroll
        for (int h = 0; h < OG_QUADS; h++)
            w[h] = *(const og_quad *)&right[og_line(k, OG_BN) + at.column + 32 * h];
#pragma unroll
        for (int i = 0; i < OG_TM; i++)
#pragma unroll
            for (int j = 0; j < OG_TN; j++)
                p[i][j] = og_fma(x[i / 4].e[i % 4], w[j / 4].e[j % 4], p[i][j]);
    }
}

/* OG_SPLIT: sum `number`, of a block or group of k, goes to the scratch. */
template <class Args>
OG_FN void og_leave_sum(const Args &a, const og_tile_part &tile, const og_tile_place &at,
                        int product, og_index number, const og_sum &p)
{
    if constexpr (OG_SPLIT) {
#pragma unroll
        for (int i = 0; i < OG_TM; i++) {
            og_index m = tile.m + at.row + og_tile_row(i);
#pragma unroll
            for (int h = 0; h < OG_QUADS; h++) {
                og_index n = tile.n + at.column + 32 * h;
                og_quad y;
#pragma unroll
                for (int j = 0; j < 4; j++)
                    y.e[j] = p[i][4 * h + j];
                if (m < a.m && n < a.pitch)
                    *(og_quad *)og_part_sum(a, product, number, tile.base * a.m + m, n) = y;
            }
        }
    }
}

/* What a step needs before it is fetched: a convolution's tables, of the step after it, too. */
template <class Left, class Right, class L>
OG_FN void og_prepare_step(const og_args &a, og_number *shared, og_index step, bool is_first, L &l)
{
#if OG_CONVOLVES
    if (is_first) {
        og_fill_k_table<Left>(a, shared, step);
        og_fill_k_table<Right>(a, shared, step);
        __syncthreads();
    }
    og_take_k_table<Left>(l.left, shared, step);
    og_take_k_table<Right>(l.right, shared, step);
    og_fill_k_table<Left>(a, shared, step + 1);
    og_fill_k_table<Right>(a, shared, step + 1);
#endif
}

/* Leaves the product of a tile in the threads' slots; those may be where the buffers are,
 * unless OG_LEVELS is 3. One barrier a step: what is written is the buffer that was
 * multiplied before the last one. */
template <class Left, class Right>
OG_FN void og_tile_product(const og_args &a, const og_tile_part &tile, const og_tile_place &at,
                           int product, og_number *buffers, og_number *slots)
{
    typedef og_loaders<Left, Right, OG_BM, OG_BN, OG_THREADS> loaders;
    loaders l;
    og_sum p, group;
    og_index steps = (a.k + OG_BK - 1) / OG_BK;
    const int last = (int)(a.k - (steps - 1) * OG_BK); /* k of the last step */
    og_fill_sum(p, 0);
    if (OG_LEVELS > 1)
        og_fill_sum(group, (og_number)-0.0f); /* -0 + x is x, also of x = -0 */
    if (tile.step < tile.end) {
        loaders::of_left::start(l.left, a, tile.base, tile.m, a.m, tile.step * OG_BK);
        loaders::of_right::start(l.right, a, tile.base, tile.n, a.n, tile.step * OG_BK);
        og_prepare_step<Left, Right>(a, buffers, tile.step, true, l);
        loaders::fetch(l, a, tile.step + 1 == steps ? last : OG_BK);
        loaders::place(l, buffers + tile.step % 2 * OG_BUFFER);
        __syncthreads();
    }
#pragma unroll 1
    for (og_index step = tile.step; step < tile.end; step++) {
        const og_number *now = buffers + step % 2 * OG_BUFFER;
        bool ends = step + 1 == tile.end;
        if (!ends) {
            og_prepare_step<Left, Right>(a, buffers, step + 1, false, l);
            loaders::fetch(l, a, step + 2 == steps ? last : OG_BK);
        }
        og_multiply(now, now + og_part(OG_BM), at, p);
        if ((OG_LEVELS > 1 || OG_SPLIT) && (ends || (step + 1) % (256 / OG_BK) == 0)) {
            if (OG_LEVELS > 1) {
                og_move(group, p);
            } else {
                og_leave_sum(a, tile, at, product, step / (256 / OG_BK), p);
                og_fill_sum(p, 0);
            }
            if (OG_LEVELS + OG_SPLIT > 2 && (ends || (step + 1) % (4096 / OG_BK) == 0)) {
                if (OG_SPLIT)
                    og_leave_sum(a, tile, at, product, step / (4096 / OG_BK), group);
                else
                    og_put(slots, group, step >= 4096 / OG_BK);
                og_fill_sum(group, (og_number)-0.0f);
            }
        }
        if (!ends)
            loaders::place(l, buffers + (step + 1) % 2 * OG_BUFFER);
        __syncthreads();
    }
    if (OG_LEVELS == 1 && !OG_SPLIT)
        og_put(slots, p, false);
    if (OG_LEVELS == 2 && !OG_SPLIT)
        og_put(slots, group, false);
}

/* ---- entry ------------------------------------------------------------------------------- */

/* Emitted: all products of a tile, and where the slots of product p are. */
OG_FN void og_multiply_all(const og_args &a, const og_tile_part &tile, const og_tile_place &at,
                           og_number *shared);
OG_FN og_number *og_slots_of(og_number *shared, int p);

OG_KERNEL(og_tiles, OG_THREADS, OG_BLOCKS)
{
    extern __shared__ og_quad og_shared[];
    og_number *shared = (og_number *)og_shared;
    og_tile_part tile = og_find_tile_part(a);
    og_tile_place at = og_find_tile_place();
    if (OG_SPLIT)
        og_admit_next();
    og_multiply_all(a, tile, at, shared);
#pragma unroll 1
    for (int i = 0; i < (OG_SPLIT ? 0 : OG_TM); i++) {
        og_quad z[OG_PRODUCTS][OG_QUADS];
#pragma unroll
        for (int p = 0; p < OG_PRODUCTS; p++)
#pragma unroll
            for (int h = 0; h < OG_QUADS; h++)
                z[p][h] = og_slot(og_slots_of(shared, p), i, h);
        og_finish_row(a, tile.base, tile.m + at.row + og_tile_row(i), tile.n + at.column, z);
    }
}
