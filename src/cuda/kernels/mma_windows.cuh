/* SPDX-License-Identifier: MIT
 *
 * mma_windows.cuh - a convolution on tensor cores by mma.sync: filters (rows) times what windows see
 * of an image (columns: its places, one image after the other), in the tiles of mma_tile.cuh, and
 * pass 0 on them.
 *
 * First the image goes to the scratch, its channels side by side, with zeros around it wherever a
 * window sees nothing:
 *
 *     (batch, groups, depth, height, width, a.pitch channels)
 *
 * What a window sees at a tap is then a line of channels whose distance from the place does not depend
 * on the place. So k runs over taps, and for each over channels; a.table has the distance for each
 * OG_TABLE_K of them, in units of OG_GRAIN elements. Filters are laid in that order too.
 *
 * A sum of float32 that may have lost too much to what pairs cannot hold (pairs.cuh) is marked, and
 * computed in plan.h's order before pass 0 sees it. So a result's bits depend on what its window sees
 * and on its filter alone: not on its neighbours in a tile, which may hold several images.
 */
#include "cuda/kernels/mma_lay.cuh"
#include "cuda/kernels/mma_tile.cuh"
#include "cuda/kernels/finish.cuh"

/* ---- what windows see ------------------------------------------------------------------------ */

/* The first element that the windows of a column's place see, in the copy, in units.
 * Columns beyond a line are its last place. */
OG_FN uint32_t og_find_seen(const og_args &a, og_index group, og_index column)
{
    column = column < a.columns ? column : a.columns - 1;
    const og_index b = og_divide(column, a.image_of), n = column - b * a.image_of.extent;
    const og_index line = og_divide(n, a.line_of), d = og_divide(line, a.plane_of);
    og_index w = n - line * a.line_of.extent;
    w = w < a.width ? w : a.width - 1;
    const og_index h = line - d * a.plane_of.extent;
    const og_index at =
        (d * a.step_d * a.laid_h.extent + h * a.step_h) * a.laid_w.extent + w * a.step_w;
    return (uint32_t)(((int64_t)(b * a.groups + group) * a.volume + at) * (a.pitch / OG_GRAIN));
}

/* So many units from the copy's first element. */
OG_FN const og_element *og_at_seen(const og_args &a, uint32_t units)
{
    return (const og_element *)a.image_copy + (uint64_t)units * OG_GRAIN;
}

#ifdef OG_SCALE_K
/* A thread's part of w, by the table; and what was found in each OG_SCALE_K channels of one column. */
struct og_seen_reader {
    uint32_t at[OG_W_ROWS]; /* og_find_seen() */
    uint32_t column;        /* ... of its own column, as a number of scales */
    uint32_t words[OG_SCALES];
    og_mma_findings found;

    OG_FN og_seen_reader start(const og_args &a, const og_tile &tile)
    {
        og_seen_reader r;
#pragma unroll
        for (int i = 0; i < OG_W_ROWS; i++)
            r.at[i] = og_find_seen(a, tile.base, tile.n + i * 64 + og_w_row_of(threadIdx.x));
        r.column = og_find_seen(a, tile.base, tile.n + threadIdx.x % OG_BN) / (OG_SCALE_K / 4);
        r.found = {0, 0};
        return r;
    }

    OG_FN void fetch(const og_args &a, og_seen_reader &r, og_index k, og_w_part &, char *to)
    {
        const int thread = og_thread();
        const int *table = (const int *)a.table + k / 8;
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int by = __ldg(table + 4 * j + thread % 4);
            const bool is_there = by >= 0;
#pragma unroll
            for (int i = 0; i < OG_W_ROWS; i++) {
                const og_element *p = og_at_seen(a, r.at[i] + (is_there ? (uint32_t)by : 0));
                char *hi = to + OG_MMA_X_BYTES +
                           og_swizzle(i * 64 + og_w_row_of(thread), 4 * j + thread % 4);
                og_copy_16_if(hi, p, is_there);
                og_copy_16_if(hi + OG_BN * OG_LINE, p + OG_SCALE_K / 2, is_there);
            }
        }
#pragma unroll
        for (int block = 0; block < OG_SCALES; block++) {
            const int by = __ldg(table + block * (OG_SCALE_K / 8));
            r.words[block] = 0;
            if (by >= 0)
                r.words[block] = __ldg((const uint32_t *)a.image_scales + r.column +
                                       (uint32_t)by / (OG_SCALE_K / 4));
        }
    }

    OG_FN void settle(og_seen_reader &r, char *stage)
    {
        const int thread = og_thread();
        float *undo = (float *)(stage + OG_MMA_X_BYTES + OG_MMA_W_BYTES);
#pragma unroll
        for (int block = 0; block < OG_SCALES; block++) {
            const uint32_t most = r.words[block] & 0xffff0000u;
            if (thread < OG_BN)
                undo[block * OG_BN + thread] = og_find_undo(most);
            r.found.most = most > r.found.most ? most : r.found.most;
            r.found.quarters += (int)(r.words[block] & 0xffffu);
        }
    }

    OG_FN void end(const og_seen_reader &r, og_mma_findings *found)
    {
        if (threadIdx.x < OG_BN)
            found[threadIdx.x] = r.found;
    }
};
#else
/* A thread's part of w, by the table. */
struct og_seen_reader {
    uint32_t at[OG_W_ROWS]; /* og_find_seen() */

