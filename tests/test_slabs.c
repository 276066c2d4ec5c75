/* SPDX-License-Identifier: MIT
 *
 * test_slabs.c - kernels that share rows run some rows at a time (cpu_slabs.h): which kernels
 * do, and that no bit of any result depends on it, on threads, or on the CPU level; that a run
 * whose output is an input does without.
 */
#include "test.h"

#include "cpu/cpu_slabs.h"
#include "plan/backend.h"
#include "plan_case.h"
#include "reference.h"

#include <time.h>

enum { MOST = 6 };

typedef struct {
    const char *text, *shapes; /* as plan_case.h has them */
    int32_t first, count;      /* the kernels that share slabs; of none 0 */
} slab_case;

static const slab_case cases[] = {
    {"softmax(q @ transpose(k, -2, -1) * 0.25, -1) @ v", "2x3x70x16 2x3x50x16 2x3x50x16", 0, 3},
    {"softmax(q @ transpose(k, -2, -1) + m, -1) @ v", "6x70x16 6x50x16 70x50 6x50x16", 0, 3},
    {"softmax(q @ transpose(k, -2, -1), -1) @ v", "2x3x70x16h 2x3x50x16h 2x3x50x16h", 0, 3},
    {"softmax(q @ transpose(k, -2, -1), -1) @ v", "5x33x8b 5x20x8b 5x20x8b", 0, 3},
    {"softmax(q @ transpose(k, -2, -1), -1) @ v", "70x16d 50x16d 50x16d", 0, 3},
    {"linear(gelu(linear(x, a, b)), c)", "101x24 60x24 60 17x60", 0, 2},
    {"softmax(linear(x, a), 1)", "301x24 60x24", 0, 2},
    {"layer_norm(linear(x, a) + r, (60,))", "97x24 60x24 97x60", 0, 2},
    {"s = softmax(x @ w, 1); t = s @ v; s, t", "90x20 20x40 40x30", 0, 3},
    {"max_pool2d(avg_pool2d(relu(x), 3, stride=1, padding=1), 2)", "4x6x20x18", 0, 3},
    {"group_norm(tanh(linear(x, a)), 4)", "64x24 60x24", 0, 3},
    {"x @ w @ w", "90x40 40x40", 0, 2},
    {"max_pool2d(relu(conv2d(x, w, padding=1)), 2)", "7x3x10x12 8x3x3x3", 0, 2},
    {"softmax(conv2d(relu(conv2d(x, w)), v, groups=2), 1)", "3x4x10x12h 8x4x3x3h 6x4x1x1h", 0, 3},
    {"instance_norm(conv_transpose2d(x, w, stride=2))", "3x4x9x8 4x6x3x3", 0, 5},
    {"group_norm(x, 4)", "8x60x40", 0, 3},
    /* every row of the second needs all rows of the first */
    {"s = x @ w; transpose(s, 0, 1) @ s", "90x20 20x40", 0, 0},
    {"softmax(x @ w, 0)", "90x20 20x40", 0, 0},
    {"s = gelu(x @ w); s - mean(s, 0)", "90x20 20x40", 0, 0},
};

/* Memory of a plan's inputs and outputs. */
typedef struct {
    const void *inputs[MOST];
    void *outputs[MOST];
    size_t bytes[MOST]; /* of outputs */
} tensors;

static int64_t count_elements(const og_buffer *buffer)
{
    int64_t last = 0;
    for (int32_t d = 0; d < buffer->rank; d++)
        last += (buffer->shape[d] - 1) * buffer->stride[d];
    return last + 1;
}

static void make_tensors(const og_plan *plan, tensors *to)
{
    test_random random = {.state = 7};
    for (int32_t b = 0; b < plan->input_count + plan->output_count; b++) {
        const og_buffer *buffer = &plan->buffers[b];
        int64_t count = count_elements(buffer);
        size_t bytes = (size_t)count * og_dtype_bytes(buffer->dtype);
        void *data = malloc(bytes);
        assert_non_null(data);
        memset(data, 0x6b, bytes);
        for (int64_t i = 0; i < count && buffer->kind == OG_BUFFER_INPUT; i++)
            reference_store(data, buffer->dtype, i, test_random_range(&random, -2, 2));
        if (buffer->kind == OG_BUFFER_INPUT) {
            to->inputs[buffer->index] = data;
        } else {
            to->outputs[buffer->index] = data;
            to->bytes[buffer->index] = bytes;
        }
    }
}

static void free_tensors(const og_plan *plan, tensors *of)
{
    for (int32_t i = 0; i < plan->input_count; i++)
        free((void *)(uintptr_t)of->inputs[i]);
    for (int32_t i = 0; i < plan->output_count; i++)
        free(of->outputs[i]);
}

/* Where nothing shares slabs, and where next to all does. */
static const og_cpu_tuning whole = {
    .block_bytes = 24 * 1024, .thread_ps = 1, .slab_least = INT64_MAX};

