/* SPDX-License-Identifier: MIT
 *
 * hopper_pairs.cuh - a tile of a float32 product on Hopper's tensor cores, with float32's
 * accuracy.
 *
 * With v s = hi + lo (v scaled by a power of two s, hi and lo float16), x w is hi hi + hi lo +
 * lo hi up to 2^-22: three tensor-core products whose sum is kept in float32. x was split
 * before (pairs_split.cuh); w is read as it is, and split in registers: each 64 k of a row
 * of w take the power of two that brings their greatest magnitude into [2^14, 2^15). Tensor
 * cores truncate what they add, so a chain of products is 64 k long, its small terms first;
 * then the float32 sum takes it, with w's scale undone. The sum of OG_SEGMENT k is added to
 * those of the segments before, in order.
 *
 * The product is computed transposed: its columns, rows of w, are the 64 rows of wgmma's left
 * factor, which is in registers, and rows of x the columns of its right one: OG_WIDTH is OG_BM.
 *
 * While the tensor cores work on one block of k, a thread splits the next one of w. Which
 * column is which thread's, and in what order it has its k, makes its reads of w free of bank
 * conflicts: OG_SPLIT_SHUFFLES of pairs_split.cuh has x's k in the same order.
 *
 * A sum that may have lost too much to what pairs cannot hold (pairs.cuh) is computed again by its
 * group, before pass 0; where these are many, all 64 columns of the row are left to redo.cuh. Which
 * they are depends on a row of x and on a column of w, so bits never depend on other rows.
 *
 * Rows of x of which pairs lose too much are wide (pairs.cuh), and multiplied with another hi of w. A
 * tile that has rows of both kinds is multiplied twice, and each time only rows of one kind are
 * results: which kind a row is depends on it alone.
 *
 * With OG_TF32 factors are rounded to TF32 instead (hopper_chain.cuh), and sums are not tested.
 *
 * PARAMETERS
 *   OG_BM       rows of a tile: 32, 64 or 128
 *   OG_GROUPS   warpgroups that multiply, 64 columns of a tile each: 1 or 2
 *   OG_TENSOR_BLOCKS  of a multiprocessor: 1, or 2 of one warpgroup that multiplies 32 rows
 *   OG_RING_BYTES     of shared memory that boxes of w and x have
 *   OG_LONG     1: there are several segments, of OG_SEGMENT k
 *   OG_BY_SEGMENTS    1: and a block takes one of a tile at a time; their sums wait in the scratch
 * No bit depends on them.
 *   OG_TURNS_W  1: w was brought into another layout first
 *   OG_X_MOVES  1: there are several products, and each has rows of x of its own
 *   OG_W_ACROSS 1: neighbours in memory are columns of the product; else k of one of them
 */
#include "cuda/kernels/pairs_again.cuh"
#include "cuda/kernels/tiles.cuh"
#include "cuda/kernels/hopper_chain.cuh"

enum {
    OG_TILE_COLUMNS = 64 * OG_GROUPS,
    OG_BARRIERS = 64, /* at most */
    /* a box of w has 32 k: OG_TILE_COLUMNS rows, or 32 rows of each 32 columns */
    OG_W_BOX_BYTES = OG_TILE_COLUMNS * 32 * 4,
    OG_ACROSS_BYTES = 32 * 32 * 4,
    OG_X_STAGES = 4,
    OG_W_STAGES = (OG_RING_BYTES - OG_X_STAGES * OG_X_BOX_BYTES) / OG_W_BOX_BYTES,
    OG_X_RING = OG_W_STAGES * OG_W_BOX_BYTES
};
static_assert(8 * 2 * (OG_W_STAGES + OG_X_STAGES) + 4 * OG_X_STAGES <= 8 * OG_BARRIERS, "");

