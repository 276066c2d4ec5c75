/* SPDX-License-Identifier: MIT
 *
 * test_reductions.c - the order of reductions (ORDER in plan.h), written down a
 * second time as scalar loops, against the library: equal bits, whatever the
 * shape, the dims, the CPU level, the threads and the size of blocks; and the
 * error that this order promises.
 */
#include "test.h"

#include "api/api.h"
#include "cpu/cpu_prepare.h"
#include "math/scalar_f32.h"
#include "reference.h"

#include <float.h>

/* ---- the order ----------------------------------------------------------------- */

typedef float (*fold)(float a, float b);

static float add(float a, float b)
{
    return a + b;
}

static float maximum(float a, float b)
{
    return og_maximum_f32(a, b);
}

static float minimum(float a, float b)
{
    return og_minimum_f32(a, b);
}

/* A chunk of n elements, 1 .. OG_CHUNK: lanes, then the tree of neighbours. */
static float fold_chunk(fold f, const float *x, int64_t n)
{
    float lane[OG_LANES];
    int64_t lanes = n < OG_LANES ? n : OG_LANES;
    for (int64_t l = 0; l < lanes; l++) {
        lane[l] = x[l];
        for (int64_t i = l + OG_LANES; i < n; i += OG_LANES)
            lane[l] = f(lane[l], x[i]);
    }
    while (lanes > 1) { /* a missing neighbour changes nothing */
        for (int64_t l = 0; l < lanes; l += 2)
            lane[l / 2] = l + 1 < lanes ? f(lane[l], lane[l + 1]) : lane[l];
        lanes = (lanes + 1) / 2;
    }
    return lane[0];
}

static float fold_run(fold f, const float *x, int64_t n)
{
    float sum = x[0];
    for (int64_t i = 1; i < n; i++)
        sum = f(sum, x[i]);
    return sum;
}

static int64_t part_length(og_order order)
{
    return order == OG_ROWS ? OG_CHUNK : OG_RUN;
}

/* n > 0. */
static float fold_row(fold f, og_order order, const float *x, int64_t n)
{
    int64_t length = part_length(order), parts = (n + length - 1) / length;
    float *sums = malloc((size_t)parts * sizeof *sums);
    for (int64_t p = 0; p < parts; p++) {
        int64_t left = n - p * length, count = left < length ? left : length;
        sums[p] = (order == OG_ROWS ? fold_chunk : fold_run)(f, x + p * length, count);
    }
    float result = parts == 1 ? sums[0] : fold_row(f, order, sums, parts);
    free(sums);
    return result;
}

static float sum_of(og_order order, const float *x, int64_t n)
{
    return n ? fold_row(add, order, x, n) : 0;
}

static float row_max_of(og_order order, const float *x, int64_t n)
{
    return n ? fold_row(maximum, order, x, n) : -INFINITY;
}

static float shift_of(float m)
{
    return isinf(m) ? 0 : m;
}

static float sumexp_of(og_order order, const float *x, int64_t n)
{
    if (n == 0)
        return 0;
    int64_t length = part_length(order), parts = (n + length - 1) / length;
    float *m = malloc((size_t)parts * sizeof *m), *s = calloc((size_t)parts, sizeof *s);
    float *terms = malloc((size_t)length * sizeof *terms);
    for (int64_t p = 0; p < parts; p++) {
        int64_t left = n - p * length, count = left < length ? left : length;
        m[p] = row_max_of(order, x + p * length, count);
        for (int64_t i = 0; i < count; i++)
            terms[i] = og_exp_f32(x[p * length + i] - shift_of(m[p]));
        s[p] = sum_of(order, terms, count);
    }
    float result = s[0];
    if (parts > 1) {
        float most = row_max_of(order, m, parts);
        for (int64_t p = 0; p < parts; p++)
            s[p] = s[p] * og_exp_f32(m[p] - shift_of(most));
        result = sum_of(order, s, parts);
    }
    free(m);
    free(s);
    free(terms);
    return result;
}

/* The sum of squares of a chunk's deviations from its mean, whose sum is s. */
static float sqdev_of_chunk(const float *x, int64_t n, float s)
{
    float lanes[OG_LANES];
    for (int64_t l = 0; l < OG_LANES && l < n; l++) {
        float a = 0, b = 0, k = 0;
        for (int64_t i = l; i < n; i += OG_LANES, k++) {
            float d = x[i] - x[l];
            a += d;
            b += d * d;
        }
        float u = a / k, v = b - a * u, e = (x[l] - s / (float)n) + u;
        lanes[l] = (v < 0 ? 0 : isnan(v) ? b : v) + (k * e) * e;
    }
    return fold_chunk(add, lanes, n < OG_LANES ? n : OG_LANES);
}

