/* SPDX-License-Identifier: MIT
 *
 * infer_like.c - shapes and dtypes of what derivatives are made of: sum_like,
 * expand and others, whose shapes are those of another node; see infer.h. That
 * they fit is derive.c's doing, but for the gradients that the caller gives.
 */
#include "formula/infer_node.h"

#include <string.h>

static void take_shape(const og_typed *from, og_typed *out)
{
    out->rank = from->rank;
    memcpy(out->shape, from->shape, sizeof out->shape);
}

static bool has_shape(const og_typed *a, const og_typed *b)
{
    return a->rank == b->rank && !memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape);
}

static ogive_status fail_shape(const og_graph *graph, const og_node *node, const og_typed *input,
                               const og_typed *like, ogive_error *error)
{
    char got[OG_SHAPE_TEXT], want[OG_SHAPE_TEXT];
    const og_node *arg = &graph->nodes[node->args[0]];
    if (arg->op == OG_OP_INPUT)
        OG_FAIL(error, OGIVE_SHAPE, node->offset,
                "%.200s has shape %s, but the result whose gradient it is has shape %s",
                graph->inputs[arg->index].name, og_infer_shape(input, got),
                og_infer_shape(like, want));
    OG_FAIL(error, OGIVE_SHAPE, node->offset, "%s: a gradient of shape %s does not fit %s",
            og_node_label(graph, node), og_infer_shape(input, got), og_infer_shape(like, want));
}

/* like broadcasts to input's shape: dims in front and dims where like has 1. A dim
 * of one element needs no sum. */
static ogive_status infer_sum_like(const og_graph *graph, const og_node *node,
                                   const og_typed *input, const og_typed *like, og_typed *out,
                                   ogive_error *error)
{
    int added = input->rank - like->rank;
    if (added < 0)
        return fail_shape(graph, node, input, like, error);
    for (int d = 0; d < input->rank; d++) {
        int64_t to = d < added ? 1 : like->shape[d - added];
        if (to != input->shape[d] && to != 1)
            return fail_shape(graph, node, input, like, error);
        if (to != input->shape[d])
            out->reduced |= 1u << d;
    }
    take_shape(like, out);
    return OGIVE_OK;
}

static ogive_status infer_broadcast_like(const og_graph *graph, const og_node *node,
                                         const og_typed *input, const og_typed *like, og_typed *out,
                                         ogive_error *error)
{
    int32_t rank;
    int64_t shape[OG_MAX_RANK];
    if (!og_infer_broadcast(input->rank, input->shape, like->rank, like->shape, &rank, shape) ||
        rank != like->rank || memcmp(shape, like->shape, (size_t)rank * sizeof *shape))
        return fail_shape(graph, node, input, like, error);
    take_shape(like, out);
    return OGIVE_OK;
}

/* input has the shape of like reduced over the node's dims. */
static ogive_status infer_expand(const og_graph *graph, const og_node *node, const og_typed *input,
                                 const og_typed *like, og_typed *out, ogive_error *error)
{
    OG_TRY(og_infer_reduced(graph, node, like, &out->reduced, error));
    og_typed want = {0};
    for (int d = 0; d < like->rank; d++) {
        bool is_reduced = out->reduced >> d & 1;
        if (!is_reduced || node->keepdim)
            want.shape[want.rank++] = is_reduced ? 1 : like->shape[d];
    }
    if (!has_shape(input, &want))
        return fail_shape(graph, node, input, &want, error);
    take_shape(like, out);
    return OGIVE_OK;
}

/* The dims other than 1 are the same, in the same order. */
static ogive_status infer_reshape_like(const og_graph *graph, const og_node *node,
                                       const og_typed *input, const og_typed *like, og_typed *out,
                                       ogive_error *error)
{
    int d = 0;
    for (int l = 0; l <= like->rank; l++) {
        while (d < input->rank && input->shape[d] == 1)
            d++;
        if (l == like->rank || like->shape[l] == 1)
            continue;
        if (d == input->rank || input->shape[d++] != like->shape[l])
            return fail_shape(graph, node, input, like, error);
    }
    if (d < input->rank)
        return fail_shape(graph, node, input, like, error);
    take_shape(like, out);
    return OGIVE_OK;
}

/* A vector (k,) as (1, k) or (k, 1); what has more dims stays. */
static ogive_status infer_matrix(const og_node *node, const og_typed *input, og_typed *out)
{
    take_shape(input, out);
    if (input->rank > 1)
        return OGIVE_OK;
    int64_t k = input->rank ? input->shape[0] : 1;
    out->rank = 2;
    out->shape[0] = node->op == OG_OP_row ? 1 : k;
    out->shape[1] = node->op == OG_OP_row ? k : 1;
    return OGIVE_OK;
}

