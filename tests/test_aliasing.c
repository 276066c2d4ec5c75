/* SPDX-License-Identifier: MIT
 *
 * test_aliasing.c - outputs that are inputs, or share memory with them: legal
 * where every read happens at the index being written, and then with the same
 * bits as out of place; refused everywhere else, before a byte is written.
 */
#include "test.h"

#include "api/api.h"

static ogive_error error;

enum { ROOM = 4096 };

/* A tensor at an element of the one buffer that all tensors of a case lie in. */
typedef struct {
    int64_t first;
    int rank;
    int64_t shape[3], strides[3];
} spot;

typedef struct {
    const char *text;
    spot inputs[3]; /* rank -1 beyond the last */
    spot outputs[2];
    bool legal;
} alias_case;

static float *new_buffer(const char *name)
{
    test_random random = test_random_named(name);
    float *buffer = aligned_alloc(64, ROOM * sizeof *buffer);
    for (int i = 0; i < ROOM; i++)
        buffer[i] = (float)test_random_range(&random, -3, 3);
    return buffer;
}

static size_t place(const spot *spots, size_t most, float *buffer, test_tensor *tensors,
                    const DLTensor **out)
{
    size_t count = 0;
    for (; count < most && spots[count].rank >= 0; count++)
        out[count] = test_tensor_init(&tensors[count], buffer + spots[count].first, test_float32,
                                      spots[count].rank, spots[count].shape, spots[count].strides);
    return count;
}

static int64_t count_elements(const spot *s)
{
    int64_t count = 1;
    for (int d = 0; d < s->rank; d++)
        count *= s->shape[d];
    return count;
}

static int64_t find_offset(const spot *s, int64_t element)
{
    int64_t offset = s->first;
    for (int d = s->rank - 1; d >= 0; d--) {
        offset += element % s->shape[d] * s->strides[d];
        element /= s->shape[d];
    }
    return offset;
}

/* Whole rows and columns of a buffer seen as a 32 x 32 matrix, and so on. */
#define NONE                                                                                       \
    {                                                                                              \
        0, -1, {0},                                                                                \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }
#define VECTOR(first, n, stride)                                                                   \
    {                                                                                              \
        first, 1, {n},                                                                             \
        {                                                                                          \
            stride                                                                                 \
        }                                                                                          \
    }
#define MATRIX(first, rows, cols, row_stride, col_stride)                                          \
    {                                                                                              \
        first, 2, {rows, cols},                                                                    \
        {                                                                                          \
            row_stride, col_stride                                                                 \
        }                                                                                          \
    }

