/* SPDX-License-Identifier: MIT
 *
 * test_cuda_two.c - two products of halves that have the same x, in one kernel of Hopper's
 * tensor cores: the bits of one product after the other, exact sums have the CPU's. On the fake
 * device cuda/shim_hopper.h multiplies; CTest runs this again with one multiprocessor, whose block
 * then has all tiles.
 *
 * OGIVE_TEST_NVRTC=libnvrtc.so.13 has a real NVRTC compile them instead, without a GPU, and checks
 * that no register is spilt.
 */
#include "cuda_case.h"
#include "cuda_limits.h"
#include "cuda_compiled.h"
#include "plan_case.h"

#include "cuda/emit/cuda_choose.h"
#include "cuda/emit/cuda_half_tile.h"

static const og_dtype dtypes[] = {OG_BFLOAT16, OG_FLOAT16};

/* ---- the choice ---------------------------------------------------------------------------- */

static bool takes(const og_cuda_limits *limits, const char *formula, const char *shapes)
{
    og_graph graph;
    og_plan plan;
    make_plan_by((og_plan_rules){.sharing = OG_SHARE_ALIKE}, formula, shapes, &graph, &plan);
    assert_int_equal(plan.kernel_count, 1);
    assert_int_equal(plan.kernels[0].product_count, 2);
    bool taken = og_cuda_takes_two(&plan.kernels[0], limits, &(og_cuda_wishes){0});
    og_plan_free(&plan);
    og_graph_free(&graph);
    return taken;
}

static void test_choice(void **unused)
{
    static const char gated[] = "silu(linear(x, w)) * linear(x, v)";
    og_cuda_limits other = hopper;
    (void)unused;
    assert_true(takes(&hopper, gated, "4x16b 16x16b 16x16b"));
    assert_true(takes(&hopper, gated, "1x4096h 11008x4096h 11008x4096h"));
    assert_true(takes(&hopper, gated, "4x64tb 24x64tb 24x64tb"));
    assert_true(takes(&hopper, "sum((x @ w) * (x @ v), -1)", "3x4x64h 3x64x24h 3x64x24h"));
    assert_false(takes(&hopper, gated, "4x16b 15x16b 15x16b"));
    assert_false(takes(&hopper, gated, "4x15b 16x15b 16x15b"));
    assert_false(takes(&hopper, gated, "4x64b 24x64b 24x64tb")); /* not alike */
    assert_false(takes(&hopper, gated, "4x64b 24x64b 24x64sb"));
    assert_false(takes(&hopper, "(x @ w) * (x @ v)", "4x64b 64b 64b"));
    other.arch = 80;
    assert_false(takes(&other, gated, "4x64b 24x64b 24x64b"));
    other.arch = 100;
    assert_false(takes(&other, gated, "4x64b 24x64b 24x64b"));
}

/* Kernels of a formula of x (4, 64), w and v (24, 64) of dtype, planned for arch. */
static size_t count_kernels(const char *text, og_dtype dtype, const char *arch, bool strict)
{
    const ogive_options options = {.size = sizeof options,
                                   .cuda_arch = arch,
                                   .precision = strict ? OGIVE_STRICT : OGIVE_FLOAT32};
    const int64_t shapes[][2] = {{4, 64}, {24, 64}, {24, 64}};
    const DLTensor *inputs[3];
    test_tensor at[3];
    ogive_plan *plan;
    ogive_error error;
    for (int t = 0; t < 3; t++) {
        DLTensor *tensor = test_tensor_init(&at[t], NULL, dlpack_of(dtype), 2, shapes[t], NULL);
        tensor->device = cuda_device;
        inputs[t] = tensor;
    }
    TEST_OK(ogive_plan_create(find_formula(text), inputs, 3, NULL, 0, &options, &plan, &error),
            error);
    size_t count = 0;
    while (ogive_plan_source(plan, count, NULL, 0))
        count++;
    ogive_plan_release(plan);
    return count;
}

static void test_kernels(void **unused)
{
    static const char gated[] = "silu(linear(x, w)) * linear(x, v)";
    (void)unused;
    assert_int_equal(count_kernels(gated, OG_BFLOAT16, "90a", false), 1);
    assert_int_equal(count_kernels(gated, OG_BFLOAT16, "90a", true), 1);
    assert_int_equal(count_kernels(gated, OG_BFLOAT16, "80", false), 2);
    assert_int_equal(count_kernels(gated, OG_FLOAT32, "90a", false), 2);
    assert_int_equal(count_kernels(gated, OG_FLOAT32, "90a", true), 1);
}

