/* SPDX-License-Identifier: MIT
 *
 * npy.h - NumPy's .npy files, versions 1 to 3.
 *
 * Works on bytes in memory, so that it can be fuzzed; files are mapped by
 * mapped_file.h and written by output.h. The format:
 *     6 bytes  93 'N' 'U' 'M' 'P' 'Y'
 *     2 bytes  version, major and minor
 *     2 bytes  length of the header (4 bytes from version 2), little-endian
 *     header   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 *     data
 */
#ifndef OGIVE_CLI_NPY_H
#define OGIVE_CLI_NPY_H

#include "failure.h"
#include "host_tensor.h"

typedef struct {
    host_layout layout;
    int64_t elements;
    size_t data_offset; /* of the first element in the file */
} npy_array;

/* Reads the header and checks that bytes holds all the data. */
bool npy_parse(const void *bytes, size_t size, npy_array *out, failure *why);

/* Whether bytes begin as a .npy file does. */
bool npy_is_npy(const void *bytes, size_t size);

enum { NPY_MAX_HEADER = 512 };

/* Everything before the data of a C-ordered array, a multiple of 64 bytes as
 * NumPy writes it. Returns its length; layout's dtype must have an npy_name. */
size_t npy_write_header(const host_layout *layout, char out[NPY_MAX_HEADER]);

#endif
