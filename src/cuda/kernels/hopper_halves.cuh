/* SPDX-License-Identifier: MIT
 *
 * hopper_halves.cuh - products of float16 or bfloat16 on Hopper's tensor cores, and pass 0 on
 * their tiles. Products of halves are exact in float32. The tensor cores sum them 16 by 16 and
 * truncate what they add; of a long k they sum OG_CHAIN, and these sums are added in float32.
 *
 * A block stays on its multiprocessor and takes tile after tile. Its first warpgroup brings
 * boxes of x and w into a ring in shared memory (TMA), the others multiply 64 rows each. Two
 * blocks may be a cluster that works on two tiles in the same columns, or in the same rows: each
 * brings one half of w, or of x, for both. A warp then passes 16 rows of the result through shared
 * memory, 64 columns at a time, so that pass 0 reads and writes memory in whole sectors. Or
 * (OG_LATER) w's even columns are brought before the odd ones, which leaves each thread 4
 * neighbours of a row, and results stay in registers until the next tile is multiplied: all
 * multiprocessors end a tile at once, and what they wrote then took 2.7 us (H200).
 *
 * PARAMETERS
 *   OG_PRODUCTS    2: x times w and times v, whose columns lie side by side in shared memory, so
 *                  that a thread has the same columns of both; else 1
 *   OG_MMA_TYPE    "f16" or "bf16"
 *   OG_GROUPS      warpgroups that multiply: 1 or 2
 *   OG_ALTERNATES  1: two warpgroups have tiles of their own, of 128 rows: one finishes its tile
 *                  while the other multiplies; OG_WIDTH is 128 at most; not with OG_LATER or
 *                  OG_LONG
 *   OG_WIDTH       columns of a tile, those of all products: 64, 128 or 256; 64 of each at least
 *   OG_X_ROWS      rows of a tile that there are at most: what is in shared memory instead of
 *                  others is multiplied in vain
 *   OG_SHARES_W, OG_SHARES_X   1: there are clusters, of two tiles in the same columns or rows (not
 *                  both); half of a box that lies across k is at least 64 columns or rows, else
 *                  at least 8: the swizzle's
 *   OG_X_ACROSS, OG_W_ACROSS   1: neighbours in memory are rows of x, columns of the product; 0: k
 *   OG_ACROSS      "0, 0": both as text
 *   OG_LONG        1: tensor cores do not sum all of k; OG_WIDTH is 128 at most, since registers
 *                  hold three sums
 *   OG_CHAIN       k that they sum then, a multiple of 64
 *   OG_LATER       1: pass 0 has one result, of halves side by side, and reads nothing but what is
 *                  the same for all rows; not with OG_W_ACROSS, OG_LONG or two products
 *   OG_QUADS       of 64 columns of a row, that a thread finishes: 2, which is how columns are
 *                  reduced, or 1, which stores whole lines of 128 bytes
 *   OG_AHEAD       with OG_LATER, steps of 16 columns whose operands are on their way: 1 to 4
 *   OG_EARLY       1: there are registers for reading ahead: indices have 32 bits
 *   OG_QUADS_AT_ONCE   that a thread finishes, of 8: OG_QUADS or more
 *   OG_READS_ALL   1: what pass 0 reads at each place is read for 8 quads before one is finished; it is
 *                  cheap, reduces nothing and has one product
 * No bit depends on any but OG_MMA_TYPE, OG_LONG and OG_CHAIN.
 */
#include "cuda/kernels/finish.cuh"
#include "cuda/kernels/tiles.cuh"
#include "cuda/kernels/hopper_order.cuh"
#include "cuda/kernels/hopper_ring.cuh"
#include "cuda/kernels/hopper_ptx.cuh"
#include "cuda/kernels/redo.cuh"

