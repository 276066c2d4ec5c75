/* SPDX-License-Identifier: MIT
 *
 * test_sharing.c - what must not depend on anybody else: formulas and plans used
 * by many threads at once, the cache of ogive_run(), the caller's floating-point
 * state, and a child made by fork().
 */
#include "test.h"

#include "api/api.h"

#include <fenv.h>
#include <pthread.h>
#include <sys/wait.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

/* ThreadSanitizer ends a child of fork() that starts threads. */
#if defined(__SANITIZE_THREAD__)
#define FORK_IS_TESTED 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FORK_IS_TESTED 0
#endif
#endif
#ifndef FORK_IS_TESTED
#define FORK_IS_TESTED 1
#endif

static ogive_formula *make(const char *text)
{
    ogive_formula *formula;
    ogive_error error;
    TEST_OK(ogive_formula_create(text, OGIVE_TEXT, &formula, &error), error);
    return formula;
}

/* ---- the cache ----------------------------------------------------------------------- */

/* The sum of 1 .. n by rows of n: right for every n, so a wrong plan shows. */
static void check_sum(ogive_formula *f, int64_t rows, int64_t n, const ogive_options *options)
{
    ogive_error error;
    float *x = malloc((size_t)(rows * n) * sizeof *x), *y = malloc((size_t)rows * sizeof *y);
    for (int64_t i = 0; i < rows * n; i++)
        x[i] = (float)(i % n + 1);
    const DLTensor *in[] = {TEST_TENSOR(x, test_float32, rows, n)};
    const DLTensor *out[] = {TEST_TENSOR(y, test_float32, rows)};
    TEST_OK(ogive_run(f, in, 1, out, 1, options, &error), error);
    for (int64_t r = 0; r < rows; r++)
        assert_true(y[r] == (float)(n * (n + 1) / 2));
    free(x);
    free(y);
}

static int count_cached(const ogive_formula *f)
{
    int count = 0;
    while (count < OG_CACHED_PLANS && f->plans[count])
        count++;
    return count;
}

static void test_cache(void **state)
{
    (void)state;
    ogive_formula *f = make("sum(x, dim=1)");
    assert_int_equal(count_cached(f), 0);
    check_sum(f, 3, 7, NULL);
    check_sum(f, 3, 7, NULL);
    assert_int_equal(count_cached(f), 1);
    ogive_plan *first = f->plans[0];
    /* Other options are other plans; so are other shapes and dtypes of equal bytes. */
    ogive_options options = {.size = sizeof options, .threads = 1};
    check_sum(f, 3, 7, &options);
    assert_int_equal(count_cached(f), 2);
    options.cpu_level = ogive_cpu_level_name(0);
    check_sum(f, 3, 7, &options);
    check_sum(f, 7, 3, NULL);
    assert_int_equal(count_cached(f), 4);
    check_sum(f, 3, 7, NULL);
    assert_ptr_equal(f->plans[0], first);
    assert_int_equal(count_cached(f), 4);
    /* More layouts than it holds, several times round. */
    for (int round = 0; round < 3; round++)
        for (int64_t n = 1; n <= 2 * OG_CACHED_PLANS; n++)
            check_sum(f, 2, n, NULL);
    assert_int_equal(count_cached(f), OG_CACHED_PLANS);
    /* What is refused is not remembered. */
    ogive_error error;
    float x[6] = {0}, y[6];
    const DLTensor *in[] = {TEST_TENSOR(x, test_float32, 2, 3)};
    const DLTensor *out[] = {TEST_TENSOR(y, test_float32, 3)};
    ogive_plan *newest = f->plans[0];
    assert_int_equal(ogive_run(f, in, 1, out, 1, NULL, &error), OGIVE_SHAPE);
    assert_int_equal(ogive_run(f, in, 1, out, 1, NULL, &error), OGIVE_SHAPE);
    assert_ptr_equal(f->plans[0], newest);
    ogive_formula_release(f);
}

/* Strides given and strides NULL, the same layout or not: always the right answer. */
static void test_cache_strides(void **state)
{
    (void)state;
    ogive_formula *f = make("x - 1");
    ogive_error error;
    float x[64], y[64];
    for (int i = 0; i < 64; i++)
        x[i] = (float)i;
    const int64_t shape[] = {4, 5};
    static const int64_t strides[][2] = {{5, 1}, {1, 4}, {8, 1}, {10, 2}, {0, 1}, {16, 3}};
    for (int again = 0; again < 2; again++)
        for (size_t s = 0; s <= TEST_COUNT(strides); s++) {
            bool given = s < TEST_COUNT(strides);
            test_tensor a, b;
            const DLTensor *in[] = {
                test_tensor_init(&a, x, test_float32, 2, shape, given ? strides[s] : NULL)};
            const DLTensor *out[] = {test_tensor_init(&b, y, test_float32, 2, shape, NULL)};
            TEST_OK(ogive_run(f, in, 1, out, 1, NULL, &error), error);
            for (int i = 0; i < 20; i++) {
                int64_t at = given ? i / 5 * strides[s][0] + i % 5 * strides[s][1] : i;
                assert_true(y[i] == x[at] - 1);
            }
        }
    ogive_formula_release(f);
}