static og_cpu_tuning cut_to(int64_t bytes, int64_t rows)
{
    return (og_cpu_tuning){.block_bytes = 24 * 1024,
                           .thread_ps = 1,
                           .slab_least = 1,
                           .slab_bytes = bytes,
                           .slab_rows = rows};
}

static void *prepare(const og_plan *plan, const og_cpu_tuning *tuning, const char *level,
                     int32_t threads, size_t *bytes)
{
    ogive_options options = {.size = sizeof options, .threads = threads, .cpu_level = level};
    ogive_error error;
    void *state;
    TEST_OK(og_cpu_prepare_tuned(plan, &options, tuning, &state, bytes, &error), error);
    return state;
}

static void run(const og_plan *plan, const tensors *on, const og_cpu_tuning *tuning,
                const char *level, int32_t threads, bool aliased)
{
    size_t bytes;
    ogive_error error;
    void *state = prepare(plan, tuning, level, threads, &bytes);
    test_guard workspace = test_guard_alloc(bytes, threads % 2 ? TEST_AT_END : TEST_AT_START);
    memset(workspace.data, 0xff, bytes); /* NaN wherever it is read before it is written */
    TEST_OK(og_cpu_backend.run(plan, state, on->inputs, on->outputs, workspace.data, NULL, aliased,
                               &error),
            error);
    test_guard_free(&workspace);
    og_cpu_backend.release(state);
}

/* The order of float64's sums is not fixed (plan.h). */
static bool is_same(const og_buffer *buffer, const void *got, const void *want, size_t bytes)
{
    double most = 0;
    if (buffer->dtype != OG_FLOAT64)
        return memcmp(got, want, bytes) == 0;
    for (size_t i = 0; i < bytes / sizeof(double); i++)
        most = fmax(most, fabs(((const double *)got)[i] - ((const double *)want)[i]));
    return most <= 1e-13;
}

static void expect_same(const slab_case *c, const og_plan *plan, const tensors *got,
                        const tensors *want)
{
    for (int32_t b = plan->input_count; b < plan->input_count + plan->output_count; b++) {
        int32_t r = plan->buffers[b].index;
        if (!is_same(&plan->buffers[b], got->outputs[r], want->outputs[r], want->bytes[r]))
            fail_msg("%s: result %d differs", c->text, (int)r);
    }
}

static void test_results(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 1000, 4096, 10000, 40000};
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        og_graph graph;
        og_plan plan;
        tensors want, got;
        const char *level;
        make_plan(cases[i].text, cases[i].shapes, &graph, &plan);
        make_tensors(&plan, &want);
        make_tensors(&plan, &got);
        run(&plan, &want, &whole, NULL, 1, false);
        for (size_t l = 0; (level = ogive_cpu_level_name(l)); l++)
            for (size_t s = 0; s < TEST_COUNT(sizes); s++) {
                og_cpu_tuning tuning = cut_to(sizes[s], s % 2 ? 1 : 5);
                for (int32_t r = 0; r < plan.output_count; r++)
                    memset(got.outputs[r], 0x6b, got.bytes[r]);
                run(&plan, &got, &tuning, level, 1 + (int32_t)(s % 3), false);
                expect_same(&cases[i], &plan, &got, &want);
            }
        free_tensors(&plan, &want);
        free_tensors(&plan, &got);
        og_plan_free(&plan);
        og_graph_free(&graph);
    }
}

static void test_which(void **state)
{
    (void)state;
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        og_graph graph;
        og_plan plan;
        size_t bytes;
        og_cpu_tuning tuning = cut_to(4096, 1);
        make_plan(cases[i].text, cases[i].shapes, &graph, &plan);
        og_cpu_state *made = prepare(&plan, &tuning, NULL, 1, &bytes);
        const og_cpu_slabs *slabs = made->slabs;
        if (!slabs != !cases[i].count || (slabs && slabs->next))
            fail_msg("%s: %s groups of kernels share slabs", cases[i].text,
                     slabs ? slabs->next ? "several" : "one of the" : "no");
        if (slabs) {
            if (slabs->first != cases[i].first || slabs->count != cases[i].count)
                fail_msg("%s: %d kernels from %d on share slabs", cases[i].text, slabs->count,
                         slabs->first);
            assert_true(slabs->slabs > 1);
        }
        og_cpu_backend.release(made);
        og_plan_free(&plan);
        og_graph_free(&graph);
    }
}

/* Later slabs would read what earlier ones have written over. */
static void test_in_place(void **state)
{
    (void)state;
    const slab_case c = {.text = "softmax(q @ transpose(k, -2, -1), -1) @ v",
                         .shapes = "3x40x16 3x40x16 3x40x16"};
    const og_cpu_tuning tuning = cut_to(3000, 1);
    og_graph graph;
    og_plan plan;
    make_plan(c.text, c.shapes, &graph, &plan);
    for (int32_t of = 0; of < plan.input_count; of++) {
        tensors want, got;
        make_tensors(&plan, &want);
        make_tensors(&plan, &got);
        run(&plan, &want, &whole, NULL, 1, false);
        void *own = got.outputs[0];
        got.outputs[0] = (void *)(uintptr_t)got.inputs[of];
        if (plan.may_alias[of]) {
            run(&plan, &got, &tuning, NULL, 2, true);
            expect_same(&c, &plan, &got, &want);
        }
        got.outputs[0] = own;
        free_tensors(&plan, &want);
        free_tensors(&plan, &got);
    }
    og_plan_free(&plan);
    og_graph_free(&graph);
}

