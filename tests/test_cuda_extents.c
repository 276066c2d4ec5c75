/* SPDX-License-Identifier: MIT
 *
 * test_cuda_extents.c - og_cuda_emit() of kernels that no GPU could run. See test_cuda_emit.c.
 */
#include "plan_case.h"
#include "cuda_limits.h"

#include "cuda/emit/cuda_emit.h"

/* Extents near 2^63, of tensors that are broadcast or empty: nothing overflows (UBSan), and what no
 * launch or memory can have is refused. */
static void test_absurd_extents(void **state)
{
    static const struct {
        const char *formula;
        int64_t shape[3];
        bool fits;
    } absurd[] = {
        {"x + 1", {1, INT64_MAX, 1}, false},
        {"x + 1", {3, INT64_MAX / 4, 1}, false},
        {"exp(x)", {1, 1, INT64_MAX}, false},
        {"x + transpose(x, 1, 2)", {5, (int64_t)1 << 30, (int64_t)1 << 30}, false},
        {"softmax(x, -1)", {1, INT64_MAX, 0}, true},
        {"sum(x)", {1, INT64_MAX / 4, 4}, false},
        {"softmax(x, -1)", {1, INT64_MAX / 4, 3}, false},
        {"sum(x, -1)", {1, 3, INT64_MAX / 4}, false},
        {"sum(x, 1)", {1, INT64_MAX / 4, 4}, false},
        {"softmax(x, 1)", {1, INT64_MAX / 4, 4}, false},
        {"softmax(x, 1)", {1, 4, INT64_MAX / 4}, false},
        {"x @ transpose(x, -1, -2)", {1, 3, INT64_MAX / 4}, true},
        {"sum(x @ transpose(x, -1, -2), -1)", {1, (int64_t)1 << 31, 3}, false},
        {"sum(x @ transpose(x, -1, -2), -1)", {(int64_t)1 << 40, 1 << 11, 1}, false},
        {"sum(x @ transpose(x, -1, -2), -1)", {(int64_t)1 << 40, 1 << 11, 300}, false},
    };
    (void)state;
    for (size_t c = 0; c < TEST_COUNT(absurd); c++)
        for (int i = 0; i < 4 * OG_FLOAT_COUNT; i++) { /* strict, broadcast */
            og_graph graph;
            og_plan plan;
            og_arena arena = {0};
            ogive_error error;
            og_layout in = {.dtype = (og_dtype)(i / 4), .rank = 3};
            og_input_type type = {.dtype = in.dtype, .rank = 3};
            og_typed typed[64];
            memcpy(in.shape, absurd[c].shape, sizeof absurd[c].shape);
            memcpy(type.shape, absurd[c].shape, sizeof absurd[c].shape);
            assert_true(i % 4 / 2 || og_layout_contiguous(&in));
            make_graph(absurd[c].formula, &graph);
            TEST_OK(og_infer(&graph, &type, typed, &error), error);
            og_layout out = {.dtype = typed[graph.results[0]].dtype,
                             .rank = typed[graph.results[0]].rank};
            memcpy(out.shape, typed[graph.results[0]].shape, sizeof out.shape);
            TEST_OK(og_plan_build(&graph, typed, &in, &out, (og_plan_rules){0}, &plan, &error),
                    error);
            ogive_status status = OGIVE_OK;
            for (int32_t k = 0; k < plan.kernel_count && !status; k++) {
                og_cuda_work work;
                status = og_cuda_emit(&plan, k, &hopper, &(og_cuda_wishes){.strict = i % 2}, &arena,
                                      &work, &error);
            }
            if ((status == OGIVE_OK) != absurd[c].fits ||
                (status && status != OGIVE_UNSUPPORTED && status != OGIVE_MEMORY))
                fail_msg("%s, case %zu.%d: status %d, %s", absurd[c].formula, c, i, (int)status,
                         status ? error.message : "");
            og_arena_free(&arena);
            og_plan_free(&plan);
            og_graph_free(&graph);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_absurd_extents),
    };
    return TEST_RUN(tests);
}
