/* SPDX-License-Identifier: MIT
 *
 * cpu_steps.c - an instruction becomes steps over places: which values are blocks and
 * which are one element, which loads and stores need no copy, and a linear scan that
 * gives the other blocks registers.
 *
 * No copies: a contiguous load in the type it is computed in is a place that
 * points into the input; a value that is stored once, contiguously and in its own
 * type is computed straight into the output. When outputs are inputs (aliased)
 * all stores come last, and only a single store fed by the last step is straight.
 */
#include "cpu/cpu_compiler.h"

#include <string.h>

/* ---- accesses ---------------------------------------------------------------- */

static int64_t count_axis(const og_cpu_compiler *c, int which)
{
    int64_t count = 1;
    for (int32_t k = 0; k < c->geometry->rank[which]; k++)
        count *= c->kernel->space.extent[c->geometry->dims[which][k]];
    return count;
}

/* The elements of a piece lie in memory as in a block. */
static bool is_dense(const og_cpu_compiler *c, const og_cpu_access *access)
{
    const og_cpu_axis *outer = &access->axes[OG_CPU_OUTER], *inner = &access->axes[OG_CPU_INNER];
    if (!og_cpu_is_contiguous(inner))
        return false;
    return !c->geometry->many || outer->rank == 0 ||
           (c->geometry->whole && outer->rank == 1 &&
            outer->stride[0] == count_axis(c, OG_CPU_INNER));
}

/* All elements of a piece are one element of memory. */
static bool is_one(const og_cpu_compiler *c, const og_cpu_access *access)
{
    bool many = c->geometry->many;
    if (count_axis(c, OG_CPU_INNER) == 1 && (!many || count_axis(c, OG_CPU_OUTER) == 1))
        return false; /* a block of one element */
    return og_cpu_is_still(&access->axes[OG_CPU_INNER]) &&
           (!many || og_cpu_is_still(&access->axes[OG_CPU_OUTER]));
}

bool og_cpu_has_whole_rows(const og_cpu_compiler *c)
{
    return (c->geometry->layout == OG_CPU_ROWS && c->geometry->many) ||
           c->geometry->layout == OG_CPU_PRODUCT;
}

bool og_cpu_is_own_type(og_type type, og_dtype dtype)
{
    return dtype == (type == OG_F64 ? OG_FLOAT64 : OG_FLOAT32);
}

int32_t og_cpu_add_access(og_cpu_compiler *c, int32_t index)
{
    const og_access *from = &c->kernel->accesses[index];
    og_cpu_access *to = &c->program->accesses[c->program->access_count];
    to->buffer = from->buffer;
    to->table = NULL;
    to->offset = from->offset;
    to->bytes = (int32_t)og_dtype_bytes(from->dtype);
    for (int a = 0; a < OG_CPU_AXES; a++)
        og_cpu_make_axis(&c->kernel->space, from->stride, c->geometry->dims[a],
                         c->geometry->rank[a], &to->axes[a]);
    to->window_count = 0;
    return c->program->access_count++;
}

/* The windows of access `from`, which is access `to` of the program. */
static ogive_status add_windows(og_cpu_compiler *c, const og_access *from, og_type type,
                                og_cpu_access *to)
{
    to->windows = OG_ARENA_NEW(c->arena, og_cpu_window, (size_t)from->window_count + 1);
    if (!to->windows)
        return og_fail_memory(c->error, sizeof *to->windows);
    for (; to->window_count < from->window_count; to->window_count++) {
        const og_window *window = &from->windows[to->window_count];
        og_cpu_window *out = &to->windows[to->window_count];
        int64_t steps[OG_MAX_RANK];
        for (int32_t d = 0; d < OG_MAX_RANK; d++)
            steps[d] = og_window_step(window, d);
        for (int a = 0; a < OG_CPU_AXES; a++)
            og_cpu_make_axis(&c->kernel->space, steps, c->geometry->dims[a], c->geometry->rank[a],
                             &out->axes[a]);
        out->start = window->start;
        out->divisor = window->divisor;
        out->extent = window->extent;
        out->stride = window->stride;
        out->uneven = window->uneven;
    }
    if (type == OG_F64)
        to->fill.f64 = from->fill;
    else
        to->fill.f32 = (float)from->fill;
    return OGIVE_OK;
}

