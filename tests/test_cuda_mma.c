/* SPDX-License-Identifier: MIT
 *
 * test_cuda_mma.c - products on tensor cores by mma.sync: which products they take, what the
 * launches are given, and, on the fake device as on a real one, results against float64, what
 * is left to CUDA cores with the CPU's bits, and that a row's bits do not depend on the other
 * rows. On the fake device it is the index logic that is tested: its tensor cores round once
 * where real ones truncate.
 *
 * OGIVE_TEST_NVRTC=libnvrtc.so.13 has a real NVRTC compile them instead, without a GPU, and
 * checks that no register is spilt.
 */
#include "cuda_case.h"
#include "cuda_compiled.h"

#include "cuda/emit/cuda_choose.h"
#include "math/half.h"

#include <math.h>

/* ---- the choice ------------------------------------------------------------------------ */

static const og_cuda_limits ampere = {.arch = 80,
                                      .multiprocessors = 108,
                                      .threads_per_multiprocessor = 2048,
                                      .shared_per_block = 163 * 1024,
                                      .shared_per_multiprocessor = 164 * 1024,
                                      .l2_bytes = 40 << 20};

static const og_cuda_product_facts plain = {
    .left = OG_FLOAT32,
    .right = OG_FLOAT32,
    .products = 1,
    .passes = 1,
    .has_columns = true,
    .of = {.batch = 1, .m = 100, .n = 128, .k = 128, .n_rank = 1},
    .own_n = 128,
    .right_k_stride = 7,
    .right_pitch = -3,
    .sum_bytes = 80};

static bool is_taken(const og_cuda_product_facts *facts)
{
    return og_cuda_refuse_mma_sync(facts, &ampere, &(og_cuda_wishes){0}) == NULL;
}

static void test_choice(void **unused)
{
    og_cuda_product_facts f = plain;
    og_cuda_limits other = ampere;
    (void)unused;
    assert_true(is_taken(&f)); /* a batch, any strides, any reductions */
    assert_true(og_cuda_refuse_mma_sync(&f, &ampere, &(og_cuda_wishes){.units = OG_CUDA_MMA}) ==
                NULL);
    assert_non_null(og_cuda_refuse_wgmma(&f, &ampere, &(og_cuda_wishes){.units = OG_CUDA_MMA}));
    assert_non_null(
        og_cuda_refuse_mma_sync(&f, &ampere, &(og_cuda_wishes){.units = OG_CUDA_CORES}));
    assert_non_null(og_cuda_refuse_mma_sync(&f, &ampere, &(og_cuda_wishes){.strict = true}));
    assert_non_null(og_cuda_refuse_mma_sync(
        &f, &ampere, &(og_cuda_wishes){.strict = true, .units = OG_CUDA_MMA}));
    for (int64_t m = 1; m < 1 << 20; m = m * 3 + 1) { /* never by the number of rows */
        f.of.m = m;
        assert_true(is_taken(&f));
    }
    const int32_t archs[] = {80, 86, 89, 90, 100, 103, 110, 120};
    for (size_t i = 0; i < TEST_COUNT(archs); i++) {
        other.arch = archs[i];
        other.shared_per_block = 99 * 1024;
        assert_true(og_cuda_refuse_mma_sync(&plain, &other, &(og_cuda_wishes){0}) == NULL);
    }
    other.arch = 75;
    assert_non_null(og_cuda_refuse_mma_sync(&plain, &other, &(og_cuda_wishes){0}));
#define REFUSED(member, value)                                                                     \
    f = plain;                                                                                     \
    f.member = value;                                                                              \
    assert_true(!is_taken(&f))
    REFUSED(left, OG_FLOAT16);
    REFUSED(right, OG_FLOAT64);
    REFUSED(left, OG_FLOAT64);
    REFUSED(products, 2);
    REFUSED(passes, 2);
    REFUSED(has_columns, false);
    REFUSED(own_n, 127);
    REFUSED(of.k, 127);
    REFUSED(of.k, (int64_t)1 << 31);
#undef REFUSED
    f.of.k = 128;
    f.left = f.right = OG_BFLOAT16;
    assert_true(is_taken(&f));
}