enum {
    OG_CLUSTER = OG_SHARES_W || OG_SHARES_X ? 2 : 1,
    OG_SHARERS = OG_ALTERNATES ? 1 : OG_GROUPS, /* warpgroups of a tile */
    OG_HEIGHT = OG_ALTERNATES ? 2 : 1,          /* 64 rows that each of them multiplies */
    OG_HALVES_ROWS = 64 * OG_GROUPS,
    OG_HALVES_COLUMNS = OG_WIDTH / OG_PRODUCTS,        /* of the result */
    OG_PAIR_ROWS = OG_HALVES_ROWS * (OG_SHARES_W + 1), /* of a cluster's tiles together */
    OG_PAIR_COLUMNS = OG_HALVES_COLUMNS * (OG_SHARES_X + 1),
    OG_HALVES_X_BYTES = OG_HALVES_ROWS * 64 * 2, /* of a stage: rows of 64 k */
    OG_HALVES_W_BYTES = OG_WIDTH * 64 * 2,       /* OG_WIDTH columns */
    OG_BROUGHT_BYTES = OG_X_ROWS * 64 * 2 + OG_HALVES_W_BYTES,
    OG_HALVES_STAGE_BYTES = OG_HALVES_X_BYTES + OG_HALVES_W_BYTES,
    OG_STAGES = 12 * 16384 / OG_HALVES_STAGE_BYTES,
    OG_WARP_BYTES = 16 * 64 * 4,  /* what a warp passes through shared memory at a time */
    OG_STAGED = 16 / OG_PRODUCTS, /* its rows, of each product */
    OG_STAGING_AT = 12 * 16384,
    OG_HALVES_BARRIERS_AT = OG_STAGING_AT + 4 * OG_GROUPS * OG_WARP_BYTES,
    OG_HALVES_SHARED = OG_HALVES_BARRIERS_AT + 8 * 64,
    OG_HALVES_THREADS = 128 + 128 * OG_GROUPS
};
static_assert(OG_SHARED_BYTES == OG_HALVES_SHARED && 2 * OG_STAGES + 2 <= 64,
              "the launch gives it");

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Shared memory of a block, and its barriers: a stage is full, a stage is empty; it is the turn of
 * warpgroup 0, of 1. */
struct og_halves_ring {
    uint32_t stages, full, empty, order;
};

OG_FN og_halves_ring og_start_halves_ring(uint32_t base)
{
    const uint32_t barriers = base + OG_HALVES_BARRIERS_AT;
    og_halves_ring rings = {base, barriers, barriers + 8 * OG_STAGES, barriers + 16 * OG_STAGES};
    for (int i = 0; threadIdx.x == 0 && i < OG_STAGES; i++) {
        og_barrier_init(rings.full + 8 * i, 1);
        og_barrier_init(rings.empty + 8 * i, 4 * OG_SHARERS * OG_CLUSTER); /* warps that read */
    }
    for (int i = 0; OG_ALTERNATES && threadIdx.x == 0 && i < 2; i++)
        og_barrier_init(rings.order + 8 * i, 4);
    return rings;
}

/* The tile of a block: number i of its cluster. */
OG_FN og_tile og_find_own(const og_args &a, og_index i)
{
    const int rank = OG_CLUSTER == 2 ? blockIdx.x % 2 : 0;
    og_tile tile = og_find_tile<OG_PAIR_ROWS, OG_PAIR_COLUMNS>(a, i);
    tile.m += OG_SHARES_W * rank * OG_HALVES_ROWS;
    tile.n += OG_SHARES_X * rank * OG_HALVES_COLUMNS;
    return tile;
}

/* ---- the producer ------------------------------------------------------------------------ */

/* Brings 64 k of so many rows (of x, or columns of the product) from `row` on. */
template <int rows, int across, int shared>
OG_FN void og_bring(uint32_t to, const og_map *map, int k, int row, int base, uint32_t full,
                    uint64_t policy)
{
    const int part = shared ? rows / 2 : rows, step = across ? 64 : part;
    const int first = shared ? blockIdx.x % 2 * part : 0;
#pragma unroll
    for (int i = 0; i < part; i += step) {
        const int at = row + first + i;
        if constexpr (shared)
            og_copy_box_to_both(to + (first + i) * 128, map, across ? at : k, across ? k : at, base,
                                full, policy);
        else
            og_copy_box(to + (first + i) * 128, map, across ? at : k, across ? k : at, base, full,
                        policy);
    }
}

/* Brings 64 k of w's even columns, then of the odd ones. */
OG_FN void og_bring_even_first(uint32_t to, const og_map *map, int k, int row, int base,
                               uint32_t full, uint64_t policy)
{
    const int half = OG_HALVES_W_BYTES / 2, rank = blockIdx.x % 2;
    if constexpr (OG_SHARES_W) {
        og_copy_box_to_both(to + rank * half, map, k, row + rank, base, full, policy);
    } else {
        og_copy_box(to, map, k, row, base, full, policy);
        og_copy_box(to + half, map, k, row + 1, base, full, policy);
    }
}

