/* SPDX-License-Identifier: MIT
 *
 * test.h - what cmocka lacks: repeatable random numbers, memory between guard
 * pages, distances in ULP, tensors in one line. Include it first; a test ends
 * with
 *
 *     int main(void)
 *     {
 *         const struct CMUnitTest tests[] = {cmocka_unit_test(test_something)};
 *         return TEST_RUN(tests);
 *     }
 *
 * which prints the seed of the random numbers when something failed. Everything
 * here is static inline, so that each test program is one file.
 */
#ifndef OG_TEST_H
#define OG_TEST_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ogive.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TEST_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Is this program slower, and its frames larger, by a sanitizer? */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define TEST_SANITIZED 1
#endif
#endif
#ifndef TEST_SANITIZED
#define TEST_SANITIZED 0
#endif

/* Is it gcc's thread sanitizer, which looks at threads alone? */
#ifdef __SANITIZE_THREAD__
#define TEST_LOOKS_FOR_RACES 1
#else
#define TEST_LOOKS_FOR_RACES 0
#endif

/* Whether to take the long way: every float instead of a sample. CTest runs such
 * a test a second time, under the label "full", when asked to. */
static inline bool test_full(void)
{
    const char *text = getenv("OGIVE_TEST_FULL");
    return text && strcmp(text, "0") != 0;
}

/* Of what is tried for each of some GPUs the first has every case; the others share them, so that
 * each case has a second GPU. The long way has all of them. */
static inline bool test_takes(size_t which, size_t gpu)
{
    return test_full() || gpu == 0 || which % 2 == gpu % 2;
}

/* Of many alike cases that take long a run has one of `share`, and the next run others: scripts/test
 * sets OGIVE_TEST_TURN to the number of commits, so that all have been tried after `share` of them.
 * What a case is of a kind that has the same cases (a dtype) moves its turn. The long way has all. */
static inline uint64_t test_turn(void)
{
    const char *text = getenv("OGIVE_TEST_TURN");
    return text ? strtoull(text, NULL, 10) : 0;
}

/* A program that runs once more for something else has so many times fewer cases there. */
static inline uint64_t test_part(void)
{
    const char *text = getenv("OGIVE_TEST_PART");
    return text ? strtoull(text, NULL, 10) : 1;
}

static inline bool test_has_turn(uint64_t which, uint64_t kind, uint64_t share)
{
    return test_full() || ((which * 2654435761u >> 16) + kind + test_turn()) % share == 0;
}

/* How many random cases a test tries. A sanitizer makes each ten times as slow, and whoever builds
 * with one runs them without it, too: it sees a fifth. */
static inline int test_rounds(int usual, int full)
{
    if (test_full())
        return full;
    return TEST_SANITIZED && usual >= 5 ? usual / 5 : usual;
}

/* Whether the CUDA libraries are those of tests/cuda/; if not, says so. */
static inline bool test_on_stand_ins(void)
{
    const char *driver = getenv("OGIVE_LIBCUDA");
    if (driver && strstr(driver, "ogive_fake_cuda") && getenv("OGIVE_NVRTC"))
        return true;
    fprintf(stderr, "OGIVE_LIBCUDA and OGIVE_NVRTC must name the stand-in libraries, as CTest "
                    "has it\n");
    return false;
}

/* ---- random numbers ------------------------------------------------------- */

