/* SPDX-License-Identifier: MIT
 *
 * cpu_program.c - from the waist's instructions to steps over places: which
 * values are blocks and which are one element, which loads and stores need no
 * copy, and a linear scan that gives the other blocks registers. Knows the axes
 * of a kernel, not the sizes of its pieces.
 *
 * No copies: a contiguous load in the type it is computed in is a place that
 * points into the input; a value that is stored once, contiguously and in its own
 * type is computed straight into the output. When outputs are inputs (aliased)
 * all stores come last, and only a single store fed by the last step is straight.
 */
#include "cpu/cpu_prepare.h"

#include <stdlib.h>
#include <string.h>

enum { NONE = -1, ALWAYS = INT32_MAX };

/* What a program knows of a value. */
typedef struct {
    int32_t place;
    int32_t slot;            /* register behind the place, or NONE */
    int32_t expanded;        /* place of a row value as a block, or NONE */
    int32_t expanded_slot;   /* its register */
    int32_t direct;          /* access that the place points into, or NONE */
    int32_t last;            /* instruction that uses it last */
    int32_t store, stores;   /* a store of it, and how many there are */
    bool one;                /* one element */
    bool reduced, staged;    /* source of a reduction; of one that needs it twice */
} value_state;

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

    value_state *values;
    int32_t *row_places; /* of row values that outlive their program, or NONE */
    bool *row_ones, *outlives;
    int32_t *kept;       /* of values that are kept terms of a sumexp: see cpu_keep.c */
    bool *needed;        /* in the program being compiled */

    /* The program being compiled. */
    og_cpu_program *program;
    const og_cpu_geometry *geometry;
    const og_instr **order;
    int32_t count, store_count;
    bool is_rows, aliased;
} compiler;

/* ---- accesses ---------------------------------------------------------------- */

static int64_t count_axis(const compiler *c, int which)
{
    int64_t count = 1;
    for (int32_t k = 0; k < c->geometry->rank[which]; k++)
        count *= c->kernel->space.extent[c->geometry->dims[which][k]];
    return count;
}

/* The elements of a piece lie in memory as in a block. */
static bool is_dense(const compiler *c, const og_cpu_access *access)
{
    const og_cpu_axis *outer = &access->axes[OG_CPU_OUTER], *inner = &access->axes[OG_CPU_INNER];
    if (!og_cpu_is_contiguous(inner))
        return false;
    return !c->geometry->many || outer->rank == 0 ||
           (c->geometry->whole && outer->rank == 1 &&
            outer->stride[0] == count_axis(c, OG_CPU_INNER));
}

/* All elements of a piece are one element of memory. */
static bool is_one(const compiler *c, const og_cpu_access *access)
{
    bool many = c->geometry->many;
    if (count_axis(c, OG_CPU_INNER) == 1 && (!many || count_axis(c, OG_CPU_OUTER) == 1))
        return false; /* a block of one element */
    return og_cpu_is_still(&access->axes[OG_CPU_INNER]) &&
           (!many || og_cpu_is_still(&access->axes[OG_CPU_OUTER]));
}

/* A piece has all that its reductions reduce: whole rows, or the product's groups. */
static bool has_whole_rows(const compiler *c)
{
    return (c->geometry->layout == OG_CPU_ROWS && c->geometry->many) ||
           c->geometry->layout == OG_CPU_PRODUCT;
}

static bool is_own_type(og_type type, og_dtype dtype)
{
    return dtype == (type == OG_F64 ? OG_FLOAT64 : OG_FLOAT32);
}

static int32_t add_access(compiler *c, int32_t index)
{
    const og_access *from = &c->kernel->accesses[index];
    og_cpu_access *to = &c->program->accesses[c->program->access_count];
    to->buffer = from->buffer;
    to->bytes = (int32_t)og_dtype_bytes(from->dtype);
    for (int a = 0; a < OG_CPU_AXES; a++)
        og_cpu_make_axis(&c->kernel->space, from, c->geometry->dims[a], c->geometry->rank[a],
                         &to->axes[a]);
    return c->program->access_count++;
}

/* ---- places and registers ---------------------------------------------------- */

