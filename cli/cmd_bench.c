/* SPDX-License-Identifier: MIT
 *
 * cmd_bench.c - ogive bench: the time of known workloads, against the memory's
 * speed measured in the same run.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "bench_formula.h"
#include "cli.h"
#include "clock.h"
#include "device_data.h"
#include "json_output.h"
#include "memory_limit.h"
#include "progress.h"
#include "report.h"
#include "request.h"
#include "timing.h"
#include "workloads.h"

static const char help[] =
    "usage: ogive bench FORMULA [INPUT]... [OPTION]...\n"
    "       ogive bench [WORKLOAD]... [OPTION]...\n"
    "\n"
    "Measures FORMULA on such inputs (those of ogive run): the median of at least 20 runs, GB/s,\n"
    "or GFLOP/s where products count, and how much of that the least possible time is.\n"
    "\n"
    "Measures known workloads (or those whose names begin with WORKLOAD) on this machine:\n"
    "the median of at least 20 runs, the bytes moved per second, and for those too large for\n"
    "the caches the part of the memory's speed that this is: on the CPU measured in the same\n"
    "run, on a GPU by the width of its bus and its clock.\n"
    "\n"
    "options:\n"
    "  --peer torch     of a FORMULA: PyTorch's functions beside it, eagerly and by\n"
    "                   torch.compile, in a process of python3 (or OGIVE_PYTHON)\n"
    "  --plot FILE.svg  of a FORMULA: draw the rates, and with --peer how many times as fast\n"
    "                   as PyTorch, at the size given and at smaller ones\n"
    "  --list           list the workloads and their formulas\n"
    "  --device DEVICE  where to run them: cpu (default), cuda or cuda:N (see ogive info)\n"
    "  --threads N      use at most N threads (default: OMP_NUM_THREADS, else all cores)\n"
    "  --cpu LEVEL      use at most this CPU level (see ogive info)\n"
    "  --precision P    of products: float32 (default), strict or tf32 (with a formula)\n"
    "  --json           print the results as JSON\n"
    "\n"
    "examples:\n"
    "  ogive bench 'softmax(x, 1)' x=4096x4096 --peer torch --plot softmax.svg\n"
    "  ogive bench 'linear(x, w, b)' x=128x4096 w=4096x4096 b=4096:float32 --device cuda\n"
    "  ogive bench\n"
    "  ogive bench sigmoid sum-rows --threads 1\n"
    "  ogive bench sigmoid --device cuda\n";

enum { MAX_LIMITS = 16 };

/* Memory limits measured so far, by the share of reads and threads. */
typedef struct {
    double read_share, bytes_per_second;
    int32_t threads;
} known_limit;

typedef struct {
    bool json;
    device_options device;
    ogive_cuda_device_info gpu; /* of --device cuda */
    known_limit limits[MAX_LIMITS];
    size_t limit_count;
    json_t *list;
    size_t done, total;
} bench;

/* Everything that one workload runs with. */
typedef struct {
    const workload *w;
    request r;
    device_data data;
    host_layout layouts[4];
    DLTensor tensors[4];  /* of the results */
    double read, written; /* bytes a run must move */
    int32_t threads;
} setup;

typedef struct {
    double seconds;   /* median */
    size_t samples;   /* that it is the median of */
    double limit;     /* bytes per second; 0: does not apply */
    bool unavailable; /* OGIVE_UNSUPPORTED */
} measured;

static void setup_release(setup *s)
{
    device_data_release(&s->data);
    request_release(&s->r);
}

static bool setup_traffic(setup *s, failure *why)
{
    ogive_error error;

    s->threads = 1;
    for (size_t i = 0; i < ogive_plan_kernel_count(s->r.plan); i++) {
        ogive_kernel_info info;
        if (ogive_plan_kernel(s->r.plan, i, &info, &error))
            return fail_library(why, &error);
        s->read += (double)info.bytes_read;
        s->written += (double)info.bytes_written;
        s->threads = info.threads > s->threads ? info.threads : s->threads;
    }
    return true;
}

static bool setup_memory(setup *s, failure *why)
{
    if (!inputs_load(&s->r.in, 0, why) || !device_data_make(&s->data, &s->r, why))
        return false;
    for (size_t i = 0; i < s->r.in.count; i++)
        s->r.in.items[i].tensor.data = (void *)(uintptr_t)s->data.inputs[i];
    for (size_t i = 0; i < s->data.output_count && i < 4; i++) {
        s->layouts[i] = host_layout_from(ogive_plan_result(s->r.plan, i));
        s->tensors[i] = host_layout_tensor(&s->layouts[i], s->data.outputs[i]);
        s->tensors[i].device = s->r.device;
    }
    return true;
}

