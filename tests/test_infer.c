/* SPDX-License-Identifier: MIT
 *
 * test_infer.c - shapes and dtypes of graphs: what PyTorch 2.13 gives for the same
 * expressions, as a table, and every message with its place.
 */
#include "test.h"

#include "formula/infer.h"

#include <fenv.h>

enum { MOST_INPUTS = 8 };

/* "float32(2,3) float16()": the inputs in order of first appearance. */
static int read_inputs(const char *text, og_input_type *inputs)
{
    int count = 0;
    memset(inputs, 0, MOST_INPUTS * sizeof *inputs);
    for (const char *c = text; *c; count++) {
        assert_true(count < MOST_INPUTS);
        og_input_type *input = &inputs[count];
        size_t length = strcspn(c, "(");
        bool is_known = false;
        for (int d = 0; d < OG_DTYPE_COUNT; d++) {
            if (!strncmp(og_dtype_name((og_dtype)d), c, length) &&
                !og_dtype_name((og_dtype)d)[length]) {
                input->dtype = (og_dtype)d;
                is_known = true;
            }
        }
        assert_true(is_known);
        for (c += length + 1; *c != ')'; c += *c == ',') {
            char *end;
            input->shape[input->rank++] = strtoll(c, &end, 10);
            c = end;
        }
        c += 1 + (c[1] == ' ');
    }
    return count;
}

/* "float32 (2, 3), float16 ()": all results; or "shape 3: message". */
static void infer_to_text(const char *formula, const char *inputs_text, og_text *out)
{
    og_graph graph;
    ogive_error error;
    og_input_type inputs[MOST_INPUTS];
    int count = read_inputs(inputs_text, inputs);
    TEST_OK(og_graph_parse(formula, OGIVE_TEXT, &graph, &error), error);
    if (count != graph.input_count)
        fail_msg("%s: %d inputs, given %d", formula, (int)graph.input_count, count);
    og_typed *types = malloc((size_t)graph.node_count * sizeof *types);
    assert_non_null(types);
    memset(types, 0xa5, (size_t)graph.node_count * sizeof *types);
    if (og_infer(&graph, inputs, types, &error)) {
        og_text_add(out, "%s %lld: %s", ogive_status_name(error.status), (long long)error.offset,
                    error.message);
    } else {
        for (int i = 0; i < graph.result_count; i++) {
            const og_typed *type = &types[graph.results[i]];
            char shape[OG_SHAPE_TEXT];
            assert_false(type->is_number || type->is_mask);
            og_text_add(out, "%s%s %s", i ? ", " : "", og_dtype_name(type->dtype),
                        og_shape_text(type->rank, type->shape, shape));
        }
    }
    free(types);
    og_graph_free(&graph);
}

