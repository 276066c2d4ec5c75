/* SPDX-License-Identifier: MIT
 *
 * test_places.c - convolutions whose tiles have places of an image as rows (cpu_product_places.h):
 * plan.h's order bit by bit, at every CPU level and for any number of threads, for images and
 * results however they lie, and nothing outside of a tensor is touched.
 */
#include "test.h"

#include "plan/plan.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_RANK = 3, MOST_DIMS = MOST_RANK + 2 };

typedef struct {
    int rank;
    bool back; /* transposed */
    int64_t batch, channels, filters, groups;
    int64_t extent[MOST_RANK], taps[MOST_RANK];
    int64_t stride[MOST_RANK], padding[MOST_RANK], dilation[MOST_RANK];
    bool image_last, result_last; /* channels are the innermost dim */
} window_case;

typedef struct {
    int64_t shape[MOST_DIMS], strides[MOST_DIMS], count;
    test_guard guard;
    test_tensor tensor;
} array;

static DLTensor *make(array *a, int rank, bool last, test_random *random)
{
    static const DLDataType type = {kDLFloat, 32, 1};
    int64_t stride = last ? a->shape[1] : 1;
    for (int d = rank - 1; d >= 0; d--) {
        a->strides[d] = last && d == 1 ? 1 : stride;
        stride *= last && d == 1 ? 1 : a->shape[d];
    }
    a->count = stride;
    a->guard = test_guard_alloc((size_t)a->count * sizeof(float),
                                test_random_below(random, 2) ? TEST_AT_END : TEST_AT_START);
    for (int64_t i = 0; i < a->count; i++)
        ((float *)a->guard.data)[i] = (float)test_random_range(random, -1, 1);
    return test_tensor_init(&a->tensor, a->guard.data, type, rank, a->shape, a->strides);
}

/* Sums of blocks and of groups of them, as they come. */
typedef struct {
    int64_t k;
    float block, group, all;
} sum;

static void close_block(sum *s)
{
    const int64_t blocks = (s->k + OG_PRODUCT_BLOCK - 1) / OG_PRODUCT_BLOCK - 1;
    s->group = blocks % (OG_PRODUCT_GROUP / OG_PRODUCT_BLOCK) == 0 ? s->block : s->group + s->block;
    s->block = 0;
}

static void close_group(sum *s)
{
    s->all = s->k <= OG_PRODUCT_GROUP ? s->group : s->all + s->group;
}

static void add(sum *s, float x, float w)
{
    if (s->k && s->k % OG_PRODUCT_BLOCK == 0)
        close_block(s);
    if (s->k && s->k % OG_PRODUCT_GROUP == 0)
        close_group(s);
    s->block = fmaf(x, w, s->block);
    s->k++;
}

/* Tap t of each dim: does the result's place meet it there? *at: the element of x. */
static bool meets(const window_case *c, const int64_t *place, const int64_t *t, int64_t *at,
                  bool *inside)
{
    *inside = true;
    for (int d = 0; d < c->rank; d++) {
        int64_t p = c->back ? place[d] + c->padding[d] - t[d] * c->dilation[d]
                            : place[d] * c->stride[d] - c->padding[d] + t[d] * c->dilation[d];
        if (c->back && p % c->stride[d] != 0)
            return false;
        at[d] = c->back ? p / c->stride[d] : p;
        *inside &= at[d] >= 0 && at[d] < c->extent[d];
    }
    return true;
}

