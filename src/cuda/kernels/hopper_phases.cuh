/* SPDX-License-Identifier: MIT
 *
 * hopper_phases.cuh - what a tile of hopper_windows.cuh has: rows, places, taps; and the terms of a
 * result, which og_redo_windows adds up.
 *
 * Of a transposed stride, results that are as far apart as the stride meet the same taps: a *phase* of
 * a dim. Phases along depth and height are tiles of their own, with their own taps and patches. Those
 * along a line are rows of the product, OG_ROW_PHASES of each filter, so that a thread has neighbours
 * of the result: a place has the taps that any of them meets, and a filter is 0 where its phase meets
 * none. (Or they are tiles, too: then a place is every other result of a line.) Results of such zeros
 * are those without them, as long as what is multiplied with them is finite; where it is not, the
 * sum is not, and is found again by its own terms.
 *
 * PARAMETERS
 *   OG_GATHERS      1: there is a stride
 *   OG_PHASES_D .. OG_PHASES_W   phases of tiles
 *   OG_STRIDE_W     results of a line from a place to the next
 *   OG_ROW_PHASES   phases that are rows, padded to 2, 4 or 8; or 1
 *   OG_EMPTY_ROWS   bit r: row phase r is padding, or meets no tap: its sums are 0
 *   OG_EMPTY_TILES  1: so do phases of tiles
 * and functions of a phase of tiles: og_from_d() .. og_from_w(), where the patch of place 0 begins;
 * og_back_d() .., what the first tap sees is so far into it; og_slots_d() .., the taps of a place;
 * og_steps_of(), the steps of a chunk. Of a phase of results, where there is a stride:
 * og_first_tap_d() .., og_taps_of_d() .. and og_start_d() .., og_window_phase of cuda_window_tile.h.
 */
#include "cuda/kernels/seen.cuh"

enum { OG_TILE_PHASES = OG_PHASES_D * OG_PHASES_H * OG_PHASES_W };

/* Of phase number `phase` of tiles, those along each dim. */
OG_FN int og_phase_d(int phase)
{
    return phase / (OG_PHASES_H * OG_PHASES_W);
}
OG_FN int og_phase_h(int phase)
{
    return phase / OG_PHASES_W % OG_PHASES_H;
}
OG_FN int og_phase_w(int phase)
{
    return phase % OG_PHASES_W;
}

/* The result that place i of a phase is. */
template <int stride> OG_FN og_index og_result_of(int i, int phase)
{
    return (og_index)i * stride + phase;
}

/* Rows of a product: filters, or phases of filters. */
OG_FN og_index og_count_rows(const og_args &a)
{
    return a.m * OG_ROW_PHASES;
}

/* Blocks of 64 k of a chunk, and of a tile. */
OG_FN int og_chunk_blocks(const og_args &a, int phase)
{
    return og_steps_of(a, phase) / 4;
}
OG_FN int og_count_blocks(const og_args &a, int phase)
{
    return ((int)a.chunks * og_steps_of(a, phase) + 3) / 4;
}

/* ---- tiles --------------------------------------------------------------------------------- */

/* Its first row and place, of product `base`; its phase. */
struct og_window_tile {
    og_index base, m;
    int d, h, w, phase;
};

/* Tiles of one phase come after those of another, a.segment of each: blocks take turns, and each has
 * as many of every phase, for these take different time. What segments see stays in L2. */
