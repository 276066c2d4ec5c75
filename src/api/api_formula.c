/* SPDX-License-Identifier: MIT
 *
 * api_formula.c - ogive.h: version, statuses, formulas and what is made of them, the list
 * of functions.
 */
#include "api/api.h"

#include <stdlib.h>
#include <string.h>

#define TEXT_OF(number) #number
#define VERSION_TEXT(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)

const char *ogive_version(void)
{
    return VERSION_TEXT(OGIVE_VERSION_MAJOR, OGIVE_VERSION_MINOR, OGIVE_VERSION_PATCH);
}

const char *ogive_status_name(ogive_status status)
{
    static const char *const names[] = {"ok",       "formula",     "shape",  "dtype",
                                        "argument", "unsupported", "memory", "device"};
    size_t count = sizeof names / sizeof *names;
    return (size_t)status < count ? names[status] : "unknown";
}

/* A formula with one owner and an empty graph. */
static ogive_status new_formula(ogive_formula **out, ogive_error *error)
{
    ogive_formula *formula = calloc(1, sizeof *formula);
    if (!formula)
        return og_fail_memory(error, sizeof *formula);
    og_watch_forks();
    atomic_init(&formula->owners, 1);
    *out = formula;
    return OGIVE_OK;
}

/* formula becomes *out, or is released if status says that its graph failed. */
static ogive_status finish_formula(ogive_formula *formula, ogive_status status, ogive_formula **out)
{
    if (status == OGIVE_OK)
        *out = formula;
    else
        ogive_formula_release(formula);
    return status;
}

ogive_status og_formula_wrap(og_graph *graph, ogive_formula **out, ogive_error *error)
{
    ogive_formula *formula = NULL;
    ogive_status status = new_formula(&formula, error);
    if (status) {
        og_graph_free(graph);
        return status;
    }
    formula->graph = *graph;
    return finish_formula(formula, OGIVE_OK, out);
}

ogive_status ogive_formula_create(const char *text, size_t length, ogive_formula **out,
                                  ogive_error *error)
{
    og_error_clear(error);
    if (!out)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "out is NULL");
    *out = NULL;
    if (!text)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "text is NULL");
    ogive_formula *formula = NULL;
    OG_TRY(new_formula(&formula, error));
    return finish_formula(
        formula,
        og_graph_parse(text, length == OGIVE_TEXT ? strlen(text) : length, &formula->graph, error),
        out);
}

ogive_status ogive_formula_gradient(const ogive_formula *formula, const char *const *names,
                                    size_t count, ogive_formula **out, ogive_error *error)
{
    og_error_clear(error);
    if (!out)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "out is NULL");
    *out = NULL;
    if (!formula)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "formula is NULL");
    ogive_formula *gradient = NULL;
    OG_TRY(new_formula(&gradient, error));
    return finish_formula(
        gradient, og_graph_gradient(&formula->graph, names, count, &gradient->graph, error), out);
}

size_t ogive_formula_text(const ogive_formula *formula, char *buffer, size_t capacity)
{
    if (!formula || !formula->graph.differs)
        return og_copy_text(formula ? formula->graph.text : "", formula ? formula->graph.length : 0,
                            buffer, capacity);
    og_arena scratch = {0};
    og_text text = {0};
    bool good = og_graph_text(&formula->graph, &scratch, &text, NULL) == OGIVE_OK && !text.failed;
    size_t length =
        og_copy_text(text.data ? text.data : "", good ? text.length : 0, buffer, capacity);
    og_text_free(&text);
    og_arena_free(&scratch);
    return length;
}

/* ---- casts and parts ---------------------------------------------------------- */

/* "linear=bfloat16" */
static ogive_status make_casts(const og_graph *graph, const char *const *items, size_t count,
                               og_graph *out, ogive_error *error)
{
    og_op casts[OG_FUNCTION_COUNT];
    for (og_op op = 0; op < OG_FUNCTION_COUNT; op++)
        casts[op] = OG_FUNCTION_COUNT;
    for (size_t i = 0; i < count; i++) {
        const char *item = items[i] ? items[i] : "";
        size_t length = strcspn(item, "=");
        const char *dtype = item + length + (item[length] == '=');
        og_op function = og_function_find(item, length, false);
        og_op cast = og_function_find(dtype, strlen(dtype), false);
        if (function == OG_FUNCTION_COUNT || cast == OG_FUNCTION_COUNT ||
            strcmp(og_function_of(cast)->group, "cast") != 0)
            OG_FAIL(error, OGIVE_ARGUMENT, -1,
                    "a cast is '%.200s': expected a function and float32, float16, bfloat16 or "
                    "float64, as in 'linear=bfloat16'",
                    item);
        casts[function] = cast;
    }
    return og_graph_cast(graph, casts, out, error);
}

/* A result; or a product or, after it, its left factor. -1: there is no such value. */
static int32_t find_value(const og_graph *graph, const char *text)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10), results = (unsigned long)graph->result_count;
    if (end == text || *end || value < results)
        return end == text || *end ? -1 : graph->results[value];
    for (int32_t n = 0; n < graph->node_count; n++) {
        const og_node *product = og_graph_product(graph, &graph->nodes[n]);
        if (product && value - results < 2)
            return value == results ? n : product->args[0];
        value -= product ? 2 : 0;
    }
    return -1;
}

