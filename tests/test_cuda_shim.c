/* SPDX-License-Identifier: MIT
 *
 * test_cuda_shim.c - the CUDA backend against the CPU's, bit by bit: pointwise kernels,
 * every function, sizes around what bodies divide by, layouts, dtypes; gradients. CTest
 * runs it on the fake device of tests/cuda; scripts/test-gpu on a real one.
 * Reductions are in test_cuda_shim_reductions.c.
 *
 * OGIVE_SHIM_CHECK=1 in the environment checks each access of memory too (slower).
 */
#include "cuda_case.h"

/* ---- pointwise ----------------------------------------------------------------------- */

static void test_sizes(void **unused)
{
    test_random random = test_random_named("sizes");
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(sizes); i++)
        for (int dtype = 0; dtype < OG_FLOAT_COUNT; dtype++)
            for (int layout = 0; layout < LAYOUT_COUNT; layout++) {
                case_shape shape = SHAPE(sizes[i]);
                case_layout results = layout == STILL_LAST || layout == STILL_FIRST
                                          ? CONTIGUOUS
                                          : (case_layout)layout;
                check_formula("x * sigmoid(y) + 0.5", &shape, (og_dtype)dtype, (case_layout)layout,
                              results, ORDINARY, &random);
            }
    end_cases("sizes");
}

static void test_layouts(void **unused)
{
    static const case_shape shapes[] = {SHAPE(3, 5),        SHAPE(64, 64),   SHAPE(33, 65),
                                        SHAPE(1, 700),      SHAPE(700, 1),   SHAPE(2, 3, 4, 5),
                                        SHAPE(7, 1, 130),   SHAPE(0, 5),     SHAPE(31, 2, 33),
                                        SHAPE(100, 1, 100), SHAPE(129, 257), {0, {0}}};
    test_random random = test_random_named("layouts");
    (void)unused;
    case_share = 2;
    for (size_t s = 0; s < TEST_COUNT(shapes); s++)
        for (int in = 0; in < LAYOUT_COUNT; in++)
            for (int out = 0; out < LAYOUT_COUNT; out++) {
                if (out == STILL_LAST || out == STILL_FIRST ||
                    (!test_full() && out && out != in && (in + out + (int)s) % 3))
                    continue;
                check_formula("sigmoid(x) - y", &shapes[s], (og_dtype)((in + out) % 4),
                              (case_layout)in, (case_layout)out, SPECIAL, &random);
            }
    end_cases("layouts");
}

/* Operands of different shapes, dtypes and layouts in one kernel. */
static void test_operands(void **unused)
{
    static const struct {
        const char *text;
        case_shape shapes[3];
    } cases[] = {
        {"x + y * z", {SHAPE(40, 70), SHAPE(70), SHAPE(40, 1)}},
        {"x * y, x + z, y - z", {SHAPE(5, 64, 33), SHAPE(64, 1), SHAPE(1)}},
        {"where(x > y, z, x)", {SHAPE(513), SHAPE(1), SHAPE(513)}},
        {"transpose(x, 0, 1) + y * z", {SHAPE(65, 40), SHAPE(40, 65), SHAPE(65)}},
        {"float16(x) * y, bfloat16(y) + z, float64(z)", {SHAPE(1000), SHAPE(1000), SHAPE(1000)}},
    };
    test_random random = test_random_named("operands");
    (void)unused;
    case_share = 2;
    for (size_t i = 0; i < TEST_COUNT(cases); i++)
        for (int round = 0; round < 12; round++) {
            formula_case c = {.text = cases[i].text, .formula = find_formula(cases[i].text)};
            c.input_count = ogive_formula_input_count(c.formula);
            for (size_t t = 0; t < c.input_count; t++) {
                placed *p = &c.inputs[t];
                const case_shape *shape = &cases[i].shapes[t];
                *p =
                    (placed){.dtype = (og_dtype)test_random_below(&random, 4),
                             .layout = round ? (case_layout)test_random_below(&random, LAYOUT_COUNT)
                                             : CONTIGUOUS,
                             .rank = shape->rank};
                memcpy(p->shape, shape->shape, sizeof p->shape);
                place(p, &random, true);
                fill(p, &random, round % 2 ? SPECIAL : ORDINARY);
            }
            run_placed(&c, round % 3 ? STRIDED : CONTIGUOUS, &random);
        }
    end_cases("operands");
}

/* ---- every function ------------------------------------------------------------------- */

/* "leaky_relu(x, 0.25)" of a row; of two tensors x and y. */
static void print_call(const og_function *f, og_text *text)
{
    static const char *const tensors[] = {"x", "y", "z"};
    int tensor = 0, number = 0;
    if (f->kind == OG_MASKING)
        og_text_add(text, "where(");
    og_text_add(text, "%s(", f->name);
    for (const og_parameter *p = f->parameters;
         p->kind == OG_PARAMETER_TENSOR || p->kind == OG_PARAMETER_NUMBER; p++) {
        if (p->kind == OG_PARAMETER_TENSOR)
            og_text_add(text, "%s%s", tensor ? ", " : "", tensors[tensor % 3]);
        else
            og_text_add(text, ", %s", number++ ? "1.5" : "0.75");
        tensor += p->kind == OG_PARAMETER_TENSOR;
    }
    og_text_add(text, f->kind == OG_MASKING ? "), x, y)" : ")");
}

