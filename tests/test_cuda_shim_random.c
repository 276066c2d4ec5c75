/* SPDX-License-Identifier: MIT
 *
 * test_cuda_shim_random.c - random formulas (random_formula.h) on CUDA against the CPU,
 * bit by bit, over random shapes, strides, dtypes and values. See test_cuda_shim.c.
 *
 * OGIVE_TEST_ITERATIONS=N runs N formulas; a failure prints how to run its own.
 */
#include "cuda_case.h"
#include "random_formula.h"

/* About twenty seconds, most of them the compiler's. */
static const int default_iterations = 80;

static void check_random(uint64_t seed)
{
    test_random random = {seed};
    random_formula *f = calloc(1, sizeof *f);
    ogive_error error;
    assert_non_null(f);
    /* Mostly small; now and then rows longer than a chunk of a reduction. */
    formula_generate(&random, test_random_below(&random, 8) ? 3000 : 60000, f);
    formula_case c = {.text = f->text};
    TEST_OK(ogive_formula_create(f->text, OGIVE_TEXT, &c.formula, &error), error);
    c.input_count = ogive_formula_input_count(c.formula);
    case_values values = (case_values)test_random_below(&random, 3);
    for (size_t i = 0; i < c.input_count; i++) {
        const char *name = ogive_formula_input_name(c.formula, i);
        int node = 0;
        while (strcmp(formula_input_names[node], name) != 0)
            node++;
        const formula_node *from = &f->nodes[node];
        placed *p = &c.inputs[i];
        *p = (placed){.dtype = from->dtype, .rank = from->rank};
        p->layout = test_random_below(&random, 2) ? STRIDED : (case_layout)(seed % STRIDED);
        memcpy(p->shape, from->shape, sizeof p->shape);
        place(p, &random, true);
        fill(p, &random, f->has_float64 ? ORDINARY : values);
    }
    int failed = total.failed;
    run_placed(&c, test_random_below(&random, 2) ? STRIDED : CONTIGUOUS, &random);
    if (total.failed > failed)
        fprintf(stderr, "  to repeat: OGIVE_TEST_SEED=%" PRIu64 " OGIVE_TEST_ITERATIONS=1\n", seed);
    ogive_formula_release(c.formula);
    formula_free(f);
    free(f);
}

static void test_formulas(void **unused)
{
    const char *text = getenv("OGIVE_TEST_ITERATIONS");
    int iterations = text ? atoi(text) : test_full() ? 2000 : default_iterations;
    test_random seeds = {test_seed()};
    (void)unused;
    case_share = text ? 1 : 2;
    for (int i = 0; i < iterations; i++)
        check_random(i || !text ? test_random_bits(&seeds) | 1 : test_seed());
    end_cases("random formulas");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formulas),
    };
    return CASE_RUN(tests);
}
