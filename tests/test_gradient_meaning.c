/* SPDX-License-Identifier: MIT
 *
 * test_gradient_meaning.c - what finite differences cannot see of a gradient: kinks
 * and ties by PyTorch's values; dtypes, names, zeros, graphs, messages, limits.
 */
#include "test_gradient.h"

/* ---- kinks and ties -------------------------------------------------------- */

/* At most 4 elements: x, and the gradient of the sum of formula(x), by PyTorch. */
typedef struct {
    const char *text;
    int count;
    float x[4], want[4];
} kink;

static const kink kinks[] = {
    {"relu(x)", 4, {0, -0.0f, NAN, 1}, {0, 0, 1, 1}},
    {"relu6(x)", 4, {0, 6, NAN, 3}, {0, 0, 0, 1}},
    {"hardtanh(x)", 3, {-1, 1, NAN}, {0, 0, 0}},
    {"clamp(x, -1, 1)", 4, {-1, 1, NAN, 2}, {1, 1, 0, 0}},
    {"clamp(x, min=-1)", 3, {-1, -2, NAN}, {1, 0, 0}},
    {"clamp(x, max=-1)", 3, {-1, 2, INFINITY}, {1, 0, 0}},
    {"clamp(x, 2, 1)", 3, {1, 2, 1.5f}, {0, 0, 0}},
    {"relu6(x) + clamp(x, 0, 6)", 2, {0, 6}, {1, 1}},
    {"hardswish(x)", 4, {-3, 3, 0, 4}, {0, 1, 0.5f, 1}},
    {"hardswish(x)", 3, {INFINITY, -INFINITY, -4}, {1, 0, 0}},
    {"hardsigmoid(x)", 4, {-3, 3, NAN, 1}, {0, 0, 0, 1.0f / 6}},
    {"leaky_relu(x)", 3, {0, NAN, -1}, {0.01f, 0.01f, 0.01f}},
    {"leaky_relu(x, -0.5)", 3, {0, 2, -1}, {-0.5f, 1, -0.5f}},
    {"elu(x)", 4, {0, NAN, -1, 100}, {1, NAN, 0.36787945f, 1}},
    {"selu(x)", 4, {0, NAN, -1, 1}, {1.7580993f, NAN, 0.64676863f, 1.0507010f}},
    {"celu(x, 2)", 3, {0, NAN, -1}, {1, NAN, 0.60653067f}},
    {"softplus(x, 1, 2)", 4, {2, 2.5f, NAN, -INFINITY}, {0.88079709f, 1, NAN, 0}},
    {"logsigmoid(x)", 4, {0, NAN, INFINITY, -INFINITY}, {0.5f, NAN, 0, 1}},
    {"softsign(x)", 2, {0, 1}, {1, 0.25f}},
    {"softshrink(x)", 4, {0.5f, -0.5f, NAN, 1}, {0, 0, 0, 1}},
    {"hardshrink(x)", 4, {0.5f, -0.5f, NAN, 1}, {0, 0, 0, 1}},
    {"threshold(x, 0.5, 2)", 3, {0.5f, NAN, 1}, {0, 1, 1}},
    {"abs(x)", 4, {0, NAN, -1, -0.0f}, {0, 0, -1, 0}},
    {"sqrt(x)", 4, {0, -1, NAN, 4}, {INFINITY, NAN, NAN, 0.25f}},
    {"rsqrt(x)", 2, {0, 4}, {-INFINITY, -0.0625f}},
    {"log(x)", 3, {0, -0.0f, 2}, {INFINITY, -INFINITY, 0.5f}},
    {"reciprocal(x)", 3, {0, -0.0f, 2}, {-INFINITY, -INFINITY, -0.25f}},
    {"x ** 0", 3, {0, 1, NAN}, {0, 0, 0}},
    {"x ** 1.5", 3, {0, 1, -1}, {0, 1.5f, NAN}},
    {"x ** 0.5", 2, {0, 1}, {INFINITY, 0.5f}},
    {"amax(x)", 3, {1, 2, 2}, {0, 0.5f, 0.5f}},
    {"amax(x, 0)", 3, {1, NAN, 2}, {NAN, NAN, NAN}},
    {"amax(x)", 3, {INFINITY, INFINITY, 2}, {0.5f, 0.5f, 0}},
    {"amin(x)", 4, {1, 1, 2, 1}, {1.0f / 3, 1.0f / 3, 0, 1.0f / 3}},
    {"amax(x, 0, keepdim=true)", 4, {0, -0.0f, 0, -1}, {1.0f / 3, 1.0f / 3, 1.0f / 3, 0}},
    {"logsumexp(x, 0)", 2, {-INFINITY, -INFINITY}, {NAN, NAN}},
    {"logsumexp(x, 0)", 2, {INFINITY, 1}, {NAN, 0}},
    {"logsumexp(x, 0)", 2, {-INFINITY, 1}, {0, 1}},
    {"std(x)", 3, {1, 1, 1}, {0, 0, 0}},
    {"var(x)", 1, {1}, {NAN}},
    {"maximum(x, 1)", 3, {1, 2, 0}, {0.5f, 1, 0}},
    {"maximum(x, nan)", 2, {1, 2}, {1, 1}},
    {"minimum(x, 1)", 4, {1, 2, 0, NAN}, {0.5f, 0, 1, 1}},
    {"maximum(x, x)", 2, {1, 2}, {1, 1}},
    {"where(x > 0, x, x * 2)", 2, {0, NAN}, {2, 2}},
    {"x @ x", 3, {1, 2, 3}, {2, 4, 6}},
};

