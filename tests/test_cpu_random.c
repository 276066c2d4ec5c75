/* SPDX-License-Identifier: MIT
 *
 * test_cpu_random.c - the CPU backend on random kernels: spaces, strides, dtypes,
 * passes and products that no formula may ever give. See test_cpu.h.
 */
#include "test_cpu.h"

#include "plan/planner.h"

/* ---- at random --------------------------------------------------------------------- */

static int32_t pick(test_random *random, const int32_t *values, int32_t count)
{
    return values[test_random_below(random, count)];
}

/* Strides of a random order of the dims in memory; dims in `still` do not move. */
static void draw_strides(test_random *random, const og_space *space, uint32_t still, bool input,
                         int64_t *strides)
{
    int32_t order[OG_MAX_RANK];
    for (int32_t d = 0; d < space->rank; d++)
        order[d] = d;
    if (test_random_below(random, 2))
        for (int32_t d = space->rank - 1; d > 0; d--) {
            int32_t other = (int32_t)test_random_below(random, d + 1), kept = order[d];
            order[d] = order[other];
            order[other] = kept;
        }
    int64_t stride = test_random_below(random, 8) ? 1 : 2;
    for (int32_t i = space->rank - 1; i >= 0; i--) {
        int32_t d = order[i];
        bool stays = (still >> d & 1) || (input && !test_random_below(random, 5));
        strides[d] = stays ? 0 : stride;
        if (stays)
            continue;
        if (input && !test_random_below(random, 12))
            strides[d] = -stride;
        stride = stride * (space->extent[d] ? space->extent[d] : 1) +
                 (test_random_below(random, 6) == 0);
    }
}

static uint32_t reduced_dims(const og_space *space)
{
    return ((1u << space->n_reduced) - 1) << (space->rank - space->n_reduced);
}

/* Makes window one whose parts are uneven, by numbers that need not cut anything. */
static void draw_parts(test_random *random, og_window *window)
{
    window->uneven = (og_uneven){.bits = 1 + (int32_t)test_random_below(random, 3),
                                 .from = test_random_below(random, 9),
                                 .reach = test_random_below(random, 7) - 3,
                                 .width = 1 + test_random_below(random, 5),
                                 .count = 1 + test_random_below(random, 12)};
    int64_t scale = INT64_C(1) << window->uneven.bits;
    window->start *= scale;
    window->step *= scale;
    window->reach = window->reach * scale + 1;
    window->divisor = (1 + test_random_below(random, 5)) * scale;
}

/* Gives the access of an input windows, and its buffer room for what they see. */
static void draw_windows(test_random *random, builder *b, int32_t access, bool row)
{
    static const double fills[] = {0, -0.0, -INFINITY, 1.5};
    const og_space *space = &b->kernel.space;
    og_access *to = &b->accesses[access];
    int32_t dims = space->rank - (row ? space->n_reduced : 0);
    to->fill = fills[test_random_below(random, TEST_COUNT(fills))];
    to->window_count = (int32_t)test_random_below(random, OG_MAX_WINDOWS + 1);
    for (int32_t w = 0; w < to->window_count; w++) {
        og_window *window = &to->windows[w];
        *window = (og_window){.place = (int32_t)test_random_below(random, dims + 1) - 1,
                              .tap = (int32_t)test_random_below(random, dims + 1) - 1,
                              .start = test_random_below(random, 9) - 4,
                              .step = 1 + test_random_below(random, 3),
                              .reach = test_random_below(random, 7) - 3,
                              .divisor = 1,
                              .extent = 1 + test_random_below(random, 20),
                              .stride = test_random_below(random, 30)};
        if (test_random_below(random, 3) == 0)
            window->divisor += test_random_below(random, 4);
        if (test_random_below(random, 4) == 0)
            draw_parts(random, window);
        b->counts[to->buffer] += (window->extent - 1) * window->stride;
    }
}

