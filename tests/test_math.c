/* SPDX-License-Identifier: MIT
 *
 * test_math.c - the scalar functions of src/math against references: the ULP counter first, then
 * every function of functions.def: float32 against cli/oracle.c or float64, float64 against long
 * double where a reference is written here (tests/python compares every float64 function with
 * PyTorch's). What they stand on, halves and the fused multiply-add, is test_math_base.c's.
 */
#include "test.h"

#include "math/scalar_f32.h"
#include "math/scalar_f64.h"
#include "oracle.h"

#include <float.h>

/* ---- the counter ---- */

static void test_ulp_counter(void **state)
{
    (void)state;
    const double one = 1.0, e = 0x1p-23;
    assert_true(oracle_ulp_f32(1.0f, one) == 0.0);
    assert_true(oracle_ulp_f32(nextafterf(1.0f, 2.0f), one) == 1.0);
    assert_true(oracle_ulp_f32(nextafterf(1.0f, 0.0f), one) == 0.5);
    assert_true(oracle_ulp_f32(1.0f, 1.0 - e / 2) == 1.0);
    assert_true(oracle_ulp_f32(1.0f, 1.0 + e / 2) == 0.5);
    /* The unit is that of the float nearest to want: 1 here, not the one below. */
    assert_true(oracle_ulp_f32(1.0f, 1.0 - e / 8) == 0.125);
    assert_true(oracle_ulp_f32(1.0f, 1.0 - e / 2 + e / 8) == 0.75);
    assert_true(oracle_ulp_f32(-3.0f, -3.0 - 2 * e) == 1.0);
    /* Subnormals and the edge of zero. */
    assert_true(oracle_ulp_f32(0x1p-149f, 0x1p-148) == 1.0);
    assert_true(oracle_ulp_f32(0x1p-126f, 0x1p-126 - 0x1p-149) == 1.0);
    assert_true(oracle_ulp_f32(0.0f, 0x1p-150) == 0.5);
    assert_true(oracle_ulp_f32(0.0f, 1e-300) < 1e-200);
    assert_true(isinf(oracle_ulp_f32(-0.0f, 1e-300)));
    assert_true(isinf(oracle_ulp_f32(0.0f, -1e-300)));
    assert_true(isinf(oracle_ulp_f32(-0.0f, 0.0)));
    assert_true(isinf(oracle_ulp_f32(0.0f, -0.0)));
    assert_true(oracle_ulp_f32(-0.0f, -0.0) == 0.0);
    assert_true(oracle_ulp_f32(0x1p-149f, 0.0) == 1.0);
    /* The edge of the range. */
    assert_true(oracle_ulp_f32(INFINITY, 1e300) == 0.0);
    assert_true(oracle_ulp_f32(INFINITY, 0x1p128) == 0.0);
    assert_true(oracle_ulp_f32(INFINITY, 0x1p128 - 0x1p103) == 0.5);
    assert_true(oracle_ulp_f32(FLT_MAX, 0x1p128 - 0x1p103) == 0.5);
    assert_true(oracle_ulp_f32(INFINITY, FLT_MAX) == 1.0);
    assert_true(oracle_ulp_f32(FLT_MAX, 0x1p129) > 1e7);
    assert_true(oracle_ulp_f32(-INFINITY, 1e300) > 1e7);
    assert_true(isinf(oracle_ulp_f32(FLT_MAX, INFINITY)));
    assert_true(oracle_ulp_f32(-INFINITY, -INFINITY) == 0.0);
    /* NaN. */
    assert_true(oracle_ulp_f32(NAN, NAN) == 0.0);
    assert_true(isinf(oracle_ulp_f32(NAN, one)));
    assert_true(isinf(oracle_ulp_f32(1.0f, NAN)));
    assert_true(isinf(oracle_ulp_f32(INFINITY, NAN)));
}

/* ---- float32 functions ---- */

typedef float unary_f32(float x, const double *p);

/* Every SCALAR row of one value, both types with one signature; arguments beyond x from p. */
#define WRAP(type, name, ...)                                                                      \
    static inline type name(type x, const double *p)                                               \
    {                                                                                              \
        (void)p;                                                                                   \
        return og_##name(__VA_ARGS__);                                                             \
    }
