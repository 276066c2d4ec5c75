/* SPDX-License-Identifier: MIT
 *
 * pytorch_file.c - the whole file: what inputs are called, the kernels of both directions, what
 * the file says of itself, CUDA and C++ sources as strings. The Python around them is
 * pytorch_python.c's.
 *
 * The benchmark that such files are submitted to refuses some words of Python wherever
 * they stand; none of the texts has them (og_pytorch_find_refused() looks).
 */
#include "base/embedded.h"
#include "pytorch/pytorch_file.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { NAME_SIZE = 256 };

typedef og_pytorch_file file;

/* ---- names ---------------------------------------------------------------------------- */

static ogive_status keep_name(file *f, const char *format, const char *name, const char **out)
{
    size_t bytes = strlen(format) + strlen(name) + 1;
    char *kept = OG_ARENA_NEW(&f->arena, char, bytes);
    if (!kept)
        return og_fail_memory(f->error, bytes);
    snprintf(kept, bytes, format, name);
    *out = kept;
    return OGIVE_OK;
}

/* fc.weight as fc_weight; a word of Python's or of the file's gets an underscore. */
static void python_name(const char *name, char out[NAME_SIZE])
{
    size_t length = 0;
    for (; name[length] && length < NAME_SIZE - 2; length++)
        out[length] = name[length] == '.' ? '_' : name[length];
    out[length] = 0;
    if (og_pytorch_is_taken(out))
        strcat(out, "_");
}

/* self.layers[0].bias */
static void owner_name(const char *name, char out[NAME_SIZE])
{
    size_t to = (size_t)snprintf(out, NAME_SIZE, "self");
    for (const char *part = name; *part && to + 4 < NAME_SIZE;) {
        size_t length = strcspn(part, ".");
        bool is_index = isdigit((unsigned char)*part);
        to += (size_t)snprintf(out + to, NAME_SIZE - to, is_index ? "[%.*s]" : ".%.*s", (int)length,
                               part);
        part += length + (part[length] == '.');
    }
}

static ogive_status name_inputs(file *f)
{
    size_t count = (size_t)(f->graph->input_count + f->graph->result_count);
    if (f->graph->input_count > OG_PYTORCH_MAX_INPUTS)
        OG_FAIL(f->error, OGIVE_UNSUPPORTED, -1, "%d inputs: a PyTorch file takes at most %d",
                (int)f->graph->input_count, OG_PYTORCH_MAX_INPUTS);
    f->roles = OG_ARENA_NEW(&f->arena, og_pytorch_role, count);
    f->arguments = OG_ARENA_NEW(&f->arena, const char *, count);
    f->owners = OG_ARENA_NEW(&f->arena, const char *, count);
    f->cpp_names = OG_ARENA_NEW(&f->arena, const char *, count);
    f->is_number = OG_ARENA_NEW(&f->arena, bool, count);
    if (!f->roles || !f->arguments || !f->owners || !f->cpp_names || !f->is_number)
        return og_fail_memory(f->error, count * sizeof *f->arguments);
    bool any_tensor = false;
    for (int32_t i = 0; i < f->graph->input_count; i++) {
        const char *name = f->graph->inputs[i].name;
        char python[NAME_SIZE], owner[NAME_SIZE];
        if (strlen(name) > NAME_SIZE / 2)
            OG_FAIL(f->error, OGIVE_UNSUPPORTED, -1, "'%.20s...': names of at most %d bytes", name,
                    NAME_SIZE / 2);
        f->roles[i] = og_pytorch_role_of(f->options, name);
        f->is_number[i] = f->roles[i] == OG_PYTORCH_SCALAR;
        any_tensor |= !f->is_number[i];
        python_name(name, python);
        owner_name(name, owner);
        OG_TRY(keep_name(f, "%s", python, &f->arguments[i]));
        OG_TRY(
            keep_name(f, "%s", f->roles[i] == OG_PYTORCH_ARGUMENT ? python : owner, &f->owners[i]));
        OG_TRY(keep_name(f, "%s_", python, &f->cpp_names[i]));
        for (int32_t j = 0; j < i; j++)
            if (!strcmp(f->arguments[i], f->arguments[j]))
                OG_FAIL(f->error, OGIVE_ARGUMENT, -1,
                        "'%.200s' and '%.200s' are one name in Python", f->graph->inputs[j].name,
                        name);
    }
    if (!any_tensor)
        OG_FAIL(f->error, OGIVE_ARGUMENT, -1, "every input is a scalar: expected a tensor");
    return OGIVE_OK;
}

