/* SPDX-License-Identifier: MIT
 *
 * hopper_float32.cuh - a product of float32 on Hopper's tensor cores and pass 0 on its tiles of OG_BM
 * rows and OG_BN columns.
 *
 * A block stays on its multiprocessor and takes tile after tile. Of its warpgroups the first
 * brings boxes of w and x into rings in shared memory (TMA), the others multiply 64 columns
 * each: og_multiply_tile() of hopper_pairs.cuh. Thread 4 g + t of a warp then holds two
 * columns of the warp's 16, and rows 2 t and 2 t + 1 of each 8.
 *
 * PARAMETERS
 *   OG_REDUCES   1: pass 0 reduces, og_sums0; OG_TERMS 1: and has og_terms0
 *   OG_SUM_BYTES the larger of their sums, at most 8
 */
#include "cuda/kernels/reduce.cuh"
#include "cuda/kernels/hopper_pairs.cuh"

enum {
    OG_SUMS_AT = OG_RING_BYTES,                    /* [group][warp][row of 8][t] */
    OG_VOTES_AT = OG_SUMS_AT + 256 * OG_SUM_BYTES, /* [turn][group][warp][t] */
    OG_BARRIERS_AT = OG_VOTES_AT + 256,
    OG_TENSOR_SHARED = OG_BARRIERS_AT + 8 * OG_BARRIERS,
    OG_TENSOR_THREADS = 128 + 128 * OG_GROUPS
};
static_assert(OG_SHARED_BYTES == OG_TENSOR_SHARED, "the launch gives it");

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- pass 0 ------------------------------------------------------------------------------ */

#if OG_REDUCES
/* s[r] = the reductions of the group's 64 columns of 8 rows: a tree over the columns of a
 * warp, then over warps; every thread's. */
template <class P>
OG_FN void og_reduce_rows(const og_args &a, const og_place &at, const typename P::peaks *peaks,
                          const typename P::pass::values (*y)[2], typename P::sums *shared,
                          typename P::sums *s)
{
    og_row row;
#pragma unroll
    for (int r = 0; r < 8; r++) {
        typename P::sums lanes[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            lanes[h] = P::neutral();
            if (at.n + h * OG_BESIDE < a.n)
                P::add(lanes[h], row, peaks[r], y[r][h]);
        }
        if (OG_BESIDE == 1)
            P::merge(lanes[0], lanes[1]);
#pragma unroll
        for (int h = 0; h < (OG_BESIDE == 1 ? 1 : 2); h++) {
            P::merge(lanes[h], P::down(lanes[h], OG_STEP_1, 32));
            P::merge(lanes[h], P::down(lanes[h], OG_STEP_2, 32));
            P::merge(lanes[h], P::down(lanes[h], OG_STEP_4, 32));
        }
        if (OG_BESIDE != 1)
            P::merge(lanes[0], lanes[1]);
        if (at.first)
            shared[(at.warp * 8 + r) * 4 + at.t] = lanes[0];
    }
    og_meet_group(at.group);
#pragma unroll
    for (int r = 0; r < 8; r++) {
        typename P::sums warps[4];
#pragma unroll
        for (int w = 0; w < 4; w++)
            warps[w] = shared[(w * 8 + r) * 4 + at.t];
        og_grow_tree<P, 4>(warps);
        s[r] = warps[0];
    }
    og_meet_group(at.group); /* before the next one writes */
}

OG_FN void og_keep_rows(const og_args &a, const og_place &at, int batch, uint32_t skipped,
                        const og_pass0::values (*y)[2], void *shared)
{
    og_none none[8];
    og_sums0::sums s[8];
    og_reduce_rows<og_sums0>(a, at, none, y, (og_sums0::sums *)shared, s);
#if OG_TERMS
    og_terms0::sums terms[8];
    og_reduce_rows<og_terms0>(a, at, s, y, (og_terms0::sums *)shared, terms);
#endif
#pragma unroll
    for (int r = 0; r < 8; r++) {
        og_index part = (at.above + at.m + og_row_of(8 * batch + r)) * a.partials + at.run;
        if (at.warp != 0 || !at.first || at.run >= a.runs || (skipped >> (8 * batch + r) & 1))
            continue;
        ((og_sums0::sums *)a.sums0)[part] = s[r];
#if OG_TERMS
        ((og_terms0::sums *)a.terms0)[part] = terms[r];
#endif
    }
}
#endif

