/* SPDX-License-Identifier: MIT
 *
 * api_plan.c - ogive.h: plans. Reads the caller's tensors, runs the stages
 * (infer, plan, prepare), checks pointers before a run.
 */
#include "api/api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- making ------------------------------------------------------------------- */

/* What lives only while a plan is made. */
typedef struct {
    og_arena arena;
    og_layout *inputs, *outputs;
    og_input_type *input_types;
    og_typed *types;
    DLDevice device;          /* of all tensors */
    const char *device_giver; /* the input that said so */
} og_making;

static ogive_status start_making(const og_graph *graph, og_making *m, ogive_error *error)
{
    m->inputs = OG_ARENA_NEW(&m->arena, og_layout, (size_t)graph->input_count);
    m->input_types = OG_ARENA_NEW(&m->arena, og_input_type, (size_t)graph->input_count);
    m->outputs = OG_ARENA_NEW(&m->arena, og_layout, (size_t)graph->result_count);
    m->types = OG_ARENA_NEW(&m->arena, og_typed, (size_t)graph->node_count);
    if (!m->inputs || !m->input_types || !m->outputs || !m->types)
        return og_fail_memory(error, (size_t)graph->node_count * sizeof *m->types);
    return OGIVE_OK;
}

/* All tensors must be where the first input is. */
static ogive_status check_device(const DLTensor *tensor, const char *what, const char *name,
                                 const og_making *m, ogive_error *error)
{
    DLDevice device = og_tensor_device(tensor);
    char here[OG_DEVICE_TEXT], there[OG_DEVICE_TEXT];
    if (device.device_type == m->device.device_type && device.device_id == m->device.device_id)
        return OGIVE_OK;
    OG_FAIL(error, OGIVE_ARGUMENT, -1,
            "%s '%s' is on %s, input '%s' on %s: all tensors must be on one device", what, name,
            og_device_text(device, here), m->device_giver, og_device_text(m->device, there));
}

static ogive_status read_inputs(const og_graph *graph, const DLTensor *const *inputs, size_t count,
                                og_making *m, ogive_error *error)
{
    if (count != (size_t)graph->input_count || (count && !inputs))
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "the formula has %d inputs, %zu were given",
                (int)graph->input_count, inputs ? count : 0);
    for (size_t i = 0; i < count; i++) {
        const char *name = graph->inputs[i].name;
        OG_TRY(og_read_tensor(inputs[i], "input", name, &m->inputs[i], error));
        if (i == 0) {
            m->device = og_tensor_device(inputs[i]);
            m->device_giver = name;
        }
        OG_TRY(check_device(inputs[i], "input", name, m, error));
        m->input_types[i].dtype = m->inputs[i].dtype;
        m->input_types[i].rank = m->inputs[i].rank;
        memcpy(m->input_types[i].shape, m->inputs[i].shape, sizeof m->inputs[i].shape);
    }
    return OGIVE_OK;
}

/* Refuses an output some of whose elements share memory. */
static ogive_status check_distinct(const og_layout *layout, const char *name, ogive_error *error)
{
    int64_t reach = 1; /* elements that the smaller strides cover */
    bool used[OG_MAX_RANK] = {false};
    int64_t count;
    if (!og_shape_count(layout->rank, layout->shape, &count) || count == 0)
        return OGIVE_OK; /* the first is refused elsewhere */
    for (;;) {
        int32_t least = -1;
        for (int32_t d = 0; d < layout->rank; d++)
            if (!used[d] && layout->shape[d] > 1 && /* no other stride leads anywhere */
                (least < 0 || llabs(layout->stride[d]) < llabs(layout->stride[least])))
                least = d;
        if (least < 0)
            return OGIVE_OK;
        used[least] = true;
        int64_t stride = llabs(layout->stride[least]);
        if (stride < reach) {
            char shape[OG_SHAPE_TEXT], strides[OG_SHAPE_TEXT];
            OG_FAIL(error, OGIVE_ARGUMENT, -1,
                    "output '%s' overlaps itself: shape %s with strides %s", name,
                    og_shape_text(layout->rank, layout->shape, shape),
                    og_shape_text(layout->rank, layout->stride, strides));
        }
        reach += stride * (layout->shape[least] - 1);
    }
}

