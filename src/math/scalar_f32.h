/* SPDX-License-Identifier: MIT */
/*
 * float32 functions: branch-free, explicit fused multiply-adds, no libm beyond
 * fmaf, fabsf and sqrtf, so that a plain loop over any of them vectorises and
 * gives the same bits on every CPU level and under NVRTC.  Specials are
 * PyTorch's (CPU).  accuracy.def holds the largest error of each function over
 * all 2^32 inputs; tools/fit_poly.py NAME prints the polynomial called NAME.
 *
 * Multiply-adds are og_fma_near_f32, whose two roundings on a CPU without the
 * instruction were found to change no result over all 2^32 inputs (accuracy.def's
 * hashes, which every level must give): after any change, check again.
 *
 * Conventions inside: a = |x|; a pair (hi, lo) is an unevaluated sum; a clamp
 * is written so that NaN falls through it.
 */
#ifndef OG_MATH_SCALAR_F32_H
#define OG_MATH_SCALAR_F32_H

#include "math/scalar_base.h"

#define OG_LOG2E_F32 0x1.715476p+0f
/* ln 2 = HI + LO; n*HI + x is exact in one fma when n = round(-x log2 e). */
#define OG_LN2_HI_F32 0x1.62e430p-1f
#define OG_LN2_LO_F32 -0x1.05c610p-29f
/* ln 2 = HI15 + LO15, where k*HI15 is exact for |k| <= 256. */
#define OG_LN2_HI15_F32 0x1.62e400p-1f
#define OG_LN2_LO15_F32 0x1.7f7d1cp-20f
#define OG_INF_F32 og_float_bits(0x7f800000u)
#define OG_NAN_F32 og_float_bits(0x7fc00000u)

/* ---- selects: `where` and everything that is only a comparison ---- */

OG_FN uint32_t og_lt_f32(float a, float b)
{
    return a < b ? 0xffffffffu : 0u;
}

OG_FN uint32_t og_le_f32(float a, float b)
{
    return a <= b ? 0xffffffffu : 0u;
}

OG_FN uint32_t og_gt_f32(float a, float b)
{
    return a > b ? 0xffffffffu : 0u;
}

OG_FN uint32_t og_ge_f32(float a, float b)
{
    return a >= b ? 0xffffffffu : 0u;
}

OG_FN uint32_t og_eq_f32(float a, float b)
{
    return a == b ? 0xffffffffu : 0u;
}

OG_FN uint32_t og_ne_f32(float a, float b)
{
    return a != b ? 0xffffffffu : 0u;
}

OG_FN uint32_t og_truth_f32(float a, float b)
{
    return a != b ? 0xffffffffu : 0u;
}

OG_FN float og_where_f32(uint32_t mask, float a, float b)
{
    return mask ? a : b;
}

OG_FN float og_add_f32(float a, float b)
{
    return a + b;
}

OG_FN float og_sub_f32(float a, float b)
{
    return a - b;
}

OG_FN float og_mul_f32(float a, float b)
{
    return a * b;
}

OG_FN float og_div_f32(float a, float b)
{
    return a / b;
}

/* A NaN on either side comes through; b wins between equals (-0 and 0). */
OG_FN float og_minimum_f32(float a, float b)
{
    float least = a < b ? a : b;
    return a != a ? a : least;
}

OG_FN float og_maximum_f32(float a, float b)
{
    float most = a > b ? a : b;
    return a != a ? a : most;
}

OG_FN float og_neg_f32(float x)
{
    return -x;
}

OG_FN float og_abs_f32(float x)
{
    return fabsf(x);
}

OG_FN float og_square_f32(float x)
{
    return x * x;
}

OG_FN float og_reciprocal_f32(float x)
{
    return 1.0f / x;
}

OG_FN float og_sqrt_f32(float x)
{
    return sqrtf(x);
}

OG_FN float og_rsqrt_f32(float x)
{
    return 1.0f / sqrtf(x);
}

OG_FN float og_relu_f32(float x)
{
    return x < 0.0f ? 0.0f : x;
}

/* x itself where it equals a bound (-0); a NaN bound gives NaN. */
OG_FN float og_clamp_f32(float x, float lo, float hi)
{
    float y = x < lo ? lo : x;
    y = y > hi ? hi : y;
    y = lo == lo ? y : lo;
    return hi == hi ? y : hi;
}

