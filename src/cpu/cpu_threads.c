/* SPDX-License-Identifier: MIT
 *
 * cpu_threads.c - a small pool of threads.
 *
 * Why not OpenMP: libgomp hangs in a forked child whose parent has used it
 * (PyTorch's data loaders fork), ThreadSanitizer cannot see its barriers, and a
 * second OpenMP runtime next to PyTorch's keeps its threads spinning against the
 * other's. Here an idle pool sleeps, a child of fork() starts with an empty pool,
 * and all communication is C11 atomics (futexes only put threads to sleep and
 * wake them; what they guard is always an atomic). A program whose own threads spin
 * lends them instead (ogive_cpu_use_threads()): two pools would take each other's cores.
 *
 * A region: the caller takes the pool (one atomic exchange; if another thread has
 * it, the caller does everything itself), publishes body and context, and lets
 * go of workers 1 to FAN_OUT, each of which lets go of FAN_OUT more, so that many
 * sleeping threads are woken in a few steps. Each finished worker takes one off
 * `pending`; the caller returns when that is 0. What no worker has begun when the
 * caller is done with its own part, the caller takes back and does itself: a
 * worker may wait for its core for milliseconds, where others are busy or an OpenMP
 * runtime's threads spin, as PyTorch's do after each of its own regions.
 *
 * Both sides spin for a while before they sleep: waking a thread through the
 * kernel takes longer than most regions. The time is bounded (SPIN_NS) and there
 * is no spinning at all with more threads than cores.
 *
 * Until the last worker of an empty region has run, which the caller does not wait for,
 * median in microseconds, in virtual machines (where waking is dear), and with the
 * threads asleep before it:
 *                              hot    asleep
 *     2 of 2 cores, EPYC       0.4    19
 *     2 of 16, Xeon            0.5    28
 *     4 of 16                  0.9    45
 *     8 of 16                  1.4    75
 *     16 of 16                 2.5    95      12 hot with 4 cores taken by others
 *     16 of 2, EPYC            72     96
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "cpu/cpu_threads.h"

#include "cpu/cpu_levels.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { FAN_OUT = 4, SPIN_PAUSES = 32, MOST_MOVED = 8 };
enum { SPIN_NS = 50000, REGION_SPIN_NS = 200000, YIELD_NS = 5000 };

/* ---- how many -------------------------------------------------------------- */

static int count_cores(void)
{
    for (int cpus = 1024; cpus <= 1 << 18; cpus *= 4) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (!set)
            break;
        size_t bytes = CPU_ALLOC_SIZE(cpus);
        CPU_ZERO_S(bytes, set);
        int cores = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (cores > 0) /* 0: the kernel's set is larger than ours */
            return cores;
    }
    return 1;
}

/* "8" or "8,4": the first number, or 0 if it is not one. */
static long parse_thread_count(const char *text)
{
    char *end;
    long count = strtol(text, &end, 10);
    while (*end == ' ' || *end == '\t')
        end++;
    return end != text && (*end == '\0' || *end == ',') && count > 0 ? count : 0;
}

int og_cpu_thread_count(int32_t requested)
{
    long count = requested;
    if (count <= 0) {
        const char *text = getenv("OMP_NUM_THREADS");
        count = text ? parse_thread_count(text) : 0;
    }
    if (count <= 0)
        count = count_cores();
    return count < OG_MAX_THREADS ? (int)count : OG_MAX_THREADS;
}

/* ---- sleeping -------------------------------------------------------------- */

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- the pool -------------------------------------------------------------- */

typedef enum { WORKER_IDLE, WORKER_ASLEEP, WORKER_RUN, WORKER_QUIT } worker_state;

typedef struct {
    alignas(64) _Atomic uint32_t state; /* a worker_state */
    int number;                         /* its thread number, from 1 */
    pthread_t thread;
} worker;

static const uint32_t CALLER_ASLEEP = 1u << 31; /* flag in pending */

static struct {
    alignas(64) atomic_bool busy; /* some thread has the pool, and owns all but the atomics */
    int worker_count;
    int cores;   /* when the workers were made */
    int avoided; /* the core that they keep off, or -1 */

    /* The region; workers read it only while they are part of it. */
    alignas(64) void (*body)(void *context, int thread, int threads);
    void *context;
    int threads;      /* as the caller asked */
    int active;       /* of these, the ones with a thread of their own */
    atomic_bool spin; /* workers read it at any time */

    alignas(64) _Atomic uint32_t pending; /* workers still at it */
    worker workers[OG_MAX_THREADS];       /* [t - 1] is thread t */
} pool;

/* Waits for *word to be (or, wanted false, not to be) value: for SPIN_NS, but
 * while others are still at work in the region for REGION_SPIN_NS more. Without
 * that, one late thread would send all others to sleep, the next region would
 * have to wake them one by one, late again, and so on (16 threads in a virtual
 * machine: 170 instead of 2.5 microseconds). After YIELD_NS the core is offered to
 * others: a thread just woken may have been put on this very core. A pause takes 10
 * to 140 cycles, depending on the CPU, so the clock decides. */
