/* SPDX-License-Identifier: MIT
 *
 * test_cuda_shim_windows.c - pooling, parts of tensors, and their gradients, on CUDA against the CPU's, bit by bit. See
 * test_cuda_shim.c.
 */
#include "cuda_case.h"

static const struct {
    const char *text;
    case_shape input, result;
} cases[] = {
    {"avg_pool1d(x, 1)", SHAPE(1, 1), SHAPE(1, 1)},
    {"max_pool1d(x, 3) * 2", SHAPE(1, 3), SHAPE(1, 1)},
    {"max_pool1d(x, 3)", SHAPE(2, 5, 41), SHAPE(2, 5, 13)},
    {"max_pool1d(x, 8, stride=1, padding=4, dilation=3)", SHAPE(2, 3, 64), SHAPE(2, 3, 51)},
    {"max_pool2d(x, 3, stride=2, padding=1)", SHAPE(2, 3, 17, 30), SHAPE(2, 3, 9, 15)},
    {"max_pool2d(x, (4, 2), (1, 3), (1, 0), 1, true)", SHAPE(3, 9, 11), SHAPE(3, 8, 4)},
    {"max_pool3d(x, 2, padding=1)", SHAPE(2, 4, 5, 6), SHAPE(2, 3, 3, 4)},
    {"avg_pool1d(x, 70, stride=1, padding=35)", SHAPE(3, 100), SHAPE(3, 101)},
    {"avg_pool2d(x, 3, stride=2, padding=1, ceil_mode=true)", SHAPE(2, 8, 8), SHAPE(2, 5, 5)},
    {"avg_pool2d(x, 3, padding=1, count_include_pad=false)", SHAPE(2, 2, 7, 9), SHAPE(2, 2, 3, 3)},
    {"avg_pool3d(x, 2, stride=1, divisor_override=3)", SHAPE(2, 4, 5, 6), SHAPE(2, 3, 4, 5)},
    {"adaptive_avg_pool2d(x, (2, 3))", SHAPE(2, 3, 8, 9), SHAPE(2, 3, 2, 3)},
    {"adaptive_max_pool1d(x, 5)", SHAPE(3, 65), SHAPE(3, 5)},
    {"adaptive_max_pool1d(x, 7)", SHAPE(2, 3, 13), SHAPE(2, 3, 7)},
    {"adaptive_avg_pool1d(x, 9)", SHAPE(2, 4), SHAPE(2, 9)},
    {"adaptive_avg_pool1d(exp(x), 33) * 2", SHAPE(3, 5000), SHAPE(3, 33)},
    {"adaptive_avg_pool2d(x, (3, 8))", SHAPE(2, 3, 8, 9), SHAPE(2, 3, 3, 8)},
    {"adaptive_max_pool2d(x, (5, 3))", SHAPE(2, 3, 9, 12), SHAPE(2, 3, 5, 3)},
    {"adaptive_avg_pool3d(x, (2, 3, 4))", SHAPE(2, 5, 7, 6), SHAPE(2, 2, 3, 4)},
    {"adaptive_avg_pool2d(x, 1)", SHAPE(2, 3, 30, 33), SHAPE(2, 3, 1, 1)},
    {"x * adaptive_max_pool2d(exp(x), 1)", SHAPE(2, 3, 5, 7), SHAPE(2, 3, 5, 7)},
    {"avg_pool3d(x, (5, 6, 7))", SHAPE(3, 5, 6, 7), SHAPE(3, 1, 1, 1)},
    {"max_pool1d(x, 2100)", SHAPE(2, 3, 2100), SHAPE(2, 3, 1)},
    {"unfold(x, 0, 3, 2)", SHAPE(9), SHAPE(4, 3)},
    {"sum(unfold(x, 1, 5, 3), -1) * 2", SHAPE(3, 40, 4), SHAPE(3, 12, 4)},
    {"unfold(unfold(exp(x), -2, 3, 1), -2, 2, 2)", SHAPE(2, 5, 6), SHAPE(2, 3, 3, 3, 2)},
    {"glu(x)", SHAPE(3, 34), SHAPE(3, 17)},
    {"glu(x, 0) + 1", SHAPE(6, 5), SHAPE(3, 5)},
    {"glu(x, 1)", SHAPE(2, 8, 33), SHAPE(2, 4, 33)},
    {"glu(x)", SHAPE(5, 4096), SHAPE(5, 2048)},
    {"narrow(x, 1, 3, 40) * 2", SHAPE(5, 64), SHAPE(5, 40)},
    {"narrow(x, 0, 2, 1)", SHAPE(4, 6), SHAPE(1, 6)},
    {"narrow(x, 0, -4, 3)", SHAPE(9), SHAPE(3)},
    {"narrow(exp(x), -1, -4, 3) + narrow(x, 2, 0, 3)", SHAPE(2, 3, 9), SHAPE(2, 3, 3)},
    {"transpose(narrow(x, 1, 1, 40), 0, 1) * 3", SHAPE(33, 42), SHAPE(40, 33)},
    {"softmax(narrow(x, 1, 7, 50), 1)", SHAPE(4, 60), SHAPE(4, 50)},
    {"layer_norm(narrow(x, 1, 1, 32), 32)", SHAPE(5, 40), SHAPE(5, 32)},
    {"relu(group_norm(gelu(x), 3))", SHAPE(2, 6, 5, 7), SHAPE(2, 6, 5, 7)},
    {"group_norm(x, 4)", SHAPE(5, 64), SHAPE(5, 64)},
    {"group_norm(narrow(x, 1, 1, 6), 2)", SHAPE(3, 8, 9), SHAPE(3, 6, 9)},
    {"batch_norm(x, training=true) + instance_norm(x)", SHAPE(3, 4, 65), SHAPE(3, 4, 65)},
    {"sum(narrow(x, 0, 1, 70), 0)", SHAPE(72, 9), SHAPE(9)},
    {"sum(narrow(x, 0, 8, 8), 0, true)", SHAPE(16), SHAPE(1)},
    {"sum(unfold(x * 2, 1, 3, 2), (0, 1, 2), true)", SHAPE(5, 9), SHAPE(1, 1, 1)},
    {"linear(narrow(x, 1, 1, 8), narrow(x, 1, 3, 8))", SHAPE(5, 12), SHAPE(5, 5)},
    {"sigmoid(max_pool2d(x * 2, 2, padding=1)) + 1", SHAPE(2, 3, 6, 10), SHAPE(2, 3, 4, 6)},
};

