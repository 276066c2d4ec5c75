/* SPDX-License-Identifier: MIT
 *
 * cmd_check.c - ogive check: the accuracy of every function, measured here, on
 * every float32, against the library's own table.
 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "check_products.h"
#include "json_output.h"
#include "options.h"
#include "progress.h"
#include "report.h"
#include "sweep.h"

static const char help[] =
    "usage: ogive check [FUNCTION]... [OPTION]...\n"
    "       ogive check products [OPTION]...\n"
    "\n"
    "Evaluates each function of one argument (or only those named) for every float32, all\n"
    "2^32 of them, and checks that\n"
    "  - the largest error against a reference in float64 is within the documented bound;\n"
    "  - the results' hash is the documented one, on every CPU level of this machine.\n"
    "Parameters have their defaults. Takes minutes per function; the errors are measured on\n"
    "the highest level, which the hash shows to be the same as the others. On a GPU only the\n"
    "hashes are checked: the same bits have the same errors.\n"
    "\n"
    "products: the errors of float32 matrix products on inputs that are hard for them, in units\n"
    "of 2^-24 of sum |x||w|, each result for itself, beside one chain of fused multiply-adds,\n"
    "the plainest SGEMM. Checks that none is beyond what ogive explain promises, if it does.\n"
    "\n"
    "options:\n"
    "  --quick          every 997th input only: seconds; hashes are compared between levels\n"
    "                   (of a GPU with the CPU), not with the documented ones; products: of a\n"
    "                   k up to 1024, two of 32768\n"
    "  --device DEVICE  cpu (default), cuda or cuda:N (see ogive info)\n"
    "  --cpu LEVEL      this CPU level only (see ogive info)\n"
    "  --precision P    of products: float32 (default), strict or tf32\n"
    "  --threads N      use at most N threads\n"
    "  --json           print the results as JSON\n"
    "  --markdown       print the results as a table for the documentation\n"
    "\n"
    "examples:\n"
    "  ogive check --quick\n"
    "  ogive check sigmoid tanh\n"
    "  ogive check --device cuda\n"
    "  ogive check products --device cuda\n"
    "\n"
    "exit status: 0 all within bounds; 1 a bound or a hash is violated\n";

/* A prime, so that every exponent and every low bit pattern comes up. */
enum { QUICK_STEP = 997, MAX_LEVELS = 16, MAX_PARAMETERS = 8 };

typedef struct {
    bool quick, json, markdown;
    DLDevice device;
    int32_t threads;
    const char *levels[MAX_LEVELS]; /* lowest first */
    size_t level_count;
    json_t *list;
} check;

typedef struct {
    const ogive_function_info *info;
    sweep_result highest;
    uint64_t hashes[MAX_LEVELS];
    char problem[160]; /* "" if none */
} verdict;

/* The numbers in "input, beta=1.0, threshold=20.0", in order, and how many they are; a
 * string such as approximate='none' keeps its default. -1: a parameter without a default,
 * so that NAME(x) is no formula. */
static int read_parameters(const char *signature, double out[MAX_PARAMETERS])
{
    int count = 0;
    const char *comma = signature;

    while ((comma = strchr(comma, ','))) {
        comma++;
        const char *equals = strchr(comma, '='), *next = strchr(comma, ',');
        if (strspn(comma, " *") == (next ? (size_t)(next - comma) : strlen(comma)))
            continue; /* the star before arguments that are given by name only */
        if (!equals || (next && equals > next) || !strncmp(equals + 1, "None", 4))
            return -1;
        char *end;
        /* A float32 function takes its parameters as float32, as PyTorch's does. */
        double value = (float)strtod(equals + 1, &end);
        if (end != equals + 1 && count < MAX_PARAMETERS)
            out[count++] = value;
    }
    return count;
}