/* TMA takes addresses that are multiples of 16 alone. */
OG_FN bool og_redoes_all(const og_args &a)
{
    return !OG_TURNS_W && (uint64_t)a.w % 16 != 0;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

enum { OG_BESIDE = OG_W_ACROSS ? 1 : 8 }; /* from a thread's column to its other one */

/* A thread's place in a tile: columns n and n + OG_BESIDE, rows m + 8 (i / 2) + i % 2, i below
 * OG_BM / 4. */
struct og_pairs_place {
    og_index base, above; /* its product, rows of the products before that */
    og_index m, n, run;   /* run: of OG_RUN columns, its group's */
    int group, warp, t;
    bool first; /* g is 0 */
    uint32_t
        there;    /* bit i: that row is one of the product's, and of the kind that is multiplied */
    bool is_wide; /* that kind */
};

/* Kinds of rows that a tile has. */
enum { OG_PLAIN_ROWS = 1, OG_WIDE_ROWS = 2, OG_BOTH_ROWS = 3 };

/* What a stage of x is of: item OG_STEP_ITEM * i of a block, and the kinds of its rows; or nothing, and
 * the kinds that follow. Of the items of a block plain rows are multiplied first, then wide ones. */
enum { OG_NO_ITEM = 4, OG_STEP_ITEM = 8 };

/* Shared memory of a block, and its barriers: a stage is full, a stage is empty. next: what stages of x
 * are of. */
struct og_pairs_rings {
    uint32_t w, x, w_full, w_empty, x_full, x_empty;
    volatile uint32_t *next;
};

OG_FN og_pairs_rings og_start_pairs_rings(uint32_t base, uint32_t barriers, void *next)
{
    og_pairs_rings rings;
    rings.next = (volatile uint32_t *)next;
    rings.w = base;
    rings.x = base + OG_X_RING;
    rings.w_full = barriers;
    rings.w_empty = rings.w_full + 8 * OG_W_STAGES;
    rings.x_full = rings.w_empty + 8 * OG_W_STAGES;
    rings.x_empty = rings.x_full + 8 * OG_X_STAGES;
    for (int i = 0; threadIdx.x == 0 && i < OG_W_STAGES; i++) {
        og_barrier_init(rings.w_full + 8 * i, 1);
        og_barrier_init(rings.w_empty + 8 * i, 4 * OG_GROUPS); /* warps that read */
    }
    for (int i = 0; threadIdx.x == 0 && i < OG_X_STAGES; i++) {
        og_barrier_init(rings.x_full + 8 * i, 1);
        og_barrier_init(rings.x_empty + 8 * i, 4 * OG_GROUPS);
    }
    return rings;
}

/* What a block does at a time: k from .. to - 1 of a tile. */
struct og_item {
    og_index tile;
    int from, to;
};

OG_FN og_item og_find_item(const og_args &a, og_index i)
{
#if OG_BY_SEGMENTS
    const og_index tile = i / a.parts;
    const int from = (int)(i - tile * a.parts) * OG_SEGMENT, end = (int)a.k_padded;
    return {tile, from, end - from < OG_SEGMENT ? end : from + OG_SEGMENT};
#else
    return {i, 0, (int)a.k_padded};
#endif
}

/* Scales of the rows of x from m on, of a product that comes after `above` rows. There are some for
 * as many rows more as a tile has. */
OG_FN const og_row_scale *og_find_scales(const og_args &a, og_index above, og_index m)
{
    return (const og_row_scale *)a.x_scales + ((OG_X_MOVES ? above : 0) + m);
}

/* Which rows a tile has. All of a warp come, after og_split. */
OG_FN uint32_t og_find_kinds(const og_args &a, const og_tile &tile)
{
#ifdef OG_TF32
    return OG_PLAIN_ROWS;
#else
    const og_row_scale *scales = og_find_scales(a, tile.base * a.m, tile.m);
    uint32_t kinds = 0;
#pragma unroll
    for (int i = 0; i < OG_BM; i += 32) {
        const int row = i + (int)threadIdx.x % 32;
        const uint32_t kind = scales[row].undo < 0.0f ? OG_WIDE_ROWS : OG_PLAIN_ROWS;
        kinds |= tile.m + row < a.m ? kind : 0;
    }
    return __reduce_or_sync(0xffffffffu, kinds);
#endif
}

/* ---- the producers: a warp each, of which a thread copies ------------------------------------ */

/* A box of w, at k. */
OG_FN void og_send_w(const og_args &a, const og_pairs_rings &rings, const og_tile &tile, int k,
                     og_ring_turn &turn)
{
    const int base = (int)(OG_TURNS_W ? tile.base : og_w_slabs(a, tile.base));
    const uint32_t to = rings.w + turn.stage * OG_W_BOX_BYTES;
    const uint32_t full = rings.w_full + 8 * turn.stage;
    const uint64_t policy = a.m_tiles == 1 ? OG_READ_ONCE : OG_READ_NORMALLY;
    if (threadIdx.x % 32 == 0) {
        og_barrier_wait(rings.w_empty + 8 * turn.stage, turn.phase);
        og_barrier_expect(full, OG_W_BOX_BYTES);
#if OG_W_ACROSS
#pragma unroll
        for (int box = 0; box < OG_TILE_COLUMNS / 32; box++)
            og_copy_box(to + box * OG_ACROSS_BYTES, &a.w_map, (int)tile.n + 32 * box, k, base, full,
                        policy);
#else
        og_copy_box(to, &a.w_map, k, (int)tile.n, base, full, policy);
#endif
    }
    og_advance<OG_W_STAGES>(turn);
}

/* Boxes of w that come before og_split has ended: of a block's first item, as many as there is room
 * for. If that has no plain rows, they are not used. */
OG_FN int og_count_early(const og_item &item)
{
    const int boxes = (item.to - item.from) / 32;
    return boxes < OG_W_STAGES ? boxes : OG_W_STAGES;
}

OG_FN void og_produce_w(const og_args &a, const og_pairs_rings &rings)
{
    og_ring_turn turn = {0, 1};
    og_fetch_map(&a.w_map);
    og_item item = og_find_item(a, (og_index)blockIdx.x);
    og_tile tile = og_find_tile<OG_BM, OG_TILE_COLUMNS>(a, item.tile);
    int early = item.from + 32 * og_count_early(item);
    for (int k = item.from; k < early; k += 32)
        og_send_w(a, rings, tile, k, turn);
    og_await_launch(); /* og_split */
    uint32_t seen = OG_PLAIN_ROWS;
    for (uint32_t rows = OG_PLAIN_ROWS; seen & rows; rows *= 2) {
        for (og_index i = blockIdx.x; i < a.items; i += gridDim.x) {
            item = og_find_item(a, i);
            tile = og_find_tile<OG_BM, OG_TILE_COLUMNS>(a, item.tile);
            const uint32_t kinds = og_find_kinds(a, tile);
            seen |= kinds;
            for (int k = early ? early : item.from; kinds & rows && k < item.to; k += 32)
                og_send_w(a, rings, tile, k, turn);
            early = 0;
        }
    }
}

/* A box of x, at k, is on its way; its stage is not full before og_announce_x(). */
OG_FN void og_send_x(const og_args &a, const og_pairs_rings &rings, const og_tile &tile, int k,
                     const og_ring_turn &turn)
{
#ifdef OG_TF32 /* slabs of 32 k */
    const int before = OG_X_MOVES ? (int)(tile.base * (a.k_padded / 32)) : 0;
    const int column = 0, slab = before + k / 32;
#else /* of hi and lo */
    const int column = k, slab = OG_X_MOVES ? 2 * (int)tile.base : 0;
#endif
    if (threadIdx.x % 32 == 0) {
        og_barrier_wait(rings.x_empty + 8 * turn.stage, turn.phase);
        og_copy_box(rings.x + turn.stage * OG_X_BOX_BYTES, &a.x_map, column, (int)tile.m, slab,
                    rings.x_full + 8 * turn.stage, OG_READ_OFTEN);
    }
}

OG_FN void og_announce_x(const og_pairs_rings &rings, uint32_t next, og_ring_turn &turn)
{
    if (threadIdx.x % 32 == 0) {
        rings.next[turn.stage] = next;
        og_barrier_expect(rings.x_full + 8 * turn.stage, OG_X_BOX_BYTES);
    }
    og_advance<OG_X_STAGES>(turn);
}

/* There are no more rows of this kind; kinds: those that follow. */
OG_FN void og_end_rows(const og_pairs_rings &rings, uint32_t kinds, og_ring_turn &turn)
{
    if (threadIdx.x % 32 == 0) {
        og_barrier_wait(rings.x_empty + 8 * turn.stage, turn.phase);
        rings.next[turn.stage] = OG_NO_ITEM | kinds;
        og_barrier_arrive(rings.x_full + 8 * turn.stage);
    }
    og_advance<OG_X_STAGES>(turn);
}

/* The first box is sent before its kinds are known, too. */
OG_FN void og_produce_x(const og_args &a, const og_pairs_rings &rings)
{
    og_ring_turn turn = {0, 1};
    og_fetch_map(&a.x_map);
    og_item item = og_find_item(a, (og_index)blockIdx.x);
    og_tile tile = og_find_tile<OG_BM, OG_TILE_COLUMNS>(a, item.tile);
    og_await_launch(); /* og_split */
    og_send_x(a, rings, tile, item.from, turn);
    uint32_t seen = og_find_kinds(a, tile);
    bool is_sent = seen & OG_PLAIN_ROWS;
    if (!is_sent)
        og_announce_x(rings, OG_NO_ITEM, turn); /* it is not used */
    seen |= OG_PLAIN_ROWS;
    for (uint32_t rows = OG_PLAIN_ROWS; seen & rows; rows *= 2) {
        uint32_t number = 0;
        for (og_index i = blockIdx.x; i < a.items; i += gridDim.x) {
            item = og_find_item(a, i);
            tile = og_find_tile<OG_BM, OG_TILE_COLUMNS>(a, item.tile);
            const uint32_t kinds = og_find_kinds(a, tile);
            seen |= kinds;
            for (int k = item.from; kinds & rows && k < item.to; k += 64) {
                if (!is_sent)
                    og_send_x(a, rings, tile, k, turn);
                is_sent = false;
                og_announce_x(rings, number | kinds, turn);
            }
            number += OG_STEP_ITEM;
        }
        og_end_rows(rings, seen & 2 * rows, turn);
    }
}

/* All of the first warpgroup comes here. */
OG_FN void og_produce_pairs(const og_args &a, const og_pairs_rings &rings)
{
    if (threadIdx.x < 32)
        og_produce_w(a, rings);
    else if (threadIdx.x < 64)
        og_produce_x(a, rings);
}

/* ---- a block of 64 k ----------------------------------------------------------------------- */

struct og_reader {
    uint32_t even; /* where the thread reads the even steps of stage 0; odd ones are 64 further, or
                    * before that */
    uint32_t full, empty;
    og_ring_turn turn;
    og_findings found; /* since the item began */
};

/* v[s][i]: of step s of a stage, the thread's four k of its column i, in the order that
 * OG_SPLIT_SHUFFLES says. */
OG_FN void og_read_stage(const og_reader &r, og_four (*v)[2])
{
    const uint32_t stage = r.turn.stage * OG_W_BOX_BYTES;
#if OG_W_ACROSS
#pragma unroll
    for (int j = 0; j < 4; j++) { /* the next k is a row of 128 bytes and its swizzle further */
        const uint32_t row = (r.even + stage) ^ (j % 2 * 0x90 + j / 2 * 0x120);
#pragma unroll
        for (int step = 0; step < 2; step++) {
            float2 both = og_load_shared_two(row + step * 2048);
            v[step][0].e[j] = both.x;
            v[step][1].e[j] = both.y;
        }
    }
#else
    v[0][0] = og_load_shared(r.even + stage);
    v[0][1] = og_load_shared(r.even + stage + 1024);
    v[1][0] = og_load_shared((r.even ^ 64) + stage);
    v[1][1] = og_load_shared((r.even ^ 64) + stage + 1024);
#endif
}

/* Reads the next block of w. All of it is in registers before the first conversion. */
OG_FN void og_read_block(og_reader &r, og_fragment &f)
{
    og_four v[4][2]; /* [step][row] */
    uint32_t stages[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        og_barrier_wait(r.full + 8 * r.turn.stage, r.turn.phase);
        og_read_stage(r, v + 2 * h);
        stages[h] = r.turn.stage;
        og_advance<OG_W_STAGES>(r.turn);
    }
    og_finish_loads();
    og_release_stage(r.empty + 8 * stages[0]);
    og_release_stage(r.empty + 8 * stages[1]);
    og_split_block<4>(v, f, r.found);
}

struct og_pairs_consumer {
    og_pairs_rings rings;
    og_reader reader;
    og_ring_turn turn; /* of x */
};

/* Releases a stage of x. */
OG_FN void og_release_x(og_pairs_consumer &c)
{
    if (threadIdx.x % 32 == 0)
        og_barrier_arrive(c.rings.x_empty + 8 * c.turn.stage);
    og_advance<OG_X_STAGES>(c.turn);
}

/* Ends the products of block f, of b; meanwhile block next of w is read, if there is one.
 * The condition keeps its conversions where they are: without it ptxas 13 moves them behind
 * the wait, where the tensor cores idle. */
OG_FN void og_end_block(og_pairs_consumer &c, og_held &sum, og_held &chain, const og_fragment &f,
                        bool more, og_fragment &next)
{
    if (more) {
        og_read_block(c.reader, next);
        og_ring_turn following = c.turn;
        og_advance<OG_X_STAGES>(following);
        og_barrier_wait(c.rings.x_full + 8 * following.stage, following.phase);
    }
    og_products_wait<0>();
    og_pin(chain);
    og_release_x(c);
    og_add_scaled_chain(sum, chain, f);
}

#if OG_LONG
/* Where the first four of a thread's sums of segments wait; the next are a tile's threads apart. */
OG_FN og_four *og_find_sums(const og_args &a, og_index place, int thread)
{
    return (og_four *)a.segments + (int64_t)place * (OG_HELD / 4 * 128 * OG_GROUPS) + thread;
}

#if OG_BY_SEGMENTS
/* Where a thread's findings in a segment wait. */
OG_FN og_findings *og_find_findings(const og_args &a, og_index place, int thread)
{
    return (og_findings *)a.findings + (int64_t)place * (128 * OG_GROUPS) + thread;
}
#endif

OG_FN og_four og_take_four(const og_held &sum, int i)
{
    return {{sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]}};
}