static ogive_status read_output(const DLTensor *tensor, const og_typed *type, const char *name,
                                og_layout *layout, ogive_error *error)
{
    OG_TRY(og_read_tensor(tensor, "output", name, layout, error));
    char got[OG_SHAPE_TEXT], want[OG_SHAPE_TEXT];
    if (layout->rank != type->rank ||
        memcmp(layout->shape, type->shape, (size_t)type->rank * sizeof *type->shape) != 0)
        OG_FAIL(error, OGIVE_SHAPE, -1, "output '%s' has shape %s: expected %s", name,
                og_shape_text(layout->rank, layout->shape, got),
                og_shape_text(type->rank, type->shape, want));
    if (layout->dtype != type->dtype)
        OG_FAIL(error, OGIVE_DTYPE, -1, "output '%s' is %s: expected %s", name,
                og_dtype_name(layout->dtype), og_dtype_name(type->dtype));
    return check_distinct(layout, name, error);
}

static ogive_status read_outputs(const og_graph *graph, const DLTensor *const *outputs,
                                 size_t count, og_making *m, ogive_error *error)
{
    if (outputs && count != (size_t)graph->result_count)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "the formula has %d results, %zu outputs were given",
                (int)graph->result_count, count);
    for (int32_t i = 0; i < graph->result_count; i++) {
        const og_typed *type = &m->types[graph->results[i]];
        og_layout *layout = &m->outputs[i];
        char name[16];
        snprintf(name, sizeof name, "%d", (int)i);
        if (outputs) {
            OG_TRY(read_output(outputs[i], type, name, layout, error));
            OG_TRY(check_device(outputs[i], "output", name, m, error));
            continue;
        }
        layout->dtype = type->dtype;
        layout->rank = type->rank;
        memcpy(layout->shape, type->shape, sizeof layout->shape);
        char shape[OG_SHAPE_TEXT];
        if (!og_layout_contiguous(layout) || !og_layout_fits(layout))
            OG_FAIL(error, OGIVE_SHAPE, -1, "result '%s' of shape %s is larger than any memory",
                    name, og_shape_text(type->rank, type->shape, shape));
    }
    return OGIVE_OK;
}

/* What of the layouts and names a plan keeps. */
static ogive_status keep_tensors(ogive_plan *plan, const og_graph *graph, const og_making *m,
                                 ogive_error *error)
{
    og_arena *arena = &plan->plan.arena;
    size_t inputs = (size_t)graph->input_count, outputs = (size_t)graph->result_count;
    plan->results = OG_ARENA_NEW(arena, DLTensor, outputs);
    plan->names = OG_ARENA_NEW(arena, const char *, inputs);
    plan->reach = OG_ARENA_NEW(arena, og_reach, inputs + outputs);
    plan->packed = OG_ARENA_NEW(arena, size_t, inputs);
    if (!plan->results || !plan->names || !plan->reach || !plan->packed)
        return og_fail_memory(error, outputs * sizeof *plan->results);
    for (size_t i = 0; i < inputs; i++) {
        size_t bytes = strlen(graph->inputs[i].name) + 1;
        char *name = OG_ARENA_NEW(arena, char, bytes);
        if (!name)
            return og_fail_memory(error, bytes);
        plan->names[i] = memcpy(name, graph->inputs[i].name, bytes);
        plan->reach[i] = og_layout_reach(&m->inputs[i]);
    }
    for (size_t i = 0; i < outputs; i++) {
        og_buffer *buffer = &plan->plan.buffers[inputs + i];
        plan->reach[inputs + i] = og_layout_reach(&m->outputs[i]);
        plan->results[i] = (DLTensor){.device = m->device,
                                      .ndim = buffer->rank,
                                      .dtype = og_dtype_dlpack(buffer->dtype),
                                      .shape = buffer->shape,
                                      .strides = buffer->stride};
    }
    return OGIVE_OK;
}