/* Runs a formula of x and grad in float32. */
static void run_float32(ogive_formula *formula, const float *x, int64_t count, float grad,
                        int64_t grad_count, float *out)
{
    float grads[4] = {grad, grad, grad, grad};
    test_tensor tensors[3];
    const DLTensor *inputs[] = {
        test_tensor_init(&tensors[0], (void *)x, test_float32, 1, &count, NULL),
        test_tensor_init(&tensors[1], grads, test_float32, grad_count >= 0, &grad_count, NULL)};
    const DLTensor *outputs[] = {test_tensor_init(&tensors[2], out, test_float32, 1, &count, NULL)};
    ogive_error error;
    if (ogive_run(formula, inputs, 2, outputs, 1, NULL, &error))
        fail_msg("%s: %s", formula->graph.text, error.message);
}

static void test_kinks(void **state)
{
    (void)state;
    for (size_t k = 0; k < TEST_COUNT(kinks); k++) {
        const kink *at = &kinks[k];
        ogive_formula *formula = make_formula(at->text);
        ogive_formula *gradient = make_gradient(formula, (const char *[]){"x"}, 1);
        /* The gradient has the result's shape. */
        test_tensor tensor;
        int64_t count = at->count;
        const DLTensor *input = test_tensor_init(&tensor, NULL, test_float32, 1, &count, NULL);
        ogive_plan *plan;
        ogive_error error;
        TEST_OK(ogive_plan_create(formula, &input, 1, NULL, 0, NULL, &plan, &error), error);
        const DLTensor *result = ogive_plan_result(plan, 0);
        int64_t grad_count = result->ndim ? result->shape[0] : -1;
        float got[4];
        run_float32(gradient, at->x, count, 1, grad_count, got);
        for (int i = 0; i < at->count; i++) {
            float want = at->want[i];
            if (isnan(want) ? !isnan(got[i])
                            : !(got[i] == want || fabsf(got[i] - want) < 2e-6f * fabsf(want)))
                fail_msg("%s at %g: got %g, PyTorch %g", at->text, at->x[i], got[i], want);
        }
        ogive_plan_release(plan);
        ogive_formula_release(gradient);
        ogive_formula_release(formula);
    }
}

/* ---- dtypes ---------------------------------------------------------------- */

