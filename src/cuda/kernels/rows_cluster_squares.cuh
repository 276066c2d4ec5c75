/* SPDX-License-Identifier: MIT
 *
 * rows_cluster_squares.cuh - sums and squares (squares.cuh) of chunks in a cluster's shared memory
 * (rows_cluster.cuh), in one traversal.
 */
#include "cuda/kernels/lane_squares.cuh"
#include "cuda/kernels/rows_cluster.cuh"

/* The chunk's sums and squares, right in all its threads. first, last: see og_add_part(). */
template <class P, class Q, bool first, bool last>
OG_FN typename P::sums og_reduce_part_with_squares(const og_args &a, const og_group &g,
                                                   const og_row &row, og_held_row &held,
                                                   og_shelf *shelves, const og_next_row &next,
                                                   typename Q::sums &squares)
{
    const bool aligned = og_is_aligned_part<P>(a, g);
    typename og_with_squares<P, Q>::sums lanes[1][OG_V];
    og_kept kept;
    if (first)
        og_wait_for_batches(3);
    if (OG_HELD > 0)
        kept = held.of[0];
    else
        og_shelf::take(shelves[0], kept);
    og_begin_lanes<P, Q>(a, g, row, aligned, kept, lanes);
    og_add_part<og_with_squares<P, Q>, first, last>(a, g, row, og_none(), aligned, held, shelves,
                                                    next, lanes[0]);
    typename P::sums s;
    og_settle_lanes<P, Q, OG_PARTS>(g, lanes, s, squares);
    return s;
}
