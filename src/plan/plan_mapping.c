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
    return og_op_is_reduction(op) || op == OG_OP_group_sum ||
           (op == OG_OP_sum_like && b->types[node].reduced);
}

bool og_node_convolves(const og_planner *b, int32_t node)
{
    return og_op_convolves(b->graph->nodes[node].op);
}

bool og_node_is_product(const og_planner *b, int32_t node)
{
    og_op op = b->graph->nodes[node].op;
    return op == OG_OP_matmul || op == OG_OP_linear_product || op == OG_OP_product_t ||
           og_node_convolves(b, node);
}

bool og_node_is_scalar(const og_planner *b, int32_t node)
{
    const og_op op = b->graph->nodes[node].op;
    return op < OG_FUNCTION_COUNT && og_function_of(op)->kind == OG_SCALAR;
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
    case OG_OP_bias_of:
    case OG_OP_row:
    case OG_OP_column:
    case OG_OP_windows:
    case OG_OP_slide:
    case OG_OP_slide_back:
    case OG_OP_narrow:
    case OG_OP_narrow_back:
    case OG_OP_portion:
    case OG_OP_portion_back:
    case OG_OP_group_spread:
        return true;
    case OG_OP_sum_like:
        return !b->types[node].reduced;
    default:
        return false;
    }
}

bool og_node_slides(const og_planner *b, int32_t node)
{
    const og_node *of = &b->graph->nodes[node];
    return (of->sliding.rank > 0 && !og_op_convolves(of->op)) || og_op_slices(of->op) ||
           of->op == OG_OP_group_spread;
}

bool og_mapping_slides(const og_mapping *mapping)
{
    for (int32_t d = 0; d < OG_MAX_RANK; d++)
        if (mapping->window[d] >= 0)
            return true;
    return false;
}

static og_mapping empty_mapping(void)
{
    og_mapping mapping;
    memset(&mapping, -1, sizeof mapping);
    return mapping;
}

/* Dim d of to is dim from_dim of from. */
static void take_dim(og_mapping *to, int32_t d, const og_mapping *from, int32_t from_dim)
{
    to->at[d] = from->at[from_dim];
    to->tap[d] = from->tap[from_dim];
    to->window[d] = from->window[from_dim];
}

og_mapping og_identity_mapping(const og_typed *type)
{
    og_mapping mapping = empty_mapping();
    for (int32_t d = 0; d < type->rank; d++)
        if (type->shape[d] != 1)
            mapping.at[d] = (int8_t)d;
    return mapping;
}

/* Dims align at the end. */
static og_mapping broadcast_mapping(const og_typed *node, const og_typed *arg,
                                    const og_mapping *mapping)
{
    og_mapping result = empty_mapping();
    for (int32_t d = 0; d < arg->rank; d++) {
        int32_t from = d + node->rank - arg->rank; /* below 0: a dim of 1 that the node lacks */
        if (from >= 0 && (arg->shape[d] != 1 || mapping->window[from] >= 0))
            take_dim(&result, d, mapping, from);
    }
    return result;
}

static og_mapping swap_mapping(const og_typed *node, const og_mapping *mapping)
{
    og_mapping result = *mapping;
    take_dim(&result, node->swap[0], mapping, node->swap[1]);
    take_dim(&result, node->swap[1], mapping, node->swap[0]);
    return result;
}

/* The argument lacks the dims that were reduced, or has 1 there. */
static og_mapping expand_mapping(const og_typed *node, const og_typed *arg,
                                 const og_mapping *mapping)
{
    og_mapping result = empty_mapping();
    bool keepdim = node->rank == arg->rank;
    for (int32_t d = 0, to = 0; d < node->rank; d++) {
        bool kept = !(node->reduced >> d & 1);
        if (kept)
            take_dim(&result, to, mapping, d);
        to += kept || keepdim;
    }
    return result;
}

/* The dims other than 1 are the same, in the same order. */
static og_mapping reshape_mapping(const og_typed *node, const og_typed *arg,
                                  const og_mapping *mapping)
{
    og_mapping result = empty_mapping();
    for (int32_t d = 0, from = 0; d < arg->rank; d++) {
        if (arg->shape[d] == 1)
            continue;
        while (node->shape[from] == 1)
            from++;
        take_dim(&result, d, mapping, from++);
    }
    return result;
}

/* Places and taps, dims of the node, are a window along a dim of the argument; taps that the
 * argument has are its own, too. */
