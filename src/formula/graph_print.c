/* SPDX-License-Identifier: MIT
 *
 * graph_print.c - a graph as text for golden tests, and what to call its nodes
 * in messages.
 */
#include "formula/graph.h"

const char *og_node_label(const og_graph *graph, const og_node *node)
{
    if (node->op == OG_OP_INPUT)
        return graph->inputs[node->index].name;
    if (node->op == OG_OP_NUMBER || node->called >= OG_FUNCTION_COUNT)
        return "number";
    /* A function is called by its name: the text has a letter there. */
    const char *symbol = og_function_of(node->called)->symbol;
    char first =
        node->offset >= 0 && (size_t)node->offset < graph->length ? graph->text[node->offset] : 'a';
    bool is_letter = (first >= 'a' && first <= 'z') || (first >= 'A' && first <= 'Z');
    return symbol && !is_letter ? symbol : og_function_of(node->called)->name;
}

static void print_dims(const og_node *node, og_text *text)
{
    if (node->all_dims)
        og_text_add(text, " dim=all");
    for (int i = 0; i < node->dim_count; i++)
        og_text_add(text, "%s%d%s",
                    i                ? ", "
                    : node->all_dims ? " but ("
                                     : " dim=(",
                    (int)node->dims[i], i + 1 == node->dim_count ? ")" : "");
    for (int i = 0; i < node->dim_count && node->has_sizes; i++)
        og_text_add(text, "%s%lld%s", i ? ", " : " sizes=(", (long long)node->sizes[i],
                    i + 1 == node->dim_count ? ")" : "");
    if (node->keepdim)
        og_text_add(text, " keepdim");
}

static void print_node(const og_graph *graph, const og_node *node, og_text *text)
{
    char number[OG_NUMBER_TEXT];
    if (node->op == OG_OP_INPUT) {
        og_text_add(text, "input %s\n", graph->inputs[node->index].name);
        return;
    }
    if (node->op == OG_OP_NUMBER) {
        og_text_add(text, "number %s%s\n", og_number_text(node->numbers[0], number),
                    node->is_real ? " (a float)" : "");
        return;
    }
    const og_function *function = og_function_of(node->op);
    og_text_add(text, "%s", function->name);
    for (int i = 0; i < node->arg_count; i++)
        og_text_add(text, " n%d", (int)node->args[i]);
    print_dims(node, text);
    bool has_number = node->op == OG_OP_count || node->op == OG_OP_full_like;
    int constants = og_op_slices(node->op) ? 2 : has_number ? 1 : function->constants;
    for (int i = 0; i < constants; i++)
        og_text_add(text, " %s", og_number_text(node->numbers[i], number));
    if (node->called != node->op && node->called < OG_FUNCTION_COUNT)
        og_text_add(text, " [%s]", og_function_of(node->called)->name);
    og_text_add(text, "\n");
}

void og_graph_print(const og_graph *graph, og_text *text)
{
    for (int32_t i = 0; i < graph->node_count; i++) {
        og_text_add(text, "n%d = ", (int)i);
        print_node(graph, &graph->nodes[i], text);
    }
    for (int32_t i = 0; i < graph->check_count; i++) {
        const og_size_check *check = &graph->checks[i];
        char shape[OG_SHAPE_TEXT];
        og_text_add(text, "check %s n%d %s\n", check->parameter, (int)check->node,
                    og_shape_text(check->rank, check->sizes, shape));
    }
    og_text_add(text, "results");
    for (int32_t i = 0; i < graph->result_count; i++)
        og_text_add(text, " n%d", (int)graph->results[i]);
    og_text_add(text, "\n");
}
