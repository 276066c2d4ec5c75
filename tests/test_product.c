/* SPDX-License-Identifier: MIT
 *
 * test_product.c - tiles of matrix products against a scalar reference of the
 * order in plan.h: the same bits at every level, for every shape, stride,
 * dtype, tiling and number of threads, at every position.
 */
#include "test.h"

#include "cpu/cpu_product.h"
#include "cpu/cpu_threads.h"
#include "math/half.h"

/* ---- levels -------------------------------------------------------------------- */

static const og_cpu_product_kernels *find_level(size_t index)
{
#if defined(__x86_64__)
    static const og_cpu_product_kernels *const levels[] = {&og_cpu_product_kernels_x86_64,
                                                           &og_cpu_product_kernels_x86_64_v3,
                                                           &og_cpu_product_kernels_x86_64_v4};
#else
    static const og_cpu_product_kernels *const levels[] = {&og_cpu_product_kernels_aarch64};
#endif
    return ogive_cpu_level_name(index) ? levels[index] : NULL;
}

/* ---- operands ------------------------------------------------------------------ */

typedef struct {
    og_cpu_factor factor;
    test_guard guard;
    size_t bytes; /* of an element */
} operand;

/* rows x k elements; lowest address at the start of readable memory or highest at
 * its end, so that reading too far on either side faults. */
static operand make_operand(test_random *random, og_dtype dtype, int64_t rows, int64_t k,
                            int64_t stride, int64_t k_stride, test_place place)
{
    operand o = {.bytes = og_dtype_bytes(dtype)};
    int64_t low = 0, high = 0;
    if (rows > 0 && k > 0) {
        low += (stride < 0 ? (rows - 1) * stride : 0) + (k_stride < 0 ? (k - 1) * k_stride : 0);
        high += (stride > 0 ? (rows - 1) * stride : 0) + (k_stride > 0 ? (k - 1) * k_stride : 0);
        high++;
    }
    int64_t count = high - low;
    o.guard = test_guard_alloc((size_t)count * o.bytes, place);
    o.factor = (og_cpu_factor){.data = (char *)o.guard.data - low * (int64_t)o.bytes,
                               .dtype = dtype,
                               .stride = stride,
                               .k_stride = k_stride};
    for (int64_t i = 0; i < count; i++) {
        double x = test_random_range(random, -1, 1);
        if (test_random_below(random, 50) == 0)
            x = 0;
        if (dtype == OG_FLOAT64)
            ((double *)o.guard.data)[i] = x;
        else if (dtype == OG_FLOAT32)
            ((float *)o.guard.data)[i] = (float)x;
        else if (dtype == OG_FLOAT16)
            ((uint16_t *)o.guard.data)[i] = og_f16_from_f32((float)x);
        else
            ((uint16_t *)o.guard.data)[i] = og_bf16_from_f32((float)x);
    }
    test_guard_freeze(&o.guard);
    return o;
}

static double get(const og_cpu_factor *f, int64_t row, int64_t k)
{
    int64_t at = row * f->stride + k * f->k_stride;
    if (f->dtype == OG_FLOAT64)
        return ((const double *)f->data)[at];
    if (f->dtype == OG_FLOAT32)
        return ((const float *)f->data)[at];
    uint16_t half = ((const uint16_t *)f->data)[at];
    return f->dtype == OG_FLOAT16 ? og_f32_from_f16(half) : og_f32_from_bf16(half);
}

/* ---- the reference ---------------------------------------------------------------- */

static float multiply_f32(const og_cpu_factor *left, const og_cpu_factor *right, int64_t m,
                          int64_t n, int64_t k)
{
    float groups = 0, group = 0;
    for (int64_t k0 = 0; k0 < k; k0 += OG_PRODUCT_BLOCK) {
        float p = 0;
        for (int64_t i = k0; i < k && i < k0 + OG_PRODUCT_BLOCK; i++)
            p = fmaf((float)get(left, m, i), (float)get(right, n, i), p);
        if (k0 % OG_PRODUCT_GROUP == 0 && k0 > 0)
            groups = k0 == OG_PRODUCT_GROUP ? group : groups + group;
        group = k0 % OG_PRODUCT_GROUP == 0 ? p : group + p;
    }
    return k > OG_PRODUCT_GROUP ? groups + group : group;
}

