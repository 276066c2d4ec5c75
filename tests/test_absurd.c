/* SPDX-License-Identifier: MIT
 *
 * test_absurd.c - what no honest caller does: extents near 2^63, strides of INT64_MIN, formulas
 * of a hundred kilobytes, another rounding mode, a small stack. An error or a result, soon; never
 * undefined behaviour (the sanitizers look on).
 */
#include "api_case.h"

#include <fenv.h>
#include <pthread.h>
#include <time.h>

/* ---- extents and strides --------------------------------------------------------------- */

/* Plans "x + 1" of that layout, into an output of the same. */
static ogive_status plan_layout(int32_t rank, int64_t *shape, int64_t *strides)
{
    ogive_formula *formula = make("x + 1");
    DLTensor x = {.device = {kDLCPU, 0},
                  .ndim = rank,
                  .dtype = {kDLFloat, 32, 1},
                  .shape = shape,
                  .strides = strides};
    const DLTensor *tensors[] = {&x};
    ogive_plan *plan;
    ogive_status status = ogive_plan_create(formula, tensors, 1, tensors, 1, NULL, &plan, &error);
    ogive_plan_release(plan);
    ogive_formula_release(formula);
    return status;
}

static void test_huge_empty_output(void **state)
{
    (void)state;
    assert_int_equal(plan_layout(3, (int64_t[]){(int64_t)1 << 62, 4, 0}, NULL), OGIVE_OK);
    assert_int_equal(plan_layout(2, (int64_t[]){INT64_MAX, 0}, (int64_t[]){INT64_MIN, INT64_MIN}),
                     OGIVE_OK);
    assert_int_equal(plan_layout(2, (int64_t[]){INT64_MAX, INT64_MAX}, NULL), OGIVE_SHAPE);
}

/* Of rows without elements nothing is computed, unless it is a result. */
static void test_many_empty_rows(void **state)
{
    (void)state;
    ogive_formula *formulas[] = {make("softmax(x, dim=0)"), make("x - mean(x, dim=0)"),
                                 make("x / sum(exp(x), dim=0)")};
    int64_t shape[2] = {0, (int64_t)1 << 60};
    DLTensor x = {.device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = shape};
    const DLTensor *tensors[] = {&x};
    alarm(60); /* each column would take its time */
    for (int i = 0; i < 3; i++) {
        TEST_OK(ogive_run(formulas[i], tensors, 1, tensors, 1, NULL, &error), error);
        ogive_formula_release(formulas[i]);
    }
    alarm(0);
}

/* The stride of an extent of 1 leads nowhere. */
static void test_stride_of_one_element(void **state)
{
    (void)state;
    ogive_formula *formula = make("x + 1");
    int64_t shape[2] = {1, 1}, strides[2] = {INT64_MIN, INT64_MIN};
    float in = 1, out = 0;
    DLTensor x = {.data = &in,
                  .device = {kDLCPU, 0},
                  .dtype = {kDLFloat, 32, 1},
                  .shape = shape,
                  .strides = strides},
             y = x;
    const DLTensor *inputs[] = {&x}, *outputs[] = {&y};
    y.data = &out;
    for (int32_t rank = 1; rank <= 2; rank++) {
        x.ndim = y.ndim = rank;
        out = 0;
        TEST_OK(ogive_run(formula, inputs, 1, outputs, 1, NULL, &error), error);
        assert_true(out == 2);
    }
    ogive_formula_release(formula);
}

/* Many sums over a product of 2^61 elements, which is never stored: the sizes of its parts
 * are bounded, not wrapped around. */
