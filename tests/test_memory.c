/* SPDX-License-Identifier: MIT
 *
 * test_memory.c - every allocation fails once: for N = 1, 2, ... the Nth one of a
 * scenario returns NULL. The status is then OGIVE_MEMORY (or the scenario worked
 * without), *out is NULL, nothing leaks, and the formula works afterwards.
 */
#include "test.h"
#include "test_failing_memory.h"

#include <pthread.h>

/* ---- what else fails ---------------------------------------------------------------- */

void *__real_aligned_alloc(size_t alignment, size_t bytes);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *argument);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *argument);

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    return fails() ? NULL : count_block(__real_aligned_alloc(alignment, bytes));
}

static bool no_threads;

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *argument)
{
    return no_threads ? 11 : __real_pthread_create(thread, attributes, start, argument);
}

/* ---- scenarios --------------------------------------------------------------------- */

enum { ROWS = 6, COLS = 5000 };

typedef struct {
    const char *text;
    int inputs; /* x (ROWS, COLS), y (COLS), the others (1) */
    enum {
        PLAIN,
        GRADIENT, /* by x; its last input, grad, is x once more */
        PART      /* with casts, without the second result */
    } made;
} memory_formula;

/* Some of workspace, some large, one with many names, products, gradients. */
static const memory_formula formulas[] = {
    {"x * sigmoid(x) + y", 2, PLAIN},
    {"softmax(x, dim=1)", 1, PLAIN},
    {"m = mean(x, dim=0); layer_norm(x - m, (5000,), y) * sum(exp(x - amax(x))) + m", 2, PLAIN},
    {"transpose(transpose(x, 0, 1) - amax(x, dim=1), 0, 1) * var(x)", 1, PLAIN},
    {"x + a0*a1*a2*a3*a4*a5*a6*a7*a8*a9*b0*b1*b2*b3*b4*b5*b6*b7*b8*b9*c0*c1*c2*c3*c4*c5*c6*c7*c8*c9"
     "*d0*d1*d2*d3*d4*d5*d6*d7*d8*d9",
     41, PLAIN},
    {"g = x @ t(x); silu(g @ x) * (g @ (x + y)) - sum(linear(x, y))", 2, PLAIN},
    {"n = narrow(x, 1, 0, 100); t(softmax(t(x) @ n, 1) @ t(n))", 1, PLAIN}, /* in slabs */
    {"tanh(sigmoid(x) * y)", 3, GRADIENT},
    {"g = x @ t(x); silu(g @ x) * softmax(g @ (x + y), dim=1)", 3, GRADIENT},
    {"exp(x) + y, sum(z)", 2, PART},
};

static struct {
    float *x, *y, *want;
    float ones[64];
    test_tensor tensors[64];
    const DLTensor *inputs[64], *outputs[1];
    float *result;
    test_tensor output;
} data;

static void prepare(const memory_formula *of)
{
    data.x = __real_malloc(ROWS * COLS * sizeof *data.x);
    data.y = __real_malloc(COLS * sizeof *data.y);
    data.want = __real_malloc(ROWS * COLS * sizeof *data.want);
    data.result = __real_malloc(ROWS * COLS * sizeof *data.result);
    for (int i = 0; i < ROWS * COLS; i++)
        data.x[i] = (float)(i * 37 % 1001) / 500 - 1;
    for (int i = 0; i < COLS; i++)
        data.y[i] = (float)i / COLS;
    data.inputs[0] =
        test_tensor_init(&data.tensors[0], data.x, test_float32, 2, (int64_t[]){ROWS, COLS}, NULL);
    data.inputs[1] =
        test_tensor_init(&data.tensors[1], data.y, test_float32, 1, (int64_t[]){COLS}, NULL);
    if (of->made == GRADIENT)
        data.inputs[of->inputs - 1] = data.inputs[0];
    for (int i = of->inputs > 3 ? 1 : 3; i < of->inputs; i++) {
        data.ones[i] = 1;
        data.inputs[i] = test_tensor_init(&data.tensors[i], &data.ones[i], test_float32, 1,
                                          (int64_t[]){1}, NULL);
    }
    data.outputs[0] =
        test_tensor_init(&data.output, data.result, test_float32, 2, (int64_t[]){ROWS, COLS}, NULL);
    memset(data.result, 0xff, ROWS * COLS * sizeof *data.result);
}

static void clean_up(void)
{
    __real_free(data.x);
    __real_free(data.y);
    __real_free(data.want);
    __real_free(data.result);
}

