/* SPDX-License-Identifier: MIT
 *
 * test_parse_limits.c - the parser at its limits: nesting, sizes, long chains,
 * small stacks, memory that runs out; decimals, locales and floating-point
 * states; the text helpers of src/base.
 */
#include "test_parse.h"

#include "formula/lexer.h"

#include <fenv.h>
#include <locale.h>
#include <pthread.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

/* ---- memory that runs out -------------------------------------------------- */

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer) ||                         \
    __has_feature(thread_sanitizer)
#define TEST_OWN_MALLOC 0
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#undef TEST_OWN_MALLOC
#define TEST_OWN_MALLOC 0
#endif
#ifndef TEST_OWN_MALLOC
#define TEST_OWN_MALLOC 1
#endif

/* Allocations until one fails (< 0: none does), and those not freed again. */
static long allowed = -1;
static long living;

#if TEST_OWN_MALLOC
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void __libc_free(void *memory);

static bool must_fail(void)
{
    if (allowed == 0)
        return true;
    allowed -= allowed > 0;
    return false;
}

void *malloc(size_t size)
{
    if (must_fail())
        return NULL;
    living++;
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    if (must_fail())
        return NULL;
    living++;
    return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
    if (must_fail())
        return NULL;
    living += !memory;
    return __libc_realloc(memory, size);
}

void free(void *memory)
{
    living -= memory != NULL;
    __libc_free(memory);
}
#endif

/* ---- helpers --------------------------------------------------------------- */

/* count times part, between two others; to be freed. */
static char *repeat(const char *before, const char *part, int count, const char *after)
{
    size_t part_length = strlen(part), length = strlen(before);
    char *text = malloc(length + part_length * (size_t)count + strlen(after) + 1);
    assert_non_null(text);
    memcpy(text, before, length);
    for (int i = 0; i < count; i++, length += part_length)
        memcpy(text + length, part, part_length);
    strcpy(text + length, after);
    return text;
}

/* A message is cut between two characters. */
static void test_long_messages(void **state)
{
    (void)state;
    ogive_error error;
    for (int shift = 0; shift < 3; shift++) {
        char *umlauts = repeat(&"xyz"[shift], "\303\274", 600, "");
        og_fail(&error, OGIVE_SHAPE, 7, "%s", umlauts);
        free(umlauts);
        size_t length = strlen(error.message);
        assert_true(length >= 997 && length < sizeof error.message);
        assert_string_equal(error.message + length - 3, "...");
        assert_int_equal((unsigned char)error.message[length - 4], 0xbc);
        assert_int_equal(error.offset, 7);
    }
}

/* ---- numbers ----------------------------------------------------------------- */

static double read_decimal(const char *text)
{
    size_t used;
    double value;
    if (og_decimal_read(text, strlen(text), &used, &value) != OG_DECIMAL_OK || used != strlen(text))
        fail_msg("%s was not read", text);
    return value;
}

/* Against strtod in the C locale, which rounds correctly. */
static void test_decimals(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "0",
        "0.0",
        "00012",
        "9007199254740993",
        "9007199254740992.5",
        "1e22",
        "1e23",
        "1e-22",
        "1.7976931348623157e308",
        "4.9e-324",
        "2.2250738585072011e-308",
        "123456789012345678",
        "1234567890123456789",
        "0.000000000000000000000000000001",
        "17976931348623157e292",
        "3.00000000000000000000000000000000000001",
    };
    for (size_t i = 0; i < TEST_COUNT(texts); i++) {
        if (!test_same_f64(read_decimal(texts[i]), strtod(texts[i], NULL)))
            fail_msg("%s: got %s", texts[i], test_text_f64(read_decimal(texts[i])));
    }
    test_random random = test_random_named("decimals");
    for (int i = 0; i < 30000; i++) {
        char text[64], shortest[OG_NUMBER_TEXT];
        double value = test_float_f64(test_random_bits(&random) & INT64_MAX);
        if (!isfinite(value))
            continue;
        snprintf(text, sizeof text, "%.*e", (int)test_random_below(&random, 25), value);
        double want = strtod(text, NULL);
        if (!isfinite(want)) /* rounded up beyond the largest */
            continue;
        if (!test_same_f64(read_decimal(text), want))
            fail_msg("%s: got %s", text, test_text_f64(read_decimal(text)));
        assert_true(test_same_f64(read_decimal(og_number_text(value, shortest)), value));
    }
    /* A digit far beyond the last that is kept decides a tie. */
    char *tie = repeat("9007199254740993.", "0", 2000, "");
    char *above = repeat("9007199254740993.", "0", 2000, "1");
    char *long_zero = repeat("0.", "0", 400, "1e401"), *small = repeat("", "1", 400, "e-400");
    assert_true(read_decimal(tie) == 9007199254740992.0);
    assert_true(read_decimal(above) == 9007199254740994.0);
    assert_true(read_decimal(long_zero) == 1.0);
    assert_true(read_decimal(small) == strtod("0.11111111111111111111111111", NULL));
    free(tie);
    free(above);
    free(long_zero);
    free(small);
}

