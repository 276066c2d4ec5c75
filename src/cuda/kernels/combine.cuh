/* SPDX-License-Identifier: MIT
 *
 * combine.cuh - a second launch, for rows that were reduced in parts: the parts' sums,
 * a.partials of them a row in the scratch, are a row again, in the order OG_ROWS.
 *
 * PARAMETERS
 *   OG_COMBINERS        threads that combine a row: 32, for up to 512 parts, or 512
 *   OG_COMBINE_THREADS  of a block
 */
#include "cuda/kernels/sums.cuh"

/* The row whose sums these threads combine. */
struct og_combined {
    og_index row;
    og_offsets at; /* of the row */
    int thread;    /* of those that combine it */
    bool writes;   /* is this the thread that writes what is the row's? */
};

OG_FN og_combined og_find_combined(const og_args &a, uint32_t block = blockIdx.x)
{
    og_combined g;
    og_index row =
        (og_index)block * (OG_COMBINE_THREADS / OG_COMBINERS) + threadIdx.x / OG_COMBINERS;
    g.row = row < a.rows ? row : a.rows - 1;
    g.at = og_start();
    og_seek_rows(a, g.row, g.at);
    g.thread = threadIdx.x % OG_COMBINERS;
    g.writes = g.thread == 0 && row < a.rows;
    return g;
}

/* The sums of chunk i of a row. */
template <class P> struct og_partial_sums {
    typename P::sums *own;
    OG_FN typename P::sums get(const og_partial_sums &from, og_index i)
    {
        return from.own[i];
    }
};

/* The terms of chunk i, scaled from the chunk's peak to the row's. */
template <class P> struct og_partial_terms {
    typename P::sums *own;
    const typename P::peaks *peaks;
    typename P::peaks most;
    OG_FN typename P::sums get(const og_partial_terms &from, og_index i)
    {
        typename P::sums s = from.own[i];
        P::scale(s, from.peaks[i], from.most);
        return s;
    }
};

/* A warp combines a row: thread t has lanes 32 j + t. All loads come first, and four trees grow at
 * once: where each waited for the one before, a launch for 512 parts took 8 us (H200). */
template <class P, class Partials>
OG_FN typename P::sums og_combine_by_warp(const Partials &from, int thread, og_index count)
{
    typename P::sums s[16];
#pragma unroll
    for (int j = 0; j < 16; j++) {
        s[j] = P::neutral();
        if (32 * j + thread < count)
            s[j] = Partials::get(from, 32 * j + thread);
    }
#pragma unroll
    for (int j = 0; j < 16; j += 4)
        if (32 * j < count)
#pragma unroll
            for (int delta = 1; delta < 32; delta *= 2)
#pragma unroll
                for (int i = j; i < j + 4; i++)
                    P::merge(s[i], P::down(s[i], delta, 32));
    og_grow_tree<P, 16>(s);
    return P::first(s[0], 32);
}

/* A block of 512 threads combines a row: each has a lane. Sums of chunks of chunks lie behind
 * those of chunks. */
template <class P, class Partials>
OG_FN typename P::sums og_combine_by_block(const Partials &from, int thread, og_index count)
{
    typename P::sums s, *level = from.own;
    for (bool first = true;; first = false) {
        og_index chunks = (count + OG_CHUNK - 1) / OG_CHUNK;
        for (og_index c = 0; c < chunks; c++) {
            og_index end = count - c * OG_CHUNK < OG_CHUNK ? count : (c + 1) * OG_CHUNK;
            s = P::neutral();
            for (og_index i = c * OG_CHUNK + thread; i < end; i += 512)
                P::merge(s, first ? Partials::get(from, i) : level[i]);
            og_grow_over_warp<P, 32>(s);
            s = og_grow_over_block<P, 16>(s);
            __syncthreads();
            if (thread == 0 && chunks > 1)
                level[count + c] = s;
        }
        if (chunks <= 1)
            return s;
        level += count;
        count = chunks;
        __syncthreads();
    }
}

template <class P, class Partials>
OG_FN typename P::sums og_combine(const Partials &from, int thread, og_index count)
{
    if (OG_COMBINERS == 32)
        return og_combine_by_warp<P>(from, thread, count);
    return og_combine_by_block<P>(from, thread, count);
}
