/* SPDX-License-Identifier: MIT
 *
 * cpu_product_run.h - kernels with a matrix product: how the space is seen by
 * cpu_product.h, and how the passes run over its tiles.
 *
 * The space is base x m x n: n is its last dim, m the last one of the plan's rows, base
 * the others. (Where the plan's matrices have no columns, factors are paired and m is 1.)
 * The first pass runs over each tile of the product while it is in the cache, piece by
 * piece; its reductions leave a partial result for every OG_PRODUCT_COLUMNS columns. When all tiles are done, the partial
 * results of each row are reduced, and row instructions and later passes, in which
 * the product is no more, run row by row.
 */
#ifndef OG_CPU_PRODUCT_RUN_H
#define OG_CPU_PRODUCT_RUN_H

#include "cpu/cpu_run.h"

/* Finds m, n and base: the geometry of elements and of rows, and all of *out but what
 * og_cpu_cut_product and the layout of the workspace choose. */
void og_cpu_see_product(const og_kernel *kernel, const og_cpu_kernels *kernels,
                        og_cpu_geometry *elements, og_cpu_geometry *rows, og_cpu_product *out);

/* Picoseconds, roughly. */
int64_t og_cpu_guess_product(const og_cpu_product *product, int64_t base_count);

/* Chooses the tiling for k->threads threads, which should need at most scratch_bytes
 * in all; lean: see cpu_product.h. Nothing is empty. */
void og_cpu_cut_product(og_cpu_kernel *k, size_t scratch_bytes, bool lean);

void og_cpu_run_product(const og_cpu_job *job);

void og_cpu_explain_product(const og_cpu_kernel *k, og_text *text);

#endif
