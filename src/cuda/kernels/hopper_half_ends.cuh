/* SPDX-License-Identifier: MIT
 *
 * hopper_half_ends.cuh - tiles of hopper_windows_halves.cuh, whose parameters it has: where their places
 * are, and pass 0 on their sums. A warp passes sums through shared memory as float32, so that pass 0
 * reads and writes memory in whole sectors, four neighbours at a time; or, with OG_PACKS, a warpgroup
 * its results as halves, of which a thread then writes eight neighbours. An end takes 1 to 6 us,
 * nearly all of it waiting, since each scheduler has one such warp: what it has less to do, it has more
 * from packing.
 */
#include "cuda/kernels/finish.cuh"
#include "cuda/kernels/hopper_order.cuh"
#include "cuda/kernels/hopper_ptx.cuh"

enum {
    OG_PARTS = OG_ALTERNATES ? 1 : 2, /* warpgroups of a tile, which have as many places each */
    OG_FILTERS = OG_FILTER_ROWS ? 64 * OG_HEIGHT : OG_WIDTH,
    OG_PART_PLACES = OG_FILTER_ROWS ? OG_WIDTH : 64 * OG_HEIGHT,
    OG_BOXED_PLACES = OG_PARTS * OG_PART_PLACES,
    OG_BOX_PLACES = OG_TILE_B * OG_TILE_D * OG_TILE_H * OG_TILE_W, /* that are brought */
    OG_PIECES = 64 / OG_LINE,                                      /* boxes of a stage */
    OG_LINE_BYTES = 2 * OG_LINE,
    OG_PIECE_BYTES = OG_BOXED_PLACES * OG_LINE_BYTES,
    OG_IMAGE_BYTES = OG_PATCHES ? 0 : OG_PIECES * OG_PIECE_BYTES, /* of a stage */
    OG_FILTER_BYTES = OG_FILTERS * 64 * 2,
    OG_STAGE_BYTES = OG_IMAGE_BYTES + (OG_KEEPS ? 0 : OG_FILTER_BYTES),
    OG_KEPT_AT = OG_STAGES * OG_STAGE_BYTES,
    OG_BOX_PATCHES_AT = OG_KEPT_AT + (OG_KEEPS ? OG_BLOCKS * OG_FILTER_BYTES : 0),
    OG_PATCH_PLACES = OG_TILE_B * OG_PATCH_D * OG_PATCH_H * OG_PATCH_W,
    /* What is read of it: by the last tap, also where that is nobody's. */
    OG_PATCH_LINES = OG_BOXED_PLACES / 8 * OG_APART - OG_APART + 8 +
                     (OG_PATCH_D * OG_PATCH_H - OG_TILE_H + 1) * OG_PATCH_W - OG_TILE_W,
    OG_PATCH_ROOM = OG_PATCH_LINES > OG_PATCH_PLACES ? OG_PATCH_LINES : OG_PATCH_PLACES,
    OG_BOX_PATCH_BYTES = (OG_PATCH_ROOM * OG_LINE_BYTES + 1023) / 1024 * 1024,
    OG_BOX_STAGING_AT = OG_BOX_PATCHES_AT + OG_PATCHES * OG_BOX_PATCH_BYTES,
    OG_STAGED_BYTES = 16 * 64 * 4, /* what a warp passes through shared memory at a time */
    OG_BOX_BARRIERS_AT = OG_BOX_STAGING_AT + 8 * OG_STAGED_BYTES,
    OG_CONVOLVE_SHARED = OG_BOX_BARRIERS_AT + 8 * (2 * OG_STAGES + 2 * OG_PATCHES + 3),
    OG_HAS_STAGES = !OG_PATCHES || !OG_KEEPS,
    OG_CONVOLVE_THREADS = 128 * 3,
    OG_COLUMN_PARTS = OG_WIDTH / 64, /* 64 columns of 16 rows are staged at a time */
    OG_THREAD_QUADS = 16 * 64 / 4 / 32,
    OG_QUADS_ACROSS = OG_LAST == OG_FILTER_ROWS /* neighbours of the result are rows */
};
static_assert(OG_SHARED_BYTES == OG_CONVOLVE_SHARED, "the launch gives it");
static_assert(OG_BOX_PLACES <= OG_BOXED_PLACES && OG_V == 4, "");
static_assert(!OG_PACKS || (OG_LAST && OG_FILTER_ROWS), "");

/* ---- tiles --------------------------------------------------------------------------------- */

/* Its first filter and place, of group `group`. */
struct og_box_tile {
    og_index group, m;
    int b, d, h, w;
};

