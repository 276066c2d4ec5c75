/* SPDX-License-Identifier: MIT
 *
 * cpu_numbers.c - what row instructions compute of elements' numbers and constants alone (how many
 * elements a part of an adaptive average has) is the same in every run, and for every row that
 * differs in other dims. It is computed once, when a kernel is prepared, by the loops that programs
 * consist of, and loaded as from a tensor of the dims that it depends on.
 */
#include "cpu/cpu_compiler.h"

#include <string.h>

enum {
    MOST_NUMBERS = 4096, /* elements of a table */
    LEAST_ROWS = 2       /* rows for each of them, else nothing is gained */
};

typedef struct {
    og_cpu_compiler *c;
    const og_instr *instrs;
    int32_t count;
    uint32_t dims; /* that numbers move along */
    int64_t n;     /* elements of these */
    void **known;  /* of a value: all its elements, or NULL */
} numbers;

static bool is_number(const numbers *of, const og_instr *instr)
{
    if (instr->op != OG_OP_LOAD)
        return false;
    const og_access *access = &of->c->kernel->accesses[instr->index];
    return access->buffer < 0 && access->window_count == 0;
}

/* Do its arguments depend on numbers alone, or has it none? */
static bool is_known(const numbers *of, const bool *known, const og_instr *instr)
{
    if (instr->op == OG_OP_STORE || instr->op == OG_OP_PRODUCT || instr->dst < 0)
        return false;
    if (instr->op == OG_OP_LOAD)
        return is_number(of, instr);
    for (int a = 0; a < OG_MAX_ARGS; a++)
        if (instr->args[a] >= 0 && !known[instr->args[a]])
            return false;
    return true;
}

/* The dims that numbers move along, and elements of these; false: too many, or all there are. */
static bool find_dims(numbers *of)
{
    const og_space *space = &of->c->kernel->space;
    int64_t rows = 1;
    of->n = 1;
    for (int32_t i = 0; i < of->count; i++)
        for (int32_t d = 0; is_number(of, &of->instrs[i]) && d < space->rank; d++)
            if (of->c->kernel->accesses[of->instrs[i].index].stride[d])
                of->dims |= 1u << d;
    for (int32_t d = 0; d < space->rank - space->n_reduced; d++) {
        rows = og_times(rows, space->extent[d]);
        of->n = og_times(of->n, of->dims >> d & 1 ? space->extent[d] : 1);
    }
    return of->dims && of->dims < 1u << (space->rank - space->n_reduced) && of->n > 0 &&
           of->n <= MOST_NUMBERS && rows / of->n >= LEAST_ROWS;
}

static void count_numbers(const numbers *of, const og_instr *instr, void *to)
{
    const og_space *space = &of->c->kernel->space;
    const og_access *access = &of->c->kernel->accesses[instr->index];
    for (int64_t i = 0; i < of->n; i++) {
        int64_t rest = i, number = access->offset;
        for (int32_t d = space->rank - 1; d >= 0; d--) {
            if (!(of->dims >> d & 1))
                continue;
            number += rest % space->extent[d] * access->stride[d];
            rest /= space->extent[d];
        }
        if (instr->type == OG_F64)
            ((double *)to)[i] = (double)number;
        else
            ((float *)to)[i] = (float)number;
    }
}

static ogive_status compute(const numbers *of, const og_instr *instr)
{
    og_cpu_compiler *c = of->c;
    void *to = of->known[instr->dst] = og_arena_alloc(&c->scratch, (size_t)of->n, sizeof(double));
    if (!to)
        return og_fail_memory(c->error, (size_t)of->n * sizeof(double));
    if (instr->op == OG_OP_LOAD) {
        count_numbers(of, instr, to);
    } else if (instr->op == OG_OP_CONSTANT) {
        const double value = c->kernel->constants[instr->index];
        const float single = (float)value;
        const bool wide = instr->type == OG_F64;
        og_cpu_loops_of(c, instr->type)->splat(to, wide ? (const void *)&value : &single, of->n);
    } else {
        const void *args[OG_MAX_ARGS] = {NULL};
        og_cpu_step step;
        og_cpu_choose_map(c, instr, 0, &step);
        for (int a = 0; a < OG_MAX_ARGS; a++)
            args[a] = instr->args[a] >= 0 ? of->known[instr->args[a]] : NULL;
        step.run.map(to, args[0], args[1], args[2], &step.constants, of->n);
    }
    return OGIVE_OK;
}

/* Does anything else need value v? */
static bool is_wanted(const numbers *of, const bool *known, int32_t v)
{
    bool wanted = of->c->outlives[v];
    for (int32_t i = 0; i < of->count; i++)
        for (int a = 0; a < OG_MAX_ARGS; a++)
            wanted |=
                of->instrs[i].args[a] == v && (of->instrs[i].dst < 0 || !known[of->instrs[i].dst]);
    return wanted;
}

/* Tables for what others need of it. */
static ogive_status make_tables(const numbers *of, const bool *known)
{
    og_cpu_compiler *c = of->c;
    ogive_status status = OGIVE_OK;
    const og_cpu_float_state saved = og_cpu_float_enter();
    for (int32_t i = 0; i < of->count && status == OGIVE_OK; i++)
        if (of->instrs[i].dst >= 0 && known[of->instrs[i].dst])
            status = compute(of, &of->instrs[i]);
    og_cpu_float_leave(saved);
    for (int32_t i = 0; i < of->count && status == OGIVE_OK; i++) {
        const int32_t v = of->instrs[i].dst;
        if (v < 0 || !known[v] || of->instrs[i].op == OG_OP_CONSTANT || !is_wanted(of, known, v))
            continue;
        void *table = og_arena_alloc(c->arena, (size_t)of->n, sizeof(double));
        if (!table)
            return og_fail_memory(c->error, (size_t)of->n * sizeof(double));
        c->tables[v] = memcpy(table, of->known[v], (size_t)of->n * sizeof(double));
    }
    c->table_dims = of->dims;
    return status;
}

ogive_status og_cpu_find_numbers(og_cpu_compiler *c, const og_instr *instrs, int32_t count)
{
    numbers of = {.c = c, .instrs = instrs, .count = count};
    size_t values = (size_t)c->kernel->value_count + 1;
    if (!find_dims(&of))
        return OGIVE_OK;
    bool *known = OG_ARENA_NEW(&c->scratch, bool, values);
    of.known = OG_ARENA_NEW(&c->scratch, void *, values);
    if (!known || !of.known)
        return og_fail_memory(c->error, values * sizeof *of.known);
    for (int32_t i = 0; i < count; i++)
        if (instrs[i].dst >= 0)
            known[instrs[i].dst] = is_known(&of, known, &instrs[i]);
    for (int32_t i = 0; i < count; i++) { /* a mask is no tensor */
        const int32_t v = instrs[i].dst;
        if (v >= 0 && known[v] && c->kernel->values[v].type == OG_MASK32 &&
            is_wanted(&of, known, v))
            return OGIVE_OK;
    }
    return make_tables(&of, known);
}
