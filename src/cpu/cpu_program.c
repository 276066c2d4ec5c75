/* SPDX-License-Identifier: MIT
 *
 * cpu_program.c - a kernel's passes become programs (their steps: cpu_steps.c) and
 * reductions. Knows the axes of a kernel, not the sizes of its pieces.
 */
#include "cpu/cpu_compiler.h"

#include <stdlib.h>
#include <string.h>

/* ---- reductions -------------------------------------------------------------- */

static const og_cpu_fold_kind loops_of_fold[] = {
    [OG_FOLD_SUM] = OG_CPU_SUM,  [OG_FOLD_MAX] = OG_CPU_MAX,    [OG_FOLD_MIN] = OG_CPU_MIN,
    [OG_FOLD_PEAK] = OG_CPU_MAX, [OG_FOLD_SUMEXP] = OG_CPU_SUM, [OG_FOLD_SQDEV] = OG_CPU_SUM,
};

/* Index of the reduction that finds the maximum of reduce's source. */
static int32_t find_companion(og_cpu_compiler *c, const og_pass *pass, const og_reduce *reduce)
{
    for (int32_t r = 0; r < pass->reduction_count; r++) {
        const og_reduce *other = &pass->reductions[r];
        if (other->source == reduce->source && other->type == reduce->type &&
            og_op_is_maximum(other->op))
            return r;
    }
    int32_t index = c->program->reduction_count++;
    og_cpu_reduction *hidden = &c->program->reductions[index];
    hidden->fold = OG_CPU_MAX;
    hidden->result = hidden->access = hidden->stage = hidden->kept = OG_CPU_NONE;
    hidden->loops = og_cpu_loops_of(c, reduce->type);
    hidden->bytes = og_cpu_type_bytes(reduce->type);
    return index;
}

/* Columns: every reduction reads rows of memory, with nothing to compute. */
static bool has_only_loads(og_cpu_compiler *c, const og_pass *pass)
{
    if (c->geometry->layout != OG_CPU_COLUMNS || pass->reduction_count == 0)
        return false;
    for (int32_t r = 0; r < pass->reduction_count; r++)
        if (og_op_fold(pass->reductions[r].op) == OG_FOLD_SUMEXP ||
            og_cpu_is_row_value(c, pass->reductions[r].source))
            return false;
    for (int32_t i = 0; i < pass->element_count; i++) {
        const og_instr *instr = &pass->elements[i];
        if (instr->op != OG_OP_LOAD || !og_access_is_plain(&c->kernel->accesses[instr->index]) ||
            !og_cpu_is_own_type(instr->type, c->kernel->accesses[instr->index].dtype))
            return false;
        const og_cpu_access *access = &c->program->accesses[og_cpu_add_access(c, instr->index)];
        c->program->access_count--;
        if (!og_cpu_is_contiguous(&access->axes[OG_CPU_INNER]) ||
            access->axes[OG_CPU_OUTER].rank > 1)
            return false;
    }
    return true;
}

/* The source of a sumexp: memory that stays, or a stage. */
static ogive_status stage_source(og_cpu_compiler *c, int32_t v, og_cpu_reduction *to)
{
    og_cpu_value *at = &c->values[v];
    if (at->direct != OG_CPU_NONE && !og_cpu_is_row_value(c, v)) {
        to->access = at->direct;
        return OGIVE_OK;
    }
    if (og_cpu_is_row_value(c, v) || at->one) { /* else it was computed there */
        OG_TRY(og_cpu_add_stage(c, c->kernel->values[v].type, &to->source));
        og_cpu_expand_into(c, v, to->source);
    }
    for (int32_t s = 0; s < c->program->stage_count; s++)
        if (c->program->stages[s].place == to->source)
            to->stage = c->program->stages[s].number;
    return OGIVE_OK;
}