OG_FN og_box_tile og_find_box_tile(const og_args &a, og_index i)
{
    og_box_tile tile;
    og_index rest = i / a.m_tiles;
    tile.m = (i - rest * a.m_tiles) * OG_FILTERS;
    i = rest / a.tiles_w;
    tile.w = (int)(rest - i * a.tiles_w) * OG_TILE_W;
    rest = i / a.tiles_h;
    tile.h = (int)(i - rest * a.tiles_h) * OG_TILE_H;
    i = rest / a.tiles_d;
    tile.d = (int)(rest - i * a.tiles_d) * OG_TILE_D;
    tile.group = i / a.tiles_b;
    tile.b = (int)(i - tile.group * a.tiles_b) * OG_TILE_B;
    return tile;
}

/* A place of the result. */
struct og_box_place {
    int b, d, h, w;
    bool is_there;
};

/* Place i of a tile. */
OG_FN og_box_place og_find_box_place(const og_args &a, const og_box_tile &tile, int i)
{
    og_box_place to;
#if OG_PATCHES
    const int at = i / 8 * OG_APART + i % 8, line = at / OG_PATCH_W;
    const int b = line / OG_PATCH_H, h = line % OG_PATCH_H, w = at % OG_PATCH_W;
    to = {tile.b + b, tile.d, tile.h + h, tile.w + w,
          w < OG_TILE_W && h < OG_TILE_H && b < OG_TILE_B};
#else
    to.w = tile.w + i % OG_TILE_W;
    to.h = tile.h + i / OG_TILE_W % OG_TILE_H;
    to.d = tile.d + i / (OG_TILE_W * OG_TILE_H) % OG_TILE_D;
    to.b = tile.b + i / (OG_TILE_W * OG_TILE_H * OG_TILE_D);
    to.is_there = i < OG_BOX_PLACES;
#endif
    to.is_there &= to.b < a.batch && to.d < a.depth && to.h < a.height && to.w < a.width;
    return to;
}

/* Where a place is; one that is not there is somewhere. */
OG_FN og_offsets og_find_box_offsets(const og_args &a, og_index group, const og_box_place &to)
{
    og_offsets at = og_start();
    if (to.is_there) {
        og_step_batch(a, to.b, at);
        og_step_depth(a, to.d, at);
        og_step_height(a, to.h, at);
        og_step_width(a, to.w, at);
    }
    og_step_group(a, group, at);
    return at;
}

/* ---- pass 0 ---------------------------------------------------------------------------------- */

/* A thread's quads of some rows: neighbours of the result. */
template <int count> struct og_quads {
    og_index n; /* where filters are columns: the first */
    og_kept kept[1];
    og_offsets at[count];
    og_span spans[count];
    og_vector_sums sums[count];
};

/* The same for finish.cuh. */
template <int count, bool is_whole> struct og_quads_part {
    enum { rows = count, vectors = 1, apart = 0 };
    static const bool whole = is_whole;

    const og_quads<count> &of;
    const og_kept (&kept)[1];

    OG_FN og_offsets find(const og_quads_part &f, const og_args &, int r)
    {
        return f.of.at[r];
    }
    OG_FN og_offsets column(const og_quads_part &, const og_args &, int)
    {
        return og_start();
    }
    OG_FN og_span span(const og_quads_part &f, const og_args &, int r, int)
    {
        return f.of.spans[r];
    }
    OG_FN float sum(const og_quads_part &f, int, int r, int, int j)
    {
        return f.of.sums[r].e[j];
    }
};

/* Where the quad of filter m and place i of the tile, the first of four filters or places, is. */
OG_FN void og_find_quad(const og_args &a, const og_box_tile &tile, og_index m, int i,
                        og_offsets &at, og_span &span)
{
    const og_box_place place = og_find_box_place(a, tile, i);
    at = og_find_box_offsets(a, tile.group, place);
    og_step_filters(a, m < a.m ? m : a.m - 1, at);
    span = OG_LAST ? og_span_of(m, a.m) : og_span_of(place.w, a.width);
    if (!place.is_there || m >= a.m)
        span.end = 0;
}

/* Pass 0 on a thread's quads; all of a warp come. is_whole: they are there, and aligned. */
template <int count>
OG_FN void og_finish_quads(const og_args &a, const og_quads<count> &of, bool is_whole)
{
    if (__all_sync(0xffffffffu, is_whole))
        og_finish_fragment(a, og_quads_part<count, true>{of, of.kept});
    else
        og_finish_fragment(a, og_quads_part<count, false>{of, of.kept});
}

OG_FN bool og_is_quad_whole(const og_args &a, const og_offsets &at, const og_span &span)
{
    return og_is_full(span) && og_loads0::is_aligned(a, at) && og_pass0::is_aligned(a, at);
}

