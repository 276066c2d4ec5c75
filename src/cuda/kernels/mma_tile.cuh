/* SPDX-License-Identifier: MIT
 *
 * mma_tile.cuh - a tile of a product on tensor cores by mma.sync: a block of 8 warps has OG_BM rows
 * of x and OG_BN columns (rows of w), and leaves their products in shared memory, for mma.cuh and
 * mma_windows.cuh.
 *
 * x lies in the scratch and is copied to shared memory as it is; so is w of halves. w of
 * float32 is split on its way there. Shared memory holds stages of 64 k each. Where w comes from is
 * the affair of a struct R that a thread has:
 *   R::start(a, tile)                 finds it
 *   R::fetch(a, r, k, part, to)       reads the next stage, from k on, into part or (OG_RAW) starts to
 *                                     copy it to og_raw_at(to, ..); what is beyond the last k is 0
 *
 * float32 (OG_PAIRS): with v s = hi + lo (v scaled by a power of two s, hi and lo float16), x w
 * is hi hi + hi lo + lo hi up to 2^-22. Each 64 k of a row of w take the power of two that
 * brings their greatest magnitude into [2^14, 2^15). Tensor cores truncate what they add, so
 * a chain of products is 64 k long, its small terms first; then the float32 sum takes it,
 * with w's scale undone. A sum that may have lost too much to what pairs cannot hold (pairs.cuh) is
 * marked. Halves are multiplied as they are, and nothing is lost; so is float32 with OG_TF32, x
 * and w rounded to TF32, 32 k at a time.
 *
 * PARAMETERS
 *   OG_BM     rows of a tile: 32, 64 or 128
 *   OG_BN     columns of a tile: 64 or 128
 *   OG_STAGES 2 where w is split on its way, else up to 4
 *   OG_PAIRS  1: float32 as pairs of float16; 0: halves, OG_BFLOAT 1: bfloat16; or
 *   OG_TF32   if it is defined: float32 as TF32
 *   OG_LAST   if it is defined: neighbours of the result are rows of the tile
 *   OG_SCALE_K  if it is defined: w of float32 comes as pairs, which R::fetch() copies, and so many k
 *             (64 or 32) have a scale and a chain. R::settle(r, stage) writes what undoes scales to
 *             the stage that was fetched last, R::end(r, found) what was found
 */
#include "cuda/kernels/pairs.cuh"
#include "cuda/kernels/mma_ptx.cuh"
#include "cuda/kernels/tf32.cuh"
#include "cuda/kernels/tiles.cuh"