static const struct {
    const char *formula, *inputs, *want;
} rows[] = {
    /* broadcasting */
    {"x + y", "float32(2,3) float32(3)", "float32 (2, 3)"},
    {"x + y", "float32(2,1,3) float32(4,1)", "float32 (2, 4, 3)"},
    {"x + y", "float32(0,3) float32(1,1)", "float32 (0, 3)"},
    {"x + y", "float32(1) float32(0)", "float32 (0,)"},
    {"x + y", "float32() float32()", "float32 ()"},
    {"x + y", "float32(2,3) float32(4)", "shape 2: +: shapes (2, 3) and (4,) do not broadcast"},
    {"add(x, y)", "float32(2,3) float32(4)",
     "shape 0: add: shapes (2, 3) and (4,) do not broadcast"},
    {"where(x < y, x, y)", "float32(2) float32(3)",
     "shape 8: <: shapes (2,) and (3,) do not broadcast"},
    {"x + y", "float32(0) float32(2)", "shape 2: +: shapes (0,) and (2,) do not broadcast"},
    {"hardswish(x) * y", "float32(2) float32(3)",
     "shape 13: *: shapes (2,) and (3,) do not broadcast"},

    /* promotion: dims, then 0-d tensors, then numbers */
    {"x + y", "float16(2) bfloat16(2)", "float32 (2,)"},
    {"x + y", "float16(2) float32(2)", "float32 (2,)"},
    {"x + y", "bfloat16(2) float64(2)", "float64 (2,)"},
    {"x + y", "float16(2) float64()", "float16 (2,)"},
    {"x + y", "float64() bfloat16(0)", "bfloat16 (0,)"},
    {"x + y", "float16() bfloat16()", "float32 ()"},
    {"x + y", "float64() float16(1)", "float16 (1,)"},
    {"x + 1e300", "float16(2)", "float16 (2,)"},
    {"2 * x", "bfloat16()", "bfloat16 ()"},
    {"x + y + z", "float16(2) float64() bfloat16(2)", "float32 (2,)"},
    {"x + (y + z)", "float16(2) float64() bfloat16()", "float16 (2,)"},
    {"sum(x) + y", "float64(3) float16(2)", "float16 (2,)"},
    {"maximum(x, 1)", "float16()", "float16 ()"},
    {"sigmoid(x), -x, x**2", "float16(2)", "float16 (2,), float16 (2,), float16 (2,)"},

    /* where: the mask takes part in broadcasting only */
    {"where(x > 0, y, z)", "float64(4,1) float16(3) float16()", "float16 (4, 3)"},
    {"where(x > 0, y, z)", "float64(4,1) float16() float32()", "float32 (4, 1)"},
    {"where(x > 0, 1, 0)", "float64(2)", "float32 (2,)"},
    {"where(x > 0, 1, 0) * x", "float16(2)", "float16 (2,)"},
    {"where(x > 0, 1.0, 0) * x", "float16(2)", "float32 (2,)"},
    {"x * 2.5, where(x > 0, x, 1.0)", "int64(2)", "float32 (2,), float32 (2,)"},
    {"where(x > 0, 1, 0) * y", "float16() float16(2)", "float16 (2,)"},
    {"x * (where(x > 0, 1, 0) / 2), x * (1 / where(x > 0, 1, 2))", "float16(2)",
     "float32 (2,), float32 (2,)"},
    {"x * where(x > 0, 2, 1) ** 1.5, x * where(x > 0, 2, 1) ** 3.0, x * where(x > 0, 2, 1) ** 2",
     "float16(2)", "float32 (2,), float32 (2,), float16 (2,)"},
    {"x * xlogy(where(x > 0, 1, 0), where(x > 0, 2, 1))", "float16(2)", "float32 (2,)"},
    {"x * clamp(where(x > 0, 2, 1), 0.5, 1.5), x * clamp(where(x > 0, 2, 1), 0, 1)", "float16(2)",
     "float32 (2,), float16 (2,)"},
    {"x * exp(where(x > 0, 2, 1)), x * -where(x > 0, 2, 1)", "float16(2)",
     "float32 (2,), float16 (2,)"},
    {"x * sum(where(x > 0, 1, 0), 1, keepdim=true), x * mean(where(x > 0, 1, 0), 1, true)",
     "float16(2,3)", "float16 (2, 3), float32 (2, 3)"},
    {"x * transpose(where(x > 0, 1, 0), 0, 1), x * narrow(where(x > 0, 1, 0), 0, 0, 2)",
     "float16(2,2)", "float16 (2, 2), float16 (2, 2)"},
    {"unfold(where(x > 0, 1, 0), 0, 2, 2) * y", "float16(4) float16(2,2)", "float16 (2, 2)"},
    {"x * 1 ** -2, x * 2 ** -1", "int64(2)", "float32 (2,), float32 (2,)"},
    {"x + where(x > 0, 1, 0)", "int64(2)",
     "dtype 2: +: computing with int64 is not supported; cast it first, as in float32(x)"},
    {"where(1 < 2, x, 0)", "float16(2)", "float16 (2,)"},
    {"x * where(1 < 2, 3, 4)", "float16(2)", "float16 (2,)"},
    {"where(x > 0, y, z)", "float32(2) float32(3) float32(3)",
     "shape 0: where: shapes (2,) and (3,) do not broadcast"},

    /* casts */
    {"float16(x), bfloat16(x), float64(x), float32(x)", "float32(2)",
     "float16 (2,), bfloat16 (2,), float64 (2,), float32 (2,)"},
    {"float64(x) + y", "float32() float16(2)", "float16 (2,)"},

    /* reductions */
    {"sum(x)", "float16(2,3)", "float16 ()"},
    {"sum(x, keepdim=true)", "float32(2,3)", "float32 (1, 1)"},
    {"sum(x, 0), sum(x, -1), sum(x, (0, -1))", "float32(2,3)",
     "float32 (3,), float32 (2,), float32 ()"},
    {"sum(x, [1, 0], true)", "float32(2,3,4)", "float32 (1, 1, 4)"},
    {"mean(x, 1)", "float32(2,0)", "float32 (2,)"},
    {"sum(x, 0), sum(x, -1), amax(x, 0)", "float32()", "float32 (), float32 (), float32 ()"},
    {"sum(x, 0, true)", "float32()", "float32 ()"},
    {"var(x, 1), std(x), mean(x, 0, true)", "float16(2,3)",
     "float16 (2,), float16 (), float16 (1, 3)"},
    {"logsumexp(x, (0, 1)), softmax(x, 1), log_softmax(x, -2)", "float64(2,3)",
     "float64 (), float64 (2, 3), float64 (2, 3)"},
    {"softmax(x, 0)", "float32()", "float32 ()"},
    {"softmax(x, 1), logsumexp(x, 1)", "float32(2,0)", "float32 (2, 0), float32 (2,)"},
    {"amax(x, 1)", "float32(0,3)", "float32 (0,)"},
    {"amax(x, 1)", "float32(3,0)",
     "shape 0: amax: an input of shape (3, 0) has no element to choose along the reduced dims"},
    {"amin(x)", "float32(0,3)",
     "shape 0: amin: an input of shape (0, 3) has no element to choose along the reduced dims"},
    {"sum(x, 5)", "float32(2,3)",
     "shape 0: sum: dim 5 is out of range for an input of rank 2 (expected -2 to 1)"},
    {"x + mean(x, (0, -3))", "float32(2,3)",
     "shape 4: mean: dim -3 is out of range for an input of rank 2 (expected -2 to 1)"},
    {"softmax(x, 1)", "float32()",
     "shape 0: softmax: dim 1 is out of range for an input of rank 0 (expected -1 to 0)"},
    {"sum(x, (0, -2))", "float32(2,3)", "shape 0: sum: dim 0 appears more than once"},
    {"sum(x, (0, -1))", "float32()", "shape 0: sum: dim 0 appears more than once"},

    /* normalisation */
    {"layer_norm(x, 3)", "float16(2,3)", "float16 (2, 3)"},
    {"layer_norm(x, (2, 3), w, b)", "float32(2,3) float32(2,3) float32(2,3)", "float32 (2, 3)"},
    {"layer_norm(x, 3, w, b)", "bfloat16(2,3) float32(3) float32(3)", "bfloat16 (2, 3)"},
    {"rms_norm(x, 3, w)", "float16(2,3) float64(3)", "float16 (2, 3)"},
    {"layer_norm(x, 3) * w, layer_norm(x, 3, w)", "float16(2,3) float32(3)",
     "float32 (2, 3), float16 (2, 3)"},
    {"batch_norm(x, m, v, w)", "bfloat16(2,3,4) float32(3) float32(3) bfloat16(3)",
     "bfloat16 (2, 3, 4)"},
    {"batch_norm(x, training=true), instance_norm(x)", "float64(2,3,4)",
     "float64 (2, 3, 4), float64 (2, 3, 4)"},
    {"group_norm(x, 2, w)", "float16(2,4) float32(4)", "float16 (2, 4)"},
    {"group_norm(x, 3)", "float32(2,4,5)",
     "shape 0: group_norm: num_groups is 3, but an input of shape (2, 4, 5) has 4 channels (dim "
     "1), "
     "expected a multiple"},
    {"group_norm(x, 3)", "float32(3)",
     "shape 0: group_norm: the input has shape (3,), expected 2 to 7 dims"},
    {"batch_norm(x, m, v)", "float32(2,4,5) float32(4) float32(5)",
     "shape 17: batch_norm: running_var has shape (5,), but an input of shape (2, 4, 5) has 4 "
     "channels "
     "(dim 1)"},
    {"batch_norm(x, m, v)", "float32(4) float32(4) float32(4)",
     "shape 14: batch_norm: the input has shape (4,), expected 2 dims or more"},
    {"group_norm(x, 2, w)", "float32(2,4) float16(4)",
     "dtype 17: group_norm: input is float32, but weight is float16"},
    {"instance_norm(x)", "float32(2,4,1)",
     "shape 0: instance_norm: expected more than 1 value per channel, but the input has shape (2, "
     "4, "
     "1)"},
    {"layer_norm(x, (512,))", "float32(2,256)",
     "shape 0: layer_norm: normalized_shape is (512,), but the input's last dims are (256,)"},
    {"rms_norm(x, (2, 3))", "float32(3)",
     "shape 0: rms_norm: normalized_shape is (2, 3), but the input has shape (3,)"},
    {"layer_norm(x, 3, w)", "float32(2,3) float32(1)",
     "shape 17: layer_norm: weight has shape (1,), but normalized_shape is (3,)"},
    {"layer_norm(x, 3, None, b)", "float32(2,3) float32(4,3)",
     "shape 23: layer_norm: bias has shape (4, 3), but normalized_shape is (3,)"},
    {"layer_norm(x, 3, w)", "float32(2,3) float16(3)",
     "dtype 17: layer_norm: input is float32, but weight is float16"},
    {"mean(x, -1, true) + layer_norm(x, 4)", "float32(2,3)",
     "shape 20: layer_norm: normalized_shape is (4,), but the input's last dims are (3,)"},
    {"layer_norm(x, 4) + layer_norm(x, 3)", "float32(2,3)",
     "shape 0: layer_norm: normalized_shape is (4,), but the input's last dims are (3,)"},

    /* views */
    {"t(x)", "float32(2,3)", "float32 (3, 2)"},
    {"t(x)", "float32(2)", "float32 (2,)"},
    {"t(x)", "float32()", "float32 ()"},
    {"t(x)", "float32(2,3,4)",
     "shape 0: t: the input has shape (2, 3, 4), expected at most 2 dims; "
     "use transpose(x, -2, -1)"},
    {"transpose(x, 0, -1)", "float32(2,3,4)", "float32 (4, 3, 2)"},
    {"transpose(x, 1, 1)", "float32(2,3)", "float32 (2, 3)"},
    {"transpose(x, 0, -1)", "float32()", "float32 ()"},
    {"transpose(x, 0, 2)", "float32(2,3)",
     "shape 0: transpose: dim 2 is out of range for an input of rank 2 (expected -2 to 1)"},

    /* matmul */
    {"x @ y", "float32(2,3) float32(3,4)", "float32 (2, 4)"},
    {"x @ y", "float32(3) float32(3)", "float32 ()"},
    {"x @ y", "float32(3) float32(3,4)", "float32 (4,)"},
    {"x @ y", "float32(2,3) float32(3)", "float32 (2,)"},
    {"x @ y", "float32(3) float32(5,3,4)", "float32 (5, 4)"},
    {"x @ y", "float32(5,2,3) float32(3)", "float32 (5, 2)"},
    {"x @ y", "float32(6,1,2,3) float32(5,3,4)", "float32 (6, 5, 2, 4)"},
    {"x @ y", "float16(2,0) float16(0,4)", "float16 (2, 4)"},
    {"matmul(x, y)", "float32(2,3) float32(4,5)",
     "shape 0: matmul: shapes (2, 3) and (4, 5) do not fit: the last dim of the first is 3, "
     "the second to last dim of the second is 4"},
    {"x @ y", "float32(2,3) float32(4)",
     "shape 2: @: shapes (2, 3) and (4,) do not fit: the last dim of the first is 3, the only "
     "dim of the second is 4"},
    {"x @ y", "float32(2,2,3) float32(5,3,4)",
     "shape 2: @: shapes (2, 2, 3) and (5, 3, 4) do not fit: their batch dims do not broadcast"},
    {"x @ y", "float32() float32(3)",
     "shape 2: @: shapes are () and (3,), expected at least 1 dim each"},
    {"x @ y", "float32(2,3) float16(3,2)",
     "dtype 2: @: input is float32, but other is float16 (both must be one type)"},

    /* linear */
    {"linear(x, w, b)", "float32(8,4,3) float32(5,3) float32(5)", "float32 (8, 4, 5)"},
    {"linear(x, w)", "float32(3) float32(5,3)", "float32 (5,)"},
    {"linear(x, w)", "float32(2,3) float32(3)", "float32 (2,)"},
    {"linear(x, w, b)", "float32(2,3) float32(5,3) float32()", "float32 (2, 5)"},
    {"linear(x, w, 1.5)", "float16(2,3) float16(5,3)", "float16 (2, 5)"},
    {"linear(x, w) + b", "float32(1,3) float32(5,3) float32(4,5)", "float32 (4, 5)"},
    {"linear(x, w, b)", "float32(1,3) float32(5,3) float32(4,5)",
     "shape 0: linear: bias has shape (4, 5), which does not fit a product of shape (1, 5)"},
    {"linear(x, w) + b, linear(x, w, b)", "float32(1,3) float32(5,3) float32(4,5)",
     "shape 18: linear: bias has shape (4, 5), which does not fit a product of shape (1, 5)"},
    {"linear(x, w, b)", "float32(2,3) float32(5,3) float32(4)",
     "shape 0: linear: bias has shape (4,), which does not fit a product of shape (2, 5)"},
    {"linear(x, w, b)", "float32(2,3) float32(5,3) float64(5)",
     "dtype 0: linear: input is float32, but bias is float64 (all must be one type)"},
    {"linear(x, w)", "float32(2,3) bfloat16(5,3)",
     "dtype 0: linear: input is float32, but weight is bfloat16 (both must be one type)"},
    {"linear(x, w)", "float32(8,256) float32(128,512)",
     "shape 0: linear: input has shape (8, 256), weight (128, 512): the last dims differ "
     "(weight must be (n, 256))"},
    {"linear(x, w)", "float32(8,256) float32(512)",
     "shape 0: linear: input has shape (8, 256), weight (512,): the last dims differ "
     "(weight must be (256,))"},
    {"linear(x, w)", "float32(8,256) float32(1,2,256)",
     "shape 0: linear: weight has shape (1, 2, 256), expected 1 or 2 dims"},
    {"linear(x, w)", "float32() float32(2,3)",
     "shape 0: linear: input has shape (), expected at least 1 dim"},

    /* sizes */
    {"x + y", "float32(2147483648,1) float32(2147483647)", "float32 (2147483648, 2147483647)"},
    {"x + y", "float32(4294967296,1) float32(4294967296)",
     "shape 2: +: shape (4294967296, 4294967296) has more than 2^63 - 1 elements"},
    {"x + y", "float32(4294967296,1,1) float32(4294967296,0)",
     "float32 (4294967296, 4294967296, 0)"},
    {"x", "float32(4294967296,4294967296)",
     "shape 0: x: shape (4294967296, 4294967296) has more than 2^63 - 1 elements"},
    {"1 + x", "float32(2,-1)", "shape 4: x has the negative size -1"},
    {"x", "float32(1,1,1,1,1,1,1,2)", "float32 (1, 1, 1, 1, 1, 1, 1, 2)"},
    /* what no result needs is checked all the same */
    {"y = x + w; x", "float32(2) float32(3)", "shape 6: +: shapes (2,) and (3,) do not broadcast"},
};

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < TEST_COUNT(rows); i++) {
        og_text got = {0};
        infer_to_text(rows[i].formula, rows[i].inputs, &got);
        if (strcmp(got.data, rows[i].want))
            fail_msg("%s of %s\n  got  %s\n  want %s", rows[i].formula, rows[i].inputs, got.data,
                     rows[i].want);
        og_text_free(&got);
    }
}

