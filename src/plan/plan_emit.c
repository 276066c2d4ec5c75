/* SPDX-License-Identifier: MIT
 *
 * plan_emit.c - a draft's instances become passes of instructions.
 *
 * An instance that varies along the row is computed per element, in every pass
 * that needs it. One that depends on a reduction and does not vary is computed
 * per row, once, right after the pass it waits for. One that does neither (a
 * constant, a per-row operand) is computed at the level of whoever needs it.
 * Strides run over the draft's logical dims; plan_space.c orders and collapses
 * them afterwards.
 */
#include "plan/planner.h"

#include <stdlib.h>
#include <string.h>

/* The kernel being written; arrays grow, then move into the plan's arena. */
typedef struct {
    og_planner *b;
    const og_draft *draft;
    int32_t draft_index;
    og_kernel *kernel;
    og_instr *instrs; /* of the section being written */
    size_t instr_count, instr_capacity;
    og_value *values;
    size_t value_count, value_capacity;
    og_access *accesses;
    size_t access_count, access_capacity;
    double *constants;
    size_t constant_count, constant_capacity;
    int32_t *access_of; /* instance -> its access, or -1 */
    og_level level;     /* of the section being written */
    int32_t pass;
    int32_t *sources; /* reduction -> instance of its argument */
    int32_t *roots;   /* root -> instance */
} og_writer;

static bool is_row(const og_instance *at)
{
    return at->reduced && !at->varies;
}

static bool is_free(const og_instance *at)
{
    return !at->reduced && !at->varies;
}

/* ---- appending ----------------------------------------------------------------- */

static ogive_status new_value(og_writer *w, og_type type, int32_t *out)
{
    size_t at = w->value_count;
    if (!og_grow((void **)&w->values, &w->value_capacity, at + 1, sizeof *w->values))
        return og_fail_memory(w->b->error, (at + 1) * sizeof *w->values);
    w->values[at] = (og_value){.type = type, .level = w->level, .pass = w->pass};
    w->value_count++;
    *out = (int32_t)at;
    return OGIVE_OK;
}

/* Appends an instruction with dst (unless it stores); *out is dst. */
static ogive_status add_instr(og_writer *w, og_instr instr, og_type dst_type, int32_t *out)
{
    size_t at = w->instr_count;
    if (!og_grow((void **)&w->instrs, &w->instr_capacity, at + 1, sizeof *w->instrs))
        return og_fail_memory(w->b->error, (at + 1) * sizeof *w->instrs);
    instr.dst = -1;
    if (instr.op != OG_OP_STORE) {
        OG_TRY(new_value(w, dst_type, &instr.dst));
        *out = instr.dst;
    }
    w->instrs[at] = instr;
    w->instr_count++;
    return OGIVE_OK;
}

static ogive_status add_constants(og_writer *w, const double *numbers, int32_t count, int32_t *out)
{
    size_t at = w->constant_count;
    if (!og_grow((void **)&w->constants, &w->constant_capacity, at + (size_t)count,
                 sizeof *w->constants))
        return og_fail_memory(w->b->error, (at + (size_t)count) * sizeof *w->constants);
    memcpy(w->constants + at, numbers, (size_t)count * sizeof *numbers);
    w->constant_count += (size_t)count;
    *out = (int32_t)at;
    return OGIVE_OK;
}

/* Is window inside of the tensor wherever it is? */
static bool sees_always(const og_draft *draft, const og_window *window)
{
    int64_t places = window->place >= 0 ? draft->extent[window->place] : 1;
    int64_t taps = window->tap >= 0 ? draft->extent[window->tap] : 1;
    return window->divisor == 1 && window->start == 0 && window->reach >= 0 &&
           (places - 1) * window->step + (taps - 1) * window->reach < window->extent;
}

