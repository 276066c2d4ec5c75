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
 * (OG_ALTERNATES): one finishes its tile while the other multiplies. A warp passes its sums through
 * shared memory, so that pass 0 reads and writes memory in whole sectors.
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
 *   OG_QUADS_AT_ONCE  of four neighbours, that a thread finishes: 8, or 2 where pass 0 is costly
 *   OG_COPIES_IMAGE  1: the image is copied
 * No bit depends on any but OG_MMA_TYPE, OG_FOLDS, OG_LINE, OG_LONG and OG_CHAIN, which follow from the
 * filters.
 */
#include "cuda/kernels/finish.cuh"
#include "cuda/kernels/hopper_order.cuh"
#include "cuda/kernels/hopper_ring.cuh"
#include "cuda/kernels/hopper_ptx.cuh"
#include "cuda/kernels/hopper_lay_halves.cuh"

enum {
    OG_PARTS = OG_ALTERNATES ? 1 : 2, /* warpgroups of a tile, which have as many places each */
    OG_FILTERS = OG_FILTER_ROWS ? 64 * OG_HEIGHT : OG_WIDTH,
    OG_PART_PLACES = OG_FILTER_ROWS ? OG_WIDTH : 64 * OG_HEIGHT,
    OG_BOXED_PLACES = OG_PARTS * OG_PART_PLACES,
    OG_BOX_PLACES = OG_TILE_B * OG_TILE_D * OG_TILE_H * OG_TILE_W, /* that are brought */
    OG_PIECES = 64 / OG_LINE,                                      /* boxes of a stage */
    OG_LINE_BYTES = 2 * OG_LINE,
    OG_PIECE_BYTES = OG_BOXED_PLACES * OG_LINE_BYTES,
    OG_IMAGE_BYTES = OG_PATCHES ? 0 : OG_PIECES * OG_PIECE_BYTES, /* of a stage */
    OG_FILTER_BYTES = OG_FILTERS * 64 * 2,
    OG_STAGE_BYTES = OG_IMAGE_BYTES + (OG_KEEPS ? 0 : OG_FILTER_BYTES),
    OG_KEPT_AT = OG_STAGES * OG_STAGE_BYTES,
    OG_PATCHES_AT = OG_KEPT_AT + (OG_KEEPS ? OG_BLOCKS * OG_FILTER_BYTES : 0),
    OG_PATCH_PLACES = OG_TILE_B * OG_PATCH_D * OG_PATCH_H * OG_PATCH_W,
    /* What is read of it: by the last tap, also where that is nobody's. */
    OG_PATCH_LINES = OG_BOXED_PLACES / 8 * OG_APART - OG_APART + 8 +
                     (OG_PATCH_D * OG_PATCH_H - OG_TILE_H + 1) * OG_PATCH_W - OG_TILE_W,
    OG_PATCH_ROOM = OG_PATCH_LINES > OG_PATCH_PLACES ? OG_PATCH_LINES : OG_PATCH_PLACES,
    OG_PATCH_BYTES = (OG_PATCH_ROOM * OG_LINE_BYTES + 1023) / 1024 * 1024,
    OG_BOX_STAGING_AT = OG_PATCHES_AT + OG_PATCHES * OG_PATCH_BYTES,
    OG_STAGED_BYTES = 16 * 64 * 4, /* what a warp passes through shared memory at a time */
    OG_BOX_BARRIERS_AT = OG_BOX_STAGING_AT + 8 * OG_STAGED_BYTES,
    OG_CONVOLVE_SHARED = OG_BOX_BARRIERS_AT + 8 * (2 * OG_STAGES + 2 * OG_PATCHES + 3),
    OG_HAS_STAGES = !OG_PATCHES || !OG_KEEPS,
    OG_CONVOLVE_THREADS = 128 * 3,
    OG_COLUMN_PARTS = OG_WIDTH / 64, /* 64 columns of 16 rows are staged at a time */
    OG_THREAD_QUADS = 16 * 64 / 4 / 32,
    OG_QUADS_ACROSS = OG_LAST == OG_FILTER_ROWS /* neighbours of the result are rows */
};
static_assert(OG_SHARED_BYTES == OG_CONVOLVE_SHARED, "the launch gives it");
static_assert(OG_BOX_PLACES <= OG_BOXED_PLACES && OG_V == 4, "");
static_assert(!OG_PACKS || (OG_LAST && OG_FILTER_ROWS), "");

/* ---- tiles --------------------------------------------------------------------------------- */

/* Its first filter and place, of group `group`. */
struct og_box_tile {
    og_index group, m;
    int b, d, h, w;
};

