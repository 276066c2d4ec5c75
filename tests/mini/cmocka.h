/* SPDX-License-Identifier: MIT
 *
 * cmocka.h - as much of cmocka as the tests of CUDA use, for GPU machines that do not
 * have it (scripts/test-gpu). CTest uses the real one.
 *
 *     MINI_LIST=1     prints the names of a program's tests
 *     MINI_TEST=NAME  runs one of them
 */
#ifndef OG_MINI_CMOCKA_H
#define OG_MINI_CMOCKA_H

#include <fnmatch.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
    int (*setup)(void **state), (*teardown)(void **state);
};

#define cmocka_unit_test(function) cmocka_unit_test_setup_teardown(function, NULL, NULL)
#define cmocka_unit_test_setup_teardown(function, before, after)                                   \
    {                                                                                              \
#function, function, before, after                                                         \
    }

enum { MINI_PASSED, MINI_FAILED, MINI_SKIPPED };
static jmp_buf mini_end;
static const char *mini_filter;

static inline void cmocka_set_test_filter(const char *pattern)
{
    mini_filter = pattern;
}

#define skip() longjmp(mini_end, MINI_SKIPPED)
#define fail_msg(...)                                                                              \
    do {                                                                                           \
        fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                            \
        fprintf(stderr, __VA_ARGS__);                                                              \
        fputc('\n', stderr);                                                                       \
        longjmp(mini_end, MINI_FAILED);                                                            \
    } while (0)
#define assert_true(condition)                                                                     \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("%s is false", #condition);                                                   \
    } while (0)
#define assert_false(condition) assert_true(!(condition))
#define assert_null(pointer) assert_true((pointer) == NULL)
#define assert_non_null(pointer) assert_true((pointer) != NULL)
#define assert_ptr_equal(a, b) assert_true((const void *)(a) == (const void *)(b))
#define assert_int_equal(a, b) assert_true((long long)(a) == (long long)(b))
#define assert_in_range(value, low, high) assert_true((value) >= (low) && (value) <= (high))
#define assert_string_equal(a, b) assert_true(strcmp(a, b) == 0)
#define assert_memory_equal(a, b, bytes) assert_true(memcmp(a, b, bytes) == 0)

#define cmocka_run_group_tests(tests, setup, teardown)                                             \
    mini_run(tests, sizeof(tests) / sizeof((tests)[0]))

/* What a test is ended by: the end of its function, a failure, or skip(). */
static inline int mini_run_one(const struct CMUnitTest *test)
{
    void *state = NULL;
    int result = setjmp(mini_end);
    if (result != MINI_PASSED)
        return result;
    if (test->setup && test->setup(&state) != 0)
        fail_msg("setup of %s failed", test->name);
    test->run(&state);
    if (test->teardown && test->teardown(&state) != 0)
        fail_msg("teardown of %s failed", test->name);
    return MINI_PASSED;
}

/* How many failed. */
static inline int mini_run(const struct CMUnitTest *tests, size_t count)
{
    static const char *const words[] = {"[       OK ]", "[  FAILED  ]", "[  SKIPPED ]"};
    const char *one = getenv("MINI_TEST");
    int failed = 0;
    for (size_t i = 0; i < count; i++) {
        if (getenv("MINI_LIST")) {
            printf("%s\n", tests[i].name);
            continue;
        }
        if ((mini_filter && fnmatch(mini_filter, tests[i].name, 0) != 0) ||
            (one && strcmp(one, tests[i].name) != 0))
            continue;
        int result = mini_run_one(&tests[i]);
        printf("%s %s\n", words[result], tests[i].name);
        fflush(stdout);
        failed += result == MINI_FAILED;
    }
    return failed;
}

#endif
