/* SPDX-License-Identifier: MIT
 *
 * test_cuda_product_odd.c - matrix products on a GPU in odd company, against the CPU, bit by bit:
 * reductions along any dims, chains, an operand used twice, operands whose dims lie in another
 * order than the product's, rows that overlap or repeat. Strict; and by mma.sync, of numbers whose
 * sums are exact in any order. Also what a user can set, and the least time that is said. Runs on
 * the fake device of tests/cuda, or on a real one.
 */
#include "cuda_case.h"

#include <math.h>

typedef struct {
    const char *text;
    case_shape shapes[4];
    const char *gradient; /* by these inputs, if any: "xw" */
} odd_case;

/* Sizes are so that mma.sync takes what it takes: n and k from 128 on. */
static const odd_case odd[] = {
    {"sum(linear(x, w) * y, dim=1)", {SHAPE(5, 128), SHAPE(130, 128), SHAPE(5, 130)}, NULL},
    {"sum((x @ w) * y, dim=2)", {SHAPE(2, 5, 129), SHAPE(2, 129, 131), SHAPE(2, 5, 131)}, NULL},
    {"(x @ w) * y", {SHAPE(2, 5, 129), SHAPE(2, 129, 131), SHAPE(2, 5, 131)}, NULL},
    {"amax(linear(x, w), dim=0)", {SHAPE(7, 128), SHAPE(129, 128)}, NULL},
    {"sum(linear(x, w))", {SHAPE(7, 128), SHAPE(129, 128)}, NULL},
    {"sum(x @ w, dim=(0, 2))", {SHAPE(3, 5, 128), SHAPE(3, 128, 130)}, NULL},
    {"sum(x @ w, dim=0), amax(x @ w, dim=1)", {SHAPE(3, 5, 128), SHAPE(3, 128, 130)}, NULL},
    {"linear(linear(x, w), v)", {SHAPE(3, 128), SHAPE(130, 128), SHAPE(131, 130)}, NULL},
    {"linear(x, w) * w + x", {SHAPE(131, 131), SHAPE(131, 131)}, NULL},
    {"x @ x + t(x)", {SHAPE(130, 130)}, NULL},
    {"x @ t(x)", {SHAPE(129, 140)}, NULL},
    {"amax(linear(x, w), dim=1), sum(linear(x, w), dim=1), amin(linear(x, w), dim=1)",
     {SHAPE(5, 128), SHAPE(200, 128)},
     NULL},
    {"transpose(x @ w, 0, 2)", {SHAPE(3, 5, 128), SHAPE(3, 128, 130)}, NULL},
    {"linear(x, w) + b", {SHAPE(1, 128), SHAPE(130, 128), SHAPE(7, 1)}, NULL},
    {"linear(x, w, b)", {SHAPE(130, 131), SHAPE(129, 131), SHAPE(129), SHAPE(130, 129)}, "xwb"},
    {"sum(linear(x, w), dim=1)", {SHAPE(130, 131), SHAPE(129, 131), SHAPE(130)}, "xw"},
};

static ogive_formula *formula_of(const odd_case *of)
{
    ogive_formula *formula = find_formula(of->text), *gradient;
    static const char *const all[] = {"x", "w", "b"};
    ogive_error error;
    if (!of->gradient)
        return formula;
    TEST_OK(ogive_formula_gradient(formula, all, strlen(of->gradient), &gradient, &error), error);
    return gradient;
}

/* Odd multiples of 1/8 below 2: sums of some thousand products of two are exact in float32, those
 * of three too, so any order gives the same bits. */
static void fill_exact(placed *p, test_random *random)
{
    for (int64_t i = 0; i < p->elements; i++)
        reference_store(p->memory, p->dtype, i,
                        (double)(2 * test_random_below(random, 16) - 15) / 8);
}

/* x (.., m, k) whose rows overlap: each begins one element after the one before. */
static void overlap_rows(placed *p, test_random *random)
{
    free_placed(p);
    place(p, random, true);
    if (p->rank >= 2)
        p->strides[p->rank - 2] = 1;
}

enum { TURNS = 5 }; /* one for each of a case's layouts */