/* The same of bounds that are no NaN. */
OG_FN float og_clamp_ordered_f32(float x, float lo, float hi)
{
    float y = x < lo ? lo : x;
    return y > hi ? hi : y;
}

/* The same of one bound that is a tensor's. */
OG_FN float og_at_least_f32(float x, float lo)
{
    float y = x < lo ? lo : x;
    return lo == lo ? y : lo;
}

OG_FN float og_at_most_f32(float x, float hi)
{
    float y = x > hi ? hi : x;
    return hi == hi ? y : hi;
}

/* A true division by six: PyTorch's CPU bits (its CUDA kernel multiplies). */
OG_FN float og_hardsigmoid_f32(float x)
{
    float y = x + 3.0f;
    y = y < 0.0f ? 0.0f : y;
    y = y > 6.0f ? 6.0f : y;
    return og_divide_normal_f32(y, 6.0f); /* y is 0 or at least 2^-22 */
}

OG_FN float og_leaky_relu_f32(float x, float slope)
{
    return x > 0.0f ? x : x * slope;
}

OG_FN float og_threshold_f32(float x, float threshold, float value)
{
    return x <= threshold ? value : x;
}

OG_FN float og_hardshrink_f32(float x, float lambd)
{
    return ((x >= -lambd) & (x <= lambd)) ? 0.0f : x;
}

OG_FN float og_softshrink_f32(float x, float lambd)
{
    float y = x > lambd ? x - lambd : 0.0f;
    y = x < -lambd ? x + lambd : y;
    return x == x ? y : x;
}

/* ---- exponentials ---- */

/*
 * e^r = 1 + r + r^2 q(r), |r| <= ln 2 / 2, degree 4, relative error 2^-28.2.
 * tools/fit_poly.py exp (this fit is an older one of the same quality: it pins sigmoid's bits)
 */
OG_FN float og_exp_q_f32(float r)
{
    float r2 = r * r;
    return og_fma_near_f32(
        og_fma_near_f32(0x1.6ac682p-10f, r2, og_fma_near_f32(0x1.123ddep-7f, r, 0x1.555858p-5f)),
        r2, og_fma_near_f32(0x1.55548cp-3f, r, 0x1.fffffcp-2f));
}

/* The same, degree 5, relative error 2^-31.8.  tools/fit_poly.py exp5 */
OG_FN float og_exp_q5_f32(float r)
{
    float r2 = r * r;
    float q0 = og_fma_near_f32(0x1.555554p-3f, r, 0x1.000000p-1f);
    float q1 = og_fma_near_f32(0x1.111272p-7f, r, 0x1.5554aap-5f);
    float q2 = og_fma_near_f32(0x1.9f02c0p-13f, r, 0x1.6d945cp-10f);
    return og_fma_near_f32(og_fma_near_f32(q2, r2, q1), r2, q0);
}

/* e^(x + xl) = 2^n (1 + rh + w), 2^n = scale times what the caller put into magic. */
typedef struct {
    float scale, rh, w;
} og_exp_parts_f32;

/*
 * magic = 1.5*2^23 + b: the sum x log2 e + magic has n + b in its last bits, and
 * those, shifted into the exponent field, are 2^(n + b - 127).  b = 127 + 64, 127, 126
 * and 127 - 64: room for n = -190..63, -126..127, ...
 */
#define OG_MAGIC_DOWN_F32 0x1.80017ep23f
#define OG_MAGIC_ONE_F32 0x1.8000fep23f
#define OG_MAGIC_HALF_F32 0x1.8000fcp23f
#define OG_MAGIC_UP_F32 0x1.80007ep23f

OG_FN og_exp_parts_f32 og_exp_split_f32(float x, float xl, float magic)
{
    og_exp_parts_f32 p;
    float nf = og_fma_near_f32(x, OG_LOG2E_F32, magic);
    float n = nf - magic;
    p.scale = og_float_bits(og_bits_f32(nf) << 23);
    p.rh = og_fma_near_f32(n, -OG_LN2_HI_F32, x);
    float rl = og_fma_near_f32(n, -OG_LN2_LO_F32, xl);
    float r = p.rh + rl;
    p.w = og_fma_near_f32(r * r, og_exp_q5_f32(r), rl);
    return p;
}