enum {
    OG_MMA_THREADS = 256,
    OG_BLOCKS = OG_BM + OG_BN < 128 ? 2 : 1, /* of a multiprocessor, as registers allow */
    OG_PLANES = OG_PAIRS ? 2 : 1,            /* hi and lo */
    OG_WARPS_N = OG_BM == 128 && OG_BN == 64   ? 2
                 : OG_BM == 32 && OG_BN == 128 ? 8
                                               : 4,
    OG_WARPS_M = 8 / OG_WARPS_N,
    OG_WM = OG_BM / OG_WARPS_M, /* a warp's part of the tile: */
    OG_WN = OG_BN / OG_WARPS_N,
    OG_I = OG_WM / 16, /* products of mma.sync, down */
    OG_J = OG_WN / 8,  /* and across */
#ifdef OG_SCALE_K
    OG_SCALES = 64 / OG_SCALE_K, /* of a stage, of a row of w */
    OG_SPLITS_W = 0,
#else
    OG_SCALES = 1,
    OG_SPLITS_W = OG_PAIRS,
#endif
    /* A stage: rows of 64 halves of x, planes one after the other, then those of w, then what
     * undoes w's scales. */
    OG_LINE = 128,
    OG_X_ELEMENT = OG_PAIRS ? 2 : sizeof(og_element),
    OG_STAGE_K = OG_LINE / OG_X_ELEMENT, /* 64; 32 of TF32 */
    OG_MMA_X_BYTES = OG_PLANES * OG_BM * OG_LINE,
    OG_MMA_W_BYTES = OG_PLANES * OG_BN * OG_LINE,
    OG_MMA_STAGE_BYTES = OG_MMA_X_BYTES + OG_MMA_W_BYTES + (OG_PAIRS ? OG_SCALES * OG_BN * 4 : 0),
    /* Behind the stages of the largest tiles: w of the next step, as it is; threads that held it
     * in registers would have too few. Each has 16 bytes of each 4096. */
    OG_RAW = !OG_PAIRS || (OG_BM == 128 && OG_BN == 128),
    OG_RAW_BYTES = OG_SPLITS_W && OG_RAW ? OG_BN * 64 * 4 : 0,
    /* Behind that: what was found in columns of w. */
    OG_FOUND_AT = OG_STAGES * OG_MMA_STAGE_BYTES + OG_RAW_BYTES,
    OG_FOUND_BYTES = OG_PAIRS ? OG_BN * 8 : 0,
/* Afterwards: the products; what columns of w may have lost; marks of sums, a bit each. */
#ifdef OG_LAST
    OG_PITCH = OG_BM + 4, /* no bank conflicts */
    OG_COLUMNS_AT = OG_BN * OG_PITCH * 4,
#else
    OG_PITCH = OG_BN + 8,
    OG_COLUMNS_AT = OG_BM * OG_PITCH * 4,
#endif
    OG_MARKS_AT = OG_COLUMNS_AT + OG_BN * 8,
    OG_MARK_WORDS = OG_BN / 32, /* of a row */
    OG_SLOT_BYTES = OG_MARKS_AT + OG_BM * OG_MARK_WORDS * 4
};
static_assert(OG_SHARED_BYTES >= OG_FOUND_AT + OG_FOUND_BYTES && OG_SHARED_BYTES >= OG_SLOT_BYTES,
              "the launch gives it");

/* Where 16 bytes of a row of a stage are: 8 neighbouring rows do not conflict. */
OG_FN int og_swizzle(int row, int chunk)
{
    return row * OG_LINE + ((chunk ^ row % 8) << 4);
}

OG_FN og_tile og_find_own_tile(const og_args &a)
{
    return og_find_tile<OG_BM, OG_BN>(a, (og_index)blockIdx.x);
}

/* The number of a tile's row, of all rows of x; beyond the product's last it is that one. */
OG_FN int64_t og_line_of(const og_args &a, const og_tile &tile, int row)
{
    og_index m = tile.m + row < a.m ? tile.m + row : a.m - 1;
    return (int64_t)(tile.base * a.m + m);
}

/* ---- x ------------------------------------------------------------------------------------- */

/* Where the thread's first 16 bytes of a step are. The scratch has a tile of rows more than x:
 * what lies beyond a batch's last row is read, and counts for nothing. */
OG_FN const char *og_start_x(const og_args &a, const og_tile &tile)
{
    int64_t line = (int64_t)(tile.base * a.m + tile.m) + threadIdx.x / 8;
    return (const char *)a.x_pairs + line * OG_PLANES * a.k_padded * OG_X_ELEMENT +
           threadIdx.x % 8 * 16;
}

/* Starts to copy a stage of x. */
OG_FN void og_copy_x_stage(const og_args &a, const char *&x, char *stage)
{
    const int thread = og_thread();
    const int64_t pitch = (int64_t)a.k_padded * OG_X_ELEMENT;
    char *to = stage + og_swizzle(thread / 8, thread % 8);
#pragma unroll
    for (int i = 0; i < OG_BM; i += OG_MMA_THREADS / 8)
#pragma unroll
        for (int plane = 0; plane < OG_PLANES; plane++)
            og_copy_16(to + (plane * OG_BM + i) * OG_LINE, x + (i * OG_PLANES + plane) * pitch);
    x += OG_LINE;
}

