/* SPDX-License-Identifier: MIT
 *
 * test_convolution.c - convolutions and poolings at random, and their gradients, on the CPU: right
 * by the float64 interpreter of plans, the same bits at every level and for any number of threads,
 * and nothing outside of a tensor is touched.
 */
#include "test.h"

#include "api/api.h"
#include "reference.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MOST_TENSORS = 4 };

typedef struct {
    int rank;
    int64_t shape[OG_MAX_RANK];
    bool channels_last; /* dim 1 is the innermost one in memory */
    test_guard guard;
    test_tensor tensor;
} guarded;

static int64_t count_of(const guarded *t)
{
    int64_t count = 1;
    for (int d = 0; d < t->rank; d++)
        count *= t->shape[d];
    return count;
}

static void find_strides(const guarded *t, int64_t *strides)
{
    int64_t stride = t->channels_last ? t->shape[1] : 1;
    for (int d = t->rank - 1; d >= 0; d--) {
        strides[d] = t->channels_last && d == 1 ? 1 : stride;
        stride *= t->channels_last && d == 1 ? 1 : t->shape[d];
    }
}

/* Against an inaccessible page. */
static DLTensor *make(guarded *t, og_dtype dtype, test_random *random)
{
    static const DLDataType types[] = {[OG_FLOAT32] = {kDLFloat, 32, 1},
                                       [OG_FLOAT16] = {kDLFloat, 16, 1},
                                       [OG_BFLOAT16] = {kDLBfloat, 16, 1},
                                       [OG_FLOAT64] = {kDLFloat, 64, 1}};
    t->guard = test_guard_alloc((size_t)count_of(t) * og_dtype_bytes(dtype),
                                test_random_below(random, 2) ? TEST_AT_END : TEST_AT_START);
    for (int64_t i = 0; i < count_of(t); i++)
        reference_store(t->guard.data, dtype, i, test_random_range(random, -2, 2));
    int64_t strides[OG_MAX_RANK];
    find_strides(t, strides);
    return test_tensor_init(&t->tensor, t->guard.data, types[dtype], t->rank, t->shape, strides);
}

typedef struct {
    char text[256];
    guarded tensors[MOST_TENSORS]; /* x, w, b, then what a result's change is worth */
    size_t count;
    og_dtype dtype;
} convolution;

/* A formula and shapes that fit it. */
static void draw(convolution *c, test_random *random)
{
    int rank = 1 + (int)test_random_below(random, 3),
        groups = 1 + (int)test_random_below(random, 3);
    bool back = test_random_below(random, 2), batched = test_random_below(random, 4);
    int64_t in = groups * (1 + (int64_t)test_random_below(random, rank > 2 ? 3 : 30));
    int64_t out = groups * (1 + (int64_t)test_random_below(random, 9));
    char steps[3][32] = {"", "", ""};
    guarded *x = &c->tensors[0], *w = &c->tensors[1], *b = &c->tensors[2];
    *x =
        (guarded){.rank = rank + 1 + batched, .shape = {1 + (int64_t)test_random_below(random, 3)}};
    x->shape[batched] = in;
    *w = (guarded){.rank = rank + 2, .shape = {back ? in : out, (back ? out : in) / groups}};
    *b = (guarded){.rank = 1, .shape = {out}};
    for (int i = 0; i < rank; i++) {
        int taps = 1 + (int)test_random_below(random, rank > 2 ? 3 : 5);
        int values[] = {1 + (int)test_random_below(random, 3), (int)test_random_below(random, taps),
                        1 + (int)test_random_below(random, 2)}; /* stride, padding, dilation */
        for (int s = 0; s < 3; s++) {
            size_t length = strlen(steps[s]);
            snprintf(steps[s] + length, sizeof steps[s] - length, i ? ", %d" : "%d", values[s]);
        }
        w->shape[2 + i] = taps;
        x->shape[1 + batched + i] =
            (taps - 1) * values[2] + 1 + (int64_t)test_random_below(random, 20);
    }
    snprintf(c->text, sizeof c->text,
             "conv%s%dd(x, w, b, stride=[%s], padding=[%s], dilation=[%s], groups=%d)",
             back ? "_transpose" : "", rank, steps[0], steps[1], steps[2], groups);
    c->count = 3;
    c->dtype = (og_dtype)test_random_below(random, 4);
}

