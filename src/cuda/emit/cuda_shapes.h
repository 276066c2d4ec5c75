/* SPDX-License-Identifier: MIT
 *
 * cuda_shapes.h - numbers of kernels and launches that follow from sizes and strides: for emission,
 * which has them when a plan is made, and for files for PyTorch, which have them when they are
 * called and hold this text (src/pytorch). Plain C that is C++ too, without the library's headers.
 *
 * The lists of members and numbers are X-macros over s, a pointer to the shape; a value is what
 * the kernel's og_args, or its source, has by that name.
 */
#ifndef OG_CUDA_SHAPES_H
#define OG_CUDA_SHAPES_H

#ifndef __CUDACC_RTC__
#include <stdbool.h>
#include <stdint.h>
#endif

/* How many parts of so many elements n elements take. */
static inline int64_t og_count_parts(int64_t n, int64_t each)
{
    return (n + each - 1) / each;
}

/* index / extent = index * magic >> (bits + 1 + shift), for indices below 2^bits (31 or 63); magic
 * 0: extent is 1. The round-up method: with 2^(k-1) < extent <= 2^k, magic = floor(2^(bits+k) /
 * extent) + 1 fits bits + 1 bits, and its error, at most extent / 2^(bits+k), is too small to be
 * seen up to 2^bits. */
typedef struct {
    uint64_t magic;
    uint32_t shift;
} og_division;

static inline og_division og_divide_by(int64_t extent, int bits)
{
    og_division by = {0, 0};
    int k = 0;
    while ((uint64_t)extent > 1ull << k)
        k++;
    if (extent > 1)
        by.magic = (uint64_t)(((unsigned __int128)1 << (bits + k)) / (uint64_t)extent) + 1;
    by.shift = k ? (uint32_t)(k - 1) : 0;
    return by;
}

/* ---- rows that are reduced in parts: combine.cuh ------------------------------------------- */

/* Sums of parts, of chunks of 16384 parts, and so on, of one row. */
static inline int64_t og_count_partials(int64_t parts)
{
    int64_t count = parts;
    while (parts > 1) {
        parts = og_count_parts(parts, 16384);
        count += parts;
    }
    return count;
}

/* Threads that combine a row of so many parts, and those of a block. */
static inline int32_t og_combiners_of(int64_t parts)
{
    return parts <= 512 ? 32 : 512;
}

static inline int32_t og_combine_threads(int64_t parts)
{
    return parts <= 512 ? 128 : 512;
}

/* ---- products on tensor cores: pairs_split.cuh, redo.cuh ----------------------------------- */

enum {
    OG_CUDA_SPLIT_THREADS = 512, /* at most */
    OG_CUDA_SPLIT_KEPT = 16,     /* elements of k that a thread keeps */
    OG_CUDA_SPLIT_MOST = 64,     /* ... where there are many */
    OG_CUDA_REDO_THREADS = 256,
    OG_CUDA_REDO_BLOCKS = 3,  /* of a multiprocessor */
    OG_CUDA_REDO_GROUP = 128, /* rows that og_redo looks at together */
    OG_CUDA_REDO_BYTES = 4 * (4 * (16 * 128 + 32) + 128 * 128 + 128 + 4) /* sm_86 has 101376 */
};

/* How many fours of a row of k a thread of og_split keeps in registers: all that it has, or none. */
static inline int32_t og_cuda_split_keeps(int64_t k)
{
    if (k <= OG_CUDA_SPLIT_THREADS * OG_CUDA_SPLIT_KEPT)
        return OG_CUDA_SPLIT_KEPT / 4;
    return k <= OG_CUDA_SPLIT_THREADS * OG_CUDA_SPLIT_MOST ? OG_CUDA_SPLIT_MOST / 4 : 0;
}

/* Threads of og_split for a row of k, of so many rows: few rows are done soonest by many threads. */
static inline int32_t og_split_lanes(int64_t rows, int64_t k, int64_t multiprocessors)
{
    int64_t each = rows <= 2 * multiprocessors ? 4 : OG_CUDA_SPLIT_KEPT;
    int32_t lanes = 4;
    while (lanes < OG_CUDA_SPLIT_THREADS && lanes * each < k)
        lanes *= 2;
    return lanes;
}