OG_FN og_box_tile og_find_box_tile(const og_args &a, og_index i)
{
    og_box_tile tile;
    og_index rest = i / a.m_tiles;
    tile.m = (i - rest * a.m_tiles) * OG_FILTERS;
    i = rest / a.tiles_w;
    tile.w = (int)(rest - i * a.tiles_w) * OG_TILE_W;
    rest = i / a.tiles_h;
    tile.h = (int)(i - rest * a.tiles_h) * OG_TILE_H;
    i = rest / a.tiles_d;
    tile.d = (int)(rest - i * a.tiles_d) * OG_TILE_D;
    tile.group = i / a.tiles_b;
    tile.b = (int)(i - tile.group * a.tiles_b) * OG_TILE_B;
    return tile;
}

/* A place of the result. */
struct og_box_place {
    int b, d, h, w;
    bool is_there;
};

/* Place i of a tile. */
OG_FN og_box_place og_find_box_place(const og_args &a, const og_box_tile &tile, int i)
{
    og_box_place to;
#if OG_PATCHES
    const int at = i / 8 * OG_APART + i % 8, line = at / OG_PATCH_W;
    const int b = line / OG_PATCH_H, h = line % OG_PATCH_H, w = at % OG_PATCH_W;
    to = {tile.b + b, tile.d, tile.h + h, tile.w + w, w < OG_TILE_W && h < OG_TILE_H && b < OG_TILE_B};
#else
    to.w = tile.w + i % OG_TILE_W;
    to.h = tile.h + i / OG_TILE_W % OG_TILE_H;
    to.d = tile.d + i / (OG_TILE_W * OG_TILE_H) % OG_TILE_D;
    to.b = tile.b + i / (OG_TILE_W * OG_TILE_H * OG_TILE_D);
    to.is_there = i < OG_BOX_PLACES;
#endif
    to.is_there &= to.b < a.batch && to.d < a.depth && to.h < a.height && to.w < a.width;
    return to;
}

/* Where a place is; one that is not there is somewhere. */
OG_FN og_offsets og_find_box_offsets(const og_args &a, og_index group, const og_box_place &to)
{
    og_offsets at = og_start();
    if (to.is_there) {
        og_step_batch(a, to.b, at);
        og_step_depth(a, to.d, at);
        og_step_height(a, to.h, at);
        og_step_width(a, to.w, at);
    }
    og_step_group(a, group, at);
    return at;
}

/* ---- pass 0 ---------------------------------------------------------------------------------- */

/* A thread's quads of some rows: neighbours of the result. */
template <int count> struct og_quads {
    og_index n; /* where filters are columns: the first */
    og_kept kept[1];
    og_offsets at[count];
    og_span spans[count];
    og_vector_sums sums[count];
};

/* The same for finish.cuh. */
template <int count, bool is_whole> struct og_quads_part {
    enum { rows = count, vectors = 1, apart = 0 };
    static const bool whole = is_whole;

    const og_quads<count> &of;
    const og_kept (&kept)[1];

    OG_FN og_offsets find(const og_quads_part &f, const og_args &, int r)
    {
        return f.of.at[r];
    }
    OG_FN og_offsets column(const og_quads_part &, const og_args &, int)
    {
        return og_start();
    }
    OG_FN og_span span(const og_quads_part &f, const og_args &, int r, int)
    {
        return f.of.spans[r];
    }
    OG_FN float sum(const og_quads_part &f, int, int r, int, int j)
    {
        return f.of.sums[r].e[j];
    }
};

/* Where the quad of filter m and place i of the tile, the first of four filters or places, is. */
OG_FN void og_find_quad(const og_args &a, const og_box_tile &tile, og_index m, int i,
                        og_offsets &at, og_span &span)
{
    const og_box_place place = og_find_box_place(a, tile, i);
    at = og_find_box_offsets(a, tile.group, place);
    og_step_filters(a, m < a.m ? m : a.m - 1, at);
    span = OG_LAST ? og_span_of(m, a.m) : og_span_of(place.w, a.width);
    if (!place.is_there || m >= a.m)
        span.end = 0;
}

/* Pass 0 on a thread's quads; all of a warp come. is_whole: they are there, and aligned. */
template <int count>
OG_FN void og_finish_quads(const og_args &a, const og_quads<count> &of, bool is_whole)
{
    if (__all_sync(0xffffffffu, is_whole))
        og_finish_fragment(a, og_quads_part<count, true>{of, of.kept});
    else
        og_finish_fragment(a, og_quads_part<count, false>{of, of.kept});
}

