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

/* r = rh + w, before the power series. */
OG_FN og_exp_parts_f32 og_exp_reduce_pair_f32(float x, float xl, float magic)
{
    og_exp_parts_f32 p;
    float nf = og_fma_near_f32(x, OG_LOG2E_F32, magic);
    float n = nf - magic;
    p.scale = og_float_bits(og_bits_f32(nf) << 23);
    p.rh = og_fma_near_f32(n, -OG_LN2_HI_F32, x);
    p.w = og_fma_near_f32(n, -OG_LN2_LO_F32, xl);
    return p;
}

OG_FN og_exp_parts_f32 og_exp_split_f32(float x, float xl, float magic)
{
    og_exp_parts_f32 p = og_exp_reduce_pair_f32(x, xl, magic);
    float r = p.rh + p.w;
    p.w = og_fma_near_f32(r * r, og_exp_q5_f32(r), p.w);
    return p;
}

/* og_exp_q_f32's q, one step after the other: fewer instructions, a longer chain. */
OG_FN float og_exp_chain_f32(float r)
{
    float q = og_fma_near_f32(0x1.6ac682p-10f, r, 0x1.123ddep-7f);
    q = og_fma_near_f32(q, r, 0x1.555858p-5f);
    q = og_fma_near_f32(q, r, 0x1.55548cp-3f);
    return og_fma_near_f32(q, r, 0x1.fffffcp-2f);
}

OG_FN og_exp_parts_f32 og_exp_split_short_f32(float x, float xl, float magic)
{
    og_exp_parts_f32 p = og_exp_reduce_pair_f32(x, xl, magic);
    float r = p.rh + p.w;
    p.w = og_fma_near_f32(r * r, og_exp_chain_f32(r), p.w);
    return p;
}

/* (e^r - 1) / r, |r| <= ln 2 / 2. */
OG_FN float og_exp_slope_f32(float r)
{
    return og_fma_near_f32(og_exp_chain_f32(r), r, 1.0f);
}

/* z = n ln 2 + r, r rounded; 2^n = scale times what the caller put into magic. */
typedef struct {
    float scale, r;
} og_exp_step_f32;

OG_FN og_exp_step_f32 og_exp_reduce_f32(float z, float magic)
{
    og_exp_step_f32 s;
    float nf = og_fma_near_f32(z, OG_LOG2E_F32, magic);
    float n = nf - magic;
    s.r = og_fma_near_f32(n, -OG_LN2_HI_F32, z);
    s.r = og_fma_near_f32(n, -OG_LN2_LO_F32, s.r);
    s.scale = og_float_bits(og_bits_f32(nf) << 23);
    return s;
}

/*
 * e^z 2^k, -104 <= z <= 89 or NaN, k as magic has it: 6 multiply-adds after each other lose
 * less than 0.4 ULP, for half the instructions of og_exp_split_f32() and the sum of its parts.
 */
