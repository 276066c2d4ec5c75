/* SPDX-License-Identifier: MIT
 *
 * test_packed.c - inputs that are packed before the run: the same bits as without, for every
 * dtype, level, layout and number of threads; the same memory for every batch; and clear
 * errors for what cannot be packed and for memory that is not what it should be.
 */
#include "test.h"

#include "math/half.h"

typedef struct {
    ogive_formula *formula;
    ogive_plan *plan;
    void *workspace;
} planned;

static planned make_plan(const char *text, const DLTensor *const *in, size_t count, size_t level,
                         int32_t threads, uint64_t packed)
{
    planned p;
    ogive_error error;
    ogive_options options = {.size = sizeof options,
                             .threads = threads,
                             .cpu_level = ogive_cpu_level_name(level),
                             .packed = packed};
    TEST_OK(ogive_formula_create(text, OGIVE_TEXT, &p.formula, &error), error);
    TEST_OK(ogive_plan_create(p.formula, in, count, NULL, 0, &options, &p.plan, &error), error);
    size_t bytes = ogive_plan_workspace(p.plan);
    p.workspace = aligned_alloc(64, bytes / 64 * 64 + 64);
    assert_non_null(p.workspace);
    memset(p.workspace, 0xff, bytes); /* NaN: nothing may depend on what is there */
    return p;
}

static void free_plan(planned *p)
{
    free(p->workspace);
    ogive_plan_release(p->plan);
    ogive_formula_release(p->formula);
}

static size_t count_bytes(const DLTensor *tensor)
{
    size_t bytes = tensor->dtype.bits / 8;
    for (int d = 0; d < tensor->ndim; d++)
        bytes *= (size_t)tensor->shape[d];
    return bytes;
}

/* A matrix in memory of its own; step elements from one to the next, or transposed. */
typedef struct {
    test_tensor t;
    void *memory;
} matrix;

static void make_matrix(test_random *random, matrix *m, DLDataType dtype, int64_t rows,
                        int64_t columns, int64_t step, bool transposed)
{
    size_t count = (size_t)(rows * columns * step) + 1, bytes = dtype.bits / 8;
    int64_t shape[2] = {rows, columns}, strides[2] = {columns * step, step};
    if (transposed)
        strides[0] = step, strides[1] = rows * step;
    m->memory = malloc(count * bytes);
    assert_non_null(m->memory);
    for (size_t i = 0; i < count; i++) {
        double x = test_random_range(random, -1, 1);
        if (dtype.bits == 64)
            ((double *)m->memory)[i] = x;
        else if (dtype.bits == 32)
            ((float *)m->memory)[i] = (float)x;
        else if (dtype.code == kDLBfloat)
            ((uint16_t *)m->memory)[i] = og_bf16_from_f32((float)x);
        else
            ((uint16_t *)m->memory)[i] = og_f16_from_f32((float)x);
    }
    test_tensor_init(&m->t, m->memory, dtype, 2, shape, strides);
}

/* Input packed at the end of memory that can be read, and only read. */
static test_guard pack(const planned *p, size_t input, const void *data)
{
    ogive_error error;
    size_t bytes = ogive_plan_packed_bytes(p->plan, input);
    assert_true(bytes >= 64 && bytes % 64 == 0);
    test_guard guard = test_guard_alloc(bytes, TEST_AT_END);
    TEST_OK(ogive_plan_pack(p->plan, input, data, guard.data, &error), error);
    test_guard_freeze(&guard);
    return guard;
}

/* ---- the same bits ------------------------------------------------------------- */

typedef struct {
    const char *formula; /* of x, v and perhaps w */
    uint64_t packed;
    bool turned; /* v and w are k x n */
} formula_case;

static const formula_case formulas[] = {
    {"linear(x, v)", 2, false},
    {"x @ v", 2, true},
    {"sum(tanh(linear(x, v)), dim=1)", 2, false},
    {"silu(linear(x, v)) * linear(x, w)", 2, false},
    {"silu(linear(x, v)) * linear(x, w)", 4, false},
    {"silu(x @ v) * (x @ w)", 6, true},
};

