/* SPDX-License-Identifier: MIT
 *
 * cuda_backend.c - an NVIDIA GPU as a backend of the plan. Preparing emits every kernel,
 * has it compiled and loaded; a run fills pointers into arguments and launches.
 */
#include "base/embedded.h"
#include "cuda/host/cuda_cache.h"
#include "cuda/emit/cuda_choose.h"
#include "cuda/host/cuda_floor.h"
#include "cuda/host/cuda_module.h"
#include "plan/backend.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    og_cuda_work work;
    og_cuda_entry *entries;       /* [work.launch_count] */
    const og_cuda_module *module; /* NULL: nothing is launched */
} prepared;

typedef struct {
    og_arena arena;
    const og_cuda_device *device; /* NULL: planned for a GPU that need not be there */
    og_placement placement;
    og_cuda_limits limits;
    og_cuda_wishes wishes;
    const char *like;      /* the GPU that limits are of, without a device */
    prepared *kernels;     /* [kernel_count] */
    size_t scratch_offset; /* in the workspace; kernels share it, they run one by one */
    size_t workspace_bytes;
    int32_t *used; /* buffers of the caller that kernels read or write */
    int32_t used_count;
} state;

static void release(void *opaque)
{
    state *s = opaque;
    og_arena_free(&s->arena);
    free(s);
}

/* ---- preparing ---------------------------------------------------------------------- */

static ogive_status emit_kernels(const og_plan *plan, state *s, ogive_error *error)
{
    size_t count = (size_t)plan->kernel_count, scratch = 0;
    s->kernels = OG_ARENA_NEW(&s->arena, prepared, count);
    s->used = OG_ARENA_NEW(&s->arena, int32_t, (size_t)plan->buffer_count);
    if (!s->kernels || !s->used)
        return og_fail_memory(error, count * sizeof *s->kernels);
    for (size_t i = 0; i < count; i++) {
        prepared *k = &s->kernels[i];
        OG_TRY(og_cuda_emit(plan, (int32_t)i, &s->limits, &s->wishes, &s->arena, &k->work, error));
        k->entries = OG_ARENA_NEW(&s->arena, og_cuda_entry, (size_t)k->work.launch_count);
        if (!k->entries)
            return og_fail_memory(error, (size_t)k->work.launch_count * sizeof *k->entries);
        scratch = k->work.scratch_bytes > scratch ? k->work.scratch_bytes : scratch;
    }
    size_t temporaries = plan->temporary_bytes, rounded;
    if (!og_add_size(temporaries, 63, &rounded) ||
        !og_add_size(rounded & ~(size_t)63, scratch, &s->workspace_bytes))
        OG_FAIL(error, OGIVE_MEMORY, -1, "the workspace is larger than any memory");
    s->scratch_offset = rounded & ~(size_t)63;
    if (scratch == 0)
        s->workspace_bytes = temporaries;
    return OGIVE_OK;
}

/* Of a tensor without elements any pointer will do. */
static bool is_empty(const og_buffer *buffer)
{
    for (int32_t d = 0; d < buffer->rank; d++)
        if (buffer->shape[d] == 0)
            return true;
    return false;
}

static void mark_used(const og_plan *plan, state *s, int32_t buffer, bool *seen)
{
    if (buffer < 0 || seen[buffer] || is_empty(&plan->buffers[buffer]) ||
        plan->buffers[buffer].kind == OG_BUFFER_TEMPORARY)
        return;
    seen[buffer] = true;
    s->used[s->used_count++] = buffer;
}

/* Which of the caller's pointers kernels use: those are checked in each run. */
static ogive_status find_used(const og_plan *plan, state *s, ogive_error *error)
{
    bool *seen = OG_ARENA_NEW(&s->arena, bool, (size_t)plan->buffer_count + 1);
    if (!seen)
        return og_fail_memory(error, (size_t)plan->buffer_count);
    for (int32_t i = 0; i < plan->kernel_count; i++)
        for (int32_t l = 0; l < s->kernels[i].work.launch_count; l++) {
            const og_cuda_launch *launch = &s->kernels[i].work.launches[l];
            for (int32_t p = 0; p < launch->pointer_count; p++)
                mark_used(plan, s, launch->pointers[p].buffer, seen);
            for (int32_t m = 0; m < launch->map_count; m++)
                mark_used(plan, s, launch->maps[m].buffer, seen);
        }
    return OGIVE_OK;
}

