/* SPDX-License-Identifier: MIT
 *
 * fuzz_formula.c - any bytes as a formula: parse, print, and infer with a few
 * shapes. Whatever is promised of graphs and errors is checked with abort().
 */
#include "formula/infer.h"

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    og_graph graph;
    ogive_error error;
    if (og_graph_parse((const char *)data, size, &graph, &error)) {
        check_error(&error, size);
        return 0;
    }
    check_graph(&graph);
    og_text text = {0};
    og_graph_print(&graph, &text);
    og_text_free(&text);

    og_typed *types = malloc((size_t)graph.node_count * sizeof *types);
    og_input_type *inputs = calloc((size_t)graph.input_count, sizeof *inputs);
    require(types && inputs);
    for (int round = 0; round < 4; round++) {
        make_inputs(&graph, round, inputs);
        if (og_infer(&graph, inputs, types, &error))
            check_error(&error, size);
        else
            check_types(&graph, types);
    }
    free(types);
    free(inputs);
    og_graph_free(&graph);
    return 0;
}