#define WRAP_1_0(name) WRAP(float, name##_f32, x) WRAP(double, name##_f64, x)
#define WRAP_1_1(name) WRAP(float, name##_f32, x, (float)p[0]) WRAP(double, name##_f64, x, p[0])
#define WRAP_1_2(name)                                                                             \
    WRAP(float, name##_f32, x, (float)p[0], (float)p[1]) WRAP(double, name##_f64, x, p[0], p[1])
#define WRAP_2_0(name)
#define WRAP_2_1(name)
#define SCALAR(name, args, constants, ...) WRAP_##args##_##constants(name)
#include "formula/functions.def"

/* The composites, as their formulas are written. */
#define SOFTSIGN(type) og_div_##type(x, og_add_##type(1, og_abs_##type(x)))
#define COMPOSITE(real, type, name, value)                                                         \
    static real name##_##type(real x, const double *p)                                             \
    {                                                                                              \
        (void)p;                                                                                   \
        return value;                                                                              \
    }
COMPOSITE(float, f32, softsign, SOFTSIGN(f32))
COMPOSITE(double, f64, softsign, SOFTSIGN(f64))
COMPOSITE(float, f32, hardswish, x *og_clamp_f32(x + 3.0f, 0.0f, 6.0f) / 6.0f)
COMPOSITE(float, f32, relu6, og_clamp_f32(x, 0.0f, 6.0f))
COMPOSITE(double, f64, relu6, og_clamp_f64(x, 0.0, 6.0))
COMPOSITE(float, f32, hardtanh, og_clamp_f32(x, -1.0f, 1.0f))
COMPOSITE(double, f64, hardtanh, og_clamp_f64(x, -1.0, 1.0))
#undef COMPOSITE

typedef double unary_f64(double x, const double *p);

static const struct {
    const char *name;
    unary_f32 *f32;
    unary_f64 *f64;
} functions[] = {
#define ENTRY_1(name) {#name, name##_f32, name##_f64},
#define ENTRY_2(name)
#define SCALAR(name, args, ...) ENTRY_##args(name)
#include "formula/functions.def"
    {"softsign", softsign_f32, softsign_f64},
    {"hardswish", hardswish_f32, NULL},
    {"relu6", relu6_f32, relu6_f64},
    {"hardtanh", hardtanh_f32, hardtanh_f64},
};

static size_t find_function(const char *name)
{
    size_t i = 0;
    while (i < TEST_COUNT(functions) && strcmp(functions[i].name, name) != 0)
        i++;
    if (i == TEST_COUNT(functions))
        fail_msg("no function called %s", name);
    return i;
}

static unary_f32 *find_f32(const char *name)
{
    return functions[find_function(name)].f32;
}

/* What a float32 result should be. */
static oracle_function *find_reference(const char *name)
{
    oracle_function *oracle = oracle_find(name);
    return oracle ? oracle : functions[find_function(name)].f64;
}

static const struct {
    const char *name;
    double max_ulp;
    uint64_t hash;
} accuracy[] = {
#define OG_ACCURACY(name, max_ulp, hash) {#name, max_ulp, hash},
#include "math/accuracy.def"
#undef OG_ACCURACY
};

/* PyTorch's defaults. */
static const struct {
    const char *name;
    double parameters[2];
} defaults[] = {
    {"leaky_relu", {0.01f, 0.0}}, {"elu", {1.0, 0.0}},        {"celu", {1.0, 0.0}},
    {"softplus", {1.0, 20.0}},    {"softshrink", {0.5, 0.0}}, {"hardshrink", {0.5, 0.0}},
};

static const double *default_parameters(const char *name)
{
    static const double none[2] = {0.0, 0.0};
    for (size_t i = 0; i < TEST_COUNT(defaults); i++)
        if (strcmp(defaults[i].name, name) == 0)
            return defaults[i].parameters;
    return none;
}

static void check_f32(const char *name, unary_f32 *function, oracle_function *oracle,
                      const double *parameters, double bound, float x)
{
    float got = function(x, parameters);
    double want = oracle((double)x, parameters);
    double error = oracle_ulp_f32(got, want);
    if (!(error <= bound))
        fail_msg("%s(%a = %.9g, bits %08" PRIx32 "; %g, %g): got %a = %.9g, want %a = %.9g, "
                 "error %.3f ULP > %.2f",
                 name, x, x, og_bits_f32(x), parameters[0], parameters[1], got, got, want, want,
                 error, bound);
}

/* Arguments where the functions change formula, saturate or overflow. */
static const float breakpoints[] = {
    0.0f,      0x1p-149f, 0x1p-126f, 0x1p-100f, 0x1p-75f, 0x1p-63f, 0x1p-26f, 0x1p-25f, 0x1p-24f,
    0x1p-12f,  0.01f,     0.1f,      0.25f,     0.293f,   0.3466f,  0.414f,   0.5f,     0.7071f,
    0.75f,     0.8814f,   1.0f,      1.0397f,   1.4142f,  1.5f,     2.0f,     3.0f,     3.919f,
    4.0f,      6.0f,      8.66f,     9.0109f,   11.0f,    14.5f,    16.64f,   17.33f,   20.0f,
    25.0f,     30.0f,     40.0f,     87.34f,    88.376f,  88.7228f, 89.0f,    102.0f,   103.28f,
    103.9721f, 104.0f,    108.5f,    110.0f,    120.0f,   0x1p23f,  0x1p24f,  0x1p25f,  0x1p64f,
    0x1p126f,  0x1p127f,  FLT_MAX};

static void check_all_f32(const char *name, const double *parameters, double bound, uint32_t step)
{
    unary_f32 *function = find_f32(name);
    oracle_function *oracle = find_reference(name);
    for (uint64_t u = 0; u < (uint64_t)1 << 32; u += step)
        check_f32(name, function, oracle, parameters, bound, og_float_bits((uint32_t)u));
    for (size_t i = 0; i < TEST_COUNT(breakpoints); i++)
        for (int32_t d = -300; d <= 300; d++) {
            float x = og_float_bits(og_bits_f32(breakpoints[i]) + (uint32_t)d);
            check_f32(name, function, oracle, parameters, bound, x);
            check_f32(name, function, oracle, parameters, bound, -x);
        }
    /* Small integers and halves, where results are often exact or near ties. */
    for (int i = -1024; i <= 1024; i++)
        check_f32(name, function, oracle, parameters, bound, (float)i * 0.125f);
}

static void test_f32_accuracy(void **state)
{
    (void)state;
    for (size_t i = 0; i < TEST_COUNT(accuracy); i++)
        check_all_f32(accuracy[i].name, default_parameters(accuracy[i].name), accuracy[i].max_ulp,
                      4099);
}

static void test_f32_parameters(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double parameters[2];
        double bound;
    } cases[] = {
        {"leaky_relu", {0.0, 0}, 0.5},    {"leaky_relu", {-2.5, 0}, 0.5},
        {"elu", {2.5, 0}, 2.5},           {"elu", {-0.1f, 0}, 2.5},
        {"celu", {0.3f, 0}, 3.0},         {"celu", {7.0, 0}, 3.0},
        {"celu", {-2.0, 0}, 3.0},         {"softplus", {2.0, 10.0}, 2.5},
        {"softplus", {0.7f, 20.0}, 3.0},  {"softplus", {-3.0, 20.0}, 3.0},
        {"softshrink", {0.0, 0}, 0.5},    {"softshrink", {3.7f, 0}, 0.5},
        {"hardshrink", {0.0, 0}, 0.5},    {"hardshrink", {2.0, 0}, 0.5},
        {"hardshrink", {-1.0, 0}, 0.5},   {"hardshrink", {NAN, 0}, 0.5},
        {"threshold", {0.5, -7.0}, 0.5},  {"threshold", {-0.0, -0.0}, 0.5},
        {"threshold", {NAN, 1.0}, 0.5},   {"clamp", {-1.5, 2.0}, 0.5},
        {"clamp", {-0.0, 0.0}, 0.5},      {"clamp", {3.0, 1.0}, 0.5},
        {"clamp", {NAN, 1.0}, 0.5},       {"clamp", {0.0, NAN}, 0.5},
        {"clamp", {-INFINITY, 0.0}, 0.5},
    };
    for (size_t i = 0; i < TEST_COUNT(cases); i++)
        check_all_f32(cases[i].name, cases[i].parameters, cases[i].bound, 65537);
    const double exponents[] = {0.0,  -0.0,  1.0,     2.0,      3.0,       -1.0,   -2.0,     0.5,
                                -0.5, 0.1f,  2.5,     -7.0,     33.0,      1e10f,  16777215, 1e-10f,
                                NAN,  1e30f, -1e-30f, INFINITY, -INFINITY, 8388609};
    for (size_t i = 0; i < TEST_COUNT(exponents); i++)
        check_all_f32("pow", (const double[2]){exponents[i], 0.0}, 0.51, 65537);
}