static ogive_status load_kernels(const og_plan *plan, state *s, ogive_error *error)
{
    for (int32_t i = 0; i < plan->kernel_count; i++) {
        prepared *k = &s->kernels[i];
        if (k->work.launch_count == 0)
            continue;
        OG_TRY(og_cuda_load(s->device, k->work.source, &k->module, error));
        for (int32_t l = 0; l < k->work.launch_count; l++) {
            const og_cuda_launch *launch = &k->work.launches[l];
            OG_TRY(og_cuda_find_entry(k->module, launch->entry, launch->shared_bytes,
                                      &k->entries[l], error));
        }
    }
    return OGIVE_OK;
}

/* A GPU that is there, or one that options describe. */
static ogive_status choose_device(const ogive_options *options, state *s, ogive_error *error)
{
    const char *arch = options ? options->cuda_arch : NULL;
    if (!arch) {
        OG_TRY(og_cuda_find_device(s->placement.device.device_id, &s->device, error));
        s->limits = s->device->limits;
        return OGIVE_OK;
    }
    int32_t number = og_cuda_read_arch(arch);
    if (number < 70)
        OG_FAIL(error, OGIVE_ARGUMENT, -1,
                "architecture '%s' (options.cuda_arch) is not known: expected one such as 80, 90a "
                "or sm_100",
                arch);
    og_cuda_assume_limits(number, &s->limits, &s->like);
    return OGIVE_OK;
}

/* OGIVE_PRODUCT and OGIVE_TILE, for experiments. */
static ogive_status read_wishes(const ogive_options *options, og_cuda_wishes *out,
                                ogive_error *error)
{
    static const char *const names[] = {
        [OG_CUDA_CORES] = "cores", [OG_CUDA_MMA] = "mma", [OG_CUDA_WGMMA] = "sm90"};
    const char *units = getenv("OGIVE_PRODUCT"), *tile = getenv("OGIVE_TILE");
    *out = (og_cuda_wishes){.strict = options && options->precision == OGIVE_STRICT,
                            .tf32 = options && options->precision == OGIVE_TF32};
    for (int i = OG_CUDA_CORES; units && i <= OG_CUDA_WGMMA; i++)
        if (strcmp(units, names[i]) == 0)
            out->units = (og_cuda_units)i;
    if (units && *units && !out->units)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "OGIVE_PRODUCT is '%.40s': expected cores, mma or sm90",
                units);
    if (tile && *tile && !og_cuda_read_half_tile(tile, &out->tile))
        OG_FAIL(error, OGIVE_ARGUMENT, -1,
                "OGIVE_TILE is '%.40s': expected 64 or 128 rows and 64, 128 or 256 columns, such "
                "as 64x128, 128x256w, 128x256x or 128x128a",
                tile);
    return OGIVE_OK;
}

/* What emission chooses by. Whatever is wrong here, prepare() finds and tells. */
static bool see_limits(const og_placement *placement, const ogive_options *options, state *s)
{
    *s = (state){.placement = *placement};
    return choose_device(options, s, NULL) == OGIVE_OK &&
           read_wishes(options, &s->wishes, NULL) == OGIVE_OK;
}

static bool takes_two(const og_kernel *kernel, const og_placement *placement,
                      const ogive_options *options)
{
    state s;
    return see_limits(placement, options, &s) &&
           og_cuda_takes_two(kernel, &s.limits, &s.wishes);
}

static bool takes_phases(const og_kernel *kernel, const og_placement *placement,
                         const ogive_options *options)
{
    state s;
    return see_limits(placement, options, &s) &&
           og_cuda_takes_phases(kernel, &s.limits, &s.wishes);
}