static void test_sums_over_huge_product(void **state)
{
    (void)state;
    char text[40000] = "g = x @ y; sum(g, dim=-1)";
    for (int i = 2; i < 1000; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "+sum(g*%d,dim=-1)", i);
    ogive_formula *formula = make(text);
    for (int bits = 20; bits <= 58; bits += 19) {
        int64_t rows[2] = {(int64_t)1 << bits, 4}, cols[2] = {4, 8}, none[2] = {0, 0};
        DLTensor x = {.device = {kDLCPU, 0},
                      .ndim = 2,
                      .dtype = {kDLFloat, 32, 1},
                      .shape = rows,
                      .strides = none},
                 y = x;
        y.shape = cols;
        const DLTensor *inputs[] = {&x, &y};
        for (int32_t threads = 1; threads <= 64; threads *= 8) {
            ogive_options options = {.size = sizeof options, .threads = threads};
            ogive_plan *plan;
            ogive_status status =
                ogive_plan_create(formula, inputs, 2, NULL, 0, &options, &plan, &error);
            assert_true(status == OGIVE_OK || status == OGIVE_MEMORY);
            ogive_plan_release(plan);
        }
    }
    ogive_formula_release(formula);
}

/* ---- long formulas ---------------------------------------------------------------------- */

static double process_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Plans and explains text for inputs (8, 8) and, if it has few of them, runs it. */
static void plan_text(const char *what, const char *text)
{
    static float values[64], results[64][64];
    double start = process_seconds();
    ogive_formula *formula = make(text);
    size_t count = ogive_formula_input_count(formula);
    size_t result_count = ogive_formula_result_count(formula);
    int64_t shape[2] = {8, 8};
    DLTensor x = {.data = values,
                  .device = {kDLCPU, 0},
                  .ndim = 2,
                  .dtype = {kDLFloat, 32, 1},
                  .shape = shape};
    const DLTensor **inputs = calloc(count, sizeof *inputs);
    const void **data = calloc(count, sizeof *data);
    void *outputs[64];
    for (size_t i = 0; i < count; i++) {
        inputs[i] = &x;
        data[i] = values;
    }
    for (size_t i = 0; i < result_count; i++)
        outputs[i] = results[i];
    ogive_plan *plan;
    TEST_OK(ogive_plan_create(formula, inputs, count, NULL, 0, NULL, &plan, &error), error);
    assert_true(ogive_plan_explain(plan, NULL, 0) > strlen("kernel"));
    size_t bytes = ogive_plan_workspace(plan);
    void *workspace = aligned_alloc(64, (bytes + 64) & ~(size_t)63);
    TEST_OK(ogive_plan_run(plan, data, outputs, workspace, NULL, &error), error);
    free(workspace);
    ogive_plan_release(plan);
    ogive_formula_release(formula);
    free(inputs);
    free(data);
    double seconds = process_seconds() - start;
    if (seconds > (TEST_SANITIZED ? 60 : 6))
        fail_msg("%s, %zu bytes: %.1f seconds", what, strlen(text), seconds);
}

/* first, then format, # being i and $ i - 1, for i = 1 to count - 1, then last. */
static char *repeat(const char *first, const char *format, int count, const char *last)
{
    size_t capacity = strlen(first) + strlen(last) + (strlen(format) + 24) * (size_t)count + 1;
    char *text = malloc(capacity), *at = text + snprintf(text, capacity, "%s", first);
    for (int i = 1; i < count; i++)
        for (const char *c = format; *c; c++) {
            if (*c == '#')
                at += sprintf(at, "%d", i);
            else if (*c == '$')
                at += sprintf(at, "%d", i - 1);
            else
                *at++ = *c;
        }
    strcpy(at, last);
    return text;
}

