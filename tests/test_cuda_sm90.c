/* SPDX-License-Identifier: MIT
 *
 * test_cuda_sm90.c - products on Hopper's tensor cores: which products they take,
 * what the launches are given, what is left to CUDA cores has the CPU's bits. (What they
 * compute: test_cuda_wgmma.c.)
 *
 * OGIVE_TEST_NVRTC=libnvrtc.so.13 has a real NVRTC compile them instead, without a GPU, and
 * checks that no register is spilt.
 */
#include "cuda_case.h"
#include "cuda_limits.h"
#include "cuda_compiled.h"

#include "cuda/emit/cuda_choose.h"
#include "cuda/emit/cuda_half_tile.h"

/* ---- the choice ------------------------------------------------------------------------ */

static const og_cuda_product_facts plain = {
    .left = OG_FLOAT32,
    .right = OG_FLOAT32,
    .products = 1,
    .passes = 1,
    .has_columns = true,
    .of = {.batch = 1, .m = 100, .n = 128, .k = 128, .n_rank = 1},
    .own_n = 128,
    .right_k_stride = 1,
    .right_pitch = 128,
    .sum_bytes = 8};

static bool is_taken(const og_cuda_product_facts *facts)
{
    return og_cuda_refuse_wgmma(facts, &hopper, &(og_cuda_wishes){0}) == NULL;
}

static void test_choice(void **unused)
{
    og_cuda_product_facts f = plain;
    og_cuda_limits other = hopper;
    (void)unused;
    assert_true(is_taken(&f));
    assert_true(og_cuda_refuse_wgmma(&f, &hopper, &(og_cuda_wishes){.units = OG_CUDA_WGMMA}) ==
                NULL);
    assert_non_null(og_cuda_refuse_wgmma(&f, &hopper, &(og_cuda_wishes){.units = OG_CUDA_CORES}));
    assert_non_null(og_cuda_refuse_wgmma(&f, &hopper, &(og_cuda_wishes){.strict = true}));
    assert_non_null(og_cuda_refuse_wgmma(
        &f, &hopper, &(og_cuda_wishes){.strict = true, .units = OG_CUDA_WGMMA}));
    other.arch = 100;
    assert_non_null(og_cuda_refuse_wgmma(&f, &other, &(og_cuda_wishes){0}));
    for (int64_t m = 1; m < 1 << 20; m = m * 3 + 1) { /* never by the number of rows */
        f.of.m = m;
        assert_true(is_taken(&f));
    }
    for (int32_t dims = 1; dims < 6; dims++) { /* nor by the batch */
        f.of.batch_rank = dims;
        f.of.m = 1;
        f.of.batch = (int64_t)1 << 6 * dims;
        f.right_slab = dims % 2 ? 128 * 128 : -7;
        f.right_last = f.of.batch;
        assert_true(is_taken(&f));
    }
#define REFUSED(member, value)                                                                     \
    f = plain;                                                                                     \
    f.member = value;                                                                              \
    assert_true(!is_taken(&f))
    REFUSED(left, OG_FLOAT16);
    REFUSED(right, OG_FLOAT64);
    other = hopper;
    other.shared_per_block = 163 * 1024;
    assert_non_null(og_cuda_refuse_wgmma(&plain, &other, &(og_cuda_wishes){0}));
    REFUSED(left, OG_FLOAT64);
    REFUSED(products, 2);
    REFUSED(passes, 2);
    REFUSED(has_columns, false);
    REFUSED(own_n, 127); /* though n, of several products, may be more */
    REFUSED(of.k, 63);
    REFUSED(sum_bytes, 12);
    REFUSED(of.m, (int64_t)1 << 31);
#undef REFUSED
    f.of.m = f.of.n = f.of.k = 1 << 23;
    assert_true(is_taken(&f));
    f.of.m = f.of.n = f.of.k = 1 << 30; /* indices would overflow */
    assert_true(!is_taken(&f));
}

static void test_fetch(void **unused)
{
    og_cuda_product_facts f = plain;
    (void)unused;
    assert_int_equal(og_cuda_fetch_right(&f), OG_CUDA_ALONG);
#define FETCHED(as, pitch, k_stride)                                                               \
    f.right_pitch = pitch;                                                                         \
    f.right_k_stride = k_stride;                                                                   \
    assert_int_equal(og_cuda_fetch_right(&f), as)
    FETCHED(OG_CUDA_ALONG, 132, 1);
    FETCHED(OG_CUDA_TURNED, 130, 1);
    FETCHED(OG_CUDA_TURNED, -128, 1);
    FETCHED(OG_CUDA_TURNED, 64, 1); /* rows overlap */
    FETCHED(OG_CUDA_TURNED, (int64_t)1 << 31, 1);
    FETCHED(OG_CUDA_TURNED, 256, 2);
    FETCHED(OG_CUDA_ACROSS, 1, 128); /* x @ w */
    FETCHED(OG_CUDA_TURNED, 1, 129);
    FETCHED(OG_CUDA_TURNED, 1, 0);
    f.of.batch = 3;
    f.of.batch_rank = 1;
    f.right_slab = 128 * 128;
    FETCHED(OG_CUDA_ACROSS, 1, 128);
    FETCHED(OG_CUDA_ALONG, 128, 1);
    f.right_slab = 128 * 128 + 1;
    FETCHED(OG_CUDA_TURNED, 1, 128);
    assert_true(is_taken(&f));
    f.of.batch_rank = 2;
    f.right_slab = 64; /* heads */
    f.right_last = 1000000;
    FETCHED(OG_CUDA_ACROSS, 1, 128);
    FETCHED(OG_CUDA_ALONG, 128, 1);
    f.right_last = INT32_MAX; /* a coordinate of TMA */
    FETCHED(OG_CUDA_TURNED, 128, 1);
    f.right_last = 5;
    f.right_slab = 2;
    FETCHED(OG_CUDA_TURNED, 128, 1);
    f.right_slab = -64;
    FETCHED(OG_CUDA_TURNED, 128, 1);
    assert_true(is_taken(&f));
#undef FETCHED
}

