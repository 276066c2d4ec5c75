/* SPDX-License-Identifier: MIT
 *
 * test_cuda_shim_wide.c - kernels with 64-bit indices against the CPU, bit by bit: tensors
 * whose halves lie far apart, in every body, and, on a real GPU, tensors of more than 2^31
 * elements.
 */
#include "cuda_run.h"

#include "base/base.h"

/* ---- halves far apart ------------------------------------------------------------------ */

/* Elements from one half to the other; memory between them is never touched. */
#define FAR (((int64_t)1 << 31) + 64)
enum { MOST_RANK = 4 };

typedef struct {
    const char *text, *body;
    int rank;
    int64_t shape[MOST_RANK], strides[MOST_RANK]; /* of x; shape[0] is 2, strides[0] FAR */
    DLDataType dtype;
} far_case;

static int64_t half_elements(const far_case *c)
{
    int64_t last = 0;
    for (int d = 1; d < c->rank; d++)
        last += (c->shape[d] - 1) * c->strides[d];
    return last + 1;
}

static void fill(void *data, DLDataType type, int64_t count, test_random *random)
{
    for (int64_t i = 0; i < count; i++) {
        double value = test_random_range(random, -3, 3);
        uint16_t half = (uint16_t)(test_random_bits(random) & 0xbbff); /* below 1 */
        if (type.bits == 16)
            ((uint16_t *)data)[i] = half;
        else if (type.bits == 32)
            ((float *)data)[i] = (float)value;
        else
            ((double *)data)[i] = value;
    }
}

/* What ogive_plan_explain() and _source() say: the body that was meant, and its indices. */
static void check_plan(const far_case *c, const ogive_formula *formula, const DLTensor *x)
{
    static char text[1 << 20];
    const ogive_options options = {.size = sizeof options, .precision = OGIVE_STRICT};
    ogive_plan *plan;
    ogive_error error;
    TEST_OK(ogive_plan_create(formula, &x, 1, NULL, 0, &options, &plan, &error), error);
    ogive_plan_explain(plan, text, sizeof text);
    if (!strstr(text, c->body))
        fail_msg("%s: expected '%s' in\n%s", c->text, c->body, text);
    ogive_plan_source(plan, 0, text, sizeof text);
    assert_non_null(strstr(text, "typedef int64_t og_index;"));
    ogive_plan_release(plan);
}

/* A result of formula on x's device, of so many bytes. */
static void run(const ogive_formula *formula, DLTensor *x, void *result, size_t bytes)
{
    const ogive_options options = {.size = sizeof options, .precision = OGIVE_STRICT};
    ogive_plan *plan;
    ogive_error error;
    test_tensor y;
    TEST_OK(ogive_plan_create(formula, (const DLTensor *const[]){x}, 1, NULL, 0, &options, &plan,
                              &error),
            error);
    const DLTensor *made = ogive_plan_result(plan, 0);
    int64_t count = 1;
    for (int d = 0; d < made->ndim; d++)
        count *= made->shape[d];
    assert_int_equal((size_t)count * made->dtype.bits / 8, bytes);
    test_tensor_init(&y, NULL, made->dtype, made->ndim, made->shape, NULL);
    ogive_plan_release(plan);
    y.tensor.device = x->device;
    y.tensor.data = x->device.device_type == kDLCPU ? result : device_alloc(bytes);
    if (x->device.device_type == kDLCPU) {
        ogive_formula *same = (ogive_formula *)(uintptr_t)formula; /* its cache changes */
        TEST_OK(ogive_run(same, (const DLTensor *const[]){x}, 1,
                          (const DLTensor *const[]){&y.tensor}, 1, &options, &error),
                error);
        return;
    }
    TEST_OK(device_run(formula, &x, 1, (DLTensor *const[]){&y.tensor}, 1, &options, &error), error);
    device_copy(result, y.tensor.data, bytes);
    device_free(y.tensor.data);
}

static size_t result_bytes(const ogive_formula *formula, const DLTensor *x)
{
    ogive_plan *plan;
    ogive_error error;
    TEST_OK(ogive_plan_create(formula, &x, 1, NULL, 0, NULL, &plan, &error), error);
    const DLTensor *made = ogive_plan_result(plan, 0);
    size_t bytes = made->dtype.bits / 8;
    for (int d = 0; d < made->ndim; d++)
        bytes *= (size_t)made->shape[d];
    ogive_plan_release(plan);
    return bytes;
}

static void check_far(const far_case *c, test_random *random)
{
    size_t element = c->dtype.bits / 8u, half = (size_t)half_elements(c) * element;
    size_t bytes = (size_t)FAR * element + half;
    char *host = calloc(bytes, 1), *device = device_alloc(bytes);
    assert_non_null(host);
    ogive_error error;
    ogive_formula *formula;
    test_tensor x;
    TEST_OK(ogive_formula_create(c->text, OGIVE_TEXT, &formula, &error), error);
    for (size_t i = 0; i < 2; i++) {
        fill(host + i * (size_t)FAR * element, c->dtype, half_elements(c), random);
        device_copy(device + i * (size_t)FAR * element, host + i * (size_t)FAR * element, half);
    }
    test_tensor_init(&x, host, c->dtype, c->rank, c->shape, c->strides);
    size_t result = result_bytes(formula, &x.tensor);
    char *want = malloc(result), *got = malloc(result);
    assert_true(want && got);
    if (device_computes())
        run(formula, &x.tensor, want, result);
    x.tensor.device = cuda_device;
    x.tensor.data = device;
    check_plan(c, formula, &x.tensor);
    run(formula, &x.tensor, got, result);
    for (size_t i = 0; i < result && device_computes(); i++)
        if (got[i] != want[i])
            fail_msg("%s: byte %zu of %zu differs", c->text, i, result);
    ogive_formula_release(formula);
    device_free(device);
    free(host);
    free(want);
    free(got);
}

