/* SPDX-License-Identifier: MIT
 *
 * lane_squares.cuh - the lanes of a chunk (rows.cuh) that has both sums and squares (squares.cuh).
 */
#include "cuda/kernels/rows.cuh"
#include "cuda/kernels/squares.cuh"

/* Moments of the thread's lanes about the elements of step 0, of which kept is kept; a lane without
 * one has none. */
template <class P, class Q>
OG_FN void og_begin_lanes(const og_args &a, const og_group &g, const og_row &row, bool aligned,
                          const og_kept &kept,
                          typename og_with_squares<P, Q>::sums (&lanes)[OG_VECTORS][OG_V])
{
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

/* What lanes come to: the chunk's sums s and squares q, right in all its threads. A block has
 * `groups` chunks. */
template <class P, class Q, int groups = 1>
OG_FN void og_settle_lanes(const og_group &g,
                           const typename og_with_squares<P, Q>::sums (&lanes)[OG_VECTORS][OG_V],
                           typename P::sums &s, typename Q::sums &q)
{
    typename P::sums sums[OG_V];
    typename Q::sums squares[OG_V];
#pragma unroll
    for (int i = 0; i < OG_V; i++)
        sums[i] = lanes[0][i].s;
    og_grow_tree<P, OG_V>(sums);
    og_grow_over_warp<P, OG_WARP>(sums[0]);
    s = og_grow_over_block<P, OG_GROUP / 32, groups>(sums[0]);
#pragma unroll
    for (int i = 0; i < OG_V; i++) {
        const int rest = g.n - og_element(g, 0, 0) - i; /* from the lane's first element on */
        squares[i] = Q::neutral();
        if (rest > 0)
            squares[i] = Q::settle(lanes[0][i].m, s, (rest + OG_WIDTH - 1) / OG_WIDTH, g.n);
    }
    og_grow_tree<Q, OG_V>(squares);
    og_grow_over_warp<Q, OG_WARP>(squares[0]);
    q = og_grow_over_block<Q, OG_GROUP / 32, groups>(squares[0]);
}
