/* SPDX-License-Identifier: MIT
 *
 * test_cpu.c - the CPU backend on kernels built by hand: every shape of tile, every
 * reduction and both orders, lengths around every limit, layouts, dtypes, in place,
 * nothing at all. See test_cpu.h.
 */
#include "test_cpu.h"

/* ---- reductions ------------------------------------------------------------------ */

/* All reductions of x, or of x * x - y: rows x n (or n x rows) in memory. */
static builder *build_reduction(og_order order, int64_t rows, int64_t n, bool computed,
                                og_dtype dtype)
{
    builder *b = begin(order, 2, (int64_t[]){rows, n}, 1);
    int64_t strides[2] = {order == OG_ROWS ? n : 1, order == OG_ROWS ? 1 : rows};
    int32_t x = load(b, add_access(b, OG_BUFFER_INPUT, dtype, strides));
    if (computed) {
        int32_t y = load(b, add_access(b, OG_BUFFER_INPUT, dtype, strides));
        x = map(b, OG_OP_sub, map(b, OG_OP_mul, x, x), y);
    }
    int32_t results[TEST_COUNT(reductions)];
    for (size_t r = 0; r < TEST_COUNT(reductions); r++)
        results[r] = reduce(b, reductions[r], x);
    for (size_t r = 0; r < TEST_COUNT(reductions); r++)
        store(b, add_access(b, OG_BUFFER_OUTPUT, dtype, (int64_t[]){1, 0}), results[r]);
    return b;
}

static void test_lengths(void **unused)
{
    static const int64_t lengths[] = {1,    2,    3,     7,     8,     63,           64,   65,
                                      127,  300,  511,   512,   513,   1023,         1025, 4095,
                                      4097, 8200, 16383, 16384, 16385, 3 * 16384 + 5};
    static const int64_t rows[] = {1, 5, 67};
    (void)unused;
    for (size_t l = 0; l < TEST_COUNT(lengths); l++)
        for (size_t r = 0; r < TEST_COUNT(rows); r++)
            for (int order = 0; order < 2; order++) {
                if (lengths[l] * rows[r] > 100000)
                    continue;
                for (uint64_t seed = 0; seed < 6; seed += rows[r] == 1 ? 1 : 2)
                    check(build_reduction((og_order)order, rows[r], lengths[l], false, OG_FLOAT32),
                          seed + r % 2, false);
                check(build_reduction((og_order)order, rows[r], lengths[l], true, OG_FLOAT32), l,
                      l % 2);
            }
    check(build_reduction(OG_ROWS, 1, (1 << 18) + 3, false, OG_FLOAT32), 1, false);
    check(build_reduction(OG_COLUMNS, 1, (1 << 18) + 3, true, OG_FLOAT32), 2, false);
    check(build_reduction(OG_ROWS, 2, (1 << 17) + 3, true, OG_BFLOAT16), 3, false);
    check(build_reduction(OG_ROWS, 3000, 100, false, OG_FLOAT32), 3, false);
    check(build_reduction(OG_COLUMNS, 3, 64 * 64 * 8 + 1, false, OG_FLOAT16), 4, false);
}

static void test_column_widths(void **unused)
{
    static const int64_t widths[] = {2, 16, 100, 511, 512, 513, 1100, 5000};
    static const int64_t lengths[] = {1, 5, 64, 65, 130};
    (void)unused;
    for (size_t w = 0; w < TEST_COUNT(widths); w++)
        for (size_t l = 0; l < TEST_COUNT(lengths); l++) {
            if (widths[w] * lengths[l] > 100000)
                continue;
            check(build_reduction(OG_COLUMNS, widths[w], lengths[l], false, OG_FLOAT32), w, false);
            check(build_reduction(OG_COLUMNS, widths[w], lengths[l], true, OG_FLOAT32), l, true);
        }
}

static void test_reduction_dtypes(void **unused)
{
    (void)unused;
    for (int dtype = 0; dtype < OG_FLOAT_COUNT; dtype++)
        for (int order = 0; order < 2; order++)
            for (int computed = 0; computed < 2; computed++) {
                check(build_reduction((og_order)order, 9, 70, computed, (og_dtype)dtype), 1, false);
                check(build_reduction((og_order)order, 3, 700, computed, (og_dtype)dtype), 2, true);
                check(build_reduction((og_order)order, 600, 70, computed, (og_dtype)dtype), 3,
                      false);
            }
}

