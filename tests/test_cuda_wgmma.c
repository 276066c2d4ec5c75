/* SPDX-License-Identifier: MIT
 *
 * test_cuda_wgmma.c - what Hopper's tensor cores compute: float32's accuracy, a row's bits do not
 * depend on the other rows nor a product's on its batch, also where pairs of float16 lose most of a
 * sum, which is then computed again (by mma.sync, too); exact sums and their tails have the
 * CPU's bits. On the fake device cuda/shim_hopper.h multiplies; CTest runs this again with one
 * multiprocessor, whose block then has all tiles, and with two that share a factor of halves.
 */
#include "cuda_case.h"

#include <math.h>

/* ---- float32 ----------------------------------------------------------------------------- */

/* y = linear(x, w) on the device. */
static void run_linear(int64_t m, int64_t n, int64_t k, const float *x, const float *w, float *y)
{
    const ogive_options options = {.size = sizeof options};
    const int64_t shapes[][2] = {{m, k}, {n, k}, {m, n}};
    const float *host[] = {x, w, NULL};
    test_tensor at[3];
    DLTensor *tensors[3];
    void *memory[3];
    ogive_error error;
    for (int t = 0; t < 3; t++) {
        size_t bytes = (size_t)(shapes[t][0] * shapes[t][1]) * sizeof(float);
        memory[t] = device_alloc(bytes);
        if (host[t])
            device_copy(memory[t], host[t], bytes);
        tensors[t] = test_tensor_init(&at[t], memory[t], dlpack_of(OG_FLOAT32), 2, shapes[t], NULL);
        tensors[t]->device = cuda_device;
    }
    TEST_OK(device_run(find_formula("linear(x, w)"), tensors, 2, tensors + 2, 1, &options, &error),
            error);
    device_copy(y, memory[2], (size_t)(m * n) * sizeof(float));
    for (int t = 0; t < 3; t++)
        device_free(memory[t]);
}

/* The largest error of y = linear(x, w), as a part of sum |x||w|; a NaN if there is one. */
static double find_error(int64_t m, int64_t n, int64_t k, const float *x, const float *w,
                         const float *y)
{
    double worst = 0;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0, scale = 0;
            for (int64_t l = 0; l < k; l++) {
                sum += (double)x[i * k + l] * w[j * k + l];
                scale += fabs((double)x[i * k + l] * w[j * k + l]);
            }
            double e = fabs(y[i * n + j] - sum) / (scale == 0 ? 0x1p-149 : scale);
            worst = e > worst || e != e ? e : worst;
        }
    return worst;
}

/* Peaks in k of w, great rows of x. */
static void fill_peaks(int64_t m, int64_t n, int64_t k, float *x, float *w, test_random *random)
{
    for (int64_t i = 0; i < m * k; i++)
        x[i] = (float)test_random_range(random, -1, 1) * (i / k % 7 == 3 ? 0x1p30f : 1.0f);
    for (int64_t i = 0; i < n * k; i++)
        w[i] = (float)test_random_range(random, -1, 1) * (i % 64 == 9 ? 0x1p12f : 1.0f);
}

/* Small elements are all of a sum: x is 0 where w has peaks, of several heights; in some rows it is
 * small, and w has a 1 alone; one row is 0. Of the first columns that is one in eight, else most. */
static void fill_hard(int64_t m, int64_t n, int64_t k, float *x, float *w, test_random *random)
{
    static const float small[] = {0x1p-30f, 0x1p-45f, 0x1p-140f};
    for (int64_t i = 0; i < m * k; i++) {
        const int64_t row = i / k, at = i % k;
        x[i] = row % 5 == 4 || at % 64 == 9 ? 0 : (float)test_random_range(random, -1, 1);
        if (row % 5 < 3 && at % 3 == 0)
            x[i] *= small[row % 5];
    }
    for (int64_t i = 0; i < n * k; i++) {
        const int64_t column = i / k, at = i % k;
        const bool is_hard = column >= n / 2 ? column % 4 < 3 : column % 16 == 5;
        w[i] = (float)test_random_range(random, -1, 1);
        if (is_hard && at % 64 == 9)
            w[i] *= column % 4 == 0 ? 0x1p18f : column % 4 == 1 ? 0x1p24f : 0x1p60f;
        if (column % 16 == 11)
            w[i] = at == 3 * column % k;
    }
}

