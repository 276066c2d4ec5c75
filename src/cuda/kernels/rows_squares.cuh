/* SPDX-License-Identifier: MIT
 *
 * rows_squares.cuh - sums and squares (squares.cuh) of chunks, in one traversal (rows.cuh), and of
 * rows, by those of their chunks (combine.cuh).
 *
 * A lane's moments are about its first element, so nothing waits for a mean: instance_norm of 7168
 * rows of 512 x 512 reads memory twice, not three times.
 */
#include "cuda/kernels/combine.cuh"
#include "cuda/kernels/rows_split.cuh"
#include "cuda/kernels/squares.cuh"

/* Moments of the thread's lanes about the elements of step 0; a lane without one has none. */
template <class P, class Q>
OG_FN void og_begin_lanes(const og_args &a, const og_group &g, const og_row &row, bool aligned,
                          typename og_with_squares<P, Q>::sums (&lanes)[OG_VECTORS][OG_V])
{
    og_kept kept;
    typename P::sweep::loads x;
    typename P::sweep::values y[1][OG_V];
    og_fetch(a, g, 0, 0, aligned, x);
    og_compute_all<typename P::sweep, 1>(a, &row, 0, &kept, 0, &x, y);
#pragma unroll
    for (int i = 0; i < OG_V; i++) {
        lanes[0][i].s = P::neutral();
        lanes[0][i].m = Q::none();
        if (og_is_whole(0) || og_element(g, 0, 0) + i < g.n)
            Q::begin(lanes[0][i].m, row, y[0][i]);
    }
}

/* The chunk's sums s and squares q, right in every thread of its block. */
template <class P, class Q>
OG_FN void og_reduce_with_squares(const og_args &a, const og_group &g, const og_row &row,
                                  og_kept_row &kept, typename P::sums &s, typename Q::sums &q)
{
    typedef og_with_squares<P, Q> both;
    const bool aligned = P::sweep::loads::is_aligned(a, g.at) &&
                         (!P::stores || P::sweep::is_aligned(a, g.at));
    typename both::sums lanes[OG_VECTORS][OG_V];
    typename P::sums sums[OG_V];
    typename Q::sums squares[OG_V];
    og_begin_lanes<P, Q>(a, g, row, aligned, lanes);
    if (aligned)
        og_reduce_all<both, true>(a, g, row, og_none(), kept, lanes);
    else
        og_reduce_all<both, false>(a, g, row, og_none(), kept, lanes);
#pragma unroll
    for (int i = 0; i < OG_V; i++)
        sums[i] = lanes[0][i].s;
    og_grow_tree<P, OG_V>(sums);
    og_grow_over_warp<P, OG_WARP>(sums[0]);
    s = og_grow_over_block<P, OG_GROUP / 32>(sums[0]);
#pragma unroll
    for (int i = 0; i < OG_V; i++) {
        const int rest = g.n - og_element(g, 0, 0) - i; /* from the lane's first element on */
        squares[i] = Q::neutral();
        if (rest > 0)
            squares[i] = Q::settle(lanes[0][i].m, s, (rest + OG_WIDTH - 1) / OG_WIDTH, g.n);
    }
    og_grow_tree<Q, OG_V>(squares);
    og_grow_over_warp<Q, OG_WARP>(squares[0]);
    q = og_grow_over_block<Q, OG_GROUP / 32>(squares[0]);
}

/* The squares of chunk i of a row, about the row's mean. */
template <class P, class Q> struct og_partial_squares {
    typename Q::sums *own;
    const typename P::sums *sums; /* of chunks */
    typename P::sums all;         /* of the row */
    og_index n;
    OG_FN typename Q::sums get(const og_partial_squares &from, og_index i)
    {
        typename Q::sums s = from.own[i];
        const og_index rest = from.n - i * OG_CHUNK;
        Q::shift(s, from.sums[i], rest < OG_CHUNK ? rest : OG_CHUNK, from.all, from.n);
        return s;
    }
};
