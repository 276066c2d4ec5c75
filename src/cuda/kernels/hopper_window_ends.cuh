/* SPDX-License-Identifier: MIT
 *
 * hopper_window_ends.cuh - the end of a tile of a convolution on Hopper's tensor cores, by the threads
 * that have its sums: pass 0 on those that are not lost. Part of hopper_windows.cuh, which includes it.
 */

enum {
    OG_PAIRED = OG_ROW_PHASES > 1, /* a thread's rows, two by two, are neighbours of a line */
    OG_PART_VECTORS = OG_PAIRED ? 4 / OG_V : 2
};

/* Columns from a thread's first to that of vector v. */
OG_FN constexpr int og_vector_at(int v)
{
    return OG_PAIRED ? v * OG_V / 2 * 8 * OG_STRIDE_W + v * OG_V % 2 : v * 8 * OG_STRIDE_W;
}

/* A thread's rows and its two places. */
struct og_places {
    og_index m, n;
    uint32_t scales;   /* where those of its rows are, in shared memory */
    uint32_t skips[2]; /* of either place: rows (bit i) that are not there, or lost */
    og_offsets product, columns[OG_PART_VECTORS];
};

/* The first four rows of a thread's, for finish.cuh: two places, 8 apart; or of two filters both
 * phases of the two. More at once would have to wait in memory: products are under way meanwhile. */
template <bool is_whole> struct og_places_part {
    enum { rows = OG_PAIRED ? 2 : 4, vectors = OG_PART_VECTORS, apart = 8 * OG_STRIDE_W };
    static const bool whole = is_whole;

    const og_held &sums;
    const og_kept (&kept)[OG_PART_VECTORS];
    og_places at;
    og_index n;
    float scales[4];

    OG_FN og_offsets find(const og_places_part &f, const og_args &a, int r)
    {
        og_offsets to = f.at.product;
        const og_index row = (f.at.m + (OG_PAIRED ? 8 * r : og_row_of(r))) / OG_ROW_PHASES;
        og_step_filters(a, whole || row < a.m ? row : a.m - 1, to); /* a row's own is read anyway */
        if (!OG_LINES)
            og_step_row(a, f.n, to);
        return to;
    }
    OG_FN og_offsets column(const og_places_part &f, const og_args &, int v)
    {
        return f.at.columns[v];
    }
    OG_FN og_span span(const og_places_part &f, const og_args &, int r, int v)
    {
        if (whole)
            return {0, OG_V};
        if (!OG_PAIRED)
            return {0, !(f.at.skips[v] >> r & 1)};
        const uint32_t skips = f.at.skips[v * OG_V / 2] >> (2 * r + v * OG_V % 2);
        return OG_V == 2 ? og_span{(int)(skips & 1), skips & 2 ? 1 : 2} : og_span{0, !(skips & 1)};
    }
    OG_FN float sum(const og_places_part &f, int, int r, int v, int j)
    {
        const int e = v * OG_V + j; /* of the two places' */
        return OG_PAIRED ? f.sums[4 * r + e] * f.scales[2 * r + e % 2]
                         : f.sums[r / 2 * 4 + 2 * v + r % 2] * f.scales[r];
    }
};

/* Pass 0 on all of a thread's rows, four after four: sums move on. What the next four read is on its
 * way meanwhile, but where a loop would have to keep it beside costly functions. */