static ogive_status check_options(const ogive_options *options, ogive_error *error)
{
    if (!options)
        return OGIVE_OK;
    if (options->size != sizeof *options)
        OG_FAIL(error, OGIVE_ARGUMENT, -1,
                "options.size is %zu: expected sizeof(ogive_options), %zu", options->size,
                sizeof *options);
    if (options->threads < 0)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "options.threads is %d: expected 0 or more",
                (int)options->threads);
    if (options->precision != OGIVE_FLOAT32 && options->precision != OGIVE_STRICT &&
        options->precision != OGIVE_TF32)
        OG_FAIL(error, OGIVE_ARGUMENT, -1,
                "options.precision is %d: expected OGIVE_FLOAT32, OGIVE_STRICT or OGIVE_TF32",
                (int)options->precision);
    return OGIVE_OK;
}

/* Does the backend pack what options ask for? (It sees itself whether it can.) */
static ogive_status check_packed(const ogive_plan *plan, const ogive_options *options,
                                 ogive_error *error)
{
    int32_t inputs = plan->plan.input_count;
    if (!options || !options->packed)
        return OGIVE_OK;
    if (inputs < 64 && options->packed >> inputs != 0)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "options.packed is %#llx: the formula has %d inputs",
                (unsigned long long)options->packed, (int)inputs);
    if (!plan->backend->pack)
        OG_FAIL(error, OGIVE_UNSUPPORTED, -1,
                "options.packed is %#llx, but inputs are packed for the CPU only",
                (unsigned long long)options->packed);
    return OGIVE_OK;
}

/* Does the backend take all kernels that have two products in float32? */
static bool takes_products(const ogive_plan *plan, const og_placement *placement,
                           const ogive_options *options)
{
    for (int32_t i = 0; i < plan->plan.kernel_count; i++) {
        const og_kernel *kernel = &plan->plan.kernels[i];
        if (kernel->product_count == 2 && kernel->products[0].dtype != OG_FLOAT64 &&
            !plan->backend->takes_two(kernel, placement, options))
            return false;
    }
    return true;
}

/* Does it take all that have gathered phases? */
static bool takes_phases(const ogive_plan *plan, const og_placement *placement,
                         const ogive_options *options)
{
    for (int32_t i = 0; i < plan->plan.kernel_count; i++)
        if (og_kernel_gathers(&plan->plan.kernels[i]) &&
            !plan->backend->takes_phases(&plan->plan.kernels[i], placement, options))
            return false;
    return true;
}

/* Which products share a kernel, and whether the phases of a transposed stride do, is the backend's
 * choice, unless it is strict. */
static ogive_status build_plan(const og_graph *graph, const og_making *m,
                               const ogive_options *options, ogive_plan *plan, ogive_error *error)
{
    const og_placement placement = {.device = m->device};
    const og_backend *backend = plan->backend;
    bool strict = options && options->precision == OGIVE_STRICT;
    og_plan_rules rules = {.sharing = backend->takes_two && !strict ? OG_SHARE_ALIKE : OG_SHARE_ANY,
                           .gathers_phases = backend->takes_phases && !strict};
    for (;;) {
        OG_TRY(og_plan_build(graph, m->types, m->inputs, m->outputs, rules, &plan->plan, error));
        const bool shares =
            rules.sharing != OG_SHARE_ALIKE || takes_products(plan, &placement, options);
        const bool gathers = !rules.gathers_phases || takes_phases(plan, &placement, options);
        if (shares && gathers)
            return OGIVE_OK;
        og_plan_free(&plan->plan);
        rules.sharing = shares ? rules.sharing : OG_SHARE_NONE;
        rules.gathers_phases &= gathers;
    }
}

