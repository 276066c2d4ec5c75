/* SPDX-License-Identifier: MIT
 *
 * test_cuda_hopper_windows.c - convolutions on Hopper's tensor cores: exact sums and their tails
 * have the CPU's bits, others float32's accuracy; a result depends on what its window sees and on
 * its filter alone. On the fake device cuda/shim_hopper.h multiplies.
 */
#include "cuda_case.h"

#include <math.h>

/* ---- exact sums -------------------------------------------------------------------------- */

static const struct {
    const char *text;
    case_shape shapes[3];
    case_layout layouts[2]; /* of x and w */
} exact[] = {
    {"conv2d(x, w, padding=1)", {SHAPE(2, 16, 12, 20), SHAPE(32, 16, 3, 3)}, {CONTIGUOUS, CONTIGUOUS}},
    {"relu(conv2d(x, w, b))", {SHAPE(2, 64, 11, 20), SHAPE(130, 64, 3, 3), SHAPE(130)}, {CONTIGUOUS, CONTIGUOUS}},
    {"conv2d(x, w, b, padding=2)", {SHAPE(1, 20, 9, 18), SHAPE(40, 20, 5, 3), SHAPE(40)}, {TRANSPOSED, TRANSPOSED}},
    {"conv2d(x, w, stride=2)", {SHAPE(2, 32, 17, 36), SHAPE(64, 32, 3, 3)}, {CONTIGUOUS, STRIDED}},
    {"conv2d(x, w, stride=2)", {SHAPE(2, 64, 15, 36), SHAPE(32, 64, 1, 1)}, {CONTIGUOUS, CONTIGUOUS}},
    {"conv2d(x, w, padding=(2, 6), dilation=(2, 3))", {SHAPE(1, 32, 10, 24), SHAPE(32, 32, 3, 5)}, {CONTIGUOUS, PADDED}},
    {"tanh(conv2d(x, w, groups=2, padding=1))", {SHAPE(2, 32, 9, 15), SHAPE(64, 16, 3, 3)}, {CONTIGUOUS, CONTIGUOUS}},
    {"conv2d(x, w, padding=1)", {SHAPE(2, 96, 8, 16), SHAPE(24, 96, 3, 3)}, {MISALIGNED, CONTIGUOUS}},
    {"conv2d(x, w, padding=1)", {SHAPE(2, 16, 8, 17), SHAPE(32, 16, 3, 3)}, {SLICED, CONTIGUOUS}},
    {"conv2d(x, w)", {SHAPE(40, 30, 30), SHAPE(32, 40, 3, 3)}, {STRIDED, CONTIGUOUS}},
    {"conv1d(x, w, b, 1, 2, 2)", {SHAPE(3, 16, 200), SHAPE(32, 16, 4), SHAPE(32)}, {CONTIGUOUS, CONTIGUOUS}},
    {"conv1d(x, w, stride=3)", {SHAPE(2, 48, 300), SHAPE(70, 48, 5)}, {STILL_FIRST, CONTIGUOUS}},
    {"conv3d(x, w, padding=1)", {SHAPE(1, 16, 5, 6, 20), SHAPE(32, 16, 3, 3, 3)}, {CONTIGUOUS, CONTIGUOUS}},
    {"sigmoid(conv_transpose2d(x, w, b))", {SHAPE(2, 32, 9, 20), SHAPE(32, 48, 3, 3), SHAPE(48)}, {CONTIGUOUS, CONTIGUOUS}},
    {"conv_transpose2d(x, w, stride=2, padding=1, output_padding=1)", {SHAPE(2, 32, 12, 18), SHAPE(32, 32, 5, 5)}, {CONTIGUOUS, CONTIGUOUS}},
    {"conv_transpose3d(x, w, stride=(1, 2, 1))", {SHAPE(1, 16, 4, 6, 14), SHAPE(16, 32, 3, 3, 3)}, {CONTIGUOUS, CONTIGUOUS}},
    {"conv_transpose1d(x, w, padding=2, dilation=2)", {SHAPE(2, 64, 130), SHAPE(64, 33, 3)}, {PADDED, CONTIGUOUS}},
};

static void test_exact(void **unused)
{
    test_random random = test_random_named("exact windows");
    (void)unused;
    case_options.precision = OGIVE_FLOAT32;
    for (size_t i = 0; i < TEST_COUNT(exact); i++)
        for (int strided = 0; strided < 2; strided++) {
            formula_case c = {.text = exact[i].text, .formula = find_formula(exact[i].text)};
            c.input_count = ogive_formula_input_count(c.formula);
            for (size_t t = 0; t < c.input_count; t++)
                place_exact(&c.inputs[t], OG_FLOAT32, t < 2 ? exact[i].layouts[t] : CONTIGUOUS,
                            &exact[i].shapes[t], &random);
            run_placed(&c, strided ? STRIDED : CONTIGUOUS, &random);
        }
    case_options.precision = OGIVE_STRICT;
    end_cases("exact windows");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),
    };
    return CASE_RUN(tests);
}