/*
 * e^z 2^k, -104 <= z <= 89 or NaN, k as magic has it: 6 multiply-adds after each other lose
 * less than 0.4 ULP, for half the instructions of og_exp_split_f32() and the sum of its parts.
 */
OG_FN float og_exp_scaled_f32(float z, float magic)
{
    float nf = og_fma_near_f32(z, OG_LOG2E_F32, magic);
    float n = nf - magic;
    float r = og_fma_near_f32(n, -OG_LN2_HI_F32, z);
    r = og_fma_near_f32(n, -OG_LN2_LO_F32, r);
    float p = og_fma_near_f32(0x1.6ac682p-10f, r, 0x1.123ddep-7f); /* og_exp_q_f32's */
    p = og_fma_near_f32(p, r, 0x1.555858p-5f);
    p = og_fma_near_f32(p, r, 0x1.55548cp-3f);
    p = og_fma_near_f32(p, r, 0x1.fffffcp-2f);
    p = og_fma_near_f32(p, r, 1.0f);
    p = og_fma_near_f32(p, r, 1.0f);
    return p * og_float_bits(og_bits_f32(nf) << 23);
}

OG_FN float og_exp_f32(float x)
{
    int32_t i = (int32_t)og_bits_f32(x); /* -104 <= z <= 89, as og_magnitude_f32 */
    i = i < 0x42b20000 ? i : 0x42b20000;
    uint32_t u = (uint32_t)i;
    float z = og_float_bits(u < 0xc2d00000u ? u : 0xc2d00000u);
    float magic = x < 0.0f ? OG_MAGIC_DOWN_F32 : OG_MAGIC_UP_F32;
    float rest = x < 0.0f ? 0x1p-64f : 0x1p64f;
    float y = og_exp_scaled_f32(z, magic) * rest;
    return x == x ? y : x;
}

/*
 * 2^x = 2^n (1 + r p(r)), n = round(x): degree 6, relative error 2^-30.6.
 * tools/fit_poly.py exp2
 */
OG_FN float og_exp2_f32(float x)
{
    int32_t i = (int32_t)og_bits_f32(x); /* -152 <= z <= 128, as og_magnitude_f32 */
    i = i < 0x43000000 ? i : 0x43000000;
    uint32_t u = (uint32_t)i;
    float z = og_float_bits(u < 0xc3180000u ? u : 0xc3180000u);
    float magic = x < 0.0f ? OG_MAGIC_DOWN_F32 : OG_MAGIC_UP_F32;
    float rest = x < 0.0f ? 0x1p-64f : 0x1p64f;
    float nf = z + magic;
    float r = z - (nf - magic);
    float p = og_fma_near_f32(0x1.fde5bcp-17f, r, 0x1.445ca6p-13f);
    p = og_fma_near_f32(p, r, 0x1.5d8a78p-10f);
    p = og_fma_near_f32(p, r, 0x1.3b2a18p-7f);
    p = og_fma_near_f32(p, r, 0x1.c6b086p-5f);
    p = og_fma_near_f32(p, r, 0x1.ebfbe0p-3f);
    p = og_fma_near_f32(p, r, 0x1.62e430p-1f);
    p = og_fma_near_f32(p, r, 1.0f);
    float y = (p * og_float_bits(og_bits_f32(nf) << 23)) * rest;
    return x == x ? y : x;
}

/* h = 2^(n-1): e^x - 1 = 2 ((h - 1/2) + h rh + h w), the first sum exact as a pair. */
OG_FN float og_expm1_f32(float x)
{
    float z = x < -30.0f ? -30.0f : x;
    z = z > 89.0f ? 89.0f : z;
    og_exp_parts_f32 p = og_exp_split_f32(z, 0.0f, OG_MAGIC_HALF_F32);
    float b = p.scale * p.rh;
    float a = p.scale - 0.5f;
    float al = (p.scale - a) - 0.5f;
    float hi = a + b;
    float lo = ((a - hi) + b) + al;
    float y = 2.0f * (hi + og_fma_near_f32(p.scale, p.w, lo));
    return fabsf(x) < 0x1p-26f ? x : y;
}

/* ---- logarithms ---- */

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

/*
 * log(1 + e^-a), a >= 0.  y = 2^n t is e^-a as a pair.  Small y: 2^n (t + y t p(y)),
 * scaled last, so that subnormal results are rounded once; large y:
 * ln 2 + log(1 + f), f = (y - 1)/2.
 */