/* Brings 64 k of the tile's columns of w, or of v. */
OG_FN void og_bring_columns(uint32_t to, const og_map *map, int k, int n, int base, uint32_t full,
                            uint64_t policy)
{
    if constexpr (OG_LATER)
        og_bring_even_first(to, map, k, n, base, full, policy);
    else
        og_bring<OG_HALVES_COLUMNS, OG_W_ACROSS, OG_SHARES_W>(to, map, k, n, base, full, policy);
}

/* All of the first warpgroup comes here. */
OG_FN void og_produce_halves(const og_args &a, const og_halves_ring &rings)
{
    /* H200, read once against normally: 16 x 8192 x 8192 0.041, 0.045 ms; 128 x 32768 x 32768,
     * where x is shared, 0.563, 0.553. */
    const uint64_t of_w = a.m_tiles == 1 && !OG_SHARES_X ? OG_READ_ONCE : OG_READ_NORMALLY;
    og_ring_turn turn = {0, 1};
    if (threadIdx.x != 0)
        return;
    og_fetch_map(&a.x_map);
    og_fetch_map(&a.w_map);
#if OG_PRODUCTS == 2
    og_fetch_map(&a.v_map);
#endif
    for (og_index i = blockIdx.x / OG_CLUSTER; i < a.tiles; i += gridDim.x / OG_CLUSTER) {
        og_tile tile = og_find_own(a, i);
        for (int k = 0; k < (int)a.k; k += 64) {
            uint32_t to = rings.stages + turn.stage * OG_HALVES_STAGE_BYTES;
            uint32_t full = rings.full + 8 * turn.stage;
            og_barrier_wait(rings.empty + 8 * turn.stage, turn.phase);
            og_barrier_expect(full, OG_BROUGHT_BYTES);
            og_bring<OG_X_ROWS, OG_X_ACROSS, OG_SHARES_X>(
                to, &a.x_map, k, (int)tile.m, (int)(tile.base * a.x_moves), full, OG_READ_NORMALLY);
            const int n = (int)tile.n, base = (int)(tile.base * a.w_moves);
            og_bring_columns(to + OG_HALVES_X_BYTES, &a.w_map, k, n, base, full, of_w);
#if OG_PRODUCTS == 2
            og_bring_columns(to + OG_HALVES_X_BYTES + OG_HALVES_W_BYTES / 2, &a.v_map, k, n, base,
                             full, of_w);
#endif
            og_advance<OG_STAGES>(turn);
        }
    }
}

/* ---- the consumers ----------------------------------------------------------------------- */

struct og_halves_consumer {
    og_halves_ring rings;
    og_ring_turn turn;
    uint32_t x;      /* of the group, from a stage's beginning */
    uint32_t before; /* the stage that was multiplied last */
    uint32_t order;  /* parity of the next turn's phase */
};

/* Leaves out so many tiles, the other warpgroup's. */
OG_FN void og_skip_tiles(const og_args &a, og_halves_consumer &c, int tiles)
{
    og_skip_stages<OG_STAGES>(c.turn, (uint32_t)tiles * (uint32_t)((a.k + 63) / 64));
}

/* Tells whoever brings something into a stage that this warp has read it. */
OG_FN void og_release(const og_halves_consumer &c, uint32_t stage)
{
    const uint32_t lane = threadIdx.x % 32, empty = c.rings.empty + 8 * stage;
    if (OG_CLUSTER == 1 && lane == 0)
        og_barrier_arrive(empty);
    if (OG_CLUSTER == 2 && lane < 2)
        og_barrier_arrive_at(empty, lane);
}

typedef og_held og_sums[OG_HEIGHT];

/* d = the sums of the next stage's 64 k; adds: d += these. When it returns, what was multiplied
 * before has ended, and the stage before, unless this is the tile's first, is released. */
template <bool is_first> OG_FN void og_multiply_stage(og_halves_consumer &c, og_sums &d, bool adds)
{
    const uint32_t x_step = OG_X_ACROSS ? 128 : 2, w_step = OG_W_ACROSS ? 128 : 2;
    uint32_t at = c.rings.stages + c.turn.stage * OG_HALVES_STAGE_BYTES;
    og_barrier_wait(c.rings.full + 8 * c.turn.stage, c.turn.phase);
    og_products_fence();
    uint64_t x = og_describe<OG_X_ACROSS>(at + c.x);
    uint64_t w = og_describe<OG_W_ACROSS>(at + OG_HALVES_X_BYTES);
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < OG_HEIGHT; j++) /* 64 rows take 8192 bytes */
            og_multiply_16(d[j], x + i * x_step + 512 * j, w + i * w_step, adds || i > 0);
    og_products_commit();
    og_products_wait<1>();
    if (!is_first)
        og_release(c, c.before);
    c.before = c.turn.stage;
    og_advance<OG_STAGES>(c.turn);
}

