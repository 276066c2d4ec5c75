/* SPDX-License-Identifier: MIT
 *
 * product_few.cuh - few rows, or few results: factors are read at once and by many warps,
 * where larger tiles would wait for one step of k after the other. A warp sums one block of k
 * (OG_PRODUCT_BLOCK) of a block's tile, by itself; the warps' sums, one group of k, are added in
 * order; group after group.
 *
 * PARAMETERS
 *   OG_ROWS     rows of a tile: 4, 8 or 16
 *   OG_LANES_N  threads of a warp side by side in a row: 8, 16 or 32
 *   OG_QUADS    columns of a thread: 1; 2, with 32 lanes, where OG_RUN columns are reduced
 *   OG_WARPS    of a block of threads, 1 to 16: a group's blocks of k, or all there are
 *   OG_SPLIT    1: a block takes one group of k, and leaves its sum in the scratch, for
 *               product_split.cuh; OG_WARPS is 16 then
 */
#include "cuda/kernels/product.cuh"

enum {
    OG_TM = OG_ROWS * OG_LANES_N / 32, /* rows of a thread */
    OG_FEW_COLUMNS = OG_LANES_N * OG_QUADS,
    OG_LEFT = OG_ROWS * OG_ROW_PITCH, /* numbers of a warp's buffer that x takes */
    OG_RIGHT = OG_FEW_COLUMNS * OG_ROW_PITCH,
    OG_SHARE = OG_LEFT + OG_RIGHT,
    OG_RESULTS = OG_ROWS * OG_FEW_COLUMNS,
    OG_EACH = (OG_RESULTS + OG_THREADS - 1) / OG_THREADS /* results that a thread adds up */
};
static_assert(OG_RESULTS <= OG_SHARE, "a warp leaves its sums in its buffer");
static_assert(og_part(OG_FEW_COLUMNS) <= OG_RIGHT || OG_LANES_N < 32, "see og_right_part");

/* A block's product of the batch, its first row and column, and its group of k: all from 0 on, or
 * one. */
struct og_few_place {
    og_index base, m, n, group;
};

template <class Args> OG_FN og_few_place og_find_few_place(const Args &a)
{
    og_few_place at;
    og_index i = (og_index)blockIdx.x;
    at.group = 0;
    if constexpr (OG_SPLIT) {
        at.group = i % a.sums;
        i /= a.sums;
    }
    at.n = i % a.n_tiles * OG_FEW_COLUMNS;
    i /= a.n_tiles;
    at.m = i % a.m_tiles * OG_ROWS;
    at.base = i / a.m_tiles;
    return at;
}

/* A thread's first row and its column in the tile. */
OG_FN int og_own_row()
{
    return threadIdx.x % 32 / OG_LANES_N * OG_TM;
}

OG_FN int og_own_column()
{
    return threadIdx.x % OG_LANES_N;
}

/* How a step of the right factor lies in the buffer: by rows, so that a thread reads OG_SOME k at
 * once; but 32 columns that are neighbours in memory by k, for they would be written to few banks
 * (8 x 8192 x 8192 on an H200: 106 us, so 87). */
template <class Right, class Loader> struct og_right_part {
    enum { by_rows = Right::along == OG_ALONG_K || OG_LANES_N < 32 };

    OG_FN void place(const Loader &l, og_number *to)
    {
        if constexpr (by_rows)
            Loader::place_by_rows(l, to);
        else
            Loader::place(l, to);
    }

    /* k .. k + OG_SOME - 1 of a column. */
    OG_FN og_vector read(const og_number *from, int column, int k)
    {
        if constexpr (by_rows) {
            return *(const og_vector *)&from[column * OG_ROW_PITCH + k];
        } else {
            og_vector w;
#pragma unroll
            for (int e = 0; e < OG_SOME; e++)
                w.e[e] = from[og_line(k + e, OG_FEW_COLUMNS) + column];
            return w;
        }
    }
};

/* p: the sums of the block of k that begins at k. */
template <class Left, class Right>
OG_FN void og_sum_block(const og_args &a, const og_few_place &at, og_index k, og_number *buffer,
                        og_number (&p)[OG_TM][OG_QUADS])
{
    typedef og_loaders<Left, Right, OG_ROWS, OG_FEW_COLUMNS, 32> loaders;
    typedef og_right_part<Right, typename loaders::of_right> right_part;
    loaders l;
    const og_number *left = buffer + og_own_row() * OG_ROW_PITCH;
    int there = a.k - k < 256 ? (int)(a.k - k) : 256;
#pragma unroll
    for (int i = 0; i < OG_TM; i++)
#pragma unroll
        for (int h = 0; h < OG_QUADS; h++)
            p[i][h] = 0;
    if (there <= 0)
        return;
    loaders::of_left::start(l.left, a, at.base, at.m, a.m, k);
    loaders::of_right::start(l.right, a, at.base, at.n, a.n, k);
    loaders::fetch(l, a, there);
#pragma unroll 1
    for (; there > 0; there -= OG_BK) {
        __syncwarp();
        loaders::of_left::place_by_rows(l.left, buffer);
        right_part::place(l.right, buffer + OG_LEFT);
        __syncwarp();
        if (there > OG_BK)
            loaders::fetch(l, a, there - OG_BK);
#pragma unroll
        for (int j = 0; j < OG_BK; j += OG_SOME) {
            og_vector x[OG_TM], w[OG_QUADS];
#pragma unroll
            for (int i = 0; i < OG_TM; i++)
                x[i] = *(const og_vector *)&left[i * OG_ROW_PITCH + j];
#pragma unroll
            for (int h = 0; h < OG_QUADS; h++)
                w[h] = right_part::read(buffer + OG_LEFT, og_own_column() + OG_LANES_N * h, j);
#pragma unroll
            for (int e = 0; e < OG_SOME; e++)
#pragma unroll
                for (int h = 0; h < OG_QUADS; h++)
#pragma unroll
                    for (int i = 0; i < OG_TM; i++)
                        p[i][h] = og_fma(x[i].e[e], w[h].e[e], p[i][h]);
        }
    }
    __syncwarp();
}