static void check_result(const char *text)
{
    for (int i = 0; i < ROWS * COLS; i++)
        if (!test_same_f32(data.result[i], data.want[i]))
            fail_msg("%s: element %d is %s, before %s", text, i, test_text_f32(data.result[i]),
                     test_text_f32(data.want[i]));
    memset(data.result, 0xff, ROWS * COLS * sizeof *data.result);
}

static void check_failure(ogive_status status, const ogive_error *error, const void *out)
{
    assert_int_equal(status, OGIVE_MEMORY);
    assert_int_equal(error->status, OGIVE_MEMORY);
    assert_true(error->message[0] != 0);
    assert_null(out);
}

static ogive_status make_formula(const memory_formula *of, ogive_formula **out, ogive_error *error)
{
    ogive_formula *f;
    ogive_status status = ogive_formula_create(of->text, OGIVE_TEXT, &f, error);
    *out = f;
    if (status == OGIVE_OK && of->made == GRADIENT) {
        status = ogive_formula_gradient(f, (const char *[]){"x"}, 1, out, error);
        ogive_formula_release(f);
    }
    if (status == OGIVE_OK && of->made == PART) {
        status = ogive_formula_make(f, (const char *[]){"exp=float16"}, 1, out, error);
        ogive_formula_release(f);
        f = *out;
        if (status == OGIVE_OK)
            status = ogive_formula_make(f, (const char *[]){"0"}, 1, out, error);
        ogive_formula_release(f);
    }
    if (status != OGIVE_OK)
        check_failure(status, error, *out);
    return status;
}

/* Everything, by ogive_run(): twice, so that what is kept is used too. */
static ogive_status run_all(const memory_formula *of, ogive_error *error, bool *ran)
{
    ogive_formula *f;
    ogive_status status = make_formula(of, &f, error);
    *ran = false;
    if (status != OGIVE_OK)
        return status;
    for (int again = 0; again < 2 && status == OGIVE_OK; again++) {
        status = ogive_run(f, data.inputs, (size_t)of->inputs, data.outputs, 1, NULL, error);
        *ran |= status == OGIVE_OK;
    }
    if (status != OGIVE_OK) {
        check_failure(status, error, NULL);
        /* Only one fails: the same formula works right after. */
        ogive_error later;
        TEST_OK(ogive_run(f, data.inputs, (size_t)of->inputs, data.outputs, 1, NULL, &later),
                later);
        *ran = true;
    }
    ogive_formula_release(f);
    return status;
}

/* The same by a plan, with a text made by explain. */
static ogive_status run_plan(const memory_formula *of, ogive_error *error, bool *ran)
{
    ogive_formula *f;
    ogive_plan *plan;
    ogive_status status = make_formula(of, &f, error);
    *ran = false;
    if (status != OGIVE_OK)
        return status;
    status =
        ogive_plan_create(f, data.inputs, (size_t)of->inputs, data.outputs, 1, NULL, &plan, error);
    if (status != OGIVE_OK) {
        check_failure(status, error, plan);
        ogive_formula_release(f);
        return status;
    }
    char text[200];
    ogive_plan_explain(plan, text, sizeof text); /* may be cut, never fails */
    memory.counting = false;
    size_t bytes = (ogive_plan_workspace(plan) + 64) & ~(size_t)63;
    void *workspace = __real_aligned_alloc(64, bytes);
    const void *inputs[64];
    for (int i = 0; i < of->inputs; i++)
        inputs[i] = data.inputs[i]->data;
    memory.counting = true;
    int64_t before = memory.calls;
    status = ogive_plan_run(plan, inputs, (void *[]){data.result}, workspace, NULL, error);
    assert_int_equal(memory.calls, before); /* running allocates nothing */
    *ran = status == OGIVE_OK;
    memory.counting = false;
    __real_free(workspace);
    memory.counting = true;
    ogive_plan_release(plan);
    ogive_formula_release(f);
    return status;
}

/* Every stage of every division; then the formula, to have a result. */
static ogive_status run_divided(const memory_formula *of, ogive_error *error, bool *ran)
{
    ogive_formula *f;
    ogive_status status = make_formula(of, &f, error);
    size_t count = 0, inputs = (size_t)of->inputs;
    *ran = false;
    if (status != OGIVE_OK)
        return status;
    status = ogive_formula_division_count(f, data.inputs, inputs, &count, error);
    for (size_t index = 0; index < count && status == OGIVE_OK; index++) {
        ogive_division d = {.size = sizeof d};
        ogive_placement of_inputs[64], of_results[1];
        status =
            ogive_formula_division(f, data.inputs, inputs, index, &d, of_inputs, of_results, error);
        for (int32_t stage = 0; stage < d.stages && status == OGIVE_OK; stage++) {
            ogive_formula *part;
            status =
                ogive_formula_stage(f, data.inputs, inputs, index, (size_t)stage, &part, error);
            ogive_formula_release(part);
        }
    }
    if (status != OGIVE_OK)
        check_failure(status, error, NULL);
    ogive_formula_release(f);
    return status;
}

