/* SPDX-License-Identifier: MIT
 *
 * api_pytorch.c - ogive.h: a formula as a file for PyTorch.
 */
#include "api/api.h"
#include "plan/planner.h"
#include "pytorch/pytorch.h"

#include <string.h>

/* Has every element a place of its own, as a tensor has that others are copied to? */
static bool is_apart(const DLTensor *tensor)
{
    bool done[OG_MAX_RANK] = {false};
    int64_t extent = 1; /* elements from the first to behind the last, of the dims that are done */
    for (int32_t turn = 0; turn < tensor->ndim; turn++) {
        int32_t least = -1;
        for (int32_t d = 0; d < tensor->ndim; d++)
            if (!done[d] && (least < 0 || tensor->strides[d] < tensor->strides[least]))
                least = d;
        done[least] = true;
        int64_t size = tensor->shape[least], stride = tensor->strides[least];
        if (size <= 1)
            continue;
        int64_t reach;
        if (stride < extent || __builtin_mul_overflow(size - 1, stride, &reach) ||
            __builtin_add_overflow(extent, reach, &extent))
            return false;
    }
    return true;
}

static ogive_status read_shape(const DLTensor *tensor, const char *name, og_pytorch_shape *shape,
                               ogive_error *error)
{
    shape->rank = -1;
    if (!tensor)
        return OGIVE_OK;
    if (tensor->ndim < 0 || tensor->ndim > OG_MAX_RANK || (tensor->ndim && !tensor->shape))
        OG_FAIL(error, OGIVE_SHAPE, -1, "input '%.200s' has %d dims: expected 0 to %d", name,
                (int)tensor->ndim, OG_MAX_RANK);
    char other[32];
    shape->dtype = OG_FLOAT32; /* not given */
    if (tensor->dtype.bits) {
        bool known = og_dtype_from_dlpack(tensor->dtype, &shape->dtype, other);
        if (!known || !og_dtype_is_float(shape->dtype))
            OG_FAIL(error, OGIVE_DTYPE, -1,
                    "input '%.200s' is %s: a PyTorch file reads float32, float16, bfloat16 or "
                    "float64",
                    name, known ? og_dtype_name(shape->dtype) : other);
    }
    shape->rank = tensor->ndim;
    for (int32_t d = 0; d < tensor->ndim; d++)
        shape->shape[d] = tensor->shape[d];
    og_layout layout = {.rank = shape->rank};
    memcpy(layout.shape, shape->shape, sizeof layout.shape);
    og_layout_contiguous(&layout);
    memcpy(shape->stride, layout.stride, sizeof shape->stride);
    const bool lies = tensor->ndim && tensor->strides && is_apart(tensor);
    for (int32_t d = 0; lies && d < tensor->ndim; d++)
        if (tensor->shape[d] > 1) /* others' strides may be any, PyTorch takes none below 0 */
            shape->stride[d] = tensor->strides[d];
    return OGIVE_OK;
}

/* What a file cannot take: functions of another meaning in PyTorch, tensors of bool. */
static ogive_status check_functions(const og_graph *graph, ogive_error *error)
{
    if (graph->calls[OG_OP_unfold])
        OG_FAIL(error, OGIVE_UNSUPPORTED, -1,
                "a PyTorch file cannot call unfold, which is another function in PyTorch (a method "
                "of tensors has this meaning); ogive.torch has it");
    for (int op = 0; op < OG_FUNCTION_COUNT; op++)
        if (graph->calls[op] && !og_function_module((og_op)op))
            OG_FAIL(error, OGIVE_UNSUPPORTED, -1,
                    "a PyTorch file cannot call %s, which gives something else in PyTorch; write "
                    "%s",
                    og_function_of((og_op)op)->name,
                    op == OG_OP_max   ? "amax or maximum"
                    : op == OG_OP_min ? "amin or minimum"
                                      : "var or std, and mean");
    for (int32_t n = 0; n < graph->node_count; n++) {
        const og_node *node = &graph->nodes[n];
        if (node->op == OG_OP_truth || node->op == OG_OP_boolean)
            OG_FAIL(error, OGIVE_UNSUPPORTED, node->offset,
                    "a PyTorch file reads no tensor of bool and gives none; a comparison goes into "
                    "where()");
    }
    return OGIVE_OK;
}

static ogive_status emit(const og_graph *graph, const DLTensor *const *inputs,
                         const ogive_pytorch_options *options, og_arena *arena, og_text *text,
                         ogive_error *error)
{
    size_t count = (size_t)graph->input_count;
    og_pytorch_shape *shapes = OG_ARENA_NEW(arena, og_pytorch_shape, count);
    if (!shapes)
        return og_fail_memory(error, count * sizeof *shapes);
    OG_TRY(check_functions(graph, error));
    for (size_t i = 0; i < count; i++)
        OG_TRY(read_shape(inputs ? inputs[i] : NULL, graph->inputs[i].name, &shapes[i], error));
    return og_pytorch_emit(graph, shapes, options, text, error);
}

ogive_status ogive_formula_pytorch(const ogive_formula *formula, const DLTensor *const *inputs,
                                   size_t input_count, const ogive_pytorch_options *options,
                                   char *buffer, size_t capacity, size_t *length,
                                   ogive_error *error)
{
    static const ogive_pytorch_options none = {.size = sizeof none};
    og_error_clear(error);
    if (!formula || !length || (capacity && !buffer))
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "formula, length or buffer is NULL");
    *length = 0;
    if (formula->graph.differs)
        OG_FAIL(error, OGIVE_UNSUPPORTED, -1,
                "a file is written of a formula as it was given, not of what was made of it");
    if (inputs && input_count != (size_t)formula->graph.input_count)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "the formula has %d inputs, %zu were given",
                (int)formula->graph.input_count, input_count);
    if (options && options->size != sizeof *options)
        OG_FAIL(error, OGIVE_ARGUMENT, -1,
                "options.size is %zu: expected sizeof(ogive_pytorch_options), %zu", options->size,
                sizeof *options);
    if (options && ((options->module_count && !options->modules) ||
                    (options->scalar_count && !options->scalars)))
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "options.modules or options.scalars is NULL");
    og_arena arena = {0};
    og_text text = {0};
    fenv_t state; /* digits of numbers depend on the rounding mode */
    og_float_state_enter(&state);
    ogive_status status =
        emit(&formula->graph, inputs, options ? options : &none, &arena, &text, error);
    og_float_state_leave(&state);
    if (status == OGIVE_OK) {
        *length = text.length;
        if (capacity) {
            size_t kept = text.length < capacity ? text.length : capacity - 1;
            memcpy(buffer, text.data, kept);
            buffer[kept] = 0;
        }
    }
    og_text_free(&text);
    og_arena_free(&arena);
    return status;
}
