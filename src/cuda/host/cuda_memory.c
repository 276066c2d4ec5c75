/* SPDX-License-Identifier: MIT
 *
 * cuda_memory.c - device memory for programs that have no allocator of their own, and
 * what ogive.h tells about GPUs.
 */
#include "cuda/host/cuda_cache.h"
#include "cuda/host/cuda_driver.h"
#include "cuda/host/cuda_nvrtc.h"
#include "cuda/host/cuda_sweep.h"
#include "plan/backend.h"

#include <stdio.h>
#include <string.h>

/* ---- memory --------------------------------------------------------------------------- */

static ogive_status allocate(int32_t device, size_t bytes, void **out, ogive_error *error)
{
    const og_cuda_device *d;
    og_cu_address address = 0;
    int mode;
    OG_TRY(og_cuda_find_device(device, &d, error));
    OG_TRY(og_cuda_enter_relaxed(d, &mode, error));
    int result = og_cuda_driver()->call.cuMemAlloc(&address, bytes);
    ogive_status status = OGIVE_OK;
    if (result == OG_CUDA_OUT_OF_MEMORY)
        status = og_cuda_fail_full(d, bytes, error);
    else if (result != 0)
        status = og_cuda_fail(result, "cuMemAlloc", d, error);
    status = og_cuda_leave_relaxed(d, mode, status, error);
    *out = status == OGIVE_OK ? (void *)(uintptr_t)address : NULL;
    return status;
}

static ogive_status release(int32_t device, void *data, ogive_error *error)
{
    const og_cuda_device *d;
    int mode;
    OG_TRY(og_cuda_find_device(device, &d, error));
    OG_TRY(og_cuda_enter_relaxed(d, &mode, error));
    int result = og_cuda_driver()->call.cuMemFree((og_cu_address)(uintptr_t)data);
    ogive_status status = result == 0 ? OGIVE_OK : og_cuda_fail(result, "cuMemFree", d, error);
    return og_cuda_leave_relaxed(d, mode, status, error);
}

static ogive_status copy(int32_t device, void *to, const void *from, size_t bytes,
                         ogive_error *error)
{
    const og_cuda_device *d;
    int mode;
    OG_TRY(og_cuda_find_device(device, &d, error));
    OG_TRY(og_cuda_enter_relaxed(d, &mode, error));
    /* Addresses tell which side is which. Copies from pageable memory, and within the
     * device, may still be under way when cuMemcpy returns. */
    const char *call = "cuMemcpy";
    int result = og_cuda_driver()->call.cuMemcpy((og_cu_address)(uintptr_t)to,
                                                 (og_cu_address)(uintptr_t)from, bytes);
    if (result == 0) {
        call = "cuStreamSynchronize";
        result = og_cuda_driver()->call.cuStreamSynchronize(NULL);
    }
    ogive_status status = result == 0 ? OGIVE_OK : og_cuda_fail(result, call, d, error);
    return og_cuda_leave_relaxed(d, mode, status, error);
}

static ogive_status synchronize(int32_t device, void *stream, ogive_error *error)
{
    const og_cuda_device *d;
    OG_TRY(og_cuda_find_device(device, &d, error));
    OG_TRY(og_cuda_enter(d, error));
    int result = stream ? og_cuda_driver()->call.cuStreamSynchronize(stream)
                        : og_cuda_driver()->call.cuCtxSynchronize();
    const char *call = stream ? "cuStreamSynchronize" : "cuCtxSynchronize";
    ogive_status status = result == 0 ? OGIVE_OK : og_cuda_fail(result, call, d, error);
    return og_cuda_leave(d, status, error);
}

const og_device_services og_cuda_services = {
    .allocate = allocate,
    .free = release,
    .copy = copy,
    .synchronize = synchronize,
    .fill = og_cuda_fill,
    .hash = og_cuda_hash,
};

/* ---- ogive.h ---------------------------------------------------------------------------- */

/* Cut if need be: these are for people to read. */
static void copy_text(char *to, size_t capacity, const char *from)
{
    size_t length = strlen(from);
    if (length >= capacity)
        length = capacity - 1;
    memcpy(to, from, length);
    to[length] = 0;
}

void ogive_cuda_describe(ogive_cuda_info *info)
{
    const og_cuda_driver_state *driver = og_cuda_driver();
    const og_cuda_nvrtc *nvrtc;
    ogive_error error;
    char folder[OG_CUDA_FOLDER_TEXT], reason[160];
    if (!info)
        return;
    memset(info, 0, sizeof *info);
    if (og_cuda_need_driver(&error) != OGIVE_OK)
        copy_text(info->driver_problem, sizeof info->driver_problem, error.message);
    copy_text(info->driver_path, sizeof info->driver_path, driver->path);
    info->driver_version = driver->version;
    info->device_count = driver->device_count;
    if (og_cuda_find_nvrtc(&nvrtc, &error) != OGIVE_OK) {
        copy_text(info->nvrtc_problem, sizeof info->nvrtc_problem, error.message);
    } else {
        copy_text(info->nvrtc_path, sizeof info->nvrtc_path, nvrtc->path);
        info->nvrtc_version = nvrtc->major * 1000 + nvrtc->minor * 10;
    }
    const char *problem = og_cuda_cache_state(folder, reason);
    copy_text(info->cache_problem, sizeof info->cache_problem, problem ? problem : "");
    copy_text(info->cache_folder, sizeof info->cache_folder, folder);
}

ogive_status ogive_cuda_device(int32_t index, ogive_cuda_device_info *info, ogive_error *error)
{
    og_cuda_device d;
    og_error_clear(error);
    if (!info)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "info is NULL");
    memset(info, 0, sizeof *info);
    OG_TRY(og_cuda_describe_device(index, &d, error));
    copy_text(info->name, sizeof info->name, d.name);
    info->arch = d.limits.arch;
    info->multiprocessors = d.limits.multiprocessors;
    info->memory_bytes = (int64_t)d.memory_bytes;
    info->l2_bytes = (int64_t)d.limits.l2_bytes;
    info->memory_bytes_per_second = d.memory_bytes_per_second;
    return OGIVE_OK;
}