/* A window along a dim of a tensor with this stride, or, if it needs none, its strides. */
static void add_window(const og_writer *w, const og_mapping *mapping, int32_t dim, int64_t stride,
                       og_access *access)
{
    const og_node *node = &w->b->graph->nodes[mapping->window[dim] / OG_MAX_WINDOWS];
    og_window window = og_make_window(w->b, mapping->window[dim]);
    window.place = mapping->at[dim];
    window.tap = mapping->tap[dim];
    window.stride = stride;
    if (!sees_always(w->draft, &window)) {
        access->windows[access->window_count++] = window;
        access->fill = node->op == OG_OP_windows ? node->numbers[1] : 0;
        return;
    }
    if (window.place >= 0)
        access->stride[window.place] += window.step * stride;
    if (window.tap >= 0)
        access->stride[window.tap] += window.reach * stride;
}

/* A dim with this stride, in parts or not. */
static void add_strides(const og_mapping *mapping, int32_t dim, int64_t stride, og_access *access)
{
    int64_t part = og_mapping_part(mapping, dim);
    if (mapping->at[dim] >= 0)
        access->stride[mapping->at[dim]] += stride * (part ? part : 1);
    if (part)
        access->stride[mapping->tap[dim]] += stride;
}

/* How buffer is read or written by a node that lies in the space by mapping. */
static og_access make_access(const og_writer *w, int32_t buffer, const og_mapping *mapping)
{
    const og_buffer *of = &w->b->buffers[buffer];
    og_access access = {.buffer = buffer, .dtype = of->dtype};
    for (int32_t d = 0; d < of->rank; d++)
        if (mapping->window[d] >= 0)
            add_window(w, mapping, d, of->shape[d] == 1 ? 0 : of->stride[d], &access);
        else
            add_strides(mapping, d, of->stride[d], &access);
    w->kernel->slides |= og_mapping_slides(mapping);
    return access;
}

/* The number of an element along the dims that node names. */
static og_access make_index(const og_writer *w, int32_t node, const og_mapping *mapping)
{
    const og_typed *type = &w->b->types[node];
    og_access access = {.buffer = -1,
                        .dtype = og_compute_type(type->dtype) == OG_F64 ? OG_FLOAT64 : OG_FLOAT32};
    int64_t stride = 1;
    for (int32_t d = type->rank - 1; d >= 0; d--) {
        if (!(type->reduced >> d & 1))
            continue;
        add_strides(mapping, d, stride, &access);
        stride *= type->shape[d];
    }
    return access;
}

static ogive_status add_access(og_writer *w, og_access access, int32_t *out)
{
    size_t at = w->access_count;
    if (!og_grow((void **)&w->accesses, &w->access_capacity, at + 1, sizeof *w->accesses))
        return og_fail_memory(w->b->error, (at + 1) * sizeof *w->accesses);
    w->accesses[at] = access;
    w->access_count++;
    *out = (int32_t)at;
    return OGIVE_OK;
}

/* ---- values ---------------------------------------------------------------------- */

static const og_instr no_instr = {.args = {-1, -1, -1}, .index = -1};

/* value in a register of the given type. */
static ogive_status convert(og_writer *w, int32_t value, og_type type, int32_t *out)
{
    *out = value;
    if (w->values[value].type == type)
        return OGIVE_OK;
    og_instr instr = no_instr;
    instr.op = OG_OP_CONVERT;
    instr.type = type;
    instr.args[0] = value;
    instr.index = type == OG_F64 ? OG_FLOAT64 : OG_FLOAT32;
    return add_instr(w, instr, type, out);
}

static ogive_status emit_constant(og_writer *w, double number, og_type type, int32_t *out)
{
    og_instr instr = no_instr;
    instr.op = OG_OP_CONSTANT;
    instr.type = type;
    OG_TRY(add_constants(w, &number, 1, &instr.index));
    return add_instr(w, instr, type, out);
}

/* The value of an instance for a user at the level being written. */
static ogive_status value_of(og_writer *w, int32_t instance, og_type type, int32_t *out)
{
    og_instance *at = &w->b->instances[instance];
    if (at->kind == OG_INSTANCE_CONSTANT) {
        int32_t *memo = w->level == OG_ROW ? &at->row_value : &at->element_value;
        bool known = w->level == OG_ROW ? *memo >= 0 : at->element_pass == w->pass;
        if (!known || w->values[*memo].type != type) {
            OG_TRY(emit_constant(w, w->b->types[at->node].number, type, memo));
            at->element_pass = w->level == OG_ROW ? at->element_pass : w->pass;
        }
        *out = *memo;
        return OGIVE_OK;
    }
    int32_t value = w->level == OG_ROW || is_row(at) ? at->row_value : at->element_value;
    if (w->values[value].type == OG_MASK32) {
        *out = value;
        return OGIVE_OK;
    }
    return convert(w, value, type, out);
}

