/* SPDX-License-Identifier: MIT
 *
 * hopper_windows.cuh - a convolution of float32 on Hopper's tensor cores and pass 0, on tiles of
 * OG_BM filters (rows) and OG_TILE_PLACES places (columns): a box of OG_TILE_D x OG_TILE_H x
 * OG_TILE_W of them.
 *
 * Of OG_PATCH_CHANNELS channels at a time, all that the windows of a tile's places see is a
 * *patch*: one box that TMA brings into shared memory, zeros where the image ends. A tap is an
 * offset into the patch. Threads read 64 k of their places there, and split them in registers:
 * hopper_chain.cuh. Filters were laid out in the order that this takes k in (og_lay_filters), and split
 * (pairs_split.cuh):
 *
 *     k    chunks of channels; taps; channels of the chunk, 16 of them are a step
 *
 * or, of few channels, as many taps as make 16. Steps of a chunk are padded to whole blocks of 64 k,
 * with zeros for filters and what tap 0 sees for places. Thread 4 g + t of a warp holds places g and
 * g + 8 of the warp's 16, and filters 2 t and 2 t + 1 of each 8. While the tensor cores work on one
 * block, a thread splits the next one. Then pass 0 has the tile (hopper_window_ends.cuh), the next
 * one's first block split already: if its products were under way meanwhile, their registers would be
 * missing, and a thread that gives the left factor in registers waits for most of them anyway.
 *
 * Of many channels and taps (OG_CELLS) other warps split a patch when it comes, once for all taps:
 * hopper_window_cells.cuh. What follows, and the end of a tile, is the same.
 *
 * Where a tile has few filters (OG_ALTERNATES), all of its blocks of filters stay in shared memory,
 * and each group of warps has tiles of its own, of 64 places: while one is at the end of a tile,
 * others multiply. Where it has 64 rows, which are all that there are (OG_TRAYS), other warps have pass 0:
 * hopper_window_trays.cuh. Elsewhere two warps may write what pass 0 has left in shared memory (OG_PIECES).
 *
 * A sum that may have lost too much to what pairs cannot hold (pairs.cuh) is marked, and
 * og_redo_windows computes it in plan.h's order. So a result's bits depend on what its window sees
 * and on its filter alone.
 *
 * PARAMETERS
 *   OG_BM        filters of a tile: 32, 64 or 128
 *   OG_STEP_TAPS taps of a step: 1, or 2 or 4 of 8 or 4 channels, which are all that there are
 *   OG_PATCH_CHANNELS     channels of a patch, a multiple of 16 / OG_STEP_TAPS
 *   OG_STEPS     steps of 16 k of a chunk, a multiple of 4; of cells, of which only the last block
 *                has padding, of 2
 *   OG_LAST_STEPS   steps of a tile's last block that are no padding: 1 to 4; 4 where a tile has more than
 *                three blocks, or several chunks, or tiles have phases
 *   OG_ALTERNATES   0, or how many groups have tiles of their own; blocks of the grid then are a
 *                multiple of a.m_tiles, so that a block's tiles have the same filters
 *   OG_SPREADS   1: of a step's 16 channels thread t has t, t + 4, t + 8 and t + 12; else 2 t,
 *                2 t + 1, 2 t + 8 and 2 t + 9. Whichever has it read from different banks. Of 8
 *                channels, the first two, of either tap
 *   OG_TILE_D .. OG_TILE_W    places of a tile; OG_TILE_W is 16 or more
 *   OG_STEP_D .. OG_STEP_W    what a place is in the image
 *   OG_PATCH_D .. OG_PATCH_W  of the image's elements
 *   OG_PATCH_STAGES, OG_X_STAGES  that shared memory has room for
 *   OG_CELLS     split patches that it has room for, or 0: threads that multiply split what they read
 *   OG_PIECES    of a group's results that shared memory has room for, before other warps write them
 *                (hopper_window_stores.cuh): 0, or so many that all of a tile are a multiple. Two groups
 *                then multiply one after the other
 *   OG_TRAYS     1: other warps do the ends of tiles (hopper_window_trays.cuh)
 *   OG_KEEPS     1: all blocks of filters stay in shared memory, as where groups alternate; blocks of the
 *                grid are such a multiple
 *   OG_END_BATCHES  of four filters, that are written out at the end of a tile: all, or 1 in a loop,
 *                where so many copies of pass 0 would not stay in the instruction cache
 */
