/* SPDX-License-Identifier: MIT
 *
 * hopper_windows_halves.cuh - a convolution of float16 or bfloat16 on Hopper's tensor cores and pass
 * 0, on tiles of OG_FILTERS filters and OG_BOXED_PLACES places: a box of OG_TILE_B x OG_TILE_D x
 * OG_TILE_H x OG_TILE_W of them (or fewer: what is multiplied beyond is nobody's). Products of halves
 * are exact in float32; the tensor cores sum them 16 by 16 in the order of k, and truncate what they
 * add.
 *
 * The image has its channels side by side, as PyTorch's channels-last has them, or is brought into
 * that form first (og_lay_half_image). What a tap's places see of OG_LINE channels is then one box of
 * TMA, with zeros where the image ends, and as it lies in shared memory an operand of wgmma. 64 k
 * are a stage:
 *
 *     k    chunks of OG_LINE channels; taps; channels of the chunk
 *
 * Filters were laid out in this order (og_lay_half_filters), and come with the stages, or stay in shared
 * memory (OG_KEEPS). Where channels are few, the taps along a line are channels, too (OG_FOLDS).
 *
 * A box for each tap is much to fetch where filters are few. Without strides all that a tile's windows
 * see of a chunk of channels comes once instead, as a patch (OG_PATCHES): a tap is then an offset, since
 * an operand of wgmma is any 8 lines that lie one after the other, and others OG_APART lines after these.
 * Either that is a patch's own width, and a tile is 8 places wide; or it is 8, places of the operand are
 * those of the patch in order, and what lies between the tile's lines is nobody's.
 *
 * Two warpgroups multiply. They share a tile, half of its places each; or they take turns
 * (OG_ALTERNATES): one finishes its tile (hopper_half_ends.cuh) while the other multiplies.
 *
 * PARAMETERS
 *   OG_MMA_TYPE    "f16" or "bf16"
 *   OG_LAST        1: neighbours of the result are filters; 0: places
 *   OG_FILTER_ROWS 1: filters are rows of the product, and places columns; 0: places are rows
 *   OG_WIDTH       columns of a warpgroup's product
 *   OG_HEIGHT      64 rows that it has
 *   OG_ALTERNATES, OG_KEEPS, OG_FOLDS   1: see above
 *   OG_LINE        channels of a box: 64, 32 or 16
 *   OG_TILE_B .. OG_TILE_W   places of a tile
 *   OG_STEP_D .. OG_STEP_W   what a place is in the image
 *   OG_LONG        1: tensor cores do not sum all of k, but OG_CHAIN, and float32 these sums;
 *                  OG_HEIGHT * OG_WIDTH is 128 at most, since registers hold both
 *   OG_STAGES      that shared memory has room for
 *   OG_FIRST, OG_TAIL  boxes of a tile's first and last stage; others have OG_PIECES
 *   OG_PATCHES     patches that it has room for, of OG_PATCH_D x OG_PATCH_H x OG_PATCH_W places; 0: boxes
 *   OG_APART       lines from 8 of an operand to the next 8
 *   OG_BLOCKS      of 64 k, where filters stay in shared memory
 *   OG_PACKS       1: pass 0 has one result, of halves, and reads nothing but what filters share; steps
 *                  between its places are multiples of 16 bytes, and so are filters. Filters are rows,
 *                  and go to memory 8 at a time
 *   OG_QUADS_AT_ONCE  of four neighbours, that a thread finishes: 8, 4 or 2
 *   OG_COPIES_IMAGE  1: the image is copied
 * No bit depends on any but OG_MMA_TYPE, OG_FOLDS, OG_LINE, OG_LONG and OG_CHAIN, which follow from the
 * filters.
 */
#include "cuda/kernels/hopper_half_ends.cuh"
#include "cuda/kernels/hopper_ring.cuh"
#include "cuda/kernels/hopper_lay_halves.cuh"

/* ---- where addresses are none that TMA takes --------------------------------------------------- */

