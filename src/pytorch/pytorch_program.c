/* SPDX-License-Identifier: MIT
 *
 * pytorch_program.c - plans a formula, or its gradient, for sizes that stand for classes
 * of sizes, and reads the plan back: which dim of which tensor an operand moves along.
 */
#include "formula/infer_node.h"
#include "pytorch/pytorch_program.h"

#include <stdio.h>
#include <string.h>

enum { COUNT_NAME = 24 };

/* ---- making ---------------------------------------------------------------------- */

static ogive_status infer_program(og_pytorch_program *p, const og_pytorch_shape *shapes,
                                  og_arena *arena, ogive_error *error)
{
    const og_graph *graph = &p->graph;
    og_input_type *inputs = OG_ARENA_NEW(arena, og_input_type, (size_t)graph->input_count);
    p->types = OG_ARENA_NEW(arena, og_typed, (size_t)graph->node_count);
    if (!inputs || !p->types)
        return og_fail_memory(error, (size_t)graph->node_count * sizeof *p->types);
    for (int32_t i = 0; i < p->tensor_count; i++) { /* those after them are counts: 0-d */
        inputs[i].rank = shapes[i].rank;
        memcpy(inputs[i].shape, shapes[i].shape, sizeof inputs[i].shape);
    }
    return og_infer(graph, inputs, p->types, error);
}

/* Counts elements: of dims that are reduced, or of the one that a window sees all of. */
static bool counts(const og_node *node)
{
    return node->op == OG_OP_count || node->op == OG_OP_part_size;
}

/* Node n, which counts, becomes an input: its value is not known before the sizes are. */
static ogive_status replace_count(og_pytorch_program *p, int32_t n, og_arena *arena,
                                  ogive_error *error)
{
    og_node *node = &p->graph.nodes[n];
    bool is_part = node->op == OG_OP_part_size;
    const og_typed *arg = &p->types[node->args[is_part]];
    og_pytorch_count *count = &p->counts[p->count_count];
    uint32_t reduced;
    char *name = OG_ARENA_NEW(arena, char, COUNT_NAME);
    if (!name)
        return og_fail_memory(error, COUNT_NAME);
    if (is_part)
        reduced = 1u << (node->dims[0] + (node->dims[0] < 0 ? arg->rank : 0));
    else
        OG_TRY(og_infer_reduced(&p->graph, node, arg, &reduced, error));
    for (int32_t d = 0; d < arg->rank; d++)
        if (reduced >> d & 1)
            count->factors[count->rank++] = arg->shape[d];
    count->correction = is_part ? 0 : node->numbers[0];
    snprintf(name, COUNT_NAME, "count %d", (int)p->count_count);
    int32_t input = p->tensor_count + p->count_count++;
    p->graph.inputs[input] = (og_input){.name = name, .offset = node->offset};
    *node = (og_node){.op = OG_OP_INPUT,
                      .called = node->called,
                      .rule = OG_OP_INPUT,
                      .args = {-1, -1, -1},
                      .index = input,
                      .offset = node->offset};
    return OGIVE_OK;
}

/* A copy of graph that may be changed. */
static ogive_status copy_graph(const og_graph *graph, og_arena *arena, og_pytorch_program *p,
                               ogive_error *error)
{
    size_t nodes = (size_t)graph->node_count, inputs = (size_t)graph->input_count;
    p->graph = *graph;
    p->graph.nodes = OG_ARENA_NEW(arena, og_node, nodes);
    p->graph.inputs = OG_ARENA_NEW(arena, og_input, inputs + nodes);
    p->counts = OG_ARENA_NEW(arena, og_pytorch_count, nodes);
    if (!p->graph.nodes || !p->graph.inputs || !p->counts)
        return og_fail_memory(error, nodes * sizeof *p->graph.nodes);
    memcpy(p->graph.nodes, graph->nodes, nodes * sizeof *graph->nodes);
    memcpy(p->graph.inputs, graph->inputs, inputs * sizeof *graph->inputs);
    p->tensor_count = graph->input_count;
    return OGIVE_OK;
}