static ogive_status prepare_state(const og_plan *plan, const ogive_options *options, state *s,
                                  ogive_error *error)
{
    OG_TRY(choose_device(options, s, error));
    OG_TRY(read_wishes(options, &s->wishes, error));
    if (s->wishes.tf32 && s->limits.arch < 80 && og_plan_has_products(plan))
        OG_FAIL(error, OGIVE_UNSUPPORTED, -1,
                "the precision is tf32, but the GPU is sm_%d: expected sm_80 or later",
                (int)s->limits.arch);
    OG_TRY(emit_kernels(plan, s, error));
    OG_TRY(find_used(plan, s, error));
    if (!s->device)
        return OGIVE_OK;
    int mode;
    OG_TRY(og_cuda_enter_relaxed(s->device, &mode, error));
    return og_cuda_leave_relaxed(s->device, mode, load_kernels(plan, s, error), error);
}

static ogive_status prepare(const og_plan *plan, const og_placement *placement,
                            const ogive_options *options, void **out, size_t *workspace_bytes,
                            ogive_error *error)
{
    *out = NULL;
    state *s = calloc(1, sizeof *s);
    if (!s)
        return og_fail_memory(error, sizeof *s);
    s->placement = *placement;
    ogive_status status = prepare_state(plan, options, s, error);
    if (status != OGIVE_OK) {
        release(s);
        return status;
    }
    *workspace_bytes = s->workspace_bytes;
    *out = s;
    return OGIVE_OK;
}

/* ---- running ------------------------------------------------------------------------ */

/* What the driver knows of an address; memory_type 0: nothing, it is the process's. */
typedef struct {
    unsigned memory_type; /* CUmemorytype: 1 host, 2 device */
    int device;
    unsigned is_managed; /* the driver writes a byte or an int */
} pointer_facts;

static ogive_status ask_pointer(const state *s, const void *data, pointer_facts *out,
                                ogive_error *error)
{
    enum { MEMORY_TYPE = 2, IS_MANAGED = 8, DEVICE_ORDINAL = 9 }; /* CUpointer_attribute */
    int attributes[] = {MEMORY_TYPE, DEVICE_ORDINAL, IS_MANAGED};
    void *values[] = {&out->memory_type, &out->device, &out->is_managed};
    *out = (pointer_facts){.device = s->device->index};
    OG_CUDA_TRY(s->device, error, cuPointerGetAttributes, 3, attributes, values,
                (og_cu_address)(uintptr_t)data);
    return OGIVE_OK;
}

/* "the data of input 'x'" */
static const char *name_buffer(const state *s, const og_buffer *buffer, char name[100])
{
    if (!buffer)
        snprintf(name, 100, "the workspace");
    else if (buffer->kind == OG_BUFFER_INPUT)
        snprintf(name, 100, "the data of input '%.60s'", s->placement.input_names[buffer->index]);
    else
        snprintf(name, 100, "the data of output '%d'", (int)buffer->index);
    return name;
}

static bool is_capturing(og_cu_stream *stream)
{
    int status = 0; /* CU_STREAM_CAPTURE_STATUS_NONE */
    return og_cuda_driver()->call.cuStreamIsCapturing(stream, &status) == 0 && status != 0;
}

/* A kernel that follows a wrong pointer ends the context, and with it the process's
 * CUDA, so each run asks. Pinned host memory may be read by every device. Other host
 * memory is refused also where a GPU could fault it in, page by page: a tensor that says
 * it is on a device is meant to be. While a graph is captured, memory that the graph will
 * allocate may not be known yet. */
static ogive_status check_pointer(const state *s, const og_buffer *buffer, const void *data,
                                  og_cu_stream *stream, ogive_error *error)
{
    pointer_facts facts;
    char name[100];
    OG_TRY(ask_pointer(s, data, &facts, error));
    if (facts.memory_type == 0 && !is_capturing(stream))
        OG_FAIL(error, OGIVE_ARGUMENT, -1,
                "%s (%p) is ordinary host memory, or freed: expected memory of CUDA device %d",
                name_buffer(s, buffer, name), data, (int)s->device->index);
    if (facts.memory_type == 2 && !(facts.is_managed & 0xff) && facts.device != s->device->index)
        OG_FAIL(error, OGIVE_ARGUMENT, -1,
                "%s (%p) is memory of CUDA device %d: expected CUDA device %d",
                name_buffer(s, buffer, name), data, facts.device, (int)s->device->index);
    return OGIVE_OK;
}

