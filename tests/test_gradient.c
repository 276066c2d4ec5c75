/* SPDX-License-Identifier: MIT
 *
 * test_gradient.c - the gradient of a formula, by finite differences in float64:
 * every function of the table, random formulas, products of every rank, gradients
 * of gradients; kinks and ties by PyTorch's values; dtypes, zeros, messages.
 */
#include "test.h"

#include "api/api.h"

enum { MAX_ARRAYS = 12 };

/* A contiguous float64 tensor. */
typedef struct {
    int32_t rank;
    int64_t shape[OG_MAX_RANK];
    int64_t count;
    double *data;
} array;

static array new_array(int32_t rank, const int64_t *shape)
{
    array a = {.rank = rank, .count = 1};
    for (int32_t d = 0; d < rank; d++)
        a.count *= a.shape[d] = shape[d];
    a.data = calloc((size_t)a.count + 1, sizeof *a.data);
    assert_non_null(a.data);
    return a;
}

/* "3x4" or "" (a 0-d tensor), filled with random numbers. */
static const char *read_array(const char *text, double low, double high, test_random *random,
                              array *a)
{
    int64_t shape[OG_MAX_RANK];
    int32_t rank = 0;
    while (*text >= '0' && *text <= '9') {
        char *end;
        shape[rank++] = strtoll(text, &end, 10);
        text = end + (*end == 'x');
    }
    text += *text == '-'; /* a 0-d tensor is written - */
    *a = new_array(rank, shape);
    for (int64_t i = 0; i < a->count; i++)
        a->data[i] = test_random_range(random, low, high);
    return text + (*text == ' ');
}

static void free_arrays(array *arrays, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(arrays[i].data);
}

/* ---- evaluating ------------------------------------------------------------ */

/* Fills outputs, which are new; returns how many. */
static size_t evaluate(ogive_formula *formula, const array *inputs, array *outputs)
{
    test_tensor tensors[MAX_ARRAYS];
    const DLTensor *pointers[MAX_ARRAYS];
    const void *data[MAX_ARRAYS];
    void *results[MAX_ARRAYS];
    ogive_error error;
    ogive_plan *plan;
    size_t input_count = ogive_formula_input_count(formula);
    size_t count = ogive_formula_result_count(formula);
    assert_true(input_count <= MAX_ARRAYS && count <= MAX_ARRAYS);
    for (size_t i = 0; i < input_count; i++) {
        pointers[i] = test_tensor_init(&tensors[i], inputs[i].data, test_float64, inputs[i].rank,
                                       inputs[i].shape, NULL);
        data[i] = inputs[i].data;
    }
    ogive_status status =
        ogive_plan_create(formula, pointers, input_count, NULL, 0, NULL, &plan, &error);
    if (status)
        fail_msg("%s: %s", formula->graph.text, error.message);
    for (size_t i = 0; i < count; i++) {
        const DLTensor *result = ogive_plan_result(plan, i);
        assert_int_equal(result->dtype.bits, 64);
        outputs[i] = new_array(result->ndim, result->shape);
        results[i] = outputs[i].data;
    }
    void *workspace = aligned_alloc(64, (ogive_plan_workspace(plan) + 127) / 64 * 64);
    status = ogive_plan_run(plan, data, results, workspace, NULL, &error);
    free(workspace);
    ogive_plan_release(plan);
    if (status)
        fail_msg("%s: %s", formula->graph.text, error.message);
    return count;
}

/* Sum over the results of their elements times those of weights. */
static double evaluate_loss(ogive_formula *formula, const array *inputs, const array *weights)
{
    array results[MAX_ARRAYS];
    size_t count = evaluate(formula, inputs, results);
    double loss = 0;
    for (size_t r = 0; r < count; r++)
        for (int64_t i = 0; i < results[r].count; i++)
            loss += weights ? results[r].data[i] * weights[r].data[i] : results[r].data[i];
    free_arrays(results, count);
    return loss;
}

/* ---- finite differences ---------------------------------------------------- */

static ogive_formula *make_formula(const char *text)
{
    ogive_formula *formula;
    ogive_error error;
    if (ogive_formula_create(text, OGIVE_TEXT, &formula, &error))
        fail_msg("%s: %s", text, error.message);
    return formula;
}

static ogive_formula *make_gradient(const ogive_formula *formula, const char *const *names,
                                    size_t count)
{
    ogive_formula *gradient;
    ogive_error error;
    if (ogive_formula_gradient(formula, names, count, &gradient, &error))
        fail_msg("%s: %s", formula->graph.text, error.message);
    return gradient;
}

static void compare_input(ogive_formula *formula, array *inputs, size_t input, const array *weights,
                          const array *got, int depth)
{
    const char *name = ogive_formula_input_name(formula, input);
    array *x = &inputs[input];
    char shape[OG_SHAPE_TEXT];
    assert_int_equal(x->rank, got->rank);
    assert_memory_equal(x->shape, got->shape, (size_t)x->rank * sizeof *x->shape);
    for (int64_t i = 0; i < x->count; i++) {
        double at = x->data[i], step = 1e-5;
        x->data[i] = at + step;
        double above = evaluate_loss(formula, inputs, weights);
        x->data[i] = at - step;
        double below = evaluate_loss(formula, inputs, weights);
        x->data[i] = at;
        double want = (above - below) / (2 * step);
        double slack = 2e-6 * (1 + fabs(want)) + 1e-10 * (fabs(above) + fabs(below)) / step * 1e-5;
        if (!(fabs(got->data[i] - want) <= slack))
            fail_msg("%s, derivative %d by %s%s[%lld]: got %.12g, differences say %.12g",
                     formula->graph.text, depth, name, og_shape_text(x->rank, x->shape, shape),
                     (long long)i, got->data[i], want);
    }
}

