/* SPDX-License-Identifier: MIT
 *
 * graph_text.c - a graph as a formula for people: what a gradient computes. Functions that have
 * no group, which the parser does not take, are written by their names. A node that is used
 * several times is bound, as is one whose text would be nested too deeply.
 */
#include "formula/graph.h"

#include <stdio.h>
#include <string.h>

enum { DEEPEST = 40 };

typedef struct {
    const og_graph *graph;
    int32_t *uses;   /* of each node by what results need */
    int32_t *bound;  /* the number of its name, or -1 */
    int32_t *depth;  /* of its text, were it not bound */
    uint64_t *shape; /* which inputs and reductions its shape is broadcast from, as bits */
    int32_t *shown;  /* the node whose text it has: its own, or the first argument's */
    char letter;     /* that names begin with */
    og_text *text;
} writer;

static void write_node(const writer *w, int32_t index, og_binding least);

/* Inputs and numbers are as short as a name. */
static bool is_leaf(const og_node *node)
{
    return node->op == OG_OP_INPUT || node->op == OG_OP_NUMBER;
}

/* The shape of a node by those of its arguments. */
static uint64_t find_shape(const writer *w, int32_t index)
{
    const og_node *node = &w->graph->nodes[index];
    bool like_second = node->op == OG_OP_sum_like || node->op == OG_OP_cast_like ||
                       node->op == OG_OP_expand || node->op == OG_OP_broadcast_like;
    if (node->op == OG_OP_NUMBER || node->op == OG_OP_count)
        return 0;
    if (like_second)
        return w->shape[node->args[1]];
    bool pointwise = node->op != OG_OP_INPUT &&
                     (og_function_of(node->op)->kind <= OG_MASKING || node->op == OG_OP_where);
    if (!pointwise)
        return UINT64_C(1) << index % 64; /* two that share a bit are only taken for broader */
    uint64_t shape = 0;
    for (int a = 0; a < node->arg_count; a++)
        shape |= w->shape[node->args[a]];
    return shape;
}

/* Casts to another value's dtype are left out, and sums over what broadcasting added where it
 * can have added nothing. */
static void find_shown(const writer *w)
{
    for (int32_t i = 0; i < w->graph->node_count; i++) {
        const og_node *node = &w->graph->nodes[i];
        bool same = node->op == OG_OP_cast_like ||
                    (node->op == OG_OP_sum_like && w->graph->node_count <= 64 &&
                     !(w->shape[node->args[0]] & ~w->shape[node->args[1]]));
        w->shown[i] = same ? w->shown[node->args[0]] : i;
        if (node->op == OG_OP_cast_like && w->graph->nodes[node->args[0]].op == OG_OP_INPUT)
            w->shape[node->args[0]] = w->shape[node->args[1]]; /* grad has the result's */
        w->shape[i] = find_shape(w, i);
    }
}

static void count_uses(const writer *w)
{
    const og_graph *graph = w->graph;
    for (int32_t i = 0; i < graph->result_count; i++)
        w->uses[w->shown[graph->results[i]]]++;
    for (int32_t i = graph->node_count - 1; i >= 0; i--) /* arguments come before */
        for (int a = 0; a < graph->nodes[i].arg_count && w->uses[i]; a++)
            w->uses[w->shown[graph->nodes[i].args[a]]]++;
}

static void choose_bound(const writer *w)
{
    int32_t count = 0;
    for (int32_t i = 0; i < w->graph->node_count; i++) {
        const og_node *node = &w->graph->nodes[i];
        int32_t deepest = 0;
        for (int a = 0; a < node->arg_count; a++)
            if (w->bound[w->shown[node->args[a]]] < 0 &&
                w->depth[w->shown[node->args[a]]] > deepest)
                deepest = w->depth[w->shown[node->args[a]]];
        w->depth[i] = deepest + 1;
        w->bound[i] = !is_leaf(node) && (w->uses[i] > 1 || (w->uses[i] && w->depth[i] > DEEPEST))
                          ? count++
                          : -1;
    }
}

