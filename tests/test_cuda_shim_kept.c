/* SPDX-License-Identifier: MIT
 *
 * test_cuda_shim_kept.c - rows that several passes read, kept in registers or in shared
 * memory, on CUDA against the CPU's, bit by bit: of one chunk and of several, with more
 * rows than a GPU has blocks for; and columns. See test_cuda_shim.c.
 *
 * The fake device is told to have three multiprocessors, so that few rows are many, and a small
 * cache, so that columns do not fit it. On a real one only test_many_rows has enough.
 */
#include "cuda_case.h"

static const char *const formulas[] = {
    "softmax(x, dim=-1)",
    "log_softmax(x, dim=-1)",
    "softmax(x, dim=-1) * x",
    "var(x, dim=-1), x / sum(x, dim=-1, keepdim=true)",
    "(x - amax(x, dim=-1, keepdim=true)) / amin(x, dim=-1, keepdim=true)",
    "softmax(x * sigmoid(x), dim=-1), logsumexp(x, dim=-1)",
    "softmax(float64(x), dim=-1)",
};

/* Around what registers keep, a chunk, several, and what shared memory keeps. */
static void test_lengths(void **unused)
{
    static const int64_t lengths[] = {4096,  4100,  6000,  8192,  16380, 16384,  16388,  20002,
                                      32768, 40000, 49156, 65536, 65540, 100000, 131080, 262144};
    test_random random = test_random_named("lengths");
    (void)unused;
    case_share = 2;
    for (size_t f = 0; f < TEST_COUNT(formulas); f++)
        for (size_t i = 0; i < TEST_COUNT(lengths); i++) {
            case_shape shape = SHAPE(4 + (int64_t)(i % 2), lengths[i]);
            for (int dtype = 0; dtype < OG_FLOAT_COUNT; dtype++)
                if (test_full() || ((f + i) % 2 == 0 && dtype == (int)((f + i) / 2 % 4)))
                    check_formula(formulas[f], &shape, (og_dtype)dtype, CONTIGUOUS, CONTIGUOUS,
                                  dtype == OG_FLOAT64 || (f + i) % 3 ? ORDINARY : SPECIAL, &random);
        }
    end_cases("lengths");
}

static void test_layouts(void **unused)
{
    static const int64_t lengths[] = {5120, 20480};
    test_random random = test_random_named("layouts of kept rows");
    (void)unused;
    case_share = 2;
    for (int layout = 1; layout < LAYOUT_COUNT; layout++)
        for (size_t i = 0; i < TEST_COUNT(lengths); i++) {
            case_shape shape = SHAPE(5, lengths[i]);
            og_dtype dtype = (og_dtype)((layout + (int)i) % 4);
            check_formula(formulas[layout % 3], &shape, dtype, (case_layout)layout,
                          (case_layout)(layout % 5), ORDINARY, &random);
        }
    case_shape dims = SHAPE(4, 30, 200), more = SHAPE(3, 80, 260);
    check_formula("x - mean(x, dim=(1, 2), keepdim=true)", &dims, OG_FLOAT32, PADDED, CONTIGUOUS,
                  ORDINARY, &random);
    check_formula("x / sum(x, dim=(1, 2), keepdim=true)", &more, OG_BFLOAT16, PADDED, PADDED,
                  ORDINARY, &random);
    end_cases("layouts");
}

/* text with the number in place of LENGTH, if there is one. */
static const char *with_length(const char *text, int64_t length, char buffer[128])
{
    const char *at = strstr(text, "LENGTH");
    if (!at)
        return text;
    snprintf(buffer, 128, "%.*s%lld%s", (int)(at - text), text, (long long)length,
             at + strlen("LENGTH"));
    return buffer;
}

/* Rows of halves in registers, many of them in a thread: with elements beyond the row, and
 * operand or result, or both, not aligned. */
static void test_halves(void **unused)
{
    static const char *const texts[] = {"layer_norm(x, LENGTH)", "softmax(x, dim=-1)",
                                        "rms_norm(x + y, LENGTH)"};
    static const int64_t lengths[] = {4096, 8200, 12288, 16376, 16384};
    test_random random = test_random_named("halves");
    char text[128];
    (void)unused;
    case_share = 2;
    for (size_t f = 0; f < TEST_COUNT(texts); f++)
        for (size_t i = 0; i < TEST_COUNT(lengths); i++)
            for (int layout = 0; layout < 4; layout++) {
                case_shape shape = SHAPE(3, lengths[i]);
                og_dtype dtype = (f + i + (size_t)layout) % 2 ? OG_FLOAT16 : OG_BFLOAT16;
                if (test_full() || (f + i) % 4 == (size_t)layout)
                    check_formula(with_length(texts[f], lengths[i], text), &shape, dtype,
                                  layout % 2 ? MISALIGNED : CONTIGUOUS,
                                  layout / 2 ? MISALIGNED : CONTIGUOUS, ORDINARY, &random);
            }
    end_cases("halves");
}

/* What passes share is computed once and kept in registers: by part of a warp, a warp, a
 * block, with elements beyond the row. */