/* A plan asks for as much workspace as before, but touches a slab's alone. */
static void test_memory(void **state)
{
    (void)state;
    og_graph graph;
    og_plan plan;
    tensors on;
    size_t bytes, without;
    const og_cpu_tuning tuning = cut_to(8192, 1);
    make_plan(cases[0].text, cases[0].shapes, &graph, &plan);
    make_tensors(&plan, &on);
    og_cpu_state *made = prepare(&plan, &tuning, NULL, 1, &bytes);
    og_cpu_backend.release(prepare(&plan, &whole, NULL, 1, &without));
    assert_in_range(bytes, without, without + (64 << 10));
    test_guard workspace = test_guard_alloc(bytes, TEST_AT_START);
    ogive_error error;
    memset(workspace.data, 0x6b, bytes);
    TEST_OK(
        og_cpu_backend.run(&plan, made, on.inputs, on.outputs, workspace.data, NULL, false, &error),
        error);
    for (size_t i = 0; i < plan.temporary_bytes; i++)
        assert_int_equal(((const char *)workspace.data)[i], 0x6b);
    test_guard_free(&workspace);
    og_cpu_backend.release(made);
    free_tensors(&plan, &on);
    og_plan_free(&plan);
    og_graph_free(&graph);
}

/* Every slab packs the factors anew: where threads are so many that each would do that for a few
 * rows, they share whole kernels. */
static void test_few_rows(void **state)
{
    (void)state;
    const og_cpu_tuning tuning = cut_to(256, 1);
    og_graph graph;
    og_plan plan;
    size_t bytes;
    make_plan("linear(gelu(linear(x, a)), c)", "512x64 16x64 64x16", &graph, &plan);
    for (int32_t threads = 1; threads <= 64; threads *= threads > 1 ? 16 : 4) {
        og_cpu_state *made = prepare(&plan, &tuning, NULL, threads, &bytes);
        assert_int_equal(made->slabs != NULL, threads <= 4);
        if (made->slabs) /* 32 rows of 64 bytes are a quarter of the factors' 8192 */
            assert_in_range(made->slabs->length, 24, 32);
        og_cpu_backend.release(made);
    }
    og_plan_free(&plan);
    og_graph_free(&graph);
}

/* Rows of 2^60 bytes are no slabs, however many are wished for. */
static void test_huge_rows(void **state)
{
    (void)state;
    for (int64_t rows = 1; rows <= 64; rows *= 4) {
        const og_cpu_tuning tuning = cut_to(1 << 20, rows);
        og_graph graph;
        og_plan plan;
        size_t bytes, without;
        make_plan("softmax(x @ w, 1)", "3x8 8x288230376151711744", &graph, &plan);
        og_cpu_backend.release(prepare(&plan, &whole, NULL, 2, &without));
        og_cpu_state *made = prepare(&plan, &tuning, NULL, 2, &bytes);
        assert_null(made->slabs);
        assert_true(bytes == without);
        og_cpu_backend.release(made);
        og_plan_free(&plan);
        og_graph_free(&graph);
    }
}

/* Thousands of kernels are prepared as soon as they are planned: it took half a minute. */
static void test_many_kernels(void **state)
{
    (void)state;
    const og_cpu_tuning tuning = {.block_bytes = 24 * 1024,
                                  .thread_ps = 8000000,
                                  .slab_least = 1 << 20,
                                  .slab_bytes = 2 << 20,
                                  .slab_rows = 32};
    enum { NORMS = TEST_SANITIZED ? 100 : 1000 };
    char *text = malloc(NORMS * 40), *at = text + sprintf(text, "x0=x;");
    og_graph graph;
    og_plan plan;
    size_t bytes;
    for (int i = 1; i < NORMS; i++)
        at += sprintf(at, "x%d=group_norm(x%d,8);", i, i - 1);
    sprintf(at, "x%d", NORMS - 1);
    make_plan(text, "8x64x32x32", &graph, &plan);
    clock_t start = clock();
    og_cpu_backend.release(prepare(&plan, &tuning, NULL, 4, &bytes));
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    if (seconds > (TEST_SANITIZED ? 60 : 6))
        fail_msg("%d kernels: %.1f seconds", (int)plan.kernel_count, seconds);
    og_plan_free(&plan);
    og_graph_free(&graph);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_which),        cmocka_unit_test(test_results),
        cmocka_unit_test(test_in_place),     cmocka_unit_test(test_memory),
        cmocka_unit_test(test_few_rows),     cmocka_unit_test(test_huge_rows),
        cmocka_unit_test(test_many_kernels),
    };
    return TEST_RUN(tests);
}