#include "cuda/kernels/seen.cuh"
#include "cuda/kernels/finish.cuh"
#include "cuda/kernels/hopper_phases.cuh"
#include "cuda/kernels/hopper_chain.cuh"
#include "cuda/kernels/hopper_order.cuh"

enum {
    OG_WINDOW_GROUPS = OG_ALTERNATES ? OG_ALTERNATES : 2, /* that multiply, 64 places each */
    OG_RINGS = OG_ALTERNATES ? OG_ALTERNATES : 1,         /* of patches */
    OG_ORDERS = OG_PIECES > 0,                            /* groups multiply one after the other */
    OG_TILE_GROUPS = OG_WINDOW_GROUPS / OG_RINGS,         /* that work on a tile */
    OG_TILE_PLACES = 64 * OG_TILE_GROUPS,
    OG_TILE_THREADS = 128 * OG_TILE_GROUPS,
    OG_TILE_WARPS = OG_TILE_THREADS / 32,
    OG_CONSUMERS = 128 * OG_WINDOW_GROUPS,
    OG_WINDOW_THREADS = 128 + OG_CONSUMERS + 128 * OG_TRAYS,
    OG_PATCH_PITCH = 4 * OG_PATCH_W * OG_PATCH_H * OG_PATCH_D, /* bytes of a channel */
    OG_PATCH_BYTES = OG_PATCH_CHANNELS * OG_PATCH_PITCH,
    OG_PATCH_STAGE = (OG_PATCH_BYTES + 127) / 128 * 128,
    OG_CELL_PITCH = 4 * 32 + 16, /* hi and lo of 32 channels; what was found in them */
    OG_CELLS_STAGE = OG_PATCH_PITCH / 4 * OG_CELL_PITCH,
    OG_PATCHES_AT = OG_X_STAGES * OG_X_BOX_BYTES,
    OG_GROUP_PLACES = 64,
    OG_PIECE_ROWS = 16,
    OG_PIECE_PITCH = OG_GROUP_PLACES + 4, /* words: a warp's rows, two apart, have their own banks */
    OG_ENDS_PIECE_BYTES = 4 * OG_PIECE_ROWS * OG_PIECE_PITCH,
    OG_CELLS_AT = OG_PATCHES_AT + OG_RINGS * OG_PATCH_STAGES * OG_PATCH_STAGE,
    OG_PIECES_AT = OG_CELLS_AT + OG_CELLS * OG_CELLS_STAGE,
    OG_TRAY_PITCH = OG_PIECE_PITCH,
    OG_TRAY_BYTES = 4 * OG_BM * OG_TRAY_PITCH,
    OG_TRAYS_AT = OG_PIECES_AT + OG_WINDOW_GROUPS * OG_PIECES * OG_ENDS_PIECE_BYTES,
    OG_TABLE_AT = OG_TRAYS_AT + OG_WINDOW_GROUPS * OG_TRAYS * OG_TRAY_BYTES,
    OG_TABLE_WORDS = OG_CELLS ? (OG_STEPS / 2 + 3) / 4 * 4 : OG_STEPS * OG_STEP_TAPS, /* of a phase */
    OG_SCALES_AT =
        OG_TABLE_AT + 4 * OG_TILE_PHASES * OG_TABLE_WORDS, /* of a tile's rows, for each group */
    OG_BOUNDS_AT = OG_SCALES_AT + OG_WINDOW_GROUPS * OG_BM * 8, /* of these, by 32 filters */
    OG_RING_BARRIERS_AT = OG_BOUNDS_AT + OG_WINDOW_GROUPS * OG_BM / 32 * 8,
    OG_WINDOW_SHARED =
        OG_RING_BARRIERS_AT + 16 * (OG_X_STAGES + OG_RINGS * OG_PATCH_STAGES) +
        16 * OG_WINDOW_GROUPS * (OG_PIECES + OG_TRAYS) + 8 * OG_ALTERNATES + 16 * OG_ORDERS +
        16 * OG_CELLS,
    OG_CHUNK_BLOCKS = OG_STEPS / 4,
    OG_STEP_CHANNELS = 16 / OG_STEP_TAPS,
    OG_TAP_STEPS = OG_PATCH_CHANNELS / OG_STEP_CHANNELS, /* of few channels 1 */
    OG_END_UNROLL = OG_END_BATCHES,                      /* in a pragma no macro is seen */
    OG_SPLIT_WARPS = 3, /* that make cells of patches */
    OG_LOST_WORDS = OG_BM > 64 ? 2 : 1, /* a thread's marks: a bit a row, columns apart */

