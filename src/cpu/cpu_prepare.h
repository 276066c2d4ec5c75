/* SPDX-License-Identifier: MIT
 *
 * cpu_prepare.h - a kernel of the plan as the CPU runs it: step programs over
 * blocks that stay in the L1 cache, and how the space is cut into them.
 *
 * The dims of a space are three *axes*, base, outer and inner; the flat index
 * along an axis runs over its dims, last dim fastest. A *piece* is a range of
 * outer times a range of inner indices at one base index; its elements are a
 * block of outer x inner elements, and a program runs once for each piece.
 *
 *   layout       base             outer           inner
 *   pointwise    -                all but inner   last dim
 *    transposed  the other dims   another dim     last dim
 *   rows         -                kept dims       reduced dims
 *   columns      other kept dims  reduced dims    last kept dim
 *   product      the other dims   m               n (cpu_product_run.h)
 *
 * A *tile* is what one thread works on from the first pass to the last: of rows
 * `tile_rows` rows (a piece of several whole rows, or one row in several pieces),
 * of columns `tile_rows` neighbouring inner indices over the whole outer axis, of
 * a pointwise kernel one piece. In split kernels all threads work on each tile,
 * pass by pass: the row is cut into *parts*.
 *
 * Every operand of a step is a *place*: a pointer in a table that each thread has
 * (registers of a block each, single elements, row values, or memory of the
 * caller, where the pointer moves along with the piece).
 */
#ifndef OG_CPU_PREPARE_H
#define OG_CPU_PREPARE_H

#include "cpu/cpu_axis.h"
#include "cpu/cpu_kernels.h"
#include "plan/plan.h"

enum { OG_CPU_LATE = 8 }; /* streams that are fetched at once */
enum { OG_CPU_BASE, OG_CPU_OUTER, OG_CPU_INNER, OG_CPU_AXES };

/* A window of plan.h: its place p is start and what its axes lead to. */
typedef struct {
    og_cpu_axis axes[OG_CPU_AXES];
    int64_t start, divisor, extent, stride;
    og_uneven uneven;
} og_cpu_window;

typedef struct {
    int32_t buffer;    /* -1: the offset is the value */
    const void *table; /* or NULL: in this memory, not in a buffer */
    int32_t bytes;     /* of an element */
    int64_t offset;    /* in elements */
    og_cpu_axis axes[OG_CPU_AXES];
    int32_t window_count;
    og_cpu_window *windows;
    union {
        float f32;
        double f64;
    } fill; /* of the type computed in */
} og_cpu_access;

typedef enum {
    OG_CPU_PLACE_CONSTANT, /* pointer */
    OG_CPU_PLACE_THREAD,   /* offset in the thread's memory */
    OG_CPU_PLACE_TILE,     /* offset in the tile's memory */
    OG_CPU_PLACE_MOVING    /* set for every piece */
} og_cpu_place_kind;

typedef struct {
    og_cpu_place_kind kind;
    int32_t index;       /* of a register, slot or row value, while preparing */
    size_t offset;       /* THREAD, TILE */
    const void *pointer; /* CONSTANT */
} og_cpu_place;

typedef enum {
    OG_CPU_MAP,
    OG_CPU_LOAD,
    OG_CPU_SEE, /* a load through windows, or of numbers: cpu_window.c */
    OG_CPU_STORE,
    OG_CPU_SPLAT,  /* one element to the whole block */
    OG_CPU_REPEAT, /* rows: each row's value to its elements */
    OG_CPU_COPY,   /* product: rows of the tile to a block */
    OG_CPU_TILE    /* columns: the row values once for each step */
} og_cpu_step_kind;

typedef struct {
    og_cpu_step_kind kind;
    bool one;        /* of one element, not of the block */
    bool unary;      /* MAP: a function of one argument, as a rule what takes the time */
    int32_t dst;     /* place; of STORE: what is stored */
    int32_t args[3]; /* places; unused ones are 0 */
    int32_t access;  /* LOAD, STORE: of the program */
    const og_cpu_loops *loops;
    union {
        og_cpu_map map;
        og_cpu_load load;
        og_cpu_store store;
    } run;
    union {
        float f32[OG_MAX_NUMBERS];
        double f64[OG_MAX_NUMBERS];
    } constants;
} og_cpu_step;

