/* SPDX-License-Identifier: MIT
 *
 * cuda_emit.h - inside emission. A kernel's source is, in this order,
 *
 *     the scalar functions (src/math), by #include
 *     OG_V and other numbers that the body's variant fixes
 *     prologue.cuh
 *     struct og_args, the operands, how an index becomes offsets   cuda_emit_args.c
 *     og_pass0, og_pass1, ...: the formula                         cuda_emit_code.c
 *     the body                                                     kernels/, cuda_emit_*.c
 *
 * Source depends on what a kernel is (instructions, dtypes, which operands stand
 * still along which dim, 32- or 64-bit indices, the body's variant), argument bytes
 * on its numbers.
 */
#ifndef OG_CUDA_EMIT_H
#define OG_CUDA_EMIT_H

#include "base/embedded.h"
#include "cuda/emit/cuda_shapes.h"
#include "cuda/emit/cuda_work.h"

/* How an access moves along the dim that vectors lie in. */
typedef enum {
    OG_CUDA_STILL,
    OG_CUDA_UNIT,
    OG_CUDA_STRIDED,
    OG_CUDA_SEEN,
    OG_CUDA_NUMBERED
} og_cuda_motion;

typedef struct {
    og_text members; /* of struct og_args */
    unsigned char bytes[OG_CUDA_ARGUMENT_BYTES];
    size_t size; /* may exceed bytes: then refused at the end */
    og_cuda_pointer *pointers;
    size_t pointer_count, pointer_capacity;
    og_cuda_map maps[3];
    int32_t map_count;
} og_cuda_arguments;

typedef struct {
    const og_plan *plan;
    const og_kernel *kernel;
    const og_cuda_limits *limits;
    const og_cuda_wishes *wishes;
    og_arena *arena;
    ogive_error *error;

    bool wide;          /* 64-bit indices */
    int32_t vector_dim; /* of the space; -1: none, the space is one element */
    int32_t vector;     /* OG_V */
    int32_t threads;    /* OG_THREADS */

    bool *is_kept;           /* [access]: read once for all passes, see og_kept */
    bool *none_kept;         /* [access]: false */
    int32_t *kept_terms;     /* [value]: see og_find_kept_terms(), or NULL */
    int32_t kept_term_count; /* 0: none are kept */
    int32_t *derived;        /* [value]: number of what is computed once for all passes, or -1 */
    int32_t derived_count;   /* 0: nothing is */
    bool *derives;           /* [value]: the first of a number, or what one is computed from */
    int32_t lender;          /* the access whose place in shared memory kept terms take, or -1 */
    bool packs;              /* the body calls pack() and place(): a pass stores one result */
    bool sees_whole;         /* windows of what is loaded whole see all of it */
    bool mends; /* sumexp adds exp(x - m) even if m is infinite, and the body calls mend() */

    og_cuda_arguments arguments;
    int32_t *list; /* [access]: room for a list of them */
    og_text numbers, places, passes, body;
    og_cuda_work *out;
} og_cuda_emitter;

/* ---- cuda_emit.c ---- */

/* The line that includes src/cuda/kernels/NAME.cuh. */
void og_cuda_include(og_text *to, const char *name);

/* A number that a kernel's source has by name. */
typedef struct {
    const char *name; /* NULL ends a list */
    int64_t value;
} og_cuda_number;

/* These add "enum { NAME = value, .. };", and a line "#define NAME value" for each number. */
void og_cuda_add_enum(og_text *to, const og_cuda_number *numbers);
void og_cuda_add_defines(og_text *to, const og_cuda_number *numbers);

/* An enum of what a body's variant fixes; nothing where the source serves every size: who compiles
 * it defines these. */
void og_cuda_add_numbers(og_cuda_emitter *e, const og_cuda_number *numbers);
/* Does the source serve every size, layout and dtype? */
static inline bool og_cuda_serves(const og_cuda_emitter *e)
{
    return e->wishes->body != OG_CUDA_BEST_BODY;
}

/* Elements of dims [from, to): 0 if one of them is. */
int64_t og_cuda_count(const og_space *space, int32_t from, int32_t to);
/* Are there places of window that need more than 31 bits? */
bool og_cuda_moves_far(const og_kernel *kernel, const og_window *window);
/* Do offsets, or indices over the first `rank` dims, need more than 31 bits? A quarter of their
 * range is left for what is counted beyond the space: partial vectors, steps and tiles. */