static void test_number_text(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } rows[] = {
        {0, "0"},          {-0.0, "-0"},          {1, "1"},
        {-2.5, "-2.5"},    {0.01, "0.01"},        {0.0001, "0.0001"},
        {1e-5, "1e-05"},   {1234.5, "1234.5"},    {1e15, "1000000000000000"},
        {1e16, "1e+16"},   {1.5e300, "1.5e+300"}, {1.0 / 3, "0.3333333333333333"},
        {INFINITY, "inf"}, {-INFINITY, "-inf"},   {NAN, "nan"},
        {100, "100"},      {0.1, "0.1"},          {-1.25e-10, "-1.25e-10"},
    };
    for (size_t i = 0; i < TEST_COUNT(rows); i++) {
        char text[OG_NUMBER_TEXT];
        assert_string_equal(og_number_text(rows[i].value, text), rows[i].text);
    }
}

/* Neither a decimal comma nor another rounding, nor flags, change or are changed. */
static void test_surroundings(void **state)
{
    (void)state;
    static const char *const locales[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "C.UTF-8"};
    const char *text = "0.1 * x + 1e-7 + 0.30000000000000004441 + exp(0.7)";
    for (size_t i = 0; i < TEST_COUNT(locales); i++) {
        if (!setlocale(LC_ALL, locales[i]))
            continue;
        og_graph graph;
        char signature[64];
        assert_int_equal(og_graph_parse(text, OGIVE_TEXT, &graph, NULL), OGIVE_OK);
        assert_true(graph.nodes[1].numbers[0] == 0.1);
        og_graph_free(&graph);
        og_function_signature(og_function_of(OG_OP_leaky_relu), signature, sizeof signature);
        assert_string_equal(signature, "input, negative_slope=0.01");
    }
    setlocale(LC_ALL, "C");
    static const int roundings[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    for (size_t i = 0; i < TEST_COUNT(roundings); i++) {
        fesetround(roundings[i]);
        feclearexcept(FE_ALL_EXCEPT);
        og_graph graph;
        ogive_status status = og_graph_parse(text, OGIVE_TEXT, &graph, NULL);
        int rounding = fegetround(), flags = fetestexcept(FE_ALL_EXCEPT);
        fesetround(FE_TONEAREST);
        assert_int_equal(status, OGIVE_OK);
        assert_int_equal(rounding, roundings[i]);
        assert_int_equal(flags, 0);
        assert_true(graph.nodes[1].numbers[0] == 0.1);
        og_graph_free(&graph);
    }
}

#if defined(__SSE2__)
/* A caller that flushes subnormals gets the same numbers, and keeps flushing. */
static void test_flush_to_zero(void **state)
{
    (void)state;
    unsigned before = _mm_getcsr(), flushing = before | 0x8040; /* FTZ and DAZ */
    og_graph graph;
    _mm_setcsr(flushing);
    ogive_status status = og_graph_parse("x * 5e-310 + 1e-300 * 1e-15", OGIVE_TEXT, &graph, NULL);
    unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    assert_int_equal(status, OGIVE_OK);
    assert_int_equal(after, flushing);
    assert_true(graph.nodes[1].numbers[0] == 5e-310);
    assert_true(graph.nodes[3].numbers[0] == 1e-300 * 1e-15 && graph.nodes[3].numbers[0] > 0);
    og_graph_free(&graph);
}
#endif

/* ---- limits ------------------------------------------------------------------ */

/* One level more than allowed fails at that level's token. */
static void expect_nesting(const char *open, const char *inside, const char *close,
                           int64_t token_in_open)
{
    for (int levels = OG_MAX_NESTING; levels <= OG_MAX_NESTING + 1; levels++) {
        char *start = repeat("", open, levels, inside), *text = repeat(start, close, levels, "");
        og_graph graph;
        if (levels > OG_MAX_NESTING) {
            expect_error(text, OGIVE_TEXT, (int64_t)strlen(open) * OG_MAX_NESTING + token_in_open,
                         "nested too deeply: more than 256 levels");
        } else {
            assert_int_equal(og_graph_parse(text, OGIVE_TEXT, &graph, NULL), OGIVE_OK);
            og_graph_free(&graph);
        }
        free(start);
        free(text);
    }
}

static void test_nesting(void **state)
{
    (void)state;
    expect_nesting("(", "x", ")", 0);
    expect_nesting("-", "x", "", 0);
    expect_nesting("exp(", "x", ")", 3);
    expect_nesting("mean(", "x", ")", 4);
    expect_nesting("1**", "1*x", "", 1);
}

static void *parse_deeply(void *text)
{
    og_graph graph;
    if (og_graph_parse(text, OGIVE_TEXT, &graph, NULL))
        return text;
    og_graph_free(&graph);
    return NULL;
}

/* The deepest formula fits the stack of a second thread on macOS. */
static void test_small_stack(void **state)
{
    (void)state;
    char *start = repeat("", "std(-(2+", 80, "x"), *text = repeat(start, "))", 80, "");
    pthread_attr_t attributes;
    pthread_t thread;
    void *failed;
    pthread_attr_init(&attributes);
    size_t stack = TEST_OWN_MALLOC ? 512 << 10 : 4 << 20; /* sanitizers need more */
    assert_int_equal(pthread_attr_setstacksize(&attributes, stack), 0);
    assert_int_equal(pthread_create(&thread, &attributes, parse_deeply, text), 0);
    pthread_join(thread, &failed);
    pthread_attr_destroy(&attributes);
    assert_null(failed);
    free(start);
    free(text);
}

static void test_limits(void **state)
{
    (void)state;
    og_graph graph;
    ogive_error error;
    char *text = repeat("x", " ", OG_MAX_TEXT - 1, "");
    TEST_OK(og_graph_parse(text, OGIVE_TEXT, &graph, &error), error);
    og_graph_free(&graph);
    free(text);
    text = repeat("x", " ", OG_MAX_TEXT, "");
    expect_error(text, OGIVE_TEXT, OG_MAX_TEXT, "the formula is too long: more than 1048576 bytes");
    expect_error(text, OG_MAX_TEXT + 1, OG_MAX_TEXT,
                 "the formula is too long: more than 1048576 bytes");
    free(text);

    /* x and 65534 sums are as many nodes as there may be. */
    text = repeat("x", "+x", OG_MAX_NODES - 1, "");
    TEST_OK(og_graph_parse(text, OGIVE_TEXT, &graph, &error), error);
    assert_int_equal(graph.node_count, OG_MAX_NODES);
    og_graph_free(&graph);
    free(text);
    text = repeat("x", "+x", OG_MAX_NODES, "");
    expect_error(text, OGIVE_TEXT, 2 * OG_MAX_NODES - 1,
                 "the formula is too large: more than 65535 nodes");
    free(text);

    text = repeat("x", ",x", OG_MAX_RESULTS - 1, "");
    TEST_OK(og_graph_parse(text, OGIVE_TEXT, &graph, &error), error);
    assert_int_equal(graph.result_count, OG_MAX_RESULTS);
    og_graph_free(&graph);
    free(text);
    text = repeat("x", ",x", OG_MAX_RESULTS, "");
    expect_error(text, OGIVE_TEXT, 2 * OG_MAX_RESULTS, "more than 64 results");
    free(text);
}

/* Tens of thousands of terms, statements, inputs: no deep stack, no quadratic
 * time (the test would not end). */
static void test_long_chains(void **state)
{
    (void)state;
    og_graph graph;
    ogive_error error;
    og_text text = {0};
    for (int i = 0; i < 60000; i++)
        og_text_add(&text, "a%d=%c%d+1;", i, i ? 'a' : 'x', i ? i - 1 : 0);
    og_text_add(&text, "a59999");
    TEST_OK(og_graph_parse(text.data, text.length, &graph, &error), error);
    assert_int_equal(graph.node_count, 60002);
    og_graph_free(&graph);
    og_text_free(&text);

    for (int i = 0; i < 30000; i++)
        og_text_add(&text, "%sx.%d", i ? "*" : "", i);
    TEST_OK(og_graph_parse(text.data, text.length, &graph, &error), error);
    assert_int_equal(graph.input_count, 30000);
    assert_string_equal(graph.inputs[29999].name, "x.29999");
    og_graph_free(&graph);
    og_text_free(&text);

    char *calls = repeat("x", "+softmax(x,1)*layer_norm(x,(4,),w)", 20000, "");
    TEST_OK(og_graph_parse(calls, OGIVE_TEXT, &graph, &error), error);
    og_graph_free(&graph);
    free(calls);

    char *powers = repeat("x", "*x**2/x", 20000, "");
    TEST_OK(og_graph_parse(powers, OGIVE_TEXT, &graph, &error), error);
    og_graph_free(&graph);
    free(powers);
}

/* ---- base -------------------------------------------------------------------- */

static void test_dtypes(void **state)
{
    (void)state;
    static const struct {
        DLDataType type;
        const char *name;
    } refused[] = {
        {{kDLInt, 128, 1}, "int128"},
        {{kDLUInt, 16, 1}, "uint16"},
        {{kDLBool, 1, 1}, "bool"},
        {{kDLComplex, 64, 1}, "complex64"},
        {{kDLFloat, 8, 1}, "float8"},
        {{kDLFloat, 32, 4}, "float32 x 4 lanes"},
        {{255, 255, 65535}, "DLPack type 255 (255 bits)"},
    };
    for (int d = 0; d < OG_DTYPE_COUNT; d++) {
        og_dtype found = OG_DTYPE_COUNT;
        char name[32];
        assert_true(og_dtype_from_dlpack(og_dtype_dlpack((og_dtype)d), &found, name));
        assert_int_equal(found, d);
        assert_int_equal(og_dtype_bytes((og_dtype)d) * 8, og_dtype_dlpack((og_dtype)d).bits);
    }
    for (size_t i = 0; i < TEST_COUNT(refused); i++) {
        og_dtype found;
        char name[32];
        assert_false(og_dtype_from_dlpack(refused[i].type, &found, name));
        assert_string_equal(name, refused[i].name);
    }
}

static void test_sizes(void **state)
{
    (void)state;
    size_t size;
    int64_t count;
    assert_true(og_mul_size(SIZE_MAX, 1, &size) && size == SIZE_MAX);
    assert_true(og_mul_size(7, 0, &size) && size == 0);
    assert_false(og_mul_size(SIZE_MAX / 2 + 1, 2, &size));
    assert_true(og_add_size(SIZE_MAX - 1, 1, &size) && size == SIZE_MAX);
    assert_false(og_add_size(SIZE_MAX, 1, &size));
    assert_true(og_shape_count(0, NULL, &count) && count == 1);
    assert_true(og_shape_count(2, (int64_t[]){INT64_MAX, 1}, &count) && count == INT64_MAX);
    assert_true(og_shape_count(3, (int64_t[]){INT64_MAX, 2, 0}, &count) && count == 0);
    assert_false(og_shape_count(2, (int64_t[]){INT64_MAX, 2}, &count));
    int64_t widest[OG_MAX_RANK];
    char text[OG_SHAPE_TEXT];
    for (int d = 0; d < OG_MAX_RANK; d++)
        widest[d] = INT64_MIN;
    assert_int_equal(strlen(og_shape_text(OG_MAX_RANK, widest, text)), 8 * 20 + 7 * 2 + 2);
}

static void test_arena(void **state)
{
    (void)state;
    og_arena arena = {0};
    test_random random = test_random_named("arena");
    for (int i = 0; i < 2000; i++) {
        size_t bytes = (size_t)test_random_below(&random, i % 50 ? 100 : 20000);
        unsigned char *memory = og_arena_alloc(&arena, 1, bytes);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % 16, 0);
        for (size_t b = 0; b < bytes; b++)
            assert_int_equal(memory[b], 0);
        memset(memory, 0xff, bytes);
    }
    assert_null(og_arena_alloc(&arena, SIZE_MAX, 2));
    assert_null(og_arena_alloc(&arena, SIZE_MAX, 1));
    og_arena_free(&arena);
    assert_null(arena.first);
    og_arena_free(&arena);
}

