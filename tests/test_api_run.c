/* SPDX-License-Identifier: MIT
 *
 * test_api_run.c - ogive.h: what a run refuses and with which words, small and odd
 * shapes, dtypes.
 */
#include "api_case.h"

#include "reference.h"

/* ---- running ------------------------------------------------------------------------ */

static void test_run_arguments(void **state)
{
    (void)state;
    ogive_formula *f = make("x - amax(amin(x, dim=0))"); /* two reductions: some workspace */
    float data[32] = {0}, result[32];
    const DLTensor *in[] = {TEST_TENSOR(data, test_float32, 4, 8)};
    const DLTensor *out[] = {TEST_TENSOR(result, test_float32, 4, 8)};
    ogive_plan *plan;
    TEST_OK(ogive_plan_create(f, in, 1, out, 1, NULL, &plan, &error), error);
    size_t bytes = ogive_plan_workspace(plan);
    assert_in_range(bytes, 1, 1 << 20);
    char *workspace = aligned_alloc(64, (bytes + 127) & ~(size_t)63);
    const void *inputs[] = {data};
    void *outputs[] = {result};
    char text[100];
    snprintf(text, sizeof text, "workspace: expected %zu bytes aligned to 64", bytes);
    REFUSED(ogive_plan_run(NULL, inputs, outputs, workspace, NULL, &error), OGIVE_ARGUMENT,
            "plan is NULL");
    REFUSED(ogive_plan_run(plan, NULL, outputs, workspace, NULL, &error), OGIVE_ARGUMENT,
            "inputs is NULL");
    REFUSED(ogive_plan_run(plan, inputs, NULL, workspace, NULL, &error), OGIVE_ARGUMENT,
            "outputs is NULL");
    REFUSED(ogive_plan_run(plan, inputs, outputs, NULL, NULL, &error), OGIVE_ARGUMENT, text);
    REFUSED(ogive_plan_run(plan, inputs, outputs, workspace + 32, NULL, &error), OGIVE_ARGUMENT,
            text);
    REFUSED(ogive_plan_run(plan, inputs, outputs, workspace, &error, &error), OGIVE_ARGUMENT,
            "stream must be NULL for a plan on the CPU");
    REFUSED(ogive_plan_run(plan, (const void *[]){NULL}, outputs, workspace, NULL, &error),
            OGIVE_ARGUMENT, "the data of input 'x' is NULL");
    REFUSED(ogive_plan_run(plan, inputs, (void *[]){NULL}, workspace, NULL, &error), OGIVE_ARGUMENT,
            "the data of output '0' is NULL");
    REFUSED(
        ogive_plan_run(plan, (const void *[]){(char *)data + 2}, outputs, workspace, NULL, &error),
        OGIVE_ARGUMENT, "the data of input 'x' is not aligned to its float32 elements");
    REFUSED(ogive_plan_run(plan, inputs, (void *[]){(char *)result + 1}, workspace, NULL, &error),
            OGIVE_ARGUMENT, "the data of output '0' is not aligned to its float32 elements");
    TEST_OK(ogive_plan_run(plan, inputs, outputs, workspace, NULL, &error), error);
    assert_string_equal(error.message, "");
    assert_int_equal(error.offset, -1);
    TEST_OK(ogive_plan_run(plan, inputs, outputs, workspace, NULL, NULL), error);

    REFUSED(ogive_run(NULL, in, 1, out, 1, NULL, &error), OGIVE_ARGUMENT, "formula is NULL");
    REFUSED(ogive_run(f, NULL, 1, out, 1, NULL, &error), OGIVE_ARGUMENT, "inputs is NULL");
    REFUSED(ogive_run(f, in, 1, NULL, 0, NULL, &error), OGIVE_ARGUMENT, "outputs is NULL");
    REFUSED(ogive_run(f, in, 0, out, 1, NULL, &error), OGIVE_ARGUMENT,
            "the formula has 1 inputs, 0 were given");
    REFUSED(ogive_run(f, in, 1, out, 0, NULL, &error), OGIVE_ARGUMENT,
            "the formula has 1 results, 0 outputs were given");
    REFUSED(ogive_run(f, (const DLTensor *[]){NULL}, 1, out, 1, NULL, &error), OGIVE_ARGUMENT,
            "input 'x' is NULL");
    ogive_options options = {.size = 1};
    TEST_FAILS(ogive_run(f, in, 1, out, 1, &options, &error), OGIVE_ARGUMENT, error,
               "options.size is 1");
    options = (ogive_options){.size = sizeof options,
                              .cpu_level = "a name longer than any level of any CPU has"};
    assert_int_equal(ogive_run(f, in, 1, out, 1, &options, &error), OGIVE_ARGUMENT);
    TEST_OK(ogive_run(f, in, 1, out, 1, NULL, &error), error);
    free(workspace);
    ogive_plan_release(plan);
    ogive_formula_release(f);
}