/* What pass 0 reads of filters n on, whatever the place is. */
OG_FN void og_load_filters_kept(const og_args &a, og_index n, og_kept (&kept)[1])
{
#if OG_LAST
    og_load_kept<0, false>(a, n, kept);
#endif
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

typedef og_held og_box_sums[OG_HEIGHT];

/* ---- the end of a tile ----------------------------------------------------------------------- */

/* Where element (row, column) of 16 x 64 is: no two lanes in the same bank, whether two columns are
 * written as the tensor cores leave them, or quads of a row or a column are read. */
OG_FN int og_place_of_sum(int row, int column)
{
    return row * 64 + (column ^ ((row + row / 4) & 3) << 3);
}

/* Stages part `part` of a warp's sums: 16 rows of 64 columns. Registers have no index. */
OG_FN void og_stage_sums(float *to, const og_box_sums &z, int part)
{
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int p = 0; p < OG_HEIGHT * OG_COLUMN_PARTS; p++)
        if (part == p)
#pragma unroll
            for (int j = 0; j < 8; j++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const float *from =
                        z[p / OG_COLUMN_PARTS] + 32 * (p % OG_COLUMN_PARTS) + 4 * j + 2 * h;
                    *(float2 *)&to[og_place_of_sum(g + 8 * h, 8 * j + 2 * t)] =
                        make_float2(from[0], from[1]);
                }
}

/* A thread's quad i of 16 x 64 sums begins at this row and column. */
OG_FN int og_row_of_quad(int i)
{
    const int number = threadIdx.x % 32 + 32 * i;
    return OG_QUADS_ACROSS ? number % 4 * 4 : number / 16;
}

OG_FN int og_column_of_quad(int i)
{
    const int number = threadIdx.x % 32 + 32 * i;
    return OG_QUADS_ACROSS ? number / 4 : number % 16 * 4;
}

OG_FN og_vector_sums og_read_quad(const float *staged, int row, int column)
{
    og_vector_sums sums;
    if (!OG_QUADS_ACROSS)
        return *(const og_vector_sums *)&staged[og_place_of_sum(row, column)];
#pragma unroll
    for (int j = 0; j < 4; j++)
        sums.e[j] = staged[og_place_of_sum(row + j, column)];
    return sums;
}

#if OG_LAST
/* Where a place of a tile is, which its lane finds for those that finish filters there: quads of
 * filters are aligned as the place is. */
struct alignas(16) og_spot { /* which is copied at once */
    og_offsets at;
    int is_there, is_aligned;
};

OG_FN og_spot og_find_spot(const og_args &a, const og_box_tile &tile, int i)
{
    const og_box_place place = og_find_box_place(a, tile, i);
    const og_offsets at = og_find_box_offsets(a, tile.group, place);
    return {at, place.is_there, og_loads0::is_aligned(a, at) && og_pass0::is_aligned(a, at)};
}

template <int n> OG_FN void og_take_place(og_offsets &at, int lane)
{
    if constexpr ((og_operand<n>::moves & ~(1 << OG_VECTOR_DIM)) != 0)
        at.o[n] = __shfl_sync(0xffffffffu, at.o[n], lane);
}

template <int... n> OG_FN void og_take_places(og_offsets &at, int lane, og_indices<n...>)
{
    (og_take_place<n>(at, lane), ...);
}

/* The spot that another lane has found. */
OG_FN og_spot og_take_spot(const og_spot &from, int lane)
{
    og_spot to = from;
    og_take_places(to.at, lane, og_all_places());
    to.is_there = __shfl_sync(0xffffffffu, from.is_there, lane);
    to.is_aligned = __shfl_sync(0xffffffffu, from.is_aligned, lane);
    return to;
}

/* A lane's spots: of rows one, of 64 columns two, unless few quads are finished at a time. */
struct og_spots {
    og_spot of[OG_FILTER_ROWS && OG_QUADS_AT_ONCE == 8 ? 2 : 1];
};

/* For quads from number `first` on, of the sums that begin at this row and column. */
OG_FN og_spots og_find_spots(const og_args &a, const og_box_tile &tile, int row, int column,
                             int first)
{
    const int lane = threadIdx.x % 32, half = 32 * (first / 4);
    og_spots to;
    to.of[0] = og_find_spot(a, tile, OG_FILTER_ROWS ? column + half + lane : row + lane % 16);
    if constexpr (sizeof to.of > sizeof *to.of)
        to.of[1] = og_find_spot(a, tile, column + 32 + lane);
    return to;
}