/* One row times a batch whose columns follow each other is planned as one product of all of them;
 * two rows are not. Both must be computed alike. */
static void test_own_columns(void **unused)
{
    const ogive_options options = {.size = sizeof options, .cuda_arch = "90a"};
    ogive_formula *formula = find_formula("x @ transpose(w, 1, 2)");
    (void)unused;
    for (int i = 0; i < 4; i++) {
        const int64_t n = i < 2 ? 127 : 128;
        const int64_t shapes[][3] = {{i % 2 + 1, 128}, {4, n, 128}};
        const DLTensor *inputs[2];
        test_tensor at[2];
        ogive_plan *plan;
        ogive_error error;
        for (int t = 0; t < 2; t++) {
            DLTensor *tensor =
                test_tensor_init(&at[t], NULL, dlpack_of(OG_FLOAT32), 2 + t, shapes[t], NULL);
            tensor->device = cuda_device;
            inputs[t] = tensor;
        }
        TEST_OK(ogive_plan_create(formula, inputs, 2, NULL, 0, &options, &plan, &error), error);
        size_t length = ogive_plan_source(plan, 0, NULL, 0);
        char *source = malloc(length + 1);
        assert_non_null(source);
        ogive_plan_source(plan, 0, source, length + 1);
        assert_true((strstr(source, "wgmma") != NULL) == (n == 128));
        free(source);
        ogive_plan_release(plan);
    }
}

/* Halves are copied where TMA cannot fetch them, so layouts do not matter. */
static void test_choice_of_halves(void **unused)
{
    og_cuda_product_facts f = plain;
    (void)unused;
    f.left = f.right = OG_BFLOAT16;
    f.right_pitch = 133;
    f.right_k_stride = -7;
    f.of.n = f.own_n = f.of.k = 16;
    f.sum_bytes = 40;
    const og_cuda_product_facts half = f;
    assert_true(is_taken(&half));
#define REFUSED(member, value)                                                                     \
    f = half;                                                                                      \
    f.member = value;                                                                              \
    assert_true(!is_taken(&f))
    REFUSED(left, OG_FLOAT16);
    REFUSED(has_columns, false);
    REFUSED(own_n, 15);
    REFUSED(of.k, 15);
    REFUSED(products, 2);
    REFUSED(of.m, (int64_t)1 << 31);
#undef REFUSED
}

static void check_half_tile(const og_cuda_half_shape *shape, const og_cuda_half_tile *best)
{
    og_cuda_half_tile tile = og_cuda_choose_half_tile(shape, hopper.multiprocessors);
    assert_int_equal(tile.groups, best->groups);
    assert_int_equal(tile.width, best->width);
    assert_int_equal(tile.shares_w, best->shares_w);
    assert_int_equal(tile.shares_x, best->shares_x);
    assert_int_equal(tile.alternates, best->alternates);
}

/* What was fastest on an H200, and what the kernel can do at all. */
static void test_half_tiles(void **unused)
{
    static const struct {
        int64_t m, n;
        og_cuda_half_tile tile;
    } best[] = {
        {1, 8192, {1, 64, false, false, false}},     {16, 8192, {1, 64, false, false, false}},
        {64, 8192, {1, 64, false, false, false}},    {128, 8192, {2, 64, false, false, false}},
        {256, 8192, {2, 128, false, false, false}},  {512, 8192, {2, 256, false, false, false}},
        {1024, 8192, {2, 256, false, false, false}}, {4096, 4096, {2, 256, true, false, false}},
        {128, 32768, {2, 256, false, true, false}},
    };
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(best); i++)
        check_half_tile(&(og_cuda_half_shape){.of = {.batch = 1, .m = best[i].m, .n = best[i].n},
                                              .products = 1},
                        &best[i].tile);
    check_half_tile(&(og_cuda_half_shape){.of = {.batch = 1, .m = 128, .n = 32768},
                                          .products = 1,
                                          .is_long = true},
                    &(og_cuda_half_tile){2, 128, false, true, false});
    check_half_tile(&(og_cuda_half_shape){.of = {.batch = 1, .m = 4096, .n = 4096},
                                          .products = 1,
                                          .is_long = true},
                    &(og_cuda_half_tile){2, 128, true, false, false});
    for (int64_t m = 1; m < 1 << 20; m = m * 3 + 1)
        for (int64_t n = 1; n < 1 << 20; n = n * 5 + 2) {
            const int32_t products = (int32_t)(m % 2 + 1);
            og_cuda_half_tile tile = og_cuda_choose_half_tile(
                &(og_cuda_half_shape){
                    {.batch = m % 3 + 1, .m = m, .n = n}, products, true, true, n % 2},
                hopper.multiprocessors);
            const int32_t columns = tile.width / products;
            assert_true(columns >= 64);
            assert_true(!tile.shares_w || (columns >= 128 && m > 64 * tile.groups));
            assert_true(!tile.shares_x || (tile.groups == 2 && m > 8 && n > columns));
            assert_true(!(tile.shares_w && tile.shares_x));
            assert_true(tile.width <= (n % 2 ? 128 : 256));
        }
}

