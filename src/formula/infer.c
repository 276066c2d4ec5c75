/* SPDX-License-Identifier: MIT
 *
 * infer.c - shapes and dtypes of a graph's nodes; see infer.h. One pass over the
 * nodes, whose arguments come before them. Products are in infer_product.c,
 * the ops of derivatives in infer_like.c.
 */
#include "formula/infer_node.h"

#include <math.h>
#include <string.h>

/* ---- messages ------------------------------------------------------------ */

const char *og_infer_shape(const og_typed *type, char text[OG_SHAPE_TEXT])
{
    return og_shape_text(type->rank, type->shape, text);
}

/* Any shape is good but one whose elements cannot be counted. */
static ogive_status check_count(const og_graph *graph, int32_t index, const og_typed *type,
                                ogive_error *error)
{
    char text[OG_SHAPE_TEXT];
    int64_t count;
    if (!og_shape_count(type->rank, type->shape, &count))
        OG_FAIL(error, OGIVE_SHAPE, graph->nodes[index].offset,
                "%s: shape %s has more than 2^63 - 1 elements",
                og_node_label(graph, &graph->nodes[index]), og_infer_shape(type, text));
    return OGIVE_OK;
}

/* ---- promotion ----------------------------------------------------------- */

/* The type that holds both; float16 and bfloat16 meet in float32. */
static og_dtype promote(og_dtype a, og_dtype b)
{
    if (a == b)
        return a;
    return a == OG_FLOAT64 || b == OG_FLOAT64 ? OG_FLOAT64 : OG_FLOAT32;
}

static int get_class(const og_typed *type)
{
    return type->is_number ? 0 : type->is_weak ? 1 : type->rank == 0 ? 2 : 3;
}

/* PyTorch's result_type: tensors with dims decide; without any, 0-d tensors;
 * without any, numbers. A tensor of integers or bool takes the type of floats it meets, float32
 * beside a number; where it meets none, out's type is none either. */
static void promote_types(const og_typed *a, const og_typed *b, og_typed *out)
{
    out->is_real = a->is_real || b->is_real;
    bool a_float = og_dtype_is_float(a->dtype), b_float = og_dtype_is_float(b->dtype);
    if (!a_float || !b_float) {
        /* What is chosen of integers is none of the floats that decide. */
        const og_typed *real = a_float && get_class(a) > 1   ? a
                               : b_float && get_class(b) > 1 ? b
                                                             : NULL;
        out->dtype = real ? real->dtype : out->is_real ? OG_FLOAT32 : a_float ? b->dtype : a->dtype;
        return;
    }
    int a_class = get_class(a), b_class = get_class(b);
    out->is_number = a->is_number && b->is_number;
    out->is_weak = (a->is_weak || b->is_weak) && a_class <= 1 && b_class <= 1 && !out->is_real;
    out->dtype = a_class == b_class  ? promote(a->dtype, b->dtype)
                 : a_class > b_class ? a->dtype
                                     : b->dtype;
}

/* PyTorch computes with integers where it has no floats, and so gives others. */
ogive_status og_infer_float(const og_graph *graph, const og_node *node, const og_typed *type,
                            ogive_error *error)
{
    if (!og_dtype_is_float(type->dtype))
        OG_FAIL(error, OGIVE_DTYPE, node->offset,
                "%s: computing with %s is not supported; cast it first, as in float32(x)",
                og_node_label(graph, node), og_dtype_name(type->dtype));
    return OGIVE_OK;
}

/* 2^53: below it float64 holds every integer, and no rounding leads there from beyond. */
static bool is_safe(const og_typed *type)
{
    return type->is_number ? fabs(type->number) < 9007199254740992.0 || !isfinite(type->number)
                           : type->dtype != OG_INT64;
}

/* Integers are compared as float32 or float64, whichever holds all of them. */
static ogive_status compare_integers(const og_graph *graph, const og_node *node, const og_typed *a,
                                     const og_typed *b, og_typed *out, ogive_error *error)
{
    if (!is_safe(a) && !is_safe(b))
        OG_FAIL(error, OGIVE_DTYPE, node->offset,
                "%s: integers of 64 bits are compared with smaller ones only; cast them first, as "
                "in float64(x)",
                og_node_label(graph, node));
    bool wide = a->dtype == OG_INT32 || a->dtype == OG_INT64 || b->dtype == OG_INT32 ||
                b->dtype == OG_INT64;
    out->dtype = wide ? OG_FLOAT64 : OG_FLOAT32;
    return OGIVE_OK;
}

