/* SPDX-License-Identifier: MIT
 *
 * pytorch_file.c - the whole file: what it says of itself, CUDA sources as strings (base,
 * functions, templates, kernels, launches), the extensions that load_inline() builds of
 * them, torch.autograd.Function, the formula in plain PyTorch for the CPU, ModelNew.
 *
 * The benchmark that such files are submitted to refuses some words of Python wherever
 * they stand; none of the texts has them (og_pytorch_find_refused() looks).
 */
#include "base/embedded.h"
#include "pytorch/pytorch_program.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { NAME_SIZE = 256, MAX_INPUTS = 32 };

typedef struct {
    const og_graph *graph;
    const ogive_pytorch_options *options;
    og_arena arena;
    og_pytorch_role *roles; /* [input], then those of the gradient's */
    const char **arguments; /* [input] in Python: "x", "fc_weight" */
    const char **owners;    /* [input] "self.fc.weight"; of an argument itself */
    const char **cpp_names; /* [input of the gradient] "x_" */
    bool *is_number;        /* [input] */
    og_text plain;          /* the formula in Python */
    og_pytorch_sizes sizes;
    og_graph gradient_graph;
    og_pytorch_program forward, backward;
    bool has_hopper;   /* some product has kernels for Hopper */
    bool has_products; /* there are products */
    og_text *text;
    ogive_error *error;
} file;

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
    if (f->graph->input_count > MAX_INPUTS)
        OG_FAIL(f->error, OGIVE_UNSUPPORTED, -1, "%d inputs: a PyTorch file takes at most %d",
                (int)f->graph->input_count, MAX_INPUTS);
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
    og_pytorch_shape large[MAX_INPUTS + OG_MAX_RESULTS];
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
    const char *names[MAX_INPUTS];
    og_pytorch_shape shapes[MAX_INPUTS + OG_MAX_RESULTS];
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

/* What a file does with its texts of kernels: as the library's resolver of includes. */
const char og_pytorch_inline[] =
    "\n\n"
    "def _inline(text, seen):\n"
    "    lines = []\n"
    "    for line in text.splitlines():\n"
    "        name = line[10:-1] if line.startswith('#include \"') else None\n"
    "        if name is None:\n"
    "            lines.append(line)\n"
    "        elif name in KERNELS and name not in seen:\n"
    "            seen.add(name)\n"
    "            lines.append(_inline(KERNELS[name], seen))\n"
    "    return \"\\n\".join(lines) + \"\\n\"\n";

static const char unit_list[] =
    "\n\n"
    "_extensions = []\n"
    "_lean = {name: True for name in (\"no_implicit_headers\",)\n"
    "         if name in inspect.signature(cpp_extension.load_inline).parameters}\n"
    "\n\n"
    "def kernels():\n"
    "    # What served each kernel last.\n"
    "    return [line for extension in _extensions for line in extension.kernels()]\n";

