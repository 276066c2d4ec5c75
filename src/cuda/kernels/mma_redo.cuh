/* SPDX-License-Identifier: MIT
 *
 * mma_redo.cuh - pass 0 on what redo.cuh has computed, as mma.cuh applies
 * it: 8 threads a row.
 */
#include "cuda/kernels/product.cuh"
#include "cuda/kernels/redo.cuh"

OG_FN void og_finish_redone(const og_args &a, og_index base, og_index m, og_index n, int first,
                            int count, int from, const og_redo_shared &shared)
{
    const int row = threadIdx.x / 8, column = threadIdx.x % 8 * 4, at = first + row;
    og_quad z[1][2];
    z[0][0] = *(const og_quad *)&shared.product[from + row][column];
    z[0][1] = *(const og_quad *)&shared.product[from + row][column + 32];
    og_finish_row(a, base, at < count ? m + shared.list[at] - base * a.m : a.m, n + column, z);
}