/* ---- broadcasting -------------------------------------------------------- */

bool og_infer_broadcast(int a_rank, const int64_t *a, int b_rank, const int64_t *b, int32_t *rank,
                        int64_t *shape)
{
    *rank = a_rank > b_rank ? a_rank : b_rank;
    for (int d = *rank - 1; d >= 0; d--) {
        int i = d - (*rank - a_rank), j = d - (*rank - b_rank);
        int64_t x = i < 0 ? 1 : a[i], y = j < 0 ? 1 : b[j];
        if (x != y && x != 1 && y != 1)
            return false;
        shape[d] = x == 1 ? y : x;
    }
    return true;
}

static ogive_status broadcast(const og_graph *graph, const og_node *node, const og_typed *a,
                              const og_typed *b, og_typed *out, ogive_error *error)
{
    char a_text[OG_SHAPE_TEXT], b_text[OG_SHAPE_TEXT];
    int64_t shape[OG_MAX_RANK];
    int32_t rank;
    if (!og_infer_broadcast(a->rank, a->shape, b->rank, b->shape, &rank, shape))
        OG_FAIL(error, OGIVE_SHAPE, node->offset, "%s: shapes %s and %s do not broadcast",
                og_node_label(graph, node), og_infer_shape(a, a_text), og_infer_shape(b, b_text));
    out->rank = rank;
    memcpy(out->shape, shape, (size_t)rank * sizeof *shape);
    return OGIVE_OK;
}

/* ---- pointwise ----------------------------------------------------------- */

/* linear's bias has the product's type and does not enlarge it. */
static ogive_status check_bias(const og_node *node, const og_typed *product, const og_typed *bias,
                               ogive_error *error)
{
    char product_text[OG_SHAPE_TEXT], bias_text[OG_SHAPE_TEXT];
    int64_t shape[OG_MAX_RANK];
    int32_t rank;
    if (!bias->is_number && bias->dtype != product->dtype)
        OG_FAIL(error, OGIVE_DTYPE, node->offset,
                "linear: input is %s, but bias is %s (all must be one type)",
                og_dtype_name(product->dtype), og_dtype_name(bias->dtype));
    if (!og_infer_broadcast(product->rank, product->shape, bias->rank, bias->shape, &rank, shape) ||
        rank != product->rank || memcmp(shape, product->shape, (size_t)rank * sizeof *shape))
        OG_FAIL(error, OGIVE_SHAPE, node->offset,
                "linear: bias has shape %s, which does not fit a product of shape %s",
                og_infer_shape(bias, bias_text), og_infer_shape(product, product_text));
    return OGIVE_OK;
}

static double compare(og_op op, double a, double b)
{
    switch (op) {
    case OG_OP_lt:
        return a < b;
    case OG_OP_le:
        return a <= b;
    case OG_OP_gt:
        return a > b;
    case OG_OP_ge:
        return a >= b;
    case OG_OP_eq:
        return a == b;
    default:
        return a != b;
    }
}

/* Whatever the dtype. */
static void take_type(const og_node *node, const og_typed *types, og_typed *out)
{
    const og_typed *a = &types[node->args[0]];
    out->dtype = a->dtype;
    out->rank = a->rank;
    memcpy(out->shape, a->shape, sizeof out->shape);
    out->is_number = a->is_number;
    out->is_real = a->is_real;
    out->is_weak = a->is_weak;
    if (a->is_number)
        out->number = og_function_value(node->op, &a->number, node->numbers);
}

/* Some functions give floats whatever they are given: PyTorch's default type, of integers. */
static void make_float(const og_node *node, og_typed *out)
{
    if (!node->is_real && !og_op_gives_floats(node->op))
        return;
    out->is_real = true;
    out->is_weak = false;
    if (!og_dtype_is_float(out->dtype))
        out->dtype = OG_FLOAT32;
}

static ogive_status infer_unary(const og_graph *graph, const og_node *node, const og_typed *types,
                                og_typed *out, ogive_error *error)
{
    take_type(node, types, out);
    make_float(node, out);
    return og_infer_float(graph, node, out, error);
}