static bool is_pointwise(const og_function *f)
{
    static const char *const groups[] = {"activation", "mathematics", "arithmetic", "cast"};
    if (!f->group || !strcmp(f->name, "prelu")) /* whose weight is one a channel */
        return false;
    for (size_t i = 0; i < TEST_COUNT(groups); i++)
        if (strcmp(f->group, groups[i]) == 0)
            return true;
    return f->kind == OG_MASKING;
}

/* Six functions a kernel, for the compiler's sake. */
static void test_functions(void **unused)
{
    enum { TOGETHER = 6 };
    test_random random = test_random_named("functions");
    og_text text = {0};
    int gathered = 0, functions = 0;
    (void)unused;
    for (og_op op = 0; op <= OG_FUNCTION_COUNT; op++) {
        if (op < OG_FUNCTION_COUNT && is_pointwise(og_function_of(op))) {
            og_text_add(&text, "%s", gathered++ ? ", " : "");
            print_call(og_function_of(op), &text);
            functions++;
        }
        if (gathered < TOGETHER && (op < OG_FUNCTION_COUNT || !gathered))
            continue;
        const case_shape large = SHAPE(8191), small = SHAPE(700);
        check_formula(text.data, &large, OG_FLOAT32, CONTIGUOUS, CONTIGUOUS, ANY_BITS, &random);
        check_formula(text.data, &large, OG_FLOAT32, CONTIGUOUS, CONTIGUOUS, SPECIAL, &random);
        if (functions % 2 == 0) /* half types only change how a value is read and written */
            check_formula(text.data, &small, (og_dtype)(1 + functions % 3 % 2), CONTIGUOUS,
                          CONTIGUOUS, SPECIAL, &random);
        check_formula(text.data, &small, OG_FLOAT64, CONTIGUOUS, CONTIGUOUS, ORDINARY, &random);
        og_text_free(&text);
        text = (og_text){0};
        gathered = 0;
    }
    static const char *const overloaded[] = {
        "pow(x, y), clamp(x, y), clamp(x, max=y), clamp(x, y, z)",
        "binary_cross_entropy(x, y, reduction='none'), 2 ** x, xlogy(x, y)"};
    for (size_t i = 0; i < TEST_COUNT(overloaded); i++) {
        const case_shape large = SHAPE(8191);
        check_formula(overloaded[i], &large, OG_FLOAT32, CONTIGUOUS, CONTIGUOUS, ANY_BITS, &random);
        check_formula(overloaded[i], &large, OG_FLOAT32, CONTIGUOUS, CONTIGUOUS, SPECIAL, &random);
    }
    assert_true(functions > 45);
    end_cases("functions");
}

/* ---- gradients ----------------------------------------------------------------------- */

static void test_gradients(void **unused)
{
    static const char *const texts[] = {
        "sigmoid(x)",
        "sum(sigmoid(x) * y, dim=1)",
        "softmax(x, dim=-1)",
        "layer_norm(x, 33) * y",
        "gelu(x) / (1 + y * y)",
        "logsumexp(x * y, dim=0)",
        "pow(x, y)",
        "clamp(x, -y, y)",
        "huber_loss(x, y, 'none')",
        "x * cosine_similarity(x, y, dim=0)",
        "normalize(x) * y",
    };
    test_random random = test_random_named("gradients");
    const case_shape shape = SHAPE(70, 33);
    (void)unused;
    case_share = 2;
    for (size_t i = 0; i < TEST_COUNT(texts); i++)
        for (int dtype = 0; dtype < OG_FLOAT_COUNT; dtype++) {
            ogive_error error;
            ogive_formula *formula = find_formula(texts[i]), *gradient;
            size_t count = ogive_formula_input_count(formula);
            const char *names[2] = {"x", "y"};
            TEST_OK(ogive_formula_gradient(formula, names, count, &gradient, &error), error);
            formula_case c = {.text = texts[i], .formula = gradient};
            c.input_count = ogive_formula_input_count(gradient);
            for (size_t t = 0; t < c.input_count; t++) {
                placed *p = &c.inputs[t];
                bool is_grad = t == count;
                *p = (placed){.dtype = (og_dtype)dtype,
                              .rank = shape.rank,
                              .layout = (case_layout)(dtype % 4)};
                memcpy(p->shape, shape.shape, sizeof p->shape);
                if (is_grad && (i == 1 || i == 5)) { /* of a reduction's result */
                    p->rank = 1;
                    p->shape[0] = i == 1 ? 70 : 33;
                }
                place(p, &random, true);
                fill(p, &random, ORDINARY);
            }
            run_placed(&c, CONTIGUOUS, &random);
            ogive_formula_release(gradient);
        }
    end_cases("gradients");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),     cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_operands),  cmocka_unit_test(test_functions),
        cmocka_unit_test(test_gradients),
    };
    return CASE_RUN(tests);
}