#if !OG_COPIES_IMAGE
/* The number of a place among the image's columns, which may be beyond its line. */
OG_FN og_index og_find_image_column(const og_args &a, const og_box_place &at)
{
    return ((og_index)at.d * a.height + at.h) * a.line_pitch + at.w;
}

/* A thread has a quad, in plan.h's order but for blocks of k: k one after the other. */
OG_KERNEL(og_redo_convolution, 256)
{
    const int quads = OG_FILTERS * OG_BOXED_PLACES / 4;
    for (int64_t i = (int64_t)blockIdx.x * 8 + threadIdx.x / 32;
         i < (int64_t)a.items * (quads / 32); i += (int64_t)gridDim.x * 8) {
        const og_box_tile tile = og_find_box_tile(a, (og_index)(i / (quads / 32)));
        const int quad = (int)(i % (quads / 32)) * 32 + threadIdx.x % 32;
        const int m = OG_LAST ? quad % (OG_FILTERS / 4) * 4 : quad / (OG_BOXED_PLACES / 4);
        const int first = OG_LAST ? quad / (OG_FILTERS / 4) : quad % (OG_BOXED_PLACES / 4) * 4;
        og_quads<1> f;
        f.n = tile.m + m;
        og_find_quad(a, tile, f.n, first, f.at[0], f.spans[0]);
        og_load_filters_kept(a, f.n, f.kept);
        for (int j = 0; j < 4; j++) {
            const og_box_place place = og_find_box_place(a, tile, OG_LAST ? first : first + j);
            const og_index filter = f.n + (OG_LAST ? j : 0);
            float sum = 0.0f;
            for (og_index k = 0; place.is_there && filter < a.m && k < a.k; k++) {
                const og_index base = place.b * a.groups + tile.group;
                const og_half x = og_find_half<og_left0>(a, base, filter, k);
                const og_half y =
                    og_find_half<og_right0>(a, base, og_find_image_column(a, place), k);
                sum = fmaf(og_left0::widen(x), og_right0::widen(y), sum);
            }
            f.sums[0].e[j] = sum;
        }
        og_finish_quads(a, f, og_is_quad_whole(a, f.at[0], f.spans[0]));
    }
}
#endif

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- rings --------------------------------------------------------------------------------- */

/* Shared memory of a block, and its barriers: a stage is full, a stage is empty; it is the turn of
 * warpgroup 0, of 1; filters that stay are there; a patch is there, a patch is empty. */
struct og_convolve_ring {
    uint32_t stages, full, empty, order, kept, patch, no_patch;
};

OG_FN og_convolve_ring og_start_convolve_ring(uint32_t base)
{
    og_convolve_ring ring;
    ring.stages = base;
    ring.full = base + OG_BOX_BARRIERS_AT;
    ring.empty = ring.full + 8 * OG_STAGES;
    ring.order = ring.empty + 8 * OG_STAGES;
    ring.kept = ring.order + 16;
    ring.patch = ring.kept + 8;
    ring.no_patch = ring.patch + 8 * OG_PATCHES;
    for (int i = 0; threadIdx.x == 0 && i < OG_STAGES; i++) {
        og_barrier_init(ring.full + 8 * i, 1);
        og_barrier_init(ring.empty + 8 * i, 4 * OG_PARTS); /* warps that read */
    }
    for (int i = 0; threadIdx.x == 0 && i < OG_PATCHES; i++) {
        og_barrier_init(ring.patch + 8 * i, 1);
        og_barrier_init(ring.no_patch + 8 * i, 4 * OG_PARTS);
    }
    if (threadIdx.x == 0) {
        og_barrier_init(ring.order, 4);
        og_barrier_init(ring.order + 8, 4);
        og_barrier_init(ring.kept, 1);
    }
    return ring;
}

/* ---- the producer ---------------------------------------------------------------------------- */

/* The box that is brought next: a tap's, of a chunk of channels. */
struct alignas(16) og_next_piece { /* which is copied at once */
    int chunk, d, h, w;
};