    OG_FN og_seen_reader start(const og_args &a, const og_tile &tile)
    {
        og_seen_reader r;
#pragma unroll
        for (int i = 0; i < OG_W_ROWS; i++)
            r.at[i] = og_find_seen(a, tile.base, tile.n + i * 64 + og_w_row_of(threadIdx.x));
        return r;
    }

    OG_FN void fetch(const og_args &a, og_seen_reader &r, og_index k, og_w_part &part, char *to)
    {
        enum { UNITS = OG_WIDE / OG_GRAIN }; /* of 16 bytes */
        const int *table = (const int *)a.table + k / OG_GRAIN + og_thread() % 4 * UNITS;
#pragma unroll
        for (int u = 0; u < OG_ITEMS * UNITS; u++) {
            const int j = u / UNITS, by = __ldg(table + 4 * UNITS * j + u % UNITS);
            const bool is_there = by >= 0;
#pragma unroll
            for (int i = 0; i < OG_W_ROWS; i++) {
                const og_element *p = og_at_seen(a, r.at[i] + (is_there ? (uint32_t)by : 0));
                if constexpr (UNITS > 1)
                    og_copy_8_if(og_raw_at(to, i, j) + u % UNITS * 8, p, is_there);
                else if constexpr (OG_RAW)
                    og_copy_16_if(og_raw_at(to, i, j), p, is_there);
                else
                    *(uint4 *)&part[i][j] =
                        is_there ? __ldg((const uint4 *)p) : make_uint4(0, 0, 0, 0);
            }
        }
    }
};

#endif

/* ---- what pairs cannot hold ------------------------------------------------------------------ */

#if OG_PAIRS
enum { OG_FEW_OF_32 = 4 }; /* marked neighbours that a warp computes one after the other */

/* The sum of a filter's terms so far, in plan.h's order. -0 + v is v, also of v = -0. */
struct og_window_sum {
    float p, block, all;
};

/* After term k. */
OG_FN void og_join_seen(og_window_sum &sum, og_index k, bool is_last)
{
    if (k % 256 != 0 && !is_last)
        return;
    sum.block = sum.block + sum.p;
    sum.p = 0.0f;
    if (k % 4096 != 0 && !is_last)
        return;
    sum.all = sum.all + sum.block;
    sum.block = -0.0f;
}

/* Terms of a filter and a column of an image. */
struct og_seen_terms {
    const float *x;    /* the filter, as it was laid */
    og_seen_place row; /* of the column */
    bool is_there;
};

OG_FN og_seen_terms og_find_seen_terms(const og_args &a, const og_tile &tile, int row,
                                       og_index column)
{
    const og_index b = og_divide(column, a.image_of), n = column - b * a.image_of.extent;
    og_seen_terms of;
    of.x = og_x_row(a, (og_index)og_line_of(a, tile, row));
    of.is_there = column < a.columns &&
                  n - og_divide(n, a.line_of) * a.line_of.extent < a.width &&
                  og_right0::find_row(a, b * a.groups + tile.base, n, of.row);
    return of;
}

/* Term k, which is of channel c and that tap; of a column that is not there, anything. */
OG_FN void og_load_seen(const og_args &a, const og_seen_terms &of, og_index k, og_index c,
                        og_index tap, float &x, float &w)
{
    og_seen_place by;
    og_right0::find_k(a, k, by);
    x = of.x[tap * a.pitch + c];
    w = of.is_there && og_sees<og_right0>(a, of.row, by)
            ? og_right0::data(a)[of.row.offset + by.offset]
            : 0.0f;
}