template <bool whole>
OG_FN void og_finish_places(const og_args &a, const og_window_rings &rings, og_places &at,
                            og_held &sum)
{
    typedef og_places_part<whole> part;
    const int batches = OG_BM / 16;
    const bool is_ahead = OG_END_UNROLL > 1;
    og_kept kept[OG_PART_VECTORS];
#pragma unroll
    for (int v = 0; v < OG_PART_VECTORS; v++) {
        og_kept one[1];
        og_load_kept<1, whole>(a, at.n + og_vector_at(v), one);
        kept[v] = one[0];
    }
    og_reads<part> reads = og_read(a, part{sum, kept, at, at.n});
    const uint32_t phase = og_take_phase(rings, og_thread() - 128);
#pragma unroll OG_END_UNROLL
    for (int batch = 0; batch < batches; batch++) {
        part f = {sum, kept, at, at.n};
#pragma unroll
        for (int r = 0; r < 4; r++)
            f.scales[r] = og_scale_of(at.scales, r).undo;
        at.m += 16;
        at.scales += 16 * 8;
        at.skips[0] >>= 4;
        at.skips[1] >>= 4;
        const og_reads<part> now = reads;
        if (is_ahead && batch + 1 < batches)
            reads = og_read(a, part{sum, kept, at, at.n});
        float *piece = OG_PIECES ? og_take_piece(rings, phase, og_thread() - 128, batch) : 0;
        if (OG_PIECES && whole)
            og_stage_fragment(a, f, now, piece);
        else
            og_finish_fragment(a, f, now);
        if (OG_PIECES)
            og_hand_piece(rings, phase, og_thread() - 128, batch, whole);
        og_pin_memory();
        if (!is_ahead && batch + 1 < batches)
            reads = og_read(a, part{sum, kept, at, at.n});
#pragma unroll
        for (int i = 0; i + 8 < OG_HELD; i++)
            sum[i] = sum[i + 8];
    }
}

/* Are all vectors of two where one load or store takes them? Those of one are; of what other warps
 * store, two neighbours are such a vector. */
OG_FN bool og_are_words(const og_args &a, const og_offsets &at)
{
    if (OG_PIECES)
        return og_find_alignment(a) % 2 == 0;
    return OG_V == 1 || (og_pass0::is_aligned(a, at) && og_loads0::is_aligned(a, at) &&
                         og_kept::is_aligned(a, at));
}

/* Pass 0 on tile i. found: in its places. Of sums nothing is left. */
OG_FN void og_end_places_tile(const og_args &a, og_index i, const og_window_rings &rings,
                              int thread, const og_findings &found, og_held &sum,
                              og_window_ends &ends)
{
    const og_window_tile tile = og_find_window_tile(a, i);
    const og_window_place place = og_find_place(og_first_place(thread));
    og_places at;
    at.m = tile.m + 2 * (thread % 4);
    at.n = og_find_place_column(a, tile, place) + 2 * (thread % 4) % OG_ROW_PHASES;
    at.scales = rings.scales + 8 * (thread / 128 * OG_BM + 2 * (thread % 4));
    const og_index rows = og_count_rows(a);
    const uint32_t there[2] = {og_find_rows_there(a, tile, place, 0, thread),
                               og_find_rows_there(a, tile, place, 8, thread)};
    og_bring_scales(a, og_find_plane(a, tile) * rows + tile.m, rows - tile.m, rings, thread,
                    ends.scales_of);
    og_clear_empty(a, tile.phase, thread, sum);
    if (og_meets_nothing(a, tile.phase))
        at.skips[0] = at.skips[1] = 0;
    else
        og_find_lost(a, rings, thread, at.scales, found, sum, there, at.skips);
    const bool is_whole = __ballot_sync(0xffffffffu, there[0] == OG_ALL_ROWS &&
                                                         there[1] == OG_ALL_ROWS) == 0xffffffffu;
    const bool lacks = og_mark(a, i, thread, at.skips);
    at.product = og_start();
    og_seek_product(a, tile.base, at.product);
#pragma unroll
    for (int v = 0; v < OG_PART_VECTORS; v++) {
        at.columns[v] = og_start();
        og_step_row(a, og_clamp_column(a, at.n + og_vector_at(v)), at.columns[v]);
    }
    if (is_whole && !lacks && og_are_words(a, at.columns[0])) {
        og_finish_places<true>(a, rings, at, sum);
        return;
    }
    at.skips[0] |= ~there[0];
    at.skips[1] |= ~there[1];
    og_finish_places<false>(a, rings, at, sum);
}
