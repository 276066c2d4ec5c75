/* SPDX-License-Identifier: MIT
 *
 * hopper_window_redo.cuh - what og_multiply_windows has left of a convolution: sums that tensor
 * cores may have lost too much of, in plan.h's order, and pass 0 on them. Part of
 * hopper_windows.cuh, which includes it.
 */

/* The sum of a block of k. */
OG_FN float og_find_block(const og_args &a, og_index base, og_index m, og_index n, og_index from)
{
    const og_index end = from + 256 < a.k ? from + 256 : a.k;
    float p = 0.0f;
#pragma unroll 4
    for (og_index k = from; k < end; k++)
        p = fmaf(og_find_term<og_left0>(a, base, m, k), og_find_term<og_right0>(a, base, n, k), p);
    return p;
}

/* The sum of blocks of k in plan.h's order. */
struct og_block_sum {
    float all, group;
};

OG_FN void og_add_block(const og_args &a, og_index from, float p, og_block_sum &sum)
{
    const og_index end = from + 256;
    sum.group = sum.group + p;
    if (end % 4096 == 0 || end >= a.k) {
        sum.all = sum.all + sum.group;
        sum.group = -0.0f;
    }
}

OG_FN float og_find_sum(const og_args &a, og_index base, og_index m, og_index n)
{
    og_block_sum sum = {-0.0f, -0.0f};
    for (og_index from = 0; from < a.k; from += 256)
        og_add_block(a, from, og_find_block(a, base, m, n, from), sum);
    return sum.all;
}

/* The same, by all threads of a warp, which take a block each: a thread alone waits for memory at
 * each of its terms. */
OG_FN float og_find_sum_by_warp(const og_args &a, og_index base, og_index m, og_index n)
{
    const int lane = threadIdx.x % 32;
    og_block_sum sum = {-0.0f, -0.0f};
    for (og_index first = 0; first < a.k; first += 32 * 256) {
        const float p = og_find_block(a, base, m, n, first + lane * 256);
        for (int b = 0; b < 32 && first + b * 256 < a.k; b++)
            og_add_block(a, first + b * 256, __shfl_sync(0xffffffffu, p, b), sum);
    }
    return sum.all;
}

/* Rows of a thread that are marked, of one of its places: all that are there, or by a.marks. */
OG_FN uint32_t og_find_marks(const og_args &a, og_index tile, int thread, int second,
                             const og_window_tile &at)
{
    const uint32_t there = og_rows_there(a.m - at.m - 2 * (thread % 4));
    if (og_redoes_all(a))
        return there;
    const uint32_t *marks =
        (const uint32_t *)a.marks + ((int64_t)tile * OG_TILE_THREADS + thread) * OG_LOST_WORDS;
    const uint32_t word = marks[OG_LOST_WORDS == 2 ? second : 0];
    return (OG_LOST_WORDS == 2 || !second ? word : word >> 16) &
           (OG_LOST_WORDS == 2 ? ~0u : 0xffffu) & there;
}

/* Pass 0 on a sum that tensor cores have left. */
OG_FN void og_finish_left(const og_args &a, og_index base, og_index m, og_index n, float sum)
{
    og_vector_sums sums[1][1];
    sums[0][0].e[0] = sum;
    og_finish_row<1>(a, base, m, n, sums);
}

/* Row (bit) i of a thread's, from the first of a tile's. */
OG_FN og_index og_find_marked_row(uint32_t marks, int lane)
{
    return 2 * (lane % 4) + og_row_of(__popc((marks & -marks) - 1));
}

/* Every mark of a warp's threads, one after the other. */
OG_FN void og_redo_marks(const og_args &a, const og_window_tile &tile, og_index n, uint32_t marks)
{
    const int lane = threadIdx.x % 32;
    for (uint32_t have = __ballot_sync(0xffffffffu, marks != 0); have;
         have = __ballot_sync(0xffffffffu, marks != 0)) {
        const int from = __popc((have & -have) - 1);
        const uint32_t its = __shfl_sync(0xffffffffu, marks, from);
        const og_index column = __shfl_sync(0xffffffffu, n, from);
        const og_index m = tile.m + og_find_marked_row(its, from);
        const float sum = og_find_sum_by_warp(a, tile.base, m, column);
        if (lane == from) {
            og_finish_left(a, tile.base, m, column, sum);
            marks &= marks - 1;
        }
    }
}

/* A warp looks at what a warp of og_multiply_windows has left of a tile. */
OG_KERNEL(og_redo_windows, 256)
{
    og_await_launch();
    if (!og_redoes_all(a) && !*(const uint32_t *)a.any_redo)
        return;
    const int lane = threadIdx.x % 32;
    for (og_index i = (og_index)blockIdx.x * 8 + threadIdx.x / 32; i < a.items * OG_TILE_WARPS;
         i += (og_index)gridDim.x * 8) {
        const og_index item = i / OG_TILE_WARPS;
        const int thread = (int)(i % OG_TILE_WARPS) * 32 + lane;
        if (!og_redoes_all(a) && !((const uint8_t *)a.flags)[i])
            continue;
        const og_window_tile tile = og_find_window_tile(a, item);
        const og_window_place at = og_find_place(og_first_place(thread));
        for (int second = 0; second < 2; second++) {
            const og_index n = og_find_place_column(a, tile, at) + 8 * second;
            uint32_t marks = og_is_there(a, tile, at, 8 * second)
                                 ? og_find_marks(a, item, thread, second, tile)
                                 : 0;
            if (!og_redoes_all(a)) {
                og_redo_marks(a, tile, n, marks);
                continue;
            }
            for (; marks; marks &= marks - 1) { /* all of them: a thread each */
                const og_index m = tile.m + og_find_marked_row(marks, lane);
                og_finish_left(a, tile.base, m, n, og_find_sum(a, tile.base, m, n));
            }
        }
    }
}
