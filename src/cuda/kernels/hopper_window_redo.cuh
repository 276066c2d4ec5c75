/* SPDX-License-Identifier: MIT
 *
 * hopper_window_redo.cuh - what og_multiply_windows has left of a convolution: sums that tensor
 * cores may have lost too much of, in plan.h's order, and pass 0 on them. Part of
 * hopper_windows.cuh, which includes it.
 */

/* The sum of a block of a result's terms. */
OG_FN float og_find_block(const og_args &a, const og_terms &of, og_index from)
{
    const og_index end = from + 256 < of.k ? from + 256 : of.k;
    float p = 0.0f;
#pragma unroll 4
    for (og_index k = from; k < end; k++)
        p = fmaf(og_find_left(a, of, k), og_find_right(a, of, k), p);
    return p;
}

/* The sum of blocks of k in plan.h's order. */
struct og_block_sum {
    float all, group;
};

OG_FN void og_add_block(const og_terms &of, og_index from, float p, og_block_sum &sum)
{
    const og_index end = from + 256;
    sum.group = sum.group + p;
    if (end % 4096 == 0 || end >= of.k) {
        sum.all = sum.all + sum.group;
        sum.group = -0.0f;
    }
}

OG_FN float og_find_sum(const og_args &a, const og_terms &of)
{
    og_block_sum sum = {-0.0f, -0.0f};
    for (og_index from = 0; from < of.k; from += 256)
        og_add_block(of, from, og_find_block(a, of, from), sum);
    return of.k ? sum.all : 0.0f;
}

/* The sum of a block, by all threads of a warp: each reads some of its terms, for a thread alone would
 * wait for memory at each, and all add them up one after the other. */
OG_FN float og_find_block_by_warp(const og_args &a, const og_terms &of, og_index from)
{
    const og_index end = from + 256 < of.k ? from + 256 : of.k;
    float p = 0.0f;
#pragma unroll 1
    for (; from < end; from += 32) {
        const og_index k = from + threadIdx.x % 32;
        const float left = k < end ? og_find_left(a, of, k) : 0.0f;
        const float right = k < end ? og_find_right(a, of, k) : 0.0f;
#pragma unroll 4
        for (int i = 0; i < 32; i++) {
            const float x = __shfl_sync(0xffffffffu, left, i);
            const float y = __shfl_sync(0xffffffffu, right, i);
            p = from + i < end ? fmaf(x, y, p) : p;
        }
    }
    return p;
}

/* The same sum, by all threads of a warp: of many blocks they take one each. */
OG_FN float og_find_sum_by_warp(const og_args &a, const og_terms &of)
{
    const int lane = threadIdx.x % 32;
    const bool are_few = of.k <= 16 * 256;
    og_block_sum sum = {-0.0f, -0.0f};
    for (og_index from = 0; are_few && from < of.k; from += 256)
        og_add_block(of, from, og_find_block_by_warp(a, of, from), sum);
    for (og_index first = 0; !are_few && first < of.k; first += 32 * 256) {
        const float p = og_find_block(a, of, first + lane * 256);
        for (int b = 0; b < 32 && first + b * 256 < of.k; b++)
            og_add_block(of, first + b * 256, __shfl_sync(0xffffffffu, p, b), sum);
    }
    return of.k ? sum.all : 0.0f;
}

/* Of a thread's rows that are there, those that are marked, of one of its places: all, or by a.marks. */
OG_FN uint32_t og_find_marks(const og_args &a, og_index tile, int thread, int second,
                             uint32_t there)
{
    if (og_redoes_all(a))
        return there;
    const uint32_t *marks =
        (const uint32_t *)a.marks + ((int64_t)tile * OG_TILE_THREADS + thread) * OG_LOST_WORDS;
    const uint32_t word = marks[OG_LOST_WORDS == 2 ? second : 0];
    return (OG_LOST_WORDS == 2 || !second ? word : word >> 16) &
           (OG_LOST_WORDS == 2 ? ~0u : 0xffffu) & there;
}

/* One element of a vector, for finish.cuh. */
struct og_left_part : og_row_part<1> {
    int element;

    OG_FN og_span span(const og_left_part &f, const og_args &, int, int)
    {
        return {f.element, f.element + 1};
    }
};

/* Pass 0 on a sum that tensor cores have left. */
OG_FN void og_finish_left(const og_args &a, const og_terms &of, float sum)
{
    og_left_part f;
    f.there = true;
    f.index = of.base * a.m + of.filter;
    f.element = (int)(of.n % OG_V);
    f.n = of.n - f.element;
    og_load_kept<32, false>(a, f.n, f.kept);
#pragma unroll
    for (int j = 0; j < OG_V; j++)
        f.sums[0][0].e[j] = sum;
    og_finish_fragment(a, f);
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
        const og_index row = tile.m + og_find_marked_row(its, from);
        const og_terms of = og_find_terms(a, tile, row, column);
        const float sum = og_find_sum_by_warp(a, of);
        if (lane == from) {
            og_finish_left(a, of, sum);
            marks &= marks - 1;
        }
    }
}

/* What a warp of og_multiply_windows has left of a tile: number i of all of them. */
OG_FN void og_redo_part(const og_args &a, og_index i)
{
    const int lane = threadIdx.x % 32;
    const og_index item = i / OG_TILE_WARPS;
    const int thread = (int)(i % OG_TILE_WARPS) * 32 + lane;
    const og_window_tile tile = og_find_window_tile(a, item);
    const og_window_place at = og_find_place(og_first_place(thread));
    for (int second = 0; second < 2; second++) {
        const og_index n = og_find_place_column(a, tile, at) + 8 * OG_STRIDE_W * second;
        uint32_t marks = og_find_marks(a, item, thread, second,
                                       og_find_rows_there(a, tile, at, 8 * second, thread));
        if (!og_redoes_all(a)) {
            og_redo_marks(a, tile, n, marks);
            continue;
        }
        for (; marks; marks &= marks - 1) { /* all of them: a thread each */
            const og_terms of = og_find_terms(a, tile, tile.m + og_find_marked_row(marks, lane), n);
            og_finish_left(a, of, og_find_sum(a, of));
        }
    }
}

/* A warp looks at 32 flags at a time, of parts that are as far apart as there are warps: few are set,
 * and neighbours often are together. */
OG_KERNEL(og_redo_windows, 256)
{
    og_await_launch();
    if (!og_redoes_all(a) && !*(const uint32_t *)a.any_redo)
        return;
    const int lane = threadIdx.x % 32;
    const int64_t warps = (int64_t)gridDim.x * 8, end = (int64_t)a.items * OG_TILE_WARPS;
    for (int64_t first = (int64_t)blockIdx.x * 8 + threadIdx.x / 32; first < end;
         first += 32 * warps) {
        const int64_t own = first + lane * warps;
        const bool is_set = own < end && (og_redoes_all(a) || ((const uint8_t *)a.flags)[own]);
        for (uint32_t have = __ballot_sync(0xffffffffu, is_set); have; have &= have - 1)
            og_redo_part(a, (og_index)(first + (__popc((have & -have) - 1)) * warps));
    }
}