static ogive_status run_once(setup *s, ogive_error *error)
{
    const DLTensor *outputs[] = {&s->tensors[0], &s->tensors[1], &s->tensors[2], &s->tensors[3]};
    ogive_formula *formula = NULL;
    ogive_status status;

    size_t count = s->data.output_count;
    if (s->w->kind == WORKLOAD_RUN)
        return ogive_plan_run(s->r.plan, s->data.inputs, s->data.outputs, s->data.workspace, NULL,
                              error);
    if (s->w->kind == WORKLOAD_CALL)
        return ogive_run(s->r.formula, s->r.in.tensors, s->r.in.count, outputs, count,
                         &s->r.options, error);
    status = ogive_formula_create(s->w->formula, OGIVE_TEXT, &formula, error);
    if (!status)
        status = ogive_run(formula, s->r.in.tensors, s->r.in.count, outputs, count, &s->r.options,
                           error);
    ogive_formula_release(formula);
    return status;
}

/* Seconds of `repeats` runs, divided by them; on a GPU until the last has ended. */
static bool time_runs(void *context, long repeats, double *out, failure *why)
{
    setup *s = context;
    ogive_error error;
    double start = clock_seconds();

    for (long i = 0; i < repeats; i++)
        if (run_once(s, &error))
            return fail_library(why, &error);
    if (!device_data_wait(&s->data, why))
        return false;
    *out = (clock_seconds() - start) / (double)repeats;
    return true;
}

/* The memory's speed for this mix; 0 where the caches hold the data. */
static bool find_limit(bench *b, const setup *s, double *out, failure *why)
{
    double total = s->read + s->written, cache = (double)cache_bytes(3);
    double share = total > 0 ? s->read / total : 0;

    *out = 0;
    if (s->r.device.device_type == kDLCUDA)
        cache = (double)b->gpu.l2_bytes;
    if (s->w->kind != WORKLOAD_RUN || total < 2 * (cache > 0 ? cache : 32 << 20))
        return true;
    if (s->r.device.device_type == kDLCUDA) {
        *out = b->gpu.memory_bytes_per_second;
        return true;
    }
    for (size_t i = 0; i < b->limit_count; i++) {
        double difference = b->limits[i].read_share - share;
        if (difference < 0.01 && difference > -0.01 && b->limits[i].threads == s->threads) {
            *out = b->limits[i].bytes_per_second;
            return true;
        }
    }
    if (!memory_limit_measure(s->read, s->written, s->threads, 0.4, out, why))
        return false;
    if (b->limit_count < MAX_LIMITS)
        b->limits[b->limit_count++] = (known_limit){share, *out, s->threads};
    return true;
}

static bool measure(bench *b, const workload *w, setup *s, measured *out, failure *why)
{
    text_list arguments = {0};
    bool good = text_list_add(&arguments, w->formula);

    *s = (setup){.w = w};
    *out = (measured){0};
    for (size_t i = 0; i < 4 && w->inputs[i]; i++)
        good = good && text_list_add(&arguments, w->inputs[i]);
    if (!good)
        fail_memory(why, 0, w->name);
    good = good && request_prepare(&s->r, NULL, &arguments, NULL, &b->device, why);
    text_list_release(&arguments);
    good = good && setup_traffic(s, why) && setup_memory(s, why) &&
           find_limit(b, s, &out->limit, why) &&
           time_median(time_runs, s, s->r.device.device_type == kDLCPU ? 20e-6 : 2e-3,
                       &out->seconds, &out->samples, why);
    out->unavailable = !good && why->library == OGIVE_UNSUPPORTED;
    return good || out->unavailable;
}

static void print_header(const bench *b)
{
    if (!b->json)
        printf("%-22s %10s %9s %10s %7s\n", "workload", "time", "GB/s", "of memory", "threads");
    fflush(stdout);
}

static void print_measured(bench *b, const setup *s, const measured *m)
{
    char time[32], rate[32] = "-", part[32] = "-";
    double speed = m->seconds > 0 ? (s->read + s->written) / m->seconds : 0;

    if (b->json) {
        json_t *item = json_pack("{s:s, s:s, s:b}", "workload", s->w->name, "formula",
                                 s->w->formula, "available", !m->unavailable);
        if (!m->unavailable) {
            json_object_set_new(item, "seconds", json_real(m->seconds));
            json_object_set_new(item, "samples", json_integer((json_int_t)m->samples));
            json_object_set_new(item, "threads", json_integer(s->threads));
            json_object_set_new(item, "bytes", json_integer((json_int_t)(s->read + s->written)));
            json_object_set_new(item, "bytes_per_second", json_real(speed));
        }
        if (m->limit > 0)
            json_object_set_new(item, "memory_bytes_per_second", json_real(m->limit));
        json_array_append_new(b->list, item);
        return;
    }
    if (m->unavailable) {
        printf("%-22s not available yet\n", s->w->name);
        return;
    }
    text_seconds(time, sizeof(time), m->seconds);
    if (s->w->kind == WORKLOAD_RUN)
        snprintf(rate, sizeof(rate), "%.1f", speed / 1e9);
    if (m->limit > 0)
        snprintf(part, sizeof(part), "%.0f%%", 100 * speed / m->limit);
    printf("%-22s %10s %9s %10s %7d\n", s->w->name, time, rate, part, s->threads);
    fflush(stdout);
}

static bool is_chosen(const workload *w, const text_list *names)
{
    for (size_t i = 0; i < names->count; i++)
        if (!strncmp(w->name, names->items[i], strlen(names->items[i])))
            return true;
    return names->count == 0;
}