/* Subnormal numbers are 0, as for og_add_there(). */
OG_FN float og_add_sums(float a, float b)
{
#if defined(__CUDA_ARCH__)
    asm("add.ftz.f32 %0, %1, %2;" : "=f"(a) : "f"(a), "f"(b));
    return a;
#else
    return a + b;
#endif
}

/* *to += v, without waiting for it. From CUDA 12.1 on one instruction does it. */
OG_FN void og_add_there(og_four *to, const og_four &v)
{
#if !defined(__CUDA_ARCH__)
    for (int i = 0; i < 4; i++)
        to->e[i] = to->e[i] + v.e[i];
#elif __CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 1)
    asm volatile("red.global.add.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(to), "f"(v.e[0]), "f"(v.e[1]),
                 "f"(v.e[2]), "f"(v.e[3])
                 : "memory");
#else
#pragma unroll
    for (int i = 0; i < 4; i++)
        atomicAdd(&to->e[i], v.e[i]);
#endif
}

/* The sum of a segment joins those before it, and the next one's begins. Only this thread
 * writes there, so the order is fixed. */
OG_FN void og_end_segment(const og_args &a, og_held &sum, bool first)
{
    og_four *to = og_find_sums(a, blockIdx.x, threadIdx.x - 128);
    if (first) {
#pragma unroll
        for (int i = 0; i < OG_HELD / 4; i++)
            to[i * 128 * OG_GROUPS] = og_take_four(sum, i);
    } else {
#pragma unroll
        for (int i = 0; i < OG_HELD / 4; i++)
            og_add_there(&to[i * 128 * OG_GROUPS], og_take_four(sum, i));
    }
#pragma unroll
    for (int i = 0; i < OG_HELD; i++)
        sum[i] = 0.0f;
}