OG_FN float og_sum_seen(const og_args &a, const og_seen_terms &of)
{
    og_window_sum sum = {0.0f, -0.0f, -0.0f};
    og_index k = 0;
#pragma unroll 1
    for (og_index c = 0; c < a.channels; c++)
#pragma unroll 4
        for (og_index tap = 0; tap < a.taps; tap++) {
            float x, w;
            og_load_seen(a, of, k, c, tap, x, w);
            sum.p = og_fma_f32(x, w, sum.p);
            k++;
            og_join_seen(sum, k, k == a.k);
        }
    return sum.all;
}

/* The same by all threads of a warp, which read 32 terms at once; a missing one is 0 * -0. */
OG_FN float og_sum_seen_by_warp(const og_args &a, const og_seen_terms &of)
{
    og_window_sum sum = {0.0f, -0.0f, -0.0f};
#pragma unroll 1
    for (og_index first = 0; first < a.k; first += 32) {
        const og_index k = first + threadIdx.x % 32, c = og_divide(k, a.taps_of);
        float x = 0.0f, w = -0.0f;
        if (k < a.k)
            og_load_seen(a, of, k, c, k - c * a.taps, x, w);
#pragma unroll
        for (int i = 0; i < 32; i++)
            sum.p = og_fma_f32(__shfl_sync(0xffffffffu, x, i), __shfl_sync(0xffffffffu, w, i),
                               sum.p);
        og_join_seen(sum, first + 32, first + 32 >= a.k);
    }
    return sum.all;
}

/* Computes the marked sums of a tile again: 32 neighbours of a filter by a warp. */
OG_FN void og_windows_again(const og_args &a, const og_tile &tile, char *shared)
{
    const uint32_t *marks = (const uint32_t *)(shared + OG_MARKS_AT);
    float *z = (float *)shared;
    const int lane = threadIdx.x % 32;
    uint32_t any = 0;
    for (int i = threadIdx.x; i < OG_BM * OG_MARK_WORDS; i += OG_MMA_THREADS)
        any |= marks[i];
    if (!__syncthreads_or(any != 0))
        return;
#pragma unroll 1
    for (int i = threadIdx.x / 32; i < OG_BM * OG_MARK_WORDS; i += OG_MMA_THREADS / 32) {
        const int row = i / OG_MARK_WORDS, first = i % OG_MARK_WORDS * 32;
        const uint32_t marked = marks[i];
        if (!marked || tile.m + row >= a.m)
            continue;
        if (__popc(marked) > OG_FEW_OF_32) {
            if (marked >> lane & 1)
                z[og_place_in_tile(row, first + lane)] =
                    og_sum_seen(a, og_find_seen_terms(a, tile, row, tile.n + first + lane));
            continue;
        }
#pragma unroll 1
        for (uint32_t left = marked; left; left &= left - 1) {
            const int n = first + __popc((left & (0 - left)) - 1);
            const float sum =
                og_sum_seen_by_warp(a, og_find_seen_terms(a, tile, row, tile.n + n));
            if (lane == 0)
                z[og_place_in_tile(row, n)] = sum;
        }
    }
    __syncthreads();
}
#endif

/* ---- entry ----------------------------------------------------------------------------------- */

#ifdef OG_LAST
/* Four neighbouring filters of some of a tile's places, for finish.cuh. */
struct og_seen_part {
    enum {
        lanes = OG_BM / OG_V,
        below = OG_MMA_THREADS / lanes, /* from a place to the next */
        rows = OG_BN / below < 4 ? OG_BN / below : 4,
        vectors = 1,
        apart = 0
    };
    static const bool whole = false;

    og_kept kept[vectors];
    og_offsets at[rows];
    og_span spans[rows];
    og_vector_sums sums[rows];

    OG_FN og_offsets find(const og_seen_part &f, const og_args &, int r)
    {
        return f.at[r];
    }
    OG_FN og_offsets column(const og_seen_part &, const og_args &, int)
    {
        return og_start();
    }
    OG_FN og_span span(const og_seen_part &f, const og_args &, int r, int)
    {
        return f.spans[r];
    }
    OG_FN og_number sum(const og_seen_part &f, int, int r, int, int j)
    {
        return f.sums[r].e[j];
    }
};

/* Where a place's first filter is; false: there is no such place. */
OG_FN bool og_find_seen_place(const og_args &a, const og_tile &tile, og_index column,
                              og_offsets &at)
{
    bool is_there = column < a.columns;
    const og_index b = is_there ? og_divide(column, a.image_of) : 0;
    const og_index n = is_there ? column - b * a.image_of.extent : 0;
    is_there = is_there && n - og_divide(n, a.line_of) * a.line_of.extent < a.width;
    at = og_start();
    og_seek_product(a, b * a.groups + tile.base, at);
    og_step_places(a, is_there ? n : 0, at);
    return is_there;
}

