/* SPDX-License-Identifier: MIT
 *
 * test_cuda_shim_reductions.c - reductions on CUDA against the CPU's, bit by bit: rows,
 * columns, several dims, norms, of every length that a body treats in its own way. See
 * test_cuda_shim.c.
 */
#include "cuda_case.h"

/* What a row's length, dtype and layout each change in the source of a kernel would be
 * thousands of sources if they were all combined: each formula has one dtype, a
 * round of layouts, and of the rows or columns beside the second number a third;
 * OGIVE_TEST_FULL=1 combines them all. */
static void check_lengths(const char *const *formulas, size_t count, const int64_t *others,
                          size_t other_count, bool rows, test_random *random)
{
    for (size_t f = 0; f < count; f++)
        for (size_t i = 0; i < TEST_COUNT(sizes); i++)
            for (size_t o = 0; o < other_count; o++) {
                if (others[o] * sizes[i] > 140000 || (sizes[i] == 0 && strstr(formulas[f], "amax")))
                    continue;
                if (!test_full() && o != 1 && (f + i + o) % 3)
                    continue;
                case_shape shape = SHAPE(others[o], sizes[i]), turned = SHAPE(sizes[i], others[o]);
                const case_shape *at = rows ? &shape : &turned;
                for (int dtype = 0; dtype < OG_FLOAT_COUNT; dtype++)
                    if (test_full() || dtype == (int)(f % 4) || (f == 0 && i % 4 == 1 && o == 1))
                        check_formula(formulas[f], at, (og_dtype)dtype, CONTIGUOUS, CONTIGUOUS,
                                      dtype == OG_FLOAT64 || i % 2 ? ORDINARY : SPECIAL, random);
                for (int layout = 1; layout < LAYOUT_COUNT; layout++)
                    if (test_full() || (f % 4 == 0 && o == 1 && (int)i % 7 + 1 == layout))
                        check_formula(formulas[f], at, OG_FLOAT32, (case_layout)layout, CONTIGUOUS,
                                      ORDINARY, random);
            }
}

static void test_rows(void **unused)
{
    static const char *const formulas[] = {
        "sum(x, dim=-1)",     "amax(x, dim=-1), amin(x, dim=-1), mean(x * x, dim=-1)",
        "var(x, dim=-1)",     "logsumexp(x, dim=-1)",
        "softmax(x, dim=-1)", "log_softmax(x, dim=-1)",
    };
    static const int64_t rows[] = {1, 3, 40};
    test_random random = test_random_named("rows");
    (void)unused;
    case_share = 3;
    check_lengths(formulas, TEST_COUNT(formulas), rows, TEST_COUNT(rows), true, &random);
    end_cases("rows");
}

static void test_columns(void **unused)
{
    static const char *const formulas[] = {
        "sum(x, dim=0)",       "amax(x, dim=0), mean(x, dim=0)",
        "softmax(x, dim=0)",   "std(x, dim=0)",
        "logsumexp(x, dim=0)", "logsumexp(tanh(x), dim=0) + 1",
    };
    static const int64_t columns[] = {1, 33, 100, 257};
    test_random random = test_random_named("columns");
    (void)unused;
    case_share = 3;
    check_lengths(formulas, TEST_COUNT(formulas), columns, TEST_COUNT(columns), false, &random);
    end_cases("columns");
}

