/* SPDX-License-Identifier: MIT
 *
 * infer_convolution.c - shapes of convolutions and of their derivatives, by PyTorch's rules; see
 * infer.h.
 */
#include "formula/infer_node.h"

#include <string.h>

/* What errors tell of. */
typedef struct {
    const og_graph *graph;
    const og_node *node;
    const char *label;
    ogive_error *error;
} call;

og_convolution og_convolution_of(const og_node *node, const og_typed *types, const og_typed *out)
{
    const og_typed *first = &types[node->args[0]], *second = &types[node->args[1]];
    bool is_weight = node->op == OG_OP_convolve_weight;
    og_convolution c = {.x = og_op_convolves_back(node->op) ? out : first,
                        .w = is_weight ? out : second,
                        .g = is_weight                        ? second
                             : og_op_convolves_back(node->op) ? first
                                                              : out,
                        .rank = node->sliding.rank,
                        .groups = (int64_t)node->numbers[1],
                        .sliding = node->sliding};
    for (int i = 0; i < c.rank; i++)
        if (c.sliding.padding[i] == OG_SAME)
            c.sliding.padding[i] = (int32_t)(c.sliding.dilation[i] * (c.w->shape[2 + i] - 1) /
                                             2); /* the lesser half */
    return c;
}

static ogive_status check_factors(const call *at, const og_typed *input, const og_typed *weight)
{
    char shape[OG_SHAPE_TEXT], weight_text[OG_SHAPE_TEXT];
    int32_t rank = at->node->sliding.rank;
    og_infer_shape(weight, weight_text);
    og_infer_shape(input, shape);
    if (input->dtype != weight->dtype)
        OG_FAIL(at->error, OGIVE_DTYPE, at->node->offset,
                "%s: input is %s, but weight is %s (both must be one type)", at->label,
                og_dtype_name(input->dtype), og_dtype_name(weight->dtype));
    OG_TRY(og_infer_float(at->graph, at->node, input, at->error));
    if (input->rank != rank + 1 && input->rank != rank + 2)
        OG_FAIL(at->error, OGIVE_SHAPE, at->node->offset,
                "%s: the input has shape %s, expected %d dims (with a batch) or %d", at->label,
                shape, (int)rank + 2, (int)rank + 1);
    if (weight->rank != rank + 2)
        OG_FAIL(at->error, OGIVE_SHAPE, at->node->offset,
                "%s: weight has shape %s, expected %d dims", at->label, weight_text, (int)rank + 2);
    for (int i = 0; i < rank; i++)
        if (weight->shape[2 + i] < 1 || weight->shape[2 + i] > INT32_MAX / 4)
            OG_FAIL(at->error, OGIVE_SHAPE, at->node->offset,
                    "%s: weight has shape %s, expected 1 or more elements in each of its last %d "
                    "dims, less than 2^29",
                    at->label, weight_text, (int)rank);
    return OGIVE_OK;
}

/* Channels of the input and of the weight, for both directions. */
static ogive_status check_channels(const call *at, const og_typed *input, const og_typed *weight)
{
    char shape[OG_SHAPE_TEXT], weight_text[OG_SHAPE_TEXT];
    int64_t groups = (int64_t)at->node->numbers[1];
    int64_t channels = input->shape[input->rank - at->node->sliding.rank - 1];
    bool back = og_op_convolves_back(at->node->op);
    int64_t want = back ? weight->shape[0] : og_times(weight->shape[1], groups);
    og_infer_shape(weight, weight_text);
    og_infer_shape(input, shape);
    if (weight->shape[0] % groups)
        OG_FAIL(at->error, OGIVE_SHAPE, at->node->offset,
                "%s: weight has shape %s, whose first dim %lld groups do not divide", at->label,
                weight_text, (long long)groups);
    if (channels != want)
        OG_FAIL(at->error, OGIVE_SHAPE, at->node->offset,
                "%s: the input has shape %s, %lld channels, but weight has shape %s: expected %lld "
                "(%s)",
                at->label, shape, (long long)channels, weight_text, (long long)want,
                back ? "weight's first dim" : "weight's second dim times groups");
    return OGIVE_OK;
}

