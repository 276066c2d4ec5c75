/* SPDX-License-Identifier: MIT
 *
 * columns.cuh - reductions in the order OG_COLUMNS. A thread takes OG_V neighbouring
 * columns (rows of the plan, side by side in memory) and whole runs of OG_RUN elements.
 * Its block, OG_X threads across and OG_Y deep, goes through tiles of OG_RUN runs: the
 * runs' sums meet in shared memory and are added one after the other, the tiles' sums
 * likewise, in runs again.
 *
 * PARAMETERS
 *   OG_X, OG_Y   threads of a block, across and deep: OG_THREADS
 *   OG_RUNS      the most runs of a tile, 1 to OG_RUN
 *   OG_SHARED_BYTES  what the runs' sums take, a multiple of 8
 *   OG_FLIGHT    elements of a run whose loads are under way at once
 *   OG_BLOCKS    blocks that a multiprocessor should hold
 *   OG_HOLDS     1: of one run, what sums have computed waits in shared memory for terms; 0, or not
 *                defined
 */
#include "cuda/kernels/sums.cuh"

#ifndef OG_HOLDS
#define OG_HOLDS 0
#endif

enum {
    OG_BLOCK_COLUMNS = OG_X * OG_V,
    /* columns whose runs a thread adds */
    OG_OWNED = (OG_BLOCK_COLUMNS + OG_THREADS - 1) / OG_THREADS,
    OG_LEVELS = 4 /* of runs of tiles: 64^4 tiles */
};

/* Shared memory for the runs' sums of one reduction after the other. */
OG_FN void *og_shared()
{
    __shared__ double words[OG_SHARED_BYTES / 8];
    return words;
}

template <class P> struct og_runs {
    typename P::sums of[OG_RUNS][OG_BLOCK_COLUMNS];
};

struct og_column {
    og_index vector; /* number of the thread's columns */
    og_offsets at;
    og_span span; /* of columns that are there */
    int x, y;
    bool writes; /* is this the thread that writes what is its columns'? */
};

/* Threads beyond the last column go through that one, and write nothing. */
OG_FN og_column og_find_column(const og_args &a, og_index block)
{
    og_column c;
    c.x = threadIdx.x % OG_X;
    c.y = threadIdx.x / OG_X;
    og_index vector = block * OG_X + c.x;
    c.vector = vector < a.vectors ? vector : a.vectors - 1;
    og_index outer = og_divide(c.vector, a.per_row);
    og_index first = (c.vector - outer * a.per_row.extent) * OG_V;
    c.at = og_start();
    og_seek_outer(a, outer, c.at);
    og_step_column(a, first, c.at);
    c.span = og_span_of(first, a.columns);
    c.span.end = vector < a.vectors ? c.span.end : 0;
    c.writes = c.y == 0;
    return c;
}

/* Nothing of a column is kept; columns_shared.cuh has another such struct. */
struct og_read_again {
    OG_FN void take(const og_read_again &, og_index, og_kept &)
    {
    }
};

/* Elements e and following of a run. Whole vectors or not is asked once for all of them: where each load
 * has a branch of its own, halves are taken apart at its end, and wait for it (a sum of 4096x2048 of
 * bfloat16 on an H200 took 41 us, not 13). */
template <class P, bool whole>
OG_FN void og_load_flight(const og_args &a, const og_column &c, og_index from, int e, int count,
                          typename P::sweep::loads (&x)[OG_FLIGHT])
{
#pragma unroll
    for (int f = 0; f < OG_FLIGHT; f++) {
        og_offsets at = c.at;
        og_step_row(a, from + (e + f < count ? e + f : e), at);
        P::sweep::loads::load(a, at, whole, c.span, x[f]);
    }
}

/* The elements [from, from + count) of the thread's columns, count <= OG_RUN; `held` has those that
 * are kept. */
