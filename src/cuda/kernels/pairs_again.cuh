/* SPDX-License-Identifier: MIT
 *
 * pairs_again.cuh - a sum of a product on tensor cores that may have lost too much, computed again by
 * the threads that have it.
 *
 * PARAMETERS
 *   og_x_row(), og_w_row(), og_w_stride(), a.x_k: the factors, of float32
 */
#include "cuda/kernels/pairs.cuh"

/* More marked columns of 16 neighbours of a row, and redo.cuh computes all 64. A warpgroup takes 2
 * microseconds for one at k = 8192, redo.cuh 0.07 if it computes all rows (H200). */
enum { OG_FEW_MARKS = 2, OG_AGAIN_AHEAD = 4 };

/* A row of x and a column of w. */
struct og_factors_again {
    const og_element *x, *w;
    int64_t x_stride, w_stride;
    bool by_fours;
};

OG_FN og_factors_again og_find_again(const og_args &a, og_index row, og_index base, og_index n)
{
    og_factors_again f = {og_x_row(a, row), og_w_row(a, base, n), a.x_k, og_w_stride(a), false};
    f.by_fours = og_is_by_fours(f.x, f.x_stride) && og_is_by_fours(f.w, f.w_stride);
    return f;
}

/* p += OG_AGAIN_AHEAD fours of x and w, step apart from k = at on. whole: all of them are there, and
 * aligned; else those beyond k are 0 and -0, which change no sum. */
template <int step>
OG_FN void og_add_fours(const og_factors_again &f, og_index at, og_index k, bool whole,
                        float (&p)[4])
{
    if (whole) {
        og_four x[OG_AGAIN_AHEAD], w[OG_AGAIN_AHEAD];
#pragma unroll
        for (int i = 0; i < OG_AGAIN_AHEAD; i++) {
            x[i] = *(const og_four *)(f.x + at + step * i);
            w[i] = *(const og_four *)(f.w + at + step * i);
        }
#pragma unroll
        for (int i = 0; i < 4 * OG_AGAIN_AHEAD; i++)
            p[i % 4] = og_fma_f32(x[i / 4].e[i % 4], w[i / 4].e[i % 4], p[i % 4]);
        return;
    }
#pragma unroll 1
    for (int i = 0; i < OG_AGAIN_AHEAD; i++) {
        const og_four x = og_load_four(f.x, f.x_stride, false, at + step * i, k, 0.0f);
        const og_four w = og_load_four(f.w, f.w_stride, false, at + step * i, k, -0.0f);
#pragma unroll
        for (int j = 0; j < 4; j++)
            p[j] = og_fma_f32(x.e[j], w.e[j], p[j]);
    }
}

/* The part of their product over k that is one of so many lanes': four of each 4 * lanes k, in four
 * sums, which each 4096 k join. */
template <int lanes> OG_FN float og_sum_part(const og_factors_again &f, og_index k, int lane)
{
    enum { STEP = 4 * lanes, BATCH = STEP * OG_AGAIN_AHEAD };
    static_assert(4096 % BATCH == 0, "");
    float sum = 0.0f;
#pragma unroll 1
    for (og_index first = 0; first < k; first += 4096) {
        float p[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 1
        for (og_index at = first; at < first + 4096 && at < k; at += BATCH)
            og_add_fours<STEP>(f, at + 4 * lane, k, f.by_fours && at + BATCH <= k, p);
        sum = sum + ((p[0] + p[1]) + (p[2] + p[3]));
    }
    return sum;
}

/* The sum of a warp's numbers; every lane's. */
OG_FN float og_add_up(float sum)
{
#pragma unroll
    for (int delta = 16; delta; delta /= 2)
        sum = sum + __shfl_xor_sync(0xffffffffu, sum, delta);
    return sum;
}