/* Each took minutes, and one a gigabyte, while time grew with the square of the length. */
static void test_long_formulas(void **state)
{
    (void)state;
    static const struct {
        const char *what, *first, *format, *last;
        int count;
    } cases[] = {
        {"many inputs", "q0_", "+q#_", "", 20000},
        {"a chain", "x0=x;", "x#=x$*sigmoid(x$);", "x7999", 8000},
        {"softmax after softmax", "x0=x;", "x#=softmax(x$,1);", "x1499", 1500},
        {"a pass after a pass", "x0=x;", "x#=x+sum(x$,dim=1);", "x2999", 3000},
        {"sums along a chain", "x0=x;r0=x;", "x#=x$*sigmoid(x$);r#=r$+sum(x#);", "r1999", 2000},
        {"many sums", "sum(x)", "+sum(x*#.5,dim=1)", "", 8000},
        {"many products", "x", "+x@y#", "", 1500},
        {"both ways", "x0=x;", "x#=where(x$>transpose(x$,0,1),x$,sum(x$,dim=0));", "x799", 800},
    };
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        char *text = repeat(cases[i].first, cases[i].format, cases[i].count, cases[i].last);
        plan_text(cases[i].what, text);
        free(text);
    }
    /* Many inputs that each of many results needs. */
    char *sum = repeat("s=q0_", "+q#_", 10000, ";s"), *results = repeat("", ",s+#", 64, "");
    char *text = malloc(strlen(sum) + strlen(results) + 1);
    sprintf(text, "%s%s", sum, results);
    plan_text("many inputs and results", text);
    free(text);
    free(sum);
    free(results);
}

/* A file for PyTorch of more numbers than a kernel takes, or of more names than it may have, is
 * refused before it is written; the latter before anything is planned. */
static void test_long_formulas_in_a_file(void **state)
{
    (void)state;
    static const struct {
        const char *first, *format, *last, *message;
        int count;
        double seconds;
    } cases[] = {
        {"x", "+x*#.5", "", "4096 bytes of arguments", 4000, 6},
        {"x0=x;", "x#=softmax(x$,1);", "x999", "at most 256 names", 1000, 0.5},
    };
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        char *text = repeat(cases[i].first, cases[i].format, cases[i].count, cases[i].last);
        ogive_formula *formula = make(text);
        size_t length;
        double start = process_seconds();
        assert_int_equal(ogive_formula_pytorch(formula, NULL, 0, NULL, NULL, 0, &length, &error),
                         OGIVE_UNSUPPORTED);
        assert_non_null(strstr(error.message, cases[i].message));
        assert_true(TEST_SANITIZED || process_seconds() - start < cases[i].seconds);
        ogive_formula_release(formula);
        free(text);
    }
}

/* What is cut into several kernels has the bits of its parts, one after the other. */
static void test_long_chain_bits(void **state)
{
    (void)state;
    static float want[64], got[64], other[64];
    int64_t shape[2] = {8, 8};
    DLTensor x = {.device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = shape},
             y = x;
    const DLTensor *inputs[] = {&x}, *outputs[] = {&y};
    char *text = repeat("x0=x;", "y#=softmax(x$ * 3.7, 1); x#=softmax(y# * 3.7, 0);", 150, "x149");
    for (int i = 0; i < 64; i++)
        want[i] = (float)(i * 37 % 64) / 16;
    ogive_formula *whole = make(text),
                  *parts[] = {make("softmax(x * 3.7, 0)"), make("softmax(x * 3.7, 1)")};
    x.data = want;
    y.data = got;
    TEST_OK(ogive_run(whole, inputs, 1, outputs, 1, NULL, &error), error);
    y.data = other;
    for (int i = 2; i < 300; i++) {
        TEST_OK(ogive_run(parts[(i + 1) % 2], inputs, 1, outputs, 1, NULL, &error), error);
        memcpy(want, other, sizeof want);
    }
    assert_memory_equal(got, want, sizeof got);
    for (int i = 0; i < 2; i++)
        ogive_formula_release(parts[i]);
    ogive_formula_release(whole);
    free(text);
}

/* ---- rounding modes ---------------------------------------------------------------------- */

/* formula's file for PyTorch, or, for a plan, its explanation. */
static char *write_text(const ogive_formula *formula, const ogive_plan *plan)
{
    size_t length = 0;
    if (plan)
        length = ogive_plan_explain(plan, NULL, 0);
    else
        TEST_OK(ogive_formula_pytorch(formula, NULL, 0, NULL, NULL, 0, &length, &error), error);
    char *text = malloc(length + 1);
    if (plan)
        ogive_plan_explain(plan, text, length + 1);
    else
        TEST_OK(ogive_formula_pytorch(formula, NULL, 0, NULL, text, length + 1, &length, &error),
                error);
    return text;
}