static float *make_reference(const og_cpu_factor *left, const og_cpu_factor *right, int64_t m,
                             int64_t n, int64_t k)
{
    float *out = malloc((size_t)(m * n) * sizeof *out + 1);
    assert_non_null(out);
    for (int64_t i = 0; i < m * n; i++)
        out[i] = multiply_f32(left, right, i / n, i % n, k);
    return out;
}

/* ---- running ------------------------------------------------------------------------ */

typedef struct {
    const og_cpu_product_kernels *kernels;
    og_cpu_tiling tiling;
    og_cpu_factors factors;
    char *memory;
    void *out; /* m x n */
    size_t bytes;
} run;

static int64_t min_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void run_tiles(void *context, int thread, int threads)
{
    const run *r = context;
    const og_cpu_tiling *t = &r->tiling;
    size_t all_bytes = t->sum_bytes + t->work_bytes;
    char *memory = r->memory + (size_t)thread * all_bytes;
    int64_t index = 0;
    for (int64_t n0 = 0; n0 < t->n; n0 += t->tile_n)
        for (int64_t m0 = 0; m0 < t->m; m0 += t->tile_m, index++) {
            if (index % threads != thread)
                continue;
            int64_t rows = min_of(t->tile_m, t->m - m0), columns = min_of(t->tile_n, t->n - n0);
            memset(memory, 0xff, all_bytes); /* NaN: nothing may depend on what is there */
            r->kernels->tile(t, &r->factors, m0, rows, n0, columns, memory, memory + t->sum_bytes);
            for (int64_t i = 0; i < rows; i++)
                memcpy((char *)r->out + (size_t)((m0 + i) * t->n + n0) * r->bytes,
                       memory + (size_t)(i * t->tile_n) * r->bytes, (size_t)columns * r->bytes);
        }
}

/* m < 0: the factors are paired. */
static void multiply(const og_cpu_product_kernels *kernels, const og_cpu_factor *left,
                     const og_cpu_factor *right, int64_t m, int64_t n, int64_t k, int32_t threads,
                     size_t scratch, void *out)
{
    run r = {.kernels = kernels,
             .factors = {.left = *left, .right = *right, .paired = m < 0},
             .out = out};
    m = m < 0 ? 1 : m;
    r.tiling = kernels->cut(m, n, k, &r.factors, 1, threads == 3 && n <= OG_PRODUCT_WHOLE, !scratch,
                            4 * threads, scratch);
    r.bytes = left->dtype == OG_FLOAT64 ? 8 : 4;
    assert_true(r.tiling.sum_bytes % 64 == 0 && r.tiling.work_bytes % 64 == 0);
    assert_true(r.tiling.tile_n % OG_PRODUCT_COLUMNS == 0);
    assert_true(threads < 3 || n > OG_PRODUCT_WHOLE || r.tiling.tile_n >= n);
    size_t all_bytes = r.tiling.sum_bytes + r.tiling.work_bytes;
    r.memory = aligned_alloc(64, all_bytes * (size_t)threads + 64);
    assert_non_null(r.memory);
    og_cpu_parallel(threads, run_tiles, &r);
    free(r.memory);
}

/* At every level, with 1 to 3 threads, in little and in much memory. */
static void check_f32(const og_cpu_factor *left, const og_cpu_factor *right, int64_t m, int64_t n,
                      int64_t k, const char *what)
{
    float *want = make_reference(left, right, m, n, k);
    float *got = malloc((size_t)(m * n) * sizeof *got + 1);
    assert_non_null(got);
    for (size_t level = 0; find_level(level); level++)
        for (int32_t threads = 1; threads <= 3; threads++) {
            multiply(find_level(level), left, right, m, n, k, threads,
                     threads == 2 ? 0 : SIZE_MAX / 2, got);
            for (int64_t i = 0; i < m * n; i++)
                if (test_bits_f32(want[i]) != test_bits_f32(got[i]))
                    fail_msg("%s, %s, %" PRId64 " x %" PRId64 " x %" PRId64
                             ", %d threads: row %" PRId64 ", column %" PRId64 ": %s, expected %s",
                             what, ogive_cpu_level_name(level), m, n, k, (int)threads, i / n, i % n,
                             test_text_f32(got[i]), test_text_f32(want[i]));
            if (m * n * k > 1000000 && level == 0)
                break; /* slow there */
        }
    free(want);
    free(got);
}

