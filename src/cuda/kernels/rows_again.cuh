/* SPDX-License-Identifier: MIT
 *
 * rows_again.cuh - a pass with a guard (plan.h) over rows that were reduced in chunks. As a rule no
 * row needs it, so it has no launch: whoever combines the sums of the pass before it goes through
 * the rows that do. For few rows the launch has several times the blocks: all that have a row combine
 * it, and so know whether it is needed; they share its chunks then, and who ends last has the result.
 * std of 16 x 4194304 zeros is read twice on an H200, not by four blocks in 3.9 ms.
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

/* A row that several blocks may combine. */
struct og_shared_row : og_combined {
    og_index first; /* row of the block */
    uint32_t helper, helpers;
    bool may_write; /* is this the thread that writes, if its block does? */
};

OG_FN og_shared_row og_find_shared_row(const og_args &a)
{
    enum { ROWS = OG_COMBINE_THREADS / OG_COMBINERS };
    const uint32_t blocks = (uint32_t)((a.rows + (ROWS - 1)) / ROWS);
    og_shared_row g;
    g.helpers = gridDim.x / blocks;
    g.helper = blockIdx.x / blocks;
    const uint32_t block = blockIdx.x - g.helper * blocks;
    (og_combined &)g = og_find_combined(a, block);
    g.first = (og_index)block * ROWS;
    g.may_write = g.writes;
    g.writes = g.may_write && g.helper == 0;
    return g;
}

/* How many blocks have ended, of those that share a row: behind the sums of its chunks, where sums of
 * chunks of chunks would be. */
template <class P> OG_FN uint32_t *og_tally_of(const og_args &a, void *scratch, og_index row)
{
    return (uint32_t *)((typename P::sums *)scratch + row * a.partials + a.chunks.extent);
}

/* For whoever reduces chunk number `chunk` of the scratch's sums, before the row is combined. */
template <class P>
OG_FN void og_begin_count(const og_args &a, const og_group &g, og_index chunk, void *scratch)
{
    if (g.writes && chunk == g.row * a.partials && a.chunks.extent < a.partials)
        *og_tally_of<P>(a, scratch, g.row) = 0;
}

/* Is this the last of the blocks that share rows? What they have written is seen then. */
template <class P> OG_FN bool og_ends_last(const og_args &a, const og_shared_row &g, void *scratch)
{
    bool last = true;
    if (g.helpers > 1 && threadIdx.x == 0) {
        __threadfence();
        last = atomicInc(og_tally_of<P>(a, scratch, g.first), g.helpers - 1) == g.helpers - 1;
        __threadfence();
    }
    return __syncthreads_and(last);
}

/* The sums of a pass with a guard over the row that g combines, where `again` says that it needs
 * them. scratch: room for those of chunks. Where any row of the block does, the block that has them
 * writes from here on. */
template <class P>
OG_FN typename P::sums og_combine_again(const og_args &a, og_shared_row &g, const og_row &row,
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
        for (og_index chunk = g.helper; chunk < a.chunks.extent; chunk += g.helpers) {
            typename P::sums s = og_reduce_slowly<P>(a, og_chunk_of(a, index, chunk), needy);
            if (threadIdx.x == 0)
                ((typename P::sums *)scratch)[index * a.partials + chunk] = s;
        }
    }
    const bool last = og_ends_last<P>(a, g, scratch);
    g.writes = g.may_write && last;
    if (!again || !last)
        return P::neutral();
    from.own = (typename P::sums *)scratch + g.row * a.partials;
    return og_combine<P>(from, g.thread, a.chunks.extent);
}
