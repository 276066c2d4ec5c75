/* SPDX-License-Identifier: MIT
 *
 * cpu_compiler.h - what cpu_program.c and cpu_steps.c share while they make programs
 * of instructions.
 */
#ifndef OG_CPU_COMPILER_H
#define OG_CPU_COMPILER_H

#include "cpu/cpu_prepare.h"

enum { OG_CPU_NONE = -1, OG_CPU_ALWAYS = INT32_MAX };

/* What a program knows of a value. */
typedef struct {
    int32_t place;
    int32_t slot;          /* register behind the place, or OG_CPU_NONE */
    int32_t expanded;      /* place of a row value as a block, or OG_CPU_NONE */
    int32_t expanded_slot; /* its register */
    int32_t direct;        /* access that the place points into, or OG_CPU_NONE */
    int32_t last;          /* instruction that uses it last */
    int32_t store, stores; /* a store of it, and how many there are */
    bool one;              /* one element */
    bool reduced, staged;  /* source of a reduction; of one that needs it twice */
} og_cpu_value;

typedef struct {
    const og_kernel *kernel;
    const og_cpu_kernels *kernels;
    og_arena *arena;
    og_arena scratch;
    og_cpu_kernel *out;
    ogive_error *error;

    og_cpu_place *places;
    size_t place_count, place_capacity;
    int32_t *register_places;
    bool *register_busy;
    int32_t register_count;

    og_cpu_value *values;
    int32_t *row_places; /* of row values that outlive their program, or OG_CPU_NONE */
    bool *row_ones, *outlives;
    int32_t *kept;        /* of values that are kept terms of a sumexp: see plan_keep.c */
    int32_t *kept_stores; /* by number: the access to keep them in, or OG_CPU_NONE */
    bool *needed;         /* in the program being compiled */
    const void **tables;  /* of row values that elements' numbers alone decide, or NULL */
    uint32_t table_dims;  /* of the space, that tables have */

    /* The program being compiled. */
    og_cpu_program *program;
    const og_cpu_geometry *geometry;
    const og_instr **order;
    int32_t count, store_count;
    bool is_rows, aliased;
} og_cpu_compiler;

/* ---- cpu_steps.c ------------------------------------------------------------- */

size_t og_cpu_type_bytes(og_type type);
/* Memory of this dtype holds the type as it is. */
bool og_cpu_is_own_type(og_type type, og_dtype dtype);
const og_cpu_loops *og_cpu_loops_of(const og_cpu_compiler *c, og_type type);
bool og_cpu_is_row_value(const og_cpu_compiler *c, int32_t value);
/* A piece has all that its reductions reduce: whole rows, or the product's groups. */
bool og_cpu_has_whole_rows(const og_cpu_compiler *c);
/* Its value needs no arguments: it has a table, or is an exponential that an earlier pass has kept. */
bool og_cpu_is_kept(const og_cpu_compiler *c, const og_instr *instr);

/* Kept terms `number` are kept in memory that is stored to: *access of the program. */
bool og_cpu_is_kept_in_store(og_cpu_compiler *c, int32_t number, int32_t *access);

/* Access `index` of the kernel as one of the program: its number there. */
int32_t og_cpu_add_access(og_cpu_compiler *c, int32_t index);
ogive_status og_cpu_add_place(og_cpu_compiler *c, og_cpu_place_kind kind, int32_t index,
                              int32_t *out);
/* A place in a new stage of the program. */
ogive_status og_cpu_add_stage(og_cpu_compiler *c, og_type type, int32_t *place);
/* Row value v gets a place in the tile's memory, the same in every program. */
ogive_status og_cpu_find_row_place(og_cpu_compiler *c, int32_t v);
/* Steps that write row value v (or one element) as a block to place. */
void og_cpu_expand_into(og_cpu_compiler *c, int32_t v, int32_t place);
/* The place of v as a block; *slot is a register to free, or OG_CPU_NONE. */
ogive_status og_cpu_find_block(og_cpu_compiler *c, int32_t v, int32_t *place, int32_t *slot);
/* Steps of instruction i of c->order. */
ogive_status og_cpu_emit_instr(og_cpu_compiler *c, int32_t i);
/* The loop of an instruction in that form, and its constants. */
void og_cpu_choose_map(const og_cpu_compiler *c, const og_instr *instr, int form,
                       og_cpu_step *step);

/* ---- cpu_numbers.c ----------------------------------------------------------- */

/* Fills tables[] for row instructions. */
ogive_status og_cpu_find_numbers(og_cpu_compiler *c, const og_instr *instrs, int32_t count);

#endif
