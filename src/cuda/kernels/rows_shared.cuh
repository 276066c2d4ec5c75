/* SPDX-License-Identifier: MIT
 *
 * rows_shared.cuh - rows that are too long to be kept in registers stay in shared
 * memory from pass to pass. A block takes a row at a time, of OG_PARTS chunks, each a group
 * of threads (rows.cuh), and one row after the other. What a thread needs of a row, it
 * copies itself; as soon as the last pass has taken it, the next row's is on its way there.
 * A row that is too long for a block is a cluster's (rows_cluster.cuh).
 *
 * PARAMETERS, besides those of rows.cuh, where OG_VECTORS is 1 and OG_KEEPS 0
 *   OG_CLUSTER  blocks that share a row, or 1
 *   OG_PARTS    chunks of a row that a block has; the last may be shorter, or of a cluster missing
 *   OG_JOINED   the power of two that holds them
 *   OG_HELD     steps, from the first, that stay in registers: shared memory has no room
 *   OG_BLOCKS   blocks that a multiprocessor should hold
 *   a.shelved   steps in shared memory, a multiple of OG_FLIGHT
 *   a.quarter   steps of a batch of copies, too; four batches, of which the last may be shorter
 */
#include "cuda/kernels/rows.cuh"
#include "cuda/kernels/shelves.cuh"

struct og_held_row {
    og_kept of[OG_HELD ? OG_HELD : 1];
};

/* The row that comes after a block's row. */
struct og_next_row {
    og_group g;
    bool more; /* is there such a row? */
};

OG_FN og_group og_find_part(const og_args &a, og_index row)
{
    og_group g;
    g.row = row;
    g.from = (og_index)(blockIdx.x % OG_CLUSTER * OG_PARTS + threadIdx.x / OG_GROUP) * OG_CHUNK;
    g.n = a.n - g.from < OG_CHUNK ? (int)(a.n - g.from) : OG_CHUNK;
    if (OG_CLUSTER > 1 && a.n < g.from)
        g.n = 0;
    g.at = og_start();
    og_seek_rows(a, row, g.at);
    if constexpr (OG_FLAT) {
        og_step_row(a, g.from, g.at);
        g.from = 0;
    }
    g.thread = threadIdx.x % OG_GROUP;
    g.writes = threadIdx.x == 0 && blockIdx.x % OG_CLUSTER == 0;
    return g;
}

OG_FN og_next_row og_find_next_row(const og_args &a, og_index row)
{
    og_next_row t;
    t.more = row < a.rows;
    t.g = og_find_part(a, t.more ? row : a.rows - 1);
    return t;
}

/* Starts to copy a step of a row. plain: the row has all its elements, and all pointers are
 * aligned. */
template <bool plain>
OG_FN void og_shelve(const og_args &a, const og_group &g, int step, og_shelf *shelves)
{
    int element = og_element(g, step, 0);
    og_span span = og_own_part_of(g, step, element);
    bool whole = plain || (og_is_full(span) && og_kept::is_aligned(a, g.at));
    og_shelf::copy(a, og_place(a, g, step, element), whole, span, shelves[step - OG_HELD]);
}

OG_FN int og_batch_end(const og_args &a, int batch)
{
    int end = (batch + 1) * (int)a.quarter;
    return end < (int)a.shelved ? end : (int)a.shelved;
}

/* Starts to copy the first row of a block. */
OG_FN void og_shelve_row(const og_args &a, const og_group &g, og_held_row &held, og_shelf *shelves)
{
#pragma unroll
    for (int step = 0; step < OG_HELD; step++)
        og_fetch(a, g, step, 0, og_kept::is_aligned(a, g.at), held.of[step]);
#pragma unroll 1
    for (int batch = 0; batch < 4; batch++) {
        int end = og_batch_end(a, batch);
#pragma unroll 4
        for (int step = batch * (int)a.quarter; step < end; step++)
            og_shelve<false>(a, g, OG_HELD + step, shelves);
        og_end_batch();
    }
}