/* sum = v + sum, four of a thread. */
OG_FN void og_join_four(og_held &sum, int i, const float4 &v)
{
    sum[4 * i] = og_add_sums(v.x, sum[4 * i]);
    sum[4 * i + 1] = og_add_sums(v.y, sum[4 * i + 1]);
    sum[4 * i + 2] = og_add_sums(v.z, sum[4 * i + 2]);
    sum[4 * i + 3] = og_add_sums(v.w, sum[4 * i + 3]);
}

OG_FN void og_join_segments(const og_args &a, og_held &sum)
{
    const og_four *from = og_find_sums(a, blockIdx.x, threadIdx.x - 128);
#pragma unroll
    for (int i = 0; i < OG_HELD / 4; i++)
        og_join_four(sum, i, __ldcg((const float4 *)&from[i * 128 * OG_GROUPS]));
    /* Or ptxas 13 has what follows begin meanwhile, and spills. */
    og_meet_group(threadIdx.x / 128 - 1);
}
#endif

/* What is multiplied next; waits until it is there. ptxas can tell that it is the same in all threads:
 * else products would wait for it. */
OG_FN uint32_t og_peek_next(const og_pairs_consumer &c)
{
    og_barrier_wait(c.rings.x_full + 8 * c.turn.stage, c.turn.phase);
    return __reduce_or_sync(0xffffffffu, c.rings.next[c.turn.stage]);
}

