/* SPDX-License-Identifier: MIT
 *
 * test_cuda_shim_convolution.c - convolutions, and their gradients, on CUDA against the CPU's, bit
 * by bit. See test_cuda_shim.c.
 */
#include "cuda_case.h"
#include "cuda_compiled.h"

static const struct {
    const char *text;
    case_shape x, w, y;
    bool has_bias;
} cases[] = {
    {"conv1d(x, w)", SHAPE(2, 3, 20), SHAPE(5, 3, 4), SHAPE(2, 5, 17), false},
    {"conv1d(x, w, b, 3, 5, 2)", SHAPE(3, 70), SHAPE(9, 3, 7), SHAPE(9, 23), true},
    {"conv2d(x, w, b, padding=1)", SHAPE(2, 3, 9, 11), SHAPE(4, 3, 3, 3), SHAPE(2, 4, 9, 11), true},
    {"tanh(conv2d(x, w, stride=2)) * 2", SHAPE(2, 40, 9, 12), SHAPE(6, 40, 3, 3), SHAPE(2, 6, 4, 5),
     false},
    {"conv2d(x, w, padding='same', dilation=(2, 1))", SHAPE(1, 5, 8, 7), SHAPE(3, 5, 3, 4),
     SHAPE(1, 3, 8, 7), false},
    {"conv2d(x, w, b, (1, 2), (1, 0), 1, 2)", SHAPE(2, 4, 6, 9), SHAPE(6, 2, 3, 2),
     SHAPE(2, 6, 6, 4), true},
    {"conv2d(x, w, padding=1, groups=6)", SHAPE(2, 6, 7, 10), SHAPE(6, 1, 3, 3), SHAPE(2, 6, 7, 10),
     false},
    {"conv2d(x, w, b)", SHAPE(3, 17, 5, 6), SHAPE(20, 17, 1, 1), SHAPE(3, 20, 5, 6), true},
    {"conv2d(x, w, stride=3)", SHAPE(3, 17, 7, 7), SHAPE(20, 17, 1, 1), SHAPE(3, 20, 3, 3), false},
    {"conv2d(x, w)", SHAPE(4, 5, 3, 2), SHAPE(7, 5, 3, 2), SHAPE(4, 7, 1, 1), false},
    {"conv2d(x, w, padding=2)", SHAPE(4, 5, 1, 1), SHAPE(7, 5, 5, 5), SHAPE(4, 7, 1, 1), false},
    {"conv3d(x, w, padding=1, stride=(1, 2, 1))", SHAPE(2, 3, 4, 5, 6), SHAPE(4, 3, 2, 3, 3),
     SHAPE(2, 4, 5, 3, 6), false},
    {"conv_transpose1d(x, w, b, 3, 1)", SHAPE(2, 4, 9), SHAPE(4, 5, 4), SHAPE(2, 5, 26), true},
    {"conv_transpose2d(x, w, b, 2, 1, 1)", SHAPE(2, 6, 4, 5), SHAPE(6, 3, 3, 3), SHAPE(2, 3, 8, 10),
     true},
    {"sigmoid(conv_transpose2d(x, w, None, (3, 2), 2, 1, 2, 2))", SHAPE(1, 4, 5, 6),
     SHAPE(4, 2, 3, 4), SHAPE(1, 4, 14, 14), false},
    {"conv_transpose3d(x, w, padding=1)", SHAPE(2, 3, 4, 3, 4), SHAPE(3, 2, 3, 3, 3),
     SHAPE(2, 2, 4, 3, 4), false},
};

/* Inputs x, w and b of case i. */
static void place_inputs(formula_case *c, size_t i, og_dtype dtype, case_layout layout,
                         test_random *random)
{
    int32_t channel = cases[i].y.rank - cases[i].w.rank + 1;
    const case_shape bias = {1, {cases[i].y.shape[channel]}};
    place_one(&c->inputs[0], &cases[i].x, dtype, layout, random);
    place_one(&c->inputs[1], &cases[i].w, dtype, (case_layout)((int)layout % 3), random);
    if (cases[i].has_bias)
        place_one(&c->inputs[2], &bias, dtype, CONTIGUOUS, random);
    c->input_count = cases[i].has_bias ? 3 : 2;
}