/* Waits until all that was multiplied has ended. */
OG_FN void og_end_stages(og_halves_consumer &c)
{
    if constexpr (OG_ALTERNATES)
        og_let_other(c.rings.order);
    og_products_wait<0>();
    og_release(c, c.before);
}

#if OG_LONG

/* Multiplies the rest of the chain that begins at k, whose first stage is in d. k becomes its end.
 * Returns whether it was the tile's last. */
OG_FN bool og_multiply_rest(const og_args &a, og_halves_consumer &c, int &k, og_sums &d)
{
    const bool is_last = a.k - k <= OG_CHAIN;
    const int end = is_last ? (int)a.k : k + OG_CHAIN;
#pragma unroll 1
    for (k += 64; k < end; k += 64)
        og_multiply_stage<false>(c, d, true);
    return is_last;
}

/* Adds d, whose products have ended, to z. */
OG_FN void og_add_chain(og_sums &z, og_sums &d)
{
    og_pin(d[0]);
#pragma unroll
    for (int i = 0; i < OG_HELD; i++)
        z[0][i] += d[0][i];
}

/* A chain is added to z while the next one's first stage is multiplied. This is written out twice,
 * since the compiler (NVRTC 13.4) must see that the products of d have ended without a branch. */
OG_FN void og_multiply_halves_tile(const og_args &a, og_halves_consumer &c, og_sums &z)
{
    og_sums even, odd;
    int k = 0;
#pragma unroll
    for (int i = 0; i < OG_HELD; i++)
        z[0][i] = -0.0f; /* changes no sum */
    og_multiply_stage<true>(c, even, false);
#pragma unroll 1
    for (;;) {
        if (og_multiply_rest(a, c, k, even)) {
            og_end_stages(c);
            og_add_chain(z, even);
            break;
        }
        og_multiply_stage<false>(c, odd, false);
        og_add_chain(z, even);
        if (og_multiply_rest(a, c, k, odd)) {
            og_end_stages(c);
            og_add_chain(z, odd);
            break;
        }
        og_multiply_stage<false>(c, even, false);
        og_add_chain(z, odd);
    }
}

#else

/* Adds the products from k on to z, which has the sums of those before. */
OG_FN void og_multiply_from(const og_args &a, og_halves_consumer &c, int k, og_sums &z)
{
    for (; k < (int)a.k; k += 64)
        og_multiply_stage<false>(c, z, true);
    og_end_stages(c);
#pragma unroll
    for (int j = 0; j < OG_HEIGHT; j++)
        og_pin(z[j]);
}

OG_FN void og_multiply_halves_tile(const og_args &a, og_halves_consumer &c, og_sums &z)
{
    og_multiply_stage<true>(c, z, false);
    og_multiply_from(a, c, 64, z);
}

#endif

#if OG_LATER

/* ---- pass 0, written later --------------------------------------------------------------- */

enum { OG_STEPS = OG_WIDTH / 16 };

/* A thread's results of a tile: of each 16 columns 4, in rows g and g + 8 of its warp. */
struct og_later {
    og_pack<og_half> results[OG_STEPS][2];
    og_half *at[2]; /* where those of the first step go */
    bool there;     /* else there is nothing to write */
};

OG_FN void og_write_step(const og_later &later, int i)
{
    if (later.there)
#pragma unroll
        for (int h = 0; h < 2; h++)
            og_store_pack(later.at[h] + 16 * i, later.results[i][h]);
}

/* The thread's first column. */
OG_FN og_index og_first_column(const og_tile &tile)
{
    return tile.n + threadIdx.x % 4 * 4;
}

/* The first of the warp's 16 rows. */
OG_FN og_index og_warp_row(const og_tile &tile)
{
    return tile.m + (threadIdx.x / 32 - 4) * 16;
}

/* Columns 16 `step` on of a tile, for finish.cuh: a thread has 4 neighbours, in rows g and g + 8 of
 * its warp. Tensor cores leave columns 8 j + 2 t and the next, of even ones, then of odd ones. */