/*
 * Of several arguments: results that two roundings, instead of the one of a fused multiply-add, change
 * (3 of 2.8e9 by chance). This program has the lowest level's functions, without the instruction.
 */
static void test_one_rounding(void **state)
{
    (void)state;
    static const struct {
        float x, beta, want;
    } cases[] = {{-0x1.f210e2p+4f, 0x1.1eb7c4p+0f, 0x1.73abdp-51f},
                 {-0x1.d2a482p+4f, 0x1.8ac1c6p+0f, 0x1.6829a4p-66f},
                 {-0x1.97b76p+5f, 0x1.aed038p+0f, 0x1.6da48p-125f}};
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        float got = og_softplus_f32(cases[i].x, cases[i].beta, 20.0f);
        if (og_bits_f32(got) != og_bits_f32(cases[i].want))
            fail_msg("softplus(%a, %a): got %a, want %a", cases[i].x, cases[i].beta, got,
                     cases[i].want);
    }
}

/* What PyTorch 2.13 (CPU) returns at -inf, -0, 0, inf and NaN, in both types. */
static void test_specials(void **state)
{
    (void)state;
    const double inf = INFINITY, nan = NAN;
    const double selu_low = -1.7580993408473768;
    const double x[5] = {-inf, -0.0, 0.0, inf, nan};
    const struct {
        const char *name;
        double want[5];
    } rows[] = {
        {"neg", {inf, 0.0, -0.0, -inf, nan}},
        {"abs", {inf, 0.0, 0.0, inf, nan}},
        {"square", {inf, 0.0, 0.0, inf, nan}},
        {"reciprocal", {-0.0, -inf, inf, 0.0, nan}},
        {"sqrt", {nan, -0.0, 0.0, inf, nan}},
        {"rsqrt", {nan, -inf, inf, 0.0, nan}},
        {"exp", {0.0, 1.0, 1.0, inf, nan}},
        {"expm1", {-1.0, -0.0, 0.0, inf, nan}},
        {"log", {nan, -inf, -inf, inf, nan}},
        {"log1p", {nan, -0.0, 0.0, inf, nan}},
        {"exp2", {0.0, 1.0, 1.0, inf, nan}},
        {"log2", {nan, -inf, -inf, inf, nan}},
        {"log10", {nan, -inf, -inf, inf, nan}},
        {"sin", {nan, -0.0, 0.0, nan, nan}},
        {"cos", {nan, 1.0, 1.0, nan, nan}},
        {"atan", {-1.5707963267948966, -0.0, 0.0, 1.5707963267948966, nan}},
        {"floor", {-inf, -0.0, 0.0, inf, nan}},
        {"ceil", {-inf, -0.0, 0.0, inf, nan}},
        {"round", {-inf, -0.0, 0.0, inf, nan}},
        {"trunc", {-inf, -0.0, 0.0, inf, nan}},
        {"sign", {-1.0, 0.0, 0.0, 1.0, 0.0}},
        {"tanh", {-1.0, -0.0, 0.0, 1.0, nan}},
        {"sigmoid", {0.0, 0.5, 0.5, 1.0, nan}},
        {"hardsigmoid", {0.0, 0.5, 0.5, 1.0, nan}},
        {"relu", {0.0, -0.0, 0.0, inf, nan}},
        {"erf", {-1.0, -0.0, 0.0, 1.0, nan}},
        {"silu", {nan, -0.0, 0.0, inf, nan}},
        {"gelu", {nan, -0.0, 0.0, inf, nan}},
        {"gelu_tanh", {nan, -0.0, 0.0, inf, nan}},
        /* -0 at inf, where PyTorch has 0: the limit's sign. */
        {"logsigmoid", {-inf, -0.6931471805599453, -0.6931471805599453, -0.0, nan}},
        {"mish", {nan, -0.0, 0.0, inf, nan}},
        {"selu", {selu_low, -0.0, 0.0, inf, nan}},
        {"tanhshrink", {-inf, 0.0, 0.0, inf, nan}},
        {"leaky_relu", {-inf, -0.0, 0.0, inf, nan}},
        {"elu", {-1.0, -0.0, 0.0, inf, nan}},
        {"celu", {-1.0, -0.0, 0.0, inf, nan}},
        {"softplus", {0.0, 0.6931471805599453, 0.6931471805599453, inf, nan}},
        {"softshrink", {-inf, 0.0, 0.0, inf, nan}},
        {"hardshrink", {-inf, 0.0, 0.0, inf, nan}},
        {"softsign", {nan, -0.0, 0.0, nan, nan}},
        {"hardswish", {nan, -0.0, 0.0, inf, nan}},
        {"relu6", {0.0, -0.0, 0.0, 6.0, nan}},
        {"hardtanh", {-1.0, -0.0, 0.0, 1.0, nan}},
    };
    for (size_t i = 0; i < TEST_COUNT(rows); i++)
        for (size_t j = 0; j < 5; j++) {
            const double *p = default_parameters(rows[i].name);
            float got = find_f32(rows[i].name)((float)x[j], p);
            double reference = find_reference(rows[i].name)(x[j], p);
            if (oracle_ulp_f32(got, rows[i].want[j]) > 0.6 ||
                oracle_ulp_f32((float)reference, rows[i].want[j]) > 0.6)
                fail_msg("%s(%g): got %g, oracle %g, want %g", rows[i].name, x[j], got, reference,
                         rows[i].want[j]);
        }
}