/* What builds units, and calls what may need them. */
static const char unit_builders[] =
    "\n\n"
    "def _source(name, numbers):\n"
    "    # A unit whose numbers are these. Behind a line \"#for ...\" comes what some bodies "
    "have.\n"
    "    values = dict(line.split() for line in numbers.splitlines())\n"
    "    body, chosen, lines = values.get(\"BODY\"), (\"all\",), []\n"
    "    for line in UNITS[name].splitlines():\n"
    "        if line.startswith(\"#for \"):\n"
    "            chosen = line.split()[1:]\n"
    "        elif body in chosen or \"all\" in chosen:\n"
    "            lines.append(line)\n"
    "    text = re.sub(r\"(?m)^#define (\\w+) .*\\n\",\n"
    "                  lambda define: \"\" if define[1] in values else define[0],\n"
    "                  _inline(\"\\n\".join(lines), set()))\n"
    "    return \"\".join(f\"#define {name} {value}\\n\" for name, value in values.items()) + "
    "text\n"
    "\n\n"
    "def _unit(name, numbers):\n"
    "    # The address of what launches it. Nothing of PyTorch is compiled.\n"
    "    source = _source(name, numbers)\n"
    "    hopper = [\"-gencode=arch=compute_90a,code=sm_90a\"] if \"OG_BODY\" not in numbers else "
    "[]\n"
    "    path = cpp_extension.load_inline(\n"
    "        name=\"ogive_\" + hashlib.sha256(source.encode()).hexdigest()[:16], "
    "cpp_sources=\"\",\n"
    "        cuda_sources=source, is_python_module=False,\n"
    "        extra_cuda_cflags=[\"-O3\", \"--fmad=false\", \"-diag-suppress=177\", *hopper], "
    "**_lean)\n"
    "    return ctypes.cast(ctypes.CDLL(path).ogive_run, ctypes.c_void_p).value\n"
    "\n\n"
    "def _serve(extension, function):\n"
    "    # Calls it; gives nothing back while a unit is missing.\n"
    "    def call(*arguments):\n"
    "        results = function(*arguments)\n"
    "        while not results:\n"
    "            name, numbers = extension.missing()\n"
    "            extension.add_unit(name, numbers, _unit(name, numbers))\n"
    "            results = function(*arguments)\n"
    "        return results\n"
    "    return call\n";

/* What builds C++, and looks for nvcc before. */
static const char builder_opening[] =
    "    if not shutil.which(\"nvcc\", path=f\"{cpp_extension.CUDA_HOME}/bin\"):\n"
    "        raise RuntimeError(\"tensors on a GPU need nvcc to build this file's kernels, "
    "and there is \"\n"
    "                           \"none: install the CUDA toolkit and set CUDA_HOME\")\n";

static void add_extensions(const file *f)
{
    static const char long_form[] =
        "    cpp = _inline(HOST_SHARED + host, set())\n"
        "    extension = cpp_extension.load_inline(\n"
        "        name=\"ogive_\" + hashlib.sha256((cpp + str(UNITS)).encode()).hexdigest()[:16],\n"
        "        cpp_sources=cpp, with_cuda=True, extra_cflags=[\"-O1\"],\n"
        "        functions=[function, \"missing\", \"add_unit\", \"kernels\"], **_lean)\n"
        "    _extensions.append(extension)\n"
        "    return _serve(extension, getattr(extension, function))\n"
        "\n\n"
        "@functools.lru_cache(maxsize=None)\n"
        "def _forward():\n"
        "    return _build(HOST_FORWARD, \"forward\")\n"
        "\n\n"
        "@functools.lru_cache(maxsize=None)\n"
        "def _backward():\n"
        "    return _build(HOST_BACKWARD, \"backward\")\n";
    static const char short_form[] =
        "    lean = {\"no_implicit_headers\"} & {*inspect.signature("
        "cpp_extension.load_inline).parameters}\n"
        "    return cpp_extension.load_inline(\n"
        "        name=\"ogive_\" + hashlib.sha256((ARGS + KERNELS + HOST).encode())"
        ".hexdigest()[:16],\n"
        "        cpp_sources=ARGS + HOST, cuda_sources=ARGS + KERNELS, functions=[\"run\"],\n"
        "        extra_cflags=[\"-O1\"], extra_cuda_cflags=[\"-O3\", \"--fmad=false\"], "
        "**dict.fromkeys(lean, 1))\n";
    if (f->forward.is_short)
        og_text_add(f->text, "\n\n@functools.lru_cache(maxsize=None)\ndef _build():\n%s",
                    short_form);
    else
        og_text_add(f->text, "%s%s%s\n\ndef _build(host, function):\n%s%s", unit_list,
                    og_pytorch_inline, unit_builders, builder_opening, long_form);
}

/* names of inputs of some kind, by commas: tensors, scalars or both. */
static void add_arguments(const file *f, const char *const *names, bool tensors, bool scalars)
{
    bool any = false;
    for (int32_t i = 0; i < f->graph->input_count; i++) {
        bool is_scalar = f->roles[i] == OG_PYTORCH_SCALAR;
        if (is_scalar ? !scalars : !tensors)
            continue;
        og_text_add(f->text, "%s%s", any ? ", " : "", names[i]);
        any = true;
    }
}