static ogive_status emit_load(og_writer *w, int32_t instance, int32_t *out)
{
    const og_instance *at = &w->b->instances[instance];
    if (w->access_of[instance] < 0)
        OG_TRY(add_access(w,
                          at->kind == OG_INSTANCE_INDEX
                              ? make_index(w, at->node, &at->mapping)
                              : make_access(w, w->b->buffer[at->node], &at->mapping),
                          &w->access_of[instance]));
    og_instr instr = no_instr;
    instr.op = OG_OP_LOAD;
    instr.index = w->access_of[instance];
    instr.type = og_compute_type(w->accesses[instr.index].dtype);
    return add_instr(w, instr, instr.type, out);
}

static ogive_status emit_cast(og_writer *w, const og_instance *at, og_dtype to, int32_t *out)
{
    const og_instance *arg = &w->b->instances[at->args[0]];
    og_dtype from = w->b->types[arg->node].dtype;
    og_type type = og_compute_type(to);
    /* A number is rounded from float64; anything else from the type it is held in. */
    og_type held = arg->kind == OG_INSTANCE_CONSTANT ? OG_F64 : og_compute_type(from);
    OG_TRY(value_of(w, at->args[0], held, out));
    /* A half in memory is rounded already; one that an earlier kernel kept is not. */
    bool exact =
        arg->kind == OG_INSTANCE_LOAD && w->b->buffers[w->b->buffer[arg->node]].dtype == to;
    if (to == OG_FLOAT32 || to == OG_FLOAT64 || to == OG_BOOL || exact)
        return convert(w, *out, type, out);
    og_instr instr = no_instr;
    instr.op = OG_OP_CONVERT;
    instr.type = type;
    instr.args[0] = *out;
    instr.index = (int32_t)to;
    return add_instr(w, instr, type, out);
}

static bool is_cast(og_op op, og_dtype *to)
{
    *to = op == OG_OP_boolean    ? OG_BOOL /* of what is 0 or 1 */
          : op == OG_OP_float16  ? OG_FLOAT16
          : op == OG_OP_bfloat16 ? OG_BFLOAT16
          : op == OG_OP_float64  ? OG_FLOAT64
                                 : OG_FLOAT32;
    return op == OG_OP_float32 || *to != OG_FLOAT32;
}

static ogive_status emit_computed(og_writer *w, int32_t instance, int32_t *out)
{
    og_instance at = w->b->instances[instance];
    const og_node *node = &w->b->graph->nodes[at.node];
    og_type type = og_compute_type(w->b->types[at.node].dtype);
    og_dtype to;
    if (is_cast(node->op, &to))
        return emit_cast(w, &at, to, out);
    og_instr instr = no_instr;
    instr.op = node->op;
    instr.type = type;
    for (int32_t a = 0; a < node->arg_count; a++)
        OG_TRY(value_of(w, at.args[a], type, &instr.args[a]));
    int32_t constants = og_function_of(node->op)->constants;
    if (constants)
        OG_TRY(add_constants(w, node->numbers, constants, &instr.index));
    bool masks = og_function_of(node->op)->kind == OG_MASKING;
    return add_instr(w, instr, masks ? OG_MASK32 : type, out);
}

