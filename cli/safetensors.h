/* SPDX-License-Identifier: MIT
 *
 * safetensors.h - .safetensors files.
 *
 * Works on bytes in memory, so that it can be fuzzed. The format:
 *     8 bytes  length of the header, little-endian
 *     header   {"NAME": {"dtype": "F32", "shape": [3, 4],
 *                        "data_offsets": [0, 48]}, ...}, padded with spaces
 *     data     of all tensors, without gaps
 * Whatever the reference implementation (huggingface/safetensors, tensor.rs,
 * read_metadata and validate) refuses is refused here, and duplicate keys too,
 * which its README forbids.
 */
#ifndef OGIVE_CLI_SAFETENSORS_H
#define OGIVE_CLI_SAFETENSORS_H

#include <jansson.h>

#include "failure.h"
#include "host_tensor.h"

enum { SAFETENSORS_MAX_HEADER = 100000000 };

typedef struct {
    const char *name;  /* UTF-8, of the file's header */
    const char *dtype; /* "F32" */
    const json_t *shape;
    size_t data_offset; /* of the first element in the file */
    size_t bytes;
} safetensors_entry;

typedef struct {
    json_t *header;
    safetensors_entry *entries; /* in the order of the data */
    size_t count;
} safetensors_file;

/* Reads and checks the whole header. Release with safetensors_release(). */
bool safetensors_parse(const void *bytes, size_t size, safetensors_file *out, failure *why);
void safetensors_release(safetensors_file *file);

/* NULL if there is none of that name. */
const safetensors_entry *safetensors_find(const safetensors_file *file, const char *name);

/* The layout of entry, if its dtype and rank are of those that Ogive takes. */
bool safetensors_layout(const safetensors_entry *entry, host_layout *out, failure *why);

/* Everything before the data of a file that holds these tensors, C-ordered,
 * one after the other: write their data in the order that order[] gets. Free
 * *out. Names must be UTF-8 and all different. */
bool safetensors_write_header(const host_layout *const *layouts, const char *const *names,
                              size_t count, size_t *order, char **out, size_t *length,
                              failure *why);

#endif