/* Sums alone: columns are read from memory without a step in between. */
static void test_plain_sums(void **unused)
{
    static const int64_t shapes[][2] = {{1, 5000}, {3, 200}, {64, 64}, {700, 129}, {9000, 3}};
    (void)unused;
    for (size_t s = 0; s < TEST_COUNT(shapes); s++)
        for (int order = 0; order < 2; order++) {
            int64_t rows = shapes[s][0], n = shapes[s][1];
            builder *b = begin((og_order)order, 2, shapes[s], 1);
            int64_t strides[2] = {order ? 1 : n + 3, order ? rows + 5 : 1};
            int32_t x = load(b, add_access(b, OG_BUFFER_INPUT, OG_FLOAT32, strides));
            int32_t sum = reduce(b, OG_OP_sum, x);
            store(b, add_access(b, OG_BUFFER_OUTPUT, OG_FLOAT32, (int64_t[]){1, 0}), sum);
            check(b, s, false);
        }
}

/* softmax(x) * w: the row stays for a second pass; w varies along the row only. */
static builder *build_softmax(og_order order, int64_t rows, int64_t n, og_dtype dtype)
{
    builder *b = begin(order, 2, (int64_t[]){rows, n}, 1);
    int64_t strides[2] = {order == OG_ROWS ? n : 1, order == OG_ROWS ? 1 : rows};
    int32_t in = add_access(b, OG_BUFFER_INPUT, dtype, strides);
    int32_t x = load(b, in);
    int32_t m = reduce(b, OG_OP_row_max, x), s = reduce(b, OG_OP_sumexp, x);
    int32_t d = map(b, OG_OP_add, s, map(b, OG_OP_sub, m, m));
    next_pass(b);
    x = load(b, in);
    int32_t w = load(b, add_access(b, OG_BUFFER_INPUT, dtype, (int64_t[]){0, 1}));
    int32_t y = map(b, OG_OP_div, map(b, OG_OP_exp, map(b, OG_OP_sub, x, m), -1), d);
    store(b, add_access(b, OG_BUFFER_OUTPUT, dtype, strides), map(b, OG_OP_mul, y, w));
    return b;
}

/* exp(x - m) and its sum's value: terms that the backend may keep from the sum, also
 * where m is infinite and they are not the sum's. */
static builder *build_exponentials(int64_t rows, int64_t n, og_dtype dtype)
{
    builder *b = begin(OG_ROWS, 2, (int64_t[]){rows, n}, 1);
    int32_t in = add_access(b, OG_BUFFER_INPUT, dtype, (int64_t[]){n, 1});
    og_type type = type_of(dtype);
    int32_t x = map(b, OG_OP_mul, load(b, in), constant(b, type, 0.5));
    int32_t m = reduce(b, OG_OP_amax, x), s = reduce(b, OG_OP_sumexp, x);
    next_pass(b);
    x = map(b, OG_OP_mul, load(b, in), constant(b, type, 0.5));
    int32_t e = map(b, OG_OP_exp, map(b, OG_OP_sub, x, m), -1);
    store(b, add_access(b, OG_BUFFER_OUTPUT, dtype, (int64_t[]){n, 1}), e);
    store(b, add_access(b, OG_BUFFER_OUTPUT, dtype, (int64_t[]){n, 1}), map(b, OG_OP_mul, e, s));
    return b;
}

/* softmax(x) * softmax(y): two kinds of terms, one place to store. */
static builder *build_two_softmaxes(int64_t rows, int64_t n)
{
    builder *b = begin(OG_ROWS, 2, (int64_t[]){rows, n}, 1);
    int32_t in[2], m[2], s[2], e[2], x[2];
    for (int i = 0; i < 2; i++) {
        in[i] = add_access(b, OG_BUFFER_INPUT, OG_FLOAT32, (int64_t[]){n, 1});
        x[i] = load(b, in[i]);
    }
    for (int i = 0; i < 2; i++) {
        m[i] = reduce(b, OG_OP_row_max, x[i]);
        s[i] = reduce(b, OG_OP_sumexp, x[i]);
    }
    next_pass(b);
    for (int i = 0; i < 2; i++)
        e[i] = map(b, OG_OP_exp, map(b, OG_OP_sub, load(b, in[i]), m[i]), -1);
    for (int i = 0; i < 2; i++)
        e[i] = map(b, OG_OP_div, e[i], s[i]);
    store(b, add_access(b, OG_BUFFER_OUTPUT, OG_FLOAT32, (int64_t[]){n, 1}),
          map(b, OG_OP_mul, e[0], e[1]));
    return b;
}