OG_FN void og_pass_piece(const og_args &a, og_next_piece &at)
{
    if (++at.w < (int)a.taps_w)
        return;
    at.w = 0;
    if (++at.h < (int)a.taps_h)
        return;
    at.h = 0;
    if (++at.d < (int)a.taps_d)
        return;
    at.d = 0;
    at.chunk++;
}

/* Boxes of a stage; the tile's last one may have fewer. */
template <int pieces>
OG_FN void og_bring_pieces(const og_args &a, const og_box_tile &tile, og_next_piece &at,
                           uint32_t to, uint32_t full)
{
#pragma unroll
    for (int i = 0; i < pieces; i++) {
        og_copy_patch(to + i * OG_PIECE_BYTES, &a.image_map,
                      (int)(tile.group * a.map_group) + at.chunk * OG_LINE,
                      tile.w * OG_STEP_W + (int)a.start_w + at.w * (int)a.reach_w,
                      tile.h * OG_STEP_H + (int)a.start_h + at.h * (int)a.reach_h,
                      tile.d * OG_STEP_D + (int)a.start_d + at.d * (int)a.reach_d, tile.b, full);
        og_pass_piece(a, at);
    }
}

/* A stage: boxes, unless there are patches, and filters, unless they stay. */
template <int pieces>
OG_FN void og_bring_stage(const og_args &a, const og_convolve_ring &ring, const og_box_tile &tile,
                          og_ring_turn &turn, og_next_piece &at, int k)
{
    const uint32_t to = ring.stages + turn.stage * OG_STAGE_BYTES;
    const uint32_t full = ring.full + 8 * turn.stage;
    og_barrier_wait(ring.empty + 8 * turn.stage, turn.phase);
    og_barrier_expect(full, (OG_PATCHES ? 0 : pieces * OG_BOX_PLACES * OG_LINE_BYTES) +
                                (OG_KEEPS ? 0 : OG_FILTER_BYTES));
    if (!OG_KEEPS)
        og_copy_box(to + OG_IMAGE_BYTES, &a.filter_map, 64 * k, (int)tile.m, (int)tile.group, full,
                    OG_READ_OFTEN);
    if (!OG_PATCHES)
        og_bring_pieces<pieces>(a, tile, at, to, full);
    og_advance<OG_STAGES>(turn);
}

OG_FN void og_produce_boxes(const og_args &a, const og_convolve_ring &ring)
{
    const int blocks = (int)(a.k_padded / 64);
    og_ring_turn turn = {0, 1};
    og_fetch_map(&a.image_map);
    og_fetch_map(&a.filter_map);
    og_await_launch(); /* og_lay_half_filters */
    if (OG_KEEPS) {
        og_barrier_expect(ring.kept, OG_BLOCKS * OG_FILTER_BYTES);
        for (int i = 0; i < OG_BLOCKS; i++)
            og_copy_box(ring.stages + OG_KEPT_AT + i * OG_FILTER_BYTES, &a.filter_map, 64 * i, 0, 0,
                        ring.kept, OG_READ_OFTEN);
    }
    for (og_index i = blockIdx.x; OG_HAS_STAGES && i < a.items; i += gridDim.x) {
        const og_box_tile tile = og_find_box_tile(a, i);
        og_next_piece at = {0, 0, 0, 0};
        for (int k = 0; k < blocks - 1; k++)
            og_bring_stage<OG_PIECES>(a, ring, tile, turn, at, k);
        og_bring_stage<OG_TAIL>(a, ring, tile, turn, at, blocks - 1);
    }
}

#if OG_PATCHES
/* The first element of a dim that the windows of its first place see. */
OG_FN int og_first_seen(og_index start, og_index taps, og_index reach)
{
    return (int)(start + (reach < 0 ? (taps - 1) * reach : 0));
}