/* ---- the launches ------------------------------------------------------------------------ */

/* linear(x, w) of x (m, k) and w (n, k) with rows of `pitch`. */
static void emit_linear(int64_t m, int64_t n, int64_t k, int64_t pitch, og_arena *arena,
                        og_cuda_work *work)
{
    emit_product(&hopper, OG_FLOAT32, m, n, k, (int64_t[]){k, 1}, (int64_t[]){pitch, 1}, arena,
                 work);
}

static void test_launches(void **unused)
{
    og_arena arena = {0};
    og_cuda_work work;
    (void)unused;
    emit_linear(300, 1000, 1030, 1032, &arena, &work);
    assert_int_equal(work.launch_count, 3);
    assert_int_equal(work.launches[0].grid[0], 150); /* two rows each */
    const og_cuda_launch *tensor = &work.launches[1];
    assert_int_equal(tensor->grid[0], 5 * 16); /* so few that each 64 x 64 results are a tile */
    assert_int_equal(tensor->block[0], 256);
    assert_true(tensor->shared_bytes <= hopper.shared_per_block);
    assert_int_equal(tensor->map_count, 2);
    assert_int_equal(work.launches[0].map_count, 0);
    assert_true(!work.launches[0].overlaps); /* nothing of ours was before it */
    assert_true(tensor->overlaps && work.launches[2].overlaps);
    assert_int_equal(tensor->argument_bytes % OG_CUDA_MAP_ALIGNMENT, 0);

    const og_cuda_map *w = &tensor->maps[0], *x = &tensor->maps[1];
    assert_int_equal(w->at, 0);
    assert_int_equal(w->buffer, 1);
    assert_int_equal(w->columns, 1030); /* beyond, TMA gives zeros */
    assert_int_equal(w->rows, 1000);
    assert_int_equal(w->pitch_bytes, 4 * 1032);
    assert_int_equal(w->box_columns * 4, 128); /* a row of the swizzle */
    assert_int_equal(w->box_rows, 64);
    assert_int_equal(x->at, OG_CUDA_MAP_BYTES);
    assert_int_equal(x->buffer, OG_CUDA_SCRATCH);
    assert_int_equal(x->columns, 1088); /* k in blocks of 64 */
    assert_int_equal(x->rows, 300);
    assert_int_equal(x->depth, 2); /* hi and lo */
    assert_int_equal(x->pitch_bytes, 2 * 1088);
    assert_int_equal(x->slab_bytes, 300 * 2 * 1088);
    assert_int_equal(x->box_columns * 2, 128);
    assert_int_equal(x->box_rows, 64);
    assert_int_equal(x->box_depth, 2);
    assert_true(work.scratch_bytes >= (size_t)(2 * x->slab_bytes));

    emit_linear(5, 100000, 128, 128, &arena, &work);
    assert_int_equal(work.launches[1].grid[0], 132); /* blocks stay */
    assert_int_equal(work.launches[1].block[0], 384);
    assert_int_equal(work.launches[1].maps[0].box_rows, 128);
    assert_int_equal(work.launches[1].maps[1].box_rows, 32); /* few rows */
    emit_linear(50, 100000, 128, 128, &arena, &work);
    assert_int_equal(work.launches[1].maps[1].box_rows, 64);
    og_arena_free(&arena);
}

/* x @ w: boxes of 32 columns and 32 k. */
static void test_launches_across(void **unused)
{
    og_arena arena = {0};
    og_cuda_work work;
    (void)unused;
    emit_product(&hopper, OG_FLOAT32, 300, 1000, 1030, (int64_t[]){1030, 1}, (int64_t[]){1, 1000},
                 &arena, &work);
    const og_cuda_launch *tensor = &work.launches[1];
    assert_int_equal(tensor->maps[0].buffer, 1);
    assert_int_equal(tensor->maps[0].columns, 1000);
    assert_int_equal(tensor->maps[0].rows, 1030);
    assert_int_equal(tensor->maps[0].pitch_bytes, 4 * 1000);
    assert_int_equal(tensor->maps[0].box_columns, 32);
    assert_int_equal(tensor->maps[0].box_rows, 32);
    /* Its rows no multiple of 16 bytes apart. */
    emit_product(&hopper, OG_FLOAT32, 300, 1000, 1030, (int64_t[]){1030, 1}, (int64_t[]){1, 1001},
                 &arena, &work);
    tensor = &work.launches[2];
    assert_int_equal(work.launches[0].grid[0], 16 * 17); /* og_turn_w */
    assert_int_equal(tensor->maps[0].buffer, OG_CUDA_SCRATCH);
    assert_int_equal(tensor->maps[0].offset, 0);
    assert_int_equal(tensor->maps[0].columns, 1030);
    assert_int_equal(tensor->maps[0].pitch_bytes, 4 * 1032);
    assert_true(tensor->maps[1].offset >= 1000 * 4 * 1032);
    assert_int_equal(tensor->maps[1].at, OG_CUDA_MAP_BYTES);
    og_arena_free(&arena);
}

