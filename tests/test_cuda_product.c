/* SPDX-License-Identifier: MIT
 *
 * test_cuda_product.c - matrix products on CUDA cores against the CPU's, bit by bit: sizes
 * around tiles, blocks and groups of k, any strides, what comes after the product, and the
 * tile that a shape gets. Runs on the fake device of tests/cuda, or on a real one.
 *
 * OGIVE_TEST_NVRTC=libnvrtc.so.13 has a real NVRTC compile them instead, without a GPU, and
 * checks that no register is spilt.
 */
#include "cuda_case.h"
#include "cuda_compiled.h"

#include "cuda/emit/cuda_product_tile.h"

/* ---- cases --------------------------------------------------------------------------- */

/* The inputs of a formula in order; rank -1 ends the list. */
typedef struct {
    const char *text;
    case_shape shapes[5];
} product_case;

#define END                                                                                        \
    {                                                                                              \
        -1,                                                                                        \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

static void check_inputs(const char *text, ogive_formula *formula, const case_shape *shapes,
                         og_dtype dtype, const case_layout *layouts, case_layout results,
                         case_values values, test_random *random)
{
    formula_case c = {.text = text, .formula = formula};
    c.input_count = ogive_formula_input_count(formula);
    for (size_t t = 0; t < c.input_count; t++) {
        placed *p = &c.inputs[t];
        *p = (placed){.dtype = dtype, .layout = layouts[t], .rank = shapes[t].rank};
        assert_true(p->rank >= 0);
        memcpy(p->shape, shapes[t].shape, sizeof p->shape);
        place(p, random, true);
        fill(p, random, values);
    }
    run_placed(&c, results, random);
}

static void check_product(const char *text, const case_shape *shapes, og_dtype dtype,
                          case_layout layout, case_layout results, case_values values,
                          test_random *random)
{
    const case_layout layouts[] = {layout, layout, layout, layout, layout};
    check_inputs(text, find_formula(text), shapes, dtype, layouts, results, values, random);
}

/* ---- bodies -------------------------------------------------------------------------- */

enum { PROCESSORS = 3 }; /* of the fake device: small shapes get large tiles, too */

static og_cuda_tile tile_of(int64_t m, int64_t n, int64_t k, int32_t products, size_t shared,
                            int32_t processors)
{
    const og_cuda_product_shape shape = {.of = {.batch = 1, .m = m, .n = n, .k = k},
                                         .products = products};
    const og_cuda_limits limits = {
        .arch = 90, .multiprocessors = processors, .shared_per_block = shared};
    return og_cuda_choose_tile(&shape, &limits);
}

static const size_t h100_shared = 232448;

/* What float32 shapes were multiplied by: small tiles by rows and columns, whole and split, and
 * several of them over m; others by rows and columns, by levels of sums, or split (0), of which
 * groups of k leave their sums, too. */
static struct {
    bool few[5][5][2], few_over_m, tiles[9][9], levels[4], leaves_groups;
} seen;

static void see_linear(int64_t m, int64_t n, int64_t k)
{
    og_cuda_tile tile = tile_of(m, n, k, 1, h100_shared, PROCESSORS);
    if (tile.is_few) {
        seen.few[tile.rows / 4][tile.columns / 8][tile.part_blocks > 0] = true;
        seen.few_over_m |= m > tile.rows;
        return;
    }
    seen.tiles[tile.rows / 16][tile.columns / 16] = true;
    seen.levels[tile.part_blocks ? 0 : og_cuda_product_levels(k)] = true;
    seen.leaves_groups |= tile.leaves_groups && tile.part_blocks;
}

static void check_linear(int64_t m, int64_t n, int64_t k, og_dtype dtype, case_layout layout,
                         case_values values, test_random *random)
{
    const case_shape shapes[] = {SHAPE(m, k), SHAPE(n, k), SHAPE(n)};
    if (dtype == OG_FLOAT32 && m * n > 0)
        see_linear(m, n, k);
    check_product("linear(x, w, b)", shapes, dtype, layout, CONTIGUOUS, values, random);
}

/* ---- shapes -------------------------------------------------------------------------- */

static const int64_t edges[] = {0, 1, 2, 3, 7, 31, 64, 65, 127, 129, 255, 256, 257, 300};

/* Every size as m, as n and as k. */
static void test_shapes(void **unused)
{
    test_random random = test_random_named("shapes");
    const int64_t count = (int64_t)TEST_COUNT(edges);
    (void)unused;
    case_share = 2;
    for (int64_t i = 0; i < 3 * count; i++) {
        int64_t m = edges[test_random_below(&random, count)];
        int64_t n = edges[test_random_below(&random, count)];
        int64_t k = edges[test_random_below(&random, count)];
        *(i % 3 == 0 ? &m : i % 3 == 1 ? &n : &k) = edges[i / 3];
        check_linear(m, n, k, OG_FLOAT32, CONTIGUOUS, i % 4 ? ORDINARY : SPECIAL, &random);
    }
    for (int64_t i = 0; i < count; i++)
        check_linear(33, 70, edges[i], (og_dtype)(i % 4), CONTIGUOUS,
                     i % 4 == OG_FLOAT64 ? ORDINARY : SPECIAL, &random);
    end_cases("shapes");
}

/* Around groups of k, several of them, and steps. */
static void test_long(void **unused)
{
    static const int64_t ks[] = {4095, 4096, 4097, 4352, 8191, 8193, 12300};
    test_random random = test_random_named("long");
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(ks); i++) {
        check_linear(5, 33, ks[i], (og_dtype)(i % 4), i % 2 ? MISALIGNED : CONTIGUOUS, ORDINARY,
                     &random);
        check_linear(65, 67, ks[i], OG_FLOAT32, CONTIGUOUS, ORDINARY, &random);
    }
    check_linear(9, 64, 256, OG_FLOAT32, CONTIGUOUS, SPECIAL, &random);
    check_linear(9, 129, 1000, OG_FLOAT32, CONTIGUOUS, ORDINARY, &random);
    check_linear(17, 31, 300, OG_FLOAT32, CONTIGUOUS, ORDINARY, &random);
    check_linear(130, 300, 4700, OG_FLOAT32, CONTIGUOUS, ORDINARY, &random);
    check_linear(257, 257, 300, OG_FLOAT32, CONTIGUOUS, ORDINARY, &random);
    check_linear(3, 40, 8200, OG_FLOAT32, CONTIGUOUS, ORDINARY, &random);
    check_linear(7, 40, 8200, OG_FLOAT32, CONTIGUOUS, ORDINARY, &random);
    check_linear(700, 16, 300, OG_FLOAT32, CONTIGUOUS, ORDINARY, &random);
    check_linear(700, 30, 300, OG_FLOAT32, CONTIGUOUS, ORDINARY, &random);
    check_linear(700, 15, 4400, OG_FLOAT32, CONTIGUOUS, ORDINARY, &random);
    check_linear(700, 600, 40, OG_FLOAT32, CONTIGUOUS, ORDINARY, &random);
    check_linear(17, 257, 300, OG_FLOAT32, CONTIGUOUS, ORDINARY, &random);
    check_linear(9, 257, 300, OG_FLOAT32, CONTIGUOUS, ORDINARY, &random);
    check_linear(9, 33, 4400, OG_FLOAT32, CONTIGUOUS, ORDINARY, &random);
    check_linear(130, 130, 33000, OG_FLOAT32, CONTIGUOUS, ORDINARY, &random);
    end_cases("long");
}