static void check_odd(const odd_case *of, int turn, bool exact, test_random *random)
{
    static const case_layout layouts[TURNS][4] = {{CONTIGUOUS, CONTIGUOUS, TRANSPOSED, CONTIGUOUS},
                                                  {STRIDED, STRIDED, STRIDED, STRIDED},
                                                  {STILL_FIRST, MISALIGNED, PADDED, TRANSPOSED},
                                                  {CONTIGUOUS, STILL_FIRST, STILL_LAST, STRIDED},
                                                  {CONTIGUOUS, TRANSPOSED, STRIDED, STRIDED}};
    formula_case c = {.text = of->text, .formula = formula_of(of)};
    c.input_count = ogive_formula_input_count(c.formula);
    for (size_t t = 0; t < c.input_count; t++) {
        placed *p = &c.inputs[t];
        *p = (placed){.dtype = OG_FLOAT32, .layout = layouts[turn][t], .rank = of->shapes[t].rank};
        memcpy(p->shape, of->shapes[t].shape, sizeof p->shape);
        place(p, random, true);
        if (t == 0 && turn == 4)
            overlap_rows(p, random);
        if (exact)
            fill_exact(p, random);
        else
            fill(p, random, turn % 2 ? SPECIAL : ORDINARY);
    }
    run_placed(&c, turn % 3 == 0 ? CONTIGUOUS : turn % 3 == 1 ? STRIDED : TRANSPOSED, random);
    if (of->gradient)
        ogive_formula_release(c.formula);
}

/* Is this turn one of a case's? A real compiler takes a second for each: layouts are its code, index
 * logic is the fake one's, which has every second turn strict and the others by mma.sync. */
static bool takes_turn(size_t which, int turn, bool exact)
{
    if (!device_is_fake())
        return turn < 2;
    return test_full() || (which + (size_t)turn + exact) % 2 == 0;
}

static void test_strict(void **unused)
{
    test_random random = test_random_named("odd, strict");
    (void)unused;
    case_share = 2;
    for (size_t i = 0; i < TEST_COUNT(odd); i++)
        for (int turn = 0; turn < TURNS; turn++)
            if (takes_turn(i, turn, false))
                check_odd(&odd[i], turn, false, &random);
    end_cases("odd, strict");
}

static void test_mma(void **unused)
{
    test_random random = test_random_named("odd, mma");
    (void)unused;
    case_share = 2;
    setenv("OGIVE_PRODUCT", "mma", 1);
    case_options.precision = OGIVE_FLOAT32;
    for (size_t i = 0; i < TEST_COUNT(odd); i++)
        for (int turn = 0; turn < TURNS; turn++)
            if (takes_turn(i, turn, true))
                check_odd(&odd[i], turn, true, &random);
    case_options.precision = OGIVE_STRICT;
    unsetenv("OGIVE_PRODUCT");
    end_cases("odd, mma");
}

/* ---- which kernel ------------------------------------------------------------------------ */

typedef struct {
    int64_t batch, m, n, k;
    og_dtype dtype;
    bool along; /* w has k side by side, not n */
} matmul_shape;

/* What multiplies, as explain calls it before the tile: bits depend on it. */
static void name_units(const matmul_shape *s, const char *arch, char name[128])
{
    static char explained[4096];
    const int64_t shapes[][3] = {{s->batch, s->m, s->k}, {s->batch, s->k, s->n}};
    const int64_t strides[][3] = {{s->m * s->k, s->k, 1},
                                  {s->n * s->k, s->along ? 1 : s->n, s->along ? s->k : 1}};
    const ogive_options options = {.size = sizeof options, .cuda_arch = arch};
    test_tensor at[2];
    const DLTensor *inputs[2];
    ogive_plan *plan;
    ogive_error error;
    for (int t = 0; t < 2; t++) {
        DLTensor *tensor =
            test_tensor_init(&at[t], NULL, dlpack_of(s->dtype), 3, shapes[t], strides[t]);
        tensor->device = cuda_device;
        inputs[t] = tensor;
    }
    TEST_OK(ogive_plan_create(find_formula("x @ w"), inputs, 2, NULL, 0, &options, &plan, &error),
            error);
    ogive_plan_explain(plan, explained, sizeof explained);
    ogive_plan_release(plan);
    const char *body = strstr(explained, "\n  product, ");
    body = body ? body : strstr(explained, "\n  product on ");
    assert_non_null(body);
    snprintf(name, 128, "%.*s", (int)strcspn(body + 3, ":"), body + 3);
    for (const char *const *end = (const char *const[]){", a warp", ", tiles", NULL}; *end; end++)
        if (strstr(name, *end))
            *strstr(name, *end) = 0;
}