OG_FN bool og_is_quad_whole(const og_args &a, const og_offsets &at, const og_span &span)
{
    return og_is_full(span) && og_loads0::is_aligned(a, at) && og_pass0::is_aligned(a, at);
}

/* What pass 0 reads of filters n on, whatever the place is. */
OG_FN void og_load_filters_kept(const og_args &a, og_index n, og_kept (&kept)[1])
{
#if OG_LAST
    og_load_kept<0, false>(a, n, kept);
#endif
}

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
struct og_next_piece {
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
OG_FN void og_produce_patches(const og_args &a, const og_convolve_ring &ring)
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
            og_copy_patch(ring.stages + OG_PATCHES_AT + turn.stage * OG_PATCH_BYTES, &a.image_map,
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
    return c.ring.stages + OG_PATCHES_AT + c.patch.stage * OG_PATCH_BYTES + line * OG_LINE_BYTES;
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

typedef og_held og_box_sums[OG_HEIGHT];

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

/* ---- the end of a tile ----------------------------------------------------------------------- */

/* Where element (row, column) of 16 x 64 is: no two lanes in the same bank, whether two columns are
 * written as the tensor cores leave them, or quads of a row or a column are read. */
OG_FN int og_place_of_sum(int row, int column)
{
    return row * 64 + (column ^ ((row + row / 4) & 3) << 3);
}

/* Stages part `part` of a warp's sums: 16 rows of 64 columns. Registers have no index. */
OG_FN void og_stage_sums(float *to, const og_box_sums &z, int part)
{
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int p = 0; p < OG_HEIGHT * OG_COLUMN_PARTS; p++)
        if (part == p)
#pragma unroll
            for (int j = 0; j < 8; j++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const float *from =
                        z[p / OG_COLUMN_PARTS] + 32 * (p % OG_COLUMN_PARTS) + 4 * j + 2 * h;
                    *(float2 *)&to[og_place_of_sum(g + 8 * h, 8 * j + 2 * t)] =
                        make_float2(from[0], from[1]);
                }
}

/* A thread's quad i of 16 x 64 sums begins at this row and column. */
OG_FN int og_row_of_quad(int i)
{
    const int number = threadIdx.x % 32 + 32 * i;
    return OG_QUADS_ACROSS ? number % 4 * 4 : number / 16;
}

OG_FN int og_column_of_quad(int i)
{
    const int number = threadIdx.x % 32 + 32 * i;
    return OG_QUADS_ACROSS ? number / 4 : number % 16 * 4;
}

OG_FN og_vector_sums og_read_quad(const float *staged, int row, int column)
{
    og_vector_sums sums;
    if (!OG_QUADS_ACROSS)
        return *(const og_vector_sums *)&staged[og_place_of_sum(row, column)];
#pragma unroll
    for (int j = 0; j < 4; j++)
        sums.e[j] = staged[og_place_of_sum(row + j, column)];
    return sums;
}

#if OG_LAST
/* Where a place of a tile is, which its lane finds for those that finish filters there: quads of
 * filters are aligned as the place is. */
struct og_spot {
    og_offsets at;
    int is_there, is_aligned;
};

OG_FN og_spot og_find_spot(const og_args &a, const og_box_tile &tile, int i)
{
    const og_box_place place = og_find_box_place(a, tile, i);
    const og_offsets at = og_find_box_offsets(a, tile.group, place);
    return {at, place.is_there, og_loads0::is_aligned(a, at) && og_pass0::is_aligned(a, at)};
}

template <int n> OG_FN void og_take_place(og_offsets &at, int lane)
{
    if constexpr ((og_operand<n>::moves & ~(1 << OG_VECTOR_DIM)) != 0)
        at.o[n] = __shfl_sync(0xffffffffu, at.o[n], lane);
}

template <int... n> OG_FN void og_take_places(og_offsets &at, int lane, og_indices<n...>)
{
    (og_take_place<n>(at, lane), ...);
}

/* The spot that another lane has found. */
OG_FN og_spot og_take_spot(const og_spot &from, int lane)
{
    og_spot to = from;
    og_take_places(to.at, lane, og_all_places());
    to.is_there = __shfl_sync(0xffffffffu, from.is_there, lane);
    to.is_aligned = __shfl_sync(0xffffffffu, from.is_aligned, lane);
    return to;
}

/* A lane's spots: of rows one, of 64 columns two, unless few quads are finished at a time. */
struct og_spots {
    og_spot of[OG_FILTER_ROWS && OG_QUADS_AT_ONCE == 8 ? 2 : 1];
};

/* For quads from number `first` on, of the sums that begin at this row and column. */
OG_FN og_spots og_find_spots(const og_args &a, const og_box_tile &tile, int row, int column,
                             int first)
{
    const int lane = threadIdx.x % 32, half = 32 * (first / 4);
    og_spots to;
    to.of[0] = og_find_spot(a, tile, OG_FILTER_ROWS ? column + half + lane : row + lane % 16);
    if constexpr (sizeof to.of > sizeof *to.of)
        to.of[1] = og_find_spot(a, tile, column + 32 + lane);
    return to;
}

/* Quad first + q of a thread's. */
OG_FN bool og_find_staged_quad(const og_args &a, const og_box_tile &, const og_spots &spots,
                               og_index m, int, int first, int q, og_offsets &at, og_span &span)
{
    const int place = OG_FILTER_ROWS ? og_column_of_quad(first + q) : og_row_of_quad(first + q);
    const og_spot spot = og_take_spot(spots.of[OG_FILTER_ROWS && q >= 4 ? 1 : 0], place % 32);
    at = spot.at;
    og_step_filters(a, m < a.m ? m : a.m - 1, at);
    span = og_span_of(m, a.m);
    if (!spot.is_there || m >= a.m)
        span.end = 0;
    return spot.is_aligned && og_is_full(span);
}
#else
struct og_spots {
};

OG_FN og_spots og_find_spots(const og_args &, const og_box_tile &, int, int, int)
{
    return {};
}

OG_FN bool og_find_staged_quad(const og_args &a, const og_box_tile &tile, const og_spots &,
                               og_index m, int i, int, int, og_offsets &at, og_span &span)
{
    og_find_quad(a, tile, m, i, at, span); /* whose place is the same for all of a thread's */
    return og_is_quad_whole(a, at, span);
}
#endif

/* Finishes OG_QUADS_AT_ONCE quads of a thread's from number `first` on. row, column: of the tile, the
 * first that are staged. */
OG_FN void og_finish_some(const og_args &a, const og_box_tile &tile, int row, int column, int first,
                          const float *staged)
{
    const og_spots spots = og_find_spots(a, tile, row, column, first);
    og_quads<OG_QUADS_AT_ONCE> f;
    bool is_whole = true;
    f.n = tile.m + (OG_FILTER_ROWS ? row + og_row_of_quad(0) : column + og_column_of_quad(0));
    og_load_filters_kept(a, f.n, f.kept);
#pragma unroll
    for (int q = 0; q < OG_QUADS_AT_ONCE; q++) {
        const int i = og_row_of_quad(first + q), j = og_column_of_quad(first + q);
        const og_index m = tile.m + (OG_FILTER_ROWS ? row + i : column + j);
        is_whole &= og_find_staged_quad(a, tile, spots, m, OG_FILTER_ROWS ? column + j : row + i,
                                        first, q, f.at[q], f.spans[q]);
        f.sums[q] = og_read_quad(staged, i, j);
    }
    og_finish_quads(a, f, is_whole);
}

#if OG_PACKS

/* ---- results that are packed ----------------------------------------------------------------- */

enum {
    OG_PACKED_PLACES = OG_WIDTH < 128 ? OG_WIDTH : 128, /* places of 64 filters that a warpgroup stages */
    OG_PACKED_LINE = 64 * 2,                     /* bytes of a place there */
    OG_PACKED_STEPS = OG_PACKED_PLACES / 16
};
static_assert(OG_PACKED_PLACES * OG_PACKED_LINE <= 4 * OG_STAGED_BYTES, "");
static_assert(__is_empty(og_loads0), "nothing is read but what is kept");

/* Leaves what pass 0 makes of columns `first` on of a warp's 16 filters in lines of places, whose
 * 16-byte parts change places by the line: no two lanes in the same bank. kept: of a thread's two
 * filters. */
OG_FN void og_pack_places(const og_args &a, const og_held &z, int first,
                          const og_kept (&kept)[2][1], uint32_t to)
{
    const int lane = threadIdx.x % 32, matrix = lane / 8, line = lane % 8;
    const int part = threadIdx.x / 32 % 4 * 2 + matrix % 2;
    const uint32_t at = to + (matrix / 2 * 8 + line) * OG_PACKED_LINE + ((part ^ line) << 4);
    const og_loads0 nothing = {};
    og_row none;
#pragma unroll
    for (int i = 0; i < OG_PACKED_STEPS; i++) {
        uint32_t four[4];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            og_pass0::values y[OG_V];
#pragma unroll
            for (int j = 0; j < OG_V; j++) { /* places, of one filter */
                og_kept of = kept[h][0];
                of.product[0] = z[(first / 8 + 2 * i + j / 2) * 4 + 2 * h + j % 2];
                og_pass0::compute(a, none, of, nothing, 0, y[j]);
            }
            const auto pack = og_pass0::pack(y);
            four[h] = pack.e[0] | (uint32_t)pack.e[1] << 16;
            four[h + 2] = pack.e[2] | (uint32_t)pack.e[3] << 16;
        }
        og_store_matrices_across(at + i * 16 * OG_PACKED_LINE, four);
    }
}

