/* SPDX-License-Identifier: MIT
 *
 * plan_lower.c - nodes that shapes make nodes of another kind: convolutions a channel at a time
 * (plan_depthwise.c), windows that see all there is (plan_whole.c), and the sizes of parts that are
 * not all of one size. The planner sees what they became.
 */
#include "plan/planner.h"

#include <string.h>

enum { MOST_NODES = 13 }; /* that a node becomes */

int32_t og_add_lowered(og_lowered *to, const og_node *like, og_op op, const og_typed *type)
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

static int32_t add_number(og_lowered *to, const og_node *like, int64_t number)
{
    og_typed type = {.dtype = OG_FLOAT64, .is_number = true, .number = (double)number};
    int32_t node = og_add_lowered(to, like, OG_OP_NUMBER, &type);
    to->nodes[node].numbers[0] = (double)number;
    return node;
}

/* op of a and, unless it is -1, b. */
static int32_t add_scalar(og_lowered *to, const og_node *like, const og_typed *type, og_op op,
                          int32_t a, int32_t b)
{
    int32_t node = og_add_lowered(to, like, op, type);
    to->nodes[node].args[0] = a;
    to->nodes[node].args[1] = b;
    to->nodes[node].arg_count = b < 0 ? 1 : 2;
    return node;
}

/* Are there parts of several sizes? Else inference has made a number of it. */
static bool is_uneven(const og_graph *graph, const og_typed *types, int32_t node)
{
    return graph->nodes[node].op == OG_OP_part_size && !types[node].is_number;
}

/* ceil((i + 1) * extent / places) - floor(i * extent / places), of which float64 gives every digit
 * (a quotient that is no integer is further from it than a rounding goes); like has been added. */
static void add_part_size(const og_graph *graph, const og_typed *types, int32_t node, int32_t like,
                          og_lowered *to)
{
    const og_node *of = &graph->nodes[node];
    og_typed type = types[node];
    int32_t dim = of->dims[0] + (of->dims[0] < 0 ? type.rank : 0);
    type.dtype = OG_FLOAT64;
    int32_t extent = add_number(to, of, types[of->args[1]].shape[dim]);
    int32_t places = add_number(to, of, type.shape[dim]), one = add_number(to, of, 1);

    int32_t at = og_add_lowered(to, of, OG_OP_index, &type);
    to->types[at].reduced = 1u << dim;
    to->nodes[at].args[0] = like;
    to->nodes[at].arg_count = to->nodes[at].dim_count = 1;
    to->nodes[at].dims[0] = dim;

    int32_t begin = add_scalar(to, of, &type, OG_OP_mul, at, extent);
    begin = add_scalar(to, of, &type, OG_OP_div, begin, places);
    begin = add_scalar(to, of, &type, OG_OP_floor, begin, -1);
    int32_t end = add_scalar(to, of, &type, OG_OP_add, at, one);
    end = add_scalar(to, of, &type, OG_OP_mul, end, extent);
    end = add_scalar(to, of, &type, OG_OP_div, end, places);
    end = add_scalar(to, of, &type, OG_OP_ceil, end, -1);
    int32_t size = add_scalar(to, of, &type, OG_OP_sub, end, begin);
    add_scalar(to, of, &types[node], OG_OP_cast_like, size, like);
}

/* Arguments of a node, and results, by their new numbers. */
static void renumber(const int32_t *now, int32_t *values, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        values[i] = now[values[i]];
}

/* Does node see its argument through windows, which may see all of it? */
static bool slides(const og_graph *graph, int32_t node)
{
    return graph->nodes[node].sliding.rank > 0 && !og_op_convolves(graph->nodes[node].op);
}

ogive_status og_lower(og_planner *b)
{
    const og_graph *graph = b->graph;
    int32_t found = 0, sliding = 0;
    for (int32_t n = 0; n < graph->node_count; n++) {
        found += og_is_depthwise(graph, b->types, n) || is_uneven(graph, b->types, n);
        sliding += slides(graph, n);
    }
    if (!found && !sliding)
        return OGIVE_OK;
    uint8_t *whole;
    OG_TRY(og_find_whole(b, &b->scratch, &whole));
    size_t count = (size_t)graph->node_count + (size_t)found * (MOST_NODES - 1);
    og_lowered to = {OG_ARENA_NEW(&b->scratch, og_node, count),
                     OG_ARENA_NEW(&b->scratch, og_typed, count), 0};
    og_graph *out = OG_ARENA_NEW(&b->scratch, og_graph, 1);
    int32_t *now = OG_ARENA_NEW(&b->scratch, int32_t, (size_t)graph->node_count);
    if (!to.nodes || !to.types || !out || !now)
        return og_fail_memory(b->error, count * sizeof *to.nodes);
    for (int32_t n = 0; n < graph->node_count; n++) {
        const og_node *of = &graph->nodes[n];
        if (is_uneven(graph, b->types, n)) {
            add_part_size(graph, b->types, n, now[of->args[0]], &to);
        } else if (og_is_depthwise(graph, b->types, n)) {
            og_add_depthwise(graph, b->types, n, now[of->args[0]], now[of->args[1]], &to);
        } else if (!og_add_whole(graph, b->types, whole, n, now, &to)) {
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
