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
 * Wide rows of the right factor (pairs.cuh) are multiplied apart from others.
 *
 * OG_TF32: both factors are rounded to TF32 instead, which takes one product and no scales; the
 * right one was before (tf32_round.cuh).
 *
 * PARAMETERS
 *   OG_BM       columns of the right factor: 32, 64 or 128; OG_WIDTH is the same
 *   OG_TF32     if it is defined: see above
 */
#include "cuda/kernels/pairs.cuh"
#include "cuda/kernels/tf32.cuh"
#include "cuda/kernels/hopper_ring.cuh"
#include "cuda/kernels/hopper_ptx.cuh"

/* A box of x: OG_BM rows of 64 hi, then of lo; of TF32 OG_BM rows of 32 k, then of the next 32. */
enum { OG_X_BOX_BYTES = 2 * OG_BM * 64 * 2 };

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

/* Of a thread's two columns of w, what it has found in its k: the upper halves of the bits of the
 * greatest magnitudes; in how many blocks an element of its own was small, up to OG_COUNTED. The
 * first column's are in the lower 16 bits. */
struct alignas(8) og_findings {
    uint32_t most, quarters;
};
enum { OG_COUNTED = 0xff00 };

OG_FN uint32_t og_add_counts(uint32_t a, uint32_t b)
{
    return og_min_halves(og_add_halves(a, b), OG_COUNTED * 0x10001u);
}

#ifdef OG_TF32

/* A thread's part of a block of 64 k of the left factor: registers of 8 steps of 8 k. */
struct og_fragment {
    uint32_t e[32];
};

/* v: [step of 16 k][row], four k each, of which two steps of 8 k take two. */
template <int> OG_FN void og_split_block(const og_four (&v)[4][2], og_fragment &f, og_findings &)
{
#pragma unroll
    for (int i = 0; i < 32; i++)
        f.e[i] = og_round_tf32(v[i / 8][i % 2].e[i / 2 % 4]);
}

/* Starts the products of a block. */
template <bool, int> OG_FN void og_multiply_block(og_held &chain, const og_fragment &f, uint32_t x)
{
    const uint64_t first = og_describe<0>(x), second = og_describe<0>(x + OG_X_BOX_BYTES / 2);
    og_pin(chain);
    og_products_fence();
    og_multiply_8<0>(chain, f.e, first);
#pragma unroll
    for (int k = 1; k < 8; k++)
        og_multiply_8<1>(chain, f.e + 4 * k, (k < 4 ? first : second) + 2 * (k % 4));
    og_products_commit();
}

OG_FN void og_add_scaled_chain(og_held &sum, const og_held &chain, const og_fragment &)
{
#pragma unroll
    for (int i = 0; i < OG_HELD; i++)
        sum[i] = sum[i] + chain[i];
}

#else

/* A thread's part of a block of 64 k of the left factor: registers of 4 steps of 16 k; what undoes
 * the scales of its two rows. */
struct og_fragment {
    uint32_t hi[16], lo[16];
    float undo[2];
};

/* The first or second (h) upper half of a float. */
OG_FN float og_take_half(uint32_t both, int h)
{
    return og_float_bits(h ? both & 0xffff0000u : both << 16);
}

/* What undoes the scales of both columns of a block, as upper halves of floats. Both are looked at in
 * one register, 16 bits each, by instructions of Hopper's. No branch: a count of small elements
 * where there are any would be more exact, but ptxas then schedules less. */
template <int steps>
OG_FN uint32_t og_look_at_block(const og_four (&v)[4][2], og_findings &found)
{
    const uint32_t below = (uint32_t)OG_SMALL << 23 | (uint32_t)OG_SMALL << 7;
    uint32_t most = 0, least[2] = {0x7fff7fffu, 0x7fff7fffu}; /* two, or each waits for the last */
#pragma unroll
    for (int k = 0; k < steps; k++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const uint32_t both =
                __byte_perm(og_bits_f32(v[k][0].e[j]), og_bits_f32(v[k][1].e[j]), 0x7632) &
                0x7fff7fffu;
            most = og_max_halves(most, both);
            uint32_t &under = least[j % 2];
            under = og_min_halves(og_add_halves(both, 0xffffffffu), under); /* 0 - 1 is great */
        }
    most = og_max_halves(most, __shfl_xor_sync(0xffffffffu, most, 1));
    most = og_max_halves(most, __shfl_xor_sync(0xffffffffu, most, 2));
    found.most = og_max_halves(found.most, most);
    const uint32_t exponents = og_max_halves(most & 0x7f807f80u, 0x07800780u);
    least[0] = og_add_halves(og_min_halves(least[0], least[1]), below);
    const uint32_t under = exponents - og_min_halves(least[0], exponents);
    found.quarters = og_add_counts(found.quarters, og_min_halves(under, 0x10001u));
    return exponents;
}