/* Pass 0 on a tile whose products are in shared memory. */
OG_FN void og_finish_windows(const og_args &a, const og_tile &tile, const char *shared)
{
    typedef og_seen_part part;
    const int quad = threadIdx.x % part::lanes * OG_V;
    const og_index m = tile.m + quad;
    part f;
    og_load_kept<0, false>(a, m < a.m ? m : a.m - 1, f.kept);
#pragma unroll 1
    for (int i = threadIdx.x / part::lanes; i < OG_BN; i += part::rows * part::below) {
#pragma unroll
        for (int r = 0; r < part::rows; r++) {
            const int column = i + r * part::below;
            const bool is_there = og_find_seen_place(a, tile, tile.n + column, f.at[r]) && m < a.m;
            og_step_row(a, m < a.m ? m : a.m - 1, f.at[r]);
            f.spans[r] = is_there ? og_span_of(m, a.m) : og_span_of(0, 0);
            f.sums[r] = *(const og_vector_sums *)((const float *)shared +
                                                  og_place_in_tile(quad, column));
        }
        og_finish_fragment(a, f);
    }
}
#else
/* Four neighbouring places of some of a tile's filters. What does not depend on the filter is found
 * once. */
struct og_seen_part {
    enum {
        lanes = OG_BN / OG_V,
        below = OG_MMA_THREADS / lanes, /* from a row to the next */
        rows = OG_BM / below < 4 ? OG_BM / below : 4,
        vectors = 1,
        apart = 32 /* as if there were another vector */
    };
    static const bool whole = false;

    og_index n, m; /* of the first row */
    og_kept kept[vectors];
    og_offsets product, columns; /* of the image's group; of lines: beside it */
    og_span there;
    og_vector_sums sums[rows];

    OG_FN og_offsets find(const og_seen_part &f, const og_args &a, int r)
    {
        og_offsets at = f.product;
        const og_index m = f.m + r * below;
        og_step_filters(a, m < a.m ? m : a.m - 1, at);
        return at;
    }
    OG_FN og_offsets column(const og_seen_part &f, const og_args &, int)
    {
        return f.columns;
    }
    OG_FN og_span span(const og_seen_part &f, const og_args &a, int r, int)
    {
        return f.m + r * below < a.m ? f.there : og_span_of(0, 0);
    }
    OG_FN og_number sum(const og_seen_part &f, int, int r, int, int j)
    {
        return f.sums[r].e[j];
    }
};

/* Pass 0 on a tile whose products are in shared memory. */
OG_FN void og_finish_windows(const og_args &a, const og_tile &tile, const char *shared)
{
    typedef og_seen_part part;
    const int quad = threadIdx.x % part::lanes * OG_V;
    const og_index column = tile.n + quad;
    const bool is_there = column < a.columns;
    const og_index b = is_there ? og_divide(column, a.image_of) : 0;
    part f;
    f.n = is_there ? column - b * a.image_of.extent : 0;
    f.there = is_there ? og_find_columns(a, f.n) : og_span_of(0, 0);
    f.product = f.columns = og_start();
    og_seek_product(a, b * a.groups + tile.base, f.product);
    og_step_row(a, og_clamp_column(a, f.n), OG_LINES ? f.columns : f.product);
    og_load_kept<32, false>(a, f.n, f.kept);
#pragma unroll 1
    for (int row = threadIdx.x / part::lanes; row < OG_BM; row += part::rows * part::below) {
        f.m = tile.m + row;
#pragma unroll
        for (int r = 0; r < part::rows; r++)
            f.sums[r] = *(const og_vector_sums *)((const float *)shared +
                                                  og_place_in_tile(row + r * part::below, quad));
        og_finish_fragment(a, f);
    }
}
#endif

OG_KERNEL(og_convolve_mma, OG_MMA_THREADS, OG_BLOCKS)
{
    extern __shared__ __align__(1024) char og_shared[];
    og_mma_sums sum;
    og_mma_tile<og_seen_reader>(a, og_shared, sum);
    const og_tile tile = og_find_own_tile(a);
    og_leave_sums(a, tile, a.columns, sum, og_shared);
    __syncthreads();
#if OG_PAIRS
    og_windows_again(a, tile, og_shared);
#endif
    og_finish_windows(a, tile, og_shared);
}
