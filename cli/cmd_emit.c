/* SPDX-License-Identifier: MIT
 *
 * cmd_emit.c - ogive emit: the source of a formula's kernels, or a file for PyTorch.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "output.h"
#include "report.h"
#include "request.h"

static const char help[] =
    "usage: ogive emit --cuda FORMULA [INPUT]... [OPTION]...\n"
    "       ogive emit --pytorch FORMULA [NAME=SHAPE]... [OPTION]...\n"
    "\n"
    "--cuda prints the CUDA C that FORMULA is compiled from for inputs of these shapes, one\n"
    "source for each kernel: complete, without headers, ready for NVRTC. Needs no GPU.\n"
    "\n"
    "--pytorch writes a Python file that needs PyTorch but not Ogive: CUDA source, gradients and\n"
    "class ModelNew. Its kernels take any size, stride and dtype; of the shapes it is made for,\n"
    "only the number of dims counts, and which sizes are 1. Without a shape an input has 2 dims,\n"
    "or what linear() wants. With windows (convolutions, poolings), parts of tensors or a vector\n"
    "of a channel a file is made for the shapes and dtype that are given, and takes no others;\n"
    "tensors of the strides that are given (x=2x3x8x8:float32:channels_last) are not copied.\n"
    "\n"
    "inputs are those of ogive run; for shapes alone, x=4096x4096:float32 is enough\n"
    "\n"
    "options:\n"
    "  --cuda              print CUDA C\n"
    "  --arch ARCH         for a GPU of this architecture, such as 80 (default: 90a, an H100); "
    "with\n"
    "                      --for-shapes 90, for which alone a file is shorter\n"
    "  --precision P       of products: float32 (default), strict or tf32 (a file for PyTorch has\n"
    "                      float32's)\n"
    "  --gradient NAME     the gradient by this input, see ogive run; several share work\n"
    "  --pytorch           write a file for PyTorch\n"
    "  --init PARAMETERS   what ModelNew's constructor takes, as Python writes it\n"
    "  --module NAME=WHAT  what ModelNew owns, such as 'fc=nn.Linear(in_features, out_features)';\n"
    "                      fc.weight in FORMULA is then its own; several in their order\n"
    "  --name CLASS        what the class is called (default: ModelNew)\n"
    "  --for-shapes        made for the shapes and dtype that are given, all of them, whatever "
    "the\n"
    "                      formula: the library's kernels for them\n"
    "  --scalar NAME       an input that is a number given to the constructor\n"
    "  -o, --output FILE   where the file goes; '-', the default, is standard output\n"
    "  -f, --file FILE     read the formula from FILE, '-' for standard input\n"
    "\n"
    "examples:\n"
    "  ogive emit --cuda 'x * sigmoid(x) + y' x=4096x4096 y=4096x4096 > kernel.cu\n"
    "  ogive emit --cuda 'softmax(x, dim=-1)' x=64x4096:float16 --arch 80\n"
    "  ogive emit --pytorch 'sum(sigmoid(linear(x, fc.weight, fc.bias)), dim=1)' x=128x512 \\\n"
    "      --init 'inputs, outputs' --module 'fc=nn.Linear(inputs, outputs)' -o model.py\n"
    "  ogive emit --pytorch 'relu(conv2d(x, c.weight, c.bias, padding=1))' x=16x64x56x56 \\\n"
    "      c.weight=128x64x3x3 c.bias=128:float32 --module 'c=nn.Conv2d(64, 128, 3)' -o conv.py\n";

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
        if (ogive_plan_source(plan, i, source, length + 1) != length ||
            (!length && info.elements)) {
            free(source);
            return fail_memory(why, (double)length, "the source");
        }
        printf("%s/* kernel %zu of %zu: %s%s */\n", i ? "\n" : "", i + 1, kernels, info.name,
               length ? "" : ", nothing to do");
        fputs(source, stdout);
        if (length && source[length - 1] != '\n')
            putchar('\n');
        free(source);
    }
    return true;
}

static bool write_text(const char *path, const char *text, size_t length, failure *why)
{
    output_file file = {0};

    if (!path || !strcmp(path, "-")) {
        fwrite(text, 1, length, stdout);
        return true;
    }
    output_handle_signals();
    bool good = output_open(path, &file, why) && output_write(&file, text, length, why) &&
                output_sync(&file, why) && output_commit(&file, why);
    output_discard(&file);
    return good;
}

typedef struct {
    bool wanted, for_shapes;
    const char *init, *name, *output;
    text_list modules, scalars;
} pytorch_options;

/* What no file can be made of, though the library, which looks at shapes alone, makes one. */
static bool check_inputs(const inputs *in, failure *why)
{
    const input *number = inputs_find_maybe_size(in, true);
    if (number) /* of a shape only the number of dims counts here, so it was meant as one */
        return failed(why, STATUS_USAGE,
                      "%s=%.0f is a number: a tensor of one dim is %s=%.0f:float32, a number that "
                      "forward() takes %s=%.1f",
                      number->name, number->number, number->name, number->number, number->name,
                      number->number);
    for (size_t i = 0; i < in->count; i++)
        if (in->items[i].kind != INPUT_MISSING && !host_dtype_is_float(in->items[i].layout.dtype))
            return failed(why, STATUS_USAGE,
                          "%s is %s: a PyTorch file reads float32, float16, bfloat16 or float64",
                          in->items[i].name, in->items[i].layout.dtype->name);
    return true;
}

