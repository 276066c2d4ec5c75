/* SPDX-License-Identifier: MIT
 *
 * infer_window.c - shapes of what windows see, by PyTorch's rules of pooling; see infer.h.
 */
#include "formula/infer_node.h"

#include <string.h>

/* What is asked of the input of a pooling: batch and channels, or channels alone, before the
 * dims that windows slide along. */
static ogive_status check_rank(const og_graph *graph, const og_node *node, const og_typed *input,
                               ogive_error *error)
{
    char shape[OG_SHAPE_TEXT];
    int32_t rank = node->sliding.rank;
    if (input->rank != rank + 1 && input->rank != rank + 2)
        OG_FAIL(error, OGIVE_SHAPE, node->offset,
                "%s: the input has shape %s, expected %d dims (with a batch) or %d",
                og_node_label(graph, node), og_infer_shape(input, shape), (int)rank + 2,
                (int)rank + 1);
    return OGIVE_OK;
}

og_sliding og_sliding_of(const og_node *node, const og_typed *input, const og_typed *out)
{
    og_sliding s = node->sliding;
    bool back = node->op == OG_OP_slide_back;
    const og_typed *whole = back ? out : input, *places = back ? input : out;
    int32_t first = out->rank - 2 * s.rank;
    for (int32_t i = 0; i < s.rank; i++)
        if (s.stride[i] == 0) {
            int64_t count = places->shape[first + i], extent = whole->shape[first + i];
            if (count == 0 || extent % count == 0)
                s.size[i] = s.stride[i] = count ? (int32_t)(extent / count) : 1;
        }
    return s;
}

og_parts og_parts_of(int64_t extent, int64_t places)
{
    int64_t unit = og_greatest_divisor(extent, places);
    og_parts parts = {.part = extent / unit, .element = places / unit};
    parts.pairs = parts.part + parts.element - 1;
    parts.width = og_min(parts.part, parts.element);
    parts.taps = og_divide_up(parts.pairs, parts.width);
    return parts;
}

/* kernel_size windows that cut the dim. */
static ogive_status cut_places(const og_graph *graph, const og_node *node, int i, int64_t extent,
                               int64_t *places, int64_t *taps, ogive_error *error)
{
    *places = node->sliding.size[i] == OG_KEPT ? extent : node->sliding.size[i];
    *taps = 1;
    if (extent == 0)
        OG_FAIL(error, OGIVE_SHAPE, node->offset,
                "%s: the input has no elements along a dim that is pooled, expected one or more",
                og_node_label(graph, node));
    if (*places == 0)
        return OGIVE_OK;
    *taps = og_parts_of(extent, *places).taps;
    /* Products of these numbers, and of the least power of two that is no less than taps, fit. */
    if (*taps > INT32_MAX || (double)extent * (double)*places * (double)*taps > 0x1p60)
        OG_FAIL(error, OGIVE_UNSUPPORTED, node->offset,
                "%s: output_size is %lld for %lld elements, which is too large",
                og_node_label(graph, node), (long long)*places, (long long)extent);
    return OGIVE_OK;
}

/* How many windows fit along dim i of them, which has `extent` elements. */
static ogive_status count_places(const og_graph *graph, const og_node *node, int i, int64_t extent,
                                 int64_t *places, ogive_error *error)
{
    const og_sliding *s = &node->sliding;
    const char *label = og_node_label(graph, node);
    int64_t reach = (int64_t)s->dilation[i] * (s->size[i] - 1) + 1, padding = s->padding[i];
    if (padding > reach / 2)
        OG_FAIL(error, OGIVE_SHAPE, node->offset,
                "%s: padding is %lld, but may be at most half of the %lld elements that a window "
                "spans",
                label, (long long)padding, (long long)reach);
    int64_t room = extent + 2 * padding - reach, step = s->stride[i];
    if (extent > INT64_MAX / 2 || room + (s->ceil_mode ? step - 1 : 0) < 0)
        OG_FAIL(error, OGIVE_SHAPE, node->offset,
                "%s: a window spans %lld elements, but the input has %lld there, %lld with its "
                "padding",
                label, (long long)reach, (long long)extent, (long long)(extent + 2 * padding));
    *places = (room + (s->ceil_mode ? step - 1 : 0)) / step + 1;
    /* The last window must begin in the input or in the padding before it. */
    if (s->ceil_mode && (*places - 1) * step >= extent + padding)
        --*places;
    return OGIVE_OK;
}

/* (.., l) or (.., l, taps) becomes (.., places, taps). */
static ogive_status infer_places(const og_graph *graph, const og_node *node, const og_typed *input,
                                 og_typed *out, ogive_error *error)
{
    const og_sliding *s = &node->sliding;
    int32_t first = input->rank - s->rank * (node->op == OG_OP_windows ? 1 : 2);
    out->rank = first + 2 * s->rank;
    if (out->rank > OG_MAX_RANK)
        OG_FAIL(error, OGIVE_SHAPE, node->offset,
                "%s: windows of an input of rank %d have %d dims, at most %d are supported",
                og_node_label(graph, node), (int)input->rank, (int)out->rank, OG_MAX_RANK);
    memcpy(out->shape, input->shape, (size_t)first * sizeof *out->shape);
    for (int32_t i = 0; i < s->rank; i++) {
        int64_t extent = input->shape[first + i], *places = &out->shape[first + i];
        int64_t *taps = &out->shape[first + s->rank + i];
        *taps = s->size[i];
        OG_TRY(s->stride[i] ? count_places(graph, node, i, extent, places, error)
                            : cut_places(graph, node, i, extent, places, taps, error));
    }
    return OGIVE_OK;
}

ogive_status og_infer_windows(const og_graph *graph, const og_node *node, const og_typed *types,
                              og_typed *out, ogive_error *error)
{
    const og_typed *input = &types[node->args[0]];
    int32_t rank = node->sliding.rank;
    out->dtype = input->dtype;
    out->is_weak = input->is_weak;
    OG_TRY(og_infer_float(graph, node, input, error));
    if (node->called == OG_OP_unfold && input->rank == 0)
        OG_FAIL(error, OGIVE_SHAPE, node->offset, "%s: the input has no dims, expected one or more",
                og_node_label(graph, node));
    if (node->op == OG_OP_windows && node->called != OG_OP_unfold)
        OG_TRY(check_rank(graph, node, input, error));
    if (node->op != OG_OP_slide_back)
        return infer_places(graph, node, input, out, error);
    const og_typed *like = &types[node->args[1]];
    out->rank = input->rank;
    memcpy(out->shape, input->shape, sizeof out->shape);
    bool has_taps = like->rank == input->rank;
    memcpy(out->shape + input->rank - 2 * rank,
           like->shape + like->rank - rank * (has_taps ? 2 : 1), (size_t)rank * sizeof *out->shape);
    return OGIVE_OK;
}

ogive_status og_infer_part_size(const og_graph *graph, const og_node *node, const og_typed *types,
                                og_typed *out, ogive_error *error)
{
    const og_typed *like = &types[node->args[0]], *input = &types[node->args[1]];
    int32_t dim;
    OG_TRY(og_infer_dim(graph, node, node->dims[0], like->rank, &dim, error));
    int64_t places = like->shape[dim], extent = input->shape[dim];
    if (places == 0 || extent % places == 0) {
        out->dtype = OG_FLOAT64;
        out->is_number = true;
        out->number = places ? (double)(extent / places) : 1;
        return OGIVE_OK;
    }
    out->dtype = like->dtype;
    out->rank = like->rank;
    memcpy(out->shape, like->shape, sizeof out->shape);
    return OGIVE_OK;
}