static float sqdev_of(const float *x, int64_t n)
{
    int64_t parts = (n + OG_CHUNK - 1) / OG_CHUNK;
    float *t = malloc((size_t)parts * sizeof *t), mean = sum_of(OG_ROWS, x, n) / (float)n;
    for (int64_t p = 0; p < parts; p++) {
        int64_t left = n - p * OG_CHUNK, count = left < OG_CHUNK ? left : OG_CHUNK;
        float s = sum_of(OG_ROWS, x + p * OG_CHUNK, count);
        float e = s / (float)count - mean;
        t[p] = sqdev_of_chunk(x + p * OG_CHUNK, count, s) + ((float)count * e) * e;
    }
    float result = sum_of(OG_ROWS, t, parts);
    free(t);
    return result;
}

/* ---- what functions make of a row ------------------------------------------------- */

/* Results of a row x of n: one, or n (out of the same length). */
typedef struct {
    const char *name;  /* NAME(x, dim=...) */
    bool per_element;  /* one result per element */
    bool needs_values; /* refuses empty rows */
    bool one_dim;      /* takes a single dim */
    void (*compute)(og_order order, const float *x, int64_t n, float *out);
} row_function;

static void compute_sum(og_order order, const float *x, int64_t n, float *out)
{
    *out = sum_of(order, x, n);
}

static void compute_amax(og_order order, const float *x, int64_t n, float *out)
{
    *out = fold_row(maximum, order, x, n);
}

static void compute_amin(og_order order, const float *x, int64_t n, float *out)
{
    *out = fold_row(minimum, order, x, n);
}

static void compute_mean(og_order order, const float *x, int64_t n, float *out)
{
    *out = sum_of(order, x, n) / (float)n;
}

static float squares_of(og_order order, const float *x, int64_t n, float mean, float scale)
{
    float *squares = malloc((size_t)(n + 1) * sizeof *squares);
    for (int64_t i = 0; i < n; i++)
        squares[i] = ((x[i] - mean) * scale) * ((x[i] - mean) * scale);
    float sum = sum_of(order, squares, n);
    free(squares);
    return sum;
}

/* The sum of squares about the mean, or 0, once or again, if it is above 2^110 or below least; and by
 * what they were scaled. */
static float scaled_squares_of(og_order order, const float *x, int64_t n, bool about_mean,
                               float least, float *scale)
{
    bool in_one_pass = about_mean && order == OG_ROWS && n > 65536; /* plan_deviations.c: 256 KiB */
    float mean = about_mean ? sum_of(order, x, n) / (float)n : 0;
    float once = in_one_pass ? sqdev_of(x, n) : squares_of(order, x, n, mean, 1);
    *scale = !(once <= 0x1p110f) ? 0x1p-80f : once < least ? 0x1p80f : 1;
    return *scale == 1 ? once : squares_of(order, x, n, mean, *scale);
}

static void compute_var(og_order order, const float *x, int64_t n, float *out)
{
    float scale, squares = scaled_squares_of(order, x, n, true, 0, &scale);
    *out = squares / (float)(n > 1 ? n - 1 : 0) / scale / scale;
}

static void compute_std(og_order order, const float *x, int64_t n, float *out)
{
    float scale, squares = scaled_squares_of(order, x, n, true, 0x1p-90f, &scale);
    *out = sqrtf(squares / (float)(n > 1 ? n - 1 : 0)) / scale;
}

static void compute_norm(og_order order, const float *x, int64_t n, float *out)
{
    float scale, squares = scaled_squares_of(order, x, n, false, 0x1p-90f, &scale);
    *out = sqrtf(squares) / scale;
}

static void compute_logsumexp(og_order order, const float *x, int64_t n, float *out)
{
    *out = og_log_f32(sumexp_of(order, x, n)) + shift_of(row_max_of(order, x, n));
}

static void compute_softmax(og_order order, const float *x, int64_t n, float *out)
{
    float m = row_max_of(order, x, n), s = sumexp_of(order, x, n) + (m - m);
    for (int64_t i = 0; i < n; i++)
        out[i] = og_exp_f32(x[i] - m) * (1.0f / s);
}