static ogive_status emit_reduction(og_cpu_compiler *c, const og_pass *pass, int32_t r)
{
    const og_reduce *from = &pass->reductions[r];
    og_cpu_reduction *to = &c->program->reductions[r];
    og_cpu_value *at = &c->values[from->source];
    to->is_sumexp = og_op_fold(from->op) == OG_FOLD_SUMEXP;
    to->is_sqdev = og_op_fold(from->op) == OG_FOLD_SQDEV;
    to->fold = loops_of_fold[og_op_fold(from->op)];
    to->loops = og_cpu_loops_of(c, from->type);
    to->bytes = og_cpu_type_bytes(from->type);
    to->access = to->stage = to->companion = OG_CPU_NONE;
    to->kept = to->is_sumexp ? c->kept[from->dst] : OG_CPU_NONE;
    if (to->kept < 0 || !og_cpu_is_kept_in_store(c, to->kept, &to->kept_access))
        to->kept_access = OG_CPU_NONE;
    to->source = at->place;
    if (c->program->only_loads) {
        to->strided = true;
        to->access = at->direct;
    } else if (to->is_sumexp && !og_cpu_has_whole_rows(c)) {
        OG_TRY(stage_source(c, from->source, to));
    } else {
        int32_t slot; /* kept to the program's end */
        OG_TRY(og_cpu_find_block(c, from->source, &to->source, &slot));
    }
    if (to->is_sqdev)
        to->companion = og_find_sum(pass, from);
    if (to->is_sumexp) {
        to->companion = find_companion(c, pass, from);
        if (to->companion >= pass->reduction_count) {
            og_cpu_reduction *hidden = &c->program->reductions[to->companion];
            hidden->source = to->source;
            if (c->geometry->layout == OG_CPU_PRODUCT) /* each group's is kept */
                OG_TRY(og_cpu_add_place(c, OG_CPU_PLACE_TILE, c->out->row_value_count++,
                                        &hidden->result));
        }
    }
    c->row_ones[from->dst] = false;
    OG_TRY(og_cpu_find_row_place(c, from->dst));
    to->result = c->row_places[from->dst];
    return OGIVE_OK;
}

/* ---- programs ---------------------------------------------------------------- */

static void reset_value(og_cpu_compiler *c, int32_t v)
{
    og_cpu_value *at = &c->values[v];
    memset(at, 0, sizeof *at);
    at->place = c->row_places[v];
    at->one = c->row_ones[v];
    at->slot = at->expanded = at->expanded_slot = at->direct = at->store = OG_CPU_NONE;
    at->last = OG_CPU_NONE;
    c->needed[v] = false;
}

/* Resets all values that the program knows: a kernel of many passes has many others. */
static void reset_values(og_cpu_compiler *c, const og_instr *instrs, int32_t count,
                         const og_pass *pass)
{
    for (int32_t i = 0; i < count; i++) {
        if (instrs[i].dst >= 0)
            reset_value(c, instrs[i].dst);
        for (int a = 0; a < OG_MAX_ARGS; a++)
            if (instrs[i].args[a] >= 0)
                reset_value(c, instrs[i].args[a]);
    }
    for (int32_t r = 0; pass && r < pass->reduction_count; r++)
        reset_value(c, pass->reductions[r].source);
    memset(c->register_busy, 0, (size_t)c->register_count * sizeof *c->register_busy);
}

/* Marks what stores, reductions and other programs need, and what that needs. */
static void mark_needed(og_cpu_compiler *c, const og_instr *instrs, int32_t count,
                        const og_pass *pass)
{
    for (int32_t r = 0; pass && r < pass->reduction_count; r++)
        c->needed[pass->reductions[r].source] = true;
    for (int32_t i = count - 1; i >= 0; i--) {
        const og_instr *instr = &instrs[i];
        bool wanted = instr->op == OG_OP_STORE || c->needed[instr->dst] ||
                      (c->is_rows && c->outlives[instr->dst]);
        for (int a = 0; wanted && a < OG_MAX_ARGS; a++)
            if (instr->args[a] >= 0 && !og_cpu_is_kept(c, instr))
                c->needed[instr->args[a]] = true;
        if (instr->dst >= 0)
            c->needed[instr->dst] = wanted;
    }
}

/* Puts the instructions into the order of the program and looks at their uses. */
static void scan_program(og_cpu_compiler *c, const og_instr *instrs, int32_t count,
                         const og_pass *pass)
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
        for (int a = 0; a < OG_MAX_ARGS && !og_cpu_is_kept(c, instr); a++)
            if (instr->args[a] >= 0)
                c->values[instr->args[a]].last = i;
        if (instr->op == OG_OP_STORE) {
            c->store_count++;
            c->values[instr->args[0]].stores++;
            c->values[instr->args[0]].store = i;
        }
    }
    for (int32_t r = 0; pass && r < pass->reduction_count; r++) {
        og_cpu_value *at = &c->values[pass->reductions[r].source];
        at->last = OG_CPU_ALWAYS;
        at->reduced = true;
        at->staged |=
            og_op_fold(pass->reductions[r].op) == OG_FOLD_SUMEXP && !og_cpu_has_whole_rows(c);
    }
}

static ogive_status allocate_program(og_cpu_compiler *c, int32_t count, int32_t reductions)
{
    og_cpu_program *program = OG_ARENA_NEW(c->arena, og_cpu_program, 1);
    size_t n = (size_t)count + 1, r = (size_t)reductions + 1;
    if (program) {
        /* An instruction needs itself and at most a copy of each argument. */
        program->steps = OG_ARENA_NEW(c->arena, og_cpu_step, 4 * n + 2 * r);
        program->accesses = OG_ARENA_NEW(c->arena, og_cpu_access, 2 * n + r);
        program->directs = OG_ARENA_NEW(c->arena, og_cpu_direct, n);
        program->stages = OG_ARENA_NEW(c->arena, og_cpu_stage, r);
        program->kept = OG_ARENA_NEW(c->arena, og_cpu_stage, n);
        program->reductions = OG_ARENA_NEW(c->arena, og_cpu_reduction, 2 * r);
    }
    if (!program || !program->steps || !program->accesses || !program->directs ||
        !program->stages || !program->kept || !program->reductions)
        return og_fail_memory(c->error, n * sizeof *program->steps);
    program->load = program->sliced = OG_CPU_NONE;
    c->program = program;
    return OGIVE_OK;
}