/* ---- programs ----------------------------------------------------------------------------- */

/* Shapes with larger sizes, for which tensor cores are used. */
static void enlarge(const file *f, const og_pytorch_shape *from, int32_t count,
                    og_pytorch_shape *to)
{
    enum { TIMES = 64 };
    for (int32_t i = 0; i < count; i++) {
        to[i] = from[i];
        for (int32_t d = 0; d < from[i].rank; d++)
            for (int32_t c = 0; c < f->sizes.count; c++)
                if (from[i].shape[d] == f->sizes.value[c] && !f->sizes.is_fixed[c])
                    to[i].shape[d] = TIMES * from[i].shape[d];
    }
}

/* Finds the kernels of Hopper that products have. shapes: of the program's inputs. */
static ogive_status find_hopper(file *f, const og_graph *graph, const og_pytorch_shape *shapes,
                                og_pytorch_program *p)
{
    og_pytorch_shape large[OG_PYTORCH_MAX_INPUTS + OG_MAX_RESULTS];
    og_pytorch_program sized = {0};
    enlarge(f, shapes, graph->input_count, large);
    ogive_status status =
        og_pytorch_program_make(graph, p->name, large, f->roles, &f->arena, &sized, NULL);
    if (status == OGIVE_MEMORY)
        return og_fail_memory(f->error, sizeof sized);
    if (status != OGIVE_OK)
        return OGIVE_OK; /* no plan for such sizes: none */
    for (int32_t k = 0; status == OGIVE_OK && k < p->plan.kernel_count; k++) {
        status = og_pytorch_hopper_unit(p, &sized, f->roles, k, &f->arena, &p->units[k].hopper,
                                        f->error);
        f->has_hopper |= p->units[k].hopper != NULL;
    }
    og_pytorch_program_free(&sized);
    return status;
}

/* Has the kernels of a program written. shapes: of its inputs. */
static ogive_status find_units(file *f, const og_graph *graph, const og_pytorch_shape *shapes,
                               og_pytorch_program *p)
{
    bool has_products = false;
    p->units = OG_ARENA_NEW(&f->arena, og_pytorch_unit, (size_t)p->plan.kernel_count);
    if (!p->units)
        return og_fail_memory(f->error, (size_t)p->plan.kernel_count * sizeof *p->units);
    for (int32_t k = 0; k < p->plan.kernel_count; k++) {
        OG_TRY(og_pytorch_any_unit(p, f->roles, k, &f->arena, &p->units[k], f->error));
        has_products |= p->plan.kernels[k].product_count > 0;
    }
    if (has_products)
        OG_TRY(find_hopper(f, graph, shapes, p));
    f->has_products |= has_products;
    return OGIVE_OK;
}