/* The launch called so; NULL: there is none. */
static const og_cuda_launch *find_launch(const og_cuda_work *work, const char *entry)
{
    for (int32_t l = 0; l < work->launch_count; l++)
        if (strcmp(work->launches[l].entry, entry) == 0)
            return &work->launches[l];
    return NULL;
}

/* Products of a batch: what is mapped. Scales and marks take little beside x. */
static void check_batch(int32_t rank, const int64_t *extents, int64_t k, const int64_t *x,
                        const int64_t *w, const og_cuda_map *want_x, const og_cuda_map *want_w)
{
    og_arena arena = {0};
    og_cuda_work work;
    emit_batch(&hopper, OG_FLOAT32, rank, extents, k, x, w, &arena, &work);
    const og_cuda_launch *tensor = find_launch(&work, "og_multiply_float32");
    assert_non_null(tensor);
    assert_int_equal(tensor->maps[0].buffer, want_w->buffer);
    assert_int_equal(tensor->maps[0].depth, want_w->depth);
    assert_int_equal(tensor->maps[0].slab_bytes, want_w->slab_bytes);
    assert_int_equal(tensor->maps[1].rows, want_x->rows);
    assert_int_equal(tensor->maps[1].depth, want_x->depth);
    int64_t pairs = want_x->depth * want_x->rows * k * 2;
    int64_t copy = want_w->buffer == OG_CUDA_SCRATCH ? want_w->depth * want_w->slab_bytes : 0;
    assert_true((int64_t)work.scratch_bytes >= pairs + copy);
    assert_true((int64_t)work.scratch_bytes < pairs + copy + pairs / 16 + 4096);
    og_arena_free(&arena);
}

static void test_batches(void **unused)
{
    enum { M = 40, N = 200, K = 128, MK = M * K, NK = N * K };
    (void)unused;
    /* x (2, 3, m, k), w (3, k, n): 3 products of 2 m rows. */
    check_batch(4, (int64_t[]){2, 3, M, N}, K, (int64_t[]){3 * MK, MK, K, 0, 1},
                (int64_t[]){0, NK, 0, 1, N}, &(og_cuda_map){.rows = 2 * M, .depth = 2 * 3},
                &(og_cuda_map){.buffer = 1, .depth = 3, .slab_bytes = NK * 4});
    /* x (2, 1, m, k), w (1, 3, k, n): the same rows for all. */
    check_batch(4, (int64_t[]){2, 3, M, N}, K, (int64_t[]){MK, 0, K, 0, 1},
                (int64_t[]){0, NK, 0, 1, N}, &(og_cuda_map){.rows = 2 * M, .depth = 2},
                &(og_cuda_map){.buffer = 1, .depth = 3, .slab_bytes = NK * 4});
    /* One x for all. */
    check_batch(3, (int64_t[]){3, M, N}, K, (int64_t[]){0, K, 0, 1}, (int64_t[]){NK, 0, 1, N},
                &(og_cuda_map){.rows = M, .depth = 2},
                &(og_cuda_map){.buffer = 1, .depth = 3, .slab_bytes = NK * 4});
    /* The batch of w transposed. */
    check_batch(4, (int64_t[]){2, 3, M, N}, K, (int64_t[]){3 * MK, MK, K, 0, 1},
                (int64_t[]){NK, 2 * NK, 0, 1, N}, &(og_cuda_map){.rows = M, .depth = 2 * 6},
                &(og_cuda_map){.buffer = 1, .depth = 6, .slab_bytes = NK * 4});
    /* Heads: w (2, n, 3, k) as (2, 3, k, n). */
    check_batch(4, (int64_t[]){2, 3, M, N}, K, (int64_t[]){3 * MK, MK, K, 0, 1},
                (int64_t[]){3 * NK, K, 0, 3 * K, 1}, &(og_cuda_map){.rows = M, .depth = 2 * 6},
                &(og_cuda_map){.buffer = 1, .depth = 3 * N + 3, .slab_bytes = K * 4});
    /* Two elements between matrices: w is copied. */
    check_batch(4, (int64_t[]){2, 3, M, N}, K, (int64_t[]){3 * MK, MK, K, 0, 1},
                (int64_t[]){NK + 2, 2 * (NK + 2), 0, 1, N},
                &(og_cuda_map){.rows = M, .depth = 2 * 6},
                &(og_cuda_map){.buffer = OG_CUDA_SCRATCH, .depth = 6, .slab_bytes = NK * 4});
    /* More products than there ever were tiles for. */
    check_batch(2, (int64_t[]){3 << 20, N}, K, (int64_t[]){K, 0, 1}, (int64_t[]){NK, 1, N},
                &(og_cuda_map){.rows = 1, .depth = (int64_t)6 << 20},
                &(og_cuda_map){.buffer = 1, .depth = 3 << 20, .slab_bytes = NK * 4});
}