static ogive_status add_place(compiler *c, og_cpu_place_kind kind, int32_t index,
                              int32_t *out)
{
    if (!og_grow((void **)&c->places, &c->place_capacity, c->place_count + 1, sizeof *c->places))
        return og_fail_memory(c->error, (c->place_count + 1) * sizeof *c->places);
    *out = (int32_t)c->place_count++;
    c->places[*out] = (og_cpu_place){.kind = kind, .index = index};
    return OGIVE_OK;
}

static ogive_status take_register(compiler *c, int32_t *out)
{
    int32_t r = 0;
    while (r < c->register_count && c->register_busy[r])
        r++;
    if (r == c->register_count) {
        OG_TRY(add_place(c, OG_CPU_PLACE_THREAD, r, &c->register_places[r]));
        c->register_count++;
    }
    c->register_busy[r] = true;
    *out = r;
    return OGIVE_OK;
}

static void free_register(compiler *c, int32_t *slot)
{
    if (*slot >= 0)
        c->register_busy[*slot] = false;
    *slot = NONE;
}

static size_t type_bytes(og_type type)
{
    return type == OG_F64 ? 8 : 4;
}

static const og_cpu_loops *loops_of(const compiler *c, og_type type)
{
    return type == OG_F64 ? c->kernels->f64 : c->kernels->f32;
}

static bool is_row_value(const compiler *c, int32_t value)
{
    return c->kernel->values[value].level == OG_ROW;
}

/* Gives back the registers of arguments that instruction i uses last; with
 * bytes > 0 only of those that a result of that size may overwrite. */
static void free_arguments(compiler *c, const og_instr *instr, int32_t i, size_t bytes)
{
    for (int a = 0; a < OG_MAX_ARGS; a++) {
        int32_t v = instr->args[a];
        if (v < 0 || c->values[v].last != i)
            continue;
        if (bytes && type_bytes(c->kernel->values[v].type) != bytes)
            continue;
        free_register(c, &c->values[v].slot);
        free_register(c, &c->values[v].expanded_slot);
    }
}

static og_cpu_step *add_step(compiler *c, og_cpu_step_kind kind, og_type type)
{
    og_cpu_step *step = &c->program->steps[c->program->step_count++];
    step->kind = kind;
    step->access = NONE;
    step->loops = loops_of(c, type);
    return step;
}

static void add_direct(compiler *c, int32_t place, int32_t access)
{
    c->program->directs[c->program->direct_count++] = (og_cpu_direct){place, access};
}

/* A place in a new stage of this program. */
static ogive_status add_stage(compiler *c, og_type type, int32_t *place)
{
    OG_TRY(add_place(c, OG_CPU_PLACE_MOVING, 0, place));
    c->program->stages[c->program->stage_count] =
        (og_cpu_stage){*place, c->program->stage_count, (int32_t)type_bytes(type)};
    c->program->stage_count++;
    return OGIVE_OK;
}

/* ---- operands ---------------------------------------------------------------- */

/* Writes row value v as a block to place. */
static void expand_into(compiler *c, int32_t v, int32_t place)
{
    og_cpu_row_form form = c->geometry->row_form;
    og_cpu_step_kind kind = OG_CPU_TILE;
    if (c->values[v].one || form == OG_CPU_ROW_ONE)
        kind = OG_CPU_SPLAT;
    else if (form == OG_CPU_ROW_REPEAT)
        kind = OG_CPU_REPEAT;
    og_cpu_step *step = add_step(c, kind, c->kernel->values[v].type);
    step->dst = place;
    step->args[0] = c->values[v].place;
}

/* The place of value v as an argument of a step, and whether that is one element. */
static ogive_status find_operand(compiler *c, int32_t v, int32_t *place, bool *one)
{
    value_state *at = &c->values[v];
    og_cpu_row_form form = c->geometry->row_form;
    *place = at->place;
    *one = at->one;
    if (c->is_rows || !is_row_value(c, v) || at->one || form == OG_CPU_ROW_SAME)
        return OGIVE_OK;
    if (form == OG_CPU_ROW_ONE) {
        *one = true;
        return OGIVE_OK;
    }
    if (at->expanded == NONE) {
        OG_TRY(take_register(c, &at->expanded_slot));
        at->expanded = c->register_places[at->expanded_slot];
        expand_into(c, v, at->expanded);
    }
    *place = at->expanded;
    return OGIVE_OK;
}

