/* SPDX-License-Identifier: MIT
 *
 * sweep.c - a function over every float32; see sweep.h.
 *
 * Block by block the library runs with all its threads; then as many threads
 * of our own hash the results and measure them. The hash is the wrap-around
 * sum of mix(input bits << 32 | result bits), so it depends on no order; every
 * NaN counts as 7fffffff, because payloads are not promised.
 */
#include "sweep.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "host_tensor.h"
#include "ogive.h"
#include "report.h"

enum { BLOCK = 1 << 20, MAX_THREADS = 256 };

/* One thread's share of a block. */
typedef struct {
    const sweep *s;
    const uint32_t *x; /* input bits */
    const float *y;
    const double *want; /* NULL: ask the oracle, if anybody */
    size_t n;
    sweep_result result;
    pthread_t thread;
} share;

static uint64_t mix(uint64_t v)
{
    v *= 0x9e3779b97f4a7c15u;
    v ^= v >> 32;
    v *= 0xd6e8feb86659fd93u;
    return v ^ v >> 29;
}

static void *examine(void *argument)
{
    share *p = argument;
    uint64_t hash = 0;

    for (size_t i = 0; i < p->n; i++) {
        uint32_t bits;
        memcpy(&bits, &p->y[i], sizeof(bits));
        if ((bits & 0x7fffffff) > 0x7f800000)
            bits = 0x7fffffff;
        hash += mix((uint64_t)p->x[i] << 32 | bits);
    }
    p->result = (sweep_result){.hash = hash, .inputs = p->n};
    if (!p->s->measures)
        return NULL;
    for (size_t i = 0; i < p->n; i++) {
        float x;
        memcpy(&x, &p->x[i], sizeof(x));
        double want = p->want ? p->want[i] : p->s->oracle(x, p->s->parameters);
        double error = oracle_ulp_f32(p->y[i], want);
        /* The first input in case of none: `at` is then a real one. */
        if (error > p->result.worst) {
            p->result.worst = error;
            p->result.at = x;
            p->result.got = p->y[i];
            p->result.want = want;
        }
    }
    return NULL;
}

static void merge(sweep_result *into, const sweep_result *part)
{
    into->hash += part->hash;
    into->inputs += part->inputs;
    if (part->worst > into->worst) {
        into->worst = part->worst;
        into->at = part->at;
        into->got = part->got;
        into->want = part->want;
    }
}

/* n results, by all threads; what cannot be started is done here. */
static void examine_block(const sweep *s, const uint32_t *x, const float *y, const double *want,
                          size_t n, int32_t threads, sweep_result *into)
{
    static share shares[MAX_THREADS];
    bool started[MAX_THREADS];
    size_t each = (n + (size_t)threads - 1) / (size_t)threads;

    for (int32_t t = 0; t < threads; t++) {
        size_t from = (size_t)t * each < n ? (size_t)t * each : n;
        size_t count = n - from < each ? n - from : each;
        shares[t] = (share){.s = s, .x = x + from, .y = y + from, .n = count};
        shares[t].want = want ? want + from : NULL;
        started[t] = t > 0 && !pthread_create(&shares[t].thread, NULL, examine, &shares[t]);
        if (t > 0 && !started[t])
            examine(&shares[t]);
    }
    examine(&shares[0]);
    for (int32_t t = 0; t < threads; t++) {
        if (started[t])
            pthread_join(shares[t].thread, NULL);
        merge(into, &shares[t].result);
    }
}

/* The formula for blocks of one dtype. */
typedef struct {
    ogive_plan *plan;
    void *x, *y, *workspace;
} runner;

static bool make_runner(const sweep *s, const ogive_formula *formula, const char *dtype,
                        runner *out, failure *why)
{
    host_layout layout = {.dtype = host_dtype_named(dtype), .ndim = 1, .shape = {BLOCK}};
    ogive_options options = {.size = sizeof(options), .threads = s->threads, .cpu_level = s->level};
    size_t bytes = BLOCK * (layout.dtype->bytes);
    ogive_error error;

    host_layout_contiguous(&layout, NULL);
    DLTensor tensor = host_layout_tensor(&layout, NULL);
    const DLTensor *tensors[] = {&tensor};
    if (ogive_plan_create(formula, tensors, 1, NULL, 0, &options, &out->plan, &error))
        return fail_library(why, &error);
    out->x = host_allocate(bytes);
    out->y = host_allocate(bytes);
    out->workspace = host_allocate(ogive_plan_workspace(out->plan));
    if (!out->x || !out->y || !out->workspace)
        return fail_memory(why, 2.0 * (double)bytes, "a block of inputs");
    return true;
}

static void free_runner(runner *r)
{
    ogive_plan_release(r->plan);
    free(r->x);
    free(r->y);
    free(r->workspace);
}

static bool run_block(const runner *r, failure *why)
{
    const void *inputs[] = {r->x};
    void *outputs[] = {r->y};
    ogive_error error;

    return !ogive_plan_run(r->plan, inputs, outputs, r->workspace, NULL, &error) ||
           fail_library(why, &error);
}

/* What results should be, if the library's float64 says so. */
static bool run_reference(const runner *r, const float *x, failure *why)
{
    double *to = r->x;

    for (size_t i = 0; i < BLOCK; i++)
        to[i] = x[i];
    return run_block(r, why);
}

static bool run_blocks(const sweep *s, const runner *single, const runner *reference,
                       sweep_result *out, failure *why)
{
    uint64_t total = (0xffffffffu / s->step) + 1ull;
    int32_t threads = s->threads ? s->threads : ogive_cpu_threads();
    uint32_t *x = single->x;

    threads = threads > MAX_THREADS ? MAX_THREADS : threads;
    for (uint64_t start = 0; start < total; start += BLOCK) {
        size_t n = total - start < BLOCK ? (size_t)(total - start) : BLOCK;
        /* The last block is padded: the plan is for whole ones. */
        for (size_t i = 0; i < BLOCK; i++)
            x[i] = i < n ? (uint32_t)((start + i) * s->step) : 0;
        if (!run_block(single, why) ||
            (reference->plan && !run_reference(reference, single->x, why)))
            return false;
        examine_block(s, x, single->y, reference->y, n, threads, out);
        if (s->progress)
            s->progress(s->context, (double)(start + n) / (double)total);
    }
    return true;
}

bool sweep_run(const sweep *s, sweep_result *out, failure *why)
{
    runner single = {0}, reference = {0};
    ogive_formula *formula = NULL;
    ogive_error error;

    *out = (sweep_result){0};
    bool good = !ogive_formula_create(s->formula, OGIVE_TEXT, &formula, &error) ||
                fail_library(why, &error);
    good = good && make_runner(s, formula, "float32", &single, why);
    if (good && s->measures && !s->oracle)
        good = make_runner(s, formula, "float64", &reference, why);
    good = good && run_blocks(s, &single, &reference, out, why);
    free_runner(&single);
    free_runner(&reference);
    ogive_formula_release(formula);
    return good;
}