/* ---- comparisons, minimum and maximum, where ---- */

static void test_selects(void **state)
{
    (void)state;
    const float v[] = {-INFINITY, -1.0f, -0.0f, 0.0f, 1.0f, INFINITY, NAN};
    for (size_t i = 0; i < TEST_COUNT(v); i++)
        for (size_t j = 0; j < TEST_COUNT(v); j++) {
            float a = v[i], b = v[j];
            assert_int_equal(og_lt_f32(a, b), a < b ? 0xffffffffu : 0u);
            assert_int_equal(og_le_f32(a, b), a <= b ? 0xffffffffu : 0u);
            assert_int_equal(og_gt_f32(a, b), a > b ? 0xffffffffu : 0u);
            assert_int_equal(og_ge_f32(a, b), a >= b ? 0xffffffffu : 0u);
            assert_int_equal(og_eq_f32(a, b), a == b ? 0xffffffffu : 0u);
            assert_int_equal(og_ne_f32(a, b), a != b ? 0xffffffffu : 0u);
            assert_int_equal(og_lt_f64(a, b), og_lt_f32(a, b));
            assert_int_equal(og_le_f64(a, b), og_le_f32(a, b));
            assert_int_equal(og_gt_f64(a, b), og_gt_f32(a, b));
            assert_int_equal(og_ge_f64(a, b), og_ge_f32(a, b));
            assert_int_equal(og_eq_f64(a, b), og_eq_f32(a, b));
            assert_int_equal(og_ne_f64(a, b), og_ne_f32(a, b));
            int unordered = a != a || b != b;
            float least = unordered ? NAN : a < b ? a : b;
            float most = unordered ? NAN : a > b ? a : b;
            assert_true(test_same_f32(og_minimum_f32(a, b), least));
            assert_true(test_same_f32(og_maximum_f32(a, b), most));
            assert_true(test_same_f32((float)og_minimum_f64(a, b), least));
            assert_true(test_same_f32((float)og_maximum_f64(a, b), most));
            assert_true(test_same_f32(og_where_f32(0xffffffffu, a, b), a));
            assert_true(test_same_f32(og_where_f32(0, a, b), b));
            assert_true(test_same_f32((float)og_where_f64(0xffffffffu, a, b), a));
            assert_true(test_same_f32((float)og_where_f64(0, a, b), b));
        }
}