/* A place that moves with the piece: memory of the caller. */
typedef struct {
    int32_t place, access;
} og_cpu_direct;

/* One that moves through a buffer for a whole chunk or run: sumexp reads it again. */
typedef struct {
    int32_t place;
    int32_t number;
    int32_t bytes; /* of an element */
} og_cpu_stage;

typedef struct {
    bool is_sumexp, is_sqdev;
    og_cpu_fold_kind fold;
    const og_cpu_loops *loops;
    size_t bytes;        /* of an element */
    int32_t source;      /* place */
    int32_t access;      /* >= 0: source is memory that need not be staged */
    bool strided;        /* columns: source is the access, read with its outer stride */
    int32_t stage;       /* sumexp: stage of the source, or -1 */
    int32_t kept;        /* sumexp: where its terms are kept for later passes, or -1 */
    int32_t kept_access; /* >= 0: in this memory */
    int32_t companion;   /* sumexp: the reduction that finds its maximum; sqdev: that of its sum */
    int32_t result;      /* place of the row value, or -1: only a companion */
    size_t accumulators; /* offset in the thread's memory */
    size_t partials;     /* offset in the tile's memory */
} og_cpu_reduction;

typedef struct og_cpu_taps og_cpu_taps; /* cpu_window_spots.c */

/* cpu_window_fold.c: the reduction of what an access sees, or of that times another. */
typedef struct {
    bool is, own;     /* own: x is of the type computed in */
    int32_t x, w;     /* accesses; w -1: none */
    int32_t moving;   /* the window of x that moves along inner, or -1 */
    og_cpu_load load; /* of x */
    og_cpu_load load_w;
    int64_t taps, width; /* of a result; of a line */
    /* cpu_window_spots.c */
    bool turned;     /* columns are lines, not what lines consist of */
    int32_t along;   /* the window that moves from spot to spot, or -1 */
    int64_t step;    /* places, or elements of x, that it moves by */
    int64_t last;    /* element of x: the farthest one in memory */
    int64_t w_pitch; /* weights of columns: elements of a tap's, in a thread's memory; else 0 */
    const og_cpu_taps *runs; /* taps of each run; NULL: there are too many */
} og_cpu_window_fold;

/* cpu_window_lines.c: rows of taps that see the same sheet of rows of an image. */
typedef struct {
    int64_t x, places[OG_MAX_WINDOWS]; /* of its first row of taps */
} og_cpu_sheet;

/* A row of taps, of lines [first, last] of those that are summed at a time. */
typedef struct {
    int32_t sheet, row, w, first, last;
} og_cpu_window_step;

/* The window fold as cpu_window_lines.c makes it, several lines at once. */
typedef struct {
    int64_t width;     /* of a line */
    int64_t step;      /* elements from window to window along it */
    int32_t along;     /* the window that moves from line to line; -1: x itself */
    int64_t line_step; /* rows from a line to the next; 0: each line is alone */
    int64_t row_unit;  /* places, or elements, from row to row */
    int64_t taps, row_taps, tap_rows;
    int64_t place[OG_RUN];  /* along the line, of a row's taps */
    int64_t span, row_span; /* from the first place, or row, to the last */
    int64_t arrays;         /* of a row */
    int64_t back;           /* weights from a line of a step to the one before; 0: none share */
    int32_t sheet_count;
    og_cpu_sheet sheets[OG_RUN];
    int64_t step_count[2]; /* of one line, and of OG_CPU_LINES */
    og_cpu_window_step steps[2][OG_RUN * OG_CPU_LINES];
} og_cpu_window_lines;