/* Operators are named as they are written. */
static void test_labels(void **state)
{
    (void)state;
    static const char *const symbols[] = {"+", "-", "*", "/", "<", "<=", ">", ">=", "==", "!="};
    for (size_t i = 0; i < TEST_COUNT(symbols); i++) {
        char formula[64], want[128];
        bool is_mask = strchr("<>=!", symbols[i][0]) != NULL;
        og_text got = {0};
        snprintf(formula, sizeof formula, is_mask ? "where(x %s y, x, y)" : "x %s y", symbols[i]);
        snprintf(want, sizeof want, "shape %d: %s: shapes (2,) and (3,) do not broadcast",
                 is_mask ? 8 : 2, symbols[i]);
        infer_to_text(formula, "float32(2) float32(3)", &got);
        assert_string_equal(got.data, want);
        og_text_free(&got);
    }
}

static void infer_graph(const char *formula, const char *inputs_text, og_graph *graph,
                        og_typed *types, size_t capacity)
{
    ogive_error error;
    og_input_type inputs[MOST_INPUTS];
    read_inputs(inputs_text, inputs);
    TEST_OK(og_graph_parse(formula, OGIVE_TEXT, graph, &error), error);
    assert_true((size_t)graph->node_count <= capacity);
    TEST_OK(og_infer(graph, inputs, types, &error), error);
}

