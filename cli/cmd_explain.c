/* SPDX-License-Identifier: MIT
 *
 * cmd_explain.c - ogive explain: how a formula will be run, and the least time
 * that it can take on this machine.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "divisions.h"
#include "drawing.h"
#include "json_output.h"
#include "memory_limit.h"
#include "report.h"
#include "request.h"
#include "traffic.h"

static const char help[] =
    "usage: ogive explain FORMULA [INPUT]... [OPTION]...\n"
    "\n"
    "Shows how FORMULA will be run on inputs of these shapes, in a line and then in detail: its\n"
    "kernels, what they compute (FLOP: a function of an element is one, a product of k 2 k), the\n"
    "bytes they must move at least, this machine's memory speed (measured now; of a GPU, by its\n"
    "bus and clock) and so the least time a run can take when its data does not fit into the\n"
    "caches; of matrix products on a GPU also the least time that multiplying takes.\n"
    "Nothing is computed.\n"
    "\n"
    "inputs are those of ogive run; for shapes alone, x=4096x4096:float32 is enough\n"
    "\n"
    "options:\n"
    "  -f, --file FILE     read the formula from FILE, '-' for standard input\n"
    "  --gradient NAME     show the gradient by this input, see ogive run; several share work\n"
    "  --device DEVICE     where it would run: cpu (default), cuda or cuda:N (see ogive info);\n"
    "                      where there is no GPU, cuda shows how it would run on an H100\n"
    "  --arch ARCH         as on a GPU of this architecture, such as 80 or 90a\n"
    "  --threads N         use at most N threads (default: OMP_NUM_THREADS, else all cores)\n"
    "  --cpu LEVEL         use at most this CPU level (see ogive info)\n"
    "  --precision P       of products: float32 (default), strict or tf32\n"
    "  --divide N          show too how it is divided among N processes: which dims together,\n"
    "                      what a process then has of each input and result (a part, a sum to\n"
    "                      be added up, ...) and what has to be reduced on the way\n"
    "  --svg FILE          draw it too: kernels as boxes, tensors as arrows ('-': to standard\n"
    "                      output, and nothing else)\n"
    "  --no-limit          do not measure the memory\n"
    "  --json              print all of it as JSON\n"
    "\n"
    "examples:\n"
    "  ogive explain 'x * sigmoid(x) + y' x=4096x4096:float32 y=4096x4096:float32\n"
    "  ogive explain 'softmax(x, dim=-1)' x=in.npy --threads 1\n"
    "  ogive explain 'softmax(x, dim=-1)' x=64x64 grad=64x64 --gradient x\n"
    "  ogive explain 'softmax(x, dim=-1)' x=4096x4096 --device cuda\n"
    "  ogive explain 'softmax(x @ y, 1) @ z' x=64x64 y=64x64 z=64x64 --svg plan.svg\n"
    "  ogive explain 'linear(x, w, b)' x=512x1024 w=4096x1024 b=4096:float32 --divide 8\n";

static char *plan_text(const ogive_plan *plan)
{
    size_t length = ogive_plan_explain(plan, NULL, 0);
    char *text = length ? malloc(length + 1) : NULL;

    if (text && ogive_plan_explain(plan, text, length + 1) != length) {
        free(text);
        return NULL;
    }
    return text;
}

static void print_traffic(const traffic *t)
{
    char total[32], in[32], out[32], floor[32];

    text_bytes(total, sizeof(total), t->read + t->written);
    text_bytes(in, sizeof(in), t->read);
    text_bytes(out, sizeof(out), t->written);
    printf("bytes that must move  %s (%s read, %s written)\n", total, in, out);
    if (t->limit <= 0)
        return;
    text_seconds(floor, sizeof(floor), t->floor);
    if (t->threads)
        printf("memory limit          %.1f GB/s (measured now, %d thread%s, the same mix of reads "
               "and writes)\n",
               t->limit / 1e9, t->threads, t->threads == 1 ? "" : "s");
    else
        printf("memory limit          %.1f GB/s (the GPU's bus and clock)\n", t->limit / 1e9);
    printf("floor                 %s%s\n", floor,
           t->multiplies ? " (products take longer than memory)" : "");
    if (!t->threads)
        return;
    for (int level = 1; level <= 3; level++) {
        double cache = (double)cache_bytes(level) * (level < 3 ? t->threads : 1);
        if (cache > 0 && t->read + t->written <= cache) {
            printf("                      (all of it fits into L%d: a warm run can be faster)\n",
                   level);
            return;
        }
    }
}

static json_t *explain_json(const request *r, const char *text, const traffic *t)
{
    json_t *kernels = json_array(), *results = json_array();

    for (size_t i = 0; i < ogive_plan_kernel_count(r->plan); i++) {
        ogive_kernel_info k;
        if (ogive_plan_kernel(r->plan, i, &k, NULL))
            continue;
        json_t *item = json_pack("{s:s, s:I, s:I, s:I, s:i, s:i}", "name", k.name, "elements",
                                 (json_int_t)k.elements, "bytes_read", (json_int_t)k.bytes_read,
                                 "bytes_written", (json_int_t)k.bytes_written, "passes", k.passes,
                                 "threads", k.threads);
        if (k.multiply_seconds > 0)
            json_object_set_new(item, "multiply_seconds", json_real(k.multiply_seconds));
        json_array_append_new(kernels, item);
    }
    for (size_t i = 0; i < ogive_formula_result_count(r->formula); i++) {
        host_layout layout = host_layout_from(ogive_plan_result(r->plan, i));
        json_t *shape = json_array();
        for (int32_t d = 0; d < layout.ndim; d++)
            json_array_append_new(shape, json_integer(layout.shape[d]));
        json_array_append_new(results,
                              json_pack("{s:o, s:s}", "shape", shape, "dtype", layout.dtype->name));
    }
    json_t *all = json_pack(
        "{s:s, s:o, s:o, s:I, s:I, s:I, s:f}", "plan", text, "kernels", kernels, "results", results,
        "workspace_bytes", (json_int_t)ogive_plan_workspace(r->plan), "bytes_read",
        (json_int_t)t->read, "bytes_written", (json_int_t)t->written, "operations", t->operations);
    if (r->options.cuda_arch)
        json_object_set_new(all, "assumed_arch", json_string(r->options.cuda_arch));
    if (t->limit > 0) {
        json_object_set_new(all, "memory_bytes_per_second", json_real(t->limit));
        json_object_set_new(all, "floor_seconds", json_real(t->floor));
    }
    return all;
}

/* Draws the plan; *done: there is nothing more to print. */
static bool draw(const request *r, const char *path, bool *done, failure *why)
{
    char *text = plan_text(r->plan);
    bool good = text ? draw_plan(r->text, text, path, why) : fail_memory(why, 0, "the explanation");

    *done = !strcmp(path, "-");
    free(text);
    return good;
}

