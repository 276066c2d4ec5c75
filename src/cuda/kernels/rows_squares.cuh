/* SPDX-License-Identifier: MIT
 *
 * rows_squares.cuh - sums and squares (squares.cuh) of chunks, in one traversal (rows.cuh), and of
 * rows, by those of their chunks (combine.cuh).
 *
 * A lane's moments are about its first element, so nothing waits for a mean: instance_norm of 7168
 * rows of 512 x 512 reads memory twice, not three times.
 */
#include "cuda/kernels/combine.cuh"
#include "cuda/kernels/lane_squares.cuh"
#include "cuda/kernels/rows_split.cuh"

/* The chunk's sums s and squares q, right in every thread of its block. */
template <class P, class Q>
OG_FN void og_reduce_with_squares(const og_args &a, const og_group &g, const og_row &row,
                                  og_kept_row &kept, typename P::sums &s, typename Q::sums &q)
{
    typedef og_with_squares<P, Q> both;
    const bool aligned = P::sweep::loads::is_aligned(a, g.at) &&
                         (!P::stores || P::sweep::is_aligned(a, g.at));
    typename both::sums lanes[OG_VECTORS][OG_V];
    og_kept none;
    og_begin_lanes<P, Q>(a, g, row, aligned, none, lanes);
    if (aligned)
        og_reduce_all<both, true>(a, g, row, og_none(), kept, lanes);
    else
        og_reduce_all<both, false>(a, g, row, og_none(), kept, lanes);
    og_settle_lanes<P, Q>(g, lanes, s, q);
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
