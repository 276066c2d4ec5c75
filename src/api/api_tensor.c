/* SPDX-License-Identifier: MIT
 *
 * api_tensor.c - callers' tensors: what is taken, and which share memory.
 */
#include "api/api.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* DLPack's numbers, some of which only its own newer headers name. */
enum { DEVICE_CPU = 1, DEVICE_CUDA = 2, DEVICE_CUDA_HOST = 3, DEVICE_CUDA_MANAGED = 13 };

static ogive_status check_device(const DLTensor *tensor, const char *what, const char *name,
                                 ogive_error *error)
{
    int type = (int)tensor->device.device_type;
    if (type == DEVICE_CPU || type == DEVICE_CUDA_HOST || type == DEVICE_CUDA ||
        type == DEVICE_CUDA_MANAGED)
        return OGIVE_OK;
    OG_FAIL(error, OGIVE_UNSUPPORTED, -1,
            "%s '%s' is on a device of DLPack type %d: expected the CPU (1) or CUDA (2)", what,
            name, type);
}

DLDevice og_tensor_device(const DLTensor *tensor)
{
    int type = (int)tensor->device.device_type;
    bool cuda = type == DEVICE_CUDA || type == DEVICE_CUDA_MANAGED;
    return (DLDevice){.device_type = cuda ? kDLCUDA : kDLCPU,
                      .device_id = cuda ? tensor->device.device_id : 0};
}

const char *og_device_text(DLDevice device, char text[OG_DEVICE_TEXT])
{
    if (device.device_type == kDLCUDA)
        snprintf(text, OG_DEVICE_TEXT, "CUDA device %d", (int)device.device_id);
    else
        snprintf(text, OG_DEVICE_TEXT, "the CPU");
    return text;
}

bool og_layout_fits(const og_layout *layout)
{
    int64_t reach = (int64_t)og_dtype_bytes(layout->dtype), count;
    if (og_shape_count(layout->rank, layout->shape, &count) && count == 0)
        return true; /* strides of no elements lead nowhere */
    for (int32_t d = 0; d < layout->rank; d++) {
        int64_t step, span;
        if (layout->shape[d] < 2)
            continue;
        if (layout->stride[d] == INT64_MIN ||
            __builtin_mul_overflow(llabs(layout->stride[d]), 8, &step) ||
            __builtin_mul_overflow(step, layout->shape[d] - 1, &span) ||
            __builtin_add_overflow(reach, span, &reach))
            return false;
    }
    return true;
}

/* An empty tensor's strides lead nowhere: they stay 0. */
static bool read_strides(const DLTensor *tensor, og_layout *layout)
{
    int64_t count;
    if (!og_shape_count(layout->rank, layout->shape, &count))
        return false;
    if (count == 0)
        return true;
    if (!tensor->strides)
        return og_layout_contiguous(layout);
    for (int32_t d = 0; d < layout->rank; d++)
        layout->stride[d] = tensor->strides[d];
    return true;
}

ogive_status og_read_tensor(const DLTensor *tensor, const char *what, const char *name,
                            og_layout *layout, ogive_error *error)
{
    if (!tensor)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "%s '%s' is NULL", what, name);
    OG_TRY(check_device(tensor, what, name, error));
    char type[32], text[OG_SHAPE_TEXT];
    memset(layout, 0, sizeof *layout);
    if (!og_dtype_from_dlpack(tensor->dtype, &layout->dtype, type))
        OG_FAIL(error, OGIVE_DTYPE, -1,
                "%s '%s' is %s: expected float32, float16, bfloat16, float64, bool, uint8 or an "
                "integer of 8 to 64 bits",
                what, name, type);
    if (tensor->ndim < 0 || tensor->ndim > OG_MAX_RANK)
        OG_FAIL(error, OGIVE_SHAPE, -1, "%s '%s' has %d dims: expected 0 to %d", what, name,
                (int)tensor->ndim, OG_MAX_RANK);
    if (tensor->ndim && !tensor->shape)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "%s '%s' has %d dims and no shape", what, name,
                (int)tensor->ndim);
    layout->rank = tensor->ndim;
    for (int32_t d = 0; d < layout->rank; d++) {
        layout->shape[d] = tensor->shape[d];
        if (layout->shape[d] < 0)
            OG_FAIL(error, OGIVE_SHAPE, -1, "%s '%s' has a negative extent: %lld in dim %d", what,
                    name, (long long)layout->shape[d], (int)d);
    }
    if (!read_strides(tensor, layout) || !og_layout_fits(layout))
        OG_FAIL(error, OGIVE_SHAPE, -1, "%s '%s' of shape %s is larger than any memory", what, name,
                og_shape_text(layout->rank, layout->shape, text));
    return OGIVE_OK;
}