static ogive_status make_plan(const og_graph *graph, const DLTensor *const *inputs,
                              size_t input_count, const DLTensor *const *outputs,
                              size_t output_count, const ogive_options *options, og_making *m,
                              ogive_plan *plan, ogive_error *error)
{
    OG_TRY(check_options(options, error));
    OG_TRY(start_making(graph, m, error));
    OG_TRY(read_inputs(graph, inputs, input_count, m, error));
    OG_TRY(og_infer(graph, m->input_types, m->types, error));
    OG_TRY(read_outputs(graph, outputs, output_count, m, error));
    plan->backend = m->device.device_type == kDLCUDA ? &og_cuda_backend : &og_cpu_backend;
    OG_TRY(build_plan(graph, m, options, plan, error));
    OG_TRY(keep_tensors(plan, graph, m, error));
    plan->placement = (og_placement){.device = m->device, .input_names = plan->names};
    if (!plan->backend->has_streams && options && options->cuda_arch)
        OG_FAIL(error, OGIVE_ARGUMENT, -1,
                "options.cuda_arch is '%s', but the tensors are on the CPU", options->cuda_arch);
    if (!plan->backend->has_streams && options && options->precision == OGIVE_TF32 &&
        og_plan_has_products(&plan->plan))
        OG_FAIL(
            error, OGIVE_UNSUPPORTED, -1,
            "the precision is tf32, but the tensors are on the CPU: expected a GPU from sm_80 on");
    OG_TRY(check_packed(plan, options, error));
    OG_TRY(plan->backend->prepare(&plan->plan, &plan->placement, options, &plan->state,
                                  &plan->workspace_bytes, error));
    for (int32_t i = 0; i < plan->plan.input_count && plan->backend->packed_bytes; i++)
        plan->packed[i] = plan->backend->packed_bytes(&plan->plan, plan->state, i);
    return OGIVE_OK;
}

ogive_status ogive_plan_create(const ogive_formula *formula, const DLTensor *const *inputs,
                               size_t input_count, const DLTensor *const *outputs,
                               size_t output_count, const ogive_options *options, ogive_plan **out,
                               ogive_error *error)
{
    og_error_clear(error);
    if (!out)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "out is NULL");
    *out = NULL;
    if (!formula)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "formula is NULL");
    ogive_plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return og_fail_memory(error, sizeof *plan);
    atomic_init(&plan->owners, 1);
    og_making making = {0};
    fenv_t state; /* constants are rounded while planning, too */
    og_float_state_enter(&state);
    ogive_status status = make_plan(&formula->graph, inputs, input_count, outputs, output_count,
                                    options, &making, plan, error);
    og_float_state_leave(&state);
    og_arena_free(&making.arena);
    if (status != OGIVE_OK) {
        ogive_plan_release(plan);
        return status;
    }
    *out = plan;
    return OGIVE_OK;
}

ogive_plan *ogive_plan_retain(ogive_plan *plan)
{
    if (plan)
        atomic_fetch_add_explicit(&plan->owners, 1, memory_order_relaxed);
    return plan;
}

void ogive_plan_release(ogive_plan *plan)
{
    if (!plan || atomic_fetch_sub_explicit(&plan->owners, 1, memory_order_acq_rel) != 1)
        return;
    if (plan->state)
        plan->backend->release(plan->state);
    free(atomic_load_explicit(&plan->spare, memory_order_relaxed));
    free(plan->key.words);
    og_plan_free(&plan->plan);
    free(plan);
}

const DLTensor *ogive_plan_result(const ogive_plan *plan, size_t index)
{
    return plan && index < (size_t)plan->plan.output_count ? &plan->results[index] : NULL;
}

size_t ogive_plan_workspace(const ogive_plan *plan)
{
    return plan ? plan->workspace_bytes : 0;
}

