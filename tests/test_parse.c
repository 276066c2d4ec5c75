/* SPDX-License-Identifier: MIT
 *
 * test_parse.c - formula text to graphs: the grammar and every message with its
 * place as tables, the function table, and damaged text. Limits, numbers and
 * memory are in test_parse_limits.c.
 */
#include "test_parse.h"

/* ---- helpers --------------------------------------------------------------- */

/* The graph as one line, or "error: message"; to be freed. */
static char *parse_to_line(const char *text, size_t length)
{
    og_graph graph;
    ogive_error error;
    og_text line = {0};
    if (og_graph_parse(text, length, &graph, &error)) {
        og_text_add(&line, "error: %s", error.message);
        return line.data;
    }
    og_graph_print(&graph, &line);
    og_graph_free(&graph);
    og_text joined = {0};
    for (char *part = strtok(line.data, "\n"); part; part = strtok(NULL, "\n"))
        og_text_add(&joined, "%s%s", joined.length ? "; " : "", part);
    og_text_free(&line);
    return joined.data;
}

static void expect_line(const char *text, const char *want)
{
    char *got = parse_to_line(text, OGIVE_TEXT);
    if (strcmp(got, want))
        fail_msg("%s\n  got  %s\n  want %s", text, got, want);
    free(got);
}

/* ---- tables ---------------------------------------------------------------- */