static int32_t count_tensors(const file *f)
{
    int32_t count = 0;
    for (int32_t i = 0; i < f->graph->input_count; i++)
        count += f->roles[i] != OG_PYTORCH_SCALAR;
    return count;
}

/* What kernels give. */
static void add_kernels(const file *f)
{
    const bool has_scalars = count_tensors(f) < f->graph->input_count;
    if (!f->forward.is_short) {
        og_text_add(f->text, "_forward()(");
        add_arguments(f, f->arguments, true, true);
        og_text_add(f->text, ")");
        return;
    }
    og_text_add(f->text, "_build().run(False, [");
    add_arguments(f, f->arguments, true, false);
    if (has_scalars) {
        og_text_add(f->text, "], [");
        add_arguments(f, f->arguments, false, true);
    }
    og_text_add(f->text, "])");
}

static void add_results(const file *f, const char *opening)
{
    const bool is_one = f->graph->result_count == 1;
    og_text_add(f->text, "%s%s", opening, is_one ? "" : "tuple(");
    add_kernels(f);
    og_text_add(f->text, is_one ? "[0]\n" : ")\n");
}

/* Up to the gradients, in a file with units: which of them are needed is to follow. */
static void add_backward_call(const file *f, bool has_scalars)
{
    bool any = false;
    add_arguments(f, f->arguments, true, false);
    og_text_add(f->text, "%s = ctx.saved_tensors\n        ", count_tensors(f) == 1 ? "," : "");
    if (has_scalars) {
        add_arguments(f, f->arguments, false, true);
        og_text_add(f->text, ", = ctx.scalars\n        ");
    }
    og_text_add(f->text, "needs = [");
    for (int32_t i = 0; i < f->graph->input_count; i++)
        if (f->roles[i] != OG_PYTORCH_SCALAR) {
            og_text_add(f->text, "%sctx.needs_input_grad[%d]", any ? ", " : "", (int)i);
            any = true;
        }
    og_text_add(f->text, "]\n        grads = _backward()(");
    add_arguments(f, f->arguments, true, true);
}

static void add_function(const file *f)
{
    const og_graph *graph = f->graph;
    og_text_add(f->text, "\n\nclass _Formula(torch.autograd.Function):\n"
                         "    @staticmethod\n    def forward(ctx, ");
    add_arguments(f, f->arguments, true, true);
    og_text_add(f->text, "):\n        ctx.save_for_backward(");
    add_arguments(f, f->arguments, true, false);
    og_text_add(f->text, ")\n");
    bool has_scalars = count_tensors(f) < graph->input_count;
    if (has_scalars) {
        og_text_add(f->text, "        ctx.scalars = (");
        add_arguments(f, f->arguments, false, true);
        og_text_add(f->text, ",)\n");
    }
    add_results(f, "        return ");
    og_text_add(f->text, "\n    @staticmethod\n    @once_differentiable\n"
                         "    def backward(ctx, ");
    for (int32_t r = 0; r < graph->result_count; r++)
        og_text_add(f->text, "%sgrad%d", r ? ", " : "", (int)r);
    og_text_add(f->text, "):\n        ");
    if (f->forward.is_short)
        og_text_add(f->text, "%s_build().run(True, [*ctx.saved_tensors",
                    has_scalars ? "grads = " : "return tuple(");
    else
        add_backward_call(f, has_scalars);
    for (int32_t r = 0; r < graph->result_count; r++)
        og_text_add(f->text, ", grad%d", (int)r);
    if (f->forward.is_short && !has_scalars) {
        og_text_add(f->text, "]))\n");
        return;
    }
    og_text_add(f->text, "%s)\n        return (",
                f->forward.is_short ? "], ctx.scalars" : ", needs");
    for (int32_t i = 0, t = 0; i < graph->input_count; i++)
        if (f->roles[i] == OG_PYTORCH_SCALAR)
            og_text_add(f->text, "None, ");
        else
            og_text_add(f->text, "grads[%d], ", (int)t++);
    og_text_add(f->text, ")\n");
}

