/* SPDX-License-Identifier: MIT
 *
 * cuda_module.c - the table of loaded modules; see cuda_module.h.
 */
#include "cuda/host/cuda_module.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct og_cuda_module {
    og_cuda_module *next;
    const og_cuda_device *device;
    uint64_t hash; /* of source */
    char *source;
    og_cu_module *handle; /* NULL while a thread compiles and loads it */
    og_cuda_origin origin;
};

/* Guards the list and is held for moments. Who needs a module that another thread is making waits
 * for modules_changed; different ones are compiled at the same time. */
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t modules_changed = PTHREAD_COND_INITIALIZER;
static og_cuda_module *modules;

static void renew_locks(void)
{
    pthread_mutex_init(&table_lock, NULL);
    pthread_cond_init(&modules_changed, NULL);
}

/* Of eight characters at a time: some microseconds a source, for plans of shapes that are new
 * but have a kernel. SHA-256, by which the disk's cache finds it, takes a hundred. */
static uint64_t hash_source(const char *source, size_t length)
{
    uint64_t hash = length, word;
    for (; length >= sizeof word; source += sizeof word, length -= sizeof word) {
        memcpy(&word, source, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    for (; length > 0; source++, length--)
        hash = (hash ^ (unsigned char)*source) * UINT64_C(0x9e3779b97f4a7c15);
    return hash;
}

/* With the lock held. */
static og_cuda_module *find_module(const og_cuda_device *device, const char *source, uint64_t hash)
{
    og_cuda_module *found = modules;
    while (found &&
           (found->device != device || found->hash != hash || strcmp(found->source, source) != 0))
        found = found->next;
    return found;
}

static og_cuda_module *new_module(const og_cuda_device *device, const char *source, size_t length,
                                  uint64_t hash)
{
    og_cuda_module *module = calloc(1, sizeof *module);
    char *copy = malloc(length + 1);
    if (!module || !copy) {
        free(module);
        free(copy);
        return NULL;
    }
    memcpy(copy, source, length + 1);
    module->source = copy;
    module->hash = hash;
    module->device = device;
    return module;
}

/* The module; or, if there is none, a new one that the caller has to make (NULL: no memory). */
static og_cuda_module *claim_module(const og_cuda_device *device, const char *source)
{
    size_t length = strlen(source);
    uint64_t hash = hash_source(source, length);
    pthread_mutex_lock(&table_lock);
    og_cuda_module *module = find_module(device, source, hash);
    while (module && !module->handle) {
        pthread_cond_wait(&modules_changed, &table_lock);
        module = find_module(device, source, hash);
    }
    if (!module && (module = new_module(device, source, length, hash))) {
        module->next = modules;
        modules = module;
    }
    pthread_mutex_unlock(&table_lock);
    return module;
}

static void drop_module(og_cuda_module *module)
{
    pthread_mutex_lock(&table_lock);
    og_cuda_module **at = &modules;
    while (*at != module)
        at = &(*at)->next;
    *at = module->next;
    pthread_cond_broadcast(&modules_changed);
    pthread_mutex_unlock(&table_lock);
    free(module->source);
    free(module);
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

static ogive_status make_module(og_cuda_module *module, ogive_error *error)
{
    og_cuda_image image;
    og_cu_module *handle = NULL;
    ogive_status status = og_cuda_build(module->source, module->device->limits.arch, &image, error);
    if (status == OGIVE_OK)
        status = load_image(module->device, &image, &handle, error);
    og_cuda_image_free(&image);
    if (status != OGIVE_OK)
        return status;
    module->origin = (og_cuda_origin){.target = image.target,
                                      .nvrtc_major = image.nvrtc_major,
                                      .nvrtc_minor = image.nvrtc_minor,
                                      .was_cached = image.was_cached};
    pthread_mutex_lock(&table_lock);
    module->handle = handle;
    pthread_cond_broadcast(&modules_changed);
    pthread_mutex_unlock(&table_lock);
    return OGIVE_OK;
}

ogive_status og_cuda_load(const og_cuda_device *device, const char *source,
                          const og_cuda_module **out, ogive_error *error)
{
    og_cuda_on_fork(renew_locks);
    *out = NULL;
    og_cuda_module *module = claim_module(device, source);
    if (!module)
        return og_fail_memory(error, sizeof *module);
    if (!module->handle) { /* claimed */
        ogive_status status = make_module(module, error);
        if (status != OGIVE_OK) {
            drop_module(module);
            return status;
        }
    }
    *out = module;
    return OGIVE_OK;
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
