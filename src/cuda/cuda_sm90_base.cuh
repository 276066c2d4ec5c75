/* SPDX-License-Identifier: MIT
 *
 * cuda_sm90_base.cuh - what the parts of a product on Hopper's tensor cores share: how x and w
 * are read, which tile is a block's, where a thread is in it.
 *
 * PARAMETERS
 *   og_element  of x and w: float, or og_half
 *   OG_BM       rows of a tile: 32, 64 or 128
 *   OG_GROUPS   warpgroups that multiply, 64 columns of a tile each: 1 or 2
 * No bit depends on the last two.
 */
/* Column n of w, of product `base` of a batch: there is no batch. */
OG_FN const og_element *og_w_row(const og_args &a, og_index base, og_index n)
{
    (void)base;
    return a.w + n * (int64_t)a.w_pitch;
}

/* Elements from one k of w to the next. */
OG_FN int64_t og_w_stride(const og_args &)
{
    return 1;
}

/* Rows [m, end) of product `base` of a batch, of which og_redo looks at 128. */
struct og_band {
    og_index base, m, end;
};

OG_FN og_band og_find_band(const og_args &a, og_index i)
{
    return {0, i * 128, a.rows};
}

/* Has og_redo everything to do? TMA takes no other addresses. */
OG_FN bool og_redoes_all(const og_args &a)
{
    return (uint64_t)a.w % 16 != 0;
}

enum { OG_REDO_BLOCKS = 2 }; /* of a multiprocessor: it may have everything to do */

/* ---- tiles of OG_BM rows and OG_BN columns ------------------------------------------------- */

enum {
    OG_BAND = 8,         /* tiles of rows that neighbouring blocks share */
    OG_HELD = OG_BM / 2, /* elements of a tile that a thread holds */
    OG_BN = 64 * OG_GROUPS,
    OG_RING_BYTES = 14 * 16384,
    OG_BARRIERS = 64 /* at most */
};

typedef float og_held[OG_HELD];

struct og_tile {
    og_index m, n;
};

OG_FN og_tile og_find_tile(const og_args &a, og_index i)
{
    og_tile tile;
    og_index first = i / (OG_BAND * a.n_tiles) * OG_BAND;
    og_index height = a.m_tiles - first < OG_BAND ? a.m_tiles - first : OG_BAND;
    i -= first * a.n_tiles;
    tile.m = (first + i % height) * OG_BM;
    tile.n = i / height * OG_BN;
    return tile;
}

/* Where a ring is: a stage, and the parity of the barriers' phase there. */
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

/* A thread's place in a tile: columns n and n + 8, rows m + 8 (i / 2) + i % 2, i below
 * OG_BM / 4. */
struct og_place {
    og_index m, n, run; /* run: of OG_RUN columns, its group's */
    int group, warp, t;
    bool first; /* g is 0 */
};

OG_FN og_index og_row_of(const og_place &at, int i)
{
    return at.m + i / 2 * 8 + i % 2;
}