template <bool is_whole> struct og_step_part {
    enum { rows = 2, vectors = 1, apart = 0 };
    static const bool whole = is_whole;

    const og_tile &tile;
    const og_held &sums;
    int step;
    og_index n;
    og_kept kept[1];

    OG_FN og_index find_row(const og_step_part &f, int r)
    {
        return og_warp_row(f.tile) + threadIdx.x % 32 / 4 + 8 * r;
    }
    OG_FN og_offsets find(const og_step_part &f, const og_args &a, int r)
    {
        og_offsets at = og_start();
        const og_index m = find_row(f, r);
        og_seek_rows(a, f.tile.base * a.m + (whole || m < a.m ? m : a.m - 1), at);
        og_step_row(a, f.n, at);
        return at;
    }
    OG_FN og_span span(const og_step_part &f, const og_args &a, int r, int)
    {
        og_span span = og_span_of(f.n, a.n);
        span.end = find_row(f, r) < a.m ? span.end : 0;
        return span;
    }
    OG_FN float sum(const og_step_part &f, int, int r, int, int j)
    {
        return f.sums[4 * f.step + 2 * r + j / 2 + j % 2 * (OG_HELD / 2)];
    }
};

/* The fragment of a step; what is the same for all rows is not read yet. */
template <bool whole>
OG_FN og_step_part<whole> og_find_step(const og_tile &tile, const og_held &sums, int step)
{
    return {tile, sums, step, og_first_column(tile) + 16 * step, {}};
}

/* Are all of the warp's sums there, and quads aligned? In steps of 16 columns they stay so. */
OG_FN bool og_is_tile_whole(const og_args &a, const og_tile &tile, const og_held &sums)
{
    bool whole = og_warp_row(tile) + 16 <= a.m && tile.n + OG_WIDTH <= a.n;
    const og_step_part<false> first = og_find_step<false>(tile, sums, 0);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const og_offsets at = og_step_part<false>::find(first, a, r);
        whole = whole && og_pass0::is_aligned(a, at) && og_kept::is_aligned(a, at);
    }
    return __all_sync(0xffffffffu, whole);
}

/* z = the sums of a tile. Meanwhile the one before is written, a step after each stage; then, if
 * this one is whole, what the rows of its first steps share is on its way. */
OG_FN void og_multiply_and_write(const og_args &a, og_halves_consumer &c, const og_tile &tile,
                                 bool whole, const og_later &before, og_kept (&ahead)[OG_AHEAD][1],
                                 og_sums &z)
{
    og_multiply_stage<true>(c, z, false);
    og_write_step(before, 0);
#pragma unroll
    for (int i = 1; i < OG_STEPS; i++) {
        if (64 * i < (int)a.k)
            og_multiply_stage<false>(c, z, true);
        og_write_step(before, i);
    }
#pragma unroll
    for (int i = 0; i < OG_AHEAD; i++)
        if (whole)
            og_load_kept<0, true>(a, og_first_column(tile) + 16 * i, ahead[i]);
    og_multiply_from(a, c, 64 * OG_STEPS, z);
}

/* Computes the results of a whole tile. Nothing is read for it but what its rows share. */
OG_FN void og_compute_later(const og_args &a, const og_tile &tile, const og_held &z,
                            og_kept (&ahead)[OG_AHEAD][1], og_later &later)
{
    og_loads0 none;
    later.there = true;
#pragma unroll
    for (int i = 0; i < OG_STEPS; i++) {
        og_step_part<true> f = og_find_step<true>(tile, z, i);
        f.kept[0] = ahead[i % OG_AHEAD][0];
        if (i + OG_AHEAD < OG_STEPS)
            og_load_kept<0, true>(a, f.n + 16 * OG_AHEAD, ahead[i % OG_AHEAD]);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            og_pass0::values y[OG_V];
            if (i == 0)
                later.at[r] = og_pass0::place(a, og_step_part<true>::find(f, a, r));
            og_compute(a, f, r, 0, none, y);
            later.results[i][r] = og_pass0::pack(y);
        }
    }
}

