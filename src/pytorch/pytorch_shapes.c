/* SPDX-License-Identifier: MIT
 *
 * pytorch_shapes.c - a file that is made for the shapes that are given, and for one dtype: windows,
 * parts of tensors, vectors of a channel, whose kernels depend on sizes in more ways than a file can
 * leave open; and whatever else is asked to be so. The library's own plan, sources and launches
 * (cuda_work.h) are written down: for Hopper, and, where these take what only it has (its tensor
 * cores, clusters, more shared memory), once more for any GPU.
 */
#include "pytorch/pytorch_program.h"

#include <string.h>

/* What sources and launches depend on: an H100, and the least that is taken. */
static const og_cuda_limits machines[] = {{.arch = 90,
                                           .multiprocessors = 132,
                                           .threads_per_multiprocessor = 2048,
                                           .shared_per_block = 227 * 1024,
                                           .shared_per_multiprocessor = 228 * 1024,
                                           .l2_bytes = 50 * 1024 * 1024},
                                          {.arch = 70,
                                           .multiprocessors = 80,
                                           .threads_per_multiprocessor = 1024,
                                           .shared_per_block = 64 * 1024,
                                           .shared_per_multiprocessor = 64 * 1024,
                                           .l2_bytes = 4 * 1024 * 1024}};

typedef struct {
    const char *name; /* "Forward", "Backward" */
    og_typed *types;
    og_plan plan;
    og_cuda_work *works; /* [kernel] */
    size_t scratch_bytes;
    bool is_hopper; /* some kernel needs more than any GPU has */
    bool has_maps;
} shaped;

enum { MAP_BYTES = 16 }; /* of which addresses of tensor maps are multiples */

/* ---- the plan --------------------------------------------------------------------------------- */

/* As api_plan.c: which products share a kernel, and whether phases do, depends on the device. */
static ogive_status plan_for(shaped *to, const og_graph *graph, const og_layout *inputs,
                             const og_layout *outputs, int machine, const og_cuda_wishes *wishes,
                             ogive_error *error)
{
    og_plan_rules rules = {.sharing = OG_SHARE_ALIKE, .gathers_phases = true};
    for (;;) {
        bool shares = true, gathers = true;
        OG_TRY(og_plan_build(graph, to->types, inputs, outputs, rules, &to->plan, error));
        for (int32_t k = 0; k < to->plan.kernel_count; k++) {
            const og_kernel *kernel = &to->plan.kernels[k];
            if (rules.sharing == OG_SHARE_ALIKE && kernel->product_count == 2 &&
                kernel->products[0].dtype != OG_FLOAT64)
                shares &= og_cuda_takes_two(kernel, &machines[machine], wishes);
            if (rules.gathers_phases && og_kernel_gathers(kernel))
                gathers &= og_cuda_takes_phases(kernel, &machines[machine], wishes);
        }
        if (shares && gathers)
            return OGIVE_OK;
        og_plan_free(&to->plan);
        memset(&to->plan, 0, sizeof to->plan);
        rules.sharing = shares ? rules.sharing : OG_SHARE_NONE;
        rules.gathers_phases &= gathers;
    }
}

/* Do dims follow each other in memory, the last of `order` the closest? dense: without holes. */
static bool is_ordered(const og_pytorch_shape *shape, const int32_t *order, bool dense)
{
    int64_t next = 1;
    for (int32_t i = shape->rank; i-- > 0;) {
        const int64_t size = shape->shape[order[i]], stride = shape->stride[order[i]];
        if (size == 1)
            continue;
        if (stride < next || (dense && stride > next))
            return false;
        next = og_times(stride, size);
    }
    return true;
}

/* The dims of a shape, those that lie further apart first. */
static void find_order(const og_pytorch_shape *shape, int32_t *order)
{
    for (int32_t d = 0; d < shape->rank; d++) {
        int32_t at = d;
        for (; at > 0 && shape->stride[order[at - 1]] < shape->stride[d]; at--)
            order[at] = order[at - 1];
        order[at] = d;
    }
}

static void lay_in_order(const int32_t *order, og_pytorch_shape *shape)
{
    int64_t stride = 1;
    for (int32_t i = shape->rank; i-- > 0;) {
        shape->stride[order[i]] = stride;
        stride = og_times(stride, og_max(shape->shape[order[i]], 1));
    }
}

