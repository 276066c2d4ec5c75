/* SPDX-License-Identifier: MIT
 *
 * test_cuda_soak.c - many calls with changing shapes on a CUDA device, beside formulas and
 * tensors that come and go: memory of the device and of the process, handles and threads stay what
 * they are, and every result that is looked at is right. Memory of a device is everybody's: on a
 * real one this runs alone (scripts/test-gpu). 20000 calls, a million with OGIVE_TEST_FULL=1; on
 * the fake device, whose kernels run on the CPU, a fiftieth of it.
 */
#include "cuda_run.h"

#include "process.h"

#include "cuda/host/cuda_driver.h"

enum { MOST_ROWS = 9, MOST_COLS = 3000, COLUMNS = 8, FORMULAS = 5 };
enum { GRANULE = 2 << 20 }; /* what a real driver takes of a device at once */
/* Few enough for all kernels to be loaded before anything is counted, and more than a formula
 * keeps plans of. */
static const int64_t all_rows[] = {1, 2, 3, 5, MOST_ROWS};
static const int64_t all_cols[] = {1, 7, 64, 256, 1001, MOST_COLS};
enum { ROWS = sizeof all_rows / sizeof *all_rows, COLS = sizeof all_cols / sizeof *all_cols };

/* What is counted, in bytes and pieces. */
typedef struct {
    size_t device_free;
    long bytes;
    int handles, threads;
} holdings;

/* All inputs are ones, so that every element of a result is the same number. */
static const struct {
    const char *text;
    bool product;
} kinds[FORMULAS] = {{"x * 2 + 1", false},
                     {"sum(x, dim=1)", false},
                     {"softmax(x - x, dim=1)", false},
                     {"sum(x, dim=0)", false},
                     {"linear(x, w)", true}};
static ogive_formula *formulas[FORMULAS];
static float ones[MOST_ROWS * MOST_COLS], got[MOST_ROWS * MOST_COLS];
static void *x, *w, *y;

static void make_formulas(void)
{
    ogive_error error;
    for (int i = 0; i < FORMULAS; i++)
        TEST_OK(ogive_formula_create(kinds[i].text, OGIVE_TEXT, &formulas[i], &error), error);
}

static void make_tensors(void)
{
    for (int i = 0; i < MOST_ROWS * MOST_COLS; i++)
        ones[i] = 1;
    x = device_alloc(sizeof ones);
    w = device_alloc(sizeof ones);
    y = device_alloc(sizeof ones);
    device_copy(x, ones, sizeof ones);
    device_copy(w, ones, sizeof ones);
}

static void end_all(void)
{
    for (int i = 0; i < FORMULAS; i++)
        ogive_formula_release(formulas[i]);
    device_free(x);
    device_free(w);
    device_free(y);
}

static DLTensor describe(void *data, int32_t ndim, int64_t *shape)
{
    return (DLTensor){.data = data,
                      .device = cuda_device,
                      .ndim = ndim,
                      .dtype = {kDLFloat, 32, 1},
                      .shape = shape};
}

/* ---- calls ------------------------------------------------------------------------------ */

/* The shape of a result, and what each of its elements is. */
static float expect(int which, int64_t rows, int64_t cols, DLTensor *out)
{
    switch (which) {
    case 1:
        *out = describe(y, 1, out->shape);
        out->shape[0] = rows;
        return (float)cols;
    case 2:
        return 1.0f / (float)cols;
    case 3:
        *out = describe(y, 1, out->shape);
        out->shape[0] = cols;
        return (float)rows;
    case 4:
        out->shape[1] = COLUMNS;
        return (float)cols;
    default:
        return 3;
    }
}

static void check_result(const DLTensor *out, float want, int which)
{
    int64_t count = 1;
    for (int32_t d = 0; d < out->ndim; d++)
        count *= out->shape[d];
    device_copy(got, out->data, (size_t)count * sizeof *got);
    for (int64_t i = 0; i < count && device_computes(); i++)
        if (!(fabsf(got[i] - want) <= 1e-6f * want))
            fail_msg("%s: element %lld of %lld is %a, expected %a", kinds[which].text, (long long)i,
                     (long long)count, (double)got[i], (double)want);
}