/* Middle dims, several dims, all of them; norms; what comes before and after. */
static void test_reductions(void **unused)
{
    static const struct {
        const char *text;
        case_shape shapes[4];
    } cases[] = {
        {"sum(x, dim=1)", {SHAPE(5, 70, 33), SHAPE(3, 513, 2), SHAPE(2, 3, 700), SHAPE(1, 64, 64)}},
        {"sum(x, dim=(0, 2))",
         {SHAPE(5, 70, 33), SHAPE(40, 3, 600), SHAPE(2, 2, 2), SHAPE(9, 1, 9)}},
        {"sum(x), amax(x)", {SHAPE(5, 70, 33), SHAPE(3), SHAPE(1, 1), SHAPE(300, 301)}},
        {"mean(x, dim=(1, 2), keepdim=true) + x",
         {SHAPE(5, 7, 33), SHAPE(40, 3, 600), SHAPE(2, 2, 2), SHAPE(9, 1, 9)}},
        {"softmax(x, dim=1)",
         {SHAPE(5, 70, 33), SHAPE(3, 513, 2), SHAPE(2, 3, 700), SHAPE(1, 64, 1)}},
        /* One row, for which a block has threads to spare. */
        {"softmax(x, dim=0) + x - mean(x)", {SHAPE(3), SHAPE(6), SHAPE(12), SHAPE(60)}},
        {"std(x, dim=0), sum(x, dim=1)",
         {SHAPE(50, 33), SHAPE(513, 20), SHAPE(3, 700), SHAPE(64, 64)}},
        {"sum(sigmoid(x) * y, dim=1, keepdim=true) * x - amax(y, dim=1, keepdim=true)",
         {SHAPE(5, 70), SHAPE(3, 513), SHAPE(20, 64), SHAPE(2, 17000)}},
        {"m = amax(x, dim=-1, keepdim=true); sum(exp(x - m) * y, dim=-1) / sum(y, dim=-1)",
         {SHAPE(5, 70), SHAPE(3, 513), SHAPE(20, 64), SHAPE(2, 17000)}},
    };
    test_random random = test_random_named("reductions");
    (void)unused;
    case_share = 2;
    for (size_t i = 0; i < TEST_COUNT(cases); i++)
        for (size_t s = 0; s < 4; s++)
            for (int layout = 0; layout < LAYOUT_COUNT; layout++) {
                if (!test_full() && layout && layout != (int)(1 + (i + s) % 7))
                    continue;
                case_layout out = layout == STILL_LAST || layout == STILL_FIRST
                                      ? STRIDED
                                      : (case_layout)(layout % 5);
                og_dtype dtype = (og_dtype)((s + (size_t)layout) % 4);
                check_formula(cases[i].text, &cases[i].shapes[s], dtype, (case_layout)layout, out,
                              layout % 3 || dtype == OG_FLOAT64 ? ORDINARY : SPECIAL, &random);
            }
    end_cases("reductions");
}

/* Variances of rows that are read once for them (sqdev of plan.h): chunks that are whole or not,
 * the last with less than a lane's element, several of one pass, beside sumexp, rows of several dims;
 * and what is next to it, rows that are one element too short. */
static void test_deviations(void **unused)
{
    static const struct {
        const char *text;
        case_shape shape;
        og_dtype dtype;
    } cases[] = {
        {"var(x, dim=-1)", SHAPE(2, 65537), OG_FLOAT32},
        {"var(x, dim=-1)", SHAPE(2, 65536), OG_FLOAT32},
        {"std(x, dim=-1), mean(x, dim=-1)", SHAPE(3, 81920), OG_FLOAT32},
        {"layer_norm(x, 66000)", SHAPE(2, 66000), OG_FLOAT32},
        {"layer_norm(x, 140000)", SHAPE(1, 140000), OG_BFLOAT16},
        {"var_mean(x, dim=-1)", SHAPE(1, 131073), OG_FLOAT16},
        {"layer_norm(x, 32769)", SHAPE(2, 32769), OG_FLOAT64},
        {"batch_norm(x, training=true)", SHAPE(40, 2, 1700), OG_FLOAT32},
        {"instance_norm(x)", SHAPE(1, 2, 70100), OG_FLOAT32},
        {"group_norm(x, 2)", SHAPE(1, 6, 23000), OG_FLOAT32},
        {"var(x, dim=-1), var(tanh(x), dim=-1), amax(x, dim=-1)", SHAPE(2, 66001), OG_FLOAT32},
        {"softmax(x, dim=-1) * std(x, dim=-1, keepdim=true)", SHAPE(2, 66001), OG_FLOAT32},
        {"d = x - mean(x, -1, true); d, sum(square(d), -1), sum(d * y, -1)", SHAPE(2, 66001),
         OG_FLOAT32},
        {"var(x)", SHAPE(600, 15000), OG_FLOAT32},              /* more than 512 chunks */
        {"var(x * 3e18, dim=-1)", SHAPE(2, 65537), OG_FLOAT32}, /* squares too large for it: inf */
    };
    test_random random = test_random_named("deviations");
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        check_formula(cases[i].text, &cases[i].shape, cases[i].dtype, CONTIGUOUS, CONTIGUOUS,
                      ORDINARY, &random);
        if (i % 3 == 0 && cases[i].dtype == OG_FLOAT32)
            check_formula(cases[i].text, &cases[i].shape, cases[i].dtype, CONTIGUOUS, CONTIGUOUS,
                          SPECIAL, &random);
        if (i % 4 == 0)
            check_formula(cases[i].text, &cases[i].shape, cases[i].dtype, STRIDED, CONTIGUOUS,
                          ORDINARY, &random);
    }
    end_cases("deviations");
}

