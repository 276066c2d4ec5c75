/* SPDX-License-Identifier: MIT
 *
 * cuda_reduce_shapes.h - how rows and columns are shared out among threads, by sizes, dtypes and
 * what a kernel does to an element: for emission, and for files for PyTorch, which hold this text
 * and find it when they are called. Plain C that is C++ too. No bit of a result depends on it.
 */
#ifndef OG_CUDA_REDUCE_SHAPES_H
#define OG_CUDA_REDUCE_SHAPES_H

#ifndef __CUDACC_RTC__
#include <stdbool.h>
#include <stdint.h>
#endif

/* What a kernel does to an element of a row. */
typedef struct {
    int32_t kept;         /* registers of what is read in several traversals; 0: nothing is */
    bool keeps_halves;    /* all of that are halves */
    bool is_costly;       /* it computes costly functions, besides the terms of sumexp */
    bool has_terms;       /* there is a sumexp */
    bool loads_more;      /* a pass loads anything that is not kept */
    int32_t sum_bytes;    /* of all accumulators of a lane, in the pass that has the most */
    int32_t all_bytes;    /* those of sums and terms together */
    int32_t loads;        /* registers of the loads of a pass, the most of any; */
    int32_t loads_beside; /* of those that are not kept */
} og_reduced_facts;