/* ---- w ------------------------------------------------------------------------------------- */

enum {
    OG_WIDE = 16 / sizeof(og_element), /* neighbours that are read at once */
    OG_ITEMS = OG_STAGE_K / 4 / OG_WIDE, /* of a row, that a thread has: 4 threads share a row */
    OG_W_ROWS = OG_BN / 64             /* that a thread has a part of */
};

/* The row, of 64, of a thread. Neighbouring fours of threads write to different banks: rows
 * of 8 are taken in the order 0 4 2 6 1 5 3 7. */
OG_FN int og_w_row_of(int thread)
{
    int q = thread / 4;
    return q / 8 * 8 + q % 2 * 4 + q / 2 % 2 * 2 + q / 4 % 2;
}

/* A thread's part of a stage. */
typedef og_some<og_element, OG_WIDE> og_w_part[OG_W_ROWS][OG_ITEMS];

/* Where a thread's 16 bytes are as they come from memory: halves in their stage, float32
 * (OG_RAW) behind the stages. */
OG_FN char *og_raw_at(char *to, int row, int item)
{
    const int thread = og_thread();
    if constexpr (OG_PAIRS)
        return to + ((row * OG_ITEMS + item) * OG_MMA_THREADS + thread) * 16;
    return to + OG_MMA_X_BYTES + og_swizzle(row * 64 + og_w_row_of(thread), 4 * item + thread % 4);
}

#if OG_PAIRS
/* What was found in a column of w: the bits of the greatest magnitude, the quarters of pairs.cuh. In
 * shared memory, for want of registers. */
struct alignas(8) og_mma_findings {
    uint32_t most;
    int quarters;
};
#endif

#if OG_PAIRS && !defined(OG_SCALE_K)
/* What undoes the scale of a column's 64 k, of which the thread has a quarter. */
OG_FN float og_look_at_part(const og_some<og_element, OG_WIDE> (&part)[OG_ITEMS],
                            og_mma_findings &found)
{
    uint32_t most = 0;
#pragma unroll
    for (int j = 0; j < 16; j++) {
        const uint32_t bits = og_bits_f32(part[j / OG_WIDE].e[j % OG_WIDE]) & 0x7fffffffu;
        most = bits > most ? bits : most;
    }
#pragma unroll
    for (int delta = 1; delta <= 2; delta *= 2) {
        const uint32_t other = __shfl_xor_sync(0xffffffffu, most, delta);
        most = other > most ? other : most;
    }
    const float undo = og_find_undo(most);
    bool any = false;
#pragma unroll
    for (int j = 0; j < 16; j++)
        any |= og_is_small(part[j / OG_WIDE].e[j % OG_WIDE], og_bits_f32(undo));
    int quarters = any;
    quarters += __shfl_xor_sync(0xffffffffu, quarters, 1);
    quarters += __shfl_xor_sync(0xffffffffu, quarters, 2);
    if (threadIdx.x % 4 == 0) {
        const og_mma_findings before = found;
        found = {most > before.most ? most : before.most, before.quarters + quarters};
    }
    return undo;
}