static void add_late(og_cpu_program *program, int32_t access)
{
    const og_cpu_access *of = &program->accesses[access];
    const og_cpu_axis *inner = &of->axes[OG_CPU_INNER];
    bool is_plain = of->buffer >= 0 && of->window_count == 0;
    if (is_plain && inner->rank == 1 && inner->stride[0] == 1 && program->late_count < OG_CPU_LATE)
        program->late[program->late_count++] = access;
}

/* Finds the program's slow step, and the memory that steps after it touch. That
 * memory would be waited for at the end of each block, with nothing to compute; the
 * hardware fetches ahead only what is being read already. x*sigmoid(x)+y of 2^22
 * elements, one Zen 4 core: 0.89 ns an element without this, 0.57 with. */
static ogive_status find_late(og_cpu_compiler *c)
{
    og_cpu_program *program = c->program;
    bool *early = OG_ARENA_NEW(&c->scratch, bool, c->place_count + 1); /* by place */
    if (!early)
        return og_fail_memory(c->error, c->place_count);
    int32_t at = 0;
    while (at < program->step_count && (!program->steps[at].unary || program->steps[at].one))
        at++;
    for (int32_t s = 0; s <= at && s < program->step_count; s++) {
        const og_cpu_step *step = &program->steps[s]; /* places that it does not use are 0 */
        early[step->dst] = true;
        for (int a = 0; a < 3; a++)
            early[step->args[a]] = true;
    }
    for (int32_t d = 0; d < program->direct_count; d++)
        if (!early[program->directs[d].place])
            add_late(program, program->directs[d].access);
    for (int32_t s = at + 1; s < program->step_count; s++)
        if (program->steps[s].access != OG_CPU_NONE && !program->steps[s].one)
            add_late(program, program->steps[s].access);
    if (at < program->step_count && program->late_count > 0)
        program->sliced = at;
    return OGIVE_OK;
}

static ogive_status find_window_fold(const og_cpu_compiler *c)
{
    const og_cpu_geometry *g = c->geometry;
    const int64_t *extent = c->kernel->space.extent;
    int64_t taps = 1;
    for (int32_t d = 0; d < g->rank[OG_CPU_OUTER]; d++)
        taps = og_times(taps, extent[g->dims[OG_CPU_OUTER][d]]);
    const int32_t inner = g->rank[OG_CPU_INNER];
    const int64_t width = inner ? extent[g->dims[OG_CPU_INNER][inner - 1]] : 1;
    return og_cpu_find_window_fold(c->program, taps, width, c->arena, c->error);
}

/* pass is NULL for row instructions. */
static ogive_status compile_program(og_cpu_compiler *c, const og_instr *instrs, int32_t count,
                                    const og_pass *pass, const og_cpu_geometry *geometry,
                                    bool aliased, og_cpu_program **out)
{
    c->geometry = geometry;
    c->is_rows = !pass;
    c->aliased = aliased;
    OG_TRY(allocate_program(c, count, pass ? pass->reduction_count : 0));
    reset_values(c, instrs, count, pass);
    if (!pass)
        OG_TRY(og_cpu_find_numbers(c, instrs, count));
    scan_program(c, instrs, count, pass);
    og_cpu_geometry strided = *geometry;
    if (pass && has_only_loads(c, pass)) {
        c->program->only_loads = true;
        strided.many = false; /* every load is direct: reductions know its stride */
        c->geometry = &strided;
    }
    for (int32_t i = 0; i < c->count; i++)
        OG_TRY(og_cpu_emit_instr(c, i));
    if (pass) {
        c->program->reduction_count = pass->reduction_count;
        for (int32_t r = 0; r < pass->reduction_count; r++)
            OG_TRY(emit_reduction(c, pass, r));
    }
    if (geometry->layout == OG_CPU_POINTWISE)
        OG_TRY(find_late(c));
    if (geometry->layout == OG_CPU_COLUMNS && pass)
        OG_TRY(find_window_fold(c));
    c->geometry = geometry;
    *out = c->program;
    return OGIVE_OK;
}

