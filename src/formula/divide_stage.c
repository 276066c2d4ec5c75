/* SPDX-License-Identifier: MIT
 *
 * divide_stage.c - the formulas that run on parts: what a formula is between the places
 * where its values are reduced; see divide.h. Graphs are copied node by node, with other
 * nodes in place of some.
 */
#include "formula/builder.h"
#include "formula/divide.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    const og_graph *graph;
    const og_typed *types; /* for the whole inputs; NULL: counts stay */
    og_builder builder;
    int32_t *copies;            /* [node of graph]: node of the builder */
    bool *needed;               /* [node of graph] */
    char (*names)[OG_CUT_NAME]; /* [cut] */
    const og_division *division;
    int32_t stage;
} copying;

static ogive_status copy_input(copying *c, int32_t n)
{
    const og_input *input = &c->graph->inputs[c->graph->nodes[n].index];
    og_operand made;
    c->builder.composite = OG_FUNCTION_COUNT;
    OG_TRY(og_build_input(&c->builder, input->name, strlen(input->name), input->offset, &made));
    c->copies[n] = made.index;
    return OGIVE_OK;
}

static ogive_status copy_node(copying *c, int32_t n)
{
    og_node node = c->graph->nodes[n];
    for (int a = 0; a < node.arg_count; a++)
        node.args[a] = c->copies[node.args[a]];
    if (c->types) { /* the whole's sizes are right; a part's are others */
        node.has_sizes = false;
        if (node.op == OG_OP_count) {
            og_node number = {.op = OG_OP_NUMBER, .called = node.called, .rule = OG_OP_NUMBER};
            number.numbers[0] = c->types[n].number;
            number.args[0] = number.args[1] = number.args[2] = -1;
            number.is_constant = true;
            number.offset = node.offset;
            node = number;
        }
    }
    return og_build_copy(&c->builder, &node, &c->copies[n]);
}

static ogive_status start(copying *c, og_arena *arena, size_t cuts, ogive_error *error)
{
    size_t nodes = (size_t)c->graph->node_count;
    c->copies = OG_ARENA_NEW(arena, int32_t, nodes);
    c->needed = OG_ARENA_NEW(arena, bool, nodes);
    c->names = og_arena_alloc(arena, cuts, sizeof *c->names);
    if (!c->copies || !c->needed || !c->names)
        return og_fail_memory(error, nodes * sizeof *c->copies);
    return OGIVE_OK;
}

/* ---- spreading ------------------------------------------------------------------------ */

static ogive_status build_reduction(og_builder *builder, og_op op, const og_node *like,
                                    int32_t input, bool keepdim, og_operand *out)
{
    og_node node = {.op = op, .arg_count = 1, .args = {input}, .keepdim = keepdim};
    node.all_dims = like->all_dims;
    node.dim_count = like->dim_count;
    memcpy(node.dims, like->dims, sizeof node.dims);
    return og_build_node(builder, &node, op, like->offset, out);
}

/* sumexp(x) as plan.h defines it: sum(exp(x - u)), u the greatest x, or 0 if that is infinite. */
static ogive_status spread_sumexp(copying *c, int32_t n)
{
    og_builder *builder = &c->builder;
    const og_node *node = &c->graph->nodes[n];
    int32_t input = c->copies[node->args[0]];
    og_operand greatest, size, is_infinite, moved, sum;
    og_operand infinite = og_number_operand(INFINITY, node->offset);
    og_operand zero = og_number_operand(0, node->offset);
    og_builder_stand_at(builder, node);
    OG_TRY(build_reduction(builder, OG_OP_row_max, node, input, true, &greatest));
    OG_TRY(og_build_scalar(builder, OG_OP_abs, &greatest, NULL, OG_OP_abs, -1, &size));
    og_operand comparison[2] = {size, infinite};
    OG_TRY(og_build_plain(builder, OG_OP_eq, comparison, 2, -1, &is_infinite));
    og_operand choice[3] = {is_infinite, zero, greatest};
    OG_TRY(og_build_plain(builder, OG_OP_where, choice, 3, -1, &moved));
    og_operand difference[2] = {og_node_operand(input), moved};
    OG_TRY(og_build_scalar(builder, OG_OP_sub, difference, NULL, OG_OP_sub, -1, &moved));
    OG_TRY(og_build_scalar(builder, OG_OP_exp, &moved, NULL, OG_OP_exp, -1, &moved));
    OG_TRY(build_reduction(builder, OG_OP_sum, node, moved.index, node->keepdim, &sum));
    c->copies[n] = sum.index;
    return OGIVE_OK;
}