/* Every allocation fails in turn: OGIVE_MEMORY, and nothing is left behind. */
static void test_no_memory(void **state)
{
    (void)state;
    /* Called so that the compiler does not know malloc and what it leaves alone. */
    void *(*volatile allocate)(size_t) = malloc;
    allowed = 0;
    void *probe = allocate(1);
    allowed = -1;
    free(probe);
    if (probe) /* a sanitizer or valgrind has put its own malloc before ours */
        skip();
    og_text many = {0};
    for (int i = 0; i < 300; i++)
        og_text_add(&many, "a%d = x%d + layer_norm(x, (4,), w%d); ", i, i, i);
    og_text_add(&many, "exp(sum(a1,1) + exp(sum(a2, 1) + exp(sum(a3, 1) + exp(sum(a4, 1)))))");
    const char *texts[] = {"x", "softmax(x, 1) + layer_norm(x, [4], w)", many.data};
    for (size_t i = 0; i < TEST_COUNT(texts); i++) {
        long before = living, failures = 0;
        for (;; failures++) {
            og_graph graph;
            ogive_error error;
            allowed = failures;
            ogive_status status = og_graph_parse(texts[i], OGIVE_TEXT, &graph, &error);
            allowed = -1;
            if (!status)
                og_graph_free(&graph);
            assert_int_equal(living, before);
            if (!status)
                break;
            assert_int_equal(status, OGIVE_MEMORY);
            assert_int_equal(error.status, OGIVE_MEMORY);
        }
        assert_true(failures > 0);
    }
    allowed = 0;
    og_text failing = {0};
    og_text_add(&failing, "x");
    allowed = -1;
    assert_true(failing.failed && !failing.data);
    og_text_free(&many);
}

