/* SPDX-License-Identifier: MIT
 *
 * hopper_window_trays.cuh - the end of a tile of a convolution on Hopper's tensor cores where other
 * threads do it than those that multiply: these leave their sums on a *tray* in shared memory and go on
 * with the next tile, and a group of warps of its own, the enders, takes them from there through pass 0
 * to memory. Part of hopper_windows.cuh, which includes it.
 *
 * A tray has what a group of warps has of a tile: OG_BM rows of 64 places. A sum that may have lost too
 * much is NaN there, as no other is; it is left to og_redo_windows. A word of each warp, beside the first
 * row, says whether there are such.
 *
 * An ender has OG_V neighbours of a line, of one filter after the other; its warp has the neighbours of
 * these, so that what is read and written are long pieces of lines.
 */

enum {
    OG_TRAY_EACH = OG_ROW_PHASES > 1 ? OG_STRIDE_W : 1,      /* results of a filter and a place */
    OG_TRAY_VECTORS = OG_GROUP_PLACES * OG_TRAY_EACH / OG_V, /* of a filter */
    OG_TRAY_LANES = OG_TRAY_VECTORS < 32 ? OG_TRAY_VECTORS : 32,
    OG_TRAY_SLOTS = OG_TRAY_VECTORS / OG_TRAY_LANES, /* vectors of a filter that a thread has */
    OG_TRAY_FILTERS = OG_BM / OG_ROW_PHASES,
    OG_TRAY_APART = 4 * (32 / OG_TRAY_LANES),      /* filters from a thread's to its next */
    OG_TRAY_ALL = OG_TRAY_FILTERS / OG_TRAY_APART, /* filters of a thread */
    /* Vectors that a thread computes at once: 8 results, or 4 where pass 0 has many words of offsets beside the
     * registers that there are (those of five operands with 64 bits spilled). */
    OG_TRAY_MOST = (OG_OPERANDS * sizeof(og_index) > 32 ? 4 : 8) / OG_V,
    OG_TRAY_ROWS = OG_TRAY_ALL < OG_TRAY_MOST ? OG_TRAY_ALL : OG_TRAY_MOST
};
static_assert(OG_TRAY_SLOTS * OG_TRAY_LANES == OG_TRAY_VECTORS && OG_TRAY_ALL > 0 &&
                  OG_TRAY_ALL % OG_TRAY_ROWS == 0,
              "every vector has a thread");

OG_FN float *og_find_tray(const og_window_rings &rings, int group)
{
    return (float *)(rings.memory + OG_TRAYS_AT + group * OG_TRAY_BYTES);
}

/* ---- those that multiply ----------------------------------------------------------------------- */

/* Puts a thread's sums on its group's tray, scaled as their rows are. */
OG_FN void og_fill_tray(const og_window_rings &rings, int thread, uint32_t scales, bool lacks,
                        const uint32_t (&lost)[2], const og_held &sum)
{
    const int place = thread / 32 % 4 * 16 + thread % 32 / 4;
    float *tray = og_find_tray(rings, thread / 128);
    float *to = tray + 2 * (thread % 4) * OG_TRAY_PITCH + place;
#pragma unroll
    for (int i = 0; i < OG_BM / 4; i += 2) {
        const og_four two = og_load_shared(scales + 8 * og_row_of(i));
#pragma unroll
        for (int j = 0; j < 4; j++) /* rows i and i + 1 of place j / 2 */
            to[og_row_of(i + j % 2) * OG_TRAY_PITCH + j / 2 * 8] =
                sum[2 * i + j] * two.e[j % 2 * 2];
    }
    if (lacks)
#pragma unroll
        for (int i = 0; i < OG_BM / 4; i++)
#pragma unroll
            for (int v = 0; v < 2; v++)
                if (lost[v] >> i & 1)
                    to[og_row_of(i) * OG_TRAY_PITCH + 8 * v] = OG_NAN_F32;
    if (thread % 32 == 0)
        tray[OG_GROUP_PLACES + thread / 32 % 4] = lacks ? 1.0f : 0.0f;
}