/* A formula with more tensors than any fixed array inside holds. */
static void test_many_inputs(void **state)
{
    (void)state;
    enum { MANY = 60 };
    char text[1000] = "";
    float values[MANY], result = 0, want = 0;
    test_tensor tensors[MANY];
    const DLTensor *in[MANY];
    ogive_error error;
    for (int i = 0; i < MANY; i++) {
        snprintf(text + strlen(text), sizeof text - strlen(text), "%sx%d", i ? " + " : "", i);
        values[i] = (float)(i * i);
        want += values[i];
        in[i] = test_tensor_init(&tensors[i], &values[i], test_float32, 1, (int64_t[]){1}, NULL);
    }
    const DLTensor *out[] = {TEST_TENSOR(&result, test_float32, 1)};
    ogive_formula *f = make(text);
    for (int again = 0; again < 2; again++) {
        result = 0;
        TEST_OK(ogive_run(f, in, MANY, out, 1, NULL, &error), error);
        assert_true(result == want);
    }
    ogive_formula_release(f);
}

/* ---- threads --------------------------------------------------------------------------- */

typedef struct {
    ogive_formula *formula;
    ogive_plan *plan; /* of rows x 300, one for all */
    int number, failures;
} worker;

enum { WORKERS = 6, ROUNDS = 120 };

/* Softmax rows sum to 1 and keep the order of their inputs. */
static bool is_softmax(const float *y, int64_t rows, int64_t n)
{
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) {
            sum += y[r * n + i];
            if (i && !(y[r * n + i] > y[r * n + i - 1]))
                return false;
        }
        if (fabs(sum - 1) > 1e-5)
            return false;
    }
    return true;
}

static void *hammer(void *context)
{
    worker *w = context;
    test_random random = {(uint64_t)w->number * 77777 + 1};
    float *x = malloc(30000 * sizeof *x), *y = malloc(30000 * sizeof *y);
    void *workspace = aligned_alloc(64, (ogive_plan_workspace(w->plan) + 64) & ~(size_t)63);
    for (int round = 0; round < ROUNDS; round++) {
        int64_t n = 2 + test_random_below(&random, 25), rows = 1 + test_random_below(&random, 30);
        bool planned = round % 3 == 0;
        n = planned ? 300 : n;
        rows = planned ? 40 : rows;
        for (int64_t i = 0; i < rows * n; i++)
            x[i] = (float)(i % n) / (float)n;
        ogive_error error;
        const DLTensor *in[] = {TEST_TENSOR(x, test_float32, rows, n)};
        const DLTensor *out[] = {TEST_TENSOR(y, test_float32, rows, n)};
        ogive_formula *f = ogive_formula_retain(w->formula);
        ogive_status status = planned ? ogive_plan_run(w->plan, (const void *[]){x}, (void *[]){y},
                                                       workspace, NULL, &error)
                                      : ogive_run(f, in, 1, out, 1, NULL, &error);
        ogive_formula_release(f);
        w->failures += status != OGIVE_OK || !is_softmax(y, rows, n);
    }
    free(workspace);
    free(x);
    free(y);
    return NULL;
}

static void test_hammer(void **state)
{
    (void)state;
    ogive_error error;
    ogive_formula *f = make("softmax(x, dim=1)");
    ogive_plan *plan;
    const DLTensor *in[] = {TEST_TENSOR(NULL, test_float32, 40, 300)};
    ogive_options options = {.size = sizeof options, .threads = 3};
    TEST_OK(ogive_plan_create(f, in, 1, NULL, 0, &options, &plan, &error), error);
    pthread_t threads[WORKERS];
    worker workers[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (worker){f, plan, i, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, hammer, &workers[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].failures, 0);
    }
    ogive_plan_release(plan);
    ogive_formula_release(f);
}

/* ---- floating-point state ----------------------------------------------------------------- */

enum { COUNT = 200000 }; /* enough for several threads */

/* Subnormals, roundings, overflows, NaN: anything that the state could change. */
static void fill(float *x)
{
    test_random random = test_random_named("state");
    for (int64_t i = 0; i < COUNT; i++)
        x[i] = i % 3 ? test_random_float(&random) : (float)test_random_range(&random, -90, 90);
}

static void run_state_formula(ogive_formula *f, float *x, float *y, float *sum)
{
    ogive_error error;
    const DLTensor *scalar = TEST_SCALAR(sum, test_float32);
    const DLTensor *in[] = {TEST_TENSOR(x, test_float32, COUNT)};
    const DLTensor *out[] = {TEST_TENSOR(y, test_float32, COUNT), scalar};
    TEST_OK(ogive_run(f, in, 1, out, 2, NULL, &error), error);
}

