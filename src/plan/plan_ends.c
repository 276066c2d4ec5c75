/* SPDX-License-Identifier: MIT
 *
 * plan_ends.c - finds what the kernel of a convolution keeps instead of its sums: a value with a root or
 * a curve in it that all else is computed of, and that several passes read, as the gelu before a group
 * norm is. A norm's sums have kernels of their own behind a convolution, which would compute it again,
 * each. Where one pass reads it, it is left to that.
 *
 * Kept values are not rounded, so that no result depends on what is found here.
 */
#include "plan/planner.h"

#include <string.h>

typedef struct {
    int32_t last;  /* the last node that reads it; of a result, beyond all */
    int32_t count; /* of nodes that do */
} readers;

static bool is_same(const og_typed *a, const og_typed *b)
{
    return a->rank == b->rank && a->dtype == b->dtype &&
           memcmp(a->shape, b->shape, sizeof *a->shape * (size_t)a->rank) == 0;
}

static bool computes(const og_planner *b, int32_t node)
{
    const og_op op = b->graph->nodes[node].op;
    return op < OG_FUNCTION_COUNT && og_function_of(op)->kind == OG_SCALAR;
}

static void find_readers(const og_planner *b, const bool *live, readers *to)
{
    const og_graph *graph = b->graph;
    for (int32_t n = 0; n < graph->node_count; n++) {
        const og_node *node = &graph->nodes[n];
        const bool looks = live[n] && node->op != OG_OP_count; /* not at the shape alone */
        for (int32_t a = 0; looks && a < og_op_value_count(node->op, node->arg_count); a++) {
            readers *of = &to[node->args[a]];
            of->count += of->last != n;
            of->last = n;
        }
    }
    for (int32_t i = 0; i < graph->result_count; i++)
        to[graph->results[i]].last = graph->node_count;
}

/* The last node that is computed of `product` alone, element by element, so that nothing else reads what
 * is in between; -1: nothing costly is among these. inside[n]: n is one of them. */
static int32_t find_end(const og_planner *b, const bool *live, const readers *of, int32_t product,
                        bool *inside)
{
    int32_t end = -1, reach = of[product].last, last = product;
    bool costly = false, leaves = false;
    inside[product] = true;
    for (int32_t n = product + 1; !leaves && n < b->graph->node_count && n <= reach; n++) {
        const og_node *node = &b->graph->nodes[n];
        bool reads = false;
        for (int32_t a = 0; live[n] && a < og_op_value_count(node->op, node->arg_count); a++)
            reads |= inside[node->args[a]];
        if (!reads)
            continue;
        leaves = !computes(b, n) || !is_same(&b->types[n], &b->types[product]);
        if (leaves)
            continue;
        inside[n] = true;
        last = n;
        costly |= og_op_cost(node->op) != OG_COST_FEW;
        if (costly && reach == n)
            end = n;
        reach = og_max(reach, of[n].last);
    }
    memset(inside + product, 0, (size_t)(last - product + 1));
    return end;
}

ogive_status og_find_ends(og_planner *b, const bool *live, bool *ends)
{
    const og_graph *graph = b->graph;
    const size_t count = (size_t)graph->node_count;
    readers *of = OG_ARENA_NEW(&b->scratch, readers, count);
    bool *inside = OG_ARENA_NEW(&b->scratch, bool, count);
    if (!of || !inside)
        return og_fail_memory(b->error, count * sizeof *of);
    find_readers(b, live, of);
    for (int32_t n = 0; n < graph->node_count; n++) {
        if (!live[n] || !og_node_convolves(b, n) || og_dtype_bytes(b->types[n].dtype) < 4)
            continue;
        const int32_t end = find_end(b, live, of, n, inside);
        if (end >= 0 && of[end].count > 1 && of[end].last < graph->node_count)
            ends[end] = true;
    }
    return OGIVE_OK;
}