/* What the graph checks of its inputs' sizes has been checked: this one does not. */
static ogive_status spread(copying *c, og_graph *out)
{
    const og_graph *graph = c->graph;
    int32_t results[OG_MAX_RESULTS];
    for (int32_t n = 0; n < graph->node_count; n++) {
        og_op op = graph->nodes[n].op;
        OG_TRY(op == OG_OP_INPUT    ? copy_input(c, n)
               : op == OG_OP_sumexp ? spread_sumexp(c, n)
                                    : copy_node(c, n));
    }
    for (int32_t r = 0; r < graph->result_count; r++)
        results[r] = c->copies[graph->results[r]];
    return og_builder_finish(&c->builder, graph->text, graph->length, results, graph->result_count,
                             out);
}

/* ---- names ------------------------------------------------------------------------------ */

static bool is_taken(const og_graph *graph, const char *name)
{
    for (int32_t i = 0; i < graph->input_count; i++)
        if (!strcmp(graph->inputs[i].name, name))
            return true;
    return false;
}

void og_divide_name(const og_graph *graph, int32_t cut, char name[OG_CUT_NAME])
{
    snprintf(name, OG_CUT_NAME, "cut%d", (int)cut);
    for (int suffix = 2; is_taken(graph, name); suffix++)
        snprintf(name, OG_CUT_NAME, "cut%d_%d", (int)cut, suffix);
}

/* ---- stages ----------------------------------------------------------------------------- */

static const og_cut *find_cut(const copying *c, int32_t node)
{
    for (int32_t i = 0; c->division && i < c->division->cut_count; i++)
        if (c->division->cuts[i].node == node)
            return &c->division->cuts[i];
    return NULL;
}

/* A value that an earlier stage computed and the processes reduced. */
static bool is_reduced(const copying *c, int32_t node)
{
    const og_cut *cut = find_cut(c, node);
    return cut && cut->stage < c->stage;
}

static bool is_half(og_dtype dtype)
{
    return dtype == OG_FLOAT16 || dtype == OG_BFLOAT16;
}

static ogive_status build_cast(copying *c, int32_t node, og_dtype dtype, int32_t *out)
{
    static const og_op casts[OG_DTYPE_COUNT] = {
        [OG_FLOAT32] = OG_OP_float32,
        [OG_FLOAT16] = OG_OP_float16,
        [OG_BFLOAT16] = OG_OP_bfloat16,
        [OG_FLOAT64] = OG_OP_float64,
    };
    og_operand value = og_node_operand(node), made;
    c->builder.composite = OG_FUNCTION_COUNT;
    OG_TRY(og_build_plain(&c->builder, casts[dtype], &value, 1, -1, &made));
    *out = made.index;
    return OGIVE_OK;
}

/* The float32 that was reduced has the type of node n again, but is not rounded to it, as
 * nothing is within a formula. Of the rounded value only the type is used. */
static ogive_status build_unrounded(copying *c, int32_t n)
{
    int32_t like;
    OG_TRY(build_cast(c, c->copies[n], c->types[n].dtype, &like));
    og_operand args[2] = {og_node_operand(c->copies[n]), og_node_operand(like)}, made;
    OG_TRY(og_build_plain(&c->builder, OG_OP_cast_like, args, 2, -1, &made));
    c->copies[n] = made.index;
    return OGIVE_OK;
}

static ogive_status build_reduced(copying *c, int32_t n)
{
    int32_t number = (int32_t)(find_cut(c, n) - c->division->cuts);
    char *name = c->names[number];
    og_operand made;
    og_divide_name(c->graph, number, name);
    c->builder.composite = OG_FUNCTION_COUNT;
    OG_TRY(og_build_input(&c->builder, name, strlen(name), -1, &made));
    c->copies[n] = made.index;
    return is_half(c->types[n].dtype) ? build_unrounded(c, n) : OGIVE_OK;
}

