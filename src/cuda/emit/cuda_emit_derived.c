/* SPDX-License-Identifier: MIT
 *
 * cuda_emit_derived.c - what several passes compute of a row's operands alone, as gelu(x) + y
 * in layer_norm(gelu(x) + y, n), computed once and kept instead of the operands. Left to
 * itself NVRTC (13.4, sm_90a) joins the passes' computations badly: layer_norm(gelu(x) *
 * 0.5 + y) of 4096 float32 took 255 registers and 320 bytes of spills, and now 64 and none.
 */
#include "cuda/emit/cuda_emit.h"

#include <string.h>

bool og_cuda_is_costly(og_op op)
{
    return og_op_cost(op) == OG_COST_CURVE;
}

bool og_cuda_is_costly_pass(const og_pass *pass)
{
    for (int32_t i = 0; i < pass->element_count; i++)
        if (og_cuda_is_costly(pass->elements[i].op))
            return true;
    return false;
}

int32_t og_cuda_traversals(const og_pass *pass)
{
    return pass->guard_count ? 0 : og_cuda_has_terms(pass) ? 2 : 1;
}

int32_t og_cuda_kept_registers(bool is_double)
{
    return is_double ? 4 : 1;
}

typedef struct {
    const og_cuda_emitter *e;
    const og_kernel *kernel;
    const og_instr **by_value;
    int32_t *same;
    bool *is_plain;      /* [value]: of kept loads and constants alone */
    bool *is_costly;     /* [value]: computing it calls a costly function */
    int32_t *traversals; /* [the first of same values]: that compute it */
    bool *is_candidate;  /* [value] */
} search;

static void see_value(search *s, const og_instr *instr, int32_t traversals)
{
    int32_t v = instr->dst;
    bool plain = instr->op == OG_OP_LOAD ? s->e->is_kept[instr->index] : instr->op != OG_OP_PRODUCT;
    bool costly = og_cuda_is_costly(instr->op);
    for (int a = 0; a < OG_MAX_ARGS && instr->args[a] >= 0; a++) {
        plain &= s->is_plain[instr->args[a]];
        costly |= s->is_costly[instr->args[a]];
    }
    s->is_plain[v] = plain;
    s->is_costly[v] = costly;
    if (plain && costly && s->kernel->values[v].type != OG_MASK32)
        s->traversals[s->same[v]] += traversals;
}

static void see_all(search *s)
{
    for (int32_t p = 0; p < s->kernel->pass_count; p++)
        for (int32_t i = 0; i < s->kernel->passes[p].element_count; i++)
            if (s->kernel->passes[p].elements[i].dst >= 0)
                see_value(s, &s->kernel->passes[p].elements[i],
                          og_cuda_traversals(&s->kernel->passes[p]));
    for (int32_t v = 0; v < s->kernel->value_count; v++)
        s->is_candidate[v] = s->by_value[v] && s->traversals[s->same[v]] > 1;
}

static void mark(const search *s, int32_t *derived, int32_t value)
{
    if (s->is_candidate[value])
        derived[s->same[value]] = 0;
}

/* Candidates that something else than a candidate needs, numbered in their order. */
static void choose(const search *s, int32_t *derived, int32_t *count)
{
    for (int32_t p = 0; p < s->kernel->pass_count; p++) {
        const og_pass *pass = &s->kernel->passes[p];
        for (int32_t i = 0; i < pass->element_count; i++) {
            const og_instr *at = &pass->elements[i];
            for (int a = 0; a < OG_MAX_ARGS && at->args[a] >= 0; a++)
                if (at->dst < 0 || !s->is_candidate[at->dst])
                    mark(s, derived, at->args[a]);
        }
        for (int32_t r = 0; r < pass->reduction_count; r++)
            mark(s, derived, pass->reductions[r].source);
    }
    for (int32_t v = 0; v < s->kernel->value_count; v++)
        if (s->same[v] != v)
            derived[v] = derived[s->same[v]];
        else if (derived[v] >= 0)
            derived[v] = (*count)++;
}

/* Marks the first value of each number, and all that it is computed from. */
static void mark_sources(const search *s, const int32_t *derived, bool *derives)
{
    for (int32_t v = s->kernel->value_count - 1; v >= 0; v--) {
        derives[v] |= derived[v] >= 0 && s->same[v] == v;
        for (int a = 0; derives[v] && a < OG_MAX_ARGS && s->by_value[v]->args[a] >= 0; a++)
            derives[s->by_value[v]->args[a]] = true;
    }
}

/* Registers that an element of the derived values takes, and of the loads needed beside them. */
static int32_t count_registers(const search *s, const int32_t *derived, bool *needed)
{
    int32_t registers = 0;
    for (int32_t p = s->kernel->pass_count - 1; p >= 0; p--) {
        const og_pass *pass = &s->kernel->passes[p];
        for (int32_t r = 0; r < pass->reduction_count; r++)
            needed[pass->reductions[r].source] = true;
        for (int32_t i = pass->element_count - 1; i >= 0; i--) {
            const og_instr *at = &pass->elements[i];
            bool live = at->dst < 0 || (needed[at->dst] && derived[at->dst] < 0);
            for (int a = 0; live && a < OG_MAX_ARGS && at->args[a] >= 0; a++)
                needed[at->args[a]] = true;
        }
    }
    for (int32_t a = 0; a < s->kernel->access_count; a++) {
        bool kept = false;
        for (int32_t v = 0; s->e->is_kept[a] && v < s->kernel->value_count; v++)
            kept |= needed[v] && s->by_value[v] && s->by_value[v]->op == OG_OP_LOAD &&
                    s->by_value[v]->index == a;
        registers +=
            kept ? og_cuda_kept_registers(og_dtype_bytes(s->kernel->accesses[a].dtype) == 8) : 0;
    }
    for (int32_t v = 0; v < s->kernel->value_count; v++)
        if (derived[v] >= 0 && s->same[v] == v)
            registers += og_cuda_kept_registers(s->kernel->values[v].type == OG_F64);
    return registers;
}

ogive_status og_cuda_find_derived(og_cuda_emitter *e, int32_t registers)
{
    size_t count = (size_t)e->kernel->value_count + 1;
    search s = {.e = e, .kernel = e->kernel};
    s.is_plain = OG_ARENA_NEW(e->arena, bool, count);
    s.is_costly = OG_ARENA_NEW(e->arena, bool, count);
    s.is_candidate = OG_ARENA_NEW(e->arena, bool, count);
    s.traversals = OG_ARENA_NEW(e->arena, int32_t, count);
    bool *needed = OG_ARENA_NEW(e->arena, bool, count);
    e->derived = OG_ARENA_NEW(e->arena, int32_t, count);
    e->derives = OG_ARENA_NEW(e->arena, bool, count);
    if (!e->derives || !s.is_plain || !s.is_costly || !s.is_candidate || !s.traversals || !needed ||
        !e->derived)
        return og_fail_memory(e->error, count * sizeof *e->derived);
    memset(e->derived, -1, count * sizeof *e->derived);
    OG_TRY(og_find_same(e->kernel, e->arena, &s.by_value, &s.same, e->error));
    see_all(&s);
    choose(&s, e->derived, &e->derived_count);
    mark_sources(&s, e->derived, e->derives);
    if (count_registers(&s, e->derived, needed) > registers)
        e->derived_count = 0;
    return OGIVE_OK;
}