/* Computes an instance at the level being written. */
static ogive_status emit(og_writer *w, int32_t instance)
{
    og_instance *at = &w->b->instances[instance];
    int32_t value = -1;
    switch ((og_instance_kind)at->kind) {
    case OG_INSTANCE_CONSTANT: /* by value_of, in its user's type */
    case OG_INSTANCE_REDUCED:  /* by its pass */
        return OGIVE_OK;
    case OG_INSTANCE_LOAD:
    case OG_INSTANCE_INDEX:
        OG_TRY(emit_load(w, instance, &value));
        break;
    case OG_INSTANCE_PRODUCT: {
        og_instr instr = no_instr;
        instr.op = OG_OP_PRODUCT;
        instr.type = og_compute_type(w->b->types[at->node].dtype);
        instr.index = w->draft->products[0] != at->node;
        OG_TRY(add_instr(w, instr, instr.type, &value));
        break;
    }
    case OG_INSTANCE_VIEW: {
        og_type type = og_compute_type(w->b->types[at->node].dtype);
        OG_TRY(value_of(w, at->args[0], type, &value));
        break;
    }
    case OG_INSTANCE_COMPUTED:
        if (og_mapping_slides(&at->mapping)) /* og_visit() would have refused it */
            OG_FAIL(w->b->error, OGIVE_UNSUPPORTED, w->b->graph->nodes[at->node].offset,
                    "windows slide over something that is not in memory");
        OG_TRY(emit_computed(w, instance, &value));
        break;
    }
    if (w->level == OG_ROW) {
        at->row_value = value;
    } else {
        at->element_value = value;
        at->element_pass = w->pass;
    }
    return OGIVE_OK;
}

static ogive_status emit_store(og_writer *w, const og_root *root, int32_t instance)
{
    og_type type = og_compute_type(w->b->buffers[root->buffer].dtype);
    og_instr instr = no_instr;
    int32_t unused;
    OG_TRY(value_of(w, instance, type, &instr.args[0]));
    instr.op = OG_OP_STORE;
    instr.type = type;
    OG_TRY(add_access(w, make_access(w, root->buffer, &root->mapping), &instr.index));
    w->accesses[instr.index].is_store = true;
    return add_instr(w, instr, type, &unused);
}

/* Moves the instructions written so far into the plan. */
static ogive_status end_section(og_writer *w, og_instr **instrs, int32_t *count)
{
    *count = (int32_t)w->instr_count;
    if (w->instr_count) {
        *instrs = OG_ARENA_NEW(&w->b->plan->arena, og_instr, w->instr_count);
        if (!*instrs)
            return og_fail_memory(w->b->error, w->instr_count * sizeof **instrs);
        memcpy(*instrs, w->instrs, w->instr_count * sizeof **instrs);
    }
    w->instr_count = 0;
    return OGIVE_OK;
}

/* ---- sections ---------------------------------------------------------------------- */

/* Marks what the marked instances need at this level. */
static void mark_needed(og_writer *w, bool (*stops)(const og_instance *))
{
    for (size_t i = w->b->instance_count; i-- > 0;) {
        const og_instance *at = &w->b->instances[w->b->sorted[i]];
        for (int32_t a = 0; at->needed && a < OG_MAX_ARGS; a++)
            if (at->args[a] >= 0 && !stops(&w->b->instances[at->args[a]]))
                w->b->instances[at->args[a]].needed = true;
    }
}

static void clear_needed(og_writer *w)
{
    for (size_t i = 0; i < w->b->instance_count; i++)
        w->b->instances[i].needed = false;
}

static ogive_status emit_needed(og_writer *w)
{
    for (size_t i = 0; i < w->b->instance_count; i++)
        if (w->b->instances[w->b->sorted[i]].needed)
            OG_TRY(emit(w, w->b->sorted[i]));
    return OGIVE_OK;
}

static ogive_status write_elements(og_writer *w, og_pass *pass)
{
    const og_draft *draft = w->draft;
    w->level = OG_ELEMENT;
    clear_needed(w);
    for (size_t r = 0; r < draft->reduction_count; r++)
        if (w->b->pass[draft->reductions[r]] == w->pass)
            w->b->instances[w->sources[r]].needed = true;
    for (size_t r = 0; r < draft->root_count; r++) {
        og_instance *at = &w->b->instances[w->roots[r]];
        if (!draft->roots[r].row && at->stage == w->pass)
            at->needed |= !is_row(at);
    }
    mark_needed(w, is_row);
    OG_TRY(emit_needed(w));
    for (size_t r = 0; r < draft->root_count; r++)
        if (!draft->roots[r].row && w->b->instances[w->roots[r]].stage == w->pass)
            OG_TRY(emit_store(w, &draft->roots[r], w->roots[r]));
    for (size_t r = 0; r < draft->reduction_count; r++) { /* a source that is a number */
        og_instance *at = &w->b->instances[w->sources[r]];
        if (w->b->pass[draft->reductions[r]] == w->pass && at->kind == OG_INSTANCE_CONSTANT)
            OG_TRY(value_of(w, w->sources[r],
                            og_compute_type(w->b->types[draft->reductions[r]].dtype),
                            &at->element_value));
    }
    return end_section(w, &pass->elements, &pass->element_count);
}