/* ---- the launches ------------------------------------------------------------------------ */

/* linear(x, w) of x (m, k) and w (n, k). */
static void emit_linear(int64_t m, int64_t n, int64_t k, og_dtype dtype,
                        const og_cuda_limits *limits, og_arena *arena, og_cuda_work *work)
{
    emit_product(limits, dtype, m, n, k, (int64_t[]){k, 1}, (int64_t[]){k, 1}, arena, work);
}

static void test_launches(void **unused)
{
    og_arena arena = {0};
    og_cuda_work work;
    og_cuda_limits ada = ampere;
    (void)unused;
    emit_linear(300, 10000, 1030, OG_FLOAT32, &ampere, &arena, &work);
    assert_int_equal(work.launch_count, 3);
    assert_int_equal(work.launches[0].grid[0], 150); /* 128 threads a row of 1088 */
    assert_int_equal(work.launches[0].block[0], 256);
    assert_int_equal(work.launches[1].grid[0], 3 * 79); /* 128 x 128 */
    assert_int_equal(work.launches[1].block[0], 256);
    assert_true(work.scratch_bytes >= (size_t)300 * 1088 * 4);
    assert_non_null(strstr(work.body, "mma.sync"));

    ada.arch = 89;
    ada.shared_per_block = 99 * 1024;
    emit_linear(300, 10000, 1030, OG_FLOAT32, &ada, &arena, &work);
    assert_int_equal(work.launches[1].grid[0], 3 * 157); /* 128 x 64: what fits */
    assert_true(work.launches[1].shared_bytes <= ada.shared_per_block);
    emit_linear(300, 10000, 1030, OG_FLOAT16, &ada, &arena, &work);
    assert_int_equal(work.launch_count, 2); /* nothing to redo */
    assert_int_equal(work.launches[1].grid[0], 3 * 79);
    assert_true(work.launches[1].shared_bytes <= ada.shared_per_block);
    assert_int_equal(work.launches[0].block[0], 288);
    emit_linear(33, 4096, 100000, OG_FLOAT32, &ampere, &arena, &work);
    assert_int_equal(work.launches[0].grid[0], 33);
    assert_int_equal(work.launches[0].block[0], 512);
    emit_linear(33, 1000, 128, OG_FLOAT32, &ampere, &arena, &work);
    assert_int_equal(work.launches[1].grid[0], 16); /* 64 x 64: few tiles */
    emit_linear(5, 100000, 128, OG_FLOAT32, &ampere, &arena, &work);
    assert_int_equal(work.launches[1].grid[0], 782); /* 32 x 128 */
    og_arena_free(&arena);
}

/* ---- results ------------------------------------------------------------------------------- */

/* A product on tensor cores for `text`, x (b, m, k) and w with k or n side by side; against
 * float64, within 2^-20 of sum |x||w|. */
typedef struct {
    int64_t batch, m, n, k;
    og_dtype dtype;
    bool transposed, misaligned;
} shape;

static double value_of(const void *data, og_dtype dtype, int64_t i)
{
    uint16_t half;
    if (dtype == OG_FLOAT32)
        return ((const float *)data)[i];
    memcpy(&half, (const char *)data + 2 * i, 2);
    return dtype == OG_FLOAT16 ? og_f32_from_f16(half) : og_f32_from_bf16(half);
}

static void put_value(void *data, og_dtype dtype, int64_t i, float x)
{
    uint16_t half = dtype == OG_FLOAT16 ? og_f16_from_f32(x) : og_bf16_from_f32(x);
    if (dtype == OG_FLOAT32)
        ((float *)data)[i] = x;
    else
        memcpy((char *)data + 2 * i, &half, 2);
}

