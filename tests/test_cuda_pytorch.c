/* SPDX-License-Identifier: MIT
 *
 * test_cuda_pytorch.c - files for PyTorch (src/pytorch): what they must not hold, what is
 * refused and why. tests/python/test_emitted.py runs them, and has NVRTC compile their kernels.
 */
#include "test.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *formula;
    const char *sizes[4]; /* of the inputs: "ab" is 5 x 6, "1" is 1 */
} file_case;

static const file_case cases[] = {
    {.formula = "x * sigmoid(x) + 2.0 * tanh(y)", .sizes = {"ab", "ab"}},
    {.formula = "x / b + c", .sizes = {"abc", "c", "b1"}},
    {.formula = "softmax(x, dim=1)", .sizes = {"ab"}},
    {.formula = "layer_norm(x, 7, w, b)", .sizes = {"ac", "c", "c"}},
    {.formula = "var(x, dim=(0, 2)), logsumexp(x, dim=1), amin(x)", .sizes = {"abc"}},
    {.formula = "sum(sigmoid(linear(x, w, b)), dim=1)", .sizes = {"ab", "cb", "c"}},
    {.formula = "logsumexp(linear(x, w), dim=1)", .sizes = {"ab", "cb"}},
    {.formula = "linear(gelu(linear(x, w)), v)", .sizes = {"ab", "cb", "dc"}},
    {.formula = "silu(linear(x, w)) * linear(x, v)", .sizes = {"ab", "cb", "cb"}},
    {.formula = "tanh(a @ b)", .sizes = {"abc", "acd"}},
    {.formula = "max(x, min(input=y, other=1 - x))", .sizes = {"ab", "ab"}},
    {.formula = "adaptive_avg_pool2d(x, 1)"},
    {.formula = "adaptive_avg_pool1d(x, 1) * s", .sizes = {"abc", "1"}},
    {.formula = "sum(max_pool2d(x, 2), dim=1)", .sizes = {"abcd"}},
    {.formula = "conv1d(x, w, padding='same')", .sizes = {"abg", "cbc"}},
    {.formula = "glu(x, 1) + prelu(y, w)", .sizes = {"abc", "a1c", "1"}},
};

static ogive_status emit(const file_case *of, const ogive_pytorch_options *options, char **text,
                         ogive_error *error)
{
    ogive_formula *formula;
    DLTensor tensors[4];
    int64_t shapes[4][8];
    const DLTensor *inputs[4];
    size_t count = 0, length = 0;
    *text = NULL;
    ogive_status status = ogive_formula_create(of->formula, OGIVE_TEXT, &formula, error);
    if (status)
        return status;
    for (; count < 4 && of->sizes[count]; count++) {
        const char *sizes = of->sizes[count];
        for (size_t d = 0; d < strlen(sizes); d++)
            shapes[count][d] = sizes[d] == '1' ? 1 : sizes[d] - 'a' + 5;
        tensors[count] = (DLTensor){.ndim = (int32_t)strlen(sizes), .shape = shapes[count]};
        inputs[count] = &tensors[count];
    }
    status = ogive_formula_pytorch(formula, count ? inputs : NULL, count, options, NULL, 0, &length,
                                   error);
    if (status == OGIVE_OK && (*text = malloc(length + 1)))
        status = ogive_formula_pytorch(formula, count ? inputs : NULL, count, options, *text,
                                       length + 1, &length, error);
    ogive_formula_release(formula);
    return status;
}

/* Is the word in text, by itself? og_pass0 is another one. */
static bool has_word(const char *text, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at += length) {
        bool begins = at == text || !(isalnum((unsigned char)at[-1]) || at[-1] == '_');
        if (begins && !isalnum((unsigned char)at[length]) && at[length] != '_')
            return true;
    }
    return false;
}

static void test_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        ogive_error error;
        char *text;
        if (emit(&cases[i], NULL, &text, &error))
            fail_msg("%s: %s", cases[i].formula, error.message);
        assert_non_null(strstr(text, "class ModelNew(nn.Module):"));
        assert_false(has_word(text, "pass")); /* words that a benchmark refuses anywhere */
        assert_false(has_word(text, "try"));
        assert_false(has_word(text, "except"));
        free(text);
    }
}

/* Of reductions and norms a file serves every size: none need be given. */
static void test_every_size(void **state)
{
    (void)state;
    static const char *const formulas[] = {"std(x, dim=1)",  "x - std(x)",   "var(x, dim=0)",
                                           "norm(x, dim=0)", "normalize(x)", "softmax(x, 1)",
                                           "mean(x, dim=1)"};
    for (size_t i = 0; i < TEST_COUNT(formulas); i++) {
        ogive_error error;
        char *text;
        if (emit(&(file_case){.formula = formulas[i]}, NULL, &text, &error))
            fail_msg("%s: %s", formulas[i], error.message);
        if (strstr(text, "of these shapes"))
            fail_msg("%s: made for shapes that nobody gave", formulas[i]);
        free(text);
    }
}

