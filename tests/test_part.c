/* SPDX-License-Identifier: MIT
 *
 * test_part.c - what steps make of a formula: parts of it, and the same with casts. Graphs by
 * their text; values by putting parts together again.
 */
#include "test_gradient.h"

/* step: items, with commas between them. */
static ogive_status make_step(const ogive_formula *formula, const char *step, ogive_formula **out,
                              ogive_error *error)
{
    char copy[256];
    const char *items[80] = {copy};
    size_t count = 1;
    snprintf(copy, sizeof copy, "%s", step);
    for (char *at = copy; (at = strchr(at, ',')); items[count++] = at)
        *at++ = '\0';
    return ogive_formula_make(formula, items, count, out, error);
}

static ogive_formula *make(const ogive_formula *formula, const char *step)
{
    ogive_formula *made;
    ogive_error error;
    if (make_step(formula, step, &made, &error))
        fail_msg("%s, %s: %s", formula->graph.text, step, error.message);
    return made;
}

/* A formula's text, a step, and the graph that it makes of it. */
static void check_graphs(const char *const (*cases)[3], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ogive_formula *formula = make_formula(cases[i][0]);
        ogive_formula *made = make(formula, cases[i][1]);
        og_text text = {0};
        og_graph_print(&made->graph, &text);
        if (strcmp(text.data, cases[i][2]) != 0)
            fail_msg("%s, %s: got\n%s, want\n%s", cases[i][0], cases[i][1], text.data, cases[i][2]);
        og_text_free(&text);
        ogive_formula_release(made);
        ogive_formula_release(formula);
    }
}

/* ---- parts ----------------------------------------------------------------- */

static void test_graphs(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"z = linear(x, w, b); z * tanh(z)", "0,1",
         "n0 = input x\nn1 = input w\nn2 = input b\nn3 = linear_product n0 n1 [linear]\n"
         "n4 = add n3 n2 [linear]\nn5 = tanh n4\nn6 = mul n4 n5\nresults n6 n4\n"},
        {"z = linear(x, w, b); z * tanh(z)", "0,<1",
         "n0 = input value.0\nn1 = tanh n0\nn2 = mul n0 n1\nresults n2\n"},
        /* Values in order; the second product needs the first, and a result is given. */
        {"z = x @ w; a * sum(matmul(z, v)), z", "4,<1",
         "n0 = input value.0\nn1 = input v\nn2 = matmul n0 n1\nresults n2\n"},
        {"z = x @ w; a * sum(matmul(z, v)), z", "1,0,<2,<4",
         "n0 = input value.0\nn1 = input a\nn2 = input value.1\nn3 = sum n2 dim=all\n"
         "n4 = mul n1 n3\nresults n0 n4\n"},
        /* A product's left factor; one that is an input itself. */
        {"linear(exp(x), w) @ v", "2", "n0 = input x\nn1 = exp n0\nresults n1\n"},
        {"linear(exp(x), w) @ v", "4",
         "n0 = input x\nn1 = exp n0\nn2 = input w\nn3 = linear_product n1 n2 [linear]\n"
         "results n3\n"},
        {"linear(x, w, b)", "2", "n0 = input x\nresults n0\n"},
        /* One product with and without its bias is two values. */
        {"linear(x, w) * linear(x, w, b)", "0,<1",
         "n0 = input value.0\nn1 = input b\nn2 = add n0 n1 [linear]\nn3 = mul n0 n2\n"
         "results n3\n"},
        /* Names that are there; ends that meet. */
        {"x @ w * value + value2.0", "0,<1",
         "n0 = input value3.0\nn1 = input value\nn2 = mul n0 n1\nn3 = input value2.0\n"
         "n4 = add n2 n3\nresults n4\n"},
        {"x @ w", "0,<0", "n0 = input value.0\nresults n0\n"},
        /* Checks stay with what they check. */
        {"layer_norm(linear(x, w), 4, a) * layer_norm(y, 4, b)", "0,<1",
         "n0 = input value.0\nn1 = input a\n"
         "n2 = sum n0 dim=(-1) sizes=(4) keepdim [layer_norm]\n"
         "n3 = count n0 dim=(-1) sizes=(4) 0 [layer_norm]\nn4 = div n2 n3 [layer_norm]\n"
         "n5 = sub n0 n4 [layer_norm]\nn6 = mul n5 n5 [layer_norm]\n"
         "n7 = sum n6 dim=(-1) sizes=(4) keepdim [layer_norm]\n"
         "n8 = square_scale n7 1e-05 [layer_norm]\nn9 = scaled_square n5 n8 [layer_norm]\n"
         "n10 = sum n9 dim=(-1) sizes=(4) keepdim [layer_norm]\n"
         "n11 = rescaled n7 n10 1e-05 [layer_norm]\nn12 = div n11 n3 [layer_norm]\n"
         "n13 = scaled_rsqrt n12 n8 1e-05 [layer_norm]\nn14 = mul n5 n13 [layer_norm]\n"
         "n15 = mul n14 n1 [layer_norm]\nn16 = input y\nn17 = input b\n"
         "n18 = sum n16 dim=(-1) sizes=(4) keepdim [layer_norm]\n"
         "n19 = count n16 dim=(-1) sizes=(4) 0 [layer_norm]\nn20 = div n18 n19 [layer_norm]\n"
         "n21 = sub n16 n20 [layer_norm]\nn22 = mul n21 n21 [layer_norm]\n"
         "n23 = sum n22 dim=(-1) sizes=(4) keepdim [layer_norm]\n"
         "n24 = square_scale n23 1e-05 [layer_norm]\nn25 = scaled_square n21 n24 [layer_norm]\n"
         "n26 = sum n25 dim=(-1) sizes=(4) keepdim [layer_norm]\n"
         "n27 = rescaled n23 n26 1e-05 [layer_norm]\nn28 = div n27 n19 [layer_norm]\n"
         "n29 = scaled_rsqrt n28 n24 1e-05 [layer_norm]\nn30 = mul n21 n29 [layer_norm]\n"
         "n31 = mul n30 n17 [layer_norm]\nn32 = mul n15 n31\ncheck weight n1 (4,)\n"
         "check weight n17 (4,)\nresults n32\n"},
        {"layer_norm(x, 4, a) @ w, y", "1", "n0 = input y\nresults n0\n"},
    };
    check_graphs(cases, TEST_COUNT(cases));
}