/* Small tiles: each of them, whole and with k in groups. */
static void test_few(void **unused)
{
    static const int64_t shapes[][2] = {{1, 5},  {5, 16}, {1, 31}, {5, 31}, {9, 33}, {1, 64},
                                        {5, 64}, {9, 64}, {5, 5},  {1, 16}, {9, 16}, {40, 5}};
    test_random random = test_random_named("few");
    (void)unused;
    case_share = 2;
    for (size_t i = 0; i < TEST_COUNT(shapes); i++) {
        const int64_t m = shapes[i][0], n = shapes[i][1];
        check_linear(m, n, 300, OG_FLOAT32, CONTIGUOUS, SPECIAL, &random);
        check_linear(m, n, 8200, OG_FLOAT32, CONTIGUOUS, ORDINARY, &random);
        check_linear(m, n, 300, (og_dtype)(i % 4), i % 2 ? MISALIGNED : CONTIGUOUS, ORDINARY,
                     &random);
        check_linear(m, n, 65, (og_dtype)(i % 4), TRANSPOSED, ORDINARY, &random);
    }
    end_cases("few");
}

/* Sums that underflow to -0 stay -0, whatever is missing in a step, a block or a group. */
static void test_zeros(void **unused)
{
    static const int64_t shapes[][3] = {{3, 5, 7},       {3, 5, 300},     {3, 5, 4500},
                                        {20, 30, 7},     {20, 30, 300},   {20, 30, 4500},
                                        {300, 400, 270}, {130, 300, 4700}};
    test_random random = test_random_named("zeros");
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(shapes); i++) {
        const int64_t m = shapes[i][0], n = shapes[i][1], k = shapes[i][2];
        const char *text = "linear(x, w)";
        formula_case c = {.text = text, .formula = find_formula(text), .input_count = 2};
        for (size_t t = 0; t < 2; t++) {
            placed *p = &c.inputs[t];
            *p = (placed){.dtype = OG_FLOAT32, .rank = 2, .shape = {t ? n : m, k}};
            place(p, &random, true);
            for (int64_t e = 0; e < p->elements; e++)
                ((float *)p->memory)[e] = t ? 1e-30f : -1e-30f;
        }
        run_placed(&c, CONTIGUOUS, &random);
    }
    end_cases("zeros");
}