/* Writes what was packed of filters m on, at places `first` on of the tile: a thread 8 filters of a
 * place at a time. A lane finds where one of its warp's places is. */
OG_FN void og_write_places(const og_args &a, const og_box_tile &tile, og_index m, int first,
                           uint32_t from)
{
    const int lane = threadIdx.x % 32, part = lane % 8, line = threadIdx.x / 32 % 4 * 4;
    const og_box_place place =
        og_find_box_place(a, tile, first + line + lane % 4 + lane / 4 % OG_PACKED_STEPS * 16);
    og_offsets at = og_find_box_offsets(a, tile.group, place);
    og_step_filters(a, m, at);
    const uint64_t own = place.is_there ? (uint64_t)og_pass0::place(a, at) : 0;
    const uint32_t staged =
        from + (line + lane / 8) * OG_PACKED_LINE + ((part ^ ((line + lane / 8) & 7)) << 4);
    const bool is_there = m + 8 * part < a.m;
#pragma unroll
    for (int i = 0; i < OG_PACKED_STEPS; i++) {
        const uint64_t begin = __shfl_sync(0xffffffffu, own, 4 * i + lane / 8);
        const og_four_words eight = og_load_shared_words(staged + i * 16 * OG_PACKED_LINE);
        og_half *to = (og_half *)begin + 8 * part;
        if (begin && is_there && begin % 16 == 0)
            *(og_four_words *)to = eight;
        else if (begin && is_there)
#pragma unroll
            for (int j = 0; j < 8; j++)
                to[j] = (og_half)(eight.e[j / 2] >> 16 * (j % 2));
    }
}

