/* SPDX-License-Identifier: MIT
 *
 * host_tensor.c - tensors in this machine's memory; see host_tensor.h.
 */
#include "host_tensor.h"

#include "text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const host_dtype dtypes[] = {
    {"float16", {kDLFloat, 16, 1}, 2, "<f2", "F16"},
    {"bfloat16", {kDLBfloat, 16, 1}, 2, NULL, "BF16"},
    {"float32", {kDLFloat, 32, 1}, 4, "<f4", "F32"},
    {"float64", {kDLFloat, 64, 1}, 8, "<f8", "F64"},
    {"bool", {kDLBool, 8, 1}, 1, "|b1", "BOOL"},
    {"uint8", {kDLUInt, 8, 1}, 1, "|u1", "U8"},
    {"int8", {kDLInt, 8, 1}, 1, "|i1", "I8"},
    {"int16", {kDLInt, 16, 1}, 2, "<i2", "I16"},
    {"int32", {kDLInt, 32, 1}, 4, "<i4", "I32"},
    {"int64", {kDLInt, 64, 1}, 8, "<i8", "I64"},
};

bool host_dtype_is_float(const host_dtype *dtype)
{
    return dtype->code.code == kDLFloat || dtype->code.code == kDLBfloat;
}

size_t host_dtype_count(void)
{
    return sizeof(dtypes) / sizeof(dtypes[0]);
}

const host_dtype *host_dtype_at(size_t index)
{
    return index < host_dtype_count() ? &dtypes[index] : NULL;
}

const host_dtype *host_dtype_named(const char *name)
{
    for (size_t i = 0; i < host_dtype_count(); i++)
        if (!strcmp(dtypes[i].name, name))
            return &dtypes[i];
    return NULL;
}

const char *host_dtype_nearest(const char *name)
{
    const char *names[sizeof dtypes / sizeof *dtypes];
    for (size_t i = 0; i < host_dtype_count(); i++)
        names[i] = dtypes[i].name;
    return text_nearest(name, names, host_dtype_count());
}

const host_dtype *host_dtype_of(DLDataType code)
{
    for (size_t i = 0; i < host_dtype_count(); i++)
        if (dtypes[i].code.code == code.code && dtypes[i].code.bits == code.bits && code.lanes == 1)
            return &dtypes[i];
    return NULL;
}

bool host_layout_contiguous(host_layout *layout, int64_t *elements)
{
    int64_t stride = 1;
    bool empty = false;

    for (int32_t i = layout->ndim - 1; i >= 0; i--) {
        int64_t extent = layout->shape[i];
        layout->strides[i] = stride;
        if (extent == 0)
            empty = true;
        else if (__builtin_mul_overflow(stride, extent, &stride))
            return false;
    }
    int64_t bytes;
    if (__builtin_mul_overflow(stride, (int64_t)layout->dtype->bytes, &bytes))
        return false;
    if (elements)
        *elements = empty ? 0 : stride;
    return true;
}

void host_layout_channels_last(host_layout *layout)
{
    const int64_t channels = layout->shape[1];

    for (int32_t i = 2; i < layout->ndim; i++)
        layout->strides[i] *= channels;
    layout->strides[1] = 1;
}

int64_t host_layout_elements(const host_layout *layout)
{
    int64_t elements = 1;

    for (int32_t i = 0; i < layout->ndim; i++)
        if (layout->shape[i] == 0)
            return 0;
    for (int32_t i = 0; i < layout->ndim; i++)
        elements *= layout->shape[i];
    return elements;
}

DLTensor host_layout_tensor(host_layout *layout, const void *data)
{
    /* DLTensor has no const pointer; the library never writes an input. */
    return (DLTensor){.data = (void *)(uintptr_t)data,
                      .device = {kDLCPU, 0},
                      .ndim = layout->ndim,
                      .dtype = layout->dtype->code,
                      .shape = layout->shape,
                      .strides = layout->strides};
}

host_layout host_layout_from(const DLTensor *tensor)
{
    host_layout layout = {.dtype = host_dtype_of(tensor->dtype), .ndim = tensor->ndim};

    for (int32_t i = 0; i < tensor->ndim; i++)
        layout.shape[i] = tensor->shape[i];
    if (tensor->strides)
        memcpy(layout.strides, tensor->strides, sizeof(int64_t) * (size_t)tensor->ndim);
    else
        host_layout_contiguous(&layout, NULL);
    return layout;
}

static double value_of_half(uint16_t bits)
{
    int exponent = (bits >> 10) & 31, fraction = bits & 1023;
    double magnitude;

    if (exponent == 31)
        magnitude = fraction ? NAN : INFINITY;
    else if (exponent == 0)
        magnitude = ldexp(fraction, -24);
    else
        magnitude = ldexp(1024 + fraction, exponent - 25);
    return bits & 0x8000 ? -magnitude : magnitude;
}

static double value_of_integer(const host_dtype *dtype, const unsigned char *at)
{
    int64_t wide;
    int32_t word;
    int16_t half;

    switch (dtype->bytes) {
    case 8:
        memcpy(&wide, at, sizeof(wide));
        return (double)wide;
    case 4:
        memcpy(&word, at, sizeof(word));
        return word;
    case 2:
        memcpy(&half, at, sizeof(half));
        return half;
    default:
        return dtype->code.code == kDLInt    ? (double)(int8_t)*at
               : dtype->code.code == kDLBool ? *at != 0
                                             : *at;
    }
}

double host_value(const host_dtype *dtype, const void *data, int64_t index)
{
    const unsigned char *at = (const unsigned char *)data + (size_t)index * dtype->bytes;

    if (!host_dtype_is_float(dtype))
        return value_of_integer(dtype, at);
    if (dtype->bytes == 8) {
        double value;
        memcpy(&value, at, sizeof(value));
        return value;
    }
    float value;
    uint16_t bits;
    if (dtype->bytes == 4) {
        memcpy(&value, at, sizeof(value));
        return value;
    }
    memcpy(&bits, at, sizeof(bits));
    if (dtype->code.code == kDLFloat)
        return value_of_half(bits);
    uint32_t wide = (uint32_t)bits << 16;
    memcpy(&value, &wide, sizeof(value));
    return value;
}

/* To `digits` significant bits, no exponent below `lowest` (that of the least
 * subnormal); good for the few values that are printed. */
static double round_to(double value, int digits, int lowest, double greatest)
{
    int exponent;

    if (!isfinite(value) || value == 0)
        return value;
    frexp(value, &exponent);
    int unit = exponent - digits < lowest ? lowest : exponent - digits;
    double rounded = ldexp(nearbyint(ldexp(value, -unit)), unit);
    return fabs(rounded) > greatest ? copysign(INFINITY, value) : rounded;
}

double host_round(const host_dtype *dtype, double value)
{
    if (dtype->bytes == 8 || !host_dtype_is_float(dtype))
        return value;
    if (dtype->bytes == 4)
        return (float)value;
    if (dtype->code.code == kDLFloat)
        return round_to(value, 11, -24, 65504);
    return round_to(value, 8, -133, 0x1.fep127);
}

void *host_allocate(size_t bytes)
{
    size_t rounded = (bytes + 63) & ~(size_t)63;

    if (rounded < bytes)
        return NULL;
    return aligned_alloc(64, rounded ? rounded : 64);
}