/* Plans both directions, then has their kernels written. */
static ogive_status make_programs(file *f)
{
    const char *names[OG_PYTORCH_MAX_INPUTS];
    og_pytorch_shape shapes[OG_PYTORCH_MAX_INPUTS + OG_MAX_RESULTS];
    size_t count = 0;
    int32_t inputs = f->graph->input_count;
    OG_TRY(og_pytorch_program_make(f->graph, "Forward", f->sizes.shapes, f->roles, &f->arena,
                                   &f->forward, f->error));
    for (int32_t i = 0; i < inputs; i++) {
        shapes[i] = f->sizes.shapes[i];
        if (f->roles[i] != OG_PYTORCH_SCALAR)
            names[count++] = f->graph->inputs[i].name;
    }
    OG_TRY(og_graph_gradient(f->graph, names, count, &f->gradient_graph, f->error));
    for (int32_t r = 0; r < f->graph->result_count; r++) {
        const og_typed *type = &f->forward.types[f->graph->results[r]];
        char name[32];
        shapes[inputs + r].rank = type->rank;
        memcpy(shapes[inputs + r].shape, type->shape, sizeof type->shape);
        f->roles[inputs + r] = OG_PYTORCH_ARGUMENT;
        snprintf(name, sizeof name, "grad%d", (int)r);
        OG_TRY(keep_name(f, "%s_", name, &f->cpp_names[inputs + r]));
        OG_TRY(keep_name(f, "%s", name, &f->arguments[inputs + r]));
    }
    OG_TRY(og_pytorch_program_make(&f->gradient_graph, "Backward", shapes, f->roles, &f->arena,
                                   &f->backward, f->error));
    /* Texts come last: most of what is refused is refused before there is one. */
    OG_TRY(find_units(f, f->graph, f->sizes.shapes, &f->forward));
    return find_units(f, &f->gradient_graph, shapes, &f->backward);
}

/* ---- texts ---------------------------------------------------------------------------------- */

/* Of a file that takes any shape, the same for all tensors. */
static void add_names_comment(const file *f)
{
    bool any = false;
    og_text_add(f->text, "# Tensors of any shape, one for all (it is checked):");
    for (int32_t i = 0; i < f->graph->input_count; i++)
        if (f->roles[i] != OG_PYTORCH_SCALAR) {
            og_text_add(f->text, "%s %s", any ? "," : "", f->graph->inputs[i].name);
            any = true;
        }
    og_text_add(f->text, "\n");
}

static void add_sizes_comment(const file *f)
{
    char text[OG_SIZE_TEXT];
    og_text_add(
        f->text, "# Tensors (sizes of one name must be equal; everything is checked at run time):\n");
    for (int32_t i = 0; i < f->graph->input_count; i++) {
        const og_pytorch_shape *shape = &f->sizes.shapes[i];
        og_text_add(f->text, "#   %-12s ", f->graph->inputs[i].name);
        if (f->roles[i] == OG_PYTORCH_SCALAR) {
            og_text_add(f->text, "a number\n");
            continue;
        }
        if (f->forward.is_uniform && shape->rank) {
            og_text_add(f->text, "any shape%s\n",
                        f->graph->input_count > 1 ? ", the same for all" : "");
            continue;
        }
        og_text_add(f->text, "(");
        for (int32_t d = 0; d < shape->rank; d++)
            og_text_add(f->text, "%s%s", d ? ", " : "",
                        og_pytorch_size_text(&f->sizes, shape->shape[d], text));
        og_text_add(f->text, shape->rank == 1 ? ",)\n" : ")\n");
    }
}

/* The formula, without its own comments, each line as a comment of Python's. */
static void add_formula_comment(const file *f)
{
    const char *text = f->graph->text, *end = text + f->graph->length;
    while (text < end) {
        const char *line_end = memchr(text, '\n', (size_t)(end - text));
        line_end = line_end ? line_end : end;
        const char *comment = memchr(text, '#', (size_t)(line_end - text));
        const char *stop = comment ? comment : line_end;
        while (stop > text && isspace((unsigned char)stop[-1]))
            stop--;
        if (stop > text)
            og_text_add(f->text, "#     ");
        for (const char *c = text; c < stop; c++)
            og_text_add(f->text, "%c", isspace((unsigned char)*c) ? ' ' : *c);
        og_text_add(f->text, stop > text ? "\n" : "");
        text = line_end + 1;
    }
}

/* What a file holds, in its order. */
static const char long_contents[] =
    "# What is here, in this order (where home cannot be written to, set "
    "TORCH_EXTENSIONS_DIR):\n"
    "#   HOST_*                      C++: checks tensors, binds them, chooses kernels\n"
    "#   UNITS                       the formula and its derivative, kernel by kernel: each "
    "is\n"
    "#                               built for the dtype and layout that it first meets;\n"
    "#                               kernels() says what served\n"
    "#   KERNELS                     Ogive's kernels and functions, which units include\n"
    "#   _build, _Formula            what compiles them, and records gradients\n"
    "#   _plain, _call, the module   the formula in PyTorch's operations; which of the two\n"
    "#\n"
    "# Kernels, and those of the gradient, which is computed from the inputs again:\n";