/* Runs text over x (and into y) by ogive_run. */
static void run_tensors(const char *text, const DLTensor *x, const DLTensor *y)
{
    ogive_formula *f = make(text);
    TEST_OK(ogive_run(f, (const DLTensor *[]){x}, 1, (const DLTensor *[]){y}, 1, NULL, &error),
            error);
    ogive_formula_release(f);
}

static void test_small_shapes(void **state)
{
    (void)state;
    float x[16], y[16];
    for (int i = 0; i < 16; i++)
        x[i] = (float)i - 7;
    /* 0-d */
    run_tensors("x * 2", TEST_SCALAR(x, test_float32), TEST_SCALAR(y, test_float32));
    assert_true(y[0] == -14);
    run_tensors("sum(x)", TEST_SCALAR(x, test_float32), TEST_SCALAR(y, test_float32));
    assert_true(y[0] == -7);
    run_tensors("softmax(x, dim=0)", TEST_SCALAR(x, test_float32), TEST_SCALAR(y, test_float32));
    assert_true(y[0] == 1);
    /* one element, rank 8 */
    run_tensors("relu(x) + 1", TEST_TENSOR(x, test_float32, 1, 1, 1, 1, 1, 1, 1, 1),
                TEST_TENSOR(y, test_float32, 1, 1, 1, 1, 1, 1, 1, 1));
    assert_true(y[0] == 1);
    run_tensors("sum(x, dim=(0, 2, 4, 6), keepdim=true)",
                TEST_TENSOR(x, test_float32, 2, 1, 2, 1, 2, 1, 2, 1),
                TEST_TENSOR(y, test_float32, 1, 1, 1, 1, 1, 1, 1, 1));
    assert_true(y[0] == 8);
    run_tensors("transpose(x, 0, 7)", TEST_TENSOR(x, test_float32, 2, 1, 2, 1, 2, 1, 1, 2),
                TEST_TENSOR(y, test_float32, 2, 1, 2, 1, 2, 1, 1, 2));
    assert_true(y[1] == x[8] && y[8] == x[1] && y[15] == x[15]);
    /* byte_offset, and data that is NULL where nothing is */
    DLTensor *shifted = TEST_TENSOR(x, test_float32, 2);
    shifted->byte_offset = 4 * sizeof *x;
    run_tensors("x + 0.5", shifted, TEST_TENSOR(y, test_float32, 2));
    assert_true(y[0] == -2.5f && y[1] == -1.5f);
    run_tensors("exp(x)", TEST_TENSOR(NULL, test_float32, 3, 0),
                TEST_TENSOR(NULL, test_float32, 3, 0));
    /* sums of nothing */
    run_tensors("sum(x, dim=1)", TEST_TENSOR(NULL, test_float32, 3, 0),
                TEST_TENSOR(y, test_float32, 3));
    assert_true(y[0] == 0 && !signbit(y[0]) && y[2] == 0);
    run_tensors("mean(x)", TEST_TENSOR(NULL, test_float32, 3, 0), TEST_SCALAR(y, test_float32));
    assert_true(isnan(y[0]));
    run_tensors("logsumexp(x, dim=0)", TEST_TENSOR(NULL, test_float32, 0, 2),
                TEST_TENSOR(y, test_float32, 2));
    assert_true(y[0] == -INFINITY && y[1] == -INFINITY);
    ogive_formula *f = make("amax(x, dim=1)");
    ogive_plan *plan;
    const DLTensor *empty[] = {TEST_TENSOR(NULL, test_float32, 3, 0)};
    TEST_FAILS(ogive_plan_create(f, empty, 1, NULL, 0, NULL, &plan, &error), OGIVE_SHAPE, error,
               "amax");
    ogive_formula_release(f);
}

static void test_products(void **state)
{
    (void)state;
    ogive_formula *f = make("sum(sigmoid(linear(x, w, b)), dim=1, keepdim=true)");
    float data[64] = {0}, result[4];
    const DLTensor *in[] = {TEST_TENSOR(data, test_float32, 4, 8),
                            TEST_TENSOR(data, test_float32, 5, 8),
                            TEST_TENSOR(data, test_float32, 5)};
    const DLTensor *out[] = {TEST_TENSOR(result, test_float32, 4, 1)};
    ogive_plan *plan;
    TEST_OK(ogive_plan_create(f, in, 3, out, 1, NULL, &plan, &error), error);
    assert_true(ogive_plan_explain(plan, NULL, 0) > 0);
    ogive_plan_release(plan);
    TEST_OK(ogive_run(f, in, 3, out, 1, NULL, &error), error);
    for (int i = 0; i < 4; i++)
        assert_true(result[i] == 2.5f);
    ogive_formula_release(f);
}