/* One channel a filter, lines long and short, near and far taps, lines of an image and of channels:
 * see cpu_window_lines.c and cpu_window_spots.c. */
static void draw_alone(convolution *c, test_random *random)
{
    const bool last = test_random_below(random, 3) == 0;
    int64_t channels = 1 + (int64_t)test_random_below(random, last ? 70 : 4);
    int64_t across = 1 + (int64_t)test_random_below(random, 9);
    int64_t along = 1 + (int64_t)test_random_below(random, 12);
    int64_t dilation = 1 + (int64_t)test_random_below(random, 2);
    int64_t width =
        (along - 1) * dilation + 1 +
        (int64_t)test_random_below(random, last || test_random_below(random, 8) ? 40 : 3000);
    int64_t height = across + (int64_t)test_random_below(random, 6);
    c->tensors[0] = (guarded){.rank = 4, .shape = {2, channels, height, width}};
    c->tensors[0].channels_last = last;
    c->tensors[1] = (guarded){.rank = 4, .shape = {channels, 1, across, along}};
    c->tensors[2] = (guarded){.rank = 1, .shape = {channels}};
    snprintf(c->text, sizeof c->text,
             "conv2d(x, w, b, stride=[%d, 1], padding=[%d, %d], dilation=[1, %d], groups=%d)",
             1 + (int)test_random_below(random, 2), (int)test_random_below(random, (int)across),
             (int)test_random_below(random, (int)(along * dilation)), (int)dilation, (int)channels);
    c->count = 3;
    c->dtype = test_random_below(random, 3) ? OG_FLOAT32 : (og_dtype)test_random_below(random, 4);
}

/* A pooling of channels-last images, of few channels and many: see cpu_window_spots.c. */
static void draw_last(convolution *c, test_random *random)
{
    static const char *const names[] = {"max", "avg", "adaptive_max", "adaptive_avg"};
    const size_t kind = test_random_below(random, TEST_COUNT(names));
    const int taps = 1 + (int)test_random_below(random, 5);
    const int64_t channels =
        1 + (int64_t)test_random_below(random, test_random_below(random, 4) ? 80 : 1100);
    const int64_t most = channels > 100 ? 5 : 20;
    c->tensors[0] = (guarded){.rank = 4, .channels_last = true, .shape = {2, channels}};
    c->tensors[0].shape[2] = 5 + (int64_t)test_random_below(random, (uint64_t)most);
    c->tensors[0].shape[3] = taps + (int64_t)test_random_below(random, (uint64_t)most);
    if (kind >= 2)
        snprintf(c->text, sizeof c->text, "%s_pool2d(x, (%d, %d))", names[kind],
                 1 + (int)test_random_below(random, 7), 1 + (int)test_random_below(random, 9));
    else
        snprintf(c->text, sizeof c->text, "%s_pool2d(x, (%d, %d), (%d, %d), (1, %d))", names[kind],
                 2 + (int)test_random_below(random, 4), taps, 1 + (int)test_random_below(random, 3),
                 1 + (int)test_random_below(random, 4),
                 (int)test_random_below(random, (uint64_t)(taps / 2 + 1)));
    c->count = 1;
    c->dtype = test_random_below(random, 2) ? OG_FLOAT32 : (og_dtype)test_random_below(random, 4);
}

/* A pooling of lines long and short, with windows that overlap, leave elements out, reach outside,
 * or are parts of several lengths, of few lines and of many. */
