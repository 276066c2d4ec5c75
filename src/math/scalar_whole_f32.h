/* SPDX-License-Identifier: MIT */
/*
 * float32 functions that begin with whole numbers: rounding to them, what a
 * division by one leaves (fmod, remainder), the functions of angles, which take
 * whole quarters of a turn away first, and pow, which of a negative number takes
 * whole exponents only.  In the manner of scalar_f32.h, which includes this file.
 */
#ifndef OG_MATH_SCALAR_WHOLE_F32_H
#define OG_MATH_SCALAR_WHOLE_F32_H

#include "math/scalar_base.h"

/* ---- rounding ---- */

/* y with x's sign, for y that has it or is +0. */
OG_FN float og_with_sign_f32(float y, float x)
{
    return og_float_bits(og_bits_f32(y) | (og_bits_f32(x) & 0x80000000u));
}

/* |x| rounded to a whole number, ties to even: what 2^23 pushes out is lost. */
OG_FN float og_round_magnitude_f32(float x)
{
    float a = fabsf(x);
    float y = (a + 0x1p23f) - 0x1p23f;
    return a < 0x1p23f ? y : a;
}

OG_FN float og_round_f32(float x)
{
    return og_with_sign_f32(og_round_magnitude_f32(x), x);
}

OG_FN float og_trunc_f32(float x)
{
    float y = og_round_magnitude_f32(x);
    y = y > fabsf(x) ? y - 1.0f : y;
    return og_with_sign_f32(y, x);
}

OG_FN float og_floor_f32(float x)
{
    float y = og_round_f32(x);
    return y > x ? y - 1.0f : y;
}

/* -0 for -1 < x <= -0. */
OG_FN float og_ceil_f32(float x)
{
    float y = og_round_f32(x);
    y = y < x ? y + 1.0f : y;
    return og_with_sign_f32(y, x);
}

/* 0 of a NaN, as PyTorch. */
OG_FN float og_sign_f32(float x)
{
    float y = x > 0.0f ? 1.0f : 0.0f;
    return x < 0.0f ? -1.0f : y;
}

/* ---- what a division leaves ---- */

/* x = mantissa 2^exponent, both whole; exponent >= -149, and mantissa >= 2^23 above that. */
typedef struct {
    double mantissa;
    int32_t exponent;
} og_whole_parts_f32;

OG_FN og_whole_parts_f32 og_whole_split_f32(float x)
{
    uint32_t u = og_bits_f32(x) & 0x7fffffffu;
    uint32_t field = u >> 23;
    og_whole_parts_f32 p;
    p.mantissa = (double)(int32_t)((u & 0x007fffffu) | (field ? 0x00800000u : 0u));
    p.exponent = (int32_t)(field ? field : 1u) - 150;
    return p;
}

OG_FN double og_power_of_two_f64(int32_t exponent)
{
    return og_double_bits((uint64_t)(uint32_t)(exponent + 1023) << 52);
}

/*
 * a mod b of whole numbers, a < 2^53, a / b < 2^31: the quotient is at least 1 / b
 * from the next whole number, its rounding error less, so truncating it is right.
 */
OG_FN double og_modulo_f64(double a, double b)
{
    return a - (double)(int32_t)(a / b) * b;
}

OG_FN int32_t og_clamp_places_f32(int32_t places, int32_t most)
{
    places = places < 0 ? 0 : places;
    return places > most ? most : places;
}

/* rest 2^places mod modulus, of at most 29 places and at least none. */
OG_FN double og_modulo_places_f32(double rest, int32_t places, double modulus)
{
    return og_modulo_f64(rest * og_power_of_two_f64(og_clamp_places_f32(places, 29)), modulus);
}

/*
 * |x| mod |y|, exactly.  Of mx 2^ex and my 2^ey, ex >= ey: mx 2^(ex - ey) mod my, 29
 * binary places of the power at a time, in double without fma (24 + 29 bits are
 * exact); ex - ey <= 253.  For ex < ey: mx mod my 2^(ey - ex), where more than 25
 * places make no difference.  What becomes of y = 0, taken for 2^-149, an infinite x and
 * NaN is the caller's affair.
 */
