/* SPDX-License-Identifier: MIT
 *
 * infer_slice.c - shapes of parts of a tensor, narrow and portion, by PyTorch's rules of narrow;
 * see infer.h.
 */
#include "formula/infer_node.h"

#include <string.h>

static bool is_portion(const og_node *node)
{
    return node->op == OG_OP_portion || node->op == OG_OP_portion_back;
}

og_slice og_slice_of(const og_node *node, const og_typed *whole)
{
    og_slice slice = {.dim = node->dims[0] + (node->dims[0] < 0 ? whole->rank : 0)};
    int64_t extent = whole->shape[slice.dim], first = (int64_t)node->numbers[0];
    slice.length = (int64_t)node->numbers[1];
    if (is_portion(node)) {
        slice.length = extent / slice.length;
        first *= slice.length;
    }
    slice.start = first < 0 ? first + extent : first;
    return slice;
}

static ogive_status check_slice(const og_graph *graph, const og_node *node, const og_typed *whole,
                                ogive_error *error)
{
    const char *label = og_node_label(graph, node);
    char shape[OG_SHAPE_TEXT];
    int32_t dim;
    if (whole->rank == 0)
        OG_FAIL(error, OGIVE_SHAPE, node->offset, "%s: the input has no dims, expected one or more",
                label);
    OG_TRY(og_infer_dim(graph, node, node->dims[0], whole->rank, &dim, error));
    int64_t extent = whole->shape[dim], given = (int64_t)node->numbers[0];
    og_infer_shape(whole, shape);
    if (is_portion(node) && extent % (int64_t)node->numbers[1])
        OG_FAIL(error, OGIVE_SHAPE, node->offset,
                "%s: dim %d of the input, which has shape %s, has %lld elements, expected a "
                "multiple of %lld",
                label, (int)dim, shape, (long long)extent, (long long)node->numbers[1]);
    if (is_portion(node))
        return OGIVE_OK;
    if (given < -extent || given > extent)
        OG_FAIL(error, OGIVE_SHAPE, node->offset,
                "%s: start is %lld, but dim %d of the input, which has shape %s, allows %lld to "
                "%lld",
                label, (long long)given, (int)dim, shape, (long long)-extent, (long long)extent);
    og_slice slice = og_slice_of(node, whole);
    if (slice.length < 0 || slice.length > extent - slice.start)
        OG_FAIL(error, OGIVE_SHAPE, node->offset,
                "%s: length is %lld, but dim %d of the input, which has shape %s, has %lld "
                "elements from start on",
                label, (long long)slice.length, (int)dim, shape, (long long)(extent - slice.start));
    return OGIVE_OK;
}

ogive_status og_infer_slice(const og_graph *graph, const og_node *node, const og_typed *types,
                            og_typed *out, ogive_error *error)
{
    const og_typed *input = &types[node->args[0]];
    bool back = node->op == OG_OP_narrow_back || node->op == OG_OP_portion_back;
    const og_typed *whole = back ? &types[node->args[1]] : input;
    OG_TRY(og_infer_float(graph, node, input, error));
    OG_TRY(check_slice(graph, node, whole, error));
    og_slice slice = og_slice_of(node, whole);
    out->dtype = input->dtype;
    out->is_weak = input->is_weak;
    out->rank = input->rank;
    memcpy(out->shape, input->shape, sizeof out->shape);
    out->shape[slice.dim] = back ? whole->shape[slice.dim] : slice.length;
    return OGIVE_OK;
}