/* What came early of an item is not used. */
OG_FN void og_drop_early(og_pairs_consumer &c, const og_item &item)
{
    og_release_x(c);
    for (int i = og_count_early(item); i > 0; i--) {
        og_barrier_wait(c.reader.full + 8 * c.reader.turn.stage, c.reader.turn.phase);
        og_release_stage(c.reader.empty + 8 * c.reader.turn.stage);
        og_advance<OG_W_STAGES>(c.reader.turn);
    }
}

/* sum = the products of an item, x scaled, of which the first box of x is there. */
template <bool is_wide>
OG_FN void og_multiply_item(const og_args &a, og_pairs_consumer &c, const og_item &item,
                            og_held &sum, og_held &chain)
{
    og_fragment f, g;
#pragma unroll
    for (int i = 0; i < OG_HELD; i++)
        sum[i] = 0.0f;
    c.reader.found = {0, 0};
    og_read_block(c.reader, f);
    for (int k = item.from; k < item.to; k += 128) {
        og_multiply_block<is_wide, 4>(chain, f, c.rings.x + c.turn.stage * OG_X_BOX_BYTES);
        og_end_block(c, sum, chain, f, k + 64 < item.to, g);
        if (k + 64 >= item.to)
            break;
        og_multiply_block<is_wide, 4>(chain, g, c.rings.x + c.turn.stage * OG_X_BOX_BYTES);
        og_end_block(c, sum, chain, g, k + 128 < item.to, f);
#if OG_LONG && !OG_BY_SEGMENTS
        if ((k + 128) % OG_SEGMENT == 0 && k + 128 < item.to)
            og_end_segment(a, sum, k + 128 == OG_SEGMENT);
#endif
    }
#if OG_LONG && !OG_BY_SEGMENTS
    og_join_segments(a, sum);
#endif
}

