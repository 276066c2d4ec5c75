/* SPDX-License-Identifier: MIT
 *
 * rows.cuh - a group of threads reduces a row of up to OG_CHUNK elements, or one
 * chunk of a longer row, in the order OG_ROWS. Vector j of thread t holds lanes
 * (j * OG_GROUP + t) * OG_V and following; the tree grows inside a vector, over the
 * group's threads, then over vectors.
 *
 * PARAMETERS
 *   OG_GROUP    threads of a group: 1, 2, ... 32, or 64, ... 512, a block
 *   OG_VECTORS  vectors of a thread, 1 if a group is a block
 *               OG_GROUP * OG_VECTORS * OG_V is 512, or the power of two that holds
 *               a shorter row
 *   OG_KEEPS    1: a row is OG_STEPS times that or less, and og_kept of all of it
 *               stays in registers from pass to pass; 0: read again
 *   OG_FLAT     1: the row is one dim
 *   OG_WHOLE    steps, from the first, that have all their elements in every row
 *   OG_FLIGHT   steps whose loads are under way at once, dividing OG_STEPS if OG_KEEPS
 */
#include "cuda/kernels/sums.cuh"

enum { OG_WIDTH = OG_GROUP * OG_VECTORS * OG_V, OG_WARP = OG_GROUP < 32 ? OG_GROUP : 32 };

struct og_group {
    og_index row;
    og_index from; /* the group's first element of the row; 0 if OG_FLAT: then at is there */
    int n;         /* elements of the group, at most OG_CHUNK */
    og_offsets at; /* of the row */
    int thread;    /* in the group */
    bool writes;   /* is this the thread that writes what is the row's? */
};

/* Groups beyond the last row go through the last one, and store nothing: n is 0. */
OG_FN og_group og_find_row(const og_args &a)
{
    og_group g;
    og_index row = (og_index)blockIdx.x * (OG_THREADS / OG_GROUP) + threadIdx.x / OG_GROUP;
    g.row = row < a.rows ? row : a.rows - 1;
    g.from = 0;
    g.n = row < a.rows ? (int)a.n : 0;
    g.at = og_start();
    og_seek_rows(a, g.row, g.at);
    g.thread = threadIdx.x % OG_GROUP;
    g.writes = g.thread == 0 && row < a.rows;
    return g;
}

/* The first element of the thread's vector j in a step, counted from the group's. */
OG_FN int og_element(const og_group &g, int step, int j)
{
    return step * OG_WIDTH + (j * OG_GROUP + g.thread) * OG_V;
}

/* Does a step have all its elements, whatever the row? */
OG_FN bool og_is_whole(int step)
{
    return step < OG_WHOLE;
}

/* Where that vector is; if it has no element, nothing is read there (OG_FLAT), or
 * anywhere in the row. */
OG_FN og_offsets og_place(const og_args &a, const og_group &g, int step, int element)
{
    og_offsets at = g.at;
    if constexpr (OG_FLAT)
        og_step_row(a, element, at);
    else
        og_step_row(a, og_is_whole(step) || element < g.n ? g.from + element : 0, at);
    return at;
}

/* What the row has of that vector. */
OG_FN og_span og_part_of(const og_group &g, int step, int element)
{
    og_span span = og_span_of(element, g.n);
    span.end = og_is_whole(step) ? OG_V : span.end;
    return span;
}

/* What is stored of that vector: nothing if the group is beyond the last row. It is begin that says
 * so, not end: ptxas 13.0 takes min(n, OG_V), or 0 of such a group, for OG_V (VIMNMX.RELU, whose
 * predicate it then branches by), and softmax of 3 elements was NaN on an H200. */
OG_FN og_span og_own_part_of(const og_group &g, int step, int element)
{
    og_span span = og_part_of(g, step, element);
    span.begin = g.n > 0 ? 0 : OG_V;
    return span;
}

/* Loads vector j of a step. aligned: all pointers to the row are. */
template <class Loads>
OG_FN void og_fetch(const og_args &a, const og_group &g, int step, int j, bool aligned, Loads &x)
{
    int element = og_element(g, step, j);
    og_span span = og_part_of(g, step, element);
    Loads::load(a, og_place(a, g, step, element), aligned && og_is_full(span), span, x);
}

struct og_kept_row {
    og_kept of[OG_KEEPS ? OG_STEPS : 1][OG_VECTORS];
};

OG_FN void og_renew_row(og_kept_row &kept)
{
#pragma unroll
    for (int step = 0; step < OG_STEPS; step++)
#pragma unroll
        for (int j = 0; j < OG_VECTORS; j++)
            og_kept::renew(kept.of[step][j]);
}

OG_FN void og_keep_all(const og_args &a, const og_group &g, bool aligned, og_kept_row &kept)
{
#pragma unroll
    for (int step = 0; step < OG_STEPS; step++)
#pragma unroll
        for (int j = 0; j < OG_VECTORS; j++)
            og_fetch(a, g, step, j, aligned, kept.of[step][j]);
    og_renew_row(kept);
}

