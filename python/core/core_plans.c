/* SPDX-License-Identifier: MIT
 *
 * core_plans.c - a formula's recent plans, found by the layouts of its tensors, and
 * their workspaces. ogive_run() has such a cache too, but wants its outputs given:
 * here their shapes come from the plan. The GIL, or the formula's lock, guards it.
 */
#include <stdlib.h>
#include <string.h>

#include "core.h"

enum {
    KEY_WORDS = 160,        /* keys up to this size need no allocation */
    STACK_WORKSPACE = 8192, /* bytes of workspace taken from the stack */
    SPARE_BYTES = 8 << 20,  /* larger workspaces are not kept between calls */
    SPARES = 8,             /* plans of a formula that keep one */
    LONG_RUN = 16384        /* elements computed, read and written from which on a run
                                releases the GIL: some 2 us, handing it over costs 0.1 */
};

/* ---- keys -------------------------------------------------------------------------- */

static size_t key_words(const core_operand *operands, Py_ssize_t count)
{
    size_t words = 0;
    for (Py_ssize_t i = 0; i < count; i++)
        words += 3 + 2 * (size_t)(operands[i].view.ndim > 0 ? operands[i].view.ndim : 0);
    return words;
}

static int64_t *add_layouts(int64_t *word, const core_operand *operands, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        const DLTensor *view = &operands[i].view;
        *word++ = (int64_t)view->device.device_type << 32 | (uint32_t)view->device.device_id;
        *word++ =
            (int64_t)view->dtype.code << 32 | (int64_t)view->dtype.bits << 16 | view->dtype.lanes;
        *word++ = (int64_t)view->ndim * 2 + (view->strides != NULL);
        for (int32_t d = 0; d < view->ndim; d++) {
            *word++ = view->shape[d];
            *word++ = view->strides ? view->strides[d] : 0;
        }
    }
    return word;
}

/* ---- plans ------------------------------------------------------------------------- */

static void end_plan(core_plan *plan)
{
    ogive_plan_release(plan->plan);
    free(plan->words);
    free(plan->spare);
    *plan = (core_plan){0};
}

void core_plans_clear(core_formula *self)
{
    for (int i = 0; i < CORE_PLANS; i++)
        end_plan(&self->plans[i]);
}

static bool is_long(const ogive_plan *plan)
{
    int64_t work = 0;
    ogive_kernel_info info;
    for (size_t i = 0; i < ogive_plan_kernel_count(plan) && work < LONG_RUN; i++)
        if (ogive_plan_kernel(plan, i, &info, NULL) == OGIVE_OK)
            work += info.bytes_read / 4 + info.bytes_written / 4 + info.elements;
    return work >= LONG_RUN;
}

static const DLTensor **point_at(core_operand *operands, Py_ssize_t count,
                                 const DLTensor **pointers)
{
    for (Py_ssize_t i = 0; i < count; i++)
        pointers[i] = &operands[i].view;
    return pointers;
}

static int make_plan(core_formula *self, core_operand *inputs, Py_ssize_t input_count,
                     core_operand *outputs, Py_ssize_t output_count, ogive_plan **plan)
{
    Py_ssize_t count = input_count + output_count;
    const DLTensor **pointers = PyMem_Malloc((size_t)count * sizeof *pointers);
    if (!pointers) {
        PyErr_NoMemory();
        return -1;
    }
    point_at(inputs, input_count, pointers);
    point_at(outputs, output_count, pointers + input_count);
    bool strict = PyUnicode_CompareWithASCIIString(self->precision, "strict") == 0;
    bool tf32 = PyUnicode_CompareWithASCIIString(self->precision, "tf32") == 0;
    ogive_options options = {.size = sizeof options,
                             .precision = strict ? OGIVE_STRICT
                                          : tf32 ? OGIVE_TF32
                                                 : OGIVE_FLOAT32};
    ogive_error error;
    ogive_status status;
    Py_BEGIN_ALLOW_THREADS status = ogive_plan_create(self->formula, pointers, (size_t)input_count,
                                                      outputs ? pointers + input_count : NULL,
                                                      (size_t)output_count, &options, plan, &error);
    Py_END_ALLOW_THREADS PyMem_Free(pointers);
    if (status == OGIVE_OK)
        return 0;
    core_raise(&error, self->text);
    return -1;
}