/* "NAME(x, 0.009999999776482582)": the numbers as float32 has them, for float64 too. */
static void write_formula(const char *name, const double *parameters, int count, char *text,
                          size_t capacity)
{
    size_t length = (size_t)snprintf(text, capacity, "%s(x", name);

    for (int i = 0; i < count && length < capacity; i++)
        length += (size_t)snprintf(text + length, capacity - length, ", %.17g", parameters[i]);
    if (length < capacity)
        snprintf(text + length, capacity - length, ")");
}

/* Progress over all levels of one function; the oracle costs more than the rest. */
typedef struct {
    double done, weight;
} share_done;

static void show_progress(void *context, double part)
{
    const share_done *share = context;
    progress_update(share->done + share->weight * part);
}

static void judge(const check *c, verdict *v)
{
    const ogive_function_info *info = v->info;

    for (size_t i = 0; i + 1 < c->level_count; i++) {
        if (v->hashes[i] != v->highest.hash) {
            snprintf(v->problem, sizeof(v->problem), "%s gives other bits, hash %016llx",
                     c->levels[i], (unsigned long long)v->hashes[i]);
            return;
        }
    }
    if (!c->quick && v->highest.hash != info->hash)
        snprintf(v->problem, sizeof(v->problem), "the documented hash is %016llx",
                 (unsigned long long)info->hash);
    if (!(v->highest.worst <= info->max_ulp))
        snprintf(v->problem, sizeof(v->problem), "more than %g ULP: got %a, want %a", info->max_ulp,
                 v->highest.got, v->highest.want);
}

static bool check_function(const check *c, const ogive_function_info *info, verdict *out,
                           failure *why)
{
    enum { ORACLE_WEIGHT = 8 };
    double parameters[MAX_PARAMETERS] = {0};
    char formula[256];
    share_done share = {0};

    *out = (verdict){.info = info};
    int count = read_parameters(info->signature, parameters);
    write_formula(info->name, parameters, count, formula, sizeof(formula));
    progress_start(info->name, (double)(c->level_count - 1) + ORACLE_WEIGHT);
    for (size_t i = c->level_count; i-- > 0;) {
        bool highest = i + 1 == c->level_count;
        sweep_result result;
        share.weight = highest ? ORACLE_WEIGHT : 1;
        sweep s = {.formula = formula,
                   .level = c->levels[i],
                   .threads = c->threads,
                   .step = c->quick ? QUICK_STEP : 1,
                   .measures = highest,
                   .oracle = highest ? oracle_find(info->name) : NULL,
                   .parameters = parameters,
                   .progress = show_progress,
                   .context = &share};
        if (!sweep_run(&s, &result, why))
            return false;
        out->hashes[i] = result.hash;
        if (highest)
            out->highest = result;
        share.done += share.weight;
    }
    progress_end();
    judge(c, out);
    return true;
}

static json_t *verdict_json(const check *c, const verdict *v)
{
    json_t *hashes = json_object();
    char hash[24];

    for (size_t i = 0; i < c->level_count; i++) {
        snprintf(hash, sizeof(hash), "%016llx", (unsigned long long)v->hashes[i]);
        json_object_set_new(hashes, c->levels[i], json_string(hash));
    }
    snprintf(hash, sizeof(hash), "%016llx", (unsigned long long)v->info->hash);
    json_t *item = json_pack("{s:s, s:I, s:o, s:f, s:s}", "function", v->info->name, "inputs",
                             (json_int_t)v->highest.inputs, "hashes", hashes, "bound_ulp",
                             v->info->max_ulp, "documented_hash", hash);
    json_object_set_new(item, "max_ulp", json_number_or_text(v->highest.worst));
    json_object_set_new(item, "at", json_number_or_text(v->highest.at));
    json_object_set_new(item, "ok", json_boolean(!v->problem[0]));
    if (v->problem[0])
        json_object_set_new(item, "problem", json_string(v->problem));
    return item;
}