/* On the fake device every body is among the cases, and computed in one turn of two. */
static void test_bodies(void **unused)
{
    (void)unused;
    for (int columns = 1; columns <= 4; columns *= 2)
        for (int is_split = 0; is_split < 2; is_split++)
            assert_true(seen.few[1][columns][is_split] && seen.few[2][columns][is_split]);
    assert_true(seen.few[4][2][0] && seen.few[4][2][1] && seen.few[4][4][0] && seen.few_over_m);
    assert_true(seen.levels[0] && seen.levels[1] && seen.levels[2] && seen.levels[3]);
    assert_true(seen.leaves_groups);
    assert_true(seen.tiles[8][8] && seen.tiles[4][8] && seen.tiles[4][4] && seen.tiles[8][4]);
    assert_true(seen.tiles[2][8] && seen.tiles[1][8] && seen.tiles[1][4]);
    assert_true(seen.tiles[8][2] && seen.tiles[4][1]); /* narrow */
}

/* ---- strides ------------------------------------------------------------------------- */

static void test_layouts(void **unused)
{
    static const int64_t shapes[][3] = {
        {35, 66, 40}, {3, 130, 19}, {129, 140, 33}, {70, 1, 300}, {200, 12, 70}};
    test_random random = test_random_named("layouts");
    (void)unused;
    case_share = 2;
    for (size_t i = 0; i < TEST_COUNT(shapes); i++) {
        int64_t m = shapes[i][0], n = shapes[i][1], k = shapes[i][2];
        const case_shape linear[] = {SHAPE(m, k), SHAPE(n, k), SHAPE(n)};
        const case_shape matmul[] = {SHAPE(m, k), SHAPE(k, n)};
        for (int layout = 0; layout < LAYOUT_COUNT; layout++) {
            case_layout first = (case_layout)layout;
            case_layout results = first == STILL_LAST || first == STILL_FIRST ? PADDED : first;
            case_layout layouts[] = {first, (case_layout)test_random_below(&random, LAYOUT_COUNT),
                                     CONTIGUOUS};
            og_dtype dtype = i == 1 || i == 4 ? (og_dtype)(layout % 4) : OG_FLOAT32;
            check_product("linear(x, w, b)", linear, dtype, first, CONTIGUOUS, ORDINARY, &random);
            check_inputs("x @ y", find_formula("x @ y"), matmul, dtype, layouts, results, ORDINARY,
                         &random);
        }
    }
    end_cases("layouts");
}