/* ---- running ------------------------------------------------------------------- */

static ogive_status check_pointer(const ogive_plan *plan, int32_t buffer, const void *data,
                                  ogive_error *error)
{
    const og_buffer *at = &plan->plan.buffers[buffer];
    bool empty = plan->reach[buffer].low == plan->reach[buffer].high;
    bool aligned = (uintptr_t)data % og_dtype_bytes(at->dtype) == 0;
    if ((data || empty) && aligned)
        return OGIVE_OK;
    bool output = at->kind == OG_BUFFER_OUTPUT;
    char number[16];
    snprintf(number, sizeof number, "%d", (int)at->index);
    const char *name = output ? number : plan->names[at->index];
    if (aligned)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "the data of %s '%s' is NULL",
                output ? "output" : "input", name);
    OG_FAIL(error, OGIVE_ARGUMENT, -1, "the data of %s '%s' is not aligned to its %s elements",
            output ? "output" : "input", name, og_dtype_name(at->dtype));
}

static ogive_status check_packed_pointer(const ogive_plan *plan, int32_t input, const void *packed,
                                         ogive_error *error)
{
    if (packed && (uintptr_t)packed % 64 == 0)
        return OGIVE_OK;
    OG_FAIL(error, OGIVE_ARGUMENT, -1, "packed input '%s': expected %zu bytes aligned to 64",
            plan->names[input], plan->packed[input]);
}

/* Does a tensor of the plan share memory with a packed input? */
static bool overlaps_packed(const ogive_plan *plan, int32_t buffer, const void *data, int32_t input,
                            const void *packed)
{
    size_t bytes = plan->packed[input];
    og_buffer memory = {.dtype = OG_FLOAT16, .rank = 1, .stride = {1}};
    og_reach reach = {0, (int64_t)bytes};
    memory.shape[0] = (int64_t)(bytes / og_dtype_bytes(memory.dtype));
    return og_tensors_overlap(&plan->plan.buffers[buffer], &plan->reach[buffer], data, &memory,
                              &reach, packed);
}

/* Refuses outputs that overlap what they must not; *aliased if one is an input. */
static ogive_status check_overlaps(const ogive_plan *plan, const void *const *inputs,
                                   void *const *outputs, bool *aliased, ogive_error *error)
{
    const og_plan *of = &plan->plan;
    *aliased = false;
    for (int32_t o = 0; o < of->output_count; o++) {
        int32_t at = of->input_count + o;
        for (int32_t i = 0; i < of->input_count; i++) {
            if (plan->packed[i] && overlaps_packed(plan, at, outputs[o], i, inputs[i]))
                OG_FAIL(error, OGIVE_ARGUMENT, -1, "output '%d' overlaps packed input '%s'", (int)o,
                        plan->names[i]);
            if (plan->packed[i] ||
                !og_tensors_overlap(&of->buffers[at], &plan->reach[at], outputs[o], &of->buffers[i],
                                    &plan->reach[i], inputs[i]))
                continue;
            if (outputs[o] != inputs[i] || !of->may_alias[o * of->input_count + i])
                OG_FAIL(error, OGIVE_ARGUMENT, -1,
                        "output '%d' overlaps input '%s': in place needs every read of it at the "
                        "index being written, with the same shape, strides and dtype",
                        (int)o, plan->names[i]);
            *aliased = true;
        }
        for (int32_t other = 0; other < o; other++)
            if (og_tensors_overlap(&of->buffers[at], &plan->reach[at], outputs[o],
                                   &of->buffers[of->input_count + other],
                                   &plan->reach[of->input_count + other], outputs[other]))
                OG_FAIL(error, OGIVE_ARGUMENT, -1, "outputs '%d' and '%d' overlap", (int)other,
                        (int)o);
    }
    return OGIVE_OK;
}