/* A tile at the product's edge, or one that is not aligned, is finished at once. */
OG_FN void og_finish_edge(const og_args &a, const og_tile &tile, const og_held &z)
{
    if (og_warp_row(tile) >= a.m)
        return;
#pragma unroll
    for (int i = 0; i < OG_STEPS; i++) {
        og_step_part<false> f = og_find_step<false>(tile, z, i);
        og_load_kept<0, false>(a, f.n, f.kept);
        og_finish_fragment(a, f);
    }
}

OG_FN void og_consume_tiles(const og_args &a, og_halves_consumer &c, char *)
{
    const og_later nothing = {};
    og_later later = nothing;
    for (og_index i = blockIdx.x / OG_CLUSTER; i < a.tiles; i += gridDim.x / OG_CLUSTER) {
        og_sums z;
        og_kept ahead[OG_AHEAD][1]; /* what the rows of a tile's first steps share */
        og_tile tile = og_find_own(a, i);
        const bool whole = og_is_tile_whole(a, tile, z[0]);
        og_multiply_and_write(a, c, tile, whole, later, ahead, z);
        later = nothing; /* which needs no registers */
        if (whole)
            og_compute_later(a, tile, z[0], ahead, later);
        else
            og_finish_edge(a, tile, z[0]);
    }
#pragma unroll
    for (int i = 0; i < OG_STEPS; i++)
        og_write_step(later, i);
}

#else

/* ---- pass 0 ------------------------------------------------------------------------------ */

enum {
    OG_ROW_THREADS = 16 / OG_QUADS,     /* that finish 64 columns of a row */
    OG_WARP_ROWS = 32 / OG_ROW_THREADS, /* that a warp finishes at a time */
    OG_STAGED_PARTS = OG_WIDTH / 64     /* of 16 rows, that it passes through shared memory */
};

/* Where element (row, column) of a product's OG_STAGED x 64 is: no two lanes in the same bank,
 * whether two columns are written as the tensor cores leave them or quads of a row are read. */
OG_FN int og_staged(int row, int column)
{
    return row * 64 + (column ^ (row & 3) << 3);
}

/* Stages columns 8 j + 2 t, for all j, of OG_STAGED of the warp's rows: g and g + 8, or one of the
 * two. */
OG_FN void og_stage_columns(float *to, const float *z)
{
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
        for (int h = 0; h < OG_STAGED / 8; h++)
            *(float2 *)&to[og_staged(g + 8 * h, 8 * j + 2 * t)] =
                make_float2(z[4 * j + 2 * h], z[4 * j + 2 * h + 1]);
}

/* Stages part `part` of the tile: OG_STAGED rows of 64 columns, then the next rows, then others.
 * Registers have no index. */
OG_FN void og_stage_part(float *to, const og_sums &z, int part)
{
#pragma unroll
    for (int j = 0; j < OG_HEIGHT * OG_STAGED_PARTS; j++)
        if (part == j)
#pragma unroll
            for (int p = 0; p < OG_PRODUCTS; p++)
                og_stage_columns(to + p * OG_STAGED * 64,
                                 z[j / OG_STAGED_PARTS] + p * (OG_HELD / OG_PRODUCTS) +
                                     32 * (j % OG_STAGED_PARTS / OG_PRODUCTS) +
                                     2 * (j % OG_PRODUCTS));
}

/* The first of the warp's rows that this thread finishes, one of each OG_WARP_ROWS. */
OG_FN int og_first_row()
{
    return threadIdx.x % 32 / OG_ROW_THREADS;
}

/* The column of a thread's first quad, of 64 from n on. */
OG_FN og_index og_quad_column(og_index n)
{
    return n + threadIdx.x % OG_ROW_THREADS * 4;
}

/* Are a warp's 16 rows from m on there, and all their quads aligned? In steps of 32 columns from
 * n on they stay so: what is not side by side in memory is never aligned or always. */
OG_FN bool og_are_rows_whole(const og_args &a, og_index base, og_index m, og_index n)
{
    bool whole = m + 16 <= a.m;
#pragma unroll
    for (int r = 0; r < 16; r += OG_WARP_ROWS) {
        og_offsets at = og_start();
        og_seek_rows(a, base * a.m + (whole ? m : 0) + og_first_row() + r, at);
        og_step_row(a, og_quad_column(n), at);
        whole = whole && og_loads0::is_aligned(a, at) && og_pass0::is_aligned(a, at);
    }
    return __all_sync(0xffffffffu, whole);
}

/* What is the same for all rows, for the thread's quads of 64 columns. */
struct og_kept_columns {
    og_kept kept[OG_QUADS];
};