bool og_cuda_needs_wide(const og_kernel *kernel, int32_t rank);
int32_t og_cuda_power_above(int64_t n); /* the least power of two >= n */
/* Registers that one element of all loads takes which are not kept, in the pass that has the most: of
 * `vector` neighbours, what does not move along them once. */
int32_t og_cuda_load_registers(const og_cuda_emitter *e, int32_t vector);
/* The widest vector along e->vector_dim by which all contiguous operands are moved at once,
 * of kernels that reduce. */
int32_t og_cuda_best_vector(const og_cuda_emitter *e);
/* Room for so many launches; then one after the other, of entry or (pass >= 0)
 * entry<pass>. */
ogive_status og_cuda_make_launches(og_cuda_emitter *e, int32_t most);
ogive_status og_cuda_add_launch(og_cuda_emitter *e, const char *entry, int32_t pass, int64_t blocks,
                                int32_t threads);
/* Refuses a grid that no launch can have. */
ogive_status og_cuda_check_blocks(og_cuda_emitter *e, int64_t blocks);
/* The last launch begins while the one before it ends, from Hopper on: its threads call
 * og_await_launch() before they read or write anything that a launch before touches. Not a
 * kernel's first: what is before that may be the caller's. */
og_cuda_launch *og_cuda_overlap_last(og_cuda_emitter *e);
/* out->body, what explain calls the kernel: at most 95 characters. */
ogive_status og_cuda_name_body(og_cuda_emitter *e, const char *format, ...) OG_PRINTF(2, 3);
/* a.<name>, of type *: the next part of the scratch, so many bytes of it; where it begins. */
size_t og_cuda_add_region(og_cuda_emitter *e, const char *type, const char *name, int64_t bytes);
/* Scratch: a.sums<p> and a.terms<p> of so many structs each, a.totals<p> (sums of a whole
 * column, for its terms) and, where a pass follows another, a.row_values of one a row. */
void og_cuda_add_scratch(og_cuda_emitter *e, int64_t partials, int64_t rows);

/* ---- cuda_emit_args.c ---- */

void og_cuda_add_pointer(og_cuda_emitter *e, const char *type, const char *name, int32_t buffer,
                         size_t offset);
/* a.<name>, an og_map: before all other members. map->at is found here. Returns e's copy of it. */
og_cuda_map *og_cuda_add_map(og_cuda_emitter *e, const char *name, const og_cuda_map *map);
/* Copies all maps into the arena, for launches, which outlive the emitter. */
ogive_status og_cuda_copy_maps(const og_cuda_emitter *e, const og_cuda_map **out);
void og_cuda_add_index(og_cuda_emitter *e, const char *name, int64_t value);
/* The same, an array of so many. */
void og_cuda_add_indices(og_cuda_emitter *e, const char *name, const int64_t *values,
                         int32_t count);
/* An index called name_d, name_h or name_w: of depth, height or width, dim i of three. */
void og_cuda_add_dim_index(og_cuda_emitter *e, const char *name, int i, int64_t value);
void og_cuda_add_divisor(og_cuda_emitter *e, const char *name, int64_t extent);
/* a.<name>, as many og_cut as there are extents: divisors of numbers of 31 bits, or of 63 (far). */
void og_cuda_add_cuts(og_cuda_emitter *e, const char *name, const int64_t *extents, int32_t count,
                      bool far);
/* The name of the one that og_cuda_add_operands() makes for a dim of the space. */
void og_cuda_print_dim_divisor(int32_t dim, char name[16]);
/* In bytes, from the beginning of its buffer. */
size_t og_cuda_offset_of(const og_access *access);
/* The last dim's extent: where columns are several dims, a whole number of vectors of 4. */
int64_t og_cuda_line_of(const og_kernel *kernel);
/* The place among a.numbers of what an access reads, or -1: it is a tensor. */
int32_t og_cuda_number_of(const og_cuda_emitter *e, int32_t access);
/* All accesses, as operands.cuh wants them, and constants. */
void og_cuda_add_operands(og_cuda_emitter *e);
/* "0, 2, 3" */
void og_cuda_print_indices(const int32_t *indices, int32_t count, og_text *text);
/* name(a, index, at): adds index over dims, or dims [from, to), the last fastest, to at. */
void og_cuda_add_seek(og_cuda_emitter *e, const char *name, const int32_t *dims, int32_t count);
void og_cuda_add_seek_range(og_cuda_emitter *e, const char *name, int32_t from, int32_t to);
/* The same between bounds that every kernel without products has. */
typedef enum { OG_CUDA_FIRST, OG_CUDA_LAST_KEPT, OG_CUDA_REDUCED, OG_CUDA_END } og_cuda_bound;
void og_cuda_add_seek_between(og_cuda_emitter *e, const char *name, og_cuda_bound from,
                              og_cuda_bound to);