/* As find_operand, but always a block; *slot is a register to free, or NONE. */
static ogive_status find_block(compiler *c, int32_t v, int32_t *place, int32_t *slot)
{
    bool one;
    *slot = NONE;
    OG_TRY(find_operand(c, v, place, &one));
    if (!one)
        return OGIVE_OK;
    OG_TRY(take_register(c, slot));
    og_cpu_step *step = add_step(c, OG_CPU_SPLAT, c->kernel->values[v].type);
    step->args[0] = *place;
    step->dst = *place = c->register_places[*slot];
    return OGIVE_OK;
}

static ogive_status find_row_place(compiler *c, int32_t v)
{
    if (c->row_places[v] == NONE)
        OG_TRY(add_place(c, OG_CPU_PLACE_TILE, c->out->row_value_count++, &c->row_places[v]));
    c->values[v].place = c->row_places[v];
    return OGIVE_OK;
}

/* The access of the store that value v may be computed straight into, or NONE. */
static int32_t find_straight_store(compiler *c, int32_t v, int32_t i)
{
    const value_state *at = &c->values[v];
    if (at->stores != 1 || at->staged)
        return NONE;
    if (c->aliased && (c->store_count > 1 || i + 1 != c->count - c->store_count))
        return NONE;
    int32_t index = c->order[at->store]->index;
    if (!is_own_type(c->kernel->values[v].type, c->kernel->accesses[index].dtype))
        return NONE;
    int32_t access = add_access(c, index);
    if (is_dense(c, &c->program->accesses[access]))
        return access;
    c->program->access_count--;
    return NONE;
}

/* Where the result of instruction i, value v, goes. straight: it may go straight
 * to where it is stored. */
static ogive_status place_result(compiler *c, int32_t v, int32_t i, bool one, bool straight)
{
    value_state *at = &c->values[v];
    at->one = one;
    if (c->is_rows && c->outlives[v]) {
        c->row_ones[v] = one;
        return find_row_place(c, v);
    }
    if (one)
        return add_place(c, OG_CPU_PLACE_THREAD, -1 - c->out->slot_count++, &at->place);
    if (at->staged)
        return add_stage(c, c->kernel->values[v].type, &at->place);
    int32_t access = straight ? find_straight_store(c, v, i) : NONE;
    if (access != NONE) {
        OG_TRY(add_place(c, OG_CPU_PLACE_MOVING, 0, &at->place));
        add_direct(c, at->place, access);
        at->stores = 0;
        return OGIVE_OK;
    }
    OG_TRY(take_register(c, &at->slot));
    at->place = c->register_places[at->slot];
    if (at->last < 0) /* nobody wants it */
        free_register(c, &at->slot);
    return OGIVE_OK;
}

/* ---- instructions ------------------------------------------------------------ */

static ogive_status emit_constant(compiler *c, const og_instr *instr)
{
    value_state *at = &c->values[instr->dst];
    double value = c->kernel->constants[instr->index];
    union {
        float f32;
        double f64;
    } *number = og_arena_alloc(c->arena, 1, sizeof *number);
    if (!number)
        return og_fail_memory(c->error, sizeof *number);
    if (instr->type == OG_F64)
        number->f64 = value;
    else
        number->f32 = (float)value;
    OG_TRY(add_place(c, OG_CPU_PLACE_CONSTANT, 0, &at->place));
    c->places[at->place].pointer = number;
    at->one = true;
    if (c->is_rows) {
        c->row_places[instr->dst] = at->place;
        c->row_ones[instr->dst] = true;
    }
    return OGIVE_OK;
}