/* What R::fetch() read, split, goes to its stage. */
OG_FN void og_place_w(og_w_part &part, char *raw, char *stage, og_mma_findings *found)
{
    const int thread = og_thread(), lane = thread % 4;
    if constexpr (OG_RAW)
#pragma unroll
        for (int i = 0; i < OG_W_ROWS * OG_ITEMS; i++)
            *(uint4 *)&part[i / OG_ITEMS][i % OG_ITEMS] =
                *(const uint4 *)og_raw_at(raw, i / OG_ITEMS, i % OG_ITEMS);
    char *w = stage + OG_MMA_X_BYTES;
    float *undo = (float *)(w + OG_MMA_W_BYTES);
#pragma unroll
    for (int i = 0; i < OG_W_ROWS; i++) {
        const int row = i * 64 + og_w_row_of(thread);
        const float inverse = og_look_at_part(part[i], found[row]);
        const float scale = og_find_scale(inverse);
#pragma unroll
        for (int j = 0; j < OG_ITEMS; j++) {
            const float *e = part[i][j].e;
            uint2 hi, lo;
            og_split_scaled(e[0], e[1], scale, hi.x, lo.x);
            og_split_scaled(e[2], e[3], scale, hi.y, lo.y);
            char *to = w + og_swizzle(row, 2 * j + lane / 2) + lane % 2 * 8;
            *(uint2 *)to = hi;
            *(uint2 *)(to + OG_BN * OG_LINE) = lo;
        }
        if (lane == 0)
            undo[row] = inverse;
    }
}
#endif

/* ---- a stage ------------------------------------------------------------------------------- */

typedef float og_mma_sums[OG_I][OG_J][4]; /* a thread's part of the tile */

/* A warp's place in the tile. */
OG_FN int og_mma_row(int thread)
{
    return thread / 32 % OG_WARPS_M * OG_WM;
}

OG_FN int og_mma_column(int thread)
{
    return thread / 32 / OG_WARPS_M * OG_WN;
}

/* Loads 16 rows of x, for step k of 4. */
OG_FN void og_load_x(const char *x, int row, int k, int lane, uint32_t *to)
{
    og_load_matrices(to, x + og_swizzle(row + lane % 16, 2 * k + lane / 16));
}

/* Loads 8 rows of w, for 4 steps. */
OG_FN void og_load_w(const char *w, int row, int lane, uint32_t (&to)[4][2])
{
#pragma unroll
    for (int k = 0; k < 4; k += 2)
        og_load_matrices(to[k], w + og_swizzle(row + lane % 8, 2 * k + lane / 8));
#ifdef OG_TF32
#pragma unroll
    for (int i = 0; i < 8; i++)
        to[i / 2][i % 2] = og_round_tf32(og_float_bits(to[i / 2][i % 2]));
#endif
}

/* d += x w, a step. */
OG_FN void og_mma_step(float *d, const uint32_t *x, const uint32_t *w)
{
#ifdef OG_TF32
    og_mma_8(d, x, w);
#else
    og_mma_16<OG_BFLOAT>(d, x, w);
#endif
}