static const struct {
    const char *text, *graph;
} graphs[] = {
    /* names and statements */
    {"x", "n0 = input x; results n0"},
    {"x;", "n0 = input x; results n0"},
    {"# c\nx # \303\274\n;", "n0 = input x; results n0"},
    {"layers.0.bias + x_1._y.2",
     "n0 = input layers.0.bias; n1 = input x_1._y.2; n2 = add n0 n1; results n2"},
    {"x, y, x", "n0 = input x; n1 = input y; results n0 n1 n0"},
    {"a = 1; b = a * 2; x + b", "n0 = input x; n1 = number 2; n2 = add n0 n1; results n2"},
    {"y = x; x", "n0 = input x; results n0"},
    {"w = q * 2; x", "n0 = input q; n1 = number 2; n2 = mul n0 n1; n3 = input x; results n3"},
    {"m = x > 0; where(m, x, -x)",
     "n0 = input x; n1 = number 0; n2 = gt n0 n1; n3 = neg n0; n4 = where n2 n0 n3; results n4"},
    {"count + row_max", "n0 = input count; n1 = input row_max; n2 = add n0 n1; results n2"},
    {"inf.x * nan1", "n0 = input inf.x; n1 = input nan1; n2 = mul n0 n1; results n2"},
    /* operators */
    {"x - y - z",
     "n0 = input x; n1 = input y; n2 = sub n0 n1; n3 = input z; n4 = sub n2 n3; results n4"},
    {"x - (y - z)",
     "n0 = input x; n1 = input y; n2 = input z; n3 = sub n1 n2; n4 = sub n0 n3; results n4"},
    {"x / 3 * 3", "n0 = input x; n1 = number 3; n2 = div n0 n1; n3 = mul n2 n1; results n3"},
    /* by a power of two: a multiplication */
    {"x / 2 + x / -0.25", "n0 = input x; n1 = number 0.5; n2 = mul n0 n1 [div]; n3 = number -4 (a "
                          "float); n4 = mul n0 n3 [div]; n5 = add n2 n4; results n5"},
    {"x / 1.0 + x / inf",
     "n0 = input x; n1 = number 1 (a float); n2 = mul n0 n1 [div]; n3 = number inf; "
     "n4 = div n0 n3; n5 = add n2 n4; results n5"},
    {"2 / x + x / 0", "n0 = input x; n1 = number 2; n2 = div n1 n0; n3 = number 0; n4 = div n0 n3; "
                      "n5 = add n2 n4; results n5"},
    {"x / 2**-126 + x / 2**126",
     "n0 = input x; n1 = number 1.1754943508222875e-38; n2 = div n0 n1; n3 = number "
     "8.507059173023462e+37; n4 = div n0 n3; n5 = add n2 n4; results n5"},
    {"x + y * z",
     "n0 = input x; n1 = input y; n2 = input z; n3 = mul n1 n2; n4 = add n0 n3; results n4"},
    {"x @ y @ z", "n0 = input x; n1 = input y; n2 = matmul n0 n1; n3 = input z; n4 = matmul n2 n3; "
                  "results n4"},
    {"x\n+\ty", "n0 = input x; n1 = input y; n2 = add n0 n1; results n2"},
    {"x--y", "n0 = input x; n1 = input y; n2 = neg n1; n3 = sub n0 n2; results n3"},
    {"+x", "n0 = input x; results n0"},
    {"-+-x", "n0 = input x; n1 = neg n0; n2 = neg n1; results n2"},
    {"-x**2", "n0 = input x; n1 = square n0 [pow]; n2 = neg n1; results n2"},
    {"2**-1 * x", "n0 = input x; n1 = number 0.5; n2 = mul n1 n0; results n2"},
    {"2**3**2 * x", "n0 = input x; n1 = number 512; n2 = mul n1 n0; results n2"},
    {"(-2)**2 * x", "n0 = input x; n1 = number 4; n2 = mul n1 n0; results n2"},
    {"x * -1", "n0 = input x; n1 = number -1; n2 = mul n0 n1; results n2"},
    {"((x))", "n0 = input x; results n0"},
    {"where(x + 1 < y, x, y)",
     "n0 = input x; n1 = number 1; n2 = add n0 n1; n3 = input y; n4 = lt n2 n3; "
     "n5 = where n4 n0 n3; results n5"},
    {"where(le(x, 1), x, 0)",
     "n0 = input x; n1 = number 1; n2 = le n0 n1; n3 = number 0; n4 = where n2 n0 n3; "
     "results n4"},
    {"where(x <= y, x, y)",
     "n0 = input x; n1 = input y; n2 = le n0 n1; n3 = where n2 n0 n1; results n3"},
    {"where(x > y, x, y)",
     "n0 = input x; n1 = input y; n2 = gt n0 n1; n3 = where n2 n0 n1; results n3"},
    {"where(x >= y, x, y)",
     "n0 = input x; n1 = input y; n2 = ge n0 n1; n3 = where n2 n0 n1; results n3"},
    {"where(x == y, x, y)",
     "n0 = input x; n1 = input y; n2 = eq n0 n1; n3 = where n2 n0 n1; results n3"},
    {"where(x != y, x, y)",
     "n0 = input x; n1 = input y; n2 = ne n0 n1; n3 = where n2 n0 n1; results n3"},
    /* pow as PyTorch's CPU computes it */
    {"x**1", "n0 = input x; results n0"},
    {"x**2", "n0 = input x; n1 = square n0 [pow]; results n1"},
    {"x**3", "n0 = input x; n1 = mul n0 n0 [pow]; n2 = mul n1 n0 [pow]; results n2"},
    {"x**0.5", "n0 = input x; n1 = sqrt n0 [pow]; results n1"},
    {"x**-0.5", "n0 = input x; n1 = rsqrt n0 [pow]; results n1"},
    {"x**-1", "n0 = input x; n1 = reciprocal n0 [pow]; results n1"},
    {"x**-2", "n0 = input x; n1 = pow n0 -2; results n1"},
    {"x**2.5", "n0 = input x; n1 = pow n0 2.5; results n1"},
    {"x**0", "n0 = input x; n1 = pow n0 0; results n1"},
    {"pow(x, 3)", "n0 = input x; n1 = mul n0 n0 [pow]; n2 = mul n1 n0 [pow]; results n2"},
    /* numbers */
    {"1e3 * x + .5 - 1.",
     "n0 = input x; n1 = number 1000 (a float); n2 = mul n1 n0; n3 = number 0.5; n4 = add n2 n3; "
     "n5 = number 1 (a float); n6 = sub n4 n5; results n6"},
    {"1.5E+2 * x", "n0 = input x; n1 = number 150 (a float); n2 = mul n1 n0; results n2"},
    /* of integers 1.0 makes floats, 1 nothing */
    {"x * 1", "n0 = input x; results n0"},
    {"x * 1.0", "n0 = input x; n1 = number 1 (a float); n2 = mul n0 n1; results n2"},
    {"x * (2 / 2)", "n0 = input x; n1 = number 1 (a float); n2 = mul n0 n1; results n2"},
    {"x ** 1.0", "n0 = input x; n1 = number 1 (a float); n2 = mul n0 n1 [pow]; results n2"},
    {"1e-05 * x", "n0 = input x; n1 = number 1e-05; n2 = mul n1 n0; results n2"},
    {"123456789012345678901234567890 * x",
     "n0 = input x; n1 = number 1.2345678901234568e+29; n2 = mul n1 n0; results n2"},
    {"0.1 * x", "n0 = input x; n1 = number 0.1; n2 = mul n1 n0; results n2"},
    {"inf * x", "n0 = input x; n1 = number inf; n2 = mul n1 n0; results n2"},
    {"x + nan", "n0 = input x; n1 = number nan; n2 = add n0 n1; results n2"},
    {"x * (0 * inf)", "n0 = input x; n1 = number nan; n2 = mul n0 n1; results n2"},
    {"x * sigmoid(0)", "n0 = input x; n1 = number 0.5; n2 = mul n0 n1; results n2"},
    {"square(-inf) * x", "n0 = input x; n1 = number inf; n2 = mul n1 n0; results n2"},
    {"relu6(7) * x", "n0 = input x; n1 = number 6; n2 = mul n1 n0; results n2"},
    {"minimum(1, 2) * x", "n0 = input x; results n0"},
    {"where(1 < 2, x, y)",
     "n0 = number 1; n1 = number 2; n2 = lt n0 n1; n3 = input x; n4 = input y; "
     "n5 = where n2 n3 n4; results n5"},
    {"where(x < 0, 1, 2)",
     "n0 = input x; n1 = number 0; n2 = lt n0 n1; n3 = number 1; n4 = number 2; "
     "n5 = where n2 n3 n4; results n5"},
    /* exactly neutral operations vanish, no others */
    {"x * 1", "n0 = input x; results n0"},
    {"1 * x", "n0 = input x; results n0"},
    {"x / 1", "n0 = input x; results n0"},
    {"x + -0", "n0 = input x; results n0"},
    {"-0 + x", "n0 = input x; results n0"},
    {"x - 0", "n0 = input x; results n0"},
    {"x + 0", "n0 = input x; n1 = number 0; n2 = add n0 n1; results n2"},
    {"0 - x", "n0 = input x; n1 = number 0; n2 = sub n1 n0; results n2"},
    {"x - -0", "n0 = input x; n1 = number -0; n2 = sub n0 n1; results n2"},
    {"1 / x", "n0 = input x; n1 = number 1; n2 = div n1 n0; results n2"},
    {"x + 1 * y", "n0 = input x; n1 = input y; n2 = add n0 n1; results n2"},
    /* equal nodes are one */
    {"x + x + x", "n0 = input x; n1 = add n0 n0; n2 = add n1 n0; results n2"},
    {"(x + y) * (x + y)", "n0 = input x; n1 = input y; n2 = add n0 n1; n3 = mul n2 n2; results n3"},
    {"(x + y) * (y + x)",
     "n0 = input x; n1 = input y; n2 = add n0 n1; n3 = add n1 n0; n4 = mul n2 n3; results n4"},
    {"z = linear(x, w, b); linear(x, w) + b + z",
     "n0 = input x; n1 = input w; n2 = input b; n3 = linear_product n0 n1 [linear]; "
     "n4 = add n3 n2 [linear]; n5 = add n4 n4; results n5"},
    {"1 * 2 + x + 2", "n0 = input x; n1 = number 2; n2 = add n1 n0; n3 = add n2 n1; results n3"},
    {"sum(x, 1) + sum(x, -1) + sum(x, (1,))",
     "n0 = input x; n1 = sum n0 dim=(1); n2 = sum n0 dim=(-1); n3 = add n1 n2; "
     "n4 = add n3 n1; results n4"},
    /* arguments */
    {"sum(x)", "n0 = input x; n1 = sum n0 dim=all; results n1"},
    {"sum(x, ())", "n0 = input x; n1 = sum n0 dim=all; results n1"},
    {"sum(x, None, False)", "n0 = input x; n1 = sum n0 dim=all; results n1"},
    {"sum(x, [0, 1], true)", "n0 = input x; n1 = sum n0 dim=(0, 1) keepdim; results n1"},
    {"sum(x, dim=(-1,), keepdim=True)", "n0 = input x; n1 = sum n0 dim=(-1) keepdim; results n1"},
    {"sum(x, axis=1, keepdims=true)", "n0 = input x; n1 = sum n0 dim=(1) keepdim; results n1"},
    {"sum(x, 1 - 2)", "n0 = input x; n1 = sum n0 dim=(-1); results n1"},
    {"sum(x, dim=1,)", "n0 = input x; n1 = sum n0 dim=(1); results n1"},
    {"amax(x, dim=None)", "n0 = input x; n1 = amax n0 dim=all; results n1"},
    {"amin(x, 0)", "n0 = input x; n1 = amin n0 dim=(0); results n1"},
    {"transpose(x, 0, -1)", "n0 = input x; n1 = transpose n0 dim=(0, -1); results n1"},
    {"t(x)", "n0 = input x; n1 = t n0; results n1"},
    {"x.T", "n0 = input x; n1 = t n0; results n1"},
    {"(x + y).mT ** 2", "n0 = input x; n1 = input y; n2 = add n0 n1; "
                        "n3 = transpose n2 dim=(-2, -1); n4 = square n3 [pow]; results n4"},
    {"t(t) + t", "n0 = input t; n1 = t n0; n2 = add n1 n0; results n2"},
    {"t = x * x; T = t; T + t", "n0 = input x; n1 = mul n0 n0; n2 = add n1 n1; results n2"},
    {"fc.weight.T.T", "n0 = input fc.weight; n1 = t n0; n2 = t n1; results n2"},
    {"net.T.weight", "n0 = input net.T.weight; results n0"},
    {"float16(x)", "n0 = input x; n1 = float16 n0; results n1"},
    {"bfloat16(float64(x))", "n0 = input x; n1 = float64 n0; n2 = bfloat16 n1; results n2"},
    {"gelu(x)", "n0 = input x; n1 = gelu n0; results n1"},
    {"gelu(x, approximate='none')", "n0 = input x; n1 = gelu n0; results n1"},
    {"gelu(x, approximate=\"tanh\")", "n0 = input x; n1 = gelu_tanh n0 [gelu]; results n1"},
    {"threshold(x, threshold=1, value=2)", "n0 = input x; n1 = threshold n0 1 2; results n1"},
    {"softplus(x, threshold=5)", "n0 = input x; n1 = softplus n0 1 5; results n1"},
    {"leaky_relu(x, 2 * 0.1)", "n0 = input x; n1 = leaky_relu n0 0.2; results n1"},
    {"clamp(x, -1)", "n0 = input x; n1 = clamp n0 -1 inf; results n1"},
    {"clamp(x, max=1)", "n0 = input x; n1 = clamp n0 -inf 1; results n1"},
    {"clamp(x, y)", "n0 = input x; n1 = input y; n2 = at_least n0 n1 [clamp]; results n2"},
    {"clamp(x, None, y)", "n0 = input x; n1 = input y; n2 = at_most n0 n1 [clamp]; results n2"},
    {"x < y",
     "n0 = input x; n1 = input y; n2 = lt n0 n1; n3 = number 1; n4 = number 0; n5 = where n2 "
     "n3 n4; n6 = boolean n5; results n6"},
    {"where(m, x, 0)",
     "n0 = input m; n1 = input x; n2 = number 0; n3 = truth n0 n2; n4 = where n3 n1 "
     "n2; results n4"},
    {"where((x < y) == z, x, y)",
     "n0 = input x; n1 = input y; n2 = lt n0 n1; n3 = input z; n4 = number 1; n5 = number 0; n6 = "
     "where n2 n4 n5; n7 = boolean n6; n8 = eq n7 n3; n9 = where n8 n0 n1; results n9"},
    {"where(~m, x, y)",
     "n0 = input m; n1 = number 0; n2 = truth n0 n1; n3 = number 1; n4 = where n2 n3 n1 "
     "[logical_not]; n5 = eq n4 n1 [logical_not]; n6 = input x; n7 = input y; n8 = where n5 n6 n7; "
     "results n8"},
    {"x**y", "n0 = input x; n1 = input y; n2 = power n0 n1 [pow]; results n2"},
    {"x**-y", "n0 = input x; n1 = input y; n2 = neg n1; n3 = power n0 n2 [pow]; results n3"},
    {"2**x", "n0 = input x; n1 = number 2; n2 = power n1 n0 [pow]; results n2"},
    {"pow(exponent=y, input=x)", "n0 = input y; n1 = input x; n2 = power n1 n0 [pow]; results n2"},
    {"max(x, y)", "n0 = input x; n1 = input y; n2 = maximum n0 n1; results n2"},
    {"min(x, other=y)", "n0 = input x; n1 = input y; n2 = minimum n0 n1; results n2"},
    {"max(x, 1, true)", "n0 = input x; n1 = max_of_dim n0 dim=(1) keepdim [max]; results n1"},
    {"max = max(x); max + min", "n0 = input x; n1 = amax n0 dim=all [max]; n2 = input min; n3 = "
                                "add n1 n2; results n3"},
    {"clamp(x, None, 1)", "n0 = input x; n1 = clamp n0 -inf 1; results n1"},
    {"maximum(x, 0)", "n0 = input x; n1 = number 0; n2 = maximum n0 n1; results n2"},
    {"linear(bias=b, weight=w, input=x)",
     "n0 = input b; n1 = input w; n2 = input x; n3 = linear_product n2 n1 [linear]; "
     "n4 = add n3 n0 [linear]; results n4"},
    {"linear(x, w, None)",
     "n0 = input x; n1 = input w; n2 = linear_product n0 n1 [linear]; results n2"},
    /* composites */
    {"hardswish(x)",
     "n0 = input x; n1 = number 3; n2 = add n0 n1 [hardswish]; n3 = clamp n2 0 6 [hardswish]; "
     "n4 = mul n0 n3 [hardswish]; n5 = number 6; n6 = div n4 n5 [hardswish]; results n6"},
    {"softsign(x)",
     "n0 = input x; n1 = abs n0 [softsign]; n2 = number 1; n3 = add n2 n1 [softsign]; "
     "n4 = div n0 n3 [softsign]; results n4"},
    {"hardtanh(x, max_val=2)", "n0 = input x; n1 = clamp n0 -1 2 [hardtanh]; results n1"},
    {"mean(x)", "n0 = input x; n1 = sum n0 dim=all [mean]; n2 = count n0 dim=all 0 [mean]; "
                "n3 = div n1 n2 [mean]; results n3"},
    {"std(x, 1)", "n0 = input x; n1 = sum n0 dim=(1) keepdim [std]; n2 = count n0 dim=(1) 0 [std]; "
                  "n3 = div n1 n2 [std]; n4 = sub n0 n3 [std]; n5 = mul n4 n4 [std]; "
                  "n6 = sum n5 dim=(1) [std]; n7 = square_scale n6 0 [std]; "
                  "n8 = expand n7 n4 dim=(1) [std]; n9 = scaled_square n4 n8 [std]; "
                  "n10 = sum n9 dim=(1) [std]; n11 = rescaled n6 n10 0 [std]; "
                  "n12 = count n0 dim=(1) 1 [std]; n13 = div n11 n12 [std]; n14 = sqrt n13 [std]; "
                  "n15 = div n14 n7 [std]; results n15"},
    {"var(x, 1, correction=0, keepdim=true)",
     "n0 = input x; n1 = sum n0 dim=(1) keepdim [var]; n2 = count n0 dim=(1) 0 [var]; "
     "n3 = div n1 n2 [var]; n4 = sub n0 n3 [var]; n5 = mul n4 n4 [var]; "
     "n6 = sum n5 dim=(1) keepdim [var]; n7 = square_scale n6 inf [var]; "
     "n8 = expand n7 n4 dim=(1) keepdim [var]; n9 = scaled_square n4 n8 [var]; "
     "n10 = sum n9 dim=(1) keepdim [var]; n11 = rescaled_once n6 n10 inf [var]; "
     "n12 = div n11 n2 [var]; n13 = unscaled n12 n7 [var]; results n13"},
    {"logsumexp(x, 1)",
     "n0 = input x; n1 = row_max n0 dim=(1) [logsumexp]; n2 = sumexp n0 dim=(1) [logsumexp]; "
     "n3 = log n2 [logsumexp]; n4 = abs n1 [logsumexp]; n5 = number inf; "
     "n6 = eq n4 n5 [logsumexp]; n7 = number 0; n8 = where n6 n7 n1 [logsumexp]; "
     "n9 = add n3 n8 [logsumexp]; results n9"},
    {"softmax(x, -1)",
     "n0 = input x; n1 = row_max n0 dim=(-1) keepdim [softmax]; n2 = sub n0 n1 [softmax]; "
     "n3 = exp n2 [softmax]; n4 = sumexp n0 dim=(-1) keepdim [softmax]; "
     "n5 = sub n1 n1 [softmax]; n6 = add n4 n5 [softmax]; "
     "n7 = reciprocal n6 [softmax]; n8 = mul n3 n7 [softmax]; results n8"},
    {"log_softmax(x, 1)",
     "n0 = input x; n1 = row_max n0 dim=(1) keepdim [log_softmax]; "
     "n2 = sub n0 n1 [log_softmax]; n3 = sumexp n0 dim=(1) keepdim [log_softmax]; "
     "n4 = sub n1 n1 [log_softmax]; n5 = add n3 n4 [log_softmax]; n6 = log n5 [log_softmax]; "
     "n7 = sub n2 n6 [log_softmax]; results n7"},
    {"layer_norm(x, [2, 3])",
     "n0 = input x; n1 = sum n0 dim=(-2, -1) sizes=(2, 3) keepdim [layer_norm]; n2 = count n0 "
     "dim=(-2, -1) sizes=(2, 3) 0 [layer_norm]; n3 = div n1 n2 [layer_norm]; n4 = sub n0 n3 "
     "[layer_norm]; n5 = mul n4 n4 [layer_norm]; n6 = sum n5 dim=(-2, -1) sizes=(2, 3) "
     "keepdim [layer_norm]; n7 = square_scale n6 1e-05 [layer_norm]; n8 = scaled_square n4 n7 "
     "[layer_norm]; n9 = sum n8 dim=(-2, -1) sizes=(2, 3) keepdim [layer_norm]; n10 = "
     "rescaled n6 n9 1e-05 [layer_norm]; n11 = div n10 n2 [layer_norm]; n12 = scaled_rsqrt "
     "n11 n7 1e-05 [layer_norm]; n13 = mul n4 n12 [layer_norm]; results n13"},
    {"layer_norm(x, 4, w, b) + mean(x, -1, true)",
     "n0 = input x; n1 = input w; n2 = input b; n3 = sum n0 dim=(-1) sizes=(4) keepdim "
     "[layer_norm]; n4 = count n0 dim=(-1) sizes=(4) 0 [layer_norm]; n5 = div n3 n4 "
     "[layer_norm]; n6 = sub n0 n5 [layer_norm]; n7 = mul n6 n6 [layer_norm]; n8 = sum n7 "
     "dim=(-1) sizes=(4) keepdim [layer_norm]; n9 = square_scale n8 1e-05 [layer_norm]; n10 = "
     "scaled_square n6 n9 [layer_norm]; n11 = sum n10 dim=(-1) sizes=(4) keepdim "
     "[layer_norm]; n12 = rescaled n8 n11 1e-05 [layer_norm]; n13 = div n12 n4 [layer_norm]; "
     "n14 = scaled_rsqrt n13 n9 1e-05 [layer_norm]; n15 = mul n6 n14 [layer_norm]; n16 = mul "
     "n15 n1 [layer_norm]; n17 = add n16 n2 [layer_norm]; n18 = add n17 n5; check weight n1 "
     "(4,); check bias n2 (4,); results n18"},
    {"rms_norm(x, (4,), w)",
     "n0 = input x; n1 = input w; n2 = square n0 [rms_norm]; n3 = sum n2 dim=(-1) sizes=(4) "
     "keepdim [rms_norm]; n4 = square_scale n3 nan [rms_norm]; n5 = scaled_square n0 n4 "
     "[rms_norm]; n6 = sum n5 dim=(-1) sizes=(4) keepdim [rms_norm]; n7 = rescaled n3 n6 nan "
     "[rms_norm]; n8 = count n0 dim=(-1) sizes=(4) 0 [rms_norm]; n9 = div n7 n8 [rms_norm]; "
     "n10 = scaled_rsqrt n9 n4 nan [rms_norm]; n11 = mul n0 n10 [rms_norm]; n12 = mul n11 n1 "
     "[rms_norm]; check weight n1 (4,); results n12"},
};

