/* SPDX-License-Identifier: MIT
 *
 * test_cuda_overlap.c - formulas of several launches, of which one may begin before those before it
 * have ended. The fake device checks each access (OGIVE_SHIM_CHECK=1): what a launch touches before
 * it has waited, none of those has touched. Sums are exact, so that results have the CPU's bits.
 */
#include "cuda_case.h"

#include <math.h>

static const struct {
    const char *text;
    og_dtype dtype;
    case_shape shapes[2];
} cases[] = {
    {"sum(x, dim=1)", OG_FLOAT32, {SHAPE(3, 33000)}},
    {"softmax(x, dim=1)", OG_FLOAT32, {SHAPE(2, 33000)}},
    {"logsumexp(x, dim=0)", OG_FLOAT32, {SHAPE(9000, 5)}},
    {"softmax(x, dim=0)", OG_FLOAT32, {SHAPE(9000, 5)}},
    /* CUDA cores, k in parts: few rows, tiles; columns reduced after that. */
    {"linear(x, w)", OG_FLOAT32, {SHAPE(1, 9000), SHAPE(64, 9000)}},
    {"linear(x, w)", OG_FLOAT32, {SHAPE(20, 3000), SHAPE(64, 3000)}},
    {"sum(linear(x, w), dim=1)", OG_FLOAT32, {SHAPE(1, 9000), SHAPE(100, 9000)}},
    /* Hopper: x split; k in parts; columns reduced. x and w of halves. */
    {"linear(x, w)", OG_FLOAT32, {SHAPE(70, 136), SHAPE(130, 136)}},
    {"linear(x, w)", OG_FLOAT32, {SHAPE(2, 4200), SHAPE(130, 4200)}},
    {"sum(linear(x, w), dim=1)", OG_FLOAT32, {SHAPE(40, 200), SHAPE(130, 200)}},
    {"softmax(linear(x, w), dim=1)", OG_FLOAT32, {SHAPE(5, 72), SHAPE(150, 72)}},
    {"sum(linear(x, w), dim=1)", OG_BFLOAT16, {SHAPE(40, 200), SHAPE(130, 200)}},
};

/* The second time with a NaN: og_redo has something to do. */
static void test_launches(void **unused)
{
    test_random random = test_random_named("overlap");
    (void)unused;
    case_options.precision = OGIVE_FLOAT32;
    for (size_t i = 0; i < 2 * TEST_COUNT(cases); i++) {
        const size_t which = i / 2;
        formula_case c = {.text = cases[which].text, .formula = find_formula(cases[which].text)};
        c.input_count = ogive_formula_input_count(c.formula);
        for (size_t t = 0; t < c.input_count; t++) {
            placed *p = &c.inputs[t];
            place_exact(p, cases[which].dtype, CONTIGUOUS, &cases[which].shapes[t], &random);
            if (t == 0 && i % 2)
                reference_store(p->memory, p->dtype, p->elements / 2, (double)NAN);
        }
        run_placed(&c, CONTIGUOUS, &random);
    }
    case_options.precision = OGIVE_STRICT;
    end_cases("overlap");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_launches)};
    setenv("OGIVE_SHIM_CHECK", "1", 1);
    return CASE_RUN(tests);
}