typedef struct {
    og_cpu_step *steps;
    int32_t step_count;
    og_cpu_access *accesses;
    int32_t access_count;
    og_cpu_direct *directs;
    int32_t direct_count;
    og_cpu_stage *stages;
    int32_t stage_count;
    og_cpu_stage *kept; /* what earlier passes have kept and this one reads */
    int32_t kept_count;
    og_cpu_reduction *reductions;
    int32_t reduction_count;
    int32_t load;   /* access of the first load of blocks, or -1: fetched ahead */
    int32_t sliced; /* pointwise: a step between whose slices late memory is fetched, or -1 */
    int32_t late[OG_CPU_LATE]; /* contiguous accesses that only later steps touch */
    int32_t late_count;
    bool only_loads;                   /* no steps: reductions read memory themselves */
    og_cpu_window_fold window_fold;    /* columns: takes the place of steps and reductions */
    og_cpu_window_lines *window_lines; /* or NULL: how that is done faster */
    int64_t outer_step;                /* columns: steps along outer of a piece */
} og_cpu_program;

/* A row value that is 1 where its pass is not needed (plan.h). */
typedef struct {
    int32_t place;
    bool is_double;
} og_cpu_guard;

typedef struct {
    /* [1]: safe when outputs are inputs. */
    og_cpu_program *elements[2], *rows[2];
    size_t stages; /* offset of the first in the thread's memory */
    og_cpu_guard *guards;
    int32_t guard_count;
} og_cpu_pass;

typedef enum { OG_CPU_POINTWISE, OG_CPU_ROWS, OG_CPU_COLUMNS, OG_CPU_PRODUCT } og_cpu_layout;

/* The products of a kernel, as cpu_product.h sees them, for one index of the base axis. */
typedef struct {
    const og_cpu_product_kernels *kernels;
    int64_t m, n, k;
    int32_t count;
    og_cpu_factors factors[OG_MAX_PRODUCTS]; /* without data */
    int32_t buffers[OG_MAX_PRODUCTS][2];     /* of left and right */
    int32_t places[OG_MAX_PRODUCTS];         /* the rows of a tile that a piece covers */
    int32_t base_rank;
    int64_t base_extent[OG_MAX_RANK], base_stride[OG_MAX_PRODUCTS][2][OG_MAX_RANK];
    int32_t image;       /* which factor of a convolution has windows of places, or -1 */
    og_cpu_scene *scene; /* how it is seen, or NULL */
    /* PLACES: filters packed before tiles are made, in the scratch memory: a packing of so many
     * bytes for each of so many, and how far an index of a base dim leads among them. */
    size_t filters, filter_bytes;
    int64_t filter_count, filter_step[OG_MAX_RANK];
    og_cpu_view views[2]; /* of a convolution's factors, and what windows move by along base dims */
    int64_t base_step[2][OG_MAX_WINDOWS][OG_MAX_RANK];
    size_t bytes; /* of a sum */

    og_cpu_tiling tiling;
    int64_t m_tiles, n_tiles, tile_count;
    size_t sums, work; /* of a tile: offsets in the thread's memory */
    int64_t groups;    /* of OG_PRODUCT_COLUMNS columns in a row */
    bool reduces;      /* there are rows to finish */
    size_t partials;   /* offset in the scratch memory */
} og_cpu_product;

typedef struct {
    og_cpu_layout layout;
    bool many; /* pieces have several outer rows */
    bool split;
    bool streams; /* rows come from memory, not from a cache: they are fetched ahead */
    int64_t base_count, outer_count, inner_count;
    int64_t row_count, n;             /* rows, and elements of each; pointwise: not used */
    int64_t piece_outer, piece_inner; /* largest piece (columns: outer_step instead) */
    int64_t tile_rows, tile_count;
    int64_t inner_tiles, outer_tiles; /* pointwise, columns: tiles along an axis */
    int64_t part_length, part_count;  /* of a row, in elements */
    int32_t levels;                   /* columns: of runs of runs, in a part */
    int32_t total_levels;             /* columns: in the row */
    int32_t threads;

    og_cpu_product *product; /* or NULL */
    og_cpu_pass *passes;
    int32_t pass_count;
    og_cpu_place *places;
    int32_t place_count;
    int32_t register_count, slot_count, row_value_count, kept_count;

    const og_cpu_access *straight; /* a fold over windows is stored as it is, and here; or NULL */
    const og_cpu_loops *loops_f64; /* steps with these have elements of 8 bytes */
    size_t element_bytes;          /* 4, or 8 where some value is float64 */
    size_t weights;                /* of columns, in a thread's memory, behind whose they are */
    size_t stage_bytes, fold_offset, fold_bytes, kept_offset, kept_bytes;
    size_t thread_bytes, tile_bytes;
    size_t scratch_bytes; /* of a run in all */
} og_cpu_kernel;