/* OGIVE_TEST_SEED of the environment, else always the same. */
static inline uint64_t test_seed(void)
{
    const char *text = getenv("OGIVE_TEST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 0) : 20240229u;
    return seed ? seed : 1;
}

/* xorshift64*: good enough to fill tensors, the same on every machine. */
typedef struct {
    uint64_t state;
} test_random;

/* A stream of its own per name, so that one test's draws do not move another's. */
static inline test_random test_random_named(const char *name)
{
    uint64_t hash = 14695981039346656037u ^ test_seed();
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 1099511628211u;
    test_random random = {hash ? hash : 1};
    return random;
}

static inline uint64_t test_random_bits(test_random *random)
{
    uint64_t x = random->state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    random->state = x;
    return x * 2685821657736338717u;
}

/* Uniform in 0 .. n - 1; n > 0. (The bias of the remainder is below 2^-40 for
 * any n a test uses.) */
static inline int64_t test_random_below(test_random *random, int64_t n)
{
    return (int64_t)((test_random_bits(random) >> 1) % (uint64_t)n);
}

/* Uniform in [low, high). */
static inline double test_random_range(test_random *random, double low, double high)
{
    return low + (high - low) * ((double)(test_random_bits(random) >> 11) * 0x1p-53);
}

/* ---- bits ----------------------------------------------------------------- */

static inline uint32_t test_bits_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float test_float_f32(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint64_t test_bits_f64(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline double test_float_f64(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Any of the 2^32 floats, each equally likely: NaN, infinities, subnormals. */
static inline float test_random_float(test_random *random)
{
    return test_float_f32((uint32_t)(test_random_bits(random) >> 32));
}

/* "0x1.8p+0 (1.5, 3fc00000)". Up to 8 results may be used in one printf. */
static inline const char *test_text_f32(float value)
{
    static _Thread_local char texts[8][80];
    static _Thread_local unsigned next;
    char *text = texts[next++ % 8];
    snprintf(text, sizeof texts[0], "%a (%.9g, %08" PRIx32 ")", value, value, test_bits_f32(value));
    return text;
}

static inline const char *test_text_f64(double value)
{
    static _Thread_local char texts[8][96];
    static _Thread_local unsigned next;
    char *text = texts[next++ % 8];
    snprintf(text, sizeof texts[0], "%a (%.17g, %016" PRIx64 ")", value, value,
             test_bits_f64(value));
    return text;
}

/* Equal bits; any NaN equals any NaN; +0 and -0 differ. */
static inline bool test_same_f32(float a, float b)
{
    return test_bits_f32(a) == test_bits_f32(b) || (isnan(a) && isnan(b));
}

static inline bool test_same_f64(double a, double b)
{
    return test_bits_f64(a) == test_bits_f64(b) || (isnan(a) && isnan(b));
}

/* ---- ULP ------------------------------------------------------------------ */

/* Floats between a and b: 0 if equal (+0 and -0 are), 1 for neighbours.
 * INT64_MAX if one of them is NaN, 0 if both are. */
static inline int64_t test_ulp_distance_f32(float a, float b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b) ? 0 : INT64_MAX;
    int64_t i = test_bits_f32(a) & 0x7fffffff, j = test_bits_f32(b) & 0x7fffffff;
    i = signbit(a) ? -i : i;
    j = signbit(b) ? -j : j;
    return i < j ? j - i : i - j;
}

/* The same for doubles, at most INT64_MAX. */
static inline int64_t test_ulp_distance_f64(double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b) ? 0 : INT64_MAX;
    uint64_t i = test_bits_f64(a) & INT64_MAX, j = test_bits_f64(b) & INT64_MAX;
    if (signbit(a) != signbit(b))
        return i + j > INT64_MAX ? INT64_MAX : (int64_t)(i + j);
    return (int64_t)(i < j ? j - i : i - j);
}

/* Error of got against the true value want, in units of the last place that a
 * float32 has at want (a subnormal's place is 2^-149). Infinity when one is NaN
 * and the other is not, or where got is infinite and want rounds to a finite. */
static inline double test_ulp_error_f32(float got, double want)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : INFINITY;
    float rounded = (float)want;
    if (isinf(got) || isinf(rounded))
        return got == rounded ? 0 : INFINITY;
    int exponent = -149;
    if (want != 0 && frexp(want, &exponent))
        exponent = exponent - 24 < -149 ? -149 : exponent - 24;
    return fabs(got - want) / ldexp(1, exponent);
}

/* ---- memory between guard pages ------------------------------------------- */

typedef enum { TEST_AT_START, TEST_AT_END } test_place;

typedef struct {
    void *data;   /* bytes of 0xa5, against the chosen page: so AT_END may be unaligned */
    size_t bytes; /* may be 0: data still may not be read */
    void *map;
    size_t map_bytes;
} test_guard;

/* bytes of memory with an inaccessible page before and after it. TEST_AT_START
 * puts data right behind the first one (a read before it faults), TEST_AT_END
 * right before the last (a read beyond it faults). */
static inline test_guard test_guard_alloc(size_t bytes, test_place place)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t inside = (bytes + page - 1) / page * page;
    test_guard guard = {NULL, bytes, NULL, inside + 2 * page};
    guard.map = mmap(NULL, guard.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(guard.map != MAP_FAILED);
    char *first = (char *)guard.map + page;
    if (inside) {
        assert_int_equal(mprotect(first, inside, PROT_READ | PROT_WRITE), 0);
        memset(first, 0xa5, inside);
    }
    guard.data = place == TEST_AT_START ? first : first + (inside - bytes);
    return guard;
}

/* Makes the block read-only: a write to it faults. */
static inline void test_guard_freeze(const test_guard *guard)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (guard->bytes)
        assert_int_equal(
            mprotect((char *)guard->map + page, guard->map_bytes - 2 * page, PROT_READ), 0);
}