/* Long sums of few results: a block takes 4096 k. */
static void test_parts(void **unused)
{
    og_arena arena = {0};
    og_cuda_work work;
    (void)unused;
    emit_linear(200, 200, 100000, 100000, &arena, &work);
    assert_int_equal(find_launch(&work, "og_multiply_float32")->grid[0], 2 * 2 * 25);
    const og_cuda_launch *join = find_launch(&work, "og_join");
    assert_true(join->grid[0] == 2 * 2 && join->overlaps);
    /* Too many for so few blocks: first added up by a thread for each four sums. */
    const og_cuda_launch *add = find_launch(&work, "og_add_segments");
    assert_true(add == join - 1 && add->overlaps);
    assert_int_equal(add->grid[0] * add->block[0] * 4, 2 * 2 * 128 * 128);
    assert_true(work.scratch_bytes >= 2 * 2 * 25 * 128 * 128 * 4);
    emit_linear(5, 130, 16384, 16384, &arena, &work);
    assert_int_equal(find_launch(&work, "og_multiply_float32")->grid[0], 3 * 4);
    assert_int_equal(find_launch(&work, "og_join")->block[0], 128);
    assert_null(find_launch(&work, "og_add_segments"));
    emit_linear(1024, 8192, 8192, 8192, &arena, &work);
    assert_null(find_launch(&work, "og_join"));
    emit_linear(200, 200, 4096, 4096, &arena, &work);
    assert_null(find_launch(&work, "og_join"));
    og_arena_free(&arena);
}

/* Factors of halves that TMA fetches as they lie. */
static void test_half_launches(void **unused)
{
    og_arena arena = {0};
    og_cuda_work work;
    (void)unused;
    emit_product(&hopper, OG_FLOAT16, 1000, 8192, 1000, (int64_t[]){1000, 1}, (int64_t[]){1008, 1},
                 &arena, &work);
    const og_cuda_launch *tensor = find_launch(&work, "og_multiply_halves");
    assert_int_equal(tensor->grid[0], 132);
    assert_int_equal(tensor->block[0], 384);
    assert_true(tensor->shared_bytes <= hopper.shared_per_block);
    assert_int_equal(tensor->when, OG_CUDA_IF_MAPPED);
    assert_int_equal(find_launch(&work, "og_copy_x")->when, OG_CUDA_IF_COPIED);
    assert_int_equal(find_launch(&work, "og_redo")->when, OG_CUDA_IF_UNMAPPED);
    assert_null(find_launch(&work, "og_copy_w"));
    const og_cuda_map *x = &tensor->maps[0], *w = &tensor->maps[1];
    assert_int_equal(x->buffer, 0);
    assert_int_equal(x->columns, 1000); /* beyond, TMA gives zeros */
    assert_int_equal(x->rows, 1000);
    assert_int_equal(x->pitch_bytes, 2000);
    assert_int_equal(x->box_rows, 128);
    assert_true(x->may_copy && x->copy_pitch_bytes == 2000);
    assert_int_equal(w->buffer, 1);
    assert_int_equal(w->pitch_bytes, 2016);
    assert_int_equal(w->box_columns * 2, 128); /* a row of the swizzle */
    assert_int_equal(w->box_rows, 128);        /* even columns, then odd ones */
    assert_int_equal(w->rows_between, 1);
    assert_int_equal(x->rows_between, 0);
    assert_true(!w->may_copy);
    assert_true(work.scratch_bytes >= 1000 * 2000);

    /* Two blocks bring half of w each, or of x. */
    for (int i = 0; i < 2; i++) {
        emit_product(&hopper, OG_FLOAT16, i ? 100 : 4000, 33000, 1000, (int64_t[]){1000, 1},
                     (int64_t[]){1000, 1}, &arena, &work);
        tensor = find_launch(&work, "og_multiply_halves");
        assert_int_equal(tensor->maps[0].box_rows, i ? 64 : 128);
        assert_int_equal(tensor->maps[1].box_rows, i ? 256 : 128);
        assert_int_equal(tensor->maps[1].rows_between, !i); /* there, no block has two tiles */
        assert_int_equal(tensor->grid[0], i ? 130 : 132);
    }

    /* x @ w and its gradients: lines across k. */
    emit_product(&hopper, OG_BFLOAT16, 1000, 8192, 512, (int64_t[]){1, 1000}, (int64_t[]){1, 8192},
                 &arena, &work);
    tensor = find_launch(&work, "og_multiply_halves");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tensor->maps[i].buffer, i);
        assert_int_equal(tensor->maps[i].columns, i ? 8192 : 1000);
        assert_int_equal(tensor->maps[i].rows, 512);
        assert_int_equal(tensor->maps[i].box_columns, 64);
        assert_int_equal(tensor->maps[i].box_rows, 64);
        assert_int_equal(tensor->maps[i].rows_between, 0);
    }
    /* Results of few rows, of a long k, and those whose rows are no multiple of 4 apart do not wait
     * for the next tile. */
    static const int64_t at_once[][3] = {{64, 40000, 1000}, {1000, 8192, 8200}, {1000, 8190, 1000}};
    for (size_t i = 0; i < TEST_COUNT(at_once); i++) {
        const int64_t m = at_once[i][0], n = at_once[i][1], k = at_once[i][2];
        emit_product(&hopper, OG_FLOAT16, m, n, k, (int64_t[]){k, 1}, (int64_t[]){k, 1}, &arena,
                     &work);
        assert_int_equal(find_launch(&work, "og_multiply_halves")->maps[1].rows_between, 0);
    }
    og_arena_free(&arena);
}

