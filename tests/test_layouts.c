/* SPDX-License-Identifier: MIT
 *
 * test_layouts.c - no byte outside of a tensor or the workspace is touched: every
 * input, output and workspace lies against an inaccessible page, behind or before,
 * for a list of formulas, lengths, misalignments and strides, in place too; and
 * the bits are those of the plain contiguous case (but for float64).
 */
#include "test.h"

/* Formulas over x and, some, y; x is (n), or (rows, n) where it has rows. */
typedef struct {
    const char *text;
    bool has_y, has_rows, in_place;
    int results; /* per row, for a formula that has rows: 0 is n, else 1 */
} layout_formula;

static const layout_formula formulas[] = {
    {"sigmoid(x)", false, false, true, 0},
    {"x * sigmoid(x) + y", true, false, true, 0},
    {"where(x > y, x, y * 2) - clamp(x, -1, 1)", true, false, true, 0},
    {"sum(x, dim=1)", false, true, false, 1},
    {"softmax(x, dim=1)", false, true, true, 0},
    {"x - mean(x, dim=1, keepdim=true) * y", true, true, true, 0},
    {"amax(x * y, dim=1)", true, true, false, 1},
};

enum { ROWS = 3 };

/* Where a tensor lies: n elements a row. */
typedef struct {
    int64_t step, gap; /* elements from one to the next; between rows, besides */
    int64_t shift;     /* elements of misalignment from the page */
} geometry;

static const geometry geometries[] = {
    {1, 0, 0}, {1, 0, 1}, {1, 0, 3}, {1, 5, 7}, {2, 0, 0}, {3, 1, 2}, {-1, 0, 0}, {-2, 3, 1},
};

static const DLDataType dtypes[] = {
    {kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}, {kDLFloat, 64, 1}};

typedef struct {
    test_guard guard;
    test_tensor tensor;
    int64_t rows, n;
} guarded;

/* A tensor of rows x n (or of n, if rows is 0) between guard pages, the one chosen
 * right next to it but for the shift. */
static DLTensor *guard_tensor(guarded *t, DLDataType dtype, int64_t rows, int64_t n, geometry g,
                              test_place at)
{
    size_t size = dtype.bits / 8;
    int64_t step = g.step < 0 ? -g.step : g.step, lines = rows ? rows : 1;
    int64_t row = step * n + g.gap, used = n ? (lines - 1) * row + (n - 1) * step + 1 : 0;
    t->guard = test_guard_alloc((size_t)(used + g.shift) * size, at);
    /* At the end the shift lies before the tensor, so that its last byte is the last;
     * at the start it does too, which tries other alignments. */
    int64_t first = g.shift + (g.step < 0 && used ? used - 1 : 0);
    int64_t sign = g.step < 0 ? -1 : 1;
    int64_t shape[] = {rows, n}, strides[] = {sign * row, g.step};
    DLTensor *tensor =
        rows ? test_tensor_init(&t->tensor, (char *)t->guard.data + (size_t)first * size, dtype, 2,
                                shape, strides)
             : test_tensor_init(&t->tensor, (char *)t->guard.data + (size_t)first * size, dtype, 1,
                                shape + 1, strides + 1);
    t->rows = rows;
    t->n = n;
    return tensor;
}

/* Element i of row r. */
static char *element(const guarded *t, int64_t r, int64_t i)
{
    const DLTensor *tensor = &t->tensor.tensor;
    int64_t offset = tensor->ndim == 2 ? r * t->tensor.strides[0] + i * t->tensor.strides[1]
                                       : i * t->tensor.strides[0];
    return (char *)tensor->data + offset * (tensor->dtype.bits / 8);
}

static uint64_t get_bits(const guarded *t, int64_t r, int64_t i)
{
    uint64_t bits = 0;
    memcpy(&bits, element(t, r, i), t->tensor.tensor.dtype.bits / 8);
    return bits;
}