static inline int32_t og_split_threads(int32_t lanes)
{
    return lanes > 256 ? lanes : 256;
}

/* Shared memory of mma_tile.cuh: its stages of 64 k, or a tile's products with their marks. */
static inline int32_t og_mma_shared_bytes(int32_t rows, int32_t columns, int32_t stages,
                                          bool is_half)
{
    const int32_t planes = is_half ? 1 : 2,
                  slots = rows * (columns + 8) * 4 + columns * 8 + rows * columns / 8;
    int32_t bytes = stages * (planes * (rows + columns) * 128 + (is_half ? 0 : columns * 4));
    bytes += is_half ? 0 : columns * 8; /* what was found in w */
    if (!is_half && rows == 128 && columns == 128)
        bytes += columns * 256; /* w as it is */
    return bytes > slots ? bytes : slots;
}

/* ---- products of float32 on Hopper: hopper_float32.cuh ------------------------------------- */

/* How TMA fetches w: rows of k; rows of columns, a k each; or neither, before it has been brought
 * into the first layout. */
typedef enum { OG_CUDA_ALONG, OG_CUDA_ACROSS, OG_CUDA_TURNED } og_cuda_fetch;

enum {
    OG_HOPPER_TILE = 128,   /* the most rows of a tile */
    OG_HOPPER_GROUP = 64,   /* columns of a warpgroup */
    OG_HOPPER_BLOCK_K = 64, /* k of a box, of 128 bytes; of w in float32 half of that */
    OG_HOPPER_TURN = 64,    /* k and columns of a box of hopper_turn.cuh */
    OG_HOPPER_TURN_THREADS = 256,
    OG_HOPPER_TURN_BYTES = OG_HOPPER_TURN * (OG_HOPPER_TURN + 1) * 4,
    OG_HOPPER_SEGMENT = 4096, /* k whose sums are added up: bits depend on it */
    OG_HOPPER_MOST_PART_BYTES = 256 * 1024 * 1024, /* of scratch */
    OG_HOPPER_MANY_SEGMENTS = 16, /* for og_join alone: 128 of 4 tiles took 0.14 ms longer (H200) */
    /* Shared memory: the kernels assert that it is theirs. */
    OG_HOPPER_STAGE_BYTES = 16384,
    OG_HOPPER_RING_STAGES = 14,
    OG_HOPPER_HALF_RING_STAGES = 6,             /* of two blocks of a multiprocessor */
    OG_HOPPER_FIXED_BYTES = 256 + 256 + 8 * 64, /* votes, sums that are asked for, barriers */
    OG_HOPPER_MOST_STEP = 1 << 30,
    OG_HOPPER_MOST_INDEX = 0x7fffffff /* of 32 bits */
};

typedef struct {
    /* Given: batch products of x (m, k) and w (k, n). Strides are in elements. */
    int64_t batch, m, n, k;
    int64_t x_stride_k, w_stride_k, w_stride_n;
    /* From one product's w to another's it is a multiple of w_slab elements, up to w_last times;
     * below 0 if it is backwards along some dim. */
    int64_t w_slab, w_last;
    bool has_batch, x_moves; /* x_moves: each product of the batch has an x of its own */
    bool tf32;               /* x is rounded to TF32, and not made pairs */
    int64_t multiprocessors;
    int64_t sum_bytes; /* of what a run of columns is reduced to */

    /* Found by og_shape_hopper(). */
    int64_t rows;   /* of all products */
    int64_t x_rows; /* of x: m if all products have the same */
    int64_t m_tiles, n_tiles, tiles, k_padded, runs, redo_groups;
    int32_t tile_rows; /* of x: few rows leave time only for w */
    int32_t groups;    /* of OG_HOPPER_GROUP columns; 1 if there is a block for each */
    int32_t blocks;    /* of a multiprocessor; 2 hide more of each other's waiting */
    int64_t segments;  /* of k */
    bool in_parts;     /* segments are multiplied apart */
    bool adds_first;   /* ... and added up before og_join */
    og_cuda_fetch fetch;
    bool turns_x;
    int64_t x_pitch; /* of its copy */
    int64_t w_pitch; /* elements from a row of w, or of its copy, to the next */
} og_hopper_shape;

