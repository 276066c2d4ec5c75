/* SPDX-License-Identifier: MIT
 *
 * plan_keep.c - finds what passes compute again: values of the same meaning, and
 * exponentials that a sumexp has computed already.
 *
 * In softmax a later pass computes exp(x - m) of the very x whose sumexp an earlier
 * pass took, m being its row maximum. Where a row is one chunk these are, bit for
 * bit, the terms of that sum (unless m is infinite: that is the backend's affair), so the
 * sum may keep its terms and the later pass read them: half the time of a softmax.
 *
 * The CPU keeps them where the later pass stores its result, if nothing speaks against
 * it: that memory is then fetched while the exponentials are computed, not after.
 */
#include "plan/plan.h"

#include <string.h>

typedef struct {
    const og_kernel *kernel;
    const og_instr **by_value; /* the element instruction that computes a value, or NULL */
    int32_t *same;             /* see og_find_same() */
    int32_t *first_user;       /* value -> the first exp(... - value) of an element, or -1 */
    int32_t *next_user; /* that one's value -> the next, of the same or a later pass, or -1 */
} search;

/* Arguments that are constants: all that the instruction's index leads to. */
static int count_constants(const og_instr *instr)
{
    return instr->op < OG_FUNCTION_COUNT ? og_function_of(instr->op)->constants
           : instr->op == OG_OP_CONSTANT ? 1
                                         : 0;
}

/* Is the index part of what an instruction computes? */
static bool has_index(const og_instr *instr)
{
    return instr->op == OG_OP_LOAD || instr->op == OG_OP_CONVERT || instr->op == OG_OP_PRODUCT;
}

/* Do x and y compute the same of the same arguments? */
static bool is_same(const og_kernel *kernel, const int32_t *same, const og_instr *x,
                    const og_instr *y)
{
    if (x->op != y->op || x->type != y->type)
        return false;
    int constants = count_constants(x);
    if (constants && memcmp(&kernel->constants[x->index], &kernel->constants[y->index],
                            (size_t)constants * sizeof(double)) != 0)
        return false;
    if (has_index(x) && x->index != y->index)
        return false;
    for (int i = 0; i < OG_MAX_ARGS; i++) {
        if ((x->args[i] < 0) != (y->args[i] < 0))
            return false;
        if (x->args[i] >= 0 && same[x->args[i]] != same[y->args[i]])
            return false;
    }
    return true;
}

/* Of what is_same() compares. */
static size_t hash_of(const og_kernel *kernel, const int32_t *same, const og_instr *x)
{
    uint64_t hash = (uint64_t)x->op * 31 + (uint64_t)x->type;
    for (int i = 0; i < count_constants(x); i++) {
        uint64_t bits;
        memcpy(&bits, &kernel->constants[x->index + i], sizeof bits);
        hash = (hash ^ bits) * 0x9e3779b97f4a7c15u;
    }
    if (has_index(x))
        hash = (hash ^ (uint64_t)x->index) * 0x9e3779b97f4a7c15u;
    for (int i = 0; i < OG_MAX_ARGS; i++)
        hash = (hash ^ (uint64_t)(x->args[i] < 0 ? -1 : same[x->args[i]])) * 0x9e3779b97f4a7c15u;
    return (size_t)(hash ^ hash >> 32);
}

/* The first value that is the same as value. table holds values that are the first of their
 * kind, +1, where their hashes lead to; mask: its size - 1, more than there are values. */
static int32_t first_same(const og_kernel *kernel, const int32_t *same,
                          const og_instr *const *by_value, int32_t *table, size_t mask,
                          int32_t value)
{
    size_t at = hash_of(kernel, same, by_value[value]) & mask;
    while (table[at] && !is_same(kernel, same, by_value[table[at] - 1], by_value[value]))
        at = (at + 1) & mask;
    if (!table[at])
        table[at] = value + 1;
    return table[at] - 1;
}

ogive_status og_find_same(const og_kernel *kernel, og_arena *scratch, const og_instr ***by_value,
                          int32_t **same, ogive_error *error)
{
    size_t count = (size_t)kernel->value_count + 1, size = 2;
    while (size < 2 * count)
        size *= 2;
    int32_t *table = OG_ARENA_NEW(scratch, int32_t, size);
    *by_value = OG_ARENA_NEW(scratch, const og_instr *, count);
    *same = OG_ARENA_NEW(scratch, int32_t, count);
    if (!*by_value || !*same || !table)
        return og_fail_memory(error, count * sizeof **by_value);
    for (int32_t v = 0; v < kernel->value_count; v++)
        (*same)[v] = v;
    for (int32_t p = 0; p < kernel->pass_count; p++)
        for (int32_t i = 0; i < kernel->passes[p].element_count; i++) {
            const og_instr *at = &kernel->passes[p].elements[i];
            if (at->dst < 0)
                continue;
            (*by_value)[at->dst] = at;
            (*same)[at->dst] = first_same(kernel, *same, *by_value, table, size - 1, at->dst);
        }
    return OGIVE_OK;
}