static void draw_pooling(convolution *c, test_random *random)
{
    static const char *const names[] = {"max", "avg", "adaptive_max", "adaptive_avg"};
    const size_t kind = test_random_below(random, TEST_COUNT(names));
    const int taps = 1 + (int)test_random_below(random, 9);
    const int64_t width =
        taps + (int64_t)test_random_below(random, test_random_below(random, 8) ? 60 : 3000);
    const int64_t images = width > 80 || test_random_below(random, 2) ? 3 : 70;
    c->tensors[0] =
        (guarded){.rank = 3, .shape = {images, 9 + (int64_t)test_random_below(random, 9)}};
    c->tensors[0].shape[2] = width;
    if (kind >= 2)
        snprintf(c->text, sizeof c->text, "%s_pool2d(x, (%d, %d))", names[kind],
                 1 + (int)test_random_below(random, 6), 1 + (int)test_random_below(random, 20));
    else
        snprintf(c->text, sizeof c->text, "%s_pool2d(x, (%d, %d), (%d, %d), (1, %d))", names[kind],
                 2 + (int)test_random_below(random, 7), taps, 1 + (int)test_random_below(random, 3),
                 1 + (int)test_random_below(random, 9),
                 (int)test_random_below(random, (uint64_t)(taps / 2 + 1)));
    c->count = 1;
    c->dtype = test_random_below(random, 3) ? OG_FLOAT32 : (og_dtype)test_random_below(random, 4);
}

/* Runs and returns the results, one after the other; *plan is the caller's. */
static unsigned char *run(const convolution *c, ogive_formula *formula,
                          const ogive_options *options, size_t *bytes, ogive_plan **plan)
{
    const DLTensor *inputs[MOST_TENSORS];
    const void *data[MOST_TENSORS];
    void *outputs[MOST_TENSORS];
    ogive_error error;
    size_t results = ogive_formula_result_count(formula), sizes[MOST_TENSORS];
    for (size_t i = 0; i < c->count; i++) {
        inputs[i] = &c->tensors[i].tensor.tensor;
        data[i] = c->tensors[i].guard.data;
    }
    TEST_OK(ogive_plan_create(formula, inputs, c->count, NULL, 0, options, plan, &error), error);
    *bytes = 0;
    for (size_t r = 0; r < results; r++) {
        const DLTensor *result = ogive_plan_result(*plan, r);
        sizes[r] = og_dtype_bytes(c->dtype);
        for (int d = 0; d < result->ndim; d++)
            sizes[r] *= (size_t)result->shape[d];
        *bytes += sizes[r];
    }
    unsigned char *all = malloc(*bytes + 1), *at = all;
    assert_non_null(all);
    for (size_t r = 0; r < results; at += sizes[r++])
        outputs[r] = at;
    size_t needed = ogive_plan_workspace(*plan);
    void *workspace = needed ? aligned_alloc(64, (needed + 63) & ~(size_t)63) : NULL;
    if (needed)
        memset(workspace, 0xff, needed);
    TEST_OK(ogive_plan_run(*plan, data, outputs, workspace, NULL, &error), error);
    free(workspace);
    return all;
}

static void check_values(const convolution *c, const ogive_plan *plan, const unsigned char *got)
{
    const void *data[MOST_TENSORS];
    for (size_t i = 0; i < c->count; i++)
        data[i] = c->tensors[i].guard.data;
    reference *oracle = reference_run(&plan->plan, data);
    for (int32_t r = 0; r < plan->plan.output_count; r++) {
        const og_buffer *of = &plan->plan.buffers[plan->plan.input_count + r];
        int64_t count = 1, index[OG_MAX_RANK];
        for (int d = 0; d < of->rank; d++)
            count *= of->shape[d];
        for (int64_t i = 0; i < count; i++) {
            int64_t rest = i;
            for (int d = of->rank - 1; d >= 0; d--) {
                index[d] = rest % of->shape[d];
                rest /= of->shape[d];
            }
            double x = reference_load(got, c->dtype, i);
            reference_value want = reference_result(oracle, r, index);
            if (reference_check(want, x) == REFERENCE_WRONG)
                fail_msg("%s: result %d element %" PRId64 ": got %s, want %s within %g", c->text,
                         (int)r, i, test_text_f64(x), test_text_f64(want.value), want.bound);
        }
        got += (size_t)count * og_dtype_bytes(c->dtype);
    }
    reference_free(oracle);
}