static ogive_status emit_load(compiler *c, const og_instr *instr, int32_t i)
{
    int32_t v = instr->dst;
    value_state *at = &c->values[v];
    const og_access *from = &c->kernel->accesses[instr->index];
    int32_t access = add_access(c, instr->index);
    const og_cpu_access *to = &c->program->accesses[access];
    bool one = is_one(c, to), outlives = c->is_rows && c->outlives[v];
    /* What a store of this program may overwrite before it is read. */
    bool endangered = c->aliased && c->store_count > 0 &&
                      (at->reduced || (at->stores > 0 && c->store_count > 1));
    bool direct = is_own_type(instr->type, from->dtype) && (one || is_dense(c, to)) && !outlives &&
                  !endangered && (!at->staged || one || c->geometry->layout == OG_CPU_ROWS);
    if (direct) {
        OG_TRY(add_place(c, OG_CPU_PLACE_MOVING, 0, &at->place));
        add_direct(c, at->place, access);
        at->one = one;
        at->direct = one ? NONE : access;
        return OGIVE_OK;
    }
    OG_TRY(place_result(c, v, i, one, false));
    og_cpu_step *step = add_step(c, OG_CPU_LOAD, instr->type);
    step->one = one;
    step->dst = at->place;
    step->access = access;
    step->run.load = step->loops->load[from->dtype];
    return OGIVE_OK;
}

/* Of one row the tile's own memory, of several a block. */
static ogive_status emit_product(compiler *c, const og_instr *instr, int32_t i)
{
    value_state *at = &c->values[instr->dst];
    if (c->out->product_place == NONE)
        OG_TRY(add_place(c, OG_CPU_PLACE_MOVING, 0, &c->out->product_place));
    if (!c->geometry->many) {
        at->place = c->out->product_place;
        return OGIVE_OK;
    }
    OG_TRY(place_result(c, instr->dst, i, false, true));
    og_cpu_step *step = add_step(c, OG_CPU_COPY, instr->type);
    step->dst = at->place;
    step->args[0] = c->out->product_place;
    step->run.load = step->loops->load[instr->type == OG_F64 ? OG_FLOAT64 : OG_FLOAT32];
    return OGIVE_OK;
}

static ogive_status emit_store(compiler *c, const og_instr *instr, int32_t i)
{
    int32_t v = instr->args[0], place, slot;
    if (c->values[v].stores == 0) { /* computed straight into its memory */
        free_arguments(c, instr, i, 0);
        return OGIVE_OK;
    }
    OG_TRY(find_block(c, v, &place, &slot));
    og_cpu_step *step = add_step(c, OG_CPU_STORE, instr->type);
    step->dst = place;
    step->access = add_access(c, instr->index);
    step->run.store = step->loops->store[c->kernel->accesses[instr->index].dtype];
    free_register(c, &slot);
    free_arguments(c, instr, i, 0);
    return OGIVE_OK;
}

static int count_arguments(og_op op)
{
    return op == OG_OP_CONVERT ? 1 : op == OG_OP_where ? 3 : og_function_of(op)->args;
}

static void set_constants(const compiler *c, const og_instr *instr, og_cpu_step *step)
{
    int count = instr->op == OG_OP_CONVERT || instr->op == OG_OP_where
                    ? 0
                    : og_function_of(instr->op)->constants;
    for (int k = 0; k < count; k++) {
        double value = c->kernel->constants[instr->index + k];
        if (instr->type == OG_F64)
            step->constants.f64[k] = value;
        else
            step->constants.f32[k] = (float)value;
    }
}

static ogive_status emit_map(compiler *c, const og_instr *instr, int32_t i)
{
    int count = count_arguments(instr->op);
    int32_t places[OG_MAX_ARGS] = {0}, mask_slot = NONE;
    bool ones[OG_MAX_ARGS] = {false}, one = true;
    for (int a = 0; a < count; a++) {
        OG_TRY(find_operand(c, instr->args[a], &places[a], &ones[a]));
        one &= ones[a];
    }
    if (count == 3 && ones[0] && !one) /* loops take the mask of where as a block */
        OG_TRY(find_block(c, instr->args[0], &places[0], &mask_slot));
    int form = 0;
    if (!one && count >= 2)
        form = (int)ones[count - 1] | (int)ones[count - 2] << 1;

    size_t bytes = type_bytes(c->kernel->values[instr->dst].type);
    free_arguments(c, instr, i, bytes);
    OG_TRY(place_result(c, instr->dst, i, one, true));
    free_arguments(c, instr, i, 0);
    free_register(c, &mask_slot);

    og_type type = instr->op == OG_OP_CONVERT ? c->kernel->values[instr->args[0]].type
                                              : instr->type;
    og_cpu_step *step = add_step(c, OG_CPU_MAP, type);
    step->one = one;
    step->dst = c->values[instr->dst].place;
    memcpy(step->args, places, sizeof places);
    step->run.map = instr->op == OG_OP_CONVERT ? step->loops->round[instr->index]
                                               : step->loops->map[instr->op][form];
    set_constants(c, instr, step);
    return OGIVE_OK;
}

