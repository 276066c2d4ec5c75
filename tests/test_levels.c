/* SPDX-License-Identifier: MIT
 *
 * test_levels.c - choosing a CPU level, by name and by OGIVE_CPU, and the
 * floating-point environment around a run.
 */
#include "test.h"

#include "cpu/cpu_levels.h"

#include <fenv.h>

static size_t count_levels(void)
{
    size_t count = 0;
    while (ogive_cpu_level_name(count))
        count++;
    return count;
}

static void test_names(void **state)
{
    (void)state;
    size_t count = count_levels();
    assert_true(count >= 1);
    assert_null(ogive_cpu_level_name(SIZE_MAX));
#if defined(__x86_64__)
    static const char *const names[] = {"x86-64", "x86-64-v3", "x86-64-v4"};
#else
    static const char *const names[] = {"aarch64"};
#endif
    assert_true(count <= TEST_COUNT(names));
    for (size_t i = 0; i < count; i++)
        assert_string_equal(ogive_cpu_level_name(i), names[i]);
#if defined(__x86_64__)
    /* Not the whole of a level, but what the compiler's run time says must agree. */
    if (count >= 2)
        assert_true(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
    assert_int_equal(count == 3, __builtin_cpu_supports("avx512f") &&
                                     __builtin_cpu_supports("avx512bw") &&
                                     __builtin_cpu_supports("avx512vl"));
#endif
}

static void test_select_by_name(void **state)
{
    (void)state;
    const og_cpu_kernels *kernels, *before = NULL;
    const char *name;
    ogive_error error;
    for (size_t i = 0; i < count_levels(); i++) {
        TEST_OK(og_cpu_select(ogive_cpu_level_name(i), &kernels, &name, &error), error);
        assert_string_equal(name, ogive_cpu_level_name(i));
        assert_non_null(kernels);
        assert_true(kernels != before); /* each level has its own */
        before = kernels;
    }
    /* An option beats the environment. */
    setenv("OGIVE_CPU", "nonsense", 1);
    TEST_OK(og_cpu_select(ogive_cpu_level_name(0), &kernels, &name, &error), error);
    unsetenv("OGIVE_CPU");
}

static void test_select_by_environment(void **state)
{
    (void)state;
    const og_cpu_kernels *kernels;
    const char *name, *highest = ogive_cpu_level_name(count_levels() - 1);
    ogive_error error;
    unsetenv("OGIVE_CPU");
    TEST_OK(og_cpu_select(NULL, &kernels, &name, &error), error);
    assert_string_equal(name, highest);
    assert_string_equal(ogive_cpu_level(), highest);

    setenv("OGIVE_CPU", "", 1); /* as if not set */
    TEST_OK(og_cpu_select(NULL, &kernels, &name, &error), error);
    assert_string_equal(name, highest);

    setenv("OGIVE_CPU", ogive_cpu_level_name(0), 1);
    TEST_OK(og_cpu_select(NULL, &kernels, &name, &error), error);
    assert_string_equal(name, ogive_cpu_level_name(0));
    assert_string_equal(ogive_cpu_level(), ogive_cpu_level_name(0));

    setenv("OGIVE_CPU", "avx9", 1);
    TEST_FAILS(og_cpu_select(NULL, &kernels, &name, &error), OGIVE_ARGUMENT, error,
               "OGIVE_CPU is 'avx9', expected ");
    assert_non_null(strstr(error.message, ogive_cpu_level_name(0)));
    assert_null(kernels);
    assert_null(name);
    assert_string_equal(ogive_cpu_level(), highest);
    unsetenv("OGIVE_CPU");
}

static void test_select_errors(void **state)
{
    (void)state;
    const og_cpu_kernels *kernels;
    const char *name;
    ogive_error error;
    TEST_FAILS(og_cpu_select("X86-64", &kernels, &name, &error), OGIVE_ARGUMENT, error,
               "cpu_level is 'X86-64', expected ");
    char longer[5000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    TEST_FAILS(og_cpu_select(longer, &kernels, &name, &error), OGIVE_ARGUMENT, error, "cpu_level");
    assert_int_equal(og_cpu_select(longer, &kernels, &name, NULL), OGIVE_ARGUMENT);
#if defined(__x86_64__)
    if (count_levels() < 3)
        TEST_FAILS(og_cpu_select("x86-64-v4", &kernels, &name, &error), OGIVE_UNSUPPORTED, error,
                   "this machine's level is");
#endif
}

/* ---- the floating-point environment ---------------------------------------- */

static __attribute__((noinline)) float divide(volatile float a, volatile float b)
{
    return a / b;
}

static void test_float_state(void **state)
{
    (void)state;
    static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO, FE_TONEAREST};
    for (size_t i = 0; i < TEST_COUNT(modes); i++) {
        fesetround(modes[i]);
        float outside = divide(-1, 3);
        feclearexcept(FE_ALL_EXCEPT);
        og_cpu_float_state saved = og_cpu_float_enter();
        float inside = divide(-1, 3), infinite = divide(1, 0);
        og_cpu_float_leave(saved);
        int flags = fetestexcept(FE_ALL_EXCEPT);
        float after = divide(-1, 3);
        fesetround(FE_TONEAREST);
        assert_true(test_same_f32(inside, -0x1.555556p-2f));
        assert_true(isinf(infinite));
        assert_true(test_same_f32(outside, after));
        assert_int_equal(flags, 0); /* neither the division by zero nor the rounding shows */
    }
}

#if defined(__x86_64__)
static void test_flush_to_zero(void **state)
{
    (void)state;
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040); /* FTZ, DAZ */
    bool flushed_outside = divide(0x1p-130f, 2) == 0;
    og_cpu_float_state saved = og_cpu_float_enter();
    float inside = divide(0x1p-130f, 2);
    og_cpu_float_leave(saved);
    unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    if (!flushed_outside)
        skip(); /* valgrind does not flush */
    assert_int_equal(after & 0x8040, 0x8040);
    assert_true(test_same_f32(inside, 0x1p-131f));
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_select_by_name),
        cmocka_unit_test(test_select_by_environment),
        cmocka_unit_test(test_select_errors),
        cmocka_unit_test(test_float_state),
#if defined(__x86_64__)
        cmocka_unit_test(test_flush_to_zero),
#endif
    };
    return TEST_RUN(tests);
}