ogive_status ogive_plan_run(const ogive_plan *plan, const void *const *inputs, void *const *outputs,
                            void *workspace, void *stream, ogive_error *error)
{
    og_error_clear(error);
    if (!plan || (!inputs && plan->plan.input_count) || !outputs)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "%s is NULL",
                !plan     ? "plan"
                : !inputs ? "inputs"
                          : "outputs");
    if (stream && !plan->backend->has_streams)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "stream must be NULL for a plan on the CPU");
    if ((!workspace && plan->workspace_bytes) || (uintptr_t)workspace % 64 != 0)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "workspace: expected %zu bytes aligned to 64",
                plan->workspace_bytes);
    for (int32_t i = 0; i < plan->plan.input_count; i++)
        OG_TRY((plan->packed[i] ? check_packed_pointer : check_pointer)(plan, i, inputs[i], error));
    for (int32_t o = 0; o < plan->plan.output_count; o++)
        OG_TRY(check_pointer(plan, plan->plan.input_count + o, outputs[o], error));
    bool aliased;
    OG_TRY(check_overlaps(plan, inputs, outputs, &aliased, error));
    return plan->backend->run(&plan->plan, plan->state, inputs, outputs, workspace, stream, aliased,
                              error);
}

/* ---- packing ------------------------------------------------------------------- */

size_t ogive_plan_packed_bytes(const ogive_plan *plan, size_t input)
{
    return plan && input < (size_t)plan->plan.input_count ? plan->packed[input] : 0;
}

ogive_status ogive_plan_pack(const ogive_plan *plan, size_t input, const void *data, void *packed,
                             ogive_error *error)
{
    og_error_clear(error);
    if (!plan)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "plan is NULL");
    if (!ogive_plan_packed_bytes(plan, input))
        OG_FAIL(error, OGIVE_ARGUMENT, -1,
                "input %zu is not packed: the plan's options.packed did not ask for it", input);
    int32_t index = (int32_t)input;
    OG_TRY(check_pointer(plan, index, data, error));
    OG_TRY(check_packed_pointer(plan, index, packed, error));
    if (overlaps_packed(plan, index, data, index, packed))
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "input '%s' overlaps the memory it is packed into",
                plan->names[input]);
    plan->backend->pack(&plan->plan, plan->state, index, data, packed);
    return OGIVE_OK;
}

/* ---- looking inside -------------------------------------------------------------- */

size_t ogive_plan_kernel_count(const ogive_plan *plan)
{
    return plan ? (size_t)plan->plan.kernel_count : 0;
}

ogive_status ogive_plan_kernel(const ogive_plan *plan, size_t index, ogive_kernel_info *info,
                               ogive_error *error)
{
    og_error_clear(error);
    if (!plan || !info || index >= ogive_plan_kernel_count(plan))
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "kernel %zu: the plan has %zu, and info must be given",
                index, ogive_plan_kernel_count(plan));
    const og_kernel *kernel = &plan->plan.kernels[index];
    memset(info, 0, sizeof *info);
    og_kernel_name(kernel, info->name);
    info->bytes_read = kernel->bytes_read;
    info->bytes_written = kernel->bytes_written;
    info->elements = og_space_count(&kernel->space, false);
    info->passes = kernel->pass_count;
    info->operations = og_kernel_operations(kernel);
    info->slides = kernel->slides;
    info->threads = plan->backend->threads(&plan->plan, plan->state, (int32_t)index);
    if (plan->backend->multiply_seconds)
        info->multiply_seconds =
            plan->backend->multiply_seconds(&plan->plan, plan->state, (int32_t)index);
    return OGIVE_OK;
}

static bool has_fold(const og_kernel *kernel, og_fold fold)
{
    for (int32_t p = 0; p < kernel->pass_count; p++)
        for (int32_t r = 0; r < kernel->passes[p].reduction_count; r++)
            if (og_op_fold(kernel->passes[p].reductions[r].op) == fold)
                return true;
    return false;
}

