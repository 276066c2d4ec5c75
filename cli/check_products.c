/* SPDX-License-Identifier: MIT
 *
 * check_products.c - see check_products.h. An error is |e| / sum |x||w|, of the worst result, in
 * units of 2^-24, against sums in float64; beside it that of one chain of fused multiply-adds.
 *
 * What a result may be off is read off ogive_plan_explain(), which says it for the plan's kernel if
 * there is a bound for every input; and k * 2^-149 for products below float32's range.
 */
#include "check_products.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device_data.h"
#include "host_tensor.h"
#include "json_output.h"
#include "product_data.h"
#include "report.h"

enum { MAX_ROWS = 32, COLUMNS = 128, MAX_K = 32768, RANDOM_K = 256, COLUMNS_AT_ONCE = 8 };

/* A product of one shape: its plan and the memory that it runs with. */
typedef struct {
    const product_check *check;
    ogive_formula *formula;
    ogive_plan *plan;
    product_data data;
    float *y;
    void *device[4]; /* x, w, y, workspace */
    double units;
} bench;

/* Errors of all results of a product: the worst, the plain chain's, those beyond the promise. */
typedef struct {
    double worst, plain;
    int64_t beyond;
} errors;

/* ---- running ----------------------------------------------------------------------------------- */

/* What the plan promises; infinity: nothing. */
static double read_units(const char *text)
{
    const char *line = strstr(text, "each sum is within ");
    return line ? strtod(line + strlen("each sum is within "), NULL) : INFINITY;
}

static bool find_units(bench *b, failure *why)
{
    size_t length = ogive_plan_explain(b->plan, NULL, 0);
    char *text = malloc(length + 1);
    if (!text)
        return fail_memory(why, (double)length, "an explanation");
    ogive_plan_explain(b->plan, text, length + 1);
    b->units = read_units(text);
    free(text);
    return true;
}

static bool plan_product(bench *b, failure *why)
{
    product_data *d = &b->data;
    host_layout layouts[] = {
        {.dtype = host_dtype_named("float32"), .ndim = 2, .shape = {d->m, d->k}},
        {.dtype = host_dtype_named("float32"), .ndim = 2, .shape = {d->n, d->k}}};
    DLTensor tensors[2];
    const DLTensor *both[2];
    ogive_error error;
    for (int i = 0; i < 2; i++) {
        host_layout_contiguous(&layouts[i], NULL);
        tensors[i] = host_layout_tensor(&layouts[i], NULL);
        tensors[i].device = b->check->device;
        both[i] = &tensors[i];
    }
    if (ogive_plan_create(b->formula, both, 2, NULL, 0, b->check->options, &b->plan, &error))
        return fail_library(why, &error);
    return find_units(b, why);
}

static void release_bench(bench *b)
{
    for (int i = 0; i < 4; i++)
        if (b->device[i])
            ogive_device_free(b->check->device, b->device[i], NULL);
    ogive_plan_release(b->plan);
    ogive_formula_release(b->formula);
    free(b->data.x);
    free(b->data.w);
    free(b->y);
    *b = (bench){0};
}

static bool make_bench(bench *b, const product_check *check, int64_t m, int64_t k, failure *why)
{
    const char *text = "linear(x, w)";
    ogive_error error;
    *b = (bench){.check = check, .data = {.m = m, .n = COLUMNS, .k = k}};
    product_data *d = &b->data;
    const size_t bytes[] = {(size_t)(d->m * k) * 4, (size_t)(d->n * k) * 4,
                            (size_t)(d->m * d->n) * 4};
    d->x = malloc(bytes[0]);
    d->w = malloc(bytes[1]);
    b->y = malloc(bytes[2]);
    if (!d->x || !d->w || !b->y)
        return fail_memory(why, (double)(bytes[0] + bytes[1] + bytes[2]), "a product");
    if (ogive_formula_create(text, strlen(text), &b->formula, &error))
        return fail_library(why, &error);
    if (!plan_product(b, why))
        return false;
    for (int i = 0; i < 4; i++) {
        const size_t size = i < 3 ? bytes[i] : ogive_plan_workspace(b->plan);
        if (size && ogive_device_allocate(check->device, size, &b->device[i], &error))
            return fail_library(why, &error);
    }
    return true;
}