/* Pass 0 on 8 rows: what it reads is read before the first is written. skipped: rows (bit i) of
 * which nothing is. */
template <int batch>
OG_FN void og_finish_rows(const og_args &a, const og_place &at, const og_held &sum,
                          uint32_t skipped, const og_offsets &product, og_kept *kept, void *shared)
{
    const uint32_t skips[2] = {at.n < a.n ? skipped : ~0u,
                               at.n + OG_BESIDE < a.n ? skipped : ~0u};
    og_offsets to[8][2];
    og_loads0 x[8][2];
    og_pass0::values y[8][2];
    og_row row;
#pragma unroll
    for (int r = 0; r < 8; r++) {
        og_offsets start = product;
        og_step_rows(a, at.m + og_row_of(8 * batch + r), start);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            to[r][h] = start;
            og_step_row(a, at.n + h * OG_BESIDE, to[r][h]);
            og_loads0::load(a, to[r][h], false, {0, !(skips[h] >> (8 * batch + r) & 1)}, x[r][h]);
        }
    }
#pragma unroll
    for (int r = 0; r < 8; r++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            kept[h].product[0] = sum[(4 * batch + r / 2) * 4 + 2 * h + r % 2];
            og_pass0::compute(a, row, kept[h], x[r][h], 0, y[r][h]);
        }
#pragma unroll
    for (int r = 0; r < 8; r++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            og_pass0::store(a, to[r][h], {0, !(skips[h] >> (8 * batch + r) & 1)}, &row, &y[r][h]);
#if OG_REDUCES
    og_keep_rows(a, at, batch, skipped, y, shared);
#endif
}

OG_FN void og_finish_tile(const og_args &a, const og_place &at, og_held &sum, uint32_t *votes,
                          void *shared)
{
    og_kept kept[2]; /* what is the same for all rows */
#pragma unroll
    for (int h = 0; h < 2; h++) {
        og_offsets to = og_start();
        og_index n = at.n + h * OG_BESIDE;
        og_step_row(a, n < a.n ? n : a.n - 1, to);
        og_kept::load(a, to, true, {0, 1}, kept[h]);
    }
    const uint32_t skipped = og_end_sums(a, at, sum, votes) | ~at.there;
    og_offsets product = og_start();
    og_seek_product(a, at.base, product);
    og_finish_rows<0>(a, at, sum, skipped, product, kept, shared);
    if constexpr (OG_BM > 32)
        og_finish_rows<1>(a, at, sum, skipped, product, kept, shared);
    if constexpr (OG_BM > 64) {
        og_finish_rows<2>(a, at, sum, skipped, product, kept, shared);
        og_finish_rows<3>(a, at, sum, skipped, product, kept, shared);
    }
}

/* ---- the kernel ---------------------------------------------------------------------------- */

/* The column of the tile that is a consumer's: thread counts these alone. */
OG_FN int og_find_column(int thread)
{
    return thread / 32 * 16 + og_column_of(thread % 32 / 4);
}

/* Pass 0 on tile i, by its consumers. shared: sums, then votes; turn: 0 and 1, in turn. */
OG_FN void og_end_tile(const og_args &a, og_index i, int thread, int turn, og_held &sum,
                       char *shared)
{
    const og_tile tile = og_find_tile(a, i);
    og_place at;
    og_await_launch(); /* og_split's x_scales */
    at.warp = thread / 32 % 4;
    at.group = thread / 128;
    at.t = thread % 4;
    at.first = thread % 32 < 4;
    at.base = tile.base;
    at.above = tile.base * a.m;
    at.m = tile.m * OG_BM + 2 * at.t;
    at.n = tile.n * OG_BN + og_find_column(thread);
    at.run = tile.n * OG_GROUPS + at.group;
    at.there = og_rows_there(a.m - at.m);
    og_finish_tile(a, at, sum,
                   (uint32_t *)(shared + OG_VOTES_AT - OG_SUMS_AT) + turn * 32 + at.group * 16,
                   shared + at.group * 128 * OG_SUM_BYTES);
}