/* Of wide rows one element is 1 and all others are small; w is often 0 where that is. Of three tiles of
 * 128 rows the first has some, the second none, the third only such ones; so has a product of few
 * rows. */
static void fill_wide(int64_t m, int64_t n, int64_t k, float *x, float *w, test_random *random)
{
    for (int64_t i = 0; i < m * k; i++) {
        const int64_t row = i / k, at = i % k;
        const bool is_wide = row < 128 ? m < 128 || row % 4 == 1 : row >= 256;
        x[i] = (float)test_random_range(random, -1, 1) * (is_wide ? 0x1p-21f : 1.0f);
        if (at == 7)
            x[i] = 1;
    }
    for (int64_t i = 0; i < n * k; i++)
        w[i] = i % k == 7 && i / k % 3 ? 0 : (float)test_random_range(random, -1, 1);
}

typedef void fill_factors(int64_t m, int64_t n, int64_t k, float *x, float *w, test_random *random);

static void check_linear(int64_t m, int64_t n, int64_t k, fill_factors *fill_both, double most,
                         test_random *random)
{
    static uint64_t number;
    if (device_is_fake() && device_computes() && !test_has_turn(number++, 0, test_part() + 1))
        return;
    float *x = malloc((size_t)(m * k) * 4), *w = malloc((size_t)(n * k) * 4);
    float *y = malloc((size_t)(m * n) * 4), *alone = malloc((size_t)n * 4);
    assert_true(x && w && y && alone);
    fill_both(m, n, k, x, w, random);
    run_linear(m, n, k, x, w, y);
    double worst = device_computes() ? find_error(m, n, k, x, w, y) : 0;
    printf("%lld x %lld x %lld: %.1e of sum |x||w|\n", (long long)m, (long long)n, (long long)k,
           worst);
    assert_true(worst <= most);
    for (int64_t i = 0; i < m; i += 1 + m / 3) {
        run_linear(1, n, k, x + i * k, w, alone);
        assert_true(!device_computes() || memcmp(alone, y + i * n, (size_t)n * 4) == 0);
    }
    free(x);
    free(w);
    free(y);
    free(alone);
}

static void test_accuracy(void **unused)
{
    static const int64_t shapes[][3] = {{1, 128, 128},    {5, 130, 132},   {130, 257, 196},
                                        {129, 128, 1000}, {300, 200, 260}, {40, 257, 4200},
                                        {3, 128, 8260},   {2, 128, 65600}};
    test_random random = test_random_named("accuracy");
    (void)unused;
    /* A pair of halves leaves 2^-22 of a factor, and the product of two low halves, at most
     * 2^-22, is left out: 3 * 2^-22 where one product is nearly all of the sum, and float32's
     * own roundings. */
    for (size_t i = 0; i < TEST_COUNT(shapes); i++)
        check_linear(shapes[i][0], shapes[i][1], shapes[i][2], fill_peaks, 0x1p-20, &random);
}

/* Before sums were tested, errors were all of the sum. */
static void test_hard(void **unused)
{
    static const int64_t shapes[][3] = {{7, 130, 132}, {40, 200, 260}, {9, 136, 4200}};
    test_random random = test_random_named("hard");
    (void)unused;
    for (size_t i = 0; i < 2 * TEST_COUNT(shapes); i++) {
        setenv("OGIVE_PRODUCT", i % 2 ? "mma" : "sm90", 1);
        check_linear(shapes[i / 2][0], shapes[i / 2][1], shapes[i / 2][2], fill_hard, 0x1p-19,
                     &random);
    }
    unsetenv("OGIVE_PRODUCT");
}

