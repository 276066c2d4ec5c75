/* SPDX-License-Identifier: MIT
 *
 * hopper_tiles.cuh - what products on Hopper's tensor cores share: which tile is a block's, and
 * where a ring in shared memory is.
 */
#include "cuda/kernels/prologue.cuh"

/* Rows [m, end) of all, those of product `base` of a batch, of which og_redo looks at 128. */
struct og_band {
    og_index base, m, end;
};

OG_FN og_band og_find_band(const og_args &a, og_index i)
{
    og_index base = i / a.redo_groups;
    return {base, base * a.m + (i - base * a.redo_groups) * 128, (base + 1) * a.m};
}

/* A tile, counted in tiles of its product. */
struct og_tile {
    og_index base, m, n;
};

enum { OG_BAND = 8 }; /* tiles of rows that neighbouring blocks share */

OG_FN og_tile og_find_tile(const og_args &a, og_index i)
{
    og_tile tile;
    tile.base = i / (a.m_tiles * a.n_tiles);
    i -= tile.base * (a.m_tiles * a.n_tiles);
    og_index first = i / (OG_BAND * a.n_tiles) * OG_BAND;
    og_index height = a.m_tiles - first < OG_BAND ? a.m_tiles - first : OG_BAND;
    i -= first * a.n_tiles;
    tile.m = first + i % height;
    tile.n = i / height;
    return tile;
}

/* A stage of a ring, and the parity of the barriers' phase there. */
struct og_turn {
    uint32_t stage, phase;
};

template <int stages> OG_FN void og_advance(og_turn &turn)
{
    if (++turn.stage == stages) {
        turn.stage = 0;
        turn.phase ^= 1;
    }
}