static bool spin_until(_Atomic uint32_t *word, uint32_t value, bool wanted)
{
    int64_t start = 0, end = 0;
    for (;;) {
        for (int i = 0; i < SPIN_PAUSES; i++) {
            if ((atomic_load_explicit(word, memory_order_acquire) == value) == wanted)
                return true;
            pause_cpu();
        }
        int64_t now = now_ns();
        if (!start)
            start = now;
        if (now == start || (now < start + REGION_SPIN_NS &&
                             atomic_load_explicit(&pool.pending, memory_order_relaxed)))
            end = now + SPIN_NS;
        if (now >= end)
            return false;
        if (now >= start + YIELD_NS)
            sched_yield();
    }
}

static void start_worker(worker *w)
{
    if (atomic_exchange_explicit(&w->state, WORKER_RUN, memory_order_acq_rel) == WORKER_ASLEEP)
        futex_wake(&w->state);
}

/* Starts the threads that thread number t starts: FAN_OUT * t + 1 and on. */
static void start_children(int t)
{
    for (int i = FAN_OUT * t + 1; i <= FAN_OUT * (t + 1) && i < pool.active; i++)
        start_worker(&pool.workers[i - 1]);
}

static bool may_spin(void)
{
    return atomic_load_explicit(&pool.spin, memory_order_relaxed);
}

/* Takes the work of w, which is the worker's or, before that has begun it, the caller's. */
static bool take_work(worker *w)
{
    uint32_t run = WORKER_RUN;
    return atomic_compare_exchange_strong_explicit(&w->state, &run, WORKER_IDLE,
                                                   memory_order_acq_rel, memory_order_acquire);
}

/* False: it is to end. */
static bool wait_for_work(worker *w)
{
    while (!take_work(w)) {
        if (!may_spin() || !spin_until(&w->state, WORKER_IDLE, false)) {
            uint32_t idle = WORKER_IDLE;
            atomic_compare_exchange_strong_explicit(&w->state, &idle, WORKER_ASLEEP,
                                                    memory_order_acq_rel, memory_order_acquire);
        }
        uint32_t state;
        while ((state = atomic_load_explicit(&w->state, memory_order_acquire)) == WORKER_ASLEEP)
            futex_wait(&w->state, WORKER_ASLEEP);
        if (state == WORKER_QUIT)
            return false;
    }
    return true;
}

static void *run_worker(void *argument)
{
    worker *w = argument;
    while (wait_for_work(w)) {
        start_children(w->number);
        og_cpu_float_enter(); /* nobody's state: a worker inherits its maker's at birth */
        pool.body(pool.context, w->number, pool.threads);
        uint32_t left = atomic_fetch_sub_explicit(&pool.pending, 1, memory_order_acq_rel);
        if (left == (CALLER_ASLEEP | 1))
            futex_wake(&pool.pending);
    }
    return NULL;
}

/* The caller does what nobody has begun. A worker's children come after it. */
static void take_back(void)
{
    for (int t = 1; t < pool.active; t++) {
        if (!take_work(&pool.workers[t - 1]))
            continue;
        start_children(t);
        pool.body(pool.context, t, pool.threads);
        atomic_fetch_sub_explicit(&pool.pending, 1, memory_order_acq_rel);
    }
}

static void wait_for_workers(void)
{
    take_back();
    if (may_spin() && spin_until(&pool.pending, 0, true))
        return;
    take_back(); /* from those whose parents were late */
    uint32_t left = atomic_fetch_or_explicit(&pool.pending, CALLER_ASLEEP, memory_order_acq_rel) |
                    CALLER_ASLEEP;
    while (left != CALLER_ASLEEP) {
        futex_wait(&pool.pending, left);
        left = atomic_load_explicit(&pool.pending, memory_order_acquire);
    }
    atomic_store_explicit(&pool.pending, 0, memory_order_relaxed); /* without the flag */
}

/* ---- birth and death ------------------------------------------------------- */

static _Atomic ogive_run_on_threads program_threads; /* NULL: the pool */

/* In a child of fork() there is only the thread that forked: forget the others, the program's
 * too, and the region that another thread may have been in. */
static void forget_workers(void)
{
    atomic_store_explicit(&program_threads, NULL, memory_order_relaxed);
    for (int i = 0; i < OG_MAX_THREADS; i++)
        atomic_store_explicit(&pool.workers[i].state, WORKER_IDLE, memory_order_relaxed);
    pool.worker_count = 0;
    pool.avoided = -1;
    atomic_store_explicit(&pool.pending, 0, memory_order_relaxed);
    atomic_store_explicit(&pool.busy, false, memory_order_relaxed);
}

static bool forks_are_seen;

static void see_forks(void)
{
    forks_are_seen = pthread_atfork(NULL, NULL, forget_workers) == 0;
}

/* False: no memory for it, so that a child of fork() would wait for threads that it does not have. */
static bool survives_fork(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, see_forks);
    return forks_are_seen;
}

