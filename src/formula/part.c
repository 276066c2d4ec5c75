/* SPDX-License-Identifier: MIT
 *
 * part.c - a part of a graph is another graph: what computes some nodes from others,
 * which become its inputs. Knows nodes alone; which of them are worth cutting at is
 * for others to say.
 */
#include "formula/builder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VALUE_NAME = OG_NEW_NAME + 24 };

/* Is prefix, or prefix and a dot and more, the name of an input? */
static bool is_taken(const og_graph *graph, const char *prefix)
{
    size_t length = strlen(prefix);
    for (int32_t i = 0; i < graph->input_count; i++) {
        const char *name = graph->inputs[i].name;
        if (!strncmp(name, prefix, length) && (name[length] == '\0' || name[length] == '.'))
            return true;
    }
    return false;
}

void og_graph_new_name(const og_graph *graph, const char *word, char name[OG_NEW_NAME])
{
    snprintf(name, OG_NEW_NAME, "%s", word);
    for (int number = 2; is_taken(graph, name); number++)
        snprintf(name, OG_NEW_NAME, "%s%d", word, number);
}

typedef struct {
    const og_graph *graph;
    const int32_t *given;
    size_t given_count;
    char (*names)[VALUE_NAME]; /* [given] */
    og_builder builder;
    int32_t *copies; /* [node of graph]: node of the builder; -1: not needed */
} parting;

/* Which of those given node is; given_count if it is none. */
static size_t find_given(const parting *p, int32_t node)
{
    size_t i = 0;
    while (i < p->given_count && p->given[i] != node)
        i++;
    return i;
}

static void find_needed(const parting *p, const int32_t *wanted, size_t count)
{
    memset(p->copies, -1, (size_t)p->graph->node_count * sizeof *p->copies);
    for (size_t i = 0; i < count; i++)
        p->copies[wanted[i]] = 0;
    for (int32_t n = p->graph->node_count; n-- > 0;) {
        const og_node *node = &p->graph->nodes[n];
        if (p->copies[n] == 0 && find_given(p, n) == p->given_count)
            for (int a = 0; a < node->arg_count; a++)
                p->copies[node->args[a]] = 0;
    }
}

static ogive_status copy_node(parting *p, int32_t n)
{
    og_node node = p->graph->nodes[n];
    size_t given = find_given(p, n);
    if (node.op != OG_OP_INPUT && given == p->given_count) {
        for (int a = 0; a < node.arg_count; a++)
            node.args[a] = p->copies[node.args[a]];
        return og_build_copy(&p->builder, &node, &p->copies[n]);
    }
    const char *name = given < p->given_count ? p->names[given] : p->graph->inputs[node.index].name;
    og_operand input;
    OG_TRY(og_build_input(&p->builder, name, strlen(name), node.offset, &input));
    p->copies[n] = input.index;
    return OGIVE_OK;
}

/* A check of what is not there is left out. */
static ogive_status copy_check(parting *p, og_size_check check)
{
    check.node = p->copies[check.node];
    check.input = p->copies[check.input];
    check.before = (int32_t)p->builder.node_count;
    return check.node < 0 || check.input < 0 ? OGIVE_OK : og_build_check(&p->builder, &check);
}

static ogive_status copy_needed(parting *p)
{
    const og_graph *graph = p->graph;
    int32_t check = 0;
    for (int32_t n = 0; n <= graph->node_count; n++) {
        for (; check < graph->check_count && graph->checks[check].before <= n; check++)
            OG_TRY(copy_check(p, graph->checks[check]));
        if (n < graph->node_count && p->copies[n] == 0)
            OG_TRY(copy_node(p, n));
    }
    return OGIVE_OK;
}

ogive_status og_graph_part(const og_graph *graph, const int32_t *wanted, size_t wanted_count,
                           const int32_t *given, size_t given_count, og_graph *part,
                           ogive_error *error)
{
    int32_t results[OG_MAX_RESULTS];
    char prefix[OG_NEW_NAME];
    og_arena arena = {0};
    parting p = {.graph = graph, .given = given, .given_count = given_count};
    *part = (og_graph){0};
    p.copies = OG_ARENA_NEW(&arena, int32_t, (size_t)graph->node_count);
    p.names = og_arena_alloc(&arena, given_count, sizeof *p.names);
    og_builder_init(&p.builder, error);
    ogive_status status = OGIVE_OK;
    if (!p.copies || !p.names)
        status = og_fail_memory(error, (size_t)graph->node_count * sizeof *p.copies);
    og_graph_new_name(graph, "value", prefix);
    for (size_t i = 0; i < given_count && !status; i++)
        snprintf(p.names[i], VALUE_NAME, "%s.%zu", prefix, i);
    if (!status) {
        find_needed(&p, wanted, wanted_count);
        status = copy_needed(&p);
    }
    for (size_t i = 0; i < wanted_count && !status; i++)
        results[i] = p.copies[wanted[i]];
    if (!status)
        status = og_builder_finish(&p.builder, graph->text, graph->length, results,
                                   (int32_t)wanted_count, part);
    og_builder_free(&p.builder);
    og_arena_free(&arena);
    return status;
}

const og_node *og_graph_product(const og_graph *graph, const og_node *node)
{
    const og_node *product = node;
    if (node->op == OG_OP_add)
        product = &graph->nodes[node->args[0]];
    bool is_product = product->op == OG_OP_matmul || product->op == OG_OP_linear_product;
    return node->is_product && is_product ? product : NULL;
}

bool og_graph_reads(const og_graph *graph, int32_t input)
{
    bool *read = calloc((size_t)graph->node_count, sizeof *read);
    bool found = !read; /* without memory nothing is promised */
    for (int32_t i = 0; read && i < graph->result_count; i++)
        read[graph->results[i]] = true;
    for (int32_t n = graph->node_count; !found && n-- > 0;) {
        const og_node *node = &graph->nodes[n];
        int count = node->op == OG_OP_count ? 0 : og_op_value_count(node->op, node->arg_count);
        found = read[n] && node->op == OG_OP_INPUT && node->index == input;
        for (int a = 0; read[n] && a < count; a++)
            read[node->args[a]] = true;
    }
    free(read);
    return found;
}

int32_t og_graph_source(const og_graph *graph, int32_t result)
{
    int32_t node = graph->results[result];
    while (graph->nodes[node].op == OG_OP_sum_like || graph->nodes[node].op == OG_OP_cast_like)
        node = graph->nodes[node].args[0];
    return node;
}