typedef struct {
    const void *const *inputs;
    void *const *outputs;
    void *workspace;
    og_cu_stream *stream;
} run_memory;

static ogive_status check_pointers(const og_plan *plan, const state *s, const run_memory *memory,
                                   ogive_error *error)
{
    for (int32_t u = 0; u < s->used_count; u++) {
        const og_buffer *buffer = &plan->buffers[s->used[u]];
        const void *data = buffer->kind == OG_BUFFER_INPUT ? memory->inputs[buffer->index]
                                                           : memory->outputs[buffer->index];
        OG_TRY(check_pointer(s, buffer, data, memory->stream, error));
    }
    if (s->workspace_bytes)
        OG_TRY(check_pointer(s, NULL, memory->workspace, memory->stream, error));
    return OGIVE_OK;
}

static ogive_status fail_launch(int result, const state *s, const og_cuda_launch *launch,
                                const og_cu_stream *stream, ogive_error *error)
{
    if (result == OG_CUDA_INVALID_HANDLE && stream) /* the default one is every device's */
        OG_FAIL(error, OGIVE_ARGUMENT, -1,
                "stream is no stream of CUDA device %d, where the plan's tensors are "
                "(cuLaunchKernel: CUDA_ERROR_INVALID_HANDLE)",
                (int)s->device->index);
    char what[160];
    snprintf(what, sizeof what, "cuLaunchKernel of %.40s, %u x %u x %u blocks of %u threads",
             launch->entry, launch->grid[0], launch->grid[1], launch->grid[2],
             launch->block[0] * launch->block[1] * launch->block[2]);
    return og_cuda_fail(result, what, s->device, error);
}

/* Where a buffer is, or the scratch. */
static uint64_t address_of(const og_plan *plan, const state *s, int32_t buffer,
                           const run_memory *memory)
{
    if (buffer == OG_CUDA_SCRATCH)
        return (uintptr_t)memory->workspace + s->scratch_offset;
    const og_buffer *at = &plan->buffers[buffer];
    if (at->kind == OG_BUFFER_INPUT)
        return (uintptr_t)memory->inputs[at->index];
    if (at->kind == OG_BUFFER_OUTPUT)
        return (uintptr_t)memory->outputs[at->index];
    return (uintptr_t)memory->workspace + at->offset;
}

static bool is_aligned(const og_plan *plan, const state *s, const og_cuda_map *map,
                       const run_memory *memory)
{
    return (map->offset + address_of(plan, s, map->buffer, memory)) % 16 == 0;
}

/* Is the launch to be left out? The addresses of its maps decide. */
static bool is_left_out(const og_plan *plan, const state *s, const og_cuda_launch *l,
                        const run_memory *memory)
{
    bool mapped = true, copied = false;
    for (int32_t m = 0; m < l->map_count; m++) {
        bool aligned = is_aligned(plan, s, &l->maps[m], memory);
        mapped &= aligned || l->maps[m].may_copy;
        copied |= !aligned && l->maps[m].may_copy;
    }
    switch (l->when) {
    case OG_CUDA_IF_MAPPED:
        return !mapped;
    case OG_CUDA_IF_UNMAPPED:
        return mapped;
    case OG_CUDA_IF_COPIED:
        return !copied;
    default:
        return false;
    }
}