static void test_graphs(void **state)
{
    (void)state;
    for (size_t i = 0; i < TEST_COUNT(graphs); i++)
        expect_line(graphs[i].text, graphs[i].graph);
}

static const struct {
    const char *text;
    int64_t offset;
    const char *message;
} errors[] = {
    {"   # only", 0, "the formula is empty"},
    {";", 0, "expected a value, got ';'"},
    {"1 + 2", 0, "the formula has no input: no name in it is free"},
    {"a = 1; a", 7, "the formula has no input: no name in it is free"},
    {"x, 2", 3, "the result does not depend on any input"},
    {"x, where(1 < 2, 3, 4)", 3, "the result does not depend on any input"},
    {"a = x;", 6, "expected a result after the bindings, got the end of the formula"},
    {"a = x", 5, "expected an operator or ';' after the bound value, got the end of the formula"},
    {"a = x, y", 5, "expected an operator or ';' after the bound value, got ','"},
    {"x; y", 3,
     "expected the end of the formula after its results (a value before them is bound by "
     "'name = value;'), got 'y'"},
    {"x y", 2, "expected an operator, ',', ';' or the end of the formula, got 'y'"},
    {"x)", 1, "')' closes nothing that is open"},
    {"x]", 1, "']' closes nothing that is open"},
    {"(x", 2, "expected an operator or ')' to close the '(' at byte 0, got the end of the formula"},
    {"((x)", 4,
     "expected an operator or ')' to close the '(' at byte 0, got the end of the formula"},
    {"(x y)", 3, "expected an operator or ')' to close the '(' at byte 0, got 'y'"},
    {"sum(x", 5, "expected ',' or ')' to close the '(' at byte 3, got the end of the formula"},
    {"sum(x y)", 6, "expected ',' or ')' to close the '(' at byte 3, got 'y'"},
    {"sum(x, [0, 1", 12,
     "expected ',' or ']' to close the '[' at byte 7, got the end of the formula"},
    {"sum(x, (0, 1", 12,
     "expected ',' or ')' to close the '(' at byte 7, got the end of the formula"},
    {"sum((x], 1)", 6, "expected an operator or ')' to close the '(' at byte 4, got ']'"},
    {"f(x)", 0, "unknown function 'f' (ogive functions lists all)"},
    {"Sigmoid(x)", 0,
     "unknown function 'Sigmoid'; did you mean 'sigmoid'? (ogive functions lists all)"},
    {"sigmod(x)", 0,
     "unknown function 'sigmod'; did you mean 'sigmoid'? (ogive functions lists all)"},
    {"sigm(x)", 0, "unknown function 'sigm'; did you mean 'sign'? (ogive functions lists all)"},
    {"wehre(x > 0, x, y)", 0,
     "unknown function 'wehre'; did you mean 'where'? (ogive functions lists all)"},
    {"softmaxx(x, 1)", 0,
     "unknown function 'softmaxx'; did you mean 'softmax'? (ogive functions lists all)"},
    {"maxx(x)", 0, "unknown function 'maxx'; did you mean 'max'? (ogive functions lists all)"},
    {"frobnicate(x)", 0, "unknown function 'frobnicate' (ogive functions lists all)"},
    {"row_max(x, 1)", 0, "unknown function 'row_max' (ogive functions lists all)"},
    {"swish(x)", 0, "unknown function 'swish'; write silu(...)"},
    {"F.gelu(x)", 0, "unknown function 'F.gelu'; write gelu(...)"},
    {"torch.sigmoid(x)", 0, "unknown function 'torch.sigmoid'; write sigmoid(...)"},
    {"nn.functional.gelu(x)", 0, "unknown function 'nn.functional.gelu'; write gelu(...)"},
    {"x.mean(1)", 0, "unknown function 'x.mean'; write mean(x, ...)"},
    {"x.y.clip(1)", 0, "unknown function 'x.y.clip'; write clamp(x.y, ...)"},
    {"(x + 1).mean(1)", 7, "'.mean': a value has .T and .mT only; a function is written mean(...)"},
    {"x.dropout(0.5)", 0,
     "unknown function 'x.dropout': the language has no random numbers (ogive functions lists "
     "what it has)"},
    {"x.float()", 0, "unknown function 'x.float'; write float32(x, ...)"},
    {"masked_fill(x, m, 0)", 0, "unknown function 'masked_fill'; write where(...)"},
    {"argmax(x, 1)", 0,
     "unknown function 'argmax': the language has no indices (ogive functions lists what it has)"},
    {"max_pool(x, 2)", 0,
     "unknown function 'max_pool'; did you mean 'max_pool1d'? (ogive functions lists all)"},
    {"x + x(2)", 4, "'x' is not a function but an input; a product is written with *"},
    {"a = x; a(2)", 7, "'a' is not a function but a bound name; a product is written with *"},
    {"sigmoid", 0, "'sigmoid' is a function: write sigmoid(...)"},
    {"x.T = y; x", 4, "expected an operator, ',', ';' or the end of the formula, got '='"},
    {"(2).T * x", 0, "t: input must be a tensor that depends on an input, got a constant"},
    {"sigmoid = x; x", 0, "'sigmoid' is a function; give the value another name"},
    {"inf = x; x", 0, "'inf' is a word of the language; give the value another name"},
    {"True = x; x", 0, "'True' is a word of the language; give the value another name"},
    {"a = x; a = y; a", 7, "'a' is bound twice (first at byte 0)"},
    {"x = x + 1; x", 0, "'x' is bound after it is used (as an input, at byte 4)"},
    {"y = x; x = y; x", 7, "'x' is bound after it is used (as an input, at byte 4)"},
    {"sigmoid()", 0, "sigmoid: argument 'input' is missing; the call is sigmoid(input)"},
    {"sigmoid(x, y)", 11, "sigmoid takes at most 1 argument; the call is sigmoid(input)"},
    {"threshold(x, 1)", 0,
     "threshold: argument 'value' is missing; the call is threshold(input, threshold, value)"},
    {"softmax(x)", 0, "softmax: argument 'dim' is missing; the call is softmax(input, dim)"},
    {"softmax(x, None)", 11, "softmax: argument 'dim' is missing; the call is softmax(input, dim)"},
    {"sum(x, where=1)", 7,
     "sum has no parameter 'where'; the call is sum(input, dim=None, keepdim=False)"},
    {"sum(x, keepdimm=1)", 7, "sum has no parameter 'keepdimm'; did you mean 'keepdim'?"},
    {"var(x, 1, unbiased=false)", 10,
     "var: unbiased=true is written correction=1, unbiased=false correction=0"},
    {"sum(x, dim=0, dim=1)", 14, "sum: 'dim' is given twice"},
    {"sum(x, 0, dim=1)", 10, "sum: 'dim' is given twice"},
    {"sum(dim=0, x)", 11, "sum: an argument without a name follows one with a name"},
    {"gelu(x, \"tanh\")", 8, "gelu: 'approximate' is given by name: approximate=..."},
    {"var(x, 1, 2)", 10, "var: 'correction' is given by name: correction=..."},
    {"gelu(x, approximate=\"tan\")", 20,
     "gelu: approximate must be 'none' or 'tanh', got the string 'tan'"},
    {"gelu(x, approximate=1)", 20, "gelu: approximate must be 'none' or 'tanh', got the number 1"},
    {"sum(x, keepdim=1)", 15, "sum: keepdim must be true or false, got the number 1"},
    {"sum(x, true)", 7, "sum: dim must be an integer or a list of integers, got true"},
    {"sum(x, 1.5)", 7, "sum: dim must be an integer or a list of integers, got the number 1.5"},
    {"sum(x, nan)", 7, "sum: dim must be an integer or a list of integers, got the number nan"},
    {"sum(x, y)", 7, "sum: dim must be an integer or a list of integers, got a tensor"},
    {"sum(x, \"a\")", 7, "sum: dim must be an integer or a list of integers, got the string 'a'"},
    {"sum(x, (0, 1.5))", 11, "a list holds integers, 1.5 is none"},
    {"sum(x, (0, y))", 11,
     "a list holds constant integers; several results are written without parentheses"},
    {"(x, y)", 1,
     "a list holds constant integers; several results are written without parentheses"},
    {"sum(x, (1, 2, 3, 4, 5, 6, 7, 8, 9))", 32, "a list holds at most 8 integers"},
    {"sum(x, 1e10)", 7, "sum: dim 10000000000 is out of range"},
    {"softmax(x, (0, 1))", 11, "softmax: dim must be an integer, got a list"},
    {"layer_norm(x, ())", 14, "layer_norm: normalized_shape is empty"},
    {"x + batch_norm(x, None, v)", 4,
     "batch_norm: running_mean is missing, which is needed where training is false"},
    {"batch_norm(x, m, v, training=true)", 14,
     "batch_norm: running_mean must be None where training is true: a formula changes no tensor"},
    {"instance_norm(x, None, v)", 23,
     "instance_norm: running_var must be None where use_input_stats is true: a formula changes no "
     "tensor"},
    {"group_norm(x, 1.5)", 14,
     "group_norm: num_groups is 1.5, expected an integer of 1 or more, less than 2^29"},
    {"layer_norm(x, (2, -1))", 14, "layer_norm: normalized_shape has the negative size -1"},
    {"layer_norm(x, w)", 14,
     "layer_norm: normalized_shape must be an integer or a list of integers, got a tensor"},
    {"clamp(x)", 0, "clamp: give min, max or both"},
    {"clamp(x, None)", 0, "clamp: give min, max or both"},
    {"clamp(x, 0, max=y)", 9,
     "clamp: min is a number, but max a tensor; use maximum() or minimum() for one"},
    {"clamp(x, y, 'a')", 12, "clamp: max must be a tensor, got the string 'a'"},
    {"x**\"a\"", 3, "the exponent of ** must be a tensor or a number, got the string 'a'"},
    {"pow(x, 'a')", 7, "pow: exponent must be a number, got the string 'a'"},
    {"pow(2, 3, x)", 10, "pow takes at most 2 arguments; the call is pow(input, exponent)"},
    {"max(x, y, true)", 10, "max: of two tensors, it has no keepdim"},
    {"max(x, otter=y)", 7,
     "max has no parameter 'otter'; the call is max(input, dim=None, "
     "keepdim=False)"},
    {"mse_loss(x, y, 'sum')", 15, "mse_loss: 'reduction' is given by name: reduction=..."},
    {"mse_loss(x, y, reduction='avg')", 25,
     "mse_loss: reduction must be 'mean', 'none' or 'sum', got the string 'avg'"},
    {"normalize(x, dim=(0, 1))", 17, "normalize: dim must be an integer, got a list"},
    {"std_mean(x) + 1", 0,
     "an operand of + must be a tensor or a number, got two values: bind them to two names "
     "first, as in s, m = std_mean(x);"},
    {"a, b = sum(x); a", 7, "two names are bound to one value; std_mean and var_mean give two"},
    {"a, a = std_mean(x); a", 3, "'a' is bound twice (first at byte 0)"},
    {"s = std_mean(x); s", 4,
     "a bound value must be a tensor or a number, got two values: bind them to two names first, "
     "as in s, m = std_mean(x);"},
    {"\"a\"**2", 0, "the base of ** must be a tensor or a number, got the string 'a'"},
    {"leaky_relu(x, y)", 14, "leaky_relu: negative_slope must be a constant, got a tensor"},
    {"hardtanh(x, y)", 12, "hardtanh: min_val must be a constant, got a tensor"},
    {"where(1, x, y)", 6,
     "where: condition must be a comparison or a tensor of bool, got the number 1"},
    {"x > 0 & y < 1", 4,
     "logical_and: input must be a comparison in brackets, as in (x > 0) & m, or a tensor of bool, "
     "got the number 0"},
    {"~2 * x", 1,
     "logical_not: input must be a comparison in brackets, as in (x > 0) & m, or a tensor of bool, "
     "got the number 2"},
    {"leaky_relu(x, true)", 14, "leaky_relu: negative_slope must be a number, got true"},
    {"sigmoid(\"a\")", 8, "sigmoid: input must be a tensor, got the string 'a'"},
    {"x < y < z", 6, "comparisons do not chain: write (a < b) & (b < c)"},
    {"x @ 2", 4, "an operand of @ must be a tensor that depends on an input, got a constant"},
    {"matmul(x, 2)", 10, "matmul: other must be a tensor that depends on an input, got a constant"},
    {"sum(3)", 4, "sum: input must be a tensor that depends on an input, got a constant"},
    {"mean(2)", 5, "mean: input must be a tensor that depends on an input, got a constant"},
    {"softmax(2, 0)", 8,
     "softmax: input must be a tensor that depends on an input, got a constant"},
    {"linear(x, 2)", 10,
     "linear: weight must be a tensor that depends on an input, got a constant"},
    {"float32(2)", 8, "float32: input must be a tensor that depends on an input, got a constant"},
    {"sum(where(1 < 2, 1, 2))", 4,
     "sum: input must be a tensor that depends on an input, got a constant"},
    {"a = (0, 1); x", 4, "a bound value must be a tensor or a number, got a list"},
    {"a = true; x", 4, "a bound value must be a tensor or a number, got true"},
    {"x + None", 4, "an operand of + must be a tensor or a number, got None"},
    {"true", 0, "a result must be a tensor or a number, got true"},
    {"[1]", 0, "a result must be a tensor or a number, got a list"},
    {"x \303\227 y", 2, "unexpected character '\303\227' (U+00D7); write *"},
    {"x \342\210\222 y", 2, "unexpected character '\342\210\222' (U+2212); write -"},
    {"x \342\211\244 y", 2, "unexpected character '\342\211\244' (U+2264); write <="},
    {"\303\251", 0, "unexpected character '\303\251' (U+00E9)"},
    {"x\001", 1, "unexpected control character U+0001"},
    {"x\177", 1, "unexpected control character U+007F"},
    {"x\377", 1, "byte 0xFF is not UTF-8"},
    {"x\303", 1, "byte 0xC3 is not UTF-8"},
    {"x \355\240\200", 2, "byte 0xED is not UTF-8"},
    {"# \377\nx", 2, "byte 0xFF is not UTF-8"},
    {"# \001\nx", 2, "unexpected control character U+0001"},
    {"x^2", 2,
     "logical_xor: other must be a comparison in brackets or a tensor of bool (a power is written "
     "**), got the number 2"},
    {"x % 2", 2, "unexpected character '%'"},
    {"x ! y", 2, "unexpected character '!'"},
    {"1x", 0, "'1x' is neither a number nor a name"},
    {"1.2.3 * x", 0, "'1.2.3' is neither a number nor a name"},
    {"1e * x", 0, "'1e': the exponent has no digits"},
    {"1e+ * x", 0, "'1e+': the exponent has no digits"},
    {"1e999 * x", 0, "the number 1e999 is out of float64's range"},
    {"1e-999 * x", 0, "the number 1e-999 is out of float64's range"},
    {"x..y", 1, "expected a word or digits after '.'"},
    {"x.", 1, "expected a word or digits after '.'"},
    {"layers.0a", 8, "a part of a dotted name is a word or digits alone"},
    {"\"abc", 0, "the string that starts here has no closing \""},
    {"gelu(x, approximate=\"a\nb\")", 20, "the string that starts here has no closing \""},
    {"gelu(x, approximate=\"\303\274\")", 21, "unexpected character '\303\274' (U+00FC)"},
    {"*x", 0, "expected a value, got '*'"},
    {"x +", 3, "expected a value, got the end of the formula"},
    {"x, ", 2, "expected a value, got the end of the formula"},
    {"= x", 0, "expected a value (a binding is a name, '=', a value and ';'), got '='"},
    {"sum(x, dim=)", 11, "expected a value, got ')'"},
    {"sum(x,, 1)", 6, "expected a value, got ','"},
    {"a = ; x", 4, "expected a value, got ';'"},
};

