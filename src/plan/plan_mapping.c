/* SPDX-License-Identifier: MIT
 *
 * plan_mapping.c - where the dims of a node and of its arguments lie in a
 * kernel's space, and which nodes are nothing but a view: their argument under
 * another mapping.
 */
#include "plan/planner.h"

#include <string.h>

/* sum_like sums only where broadcasting added something. */
bool og_node_reduces(const og_planner *b, int32_t node)
{
    og_op op = b->graph->nodes[node].op;
    return og_op_is_reduction(op) || (op == OG_OP_sum_like && b->types[node].reduced);
}

bool og_node_is_product(const og_planner *b, int32_t node)
{
    og_op op = b->graph->nodes[node].op;
    return op == OG_OP_matmul || op == OG_OP_linear_product || op == OG_OP_product_t;
}

bool og_node_is_view(const og_planner *b, int32_t node)
{
    switch ((int)b->graph->nodes[node].op) {
    case OG_OP_t:
    case OG_OP_transpose:
    case OG_OP_broadcast_like:
    case OG_OP_expand:
    case OG_OP_cast_like:
    case OG_OP_reshape_like:
    case OG_OP_channel_like:
    case OG_OP_row:
    case OG_OP_column:
        return true;
    case OG_OP_sum_like:
        return !b->types[node].reduced;
    default:
        return false;
    }
}

og_mapping og_identity_mapping(const og_typed *type)
{
    og_mapping mapping;
    for (int32_t d = 0; d < OG_MAX_RANK; d++)
        mapping.at[d] = (int8_t)(d < type->rank && type->shape[d] != 1 ? d : -1);
    return mapping;
}

/* Dims align at the end. */
static og_mapping broadcast_mapping(const og_typed *node, const og_typed *arg,
                                    const og_mapping *mapping)
{
    og_mapping result;
    memset(result.at, -1, sizeof result.at);
    for (int32_t d = 0; d < arg->rank; d++)
        if (arg->shape[d] != 1)
            result.at[d] = mapping->at[d + node->rank - arg->rank];
    return result;
}

static og_mapping swap_mapping(const og_typed *node, const og_mapping *mapping)
{
    og_mapping result = *mapping;
    int8_t first = result.at[node->swap[0]];
    result.at[node->swap[0]] = result.at[node->swap[1]];
    result.at[node->swap[1]] = first;
    return result;
}

/* The argument lacks the dims that were reduced, or has 1 there. */
static og_mapping expand_mapping(const og_typed *node, const og_typed *arg,
                                 const og_mapping *mapping)
{
    og_mapping result;
    memset(result.at, -1, sizeof result.at);
    bool keepdim = node->rank == arg->rank;
    for (int32_t d = 0, to = 0; d < node->rank; d++) {
        bool kept = !(node->reduced >> d & 1);
        if (kept)
            result.at[to] = mapping->at[d];
        to += kept || keepdim;
    }
    return result;
}

/* The dims other than 1 are the same, in the same order. */
static og_mapping reshape_mapping(const og_typed *node, const og_typed *arg,
                                  const og_mapping *mapping)
{
    og_mapping result;
    memset(result.at, -1, sizeof result.at);
    for (int32_t d = 0, from = 0; d < arg->rank; d++) {
        if (arg->shape[d] == 1)
            continue;
        while (node->shape[from] == 1)
            from++;
        result.at[d] = mapping->at[from++];
    }
    return result;
}

og_mapping og_argument_mapping(const og_planner *b, int32_t node, int32_t arg,
                               const og_mapping *mapping)
{
    const og_node *of = &b->graph->nodes[node];
    const og_typed *type = &b->types[node], *arg_type = &b->types[of->args[arg]];
    switch ((int)of->op) {
    case OG_OP_t:
    case OG_OP_transpose:
        return swap_mapping(type, mapping);
    case OG_OP_expand:
        return expand_mapping(type, arg_type, mapping);
    case OG_OP_reshape_like:
    case OG_OP_channel_like:
    case OG_OP_row:
    case OG_OP_column:
        return reshape_mapping(type, arg_type, mapping);
    default:
        return broadcast_mapping(type, arg_type, mapping);
    }
}

og_mapping og_reduced_mapping(const og_planner *b, int32_t node)
{
    const og_node *of = &b->graph->nodes[node];
    const og_typed *type = &b->types[node], *arg = &b->types[of->args[0]];
    og_mapping mapping;
    memset(mapping.at, -1, sizeof mapping.at);
    /* sum_like drops leading dims, reduced or 1, and keeps the others as 1. */
    bool at_end = of->op == OG_OP_sum_like;
    int32_t dropped = at_end ? arg->rank - type->rank : 0;
    bool keepdim = at_end || type->rank == arg->rank;
    for (int32_t d = dropped, to = 0; d < arg->rank; d++) {
        bool kept = !(type->reduced >> d & 1);
        if (kept && arg->shape[d] != 1)
            mapping.at[to] = (int8_t)d;
        to += kept || keepdim;
    }
    return mapping;
}

bool og_reads_in_place(const og_planner *b, int32_t node, int32_t arg)
{
    const og_typed *of = &b->types[node], *from = &b->types[b->graph->nodes[node].args[arg]];
    if (of->rank != from->rank ||
        memcmp(of->shape, from->shape, sizeof *of->shape * (size_t)of->rank) != 0)
        return false;
    og_mapping own = og_identity_mapping(of), below = og_argument_mapping(b, node, arg, &own);
    return memcmp(own.at, below.at, sizeof own.at) == 0; /* of the same shape: the same identity */
}