/* Each gradient has its input's dtype, whatever the types met on the way. */
static void test_dtypes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        DLDataType types[4]; /* x, y, grad; wanted of the gradient by x */
    } cases[] = {
        {"x * y", {{kDLFloat, 16, 1}, {kDLFloat, 32, 1}, {kDLFloat, 32, 1}}},
        {"x + y", {{kDLFloat, 64, 1}, {kDLFloat, 16, 1}, {kDLFloat, 32, 1}}},
        {"x * y", {{kDLFloat, 16, 1}, {kDLBfloat, 16, 1}, {kDLFloat, 64, 1}}},
        {"float16(x) * y", {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLFloat, 16, 1}}},
        {"float64(x) * float32(y)", {{kDLFloat, 32, 1}, {kDLFloat, 64, 1}, {kDLFloat, 32, 1}}},
        {"amax(x, 0) + sum(y)", {{kDLFloat, 16, 1}, {kDLFloat, 16, 1}, {kDLFloat, 16, 1}}},
        {"where(x > y, x, y)", {{kDLBfloat, 16, 1}, {kDLFloat, 64, 1}, {kDLFloat, 64, 1}}},
        {"layer_norm(x, 3, y)", {{kDLFloat, 16, 1}, {kDLFloat, 32, 1}, {kDLFloat, 16, 1}}},
        {"float32(x) @ float32(y)", {{kDLFloat, 16, 1}, {kDLFloat, 64, 1}, {kDLFloat, 32, 1}}},
    };
    for (size_t c = 0; c < TEST_COUNT(cases); c++) {
        ogive_formula *formula = make_formula(cases[c].text);
        ogive_formula *gradient = make_gradient(formula, (const char *[]){"y", "x"}, 2);
        test_tensor tensors[3];
        const DLTensor *inputs[3];
        ogive_plan *plan;
        ogive_error error;
        int64_t size = 3;
        for (int i = 0; i < 3; i++)
            inputs[i] = test_tensor_init(&tensors[i], NULL, cases[c].types[i], 1, &size, NULL);
        TEST_OK(ogive_plan_create(formula, inputs, 2, NULL, 0, NULL, &plan, &error), error);
        tensors[2].tensor.ndim = ogive_plan_result(plan, 0)->ndim;
        ogive_plan_release(plan);
        if (ogive_plan_create(gradient, inputs, 3, NULL, 0, NULL, &plan, &error))
            fail_msg("%s: %s", cases[c].text, error.message);
        for (size_t r = 0; r < 2; r++) {
            const DLTensor *result = ogive_plan_result(plan, r);
            assert_memory_equal(&result->dtype, &inputs[1 - r]->dtype, sizeof result->dtype);
            assert_int_equal(result->ndim, 1);
            assert_int_equal(result->shape[0], 3);
        }
        ogive_plan_release(plan);
        ogive_formula_release(gradient);
        ogive_formula_release(formula);
    }
}

/* A cast to a half type rounds the value on the way in and nothing on the way out:
 * the gradient is that of the rounded value. */
static void test_cast(void **state)
{
    (void)state;
    ogive_formula *formula = make_formula("square(float16(x))");
    ogive_formula *gradient = make_gradient(formula, (const char *[]){"x"}, 1);
    const float x[] = {0.1f, 1.0009765625f, 3};
    float got[3];
    run_float32(gradient, x, 3, 0.3f, 3, got);
    const float rounded[] = {0x1.998p-4f, 1.0009765625f, 3};
    for (int i = 0; i < 3; i++)
        assert_true(fabsf(got[i] - 2 * 0.3f * rounded[i]) < 1e-6f);
    ogive_formula_release(gradient);
    ogive_formula_release(formula);
}

/* ---- names, zeros, messages ------------------------------------------------ */

static void expect_names(const ogive_formula *formula, const char *want)
{
    char names[256] = "";
    for (size_t i = 0; i < ogive_formula_input_count(formula); i++)
        strcat(strcat(names, i ? " " : ""), ogive_formula_input_name(formula, i));
    assert_string_equal(names, want);
    assert_null(ogive_formula_input_name(formula, ogive_formula_input_count(formula)));
}

static void test_names(void **state)
{
    (void)state;
    ogive_formula *formula = make_formula("x * fc.weight + b");
    ogive_formula *first = make_gradient(formula, (const char *[]){"fc.weight", "x"}, 2);
    expect_names(first, "x fc.weight b grad");
    assert_int_equal(ogive_formula_result_count(first), 2);
    ogive_formula *second = make_gradient(first, (const char *[]){"x", "grad"}, 2);
    expect_names(second, "x fc.weight b grad grad2.0 grad2.1");
    ogive_formula *third = make_gradient(second, (const char *[]){"grad2.1"}, 1);
    expect_names(third, "x fc.weight b grad grad2.0 grad2.1 grad3.0 grad3.1");
    ogive_formula_release(formula);
    ogive_formula_release(first);
    ogive_formula_release(second);
    ogive_formula_release(third);

    formula = make_formula("x * 2, x + y, y");
    first = make_gradient(formula, (const char *[]){"y"}, 1);
    expect_names(first, "x y grad.0 grad.1 grad.2");
    ogive_formula_release(first);
    ogive_formula_release(formula);

    formula = make_formula("grad * gradient");
    first = make_gradient(formula, (const char *[]){"grad"}, 1);
    expect_names(first, "grad gradient grad2");
    ogive_formula_release(first);
    ogive_formula_release(formula);
}

