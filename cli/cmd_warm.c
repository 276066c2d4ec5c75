/* SPDX-License-Identifier: MIT
 *
 * cmd_warm.c - ogive warm: compiles a formula's kernels before they are needed.
 */
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "clock.h"
#include "report.h"
#include "request.h"

static const char help[] =
    "usage: ogive warm FORMULA [INPUT]... [--arch ARCH]... [OPTION]...\n"
    "\n"
    "Compiles the GPU kernels of FORMULA for inputs of these shapes and keeps them in the\n"
    "cache (see ogive info), where later processes find them. Needs NVRTC but no GPU, so an\n"
    "image for other machines can be made ready. Shapes are no part of a kernel, but how\n"
    "the inputs lie in memory and how much there is to do may choose another one.\n"
    "\n"
    "inputs are those of ogive run; for shapes alone, x=4096x4096:float32 is enough\n"
    "\n"
    "options:\n"
    "  --arch ARCH         for GPUs of this architecture, such as 80 or 90a; several may be\n"
    "                      given (default: this machine's GPU)\n"
    "  -f, --file FILE     read the formula from FILE, '-' for standard input\n"
    "  --gradient NAME     the gradient by this input, see ogive run; several share work\n"
    "\n"
    "examples:\n"
    "  ogive warm 'x * sigmoid(x) + y' x=4096x4096 y=4096x4096\n"
    "  OGIVE_CACHE_DIR=/opt/ogive ogive warm 'softmax(x, dim=-1)' x=64x4096 --arch 80 --arch 90a\n"
    "\n"
    "exit status: 0 all are in the cache; 4 they cannot be compiled or kept\n";

/* Without a GPU, one has to be named. */
static bool suggest_arch(const char *arch, failure *why)
{
    static ogive_cuda_info info;
    size_t length = strlen(why->message);

    if (arch || why->library != OGIVE_DEVICE)
        return false;
    ogive_cuda_describe(&info);
    if (info.device_count == 0)
        snprintf(why->message + length, sizeof(why->message) - length,
                 "; --arch 90a compiles for an H100, which need not be here");
    return false;
}

/* For one architecture; arch NULL: the machine's GPU. */
static bool warm_one(const char *arch, const char *file, const text_list *arguments,
                     const text_list *gradient, request *r, failure *why)
{
    const device_options device = {.device = "cuda", .arch = arch};
    double start = clock_seconds();
    ogive_warm_info info;
    ogive_error error;
    char time[32], name[64];

    if (!request_prepare(r, file, arguments, gradient, &device, why))
        return suggest_arch(arch, why);
    if (ogive_plan_warm(r->plan, &info, &error))
        return fail_library(why, &error);
    snprintf(name, sizeof(name), "%s%s", arch && strncmp(arch, "sm_", 3) ? "sm_" : "",
             arch ? arch : "this GPU");
    text_seconds(time, sizeof(time), clock_seconds() - start);
    printf("%s: %zu kernel%s in the cache", name, info.kernels, info.kernels == 1 ? "" : "s");
    if (arch) /* planning for a GPU that is there has compiled them already */
        printf(", %zu compiled now", info.compiled);
    printf(" (%s)\n", time);
    if (!strncmp(info.target, "compute_", 8))
        printf("%s: as PTX of %s, since NVRTC does not know %s: the driver finishes it\n", name,
               info.target, name);
    return true;
}

static int run_warm(int argc, char **argv)
{
    text_list arguments = {0}, gradient = {0}, archs = {0};
    const char *file = NULL;
    const option options[] = {
        {.name = "--arch", .kind = OPTION_LIST, .value = &archs},
        {.name = "--file", .letter = 'f', .kind = OPTION_TEXT, .value = &file},
        {.name = "--gradient", .kind = OPTION_LIST, .value = &gradient},
        {0},
    };
    failure why = {0};

    bool good = options_parse(argc, argv, options, &arguments, &why);
    if (good && file && !strcmp(file, "-") && archs.count > 1)
        good = failed(&why, STATUS_USAGE, "-f - can be read once: give one --arch");
    if (!good)
        report_failure(&why, NULL, 0);
    for (size_t i = 0; good && i < (archs.count ? archs.count : 1); i++) {
        request r = {0};
        good = warm_one(archs.count ? archs.items[i] : NULL, file, &arguments, &gradient, &r, &why);
        if (!good)
            report_failure(&why, r.text, r.length);
        request_release(&r);
    }
    text_list_release(&arguments);
    text_list_release(&gradient);
    text_list_release(&archs);
    return good ? STATUS_DONE : why.status;
}

const command command_warm = {"warm", "compile a formula's GPU kernels into the cache", help,
                              run_warm};
