/* SPDX-License-Identifier: MIT
 *
 * pytorch_python.c - the Python of a file: what has its kernels built when they are first needed,
 * torch.autograd.Function, the formula in plain PyTorch for the CPU, the module. What is in the
 * strings that it builds, and what a file says of itself, is pytorch_file.c's.
 */
#include "pytorch/pytorch_file.h"

/* ---- what builds kernels ---------------------------------------------------------------- */

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

void og_pytorch_add_builders(const og_pytorch_file *f)
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

/* ---- torch.autograd.Function ------------------------------------------------------------ */

/* names of inputs of some kind, by commas: tensors, scalars or both. */
static void add_arguments(const og_pytorch_file *f, const char *const *names, bool tensors,
                          bool scalars)
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

static int32_t count_tensors(const og_pytorch_file *f)
{
    int32_t count = 0;
    for (int32_t i = 0; i < f->graph->input_count; i++)
        count += f->roles[i] != OG_PYTORCH_SCALAR;
    return count;
}

/* What kernels give. */
static void add_kernels(const og_pytorch_file *f)
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

static void add_results(const og_pytorch_file *f, const char *opening)
{
    const bool is_one = f->graph->result_count == 1;
    og_text_add(f->text, "%s%s", opening, is_one ? "" : "tuple(");
    add_kernels(f);
    og_text_add(f->text, is_one ? "[0]\n" : ")\n");
}

/* grads = what kernels give, in a file with units. */
static void add_unit_backward(const og_pytorch_file *f, bool has_scalars)
{
    bool any = false;
    og_text_add(f->text, "        ");
    add_arguments(f, f->arguments, true, false);
    og_text_add(f->text, "%s = ctx.saved_tensors\n", count_tensors(f) == 1 ? "," : "");
    if (has_scalars) {
        og_text_add(f->text, "        ");
        add_arguments(f, f->arguments, false, true);
        og_text_add(f->text, ", = ctx.scalars\n");
    }
    og_text_add(f->text, "        needs = [");
    for (int32_t i = 0; i < f->graph->input_count; i++)
        if (f->roles[i] != OG_PYTORCH_SCALAR) {
            og_text_add(f->text, "%sctx.needs_input_grad[%d]", any ? ", " : "", (int)i);
            any = true;
        }
    og_text_add(f->text, "]\n        grads = _backward()(");
    add_arguments(f, f->arguments, true, true);
    for (int32_t r = 0; r < f->graph->result_count; r++)
        og_text_add(f->text, ", grad%d", (int)r);
    og_text_add(f->text, ", needs)\n");
}

/* The same in a short file, and what opens its line. */
static void add_short_backward(const og_pytorch_file *f, const char *opening, bool has_scalars)
{
    og_text_add(f->text, "        %s_build().run(True, [*ctx.saved_tensors", opening);
    for (int32_t r = 0; r < f->graph->result_count; r++)
        og_text_add(f->text, ", grad%d", (int)r);
    og_text_add(f->text, has_scalars ? "], ctx.scalars)" : "])");
}

/* What autograd is given: None for a number. */
static void add_gradients(const og_pytorch_file *f)
{
    og_text_add(f->text, "        return (");
    for (int32_t i = 0, t = 0; i < f->graph->input_count; i++)
        if (f->roles[i] == OG_PYTORCH_SCALAR)
            og_text_add(f->text, "None, ");
        else
            og_text_add(f->text, "grads[%d], ", (int)t++);
    og_text_add(f->text, ")\n");
}

static void add_backward(const og_pytorch_file *f, bool has_scalars)
{
    og_text_add(f->text, "\n    @staticmethod\n    @once_differentiable\n"
                         "    def backward(ctx, ");
    for (int32_t r = 0; r < f->graph->result_count; r++)
        og_text_add(f->text, "%sgrad%d", r ? ", " : "", (int)r);
    og_text_add(f->text, "):\n");
    if (f->forward.is_short && !has_scalars) {
        add_short_backward(f, "return tuple(", false);
        og_text_add(f->text, ")\n");
        return;
    }
    if (f->forward.is_short) {
        add_short_backward(f, "grads = ", true);
        og_text_add(f->text, "\n");
    } else {
        add_unit_backward(f, has_scalars);
    }
    add_gradients(f);
}

static void add_function(const og_pytorch_file *f)
{
    const bool has_scalars = count_tensors(f) < f->graph->input_count;
    og_text_add(f->text, "\n\nclass _Formula(torch.autograd.Function):\n"
                         "    @staticmethod\n    def forward(ctx, ");
    add_arguments(f, f->arguments, true, true);
    og_text_add(f->text, "):\n        ctx.save_for_backward(");
    add_arguments(f, f->arguments, true, false);
    og_text_add(f->text, ")\n");
    if (has_scalars) {
        og_text_add(f->text, "        ctx.scalars = (");
        add_arguments(f, f->arguments, false, true);
        og_text_add(f->text, ",)\n");
    }
    add_results(f, "        return ");
    add_backward(f, has_scalars);
}

/* ---- the module ------------------------------------------------------------------------- */

static void add_plain(const og_pytorch_file *f)
{
    og_text_add(f->text, "\n\ndef _plain(");
    add_arguments(f, f->arguments, true, true);
    og_text_add(f->text, "):\n%s%s",
                f->forward.is_short
                    ? ""
                    : "    # The same formula in PyTorch's own operations: tensors on the CPU.\n",
                f->plain.data ? f->plain.data : "");
    f->text->failed |= f->plain.failed;
}

/* x.is_cuda, or of several tensors (x.is_cuda or w.is_cuda); opening: their bracket. */
static void add_any(const og_pytorch_file *f, const char *attribute, const char *opening)
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
static void add_call(const og_pytorch_file *f)
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

static void add_model(const og_pytorch_file *f)
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

void og_pytorch_add_module(const og_pytorch_file *f)
{
    add_function(f);
    add_plain(f);
    add_call(f);
    add_model(f);
}
