/* SPDX-License-Identifier: MIT
 *
 * test_storm.c - everything at once: threads that run formulas of changing shapes, signals that
 * interrupt them, cores taken away and given back, children that are forked in the middle and run
 * formulas too. Every result is right. And for long: memory, handles and threads stay what they
 * are over many calls (a million with OGIVE_TEST_FULL=1).
 */
#include "test.h"

#include "process.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>

enum { CALLERS = 4, MOST_ROWS = 9, MOST_COLS = 3000 };

static ogive_formula *formulas[3];
static const char *const texts[3] = {"x * 2 + 1", "sum(x, dim=1)", "softmax(x - x, dim=1)"};

/* Runs formula `which` on rows x cols of ones, with two threads; false if the result is wrong. */
static bool run_once(int which, int64_t rows, int64_t cols, float *x, float *y)
{
    int64_t shape[2] = {rows, cols};
    ogive_options options = {.size = sizeof options, .threads = 2};
    DLTensor in = {.data = x,
                   .device = {kDLCPU, 0},
                   .ndim = 2,
                   .dtype = {kDLFloat, 32, 1},
                   .shape = shape},
             out = in;
    const DLTensor *inputs[] = {&in}, *outputs[] = {&out};
    ogive_error error;
    int64_t count = which == 1 ? rows : rows * cols;
    float want = which == 0 ? 3 : which == 1 ? (float)cols : 1.0f / (float)cols;
    out.data = y;
    out.ndim = which == 1 ? 1 : 2;
    if (ogive_run(formulas[which], inputs, 1, outputs, 1, &options, &error)) {
        fprintf(stderr, "%s: %s\n", texts[which], error.message);
        return false;
    }
    for (int64_t i = 0; i < count; i++)
        if (!(fabsf(y[i] - want) <= 1e-6f * want)) {
            fprintf(stderr, "%s of (%lld, %lld): element %lld is %a, expected %a\n", texts[which],
                    (long long)rows, (long long)cols, (long long)i, (double)y[i], (double)want);
            return false;
        }
    return true;
}

/* Memory for one caller: x, all ones, and room for a result. */
static float *make_memory(void)
{
    float *memory = malloc(2 * MOST_ROWS * MOST_COLS * sizeof *memory);
    for (int i = 0; memory && i < MOST_ROWS * MOST_COLS; i++)
        memory[i] = 1;
    return memory;
}

static bool run_random(test_random *random, float *memory)
{
    int64_t rows = 1 + test_random_below(random, MOST_ROWS);
    int64_t cols = 1 + test_random_below(random, MOST_COLS);
    return run_once((int)test_random_below(random, 3), rows, cols, memory,
                    memory + MOST_ROWS * MOST_COLS);
}

static int make_formulas(void **state)
{
    (void)state;
    ogive_error error;
    for (int i = 0; i < 3; i++)
        if (ogive_formula_create(texts[i], OGIVE_TEXT, &formulas[i], &error))
            return -1;
    return 0;
}

static int end_formulas(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        ogive_formula_release(formulas[i]);
    return 0;
}

/* ---- a storm --------------------------------------------------------------------------- */

static atomic_bool over;
static atomic_long calls, wrong, interrupts;

static void count_interrupt(int number)
{
    (void)number;
    atomic_fetch_add(&interrupts, 1);
}

static void *call_on(void *name)
{
    test_random random = test_random_named(name);
    float *memory = make_memory();
    while (!atomic_load(&over)) {
        atomic_fetch_add(&wrong, !run_random(&random, memory));
        atomic_fetch_add(&calls, 1);
    }
    free(memory);
    return NULL;
}

/* A child of fork() in the middle of it all runs formulas, and ends. */
static void fork_once(test_random *random)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(60);
        float *memory = make_memory();
        bool right = true;
        for (int i = 0; i < 3; i++)
            right &= run_random(random, memory);
        _exit(right ? 0 : 1);
    }
    int status;
    while (waitpid(child, &status, 0) != child)
        ;
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void pick_core(test_random *random, const cpu_set_t *cores, cpu_set_t *one)
{
    int core;
    do
        core = (int)test_random_below(random, CPU_SETSIZE);
    while (!CPU_ISSET(core, cores));
    CPU_ZERO(one);
    CPU_SET(core, one);
}

static void test_storm(void **state)
{
    (void)state;
    static const char *const names[CALLERS] = {"north", "east", "south", "west"};
    test_random random = test_random_named("storm");
    struct sigaction action = {.sa_handler = count_interrupt}; /* calls are not restarted */
    pthread_t threads[CALLERS];
    cpu_set_t cores, one;
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
    assert_int_equal(sched_getaffinity(0, sizeof cores, &cores), 0);
    for (int i = 0; i < CALLERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call_on, (void *)(uintptr_t)names[i]),
                         0);
    for (int i = 0; i < (test_full() ? 20000 : 150); i++) {
        pthread_t victim = threads[test_random_below(&random, CALLERS)];
        for (int n = 0; n < 20; n++)
            pthread_kill(victim, SIGUSR1);
        pick_core(&random, &cores, &one);
        pthread_setaffinity_np(victim, sizeof cores, i % 2 ? &one : &cores);
        if (i % 10 == 0 && !TEST_SANITIZED)
            fork_once(&random);
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    atomic_store(&over, true);
    for (int i = 0; i < CALLERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    printf("%ld calls, %ld interrupts\n", (long)calls, (long)interrupts);
    assert_int_equal(wrong, 0);
    assert_true(calls > 0 && interrupts > 0);
}

/* ---- for long -------------------------------------------------------------------------- */

/* Every 50th call with a formula of its own, for plans, caches and names to come and go. */
static void test_soak(void **state)
{
    (void)state;
    test_random random = test_random_named("soak");
    float *memory = make_memory();
    int total = test_full() ? 1000000 : 6000;
    long bytes = 0;
    int handles = 0, threads = 0;
    for (int i = 0; i < total; i++) {
        if (i == total / 4) { /* all that grows to a bound has */
            bytes = process_bytes();
            handles = process_handles();
            threads = process_threads();
        }
        assert_true(run_random(&random, memory));
        if (i % 50)
            continue;
        char text[64];
        ogive_formula *formula;
        ogive_error error;
        snprintf(text, sizeof text, "tanh(x * %d) + y%d", i, i);
        TEST_OK(ogive_formula_create(text, OGIVE_TEXT, &formula, &error), error);
        ogive_formula_release(formula);
    }
    long grown = process_bytes() - bytes;
    printf("%d calls: %ld bytes more, %d handles, %d threads\n", total, grown, handles, threads);
    assert_int_equal(process_handles(), handles);
    assert_int_equal(process_threads(), threads);
    assert_true(TEST_SANITIZED || grown < 1 << 20);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_soak),
        cmocka_unit_test(test_storm),
    };
    return test_report(cmocka_run_group_tests(tests, make_formulas, end_formulas));
}