static void test_pooling(void **unused)
{
    test_random random = test_random_named("pooling");
    (void)unused;
    case_share = 2;
    for (size_t i = 0; i < TEST_COUNT(cases); i++)
        for (int layout = 0; layout < LAYOUT_COUNT; layout++) {
            if (!test_full() && layout && layout != (int)(1 + i % 7))
                continue;
            formula_case c = {.text = cases[i].text, .formula = find_formula(cases[i].text)};
            c.input_count = 1;
            place_one(&c.inputs[0], &cases[i].input, (og_dtype)((i + (size_t)layout) % 4),
                      (case_layout)layout, &random);
            run_placed(&c, layout % 2 ? STRIDED : CONTIGUOUS, &random);
        }
    end_cases("pooling");
}

static void test_gradients(void **unused)
{
    test_random random = test_random_named("gradients");
    (void)unused;
    case_share = 2;
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        ogive_error error;
        ogive_formula *gradient;
        const char *name = "x";
        TEST_OK(ogive_formula_gradient(find_formula(cases[i].text), &name, 1, &gradient, &error),
                error);
        formula_case c = {.text = cases[i].text, .formula = gradient, .input_count = 2};
        og_dtype dtype = (og_dtype)(i % 4);
        place_one(&c.inputs[0], &cases[i].input, dtype, (case_layout)(i % 3), &random);
        place_one(&c.inputs[1], &cases[i].result, dtype, CONTIGUOUS, &random);
        run_placed(&c, CONTIGUOUS, &random);
        ogive_formula_release(gradient);
    }
    end_cases("gradients");
}