/* Rows that are wide, alone and beside others; also with k in parts, or in one block. */
static void test_wide(void **unused)
{
    static const int64_t shapes[][3] = {
        {20, 130, 1000}, {300, 136, 1000}, {270, 128, 4200}, {5, 130, 8260}};
    test_random random = test_random_named("wide");
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(shapes); i++)
        check_linear(shapes[i][0], shapes[i][1], shapes[i][2], fill_wide, 0x1p-19, &random);
}

/* ---- exact sums -------------------------------------------------------------------------- */

static const struct {
    const char *text;
    case_shape shapes[5];
    case_layout layouts[2]; /* of x and w */
} exact[] = {
    {"linear(x, w)", {SHAPE(130, 260), SHAPE(200, 260)}, {CONTIGUOUS, CONTIGUOUS}},
    {"linear(x, w)", {SHAPE(70, 264), SHAPE(136, 264)}, {MISALIGNED, PADDED}},
    {"linear(x, w, b)", {SHAPE(300, 136), SHAPE(300, 136), SHAPE(300)}, {TRANSPOSED, SLICED}},
    {"z = linear(x, w, b); z + 2 * sigmoid(z)",
     {SHAPE(3, 2056), SHAPE(130, 2056), SHAPE(130)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"linear(x, w) * y + r",
     {SHAPE(2, 35, 128), SHAPE(150, 128), SHAPE(2, 35, 150), SHAPE(35, 1)},
     {STRIDED, CONTIGUOUS}},
    {"sum(sigmoid(linear(x, w, b)), dim=1)",
     {SHAPE(137, 520), SHAPE(300, 520), SHAPE(300)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"logsumexp(linear(x, w), dim=1)", {SHAPE(37, 136), SHAPE(129, 136)}, {CONTIGUOUS, TRANSPOSED}},
    {"x @ w", {SHAPE(77, 136), SHAPE(136, 130)}, {CONTIGUOUS, CONTIGUOUS}},
    {"x @ w", {SHAPE(200, 64), SHAPE(64, 24)}, {TRANSPOSED, CONTIGUOUS}},
    {"x @ w", {SHAPE(5, 70, 264), SHAPE(5, 264, 136)}, {CONTIGUOUS, CONTIGUOUS}},
    {"x @ w", {SHAPE(3, 70, 101), SHAPE(3, 101, 77)}, {CONTIGUOUS, TRANSPOSED}},
    {"x @ w + y", {SHAPE(70, 264), SHAPE(4, 264, 136), SHAPE(70, 136)}, {CONTIGUOUS, STRIDED}},
    {"x @ w", {SHAPE(2, 3, 40, 136), SHAPE(3, 136, 130)}, {CONTIGUOUS, CONTIGUOUS}},
    {"x @ w", {SHAPE(2, 1, 40, 136), SHAPE(3, 136, 132)}, {TRANSPOSED, CONTIGUOUS}},
    {"x @ w", {SHAPE(2, 3, 2, 9, 136), SHAPE(2, 1, 2, 136, 132)}, {CONTIGUOUS, STRIDED}},
    {"sum(x @ transpose(w, 0, 1), dim=-1)",
     {SHAPE(2, 3, 40, 136), SHAPE(3, 2, 136, 132)},
     {STRIDED, CONTIGUOUS}},
    {"sum(linear(x, w), dim=1)", {SHAPE(70, 8264), SHAPE(136, 8264)}, {CONTIGUOUS, PADDED}},
    {"relu(linear(x, w, b))",
     {SHAPE(330, 72), SHAPE(520, 72), SHAPE(520)},
     {CONTIGUOUS, CONTIGUOUS}},
    /* So large that of halves two blocks share x, or w, unasked; the fake device is slow. */
    {"linear(x, w)", {SHAPE(100, 72), SHAPE(33000, 72)}, {CONTIGUOUS, CONTIGUOUS}},
    {"linear(x, w, b)", {SHAPE(2100, 64), SHAPE(4100, 64), SHAPE(4100)}, {TRANSPOSED, CONTIGUOUS}},
};

static void check_exact(og_dtype dtype)
{
    enum { LARGE = 2 };
    const size_t count = TEST_COUNT(exact) - (device_is_fake() ? LARGE : 0);
    test_random random = test_random_named(og_dtype_name(dtype));
    case_share = 2;
    case_options.precision = OGIVE_FLOAT32;
    for (size_t i = 0; i < 2 * count; i++)
        check_exact_sums(exact[i / 2].text, exact[i / 2].shapes, exact[i / 2].layouts, dtype,
                         i % 2 ? TRANSPOSED : CONTIGUOUS, &random);
    case_options.precision = OGIVE_STRICT;
    end_cases("exact");
}

static void test_exact_float32(void **unused)
{
    (void)unused;
    check_exact(OG_FLOAT32);
}

static void test_exact_float16(void **unused)
{
    (void)unused;
    check_exact(OG_FLOAT16);
}

static void test_exact_bfloat16(void **unused)
{
    (void)unused;
    check_exact(OG_BFLOAT16);
}

/* ---- batches ----------------------------------------------------------------------------- */

/* A product of a batch has the bits that it has alone, whatever dims the batch has. */
static void test_batches_alone(void **unused)
{
    enum { M = 9, N = 132, K = 4164, OUTER = 2, INNER = 3 };
    static const int64_t x_shape[] = {OUTER, INNER, M, K}, w_shape[] = {OUTER, INNER, K, N};
    /* As of (INNER, OUTER, ..): the two dims of the batch do not become one. */
    static const int64_t x_strides[] = {M * K, OUTER * M * K, K, 1};
    static const int64_t w_strides[] = {K * N, OUTER * K * N, N, 1};
    static const int64_t y_shape[] = {OUTER, INNER, M, N};
    const ogive_options options = {.size = sizeof options};
    test_random random = test_random_named("batches alone");
    static float x[OUTER * INNER * M * K], w[OUTER * INNER * K * N], y[OUTER * INNER * M * N];
    static float alone[M * N];
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(x); i++)
        x[i] = (float)test_random_range(&random, -1, 1);
    for (size_t i = 0; i < TEST_COUNT(w); i++)
        w[i] = (float)test_random_range(&random, -1, 1);
    float *memory[] = {device_alloc(sizeof x), device_alloc(sizeof w), device_alloc(sizeof y)};
    device_copy(memory[0], x, sizeof x);
    device_copy(memory[1], w, sizeof w);
    for (int b = -1; b < OUTER * INNER; b++) { /* all, then each */
        int64_t first = b < 0 ? 0 : b / INNER + b % INNER * OUTER;
        int skip = b < 0 ? 0 : 2;
        test_tensor at[3];
        ogive_error error;
        DLTensor *tensors[] = {
            test_tensor_init(&at[0], memory[0] + first * M * K, dlpack_of(OG_FLOAT32), 4 - skip,
                             x_shape + skip, x_strides + skip),
            test_tensor_init(&at[1], memory[1] + first * K * N, dlpack_of(OG_FLOAT32), 4 - skip,
                             w_shape + skip, w_strides + skip),
            test_tensor_init(&at[2], memory[2], dlpack_of(OG_FLOAT32), 4 - skip, y_shape + skip,
                             NULL)};
        for (int t = 0; t < 3; t++)
            tensors[t]->device = cuda_device;
        TEST_OK(device_run(find_formula("x @ w"), tensors, 2, tensors + 2, 1, &options, &error),
                error);
        device_copy(b < 0 ? y : alone, memory[2], b < 0 ? sizeof y : sizeof alone);
        assert_true(b < 0 || !device_computes() || memcmp(alone, y + b * M * N, sizeof alone) == 0);
    }
    for (int t = 0; t < 3; t++)
        device_free(memory[t]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accuracy),      cmocka_unit_test(test_exact_float32),
        cmocka_unit_test(test_exact_float16), cmocka_unit_test(test_exact_bfloat16),
        cmocka_unit_test(test_batches_alone), cmocka_unit_test(test_hard),
        cmocka_unit_test(test_wide),
    };
    return CASE_RUN(tests);
}