OG_FN og_window_tile og_find_window_tile(const og_args &a, og_index i)
{
    og_window_tile tile;
    tile.phase = 0;
#if OG_GATHERS
    if (OG_TILE_PHASES > 1) {
        const og_index before = i / (a.segment * OG_TILE_PHASES) * a.segment;
        const og_index left = a.items / OG_TILE_PHASES - before;
        const og_index length = left < a.segment ? left : a.segment;
        i -= before * OG_TILE_PHASES;
        tile.phase = (int)(i / length);
        i = before + (i - tile.phase * length);
    }
#endif
    og_index rest = i / a.m_tiles;
    tile.m = (i - rest * a.m_tiles) * OG_BM;
    i = rest / a.tiles_w;
    tile.w = (int)(rest - i * a.tiles_w) * OG_TILE_W;
    rest = i / a.tiles_h;
    tile.h = (int)(i - rest * a.tiles_h) * OG_TILE_H;
    tile.base = rest / a.tiles_d;
    tile.d = (int)(rest - tile.base * a.tiles_d) * OG_TILE_D;
    return tile;
}

/* Where the tile's filters are, among those of all groups and phases. */
OG_FN int og_find_plane(const og_args &a, const og_window_tile &tile)
{
    return (int)(tile.base % a.groups) * OG_TILE_PHASES + tile.phase;
}

/* ---- taps ---------------------------------------------------------------------------------- */

/* Slot number i of a tile's taps. Those beyond the last are padding, and see what the first does. */
struct og_tap_slot {
    int d, h, w;
    bool is_there;
};

OG_FN og_tap_slot og_find_slot(const og_args &a, int phase, int i)
{
    const int w = og_slots_w(a, og_phase_w(phase)), h = og_slots_h(a, og_phase_h(phase));
    const bool is_there = i < w * h * og_slots_d(a, og_phase_d(phase));
    i = is_there ? i : 0;
    return {i / (w * h), i / w % h, i % w, is_there};
}

/* A row of filters as they are laid out: every group has its rows of every phase of tiles. */
struct og_filter_row {
    og_index group, filter;
    int phase, row_phase;
};

OG_FN og_filter_row og_find_filter_row(const og_args &a, og_index row)
{
    const og_index plane = row / og_count_rows(a), rest = row - plane * og_count_rows(a);
    return {plane / OG_TILE_PHASES, rest / OG_ROW_PHASES, (int)(plane % OG_TILE_PHASES),
            (int)(rest % OG_ROW_PHASES)};
}

/* Does a phase of tiles meet no tap? Its filters are 0, and so are its sums. */
OG_FN bool og_meets_nothing(const og_args &a, int phase)
{
#if OG_EMPTY_TILES
    return !og_taps_of_d(a, og_phase_d(phase)) || !og_taps_of_h(a, og_phase_h(phase)) ||
           (OG_PHASES_W > 1 && !og_taps_of_w(a, og_phase_w(phase)));
#else
    return false;
#endif
}

/* The tap of a filter's row that is slot number i, or -1: there is none. */
OG_FN int og_find_tap(const og_args &a, const og_filter_row &of, int i)
{
    const og_tap_slot slot = og_find_slot(a, of.phase, i);
    if (!slot.is_there)
        return -1;
#if OG_GATHERS
    const int phase_w = og_phase_w(of.phase) + of.row_phase;
    int w = slot.w;
    if (OG_EMPTY_ROWS >> of.row_phase & 1 || og_meets_nothing(a, of.phase))
        return -1;
    if (OG_ROW_PHASES > 1) { /* slots see one element after the other */
        const int further = og_start_w(a, phase_w) - (int)a.top_w + slot.w;
        const int reach = a.gather_w ? -(int)a.gather_w : 1;
        w = further % reach ? -1 : further / reach;
        if (further < 0 || w >= og_taps_of_w(a, phase_w))
            w = -1;
    }
    if (w < 0)
        return -1;
    const int d = og_first_tap_d(a, og_phase_d(of.phase)) + slot.d * (int)a.tap_step_d;
    const int h = og_first_tap_h(a, og_phase_h(of.phase)) + slot.h * (int)a.tap_step_h;
    return (d * (int)a.all_taps_h + h) * (int)a.all_taps_w + og_first_tap_w(a, phase_w) +
           w * (int)a.tap_step_w;
#else
    return i;
#endif
}

/* ---- terms --------------------------------------------------------------------------------- */