OG_FN og_kept_columns og_load_kept_columns(const og_args &a, og_index n)
{
    og_kept_columns c;
    og_load_kept<32, false>(a, og_quad_column(n), c.kept);
    return c;
}

/* Row r of `rows` from number `index` on; beyond the last: that one. */
template <class Part> OG_FN void og_set_row(Part &f, og_index index, og_index r, og_index rows)
{
    f.there = Part::whole || r < rows;
    f.index = index + (f.there ? r : rows > 0 ? rows - 1 : 0);
}

#if OG_READS_ALL
/* The same of rows that are whole, of which all is read before the first is finished: a warp that waits
 * for memory row by row waits 8 times as long. */
OG_FN void og_finish_read(const og_args &a, og_index base, og_index m, og_index n,
                          const og_kept_columns &c, const float *staged)
{
    typedef og_row_part<1, true> part;
    const int count = OG_STAGED / OG_WARP_ROWS, column = threadIdx.x % OG_ROW_THREADS * 4;
    og_reads<part> reads[count];
    part f;
    f.n = og_quad_column(n);
    f.kept[0] = c.kept[0];
#pragma unroll
    for (int i = 0; i < count; i++) {
        og_set_row(f, base * a.m + m, og_first_row() + i * OG_WARP_ROWS, OG_STAGED);
        reads[i] = og_read(a, f);
    }
#pragma unroll
    for (int i = 0; i < count; i++) {
        const int r = og_first_row() + i * OG_WARP_ROWS;
        og_set_row(f, base * a.m + m, r, OG_STAGED);
        f.sums[0][0] = *(const og_vector_sums *)&staged[og_staged(r, column)];
        og_finish_fragment(a, f, reads[i]);
    }
}
#endif

/* Finishes 64 columns from n on of OG_STAGED rows, the first of which is row m of its product. With
 * OG_EARLY, what a row reads is on its way while the one before is finished. */
template <bool whole>
OG_FN void og_finish_staged(const og_args &a, og_index base, og_index m, og_index n,
                            const og_kept_columns &c, const float *staged)
{
    typedef og_row_part<OG_QUADS, whole> part;
    const int column = threadIdx.x % OG_ROW_THREADS * 4;
    const og_index rows = whole ? OG_STAGED : a.m - m, index = base * a.m + m;
    part f;
    f.n = og_quad_column(n);
#pragma unroll
    for (int v = 0; v < OG_QUADS; v++)
        f.kept[v] = c.kept[v];
    og_set_row(f, index, og_first_row(), rows);
    og_reads<part> next = og_read(a, f);
#pragma unroll(whole ? OG_QUADS_AT_ONCE / OG_QUADS : 1)
    for (int i = 0; i < OG_STAGED; i += OG_WARP_ROWS) {
        const int r = og_first_row() + i, after = r + OG_WARP_ROWS;
        const og_reads<part> reads = next;
        part following = f;
        og_set_row(following, index, after, rows);
        if (OG_EARLY && i + OG_WARP_ROWS < OG_STAGED)
            next = og_read(a, following);
#pragma unroll
        for (int p = 0; p < OG_PRODUCTS; p++)
#pragma unroll
            for (int v = 0; v < OG_QUADS; v++)
                f.sums[p][v] = *(const og_vector_sums
                                     *)&staged[p * OG_STAGED * 64 + og_staged(r, column + 32 * v)];
        og_finish_fragment(a, f, reads);
        if (!OG_EARLY && i + OG_WARP_ROWS < OG_STAGED)
            next = og_read(a, following);
        f = following;
    }
}

/* Finishes a tile, 64 columns at a time. With OG_EARLY what is the same for all rows of the next
 * ones is on its way while these are finished; `first` is that of the first ones. */
