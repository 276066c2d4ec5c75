/* SPDX-License-Identifier: MIT
 *
 * cuda_module.h - kernels in a device's memory: one module per device and source, shared
 * by all plans of the process.
 *
 * A module stays loaded until the process ends. A plan that is released may have been
 * captured into a CUDA graph, or may still be running on some stream; the driver counts
 * neither, and a graph whose module is gone crashes when it is replayed. A module takes
 * some tens of kilobytes, and shapes and constants are no part of its source.
 */
#ifndef OG_CUDA_MODULE_H
#define OG_CUDA_MODULE_H

#include "cuda/host/cuda_driver.h"
#include "cuda/host/cuda_image.h"

typedef struct og_cuda_module og_cuda_module;

/* An entry point that is ready: nothing is left to be done at its first launch. */
typedef struct {
    og_cu_function *function;
    int registers;   /* of a thread */
    int local_bytes; /* of a thread: spilt registers, arrays */
} og_cuda_entry;

/* How a module came to be, for explain. */
typedef struct {
    og_cuda_target target;
    int nvrtc_major, nvrtc_minor; /* 0: the image was cached and NVRTC is not here */
    bool was_cached;
} og_cuda_origin;

/* Builds source for the device and loads it, if that has not been done. The device's
 * context is current, relaxed (og_cuda_enter_relaxed). */
ogive_status og_cuda_load(const og_cuda_device *device, const char *source,
                          const og_cuda_module **out, ogive_error *error);
const og_cuda_origin *og_cuda_module_origin(const og_cuda_module *module);

/* Finds entry name, for launches with up to shared_bytes of dynamic shared memory. */
ogive_status og_cuda_find_entry(const og_cuda_module *module, const char *name, size_t shared_bytes,
                                og_cuda_entry *out, ogive_error *error);

#endif
