/* SPDX-License-Identifier: MIT
 *
 * hopper_float32.cuh - a product of float32 on Hopper's tensor cores and pass 0 on its tiles of
 * OG_BM rows and OG_TILE_COLUMNS columns.
 *
 * A block stays on its multiprocessor and takes tile after tile. Of its warpgroups the first
 * brings boxes of w and x into rings in shared memory (TMA), the others multiply 64 columns
 * each: og_multiply_item() of hopper_pairs.cuh. Thread 4 g + t of a warp then holds two
 * columns of the warp's 16, and rows 2 t and 2 t + 1 of each 8.
 *
 * PARAMETERS
 *   OG_SUM_BYTES the larger of the sums og_sums0 and og_terms0, at most 8
 */
#include "cuda/kernels/finish.cuh"
#include "cuda/kernels/hopper_pairs.cuh"
#include "cuda/kernels/redo.cuh"

enum {
    OG_SUMS_AT = OG_RING_BYTES,                    /* [group][warp][row of 8][t] */
    OG_VOTES_AT = OG_SUMS_AT + 256 * OG_SUM_BYTES, /* [group][warp][t] */
    OG_ASKED_AT = OG_VOTES_AT + 256,               /* [group] */
    OG_BARRIERS_AT = OG_ASKED_AT + 256,
    OG_TENSOR_SHARED = OG_BARRIERS_AT + 8 * OG_BARRIERS,
    OG_TENSOR_THREADS = 128 + 128 * OG_GROUPS,
    /* Registers of threads that copy and, of 256, of those that compute. Indices of 64 bits take more
     * than 24 for the first. */
    OG_COPYING = sizeof(og_index) > 4 ? 40 : 24,
    OG_COMPUTING = sizeof(og_index) > 4 ? 232 : 240
};
static_assert(OG_SHARED_BYTES == OG_TENSOR_SHARED, "the launch gives it");

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- pass 0 ------------------------------------------------------------------------------ */

/* Rows 8 batch on of a thread's place, for finish.cuh: two columns, OG_BESIDE apart. A run is the
 * columns of the group's four warps, of which a warp has 16 neighbours. */
template <int batch> struct og_place_part {
    enum { rows = 8, vectors = 2, apart = OG_BESIDE };
    static const bool whole = false;

    const og_pairs_place &at;
    const og_held &sums;
    uint32_t skips[2]; /* of either column: rows (bit i) that are not there, or left to og_redo */
    const og_offsets &product;
    const og_kept (&kept)[2];
    void *shared; /* of the group: sums of a row for each warp */
    og_index n;

    OG_FN og_offsets find(const og_place_part &f, const og_args &a, int r)
    {
        og_offsets to = f.product;
        const og_index row = f.at.m + og_row_of(8 * batch + r);
        og_step_rows(a, row < a.m ? row : a.m - 1, to); /* a row's own is read anyway */
        og_step_row(a, f.n, to);
        return to;
    }
    OG_FN og_span span(const og_place_part &f, const og_args &, int r, int v)
    {
        return {0, !(f.skips[v] >> (8 * batch + r) & 1)};
    }
    OG_FN float sum(const og_place_part &f, int, int r, int v, int)
    {
        return f.sums[(4 * batch + r / 2) * 4 + 2 * v + r % 2];
    }
    template <class P> OG_FN void grow(typename P::sums &s)
    {
        P::merge(s, P::down(s, OG_STEP_1, 32));
        P::merge(s, P::down(s, OG_STEP_2, 32));
        P::merge(s, P::down(s, OG_STEP_4, 32));
    }
    template <class P> OG_FN void meet(const og_place_part &f, typename P::sums (&s)[rows])
    {
        typename P::sums *shared = (typename P::sums *)f.shared;
#pragma unroll
        for (int r = 0; r < 8; r++)
            if (f.at.first)
                shared[(f.at.warp * 8 + r) * 4 + f.at.t] = s[r];
        og_meet_group(f.at.group);
#pragma unroll
        for (int r = 0; r < 8; r++) {
            typename P::sums warps[4];
#pragma unroll
            for (int w = 0; w < 4; w++)
                warps[w] = shared[(w * 8 + r) * 4 + f.at.t];
            og_grow_tree<P, 4>(warps);
            s[r] = warps[0];
        }
        og_meet_group(f.at.group); /* before the next one writes */
    }
    OG_FN og_index row(const og_place_part &f, int r)
    {
        return f.at.above + f.at.m + og_row_of(8 * batch + r);
    }
    OG_FN og_index run(const og_place_part &f)
    {
        return f.at.run;
    }
    OG_FN bool writes(const og_place_part &f, const og_args &a, int r)
    {
        return f.at.warp == 0 && f.at.first && span(f, a, r, 0).end;
    }
};