/* ---- for pass 0 ---------------------------------------------------------------------------- */

/* The column, of a warp's 16, that thread 4 g + t holds (and the one OG_BESIDE further). */
OG_FN int og_column_of(int g)
{
    return OG_W_ACROSS ? 2 * g : g / 2 | g % 2 * 4;
}

/* Lanes from one of a thread's first columns to the next, to the one after that, to the one
 * after those four. */
enum {
    OG_STEP_1 = OG_W_ACROSS ? 4 : 8,
    OG_STEP_2 = OG_W_ACROSS ? 8 : 16,
    OG_STEP_4 = OG_W_ACROSS ? 16 : 4
};

OG_FN og_pairs_consumer og_start_consumer(const og_pairs_rings &rings, int column, int t)
{
    og_pairs_consumer c;
    c.rings = rings;
#if OG_W_ACROSS
    const int k = 4 * t + t / 2 * 2; /* threads that read at once have different k % 8 / 2 */
    c.reader.even = rings.w + column / 32 * OG_ACROSS_BYTES + k * 128 +
                    ((column % 32 / 4 ^ k % 8) << 4) + column % 4 * 4; /* swizzled */
#else
    c.reader.even = rings.w + column * 128 + ((t ^ column % 8) << 4); /* swizzled */
#endif
    c.reader.full = rings.w_full;
    c.reader.empty = rings.w_empty;
    c.reader.turn = {0, 0};
    c.turn = {0, 0};
    return c;
}