static void test_errors(void **state)
{
    (void)state;
    for (size_t i = 0; i < TEST_COUNT(errors); i++) {
        expect_error(errors[i].text, OGIVE_TEXT, errors[i].offset, errors[i].message);
        assert_int_equal(og_graph_parse(errors[i].text, OGIVE_TEXT, &(og_graph){0}, NULL),
                         OGIVE_FORMULA);
    }
    expect_error("x\0y", 3, 1, "unexpected control character U+0000");
    TEST_FAILS(og_graph_parse(NULL, 0, &(og_graph){0}, &(ogive_error){0}), OGIVE_ARGUMENT,
               (ogive_error){0}, "");
}

/* The offset of what the user wrote, also for nodes that a composite became. */
static void test_offsets(void **state)
{
    (void)state;
    og_graph graph;
    ogive_error error;
    TEST_OK(og_graph_parse("z = linear(x, w, b); z + 2 * mean(z, 1)", OGIVE_TEXT, &graph, &error),
            error);
    static const int64_t offsets[] = {11, 14, 17, 4, 4, 29, 29, 29, 25, 27, 23};
    assert_int_equal(graph.node_count, TEST_COUNT(offsets));
    for (int i = 0; i < graph.node_count; i++)
        assert_int_equal(graph.nodes[i].offset, offsets[i]);
    assert_string_equal(og_node_label(&graph, &graph.nodes[0]), "x");
    assert_string_equal(og_node_label(&graph, &graph.nodes[4]), "linear");
    assert_string_equal(og_node_label(&graph, &graph.nodes[9]), "*");
    assert_string_equal(og_node_label(&graph, &graph.nodes[10]), "+");
    assert_int_equal(graph.inputs[2].offset, 17);
    assert_string_equal(graph.inputs[2].name, "b");
    og_graph_free(&graph);
}

