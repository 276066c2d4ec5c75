/* SPDX-License-Identifier: MIT
 *
 * finish.cuh - pass 0 on the finished sums of products, for every kernel that multiplies: loads
 * what the pass reads, computes, stores, and reduces runs of OG_RUN columns in the order of
 * plan.h. What a formula may do to a product is written here, and nowhere else.
 *
 * A kernel hands over what a thread has of the result as a fragment: a struct F whose functions
 * take the fragment f first.
 *   F::rows, F::vectors    rows, and vectors (OG_V neighbouring columns) of each of them
 *   F::apart               columns from a vector to the next
 *   F::whole               true: all of them are there, and aligned in every operand
 *   f.n                    the column where the first vector begins
 *   f.kept[v]              what pass 0 reads in the columns of vector v, whatever the row is:
 *                          og_load_kept()
 *   F::find(f, a, r)       og_offsets of the first vector of row r; of lines, of the row
 *   F::column(f, a, v)     of lines: what vector v adds to it
 *   F::span(f, a, r, v)    the elements of vector v that are there
 *   F::sum(f, p, r, v, j)  the sum of product p that is element j of vector v
 * Where pass 0 reduces, the thread's columns are part of one run, and F has
 *   F::grow<P>(s)          the tree over the lanes between a vector and the next; right in one of
 *                          them
 *   F::meet<P>(f, s)       s[r], right in that lane, becomes the run's of row r in every thread
 *   F::row(f, r)           the number of row r, of all rows of the batch
 *   F::run(f)              the number of the run in its row
 *   F::writes(f, a, r)     is the run there, and this the one thread that writes what it becomes?
 * All threads of a run take part, also those whose rows or columns are not there.
 *
 * PARAMETERS
 *   og_number      float or double: what is multiplied and summed
 *   OG_PRODUCTS    1 or 2
 *   OG_REDUCES     1: pass 0 reduces, og_sums0; OG_TERMS 1: and has og_terms0
 *   OG_LINES       1: columns are lines, of a.line, each padded to whole vectors: those of the last
 *                  dim. Nothing is reduced
 *   OG_ENDS_ROWS   1: a row is one run, whose sums become the row's values at once; 0: they wait
 *                  in the scratch for og_combine0
 */
#include "cuda/kernels/sums.cuh"

/* ---- reading ----------------------------------------------------------------------------- */

/* Which of the columns of the vector at n are there. */
OG_FN og_span og_find_columns(const og_args &a, og_index n)
{
#if OG_LINES
    const og_index line = og_divide(n, a.dims[OG_VECTOR_DIM]);
    return og_span_of(n - line * a.dims[OG_VECTOR_DIM].extent, n < a.n ? a.line : 0);
#else
    return og_span_of(n, a.n);
#endif
}

/* Column n, or one that is there: an operand that stands still along a line is read in any case. */
OG_FN og_index og_clamp_column(const og_args &a, og_index n)
{
    return OG_LINES && n >= a.n ? 0 : n;
}

/* What pass 0 reads whatever the row is, for vectors that begin `apart` columns after one another,
 * the first at n. whole: they are there, and aligned. */
template <int apart, bool whole, int vectors>
OG_FN void og_load_kept(const og_args &a, og_index n, og_kept (&kept)[vectors])
{
#pragma unroll
    for (int v = 0; v < vectors; v++) {
        og_offsets at = og_start();
        og_step_row(a, og_clamp_column(a, n + apart * v), at);
        const og_span span = og_find_columns(a, n + apart * v);
        const bool is_quick = whole || (OG_V > 1 && og_is_full(span) && og_kept::is_aligned(a, at));
        og_kept::load(a, at, is_quick, span, kept[v]);
    }
}

/* What pass 0 reads for a fragment. */
template <class F> struct og_reads {
    og_offsets at[F::rows]; /* F::find() */
#if OG_LINES
    og_offsets columns[F::vectors]; /* F::column(): found once, not again after each store */
#endif
    og_loads0 x[F::rows][F::vectors];
};

/* Where vector v of row r is. */
template <class F>
OG_FN og_offsets og_find_vector(const og_args &a, const og_reads<F> &from, int r, int v)
{
    og_offsets at = from.at[r];
#if OG_LINES
#pragma unroll
    for (int i = 0; i < OG_OPERANDS + OG_WINDOWS; i++)
        at.o[i] += from.columns[v].o[i];
#else
    og_step_row(a, F::apart * v, at);
#endif
    return at;
}