static ogive_status make_map(const og_plan *plan, const state *s, const og_cuda_map *map,
                             const run_memory *memory, unsigned char *argument, ogive_error *error)
{
    enum { FLOAT16 = 6, FLOAT32 = 7 };                       /* CUtensorMapDataType */
    enum { PROMOTION_128 = 2, PROMOTION_256 = 3, NONE = 0 }; /* CUtensorMap... */
    enum { SWIZZLE_32 = 1, SWIZZLE_64, SWIZZLE_128 };
    bool copied = map->may_copy && !is_aligned(plan, s, map, memory);
    uint64_t address = copied ? map->copy_offset + address_of(plan, s, OG_CUDA_SCRATCH, memory)
                              : map->offset + address_of(plan, s, map->buffer, memory);
    int64_t pitch = copied ? map->copy_pitch_bytes : map->pitch_bytes;
    int64_t slab = copied ? pitch * map->rows : map->slab_bytes;
    const uint64_t extents[] = {(uint64_t)map->columns, (uint64_t)map->rows, (uint64_t)map->depth,
                                (uint64_t)map->more_extent[0], (uint64_t)map->more_extent[1]};
    const uint64_t pitches[] = {(uint64_t)pitch, (uint64_t)slab, (uint64_t)map->more_bytes[0],
                                (uint64_t)map->more_bytes[1]};
    const uint32_t steps[] = {1, (uint32_t)map->rows_between + 1, (uint32_t)map->depth_between + 1,
                              (uint32_t)map->more_between + 1, 1};
    const uint32_t box[] = {(uint32_t)map->box_columns, (uint32_t)map->box_rows * steps[1],
                            (uint32_t)map->box_depth * steps[2], (uint32_t)map->more_box * steps[3],
                            map->last_box ? (uint32_t)map->last_box : 1};
    const int swizzle = map->is_plain              ? NONE
                        : map->swizzle_bytes == 32 ? SWIZZLE_32
                        : map->swizzle_bytes == 64 ? SWIZZLE_64
                                                   : SWIZZLE_128;
    if (address % 16)
        return OGIVE_OK;
    if (!og_cuda_driver()->call.cuTensorMapEncodeTiled)
        OG_FAIL(error, OGIVE_DEVICE, -1,
                "the driver has no cuTensorMapEncodeTiled: expected one for CUDA 12 or later");
    OG_CUDA_TRY(s->device, error, cuTensorMapEncodeTiled, argument + map->at,
                og_dtype_bytes(map->dtype) == 2 ? FLOAT16 : FLOAT32, 3 + (uint32_t)map->more,
                (void *)(uintptr_t)address, extents, pitches, box, steps, NONE, swizzle,
                map->fetches_256 ? PROMOTION_256 : PROMOTION_128, NONE);
    return OGIVE_OK;
}

/* CUresult. Launches that overlap (CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) can be
 * captured into graphs from CUDA 12.3 on. */
static int start_launch(const og_cuda_launch *l, og_cu_function *function, og_cu_stream *stream,
                        void **parameters)
{
    enum { SERIALIZATION = 6, LEAST_VERSION = 12030 };
    const og_cuda_driver_state *driver = og_cuda_driver();
    if (!l->overlaps || driver->version < LEAST_VERSION || !driver->call.cuLaunchKernelEx)
        return driver->call.cuLaunchKernel(function, l->grid[0], l->grid[1], l->grid[2],
                                           l->block[0], l->block[1], l->block[2],
                                           (unsigned)l->shared_bytes, stream, parameters, NULL);
    og_cu_launch_attribute overlap = {.id = SERIALIZATION, .value = {.allowed = 1}};
    og_cu_launch_config config = {.grid = {l->grid[0], l->grid[1], l->grid[2]},
                                  .block = {l->block[0], l->block[1], l->block[2]},
                                  .shared_bytes = (unsigned)l->shared_bytes,
                                  .stream = stream,
                                  .attributes = &overlap,
                                  .attribute_count = 1};
    return driver->call.cuLaunchKernelEx(&config, function, parameters, NULL);
}