static const char short_contents[] =
    "# Contents (where home cannot be written to, set TORCH_EXTENSIONS_DIR):\n"
    "#   ARGS                        what kernels are given\n"
    "#   KERNELS                     CUDA: functions; the formula, its derivative; loops over "
    "tensors\n"
    "#   HOST                        C++: checks tensors, lays out results, launches kernels\n"
    "#   _build, _Formula            what compiles them, and records gradients\n"
    "#   _plain, _call, the module   the formula in PyTorch's operations, for CPUs; which of the "
    "two\n";

/* Does the formula, or what a constructor is given, need Python's math? */
static bool uses_math(const file *f)
{
    const ogive_pytorch_options *o = f->options;
    bool uses = (f->plain.data && strstr(f->plain.data, "math.")) ||
                (o->init && strstr(o->init, "math."));
    for (size_t m = 0; m < o->module_count; m++)
        uses = uses || strstr(o->modules[m], "math.");
    return uses;
}

static void add_opening(const file *f)
{
    char kind[64];
    og_text_add(f->text,
                "# SPDX-License-Identifier: MIT\n# Made by `ogive emit --pytorch` %s from\n#\n",
                ogive_version());
    add_formula_comment(f);
    og_text_add(
        f->text,
        "#\n"
        "# It needs PyTorch (2.3 or later) alone, and nvcc for tensors on a GPU, whose kernels "
        "are\n"
        "# built when they are first needed (20 s; PyTorch keeps them for the next process).\n"
        "#\n");
    if (f->forward.is_short)
        add_names_comment(f);
    else
        add_sizes_comment(f);
    og_text_add(
        f->text,
        "# float32, float16, bfloat16 (computed in float32, rounded once) or float64, one dtype\n"
        "# for all; any strides. On a GPU always these kernels, on the tensors' device and its\n"
        "# current stream; on the CPU plain PyTorch operations (_plain below).\n"
        "#\n"
        "%s",
        f->forward.is_short ? short_contents : long_contents);
    for (int i = 0; i < 2 && !f->forward.is_short; i++) {
        const og_pytorch_program *p = i ? &f->backward : &f->forward;
        for (int32_t k = 0; k < p->plan.kernel_count; k++) {
            og_kernel_name(&p->plan.kernels[k], kind);
            og_text_add(f->text, "#   %s%-3d %s\n", p->name, (int)k, kind);
        }
    }
    if (f->forward.is_short)
        og_text_add(f->text, "import functools\nimport hashlib\nimport inspect\n%s",
                    uses_math(f) ? "import math\n" : "");
    else
        og_text_add(f->text, "import ctypes\nimport functools\nimport hashlib\nimport inspect\n"
                             "import math\nimport re\nimport shutil\n");
    og_text_add(f->text, "\n"
                         "import torch\n"
                         "import torch.nn as nn\n"
                         "import torch.nn.functional as F\n"
                         "from torch.autograd import forward_ad\n"
                         "from torch.autograd.function import once_differentiable\n"
                         "from torch.utils import cpp_extension\n");
}

/* A template's text without its own first line, the licence's. */
static const char *body_of(const char *text)
{
    return strchr(text, '\n') + 1;
}

/* The C++ in its parts: what both directions share, and each. */
typedef struct {
    og_text host, launches[2];
} host_source;

/* What Python calls besides forward and backward. */
static const char unit_functions[] =
    "std::vector<std::string> missing();\n"
    "void add_unit(const std::string &name, const std::string &numbers, int64_t run);\n"
    "std::vector<std::string> kernels();\n";