/* A thread of its own: patches of the next tile come while filters of this one do. */
OG_FN void og_produce_box_patches(const og_args &a, const og_convolve_ring &ring)
{
    const int d = og_first_seen(a.start_d, a.taps_d, a.reach_d);
    const int h = og_first_seen(a.start_h, a.taps_h, a.reach_h);
    const int w = og_first_seen(a.start_w, a.taps_w, a.reach_w);
    og_ring_turn turn = {0, 1};
    og_await_launch(); /* og_lay_half_image */
    for (og_index i = blockIdx.x; i < a.items; i += gridDim.x) {
        const og_box_tile tile = og_find_box_tile(a, i);
        for (int chunk = 0; chunk < (int)a.chunks; chunk++) {
            const uint32_t full = ring.patch + 8 * turn.stage;
            og_barrier_wait(ring.no_patch + 8 * turn.stage, turn.phase);
            og_barrier_expect(full, OG_PATCH_PLACES * OG_LINE_BYTES);
            og_copy_patch(ring.stages + OG_BOX_PATCHES_AT + turn.stage * OG_BOX_PATCH_BYTES, &a.image_map,
                          (int)(tile.group * a.map_group) + chunk * OG_LINE, tile.w + w, tile.h + h,
                          tile.d + d, tile.b, full);
            og_advance<OG_PATCHES>(turn);
        }
    }
}
#endif

/* ---- the consumers --------------------------------------------------------------------------- */

struct og_convolve_consumer {
    og_convolve_ring ring;
    og_ring_turn turn;
    uint32_t part;   /* of the warpgroup's places, from a box's beginning */
    uint32_t before; /* the stage that was multiplied last */
    uint32_t order;  /* parity of the next turn's phase */
#if OG_PATCHES
    og_ring_turn patch;
    og_next_piece at;
    int left; /* the patch that no product needs but the last ones, or -1 */
#endif
};

/* Leaves out so many tiles, the other warpgroup's. */
OG_FN void og_skip_box_tiles(const og_args &a, og_convolve_consumer &c, int tiles)
{
    og_skip_stages<OG_STAGES>(c.turn, (uint32_t)tiles * (uint32_t)(a.k_padded / 64));
#if OG_PATCHES
    og_skip_stages<OG_PATCHES>(c.patch, (uint32_t)(tiles * (int)a.chunks));
#endif
}

OG_FN void og_release_boxes(const og_convolve_consumer &c, uint32_t stage)
{
    if (OG_HAS_STAGES && threadIdx.x % 32 == 0)
        og_barrier_arrive(c.ring.empty + 8 * stage);
}

#if OG_PATCHES
OG_FN void og_release_patch(og_convolve_consumer &c)
{
    if (c.left >= 0 && threadIdx.x % 32 == 0)
        og_barrier_arrive(c.ring.no_patch + 8 * c.left);
    c.left = -1;
}

OG_FN void og_leave_patch(og_convolve_consumer &c)
{
    c.left = (int)c.patch.stage;
    og_advance<OG_PATCHES>(c.patch);
}

/* Along a dim: what tap i of a patch is apart from the first that lies there. */
OG_FN int og_shift_of(int i, og_index taps, og_index reach)
{
    return (i - (reach < 0 ? (int)taps - 1 : 0)) * (int)reach;
}

/* Where the next tap's first line is, and the next one's turn. */
OG_FN uint32_t og_find_piece(const og_args &a, og_convolve_consumer &c)
{
    const og_next_piece at = c.at;
    if (at.w + at.h + at.d == 0) {
        if (at.chunk > 0)
            og_leave_patch(c);
        og_barrier_wait(c.ring.patch + 8 * c.patch.stage, c.patch.phase);
    }
    const int line = (og_shift_of(at.d, a.taps_d, a.reach_d) * OG_PATCH_H +
                      og_shift_of(at.h, a.taps_h, a.reach_h)) *
                         OG_PATCH_W +
                     og_shift_of(at.w, a.taps_w, a.reach_w);
    og_pass_piece(a, c.at);
    return c.ring.stages + OG_BOX_PATCHES_AT + c.patch.stage * OG_BOX_PATCH_BYTES + line * OG_LINE_BYTES;
}
#else
OG_FN uint32_t og_find_piece(const og_args &, og_convolve_consumer &)
{
    return 0;
}
#endif