static void compute_log_softmax(og_order order, const float *x, int64_t n, float *out)
{
    float m = row_max_of(order, x, n), l = og_log_f32(sumexp_of(order, x, n) + (m - m));
    for (int64_t i = 0; i < n; i++)
        out[i] = (x[i] - m) - l;
}

static const row_function functions[] = {
    {"sum", false, false, false, compute_sum},
    {"amax", false, true, false, compute_amax},
    {"amin", false, true, false, compute_amin},
    {"mean", false, false, false, compute_mean},
    {"var", false, false, false, compute_var},
    {"std", false, false, false, compute_std},
    {"norm", false, false, false, compute_norm},
    {"logsumexp", false, false, false, compute_logsumexp},
    {"softmax", true, false, true, compute_softmax},
    {"log_softmax", true, false, true, compute_log_softmax},
};

/* ---- tensors ------------------------------------------------------------------------ */

/* A contiguous tensor of 1 to 3 dims, some of which (bits) are reduced. */
typedef struct {
    int rank;
    int64_t shape[3];
    unsigned dims;
    og_order order;
} reduction_shape;

static int64_t count_of(const reduction_shape *s)
{
    int64_t count = 1;
    for (int d = 0; d < s->rank; d++)
        count *= s->shape[d];
    return count;
}

static int64_t row_length(const reduction_shape *s)
{
    int64_t n = 1;
    for (int d = 0; d < s->rank; d++)
        n *= s->dims >> d & 1 ? s->shape[d] : 1;
    return n;
}

/* Offsets of the elements whose dims in mask run and whose others are 0, last dim
 * fastest; returns how many. */
static int64_t list_offsets(const reduction_shape *s, unsigned mask, int64_t **out)
{
    int64_t count = 1, stride[3] = {0}, next = 1, index[3] = {0};
    for (int d = s->rank - 1; d >= 0; d--) {
        stride[d] = next;
        next *= s->shape[d];
        count *= mask >> d & 1 ? s->shape[d] : 1;
    }
    *out = malloc((size_t)(count + 1) * sizeof **out);
    for (int64_t i = 0; i < count; i++) {
        (*out)[i] = index[0] * stride[0] + index[1] * stride[1] + index[2] * stride[2];
        for (int d = s->rank - 1; d >= 0; d--) {
            if (!(mask >> d & 1))
                continue;
            if (++index[d] < s->shape[d])
                break;
            index[d] = 0;
        }
    }
    return count;
}

static const char *shape_text(const reduction_shape *s)
{
    static char text[100];
    snprintf(text, sizeof text, "(%" PRId64 ", %" PRId64 ", %" PRId64 "; rank %d) over dims %x",
             s->shape[0], s->shape[1], s->shape[2], s->rank, s->dims);
    return text;
}

/* MAGNITUDES: some stretches of elements are as large or small as float32 has them. */
typedef enum { ORDINARY, WIDE, TIES, MAGNITUDES, SPECIALS, INFINITE } values_kind;

static float *make_values(test_random *random, int64_t count, values_kind kind)
{
    static const int exponents[] = {-148, -130, -100, -80, -45, 0, 0, 55, 63, 80, 100, 110};
    static const int64_t stretches[] = {1, 33, 1024, INT64_MAX};
    float *x = malloc((size_t)(count + 1) * sizeof *x);
    int64_t stretch = stretches[test_random_below(random, TEST_COUNT(stretches))];
    int exponent = 0;
    for (int64_t i = 0; i < count; i++) {
        x[i] = (float)test_random_range(random, -2, 2);
        if (kind == MAGNITUDES && i % stretch == 0)
            exponent = exponents[test_random_below(random, TEST_COUNT(exponents))];
        x[i] = ldexpf(x[i], exponent);
        if (kind == WIDE)
            x[i] *= (float)exp(test_random_range(random, -20, 4));
        if (kind == TIES) /* zeros of both signs: maxima must agree on the sign */
            x[i] = test_random_below(random, 2) ? -0.0f : 0.0f;
        if (kind >= SPECIALS && test_random_below(random, 500) == 0)
            x[i] = kind == SPECIALS && test_random_below(random, 2) ? NAN : -INFINITY;
        if (kind == INFINITE && test_random_below(random, 1000) == 0)
            x[i] = test_random_below(random, 2) ? INFINITY : 3e38f;
    }
    return x;
}

