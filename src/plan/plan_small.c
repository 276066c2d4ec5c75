/* SPDX-License-Identifier: MIT
 *
 * plan_small.c - finds small values that are worth a kernel of their own: with a root or a curve in
 * them, and computed with by each of a product's many results, as the rsqrt(var + eps) * weight of a
 * channel behind a convolution is. Everything else pointwise is computed where it is needed.
 *
 * Kept values are not rounded, so that no result depends on what is found here.
 */
#include "plan/planner.h"

enum {
    SMALL_SHARE = 256,       /* results that read each such value, at least, */
    SMALL_LEAST = 256 * 1024 /* and results in all: fewer take less time than another kernel */
};

typedef struct {
    bool behind; /* a product, or computed of one without a reduction in between */
    bool apart;  /* computed of inputs alone, element by element */
    bool costly; /* apart, and with a costly function among what computes it */
} small_facts;

static double count_elements(const og_typed *type)
{
    double count = 1;
    for (int32_t d = 0; d < type->rank; d++)
        count *= (double)type->shape[d];
    return count;
}

/* of: facts of node's arguments. */
static small_facts find_facts(const og_planner *b, int32_t node, const small_facts *of)
{
    const og_node *at = &b->graph->nodes[node];
    small_facts found = {.behind = og_node_is_product(b, node)};
    if (at->op == OG_OP_INPUT || at->op == OG_OP_NUMBER)
        return (small_facts){.apart = true};
    bool computes = og_node_is_scalar(b, node) || og_node_is_plain_view(b, node);
    if (found.behind || !computes)
        return found;
    found.apart = true;
    found.costly = og_node_is_scalar(b, node) && og_op_cost(at->op) != OG_COST_FEW;
    for (int32_t a = 0; a < og_op_value_count(at->op, at->arg_count); a++) {
        const small_facts *each = &of[at->args[a]];
        found.behind |= each->behind;
        found.apart &= each->apart;
        found.costly |= each->costly;
    }
    found.costly &= found.apart;
    return found;
}

ogive_status og_find_small(og_planner *b, const bool *live, bool *small)
{
    const og_graph *graph = b->graph;
    small_facts *facts = OG_ARENA_NEW(&b->scratch, small_facts, (size_t)graph->node_count);
    if (!facts)
        return og_fail_memory(b->error, (size_t)graph->node_count * sizeof *facts);
    for (int32_t n = 0; n < graph->node_count; n++) {
        const og_node *node = &graph->nodes[n];
        facts[n] = find_facts(b, n, facts);
        double results = count_elements(&b->types[n]);
        if (!live[n] || !facts[n].behind || !og_node_is_scalar(b, n) || results < SMALL_LEAST)
            continue;
        for (int32_t a = 0; a < og_op_value_count(node->op, node->arg_count); a++) {
            int32_t each = node->args[a];
            if (facts[each].costly && count_elements(&b->types[each]) * SMALL_SHARE <= results)
                small[each] = true;
        }
    }
    return OGIVE_OK;
}
