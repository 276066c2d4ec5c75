/* SPDX-License-Identifier: MIT
 *
 * test_threads.c - the thread pool: every part of a region runs once, whatever
 * else happens at the time: other callers, nesting, fork(), no memory for
 * threads, a caller with another floating-point environment.
 */
#include "test.h"

#include "cpu/cpu_threads.h"

#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ThreadSanitizer ends a forked child that starts threads, unless told not to.
 * (OGIVE_API: everything else is hidden, and it looks for this by name.) */
OGIVE_API const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "die_after_fork=0";
}

/* ---- counting -------------------------------------------------------------- */

typedef struct {
    int threads;
    _Atomic int calls[300];
    _Atomic int wrong;
} count;

static void count_call(void *context, int thread, int threads)
{
    count *c = context;
    if (threads != c->threads || thread < 0 || thread >= threads)
        atomic_fetch_add(&c->wrong, 1);
    else
        atomic_fetch_add(&c->calls[thread], 1);
}

/* Calls of each thread number; false unless all have the same. */
static bool count_region(int threads, int repeats)
{
    count *c = calloc(1, sizeof *c);
    c->threads = threads;
    for (int i = 0; i < repeats; i++)
        og_cpu_parallel(threads, count_call, c);
    bool right = c->wrong == 0;
    for (int t = 0; t < 300; t++)
        right &= c->calls[t] == (t < threads ? repeats : 0);
    free(c);
    return right;
}

static void test_every_number_once(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 9; threads++)
        assert_true(count_region(threads, 200));
    /* Up and down: workers that are not part of a region must stay out of it. */
    for (int i = 0; i < 200; i++)
        assert_true(count_region(1 + i * 7 % 5, 3));
}

static void test_more_threads_than_cores(void **state)
{
    (void)state;
    assert_true(count_region(64, 50));
    assert_true(count_region(256, 3));
    assert_true(count_region(300, 3)); /* beyond the pool: the caller does the rest */
}

/* The results of a region are visible to the caller, and its inputs to the workers. */
static void square_part(void *context, int thread, int threads)
{
    int *x = context;
    for (int i = thread; i < 1000; i += threads)
        x[i] = x[i] * x[i];
}

static void test_plain_memory(void **state)
{
    (void)state;
    int x[1000];
    for (int repeat = 0; repeat < 300; repeat++) {
        for (int i = 0; i < 1000; i++)
            x[i] = i + repeat;
        og_cpu_parallel(1 + repeat % 6, square_part, x);
        for (int i = 0; i < 1000; i++)
            assert_int_equal(x[i], (i + repeat) * (i + repeat));
    }
}

/* ---- several callers ------------------------------------------------------- */

static void nest(void *context, int thread, int threads)
{
    (void)thread;
    (void)threads;
    if (!count_region(3, 2))
        atomic_fetch_add((_Atomic int *)context, 1);
}

static void test_nested(void **state)
{
    (void)state;
    _Atomic int wrong = 0;
    for (int i = 0; i < 50; i++)
        og_cpu_parallel(4, nest, &wrong);
    assert_int_equal(wrong, 0);
}

static void *call_often(void *argument)
{
    bool *right = argument;
    *right = count_region(3, 2000);
    return NULL;
}

static void test_callers_at_once(void **state)
{
    (void)state;
    pthread_t callers[4];
    bool right[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&callers[i], NULL, call_often, &right[i]), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(callers[i], NULL);
        assert_true(right[i]);
    }
}

/* ---- fork ------------------------------------------------------------------ */

/* The caller takes what no worker has begun: this gives one the time. */
static void linger(int thread)
{
    if (thread == 0)
        usleep(10000);
}

static void note_thread(void *context, int thread, int threads)
{
    (void)threads;
    ((pthread_t *)context)[thread] = pthread_self();
    linger(thread);
}

/* Does a region get a thread of its own, if it is given some seconds? */
static bool finds_worker(void)
{
    pthread_t threads[2];
    for (int i = 0; i < 500; i++) {
        og_cpu_parallel(2, note_thread, threads);
        if (!pthread_equal(threads[0], threads[1]))
            return true;
    }
    return false;
}

