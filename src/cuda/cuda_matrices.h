/* SPDX-License-Identifier: MIT
 *
 * cuda_matrices.h - a kernel's space and the factors of its products, seen as matrices.
 *
 *     dims [0, base_rank)          the batch: dims along which a right factor moves
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

#endif