static bool run_bench(bench *b, failure *why)
{
    const product_data *d = &b->data;
    const void *factors[] = {b->device[0], b->device[1]};
    void *outputs[] = {b->device[2]};
    ogive_error error;
    const DLDevice device = b->check->device;
    if (!device_copy(device, b->device[0], d->x, (size_t)(d->m * d->k) * 4, NULL, why) ||
        !device_copy(device, b->device[1], d->w, (size_t)(d->n * d->k) * 4, NULL, why))
        return false;
    if (ogive_plan_run(b->plan, factors, outputs, b->device[3], NULL, &error) ||
        ogive_device_synchronize(device, NULL, &error))
        return fail_library(why, &error);
    return device_copy(device, b->y, b->device[2], (size_t)(d->m * d->n) * 4, NULL, why);
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* In units of 2^-24 of scale; what float32's range cannot hold, 2^-149 for each of k, is no error. */
static double measure(float got, double want, double scale, int64_t k)
{
    if (isinf((float)want) || scale >= 0x1p128)
        return 0;
    double error = fabs(got - want);
    return error <= (double)k * 0x1p-149 ? 0 : isnan(got) ? INFINITY : error / scale * 0x1p24;
}

/* Of COLUMNS_AT_ONCE neighbouring results of a row: the sum, that of magnitudes, one chain. */
typedef struct {
    double sum[COLUMNS_AT_ONCE], scale[COLUMNS_AT_ONCE];
    float plain[COLUMNS_AT_ONCE];
} references;

/* Several columns at once, for a sum waits for the one before. A fused multiply-add is written as
 * float64's, in which products are exact; fmaf() would be a call. */
static references find_references(const float *x, const float *w, int64_t k)
{
    references r = {0};
    for (int64_t l = 0; l < k; l++)
        for (int j = 0; j < COLUMNS_AT_ONCE; j++) {
            const double product = (double)x[l] * w[j * k + l];
            r.sum[j] += product;
            r.scale[j] += fabs(product);
            r.plain[j] = (float)(product + r.plain[j]);
        }
    return r;
}

static void add_errors(const bench *b, errors *e)
{
    const product_data *d = &b->data;
    for (int64_t i = 0; i < d->m * d->n; i += COLUMNS_AT_ONCE) {
        const references r = find_references(d->x + i / d->n * d->k, d->w + i % d->n * d->k, d->k);
        for (int j = 0; j < COLUMNS_AT_ONCE; j++) {
            const double error = measure(b->y[i + j], r.sum[j], r.scale[j], d->k);
            e->worst = fmax(e->worst, error);
            e->plain = fmax(e->plain, measure(r.plain[j], r.sum[j], r.scale[j], d->k));
            e->beyond += error > b->units + (double)d->k * 0x1p-149 / r.scale[j] * 0x1p24;
        }
    }
}

/* ---- printing ------------------------------------------------------------------------------------ */

static void print_header(const product_check *check)
{
    if (check->markdown)
        printf("| data | k | Ogive | at most | one chain of fma |\n|---|---|---|---|---|\n");
    else if (!check->json)
        printf("%-36s %6s %9s %8s %10s\n", "data", "k", "error", "at most", "fma chain");
}

static void print_errors(const product_check *check, json_t *list, const char *name, int64_t k,
                         double units, const errors *e)
{
    char most[32] = "-";
    if (units < INFINITY)
        snprintf(most, sizeof(most), "%g", units);
    if (check->json)
        json_array_append_new(list, json_pack("{s:s, s:I, s:f, s:s, s:f, s:b}", "data", name, "k",
                                              (json_int_t)k, "error", fmin(e->worst, 1e300),
                                              "at_most", most, "fma_chain", fmin(e->plain, 1e300),
                                              "ok", e->beyond == 0));
    else
        printf(check->markdown ? "| %s | %lld | %.3g%s | %s | %.3g |\n"
                               : "%-36s %6lld %9.3g%s %8s %10.3g\n",
               name, (long long)k, e->worst, e->beyond ? " FAILED" : "", most, e->plain);
    fflush(stdout);
}

/* ---- all of them --------------------------------------------------------------------------------- */

/* Inputs of one k; of few: every 23rd alone. */
static bool check_kinds(const product_check *check, int64_t m, int64_t k, bool few, json_t *list,
                        int64_t *beyond, failure *why)
{
    const product_kind *kind;
    bench b;
    bool good = make_bench(&b, check, m, k, why);
    for (size_t i = 0; good && (kind = product_kind_at(i)); i += few ? 23 : 1) {
        errors e = {0};
        product_data_fill(&b.data, kind);
        good = run_bench(&b, why);
        if (!good)
            break;
        add_errors(&b, &e);
        print_errors(check, list, kind->name, k, b.units, &e);
        *beyond += e.beyond;
    }
    release_bench(&b);
    return good;
}

/* promised: is there a bound that these must keep? */
static bool check_at_random(const product_check *check, uint64_t count, json_t *list,
                            int64_t *beyond, bool *promised, failure *why)
{
    errors e = {0};
    char name[40];
    bench b;
    bool good = make_bench(&b, check, MAX_ROWS, RANDOM_K, why);
    const double units = b.units;
    *promised = units < INFINITY;
    for (uint64_t seed = 0; good && seed < count; seed++) {
        product_data_fill_at_random(&b.data, seed);
        good = run_bench(&b, why);
        if (good)
            add_errors(&b, &e);
    }
    release_bench(&b);
    snprintf(name, sizeof(name), "%llu of random structure", (unsigned long long)count);
    if (good)
        print_errors(check, list, name, RANDOM_K, units, &e);
    *beyond += e.beyond;
    return good;
}

bool check_products(const product_check *check, failure *why)
{
    static const int64_t quick[] = {64, 320, 1024}, full[] = {64, 128, 320, 1024, 8192, MAX_K};
    const size_t count = check->quick ? 3 : 6;
    json_t *list = json_array();
    int64_t beyond = 0;
    bool good = true, promised = false;
    print_header(check);
    for (size_t i = 0; good && i < count; i++)
        good = check_kinds(check, check->quick ? MAX_ROWS / 2 : MAX_ROWS,
                           check->quick ? quick[i] : full[i], false, list, &beyond, why);
    if (check->quick)
        good = good && check_kinds(check, 2, MAX_K, true, list, &beyond, why);
    good = good && check_at_random(check, check->quick ? 16 : 1000, list, &beyond, &promised, why);
    if (good && check->json) {
        print_json(list);
        list = NULL;
    }
    json_decref(list);
    if (good && beyond)
        good = failed(why, STATUS_CHECK_FAILED, "%lld results are beyond what the plan promises",
                      (long long)beyond);
    else if (good && !check->json && !check->markdown)
        printf(promised ? "all results are as accurate as promised\n"
                        : "nothing is promised for every input here: see docs/cuda.md\n");
    return good;
}
