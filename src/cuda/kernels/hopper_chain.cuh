/* SPDX-License-Identifier: MIT
 *
 * hopper_chain.cuh - 64 k of a float32 product on Hopper's tensor cores, of which a thread has its
 * part of the left factor in registers.
 *
 * With v s = hi + lo (v scaled by a power of two s, hi and lo float16), x w is hi hi + hi lo +
 * lo hi up to 2^-22: three tensor-core products whose sum is kept in float32. Each 64 k of a row
 * of the left factor take the power of two that brings their greatest magnitude into [2^14, 2^15).
 * Tensor cores truncate what they add, so a chain of products is 64 k long, its small terms first;
 * then the float32 sum takes it, with that scale undone.
 *
 * PARAMETERS
 *   OG_BM       columns of the right factor: 32, 64 or 128; OG_WIDTH is the same
 */
#include "cuda/kernels/pairs.cuh"
#include "cuda/kernels/hopper_ring.cuh"
#include "cuda/kernels/hopper_ptx.cuh"

enum { OG_X_BOX_BYTES = 2 * OG_BM * 64 * 2 }; /* a box of x: OG_BM rows of 64 hi, then of lo */

/* Row i of a thread's, from its first. */
OG_FN constexpr int og_row_of(int i)
{
    return i / 2 * 8 + i % 2;
}

/* Which (bit i) of a thread's rows are there, if it has `left` rows from its first to the last. */
OG_FN uint32_t og_rows_there(og_index left)
{
    const int rows = left < 0 ? 0 : left > OG_BM ? OG_BM : (int)left;
    const uint32_t even = (uint32_t)((1ull << (rows + 7) / 8 * 2) - 1);
    const uint32_t odd = (uint32_t)((1ull << (rows + 6) / 8 * 2) - 1);
    return (even & 0x55555555u) | (odd & 0xaaaaaaaau);
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

OG_FN void og_release_stage(uint32_t barrier)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        og_barrier_arrive(barrier);
}

/* A thread's part of a block of 64 k: registers of 4 steps of 16 k; what undoes the scales of its
 * two rows. */
struct og_fragment {
    uint32_t hi[16], lo[16];
    float undo[2];
};

/* v: [step][row], four k each. Four neighbouring threads have the block's k of these rows. */
OG_FN void og_split_block(const og_four (&v)[4][2], og_fragment &f)
{
    float scale[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float m = 0.0f;
#pragma unroll
        for (int k = 0; k < 4; k++)
            m = og_greatest(m, v[k][i]);
        m = og_greater(m, __shfl_xor_sync(0xffffffffu, m, 1));
        m = og_greater(m, __shfl_xor_sync(0xffffffffu, m, 2));
        og_find_scale(m, scale[i], f.undo[i]);
    }
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *pair = &v[k][i % 2].e[i / 2 * 2];
            og_split_scaled(pair[0], pair[1], scale[i % 2], f.hi[4 * k + i], f.lo[4 * k + i]);
        }
}

/* Starts the products of a block: small terms first. */
OG_FN void og_multiply_block(og_held &chain, const og_fragment &f, uint32_t x)
{
    uint64_t hi = og_describe<0>(x), lo = og_describe<0>(x + OG_X_BOX_BYTES / 2);
    og_pin(chain);
    og_products_fence();
    og_multiply_16<0>(chain, f.lo, hi);
    og_multiply_16<1>(chain, f.hi, lo);
#pragma unroll
    for (int k = 1; k < 4; k++) {
        og_multiply_16<1>(chain, f.lo + 4 * k, hi + 2 * k);
        og_multiply_16<1>(chain, f.hi + 4 * k, lo + 2 * k);
    }
#pragma unroll
    for (int k = 0; k < 4; k++)
        og_multiply_16<1>(chain, f.hi + 4 * k, hi + 2 * k);
    og_products_commit();
}

OG_FN void og_add_scaled_chain(og_held &sum, const og_held &chain, const og_fragment &f)
{
#pragma unroll
    for (int i = 0; i < OG_HELD; i++)
        sum[i] = fmaf(chain[i], f.undo[i / 2 % 2], sum[i]);
}

#endif