/* For og_sum_marked(), of a group: the sums that its warps ask for (row and column of the tile; 0:
 * none), and their parts, by each warp. */
struct og_asked {
    uint32_t slots[4];
    float parts[4][4];
};

#ifdef OG_TF32

/* Sums are what they are; none is left to og_redo. */
OG_FN uint32_t og_end_sums(const og_args &, const og_pairs_place &, const og_findings &, og_held &,
                           uint32_t *, og_asked &)
{
    return 0;
}

#else

/* Rows (bit i) of either column of a place. */
struct og_marks {
    uint32_t of[2];
};

/* Undoes x's scales; returns the sums that may have lost too much. */
OG_FN og_marks og_unscale(const og_args &a, const og_pairs_place &at,
                          const og_column_loss (&columns)[2], og_held &sum)
{
    const og_row_scale *rows = og_find_scales(a, at.above, at.m);
    const float least = og_least_sum(a.k);
    og_marks marks = {{0, 0}};
#pragma unroll
    for (int i = 0; i < OG_BM / 4; i++) {
        const og_row_scale row = rows[og_row_of(i)];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float &y = sum[i / 2 * 4 + 2 * h + i % 2];
            const float z = y * fabsf(row.undo);
            marks.of[h] |= og_is_lost(y, z, columns[h], row, least) ? 1u << i : 0u;
            y = z;
        }
    }
    marks.of[0] &= at.n < a.n ? at.there : 0;
    marks.of[1] &= at.n + OG_BESIDE < a.n ? at.there : 0;
    return marks;
}

/* Rows (bit i) of which more than OG_FEW_MARKS of the warp's 16 columns are marked. */
OG_FN uint32_t og_find_many(const og_marks &marks, int t)
{
    const uint32_t alike = 0x11111111u << t; /* lanes that have these rows */
    uint32_t many = 0;
#pragma unroll 1
    for (int i = 0; i < OG_BM / 4; i++) {
        const uint32_t first = __ballot_sync(0xffffffffu, marks.of[0] >> i & 1);
        const uint32_t second = __ballot_sync(0xffffffffu, marks.of[1] >> i & 1);
        many |= (uint32_t)(__popc(first & alike) + __popc(second & alike) > OG_FEW_MARKS) << i;
    }
    return many;
}

/* The first mark of a thread that has one: its column, its row (bit). */
OG_FN int og_marked_column(const og_marks &marks)
{
    return marks.of[0] ? 0 : 1;
}

OG_FN int og_marked_row(const og_marks &marks)
{
    return __ffs((int)(marks.of[0] ? marks.of[0] : marks.of[1])) - 1;
}

/* What a warp asks for: the first mark of its first lane that has one; lanes: those that have. One lane
 * writes it. */
OG_FN void og_ask(const og_pairs_place &at, const og_marks &marks, uint32_t lanes, og_asked &asked)
{
    const int lane = og_thread() % 32;
    const int column = at.warp * 16 + og_column_of(lane / 4);
    const int row = 2 * at.t + og_row_of(og_marked_row(marks));
    const int n = column + og_marked_column(marks) * OG_BESIDE;
    const uint32_t place = lanes ? 1u << 31 | (uint32_t)row << 8 | (uint32_t)n : 0;
    if (lane == (lanes ? __ffs((int)lanes) - 1 : 0))
        asked.slots[at.warp] = place;
}

/* Takes the sum that the thread has asked for; its mark is gone. */
OG_FN void og_take_answer(og_marks &marks, bool asks, const float *parts, og_held &sum)
{
    const int h = og_marked_column(marks), i = og_marked_row(marks);
    const int place = asks ? i / 2 * 4 + 2 * h + i % 2 : -1;
    const float z = (parts[0] + parts[1]) + (parts[2] + parts[3]);
#pragma unroll
    for (int j = 0; j < OG_HELD; j++)
        sum[j] = j == place ? z : sum[j];
    const uint32_t taken = asks ? 1u << i : 0;
    marks.of[0] &= ~(h ? 0 : taken);
    marks.of[1] &= ~(h ? taken : 0);
}