/* ---- places and registers ---------------------------------------------------- */

ogive_status og_cpu_add_place(og_cpu_compiler *c, og_cpu_place_kind kind, int32_t index,
                              int32_t *out)
{
    if (!og_grow((void **)&c->places, &c->place_capacity, c->place_count + 1, sizeof *c->places))
        return og_fail_memory(c->error, (c->place_count + 1) * sizeof *c->places);
    *out = (int32_t)c->place_count++;
    c->places[*out] = (og_cpu_place){.kind = kind, .index = index};
    return OGIVE_OK;
}

static ogive_status take_register(og_cpu_compiler *c, int32_t *out)
{
    int32_t r = 0;
    while (r < c->register_count && c->register_busy[r])
        r++;
    if (r == c->register_count) {
        OG_TRY(og_cpu_add_place(c, OG_CPU_PLACE_THREAD, r, &c->register_places[r]));
        c->register_count++;
    }
    c->register_busy[r] = true;
    *out = r;
    return OGIVE_OK;
}

static void free_register(og_cpu_compiler *c, int32_t *slot)
{
    if (*slot >= 0)
        c->register_busy[*slot] = false;
    *slot = OG_CPU_NONE;
}

size_t og_cpu_type_bytes(og_type type)
{
    return type == OG_F64 ? 8 : 4;
}

const og_cpu_loops *og_cpu_loops_of(const og_cpu_compiler *c, og_type type)
{
    return type == OG_F64 ? c->kernels->f64 : c->kernels->f32;
}

bool og_cpu_is_row_value(const og_cpu_compiler *c, int32_t value)
{
    return c->kernel->values[value].level == OG_ROW;
}

/* Gives back the registers of arguments that instruction i uses last; with
 * bytes > 0 only of those that a result of that size may overwrite. */
static void free_arguments(og_cpu_compiler *c, const og_instr *instr, int32_t i, size_t bytes)
{
    for (int a = 0; a < OG_MAX_ARGS; a++) {
        int32_t v = instr->args[a];
        if (v < 0 || c->values[v].last != i)
            continue;
        if (bytes && og_cpu_type_bytes(c->kernel->values[v].type) != bytes)
            continue;
        free_register(c, &c->values[v].slot);
        free_register(c, &c->values[v].expanded_slot);
    }
}

static og_cpu_step *add_step(og_cpu_compiler *c, og_cpu_step_kind kind, og_type type)
{
    og_cpu_step *step = &c->program->steps[c->program->step_count++];
    step->kind = kind;
    step->access = OG_CPU_NONE;
    step->loops = og_cpu_loops_of(c, type);
    return step;
}

static void add_direct(og_cpu_compiler *c, int32_t place, int32_t access)
{
    c->program->directs[c->program->direct_count++] = (og_cpu_direct){place, access};
}

ogive_status og_cpu_add_stage(og_cpu_compiler *c, og_type type, int32_t *place)
{
    OG_TRY(og_cpu_add_place(c, OG_CPU_PLACE_MOVING, 0, place));
    c->program->stages[c->program->stage_count] =
        (og_cpu_stage){*place, c->program->stage_count, (int32_t)og_cpu_type_bytes(type)};
    c->program->stage_count++;
    return OGIVE_OK;
}

/* ---- operands ---------------------------------------------------------------- */

void og_cpu_expand_into(og_cpu_compiler *c, int32_t v, int32_t place)
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
static ogive_status find_operand(og_cpu_compiler *c, int32_t v, int32_t *place, bool *one)
{
    og_cpu_value *at = &c->values[v];
    og_cpu_row_form form = c->geometry->row_form;
    *place = at->place;
    *one = at->one;
    if (c->is_rows || !og_cpu_is_row_value(c, v) || at->one || form == OG_CPU_ROW_SAME)
        return OGIVE_OK;
    if (form == OG_CPU_ROW_ONE) {
        *one = true;
        return OGIVE_OK;
    }
    if (at->expanded == OG_CPU_NONE) {
        OG_TRY(take_register(c, &at->expanded_slot));
        at->expanded = c->register_places[at->expanded_slot];
        og_cpu_expand_into(c, v, at->expanded);
    }
    *place = at->expanded;
    return OGIVE_OK;
}