/* Eight rows at a time: what pass 0 reads there is read before the first is written. */
template <int batch>
OG_FN void og_finish_batch(const og_args &a, const og_pairs_place &at, const og_held &sum,
                           uint32_t skipped, const og_offsets &product, const og_kept (&kept)[2],
                           void *shared)
{
    const uint32_t first = at.n < a.n ? skipped : ~0u;
    const uint32_t second = at.n + OG_BESIDE < a.n ? skipped : ~0u;
    og_finish_fragment(a,
                       og_place_part<batch>{at, sum, {first, second}, product, kept, shared, at.n});
}

OG_FN void og_finish_place(const og_args &a, const og_pairs_place &at, const og_findings &found,
                           og_held &sum, uint32_t *votes, og_asked &asked, void *shared)
{
    og_kept kept[2];
    og_load_kept<OG_BESIDE, false>(a, at.n, kept);
    const uint32_t skipped = og_end_sums(a, at, found, sum, votes, asked) | ~at.there;
    og_offsets product = og_start();
    og_seek_product(a, at.base, product);
    og_finish_batch<0>(a, at, sum, skipped, product, kept, shared);
    if constexpr (OG_BM > 32)
        og_finish_batch<1>(a, at, sum, skipped, product, kept, shared);
    if constexpr (OG_BM > 64) {
        og_finish_batch<2>(a, at, sum, skipped, product, kept, shared);
        og_finish_batch<3>(a, at, sum, skipped, product, kept, shared);
    }
}

/* ---- the kernel ---------------------------------------------------------------------------- */

/* The column of the tile that is a consumer's: thread counts these alone. */
OG_FN int og_find_tile_column(int thread)
{
    return thread / 32 * 16 + og_column_of(thread % 32 / 4);
}

/* Which rows of a tile are multiplied; are there others in it? */
struct og_rows {
    bool is_wide, has_others;
};

/* Of a thread's rows (bit i), from m on, those that are multiplied. */
OG_FN uint32_t og_find_rows(const og_args &a, og_index above, og_index m, const og_rows &rows)
{
    const og_row_scale *scales = og_find_scales(a, above, m);
    uint32_t wide = 0;
    if (!rows.has_others)
        return ~0u;
#pragma unroll 1
    for (int i = 0; i < OG_BM / 4; i++)
        wide |= (uint32_t)(scales[og_row_of(i)].undo < 0.0f) << i;
    return rows.is_wide ? wide : ~wide;
}

/* Pass 0 on tile i, on those rows that are multiplied, by its consumers. shared: sums, votes, sums that
 * are asked for. */
OG_FN void og_end_tile(const og_args &a, og_index i, int thread, const og_rows &rows,
                       const og_findings &found, og_held &sum, char *shared)
{
    const og_tile tile = og_find_tile<OG_BM, OG_TILE_COLUMNS>(a, i);
    og_pairs_place at;
    og_await_launch(); /* og_split's x_scales */
    at.warp = thread / 32 % 4;
    at.group = thread / 128;
    at.t = thread % 4;
    at.first = thread % 32 < 4;
    at.base = tile.base;
    at.above = tile.base * a.m;
    at.m = tile.m + 2 * at.t;
    at.n = tile.n + og_find_tile_column(thread);
    at.run = tile.n / OG_RUN + at.group;
    at.there = og_rows_there(a.m - at.m) & og_find_rows(a, at.above, at.m, rows);
    at.is_wide = rows.is_wide;
    og_finish_place(a, at, found, sum,
                    (uint32_t *)(shared + OG_VOTES_AT - OG_SUMS_AT) + at.group * 16,
                    *(og_asked *)(shared + OG_ASKED_AT - OG_SUMS_AT + at.group * 128),
                    shared + at.group * 128 * OG_SUM_BYTES);
}