/* y = matmul(x, w) in float32; x and w are tensors of s, in memory one element longer. */
static void multiply(const shape *s, int64_t first, int64_t rows, const char *x, const char *w,
                     float *y)
{
    const ogive_options options = {.size = sizeof options};
    const int64_t bytes = (int64_t)og_dtype_bytes(s->dtype), skip = s->misaligned;
    const int64_t shapes[][3] = {
        {s->batch, rows, s->k}, {s->batch, s->k, s->n}, {s->batch, 1, 1}, {s->batch, rows, s->n}};
    const int64_t strides[][3] = {{s->m * s->k, s->k, 1},
                                  {s->n * s->k, s->transposed ? s->n : 1, s->transposed ? 1 : s->k},
                                  {1, 1, 1},
                                  {rows * s->n, s->n, 1}};
    const int64_t counts[] = {s->batch * s->m * s->k + 1, s->batch * s->n * s->k + 1, s->batch,
                              s->batch * rows * s->n};
    float *zeros = calloc((size_t)s->batch, 4);
    const void *host[] = {x, w, zeros, NULL};
    test_tensor at[4];
    DLTensor *tensors[4];
    void *memory[4];
    ogive_error error;
    assert_non_null(zeros);
    for (int t = 0; t < 4; t++) {
        size_t size = (size_t)(counts[t] * (t < 2 ? bytes : 4));
        memory[t] = device_alloc(size);
        if (host[t])
            device_copy(memory[t], host[t], size);
        tensors[t] = test_tensor_init(&at[t], memory[t], dlpack_of(t < 2 ? s->dtype : OG_FLOAT32),
                                      3, shapes[t], strides[t]);
        tensors[t]->byte_offset = (uint64_t)(t == 0   ? (skip + first * s->k) * bytes
                                             : t == 1 ? skip * bytes
                                                      : 0);
        tensors[t]->device = cuda_device;
    }
    /* Zeros in float32: the result is, too, and not rounded. */
    TEST_OK(
        device_run(find_formula("matmul(x, w) + z"), tensors, 3, tensors + 3, 1, &options, &error),
        error);
    device_copy(y, memory[3], (size_t)counts[3] * sizeof(float));
    for (int t = 0; t < 4; t++)
        device_free(memory[t]);
    free(zeros);
}

static double find_error(const shape *s, const char *x, const char *w, const float *y)
{
    double worst = 0;
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t i = 0; i < s->m; i++)
            for (int64_t j = 0; j < s->n; j++) {
                double sum = 0, scale = 0;
                for (int64_t l = 0; l < s->k; l++) {
                    double u = value_of(x, s->dtype, (b * s->m + i) * s->k + l + s->misaligned);
                    double v = value_of(w, s->dtype,
                                        b * s->n * s->k + s->misaligned +
                                            (s->transposed ? l * s->n + j : j * s->k + l));
                    sum += u * v;
                    scale += fabs(u * v);
                }
                double e = fabs(y[(b * s->m + i) * s->n + j] - sum) / scale;
                worst = e > worst || e != e ? e : worst;
            }
    return worst;
}