/* The gradient by every input against finite differences, then that of the
 * gradient, up to depth. */
static void check_gradient(ogive_formula *formula, array *inputs, test_random *random, int depth,
                           int most)
{
    const char *names[MAX_ARRAYS];
    array all[MAX_ARRAYS], outputs[MAX_ARRAYS];
    size_t input_count = ogive_formula_input_count(formula);
    size_t result_count = evaluate(formula, inputs, outputs);
    for (size_t i = 0; i < input_count; i++) {
        names[i] = ogive_formula_input_name(formula, i);
        all[i] = inputs[i];
    }
    for (size_t i = 0; i < result_count; i++) { /* the results become their gradients */
        for (int64_t e = 0; e < outputs[i].count; e++)
            outputs[i].data[e] = test_random_range(random, -1, 1);
        all[input_count + i] = outputs[i];
    }
    ogive_formula *gradient = make_gradient(formula, names, input_count);
    array got[MAX_ARRAYS];
    assert_int_equal(ogive_formula_input_count(gradient), input_count + result_count);
    assert_int_equal(evaluate(gradient, all, got), input_count);
    for (size_t i = 0; i < input_count; i++)
        compare_input(formula, inputs, i, outputs, &got[i], depth);
    if (depth < most)
        check_gradient(gradient, all, random, depth + 1, most);
    free_arrays(got, input_count);
    free_arrays(outputs, result_count);
    ogive_formula_release(gradient);
}

/* shapes: one per input, separated by blanks, - for a 0-d tensor. */
static void check_text(const char *text, const char *shapes, double low, double high, int most)
{
    test_random random = test_random_named(text);
    ogive_formula *formula = make_formula(text);
    array inputs[MAX_ARRAYS];
    size_t count = ogive_formula_input_count(formula);
    for (size_t i = 0; i < count; i++)
        shapes = read_array(shapes, low, high, &random, &inputs[i]);
    check_gradient(formula, inputs, &random, 1, most);
    free_arrays(inputs, count);
    ogive_formula_release(formula);
}

/* ---- every function -------------------------------------------------------- */

static bool is_positive_only(og_op op)
{
    return op == OG_OP_log || op == OG_OP_log1p || op == OG_OP_sqrt || op == OG_OP_rsqrt ||
           op == OG_OP_pow || op == OG_OP_reciprocal || op == OG_OP_div;
}

/* A call with what the signature asks for; optional tensors are given too. */
static bool write_call(const og_function *function, og_op op, char *text, size_t capacity,
                       char *shapes)
{
    static const char *const names[] = {"x", "y", "z"};
    size_t used = (size_t)snprintf(text, capacity, "%s(", function->name);
    int tensors = 0;
    bool has_sizes = false, in_order = true;
    for (const og_parameter *p = function->parameters; p->kind != OG_PARAMETER_NONE; p++)
        has_sizes |= p->kind == OG_PARAMETER_SIZES;
    shapes[0] = 0;
    for (const og_parameter *p = function->parameters; p->kind != OG_PARAMETER_NONE; p++) {
        const char *shape = !tensors ? "3x4" : has_sizes || op == OG_OP_linear ? "4" : "3x4";
        char value[32] = "";
        switch (p->kind) {
        case OG_PARAMETER_TENSOR:
            if (op == OG_OP_linear && tensors == 1)
                shape = "5x4";
            if (op == OG_OP_linear && tensors == 2)
                shape = "5";
            if (op == OG_OP_matmul && tensors == 1)
                shape = "4x5";
            snprintf(value, sizeof value, "%s", names[tensors++]);
            strcat(strcat(shapes, shape), " ");
            break;
        case OG_PARAMETER_DIM:
        case OG_PARAMETER_DIMS:
            snprintf(value, sizeof value, "%d", p[1].kind == OG_PARAMETER_DIM ? 0 : 1);
            break;
        case OG_PARAMETER_SIZES:
            snprintf(value, sizeof value, "4");
            break;
        case OG_PARAMETER_NUMBER:
            if (p->required)
                snprintf(value, sizeof value, "1.25");
            else if (op == OG_OP_clamp)
                snprintf(value, sizeof value, p->number < 0 ? "-0.9" : "1.1");
            break;
        default:
            break;
        }
        in_order &= value[0] != 0;
        if (value[0])
            used += (size_t)snprintf(text + used, capacity - used, "%s%s%s%s",
                                     text[used - 1] == '(' ? "" : ", ", in_order ? "" : p->name,
                                     in_order ? "" : "=", value);
    }
    snprintf(text + used, capacity - used, ")");
    return function->kind != OG_MASKING && op != OG_OP_where && op != OG_OP_float32 &&
           op != OG_OP_float16 && op != OG_OP_bfloat16;
}

