/* SPDX-License-Identifier: MIT
 *
 * test_cuda_host_memory.c - every allocation on the way to a GPU fails once: finding the
 * device, emitting, compiling, loading, running. The status is then OGIVE_MEMORY (or it
 * worked without), nothing leaks, and the next try works. On the stand-in libraries,
 * whose own allocations do not count.
 */
#include "test.h"
#include "test_failing_memory.h"

/* ---- a formula, from text to result -------------------------------------------------------- */

enum { ROWS = 3, COLUMNS = 50, N = ROWS * COLUMNS };
static const DLDevice gpu = {kDLCUDA, 0};
static ogive_error error;
static float host[N];

static const char *const formulas[] = {
    "x * sigmoid(x) + 0.5",
    "softmax(x, dim=1)",
    "x + sum(x, dim=0) + sum(x, dim=1, keepdim=true)",
};

/* x and y are on the device. */
static ogive_status try_all(const char *text, void *x, void *y)
{
    test_tensor in, out;
    ogive_formula *formula = NULL;
    ogive_status status = ogive_formula_create(text, OGIVE_TEXT, &formula, &error);
    const int64_t shape[] = {ROWS, COLUMNS};
    DLTensor *input = test_tensor_init(&in, x, test_float32, 2, shape, NULL);
    DLTensor *output = test_tensor_init(&out, y, test_float32, 2, shape, NULL);
    input->device = output->device = gpu;
    if (status == OGIVE_OK)
        status = ogive_run(formula, (const DLTensor *const[]){input}, 1,
                           (const DLTensor *const[]){output}, 1, NULL, &error);
    ogive_formula_release(formula);
    return status;
}

/* The Nth allocation fails, for all N that there are; returns how many failed. */
static int64_t fail_each(const char *text, void *x, void *y, bool loaded)
{
    ogive_status status = OGIVE_MEMORY;
    int64_t failures = 0;
    for (int64_t n = 1;; n++) {
        memory.calls = memory.live = 0;
        memory.fail_at = n;
        memory.counting = true;
        status = try_all(text, x, y);
        memory.counting = false;
        if (memory.calls < n)
            break;
        if (status != OGIVE_OK && status != OGIVE_MEMORY)
            fail_msg("%s: allocation %" PRId64 ": %s: %s", text, n, ogive_status_name(status),
                     error.message);
        if (loaded && memory.live != 0)
            fail_msg("%s: allocation %" PRId64 ": %" PRId64 " blocks leak", text, n, memory.live);
        failures += status != OGIVE_OK;
    }
    assert_int_equal(status, OGIVE_OK);
    return failures;
}

static void *upload(void)
{
    void *data = NULL;
    TEST_OK(ogive_device_allocate(gpu, sizeof host, &data, &error), error);
    TEST_OK(ogive_device_copy(gpu, data, host, sizeof host, &error), error);
    return data;
}

static void test_device(void **unused)
{
    void *data = NULL;
    (void)unused;
    memory.calls = 0;
    memory.fail_at = 1;
    memory.counting = true;
    ogive_status status = ogive_device_allocate(gpu, 64, &data, &error);
    memory.counting = false;
    assert_int_equal(status, OGIVE_MEMORY);
    assert_null(data);
}

/* While its kernels are being compiled and loaded, then with those of the first time:
 * modules stay, whatever fails after them. */
static void test_formulas(void **unused)
{
    (void)unused;
    for (int i = 0; i < N; i++)
        host[i] = (float)i * 0.25f;
    void *x = upload(), *y = upload();
    for (size_t i = 0; i < TEST_COUNT(formulas); i++) {
        assert_true(fail_each(formulas[i], x, y, false) > 10);
        assert_true(fail_each(formulas[i], x, y, true) > 5);
    }
    TEST_OK(ogive_device_free(gpu, x, &error), error);
    TEST_OK(ogive_device_free(gpu, y, &error), error);
}

/* A run of a plan allocates nothing at all. */
static void test_runs(void **unused)
{
    (void)unused;
    void *x = upload(), *y = upload();
    for (size_t i = 0; i < TEST_COUNT(formulas); i++) {
        test_tensor in;
        ogive_formula *formula;
        ogive_plan *plan;
        void *workspace;
        DLTensor *input =
            test_tensor_init(&in, x, test_float32, 2, (int64_t[]){ROWS, COLUMNS}, NULL);
        input->device = gpu;
        TEST_OK(ogive_formula_create(formulas[i], OGIVE_TEXT, &formula, &error), error);
        TEST_OK(ogive_plan_create(formula, (const DLTensor *const[]){input}, 1, NULL, 0, NULL,
                                  &plan, &error),
                error);
        TEST_OK(ogive_device_allocate(gpu, ogive_plan_workspace(plan), &workspace, &error), error);
        memory.calls = memory.fail_at = 0;
        memory.counting = true;
        ogive_status status = ogive_plan_run(plan, (const void *const[]){x}, (void *const[]){y},
                                             workspace, NULL, &error);
        memory.counting = false;
        assert_int_equal(status, OGIVE_OK);
        assert_int_equal(memory.calls, 0);
        TEST_OK(ogive_device_free(gpu, workspace, &error), error);
        ogive_plan_release(plan);
        ogive_formula_release(formula);
    }
    TEST_OK(ogive_device_free(gpu, x, &error), error);
    TEST_OK(ogive_device_free(gpu, y, &error), error);
}

int main(void)
{
    if (!test_on_stand_ins())
        return 2;
    setenv("OGIVE_CACHE_DIR", "/dev/null", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device), /* first: it finds the device */
        cmocka_unit_test(test_formulas),
        cmocka_unit_test(test_runs),
    };
    return TEST_RUN(tests);
}