/* ---- functions --------------------------------------------------------------- */

/* Every row is found, has a signature, and parses with its tensors and numbers
 * given by position; a composite's meaning is therefore right too. */
static void test_functions(void **state)
{
    (void)state;
    for (int op = 0; op < OG_FUNCTION_COUNT; op++) {
        const og_function *function = og_function_of((og_op)op);
        size_t length = strlen(function->name);
        char signature[128], text[256];
        og_function_signature(function, signature, sizeof signature);
        assert_in_range(strlen(signature), 1, sizeof signature - 2);
        assert_int_equal(og_function_find(function->name, length, true), op);
        assert_int_equal(og_function_find(function->name, length, false),
                         function->group ? op : OG_FUNCTION_COUNT);
        assert_int_equal(og_op_is_reduction((og_op)op), function->kind == OG_REDUCTION);
        if (!function->group || function->kind == OG_MASKING || op == OG_OP_where)
            continue;
        size_t used = (size_t)snprintf(text, sizeof text, "%s(x", function->name);
        for (const og_parameter *p = function->parameters + 1; p->required; p++)
            used += (size_t)snprintf(text + used, sizeof text - used,
                                     p->kind == OG_PARAMETER_TENSOR ? ", y" : ", 1");
        snprintf(text + used, sizeof text - used, "%s",
                 op == OG_OP_clamp        ? ", 1)"
                 : op == OG_OP_batch_norm ? ", y, z)"
                                          : ")");
        char *line = parse_to_line(text, OGIVE_TEXT);
        if (!strncmp(line, "error", 5))
            fail_msg("%s: %s", text, line);
        free(line);
    }
}