/* ---- what a division leaves ---- */

static float remainder_reference(float x, float y)
{
    float r = fmodf(x, y);
    return r != 0.0f && (y < 0.0f) != (r < 0.0f) ? r + y : r;
}

static void check_remainders(float x, float y)
{
    float fmod_got = og_fmod_f32(x, y), remainder_got = og_remainder_f32(x, y);
    if (!test_same_f32(fmod_got, fmodf(x, y)) ||
        !test_same_f32(remainder_got, remainder_reference(x, y)))
        fail_msg("x %a, y %a: fmod got %a, want %a; remainder got %a, want %a", x, y, fmod_got,
                 fmodf(x, y), remainder_got, remainder_reference(x, y));
}

/* Exact, as libm's are: at the edges of the range, and by chance where quotients are small,
 * large, or of whole numbers. */
static void test_remainders(void **state)
{
    test_random random = {test_seed()};
    (void)state;
    const float special[] = {0.0f,    1.0f,     3.0f,      5.3f,          INFINITY,        NAN,
                             FLT_MAX, 0x1p127f, 0x1p-149f, 0x1p-148f,     0x1.8p-148f,     FLT_MIN,
                             1e-30f,  0x1p-24f, 0x1p24f,   0x1.fffffep0f, 0x1.fffffep-127f};
    for (size_t i = 0; i < TEST_COUNT(special); i++)
        for (size_t j = 0; j < TEST_COUNT(special); j++)
            for (int signs = 0; signs < 4; signs++)
                check_remainders(signs & 1 ? -special[i] : special[i],
                                 signs & 2 ? -special[j] : special[j]);
    for (int i = 0; i < 1000000; i++) {
        float x = test_random_float(&random), y = test_random_float(&random);
        uint64_t r = test_random_bits(&random);
        if (i % 3 == 1) {
            x = og_float_bits((og_bits_f32(x) & 0x807fffffu) | 0x3f800000u);
            y = ldexpf(og_float_bits((og_bits_f32(y) & 0x807fffffu) | 0x3f800000u),
                       (int)(r % 60) - 40);
        } else if (i % 3 == 2) {
            x = (float)((int)(r >> 44) - (1 << 19)) * 0.25f;
            y = (float)((int)(r & 0xfff) - 2048) * 0.25f;
        }
        check_remainders(x, y);
    }
}