/* The terms of the result of a filter in column n, in plan.h's order: k of them. */
struct og_terms {
    og_index base, filter, n, k;
#if OG_GATHERS
    int d, h, w;                   /* place */
    int phase_d, phase_h, phase_w; /* of results */
#endif
};

/* Of a row of a tile; n: the column of the first phase of a line. */
OG_FN og_terms og_find_terms(const og_args &a, const og_window_tile &tile, og_index row, og_index n)
{
    og_terms to;
    to.base = tile.base;
    to.filter = row / OG_ROW_PHASES;
    to.n = n + row % OG_ROW_PHASES;
#if OG_GATHERS
    const og_index line = to.n / a.line_pitch, w = to.n - line * a.line_pitch;
    const og_index d = line / a.height, h = line - d * a.height;
    to.d = (int)(d / OG_PHASES_D);
    to.h = (int)(h / OG_PHASES_H);
    to.w = (int)(w / OG_STRIDE_W);
    to.phase_d = (int)(d % OG_PHASES_D);
    to.phase_h = (int)(h % OG_PHASES_H);
    to.phase_w = (int)(w % OG_STRIDE_W);
    to.k = a.channels * og_taps_of_d(a, to.phase_d) * og_taps_of_h(a, to.phase_h) *
           og_taps_of_w(a, to.phase_w);
#else
    to.k = a.k;
#endif
    return to;
}

#if OG_GATHERS
/* Term k: its channel, and number along each dim. */
struct og_term_place {
    og_index channel;
    int d, h, w;
};

OG_FN og_term_place og_find_numbers(const og_args &a, const og_terms &of, og_index k)
{
    const og_index w = og_taps_of_w(a, of.phase_w), h = og_taps_of_h(a, of.phase_h);
    const og_index d = og_taps_of_d(a, of.phase_d);
    return {k / (w * h * d), (int)(k / (w * h) % d), (int)(k / w % h), (int)(k % w)};
}

OG_FN float og_find_left(const og_args &a, const og_terms &of, og_index k)
{
    const og_term_place t = og_find_numbers(a, of, k);
    const int d = og_first_tap_d(a, of.phase_d) + t.d * (int)a.tap_step_d;
    const int h = og_first_tap_h(a, of.phase_h) + t.h * (int)a.tap_step_h;
    const int w = og_first_tap_w(a, of.phase_w) + t.w * (int)a.tap_step_w;
    return og_find_term<og_left0>(a, of.base, of.filter,
                                  t.channel * a.taps +
                                      (d * (int)a.all_taps_h + h) * (int)a.all_taps_w + w);
}

OG_FN float og_find_right(const og_args &a, const og_terms &of, og_index k)
{
    const og_term_place t = og_find_numbers(a, of, k);
    const int d = og_start_d(a, of.phase_d) + of.d * OG_STEP_D + t.d * (int)a.gather_d;
    const int h = og_start_h(a, of.phase_h) + of.h * OG_STEP_H + t.h * (int)a.gather_h;
    const int w = og_start_w(a, of.phase_w) + of.w * OG_STEP_W + t.w * (int)a.gather_w;
    const bool is_seen =
        d >= 0 && d < a.image_depth && h >= 0 && h < a.image_height && w >= 0 && w < a.image_width;
    const int64_t b = of.base / a.groups, channel = of.base % a.groups * a.channels + t.channel;
    return is_seen ? a.image[b * a.image_b + channel * a.image_c + d * (int64_t)a.image_d +
                             h * (int64_t)a.image_h + w * (int64_t)a.image_w]
                   : 0.0f;
}
#else
OG_FN float og_find_left(const og_args &a, const og_terms &of, og_index k)
{
    return og_find_term<og_left0>(a, of.base, of.filter, k);
}

OG_FN float og_find_right(const og_args &a, const og_terms &of, og_index k)
{
    return og_find_term<og_right0>(a, of.base, of.n, k);
}
#endif
