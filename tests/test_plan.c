/* SPDX-License-Identifier: MIT
 *
 * test_plan.c - which kernels a formula becomes. The plans of tests/golden/plans.txt
 * are compared as text: a change that is meant is accepted with
 *
 *     OGIVE_UPDATE_GOLDEN=1 build/tests/test_plan && git diff tests/golden
 */
#include "test.h"

#include "cpu/cpu_prepare.h"
#include "plan_case.h"

typedef struct {
    const char *formula, *shapes; /* as make_plan() reads them */
    int kernels;                  /* that the plan must have */
} plan_case;

static const plan_case cases[] = {
    /* the founding workloads */
    {"sigmoid(x)", "4x5", 1},
    {"hardsigmoid(x)", "4x5", 1},
    {"sum(sigmoid(x), dim=1, keepdim=true)", "4x5", 1},
    {"x + 2.0 * sigmoid(x)", "4x5", 1},
    {"sum(sigmoid(linear(x, w, b)), dim=1, keepdim=true)", "4x5 7x5 7", 1},
    {"z = linear(x, w, b); z + 2.0 * sigmoid(z)", "4x5 7x5 7", 1},
    /* several passes over the same rows */
    {"softmax(x, 1)", "4x5", 1},
    {"softmax(x, 0)", "4x5", 1},
    {"log_softmax(x, -1)", "2x4x5", 1},
    {"logsumexp(x, 1)", "4x5", 1},
    {"layer_norm(x, 5, w, b)", "4x5 5 5", 1},
    {"layer_norm(x, (4, 5))", "3x4x5", 1},
    {"batch_norm(x, None, None, w, b, true)", "3x4x5 4 4", 1},
    {"instance_norm(x, weight=w, bias=b)", "3x4x5 4 4", 1},
    {"relu(group_norm(gelu(x), 2, w, b))", "3x4x5 4 4", 3}, /* sums; a number a channel; the rest */
    {"group_norm(x, 2)", "3x4", 2},
    {"group_norm(x, 1)", "3x4x5", 3},
    {"rms_norm(x, 5, w)", "4x5 5", 1},
    {"var(x)", "4x5", 1},
    {"var(x, 0)", "4x5", 1},
    {"std(x, (0, 2), keepdim=true)", "3x4x5", 1},
    {"x / sqrt(sum(square(x)))", "3x4", 1},
    {"layer_norm(layer_norm(x, 5), 5)", "4x5", 1},
    {"m = amax(x, 1, keepdim=true); m, x - m", "4x5", 1},
    {"exp(x), sum(x, 1), sum(y, 1)", "4x5 4x5", 1},
    /* long rows: variances in the pass of the mean, wherever the pattern is found */
    {"instance_norm(x)", "3x4x65537", 1},
    {"var(x, 1)", "4x65536", 1},
    {"layer_norm(x, 140000, w, b)", "4x140000b 140000b 140000b", 1},
    {"var(x, 1, correction=0)", "4x32769d", 1},
    {"d = x - mean(x, 1, true); sum(square(d), 1), sum(d * y, 1)", "4x65537 4x65537", 1},
    {"var(x, 0)", "65537x4", 1}, /* columns */
    {"d = x - mean(x, 1, true) * 2; sum(d * d, 1)", "4x65537", 1},
    {"d = x - mean(y, 1, true); sum(d * d, 1)", "4x65537 4x65537", 1},
    {"d = x - sum(x, 1, true) / 65536; sum(d * d, 1)", "4x65537", 1},
    {"var(linear(x, w), 1)", "4x3 65537x3", 2},
    /* a reduction that cannot be shared */
    {"mean(amax(x, 2), 1)", "2x3x4", 2},
    {"sum(x, 1) + sum(x, 0)", "4x4", 2},
    {"x - mean(x, 1)", "4x4", 2},
    {"softmax(softmax(x, 1), 0)", "4x5", 2},
    {"softmax(x, 1) + y", "1x5 4x5", 2},
    /* what costs more than to read it, and is read by many results of a product, has a kernel */
    {"relu(batch_norm(linear(x, w), m, v, g, b))", "4096x4 64x4 64 64 64 64", 2},
    {"relu(batch_norm(linear(x, w), m, v, g, b))", "4095x4 64x4 64 64 64 64", 1},
    {"linear(x, w) * exp(s) * (s + 1)", "4096x4 64x4 64", 2},
    {"linear(x, w) * exp(y)", "4096x4 64x4 4096x64", 1},
    {"linear(x, w) * (s + 1)", "4096x4 64x4 64", 1},
    /* layouts: dims in memory order, neighbours collapsed, views free */
    {"x + y", "4x5x6 4x5x6", 1},
    {"x + y", "4x5x6 6", 1},
    {"x + y", "4x5t 4x5t", 1},
    {"sum(x, 0)", "4x5t", 1},
    {"sum(x)", "4x5t", 1},
    {"t(x) + x", "4x4", 1},
    {"transpose(x, 0, 2) * 2", "2x3x4", 1},
    {"sum(x, (0, 2))", "2x3x4", 1},
    {"sum(x, 1)", "2x3x4", 1},
    {"sum(x, 1)", "2x1x4", 1},
    {"sum(x)", "1", 1},
    {"sum(x, 1)", "4x0", 1},
    {"x + s", "0x5 1", 1},
    /* a window that sees all there is: a reduction over x's own dims */
    {"adaptive_avg_pool2d(gelu(x), 1)", "2x3x4x5", 1},
    {"x * sigmoid(adaptive_max_pool1d(x, 1))", "2x3x5", 1},
    {"avg_pool3d(x, (2, 3, 4))", "3x2x3x4", 1},
    {"sum(unfold(x, 0, 4, 1), -1)", "4x5", 1},
    {"avg_pool1d(x, 5, padding=1)", "3x5", 1}, /* it does not */
    /* types */
    {"x * y", "4h 4b", 1},
    {"float16(x) + 1", "4", 1},
    {"x + float32(y)", "4 4d", 1},
    {"mean(x, 0)", "4x5h", 1},
    {"where(x > 0, x, y)", "4 4d", 1},
    /* products */
    {"x @ y", "4x5 5x6", 1},
    {"x @ y", "2x1x4x5 3x5x6", 1},
    {"x @ y", "5 5", 1},
    {"x @ y", "5 3x5x6", 1},
    {"x @ y", "3x4x5 5", 1},
    {"t(x) @ t(y)", "5x4 6x5", 1},
    {"linear(sigmoid(x), w)", "4x5 7x5", 2},
    {"softmax(linear(x, w), 1)", "4x5 7x5", 2},
    {"linear(linear(x, w), v)", "4x5 7x5 3x7", 2},
    {"linear(bfloat16(x), bfloat16(t(w)))", "4x5 5x7", 3},
    {"linear(float16(sigmoid(linear(x, w))), v)", "4x5h 7x5h 3x7h", 2},
    {"linear(relu(x), w)", "4x5h 7x5h", 2},
    /* a convolution of halves stores its result in another order of dims */
    {"transpose(conv1d(x, w), 1, 2)", "2x3x5 4x3x2", 2},
    {"transpose(transpose(relu(conv2d(x, w)), 1, 2), 2, 3)", "2x3x5x6h 4x3x2x2h", 1},
    {"transpose(conv1d(x, w), 0, -1)", "2x3x5b 4x3x2b", 1},
    /* what costs much and several passes read is computed by a convolution's kernel; else where it is
     * read, as what the product's gradient reads, too, is */
    {"z = conv2d(x, w, b); softmax(tanh(softplus(z)) * z - 1, 1)", "2x3x5x6 4x3x2x2 4", 2},
    {"mean(gelu(conv2d(x, w)), (2, 3))", "2x3x5x6 4x3x2x2", 2},
    {"softmax(relu(conv2d(x, w)), 1)", "2x3x5x6 4x3x2x2", 2},
    {"z = conv2d(x, w); y = gelu(z); y - amax(y, 1, true) * z", "2x3x5x6 4x3x2x2", 2},
    {"y = gelu(conv1d(x, w)); y - amax(y, 1, true)", "2x3x5h 4x3x2h", 2},
    {"y = gelu(conv2d(x, w) + s); y - amax(y, 1, true)", "2x3x5x6 4x3x2x2 2x4x4x5", 2},
    /* nothing is kept for results alone, or by a kernel behind the convolution's, which reads sums */
    {"y = gelu(conv2d(x, w)); relu(y), tanh(y)", "2x3x5x6 4x3x2x2", 1},
    {"y = gelu(conv2d(x, w) * amax(s, 1, true)); y - amax(y, 1, true)", "2x3x5x6 4x3x2x2 2x4x4x5",
     2},
    {"y = gelu(conv2d(x, w) * mean(conv2d(s, w), 1, true)); y - amax(y, 1, true)",
     "2x3x5x6 4x3x2x2 2x3x5x6", 3},
    /* nor where later kernels read what is computed of it */
    {"y = gelu(conv2d(x, w)); conv2d(relu(y), v), tanh(y)", "2x3x5x6 4x3x2x2 4x4x2x2", 2},
    {"y = gelu(conv2d(x, w)); linear(transpose(relu(y), 2, 3), v), tanh(y)", "2x3x5x6 4x3x2x2 3x4",
     2},
    {"y = gelu(conv2d(x, w)); max_pool2d(relu(y), 2), sum(relu(y), 1), tanh(y)", "2x3x5x6 4x3x2x2",
     3},
    {"y = gelu(conv2d(x, w)); conv2d(relu(y), v) + y", "2x3x5x6 4x3x2x2 4x4x1x1", 2},
    {"d(x w b) sigmoid(conv2d(x, w, b))", "2x3x5x6 4x3x2x2 4 2x4x4x5", 5},
    /* what another convolution or windows read is kept once, not the sums beside it */
    {"y = conv2d(x, w, b); conv2d(y, v), softmax(y, 1)", "2x3x5x6 4x3x2x2 4 4x4x2x2", 3},
    {"y = conv2d(x, w, b); y - amax(y, 1, true), max_pool2d(y, 2)", "2x3x5x6 4x3x2x2 4", 3},
    /* two products that something needs at the same index */
    {"silu(linear(x, w)) * linear(x, v)", "4x5 7x5 7x5", 1},
    {"silu(linear(x, w, b)) * linear(x, v, c)", "4x5 7x5 7 7x5 7", 1},
    {"sum(linear(x, w) * linear(x, v), 1)", "4x5 7x5 7x5", 1},
    {"linear(relu(x), w) * linear(x, v)", "4x5 7x5 7x5", 2},
    {"x @ y + p @ q", "4x5 5x6 3x4x5 5x6", 2}, /* shapes differ */
    {"x @ y + p @ q", "4x5 5x6 4x3 3x6", 2},   /* k differs */
    {"t(x @ y) + p @ q", "4x5 5x4 4x5 5x4", 2},
    {"x @ y, p @ q", "4x5 5x6 4x5 5x6", 2},
    {"x @ y * (p @ q) * (x @ q)", "4x5 5x6 4x5 5x6", 2},
    {"z = linear(x, w); z / sum(z, 1, true) * linear(x, v)", "4x5 7x5 7x5", 2},
    {"z = x @ y; z * 2, sum(z, -1, true)", "3x2 2x1", 1}, /* a row of one product */
    /* gradients by the inputs in d(); the last shape is that of grad */
    {"d(x) sigmoid(x)", "4x5 4x5", 1},
    {"d(x) hardsigmoid(x)", "4x5 4x5", 1},
    {"d(x) sum(sigmoid(x), dim=1, keepdim=true)", "4x5 4x1", 1},
    {"d(x) x + 2.0 * sigmoid(x)", "4x5 4x5", 1},
    {"d(x w b) sum(sigmoid(linear(x, w, b)), dim=1, keepdim=true)", "4x5 7x5 7 4x1", 4},
    {"d(x w b) z = linear(x, w, b); z + 2.0 * sigmoid(z)", "4x5 7x5 7 4x7", 4},
    {"d(x w b) linear(x, w, b)", "4x5 7x5 7 4x7", 3},
    {"d(w) linear(x, w, b)", "3x4x5 7x5 7 3x4x7", 1},
    {"d(w) linear(x, w)", "3x4x5 5 3x4", 1},
    {"d(x w v) silu(linear(x, w)) * linear(x, v)", "4x5 7x5 7x5 4x7", 4},
    {"d(y) x @ y", "3x4x5 5x6 3x4x6", 1},
    {"d(x) x @ y", "4x5 3x5x6 3x4x6", 3},
    {"d(x) x * y", "4x5 5 4x5", 1},
    {"d(y) x * y", "4x5 5 4x5", 1},
    {"d(y) x * y", "3x4x5 4x1 3x4x5", 1},
    {"d(x) softmax(x, 1)", "4x5 4x5", 1},
    {"d(x) log_softmax(x, 1)", "4x5 4x5", 1},
    {"d(x) logsumexp(x, 1)", "4x5 4", 1},
    {"d(x w b) layer_norm(x, 5, w, b)", "4x5 5 5 4x5", 2},
    {"d(x) rms_norm(x, 5, w)", "4x5 5 4x5", 1},
    {"d(x) amax(x, 1)", "4x5 4", 1},
    {"d(x) adaptive_max_pool2d(x, 1)", "2x3x4x5 2x3x1x1", 1},
    {"d(x) x * sigmoid(adaptive_avg_pool2d(x, 1))", "2x3x4x5 2x3x4x5", 1},
    {"d(x) var(x)", "4x5 -", 1},
    {"d(x y) float16(x) * y", "4x5 4x5h 4x5h", 1},
    {"d(y) y0 = y; x", "4 5 5", 1},
};