/* ---- the library ---------------------------------------------------------------------- */

/* Runs function over x; tuning: blocks and threads for small tensors. */
static void run_library(const row_function *function, const reduction_shape *s, float *x, float *y,
                        const ogive_options *options, const og_cpu_tuning *tuning)
{
    char text[100], dims[40] = "";
    for (int d = 0; d < s->rank; d++)
        if (s->dims >> d & 1)
            snprintf(dims + strlen(dims), sizeof dims - strlen(dims), "%d, ", d);
    if (function->one_dim)
        snprintf(text, sizeof text, "%s(x, dim=%d)", function->name, __builtin_ctz(s->dims));
    else
        snprintf(text, sizeof text, "%s(x, dim=(%s))", function->name, dims);
    ogive_formula *formula;
    ogive_plan *plan;
    ogive_error error;
    test_tensor tensor;
    const DLTensor *inputs[] = {
        test_tensor_init(&tensor, x, test_float32, s->rank, s->shape, NULL)};
    TEST_OK(ogive_formula_create(text, OGIVE_TEXT, &formula, &error), error);
    TEST_OK(ogive_plan_create(formula, inputs, 1, NULL, 0, options, &plan, &error), error);
    if (row_length(s) > 1 && plan->plan.kernels[0].order != s->order)
        fail_msg("%s of %s: the plan takes another order", text, shape_text(s));
    if (tuning) {
        plan->backend->release(plan->state);
        TEST_OK(og_cpu_prepare_tuned(&plan->plan, options, tuning, &plan->state,
                                     &plan->workspace_bytes, &error),
                error);
    }
    size_t bytes = (ogive_plan_workspace(plan) + 64) & ~(size_t)63;
    void *workspace = aligned_alloc(64, bytes);
    memset(workspace, 0xff, bytes);
    TEST_OK(ogive_plan_run(plan, (const void *[]){x}, (void *[]){y}, workspace, NULL, &error),
            error);
    free(workspace);
    ogive_plan_release(plan);
    ogive_formula_release(formula);
}

/* What the order says, in the place where the library would write it. */
static int64_t run_order(const row_function *function, const reduction_shape *s, const float *x,
                         float *y)
{
    int64_t *rows, *elements;
    int64_t row_count = list_offsets(s, ~s->dims, &rows), n = list_offsets(s, s->dims, &elements);
    float *row = malloc((size_t)(n + 1) * sizeof *row),
          *out = malloc((size_t)(n + 1) * sizeof *out);
    for (int64_t r = 0; r < row_count; r++) {
        for (int64_t i = 0; i < n; i++)
            row[i] = x[rows[r] + elements[i]];
        function->compute(s->order, row, n, out);
        for (int64_t i = 0; function->per_element && i < n; i++)
            y[rows[r] + elements[i]] = out[i];
        if (!function->per_element)
            y[r] = out[0];
    }
    free(rows);
    free(elements);
    free(row);
    free(out);
    return function->per_element ? count_of(s) : row_count;
}

static void check_equal(const row_function *function, const reduction_shape *s, const float *want,
                        const float *got, int64_t count, const char *level, int threads)
{
    for (int64_t i = 0; i < count; i++)
        if (!test_same_f32(got[i], want[i]))
            fail_msg("%s of %s, %s, %d threads: element %" PRId64 " is %s, the order says %s",
                     function->name, shape_text(s), level ? level : "default", threads, i,
                     test_text_f32(got[i]), test_text_f32(want[i]));
}

/* |e| <= 40 ceil(log_16384 n) 2^-24 sum|x|; columns 63 ceil(log_64 n). */
static void check_bound(const reduction_shape *s, const float *x, const float *sums)
{
    int64_t *rows, *elements;
    int64_t row_count = list_offsets(s, ~s->dims, &rows), n = list_offsets(s, s->dims, &elements);
    double factor = 0;
    for (int64_t left = n; left > 1;
         left = (left + part_length(s->order) - 1) / part_length(s->order))
        factor += s->order == OG_ROWS ? 40 : 63;
    for (int64_t r = 0; r < row_count; r++) {
        long double sum = 0, size = 0;
        for (int64_t i = 0; i < n; i++) {
            sum += x[rows[r] + elements[i]];
            size += fabsf(x[rows[r] + elements[i]]);
        }
        if (fabsl(sums[r] - sum) > factor * 0x1p-24L * size)
            fail_msg("sum of %s: row %" PRId64 " is %s, %Lg away; at most %Lg", shape_text(s), r,
                     test_text_f32(sums[r]), fabsl(sums[r] - sum), factor * 0x1p-24L * size);
    }
    free(rows);
    free(elements);
}