static void test_far_apart(void **unused)
{
#define F32                                                                                        \
    {                                                                                              \
        kDLFloat, 32, 1                                                                            \
    }
#define F16                                                                                        \
    {                                                                                              \
        kDLFloat, 16, 1                                                                            \
    }
    static const far_case cases[] = {
        {"x * sigmoid(x)", "strided", 2, {2, 1001}, {FAR, 1}, F32},
        {"x * sigmoid(x)", "strided", 3, {2, 33, 31}, {FAR, 64, 2}, F16},
        {"x + 1", "transposing", 3, {2, 70, 90}, {FAR, 1, 70}, F32},
        {"sum(x, -1)", "rows, several a warp", 3, {2, 41, 3}, {FAR, 3, 1}, F32},
        {"sum(x, -1)", "rows, a warp a row", 3, {2, 5, 1000}, {FAR, 1000, 1}, F16},
        {"softmax(x, -1)", "rows, a block a row, kept", 3, {2, 3, 5000}, {FAR, 5001, 1}, F32},
        {"softmax(x, -1)", "rows, a block a chunk", 2, {2, 40001}, {FAR, 1}, F32},
        {"sum(x, 1)", "columns", 3, {2, 50, 33}, {FAR, 33, 1}, F32},
        {"softmax(x, 1)", "columns, a block a tile", 3, {2, 5000, 7}, {FAR, 7, 1}, F32},
        {"matmul(x, transpose(x, 1, 2))", "product", 3, {2, 40, 70}, {FAR, 70, 1}, F32},
    };
    test_random random = test_random_named("far apart");
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(cases); i++)
        check_far(&cases[i], &random);
    fprintf(stderr, "%d cases\n", (int)TEST_COUNT(cases));
}

/* ---- many elements ----------------------------------------------------------------------- */

/* 2^31 + 141313 float16: on the fake device that would take hours. */
static void test_many_elements(void **unused)
{
    enum { ROWS = 46349, COLUMNS = 46337 };
    static const struct {
        const char *text, *body;
        int rank;
        int64_t shape[MOST_RANK], strides[MOST_RANK];
    } cases[] = {
        {"x * 2", "contiguous: ", 2, {ROWS, COLUMNS}, {COLUMNS, 1}},
        {"x * sigmoid(x)", "contiguous, by table: ", 2, {ROWS, COLUMNS}, {COLUMNS, 1}},
        {"x + 1", "transposing", 2, {COLUMNS, ROWS}, {1, COLUMNS}},
        {"sum(x, 1)", "rows", 2, {ROWS, COLUMNS}, {COLUMNS, 1}},
        {"sum(x, 0)", "columns", 2, {ROWS, COLUMNS}, {COLUMNS, 1}},
        {"sum(x, 0)", "rows, a block a chunk", 1, {(int64_t)ROWS * COLUMNS}, {1}},
    };
    (void)unused;
    if (device_is_fake())
        skip();
    size_t count = (size_t)ROWS * COLUMNS, bytes = count * sizeof(uint16_t);
    uint16_t *host = malloc(bytes);
    char *want = malloc(bytes), *got = malloc(bytes), *device = device_alloc(bytes);
    assert_true(host && want && got);
    uint32_t state = 1;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525 + 1013904223;
        host[i] = (uint16_t)(state >> 16 & 0xbbff); /* below 1 */
    }
    device_copy(device, host, bytes);
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        const far_case c = {.text = cases[i].text, .body = cases[i].body};
        test_tensor x;
        ogive_formula *formula;
        ogive_error error;
        TEST_OK(ogive_formula_create(c.text, OGIVE_TEXT, &formula, &error), error);
        test_tensor_init(&x, host, (DLDataType)F16, cases[i].rank, cases[i].shape,
                         cases[i].strides);
        size_t result = result_bytes(formula, &x.tensor);
        run(formula, &x.tensor, want, result);
        x.tensor.device = cuda_device;
        x.tensor.data = device;
        check_plan(&c, formula, &x.tensor);
        run(formula, &x.tensor, got, result);
        if (memcmp(got, want, result) != 0)
            fail_msg("%s (%s) differs", c.text, c.body);
        ogive_formula_release(formula);
    }
    device_free(device);
    free(host);
    free(want);
    free(got);
}

int main(void)
{
    setenv("OGIVE_SHIM_MEMORY", "0x1000000000", 1); /* the fake device's: 64 GiB */
    const char *why = device_skip();
    if (why) {
        printf("skipped: %s\n", why);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_far_apart),
        cmocka_unit_test(test_many_elements),
    };
    return TEST_RUN(tests);
}