static void print_header(const check *c)
{
    if (c->markdown)
        printf("| function | largest error (ULP) | at input | hash of all results |\n"
               "|---|---|---|---|\n");
    else if (!c->json)
        printf("%-14s %13s  %-8s %-18s %s\n", "function", "largest error", "bound", "at input",
               c->quick ? "hash (quick)" : "hash");
    fflush(stdout);
}

static void print_verdict(check *c, const verdict *v)
{
    char at[40] = "-";

    if (v->highest.worst > 0)
        snprintf(at, sizeof(at), "%a", v->highest.at);
    if (c->json) {
        json_array_append_new(c->list, verdict_json(c, v));
    } else if (c->markdown) {
        printf("| `%s` | %.5g%s | `%s` | `%016llx`%s%s |\n", v->info->name, v->highest.worst,
               v->problem[0] ? " (!)" : "", at, (unsigned long long)v->highest.hash,
               v->problem[0] ? " " : "", v->problem);
    } else {
        printf("%-14s %9.5g ULP  %-8g %-18s %016llx  %s%s\n", v->info->name, v->highest.worst,
               v->info->max_ulp, at, (unsigned long long)v->highest.hash,
               v->problem[0] ? "FAILED: " : "ok", v->problem);
    }
    fflush(stdout);
}

/* On a GPU: its hash against the documented one, or the CPU's. */
static bool check_on_gpu(const check *c, size_t index, const ogive_function_info *info,
                         uint64_t *got, uint64_t *want, failure *why)
{
    const DLDevice cpu = {kDLCPU, 0};
    uint32_t step = c->quick ? QUICK_STEP : 1;
    ogive_error error;

    *want = info->hash;
    if (ogive_function_hash(index, c->device, step, got, &error) ||
        (c->quick && ogive_function_hash(index, cpu, step, want, &error)))
        return fail_library(why, &error);
    return true;
}

static void print_gpu_header(const check *c)
{
    if (c->markdown)
        printf("| function | hash of all results on the GPU |\n|---|---|\n");
    else if (!c->json)
        printf("%-14s %s\n", "function", c->quick ? "hash (quick)" : "hash");
    fflush(stdout);
}

static void print_gpu_hash(check *c, const char *name, uint64_t got, uint64_t want)
{
    char hash[24], other[24];

    snprintf(hash, sizeof(hash), "%016llx", (unsigned long long)got);
    snprintf(other, sizeof(other), "%016llx", (unsigned long long)want);
    if (c->json)
        json_array_append_new(c->list, json_pack("{s:s, s:s, s:s, s:b}", "function", name, "hash",
                                                 hash, "expected", other, "ok", got == want));
    else if (c->markdown)
        printf("| `%s` | `%s`%s%s |\n", name, hash, got == want ? "" : " (!) expected ",
               got == want ? "" : other);
    else
        printf("%-14s %s  %s%s\n", name, hash, got == want ? "ok" : "FAILED: expected ",
               got == want ? "" : other);
    fflush(stdout);
}

static bool is_checked(const ogive_function_info *info)
{
    double ignored[MAX_PARAMETERS];
    return info->max_ulp >= 0 && read_parameters(info->signature, ignored) >= 0;
}

static bool is_named(const text_list *names, const char *name)
{
    for (size_t i = 0; i < names->count; i++)
        if (!strcmp(names->items[i], name))
            return true;
    return false;
}

/* Every function named must have something to check. */
static bool check_choice(const text_list *names, failure *why)
{
    ogive_function_info info;

    for (size_t i = 0; i < ogive_function_count(); i++)
        if (!ogive_function(i, &info, NULL) && is_named(names, info.name) && !is_checked(&info))
            return failed(why, STATUS_USAGE, "'%s' has no documented error bound to check",
                          info.name);
    return true;
}

