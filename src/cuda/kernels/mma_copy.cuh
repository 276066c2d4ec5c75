/* SPDX-License-Identifier: MIT
 *
 * mma_copy.cuh - x of float16 or bfloat16 as it is, or (OG_TF32) of float32 rounded to TF32, for
 * products on tensor cores: a block takes a row.
 *
 * Scratch: a.x_pairs, rows of a.k_padded, with zeros from a.k on.
 */
#include "cuda/kernels/pairs.cuh"
#include "cuda/kernels/tf32.cuh"

enum { OG_COPY_ROW_THREADS = 512 }; /* at most; a launch may have fewer */

OG_KERNEL(og_copy_rows, OG_COPY_ROW_THREADS)
{
    const og_index row = (og_index)blockIdx.x;
    const og_element *x = og_x_row(a, row);
    const bool aligned = og_is_by_fours(x, a.x_k);
    og_element *to = (og_element *)a.x_pairs + (int64_t)row * a.k_padded;
    if (row == 0 && threadIdx.x == 0)
        *(uint32_t *)a.any_redo = 0;
    for (og_index k = 4 * threadIdx.x; k < a.k_padded; k += 4 * blockDim.x) {
        og_raw_four v;
        if (aligned && k + 4 <= a.k)
            v = *(const og_raw_four *)(x + k);
        else
#pragma unroll
            for (int i = 0; i < 4; i++)
                v.e[i] = k + i < a.k ? x[(k + i) * (int64_t)a.x_k] : (og_element)0;
#ifdef OG_TF32
#pragma unroll
        for (int i = 0; i < 4; i++)
            v.e[i] = og_float_bits(og_round_tf32(v.e[i]));
#endif
        *(og_raw_four *)(to + k) = v;
    }
}