/* ---- shapes --------------------------------------------------------------------------- */

static void check_shape(test_random *random, int64_t m, int64_t n, int64_t k)
{
    test_place place = test_random_below(random, 2) ? TEST_AT_START : TEST_AT_END;
    operand left = make_operand(random, OG_FLOAT32, m, k, k, 1, place);
    operand right = make_operand(random, OG_FLOAT32, n, k, k, 1, place);
    check_f32(&left.factor, &right.factor, m, n, k, "shape");
    test_guard_free(&left.guard);
    test_guard_free(&right.guard);
}

static void test_small_shapes(void **state)
{
    (void)state;
    test_random random = test_random_named("small shapes");
    static const int64_t sizes[] = {0, 1, 2, 3, 5, 7, 8, 13, 16, 17};
    for (size_t a = 0; a < TEST_COUNT(sizes); a++)
        for (size_t b = 0; b < TEST_COUNT(sizes); b++)
            for (size_t c = 0; c < TEST_COUNT(sizes); c++)
                check_shape(&random, sizes[a], sizes[b], sizes[c]);
}

/* Around the edges of panels, slivers, tiles, blocks and groups. */
static void test_edges(void **state)
{
    (void)state;
    test_random random = test_random_named("edges");
    static const int64_t shapes[][3] = {
        {14, 32, 256}, {15, 33, 257},  {13, 31, 255},  {28, 64, 512},  {29, 65, 513},
        {12, 16, 300}, {6, 127, 256},  {7, 129, 250},  {56, 256, 40},  {57, 257, 41},
        {33, 300, 70}, {1, 70, 4096},  {2, 65, 4097},  {3, 17, 4095},  {4, 64, 8192},
        {5, 33, 8193}, {8, 31, 9000},  {9, 64, 8191},  {17, 20, 8449}, {16, 40, 4352},
        {513, 5, 20},  {511, 65, 17},  {1100, 3, 9},   {37, 600, 19},  {101, 103, 107},
        {1, 1, 20000}, {14, 1, 12345}, {97, 67, 4099},
    };
    for (size_t i = 0; i < TEST_COUNT(shapes); i++)
        check_shape(&random, shapes[i][0], shapes[i][1], shapes[i][2]);
}

static void test_random_shapes(void **state)
{
    (void)state;
    test_random random = test_random_named("random shapes");
    for (int i = 0; i < test_rounds(60, 2000); i++) {
        int64_t m = 1 + test_random_below(&random, 70), n = 1 + test_random_below(&random, 150);
        int64_t k = test_random_below(&random, 1 + 400000 / (m * n));
        check_shape(&random, m, n, min_of(k, 9000));
    }
}

/* ---- strides and dtypes ---------------------------------------------------------------- */

/* The strides of one operand, of any kind. */
static void choose_strides(test_random *random, int64_t rows, int64_t k, int64_t *stride,
                           int64_t *k_stride)
{
    int64_t gap = 1 + test_random_below(random, 3);
    switch (test_random_below(random, 7)) {
    case 0:
        *stride = k, *k_stride = 1;
        break;
    case 1: /* transposed */
        *stride = 1, *k_stride = rows;
        break;
    case 2: /* a slice of a wider one */
        *stride = k + gap, *k_stride = 1;
        break;
    case 3: /* every gap-th element */
        *stride = k * gap + 1, *k_stride = gap;
        break;
    case 4: /* one row for all, or one element for all k */
        *stride = gap > 1 ? 0 : 1, *k_stride = gap > 1 ? 1 : 0;
        break;
    case 5: /* backwards */
        *stride = -k, *k_stride = gap > 1 ? -1 : 1;
        break;
    default:
        *stride = -1, *k_stride = rows + gap;
        break;
    }
}