OG_FN float og_exp_scaled_f32(float z, float magic)
{
    og_exp_step_f32 s = og_exp_reduce_f32(z, magic);
    return og_fma_near_f32(og_exp_slope_f32(s.r), s.r, 1.0f) * s.scale;
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

/* ---- softplus ---- */

/*
 * most + log(1 + e^-a), a >= 0, most >= 0.  y = s t is e^-a, t = 1 + v, s = 2^-n; log(1 + y) =
 * y + y^2 p(y) = s (1 + w), p of degree 8, relative error 2^-27.5 (fit softplus, without its 1).
 * 1 + w is a pair, and is scaled last, so that subnormal results are rounded once.
 */
OG_FN float og_softplus_sum_f32(float most, float a)
{
    og_exp_step_f32 e = og_exp_reduce_f32(a > 110.0f ? -110.0f : -a, OG_MAGIC_DOWN_F32);
    float v = e.r * og_exp_slope_f32(e.r);
    float t = 1.0f + v;
    float s = e.scale * 0x1p-64f;
    float y = t * s;
    float p = og_fma_near_f32(-0x1.af497cp-9f, y, 0x1.4917e0p-6f);
    p = og_fma_near_f32(p, y, -0x1.d6b0b2p-5f);
    p = og_fma_near_f32(p, y, 0x1.b4ae18p-4f);
    p = og_fma_near_f32(p, y, -0x1.3a4360p-3f);
    p = og_fma_near_f32(p, y, 0x1.934b54p-3f);
    p = og_fma_near_f32(p, y, -0x1.ff23e6p-3f);
    p = og_fma_near_f32(p, y, 0x1.554dd0p-2f);
    p = og_fma_near_f32(p, y, -0x1.ffffd2p-2f);
    float w = og_fma_near_f32(t, y * p, v);
    float sum = 1.0f + w;
    float low = (1.0f - sum) + w;
    return og_fma_near_f32(sum * e.scale, 0x1p-64f, og_fma_near_f32(low, s, most));
}

OG_FN float og_logsigmoid_f32(float x)
{
    float most = x < 0.0f ? -x : 0.0f;
    return -og_softplus_sum_f32(most, fabsf(x));
}

/*
 * z + zl = x beta.  In the left tail zl counts |z| times, as e^zl = 1 + zl; elsewhere it is lost.
 * sum (1 + zl) is rounded once on every machine: it is no function of one float.
 */
OG_FN float og_softplus_f32(float x, float beta, float threshold)
{
    float z = x * beta;
    float zl = og_fma_near_f32(x, beta, -z);
    zl = ((z < 0.0f) & (z > -110.0f)) ? zl : 0.0f;
    float most = z > 0.0f ? z : 0.0f;
    float sum = og_softplus_sum_f32(most, fabsf(z));
    sum = z > 0.0f ? sum : og_fma_f32(sum, zl, sum);
    float y = sum / beta;
    return z > threshold ? x : y;
}

/* The same where beta is 1, bit for bit: z is x. */
OG_FN float og_softplus_plain_f32(float x, float beta, float threshold)
{
    (void)beta;
    float most = x > 0.0f ? x : 0.0f;
    float y = og_softplus_sum_f32(most, fabsf(x));
    return x > threshold ? x : y;
}

/* ---- sigmoid and what is x times a sigmoid ---- */

/*
 * n = round(a log2 e), s = 2^-n, e^(a - n ln 2) = 1 + rh + w: the reciprocal f of
 * E = 1 + s + rh + w by one division and one Newton step, whose residual
 * counts the rounding error of E too. (Emitted files keep the next line alone.)
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
 * x tanh(log(1 + e^x)), e = e^-|x|.  For x >= 0 the factor of x is (1 + 2u) / (1 + 2u + 2u^2),
 * u = e; for x < 0 it is e (1 + u) / (1 + 2u + 2u^2), u = e / 2, where x e = 2^n z t is a pair.
 * Both quotients lie in [0.6, 1]: taken as 3/4 + g.
 */
OG_FN float og_mish_f32(float x)
{
    float a = fabsf(x);
    float z = a > 120.0f ? -120.0f : -a;
    og_exp_parts_f32 p = og_exp_split_short_f32(z, 0.0f, OG_MAGIC_DOWN_F32);
    float th = 1.0f + p.rh;
    float tl = ((1.0f - th) + p.rh) + p.w;
    float t = th + tl;
    tl = (th - t) + tl;
    float u = t * (p.scale * (x < 0.0f ? 0x1p-65f : 0x1p-64f));
    float g = og_fma_near_f32(u, og_fma_near_f32(u, -1.5f, x < 0.0f ? -0.5f : 0.5f), 0.25f) *
              og_reciprocal_normal_f32(og_fma_near_f32(u, og_fma_near_f32(u, 2.0f, 2.0f), 1.0f));
    float zt = z * t;
    float c = x < 0.0f ? zt : x;
    float cl = x < 0.0f ? og_fma_near_f32(z, tl, og_fma_near_f32(z, t, -zt)) : 0.0f;
    float y = og_fma_near_f32(c, 0.75f, og_fma_near_f32(c, g, cl * (0.75f + g)));
    float below = og_fma_near_f32(y * p.scale, 0x1p-64f, x * 0.0f); /* of -inf NaN, as PyTorch's */
    y = x < 0.0f ? below : y;
    return og_float_bits(og_bits_f32(y) | (og_bits_f32(x) & 0x80000000u));
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
 * x - tanh(x).  Below 1.1, x^3 (1/3 + u p(u)), u = x^2, degree 7, relative error 2^-28.8 (fit
 * tanhshrink), x^3 and 1/3 as pairs; above, (a - 1) + 2 / (e^(2a) + 1), where the quotient is lost
 * beside a - 1 long before e^(2a), 2^115 at most, leaves what og_reciprocal_normal_f32() rounds.
 */
OG_FN float og_tanhshrink_f32(float x)
{
    float a = fabsf(x);
    float u = a * a;
    float p = og_fma_near_f32(0x1.36c7f0p-15f, u, -0x1.313680p-12f);
    p = og_fma_near_f32(p, u, 0x1.317a5ep-10f);
    p = og_fma_near_f32(p, u, -0x1.bf5a62p-9f);
    p = og_fma_near_f32(p, u, 0x1.2039bep-7f);
    p = og_fma_near_f32(p, u, -0x1.661336p-6f);
    p = og_fma_near_f32(p, u, 0x1.ba1882p-5f);
    p = og_fma_near_f32(p, u, -0x1.11110ap-3f);
    p = og_fma_near_f32(p, u, 0x1.555556p-2f);
    float c = a * u;
    float cl = og_fma_near_f32(a, og_fma_near_f32(a, a, -u), og_fma_near_f32(a, u, -c));
    float small = og_fma_near_f32(c, p, og_fma_near_f32(cl, p, c * -0x1.555556p-27f));
    float e = og_exp_scaled_f32(2.0f * (a > 40.0f ? 40.0f : a), OG_MAGIC_ONE_F32);
    float large = og_fma_near_f32(2.0f, og_reciprocal_normal_f32(e + 1.0f), a - 1.0f);
    float y = a < 1.1f ? small : large;
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
 * x Phi(x).  The tail is a Q(a) = e^(-a^2/2) c P(t), c = a/(a + 3.5), t = 2.5 c - 1,
 * 0 <= a <= 14.5, degree 9, relative error 2^-25.4 (fit gelu_tail), e^(-a^2/2), c and the last
 * step of P as pairs; gelu(-a) = -a Q(a) and gelu(a) = a - a Q(a).
 */
OG_FN float og_gelu_f32(float x)
{
    float a0 = fabsf(x);
    float a = a0 > 14.5f ? 14.5f : a0;
    float b = -0.5f * a;
    float s = a * b;
    og_exp_parts_f32 e =
        og_exp_split_short_f32(s, og_fma_near_f32(a, b, -s), OG_MAGIC_DOWN_F32);
    float th = 1.0f + e.rh;
    float tl = ((1.0f - th) + e.rh) + e.w;

    float den = a + 3.5f;
    float dl = (3.5f - den) + a;
    float d = og_reciprocal_normal_f32(den);
    /* 2^32 a, lest a product of a subnormal a be rounded as a subnormal. */
    float m = a * 0x1p32f;
    float c = m * d;
    float cl = og_fma_near_f32(-c, dl, og_fma_near_f32(-c, den, m)) * d;
    float t = og_fma_near_f32(2.5f * 0x1p-32f, c, -1.0f);
    float p = og_fma_near_f32(0x1.f26c9ap-17f, t, 0x1.395cc4p-15f);
    p = og_fma_near_f32(p, t, -0x1.bc7374p-13f);
    p = og_fma_near_f32(p, t, -0x1.1e74fap-11f);
    p = og_fma_near_f32(p, t, 0x1.a183dap-9f);
    p = og_fma_near_f32(p, t, 0x1.ed5ad6p-9f);
    p = og_fma_near_f32(p, t, -0x1.0a2502p-4f);
    p = og_fma_near_f32(p, t, 0x1.fd66e4p-3f);
    p = og_fma_near_f32(p, t, -0x1.213df6p-1f);
    float poly = og_fma_near_f32(p, t, 0x1.be00bep-1f);
    float poly_low = og_fma_near_f32(p, t, 0x1.be00bep-1f - poly);

    float g = c * poly;
    float root = og_fma_near_f32(-0.65f, t, 0.68f); /* its square is nearly c P's derivative by c */
    float gl = og_fma_near_f32(cl, root * root, og_fma_near_f32(c, poly, -g));
    gl = og_fma_near_f32(c, poly_low, gl);
    float h = og_fma_near_f32(g, th, og_fma_near_f32(g, tl, gl * th));
    float base = x < 0.0f ? x * 0.0f : x; /* of -inf NaN, as PyTorch's */
    return og_fma_near_f32(h * -e.scale, 0x1p-96f, base);
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

#include "math/scalar_logarithms_f32.h"
#include "math/scalar_squares_f32.h"
#include "math/scalar_whole_f32.h"

#endif
