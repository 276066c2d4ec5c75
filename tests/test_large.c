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
        cmocka_unit_test(test_repeated),
        cmocka_unit_test(test_far_apart),
        cmocka_unit_test(test_whole),
    };
    return TEST_RUN(tests);
}