static void print_plan(const og_graph *graph, const og_plan *plan, og_text *text)
{
    const char *names[8];
    for (int32_t i = 0; i < graph->input_count; i++)
        names[i] = graph->inputs[i].name;
    for (int32_t k = 0; k < plan->kernel_count; k++)
        og_kernel_print(plan, k, names, text);
    for (int32_t o = 0; o < plan->output_count; o++)
        for (int32_t i = 0; i < plan->input_count; i++)
            if (plan->may_alias[o * plan->input_count + i])
                og_text_add(text, "output%d may be %s\n", (int)o, names[i]);
}

static void test_kernel_counts(void **state)
{
    (void)state;
    for (size_t c = 0; c < TEST_COUNT(cases); c++) {
        og_graph graph;
        og_plan plan;
        make_plan(cases[c].formula, cases[c].shapes, &graph, &plan);
        if (plan.kernel_count != cases[c].kernels)
            fail_msg("%s [%s]: %d kernels, expected %d", cases[c].formula, cases[c].shapes,
                     (int)plan.kernel_count, cases[c].kernels);
        og_plan_free(&plan);
        og_graph_free(&graph);
    }
}

/* What a product's kernel keeps is read by one after it. */
static void test_reads_what_is_kept(void **state)
{
    (void)state;
    for (size_t c = 0; c < TEST_COUNT(cases); c++) {
        og_graph graph;
        og_plan plan;
        make_plan(cases[c].formula, cases[c].shapes, &graph, &plan);
        bool *is_read = calloc((size_t)plan.buffer_count, sizeof *is_read);
        for (int32_t k = plan.kernel_count - 1; k >= 0; k--) {
            const og_kernel *kernel = &plan.kernels[k];
            for (int32_t a = 0; a < kernel->access_count; a++) {
                const og_access *at = &kernel->accesses[a];
                if (kernel->product_count && at->is_store && !is_read[at->buffer] &&
                    plan.buffers[at->buffer].kind == OG_BUFFER_TEMPORARY)
                    fail_msg("%s [%s]: no kernel after %d reads what it writes to buffer %d",
                             cases[c].formula, cases[c].shapes, (int)k, (int)at->buffer);
            }
            for (int32_t a = 0; a < kernel->access_count; a++)
                if (!kernel->accesses[a].is_store && kernel->accesses[a].buffer >= 0)
                    is_read[kernel->accesses[a].buffer] = true;
            for (int32_t p = 0; p < kernel->product_count; p++)
                is_read[kernel->products[p].left.buffer] =
                    is_read[kernel->products[p].right.buffer] = true;
        }
        free(is_read);
        og_plan_free(&plan);
        og_graph_free(&graph);
    }
}