/* Kernels that have registers for it call this early: the loads are on their way meanwhile. */
template <class F> OG_FN og_reads<F> og_read(const og_args &a, const F &f)
{
    og_reads<F> to;
#if OG_LINES
#pragma unroll
    for (int v = 0; v < F::vectors; v++)
        to.columns[v] = F::column(f, a, v);
#endif
#pragma unroll
    for (int r = 0; r < F::rows; r++) {
        to.at[r] = F::find(f, a, r);
#pragma unroll
        for (int v = 0; v < F::vectors; v++) {
            const og_offsets at = og_find_vector(a, to, r, v);
            const og_span span = F::span(f, a, r, v);
            const bool is_quick =
                F::whole || (OG_V > 1 && og_is_full(span) && og_loads0::is_aligned(a, at));
            og_loads0::load(a, at, is_quick, span, to.x[r][v]);
        }
    }
    return to;
}

/* ---- runs -------------------------------------------------------------------------------- */

#if OG_REDUCES
/* s[r] = the reductions P of row r over the run that the thread has a part of; every thread's.
 * The tree of a run's columns grows over a vector's elements, then over lanes and vectors, those
 * that are neighbours first, then, in F::meet(), over warps. */
template <class P, class F>
OG_FN void og_reduce_runs(const og_args &a, const F &f, const typename P::peaks (&peaks)[F::rows],
                          const og_pass0::values (&y)[F::rows][F::vectors][OG_V],
                          typename P::sums (&s)[F::rows])
{
    const bool are_beside = F::apart == OG_V; /* the vectors */
    og_row none;
#pragma unroll
    for (int r = 0; r < F::rows; r++) {
        typename P::sums sums[F::vectors];
#pragma unroll
        for (int v = 0; v < F::vectors; v++) {
            typename P::sums elements[OG_V];
#pragma unroll
            for (int j = 0; j < OG_V; j++) {
                elements[j] = P::neutral();
                if (f.n + F::apart * v + j < a.n)
                    P::add(elements[j], none, peaks[r], y[r][v][j]);
            }
            og_grow_tree<P, OG_V>(elements);
            sums[v] = elements[0];
        }
        if (are_beside)
            og_grow_tree<P, F::vectors>(sums);
#pragma unroll
        for (int v = 0; v < (are_beside ? 1 : F::vectors); v++)
            F::template grow<P>(sums[v]);
        if (!are_beside)
            og_grow_tree<P, F::vectors>(sums);
        s[r] = sums[0];
    }
    F::template meet<P>(f, s);
}
#endif

/* y: what pass 0 has computed for a fragment. */
template <class F>
OG_FN void og_end_runs(const og_args &a, const F &f,
                       const og_pass0::values (&y)[F::rows][F::vectors][OG_V])
{
#if OG_REDUCES
    const og_none none[F::rows] = {};
    og_sums0::sums s[F::rows];
    og_reduce_runs<og_sums0>(a, f, none, y, s);
#if OG_TERMS
    og_terms0::sums terms[F::rows];
    og_reduce_runs<og_terms0>(a, f, s, y, terms);
#endif
#pragma unroll
    for (int r = 0; r < F::rows; r++) {
        const bool writes = F::writes(f, a, r);
#if OG_ENDS_ROWS
        og_offsets at = og_start();
        og_row row;
        og_seek_rows(a, F::row(f, r), at);
        og_sums0::finish(a, s[r], row);
#if OG_TERMS
        og_terms0::finish(a, terms[r], row);
#endif
        og_rows0(a, at, 0, writes, row);
#else
        const og_index at = F::row(f, r) * a.partials + F::run(f);
        if (writes)
            ((og_sums0::sums *)a.sums0)[at] = s[r];
#if OG_TERMS
        if (writes)
            ((og_terms0::sums *)a.terms0)[at] = terms[r];
#endif
#endif
    }
#endif
}

/* ---- the finisher ------------------------------------------------------------------------ */

/* Pass 0 on vector v of row r, for which x was read. */
template <class F>
OG_FN void og_compute(const og_args &a, const F &f, int r, int v, const og_loads0 &x,
                      og_pass0::values (&y)[OG_V])
{
    og_row none;
    og_kept kept = f.kept[v];
#pragma unroll
    for (int j = 0; j < OG_V; j++) {
#pragma unroll
        for (int p = 0; p < OG_PRODUCTS; p++)
            kept.product[p] = F::sum(f, p, r, v, j);
        og_pass0::compute(a, none, kept, x, j, y[j]);
    }
}

