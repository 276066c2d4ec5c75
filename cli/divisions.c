/* SPDX-License-Identifier: MIT
 *
 * divisions.c - ogive explain --divide N; see divisions.h.
 */
#include "divisions.h"

#include <stdio.h>
#include <stdlib.h>

#include "report.h"

/* One index: what ogive.h says of it. */
typedef struct {
    size_t index;
    ogive_division division;
    ogive_placement *inputs, *results;
} division;

/* Called for each index; processes divide it. */
typedef bool (*show)(const request *r, const division *d, int64_t processes, void *out,
                     failure *why);

static const char *share_name(ogive_share share)
{
    static const char *const names[] = {"same", "part", "sum", "max", "min"};

    return names[share];
}

static bool each_division(const request *r, int64_t processes, show show_one, void *out,
                          failure *why)
{
    ogive_error error;
    size_t count, results = ogive_formula_result_count(r->formula);
    division d = {0};

    if (ogive_formula_division_count(r->formula, r->in.tensors, r->in.count, &count, &error))
        return fail_library(why, &error);
    d.inputs = calloc(r->in.count + 1, sizeof(*d.inputs));
    d.results = calloc(results + 1, sizeof(*d.results));
    bool good = (d.inputs && d.results) || fail_memory(why, (double)results, "the divisions");
    for (d.index = 0; good && d.index < count; d.index++) {
        d.division = (ogive_division){.size = sizeof(d.division)};
        if (ogive_formula_division(r->formula, r->in.tensors, r->in.count, d.index, &d.division,
                                   d.inputs, d.results, &error))
            good = fail_library(why, &error);
        good = good && show_one(r, &d, processes, out, why);
    }
    free(d.inputs);
    free(d.results);
    return good;
}

static bool read_cut(const request *r, const division *d, int32_t number, ogive_cut *cut,
                     failure *why)
{
    ogive_error error;

    *cut = (ogive_cut){.size = sizeof(*cut)};
    return !ogive_formula_cut(r->formula, r->in.tensors, r->in.count, d->index, (size_t)number, cut,
                              &error) ||
           fail_library(why, &error);
}

/* ---- for people ------------------------------------------------------------------ */

static void print_placement(const ogive_placement *placed)
{
    if (placed->share == OGIVE_PART)
        printf("part of dim %d", placed->dim);
    else
        printf("%s", share_name(placed->share));
}

static void print_inputs(const request *r, const division *d)
{
    const char *between = "";

    for (size_t i = 0; i < r->in.count; i++) {
        if (d->inputs[i].share == OGIVE_SAME)
            continue;
        printf("%s%s ", between, r->in.items[i].name);
        print_placement(&d->inputs[i]);
        between = ", ";
    }
}

static bool print_cuts(const request *r, const division *d, failure *why)
{
    for (int32_t i = 0; i < d->division.cuts; i++) {
        ogive_cut cut;
        char shape[256];
        if (!read_cut(r, d, i, &cut, why))
            return false;
        text_shape(shape, sizeof(shape), cut.shape, cut.ndim);
        printf("; %s of %s at %s", share_name(cut.share), shape, cut.function);
    }
    if (d->division.cuts)
        printf(" reduced on the way");
    return true;
}

static bool print_one(const request *r, const division *d, int64_t processes, void *out,
                      failure *why)
{
    int64_t extent = d->division.extent;

    (void)out;
    printf("  %lld: ", (long long)extent);
    print_inputs(r, d);
    if (!d->division.stages) {
        printf(": must be whole, since %s\n", d->division.reason);
        return true;
    }
    printf(" ->");
    for (size_t i = 0; i < ogive_formula_result_count(r->formula); i++) {
        printf(i ? ", " : " ");
        print_placement(&d->results[i]);
    }
    if (!print_cuts(r, d, why))
        return false;
    if (extent < processes)
        printf("; too short for %lld", (long long)processes);
    else if (extent % processes)
        printf("; uneven: %lld do not divide it", (long long)processes);
    printf("\n");
    return true;
}

bool divisions_print(const request *r, int64_t processes, failure *why)
{
    printf("divided among %lld process%s, by the dims of extent\n", (long long)processes,
           processes == 1 ? "" : "es");
    return each_division(r, processes, print_one, NULL, why);
}

/* ---- for programs ------------------------------------------------------------------- */

static json_t *placement_json(const ogive_placement *placed)
{
    if (placed->share == OGIVE_PART)
        return json_pack("{s:s, s:i}", "share", "part", "dim", (int)placed->dim);
    return json_pack("{s:s}", "share", share_name(placed->share));
}

static json_t *cut_json(const ogive_cut *cut)
{
    json_t *shape = json_array();

    for (int32_t d = 0; d < cut->ndim; d++)
        json_array_append_new(shape, json_integer(cut->shape[d]));
    return json_pack("{s:s, s:s, s:I, s:i, s:o}", "share", share_name(cut->share), "function",
                     cut->function, "offset", (json_int_t)cut->offset, "stage", (int)cut->stage,
                     "shape", shape);
}

static bool add_json(const request *r, const division *d, int64_t processes, void *out,
                     failure *why)
{
    json_t *given = json_object(), *results = json_array(), *cuts = json_array();

    for (size_t i = 0; i < r->in.count; i++)
        json_object_set_new(given, r->in.items[i].name, placement_json(&d->inputs[i]));
    for (size_t i = 0; d->division.stages && i < ogive_formula_result_count(r->formula); i++)
        json_array_append_new(results, placement_json(&d->results[i]));
    json_t *item = json_pack(
        "{s:I, s:I, s:i, s:o, s:o, s:o}", "extent", (json_int_t)d->division.extent, "largest_part",
        (json_int_t)((d->division.extent + processes - 1) / processes), "stages",
        (int)d->division.stages, "inputs", given, "results", results, "cuts", cuts);
    json_array_append_new(out, item);
    if (!d->division.stages)
        json_object_set_new(item, "reason", json_string(d->division.reason));
    for (int32_t i = 0; i < d->division.cuts; i++) {
        ogive_cut cut;
        if (!read_cut(r, d, i, &cut, why))
            return false;
        json_array_append_new(cuts, cut_json(&cut));
    }
    return true;
}

bool divisions_json(const request *r, int64_t processes, json_t **out, failure *why)
{
    *out = json_array();
    return each_division(r, processes, add_json, *out, why);
}