static ogive_status write_reductions(og_writer *w, og_pass *pass)
{
    const og_draft *draft = w->draft;
    og_planner *b = w->b;
    size_t count = 0;
    for (size_t r = 0; r < draft->reduction_count; r++)
        count += b->pass[draft->reductions[r]] == w->pass;
    w->level = OG_ROW;
    pass->reductions = OG_ARENA_NEW(&b->plan->arena, og_reduce, count);
    if (!pass->reductions)
        return og_fail_memory(b->error, count * sizeof *pass->reductions);
    for (size_t r = 0; r < draft->reduction_count; r++) {
        int32_t node = draft->reductions[r];
        if (b->pass[node] != w->pass)
            continue;
        og_reduce *reduce = &pass->reductions[pass->reduction_count++];
        reduce->op = b->graph->nodes[node].op;
        if (reduce->op == OG_OP_sum_like || reduce->op == OG_OP_group_sum)
            reduce->op = OG_OP_sum;
        reduce->type = og_compute_type(b->types[node].dtype);
        reduce->source = b->instances[w->sources[r]].element_value;
        OG_TRY(new_value(w, reduce->type, &reduce->dst));
        if (b->stamp[node] == b->epoch)
            for (int32_t i = b->first[node]; i >= 0; i = b->instances[i].next)
                b->instances[i].row_value = reduce->dst;
    }
    return OGIVE_OK;
}

static ogive_status write_rows(og_writer *w, og_pass *pass)
{
    const og_draft *draft = w->draft;
    og_planner *b = w->b;
    if (w->pass == 0) { /* what depends on nothing is computed at once and stays */
        clear_needed(w);
        for (size_t i = 0; i < b->instance_count; i++)
            b->instances[i].needed = is_row(&b->instances[i]);
        for (size_t r = 0; r < draft->root_count; r++)
            b->instances[w->roots[r]].needed |= draft->roots[r].row;
        mark_needed(w, is_row);
        for (size_t i = 0; i < b->instance_count; i++)
            b->instances[i].needed &= is_free(&b->instances[i]);
        OG_TRY(emit_needed(w));
    }
    clear_needed(w);
    for (size_t i = 0; i < b->instance_count; i++) {
        og_instance *at = &b->instances[i];
        at->needed = is_row(at) && at->stage == w->pass + 1;
    }
    OG_TRY(emit_needed(w));
    for (size_t r = 0; r < draft->root_count; r++) {
        int32_t stage = b->instances[w->roots[r]].stage;
        if (draft->roots[r].row && (stage ? stage - 1 : 0) == w->pass)
            OG_TRY(emit_store(w, &draft->roots[r], w->roots[r]));
    }
    return end_section(w, &pass->rows, &pass->row_count);
}

/* ---- all of it ------------------------------------------------------------------------- */