/* Vectors, batches, broadcasting; rows that are several dims. */
static void test_batches(void **unused)
{
    static const product_case cases[] = {
        {"x @ y", {SHAPE(70), SHAPE(70), END}},
        {"x @ y", {SHAPE(300), SHAPE(300, 65), END}},
        {"x @ y", {SHAPE(65, 300), SHAPE(300), END}},
        {"x @ y", {SHAPE(3, 33, 20), SHAPE(3, 20, 66), END}},
        {"x @ y", {SHAPE(2, 1, 33, 20), SHAPE(5, 20, 6), END}},
        {"x @ y", {SHAPE(3, 17, 20), SHAPE(20, 66), END}},
        {"x @ y", {SHAPE(17, 20), SHAPE(4, 20, 66), END}},
        {"x @ y", {SHAPE(9, 1, 70), SHAPE(9, 70, 1), END}},
        {"x @ y", {SHAPE(70), SHAPE(4, 70, 3), END}},
        {"x @ y", {SHAPE(0, 3, 4), SHAPE(0, 4, 5), END}},
        {"x @ y", {SHAPE(2, 3, 0), SHAPE(2, 0, 5), END}},
        {"linear(x, w, b)", {SHAPE(3, 5, 7, 40), SHAPE(66, 40), SHAPE(66), END}},
        {"linear(x, w)", {SHAPE(40), SHAPE(66, 40), END}},
        {"transpose(x @ y, 0, 1)", {SHAPE(40, 30), SHAPE(30, 70), END}},
    };
    test_random random = test_random_named("batches");
    (void)unused;
    case_share = 2;
    for (size_t i = 0; i < TEST_COUNT(cases); i++)
        for (int round = 0; round < 3; round++) {
            case_layout layout = round == 0 ? CONTIGUOUS : round == 1 ? STRIDED : TRANSPOSED;
            check_product(cases[i].text, cases[i].shapes,
                          round == 1 && i % 2 ? OG_FLOAT16 : OG_FLOAT32, layout,
                          round ? STRIDED : CONTIGUOUS, ORDINARY, &random);
        }
    end_cases("batches");
}

/* ---- what comes after ------------------------------------------------------------------ */

static void test_tails(void **unused)
{
    static const product_case cases[] = {
        {"z = linear(x, w, b); z + 2.0 * sigmoid(z)",
         {SHAPE(35, 40), SHAPE(70, 40), SHAPE(70), END}},
        {"sum(sigmoid(linear(x, w, b)), dim=1)", {SHAPE(35, 40), SHAPE(70, 40), SHAPE(70), END}},
        {"sum(sigmoid(linear(x, w, b)), dim=1, keepdim=true) * 0.5",
         {SHAPE(5, 30), SHAPE(33, 30), SHAPE(33), END}},
        {"linear(x, w) * s + r, linear(x, w)",
         {SHAPE(35, 40), SHAPE(70, 40), SHAPE(35, 1), SHAPE(35, 70), END}},
        {"z = linear(x, w); relu(z), sum(z, dim=1), amax(z, dim=1)",
         {SHAPE(21, 300), SHAPE(130, 300), END}},
        {"softmax(linear(x, w), dim=1)", {SHAPE(9, 20), SHAPE(130, 20), END}},
        {"logsumexp(linear(x, w), dim=1)", {SHAPE(9, 20), SHAPE(50, 20), END}},
        {"silu(linear(x, a)) * linear(x, b)",
         {SHAPE(35, 300), SHAPE(70, 300), SHAPE(70, 300), END}},
        {"sum(linear(x, a) * linear(x, b), dim=1)",
         {SHAPE(19, 4100), SHAPE(66, 4100), SHAPE(66, 4100), END}},
        {"sum(linear(x, a) * linear(x, b), dim=1)",
         {SHAPE(3, 8200), SHAPE(66, 8200), SHAPE(66, 8200), END}},
        {"sum(sigmoid(linear(x, w, b)), dim=1)", {SHAPE(200, 700), SHAPE(10, 700), SHAPE(10), END}},
        {"r + sigmoid(linear(x, w))", {SHAPE(35, 70), SHAPE(35, 40), SHAPE(70, 40), END}},
        {"x @ y + t(p @ q)", {SHAPE(20, 30), SHAPE(30, 40), SHAPE(40, 30), SHAPE(30, 20), END}},
        {"where(linear(x, w) > 0, float16(linear(x, w)), c)",
         {SHAPE(20, 30), SHAPE(40, 30), SHAPE(1), END}},
    };
    test_random random = test_random_named("tails");
    (void)unused;
    case_share = 2;
    for (size_t i = 0; i < TEST_COUNT(cases); i++)
        for (int round = 0; round < 2; round++)
            check_product(cases[i].text, cases[i].shapes,
                          round == 0 ? OG_FLOAT32 : (og_dtype)(1 + i % 3),
                          round ? MISALIGNED : CONTIGUOUS, round ? STRIDED : CONTIGUOUS,
                          round == 0 && i % 2 ? SPECIAL : ORDINARY, &random);
    end_cases("tails");
}