/* Two products that would share a kernel, where they may not, or only those of halves with the same
 * left factor: one is kept for the other's. */
static void test_single_products(void **state)
{
    static const struct {
        const char *formula, *shapes;
        int single[2], alike[2]; /* kernels, the most products of one */
    } pairs[] = {
        {"silu(linear(x, w)) * linear(x, v)", "4x5 7x5 7x5", {2, 1}, {2, 1}},
        {"silu(linear(x, w)) * linear(x, v)", "4x5d 7x5d 7x5d", {1, 2}, {1, 2}},
        {"sum(linear(x, w) * linear(x, v), 1)", "4x5h 7x5h 7x5h", {2, 1}, {1, 2}},
        {"linear(x, w) * linear(y, v)", "4x5b 7x5b 4x5b 7x5b", {2, 1}, {2, 1}},
        {"(x @ v) * (w @ v)", "4x5b 5x7b 4x5b", {2, 1}, {2, 1}},
        {"d(x w v) silu(linear(x, w)) * linear(x, v)", "4x5 7x5 7x5 4x7", {6, 1}, {6, 1}},
        {"d(x w v) silu(linear(x, w)) * linear(x, v)", "4x5b 7x5b 7x5b 4x7b", {6, 1}, {5, 2}}};
    (void)state;
    for (size_t c = 0; c < 2 * TEST_COUNT(pairs); c++) {
        const char *formula = pairs[c / 2].formula, *shapes = pairs[c / 2].shapes;
        const int *want = c % 2 ? pairs[c / 2].alike : pairs[c / 2].single;
        og_graph graph;
        og_plan plan;
        int most = 0;
        og_plan_rules rules = {.sharing = c % 2 ? OG_SHARE_ALIKE : OG_SHARE_NONE};
        make_plan_by(rules, formula, shapes, &graph, &plan);
        for (int32_t k = 0; k < plan.kernel_count; k++)
            most = plan.kernels[k].product_count > most ? plan.kernels[k].product_count : most;
        if (plan.kernel_count != want[0] || most != want[1])
            fail_msg("%s [%s], %s: %d kernels with up to %d products", formula, shapes,
                     c % 2 ? "alike" : "single", (int)plan.kernel_count, most);
        og_plan_free(&plan);
        og_graph_free(&graph);
    }
}