static void test_norms(void **unused)
{
    static const int64_t widths[] = {1, 2, 31, 64, 513, 1024, 4096, 16385};
    static const char *const texts[] = {"layer_norm(x, %lld)", "rms_norm(x, %lld)",
                                        "layer_norm(x, %lld, w, b) + x",
                                        "rms_norm(x, %lld, w, 0.01)"};
    test_random random = test_random_named("norms");
    (void)unused;
    case_share = 2;
    for (size_t f = 0; f < TEST_COUNT(texts); f++)
        for (size_t i = 0; i < TEST_COUNT(widths); i++) {
            char text[64];
            snprintf(text, sizeof text, texts[f], (long long)widths[i]);
            formula_case c = {.text = text, .formula = find_formula(text)};
            c.input_count = ogive_formula_input_count(c.formula);
            og_dtype dtype = (og_dtype)((f + i) % 4);
            for (size_t t = 0; t < c.input_count; t++) {
                placed *p = &c.inputs[t];
                *p = (placed){.dtype = dtype, .rank = t ? 1 : 2, .layout = (case_layout)(i % 3)};
                p->shape[0] = t ? widths[i] : 1 + (int64_t)i % 5;
                p->shape[1] = widths[i];
                place(p, &random, true);
                fill(p, &random, ORDINARY);
            }
            run_placed(&c, i % 2 ? CONTIGUOUS : PADDED, &random);
        }
    end_cases("norms");
}

