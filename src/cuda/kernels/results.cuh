/* SPDX-License-Identifier: MIT
 *
 * results.cuh - what a pass stores. A pass is a struct, emitted:
 *
 *     struct og_values0 { float v5; };               of one element: what is stored or reduced
 *     struct og_pass0 : og_results<og_values0, og_result<2, &og_values0::v5>> {
 *         typedef og_loads<0, 1> loads;              the operands that its elements read
 *         static void compute(...)                   the formula, for element i of a vector
 *     };
 *
 * PARAMETERS
 *   OG_SEVERAL_ROWS  1: a vector has elements of OG_V rows, and so have values that are a row's
 */
#include "cuda/kernels/operands.cuh"

/* A value, an element's or its row's, by its member. */
template <class T, class Values>
OG_FN T og_take(const og_row *, const Values *y, int i, T Values::*member)
{
    return y[i].*member;
}

template <class T, class Values>
OG_FN T og_take(const og_row *row, const Values *, int i, T og_row::*member)
{
    return row[OG_SEVERAL_ROWS ? i : 0].*member;
}

/* Operand n becomes the value. */
template <int n, auto value> struct og_result {
    enum { is_unit = og_operand<n>::motion == OG_UNIT };
    typedef og_pack<og_stored<n>> pack;

    OG_FN og_stored<n> *place(const og_args &a, const og_offsets &at)
    {
        return og_address<n>(a, at);
    }

    template <class Values> OG_FN pack make(const og_row *row, const Values *y)
    {
        pack x;
#pragma unroll
        for (int i = 0; i < OG_V; i++)
            x.e[i] = og_operand<n>::narrow(og_take(row, y, i, value));
        return x;
    }

    OG_FN bool is_aligned(const og_args &a, const og_offsets &at)
    {
        return og_is_in_place<n>(a, at);
    }

    OG_FN void put_whole(const og_args &a, const og_offsets &at, const pack &x)
    {
        if constexpr (is_unit)
            og_store_pack(place(a, at), x);
    }

    OG_FN void put_part(const og_args &a, const og_offsets &at, const og_span &span, const pack &x)
    {
        if constexpr (is_unit)
            og_scatter(place(a, at), 1, span, x);
    }

    /* Along other dims than neighbours' elements go one by one. */
    OG_FN void put_apart(const og_args &a, const og_offsets &at, const og_span &span, const pack &x)
    {
        if constexpr (!is_unit)
            og_scatter(place(a, at), og_stride<n, OG_VECTOR_DIM>(a), span, x);
    }
};

/* All that a pass stores. */
template <class Values, class... Result> struct og_results {
    typedef Values values;

    OG_FN bool is_aligned(const og_args &a, const og_offsets &at)
    {
        return (true && ... && Result::is_aligned(a, at));
    }

    OG_FN void put(const og_args &a, const og_offsets &at, const og_span &span,
                   const typename Result::pack &...x)
    {
        if constexpr ((false || ... || Result::is_unit)) {
            if (is_aligned(a, at) && og_is_full(span))
                (Result::put_whole(a, at, x), ...);
            else
                (Result::put_part(a, at, span, x), ...);
        }
        (Result::put_apart(a, at, span, x), ...);
    }

    /* span of a vector, y[i] being element i. */
    OG_FN void store(const og_args &a, const og_offsets &at, const og_span &span, const og_row *row,
                     const Values *y)
    {
        put(a, at, span, Result::make(row, y)...);
    }

    OG_FN void put_all(const og_args &a, const og_offsets &at, const typename Result::pack &...x)
    {
        const og_span span = {0, OG_V};
        (Result::put_whole(a, at, x), ...);
        (Result::put_apart(a, at, span, x), ...);
    }

    /* store() of a full vector where is_aligned() was true, without branches. */
    OG_FN void store_whole(const og_args &a, const og_offsets &at, const og_row *row,
                           const Values *y)
    {
        put_all(a, at, Result::make(row, y)...);
    }
};

/* The vector that a pass of one result stores, and where it goes. */
template <class Values, class Result> struct og_one_result : og_results<Values, Result> {
    OG_FN typename Result::pack pack(const Values *y)
    {
        return Result::make((const og_row *)0, y);
    }

    OG_FN auto place(const og_args &a, const og_offsets &at)
    {
        return Result::place(a, at);
    }
};

/* What a pass computes of `count` vectors: of kept[v * apart] and x[v], element i with
 * row[i * each]. */
template <class Sweep, int count>
OG_FN void og_compute_all(const og_args &a, const og_row *row, int each, const og_kept *kept,
                          int apart, const typename Sweep::loads *x,
                          typename Sweep::values (*y)[OG_V])
{
#pragma unroll
    for (int v = 0; v < count; v++)
#pragma unroll
        for (int i = 0; i < OG_V; i++)
            Sweep::compute(a, row[i * each], kept[v * apart], x[v], i, y[v][i]);
}
