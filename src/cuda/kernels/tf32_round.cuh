/* SPDX-License-Identifier: MIT
 *
 * tf32_round.cuh - x rounded to TF32, for hopper_float32.cuh with OG_TF32: a.split_lanes threads
 * a row, as in pairs_split.cuh.
 *
 * Scratch: a.x_pairs, for each product and each 32 k its a.m rows of 32, with zeros from a.k on. In
 * each 16 of k, what is multiplied with a thread's four of w (og_split_block() of hopper_chain.cuh)
 * is where two steps of 8 k have it.
 *
 * PARAMETERS
 *   OG_SPLIT_SHUFFLES  2: from k = 8 on a thread has its first two of four k after the others
 */
#include "cuda/kernels/pairs.cuh"
#include "cuda/kernels/tf32.cuh"

enum { OG_ROUND_THREADS = 512 }; /* at most; a launch may have fewer */

/* Elements k .. k + 3 of a row. */
OG_FN void og_place_four(const og_args &a, og_index row, og_index k, const og_four &v)
{
    const int t = (int)(k % 16) / 4, turned = OG_SPLIT_SHUFFLES == 2 && t >= 2 ? 2 : 0;
    const og_index product = row / a.m;
    const int64_t line =
        ((int64_t)product * (a.k_padded / 32) + k / 32) * a.m + row - product * a.m;
    uint32_t *to = (uint32_t *)a.x_pairs + line * 32 + k % 32 / 16 * 16 + t;
#pragma unroll
    for (int i = 0; i < 4; i++)
        to[4 * (i ^ turned)] = og_round_tf32(v.e[i]);
}

OG_KERNEL(og_round_rows, OG_ROUND_THREADS)
{
    const int lanes = (int)a.split_lanes, lane = threadIdx.x % lanes;
    const og_index row = (og_index)blockIdx.x * (blockDim.x / lanes) + threadIdx.x / lanes;
    og_admit_next();
    if (row == 0 && lane == 0)
        *(uint32_t *)a.any_redo = 0;
    if (row >= a.split_rows)
        return;
    const og_element *x = og_x_row(a, row);
    const bool aligned = og_is_by_fours(x, a.x_k);
    for (og_index k = 4 * lane; k < a.k_padded; k += 4 * lanes)
        og_place_four(a, row, k, og_load_four(x, a.x_k, aligned, k, a.k, 0.0f));
}