/* Can TMA step so far (see cuTensorMapEncodeTiled()), without reading anything twice? */
static inline bool og_is_hopper_step(int64_t stride, int64_t least)
{
    return stride >= least && stride <= OG_HOPPER_MOST_STEP && stride % 4 == 0;
}

static inline og_cuda_fetch og_hopper_fetch(const og_hopper_shape *s)
{
    bool has_steps =
        !s->has_batch || (og_is_hopper_step(s->w_slab, 4) && s->w_last < OG_HOPPER_MOST_INDEX);
    if (has_steps && s->w_stride_k == 1 && og_is_hopper_step(s->w_stride_n, s->k))
        return OG_CUDA_ALONG;
    if (has_steps && s->w_stride_n == 1 && og_is_hopper_step(s->w_stride_k, s->n))
        return OG_CUDA_ACROSS;
    return OG_CUDA_TURNED;
}

static inline int64_t og_hopper_part_bytes(const og_hopper_shape *s)
{
    return s->tile_rows * s->groups * OG_HOPPER_GROUP * 4;
}

/* Tiles, or their segments, that blocks take one after the other. */
static inline int64_t og_hopper_items(const og_hopper_shape *s)
{
    return s->tiles * (s->in_parts ? s->segments : 1);
}

static inline int64_t og_hopper_blocks(const og_hopper_shape *s)
{
    int64_t most = s->multiprocessors * s->blocks;
    return og_hopper_items(s) < most ? og_hopper_items(s) : most;
}

/* Sums of tiles that wait in the scratch. */
static inline int64_t og_hopper_places(const og_hopper_shape *s)
{
    return s->in_parts ? s->tiles * s->segments : s->segments > 1 ? og_hopper_blocks(s) : 0;
}

static inline int64_t og_hopper_ring_bytes(const og_hopper_shape *s)
{
    return (s->blocks == 1 ? OG_HOPPER_RING_STAGES : OG_HOPPER_HALF_RING_STAGES) *
           OG_HOPPER_STAGE_BYTES;
}

static inline int64_t og_hopper_shared_bytes(const og_hopper_shape *s)
{
    return og_hopper_ring_bytes(s) + 256 * s->sum_bytes + OG_HOPPER_FIXED_BYTES;
}

static inline int64_t og_hopper_redo_items(const og_hopper_shape *s)
{
    return s->batch * s->runs * s->redo_groups;
}

/* Groups, tiles and parts, so that all multiprocessors have something to do. */
static inline void og_choose_hopper_tiles(og_hopper_shape *s)
{
    int64_t columns = og_count_parts(s->n, OG_HOPPER_GROUP), narrow;
    int64_t processors = s->multiprocessors;
    s->tile_rows = s->m <= 32 ? 32 : s->m <= 64 ? 64 : OG_HOPPER_TILE;
    for (;; s->tile_rows /= 2) {
        s->m_tiles = og_count_parts(s->m, s->tile_rows);
        narrow = s->batch * s->m_tiles * columns;
        if (s->tile_rows == 32 || 2 * narrow * s->segments > processors)
            break;
    }
    s->blocks = s->tile_rows == 32 && narrow <= 2 * processors ? 2 : 1;
    processors *= s->blocks;
    s->groups = narrow <= processors ? 1 : 2;
    if (s->blocks == 1 && 2 * narrow <= processors && narrow * s->segments > processors)
        s->groups = 2; /* in parts */
    s->n_tiles = og_count_parts(s->n, s->groups * OG_HOPPER_GROUP);
    s->tiles = s->batch * s->m_tiles * s->n_tiles;
    /* Segments that a multiprocessor has at most; sums that wait take a tenth of its time. */
    int64_t whole = s->segments * og_count_parts(s->tiles, processors);
    int64_t apart = og_count_parts(s->tiles * s->segments, processors);
    s->in_parts = 10 * whole > 11 * apart &&
                  s->tiles * s->segments <= OG_HOPPER_MOST_PART_BYTES / og_hopper_part_bytes(s);
    s->adds_first =
        s->in_parts && s->segments >= OG_HOPPER_MANY_SEGMENTS && 2 * s->tiles <= processors;
}