/* The nodes whose copies are results of the stage. */
static int32_t list_results(const copying *c, int32_t *nodes)
{
    const og_division *division = c->division;
    int32_t count = 0;
    if (!division || c->stage + 1 == division->stage_count) {
        memcpy(nodes, c->graph->results, sizeof *nodes * (size_t)c->graph->result_count);
        return c->graph->result_count;
    }
    for (int32_t i = 0; i < division->cut_count && count < OG_MAX_RESULTS; i++)
        if (division->cuts[i].stage == c->stage)
            nodes[count++] = division->cuts[i].node;
    return count;
}

/* Inputs first, in the formula's order, then what was reduced, then the rest. */
static ogive_status copy_stage(copying *c)
{
    const og_graph *graph = c->graph;
    for (int32_t n = 0; n < graph->node_count; n++)
        if (c->needed[n] && graph->nodes[n].op == OG_OP_INPUT)
            OG_TRY(copy_input(c, n));
    for (int32_t n = 0; n < graph->node_count; n++)
        if (c->needed[n] && is_reduced(c, n))
            OG_TRY(build_reduced(c, n));
    for (int32_t n = 0; n < graph->node_count; n++)
        if (c->needed[n] && graph->nodes[n].op != OG_OP_INPUT && !is_reduced(c, n))
            OG_TRY(copy_node(c, n));
    return OGIVE_OK;
}

static ogive_status build_stage(copying *c, og_graph *out, ogive_error *error)
{
    const og_graph *graph = c->graph;
    int32_t results[OG_MAX_RESULTS];
    int32_t count = list_results(c, results);
    bool last = !c->division || c->stage + 1 == c->division->stage_count;
    if (c->division && c->division->cut_count > OG_MAX_RESULTS)
        OG_FAIL(error, OGIVE_UNSUPPORTED, -1, "%d values would have to be reduced, at most %d can",
                (int)c->division->cut_count, OG_MAX_RESULTS);
    for (int32_t i = 0; i < count; i++)
        c->needed[results[i]] = true;
    for (int32_t n = graph->node_count; n-- > 0;)
        for (int a = 0; c->needed[n] && !is_reduced(c, n) && a < graph->nodes[n].arg_count; a++)
            c->needed[graph->nodes[n].args[a]] |= graph->nodes[n].op != OG_OP_count;
    OG_TRY(copy_stage(c));
    for (int32_t i = 0; i < count; i++) {
        int32_t node = results[i];
        results[i] = c->copies[node];
        if (!last && is_half(c->types[node].dtype))
            OG_TRY(build_cast(c, results[i], OG_FLOAT32, &results[i]));
    }
    return og_builder_finish(&c->builder, graph->text, graph->length, results, count, out);
}

/* ---- entries ------------------------------------------------------------------------------ */

static ogive_status run_copying(copying *c, size_t cuts, og_graph *out, ogive_error *error)
{
    og_arena arena = {0};
    fenv_t state;
    *out = (og_graph){0};
    og_builder_init(&c->builder, error);
    og_float_state_enter(&state);
    ogive_status status = start(c, &arena, cuts, error);
    if (!status)
        status = c->types ? build_stage(c, out, error) : spread(c, out);
    og_float_state_leave(&state);
    og_builder_free(&c->builder);
    og_arena_free(&arena);
    return status;
}

ogive_status og_spread(const og_graph *graph, og_graph *out, ogive_error *error)
{
    copying c = {.graph = graph};
    return run_copying(&c, 0, out, error);
}

ogive_status og_divide_stage(const og_divisions *divisions, const og_division *division,
                             int32_t stage, og_graph *out, ogive_error *error)
{
    bool is_spread = division && division->spread;
    copying c = {.graph = is_spread ? &divisions->spread : divisions->graph,
                 .types = is_spread ? divisions->spread_types : divisions->types,
                 .division = division,
                 .stage = stage};
    return run_copying(&c, division ? (size_t)division->cut_count : 0, out, error);
}