static bool is_input_name(const og_graph *graph, char letter)
{
    for (int32_t i = 0; i < graph->input_count; i++)
        if (graph->inputs[i].name[0] == letter)
            return true;
    return false;
}

/* "dim=(0, 1)", and for transpose its two dims. */
static void write_dims(const writer *w, const og_node *node)
{
    if (node->op == OG_OP_transpose) {
        og_text_add(w->text, ", %d, %d", (int)node->dims[0], (int)node->dims[1]);
        return;
    }
    bool all_but = node->all_dims && node->dim_count;
    og_text_add(w->text, all_but ? ", all_but(" : node->dim_count ? ", " : "");
    for (int i = 0; i < node->dim_count; i++)
        og_text_add(w->text, "%s%d%s",
                    i                     ? ", "
                    : node->dim_count > 1 ? "("
                                          : "",
                    (int)node->dims[i], i && i + 1 == node->dim_count ? ")" : "");
    og_text_add(w->text, all_but ? ")" : "");
    if (node->keepdim)
        og_text_add(w->text, ", keepdim=true");
}

/* ", kernel_size=(3, 3), stride=(2, 2)": what is not as it is when it is not given. */
static void write_windows(const writer *w, const og_node *node)
{
    const og_sliding *s = &node->sliding;
    bool convolves = og_op_convolves(node->op);
    const struct {
        const char *name;
        const int32_t *steps;
        int32_t usual;
    } lists[] = {{convolves ? "output_padding" : "kernel_size", s->size, convolves ? 0 : -1},
                 {"stride", s->stride, 1},
                 {"padding", s->padding, 0},
                 {"dilation", s->dilation, 1}};
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++) {
        bool is_usual = true;
        for (int i = 0; i < s->rank; i++)
            is_usual &= lists[l].steps[i] == lists[l].usual;
        if (is_usual)
            continue;
        if (lists[l].steps[0] == OG_SAME) {
            og_text_add(w->text, ", %s='same'", lists[l].name);
            continue;
        }
        og_text_add(w->text, ", %s=%s", lists[l].name, s->rank > 1 ? "(" : "");
        for (int i = 0; i < s->rank; i++)
            og_text_add(w->text, i ? ", %d" : "%d", (int)lists[l].steps[i]);
        og_text_add(w->text, s->rank > 1 ? ")" : "");
    }
    if (convolves && node->numbers[1] != 1)
        og_text_add(w->text, ", groups=%.0f", node->numbers[1]);
}

/* What shows that an integer is a float to PyTorch. */
static const char *get_point(const og_node *node, const char *digits)
{
    return node->is_real && !strpbrk(digits, ".en") ? ".0" : "";
}

static void write_call(const writer *w, const og_node *node)
{
    const og_function *function = og_function_of(node->op);
    char number[OG_NUMBER_TEXT];
    og_text_add(w->text, "%s(", function->name);
    for (int i = 0; i < node->arg_count; i++) {
        og_text_add(w->text, i ? ", " : "");
        write_node(w, node->args[i], OG_BINDS_NOT);
    }
    write_dims(w, node);
    if (node->sliding.rank)
        write_windows(w, node);
    bool has_number = node->op == OG_OP_full_like || node->op == OG_OP_group_sum ||
                      node->op == OG_OP_group_spread ||
                      (node->op == OG_OP_count && node->numbers[0]);
    int constants = og_op_slices(node->op) ? 2 : has_number ? 1 : function->constants;
    for (int i = 0; i < constants; i++) {
        const char *digits = og_number_text(node->numbers[i], number);
        og_text_add(w->text, ", %s%s", digits, get_point(node, digits));
    }
    og_text_add(w->text, ")");
}

