/* SPDX-License-Identifier: MIT
 *
 * bench_formula.c - `ogive bench` of one's own formula: time, rate, share of the least time, and
 * the same by PyTorch; for a plot at smaller sizes, too.
 */
#include "bench_formula.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "device_data.h"
#include "json_output.h"
#include "peer.h"
#include "plot.h"
#include "progress.h"
#include "report.h"
#include "request.h"
#include "timing.h"
#include "traffic.h"

enum { MAX_CASES = 6, ARGUMENT = 512, FEWER = 4 /* times as many rows, each case than the next */ };

/* One size that is measured. */
typedef struct {
    traffic t;
    double seconds;
    size_t samples;
    peer_time peer;
} bench_case;

typedef struct {
    bench_case cases[MAX_CASES]; /* the largest, which was asked for, first */
    size_t count;
    json_t *shapes; /* of each case's inputs */
    char line[200]; /* what the first is */
} series;

bool bench_is_formula(const text_list *arguments)
{
    for (size_t i = 0; i < arguments->count; i++)
        if (strpbrk(arguments->items[i], "()+*/@ ") || inputs_is_input(arguments->items[i]))
            return true;
    return false;
}

/* ---- one size -------------------------------------------------------------------- */

typedef struct {
    const request *r;
    device_data data;
} running;

static bool run_plan(void *context, long repeats, double *seconds, failure *why)
{
    running *run = context;
    ogive_error error;
    double start = clock_seconds();

    for (long i = 0; i < repeats; i++)
        if (ogive_plan_run(run->r->plan, run->data.inputs, run->data.outputs, run->data.workspace,
                           NULL, &error))
            return fail_library(why, &error);
    if (!device_data_wait(&run->data, why))
        return false;
    *seconds = (clock_seconds() - start) / (double)repeats;
    return true;
}

static bool measure_case(request *r, bench_case *out, failure *why)
{
    running run = {.r = r};

    if (!traffic_count(r->plan, &out->t, why) || !traffic_limit(r, 0.4, &out->t, why))
        return false;
    bool good = inputs_load(&r->in, 0, why) && device_data_make(&run.data, r, why);
    good = good && time_median(run_plan, &run, r->device.device_type == kDLCPU ? 20e-6 : 2e-3,
                               &out->seconds, &out->samples, why);
    device_data_release(&run.data);
    return good;
}

/* ---- sizes ----------------------------------------------------------------------- */

/* The first extent of NAME=4096x4096:float32, or 0. */
static long long first_extent(const char *argument)
{
    const char *value = strchr(argument, '=');
    char *end;

    if (!value || strspn(value + 1, "0123456789") == strlen(value + 1))
        return 0;
    long long extent = strtoll(value + 1, &end, 10);
    return end > value + 1 && (*end == 'x' || *end == ':') ? extent : 0;
}

/* Arguments with extents of `from` at the front made `to`; only the first's, if alone. */
static bool shrink(const text_list *arguments, long long from, long long to, bool alone,
                   char (*texts)[ARGUMENT], text_list *out)
{
    bool done = false;

    for (size_t i = 0; i < arguments->count; i++) {
        const char *text = arguments->items[i];
        bool changes = first_extent(text) == from && from && !(alone && done);
        if (changes) {
            const char *value = strchr(text, '=') + 1;
            snprintf(texts[i], ARGUMENT, "%.*s%lld%s", (int)(value - text), text, to,
                     value + strspn(value, "0123456789"));
            done = true;
        }
        if (!text_list_add(out, changes ? texts[i] : text))
            return false;
    }
    return done;
}

/* The request with 1 / FEWER^index of the rows; false: there is none. */
static bool prepare_smaller(const formula_bench *options, const text_list *arguments, size_t index,
                            request *r)
{
    char(*texts)[ARGUMENT] = calloc(arguments->count, sizeof(*texts));
    long long from = 0, to;
    failure unused;
    bool good = false;

    for (size_t i = 0; i < arguments->count && !from; i++)
        from = first_extent(arguments->items[i]);
    to = from;
    for (size_t i = 0; i < index; i++)
        to /= FEWER;
    for (int alone = 0; alone < 2 && !good && to > 0 && texts; alone++) {
        text_list smaller = {0};
        good = shrink(arguments, from, to, alone, texts, &smaller) &&
               request_prepare(r, NULL, &smaller, NULL, &options->device, &unused);
        text_list_release(&smaller);
        if (!good)
            request_release(r);
    }
    /* The request's inputs are named by the formula, so the texts may go. */
    free(texts);
    return good;
}

static bool measure_all(const formula_bench *options, const text_list *arguments, request *r,
                        series *s, failure *why)
{
    for (size_t i = 0; i < (options->plot ? MAX_CASES : 1); i++) {
        request smaller = {0};
        if (i && !prepare_smaller(options, arguments, i, &smaller))
            break;
        request *one = i ? &smaller : r;
        json_array_append_new(s->shapes, peer_describe(&one->in));
        bool good = measure_case(one, &s->cases[s->count++], why);
        if (good && i == 0)
            traffic_line(one, &s->cases[0].t, s->line, sizeof(s->line));
        request_release(&smaller);
        if (!good)
            return false;
    }
    return true;
}

static bool measure_peer(const formula_bench *options, const request *r, series *s, failure *why)
{
    peer_time times[MAX_CASES] = {0};
    char device[32] = "cpu";

    if (!options->peer)
        return true;
    if (r->device.device_type == kDLCUDA)
        snprintf(device, sizeof(device), "cuda:%d", r->device.device_id);
    fprintf(stderr, "PyTorch runs (torch.compile takes its time) ...\n");
    if (!peer_measure(r, s->shapes, device, options->device.threads, times, why))
        return false;
    for (size_t i = 0; i < s->count; i++)
        s->cases[i].peer = times[i];
    return true;
}