OG_FN float og_log1p_exp_f32(float a)
{
    float z = a > 110.0f ? -110.0f : -a;
    og_exp_parts_f32 p = og_exp_split_f32(z, 0.0f, OG_MAGIC_DOWN_F32);
    float th = 1.0f + p.rh;
    float tl = ((1.0f - th) + p.rh) + p.w;
    float t = th + tl;
    tl = (th - t) + tl;
    float s = p.scale * 0x1p-64f;
    float y = t * s;
    float f = y > 0.414f ? og_fma_near_f32(0.5f, y, -0.5f) : y;
    float q = og_log_p_f32(f);
    float small = ((t + og_fma_near_f32(y * t, q, tl)) * p.scale) * 0x1p-64f;
    float low = og_fma_near_f32(0.5f * s, tl, OG_LN2_LO_F32);
    float large = OG_LN2_HI_F32 + (f + og_fma_near_f32(f * f, q, low));
    return y > 0.414f ? large : small;
}

OG_FN float og_logsigmoid_f32(float x)
{
    float most = x < 0.0f ? -x : 0.0f;
    return -(most + og_log1p_exp_f32(fabsf(x)));
}

/*
 * z + zl = x beta.  zl is added where z is; in the left tail, where it counts |z|
 * times, as e^zl = 1 + zl.
 */
OG_FN float og_softplus_f32(float x, float beta, float threshold)
{
    float z = x * beta;
    float zl = og_fma_near_f32(x, beta, -z);
    zl = fabsf(z) < 110.0f ? zl : 0.0f;
    float most = z > 0.0f ? z : 0.0f;
    float rest = og_log1p_exp_f32(fabsf(z));
    rest += z > 0.0f ? zl : rest * zl;
    float y = (most + rest) / beta;
    return z > threshold ? x : y;
}

/* The same where beta is 1, bit for bit: z is x. */
OG_FN float og_softplus_plain_f32(float x, float beta, float threshold)
{
    (void)beta;
    float most = x > 0.0f ? x : 0.0f;
    float y = most + og_log1p_exp_f32(fabsf(x));
    return x > threshold ? x : y;
}

/* ---- sigmoid and what is x times a sigmoid ---- */

/*
 * n = round(a log2 e), s = 2^-n, e^(a - n ln 2) = 1 + rh + w: the reciprocal f of
 * E = 1 + s + rh + w by one division and one Newton step, whose residual
 * counts the rounding error of E too.
 */
/* f of 1/(1 + e^(a+al)) = scale * 2^-64 * f, scale * 2^-64 = 2^-n, for 0 <= a <= 120. */
OG_FN float og_sigmoid_split_f32(float a, float al, float *scale)
{
    float nf = og_fma_near_f32(a, -OG_LOG2E_F32, OG_MAGIC_DOWN_F32);
    *scale = og_float_bits(og_bits_f32(nf) << 23);
    float sc = *scale * 0x1p-64f;
    nf -= OG_MAGIC_DOWN_F32;
    float rh = og_fma_near_f32(nf, OG_LN2_HI_F32, a);
    float rl = og_fma_near_f32(nf, OG_LN2_LO_F32, al);
    float r = rh + rl;
    float w = og_fma_near_f32(r * r, og_exp_q_f32(r), rl);
    float e = (1.0f + sc) + (rh + w);
    float el = (((1.0f - e) + sc) + rh) + w;
    float d = og_reciprocal_normal_f32(e);
    float residual = og_fma_near_f32(-el, d, og_fma_near_f32(-e, d, 1.0f));
    return og_fma_near_f32(d, residual, d);
}

OG_FN float og_sigmoid_f32(float x)
{
    float scale, f = og_sigmoid_split_f32(og_magnitude_f32(x, 104.0f), 0.0f, &scale);
    float s = scale * 0x1p-64f; /* 2^-n, exact down to the least subnormal, then 0 */
    float above = og_fma_near_f32(s, -f, og_restore_nan_f32(x, 1.0f));
    return x < 0.0f ? f * s : above;
}

