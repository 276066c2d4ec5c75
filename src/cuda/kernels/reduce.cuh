/* SPDX-License-Identifier: MIT
 *
 * reduce.cuh - what bodies that reduce share. Their orders are plan.h's ORDER.
 */
#include "cuda/kernels/prologue.cuh"

enum { OG_CHUNK = 16384, OG_RUN = 64 };

struct og_none {}; /* the peaks of sums that need none */

/* What sumexp subtracts: the greatest element, or 0 if that is infinite. */
OG_FN float og_shift(float m)
{
    return (og_bits_f32(m) & 0x7fffffffu) == 0x7f800000u ? 0.0f : m;
}

OG_FN double og_shift(double m)
{
    return (og_bits_f64(m) & 0x7fffffffffffffffull) == 0x7ff0000000000000ull ? 0.0 : m;
}

/* The greater of two, NaN if one is; of two zeros either one: og_maximum_f32, which minds, takes
 * four instructions. */
OG_FN float og_peak_f32(float a, float b)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
#else
    return og_maximum_f32(a, b);
#endif
}

/* The greater of two, NaN if one is; of two zeros +0. */
OG_FN float og_greatest_f32(float a, float b)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    return og_peak_f32(a, b);
#else
    float most = og_maximum_f32(a, b);
    return most == 0.0f ? og_float_bits(og_bits_f32(a) & og_bits_f32(b)) : most;
#endif
}

/* ---- terms of sumexp ------------------------------------------------------------------- */

/* og_exp_f32 of x <= 0, or NaN, in 14 instructions. */
OG_FN float og_fall_f32(float x)
{
    return og_exp_scaled_f32(og_peak_f32(x, -104.0f), OG_MAGIC_DOWN_F32) * 0x1p-64f;
}

/* The sum of exp(x - og_shift(m)), where sum is that of exp(x - m), which is NaN if m, the
 * greatest x, is infinite. */
template <class T> OG_FN T og_mend(T sum, T m)
{
    T infinite = m > (T)0 ? m : (T)0;
    return og_shift(m) == m || m != m ? sum : infinite;
}

/* s[0] = the tree of neighbours over s[0 .. n), n a power of two. */
template <class P, int n> OG_FN void og_grow_tree(typename P::sums *s)
{
#pragma unroll
    for (int width = 1; width < n; width *= 2)
#pragma unroll
        for (int i = 0; i < n; i += 2 * width)
            P::merge(s[i], s[i + width]);
}

/* The tree over a warp's first `width` threads, or groups of as many; right in the
 * first thread of each. */
template <class P, int width> OG_FN void og_grow_over_warp(typename P::sums &s)
{
#pragma unroll
    for (int delta = 1; delta < width; delta *= 2)
        P::merge(s, P::down(s, delta, width));
}

/* The tree over the sums of a group of warps, each right in its first thread; the result
 * is right in every thread of the group. A block has `groups` of them, and has to wait for all
 * its threads before it does the same again. */
template <class P, int warps, int groups = 1>
OG_FN typename P::sums og_grow_over_block(const typename P::sums &s)
{
    __shared__ typename P::sums shared[warps * groups];
    typename P::sums all[warps];
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = s;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < warps; w++)
        all[w] = shared[groups > 1 ? threadIdx.x / (32 * warps) * warps + w : w];
    og_grow_tree<P, warps>(all);
    return all[0];
}