static void check_shape(const shape *s, test_random *random)
{
    size_t xs = (size_t)(s->batch * s->m * s->k) + 1, ws = (size_t)(s->batch * s->n * s->k) + 1;
    size_t bytes = og_dtype_bytes(s->dtype), ys = (size_t)(s->batch * s->m * s->n);
    char *x = malloc(xs * bytes), *w = malloc(ws * bytes);
    float *y = malloc(ys * 4), *some = malloc(ys * 4);
    bool is_half = s->dtype != OG_FLOAT32;
    assert_true(x && w && y && some);
    for (size_t i = 0; i < xs; i++)
        put_value(x, s->dtype, (int64_t)i,
                  (float)test_random_range(random, -1, 1) *
                      (!is_half && i / (size_t)s->k % 7 == 3 ? 0x1p30f : 1.0f));
    for (size_t i = 0; i < ws; i++)
        put_value(w, s->dtype, (int64_t)i,
                  (float)test_random_range(random, -1, 1) *
                      (!is_half && i % 64 == 9 ? 0x1p12f : 1.0f));
    multiply(s, 0, s->m, x, w, y);
    double worst = device_computes() ? find_error(s, x, w, y) : 0;
    printf("%lld x %lld x %lld x %lld%s%s, %d bytes: %.1e of sum |x||w|\n", (long long)s->batch,
           (long long)s->m, (long long)s->n, (long long)s->k, s->transposed ? ", transposed" : "",
           s->misaligned ? ", misaligned" : "", (int)bytes, worst);
    assert_true(worst <= 0x1p-20); /* see test_cuda_sm90.c */
    int64_t first = s->m / 2, rows = s->m > 40 ? 3 : 1;
    if (first + rows > s->m)
        first = 0;
    multiply(s, first, rows, x, w, some);
    for (int64_t b = 0; b < s->batch && device_computes(); b++)
        assert_true(memcmp(some + b * rows * s->n, y + (b * s->m + first) * s->n,
                           (size_t)(rows * s->n) * 4) == 0);
    free(x);
    free(w);
    free(y);
    free(some);
}

static void test_shapes(void **unused)
{
    static const shape shapes[] = {
        {1, 1, 128, 128, OG_FLOAT32, false, false},   {1, 5, 130, 131, OG_FLOAT32, true, true},
        {1, 70, 200, 196, OG_FLOAT32, false, true},   {1, 131, 129, 128, OG_FLOAT32, true, false},
        {3, 33, 140, 130, OG_FLOAT32, true, false},   {2, 40, 128, 192, OG_FLOAT16, false, false},
        {1, 130, 257, 200, OG_BFLOAT16, true, true},  {1, 3, 300, 333, OG_FLOAT16, true, false},
        {1, 150, 400, 192, OG_FLOAT32, false, false}, {1, 20, 300, 260, OG_FLOAT32, false, false},
        {1, 129, 256, 321, OG_FLOAT32, true, false}};
    test_random random = test_random_named("mma");
    (void)unused;
    setenv("OGIVE_PRODUCT", "mma", 1);
    for (size_t i = 0; i < TEST_COUNT(shapes); i++)
        check_shape(&shapes[i], &random);
    unsetenv("OGIVE_PRODUCT");
}

/* ---- what is left to CUDA cores ------------------------------------------------------------ */

static const struct {
    const char *text;
    case_shape shapes[5];
} tails[] = {
    {"linear(x, w)", {SHAPE(5, 128), SHAPE(128, 128)}},
    {"linear(x, w, b)", {SHAPE(130, 260), SHAPE(200, 260), SHAPE(200)}},
    {"z = linear(x, w, b); z + 2 * sigmoid(z)", {SHAPE(3, 4100), SHAPE(130, 4100), SHAPE(130)}},
    {"linear(x, w) * y + r", {SHAPE(2, 35, 128), SHAPE(150, 128), SHAPE(2, 35, 150), SHAPE(35, 1)}},
    {"matmul(x, w) * y", {SHAPE(3, 35, 130), SHAPE(3, 130, 133), SHAPE(3, 35, 133)}},
    {"sum(sigmoid(linear(x, w, b)), dim=1)", {SHAPE(37, 516), SHAPE(300, 516), SHAPE(300)}},
    {"logsumexp(linear(x, w), dim=1)", {SHAPE(37, 136), SHAPE(129, 136)}},
    {"amax(matmul(x, w), dim=1) + y", {SHAPE(9, 136), SHAPE(136, 200), SHAPE(9)}},
    {"linear(x, w), sum(linear(x, w), dim=1)", {SHAPE(9, 136), SHAPE(200, 136)}},
    {"silu(linear(x, w)) * linear(x, v)", {SHAPE(9, 136), SHAPE(200, 136), SHAPE(200, 136)}},
};