/* Lines of so many bytes along k, swizzled over as many, `apart` lines from 8 to the next 8: see
 * og_describe(). The swizzle is by address, so that any line may be the first. */
template <int bytes, int apart> OG_FN uint64_t og_describe_lines(uint32_t address)
{
    const uint64_t swizzle = bytes == 128 ? 1 : bytes == 64 ? 2 : 3;
    return swizzle << 62 | (uint64_t)(apart * bytes / 16) << 32 | (uint64_t)1 << 16 |
           (uint64_t)((address & 0x3ffff) >> 4);
}

/* d = the sums of the next stage's k, block k of filters; adds: d += these. When it returns, what
 * was multiplied before has ended, and the stage before, unless this is the tile's first, is
 * released. */
template <bool is_first, int pieces>
OG_FN void og_multiply_boxes(const og_args &a, og_convolve_consumer &c, int k, og_box_sums &d,
                             bool adds)
{
    const uint32_t at = c.ring.stages + c.turn.stage * OG_STAGE_BYTES;
    const uint32_t filters =
        OG_KEEPS ? c.ring.stages + OG_KEPT_AT + k * OG_FILTER_BYTES : at + OG_IMAGE_BYTES;
    const uint64_t w = og_describe_lines<128, 8>(filters);
    uint64_t x[pieces];
#pragma unroll
    for (int i = 0; i < pieces; i++)
        x[i] = og_describe_lines<OG_LINE_BYTES, OG_APART>(
            c.part + (OG_PATCHES ? og_find_piece(a, c) : at + i * OG_PIECE_BYTES));
    if (OG_HAS_STAGES)
        og_barrier_wait(c.ring.full + 8 * c.turn.stage, c.turn.phase);
    og_products_fence();
#pragma unroll
    for (int i = 0; i < pieces * OG_LINE / 16; i++)
#pragma unroll
        for (int j = 0; j < OG_HEIGHT; j++) {
            const uint64_t places = x[i * 16 / OG_LINE] + i * 16 % OG_LINE * 2 / 16;
            if (!OG_FILTER_ROWS)
                og_multiply_16(d[j], places + j * (8 * OG_APART * OG_LINE_BYTES / 16), w + 2 * i,
                               adds || i > 0);
            else
                og_multiply_16(d[j], w + 2 * i + j * (64 * 128 / 16), places, adds || i > 0);
        }
    og_products_commit();
    og_products_wait<1>();
    if (!is_first)
        og_release_boxes(c, c.before);
#if OG_PATCHES
    og_release_patch(c);
#endif
    c.before = c.turn.stage;
    og_advance<OG_STAGES>(c.turn);
}

/* Multiplies blocks [k, end) of a tile; is_last: with its last one, which may have fewer k. */
OG_FN void og_multiply_blocks(const og_args &a, og_convolve_consumer &c, int k, int end,
                              bool is_last, og_box_sums &d)
{
    const bool has_tail = OG_TAIL < OG_PIECES && is_last;
    const int whole = end - has_tail;
    if (OG_LONG && has_tail && k == whole)
        og_multiply_boxes<true, OG_TAIL>(a, c, k, d, false);
    else
        og_multiply_boxes<true, OG_FIRST>(a, c, k, d, false);
    for (k++; k < whole; k++)
        og_multiply_boxes<false, OG_PIECES>(a, c, k, d, true);
    if (OG_TAIL < OG_PIECES && k < end)
        og_multiply_boxes<false, OG_TAIL>(a, c, k, d, true);
    if (OG_ALTERNATES && is_last)
        og_let_other(c.ring.order);
    og_products_wait<0>();
    og_release_boxes(c, c.before);
#if OG_PATCHES
    if (is_last) {
        og_leave_patch(c);
        og_release_patch(c);
        c.at = {0, 0, 0, 0};
    }
#endif
#pragma unroll
    for (int j = 0; j < OG_HEIGHT; j++)
        og_pin(d[j]);
}