/* Every name must choose something. */
static bool check_names(const text_list *names, failure *why)
{
    const char *known[64];
    char families[64][40]; /* "sigmoid" of "sigmoid-2^12": names may be beginnings */

    for (size_t j = 0; j < workload_count; j++) {
        const char *size = strstr(workloads[j].name, "-2^");
        int length = size ? (int)(size - workloads[j].name) : (int)strlen(workloads[j].name);
        snprintf(families[j], sizeof(families[j]), "%.*s", length, workloads[j].name);
        known[j] = families[j];
    }
    for (size_t i = 0; i < names->count; i++) {
        text_list one = {.items = &names->items[i], .count = 1};
        size_t j = 0;
        while (j < workload_count && !is_chosen(&workloads[j], &one))
            j++;
        if (j < workload_count)
            continue;
        const char *nearest = text_nearest(names->items[i], known, workload_count);
        return nearest ? failed(why, STATUS_USAGE, "unknown workload '%s'; did you mean '%s'?",
                                names->items[i], nearest)
                       : failed(why, STATUS_USAGE, "unknown workload '%s' (see ogive bench --list)",
                                names->items[i]);
    }
    return true;
}

static void print_limits(const bench *b)
{
    if (b->gpu.memory_bytes_per_second > 0)
        printf("\nmemory limit of %s: %.0f GB/s, by bus and clock\n", b->gpu.name,
               b->gpu.memory_bytes_per_second / 1e9);
    for (size_t i = 0; i < b->limit_count; i++)
        printf("%smemory limit: %.1f GB/s at %.0f%% reads, %d thread%s\n", i ? "" : "\n",
               b->limits[i].bytes_per_second / 1e9, 100 * b->limits[i].read_share,
               b->limits[i].threads, b->limits[i].threads == 1 ? "" : "s");
}

static bool bench_all(bench *b, const text_list *names, failure *why)
{
    for (size_t i = 0; i < workload_count; i++)
        b->total += is_chosen(&workloads[i], names);
    print_header(b);
    progress_start("", (double)b->total);
    for (size_t i = 0; i < workload_count; i++) {
        setup s;
        measured m;
        if (!is_chosen(&workloads[i], names))
            continue;
        progress_label(workloads[i].name, (double)b->done++);
        bool good = measure(b, &workloads[i], &s, &m, why);
        progress_clear();
        if (good)
            print_measured(b, &s, &m);
        else
            fail_prefix(why, workloads[i].name);
        setup_release(&s);
        if (!good)
            return false;
    }
    progress_end();
    if (b->json) {
        print_json(b->list);
        b->list = NULL;
    } else {
        print_limits(b);
    }
    return true;
}

static void list_workloads(const text_list *names)
{
    for (size_t i = 0; i < workload_count; i++) {
        if (!is_chosen(&workloads[i], names))
            continue;
        printf("%-22s %s", workloads[i].name, workloads[i].formula);
        for (size_t j = 0; j < 4 && workloads[i].inputs[j]; j++)
            printf("%s%s", j ? " " : "   ", workloads[i].inputs[j]);
        putchar('\n');
    }
}

static int run_bench(int argc, char **argv)
{
    text_list names = {0};
    bench b = {0};
    bool list = false;
    formula_bench own = {0};
    const option options[] = {
        {.name = "--peer", .kind = OPTION_TEXT, .value = &own.peer},
        {.name = "--plot", .kind = OPTION_TEXT, .value = &own.plot},
        {.name = "--list", .kind = OPTION_FLAG, .value = &list},
        {.name = "--json", .kind = OPTION_FLAG, .value = &b.json},
        DEVICE_OPTIONS(&b.device),
        {0},
    };
    ogive_options unused;
    DLDevice where;
    ogive_error error;
    failure why = {0};

    bool good = options_parse(argc, argv, options, &names, &why);
    if (good && bench_is_formula(&names)) {
        own.device = b.device;
        own.json = b.json;
        good = bench_formula(&own, &names, &why);
        if (!good)
            report_failure(&why, names.items[0], strlen(names.items[0]));
        text_list_release(&names);
        return good ? STATUS_DONE : why.status;
    }
    if (good && (own.peer || own.plot || b.device.precision))
        good = failed(&why, STATUS_USAGE, "--peer, --plot and --precision go with a formula");
    good =
        good && check_names(&names, &why) && device_options_apply(&b.device, &unused, &where, &why);
    if (good && !list && where.device_type == kDLCUDA &&
        ogive_cuda_device(where.device_id, &b.gpu, &error))
        good = fail_library(&why, &error);
    if (good && list) {
        list_workloads(&names);
    } else if (good) {
        b.list = b.json ? json_array() : NULL;
        good = bench_all(&b, &names, &why);
    }
    if (!good)
        report_failure(&why, NULL, 0);
    json_decref(b.list);
    text_list_release(&names);
    return good ? STATUS_DONE : why.status;
}

const command command_bench = {"bench", "measure a formula, or known workloads, on this machine",
                               help, run_bench};
