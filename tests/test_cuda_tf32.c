/* SPDX-License-Identifier: MIT
 *
 * test_cuda_tf32.c - products with OGIVE_TF32: each result is the sum of factors rounded to TF32, up
 * to what tensor cores lose, by wgmma and by mma.sync; a row's bits depend on no other row; who cannot
 * have it is told so. On the fake device cuda/shim_device.h and shim_hopper.h multiply.
 */
#include "cuda_case.h"
#include "cuda_compiled.h"

#include <math.h>

static float round_tf32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    bits = x != x ? bits : (bits + 0x1000u) & 0xffffe000u;
    memcpy(&x, &bits, 4);
    return x;
}

/* y (batch, m, n) of x (batch, m, k) and w (batch, n, k) or, across, (batch, k, n). */
typedef struct {
    int64_t batch, m, n, k;
    bool across;
} sizes_of;

static ogive_status run(const sizes_of *of, const char *text, const ogive_options *options,
                        const float *x, const float *w, float *y, ogive_error *error)
{
    const int64_t shapes[][3] = {
        {of->batch, of->m, of->k},
        {of->batch, of->across ? of->k : of->n, of->across ? of->n : of->k},
        {of->batch, of->m, of->n}};
    const int skip = of->batch == 1; /* dims that are not there */
    const float *host[] = {x, w, NULL};
    test_tensor at[3];
    DLTensor *tensors[3];
    void *memory[3];
    size_t bytes[3];
    for (int t = 0; t < 3; t++) {
        bytes[t] = sizeof(float) * (size_t)(shapes[t][0] * shapes[t][1] * shapes[t][2]);
        memory[t] = device_alloc(bytes[t]);
        if (host[t])
            device_copy(memory[t], host[t], bytes[t]);
        tensors[t] = test_tensor_init(&at[t], memory[t], dlpack_of(OG_FLOAT32), 3 - skip,
                                      shapes[t] + skip, NULL);
        tensors[t]->device = cuda_device;
    }
    ogive_status status =
        device_run(find_formula(text), tensors, 2, tensors + 2, 1, options, error);
    if (!status)
        device_copy(y, memory[2], bytes[2]);
    for (int t = 0; t < 3; t++)
        device_free(memory[t]);
    return status;
}

static void fill_normal(float *to, int64_t count, test_random *random)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = (float)(test_random_below(random, 2000001) - 1000000) / 1e6f;
}

/* Compares with sums of rounded factors in float64; what sums lose is within 256 units. */
static void check_sums(const sizes_of *of, const float *x, const float *w, const float *y)
{
    for (int64_t i = 0; i < of->batch * of->m * of->n; i++) {
        const int64_t b = i / of->n / of->m, row = i / of->n, column = i % of->n;
        double sum = 0, scale = 0;
        for (int64_t k = 0; k < of->k; k++) {
            const int64_t at =
                of->across ? (b * of->k + k) * of->n + column : (b * of->n + column) * of->k + k;
            const double term = (double)round_tf32(x[row * of->k + k]) * round_tf32(w[at]);
            sum += term;
            scale += fabs(term);
        }
        if (!(fabs(y[i] - sum) <= 256 * 0x1p-24 * scale))
            fail_msg("%lld x %lld x %lld: result %lld is %a, expected %a", (long long)of->m,
                     (long long)of->n, (long long)of->k, (long long)i, y[i], sum);
    }
}

static void check_product(const sizes_of *of, const char *text, test_random *random)
{
    const ogive_options options = {.size = sizeof options, .precision = OGIVE_TF32};
    const size_t rows = (size_t)(of->batch * of->m), n = (size_t)of->n, k = (size_t)of->k;
    float *x = malloc(rows * k * 4), *w = malloc((size_t)of->batch * n * k * 4);
    float *y = malloc(rows * n * 4), *alone = malloc(n * 4);
    ogive_error error;
    assert_true(x && w && y && alone);
    fill_normal(x, (int64_t)(rows * k), random);
    fill_normal(w, of->batch * of->n * of->k, random);
    TEST_OK(run(of, text, &options, x, w, y, &error), error);
    if (device_computes())
        check_sums(of, x, w, y);
    const size_t row = (size_t)of->m - 1; /* of the first product, alone */
    sizes_of one = *of;
    one.batch = one.m = 1;
    TEST_OK(run(&one, text, &options, x + row * k, w, alone, &error), error);
    if (device_computes())
        assert_memory_equal(alone, y + row * n, n * 4);
    free(x);
    free(w);
    free(y);
    free(alone);
}

static const struct {
    sizes_of of;
    const char *text;
} products[] = {{{1, 20, 130, 130, false}, "linear(x, w)"},
                {{1, 70, 192, 320, true}, "x @ w"},
                {{1, 140, 128, 131, true}, "x @ w"},
                {{1, 3, 128, 4200, false}, "linear(x, w)"},
                {{3, 33, 128, 128, true}, "x @ w"}};