static const alias_case cases[] = {
    /* at the same index */
    {"sigmoid(x)", {VECTOR(0, 1000, 1), NONE}, {VECTOR(0, 1000, 1), NONE}, true},
    {"x", {VECTOR(0, 1000, 1), NONE}, {VECTOR(0, 1000, 1), NONE}, true},
    {"sigmoid(x)", {VECTOR(2999, 1000, -3), NONE}, {VECTOR(2999, 1000, -3), NONE}, true},
    {"exp(x) - x * x", {MATRIX(5, 30, 31, 2, 64), NONE}, {MATRIX(5, 30, 31, 2, 64), NONE}, true},
    {"x * sigmoid(x) + y",
     {VECTOR(0, 1000, 1), VECTOR(2000, 1000, 1), NONE},
     {VECTOR(0, 1000, 1), NONE},
     true},
    {"x * sigmoid(x) + y",
     {VECTOR(0, 1000, 1), VECTOR(2000, 1000, 1), NONE},
     {VECTOR(2000, 1000, 1), NONE},
     true},
    {"x + y", {VECTOR(0, 1000, 1), VECTOR(0, 1000, 1), NONE}, {VECTOR(0, 1000, 1), NONE}, true},
    {"softmax(x, dim=1)", {MATRIX(0, 30, 40, 40, 1), NONE}, {MATRIX(0, 30, 40, 40, 1), NONE}, true},
    {"softmax(x, dim=0)", {MATRIX(0, 30, 40, 40, 1), NONE}, {MATRIX(0, 30, 40, 40, 1), NONE}, true},
    {"layer_norm(x, (40,))",
     {MATRIX(0, 30, 40, 50, 1), NONE},
     {MATRIX(0, 30, 40, 50, 1), NONE},
     true},
    {"x - mean(x, dim=1, keepdim=true)",
     {MATRIX(0, 30, 40, 40, 1), NONE},
     {MATRIX(0, 30, 40, 40, 1), NONE},
     true},
    /* several results, one of them in place */
    {"x + 1, sum(x, dim=1)",
     {MATRIX(0, 30, 40, 40, 1), NONE},
     {MATRIX(0, 30, 40, 40, 1), VECTOR(2000, 30, 1)},
     true},
    {"x * y, x + y",
     {VECTOR(0, 900, 1), VECTOR(1000, 900, 1), NONE},
     {VECTOR(1000, 900, 1), VECTOR(0, 900, 1)},
     true},
    {"x - y, x * y",
     {VECTOR(0, 900, 1), VECTOR(1000, 900, 1), NONE},
     {VECTOR(0, 900, 1), VECTOR(2000, 900, 1)},
     true},
    /* a row operand where a row result goes */
    {"b + sum(x, dim=1)",
     {VECTOR(2000, 30, 1), MATRIX(0, 30, 40, 40, 1), NONE},
     {VECTOR(2000, 30, 1), NONE},
     true},

    /* apart, in one buffer: even and odd, halves of columns, rows that alternate */
    {"sigmoid(x)", {VECTOR(0, 1000, 2), NONE}, {VECTOR(1, 1000, 2), NONE}, true},
    {"sigmoid(x)", {MATRIX(0, 30, 16, 32, 1), NONE}, {MATRIX(16, 30, 16, 32, 1), NONE}, true},
    {"sigmoid(x)", {MATRIX(0, 15, 32, 64, 1), NONE}, {MATRIX(32, 15, 32, 64, 1), NONE}, true},
    {"softmax(x, dim=1)", {MATRIX(0, 30, 16, 32, 2), NONE}, {MATRIX(1, 30, 16, 32, 2), NONE}, true},
    {"x, -x", {VECTOR(0, 100, 1), NONE}, {VECTOR(200, 100, 2), VECTOR(201, 100, 2)}, true},
    {"sigmoid(x)", {VECTOR(0, 100, 1), NONE}, {VECTOR(100, 100, 1), NONE}, true},
    {"x + y", {VECTOR(0, 0, 1), VECTOR(0, 1, 1), NONE}, {VECTOR(0, 0, 1), NONE}, true},

    /* partly */
    {"sigmoid(x)", {VECTOR(0, 1000, 1), NONE}, {VECTOR(1, 1000, 1), NONE}, false},
    {"sigmoid(x)", {VECTOR(1, 1000, 1), NONE}, {VECTOR(0, 1000, 1), NONE}, false},
    {"sigmoid(x)", {VECTOR(0, 1000, 1), NONE}, {VECTOR(999, 1000, 1), NONE}, false},
    {"sigmoid(x)", {VECTOR(0, 1000, 2), NONE}, {VECTOR(2, 1000, 2), NONE}, false},
    {"sigmoid(x)", {MATRIX(0, 30, 20, 32, 1), NONE}, {MATRIX(16, 30, 20, 32, 1), NONE}, false},
    /* the same start, other strides */
    {"sigmoid(x)", {MATRIX(0, 30, 30, 30, 1), NONE}, {MATRIX(0, 30, 30, 1, 30), NONE}, false},
    {"sigmoid(x)", {VECTOR(0, 500, 2), NONE}, {VECTOR(0, 500, 1), NONE}, false},
    {"sigmoid(x)", {VECTOR(999, 1000, -1), NONE}, {VECTOR(0, 1000, 1), NONE}, false},
    {"transpose(x, 0, 1)",
     {MATRIX(0, 30, 30, 30, 1), NONE},
     {MATRIX(0, 30, 30, 30, 1), NONE},
     false},
    {"x + transpose(x, 0, 1)",
     {MATRIX(0, 30, 30, 30, 1), NONE},
     {MATRIX(0, 30, 30, 30, 1), NONE},
     false},
    /* read again after it was written, or at other indices */
    {"x + y",
     {MATRIX(0, 30, 40, 40, 1), VECTOR(0, 40, 1), NONE},
     {MATRIX(0, 30, 40, 40, 1), NONE},
     false},
    {"x + y",
     {VECTOR(0, 40, 1), MATRIX(40, 30, 40, 40, 1), NONE},
     {MATRIX(0, 30, 40, 40, 1), NONE},
     false},
    {"x - amax(x)", {MATRIX(0, 30, 40, 40, 1), NONE}, {MATRIX(0, 30, 40, 40, 1), NONE}, true},
    {"x + 1, softmax(x, dim=1)",
     {MATRIX(0, 30, 40, 40, 1), NONE},
     {MATRIX(0, 30, 40, 40, 1), MATRIX(1500, 30, 40, 40, 1)},
     false},
    {"sum(x, dim=1)", {MATRIX(0, 30, 40, 40, 1), NONE}, {VECTOR(0, 30, 1), NONE}, false},
    {"sum(x, dim=1)", {MATRIX(0, 30, 40, 40, 1), NONE}, {VECTOR(39, 30, 40), NONE}, false},
    {"x * y",
     {VECTOR(0, 1000, 1), VECTOR(500, 1000, 1), NONE},
     {VECTOR(500, 1000, 1), NONE},
     false},
    /* two outputs */
    {"x, -x", {VECTOR(0, 100, 1), NONE}, {VECTOR(200, 100, 1), VECTOR(200, 100, 1)}, false},
    {"x, -x", {VECTOR(0, 100, 1), NONE}, {VECTOR(200, 100, 1), VECTOR(299, 100, 1)}, false},
    {"x, -x", {VECTOR(0, 100, 1), NONE}, {VECTOR(0, 100, 1), VECTOR(0, 100, 1)}, false},
};