ogive_status og_cpu_find_block(og_cpu_compiler *c, int32_t v, int32_t *place, int32_t *slot)
{
    bool one;
    *slot = OG_CPU_NONE;
    OG_TRY(find_operand(c, v, place, &one));
    if (!one)
        return OGIVE_OK;
    OG_TRY(take_register(c, slot));
    og_cpu_step *step = add_step(c, OG_CPU_SPLAT, c->kernel->values[v].type);
    step->args[0] = *place;
    step->dst = *place = c->register_places[*slot];
    return OGIVE_OK;
}

ogive_status og_cpu_find_row_place(og_cpu_compiler *c, int32_t v)
{
    if (c->row_places[v] == OG_CPU_NONE)
        OG_TRY(
            og_cpu_add_place(c, OG_CPU_PLACE_TILE, c->out->row_value_count++, &c->row_places[v]));
    c->values[v].place = c->row_places[v];
    return OGIVE_OK;
}

/* The access of the store that value v may be computed straight into, or OG_CPU_NONE. */
static int32_t find_straight_store(og_cpu_compiler *c, int32_t v, int32_t i)
{
    const og_cpu_value *at = &c->values[v];
    if (at->stores != 1 || at->staged)
        return OG_CPU_NONE;
    if (c->aliased && (c->store_count > 1 || i + 1 != c->count - c->store_count))
        return OG_CPU_NONE;
    int32_t index = c->order[at->store]->index;
    if (!og_cpu_is_own_type(c->kernel->values[v].type, c->kernel->accesses[index].dtype))
        return OG_CPU_NONE;
    int32_t access = og_cpu_add_access(c, index);
    if (is_dense(c, &c->program->accesses[access]))
        return access;
    c->program->access_count--;
    return OG_CPU_NONE;
}

/* Where the result of instruction i, value v, goes. straight: it may go straight
 * to where it is stored. */