static og_mapping window_mapping(const og_planner *b, int32_t node, const og_typed *arg,
                                 const og_mapping *mapping)
{
    og_mapping result = empty_mapping();
    int32_t rank = b->graph->nodes[node].sliding.rank, first = b->types[node].rank - 2 * rank;
    for (int32_t d = 0; d < arg->rank; d++)
        take_dim(&result, d, mapping, d);
    for (int32_t d = first; d < first + rank; d++) {
        result.tap[d] = mapping->at[d + rank];
        result.window[d] = node * OG_MAX_WINDOWS + d - first;
    }
    for (int32_t d = first + rank; d < arg->rank; d++)
        if (arg->shape[d] == 1)
            result.at[d] = -1;
    return result;
}

/* The slice of node, and whether node puts it back. */
static og_slice find_slice(const og_planner *b, int32_t node, bool *back)
{
    const og_node *of = &b->graph->nodes[node];
    *back = of->op == OG_OP_narrow_back || of->op == OG_OP_portion_back;
    return og_slice_of(of, &b->types[of->args[*back]]);
}

/* A slice is a window without taps. */
static og_mapping slice_mapping(const og_planner *b, int32_t node, const og_mapping *mapping)
{
    og_mapping result = *mapping;
    bool back;
    int32_t dim = find_slice(b, node, &back).dim;
    result.tap[dim] = -1;
    result.window[dim] = node * OG_MAX_WINDOWS;
    return result;
}

static og_window make_slice(const og_planner *b, int32_t node)
{
    bool back;
    og_slice slice = find_slice(b, node, &back);
    return (og_window){.start = back ? -slice.start : slice.start,
                       .step = 1,
                       .divisor = 1,
                       .extent = b->types[b->graph->nodes[node].args[0]].shape[slice.dim]};
}

/* How many channels of node, a group_spread, have one element of its argument. */
static int64_t get_spread(const og_planner *b, int32_t node)
{
    int64_t groups = b->types[b->graph->nodes[node].args[0]].shape[1];
    return groups ? b->types[node].shape[1] / groups : 1;
}

/* Each group's element is seen by its channels: where the space has them in groups, or by windows
 * without taps. */
static og_mapping spread_mapping(const og_planner *b, int32_t node, const og_typed *arg,
                                 const og_mapping *mapping)
{
    og_mapping result = *mapping;
    int64_t channels = get_spread(b, node);
    if (arg->shape[1] == 1 || og_mapping_part(mapping, 1) == channels) {
        result.at[1] = arg->shape[1] == 1 ? -1 : mapping->at[1];
        result.tap[1] = -1;
        result.window[1] = -1;
    } else if (channels != 1) {
        result.window[1] = node * OG_MAX_WINDOWS;
    }
    return result;
}

/* Channel c sees group c / channels, whatever the remainder: every one is among those that an
 * uneven window accepts. */
static og_window make_spread(const og_planner *b, int32_t node)
{
    int64_t channels = get_spread(b, node);
    return (og_window){
        .step = 2,
        .divisor = 2 * channels,
        .extent = b->types[b->graph->nodes[node].args[0]].shape[1],
        .uneven = {.bits = 1, .from = channels - 1, .width = channels, .count = channels}};
}

/* Windows at `places` of a dim of `extent` elements cut it; back: what is seen of the places. */
static og_window make_cut(int64_t extent, int64_t places, bool back)
{
    og_parts parts = og_parts_of(extent, places);
    og_window window = {.start = back ? parts.element - 1 : parts.width - parts.element,
                        .step = back ? parts.element : parts.part,
                        .reach = back ? -parts.width : parts.width,
                        .divisor = back ? parts.part : parts.element,
                        .extent = back ? places : extent};
    window.uneven = (og_uneven){.from = back ? parts.pairs - 1 : parts.width - 1,
                                .reach = window.reach,
                                .width = parts.width,
                                .count = parts.pairs};
    while (INT64_C(1) << window.uneven.bits < parts.taps)
        window.uneven.bits++;
    int64_t scale = INT64_C(1) << window.uneven.bits;
    window.start *= scale;
    window.step *= scale;
    window.reach = window.reach * scale + 1;
    window.divisor *= scale;
    return window;
}

