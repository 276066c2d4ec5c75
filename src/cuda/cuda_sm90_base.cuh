/* SPDX-License-Identifier: MIT
 *
 * cuda_sm90_base.cuh - what the parts of a product on Hopper's tensor cores share: how x and w
 * are read, which tile is a block's, where a thread is in it.
 *
 * PARAMETERS
 *   og_element  of x and w: float, or og_half; og_widen() makes a float of it
 *   OG_BM       rows of a tile: 32, 64 or 128
 *   OG_GROUPS   warpgroups that multiply, 64 columns of a tile each: 1 or 2
 * No bit depends on the last two.
 */
/* Has og_redo everything to do? TMA takes no other addresses. */
OG_FN bool og_redoes_all(const og_args &a)
{
    return (uint64_t)a.w % 16 != 0;
}

struct alignas(16) og_four {
    float e[4];
};

struct alignas(4 * sizeof(og_element)) og_raw_four {
    og_element e[4];
};

/* Elements k .. k + 3 of a row of `limit`; beyond: missing. */
OG_FN og_four og_load_four(const og_element *row, int64_t stride, bool aligned, og_index k,
                           og_index limit, float missing)
{
    og_four x;
    if (aligned && k + 4 <= limit) {
        og_raw_four raw = *(const og_raw_four *)(row + k);
#pragma unroll
        for (int i = 0; i < 4; i++)
            x.e[i] = og_widen(raw.e[i]);
        return x;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        x.e[i] = k + i < limit ? og_widen(row[(k + i) * stride]) : missing;
    return x;
}

OG_FN bool og_is_by_fours(const og_element *row, int64_t stride)
{
    return stride == 1 && (uint64_t)row % sizeof(og_raw_four) == 0;
}

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