static void check_levels(const convolution *c, ogive_formula *formula)
{
    size_t bytes, again;
    ogive_plan *plan, *other;
    unsigned char *want = run(c, formula, NULL, &bytes, &plan);
    check_values(c, plan, want);
    for (size_t l = 0; c->dtype != OG_FLOAT64 && ogive_cpu_level_name(l); l++)
        for (int threads = 1; threads <= 3; threads++) {
            ogive_options options = {
                .size = sizeof options, .threads = threads, .cpu_level = ogive_cpu_level_name(l)};
            unsigned char *got = run(c, formula, &options, &again, &other);
            if (again != bytes || memcmp(got, want, bytes) != 0)
                fail_msg("%s: other bits at %s, %d threads", c->text, options.cpu_level, threads);
            free(got);
            ogive_plan_release(other);
        }
    free(want);
    ogive_plan_release(plan);
}

static void test_convolutions(void **state)
{
    static const char *const names[] = {"x", "w", "b"};
    const int rounds = test_rounds(120, 2400);
    (void)state;
    for (int i = 0; i < rounds; i++) {
        test_random random = {test_seed() + (uint64_t)i};
        convolution c;
        ogive_error error;
        ogive_formula *formula, *gradient;
        if (i % 4 == 3)
            draw_alone(&c, &random);
        else if (i % 8 == 2)
            draw_pooling(&c, &random);
        else if (i % 4 == 2)
            draw_last(&c, &random);
        else
            draw(&c, &random);
        TEST_OK(ogive_formula_create(c.text, OGIVE_TEXT, &formula, &error), error);
        for (size_t t = 0; t < c.count; t++)
            make(&c.tensors[t], c.dtype, &random);
        check_levels(&c, formula);
        TEST_OK(ogive_formula_gradient(formula, names, c.count, &gradient, &error), error);
        const DLTensor *inputs[MOST_TENSORS];
        for (size_t t = 0; t < c.count; t++)
            inputs[t] = &c.tensors[t].tensor.tensor;
        ogive_plan *plan;
        TEST_OK(ogive_plan_create(formula, inputs, c.count, NULL, 0, NULL, &plan, &error), error);
        const DLTensor *result = ogive_plan_result(plan, 0);
        guarded *change = &c.tensors[c.count];
        *change = (guarded){.rank = result->ndim};
        memcpy(change->shape, result->shape, (size_t)result->ndim * sizeof *result->shape);
        make(&c.tensors[c.count++], c.dtype, &random);
        check_levels(&c, gradient);
        for (size_t t = 0; t < c.count; t++)
            test_guard_free(&c.tensors[t].guard);
        ogive_plan_release(plan);
        ogive_formula_release(gradient);
        ogive_formula_release(formula);
    }
}

/* The element of a row of WIDTH that tap t of part i of PARTS sees, or -1. */
static int64_t see_part(int64_t i, int64_t t, int64_t width, int64_t parts)
{
    const int64_t begin = i * width / parts, end = ((i + 1) * width + parts - 1) / parts;
    return begin + t < end ? begin + t : -1;
}

/* The same of an adaptive average: runs of 64 taps, and their sums; parts of several lengths, that
 * share rows of 10 taps between two runs. What is not seen is -0. */
