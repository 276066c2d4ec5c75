/* SPDX-License-Identifier: MIT
 *
 * cuda_module.c - the table of loaded modules; see cuda_module.h.
 */
#include "cuda/cuda_module.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct og_cuda_module {
    og_cuda_module *next;
    const og_cuda_device *device;
    unsigned char key[OG_SHA256_BYTES]; /* of the source for the device's own target */
    og_cu_module *handle;
    og_cuda_origin origin;
};

/* table_lock guards the list and is held for moments. build_lock is held while a module
 * is compiled and loaded, so that no two threads make the same. */
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t build_lock = PTHREAD_MUTEX_INITIALIZER;
static og_cuda_module *modules;

static void renew_locks(void)
{
    pthread_mutex_init(&table_lock, NULL);
    pthread_mutex_init(&build_lock, NULL);
}

static og_cuda_module *find_module(const og_cuda_device *device, const unsigned char *key)
{
    pthread_mutex_lock(&table_lock);
    og_cuda_module *found = modules;
    while (found && (found->device != device || memcmp(found->key, key, OG_SHA256_BYTES) != 0))
        found = found->next;
    pthread_mutex_unlock(&table_lock);
    return found;
}

/* ---- loading ------------------------------------------------------------------------ */

static ogive_status fail_load(int result, const og_cuda_device *device, const og_cuda_image *image,
                              const char *log, ogive_error *error)
{
    int version = og_cuda_driver()->version;
    char maker[40] = "";
    if (image->nvrtc_major)
        snprintf(maker, sizeof maker, " that NVRTC %d.%d made", image->nvrtc_major,
                 image->nvrtc_minor);
    if (result == OG_CUDA_INVALID_IMAGE || result == OG_CUDA_NO_BINARY ||
        result == OG_CUDA_INVALID_PTX || result == OG_CUDA_UNSUPPORTED_PTX)
        OG_FAIL(error, OGIVE_DEVICE, -1,
                "CUDA device %d refuses code for %s%s%s; its driver is for CUDA %d.%d: %s%s%s (an "
                "NVRTC that is not newer helps; OGIVE_NVRTC names its file)",
                (int)device->index, image->target.name, maker,
                image->was_cached ? " (it was cached)" : "", version / 1000, version % 1000 / 10,
                og_cuda_result_name(result), *log ? ", " : "", log);
    return og_cuda_fail(result, "cuModuleLoadDataEx", device, error);
}

static ogive_status load_image(const og_cuda_device *device, const og_cuda_image *image,
                               og_cu_module **out, ogive_error *error)
{
    enum { ERROR_LOG = 5, ERROR_LOG_BYTES = 6 }; /* CUjit_option */
    char log[400] = "";
    int options[] = {ERROR_LOG, ERROR_LOG_BYTES};
    void *values[] = {log, (void *)(uintptr_t)(sizeof log - 1)};
    /* Only PTX is compiled, and has errors to tell. */
    unsigned count = image->target.is_ptx ? 2 : 0;
    int result =
        og_cuda_driver()->call.cuModuleLoadDataEx(out, image->data, count, options, values);
    if (result != 0)
        return fail_load(result, device, image, log, error);
    return OGIVE_OK;
}

/* Makes a module and adds it to the table. */
static ogive_status add_module(const og_cuda_device *device, const unsigned char *key,
                               const char *source, const og_cuda_module **out, ogive_error *error)
{
    og_cuda_image image;
    og_cuda_module *module = calloc(1, sizeof *module);
    if (!module)
        return og_fail_memory(error, sizeof *module);
    ogive_status status = og_cuda_build(source, device->limits.arch, &image, error);
    if (status == OGIVE_OK)
        status = load_image(device, &image, &module->handle, error);
    og_cuda_image_free(&image);
    if (status != OGIVE_OK) {
        free(module);
        return status;
    }
    memcpy(module->key, key, OG_SHA256_BYTES);
    module->device = device;
    module->origin = (og_cuda_origin){.target = image.target,
                                      .nvrtc_major = image.nvrtc_major,
                                      .nvrtc_minor = image.nvrtc_minor,
                                      .was_cached = image.was_cached};
    pthread_mutex_lock(&table_lock);
    module->next = modules;
    modules = module;
    pthread_mutex_unlock(&table_lock);
    *out = module;
    return OGIVE_OK;
}

ogive_status og_cuda_load(const og_cuda_device *device, const char *source,
                          const og_cuda_module **out, ogive_error *error)
{
    unsigned char key[OG_SHA256_BYTES];
    og_cuda_target target;
    og_cuda_on_fork(renew_locks);
    og_cuda_exact_target(device->limits.arch, &target);
    og_cuda_image_key(source, &target, key);
    *out = find_module(device, key);
    if (*out)
        return OGIVE_OK;
    pthread_mutex_lock(&build_lock);
    *out = find_module(device, key); /* another thread may have made it meanwhile */
    ogive_status status = *out ? OGIVE_OK : add_module(device, key, source, out, error);
    pthread_mutex_unlock(&build_lock);
    return status;
}

const og_cuda_origin *og_cuda_module_origin(const og_cuda_module *module)
{
    return &module->origin;
}

/* ---- entries ------------------------------------------------------------------------ */

/* CUfunction_attribute */
enum { ATTRIBUTE_LOCAL_BYTES = 3, ATTRIBUTE_REGISTERS = 4, ATTRIBUTE_DYNAMIC_SHARED = 8 };

/* Raises what a launch may ask for; never lowers it, plans share the function. */
static ogive_status allow_shared(const og_cuda_device *device, og_cu_function *function,
                                 size_t shared_bytes, ogive_error *error)
{
    int allowed = 0, result;
    if (shared_bytes > device->limits.shared_per_block)
        OG_FAIL(error, OGIVE_UNSUPPORTED, -1,
                "a kernel needs %zu bytes of shared memory, CUDA device %d has %zu a block",
                shared_bytes, (int)device->index, device->limits.shared_per_block);
    pthread_mutex_lock(&table_lock);
    result =
        og_cuda_driver()->call.cuFuncGetAttribute(&allowed, ATTRIBUTE_DYNAMIC_SHARED, function);
    if (result == 0 && (size_t)allowed < shared_bytes)
        result = og_cuda_driver()->call.cuFuncSetAttribute(function, ATTRIBUTE_DYNAMIC_SHARED,
                                                           (int)shared_bytes);
    pthread_mutex_unlock(&table_lock);
    return result == 0 ? OGIVE_OK : og_cuda_fail(result, "cuFuncSetAttribute", device, error);
}

ogive_status og_cuda_find_entry(const og_cuda_module *module, const char *name, size_t shared_bytes,
                                og_cuda_entry *out, ogive_error *error)
{
    const og_cuda_device *device = module->device;
    memset(out, 0, sizeof *out);
    OG_CUDA_TRY(device, error, cuModuleGetFunction, &out->function, module->handle, name);
    OG_TRY(allow_shared(device, out->function, shared_bytes, error));
    /* Since CUDA 12.2 the driver loads a kernel when it is first needed, which inside a
     * run would synchronise; asking for it, or for what is known of it, loads it now. */
    if (og_cuda_driver()->call.cuFuncLoad)
        OG_CUDA_TRY(device, error, cuFuncLoad, out->function);
    OG_CUDA_TRY(device, error, cuFuncGetAttribute, &out->registers, ATTRIBUTE_REGISTERS,
                out->function);
    OG_CUDA_TRY(device, error, cuFuncGetAttribute, &out->local_bytes, ATTRIBUTE_LOCAL_BYTES,
                out->function);
    return OGIVE_OK;
}
