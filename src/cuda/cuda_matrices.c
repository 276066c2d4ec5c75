/* SPDX-License-Identifier: MIT
 *
 * cuda_matrices.c - see cuda_matrices.h.
 */
#include "cuda/cuda_matrices.h"

og_cuda_factor og_cuda_factor_of(const og_kernel *kernel, int32_t index, bool is_right)
{
    const og_product *product = &kernel->products[index];
    int32_t last = kernel->space.rank - 1;
    bool changed = last >= 0 && product->left.stride[last] != 0 && product->right.stride[last] == 0;
    bool takes_right = is_right != changed;
    return (og_cuda_factor){.access = takes_right ? &product->right : &product->left,
                            .k_stride =
                                takes_right ? product->right_k_stride : product->left_k_stride,
                            .product = index,
                            .is_right = is_right};
}

static bool any_moves(const og_kernel *kernel, bool is_right, int32_t dim)
{
    for (int32_t p = 0; p < kernel->product_count; p++)
        if (og_cuda_factor_of(kernel, p, is_right).access->stride[dim] != 0)
            return true;
    return false;
}

og_cuda_matrices og_cuda_see_matrices(const og_kernel *kernel)
{
    const og_space *space = &kernel->space;
    og_cuda_matrices s = {.n_dim = -1, .row_rank = space->rank, .base = 1, .m = 1, .n = 1};
    int32_t last = space->rank - 1;
    if (last >= 0 && !any_moves(kernel, false, last)) {
        s.n_dim = s.row_rank = last;
        s.n = space->extent[last];
    }
    for (int32_t d = 0; d < s.row_rank; d++)
        if (any_moves(kernel, true, d))
            s.base_rank = d + 1;
    for (int32_t d = 0; d < s.row_rank; d++)
        *(d < s.base_rank ? &s.base : &s.m) *= space->extent[d];
    s.k = kernel->products[0].k;
    return s;
}
