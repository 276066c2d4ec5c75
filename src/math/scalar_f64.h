/* SPDX-License-Identifier: MIT */
/*
 * float64 functions, the twins of scalar_f32.h's, over the double functions of
 * libm (which CUDA has under the same names).  At most 4 ULP; unlike float32
 * neither equal bits on every machine nor vector speed are promised, so
 * branches are allowed here.  Specials are PyTorch's (CPU).
 */
#ifndef OG_MATH_SCALAR_F64_H
#define OG_MATH_SCALAR_F64_H

#include "math/scalar_base.h"

#define OG_INF_F64 og_double_bits(0x7ff0000000000000ull)

OG_FN uint32_t og_lt_f64(double a, double b)
{
    return a < b ? 0xffffffffu : 0u;
}

OG_FN uint32_t og_le_f64(double a, double b)
{
    return a <= b ? 0xffffffffu : 0u;
}

OG_FN uint32_t og_gt_f64(double a, double b)
{
    return a > b ? 0xffffffffu : 0u;
}

OG_FN uint32_t og_ge_f64(double a, double b)
{
    return a >= b ? 0xffffffffu : 0u;
}

OG_FN uint32_t og_eq_f64(double a, double b)
{
    return a == b ? 0xffffffffu : 0u;
}

OG_FN uint32_t og_ne_f64(double a, double b)
{
    return a != b ? 0xffffffffu : 0u;
}

OG_FN uint32_t og_truth_f64(double a, double b)
{
    return a != b ? 0xffffffffu : 0u;
}

OG_FN double og_where_f64(uint32_t mask, double a, double b)
{
    return mask ? a : b;
}

OG_FN double og_add_f64(double a, double b)
{
    return a + b;
}

OG_FN double og_sub_f64(double a, double b)
{
    return a - b;
}

OG_FN double og_mul_f64(double a, double b)
{
    return a * b;
}

OG_FN double og_div_f64(double a, double b)
{
    return a / b;
}

OG_FN double og_minimum_f64(double a, double b)
{
    double least = a < b ? a : b;
    return a != a ? a : least;
}

OG_FN double og_maximum_f64(double a, double b)
{
    double most = a > b ? a : b;
    return a != a ? a : most;
}

OG_FN double og_neg_f64(double x)
{
    return -x;
}

OG_FN double og_abs_f64(double x)
{
    return fabs(x);
}

OG_FN double og_square_f64(double x)
{
    return x * x;
}

OG_FN double og_reciprocal_f64(double x)
{
    return 1.0 / x;
}

OG_FN double og_sqrt_f64(double x)
{
    return sqrt(x);
}

OG_FN double og_rsqrt_f64(double x)
{
    return 1.0 / sqrt(x);
}

OG_FN double og_relu_f64(double x)
{
    return x < 0.0 ? 0.0 : x;
}

/* x itself where it equals a bound (-0); a NaN bound gives NaN. */
OG_FN double og_clamp_f64(double x, double lo, double hi)
{
    double y = x < lo ? lo : x;
    y = y > hi ? hi : y;
    y = lo == lo ? y : lo;
    return hi == hi ? y : hi;
}

/* The same of bounds that are no NaN. */
OG_FN double og_clamp_ordered_f64(double x, double lo, double hi)
{
    double y = x < lo ? lo : x;
    return y > hi ? hi : y;
}

OG_FN double og_at_least_f64(double x, double lo)
{
    double y = x < lo ? lo : x;
    return lo == lo ? y : lo;
}

OG_FN double og_at_most_f64(double x, double hi)
{
    double y = x > hi ? hi : x;
    return hi == hi ? y : hi;
}

OG_FN double og_hardsigmoid_f64(double x)
{
    double y = x + 3.0;
    y = y < 0.0 ? 0.0 : y;
    y = y > 6.0 ? 6.0 : y;
    return y / 6.0;
}

OG_FN double og_leaky_relu_f64(double x, double slope)
{
    return x > 0.0 ? x : x * slope;
}

OG_FN double og_threshold_f64(double x, double threshold, double value)
{
    return x <= threshold ? value : x;
}

OG_FN double og_hardshrink_f64(double x, double lambd)
{
    return ((x >= -lambd) & (x <= lambd)) ? 0.0 : x;
}

OG_FN double og_softshrink_f64(double x, double lambd)
{
    double y = x > lambd ? x - lambd : 0.0;
    y = x < -lambd ? x + lambd : y;
    return x == x ? y : x;
}