static void test_strides_and_dtypes(void **state)
{
    (void)state;
    test_random random = test_random_named("strides");
    static const og_dtype dtypes[] = {OG_FLOAT32, OG_FLOAT16, OG_BFLOAT16};
    static const int64_t shapes[][3] = {{1, 33, 300}, {2, 65, 130},  {4, 16, 520}, {7, 70, 90},
                                        {8, 64, 256}, {14, 32, 270}, {30, 97, 60}, {65, 40, 257},
                                        {3, 5, 4500}, {20, 64, 33}};
    for (int i = 0; i < test_rounds(250, 5000); i++) {
        const int64_t *shape = shapes[(size_t)i % TEST_COUNT(shapes)];
        og_dtype left_dtype = dtypes[test_random_below(&random, 3)];
        og_dtype right_dtype = dtypes[test_random_below(&random, 3)];
        int64_t stride[2], k_stride[2];
        choose_strides(&random, shape[0], shape[2], &stride[0], &k_stride[0]);
        choose_strides(&random, shape[1], shape[2], &stride[1], &k_stride[1]);
        test_place place = i % 2 ? TEST_AT_START : TEST_AT_END;
        operand left =
            make_operand(&random, left_dtype, shape[0], shape[2], stride[0], k_stride[0], place);
        operand right =
            make_operand(&random, right_dtype, shape[1], shape[2], stride[1], k_stride[1], place);
        char what[160];
        snprintf(what, sizeof what,
                 "dtypes %d %d, strides (%" PRId64 ", %" PRId64 ") (%" PRId64 ", %" PRId64 ")",
                 (int)left_dtype, (int)right_dtype, stride[0], k_stride[0], stride[1], k_stride[1]);
        check_f32(&left.factor, &right.factor, shape[0], shape[1], shape[2], what);
        test_guard_free(&left.guard);
        test_guard_free(&right.guard);
    }
}

/* Many dot products, of any strides and dtypes. */
static void test_dots(void **state)
{
    (void)state;
    test_random random = test_random_named("dots");
    static const og_dtype dtypes[] = {OG_FLOAT32, OG_FLOAT16, OG_BFLOAT16};
    for (int i = 0; i < test_rounds(100, 2000); i++) {
        int64_t n = 1 + test_random_below(&random, i % 3 ? 40 : 300), s[4];
        int64_t k =
            i % 10 ? test_random_below(&random, 300) : 4096 + test_random_below(&random, 999);
        choose_strides(&random, n, k, &s[0], &s[1]);
        choose_strides(&random, n, k, &s[2], &s[3]);
        operand left = make_operand(&random, dtypes[i % 3], n, k, s[0], s[1], TEST_AT_END);
        operand right = make_operand(&random, dtypes[i / 3 % 3], n, k, s[2], s[3], TEST_AT_START);
        float *got = malloc((size_t)n * sizeof *got);
        assert_non_null(got);
        for (size_t level = 0; find_level(level); level++) {
            multiply(find_level(level), &left.factor, &right.factor, -1, n, k, 1 + i % 3,
                     i % 2 ? 0 : SIZE_MAX / 2, got);
            for (int64_t at = 0; at < n; at++) {
                float want = multiply_f32(&left.factor, &right.factor, at, at, k);
                if (test_bits_f32(want) != test_bits_f32(got[at]))
                    fail_msg("%s, %" PRId64 " x %" PRId64 ", strides (%" PRId64 ", %" PRId64
                             ") (%" PRId64 ", %" PRId64 "): number %" PRId64 ": %s, expected %s",
                             ogive_cpu_level_name(level), n, k, s[0], s[1], s[2], s[3], at,
                             test_text_f32(got[at]), test_text_f32(want));
            }
        }
        free(got);
        test_guard_free(&left.guard);
        test_guard_free(&right.guard);
    }
}