static void test_derived(void **unused)
{
    static const char *const texts[] = {
        "softmax(x * sigmoid(x), dim=-1)",
        "layer_norm(gelu(x) * 0.5 + y, LENGTH)",
        "logsumexp(tanh(x), dim=-1)",
        "softmax(tanh(x) * sigmoid(y) * tanh(x), dim=-1) + sigmoid(y)",
        "rms_norm(where(x > 0, exp(x), y), LENGTH)",
    };
    static const int64_t lengths[] = {1, 30, 500, 1024, 3001, 4096};
    test_random random = test_random_named("derived");
    char text[128];
    (void)unused;
    case_share = 2;
    for (size_t f = 0; f < TEST_COUNT(texts); f++)
        for (size_t i = 0; i < TEST_COUNT(lengths); i++) {
            case_shape shape = SHAPE(5, lengths[i]);
            check_formula(with_length(texts[f], lengths[i], text), &shape,
                          (og_dtype)((f + i) % OG_FLOAT_COUNT), (case_layout)(i % 4), CONTIGUOUS,
                          (f + i) % 3 ? ORDINARY : SPECIAL, &random);
        }
    end_cases("derived");
}

/* Rows whose squares overflow or vanish: passes with a guard, of kept rows. */
static void test_magnitudes(void **unused)
{
    static const char *const texts[] = {"std(x, dim=-1)",
                                        "layer_norm(x, LENGTH, eps=1e-30)",
                                        "rms_norm(x + y, LENGTH)",
                                        "std(x, dim=-1), amax(x, dim=-1)",
                                        "x / norm(x, 2, -1, true)",
                                        "softmax(x, dim=-1) * std(x, dim=-1, keepdim=true)",
                                        "layer_norm(tanh(x) * y, LENGTH)"};
    static const int64_t lengths[] = {1000, 16384, 16640, 20002, 40000, 65536, 81924, 140000};
    test_random random = test_random_named("magnitudes of kept rows");
    char text[128];
    (void)unused;
    case_share = 2;
    for (size_t f = 0; f < TEST_COUNT(texts); f++)
        for (size_t i = 0; i < TEST_COUNT(lengths); i++) {
            case_shape shape = SHAPE(8, lengths[i]);
            if (test_full() || f < 2 || (f + i) % 2)
                check_formula(with_length(texts[f], lengths[i], text), &shape,
                              (f + i) % 4 ? OG_FLOAT32 : OG_BFLOAT16,
                              i % 3 ? CONTIGUOUS : MISALIGNED, CONTIGUOUS, MAGNITUDES, &random);
        }
    end_cases("magnitudes");
}

/* Columns in shared memory: of a run and more, of several runs, as many as threads are deep and
 * more; beside what is read again; rows with a guard. */
static void test_columns(void **unused)
{
    static const char *const texts[] = {
        "x * rsqrt(mean(x * x, dim=1, keepdim=true) + 1e-5)",
        "softmax(x, dim=1)",
        "var(x, dim=1), x / norm(x, 2, 1, true)",
        "log_softmax(x * y, dim=1) + amax(x, dim=1, keepdim=true)",
        "logsumexp(x, dim=1), sum(x, dim=1)",
        "(x - mean(x, dim=1, keepdim=true)) * mean(y, dim=(0, 2), keepdim=true)",
    };
    static const int64_t lengths[] = {63, 64, 65, 100, 130, 320, 500, 640};
    test_random random = test_random_named("columns");
    (void)unused;
    for (size_t f = 0; f < TEST_COUNT(texts); f++)
        for (size_t i = 0; i < TEST_COUNT(lengths); i++)
            for (int dtype = 0; dtype < OG_FLOAT_COUNT; dtype++) {
                case_shape shape = SHAPE(2, lengths[i], 70000 / lengths[i] / 2 + 7);
                case_layout layout = (case_layout)((f + i + (size_t)dtype) / 4 % 5);
                if (test_full() || (f + i) % 4 == (size_t)dtype)
                    check_formula(texts[f], &shape, (og_dtype)dtype, layout,
                                  i % 3 ? CONTIGUOUS : PADDED,
                                  f == 2 && dtype != OG_FLOAT64 ? MAGNITUDES : ORDINARY, &random);
            }
    end_cases("columns");
}

/* More of them than there are blocks, of an H200 and of the fake device. */
static void test_many_rows(void **unused)
{
    test_random random = test_random_named("many rows");
    int64_t rows = getenv("OGIVE_LIBCUDA") ? 20 : 301;
    case_shape shape = SHAPE(rows, 16640), longer = SHAPE(rows / 2, 65536);
    (void)unused;
    check_formula(formulas[0], &shape, OG_BFLOAT16, CONTIGUOUS, CONTIGUOUS, ORDINARY, &random);
    check_formula("layer_norm(x, 16640)", &shape, OG_FLOAT32, CONTIGUOUS, CONTIGUOUS, ORDINARY,
                  &random);
    check_formula(formulas[0], &longer, OG_FLOAT32, CONTIGUOUS, CONTIGUOUS, ORDINARY, &random);
    end_cases("many rows");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths),    cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_halves),     cmocka_unit_test(test_derived),
        cmocka_unit_test(test_magnitudes), cmocka_unit_test(test_columns),
        cmocka_unit_test(test_many_rows),
    };
    setenv("OGIVE_SHIM_MULTIPROCESSORS", "3", 1);
    setenv("OGIVE_SHIM_L2", "200000", 1);
    return CASE_RUN(tests);
}