static void test_every_function(void **state)
{
    (void)state;
    for (int op = 0; op < OG_FUNCTION_COUNT; op++) {
        const og_function *function = og_function_of((og_op)op);
        char text[256], shapes[64];
        if (!function->group || !write_call(function, (og_op)op, text, sizeof text, shapes))
            continue;
        check_text(text, shapes, 0.3, 2.4, 2);
        if (!is_positive_only((og_op)op))
            check_text(text, shapes, -2.4, 2.4, 2);
    }
}

static void test_parameters(void **state)
{
    (void)state;
    static const char *const texts[] = {"leaky_relu(x, 0.25)",
                                        "leaky_relu(x, -0.5)",
                                        "elu(x, 0.5)",
                                        "celu(x, 2)",
                                        "celu(x, 0.25)",
                                        "gelu(x, approximate='tanh')",
                                        "softplus(x, 2, 1)",
                                        "softplus(x, -1.5)",
                                        "hardtanh(x, -2, 0.5)",
                                        "softshrink(x, 1)",
                                        "hardshrink(x, 1)",
                                        "threshold(x, 0.5, 20)",
                                        "clamp(x, min=0.5)",
                                        "clamp(x, max=0.5)",
                                        "clamp(x, 1, -1)",
                                        "x ** 2",
                                        "x ** 3",
                                        "x ** 0",
                                        "(x + 3) ** -2",
                                        "(x + 3) ** -1",
                                        "(x + 3) ** 0.5",
                                        "(x + 3) ** -0.5",
                                        "(x + 3) ** 2.5",
                                        "x ** 5",
                                        "rms_norm(x, 4, eps=0.1)",
                                        "layer_norm(x, (3, 4), eps=0.01)",
                                        "where(x > 0.5, x * x, x * 3)",
                                        "where(x <= 0.5, 1, x)",
                                        "-x",
                                        "x * x * x",
                                        "2 / (x + 4)",
                                        "sum(x)",
                                        "sum(x, (0, 1), true)",
                                        "mean(x, 0)",
                                        "mean(x, 1, keepdim=true)",
                                        "amax(x)",
                                        "amin(x, 0)",
                                        "amax(x, (0, 1), keepdim=true)",
                                        "var(x, correction=0)",
                                        "var(x, 0)",
                                        "std(x, 1, correction=0.5, keepdim=true)",
                                        "logsumexp(x, (0, 1))",
                                        "logsumexp(x, 0, keepdim=true)",
                                        "softmax(x, 0)",
                                        "log_softmax(x, 0)",
                                        "transpose(x, 0, 1)",
                                        "float64(x) * 2",
                                        "x",
                                        "x, x, sum(x * x)",
                                        "sigmoid(x) * sigmoid(x)"};
    for (size_t i = 0; i < TEST_COUNT(texts); i++)
        check_text(texts[i], "3x4", -2.4, 2.4, 2);
}

/* ---- formulas -------------------------------------------------------------- */

static void test_broadcasting(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"x + y", "3x4 4"},
        {"x * y", "3x4 3x1"},
        {"x * y", "3x1 1x4"},
        {"x / (y + 3)", "2x3x4 3x1"},
        {"x * y * z", "2x1x4 3x1 -"},
        {"x - y", "1x1x4 4"},
        {"x - y", "4 1x1x4"},
        {"x * y", "1 2x3"},
        {"x * y", "2x3 1"},
        {"x * y", "1x3 2x1x1"},
        {"maximum(x, y)", "3x4 4"},
        {"minimum(x, y) * z", "3x1 4 2x1x1"},
        {"where(x > y, x * z, y)", "3x1 4 -"},
        {"where(z > 0.5, x, y)", "- 4 3x1"},
        {"sum(x * y)", "2x3x4 3x1"},
        {"sum(x * y, 1) + z", "3x4 4 -"},
        {"softmax(x + y, 1) * z", "3x4 3x1 4"},
        {"layer_norm(x * s, 4, w, b)", "3x4 3x1 4 4"},
        {"rms_norm(x + s, 4, w)", "3x4 - 4"},
        {"x * softmax(y, 0), x - mean(x, 0)", "3x4 4"},
        {"(x - mean(x)) / std(x) * y", "3x4 1x4"},
        {"t(x) * y + sum(x)", "3x4 4x3"},
        {"transpose(x, 0, 2) * y", "2x3x4 4x3x2"},
        {"x * x, y * 2, x * y", "3x4 4"},
        {"m = amax(x, 1, keepdim=true); exp(x - m) / sum(exp(x - m), 1, keepdim=true)", "3x4"},
        {"sum(sigmoid(x), dim=1, keepdim=true)", "3x4"},
        {"x + 2.0 * sigmoid(x)", "3x4"},
        {"x * s", "0x4 -"},
        {"sum(x * y, 0)", "0x4 4"},
    };
    for (size_t i = 0; i < TEST_COUNT(cases); i++)
        check_text(cases[i][0], cases[i][1], 0.2, 2.2, 2);
}

