/* SPDX-License-Identifier: MIT */
/*
 * What the scalar functions stand on: OG_FN, bit casts, one fused multiply-add.
 *
 * scalar_base.h, scalar_f32.h, scalar_f64.h and half.h are one text for every
 * device: a C compiler vectorises loops over these functions for each CPU
 * level, and the same files are handed to NVRTC as strings.  Hence no include
 * that NVRTC would see, no attribute except through OG_FN, no data-dependent
 * branch and no libm call in the float32 functions beyond fmaf, fabsf, sqrtf.
 *
 * Same bits everywhere rests on: -ffp-contract=off (CUDA: --fmad=false), no
 * fast-math, no flush-to-zero, IEEE division and square root (NVRTC's defaults).
 */
#ifndef OG_MATH_SCALAR_BASE_H
#define OG_MATH_SCALAR_BASE_H

#if defined(__CUDACC_RTC__)
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#endif

#ifndef __CUDACC_RTC__
#include <math.h>
#include <stdint.h>
#include <string.h>
#endif

#if defined(__CUDACC_RTC__) || defined(__CUDACC__)
#define OG_FN static __device__ __forceinline__
#elif defined(__GNUC__)
#define OG_FN static inline __attribute__((always_inline, unused))
#else
#define OG_FN static inline
#endif

#if defined(__CUDACC_RTC__) || defined(__CUDACC__)
#define og_bits_f32(x) __float_as_uint(x)
#define og_float_bits(u) __uint_as_float(u)
#define og_bits_f64(x) (uint64_t)__double_as_longlong(x)
#define og_double_bits(u) __longlong_as_double((long long)(u))
#else
OG_FN uint32_t og_bits_f32(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

OG_FN float og_float_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

OG_FN uint64_t og_bits_f64(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

OG_FN double og_double_bits(uint64_t u)
{
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}
#endif

/*
 * a*b + c rounded once, without the instruction.  The product is exact in
 * double.  The sum is rounded to odd: s and e are the sum and its rounding
 * error; where e is not zero the truncated sum gets its last bit set, so that
 * the conversion to float sees on which side of a midpoint the exact value
 * lies (53 >= 24 + 2 bits).  An infinite or NaN sum (its e is NaN) stays as it
 * is.  All in 64-bit integer operations that SSE2 has: with comparisons gcc 12
 * does not vectorise it.
 */
OG_FN float og_fma_emulated_f32(float a, float b, float c)
{
    double p = (double)a * (double)b;
    double d = (double)c;
    double s = p + d;
    double t = s - p;
    double e = (p - (s - t)) + (d - t);
    uint64_t u = og_bits_f64(s);
    uint64_t v = og_bits_f64(e);
    uint64_t magnitude = v << 1;
    uint64_t special = ((u & 0x7ff0000000000000u) + 0x0010000000000000u) >> 63;
    uint64_t inexact = ((magnitude | (0 - magnitude)) >> 63) & (special ^ 1);
    uint64_t opposite = ((u ^ v) >> 63) & inexact;
    return (float)og_double_bits((u - opposite) | inexact);
}

/*
 * og_fma_f32(): a*b + c rounded once, on every machine. og_fma_near_f32(): the same with the
 * instruction; without it rounded twice (to double, then to float), which differs in the last
 * bit about once in 10^7 and is three times as fast.  For functions of one float only, checked
 * on all of them.
 */
#if defined(__CUDACC_RTC__) || defined(__CUDACC__)
#define og_fma_f32(a, b, c) __fmaf_rn(a, b, c)
#define og_fma_near_f32(a, b, c) __fmaf_rn(a, b, c)
#elif defined(__FMA__) || defined(__aarch64__)
OG_FN float og_fma_f32(float a, float b, float c)
{
    return fmaf(a, b, c);
}

OG_FN float og_fma_near_f32(float a, float b, float c)
{
    return fmaf(a, b, c);
}
#else
OG_FN float og_fma_f32(float a, float b, float c)
{
    return og_fma_emulated_f32(a, b, c);
}

OG_FN float og_fma_near_f32(float a, float b, float c)
{
    return (float)((double)a * (double)b + (double)c);
}
#endif

/*
 * The smaller of |x| and limit; of a NaN, limit or NaN: og_restore_nan_f32() brings it back.
 * An integer minimum is one short instruction in every vector unit; gcc 12 makes two long
 * ones of a comparison of floats that keeps a NaN (sigmoid: 0.44 against 0.39 ns an
 * element, Zen 4).  A GPU has one for that comparison, |x| included.
 */
#ifdef __CUDA_ARCH__
#define og_magnitude_f32(x, limit) (fabsf(x) > (limit) ? (limit) : fabsf(x))
#else
OG_FN float og_magnitude_f32(float x, float limit)
{
    uint32_t u = og_bits_f32(x) & 0x7fffffffu;
    uint32_t most = og_bits_f32(limit);
    return og_float_bits(u < most ? u : most);
}
#endif

/*
 * y, but NaN where x is, if og_magnitude_f32() loses it (a GPU's does not); else y is to meet what
 * that made.
 */
#ifdef __CUDA_ARCH__
#define og_restore_nan_f32(x, y) (y)
#else
OG_FN float og_restore_nan_f32(float x, float y)
{
    return x == x ? y : x;
}
#endif

/*
 * 1 / x rounded to nearest, where 2^-100 < |x| < 2^100 (or x is NaN).  What a GPU's own
 * division does there, without the branch to all else: sums of 4096 sigmoids on an H200
 * 485 -> 390 us.
 */
OG_FN float og_reciprocal_normal_f32(float x)
{
#ifdef __CUDA_ARCH__
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return __fmaf_rn(y, __fmaf_rn(-x, y, 1.0f), y);
#else
    return 1.0f / x;
#endif
}

/*
 * a / b rounded to nearest, where 2^-60 < |b| < 2^60 and a is +0 or 2^-60 < |a| < 2^60 (or one is
 * NaN).  What a GPU's own division does there, without the branch to all else, across which nothing
 * is computed at once: that counts where few warps run, as at the end of a convolution's tile.
 */
OG_FN float og_divide_normal_f32(float a, float b)
{
#ifdef __CUDA_ARCH__
    float r = og_reciprocal_normal_f32(b);
    float y = a * r;
    y = __fmaf_rn(r, __fmaf_rn(-b, y, a), y);
    return __fmaf_rn(r, __fmaf_rn(-b, y, a), y);
#else
    return a / b;
#endif
}

/*
 * a / b rounded to nearest, high + low being 1 / b to 105 bits, |high| < 1 / |b| and low not 0: x (high +
 * low) is rounded to a double, whose error of 2^-52 no quotient of floats is that near to where
 * rounding to float changes (2^-49), but for those that are there, and exact.  Infinities and zeros have the
 * sign of either part.  On GPUs that compute in double at half the speed of float: no branch.
 */
OG_FN float og_divide_by_f32(float a, float b, double high, double low)
{
#if defined(__CUDA_ARCH__) &&                                                                      \
    (__CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000)
    (void)b;
    return (float)__fma_rn((double)a, high, __dmul_rn((double)a, low));
#else
    (void)high;
    (void)low;
    return a / b;
#endif
}

#endif