#if OG_BY_SEGMENTS
/* The sums of a segment wait in the scratch; wide rows' come after those of others. */
OG_FN void og_leave_segment(const og_args &a, og_index i, int thread, const og_rows &rows,
                            const og_findings &found, const og_held &sum)
{
    og_four *to = og_find_sums(a, i, thread);
    if (rows.is_wide && rows.has_others) {
        const og_tile tile = og_find_tile<OG_BM, OG_TILE_COLUMNS>(a, og_find_item(a, i).tile);
        const uint32_t own = og_find_rows(a, tile.base * a.m, tile.m + 2 * (thread % 4), rows);
#pragma unroll
        for (int j = 0; j < OG_HELD; j++)
            if (own >> (j / 4 * 2 + j % 2) & 1)
                to[j / 4 * 128 * OG_GROUPS].e[j % 4] = sum[j];
        return;
    }
#pragma unroll
    for (int j = 0; j < OG_HELD / 4; j++)
        to[j * 128 * OG_GROUPS] = og_take_four(sum, j);
    *og_find_findings(a, i, thread) = found;
}
#endif

/* Multiplies all rows of one kind; returns the kinds that follow. Kinds have loops of their own, one
 * after the other: with both in one ptxas 13 spills. */
template <bool is_wide>
OG_FN uint32_t og_consume_rows(const og_args &a, og_pairs_consumer &c, char *shared)
{
    og_held chain, sum;
#pragma unroll
    for (int i = 0; i < OG_HELD; i++)
        chain[i] = 0.0f;
    for (;;) {
        const uint32_t next = og_peek_next(c);
        if (next & OG_NO_ITEM) {
            og_release_x(c);
            return next & OG_BOTH_ROWS;
        }
        const og_rows rows = {is_wide, (next & OG_BOTH_ROWS) == OG_BOTH_ROWS};
        const og_index i = blockIdx.x + (og_index)(next / OG_STEP_ITEM) * (og_index)gridDim.x;
        og_multiply_item<is_wide>(a, c, og_find_item(a, i), sum, chain);
#if OG_BY_SEGMENTS
        og_leave_segment(a, i, threadIdx.x - 128, rows, c.reader.found, sum);
#else
        og_end_tile(a, i, og_thread() - 128, rows, c.reader.found, sum, shared + OG_SUMS_AT);
#endif
    }
}

OG_FN void og_consume_pairs(const og_args &a, const og_pairs_rings &rings, char *shared)
{
    const int thread = threadIdx.x - 128;
    og_pairs_consumer c = og_start_consumer(rings, og_find_tile_column(thread), thread % 4);
    if (og_peek_next(c) & OG_NO_ITEM) /* the first item has no plain rows */
        og_drop_early(c, og_find_item(a, (og_index)blockIdx.x));
    const uint32_t more = og_consume_rows<false>(a, c, shared);
    if constexpr (OG_SPLIT_WIDENS)
        if (more)
            og_consume_rows<true>(a, c, shared);
}

#if OG_BY_SEGMENTS
/* A thread adds up the segments of four sums of a tile, in order, where the first one was. */
extern "C" __global__ void __launch_bounds__(128) og_add_segments(const __grid_constant__ og_args a)
{
    const og_index fours = OG_HELD / 4 * 128 * OG_GROUPS;
    const og_index thread = (og_index)blockIdx.x * 128 + (og_index)threadIdx.x;
    const og_index tile = thread / fours;
    og_await_launch();
    if (og_redoes_all(a))
        return;
    float4 *from = (float4 *)og_find_sums(a, tile * a.parts, (int)(thread - tile * fours));
    float4 sum = from[0];
#pragma unroll 8
    for (og_index part = 1; part < a.parts; part++) {
        const float4 v = from[part * fours];
        sum = {og_add_sums(v.x, sum.x), og_add_sums(v.y, sum.y), og_add_sums(v.z, sum.z),
               og_add_sums(v.w, sum.w)};
    }
    from[0] = sum;
}

