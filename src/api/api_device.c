/* SPDX-License-Identifier: MIT
 *
 * api_device.c - ogive.h: memory of a device.
 */
#include "api/api.h"

#include <stdlib.h>
#include <string.h>

/* NULL for the process's own. */
static ogive_status find_services(DLDevice device, const og_device_services **out,
                                  ogive_error *error)
{
    og_error_clear(error);
    *out = device.device_type == kDLCUDA ? &og_cuda_services : NULL;
    if (device.device_type != kDLCUDA && device.device_type != kDLCPU)
        OG_FAIL(error, OGIVE_ARGUMENT, -1,
                "device is of DLPack type %d: expected the CPU (1) or CUDA (2)",
                (int)device.device_type);
    return OGIVE_OK;
}

ogive_status ogive_device_allocate(DLDevice device, size_t bytes, void **out, ogive_error *error)
{
    const og_device_services *services;
    if (out)
        *out = NULL;
    OG_TRY(find_services(device, &services, error));
    if (!out)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "out is NULL");
    if (bytes == 0)
        return OGIVE_OK;
    if (services)
        return services->allocate(device.device_id, bytes, out, error);
    size_t rounded;
    *out = og_add_size(bytes, 63, &rounded) ? aligned_alloc(64, rounded & ~(size_t)63) : NULL;
    return *out ? OGIVE_OK : og_fail_memory(error, bytes);
}

ogive_status ogive_device_free(DLDevice device, void *data, ogive_error *error)
{
    const og_device_services *services;
    OG_TRY(find_services(device, &services, error));
    if (services && data)
        return services->free(device.device_id, data, error);
    free(data);
    return OGIVE_OK;
}

ogive_status ogive_device_copy(DLDevice device, void *to, const void *from, size_t bytes,
                               ogive_error *error)
{
    const og_device_services *services;
    OG_TRY(find_services(device, &services, error));
    if (bytes == 0)
        return OGIVE_OK;
    if (!to || !from)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "%s is NULL", to ? "from" : "to");
    if (services)
        return services->copy(device.device_id, to, from, bytes, error);
    memmove(to, from, bytes);
    return OGIVE_OK;
}

ogive_status ogive_device_synchronize(DLDevice device, void *stream, ogive_error *error)
{
    const og_device_services *services;
    OG_TRY(find_services(device, &services, error));
    if (!services && stream)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "stream must be NULL on the CPU");
    return services ? services->synchronize(device.device_id, stream, error) : OGIVE_OK;
}