/* float64: any order, so within a bound of the exact sum. */
static void test_doubles(void **state)
{
    (void)state;
    test_random random = test_random_named("float64");
    for (int i = 0; i < 60; i++) {
        int64_t m = test_random_below(&random, 40), n = 1 + test_random_below(&random, 100);
        int64_t k = i == 0 ? 9000 : i == 1 ? 0 : test_random_below(&random, 600), s[4];
        choose_strides(&random, m, k, &s[0], &s[1]);
        choose_strides(&random, n, k, &s[2], &s[3]);
        operand left = make_operand(&random, OG_FLOAT64, m, k, s[0], s[1], TEST_AT_END);
        operand right = make_operand(&random, OG_FLOAT64, n, k, s[2], s[3], TEST_AT_END);
        double *got = malloc((size_t)(m * n) * sizeof *got + 1);
        assert_non_null(got);
        for (size_t level = 0; find_level(level); level++) {
            multiply(find_level(level), &left.factor, &right.factor, m, n, k, 2, SIZE_MAX / 2, got);
            for (int64_t at = 0; at < m * n; at++) {
                long double want = 0, size = 0;
                for (int64_t j = 0; j < k; j++) {
                    long double term =
                        (long double)get(&left.factor, at / n, j) * get(&right.factor, at % n, j);
                    want += term;
                    size += term < 0 ? -term : term;
                }
                if (!(fabsl(want - got[at]) <= size * 0x1p-53L * (long double)(k + 1)))
                    fail_msg("%s, element %" PRId64 ": %s, expected %s",
                             ogive_cpu_level_name(level), at, test_text_f64(got[at]),
                             test_text_f64((double)want));
            }
        }
        free(got);
        test_guard_free(&left.guard);
        test_guard_free(&right.guard);
    }
}

/* ---- special values and positions ------------------------------------------------------- */

/* No terms: +0. All terms -0: the sum begins with +0. NaN and infinities arrive. */
static void test_special_values(void **state)
{
    (void)state;
    float x[600], w[600];
    for (size_t level = 0; find_level(level); level++)
        for (int64_t m = 1; m <= 20; m += 19) {
            float out[20];
            og_cpu_factor left = {.data = x, .dtype = OG_FLOAT32, .k_stride = 1}, right = left;
            right.data = w;
            multiply(find_level(level), &left, &right, m, 1, 0, 1, SIZE_MAX / 2, out);
            assert_int_equal(test_bits_f32(out[0]), 0);
            for (int i = 0; i < 600; i++)
                x[i] = -0.0f, w[i] = 1.0f;
            multiply(find_level(level), &left, &right, m, 1, 600, 1, SIZE_MAX / 2, out);
            assert_int_equal(test_bits_f32(out[0]), 0);
            x[299] = INFINITY;
            multiply(find_level(level), &left, &right, m, 1, 600, 1, SIZE_MAX / 2, out);
            assert_true(isinf(out[m - 1]));
            w[299] = 0;
            multiply(find_level(level), &left, &right, m, 1, 600, 1, SIZE_MAX / 2, out);
            assert_true(isnan(out[m - 1]));
            /* An exact product that does not fit, and subnormal sums. */
            x[299] = 0x1p100f, w[299] = 0x1p-100f, x[300] = 0x1p-149f, w[300] = 0.75f;
            multiply(find_level(level), &left, &right, m, 1, 301, 1, SIZE_MAX / 2, out);
            assert_int_equal(test_bits_f32(out[0]),
                             test_bits_f32(multiply_f32(&left, &right, 0, 0, 301)));
        }
}

/* A row gives the same bits alone and anywhere among others. */
static void test_position(void **state)
{
    (void)state;
    test_random random = test_random_named("position");
    enum { M = 75, N = 70, K = 700 };
    operand left = make_operand(&random, OG_FLOAT32, M, K, K, 1, TEST_AT_END);
    operand right = make_operand(&random, OG_FLOAT32, N, K, K, 1, TEST_AT_END);
    float *all = malloc(sizeof(float) * M * N), *some = malloc(sizeof(float) * M * N);
    assert_true(all && some);
    for (size_t level = 0; find_level(level); level++) {
        multiply(find_level(level), &left.factor, &right.factor, M, N, K, 1, SIZE_MAX / 2, all);
        for (int64_t first = 0; first < M; first += 9)
            for (int64_t rows = 1; first + rows <= M; rows = 2 * rows + 1) {
                og_cpu_factor part = left.factor;
                part.data = (const float *)part.data + first * K;
                multiply(find_level(level), &part, &right.factor, rows, N, K, 1, SIZE_MAX / 2,
                         some);
                assert_memory_equal(some, all + first * N, sizeof(float) * (size_t)(rows * N));
            }
    }
    free(all);
    free(some);
    test_guard_free(&left.guard);
    test_guard_free(&right.guard);
}