/* x sigmoid(+-(v + vl)), the sign x's; a = |x|, both clamped where the result is 0 or x. */
OG_FN float og_times_sigmoid_f32(float x, float a, float v, float vl)
{
    float scale, f = og_sigmoid_split_f32(v, vl, &scale);
    float below = ((-a * f) * scale) * 0x1p-64f;
    float above = og_fma_near_f32(-(a * (scale * 0x1p-64f)), f, x);
    float y = x < 0.0f ? below : above;
    return x == -OG_INF_F32 ? OG_NAN_F32 : y;
}

OG_FN float og_silu_f32(float x)
{
    float a = og_magnitude_f32(x, 120.0f);
    return og_times_sigmoid_f32(x, a, a, 0.0f);
}

/* x sigmoid(v), v = x (c0 + c1 x^2), c0 = 2 sqrt(2/pi), c1 = 0.044715 c0, in pairs. */
OG_FN float og_gelu_tanh_f32(float x)
{
    float a = og_magnitude_f32(x, 11.0f);
    float s = a * a;
    float sl = og_fma_near_f32(a, a, -s);
    float p = s * 0x1.2444f2p-4f;
    float pl = og_fma_near_f32(s, 0x1.2444f2p-4f, -p);
    pl = og_fma_near_f32(sl, 0x1.2444f2p-4f, og_fma_near_f32(s, 0x1.49b16ap-29f, pl));
    float g = 0x1.988454p+0f + p;
    float t = g - 0x1.988454p+0f;
    float gl = ((0x1.988454p+0f - (g - t)) + (p - t)) + (pl - 0x1.857936p-25f);
    float v = a * g;
    float vl = og_fma_near_f32(a, g, -v);
    vl = og_fma_near_f32(a, gl, vl);
    return og_times_sigmoid_f32(x, a, v, vl);
}

/*
 * x tanh(log(1 + e^x)), e = e^-|x|.  For x >= 0 the factor of x is
 * (1 + 2e)/(1 + 2e + 2e^2); for x < 0 it is e (2 + e)/(2 + 2e + e^2), where x e =
 * 2^n z t is a pair.  Both quotients lie in [0.6, 1]: taken as 3/4 + g.
 */
OG_FN float og_mish_f32(float x)
{
    float a = fabsf(x);
    float z = a > 120.0f ? -120.0f : -a;
    og_exp_parts_f32 p = og_exp_split_f32(z, 0.0f, OG_MAGIC_DOWN_F32);
    float th = 1.0f + p.rh;
    float tl = ((1.0f - th) + p.rh) + p.w;
    float t = th + tl;
    tl = (th - t) + tl;
    float e = t * (p.scale * 0x1p-64f);
    float n0 = x < 0.0f ? 0.5f : 0.25f;
    float n1 = x < 0.0f ? -0.5f : 0.5f;
    float n2 = x < 0.0f ? -0.75f : -1.5f;
    float d0 = x < 0.0f ? 2.0f : 1.0f;
    float d2 = x < 0.0f ? 1.0f : 2.0f;
    /* What is divided is a multiple of 2^-52: e is, where it can be next to 0, 2^-24's. */
    float g = og_divide_normal_f32(og_fma_near_f32(e, og_fma_near_f32(e, n2, n1), n0),
                                   og_fma_near_f32(e, og_fma_near_f32(e, d2, 2.0f), d0));
    float zt = z * t;
    float c = x < 0.0f ? zt : x;
    float cl = x < 0.0f ? og_fma_near_f32(z, tl, og_fma_near_f32(z, t, -zt)) : 0.0f;
    float y = og_fma_near_f32(c, 0.75f, og_fma_near_f32(c, g, cl * (0.75f + g)));
    y = x < 0.0f ? (y * p.scale) * 0x1p-64f : y;
    y = og_float_bits(og_bits_f32(y) | (og_bits_f32(x) & 0x80000000u));
    return x == -OG_INF_F32 ? OG_NAN_F32 : y;
}

/* ---- tanh ---- */

typedef struct {
    float hi, lo;
} og_pair_f32;

/*
 * tanh a = E/(E + 2), E = e^(2a) - 1, as a pair, for a <= 8.66 (E < 2^25, else the
 * rounding error of E + 2 is not caught).  E and E + 2 are pairs, the quotient
 * gets one division and its residual.
 */
