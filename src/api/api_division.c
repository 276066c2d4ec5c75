/* SPDX-License-Identifier: MIT
 *
 * api_division.c - ogive.h: how a formula is divided among processes.
 */
#include "api/api.h"
#include "formula/divide.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All divisions for the caller's tensors, of which shapes and dtypes are read; at sums, if *index
 * has that added to it, which is taken from it. */
static ogive_status find_divisions(const ogive_formula *formula, const DLTensor *const *inputs,
                                   size_t count, size_t *index, og_divisions *out,
                                   ogive_error *error)
{
    *out = (og_divisions){0};
    if (!formula)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "formula is NULL");
    const og_graph *graph = &formula->graph;
    if (count != (size_t)graph->input_count || (count && !inputs))
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "the formula has %d inputs, %zu were given",
                (int)graph->input_count, inputs ? count : 0);
    bool at_sums = *index != OGIVE_NOTHING && (*index & OGIVE_AT_SUMS);
    if (at_sums)
        *index -= OGIVE_AT_SUMS;
    og_input_type *types = calloc(count + 1, sizeof *types);
    if (!types)
        return og_fail_memory(error, (count + 1) * sizeof *types);
    ogive_status status = OGIVE_OK;
    for (size_t i = 0; i < count && !status; i++) {
        og_layout layout;
        status = og_read_tensor(inputs[i], "input", graph->inputs[i].name, &layout, error);
        if (status)
            break;
        types[i].dtype = layout.dtype;
        types[i].rank = layout.rank;
        memcpy(types[i].shape, layout.shape, sizeof types[i].shape);
    }
    if (!status)
        status = og_divide(graph, types, at_sums, out, error);
    free(types);
    return status;
}

static ogive_status check_index(const og_divisions *all, size_t index, ogive_error *error)
{
    if (index != OGIVE_NOTHING && index >= (size_t)all->count)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "index %zu: the formula has %d for these inputs", index,
                (int)all->count);
    return OGIVE_OK;
}

static ogive_status check_size(size_t got, size_t want, const char *name, ogive_error *error)
{
    if (got != want)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "%s.size is %zu: expected sizeof(ogive_%s), %zu", name,
                got, name, want);
    return OGIVE_OK;
}

ogive_status ogive_formula_division_count(const ogive_formula *formula,
                                          const DLTensor *const *inputs, size_t input_count,
                                          size_t *count, ogive_error *error)
{
    og_error_clear(error);
    if (!count)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "count is NULL");
    *count = 0;
    size_t index = OGIVE_NOTHING;
    og_divisions all;
    OG_TRY(find_divisions(formula, inputs, input_count, &index, &all, error));
    *count = (size_t)all.count;
    og_divisions_free(&all);
    return OGIVE_OK;
}

/* Which of the caller's inputs are sums, while nothing is divided. */
static ogive_status divide_given(og_divisions *all, const ogive_placement *of_inputs,
                                 og_division *out, ogive_error *error)
{
    size_t count = (size_t)all->graph->input_count;
    bool *given = OG_ARENA_NEW(&all->arena, bool, count);
    if (!given)
        return og_fail_memory(error, count);
    for (size_t i = 0; i < count; i++)
        given[i] = of_inputs[i].share == OGIVE_SUM;
    return og_divide_given(all, given, &all->arena, out, error);
}

static ogive_status describe(og_divisions *all, size_t index, ogive_division *division,
                             ogive_placement *of_inputs, ogive_placement *of_results,
                             ogive_error *error)
{
    og_division one;
    OG_TRY(check_index(all, index, error));
    if (index == OGIVE_NOTHING)
        OG_TRY(divide_given(all, of_inputs, &one, error));
    else
        one = all->divisions[index];
    *division = (ogive_division){.size = sizeof *division, .extent = one.extent};
    snprintf(division->reason, sizeof division->reason, "%s", one.reason ? one.reason : "");
    division->stages = one.reason ? 0 : one.stage_count;
    division->cuts = one.reason ? 0 : one.cut_count;
    division->counts = one.counts;
    memcpy(of_inputs, one.inputs, (size_t)all->graph->input_count * sizeof *of_inputs);
    memcpy(of_results, one.results, (size_t)all->graph->result_count * sizeof *of_results);
    return OGIVE_OK;
}

