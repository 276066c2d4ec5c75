/* SPDX-License-Identifier: MIT
 *
 * plan_deviations.c - the variance of a long row in one pass.
 *
 * A formula has the sum of (x - m)^2, m the mean of x, as a pass of its own after the one that
 * finds m. A row that stays near the cores is read twice for nothing, but one that comes from
 * memory each time takes a third longer for it. So in a kernel of long rows
 *
 *     pass 0   reduce: s = sum x                  pass 0   reduce: s = sum x, q = sqdev x
 *              per row: m = s / n          =>              per row: m = s / n, what pass 1 has
 *     pass 1   reduce: q = sum (x - m) * (x - m)
 *
 * sqdev has another order (plan.h), and other bits. Therefore it is taken wherever the pattern is
 * found, whether or not something else keeps the second pass, and by the bytes of what x is computed
 * of: what else a kernel reads changes no result.
 *
 * Files for PyTorch serve rows of every length, so theirs stay as they are.
 */
#include "plan/planner.h"

#include <string.h>

/* A row of more bytes, of the widest tensor that x is computed of, is long: shared memory and registers
 * of a GPU's multiprocessor do not hold it (rows_shared.cuh: 65536 float32 on an H200). */
enum { NEAR_BYTES = 256 * 1024 };

/* A sum of squared deviations, and the sum whose mean they deviate from. */
typedef struct {
    int32_t pass, reduction;    /* of the squares */
    int32_t mean_pass, mean_of; /* of the elements */
} deviation;

typedef struct {
    og_planner *b;
    og_kernel *kernel;
    const og_instr **by_value;
    int32_t *same;
    bool *needed; /* of values, for is_long() and drop_unused() */
    int64_t n;    /* elements of a row */
} search;

/* Does the access move along a row? */
static bool moves(const og_kernel *kernel, const og_access *access)
{
    bool does = false;
    for (int32_t d = kernel->space.rank - kernel->space.n_reduced; d < kernel->space.rank; d++)
        does |= access->stride[d] != 0;
    return does;
}

static void forget_needed(const search *s)
{
    memset(s->needed, 0, (size_t)s->kernel->value_count * sizeof *s->needed);
}

static void mark_arguments(const search *s, const og_instr *instr)
{
    for (int a = 0; a < OG_MAX_ARGS; a++)
        if (instr->args[a] >= 0)
            s->needed[instr->args[a]] = true;
}

/* Is a row of value, an element's of that pass, long? */
static bool is_long(const search *s, const og_pass *pass, int32_t value)
{
    size_t widest = 0;
    forget_needed(s);
    s->needed[value] = true;
    for (int32_t i = pass->element_count - 1; i >= 0; i--) {
        const og_instr *instr = &pass->elements[i];
        if (instr->dst < 0 || !s->needed[instr->dst])
            continue;
        mark_arguments(s, instr);
        if (instr->op != OG_OP_LOAD)
            continue;
        const og_access *access = &s->kernel->accesses[instr->index];
        if (moves(s->kernel, access) && og_dtype_bytes(access->dtype) > widest)
            widest = og_dtype_bytes(access->dtype);
    }
    return widest > 0 && s->n > (int64_t)(NEAR_BYTES / widest);
}

/* The instruction of a row that computes value, or NULL. */
static const og_instr *find_row_instr(const og_kernel *kernel, int32_t value)
{
    for (int32_t p = 0; p < kernel->pass_count; p++)
        for (int32_t i = 0; i < kernel->passes[p].row_count; i++)
            if (kernel->passes[p].rows[i].dst == value)
                return &kernel->passes[p].rows[i];
    return NULL;
}

/* Is value the mean of x, whose rows are long? Sets where its sum is. */
static bool is_mean(const search *s, int32_t value, int32_t x, og_type type, deviation *out)
{
    const og_kernel *kernel = s->kernel;
    const og_instr *mean = find_row_instr(kernel, value);
    const og_instr *count = mean && mean->op == OG_OP_div && mean->type == type
                                ? find_row_instr(kernel, mean->args[1])
                                : NULL;
    if (!count || count->op != OG_OP_CONSTANT || kernel->constants[count->index] != (double)s->n)
        return false;
    for (int32_t p = 0; p < kernel->pass_count; p++)
        for (int32_t r = 0; r < kernel->passes[p].reduction_count; r++) {
            const og_reduce *sum = &kernel->passes[p].reductions[r];
            if (sum->dst != mean->args[0] || og_op_fold(sum->op) != OG_FOLD_SUM ||
                sum->type != type || s->same[sum->source] != s->same[x])
                continue;
            out->mean_pass = p;
            out->mean_of = r;
            return s->by_value[sum->source] && is_long(s, &kernel->passes[p], sum->source);
        }
    return false;
}