static void check_shape(test_random *random, const reduction_shape *s, values_kind kind)
{
    int64_t count = count_of(s), n = row_length(s);
    int64_t room = count + 1000; /* empty rows have results, too */
    float *x = make_values(random, count, kind);
    float *want = malloc((size_t)room * sizeof *want), *got = malloc((size_t)room * sizeof *got);
    for (size_t f = 0; f < TEST_COUNT(functions); f++) {
        const row_function *function = &functions[f];
        if ((function->needs_values && n == 0) ||
            (function->one_dim && (s->dims & (s->dims - 1)) != 0))
            continue;
        int64_t results = run_order(function, s, x, want);
        run_library(function, s, x, got, NULL, NULL);
        check_equal(function, s, want, got, results, NULL, 0);
        if (f == 0 && kind < SPECIALS)
            check_bound(s, x, got);
        /* One level and thread count per function and shape; all meet all in time. */
        size_t levels = 0;
        while (ogive_cpu_level_name(levels))
            levels++;
        ogive_options options = {
            .size = sizeof options,
            .threads = 1 + (int32_t)test_random_below(random, 4),
            .cpu_level = ogive_cpu_level_name((size_t)test_random_below(random, (int64_t)levels))};
        og_cpu_tuning tuning = {.block_bytes = 512 << test_random_below(random, 6),
                                .thread_ps = 1,
                                .slab_least = 1,
                                .slab_bytes = 64 << test_random_below(random, 10),
                                .slab_rows = 1};
        run_library(function, s, x, got, &options, &tuning);
        check_equal(function, s, want, got, results, options.cpu_level, options.threads);
    }
    free(x);
    free(want);
    free(got);
}

/* y = var of x, rows of n. The plan is the caller's. */
static ogive_plan *run_variance(const float *x, int64_t rows, int64_t n, float *y)
{
    ogive_formula *formula;
    ogive_plan *plan;
    ogive_error error;
    const DLTensor *inputs[] = {TEST_TENSOR((void *)(uintptr_t)x, test_float32, rows, n)};
    const void *data[] = {x};
    TEST_OK(ogive_formula_create("var(x, 1)", OGIVE_TEXT, &formula, &error), error);
    TEST_OK(ogive_plan_create(formula, inputs, 1, NULL, 0, NULL, &plan, &error), error);
    assert_int_equal(plan->plan.kernels[0].pass_count, 2);
    assert_int_equal(plan->plan.kernels[0].passes[1].guard_count, 1);
    void *workspace = aligned_alloc(64, (ogive_plan_workspace(plan) + 127) / 64 * 64);
    TEST_OK(ogive_plan_run(plan, data, (void *const[]){y}, workspace, NULL, &error), error);
    free(workspace);
    ogive_formula_release(formula);
    return plan;
}

/* Whether what the library makes of x, rows of n, is within the bounds of the plan's interpreter, and
 * var's relative error below most. */
static void check_variance(const float *x, int64_t rows, int64_t n, double most)
{
    float *y = malloc((size_t)rows * sizeof *y);
    ogive_plan *plan = run_variance(x, rows, n, y);
    reference *oracle = reference_run(&plan->plan, (const void *[]){x});
    for (int64_t r = 0; r < rows; r++) {
        long double sum = 0, squares = 0;
        for (int64_t i = 0; i < n; i++)
            sum += x[r * n + i];
        for (int64_t i = 0; i < n; i++) {
            long double d = x[r * n + i] - sum / (long double)n;
            squares += d * d;
        }
        double want = (double)(squares / (long double)(n - 1)), off = fabs(y[r] / want - 1);
        if (reference_check(reference_result(oracle, 0, &r), y[r]) != REFERENCE_RIGHT)
            fail_msg("row %d of %d: %.9g is not what the interpreter allows", (int)r, (int)n, y[r]);
        if (off > most)
            fail_msg("row %d of %d: %.9g, want %.9g, off by %.3g", (int)r, (int)n, y[r], want, off);
    }
    reference_free(oracle);
    free(y);
    ogive_plan_release(plan);
}

