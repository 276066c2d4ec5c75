/* SPDX-License-Identifier: MIT
 *
 * plan_visit.c - what a node needs inside one kernel: every (node, mapping) pair
 * met on the way down is an instance (planner.h), and each is constant, loaded,
 * computed, or this kernel's own reduction or product.
 *
 * What an earlier kernel computed is loaded. That is a reduction, a product, or the
 * *tail* of a reduction: what follows from the reductions of one kernel and from
 * numbers alone, once per row (a mean's division, say). It is computed where the
 * reduction is, not once for every element that needs it.
 */
#include "plan/planner.h"

#include <string.h>

/* Bounds planning of absurd formulas: 2^24 instances take a second or two. */
static const int64_t max_work = (int64_t)1 << 24;

static bool same_mapping(const og_mapping *a, const og_mapping *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

ogive_status og_visit_begin(og_planner *b)
{
    b->epoch++;
    b->instance_count = 0;
    b->stack_count = 0;
    return OGIVE_OK;
}

/* Inference has computed it. */
static bool is_constant(const og_planner *b, int32_t node)
{
    const og_typed *type = &b->types[node];
    return (type->is_number && !type->is_mask) || b->graph->nodes[node].op == OG_OP_full_like;
}

/* A mask cannot be kept; a view is, as its argument. */
static bool can_be_kept(const og_planner *b, int32_t node)
{
    og_op op = b->graph->nodes[node].op;
    return og_function_of(op)->kind != OG_MASKING && !og_node_is_view(b, node);
}

int32_t og_find_home(const og_planner *b, int32_t node)
{
    if (b->home[node] >= 0 || b->tail_of[node] < 0 || !can_be_kept(b, node))
        return b->home[node];
    return b->home[b->tail_of[node]];
}

void og_find_tail(og_planner *b, int32_t node)
{
    const og_node *of = &b->graph->nodes[node];
    int32_t source = -1;
    if (og_node_reduces(b, node))
        source = node;
    bool computed = of->op < OG_FUNCTION_COUNT && source < 0 && !og_node_is_product(b, node);
    for (int32_t a = 0; computed && a < og_op_value_count(of->op, of->arg_count); a++) {
        int32_t tail = b->tail_of[of->args[a]];
        if (is_constant(b, of->args[a]))
            continue;
        computed = tail >= 0 && og_reads_in_place(b, node, a) &&
                   (source < 0 || (b->home[source] == b->home[tail] &&
                                   b->types[source].reduced == b->types[tail].reduced));
        source = tail;
    }
    b->tail_of[node] = computed || og_node_reduces(b, node) ? source : -1;
}

static og_instance_kind classify(const og_planner *b, int32_t draft, int32_t node,
                                 const og_mapping *mapping, bool *valid)
{
    const og_typed *type = &b->types[node];
    if (is_constant(b, node) && !og_mapping_slides(mapping)) /* else what is outside is another */
        return OG_INSTANCE_CONSTANT;
    if (b->graph->nodes[node].op == OG_OP_INPUT)
        return OG_INSTANCE_LOAD;
    int32_t home = og_find_home(b, node);
    if (home >= 0 && home < draft)
        return OG_INSTANCE_LOAD;
    if (b->graph->nodes[node].op == OG_OP_index)
        return OG_INSTANCE_INDEX;
    if (og_node_reduces(b, node)) {
        og_mapping own = og_reduced_mapping(b, node);
        *valid &= home == draft && same_mapping(&own, mapping);
        return OG_INSTANCE_REDUCED;
    }
    if (og_node_is_product(b, node)) {
        og_mapping own = og_identity_mapping(type);
        *valid &= home == draft && same_mapping(&own, mapping);
        return OG_INSTANCE_PRODUCT;
    }
    bool is_view = og_node_is_view(b, node);
    *valid &= is_view ? og_view_fits(b, node, mapping)
                      : !og_mapping_slides(mapping); /* windows see what is in memory */
    return is_view ? OG_INSTANCE_VIEW : OG_INSTANCE_COMPUTED;
}

/* The instance of node under mapping; new ones are pushed on the stack. */
static ogive_status find_instance(og_planner *b, int32_t draft, int32_t node,
                                  const og_mapping *mapping, int32_t *out, bool *valid)
{
    if (b->stamp[node] != b->epoch) {
        b->stamp[node] = b->epoch;
        b->first[node] = -1;
    }
    for (int32_t i = b->first[node]; i >= 0; i = b->instances[i].next)
        if (same_mapping(&b->instances[i].mapping, mapping)) {
            *out = i;
            return OGIVE_OK;
        }
    if (++b->work > max_work)
        OG_FAIL(b->error, OGIVE_UNSUPPORTED, b->graph->nodes[node].offset,
                "the formula takes too long to plan: split it into several");
    size_t index = b->instance_count;
    if (!og_grow((void **)&b->instances, &b->instance_capacity, index + 1, sizeof *b->instances) ||
        !og_grow((void **)&b->stack, &b->stack_capacity, b->stack_count + 1, sizeof *b->stack))
        return og_fail_memory(b->error, (index + 1) * sizeof *b->instances);
    og_instance *new = &b->instances[index];
    memset(new, 0, sizeof *new);
    new->node = node;
    new->mapping = *mapping;
    new->next = b->first[node];
    new->kind = (uint8_t)classify(b, draft, node, mapping, valid);
    new->row_value = -1;
    new->element_pass = -1;
    memset(new->args, -1, sizeof new->args);
    b->first[node] = (int32_t)index;
    b->stack[b->stack_count++] = (int32_t)index;
    b->instance_count++;
    *out = (int32_t)index;
    return OGIVE_OK;
}

ogive_status og_visit(og_planner *b, int32_t draft, int32_t node, const og_mapping *mapping,
                      int32_t *root, bool *valid)
{
    OG_TRY(find_instance(b, draft, node, mapping, root, valid));
    while (b->stack_count && *valid) {
        int32_t index = b->stack[--b->stack_count];
        og_instance at = b->instances[index];
        if (at.kind != OG_INSTANCE_VIEW && at.kind != OG_INSTANCE_COMPUTED)
            continue;
        const og_node *of = &b->graph->nodes[at.node];
        for (int32_t a = 0; a < og_op_value_count(of->op, of->arg_count); a++) {
            og_mapping below = og_argument_mapping(b, at.node, a, &at.mapping);
            int32_t arg;
            OG_TRY(find_instance(b, draft, of->args[a], &below, &arg, valid));
            b->instances[index].args[a] = arg;
        }
    }
    return OGIVE_OK;
}

/* Merge sort of b->sorted by node number: arguments come before users. */
static void sort_instances(og_planner *b, int32_t *items, int32_t *spare, size_t count)
{
    if (count < 2)
        return;
    size_t half = count / 2;
    sort_instances(b, items, spare, half);
    sort_instances(b, items + half, spare, count - half);
    memcpy(spare, items, half * sizeof *items);
    size_t left = 0, right = half, to = 0;
    while (left < half)
        if (right < count && b->instances[items[right]].node < b->instances[spare[left]].node)
            items[to++] = items[right++];
        else
            items[to++] = spare[left++];
}

static bool mapping_varies(const og_draft *draft, const og_mapping *mapping)
{
    for (int32_t d = 0; d < OG_MAX_RANK; d++)
        if ((mapping->at[d] >= 0 && draft->reduced >> mapping->at[d] & 1) ||
            (mapping->tap[d] >= 0 && draft->reduced >> mapping->tap[d] & 1))
            return true;
    return false;
}

ogive_status og_visit_end(og_planner *b, int32_t draft, bool *valid)
{
    if (!*valid)
        return OGIVE_OK;
    size_t count = b->instance_count;
    if (!og_grow((void **)&b->sorted, &b->sorted_capacity, 2 * count, sizeof *b->sorted))
        return og_fail_memory(b->error, 2 * count * sizeof *b->sorted);
    for (size_t i = 0; i < count; i++)
        b->sorted[i] = (int32_t)i;
    sort_instances(b, b->sorted, b->sorted + count, count);
    for (size_t i = 0; i < count; i++) {
        og_instance *at = &b->instances[b->sorted[i]];
        if (at->kind == OG_INSTANCE_LOAD || at->kind == OG_INSTANCE_PRODUCT ||
            at->kind == OG_INSTANCE_INDEX)
            at->varies = mapping_varies(&b->drafts[draft], &at->mapping);
        at->has_product = at->kind == OG_INSTANCE_PRODUCT;
        if (at->kind == OG_INSTANCE_REDUCED) {
            at->reduced = true;
            at->stage = b->pass[at->node] + 1;
        }
        for (int32_t a = 0; a < OG_MAX_ARGS; a++) {
            if (at->args[a] < 0)
                continue;
            const og_instance *arg = &b->instances[at->args[a]];
            at->varies |= arg->varies;
            at->reduced |= arg->reduced;
            at->has_product |= arg->has_product;
            at->stage = arg->stage > at->stage ? arg->stage : at->stage;
        }
        /* A kernel with a product makes one pass. */
        *valid &=
            !(b->drafts[draft].product_count && at->stage > 0 && (at->has_product || at->varies));
    }
    return OGIVE_OK;
}
