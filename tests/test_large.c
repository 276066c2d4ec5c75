/* SPDX-License-Identifier: MIT
 *
 * test_large.c - more than 2^31 elements and bytes, without the memory: inputs
 * that repeat (stride 0), and matrices of which only a few pages are ever touched.
 */
#include "test.h"

static ogive_error error;

static void run(const char *text, const DLTensor *x, const DLTensor *y)
{
    ogive_formula *f;
    TEST_OK(ogive_formula_create(text, OGIVE_TEXT, &f, &error), error);
    TEST_OK(ogive_run(f, (const DLTensor *[]){x}, 1, (const DLTensor *[]){y}, 1, NULL, &error),
            error);
    ogive_formula_release(f);
}

/* 2^31 + 7 elements of one half, then a few rows of it. */
static void test_repeated(void **state)
{
    (void)state;
    const int64_t n = ((int64_t)1 << 31) + 7;
    uint16_t half = 0x3c00; /* 1 */
    uint16_t most = 0;
    test_tensor t;
    const DLTensor *x =
        test_tensor_init(&t, &half, test_float16, 1, (int64_t[]){n}, (int64_t[]){0});
    run("amax(x) * 2", x, TEST_SCALAR(&most, test_float16));
    assert_int_equal(most, 0x4000);
    float sum = 0;
    run("float32(x) * 1", TEST_TENSOR(&half, test_float16, 1), TEST_TENSOR(&sum, test_float32, 1));
    assert_true(sum == 1);
    run("sum(float32(x))", x, TEST_SCALAR(&sum, test_float32));
    /* Sums of ones are exact up to the last level: 131072 chunks of 16384, and 7. */
    assert_true(sum == 0x1p31f);
}

/* Rows 2 GiB apart: offsets beyond 32 bits, forwards and backwards. */
static void test_far_apart(void **state)
{
    (void)state;
    const int64_t stride = ((int64_t)1 << 29) + 3, rows = 7, cols = 5;
    size_t bytes = (size_t)(stride * (rows - 1) + cols) * sizeof(float);
    float *x = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (x == MAP_FAILED)
        skip(); /* an address-space limit */
    float y[35], sums[5];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            x[r * stride + c] = (float)(r * 10 + c);
    test_tensor t;
    const int64_t shape[] = {rows, cols};
    run("x + 1", test_tensor_init(&t, x, test_float32, 2, shape, (int64_t[]){stride, 1}),
        TEST_TENSOR(y, test_float32, 7, 5));
    for (int i = 0; i < 35; i++)
        assert_true(y[i] == (float)(i / 5 * 10 + i % 5 + 1));
    run("sum(x, dim=0)", test_tensor_init(&t, x, test_float32, 2, shape, (int64_t[]){stride, 1}),
        TEST_TENSOR(sums, test_float32, 5));
    assert_true(sums[0] == 210 && sums[4] == 238);
    run("x + 1",
        test_tensor_init(&t, x + (rows - 1) * stride, test_float32, 2, shape,
                         (int64_t[]){-stride, 1}),
        TEST_TENSOR(y, test_float32, 7, 5));
    for (int i = 0; i < 35; i++)
        assert_true(y[i] == (float)((6 - i / 5) * 10 + i % 5 + 1));
    /* and in place, there */
    DLTensor *far = test_tensor_init(&t, x, test_float32, 2, shape, (int64_t[]){stride, 1});
    run("x * x", far, far);
    assert_true(x[6 * stride + 4] == 64 * 64 && x[stride] == 100);
    munmap(x, bytes);
}

/* A tensor of three dims, whose middle one or whose last leads 2 GiB and more on, and its elements
 * side by side. */
enum { PLANES = 2, LINES = 7, PLACES = 5, IMAGE = PLANES * LINES * PLACES };
static const int64_t image_shape[] = {PLANES, LINES, PLACES};

static void fill_image(float *far, const int64_t *stride, float *near)
{
    for (int64_t i = 0; i < IMAGE; i++) {
        near[i] = (float)(i * 37 % 64 - 20);
        far[i / (LINES * PLACES) * stride[0] + i / PLACES % LINES * stride[1] +
            i % PLACES * stride[2]] = near[i];
    }
}

/* Windows over lines, or over elements of one, that are 2 GiB apart: the bits of windows over the same
 * elements side by side. Values are small integers, so that sums are exact in any order. shape: the
 * result's. */