/* Rows whose squares overflow or vanish, in every body: passes with a guard run for some of them. */
static void test_magnitudes(void **unused)
{
    static const char *const texts[] = {"std(x, dim=-1)", "norm(x, dim=-1)",
                                        "x / norm(x, 2, -1, true)", "var_mean(x, dim=-1)",
                                        "cosine_similarity(x, y, dim=-1)"};
    static const int64_t widths[] = {2,    3,    17,    33,    100,   513,
                                     1024, 5000, 16384, 16385, 20000, 70001};
    static const struct {
        const char *text;
        case_shape shape;
    } cases[] = {
        {"layer_norm(x, 7, eps=1e-30)", SHAPE(40, 7)},
        {"layer_norm(x, 1025)", SHAPE(9, 1025)},
        {"layer_norm(x, 4096, eps=0)", SHAPE(3, 4096)},
        {"layer_norm(x, 20000, eps=1e-30)", SHAPE(4, 20000)},
        {"layer_norm(x, 70001)", SHAPE(3, 70001)},
        {"rms_norm(x, 16400, eps=0)", SHAPE(3, 16400)},
        {"rms_norm(x, 300)", SHAPE(19, 300)},
        {"std(x, dim=0)", SHAPE(30, 70)},
        {"std(x, dim=0), var(x, dim=0), norm(x, dim=0)", SHAPE(5000, 9)},
        {"norm(x, dim=1)", SHAPE(2, 70000, 3)},
        {"std(x, dim=0) + softmax(x, dim=0)", SHAPE(9000, 2)},
        {"batch_norm(x, training=true)", SHAPE(40, 2, 1700)},
        {"batch_norm(x, training=true)", SHAPE(50, 7)},
        {"instance_norm(x)", SHAPE(1, 2, 70100)},
        {"instance_norm(x, eps=1e-30)", SHAPE(3, 5, 190)},
        {"group_norm(x, 2)", SHAPE(2, 6, 230)},
        {"group_norm(x, 2)", SHAPE(1, 6, 23000)},
        {"softmax(x, dim=-1) * std(x, dim=-1, keepdim=true)", SHAPE(2, 20001)},
        {"normalize(x)", SHAPE(30, 40)},
        {"pairwise_distance(x, y, eps=0)", SHAPE(11, 90)},
        {"std(x), norm(x)", SHAPE(600, 150)},
        {"norm(linear(x, y), dim=1)", SHAPE(20, 20)},
    };
    test_random random = test_random_named("magnitudes");
    (void)unused;
    case_share = 2;
    for (size_t i = 0; i < TEST_COUNT(widths); i++)
        for (size_t f = 0; f < TEST_COUNT(texts); f++) {
            case_shape shape = SHAPE(widths[i] > 9999 ? 5 : 70, widths[i]);
            if (f % 2 == i % 2 || widths[i] > 9999)
                check_formula(texts[f], &shape, f == i % 5 ? OG_BFLOAT16 : OG_FLOAT32, CONTIGUOUS,
                              CONTIGUOUS, MAGNITUDES, &random);
        }
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        check_formula(cases[i].text, &cases[i].shape, OG_FLOAT32, CONTIGUOUS, CONTIGUOUS,
                      MAGNITUDES, &random);
        check_formula(cases[i].text, &cases[i].shape, i % 3 ? OG_FLOAT32 : OG_BFLOAT16,
                      i % 2 ? STRIDED : PADDED, CONTIGUOUS, MAGNITUDES, &random);
    }
    end_cases("magnitudes");
}

/* What comes after a product's reduction, per element or where there is but one: a second
 * pass, which a kernel with a product does not make. */
static void test_after_products(void **unused)
{
    static const struct {
        const char *text;
        case_shape shapes[3];
    } cases[] = {
        {"sum(linear(x, w), dim=1, keepdim=true) + y",
         {SHAPE(5, 70), SHAPE(133, 70), SHAPE(5, 133)}},
        {"sum(linear(x, w), dim=1, keepdim=true) * y", {SHAPE(5, 70), SHAPE(1, 70), SHAPE(5, 1)}},
        {"amax(sum(x @ w, dim=1, keepdim=true) * y, dim=1)",
         {SHAPE(5, 70), SHAPE(70, 33), SHAPE(5, 33)}},
        {"sum(x @ w) * y", {SHAPE(70), SHAPE(70), SHAPE(1)}},
        {"sum(x @ w, dim=-1, keepdim=true) * y", {SHAPE(70), SHAPE(70, 1), SHAPE(1, 1)}},
    };
    test_random random = test_random_named("after products");
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        formula_case c = {.text = cases[i].text, .formula = find_formula(cases[i].text)};
        c.input_count = ogive_formula_input_count(c.formula);
        for (size_t t = 0; t < c.input_count; t++) {
            placed *p = &c.inputs[t];
            *p = (placed){.dtype = OG_FLOAT32, .rank = cases[i].shapes[t].rank};
            memcpy(p->shape, cases[i].shapes[t].shape, sizeof p->shape);
            place(p, &random, true);
            fill(p, &random, ORDINARY);
        }
        run_placed(&c, CONTIGUOUS, &random);
    }
    end_cases("after products");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),           cmocka_unit_test(test_columns),
        cmocka_unit_test(test_reductions),     cmocka_unit_test(test_deviations),
        cmocka_unit_test(test_norms),          cmocka_unit_test(test_magnitudes),
        cmocka_unit_test(test_after_products),
    };
    return CASE_RUN(tests);
}
