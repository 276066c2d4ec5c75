/* SPDX-License-Identifier: MIT
 *
 * plan_whole.c - a window that has one place and sees all of its dims there is no window. What it
 * sees is the tensor itself with dims of 1 before the taps,
 *
 *     windows(x)                         x (.., h, w) as (.., 1, 1, h, w)
 *     sum(slide_back(g), taps)           its gradient: g (.., 1, 1, h, w) as (.., h, w)
 *     slide(expand(x, taps))             and the gradient of that: as windows(x)
 *
 * and what is reduced over the taps is a reduction over x's own dims: adaptive_avg_pool2d(x, 1) is
 * mean(x, (-2, -1), keepdim=True), in its order and at its speed. See plan_lower.c.
 */
#include "plan/planner.h"

/* Bits of the dims that taps are, of a type with `rank` of them at its end. */
static uint32_t tap_bits(const og_typed *type, int32_t rank)
{
    return ((1u << rank) - 1) << (type->rank - rank);
}

/* Have node's windows one place, at which they see all elements, each by one tap? */
static bool is_whole(const og_graph *graph, const og_typed *types, int32_t node)
{
    const og_node *of = &graph->nodes[node];
    if (of->op != OG_OP_windows && of->op != OG_OP_slide && of->op != OG_OP_slide_back)
        return false;
    const og_typed *input = &types[of->args[0]], *out = &types[node];
    bool back = of->op == OG_OP_slide_back;
    og_sliding s = og_sliding_of(of, input, out);
    for (int32_t i = 0; i < s.rank; i++) {
        int32_t place = out->rank - 2 * s.rank + i;
        if ((back ? input : out)->shape[place] != 1 || s.padding[i] != 0 ||
            (s.dilation[i] != 1 && s.size[i] != 1) || s.size[i] != out->shape[place + s.rank] ||
            s.size[i] != (back ? out : input)->shape[place])
            return false;
    }
    return true;
}

/* Does node reduce exactly the taps of what it reads, and drop them? */
static bool reduces_taps(const og_graph *graph, const og_typed *types, int32_t node)
{
    const og_node *of = &graph->nodes[node];
    if (!og_op_is_reduction(of->op))
        return false;
    const og_typed *arg = &types[of->args[0]];
    int32_t rank = graph->nodes[of->args[0]].sliding.rank;
    return types[node].reduced == tap_bits(arg, rank) && types[node].rank == arg->rank - rank;
}

/* What is known of a node: WHOLE, it is windows that see all there is; FOLDED, these are `windows` of
 * which nothing but reductions over the taps is wanted, so that no node needs their shape. */
enum { NEITHER, WHOLE, FOLDED };

ogive_status og_find_whole(const og_planner *b, og_arena *scratch, uint8_t **out)
{
    const og_graph *graph = b->graph;
    uint8_t *kinds = *out = OG_ARENA_NEW(scratch, uint8_t, (size_t)graph->node_count);
    if (!kinds)
        return og_fail_memory(b->error, (size_t)graph->node_count);
    for (int32_t n = 0; n < graph->node_count; n++) {
        const og_node *of = &graph->nodes[n];
        kinds[n] = NEITHER;
        if (is_whole(graph, b->types, n))
            kinds[n] = of->op == OG_OP_windows ? FOLDED : WHOLE;
        for (int32_t a = 0; a < og_op_value_count(of->op, of->arg_count); a++)
            if (kinds[of->args[a]] == FOLDED && !reduces_taps(graph, b->types, n))
                kinds[of->args[a]] = WHOLE;
    }
    for (int32_t i = 0; i < graph->result_count; i++)
        if (kinds[graph->results[i]] == FOLDED)
            kinds[graph->results[i]] = WHOLE;
    return OGIVE_OK;
}

/* The node whose value, but for dims of 1, is node's; -1 if there is none. */
static int32_t find_viewed(const og_graph *graph, const og_typed *types, const uint8_t *kinds,
                           int32_t node)
{
    const og_node *of = &graph->nodes[node];
    if (of->op == OG_OP_windows)
        return kinds[node] != NEITHER ? of->args[0] : -1;
    if (of->op == OG_OP_sum) {
        const og_node *arg = &graph->nodes[of->args[0]];
        return arg->op == OG_OP_slide_back && kinds[of->args[0]] == WHOLE &&
                       reduces_taps(graph, types, node)
                   ? arg->args[0]
                   : -1;
    }
    if (of->op != OG_OP_slide || kinds[node] != WHOLE)
        return -1;
    const og_node *arg = &graph->nodes[of->args[0]];
    return arg->op == OG_OP_expand &&
                   types[of->args[0]].reduced == tap_bits(&types[of->args[0]], of->sliding.rank)
               ? arg->args[0]
               : -1;
}

bool og_add_whole(const og_graph *graph, const og_typed *types, const uint8_t *kinds, int32_t node,
                  const int32_t *now, og_lowered *to)
{
    const og_node *of = &graph->nodes[node];
    int32_t viewed = find_viewed(graph, types, kinds, node);
    if (viewed >= 0) {
        int32_t view = og_add_lowered(to, of, OG_OP_reshape_like, &types[node]);
        to->types[view].reduced = 0;
        to->nodes[view].args[0] = to->nodes[view].args[1] = now[viewed];
        to->nodes[view].arg_count = 2;
        return true;
    }
    if (!og_op_is_reduction(of->op) || kinds[of->args[0]] != FOLDED)
        return false;
    const og_node *windows = &graph->nodes[of->args[0]];
    int32_t sum = og_add_lowered(to, of, of->op, &types[node]);
    to->nodes[sum] = *of;
    to->nodes[sum].keepdim = true;
    to->nodes[sum].args[0] = now[windows->args[0]];
    to->types[sum].reduced = tap_bits(&types[node], windows->sliding.rank);
    return true;
}