/* A tensor of bool is a mask as it is; nothing else is. */
static ogive_status check_truth(const og_node *node, const og_typed *type, ogive_error *error)
{
    if (node->op == OG_OP_truth && type->dtype != OG_BOOL)
        OG_FAIL(error, OGIVE_DTYPE, node->offset,
                "a condition is %s, expected bool; write a comparison, as in x != 0",
                og_dtype_name(type->dtype));
    return OGIVE_OK;
}

static ogive_status infer_binary(const og_graph *graph, const og_node *node, const og_typed *types,
                                 og_typed *out, ogive_error *error)
{
    const og_typed *a = &types[node->args[0]], *b = &types[node->args[1]];
    promote_types(a, b, out);
    OG_TRY(check_truth(node, a, error));
    if (og_function_of(node->op)->kind == OG_MASKING && !og_dtype_is_float(out->dtype))
        OG_TRY(compare_integers(graph, node, a, b, out, error));
    make_float(node, out);
    if (node->keeps_type)
        out->dtype = a->dtype;
    OG_TRY(og_infer_float(graph, node, out, error));
    if (node->called == OG_OP_linear)
        OG_TRY(check_bias(node, a, b, error));
    OG_TRY(broadcast(graph, node, a, b, out, error));
    out->is_mask = og_function_of(node->op)->kind == OG_MASKING;
    if (out->is_number) {
        double values[2] = {a->number, b->number};
        out->number = out->is_mask ? compare(node->op, values[0], values[1])
                                   : og_function_value(node->op, values, NULL);
    }
    return OGIVE_OK;
}

static ogive_status infer_where(const og_graph *graph, const og_node *node, const og_typed *types,
                                og_typed *out, ogive_error *error)
{
    const og_typed *mask = &types[node->args[0]];
    const og_typed *a = &types[node->args[1]], *b = &types[node->args[2]];
    promote_types(a, b, out);
    OG_TRY(og_infer_float(graph, node, out, error));
    OG_TRY(broadcast(graph, node, a, b, out, error));
    OG_TRY(broadcast(graph, node, mask, out, out, error));
    if (out->is_number && mask->is_number) {
        out->number = mask->number != 0 ? a->number : b->number;
    } else if (out->is_number) {
        /* A tensor made of two numbers: PyTorch gives it the default type, or int64. */
        out->is_number = false;
        out->dtype = OG_FLOAT32;
        out->is_weak = !out->is_real;
    }
    return OGIVE_OK;
}

/* ---- reductions and views ------------------------------------------------ */

ogive_status og_infer_dim(const og_graph *graph, const og_node *node, int32_t d, int rank,
                          int32_t *dim, ogive_error *error)
{
    int range = rank ? rank : 1;
    if (d < -range || d >= range)
        OG_FAIL(error, OGIVE_SHAPE, node->offset,
                "%s: dim %d is out of range for an input of rank %d (expected %d to %d)",
                og_node_label(graph, node), (int)d, rank, -range, range - 1);
    *dim = d < 0 ? d + range : d;
    return OGIVE_OK;
}

static ogive_status check_sizes(const og_graph *graph, const og_node *node, const og_typed *input,
                                ogive_error *error)
{
    char sizes[OG_SHAPE_TEXT], shape[OG_SHAPE_TEXT];
    const char *name = "normalized_shape", *label = og_node_label(graph, node);
    int n = node->dim_count, first = input->rank - n;
    if (first < 0)
        OG_FAIL(error, OGIVE_SHAPE, node->offset, "%s: %s is %s, but the input has shape %s", label,
                name, og_shape_text(n, node->sizes, sizes), og_infer_shape(input, shape));
    if (memcmp(node->sizes, input->shape + first, (size_t)n * sizeof *node->sizes))
        OG_FAIL(error, OGIVE_SHAPE, node->offset, "%s: %s is %s, but the input's last dims are %s",
                label, name, og_shape_text(n, node->sizes, sizes),
                og_shape_text(n, input->shape + first, shape));
    return OGIVE_OK;
}