static void expect_signature(og_op op, const char *want)
{
    char text[128];
    og_function_signature(og_function_of(op), text, sizeof text);
    assert_string_equal(text, want);
}

static void test_signatures(void **state)
{
    (void)state;
    expect_signature(OG_OP_leaky_relu, "input, negative_slope=0.01");
    expect_signature(OG_OP_gelu, "input, *, approximate='none'");
    expect_signature(OG_OP_clamp, "input, min=None, max=None");
    expect_signature(OG_OP_var, "input, dim=None, *, correction=1.0, keepdim=False");
    expect_signature(OG_OP_layer_norm,
                     "input, normalized_shape, weight=None, bias=None, eps=1e-05");
    char cut[8];
    og_function_signature(og_function_of(OG_OP_leaky_relu), cut, sizeof cut);
    assert_string_equal(cut, "input, ");
}

static void test_nearest(void **state)
{
    (void)state;
    static const char *const names[][2] = {
        {"sigmod", "sigmoid"},
        {"ReLU", "relu"},
        {"reul", "relu"},
        {"softmx", "softmax"},
        {"hardsig", "hardsigmoid"},
        {"layernorm", "layer_norm"},
        {"relu_", "relu"},
        {"qqqqqq", NULL},
        {"q", NULL},
        {"", NULL},

        {"transpose_", "transpose"},
    };
    for (size_t i = 0; i < TEST_COUNT(names); i++) {
        const char *got = og_function_nearest(names[i][0], strlen(names[i][0]));
        if (!got != !names[i][1] || (got && strcmp(got, names[i][1])))
            fail_msg("%s: got %s", names[i][0], got ? got : "nothing");
    }
}