OG_FN og_pair_f32 og_tanh_split_f32(float a)
{
    og_exp_parts_f32 p = og_exp_split_f32(2.0f * a, 0.0f, OG_MAGIC_ONE_F32);
    float s1 = p.scale - 1.0f;
    float b = p.scale * p.rh;
    float sum = s1 + b;
    float rest = og_fma_near_f32(p.scale, p.w, (s1 - sum) + b);
    float eh = sum + rest;
    float el = (sum - eh) + rest;
    float dh = eh + 2.0f;
    float dl = ((2.0f - dh) + eh) + el;
    float d = og_reciprocal_normal_f32(dh);
    float q = eh * d;
    float residual = og_fma_near_f32(-q, dl, og_fma_near_f32(-q, dh, eh) + el);
    og_pair_f32 y = {q, residual * d};
    return y;
}

OG_FN float og_tanh_f32(float x)
{
    float a = fabsf(x);
    og_pair_f32 p = og_tanh_split_f32(a > 8.66f ? 8.66f : a);
    float y = a > 9.0109f ? 1.0f : p.hi + p.lo;
    uint32_t sign = og_bits_f32(x) & 0x80000000u;
    return og_float_bits(og_bits_f32(y) | sign);
}

/*
 * x - tanh(x).  Below 0.75, x^3 (1/3 + u p(u)), u = x^2, degree 5, relative error
 * 2^-28.8 (fit tanhshrink), x^3 and 1/3 as pairs; above, tanh as a pair.
 */
OG_FN float og_tanhshrink_f32(float x)
{
    float a = fabsf(x);
    float u = a * a;
    float u2 = u * u;
    float p0 = og_fma_near_f32(0x1.ba1672p-5f, u, -0x1.111108p-3f);
    float p1 = og_fma_near_f32(0x1.1cf764p-7f, u, -0x1.65d234p-6f);
    float p2 = og_fma_near_f32(0x1.7217b4p-11f, u, -0x1.9739e2p-9f);
    float p =
        og_fma_near_f32(og_fma_near_f32(og_fma_near_f32(p2, u2, p1), u2, p0), u, 0x1.555556p-2f);
    float c = a * u;
    float cl = og_fma_near_f32(a, og_fma_near_f32(a, a, -u), og_fma_near_f32(a, u, -c));
    float small = og_fma_near_f32(c, p, og_fma_near_f32(cl, p, c * -0x1.555556p-27f));
    og_pair_f32 t = og_tanh_split_f32(a > 8.66f ? 8.66f : a);
    float large = (a - t.hi) - t.lo;
    float y = a < 0.75f ? small : large;
    uint32_t sign = x < 0.0f ? 0x80000000u : 0u;
    return og_float_bits(og_bits_f32(y) | sign);
}

/* ---- error function ---- */

/*
 * |x| < 1: x + x p(x^2), degree 6, relative error 2^-29.4 (fit erf_small).
 * Above: 1 - exp(-a p(a)), degree 7, relative error 2^-32.8 on [1,4] (erf_large).
 */
OG_FN float og_erf_f32(float x)
{
    float a = fabsf(x);
    float u = a * a, u2 = u * u;
    float p0 = og_fma_near_f32(-0x1.81273ep-2f, u, 0x1.06eba8p-3f);
    float p1 = og_fma_near_f32(-0x1.b7f71ap-6f, u, 0x1.ce2ce6p-4f);
    float p2 = og_fma_near_f32(-0x1.a3515ep-11f, u, 0x1.53f224p-8f);
    p2 = og_fma_near_f32(0x1.4771fcp-14f, u2, p2);
    float small = og_fma_near_f32(a, og_fma_near_f32(og_fma_near_f32(p2, u2, p1), u2, p0), a);

    float b = a > 4.0f ? 4.0f : a;
    float b2 = b * b, b4 = b2 * b2;
    float q0 = og_fma_near_f32(0x1.455644p-1f, b, 0x1.20ebb4p+0f);
    float q1 = og_fma_near_f32(-0x1.79e678p-6f, b, 0x1.b0b706p-4f);
    float q2 = og_fma_near_f32(-0x1.1722e0p-13f, b, 0x1.9efbe0p-9f);
    float q3 = og_fma_near_f32(0x1.e94334p-19f, b, -0x1.ef572cp-16f);
    float q = og_fma_near_f32(og_fma_near_f32(q3, b2, q2), b4, og_fma_near_f32(q1, b2, q0));
    og_exp_parts_f32 p = og_exp_split_f32(-b * q, 0.0f, OG_MAGIC_ONE_F32);
    float large = 1.0f - p.scale * (1.0f + (p.rh + p.w));

    float y = a < 1.0f ? small : large;
    uint32_t sign = og_bits_f32(x) & 0x80000000u;
    return og_float_bits(og_bits_f32(y) | sign);
}

