/* SPDX-License-Identifier: MIT
 *
 * plan_ends.c - finds the *end* of a convolution, which its kernel keeps instead of its sums where later
 * kernels read them: a value that all else is computed of and that several nodes read, with a root or a
 * curve in it, or that is kept anyway. A norm's sums have kernels of their own behind a convolution: each
 * would compute the gelu before the norm again; and beside what another convolution reads they would have
 * the sums kept, too. What one node alone reads is left to the kernel of that.
 *
 * Kept values are not rounded, so that no result depends on what is found here.
 */
#include "plan/planner.h"

#include <string.h>

/* Bounds planning of absurd formulas, thousands of whose convolutions meet at their ends: so many nodes
 * take 30 ms. */
enum { MOST_LOOKS = 1 << 24 };

typedef struct {
    int32_t last;  /* the last node that reads it; of a result, beyond all; -1: none does */
    int32_t count; /* of nodes that do */
    bool is_apart; /* computed of inputs alone, element by element, so that any kernel can */
} facts;

static bool is_same(const og_typed *a, const og_typed *b)
{
    return a->rank == b->rank && a->dtype == b->dtype &&
           memcmp(a->shape, b->shape, sizeof *a->shape * (size_t)a->rank) == 0;
}

static bool is_apart(const og_planner *b, const facts *of, int32_t n)
{
    const og_node *node = &b->graph->nodes[n];
    bool is = node->op == OG_OP_INPUT || node->op == OG_OP_NUMBER || og_node_is_scalar(b, n) ||
              og_node_is_plain_view(b, n);
    for (int32_t a = 0; is && a < og_op_value_count(node->op, node->arg_count); a++)
        is = of[node->args[a]].is_apart;
    return is;
}

static void find_facts(const og_planner *b, const bool *live, facts *to)
{
    const og_graph *graph = b->graph;
    for (int32_t n = 0; n < graph->node_count; n++) {
        const og_node *node = &graph->nodes[n];
        const bool looks = live[n] && node->op != OG_OP_count; /* not at the shape alone */
        to[n].last = -1;
        to[n].is_apart = is_apart(b, to, n);
        for (int32_t a = 0; looks && a < og_op_value_count(node->op, node->arg_count); a++) {
            facts *of = &to[node->args[a]];
            of->count += of->last != n;
            of->last = n;
        }
    }
    for (int32_t i = 0; i < graph->result_count; i++)
        to[graph->results[i]].last = graph->node_count;
}

/* Of node n, that reads what is inside: can the product's kernel compute it as an element of its own? All
 * else that it reads is there before the product, or computed anywhere. */
static bool is_element(const og_planner *b, const facts *of, int32_t product, const bool *inside,
                       int32_t n)
{
    const og_node *node = &b->graph->nodes[n];
    bool is = og_node_is_scalar(b, n) && is_same(&b->types[n], &b->types[product]);
    for (int32_t a = 0; is && a < og_op_value_count(node->op, node->arg_count); a++) {
        const int32_t arg = node->args[a];
        is = inside[arg] || arg < product || of[arg].is_apart;
    }
    return is;
}

/* The last node that such elements lead to, so that nothing else reads what is in between, and that is
 * costly, or read whole; -1: there is none. inside[n], which is false before and after: n is one of them. *looks: nodes that
 * may still be looked at. */
static int32_t find_end(const og_planner *b, const bool *live, const bool *is_whole,
                        const facts *of, int32_t product, bool *inside, int64_t *looks)
{
    int32_t end = -1, reach = of[product].last, last = product;
    bool costly = false;
    inside[product] = true;
    for (int32_t n = product + 1; n < b->graph->node_count && n <= reach && *looks > 0; n++) {
        (*looks)--;
        const og_node *node = &b->graph->nodes[n];
        bool reads = false;
        for (int32_t a = 0; live[n] && a < og_op_value_count(node->op, node->arg_count); a++)
            reads |= inside[node->args[a]];
        if (!reads || node->op == OG_OP_count)
            continue;
        if (!is_element(b, of, product, inside, n))
            break;
        inside[n] = true;
        last = n;
        costly |= og_op_cost(node->op) != OG_COST_FEW;
        if ((costly || is_whole[n]) && reach == n)
            end = n;
        reach = og_max(reach, of[n].last);
    }
    memset(inside + product, 0, (size_t)(last - product + 1));
    return end;
}

ogive_status og_find_ends(og_planner *b, const bool *live, const bool *is_whole, bool *ends)
{
    const og_graph *graph = b->graph;
    const size_t count = (size_t)graph->node_count;
    facts *of = OG_ARENA_NEW(&b->scratch, facts, count);
    bool *inside = OG_ARENA_NEW(&b->scratch, bool, count);
    if (!of || !inside)
        return og_fail_memory(b->error, count * sizeof *of);
    int64_t looks = MOST_LOOKS;
    find_facts(b, live, of);
    for (int32_t n = 0; n < graph->node_count; n++) {
        if (!live[n] || !og_node_convolves(b, n) || og_dtype_bytes(b->types[n].dtype) < 4)
            continue;
        const int32_t end = find_end(b, live, is_whole, of, n, inside, &looks);
        if (end >= 0 && of[end].count > 1 && of[end].last < graph->node_count)
            ends[end] = true;
    }
    return OGIVE_OK;
}