/* ... and those that go to the scratch first. */
static void test_half_copies(void **unused)
{
    static const int64_t strides[][2] = {{1003, 1}, {2000, 2}, {-1000, 1}, {1000, -1}, {8, 1}};
    og_arena arena = {0};
    og_cuda_work work;
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(strides); i++) {
        emit_product(&hopper, OG_FLOAT16, 300, 500, 1000, strides[i], strides[i], &arena, &work);
        const og_cuda_launch *tensor = find_launch(&work, "og_multiply_halves");
        assert_int_equal(find_launch(&work, "og_copy_x")->when, OG_CUDA_ALWAYS);
        assert_int_equal(find_launch(&work, "og_copy_x")->grid[0], 300);
        assert_int_equal(find_launch(&work, "og_copy_w")->grid[0], 500);
        for (int m = 0; m < 2; m++) {
            assert_int_equal(tensor->maps[m].buffer, OG_CUDA_SCRATCH);
            assert_int_equal(tensor->maps[m].pitch_bytes, 2000);
            assert_int_equal(tensor->maps[m].offset, m ? 300 * 2000 : 0);
        }
    }
    og_arena_free(&arena);
}

/* ---- what is left to CUDA cores ------------------------------------------------------------ */

static const struct {
    const char *text;
    case_shape shapes[5];
} tails[] = {
    {"linear(x, w)", {SHAPE(5, 128), SHAPE(128, 128)}},
    {"linear(x, w)", {SHAPE(132), SHAPE(129, 132)}},
    {"linear(x, w, b)", {SHAPE(130, 260), SHAPE(200, 260), SHAPE(200)}},
    {"z = linear(x, w, b); z + 2 * sigmoid(z)", {SHAPE(3, 4100), SHAPE(130, 4100), SHAPE(130)}},
    {"linear(x, w) * y + r", {SHAPE(2, 35, 128), SHAPE(150, 128), SHAPE(2, 35, 150), SHAPE(35, 1)}},
    {"sum(sigmoid(linear(x, w, b)), dim=1)", {SHAPE(37, 516), SHAPE(300, 516), SHAPE(300)}},
    {"logsumexp(linear(x, w), dim=1)", {SHAPE(37, 136), SHAPE(129, 136)}},
    {"amax(linear(x, w), dim=1) + y", {SHAPE(9, 136), SHAPE(200, 136), SHAPE(9)}},
    {"linear(x, w), sum(linear(x, w), dim=1)", {SHAPE(9, 136), SHAPE(200, 136)}},
    {"x @ w + y", {SHAPE(37, 137), SHAPE(137, 136), SHAPE(37, 136)}},
    {"x @ w", {SHAPE(3, 37, 72), SHAPE(3, 72, 136)}},
    {"sum(x @ w, dim=2)", {SHAPE(3, 17, 136), SHAPE(3, 136, 200)}},
    {"linear(x, w)", {SHAPE(5, 64), SHAPE(128, 64)}},
};

/* Float32 in batches of several dims, which halves are copied for. */
static const struct {
    const char *text;
    case_shape shapes[3];
} batch_tails[] = {
    {"x @ w", {SHAPE(2, 3, 5, 72), SHAPE(3, 72, 136)}},
    {"x @ w + y", {SHAPE(2, 1, 5, 72), SHAPE(1, 3, 72, 136), SHAPE(3, 5, 1)}},
    {"x @ w", {SHAPE(2, 3, 2, 9, 64), SHAPE(2, 1, 2, 64, 132)}},
    {"x @ w", {SHAPE(5, 72), SHAPE(3, 72, 136)}},
    {"transpose(x, 0, 1) @ w", {SHAPE(72, 5), SHAPE(2, 3, 72, 136)}},
    {"x @ transpose(w, 0, 1)", {SHAPE(2, 3, 9, 64), SHAPE(3, 2, 64, 132)}},
    {"sum(x @ transpose(w, 0, 1), dim=-1)", {SHAPE(2, 3, 9, 64), SHAPE(3, 2, 64, 132)}},
    {"transpose(x, 0, 2) @ w", {SHAPE(5, 3, 2, 64), SHAPE(2, 3, 64, 128)}},
    {"x @ transpose(w, 1, 2)", {SHAPE(2, 3, 1, 64), SHAPE(2, 64, 3, 128)}},
    {"x @ w", {SHAPE(2, 2, 3, 4200), SHAPE(2, 4200, 128)}},
    {"x @ w", {SHAPE(2, 0, 5, 72), SHAPE(0, 72, 136)}},
    {"sum(x @ w, dim=-1)", {SHAPE(0, 3, 5, 72), SHAPE(3, 72, 136)}},
};