/* Makes workers until there are wanted, or until the system says no. */
static void make_workers(int wanted)
{
    if (!survives_fork())
        return;
    pool.cores = count_cores();

    /* Signals are for the program's own threads. Faults are not: they come to the thread that
     * makes them, and one that blocks them ends the process past every handler (a mapped file
     * that becomes shorter during a run is SIGBUS). */
    static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigset_t all, before;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&all, faults[i]);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool.worker_count < wanted) {
        worker *w = &pool.workers[pool.worker_count];
        w->number = pool.worker_count + 1;
        if (pthread_create(&w->thread, NULL, run_worker, w) != 0)
            break;
        pthread_setname_np(w->thread, "ogive");
        pool.worker_count++;
    }
    pool.avoided = -2; /* they differ */
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Keeps the workers off the caller's core. The scheduler often wakes a thread where its
 * waker runs, and the waker then where that thread runs: both share a core for seconds
 * with the next one idle, and two threads take longer than one (a sigmoid of 2^20
 * elements, 2 cores: 500 instead of 213 microseconds, in every third burst of calls).
 * Done when the caller has changed its core; of many workers only a few can meet it, and
 * to move them all would take longer than it brings. */
static void avoid_core(int core, int workers)
{
    cpu_set_t cores; /* of more than 1024 nothing is known: left to the scheduler */
    if (workers > MOST_MOVED)
        core = -1; /* anywhere */
    if (core == pool.avoided || sched_getaffinity(0, sizeof cores, &cores) != 0)
        return;
    if (CPU_COUNT(&cores) <= workers)
        core = -1; /* all are needed */
    if (core >= 0)
        CPU_CLR((size_t)core, &cores);
    for (int i = 0; core != pool.avoided && i < pool.worker_count && i < MOST_MOVED; i++)
        pthread_setaffinity_np(pool.workers[i].thread, sizeof cores, &cores);
    pool.avoided = core;
}

/* At exit, or when a library that contains this one is unloaded. The pool stays
 * taken: who still calls does the work alone. If it is in use right now (exit()
 * in one thread, a region in another), its threads end with the process. */
__attribute__((destructor)) static void end_workers(void)
{
    if (atomic_exchange_explicit(&pool.busy, true, memory_order_acquire))
        return;
    for (int i = 0; i < pool.worker_count; i++) {
        worker *w = &pool.workers[i];
        if (atomic_exchange_explicit(&w->state, WORKER_QUIT, memory_order_acq_rel) == WORKER_ASLEEP)
            futex_wake(&w->state);
    }
    for (int i = 0; i < pool.worker_count; i++)
        pthread_join(pool.workers[i].thread, NULL);
    pool.worker_count = 0;
}

/* ---- a program's own threads ----------------------------------------------- */

typedef struct {
    void (*body)(void *context, int thread, int threads);
    void *context;
    int threads;
    atomic_int next; /* the part that nobody has begun */
} lent_region;

/* What each of the program's threads does: parts, until none is left. */
static void take_parts(void *argument)
{
    lent_region *region = argument;
    og_cpu_float_state saved = og_cpu_float_enter();
    for (int t;
         (t = atomic_fetch_add_explicit(&region->next, 1, memory_order_relaxed)) < region->threads;)
        region->body(region->context, t, region->threads);
    og_cpu_float_leave(saved);
}

ogive_status ogive_cpu_use_threads(ogive_run_on_threads run, ogive_error *error)
{
    if (!survives_fork())
        OG_FAIL(error, OGIVE_MEMORY, -1, "no memory for a handler of fork()");
    atomic_store_explicit(&program_threads, run, memory_order_release);
    return OGIVE_OK;
}

/* ---- entry ----------------------------------------------------------------- */

void og_cpu_parallel(int threads, void (*body)(void *context, int thread, int threads),
                     void *context)
{
    ogive_run_on_threads run =
        threads > 1 ? atomic_load_explicit(&program_threads, memory_order_acquire) : NULL;
    if (run) {
        lent_region region = {.body = body, .context = context, .threads = threads};
        run(take_parts, &region, threads);
        take_parts(&region); /* what it has left */
        return;
    }
    int done = 0; /* threads below this number have been taken care of */
    if (threads > 1 && !atomic_load_explicit(&pool.busy, memory_order_relaxed) &&
        !atomic_exchange_explicit(&pool.busy, true, memory_order_acquire)) {
        int wanted = (threads < OG_MAX_THREADS ? threads : OG_MAX_THREADS) - 1;
        if (pool.worker_count < wanted)
            make_workers(wanted);
        done = (pool.worker_count < wanted ? pool.worker_count : wanted) + 1;
        pool.body = body;
        pool.context = context;
        pool.threads = threads;
        pool.active = done;
        atomic_store_explicit(&pool.spin, done <= pool.cores, memory_order_relaxed);
        avoid_core(sched_getcpu(), done - 1);
        atomic_store_explicit(&pool.pending, (uint32_t)(done - 1), memory_order_relaxed);
        start_children(0);
        body(context, 0, threads);
        wait_for_workers();
        atomic_store_explicit(&pool.busy, false, memory_order_release);
    }
    for (int t = done; t < threads; t++)
        body(context, t, threads);
}