/*
 * x Phi(x).  The tail is Q(a) = e^(-a^2/2) u P(t), u = 1/(a + 3.5),
 * t = 1.5 - 8.75 u, 0 <= a <= 14.5, degree 9, relative error 2^-25.4 (fit gelu_tail),
 * the last two steps of P as one sum of three terms; gelu(-a) = -a Q(a)
 * and gelu(a) = a - a Q(a).
 */
OG_FN float og_gelu_f32(float x)
{
    float a0 = fabsf(x);
    float a = a0 > 14.5f ? 14.5f : a0;
    float s = a * a;
    float sl = og_fma_near_f32(a, a, -s);
    og_exp_parts_f32 p = og_exp_split_f32(-0.5f * s, -0.5f * sl, OG_MAGIC_DOWN_F32);
    float th = 1.0f + p.rh;
    float tl = ((1.0f - th) + p.rh) + p.w;

    float den = a + 3.5f;
    float dl = (3.5f - den) + a;
    float d = og_reciprocal_normal_f32(den);
    float eps = og_fma_near_f32(-dl, d, og_fma_near_f32(-d, den, 1.0f));
    float t = og_fma_near_f32(-8.75f, d, 1.5f);
    float t2 = t * t, t4 = t2 * t2;
    float p2 = og_fma_near_f32(-0x1.0a2502p-4f, t, 0x1.fd66e4p-3f);
    float p4 = og_fma_near_f32(0x1.a183dap-9f, t, 0x1.ed5ad6p-9f);
    float p6 = og_fma_near_f32(-0x1.bc7374p-13f, t, -0x1.1e74fap-11f);
    float p8 = og_fma_near_f32(0x1.f26c9ap-17f, t, 0x1.395cc4p-15f);
    float high = og_fma_near_f32(p8, t2, p6);
    high = og_fma_near_f32(high, t4, og_fma_near_f32(p4, t2, p2));
    float inner = og_fma_near_f32(high, t, -0x1.213df6p-1f);
    float poly = og_fma_near_f32(inner, t, 0x1.be00bep-1f);
    float poly_low = og_fma_near_f32(inner, t, 0x1.be00bep-1f - poly);

    /* u P(t) as a function of d has elasticity about 1 + 6.3 d. */
    eps *= og_fma_near_f32(6.3f, d, 1.0f);
    /* 2^32 a, lest a product of a subnormal a be rounded as a subnormal. */
    float b = a * 0x1p32f;
    float c = b * d;
    float cl = og_fma_near_f32(b, d, -c);
    float g = c * poly;
    float gl = og_fma_near_f32(cl, poly, og_fma_near_f32(c, poly, -g));
    gl = og_fma_near_f32(g, eps, og_fma_near_f32(c, poly_low, gl));
    float h = og_fma_near_f32(g, th, og_fma_near_f32(g, tl, gl * th));
    float tail = (h * p.scale) * 0x1p-96f;
    float y = x < 0.0f ? -tail : x - tail;
    return x == -OG_INF_F32 ? OG_NAN_F32 : y;
}

/* ---- the exponential linear units ---- */

OG_FN float og_elu_f32(float x, float alpha)
{
    float y = og_expm1_f32(x) * alpha;
    return x < 0.0f ? y : x;
}

OG_FN float og_celu_f32(float x, float alpha)
{
    float y = og_expm1_f32(x / alpha) * alpha;
    return x < 0.0f ? y : x;
}

/* scale = 1.0507..., scale * alpha = 1.7580..., each as a pair (of one sign: -0 stays). */
OG_FN float og_selu_f32(float x)
{
    float m = og_expm1_f32(x);
    float below = og_fma_near_f32(m, 0x1.c212ccp+0f, m * 0x1.903c0cp-26f);
    float above = og_fma_near_f32(x, 0x1.0cfabcp+0f, x * 0x1.6a9114p-24f);
    return x < 0.0f ? below : above;
}

#include "math/scalar_squares_f32.h"
#include "math/scalar_whole_f32.h"

#endif