static void test_inputs(void **state)
{
    (void)state;
    ogive_formula *formula = make_formula("z = x @ w; y * z - b"), *part = make(formula, "0,<1");
    static const char *const names[] = {"value.0", "y", "b"};
    ogive_formula_release(formula); /* the part lives on */
    assert_int_equal(ogive_formula_input_count(part), TEST_COUNT(names));
    for (size_t i = 0; i < TEST_COUNT(names); i++)
        assert_string_equal(ogive_formula_input_name(part, i), names[i]);
    assert_int_equal(ogive_formula_product_count(part), 0);
    ogive_formula_release(part);
}

/* Products first, then the rest from them, and the gradient of the rest by them. */
static void test_values(void **state)
{
    (void)state;
    ogive_formula *formula = make_formula("z = linear(x, w, b); softmax(z @ v, 1) + sum(z)");
    ogive_formula *whole = make(formula, "0,1,3"), *tail = make(formula, "0,<1,<3"), *gradient;
    array inputs[6], got[3], want[1], again[1], by_product[2];
    test_random random = test_random_named("part");
    const char *shapes = "3x4 5x4 5 5x2";
    for (int i = 0; i < 4; i++)
        shapes = read_array(shapes, -1, 1, &random, &inputs[i]);
    assert_int_equal(ogive_formula_product_count(formula), 2);
    assert_int_equal(evaluate(formula, inputs, want), 1);
    assert_int_equal(evaluate(whole, inputs, got), 3);
    assert_int_equal(evaluate(tail, got + 1, again), 1);
    assert_int_equal(got[1].count, 15);
    for (int64_t e = 0; e < 6; e++) {
        assert_true(got[0].data[e] == want[0].data[e]);
        assert_true(again[0].data[e] == want[0].data[e]);
    }
    gradient = make_gradient(tail, (const char *[]){"value.0", "value.1"}, 2);
    assert_int_equal(evaluate(gradient, (array[]){got[1], got[2], want[0]}, by_product), 2);
    double sum = 0;
    for (int64_t e = 0; e < 6; e++)
        sum += want[0].data[e];
    for (int64_t e = 0; e < 15; e++)
        assert_true(fabs(by_product[0].data[e] - sum) < 1e-12);
    free_arrays(inputs, 4);
    free_arrays(got, 3);
    free_arrays(want, 1);
    free_arrays(again, 1);
    free_arrays(by_product, 2);
    ogive_formula_release(gradient);
    ogive_formula_release(tail);
    ogive_formula_release(whole);
    ogive_formula_release(formula);
}

