/* SPDX-License-Identifier: MIT
 *
 * tiles.cuh - which tile of a batch of products is which block's.
 */
#include "cuda/kernels/prologue.cuh"

/* A tile's first row and column, of product `base` of the batch. */
struct og_tile {
    og_index base, m, n;
};

enum { OG_BAND = 8 }; /* tiles of rows that neighbouring blocks share */

/* Tile i, of so many rows and columns. Tiles lie in bands: what blocks that run at the same time
 * read is read from L2. */
template <int rows, int columns> OG_FN og_tile og_find_tile(const og_args &a, og_index i)
{
    og_tile tile;
    tile.base = i / (a.m_tiles * a.n_tiles);
    i -= tile.base * (a.m_tiles * a.n_tiles);
    og_index first = i / (OG_BAND * a.n_tiles) * OG_BAND;
    og_index height = a.m_tiles - first < OG_BAND ? a.m_tiles - first : OG_BAND;
    i -= first * a.n_tiles;
    tile.m = (first + i % height) * rows;
    tile.n = i / height * columns;
    return tile;
}
