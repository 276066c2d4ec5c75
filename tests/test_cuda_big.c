/* SPDX-License-Identifier: MIT
 *
 * test_cuda_big.c - pointwise kernels that only big tensors take, against the CPU, bit by
 * bit: several vectors a thread, and results looked up in a table. What is big depends on
 * the multiprocessors; the fake device is told to have two.
 */
#include "cuda_case.h"

/* Above the least that is big, around what blocks and tiles divide by. */
static const int64_t beyond[] = {0, 1, 1023, 12345};

static void test_batches(void **unused)
{
    test_random random = test_random_named("batches");
    int64_t least = multiprocessors() * 2048 * 16;
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(beyond); i++)
        for (int layout = CONTIGUOUS; layout <= MISALIGNED; layout++) {
            case_shape shape = SHAPE(least + beyond[i]);
            check_formula("sigmoid(x)", &shape, i % 2 ? OG_FLOAT64 : OG_FLOAT32,
                          (case_layout)layout, i % 3 ? CONTIGUOUS : MISALIGNED, SPECIAL, &random);
            check_formula("x * tanh(y) + 0.5", &shape, OG_FLOAT32, (case_layout)layout, CONTIGUOUS,
                          SPECIAL, &random);
        }
    end_cases("batches");
}

/* Of a table every code is looked up: values are any bits. */
static void test_tables(void **unused)
{
    static const char *const texts[] = {"sigmoid(x)", "x * gelu(x) - 0.25", "bfloat16(exp(x))",
                                        "float16(1 / log(x))"};
    test_random random = test_random_named("tables");
    int64_t least = multiprocessors() * 65536 * 3;
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(beyond); i++)
        for (int dtype = 0; dtype < 2; dtype++) {
            if (!device_is_fake() && dtype != (int)(i % 2)) /* 26 million elements each */
                continue;
            case_shape shape = SHAPE(least + beyond[i]);
            check_formula(texts[(i + 2 * (size_t)dtype) % TEST_COUNT(texts)], &shape,
                          dtype ? OG_BFLOAT16 : OG_FLOAT16, i == 1 ? MISALIGNED : CONTIGUOUS,
                          i == 1 || i == 2 ? MISALIGNED : CONTIGUOUS, ANY_BITS, &random);
        }
    end_cases("tables");
}

/* Operands of one element are part of the table. */
static void test_table_of_scalars(void **unused)
{
    test_random random = test_random_named("scalars");
    formula_case c = {.text = "tanh(x * y) + z", .formula = find_formula("tanh(x * y) + z")};
    (void)unused;
    c.input_count = 3;
    for (size_t i = 0; i < c.input_count; i++) {
        placed *p = &c.inputs[i];
        *p = (placed){.dtype = i == 1 ? OG_FLOAT32 : OG_FLOAT16, .rank = i == 0};
        p->shape[0] = multiprocessors() * 65536 * 3 + 9;
        place(p, &random, true);
        fill(p, &random, i ? ORDINARY : ANY_BITS);
    }
    run_placed(&c, CONTIGUOUS, &random);
    end_cases("scalars");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_table_of_scalars),
    };
    setenv("OGIVE_SHIM_MULTIPROCESSORS", "2", 1);
    return CASE_RUN(tests);
}