/* A check speaks of the formula's text, in a part too. */
static void test_check(void **state)
{
    (void)state;
    ogive_formula *formula = make_formula("layer_norm(linear(x, w), 4, a)");
    ogive_formula *part = make(formula, "0,<1");
    ogive_error error;
    ogive_plan *plan;
    test_tensor tensors[2];
    const DLTensor *inputs[2] = {
        test_tensor_init(&tensors[0], NULL, test_float32, 2, (int64_t[]){3, 4}, NULL),
        test_tensor_init(&tensors[1], NULL, test_float32, 1, (int64_t[]){5}, NULL)};
    TEST_FAILS(ogive_plan_create(part, inputs, 2, NULL, 0, NULL, &plan, &error), OGIVE_SHAPE, error,
               "layer_norm: weight has shape (5,), but normalized_shape is (4,)");
    assert_int_equal(error.offset, 28);
    ogive_formula_release(part);
    ogive_formula_release(formula);
}

static void test_errors(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"3", "the formula has no value '3'"},
        {"0,<5", "the formula has no value '5'"},
        {"0,<1x", "the formula has no value '1x'"},
        {"0,-1", "the formula has no value '-1'"},
        {"0,", "the formula has no value ''"},
        {"<1", "no value is wanted"},
        {"exp=", "a cast is 'exp=': expected a function and float32, float16, bfloat16 or float64"},
        {"exq=float32", "a cast is 'exq=float32'"},
        {"exp=log", "a cast is 'exp=log'"},
        {"exp=float32,w", "a cast is 'w'"},
        {"q", "the formula has no input 'q'"},
        {"", "the formula has no input ''"},
    };
    ogive_formula *formula = make_formula("x @ w"), *out = formula;
    ogive_error error;
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        TEST_FAILS(make_step(formula, cases[i][0], &out, &error), OGIVE_ARGUMENT, error,
                   cases[i][1]);
        assert_null(out);
    }
    char many[2 * 65] = "0";
    for (int i = 0; i < 64; i++)
        strcat(many, ",0");
    TEST_FAILS(make_step(formula, many, &out, &error), OGIVE_ARGUMENT, error,
               "'0' is one value too many: at most 64 are wanted or given");
    static const char *const value[] = {"0", NULL}, *const cast[] = {"exp=float32", NULL};
    TEST_FAILS(ogive_formula_make(formula, value, 2, &out, &error), OGIVE_ARGUMENT, error,
               "the formula has no value ''");
    TEST_FAILS(ogive_formula_make(formula, cast, 2, &out, &error), OGIVE_ARGUMENT, error,
               "a cast is ''");
    TEST_FAILS(ogive_formula_make(formula, NULL, 1, &out, &error), OGIVE_ARGUMENT, error,
               "no name of an input to derive by is given");
    TEST_FAILS(ogive_formula_make(NULL, value, 1, &out, &error), OGIVE_ARGUMENT, error,
               "formula is NULL");
    TEST_FAILS(ogive_formula_make(formula, value, 1, NULL, &error), OGIVE_ARGUMENT, error,
               "out is NULL");
    ogive_formula *gradient = make(formula, "x"), *part = make(gradient, "0");
    TEST_FAILS(ogive_formula_make(gradient, cast, 1, &out, &error), OGIVE_UNSUPPORTED, error,
               "casts go into a formula as it was written");
    ogive_formula_release(part);
    ogive_formula_release(gradient);
    assert_int_equal(ogive_formula_product_count(NULL), 0);
    ogive_formula_release(formula);
}

/* What a gradient reads, and which of its results are one. */
static void test_reads(void **state)
{
    (void)state;
    static const struct {
        const char *formula, *step;
        const char *reads;  /* of each input, grad last */
        const char *twins;  /* of each result */
        const char *passed; /* the same; '-': none */
    } cases[] = {
        {"x + y", "x,y", "001", "00", "22"},
        {"x * y", "x,y", "111", "01", "--"},
        {"2 * x + y", "x,y", "001", "01", "-2"},
        {"x - y + x", "y,x", "001", "01", "--"},
        {"x + linear(h, w)", "x,h,w", "0111", "012", "3--"},
        {"mean(x, 1)", "x", "01", "0", "-"},
        {"exp(x)", "x", "11", "0", "-"},
        {"float16(x) + y", "x,y", "001", "00", "22"},
        {"x, y", "x,y", "0011", "01", "23"},
        {"sum(x)", "", "1", "0", "-"},
        {"full = x * 0; x, full, x", "", "1", "010", "0-0"},
    };
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        ogive_formula *formula = make_formula(cases[i].formula), *made = formula;
        if (*cases[i].step) {
            made = make(formula, cases[i].step);
            ogive_formula_release(formula);
        }
        assert_int_equal(ogive_formula_input_count(made), strlen(cases[i].reads));
        assert_int_equal(ogive_formula_result_count(made), strlen(cases[i].twins));
        for (size_t k = 0; cases[i].reads[k]; k++)
            assert_int_equal(ogive_formula_reads(made, k), cases[i].reads[k] - '0');
        for (size_t k = 0; cases[i].twins[k]; k++) {
            size_t passed =
                cases[i].passed[k] == '-' ? (size_t)-1 : (size_t)(cases[i].passed[k] - '0');
            assert_int_equal(ogive_formula_twin(made, k), (size_t)(cases[i].twins[k] - '0'));
            assert_int_equal(ogive_formula_passed(made, k), passed);
        }
        assert_int_equal(ogive_formula_reads(made, 9), 0);
        assert_int_equal(ogive_formula_twin(made, 9), 9);
        assert_true(ogive_formula_passed(made, 9) == (size_t)-1);
        ogive_formula_release(made);
    }
}

