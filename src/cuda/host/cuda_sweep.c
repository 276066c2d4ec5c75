/* SPDX-License-Identifier: MIT
 *
 * cuda_sweep.c - launches sweep.cuh; see cuda_sweep.h.
 */
#include "cuda/host/cuda_sweep.h"
#include "cuda/host/cuda_module.h"
#include "base/embedded.h"
#include "plan/backend.h"

#include <stdlib.h>

typedef struct {
    uint64_t data, partials;
    uint32_t first, step, count;
} arguments;

enum { THREADS = 256, BLOCKS = OG_SWEEP_PARTIALS / THREADS };

static ogive_status launch(const og_cuda_device *device, const char *name, arguments *a,
                           ogive_error *error)
{
    const og_cuda_module *module;
    og_cuda_entry entry;
    void *parameters[] = {a};
    OG_TRY(og_cuda_load(device, og_embedded("cuda/kernels/sweep.cuh"), &module, error));
    OG_TRY(og_cuda_find_entry(module, name, 0, &entry, error));
    OG_CUDA_TRY(device, error, cuLaunchKernel, entry.function, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL,
                parameters, NULL);
    return OGIVE_OK;
}

static ogive_status run(int32_t device, const char *name, arguments *a, ogive_error *error)
{
    const og_cuda_device *d;
    int mode;
    OG_TRY(og_cuda_find_device(device, &d, error));
    OG_TRY(og_cuda_enter_relaxed(d, &mode, error));
    return og_cuda_leave_relaxed(d, mode, launch(d, name, a, error), error);
}

ogive_status og_cuda_fill(int32_t device, float *x, uint32_t first, uint32_t step, uint32_t count,
                          ogive_error *error)
{
    arguments a = {(uintptr_t)x, 0, first, step, count};
    return run(device, "og_fill", &a, error);
}

ogive_status og_cuda_hash(int32_t device, const float *y, uint32_t first, uint32_t step,
                          uint32_t count, uint64_t *partials, uint64_t *sum, ogive_error *error)
{
    arguments a = {(uintptr_t)y, (uintptr_t)partials, first, step, count};
    size_t bytes = OG_SWEEP_PARTIALS * sizeof *partials;
    *sum = 0;
    OG_TRY(run(device, "og_hash", &a, error));
    uint64_t *host = malloc(bytes);
    if (!host)
        return og_fail_memory(error, bytes);
    ogive_status status = og_cuda_services.copy(device, host, partials, bytes, error);
    for (size_t i = 0; status == OGIVE_OK && i < OG_SWEEP_PARTIALS; i++)
        *sum += host[i];
    free(host);
    return status;
}