/* How the space of products is seen as matrices, as plan.h says. */
static void test_matrices(void **state)
{
    static const struct {
        const char *formula, *shapes, *want; /* batch dims: elements, .. x m x n, k, exchanged */
    } products[] = {
        {"linear(x, w)", "4x5 7x5", "0:1 1:4 1:7 k 5"},
        {"linear(x, w)", "2x3x5 7x5", "0:1 1:6 1:7 k 5"},
        {"linear(x, w)", "5 7x5", "0:1 0:1 1:7 k 5"},
        {"x @ y", "5 5", "0:1 0:1 0:1 k 5"},
        {"x @ y", "4x5 5", "0:1 0:1 1:4 k 5 exchanged"},
        {"x @ y", "5 5x7", "0:1 0:1 1:7 k 5"},
        {"x @ y", "5 2x5x7", "1:2 0:1 1:7 k 5"},
        {"x @ y", "2x4x5 2x5x7", "1:2 1:4 1:7 k 5"},
        {"x @ y", "2x4x5 5x7", "0:1 1:8 1:7 k 5"},
        {"x @ y", "2x3x4x5 3x5x7", "1:3 2:8 1:7 k 5"},           /* rows gathered */
        {"x @ y", "2x3x1x5 3x5x7", "1:3 1:2 1:7 k 5"},           /* rows gathered */
        {"x @ y", "2x3x1x5 3x5x1", "1:3 0:1 1:2 k 5 exchanged"}, /* ... they are columns then */
        {"x @ y", "3x1x5 3x5x1", "1:3 0:1 0:1 k 5"},             /* dot products */
        {"sum(x @ y, -1)", "4x5 5x7", "0:1 1:4 1:7 k 5"},
        {"sum(x @ y, -1)", "4x5 5", "0:1 0:1 1:4 k 5 exchanged"},
        {"sum(x @ y, -1)", "3x4x5 5x1", "0:1 1:12 1:1 k 5"}, /* a row of one element */
        {"sum(x @ y, -1)", "2x3x4x5 3x5x7", "1:3 2:8 1:7 k 5"},
        {"x @ y", "0x4x5 5x7", "0:1 0:1 1:0 k 5 exchanged"}, /* no elements: one dim */
        {"x @ y", "4x0 0x7", "0:1 1:4 1:7 k 0"},
        {"(x @ y) * (y @ z)", "4x5 5 5x4", "0:1 0:1 1:4 k 5 exchanged"}, /* both move last */
        {"x @ y", "9223372036854775807x1 1x1", "0:1 0:1 1:9223372036854775807 k 1 exchanged"},
    };
    (void)state;
    for (size_t c = 0; c < TEST_COUNT(products); c++) {
        og_graph graph;
        og_plan plan;
        make_plan(products[c].formula, products[c].shapes, &graph, &plan);
        const og_matrices *s = &plan.kernels[0].matrices;
        char got[128];
        snprintf(got, sizeof got, "%d:%lld %d:%lld %d:%lld k %lld%s", (int)s->batch_rank,
                 (long long)s->batch, (int)s->m_rank, (long long)s->m, (int)s->n_rank,
                 (long long)s->n, (long long)s->k,
                 plan.kernels[0].products[0].exchanged ? " exchanged" : "");
        if (strcmp(got, products[c].want) != 0)
            fail_msg("%s [%s]: %s, expected %s", products[c].formula, products[c].shapes, got,
                     products[c].want);
        og_plan_free(&plan);
        og_graph_free(&graph);
    }
}

