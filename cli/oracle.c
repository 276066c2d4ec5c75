/* SPDX-License-Identifier: MIT */
/*
 * Reference values for accuracy checks: see oracle.h.
 *
 * Only of functions that the library's float64 computes by more than a call of
 * libm, or that mean something else in float64; of all others that is the reference.  Everything is libm's double
 * functions, arranged so that nothing cancels and no intermediate overflows:
 * inputs and results are within float32's range, so double's own subnormals are
 * never met.  Written apart from src/math on purpose; about 10 to 60 ns a value.
 */
#include "oracle.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define UNUSED(p) ((void)(p))

static double clamp_to(double x, double lo, double hi)
{
    if (lo != lo || hi != hi)
        return NAN;
    double y = x < lo ? lo : x;
    return y > hi ? hi : y;
}

/* As PyTorch: the product with six overflows before it is divided. */
static double hardswish(double x, const double *p)
{
    UNUSED(p);
    if (x * 6.0 >= 0x1p128 - 0x1p103)
        return INFINITY;
    return x * clamp_to(x + 3.0, 0.0, 6.0) / 6.0;
}

/* Its own epsilon is float32's. */
static double add_eps(double x, const double *p)
{
    return x + (p[0] != p[0] ? 0x1p-23 : p[0]);
}

static double sigmoid(double x, const double *p)
{
    UNUSED(p);
    return x < -40.0 ? exp(x) : 1.0 / (1.0 + exp(-x));
}

static double silu(double x, const double *p)
{
    UNUSED(p);
    return x < -40.0 ? x * exp(x) : x / (1.0 + exp(-x));
}

/* log(1 + e^x) */
static double log_sum(double x)
{
    return (x > 0.0 ? x : 0.0) + log1p(exp(-fabs(x)));
}

static double logsigmoid(double x, const double *p)
{
    UNUSED(p);
    return -log_sum(-x);
}

static double softplus(double x, const double *p)
{
    double z = x * p[0];
    return z > p[1] ? x : log_sum(z) / p[0];
}

/* x n/(n + 2), n = e (e + 2), e = e^x, or both over e^2 where e is large. */
static double mish(double x, const double *p)
{
    UNUSED(p);
    double e = exp(-fabs(x));
    double n = x < 0.0 ? e * (e + 2.0) : 1.0 + 2.0 * e;
    return x * (n / (x < 0.0 ? n + 2.0 : n + 2.0 * e * e));
}

/* Lambert's continued fraction: tanh x = x/(1 + t), so x - tanh x = x t/(1 + t). */
static double tanhshrink(double x, const double *p)
{
    UNUSED(p);
    if (x == 0.0)
        return 0.0;
    if (!(fabs(x) < 1.5))
        return x - tanh(x);
    double u = x * x, t = 21.0;
    for (int k = 19; k >= 3; k -= 2)
        t = k + u / t;
    t = u / t;
    return x * (t / (1.0 + t));
}

/*
 * x/2 erfc(z), z = -x/sqrt(2).  Where z is large the rounding error of z counts
 * 2z^2 times: corrected by the derivative.
 */
static double gelu(double x, const double *p)
{
    UNUSED(p);
    double z = x * -0x1.6a09e667f3bcdp-1;
    double tail = erfc(z);
    if (z > 1.0 && z < 20.0) {
        double zl = fma(x, -0x1.6a09e667f3bcdp-1, -z) + x * 0x1.bdd3413b26456p-55;
        tail -= 0x1.20dd750429b6dp+0 * exp(-z * z) * zl;
    }
    return 0.5 * x * tail;
}

/* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) = x sigmoid(twice that) */
static double gelu_tanh(double x, const double *p)
{
    UNUSED(p);
    double v = x * (0x1.9884533d43651p+0 + 0x1.2444f2a4d8b4bp-4 * (x * x));
    return v < -40.0 ? x * exp(v) : x / (1.0 + exp(-v));
}

static const struct {
    const char *name;
    oracle_function *function;
} functions[] = {
    {"sigmoid", sigmoid},
    {"silu", silu},
    {"gelu", gelu},
    {"gelu_tanh", gelu_tanh},
    {"logsigmoid", logsigmoid},
    {"mish", mish},
    {"tanhshrink", tanhshrink},
    {"softplus", softplus},
    {"hardswish", hardswish},
    {"add_eps", add_eps},
};

oracle_function *oracle_find(const char *name)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strcmp(functions[i].name, name) == 0)
            return functions[i].function;
    return NULL;
}

/* 2^exponent, exponent >= -1022 */
static double power_of_two(int exponent)
{
    uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

double oracle_ulp_f32(float got, double want)
{
    if (want != want || got != got)
        return want != want && got != got ? 0.0 : INFINITY;
    if (isinf(want))
        return (double)got == want ? 0.0 : INFINITY;
    if (got == 0.0f && !signbit(got) != !signbit(want))
        return INFINITY;
    float nearest = (float)want;
    uint32_t bits;
    memcpy(&bits, &nearest, sizeof bits);
    int exponent = (int)(bits >> 23 & 0xff);
    exponent = exponent == 255 ? 254 : exponent == 0 ? 1 : exponent;
    double ulp = power_of_two(exponent - 150);
    double value = isinf(got) ? copysign(0x1p128, got) : (double)got;
    if (isinf(got) && fabs(want) >= 0x1p128 && (got < 0.0f) == (want < 0.0))
        return 0.0;
    return fabs(value - want) / ulp;
}