static void test_products(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"linear(x, w)", "3x4 2x4"},
        {"linear(x, w, b)", "3x4 2x4 2"},
        {"linear(x, w, b)", "4 2x4 2"},
        {"linear(x, w, b)", "2x3x4 5x4 5"},
        {"linear(x, w, b)", "2x3x4 4 -"},
        {"linear(x, w)", "4 4"},
        {"linear(x, w)", "3x1 1x1"},
        {"linear(x, w)", "1x4 2x4"},
        {"linear(x, w)", "3x0 2x0"},
        {"linear(x, w)", "0x4 2x4"},
        {"sum(sigmoid(linear(x, w, b)), dim=1, keepdim=true)", "3x4 2x4 2"},
        {"z = linear(x, w, b); z + 2.0 * sigmoid(z)", "3x4 2x4 2"},
        {"silu(linear(x, w)) * linear(x, v)", "3x4 2x4 2x4"},
        {"linear(tanh(linear(x, w)), v)", "3x4 2x4 5x2"},
        {"softmax(linear(x, w), 1)", "3x4 2x4"},
        {"linear(x, x)", "3x4"},
        {"x @ y", "3x4 4x2"},
        {"x @ y", "4 4"},
        {"x @ y", "4 4x2"},
        {"x @ y", "3x4 4"},
        {"x @ y", "2x3x4 4"},
        {"x @ y", "4 2x4x3"},
        {"x @ y", "2x3x4 4x5"},
        {"x @ y", "3x4 2x4x5"},
        {"x @ y", "2x3x4 2x4x5"},
        {"x @ y", "2x3x4 1x4x5"},
        {"x @ y", "1x3x4 2x4x5"},
        {"x @ y", "2x1x3x4 3x4x5"},
        {"x @ y", "2x1x3x4 1x3x4x5"},
        {"x @ t(x)", "3x4"},
        {"t(x) @ y", "4x3 4x2"},
        {"softmax(q @ transpose(k, -2, -1) * 0.5, -1) @ v", "2x3x4 2x5x4 2x5x3"},
        {"sum(x @ y)", "3x4 4x2"},
        {"mean((x @ w - y) ** 2)", "3x4 4x2 3x2"},
        {"exp(0.1 * x) @ sigmoid(y)", "2x3x4 4x2"},
    };
    for (size_t i = 0; i < TEST_COUNT(cases); i++)
        check_text(cases[i][0], cases[i][1], -1, 1, 2);
}

/* ---- random formulas ------------------------------------------------------- */

/* Appends a random expression of x (3x4), y (4), z (3x1), s (0-d), of a shape that
 * broadcasts to (3, 4), every value of modest size. */
static void write_random(og_text *text, test_random *random, int depth)
{
    static const char *const leaves[] = {"x", "x", "y", "z", "s", "0.7"};
    static const char *const calls[] = {"sigmoid(%)",
                                        "tanh(%)",
                                        "silu(%)",
                                        "gelu(%)",
                                        "mish(%)",
                                        "softplus(%)",
                                        "erf(%)",
                                        "elu(%)",
                                        "logsigmoid(%)",
                                        "hardsigmoid(%)",
                                        "tanhshrink(%)",
                                        "softsign(%)",
                                        "square(tanh(%))",
                                        "sqrt(1 + square(%))",
                                        "log(2 + square(%))",
                                        "exp(-square(%))",
                                        "leaky_relu(%, 0.2)",
                                        "abs(%)",
                                        "clamp(%, -0.8, 0.9)",
                                        "(% + %)",
                                        "(% - %)",
                                        "(% * tanh(%))",
                                        "(% / (2 + square(%)))",
                                        "maximum(%, %)",
                                        "minimum(%, %)",
                                        "where(% > %, tanh(%), %)",
                                        "softmax(% + 0*x, 1)",
                                        "softmax(% + 0*x, 0)",
                                        "log_softmax(% + 0*x, -1)",
                                        "mean(% + 0*x, 1, keepdim=true)",
                                        "mean(% + 0*x)",
                                        "sum(% + 0*x, 0) / 3",
                                        "amax(% + 0.3*x, 0, keepdim=true)",
                                        "amin(% + 0.3*x)",
                                        "std(% * x, 1, keepdim=true)",
                                        "var(% * x, 0)",
                                        "logsumexp(% + 0*x, 1, keepdim=true)",
                                        "layer_norm(% + x, 4, y, eps=0.1)",
                                        "rms_norm(% + x, 4)",
                                        "t(t(% + 0*x) * t(z))",
                                        "transpose(t(% + 0*x), 0, 1)",
                                        "float64(% + s)",
                                        "(% + 0*x) @ (t(x) @ (0.1 * %  + 0*x))"};
    if (depth == 0 || text->length > 300) {
        og_text_add(text, "%s", leaves[test_random_below(random, TEST_COUNT(leaves))]);
        return;
    }
    for (const char *c = calls[test_random_below(random, TEST_COUNT(calls))]; *c; c++)
        if (*c == '%')
            write_random(text, random, depth - 1);
        else
            og_text_add(text, "%c", *c);
}

static void test_random_formulas(void **state)
{
    (void)state;
    test_random random = test_random_named("gradients");
    int rounds = test_full() ? 20000 : 400;
    for (int round = 0; round < rounds; round++) {
        og_text text = {0};
        og_text_add(&text, "x0 = x; y0 = y; z0 = z; s0 = s; "); /* the inputs' order */
        write_random(&text, &random, 1 + (int)test_random_below(&random, 4));
        og_text_add(&text, " + x * 0.1 + 0.1 * y - z * 0.2 + s");
        if (round % 3 == 0) {
            og_text_add(&text, ", ");
            write_random(&text, &random, 2);
            og_text_add(&text, " * x");
        }
        check_text(text.data, "3x4 4 3x1 -", -1.5, 1.5, round % 4 == 0 ? 2 : 1);
        og_text_free(&text);
    }
}