OG_FN float og_fmod_magnitude_f32(float x, float y)
{
    og_whole_parts_f32 a = og_whole_split_f32(x), b = og_whole_split_f32(y);
    int32_t up = a.exponent - b.exponent;
    int32_t exponent = up < 0 ? a.exponent : b.exponent;
    b.mantissa = b.mantissa < 1.0 ? 1.0 : b.mantissa;
    double modulus = b.mantissa * og_power_of_two_f64(og_clamp_places_f32(-up, 25));
    double rest = og_modulo_f64(a.mantissa, modulus);
    rest = og_modulo_places_f32(rest, up, modulus);
    rest = og_modulo_places_f32(rest, up - 29, modulus);
    rest = og_modulo_places_f32(rest, up - 58, modulus);
    rest = og_modulo_places_f32(rest, up - 87, modulus);
    rest = og_modulo_places_f32(rest, up - 116, modulus);
    rest = og_modulo_places_f32(rest, up - 145, modulus);
    rest = og_modulo_places_f32(rest, up - 174, modulus);
    rest = og_modulo_places_f32(rest, up - 203, modulus);
    rest = og_modulo_places_f32(rest, up - 232, modulus);
    return (float)(rest * og_power_of_two_f64(exponent));
}

/*
 * The sign is x's.  An infinite y is taken for 2^128 and leaves x.  NaN is made of r's bits:
 * gcc 12 computes r in a branch if it is selected, and does not vectorise.
 */
OG_FN float og_fmod_f32(float x, float y)
{
    float r = og_with_sign_f32(og_fmod_magnitude_f32(x, y), x);
    uint32_t nan = ((fabsf(x) < OG_INF_F32) & (fabsf(y) > 0.0f)) ? 0u : 0x7fc00000u;
    return og_float_bits(og_bits_f32(r) | nan);
}

/* The sign is the divisor's; a zero has x's, as PyTorch's. */
OG_FN float og_remainder_f32(float x, float y)
{
    float r = og_fmod_f32(x, y);
    float up = r < 0.0f ? y : -0.0f, down = r > 0.0f ? y : -0.0f;
    return r + (y < 0.0f ? down : up);
}

/* ---- angles ---- */

/* |x| = n pi/2 + high + low, n modulo 4. */
typedef struct {
    uint32_t quarter;
    float high, low;
} og_angle_parts_f32;

/* The upper half of a product. */
OG_FN uint32_t og_multiply_high_u32(uint32_t a, uint32_t b)
{
    return (uint32_t)(((uint64_t)a * b) >> 32);
}

/* a where mask has bits, else b; written so because gcc 12 (-ftree-pre) makes branches of
 * selected constants and then no vectors: sin 3.9 -> 3.2 ns an element, Zen 3. */
OG_FN uint32_t og_choose_u32(uint32_t mask, uint32_t a, uint32_t b)
{
    return b ^ (mask & (a ^ b));
}

/* 64 bits, as halves that a vector has eight of. */
typedef struct {
    uint32_t high, low;
} og_turns_f32;

/*
 * |x| 2/pi modulo 4, |x| >= 1/2 and finite, as 2 + 62 bits.  |x| = m 2^(p - 23), m < 2^24:
 * of 2/pi only 96 binary places from the p-th on matter (those before give multiples of 4,
 * those after less than 2^-62), and they are selected from the constants by 64, 32 and
 * single places.  25 zeros come before the first place.  For |x| < 1, which p = 0 takes
 * for twice as much, half of it.
 */