static void test_float_state(void **state)
{
    (void)state;
    ogive_formula *f = make("exp(x) * 0.1 + x * 1e-30 * 1e-12, sum(tanh(x) * 1e-40)");
    float *x = malloc(COUNT * sizeof *x), *want = malloc(COUNT * sizeof *want);
    float *y = malloc(COUNT * sizeof *y), want_sum, sum;
    fill(x);
    for (int64_t i = 0; i < COUNT; i++)
        x[i] = isnan(x[i]) ? 1 : x[i]; /* or the sum tells nothing */
    run_state_formula(f, x, want, &want_sum);
    static const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    for (size_t m = 0; m < TEST_COUNT(modes); m++)
        for (int flush = 0; flush < 2; flush++) {
            fenv_t saved;
            fegetenv(&saved);
            fesetround(modes[m]);
            feclearexcept(FE_ALL_EXCEPT);
            feraiseexcept(FE_DIVBYZERO);
#if defined(__SSE__)
            if (flush)
                _mm_setcsr(_mm_getcsr() | 0x8040); /* FTZ, DAZ */
            unsigned before = _mm_getcsr();
#endif
            run_state_formula(f, x, y, &sum);
            int mode = fegetround(), raised = fetestexcept(FE_ALL_EXCEPT);
#if defined(__SSE__)
            unsigned after = _mm_getcsr();
            fesetenv(&saved);
            assert_int_equal(after, before);
#endif
            fesetenv(&saved);
            assert_int_equal(mode, modes[m]);
            assert_int_equal(raised, FE_DIVBYZERO);
            for (int64_t i = 0; i < COUNT; i++)
                if (!test_same_f32(y[i], want[i]))
                    fail_msg("rounding %d, flush %d: element %" PRId64 " of %s is %s, else %s",
                             modes[m], flush, i, test_text_f32(x[i]), test_text_f32(y[i]),
                             test_text_f32(want[i]));
            assert_true(test_same_f32(sum, want_sum));
        }
    free(x);
    free(y);
    free(want);
    ogive_formula_release(f);
}

/* Parsing and planning fold constants: not by the caller's rounding, either. */
static void test_float_state_of_constants(void **state)
{
    (void)state;
    ogive_error error;
    float x = 1, want, y;
    const DLTensor *in[] = {TEST_TENSOR(&x, test_float32, 1)};
    const char *text = "x * (0.1 + 1 / 3) + exp(1) / 7e-3";
    ogive_formula *f = make(text);
    TEST_OK(ogive_run(f, in, 1, (const DLTensor *[]){TEST_TENSOR(&want, test_float32, 1)}, 1, NULL,
                      &error),
            error);
    ogive_formula_release(f);
    static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    for (size_t m = 0; m < TEST_COUNT(modes); m++) {
        const DLTensor *out[] = {TEST_TENSOR(&y, test_float32, 1)};
        fesetround(modes[m]);
        ogive_status status = ogive_formula_create(text, OGIVE_TEXT, &f, &error);
        if (status == OGIVE_OK)
            status = ogive_run(f, in, 1, out, 1, NULL, &error);
        int mode = fegetround();
        fesetround(FE_TONEAREST);
        assert_int_equal(status, OGIVE_OK);
        assert_int_equal(mode, modes[m]);
        if (!test_same_f32(y, want))
            fail_msg("rounding %d: %s, else %s", modes[m], test_text_f32(y), test_text_f32(want));
        ogive_formula_release(f);
    }
}

/* ---- fork --------------------------------------------------------------------------------- */

/* The child has none of the parent's worker threads, and must not wait for them. */
static void test_fork(void **state)
{
    (void)state;
    if (!FORK_IS_TESTED)
        skip();
    ogive_formula *f = make("exp(x) * 0.1 + x * 1e-30 * 1e-12, sum(tanh(x) * 1e-40)");
    float *x = malloc(COUNT * sizeof *x), *want = malloc(COUNT * sizeof *want);
    float *y = malloc(COUNT * sizeof *y), want_sum, sum;
    fill(x);
    run_state_formula(f, x, want, &want_sum);
    for (int round = 0; round < 3; round++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            alarm(20);
            run_state_formula(f, x, y, &sum);
            bool same = true;
            for (int64_t i = 0; i < COUNT; i++)
                same &= test_same_f32(y[i], want[i]);
            _exit(same ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        run_state_formula(f, x, y, &sum); /* and the parent still has its own */
    }
    free(x);
    free(y);
    free(want);
    ogive_formula_release(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache),       cmocka_unit_test(test_cache_strides),
        cmocka_unit_test(test_many_inputs), cmocka_unit_test(test_hammer),
        cmocka_unit_test(test_float_state), cmocka_unit_test(test_float_state_of_constants),
        cmocka_unit_test(test_fork),
    };
    return TEST_RUN(tests);
}