/* ---- whole formulas ---------------------------------------------------------------------- */

/* What is reduced and never stored needs a tenth of its size at most. */
static void test_workspace(void **state)
{
    (void)state;
    ogive_formula *formula;
    ogive_plan *plan;
    ogive_error error;
    const DLTensor *in[] = {TEST_TENSOR(NULL, test_float32, 128, 4096),
                            TEST_TENSOR(NULL, test_float32, 4096, 4096),
                            TEST_TENSOR(NULL, test_float32, 4096)};
    TEST_OK(
        ogive_formula_create("sum(sigmoid(linear(x, w, b)), dim=1)", OGIVE_TEXT, &formula, &error),
        error);
    for (int32_t threads = 1; threads <= 64; threads++) {
        ogive_options options = {.size = sizeof options, .threads = threads};
        TEST_OK(ogive_plan_create(formula, in, 3, NULL, 0, &options, &plan, &error), error);
        assert_true(ogive_plan_workspace(plan) * 10 <= sizeof(float) * 128 * 4096);
        ogive_plan_release(plan);
    }
    ogive_formula_release(formula);
}

/* Rows of a batch alone, and with others, through a formula that reduces. */
static void test_batch(void **state)
{
    (void)state;
    enum { M = 41, N = 300, K = 90 };
    static float x[M * K], w[N * K], all[M], one[M];
    test_random random = test_random_named("batch");
    for (int i = 0; i < M * K; i++)
        x[i] = (float)test_random_range(&random, -1, 1);
    for (int i = 0; i < N * K; i++)
        w[i] = (float)test_random_range(&random, -1, 1);
    ogive_formula *formula;
    ogive_error error;
    TEST_OK(
        ogive_formula_create("logsumexp(tanh(linear(x, w)), dim=1)", OGIVE_TEXT, &formula, &error),
        error);
    const DLTensor *weights = TEST_TENSOR(w, test_float32, N, K);
    const DLTensor *in[] = {TEST_TENSOR(x, test_float32, M, K), weights};
    const DLTensor *out[] = {TEST_TENSOR(all, test_float32, M)};
    TEST_OK(ogive_run(formula, in, 2, out, 1, NULL, &error), error);
    for (int i = 0; i < M; i++) {
        const DLTensor *row[] = {TEST_TENSOR(x + i * K, test_float32, 1, K), weights};
        const DLTensor *result[] = {TEST_TENSOR(one + i, test_float32, 1)};
        TEST_OK(ogive_run(formula, row, 2, result, 1, NULL, &error), error);
    }
    assert_memory_equal(all, one, sizeof all);
    ogive_formula_release(formula);
}

/* ---- two products in one kernel -------------------------------------------------------- */

/* One result, of a plan that must have one kernel. */
static void run_formula(const char *text, const DLTensor *const *in, size_t count,
                        const DLTensor *out, size_t level, int32_t threads)
{
    ogive_formula *formula;
    ogive_plan *plan;
    ogive_error error;
    ogive_options options = {
        .size = sizeof options, .threads = threads, .cpu_level = ogive_cpu_level_name(level)};
    TEST_OK(ogive_formula_create(text, OGIVE_TEXT, &formula, &error), error);
    TEST_OK(ogive_plan_create(formula, in, count, &out, 1, &options, &plan, &error), error);
    assert_int_equal(ogive_plan_kernel_count(plan), 1);
    size_t bytes = ogive_plan_workspace(plan);
    char *workspace = aligned_alloc(64, bytes / 64 * 64 + 64);
    assert_non_null(workspace);
    memset(workspace, 0xff, bytes); /* NaN: nothing may depend on what is there */
    const void *from[8];
    for (size_t i = 0; i < count; i++)
        from[i] = in[i]->data;
    TEST_OK(ogive_plan_run(plan, from, (void *const[]){out->data}, workspace, NULL, &error), error);
    free(workspace);
    ogive_plan_release(plan);
    ogive_formula_release(formula);
}