OG_FN void og_consume(const og_args &a, const og_rings &rings, char *shared)
{
    const int thread = threadIdx.x - 128;
    og_consumer c = og_start_consumer(rings, og_find_column(thread), thread % 4);
    og_held chain, sum;
#pragma unroll
    for (int i = 0; i < OG_HELD; i++)
        chain[i] = 0.0f;
    int turn = 0;
    for (og_index i = blockIdx.x; i < a.items; i += gridDim.x) {
        og_multiply_tile(a, c, og_find_item(a, i), sum, chain);
#if OG_PARTS
        og_four *to = og_find_sums(a, i, thread);
#pragma unroll
        for (int j = 0; j < OG_HELD / 4; j++)
            to[j * 128 * OG_GROUPS] = og_take_four(sum, j);
#else
        og_end_tile(a, i, thread, turn, sum, shared + OG_SUMS_AT);
        turn ^= 1;
#endif
    }
}

#if OG_PARTS
/* A thread four sums of a tile: their segments are added up, in order, where the first was. */
extern "C" __global__ void __launch_bounds__(128)
    og_add_segments(const __grid_constant__ og_args a)
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

/* A block a tile: its segments, in order, or what og_add_segments has left. */
extern "C" __global__ void __launch_bounds__(128 * OG_GROUPS)
    og_join(const __grid_constant__ og_args a)
{
    extern __shared__ __align__(16) char og_join_memory[];
    og_held sum;
    og_await_launch();
    if (og_redoes_all(a))
        return;
#pragma unroll
    for (int i = 0; i < OG_HELD; i++)
        sum[i] = -0.0f; /* -0 + v is v */
    for (og_index part = 0; part < a.join_parts; part++) {
        const og_four *from = og_find_sums(a, blockIdx.x * a.parts + part, threadIdx.x);
#pragma unroll
        for (int i = 0; i < OG_HELD / 4; i++)
            og_join_four(sum, i, *(const float4 *)&from[i * 128 * OG_GROUPS]);
    }
    og_end_tile(a, blockIdx.x, threadIdx.x, 0, sum, og_join_memory);
}
#endif

extern "C" __global__ void __launch_bounds__(OG_TENSOR_THREADS, OG_TENSOR_BLOCKS)
    og_tensor(const __grid_constant__ og_args a)
{
    extern __shared__ __align__(1024) char og_shared[];
    const uint32_t base = (uint32_t)__cvta_generic_to_shared(og_shared);
    if (og_redoes_all(a)) {
        og_await_launch();
        return;
    }
    if (base % 1024)
        __trap(); /* the swizzle is by address */
    og_rings rings = og_start_rings(base, base + OG_BARRIERS_AT);
    og_publish_barriers();
    __syncthreads();
    /* Registers go from those that only copy to those that compute; 256 threads have enough. */
    if (threadIdx.x < 128) {
        if constexpr (OG_GROUPS > 1 || OG_TENSOR_BLOCKS > 1)
            og_give_registers<40>();
        og_produce(a, rings);
    } else {
        if constexpr (OG_GROUPS > 1)
            og_take_registers<232>();
        else if constexpr (OG_TENSOR_BLOCKS > 1)
            og_take_registers<208>();
        og_consume(a, rings, og_shared);
    }
}

#else /* where there are no such instructions, w is never where og_tensor would be asked */

OG_KERNEL(og_tensor, OG_TENSOR_THREADS)
{
    if (!og_redoes_all(a))
        __trap();
}

#if OG_PARTS
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