static void test_text_is_cut(void **state)
{
    (void)state;
    ogive_formula *formula;
    ogive_error error;
    char text[11];
    size_t length;
    assert_int_equal(ogive_formula_create("sigmoid(x)", OGIVE_TEXT, &formula, &error), OGIVE_OK);
    assert_int_equal(
        ogive_formula_pytorch(formula, NULL, 0, NULL, text, sizeof text, &length, &error),
        OGIVE_OK);
    assert_int_equal(strlen(text), 10);
    assert_true(length > 1000);
    assert_int_equal(ogive_formula_pytorch(formula, NULL, 0, NULL, NULL, 1, &length, &error),
                     OGIVE_ARGUMENT);
    assert_int_equal(ogive_formula_pytorch(NULL, NULL, 0, NULL, NULL, 0, &length, &error),
                     OGIVE_ARGUMENT);
    ogive_pytorch_options old = {.size = 8};
    assert_int_equal(ogive_formula_pytorch(formula, NULL, 0, &old, NULL, 0, &length, &error),
                     OGIVE_ARGUMENT);
    ogive_formula_release(formula);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        file_case of;
        ogive_status status;
        const char *message;
    } refused[] = {
        {{.formula = "float16(x)", .sizes = {"ab"}}, OGIVE_UNSUPPORTED, "one dtype"},
        {{.formula = "linear(x, w)", .sizes = {"ab", "dc"}}, OGIVE_SHAPE, "linear"},
        {{.formula = "x + x_y + x.y"}, OGIVE_ARGUMENT, "one name in Python"},
        {{.formula = "linear(x, w, 0.5)"}, OGIVE_UNSUPPORTED, "give a tensor"},
        {{.formula = "max_pool2d(x, 2)"}, OGIVE_ARGUMENT, "the shape of 'x' is not given"},
        {{.formula = "max_pool2d(x, 9)", .sizes = {"abcd"}}, OGIVE_SHAPE, "max_pool2d"},
        {{.formula = "sum(x, dim=3)"}, OGIVE_SHAPE, "the shape of 'x' is not given"},
        {{.formula = "float16(max_pool2d(x, 2))", .sizes = {"abcd"}},
         OGIVE_UNSUPPORTED,
         "one dtype"},
    };
    for (size_t i = 0; i < TEST_COUNT(refused); i++) {
        ogive_error error;
        char *text;
        assert_int_equal(emit(&refused[i].of, NULL, &text, &error), refused[i].status);
        if (!strstr(error.message, refused[i].message))
            fail_msg("%s: %s", refused[i].of.formula, error.message);
        assert_null(text);
    }
}

/* An example's dtype, if it is given (bits are not 0), is one that a file reads. */
static void test_dtypes(void **state)
{
    (void)state;
    static const struct {
        DLDataType type;
        const char *message; /* NULL: taken */
    } types[] = {
        {{kDLFloat, 0, 0}, NULL},
        {{kDLBfloat, 16, 1}, NULL},
        {{kDLComplex, 64, 1}, "input 'x' is complex64: a PyTorch file reads float32"},
        {{kDLInt, 64, 1}, "input 'x' is int64"},
        {{kDLBool, 8, 1}, "input 'x' is bool"},
        {{kDLFloat, 32, 4}, "input 'x' is float32 x 4 lanes"},
    };
    static const char *const formulas[] = {"sigmoid(x)", "avg_pool1d(x, 2)"};
    int64_t shape[] = {6, 8};
    for (size_t i = 0; i < TEST_COUNT(types) * TEST_COUNT(formulas); i++) {
        const char *message = types[i / 2].message;
        const DLTensor x = {.ndim = 2, .shape = shape, .dtype = types[i / 2].type};
        ogive_formula *formula;
        ogive_error error;
        size_t length = 0;
        assert_int_equal(ogive_formula_create(formulas[i % 2], OGIVE_TEXT, &formula, &error),
                         OGIVE_OK);
        ogive_status status = ogive_formula_pytorch(formula, (const DLTensor *const[]){&x}, 1, NULL,
                                                    NULL, 0, &length, &error);
        assert_int_equal(status, message ? OGIVE_DTYPE : OGIVE_OK);
        if (message && !strstr(error.message, message))
            fail_msg("%s: %s", formulas[i % 2], error.message);
        ogive_formula_release(formula);
    }
}

/* A file made for its shapes is made for the example's strides, if these are some that a copy could
 * have; a result lies as an input of its shape, or channels last. */