/* Ordinary numbers, the same for the same place, whatever the layout. */
static void fill(guarded *t, int salt)
{
    DLDataType dtype = t->tensor.tensor.dtype;
    for (int64_t r = 0; r < (t->rows ? t->rows : 1); r++)
        for (int64_t i = 0; i < t->n; i++) {
            int64_t mixed = (i * 7919 + r * 104729 + salt * 31337) % 2000 - 1000;
            double f64 = (double)mixed / 256;
            float f32 = (float)f64;
            uint16_t bf16 = (uint16_t)(test_bits_f32(f32) >> 16);
            uint16_t f16 = (uint16_t)(0x3000 + (mixed & 0x8fff) % 0x1400);
            memcpy(element(t, r, i),
                   dtype.bits == 64          ? (void *)&f64
                   : dtype.bits == 32        ? (void *)&f32
                   : dtype.code == kDLBfloat ? (void *)&bf16
                                             : (void *)&f16,
                   dtype.bits / 8);
        }
}

static bool is_nan_bits(DLDataType dtype, uint64_t bits)
{
    if (dtype.bits == 64)
        return isnan(test_float_f64(bits));
    if (dtype.bits == 32)
        return isnan(test_float_f32((uint32_t)bits));
    return (bits & 0x7fff) > (dtype.code == kDLBfloat ? 0x7f80u : 0x7c00u);
}

/* One run between guards. want is the result of the contiguous run, or NULL to
 * set it. */
static void run_guarded(ogive_formula *f, const layout_formula *of, DLDataType dtype, int64_t n,
                        geometry g, test_place at, bool in_place, guarded *want)
{
    ogive_error error;
    guarded x, y, own;
    int64_t rows = of->has_rows ? ROWS : 0;
    const DLTensor *in[2] = {guard_tensor(&x, dtype, rows, n, g, at)};
    fill(&x, 1);
    if (of->has_y) {
        in[1] =
            guard_tensor(&y, dtype, rows, n, g, at == TEST_AT_END ? TEST_AT_START : TEST_AT_END);
        fill(&y, 2);
        test_guard_freeze(&y.guard);
    }
    guarded *z = in_place ? &x : &own;
    if (!in_place) {
        guard_tensor(&own, dtype, of->results ? 0 : rows, of->results ? ROWS : n, g, at);
        test_guard_freeze(&x.guard);
    }
    const DLTensor *out[1] = {&z->tensor.tensor};
    ogive_plan *plan;
    TEST_OK(ogive_plan_create(f, in, of->has_y ? 2 : 1, out, 1, NULL, &plan, &error), error);
    size_t bytes = ogive_plan_workspace(plan);
    /* Against the last page only if its size is a multiple of its alignment. */
    test_guard workspace = test_guard_alloc(bytes, bytes % 64 ? TEST_AT_START : at);
    TEST_OK(ogive_plan_run(plan, (const void *[]){in[0]->data, of->has_y ? in[1]->data : NULL},
                           (void *[]){out[0]->data}, bytes ? workspace.data : NULL, NULL, &error),
            error);
    if (!want->guard.map) {
        *want = *z;
        want->tensor.tensor.shape = NULL; /* moved: only element() may be used */
    } else {
        for (int64_t r = 0; r < (z->rows ? z->rows : 1); r++)
            for (int64_t i = 0; i < z->n; i++) {
                uint64_t a = get_bits(z, r, i), b = get_bits(want, r, i);
                if (a != b && dtype.bits < 64 && /* which promises no bits */
                    !(is_nan_bits(dtype, a) && is_nan_bits(dtype, b)))
                    fail_msg("%s, %d bits, n %" PRId64 ", step %" PRId64 ", gap %" PRId64
                             ", shift %" PRId64 "%s: row %" PRId64 " element %" PRId64
                             " is %" PRIx64 ", contiguous %" PRIx64,
                             of->text, dtype.bits, n, g.step, g.gap, g.shift,
                             in_place ? ", in place" : "", r, i, a, b);
            }
        test_guard_free(&z->guard);
    }
    if (!in_place)
        test_guard_free(&x.guard);
    if (of->has_y)
        test_guard_free(&y.guard);
    test_guard_free(&workspace);
    ogive_plan_release(plan);
}