static void add_plain(const file *f)
{
    og_text_add(f->text, "\n\ndef _plain(");
    add_arguments(f, f->arguments, true, true);
    og_text_add(f->text,
                "):\n%s%s",
                f->forward.is_short
                    ? ""
                    : "    # The same formula in PyTorch's own operations: tensors on the CPU.\n",
                f->plain.data ? f->plain.data : "");
    f->text->failed |= f->plain.failed;
}

/* x.is_cuda, or of several tensors (x.is_cuda or w.is_cuda); opening: their bracket. */
static void add_any(const file *f, const char *attribute, const char *opening)
{
    const bool is_one = count_tensors(f) == 1;
    bool any = false;
    og_text_add(f->text, "%s", is_one ? "" : opening);
    for (int32_t i = 0; i < f->graph->input_count; i++)
        if (f->roles[i] != OG_PYTORCH_SCALAR) {
            og_text_add(f->text, "%s%s.%s", any ? " or " : "", f->arguments[i], attribute);
            any = true;
        }
    og_text_add(f->text, "%s", is_one ? "" : ")");
}

/* The kernels, with what records a gradient only where there will be one; or plain PyTorch. */
static void add_call(const file *f)
{
    og_text_add(f->text, "\n\ndef _call(");
    add_arguments(f, f->arguments, true, true);
    og_text_add(f->text, "):\n    if not ");
    add_any(f, "is_cuda", "(");
    og_text_add(f->text, ":\n        return _plain(");
    add_arguments(f, f->arguments, true, true);
    og_text_add(f->text,
                ")\n    if forward_ad._current_level >= 0 or torch.is_grad_enabled() and ");
    add_any(f, "requires_grad", "(\n            ");
    og_text_add(f->text, ":\n        return _Formula.apply(");
    add_arguments(f, f->arguments, true, true);
    og_text_add(f->text, ")\n");
    add_results(f, "    return ");
}

static void add_model(const file *f)
{
    const ogive_pytorch_options *o = f->options;
    bool has_init = o->init && *o->init;
    og_text_add(f->text, "\n\nclass %s(nn.Module):\n", o->name ? o->name : "ModelNew");
    if (has_init || o->module_count || o->scalar_count) {
        og_text_add(f->text, "    def __init__(self%s%s):\n        super().__init__()\n",
                    has_init ? ", " : "", has_init ? o->init : "");
        for (size_t m = 0; m < o->module_count; m++) {
            const char *value;
            size_t length = og_pytorch_module_name(o->modules[m], &value);
            og_text_add(f->text, "        self.%.*s = %s\n", (int)length, o->modules[m], value);
        }
        for (size_t s = 0; s < o->scalar_count; s++)
            og_text_add(f->text, "        self.%s = %s\n", o->scalars[s], o->scalars[s]);
        og_text_add(f->text, "\n");
    }
    og_text_add(f->text, "    def forward(self");
    for (int32_t i = 0; i < f->graph->input_count; i++)
        if (f->roles[i] == OG_PYTORCH_ARGUMENT)
            og_text_add(f->text, ", %s", f->arguments[i]);
    og_text_add(f->text, "):\n        return _call(");
    for (int32_t i = 0; i < f->graph->input_count; i++)
        og_text_add(f->text, f->roles[i] == OG_PYTORCH_SCALAR ? "%sfloat(%s)" : "%s%s",
                    i ? ", " : "", f->owners[i]);
    og_text_add(f->text, ")\n");
}

static ogive_status finish_file(file *f)
{
    add_function(f);
    add_plain(f);
    add_call(f);
    add_model(f);
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
    const char *names[MAX_INPUTS];
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
    og_pytorch_shape shapes[MAX_INPUTS + OG_MAX_RESULTS];
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
    add_extensions(f);
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