/* ---- printing -------------------------------------------------------------------- */

/* Products that reuse what they read are told by what they compute. */
static bool counts_operations(const traffic *t)
{
    return t->has_product && t->operations > 16 * (t->read + t->written);
}

static double rate_of(const traffic *t, double seconds)
{
    double amount = counts_operations(t) ? t->operations : t->read + t->written;
    return seconds > 0 ? amount / seconds / 1e9 : 0;
}

static void print_row(const bench_case *c, const char *name, double seconds)
{
    char time[32], part[32] = "-", ratio[32] = "-";

    if (seconds <= 0)
        return;
    text_seconds(time, sizeof(time), seconds);
    if (c->t.floor > 0 && !(counts_operations(&c->t) && !c->t.multiplies))
        snprintf(part, sizeof(part), "%.0f%%", 100 * c->t.floor / seconds);
    if (c->peer.eager > 0)
        snprintf(ratio, sizeof(ratio), "%.2f", c->peer.eager / seconds);
    printf("%-22s %10s %9.1f %10s %14s\n", name, time, rate_of(&c->t, seconds), part, ratio);
}

static void print_series(const series *s)
{
    const bench_case *c = &s->cases[0];
    char name[64];

    printf("%s\n\n%-22s %10s %9s %10s %14s\n", s->line, "", "time",
           counts_operations(&c->t) ? "GFLOP/s" : "GB/s", "of floor", "times PyTorch");
    print_row(c, "Ogive", c->seconds);
    snprintf(name, sizeof(name), "PyTorch %s", c->peer.version);
    print_row(c, name, c->peer.eager);
    print_row(c, "torch.compile", c->peer.compiled);
    if (c->t.limit > 0)
        printf("\nmemory limit: %.1f GB/s, %s\n", c->t.limit / 1e9,
               c->t.threads ? "measured now" : "by the GPU's bus and clock");
}

static void print_series_json(const series *s, const char *formula)
{
    json_t *list = json_array();

    for (size_t i = 0; i < s->count; i++) {
        const bench_case *c = &s->cases[i];
        json_t *item =
            json_pack("{s:O, s:f, s:I, s:I, s:f, s:f}", "inputs", json_array_get(s->shapes, i),
                      "seconds", c->seconds, "samples", (json_int_t)c->samples, "bytes",
                      (json_int_t)(c->t.read + c->t.written), "operations", c->t.operations,
                      "floor_seconds", c->t.floor);
        if (c->peer.eager > 0)
            json_object_set_new(item, "torch_eager_seconds", json_real(c->peer.eager));
        if (c->peer.compiled > 0)
            json_object_set_new(item, "torch_compile_seconds", json_real(c->peer.compiled));
        json_array_append_new(list, item);
    }
    print_json(json_pack("{s:s, s:o}", "formula", formula, "sizes", list));
}

/* ---- the plot -------------------------------------------------------------------- */

static void add_times(plot_panel *panel, const series *s, bool ratios)
{
    static const char *const names[] = {"Ogive", "PyTorch", "torch.compile"};
    static const char *const colours[] = {"#0f766e", "#6b7280", "#d97706"};

    for (size_t n = 0; n < 3; n++) {
        plot_series *line = &panel->series[panel->series_count];
        *line = (plot_series){.name = names[n], .colour = colours[n]};
        for (size_t i = 0; i < s->count; i++) { /* the smallest first */
            const bench_case *c = &s->cases[s->count - 1 - i];
            double seconds = n == 0 ? c->seconds : n == 1 ? c->peer.eager : c->peer.compiled;
            line->y[i] = seconds <= 0 ? 0
                         : ratios     ? c->peer.eager / seconds
                                      : rate_of(&c->t, seconds);
        }
        panel->series_count += line->y[s->count - 1] > 0;
    }
}

static bool write_plot(const formula_bench *options, const char *formula, const series *s,
                       failure *why)
{
    bool operations = counts_operations(&s->cases[0].t);
    plot p = {.title = formula, .subtitle = s->line, .count = s->count, .panel_count = 1};

    p.panels[0].unit = operations ? "GFLOP/s" : "GB/s";
    for (size_t i = 0; i < s->count; i++) {
        const traffic *t = &s->cases[s->count - 1 - i].t;
        p.bytes[i] = t->read + t->written;
    }
    add_times(&p.panels[0], s, false);
    plot_panel *first = &p.panels[0];
    plot_series *limit = &first->series[first->series_count];
    *limit = (plot_series){.name = "memory", .colour = "#9ca3af", .dashed = true};
    for (size_t i = 0; i < s->count; i++)
        limit->y[i] = s->cases[0].t.limit / 1e9; /* of smaller sizes the caches' */
    first->series_count += !operations && limit->y[0] > 0;
    if (s->cases[0].peer.eager > 0) {
        p.panels[p.panel_count].unit = "times";
        add_times(&p.panels[p.panel_count++], s, true);
    }
    return plot_write(&p, options->plot, why);
}

bool bench_formula(const formula_bench *options, const text_list *arguments, failure *why)
{
    if (options->peer && strcmp(options->peer, "torch") != 0)
        return failed(why, STATUS_USAGE, "unknown peer '%s'; expected torch", options->peer);
    request r = {0};
    series s = {.shapes = json_array()};
    bool good = request_prepare(&r, NULL, arguments, NULL, &options->device, why) &&
                measure_all(options, arguments, &r, &s, why) && measure_peer(options, &r, &s, why);
    if (good && options->plot)
        good = write_plot(options, r.text, &s, why);
    if (good && options->json)
        print_series_json(&s, r.text);
    else if (good)
        print_series(&s);
    json_decref(s.shapes);
    request_release(&r);
    return good;
}
