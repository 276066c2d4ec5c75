/* SPDX-License-Identifier: MIT
 *
 * hopper_window_stores.cuh - how a tile of a convolution on Hopper's tensor cores is written: pass 0
 * leaves what it has computed in shared memory, and a warp beside each group of warps that multiply
 * takes it from there, while these go on to the next tile. Part of hopper_windows.cuh, which
 * includes it.
 *
 * A thread that multiplies has one place of each of some filters, so that its warp would write pieces of
 * 32 bytes, and of lines that do not begin where such a sector does, parts of twice as many. A warp that
 * only writes has neighbours of one line.
 *
 * A *piece* is a group's 64 places of OG_PIECE_ROWS filters; shared memory has OG_PIECES of a group, a
 * ring. A warp whose places or filters are not all there, or of which sums are lost, or a result that does
 * not begin where two neighbours are one word, writes its own, as where OG_PIECES is 0, and says so: a
 * word for each warp, beside the piece's first row.
 */

enum {
    OG_TILE_PIECES = OG_BM / OG_PIECE_ROWS,
    OG_PIECE_TURNS = OG_PIECES ? OG_TILE_PIECES / (OG_PIECES ? OG_PIECES : 1) : 0 /* of a tile */
};
static_assert(!OG_PIECES || OG_TILE_PIECES % (OG_PIECES ? OG_PIECES : 1) == 0,
              "tiles begin with a ring's first");

/* Where piece i of a tile is among a block's, and the phase there; `phase` is that of its group's ring at
 * the tile's beginning. All of it is found anew, piece by piece: those that compute have no registers. */
OG_FN og_ring_turn og_turn_of(uint32_t phase, int group, int i)
{
    const int stages = OG_PIECES ? OG_PIECES : 1;
    return {(uint32_t)(group * stages + i % stages), (phase ^ i / stages) & 1};
}

/* A warp's parity of that phase is in shared memory, beside its first piece's second row. */
OG_FN uint32_t *og_find_phase(const og_window_rings &rings, int thread)
{
    return (uint32_t *)(rings.memory + OG_PIECES_AT + thread / 128 * OG_PIECES * OG_ENDS_PIECE_BYTES) +
           OG_PIECE_PITCH + OG_GROUP_PLACES + thread / 32 % 4;
}

OG_FN void og_start_pieces(const og_window_rings &rings)
{
    const int thread = threadIdx.x - 128;
    if (OG_PIECES && thread >= 0 && thread % 32 == 0)
        *og_find_phase(rings, thread) = 0;
}

OG_FN uint32_t og_take_phase(const og_window_rings &rings, int thread)
{
    if (OG_PIECE_TURNS % 2 == 0)
        return 0;
    uint32_t *at = og_find_phase(rings, thread), phase = *at;
    __syncwarp();
    if (thread % 32 == 0)
        *at = phase ^ 1;
    __syncwarp();
    return phase;
}

/* Bits of where the result is and of its steps, in elements. */
OG_FN uint32_t og_find_alignment(const og_args &a)
{
#if OG_PIECES
    return (uint32_t)((uint64_t)og_pass0::place(a, og_start()) / 4) | (uint32_t)a.result_steps;
#else
    return 0;
#endif
}

/* ---- those that compute ---------------------------------------------------------------------- */

/* Waits until piece i of a tile may be written; the thread's part of it. */
OG_FN float *og_take_piece(const og_window_rings &rings, uint32_t phase, int thread, int i)
{
    const og_ring_turn turn = og_turn_of(phase, thread / 128, i);
    og_barrier_wait(rings.piece_empty + 8 * turn.stage, turn.phase ^ 1);
    return (float *)(rings.memory + OG_PIECES_AT + turn.stage * OG_ENDS_PIECE_BYTES) +
           2 * (thread % 4) * OG_PIECE_PITCH + og_first_place(thread) % OG_GROUP_PLACES;
}

/* The warp's part of piece i is there, or it has written that itself. */
OG_FN void og_hand_piece(const og_window_rings &rings, uint32_t phase, int thread, int i,
                         bool is_there)
{
    const og_ring_turn turn = og_turn_of(phase, thread / 128, i);
    if (thread % 32 == 0)
        ((float *)(rings.memory + OG_PIECES_AT +
                   turn.stage * OG_ENDS_PIECE_BYTES))[OG_GROUP_PLACES + thread / 32 % 4] =
            is_there ? 1.0f : 0.0f;
    og_release_stage(rings.piece_full + 8 * turn.stage);
}

/* Pass 0 on a fragment goes to a piece. */
template <class F>
OG_FN void og_stage_fragment(const og_args &a, const F &f, const og_reads<F> &from, float *piece)
{
#if OG_PIECES
#pragma unroll
    for (int r = 0; r < F::rows; r++)
#pragma unroll
        for (int v = 0; v < F::vectors; v++) {
            og_pass0::values y[OG_V];
            og_compute(a, f, r, v, from.x[r][v], y);
            piece[og_row_of(r) * OG_PIECE_PITCH + 8 * v] = og_pass0::pack(y).e[0];
        }
#endif
}