static void test_kept_exponentials(void **unused)
{
    (void)unused;
    check(build_two_softmaxes(30, 50), 0, false);
    check(build_two_softmaxes(3, 5000), 2, false);
    for (int dtype = 0; dtype < OG_FLOAT_COUNT; dtype++)
        for (uint64_t seed = 0; seed < 4; seed++) {
            check(build_exponentials(30, 5, (og_dtype)dtype), seed, true);
            check(build_exponentials(50, 60, (og_dtype)dtype), seed, seed % 2);
            check(build_exponentials(5, 2000, (og_dtype)dtype), seed, seed % 2);
            check(build_exponentials(1, 17000, (og_dtype)dtype), seed, seed % 2);
        }
}

static void test_softmax(void **unused)
{
    static const int64_t shapes[][2] = {{1, 1},   {100, 1},  {40, 8},    {33, 64},   {7, 500},
                                        {5, 513}, {3, 4096}, {2, 16500}, {1, 50000}, {513, 65}};
    (void)unused;
    for (size_t s = 0; s < TEST_COUNT(shapes); s++)
        for (int order = 0; order < 2; order++)
            for (int dtype = 0; dtype < OG_FLOAT_COUNT; dtype++) {
                if (dtype && shapes[s][0] * shapes[s][1] > 20000)
                    continue;
                check(build_softmax((og_order)order, shapes[s][0], shapes[s][1], (og_dtype)dtype),
                      s, s % 3 == 1);
            }
}

/* ---- pointwise ------------------------------------------------------------------- */

/* x * sigmoid(x) + y over a space, with any strides of x, y and the result. */
static void check_pointwise(int32_t rank, const int64_t *extents, const int64_t *x_stride,
                            const int64_t *y_stride, const int64_t *out_stride, og_dtype dtype)
{
    builder *b = begin(OG_ROWS, rank, extents, 0);
    int32_t x = load(b, add_access(b, OG_BUFFER_INPUT, dtype, x_stride));
    int32_t y = load(b, add_access(b, OG_BUFFER_INPUT, dtype, y_stride));
    int32_t product = map(b, OG_OP_mul, x, map(b, OG_OP_sigmoid, x, -1));
    int32_t sum = map(b, OG_OP_add, product, y);
    store(b, add_access(b, OG_BUFFER_OUTPUT, dtype, out_stride), sum);
    check(b, (uint64_t)extents[0] + (uint64_t)dtype, true);
}

static void test_pointwise_layouts(void **unused)
{
    (void)unused;
    for (int t = 0; t < OG_FLOAT_COUNT; t++) {
        og_dtype dtype = (og_dtype)t;
        int64_t none[1] = {1};
        check_pointwise(0, none, none, none, none, dtype);
        static const int64_t lengths[] = {1, 2, 15, 16, 17, 511, 4096, 4097, 20001};
        for (size_t l = 0; l < TEST_COUNT(lengths); l++) {
            int64_t n[1] = {lengths[l]};
            check_pointwise(1, n, (int64_t[]){1}, (int64_t[]){1}, (int64_t[]){1}, dtype);
            check_pointwise(1, n, (int64_t[]){2}, (int64_t[]){0}, (int64_t[]){1}, dtype);
            check_pointwise(1, n, (int64_t[]){-1}, (int64_t[]){1}, (int64_t[]){3}, dtype);
        }
        static const int64_t sizes[][2] = {{2, 3}, {64, 64}, {100, 70}, {5, 600}, {600, 5}};
        for (size_t s = 0; s < TEST_COUNT(sizes); s++) {
            int64_t m = sizes[s][0], n = sizes[s][1];
            check_pointwise(2, sizes[s], (int64_t[]){n, 1}, (int64_t[]){0, 1}, (int64_t[]){n, 1},
                            dtype);
            check_pointwise(2, sizes[s], (int64_t[]){n, 1}, (int64_t[]){1, 0}, (int64_t[]){n, 1},
                            dtype);
            check_pointwise(2, sizes[s], (int64_t[]){1, m}, (int64_t[]){n, 1}, (int64_t[]){n, 1},
                            dtype);
            check_pointwise(2, sizes[s], (int64_t[]){n, 1}, (int64_t[]){n, 1}, (int64_t[]){1, m},
                            dtype);
            check_pointwise(2, sizes[s], (int64_t[]){n + 2, 1}, (int64_t[]){0, 0},
                            (int64_t[]){n + 1, 1}, dtype);
        }
        int64_t cube[3] = {9, 11, 13};
        check_pointwise(3, cube, (int64_t[]){1, 9, 99}, (int64_t[]){0, 13, 1},
                        (int64_t[]){143, 13, 1}, dtype);
        check_pointwise(3, cube, (int64_t[]){13, 117, 1}, (int64_t[]){11, 1, 99},
                        (int64_t[]){13, 117, 1}, dtype);
    }
}

