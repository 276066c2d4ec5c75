/* SPDX-License-Identifier: MIT
 *
 * cmd_run.c - ogive run: evaluates a formula.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "clock.h"
#include "device_data.h"
#include "json_output.h"
#include "report.h"
#include "request.h"
#include "results.h"
#include "summary.h"

static const char help[] =
    "usage: ogive run FORMULA [INPUT]... [-o FILE]... [OPTION]...\n"
    "\n"
    "Evaluates FORMULA and writes or shows its results.\n"
    "\n"
    "inputs: every name in the formula that it does not define itself\n"
    "  x=in.npy                         a NumPy file (floats, integers, bool)\n"
    "  w=weights.safetensors:fc.weight  one tensor of a .safetensors file\n"
    "  weights.safetensors              every tensor in it, under its own name\n"
    "  x=128x4096:float32               generated, uniform in [0, 1); dtypes: float16,\n"
    "                                   bfloat16, float32, float64; integers below 128,\n"
    "                                   of uint8, int8, int16, int32, int64; bool\n"
    "  x=2x3x8x8:float32:channels_last  the same, dim 1 behind all others in memory\n"
    "  w=64:float32                     the same with one dim, of 64 elements\n"
    "  s=2.0                            a number (a 0-d float32 tensor)\n"
    "\n"
    "options:\n"
    "  -o, --output FILE   write a result to FILE.npy or FILE.safetensors, one -o for each\n"
    "                      result in order; one .safetensors takes all; FILE.safetensors:KEY\n"
    "                      names the tensor; a pipe or device, such as /dev/stdout, gets\n"
    "                      .npy. Without -o the results are summarised\n"
    "  -f, --file FILE     read the formula from FILE, '-' for standard input\n"
    "  --gradient NAME     compute the gradient by this input instead of the results; several\n"
    "                      give one result each. grad=... is what the result's change is\n"
    "                      worth (grad.0=, grad.1=, ... for several results); 1 if it is\n"
    "                      not given and the result has no dims\n"
    "  --device DEVICE     where to run it: cpu (default), cuda or cuda:N (see ogive info)\n"
    "  --threads N         use at most N threads (default: OMP_NUM_THREADS, else all cores)\n"
    "  --cpu LEVEL         use at most this CPU level (see ogive info)\n"
    "  --precision P       of products: float32 (default), strict or tf32\n"
    "  --seed N            seed of generated inputs (default 0)\n"
    "  --json              print the summary as JSON\n"
    "  --                  end of options, for a formula that begins with '-'\n"
    "\n"
    "A file is written under a temporary name and renamed when it is complete, so an\n"
    "output may be an input.\n"
    "\n"
    "examples:\n"
    "  ogive run 'sigmoid(x)' x=3x4:float32\n"
    "  ogive run 'x * sigmoid(x) + y' x=a.npy y=b.npy -o out.npy\n"
    "  ogive run 'sum(sigmoid(linear(x, fc.weight, fc.bias)), dim=1)' x=in.npy model.safetensors\n"
    "  ogive run 'm = mean(x, dim=1, keepdim=true); x - m, m' x=in.npy -o centred.npy -o mean.npy\n"
    "  ogive run 'mean((linear(x, w) - y)**2)' x=x.npy y=y.npy w=w.npy --gradient w -o dw.npy\n"
    "  ogive run -f layer.txt x=in.npy -o in.npy\n"
    "  ogive run 'softmax(x, dim=-1)' x=in.npy --device cuda -o out.npy\n"
    "  ogive run -- '-x' x=2.0\n"
    "\n"
    "exit status: 0 done; 2 usage or formula; 3 a file; 4 device or memory\n";

/* Results in memory. */
typedef struct {
    size_t count;
    host_layout *layouts;
    host_layout **layout_of; /* pointers to the above */
    void **data;
    double seconds; /* that the run took */
} computed;

static void computed_release(computed *c)
{
    for (size_t i = 0; c->data && i < c->count; i++)
        free(c->data[i]);
    free(c->data);
    free(c->layouts);
    free(c->layout_of);
}