/* Puts a plan, which was at index i, in front of the others. The first few keep an idle
 * workspace. */
static void put_first(core_formula *self, int i, core_plan plan)
{
    memmove(&self->plans[1], &self->plans[0], (size_t)i * sizeof plan);
    self->plans[0] = plan;
    free(self->plans[SPARES].spare);
    self->plans[SPARES].spare = NULL;
}

/* Finds the plan of a key and puts it in front of the others; false if there is none. The caller
 * gets a reference: another thread may push the plan out meanwhile. */
static bool find_kept(core_formula *self, const int64_t *words, Py_ssize_t count, core_plan *out)
{
    bool found = false;
    CORE_LOCK(&self->lock);
    for (int i = 0; i < CORE_PLANS && self->plans[i].plan && !found; i++) {
        core_plan plan = self->plans[i];
        found =
            plan.count == count && memcmp(plan.words, words, (size_t)count * sizeof *words) == 0;
        if (found && i > 0)
            put_first(self, i, plan);
    }
    if (found) {
        *out = self->plans[0];
        ogive_plan_retain(out->plan);
    }
    CORE_UNLOCK(&self->lock);
    return found;
}

/* Puts a plan in front of the others; the oldest goes. Takes words over; the caller gets a
 * reference. */
static void remember(core_formula *self, int64_t *words, Py_ssize_t count, ogive_plan *plan,
                     core_plan *out)
{
    *out = (core_plan){.words = words, .count = count, .plan = plan, .is_long = is_long(plan)};
    ogive_plan_retain(plan);
    CORE_LOCK(&self->lock);
    core_plan oldest = self->plans[CORE_PLANS - 1];
    self->plans[CORE_PLANS - 1] = (core_plan){0};
    put_first(self, CORE_PLANS - 1, *out);
    CORE_UNLOCK(&self->lock);
    end_plan(&oldest);
}

int core_plan_find(core_formula *self, core_operand *inputs, Py_ssize_t input_count,
                   core_operand *outputs, Py_ssize_t output_count, core_plan *out)
{
    int64_t few[KEY_WORDS], *words = few;
    size_t room = key_words(inputs, input_count) + key_words(outputs, output_count) + 1;
    if (room > KEY_WORDS && !(words = malloc(room * sizeof *words))) {
        PyErr_NoMemory();
        return -1;
    }
    words[0] = outputs != NULL;
    int64_t *end = add_layouts(words + 1, inputs, input_count);
    Py_ssize_t count = add_layouts(end, outputs, output_count) - words;
    size_t bytes = (size_t)count * sizeof *words;
    int status = 0;
    if (find_kept(self, words, count, out))
        goto done;
    ogive_plan *plan = NULL;
    int64_t *kept = malloc(bytes);
    if (!kept || make_plan(self, inputs, input_count, outputs, output_count, &plan)) {
        if (!kept)
            PyErr_NoMemory();
        free(kept);
        status = -1;
        goto done;
    }
    memcpy(kept, words, bytes);
    remember(self, kept, count, plan, out);
done:
    if (words != few)
        free(words);
    return status;
}

/* ---- runs -------------------------------------------------------------------------- */

/* A workspace on the CPU: the plan's idle one, or a new one. */
static void *take_workspace(core_formula *self, const ogive_plan *plan, size_t bytes)
{
    void *spare = NULL;
    CORE_LOCK(&self->lock);
    for (int i = 0; i < CORE_PLANS && !spare; i++)
        if (self->plans[i].plan == plan) {
            spare = self->plans[i].spare;
            self->plans[i].spare = NULL;
        }
    CORE_UNLOCK(&self->lock);
    return spare ? spare : aligned_alloc(64, (bytes + 63) & ~(size_t)63);
}

