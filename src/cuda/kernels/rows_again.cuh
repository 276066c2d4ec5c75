/* SPDX-License-Identifier: MIT
 *
 * rows_again.cuh - a pass with a guard (plan.h) over rows that were reduced in chunks. As a rule no
 * row needs it, so it has no launch: whoever combines the sums of the pass before it goes through
 * the rows that do, one chunk after the other, with all threads of its block. That is slow, and no
 * other row waits for it.
 */
#include "cuda/kernels/combine.cuh"
#include "cuda/kernels/rows_split.cuh"

/* The sums of a chunk, in the order OG_ROWS, right in every thread of a block of any size. */
template <class P>
OG_FN typename P::sums og_reduce_slowly(const og_args &a, og_group g, const og_row &row)
{
    enum { COUNT = OG_VECTORS * OG_GROUP, FLIGHT = 4 };
    __shared__ typename P::sums of[COUNT];
    const int threads = (int)blockDim.x;
    const bool aligned = P::sweep::loads::is_aligned(a, g.at);
    for (int t = (int)threadIdx.x; t < COUNT; t += threads) {
        typename P::sums lanes[OG_V];
        const int j = t / OG_GROUP;
        g.thread = t % OG_GROUP;
#pragma unroll
        for (int i = 0; i < OG_V; i++)
            lanes[i] = P::neutral();
#pragma unroll 1
        for (int first = 0; first * OG_WIDTH < g.n; first += FLIGHT) {
            og_kept kept;
            typename P::sweep::loads x[FLIGHT];
#pragma unroll
            for (int f = 0; f < FLIGHT; f++)
                og_fetch(a, g, first + f, j, aligned, x[f]);
#pragma unroll
            for (int f = 0; f < FLIGHT; f++) {
                typename P::sweep::values y[1][OG_V];
                og_compute_all<typename P::sweep, 1>(a, &row, 0, &kept, 0, x + f, y);
#pragma unroll
                for (int i = 0; i < OG_V; i++)
                    if (og_element(g, first + f, j) + i < g.n)
                        P::add(lanes[i], row, og_none(), y[0][i]);
            }
        }
        og_grow_tree<P, OG_V>(lanes);
        of[t] = lanes[0];
    }
    __syncthreads();
    for (int delta = 1; delta < COUNT; delta *= 2) {
        for (int t = (int)threadIdx.x * 2 * delta; t + delta < COUNT; t += threads * 2 * delta)
            P::merge(of[t], of[t + delta]);
        __syncthreads();
    }
    typename P::sums s = of[0];
    __syncthreads();
    return s;
}

/* The sums of a pass with a guard over the row that g combines, where `again` says that it needs
 * them. scratch: room for those of chunks. */
template <class P>
OG_FN typename P::sums og_combine_again(const og_args &a, const og_combined &g, const og_row &row,
                                        void *scratch, bool again)
{
    __shared__ og_row needy;
    __shared__ og_index index;
    og_partial_sums<P> from;
    if (!__syncthreads_or(again))
        return P::neutral();
#pragma unroll 1
    for (int k = 0; k < OG_COMBINE_THREADS / OG_COMBINERS; k++) {
        const bool own = (int)threadIdx.x / OG_COMBINERS == k;
        if (!__syncthreads_or(own && again))
            continue;
        if (own && g.thread == 0) {
            needy = row;
            index = g.row;
        }
        __syncthreads();
#pragma unroll 1
        for (og_index chunk = 0; chunk < a.chunks.extent; chunk++) {
            typename P::sums s = og_reduce_slowly<P>(a, og_chunk_of(a, index, chunk), needy);
            if (threadIdx.x == 0)
                ((typename P::sums *)scratch)[index * a.partials + chunk] = s;
        }
    }
    __syncthreads();
    if (!again)
        return P::neutral();
    from.own = (typename P::sums *)scratch + g.row * a.partials;
    return og_combine<P>(from, g.thread, a.chunks.extent);
}
