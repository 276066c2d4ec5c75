/* SPDX-License-Identifier: MIT
 *
 * fuzz_formula.c - any bytes as a formula: parse, print, infer with a few shapes,
 * plan; the same of its gradient. Whatever is promised of graphs, plans and errors is
 * checked with abort().
 */
#include "plan/planner.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void check_error(const ogive_error *error, size_t size)
{
    size_t length = strlen(error->message);
    require(length > 0 && length < sizeof error->message);
    require(error->offset >= -1 && error->offset <= (int64_t)size);
    for (size_t i = 0; i < length; i++)
        require((unsigned char)error->message[i] >= 0x20);
}

static void check_graph(const og_graph *graph)
{
    require(graph->input_count > 0 && graph->result_count > 0);
    for (int32_t i = 0; i < graph->node_count; i++) {
        const og_node *node = &graph->nodes[i];
        for (int a = 0; a < OG_MAX_ARGS; a++)
            require(a < node->arg_count ? node->args[a] >= 0 && node->args[a] < i
                                        : node->args[a] == -1);
        require(node->offset >= 0 && node->offset <= (int64_t)graph->length);
        require(og_node_label(graph, node)[0] != '\0');
    }
    for (int32_t i = 0; i < graph->result_count; i++)
        require(!graph->nodes[graph->results[i]].is_constant);
}

static void check_types(const og_graph *graph, const og_typed *types)
{
    for (int32_t i = 0; i < graph->node_count; i++) {
        int64_t count;
        require(types[i].rank >= 0 && types[i].rank <= OG_MAX_RANK);
        require(og_shape_count(types[i].rank, types[i].shape, &count) && count >= 0);
        require(!types[i].is_number || types[i].rank == 0);
        require(!graph->nodes[i].is_constant || types[i].is_number);
    }
    for (int32_t i = 0; i < graph->result_count; i++)
        require(!types[graph->results[i]].is_number && !types[graph->results[i]].is_mask);
}

/* Shapes that often fit: mostly equal, with now and then another rank or size. */
static void make_inputs(const og_graph *graph, int round, og_input_type *inputs)
{
    static const int64_t sizes[] = {4, 4, 4, 1, 0, 3, 512, INT64_C(1) << 33};
    for (int32_t i = 0; i < graph->input_count; i++) {
        uint32_t random = (uint32_t)(i * 7 + round) * 2654435761u;
        inputs[i].dtype = (og_dtype)(round & 1 ? random >> 30 : 0);
        inputs[i].rank = round < 2 ? 2 : (int32_t)(random >> 13) % (OG_MAX_RANK + 1);
        for (int d = 0; d < inputs[i].rank; d++)
            inputs[i].shape[d] = sizes[round == 0 ? 0 : (random >> (d + 4)) % 8];
    }
}

/* Arguments exist when they are used, and where: values of elements in their own pass. */
static void check_section(const og_kernel *kernel, int32_t pass, const og_instr *instrs,
                          int32_t count, og_level level)
{
    for (int32_t i = 0; i < count; i++) {
        const og_instr *at = &instrs[i];
        require(at->dst < kernel->value_count && (at->dst < 0) == (at->op == OG_OP_STORE));
        for (int a = 0; a < OG_MAX_ARGS && at->args[a] >= 0; a++) {
            require(at->args[a] < kernel->value_count && at->args[a] != at->dst);
            const og_value *value = &kernel->values[at->args[a]];
            require(value->level == OG_ROW ? value->pass <= pass
                                           : level == OG_ELEMENT && value->pass == pass);
        }
        if (at->op == OG_OP_LOAD || at->op == OG_OP_STORE)
            require(at->index >= 0 && at->index < kernel->access_count);
        if (at->op == OG_OP_PRODUCT)
            require(pass == 0 && level == OG_ELEMENT && at->index < kernel->product_count);
    }
}

static void check_plan(const og_plan *plan)
{
    og_text text = {0};
    for (int32_t k = 0; k < plan->kernel_count; k++) {
        const og_kernel *kernel = &plan->kernels[k];
        require(kernel->product_count >= 0 && kernel->product_count <= OG_MAX_PRODUCTS);
        require(og_space_count(&kernel->space, false) >= 0);
        require(kernel->bytes_read >= 0 && kernel->bytes_written >= 0);
        for (int32_t p = 0; p < kernel->pass_count; p++) {
            const og_pass *pass = &kernel->passes[p];
            check_section(kernel, p, pass->elements, pass->element_count, OG_ELEMENT);
            check_section(kernel, p, pass->rows, pass->row_count, OG_ROW);
            for (int32_t r = 0; r < pass->reduction_count; r++)
                require(kernel->values[pass->reductions[r].dst].level == OG_ROW);
        }
        og_kernel_print(plan, k, NULL, &text);
    }
    og_text_free(&text);
}

/* False if the tensor is larger than any memory: no caller can have it. */
static bool lay_out(og_dtype dtype, int32_t rank, const int64_t *shape, og_layout *layout)
{
    int64_t count;
    *layout = (og_layout){.dtype = dtype, .rank = rank};
    memcpy(layout->shape, shape, (size_t)rank * sizeof *shape);
    return og_layout_contiguous(layout) && og_shape_count(rank, shape, &count) && count < 1 << 30;
}

static void plan(const og_graph *graph, const og_input_type *inputs, const og_typed *types,
                 size_t size)
{
    og_layout *in = calloc((size_t)graph->input_count, sizeof *in);
    og_layout *out = calloc((size_t)graph->result_count, sizeof *out);
    ogive_error error;
    og_plan made;
    require(in && out);
    bool fits = true;
    for (int32_t i = 0; i < graph->input_count; i++)
        fits &= lay_out(inputs[i].dtype, inputs[i].rank, inputs[i].shape, &in[i]);
    for (int32_t i = 0; i < graph->result_count; i++) {
        const og_typed *type = &types[graph->results[i]];
        fits &= lay_out(type->dtype, type->rank, type->shape, &out[i]);
    }
    if (fits && og_plan_build(graph, types, in, out, (og_plan_rules){0}, &made, &error)) {
        check_error(&error, size);
    } else if (fits) {
        check_plan(&made);
        og_plan_free(&made);
    }
    free(in);
    free(out);
}

/* Infers and plans with a few shapes. */
static void use_graph(const og_graph *graph, size_t size)
{
    ogive_error error;
    og_typed *types = malloc((size_t)graph->node_count * sizeof *types);
    og_input_type *inputs = calloc((size_t)graph->input_count, sizeof *inputs);
    require(types && inputs);
    for (int round = 0; round < 4; round++) {
        make_inputs(graph, round, inputs);
        if (og_infer(graph, inputs, types, &error)) {
            check_error(&error, size);
            continue;
        }
        check_types(graph, types);
        plan(graph, inputs, types, size);
    }
    free(types);
    free(inputs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    og_graph graph, gradient;
    ogive_error error;
    if (og_graph_parse((const char *)data, size, &graph, &error)) {
        check_error(&error, size);
        return 0;
    }
    check_graph(&graph);
    og_text text = {0};
    og_graph_print(&graph, &text);
    og_text_free(&text);
    use_graph(&graph, size);
    const char *by[] = {graph.inputs[0].name};
    if (og_graph_gradient(&graph, by, 1, &gradient, &error)) {
        check_error(&error, size);
    } else {
        use_graph(&gradient, size);
        og_graph_free(&gradient);
    }
    og_graph_free(&graph);
    return 0;
}
