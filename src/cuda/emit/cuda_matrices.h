/* SPDX-License-Identifier: MIT
 *
 * cuda_matrices.h - a kernel's space and the factors of its products, seen as matrices.
 *
 *     dims [0, base_rank)          the batch: up to the last dim along which a right factor moves
 *     dims [base_rank, row_rank)   rows, as one dim of m
 *     dim n_dim                    columns: the last, where no left factor moves; -1: none, n is 1
 */
#ifndef OG_CUDA_MATRICES_H
#define OG_CUDA_MATRICES_H

#include "plan/plan.h"

typedef struct {
    int32_t base_rank, row_rank, n_dim;
    int64_t base, m, n, k;
} og_cuda_matrices;

/* One factor of a product. */
typedef struct {
    const og_access *access;
    int64_t k_stride;
    int32_t product;
    bool is_right;
} og_cuda_factor;

/* Left and right change places where it is left that moves along the last dim. */
og_cuda_factor og_cuda_factor_of(const og_kernel *kernel, int32_t product, bool is_right);
og_cuda_matrices og_cuda_see_matrices(const og_kernel *kernel);
/* *out: the kernel, or a copy in which dims along which no right factor moves come after those of
 * the batch: x (2, 3, m, k) times w (3, k, n) is 3 products of 2 m rows each. */
ogive_status og_cuda_gather_rows(const og_kernel *kernel, og_arena *arena, const og_kernel **out,
                                 ogive_error *error);

#endif
