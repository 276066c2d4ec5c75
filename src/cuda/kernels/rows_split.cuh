/* SPDX-License-Identifier: MIT
 *
 * rows_split.cuh - rows of more than OG_CHUNK elements: a block reduces a chunk
 * (rows.cuh) and leaves its sums in the scratch, for combine.cuh.
 */
#include "cuda/kernels/rows.cuh"

OG_FN og_group og_chunk_of(const og_args &a, og_index row, og_index chunk)
{
    og_group g;
    g.row = row;
    g.from = chunk * OG_CHUNK;
    g.n = a.n - g.from < OG_CHUNK ? (int)(a.n - g.from) : OG_CHUNK;
    g.at = og_start();
    og_seek_rows(a, g.row, g.at);
    if constexpr (OG_FLAT) {
        og_step_row(a, g.from, g.at);
        g.from = 0;
    }
    g.thread = threadIdx.x;
    g.writes = g.thread == 0;
    return g;
}

/* The chunk that a block reduces. chunk: its place among the scratch's sums. */
OG_FN og_group og_find_chunk(const og_args &a, og_index &chunk)
{
    const og_index row = og_divide((og_index)blockIdx.x, a.chunks);
    chunk = (og_index)blockIdx.x - row * a.chunks.extent;
    og_group g = og_chunk_of(a, row, chunk);
    chunk += row * a.partials;
    return g;
}