OG_FN void og_finish_tile(const og_args &a, const og_tile &tile, og_sums &z,
                          const og_kept_columns &first, char *shared)
{
    const int warp = threadIdx.x / 32 - 4;
    float *staged = (float *)(shared + OG_STAGING_AT + warp * OG_WARP_BYTES);
    og_kept_columns c = first;
    bool whole = false;
#pragma unroll 1
    for (int i = 0; i < OG_HEIGHT * OG_STAGED_PARTS; i++) {
        const int part = i % OG_STAGED_PARTS;
        const og_index m = tile.m + (warp % (4 * OG_SHARERS) + 4 * (i / OG_STAGED_PARTS)) * 16;
        const og_index n = tile.n + 64 * (part / OG_PRODUCTS), row = m + 8 * (part % OG_PRODUCTS);
        if (m >= a.m)
            return;
        if (part == 0)
            whole = og_are_rows_whole(a, tile.base, m, tile.n);
        if (OG_HEIGHT > 1 && part == 0)
            c = first;
        if (n >= a.n)
            continue;
        __syncwarp(); /* what was there has been read */
        og_stage_part(staged, z, i);
        __syncwarp();
        if (!OG_EARLY)
            c = og_load_kept_columns(a, n);
        og_kept_columns next = c;
        if (OG_EARLY && part + 1 < OG_STAGED_PARTS && part % OG_PRODUCTS == OG_PRODUCTS - 1)
            next = og_load_kept_columns(a, n + 64);
#if OG_READS_ALL
        if (whole && n + 64 <= a.n)
            og_finish_read(a, tile.base, row, n, c, staged);
#else
        if (whole && n + 64 <= a.n)
            og_finish_staged<true>(a, tile.base, row, n, c, staged);
#endif
        else if (row < a.m)
            og_finish_staged<false>(a, tile.base, row, n, c, staged);
        c = next;
    }
}

OG_FN void og_consume_tiles(const og_args &a, og_halves_consumer &c, char *shared)
{
    const og_index step = gridDim.x / OG_CLUSTER;
    og_index i = blockIdx.x / OG_CLUSTER;
    if (OG_ALTERNATES) {
        i += og_own_group() * step;
        og_skip_tiles(a, c, og_own_group());
    }
    for (; i < a.tiles; i += OG_ALTERNATES ? 2 * step : step) {
        og_sums z;
        og_tile tile = og_find_own(a, i);
        og_kept_columns columns;
        if (OG_EARLY)
            columns = og_load_kept_columns(a, tile.n); /* on its way meanwhile */
        if (OG_ALTERNATES)
            og_await_other(c.rings.order, c.order);
        og_multiply_halves_tile(a, c, z);
        if (OG_ALTERNATES)
            og_skip_tiles(a, c, 1);
        og_finish_tile(a, tile, z, columns, shared);
    }
}

#endif

/* ---- the kernel -------------------------------------------------------------------------- */

OG_FN void og_consume_halves(const og_args &a, const og_halves_ring &rings, char *shared)
{
    og_halves_consumer c = {rings,
                            {0, 0},
                            (uint32_t)(OG_ALTERNATES ? 0 : og_own_group() * (64 * 128)),
                            0,
                            og_own_group() == 0 ? 1u : 0u};
    og_consume_tiles(a, c, shared);
}

#if OG_SHARES_W || OG_SHARES_X
#define OG_IN_CLUSTERS __cluster_dims__(2, 1, 1)
#else
#define OG_IN_CLUSTERS
#endif

extern "C" __global__ void OG_IN_CLUSTERS __launch_bounds__(OG_HALVES_THREADS, 1)
    og_multiply_halves(const __grid_constant__ og_args a)
{
    extern __shared__ __align__(1024) char og_shared[];
    const uint32_t base = (uint32_t)__cvta_generic_to_shared(og_shared);
    if (base % 1024)
        __trap(); /* the swizzle is by address */
    og_halves_ring rings = og_start_halves_ring(base);
    og_publish_barriers();
    __syncthreads();
    if constexpr (OG_CLUSTER == 2)
        og_meet_cluster(); /* barriers are there before the other block uses them */
    /* Registers go from those that only copy to those that compute; 256 threads have enough. */
    if (threadIdx.x < 128) {
        if constexpr (OG_GROUPS > 1)
            og_give_registers<40>();
        og_produce_halves(a, rings);
    } else {
        if constexpr (OG_GROUPS > 1)
            og_take_registers<232>();
        og_consume_halves(a, rings, og_shared);
    }
    if constexpr (OG_CLUSTER == 2) {
        __syncwarp();
        og_meet_cluster(); /* the other may still signal this one's barriers */
    }
}

#else /* where there are no such instructions, nothing can launch this */

OG_KERNEL(og_multiply_halves, OG_HALVES_THREADS)
{
    __trap();
}

#endif

/* ---- for redo.cuh -------------------------------------------------------------------------- */

/* og_redo is launched where addresses are none that TMA takes. */
OG_FN bool og_redoes_all(const og_args &)
{
    return true;
}