/* ---- damage ------------------------------------------------------------------ */

/* Whatever the bytes, the parser ends with a graph or with a message that has a
 * place in the text. The bytes end where the memory does. */
static void test_mutations(void **state)
{
    (void)state;
    static const char alphabet[] = "x1.e+-*/@(),;=<>!\"'#[] \n\0\377\303\274_tsum";
    test_random random = test_random_named("mutations");
    for (int round = 0; round < 40000; round++) {
        const char *source = round % 2
                                 ? graphs[test_random_below(&random, TEST_COUNT(graphs))].text
                                 : errors[test_random_below(&random, TEST_COUNT(errors))].text;
        size_t length = strlen(source);
        char *text = malloc(length + 1);
        assert_non_null(text);
        memcpy(text, source, length + 1);
        for (int edits = 1 + (int)test_random_below(&random, 3); edits > 0 && length; edits--) {
            size_t at = (size_t)test_random_below(&random, (int64_t)length);
            text[at] = alphabet[test_random_below(&random, sizeof alphabet - 1)];
            if (test_random_below(&random, 8) == 0)
                length = at;
        }
        og_graph graph;
        ogive_error error;
        char *exact = malloc(length ? length : 1);
        assert_non_null(exact);
        memcpy(exact, text, length);
        if (og_graph_parse(exact, length, &graph, &error)) {
            assert_int_equal(error.status, OGIVE_FORMULA);
            assert_in_range(error.offset, 0, length);
            assert_true(error.message[0] && !strchr(error.message, '\n'));
        } else {
            og_graph_free(&graph);
        }
        free(exact);
        free(text);
    }
}

/* A meaning that names a row without a group means nothing to a user. */
static void test_public_meanings(void **state)
{
    (void)state;
    static const struct {
        og_op op;
        bool is_public;
    } rows[] = {{OG_OP_hardswish, true},   {OG_OP_softmin, true}, {OG_OP_std_mean, true},
                {OG_OP_layer_norm, false}, {OG_OP_mean, false},   {OG_OP_softmax, false},
                {OG_OP_linear, false},     {OG_OP_sigmoid, false}};
    for (size_t i = 0; i < TEST_COUNT(rows); i++) {
        const og_function *function = og_function_of(rows[i].op);
        const char *meaning = og_function_public_meaning(function);
        if (meaning != (rows[i].is_public ? function->meaning : NULL))
            fail_msg("%s: %s", function->name, meaning ? meaning : "none");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_graphs),     cmocka_unit_test(test_errors),
        cmocka_unit_test(test_offsets),    cmocka_unit_test(test_functions),
        cmocka_unit_test(test_signatures), cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_mutations),  cmocka_unit_test(test_public_meanings),
    };
    return TEST_RUN(tests);
}