/* An access without memory, along some dims. */
static int32_t draw_numbers(test_random *random, builder *b, bool row)
{
    const og_space *space = &b->kernel.space;
    int32_t at = b->kernel.access_count++, dims = space->rank - (row ? space->n_reduced : 0);
    b->accesses[at] =
        (og_access){.buffer = -1, .dtype = test_random_below(random, 2) ? OG_FLOAT32 : OG_FLOAT64};
    for (int32_t d = 0; d < dims; d++)
        b->accesses[at].stride[d] = test_random_below(random, 3);
    return load(b, at);
}

static int32_t draw_load(test_random *random, builder *b, bool row)
{
    if (test_random_below(random, 12) == 0)
        return draw_numbers(random, b, row);
    int64_t strides[OG_MAX_RANK] = {0};
    og_dtype dtype = (og_dtype)test_random_below(random, OG_FLOAT_COUNT);
    const og_space *space = &b->kernel.space;
    draw_strides(random, space, row ? reduced_dims(space) : 0, true, strides);
    int32_t access = add_access(b, OG_BUFFER_INPUT, dtype, strides);
    if (test_random_below(random, 4) == 0)
        draw_windows(random, b, access, row);
    return load(b, access);
}

/* v in the given type. */
static int32_t cast(builder *b, int32_t v, og_type type)
{
    if (b->values[v].type == type)
        return v;
    return add_instr(b, OG_OP_CONVERT, type, type, type == OG_F64 ? OG_FLOAT64 : OG_FLOAT32, v, -1,
                     -1);
}

static int32_t draw_instr(test_random *random, builder *b, const int32_t *values, int32_t count)
{
    static const og_op binary[] = {OG_OP_add, OG_OP_sub, OG_OP_mul, OG_OP_maximum, OG_OP_minimum};
    static const og_op unary[] = {OG_OP_sigmoid, OG_OP_exp, OG_OP_neg, OG_OP_square, OG_OP_tanh};
    int32_t x = pick(random, values, count);
    og_type type = b->values[x].type;
    int32_t y = cast(b, pick(random, values, count), type);
    switch (test_random_below(random, 8)) {
    case 0:
        return constant(b, type, test_random_range(random, -2, 2));
    case 1:
        return add_instr(b, OG_OP_CONVERT, OG_F32, OG_F32,
                         test_random_below(random, 2) ? OG_FLOAT16 : OG_BFLOAT16, x, -1, -1);
    case 2: {
        int32_t mask = add_instr(b, OG_OP_gt, type, OG_MASK32, 0, x, y, -1);
        int32_t z = pick(random, values, count);
        return add_instr(b, OG_OP_where, b->values[z].type, b->values[z].type, 0, mask, z,
                         cast(b, pick(random, values, count), b->values[z].type));
    }
    case 3:
    case 4:
        return map(b, unary[test_random_below(random, TEST_COUNT(unary))], x, -1);
    default:
        return map(b, binary[test_random_below(random, TEST_COUNT(binary))], x, y);
    }
}

static void draw_store(test_random *random, builder *b, int32_t v, bool row)
{
    int64_t strides[OG_MAX_RANK] = {0};
    const og_space *space = &b->kernel.space;
    draw_strides(random, space, row ? reduced_dims(space) : 0, false, strides);
    og_dtype dtype =
        b->values[v].type == OG_F64 ? OG_FLOAT64 : (og_dtype)test_random_below(random, 3);
    store(b, add_access(b, OG_BUFFER_OUTPUT, dtype, strides), v);
}

/* One level of one pass: loads, instructions, stores. pool: values to start from. */
static int32_t draw_section(test_random *random, builder *b, int32_t *pool, int32_t count, bool row)
{
    if (count == 0 || test_random_below(random, 2))
        pool[count++] = draw_load(random, b, row);
    for (int64_t i = test_random_below(random, 5); i > 0; i--)
        pool[count] = draw_instr(random, b, pool, count), count++;
    if (test_random_below(random, 3) > 0)
        draw_store(random, b, pool[count - 1], row);
    if (test_random_below(random, 3) == 0)
        draw_store(random, b, pick(random, pool, count), row);
    return count;
}