/* What has to be known of tile i to scale its sums: its first row, product and phase. Where these are the
 * same for all tiles, as mostly, nothing is divided, and the tile's place is not found. */
OG_FN og_window_tile og_find_tile_rows(const og_args &a, og_index i)
{
    if (OG_TILE_PHASES == 1 && a.groups == 1 && a.m_tiles == 1)
        return {0, 0, 0, 0, 0, 0};
    return og_find_window_tile(a, i);
}

/* The sums of tile i go to a tray. found: in its places. Sums of places that are not there may be marked,
 * too: og_redo_windows computes only what is there. */
OG_FN void og_leave_tile(const og_args &a, og_index i, const og_window_rings &rings, int thread,
                         const og_findings &found, og_held &sum, og_window_ends &ends)
{
    const og_window_tile tile = og_find_tile_rows(a, i);
    const uint32_t scales = rings.scales + 8 * (thread / 128 * OG_BM + 2 * (thread % 4));
    const og_index rows = og_count_rows(a);
    const uint32_t all = og_rows_there(rows - tile.m - 2 * (thread % 4)), there[2] = {all, all};
    uint32_t lost[2] = {0, 0};
    og_bring_scales(a, og_find_plane(a, tile) * rows + tile.m, rows - tile.m, rings, thread,
                    ends.scales_of);
    og_clear_empty(a, tile.phase, thread, sum);
    if (!og_meets_nothing(a, tile.phase))
        og_find_lost(a, rings, thread, scales, found, sum, there, lost);
    const bool lacks = og_mark(a, i, thread, lost);
    og_barrier_wait(rings.tray_empty + 8 * (thread / 128), ends.phase ^ 1);
    ends.phase ^= 1;
    og_fill_tray(rings, thread, scales, lacks, lost, sum);
    og_release_stage(rings.tray_full + 8 * (thread / 128));
}

/* ---- enders -------------------------------------------------------------------------------------- */

/* Vectors of a thread, of the same place of OG_TRAY_ROWS filters. */
struct og_tray_vectors {
    og_index m, n; /* the first filter, the column */
    og_span span;  /* the results that are there */
    og_offsets product, column;
    og_kept kept[1];
    og_vector_sums sums[OG_TRAY_ROWS];
};

/* The same for finish.cuh: all of it, or element j of every vector, where that is there. */
template <bool is_whole> struct og_tray_part {
    enum { rows = OG_TRAY_ROWS, vectors = 1, apart = 0 };
    static const bool whole = is_whole;

    const og_tray_vectors &of;
    const og_kept (&kept)[1];
    og_index n;
    int element;

    OG_FN og_offsets find(const og_tray_part &f, const og_args &a, int r)
    {
        og_offsets to = f.of.product;
        const og_index row = f.of.m + r * OG_TRAY_APART;
        og_step_filters(a, whole || row < a.m ? row : a.m - 1, to);
        if (!OG_LINES)
            og_step_row(a, f.n, to);
        return to;
    }
    OG_FN og_offsets column(const og_tray_part &f, const og_args &, int)
    {
        return f.of.column;
    }
    OG_FN og_span span(const og_tray_part &f, const og_args &a, int r, int)
    {
        const int j = f.element;
        if (whole)
            return {0, OG_V};
        const bool is_there = f.of.m + r * OG_TRAY_APART < a.m && j >= f.of.span.begin &&
                              j < f.of.span.end && f.of.sums[r].e[j] == f.of.sums[r].e[j];
        return {j, j + is_there};
    }
    OG_FN float sum(const og_tray_part &f, int, int r, int, int j)
    {
        return f.of.sums[r].e[j];
    }
};

/* The sums of OG_V results of a filter of the tray, from number `result` of them on. */
OG_FN og_vector_sums og_take_sums(const float *tray, int filter, int result)
{
    og_vector_sums to;
    const float *row = tray + filter * OG_ROW_PHASES * OG_TRAY_PITCH;
    if (OG_TRAY_EACH == 1)
        return *(const og_vector_sums *)(row + result);
#pragma unroll
    for (int j = 0; j < OG_V; j++)
        to.e[j] = row[(result + j) % OG_TRAY_EACH * OG_TRAY_PITCH + (result + j) / OG_TRAY_EACH];
    return to;
}