/* An exponential that an earlier pass has kept. */
static ogive_status emit_kept(compiler *c, const og_instr *instr)
{
    value_state *at = &c->values[instr->dst];
    OG_TRY(add_place(c, OG_CPU_PLACE_MOVING, 0, &at->place));
    c->program->kept[c->program->kept_count++] =
        (og_cpu_stage){at->place, c->kept[instr->dst], (int32_t)type_bytes(instr->type)};
    return OGIVE_OK;
}

static bool is_kept(const compiler *c, const og_instr *instr)
{
    return instr->op == OG_OP_exp && !c->is_rows && c->kept[instr->dst] >= 0;
}

static ogive_status emit_instr(compiler *c, int32_t i)
{
    const og_instr *instr = c->order[i];
    if (is_kept(c, instr))
        return emit_kept(c, instr);
    switch ((int)instr->op) {
    case OG_OP_CONSTANT:
        return emit_constant(c, instr);
    case OG_OP_LOAD:
        return emit_load(c, instr, i);
    case OG_OP_STORE:
        return emit_store(c, instr, i);
    case OG_OP_PRODUCT:
        return emit_product(c, instr, i);
    default:
        return emit_map(c, instr, i);
    }
}

/* ---- reductions -------------------------------------------------------------- */

/* Index of the reduction that finds the maximum of reduce's source. */
static int32_t find_companion(compiler *c, const og_pass *pass, const og_reduce *reduce)
{
    for (int32_t r = 0; r < pass->reduction_count; r++) {
        const og_reduce *other = &pass->reductions[r];
        if (other->source == reduce->source && other->type == reduce->type &&
            (other->op == OG_OP_amax || other->op == OG_OP_row_max))
            return r;
    }
    int32_t index = c->program->reduction_count++;
    og_cpu_reduction *hidden = &c->program->reductions[index];
    hidden->fold = OG_CPU_MAX;
    hidden->result = hidden->access = hidden->stage = hidden->kept = NONE;
    hidden->loops = loops_of(c, reduce->type);
    hidden->bytes = type_bytes(reduce->type);
    return index;
}

/* Columns: every reduction reads rows of memory, with nothing to compute. */
static bool has_only_loads(compiler *c, const og_pass *pass)
{
    if (c->geometry->layout != OG_CPU_COLUMNS || pass->reduction_count == 0)
        return false;
    for (int32_t r = 0; r < pass->reduction_count; r++)
        if (pass->reductions[r].op == OG_OP_sumexp ||
            is_row_value(c, pass->reductions[r].source))
            return false;
    for (int32_t i = 0; i < pass->element_count; i++) {
        const og_instr *instr = &pass->elements[i];
        if (instr->op != OG_OP_LOAD ||
            !is_own_type(instr->type, c->kernel->accesses[instr->index].dtype))
            return false;
        const og_cpu_access *access = &c->program->accesses[add_access(c, instr->index)];
        c->program->access_count--;
        if (!og_cpu_is_contiguous(&access->axes[OG_CPU_INNER]) ||
            access->axes[OG_CPU_OUTER].rank > 1)
            return false;
    }
    return true;
}

/* The source of a sumexp: memory that stays, or a stage. */
static ogive_status stage_source(compiler *c, int32_t v, og_cpu_reduction *to)
{
    value_state *at = &c->values[v];
    if (at->direct != NONE && !is_row_value(c, v)) {
        to->access = at->direct;
        return OGIVE_OK;
    }
    if (is_row_value(c, v) || at->one) { /* else it was computed there */
        OG_TRY(add_stage(c, c->kernel->values[v].type, &to->source));
        expand_into(c, v, to->source);
    }
    for (int32_t s = 0; s < c->program->stage_count; s++)
        if (c->program->stages[s].place == to->source)
            to->stage = c->program->stages[s].number;
    return OGIVE_OK;
}

