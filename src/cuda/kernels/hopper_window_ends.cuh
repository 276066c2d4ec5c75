/* SPDX-License-Identifier: MIT
 *
 * hopper_window_ends.cuh - the end of a tile of a convolution on Hopper's tensor cores: which of
 * its sums are lost, and pass 0 on the others. Part of hopper_windows.cuh, which includes it.
 */

enum {
    OG_PAIRED = OG_ROW_PHASES > 1, /* a thread's rows, two by two, are neighbours of a line */
    OG_PART_VECTORS = OG_PAIRED ? 4 / OG_V : 2
};
const uint32_t OG_ALL_ROWS = OG_BM == 128 ? ~0u : (1u << OG_BM / 4 % 32) - 1; /* of a thread's */

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

/* Row i of a thread. Rows 2 j and 2 j + 1 are neighbours. */
OG_FN og_row_scale og_scale_of(uint32_t scales, int i)
{
    const og_four two = og_load_shared(scales + 8 * og_row_of(i / 2 * 2));
    return {two.e[i % 2 * 2], two.e[i % 2 * 2 + 1]};
}

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

/* What a tile's filters have at most. */
OG_FN og_row_scale og_find_bounds(const og_window_rings &rings, int thread)
{
    const uint32_t at = rings.bounds + thread / 128 * (OG_BM / 32 * 8);
    og_row_scale most = {og_load_shared_one(at), og_load_shared_one(at + 4)};
#pragma unroll
    for (int i = 1; i < OG_BM / 32; i++) {
        most.undo = og_greater(most.undo, og_load_shared_one(at + 8 * i));
        most.weight = og_greater(most.weight, og_load_shared_one(at + 8 * i + 4));
    }
    return most;
}

/* Whether (bits 0 and 1) the even and the odd rows of a thread's have no terms. */
OG_FN uint32_t og_find_empty(int thread)
{
    return OG_EMPTY_ROWS >> 2 * (thread % 4) % OG_ROW_PHASES & 3;
}

/* Sums without terms are +0, whatever zeros were multiplied with. */
OG_FN void og_clear_empty(const og_args &a, int phase, int thread, og_held &sum)
{
    if (!OG_EMPTY_ROWS && !OG_EMPTY_TILES)
        return;
    const uint32_t empty = og_meets_nothing(a, phase) ? 3 : og_find_empty(thread);
#pragma unroll
    for (int i = 0; i < OG_HELD; i++)
        sum[i] = empty >> i % 2 & 1 ? 0.0f : sum[i];
}

/* Could a sum of place v have lost too much, by og_is_lost() of the least and the greatest with what
 * the filters have at most? Where not, which is nearly always, no sum is looked at with its own. */
OG_FN bool og_could_be_lost(const og_held &sum, int v, const og_column_loss &column,
                            const og_row_scale &bounds, float least, uint32_t empty)
{
    float low = OG_INF_F32, high = 0.0f;
    if (OG_EMPTY_ROWS && empty == 3)
        return false;
#pragma unroll
    for (int i = 0; i < OG_BM / 4; i += 2) { /* two by two: each waits for the last */
        float y = fabsf(sum[i / 2 * 4 + 2 * v]), z = fabsf(sum[i / 2 * 4 + 2 * v + 1]);
        if (OG_EMPTY_ROWS) { /* no sum of these can be lost */
            y = empty & 1 ? z : y;
            z = empty & 2 ? y : z;
        }
        low = og_lesser(low, og_lesser(y, z));
        high = og_greater(high, og_greater(y, z));
    }
    return !(low >= fmaf(column.most, bounds.weight, column.limit)) | !(low >= least) |
           !(high * bounds.undo < OG_INF_F32);
}

/* The rows (bit i) of place v whose sums may have lost too much. */
OG_FN void og_find_lost(const og_args &a, const og_window_rings &rings, int thread, uint32_t scales,
                        const og_findings &found, const og_held &sum, const uint32_t (&there)[2],
                        uint32_t (&lost)[2])
{
    const og_column_loss columns[] = {og_weigh_found<!OG_CELLS>(found, 0),
                                      og_weigh_found<!OG_CELLS>(found, 1)};
    const float least = og_least_sum(a.k_padded);
    const og_row_scale bounds = og_find_bounds(rings, thread);
    const uint32_t empty = og_find_empty(thread);
    const bool could = (there[0] && og_could_be_lost(sum, 0, columns[0], bounds, least, empty)) |
                       (there[1] && og_could_be_lost(sum, 1, columns[1], bounds, least, empty));
    lost[0] = lost[1] = 0;
    if (!__ballot_sync(0xffffffffu, could))
        return;
#pragma unroll
    for (int i = 0; i < OG_BM / 4; i++) {
        const og_row_scale row = og_scale_of(scales, i);
#pragma unroll
        for (int v = 0; v < 2; v++) {
            const float y = sum[i / 2 * 4 + 2 * v + i % 2];
            lost[v] |= og_is_lost(y, y * row.undo, columns[v], row, least) ? 1u << i : 0u;
        }
    }
    lost[0] &= there[0];
    lost[1] &= there[1];
}

/* Leaves word of what is lost for og_redo_windows; is there anything? All of a warp come. */
OG_FN bool og_mark(const og_args &a, og_index tile, int thread, const uint32_t (&lost)[2])
{
    const bool any = __ballot_sync(0xffffffffu, (lost[0] | lost[1]) != 0) != 0;
    const int64_t at = (int64_t)tile * OG_TILE_THREADS + thread % OG_TILE_THREADS;
    if (thread % 32 == 0)
        ((uint8_t *)a.flags)[at / 32] = any;
    if (!any)
        return false;
    *(uint32_t *)a.any_redo = 1;
    if (OG_LOST_WORDS == 2) {
        ((uint32_t *)a.marks)[2 * at] = lost[0];
        ((uint32_t *)a.marks)[2 * at + 1] = lost[1];
    } else {
        ((uint32_t *)a.marks)[at] = lost[0] | lost[1] << 16;
    }
    return true;
}

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

/* Brings the scales of rows from `row` on, of which so many are there, and their bounds into the
 * group's part of shared memory, if they are not there. */
OG_FN void og_bring_scales(const og_args &a, og_index row, og_index count,
                           const og_window_rings &rings, int thread, og_index &there)
{
    const int group = thread / 128, i = thread % 128;
    if (row == there)
        return;
    there = row;
    og_await_launch(); /* og_split */
    og_meet_group(group);
    if (i < OG_BM) {
        og_row_scale scale = ((const og_row_scale *)a.x_scales)[row + i];
        ((og_row_scale *)(rings.memory + OG_SCALES_AT))[group * OG_BM + i] = scale;
        if (i >= count)
            scale = {0.0f, 0.0f};
#pragma unroll
        for (int by = 1; by < 32; by *= 2) {
            scale.undo = og_greater(scale.undo, __shfl_xor_sync(0xffffffffu, scale.undo, by));
            scale.weight = og_greater(scale.weight, __shfl_xor_sync(0xffffffffu, scale.weight, by));
        }
        if (i % 32 == 0)
            ((og_row_scale *)(rings.memory + OG_BOUNDS_AT))[group * (OG_BM / 32) + i / 32] = scale;
    }
    og_meet_group(group);
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

/* Pass 0 on tile i. found: in its places; scales_of: see og_bring_scales(). Of sums nothing is
 * left. */
OG_FN void og_end_places_tile(const og_args &a, og_index i, const og_window_rings &rings,
                              int thread, const og_findings &found, og_held &sum,
                              og_index &scales_of)
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
                    scales_of);
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