OG_FN og_turns_f32 og_quarter_turns_f32(float x)
{
    uint32_t u = og_bits_f32(x) & 0x7fffffffu;
    uint32_t m = (u & 0x007fffffu) + 0x00800000u;
    uint32_t field = u >> 23;
    uint32_t p = (field > 127u ? field : 127u) - 127u;
    uint32_t by_64 = 0u - (p >> 6 & 1u), by_32 = 0u - (p >> 5 & 1u), by_1 = p & 31u;
    uint32_t b0 = og_choose_u32(by_64, 0x220a94feu, 0x00000051u);
    uint32_t b1 = og_choose_u32(by_64, 0x13abe8fau, 0x7cc1b727u);
    uint32_t b2 = og_choose_u32(by_64, 0x9a6ee06du, 0x220a94feu);
    uint32_t b3 = og_choose_u32(by_64, 0xb14acc9eu, 0x13abe8fau);
    uint32_t b4 = og_choose_u32(by_64, 0x21c820ffu, 0x9a6ee06du);
    uint32_t c0 = og_choose_u32(by_32, b1, b0), c1 = og_choose_u32(by_32, b2, b1);
    uint32_t c2 = og_choose_u32(by_32, b3, b2), c3 = og_choose_u32(by_32, b4, b3);
    uint32_t w0 = (c0 << by_1) | ((c1 >> 1) >> (31u - by_1));
    uint32_t w1 = (c1 << by_1) | ((c2 >> 1) >> (31u - by_1));
    uint32_t w2 = (c2 << by_1) | ((c3 >> 1) >> (31u - by_1));
    uint32_t low = m * w1, carried = low + og_multiply_high_u32(m, w2);
    uint32_t high = m * w0 + og_multiply_high_u32(m, w1) + (carried < low ? 1u : 0u);
    uint32_t below_one = 0u - (field < 127u ? 1u : 0u);
    og_turns_f32 turns;
    turns.high = og_choose_u32(below_one, high >> 1, high);
    turns.low = og_choose_u32(below_one, (carried >> 1) | (high << 31), carried);
    return turns;
}

/*
 * The nearest multiple of pi/2 taken from |x|.  The rest is at least 2^-30, so 62 places
 * leave 32 of it; as three whole numbers that floats hold, 24 + 24 + 14 bits, they become
 * a pair, times pi/2 2^-48.
 */
OG_FN og_angle_parts_f32 og_angle_split_f32(float x)
{
    og_turns_f32 turns = og_quarter_turns_f32(x);
    og_angle_parts_f32 p;
    p.quarter = (turns.high + 0x20000000u) >> 30;
    int32_t rest = (int32_t)(turns.high - (p.quarter << 30));
    float a = (float)(rest >> 6) * 0x1p24f;
    float b = (float)(int32_t)(((uint32_t)(rest & 63) << 18) | (turns.low >> 14));
    float c = (float)(int32_t)(turns.low & 0x3fffu);
    float s = a + b;
    float v = og_fma_near_f32(c, 0x1p-14f, (a - s) + b);
    p.high = s * 0x1.921fb6p-48f;
    p.low = og_fma_near_f32(s, 0x1.921fb6p-48f, -p.high);
    p.low = og_fma_near_f32(s, -0x1.777a5cp-73f, og_fma_near_f32(v, 0x1.921fb6p-48f, p.low));
    float magnitude = fabsf(x);
    uint32_t small = magnitude < 0x1.921fb6p-1f ? 0xffffffffu : 0u;
    p.quarter = small ? 0u : p.quarter;
    p.high = small ? magnitude : p.high;
    p.low = small ? 0.0f : p.low;
    return p;
}

/*
 * The sine of |x| + n pi/2, with another sign if sign has it, of an r = high + low of at
 * most pi/4: sin r = r + r^3 p(r^2), relative error 2^-32.5, or cos r = 1 - r^2/2 +
 * r^4 p(r^2), 2^-33.  tools/fit_poly.py sin cos
 */