static void set_layout(og_layout *layout, int32_t rank, const int64_t *shape)
{
    *layout = (og_layout){.dtype = OG_FLOAT32, .rank = rank};
    memcpy(layout->shape, shape, sizeof layout->shape);
    og_layout_contiguous(layout);
}

static ogive_status plan_program(og_pytorch_program *p, const og_pytorch_shape *shapes,
                                 og_arena *arena, ogive_error *error)
{
    const og_graph *graph = &p->graph;
    og_layout *inputs = OG_ARENA_NEW(arena, og_layout, (size_t)graph->input_count);
    og_layout *outputs = OG_ARENA_NEW(arena, og_layout, (size_t)graph->result_count);
    if (!inputs || !outputs)
        return og_fail_memory(error, (size_t)graph->input_count * sizeof *inputs);
    for (int32_t i = 0; i < p->tensor_count; i++)
        set_layout(&inputs[i], shapes[i].rank, shapes[i].shape);
    for (int32_t i = 0; i < graph->result_count; i++) {
        const og_typed *type = &p->types[graph->results[i]];
        set_layout(&outputs[i], type->rank, type->shape);
    }
    return og_plan_build(graph, p->types, inputs, outputs,
                         (og_plan_rules){.sharing = OG_SHARE_NONE, .keeps_dims = true}, &p->plan,
                         error);
}

/* ---- what is not emitted ------------------------------------------------------------ */

static bool has_conversion(const og_instr *instrs, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        if (instrs[i].op == OG_OP_CONVERT)
            return true;
    return false;
}

/* Are all strides those of a contiguous tensor? */
static bool is_plain(const og_buffer *buffer)
{
    og_layout layout = {.rank = buffer->rank};
    memcpy(layout.shape, buffer->shape, sizeof layout.shape);
    og_layout_contiguous(&layout);
    for (int32_t d = 0; d < buffer->rank; d++)
        if (buffer->shape[d] != 1 && buffer->stride[d] != layout.stride[d])
            return false;
    return true;
}

enum { MAX_OPERANDS = 20, MAX_NUMBERS = 16 }; /* call.cuh's, less a product's factors */

static ogive_status check_program(const og_pytorch_program *p, int32_t numbers, ogive_error *error)
{
    if (numbers > MAX_NUMBERS)
        OG_FAIL(error, OGIVE_UNSUPPORTED, -1,
                "%d scalars and counts: a PyTorch file takes at most %d", (int)numbers,
                MAX_NUMBERS);
    for (int32_t b = 0; b < p->plan.buffer_count; b++)
        if (!is_plain(&p->plan.buffers[b]))
            OG_FAIL(error, OGIVE_UNSUPPORTED, -1,
                    "a product sums over dims that do not lie side by side: a PyTorch file "
                    "has no kernel for that");
    for (int32_t k = 0; k < p->plan.kernel_count; k++) {
        const og_kernel *kernel = &p->plan.kernels[k];
        if (kernel->access_count > MAX_OPERANDS)
            OG_FAIL(error, OGIVE_UNSUPPORTED, -1,
                    "a kernel of %d operands: a PyTorch file takes at most %d",
                    (int)kernel->access_count, MAX_OPERANDS);
        if (kernel->product_count > 1)
            OG_FAIL(error, OGIVE_UNSUPPORTED, -1, "two products in one kernel are not emitted");
        if (kernel->product_count && kernel->pass_count > 1)
            OG_FAIL(error, OGIVE_UNSUPPORTED, -1,
                    "a product followed by two sweeps over its rows is not emitted");
        for (int32_t i = 0; i < kernel->pass_count; i++)
            if (has_conversion(kernel->passes[i].elements, kernel->passes[i].element_count) ||
                has_conversion(kernel->passes[i].rows, kernel->passes[i].row_count))
                OG_FAIL(error, OGIVE_UNSUPPORTED, -1,
                        "a PyTorch file computes in one dtype, that of its inputs");
    }
    return OGIVE_OK;
}