static void test_golden_plans(void **state)
{
    (void)state;
    og_text text = {0};
    for (size_t c = 0; c < TEST_COUNT(cases); c++) {
        og_graph graph;
        og_plan plan;
        make_plan(cases[c].formula, cases[c].shapes, &graph, &plan);
        og_text_add(&text, "== %s  [%s]\n", cases[c].formula, cases[c].shapes);
        print_plan(&graph, &plan, &text);
        og_plan_free(&plan);
        og_graph_free(&graph);
    }
    compare_golden("plans.txt", &text);
    og_text_free(&text);
}

/* The order of a reduction follows the memory, not the order of the dims' names. */
static void test_order_follows_memory(void **state)
{
    (void)state;
    static const struct {
        const char *formula, *shapes;
        og_order order;
    } orders[] = {{"sum(x, 1)", "4x5", OG_ROWS},
                  {"sum(x, 0)", "4x5", OG_COLUMNS},
                  {"sum(x, 1)", "4x5t", OG_COLUMNS},
                  {"sum(x, 0)", "4x5t", OG_ROWS},
                  {"sum(x, 1)", "4x5x6", OG_COLUMNS},
                  {"sum(x, (0, 2))", "4x5x6", OG_ROWS},
                  {"sum(s * x, 1)", "4x1 4x5", OG_ROWS},
                  {"adaptive_avg_pool2d(x, 1)", "2x3x4x5", OG_ROWS},
                  {"adaptive_max_pool2d(x, 1)", "2x3x4x5", OG_ROWS},
                  {"avg_pool1d(x, 5)", "3x5", OG_ROWS},
                  {"max_pool3d(x, 2)", "3x2x2x2", OG_ROWS},
                  {"d(x) adaptive_max_pool1d(x, 1)", "3x5 3x1", OG_ROWS},
                  {"adaptive_avg_pool2d(x, (1, 2))", "2x3x4x6", OG_COLUMNS},
                  {"avg_pool1d(x, 5, padding=1)", "3x5", OG_COLUMNS}};
    for (size_t c = 0; c < TEST_COUNT(orders); c++) {
        og_graph graph;
        og_plan plan;
        make_plan(orders[c].formula, orders[c].shapes, &graph, &plan);
        if (plan.kernels[0].order != orders[c].order)
            fail_msg("%s [%s]", orders[c].formula, orders[c].shapes);
        og_plan_free(&plan);
        og_graph_free(&graph);
    }
}