/* "0", "<2" */
static ogive_status make_part(const og_graph *graph, const char *const *items, size_t count,
                              og_graph *out, ogive_error *error)
{
    int32_t nodes[2][OG_MAX_RESULTS]; /* wanted, given */
    size_t counts[2] = {0};
    for (size_t i = 0; i < count; i++) {
        const char *item = items[i] ? items[i] : "";
        bool given = *item == '<';
        int32_t node = find_value(graph, item + given);
        if (node < 0 || counts[given] == OG_MAX_RESULTS)
            OG_FAIL(error, OGIVE_ARGUMENT, -1,
                    node < 0 ? "the formula has no value '%.200s'"
                             : "'%.200s' is one value too many: at most 64 are wanted or given",
                    item + given);
        nodes[given][counts[given]++] = node;
    }
    if (counts[0] == 0)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "no value is wanted");
    return og_graph_part(graph, nodes[0], counts[0], nodes[1], counts[1], out, error);
}

ogive_status ogive_formula_make(const ogive_formula *formula, const char *const *items,
                                size_t count, ogive_formula **out, ogive_error *error)
{
    char first = count && items && items[0] ? *items[0] : 'a';
    bool is_cast = false, is_part = first == '<' || (first >= '0' && first <= '9');
    for (size_t i = 0; items && i < count; i++)
        is_cast |= items[i] && strchr(items[i], '=');
    if (!formula || !out || !(is_cast || is_part))
        return ogive_formula_gradient(formula, items, count, out, error);
    og_error_clear(error);
    *out = NULL;
    ogive_formula *made = NULL;
    OG_TRY(new_formula(&made, error));
    return finish_formula(made,
                          is_cast ? make_casts(&formula->graph, items, count, &made->graph, error)
                                  : make_part(&formula->graph, items, count, &made->graph, error),
                          out);
}

int ogive_formula_calls(const ogive_formula *formula, const char *function)
{
    og_op op = function ? og_function_find(function, strlen(function), false) : OG_FUNCTION_COUNT;
    return formula && op != OG_FUNCTION_COUNT && formula->graph.calls[op];
}

size_t ogive_formula_product_count(const ogive_formula *formula)
{
    size_t count = 0;
    for (int32_t n = 0; formula && n < formula->graph.node_count; n++)
        count += og_graph_product(&formula->graph, &formula->graph.nodes[n]) != NULL;
    return count;
}

int ogive_formula_reads(const ogive_formula *formula, size_t input)
{
    return input < ogive_formula_input_count(formula) &&
           og_graph_reads(&formula->graph, (int32_t)input);
}

size_t ogive_formula_twin(const ogive_formula *formula, size_t result)
{
    if (result >= ogive_formula_result_count(formula))
        return result;
    const og_graph *graph = &formula->graph;
    size_t first = 0;
    while (og_graph_source(graph, (int32_t)first) != og_graph_source(graph, (int32_t)result))
        first++;
    return first;
}

size_t ogive_formula_passed(const ogive_formula *formula, size_t result)
{
    if (result >= ogive_formula_result_count(formula))
        return (size_t)-1;
    const og_node *node = &formula->graph.nodes[og_graph_source(&formula->graph, (int32_t)result)];
    return node->op == OG_OP_INPUT ? (size_t)node->index : (size_t)-1;
}

/* ---- owners and names --------------------------------------------------------- */

ogive_formula *ogive_formula_retain(ogive_formula *formula)
{
    if (formula)
        atomic_fetch_add_explicit(&formula->owners, 1, memory_order_relaxed);
    return formula;
}

void ogive_formula_release(ogive_formula *formula)
{
    if (!formula || atomic_fetch_sub_explicit(&formula->owners, 1, memory_order_acq_rel) != 1)
        return;
    og_lock_cache(formula); /* nobody else has it, but the parent's threads may have had */
    for (int i = 0; i < OG_CACHED_PLANS; i++)
        ogive_plan_release(formula->plans[i]);
    og_graph_free(&formula->graph);
    free(formula);
}

size_t ogive_formula_input_count(const ogive_formula *formula)
{
    return formula ? (size_t)formula->graph.input_count : 0;
}

const char *ogive_formula_input_name(const ogive_formula *formula, size_t index)
{
    return index < ogive_formula_input_count(formula) ? formula->graph.inputs[index].name : NULL;
}

size_t ogive_formula_result_count(const ogive_formula *formula)
{
    return formula ? (size_t)formula->graph.result_count : 0;
}

/* ---- functions ---------------------------------------------------------------- */

/* The public rows are those with a group. */
static const og_function *find_public(size_t index)
{
    for (og_op op = 0; op < OG_FUNCTION_COUNT; op++)
        if (og_function_of(op)->group && index-- == 0)
            return og_function_of(op);
    return NULL;
}

size_t ogive_function_count(void)
{
    size_t count = 0;
    while (find_public(count))
        count++;
    return count;
}

ogive_status ogive_function(size_t index, ogive_function_info *info, ogive_error *error)
{
    og_error_clear(error);
    const og_function *function = find_public(index);
    if (!info || !function)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "function %zu: expected 0 to %zu, and an info", index,
                ogive_function_count() - 1);
    memset(info, 0, sizeof *info);
    info->name = function->name;
    info->group = function->group;
    info->meaning = og_function_public_meaning(function);
    info->symbol = function->symbol;
    info->max_ulp = function->max_ulp;
    info->hash = function->hash;
    og_function_signature(function, info->signature, sizeof info->signature);
    return OGIVE_OK;
}