static ogive_status place_result(og_cpu_compiler *c, int32_t v, int32_t i, bool one, bool straight)
{
    og_cpu_value *at = &c->values[v];
    at->one = one;
    if (c->is_rows && c->outlives[v]) {
        c->row_ones[v] = one;
        return og_cpu_find_row_place(c, v);
    }
    if (one)
        return og_cpu_add_place(c, OG_CPU_PLACE_THREAD, -1 - c->out->slot_count++, &at->place);
    if (at->staged)
        return og_cpu_add_stage(c, c->kernel->values[v].type, &at->place);
    int32_t access = straight ? find_straight_store(c, v, i) : OG_CPU_NONE;
    if (access != OG_CPU_NONE) {
        OG_TRY(og_cpu_add_place(c, OG_CPU_PLACE_MOVING, 0, &at->place));
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

static ogive_status emit_constant(og_cpu_compiler *c, const og_instr *instr)
{
    og_cpu_value *at = &c->values[instr->dst];
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
    OG_TRY(og_cpu_add_place(c, OG_CPU_PLACE_CONSTANT, 0, &at->place));
    c->places[at->place].pointer = number;
    at->one = true;
    if (c->is_rows) {
        c->row_places[instr->dst] = at->place;
        c->row_ones[instr->dst] = true;
    }
    return OGIVE_OK;
}

static ogive_status emit_load(og_cpu_compiler *c, const og_instr *instr, int32_t i)
{
    int32_t v = instr->dst;
    og_cpu_value *at = &c->values[v];
    const og_access *from = &c->kernel->accesses[instr->index];
    int32_t access = og_cpu_add_access(c, instr->index);
    const og_cpu_access *to = &c->program->accesses[access];
    if (!og_access_is_plain(from)) { /* cpu_window.c reads it */
        OG_TRY(add_windows(c, from, instr->type, &c->program->accesses[access]));
        OG_TRY(place_result(c, v, i, false, false));
        og_cpu_step *step = add_step(c, OG_CPU_SEE, instr->type);
        step->dst = at->place;
        step->access = access;
        step->run.load = step->loops->load[from->dtype];
        return OGIVE_OK;
    }
    bool one = is_one(c, to), outlives = c->is_rows && c->outlives[v];
    /* What a store of this program may overwrite before it is read. */
    bool endangered =
        c->aliased && c->store_count > 0 && (at->reduced || (at->stores > 0 && c->store_count > 1));
    if (c->program->load == OG_CPU_NONE && !one)
        c->program->load = access;
    bool direct = og_cpu_is_own_type(instr->type, from->dtype) && (one || is_dense(c, to)) &&
                  !outlives && !endangered &&
                  (!at->staged || one || c->geometry->layout == OG_CPU_ROWS);
    if (direct) {
        OG_TRY(og_cpu_add_place(c, OG_CPU_PLACE_MOVING, 0, &at->place));
        add_direct(c, at->place, access);
        at->one = one;
        at->direct = one ? OG_CPU_NONE : access;
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
static ogive_status emit_product(og_cpu_compiler *c, const og_instr *instr, int32_t i)
{
    og_cpu_value *at = &c->values[instr->dst];
    int32_t *place = &c->out->product->places[instr->index];
    if (*place == OG_CPU_NONE)
        OG_TRY(og_cpu_add_place(c, OG_CPU_PLACE_MOVING, 0, place));
    if (!c->geometry->many) {
        at->place = *place;
        return OGIVE_OK;
    }
    OG_TRY(place_result(c, instr->dst, i, false, true));
    og_cpu_step *step = add_step(c, OG_CPU_COPY, instr->type);
    step->dst = at->place;
    step->args[0] = *place;
    step->run.load = step->loops->load[instr->type == OG_F64 ? OG_FLOAT64 : OG_FLOAT32];
    return OGIVE_OK;
}

static ogive_status emit_store(og_cpu_compiler *c, const og_instr *instr, int32_t i)
{
    int32_t v = instr->args[0], place, slot;
    if (c->values[v].stores == 0) { /* computed straight into its memory */
        free_arguments(c, instr, i, 0);
        return OGIVE_OK;
    }
    OG_TRY(og_cpu_find_block(c, v, &place, &slot));
    og_cpu_step *step = add_step(c, OG_CPU_STORE, instr->type);
    step->dst = place;
    step->access = og_cpu_add_access(c, instr->index);
    step->run.store = step->loops->store[c->kernel->accesses[instr->index].dtype];
    free_register(c, &slot);
    free_arguments(c, instr, i, 0);
    return OGIVE_OK;
}

static int count_arguments(og_op op)
{
    return op == OG_OP_CONVERT ? 1 : op == OG_OP_where ? 3 : og_function_of(op)->args;
}

static void set_constants(const og_cpu_compiler *c, const og_instr *instr, og_cpu_step *step)
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

void og_cpu_choose_map(const og_cpu_compiler *c, const og_instr *instr, int form, og_cpu_step *step)
{
    const bool converts = instr->op == OG_OP_CONVERT;
    step->loops =
        og_cpu_loops_of(c, converts ? c->kernel->values[instr->args[0]].type : instr->type);
    step->run.map = converts ? step->loops->round[instr->index] : step->loops->map[instr->op][form];
    set_constants(c, instr, step);
}

static ogive_status emit_map(og_cpu_compiler *c, const og_instr *instr, int32_t i)
{
    int count = count_arguments(instr->op);
    int32_t places[OG_MAX_ARGS] = {0}, mask_slot = OG_CPU_NONE;
    bool ones[OG_MAX_ARGS] = {false}, one = true;
    for (int a = 0; a < count; a++) {
        OG_TRY(find_operand(c, instr->args[a], &places[a], &ones[a]));
        one &= ones[a];
    }
    if (count == 3 && ones[0] && !one) /* loops take the mask of where as a block */
        OG_TRY(og_cpu_find_block(c, instr->args[0], &places[0], &mask_slot));
    int form = 0;
    if (!one && count >= 2)
        form = (int)ones[count - 1] | (int)ones[count - 2] << 1;

    size_t bytes = og_cpu_type_bytes(c->kernel->values[instr->dst].type);
    free_arguments(c, instr, i, bytes);
    OG_TRY(place_result(c, instr->dst, i, one, true));
    free_arguments(c, instr, i, 0);
    free_register(c, &mask_slot);

    og_cpu_step *step = add_step(c, OG_CPU_MAP, instr->type);
    step->one = one;
    step->unary = instr->op != OG_OP_CONVERT && count == 1;
    step->dst = c->values[instr->dst].place;
    memcpy(step->args, places, sizeof places);
    og_cpu_choose_map(c, instr, form, step);
    return OGIVE_OK;
}

bool og_cpu_is_kept_in_store(og_cpu_compiler *c, int32_t number, int32_t *access)
{
    int32_t index = c->kept_stores[number];
    if (c->aliased || index < 0)
        return false;
    *access = og_cpu_add_access(c, index);
    og_dtype dtype = c->kernel->accesses[index].dtype;
    if ((dtype == OG_FLOAT32 || dtype == OG_FLOAT64) && is_dense(c, &c->program->accesses[*access]))
        return true;
    c->program->access_count--;
    return false;
}

/* An exponential that an earlier pass has kept. */
static ogive_status emit_kept(og_cpu_compiler *c, const og_instr *instr)
{
    og_cpu_value *at = &c->values[instr->dst];
    int32_t access;
    OG_TRY(og_cpu_add_place(c, OG_CPU_PLACE_MOVING, 0, &at->place));
    if (og_cpu_is_kept_in_store(c, c->kept[instr->dst], &access)) {
        add_direct(c, at->place, access);
        return OGIVE_OK;
    }
    c->program->kept[c->program->kept_count++] =
        (og_cpu_stage){at->place, c->kept[instr->dst], (int32_t)og_cpu_type_bytes(instr->type)};
    return OGIVE_OK;
}

static bool has_table(const og_cpu_compiler *c, const og_instr *instr)
{
    return c->is_rows && instr->dst >= 0 && c->tables[instr->dst];
}

/* A value that elements' numbers decide: loaded from its table. */
static ogive_status emit_table(og_cpu_compiler *c, const og_instr *instr, int32_t i)
{
    og_cpu_value *at = &c->values[instr->dst];
    const og_type type = c->kernel->values[instr->dst].type;
    const og_space *space = &c->kernel->space;
    int64_t strides[OG_MAX_RANK] = {0}, stride = 1;
    for (int32_t d = space->rank - 1; d >= 0; d--)
        if (c->table_dims >> d & 1) {
            strides[d] = stride;
            stride *= space->extent[d];
        }
    const int32_t access = c->program->access_count++;
    og_cpu_access *to = &c->program->accesses[access];
    *to = (og_cpu_access){.buffer = OG_CPU_NONE,
                          .bytes = (int32_t)og_cpu_type_bytes(type),
                          .table = c->tables[instr->dst]};
    for (int a = 0; a < OG_CPU_AXES; a++)
        og_cpu_make_axis(space, strides, c->geometry->dims[a], c->geometry->rank[a], &to->axes[a]);
    OG_TRY(place_result(c, instr->dst, i, false, false));
    og_cpu_step *step = add_step(c, OG_CPU_LOAD, type);
    step->dst = at->place;
    step->access = access;
    step->run.load = step->loops->load[type == OG_F64 ? OG_FLOAT64 : OG_FLOAT32];
    return OGIVE_OK;
}

bool og_cpu_is_kept(const og_cpu_compiler *c, const og_instr *instr)
{
    return has_table(c, instr) ||
           (instr->op == OG_OP_exp && !c->is_rows && c->kept[instr->dst] >= 0);
}

ogive_status og_cpu_emit_instr(og_cpu_compiler *c, int32_t i)
{
    const og_instr *instr = c->order[i];
    if (has_table(c, instr))
        return emit_table(c, instr, i);
    if (og_cpu_is_kept(c, instr))
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