/* Passes times instructions could grow with the square of a formula's length: of an absurd
 * one, more is kept between kernels. */
static void test_absurd_formula(void **state)
{
    (void)state;
    og_text text = {0};
    og_text_add(&text, "a0 = x;");
    for (int i = 0; i < 6000; i++)
        og_text_add(&text, "a%d = softmax(a%d, %d);", i + 1, i, i % 2);
    og_text_add(&text, "a6000");
    og_graph graph;
    ogive_error error;
    assert_int_equal(og_graph_parse(text.data, text.length, &graph, &error), OGIVE_OK);
    og_layout layout;
    read_layout("4x5", &layout);
    og_input_type type = {.rank = 2, .shape = {4, 5}};
    og_typed *typed = calloc((size_t)graph.node_count, sizeof *typed);
    assert_int_equal(og_infer(&graph, &type, typed, &error), OGIVE_OK);
    og_plan plan;
    TEST_OK(og_plan_build(&graph, typed, &layout, &layout, (og_plan_rules){0}, &plan, &error),
            error);
    assert_true(plan.kernel_count < 7000);
    og_plan_free(&plan);
    free(typed);
    og_graph_free(&graph);
    og_text_free(&text);
}

/* Without elements other extents may be anything: nothing overflows (UBSan), nothing is
 * done, and what is of no elements is still stored. */