/* Runs of 64 columns: one, some, more than a warp combines; none. */
static void test_rows(void **unused)
{
    static const int64_t columns[] = {0, 1, 63, 64, 65, 128, 129, 1000, 33000};
    test_random random = test_random_named("rows");
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(columns); i++) {
        const case_shape shapes[] = {SHAPE(3, 5), SHAPE(columns[i], 5), SHAPE(columns[i])};
        check_product("sum(sigmoid(linear(x, w, b)), dim=1)", shapes, OG_FLOAT32, CONTIGUOUS,
                      CONTIGUOUS, ORDINARY, &random);
        check_product("logsumexp(linear(x, w, b), dim=1)", shapes, OG_FLOAT32, CONTIGUOUS,
                      CONTIGUOUS, SPECIAL, &random);
    }
    end_cases("rows");
}

static void test_gradients(void **unused)
{
    static const product_case cases[] = {
        {"linear(x, w, b)", {SHAPE(33, 40), SHAPE(70, 40), SHAPE(70), SHAPE(33, 70)}},
        {"linear(x, w, b)", {SHAPE(3, 11, 40), SHAPE(70, 40), SHAPE(70), SHAPE(3, 11, 70)}},
        {"sum(sigmoid(linear(x, w, b)), dim=1)",
         {SHAPE(33, 40), SHAPE(70, 40), SHAPE(70), SHAPE(33)}},
    };
    static const char *const names[] = {"x", "w", "b"};
    test_random random = test_random_named("gradients");
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        ogive_error error;
        ogive_formula *gradient;
        const case_layout layouts[] = {CONTIGUOUS, PADDED, CONTIGUOUS, TRANSPOSED};
        TEST_OK(ogive_formula_gradient(find_formula(cases[i].text), names, 3, &gradient, &error),
                error);
        check_inputs(cases[i].text, gradient, cases[i].shapes, i ? OG_FLOAT32 : OG_BFLOAT16,
                     layouts, CONTIGUOUS, ORDINARY, &random);
        ogive_formula_release(gradient);
    }
    end_cases("gradients");
}

/* ---- tiles ------------------------------------------------------------------------------- */