/* ---- the tests --------------------------------------------------------------------------- */

static const int64_t lengths[] = {
    0,    1,    2,     3,     5,     31,    32,    33,    63,    64,    65,    127,  128,
    129,  191,  193,   511,   512,   513,   575,   1023,  1024,  1025,  1537,  4095, 4096,
    4097, 5000, 16383, 16384, 16385, 16896, 16897, 32767, 32768, 32769, 32769, 70001};

static const values_kind kinds[] = {ORDINARY, WIDE, TIES, MAGNITUDES, SPECIALS, INFINITE};

static void check_lengths(const char *name, int64_t most, int64_t before, int64_t after)
{
    test_random random = test_random_named(name);
    for (size_t l = 0; l < TEST_COUNT(lengths) && lengths[l] <= most; l++) {
        reduction_shape s = {3, {before, lengths[l], after}, 2, after > 1 ? OG_COLUMNS : OG_ROWS};
        /* Large shapes with one kind of values each. */
        for (size_t k = 0; k < TEST_COUNT(kinds); k++)
            if (before * lengths[l] * after < 3000 || k == l % TEST_COUNT(kinds))
                check_shape(&random, &s, kinds[k]);
    }
}

static void test_one_row(void **state)
{
    (void)state;
    check_lengths("one row", 100000, 1, 1);
}

static void test_rows(void **state)
{
    (void)state;
    check_lengths("rows", 20000, 5, 1);
    check_lengths("many rows", 1024, 67, 1);
}

static void test_columns(void **state)
{
    (void)state;
    check_lengths("two columns", 40000, 1, 2);
    check_lengths("columns", 5000, 1, 37);
}

static void test_middle(void **state)
{
    (void)state;
    check_lengths("middle", 600, 3, 17);
    check_lengths("middle wide", 70, 2, 300);
}

static void test_several_dims(void **state)
{
    (void)state;
    test_random random = test_random_named("several dims");
    static const reduction_shape shapes[] = {
        {3, {4, 33, 65}, 6, OG_ROWS},    /* the last two: one row */
        {3, {4, 130, 129}, 6, OG_ROWS},  /* longer than a chunk */
        {3, {33, 5, 65}, 5, OG_ROWS},    /* the first and the last */
        {3, {70, 3, 513}, 5, OG_ROWS},   /* the same, longer than a chunk */
        {3, {7, 65, 11}, 3, OG_COLUMNS}, /* the first two */
        {3, {65, 67, 3}, 3, OG_COLUMNS}, /* the same, of three levels */
        {3, {17, 64, 16}, 7, OG_ROWS},   /* all, more than a chunk */
        {3, {9, 7, 5}, 7, OG_ROWS},      /* all */
        {3, {0, 7, 5}, 7, OG_ROWS},      /* all of nothing */
        {3, {3, 0, 5}, 6, OG_ROWS},      /* several of nothing */
        {2, {300, 200}, 3, OG_ROWS},     /* all of a matrix */
        {1, {262145}, 1, OG_ROWS},       /* 17 chunks */
        {2, {262145, 2}, 1, OG_COLUMNS}, /* four levels of runs */
    };
    for (size_t s = 0; s < TEST_COUNT(shapes); s++)
        for (size_t k = 0; k < TEST_COUNT(kinds); k++)
            if (count_of(&shapes[s]) < 100000 || k < 1)
                check_shape(&random, &shapes[s], kinds[k]);
}

/* A fold that forgot the order would pass everything above on constant data only:
 * make sure that the data tells orders apart. */
static void test_orders_differ(void **state)
{
    (void)state;
    test_random random = test_random_named("orders differ");
    float *x = make_values(&random, 20000, ORDINARY);
    float rows = sum_of(OG_ROWS, x, 20000), columns = sum_of(OG_COLUMNS, x, 20000);
    assert_true(rows != columns);
    assert_true(rows != fold_run(add, x, 20000));
    free(x);
}

/* Long rows: a mean far away; chunks that are each constant, but not alike; lanes that begin with an
 * outlier, about which they take squares. */