/* Computes the marked sums again, one of each warp at a time, by all threads of the group: at most
 * min(k, 4096) / 512 + k / 4096 + 9 roundings. Threads branch alike, and ptxas can tell: else it no
 * longer takes the stages of rings to be the same in all of them, and products wait for it. */
OG_FN void og_sum_marked(const og_args &a, const og_pairs_place &at, og_marks marks,
                         og_asked &asked, og_held &sum)
{
    const int thread = at.warp * 32 + og_thread() % 32;
#pragma unroll 1
    for (;;) {
        const uint32_t lanes = __ballot_sync(0xffffffffu, (marks.of[0] | marks.of[1]) != 0);
        const bool asks = thread % 32 == __ffs((int)lanes) - 1;
        og_ask(at, marks, lanes, asked);
        og_meet_group(at.group);
        uint32_t any = 0;
#pragma unroll 1
        for (int slot = 0; slot < 4; slot++) {
            const uint32_t place = __reduce_or_sync(0xffffffffu, asked.slots[slot]);
            any |= place;
            if (!place)
                continue;
            const og_index row = at.above + at.m - 2 * at.t + (og_index)(place >> 8 & 127);
            const og_index n = at.run * OG_RUN + (og_index)(place & 63);
            const float part =
                og_add_up(og_sum_part<128>(og_find_again(a, row, at.base, n), a.k, thread));
            if (thread % 32 == 0)
                asked.parts[slot][at.warp] = part;
        }
        if (!any)
            return;
        og_meet_group(at.group);
        og_take_answer(marks, asks, asked.parts[at.warp], sum);
    }
}

/* Returns what any thread of the group has found in the rows of this place, and marks it in a.redo.
 * Before votes of the next tile are written the group meets in og_sum_marked(): one place will do. */
OG_FN uint32_t og_vote(const og_args &a, const og_pairs_place &at, uint32_t mine, uint32_t *votes)
{
    mine |= __shfl_xor_sync(0xffffffffu, mine, 4);
    mine |= __shfl_xor_sync(0xffffffffu, mine, 8);
    mine |= __shfl_xor_sync(0xffffffffu, mine, 16);
    if (at.first)
        votes[at.warp * 4 + at.t] = mine;
    og_meet_group(at.group);
    uint32_t all = votes[at.t] | votes[4 + at.t] | votes[8 + at.t] | votes[12 + at.t];
    if (at.warp == 0 && at.first && at.run < a.runs) {
        uint8_t *redo = (uint8_t *)a.redo + at.run * (int64_t)a.redo_pitch + (at.above + at.m);
#pragma unroll
        for (int i = 0; i < OG_BM / 4; i++)
            if (at.there >> i & 1)
                redo[og_row_of(i)] = all >> i & 1;
        if (all)
            *(uint32_t *)a.any_redo = 1;
    }
    return all;
}

/* Makes products of the sums; returns the rows (bit i) that are left to og_redo. */
OG_FN uint32_t og_end_sums(const og_args &a, const og_pairs_place &at, const og_findings &found,
                           og_held &sum, uint32_t *votes, og_asked &asked)
{
    og_column_loss columns[] = {og_weigh_found(found, 0), og_weigh_found(found, 1)};
    columns[0].limit *= at.is_wide ? 2.0f : 1.0f;
    columns[1].limit *= at.is_wide ? 2.0f : 1.0f;
    og_marks marks = og_unscale(a, at, columns, sum);
    uint32_t many = 0;
    if (__any_sync(0xffffffffu, (marks.of[0] | marks.of[1]) != 0))
        many = og_find_many(marks, at.t);
    many = og_vote(a, at, many, votes);
    marks.of[0] &= ~many;
    marks.of[1] &= ~many;
    og_sum_marked(a, at, marks, asked, sum);
    return many;
}

#endif
#endif