og_cuda_motion og_cuda_motion_of(const og_cuda_emitter *e, const og_access *access);
const char *og_cuda_type_of(og_dtype dtype);
/* Does instr divide floats, elements, by a number? Its constant then has its inverse beside it, for
 * og_divide_by_f32(). false, too, where numbers and operands are many. */
bool og_cuda_divides_by(const og_cuda_emitter *e, const og_instr *instr, int32_t *constant);
void og_cuda_find_inverse(float by, double *high, double *low);

/* ---- cuda_emit_code.c ---- */

/* Adds pass p: og_pass<p>, and og_rows<p>() where it has row instructions. */
void og_cuda_add_pass(og_cuda_emitter *e, int32_t p);
/* og_derive(): all derived values of a row. */
void og_cuda_add_derive(og_cuda_emitter *e);
/* struct og_row, the kernel's row values, and struct og_kept. */
void og_cuda_add_row(og_cuda_emitter *e);
size_t og_cuda_row_bytes(const og_kernel *kernel); /* sizeof(og_row) */
/* "float", "double", or what stands for either where the source serves both. */
const char *og_cuda_number_type(const og_cuda_emitter *e, bool is_double);
/* "&og_row::v3": a value that pass p computes or reads. */
void og_cuda_print_member(const og_kernel *kernel, int32_t p, int32_t value, og_text *text);

/* ---- cuda_emit_derived.c ---- */

/* Is it a function that calls others, as all do that are more than some instructions? */
bool og_cuda_is_costly(og_op op);
/* Does the pass compute one for each element? */
bool og_cuda_is_costly_pass(const og_pass *pass);
/* How often a pass computes each element. */
int32_t og_cuda_traversals(const og_pass *pass);
/* Registers that a kept number takes; a double's include those that computing with it takes. */
int32_t og_cuda_kept_registers(bool is_double);
/* Finds costly values that several traversals compute of kept loads alone, and has
 * them derived, if og_kept then takes no more than so many registers an element. */
ogive_status og_cuda_find_derived(og_cuda_emitter *e, int32_t registers);

/* ---- cuda_emit_sums.c ---- */

/* og_sums<p> and, if the pass has a sumexp, og_terms<p>. */
void og_cuda_add_sums(og_cuda_emitter *e, int32_t p);
bool og_cuda_has_terms(const og_pass *pass);
/* Of sqdev, which go to og_squares<p>: how many; sizeof(og_squares<p>::sums). */
int32_t og_cuda_square_count(const og_pass *pass);
size_t og_cuda_square_bytes(const og_pass *pass);
bool og_cuda_any_squares(const og_kernel *kernel);
bool og_cuda_any_terms(const og_kernel *kernel);
bool og_cuda_any_guards(const og_kernel *kernel);
/* The pass after p that every row needs. */
int32_t og_cuda_next_pass(const og_kernel *kernel, int32_t p);
/* Does the pass end with anything that is a row's? */
bool og_cuda_has_row_values(const og_pass *pass);
/* Finds terms of sumexp that later passes use. keep: has them kept, for which rows must be
 * one chunk, and og_kept live from pass to pass; else they are computed as such again. */
ogive_status og_cuda_find_terms(og_cuda_emitter *e, bool keep);
/* sizeof(og_sums<p>::sums), or of og_terms<p>::sums; how many members that has. */
size_t og_cuda_sums_bytes(const og_pass *pass, bool terms);
size_t og_cuda_most_sum_bytes(const og_pass *pass); /* the larger of both, 0 if there are none */
int32_t og_cuda_sums_count(const og_pass *pass, bool terms);
/* Bytes of a pass's sums and terms together, the most of any pass. */
int32_t og_cuda_all_sum_bytes(const og_kernel *kernel);

/* ---- cuda_emit_combine.c ---- */

/* In an entry, with the sums of pass p in s<p> and t<p>: the row values, row instructions. */
void og_cuda_add_finish(og_cuda_emitter *e, int32_t p);
/* Rows are reduced in so many parts each, whose sums the body leaves in the scratch, at
 * row * a.partials + part; then, for each pass, the launch that makes row values of them. */