/* Rows of a batch that the same packed memory must do for: few, a panel, several, none. */
static const int64_t batches[] = {1, 3, 8, 14, 17, 70, 0};

static void compare(const formula_case *f, const DLTensor *const *in, size_t count, size_t level,
                    int32_t threads, const test_guard *packed)
{
    ogive_error error;
    planned plain = make_plan(f->formula, in, count, level, threads, 0);
    planned with = make_plan(f->formula, in, count, level, threads, f->packed);
    size_t bytes = count_bytes(ogive_plan_result(plain.plan, 0));
    char *want = malloc(bytes + 1), *got = malloc(bytes + 1);
    assert_true(want && got);
    const void *data[3], *ready[3];
    for (size_t i = 0; i < count; i++) {
        data[i] = in[i]->data;
        ready[i] = f->packed >> i & 1 ? packed[i].data : data[i];
        assert_int_equal(ogive_plan_packed_bytes(plain.plan, i), 0);
    }
    TEST_OK(ogive_plan_run(plain.plan, data, (void *[]){want}, plain.workspace, NULL, &error),
            error);
    TEST_OK(ogive_plan_run(with.plan, ready, (void *[]){got}, with.workspace, NULL, &error), error);
    if (memcmp(want, got, bytes) != 0)
        fail_msg("%s, packed %d, %s, %d threads, %d bits: %" PRId64 " x %" PRId64 ", v %" PRId64
                 " x %" PRId64 ": other bits",
                 f->formula, (int)f->packed, ogive_cpu_level_name(level), (int)threads,
                 (int)in[0]->dtype.bits, in[0]->shape[0], in[0]->shape[1], in[1]->shape[0],
                 in[1]->shape[1]);
    free(want);
    free(got);
    free_plan(&plain);
    free_plan(&with);
}

static void check_case(test_random *random, const formula_case *f, DLDataType dtype, int64_t n,
                       int64_t k, size_t level)
{
    bool transposed = test_random_below(random, 2);
    int64_t step = 1 + test_random_below(random, 3) / 2;
    size_t count = f->packed == 2 && !strchr(f->formula, 'w') ? 2 : 3;
    matrix x, weights[2];
    for (int i = 0; i < 2; i++)
        make_matrix(random, &weights[i], dtype, f->turned ? k : n, f->turned ? n : k, step,
                    transposed);
    test_guard packed[3];
    for (size_t b = 0; b < TEST_COUNT(batches); b++) {
        make_matrix(random, &x, dtype, batches[b], k, 1, b == 2);
        const DLTensor *in[] = {&x.t.tensor, &weights[0].t.tensor, &weights[1].t.tensor};
        if (b == 0) {
            planned first = make_plan(f->formula, in, count, level, 1, f->packed);
            for (size_t i = 1; i < count; i++)
                if (f->packed >> i & 1)
                    packed[i] = pack(&first, i, in[i]->data);
            free_plan(&first);
        }
        compare(f, in, count, level, 1 + (int32_t)b % 3, packed);
        if (batches[b] == 0) { /* whose plan knows least of the weights */
            planned last = make_plan(f->formula, in, count, level, 1, f->packed);
            for (size_t i = 1; i < count; i++)
                if (f->packed >> i & 1) {
                    test_guard again = pack(&last, i, in[i]->data);
                    assert_memory_equal(again.data, packed[i].data,
                                        ogive_plan_packed_bytes(last.plan, i));
                    test_guard_free(&again);
                }
            free_plan(&last);
        }
        free(x.memory);
    }
    for (size_t i = 1; i < count; i++)
        if (f->packed >> i & 1)
            test_guard_free(&packed[i]);
    for (int i = 0; i < 2; i++)
        free(weights[i].memory);
}

static void test_same_bits(void **state)
{
    (void)state;
    test_random random = test_random_named("packed");
    static const DLDataType *const dtypes[] = {&test_float32, &test_float16, &test_bfloat16,
                                               &test_float64};
    static const int64_t shapes[][2] = {{64, 256}, {33, 257}, {2, 5},  {300, 70}, {17, 4500},
                                        {7, 8193}, {65, 600}, {10, 0}, {70, 70}};
    for (size_t level = 0; ogive_cpu_level_name(level); level++)
        for (size_t f = 0; f < TEST_COUNT(formulas); f++)
            for (size_t d = 0; d < TEST_COUNT(dtypes); d++)
                for (size_t s = 0; s < TEST_COUNT(shapes); s++)
                    if (test_full() || level || shapes[s][0] * shapes[s][1] < 10000) /* slow */
                        check_case(&random, &formulas[f], *dtypes[d], shapes[s][0], shapes[s][1],
                                   level);
}