og_window og_make_window(const og_planner *b, int32_t window)
{
    int32_t node = window / OG_MAX_WINDOWS, i = window % OG_MAX_WINDOWS;
    const og_node *of = &b->graph->nodes[node];
    const og_typed *arg = &b->types[of->args[0]], *type = &b->types[node];
    if (og_op_slices(of->op))
        return make_slice(b, node);
    if (of->op == OG_OP_group_spread)
        return make_spread(b, node);
    og_sliding s = og_sliding_of(of, arg, type);
    int32_t dim = type->rank - 2 * s.rank + i;
    int64_t extent = arg->shape[dim];
    if (s.stride[i] == 0)
        return of->op == OG_OP_slide_back ? make_cut(type->shape[dim], extent, true)
                                          : make_cut(extent, type->shape[dim], false);
    if (of->op == OG_OP_slide_back)
        return (og_window){.start = s.padding[i],
                           .step = 1,
                           .reach = -(int64_t)s.dilation[i],
                           .divisor = s.stride[i],
                           .extent = extent};
    return (og_window){.start = -(int64_t)s.padding[i],
                       .step = s.stride[i],
                       .reach = s.dilation[i],
                       .divisor = 1,
                       .extent = extent};
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
    case OG_OP_windows:
    case OG_OP_slide:
    case OG_OP_slide_back:
        return window_mapping(b, node, arg_type, mapping);
    case OG_OP_narrow:
    case OG_OP_narrow_back:
    case OG_OP_portion:
    case OG_OP_portion_back:
        return slice_mapping(b, node, mapping);
    case OG_OP_group_spread:
        return spread_mapping(b, node, arg_type, mapping);
    case OG_OP_expand:
        return expand_mapping(type, arg_type, mapping);
    case OG_OP_reshape_like:
    case OG_OP_channel_like:
    case OG_OP_bias_of:
    case OG_OP_row:
    case OG_OP_column:
        return reshape_mapping(type, arg_type, mapping);
    default:
        return broadcast_mapping(type, arg_type, mapping);
    }
}

bool og_view_fits(const og_planner *b, int32_t node, const og_mapping *mapping)
{
    const og_node *of = &b->graph->nodes[node];
    int32_t rank = b->types[node].rank, first = rank - 2 * of->sliding.rank, end = rank;
    bool back;
    if (!og_node_slides(b, node))
        return true;
    if (of->op == OG_OP_group_spread)
        return mapping->window[1] < 0 &&
               (og_mapping_part(mapping, 1) == 0 ||
                og_mapping_part(mapping, 1) == get_spread(b, node) || get_spread(b, node) == 1 ||
                b->types[of->args[0]].shape[1] == 1);
    if (og_op_slices(of->op)) {
        first = find_slice(b, node, &back).dim;
        end = first + 1;
    }
    for (int32_t d = first; d < end; d++)
        if (og_mapping_part(mapping, d))
            return false;
    return true;
}

bool og_node_is_plain_view(const og_planner *b, int32_t node)
{
    const og_node *of = &b->graph->nodes[node];
    return og_node_is_view(b, node) && !og_node_slides(b, node) &&
           og_compute_type(b->types[node].dtype) == og_compute_type(b->types[of->args[0]].dtype);
}

static int32_t count_windows(const og_mapping *mapping)
{
    int32_t count = 0;
    for (int32_t d = 0; d < OG_MAX_RANK; d++)
        count += mapping->window[d] >= 0;
    return count;
}

int32_t og_find_seen(const og_planner *b, int32_t node)
{
    og_mapping mapping = og_identity_mapping(&b->types[node]);
    mapping = og_argument_mapping(b, node, 0, &mapping);
    int32_t seen = b->graph->nodes[node].args[0], windows = count_windows(&mapping);
    while (b->buffer[seen] < 0 && og_node_is_plain_view(b, seen)) {
        mapping = og_argument_mapping(b, seen, 0, &mapping);
        if (count_windows(&mapping) < windows)
            break;
        seen = b->graph->nodes[seen].args[0];
    }
    return seen;
}

og_mapping og_reduction_space(const og_planner *b, int32_t node, og_typed *space)
{
    *space = b->types[b->graph->nodes[node].args[0]];
    og_mapping mapping = og_identity_mapping(space);
    if (b->graph->nodes[node].op != OG_OP_group_sum)
        return mapping;
    int64_t channels = space->shape[1], groups = b->types[node].shape[1];
    for (int32_t d = space->rank++; d > 2; d--)
        space->shape[d] = space->shape[d - 1];
    space->shape[1] = groups;
    space->shape[2] = channels / groups;
    for (int32_t d = 2; d < space->rank - 1; d++)
        if (mapping.at[d] >= 0)
            mapping.at[d]++;
    if (channels == 1 || groups == channels)
        return mapping;
    mapping.at[1] = groups == 1 ? 2 : 1;
    if (groups > 1 && space->shape[2] > 1) {
        mapping.tap[1] = 2;
        mapping.window[1] = (int32_t)(-1 - space->shape[2]);
    }
    return mapping;
}

og_mapping og_reduced_mapping(const og_planner *b, int32_t node)
{
    const og_node *of = &b->graph->nodes[node];
    const og_typed *type = &b->types[node], *arg = &b->types[of->args[0]];
    og_mapping mapping = empty_mapping();
    if (of->op == OG_OP_group_sum)
        return og_identity_mapping(type); /* what is reduced is 1, behind the two dims kept */
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
    return memcmp(&own, &below, sizeof own) == 0; /* of the same shape: the same identity */
}