/* OG_SPLIT: the sum of the block's group goes to the scratch. */
template <class Args>
OG_FN void og_leave_group(const Args &a, const og_few_place &at, int product, int result,
                          og_number sum)
{
    if constexpr (OG_SPLIT) {
        const og_index m = at.m + result / OG_FEW_COLUMNS, n = at.n + result % OG_FEW_COLUMNS;
        if (m < a.m && n < a.pitch)
            *og_part_sum(a, product, at.group, at.base * a.m + m, n) = sum;
    }
}

/* Product p of the block's tile: results t, t + OG_THREADS, ... of OG_RESULTS, by rows. */
template <class Left, class Right>
OG_FN void og_few_product(const og_args &a, const og_few_place &at, int product, og_number *shared,
                          og_number (&total)[OG_EACH])
{
    const int warp = threadIdx.x / 32;
    og_number *buffer = shared + warp * OG_SHARE;
#pragma unroll
    for (int e = 0; e < OG_EACH; e++)
        total[e] = (og_number)-0.0f; /* -0 + x is x, also of x = -0 */
    og_index k = at.group * 4096;
#pragma unroll 1
    do { /* of no k: one block, whose sum is +0 */
        og_number p[OG_TM][OG_QUADS];
        og_index blocks = (a.k - k + 255) / 256;
        og_sum_block<Left, Right>(a, at, k + 256 * warp, buffer, p);
#pragma unroll
        for (int i = 0; i < OG_TM; i++)
#pragma unroll
            for (int h = 0; h < OG_QUADS; h++)
                buffer[(og_own_row() + i) * OG_FEW_COLUMNS + OG_LANES_N * h + og_own_column()] =
                    p[i][h];
        __syncthreads();
#pragma unroll
        for (int e = 0; e < OG_EACH; e++) {
            int result = threadIdx.x + e * OG_THREADS;
            if (OG_RESULTS < OG_THREADS && result >= OG_RESULTS)
                break;
            og_number group = shared[result];
#pragma unroll
            for (int w = 1; w < OG_WARPS; w++)
                if (w < blocks)
                    group = group + shared[w * OG_SHARE + result];
            total[e] = total[e] + group;
            og_leave_group(a, at, product, result, group);
        }
        __syncthreads();
        k += 256 * OG_WARPS;
    } while (!OG_SPLIT && k < a.k);
}

/* Emitted: all products. */
OG_FN void og_multiply_all(const og_args &a, const og_few_place &at, og_number *shared,
                           og_number (&total)[OG_PRODUCTS][OG_EACH]);

OG_KERNEL(og_few, OG_THREADS)
{
    extern __shared__ og_quad og_shared[];
    og_number *shared = (og_number *)og_shared;
    og_few_place at = og_find_few_place(a);
    og_number total[OG_PRODUCTS][OG_EACH];
    if (OG_SPLIT)
        og_admit_next();
    og_multiply_all(a, at, shared, total);
    if (OG_SPLIT)
        return;
#pragma unroll
    for (int p = 0; p < OG_PRODUCTS; p++)
#pragma unroll
        for (int e = 0; e < OG_EACH; e++)
            if (threadIdx.x + e * OG_THREADS < OG_RESULTS)
                shared[p * OG_RESULTS + threadIdx.x + e * OG_THREADS] = total[p][e];
    __syncthreads();
#pragma unroll 1
    for (int t = threadIdx.x; t < OG_ROWS * OG_LANES_N / 4; t += OG_THREADS) {
        og_quad z[OG_PRODUCTS][OG_QUADS]; /* of a run: whole warps, 8 threads a row */
        int row = t / (OG_LANES_N / 4), column = t % (OG_LANES_N / 4) * 4;
#pragma unroll
        for (int p = 0; p < OG_PRODUCTS; p++)
#pragma unroll
            for (int h = 0; h < OG_QUADS; h++)
                z[p][h] = *(const og_quad
                                *)&shared[p * OG_RESULTS + row * OG_FEW_COLUMNS + 32 * h + column];
        og_finish_row(a, at.base, at.m + row, at.n + column, z);
    }
}