static const og_typed *find_op(const og_graph *graph, const og_typed *types, og_op op)
{
    for (int i = 0; i < graph->node_count; i++) {
        if (graph->nodes[i].op == op)
            return &types[i];
    }
    fail_msg("no node %s", og_function_of(op)->name);
    return NULL;
}

/* What only the planner sees: reduced dims, swaps, numbers, masks. */
static void test_details(void **state)
{
    (void)state;
    og_graph graph;
    og_typed types[32];
    infer_graph("var(x, (0, -1), correction=2)", "float16(2,3,4)", &graph, types, 32);
    assert_int_equal(find_op(&graph, types, OG_OP_sum)->reduced, 5);
    const og_typed *count = find_op(&graph, types, OG_OP_count);
    assert_true(count->is_number && count->rank == 0 && count->number == 8);
    assert_int_equal(count->dtype, OG_FLOAT64);
    for (int i = 0; i < graph.node_count; i++) {
        if (graph.nodes[i].op == OG_OP_count && graph.nodes[i].numbers[0] == 2)
            assert_true(types[i].number == 6);
    }
    og_graph_free(&graph);

    /* fewer elements than the correction: 0, so that the variance is NaN or inf */
    infer_graph("var(x, 0, correction=2)", "float32(1,3)", &graph, types, 32);
    for (int i = 0; i < graph.node_count; i++) {
        if (graph.nodes[i].op == OG_OP_count)
            assert_true(types[i].number == (graph.nodes[i].numbers[0] == 2 ? 0 : 1));
    }
    og_graph_free(&graph);

    infer_graph("sum(x, 0) + amax(x, 0)", "float32()", &graph, types, 32);
    assert_int_equal(find_op(&graph, types, OG_OP_sum)->reduced, 0);
    og_graph_free(&graph);

    infer_graph("transpose(x, -1, 0)", "float32(2,3,4)", &graph, types, 32);
    const og_typed *swapped = find_op(&graph, types, OG_OP_transpose);
    assert_true(swapped->swap[0] == 2 && swapped->swap[1] == 0);
    og_graph_free(&graph);
    infer_graph("t(x)", "float32(2,3)", &graph, types, 32);
    swapped = find_op(&graph, types, OG_OP_t);
    assert_true(swapped->swap[0] == 0 && swapped->swap[1] == 1);
    og_graph_free(&graph);
    infer_graph("t(x)", "float32(2)", &graph, types, 32);
    swapped = find_op(&graph, types, OG_OP_t);
    assert_true(swapped->swap[0] == swapped->swap[1]);
    og_graph_free(&graph);
}