/* In the child: exit status 0 if regions run, on threads of their own. */
static void check_in_child(pid_t *child)
{
    *child = fork();
    if (*child)
        return;
    alarm(20); /* a hang is a failure, not a wait for ever */
    bool right = finds_worker() && count_region(4, 100);
    _exit(right ? 0 : 1);
}

static void wait_for_child(pid_t child)
{
    int status;
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_fork_after_use(void **state)
{
    (void)state;
    pid_t child;
    assert_true(count_region(4, 10));
    check_in_child(&child);
    wait_for_child(child);
    assert_true(count_region(4, 10));
}

static void *call_until_told(void *argument)
{
    while (!atomic_load((_Atomic bool *)argument))
        if (!count_region(3, 1))
            abort();
    return NULL;
}

static void test_fork_during_region(void **state)
{
    (void)state;
    if (TEST_SANITIZED)
        skip(); /* a lock of the sanitizer's own may be held at the fork, for ever in the child */
    _Atomic bool stop = false;
    pthread_t caller;
    assert_int_equal(pthread_create(&caller, NULL, call_until_told, (void *)&stop), 0);
    for (int i = 0; i < 100; i++) {
        pid_t child;
        check_in_child(&child);
        wait_for_child(child);
    }
    atomic_store(&stop, true);
    pthread_join(caller, NULL);
}

/* ---- late workers ---------------------------------------------------------- */

static void note_who(void *context, int thread, int threads)
{
    (void)threads;
    ((pthread_t *)context)[thread] = pthread_self();
}

/* On one core a worker begins when the system lets it: the caller must not wait for one, which takes
 * milliseconds where other threads spin, but do its part. Once in many regions is enough, since who
 * comes first is not ours to say. */
static void test_late_workers_are_not_waited_for(void **state)
{
    (void)state;
    pid_t child = fork();
    if (!child) {
        enum { REGIONS = 20000 };
        alarm(20);
        cpu_set_t core;
        CPU_ZERO(&core);
        CPU_SET((size_t)sched_getcpu(), &core);
        sched_setaffinity(0, sizeof core, &core);
        bool own = false;
        for (int i = 0; i < REGIONS && !own; i++) {
            pthread_t threads[2];
            og_cpu_parallel(2, note_who, threads);
            own = pthread_equal(threads[0], threads[1]) != 0;
        }
        _exit(own ? 0 : 1);
    }
    wait_for_child(child);
}

/* ---- no threads to be had -------------------------------------------------- */

static void test_no_memory_for_threads(void **state)
{
    (void)state;
    if (TEST_SANITIZED)
        skip(); /* sanitizers need the address space themselves */
    pid_t child = fork();
    if (!child) {
        alarm(20);
        struct rlimit limit;
        getrlimit(RLIMIT_AS, &limit);
        limit.rlim_cur = 200u << 20; /* a thread's stack takes 8 MiB of it */
        setrlimit(RLIMIT_AS, &limit);
        _exit(count_region(250, 3) ? 0 : 1);
    }
    wait_for_child(child);
}

/* ---- what a body may rely on ----------------------------------------------- */

typedef struct {
    pthread_t caller;
    int wrong_rounding, wrong_flush, unblocked, wrong_name;
    volatile float tiny, one, three;
} environment;

static void look_around(void *context, int thread, int threads)
{
    environment *e = context;
    (void)threads;
    linger(thread);
    if (thread == 0)
        return; /* the caller's environment is the caller's affair */
    if (pthread_equal(pthread_self(), e->caller))
        return;
    sigset_t blocked;
    char name[16] = "";
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    pthread_getname_np(pthread_self(), name, sizeof name);
    /* Not fegetround(): on x86 that asks the x87, which we do not use. */
    e->wrong_rounding =
        e->one / e->three != 0x1.555556p-2f || -e->one / e->three != -0x1.555556p-2f;
    e->wrong_flush = e->tiny / 2 == 0;
    e->unblocked = !sigismember(&blocked, SIGINT) || !sigismember(&blocked, SIGTERM);
    e->wrong_name = strcmp(name, "ogive") != 0;
}

static void test_environment_of_workers(void **state)
{
    (void)state;
    environment e = {.caller = pthread_self(), .tiny = 0x1p-130f, .one = 1, .three = 3};
    fesetround(FE_UPWARD);
    og_cpu_parallel(2, look_around, &e);
    int rounding = fegetround();
    fesetround(FE_TONEAREST);
    assert_int_equal(rounding, FE_UPWARD);
    assert_int_equal(e.wrong_rounding, 0);
    assert_int_equal(e.wrong_flush, 0);
    assert_int_equal(e.unblocked, 0);
    assert_int_equal(e.wrong_name, 0);

    /* A new pool, made by a thread that rounds upwards: workers inherit that. */
    pid_t child = fork();
    if (!child) {
        alarm(20);
        fesetround(FE_UPWARD);
        og_cpu_parallel(2, look_around, &e);
        _exit(e.wrong_rounding);
    }
    wait_for_child(child);
}

/* ---- a program's own threads ------------------------------------------------- */

/* What a program may lend: one thread each, the caller's alone, or nobody. */
enum { LENT = 3 };
static _Atomic int lent_wrong, lent_calls;

typedef struct {
    void (*task)(void *argument);
    void *argument;
} lent_task;

/* A thread whose state is another, which it must find again. */
static void *run_lent(void *argument)
{
    lent_task *lent = argument;
    fesetround(FE_UPWARD);
    lent->task(lent->argument);
    if (fegetround() != FE_UPWARD)
        atomic_fetch_add(&lent_wrong, 1);
    return NULL;
}

static void lend_threads(void (*task)(void *argument), void *argument, int32_t threads)
{
    pthread_t lent[LENT];
    lent_task each = {task, argument};
    atomic_fetch_add(&lent_calls, 1);
    int taken = threads < LENT ? threads : LENT;
    for (int i = 0; i < taken; i++)
        assert_int_equal(pthread_create(&lent[i], NULL, run_lent, &each), 0);
    for (int i = 0; i < taken; i++)
        pthread_join(lent[i], NULL);
}

static void lend_caller(void (*task)(void *argument), void *argument, int32_t threads)
{
    (void)threads;
    task(argument);
}

static void lend_nobody(void (*task)(void *argument), void *argument, int32_t threads)
{
    (void)task;
    (void)argument;
    (void)threads;
}

/* Threads that were lent have another name than the pool's. */
static void note_name(void *context, int thread, int threads)
{
    char name[16] = "";
    (void)threads;
    pthread_getname_np(pthread_self(), name, sizeof name);
    if (strcmp(name, "ogive") == 0)
        atomic_fetch_add((_Atomic int *)context, 1);
    linger(thread);
}

static void test_lent_threads(void **state)
{
    (void)state;
    static const ogive_run_on_threads lenders[] = {lend_threads, lend_caller, lend_nobody};
    ogive_error error;
    _Atomic int of_pool = 0;
    environment e = {.caller = pthread_self(), .tiny = 0x1p-130f, .one = 1, .three = 3};
    for (size_t i = 0; i < TEST_COUNT(lenders); i++) {
        TEST_OK(ogive_cpu_use_threads(lenders[i], &error), error);
        for (int threads = 1; threads <= 9; threads++)
            assert_true(count_region(threads, 20));
        assert_true(count_region(300, 1));
        test_plain_memory(NULL);
        test_callers_at_once(NULL);
        og_cpu_parallel(4, note_name, (void *)&of_pool);
    }
    assert_true(lent_calls > 0);
    assert_int_equal(lent_wrong, 0);
    assert_int_equal(of_pool, 0);

    TEST_OK(ogive_cpu_use_threads(lend_threads, &error), error);
    int before = lent_calls;
    og_cpu_parallel(1, note_name, (void *)&of_pool); /* nothing to divide: nobody is asked */
    assert_int_equal(lent_calls, before);
    og_cpu_parallel(2, look_around, &e);
    assert_int_equal(e.wrong_rounding, 0);
    assert_int_equal(e.wrong_flush, 0);

    /* A child has none of them, and takes the pool's. */
    pid_t child = fork();
    if (!child) {
        alarm(20);
        before = lent_calls;
        _exit(finds_worker() && count_region(4, 100) && lent_calls == before ? 0 : 1);
    }
    wait_for_child(child);
    TEST_OK(ogive_cpu_use_threads(NULL, &error), error);
    assert_true(finds_worker());
}

/* ---- idle ----------------------------------------------------------------- */

static double process_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void test_idle_pool_sleeps(void **state)
{
    (void)state;
    assert_true(count_region(4, 10));
    usleep(20000);
    double before = process_seconds();
    usleep(200000);
    assert_true(process_seconds() - before < 0.02);
}

/* ---- faults ----------------------------------------------------------------- */

static volatile char *lost_page; /* of a file that has become shorter */

static void read_lost_page(void *context, int thread, int threads)
{
    (void)context;
    linger(thread);
    if (thread == threads - 1)
        (void)lost_page[0];
}

static void end_on_fault(int number)
{
    _exit(number == SIGBUS ? 7 : 8);
}

/* A fault comes to the thread that makes it: the program's handler must get it there, too. */
static void test_fault_in_worker(void **state)
{
    (void)state;
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(ftruncate(fileno(file), 4096), 0);
    lost_page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fileno(file), 0);
    assert_ptr_not_equal(lost_page, MAP_FAILED);
    assert_int_equal(ftruncate(fileno(file), 0), 0);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGBUS, end_on_fault);
        og_cpu_parallel(2, read_lost_page, NULL);
        _exit(9);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
    munmap((void *)(uintptr_t)lost_page, 4096);
    fclose(file);
}