    /* Registers of a thread, by what it does: of those that bring, split and write, of those that multiply,
     * of those that end tiles. */
    OG_BRING_REGISTERS = OG_CELLS ? 96 : OG_WINDOW_GROUPS == 2 ? 40 : 32,
    OG_MULTIPLY_REGISTERS = OG_TRAYS                ? 184
                            : OG_CELLS              ? 200
                            : OG_WINDOW_GROUPS == 2 ? 232
                                                    : 160,
    OG_END_REGISTERS = 104
};
static_assert(128 * (OG_BRING_REGISTERS + OG_WINDOW_GROUPS * OG_MULTIPLY_REGISTERS +
                     OG_TRAYS * OG_END_REGISTERS) <=
                  65536,
              "a multiprocessor has no more registers");
static_assert(OG_SHARED_BYTES == OG_WINDOW_SHARED, "the launch gives it");
static_assert(OG_TILE_D * OG_TILE_H * OG_TILE_W == OG_TILE_PLACES && OG_TILE_W % 16 == 0, "");

/* TMA takes addresses that are multiples of 16 alone. */
OG_FN bool og_redoes_all(const og_args &a)
{
    return !OG_COPIES_IMAGE && (uint64_t)a.image % 16 != 0;
}

/* ---- factors ------------------------------------------------------------------------------- */

/* The channel that is number i of a step's. */
OG_FN int og_channel_at(int i)
{
    return OG_SPREADS ? i % 8 / 2 + 4 * (i % 2 + i / 8 * 2) : i;
}

/* Filters go to the scratch, a row of k in this kernel's order each. */
OG_KERNEL(og_lay_filters, 256)
{
    const og_index number = (og_index)blockIdx.x * 256 + threadIdx.x;
    if (number >= a.split_rows * a.k_padded)
        return;
    const og_index row = number / a.k_padded, k = number - row * a.k_padded;
    const og_filter_row of = og_find_filter_row(a, row);
    const int steps = OG_TILE_PHASES > 1 ? og_steps_of(a, of.phase) : (int)OG_STEPS;
    const int chunk = (int)(k / (16 * steps)), step = (int)(k / 16 % steps);
    const int i = (int)(k % 16), slot = step / OG_TAP_STEPS * OG_STEP_TAPS + i / OG_STEP_CHANNELS;
    const int tap = og_find_tap(a, of, slot);
    const og_index channel = chunk * OG_PATCH_CHANNELS + step % OG_TAP_STEPS * OG_STEP_CHANNELS +
                             og_channel_at(i % OG_STEP_CHANNELS);
    float x = 0.0f;
    if (tap >= 0 && channel < a.channels)
        x = og_find_term<og_left0>(a, of.group, of.filter, channel * a.taps + tap);
    ((float *)a.x_copy)[number] = x;
}

OG_FN const og_element *og_x_row(const og_args &a, og_index row)
{
    return (const og_element *)a.x_copy + row * (int64_t)a.k_padded;
}

#if OG_COPIES_IMAGE
/* The image goes to the scratch: (batch, channels, depth, height, a line of whole fours). */
OG_KERNEL(og_lay_image, 256)
{
    const int64_t number = (int64_t)blockIdx.x * 256 + threadIdx.x;
    int64_t rest = number / a.image_line;
    const int64_t w = number - rest * a.image_line;
    const int64_t h = rest % a.image_height;
    rest /= a.image_height;
    const int64_t d = rest % a.image_depth;
    rest /= a.image_depth;
    const int64_t channel = rest % a.image_channels, b = rest / a.image_channels;
    if (b >= a.image_batch)
        return;
    ((float *)a.image_copy)[number] = w < a.image_width
                                          ? a.image[b * a.image_b + channel * a.image_c +
                                                    d * a.image_d + h * a.image_h + w * a.image_w]
                                          : 0.0f;
}
#endif

/* ---- tiles --------------------------------------------------------------------------------- */

/* Place i of a tile. */
struct og_window_place {
    int d, h, w;
};

OG_FN og_window_place og_find_place(int i)
{
    return {i / (OG_TILE_W * OG_TILE_H), i / OG_TILE_W % OG_TILE_H, i % OG_TILE_W};
}