/* ---- powers ---- */

/* libm's double pow is right to less than 2^-28 of a float32's last place. */
static void check_power(float x, float y, double *worst)
{
    float got = og_power_f32(x, y);
    double want = pow(x, y), ulp = oracle_ulp_f32(got, want);
    if (!test_same_f32(got, (float)want) && !(ulp <= 0.51))
        fail_msg("%a ** %a: got %a, want %a", x, y, got, want);
    if (ulp < INFINITY)
        *worst = fmax(*worst, ulp);
}

/* At the edges, of whole exponents even and odd, and by chance: anywhere, where results are
 * neither 0 nor infinite, near 1 with great exponents, of small whole exponents. */
static void test_powers(void **state)
{
    test_random random = {test_seed()};
    double worst = 0;
    (void)state;
    const float special[] = {
        0.0f,          1.0f,    2.0f,      3.0f,       4.0f,        0.5f,    1.5f,  INFINITY,
        NAN,           FLT_MAX, FLT_MIN,   0x1p-149f,  0x1p23f,     0x1p24f, 1e30f, 0x1.fffffep-1f,
        0x1.000002p0f, 127.0f,  0x1.8p22f, 8388609.0f, 16777215.0f, 149.0f};
    for (size_t i = 0; i < TEST_COUNT(special); i++)
        for (size_t j = 0; j < TEST_COUNT(special); j++)
            for (int signs = 0; signs < 4; signs++)
                check_power(signs & 1 ? -special[i] : special[i],
                            signs & 2 ? -special[j] : special[j], &worst);
    for (int i = 0; i < 2000000; i++) {
        float x = test_random_float(&random), y = test_random_float(&random);
        uint64_t r = test_random_bits(&random);
        double most = 150 / fabs(log2(fabs(x)));
        if (i % 4 == 1)
            y = (float)(most * ((double)(r >> 11) * 0x1p-52 - 1));
        else if (i % 4 == 2) {
            x = 1.0f + (float)((int)(r & 0xffff) - 0x8000) * 0x1p-23f;
            y = (float)((double)(r >> 40) * 16 - 0x1p27);
        } else if (i % 4 == 3)
            y = (float)((int)(r % 61) - 30);
        check_power(x, y, &worst);
    }
    print_message("pow: at most %.4f ULP\n", worst);
}

/* ---- float64 functions ---- */

#if LDBL_MANT_DIG >= 64

typedef long double reference_f64(long double x, const double *p);

#define REFERENCE(name, value)                                                                     \
    static long double name##_reference(long double x, const double *p)                            \
    {                                                                                              \
        (void)p;                                                                                   \
        return value;                                                                              \
    }
#define SQRT_HALF 0.707106781186547524400844362104849039L
#define GELU_C0 1.59576912160573071175978423973752747L