/* v: [step][row], four k each. Four neighbouring threads have the block's k of these rows. Of a block
 * that has fewer steps of 16 k than 4 the others are never looked at. */
template <int steps>
OG_FN void og_split_block(const og_four (&v)[4][2], og_fragment &f, og_findings &found)
{
    const uint32_t exponents = og_look_at_block<steps>(v, found);
    float scale[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        f.undo[i] = og_take_half(exponents, i);
        scale[i] = og_find_scale(f.undo[i]);
    }
#pragma unroll
    for (int k = 0; k < steps; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *pair = &v[k][i % 2].e[i / 2 * 2];
            og_split_scaled(pair[0], pair[1], scale[i % 2], f.hi[4 * k + i], f.lo[4 * k + i]);
        }
}

/* Two float16 times 2^-11. It stays where it is: products run meanwhile. */
OG_FN uint32_t og_lower(uint32_t both)
{
#if defined(__CUDA_ARCH__)
    asm volatile("mul.rn.f16x2 %0, %1, %2;" : "=r"(both) : "r"(both), "r"(0x10001000u));
    return both;
#else
    const float low = og_f32_from_f16((uint16_t)both), high = og_f32_from_f16(both >> 16);
    return (uint32_t)og_f16_from_f32(high * 0x1p-11f) << 16 | og_f16_from_f32(low * 0x1p-11f);
#endif
}

/* The small terms of a block's products. */
template <int steps>
OG_FN void og_multiply_small(og_held &chain, const og_fragment &f, uint64_t hi, uint64_t lo)
{
    og_multiply_16<0>(chain, f.lo, hi);
    og_multiply_16<1>(chain, f.hi, lo);
#pragma unroll
    for (int k = 1; k < steps; k++) {
        og_multiply_16<1>(chain, f.lo + 4 * k, hi + 2 * k);
        og_multiply_16<1>(chain, f.hi + 4 * k, lo + 2 * k);
    }
}

/* The same with wide rows. */
OG_FN void og_multiply_small_wide(og_held &chain, const og_fragment &f, uint32_t (&down)[16],
                                  uint64_t hi, uint64_t lo)
{
    og_multiply_16<0>(chain, f.lo, hi);
#pragma unroll
    for (int k = 1; k < 4; k++)
        og_multiply_16<1>(chain, f.lo + 4 * k, hi + 2 * k);
#pragma unroll
    for (int i = 0; i < 16; i++)
        down[i] = og_lower(f.hi[i]);
    og_products_fence();
#pragma unroll
    for (int k = 0; k < 4; k++)
        og_multiply_16<1>(chain, down + 4 * k, lo + 2 * k);
}

/* Starts the products of a block: small terms first. */
template <bool is_wide, int steps>
OG_FN void og_multiply_block(og_held &chain, const og_fragment &f, uint32_t x)
{
    uint64_t hi = og_describe<0>(x), lo = og_describe<0>(x + OG_X_BOX_BYTES / 2);
    uint32_t down[16];
    og_pin(chain);
    og_products_fence();
    if constexpr (is_wide)
        og_multiply_small_wide(chain, f, down, hi, lo);
    else
        og_multiply_small<steps>(chain, f, hi, lo);
#pragma unroll
    for (int k = 0; k < steps; k++)
        og_multiply_16<1>(chain, f.hi + 4 * k, hi + 2 * k);
    og_products_commit();
}

OG_FN void og_add_scaled_chain(og_held &sum, const og_held &chain, const og_fragment &f)
{
#pragma unroll
    for (int i = 0; i < OG_HELD; i++)
        sum[i] = fmaf(chain[i], f.undo[i / 2 % 2], sum[i]);
}

/* What has been found in a column, of which each of four threads has its own k, or all. */
template <bool has_parts = true>
OG_FN og_column_loss og_weigh_found(const og_findings &found, int h)
{
    const uint32_t count = found.quarters >> 16 * h & 0xffff;
    float quarters = count == OG_COUNTED ? 0x1p30f : (float)count; /* too many to count */
    if (has_parts) {
        quarters += __shfl_xor_sync(0xffffffffu, quarters, 1);
        quarters += __shfl_xor_sync(0xffffffffu, quarters, 2);
    }
    return og_weigh_column(found.most >> 16 * h & 0xffff, quarters);
}

#endif
#endif