/* ---- kinks and ties -------------------------------------------------------- */

/* At most 4 elements: x, and the gradient of the sum of formula(x), by PyTorch. */
typedef struct {
    const char *text;
    int count;
    float x[4], want[4];
} kink;

static const kink kinks[] = {
    {"relu(x)", 4, {0, -0.0f, NAN, 1}, {0, 0, 1, 1}},
    {"relu6(x)", 4, {0, 6, NAN, 3}, {0, 0, 0, 1}},
    {"hardtanh(x)", 3, {-1, 1, NAN}, {0, 0, 0}},
    {"clamp(x, -1, 1)", 4, {-1, 1, NAN, 2}, {1, 1, 0, 0}},
    {"clamp(x, min=-1)", 3, {-1, -2, NAN}, {1, 0, 0}},
    {"clamp(x, max=-1)", 3, {-1, 2, INFINITY}, {1, 0, 0}},
    {"clamp(x, 2, 1)", 3, {1, 2, 1.5f}, {0, 0, 0}},
    {"relu6(x) + clamp(x, 0, 6)", 2, {0, 6}, {1, 1}},
    {"hardswish(x)", 4, {-3, 3, 0, 4}, {0, 1, 0.5f, 1}},
    {"hardswish(x)", 3, {INFINITY, -INFINITY, -4}, {1, 0, 0}},
    {"hardsigmoid(x)", 4, {-3, 3, NAN, 1}, {0, 0, 0, 1.0f / 6}},
    {"leaky_relu(x)", 3, {0, NAN, -1}, {0.01f, 0.01f, 0.01f}},
    {"leaky_relu(x, -0.5)", 3, {0, 2, -1}, {-0.5f, 1, -0.5f}},
    {"elu(x)", 4, {0, NAN, -1, 100}, {1, NAN, 0.36787945f, 1}},
    {"selu(x)", 4, {0, NAN, -1, 1}, {1.7580993f, NAN, 0.64676863f, 1.0507010f}},
    {"celu(x, 2)", 3, {0, NAN, -1}, {1, NAN, 0.60653067f}},
    {"softplus(x, 1, 2)", 4, {2, 2.5f, NAN, -INFINITY}, {0.88079709f, 1, NAN, 0}},
    {"logsigmoid(x)", 4, {0, NAN, INFINITY, -INFINITY}, {0.5f, NAN, 0, 1}},
    {"softsign(x)", 2, {0, 1}, {1, 0.25f}},
    {"softshrink(x)", 4, {0.5f, -0.5f, NAN, 1}, {0, 0, 0, 1}},
    {"hardshrink(x)", 4, {0.5f, -0.5f, NAN, 1}, {0, 0, 0, 1}},
    {"threshold(x, 0.5, 2)", 3, {0.5f, NAN, 1}, {0, 1, 1}},
    {"abs(x)", 4, {0, NAN, -1, -0.0f}, {0, 0, -1, 0}},
    {"sqrt(x)", 4, {0, -1, NAN, 4}, {INFINITY, NAN, NAN, 0.25f}},
    {"rsqrt(x)", 2, {0, 4}, {-INFINITY, -0.0625f}},
    {"log(x)", 3, {0, -0.0f, 2}, {INFINITY, -INFINITY, 0.5f}},
    {"reciprocal(x)", 3, {0, -0.0f, 2}, {-INFINITY, -INFINITY, -0.25f}},
    {"x ** 0", 3, {0, 1, NAN}, {0, 0, 0}},
    {"x ** 1.5", 3, {0, 1, -1}, {0, 1.5f, NAN}},
    {"x ** 0.5", 2, {0, 1}, {INFINITY, 0.5f}},
    {"amax(x)", 3, {1, 2, 2}, {0, 0.5f, 0.5f}},
    {"amax(x, 0)", 3, {1, NAN, 2}, {NAN, NAN, NAN}},
    {"amax(x)", 3, {INFINITY, INFINITY, 2}, {0.5f, 0.5f, 0}},
    {"amin(x)", 4, {1, 1, 2, 1}, {1.0f / 3, 1.0f / 3, 0, 1.0f / 3}},
    {"amax(x, 0, keepdim=true)", 4, {0, -0.0f, 0, -1}, {1.0f / 3, 1.0f / 3, 1.0f / 3, 0}},
    {"logsumexp(x, 0)", 2, {-INFINITY, -INFINITY}, {NAN, NAN}},
    {"logsumexp(x, 0)", 2, {INFINITY, 1}, {NAN, 0}},
    {"logsumexp(x, 0)", 2, {-INFINITY, 1}, {0, 1}},
    {"std(x)", 3, {1, 1, 1}, {0, 0, 0}},
    {"var(x)", 1, {1}, {NAN}},
    {"maximum(x, 1)", 3, {1, 2, 0}, {0.5f, 1, 0}},
    {"maximum(x, nan)", 2, {1, 2}, {1, 1}},
    {"minimum(x, 1)", 4, {1, 2, 0, NAN}, {0.5f, 0, 1, 1}},
    {"maximum(x, x)", 2, {1, 2}, {1, 1}},
    {"where(x > 0, x, x * 2)", 2, {0, NAN}, {2, 2}},
    {"x @ x", 3, {1, 2, 3}, {2, 4, 6}},
};