/* x so small that no row of it can be scaled. */
static void shrink_rows(placed *p)
{
    for (int64_t i = 0; i < p->elements; i++)
        put_value(p->memory, p->dtype, i,
                  (float)value_of(p->memory, p->dtype, i) * (i % 3 ? 0x1p-140f : 0x1p-110f));
}

/* w below what a scale reaches, most of it subnormal. */
static void shrink(placed *p)
{
    for (int64_t i = 0; i < p->elements; i++)
        put_value(p->memory, p->dtype, i,
                  (float)value_of(p->memory, p->dtype, i) * (i % 7 ? 0x1p-140f : 0x1p-120f));
}

/* All of it is og_redo's, and has the CPU's bits: first for x, then for w. */
static void test_redo(void **unused)
{
    test_random random = test_random_named("redo by mma");
    (void)unused;
    case_share = 2;
    setenv("OGIVE_PRODUCT", "mma", 1);
    case_options.precision = OGIVE_FLOAT32;
    for (size_t i = 0; i < 2 * TEST_COUNT(tails); i++) {
        const char *text = tails[i / 2].text;
        formula_case c = {.text = text, .formula = find_formula(text)};
        c.input_count = ogive_formula_input_count(c.formula);
        for (size_t t = 0; t < c.input_count; t++) {
            placed *p = &c.inputs[t];
            *p = (placed){.dtype = OG_FLOAT32,
                          .layout = t == 1 ? i / 2 % 2 ? TRANSPOSED : MISALIGNED : CONTIGUOUS,
                          .rank = tails[i / 2].shapes[t].rank};
            memcpy(p->shape, tails[i / 2].shapes[t].shape, sizeof p->shape);
            place(p, &random, true);
            fill(p, &random, ORDINARY);
            if (t == 0 && i % 2 == 0)
                shrink_rows(p);
            if (i % 2 && memcmp(p->shape, c.inputs[1].shape, sizeof p->shape) == 0)
                shrink(p); /* w; v, too */
        }
        run_placed(&c, CONTIGUOUS, &random);
    }
    case_options.precision = OGIVE_STRICT;
    unsetenv("OGIVE_PRODUCT");
    end_cases("redo by mma");
}

/* ---- a real compiler ------------------------------------------------------------------------ */

static void test_compile(void **unused)
{
    static const char *const archs[] = {"80", "90a", "100"};
    const case_shape large[] = {SHAPE(70000, 128), SHAPE(32768, 128), SHAPE(32768)};
    (void)unused;
    setenv("OGIVE_PRODUCT", "mma", 1);
    for (size_t a = 0; a < TEST_COUNT(archs); a++) {
        for (size_t i = 0; i < TEST_COUNT(tails); i++)
            if (test_takes(i, a) && test_has_turn(i, a / 2, 2))
                compile_unspilt(tails[i].text, tails[i].shapes, OG_FLOAT32, archs[a],
                                "og_multiply_mma");
        /* 64-bit indices, functions that take many registers. */
        compile_unspilt("z = linear(x, w, b); gelu(z) + tanh(z) * mish(z)", large, OG_FLOAT32,
                        archs[a], "og_multiply_mma");
        compile_unspilt("sum(gelu(linear(x, w, b)), dim=1)", large, OG_FLOAT16, archs[a],
                        "og_multiply_mma");
        compile_unspilt("linear(x, w, b)", large, OG_BFLOAT16, archs[a], "og_multiply_mma");
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_launches),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_redo),
    };
    const struct CMUnitTest compiled[] = {cmocka_unit_test(test_compile)};
    if (only_compiles())
        return cmocka_run_group_tests(compiled, NULL, NULL);
    setenv("OGIVE_SHIM_MULTIPROCESSORS", "3", 1); /* small shapes get wide tiles, too */
    return CASE_RUN(tests);
}