/* Kernels that share slabs of rows (cpu_slabs.h), which are 2.6 MB between these. */
static void test_slabs(void **state)
{
    (void)state;
    test_random random = test_random_named("packed slabs");
    const formula_case f = {"linear(tanh(linear(x, v)), w)", 6, false};
    matrix x, v, w;
    make_matrix(&random, &x, test_float32, 2600, 24, 1, false);
    make_matrix(&random, &v, test_float32, 256, 24, 1, false);
    make_matrix(&random, &w, test_float32, 20, 256, 1, true);
    const DLTensor *in[] = {&x.t.tensor, &v.t.tensor, &w.t.tensor};
    for (size_t level = 0; ogive_cpu_level_name(level); level++) {
        planned first = make_plan(f.formula, in, 3, level, 2, f.packed);
        char *text = malloc(ogive_plan_explain(first.plan, NULL, 0) + 1);
        ogive_plan_explain(first.plan, text, ogive_plan_explain(first.plan, NULL, 0) + 1);
        assert_non_null(strstr(text, "slabs"));
        test_guard packed[] = {{0}, pack(&first, 1, v.memory), pack(&first, 2, w.memory)};
        for (int32_t threads = 1; threads <= 3; threads++)
            compare(&f, in, 3, level, threads, packed);
        test_guard_free(&packed[1]);
        test_guard_free(&packed[2]);
        free(text);
        free_plan(&first);
    }
    free(x.memory);
    free(v.memory);
    free(w.memory);
}

/* A batch of several dims, and one row that has lost its own. */
static void test_batches(void **state)
{
    (void)state;
    enum { N = 70, K = 300 };
    test_random random = test_random_named("batches");
    matrix x, w;
    make_matrix(&random, &x, test_float32, 6 * 5, K, 1, false);
    make_matrix(&random, &w, test_float32, N, K, 1, false);
    test_tensor views[3];
    test_tensor_init(&views[0], x.memory, test_float32, 1, (int64_t[]){K}, NULL);
    test_tensor_init(&views[1], x.memory, test_float32, 3, (int64_t[]){6, 5, K}, NULL);
    test_tensor_init(&views[2], x.memory, test_float32, 3, (int64_t[]){5, 4, K},
                     (int64_t[]){K, 5 * K, 1});
    const formula_case f = {"linear(x, v)", 2, false};
    test_guard packed[2];
    for (size_t i = 0; i < TEST_COUNT(views); i++) {
        const DLTensor *in[] = {&views[i].tensor, &w.t.tensor};
        if (i == 0) {
            planned first = make_plan(f.formula, in, 2, 0, 1, f.packed);
            packed[1] = pack(&first, 1, w.memory);
            free_plan(&first);
        }
        compare(&f, in, 2, 0, 2, packed);
    }
    test_guard_free(&packed[1]);
    free(x.memory);
    free(w.memory);
}

/* Sums that are never stored, with so little memory for each of many threads that tiles
 * are small. */
static void test_many_threads(void **state)
{
    (void)state;
    enum { M = 128, N = 4096, K = 40 };
    test_random random = test_random_named("many threads");
    const formula_case f = {"sum(sigmoid(linear(x, v)), dim=1)", 2, false};
    static const DLDataType *const dtypes[] = {&test_float32, &test_bfloat16};
    size_t level = 0;
    while (ogive_cpu_level_name(level + 1))
        level++;
    for (size_t d = 0; d < TEST_COUNT(dtypes); d++) {
        matrix x, w;
        make_matrix(&random, &x, *dtypes[d], M, K, 1, false);
        make_matrix(&random, &w, *dtypes[d], N, K, 1, false);
        const DLTensor *in[] = {&x.t.tensor, &w.t.tensor};
        planned first = make_plan(f.formula, in, 2, level, 1, f.packed);
        test_guard packed[2] = {{0}, pack(&first, 1, w.memory)};
        free_plan(&first);
        for (int32_t threads = 1; threads <= 64; threads += 9) {
            planned p = make_plan(f.formula, in, 2, level, threads, f.packed);
            assert_true(ogive_plan_workspace(p.plan) * 10 <= sizeof(float) * M * N);
            free_plan(&p);
            compare(&f, in, 2, level, threads, packed);
        }
        test_guard_free(&packed[1]);
        free(x.memory);
        free(w.memory);
    }
}