/* As in scalar_squares_f32.h. */
OG_FN double og_square_scale_f64(double s, double eps)
{
    double least = eps < 0x1p-800 ? 0x1p-900 : 0.0;
    return s <= 0x1p960 ? (s < least ? 0x1p560 : 1.0) : 0x1p-560;
}

OG_FN double og_rescaled_f64(double once, double again, double eps)
{
    return og_square_scale_f64(once, eps) == 1.0 ? once : again;
}

OG_FN double og_rescaled_once_f64(double once, double again, double eps)
{
    return og_rescaled_f64(once, again, eps);
}

OG_FN double og_scaled_square_f64(double x, double scale)
{
    return (x * scale) * (x * scale);
}

OG_FN double og_unscaled_f64(double x, double scale)
{
    return (x / scale) / scale;
}

OG_FN double og_scaled_rsqrt_f64(double x, double scale, double eps)
{
    double more = ((eps != eps ? 0x1p-52 : eps) * scale) * scale;
    return scale * og_rsqrt_f64(x + more);
}

OG_FN double og_exp_f64(double x)
{
    return exp(x);
}

OG_FN double og_expm1_f64(double x)
{
    return expm1(x);
}

OG_FN double og_log_f64(double x)
{
    return log(x);
}

OG_FN double og_log1p_f64(double x)
{
    return log1p(x);
}

OG_FN double og_exp2_f64(double x)
{
    return exp2(x);
}

OG_FN double og_log2_f64(double x)
{
    return log2(x);
}

OG_FN double og_log10_f64(double x)
{
    return log10(x);
}

OG_FN double og_sin_f64(double x)
{
    return sin(x);
}

OG_FN double og_cos_f64(double x)
{
    return cos(x);
}

OG_FN double og_atan_f64(double x)
{
    return atan(x);
}

OG_FN double og_floor_f64(double x)
{
    return floor(x);
}

OG_FN double og_ceil_f64(double x)
{
    return ceil(x);
}

OG_FN double og_trunc_f64(double x)
{
    return trunc(x);
}

/* Ties to even. */
OG_FN double og_round_f64(double x)
{
    return rint(x);
}

/* 0 of a NaN, as PyTorch. */
OG_FN double og_sign_f64(double x)
{
    double y = x > 0.0 ? 1.0 : 0.0;
    return x < 0.0 ? -1.0 : y;
}

OG_FN double og_fmod_f64(double x, double y)
{
    return fmod(x, y);
}

/* The sign is the divisor's; a zero has x's, as PyTorch's. */
OG_FN double og_remainder_f64(double x, double y)
{
    double r = fmod(x, y);
    return r != 0.0 && (y < 0.0) != (r < 0.0) ? r + y : r;
}

OG_FN double og_tanh_f64(double x)
{
    return tanh(x);
}

OG_FN double og_erf_f64(double x)
{
    return erf(x);
}

OG_FN double og_pow_f64(double x, double exponent)
{
    return pow(x, exponent);
}

OG_FN double og_power_f64(double x, double exponent)
{
    return pow(x, exponent);
}

OG_FN double og_xlogy_f64(double x, double y)
{
    double z = x == 0.0 ? 0.0 : x * log(y);
    return y == y ? z : y;
}

OG_FN double og_cross_entropy_f64(double x, double target)
{
    double low = og_at_least_f64(log1p(-x), -100.0);
    double high = og_at_least_f64(log(x), -100.0);
    return (target - 1.0) * low - target * high;
}

/* 1/(1 + e^-x); below -40 the 1 is lost and e^x is the answer. */
OG_FN double og_sigmoid_f64(double x)
{
    return x < -40.0 ? exp(x) : 1.0 / (1.0 + exp(-x));
}

/* x e^(v + vl), v below -40; as two half powers where e^v might be subnormal. */
OG_FN double og_times_exp_f64(double x, double v, double vl)
{
    double e = exp(v < -700.0 ? 0.5 * v : v);
    double corrected = e + e * vl;
    return v < -700.0 ? (x * corrected) * e : x * corrected;
}

OG_FN double og_silu_f64(double x)
{
    return x < -40.0 ? og_times_exp_f64(x, x, 0.0) : x / (1.0 + exp(-x));
}

OG_FN double og_logsigmoid_f64(double x)
{
    double most = x < 0.0 ? -x : 0.0;
    return -(most + log1p(exp(-fabs(x))));
}