void og_cuda_begin_combine(og_cuda_emitter *e, int64_t rows, int64_t parts);
ogive_status og_cuda_add_combine(og_cuda_emitter *e, int32_t p, int64_t rows, int64_t parts);
/* May several blocks combine a row, because the pass after p has a guard? Not if they read row values,
 * which the first to end replaces, or have two such passes, where each would wait for the others. */
bool og_cuda_shares_combining(const og_cuda_emitter *e, int32_t p);

/* ---- products on tensor cores ---- */

/* Threads that copy a row of so many halves: four elements each, at least. */
static inline int32_t og_cuda_copy_threads(int64_t k)
{
    return k >= 4 * OG_CUDA_SPLIT_THREADS ? OG_CUDA_SPLIT_THREADS
                                          : (int32_t)og_divide_up(k, 128) * 32;
}

/* Marks loads that are the same for all rows as kept: they are loaded once a tile. */
void og_cuda_keep_still(og_cuda_emitter *e);

/* ---- cuda_emit_rows_shared.c ---- */

/* Is there room for rows of n? */
bool og_cuda_fits_rows_shared(og_cuda_emitter *e, int64_t rows, int64_t n);

/* ---- cuda_emit_rows.c ---- */

typedef struct {
    int64_t rows, n;
    int32_t kept; /* registers of what is kept of an element, 0: nothing is read twice */
} og_cuda_rows;

/* Marks what is read in several traversals as kept; returns the registers that an element of all of
 * it takes. */
int32_t og_cuda_mark_kept(og_cuda_emitter *e);
void og_cuda_keep_nothing(og_cuda_emitter *e);

/* All bodies of rows begin with this: it marks what is kept and finds terms. */
ogive_status og_cuda_see_rows(og_cuda_emitter *e, og_cuda_rows *out);
/* Adds everything that comes before the entries. */
void og_cuda_add_rows_parts(og_cuda_emitter *e, int64_t rows, int64_t n);

/* ---- cuda_emit_pointwise.c ---- */

/* Adds everything that comes before the body of vectors along the last dim. */
void og_cuda_begin_vectors(og_cuda_emitter *e);
bool og_cuda_is_contiguous(const og_cuda_emitter *e);

/* ---- bodies: a row each in cuda_emit.c's table of choices ---- */

/* *why: NULL if the body takes the kernel, which is of its kind; else the reason, for explain, ""
 * where there is nothing to tell. e->vector_dim is the last dim. */
typedef ogive_status og_cuda_refuse(og_cuda_emitter *e, const char **why);
og_cuda_refuse og_cuda_refuse_rows_shared, og_cuda_refuse_transpose, og_cuda_refuse_table,
    og_cuda_refuse_windows, og_cuda_refuse_columns_shared;
og_cuda_refuse og_cuda_refuse_hopper_weights;
og_cuda_refuse og_cuda_refuse_hopper_windows, og_cuda_refuse_hopper_windows_halves;
og_cuda_refuse og_cuda_refuse_hopper_float32, og_cuda_refuse_hopper_halves, og_cuda_refuse_mma;
og_cuda_refuse og_cuda_refuse_mma_windows;

ogive_status og_cuda_emit_pointwise(og_cuda_emitter *e);
ogive_status og_cuda_emit_transpose(og_cuda_emitter *e);
ogive_status og_cuda_emit_table(og_cuda_emitter *e);
bool og_cuda_table_pays(int64_t n, const og_cuda_limits *limits);
ogive_status og_cuda_emit_rows(og_cuda_emitter *e);
ogive_status og_cuda_emit_rows_shared(og_cuda_emitter *e);
ogive_status og_cuda_emit_columns(og_cuda_emitter *e);
ogive_status og_cuda_emit_columns_shared(og_cuda_emitter *e);
ogive_status og_cuda_emit_windows(og_cuda_emitter *e);
ogive_status og_cuda_emit_product(og_cuda_emitter *e);
ogive_status og_cuda_emit_mma(og_cuda_emitter *e);
ogive_status og_cuda_emit_mma_windows(og_cuda_emitter *e);
ogive_status og_cuda_emit_hopper_weights(og_cuda_emitter *e);
ogive_status og_cuda_emit_hopper_windows(og_cuda_emitter *e);
ogive_status og_cuda_emit_hopper_windows_halves(og_cuda_emitter *e);
ogive_status og_cuda_emit_hopper_float32(og_cuda_emitter *e);
ogive_status og_cuda_emit_hopper_halves(og_cuda_emitter *e);

#endif