static void test_gradient_no_memory(void **state)
{
    (void)state;
    void *(*volatile allocate)(size_t) = malloc;
    allowed = 0;
    void *probe = allocate(1);
    allowed = -1;
    free(probe);
    if (probe)
        skip();
    og_text many = {0};
    og_text_add(&many, "a0 = x;");
    for (int i = 0; i < 60; i++)
        og_text_add(&many, "a%d = layer_norm(a%d, (4,), w) + exp(sum(a%d, 1));", i + 1, i, i);
    og_text_add(&many, "a60 * w, linear(w, x)");
    og_graph graph, gradient;
    ogive_error error;
    TEST_OK(og_graph_parse(many.data, many.length, &graph, &error), error);
    long before = living, failures = 0;
    for (ogive_status status = OGIVE_MEMORY; status; failures++) {
        allowed = failures;
        status = og_graph_gradient(&graph, (const char *[]){"x", "w"}, 2, &gradient, &error);
        allowed = -1;
        if (!status)
            og_graph_free(&gradient);
        else
            assert_int_equal(status, OGIVE_MEMORY);
        assert_int_equal(living, before);
    }
    assert_true(failures > 5);
    og_graph_free(&graph);
    og_text_free(&many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long_messages),
        cmocka_unit_test(test_decimals),
        cmocka_unit_test(test_number_text),
        cmocka_unit_test(test_surroundings),
#if defined(__SSE2__)
        cmocka_unit_test(test_flush_to_zero),
#endif
        cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_small_stack),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_long_chains),
        cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_gradient_no_memory),
    };
    return TEST_RUN(tests);
}