static ogive_status visit_draft(og_writer *w)
{
    og_planner *b = w->b;
    const og_draft *draft = w->draft;
    bool valid = true;
    w->sources = OG_ARENA_NEW(&b->scratch, int32_t, draft->reduction_count + 1);
    w->roots = OG_ARENA_NEW(&b->scratch, int32_t, draft->root_count + 1);
    if (!w->sources || !w->roots)
        return og_fail_memory(b->error, draft->root_count * sizeof *w->roots);
    OG_TRY(og_visit_begin(b));
    for (size_t r = 0; r < draft->reduction_count; r++) {
        int32_t arg = b->graph->nodes[draft->reductions[r]].args[0];
        og_typed space;
        og_mapping mapping = og_reduction_space(b, draft->reductions[r], &space);
        OG_TRY(og_visit(b, w->draft_index, arg, &mapping, &w->sources[r], &valid));
    }
    for (size_t r = 0; r < draft->root_count; r++)
        OG_TRY(og_visit(b, w->draft_index, draft->roots[r].node, &draft->roots[r].mapping,
                        &w->roots[r], &valid));
    OG_TRY(og_visit_end(b, w->draft_index, &valid));
    w->access_of = OG_ARENA_NEW(&b->scratch, int32_t, b->instance_count);
    if (!w->access_of)
        return og_fail_memory(b->error, b->instance_count * sizeof *w->access_of);
    memset(w->access_of, -1, b->instance_count * sizeof *w->access_of);
    return OGIVE_OK;
}

static int32_t count_passes(const og_writer *w)
{
    int32_t last = 0;
    for (size_t r = 0; r < w->draft->reduction_count; r++) {
        int32_t pass = w->b->pass[w->draft->reductions[r]];
        last = pass > last ? pass : last;
    }
    for (size_t r = 0; r < w->draft->root_count; r++) {
        int32_t stage = w->b->instances[w->roots[r]].stage;
        last = !w->draft->roots[r].row && stage > last ? stage : last;
    }
    return last + 1;
}

static ogive_status write_kernel(og_writer *w)
{
    og_kernel *kernel = w->kernel;
    OG_TRY(visit_draft(w));
    OG_TRY(og_emit_products(w->b, w->draft, kernel));
    kernel->space.rank = w->draft->rank;
    memcpy(kernel->space.extent, w->draft->extent, sizeof kernel->space.extent);
    kernel->pass_count = count_passes(w);
    kernel->passes = OG_ARENA_NEW(&w->b->plan->arena, og_pass, (size_t)kernel->pass_count);
    if (!kernel->passes)
        return og_fail_memory(w->b->error, (size_t)kernel->pass_count * sizeof *kernel->passes);
    for (w->pass = 0; w->pass < kernel->pass_count; w->pass++) {
        og_pass *pass = &kernel->passes[w->pass];
        OG_TRY(write_elements(w, pass));
        if (w->draft->reduction_count) {
            OG_TRY(write_reductions(w, pass));
            OG_TRY(write_rows(w, pass));
        }
    }
    return OGIVE_OK;
}

/* Copies count elements into the plan's arena. */
static ogive_status settle(og_writer *w, const void *items, size_t count, size_t size, void **out,
                           int32_t *out_count)
{
    *out_count = (int32_t)count;
    if (!count)
        return OGIVE_OK;
    *out = og_arena_alloc(&w->b->plan->arena, count, size);
    if (!*out)
        return og_fail_memory(w->b->error, count * size);
    memcpy(*out, items, count * size);
    return OGIVE_OK;
}

ogive_status og_emit_kernel(og_planner *b, int32_t draft, int64_t phase, og_kernel *kernel)
{
    og_writer w = {.b = b, .draft = &b->drafts[draft], .draft_index = draft, .kernel = kernel};
    void *values = NULL, *accesses = NULL, *constants = NULL;
    ogive_status status = write_kernel(&w);
    if (status == OGIVE_OK)
        status =
            settle(&w, w.values, w.value_count, sizeof *w.values, &values, &kernel->value_count);
    if (status == OGIVE_OK)
        status = settle(&w, w.accesses, w.access_count, sizeof *w.accesses, &accesses,
                        &kernel->access_count);
    if (status == OGIVE_OK)
        status = settle(&w, w.constants, w.constant_count, sizeof *w.constants, &constants,
                        &kernel->constant_count);
    kernel->values = values;
    kernel->accesses = accesses;
    kernel->constants = constants;
    if (status == OGIVE_OK && w.draft->product_count && og_node_convolves(b, w.draft->products[0]))
        og_emit_convolution(b, w.draft->products[0], phase, kernel);
    free(w.instrs);
    free(w.values);
    free(w.accesses);
    free(w.constants);
    return status;
}