#if OG_LONG

OG_FN void og_convolve_tile(const og_args &a, og_convolve_consumer &c, og_box_sums &z)
{
    const int blocks = (int)(a.k_padded / 64), chain = OG_CHAIN / 64;
    og_box_sums d;
#pragma unroll
    for (int i = 0; i < OG_HEIGHT * OG_HELD; i++)
        z[i / OG_HELD][i % OG_HELD] = -0.0f; /* changes no sum */
#pragma unroll 1
    for (int k = 0; k < blocks; k += chain) {
        const bool is_last = blocks - k <= chain;
        og_multiply_blocks(a, c, k, is_last ? blocks : k + chain, is_last, d);
#pragma unroll
        for (int i = 0; i < OG_HEIGHT * OG_HELD; i++)
            z[i / OG_HELD][i % OG_HELD] += d[i / OG_HELD][i % OG_HELD];
    }
}

#else

OG_FN void og_convolve_tile(const og_args &a, og_convolve_consumer &c, og_box_sums &z)
{
    og_multiply_blocks(a, c, 0, (int)(a.k_padded / 64), true, z);
}

#endif

/* ---- the kernel ---------------------------------------------------------------------------- */

OG_FN void og_consume_boxes(const og_args &a, const og_convolve_ring &ring, char *shared)
{
    og_convolve_consumer c;
    og_index i = blockIdx.x;
    c.ring = ring;
    c.turn = {0, 0};
    c.part = OG_ALTERNATES ? 0 : og_own_group() * OG_PART_PLACES / 8 * OG_APART * OG_LINE_BYTES;
    c.before = 0;
#if OG_PATCHES
    c.patch = {0, 0};
    c.at = {0, 0, 0, 0};
    c.left = -1;
#endif
    c.order = og_own_group() == 0 ? 1 : 0;
    if (OG_ALTERNATES) {
        i += og_own_group() * (og_index)gridDim.x;
        og_skip_box_tiles(a, c, og_own_group());
    }
    og_await_launch(); /* what pass 0 touches is nobody else's any more */
    if (OG_KEEPS)
        og_barrier_wait(ring.kept, 0);
    for (; i < a.items; i += OG_ALTERNATES ? 2 * gridDim.x : gridDim.x) {
        og_box_sums z;
        if (OG_ALTERNATES)
            og_await_other(c.ring.order, c.order);
        og_convolve_tile(a, c, z);
        if (OG_ALTERNATES)
            og_skip_box_tiles(a, c, 1);
        og_finish_box_tile(a, og_find_box_tile(a, i), z, shared);
    }
}

extern "C" __global__ void __launch_bounds__(OG_CONVOLVE_THREADS, 1)
    og_convolve_halves(const __grid_constant__ og_args a)
{
    extern __shared__ __align__(1024) char og_shared[];
    const uint32_t base = (uint32_t)__cvta_generic_to_shared(og_shared);
    if (base % 1024)
        __trap(); /* the swizzle is by address */
    const og_convolve_ring ring = og_start_convolve_ring(base);
    og_publish_barriers();
    __syncthreads();
    if (threadIdx.x < 128) {
        og_give_registers<40>();
        if (threadIdx.x == 0)
            og_produce_boxes(a, ring);
#if OG_PATCHES
        if (threadIdx.x == 32)
            og_produce_box_patches(a, ring);
#endif
    } else {
        og_take_registers<232>();
        og_consume_boxes(a, ring, og_shared);
    }
}

#else /* where there are no such instructions, the kernel is never asked */

OG_KERNEL(og_convolve_halves, OG_CONVOLVE_THREADS)
{
    __trap();
}

#endif