ogive_status og_infer_reduced(const og_graph *graph, const og_node *node, const og_typed *input,
                              uint32_t *reduced, ogive_error *error)
{
    *reduced = (1u << input->rank) - 1;
    if (node->all_dims && !node->dim_count)
        return OGIVE_OK;
    if (node->has_sizes)
        OG_TRY(check_sizes(graph, node, input, error));
    uint32_t every_dim = *reduced;
    *reduced = 0;
    for (int i = 0; i < node->dim_count; i++) {
        int32_t dim = 0;
        OG_TRY(og_infer_dim(graph, node, node->dims[i], input->rank, &dim, error));
        if (*reduced & 1u << dim)
            OG_FAIL(error, OGIVE_SHAPE, node->offset, "%s: dim %d appears more than once",
                    og_node_label(graph, node), (int)dim);
        *reduced |= 1u << dim;
    }
    if (node->all_dims)
        *reduced = ~*reduced;
    *reduced &= every_dim; /* the dim of a 0-d tensor was only a courtesy */
    return OGIVE_OK;
}

static ogive_status infer_reduction(const og_graph *graph, const og_node *node,
                                    const og_typed *types, og_typed *out, ogive_error *error)
{
    const og_typed *input = &types[node->args[0]];
    OG_TRY(og_infer_float(graph, node, input, error));
    OG_TRY(og_infer_reduced(graph, node, input, &out->reduced, error));
    out->dtype = input->dtype;
    out->is_weak = input->is_weak;
    bool is_empty = false;
    for (int d = 0; d < input->rank; d++) {
        bool is_reduced = out->reduced >> d & 1;
        is_empty |= input->shape[d] == 0 && is_reduced;
        if (!is_reduced || node->keepdim)
            out->shape[out->rank++] = is_reduced ? 1 : input->shape[d];
    }
    char shape[OG_SHAPE_TEXT];
    if (is_empty && (og_op_fold(node->op) == OG_FOLD_MAX || og_op_fold(node->op) == OG_FOLD_MIN))
        OG_FAIL(error, OGIVE_SHAPE, node->offset,
                "%s: an input of shape %s has no element to choose along the reduced dims",
                og_node_label(graph, node), og_infer_shape(input, shape));
    return OGIVE_OK;
}

static ogive_status infer_count(const og_graph *graph, const og_node *node, const og_typed *types,
                                og_typed *out, ogive_error *error)
{
    const og_typed *input = &types[node->args[0]];
    uint32_t reduced;
    OG_TRY(og_infer_reduced(graph, node, input, &reduced, error));
    double count = 1;
    for (int d = 0; d < input->rank; d++)
        count *= reduced >> d & 1 ? (double)input->shape[d] : 1;
    char shape[OG_SHAPE_TEXT];
    bool of_channels = node->called == OG_OP_batch_norm || node->called == OG_OP_instance_norm;
    if (of_channels && count == 1)
        OG_FAIL(error, OGIVE_SHAPE, node->offset,
                "%s: expected more than 1 value per channel, but the input has shape %s",
                og_node_label(graph, node), og_infer_shape(input, shape));
    out->dtype = OG_FLOAT64;
    out->is_number = true;
    out->number = count - node->numbers[0] > 0 ? count - node->numbers[0] : 0;
    return OGIVE_OK;
}

static ogive_status infer_swap(const og_graph *graph, const og_node *node, const og_typed *types,
                               og_typed *out, ogive_error *error)
{
    const og_typed *input = &types[node->args[0]];
    char shape[OG_SHAPE_TEXT];
    out->dtype = input->dtype;
    out->is_weak = input->is_weak;
    out->rank = input->rank;
    memcpy(out->shape, input->shape, sizeof out->shape);
    if (node->op == OG_OP_transpose) {
        for (int i = 0; i < 2; i++)
            OG_TRY(og_infer_dim(graph, node, node->dims[i], input->rank, &out->swap[i], error));
    } else if (input->rank > 2) {
        OG_FAIL(error, OGIVE_SHAPE, node->offset,
                "%s: the input has shape %s, expected at most 2 dims; use transpose(x, -2, -1)",
                og_node_label(graph, node), og_infer_shape(input, shape));
    } else if (input->rank == 2) {
        out->swap[1] = 1;
    }
    out->shape[out->swap[0]] = input->shape[out->swap[1]];
    out->shape[out->swap[1]] = input->shape[out->swap[0]];
    return OGIVE_OK;
}

/* ---- nodes --------------------------------------------------------------- */