/* Neither the number of rows nor that of products decides. */
static void test_batch_invariance(void **unused)
{
    static const int64_t ns[] = {1, 2, 15, 16, 17, 127, 128, 130};
    static const int64_t ks[] = {1, 15, 16, 63, 64, 100, 128, 300, 5000};
    static const int64_t counts[][2] = {{1, 2},   {1, 15},    {1, 16},     {1, 17},
                                        {1, 70},  {1, 40000}, {2, 1},      {3, 5},
                                        {70, 33}, {30000, 4}, {1100000, 1}};
    static const og_dtype dtypes[] = {OG_FLOAT32, OG_FLOAT16, OG_BFLOAT16};
    static const char *const archs[] = {"80", "90a"};
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(ns) * TEST_COUNT(ks) * 12; i++) {
        matmul_shape s = {
            1,        1, ns[i / 12 % TEST_COUNT(ns)], ks[i / 12 / TEST_COUNT(ns)], dtypes[i % 3],
            i / 3 % 2};
        char alone[128], name[128];
        name_units(&s, archs[i / 6 % 2], alone);
        for (size_t c = 0; c < TEST_COUNT(counts); c++) {
            s.batch = counts[c][0];
            s.m = counts[c][1];
            if (s.batch * s.k > INT32_MAX) /* of halves, a line each to copy: too many blocks */
                continue;
            name_units(&s, archs[i / 6 % 2], name);
            if (strcmp(name, alone) != 0)
                fail_msg("%d x %d x %d x %d, %s, sm_%s, w %s: %s, one row alone: %s", (int)s.batch,
                         (int)s.m, (int)s.n, (int)s.k, og_dtype_name(s.dtype), archs[i / 6 % 2],
                         s.along ? "along k" : "across", name, alone);
        }
    }
}

/* ---- the least time ----------------------------------------------------------------------- */

static double least_seconds(const char *text, const char *arch, og_dtype dtype, bool strict)
{
    const int64_t shapes[][2] = {{1024, 8192}, {8192, 8192}};
    const ogive_options options = {.size = sizeof options,
                                   .cuda_arch = arch,
                                   .precision = strict ? OGIVE_STRICT : OGIVE_FLOAT32};
    test_tensor at[2];
    const DLTensor *inputs[2];
    ogive_kernel_info info;
    ogive_plan *plan;
    ogive_error error;
    ogive_formula *formula = find_formula(text);
    for (int t = 0; t < 2; t++) {
        DLTensor *tensor = test_tensor_init(&at[t], NULL, dlpack_of(dtype), 2, shapes[t], NULL);
        tensor->device = cuda_device;
        inputs[t] = tensor;
    }
    TEST_OK(ogive_plan_create(formula, inputs, ogive_formula_input_count(formula), NULL, 0,
                              &options, &plan, &error),
            error);
    TEST_OK(ogive_plan_kernel(plan, 0, &info, &error), error);
    ogive_plan_release(plan);
    return info.multiply_seconds;
}

/* 2^36 multiply-adds. */
static void test_floor(void **unused)
{
    const double h100 = 0x1p36 / (132 * 1.98e9), a100 = 0x1p36 / (108 * 1.41e9);
    const struct {
        const char *text, *arch;
        og_dtype dtype;
        bool strict;
        double want;
    } cases[] = {{"linear(x, w)", "90a", OG_FLOAT32, false, 3 * h100 / 2048},
                 {"linear(x, w)", "90a", OG_FLOAT32, true, h100 / 128},
                 {"linear(x, w)", "90a", OG_BFLOAT16, false, h100 / 2048},
                 {"linear(x, w)", "90a", OG_FLOAT64, false, h100 / 64},
                 {"linear(x, w)", "80", OG_FLOAT32, false, 3 * a100 / 1024},
                 {"linear(x, w)", "80", OG_FLOAT16, true, a100 / 64},
                 {"sum(linear(x, w), dim=1)", "90a", OG_FLOAT32, false, 3 * h100 / 2048},
                 {"sigmoid(x)", "90a", OG_FLOAT32, false, 0}};
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        double got = least_seconds(cases[i].text, cases[i].arch, cases[i].dtype, cases[i].strict);
        if (!(fabs(got - cases[i].want) <= 1e-9 * cases[i].want))
            fail_msg("case %zu: %g s, expected %g", i, got, cases[i].want);
    }
}