/* A formula of x, v, w and b against its tail, a formula of p, q and b, after the
 * reference has made the products p and q. */
static void check_pair(test_random *random, const char *text, const char *tail, int64_t m,
                       int64_t n, int64_t k)
{
    bool reduces = strstr(text, "dim=1") != NULL;
    operand x = make_operand(random, OG_FLOAT32, m, k, k, 1, TEST_AT_END);
    operand v = make_operand(random, OG_FLOAT32, n, k, k, 1, TEST_AT_END);
    operand w = make_operand(random, OG_FLOAT32, n, k, k, 1, TEST_AT_END);
    operand b = make_operand(random, OG_FLOAT32, 1, n, n, 1, TEST_AT_END);
    float *p = make_reference(&x.factor, &v.factor, m, n, k);
    float *q = make_reference(&x.factor, &w.factor, m, n, k);
    int64_t count = reduces ? m : m * n, shape[2] = {m, n};
    float *want = malloc((size_t)count * sizeof *want + 1);
    float *got = malloc((size_t)count * sizeof *got + 1);
    assert_true(want && got);
    test_tensor to[2];
    test_tensor_init(&to[0], want, test_float32, reduces ? 1 : 2, shape, NULL);
    test_tensor_init(&to[1], got, test_float32, reduces ? 1 : 2, shape, NULL);
    const DLTensor *bias = TEST_TENSOR(b.guard.data, test_float32, n);
    const DLTensor *products[] = {TEST_TENSOR(p, test_float32, m, n),
                                  TEST_TENSOR(q, test_float32, m, n), bias};
    const DLTensor *in[] = {TEST_TENSOR(x.guard.data, test_float32, m, k),
                            TEST_TENSOR(v.guard.data, test_float32, n, k),
                            TEST_TENSOR(w.guard.data, test_float32, n, k), bias};
    run_formula(tail, products, 3, &to[0].tensor, 0, 1);
    for (size_t level = 0; find_level(level); level++)
        for (int32_t threads = 1; threads <= 3; threads++) {
            run_formula(text, in, 4, &to[1].tensor, level, threads);
            for (int64_t i = 0; i < count; i++)
                if (!test_same_f32(want[i], got[i]))
                    fail_msg("%s, %s, %" PRId64 " x %" PRId64 " x %" PRId64
                             ", %d threads: element %" PRId64 ": %s, expected %s",
                             text, ogive_cpu_level_name(level), m, n, k, (int)threads, i,
                             test_text_f32(got[i]), test_text_f32(want[i]));
        }
    free(want);
    free(got);
    free(p);
    free(q);
    operand *all[] = {&x, &v, &w, &b};
    for (size_t i = 0; i < TEST_COUNT(all); i++)
        test_guard_free(&all[i]->guard);
}

/* n <= 512: there the sum of a row has the same order with a product and without. */
static void test_pairs(void **state)
{
    (void)state;
    test_random random = test_random_named("pairs");
    static const int64_t shapes[][3] = {{1, 70, 300}, {3, 65, 4097}, {8, 64, 64},   {9, 33, 257},
                                        {40, 300, 9}, {300, 20, 40}, {600, 70, 33}, {2, 1, 5},
                                        {5, 3, 0},    {0, 3, 4}};
    for (size_t i = 0; i < TEST_COUNT(shapes); i++) {
        const int64_t *s = shapes[i];
        check_pair(&random, "silu(linear(x, v)) * (linear(x, w) + b)", "silu(p) * (q + b)", s[0],
                   s[1], s[2]);
        check_pair(&random, "sum(tanh(linear(x, v)) * linear(x, w) - b, dim=1)",
                   "sum(tanh(p) * q - b, dim=1)", s[0], s[1], s[2]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_shapes),  cmocka_unit_test(test_edges),
        cmocka_unit_test(test_random_shapes), cmocka_unit_test(test_strides_and_dtypes),
        cmocka_unit_test(test_doubles),       cmocka_unit_test(test_special_values),
        cmocka_unit_test(test_position),      cmocka_unit_test(test_workspace),
        cmocka_unit_test(test_batch),         cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_dots),
    };
    return TEST_RUN(tests);
}