static ogive_status emit_reduction(compiler *c, const og_pass *pass, int32_t r)
{
    const og_reduce *from = &pass->reductions[r];
    og_cpu_reduction *to = &c->program->reductions[r];
    value_state *at = &c->values[from->source];
    to->is_sumexp = from->op == OG_OP_sumexp;
    to->fold = from->op == OG_OP_sum || to->is_sumexp ? OG_CPU_SUM
               : from->op == OG_OP_amin               ? OG_CPU_MIN
                                                      : OG_CPU_MAX;
    to->loops = loops_of(c, from->type);
    to->bytes = type_bytes(from->type);
    to->access = to->stage = to->companion = NONE;
    to->kept = to->is_sumexp ? c->kept[from->dst] : NONE;
    to->source = at->place;
    if (c->program->only_loads) {
        to->strided = true;
        to->access = at->direct;
    } else if (to->is_sumexp && !has_whole_rows(c)) {
        OG_TRY(stage_source(c, from->source, to));
    } else {
        int32_t slot; /* kept to the program's end */
        OG_TRY(find_block(c, from->source, &to->source, &slot));
    }
    if (to->is_sumexp) {
        to->companion = find_companion(c, pass, from);
        if (to->companion >= pass->reduction_count) {
            og_cpu_reduction *hidden = &c->program->reductions[to->companion];
            hidden->source = to->source;
            if (c->geometry->layout == OG_CPU_PRODUCT) /* each group's is kept */
                OG_TRY(add_place(c, OG_CPU_PLACE_TILE, c->out->row_value_count++,
                                 &hidden->result));
        }
    }
    c->row_ones[from->dst] = false;
    OG_TRY(find_row_place(c, from->dst));
    to->result = c->row_places[from->dst];
    return OGIVE_OK;
}

/* ---- programs ---------------------------------------------------------------- */

static void reset_values(compiler *c)
{
    for (int32_t v = 0; v < c->kernel->value_count; v++) {
        value_state *at = &c->values[v];
        memset(at, 0, sizeof *at);
        at->place = c->row_places[v];
        at->one = c->row_ones[v];
        at->slot = at->expanded = at->expanded_slot = at->direct = at->store = NONE;
        at->last = NONE;
    }
    memset(c->register_busy, 0, (size_t)c->register_count * sizeof *c->register_busy);
}

/* Marks what stores, reductions and other programs need, and what that needs. */
static void mark_needed(compiler *c, const og_instr *instrs, int32_t count, const og_pass *pass)
{
    memset(c->needed, 0, (size_t)c->kernel->value_count * sizeof *c->needed);
    for (int32_t r = 0; pass && r < pass->reduction_count; r++)
        c->needed[pass->reductions[r].source] = true;
    for (int32_t i = count - 1; i >= 0; i--) {
        const og_instr *instr = &instrs[i];
        bool wanted = instr->op == OG_OP_STORE || c->needed[instr->dst] ||
                      (c->is_rows && c->outlives[instr->dst]);
        for (int a = 0; wanted && a < OG_MAX_ARGS; a++)
            if (instr->args[a] >= 0 && !is_kept(c, instr))
                c->needed[instr->args[a]] = true;
        if (instr->dst >= 0)
            c->needed[instr->dst] = wanted;
    }
}

/* Puts the instructions into the order of the program and looks at their uses. */
static void scan_program(compiler *c, const og_instr *instrs, int32_t count, const og_pass *pass)
{
    c->count = c->store_count = 0;
    mark_needed(c, instrs, count, pass);
    for (int want_store = 0; want_store < (c->aliased ? 2 : 1); want_store++)
        for (int32_t i = 0; i < count; i++) {
            bool is_store = instrs[i].op == OG_OP_STORE;
            if ((is_store || c->needed[instrs[i].dst]) && (!c->aliased || is_store == want_store))
                c->order[c->count++] = &instrs[i];
        }
    for (int32_t i = 0; i < c->count; i++) {
        const og_instr *instr = c->order[i];
        for (int a = 0; a < OG_MAX_ARGS && !is_kept(c, instr); a++)
            if (instr->args[a] >= 0)
                c->values[instr->args[a]].last = i;
        if (instr->op == OG_OP_STORE) {
            c->store_count++;
            c->values[instr->args[0]].stores++;
            c->values[instr->args[0]].store = i;
        }
    }
    for (int32_t r = 0; pass && r < pass->reduction_count; r++) {
        value_state *at = &c->values[pass->reductions[r].source];
        at->last = ALWAYS;
        at->reduced = true;
        at->staged |= pass->reductions[r].op == OG_OP_sumexp && !has_whole_rows(c);
    }
}