OG_FN void og_finish_box_tile(const og_args &a, const og_box_tile &tile, const og_box_sums &z,
                              char *shared)
{
    const int group = og_own_group(), places = OG_ALTERNATES ? 0 : group * OG_PART_PLACES;
    const int row = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    const uint32_t staged = (uint32_t)__cvta_generic_to_shared(shared + OG_BOX_STAGING_AT +
                                                               group * 4 * OG_STAGED_BYTES);
#pragma unroll
    for (int j = 0; j < OG_HEIGHT; j++) {
        const og_index m = tile.m + 64 * j;
        og_kept kept[2][1];
        if (m >= a.m)
            continue;
        for (int h = 0; h < 2; h++)
            og_load_filters_kept(a, m + row + 8 * h, kept[h]);
#pragma unroll
        for (int first = 0; first < OG_WIDTH; first += OG_PACKED_PLACES) {
            if (!OG_PATCHES && places + first >= OG_BOX_PLACES)
                continue;
            og_meet_group(group); /* what was there has been read */
            og_pack_places(a, z[j], first, kept, staged);
            og_meet_group(group);
            og_write_places(a, tile, m, places + first, staged);
        }
    }
}

#else

OG_FN void og_finish_box_tile(const og_args &a, const og_box_tile &tile, const og_box_sums &z,
                              char *shared)
{
    const int warp = threadIdx.x / 32 - 4;
    const int places = OG_ALTERNATES ? 0 : og_own_group() * OG_PART_PLACES;
    float *staged = (float *)(shared + OG_BOX_STAGING_AT + warp * OG_STAGED_BYTES);
#pragma unroll 1
    for (int i = 0; i < OG_HEIGHT * OG_COLUMN_PARTS; i++) {
        const int row = 64 * (i / OG_COLUMN_PARTS) + warp % 4 * 16 + (OG_FILTER_ROWS ? 0 : places);
        const int column = 64 * (i % OG_COLUMN_PARTS) + (OG_FILTER_ROWS ? places : 0);
        if (tile.m + (OG_FILTER_ROWS ? row : column) >= a.m ||
            (!OG_PATCHES && (OG_FILTER_ROWS ? column : row) >= OG_BOX_PLACES))
            continue;
        __syncwarp(); /* what was there has been read */
        og_stage_sums(staged, z, i);
        __syncwarp();
#pragma unroll 1
        for (int q = 0; q < OG_THREAD_QUADS; q += OG_QUADS_AT_ONCE)
            og_finish_some(a, tile, row, column, q, staged);
    }
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
            og_produce_patches(a, ring);
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