static float find_want(const window_case *c, const array *x, const array *w, int64_t b, int64_t n,
                       const int64_t *place)
{
    const int64_t in = c->channels / c->groups, out = c->filters / c->groups, group = n / out;
    int64_t taps = 1;
    for (int d = 0; d < c->rank; d++)
        taps *= c->taps[d];
    sum s = {0};
    for (int64_t i = 0; i < in * taps; i++) {
        int64_t t[MOST_RANK], at[MOST_RANK], rest = i;
        bool inside;
        for (int d = c->rank - 1; d >= 0; rest /= c->taps[d--])
            t[d] = rest % c->taps[d];
        if (!meets(c, place, t, at, &inside))
            continue;
        const int64_t channel = group * in + rest;
        int64_t xi = b * x->strides[0] + channel * x->strides[1];
        int64_t wi = c->back ? channel * w->strides[0] + n % out * w->strides[1]
                             : n * w->strides[0] + rest * w->strides[1];
        for (int d = 0; d < c->rank; d++) {
            xi += at[d] * x->strides[2 + d];
            wi += t[d] * w->strides[2 + d];
        }
        add(&s, inside ? ((const float *)x->guard.data)[xi] : 0,
            ((const float *)w->guard.data)[wi]);
    }
    if (s.k == 0)
        return 0;
    close_block(&s);
    close_group(&s);
    return s.all;
}

static void write_text(const window_case *c, char *text, size_t size)
{
    const int64_t *const values[] = {c->stride, c->padding, c->dilation};
    static const char *const names[] = {"stride", "padding", "dilation"};
    int at = snprintf(text, size, "conv%s%dd(x, w", c->back ? "_transpose" : "", c->rank);
    for (int v = 0; v < 3; v++) {
        at += snprintf(text + at, size - (size_t)at, ", %s=[", names[v]);
        for (int d = 0; d < c->rank; d++)
            at +=
                snprintf(text + at, size - (size_t)at, d ? ", %" PRId64 : "%" PRId64, values[v][d]);
        at += snprintf(text + at, size - (size_t)at, "]");
    }
    snprintf(text + at, size - (size_t)at, ", groups=%" PRId64 ")", c->groups);
}

static void check_result(const window_case *c, const array *y, const float *want, const char *what)
{
    const float *got = y->guard.data;
    for (int64_t i = 0; i < y->count; i++)
        if (memcmp(&want[i], &got[i], sizeof *got) != 0) {
            char text[256];
            write_text(c, text, sizeof text);
            fail_msg("%s of (%" PRId64 ", %" PRId64 ", .., %" PRId64 ") to %" PRId64
                     " channels, last %d %d, %s: element %" PRId64 " in memory: got %a, want %a",
                     text, c->batch, c->channels, c->extent[c->rank - 1], c->filters, c->image_last,
                     c->result_last, what, i, (double)got[i], (double)want[i]);
        }
}

static float *find_wants(const window_case *c, const array *x, const array *w, const array *y)
{
    float *want = malloc((size_t)y->count * sizeof *want);
    assert_non_null(want);
    for (int64_t i = 0; i < y->count; i++) {
        int64_t index[MOST_DIMS], at = 0, rest = i;
        for (int d = c->rank + 1; d >= 0; rest /= y->shape[d--]) {
            index[d] = rest % y->shape[d];
            at += index[d] * y->strides[d];
        }
        want[at] = find_want(c, x, w, index[0], index[1], index + 2);
    }
    return want;
}