static inline int32_t og_least_of_two(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* The least power of two >= n. */
static inline int32_t og_power_above(int64_t n)
{
    int32_t power = 1;
    while (power < n)
        power *= 2;
    return power;
}

/* ---- rows.cuh ------------------------------------------------------------------------------ */

enum {
    OG_ROWS_LANES = 512, /* plan.h's OG_LANES and OG_CHUNK */
    OG_ROWS_CHUNK = 16384,
    OG_ROWS_THREADS = 256,       /* of a block of several groups */
    OG_ROWS_KEPT_REGISTERS = 64, /* that og_kept may take */
    OG_ROWS_KEPT_ELEMENTS = 32,  /* of each operand, a thread, where they are no halves */
    OG_ROWS_COSTLY_ELEMENTS =
        16, /* of costly functions, for NVRTC's time: softmax(x * sigmoid(x)) of 4096x4096 225 ms
               instead of 359, and 39.9 us instead of 39.5 */
    OG_ROWS_SUM_REGISTERS = 48,    /* that accumulators may take */
    OG_ROWS_FLIGHT_REGISTERS = 32, /* that loads under way may take */
    OG_ROWS_FLIGHT_LOADS = 16,     /* 32 by single elements: 138 us, 16: 102 (100000x1001, H200) */
    OG_ROWS_WARP = 1024 /* the longest row that a warp takes; half of that if by 8 halves:
                                      softmax of 4096x1024 on an H200 13.2 us, by a block 12.3 */
};

typedef struct {
    int32_t vector, threads; /* OG_V, OG_THREADS */
    int32_t group, vectors, steps, flight;
    int32_t before; /* steps that rows of this shape have more than, if it keeps them */
    bool keeps, whole;
} og_rows_shape;

/* Steps that sources are made for: 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, ...; the least
 * of them that is enough for so many, and the one before it. */
static inline int32_t og_steps_above(int64_t steps, int32_t *before)
{
    int32_t from = 0, to = 1;
    while (to < steps) {
        from = to;
        to += to < 4 ? 1 : og_power_above(to + 1) / 8;
    }
    *before = from;
    return to;
}

/* Elements that a thread may keep. Halves take half of a register, but terms of sumexp are floats;
 * and twice as many loads of weights, which may be unaligned too, take NVRTC too long (layer_norm
 * of 16384 671 ms). */
static inline int32_t og_most_kept(const og_reduced_facts *f)
{
    int32_t most = OG_ROWS_KEPT_REGISTERS / f->kept;
    if (!f->keeps_halves || f->is_costly)
        return og_least_of_two(most, OG_ROWS_KEPT_ELEMENTS);
    return f->has_terms || f->loads_more ? most : 2 * most;
}

/* The vector that a block would keep a row of so many steps by. 4096 rows on an H200: norms of
 * 4096 bfloat16 20.4 us by 8, 21.1 by 4; of 16384 67.4 by 4, 68.7 by 2, 84 by 1; softmax of 4096
 * 22.9 by 4, 23.5 by 8. */
static inline int32_t og_kept_vector(const og_reduced_facts *f, int64_t steps, int32_t widest)
{
    int32_t least = f->is_costly ? 2 : f->keeps_halves ? 4 : 1, vector = widest;
    int32_t good =
        f->keeps_halves && !f->has_terms ? 2 * OG_ROWS_KEPT_ELEMENTS : OG_ROWS_KEPT_ELEMENTS;
    good = f->is_costly ? OG_ROWS_COSTLY_ELEMENTS : good;
    while (vector > least && steps * vector > good)
        vector /= 2;
    while (vector > 1 && steps * vector > og_most_kept(f))
        vector /= 2;
    return vector;
}

/* A block of OG_LANES / vector threads, a step of 512 elements at a time. */
static inline og_rows_shape og_take_block(const og_reduced_facts *f, int64_t n, int32_t widest,
                                          bool may_keep)
{
    og_rows_shape s = {widest, 0, 0, 1, 0, 0, 0, false, false};
    const int32_t most = OG_ROWS_SUM_REGISTERS / (f->sum_bytes / 4);
    s.steps = og_steps_above((n + OG_ROWS_LANES - 1) / OG_ROWS_LANES, &s.before);
    s.keeps = may_keep && s.steps <= og_most_kept(f) && n > 0;
    if (s.keeps)
        s.vector = og_kept_vector(f, s.steps, widest);
    while (s.vector > 1 && !s.keeps && s.vector > most)
        s.vector /= 2;
    s.group = OG_ROWS_LANES / s.vector;
    return s;
}

/* Part of a warp, or a warp. */
static inline og_rows_shape og_take_warp(const og_reduced_facts *f, int64_t n, int32_t widest,
                                         bool may_keep)
{
    og_rows_shape s = {0, 0, 0, 0, 0, 0, 0, false, false};
    const int32_t width = n < OG_ROWS_LANES ? og_power_above(n) : OG_ROWS_LANES;
    s.steps = og_steps_above((n + OG_ROWS_LANES - 1) / OG_ROWS_LANES, &s.before);
    s.vector = widest < width ? widest : width;
    s.group = width / s.vector;
    if (s.group > 1 && s.group <= 32) /* two loads of a thread are better than two threads */
        s.group /= 2;
    s.group = s.group < 32 ? s.group : 32;
    s.vectors = width / s.vector / s.group;
    s.keeps = may_keep && s.steps * s.vectors * s.vector <= og_most_kept(f) && n > 0;
    return s;
}

/* How n elements, of a row or of a chunk, are shared out. widest: the vector by which all operands
 * can be moved that are neighbours in memory. */
static inline og_rows_shape og_shape_rows(const og_reduced_facts *f, int64_t n, int32_t widest,
                                          bool may_keep)
{
    og_rows_shape s = {0, 0, 0, 0, 0, 0, 0, false, false};
    may_keep = may_keep && f->kept > 0;
    bool fits_warp = n <= (may_keep && widest > 4 ? OG_ROWS_WARP / 2 : OG_ROWS_WARP);
    if (fits_warp) {
        s = og_take_warp(f, n, widest, may_keep);
        fits_warp = (s.keeps || !may_keep) &&
                    f->sum_bytes / 4 * s.vectors * s.vector <= OG_ROWS_SUM_REGISTERS;
    }
    if (!fits_warp)
        s = og_take_block(f, n, widest, may_keep);
    const int32_t loads = s.keeps ? f->loads_beside : f->loads;
    s.threads = s.group > 32 ? s.group : OG_ROWS_THREADS;
    s.flight = s.steps;
    while (s.flight > 1 &&
           ((s.keeps && s.steps % s.flight) || s.flight * s.vectors > OG_ROWS_FLIGHT_LOADS ||
            s.flight * s.vectors * s.vector * loads > OG_ROWS_FLIGHT_REGISTERS))
        s.flight--;
    const int32_t width = s.group * s.vectors * s.vector;
    s.whole = n > 0 && n % width == 0 && n / width % (s.keeps ? s.steps : s.flight) == 0;
    if (s.whole)
        s.before = s.steps;
    return s;
}

/* OG_WHOLE of rows.cuh. */
static inline int32_t og_whole_steps(const og_rows_shape *s)
{
    return s->keeps ? s->before : s->whole ? OG_ROWS_CHUNK : 0;
}

/* ---- columns.cuh --------------------------------------------------------------------------- */

enum {
    OG_COLUMNS_RUN = 64,              /* plan.h's OG_RUN */
    OG_COLUMNS_TILE = 64 * 64,        /* elements of a column */
    OG_COLUMNS_THREADS = 512,         /* at most */
    OG_COLUMNS_VECTOR = 4,            /* eight halves would take too many registers */
    OG_COLUMNS_ONE_RUN_THREADS = 128, /* of a block if a column is one run */
    OG_COLUMNS_SHARED_BYTES =
        32 * 1024,                    /* of runs' sums: five blocks fit an H200's multiprocessor */
    OG_COLUMNS_FLIGHT_REGISTERS = 16, /* that loads under way may take; 32 are no faster */
    OG_COLUMNS_SUM_REGISTERS = 32,    /* that accumulators may take */
    OG_COLUMNS_LEAST = 32             /* columns of a block: two sectors of memory, of halves */
};

typedef struct {
    int32_t vector, threads; /* OG_V, OG_THREADS */
    int64_t n, columns, vectors, per_row, tiles, blocks;
    int32_t x, y, runs, flight;
    bool split;
} og_columns_shape;

/* Narrower blocks, down to OG_COLUMNS_LEAST, where there are too few for all multiprocessors: sums over
 * 4096x2048 of bfloat16 on an H200 take 13.2 us with blocks of 32 columns, 19.9 of 64. */
static inline void og_narrow_columns(og_columns_shape *s, int64_t multiprocessors)
{
    const int64_t parts = s->split ? s->tiles : 1;
    while (s->runs > 1 && s->x > 1 && s->x * s->vector > OG_COLUMNS_LEAST &&
           s->blocks * parts < multiprocessors) {
        s->x /= 2;
        s->blocks = s->vectors / s->x + (s->vectors % s->x > 0);
    }
    while (s->x * s->y < OG_COLUMNS_THREADS && s->y < s->runs)
        s->y *= 2;
    s->threads = s->x * s->y;
}

/* columns neighbours, `outer` times, of n elements each. */
static inline og_columns_shape og_shape_columns(const og_reduced_facts *f, int64_t n,
                                                int64_t columns, int64_t outer, int32_t widest,
                                                int64_t multiprocessors)
{
    og_columns_shape s = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false};
    s.n = n;
    s.columns = columns;
    s.vector = og_least_of_two(widest, OG_COLUMNS_VECTOR);
    while (s.vector > 1 && s.vector * f->all_bytes / 4 > OG_COLUMNS_SUM_REGISTERS)
        s.vector /= 2;
    s.per_row = (columns + s.vector - 1) / s.vector;
    s.vectors = outer && s.per_row > INT64_MAX / outer ? INT64_MAX : s.per_row * outer;
    s.tiles = n / OG_COLUMNS_TILE + (n % OG_COLUMNS_TILE > 0);

    s.runs = n < OG_COLUMNS_TILE ? og_power_above((n + OG_COLUMNS_RUN - 1) / OG_COLUMNS_RUN)
                                 : OG_COLUMNS_RUN;
    s.y = og_least_of_two(s.runs, 16);
    s.x = s.runs == 1 ? OG_COLUMNS_ONE_RUN_THREADS : OG_COLUMNS_THREADS / s.y;
    while (s.runs > 1 && s.x > 1 &&
           s.x * s.vector * s.runs * f->all_bytes > OG_COLUMNS_SHARED_BYTES)
        s.x /= 2;
    while (s.x > 32 && s.x / 2 >= s.vectors)
        s.x /= 2;
    s.blocks = s.vectors / s.x + (s.vectors % s.x > 0);
    s.split = s.tiles > 1 && s.blocks < 2 * multiprocessors;
    og_narrow_columns(&s, multiprocessors);
    s.flight = 16;
    while (s.flight > 1 && s.flight * s.vector * f->loads > OG_COLUMNS_FLIGHT_REGISTERS)
        s.flight /= 2;
    return s;
}

/* OG_SHARED_BYTES of columns.cuh. */
static inline int32_t og_columns_shared_bytes(const og_reduced_facts *f, const og_columns_shape *s)
{
    return (s->runs * s->x * s->vector * f->all_bytes + 7) / 8 * 8;
}

#endif