/* Reduces OG_FLIGHT steps, from `first` on, of which k is kept. */
template <class P, bool plain>
OG_FN void og_reduce_kept(const og_args &a, const og_group &g, const og_row &row,
                          const typename P::peaks &peaks, int first, og_kept *k,
                          typename P::sums (&lanes)[OG_V])
{
    typename P::sweep::loads x[OG_FLIGHT];
    og_span all = {0, OG_V};
#pragma unroll
    for (int step = 0; step < OG_FLIGHT; step++)
        if constexpr (plain)
            P::sweep::loads::load(a, og_place(a, g, first, og_element(g, first + step, 0)), true,
                                 all, x[step]);
        else
            og_fetch(a, g, first + step, 0, P::sweep::loads::is_aligned(a, g.at), x[step]);
    OG_AFTER_LOADS();
    typename P::sweep::values y[OG_FLIGHT][OG_V];
    og_compute_all<typename P::sweep, OG_FLIGHT>(a, &row, 0, k, 1, x, y);
#pragma unroll
    for (int u = 0; u < OG_FLIGHT; u++) {
        int step = first + u, element = og_element(g, step, 0);
#pragma unroll
        for (int i = 0; i < OG_V; i++) {
            if (!plain && element + i >= g.n)
                continue;
            P::add(lanes[i], row, peaks, y[u][i]);
            if constexpr (P::keeps)
                P::keep(k[u], i, peaks, y[u][i]);
        }
        if constexpr (P::stores && plain)
            P::sweep::store_whole(a, og_place(a, g, step, element), &row, y[u]);
        else if constexpr (P::stores)
            P::sweep::store(a, og_place(a, g, step, element), og_own_part_of(g, step, element), &row,
                           y[u]);
    }
}

/* Reduces such steps of a row in shared memory. last: they make room for the next row's. */
template <class P, bool last, bool plain>
OG_FN void og_reduce_shelved(const og_args &a, const og_group &g, const og_row &row,
                             const typename P::peaks &peaks, int first, og_shelf *shelves,
                             const og_next_row &next, typename P::sums (&lanes)[OG_V])
{
    og_kept k[OG_FLIGHT];
#pragma unroll
    for (int s = 0; s < OG_FLIGHT; s++)
        og_shelf::take(shelves[first - OG_HELD + s], k[s]);
    og_reduce_kept<P, plain>(a, g, row, peaks, first, k, lanes);
    if constexpr (P::keeps)
#pragma unroll
        for (int s = 0; s < OG_FLIGHT; s++)
            og_shelf::put(k[s], shelves[first - OG_HELD + s]);
    if (last && next.more)
#pragma unroll
        for (int s = 0; s < OG_FLIGHT; s++)
            og_shelve<plain>(a, next.g, first + s, shelves);
}

/* Are all pointers to the row that pass P goes by? */
template <class P> OG_FN bool og_is_aligned_part(const og_args &a, const og_group &g)
{
    return og_kept::is_aligned(a, g.at) && P::sweep::loads::is_aligned(a, g.at) &&
           (!P::stores || P::sweep::is_aligned(a, g.at));
}

/* Adds a chunk to lanes. first: of a row, so that it may still be under way; last: nothing is
 * needed any more but the next row. */
template <class P, bool first, bool last>
OG_FN void og_add_part(const og_args &a, const og_group &g, const og_row &row,
                       const typename P::peaks &peaks, bool aligned, og_held_row &held,
                       og_shelf *shelves, const og_next_row &next,
                       typename P::sums (&lanes)[OG_V])
{
    if constexpr (OG_HELD > 0) {
#pragma unroll
        for (int step = 0; step < OG_HELD; step += OG_FLIGHT) {
            if (aligned && (step + OG_FLIGHT) * OG_WIDTH <= g.n)
                og_reduce_kept<P, true>(a, g, row, peaks, step, held.of + step, lanes);
            else
                og_reduce_kept<P, false>(a, g, row, peaks, step, held.of + step, lanes);
            if (last && next.more)
#pragma unroll
                for (int s = step; s < step + OG_FLIGHT; s++)
                    og_fetch(a, next.g, s, 0, og_kept::is_aligned(a, next.g.at), held.of[s]);
        }
    }
#pragma unroll 1
    for (int batch = 0; batch < 4; batch++) {
        int end = OG_HELD + og_batch_end(a, batch);
        if (first)
            og_wait_for_batches(3 - batch);
#pragma unroll 1
        for (int at = OG_HELD + batch * (int)a.quarter; at < end; at += OG_FLIGHT) {
            if (aligned && (at + OG_FLIGHT) * OG_WIDTH <= g.n)
                og_reduce_shelved<P, last, true>(a, g, row, peaks, at, shelves, next, lanes);
            else if (at * OG_WIDTH < g.n)
                og_reduce_shelved<P, last, false>(a, g, row, peaks, at, shelves, next, lanes);
        }
        if (last)
            og_end_batch();
    }
}