/* Runs a formula of x and grad in float32; false if the CPU cannot. */
static bool run_float32(ogive_formula *formula, const float *x, int64_t count, float grad,
                        int64_t grad_count, float *out)
{
    float grads[4] = {grad, grad, grad, grad};
    test_tensor tensors[3];
    const DLTensor *inputs[] = {
        test_tensor_init(&tensors[0], (void *)x, test_float32, 1, &count, NULL),
        test_tensor_init(&tensors[1], grads, test_float32, grad_count >= 0, &grad_count, NULL)};
    const DLTensor *outputs[] = {test_tensor_init(&tensors[2], out, test_float32, 1, &count, NULL)};
    ogive_error error;
    ogive_status status = ogive_run(formula, inputs, 2, outputs, 1, NULL, &error);
    if (status == OGIVE_UNSUPPORTED)
        return false;
    if (status)
        fail_msg("%s: %s", formula->graph.text, error.message);
    return true;
}

static void test_kinks(void **state)
{
    (void)state;
    for (size_t k = 0; k < TEST_COUNT(kinks); k++) {
        const kink *at = &kinks[k];
        ogive_formula *formula = make_formula(at->text);
        ogive_formula *gradient = make_gradient(formula, (const char *[]){"x"}, 1);
        /* The gradient has the result's shape. */
        test_tensor tensor;
        int64_t count = at->count;
        const DLTensor *input = test_tensor_init(&tensor, NULL, test_float32, 1, &count, NULL);
        ogive_plan *plan;
        ogive_error error;
        TEST_OK(ogive_plan_create(formula, &input, 1, NULL, 0, NULL, &plan, &error), error);
        const DLTensor *result = ogive_plan_result(plan, 0);
        int64_t grad_count = result->ndim ? result->shape[0] : -1;
        float got[4];
        bool ran = run_float32(gradient, at->x, count, 1, grad_count, got);
        for (int i = 0; ran && i < at->count; i++) {
            float want = at->want[i];
            if (isnan(want) ? !isnan(got[i])
                            : !(got[i] == want || fabsf(got[i] - want) < 2e-6f * fabsf(want)))
                fail_msg("%s at %g: got %g, PyTorch %g", at->text, at->x[i], got[i], want);
        }
        ogive_plan_release(plan);
        ogive_formula_release(gradient);
        ogive_formula_release(formula);
    }
}

/* ---- dtypes ---------------------------------------------------------------- */

/* Each gradient has its input's dtype, whatever the types met on the way. */
static void test_dtypes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        DLDataType types[4]; /* x, y, grad; wanted of the gradient by x */
    } cases[] = {
        {"x * y", {{kDLFloat, 16, 1}, {kDLFloat, 32, 1}, {kDLFloat, 32, 1}}},
        {"x + y", {{kDLFloat, 64, 1}, {kDLFloat, 16, 1}, {kDLFloat, 32, 1}}},
        {"x * y", {{kDLFloat, 16, 1}, {kDLBfloat, 16, 1}, {kDLFloat, 64, 1}}},
        {"float16(x) * y", {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLFloat, 16, 1}}},
        {"float64(x) * float32(y)", {{kDLFloat, 32, 1}, {kDLFloat, 64, 1}, {kDLFloat, 32, 1}}},
        {"amax(x, 0) + sum(y)", {{kDLFloat, 16, 1}, {kDLFloat, 16, 1}, {kDLFloat, 16, 1}}},
        {"where(x > y, x, y)", {{kDLBfloat, 16, 1}, {kDLFloat, 64, 1}, {kDLFloat, 64, 1}}},
        {"layer_norm(x, 3, y)", {{kDLFloat, 16, 1}, {kDLFloat, 32, 1}, {kDLFloat, 16, 1}}},
        {"float32(x) @ float32(y)", {{kDLFloat, 16, 1}, {kDLFloat, 64, 1}, {kDLFloat, 32, 1}}},
    };
    for (size_t c = 0; c < TEST_COUNT(cases); c++) {
        ogive_formula *formula = make_formula(cases[c].text);
        ogive_formula *gradient = make_gradient(formula, (const char *[]){"y", "x"}, 2);
        test_tensor tensors[3];
        const DLTensor *inputs[3];
        ogive_plan *plan;
        ogive_error error;
        int64_t size = 3;
        for (int i = 0; i < 3; i++)
            inputs[i] = test_tensor_init(&tensors[i], NULL, cases[c].types[i], 1, &size, NULL);
        TEST_OK(ogive_plan_create(formula, inputs, 2, NULL, 0, NULL, &plan, &error), error);
        tensors[2].tensor.ndim = ogive_plan_result(plan, 0)->ndim;
        ogive_plan_release(plan);
        if (ogive_plan_create(gradient, inputs, 3, NULL, 0, NULL, &plan, &error))
            fail_msg("%s: %s", cases[c].text, error.message);
        for (size_t r = 0; r < 2; r++) {
            const DLTensor *result = ogive_plan_result(plan, r);
            assert_memory_equal(&result->dtype, &inputs[1 - r]->dtype, sizeof result->dtype);
            assert_int_equal(result->ndim, 1);
            assert_int_equal(result->shape[0], 3);
        }
        ogive_plan_release(plan);
        ogive_formula_release(gradient);
        ogive_formula_release(formula);
    }
}

/* A cast to a half type rounds the value on the way in and nothing on the way out:
 * the gradient is that of the rounded value. */