static void test_products(void **unused)
{
    test_random random = test_random_named("tf32");
    (void)unused;
    for (size_t i = 0; i < 2 * TEST_COUNT(products); i++) {
        setenv("OGIVE_PRODUCT", i % 2 ? "mma" : "sm90", 1);
        check_product(&products[i / 2].of, products[i / 2].text, &random);
    }
    unsetenv("OGIVE_PRODUCT");
}

/* NaN and infinities stay what they are, zeros and numbers that TF32 holds are exact. */
static void test_special(void **unused)
{
    enum { M = 4, N = 128, K = 128 };
    const ogive_options options = {.size = sizeof options, .precision = OGIVE_TF32};
    const sizes_of of = {1, M, N, K, false};
    static float x[M * K], w[N * K], y[M * N];
    ogive_error error;
    (void)unused;
    for (int i = 0; i < M * K; i++)
        x[i] = i < K ? 0.0f : (float)(i % 7);
    for (int i = 0; i < N * K; i++)
        w[i] = (float)(i % 5 - 2);
    x[K + 3] = NAN;
    w[2 * K + 5] = INFINITY;
    TEST_OK(run(&of, "linear(x, w)", &options, x, w, y, &error), error);
    if (!device_computes())
        return;
    assert_true(isnan(y[N]) && isnan(y[N + 2]) && isnan(y[2]) && y[0] == 0);
    for (int i = 2 * N; i < M * N; i++) {
        double sum = 0;
        for (int k = 0; k < K; k++)
            sum += (double)x[i / N * K + k] * w[i % N * K + k];
        assert_true(i % N == 2 ? isinf(y[i]) : y[i] == (float)sum);
    }
}

/* On the CPU, and before sm_80; small products are float32's. */
static void test_refused(void **unused)
{
    ogive_options options = {.size = sizeof options, .precision = OGIVE_TF32, .cuda_arch = "75"};
    const int64_t shape[] = {256, 256}, small[] = {16, 16};
    static float data[256 * 256];
    test_tensor at;
    DLTensor *x = test_tensor_init(&at, data, dlpack_of(OG_FLOAT32), 2, shape, NULL);
    const DLTensor *both[] = {x, x};
    ogive_plan *plan = NULL;
    ogive_error error;
    char text[4000];
    (void)unused;
    x->device = cuda_device;
    const ogive_formula *formula = find_formula("x @ y");
    assert_int_equal(ogive_plan_create(formula, both, 2, NULL, 0, &options, &plan, &error),
                     OGIVE_UNSUPPORTED);
    assert_string_equal(error.message,
                        "the precision is tf32, but the GPU is sm_75: expected sm_80 or later");
    options.cuda_arch = "80";
    TEST_OK(ogive_plan_create(formula, both, 2, NULL, 0, &options, &plan, &error), error);
    ogive_plan_explain(plan, text, sizeof text);
    assert_non_null(strstr(text, "float32 as TF32"));
    assert_non_null(strstr(text, "each sum is within 16456 * 2^-24"));
    ogive_plan_release(plan);
    x = test_tensor_init(&at, data, dlpack_of(OG_FLOAT32), 2, small, NULL);
    x->device = cuda_device;
    TEST_OK(ogive_plan_create(formula, both, 2, NULL, 0, &options, &plan, &error), error);
    ogive_plan_explain(plan, text, sizeof text);
    assert_null(strstr(text, "TF32"));
    ogive_plan_release(plan);
    x->device = (DLDevice){kDLCPU, 0};
    options.cuda_arch = NULL;
    assert_int_equal(ogive_plan_create(formula, both, 2, NULL, 0, &options, &plan, &error),
                     OGIVE_UNSUPPORTED);
    assert_string_equal(
        error.message,
        "the precision is tf32, but the tensors are on the CPU: expected a GPU from sm_80 on");
}

/* ---- a real compiler ------------------------------------------------------------------------ */

static void test_compile(void **unused)
{
    const case_shape shapes[][3] = {{SHAPE(1024, 8192), SHAPE(8192, 8192), SHAPE(8192)},
                                    {SHAPE(16, 8192), SHAPE(8192, 8192), SHAPE(8192)},
                                    {SHAPE(128, 32768), SHAPE(32768, 32768), SHAPE(32768)}};
    const char *mark = "define OG_TF32 1";
    (void)unused;
    case_options.precision = OGIVE_TF32;
    for (size_t i = 0; i < TEST_COUNT(shapes); i++) {
        compile_unspilt("sum(sigmoid(linear(x, w, b)), dim=1)", shapes[i], OG_FLOAT32, "90a", mark);
        compile_unspilt("gelu(x @ w)", shapes[i], OG_FLOAT32, "90a", mark);
        compile_unspilt("relu(linear(x, w, b))", shapes[i], OG_FLOAT32, "80", mark);
    }
    case_options.precision = OGIVE_STRICT;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products),
                                       cmocka_unit_test(test_special),
                                       cmocka_unit_test(test_refused)};
    const struct CMUnitTest compiled[] = {cmocka_unit_test(test_compile)};
    if (only_compiles())
        return cmocka_run_group_tests(compiled, NULL, NULL);
    return CASE_RUN(tests);
}