static long double clamp_reference_to(long double x, long double lo, long double hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

static long double log_sum_reference(long double x)
{
    return (x > 0 ? x : 0) + log1pl(expl(-fabsl(x)));
}

static long double sigmoid_of(long double x)
{
    return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x));
}

/* The series where x - tanh x would cancel. */
static long double shrink_reference(long double x)
{
    long double u = x * x;
    if (fabsl(x) > 0.25L)
        return x - tanhl(x);
    static const long double c[] = {
        1.0L / 3,
        -2.0L / 15,
        17.0L / 315,
        -62.0L / 2835,
        1382.0L / 155925,
        -21844.0L / 6081075,
        929569.0L / 638512875,
        -6404582.0L / 10854718875,
        443861162.0L / 1856156927625,
        -18888466084.0L / 194896477400625,
        113927491862.0L / 2900518163668125,
    };
    long double sum = 0;
    for (size_t i = TEST_COUNT(c); i-- > 0;)
        sum = sum * u + c[i];
    return x * u * sum;
}

REFERENCE(neg, -x)
REFERENCE(abs, fabsl(x))
REFERENCE(square, (x) * (x))
REFERENCE(reciprocal, 1 / x)
REFERENCE(sqrt, sqrtl(x))
REFERENCE(rsqrt, 1 / sqrtl(x))
REFERENCE(exp, expl(x))
REFERENCE(expm1, expm1l(x))
REFERENCE(log, logl(x))
REFERENCE(log1p, log1pl(x))
REFERENCE(tanh, tanhl(x))
REFERENCE(sigmoid, sigmoid_of(x))
REFERENCE(hardsigmoid, clamp_reference_to(x + 3, 0, 6) / 6)
REFERENCE(relu, x < 0 ? 0 : x)
REFERENCE(erf, erfl(x))
REFERENCE(silu, (x)*sigmoid_of(x))
REFERENCE(gelu, x / 2 * erfcl(-x * SQRT_HALF))
REFERENCE(gelu_tanh, (x)*sigmoid_of(GELU_C0 *(x + 0.044715L * x * x * x)))
REFERENCE(logsigmoid, -log_sum_reference(-x))
REFERENCE(mish, x < 0 ? x * expl(x) * (expl(x) + 2) / (expl(x) * (expl(x) + 2) + 2)
                      : x * (1 + 2 * expl(-x)) / (1 + 2 * expl(-x) + 2 * expl(-2 * x)))
REFERENCE(selu, 1.0507009873554804934193349852946L *
                    (x < 0 ? 1.6732632423543772848170429916717L * expm1l(x) : x))
REFERENCE(tanhshrink, shrink_reference(x))
REFERENCE(leaky_relu, x > 0 ? x : x * p[0])
REFERENCE(elu, x < 0 ? p[0] * expm1l(x) : x)
REFERENCE(celu, x < 0 ? p[0] * expm1l(x / p[0]) : x)
REFERENCE(softshrink, x > p[0] ? x - p[0] : x < -p[0] ? x + p[0] : x != x ? x : 0)
REFERENCE(hardshrink, fabsl(x) <= p[0] ? 0 : x)
REFERENCE(pow, powl(x, p[0]))
REFERENCE(softplus, (x)*p[0] > p[1] ? x : log_sum_reference(x * p[0]) / p[0])
REFERENCE(threshold, x <= p[0] ? p[1] : x)
REFERENCE(clamp, clamp_reference_to(x, p[0], p[1]))

static double ulp_f64(double got, long double want)
{
    if (got != got || want != want)
        return got != got && want != want ? 0.0 : (double)INFINITY;
    if (isinf((double)want))
        return got == (double)want ? 0.0 : (double)INFINITY;
    int exponent = -1074;
    if (want != 0) {
        frexpl(want, &exponent);
        exponent = exponent - 53 < -1074 ? -1074 : exponent - 53;
    }
    return (double)ldexpl(fabsl((long double)got - want), -exponent);
}