/* Halves lie in any way, and in batches. w's last dim is n. */
static const struct {
    const char *text;
    case_shape shapes[3];
    case_layout x;
} half_tails[] = {
    {"x @ w", {SHAPE(37, 136), SHAPE(136, 72)}, CONTIGUOUS},
    {"x @ w", {SHAPE(130, 64), SHAPE(64, 200)}, TRANSPOSED},
    {"x @ w", {SHAPE(3, 37, 101), SHAPE(3, 101, 72)}, PADDED},
    {"x @ w + y", {SHAPE(130, 64), SHAPE(4, 64, 16), SHAPE(130, 16)}, SLICED},
    {"sum(sigmoid(x @ w), dim=2)", {SHAPE(2, 9, 300), SHAPE(2, 300, 136)}, STRIDED},
};

static void redo_halves(test_random *random)
{
    for (size_t i = 0; i < 2 * TEST_COUNT(half_tails); i++) {
        const char *text = half_tails[i / 2].text;
        formula_case c = {.text = text, .formula = find_formula(text)};
        c.input_count = ogive_formula_input_count(c.formula);
        for (size_t t = 0; t < c.input_count; t++) {
            placed *p = &c.inputs[t];
            *p = (placed){.dtype = i % 2 ? OG_BFLOAT16 : OG_FLOAT16,
                          .layout = t == 0   ? half_tails[i / 2].x
                                    : t == 1 ? MISALIGNED
                                             : CONTIGUOUS,
                          .rank = half_tails[i / 2].shapes[t].rank};
            memcpy(p->shape, half_tails[i / 2].shapes[t].shape, sizeof p->shape);
            place(p, random, true);
            fill(p, random, ORDINARY);
        }
        run_placed(&c, CONTIGUOUS, random);
    }
}

/* w begins beside a multiple of 16 bytes. */
static void redo_tail(const char *text, const case_shape *shapes, og_dtype dtype, bool special,
                      test_random *random)
{
    formula_case c = {.text = text, .formula = find_formula(text)};
    c.input_count = ogive_formula_input_count(c.formula);
    for (size_t t = 0; t < c.input_count; t++) {
        placed *p = &c.inputs[t];
        *p = (placed){.dtype = dtype,
                      .layout = t == 1              ? MISALIGNED
                                : t == 0 && special ? PADDED
                                                    : CONTIGUOUS,
                      .rank = shapes[t].rank};
        memcpy(p->shape, shapes[t].shape, sizeof p->shape);
        /* Other rows of halves are copied, then TMA takes them. */
        if (dtype != OG_FLOAT32 && t < 2 && text[0] != 'x')
            p->shape[p->rank - 1] = (p->shape[p->rank - 1] + 7) / 8 * 8;
        place(p, random, true);
        fill(p, random, special ? SPECIAL : ORDINARY);
    }
    run_placed(&c, CONTIGUOUS, random);
}

/* TMA takes no such w: og_redo computes all of it. */
static void test_redo(void **unused)
{
    static const og_dtype dtypes[] = {OG_FLOAT32, OG_FLOAT32, OG_FLOAT16, OG_BFLOAT16};
    test_random random = test_random_named("redo");
    (void)unused;
    case_share = 2;
    case_options.precision = OGIVE_FLOAT32;
    for (size_t i = 0; i < 4 * TEST_COUNT(tails); i++)
        redo_tail(tails[i / 4].text, tails[i / 4].shapes, dtypes[i % 4], i % 2, &random);
    for (size_t i = 0; i < 2 * TEST_COUNT(batch_tails); i++)
        redo_tail(batch_tails[i / 2].text, batch_tails[i / 2].shapes, OG_FLOAT32, i % 2, &random);
    /* Whole tiles, of which the last has one run; k in groups of 4096, w across it. */
    const case_shape tile[] = {SHAPE(70, 4100), SHAPE(4100, 132), SHAPE(132)};
    redo_tail("x @ w + y", tile, OG_FLOAT32, false, &random);
    redo_halves(&random);
    case_options.precision = OGIVE_STRICT;
    end_cases("redo");
}

/* ---- a real compiler ------------------------------------------------------------------------ */