/* So many windows that a thread takes a column of them: the batch is that of a multiprocessor. */
static const struct {
    const char *text;
    case_shape input, weight;
} column_cases[] = {
    {"max_pool2d(x, 4, 1, 1, 1)", SHAPE(3, 7, 25, 33), SHAPE(0)},
    {"max_pool2d(x * 0, 3, 1, 1)", SHAPE(3, 7, 25, 33), SHAPE(0)},   /* -0 and +0 */
    {"max_pool2d(relu(x), 3, 1, 1)", SHAPE(3, 7, 25, 33), SHAPE(0)}, /* no -0 */
    {"max_pool2d(floor(x) * 0.25, (3, 2), 2, 1) + 1", SHAPE(10, 7, 25, 33), SHAPE(0)},
    {"max_pool1d(x, 8, 1, 4, 3)", SHAPE(3, 41, 57), SHAPE(0)},
    {"max_pool3d(x, 3, 2, 1, 3)", SHAPE(9, 3, 17, 19, 20), SHAPE(0)},
    {"avg_pool3d(x, 3, 2, 1)", SHAPE(8, 3, 16, 17, 18), SHAPE(0)},
    {"avg_pool2d(x, 2)", SHAPE(5, 7, 25, 34), SHAPE(0)},
    {"avg_pool2d(x, (9, 8), 1)", SHAPE(1, 5, 33, 34), SHAPE(0)}, /* more than a run of taps */
    {"avg_pool2d(exp(x), 3, (2, 1), 1, true, false)", SHAPE(5, 7, 26, 33), SHAPE(0)},
    {"conv2d(x, w, padding=1, groups=6)", SHAPE(4, 6, 35, 30), SHAPE(6, 1, 3, 3)},
    {"relu(conv2d(x, w, groups=6)) * 2", SHAPE(3, 6, 40, 41), SHAPE(6, 1, 3, 3)},
    {"conv2d(x, w, None, (3, 2), (4, 0), (2, 3), 5)", SHAPE(6, 5, 61, 40), SHAPE(5, 1, 5, 3)},
    {"conv2d(x, w, groups=8)", SHAPE(3, 8, 32, 36), SHAPE(8, 1, 3, 1)},
    {"conv2d(x, w, groups=8)", SHAPE(5, 8, 32, 36), SHAPE(8, 1, 1, 5)},
    {"conv3d(x, w, padding=(1, 0, 2), groups=3)", SHAPE(5, 3, 14, 10, 15), SHAPE(3, 1, 3, 2, 3)},
    {"conv1d(x, w, padding=3, groups=9)", SHAPE(9, 9, 70), SHAPE(9, 1, 7)},
    /* Lines of vectors. */
    {"max_pool2d(x, 4, 1, 1, 1)", SHAPE(2, 4, 42, 128), SHAPE(0)},
    {"max_pool1d(x * 0, 8, 1, 4, 3)", SHAPE(6, 21, 132), SHAPE(0)},
    {"max_pool2d(relu(x - 1), 3, 2, 1)", SHAPE(2, 4, 48, 256), SHAPE(0)},
    {"max_pool2d(x, (5, 7), 1, (2, 3))", SHAPE(2, 4, 42, 128), SHAPE(0)},
    {"avg_pool1d(x, 8, 1, 3)", SHAPE(6, 23, 256), SHAPE(0)},
    {"avg_pool2d(x, 2)", SHAPE(5, 5, 32, 256), SHAPE(0)},
    {"avg_pool3d(x, 3, 2, 1)", SHAPE(8, 2, 13, 15, 256), SHAPE(0)},
    {"max_pool2d(x, 3, 1, 1) + x", SHAPE(3, 4, 40, 128), SHAPE(0)},
    {"avg_pool2d(exp(x), (9, 8), 1)", SHAPE(3, 5, 41, 132), SHAPE(0)},
    {"relu(conv2d(x, w, groups=4)) * 2", SHAPE(2, 4, 44, 128), SHAPE(4, 1, 3, 3)},
    {"conv2d(x, w, padding=(1, 5), dilation=(1, 2), groups=4)", SHAPE(2, 4, 44, 124),
     SHAPE(4, 1, 3, 5)},
    /* Several lines of a warp. */
    {"max_pool2d(relu(x) - x, 3, 2, 1)", SHAPE(3, 5, 42, 112), SHAPE(0)},
    {"avg_pool2d(x, 3, 1, 1) * 2", SHAPE(3, 7, 33, 60), SHAPE(0)},
    {"max_pool2d(floor(x) * 0.25, 3, 1) + 1", SHAPE(5, 7, 37, 32), SHAPE(0)},
    {"relu(conv2d(x, w, groups=4)) * 2", SHAPE(5, 4, 44, 32), SHAPE(4, 1, 3, 5)},
};

static void test_columns(void **unused)
{
    test_random random = test_random_named("columns");
    (void)unused;
    case_share = 2;
    for (size_t i = 0; i < TEST_COUNT(column_cases); i++)
        for (int layout = 0; layout < LAYOUT_COUNT; layout++) {
            if (!test_full() && layout && layout != (int)(1 + i % 7))
                continue;
            case_shape input = column_cases[i].input;
            const og_dtype dtype = (og_dtype)((i + (size_t)layout) % 4);
            const char *text = column_cases[i].text;
            formula_case c = {.text = text, .formula = find_formula(text), .input_count = 1};
            input.shape[0] *= multiprocessors();
            place_one(&c.inputs[0], &input, dtype, (case_layout)layout, &random);
            if (column_cases[i].weight.shape[0])
                place_one(&c.inputs[c.input_count++], &column_cases[i].weight, dtype, CONTIGUOUS,
                          &random);
            run_placed(&c, layout % 2 ? STRIDED : CONTIGUOUS, &random);
        }
    end_cases("columns");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pooling),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_columns),
    };
    setenv("OGIVE_SHIM_MULTIPROCESSORS", "1", 1);
    return CASE_RUN(tests);
}