/* Quad first + q of a thread's. */
OG_FN bool og_find_staged_quad(const og_args &a, const og_box_tile &, const og_spots &spots,
                               og_index m, int, int first, int q, og_offsets &at, og_span &span)
{
    const int place = OG_FILTER_ROWS ? og_column_of_quad(first + q) : og_row_of_quad(first + q);
    const og_spot spot = og_take_spot(spots.of[OG_FILTER_ROWS && q >= 4 ? 1 : 0], place % 32);
    at = spot.at;
    og_step_filters(a, m < a.m ? m : a.m - 1, at);
    span = og_span_of(m, a.m);
    if (!spot.is_there || m >= a.m)
        span.end = 0;
    return spot.is_aligned && og_is_full(span);
}
#else
struct og_spots {
};

OG_FN og_spots og_find_spots(const og_args &, const og_box_tile &, int, int, int)
{
    return {};
}

OG_FN bool og_find_staged_quad(const og_args &a, const og_box_tile &tile, const og_spots &,
                               og_index m, int i, int, int, og_offsets &at, og_span &span)
{
    og_find_quad(a, tile, m, i, at, span); /* whose place is the same for all of a thread's */
    return og_is_quad_whole(a, at, span);
}
#endif

/* Finishes OG_QUADS_AT_ONCE quads of a thread's from number `first` on. row, column: of the tile, the
 * first that are staged. */
OG_FN void og_finish_some(const og_args &a, const og_box_tile &tile, int row, int column, int first,
                          const float *staged)
{
    const og_spots spots = og_find_spots(a, tile, row, column, first);
    og_quads<OG_QUADS_AT_ONCE> f;
    bool is_whole = true;
    f.n = tile.m + (OG_FILTER_ROWS ? row + og_row_of_quad(0) : column + og_column_of_quad(0));
    og_load_filters_kept(a, f.n, f.kept);
#pragma unroll
    for (int q = 0; q < OG_QUADS_AT_ONCE; q++) {
        const int i = og_row_of_quad(first + q), j = og_column_of_quad(first + q);
        const og_index m = tile.m + (OG_FILTER_ROWS ? row + i : column + j);
        is_whole &= og_find_staged_quad(a, tile, spots, m, OG_FILTER_ROWS ? column + j : row + i,
                                        first, q, f.at[q], f.spans[q]);
        f.sums[q] = og_read_quad(staged, i, j);
    }
    og_finish_quads(a, f, is_whole);
}

#if OG_PACKS

/* ---- results that are packed ----------------------------------------------------------------- */

#if defined(__CUDA_ARCH__) /* shim_hopper.h has it for a CPU */
/* Four matrices of 8 x 8 halves, as products leave them: of each a register has two neighbours of row
 * lane / 4. Their columns become lines of 16 bytes, column i of matrix j at the address of lane 8 j + i. */
OG_FN void og_store_matrices_across(uint32_t at, const uint32_t (&four)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(at),
                 "r"(four[0]), "r"(four[1]), "r"(four[2]), "r"(four[3])
                 : "memory");
}
#endif

enum {
    OG_PACKED_PLACES =
        OG_WIDTH < 128 ? OG_WIDTH : 128, /* places of 64 filters that a warpgroup stages */
    OG_PACKED_LINE = 64 * 2,             /* bytes of a place there */
    OG_PACKED_STEPS = OG_PACKED_PLACES / 16
};
static_assert(OG_PACKED_PLACES * OG_PACKED_LINE <= 4 * OG_STAGED_BYTES, "");
static_assert(__is_empty(og_loads0), "nothing is read but what is kept");

/* Leaves what pass 0 makes of columns `first` on of a warp's 16 filters in lines of places, whose
 * 16-byte parts change places by the line: no two lanes in the same bank. kept: of a thread's two
 * filters. */
OG_FN void og_pack_places(const og_args &a, const og_held &z, int first,
                          const og_kept (&kept)[2][1], uint32_t to)
{
    const int lane = threadIdx.x % 32, matrix = lane / 8, line = lane % 8;
    const int part = threadIdx.x / 32 % 4 * 2 + matrix % 2;
    const uint32_t at = to + (matrix / 2 * 8 + line) * OG_PACKED_LINE + ((part ^ line) << 4);
    const og_loads0 nothing = {};
    og_row none;
#pragma unroll
    for (int i = 0; i < OG_PACKED_STEPS; i++) {
        uint32_t four[4];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            og_pass0::values y[OG_V];
#pragma unroll
            for (int j = 0; j < OG_V; j++) { /* places, of one filter */
                og_kept of = kept[h][0];
                of.product[0] = z[(first / 8 + 2 * i + j / 2) * 4 + 2 * h + j % 2];
                og_pass0::compute(a, none, of, nothing, 0, y[j]);
            }
            const auto pack = og_pass0::pack(y);
            four[h] = pack.e[0] | (uint32_t)pack.e[1] << 16;
            four[h + 2] = pack.e[2] | (uint32_t)pack.e[3] << 16;
        }
        og_store_matrices_across(at + i * 16 * OG_PACKED_LINE, four);
    }
}