static inline void test_guard_free(test_guard *guard)
{
    munmap(guard->map, guard->map_bytes);
    memset(guard, 0, sizeof *guard);
}

/* ---- tensors -------------------------------------------------------------- */

static const DLDataType test_float32 = {kDLFloat, 32, 1};
static const DLDataType test_float16 = {kDLFloat, 16, 1};
static const DLDataType test_bfloat16 = {kDLBfloat, 16, 1};
static const DLDataType test_float64 = {kDLFloat, 64, 1};

/* Owns its shape and strides, not its data; do not copy it (it points into itself). */
typedef struct {
    DLTensor tensor;
    int64_t shape[8], strides[8];
} test_tensor;

/* A CPU tensor over data. strides NULL: contiguous, and given as NULL. */
static inline DLTensor *test_tensor_init(test_tensor *t, void *data, DLDataType dtype, int rank,
                                         const int64_t *shape, const int64_t *strides)
{
    memset(t, 0, sizeof *t);
    t->tensor.data = data;
    t->tensor.device.device_type = kDLCPU;
    t->tensor.ndim = rank;
    t->tensor.dtype = dtype;
    for (int d = 0; d < rank; d++) {
        t->shape[d] = shape[d];
        t->strides[d] = strides ? strides[d] : 0;
    }
    t->tensor.shape = t->shape;
    t->tensor.strides = strides ? t->strides : NULL;
    return &t->tensor;
}

/* In one line: DLTensor *x = TEST_TENSOR(data, test_float32, 2, 3); */
#define TEST_TENSOR(data, dtype, ...)                                                              \
    test_tensor_init(&(test_tensor){0}, data, dtype,                                               \
                     (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                    \
                     (int64_t[]){__VA_ARGS__}, NULL)
/* A 0-d tensor. */
#define TEST_SCALAR(data, dtype) test_tensor_init(&(test_tensor){0}, data, dtype, 0, NULL, NULL)

/* Fails the test with the library's message. */
#define TEST_OK(call, error)                                                                       \
    do {                                                                                           \
        ogive_status test_status_ = (call);                                                        \
        if (test_status_ != OGIVE_OK)                                                              \
            fail_msg("%s: %s: %s", #call, ogive_status_name(test_status_), (error).message);       \
    } while (0)

/* The call fails with status, and the message has part in it. */
#define TEST_FAILS(call, want_status, error, part)                                                 \
    do {                                                                                           \
        ogive_status test_status_ = (call);                                                        \
        if (test_status_ != (want_status))                                                         \
            fail_msg("%s: status %s, expected %s (%s)", #call, ogive_status_name(test_status_),    \
                     ogive_status_name(want_status), (error).message);                             \
        if (!strstr((error).message, (part)))                                                      \
            fail_msg("%s: message is \"%s\", expected \"%s\" in it", #call, (error).message,       \
                     (part));                                                                      \
    } while (0)

/* ---- running -------------------------------------------------------------- */

static inline int test_report(int failed)
{
    if (failed)
        fprintf(stderr, "to repeat: OGIVE_TEST_SEED=%" PRIu64 " OGIVE_TEST_TURN=%" PRIu64 "\n",
                test_seed(), test_turn());
    return failed != 0;
}

#define TEST_RUN(tests) test_report(cmocka_run_group_tests(tests, NULL, NULL))

#endif