/* The reductions of a chunk, right in all its threads. */
template <class P, bool first, bool last>
OG_FN typename P::sums og_reduce_part(const og_args &a, const og_group &g, const og_row &row,
                                      const typename P::peaks &peaks, og_held_row &held,
                                      og_shelf *shelves, const og_next_row &next)
{
    const bool aligned = og_is_aligned_part<P>(a, g);
    typename P::sums lanes[OG_V];
#pragma unroll
    for (int i = 0; i < OG_V; i++)
        lanes[i] = P::neutral();
    og_add_part<P, first, last>(a, g, row, peaks, aligned, held, shelves, next, lanes);
    if constexpr (P::count == 0) {
        return P::neutral();
    } else {
        og_grow_tree<P, OG_V>(lanes);
        og_grow_over_warp<P, 32>(lanes[0]);
        typename P::sums s = og_grow_over_block<P, OG_GROUP / 32, OG_PARTS>(lanes[0]);
        P::mend(s, peaks);
        return s;
    }
}

/* The same from memory, of a pass with a guard: what is kept may be the next row's by now. */
template <class P>
OG_FN typename P::sums og_reduce_part_again(const og_args &a, const og_group &g, const og_row &row)
{
    enum { FLIGHT = 2 * OG_FLIGHT };
    const bool aligned = og_kept::is_aligned(a, g.at) && P::sweep::loads::is_aligned(a, g.at);
    typename P::sums lanes[OG_V];
#pragma unroll
    for (int i = 0; i < OG_V; i++)
        lanes[i] = P::neutral();
#pragma unroll 1
    for (int first = 0; first * OG_WIDTH < g.n; first += FLIGHT) {
        og_kept kept[FLIGHT];
        typename P::sweep::loads x[FLIGHT];
        typename P::sweep::values y[FLIGHT][OG_V];
#pragma unroll
        for (int f = 0; f < FLIGHT; f++) {
            og_fetch(a, g, first + f, 0, aligned, kept[f]);
            og_fetch(a, g, first + f, 0, aligned, x[f]);
        }
        og_compute_all<typename P::sweep, FLIGHT>(a, &row, 0, kept, 1, x, y);
#pragma unroll
        for (int f = 0; f < FLIGHT; f++)
#pragma unroll
            for (int i = 0; i < OG_V; i++)
                if (og_element(g, first + f, 0) + i < g.n)
                    P::add(lanes[i], row, og_none(), y[f][i]);
    }
    og_grow_tree<P, OG_V>(lanes);
    og_grow_over_warp<P, 32>(lanes[0]);
    typename P::sums s = og_grow_over_block<P, OG_GROUP / 32, OG_PARTS>(lanes[0]);
    P::mend(s, og_none());
    return s;
}

/* The sums of all chunks, from those of the thread's own. */
template <class P>
OG_FN typename P::sums og_join_chunks(const og_group &g, const typename P::sums &s)
{
    if constexpr (OG_PARTS == 1 || P::count == 0) {
        return s;
    } else {
        __shared__ typename P::sums shared[OG_PARTS];
        typename P::sums all[OG_JOINED];
        if (g.thread == 0)
            shared[threadIdx.x / OG_GROUP] = s;
        __syncthreads();
#pragma unroll
        for (int p = 0; p < OG_JOINED; p++)
            all[p] = p < OG_PARTS ? shared[p < OG_PARTS ? p : 0] : P::neutral();
        og_grow_tree<P, OG_JOINED>(all);
        return all[0];
    }
}

/* The terms of all chunks, from those of the thread's own: its peaks are `peaks`, the row's are
 * `most`. */
template <class P>
OG_FN typename P::sums og_join_terms(const og_group &g, typename P::sums s,
                                     const typename P::peaks &peaks, const typename P::peaks &most)
{
    if constexpr (OG_PARTS > 1)
        P::scale(s, peaks, most);
    return og_join_chunks<P>(g, s);
}