static void check_far_windows(const char *text, const int64_t *stride, const DLTensor *far,
                              const DLTensor *near, const int64_t *shape)
{
    float results[2][IMAGE], gradients[2][IMAGE], change[IMAGE];
    const int64_t count = shape[0] * shape[1] * shape[2];
    for (int64_t i = 0; i < count; i++)
        change[i] = (float)(i % 7 - 3);
    ogive_formula *f, *g;
    TEST_OK(ogive_formula_create(text, OGIVE_TEXT, &f, &error), error);
    TEST_OK(ogive_formula_gradient(f, (const char *[]){"x"}, 1, &g, &error), error);
    for (int side = 0; side < 2; side++) {
        const DLTensor *x = side ? near : far;
        test_tensor y, grad, of;
        test_tensor_init(&y, results[side], test_float32, 3, shape, NULL);
        test_tensor_init(&grad, change, test_float32, 3, shape, NULL);
        test_tensor_init(&of, gradients[side], test_float32, 3, image_shape, NULL);
        TEST_OK(ogive_run(f, &x, 1, (const DLTensor *[]){&y.tensor}, 1, NULL, &error), error);
        TEST_OK(ogive_run(g, (const DLTensor *[]){x, &grad.tensor}, 2,
                          (const DLTensor *[]){&of.tensor}, 1, NULL, &error),
                error);
    }
    if (memcmp(results[0], results[1], (size_t)count * sizeof(float)) ||
        memcmp(gradients[0], gradients[1], sizeof gradients[0]))
        fail_msg("%s: other values with strides (%lld, %lld, %lld)", text, (long long)stride[0],
                 (long long)stride[1], (long long)stride[2]);
    ogive_formula_release(g);
    ogive_formula_release(f);
}

static void test_far_windows(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t shape[3];
    } cases[] = {
        {"max_pool2d(x, 3, 2, 1)", {2, 4, 3}},
        {"avg_pool2d(x, (3, 2), 1)", {2, 5, 4}},
        {"adaptive_avg_pool2d(x, (3, 2))", {2, 3, 2}},
        {"adaptive_max_pool1d(x, 3)", {2, 7, 3}},
        {"adaptive_avg_pool2d(x, 1)", {2, 1, 1}},
        {"conv1d(x, x, padding=2)", {2, 2, 5}},
        {"conv1d(x, x, stride=2, padding=2)", {2, 2, 3}},
        {"conv1d(x, narrow(transpose(x, 0, 1), 1, 0, 1), padding=2, groups=7)", {2, 7, 5}},
        {"conv_transpose1d(x, transpose(x, 0, 1), stride=2)", {2, 2, 13}},
    };
    enum { FAR = (1 << 29) + 3 };
    static const int64_t strides[][3] = {{PLACES, FAR, 1}, {1, 2, FAR}, {FAR, PLACES, 1}};
    size_t bytes = ((size_t)FAR * (LINES + 1)) * sizeof(float);
    for (size_t s = 0; s < TEST_COUNT(strides); s++) {
        float *x = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (x == MAP_FAILED)
            skip();
        float side_by_side[IMAGE];
        fill_image(x, strides[s], side_by_side);
        test_tensor far, near;
        test_tensor_init(&far, x, test_float32, 3, image_shape, strides[s]);
        test_tensor_init(&near, side_by_side, test_float32, 3, image_shape, NULL);
        for (size_t c = 0; c < TEST_COUNT(cases); c++)
            check_far_windows(cases[c].text, strides[s], &far.tensor, &near.tensor, cases[c].shape);
        munmap(x, bytes);
    }
}

/* One line of more than 2^31 elements, of which windows see some here and there. */
static void test_long_line(void **state)
{
    (void)state;
    enum { APART = 1 << 20, WINDOWS = 2053 };
    const int64_t n = (int64_t)APART * (WINDOWS - 1) + 2;
    size_t bytes = (size_t)n * sizeof(uint16_t);
    uint16_t *x = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (x == MAP_FAILED)
        skip();
    uint16_t most[WINDOWS];
    for (int64_t i = 0; i < WINDOWS; i++)
        x[i * APART + i % 2] = (uint16_t)(0x3c00 + i % 1024); /* 1 and more */
    run("max_pool1d(x, 3, stride=1048576, padding=1)", TEST_TENSOR(x, test_float16, 1, n),
        TEST_TENSOR(most, test_float16, 1, WINDOWS));
    for (int64_t i = 0; i < WINDOWS; i++)
        if (most[i] != 0x3c00 + i % 1024)
            fail_msg("window %lld: got %04x", (long long)i, (unsigned)most[i]);
    munmap(x, bytes);
}

/* A result of 2^31 + 8 elements, over memory that was never reserved: every page of it is
 * written, so this is for the long way only. */
static void test_whole(void **state)
{
    (void)state;
    if (!test_full())
        skip();
    const int64_t n = ((int64_t)1 << 31) + 8;
    uint16_t *y = mmap(NULL, (size_t)n * sizeof *y, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (y == MAP_FAILED)
        skip();
    uint16_t half = 0x3c00;
    test_tensor t;
    run("x + x", test_tensor_init(&t, &half, test_float16, 1, (int64_t[]){n}, (int64_t[]){0}),
        TEST_TENSOR(y, test_float16, n));
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(y[i], 0x4000);
    munmap(y, (size_t)n * sizeof *y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_repeated),    cmocka_unit_test(test_far_apart),
        cmocka_unit_test(test_far_windows), cmocka_unit_test(test_long_line),
        cmocka_unit_test(test_whole),
    };
    return TEST_RUN(tests);
}