static void run_one(int which, int64_t rows, int64_t cols, bool check)
{
    int64_t shape[2] = {rows, cols}, w_shape[2] = {COLUMNS, cols}, y_shape[2] = {rows, cols};
    DLTensor in = describe(x, 2, shape), weights = describe(w, 2, w_shape);
    DLTensor out = describe(y, 2, y_shape);
    const DLTensor *inputs[] = {&in, &weights}, *outputs[] = {&out};
    ogive_error error;
    float want = expect(which, rows, cols, &out);
    TEST_OK(
        ogive_run(formulas[which], inputs, kinds[which].product ? 2 : 1, outputs, 1, NULL, &error),
        error);
    if (check)
        check_result(&out, want, which);
}

static void run_each(void)
{
    for (int which = 0; which < FORMULAS; which++)
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < COLS; c++)
                run_one(which, all_rows[r], all_cols[c], true);
}

/* A formula of its own on memory of its own, gone after its run. */
static void run_passing(int i)
{
    char text[64];
    ogive_formula *formula;
    ogive_error error;
    int64_t shape[1] = {1 + i % MOST_COLS};
    size_t bytes = (size_t)shape[0] * sizeof(float);
    DLTensor in = describe(device_alloc(bytes), 1, shape), out = in;
    DLTensor *inputs[] = {&in}, *outputs[] = {&out};
    device_copy(in.data, ones, bytes);
    snprintf(text, sizeof text, "tanh(y%d * %d)", i, i);
    TEST_OK(ogive_formula_create(text, OGIVE_TEXT, &formula, &error), error);
    TEST_OK(device_run(formula, inputs, 1, outputs, 1, NULL, &error), error);
    ogive_formula_release(formula);
    device_free(in.data);
}

/* ---- holdings --------------------------------------------------------------------------- */

static holdings count_all(void)
{
    const og_cuda_device *device;
    ogive_error error;
    size_t total;
    holdings now = {0};
    TEST_OK(ogive_device_synchronize(cuda_device, NULL, &error), error);
    TEST_OK(og_cuda_find_device(0, &device, &error), error);
    TEST_OK(og_cuda_enter(device, &error), error);
    assert_int_equal(og_cuda_driver()->call.cuMemGetInfo(&now.device_free, &total), 0);
    TEST_OK(og_cuda_leave(device, OGIVE_OK, &error), error);
    now.bytes = process_bytes();
    now.handles = process_handles();
    now.threads = process_threads();
    return now;
}

static void test_soak(void **state)
{
    (void)state;
    test_random random = test_random_named("cuda soak");
    int total = (test_full() ? 1000000 : 20000) / (device_is_fake() ? 50 : 1);
    holdings then = {0};
    make_formulas();
    make_tensors();
    run_each();
    for (int i = 0; i < total; i++) {
        if (i == total / 4) /* all that grows to a bound has */
            then = count_all();
        run_one((int)test_random_below(&random, FORMULAS),
                all_rows[test_random_below(&random, ROWS)],
                all_cols[test_random_below(&random, COLS)], i % 10 == 0);
        if (i % 50 == 0)
            run_passing(i);
    }
    holdings now = count_all();
    long device_grown = (long)then.device_free - (long)now.device_free;
    printf("%d calls: %ld bytes more of the device, %ld of the process, %d handles, %d threads\n",
           total, device_grown, now.bytes - then.bytes, now.handles, now.threads);
    end_all();
    assert_int_equal(now.handles, then.handles);
    assert_int_equal(now.threads, then.threads);
    assert_true(device_grown <= (device_is_fake() ? 0 : GRANULE));
    assert_true(TEST_SANITIZED || now.bytes - then.bytes < 1 << 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_soak)};
    const char *why = device_skip();
    if (why) {
        printf("skipped: %s\n", why);
        return 0;
    }
    return TEST_RUN(tests);
}