/* What sizes are chosen by; tests choose others. Results do not depend on them. */
typedef struct {
    int64_t block_bytes; /* of all registers together */
    int64_t thread_ps;   /* least work that is worth a thread, in picoseconds */
    int64_t slab_least;  /* bytes of temporaries for which kernels share slabs (cpu_slabs.h) */
    int64_t slab_bytes;  /* of these in a slab */
    int64_t slab_rows;   /* least rows of a slab whose last dim is cut: each packs its factors */
} og_cpu_tuning;

typedef struct {
    og_arena arena;
    og_cpu_tuning tuning;
    const og_cpu_kernels *kernels;
    const char *level;
    int32_t max_threads;
    uint64_t packed;                /* bit i: runs get input i packed */
    const char *const *input_names; /* for messages about these */
    og_cpu_kernel *compiled;        /* one per kernel of the plan */
    struct og_cpu_slabs *slabs; /* of kernels that share rows: a list, the first kernels first */
    size_t scratch_offset;      /* in the workspace */
} og_cpu_state;

/* cpu_program.c: how the axes are seen by a program. */
typedef enum {
    OG_CPU_ROW_ONE,    /* a row value is one element */
    OG_CPU_ROW_SAME,   /* it is a block as it is */
    OG_CPU_ROW_REPEAT, /* rows: repeated along inner */
    OG_CPU_ROW_TILE    /* columns: repeated along outer */
} og_cpu_row_form;

typedef struct {
    og_cpu_layout layout;
    int32_t rank[OG_CPU_AXES];
    int32_t dims[OG_CPU_AXES][OG_MAX_RANK];
    bool many;  /* pieces have several outer rows */
    bool whole; /* pieces have whole inner rows */
    bool keeps; /* rows are one chunk: terms of sumexp may be kept (plan_keep.c) */
    og_cpu_row_form row_form;
} og_cpu_geometry;

/* Compiles all passes of kernel into out (places, programs, counts). rows is the
 * geometry of row instructions. */
ogive_status og_cpu_compile(const og_plan *plan, const og_kernel *kernel,
                            const og_cpu_kernels *kernels, const og_cpu_geometry *elements,
                            const og_cpu_geometry *rows, og_arena *arena, og_cpu_kernel *out,
                            ogive_error *error);

/* cpu_window_fold.c: sets program->window_fold, if it is one, of so many taps and of lines as wide
 * as the innermost dim of inner. */
ogive_status og_cpu_find_window_fold(og_cpu_program *program, int64_t taps, int64_t width,
                                     og_arena *arena, ogive_error *error);
/* cpu_window_lines.c: can it be done several lines at once? */
bool og_cpu_find_window_lines(const og_cpu_program *program, const og_cpu_window_fold *fold,
                              og_cpu_window_lines *to);
/* cpu_window_spots.c: can it be done by spots? */
ogive_status og_cpu_find_window_spots(const og_cpu_program *program, og_cpu_window_fold *fold,
                                      bool *can, og_arena *arena, ogive_error *error);

/* cpu_prepare.c */
ogive_status og_cpu_prepare(const og_plan *plan, const ogive_options *options, void **state,
                            size_t *workspace_bytes, ogive_error *error);
ogive_status og_cpu_prepare_tuned(const og_plan *plan, const ogive_options *options,
                                  const og_cpu_tuning *tuning, void **state,
                                  size_t *workspace_bytes, ogive_error *error);
/* Makes state->compiled; *bytes: of workspace, with the plan's temporaries. */
ogive_status og_cpu_prepare_kernels(og_cpu_state *state, const og_plan *plan, size_t *bytes,
                                    ogive_error *error);
void og_cpu_release(void *state);

#endif