static char *print_gradient(const char *text, const char *name)
{
    ogive_formula *formula = make_formula(text);
    ogive_formula *gradient = make_gradient(formula, &name, 1);
    og_text printed = {0};
    og_graph_print(&gradient->graph, &printed);
    ogive_formula_release(gradient);
    ogive_formula_release(formula);
    return printed.data;
}

static void test_zero(void **state)
{
    (void)state;
    static const char *const texts[] = {"x + 0*y", "y0 = y; x", "x0 = x; where(y > 0, x, 1)"};
    for (size_t i = 0; i < TEST_COUNT(texts); i++) {
        ogive_formula *formula = make_formula(texts[i]);
        ogive_formula *gradient = make_gradient(formula, (const char *[]){"y"}, 1);
        array inputs[3], got[1];
        test_random random = test_random_named("zero");
        const char *shapes = i == 1 ? "4 3 3" : "3 4x1 4x3";
        for (int n = 0; n < 3; n++)
            shapes = read_array(shapes, -1, 1, &random, &inputs[n]);
        assert_int_equal(evaluate(gradient, inputs, got), 1);
        assert_int_equal(got[0].count, 4);
        for (int64_t e = 0; e < 4; e++)
            assert_true(got[0].data[e] == 0);
        free_arrays(got, 1);
        free_arrays(inputs, 3);
        ogive_formula_release(gradient);
        ogive_formula_release(formula);
    }
    char *text = print_gradient("y0 = y; x", "y");
    assert_string_equal(text, "n0 = input y\nn1 = input x\nn2 = input grad\n"
                              "n3 = full_like n0 0\nresults n3\n");
    free(text);
}

/* Nothing is made that no result needs. */
static void test_graphs(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"x * y", "x",
         "n0 = input x\nn1 = input y\nn2 = mul n0 n1\nn3 = input grad\n"
         "n4 = cast_like n3 n2 [mul]\nn5 = mul n4 n1\nn6 = sum_like n5 n0 [mul]\n"
         "n7 = cast_like n6 n0 [mul]\nresults n7\n"},
        {"sum(exp(x), 1)", "x",
         "n0 = input x\nn1 = exp n0\nn2 = sum n1 dim=(1)\nn3 = input grad\n"
         "n4 = cast_like n3 n2 [sum]\nn5 = expand n4 n1 dim=(1) [sum]\n"
         "n6 = mul n5 n1 [exp]\nresults n6\n"},
        {"relu6(x)", "x",
         "n0 = input x\nn1 = clamp n0 0 6 [relu6]\nn2 = input grad\n"
         "n3 = cast_like n2 n1 [relu6]\nn4 = number 0\nn5 = gt n0 n4 [relu6]\nn6 = number 6\n"
         "n7 = lt n0 n6 [relu6]\nn8 = where n7 n3 n4 [relu6]\nn9 = where n5 n8 n4 [relu6]\n"
         "results n9\n"},
        {"linear(x, w)", "w",
         "n0 = input x\nn1 = input w\nn2 = linear_product n0 n1 [linear]\nn3 = input grad\n"
         "n4 = cast_like n3 n2 [linear]\nn5 = row n1 [linear]\n"
         "n6 = linear_product n0 n5 [linear]\nn7 = reshape_like n4 n6 [linear]\n"
         "n8 = row n7 [linear]\nn9 = row n0 [linear]\nn10 = product_t n8 n9 n5 [linear]\n"
         "n11 = reshape_like n10 n1 [linear]\nresults n11\n"},
    };
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        char *text = print_gradient(cases[i][0], cases[i][1]);
        assert_string_equal(text, cases[i][2]);
        free(text);
    }
}