/* The first of the two that a consumer holds; the other one is 8 further. */
OG_FN int og_first_place(int thread)
{
    return thread % OG_TILE_THREADS / 32 * 16 + thread % 32 / 4;
}

/* The number of a place among the columns of pass 0, which may be beyond its line; of rows that are
 * phases, of the first. */
OG_FN og_index og_find_place_column(const og_args &a, const og_window_tile &tile,
                                    const og_window_place &at)
{
    const og_index d = og_result_of<OG_PHASES_D>(tile.d + at.d, og_phase_d(tile.phase));
    const og_index h = og_result_of<OG_PHASES_H>(tile.h + at.h, og_phase_h(tile.phase));
    const og_index w = og_result_of<OG_STRIDE_W>(tile.w + at.w, og_phase_w(tile.phase));
    return (d * a.height + h) * a.line_pitch + w;
}

/* Which rows (bit i) of a thread's are there, of the place so far from `at` along W? */
OG_FN uint32_t og_find_rows_there(const og_args &a, const og_window_tile &tile,
                                  const og_window_place &at, int further, int thread)
{
    const int first = 2 * (thread % 4);
    const bool is_line =
        og_result_of<OG_PHASES_D>(tile.d + at.d, og_phase_d(tile.phase)) < a.depth &&
        og_result_of<OG_PHASES_H>(tile.h + at.h, og_phase_h(tile.phase)) < a.height;
    const og_index w = og_result_of<OG_STRIDE_W>(tile.w + at.w + further, og_phase_w(tile.phase)) +
                       first % OG_ROW_PHASES;
    const int pads = OG_ROW_PHASES > OG_STRIDE_W ? OG_STRIDE_W - first % OG_ROW_PHASES : 2;
    const uint32_t even = w < a.width && pads > 0 ? 0x55555555u : 0u;
    const uint32_t odd = w + (OG_ROW_PHASES > 1) < a.width && pads > 1 ? 0xaaaaaaaau : 0u;
    return is_line ? og_rows_there(og_count_rows(a) - tile.m - first) & (even | odd) : 0u;
}

#include "cuda/kernels/hopper_window_redo.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- rings --------------------------------------------------------------------------------- */

/* Shared memory of a block, and its barriers: a stage is full, a stage is empty. */
struct og_window_rings {
    char *memory;
    uint32_t x, patches, cells, pieces, table, scales, bounds;
    uint32_t x_full, x_empty, patch_full, patch_empty, piece_full, piece_empty;
    uint32_t cells_full, cells_empty;
    uint32_t tray_full, tray_empty; /* of each group */
    uint32_t begun; /* of each group: it has multiplied a tile */
    uint32_t order; /* of each group: it is its turn */
};

OG_FN og_window_rings og_start_window_rings(char *memory, uint32_t base)
{
    og_window_rings rings;
    rings.memory = memory;
    rings.x = base;
    rings.patches = base + OG_PATCHES_AT;
    rings.cells = base + OG_CELLS_AT;
    rings.pieces = base + OG_PIECES_AT;
    rings.table = base + OG_TABLE_AT;
    rings.scales = base + OG_SCALES_AT;
    rings.bounds = base + OG_BOUNDS_AT;
    rings.x_full = base + OG_RING_BARRIERS_AT;
    rings.x_empty = rings.x_full + 8 * OG_X_STAGES;
    rings.patch_full = rings.x_empty + 8 * OG_X_STAGES;
    rings.patch_empty = rings.patch_full + 8 * OG_RINGS * OG_PATCH_STAGES;
    rings.piece_full = rings.patch_empty + 8 * OG_RINGS * OG_PATCH_STAGES;
    rings.piece_empty = rings.piece_full + 8 * OG_WINDOW_GROUPS * OG_PIECES;
    rings.begun = rings.piece_empty + 8 * OG_WINDOW_GROUPS * OG_PIECES;
    rings.order = rings.begun + 8 * OG_ALTERNATES;
    rings.cells_full = rings.order + 16 * OG_ORDERS;
    rings.cells_empty = rings.cells_full + 8 * OG_CELLS;
    rings.tray_full = rings.cells_empty + 8 * OG_CELLS;
    rings.tray_empty = rings.tray_full + 8 * OG_WINDOW_GROUPS * OG_TRAYS;
    for (int i = 0; threadIdx.x == 0 && i < 2 * OG_WINDOW_GROUPS * OG_TRAYS; i++)
        og_barrier_init(rings.tray_full + 8 * i, 4); /* a group's warps; the enders' */
    for (int i = 0; threadIdx.x == 0 && i < 2 * OG_ORDERS; i++)
        og_barrier_init(rings.order + 8 * i, 4);
    for (int i = 0; threadIdx.x == 0 && i < OG_ALTERNATES; i++)
        og_barrier_init(rings.begun + 8 * i, OG_TILE_WARPS);
    for (int i = 0; threadIdx.x == 0 && i < OG_X_STAGES; i++) {
        og_barrier_init(rings.x_full + 8 * i, 1);
        og_barrier_init(rings.x_empty + 8 * i, OG_CONSUMERS / 32); /* warps that read */
    }
    for (int i = 0; threadIdx.x == 0 && i < OG_RINGS * OG_PATCH_STAGES; i++) {
        og_barrier_init(rings.patch_full + 8 * i, 1);
        og_barrier_init(rings.patch_empty + 8 * i, OG_CELLS ? OG_SPLIT_WARPS : OG_TILE_WARPS);
    }
    for (int i = 0; threadIdx.x == 0 && i < OG_CELLS; i++) {
        og_barrier_init(rings.cells_full + 8 * i, OG_SPLIT_WARPS);
        og_barrier_init(rings.cells_empty + 8 * i, OG_TILE_WARPS);
    }
    for (int i = 0; threadIdx.x == 0 && i < OG_WINDOW_GROUPS * OG_PIECES; i++) {
        og_barrier_init(rings.piece_full + 8 * i, 4); /* warps of a group */
        og_barrier_init(rings.piece_empty + 8 * i, 1);
    }
    return rings;
}