/* ---- errors ---------------------------------------------------------------------- */

static void refuse_plan(const char *text, const DLTensor *const *in, size_t count, uint64_t packed,
                        ogive_status status, const char *part)
{
    ogive_formula *formula;
    ogive_plan *plan;
    ogive_error error;
    ogive_options options = {.size = sizeof options, .packed = packed};
    TEST_OK(ogive_formula_create(text, OGIVE_TEXT, &formula, &error), error);
    TEST_FAILS(ogive_plan_create(formula, in, count, NULL, 0, &options, &plan, &error), status,
               error, part);
    assert_null(plan);
    ogive_formula_release(formula);
}

static void test_refused_inputs(void **state)
{
    (void)state;
    const DLTensor *x = TEST_TENSOR(NULL, test_float32, 8, 8), *w = x;
    const DLTensor *in[] = {x, w, TEST_TENSOR(NULL, test_float32, 8)};
    refuse_plan("linear(x, w)", in, 2, 1, OGIVE_UNSUPPORTED, "'x' cannot be packed: it is not");
    refuse_plan("linear(x, w, b)", in, 3, 4, OGIVE_UNSUPPORTED, "'b' cannot be packed: it is not");
    refuse_plan("linear(x, 2 * w)", in, 2, 2, OGIVE_UNSUPPORTED, "'w' cannot be packed: it is not");
    refuse_plan("linear(x, w) + w", in, 2, 2, OGIVE_UNSUPPORTED, "used more than once");
    refuse_plan("linear(x, x)", in, 1, 1, OGIVE_UNSUPPORTED, "used more than once");
    refuse_plan("linear(x, w)", in, 2, 4, OGIVE_ARGUMENT, "the formula has 2 inputs");
    const DLTensor *batch[] = {TEST_TENSOR(NULL, test_float32, 5, 3, 8),
                               TEST_TENSOR(NULL, test_float32, 5, 8, 4)};
    refuse_plan("x @ w", batch, 2, 2, OGIVE_UNSUPPORTED, "one matrix for all of the batch");
    const DLTensor *narrow[] = {x, TEST_TENSOR(NULL, test_float32, 1, 8)};
    refuse_plan("linear(x, w)", narrow, 2, 2, OGIVE_UNSUPPORTED, "two columns");
    narrow[0] = TEST_TENSOR(NULL, test_float32, 1, 8);
    refuse_plan("linear(x, w)", narrow, 2, 2, OGIVE_UNSUPPORTED, "two columns");
    narrow[1] = TEST_TENSOR(NULL, test_float32, 0, 8);
    refuse_plan("linear(x, w)", narrow, 2, 2, OGIVE_UNSUPPORTED, "two columns");
    DLTensor *gpu = TEST_TENSOR(NULL, test_float32, 8, 8);
    gpu->device.device_type = kDLCUDA;
    refuse_plan("linear(x, w)", (const DLTensor *[]){gpu, gpu}, 2, 2, OGIVE_UNSUPPORTED,
                "for the CPU only");
}

/* A plan with packed weights for the test below, n x k of dtype, and the weights packed. */
static planned make_weights(DLDataType dtype, int64_t n, int64_t k, size_t level, float *w,
                            test_guard *packed)
{
    const DLTensor *in[] = {TEST_TENSOR(NULL, dtype, 4, k), TEST_TENSOR(NULL, dtype, n, k)};
    planned p = make_plan("linear(x, w)", in, 2, level, 1, 2);
    *packed = pack(&p, 1, w);
    return p;
}

