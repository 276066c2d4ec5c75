/* SPDX-License-Identifier: MIT */
/*
 * float32 logarithms, and what is made of them.  In the manner of scalar_f32.h, which includes
 * this file.
 */
#ifndef OG_MATH_SCALAR_LOGARITHMS_F32_H
#define OG_MATH_SCALAR_LOGARITHMS_F32_H

#include "math/scalar_base.h"

/*
 * log(1 + f) = f + f^2 p(f), sqrt(1/2) - 1 <= f <= sqrt(2) - 1, degree 8,
 * relative error 2^-27.7.  tools/fit_poly.py log
 */
OG_FN float og_log_p_f32(float f)
{
    float f2 = f * f, f4 = f2 * f2;
    float p0 = og_fma_near_f32(0x1.555550p-2f, f, -0x1.fffff8p-2f);
    float p1 = og_fma_near_f32(0x1.99a3f6p-3f, f, -0x1.000426p-2f);
    float p2 = og_fma_near_f32(0x1.2271aep-3f, f, -0x1.542788p-3f);
    float p3 = og_fma_near_f32(0x1.084814p-3f, f, -0x1.0f3766p-3f);
    float low = og_fma_near_f32(p1, f2, p0);
    float high = og_fma_near_f32(p3, f2, p2);
    high = og_fma_near_f32(-0x1.382f60p-4f, f4, high);
    return og_fma_near_f32(high, f4, low);
}

/* k ln 2 + log(1 + f + fl), fl a rounding error of f. */
OG_FN float og_log_sum_f32(float k, float f, float fl)
{
    float kh = k * OG_LN2_HI15_F32;
    float hi = kh + f;
    float lo = (kh - hi) + f;
    float low = og_fma_near_f32(k, OG_LN2_LO15_F32, fl);
    return hi + (lo + og_fma_near_f32(f * f, og_log_p_f32(f), low));
}

/* x = 2^k (1 + f), x positive and finite; f as og_log_p_f32() takes it. */
typedef struct {
    float k, f;
} og_log_parts_f32;

OG_FN og_log_parts_f32 og_log_split_f32(float x)
{
    float scaled = x < 0x1p-126f ? x * 0x1p23f : x;
    float bias = x < 0x1p-126f ? -23.0f : 0.0f;
    uint32_t u = og_bits_f32(scaled) - 0x3f3504f3u;
    int32_t k = (int32_t)u >> 23;
    float m = og_float_bits((u & 0x007fffffu) + 0x3f3504f3u);
    og_log_parts_f32 p;
    p.k = (float)k + bias;
    p.f = m - 1.0f;
    return p;
}

/* y, a logarithm of x, but what it is where x is not positive and finite. */
OG_FN float og_log_special_f32(float x, float y)
{
    y = x < OG_INF_F32 ? y : x;
    y = x == 0.0f ? -OG_INF_F32 : y;
    return x < 0.0f ? OG_NAN_F32 : y;
}

OG_FN float og_log_f32(float x)
{
    og_log_parts_f32 p = og_log_split_f32(x);
    return og_log_special_f32(x, og_log_sum_f32(p.k, p.f, 0.0f));
}

/* 0 where x is, whatever log y is; but a NaN y comes through. */
OG_FN float og_xlogy_f32(float x, float y)
{
    float z = x * og_log_f32(y);
    z = x == 0.0f ? 0.0f : z;
    return y == y ? z : y;
}

/*
 * whole + part + log_b(1 + f), high + low = 1/ln b, where whole + part is k log_b 2.
 * log(1 + f) = f - f^2/2 + f^3 p(f), the first two exact as a pair: degree 8, relative
 * error 2^-30.0.  tools/fit_poly.py log_base
 */
OG_FN float og_log_base_f32(float whole, float part, float f, float high, float low)
{
    float s = f * f, s2 = s * s;
    float p0 = og_fma_near_f32(-0x1.000008p-2f, f, 0x1.555548p-2f);
    float p1 = og_fma_near_f32(-0x1.555c1ep-3f, f, 0x1.99a4aap-3f);
    float p2 = og_fma_near_f32(-0x1.fc2208p-4f, f, 0x1.233740p-3f);
    float p3 = og_fma_near_f32(-0x1.de3be8p-4f, f, 0x1.e6f05ep-4f);
    float p = og_fma_near_f32(p1, s, p0);
    float q = og_fma_near_f32(p3, s, p2);
    p = og_fma_near_f32(og_fma_near_f32(0x1.145782p-4f, s2, q), s2, p);
    float half = 0.5f * s, half_low = 0.5f * og_fma_near_f32(f, f, -s);
    float h = f - half;
    float hl = og_fma_near_f32(f * s, p, ((f - h) - half) - half_low);
    float g = h * high;
    float gl = og_fma_near_f32(h, low, og_fma_near_f32(h, high, -g));
    gl = og_fma_near_f32(hl, high, gl);
    float sum = whole + g;
    return sum + (((whole - sum) + g) + (part + gl));
}

OG_FN float og_log2_f32(float x)
{
    og_log_parts_f32 p = og_log_split_f32(x);
    return og_log_special_f32(x, og_log_base_f32(p.k, 0.0f, p.f, 0x1.715476p+0f, 0x1.4ae0c0p-26f));
}

/* log10 2 as 16 bits, of which k takes an exact multiple, and the rest. */
OG_FN float og_log10_f32(float x)
{
    og_log_parts_f32 p = og_log_split_f32(x);
    return og_log_special_f32(x, og_log_base_f32(p.k * 0x1.3442p-2f, p.k * -0x1.95ec10p-19f, p.f,
                                                 0x1.bcb7b2p-2f, -0x1.5b235ep-27f));
}

/* 1 + x = 2^k (1 + f): f = x 2^-k + (2^-k - 1), as a pair. */
OG_FN float og_log1p_f32(float x)
{
    uint32_t u = og_bits_f32(1.0f + x) - 0x3f3504f3u;
    int32_t k = (int32_t)u >> 23;
    float s4 = og_float_bits(0x40800000u - (u & 0xff800000u));
    float a = (x * s4) * 0.25f;
    float b = og_fma_near_f32(0.25f, s4, -1.0f);
    float f = a + b;
    float t = f - a;
    float fl = (a - (f - t)) + (b - t);
    fl = og_fma_near_f32(-f, fl, fl);
    float y = og_log_sum_f32((float)k, f, fl);
    y = x < OG_INF_F32 ? y : x;
    y = x == 0.0f ? x : y;
    y = x == -1.0f ? -OG_INF_F32 : y;
    return x < -1.0f ? OG_NAN_F32 : y;
}

/* -(t log x + (1 - t) log(1 - x)), logarithms at least -100: as PyTorch's CPU rounds it. */
OG_FN float og_cross_entropy_f32(float x, float target)
{
    float low = og_at_least_f32(og_log1p_f32(-x), -100.0f);
    float high = og_at_least_f32(og_log_f32(x), -100.0f);
    return (target - 1.0f) * low - target * high;
}

#endif
