/* SPDX-License-Identifier: MIT
 *
 * cmd_emit.c - ogive emit: the source of a formula's kernels.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "report.h"
#include "request.h"

static const char help[] =
    "usage: ogive emit --cuda FORMULA [INPUT]... [OPTION]...\n"
    "\n"
    "Prints the CUDA C that FORMULA is compiled from for inputs of these shapes, one source\n"
    "for each kernel: complete, without headers, ready for NVRTC. Needs no GPU.\n"
    "\n"
    "inputs are those of ogive run; for shapes alone, x=4096x4096:float32 is enough\n"
    "\n"
    "options:\n"
    "  --cuda              print CUDA C\n"
    "  --arch ARCH         for a GPU of this architecture, such as 80 (default: 90a, an H100)\n"
    "  -f, --file FILE     read the formula from FILE, '-' for standard input\n"
    "  --gradient NAME     the gradient by this input, see ogive run; several share work\n"
    "\n"
    "examples:\n"
    "  ogive emit --cuda 'x * sigmoid(x) + y' x=4096x4096 y=4096x4096 > kernel.cu\n"
    "  ogive emit --cuda 'softmax(x, dim=-1)' x=64x4096:float16 --arch 80\n";

static bool print_sources(const ogive_plan *plan, failure *why)
{
    size_t kernels = ogive_plan_kernel_count(plan);

    for (size_t i = 0; i < kernels; i++) {
        size_t length = ogive_plan_source(plan, i, NULL, 0);
        char *source = malloc(length + 1);
        ogive_kernel_info info;
        ogive_error error;
        if (!source)
            return fail_memory(why, (double)length, "the source");
        if (ogive_plan_kernel(plan, i, &info, &error)) {
            free(source);
            return fail_library(why, &error);
        }
        ogive_plan_source(plan, i, source, length + 1);
        printf("%s/* kernel %zu of %zu: %s%s */\n", i ? "\n" : "", i + 1, kernels, info.name,
               length ? "" : ", nothing to do");
        fputs(source, stdout);
        if (length && source[length - 1] != '\n')
            putchar('\n');
        free(source);
    }
    return true;
}

static int run_emit(int argc, char **argv)
{
    text_list arguments = {0}, gradient = {0};
    device_options device = {.device = "cuda", .arch = "90a"};
    const char *file = NULL;
    bool cuda = false;
    const option options[] = {
        {.name = "--cuda", .kind = OPTION_FLAG, .value = &cuda},
        {.name = "--arch", .kind = OPTION_TEXT, .value = &device.arch},
        {.name = "--file", .letter = 'f', .kind = OPTION_TEXT, .value = &file},
        {.name = "--gradient", .kind = OPTION_LIST, .value = &gradient},
        {0},
    };
    request r = {0};
    failure why = {0};

    bool good = options_parse(argc, argv, options, &arguments, &why);
    if (good && !cuda)
        good = failed(&why, STATUS_USAGE, "say what to print: --cuda");
    good = good && request_prepare(&r, file, &arguments, &gradient, &device, &why) &&
           print_sources(r.plan, &why);
    if (!good)
        report_failure(&why, r.text, r.length);
    request_release(&r);
    text_list_release(&arguments);
    text_list_release(&gradient);
    return good ? STATUS_DONE : why.status;
}

const command command_emit = {"emit", "print the source of a formula's kernels", help, run_emit};
