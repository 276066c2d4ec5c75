/* SPDX-License-Identifier: MIT
 *
 * cmd_info.c - ogive info: version, CPU, caches, GPUs, environment.
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
    "the one it uses, threads, caches, GPUs and what they need, and the environment variables\n"
    "that matter.\n"
    "\n"
    "environment:\n"
    "  OGIVE_CPU        highest CPU level to use (one of those listed)\n"
    "  OMP_NUM_THREADS  most threads to use\n"
    "  OGIVE_LIBCUDA    file of the CUDA driver, instead of libcuda.so.1\n"
    "  OGIVE_NVRTC      file of NVRTC, NVIDIA's compiler library\n"
    "  OGIVE_CACHE_DIR  folder of compiled kernels, instead of ~/.cache/ogive\n"
    "  OGIVE_DUMP       folder to which the sources of GPU kernels are written\n";

static const char *const variables[] = {"OGIVE_CPU",   "OMP_NUM_THREADS", "OGIVE_LIBCUDA",
                                        "OGIVE_NVRTC", "OGIVE_CACHE_DIR", "OGIVE_DUMP"};
enum { VARIABLES = sizeof(variables) / sizeof(variables[0]) };

/* "13.0" of 13000; "" if it is not known. */
static const char *version_text(int32_t version, char text[16])
{
    text[0] = 0;
    if (version)
        snprintf(text, 16, "%d.%d", (int)version / 1000, (int)version % 1000 / 10);
    return text;
}

/* {"version", "path", "problem"} */
static json_t *found_json(int32_t version, const char *path, const char *problem)
{
    char text[16];

    return json_pack("{s:s, s:s, s:s}", "version", version_text(version, text), "path", path,
                     "problem", problem);
}

static json_t *cuda_json(const ogive_cuda_info *info)
{
    json_t *devices = json_array();

    for (int32_t i = 0; i < info->device_count; i++) {
        ogive_cuda_device_info device;
        ogive_error error;
        if (ogive_cuda_device(i, &device, &error))
            json_array_append_new(devices, json_pack("{s:s}", "problem", error.message));
        else
            json_array_append_new(
                devices, json_pack("{s:s, s:i, s:i, s:I, s:f}", "name", device.name, "arch",
                                   (int)device.arch, "multiprocessors", (int)device.multiprocessors,
                                   "memory_bytes", (json_int_t)device.memory_bytes,
                                   "memory_bytes_per_second", device.memory_bytes_per_second));
    }
    return json_pack("{s:o, s:o, s:o, s:{s:s, s:s}}", "devices", devices, "driver",
                     found_json(info->driver_version, info->driver_path, info->driver_problem),
                     "nvrtc",
                     found_json(info->nvrtc_version, info->nvrtc_path, info->nvrtc_problem),
                     "cache", "folder", info->cache_folder, "problem", info->cache_problem);
}

static void print_json_info(const ogive_cuda_info *cuda)
{
    json_t *levels = json_array(), *environment = json_object(), *caches = json_object();

    for (size_t i = 0; ogive_cpu_level_name(i); i++)
        json_array_append_new(levels, json_string(ogive_cpu_level_name(i)));
    for (size_t i = 0; i < VARIABLES; i++) {
        const char *value = getenv(variables[i]);
        json_object_set_new(environment, variables[i], value ? json_string(value) : json_null());
    }
    for (int level = 1; level <= 3; level++) {
        char name[16];
        snprintf(name, sizeof(name), "L%d", level);
        if (cache_bytes(level))
            json_object_set_new(caches, name, json_integer(cache_bytes(level)));
    }
    json_t *all =
        json_pack("{s:s, s:s, s:o, s:i, s:o, s:o, s:{s:b, s:b}, s:o}", "version", ogive_version(),
                  "cpu_level", ogive_cpu_level(), "cpu_levels", levels, "threads",
                  (int)ogive_cpu_threads(), "cache_bytes", caches, "environment", environment,
                  "devices", "cpu", 1, "cuda", cuda->device_count > 0, "cuda", cuda_json(cuda));
    print_json(all);
}

/* "label            text", what others wrote made safe. */
static void print_line(const char *label, const char *text)
{
    printf("%-16s ", label);
    text_print_safe(stdout, text, strlen(text));
    putchar('\n');
}

static void print_device(int32_t index)
{
    ogive_cuda_device_info device;
    ogive_error error;
    char label[32], memory[32], line[300];

    snprintf(label, sizeof(label), "device cuda:%d", (int)index);
    if (ogive_cuda_device(index, &device, &error)) {
        print_line(label, error.message);
        return;
    }
    text_binary_bytes(memory, sizeof(memory), (double)device.memory_bytes);
    snprintf(line, sizeof(line), "%s, sm_%d, %d multiprocessors, %s at %.0f GB/s", device.name,
             (int)device.arch, (int)device.multiprocessors, memory,
             device.memory_bytes_per_second / 1e9);
    print_line(label, line);
}

static void print_cuda(const ogive_cuda_info *info)
{
    char version[16], line[1400];

    if (info->device_count == 0)
        print_line("device cuda", info->driver_problem);
    for (int32_t i = 0; i < info->device_count; i++)
        print_device(i);
    snprintf(line, sizeof(line), "CUDA %s, %s", version_text(info->driver_version, version),
             info->driver_path);
    if (info->driver_version)
        print_line("CUDA driver", line);
    snprintf(line, sizeof(line), "%s, %s", version_text(info->nvrtc_version, version),
             info->nvrtc_path);
    print_line("NVRTC", info->nvrtc_version ? line : info->nvrtc_problem);
    snprintf(line, sizeof(line), "%s%s%s", info->cache_folder[0] ? info->cache_folder : "none",
             info->cache_problem[0] ? ": " : "", info->cache_problem);
    print_line("kernel cache", line);
}

static void print_info(const ogive_cuda_info *cuda)
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
    printf("device cpu       available\n");
    print_cuda(cuda);
    for (size_t i = 0; i < VARIABLES; i++) {
        const char *value = getenv(variables[i]);
        print_line(variables[i], value ? value : "not set");
    }
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
    static ogive_cuda_info cuda;
    failure why = {0};

    bool good = options_parse(argc, argv, options, &arguments, &why);
    if (good && arguments.count)
        good = failed(&why, STATUS_USAGE, "ogive info takes no arguments, got '%s'",
                      arguments.items[0]);
    good = good && check_environment(&why);
    if (!good)
        report_failure(&why, NULL, 0);
    else
        ogive_cuda_describe(&cuda);
    if (good && json)
        print_json_info(&cuda);
    else if (good)
        print_info(&cuda);
    text_list_release(&arguments);
    return good ? STATUS_DONE : why.status;
}

const command command_info = {"info", "show version, CPU levels, threads, devices", help, run_info};