OG_FN float og_sine_f32(float x, uint32_t n, uint32_t sign)
{
    og_angle_parts_f32 p = og_angle_split_f32(x);
    n += p.quarter;
    float z = p.high * p.high;
    float s = og_fma_near_f32(0x1.7c2c4cp-19f, z, -0x1.a05954p-13f);
    s = og_fma_near_f32(og_fma_near_f32(s, z, 0x1.111174p-7f), z, -0x1.555556p-3f);
    float low = og_fma_near_f32(-0.5f * z, p.low, p.low);
    float sine = p.high + og_fma_near_f32(p.high * z, s, low);

    float c = og_fma_near_f32(0x1.99e80cp-16f, z, -0x1.6c0c28p-10f);
    c = og_fma_near_f32(c, z, 0x1.55554ap-5f);
    float half = 0.5f * z;
    float most = 1.0f - half;
    float rest = og_fma_near_f32(z * z, c, (1.0f - most) - half);
    float cosine = most + og_fma_near_f32(-p.high, p.low, rest);

    float y = n & 1u ? cosine : sine;
    y = og_float_bits(og_bits_f32(y) ^ sign ^ ((n & 2u) << 30));
    return fabsf(x) < OG_INF_F32 ? y : x - x;
}

OG_FN float og_sin_f32(float x)
{
    return og_sine_f32(x, 0u, og_bits_f32(x) & 0x80000000u);
}

OG_FN float og_cos_f32(float x)
{
    return og_sine_f32(x, 1u, 0u);
}

/*
 * atan t = t + t^3 p(t^2), |t| <= tan(pi/8), degree 4, relative error 2^-30.4
 * (tools/fit_poly.py atan).  a up to that is t; up to 1/tan(pi/8) t = (a - 1)/(a + 1), above
 * t = -1/a, and the rest pi/4 and pi/2.  numerator and denominator are pairs, the error of
 * their quotient is found.  From 2^60 on the result is pi/2.
 */
OG_FN float og_atan_f32(float x)
{
    float a = fabsf(x);
    a = a > 0x1p60f ? 0x1p60f : a;
    float n = a - 1.0f, m = a + 1.0f;
    float nl = a > 1.0f ? 0.0f : a - (n + 1.0f);
    float ml = a > 1.0f ? (a - m) + 1.0f : (1.0f - m) + a;
    float base = 0x1.921fb6p-1f, base_low = -0x1.777a5cp-26f;
    n = a > 0x1.a8279ap-2f ? n : a;
    m = a > 0x1.a8279ap-2f ? m : 1.0f;
    nl = a > 0x1.a8279ap-2f ? nl : 0.0f;
    ml = a > 0x1.a8279ap-2f ? ml : 0.0f;
    base = a > 0x1.a8279ap-2f ? base : 0.0f;
    base_low = a > 0x1.a8279ap-2f ? base_low : 0.0f;
    n = a > 0x1.3504f4p+1f ? -1.0f : n;
    m = a > 0x1.3504f4p+1f ? a : m;
    nl = a > 0x1.3504f4p+1f ? 0.0f : nl;
    ml = a > 0x1.3504f4p+1f ? 0.0f : ml;
    base = a > 0x1.3504f4p+1f ? 0x1.921fb6p+0f : base;
    base_low = a > 0x1.3504f4p+1f ? -0x1.777a5cp-25f : base_low;

    float d = og_reciprocal_normal_f32(m);
    float t = n * d;
    float tl = (og_fma_near_f32(-t, m, n) + og_fma_near_f32(-t, ml, nl)) * d;
    float u = t * t;
    float p = og_fma_near_f32(-0x1.f2ca0ap-5f, u, 0x1.b21fb8p-4f);
    p = og_fma_near_f32(og_fma_near_f32(p, u, -0x1.23b964p-3f), u, 0x1.9991e0p-3f);
    p = og_fma_near_f32(p, u, -0x1.55554ap-2f);
    float sum = base + t;
    float low = ((base - sum) + t) + base_low;
    float y = sum + (low + og_fma_near_f32(t * u, p, tl));
    return og_with_sign_f32(y, x);
}

/* ---- powers ---- */

/*
 * |x|^y = 2^(y log2|x|) in double without fma, so equal bits at every level:
 * x = 2^k m, t = (m - 1)/(m + 1), log2 m = t p(t^2), degree 7, relative error
 * 2^-56 (fit pow_log2); 2^r = 1 + r p(r), |r| <= 1/2, degree 9, 2^-52 (pow_exp2).
 */
