/* SPDX-License-Identifier: MIT
 *
 * cuda_tensor_split.cuh - x as pairs of float16, for products on tensor cores: a block a row.
 *
 * A row is scaled by a power of two that brings its greatest magnitude into [2^14, 2^15);
 * hi = float16(scaled), lo = float16(scaled - hi). What both lose is below 2^-40 of the
 * row's greatest, so that elements above 2^-19 of it have float32's accuracy, 2^-21 at
 * least. A row of which more than 1 in OG_FEW nonzero elements lie below, or that is not
 * finite, or whose greatest is below 2^-112, cannot be held like this: its scale is NaN, and
 * cuda_tensor_redo.cuh computes it.
 *
 * Scratch: a.x_pairs, rows in tiles of OG_SPLIT_ROWS: those of hi, then those of lo,
 * a.k_padded each, with zeros from a.k on.
 *
 * PARAMETERS
 *   OG_SPLIT_ROWS      rows of a tile
 *   OG_SPLIT_SHUFFLES  1: in each 16 of k, 4t and 4t+1 are at 2t, 4t+2 and 4t+3 at 2t+8: what
 *                      a thread of a tensor-core product holds is then four neighbours of w
 */
enum { OG_SPLIT_THREADS = 512, OG_FEW = 64 }; /* at most; a launch may have fewer */

/* The sum, or (greatest) the greatest, of a block's numbers; every thread's. */
OG_FN uint32_t og_meet_block(uint32_t x, bool greatest)
{
    __shared__ uint32_t met[OG_SPLIT_THREADS / 32];
#pragma unroll
    for (int delta = 16; delta; delta /= 2) {
        uint32_t other = __shfl_xor_sync(0xffffffffu, x, delta);
        x = !greatest ? x + other : x > other ? x : other;
    }
    if (threadIdx.x % 32 == 0)
        met[threadIdx.x / 32] = x;
    __syncthreads();
    x = met[0];
    for (int w = 1; w < (int)blockDim.x / 32; w++)
        x = !greatest ? x + met[w] : x > met[w] ? x : met[w];
    __syncthreads(); /* before the next one writes */
    return x;
}

OG_KERNEL(og_split, OG_SPLIT_THREADS)
{
    const og_index row = (og_index)blockIdx.x;
    const og_element *x = og_x_row(a, row);
    const bool aligned = og_is_by_fours(x, a.x_k);
    uint32_t most = 0, small = 0, zeros = 0; /* bits of the greatest: NaN above inf */
    if (row == 0 && threadIdx.x == 0)
        *(uint32_t *)a.any_redo = 0;
    for (og_index k = 4 * threadIdx.x; k < a.k; k += 4 * blockDim.x) {
        og_four v = og_load_four(x, a.x_k, aligned, k, a.k, 0.0f);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t bits = og_bits_f32(v.e[i]) & 0x7fffffffu;
            most = bits > most ? bits : most;
        }
    }
    most = og_meet_block(most, true);
    uint32_t exponent = most & 0x7f800000u;
    bool holds = most == 0 || (exponent >= 0x07800000u && exponent < 0x7f800000u);
    float scale = holds && most ? og_float_bits(0x86000000u - exponent) : 1.0f;
    float inverse = holds && most ? og_float_bits(exponent - 0x07000000u) : 1.0f;
    float least = og_float_bits(most) * scale * 0x1p-19f;

    int64_t tile = (int64_t)(row / OG_SPLIT_ROWS), in_tile = (int64_t)(row % OG_SPLIT_ROWS);
    uint32_t *hi = (uint32_t *)a.x_pairs + (tile * 2 * OG_SPLIT_ROWS + in_tile) * (a.k_padded / 2);
    uint32_t *lo = hi + OG_SPLIT_ROWS * (int64_t)(a.k_padded / 2);
    for (og_index k = 4 * threadIdx.x; k < a.k_padded; k += 4 * blockDim.x) {
        og_four v = og_load_four(x, a.x_k, aligned, k, a.k, 0.0f);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            zeros += v.e[i] == 0.0f;
            v.e[i] = v.e[i] * scale;
            small += og_float_bits(og_bits_f32(v.e[i]) & 0x7fffffffu) < least;
        }
        og_index at = OG_SPLIT_SHUFFLES ? k / 16 * 8 + k % 16 / 4 : k / 2; /* in pairs */
        og_index next = at + (OG_SPLIT_SHUFFLES ? 4 : 1);
        og_split_pair(v.e[0], v.e[1], hi[at], lo[at]);
        og_split_pair(v.e[2], v.e[3], hi[next], lo[next]);
    }
    zeros = og_meet_block(zeros, false);
    small = og_meet_block(small, false); /* zeros too */
    uint32_t nonzero = (uint32_t)a.k_padded - zeros;
    holds = holds && (most == 0 || (uint64_t)(small - zeros) * OG_FEW <= nonzero);
    if (threadIdx.x == 0)
        ((float *)a.x_scales)[row] = holds ? inverse : OG_NAN_F32;
}