/* How many places dim i of x has. */
static ogive_status count_places(const call *at, const og_convolution *c, int i, int64_t extent,
                                 int64_t *places)
{
    const og_sliding *s = &at->node->sliding;
    int64_t reach = (int64_t)s->dilation[i] * (c->w->shape[2 + i] - 1) + 1;
    if (s->padding[i] == OG_SAME) {
        if (s->stride[i] != 1)
            OG_FAIL(at->error, OGIVE_FORMULA, at->node->offset,
                    "%s: padding='same' needs a stride of 1, got %d", at->label, (int)s->stride[i]);
        if (reach / 2 > INT32_MAX / 4)
            OG_FAIL(at->error, OGIVE_SHAPE, at->node->offset,
                    "%s: weight spans %lld elements, expected less than 2^30 with padding='same'",
                    at->label, (long long)reach);
        *places = extent;
        return OGIVE_OK;
    }
    int64_t padded = extent + 2 * (int64_t)s->padding[i];
    if (extent > INT64_MAX / 4 || padded < reach)
        OG_FAIL(at->error, OGIVE_SHAPE, at->node->offset,
                "%s: weight spans %lld elements, but the input has %lld there, %lld with its "
                "padding",
                at->label, (long long)reach, (long long)extent, (long long)padded);
    *places = (padded - reach) / s->stride[i] + 1;
    return OGIVE_OK;
}

/* How many elements x has where g has so many places. */
static ogive_status count_elements(const call *at, const og_convolution *c, int i, int64_t places,
                                   int64_t *elements)
{
    const og_sliding *s = &at->node->sliding;
    int64_t reach = (int64_t)s->dilation[i] * (c->w->shape[2 + i] - 1) + 1;
    if (s->size[i] >= s->stride[i] && s->size[i] >= s->dilation[i])
        OG_FAIL(at->error, OGIVE_SHAPE, at->node->offset,
                "%s: output_padding is %d, expected less than stride (%d) or dilation (%d)",
                at->label, (int)s->size[i], (int)s->stride[i], (int)s->dilation[i]);
    if (places > INT64_MAX / 4 / s->stride[i])
        OG_FAIL(at->error, OGIVE_SHAPE, at->node->offset, "%s: the result would be too large",
                at->label);
    *elements = (places - 1) * s->stride[i] - 2 * (int64_t)s->padding[i] + reach + s->size[i];
    if (*elements < 1)
        OG_FAIL(at->error, OGIVE_SHAPE, at->node->offset,
                "%s: %lld elements with padding %d would give %lld, expected at least 1", at->label,
                (long long)places, (int)s->padding[i], (long long)*elements);
    return OGIVE_OK;
}

ogive_status og_infer_convolution(const og_graph *graph, const og_node *node, const og_typed *types,
                                  og_typed *out, ogive_error *error)
{
    const call at = {graph, node, og_node_label(graph, node), error};
    const og_typed *input = &types[node->args[0]], *weight = &types[node->args[1]];
    out->dtype = input->dtype;
    if (node->arg_count == 3) { /* derive.c makes them fit */
        const og_typed *like = &types[node->args[2]];
        out->rank = like->rank;
        memcpy(out->shape, like->shape, sizeof out->shape);
        return OGIVE_OK;
    }
    bool back = og_op_convolves_back(node->op);
    OG_TRY(check_factors(&at, input, weight));
    OG_TRY(check_channels(&at, input, weight));
    og_convolution c = og_convolution_of(node, types, out);
    out->rank = input->rank;
    memcpy(out->shape, input->shape, sizeof out->shape);
    int32_t first = input->rank - c.rank;
    out->shape[first - 1] = back ? og_times(weight->shape[1], c.groups) : weight->shape[0];
    for (int i = 0; i < c.rank; i++)
        OG_TRY((back ? count_elements : count_places)(&at, &c, i, input->shape[first + i],
                                                      &out->shape[first + i]));
    return OGIVE_OK;
}

ogive_status og_infer_bias(const og_graph *graph, const og_node *node, const og_typed *types,
                           og_typed *out, ogive_error *error)
{
    const og_typed *bias = &types[node->args[0]], *like = &types[node->args[1]];
    char shape[OG_SHAPE_TEXT];
    const char *label = og_node_label(graph, node);
    int32_t rank = (int32_t)node->numbers[0];
    int64_t channels = like->shape[like->rank - rank - 1];
    if (bias->dtype != like->dtype)
        OG_FAIL(error, OGIVE_DTYPE, node->offset,
                "%s: input is %s, but bias is %s (all must be one type)", label,
                og_dtype_name(like->dtype), og_dtype_name(bias->dtype));
    if (bias->rank != 1 || bias->shape[0] != channels)
        OG_FAIL(error, OGIVE_SHAPE, node->offset,
                "%s: bias has shape %s, expected (%lld,), one for each channel", label,
                og_infer_shape(bias, shape), (long long)channels);
    out->dtype = bias->dtype;
    out->rank = rank + 1;
    for (int d = 0; d < out->rank; d++)
        out->shape[d] = d == 0 ? channels : 1;
    return OGIVE_OK;
}