void og_pytorch_lay_result(const og_pytorch_shape *inputs, int32_t count, og_pytorch_shape *result)
{
    static const int32_t contiguous[OG_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    static const int32_t channels_last[2][5] = {{0, 2, 3, 1}, {0, 2, 3, 4, 1}};
    const int32_t rank = result->rank;
    for (int32_t i = 0; i < count; i++) {
        int32_t order[OG_MAX_RANK];
        if (inputs[i].rank != rank ||
            memcmp(inputs[i].shape, result->shape, (size_t)rank * sizeof *result->shape) != 0)
            continue;
        find_order(&inputs[i], order);
        if (is_ordered(&inputs[i], order, true)) {
            memcpy(result->stride, inputs[i].stride, sizeof result->stride);
            return;
        }
    }
    lay_in_order(contiguous, result);
    for (int32_t i = 0; i < count && (rank == 4 || rank == 5); i++)
        if (inputs[i].rank == rank) {
            if (!is_ordered(&inputs[i], contiguous, false) &&
                is_ordered(&inputs[i], channels_last[rank - 4], false))
                lay_in_order(channels_last[rank - 4], result);
            return;
        }
}

static void set_layout(og_layout *layout, const og_pytorch_shape *shape)
{
    *layout = (og_layout){.dtype = shape->dtype, .rank = shape->rank};
    memcpy(layout->shape, shape->shape, sizeof layout->shape);
    memcpy(layout->stride, shape->stride, sizeof layout->stride);
}

static ogive_status emit_works(shaped *to, int machine, const og_cuda_wishes *wishes,
                               og_arena *arena, ogive_error *error)
{
    to->works = OG_ARENA_NEW(arena, og_cuda_work, (size_t)to->plan.kernel_count);
    if (!to->works)
        return og_fail_memory(error, (size_t)to->plan.kernel_count * sizeof *to->works);
    for (int32_t k = 0; k < to->plan.kernel_count; k++) {
        og_cuda_work *work = &to->works[k];
        OG_TRY(og_cuda_emit(&to->plan, k, &machines[machine], wishes, arena, work, error));
        to->scratch_bytes =
            work->scratch_bytes > to->scratch_bytes ? work->scratch_bytes : to->scratch_bytes;
        to->is_hopper |= work->tensor_products > 0;
        for (int32_t l = 0; l < work->launch_count; l++) {
            const og_cuda_launch *launch = &work->launches[l];
            to->has_maps |= launch->map_count > 0;
            to->is_hopper |=
                launch->map_count > 0 || launch->cluster > 0 ||
                launch->shared_bytes + launch->static_bytes > machines[1].shared_per_block;
            if (launch->grid[1] * launch->grid[2] * launch->block[1] * launch->block[2] != 1)
                OG_FAIL(error, OGIVE_UNSUPPORTED, -1, "a PyTorch file launches blocks of one dim");
        }
    }
    return OGIVE_OK;
}

static ogive_status make_program(const og_graph *graph, const char *name,
                                 const og_pytorch_shape *shapes, int machine, og_arena *arena,
                                 shaped *to, ogive_error *error)
{
    const og_cuda_wishes wishes = {.units = machine ? OG_CUDA_CORES : OG_CUDA_ANY_UNITS};
    size_t inputs = (size_t)graph->input_count, results = (size_t)graph->result_count;
    og_input_type *given = OG_ARENA_NEW(arena, og_input_type, inputs);
    og_layout *layouts = OG_ARENA_NEW(arena, og_layout, inputs + results);
    *to = (shaped){.name = name};
    to->types = OG_ARENA_NEW(arena, og_typed, (size_t)graph->node_count);
    if (!given || !layouts || !to->types)
        return og_fail_memory(error, (size_t)graph->node_count * sizeof *to->types);
    for (size_t i = 0; i < inputs; i++) {
        given[i] = (og_input_type){.dtype = shapes[i].dtype, .rank = shapes[i].rank};
        memcpy(given[i].shape, shapes[i].shape, sizeof given[i].shape);
        set_layout(&layouts[i], &shapes[i]);
    }
    OG_TRY(og_infer(graph, given, to->types, error));
    for (size_t r = 0; r < results; r++) {
        const og_typed *type = &to->types[graph->results[r]];
        og_pytorch_shape result = {.dtype = type->dtype, .rank = type->rank};
        memcpy(result.shape, type->shape, sizeof result.shape);
        og_pytorch_lay_result(shapes, (int32_t)inputs, &result);
        set_layout(&layouts[inputs + r], &result);
    }
    OG_TRY(plan_for(to, graph, layouts, layouts + inputs, machine, &wishes, error));
    return emit_works(to, machine, &wishes, arena, error);
}

/* ---- units ------------------------------------------------------------------------------------- */

/* "places[3] + 128": buffers of the plan in their order, then the scratch. */
static void add_address(const og_plan *plan, int32_t buffer, size_t offset, og_text *text)
{
    og_text_add(text, "places[%d]", (int)(buffer == OG_CUDA_SCRATCH ? plan->buffer_count : buffer));
    if (offset)
        og_text_add(text, " + %zu", offset);
}

static void add_argument(const og_cuda_launch *launch, int number, og_text *text)
{
    enum { WORDS = 5 }; /* a line */
    og_text_add(text, "\nstatic const uint64_t og_argument%d[] = {", number);
    for (size_t at = 0; at < launch->argument_bytes; at += 8) {
        uint64_t word = 0;
        size_t left = launch->argument_bytes - at;
        memcpy(&word, launch->argument + at, left < 8 ? left : 8);
        og_text_add(text, "%s0x%llx,", at / 8 % WORDS ? " " : "\n    ", (unsigned long long)word);
    }
    og_text_add(text, "\n};\n");
}

static void add_map(const og_plan *plan, const og_cuda_map *m, og_text *text)
{
    const int64_t steps[] = {1, m->rows_between + 1, m->depth_between + 1, m->more_between + 1, 1};
    enum { SWIZZLE_32 = 1, SWIZZLE_64, SWIZZLE_128 }; /* CUtensorMapSwizzle */
    const int swizzle = m->is_plain              ? 0
                        : m->swizzle_bytes == 32 ? SWIZZLE_32
                        : m->swizzle_bytes == 64 ? SWIZZLE_64
                                                 : SWIZZLE_128;
    og_text_add(text,
                "        error = error ? error : og_add_map(\n            a, {%zu, %zu, %d, {%lld, "
                "%lld, %lld, %lld, %lld}, {%lld, %lld, %lld, %lld},\n             {%lld, %lld, "
                "%lld, %lld, %d}, {1, %lld, %lld, %lld, 1}, %d, %d},\n            ",
                m->at, og_dtype_bytes(m->dtype), 3 + (int)m->more, (long long)m->columns,
                (long long)m->rows, (long long)m->depth, (long long)m->more_extent[0],
                (long long)m->more_extent[1], (long long)m->pitch_bytes, (long long)m->slab_bytes,
                (long long)m->more_bytes[0], (long long)m->more_bytes[1], (long long)m->box_columns,
                (long long)(m->box_rows * steps[1]), (long long)(m->box_depth * steps[2]),
                (long long)(m->more_box * steps[3]), m->last_box ? (int)m->last_box : 1,
                (long long)steps[1], (long long)steps[2], (long long)steps[3], swizzle,
                m->fetches_256 ? 3 : 2);
    add_address(plan, m->buffer, m->offset, text);
    og_text_add(text, ");\n");
}

/* Addresses are multiples of MAP_BYTES, so that every map can be made. */
static bool is_launched(const og_cuda_launch *launch)
{
    return launch->when <= OG_CUDA_IF_MAPPED;
}

static bool is_same_argument(const og_cuda_launch *a, const og_cuda_launch *b)
{
    return a->argument_bytes == b->argument_bytes &&
           memcmp(a->argument, b->argument, a->argument_bytes) == 0;
}

static void add_launch(const og_plan *plan, const og_cuda_launch *launch, int argument,
                       og_text *text)
{
    og_text_add(text, "    { /* %s */\n        og_args a = og_start(og_argument%d);\n",
                launch->entry, argument);
    for (int32_t p = 0; p < launch->pointer_count; p++) {
        og_text_add(text, "        og_add_pointer(a, %zu, ", launch->pointers[p].at);
        add_address(plan, launch->pointers[p].buffer, launch->pointers[p].offset, text);
        og_text_add(text, ");\n");
    }
    for (int32_t m = 0; m < launch->map_count; m++)
        add_map(plan, &launch->maps[m], text);
    og_text_add(
        text, "        error = error ? error : OG_LAUNCH(%s, %u, %u, %zu, %s, stream, a);\n    }\n",
        launch->entry, launch->grid[0], launch->block[0], launch->shared_bytes,
        launch->overlaps ? "true" : "false");
}

static void add_unit(const shaped *of, int32_t k, og_text *text)
{
    const og_cuda_work *work = &of->works[k];
    bool has_maps = false;
    og_text launches = {0};
    int arguments = 0;
    const og_cuda_launch *last = NULL;
    for (int32_t l = 0; l < work->launch_count; l++)
        has_maps |= is_launched(&work->launches[l]) && work->launches[l].map_count > 0;
    og_text_add(text, "%s\n%s%s", work->source, "#include \"pytorch/shapes_launch.cuh\"\n",
                has_maps ? "#include \"pytorch/shapes_maps.cuh\"\n" : "");
    og_text_add(text, "\n/* Parameters but for addresses: sizes, strides, constants. */");
    for (int32_t l = 0; l < work->launch_count; l++) {
        const og_cuda_launch *launch = &work->launches[l];
        if (!is_launched(launch))
            continue;
        if (!last || !is_same_argument(last, launch))
            add_argument(launch, arguments++, text);
        last = launch;
        add_launch(&of->plan, launch, arguments - 1, &launches);
    }
    og_text_add(text,
                "\nextern \"C\" __attribute__((visibility(\"default\"))) int64_t ogive_run(char "
                "*const *places, void *stream)\n{\n    int error = 0;\n%s    return error;\n}\n",
                launches.data ? launches.data : "");
    text->failed |= launches.failed;
    og_text_free(&launches);
}

/* ---- what Python knows of them ----------------------------------------------------------------- */

static void add_tuple(int32_t rank, const int64_t *shape, og_text *text)
{
    og_text_add(text, "(");
    for (int32_t d = 0; d < rank; d++)
        og_text_add(text, "%lld%s", (long long)shape[d],
                    d + 1 < rank ? ", "
                    : rank == 1  ? ","
                                 : "");
    og_text_add(text, ")");
}

/* "(2, 3), strides (1, 2)" */
static void add_layout(const og_pytorch_shape *shape, og_text *text)
{
    og_pytorch_shape contiguous = *shape;
    og_pytorch_lay_result(NULL, 0, &contiguous);
    add_tuple(shape->rank, shape->shape, text);
    for (int32_t d = 0; d < shape->rank; d++)
        if (shape->shape[d] != 1 && shape->stride[d] != contiguous.stride[d]) {
            og_text_add(text, ", strides ");
            add_tuple(shape->rank, shape->stride, text);
            return;
        }
}

static void add_plan(const shaped *of, const uint64_t *needs, og_text *text)
{
    const og_plan *plan = &of->plan;
    size_t scratch = (plan->temporary_bytes + 63) & ~(size_t)63;
    og_text_add(text, "    {\n        \"inputs\": [");
    for (int32_t b = 0; b < plan->input_count + plan->output_count; b++) {
        if (b == plan->input_count)
            og_text_add(text, "],\n        \"results\": [");
        og_text_add(text, b && b != plan->input_count ? ", (" : "(");
        add_tuple(plan->buffers[b].rank, plan->buffers[b].shape, text);
        og_text_add(text, ", ");
        add_tuple(plan->buffers[b].rank, plan->buffers[b].stride, text);
        og_text_add(text, ")");
    }
    og_text_add(text,
                "],  # shapes, strides\n        \"alignment\": %d,\n        \"workspace\": %zu,\n"
                "        \"kept\": [",
                of->has_maps ? MAP_BYTES : 1, scratch + of->scratch_bytes);
    for (int32_t b = plan->input_count + plan->output_count; b < plan->buffer_count; b++)
        og_text_add(text, "%zu, ", plan->buffers[b].offset);
    og_text_add(text, "%zu],\n        \"units\": [", scratch);
    for (int32_t k = 0; k < plan->kernel_count; k++) {
        if (of->works[k].launch_count == 0)
            continue;
        og_text_add(text, "\n            (\"%s%d%s\", [", of->name, (int)k,
                    of->is_hopper ? "_hopper" : "");
        for (int32_t r = 0, any = 0; r < plan->output_count; r++)
            if (needs[k] >> r & 1)
                og_text_add(text, any++ ? ", %d" : "%d", (int)r);
        og_text_add(text, "]),");
    }
    og_text_add(text, "],\n    },\n");
}

/* ---- the file ----------------------------------------------------------------------------------- */

static const char runner[] =
    "\n\n"
    "@functools.lru_cache(maxsize=None)\n"
    "def _unit(name):\n"
    "    # What launches it: nothing of PyTorch is compiled.\n"
    "    source = _inline(UNITS[name], set())\n"
    "    if not shutil.which(\"nvcc\", path=f\"{cpp_extension.CUDA_HOME}/bin\"):\n"
    "        raise RuntimeError(\n"
    "            \"tensors on a GPU need nvcc to build this file's kernels, and none was found: "
    "\"\n"
    "            \"install the CUDA toolkit and set CUDA_HOME; on the CPU nothing is needed\")\n"
    "    lean = \"no_implicit_headers\" in inspect.signature("
    "cpp_extension.load_inline).parameters\n"
    "    hopper = [\"-gencode=arch=compute_90a,code=sm_90a\"] if name.endswith(\"_hopper\") else "
    "[]\n"
    "    path = cpp_extension.load_inline(\n"
    "        name=\"ogive_\" + hashlib.sha256(source.encode()).hexdigest()[:16], "
    "cpp_sources=\"\",\n"
    "        cuda_sources=source, is_python_module=False,\n"
    "        extra_cuda_cflags=[\"-O3\", \"--fmad=false\", \"-diag-suppress=177\", *hopper],\n"
    "        **({\"no_implicit_headers\": True} if lean else {}))\n"
    "    run = ctypes.CDLL(path).ogive_run\n"
    "    run.restype, run.argtypes = ctypes.c_int64, [ctypes.c_void_p, ctypes.c_void_p]\n"
    "    return run\n"
    "\n\n"
    "def _check(x, name, layout, alignment, device):\n"
    "    # As the kernels take it: a number is a tensor without dims.\n"
    "    shape, strides = layout\n"
    "    if not isinstance(x, torch.Tensor):\n"
    "        return torch.full((), x, dtype=DTYPE, device=device)\n"
    "    if x.device != device:\n"
    "        raise ValueError(f\"{name} is on {x.device}, another tensor on {device}: "
    "expected one device\")\n"
    "    if x.dtype != DTYPE:\n"
    "        raise TypeError(f\"{name} is {x.dtype}: this file was made for {DTYPE}\")\n"
    "    if x.shape != shape:\n"
    "        raise ValueError(f\"{name} has shape {tuple(x.shape)}: this file was made for "
    "{shape}\")\n"
    "    x = x.resolve_neg()  # its values, should it be a lazy negative\n"
    "    lies = all(n == 1 or a == b for n, a, b in zip(shape, x.stride(), strides))\n"
    "    if lies and x.data_ptr() % alignment == 0:\n"
    "        return x\n"
    "    return torch.empty_strided(shape, strides, dtype=DTYPE, device=device).copy_(x)\n"
    "\n\n"
    "def _launch(plan, tensors, results, space, stream, needs):\n"
    "    # Runs the units that the results which are needed need.\n"
    "    places = [t.data_ptr() for t in (*tensors, *results)] + [space.data_ptr() + at for at in "
    "plan[\"kept\"]]\n"
    "    places = (ctypes.c_void_p * len(places))(*places)\n"
    "    for name, serves in plan[\"units\"]:\n"
    "        error = _unit(name)(places, stream) if any(needs[r] for r in serves) else 0\n"
    "        if error:\n"
    "            raise RuntimeError(f\"{name}: CUDA error {error}\")\n"
    "\n\n"
    "def _run(plans, names, arguments, needs=None):\n"
    "    device = next(x.device for x in arguments if isinstance(x, torch.Tensor) and x.is_cuda)\n"
    "    if device.index != torch.cuda.current_device():\n"
    "        with torch.cuda.device(device):\n"
    "            return _run(plans, names, arguments, needs)\n"
    "    plan = plans[_choose(device.index)]\n"
    "    tensors = [_check(*one, plan[\"alignment\"], device) for one in "
    "zip(arguments, names, plan[\"inputs\"])]\n"
    "    results = [torch.empty_strided(*layout, dtype=DTYPE, device=device) for layout in "
    "plan[\"results\"]]\n"
    "    space = torch.empty(plan[\"workspace\"], dtype=torch.uint8, device=device)\n"
    "    stream = torch.cuda.current_stream(device).cuda_stream\n"
    "    _launch(plan, tensors, results, space, stream, needs or [True] * len(results))\n"
    "    return [r if needs is None or needs[i] else None for i, r in enumerate(results)]\n";

static const char choose_any[] =
    "\n\n"
    "@functools.lru_cache(maxsize=None)\n"
    "def _choose(index):\n"
    "    # Of FORWARD and BACKWARD: the first is Hopper's, the last any GPU's.\n"
    "    return 0 if torch.cuda.get_device_capability(index) == (9, 0) else -1\n";
static const char choose_hopper[] =
    "\n\n"
    "@functools.lru_cache(maxsize=None)\n"
    "def _choose(index):\n"
    "    if torch.cuda.get_device_capability(index) != (9, 0):\n"
    "        raise RuntimeError(\"this file was made for GPUs of compute capability 9.0\")\n"
    "    return 0\n";

static const char *dtype_name(og_dtype dtype)
{
    return dtype == OG_FLOAT16    ? "float16"
           : dtype == OG_BFLOAT16 ? "bfloat16"
           : dtype == OG_FLOAT64  ? "float64"
                                  : "float32";
}

static void add_opening(const og_graph *graph, const og_pytorch_shape *shapes,
                        const og_pytorch_role *roles, const shaped programs[2][2], bool is_for_all,
                        og_text *text)
{
    char kind[64];
    const bool is_hopper = programs[0][0].is_hopper || programs[1][0].is_hopper;
    og_text_add(
        text,
        "#\n"
        "# It needs PyTorch (2.3 or later) alone, and nvcc for tensors on a GPU, whose "
        "kernels are\n"
        "# built when they are first needed (PyTorch keeps them for the next process).\n"
        "#\n"
        "# On a GPU it takes tensors of %s and of these shapes, for which it was made; what "
        "has\n"
        "# other strides is copied. On the CPU it is plain PyTorch operations (_plain below).\n",
        dtype_name(shapes[0].dtype));
    for (int32_t i = 0; i < graph->input_count; i++) {
        og_text_add(text, "#   %-12s ", graph->inputs[i].name);
        if (roles[i] == OG_PYTORCH_SCALAR)
            og_text_add(text, "a number");
        else
            add_layout(&shapes[i], text);
        og_text_add(text, "\n");
    }
    og_text_add(text,
                "#\n"
                "# What is here, in this order (where home cannot be written to, set "
                "TORCH_EXTENSIONS_DIR):\n"
                "#   UNITS                       the formula and its derivative, kernel by kernel, "
                "with\n"
                "#                               the launches of each\n"
                "#   KERNELS                     Ogive's kernels and functions, which units "
                "include\n"
                "#   FORWARD, BACKWARD           which units run, in which memory\n"
                "#   _unit, _run, _Formula       what compiles and runs them, and records "
                "gradients\n"
                "#   _plain, _call, the module   the formula in PyTorch's operations; which of the "
                "two\n"
                "#\n"
                "%s"
                "# Kernels, and those of the gradient, which is computed from the inputs again:\n",
                !is_for_all ? "# Kernels are for GPUs of compute capability 9.0 alone.\n#\n"
                : is_hopper
                    ? "# Kernels called _hopper are for compute capability 9.0, the others for all "
                      "GPUs.\n#\n"
                    : "");
    for (int i = 0; i < 4; i++) {
        const shaped *p = &programs[i / 2][i % 2];
        for (int32_t k = 0; k < p->plan.kernel_count; k++) {
            og_kernel_name(&p->plan.kernels[k], kind);
            og_text_add(text, "#   %s%d%s   %s: %s\n", p->name, (int)k,
                        p->is_hopper ? "_hopper" : "", kind, p->works[k].body);
        }
    }
    og_text_add(text,
                "import ctypes\nimport functools\nimport hashlib\nimport inspect\nimport math\n"
                "import shutil\n\nimport torch\nimport torch.nn as nn\n"
                "import torch.nn.functional as F\nfrom torch.autograd import forward_ad\n"
                "from torch.autograd.function import once_differentiable\n"
                "from torch.utils import cpp_extension\n\nDTYPE = torch.%s\n",
                dtype_name(shapes[0].dtype));
}

static void add_units(const shaped programs[2][2], og_text *text)
{
    og_text all = {0};
    og_text_add(text,
                "\n# The formula, kernel by kernel, and its derivative; below, the files that "
                "they include.\nUNITS = {\n");
    for (int i = 0; i < 4; i++) {
        const shaped *p = &programs[i / 2][i % 2];
        for (int32_t k = 0; k < p->plan.kernel_count; k++) {
            og_text unit = {0};
            if (p->works[k].launch_count == 0)
                continue;
            add_unit(p, k, &unit);
            og_text_add(text, "    \"%s%d%s\": r'''\n%s''',\n", p->name, (int)k,
                        p->is_hopper ? "_hopper" : "", unit.data ? unit.data : "");
            og_text_add(&all, "%s", unit.data ? unit.data : "");
            text->failed |= unit.failed;
            og_text_free(&unit);
        }
    }
    og_text_add(text, "}\n\nKERNELS = {\n");
    text->failed |= all.failed;
    if (!text->failed && all.data)
        og_pytorch_add_unit_files(all.data, text);
    og_text_add(text, "}\n");
    og_text_free(&all);
}

/* FORWARD = [for Hopper, for any GPU], or one for both; and what runs them. */
static ogive_status add_plans(const og_graph *const graphs[2], const shaped programs[2][2],
                              bool is_for_all, og_arena *arena, og_text *text, ogive_error *error)
{
    static const char *const names[] = {"FORWARD", "BACKWARD"};
    for (int i = 0; i < 2; i++) {
        og_text_add(text, "\n%s = [\n", names[i]);
        for (int v = 0; v < 2 && programs[i][v].name; v++) {
            const og_plan *plan = &programs[i][v].plan;
            uint64_t *needs = OG_ARENA_NEW(arena, uint64_t, (size_t)plan->kernel_count);
            if (!needs)
                return og_fail_memory(error, (size_t)plan->kernel_count * sizeof *needs);
            og_pytorch_find_needs(plan, needs);
            add_plan(&programs[i][v], needs, text);
        }
        og_text_add(text, "]\n");
    }
    og_text_add(text, "%s%s%s", og_pytorch_inline, is_for_all ? choose_any : choose_hopper, runner);
    for (int i = 0; i < 2; i++) {
        og_text_add(text, "\n\ndef _%s():\n    names = [", i ? "backward" : "forward");
        for (int32_t n = 0; n < graphs[i]->input_count; n++)
            og_text_add(text, "%s\"%s\"", n ? ", " : "", graphs[i]->inputs[n].name);
        og_text_add(text, "]\n    return lambda *arguments: _run(%s, names, arguments%s)\n",
                    names[i], i ? "[:-1], arguments[-1]" : "");
    }
    return OGIVE_OK;
}

static ogive_status add_file(const og_graph *const graphs[2], const og_pytorch_shape *shapes,
                             const og_pytorch_role *roles, bool is_for_all, shaped programs[2][2],
                             og_arena *arena, og_text *text, ogive_error *error)
{
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "Backward" : "Forward";
        OG_TRY(make_program(graphs[i], name, shapes, 0, arena, &programs[i][0], error));
        if (programs[i][0].is_hopper && is_for_all)
            OG_TRY(make_program(graphs[i], name, shapes, 1, arena, &programs[i][1], error));
    }
    add_opening(graphs[0], shapes, roles, (const shaped(*)[2])programs, is_for_all, text);
    add_units((const shaped(*)[2])programs, text);
    return add_plans(graphs, (const shaped(*)[2])programs, is_for_all, arena, text, error);
}

ogive_status og_pytorch_add_shaped(const og_graph *const graphs[2], const og_pytorch_shape *shapes,
                                   const og_pytorch_role *roles, bool is_for_all, og_arena *arena,
                                   og_text *text, ogive_error *error)
{
    shaped programs[2][2] = {0};
    ogive_status status = add_file(graphs, shapes, roles, is_for_all, programs, arena, text, error);
    for (int i = 0; i < 4; i++)
        og_plan_free(&programs[i / 2][i % 2].plan);
    return status;
}