/* A thread's sums of a block's tile, of all segments. */
OG_FN void og_join_all(const og_args &a, og_held &sum)
{
#pragma unroll
    for (int i = 0; i < OG_HELD; i++)
        sum[i] = -0.0f; /* -0 + v is v */
    for (og_index part = 0; part < a.join_parts; part++) {
        const og_four *from = og_find_sums(a, blockIdx.x * a.parts + part, threadIdx.x);
#pragma unroll
        for (int i = 0; i < OG_HELD / 4; i++)
            og_join_four(sum, i, *(const float4 *)&from[i * 128 * OG_GROUPS]);
    }
}

/* A block joins the segments of a tile, in order, or takes what og_add_segments has left, and
 * applies pass 0. */
extern "C" __global__ void __launch_bounds__(128 * OG_GROUPS, 1)
    og_join(const __grid_constant__ og_args a)
{
    extern __shared__ __align__(16) char og_join_memory[];
    og_await_launch();
    if (og_redoes_all(a))
        return;
    og_findings found = {0, 0};
    for (og_index part = 0; part < a.parts; part++) {
        const og_findings more = *og_find_findings(a, blockIdx.x * a.parts + part, threadIdx.x);
        found.most = og_max_halves(found.most, more.most);
        found.quarters = og_add_counts(found.quarters, more.quarters);
    }
    const uint32_t kinds =
        og_find_kinds(a, og_find_tile<OG_BM, OG_TILE_COLUMNS>(a, (og_index)blockIdx.x));
#pragma unroll 1
    for (int i = 0; i < 2; i++) {
        og_held sum;
        if (!(kinds & (i ? OG_WIDE_ROWS : OG_PLAIN_ROWS)))
            continue;
        og_join_all(a, sum);
        og_end_tile(a, blockIdx.x, threadIdx.x, {i == 1, kinds == OG_BOTH_ROWS}, found, sum,
                    og_join_memory);
    }
}
#endif

extern "C" __global__ void __launch_bounds__(OG_TENSOR_THREADS, OG_TENSOR_BLOCKS)
    og_multiply_float32(const __grid_constant__ og_args a)
{
    extern __shared__ __align__(1024) char og_shared[];
    const uint32_t base = (uint32_t)__cvta_generic_to_shared(og_shared);
    if (og_redoes_all(a)) {
        og_await_launch();
        return;
    }
    if (base % 1024)
        __trap(); /* the swizzle is by address */
    og_pairs_rings rings = og_start_pairs_rings(base, base + OG_BARRIERS_AT,
                                                og_shared + (OG_TENSOR_SHARED - 4 * OG_X_STAGES));
    og_publish_barriers();
    __syncthreads();
    /* Registers go from those that only copy to those that compute; 256 threads have enough. */
    if (threadIdx.x < 128) {
        if constexpr (OG_GROUPS > 1 || OG_TENSOR_BLOCKS > 1)
            og_give_registers<OG_COPYING>();
        og_produce_pairs(a, rings);
    } else {
        if constexpr (OG_GROUPS > 1)
            og_take_registers<OG_COMPUTING>();
        else if constexpr (OG_TENSOR_BLOCKS > 1)
            og_take_registers<208>();
        og_consume_pairs(a, rings, og_shared);
    }
}

#else /* where there are no such instructions, w is never where the kernel would be asked */

OG_KERNEL(og_multiply_float32, OG_TENSOR_THREADS)
{
    if (!og_redoes_all(a))
        __trap();
}

#if OG_BY_SEGMENTS
OG_KERNEL(og_add_segments, 128)
{
    if (!og_redoes_all(a))
        __trap();
}

OG_KERNEL(og_join, 128 * OG_GROUPS)
{
    if (!og_redoes_all(a))
        __trap();
}
#endif

#endif