static void check(const window_case *c, test_random *random)
{
    array x = {.shape = {c->batch, c->channels}}, y = {.shape = {c->batch, c->filters}};
    array w = {.shape = {c->back ? c->channels : c->filters,
                         (c->back ? c->filters : c->channels) / c->groups}};
    for (int d = 0; d < c->rank; d++) {
        const int64_t reach = c->dilation[d] * (c->taps[d] - 1);
        x.shape[2 + d] = c->extent[d];
        w.shape[2 + d] = c->taps[d];
        y.shape[2 + d] = c->back
                             ? (c->extent[d] - 1) * c->stride[d] - 2 * c->padding[d] + reach + 1
                             : (c->extent[d] + 2 * c->padding[d] - reach - 1) / c->stride[d] + 1;
    }
    const DLTensor *inputs[] = {make(&x, c->rank + 2, c->image_last, random),
                                make(&w, c->rank + 2, false, random)};
    const DLTensor *outputs[] = {make(&y, c->rank + 2, c->result_last, random)};
    const void *data[] = {x.guard.data, w.guard.data};
    void *results[] = {y.guard.data};
    char text[256], what[64];
    write_text(c, text, sizeof text);
    ogive_formula *formula;
    ogive_error error;
    TEST_OK(ogive_formula_create(text, OGIVE_TEXT, &formula, &error), error);
    float *want = find_wants(c, &x, &w, &y);
    for (size_t l = 0; ogive_cpu_level_name(l); l++)
        for (int threads = 1; threads <= 3; threads++) {
            ogive_options options = {
                .size = sizeof options, .threads = threads, .cpu_level = ogive_cpu_level_name(l)};
            ogive_plan *plan;
            TEST_OK(ogive_plan_create(formula, inputs, 2, outputs, 1, &options, &plan, &error),
                    error);
            const size_t bytes = (ogive_plan_workspace(plan) + 63) & ~(size_t)63;
            void *workspace = aligned_alloc(64, bytes + 64);
            memset(workspace, 0xff, bytes + 64);
            memset(y.guard.data, 0xff, (size_t)y.count * sizeof(float));
            TEST_OK(ogive_plan_run(plan, data, results, workspace, NULL, &error), error);
            snprintf(what, sizeof what, "%s, %d threads", options.cpu_level, threads);
            check_result(c, &y, want, what);
            free(workspace);
            ogive_plan_release(plan);
        }
    free(want);
    ogive_formula_release(formula);
    test_guard_free(&x.guard);
    test_guard_free(&w.guard);
    test_guard_free(&y.guard);
}

/* What each part of the way is there for. */
static void test_cases(void **state)
{
#define ONE                                                                                        \
    {                                                                                              \
        1, 1, 1                                                                                    \
    }
#define NONE                                                                                       \
    {                                                                                              \
        0, 0, 0                                                                                    \
    }
    static const window_case cases[] = {
        /* blocks of k that end inside of a channel; lines that tiles cut */
        {2, false, 2, 35, 40, 1, {13, 21}, {3, 3}, ONE, {1, 1, 1}, ONE, false, false},
        /* nothing is seen outside: windows that a plan has as strides */
        {2, false, 1, 33, 33, 1, {14, 19}, {3, 3}, ONE, NONE, ONE, false, false},
        {2, false, 1, 40, 25, 1, {15, 33}, {2, 5}, {2, 2, 2}, NONE, ONE, false, true},
        {2, false, 1, 33, 30, 1, {11, 12}, {3, 1}, ONE, NONE, ONE, true, false},
        /* arrays of every second and third place, of which taps hit all or some */
        {2, false, 1, 30, 64, 1, {19, 40}, {3, 3}, {2, 2, 2}, {1, 1, 1}, ONE, false, false},
        {2, false, 2, 17, 26, 1, {17, 41}, {2, 3}, {3, 3, 3}, {1, 1, 1}, {1, 2, 1}, true, true},
        {2, false, 1, 48, 31, 1, {16, 40}, {3, 3}, {2, 2, 2}, {2, 2, 2}, {2, 2, 2}, true, false},
        {2, false, 1, 64, 32, 1, {18, 18}, {1, 1}, {2, 2, 2}, NONE, ONE, true, true},
        /* channels last, fewer than a vector and more */
        {2, false, 2, 5, 28, 1, {12, 30}, {5, 5}, ONE, {2, 2, 2}, ONE, true, true},
        {2, false, 1, 50, 70, 1, {9, 7}, {3, 3}, ONE, {1, 1, 1}, ONE, true, true},
        {2, false, 1, 20, 3, 1, {9, 9}, {3, 3}, ONE, {1, 1, 1}, ONE, true, true},
        /* groups, more filters than a tile has, lines longer than a tile */
        {2, false, 2, 30, 60, 2, {10, 18}, {3, 3}, ONE, {1, 1, 1}, ONE, false, false},
        {2, false, 2, 30, 60, 2, {10, 18}, {3, 3}, ONE, {1, 1, 1}, ONE, true, true},
        {2, false, 1, 6, 290, 1, {7, 8}, {3, 3}, ONE, {1, 1, 1}, ONE, false, false},
        {2, false, 1, 6, 290, 1, {7, 8}, {3, 3}, ONE, {1, 1, 1}, ONE, false, true},
        {2, false, 1, 6, 24, 1, {3, 700}, {3, 3}, ONE, {1, 1, 1}, ONE, false, false},
        {2, false, 1, 6, 24, 1, {3, 700}, {3, 3}, ONE, {1, 1, 1}, ONE, true, true},
        /* more than a group of blocks */
        {2, false, 1, 460, 25, 1, {5, 6}, {3, 3}, ONE, {1, 1, 1}, ONE, false, false},
        {2, false, 1, 460, 25, 1, {5, 6}, {3, 3}, ONE, {1, 1, 1}, ONE, true, true},
        /* lines alone, and planes of a volume */
        {1, false, 2, 40, 30, 1, {150}, {5}, ONE, {2}, {2}, false, false},
        {1, false, 1, 40, 30, 1, {90}, {4}, {2}, NONE, ONE, true, true},
        {3, false, 1, 12, 26, 1, {4, 6, 9}, {3, 3, 3}, ONE, {1, 1, 1}, ONE, false, false},
        {3, false, 1, 18, 26, 1, {5, 6, 9}, {3, 2, 3}, {2, 1, 1}, {1, 0, 1}, ONE, true, true},
        {3, false, 1, 12, 26, 1, {4, 6, 9}, {3, 3, 3}, ONE, NONE, ONE, false, false},
        /* phases */
        {2, true, 2, 30, 30, 1, {9, 17}, {3, 3}, ONE, NONE, ONE, false, false},
        {2, true, 1, 36, 40, 1, {9, 17}, {4, 4}, {2, 2, 2}, {1, 1, 1}, ONE, false, false},
        {2, true, 1, 36, 40, 1, {9, 17}, {4, 4}, {2, 2, 2}, {1, 1, 1}, ONE, true, true},
        {2, true, 1, 40, 60, 2, {7, 11}, {5, 3}, {3, 2, 1}, {2, 1, 1}, {1, 2, 1}, true, false},
        {3, true, 1, 14, 28, 1, {3, 4, 9}, {3, 3, 3}, {2, 2, 2}, {1, 1, 1}, ONE, false, true},
    };
    (void)state;
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        test_random random = {test_seed() + i};
        check(&cases[i], &random);
    }
}