static ogive_status infer_special(const og_graph *graph, const og_node *node, const og_typed *types,
                                  og_typed *out, ogive_error *error)
{
    switch (node->op) {
    case OG_OP_where:
        return infer_where(graph, node, types, out, error);
    case OG_OP_matmul:
        return og_infer_matmul(graph, node, types, out, error);
    case OG_OP_linear_product:
        return og_infer_linear(graph, node, types, out, error);
    case OG_OP_count:
        return infer_count(graph, node, types, out, error);
    case OG_OP_t:
    case OG_OP_transpose:
        return infer_swap(graph, node, types, out, error);
    case OG_OP_product_t:
        return og_infer_product_t(graph, node, types, out, error);
    case OG_OP_part_size:
        return og_infer_part_size(graph, node, types, out, error);
    case OG_OP_windows:
    case OG_OP_slide:
    case OG_OP_slide_back:
        return og_infer_windows(graph, node, types, out, error);
    case OG_OP_narrow:
    case OG_OP_narrow_back:
    case OG_OP_portion:
    case OG_OP_portion_back:
        return og_infer_slice(graph, node, types, out, error);
    case OG_OP_convolve:
    case OG_OP_convolve_like:
    case OG_OP_convolve_back:
    case OG_OP_convolve_back_like:
    case OG_OP_convolve_weight:
        return og_infer_convolution(graph, node, types, out, error);
    case OG_OP_bias_of:
        return og_infer_bias(graph, node, types, out, error);
    case OG_OP_group_sum:
    case OG_OP_group_spread:
        return og_infer_groups(graph, node, types, out, error);
    case OG_OP_index:
        OG_TRY(og_infer_reduced(graph, node, &types[node->args[0]], &out->reduced, error));
        return infer_unary(graph, node, types, out, error);
    case OG_OP_float32:
    case OG_OP_float16:
    case OG_OP_bfloat16:
    case OG_OP_float64:
    case OG_OP_boolean:
        break;
    default:
        return og_infer_like(graph, node, types, out, error);
    }
    take_type(node, types, out);
    out->dtype = node->op == OG_OP_boolean    ? OG_BOOL
                 : node->op == OG_OP_float32  ? OG_FLOAT32
                 : node->op == OG_OP_float16  ? OG_FLOAT16
                 : node->op == OG_OP_bfloat16 ? OG_BFLOAT16
                                              : OG_FLOAT64;
    out->is_weak = false;
    return OGIVE_OK;
}

static ogive_status infer_input(const og_graph *graph, const og_node *node,
                                const og_input_type *input, og_typed *out, ogive_error *error)
{
    const char *name = graph->inputs[node->index].name;
    if (input->rank < 0 || input->rank > OG_MAX_RANK)
        OG_FAIL(error, OGIVE_SHAPE, node->offset, "%.200s has %d dims, at most %d are supported",
                name, (int)input->rank, OG_MAX_RANK);
    out->dtype = input->dtype;
    out->rank = input->rank;
    for (int d = 0; d < input->rank; d++) {
        if (input->shape[d] < 0)
            OG_FAIL(error, OGIVE_SHAPE, node->offset, "%.200s has the negative size %lld", name,
                    (long long)input->shape[d]);
        out->shape[d] = input->shape[d];
    }
    return OGIVE_OK;
}

static ogive_status infer_node(const og_graph *graph, const og_node *node,
                               const og_input_type *inputs, const og_typed *types, og_typed *out,
                               ogive_error *error)
{
    if (node->op == OG_OP_INPUT)
        return infer_input(graph, node, &inputs[node->index], out, error);
    if (node->op == OG_OP_NUMBER) {
        out->dtype = OG_FLOAT64;
        out->is_number = true;
        out->number = node->numbers[0];
        out->is_real = node->is_real || !og_is_whole(out->number);
        return OGIVE_OK;
    }
    switch (og_function_of(node->op)->kind) {
    case OG_SCALAR:
        if (node->arg_count == 1)
            return infer_unary(graph, node, types, out, error);
        return infer_binary(graph, node, types, out, error);
    case OG_MASKING:
        return infer_binary(graph, node, types, out, error);
    case OG_REDUCTION:
        return infer_reduction(graph, node, types, out, error);
    default:
        return infer_special(graph, node, types, out, error);
    }
}