static void test_adaptive_order(void **state)
{
    enum { N = 3, C = 21, H = 61, W = 65, PARTS = 7, TALL = 10, WIDE = 11 };
    (void)state;
    for (int last = 0; last < 2; last++) {
        test_random random = {test_seed()};
        convolution c = {.text = "adaptive_avg_pool2d(x, 7)", .count = 1};
        c.tensors[0] = (guarded){.rank = 4, .shape = {N, C, H, W}, .channels_last = last};
        make(&c.tensors[0], OG_FLOAT32, &random);
        const float *x = c.tensors[0].guard.data;
        ogive_formula *formula;
        ogive_plan *plan;
        ogive_error error;
        size_t bytes;
        TEST_OK(ogive_formula_create(c.text, OGIVE_TEXT, &formula, &error), error);
        float *got = (float *)(void *)run(&c, formula, NULL, &bytes, &plan);
        assert_int_equal(bytes, sizeof(float) * N * C * PARTS * PARTS);
        for (int64_t i = 0; i < N * C * PARTS * PARTS; i++) {
            const int64_t image = i / (PARTS * PARTS), row = i / PARTS % PARTS, column = i % PARTS;
            volatile float sum = -0.0f, all = -0.0f;
            float count = 0;
            for (int64_t t = 0; t < TALL * WIDE; t++) {
                const int64_t y = see_part(row, t / WIDE, H, PARTS);
                const int64_t z = see_part(column, t % WIDE, W, PARTS);
                const int64_t at =
                    last ? ((image / C * H + y) * W + z) * C + image % C : (image * H + y) * W + z;
                sum = sum + (y >= 0 && z >= 0 ? x[at] : -0.0f);
                count += y >= 0 && z >= 0;
                if (t % OG_RUN == OG_RUN - 1 || t == TALL * WIDE - 1) {
                    all = all + sum;
                    sum = -0.0f;
                }
            }
            const float want = all / count;
            if (memcmp(&want, &got[i], sizeof want) != 0)
                fail_msg("channels last %d, element %" PRId64 ": got %a, want %a", last, i,
                         (double)got[i], (double)want);
        }
        free(got);
        ogive_plan_release(plan);
        ogive_formula_release(formula);
        test_guard_free(&c.tensors[0].guard);
    }
}

/* plan.h's order, bit by bit: a channel's taps one after the other, products rounded before they
 * are added. */
static void test_depthwise_order(void **state)
{
    enum { C = 37, H = 9, W = 53, TAPS = 25 };
    (void)state;
    for (int last = 0; last < 2; last++) {
        test_random random = {test_seed()};
        convolution c = {.text = "conv2d(x, w, padding=2, groups=37)", .count = 2};
        c.tensors[0] = (guarded){.rank = 4, .shape = {1, C, H, W}, .channels_last = last};
        c.tensors[1] = (guarded){.rank = 4, .shape = {C, 1, 5, 5}};
        make(&c.tensors[0], OG_FLOAT32, &random);
        make(&c.tensors[1], OG_FLOAT32, &random);
        const float *x = c.tensors[0].guard.data, *w = c.tensors[1].guard.data;
        ogive_formula *formula;
        ogive_plan *plan;
        ogive_error error;
        size_t bytes;
        TEST_OK(ogive_formula_create(c.text, OGIVE_TEXT, &formula, &error), error);
        const ogive_options options = {.size = sizeof options, .threads = 2};
        float *got = (float *)(void *)run(&c, formula, &options, &bytes, &plan);
        assert_int_equal(bytes, sizeof(float) * C * H * W);
        for (int i = 0; i < C * H * W; i++) {
            const int channel = i / (H * W), row = i / W % H, column = i % W;
            volatile float product, sum = -0.0f;
            for (int t = 0; t < TAPS; t++) {
                const int y = row + t / 5 - 2, z = column + t % 5 - 2;
                const bool sees = y >= 0 && y < H && z >= 0 && z < W;
                const int at = last ? (y * W + z) * C + channel : (channel * H + y) * W + z;
                product = (sees ? x[at] : 0.0f) * w[channel * TAPS + t];
                sum = sum + product;
            }
            const float want = sum;
            if (memcmp(&want, &got[i], sizeof want) != 0)
                fail_msg("channels last %d, element %d: got %a, want %a", last, i, (double)got[i],
                         (double)want);
        }
        free(got);
        ogive_plan_release(plan);
        ogive_formula_release(formula);
        test_guard_free(&c.tensors[0].guard);
        test_guard_free(&c.tensors[1].guard);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_convolutions),
                                       cmocka_unit_test(test_depthwise_order),
                                       cmocka_unit_test(test_adaptive_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
