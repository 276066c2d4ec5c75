/* SPDX-License-Identifier: MIT
 *
 * test_math_base.c - what the scalar functions of src/math stand on, against references: halves to
 * and from float32 and float64, one by one and in blocks, and the emulated fused multiply-add.
 */
#include "test.h"

#include "math/half_block.h"
#include "math/scalar_f32.h"

#include <float.h>

/* ---- half types ---- */

/* Exact value of a half; infinities and NaN included. */
static double half_value(uint16_t h, int exponent_bits)
{
    int mantissa_bits = 15 - exponent_bits;
    int top = (1 << exponent_bits) - 1, bias = top / 2;
    int exponent = (h >> mantissa_bits) & top;
    double mantissa = h & ((1 << mantissa_bits) - 1);
    double value;
    if (exponent == top)
        value = mantissa != 0.0 ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        value = ldexp(mantissa, 1 - bias - mantissa_bits);
    else
        value = ldexp(mantissa + (double)(1 << mantissa_bits), exponent - bias - mantissa_bits);
    return h & 0x8000 ? -value : value;
}

static int half_is_nan(uint16_t h, int exponent_bits)
{
    uint16_t infinity = (uint16_t)(((1 << exponent_bits) - 1) << (15 - exponent_bits));
    return (h & 0x7fff) > infinity;
}

/* Nearest half of a double, ties to even, by searching the ordered halves. */
static uint16_t half_nearest(double x, int exponent_bits)
{
    uint16_t infinity = (uint16_t)(((1 << exponent_bits) - 1) << (15 - exponent_bits));
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    double a = fabs(x);
    uint16_t low = 0, high = infinity;
    if (x != x)
        return (uint16_t)(infinity + 1);
    if (isinf(x))
        return infinity | sign;
    while (high - low > 1) {
        uint16_t middle = (uint16_t)((low + high) / 2);
        if (half_value(middle, exponent_bits) <= a)
            low = middle;
        else
            high = middle;
    }
    double below = half_value(low, exponent_bits);
    /* What infinity stands for is the next power of two. */
    double above =
        high == infinity ? ldexp(1.0, 1 << (exponent_bits - 1)) : half_value(high, exponent_bits);
    double to_low = a - below, to_high = above - a;
    int up = to_high < to_low || (to_high == to_low && (low & 1));
    return (uint16_t)((up ? high : low) | sign);
}

static void check_half(double x, int exponent_bits)
{
    uint16_t want = half_nearest(x, exponent_bits);
    uint16_t from_f64 = exponent_bits == 5 ? og_f16_from_f64(x) : og_bf16_from_f64(x);
    uint16_t from_f32 = exponent_bits == 5 ? og_f16_from_f32((float)x) : og_bf16_from_f32((float)x);
    int exact = (double)(float)x == x;
    if (half_is_nan(want, exponent_bits)) {
        assert_true(half_is_nan(from_f64, exponent_bits));
        assert_true(half_is_nan(from_f32, exponent_bits));
        return;
    }
    if (from_f64 != want || (exact && from_f32 != want))
        fail_msg("%a to %s: got %04x (f64) %04x (f32), want %04x", x,
                 exponent_bits == 5 ? "float16" : "bfloat16", from_f64, from_f32, want);
}

static void test_half_exhaustive(void **state)
{
    (void)state;
    for (int bits = 5; bits <= 8; bits += 3) {
        for (uint32_t u = 0; u < 0x10000; u++) {
            uint16_t h = (uint16_t)u;
            double want = half_value(h, bits);
            float got = bits == 5 ? og_f32_from_f16(h) : og_f32_from_bf16(h);
            uint16_t back = bits == 5 ? og_f16_from_f32(got) : og_bf16_from_f32(got);
            assert_true(test_same_f32(got, (float)want));
            if (half_is_nan(h, bits))
                assert_true(half_is_nan(back, bits));
            else
                assert_int_equal(back, h);
            if (half_is_nan(h, bits) || (h & 0x7fff) == half_nearest(INFINITY, bits))
                continue;
            /* The midpoint to the next half, and its float and double neighbours. */
            uint16_t next = (uint16_t)(h + 1);
            int last = (next & 0x7fff) == half_nearest(INFINITY, bits);
            double above =
                last ? ldexp(h & 0x8000 ? -1.0 : 1.0, 1 << (bits - 1)) : half_value(next, bits);
            double middle = 0.5 * (want + above);
            check_half(middle, bits);
            check_half(nextafter(middle, INFINITY), bits);
            check_half(nextafter(middle, -INFINITY), bits);
            check_half(nextafterf((float)middle, INFINITY), bits);
            check_half(nextafterf((float)middle, -INFINITY), bits);
            check_half(nextafterf((float)want, INFINITY), bits);
            check_half(nextafterf((float)want, -INFINITY), bits);
        }
    }
}