static void test_tiles(void **unused)
{
    const size_t h100 = h100_shared, rtx = 101376;
    og_cuda_tile tile = tile_of(4096, 4096, 4096, 1, h100, 132);
    (void)unused;
    assert_int_equal(og_cuda_product_levels(0), 1);
    assert_int_equal(og_cuda_product_levels(256), 1);
    assert_int_equal(og_cuda_product_levels(257), 2);
    assert_int_equal(og_cuda_product_levels(4096), 2);
    assert_int_equal(og_cuda_product_levels(4097), 3);
    assert_true(tile.rows == 128 && tile.columns == 128 && tile.threads == 256);
    assert_int_equal(tile.shared_bytes, 128 * 128 * 4);
    tile = tile_of(128, 32768, 32768, 1, h100, 132);
    assert_true(tile.rows == 128 && tile.columns == 128);
    assert_int_equal(tile.shared_bytes, 128 * 128 * 4 + 2 * (16 * 256 + 64) * 4);
    /* Enough blocks for all multiprocessors, and no row more than needed. */
    assert_int_equal(tile_of(16, 8192, 8192, 1, h100, 132).rows, 16);
    /* Narrow ones, with enough of them at once; blocks for short k that hide each other's ends. */
    tile = tile_of(8192, 16, 8192, 1, h100, 132);
    assert_true(tile.rows == 64 && tile.columns == 16 && tile.part_blocks == 4);
    tile = tile_of(8192, 32, 8192, 1, h100, 132);
    assert_true(tile.rows == 128 && tile.columns == 32 && tile.part_blocks == 4);
    tile = tile_of(8192, 64, 8192, 1, h100, 132);
    assert_true(tile.rows == 64 && tile.columns == 64 && tile.part_blocks == 8);
    tile = tile_of(32768, 32768, 32, 1, h100, 132);
    assert_true(tile.rows == 128 && tile.columns == 64 && tile.blocks == 4 && !tile.part_blocks);
    /* Few rows: a warp for each block of k. */
    tile = tile_of(1, 4096, 4096, 1, h100, 132);
    assert_true(tile.is_few && tile.rows == 4 && tile.columns == 32 && tile.threads == 512);
    tile = tile_of(8, 4096, 257, 2, h100, 132);
    assert_true(tile.is_few && tile.rows == 8 && tile.threads == 64);
    /* Few results, in the smallest tiles that give all multiprocessors one. */
    assert_true(tile_of(9, 1, 1, 1, h100, 132).is_few && tile_of(9, 1, 0, 1, h100, 132).is_few);
    tile = tile_of(64, 100, 2048, 1, h100, 132);
    assert_true(tile.is_few && tile.rows == 8 && tile.columns == 8 && tile.threads == 256);
    tile = tile_of(1024, 16, 1024, 1, h100, 132);
    assert_true(tile.is_few && tile.rows == 8 && tile.columns == 16 && !tile.part_blocks);
    tile = tile_of(1024, 64, 1024, 1, h100, 132);
    assert_true(tile.is_few && tile.rows == 16 && tile.columns == 32);
    assert_false(tile_of(2048, 64, 1024, 1, h100, 132).is_few);
    assert_false(tile_of(1000000, 4, 64, 1, h100, 132).is_few);
    assert_false(tile_of(8, 4096, 4096, 1, 49152, 132).is_few);
    /* ... a block for each group, where whole ones would leave multiprocessors idle. */
    tile = tile_of(1, 2048, 1048576, 1, h100, 132);
    assert_true(tile.is_few && tile.part_blocks == 16 && tile.sums == 256);
    tile = tile_of(1, 64, 65536, 1, h100, 132);
    assert_true(tile.is_few && tile.part_blocks == 16 && tile.sums == 16);
    assert_int_equal(tile_of(1, 8192, 8192, 1, h100, 132).part_blocks, 0);
    /* k in parts, so that all multiprocessors have some; whole where they have anyway. */
    tile = tile_of(128, 4096, 4096, 1, h100, 132);
    assert_true(tile.part_blocks > 0 && tile.shared_bytes == 2 * (16 * 256 + 64) * 4);
    assert_in_range(128 * 4096 / (tile.rows * tile.columns) * (16 / tile.part_blocks), 100, 264);
    assert_int_equal(tile_of(4096, 4096, 4096, 1, h100, 132).part_blocks, 0);
    assert_int_equal(tile_of(64, 64, 256, 1, h100, 132).part_blocks, 0);
    assert_true(tile_of(9, 64, 65536, 1, h100, 132).part_blocks > 0);
    /* Two products of 128 x 128 do not fit there, unless k is in parts. */
    tile = tile_of(4096, 4096, 8192, 2, rtx, 132);
    assert_true(tile.shared_bytes <= rtx &&
                (tile.part_blocks || tile.rows * tile.columns < 128 * 128));
    assert_true(tile_of(INT64_MAX / 2, INT64_MAX / 2, 1, 1, h100, 132).rows == 128);
}

/* ---- a real compiler ------------------------------------------------------------------------ */

/* Shapes that get each of the tiles on an H100, sums of one, two and three levels, in parts of blocks
 * and of groups. */