static void test_cast(void **state)
{
    (void)state;
    ogive_formula *formula = make_formula("square(float16(x))");
    ogive_formula *gradient = make_gradient(formula, (const char *[]){"x"}, 1);
    const float x[] = {0.1f, 1.0009765625f, 3};
    float got[3];
    assert_true(run_float32(gradient, x, 3, 0.3f, 3, got));
    const float rounded[] = {0x1.998p-4f, 1.0009765625f, 3};
    for (int i = 0; i < 3; i++)
        assert_true(fabsf(got[i] - 2 * 0.3f * rounded[i]) < 1e-6f);
    ogive_formula_release(gradient);
    ogive_formula_release(formula);
}

/* ---- names, zeros, messages ------------------------------------------------ */

static void expect_names(const ogive_formula *formula, const char *want)
{
    char names[256] = "";
    for (size_t i = 0; i < ogive_formula_input_count(formula); i++)
        strcat(strcat(names, i ? " " : ""), ogive_formula_input_name(formula, i));
    assert_string_equal(names, want);
    assert_null(ogive_formula_input_name(formula, ogive_formula_input_count(formula)));
}

static void test_names(void **state)
{
    (void)state;
    ogive_formula *formula = make_formula("x * fc.weight + b");
    ogive_formula *first = make_gradient(formula, (const char *[]){"fc.weight", "x"}, 2);
    expect_names(first, "x fc.weight b grad");
    assert_int_equal(ogive_formula_result_count(first), 2);
    ogive_formula *second = make_gradient(first, (const char *[]){"x", "grad"}, 2);
    expect_names(second, "x fc.weight b grad grad2.0 grad2.1");
    ogive_formula *third = make_gradient(second, (const char *[]){"grad2.1"}, 1);
    expect_names(third, "x fc.weight b grad grad2.0 grad2.1 grad3.0 grad3.1");
    ogive_formula_release(formula);
    ogive_formula_release(first);
    ogive_formula_release(second);
    ogive_formula_release(third);

    formula = make_formula("x * 2, x + y, y");
    first = make_gradient(formula, (const char *[]){"y"}, 1);
    expect_names(first, "x y grad.0 grad.1 grad.2");
    ogive_formula_release(first);
    ogive_formula_release(formula);

    formula = make_formula("grad * gradient");
    first = make_gradient(formula, (const char *[]){"grad"}, 1);
    expect_names(first, "grad gradient grad2");
    ogive_formula_release(first);
    ogive_formula_release(formula);
}

static char *print_gradient(const char *text, const char *name)
{
    ogive_formula *formula = make_formula(text);
    ogive_formula *gradient = make_gradient(formula, &name, 1);
    og_text printed = {0};
    og_graph_print(&gradient->graph, &printed);
    ogive_formula_release(gradient);
    ogive_formula_release(formula);
    return printed.data;
}

static void test_zero(void **state)
{
    (void)state;
    static const char *const texts[] = {"x + 0*y", "y0 = y; x", "x0 = x; where(y > 0, x, 1)"};
    for (size_t i = 0; i < TEST_COUNT(texts); i++) {
        ogive_formula *formula = make_formula(texts[i]);
        ogive_formula *gradient = make_gradient(formula, (const char *[]){"y"}, 1);
        array inputs[3], got[1];
        test_random random = test_random_named("zero");
        const char *shapes = i == 1 ? "4 3 3" : "3 4x1 4x3";
        for (int n = 0; n < 3; n++)
            shapes = read_array(shapes, -1, 1, &random, &inputs[n]);
        assert_int_equal(evaluate(gradient, inputs, got), 1);
        assert_int_equal(got[0].count, 4);
        for (int64_t e = 0; e < 4; e++)
            assert_true(got[0].data[e] == 0);
        free_arrays(got, 1);
        free_arrays(inputs, 3);
        ogive_formula_release(gradient);
        ogive_formula_release(formula);
    }
    char *text = print_gradient("y0 = y; x", "y");
    assert_string_equal(text, "n0 = input y\nn1 = input x\nn2 = input grad\n"
                              "n3 = full_like n0 0\nresults n3\n");
    free(text);
}

/* Nothing is made that no result needs. */
static void test_graphs(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"x * y", "x",
         "n0 = input x\nn1 = input y\nn2 = mul n0 n1\nn3 = input grad\n"
         "n4 = cast_like n3 n2 [mul]\nn5 = mul n4 n1\nn6 = sum_like n5 n0 [mul]\n"
         "n7 = cast_like n6 n0 [mul]\nresults n7\n"},
        {"sum(exp(x), 1)", "x",
         "n0 = input x\nn1 = exp n0\nn2 = sum n1 dim=(1)\nn3 = input grad\n"
         "n4 = cast_like n3 n2 [sum]\nn5 = expand n4 n1 dim=(1) [sum]\n"
         "n6 = mul n5 n1 [exp]\nresults n6\n"},
        {"relu6(x)", "x",
         "n0 = input x\nn1 = clamp n0 0 6 [relu6]\nn2 = input grad\n"
         "n3 = cast_like n2 n1 [relu6]\nn4 = number 0\nn5 = gt n0 n4 [relu6]\nn6 = number 6\n"
         "n7 = lt n0 n6 [relu6]\nn8 = where n7 n3 n4 [relu6]\nn9 = where n5 n8 n4 [relu6]\n"
         "results n9\n"},
        {"linear(x, w)", "w",
         "n0 = input x\nn1 = input w\nn2 = linear_product n0 n1 [linear]\nn3 = input grad\n"
         "n4 = cast_like n3 n2 [linear]\nn5 = row n1 [linear]\n"
         "n6 = linear_product n0 n5 [linear]\nn7 = reshape_like n4 n6 [linear]\n"
         "n8 = row n7 [linear]\nn9 = row n0 [linear]\nn10 = product_t n8 n9 n5 [linear]\n"
         "n11 = reshape_like n10 n1 [linear]\nresults n11\n"},
    };
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        char *text = print_gradient(cases[i][0], cases[i][1]);
        assert_string_equal(text, cases[i][2]);
        free(text);
    }
}

