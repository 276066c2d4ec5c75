/* SPDX-License-Identifier: MIT
 *
 * fake_tensor.c - the arithmetic of tensor cores, for kernels that shim_device.h compiles. They
 * are compiled fast and run slowly; this takes most of their time, and is compiled to be fast.
 * A product's rows are mostly those that a tile has and the matrix has not: they are 0, and
 * change no sum.
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

/* Halves as numbers, without a branch: side by side. */
static inline float read_float16(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, mantissa = half & 1023;
    const uint32_t exponent = half >> 10 & 31;
    const uint32_t special = mantissa ? 0x7fc00000 : 0x7f800000;
    const uint32_t normal = (exponent + 112) << 23 | mantissa << 13;
    const uint32_t small = bits_of((float)(int32_t)mantissa * 0x1p-24f);
    const uint32_t bits = sign | (exponent == 31 ? special : exponent == 0 ? small : normal);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float read_bfloat16(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* What a factor's 16 numbers along k are to all that they are multiplied with. */
typedef struct {
    double x[K];
    int exponent[K];
    bool is_finite, is_zero;
} factor_row;

static inline void see_row(const float *x, int least, factor_row *row)
{
    uint32_t most = 0;
    for (int k = 0; k < K; k++) {
        const uint32_t magnitude = bits_of(x[k]) << 1;
        row->x[k] = x[k];
        row->exponent[k] = find_exponent(x[k], least);
        most = magnitude > most ? magnitude : most;
    }
    row->is_finite = most < 0xff000000;
    row->is_zero = most == 0;
}

static float add_plainly(float sum, const factor_row *row, const float *w)
{
    double plain = sum;
    for (int k = 0; k < K; k++)
        plain += row->x[k] * w[k];
    return (float)plain;
}

/* gcc finds what all kinds of CPU can do; the product's terms go side by side. */
#if defined(__x86_64__) && !defined(__clang__)
#define CLONED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONED
#endif

/* A function of its own: inlined into a loop, gcc 12 leaves it scalar. */
CLONED static float add_row(float sum, const factor_row *row, const float *w, int least)
{
    uint32_t most = 0;
    for (int k = 0; k < K; k++)
        most = bits_of(w[k]) << 1 > most ? bits_of(w[k]) << 1 : most;
    if (!row->is_finite || most >= 0xff000000 || bits_of(sum) << 1 >= 0xff000000)
        return add_plainly(sum, row, w);
    if (row->is_zero && bits_of(sum) != 0x80000000)
        return sum;
    double product[K];
    int e[K], top = find_exponent(sum, -126);
    for (int k = 0; k < K; k++) {
        product[k] = row->x[k] * w[k];
        e[k] = row->exponent[k] + find_exponent(w[k], least);
    }
    for (int k = 0; k < K; k++)
        top = e[k] > top ? e[k] : top;
    if (top < -900) /* all of them 0 */
        return add_plainly(sum, row, w);
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

float fake_add_products(float sum, const float *x, const float *w, int least)
{
    factor_row row;
    see_row(x, least, &row);
    return add_row(sum, &row, w, least);
}

void fake_multiply(float *d, int n, int adds, int least, const float (*left)[K],
                   const float (*right)[K], int lane)
{
    const int g = lane / 4, t = lane % 4;
    factor_row rows[2];
    see_row(left[g], least, &rows[0]);
    see_row(left[g + 8], least, &rows[1]);
    for (int i = 0; i < n; i++)
        d[i] =
            add_row(adds ? d[i] : 0.0f, &rows[i / 2 % 2], right[i / 4 * 8 + 2 * t + i % 2], least);
}

static unsigned swizzle_at(unsigned address, unsigned swizzle)
{
    return address ^ (address >> 7 & ((1u << swizzle) - 1)) << 4;
}

/* Half a row lies together, or each number in a line of its own. */
void fake_read_row(const struct shim_factor *from, int row, float *to)
{
    const unsigned start = (unsigned)(from->description & 0x3fff) << 4;
    const unsigned swizzle = 4 - (unsigned)(from->description >> 62), line = 16u << swizzle;
    const unsigned bytes = from->across ? 2 : 16, step = from->across ? 128 : 16;
    const unsigned across = (unsigned)(from->description >> 16 & 0x3fff) << 4; /* 64 rows on */
    const unsigned along = (unsigned)(from->description >> 32 & 0x3fff) << 4;  /* 8 lines on */
    const unsigned r = (unsigned)row;
    const unsigned first =
        start + (from->across ? r / 64 * across + r % 64 * 2 : r / 8 * along + r % 8 * line);
    uint16_t halves[K];
    for (unsigned k = 0; k < K; k += bytes / 2) {
        const unsigned at = swizzle_at(first + k / (bytes / 2) * step, swizzle);
        if (at >= SHIM_SHARED_BYTES)
            from->link->fail("an address beyond shared memory");
        if (from->checks)
            from->link->touch(from->shared + at, bytes, 0);
        memcpy(halves + k, from->shared + at, bytes);
    }
    if (from->is_bfloat)
        for (int k = 0; k < K; k++)
            to[k] = read_bfloat16(halves[k]);
    else
        for (int k = 0; k < K; k++)
            to[k] = read_float16(halves[k]);
}
