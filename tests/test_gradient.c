/* SPDX-License-Identifier: MIT
 *
 * test_gradient.c - the gradient of a formula, by finite differences in float64:
 * every function of the table, random formulas, products of every rank, gradients
 * of gradients. What differences cannot see is in test_gradient_meaning.c.
 */
#include "function_call.h"
#include "test_gradient.h"

/* ---- finite differences ---------------------------------------------------- */

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

/* Differences would reach over the edge of a function's domain, or a pole. */
static bool is_positive_only(og_op op)
{
    const double constants[OG_MAX_NUMBERS] = {1.25, 1.25};
    if (strncmp(og_function_of(op)->name, "lp_", 3) == 0)
        return true;
    return og_function_of(op)->kind == OG_SCALAR &&
           (is_for_positive(op, constants) || is_singular_at_zero(op, constants));
}

/* Of tensor number `index` of a function that slides along as many dims as its name says, or NULL:
 * it does not. */
static const char *slid_shape(const og_function *function, int index)
{
    static const char *const shapes[] = {"2x6", "2x4x5", "2x2x4x4"};
    static const char *const weights[] = {"2x2x3", "2x2x2x3", "2x2x2x1x2"};
    bool convolves = strcmp(function->group, "convolution") == 0;
    if (!convolves && strcmp(function->group, "pooling") != 0)
        return NULL;
    int rank = *strpbrk(function->name, "123") - '1';
    return index == 0 ? shapes[rank] : index == 1 ? weights[rank] : "2";
}

/* A call with what the signature asks for; optional tensors are given too. */
static bool write_call(const og_function *function, og_op op, char *text, size_t capacity,
                       char *shapes)
{
    static const char *const names[] = {"x", "y", "z", "w", "v"};
    /* Sizes of what is not as large as the first tensor, or not like it. */
    static const struct {
        og_op op;
        const char *shapes[5];
    } others[] = {{OG_OP_linear, {"3x4", "5x4", "5"}},
                  {OG_OP_matmul, {"3x4", "4x5"}},
                  {OG_OP_addmm, {"5", "3x4", "4x5"}},
                  {OG_OP_prelu, {"3x4", "4"}},
                  {OG_OP_batch_norm, {"3x4x2", "4", "4", "4", "4"}},
                  {OG_OP_instance_norm, {"3x4x2", "4", "4"}},
                  {OG_OP_group_norm, {"3x4x2", "4", "4"}}};
    size_t used = (size_t)snprintf(text, capacity, "%s(", function->name);
    int tensors = 0;
    bool has_sizes = false, in_order = true;
    for (const og_parameter *p = function->parameters; p->kind != OG_PARAMETER_NONE; p++)
        has_sizes |= p->kind == OG_PARAMETER_SIZES;
    shapes[0] = 0;
    for (const og_parameter *p = function->parameters; p->kind != OG_PARAMETER_NONE; p++) {
        const char *shape = slid_shape(function, tensors);
        if (!shape)
            shape = tensors && has_sizes ? "4" : "3x4";
        char value[32] = "";
        switch (p->kind) {
        case OG_PARAMETER_TENSOR:
            if (op == OG_OP_instance_norm && !strncmp(p->name, "running", 7))
                break; /* there are none beside statistics of the input */
            for (size_t i = 0; i < sizeof others / sizeof *others; i++)
                if (others[i].op == op)
                    shape = others[i].shapes[tensors];
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
        case OG_PARAMETER_STEPS: /* 1 divides all of the dims that adaptive ones have */
            if (p->required)
                snprintf(value, sizeof value, "%d", strcmp(p->name, "output_size") ? 2 : 1);
            break;
        case OG_PARAMETER_NUMBER:
            if (p->required)
                snprintf(value, sizeof value, "%s",
                         op == OG_OP_narrow || op == OG_OP_unfold ? "1"
                         : op == OG_OP_group_norm                 ? "2"
                                                                  : "1.25");
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
    return function->kind != OG_MASKING && strcmp(function->group, "comparison") != 0 &&
           op != OG_OP_float32 && op != OG_OP_float16 && op != OG_OP_bfloat16;
}

static void test_every_function(void **state)
{
    (void)state;
    for (int op = 0; op < OG_FUNCTION_COUNT; op++) {
        const og_function *function = og_function_of((og_op)op);
        char text[256], shapes[64];
        if (!function->group || !write_call(function, (og_op)op, text, sizeof text, shapes))
            continue;
        if (op == OG_OP_binary_cross_entropy) {
            check_text(text, shapes, 0.1, 0.9, 2);
            continue;
        }
        check_text(text, shapes, 0.3, 2.4, 2);
        if (!is_positive_only((og_op)op) && op != OG_OP_kl_div && op != OG_OP_batch_norm)
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
                                        "max_pool1d(x, 3, 1, 1)",
                                        "max_pool1d(x, 2, 2, 1, 2, true)",
                                        "avg_pool1d(x, 3, 2, 1, true)",
                                        "avg_pool1d(x, 3, 2, 1, false, false)",
                                        "adaptive_avg_pool1d(x, 2)",
                                        "adaptive_max_pool1d(x, 2)",
                                        "adaptive_avg_pool1d(x, 3)",
                                        "adaptive_avg_pool1d(x, 7)",
                                        "adaptive_max_pool1d(x, 3)",
                                        "narrow(x, 0, -2, 2)",
                                        "unfold(x, 0, 2, 1)",
                                        "unfold(exp(x), -1, 3, 1) * 2",
                                        "sum(unfold(unfold(x, 0, 2, 1), 1, 2, 2), -1)",
                                        "narrow(x, -1, 1, 3) * narrow(x, -1, 0, 3)",
                                        "narrow(narrow(exp(x), 1, 1, 3), 1, 1, 2)",
                                        "sum(narrow(x, 1, 2, 0)) + sum(x * x)",
                                        "softmax(narrow(x, 1, 1, 3), 1)",
                                        "narrow(x, 0, 0, 2) @ t(narrow(x, 0, 1, 2))",
                                        "glu(x * x)",
                                        "p = x @ t(x); p - narrow(p, 0, 2, 1) + x @ t(x * 2)",
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
        {"tanh(x @ y + p @ q)", "3x4 4x2 3x4 4x2"},
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
        {"x @ y", "3x1x4 3x4x1"},
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
    int rounds = test_rounds(400, 20000);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_function), cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_broadcasting), cmocka_unit_test(test_products),
        cmocka_unit_test(test_random_formulas)};
    return TEST_RUN(tests);
}