static void test_variances(void **state)
{
    (void)state;
    enum { ROWS = 2, N = 70001 };
    static const double most[] = {4e-7, 1e-6, 1e-5, 4e-7, 2e-6};
    test_random random = test_random_named("variances");
    float *x = malloc((size_t)ROWS * N * sizeof *x);
    for (size_t kind = 0; kind < TEST_COUNT(most); kind++) {
        for (int64_t i = 0; i < ROWS * N; i++) {
            int64_t at = i % N % OG_CHUNK, chunk = i % N / OG_CHUNK;
            double base = kind == 1   ? 1e3
                          : kind == 2 ? 1e4
                          : kind == 3 ? 100 * (double)(chunk % 2)
                          : kind == 4 ? (at < OG_LANES ? 0 : 100)
                                      : 0;
            double width = kind < 3 ? 2 : 0.001;
            x[i] = (float)(base + test_random_range(&random, -width, width));
        }
        check_variance(x, ROWS, N, most[kind]);
    }
    free(x);
}

/* Long rows whose squares are too large for float32, or those about a lane's first element, and rows of
 * which some element is no number: one for each of `ends`, at several places. */
static void test_variance_ends(void **state)
{
    (void)state;
    enum { N = 4 * OG_CHUNK + 5, PLACES = 4, ENDS = 6 };
    static const float ends[ENDS] = {0x1p60f, 0x1p62f, 0x1p71f, 1e30f, INFINITY, NAN};
    static const int64_t places[PLACES] = {0, OG_LANES, OG_CHUNK + 3, N - 1};
    float *x = calloc((size_t)(ENDS * PLACES) * N, sizeof *x), y[ENDS * PLACES];
    for (int r = 0; r < ENDS * PLACES; r++)
        x[r * N + places[r % PLACES]] = ends[r / PLACES];
    ogive_plan_release(run_variance(x, ENDS * PLACES, N, y));
    for (int r = 0; r < ENDS * PLACES; r++) {
        const float end = ends[r / PLACES];
        const double want = (double)end * end / N; /* its mean is next to nothing */
        if (!isfinite(end)   ? !isnan(y[r])
            : want > FLT_MAX ? !isinf(y[r])
                             : !(fabs(y[r] - want) <= 1e-4 * want))
            fail_msg("%g at %d: got %g, want %g", end, (int)places[r % PLACES], y[r], want);
    }
    free(x);
}

/* Whether the plan finds a variance of x in the pass of its mean, alone and beside a sum of y: what else
 * a kernel reads must not change bits. */
static void check_long(DLDataType x, DLDataType y, int64_t n, bool want)
{
    static const char *const texts[] = {"var(x, 1)", "var(x, 1), sum(y, 1)"};
    float *none = NULL;
    const DLTensor *inputs[] = {TEST_TENSOR(none, x, 3, n), TEST_TENSOR(none, y, 3, n)};
    for (size_t i = 0; i < TEST_COUNT(texts); i++) {
        ogive_formula *formula;
        ogive_plan *plan;
        ogive_error error;
        bool has = false;
        TEST_OK(ogive_formula_create(texts[i], OGIVE_TEXT, &formula, &error), error);
        TEST_OK(ogive_plan_create(formula, inputs, 1 + i, NULL, 0, NULL, &plan, &error), error);
        assert_int_equal(plan->plan.kernel_count, 1);
        const og_pass *pass = plan->plan.kernels[0].passes;
        for (int32_t r = 0; r < pass->reduction_count; r++)
            has |= pass->reductions[r].op == OG_OP_sqdev;
        if (has != want)
            fail_msg("'%s' of %d elements: %s", texts[i], (int)n, has ? "one pass" : "two passes");
        ogive_plan_release(plan);
        ogive_formula_release(formula);
    }
}

static void test_long_rows(void **state)
{
    (void)state;
    check_long(test_float32, test_float32, 65536, false);
    check_long(test_float32, test_float32, 65537, true);
    check_long(test_float32, test_float64, 40000, false);
    check_long(test_float64, test_float32, 40000, true);
    check_long(test_float16, test_float32, 100000, false);
    check_long(test_float16, test_float32, 131073, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orders_differ), cmocka_unit_test(test_one_row),
        cmocka_unit_test(test_rows),          cmocka_unit_test(test_columns),
        cmocka_unit_test(test_middle),        cmocka_unit_test(test_several_dims),
        cmocka_unit_test(test_variances),     cmocka_unit_test(test_variance_ends),
        cmocka_unit_test(test_long_rows),
    };
    return TEST_RUN(tests);
}