/* ---- overrides --------------------------------------------------------------------------- */

/* Of linear(x, w) for an H100: its error, or NULL. */
static const char *plan_halves(char *explained, size_t capacity, ogive_error *error)
{
    const int64_t shapes[][2] = {{500, 256}, {512, 256}};
    const ogive_options options = {.size = sizeof options, .cuda_arch = "90a"};
    test_tensor at[2];
    const DLTensor *inputs[2];
    ogive_plan *plan;
    for (int t = 0; t < 2; t++) {
        DLTensor *tensor =
            test_tensor_init(&at[t], NULL, dlpack_of(OG_FLOAT16), 2, shapes[t], NULL);
        tensor->device = cuda_device;
        inputs[t] = tensor;
    }
    if (ogive_plan_create(find_formula("linear(x, w)"), inputs, 2, NULL, 0, &options, &plan,
                          error) != OGIVE_OK)
        return error->message;
    ogive_plan_explain(plan, explained, capacity);
    ogive_plan_release(plan);
    return NULL;
}

static const struct {
    const char *name, *value, *said; /* by the error, or by explain */
    bool is_taken;
} overrides[] = {
    {"OGIVE_PRODUCT", "cores", "no tensor cores: OGIVE_PRODUCT=cores", true},
    {"OGIVE_PRODUCT", "mma", "no wgmma: OGIVE_PRODUCT=mma", true},
    {"OGIVE_PRODUCT", "sm90", "product on tensor cores, tiles", true},
    {"OGIVE_PRODUCT", "", "product on tensor cores, tiles", true},
    {"OGIVE_PRODUCT", "wgmma", "OGIVE_PRODUCT is 'wgmma': expected cores, mma or sm90", false},
    {"OGIVE_PRODUCT", "mma ", "OGIVE_PRODUCT is 'mma '", false},
    {"OGIVE_TILE", "128x256", "tiles of 128 x 256:", true},
    {"OGIVE_TILE", "128x64w", "tiles of 128 x 64, two sharing their columns", true},
    {"OGIVE_TILE", "64x128x", "tiles of 64 x 128, two sharing their rows", true},
    {"OGIVE_TILE", "", "product on tensor cores, tiles", true},
    {"OGIVE_TILE", "junk", "OGIVE_TILE is 'junk': expected 64 or 128 rows", false},
    {"OGIVE_TILE", "64x128zz", "OGIVE_TILE is", false},
    {"OGIVE_TILE", "64x100", "OGIVE_TILE is", false},
    {"OGIVE_TILE", "99999999999999999999x64", "OGIVE_TILE is", false},
};

/* A word that means nothing is an error: whoever sets it is measuring something. */
static void test_overrides(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(overrides); i++) {
        static char explained[4096];
        ogive_error error;
        setenv(overrides[i].name, overrides[i].value, 1);
        const char *failed = plan_halves(explained, sizeof explained, &error);
        unsetenv(overrides[i].name);
        const char *text = failed ? failed : explained;
        if (!failed != overrides[i].is_taken || !strstr(text, overrides[i].said))
            fail_msg("%s=%s: %s", overrides[i].name, overrides[i].value, text);
        if (failed)
            assert_int_equal(error.status, OGIVE_ARGUMENT);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_batch_invariance),
                                       cmocka_unit_test(test_floor),
                                       cmocka_unit_test(test_overrides),
                                       cmocka_unit_test(test_strict), cmocka_unit_test(test_mma)};
    setenv("OGIVE_SHIM_MULTIPROCESSORS", "3", 1);
    return CASE_RUN(tests);
}