/* An operator, in brackets where what is around binds as tight. */
static void write_operator(const writer *w, const og_node *node, og_binding least)
{
    bool is_power = node->op == OG_OP_power; /* pow, but of two tensors */
    const og_function *function = og_function_of(is_power ? OG_OP_pow : node->op);
    char number[OG_NUMBER_TEXT];
    const char *digits = og_number_text(node->numbers[0], number);
    bool brackets = function->level < least;
    og_text_add(w->text, brackets ? "(" : "");
    if (function->level == OG_BINDS_SIGN) {
        og_text_add(w->text, "%s", function->symbol);
        write_node(w, node->args[0], OG_BINDS_SIGN);
    } else if (function->level == OG_BINDS_POWER) {
        write_node(w, node->args[0], (og_binding)(OG_BINDS_POWER + 1));
        og_text_add(w->text, "%s%s%s", function->symbol, is_power ? "" : digits,
                    is_power ? "" : get_point(node, digits));
        if (is_power)
            write_node(w, node->args[1], OG_BINDS_SIGN);
    } else {
        write_node(w, node->args[0], function->level);
        og_text_add(w->text, " %s ", function->symbol);
        write_node(w, node->args[1], (og_binding)(function->level + 1));
    }
    og_text_add(w->text, brackets ? ")" : "");
}

static void write_value(const writer *w, const og_node *node, og_binding least)
{
    char number[OG_NUMBER_TEXT];
    if (node->op == OG_OP_INPUT) {
        og_text_add(w->text, "%s", w->graph->inputs[node->index].name);
    } else if (node->op == OG_OP_NUMBER) {
        const char *digits = og_number_text(node->numbers[0], number);
        og_text_add(w->text, digits[0] == '-' && least > OG_BINDS_ADDITION ? "(%s%s)" : "%s%s",
                    digits, get_point(node, digits));
    } else if (og_function_of(node->op)->symbol || node->op == OG_OP_power) {
        write_operator(w, node, least);
    } else {
        write_call(w, node);
    }
}

static void write_node(const writer *w, int32_t node, og_binding least)
{
    int32_t index = w->shown[node];
    if (w->bound[index] >= 0)
        og_text_add(w->text, "%c%d", w->letter, (int)w->bound[index]);
    else
        write_value(w, &w->graph->nodes[index], least);
}

ogive_status og_graph_text(const og_graph *graph, og_arena *scratch, og_text *text,
                           ogive_error *error)
{
    size_t count = (size_t)graph->node_count;
    writer w = {.graph = graph,
                .uses = OG_ARENA_NEW(scratch, int32_t, count),
                .bound = OG_ARENA_NEW(scratch, int32_t, count),
                .depth = OG_ARENA_NEW(scratch, int32_t, count),
                .shape = OG_ARENA_NEW(scratch, uint64_t, count),
                .shown = OG_ARENA_NEW(scratch, int32_t, count),
                .letter = 't',
                .text = text};
    if (!w.uses || !w.bound || !w.depth || !w.shape || !w.shown)
        return og_fail_memory(error, 6 * count * sizeof *w.uses);
    memset(w.uses, 0, count * sizeof *w.uses);
    while (is_input_name(graph, w.letter) && w.letter != 's')
        w.letter = (char)(w.letter == 'z' ? 'a' : w.letter + 1);
    find_shown(&w);
    count_uses(&w);
    choose_bound(&w);
    for (int32_t i = 0; i < graph->node_count; i++) {
        if (w.bound[i] < 0)
            continue;
        og_text_add(text, "%c%d = ", w.letter, (int)w.bound[i]);
        write_value(&w, &graph->nodes[i], OG_BINDS_NOT);
        og_text_add(text, "; ");
    }
    for (int32_t i = 0; i < graph->result_count; i++) {
        og_text_add(text, i ? ", " : "");
        write_node(&w, graph->results[i], OG_BINDS_NOT);
    }
    return OGIVE_OK;
}