/* What was fastest on an H200. */
static void test_tiles(void **unused)
{
    static const struct {
        int64_t m, n;
        og_cuda_half_tile tile;
    } best[] = {
        {1, 11008, {1, 256, false, false, false}},   {16, 11008, {1, 256, false, false, false}},
        {128, 11008, {2, 256, false, false, false}}, {256, 11008, {2, 128, false, false, true}},
        {512, 11008, {2, 256, false, false, false}}, {1024, 11008, {2, 128, false, false, true}},
        {2048, 11008, {2, 128, false, false, true}}, {4096, 14336, {2, 128, false, false, true}},
    };
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(best); i++) {
        const og_cuda_half_shape shape = {.of = {.batch = 1, .m = best[i].m, .n = best[i].n},
                                          .products = 2};
        og_cuda_half_tile tile = og_cuda_choose_half_tile(&shape, hopper.multiprocessors);
        assert_int_equal(tile.groups, best[i].tile.groups);
        assert_int_equal(tile.width, best[i].tile.width);
        assert_int_equal(tile.alternates, best[i].tile.alternates);
        assert_true(!tile.shares_w && !tile.shares_x);
    }
}

/* ---- the launches ---------------------------------------------------------------------------- */

static const og_cuda_launch *find_launch(const og_cuda_work *work, const char *entry)
{
    for (int32_t l = 0; l < work->launch_count; l++)
        if (strcmp(work->launches[l].entry, entry) == 0)
            return &work->launches[l];
    return NULL;
}

static void emit_pair(const char *shapes, og_arena *arena, og_cuda_work *work)
{
    og_graph graph;
    og_plan plan;
    ogive_error error;
    make_plan_by((og_plan_rules){.sharing = OG_SHARE_ALIKE}, "silu(linear(x, w)) * linear(x, v)",
                 shapes, &graph, &plan);
    TEST_OK(og_cuda_emit(&plan, 0, &hopper, &(og_cuda_wishes){0}, arena, work, &error), error);
    og_plan_free(&plan);
    og_graph_free(&graph);
}

static void test_launches(void **unused)
{
    og_arena arena = {0};
    og_cuda_work work;
    (void)unused;
    emit_pair("16x4096b 11008x4096b 11008x4096b", &arena, &work);
    const og_cuda_launch *tensor = find_launch(&work, "og_multiply_halves");
    assert_int_equal(tensor->map_count, 3);
    assert_true(tensor->shared_bytes <= hopper.shared_per_block);
    assert_int_equal(tensor->when, OG_CUDA_IF_MAPPED);
    assert_int_equal(find_launch(&work, "og_redo")->when, OG_CUDA_IF_UNMAPPED);
    assert_int_equal(find_launch(&work, "og_redo")->map_count, 3);
    assert_null(find_launch(&work, "og_copy_w"));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tensor->maps[i].buffer, i);
        assert_int_equal(tensor->maps[i].rows, i ? 11008 : 16);
        assert_int_equal(tensor->maps[i].columns, 4096);
        assert_int_equal(tensor->maps[i].may_copy, i == 0);
    }
    assert_int_equal(tensor->maps[1].box_rows, tensor->maps[2].box_rows);
    /* Each copied to a place of its own. */
    emit_pair("16x100b 200x100b 200x100b", &arena, &work);
    tensor = find_launch(&work, "og_multiply_halves");
    assert_int_equal(find_launch(&work, "og_copy_v")->grid[0], 200);
    assert_int_equal(tensor->maps[1].offset, tensor->maps[0].offset + 16 * 208);
    assert_int_equal(tensor->maps[2].offset, (tensor->maps[1].offset + 200 * 208 + 63) / 64 * 64);
    assert_true(work.scratch_bytes >= (size_t)tensor->maps[2].offset + 200 * 208);
    og_arena_free(&arena);
}

/* ---- exact sums -------------------------------------------------------------------------- */