/* Pointwise, and every operand but 0-d ones has all dims of the space. */
static bool is_uniform(const og_pytorch_program *p)
{
    const og_buffer *first = NULL;
    for (int32_t b = 0; b < p->plan.buffer_count; b++) {
        const og_buffer *buffer = &p->plan.buffers[b];
        if (buffer->rank == 0)
            continue;
        if (first && (first->rank != buffer->rank ||
                      memcmp(first->shape, buffer->shape, sizeof first->shape) != 0))
            return false;
        first = buffer;
    }
    for (int32_t k = 0; k < p->plan.kernel_count; k++) {
        const og_kernel *kernel = &p->plan.kernels[k];
        if (og_pytorch_form(kernel) != OG_KERNEL_POINTWISE)
            return false;
        for (int32_t a = 0; a < kernel->access_count; a++) { /* no transposed views */
            int32_t dims[OG_MAX_RANK];
            if (p->plan.buffers[kernel->accesses[a].buffer].rank == 0)
                continue;
            og_pytorch_access_dims(&p->plan, kernel, &kernel->accesses[a], dims);
            for (int32_t d = 0; d < kernel->space.rank; d++)
                if (dims[d] != d)
                    return false;
        }
    }
    return first != NULL;
}

ogive_status og_pytorch_program_make(const og_graph *graph, const char *name,
                                     const og_pytorch_shape *shapes, const og_pytorch_role *roles,
                                     og_arena *arena, og_pytorch_program *p, ogive_error *error)
{
    memset(p, 0, sizeof *p);
    p->name = name;
    OG_TRY(copy_graph(graph, arena, p, error));
    OG_TRY(infer_program(p, shapes, arena, error));
    for (int32_t n = 0; n < graph->node_count; n++)
        if (counts(&graph->nodes[n]))
            OG_TRY(replace_count(p, n, arena, error));
    p->graph.input_count = p->tensor_count + p->count_count;
    OG_TRY(infer_program(p, shapes, arena, error));
    OG_TRY(plan_program(p, shapes, arena, error));
    p->is_uniform = is_uniform(p);
    ogive_status status =
        check_program(p, og_pytorch_number(p, roles, p->graph.input_count), error);
    if (status != OGIVE_OK)
        og_pytorch_program_free(p);
    return status;
}

void og_pytorch_program_free(og_pytorch_program *program)
{
    og_plan_free(&program->plan);
}

/* ---- reading a plan ------------------------------------------------------------------- */

og_kernel_form og_pytorch_form(const og_kernel *kernel)
{
    if (kernel->product_count)
        return OG_KERNEL_PRODUCT;
    for (int32_t p = 0; p < kernel->pass_count; p++)
        if (kernel->passes[p].reduction_count || kernel->passes[p].row_count)
            return OG_KERNEL_ROWS;
    return OG_KERNEL_POINTWISE;
}

int32_t og_pytorch_number(const og_pytorch_program *program, const og_pytorch_role *roles,
                          int32_t input)
{
    int32_t number = 0;
    for (int32_t i = 0; i < input; i++)
        number += i >= program->tensor_count || roles[i] == OG_PYTORCH_SCALAR;
    return number;
}

bool og_pytorch_is_number(const og_pytorch_program *program, const og_pytorch_role *roles,
                          const og_access *access)
{
    const og_buffer *buffer = &program->plan.buffers[access->buffer];
    return buffer->kind == OG_BUFFER_INPUT &&
           (buffer->index >= program->tensor_count || roles[buffer->index] == OG_PYTORCH_SCALAR);
}

void og_pytorch_access_dims(const og_plan *plan, const og_kernel *kernel, const og_access *access,
                            int32_t dims[OG_MAX_RANK])
{
    const og_buffer *buffer = &plan->buffers[access->buffer];
    for (int32_t d = 0; d < OG_MAX_RANK; d++) {
        dims[d] = -1;
        for (int32_t e = 0; d < kernel->space.rank && access->stride[d] && e < buffer->rank; e++)
            if (buffer->shape[e] != 1 && buffer->stride[e] == access->stride[d])
                dims[d] = e;
    }
}
