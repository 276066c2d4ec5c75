/* SPDX-License-Identifier: MIT
 *
 * reference_numbers.c - single numbers of every dtype as they lie in memory, without the library's own
 * conversions. See reference.h.
 */
#include "reference.h"

#include <math.h>

/* The 16 bits of a half of this many exponent bits. */
static double load_half(uint16_t bits, int exponent_bits)
{
    int mantissa_bits = 15 - exponent_bits;
    int exponent = (bits & 0x7fff) >> mantissa_bits;
    int mantissa = bits & ((1 << mantissa_bits) - 1);
    int bias = (1 << (exponent_bits - 1)) - 1;
    double value;
    if (exponent == (1 << exponent_bits) - 1)
        value = mantissa ? NAN : INFINITY;
    else if (exponent == 0)
        value = ldexp(mantissa, 1 - bias - mantissa_bits);
    else
        value = ldexp((1 << mantissa_bits) | mantissa, exponent - bias - mantissa_bits);
    return bits >> 15 ? -value : value;
}

static uint16_t store_half(double value, int exponent_bits)
{
    int mantissa_bits = 15 - exponent_bits;
    int bias = (1 << (exponent_bits - 1)) - 1;
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    uint16_t infinity = (uint16_t)(((1 << exponent_bits) - 1) << mantissa_bits);
    if (isnan(value))
        return (uint16_t)(sign | infinity | 1 << (mantissa_bits - 1));
    if (isinf(value))
        return sign | infinity;
    int exponent;
    frexp(value, &exponent);
    exponent = value == 0 || exponent - 1 < 1 - bias ? 1 - bias : exponent - 1;
    int mantissa = (int)ldexp(fabs(value), mantissa_bits - exponent);
    /* A normal number's leading bit adds 1 to the exponent field. */
    return (uint16_t)(sign | (((exponent + bias - 1) << mantissa_bits) + mantissa));
}

double reference_load(const void *data, og_dtype dtype, int64_t element)
{
    switch (dtype) {
    case OG_FLOAT32:
        return ((const float *)data)[element];
    case OG_FLOAT64:
        return ((const double *)data)[element];
    case OG_FLOAT16:
        return load_half(((const uint16_t *)data)[element], 5);
    default:
        return load_half(((const uint16_t *)data)[element], 8);
    }
}

void reference_store(void *data, og_dtype dtype, int64_t element, double value)
{
    switch (dtype) {
    case OG_FLOAT32:
        ((float *)data)[element] = (float)value;
        break;
    case OG_FLOAT64:
        ((double *)data)[element] = value;
        break;
    case OG_FLOAT16:
        ((uint16_t *)data)[element] = store_half(value, 5);
        break;
    default:
        ((uint16_t *)data)[element] = store_half(value, 8);
    }
}