static void test_strides(void **state)
{
    (void)state;
    static const struct {
        const char *formula;
        int64_t shape[4], strides[4];
        const char *layouts; /* of the input and the result */
    } lying[] = {
        {"max_pool2d(x, 2)",
         {2, 3, 4, 6},
         {72, 1, 18, 3},
         "\"inputs\": [((2, 3, 4, 6), (72, 1, 18, 3))],\n"
         "        \"results\": [((2, 3, 2, 3), (18, 1, 9, 3))],"},
        {"max_pool2d(x, 2)",
         {2, 3, 4, 6},
         {144, 48, 12, 2}, /* every second column */
         "\"inputs\": [((2, 3, 4, 6), (144, 48, 12, 2))],\n"
         "        \"results\": [((2, 3, 2, 3), (18, 6, 3, 1))],"},
        {"max_pool2d(x, 2)",
         {2, 3, 4, 6},
         {72, 0, 6, 1}, /* one channel, seen as three */
         "\"inputs\": [((2, 3, 4, 6), (72, 24, 6, 1))],\n"
         "        \"results\": [((2, 3, 2, 3), (18, 6, 3, 1))],"},
        {"max_pool2d(x, 2)",
         {2, 3, 4, 6},
         {24, 24, 6, 1}, /* channels of the next image, too */
         "\"inputs\": [((2, 3, 4, 6), (72, 24, 6, 1))],"},
        {"group_norm(x, 1)",
         {2, 1, 4, 6},
         {24, -5, 6, 1}, /* of one element, backwards */
         "\"inputs\": [((2, 1, 4, 6), (24, 24, 6, 1))],\n"
         "        \"results\": [((2, 1, 4, 6), (24, 24, 6, 1))],"},
        {"group_norm(x, 1)",
         {2, 3, 4, 6},
         {72, 24, 1, 4}, /* images transposed */
         "\"inputs\": [((2, 3, 4, 6), (72, 24, 1, 4))],\n"
         "        \"results\": [((2, 3, 4, 6), (72, 24, 1, 4))],"},
    };
    for (size_t i = 0; i < TEST_COUNT(lying); i++) {
        int64_t shape[4], strides[4];
        memcpy(shape, lying[i].shape, sizeof shape);
        memcpy(strides, lying[i].strides, sizeof strides);
        const DLTensor x = {.ndim = 4, .shape = shape, .strides = strides};
        ogive_formula *formula;
        ogive_error error;
        size_t length = 0, capacity = 1 << 20;
        char *text = malloc(capacity);
        assert_non_null(text);
        TEST_OK(ogive_formula_create(lying[i].formula, OGIVE_TEXT, &formula, &error), error);
        TEST_OK(ogive_formula_pytorch(formula, (const DLTensor *const[]){&x}, 1, NULL, text,
                                      capacity, &length, &error),
                error);
        if (length >= capacity || !strstr(text, lying[i].layouts))
            fail_msg("%s, case %zu: not %s", lying[i].formula, i, lying[i].layouts);
        free(text);
        ogive_formula_release(formula);
    }
}

/* What a GPU before Hopper does not have (clusters), or has less of (64 KiB of shared memory for a
 * block, with what sums take), is for Hopper alone; others have a kernel of their own. */
static void test_any_gpu(void **state)
{
    (void)state;
    static const struct {
        int32_t ndim;
        int64_t shape[4];
        uint8_t bits;
        const char *hopper, *any;
    } files[] = {
        {2, {512, 20001}, 16, "rows, a cluster a row, kept", "rows, a block a chunk"},
        {2, {512, 20001}, 32, "rows, a cluster a row, kept", "rows, a block a chunk"},
        {4, {64, 100, 512, 256}, 32, "columns, kept in shared memory", "columns, kept in shared"},
    };
    for (size_t i = 0; i < TEST_COUNT(files); i++) {
        int64_t shape[4];
        memcpy(shape, files[i].shape, sizeof shape);
        const DLTensor x = {
            .ndim = files[i].ndim, .shape = shape, .dtype = {kDLFloat, files[i].bits, 1}};
        const ogive_pytorch_options options = {.size = sizeof options, .for_shapes = 1};
        ogive_formula *formula;
        ogive_error error;
        size_t length = 0, capacity = 1 << 20;
        char *text = malloc(capacity), line[128];
        assert_non_null(text);
        TEST_OK(ogive_formula_create("softmax(x, dim=1)", OGIVE_TEXT, &formula, &error), error);
        TEST_OK(ogive_formula_pytorch(formula, (const DLTensor *const[]){&x}, 1, &options, text,
                                      capacity, &length, &error),
                error);
        for (int hopper = 0; hopper < 2; hopper++) {
            snprintf(line, sizeof line, "#   Forward0%s   %s row_max sumexp: %s",
                     hopper ? "_hopper" : "", files[i].ndim == 2 ? "rows" : "columns",
                     hopper ? files[i].hopper : files[i].any);
            if (length >= capacity || !strstr(text, line))
                fail_msg("case %zu: not %s", i, line);
        }
        free(text);
        ogive_formula_release(formula);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),       cmocka_unit_test(test_strides),
        cmocka_unit_test(test_dtypes),      cmocka_unit_test(test_every_size),
        cmocka_unit_test(test_text_is_cut), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_any_gpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