static ogive_status allocate_program(compiler *c, int32_t count, int32_t reductions)
{
    og_cpu_program *program = OG_ARENA_NEW(c->arena, og_cpu_program, 1);
    size_t n = (size_t)count + 1, r = (size_t)reductions + 1;
    if (program) {
        /* An instruction needs itself and at most a copy of each argument. */
        program->steps = OG_ARENA_NEW(c->arena, og_cpu_step, 4 * n + 2 * r);
        program->accesses = OG_ARENA_NEW(c->arena, og_cpu_access, 2 * n);
        program->directs = OG_ARENA_NEW(c->arena, og_cpu_direct, n);
        program->stages = OG_ARENA_NEW(c->arena, og_cpu_stage, r);
        program->kept = OG_ARENA_NEW(c->arena, og_cpu_stage, n);
        program->reductions = OG_ARENA_NEW(c->arena, og_cpu_reduction, 2 * r);
    }
    if (!program || !program->steps || !program->accesses || !program->directs ||
        !program->stages || !program->kept || !program->reductions)
        return og_fail_memory(c->error, n * sizeof *program->steps);
    c->program = program;
    return OGIVE_OK;
}

/* pass is NULL for row instructions. */
static ogive_status compile_program(compiler *c, const og_instr *instrs, int32_t count,
                                    const og_pass *pass, const og_cpu_geometry *geometry,
                                    bool aliased, og_cpu_program **out)
{
    c->geometry = geometry;
    c->is_rows = !pass;
    c->aliased = aliased;
    OG_TRY(allocate_program(c, count, pass ? pass->reduction_count : 0));
    reset_values(c);
    scan_program(c, instrs, count, pass);
    og_cpu_geometry strided = *geometry;
    if (pass && has_only_loads(c, pass)) {
        c->program->only_loads = true;
        strided.many = false; /* every load is direct: reductions know its stride */
        c->geometry = &strided;
    }
    for (int32_t i = 0; i < c->count; i++)
        OG_TRY(emit_instr(c, i));
    if (pass) {
        c->program->reduction_count = pass->reduction_count;
        for (int32_t r = 0; r < pass->reduction_count; r++)
            OG_TRY(emit_reduction(c, pass, r));
    }
    c->geometry = geometry;
    *out = c->program;
    return OGIVE_OK;
}

static ogive_status compile_pass(compiler *c, int32_t p, const og_cpu_geometry *elements,
                                 const og_cpu_geometry *rows, bool aliases)
{
    const og_pass *from = &c->kernel->passes[p];
    og_cpu_pass *to = &c->out->passes[p];
    for (int aliased = 0; aliased < (aliases ? 2 : 1); aliased++)
        OG_TRY(compile_program(c, from->elements, from->element_count, from, elements, aliased,
                               &to->elements[aliased]));
    for (int aliased = 0; aliased < (aliases ? 2 : 1); aliased++)
        OG_TRY(compile_program(c, from->rows, from->row_count, NULL, rows, aliased,
                               &to->rows[aliased]));
    if (!aliases) {
        to->elements[1] = to->elements[0];
        to->rows[1] = to->rows[0];
    }
    return OGIVE_OK;
}