static void test_compile(void **unused)
{
    static const char *const archs[] = {"90a", "80", "100"};
    static const case_shape shapes[][4] = {
        {SHAPE(1, 4096), SHAPE(4096, 4096), SHAPE(4096), SHAPE(1, 4096)},
        {SHAPE(8, 300), SHAPE(4096, 300), SHAPE(4096), SHAPE(8, 4096)},
        {SHAPE(4096, 256), SHAPE(4096, 256), SHAPE(4096), SHAPE(4096, 4096)},
        {SHAPE(4096, 4096), SHAPE(4096, 4096), SHAPE(4096), SHAPE(4096, 4096)},
        {SHAPE(4096, 8192), SHAPE(4096, 8192), SHAPE(4096), SHAPE(4096, 4096)},
        {SHAPE(128, 4096), SHAPE(4096, 4096), SHAPE(4096), SHAPE(128, 4096)},
        {SHAPE(16, 8192), SHAPE(8192, 8192), SHAPE(8192), SHAPE(16, 8192)},
        {SHAPE(8192, 8192), SHAPE(16, 8192), SHAPE(16), SHAPE(8192, 16)},
        {SHAPE(8192, 512), SHAPE(64, 512), SHAPE(64), SHAPE(8192, 64)},
        {SHAPE(32768, 32), SHAPE(32768, 32), SHAPE(32768), SHAPE(32768, 32768)},
        {SHAPE(8192, 100), SHAPE(40, 100), SHAPE(40), SHAPE(8192, 40)},
        {SHAPE(1, 65536), SHAPE(64, 65536), SHAPE(64), SHAPE(1, 64)},
        {SHAPE(64, 2048), SHAPE(100, 2048), SHAPE(100), SHAPE(64, 100)},
        {SHAPE(1024, 1024), SHAPE(16, 1024), SHAPE(16), SHAPE(1024, 16)},
        {SHAPE(2048, 1024), SHAPE(16, 1024), SHAPE(16), SHAPE(2048, 16)},
        {SHAPE(1024, 1024), SHAPE(64, 1024), SHAPE(64), SHAPE(1024, 64)},
        {SHAPE(4, 2048), SHAPE(2048, 2048), SHAPE(2048), SHAPE(4, 2048)},
        {SHAPE(128, 2000000), SHAPE(576, 2000000), SHAPE(576), SHAPE(128, 576)},
        {SHAPE(64, 2000000), SHAPE(64, 2000000), SHAPE(64), SHAPE(64, 64)}};
    (void)unused;
    /* Bytes of stack: og_add_parts on sm_80; og_tiles of the short tile, which has 128 registers
     * and whose finisher keeps what two vectors compute until both are there. */
    enum { AMPERE = 8, SHORT = 8, SHORT_HALVES = 64, SHORT_K = 32 };
    setenv("OGIVE_PRODUCT", "cores", 1);
    for (size_t i = 0; i < TEST_COUNT(shapes) * TEST_COUNT(archs); i++) {
        const case_shape *shape = shapes[i / TEST_COUNT(archs)];
        const char *arch = archs[i % TEST_COUNT(archs)];
        bool is_short = shape[0].shape[1] == SHORT_K;
        if (!test_takes(i / TEST_COUNT(archs), i % TEST_COUNT(archs)) ||
            !test_has_turn(i / TEST_COUNT(archs), i % TEST_COUNT(archs) / 2, 2))
            continue;
        compile_spilt("z = linear(x, w, b); z * y + 2 * sigmoid(z)", shape, OG_FLOAT32, arch,
                      "og_loaders",
                      strcmp(arch, "80") == 0 ? AMPERE
                      : is_short              ? SHORT
                                              : 0);
        if (i % TEST_COUNT(archs))
            continue;
        compile_spilt("logsumexp(gelu(linear(x, w, b)), dim=1)", shape, OG_FLOAT32, arch,
                      "og_loaders", is_short ? SHORT : 0);
        compile_spilt("linear(x, w, b)", shape, OG_BFLOAT16, arch, "og_loaders",
                      is_short ? SHORT_HALVES : 0);
        compile_unspilt("x @ t(w) + b", shape, OG_FLOAT64, arch, "og_loaders");
    }
    unsetenv("OGIVE_PRODUCT");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiles),     cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_long),      cmocka_unit_test(test_few),
        cmocka_unit_test(test_zeros),     cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_layouts),   cmocka_unit_test(test_batches),
        cmocka_unit_test(test_tails),     cmocka_unit_test(test_rows),
        cmocka_unit_test(test_gradients),
    };
    const struct CMUnitTest compiled[] = {cmocka_unit_test(test_compile)};
    if (only_compiles())
        return cmocka_run_group_tests(compiled, NULL, NULL);
    char processors[16];
    snprintf(processors, sizeof processors, "%d", PROCESSORS);
    setenv("OGIVE_SHIM_MULTIPROCESSORS", processors, 1);
    return CASE_RUN(tests);
}
