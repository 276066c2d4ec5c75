/* SPDX-License-Identifier: MIT
 *
 * embedded.h - files of the source tree that the library carries as texts (see the root's
 * CMakeLists.txt): what CUDA sources are made of. A source names those that it needs by
 * #include "cuda/kernels/rows.cuh", like any C file, and so do they; resolving inlines each where
 * it is first named. NVRTC, files for PyTorch and the tests' emulator see resolved sources.
 */
#ifndef OG_EMBEDDED_H
#define OG_EMBEDDED_H

#include "base/base.h"

/* The text of a file, by its path below src; NULL: there is none. */
const char *og_embedded(const char *path);

/* Adds source to text with its includes inlined, each file once. An include of anything that is
 * not embedded (a system header) stays as it is. */
void og_add_resolved(const char *source, og_text *text);

/* ---- made by cmake/embed.cmake ---- */

typedef struct {
    const char *path, *text;
} og_embedded_file;

extern const og_embedded_file og_embedded_files[];
extern const size_t og_embedded_count;

#endif
