/* SPDX-License-Identifier: MIT
 *
 * api_formula.c - ogive.h: version, statuses, formulas, the list of functions.
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
    gradient->is_gradient = true;
    return finish_formula(
        gradient, og_graph_gradient(&formula->graph, names, count, &gradient->graph, error), out);
}

size_t ogive_formula_text(const ogive_formula *formula, char *buffer, size_t capacity)
{
    if (!formula || !formula->is_gradient)
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
