/* SPDX-License-Identifier: MIT
 *
 * plan_depthwise.c - a convolution of which every group has one channel and one filter is no
 * product: each element is used by one sum. It is planned as what it is, a reduction over windows:
 *
 *     sum(windows(x) * w, taps)
 */
#include "plan/planner.h"

#include <string.h>

enum { NODES = 4 }; /* that such a convolution becomes: windows, w's view, their product, the sum */

static bool is_depthwise(const og_graph *graph, const og_typed *types, int32_t node)
{
    const og_node *of = &graph->nodes[node];
    if (of->op != OG_OP_convolve && of->op != OG_OP_convolve_like)
        return false;
    const og_typed *w = &types[of->args[1]];
    return w->shape[1] == 1 && (double)w->shape[0] == of->numbers[1];
}

typedef struct {
    og_node *nodes;
    og_typed *types;
    int32_t count;
} lowered;

static int32_t add_node(lowered *to, const og_node *like, og_op op, const og_typed *type)
{
    og_node *node = &to->nodes[to->count];
    *node = (og_node){.op = op,
                      .called = like->called,
                      .rule = op,
                      .args = {-1, -1, -1},
                      .index = -1,
                      .offset = like->offset};
    to->types[to->count] = *type;
    return to->count++;
}

/* Nodes for convolution `node`, whose arguments x and w have been added; the last is the sum. */
static void add_depthwise(const og_graph *graph, const og_typed *types, int32_t node, int32_t x,
                          int32_t w, lowered *to)
{
    const og_node *of = &graph->nodes[node];
    og_convolution c = og_convolution_of(of, types, &types[node]);
    int32_t rank = c.rank, first = types[node].rank - rank;
    og_typed type = {.dtype = types[node].dtype, .rank = types[node].rank + rank};
    memcpy(type.shape, types[node].shape, (size_t)types[node].rank * sizeof *type.shape);
    memcpy(type.shape + first + rank, c.w->shape + 2, (size_t)rank * sizeof *type.shape);

    int32_t windows = add_node(to, of, OG_OP_windows, &type);
    to->nodes[windows].args[0] = x;
    to->nodes[windows].arg_count = 1;
    to->nodes[windows].sliding = c.sliding;
    for (int32_t i = 0; i < rank; i++)
        to->nodes[windows].sliding.size[i] = (int32_t)c.w->shape[2 + i];
    to->nodes[windows].numbers[0] = rank;

    og_typed view = {.dtype = type.dtype, .rank = 1 + 2 * rank, .shape = {c.w->shape[0]}};
    for (int32_t i = 0; i < rank; i++) {
        view.shape[1 + i] = 1;
        view.shape[1 + rank + i] = c.w->shape[2 + i];
    }
    int32_t weights = add_node(to, of, OG_OP_reshape_like, &view);
    to->nodes[weights].args[0] = to->nodes[weights].args[1] = w;
    to->nodes[weights].arg_count = 2;

    int32_t product = add_node(to, of, OG_OP_mul, &type);
    to->nodes[product].args[0] = windows;
    to->nodes[product].args[1] = weights;
    to->nodes[product].arg_count = 2;

    int32_t sum = add_node(to, of, OG_OP_sum, &types[node]);
    to->nodes[sum].args[0] = product;
    to->nodes[sum].arg_count = 1;
    to->nodes[sum].dim_count = rank;
    for (int32_t i = 0; i < rank; i++) {
        to->nodes[sum].dims[i] = i - rank;
        to->types[sum].reduced |= 1u << (type.rank - 1 - i);
    }
}

/* Arguments of a node, and results, by their new numbers. */
static void renumber(const int32_t *now, int32_t *values, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        values[i] = now[values[i]];
}

ogive_status og_lower_depthwise(og_planner *b)
{
    const og_graph *graph = b->graph;
    int32_t found = 0;
    for (int32_t n = 0; n < graph->node_count; n++)
        found += is_depthwise(graph, b->types, n);
    if (!found)
        return OGIVE_OK;
    size_t count = (size_t)graph->node_count + (size_t)found * (NODES - 1);
    lowered to = {OG_ARENA_NEW(&b->scratch, og_node, count),
                  OG_ARENA_NEW(&b->scratch, og_typed, count), 0};
    og_graph *out = OG_ARENA_NEW(&b->scratch, og_graph, 1);
    int32_t *now = OG_ARENA_NEW(&b->scratch, int32_t, (size_t)graph->node_count);
    if (!to.nodes || !to.types || !out || !now)
        return og_fail_memory(b->error, count * sizeof *to.nodes);
    for (int32_t n = 0; n < graph->node_count; n++) {
        const og_node *of = &graph->nodes[n];
        if (is_depthwise(graph, b->types, n)) {
            add_depthwise(graph, b->types, n, now[of->args[0]], now[of->args[1]], &to);
        } else {
            to.nodes[to.count] = *of;
            renumber(now, to.nodes[to.count].args, of->arg_count);
            to.types[to.count++] = b->types[n];
        }
        now[n] = to.count - 1;
    }
    *out = *graph;
    out->nodes = to.nodes;
    out->node_count = to.count;
    renumber(now, out->results, out->result_count);
    b->graph = out;
    b->types = to.types;
    return OGIVE_OK;
}