OG_FN float og_pow_f32(float x, float exponent)
{
    float ax = fabsf(x);
    float scaled = ax < 0x1p-126f ? ax * 0x1p23f : ax;
    float bias = ax < 0x1p-126f ? -23.0f : 0.0f;
    uint32_t v = og_bits_f32(scaled) - 0x3f3504f3u;
    int32_t k = (int32_t)v >> 23;
    float m = og_float_bits((v & 0x007fffffu) + 0x3f3504f3u);
    /* The logarithm of 0 and inf, big enough for any exponent but 0. */
    float kf = (float)k + bias;
    kf = ax == 0.0f ? -OG_INF_F32 : kf;
    kf = ax == OG_INF_F32 ? OG_INF_F32 : kf;

    double md = (double)m;
    double t = (md - 1.0) / (md + 1.0);
    double u = t * t, u2 = u * u;
    double l0 = 0x1.ec709dc3a047fp-1 * u + 0x1.71547652b82fep+1;
    double l1 = 0x1.a61762d6fe1edp-2 * u + 0x1.2776c50ee35ebp-1;
    double l2 = 0x1.0ca16925e54e1p-2 * u + 0x1.484afb4fb1396p-2;
    double l3 = 0x1.b5a4ee3b65384p-3 * u + 0x1.c46c4cfdbad1ep-3;
    double l = (l3 * u2 + l2) * (u2 * u2) + (l1 * u2 + l0);
    double z = (double)exponent * ((double)kf + t * l);
    z = z > 300.0 ? 300.0 : z;
    z = z < -300.0 ? -300.0 : z;
    double nf = z + 0x1.8p52;
    double n = nf - 0x1.8p52;
    double r = z - n;
    double r2 = r * r, r4 = r2 * r2;
    double e0 = 0x1.ebfbdff82c430p-3 * r + 0x1.62e42fefa3a12p-1;
    double e1 = 0x1.3b2ab6fbd6e55p-7 * r + 0x1.c6b08d703e133p-5;
    double e2 = 0x1.4309126bd4697p-13 * r + 0x1.5d87fe9b997e9p-10;
    double e3 = 0x1.62c147e228d92p-20 * r + 0x1.ffcb58a940fb8p-17;
    double e4 = 0x1.e3a8e5f515f78p-28 * r + 0x1.b671d47ef41bap-24;
    double e = (e4 * r4 + (e3 * r2 + e2)) * r4 + (e1 * r2 + e0);
    double scale = og_double_bits((og_bits_f64(nf) + 1023u) << 52);
    float y = (float)(scale * (1.0 + r * e));

    /* Integer and odd exponents, by rounding |exponent| and its half. */
    float ae = fabsf(exponent);
    float half = ae * 0.5f;
    float whole_error = ((ae + 0x1p23f) - 0x1p23f) - ae;
    float half_error = ((half + 0x1p23f) - 0x1p23f) - half;
    uint32_t whole = ((ae >= 0x1p23f) | (whole_error == 0.0f)) ? 0xffffffffu : 0u;
    uint32_t even = ((half >= 0x1p23f) | (half_error == 0.0f)) ? 0xffffffffu : 0u;
    uint32_t odd = whole & ~even;
    uint32_t sign = og_bits_f32(x) & 0x80000000u & odd;
    y = og_float_bits(og_bits_f32(y) | sign);
    y = ((x < 0.0f) & (ax < OG_INF_F32) & !whole) ? OG_NAN_F32 : y;
    y = x != x ? x : y;
    y = exponent != exponent ? exponent : y;
    y = ((ax == 1.0f) & (ae == OG_INF_F32)) ? 1.0f : y;
    return ((x == 1.0f) | (exponent == 0.0f)) ? 1.0f : y;
}

OG_FN float og_power_f32(float x, float exponent)
{
    return og_pow_f32(x, exponent);
}

#endif