/* arch: NULL, or the only one. */
static bool emit_pytorch(request *r, const pytorch_options *p, const char *arch, failure *why)
{
    ogive_pytorch_options options = {.size = sizeof(options),
                                     .init = p->init,
                                     .modules = p->modules.items,
                                     .module_count = p->modules.count,
                                     .scalars = p->scalars.items,
                                     .scalar_count = p->scalars.count,
                                     .name = p->name,
                                     .for_shapes = p->for_shapes,
                                     .arch = arch};
    const DLTensor **tensors = calloc(r->in.count + 1, sizeof(*tensors));
    char *text = NULL;
    size_t length = 0, capacity = 0;
    ogive_error error;

    if (!tensors)
        return fail_memory(why, (double)r->in.count, "the inputs");
    if (!check_inputs(&r->in, why)) {
        free(tensors);
        return false;
    }
    for (size_t i = 0; i < r->in.count; i++)
        tensors[i] = r->in.items[i].kind == INPUT_MISSING ? NULL : r->in.tensors[i];
    bool good = true;
    for (int round = 0; good && round < 2; round++) { /* its length, then the text */
        if (ogive_formula_pytorch(r->formula, tensors, r->in.count, &options, text, capacity,
                                  &length, &error))
            good = fail_library(why, &error);
        else if (!text && !(text = malloc(capacity = length + 1)))
            good = fail_memory(why, (double)length, "the file");
    }
    good = good && write_text(p->output, text, length, why);
    free(text);
    free(tensors);
    return good;
}

static bool check_choice(bool cuda, const pytorch_options *p, const text_list *gradient,
                         const device_options *device, failure *why)
{
    if (cuda == p->wanted)
        return failed(why, STATUS_USAGE, "say what to write: --cuda or --pytorch");
    if (p->wanted && device->precision)
        return failed(why, STATUS_USAGE,
                      "--precision goes with --cuda; a PyTorch file has float32's");
    if (p->wanted && device->arch && !p->for_shapes)
        return failed(why, STATUS_USAGE,
                      "--arch goes with --cuda or --for-shapes; a PyTorch file fits any GPU");
    if (p->wanted && gradient->count)
        return failed(why, STATUS_USAGE, "--gradient goes with --cuda; a PyTorch file has all");
    if (!p->wanted &&
        (p->init || p->name || p->output || p->modules.count || p->scalars.count || p->for_shapes))
        return failed(why, STATUS_USAGE,
                      "--init, --module, --scalar, --name, --for-shapes, -o go with --pytorch");
    return true;
}

static int run_emit(int argc, char **argv)
{
    text_list arguments = {0}, gradient = {0};
    device_options device = {.device = "cuda"};
    pytorch_options pytorch = {0};
    const char *file = NULL;
    bool cuda = false;
    const option options[] = {
        {.name = "--cuda", .kind = OPTION_FLAG, .value = &cuda},
        {.name = "--arch", .kind = OPTION_TEXT, .value = &device.arch},
        {.name = "--precision", .kind = OPTION_TEXT, .value = &device.precision},
        {.name = "--file", .letter = 'f', .kind = OPTION_TEXT, .value = &file},
        {.name = "--gradient", .kind = OPTION_LIST, .value = &gradient},
        {.name = "--pytorch", .kind = OPTION_FLAG, .value = &pytorch.wanted},
        {.name = "--init", .kind = OPTION_TEXT, .value = &pytorch.init},
        {.name = "--name", .kind = OPTION_TEXT, .value = &pytorch.name},
        {.name = "--module", .kind = OPTION_LIST, .value = &pytorch.modules},
        {.name = "--for-shapes", .kind = OPTION_FLAG, .value = &pytorch.for_shapes},
        {.name = "--scalar", .kind = OPTION_LIST, .value = &pytorch.scalars},
        {.name = "--output", .letter = 'o', .kind = OPTION_TEXT, .value = &pytorch.output},
        {0},
    };
    request r = {0};
    failure why = {0};

    bool good = options_parse(argc, argv, options, &arguments, &why) &&
                check_choice(cuda, &pytorch, &gradient, &device, &why);
    if (cuda && !device.arch)
        device.arch = "90a";
    if (good && cuda)
        good = request_prepare(&r, file, &arguments, &gradient, &device, &why) &&
               print_sources(r.plan, &why);
    else if (good)
        good = request_read(&r, file, &arguments, &why) &&
               emit_pytorch(&r, &pytorch, device.arch, &why);
    if (!good)
        report_failure(&why, r.text, r.length);
    request_release(&r);
    text_list_release(&arguments);
    text_list_release(&gradient);
    text_list_release(&pytorch.modules);
    text_list_release(&pytorch.scalars);
    return good ? STATUS_DONE : why.status;
}

const command command_emit = {"emit", "print a formula's kernels, or a file for PyTorch", help,
                              run_emit};
