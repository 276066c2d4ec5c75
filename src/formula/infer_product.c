/* SPDX-License-Identifier: MIT
 *
 * infer_product.c - shapes and dtypes of matmul and linear, by PyTorch's rules;
 * see infer.h.
 */
#include "formula/infer_node.h"

#include <string.h>

static ogive_status check_same_type(const og_graph *graph, const og_node *node, const char *b_name,
                                    const og_typed *a, const og_typed *b, ogive_error *error)
{
    if (a->dtype != b->dtype)
        OG_FAIL(error, OGIVE_DTYPE, node->offset,
                "%s: input is %s, but %s is %s (both must be one type)", og_node_label(graph, node),
                og_dtype_name(a->dtype), b_name, og_dtype_name(b->dtype));
    return og_infer_float(graph, node, a, error);
}

/* a (.., m, k) times b (.., k, n); a 1-d a is one row, a 1-d b one column, and
 * neither leaves a dim in the result. */
ogive_status og_infer_matmul(const og_graph *graph, const og_node *node, const og_typed *types,
                             og_typed *out, ogive_error *error)
{
    const og_typed *a = &types[node->args[0]], *b = &types[node->args[1]];
    char a_text[OG_SHAPE_TEXT], b_text[OG_SHAPE_TEXT];
    og_infer_shape(a, a_text);
    og_infer_shape(b, b_text);
    const char *label = og_node_label(graph, node);
    if (a->rank == 0 || b->rank == 0)
        OG_FAIL(error, OGIVE_SHAPE, node->offset,
                "%s: shapes are %s and %s, expected at least 1 dim each", label, a_text, b_text);
    int64_t a_k = a->shape[a->rank - 1], b_k = b->shape[b->rank > 1 ? b->rank - 2 : 0];
    if (a_k != b_k)
        OG_FAIL(error, OGIVE_SHAPE, node->offset,
                "%s: shapes %s and %s do not fit: the last dim of the first is %lld, the %s dim "
                "of the second is %lld",
                label, a_text, b_text, (long long)a_k, b->rank > 1 ? "second to last" : "only",
                (long long)b_k);
    int a_batch = a->rank > 2 ? a->rank - 2 : 0, b_batch = b->rank > 2 ? b->rank - 2 : 0;
    if (!og_infer_broadcast(a_batch, a->shape, b_batch, b->shape, &out->rank, out->shape))
        OG_FAIL(error, OGIVE_SHAPE, node->offset,
                "%s: shapes %s and %s do not fit: their batch dims do not broadcast", label, a_text,
                b_text);
    if (a->rank > 1)
        out->shape[out->rank++] = a->shape[a->rank - 2];
    if (b->rank > 1)
        out->shape[out->rank++] = b->shape[b->rank - 1];
    out->dtype = a->dtype;
    return check_same_type(graph, node, "other", a, b, error);
}

/* input (.., k) times weight (n, k) transposed: (.., n); weight (k,): (..). */
ogive_status og_infer_linear(const og_graph *graph, const og_node *node, const og_typed *types,
                             og_typed *out, ogive_error *error)
{
    const og_typed *input = &types[node->args[0]], *weight = &types[node->args[1]];
    char input_text[OG_SHAPE_TEXT], weight_text[OG_SHAPE_TEXT];
    og_infer_shape(input, input_text);
    og_infer_shape(weight, weight_text);
    const char *label = og_node_label(graph, node);
    if (input->rank == 0)
        OG_FAIL(error, OGIVE_SHAPE, node->offset, "%s: input has shape (), expected at least 1 dim",
                label);
    if (weight->rank != 1 && weight->rank != 2)
        OG_FAIL(error, OGIVE_SHAPE, node->offset, "%s: weight has shape %s, expected 1 or 2 dims",
                label, weight_text);
    int64_t k = input->shape[input->rank - 1];
    if (weight->shape[weight->rank - 1] != k)
        OG_FAIL(error, OGIVE_SHAPE, node->offset,
                "%s: input has shape %s, weight %s: the last dims differ (weight must be %s%lld%s)",
                label, input_text, weight_text, weight->rank == 2 ? "(n, " : "(", (long long)k,
                weight->rank == 2 ? ")" : ",)");
    out->dtype = input->dtype;
    out->rank = input->rank - 1;
    memcpy(out->shape, input->shape, (size_t)out->rank * sizeof *out->shape);
    if (weight->rank == 2)
        out->shape[out->rank++] = weight->shape[0];
    return check_same_type(graph, node, "weight", input, weight, error);
}

/* input (.., k, m) transposed times other (.., k, n), summed over the batch dims
 * that like (.., m, n) does not have. derive.c makes them fit. */
ogive_status og_infer_product_t(const og_graph *graph, const og_node *node, const og_typed *types,
                                og_typed *out, ogive_error *error)
{
    const og_typed *a = &types[node->args[0]], *b = &types[node->args[1]];
    const og_typed *like = &types[node->args[2]];
    char a_text[OG_SHAPE_TEXT], b_text[OG_SHAPE_TEXT], like_text[OG_SHAPE_TEXT];
    if (a->rank < 2 || b->rank < 2 || like->rank < 2 ||
        a->shape[a->rank - 2] != b->shape[b->rank - 2] ||
        a->shape[a->rank - 1] != like->shape[like->rank - 2] ||
        b->shape[b->rank - 1] != like->shape[like->rank - 1])
        OG_FAIL(error, OGIVE_SHAPE, node->offset,
                "%s: gradients of shapes %s and %s do not make one of shape %s",
                og_node_label(graph, node), og_infer_shape(a, a_text), og_infer_shape(b, b_text),
                og_infer_shape(like, like_text));
    out->dtype = a->dtype;
    out->rank = like->rank;
    memcpy(out->shape, like->shape, sizeof out->shape);
    return check_same_type(graph, node, "other", a, b, error);
}