static bool explain(const request *r, bool limit, bool json, int64_t processes, failure *why)
{
    json_t *divisions = NULL;
    traffic t;
    char line[200];

    if (!traffic_count(r->plan, &t, why) || (limit && !traffic_limit(r, 0.2, &t, why)))
        return false;
    traffic_line(r, &t, line, sizeof(line));
    char *text = plan_text(r->plan);
    if (!text)
        return fail_memory(why, 0, "the explanation");
    bool good = true;
    if (json) {
        json_t *all = explain_json(r, text, &t);
        good = !processes || divisions_json(r, processes, &divisions, why);
        if (divisions)
            json_object_set_new(all, "divisions", divisions);
        if (good)
            print_json(all);
        else
            json_decref(all);
    } else {
        size_t length = strlen(text);
        printf("%s\n\n", line);
        fputs(text, stdout);
        if (length && text[length - 1] != '\n')
            putchar('\n');
        print_traffic(&t);
        good = !processes || divisions_print(r, processes, why);
    }
    free(text);
    return good;
}

/* Without a GPU the plan for one can still be shown, if that is said: *why_assumed. */
static void assume_arch(device_options *device, const char **why_assumed)
{
    static ogive_cuda_info info;

    if (!device->device || strncmp(device->device, "cuda", 4) || device->arch)
        return;
    ogive_cuda_describe(&info);
    if (info.device_count > 0)
        return;
    device->arch = "90a";
    *why_assumed = info.driver_problem;
}

static int run_explain(int argc, char **argv)
{
    text_list arguments = {0}, gradient = {0};
    device_options device = {0};
    const char *file = NULL, *why_assumed = NULL, *drawing = NULL;
    bool json = false, no_limit = false, done = false;
    int64_t processes = 0;
    const option options[] = {
        {.name = "--file", .letter = 'f', .kind = OPTION_TEXT, .value = &file},
        {.name = "--json", .kind = OPTION_FLAG, .value = &json},
        {.name = "--no-limit", .kind = OPTION_FLAG, .value = &no_limit},
        {.name = "--svg", .kind = OPTION_TEXT, .value = &drawing},
        {.name = "--gradient", .kind = OPTION_LIST, .value = &gradient},
        {.name = "--divide",
         .kind = OPTION_NUMBER,
         .value = &processes,
         .least = 1,
         .greatest = 1 << 30},
        {.name = "--arch", .kind = OPTION_TEXT, .value = &device.arch},
        DEVICE_OPTIONS(&device),
        {0},
    };
    request r = {0};
    failure why = {0};

    bool good = options_parse(argc, argv, options, &arguments, &why);
    if (good && device.arch && !device.device)
        device.device = "cuda";
    if (good)
        assume_arch(&device, &why_assumed);
    good = good && request_prepare(&r, file, &arguments, &gradient, &device, &why);
    if (good && drawing)
        good = draw(&r, drawing, &done, &why);
    if (good && why_assumed && !json && !done) {
        printf("no GPU to plan for: ");
        text_print_safe(stdout, why_assumed, strlen(why_assumed));
        printf("\n\n");
    }
    good = good && (done || explain(&r, !no_limit, json, processes, &why));
    if (!good)
        report_failure(&why, r.text, r.length);
    request_release(&r);
    text_list_release(&arguments);
    text_list_release(&gradient);
    return good ? STATUS_DONE : why.status;
}

const command command_explain = {"explain", "show how a formula will be run, and the least time",
                                 help, run_explain};