/* All that was read is used before the first element is stored. */
template <class F>
OG_FN void og_finish_fragment(const og_args &a, const F &f, const og_reads<F> &from)
{
    og_pass0::values y[F::rows][F::vectors][OG_V];
    og_row none;
#pragma unroll
    for (int r = 0; r < F::rows; r++)
#pragma unroll
        for (int v = 0; v < F::vectors; v++)
            og_compute(a, f, r, v, from.x[r][v], y[r][v]);
#pragma unroll
    for (int r = 0; r < F::rows; r++)
#pragma unroll
        for (int v = 0; v < F::vectors; v++) {
            const og_offsets at = og_find_vector(a, from, r, v);
            if (F::whole) /* without a branch at each store the compiler computes all at once */
                og_pass0::store_whole(a, at, &none, y[r][v]);
            else
                og_pass0::store(a, at, F::span(f, a, r, v), &none, y[r][v]);
        }
    og_end_runs(a, f, y);
}

template <class F> OG_FN void og_finish_fragment(const og_args &a, const F &f)
{
    og_finish_fragment(a, f, og_read(a, f));
}

/* ---- vectors of a row -------------------------------------------------------------------- */

/* OG_V neighbouring sums of a product. */
struct alignas(OG_V * sizeof(og_number) < 16 ? OG_V * sizeof(og_number) : 16) og_vector_sums {
    og_number e[OG_V];
};

/* The fragment of most kernels: vectors of one row, 32 columns apart. Neighbouring threads have
 * neighbouring vectors, so that 32 / OG_V threads have a run where each has two. */
template <int count, bool is_whole = false> struct og_row_part {
    enum { rows = 1, vectors = count, apart = 32, lanes = 32 / OG_V };
    static const bool whole = is_whole;

    og_index index, n;
    bool there; /* else the thread takes part and writes nothing */
    og_kept kept[vectors];
    og_vector_sums sums[OG_PRODUCTS][vectors];

    OG_FN og_offsets find(const og_row_part &f, const og_args &a, int)
    {
        og_offsets at = og_start();
        og_seek_rows(a, f.index, at);
        if (!OG_LINES)
            og_step_row(a, f.n, at);
        return at;
    }
    OG_FN og_offsets column(const og_row_part &f, const og_args &a, int v)
    {
        og_offsets at = og_start();
        og_step_row(a, og_clamp_column(a, f.n + apart * v), at);
        return at;
    }
    OG_FN og_span span(const og_row_part &f, const og_args &a, int, int v)
    {
        return f.there ? og_find_columns(a, f.n + apart * v) : og_span_of(f.n + apart * v, 0);
    }
    OG_FN og_number sum(const og_row_part &f, int p, int, int v, int j)
    {
        return f.sums[p][v].e[j];
    }
    template <class P> OG_FN void grow(typename P::sums &s)
    {
        og_grow_over_warp<P, lanes>(s);
    }
    template <class P> OG_FN void meet(const og_row_part &, typename P::sums (&s)[rows])
    {
        s[0] = P::first(s[0], lanes);
    }
    OG_FN og_index row(const og_row_part &f, int)
    {
        return f.index;
    }
    OG_FN og_index run(const og_row_part &f)
    {
        return f.n / OG_RUN;
    }
    OG_FN bool writes(const og_row_part &f, const og_args &a, int)
    {
        return f.there && threadIdx.x % lanes == 0 && (whole || f.n < a.n);
    }
};

/* A thread's vectors of row m of product `base` of the batch, the first at column n. */
template <int vectors>
OG_FN void og_finish_row(const og_args &a, og_index base, og_index m, og_index n,
                         const og_vector_sums (&sums)[OG_PRODUCTS][vectors])
{
    og_row_part<vectors> f;
    f.there = m < a.m;
    f.index = base * a.m + (f.there ? m : a.m - 1);
    f.n = n;
    og_load_kept<32, false>(a, n, f.kept);
#pragma unroll
    for (int p = 0; p < OG_PRODUCTS; p++)
#pragma unroll
        for (int v = 0; v < vectors; v++)
            f.sums[p][v] = sums[p][v];
    og_finish_fragment(a, f);
}