static ogive_status launch(const og_plan *plan, const state *s, const og_cuda_launch *l,
                           const og_cuda_entry *entry, const run_memory *memory, ogive_error *error)
{
    _Alignas(64) unsigned char argument[OG_CUDA_ARGUMENT_BYTES];
    if (is_left_out(plan, s, l, memory))
        return OGIVE_OK;
    memcpy(argument, l->argument, l->argument_bytes);
    for (int32_t p = 0; p < l->pointer_count; p++) {
        const og_cuda_pointer *at = &l->pointers[p];
        uint64_t address = at->offset + address_of(plan, s, at->buffer, memory);
        memcpy(argument + at->at, &address, sizeof address);
    }
    for (int32_t m = 0; l->when <= OG_CUDA_IF_MAPPED && m < l->map_count; m++)
        OG_TRY(make_map(plan, s, &l->maps[m], memory, argument, error));
    void *parameters[] = {argument};
    int result = start_launch(l, entry->function, memory->stream, parameters);
    return result == 0 ? OGIVE_OK : fail_launch(result, s, l, memory->stream, error);
}

static ogive_status launch_all(const og_plan *plan, const state *s, const run_memory *memory,
                               ogive_error *error)
{
    OG_TRY(check_pointers(plan, s, memory, error));
    for (int32_t i = 0; i < plan->kernel_count; i++) {
        const prepared *k = &s->kernels[i];
        for (int32_t l = 0; l < k->work.launch_count; l++)
            OG_TRY(launch(plan, s, &k->work.launches[l], &k->entries[l], memory, error));
    }
    return OGIVE_OK;
}

/* Kernels that were planned cannot be run: there is no device, or another one. */
static ogive_status fail_planned(const state *s, ogive_error *error)
{
    char arch[OG_CUDA_ARCH_TEXT];
    OG_FAIL(error, OGIVE_ARGUMENT, -1,
            "the plan is for a GPU of architecture %s (options.cuda_arch) and cannot be run; plan "
            "without it to run on the tensors' device",
            og_cuda_arch_text(s->limits.arch, arch));
}

static ogive_status run(const og_plan *plan, const void *opaque, const void *const *inputs,
                        void *const *outputs, void *workspace, void *stream, bool aliased,
                        ogive_error *error)
{
    const state *s = opaque;
    const run_memory memory = {inputs, outputs, workspace, stream};
    (void)aliased; /* emitted kernels read an element before they write it */
    if (!s->device)
        return fail_planned(s, error);
    OG_TRY(og_cuda_enter(s->device, error));
    return og_cuda_leave(s->device, launch_all(plan, s, &memory, error), error);
}

/* ---- workspace of one run ------------------------------------------------------------- */

static ogive_status take_memory(const state *s, size_t bytes, og_cu_stream *stream,
                                og_cu_address *out, ogive_error *error)
{
    const og_cuda_functions *call = &og_cuda_driver()->call;
    og_cu_pool *pool = s->device->pool;
    int result = pool ? call->cuMemAllocFromPoolAsync(out, bytes, pool, stream)
                      : call->cuMemAlloc(out, bytes);
    if (result == OG_CUDA_OUT_OF_MEMORY)
        return og_cuda_fail_full(s->device, bytes, error);
    if (result != 0)
        return og_cuda_fail(result, pool ? "cuMemAllocFromPoolAsync" : "cuMemAlloc", s->device,
                            error);
    return OGIVE_OK;
}

/* From the pool in the stream's order: two runs on two streams get different memory, and
 * a capture records the allocation. */
static ogive_status borrow(const void *opaque, size_t bytes, void *stream, void **workspace,
                           ogive_error *error)
{
    const state *s = opaque;
    og_cu_address address = 0;
    *workspace = NULL;
    if (!s->device)
        return fail_planned(s, error);
    OG_TRY(og_cuda_enter(s->device, error));
    ogive_status status = take_memory(s, bytes, stream, &address, error);
    OG_TRY(og_cuda_leave(s->device, status, error));
    *workspace = (void *)(uintptr_t)address;
    return OGIVE_OK;
}

static int free_memory(const state *s, og_cu_address address, og_cu_stream *stream)
{
    const og_cuda_functions *call = &og_cuda_driver()->call;
    if (s->device->pool)
        return call->cuMemFreeAsync(address, stream);
    /* Memory that kernels still use must not go: wait for them. */
    int waited = call->cuStreamSynchronize(stream), freed = call->cuMemFree(address);
    return waited ? waited : freed;
}

