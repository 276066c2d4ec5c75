/* SPDX-License-Identifier: MIT
 *
 * fake_tensor.c - the arithmetic of tensor cores, for kernels that shim_device.h compiles. They
 * are compiled fast and run slowly; this takes most of their time, and is compiled to be fast.
 */
#include "fake_cuda.h"

#include <stdint.h>
#include <string.h>

enum { K = 16, NO_EXPONENT = -1000 };

static inline uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* The exponent that a factor of float16 or bfloat16 (least: -14, -126), or a sum, counts with where
 * products are aligned; of 0 none. */
static inline int find_exponent(float x, int least)
{
    const int e = (int)(bits_of(x) >> 23 & 255) - 127;
    const int counted = e < least ? least : e;
    return bits_of(x) << 1 == 0 ? NO_EXPONENT : counted;
}

static inline double power_of_two(int e)
{
    const uint64_t bits = (uint64_t)(1023 + e) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return power;
}

static inline float truncate_to_float(double x)
{
    float y = (float)x;
    if (x < 0 ? y < x : y > x) {
        const uint32_t bits = bits_of(y) - 1;
        memcpy(&y, &bits, sizeof y);
    }
    return y;
}

/* gcc finds what both kinds of CPU can do; the product's terms go side by side. */
#if defined(__x86_64__) && !defined(__clang__)
__attribute__((target_clones("avx2", "default")))
#endif
float fake_add_products(float sum, const float *x, const float *w, int least)
{
    double product[K], plain = sum;
    int e[K], top = find_exponent(sum, -126);
    for (int k = 0; k < K; k++) {
        product[k] = (double)x[k] * w[k];
        e[k] = find_exponent(x[k], least) + find_exponent(w[k], least);
    }
    for (int k = 0; k < K; k++) {
        plain += product[k];
        top = e[k] > top ? e[k] : top;
    }
    if (!(plain - plain == 0) || top < -900) /* not finite, or all of them 0 */
        return (float)plain;
    /* A term is below 2^27 then: the mantissas of two factors have 2 bits before the point. */
    const double inverse = power_of_two(25 - top);
    int32_t term[K];
    for (int k = 0; k < K; k++)
        term[k] = (int32_t)(product[k] * inverse);
    int64_t all = (int64_t)(sum * inverse);
    for (int k = 0; k < K; k++)
        all += term[k];
    return truncate_to_float((double)all * power_of_two(top - 25));
}