/* ---- how many -------------------------------------------------------------- */

static int count_with(const char *text)
{
    setenv("OMP_NUM_THREADS", text, 1);
    int threads = og_cpu_thread_count(0);
    unsetenv("OMP_NUM_THREADS");
    return threads;
}

static void test_thread_count(void **state)
{
    (void)state;
    unsetenv("OMP_NUM_THREADS");
    cpu_set_t cores;
    assert_int_equal(sched_getaffinity(0, sizeof cores, &cores), 0);
    int all = CPU_COUNT(&cores);

    assert_int_equal(og_cpu_thread_count(3), 3);
    assert_int_equal(og_cpu_thread_count(256), 256);
    assert_int_equal(og_cpu_thread_count(INT32_MAX), 256);
    assert_int_equal(og_cpu_thread_count(0), all);
    assert_int_equal(og_cpu_thread_count(-5), all);
    assert_int_equal(count_with("5"), 5);
    assert_int_equal(count_with(" 5 "), 5);
    assert_int_equal(count_with("6,4,2"), 6);
    assert_int_equal(count_with("99999999999999999999"), 256);
    static const char *const invalid[] = {"", "0", "-1", "four", "4x", ","};
    for (size_t i = 0; i < TEST_COUNT(invalid); i++)
        assert_int_equal(count_with(invalid[i]), all);

    setenv("OMP_NUM_THREADS", "7", 1);
    assert_int_equal(og_cpu_thread_count(2), 2);
    assert_int_equal(ogive_cpu_threads(), 7);
    unsetenv("OMP_NUM_THREADS");

    /* One core of several. */
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
        if (CPU_ISSET(i, &cores))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(og_cpu_thread_count(0), 1);
    assert_int_equal(sched_setaffinity(0, sizeof cores, &cores), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_thread_count),
        cmocka_unit_test(test_every_number_once),
        cmocka_unit_test(test_plain_memory),
        cmocka_unit_test(test_nested),
        cmocka_unit_test(test_callers_at_once),
        cmocka_unit_test(test_environment_of_workers),
        cmocka_unit_test(test_lent_threads),
        cmocka_unit_test(test_idle_pool_sleeps),
        cmocka_unit_test(test_fork_after_use),
        cmocka_unit_test(test_fork_during_region),
        cmocka_unit_test(test_fault_in_worker),
        cmocka_unit_test(test_late_workers_are_not_waited_for),
        cmocka_unit_test(test_no_memory_for_threads),
        cmocka_unit_test(test_more_threads_than_cores),
    };
    return TEST_RUN(tests);
}