static const struct {
    const char *name;
    unary_f64 *function;
    reference_f64 *reference;
    double parameters[2];
} functions_f64[] = {
/* clang-format off */
#define ROW(name, a, b) {#name, name##_f64, name##_reference, {a, b}}
    /* clang-format on */
    ROW(neg, 0, 0),
    ROW(abs, 0, 0),
    ROW(square, 0, 0),
    ROW(reciprocal, 0, 0),
    ROW(sqrt, 0, 0),
    ROW(rsqrt, 0, 0),
    ROW(exp, 0, 0),
    ROW(expm1, 0, 0),
    ROW(log, 0, 0),
    ROW(log1p, 0, 0),
    ROW(tanh, 0, 0),
    ROW(sigmoid, 0, 0),
    ROW(hardsigmoid, 0, 0),
    ROW(relu, 0, 0),
    ROW(erf, 0, 0),
    ROW(silu, 0, 0),
    ROW(gelu, 0, 0),
    ROW(gelu_tanh, 0, 0),
    ROW(logsigmoid, 0, 0),
    ROW(mish, 0, 0),
    ROW(selu, 0, 0),
    ROW(tanhshrink, 0, 0),
    ROW(leaky_relu, 0.01, 0),
    ROW(elu, 1.0, 0),
    ROW(elu, 2.5, 0),
    ROW(celu, 1.0, 0),
    ROW(celu, 0.3, 0),
    ROW(softshrink, 0.5, 0),
    ROW(hardshrink, 0.5, 0),
    ROW(pow, 2.5, 0),
    ROW(pow, -3.0, 0),
    ROW(pow, 0.1, 0),
    ROW(softplus, 1.0, 20.0),
    ROW(softplus, 2.0, 10.0),
    ROW(threshold, 0.5, -7.0),
    ROW(clamp, -1.5, 2.0),
#undef ROW
};

static void test_f64_accuracy(void **state)
{
    test_random random = {test_seed()};
    (void)state;
    for (size_t i = 0; i < TEST_COUNT(functions_f64); i++) {
        double worst = 0.0;
        for (int n = 0; n < 100000; n++) {
            uint64_t r = test_random_bits(&random);
            double x = og_double_bits(test_random_bits(&random));
            /* Half of them where the functions live: 2^-20 to 2^10. */
            if (r & 1)
                x = og_double_bits((og_bits_f64(x) & 0x800fffffffffffffu) | (1003 + (r >> 8) % 31)
                                                                                << 52);
            double got = functions_f64[i].function(x, functions_f64[i].parameters);
            long double want = functions_f64[i].reference(x, functions_f64[i].parameters);
            double error = ulp_f64(got, want);
            worst = error > worst ? error : worst;
            if (!(error <= 4.0))
                fail_msg(
                    "%s(%a = %.17g; %g, %g): got %a = %.17g, want %La = %.17Lg, error %.2f ULP",
                    functions_f64[i].name, x, x, functions_f64[i].parameters[0],
                    functions_f64[i].parameters[1], got, got, want, want, error);
        }
        if (getenv("OGIVE_TEST_VERBOSE"))
            printf("%s_f64 %.2f ULP\n", functions_f64[i].name, worst);
    }
}

/* float64 agrees with the reference at float32's specials, sign of zero included; one
 * that says nothing of a sign has the oracle's. */
static void test_f64_specials(void **state)
{
    (void)state;
    const double x[] = {-INFINITY, -0.0, 0.0, INFINITY, NAN, 1.0, -1.0, -1e300, 1e300, -1e30, 1e30};
    for (size_t i = 0; i < TEST_COUNT(functions_f64); i++)
        for (size_t j = 0; j < TEST_COUNT(x); j++) {
            const double *p = functions_f64[i].parameters;
            double got = functions_f64[i].function(x[j], p);
            oracle_function *oracle = oracle_find(functions_f64[i].name);
            double want = oracle ? oracle(x[j], p) : (double)functions_f64[i].reference(x[j], p);
            if (ulp_f64(got, want) > 8.0 || (got == 0.0 && !signbit(got) != !signbit(want)))
                fail_msg("%s(%g): got %g, want %g", functions_f64[i].name, x[j], got, want);
        }
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ulp_counter),
        cmocka_unit_test(test_specials),
        cmocka_unit_test(test_selects),
        cmocka_unit_test(test_remainders),
        cmocka_unit_test(test_powers),
        cmocka_unit_test(test_f32_accuracy),
        cmocka_unit_test(test_f32_parameters),
        cmocka_unit_test(test_one_rounding),
#if LDBL_MANT_DIG >= 64
        cmocka_unit_test(test_f64_accuracy),
        cmocka_unit_test(test_f64_specials),
#endif
    };
    return TEST_RUN(tests);
}