/* Runs the case with inputs in one buffer and outputs in another. */
static ogive_status run_case(const alias_case *c, ogive_formula *f, float *in, float *out,
                             const ogive_options *options)
{
    test_tensor tensors[5];
    const DLTensor *inputs[3], *outputs[2];
    size_t input_count = place(c->inputs, 3, in, tensors, inputs);
    size_t output_count = place(c->outputs, 2, out, tensors + 3, outputs);
    return ogive_run(f, inputs, input_count, outputs, output_count, options, &error);
}

static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        alias_case c = cases[i];
        ogive_formula *f;
        float *shared = new_buffer("aliasing"), *before = new_buffer("aliasing");
        float *apart = new_buffer("aliasing");
        TEST_OK(ogive_formula_create(c.text, OGIVE_TEXT, &f, &error), error);
        if (ogive_formula_result_count(f) == 1)
            c.outputs[1].rank = -1;
        ogive_status status = run_case(&c, f, shared, shared, NULL);
        if (status != (c.legal ? OGIVE_OK : OGIVE_ARGUMENT))
            fail_msg("case %zu, %s: %s: %s", i, c.text, ogive_status_name(status), error.message);
        if (!c.legal) {
            if (!strstr(error.message, "overlap"))
                fail_msg("case %zu, %s: %s", i, c.text, error.message);
            assert_memory_equal(shared, before, ROOM * sizeof *shared);
        } else {
            /* Out of place, then both results into the same places of one buffer. */
            TEST_OK(run_case(&c, f, before, apart, NULL), error);
            float *want = new_buffer("aliasing");
            for (size_t o = 0; o < 2 && c.outputs[o].rank >= 0; o++)
                for (int64_t e = 0; e < count_elements(&c.outputs[o]); e++) {
                    int64_t at = find_offset(&c.outputs[o], e);
                    want[at] = apart[at];
                }
            for (int64_t e = 0; e < ROOM; e++)
                if (!test_same_f32(shared[e], want[e]))
                    fail_msg("case %zu, %s: element %" PRId64 " is %s, out of place %s", i, c.text,
                             e, test_text_f32(shared[e]), test_text_f32(want[e]));
            free(want);
        }
        free(shared);
        free(before);
        free(apart);
        ogive_formula_release(f);
    }
}