static const og_reduce *find_maximum(const og_pass *pass, const og_reduce *sumexp)
{
    for (int32_t r = 0; r < pass->reduction_count; r++) {
        const og_reduce *at = &pass->reductions[r];
        if (og_op_is_maximum(at->op) && at->source == sumexp->source)
            return at;
    }
    return NULL;
}

/* The access of a store of pass that comes when value, the result of an instruction of
 * it, is needed no more; -1 if there is none. */
static int32_t find_later_store(const search *s, const og_pass *pass, int32_t value)
{
    int32_t last = 0;
    for (int32_t i = 0; i < pass->element_count; i++)
        for (int a = 0; a < OG_MAX_ARGS; a++)
            if (pass->elements[i].args[a] == value)
                last = i;
    for (int32_t r = 0; r < pass->reduction_count; r++)
        if (pass->reductions[r].source == value)
            return -1;
    for (int32_t i = last; i < pass->element_count; i++) {
        const og_instr *store = &pass->elements[i];
        if (store->op != OG_OP_STORE || store->type != s->kernel->values[value].type)
            continue;
        const og_instr *producer = s->by_value[store->args[0]];
        if (producer && producer >= &pass->elements[last])
            return store->index;
    }
    return -1;
}

/* The difference whose exponential at is, or NULL. */
static const og_instr *find_difference(const search *s, const og_instr *at)
{
    const og_instr *of = at->op == OG_OP_exp ? s->by_value[at->args[0]] : NULL;
    return of && of->op == OG_OP_sub && of->args[1] >= 0 ? of : NULL;
}

/* Fills first_user and next_user; backwards, so that lists run forwards. */
static ogive_status find_users(search *s, og_arena *scratch, ogive_error *error)
{
    size_t count = (size_t)s->kernel->value_count + 1;
    s->first_user = OG_ARENA_NEW(scratch, int32_t, count);
    s->next_user = OG_ARENA_NEW(scratch, int32_t, count);
    if (!s->first_user || !s->next_user)
        return og_fail_memory(error, count * sizeof *s->first_user);
    memset(s->first_user, -1, count * sizeof *s->first_user);
    for (int32_t p = s->kernel->pass_count - 1; p >= 0; p--)
        for (int32_t i = s->kernel->passes[p].element_count - 1; i >= 0; i--) {
            const og_instr *at = &s->kernel->passes[p].elements[i];
            const og_instr *difference = find_difference(s, at);
            if (!difference)
                continue;
            s->next_user[at->dst] = s->first_user[difference->args[1]];
            s->first_user[difference->args[1]] = at->dst;
        }
    return OGIVE_OK;
}

/* Marks each exp(x - maximum) after pass p; false if there is none. *store is where the
 * terms may be kept, or -1. */
static bool mark_users(const search *s, int32_t p, const og_reduce *sumexp,
                       const og_reduce *maximum, int32_t number, int32_t *kept, int32_t *store)
{
    bool found = false;
    *store = -1;
    for (int32_t v = s->first_user[maximum->dst]; v >= 0; v = s->next_user[v]) {
        int32_t pass = s->kernel->values[v].pass;
        const og_instr *difference = find_difference(s, s->by_value[v]);
        if (pass <= p || s->same[difference->args[0]] != s->same[sumexp->source])
            continue;
        kept[v] = number;
        *store = found ? -1 : find_later_store(s, &s->kernel->passes[pass], v);
        found = true;
    }
    return found;
}

ogive_status og_find_kept_terms(const og_kernel *kernel, og_arena *scratch, int32_t *kept,
                                int32_t *stores, int32_t *count, ogive_error *error)
{
    search s = {.kernel = kernel};
    if (kernel->pass_count < 2)
        return OGIVE_OK;
    OG_TRY(og_find_same(kernel, scratch, &s.by_value, &s.same, error));
    OG_TRY(find_users(&s, scratch, error));
    for (int32_t p = 0; p < kernel->pass_count; p++)
        for (int32_t r = 0; r < kernel->passes[p].reduction_count; r++) {
            const og_reduce *sumexp = &kernel->passes[p].reductions[r];
            const og_reduce *maximum = find_maximum(&kernel->passes[p], sumexp);
            if (og_op_fold(sumexp->op) != OG_FOLD_SUMEXP || !maximum ||
                !s.by_value[sumexp->source] ||
                !mark_users(&s, p, sumexp, maximum, *count, kept, &stores[*count]))
                continue;
            for (int32_t other = 0; other < *count; other++) /* each has its own store */
                if (stores[other] == stores[*count])
                    stores[*count] = -1;
            kept[sumexp->dst] = (*count)++;
        }
    return OGIVE_OK;
}