/* Finds all that follows from what is given. */
static inline void og_shape_hopper(og_hopper_shape *s)
{
    s->rows = s->batch * s->m;
    s->x_rows = s->x_moves ? s->rows : s->m;
    s->redo_groups = og_count_parts(s->m, OG_CUDA_REDO_GROUP);
    s->k_padded = og_count_parts(s->k, OG_HOPPER_BLOCK_K) * OG_HOPPER_BLOCK_K;
    s->segments = og_count_parts(s->k, OG_HOPPER_SEGMENT);
    s->runs = og_count_parts(s->n, 64);
    s->fetch = og_hopper_fetch(s);
    og_choose_hopper_tiles(s);
    s->w_pitch = s->fetch == OG_CUDA_TURNED  ? og_count_parts(s->k, 4) * 4
                 : s->fetch == OG_CUDA_ALONG ? s->w_stride_n
                                             : s->w_stride_k;
    s->turns_x = s->x_stride_k != 1;
    s->x_pitch = og_count_parts(s->k, 4) * 4;
}

/* Do these sizes and strides need indices of 64 bits? reduces: sums of runs wait in the scratch. */
static inline bool og_hopper_is_wide(const og_hopper_shape *s, bool reduces)
{
    const int64_t most = OG_HOPPER_MOST_INDEX / 2;
    const int64_t x_k = s->x_stride_k < 0 ? -s->x_stride_k : s->x_stride_k;
    const int64_t w_k = s->w_stride_k < 0 ? -s->w_stride_k : s->w_stride_k;
    const int64_t w_n = s->w_stride_n < 0 ? -s->w_stride_n : s->w_stride_n;
    const int64_t slab = s->w_slab < 0 ? -s->w_slab : s->w_slab;
    return s->rows > most || s->runs * s->batch * s->m_tiles > most || s->batch * s->n > most ||
           slab > most || s->w_last > most || s->tiles * s->segments > most ||
           og_hopper_redo_items(s) > most || x_k > most || w_k > most || w_n > most ||
           (reduces && s->rows > most / (s->runs + 2));
}

/* Scratch, in bytes. x_scales: all of the last tile. */
#define OG_HOPPER_REGIONS(X)                                                                       \
    X(w_copy, s->fetch == OG_CUDA_TURNED ? s->batch * s->n * s->w_pitch * 4 : 0)                   \
    X(x_pairs, s->x_rows * s->k_padded * 4)                                                        \
    X(x_copy, s->turns_x ? s->x_rows * s->x_pitch * 4 : 0)                                         \
    X(segments, og_hopper_places(s) * og_hopper_part_bytes(s))                                     \
    X(findings, s->in_parts ? og_hopper_places(s) * s->groups * 128 * 8 : 0)                       \
    X(x_scales, (s->x_rows + OG_HOPPER_TILE) * 8)                                                  \
    X(redo, s->runs * s->rows)                                                                     \
    X(any_redo, 4)

#define OG_HOPPER_INDICES(X)                                                                       \
    X(w_pitch, s->w_pitch)                                                                         \
    X(w_slab, s->w_slab)                                                                           \
    X(w_lines, s->batch * s->n)                                                                    \
    X(w_n, s->w_stride_n)                                                                          \
    X(w_k, s->w_stride_k)                                                                          \
    X(rows, s->rows)                                                                               \
    X(n, s->n)                                                                                     \
    X(k, s->k)                                                                                     \
    X(k_padded, s->k_padded)                                                                       \
    X(m_tiles, s->m_tiles)                                                                         \
    X(n_tiles, s->n_tiles)                                                                         \
    X(items, og_hopper_items(s))                                                                   \
    X(parts, s->segments)                                                                          \
    X(join_parts, s->adds_first ? 1 : s->segments)                                                 \
    X(runs, s->runs)                                                                               \
    X(redo_pitch, s->rows)                                                                         \
    X(m, s->m)                                                                                     \
    X(redo_groups, s->redo_groups)                                                                 \
    X(redo_items, og_hopper_redo_items(s))                                                         \
    X(x_k, s->turns_x ? 1 : s->x_stride_k)                                                         \
    X(x_line_k, s->x_stride_k)                                                                     \
    X(x_pitch, s->x_pitch)