/* Every form of an argument: blocks, elements of memory, constants. */
static void test_forms(void **unused)
{
    (void)unused;
    for (int t = 0; t < 2; t++) {
        og_dtype dtype = t ? OG_FLOAT64 : OG_FLOAT32;
        og_type type = type_of(dtype);
        builder *b = begin(OG_ROWS, 2, (int64_t[]){30, 40}, 0);
        int64_t full[2] = {40, 1};
        int32_t block = load(b, add_access(b, OG_BUFFER_INPUT, dtype, full));
        int32_t one = load(b, add_access(b, OG_BUFFER_INPUT, dtype, (int64_t[]){0, 0}));
        int32_t number = constant(b, type, 0.75);
        int32_t both = map(b, OG_OP_sub, one, number);
        int32_t some = add_instr(b, OG_OP_lt, type, OG_MASK32, 0, block, number, -1);
        int32_t all = add_instr(b, OG_OP_lt, type, OG_MASK32, 0, one, number, -1);
        int32_t values[] = {block, both};
        int32_t sum = map(b, OG_OP_sub, number, block);
        for (int m = 0; m < 2; m++)
            for (int x = 0; x < 2; x++)
                for (int y = 0; y < 2; y++) {
                    int32_t w = add_instr(b, OG_OP_where, type, type, 0, m ? some : all, values[x],
                                          values[y]);
                    sum = map(b, x ? OG_OP_add : OG_OP_maximum, sum, w);
                    sum = map(b, OG_OP_div, both, sum);
                }
        store(b, add_access(b, OG_BUFFER_OUTPUT, dtype, full), sum);
        store(b, add_access(b, OG_BUFFER_OUTPUT, dtype, full), both);
        store(b, add_access(b, OG_BUFFER_OUTPUT, dtype, full), block);
        check(b, 7, true);
    }
}

/* Every function of the language, on blocks and with constants. */
static void test_functions(void **unused)
{
    (void)unused;
    for (int op = 0; op < OG_FUNCTION_COUNT; op++) {
        const og_function *function = og_function_of((og_op)op);
        if (function->kind != OG_SCALAR && function->kind != OG_MASKING)
            continue;
        for (int t = 0; t < 2; t++) {
            og_dtype dtype = t ? OG_FLOAT64 : OG_FLOAT32;
            og_type type = type_of(dtype);
            builder *b = begin(OG_ROWS, 1, (int64_t[]){777}, 0);
            int64_t stride[1] = {1};
            int32_t x = load(b, add_access(b, OG_BUFFER_INPUT, dtype, stride));
            int32_t y = -1;
            if (function->kind == OG_MASKING || function->args == 2)
                y = load(b, add_access(b, OG_BUFFER_INPUT, dtype, stride));
            int32_t at = b->kernel.constant_count;
            for (int k = 0; k < function->constants; k++)
                b->constants[b->kernel.constant_count++] = 0.5 + k;
            bool masks = function->kind == OG_MASKING;
            int32_t r = add_instr(b, (og_op)op, type, masks ? OG_MASK32 : type, at, x, y, -1);
            if (masks)
                r = add_instr(b, OG_OP_where, type, type, 0, r, x, y);
            store(b, add_access(b, OG_BUFFER_OUTPUT, dtype, stride), r);
            check(b, (uint64_t)op, true);
        }
    }
}

static void test_conversions(void **unused)
{
    (void)unused;
    for (int from = 0; from < 2; from++)
        for (int to = 0; to < OG_FLOAT_COUNT; to++) {
            builder *b = begin(OG_ROWS, 1, (int64_t[]){5000}, 0);
            int64_t stride[1] = {1};
            og_dtype source = from ? OG_FLOAT64 : OG_FLOAT32;
            int32_t x = load(b, add_access(b, OG_BUFFER_INPUT, source, stride));
            int32_t r = add_instr(b, OG_OP_CONVERT, type_of((og_dtype)to), type_of((og_dtype)to),
                                  to, x, -1, -1);
            og_dtype result = to == OG_FLOAT64 ? OG_FLOAT64 : OG_FLOAT32;
            store(b, add_access(b, OG_BUFFER_OUTPUT, result, stride), r);
            check(b, (uint64_t)to, true);
        }
}

/* ---- in place -------------------------------------------------------------------- */