static void test_errors(void **state)
{
    (void)state;
    ogive_formula *formula = make_formula("x * fc.weight + bias"), *out = formula;
    ogive_error error;
    const char *const *none = NULL;
    TEST_FAILS(ogive_formula_gradient(formula, (const char *[]){"fc.wieght"}, 1, &out, &error),
               OGIVE_ARGUMENT, error,
               "the formula has no input 'fc.wieght'; did you mean 'fc.weight'?");
    assert_null(out);
    TEST_FAILS(ogive_formula_gradient(formula, (const char *[]){"q"}, 1, &out, &error),
               OGIVE_ARGUMENT, error, "the formula has no input 'q'; its inputs are x, ...");
    TEST_FAILS(ogive_formula_gradient(formula, (const char *[]){"x", "bias", "x"}, 3, &out, &error),
               OGIVE_ARGUMENT, error, "the name 'x' is given twice");
    TEST_FAILS(ogive_formula_gradient(formula, (const char *[]){NULL}, 1, &out, &error),
               OGIVE_ARGUMENT, error, "a name is NULL");
    TEST_FAILS(ogive_formula_gradient(formula, (const char *[]){"x"}, 0, &out, &error),
               OGIVE_ARGUMENT, error, "no name");
    TEST_FAILS(ogive_formula_gradient(formula, none, 1, &out, &error), OGIVE_ARGUMENT, error,
               "no name");
    TEST_FAILS(ogive_formula_gradient(formula, (const char *[]){"x"}, 65, &out, &error),
               OGIVE_ARGUMENT, error, "65 names are given, at most 64 are possible");
    TEST_FAILS(ogive_formula_gradient(NULL, (const char *[]){"x"}, 1, &out, &error), OGIVE_ARGUMENT,
               error, "formula is NULL");
    TEST_FAILS(ogive_formula_gradient(formula, (const char *[]){"x"}, 1, NULL, &error),
               OGIVE_ARGUMENT, error, "out is NULL");
    assert_int_equal(ogive_formula_gradient(formula, (const char *[]){"q"}, 1, &out, NULL),
                     OGIVE_ARGUMENT);

    /* A gradient of another shape than the result's. */
    ogive_formula *gradient = make_gradient(formula, (const char *[]){"x"}, 1);
    test_tensor tensors[4];
    const DLTensor *inputs[4];
    ogive_plan *plan;
    for (int64_t i = 0; i < 4; i++)
        inputs[i] =
            test_tensor_init(&tensors[i], NULL, test_float32, 1, (int64_t[]){i == 3 ? 2 : 5}, NULL);
    TEST_FAILS(ogive_plan_create(gradient, inputs, 4, NULL, 0, NULL, &plan, &error), OGIVE_SHAPE,
               error, "grad has shape (2,), but the result whose gradient it is has shape (5,)");
    assert_int_equal(error.offset, 14);
    /* What is wrong with the formula itself is still said as before. */
    inputs[1] = test_tensor_init(&tensors[1], NULL, test_float32, 1, (int64_t[]){4}, NULL);
    TEST_FAILS(ogive_plan_create(gradient, inputs, 4, NULL, 0, NULL, &plan, &error), OGIVE_SHAPE,
               error, "*: shapes (5,) and (4,) do not broadcast");
    assert_int_equal(error.offset, 2);
    ogive_formula_release(gradient);
    ogive_formula_release(formula);
}

static void test_size_limit(void **state)
{
    (void)state;
    og_text text = {0};
    og_text_add(&text, "a0 = x;");
    for (int i = 0; i < 20000; i++)
        og_text_add(&text, "a%d = a%d * exp(a%d);", i + 1, i, i);
    og_text_add(&text, "a20000");
    ogive_formula *formula = make_formula(text.data), *gradient;
    ogive_error error;
    TEST_FAILS(ogive_formula_gradient(formula, (const char *[]){"x"}, 1, &gradient, &error),
               OGIVE_UNSUPPORTED, error, "the gradient is too large: more than 65535 nodes");
    assert_null(gradient);
    ogive_formula_release(formula);
    og_text_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinks),  cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_cast),   cmocka_unit_test(test_names),
        cmocka_unit_test(test_zero),   cmocka_unit_test(test_graphs),
        cmocka_unit_test(test_errors), cmocka_unit_test(test_size_limit)};
    return TEST_RUN(tests);
}