typedef ogive_status (*scenario)(const memory_formula *of, ogive_error *error, bool *ran);

static void check_scenario(scenario run)
{
    for (size_t i = 0; i < TEST_COUNT(formulas); i++) {
        const memory_formula *of = &formulas[i];
        ogive_error error;
        bool ran;
        prepare(of);
        memory.counting = false;
        TEST_OK(run(of, &error, &ran), error); /* and starts the library's threads */
        memcpy(data.want, data.result, ROWS * COLS * sizeof *data.want);
        int64_t failed = 0;
        for (int64_t n = 1;; n++) {
            memory.calls = memory.live = 0;
            memory.fail_at = n;
            memory.counting = true;
            ogive_status status = run(of, &error, &ran);
            memory.counting = false;
            if (memory.live != 0)
                fail_msg("%s: allocation %" PRId64 " fails: %" PRId64 " leaked", of->text, n,
                         memory.live);
            assert_true(status == OGIVE_OK || status == OGIVE_MEMORY);
            if (ran)
                check_result(of->text);
            failed += status != OGIVE_OK;
            if (memory.calls < n) /* there was no Nth */
                break;
        }
        assert_true(failed >= 3);
        clean_up();
    }
}

static void test_run(void **state)
{
    (void)state;
    check_scenario(run_all);
}

static void test_plan(void **state)
{
    (void)state;
    check_scenario(run_plan);
}

static void test_divided(void **state)
{
    (void)state;
    check_scenario(run_divided);
}

/* A formula that is refused leaks nothing either, wherever that is found out. */
static void test_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "x +",
        "sigmod(x)",
        "x + (y * (z",
        "a = x; a = y; a",
        "sum(x, dim=(1, 1))",
        "x + y[",
        "clamp(x)",
        "where(x, y, z)",
        "layer_norm(x, (3,), y, z, w, v, u, t)",
        "v = a*b*c*d*e; v + softmax(v, dim=1) + undefined_function(v)",
    };
    for (size_t i = 0; i < TEST_COUNT(texts); i++)
        for (int64_t n = 0; n < 40; n++) {
            ogive_formula *f;
            ogive_error error;
            memory.calls = memory.live = 0;
            memory.fail_at = n;
            memory.counting = true;
            ogive_status status = ogive_formula_create(texts[i], OGIVE_TEXT, &f, &error);
            if (status == OGIVE_OK)
                ogive_formula_release(f);
            memory.counting = false;
            assert_int_equal(memory.live, 0);
            assert_true(status == OGIVE_OK || status == OGIVE_FORMULA ||
                        (status == OGIVE_MEMORY && n > 0));
        }
}

/* No thread can be made: the caller does the work alone, with the same bits. */
static void test_no_threads(void **state)
{
    (void)state;
    enum { N = 400000 };
    ogive_formula *f;
    ogive_error error;
    float *x = __real_malloc(N * sizeof *x), *y[2];
    for (int i = 0; i < N; i++)
        x[i] = (float)(i % 1000) / 100;
    TEST_OK(ogive_formula_create("exp(tanh(x)) - 1", OGIVE_TEXT, &f, &error), error);
    for (int way = 0; way < 2; way++) {
        y[way] = __real_malloc(N * sizeof *x);
        no_threads = way == 0;
        ogive_options options = {.size = sizeof options, .threads = 3};
        const DLTensor *in[] = {TEST_TENSOR(x, test_float32, N)};
        const DLTensor *out[] = {TEST_TENSOR(y[way], test_float32, N)};
        TEST_OK(ogive_run(f, in, 1, out, 1, &options, &error), error);
    }
    no_threads = false;
    assert_memory_equal(y[0], y[1], N * sizeof *x);
    __real_free(x);
    __real_free(y[0]);
    __real_free(y[1]);
    ogive_formula_release(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_threads), /* first: before there are any */
        cmocka_unit_test(test_run),        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_divided),    cmocka_unit_test(test_refused),
    };
    return TEST_RUN(tests);
}