OG_FN double og_softplus_f64(double x, double beta, double threshold)
{
    double z = x * beta;
    double most = z > 0.0 ? z : 0.0;
    double y = (most + log1p(exp(-fabs(z)))) / beta;
    return z > threshold ? x : y;
}

/* As og_mish_f32: the quotients of tanh(log(1 + e^x)) as 3/4 + g. */
OG_FN double og_mish_f64(double x)
{
    double e = exp(-fabs(x));
    if (x < -40.0)
        return og_times_exp_f64(x, x, 0.0);
    if (x < 0.0)
        return (x * e) * (0.75 + (0.5 - e * (0.5 + 0.75 * e)) / (2.0 + e * (2.0 + e)));
    return x * (0.75 + (0.25 + e * (0.5 - 1.5 * e)) / (1.0 + e * (2.0 + 2.0 * e)));
}

/*
 * Below 2 by Lambert's continued fraction tanh x = x/(1 + u/(3 + k)), u = x^2,
 * k = u/(5 + u/(7 + ...)): x - tanh x = x u/(u + (3 + k)), nothing cancels.
 */
OG_FN double og_tanhshrink_f64(double x)
{
    double u = x * x;
    double t = 27.0;
    if (x == 0.0)
        return 0.0;
    if (!(fabs(x) < 2.0))
        return x - tanh(x);
    for (int k = 25; k >= 3; k -= 2)
        t = (double)k + u / t;
    return x * (u / (u + t));
}

/* x Phi(x) = x/2 erfc(z), z = -x/sqrt 2; the rounding error of z matters in the tail. */
OG_FN double og_gelu_f64(double x)
{
    double z = x * -0x1.6a09e667f3bcdp-1;
    double zl = fma(x, -0x1.6a09e667f3bcdp-1, -z);
    double tail, slope;
    zl = fma(x, 0x1.bdd3413b26456p-55, zl);
    if (x > 40.0)
        return x;
    if (x < -40.0)
        return x * (x < -1e300 ? erfc(z) : 0.0);
    tail = erfc(z);
    /* Below -37.5 erfc is subnormal: e^(-z^2) (z^2 split), asymptotic series. */
    if (x < -36.0) {
        double s = z * z, sl = fma(z, z, -s) + 2.0 * z * zl;
        double v = 0.5 / s;
        double series = 1.0 - 9.0 * v * (1.0 - 11.0 * v);
        series = 1.0 - v * (1.0 - 3.0 * v * (1.0 - 5.0 * v * (1.0 - 7.0 * v * series)));
        double h = exp(-0.5 * s);
        double g = -0x1.9884533d43651p-2 * series * (1.0 - sl);
        return (g * h) * h;
    }
    slope = -0x1.20dd750429b6dp+0 * exp(-z * z);
    return 0.5 * x * (tail + slope * zl);
}

/* x sigmoid(v), v = x (c0 + c1 x^2), c0 = 2 sqrt(2/pi), c1 = 0.044715 c0, as pairs. */
OG_FN double og_gelu_tanh_f64(double x)
{
    const double c0 = 0x1.9884533d43651p+0, c0l = -0x1.cbc0d30ebfd15p-54;
    const double c1 = 0x1.2444f2a4d8b4bp-4, c1l = -0x1.6c843a29d1c70p-61;
    double a = fabs(x) > 50.0 ? 50.0 : fabs(x);
    double s = a * a, sl = fma(a, a, -s);
    double p = s * c1, pl = fma(s, c1, -p) + (sl * c1 + s * c1l);
    double g = c0 + p;
    double t = g - c0;
    double gl = ((c0 - (g - t)) + (p - t)) + (pl + c0l);
    double v = a * g, vl = fma(a, g, -v) + a * gl;
    if (x < 0.0 && v > 40.0)
        return og_times_exp_f64(x, -v, -vl);
    if (x < 0.0)
        return x / (1.0 + exp(v) * (1.0 + vl));
    return x / (1.0 + exp(-v) * (1.0 - vl));
}

OG_FN double og_elu_f64(double x, double alpha)
{
    return x < 0.0 ? expm1(x) * alpha : x;
}

OG_FN double og_celu_f64(double x, double alpha)
{
    return x < 0.0 ? expm1(x / alpha) * alpha : x;
}

OG_FN double og_selu_f64(double x)
{
    const double scale = 0x1.0cfabd6a91132p+0, scale_alpha = 0x1.c212cc640f031p+0;
    return x < 0.0 ? expm1(x) * scale_alpha : x * scale;
}

#endif
