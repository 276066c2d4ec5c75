/* SPDX-License-Identifier: MIT
 *
 * plan_guards.c - passes that few rows need.
 *
 * A norm has the sum of squares of a row once, s, and again of scaled elements, for rows whose s has
 * overflowed or vanished (functions.def: square_scale):
 *
 *     pass 1   reduce: s = sum d * d          pass 2   reduce: t = sum (d * c) * (d * c)
 *              per row: c, a power of two              per row: q = c == 1 ? s : t
 *
 * Pass 2 is needed where c is not 1, and c is its guard. That is all there is to it: who runs it
 * nevertheless has the same result.
 */
#include "plan/planner.h"

/* The element instruction of a pass that computes value, or NULL. */
static const og_instr *find_element(const og_pass *pass, int32_t value)
{
    for (int32_t i = 0; i < pass->element_count; i++)
        if (pass->elements[i].dst == value)
            return &pass->elements[i];
    return NULL;
}

static bool chooses(og_op op)
{
    return op == OG_OP_rescaled || op == OG_OP_rescaled_once;
}

/* Is value read by nothing but row instructions that take it where its guard is not 1? */
static bool is_seldom_read(const og_kernel *kernel, int32_t value)
{
    for (int32_t p = 0; p < kernel->pass_count; p++) {
        const og_pass *pass = &kernel->passes[p];
        for (int32_t i = 0; i < pass->element_count; i++)
            for (int a = 0; a < OG_MAX_ARGS; a++)
                if (pass->elements[i].args[a] == value)
                    return false;
        for (int32_t i = 0; i < pass->row_count; i++)
            for (int a = 0; a < OG_MAX_ARGS; a++)
                if (pass->rows[i].args[a] == value && !(a == 1 && chooses(pass->rows[i].op)))
                    return false;
        for (int32_t r = 0; r < pass->reduction_count; r++)
            if (pass->reductions[r].source == value)
                return false;
    }
    return true;
}

/* The value that says where reduction r of pass p is needed, or -1: everywhere. */
static int32_t find_guard(const og_kernel *kernel, int32_t p, int32_t r)
{
    const og_reduce *sum = &kernel->passes[p].reductions[r];
    const og_instr *square = find_element(&kernel->passes[p], sum->source);
    if (og_op_fold(sum->op) != OG_FOLD_SUM || !square || square->op != OG_OP_scaled_square ||
        !is_seldom_read(kernel, sum->dst))
        return -1;
    const og_value *scale = &kernel->values[square->args[1]];
    return scale->level == OG_ROW && scale->pass < p ? square->args[1] : -1;
}

static bool stores_elements(const og_pass *pass)
{
    for (int32_t i = 0; i < pass->element_count; i++)
        if (pass->elements[i].op == OG_OP_STORE)
            return true;
    return false;
}

ogive_status og_find_guards(og_planner *b, og_kernel *kernel)
{
    for (int32_t p = 1; p < kernel->pass_count; p++) {
        og_pass *pass = &kernel->passes[p];
        size_t count = (size_t)pass->reduction_count;
        if (!count || stores_elements(pass))
            continue;
        pass->guards = OG_ARENA_NEW(&b->plan->arena, int32_t, count);
        if (!pass->guards)
            return og_fail_memory(b->error, count * sizeof *pass->guards);
        for (int32_t r = 0; r < pass->reduction_count; r++) {
            pass->guards[r] = find_guard(kernel, p, r);
            pass->guard_count += pass->guards[r] >= 0;
        }
        if (pass->guard_count < pass->reduction_count)
            pass->guard_count = 0;
    }
    return OGIVE_OK;
}