/* Output 0 is input `input`: same layout. */
static void check_in_place(builder *b, int32_t input)
{
    int32_t in = -1, out = -1;
    for (int32_t i = 0; i < b->plan.buffer_count; i++) {
        if (b->buffers[i].kind == OG_BUFFER_INPUT && b->buffers[i].index == input)
            in = i;
        if (b->buffers[i].kind == OG_BUFFER_OUTPUT && b->buffers[i].index == 0)
            out = i;
    }
    b->may_alias[input] = true;
    memory_set want, got;
    allocate_set(b, &want, 5, true);
    interpret_kernel(b, want.first);
    const char *level;
    for (size_t l = 0; (level = ogive_cpu_level_name(l)); l++)
        for (size_t t = 0; t < TEST_COUNT(tunings); t++) {
            allocate_set(b, &got, 5, true);
            size_t bytes = (size_t)b->counts[in] * og_dtype_bytes(b->buffers[in].dtype);
            memcpy(got.guards[out].data, got.guards[in].data, bytes);
            got.first[in] = got.first[out];
            run_backend(b, &got, level, 1 + (int)t, &tunings[t], true);
            compare_outputs(b, &got, &want, level, 1 + (int)t);
            free_set(b, &got);
        }
    free_set(b, &want);
    free(b);
}

static void test_in_place(void **unused)
{
    (void)unused;
    for (int dtype = 0; dtype < OG_FLOAT_COUNT; dtype++) {
        for (int order = 0; order < 2; order++)
            for (int n = 60; n <= 600; n *= 10)
                check_in_place(build_softmax((og_order)order, 70, n, (og_dtype)dtype), 0);
        /* y, x * y, x: the first result overwrites x, which two others read. */
        builder *b = begin(OG_ROWS, 1, (int64_t[]){9000}, 0);
        int64_t stride[1] = {1};
        int32_t x = load(b, add_access(b, OG_BUFFER_INPUT, (og_dtype)dtype, stride));
        int32_t y = load(b, add_access(b, OG_BUFFER_INPUT, (og_dtype)dtype, stride));
        store(b, add_access(b, OG_BUFFER_OUTPUT, (og_dtype)dtype, stride),
              map(b, OG_OP_neg, y, -1));
        store(b, add_access(b, OG_BUFFER_OUTPUT, (og_dtype)dtype, stride), map(b, OG_OP_mul, x, y));
        store(b, add_access(b, OG_BUFFER_OUTPUT, (og_dtype)dtype, stride), x);
        check_in_place(b, 0);
        /* exp(x), sum(x) and sumexp(x) in one pass. */
        for (int n = 60; n <= 40000; n *= 20) {
            b = begin(OG_ROWS, 2, (int64_t[]){3, n}, 1);
            x = load(b, add_access(b, OG_BUFFER_INPUT, (og_dtype)dtype, (int64_t[]){n, 1}));
            store(b, add_access(b, OG_BUFFER_OUTPUT, (og_dtype)dtype, (int64_t[]){n, 1}),
                  map(b, OG_OP_exp, x, -1));
            int32_t s = reduce(b, OG_OP_sum, x), e = reduce(b, OG_OP_sumexp, x);
            store(b, add_access(b, OG_BUFFER_OUTPUT, (og_dtype)dtype, (int64_t[]){1, 0}), s);
            store(b, add_access(b, OG_BUFFER_OUTPUT, (og_dtype)dtype, (int64_t[]){1, 0}), e);
            check_in_place(b, 0);
        }
    }
}

/* ---- empty ----------------------------------------------------------------------- */

static void test_empty(void **unused)
{
    (void)unused;
    for (int order = 0; order < 2; order++)
        for (int t = 0; t < 2; t++) {
            og_dtype dtype = t ? OG_FLOAT64 : OG_FLOAT32;
            check(build_reduction((og_order)order, 37, 0, false, dtype), 1, false);
            check(build_reduction((og_order)order, 0, 37, true, dtype), 1, false);
            check(build_softmax((og_order)order, 600, 0, dtype), 1, false);
        }
    check_pointwise(2, (int64_t[]){0, 5}, (int64_t[]){5, 1}, (int64_t[]){0, 1}, (int64_t[]){5, 1},
                    OG_FLOAT32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths),           cmocka_unit_test(test_column_widths),
        cmocka_unit_test(test_reduction_dtypes),  cmocka_unit_test(test_plain_sums),
        cmocka_unit_test(test_softmax),           cmocka_unit_test(test_kept_exponentials),
        cmocka_unit_test(test_pointwise_layouts), cmocka_unit_test(test_forms),
        cmocka_unit_test(test_functions),         cmocka_unit_test(test_conversions),
        cmocka_unit_test(test_in_place),          cmocka_unit_test(test_empty),
    };
    return TEST_RUN(tests);
}
