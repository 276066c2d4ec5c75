/* SPDX-License-Identifier: MIT
 *
 * host_tensor.h - a tensor in this machine's memory and the dtypes that the
 * program knows.
 */
#ifndef OGIVE_CLI_HOST_TENSOR_H
#define OGIVE_CLI_HOST_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "failure.h"
#include "ogive.h"

/* The library's own limit. */
enum { MAX_RANK = 8 };

typedef struct {
    const char *name;             /* "float32" */
    DLDataType code;              /* DLPack's */
    size_t bytes;                 /* of one element */
    const char *npy_name;         /* "<f4", "|b1", NULL if NumPy has none */
    const char *safetensors_name; /* "F32" */
} host_dtype;

/* NULL if there is none. */
const host_dtype *host_dtype_named(const char *name);
/* The name that name was perhaps meant to be, or NULL. */
const char *host_dtype_nearest(const char *name);
const host_dtype *host_dtype_of(DLDataType code);
/* Of all, for messages. */
#define HOST_DTYPE_NAMES                                                                           \
    "float16, bfloat16, float32, float64, bool, uint8, int8, int16, int32, int64"
bool host_dtype_is_float(const host_dtype *dtype);
size_t host_dtype_count(void);
const host_dtype *host_dtype_at(size_t index);

typedef struct {
    const host_dtype *dtype;
    int32_t ndim;
    int64_t shape[MAX_RANK];
    int64_t strides[MAX_RANK]; /* in elements */
} host_layout;

/* Sets the strides, and *elements if it is not NULL; false when the number of
 * bytes does not fit an int64_t, even if a dim is 0. */
bool host_layout_contiguous(host_layout *layout, int64_t *elements);
/* Of a contiguous one: dim 1 comes to lie behind all others. */
void host_layout_channels_last(host_layout *layout);
int64_t host_layout_elements(const host_layout *layout);
/* layout as the library wants it; shape and strides point into layout. */
DLTensor host_layout_tensor(host_layout *layout, const void *data);
/* The layout of a DLTensor of a dtype that the program knows. */
host_layout host_layout_from(const DLTensor *tensor);

/* Element index of data, as a double. */
double host_value(const host_dtype *dtype, const void *data, int64_t index);
/* value rounded to dtype and back. */
double host_round(const host_dtype *dtype, double value);

/* 64-byte aligned, never NULL for 0 bytes; NULL: cannot be had. */
void *host_allocate(size_t bytes);

#endif