/* Sides of a product: anything goes but along a reduced dim. */
static int32_t draw_product(test_random *random, builder *b)
{
    static const int64_t lengths[] = {0, 1, 3, 16, 50, 256, 300, 700, 4100, 8300};
    const og_space *space = &b->kernel.space;
    int64_t total = 1, k = lengths[test_random_below(random, TEST_COUNT(lengths))];
    for (int32_t d = 0; d < space->rank; d++)
        total *= space->extent[d];
    while (total * k > 200000)
        k /= 2;
    int64_t strides[2][OG_MAX_RANK] = {{0}}, k_strides[2];
    og_dtype dtypes[2];
    uint32_t still[2] = {0, 0};
    for (int32_t d = 0; d < space->rank; d++) /* mostly a batch, then rows, then columns */
        if (d + 2 >= space->rank)
            still[d + 1 == space->rank ? 0 : 1] |= 1u << d;
    if (test_random_below(random, 4) == 0) { /* the other way round */
        uint32_t first = still[0];
        still[0] = still[1], still[1] = first;
    }
    if (test_random_below(random, 4) == 0 && !space->n_reduced)
        still[0] = still[1] = (uint32_t)test_random_below(random, 4);
    for (int side = 0; side < 2; side++) {
        dtypes[side] = (og_dtype)test_random_below(random, 3);
        draw_strides(random, space, still[side], true, strides[side]);
        k_strides[side] = 1 + test_random_below(random, 2);
        if (test_random_below(random, 2)) { /* k within the others, else around them */
            for (int32_t d = 0; d < space->rank; d++)
                strides[side][d] *= (k ? k : 1) * k_strides[side];
        } else {
            k_strides[side] = total;
        }
    }
    add_product(b, k, dtypes, strides, k_strides);
    return add_instr(b, OG_OP_PRODUCT, OG_F32, OG_F32, 0, -1, -1, -1);
}

static builder *draw_kernel(test_random *random, bool product)
{
    static const int64_t extents[] = {2, 3, 5, 8, 16, 33, 64, 70, 130, 512, 513, 1100, 16400};
    int64_t space[OG_MAX_RANK], total = 1;
    int32_t rank = 0, want = (int32_t)test_random_below(random, 5);
    for (int tries = 0; rank < want && tries < 20; tries++) {
        int64_t extent = extents[test_random_below(random, TEST_COUNT(extents))];
        if (total * extent > 20000)
            continue;
        space[rank++] = extent;
        total *= extent;
    }
    int32_t n_reduced = rank ? (int32_t)test_random_below(random, product ? 2 : rank + 1) : 0;
    og_order order = product ? OG_ROWS : (og_order)test_random_below(random, 2);
    builder *b = begin(order, rank, space, n_reduced);
    int32_t pool[4 * MAX_ITEMS], rows = 0;
    int64_t passes = n_reduced ? 1 + test_random_below(random, 3) : 1;
    for (int64_t p = 0; p < passes; p++) {
        int32_t given = rows;
        if (product && p == 0)
            pool[given++] = draw_product(random, b);
        int32_t count = draw_section(random, b, pool, given, false);
        if (!n_reduced)
            break;
        int32_t sources[4], drawn = 1 + (int32_t)test_random_below(random, 3);
        for (int32_t r = 0; r < drawn; r++)
            sources[r] = pick(random, pool, count);
        for (int32_t r = 0; r < drawn; r++)
            pool[rows++] = reduce(b, reductions[test_random_below(random, TEST_COUNT(reductions))],
                                  sources[r]);
        rows = draw_section(random, b, pool, rows, true);
        if (p + 1 < passes)
            next_pass(b);
    }
    return b;
}

static void test_random_kernels(void **unused)
{
    test_random random = test_random_named("kernels");
    (void)unused;
    for (int i = 0; i < test_rounds(300, 20000); i++)
        check(draw_kernel(&random, false), (uint64_t)i, i % 3 == 0);
}

static void test_random_products(void **unused)
{
    test_random random = test_random_named("products");
    (void)unused;
    for (int i = 0; i < test_rounds(400, 20000); i++) {
        builder *b = draw_kernel(&random, true);
        og_see_matrices(&b->kernel);
        check(b, (uint64_t)i, i % 5 == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_kernels),
        cmocka_unit_test(test_random_products),
    };
    return TEST_RUN(tests);
}