static void test_masks_and_numbers(void **state)
{
    (void)state;
    og_graph graph;
    og_typed types[32];
    infer_graph("where(x < y, x, 0)", "float16(2,1) float64(3)", &graph, types, 32);
    const og_typed *mask = find_op(&graph, types, OG_OP_lt);
    assert_true(mask->is_mask && !mask->is_number && mask->rank == 2);
    assert_int_equal(mask->dtype, OG_FLOAT64);
    og_graph_free(&graph);

    infer_graph("x * sqrt(where(1 >= 2, 3, 4) + 5)", "float16(2)", &graph, types, 32);
    const og_typed *number = find_op(&graph, types, OG_OP_sqrt);
    assert_true(number->is_number && number->number == 3 && number->dtype == OG_FLOAT64);
    mask = find_op(&graph, types, OG_OP_ge);
    assert_true(mask->is_mask && mask->is_number && mask->number == 0);
    og_graph_free(&graph);

    /* NaN compares as IEEE says */
    static const char *const operators[] = {"<", "<=", ">", ">=", "==", "!="};
    for (size_t i = 0; i < TEST_COUNT(operators); i++) {
        char formula[64];
        snprintf(formula, sizeof formula, "x * where(nan %s 1, 2, 3)", operators[i]);
        infer_graph(formula, "float32()", &graph, types, 32);
        assert_true(find_op(&graph, types, OG_OP_where)->number == (i == 5 ? 2 : 3));
        og_graph_free(&graph);
    }
}