/* Files are written of texts, which do not say what was made of them. */
static void test_no_file(void **state)
{
    (void)state;
    static const char *const steps[] = {"x", "0", "exp=float32"};
    ogive_formula *formula = make_formula("exp(x)");
    for (size_t i = 0; i < TEST_COUNT(steps); i++) {
        ogive_formula *made = make(formula, steps[i]);
        ogive_error error;
        size_t length;
        TEST_FAILS(ogive_formula_pytorch(made, NULL, 0, NULL, NULL, 0, &length, &error),
                   OGIVE_UNSUPPORTED, error, "a file is written of a formula as it was given");
        ogive_formula_release(made);
    }
    ogive_formula_release(formula);
}

/* ---- casts ----------------------------------------------------------------- */

static void test_casts(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"linear(x, w, b)", "linear=bfloat16,sum=float32",
         "n0 = input x\nn1 = input w\nn2 = input b\nn3 = bfloat16 n0\nn4 = bfloat16 n1\n"
         "n5 = bfloat16 n2\nn6 = linear_product n3 n4 [linear]\nn7 = add n6 n5 [linear]\n"
         "results n7\n"},
        /* Operators by their functions; what they share with others is not cast for these. */
        {"x @ w, x ** 2, square(x)", "matmul=float16,pow=float32",
         "n0 = input x\nn1 = input w\nn2 = float16 n0\nn3 = float16 n1\nn4 = matmul n2 n3\n"
         "n5 = float32 n0\nn6 = square n5 [pow]\nn7 = square n0\nresults n4 n6 n7\n"},
        /* Of a call that has a meaning its arguments, not what it is made of. */
        {"mean(x, 1), sum(x, 1)", "mean=float32",
         "n0 = input x\nn1 = float32 n0\nn2 = sum n1 dim=(1) [mean]\n"
         "n3 = count n1 dim=(1) 0 [mean]\nn4 = div n2 n3 [mean]\nn5 = sum n0 dim=(1)\n"
         "results n4 n5\n"},
        /* Neither numbers nor masks. */
        {"where(x > -1, x, inf) + 2 * 3", "where=float32,add=float64",
         "n0 = input x\nn1 = number -1\nn2 = gt n0 n1\nn3 = float32 n0\nn4 = number inf\n"
         "n5 = where n2 n3 n4\nn6 = float64 n5\nn7 = number 6\nn8 = add n6 n7\nresults n8\n"},
    };
    check_graphs(cases, TEST_COUNT(cases));
}

static void test_calls(void **state)
{
    (void)state;
    ogive_formula *formula = make_formula("softmax(-x @ w, 1) + exp(where(x < 1, x, 0)) ** 2");
    static const char *const called[] = {"softmax", "neg", "matmul", "add",
                                         "exp",     "lt",  "where",  "pow"};
    for (size_t i = 0; i < TEST_COUNT(called); i++)
        assert_int_equal(ogive_formula_calls(formula, called[i]), 1);
    size_t count = 0;
    for (size_t i = 0; i < ogive_function_count(); i++) {
        ogive_function_info info;
        ogive_error error;
        TEST_OK(ogive_function(i, &info, &error), error);
        count += (size_t)ogive_formula_calls(formula, info.name);
    }
    assert_int_equal(count, TEST_COUNT(called));
    assert_int_equal(ogive_formula_calls(formula, "row_max"), 0);
    assert_int_equal(ogive_formula_calls(formula, NULL), 0);
    assert_int_equal(ogive_formula_calls(NULL, "exp"), 0);
    ogive_formula_release(formula);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_graphs),  cmocka_unit_test(test_inputs),
        cmocka_unit_test(test_values),  cmocka_unit_test(test_check),
        cmocka_unit_test(test_errors),  cmocka_unit_test(test_reads),
        cmocka_unit_test(test_no_file), cmocka_unit_test(test_casts),
        cmocka_unit_test(test_calls),
    };
    return TEST_RUN(tests);
}
