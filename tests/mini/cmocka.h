/* SPDX-License-Identifier: MIT
 *
 * cmocka.h - as much of cmocka as the tests of CUDA use, for GPU machines that do not
 * have it (scripts/test-gpu). CTest uses the real one.
 */
#ifndef OG_MINI_CMOCKA_H
#define OG_MINI_CMOCKA_H

#include <fnmatch.h>
#include <setjmp.h>
#include <stdio.h>

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};

#define cmocka_unit_test(function)                                                                 \
    {                                                                                              \
        #function, function                                                                        \
    }

static jmp_buf mini_failure;
static const char *mini_filter;

static inline void cmocka_set_test_filter(const char *pattern)
{
    mini_filter = pattern;
}

#define fail_msg(...)                                                                              \
    do {                                                                                           \
        fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                            \
        fprintf(stderr, __VA_ARGS__);                                                              \
        fputc('\n', stderr);                                                                       \
        longjmp(mini_failure, 1);                                                                  \
    } while (0)
#define assert_true(condition)                                                                     \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("%s is false", #condition);                                                   \
    } while (0)
#define assert_non_null(pointer) assert_true((pointer) != NULL)
#define assert_in_range(value, low, high) assert_true((value) >= (low) && (value) <= (high))
#define assert_int_equal(a, b) assert_true((long long)(a) == (long long)(b))

#define cmocka_run_group_tests(tests, setup, teardown)                                             \
    mini_run(tests, sizeof(tests) / sizeof((tests)[0]))

/* How many failed. */
static inline int mini_run(const struct CMUnitTest *tests, size_t count)
{
    volatile int failed = 0;
    for (volatile size_t i = 0; i < count; i++) {
        if (mini_filter && fnmatch(mini_filter, tests[i].name, 0) != 0)
            continue;
        void *state = NULL;
        if (setjmp(mini_failure) == 0) {
            tests[i].run(&state);
            printf("[       OK ] %s\n", tests[i].name);
        } else {
            printf("[  FAILED  ] %s\n", tests[i].name);
            failed++;
        }
        fflush(stdout);
    }
    return failed;
}

#endif