/* Which row values are used outside the row instructions that compute them. */
static void find_outliving(compiler *c)
{
    const og_kernel *kernel = c->kernel;
    for (int32_t p = 0; p < kernel->pass_count; p++) {
        const og_pass *pass = &kernel->passes[p];
        for (int32_t i = 0; i < pass->element_count; i++)
            for (int a = 0; a < OG_MAX_ARGS; a++)
                if (pass->elements[i].args[a] >= 0)
                    c->outlives[pass->elements[i].args[a]] = true;
        for (int32_t r = 0; r < pass->reduction_count; r++)
            c->outlives[pass->reductions[r].source] = true;
        for (int32_t i = 0; i < pass->row_count; i++)
            for (int a = 0; a < OG_MAX_ARGS; a++) {
                int32_t v = pass->rows[i].args[a];
                if (v >= 0 && kernel->values[v].pass != p)
                    c->outlives[v] = true;
            }
    }
}

static ogive_status allocate_compiler(compiler *c)
{
    size_t n = (size_t)c->kernel->value_count + 1, longest = 1;
    for (int32_t p = 0; p < c->kernel->pass_count; p++) {
        const og_pass *pass = &c->kernel->passes[p];
        size_t count = (size_t)(pass->element_count + pass->row_count);
        longest = count > longest ? count : longest;
    }
    c->values = OG_ARENA_NEW(&c->scratch, value_state, n);
    c->row_places = OG_ARENA_NEW(&c->scratch, int32_t, n);
    c->row_ones = OG_ARENA_NEW(&c->scratch, bool, n);
    c->outlives = OG_ARENA_NEW(&c->scratch, bool, n);
    c->needed = OG_ARENA_NEW(&c->scratch, bool, n);
    c->kept = OG_ARENA_NEW(&c->scratch, int32_t, n);
    /* A value has at most a register, an expanded one and, reduced, a splat one; a step's
     * mask is one more. */
    c->register_places = OG_ARENA_NEW(&c->scratch, int32_t, 3 * n + 2);
    c->register_busy = OG_ARENA_NEW(&c->scratch, bool, 3 * n + 2);
    c->order = OG_ARENA_NEW(&c->scratch, const og_instr *, longest);
    if (!c->values || !c->row_places || !c->row_ones || !c->outlives || !c->needed || !c->kept ||
        !c->register_places || !c->register_busy || !c->order)
        return og_fail_memory(c->error, n * sizeof *c->values);
    memset(c->row_places, -1, n * sizeof *c->row_places);
    memset(c->kept, -1, n * sizeof *c->kept);
    return OGIVE_OK;
}

static ogive_status compile_passes(compiler *c, const og_plan *plan,
                                   const og_cpu_geometry *elements, const og_cpu_geometry *rows)
{
    og_cpu_kernel *out = c->out;
    bool aliases = false;
    for (int32_t i = 0; plan->may_alias && i < plan->input_count * plan->output_count; i++)
        aliases |= plan->may_alias[i];
    OG_TRY(allocate_compiler(c));
    find_outliving(c);
    if (elements->keeps)
        OG_TRY(og_cpu_find_kept(c->kernel, &c->scratch, c->kept, &out->kept_count, c->error));
    out->product_place = NONE;
    out->pass_count = c->kernel->pass_count;
    out->passes = OG_ARENA_NEW(c->arena, og_cpu_pass, (size_t)out->pass_count + 1);
    if (!out->passes)
        return og_fail_memory(c->error, (size_t)out->pass_count * sizeof *out->passes);
    for (int32_t p = 0; p < out->pass_count; p++)
        OG_TRY(compile_pass(c, p, elements, rows, aliases));
    out->register_count = c->register_count;
    out->place_count = (int32_t)c->place_count;
    out->places = OG_ARENA_NEW(c->arena, og_cpu_place, c->place_count + 1);
    if (!out->places)
        return og_fail_memory(c->error, c->place_count * sizeof *out->places);
    memcpy(out->places, c->places, c->place_count * sizeof *out->places);
    return OGIVE_OK;
}

ogive_status og_cpu_compile(const og_plan *plan, const og_kernel *kernel,
                            const og_cpu_kernels *kernels, const og_cpu_geometry *elements,
                            const og_cpu_geometry *rows, og_arena *arena, og_cpu_kernel *out,
                            ogive_error *error)
{
    compiler c = {
        .kernel = kernel, .kernels = kernels, .arena = arena, .out = out, .error = error};
    ogive_status status = compile_passes(&c, plan, elements, rows);
    free(c.places);
    og_arena_free(&c.scratch);
    return status;
}