/* The C++ that both directions share, of which a file has what it needs. */
static void write_host(const file *f, host_source *to)
{
    const og_pytorch_source sources[] = {
        {body_of(og_embedded("pytorch/pytorch_host.cuh")), false},
        {body_of(og_embedded("pytorch/pytorch_host_units.cuh")), false},
        {body_of(og_embedded("pytorch/pytorch_host_any.cuh")), false},
        {body_of(og_embedded("pytorch/pytorch_host_product.cuh")), false},
        {body_of(og_embedded("pytorch/pytorch_host_hopper.cuh")), false}};
    const int count = f->has_hopper ? 5 : f->has_products ? 4 : 3;
    og_text roots = {0};
    for (int i = 0; i < 2; i++)
        og_text_add(&roots, "%s\n", to->launches[i].data ? to->launches[i].data : "");
    og_text_add(&roots, "%s", unit_functions);
    to->host.failed |= roots.failed;
    if (!to->host.failed)
        og_pytorch_add_needed(sources, count, roots.data, &to->host);
    og_text_free(&roots);
}

/* Units by name, then the files that they and the C++ include. */
static void add_units(const file *f, const host_source *of)
{
    const og_pytorch_program *programs[] = {&f->forward, &f->backward};
    og_text all = {0};
    og_text_add(f->text,
                "\n# The formula, kernel by kernel, and its derivative; below, the files that "
                "they include.\nUNITS = {\n");
    for (int i = 0; i < 2; i++)
        for (int32_t k = 0; k < programs[i]->plan.kernel_count; k++) {
            const char *const sources[] = {programs[i]->units[k].source,
                                           programs[i]->units[k].hopper};
            for (int s = 0; s < 2; s++)
                if (sources[s]) {
                    og_text_add(f->text, "    \"%s%d%s\": r'''\n%s''',\n", programs[i]->name,
                                (int)k, s ? "_hopper" : "", sources[s]);
                    og_text_add(&all, "%s", sources[s]);
                }
        }
    og_text_add(f->text, "}\n\nKERNELS = {\n");
    const og_text *const host[] = {&of->host, &of->launches[0], &of->launches[1]};
    for (int i = 0; i < 3; i++)
        og_text_add(&all, "%s", host[i]->data ? host[i]->data : "");
    f->text->failed |= all.failed;
    if (!f->text->failed)
        og_pytorch_add_unit_files(all.data, f->text);
    og_text_add(f->text, "}\n");
    og_text_free(&all);
}

/* NAME = a string of Python's; comment: what it is, or NULL. */
static void add_string(const file *f, const char *comment, const char *name, const char *suffix,
                       const char *data, bool has_failed)
{
    if (comment)
        og_text_add(f->text, "\n# %s", comment);
    og_text_add(f->text, "\n%s%s = r'''%s'''\n", name, suffix, data ? data : "");
    f->text->failed |= has_failed;
}

static void add_sources(file *f)
{
    host_source of = {0};
    const og_pytorch_program *programs[] = {&f->forward, &f->backward};
    static const char *const names[] = {"FORWARD", "BACKWARD"};
    if (f->forward.is_short) {
        og_pytorch_add_pointwise(programs, f->roles, f->text);
        return;
    }
    for (int i = 0; i < 2; i++)
        og_pytorch_add_launches(programs[i], &f->sizes, f->roles, f->cpp_names, i, &of.launches[i]);
    write_host(f, &of);
    add_string(f, "C++, of PyTorch's tensors.", "HOST", "_SHARED", of.host.data, of.host.failed);
    for (int i = 0; i < 2; i++)
        add_string(f, NULL, "HOST_", names[i], of.launches[i].data, of.launches[i].failed);
    add_units(f, &of);
    for (int i = 0; i < 2; i++)
        og_text_free(&of.launches[i]);
    og_text_free(&of.host);
}

static ogive_status finish_file(file *f)
{
    og_pytorch_add_module(f);
    if (f->text->failed)
        return og_fail_memory(f->error, f->text->length);
    const char *word = og_pytorch_find_refused(f->text->data);
    if (word)
        OG_FAIL(f->error, OGIVE_ARGUMENT, -1,
                "the file would hold the word '%s', for which KernelBench refuses it: give "
                "another name",
                word);
    return OGIVE_OK;
}