static ogive_status compile_pass(og_cpu_compiler *c, int32_t p, const og_cpu_geometry *elements,
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
static void find_outliving(og_cpu_compiler *c)
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

static ogive_status allocate_compiler(og_cpu_compiler *c)
{
    size_t n = (size_t)c->kernel->value_count + 1, longest = 1;
    for (int32_t p = 0; p < c->kernel->pass_count; p++) {
        const og_pass *pass = &c->kernel->passes[p];
        size_t count = (size_t)(pass->element_count + pass->row_count);
        longest = count > longest ? count : longest;
    }
    c->values = OG_ARENA_NEW(&c->scratch, og_cpu_value, n);
    c->row_places = OG_ARENA_NEW(&c->scratch, int32_t, n);
    c->row_ones = OG_ARENA_NEW(&c->scratch, bool, n);
    c->outlives = OG_ARENA_NEW(&c->scratch, bool, n);
    c->needed = OG_ARENA_NEW(&c->scratch, bool, n);
    c->tables = OG_ARENA_NEW(&c->scratch, const void *, n);
    c->kept = OG_ARENA_NEW(&c->scratch, int32_t, n);
    c->kept_stores = OG_ARENA_NEW(&c->scratch, int32_t, n);
    /* A value has at most a register, an expanded one and, reduced, a splat one; a step's
     * mask is one more. */
    c->register_places = OG_ARENA_NEW(&c->scratch, int32_t, 3 * n + 2);
    c->register_busy = OG_ARENA_NEW(&c->scratch, bool, 3 * n + 2);
    c->order = OG_ARENA_NEW(&c->scratch, const og_instr *, longest);
    if (!c->values || !c->row_places || !c->row_ones || !c->outlives || !c->needed || !c->tables ||
        !c->kept || !c->kept_stores || !c->register_places || !c->register_busy || !c->order)
        return og_fail_memory(c->error, n * sizeof *c->values);
    memset(c->row_places, -1, n * sizeof *c->row_places);
    memset(c->kept, -1, n * sizeof *c->kept);
    return OGIVE_OK;
}

/* Where the guards of a pass are: values that its elements read, so that they have places. */
static ogive_status find_guards(og_cpu_compiler *c, int32_t p)
{
    const og_pass *pass = &c->kernel->passes[p];
    og_cpu_pass *to = &c->out->passes[p];
    to->guards = OG_ARENA_NEW(c->arena, og_cpu_guard, (size_t)pass->guard_count + 1);
    if (!to->guards)
        return og_fail_memory(c->error, (size_t)pass->guard_count * sizeof *to->guards);
    for (int32_t g = 0; g < pass->guard_count; g++)
        to->guards[g] = (og_cpu_guard){c->row_places[pass->guards[g]],
                                       c->kernel->values[pass->guards[g]].type == OG_F64};
    to->guard_count = pass->guard_count;
    return OGIVE_OK;
}

static ogive_status compile_passes(og_cpu_compiler *c, const og_plan *plan,
                                   const og_cpu_geometry *elements, const og_cpu_geometry *rows)
{
    og_cpu_kernel *out = c->out;
    bool aliases = false;
    for (int32_t i = 0; plan->may_alias && i < plan->input_count * plan->output_count; i++)
        aliases |= plan->may_alias[i];
    OG_TRY(allocate_compiler(c));
    find_outliving(c);
    if (elements->keeps)
        OG_TRY(og_find_kept_terms(c->kernel, &c->scratch, c->kept, c->kept_stores, &out->kept_count,
                                  c->error));
    out->pass_count = c->kernel->pass_count;
    out->passes = OG_ARENA_NEW(c->arena, og_cpu_pass, (size_t)out->pass_count + 1);
    if (!out->passes)
        return og_fail_memory(c->error, (size_t)out->pass_count * sizeof *out->passes);
    for (int32_t p = 0; p < out->pass_count; p++) {
        OG_TRY(compile_pass(c, p, elements, rows, aliases));
        OG_TRY(find_guards(c, p));
    }
    out->register_count = c->register_count;
    out->place_count = (int32_t)c->place_count;
    out->places = OG_ARENA_NEW(c->arena, og_cpu_place, c->place_count + 1);
    if (!out->places)
        return og_fail_memory(c->error, c->place_count * sizeof *out->places);
    if (c->place_count)
        memcpy(out->places, c->places, c->place_count * sizeof *out->places);
    return OGIVE_OK;
}

ogive_status og_cpu_compile(const og_plan *plan, const og_kernel *kernel,
                            const og_cpu_kernels *kernels, const og_cpu_geometry *elements,
                            const og_cpu_geometry *rows, og_arena *arena, og_cpu_kernel *out,
                            ogive_error *error)
{
    og_cpu_compiler c = {
        .kernel = kernel, .kernels = kernels, .arena = arena, .out = out, .error = error};
    ogive_status status = compile_passes(&c, plan, elements, rows);
    free(c.places);
    og_arena_free(&c.scratch);
    return status;
}
