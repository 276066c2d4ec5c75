/* SPDX-License-Identifier: MIT
 *
 * test_cuda_pytorch.c - files for PyTorch (src/pytorch): what they must not hold, what is
 * refused and why, and, where the real NVRTC is found, that their
 * products compile for sm_80, sm_90 and sm_100. tests/python/test_emitted.py has the other kernels
 * compiled, and runs all of them on the CPU.
 *
 *     OGIVE_TEST_NVRTC=.../libnvrtc.so.13   where it is, if it is not found (see cuda_nvrtc.h)
 */
#include "cuda_nvrtc_library.h"

#include "base/embedded.h"

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

/* ---- compiling ------------------------------------------------------------------------- */

static void compile(const char *formula, const char *source, const char *arch)
{
    char target[64];
    snprintf(target, sizeof target, "--gpu-architecture=sm_%s", arch);
    const char *const options[] = {target, "--std=c++17", "--fmad=false", "-diag-suppress=177"};
    int result;
    char *log = compile_text(source, options, (int)TEST_COUNT(options), &result);
    if (result || strstr(log, "error") || strstr(log, "warning"))
        fail_msg("%s, sm_%s: %.2000s", formula, arch, log);
    free(log);
}

/* What stands between NAME = r''' and ''' in the file. */
static void add_string(const char *text, const char *name, og_text *to)
{
    char start[64];
    snprintf(start, sizeof start, "%s = r'''", name);
    const char *from = strstr(text, start);
    assert_non_null(from);
    from += strlen(start);
    og_text_add(to, "%.*s", (int)(strstr(from, "'''") - from), from);
}

/* The templates of every product in source, which says "Forward0: product" of each, for type. */
static void add_instances(const char *source, const char *type, og_text *to)
{
    char name[32], kind[64];
    for (const char *at = source; (at = strstr(at, "\ntemplate <int sweep> struct ")); at++) {
        const char *comment = at;
        while (strncmp(comment, "/* ", 3) != 0)
            comment--;
        assert_int_equal(sscanf(comment, "/* %31[^:]: %63[^*]", name, kind), 2);
        og_text_add(to, "template __global__ void ");
        if (strcmp(type, "double") != 0)
            og_text_add(to, "product_tensor<%s, %s>(const TensorArgs);\n", name, type);
        else
            og_text_add(to, "product_plain<%s, %s>(const ProductArgs);\n", name, type);
    }
}

/* What products on tensor cores stand on: halves, and kept floats beside them. */
static void add_arrange(const char *type, og_text *to)
{
    static const char *const ways[] = {"true", "false"};
    for (size_t i = 0; i < TEST_COUNT(ways); i++)
        for (size_t multiplied = 0; multiplied < 2; multiplied++)
            if (!multiplied || strcmp(type, "float") != 0)
                og_text_add(to,
                            "template __global__ void arrange<%s, %s, %s>(const ProductArgs, int, "
                            "bool, int, void *, float *);\n",
                            type, multiplied ? "float" : type, ways[i]);
}

/* The products of both parts of a file; float, and another type: all of them only when asked for. */
static void compile_file(const file_case *of, size_t number)
{
    static const char *const types[] = {"float", "Float16", "Bfloat16", "double"};
    static const char *const archs[] = {"90", "80", "100"};
    ogive_error error;
    char *text;
    if (emit(of, NULL, &text, &error))
        fail_msg("%s: %s", of->formula, error.message);
    for (size_t part = 0; part < 2; part++) {
        og_text source = {0}, kernels = {0};
        og_text_add(&source, "%s", og_embedded("pytorch/call.cuh"));
        add_string(text, "CUDA_SHARED", &source);
        add_string(text, part ? "CUDA_BACKWARD" : "CUDA_FORWARD", &kernels);
        og_text_add(&source, "%s", kernels.data);
        for (size_t t = 0; t < TEST_COUNT(types); t++)
            if (test_full() || t == 0 || t == 1 + (number + part) % 3) {
                add_instances(kernels.data, types[t], &source);
                if (strstr(source.data, "product_tensor<") && strcmp(types[t], "double") != 0)
                    add_arrange(types[t], &source);
            }
        compile(of->formula, source.data, archs[(number + part) % TEST_COUNT(archs)]);
        og_text_free(&source);
        og_text_free(&kernels);
    }
    free(text);
}

static void test_kernels_compile(void **state)
{
    (void)state;
    if (!load_nvrtc())
        skip();
    for (size_t i = 0; i < TEST_COUNT(cases); i++)
        if (strstr(cases[i].formula, "linear") || strstr(cases[i].formula, "@"))
            compile_file(&cases[i], i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_text_is_cut),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_kernels_compile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