/* Does reduction r of pass p sum squared deviations? */
static bool is_deviation(const search *s, int32_t p, int32_t r, deviation *out)
{
    const og_reduce *sum = &s->kernel->passes[p].reductions[r];
    const og_instr *square = s->by_value[sum->source];
    if (og_op_fold(sum->op) != OG_FOLD_SUM || !square || square->type != sum->type ||
        (square->op != OG_OP_mul && square->op != OG_OP_square) ||
        (square->op == OG_OP_mul && s->same[square->args[0]] != s->same[square->args[1]]))
        return false;
    const og_instr *difference = s->by_value[square->args[0]];
    if (!difference || difference->op != OG_OP_sub || difference->type != sum->type)
        return false;
    out->pass = p;
    out->reduction = r;
    return is_mean(s, difference->args[1], difference->args[0], sum->type, out);
}

static bool find_deviation(const search *s, deviation *out)
{
    for (int32_t p = 1; p < s->kernel->pass_count; p++)
        for (int32_t r = 0; r < s->kernel->passes[p].reduction_count; r++)
            if (is_deviation(s, p, r, out))
                return true;
    return false;
}

/* Takes out of a pass what nothing needs any more: values of elements live for their pass. */
static void drop_unused(const search *s, og_pass *pass)
{
    int32_t at = pass->element_count;
    forget_needed(s);
    for (int32_t r = 0; r < pass->reduction_count; r++)
        s->needed[pass->reductions[r].source] = true;
    for (int32_t i = pass->element_count - 1; i >= 0; i--) {
        og_instr instr = pass->elements[i];
        if (instr.dst >= 0 && !s->needed[instr.dst])
            continue;
        mark_arguments(s, &instr);
        pass->elements[--at] = instr;
    }
    pass->elements += at;
    pass->element_count -= at;
}

/* A pass that reduces nothing and stores no element ends with the one before it. */
static ogive_status join_pass(search *s, int32_t p)
{
    og_kernel *kernel = s->kernel;
    og_pass *into = &kernel->passes[p - 1], *from = &kernel->passes[p];
    size_t count = (size_t)(into->row_count + from->row_count);
    og_instr *rows = OG_ARENA_NEW(&s->b->plan->arena, og_instr, count + 1);
    if (!rows)
        return og_fail_memory(s->b->error, count * sizeof *rows);
    for (int32_t i = 0; i < into->row_count; i++)
        rows[i] = into->rows[i];
    for (int32_t i = 0; i < from->row_count; i++)
        rows[into->row_count + i] = from->rows[i];
    into->rows = rows;
    into->row_count = (int32_t)count;
    kernel->pass_count--;
    memmove(from, from + 1, (size_t)(kernel->pass_count - p) * sizeof *from);
    for (int32_t v = 0; v < kernel->value_count; v++)
        kernel->values[v].pass -= kernel->values[v].pass >= p;
    return OGIVE_OK;
}

/* The sum of squares moves to the pass of the mean, as sqdev. */
static ogive_status take(search *s, const deviation *at)
{
    og_pass *to = &s->kernel->passes[at->mean_pass], *from = &s->kernel->passes[at->pass];
    size_t count = (size_t)to->reduction_count + 1;
    og_reduce *reductions = OG_ARENA_NEW(&s->b->plan->arena, og_reduce, count);
    if (!reductions)
        return og_fail_memory(s->b->error, count * sizeof *reductions);
    for (int32_t r = 0; r < to->reduction_count; r++)
        reductions[r] = to->reductions[r];
    reductions[to->reduction_count] = from->reductions[at->reduction];
    reductions[to->reduction_count].op = OG_OP_sqdev;
    reductions[to->reduction_count].source = to->reductions[at->mean_of].source;
    s->kernel->values[from->reductions[at->reduction].dst].pass = at->mean_pass;
    to->reductions = reductions;
    to->reduction_count++;
    from->reduction_count--;
    memmove(&from->reductions[at->reduction], &from->reductions[at->reduction + 1],
            (size_t)(from->reduction_count - at->reduction) * sizeof *reductions);
    drop_unused(s, from);
    if (from->reduction_count || from->element_count)
        return OGIVE_OK;
    return join_pass(s, at->pass);
}

int32_t og_find_sum(const og_pass *pass, const og_reduce *sqdev)
{
    int32_t r = 0;
    while (pass->reductions[r].source != sqdev->source || pass->reductions[r].type != sqdev->type ||
           og_op_fold(pass->reductions[r].op) != OG_FOLD_SUM)
        r++;
    return r;
}

ogive_status og_find_deviations(og_planner *b, og_kernel *kernel)
{
    search s = {.b = b, .kernel = kernel, .n = 1};
    deviation at;
    for (int32_t d = kernel->space.rank - kernel->space.n_reduced; d < kernel->space.rank; d++)
        s.n = og_times(s.n, kernel->space.extent[d]);
    if (b->rules.keeps_dims || kernel->order != OG_ROWS || kernel->product_count ||
        kernel->pass_count < 2 || s.n <= OG_CHUNK)
        return OGIVE_OK;
    s.needed = OG_ARENA_NEW(&b->scratch, bool, (size_t)kernel->value_count);
    if (!s.needed)
        return og_fail_memory(b->error, (size_t)kernel->value_count);
    for (;;) { /* taking one moves instructions */
        OG_TRY(og_find_same(kernel, &b->scratch, &s.by_value, &s.same, b->error));
        if (!find_deviation(&s, &at))
            return OGIVE_OK;
        OG_TRY(take(&s, &at));
    }
}