static const struct {
    const char *text;
    case_shape shapes[5];
    case_layout layouts[4];
} exact[] = {
    {"silu(linear(x, w)) * linear(x, v)",
     {SHAPE(130, 260), SHAPE(200, 260), SHAPE(200, 260)},
     {CONTIGUOUS, CONTIGUOUS, CONTIGUOUS}},
    {"silu(linear(x, w)) * linear(x, v)", /* x copied; rows that are no quads */
     {SHAPE(70, 264), SHAPE(131, 264), SHAPE(131, 264)},
     {MISALIGNED, CONTIGUOUS, CONTIGUOUS}},
    {"silu(linear(x, w)) * linear(x, v)", /* w and v copied */
     {SHAPE(9, 72), SHAPE(66, 72), SHAPE(66, 72)},
     {TRANSPOSED, PADDED, PADDED}},
    {"silu(linear(x, w)) * linear(x, v)", /* in the strict order: w, then v is unaligned */
     {SHAPE(133, 264), SHAPE(136, 264), SHAPE(136, 264)},
     {CONTIGUOUS, MISALIGNED, CONTIGUOUS}},
    {"sum(silu(linear(x, w)) * linear(x, v), dim=1)",
     {SHAPE(37, 100), SHAPE(130, 100), SHAPE(130, 100)},
     {CONTIGUOUS, CONTIGUOUS, MISALIGNED}},
    {"silu(linear(x, w)) * linear(x, v)", /* two kernels */
     {SHAPE(9, 72), SHAPE(66, 72), SHAPE(66, 72)},
     {CONTIGUOUS, CONTIGUOUS, TRANSPOSED}},
    {"(x @ w) * sigmoid(x @ v) + y",
     {SHAPE(69, 136), SHAPE(136, 130), SHAPE(136, 130), SHAPE(69, 130)},
     {CONTIGUOUS, CONTIGUOUS, CONTIGUOUS, STRIDED}},
    {"(x @ w) * sigmoid(x @ v)",
     {SHAPE(3, 70, 101), SHAPE(3, 101, 77), SHAPE(3, 101, 77)},
     {CONTIGUOUS, CONTIGUOUS, CONTIGUOUS}},
    {"sum(silu(linear(x, w, b)) * linear(x, v), dim=1)",
     {SHAPE(137, 72), SHAPE(300, 72), SHAPE(300), SHAPE(300, 72)},
     {CONTIGUOUS, CONTIGUOUS, CONTIGUOUS, CONTIGUOUS}},
    {"linear(x, w) * linear(x, v)", /* a long k */
     {SHAPE(70, 8264), SHAPE(72, 8264), SHAPE(72, 8264)},
     {CONTIGUOUS, CONTIGUOUS, CONTIGUOUS}},
    {"linear(x, w) * linear(x, v) + b", /* results written during the next tile */
     {SHAPE(330, 72), SHAPE(260, 72), SHAPE(260, 72), SHAPE(260)},
     {CONTIGUOUS, CONTIGUOUS, CONTIGUOUS, CONTIGUOUS}},
    {"linear(x, w) * linear(y, v)", /* two kernels */
     {SHAPE(9, 72), SHAPE(66, 72), SHAPE(9, 72), SHAPE(66, 72)},
     {CONTIGUOUS, CONTIGUOUS, CONTIGUOUS, CONTIGUOUS}},
};

static void test_exact(void **unused)
{
    test_random random = test_random_named("exact");
    (void)unused;
    case_share = 2;
    case_options.precision = OGIVE_FLOAT32;
    for (size_t i = 0; i < TEST_COUNT(exact) * TEST_COUNT(dtypes); i++) {
        size_t which = i / TEST_COUNT(dtypes);
        formula_case c = {.text = exact[which].text, .formula = find_formula(exact[which].text)};
        c.input_count = ogive_formula_input_count(c.formula);
        for (size_t t = 0; t < c.input_count; t++)
            place_exact(&c.inputs[t], dtypes[i % TEST_COUNT(dtypes)], exact[which].layouts[t],
                        &exact[which].shapes[t], &random);
        run_placed(&c, i % 3 == 2 ? TRANSPOSED : CONTIGUOUS, &random);
    }
    case_options.precision = OGIVE_STRICT;
    end_cases("exact");
}

/* ---- one after the other ------------------------------------------------------------------- */

/* The formula's result of tensors in device memory, which is the caller's. */
static void *run_on_device(const char *text, DLTensor **inputs, size_t count, og_dtype dtype,
                           int rank, const int64_t *shape)
{
    const ogive_options options = {.size = sizeof options};
    size_t elements = 1;
    for (int d = 0; d < rank; d++)
        elements *= (size_t)shape[d];
    void *memory = device_alloc(elements * og_dtype_bytes(dtype));
    test_tensor at;
    DLTensor *out = test_tensor_init(&at, memory, dlpack_of(dtype), rank, shape, NULL);
    ogive_error error;
    out->device = cuda_device;
    TEST_OK(device_run(find_formula(text), inputs, count, &out, 1, &options, &error), error);
    return memory;
}

static const struct {
    const char *both, *tail; /* of the first one's sums z, x and v */
    bool reduces;
    int64_t m, n, k;
} pairs[] = {
    {"silu(linear(x, w)) * linear(x, v)", "silu(z) * linear(x, v)", false, 133, 196, 584},
    {"sum(silu(linear(x, w)) * linear(x, v), dim=1)", "sum(silu(z) * linear(x, v), dim=1)", true,
     70, 130, 328},
    {"linear(x, w) - linear(x, v)", "z - linear(x, v)", false, 65, 80, 8264},
};