static void refuse_run(const planned *p, const void *x, const void *w, void *out, const char *part)
{
    ogive_error error;
    TEST_FAILS(ogive_plan_run(p->plan, (const void *[]){x, w}, (void *[]){out}, p->workspace, NULL,
                              &error),
               OGIVE_ARGUMENT, error, part);
}

static void test_wrong_memory(void **state)
{
    (void)state;
    enum { N = 20, K = 32 };
    static float x[4 * K], out[4 * N];
    static _Alignas(64) float w[2 * N * K];
    test_guard packed, other;
    ogive_error error;
    planned p = make_weights(test_float32, N, K, 0, w, &packed);
    char *memory = packed.data;
    TEST_OK(ogive_plan_run(p.plan, (const void *[]){x, memory}, (void *[]){out}, p.workspace, NULL,
                           &error),
            error);
    refuse_run(&p, x, NULL, out, "'w': expected");
    refuse_run(&p, x, memory - 4, out, "aligned to 64");
    refuse_run(&p, x, w, out, "'w' is not packed");
    refuse_run(&p, x, memory, memory, "overlaps packed input 'w'");
    refuse_run(&p, x, memory, memory + 64 + sizeof w / 2, "overlaps packed input 'w'");
    static const struct {
        const DLDataType *dtype;
        int64_t n, k;
        const char *got;
    } others[] = {{&test_float32, N + 1, K, "got 21 by 32 of float32"},
                  {&test_float32, N, K - 1, "got 20 by 31 of float32"},
                  {&test_float64, N, K, "of float64"},
                  {&test_float16, N, K, "of float16"}};
    for (size_t i = 0; i < TEST_COUNT(others); i++) {
        planned q = make_weights(*others[i].dtype, others[i].n, others[i].k, 0, w, &other);
        refuse_run(&p, x, other.data, out, others[i].got);
        test_guard_free(&other);
        free_plan(&q);
    }
    for (size_t level = 1; ogive_cpu_level_name(level); level++) {
        planned q = make_weights(test_float32, N, K, level, w, &other);
        /* Levels may have the same layout; then the memory is the same too. */
        if (memcmp(other.data, memory, 64) != 0)
            refuse_run(&p, x, other.data, out, "at a time");
        else
            assert_memory_equal(other.data, memory, ogive_plan_packed_bytes(p.plan, 1));
        test_guard_free(&other);
        free_plan(&q);
    }
    TEST_FAILS(ogive_plan_pack(p.plan, 0, x, memory, &error), OGIVE_ARGUMENT, error,
               "input 0 is not packed");
    TEST_FAILS(ogive_plan_pack(p.plan, 9, x, memory, &error), OGIVE_ARGUMENT, error,
               "input 9 is not packed");
    TEST_FAILS(ogive_plan_pack(p.plan, 1, NULL, memory, &error), OGIVE_ARGUMENT, error, "is NULL");
    TEST_FAILS(ogive_plan_pack(p.plan, 1, w, NULL, &error), OGIVE_ARGUMENT, error, "aligned to 64");
    TEST_FAILS(ogive_plan_pack(p.plan, 1, w, w, &error), OGIVE_ARGUMENT, error, "overlaps");
    TEST_FAILS(ogive_plan_pack(NULL, 1, w, memory, &error), OGIVE_ARGUMENT, error, "plan is NULL");
    assert_int_equal(ogive_plan_packed_bytes(NULL, 1), 0);
    ogive_options options = {.size = sizeof options, .packed = 2};
    const DLTensor *in[] = {TEST_TENSOR(x, test_float32, 4, K), TEST_TENSOR(w, test_float32, N, K)};
    const DLTensor *to[] = {TEST_TENSOR(out, test_float32, 4, N)};
    TEST_FAILS(ogive_run(p.formula, in, 2, to, 1, &options, &error), OGIVE_ARGUMENT, error,
               "ogive_plan_run()");
    test_guard_free(&packed);
    free_plan(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),      cmocka_unit_test(test_slabs),
        cmocka_unit_test(test_batches),        cmocka_unit_test(test_many_threads),
        cmocka_unit_test(test_refused_inputs), cmocka_unit_test(test_wrong_memory),
    };
    return TEST_RUN(tests);
}