/* Numbers of the source. */
#define OG_HOPPER_NUMBERS(X)                                                                       \
    X(OG_SUM_BYTES, s->sum_bytes)                                                                  \
    X(OG_SHARED_BYTES, og_hopper_shared_bytes(s))                                                  \
    X(OG_REDO_BYTES, OG_CUDA_REDO_BYTES)                                                           \
    X(OG_TURN_BYTES, OG_HOPPER_TURN_BYTES)                                                         \
    X(OG_SEGMENT, OG_HOPPER_SEGMENT)                                                               \
    X(OG_RING_BYTES, og_hopper_ring_bytes(s))                                                      \
    X(OG_BM, s->tile_rows)                                                                         \
    X(OG_WIDTH, s->tile_rows)                                                                      \
    X(OG_GROUPS, s->groups)                                                                        \
    X(OG_SPLIT_PLANES, 1)                                                                          \
    X(OG_SPLIT_WIDENS, !s->tf32)                                                                   \
    X(OG_SPLIT_SHUFFLES, s->fetch == OG_CUDA_ACROSS ? 2 : 1)                                       \
    X(OG_SPLIT_KEEPS, og_cuda_split_keeps(s->k_padded))                                            \
    X(OG_TURNS_W, s->fetch == OG_CUDA_TURNED)                                                      \
    X(OG_W_LINES, s->w_stride_k != 1)                                                              \
    X(OG_W_ACROSS, s->fetch == OG_CUDA_ACROSS)                                                     \
    X(OG_TURNS_X, s->turns_x)                                                                      \
    X(OG_LONG, s->segments > 1)                                                                    \
    X(OG_BY_SEGMENTS, s->in_parts)                                                                 \
    X(OG_X_MOVES, s->x_rows > s->m)                                                                \
    X(OG_TENSOR_BLOCKS, s->blocks)

/* A tensor map: matrices of so many rows and columns of 4 or 2 bytes, fetched in boxes. */
typedef struct {
    int64_t columns, rows, depth, pitch_bytes, slab_bytes;
    int32_t element_bytes, box_columns, box_rows, box_depth;
} og_hopper_map;

static inline og_hopper_map og_hopper_w_map(const og_hopper_shape *s)
{
    const bool turns = s->fetch == OG_CUDA_TURNED, across = s->fetch == OG_CUDA_ACROSS;
    const int64_t slab = turns ? s->n * s->w_pitch : s->has_batch ? s->w_slab : s->w_pitch;
    og_hopper_map map = {across ? s->n : s->k,
                         across ? s->k : s->n,
                         turns ? s->batch : s->w_last + 1,
                         s->w_pitch * 4,
                         slab * 4,
                         4,
                         OG_HOPPER_BLOCK_K / 2,
                         across ? OG_HOPPER_BLOCK_K / 2 : s->groups * OG_HOPPER_GROUP,
                         1};
    return map;
}

static inline og_hopper_map og_hopper_x_map(const og_hopper_shape *s)
{
    const int32_t line = OG_HOPPER_BLOCK_K / 2; /* k of TF32: tf32_round.cuh */
    if (s->tf32) {
        og_hopper_map rounded = {line,
                                 s->m,
                                 s->x_rows / s->m * (s->k_padded / line),
                                 line * 4,
                                 s->m * line * 4,
                                 4,
                                 line,
                                 s->tile_rows,
                                 2};
        return rounded;
    }
    og_hopper_map map = {s->k_padded,
                         s->m,
                         2 * (s->x_rows / s->m),
                         s->k_padded * 2,
                         s->m * s->k_padded * 2,
                         2,
                         OG_HOPPER_BLOCK_K,
                         s->tile_rows,
                         2};
    return map; /* of hi and lo */
}

#endif