static ogive_status give_back(const void *opaque, void *workspace, void *stream,
                              ogive_status status, ogive_error *error)
{
    const state *s = opaque;
    ogive_error other; /* the first failure is the one to tell */
    ogive_error *tell = status == OGIVE_OK ? error : &other;
    ogive_status freed = og_cuda_enter(s->device, tell);
    if (freed == OGIVE_OK) {
        int result = free_memory(s, (og_cu_address)(uintptr_t)workspace, stream);
        if (result != 0)
            freed = og_cuda_fail(result, s->device->pool ? "cuMemFreeAsync" : "cuMemFree",
                                 s->device, tell);
        freed = og_cuda_leave(s->device, freed, tell);
    }
    return status == OGIVE_OK ? freed : status;
}

/* ---- looking inside ------------------------------------------------------------------- */

static int32_t count_threads(const og_plan *plan, const void *opaque, int32_t kernel)
{
    const og_cuda_work *work = &((const state *)opaque)->kernels[kernel].work;
    uint64_t most = 0;
    (void)plan;
    for (int32_t l = 0; l < work->launch_count; l++) {
        const og_cuda_launch *at = &work->launches[l];
        uint64_t threads = (uint64_t)at->block[0] * at->block[1] * at->block[2];
        for (int d = 0; d < 3; d++)
            threads = threads > INT32_MAX ? threads : threads * at->grid[d];
        most = threads > most ? threads : most;
    }
    return most > INT32_MAX ? INT32_MAX : (int32_t)most;
}

static double multiply_seconds(const og_plan *plan, const void *opaque, int32_t kernel)
{
    const state *s = opaque;
    return og_cuda_multiply_seconds(&plan->kernels[kernel], &s->kernels[kernel].work, &s->limits);
}

/* "68.7 G multiply-adds, three each on tensor cores, take at least 386 us at 1.98 GHz" */
static void explain_multiplies(const og_plan *plan, const state *s, int32_t kernel, og_text *text)
{
    int32_t each = s->kernels[kernel].work.tensor_products;
    double seconds = multiply_seconds(plan, s, kernel);
    if (seconds > 0)
        og_text_add(text, "\n  %.4g G multiply-adds%s take at least %.4g us at %.4g GHz",
                    og_cuda_multiplies(&plan->kernels[kernel]) / 1e9,
                    each == 6   ? ", six each on tensor cores,"
                    : each == 3 ? ", three each on tensor cores,"
                    : each == 1 ? " on tensor cores"
                                : " on CUDA cores",
                    seconds * 1e6, s->limits.clock_hz / 1e9);
}

/* "each sum is within 89 * 2^-24 of sum |x||w|, or 261, where it is in the strict order" */
static void explain_accuracy(const og_kernel *kernel, const og_cuda_work *work, og_text *text)
{
    const og_product *product = kernel->products;
    if (!kernel->product_count || product->left.dtype != OG_FLOAT32 ||
        product->right.dtype != OG_FLOAT32)
        return;
    const int64_t strict = og_strict_units(product->k);
    og_text_add(text, "\n  each sum is within %" PRId64 " * 2^-24 of sum |x||w|",
                work->units ? work->units : strict);
    if (work->units)
        og_text_add(text, ", or %" PRId64 ", where it is in the strict order", strict);
}

static void explain_launch(const og_cuda_launch *l, const og_cuda_entry *entry, og_text *text)
{
    og_text_add(text, "%s, %u", l->entry, l->grid[0]);
    for (int d = 1; d < 3 && l->grid[1] * l->grid[2] > 1; d++)
        og_text_add(text, " x %u", l->grid[d]);
    og_text_add(text, " block%s of %u threads",
                l->grid[0] * l->grid[1] * l->grid[2] == 1 ? "" : "s",
                l->block[0] * l->block[1] * l->block[2]);
    if (l->shared_bytes)
        og_text_add(text, ", %zu bytes shared", l->shared_bytes);
    if (entry->function)
        og_text_add(text, ", %d registers", entry->registers);
    if (entry->local_bytes)
        og_text_add(text, ", %d bytes local", entry->local_bytes);
}