static void test_compile(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(tails); i++)
        if (test_has_turn(i, 0, 3))
            compile_unspilt(tails[i].text, tails[i].shapes, OG_FLOAT32, "90a", "wgmma");
    /* w across k, turned, in a batch; several segments, in parts. */
    const case_shape products[][2] = {{SHAPE(1024, 8192), SHAPE(8192, 8192)},
                                      {SHAPE(16, 8192), SHAPE(8192, 8192)},
                                      {SHAPE(256, 65536), SHAPE(65536, 256)},
                                      {SHAPE(1000, 511), SHAPE(511, 1003)},
                                      {SHAPE(64, 300, 513), SHAPE(64, 513, 1023)},
                                      {SHAPE(64, 512, 4096), SHAPE(64, 4096, 512)},
                                      {SHAPE(9, 8, 7, 300, 512), SHAPE(9, 1, 7, 512, 512)}};
    for (size_t i = 0; i < TEST_COUNT(products); i++) {
        /* gelu: up to six registers wait in memory while a tile ends, for nothing that is multiplied. */
        if (test_has_turn(i, 0, 2))
            compile_spilt("gelu(x @ w)", products[i], OG_FLOAT32, "90a", "wgmma", 24);
        if (test_has_turn(i, 1, 2))
            compile_unspilt("logsumexp(x @ w, dim=-1)", products[i], OG_FLOAT32, "90a", "wgmma");
    }
    /* k in segments, w along it: in the loop of wide rows. A form without spills took 5 % longer, for
     * all rows (H200). */
    const case_shape longer[] = {SHAPE(1024, 8192), SHAPE(8192, 8192), SHAPE(8192)};
    compile_spilt("z = linear(x, w, b); z + 2 * sigmoid(z)", longer, OG_FLOAT32, "90a", "wgmma",
                  16);
    /* 64-bit indices, functions that take many registers. */
    const case_shape large[] = {SHAPE(70000, 128), SHAPE(32768, 128), SHAPE(32768)};
    compile_unspilt("z = linear(x, w, b); gelu(z) + tanh(z) * mish(z)", large, OG_FLOAT32, "90a",
                    "wgmma");
    compile_unspilt("sum(gelu(linear(x, w, b)), dim=1)", large, OG_FLOAT32, "90a", "wgmma");
    /* Halves: all tiles, lines across k, copies, batches, more k than tensor cores sum at once. */
    const case_shape shapes[][4] = {
        {SHAPE(16, 256), SHAPE(512, 256), SHAPE(512), SHAPE(16, 512)},
        {SHAPE(128, 256), SHAPE(8192, 256), SHAPE(8192), SHAPE(128, 8192)},
        {SHAPE(200, 250), SHAPE(8192, 250), SHAPE(8192), SHAPE(200, 8192)},
        {SHAPE(4096, 16384), SHAPE(4096, 16384), SHAPE(4096), SHAPE(4096, 4096)},
        {SHAPE(128, 256), SHAPE(32768, 256), SHAPE(32768), SHAPE(128, 32768)},
        {SHAPE(4096, 256), SHAPE(4096, 256), SHAPE(4096), SHAPE(4096, 4096)},
    };
    for (size_t i = 0; i < TEST_COUNT(shapes); i++)
        if (test_has_turn(i, 0, 2))
            compile_unspilt("z = linear(x, w, b); z * y + 2 * sigmoid(z)", shapes[i],
                            i % 2 ? OG_FLOAT16 : OG_BFLOAT16, "90a", "wgmma");
    /* ... and results that wait for the next tile: of all widths, w's halves shared. */
    const case_shape later[][3] = {{SHAPE(4096, 256), SHAPE(4096, 256), SHAPE(4096)},
                                   {SHAPE(1024, 256), SHAPE(8192, 256), SHAPE(8192)},
                                   {SHAPE(300, 256), SHAPE(16384, 256), SHAPE(16384)},
                                   {SHAPE(65, 256), SHAPE(9000, 256), SHAPE(9000)}};
    for (size_t i = 0; i < TEST_COUNT(later); i++) {
        if (test_has_turn(i, 0, 2))
            compile_unspilt("relu(linear(x, w, b))", later[i], OG_BFLOAT16, "90a", "wgmma");
        if (test_has_turn(i, 1, 2))
            compile_unspilt("linear(x, w) * y + y", later[i], OG_FLOAT16, "90a", "wgmma");
    }
    const case_shape batch[] = {SHAPE(9, 300, 256), SHAPE(9, 256, 512)};
    compile_unspilt("x @ w", batch, OG_FLOAT16, "90a", "wgmma");
    compile_unspilt("logsumexp(x @ w, dim=2)", batch, OG_BFLOAT16, "90a", "wgmma");
    compile_unspilt("z = linear(x, w, b); gelu(z) + tanh(z) * mish(z)", large, OG_FLOAT16, "90a",
                    "wgmma");
    compile_unspilt("sum(gelu(linear(x, w, b)), dim=1)", large, OG_BFLOAT16, "90a", "wgmma");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),          cmocka_unit_test(test_fetch),
        cmocka_unit_test(test_own_columns),     cmocka_unit_test(test_choice_of_halves),
        cmocka_unit_test(test_half_tiles),      cmocka_unit_test(test_launches),
        cmocka_unit_test(test_launches_across), cmocka_unit_test(test_batches),
        cmocka_unit_test(test_parts),           cmocka_unit_test(test_half_launches),
        cmocka_unit_test(test_half_copies),     cmocka_unit_test(test_redo),
    };
    const struct CMUnitTest compiled[] = {cmocka_unit_test(test_compile)};
    if (only_compiles())
        return cmocka_run_group_tests(compiled, NULL, NULL);
    return CASE_RUN(tests);
}