static void test_ranks(void **state)
{
    (void)state;
    og_graph graph;
    og_typed types[2];
    ogive_error error;
    TEST_OK(og_graph_parse("x", OGIVE_TEXT, &graph, &error), error);
    og_input_type input = {.rank = 9};
    TEST_FAILS(og_infer(&graph, &input, types, &error), OGIVE_SHAPE, error,
               "x has 9 dims, at most 8 are supported");
    assert_int_equal(og_infer(&graph, &input, types, NULL), OGIVE_SHAPE);
    og_graph_free(&graph);
}

/* The longest chain, in one pass. */
static void test_long_chain(void **state)
{
    (void)state;
    og_text text = {0};
    og_graph graph;
    ogive_error error;
    og_text_add(&text, "x");
    for (int i = 0; i < 60000; i++)
        og_text_add(&text, "+x");
    TEST_OK(og_graph_parse(text.data, text.length, &graph, &error), error);
    og_typed *types = malloc((size_t)graph.node_count * sizeof *types);
    assert_non_null(types);
    og_input_type input = {OG_BFLOAT16, 2, {2, 3}};
    TEST_OK(og_infer(&graph, &input, types, &error), error);
    assert_int_equal(types[graph.results[0]].dtype, OG_BFLOAT16);
    free(types);
    og_graph_free(&graph);
    og_text_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),    cmocka_unit_test(test_labels),
        cmocka_unit_test(test_details), cmocka_unit_test(test_masks_and_numbers),
        cmocka_unit_test(test_ranks),   cmocka_unit_test(test_long_chain),
    };
    return TEST_RUN(tests);
}