static void test_errors(void **state)
{
    (void)state;
    ogive_formula *formula = make_formula("x * fc.weight + bias"), *out = formula;
    ogive_error error;
    const char *const *none = NULL;
    TEST_FAILS(ogive_formula_gradient(formula, (const char *[]){"fc.wieght"}, 1, &out, &error),
               OGIVE_ARGUMENT, error,
               "the formula has no input 'fc.wieght'; did you mean 'fc.weight'?");
    assert_null(out);
    TEST_FAILS(ogive_formula_gradient(formula, (const char *[]){"q"}, 1, &out, &error),
               OGIVE_ARGUMENT, error, "the formula has no input 'q'; its inputs are x, ...");
    TEST_FAILS(ogive_formula_gradient(formula, (const char *[]){"x", "bias", "x"}, 3, &out, &error),
               OGIVE_ARGUMENT, error, "the name 'x' is given twice");
    TEST_FAILS(ogive_formula_gradient(formula, (const char *[]){NULL}, 1, &out, &error),
               OGIVE_ARGUMENT, error, "a name is NULL");
    TEST_FAILS(ogive_formula_gradient(formula, (const char *[]){"x"}, 0, &out, &error),
               OGIVE_ARGUMENT, error, "no name");
    TEST_FAILS(ogive_formula_gradient(formula, none, 1, &out, &error), OGIVE_ARGUMENT, error,
               "no name");
    TEST_FAILS(ogive_formula_gradient(formula, (const char *[]){"x"}, 65, &out, &error),
               OGIVE_ARGUMENT, error, "65 names are given, at most 64 are possible");
    TEST_FAILS(ogive_formula_gradient(NULL, (const char *[]){"x"}, 1, &out, &error), OGIVE_ARGUMENT,
               error, "formula is NULL");
    TEST_FAILS(ogive_formula_gradient(formula, (const char *[]){"x"}, 1, NULL, &error),
               OGIVE_ARGUMENT, error, "out is NULL");
    assert_int_equal(ogive_formula_gradient(formula, (const char *[]){"q"}, 1, &out, NULL),
                     OGIVE_ARGUMENT);

    /* A gradient of another shape than the result's. */
    ogive_formula *gradient = make_gradient(formula, (const char *[]){"x"}, 1);
    test_tensor tensors[4];
    const DLTensor *inputs[4];
    ogive_plan *plan;
    for (int64_t i = 0; i < 4; i++)
        inputs[i] =
            test_tensor_init(&tensors[i], NULL, test_float32, 1, (int64_t[]){i == 3 ? 2 : 5}, NULL);
    TEST_FAILS(ogive_plan_create(gradient, inputs, 4, NULL, 0, NULL, &plan, &error), OGIVE_SHAPE,
               error, "grad has shape (2,), but the result whose gradient it is has shape (5,)");
    assert_int_equal(error.offset, 14);
    /* What is wrong with the formula itself is still said as before. */
    inputs[1] = test_tensor_init(&tensors[1], NULL, test_float32, 1, (int64_t[]){4}, NULL);
    TEST_FAILS(ogive_plan_create(gradient, inputs, 4, NULL, 0, NULL, &plan, &error), OGIVE_SHAPE,
               error, "*: shapes (5,) and (4,) do not broadcast");
    assert_int_equal(error.offset, 2);
    ogive_formula_release(gradient);
    ogive_formula_release(formula);
}

static void test_size_limit(void **state)
{
    (void)state;
    og_text text = {0};
    og_text_add(&text, "a0 = x;");
    for (int i = 0; i < 20000; i++)
        og_text_add(&text, "a%d = a%d * exp(a%d);", i + 1, i, i);
    og_text_add(&text, "a20000");
    ogive_formula *formula = make_formula(text.data), *gradient;
    ogive_error error;
    TEST_FAILS(ogive_formula_gradient(formula, (const char *[]){"x"}, 1, &gradient, &error),
               OGIVE_UNSUPPORTED, error, "the gradient is too large: more than 65535 nodes");
    assert_null(gradient);
    ogive_formula_release(formula);
    og_text_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_function),  cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_broadcasting),    cmocka_unit_test(test_products),
        cmocka_unit_test(test_random_formulas), cmocka_unit_test(test_kinks),
        cmocka_unit_test(test_dtypes),          cmocka_unit_test(test_cast),
        cmocka_unit_test(test_names),           cmocka_unit_test(test_zero),
        cmocka_unit_test(test_graphs),          cmocka_unit_test(test_errors),
        cmocka_unit_test(test_size_limit)};
    return TEST_RUN(tests);
}