/* Sums of no columns, of many rows: row values have room for all of them. */
static void test_no_columns(void **state)
{
    (void)state;
    enum { ROWS = 100, GUARD = 4096 };
    ogive_formula *f = make("sum(linear(x, w), 1)");
    float x[ROWS][3] = {{0}}, w[1], result[ROWS];
    const DLTensor *in[] = {TEST_TENSOR(x, test_float32, ROWS, 3),
                            TEST_TENSOR(w, test_float32, 0, 3)};
    ogive_plan *plan;
    TEST_OK(ogive_plan_create(f, in, 2, NULL, 0, NULL, &plan, &error), error);
    size_t bytes = ogive_plan_workspace(plan);
    unsigned char *workspace = aligned_alloc(64, (bytes + GUARD + 63) & ~(size_t)63);
    assert_non_null(workspace);
    memset(workspace, 0x5a, bytes + GUARD);
    memset(result, 0xff, sizeof result);
    TEST_OK(ogive_plan_run(plan, (const void *[]){x, w}, (void *[]){result},
                           bytes ? workspace : NULL, NULL, &error),
            error);
    for (int i = 0; i < ROWS; i++)
        assert_true(result[i] == 0.0f);
    for (int i = 0; i < GUARD; i++)
        assert_int_equal(workspace[bytes + (size_t)i], 0x5a);
    free(workspace);
    ogive_plan_release(plan);
    ogive_formula_release(f);
}

/* ---- dtypes --------------------------------------------------------------------------- */

/* The dtype of a formula over x (of dims or 0-d) and y. */
static void check_promotion(const char *text, og_dtype x, int x_rank, og_dtype y, int y_rank,
                            og_dtype want)
{
    ogive_formula *f = make(text);
    ogive_plan *plan;
    test_tensor a, b;
    const int64_t shape[] = {3, 2};
    const DLTensor *in[] = {test_tensor_init(&a, NULL, og_dtype_dlpack(x), x_rank, shape, NULL),
                            test_tensor_init(&b, NULL, og_dtype_dlpack(y), y_rank, shape, NULL)};
    TEST_OK(ogive_plan_create(f, in, ogive_formula_input_count(f), NULL, 0, NULL, &plan, &error),
            error);
    DLDataType got = ogive_plan_result(plan, 0)->dtype, dtype = og_dtype_dlpack(want);
    if (memcmp(&got, &dtype, sizeof got) != 0)
        fail_msg("%s of %s rank %d, %s rank %d: expected %s", text, og_dtype_name(x), x_rank,
                 og_dtype_name(y), y_rank, og_dtype_name(want));
    ogive_plan_release(plan);
    ogive_formula_release(f);
}

static void test_promotion(void **state)
{
    (void)state;
    check_promotion("x + y", OG_FLOAT16, 2, OG_BFLOAT16, 2, OG_FLOAT32);
    check_promotion("x + y", OG_FLOAT16, 2, OG_FLOAT32, 2, OG_FLOAT32);
    check_promotion("x + y", OG_FLOAT32, 2, OG_FLOAT64, 2, OG_FLOAT64);
    check_promotion("x + y", OG_FLOAT16, 2, OG_FLOAT64, 0, OG_FLOAT16);
    check_promotion("x + y", OG_FLOAT64, 0, OG_BFLOAT16, 2, OG_BFLOAT16);
    check_promotion("x + y", OG_FLOAT16, 0, OG_BFLOAT16, 0, OG_FLOAT32);
    check_promotion("x * sum(y)", OG_FLOAT16, 2, OG_FLOAT64, 2, OG_FLOAT16);
    check_promotion("where(x > 0, y, y)", OG_FLOAT64, 2, OG_FLOAT16, 2, OG_FLOAT16);
    check_promotion("where(x > 0, y, 1e300)", OG_FLOAT64, 2, OG_FLOAT16, 2, OG_FLOAT16);
    check_promotion("1e300 * x + 0 * y", OG_FLOAT16, 2, OG_FLOAT16, 2, OG_FLOAT16);
    check_promotion("float16(x) * y", OG_FLOAT64, 2, OG_FLOAT16, 2, OG_FLOAT16);
    check_promotion("float64(x) + y", OG_FLOAT16, 2, OG_FLOAT16, 2, OG_FLOAT64);
}