static void test_half_specials(void **state)
{
    (void)state;
    const double values[] = {0.0,      -0.0,     1e-300,   -1e-300, 0x1p-24,   0x1p-25,   0x1p-26,
                             0x1p-133, 0x1p-134, 0x1p-150, 65504.0, 65519.999, 65520.0,   65536.0,
                             FLT_MAX,  3.39e38,  0x1p128,  1e300,   INFINITY,  -INFINITY, NAN,
                             FLT_MIN,  DBL_MAX,  -DBL_MAX, DBL_MIN, 0x1p-1074};
    for (size_t i = 0; i < TEST_COUNT(values); i++) {
        check_half(values[i], 5);
        check_half(values[i], 8);
        check_half(-values[i], 5);
        check_half(-values[i], 8);
    }
    /* Every NaN stays one, whichever bits carry it. */
    for (int bit = 0; bit < 23; bit++) {
        assert_true(half_is_nan(og_f16_from_f32(og_float_bits(0x7f800000u | 1u << bit)), 5));
        assert_true(half_is_nan(og_bf16_from_f32(og_float_bits(0xff800000u | 1u << bit)), 8));
    }
}

static void test_half_double_rounding(void **state)
{
    (void)state;
    test_random random = {test_seed()};
    for (int i = 0; i < 200000; i++) {
        int bits = i & 1 ? 5 : 8;
        uint16_t h = (uint16_t)(test_random_bits(&random) >> 48);
        double x = half_value(h, bits);
        double y = half_value((uint16_t)(h ^ 1), bits);
        if (isnan(x + y) || isinf(x + y))
            continue;
        /* A midpoint, moved by less than a float can tell. */
        double middle = 0.5 * (x + y);
        double nudge = ldexp(middle, -30 - (int)(test_random_bits(&random) % 20));
        check_half(middle + (test_random_bits(&random) & 1 ? nudge : -nudge), bits);
    }
}

static void test_half_blocks(void **state)
{
    (void)state;
    enum { N = 67 };
    uint16_t h[N], back[N];
    float x[N], y[N];
    for (uint32_t start = 0; start < 0x10000; start += N) {
        for (uint32_t i = 0; i < N; i++)
            h[i] = (uint16_t)(start + i);
        og_load_f16(x, h, N);
        og_load_bf16(y, h, N);
        for (uint32_t i = 0; i < N; i++) {
            assert_true(test_same_f32(x[i], og_f32_from_f16(h[i])));
            assert_true(test_same_f32(y[i], og_f32_from_bf16(h[i])));
            x[i] = 1.0009765625f * x[i];
        }
        og_store_f16(back, x, N);
        for (uint32_t i = 0; i < N; i++)
            assert_true(x[i] != x[i] ? half_is_nan(back[i], 5) : back[i] == og_f16_from_f32(x[i]));
        og_store_bf16(back, x, N);
        for (uint32_t i = 0; i < N; i++)
            assert_true(x[i] != x[i] ? half_is_nan(back[i], 8) : back[i] == og_bf16_from_f32(x[i]));
    }
}

/* ---- fused multiply-add ---- */

static void check_fma(float a, float b, float c)
{
    float want = fmaf(a, b, c);
    float got = og_fma_emulated_f32(a, b, c);
    if (!test_same_f32(got, want) || !test_same_f32(og_fma_f32(a, b, c), want))
        fail_msg("fma(%a, %a, %a): got %a (emulated) %a, want %a", a, b, c, got,
                 og_fma_f32(a, b, c), want);
}

static void test_fma_emulation(void **state)
{
    test_random random = {test_seed()};
    (void)state;
    const float special[] = {0.0f,      -0.0f,      1.0f,           -1.0f,         INFINITY,
                             -INFINITY, NAN,        FLT_MAX,        -FLT_MAX,      FLT_MIN,
                             0x1p-149f, -0x1p-149f, 0x1.fffffep-1f, 0x1.000002p0f, 0x1p-75f,
                             0x1p64f,   0x1p-126f,  0x1p127f};
    for (size_t i = 0; i < TEST_COUNT(special); i++)
        for (size_t j = 0; j < TEST_COUNT(special); j++)
            for (size_t k = 0; k < TEST_COUNT(special); k++)
                check_fma(special[i], special[j], special[k]);
    for (int i = 0; i < 10000000; i++) {
        float a = test_random_float(&random), b = test_random_float(&random), c;
        uint64_t r = test_random_bits(&random);
        if (i % 4 == 0) {
            c = og_float_bits((uint32_t)(r >> 32));
        } else {
            /* c near the product, or near a midpoint of it: where two roundings differ. */
            int shift = (int)(r % 80) - 40;
            a = og_float_bits((og_bits_f32(a) & 0x807fffffu) | 0x3f800000u);
            b = og_float_bits((og_bits_f32(b) & 0x807fffffu) | 0x3f800000u);
            if (i % 4 == 2)
                b = og_float_bits(og_bits_f32(b) & 0xffffff00u << (r >> 60));
            c = ldexpf(a * b, shift);
            c = i % 4 == 3 ? ldexpf(1.0f + (float)(r >> 41) * 0x1p-23f, shift) : c;
        }
        check_fma(a, b, c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_half_exhaustive),      cmocka_unit_test(test_half_specials),
        cmocka_unit_test(test_half_double_rounding), cmocka_unit_test(test_half_blocks),
        cmocka_unit_test(test_fma_emulation),
    };
    return TEST_RUN(tests);
}