og_reach og_layout_reach(const og_layout *layout)
{
    og_reach reach = {0, 0};
    int64_t bytes = (int64_t)og_dtype_bytes(layout->dtype), count;
    if (og_shape_count(layout->rank, layout->shape, &count) && count == 0)
        return reach; /* strides of no elements lead nowhere */
    for (int32_t d = 0; d < layout->rank; d++) {
        int64_t span = layout->shape[d] > 1 ? (layout->shape[d] - 1) * layout->stride[d] : 0;
        *(span < 0 ? &reach.low : &reach.high) += span * bytes;
    }
    reach.high += bytes;
    return reach;
}

/* Are the tensors apart within one step, if dims that step by least bytes or more
 * are the steps, and the others what lies within? Addresses repeat by the steps'
 * greatest common divisor. */
static bool apart_within(const og_buffer *const side[2], int64_t distance, int64_t least)
{
    int64_t step = 0, inner[2];
    for (int s = 0; s < 2; s++) {
        int64_t bytes = (int64_t)og_dtype_bytes(side[s]->dtype);
        inner[s] = bytes;
        for (int32_t d = 0; d < side[s]->rank; d++) {
            int64_t by = llabs(side[s]->stride[d]) * bytes;
            if (side[s]->shape[d] < 2 || by == 0)
                continue;
            if (by >= least)
                step = og_greatest_divisor(by, step);
            else
                inner[s] += by * (side[s]->shape[d] - 1);
        }
    }
    if (step == 0)
        return false;
    int64_t offset = distance % step;
    offset += offset < 0 ? step : 0;
    return inner[0] <= offset && offset + inner[1] <= step;
}

/* Halves of a matrix's columns, even and odd elements and so on: b's lowest byte is
 * distance from a's. */
static bool interleaved(const og_buffer *a, const og_buffer *b, int64_t distance)
{
    const og_buffer *const side[2] = {a, b};
    for (int s = 0; s < 2; s++)
        for (int32_t d = 0; d < side[s]->rank; d++)
            if (side[s]->shape[d] > 1 && side[s]->stride[d] != 0 &&
                apart_within(side, distance,
                             llabs(side[s]->stride[d]) * (int64_t)og_dtype_bytes(side[s]->dtype)))
                return true;
    return false;
}

bool og_tensors_overlap(const og_buffer *a, const og_reach *a_reach, const char *a_data,
                        const og_buffer *b, const og_reach *b_reach, const char *b_data)
{
    if (a_reach->low == a_reach->high || b_reach->low == b_reach->high)
        return false;
    uintptr_t a_low = (uintptr_t)a_data + (uintptr_t)a_reach->low;
    uintptr_t b_low = (uintptr_t)b_data + (uintptr_t)b_reach->low;
    uintptr_t a_bytes = (uintptr_t)(a_reach->high - a_reach->low);
    uintptr_t b_bytes = (uintptr_t)(b_reach->high - b_reach->low);
    if (a_low + a_bytes <= b_low || b_low + b_bytes <= a_low)
        return false;
    return !interleaved(a, b, (int64_t)(b_low - a_low));
}
