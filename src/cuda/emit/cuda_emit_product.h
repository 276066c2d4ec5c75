/* SPDX-License-Identifier: MIT
 *
 * cuda_emit_product.h - what products in tiles have emitted alike, whatever multiplies them:
 * factors as og_left<p> and og_right<p>, and what finish.cuh needs for pass 0.
 */
#ifndef OG_CUDA_EMIT_PRODUCT_H
#define OG_CUDA_EMIT_PRODUCT_H

#include "cuda/emit/cuda_emit.h"

/* Of float32 on tensor cores, in units of 2^-24 of sum |x||w|: what sums of 64 k, and what pairs of
 * float16 lose, cost at most; docs/accuracy.md derives it. Tensor cores before
 * Hopper's keep a bit less, and add 8 k at a time. Of TF32: rounding factors costs 2^14. */
enum { OG_TF32_UNITS = (1 << 14) + 64, OG_PAIR_UNITS = 87, OG_AMPERE_UNITS = 133 };

/* kernel->matrices, but n has as many columns as lines of whole vectors. */
og_matrices og_cuda_matrices_of(const og_kernel *kernel);
/* Do indices of the scratch, offsets of a factor, or indices up to a tile beyond the space
 * need 64 bits? */
bool og_cuda_product_needs_wide(const og_kernel *kernel, bool is_split);
/* How far apart elements of an access may be; INT64_MAX: beyond all. */
int64_t og_cuda_reach_of(const og_space *space, const og_access *access);
/* Everything before the entries: arguments, pass 0, factors. */
void og_cuda_add_product_parts(og_cuda_emitter *e);
/* The same, but pass 0 takes vectors along the product's rows: e->vector_dim is their dim. */
void og_cuda_add_product_parts_across(og_cuda_emitter *e);
/* The parameters of finish.cuh. ends_rows: where pass 0 reduces, a row has one run of columns, which
 * becomes the row's values at once. */
void og_cuda_add_finish_numbers(og_cuda_emitter *e, bool ends_rows);
/* og_x_row(), og_w_row(), og_w_stride(): how kernels on tensor cores find og_left0 and og_right0;
 * from column a.n on, og_right1. */
void og_cuda_add_tensor_factors(og_cuda_emitter *e);
/* Of a convolution: are neighbours of all its results filters? */
bool og_cuda_ends_in_filters(const og_kernel *kernel);
/* Marks loads that are the same for all of a convolution's places as kept. */
void og_cuda_keep_filters(og_cuda_emitter *e);
/* The launch of og_split, or of another entry with its arguments, of rows of k, padded. */
ogive_status og_cuda_add_split(og_cuda_emitter *e, const char *entry, int64_t rows, int64_t k);
/* The launch of og_redo, which looks at so many items, groups of rows by runs of columns. */
ogive_status og_cuda_add_redo(og_cuda_emitter *e, int64_t items);

#endif