/* sum += the products of a stage. */
OG_FN void og_mma_stage(const char *stage, og_mma_sums &sum)
{
    const char *w = stage + OG_MMA_X_BYTES;
    const int thread = og_thread(), lane = thread % 32;
    const int row = og_mma_row(thread), column = og_mma_column(thread);
    uint32_t hi[OG_J][4][2];
#pragma unroll
    for (int j = 0; j < OG_J; j++)
        og_load_w(w, column + 8 * j, lane, hi[j]);
#if OG_PAIRS
    uint32_t lo[OG_J][4][2];
#pragma unroll
    for (int j = 0; j < OG_J; j++)
        og_load_w(w + OG_BN * OG_LINE, column + 8 * j, lane, lo[j]);
#endif
#pragma unroll
    for (int i = 0; i < OG_I; i++) {
        uint32_t x[4][4];
#pragma unroll
        for (int k = 0; k < 4; k++)
            og_load_x(stage, row + 16 * i, k, lane, x[k]);
#pragma unroll
        for (int block = 0; block < OG_SCALES; block++) {
            const int from = 4 / OG_SCALES * block, end = from + 4 / OG_SCALES;
            float chain[OG_J][4];
#pragma unroll
            for (int j = 0; j < OG_J; j++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    chain[j][e] = 0.0f;
#if OG_PAIRS
#pragma unroll
            for (int k = from; k < end; k++) {
                uint32_t small[4];
                og_load_x(stage + OG_BM * OG_LINE, row + 16 * i, k, lane, small);
#pragma unroll
                for (int j = 0; j < OG_J; j++)
                    og_mma_step(chain[j], small, hi[j][k]);
#pragma unroll
                for (int j = 0; j < OG_J; j++)
                    og_mma_step(chain[j], x[k], lo[j][k]);
            }
#endif
#pragma unroll
            for (int k = from; k < end; k++)
#pragma unroll
                for (int j = 0; j < OG_J; j++)
                    og_mma_step(chain[j], x[k], hi[j][k]);
#pragma unroll
            for (int j = 0; j < OG_J; j++) {
                float2 undo = {1.0f, 1.0f};
                if (OG_PAIRS)
                    undo = *(const float2 *)(w + OG_MMA_W_BYTES +
                                             4 * (block * OG_BN + column + 8 * j + lane % 4 * 2));
#pragma unroll
                for (int e = 0; e < 4; e++)
                    sum[i][j][e] = fmaf(chain[j][e], e % 2 ? undo.y : undo.x, sum[i][j][e]);
            }
        }
    }
}

/* ---- a tile -------------------------------------------------------------------------------- */

OG_FN void og_clear(og_mma_sums &sum)
{
#pragma unroll
    for (int i = 0; i < OG_I; i++)
#pragma unroll
        for (int j = 0; j < OG_J; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                sum[i][j][e] = 0.0f;
}

#if OG_PAIRS
/* What columns may have lost goes to where it stays; no sum is marked yet. */
OG_FN void og_leave_columns(const og_args &a, const og_mma_findings *found, char *shared)
{
    const int thread = threadIdx.x;
    og_mma_findings own = {0, 0};
    if (thread < OG_BN)
        own = found[thread];
    __syncthreads();
    if (thread < OG_BN)
        ((og_column_loss *)(shared + OG_COLUMNS_AT))[thread] =
            og_weigh_column(own.most >> 16, (float)own.quarters);
    for (int i = thread; i < OG_BM * OG_MARK_WORDS; i += OG_MMA_THREADS)
        ((uint32_t *)(shared + OG_MARKS_AT))[i] = 0;
    __syncthreads();
}
#endif

/* sum = the products of a tile, x scaled. */
#if OG_PAIRS && !defined(OG_SCALE_K)
/* While a stage is multiplied the other is filled; half of the warps fill before they
 * multiply, half after: each of a multiprocessor's four parts has one of both. */
template <class R> OG_FN void og_mma_tile(const og_args &a, char *shared, og_mma_sums &sum)
{
    const og_tile tile = og_find_own_tile(a);
    const int steps = (int)(a.k_padded / 64);
    const char *x = og_start_x(a, tile);
    char *raw = shared + 2 * OG_MMA_STAGE_BYTES;
    og_mma_findings *found = (og_mma_findings *)(shared + OG_FOUND_AT);
    R reader = R::start(a, tile);
    og_w_part part; /* OG_RAW: for a moment */
    og_clear(sum);
    for (int i = 0; i < OG_W_ROWS; i++)
        if (threadIdx.x % 4 == 0)
            found[i * 64 + og_w_row_of(threadIdx.x)] = {0, 0};
    R::fetch(a, reader, 0, part, raw);
    og_copy_x_stage(a, x, shared);
    og_end_copies();
    og_await_copies<0>();
    og_place_w(part, raw, shared, found);
    R::fetch(a, reader, 64, part, raw);
    og_end_copies();
    __syncthreads();
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        char *now = shared + step % 2 * OG_MMA_STAGE_BYTES;
        char *next = shared + (step + 1) % 2 * OG_MMA_STAGE_BYTES;
        const bool more = step + 1 < steps;
        if (more)
            og_copy_x_stage(a, x, next);
        og_end_copies();
#pragma unroll 1
        for (int turn = 0; turn < 2; turn++)
            if (turn != og_thread() / 128) {
                og_mma_stage(now, sum);
            } else if (more) {
                og_await_copies<1>(); /* w's, of the step before */
                og_place_w(part, raw, next, found);
                R::fetch(a, reader, (step + 2) * 64, part, raw);
                og_end_copies();
            }
        og_await_copies<1>(); /* x's */
        __syncthreads();
    }
    og_leave_columns(a, found, shared);
}
#else
/* The stages are a ring that is filled ahead. */
template <class R> OG_FN void og_mma_tile(const og_args &a, char *shared, og_mma_sums &sum)
{
    const og_tile tile = og_find_own_tile(a);
    const int steps = (int)(a.k_padded / OG_STAGE_K);
    const char *x = og_start_x(a, tile);
    R reader = R::start(a, tile);
    og_w_part part; /* for a moment */
    og_clear(sum);
#pragma unroll 1
    for (int step = 1 - OG_STAGES; step < steps; step++) {
        const int next = step + OG_STAGES - 1;
        if (step >= 0) {
            og_await_copies<OG_STAGES - 2>();
            __syncthreads();
        }
        if (next < steps) {
            char *stage = shared + next % OG_STAGES * OG_MMA_STAGE_BYTES;
            R::fetch(a, reader, next * OG_STAGE_K, part, stage);
            og_copy_x_stage(a, x, stage);
        }
        og_end_copies();
        if (step >= 0)
            og_mma_stage(shared + step % OG_STAGES * OG_MMA_STAGE_BYTES, sum);
#ifdef OG_SCALE_K
        if (next < steps)
            R::settle(reader, shared + next % OG_STAGES * OG_MMA_STAGE_BYTES);
#endif
    }
    og_await_copies<0>();
#ifdef OG_SCALE_K
    og_mma_findings *found = (og_mma_findings *)(shared + OG_FOUND_AT);
    R::end(reader, found);
    __syncthreads();
    og_leave_columns(a, found, shared);
#else
    __syncthreads();
#endif
}
#endif

/* Where a product waits for pass 0. */
OG_FN int og_place_in_tile(int row, int column)
{
#ifdef OG_LAST
    return column * OG_PITCH + row;
#else
    return row * OG_PITCH + column;
#endif
}

/* Products go to shared memory; columns: so many there are. */
OG_FN void og_leave_sums(const og_args &a, const og_tile &tile, og_index columns,
                         const og_mma_sums &sum, char *shared)
{
    const int lane = threadIdx.x % 32, first = og_mma_row(threadIdx.x) + lane / 4;
    const int column = og_mma_column(threadIdx.x) + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2 * OG_I; i++) {
        const int row = first + 8 * i;
        float *to = (float *)shared + og_place_in_tile(row, column);
#if OG_PAIRS
        const og_row_scale scale = ((const og_row_scale *)a.x_scales)[og_line_of(a, tile, row)];
        uint32_t *marks = (uint32_t *)(shared + OG_MARKS_AT) + row * OG_MARK_WORDS;
#endif
#pragma unroll
        for (int j = 0; j < OG_J; j++) {
            float y[2];
#pragma unroll
            for (int e = 0; e < 2; e++) {
                y[e] = sum[i / 2][j][i % 2 * 2 + e];
#if OG_PAIRS
                const int n = column + 8 * j + e;
                const og_column_loss &c = ((const og_column_loss *)(shared + OG_COLUMNS_AT))[n];
                const float z = y[e] * scale.undo;
                if (og_is_lost(y[e], z, c, scale, og_least_sum(a.k)) && tile.n + n < columns)
                    atomicOr(&marks[n / 32], 1u << n % 32);
                y[e] = z;
#endif
            }
#ifdef OG_LAST
            to[8 * j * OG_PITCH] = y[0];
            to[(8 * j + 1) * OG_PITCH] = y[1];
#else
            *(float2 *)(to + 8 * j) = make_float2(y[0], y[1]);
#endif
        }
    }
}
