/* SPDX-License-Identifier: MIT
 *
 * plan_depthwise.c - a convolution of which every group has one channel and one filter is no
 * product: each element is used by one sum. It is planned as what it is, a reduction over windows:
 *
 *     sum(windows(x) * w, taps)
 *
 * See plan_lower.c.
 */
#include "plan/planner.h"

#include <string.h>

bool og_is_depthwise(const og_graph *graph, const og_typed *types, int32_t node)
{
    const og_node *of = &graph->nodes[node];
    if (of->op != OG_OP_convolve && of->op != OG_OP_convolve_like)
        return false;
    const og_typed *w = &types[of->args[1]];
    return w->shape[1] == 1 && (double)w->shape[0] == of->numbers[1];
}

void og_add_depthwise(const og_graph *graph, const og_typed *types, int32_t node, int32_t x,
                      int32_t w, og_lowered *to)
{
    const og_node *of = &graph->nodes[node];
    og_convolution c = og_convolution_of(of, types, &types[node]);
    int32_t rank = c.rank, first = types[node].rank - rank;
    og_typed type = {.dtype = types[node].dtype, .rank = types[node].rank + rank};
    memcpy(type.shape, types[node].shape, (size_t)types[node].rank * sizeof *type.shape);
    memcpy(type.shape + first + rank, c.w->shape + 2, (size_t)rank * sizeof *type.shape);

    int32_t windows = og_add_lowered(to, of, OG_OP_windows, &type);
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
    int32_t weights = og_add_lowered(to, of, OG_OP_reshape_like, &view);
    to->nodes[weights].args[0] = to->nodes[weights].args[1] = w;
    to->nodes[weights].arg_count = 2;

    int32_t product = og_add_lowered(to, of, OG_OP_mul, &type);
    to->nodes[product].args[0] = windows;
    to->nodes[product].args[1] = weights;
    to->nodes[product].arg_count = 2;

    int32_t sum = og_add_lowered(to, of, OG_OP_sum, &types[node]);
    to->nodes[sum].args[0] = product;
    to->nodes[sum].arg_count = 1;
    to->nodes[sum].dim_count = rank;
    for (int32_t i = 0; i < rank; i++) {
        to->nodes[sum].dims[i] = i - rank;
        to->types[sum].reduced |= 1u << (type.rank - 1 - i);
    }
}