static void test_text_in_any_rounding_mode(void **state)
{
    (void)state;
    static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    test_random random = test_random_named("rounding");
    int64_t shape[1] = {4};
    DLTensor x = {.device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = shape};
    const DLTensor *inputs[] = {&x};
    for (int i = 0; i < 60; i++) {
        char number[64];
        snprintf(number, sizeof number, "x * %.17g", test_random_range(&random, 1000, 1023));
        ogive_formula *formula = make(number);
        ogive_plan *plan;
        TEST_OK(ogive_plan_create(formula, inputs, 1, NULL, 0, NULL, &plan, &error), error);
        for (int which = 0; which < 2; which++) {
            char *want = write_text(formula, which ? plan : NULL);
            fesetround(modes[i % 3]);
            char *got = write_text(formula, which ? plan : NULL);
            int mode = fegetround();
            fesetround(FE_TONEAREST);
            assert_int_equal(mode, modes[i % 3]);
            assert_string_equal(got, want);
            free(got);
            free(want);
        }
        ogive_plan_release(plan);
        ogive_formula_release(formula);
    }
}

/* ---- a small stack ------------------------------------------------------------------------ */

enum { STACK_BYTES = 512 << 10 }; /* what ogive.h asks for */

static void *use_stack(void *context)
{
    ogive_error problem;
    ogive_formula *formula, *gradient;
    const char *names[] = {"x"};
    float in[64] = {0}, out[64];
    int64_t shape[2] = {8, 8};
    DLTensor x = {.data = in,
                  .device = {kDLCPU, 0},
                  .ndim = 2,
                  .dtype = {kDLFloat, 32, 1},
                  .shape = shape},
             y = x;
    const DLTensor *inputs[] = {&x}, *outputs[] = {&y};
    size_t length;
    y.data = out;
    bool good =
        ogive_formula_create(context, OGIVE_TEXT, &formula, &problem) == OGIVE_OK &&
        ogive_run(formula, inputs, 1, outputs, 1, NULL, &problem) == OGIVE_OK &&
        ogive_formula_gradient(formula, names, 1, &gradient, &problem) == OGIVE_OK &&
        ogive_formula_pytorch(formula, NULL, 0, NULL, NULL, 0, &length, &problem) != OGIVE_ARGUMENT;
    if (good)
        ogive_formula_release(gradient);
    else
        fprintf(stderr, "%s\n", problem.message);
    ogive_formula_release(formula);
    return good ? context : NULL;
}

static void test_small_stack(void **state)
{
    (void)state;
    static const char *const nested[][2] = {
        {"(", ")"}, {"softmax(", ",1)"}, {"-", ""}, {"where(x>0,", ",x)"}};
    if (TEST_SANITIZED)
        return; /* their frames are larger */
    for (size_t i = 0; i < TEST_COUNT(nested); i++) {
        char text[8000] = "";
        for (int n = 0; n < 250; n++)
            strcat(text, nested[i][0]);
        strcat(text, "x");
        for (int n = 0; n < 250; n++)
            strcat(text, nested[i][1]);
        pthread_attr_t attributes;
        pthread_t thread;
        void *result;
        pthread_attr_init(&attributes);
        assert_int_equal(pthread_attr_setstacksize(&attributes, STACK_BYTES), 0);
        assert_int_equal(pthread_create(&thread, &attributes, use_stack, text), 0);
        assert_int_equal(pthread_join(thread, &result), 0);
        pthread_attr_destroy(&attributes);
        assert_ptr_equal(result, text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_huge_empty_output),
        cmocka_unit_test(test_many_empty_rows),
        cmocka_unit_test(test_stride_of_one_element),
        cmocka_unit_test(test_sums_over_huge_product),
        cmocka_unit_test(test_long_formulas),
        cmocka_unit_test(test_long_formulas_in_a_file),
        cmocka_unit_test(test_long_chain_bits),
        cmocka_unit_test(test_text_in_any_rounding_mode),
        cmocka_unit_test(test_small_stack),
    };
    return TEST_RUN(tests);
}
