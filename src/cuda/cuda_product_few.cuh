/* SPDX-License-Identifier: MIT
 *
 * cuda_product_few.cuh - a few rows times many columns: the right factor is read once, at
 * the speed of memory. A warp sums one block of k (OG_PRODUCT_BLOCK) of a block's columns, a
 * lane a column; the warps' sums, one group of k, are added in order; group after group.
 *
 * PARAMETERS
 *   OG_ROWS   rows, 4 or 8: at least a.m
 *   OG_QUADS  columns of a lane; 2 where OG_RUN columns are reduced
 *   OG_WARPS  of a block of threads, 1 to 16: a group's blocks of k, or all there are
 *   OG_SPLIT  1: a block takes one group of k, and leaves its sum in the scratch, for
 *             cuda_product_split.cuh; OG_WARPS is 16 then
 */
enum {
    OG_COLUMNS = 32 * OG_QUADS,
    OG_SHARE = og_part(OG_ROWS) + og_part(OG_COLUMNS), /* numbers of a warp's buffer */
    OG_RESULTS = OG_ROWS * OG_COLUMNS,
    OG_EACH = (OG_RESULTS + OG_THREADS - 1) / OG_THREADS /* results that a thread adds up */
};
static_assert(OG_RESULTS <= OG_SHARE, "a warp leaves its sums in its buffer");

/* A block's product of the batch, its first column, and its group of k: all from 0 on, or one. */
struct og_place {
    og_index base, n, group;
};

template <class Args> OG_FN og_place og_find_place(const Args &a)
{
    og_place at;
    og_index i = (og_index)blockIdx.x;
    at.group = 0;
    if constexpr (OG_SPLIT) {
        at.group = i % a.sums;
        i /= a.sums;
    }
    at.base = i / a.n_tiles;
    at.n = (i - at.base * a.n_tiles) * OG_COLUMNS;
    return at;
}

/* p: the sums of the block of k that begins at k. */
template <class Left, class Right>
OG_FN void og_sum_block(const og_args &a, const og_place &at, og_index k, og_number *buffer,
                        og_number (&p)[OG_ROWS][OG_QUADS])
{
    typedef og_loaders<Left, Right, OG_ROWS, OG_COLUMNS, 32> loaders;
    loaders l;
    const int lane = threadIdx.x % 32;
    int there = a.k - k < 256 ? (int)(a.k - k) : 256;
#pragma unroll
    for (int i = 0; i < OG_ROWS; i++)
#pragma unroll
        for (int h = 0; h < OG_QUADS; h++)
            p[i][h] = 0;
    if (there <= 0)
        return;
    loaders::of_left::start(l.left, a, at.base, 0, a.m, k);
    loaders::of_right::start(l.right, a, at.base, at.n, a.n, k);
    loaders::fetch(l, a, there);
#pragma unroll 1
    for (; there > 0; there -= OG_BK) {
        __syncwarp();
        loaders::place(l, buffer);
        __syncwarp();
        if (there > OG_BK)
            loaders::fetch(l, a, there - OG_BK);
        const og_number *right = buffer + og_part(OG_ROWS);
#pragma unroll
        for (int j = 0; j < OG_BK; j++) {
            og_quad x[OG_ROWS / 4];
#pragma unroll
            for (int i = 0; i < OG_ROWS / 4; i++)
                x[i] = *(const og_quad *)&buffer[og_line(j, OG_ROWS) + 4 * i];
#pragma unroll
            for (int h = 0; h < OG_QUADS; h++) {
                og_number w = right[og_line(j, OG_COLUMNS) + 32 * h + lane];
#pragma unroll
                for (int i = 0; i < OG_ROWS; i++)
                    p[i][h] = og_fma(x[i / 4].e[i % 4], w, p[i][h]);
            }
        }
    }
    __syncwarp();
}

/* OG_SPLIT: the sum of the block's group goes to the scratch. */
template <class Args>
OG_FN void og_leave_group(const Args &a, const og_place &at, int product, int result,
                          og_number sum)
{
    if constexpr (OG_SPLIT) {
        const int row = result / OG_COLUMNS, column = result % OG_COLUMNS;
        if (row < a.m && at.n + column < a.pitch)
            *og_part_sum(a, product, at.group, at.base * a.m + row, at.n + column) = sum;
    }
}

/* Product p of the block's columns: results t, t + OG_THREADS, ... of OG_RESULTS, by rows. */
template <class Left, class Right>
OG_FN void og_product(const og_args &a, const og_place &at, int product, og_number *shared,
                      og_number (&total)[OG_EACH])
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    og_number *buffer = shared + warp * OG_SHARE;
#pragma unroll
    for (int e = 0; e < OG_EACH; e++)
        total[e] = (og_number)-0.0f; /* -0 + x is x, also of x = -0 */
    og_index k = at.group * 4096;
#pragma unroll 1
    do { /* of no k: one block, whose sum is +0 */
        og_number p[OG_ROWS][OG_QUADS];
        og_index blocks = (a.k - k + 255) / 256;
        og_sum_block<Left, Right>(a, at, k + 256 * warp, buffer, p);
#pragma unroll
        for (int i = 0; i < OG_ROWS; i++)
#pragma unroll
            for (int h = 0; h < OG_QUADS; h++)
                buffer[i * OG_COLUMNS + 32 * h + lane] = p[i][h];
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
OG_FN void og_multiply_all(const og_args &a, const og_place &at, og_number *shared,
                           og_number (&total)[OG_PRODUCTS][OG_EACH]);

OG_KERNEL(og_few, OG_THREADS)
{
    extern __shared__ og_quad og_shared[];
    og_number *shared = (og_number *)og_shared;
    og_place at = og_find_place(a);
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
    for (int t = threadIdx.x; t < OG_ROWS * 8; t += OG_THREADS) { /* whole warps */
        og_quad z[OG_PRODUCTS][OG_QUADS];
        int row = t / 8, column = t % 8 * 4;
#pragma unroll
        for (int p = 0; p < OG_PRODUCTS; p++)
#pragma unroll
            for (int h = 0; h < OG_QUADS; h++)
                z[p][h] = *(const og_quad *)&shared[p * OG_RESULTS + row * OG_COLUMNS + 32 * h +
                                                    column];
        og_finish_row(a, at.base, row, at.n + column, z);
    }
}