/* ---- those that write ------------------------------------------------------------------------ */

#if OG_PIECES

template <int count> struct alignas(4 * count) og_neighbours {
    float e[count];
};

template <int count> OG_FN og_neighbours<count> og_load_neighbours(uint32_t at)
{
    og_neighbours<count> to;
    if constexpr (count == 4) {
        const og_four v = og_load_shared(at);
        to = {{v.e[0], v.e[1], v.e[2], v.e[3]}};
    } else {
        const float2 v = og_load_shared_two(at);
        to = {{v.x, v.y}};
    }
    return to;
}

OG_FN void og_store_global(float *at, const og_neighbours<4> &v)
{
#if defined(__CUDA_ARCH__)
    asm volatile("st.global.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(at), "f"(v.e[0]), "f"(v.e[1]),
                 "f"(v.e[2]), "f"(v.e[3])
                 : "memory");
#else
    *(og_neighbours<4> *)at = v;
#endif
}

OG_FN void og_store_global(float *at, const og_neighbours<2> &v)
{
#if defined(__CUDA_ARCH__)
    asm volatile("st.global.v2.f32 [%0], {%1,%2};" ::"l"(at), "f"(v.e[0]), "f"(v.e[1]) : "memory");
#else
    *(og_neighbours<2> *)at = v;
#endif
}

/* Where the result of row `row` at place i of a tile is, or that of some place, if there is none. */
OG_FN float *og_find_result(const og_args &a, const og_window_tile &tile, og_index row, int i)
{
    og_offsets at = og_start();
    const og_index n = og_find_place_column(a, tile, og_find_place(i));
    og_seek_product(a, tile.base, at);
    og_step_filters(a, row, at);
    og_step_row(a, og_clamp_column(a, n), at);
    return og_pass0::place(a, at);
}

/* Writes some of a piece's rows that are `apart` from each other, the first at `from`; all of them are
 * read first, for a store might be one to what is read. step: elements from a row to the next. */
template <int count, int apart, int rows>
OG_FN void og_store_rows(uint32_t from, float *&to, og_index step, bool is_there)
{
    og_neighbours<count> v[rows];
    float *at[rows]; /* an address of its own: a store keeps it until it is on its way */
#pragma unroll
    for (int r = 0; r < rows; r++) {
        v[r] = og_load_neighbours<count>(from + 4 * r * apart * OG_PIECE_PITCH);
        at[r] = to;
        to += step;
    }
#pragma unroll
    for (int r = 0; r < rows; r++)
        if (is_there)
            og_store_global(at[r], v[r]);
}

/* Writes a tile, `count` neighbours a thread. */
template <int count>
OG_FN void og_store_tile(const og_args &a, const og_window_tile &tile, const og_window_rings &rings,
                         uint32_t phase, int group)
{
    const int across = OG_GROUP_PLACES / count;                  /* threads of a row */
    const int apart = 32 / across, at_once = count == 4 ? 2 : 4; /* registers are few */
    const int place = threadIdx.x % across * count, row = threadIdx.x % 32 / across;
    const int first = group * OG_GROUP_PLACES + place;
    float *to = og_find_result(a, tile, tile.m + row, first);
    const og_index step = (og_index)(og_find_result(a, tile, tile.m + row + apart, first) - to);
#pragma unroll 1
    for (int i = 0; i < OG_TILE_PIECES; i++) {
        const og_ring_turn turn = og_turn_of(phase, group, i);
        const uint32_t piece = rings.pieces + turn.stage * OG_ENDS_PIECE_BYTES;
        og_barrier_wait(rings.piece_full + 8 * turn.stage, turn.phase);
        const float is_there = og_load_shared_one(piece + 4 * (OG_GROUP_PLACES + place / 16));
#pragma unroll 1
        for (int r = row; r < OG_PIECE_ROWS; r += at_once * apart)
            og_store_rows<count, apart, at_once>(piece + 4 * (r * OG_PIECE_PITCH + place), to, step,
                                                 is_there != 0.0f);
        og_release_stage(rings.piece_empty + 8 * turn.stage);
    }
}

/* Writes all tiles of a group. All of a warp come. */
template <int count>
OG_FN void og_store_tiles_by(const og_args &a, const og_window_rings &rings, int group)
{
    uint32_t phase = 0;
    for (og_index i = blockIdx.x; i < a.items; i += gridDim.x) {
        og_store_tile<count>(a, og_find_window_tile(a, i), rings, phase, group);
        phase ^= OG_PIECE_TURNS & 1;
    }
}

/* By four neighbours, if they lie where one store takes them, or by two. */
OG_FN void og_store_tiles(const og_args &a, const og_window_rings &rings, int group)
{
    if (og_find_alignment(a) % 4 == 0)
        og_store_tiles_by<4>(a, rings, group);
    else
        og_store_tiles_by<2>(a, rings, group);
}

#else

OG_FN void og_store_tiles(const og_args &, const og_window_rings &, int)
{
}

#endif
