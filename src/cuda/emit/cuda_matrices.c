/* SPDX-License-Identifier: MIT
 *
 * cuda_matrices.c - see cuda_matrices.h.
 */
#include "cuda/emit/cuda_matrices.h"

#include <string.h>

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

/* values[d] = what was at order[d]. */
static void permute(int64_t *values, const int32_t *order, int32_t count)
{
    int64_t old[OG_MAX_RANK];
    memcpy(old, values, sizeof old);
    for (int32_t d = 0; d < count; d++)
        values[d] = old[order[d]];
}

ogive_status og_cuda_gather_rows(const og_kernel *kernel, og_arena *arena, const og_kernel **out,
                                 ogive_error *error)
{
    og_cuda_matrices s = og_cuda_see_matrices(kernel);
    int32_t order[OG_MAX_RANK], count = 0;
    for (int turn = 0; turn < 2; turn++)
        for (int32_t d = 0; d < s.base_rank; d++)
            if (any_moves(kernel, true, d) == (turn == 0))
                order[count++] = d;
    bool sorted = true;
    for (int32_t d = 0; d < count; d++)
        sorted &= order[d] == d;
    *out = kernel;
    if (sorted)
        return OGIVE_OK;
    size_t accesses = (size_t)kernel->access_count, products = (size_t)kernel->product_count;
    og_kernel *copy = OG_ARENA_NEW(arena, og_kernel, 1);
    og_access *of = OG_ARENA_NEW(arena, og_access, accesses);
    og_product *factors = OG_ARENA_NEW(arena, og_product, products);
    if (!copy || !of || !factors)
        return og_fail_memory(error, accesses * sizeof *of);
    *copy = *kernel;
    copy->accesses = memcpy(of, kernel->accesses, accesses * sizeof *of);
    copy->products = memcpy(factors, kernel->products, products * sizeof *factors);
    permute(copy->space.extent, order, count);
    for (size_t a = 0; a < accesses; a++)
        permute(of[a].stride, order, count);
    for (size_t p = 0; p < products; p++) {
        permute(factors[p].left.stride, order, count);
        permute(factors[p].right.stride, order, count);
    }
    *out = copy;
    return OGIVE_OK;
}
