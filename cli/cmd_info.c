/* SPDX-License-Identifier: MIT
 *
 * cmd_info.c - ogive info: version, CPU, caches, environment, devices.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "json_output.h"
#include "memory_limit.h"
#include "options.h"
#include "report.h"
#include "request.h"

static const char help[] =
    "usage: ogive info [--json]\n"
    "\n"
    "Shows what Ogive found on this machine: its version, the CPU levels that it can use and\n"
    "the one it uses, threads, caches, the environment variables that matter, and devices.\n"
    "\n"
    "environment:\n"
    "  OGIVE_CPU        highest CPU level to use (one of those listed)\n"
    "  OMP_NUM_THREADS  most threads to use\n";

static const char *const variables[] = {"OGIVE_CPU", "OMP_NUM_THREADS"};

static void print_json_info(void)
{
    json_t *levels = json_array(), *environment = json_object(), *caches = json_object();

    for (size_t i = 0; ogive_cpu_level_name(i); i++)
        json_array_append_new(levels, json_string(ogive_cpu_level_name(i)));
    for (size_t i = 0; i < 2; i++) {
        const char *value = getenv(variables[i]);
        json_object_set_new(environment, variables[i], value ? json_string(value) : json_null());
    }
    for (int level = 1; level <= 3; level++) {
        char name[16];
        snprintf(name, sizeof(name), "L%d", level);
        if (cache_bytes(level))
            json_object_set_new(caches, name, json_integer(cache_bytes(level)));
    }
    json_t *all = json_pack("{s:s, s:s, s:o, s:i, s:o, s:o, s:{s:b, s:b}}", "version",
                            ogive_version(), "cpu_level", ogive_cpu_level(), "cpu_levels", levels,
                            "threads", (int)ogive_cpu_threads(), "cache_bytes", caches,
                            "environment", environment, "devices", "cpu", 1, "cuda", 0);
    print_json(all);
}

static void print_info(void)
{
    printf("version          %s\n", ogive_version());
    printf("CPU levels      ");
    for (size_t i = 0; ogive_cpu_level_name(i); i++) {
        const char *name = ogive_cpu_level_name(i);
        printf(" %s%s", name, !strcmp(name, ogive_cpu_level()) ? " (used)" : "");
    }
    printf("\nthreads          %d\n", (int)ogive_cpu_threads());
    for (int level = 1; level <= 3; level++) {
        char size[32];
        text_binary_bytes(size, sizeof(size), (double)cache_bytes(level));
        printf("L%d cache         %s\n", level, cache_bytes(level) ? size : "not known");
    }
    for (size_t i = 0; i < 2; i++) {
        const char *value = getenv(variables[i]);
        printf("%-16s ", variables[i]);
        text_print_safe(stdout, value ? value : "not set", strlen(value ? value : "not set"));
        putchar('\n');
    }
    printf("device cpu       available\n");
    printf("device cuda      not in this build\n");
}

/* Plans a formula: that fails if OGIVE_CPU is wrong, as every other will. */
static bool check_environment(failure *why)
{
    const char *items[] = {"x", "x=1"};
    const text_list arguments = {.items = items, .count = 2};
    const device_options device = {0};
    request r;

    bool good = request_prepare(&r, NULL, &arguments, NULL, &device, why);
    request_release(&r);
    return good;
}

static int run_info(int argc, char **argv)
{
    text_list arguments = {0};
    bool json = false;
    const option options[] = {{.name = "--json", .kind = OPTION_FLAG, .value = &json}, {0}};
    failure why = {0};

    bool good = options_parse(argc, argv, options, &arguments, &why);
    if (good && arguments.count)
        good = failed(&why, STATUS_USAGE, "ogive info takes no arguments, got '%s'",
                      arguments.items[0]);
    good = good && check_environment(&why);
    if (!good)
        report_failure(&why, NULL, 0);
    else if (json)
        print_json_info();
    else
        print_info();
    text_list_release(&arguments);
    return good ? STATUS_DONE : why.status;
}

const command command_info = {"info", "show version, CPU levels, threads, devices", help, run_info};
