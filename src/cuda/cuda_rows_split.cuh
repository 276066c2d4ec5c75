/* SPDX-License-Identifier: MIT
 *
 * cuda_rows_split.cuh - rows of more than OG_CHUNK elements: a block reduces a chunk
 * (cuda_rows.cuh) and leaves its sums in the scratch, a second launch combines them:
 * they are a row again.
 *
 * PARAMETERS
 *   OG_COMBINERS        threads that combine a row: 32, for up to 512 chunks, or 512
 *   OG_COMBINE_THREADS  of a block
 */
/* chunk: its place among the scratch's sums. */
OG_FN og_group og_find_chunk(const og_args &a, og_index &chunk)
{
    og_group g;
    g.row = og_divide((og_index)blockIdx.x, a.chunks);
    chunk = (og_index)blockIdx.x - g.row * a.chunks.extent;
    g.from = chunk * OG_CHUNK;
    g.n = a.n - g.from < OG_CHUNK ? (int)(a.n - g.from) : OG_CHUNK;
    g.at = og_start();
    og_seek_rows(a, g.row, g.at);
    if constexpr (OG_FLAT) {
        og_step_row(a, g.from, g.at);
        g.from = 0;
    }
    chunk += g.row * a.partials;
    g.thread = threadIdx.x;
    g.writes = g.thread == 0;
    return g;
}

/* The row whose sums these threads combine. */
OG_FN og_group og_find_combined(const og_args &a)
{
    og_group g;
    og_index row =
        (og_index)blockIdx.x * (OG_COMBINE_THREADS / OG_COMBINERS) + threadIdx.x / OG_COMBINERS;
    g.row = row < a.rows ? row : a.rows - 1;
    g.from = 0;
    g.n = 0;
    g.at = og_start();
    og_seek_rows(a, g.row, g.at);
    g.thread = threadIdx.x % OG_COMBINERS;
    g.writes = g.thread == 0 && row < a.rows;
    return g;
}

/* Chunk i of the row: its sums. */
template <class P> struct og_partial_sums {
    typename P::sums *own;
    OG_FN typename P::sums get(const og_partial_sums &from, og_index i)
    {
        return from.own[i];
    }
};

/* The same of terms, scaled from the chunk's peak to the row's. */
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

/* A warp: lanes 32 j + t. */
template <class P, class Partials>
OG_FN typename P::sums og_combine_by_warp(const Partials &from, int thread, og_index count)
{
    typename P::sums s[16];
#pragma unroll
    for (int j = 0; j < 16; j++) {
        s[j] = P::neutral();
        if (32 * j >= count)
            continue;
        if (32 * j + thread < count)
            s[j] = Partials::get(from, 32 * j + thread);
        og_grow_over_warp<P, 32>(s[j]);
    }
    og_grow_tree<P, 16>(s);
    return P::first(s[0], 32);
}

/* A block of 512 threads, a lane each. Sums of chunks of chunks lie behind those of
 * chunks. */
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