static void keep_workspace(core_formula *self, const ogive_plan *plan, size_t bytes,
                           void *workspace)
{
    CORE_LOCK(&self->lock);
    for (int i = 0; i < SPARES && bytes <= SPARE_BYTES && workspace; i++)
        if (self->plans[i].plan == plan && !self->plans[i].spare) {
            self->plans[i].spare = workspace;
            workspace = NULL;
        }
    CORE_UNLOCK(&self->lock);
    free(workspace);
}

static ogive_status run(const core_plan *plan, const void *const *data, Py_ssize_t input_count,
                        void *workspace, void *stream, ogive_error *error)
{
    if (!plan->is_long)
        return ogive_plan_run(plan->plan, data, (void *const *)(data + input_count), workspace,
                              stream, error);
    ogive_status status;
    Py_BEGIN_ALLOW_THREADS status = ogive_plan_run(
        plan->plan, data, (void *const *)(data + input_count), workspace, stream, error);
    Py_END_ALLOW_THREADS return status;
}

static ogive_status run_on_cpu(core_formula *self, const core_plan *plan, const void *const *data,
                               Py_ssize_t input_count, ogive_error *error)
{
    size_t bytes = ogive_plan_workspace(plan->plan);
    if (bytes <= STACK_WORKSPACE) {
        _Alignas(64) char stack[STACK_WORKSPACE];
        return run(plan, data, input_count, stack, NULL, error);
    }
    void *workspace = take_workspace(self, plan->plan, bytes);
    if (!workspace) {
        *error = (ogive_error){.status = OGIVE_MEMORY, .offset = -1};
        snprintf(error->message, sizeof error->message, "no memory for a workspace of %zu bytes",
                 bytes);
        return OGIVE_MEMORY;
    }
    ogive_status status = run(plan, data, input_count, workspace, NULL, error);
    keep_workspace(self, plan->plan, bytes, workspace);
    return status;
}

/* The workspace is a tensor of the framework, so that its allocator keeps it alive
 * until the stream is done with it. */
static int run_on_device(const core_plan *plan, const void *const *data, Py_ssize_t input_count,
                         const core_operand *model, ogive_status *status, ogive_error *error)
{
    int64_t shape[1] = {((int64_t)ogive_plan_workspace(plan->plan) + 7) / 8};
    DLTensor prototype = {.dtype = {kDLFloat, 64, 1}, .ndim = 1, .shape = shape};
    core_operand workspace = {0};
    void *stream;
    if (core_stream(model, &stream))
        return -1;
    if (shape[0] && core_allocate(&prototype, model, &workspace))
        return -1;
    *status = run(plan, data, input_count, core_data(&workspace.view), stream, error);
    core_release(&workspace, 1);
    Py_XDECREF(workspace.object);
    return 0;
}

int core_plan_run(core_formula *self, const core_plan *plan, core_operand *inputs,
                  Py_ssize_t input_count, core_operand *outputs, Py_ssize_t output_count,
                  const core_operand *model)
{
    const void *few[32], **data = few;
    Py_ssize_t count = input_count + output_count;
    if (count > 32 && !(data = PyMem_Malloc((size_t)count * sizeof *data))) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        data[i] = core_data(i < input_count ? &inputs[i].view : &outputs[i - input_count].view);
    ogive_error error;
    ogive_status status = OGIVE_OK;
    int failed = 0;
    if ((int)model->view.device.device_type == kDLCUDA)
        failed = run_on_device(plan, data, input_count, model, &status, &error);
    else
        status = run_on_cpu(self, plan, data, input_count, &error);
    if (data != few)
        PyMem_Free(data);
    if (failed)
        return -1;
    if (status != OGIVE_OK) {
        core_raise(&error, self->text);
        return -1;
    }
    return 0;
}