static const char *name_when(og_cuda_when when)
{
    return when == OG_CUDA_IF_UNMAPPED ? "instead, if w is unaligned, "
           : when == OG_CUDA_IF_COPIED ? "if x is unaligned, "
                                       : "";
}

static void explain_origin(const state *s, const og_cuda_module *module, og_text *text)
{
    char arch[OG_CUDA_ARCH_TEXT];
    og_cuda_arch_text(s->limits.arch, arch);
    if (!module) {
        og_text_add(text, "planned for sm_%s, with the limits of %s\n", arch, s->like);
        return;
    }
    const og_cuda_origin *origin = og_cuda_module_origin(module);
    og_text_add(text, "%s", origin->target.name);
    if (origin->nvrtc_major)
        og_text_add(text, ", NVRTC %d.%d", origin->nvrtc_major, origin->nvrtc_minor);
    if (origin->was_cached)
        og_text_add(text, ", from the cache");
    if (origin->target.is_ptx)
        og_text_add(text, "; PTX, since this NVRTC does not know sm_%s: the driver finishes it",
                    arch);
    og_text_add(text, "\n");
}

static void explain(const og_plan *plan, const void *opaque, int32_t kernel, og_text *text)
{
    const state *s = opaque;
    const prepared *k = &s->kernels[kernel];
    if (k->work.launch_count == 0) {
        og_text_add(text, "nothing to do\n");
        return;
    }
    og_text_add(text, "%s: ", k->work.body);
    for (int32_t l = 0; l < k->work.launch_count; l++) {
        og_text_add(text, "%s%s", l ? "; then " : "", name_when(k->work.launches[l].when));
        explain_launch(&k->work.launches[l], &k->entries[l], text);
    }
    if (k->work.note)
        og_text_add(text, "\n  no %s: %s", k->work.unused, k->work.note);
    explain_multiplies(plan, s, kernel, text);
    explain_accuracy(&plan->kernels[kernel], &k->work, text);
    og_text_add(text, "\n  ");
    explain_origin(s, k->module, text);
}

static void add_source(const og_plan *plan, const void *opaque, int32_t kernel, og_text *text)
{
    const prepared *k = &((const state *)opaque)->kernels[kernel];
    (void)plan;
    if (k->work.launch_count)
        og_add_resolved(k->work.source, text);
}

/* ---- for processes to come ------------------------------------------------------------ */

static ogive_status warm(const og_plan *plan, const void *opaque, ogive_warm_info *info,
                         ogive_error *error)
{
    const state *s = opaque;
    for (int32_t i = 0; i < plan->kernel_count; i++) {
        const og_cuda_work *work = &s->kernels[i].work;
        og_cuda_image image;
        if (work->launch_count == 0)
            continue;
        OG_TRY(og_cuda_build(work->source, s->limits.arch, &image, error));
        og_cuda_image_free(&image);
        if (!image.is_kept) {
            char folder[OG_CUDA_FOLDER_TEXT], unused[160];
            (void)og_cuda_cache_state(folder, unused);
            if (!folder[0])
                OG_FAIL(error, OGIVE_DEVICE, -1, "a compiled kernel cannot be kept: %s",
                        image.not_kept);
            OG_FAIL(error, OGIVE_DEVICE, -1, "a compiled kernel cannot be kept in '%s': %s", folder,
                    image.not_kept);
        }
        info->kernels++;
        info->compiled += !image.was_cached;
        snprintf(info->target, sizeof info->target, "%s", image.target.name);
    }
    return OGIVE_OK;
}

const og_backend og_cuda_backend = {
    .name = "cuda",
    .has_streams = true,
    .takes_two = takes_two,
    .takes_phases = takes_phases,
    .prepare = prepare,
    .release = release,
    .run = run,
    .multiply_seconds = multiply_seconds,
    .threads = count_threads,
    .explain = explain,
    .borrow = borrow,
    .give_back = give_back,
    .source = add_source,
    .warm = warm,
};