/* One branch for the row: with one for each load, NVRTC (13.4) issues the loads of both sides,
 * under predicates, and takes halves apart to join them again. layer_norm of 4096x4096 bfloat16
 * on an H200 took 23.8 us, so 21.1. */
OG_FN void og_keep(const og_args &a, const og_group &g, og_kept_row &kept)
{
    if constexpr (OG_KEEPS) {
        if (og_kept::is_aligned(a, g.at))
            og_keep_all(a, g, true, kept);
        else
            og_keep_all(a, g, false, kept);
        OG_AFTER_LOADS();
    }
}

/* Reduces OG_FLIGHT steps: all loads come first. aligned: all pointers to the row are, and
 * there is one. */
template <class P, bool aligned>
OG_FN void og_reduce_steps(const og_args &a, const og_group &g, const og_row &row,
                           const typename P::peaks &peaks, og_kept_row &kept, int first,
                           typename P::sums (&lanes)[OG_VECTORS][OG_V])
{
    typename P::sweep::loads x[OG_FLIGHT][OG_VECTORS];
#pragma unroll
    for (int step = 0; step < OG_FLIGHT; step++)
#pragma unroll
        for (int j = 0; j < OG_VECTORS; j++)
            og_fetch(a, g, first + step, j, aligned, x[step][j]);
    OG_AFTER_LOADS();
#pragma unroll
    for (int v = 0; v < OG_FLIGHT * OG_VECTORS; v++) {
        const int step = first + v / OG_VECTORS, j = v % OG_VECTORS;
        og_kept *k = &kept.of[0][0] + (OG_KEEPS ? first * OG_VECTORS + v : 0);
        typename P::sweep::values y[1][OG_V];
        int element = og_element(g, step, j);
        og_compute_all<typename P::sweep, 1>(a, &row, 0, k, 0, &x[0][0] + v, y);
#pragma unroll
        for (int i = 0; i < OG_V; i++) {
            if (!og_is_whole(step) && element + i >= g.n)
                continue;
            P::add(lanes[j][i], row, peaks, y[0][i]);
            if constexpr (P::keeps)
                P::keep(*k, i, peaks, y[0][i]);
        }
        if constexpr (P::stores) {
            og_offsets at = og_place(a, g, step, element);
            if (aligned && og_is_whole(step))
                P::sweep::store_whole(a, at, &row, y[0]);
            else
                P::sweep::store(a, at, og_own_part_of(g, step, element), &row, y[0]);
        }
    }
}

/* Does some row of those that share a warp need a pass with a guard? Threads of a group agree. */
OG_FN bool og_any_again(bool again)
{
    if constexpr (OG_GROUP < 32)
        return __any_sync(0xffffffffu, again);
    return again;
}

template <class P, bool aligned>
OG_FN void og_reduce_all(const og_args &a, const og_group &g, const og_row &row,
                         const typename P::peaks &peaks, og_kept_row &kept,
                         typename P::sums (&lanes)[OG_VECTORS][OG_V])
{
    if constexpr (OG_KEEPS) {
#pragma unroll
        for (int step = 0; step < OG_STEPS; step += OG_FLIGHT)
            og_reduce_steps<P, aligned>(a, g, row, peaks, kept, step, lanes);
    } else {
#pragma unroll 1
        for (int step = 0; step * OG_WIDTH < g.n; step += OG_FLIGHT)
            og_reduce_steps<P, aligned>(a, g, row, peaks, kept, step, lanes);
    }
}

template <class P>
OG_FN typename P::sums og_reduce(const og_args &a, const og_group &g, const og_row &row,
                                 const typename P::peaks &peaks, og_kept_row &kept)
{
    typename P::sums lanes[OG_VECTORS][OG_V], s[OG_VECTORS];
#pragma unroll
    for (int j = 0; j < OG_VECTORS; j++)
#pragma unroll
        for (int i = 0; i < OG_V; i++)
            lanes[j][i] = P::neutral();
    /* Of so many elements, floats that one pass has made of halves would not stay in registers:
     * 160 of layer_norm, 16384 bfloat16 by 128 threads; so 80. */
    if constexpr (OG_KEEPS && OG_STEPS * OG_VECTORS * OG_V > 32)
        og_renew_row(kept);
    if (P::sweep::loads::is_aligned(a, g.at) &&
        (!P::stores || (g.n > 0 && P::sweep::is_aligned(a, g.at))))
        og_reduce_all<P, true>(a, g, row, peaks, kept, lanes);
    else
        og_reduce_all<P, false>(a, g, row, peaks, kept, lanes);
    if constexpr (P::count == 0) {
        return P::neutral();
    } else {
#pragma unroll
        for (int j = 0; j < OG_VECTORS; j++) {
            og_grow_tree<P, OG_V>(lanes[j]);
            s[j] = lanes[j][0];
            og_grow_over_warp<P, OG_WARP>(s[j]);
        }
        if constexpr (OG_GROUP > 32) {
            s[0] = og_grow_over_block<P, OG_GROUP / 32>(s[0]);
        } else {
            og_grow_tree<P, OG_VECTORS>(s);
            s[0] = P::first(s[0], OG_WARP);
        }
        P::mend(s[0], peaks);
        return s[0];
    }
}