/* Two thousand halves through a formula that would differ if rounded twice. */
static void test_halves_round_once(void **state)
{
    (void)state;
    test_random random = test_random_named("halves");
    enum { N = 2000 };
    static const og_dtype dtypes[] = {OG_FLOAT16, OG_BFLOAT16};
    for (size_t t = 0; t < 2; t++) {
        uint16_t x[N], y[N];
        double wide[N];
        uint16_t narrow[N];
        for (int i = 0; i < N; i++) {
            reference_store(x, dtypes[t], i,
                            reference_round(test_random_range(&random, -9, 9), dtypes[t]));
            wide[i] = test_random_range(&random, -3, 3);
            /* next to the middle between two halves, nearer than a float32 can say */
            reference_store(y, dtypes[t], i, reference_round(wide[i], dtypes[t]));
            double a = reference_load(y, dtypes[t], i);
            double next = reference_round(a * (dtypes[t] == OG_FLOAT16 ? 1 + 0x1p-10 : 1 + 0x1p-7),
                                          dtypes[t]);
            wide[i] = (a + next) / 2 + (i % 2 ? 1e-14 : -1e-14) * a;
        }
        DLDataType type = og_dtype_dlpack(dtypes[t]);
        run_tensors("(x + 0.001) * 3 - x", TEST_TENSOR(x, type, N), TEST_TENSOR(y, type, N));
        run_tensors(t ? "bfloat16(x)" : "float16(x)", TEST_TENSOR(wide, test_float64, N),
                    TEST_TENSOR(narrow, type, N));
        for (int i = 0; i < N; i++) {
            float a = (float)reference_load(x, dtypes[t], i);
            double want = reference_round((a + 0.001f) * 3 - a, dtypes[t]);
            if (reference_load(y, dtypes[t], i) != want)
                fail_msg("%s element %d of %a: got %a, want %a", og_dtype_name(dtypes[t]), i, a,
                         reference_load(y, dtypes[t], i), want);
            want = reference_round(wide[i], dtypes[t]);
            if (reference_load(narrow, dtypes[t], i) != want)
                fail_msg("cast of %a to %s: got %a, want %a", wide[i], og_dtype_name(dtypes[t]),
                         reference_load(narrow, dtypes[t], i), want);
        }
    }
}

/* A plan that is kept must not let through what planning refuses. */
static void test_counts_after_a_run(void **state)
{
    (void)state;
    ogive_formula *f = make("x + y");
    float a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 8}, c[4], d[4];
    const DLTensor *x = TEST_TENSOR(a, test_float32, 4), *y = TEST_TENSOR(b, test_float32, 4),
                   *z = TEST_TENSOR(c, test_float32, 4), *other = TEST_TENSOR(d, test_float32, 4);
    TEST_OK(ogive_run(f, (const DLTensor *[]){x, y}, 2, (const DLTensor *[]){z}, 1, NULL, &error),
            error);
    REFUSED(
        ogive_run(f, (const DLTensor *[]){x}, 1, (const DLTensor *[]){z, other}, 2, NULL, &error),
        OGIVE_ARGUMENT, "the formula has 2 inputs, 1 were given");
    ogive_formula_release(f);
}

static void test_unknown_device(void **state)
{
    (void)state;
    void *data = &data;
    DLDevice device = {.device_type = (DLDeviceType)5};
    REFUSED(ogive_device_allocate(device, 4, &data, &error), OGIVE_ARGUMENT,
            "device is of DLPack type 5: expected the CPU (1) or CUDA (2)");
    assert_null(data);
}

/* A plan may be run again and again, over other data. */
static void test_plan_reuse(void **state)
{
    (void)state;
    ogive_formula *f = make("x / sum(x, dim=1, keepdim=true), sum(x)");
    float x[2][6] = {{1, 1, 2, 3, 3, 6}, {2, 2, 4, 1, 1, 2}}, y[6], s;
    const DLTensor *in[] = {TEST_TENSOR(NULL, test_float32, 2, 3)};
    ogive_plan *plan;
    TEST_OK(ogive_plan_create(f, in, 1, NULL, 0, NULL, &plan, &error), error);
    void *workspace = aligned_alloc(64, (ogive_plan_workspace(plan) + 64) & ~(size_t)63);
    for (int again = 0; again < 6; again++) {
        memset(y, 0xff, sizeof y);
        TEST_OK(ogive_plan_run(plan, (const void *[]){x[again % 2]}, (void *[]){y, &s}, workspace,
                               NULL, &error),
                error);
        assert_true(y[0] == 0.25f && y[2] == 0.5f && y[3] == 0.25f && y[5] == 0.5f);
        assert_true(s == (again % 2 ? 12.0f : 16.0f));
    }
    free(workspace);
    ogive_plan_release(plan);
    ogive_formula_release(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_arguments),      cmocka_unit_test(test_small_shapes),
        cmocka_unit_test(test_products),           cmocka_unit_test(test_no_columns),
        cmocka_unit_test(test_promotion),          cmocka_unit_test(test_halves_round_once),
        cmocka_unit_test(test_counts_after_a_run), cmocka_unit_test(test_unknown_device),
        cmocka_unit_test(test_plan_reuse),
    };
    return TEST_RUN(tests);
}