/* Weight and bias of layer_norm and norms over channels have its input's type, or float32 with a
 * half type, as in PyTorch; those of rms_norm any. */
static ogive_status check_parameter_type(const og_size_check *check, const og_typed *types,
                                         ogive_error *error)
{
    og_dtype input = types[check->input].dtype, parameter = types[check->node].dtype;
    bool is_half = input == OG_FLOAT16 || input == OG_BFLOAT16;
    if (check->called != OG_OP_rms_norm && !types[check->node].is_number && parameter != input &&
        !(is_half && parameter == OG_FLOAT32))
        OG_FAIL(error, OGIVE_DTYPE, check->offset, "%s: input is %s, but %s is %s",
                og_function_of(check->called)->name, og_dtype_name(input), check->parameter,
                og_dtype_name(parameter));
    return OGIVE_OK;
}

/* Of a norm over channels. */
static ogive_status check_channels(const og_size_check *check, const og_typed *types,
                                   ogive_error *error)
{
    const og_typed *type = &types[check->node], *input = &types[check->input];
    const char *label = og_function_of(check->called)->name;
    char shape[OG_SHAPE_TEXT], whole[OG_SHAPE_TEXT];
    if (input->rank < 2)
        OG_FAIL(error, OGIVE_SHAPE, check->offset,
                "%s: the input has shape %s, expected 2 dims or more", label,
                og_infer_shape(input, shape));
    if (type->rank != 1 || type->shape[0] != input->shape[1])
        OG_FAIL(error, OGIVE_SHAPE, check->offset,
                "%s: %s has shape %s, but an input of shape %s has %lld channels (dim 1)", label,
                check->parameter, og_infer_shape(type, shape), og_infer_shape(input, whole),
                (long long)input->shape[1]);
    return check_parameter_type(check, types, error);
}

static ogive_status check_parameter(const og_size_check *check, const og_typed *types,
                                    ogive_error *error)
{
    const og_typed *type = &types[check->node];
    char sizes[OG_SHAPE_TEXT], shape[OG_SHAPE_TEXT];
    if (check->sizes[0] == OG_CHANNELS)
        return check_channels(check, types, error);
    if (type->rank != check->rank ||
        memcmp(type->shape, check->sizes, (size_t)check->rank * sizeof *check->sizes))
        OG_FAIL(error, OGIVE_SHAPE, check->offset,
                "%s: %s has shape %s, but normalized_shape is %s",
                og_function_of(check->called)->name, check->parameter, og_infer_shape(type, shape),
                og_shape_text(check->rank, check->sizes, sizes));
    return check_parameter_type(check, types, error);
}

/* A check comes before the nodes that rely on it, so that it is the one to speak. */
static ogive_status infer_nodes(const og_graph *graph, const og_input_type *inputs, og_typed *types,
                                ogive_error *error)
{
    int32_t check = 0;
    for (int32_t i = 0; i <= graph->node_count; i++) {
        for (; check < graph->check_count && graph->checks[check].before <= i; check++)
            OG_TRY(check_parameter(&graph->checks[check], types, error));
        if (i == graph->node_count)
            break;
        types[i] = (og_typed){0};
        OG_TRY(infer_node(graph, &graph->nodes[i], inputs, types, &types[i], error));
        OG_TRY(check_count(graph, i, &types[i], error));
    }
    return OGIVE_OK;
}

/* Integers are read, never written. */
static ogive_status check_results(const og_graph *graph, const og_typed *types, ogive_error *error)
{
    for (int32_t i = 0; i < graph->result_count; i++) {
        og_dtype dtype = types[graph->results[i]].dtype;
        if (!og_dtype_is_float(dtype) && dtype != OG_BOOL)
            OG_FAIL(error, OGIVE_DTYPE, graph->nodes[graph->results[i]].offset,
                    "a result is %s; cast it, as in float32(x)", og_dtype_name(dtype));
    }
    return OGIVE_OK;
}

ogive_status og_infer(const og_graph *graph, const og_input_type *inputs, og_typed *types,
                      ogive_error *error)
{
    fenv_t state;
    og_float_state_enter(&state);
    ogive_status status = infer_nodes(graph, inputs, types, error);
    if (!status)
        status = check_results(graph, types, error);
    og_float_state_leave(&state);
    return status;
}