/* The message says which, and why. */
static void test_messages(void **state)
{
    (void)state;
    ogive_formula *f;
    float data[400] = {0};
    TEST_OK(ogive_formula_create("x + fc.bias, -x", OGIVE_TEXT, &f, &error), error);
    const DLTensor *in[] = {TEST_TENSOR(data, test_float32, 100),
                            TEST_TENSOR(data + 120, test_float32, 100)};
    const DLTensor *shifted[] = {TEST_TENSOR(data + 150, test_float32, 100),
                                 TEST_TENSOR(data, test_float32, 100)};
    assert_int_equal(ogive_run(f, in, 2, shifted, 2, NULL, &error), OGIVE_ARGUMENT);
    assert_string_equal(error.message,
                        "output '0' overlaps input 'fc.bias': in place needs every read of it at "
                        "the index being written, with the same shape, strides and dtype");
    const DLTensor *same[] = {TEST_TENSOR(data, test_float32, 100),
                              TEST_TENSOR(data + 50, test_float32, 100)};
    const DLTensor *apart[] = {TEST_TENSOR(data + 150, test_float32, 100),
                               TEST_TENSOR(data + 250, test_float32, 100)};
    TEST_FAILS(ogive_run(f, apart, 2, same, 2, NULL, &error), OGIVE_ARGUMENT, error,
               "outputs '0' and '1' overlap");
    ogive_formula_release(f);
}

/* The same memory as two dtypes is never in place; as one dtype of halves it is. */
static void test_dtypes(void **state)
{
    (void)state;
    ogive_formula *f;
    uint16_t halves[64];
    for (int i = 0; i < 64; i++)
        halves[i] = (uint16_t)(0x3c00 + i);
    TEST_OK(ogive_formula_create("x * 2", OGIVE_TEXT, &f, &error), error);
    const DLTensor *in[] = {TEST_TENSOR(halves, test_float16, 64)};
    TEST_OK(ogive_run(f, in, 1, in, 1, NULL, &error), error);
    for (int i = 0; i < 64; i++)
        assert_int_equal(halves[i], 0x4000 + i);
    ogive_formula_release(f);
    TEST_OK(ogive_formula_create("bfloat16(x)", OGIVE_TEXT, &f, &error), error);
    const DLTensor *out[] = {TEST_TENSOR(halves, test_bfloat16, 64)};
    TEST_FAILS(ogive_run(f, in, 1, out, 1, NULL, &error), OGIVE_ARGUMENT, error, "overlaps");
    assert_int_equal(halves[63], 0x4000 + 63);
    ogive_formula_release(f);
}

/* ---- against counting bytes -------------------------------------------------------- */

enum { BYTES = 4096, FREE = 0, NEVER = 255 };

/* Marks the bytes of a tensor whose first element is at byte first; false at the
 * first byte that is forbidden. */
static bool mark_bytes(const og_layout *l, int64_t first, int mark, int forbidden,
                       unsigned char *bytes)
{
    int64_t count = 1, size = (int64_t)og_dtype_bytes(l->dtype);
    for (int32_t d = 0; d < l->rank; d++)
        count *= l->shape[d];
    for (int64_t i = 0; i < count; i++) {
        int64_t at = first, rest = i;
        for (int32_t d = 0; d < l->rank; d++) {
            at += rest % l->shape[d] * l->stride[d] * size;
            rest /= l->shape[d];
        }
        assert_true(at >= 0 && at + size <= BYTES);
        for (int64_t b = at; b < at + size; b++) {
            if (bytes[b] == forbidden)
                return false;
            bytes[b] = (unsigned char)mark;
        }
    }
    return true;
}