static void check_length(int64_t n, bool all)
{
    for (size_t f = 0; f < TEST_COUNT(formulas); f++) {
        const layout_formula *of = &formulas[f];
        ogive_formula *formula;
        ogive_error error;
        if (n == 0 && strstr(of->text, "amax"))
            continue;
        TEST_OK(ogive_formula_create(of->text, OGIVE_TEXT, &formula, &error), error);
        for (size_t t = 0; t < TEST_COUNT(dtypes); t++) {
            guarded want = {.guard = {.map = NULL}};
            run_guarded(formula, of, dtypes[t], n, geometries[0], TEST_AT_END, false, &want);
            /* Every geometry for some lengths; for the others each in its turn. */
            for (size_t g = 0; g < TEST_COUNT(geometries); g++) {
                if (!all && (g + (size_t)n + t) % 3 != 0)
                    continue;
                test_place at = (g + (size_t)n) % 2 ? TEST_AT_START : TEST_AT_END;
                run_guarded(formula, of, dtypes[t], n, geometries[g], at, false, &want);
                if (of->in_place && (all || g % 2 == (size_t)n % 2))
                    run_guarded(formula, of, dtypes[t], n, geometries[g], at, true, &want);
            }
            test_guard_free(&want.guard);
        }
        ogive_formula_release(formula);
    }
}

static void test_short(void **state)
{
    (void)state;
    for (int64_t n = 0; n <= 70; n++)
        check_length(n, n < 18 || n % 16 == 0);
}

static void test_long(void **state)
{
    (void)state;
    static const int64_t lengths[] = {127,  128,  129,  255,  256,  257,   511,   512,   513,  1023,
                                      1024, 1025, 2049, 4097, 8191, 16383, 16384, 16385, 32769};
    for (size_t l = 0; l < TEST_COUNT(lengths); l++)
        check_length(lengths[l], false);
}

/* Matrices read against the grain: both guards, all four ways to lay out a pair. */
static void test_transposed(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{1, 1},   {2, 3},   {5, 7},   {16, 16}, {17, 33},
                                        {64, 65}, {129, 4}, {3, 513}, {70, 130}};
    ogive_formula *f;
    ogive_error error;
    TEST_OK(ogive_formula_create("transpose(x, 0, 1) * 2 + 1", OGIVE_TEXT, &f, &error), error);
    for (size_t s = 0; s < TEST_COUNT(shapes); s++)
        for (int way = 0; way < 8; way++) {
            int64_t rows = shapes[s][0], cols = shapes[s][1], count = rows * cols;
            test_place at = way & 4 ? TEST_AT_START : TEST_AT_END;
            test_guard x = test_guard_alloc((size_t)count * sizeof(float), at);
            test_guard y = test_guard_alloc((size_t)count * sizeof(float), at);
            const int64_t shape[] = {rows, cols}, turned[] = {cols, rows};
            const int64_t in_strides[2][2] = {{cols, 1}, {1, rows}};
            const int64_t out_strides[2][2] = {{rows, 1}, {1, cols}};
            const int64_t *a = in_strides[way & 1], *b = out_strides[way >> 1 & 1];
            float *from = x.data, *to = y.data;
            for (int64_t i = 0; i < count; i++)
                from[i / cols * a[0] + i % cols * a[1]] = (float)i;
            test_guard_freeze(&x);
            test_tensor in_tensor, out_tensor;
            const DLTensor *in[] = {test_tensor_init(&in_tensor, from, test_float32, 2, shape, a)};
            const DLTensor *out[] = {test_tensor_init(&out_tensor, to, test_float32, 2, turned, b)};
            TEST_OK(ogive_run(f, in, 1, out, 1, NULL, &error), error);
            for (int64_t i = 0; i < count; i++)
                assert_true(to[i % cols * b[0] + i / cols * b[1]] == (float)(2 * i + 1));
            test_guard_free(&x);
            test_guard_free(&y);
        }
    ogive_formula_release(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_short),
        cmocka_unit_test(test_long),
        cmocka_unit_test(test_transposed),
    };
    return TEST_RUN(tests);
}
