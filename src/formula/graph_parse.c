/* SPDX-License-Identifier: MIT
 *
 * graph_parse.c - what texts are parsed for (parser.c): the meaning of a composite, the derivative
 * of a function, and the graph of a whole formula, as it is written or with casts.
 */
#include "formula/parser.h"
#include "formula/scope.h"

#include <string.h>

/* ---- meanings and derivatives -------------------------------------------- */

/* results has room for OG_MAX_RESULTS. */
static ogive_status parse_with_names(og_builder *builder, const char *text,
                                     const og_bound_name *names, int count, og_operand *results,
                                     int32_t *result_count)
{
    og_scope scope;
    og_scope_init(&scope);
    ogive_status status = OGIVE_OK;
    for (int i = 0; !status && i < count; i++) {
        og_named named = {.name = names[i].name, .length = strlen(names[i].name)};
        named.operand = names[i].operand;
        status = og_scope_add(&scope, &named, builder->error);
    }
    if (!status)
        status = og_parse_program(builder, &scope, text, strlen(text), true, results, result_count);
    og_scope_free(&scope);
    return status;
}

ogive_status og_parse_meaning(og_builder *builder, const og_function *function, size_t base,
                              og_operand *out)
{
    og_bound_name names[OG_MAX_PARAMETERS];
    og_operand results[OG_MAX_RESULTS];
    int32_t result_count;
    int count = 0;
    for (size_t i = 0; function->parameters[i].kind != OG_PARAMETER_NONE; i++) {
        if (function->parameters[i].name)
            names[count++] =
                (og_bound_name){function->parameters[i].name, builder->operands[base + i]};
    }
    OG_TRY(parse_with_names(builder, function->meaning, names, count, results, &result_count));
    *out = results[0];
    if (result_count == 2) {
        out->kind = OG_OPERAND_PAIR;
        out->second = results[1].index;
    }
    return OGIVE_OK;
}

ogive_status og_parse_derivative(og_builder *builder, const char *text, const og_bound_name *names,
                                 int count, og_operand *results, int32_t result_count)
{
    og_operand found[OG_MAX_RESULTS];
    int32_t found_count = 0;
    OG_TRY(parse_with_names(builder, text, names, count, found, &found_count));
    if (found_count != result_count) /* a slip in functions.def, found by its tests */
        OG_FAIL(builder->error, OGIVE_FORMULA, -1, "a derivative has %d results, expected %d",
                (int)found_count, (int)result_count);
    memcpy(results, found, (size_t)result_count * sizeof *results);
    return OGIVE_OK;
}

/* ---- graphs -------------------------------------------------------------- */

static ogive_status parse_graph(og_builder *builder, og_scope *scope, const char *text,
                                size_t length, og_graph *graph)
{
    og_operand results[OG_MAX_RESULTS];
    int32_t nodes[OG_MAX_RESULTS], count;
    OG_TRY(og_parse_program(builder, scope, text, length, false, results, &count));
    if (builder->input_count == 0)
        OG_FAIL(builder->error, OGIVE_FORMULA, results[0].offset,
                "the formula has no input: no name in it is free");
    for (int32_t i = 0; i < count; i++) {
        if (og_operand_is_constant(builder, &results[i]))
            OG_FAIL(builder->error, OGIVE_FORMULA, results[i].offset,
                    "the result does not depend on any input");
        nodes[i] = results[i].index;
    }
    return og_builder_finish(builder, text, length, nodes, count, graph);
}

static ogive_status parse_text(const char *text, size_t length, const og_op *casts, og_graph *graph,
                               ogive_error *error)
{
    fenv_t state;
    og_float_state_enter(&state);
    og_builder builder;
    og_scope scope;
    og_builder_init(&builder, error);
    builder.casts = casts;
    og_scope_init(&scope);
    ogive_status status = parse_graph(&builder, &scope, text, length, graph);
    graph->differs = casts != NULL;
    og_scope_free(&scope);
    og_builder_free(&builder);
    og_float_state_leave(&state);
    return status;
}

ogive_status og_graph_parse(const char *text, size_t length, og_graph *graph, ogive_error *error)
{
    *graph = (og_graph){0};
    if (!text)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "the formula's text is NULL");
    if (length == OGIVE_TEXT) {
        for (length = 0; length <= OG_MAX_TEXT && text[length]; length++)
            continue;
    }
    if (length > OG_MAX_TEXT)
        OG_FAIL(error, OGIVE_FORMULA, OG_MAX_TEXT, "the formula is too long: more than %d bytes",
                OG_MAX_TEXT);
    return parse_text(text, length, NULL, graph, error);
}

ogive_status og_graph_cast(const og_graph *graph, const og_op casts[OG_FUNCTION_COUNT],
                           og_graph *out, ogive_error *error)
{
    *out = (og_graph){0};
    if (graph->differs)
        OG_FAIL(error, OGIVE_UNSUPPORTED, -1,
                "casts go into a formula as it was written, not into a gradient, a part, or one "
                "that has casts");
    return parse_text(graph->text, graph->length, casts, out, error);
}