static og_layout pick_layout(test_random *random)
{
    og_layout l = {.dtype = (og_dtype)test_random_below(random, OG_FLOAT_COUNT),
                   .rank = (int32_t)test_random_below(random, 4)};
    for (int32_t d = 0; d < l.rank; d++) {
        l.shape[d] = test_random_below(random, 6);
        l.stride[d] = test_random_below(random, 25) - 8;
    }
    return l;
}

static og_buffer buffer_of(const og_layout *l)
{
    og_buffer buffer = {.dtype = l->dtype, .rank = l->rank};
    memcpy(buffer.shape, l->shape, sizeof l->shape);
    memcpy(buffer.stride, l->stride, sizeof l->stride);
    return buffer;
}

/* Overlaps are never missed, and seldom seen where there are none. */
static void test_overlaps_counted(void **state)
{
    (void)state;
    test_random random = test_random_named("overlaps");
    int apart = 0, seen_apart = 0;
    for (int i = 0; i < 50000; i++) {
        static unsigned char bytes[BYTES];
        og_layout a = pick_layout(&random), b = i % 2 ? a : pick_layout(&random);
        og_buffer a_buffer = buffer_of(&a), b_buffer = buffer_of(&b);
        og_reach a_reach = og_layout_reach(&a), b_reach = og_layout_reach(&b);
        int64_t a_first = BYTES / 2, b_first = a_first + 2 * (test_random_below(&random, 80) - 40);
        memset(bytes, FREE, sizeof bytes);
        mark_bytes(&a, a_first, 1, NEVER, bytes);
        bool disjoint = mark_bytes(&b, b_first, 2, 1, bytes);
        bool overlap = og_tensors_overlap(&a_buffer, &a_reach, (char *)bytes + a_first, &b_buffer,
                                          &b_reach, (char *)bytes + b_first);
        if (!overlap && !disjoint)
            fail_msg("pair %d: an overlap was missed", i);
        apart += disjoint;
        seen_apart += !overlap;
    }
    assert_in_range(seen_apart, apart * 9 / 10, apart);
}

/* The same of outputs that overlap themselves. */
static void test_self_overlaps_counted(void **state)
{
    (void)state;
    test_random random = test_random_named("self-overlaps");
    int distinct = 0, taken = 0;
    ogive_formula *f;
    TEST_OK(ogive_formula_create("x", OGIVE_TEXT, &f, &error), error);
    for (int i = 0; i < 20000; i++) {
        static unsigned char bytes[BYTES];
        og_layout l = pick_layout(&random);
        test_tensor x, y;
        DLDataType dtype = og_dtype_dlpack(l.dtype);
        ogive_plan *plan;
        const DLTensor *in[] = {test_tensor_init(&x, NULL, dtype, l.rank, l.shape, NULL)};
        const DLTensor *out[] = {test_tensor_init(&y, NULL, dtype, l.rank, l.shape, l.stride)};
        ogive_status status = ogive_plan_create(f, in, 1, out, 1, NULL, &plan, &error);
        ogive_plan_release(plan);
        memset(bytes, FREE, sizeof bytes);
        bool apart = mark_bytes(&l, BYTES / 2, 1, 1, bytes);
        if (status == OGIVE_OK && !apart)
            fail_msg("layout %d: an output that overlaps itself was taken", i);
        distinct += apart;
        taken += status == OGIVE_OK;
    }
    assert_in_range(taken, distinct * 9 / 10, distinct);
    ogive_formula_release(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_overlaps_counted),
        cmocka_unit_test(test_self_overlaps_counted),
    };
    return TEST_RUN(tests);
}