/* The ring of a group's patches. */
OG_FN void og_take_ring(og_window_rings &rings, int group)
{
    if (!OG_ALTERNATES)
        return;
    rings.patches += group * OG_PATCH_STAGES * OG_PATCH_STAGE;
    rings.patch_full += 8 * group * OG_PATCH_STAGES;
    rings.patch_empty += 8 * group * OG_PATCH_STAGES;
}

/* The first tile of a group, and how far it is to its next. */
OG_FN og_index og_first_tile(int group)
{
    return (og_index)blockIdx.x + (OG_ALTERNATES ? group * (og_index)gridDim.x : 0);
}

OG_FN og_index og_tile_step()
{
    return OG_RINGS * (og_index)gridDim.x;
}

/* Where the word of tap `part` of a step is in the table. Thread t of four has one tap of a step, or
 * of two both, or of four t / 2 and t / 2 + 2: the words of a thread are neighbours. */
OG_FN int og_find_tap_word(int step, int part)
{
    if (OG_STEP_TAPS == 1)
        return step;
    const int threads = OG_STEP_TAPS / 2; /* that have different taps */
    return part % threads * 2 * OG_STEPS + 2 * step + part / threads;
}

/* The table's words: bytes from where a place is in a patch to what the tap sees of the step's first
 * channel. */
OG_FN void og_fill_step_table(const og_args &a, uint32_t *table)
{
    const int slot_words = OG_CELLS ? 1 : OG_STEP_TAPS;
    for (int i = threadIdx.x; i < OG_TILE_PHASES * OG_TABLE_WORDS; i += OG_WINDOW_THREADS) {
        const int phase = i / OG_TABLE_WORDS, number = i % OG_TABLE_WORDS;
        const int step = number / slot_words, part = number % slot_words;
        const og_tap_slot slot = og_find_slot(
            a, phase, OG_CELLS ? number : step / OG_TAP_STEPS * OG_STEP_TAPS + part);
        const int d = (int)(og_back_d(a, og_phase_d(phase)) + slot.d * a.reach_d);
        const int h = (int)(og_back_h(a, og_phase_h(phase)) + slot.h * a.reach_h);
        const int w = (int)(og_back_w(a, og_phase_w(phase)) + slot.w * a.reach_w);
        const int place = (d * OG_PATCH_H + h) * OG_PATCH_W + w;
        table[phase * OG_TABLE_WORDS + (OG_CELLS ? number : og_find_tap_word(step, part))] =
            OG_CELLS ? (uint32_t)(OG_CELL_PITCH * place)
                     : (uint32_t)(4 * place +
                                  step % OG_TAP_STEPS * OG_STEP_CHANNELS * OG_PATCH_PITCH);
    }
}

