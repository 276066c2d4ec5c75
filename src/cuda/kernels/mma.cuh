/* SPDX-License-Identifier: MIT
 *
 * mma.cuh - a product on tensor cores by mma.sync, in the tiles of mma_tile.cuh, and pass 0 on them.
 *
 * x lies in the scratch (pairs_split.cuh or mma_copy.cuh). w is read 16 bytes at a time, or element
 * by element where it must be. A sum that is marked is computed again by a warp, before pass 0; where
 * these are many, all 64 columns of the row are left to redo.cuh.
 *
 * Bits depend on a row of x and on w, never on other rows or on the tile.
 */
#include "cuda/kernels/mma_tile.cuh"
#include "cuda/kernels/pairs_again.cuh"
#include "cuda/kernels/finish.cuh"

/* A thread's part of w, as memory has it. */
struct og_w_reader {
    og_index at[OG_W_ROWS]; /* from a.right0: the thread's first k of the step to come */
    bool aligned;

    OG_FN og_w_reader start(const og_args &a, const og_tile &tile)
    {
        og_w_reader r;
        r.aligned = og_right0::along == OG_ALONG_K;
#pragma unroll
        for (int i = 0; i < OG_W_ROWS; i++) {
            og_index n = tile.n + i * 64 + og_w_row_of(threadIdx.x);
            const og_element *p = og_w_row(a, tile.base, n < a.n ? n : a.n - 1) +
                                  threadIdx.x % 4 * OG_WIDE * og_w_stride(a);
            r.at[i] = (og_index)(p - a.right0);
            r.aligned = r.aligned && (uint64_t)p % 16 == 0;
        }
        return r;
    }

    /* Reads the next stage, from k on, into part or (OG_RAW) to shared memory; beyond the last they
     * are 0. */
    OG_FN void fetch(const og_args &a, og_w_reader &r, og_index k, og_w_part &part, char *to)
    {
        const og_index stride = (og_index)og_w_stride(a);
        const og_index left = a.k - k - og_thread() % 4 * OG_WIDE;
        const bool whole = r.aligned && k + OG_STAGE_K <= a.k;
#pragma unroll
        for (int i = 0; i < OG_W_ROWS; i++) {
            const og_element *p = a.right0 + r.at[i];
            if (whole) {
#pragma unroll
                for (int j = 0; j < OG_ITEMS; j++)
                    if constexpr (OG_RAW)
                        og_copy_16(og_raw_at(to, i, j), p + j * 4 * OG_WIDE);
                    else
                        *(uint4 *)&part[i][j] = __ldg((const uint4 *)(p + j * 4 * OG_WIDE));
            } else {
#pragma unroll
                for (int j = 0; j < OG_ITEMS * OG_WIDE; j++) {
                    const int at = j / OG_WIDE * 4 * OG_WIDE + j % OG_WIDE;
                    part[i][j / OG_WIDE].e[j % OG_WIDE] =
                        at < left ? __ldg(p + at * stride) : (og_element)0;
                }
                if constexpr (OG_RAW)
#pragma unroll
                    for (int j = 0; j < OG_ITEMS; j++)
                        *(uint4 *)og_raw_at(to, i, j) = *(const uint4 *)&part[i][j];
            }
            r.at[i] += OG_STAGE_K * stride;
        }
    }
};

#if OG_PAIRS
/* Are more than OG_FEW_MARKS of some 16 neighbours of a row's 64 columns marked? */
OG_FN bool og_are_many(const uint32_t *marks)
{
    bool many = false;
#pragma unroll
    for (int i = 0; i < 4; i++)
        many |= __popc(marks[i / 2] >> 16 * (i % 2) & 0xffff) > OG_FEW_MARKS;
    return many;
}

/* Computes the marked sums again, a row's 64 columns after the other's, each by a warp: at most
 * min(k, 4096) / 128 + k / 4096 + 7 roundings. */
OG_FN void og_mma_again(const og_args &a, const og_tile &tile, char *shared)
{
    const uint32_t *marks = (const uint32_t *)(shared + OG_MARKS_AT);
    const int warp = threadIdx.x / 32, count = OG_BM * (OG_BN / 64);
#pragma unroll 1
    for (int i = warp; i < count; i += OG_MMA_THREADS / 32) {
        const int row = i / (OG_BN / 64), run = i % (OG_BN / 64);
        uint64_t left = (uint64_t)marks[2 * i + 1] << 32 | marks[2 * i];
        if (tile.m + row >= a.m || og_are_many(marks + 2 * i))
            continue;
#pragma unroll 1
        for (; left; left &= left - 1) {
            const int n = run * 64 + __popcll((left & (0 - left)) - 1);
            const og_index line = (og_index)og_line_of(a, tile, row);
            const og_factors_again f = og_find_again(a, line, tile.base, tile.n + n);
            const float z = og_add_up(og_sum_part<32>(f, a.k, threadIdx.x % 32));
            if (threadIdx.x % 32 == 0)
                ((float *)shared)[row * OG_PITCH + n] = z;
        }
    }
    __syncthreads();
}

/* Are these 64 columns of a row left to og_redo? The first of the row's threads says so in a.redo. */
OG_FN bool og_leaves(const og_args &a, const og_tile &tile, int row, int run, const char *shared)
{
    const uint32_t *marks = (const uint32_t *)(shared + OG_MARKS_AT) + row * OG_MARK_WORDS;
    const bool leaves = og_are_many(marks + 2 * run);
    if (threadIdx.x % 8 == 0 && tile.m + row < a.m && tile.n + run * OG_RUN < a.n) {
        int64_t line = (int64_t)(tile.n / OG_RUN + run) * a.redo_pitch;
        ((uint8_t *)a.redo)[line + og_line_of(a, tile, row)] = leaves;
        if (leaves)
            *(uint32_t *)a.any_redo = 1;
    }
    return leaves;
}
#endif

OG_KERNEL(og_multiply_mma, OG_MMA_THREADS, OG_BLOCKS)
{
    extern __shared__ __align__(1024) char og_shared[];
    og_mma_sums sum;
    og_mma_tile<og_w_reader>(a, og_shared, sum);
    og_tile tile = og_find_own_tile(a);
    og_leave_sums(a, tile, a.n, sum, og_shared);
    __syncthreads();
#if OG_PAIRS
    og_mma_again(a, tile, og_shared);
#endif
#pragma unroll 1
    for (int i = threadIdx.x / 8; i < OG_BM * (OG_BN / 64); i += OG_MMA_THREADS / 8) {
        const int row = i / (OG_BN / 64), run = i % (OG_BN / 64);
        const int column = run * OG_RUN + threadIdx.x % 8 * 4;
        const float *from = (const float *)og_shared + row * OG_PITCH + column;
        og_vector_sums z[1][2];
        z[0][0] = *(const og_vector_sums *)from;
        z[0][1] = *(const og_vector_sums *)(from + 32);
        og_index m = tile.m + row;
#if OG_PAIRS
        if (og_leaves(a, tile, row, run, og_shared))
            m = a.m; /* nothing is written */
#endif
        og_finish_row(a, tile.base, m, tile.n + column, z);
    }
}

/* ---- for redo.cuh -------------------------------------------------------------------------- */

#if OG_PAIRS
OG_FN bool og_redoes_all(const og_args &)
{
    return false;
}
#endif