/* ---- a file for some shapes -------------------------------------------------------------------- */

/* Gradients by all tensors; their shapes: the inputs', then the results'. */
static ogive_status make_gradient(file *f, const og_typed *types, og_pytorch_shape *shapes)
{
    const char *names[OG_PYTORCH_MAX_INPUTS];
    size_t count = 0;
    const int32_t inputs = f->graph->input_count;
    for (int32_t i = 0; i < inputs; i++)
        if (f->roles[i] != OG_PYTORCH_SCALAR)
            names[count++] = f->graph->inputs[i].name;
    for (int32_t r = 0; r < f->graph->result_count; r++) {
        const og_typed *type = &types[f->graph->results[r]];
        shapes[inputs + r] = (og_pytorch_shape){.rank = type->rank, .dtype = shapes[0].dtype};
        memcpy(shapes[inputs + r].shape, type->shape, sizeof type->shape);
        og_pytorch_lay_result(shapes, inputs, &shapes[inputs + r]);
    }
    return og_graph_gradient(f->graph, names, count, &f->gradient_graph, f->error);
}

static ogive_status write_shaped_file(file *f, const og_pytorch_shape *given)
{
    og_pytorch_shape shapes[OG_PYTORCH_MAX_INPUTS + OG_MAX_RESULTS];
    og_typed *types;
    OG_TRY(og_pytorch_check_shapes(f->graph, f->roles, given, shapes, &f->arena, &types, f->error));
    OG_TRY(og_pytorch_add_formula(f->graph, f->arguments, f->is_number, &f->plain, f->error));
    OG_TRY(make_gradient(f, types, shapes));
    og_text_add(f->text,
                "# SPDX-License-Identifier: MIT\n# Made by `ogive emit --pytorch` %s from\n#\n",
                ogive_version());
    add_formula_comment(f);
    const og_graph *const graphs[] = {f->graph, &f->gradient_graph};
    OG_TRY(og_pytorch_add_shaped(graphs, shapes, f->roles, !f->options->arch, &f->arena, f->text,
                                 f->error));
    return finish_file(f);
}

static ogive_status write_file(file *f, const og_pytorch_shape *shapes)
{
    OG_TRY(og_pytorch_check_options(f->graph, f->options, f->error));
    OG_TRY(name_inputs(f));
    if (f->options->for_shapes || og_pytorch_needs_shapes(f->graph))
        return write_shaped_file(f, shapes);
    if (f->options->arch)
        OG_FAIL(
            f->error, OGIVE_ARGUMENT, -1,
            "options.arch is given: only a file that is made for its shapes (for_shapes) is for "
            "one architecture");
    OG_TRY(og_pytorch_guess_sizes(f->graph, f->roles, shapes, &f->arena, &f->sizes, f->error));
    OG_TRY(og_pytorch_add_formula(f->graph, f->arguments, f->is_number, &f->plain, f->error));
    OG_TRY(make_programs(f));
    /* Any shape is taken by both, or by neither. */
    f->forward.is_uniform &= f->backward.is_uniform;
    f->backward.is_uniform &= f->forward.is_uniform;
    f->forward.is_short = f->backward.is_short = og_pytorch_is_pointwise(&f->forward, f->roles) &&
                                                 og_pytorch_is_pointwise(&f->backward, f->roles);
    add_opening(f);
    add_sources(f);
    og_pytorch_add_builders(f);
    return finish_file(f);
}

ogive_status og_pytorch_emit(const og_graph *graph, const og_pytorch_shape *shapes,
                             const ogive_pytorch_options *options, og_text *text,
                             ogive_error *error)
{
    file f = {.graph = graph, .options = options, .text = text, .error = error};
    ogive_status status = write_file(&f, shapes);
    og_pytorch_program_free(&f.forward);
    og_pytorch_program_free(&f.backward);
    og_graph_free(&f.gradient_graph);
    og_text_free(&f.plain);
    og_arena_free(&f.arena);
    return status;
}