ogive_status ogive_formula_division(const ogive_formula *formula, const DLTensor *const *inputs,
                                    size_t input_count, size_t index, ogive_division *division,
                                    ogive_placement *of_inputs, ogive_placement *of_results,
                                    ogive_error *error)
{
    og_error_clear(error);
    if (!division || !of_inputs || !of_results)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "division, of_inputs or of_results is NULL");
    OG_TRY(check_size(division->size, sizeof *division, "division", error));
    og_divisions all;
    OG_TRY(find_divisions(formula, inputs, input_count, &index, &all, error));
    ogive_status status = describe(&all, index, division, of_inputs, of_results, error);
    og_divisions_free(&all);
    return status;
}

static ogive_status describe_cut(const og_divisions *all, size_t index, size_t number,
                                 ogive_cut *info, ogive_error *error)
{
    OG_TRY(check_index(all, index, error));
    const og_division *division = index == OGIVE_NOTHING ? NULL : &all->divisions[index];
    size_t count = division ? (size_t)division->cut_count : 0;
    if (number >= count)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "cut %zu: index %zu has %zu", number, index, count);
    const og_graph *graph = division->spread ? &all->spread : all->graph;
    const og_cut *cut = &division->cuts[number];
    const og_node *node = &graph->nodes[cut->node];
    const og_typed *type = (division->spread ? all->spread_types : all->types) + cut->node;
    bool is_half = type->dtype == OG_FLOAT16 || type->dtype == OG_BFLOAT16;
    *info = (ogive_cut){.size = sizeof *info, .share = cut->share, .stage = cut->stage};
    og_divide_name(graph, (int32_t)number, info->name);
    snprintf(info->function, sizeof info->function, "%s", og_node_label(graph, node));
    info->offset = node->offset;
    info->constant = !og_function_of(node->rule)->derivative;
    info->dtype = og_dtype_dlpack(is_half ? OG_FLOAT32 : type->dtype);
    info->ndim = type->rank;
    memcpy(info->shape, type->shape, sizeof info->shape);
    return OGIVE_OK;
}

ogive_status ogive_formula_cut(const ogive_formula *formula, const DLTensor *const *inputs,
                               size_t input_count, size_t index, size_t cut, ogive_cut *info,
                               ogive_error *error)
{
    og_error_clear(error);
    if (!info)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "info is NULL");
    OG_TRY(check_size(info->size, sizeof *info, "cut", error));
    og_divisions all;
    OG_TRY(find_divisions(formula, inputs, input_count, &index, &all, error));
    ogive_status status = describe_cut(&all, index, cut, info, error);
    og_divisions_free(&all);
    return status;
}

static ogive_status make_stage(const og_divisions *all, size_t index, size_t stage, og_graph *out,
                               ogive_error *error)
{
    OG_TRY(check_index(all, index, error));
    const og_division *division = index == OGIVE_NOTHING ? NULL : &all->divisions[index];
    if (division && division->reason)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "index %zu must be whole: %s", index, division->reason);
    size_t count = division ? (size_t)division->stage_count : 1;
    if (stage >= count)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "stage %zu: index %zu has %zu", stage, index, count);
    return og_divide_stage(all, division, (int32_t)stage, out, error);
}

ogive_status ogive_formula_stage(const ogive_formula *formula, const DLTensor *const *inputs,
                                 size_t input_count, size_t index, size_t stage,
                                 ogive_formula **out, ogive_error *error)
{
    og_error_clear(error);
    if (!out)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "out is NULL");
    *out = NULL;
    og_divisions all;
    OG_TRY(find_divisions(formula, inputs, input_count, &index, &all, error));
    og_graph graph;
    ogive_status status = make_stage(&all, index, stage, &graph, error);
    og_divisions_free(&all);
    return status ? status : og_formula_wrap(&graph, out, error);
}
