/* SPDX-License-Identifier: MIT
 *
 * base.c - errors, checked sizes, floating-point state and dtypes; see base.h.
 * Memory is in arena.c, text in base_text.c.
 */
#include "base/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- errors -------------------------------------------------------------- */

/* Ends a cut message in "...", without half a UTF-8 character before it. */
static void mark_cut(char *message, size_t capacity)
{
    size_t end = capacity - 4;
    while (end > 0 && ((unsigned char)message[end] & 0xc0) == 0x80)
        end--;
    memcpy(message + end, "...", 4);
}

ogive_status og_fail(ogive_error *error, ogive_status status, int64_t offset, const char *format,
                     ...)
{
    if (!error)
        return status;
    error->status = status;
    error->offset = offset;
    va_list list;
    va_start(list, format);
    int length = vsnprintf(error->message, sizeof error->message, format, list);
    va_end(list);
    if (length < 0)
        error->message[0] = '\0';
    else if ((size_t)length >= sizeof error->message)
        mark_cut(error->message, sizeof error->message);
    return status;
}

ogive_status og_fail_memory(ogive_error *error, size_t bytes)
{
    return og_fail(error, OGIVE_MEMORY, -1, "no memory for %zu bytes", bytes);
}

void og_error_clear(ogive_error *error)
{
    if (!error)
        return;
    error->status = OGIVE_OK;
    error->offset = -1;
    error->message[0] = '\0';
}

/* ---- sizes --------------------------------------------------------------- */

bool og_mul_size(size_t a, size_t b, size_t *out)
{
    if (b != 0 && a > SIZE_MAX / b)
        return false;
    *out = a * b;
    return true;
}

bool og_add_size(size_t a, size_t b, size_t *out)
{
    if (a > SIZE_MAX - b)
        return false;
    *out = a + b;
    return true;
}

bool og_shape_count(int rank, const int64_t *shape, int64_t *out)
{
    /* Zeros first: (2**62, 4, 0) has no elements, whatever the others give. */
    for (int d = 0; d < rank; d++) {
        if (shape[d] == 0) {
            *out = 0;
            return true;
        }
    }
    int64_t count = 1;
    for (int d = 0; d < rank; d++) {
        if (count > INT64_MAX / shape[d])
            return false;
        count *= shape[d];
    }
    *out = count;
    return true;
}

/* ---- floating-point state ------------------------------------------------ */

void og_float_state_enter(fenv_t *saved)
{
    fegetenv(saved);
    fesetenv(FE_DFL_ENV);
}

void og_float_state_leave(const fenv_t *saved)
{
    fesetenv(saved);
}

/* ---- dtypes -------------------------------------------------------------- */

static const struct {
    const char *name;
    DLDataType type;
} dtypes[OG_DTYPE_COUNT] = {
    [OG_FLOAT32] = {"float32", {kDLFloat, 32, 1}},
    [OG_FLOAT16] = {"float16", {kDLFloat, 16, 1}},
    [OG_BFLOAT16] = {"bfloat16", {kDLBfloat, 16, 1}},
    [OG_FLOAT64] = {"float64", {kDLFloat, 64, 1}},
    [OG_BOOL] = {"bool", {kDLBool, 8, 1}},
    [OG_UINT8] = {"uint8", {kDLUInt, 8, 1}},
    [OG_INT8] = {"int8", {kDLInt, 8, 1}},
    [OG_INT16] = {"int16", {kDLInt, 16, 1}},
    [OG_INT32] = {"int32", {kDLInt, 32, 1}},
    [OG_INT64] = {"int64", {kDLInt, 64, 1}},
};

const char *og_dtype_name(og_dtype dtype)
{
    return dtypes[dtype].name;
}

size_t og_dtype_bytes(og_dtype dtype)
{
    return dtypes[dtype].type.bits / 8;
}

DLDataType og_dtype_dlpack(og_dtype dtype)
{
    return dtypes[dtype].type;
}

bool og_dtype_from_dlpack(DLDataType type, og_dtype *out, char name[32])
{
    /* DLPack's codes in order; 7 and above are float8, float6, float4. */
    static const char *const codes[] = {"int",    "uint",    "float", "handle",
                                        "bfloat", "complex", "bool"};

    for (int d = 0; d < OG_DTYPE_COUNT; d++) {
        DLDataType known = dtypes[d].type;
        if (type.code == known.code && type.bits == known.bits && type.lanes == known.lanes) {
            *out = (og_dtype)d;
            return true;
        }
    }
    if (type.code >= sizeof codes / sizeof *codes)
        snprintf(name, 32, "DLPack type %u (%u bits)", (unsigned)type.code, (unsigned)type.bits);
    else if (type.lanes != 1)
        snprintf(name, 32, "%s%u x %u lanes", codes[type.code], (unsigned)type.bits,
                 (unsigned)type.lanes);
    else if (type.code == kDLBool)
        snprintf(name, 32, "bool");
    else
        snprintf(name, 32, "%s%u", codes[type.code], (unsigned)type.bits);
    return false;
}
