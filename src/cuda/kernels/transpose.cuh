/* SPDX-License-Identifier: MIT
 *
 * transpose.cuh - pointwise kernels some of whose loads (og_turned) are contiguous
 * along another dim, `turned`, than the rest, `inner`. A block reads a tile of those as
 * they lie, element by element, leaves it in shared memory, and goes through it by
 * vectors along inner.
 *
 * PARAMETERS
 *   OG_TILE     elements of a tile's side, a multiple of 32
 *   og_kept_operands   these loads
 */
#include "cuda/kernels/results.cuh"

enum {
    OG_READ_ROWS = OG_THREADS / 32,        /* of a tile, that a block reads at once */
    OG_TILE_VECTORS = OG_TILE / OG_V,      /* vectors of a tile's row */
    OG_DEPTH = OG_THREADS * OG_V / OG_TILE /* rows that a block goes through at once */
};

template <int n> struct og_turned_one {
    og_stored<n> x;
};

template <class Operands> struct og_turned_of;

/* One element of each such load. */
template <int... n> struct og_turned_of<og_indices<n...>> : og_turned_one<n>... {
    OG_FN void load(const og_args &a, const og_offsets &at, og_turned_of &to)
    {
        ((to.og_turned_one<n>::x = *og_address<n>(a, at)), ...);
    }

    /* It becomes element i of what is kept. */
    OG_FN void give(const og_turned_of &from, og_kept &kept, int i)
    {
        ((kept.og_loaded<n>::x.e[i] = from.og_turned_one<n>::x), ...);
    }
};

typedef og_turned_of<og_kept_operands> og_turned;

/* A block's tile, through shared memory. whole: it has all its elements. */
template <bool whole>
OG_FN void og_turn_tile(const og_args &a, const og_offsets &base, int width, int height,
                        og_turned (&tile)[OG_TILE][OG_TILE + 1])
{
    const int x = threadIdx.x % 32, y = threadIdx.x / 32;
    og_turned read[OG_TILE / OG_READ_ROWS][OG_TILE / 32];
#pragma unroll
    for (int i = 0; i < OG_TILE / OG_READ_ROWS; i++)
#pragma unroll
        for (int t = 0; t < OG_TILE / 32; t++)
            if (whole || (i * OG_READ_ROWS + y < width && 32 * t + x < height)) {
                og_offsets at = base;
                og_step_inner(a, i * OG_READ_ROWS + y, at);
                og_step_turned(a, 32 * t + x, at);
                og_turned::load(a, at, read[i][t]);
            }
#pragma unroll
    for (int i = 0; i < OG_TILE / OG_READ_ROWS; i++)
#pragma unroll
        for (int t = 0; t < OG_TILE / 32; t++)
            tile[i * OG_READ_ROWS + y][32 * t + x] = read[i][t];
    __syncthreads();

    const int first = threadIdx.x % OG_TILE_VECTORS * OG_V, deep = threadIdx.x / OG_TILE_VECTORS;
    og_span span = og_span_of(first, whole ? OG_TILE : width);
    if (span.end <= 0)
        return;
#pragma unroll
    for (int t = 0; t < OG_TILE; t += OG_DEPTH) {
        if (!whole && t + deep >= height)
            break;
        og_offsets at = base;
        og_step_inner(a, first, at);
        og_step_turned(a, t + deep, at);
        og_kept kept;
#pragma unroll
        for (int i = 0; i < OG_V; i++)
            og_turned::give(tile[first + i][t + deep], kept, i);
        og_loads0 loads;
        og_loads0::load(a, at, og_is_full(span) && og_loads0::is_aligned(a, at), span, loads);
        OG_AFTER_LOADS();
        og_pass0::values values[OG_V];
        og_row row;
#pragma unroll
        for (int i = 0; i < OG_V; i++)
            og_pass0::compute(a, row, kept, loads, i, values[i]);
        og_pass0::store(a, at, span, &row, values);
    }
}

OG_KERNEL(og_transpose, OG_THREADS)
{
    __shared__ og_turned tile[OG_TILE][OG_TILE + 1];
    og_index rest = og_divide((og_index)blockIdx.x, a.inner_tiles);
    const og_index inner = ((og_index)blockIdx.x - rest * a.inner_tiles.extent) * OG_TILE;
    const og_index outer = og_divide(rest, a.turned_tiles);
    const og_index turned = (rest - outer * a.turned_tiles.extent) * OG_TILE;
    og_offsets base = og_start();
    og_seek_outer(a, outer, base);
    og_step_inner(a, inner, base);
    og_step_turned(a, turned, base);
    const int width = a.inner - inner < OG_TILE ? (int)(a.inner - inner) : OG_TILE;
    const int height = a.turned - turned < OG_TILE ? (int)(a.turned - turned) : OG_TILE;
    if (width == OG_TILE && height == OG_TILE)
        og_turn_tile<true>(a, base, width, height, tile);
    else
        og_turn_tile<false>(a, base, width, height, tile);
}