/* A vector (c,) as (c, 1, ..), which stands at dim 1 of like; like of fewer dims has one channel. */
static ogive_status infer_channel(const og_graph *graph, const og_node *node, const og_typed *input,
                                  const og_typed *like, og_typed *out, ogive_error *error)
{
    char shape[OG_SHAPE_TEXT], text[OG_SHAPE_TEXT];
    const char *label = og_node_label(graph, node);
    if (input->rank > 1)
        OG_FAIL(error, OGIVE_SHAPE, node->offset, "%s: weight has shape %s, expected at most 1 dim",
                label, og_infer_shape(input, shape));
    int64_t count = input->rank ? input->shape[0] : 1,
            channels = like->rank > 1 ? like->shape[1] : 1;
    if (count != 1 && count != channels)
        OG_FAIL(error, OGIVE_SHAPE, node->offset,
                "%s: weight has %lld elements, but an input of shape %s has %lld channels (dim 1)",
                label, (long long)count, og_infer_shape(like, text), (long long)channels);
    out->rank = like->rank > 1 ? like->rank - 1 : 0;
    for (int d = 0; d < out->rank; d++)
        out->shape[d] = d == 0 ? count : 1;
    return OGIVE_OK;
}

/* Channels in groups; see functions.def. */
ogive_status og_infer_groups(const og_graph *graph, const og_node *node, const og_typed *types,
                             og_typed *out, ogive_error *error)
{
    const og_typed *input = &types[node->args[0]], *whole = &types[node->args[node->arg_count - 1]];
    const char *label = og_node_label(graph, node);
    char shape[OG_SHAPE_TEXT];
    int64_t groups = (int64_t)node->numbers[0];
    bool sums = node->op == OG_OP_group_sum;
    OG_TRY(og_infer_float(graph, node, input, error));
    if (whole->rank < 2 || whole->rank >= OG_MAX_RANK)
        OG_FAIL(error, OGIVE_SHAPE, node->offset,
                "%s: the input has shape %s, expected 2 to %d dims", label,
                og_infer_shape(whole, shape), OG_MAX_RANK - 1);
    if (whole->shape[1] % groups || whole->shape[1] > INT32_MAX / 2)
        OG_FAIL(
            error, OGIVE_SHAPE, node->offset,
            "%s: num_groups is %lld, but an input of shape %s has %lld channels (dim 1), expected "
            "a multiple",
            label, (long long)groups, og_infer_shape(whole, shape), (long long)whole->shape[1]);
    out->dtype = input->dtype;
    out->rank = whole->rank;
    for (int d = 0; d < whole->rank; d++)
        out->shape[d] = d > 1 ? 1 : sums && d == 1 ? groups : whole->shape[d];
    for (int d = 2; sums && d <= whole->rank; d++)
        out->reduced |= 1u << d;
    return OGIVE_OK;
}

ogive_status og_infer_like(const og_graph *graph, const og_node *node, const og_typed *types,
                           og_typed *out, ogive_error *error)
{
    const og_typed *input = &types[node->args[0]];
    const og_typed *like = &types[node->args[node->arg_count - 1]];
    out->dtype = input->dtype;
    switch ((int)node->op) {
    case OG_OP_sum_like:
        return infer_sum_like(graph, node, input, like, out, error);
    case OG_OP_broadcast_like:
        return infer_broadcast_like(graph, node, input, like, out, error);
    case OG_OP_expand:
        return infer_expand(graph, node, input, like, out, error);
    case OG_OP_reshape_like:
        return infer_reshape_like(graph, node, input, like, out, error);
    case OG_OP_channel_like:
        return infer_channel(graph, node, input, like, out, error);
    case OG_OP_row:
    case OG_OP_column:
        return infer_matrix(node, input, out);
    case OG_OP_full_like:
        out->number = node->numbers[0];
        take_shape(input, out);
        return OGIVE_OK;
    default: /* cast_like */
        if (!og_dtype_is_float(like->dtype))
            OG_FAIL(error, OGIVE_DTYPE, node->offset, "%s: there is no gradient by a tensor of %s",
                    og_node_label(graph, node), og_dtype_name(like->dtype));
        if (!has_shape(input, like))
            return fail_shape(graph, node, input, like, error);
        out->dtype = like->dtype;
        take_shape(like, out);
        return OGIVE_OK;
    }
}