static int64_t draw_between(test_random *random, int64_t least, int64_t most)
{
    return least + (int64_t)test_random_below(random, (uint64_t)(most - least + 1));
}

static void test_random_cases(void **state)
{
    const int rounds = test_rounds(25, 400);
    (void)state;
    for (int i = 0; i < rounds; i++) {
        test_random random = {test_seed() + 1000 + (uint64_t)i};
        window_case c = {.rank = (int)draw_between(&random, 1, 3),
                         .back = test_random_below(&random, 2),
                         .batch = draw_between(&random, 1, 2),
                         .groups = draw_between(&random, 1, 2),
                         .image_last = test_random_below(&random, 2),
                         .result_last = test_random_below(&random, 2)};
        c.channels = c.groups * draw_between(&random, 1, c.rank > 2 ? 12 : 40);
        c.filters = c.groups * draw_between(&random, 1, c.rank > 2 ? 30 : 70);
        for (int d = 0; d < c.rank; d++) {
            c.taps[d] = draw_between(&random, 1, c.rank > 2 ? 3 : 4);
            c.stride[d] = draw_between(&random, 1, 3);
            c.dilation[d] = draw_between(&random, 1, 2);
            c.padding[d] = draw_between(&random, 0, (c.taps[d] - 1) * c.dilation[d]);
            c.extent[d] =
                c.dilation[d] * (c.taps[d] - 1) + draw_between(&random, 1, d + 1 < c.rank ? 6 : 24);
        }
        bool empty = false;
        for (int d = 0; d < c.rank; d++)
            empty |= c.back && (c.extent[d] - 1) * c.stride[d] - 2 * c.padding[d] +
                                       c.dilation[d] * (c.taps[d] - 1) + 1 <
                                   1;
        if (!empty)
            check(&c, &random);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases),
                                       cmocka_unit_test(test_random_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