/* Are the vectors of a column, of any filter, where one load or store takes each? */
OG_FN bool og_are_aligned(const og_args &a, const og_offsets &at)
{
    return OG_V == 1 || (og_pass0::is_aligned(a, at) && og_loads0::is_aligned(a, at) &&
                         og_kept::is_aligned(a, at));
}

/* One element after the other: no registers have an index at run time. */
OG_FN void og_end_elements(const og_args &a, const og_tray_vectors &v)
{
#pragma unroll
    for (int j = 0; j < OG_V; j++)
        og_finish_fragment(a, og_tray_part<false>{v, v.kept, v.n, j});
}

/* Pass 0 on the thread's results of all filters, from number `result` on. */
OG_FN void og_end_results(const og_args &a, const og_window_tile &tile, const float *tray,
                          int group, int filter, int result, bool lacks)
{
    const og_window_place place = og_find_place(group * OG_GROUP_PLACES + result / OG_TRAY_EACH);
    const og_index d = og_result_of<OG_PHASES_D>(tile.d + place.d, og_phase_d(tile.phase));
    const og_index h = og_result_of<OG_PHASES_H>(tile.h + place.h, og_phase_h(tile.phase));
    const og_index w =
        og_result_of<OG_STRIDE_W>(tile.w + place.w, og_phase_w(tile.phase)) + result % OG_TRAY_EACH;
    og_tray_vectors v;
    v.n = (d * a.height + h) * a.line_pitch + w;
    v.span = og_span_of(w, d < a.depth && h < a.height ? a.width : 0);
    if (v.span.end <= 0)
        return;
    v.product = v.column = og_start();
    og_seek_product(a, tile.base, v.product);
    og_step_row(a, og_clamp_column(a, v.n), v.column);
    og_load_kept<0, false>(a, v.n, v.kept);
    v.m = tile.m / OG_ROW_PHASES + filter;
    const bool is_quick = !lacks && og_is_full(v.span) &&
                          tile.m / OG_ROW_PHASES + OG_TRAY_FILTERS <= a.m &&
                          og_are_aligned(a, v.column);
#pragma unroll 1
    for (int i = 0; i < OG_TRAY_ALL; i += OG_TRAY_ROWS) {
#pragma unroll
        for (int r = 0; r < OG_TRAY_ROWS; r++)
            v.sums[r] = og_take_sums(tray, filter + (i + r) * OG_TRAY_APART, result);
        if (is_quick)
            og_finish_fragment(a, og_tray_part<true>{v, v.kept, v.n, 0});
        else
            og_end_elements(a, v);
        v.m += OG_TRAY_ROWS * OG_TRAY_APART;
    }
}

/* All tiles of the block. */
OG_FN void og_end_trays(const og_args &a, const og_window_rings &rings, int thread)
{
    const int lane = thread % 32;
    const int filter = thread / 32 * (32 / OG_TRAY_LANES) + lane / OG_TRAY_LANES;
    uint32_t phase = 0;
    og_await_launch(); /* what pass 0 touches is nobody else's any more */
    for (og_index i = blockIdx.x; i < a.items; i += gridDim.x) {
        const og_window_tile tile = og_find_window_tile(a, i);
#pragma unroll 1
        for (int group = 0; group < OG_WINDOW_GROUPS; group++) {
            const float *tray = og_find_tray(rings, group);
            og_barrier_wait(rings.tray_full + 8 * group, phase);
            const bool lacks = tray[OG_GROUP_PLACES] + tray[OG_GROUP_PLACES + 1] +
                                   tray[OG_GROUP_PLACES + 2] + tray[OG_GROUP_PLACES + 3] !=
                               0.0f;
#pragma unroll 1
            for (int slot = 0; slot < OG_TRAY_SLOTS; slot++)
                og_end_results(a, tile, tray, group, filter,
                               (slot * 32 + lane % OG_TRAY_LANES) * OG_V, lacks);
            og_release_stage(rings.tray_empty + 8 * group);
        }
        phase ^= 1;
    }
}