/* A factor (rows, k) of random numbers in device memory. */
static DLTensor *make_factor(test_tensor *at, og_dtype dtype, const int64_t *shape,
                             test_random *random)
{
    size_t count = (size_t)(shape[0] * shape[1]);
    uint16_t *host = malloc(count * sizeof *host);
    assert_true(host != NULL);
    for (size_t i = 0; i < count; i++)
        reference_store(host, dtype, (int64_t)i, test_random_range(random, -1, 1));
    void *memory = device_alloc(count * sizeof *host);
    device_copy(memory, host, count * sizeof *host);
    free(host);
    DLTensor *tensor = test_tensor_init(at, memory, dlpack_of(dtype), 2, shape, NULL);
    tensor->device = cuda_device;
    return tensor;
}

static void check_pair(size_t which, og_dtype dtype, test_random *random)
{
    const int64_t m = pairs[which].m, n = pairs[which].n, k = pairs[which].k;
    const int64_t x_shape[] = {m, k}, w_shape[] = {n, k}, shape[] = {m, n};
    const int rank = pairs[which].reduces ? 1 : 2;
    const size_t bytes = (size_t)(rank == 1 ? m : m * n) * 2;
    char tail[80], *bits[2] = {malloc(bytes), malloc(bytes)};
    assert_true(bits[0] && bits[1]);
    snprintf(tail, sizeof tail, "%s(%s)", og_dtype_name(dtype), pairs[which].tail);
    test_tensor at[4];
    DLTensor *x = make_factor(&at[0], dtype, x_shape, random);
    DLTensor *w = make_factor(&at[1], dtype, w_shape, random);
    DLTensor *v = make_factor(&at[2], dtype, w_shape, random);
    void *sums =
        run_on_device("float32(linear(x, w))", (DLTensor *[]){x, w}, 2, OG_FLOAT32, 2, shape);
    DLTensor *z = test_tensor_init(&at[3], sums, dlpack_of(OG_FLOAT32), 2, shape, NULL);
    z->device = cuda_device;
    void *got = run_on_device(pairs[which].both, (DLTensor *[]){x, w, v}, 3, dtype, rank, shape);
    void *want = run_on_device(tail, (DLTensor *[]){z, x, v}, 3, dtype, rank, shape);
    device_copy(bits[0], got, bytes);
    device_copy(bits[1], want, bytes);
    if (device_computes() && memcmp(bits[0], bits[1], bytes) != 0)
        fail_msg("%s, %lld x %lld x %lld: not the bits of one after the other", pairs[which].both,
                 (long long)m, (long long)n, (long long)k);
    for (int t = 0; t < 3; t++)
        device_free(((DLTensor *[]){x, w, v})[t]->data);
    device_free(sums);
    device_free(got);
    device_free(want);
    free(bits[0]);
    free(bits[1]);
}

static void test_one_after_the_other(void **unused)
{
    test_random random = test_random_named("one after the other");
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(pairs) * TEST_COUNT(dtypes); i++)
        check_pair(i / TEST_COUNT(dtypes), dtypes[i % TEST_COUNT(dtypes)], &random);
}

/* ---- a real compiler ------------------------------------------------------------------------- */

/* All tiles, 64-bit indices, functions that take many registers, more k than are summed at once. */
static void test_compile(void **unused)
{
    static const struct {
        int64_t m, n, k;
    } products[] = {{16, 11008, 256},
                    {2000, 8192, 250},
                    {512, 11008, 256},
                    {70000, 32768, 64},
                    {4096, 4096, 16384}};
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(products); i++) {
        const int64_t m = products[i].m, n = products[i].n, k = products[i].k;
        const og_dtype dtype = dtypes[i % TEST_COUNT(dtypes)];
        const case_shape gated[] = {SHAPE(m, k), SHAPE(n, k), SHAPE(n, k)};
        const case_shape biased[] = {SHAPE(m, k), SHAPE(n, k), SHAPE(n), SHAPE(n, k), SHAPE(m, n)};
        const case_shape across[] = {SHAPE(m, k), SHAPE(k, n), SHAPE(k, n)};
        if (!test_has_turn(i, 0, 2))
            continue;
        compile_unspilt("silu(linear(x, w)) * linear(x, v)", gated, dtype, "90a", "wgmma");
        compile_unspilt("z = linear(x, w, b); (gelu(z) + tanh(z) * mish(z)) * linear(x, v) + y",
                        biased, dtype, "90a", "wgmma");
        compile_unspilt("logsumexp(gelu(x @ w) * (x @ v), dim=1)", across, dtype, "90a", "wgmma");
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice), cmocka_unit_test(test_kernels),
        cmocka_unit_test(test_tiles),  cmocka_unit_test(test_launches),
        cmocka_unit_test(test_exact),  cmocka_unit_test(test_one_after_the_other),
    };
    const struct CMUnitTest compiled[] = {cmocka_unit_test(test_compile)};
    if (only_compiles())
        return cmocka_run_group_tests(compiled, NULL, NULL);
    return CASE_RUN(tests);
}