template <class P, class Held>
OG_FN void og_reduce_run(const og_args &a, const og_column &c, const og_row (&row)[OG_V],
                         const typename P::peaks (&peaks)[OG_V], const Held &held, og_index from,
                         int count, typename P::sums (&s)[OG_V])
{
    bool whole = og_is_full(c.span) && P::sweep::loads::is_aligned(a, c.at);
#pragma unroll
    for (int i = 0; i < OG_V; i++)
        s[i] = P::neutral();
#pragma unroll 1
    for (int e = 0; e < count; e += OG_FLIGHT) {
        typename P::sweep::loads x[OG_FLIGHT];
        og_kept kept[OG_FLIGHT];
        if (whole)
            og_load_flight<P, true>(a, c, from, e, count, x);
        else
            og_load_flight<P, false>(a, c, from, e, count, x);
#pragma unroll
        for (int f = 0; f < OG_FLIGHT; f++)
            Held::take(held, from + (e + f < count ? e + f : e), kept[f]);
        OG_AFTER_LOADS();
#pragma unroll
        for (int f = 0; f < OG_FLIGHT; f++) {
            typename P::sweep::values y[1][OG_V];
            if (e + f >= count)
                break;
            og_compute_all<typename P::sweep, 1>(a, row, 1, kept + f, 0, x + f, y);
#pragma unroll
            for (int i = 0; i < OG_V; i++)
                P::add(s[i], row[i], peaks[i], y[0][i]);
            if constexpr (P::stores) {
                og_offsets at = c.at;
                og_step_row(a, from + e + f, at);
                P::sweep::store(a, at, c.span, row, y[0]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < OG_V; i++)
        P::mend(s[i], peaks[i]);
}

/* What a thread has computed of element e of its columns: nobody else looks at it. */
template <class P> OG_FN typename P::sweep::values *og_find_held(int e)
{
    __shared__ typename P::sweep::values held[OG_RUN][OG_THREADS][OG_V];
    return held[e][threadIdx.x];
}

/* The sums P and terms T of a run that is all of a column: each element is computed once. */
template <class P, class T>
OG_FN void og_reduce_held(const og_args &a, const og_column &c, const og_row (&row)[OG_V], int count,
                          typename P::sums (&s)[OG_V], typename T::sums (&terms)[OG_V])
{
    const bool whole = og_is_full(c.span) && P::sweep::loads::is_aligned(a, c.at);
    og_kept kept;
    og_none none;
#pragma unroll
    for (int i = 0; i < OG_V; i++) {
        s[i] = P::neutral();
        terms[i] = T::neutral();
    }
#pragma unroll 1
    for (int e = 0; e < count; e += OG_FLIGHT) {
        typename P::sweep::loads x[OG_FLIGHT];
        if (whole)
            og_load_flight<P, true>(a, c, 0, e, count, x);
        else
            og_load_flight<P, false>(a, c, 0, e, count, x);
        OG_AFTER_LOADS();
#pragma unroll
        for (int f = 0; f < OG_FLIGHT; f++) {
            typename P::sweep::values y[1][OG_V];
            if (e + f >= count)
                break;
            og_compute_all<typename P::sweep, 1>(a, row, 1, &kept, 0, x + f, y);
#pragma unroll
            for (int i = 0; i < OG_V; i++) {
                P::add(s[i], row[i], none, y[0][i]);
                og_find_held<P>(e + f)[i] = y[0][i];
            }
        }
    }
#pragma unroll
    for (int i = 0; i < OG_V; i++)
        P::mend(s[i], none);
#pragma unroll 4
    for (int e = 0; e < count; e++)
#pragma unroll
        for (int i = 0; i < OG_V; i++)
            T::add(terms[i], row[i], s[i], og_find_held<P>(e)[i]);
#pragma unroll
    for (int i = 0; i < OG_V; i++)
        T::mend(terms[i], s[i]);
}

/* ---- what a run's sums are ----------------------------------------------------------- */

/* A run of elements. */
template <class P, class Held = og_read_again> struct og_plain_run {
    Held held;
    og_none none[OG_V];
    OG_FN void get(const og_args &a, const og_column &c, const og_row (&row)[OG_V],
                   const og_plain_run &by, og_index from, int count, typename P::sums (&s)[OG_V])
    {
        og_reduce_run<P>(a, c, row, by.none, by.held, from, count, s);
    }
};

/* A run of terms T, scaled from the run's own peak, of sums P, to the column's. */
template <class P, class T> struct og_scaled_run {
    typename P::sums most[OG_V];
    OG_FN void get(const og_args &a, const og_column &c, const og_row (&row)[OG_V],
                   const og_scaled_run &by, og_index from, int count, typename T::sums (&s)[OG_V])
    {
        typename P::sums peaks[OG_V];
        og_none none[OG_V];
        og_reduce_run<P>(a, c, row, none, og_read_again(), from, count, peaks);
        og_reduce_run<T>(a, c, row, peaks, og_read_again(), from, count, s);
#pragma unroll
        for (int i = 0; i < OG_V; i++)
            T::scale(s[i], peaks[i], by.most[i]);
    }
};

/* A run of sums that lie in memory, those of a column `stride` apart. */
template <class P> struct og_partial_run {
    const typename P::sums *first; /* of the thread's columns */
    og_index stride;
    OG_FN void get(const og_args &a, const og_column &c, const og_row (&row)[OG_V],
                   const og_partial_run &by, og_index from, int count,
                   typename P::sums (&s)[OG_V])
    {
#pragma unroll
        for (int i = 0; i < OG_V; i++)
            s[i] = P::neutral();
#pragma unroll 4
        for (int e = 0; e < count; e++)
#pragma unroll
            for (int i = 0; i < OG_V; i++)
                P::merge(s[i], by.first[(from + e) * by.stride + i]);
    }
};

/* ---- runs of runs ---------------------------------------------------------------------- */

/* Sums of tiles, in runs, in runs of runs, and so on. */
template <class P> struct og_levels {
    typename P::sums of[OG_LEVELS];
};

template <class P> OG_FN void og_start_levels(og_levels<P> &levels)
{
#pragma unroll
    for (int l = 0; l < OG_LEVELS; l++)
        levels.of[l] = P::neutral();
}

/* Adds the sum of tile number `tile`; last: no other follows, so that the highest level
 * becomes the sum of all. */
template <class P>
OG_FN void og_add_tile(og_levels<P> &levels, const typename P::sums &s, og_index tile, bool last)
{
    P::merge(levels.of[0], s);
#pragma unroll
    for (int l = 0; l + 1 < OG_LEVELS; l++) {
        if (!last && (tile + 1) % OG_RUN != 0)
            break;
        P::merge(levels.of[l + 1], levels.of[l]);
        levels.of[l] = P::neutral();
        tile /= OG_RUN;
    }
}

OG_FN int og_count_of(og_index n, og_index from, int most)
{
    return n - from < most ? (int)(n - from) : most;
}

/* total = the sums of tiles [tile, end) of n elements, in every thread of a column. */
template <class P, class Run>
OG_FN void og_reduce_columns(const og_args &a, const og_column &c, const og_row (&row)[OG_V],
                             const Run &by, og_index n, og_index tile, og_index end,
                             typename P::sums (&total)[OG_V])
{
    og_runs<P> &runs = *(og_runs<P> *)og_shared();
    og_levels<P> levels[OG_OWNED];
    og_index begin = tile;
#pragma unroll
    for (int k = 0; k < OG_OWNED; k++)
        og_start_levels<P>(levels[k]);
#pragma unroll
    for (int i = 0; i < OG_V; i++)
        total[i] = P::neutral();
    for (; tile < end; tile++) {
        og_index from = tile * OG_RUN * OG_RUN;
        int elements = og_count_of(n, from, OG_RUN * OG_RUN);
        int count = (elements + OG_RUN - 1) / OG_RUN;
#pragma unroll 1
        for (int r = c.y; r < count; r += OG_Y) {
            Run::get(a, c, row, by, from + r * OG_RUN, og_count_of(elements, r * OG_RUN, OG_RUN),
                     total);
            if constexpr (OG_RUNS > 1)
#pragma unroll
                for (int i = 0; i < OG_V; i++)
                    runs.of[r][c.x * OG_V + i] = total[i];
        }
        if constexpr (OG_RUNS > 1 && P::count > 0) {
            __syncthreads();
#pragma unroll
            for (int k = 0; k < OG_OWNED; k++) {
                int column = threadIdx.x + k * OG_THREADS;
                typename P::sums s = P::neutral();
                if (column >= OG_BLOCK_COLUMNS)
                    break;
                for (int r = 0; r < count; r++)
                    P::merge(s, runs.of[r][column]);
                og_add_tile<P>(levels[k], s, tile - begin, tile + 1 == end);
            }
            __syncthreads();
        }
    }
    if constexpr (OG_RUNS > 1 && P::count > 0) {
#pragma unroll
        for (int k = 0; k < OG_OWNED; k++)
            if (threadIdx.x + k * OG_THREADS < OG_BLOCK_COLUMNS)
                runs.of[0][threadIdx.x + k * OG_THREADS] = levels[k].of[OG_LEVELS - 1];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < OG_V; i++)
            total[i] = runs.of[0][c.x * OG_V + i];
        __syncthreads();
    }
}

/* The sums of a pass with a guard, where some column of the block needs them. */
template <class P, class Held = og_read_again>
OG_FN void og_reduce_columns_again(const og_args &a, const og_column &c, const og_row (&row)[OG_V],
                                   bool again, typename P::sums (&total)[OG_V],
                                   const Held &held = Held())
{
    const og_plain_run<P, Held> by = {held};
#pragma unroll
    for (int i = 0; i < OG_V; i++)
        total[i] = P::neutral();
    if (__syncthreads_or(again))
        og_reduce_columns<P>(a, c, row, by, a.n, 0, a.tiles, total);
}

/* Sums and terms of a column of one tile, together: what the terms are scaled to is
 * known before they are added. */
template <class P, class T, class Held = og_read_again>
OG_FN void og_reduce_with_terms(const og_args &a, const og_column &c, const og_row (&row)[OG_V],
                                typename P::sums (&total)[OG_V],
                                typename T::sums (&terms_total)[OG_V], const Held &held = Held())
{
    og_runs<T> &terms = *(og_runs<T> *)og_shared();
    og_runs<P> &runs = *(og_runs<P> *)(&terms + 1);
    int count = (int)((a.n + OG_RUN - 1) / OG_RUN);
    og_none none[OG_V];
    if constexpr (OG_HOLDS) {
        og_reduce_held<P, T>(a, c, row, (int)a.n, total, terms_total);
        return;
    }
#pragma unroll
    for (int i = 0; i < OG_V; i++) {
        total[i] = P::neutral();
        terms_total[i] = T::neutral();
    }
#pragma unroll 1
    for (int r = c.y; r < count; r += OG_Y) {
        int elements = og_count_of(a.n, r * OG_RUN, OG_RUN);
        og_reduce_run<P>(a, c, row, none, held, r * OG_RUN, elements, total);
        og_reduce_run<T>(a, c, row, total, held, r * OG_RUN, elements, terms_total);
        if constexpr (OG_RUNS > 1)
#pragma unroll
            for (int i = 0; i < OG_V; i++) {
                runs.of[r][c.x * OG_V + i] = total[i];
                terms.of[r][c.x * OG_V + i] = terms_total[i];
            }
    }
    if constexpr (OG_RUNS > 1) {
        __syncthreads();
        for (int column = threadIdx.x; column < OG_BLOCK_COLUMNS; column += OG_THREADS) {
            typename P::sums most = P::neutral();
            typename T::sums sum = T::neutral();
            for (int r = 0; r < count; r++)
                P::merge(most, runs.of[r][column]);
            for (int r = 0; r < count; r++) {
                typename T::sums s = terms.of[r][column];
                if (count > 1)
                    T::scale(s, runs.of[r][column], most);
                T::merge(sum, s);
            }
            runs.of[0][column] = most;
            terms.of[0][column] = sum;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < OG_V; i++) {
            total[i] = runs.of[0][c.x * OG_V + i];
            terms_total[i] = terms.of[0][c.x * OG_V + i];
        }
        __syncthreads();
    }
}