/* Writes what was packed of filters m on, at places `first` on of the tile: a thread 8 filters of a
 * place at a time. A lane finds where one of its warp's places is. */
OG_FN void og_write_places(const og_args &a, const og_box_tile &tile, og_index m, int first,
                           uint32_t from)
{
    const int lane = threadIdx.x % 32, part = lane % 8, line = threadIdx.x / 32 % 4 * 4;
    const og_box_place place =
        og_find_box_place(a, tile, first + line + lane % 4 + lane / 4 % OG_PACKED_STEPS * 16);
    og_offsets at = og_find_box_offsets(a, tile.group, place);
    og_step_filters(a, m, at);
    const uint64_t own = place.is_there ? (uint64_t)og_pass0::place(a, at) : 0;
    const uint32_t staged =
        from + (line + lane / 8) * OG_PACKED_LINE + ((part ^ ((line + lane / 8) & 7)) << 4);
    const bool is_there = m + 8 * part < a.m;
#pragma unroll
    for (int i = 0; i < OG_PACKED_STEPS; i++) {
        const uint64_t begin = __shfl_sync(0xffffffffu, own, 4 * i + lane / 8);
        const og_four_words eight = og_load_shared_words(staged + i * 16 * OG_PACKED_LINE);
        og_half *to = (og_half *)begin + 8 * part;
        if (begin && is_there && begin % 16 == 0)
            *(og_four_words *)to = eight;
        else if (begin && is_there)
#pragma unroll
            for (int j = 0; j < 8; j++)
                to[j] = (og_half)(eight.e[j / 2] >> 16 * (j % 2));
    }
}

OG_FN void og_finish_box_tile(const og_args &a, const og_box_tile &tile, const og_box_sums &z,
                              char *shared)
{
    const int group = og_own_group(), places = OG_ALTERNATES ? 0 : group * OG_PART_PLACES;
    const int row = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    const uint32_t staged = (uint32_t)__cvta_generic_to_shared(shared + OG_BOX_STAGING_AT +
                                                               group * 4 * OG_STAGED_BYTES);
#pragma unroll
    for (int j = 0; j < OG_HEIGHT; j++) {
        const og_index m = tile.m + 64 * j;
        og_kept kept[2][1];
        if (m >= a.m)
            continue;
        for (int h = 0; h < 2; h++)
            og_load_filters_kept(a, m + row + 8 * h, kept[h]);
#pragma unroll
        for (int first = 0; first < OG_WIDTH; first += OG_PACKED_PLACES) {
            if (!OG_PATCHES && places + first >= OG_BOX_PLACES)
                continue;
            og_meet_group(group); /* what was there has been read */
            og_pack_places(a, z[j], first, kept, staged);
            og_meet_group(group);
            og_write_places(a, tile, m, places + first, staged);
        }
    }
}

#else

OG_FN void og_finish_box_tile(const og_args &a, const og_box_tile &tile, const og_box_sums &z,
                              char *shared)
{
    const int warp = threadIdx.x / 32 - 4;
    const int places = OG_ALTERNATES ? 0 : og_own_group() * OG_PART_PLACES;
    float *staged = (float *)(shared + OG_BOX_STAGING_AT + warp * OG_STAGED_BYTES);
#pragma unroll 1
    for (int i = 0; i < OG_HEIGHT * OG_COLUMN_PARTS; i++) {
        const int row = 64 * (i / OG_COLUMN_PARTS) + warp % 4 * 16 + (OG_FILTER_ROWS ? 0 : places);
        const int column = 64 * (i % OG_COLUMN_PARTS) + (OG_FILTER_ROWS ? places : 0);
        if (tile.m + (OG_FILTER_ROWS ? row : column) >= a.m ||
            (!OG_PATCHES && (OG_FILTER_ROWS ? column : row) >= OG_BOX_PLACES))
            continue;
        __syncwarp(); /* what was there has been read */
        og_stage_sums(staged, z, i);
        __syncwarp();
#pragma unroll 1
        for (int q = 0; q < OG_THREAD_QUADS; q += OG_QUADS_AT_ONCE)
            og_finish_some(a, tile, row, column, q, staged);
    }
}

#endif

#endif