static bool computed_describe(computed *c, const ogive_plan *plan, size_t count, failure *why)
{
    *c = (computed){.count = count,
                    .layouts = calloc(count, sizeof(*c->layouts)),
                    .layout_of = calloc(count, sizeof(*c->layout_of)),
                    .data = calloc(count, sizeof(*c->data))};
    if (!c->layouts || !c->layout_of || !c->data)
        return fail_memory(why, (double)count, "the results");
    for (size_t i = 0; i < count; i++) {
        c->layouts[i] = host_layout_from(ogive_plan_result(plan, i));
        c->layout_of[i] = &c->layouts[i];
    }
    return true;
}

static bool compute(const request *r, computed *c, failure *why)
{
    device_data d;
    ogive_error error;

    bool good = device_data_make(&d, r, why);
    double start = clock_seconds();
    if (good && ogive_plan_run(r->plan, d.inputs, d.outputs, d.workspace, NULL, &error))
        good = fail_library(why, &error);
    good = good && device_data_wait(&d, why);
    c->seconds = clock_seconds() - start;
    for (size_t i = 0; good && i < c->count; i++) {
        size_t bytes = (size_t)host_layout_elements(&c->layouts[i]) * c->layouts[i].dtype->bytes;
        good = device_data_take(&d, i, bytes, &c->data[i], why);
    }
    device_data_release(&d);
    return good;
}

static void show(const computed *c)
{
    for (size_t i = 0; i < c->count; i++) {
        char label[40] = "";
        if (c->count > 1)
            snprintf(label, sizeof(label), "%sresult %zu: ", i ? "\n" : "", i);
        summary_print(stdout, label, &c->layouts[i], c->data[i]);
    }
}

static bool show_json(const computed *c, const text_list *outputs, failure *why)
{
    json_t *list = json_array();

    for (size_t i = 0; i < c->count; i++) {
        json_t *result = summary_json(&c->layouts[i], c->data[i]);
        if (outputs->count)
            json_object_set_new(result, "file",
                                json_string(outputs->items[outputs->count == 1 ? 0 : i]));
        json_array_append_new(list, result);
    }
    json_t *all = json_pack("{s:o, s:f}", "results", list, "seconds", c->seconds);
    if (!all)
        return fail_memory(why, 0, "the summary");
    print_json(all);
    return true;
}

static int run_run(int argc, char **argv)
{
    text_list arguments = {0}, outputs = {0}, gradient = {0};
    device_options device = {0};
    const char *file = NULL;
    int64_t seed = 0;
    bool json = false;
    const option options[] = {
        {.name = "--output", .letter = 'o', .kind = OPTION_LIST, .value = &outputs},
        {.name = "--file", .letter = 'f', .kind = OPTION_TEXT, .value = &file},
        {.name = "--seed", .kind = OPTION_NUMBER, .value = &seed, .greatest = INT64_MAX},
        {.name = "--json", .kind = OPTION_FLAG, .value = &json},
        {.name = "--gradient", .kind = OPTION_LIST, .value = &gradient},
        DEVICE_OPTIONS(&device),
        {0},
    };
    request r = {0};
    computed c = {0};
    results files = {0};
    failure why = {0};

    bool good = options_parse(argc, argv, options, &arguments, &why) &&
                request_prepare(&r, file, &arguments, &gradient, &device, &why) &&
                computed_describe(&c, r.plan, ogive_formula_result_count(r.formula), &why);
    if (good && outputs.count)
        good = results_open(&files, &outputs, c.layout_of, c.count, &why);
    good = good && inputs_load(&r.in, (uint64_t)seed, &why) && compute(&r, &c, &why);
    if (good && outputs.count)
        good = results_write(&files, c.layout_of, c.data, &why);
    if (good && json)
        good = show_json(&c, &outputs, &why);
    else if (good && !outputs.count)
        show(&c);
    if (!good)
        report_failure(&why, r.text, r.length);

    results_release(&files);
    computed_release(&c);
    request_release(&r);
    text_list_release(&arguments);
    text_list_release(&gradient);
    text_list_release(&outputs);
    return good ? STATUS_DONE : why.status;
}

const command command_run = {"run", "evaluate a formula", help, run_run};