/* The patch of chunk c of a tile, when its stage is empty. */
OG_FN void og_bring_patch(const og_args &a, const og_window_rings &rings,
                          const og_window_tile &tile, int c, og_ring_turn &turn)
{
    const int b = (int)(tile.base / a.groups);
    const int first = (int)((tile.base - b * a.groups) * a.channels);
    og_barrier_wait(rings.patch_empty + 8 * turn.stage, turn.phase);
    og_barrier_expect(rings.patch_full + 8 * turn.stage, OG_PATCH_BYTES);
    og_copy_patch(rings.patches + turn.stage * OG_PATCH_STAGE, &a.image_map,
                  tile.w * OG_STEP_W + og_from_w(a, og_phase_w(tile.phase)),
                  tile.h * OG_STEP_H + og_from_h(a, og_phase_h(tile.phase)),
                  tile.d * OG_STEP_D + og_from_d(a, og_phase_d(tile.phase)),
                  first + c * OG_PATCH_CHANNELS, b, rings.patch_full + 8 * turn.stage);
    og_advance<OG_PATCH_STAGES>(turn);
}

OG_FN void og_produce_patches(const og_args &a, og_window_rings rings, int group)
{
    og_take_ring(rings, group);
    og_ring_turn turn = {0, 1};
    og_fetch_map(&a.image_map);
    if (OG_COPIES_IMAGE)
        og_await_launch();
    for (og_index i = og_first_tile(group); i < a.items; i += og_tile_step()) {
        const og_window_tile tile = og_find_window_tile(a, i);
        for (int c = 0; c < (int)a.chunks; c++)
            og_bring_patch(a, rings, tile, c, turn);
    }
}

OG_FN void og_produce_filters(const og_args &a, const og_window_rings &rings)
{
    og_ring_turn turn = {0, 1};
    og_fetch_map(&a.x_map);
    og_await_launch(); /* og_split */
    for (og_index i = blockIdx.x; i < (OG_KEEPS ? (og_index)blockIdx.x + 1 : a.items);
         i += gridDim.x) {
        const og_window_tile tile = og_find_window_tile(a, i);
        const int plane = 2 * og_find_plane(a, tile), end = 64 * og_count_blocks(a, tile.phase);
        for (int k = 0; k < end; k += 64) {
            og_barrier_wait(rings.x_empty + 8 * turn.stage, turn.phase);
            og_barrier_expect(rings.x_full + 8 * turn.stage, OG_X_BOX_BYTES);
            og_copy_box(rings.x + turn.stage * OG_X_BOX_BYTES, &a.x_map, k, (int)tile.m, plane,
                        rings.x_full + 8 * turn.stage, OG_READ_OFTEN);
            og_advance<OG_X_STAGES>(turn);
        }
    }
}

/* ---- consumers ------------------------------------------------------------------------------- */

/* What place i of a tile is in its patch, as far as tap 0 does not move it. */
OG_FN int og_find_patch_place(int i)
{
    const og_window_place at = og_find_place(i);
    return (at.d * OG_STEP_D * OG_PATCH_H + at.h * OG_STEP_H) * OG_PATCH_W + at.w * OG_STEP_W;
}

struct og_window_consumer {
    og_window_rings rings;
    uint32_t at;    /* where the thread reads in a patch, from its beginning */
    uint32_t table; /* its words */
    int block;      /* of the patch, the next to be read */
#if OG_CELLS
    uint32_t word; /* where that of its first place's cell is, from the beginning of the cells */
    int slot;      /* the next tap to be read, */
    uint32_t tap;  /* and how far it moves a place */
#endif
    int blocks;     /* of a patch, or taps that see its cells, if phases of tiles differ in that */
    og_ring_turn patch, x;
    uint32_t turn;     /* parity of the phase in which it is the group's next */
    og_findings found; /* in places of the tile that is read */
};

OG_FN og_window_consumer og_start_window_consumer(const og_window_rings &rings, int thread)
{
    og_window_consumer c;
    const int place = og_find_patch_place(og_first_place(thread));
    c.rings = rings;
    og_take_ring(c.rings, thread / 128);
#if OG_CELLS /* lane 16 h + i of a warp gives rows of matrices: 8 k of place i */
    c.at = og_find_patch_place(thread / 32 * 16 + thread % 16) * OG_CELL_PITCH + thread % 32 / 16 * 16;
    c.word = place * OG_CELL_PITCH + 4 * OG_PATCH_CHANNELS;
    c.slot = 0;
#else
    c.at = 4 * place + og_channel_at(2 * (thread % 4) % OG_STEP_CHANNELS) * OG_PATCH_PITCH;
#endif
    c.table = rings.table + 4 * og_find_tap_word(0, 2 * (thread % 4) / OG_STEP_CHANNELS);
    c.block = c.blocks = 0;
    c.patch = {0, 0};
    c.x = {0, 0};
    c.turn = thread < 128; /* the first group begins */
    c.found = {0, 0};
    return c;
}