static void print_passed(const check *c, size_t checked)
{
    printf("%zu function%s ok: %s, ", checked, checked == 1 ? "" : "s",
           c->quick ? "every 997th float32" : "all 2^32 float32 inputs");
    if (c->device.device_type == kDLCUDA) {
        printf("CUDA device %d gives %s\n", (int)c->device.device_id,
               c->quick ? "the CPU's bits" : "the documented bits");
        return;
    }
    printf("CPU level%s", c->level_count == 1 ? "" : "s");
    for (size_t i = 0; i < c->level_count; i++)
        printf("%s %s", i ? "," : "", c->levels[i]);
    putchar('\n');
}

static bool check_all(check *c, const text_list *names, failure *why)
{
    size_t checked = 0, wrong = 0;
    ogive_error error;

    bool gpu = c->device.device_type == kDLCUDA;

    if (!check_choice(names, why))
        return false;
    if (!gpu)
        print_header(c);
    for (size_t i = 0; i < ogive_function_count(); i++) {
        ogive_function_info info;
        verdict v;
        if (ogive_function(i, &info, &error))
            return fail_library(why, &error);
        if ((names->count && !is_named(names, info.name)) || !is_checked(&info))
            continue;
        checked++;
        if (gpu) {
            uint64_t got, want;
            if (!check_on_gpu(c, i, &info, &got, &want, why))
                return false;
            if (checked == 1) /* not before it is known that there is a GPU */
                print_gpu_header(c);
            print_gpu_hash(c, info.name, got, want);
            wrong += got != want;
            continue;
        }
        if (!check_function(c, &info, &v, why))
            return false;
        print_verdict(c, &v);
        wrong += v.problem[0] != 0;
    }
    if (c->json) {
        print_json(c->list);
        c->list = NULL;
    }
    if (wrong)
        return failed(why, STATUS_CHECK_FAILED, "%zu of %zu functions failed", wrong, checked);
    if (!checked)
        return failed(why, STATUS_CHECK_FAILED, "the library documents no bound to check");
    if (!c->json && !c->markdown)
        print_passed(c, checked);
    return true;
}

static bool choose_levels(check *c, const char *only, failure *why)
{
    if (only) {
        c->levels[c->level_count++] = only;
        return check_cpu_level(only, why);
    }
    for (size_t i = 0; ogive_cpu_level_name(i) && i < MAX_LEVELS; i++)
        c->levels[c->level_count++] = ogive_cpu_level_name(i);
    return c->level_count || failed(why, STATUS_DEVICE, "no CPU level can be used");
}

static int run_check(int argc, char **argv)
{
    text_list names = {0};
    check c = {0};
    device_options device = {0};
    ogive_options applied;
    const option options[] = {
        {.name = "--quick", .kind = OPTION_FLAG, .value = &c.quick},
        {.name = "--json", .kind = OPTION_FLAG, .value = &c.json},
        {.name = "--markdown", .kind = OPTION_FLAG, .value = &c.markdown},
        DEVICE_OPTIONS(&device),
        {0},
    };
    failure why = {0};

    bool good = options_parse(argc, argv, options, &names, &why);
    if (good && c.markdown && c.json)
        good = failed(&why, STATUS_USAGE, "either --markdown or --json, not both");
    const bool of_products = names.count == 1 && !strcmp(names.items[0], "products");
    if (good && device.precision && !of_products)
        good = failed(&why, STATUS_USAGE, "--precision goes with products");
    good = good && (of_products || check_function_names(&names, &why)) &&
           choose_levels(&c, device.cpu, &why) &&
           device_options_apply(&device, &applied, &c.device, &why);
    if (good && of_products) {
        const product_check products = {c.quick, c.json, c.markdown, c.device, &applied};
        good = check_products(&products, &why);
    } else if (good) {
        c.threads = applied.threads;
        c.list = c.json ? json_array() : NULL;
        good = check_all(&c, &names, &why);
    }
    if (!good)
        report_failure(&why, NULL, 0);
    json_decref(c.list);
    text_list_release(&names);
    return good ? STATUS_DONE : why.status;
}

const command command_check = {"check", "measure the accuracy of every function", help, run_check};