ogive_status ogive_plan_sums(const ogive_plan *plan, size_t index, ogive_sums *sums,
                             ogive_error *error)
{
    og_error_clear(error);
    if (!plan || !sums || index >= ogive_plan_kernel_count(plan))
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "kernel %zu: the plan has %zu, and sums must be given",
                index, ogive_plan_kernel_count(plan));
    if (sums->size != sizeof *sums)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "sums.size is %zu: expected sizeof(ogive_sums), %zu",
                sums->size, sizeof *sums);
    const og_kernel *kernel = &plan->plan.kernels[index];
    const og_space *space = &kernel->space;
    *sums = (ogive_sums){.size = sizeof *sums, .lead = -1, .products = kernel->product_count};
    if (kernel->product_count)
        sums->k = og_kernel_convolves(kernel) ? -1 : kernel->products[0].k;
    sums->exponentials = has_fold(kernel, OG_FOLD_SUMEXP) || has_fold(kernel, OG_FOLD_SQDEV);
    if (!sums->exponentials && !has_fold(kernel, OG_FOLD_SUM))
        return OGIVE_OK;
    sums->order = kernel->product_count         ? OGIVE_ORDER_BEHIND
                  : kernel->order == OG_COLUMNS ? OGIVE_ORDER_COLUMNS
                                                : OGIVE_ORDER_ROWS;
    sums->lead = og_lead_input(&plan->plan, kernel);
    sums->reduced = space->n_reduced;
    memcpy(sums->extent, space->extent + space->rank - space->n_reduced,
           (size_t)space->n_reduced * sizeof *sums->extent);
    return OGIVE_OK;
}

size_t og_copy_text(const char *text, size_t length, char *buffer, size_t capacity)
{
    if (capacity) {
        size_t kept = length < capacity ? length : capacity - 1;
        if (kept)
            memcpy(buffer, text, kept);
        buffer[kept] = 0;
    }
    return length;
}

/* Copies text as og_copy_text() does, and ends it; nothing of one that memory ran out for. */
static size_t hand_out(og_text *text, char *buffer, size_t capacity)
{
    size_t length = og_copy_text(text->data, text->failed ? 0 : text->length, buffer, capacity);
    og_text_free(text);
    return length;
}

size_t ogive_plan_explain(const ogive_plan *plan, char *buffer, size_t capacity)
{
    og_text text = {0};
    fenv_t state; /* digits of numbers depend on the rounding mode */
    og_float_state_enter(&state);
    for (int32_t k = 0; plan && k < plan->plan.kernel_count; k++) {
        const og_kernel *kernel = &plan->plan.kernels[k];
        og_kernel_print(&plan->plan, k, plan->names, &text);
        og_text_add(&text, "  must read %lld bytes and write %lld\n", (long long)kernel->bytes_read,
                    (long long)kernel->bytes_written);
        og_text_add(&text, "  ");
        plan->backend->explain(&plan->plan, plan->state, k, &text);
        og_text_add(&text, "\n");
    }
    og_float_state_leave(&state);
    return hand_out(&text, buffer, capacity);
}

size_t ogive_plan_source(const ogive_plan *plan, size_t kernel, char *buffer, size_t capacity)
{
    og_text text = {0};
    if (kernel < ogive_plan_kernel_count(plan) && plan->backend->source)
        plan->backend->source(&plan->plan, plan->state, (int32_t)kernel, &text);
    return hand_out(&text, buffer, capacity);
}

ogive_status ogive_plan_warm(const ogive_plan *plan, ogive_warm_info *info, ogive_error *error)
{
    ogive_warm_info unused;
    og_error_clear(error);
    info = info ? info : &unused;
    memset(info, 0, sizeof *info);
    if (!plan)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "plan is NULL");
    if (!plan->backend->warm)
        return OGIVE_OK; /* the CPU compiles nothing */
    return plan->backend->warm(&plan->plan, plan->state, info, error);
}