static void test_convolutions(void **unused)
{
    test_random random = test_random_named("convolutions");
    (void)unused;
    case_share = 2;
    for (size_t i = 0; i < TEST_COUNT(cases); i++)
        for (int layout = 0; layout < LAYOUT_COUNT; layout++) {
            if (!test_full() && layout && layout != (int)(1 + i % 7))
                continue;
            formula_case c = {.text = cases[i].text, .formula = find_formula(cases[i].text)};
            place_inputs(&c, i, (og_dtype)((i + (size_t)layout) % 4), (case_layout)layout, &random);
            run_placed(&c, layout % 2 ? STRIDED : CONTIGUOUS, &random);
        }
    end_cases("convolutions");
}

static void test_gradients(void **unused)
{
    test_random random = test_random_named("gradients");
    static const char *const names[] = {"x", "w", "b"};
    (void)unused;
    case_share = 2;
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        ogive_error error;
        ogive_formula *gradient;
        TEST_OK(ogive_formula_gradient(find_formula(cases[i].text), names,
                                       cases[i].has_bias ? 3 : 2, &gradient, &error),
                error);
        formula_case c = {.text = cases[i].text, .formula = gradient};
        og_dtype dtype = (og_dtype)(i % 4);
        place_inputs(&c, i, dtype, (case_layout)(i % 3), &random);
        place_one(&c.inputs[c.input_count++], &cases[i].y, dtype, CONTIGUOUS, &random);
        run_placed(&c, CONTIGUOUS, &random);
        ogive_formula_release(gradient);
    }
    end_cases("gradients");
}

/* KernelBench's kinds: few channels and many, wide and narrow results. */
static void test_compile(void **unused)
{
    static const char *const archs[] = {"90a", "75"};
    static const struct {
        const char *text;
        case_shape shapes[2];
        const char *mark; /* of its source */
        bool
            is_tensor; /* but of float64, tensor cores take it from sm_80 on: test_cuda_hopper_windows*.c,
                           * test_cuda_mma_windows.c */
    } kinds[] = {
        {"conv2d(x, w)", {SHAPE(64, 3, 256, 256), SHAPE(16, 3, 3, 3)}, "og_seen_loader", true},
        {"conv2d(x, w, padding=1)",
         {SHAPE(64, 64, 128, 128), SHAPE(128, 64, 3, 3)},
         "og_seen_loader",
         true},
        {"tanh(conv2d(x, w, padding=1, stride=2))",
         {SHAPE(16, 512, 28, 28), SHAPE(512, 512, 3, 3)},
         "og_seen_loader",
         true},
        {"conv3d(x, w)", {SHAPE(16, 3, 24, 40, 40), SHAPE(64, 3, 3, 3, 3)}, "og_seen_loader", true},
        {"conv2d(x, w, groups=64)",
         {SHAPE(64, 64, 128, 128), SHAPE(64, 1, 3, 3)},
         "og_see_layer",
         false},
        {"conv_transpose2d(x, w, stride=2)",
         {SHAPE(16, 32, 128, 128), SHAPE(32, 64, 5, 9)},
         "og_seen_loader",
         true},
    };
    static const og_dtype dtypes[] = {OG_FLOAT32, OG_BFLOAT16, OG_FLOAT64};
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(kinds); i++)
        for (size_t a = 0; a < TEST_COUNT(archs); a++)
            for (size_t d = kinds[i].is_tensor && !a ? 2 : 0; d < (a ? 2 : TEST_COUNT(dtypes)); d++)
                if (test_has_turn(i, a + d, 2))
                    compile_spilt(kinds[i].text, kinds[i].shapes, dtypes[d], archs[a],
                                  kinds[i].mark, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_convolutions),
        cmocka_unit_test(test_gradients),
    };
    const struct CMUnitTest compiled[] = {cmocka_unit_test(test_compile)};
    if (only_compiles())
        return cmocka_run_group_tests(compiled, NULL, NULL);
    return CASE_RUN(tests);
}