static void test_giant_empty(void **state)
{
    (void)state;
    static const struct {
        const char *formula, *shapes;
    } giants[] = {
        {"sigmoid(x)", "0x1099511627776x1099511627776"},
        {"softmax(x, 1) + 1", "1099511627776x1099511627776x0"},
        {"softmax(softmax(x, 1), 2)", "0x1099511627776x1099511627776"},
        {"sum(x, 2) * sum(x, 1)", "0x1099511627776x1099511627776"},
        {"sum(x)", "1099511627776x1099511627776x0"},
        {"sum(x, 1)", "4x0x1099511627776x0x1099511627776"},
        {"transpose(x, 0, 1) + x", "1099511627776x1099511627776x0"},
        {"softmax(x @ y, 1)", "0x1099511627776x5 5x1099511627776"},
        {"x @ y", "0x1099511627776x1099511627776 1099511627776x0"},
        {"linear(sigmoid(x), w, b)", "0x1099511627776x1099511627776 5x1099511627776 5"},
        {"d(w b) linear(x, w, b)", "0x4294967296x5 7x5 7 0x4294967296x7"},
        {"d(x) x @ y", "4x5 4294967296x4294967296x0x5x6 4294967296x4294967296x0x4x6"},
    };
    for (size_t c = 0; c < TEST_COUNT(giants); c++) {
        og_graph graph;
        og_plan plan;
        ogive_error error;
        og_cpu_tuning tuning = {.block_bytes = 24 * 1024,
                                .thread_ps = 8000000,
                                .slab_least = 1,
                                .slab_bytes = 4096,
                                .slab_rows = 1};
        void *prepared;
        size_t bytes;
        make_plan(giants[c].formula, giants[c].shapes, &graph, &plan);
        if (og_cpu_prepare_tuned(&plan, NULL, &tuning, &prepared, &bytes, &error))
            fail_msg("%s [%s]: %s", giants[c].formula, giants[c].shapes, error.message);
        for (int32_t k = 0; k < plan.kernel_count; k++) {
            assert_true(plan.kernels[k].bytes_read >= 0 && plan.kernels[k].bytes_written >= 0);
            assert_true(og_space_count(&plan.kernels[k].space, false) == 0 ||
                        plan.kernels[k].product_count);
        }
        og_cpu_release(prepared);
        og_plan_free(&plan);
        og_graph_free(&graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kernel_counts),
                                       cmocka_unit_test(test_reads_what_is_kept),
                                       cmocka_unit_test(test_single_products),
                                       cmocka_unit_test(test_golden_plans),
                                       cmocka_unit_test(test_order_follows_memory),
                                       cmocka_unit_test(test_absurd_formula),
                                       cmocka_unit_test(test_matrices),
                                       cmocka_unit_test(test_giant_empty)};
    return TEST_RUN(tests);
}