/* What is read next is of tile i, if there is such a one. */
OG_FN void og_enter_tile(const og_args &a, og_window_consumer &c, int thread, og_index i)
{
    if (OG_TILE_PHASES == 1 || i >= a.items)
        return;
    const int phase = og_find_window_tile(a, i).phase;
    c.blocks = OG_CELLS ? og_steps_of(a, phase) / 2 : og_chunk_blocks(a, phase);
    c.table = c.rings.table + 4 * (phase * OG_TABLE_WORDS +
                                   og_find_tap_word(0, 2 * (thread % 4) / OG_STEP_CHANNELS));
}

#include "cuda/kernels/hopper_window_stores.cuh"
#include "cuda/kernels/hopper_window_lost.cuh"
#if OG_TRAYS
#include "cuda/kernels/hopper_window_trays.cuh"
#else
#include "cuda/kernels/hopper_window_ends.cuh"
#endif

/* ---- the kernel ---------------------------------------------------------------------------- */

/* What becomes of a tile's sums. found: in its places. */
OG_FN void og_end_window_tile(const og_args &a, og_index i, const og_window_rings &rings,
                              int thread, const og_findings &found, og_held &sum,
                              og_window_ends &ends)
{
#if OG_TRAYS
    og_leave_tile(a, i, rings, thread, found, sum, ends);
#else
    og_end_places_tile(a, i, rings, thread, found, sum, ends);
#endif
}

OG_FN void og_clear_sums(og_held &sum)
{
#pragma unroll
    for (int i = 0; i < OG_HELD; i++)
        sum[i] = 0.0f;
}

#if OG_CELLS
#include "cuda/kernels/hopper_window_cells.cuh"
#else
#include "cuda/kernels/hopper_window_places.cuh"
#endif

extern "C" __global__ void __launch_bounds__(OG_WINDOW_THREADS, 1)
    og_multiply_windows(const __grid_constant__ og_args a)
{
    extern __shared__ __align__(1024) char og_shared[];
    const uint32_t base = (uint32_t)__cvta_generic_to_shared(og_shared);
    if (base % 1024)
        __trap(); /* the swizzle is by address */
    const og_window_rings rings = og_start_window_rings(og_shared, base);
    og_fill_step_table(a, (uint32_t *)(og_shared + OG_TABLE_AT));
    og_start_pieces(rings);
    og_publish_barriers();
    __syncthreads();
    if (threadIdx.x < 128) {
        og_give_registers<OG_BRING_REGISTERS>();
#if OG_CELLS
        if (threadIdx.x >= 32)
            og_split_patches(a, rings, threadIdx.x - 32);
        else if (threadIdx.x == 0)
            og_produce_filters(a, rings);
#else
        if (threadIdx.x == 0)
            og_produce_patches(a, rings, 0);
        else if (threadIdx.x == 32)
            og_produce_filters(a, rings);
        else if (OG_ALTERNATES && threadIdx.x == 64)
            og_produce_patches(a, rings, 1);
        else if (OG_ALTERNATES > 2 && threadIdx.x == 96)
            og_produce_patches(a, rings, 2);
        else if (OG_PIECES && threadIdx.x >= 64)
            og_store_tiles(a, rings, threadIdx.x / 32 - 2);
#endif
#if OG_TRAYS
    } else if (threadIdx.x >= 128 + OG_CONSUMERS) {
        og_give_registers<OG_END_REGISTERS>();
        og_end_trays(a, rings, threadIdx.x - 128 - OG_CONSUMERS);
#endif
    } else {
        og_take_registers<OG_MULTIPLY_REGISTERS>();
#if OG_CELLS
        og_consume_cells(a, rings);
#else
        og_consume_places(a, rings);
#endif
    }
}

#else /* where there are no such instructions, the kernel is never asked */

OG_KERNEL(og_multiply_windows, OG_WINDOW_THREADS)
{
    __trap();
}

#endif
