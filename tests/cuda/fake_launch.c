/* SPDX-License-Identifier: MIT
 *
 * fake_launch.c - runs a grid on the CPU. Blocks run one after the other, in a random
 * order, those of a cluster in turn; the threads of a block are fibers that run until
 * they wait for others, warps in a random order, lanes up or down. Shared memory is full
 * of NaNs when a block begins; of a cluster's blocks, those that do not run have their
 * own in a copy. A launch fails, and says on standard error which block and thread and
 * why, if
 *   - a thread touches what is not its own (700, as on a GPU);
 *   - a barrier is reached by a part of a block only, or by threads that vote
 *     differently;
 *   - a lane of a shuffle's mask is at another place; (what a lane that is not in the
 *     mask or has exited would give is a pattern, a NaN);
 *   - something is written around a block of device memory or beyond shared memory.
 * The order is the same in every run: it comes from a count of launches.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "fake_cuda.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    MOST_THREADS = 1024,
    MOST_BLOCKS = 8, /* of a cluster */
    MOST_FIBERS = 4096,
    LANES = 32,
    STACK_BYTES = 128 * 1024,
    POISON = 0xff,  /* a NaN in every type */
    PATTERN = 0xc7, /* behind dynamic shared memory */
    PATTERN_BYTES = 1024
};

/* ---- fibers ------------------------------------------------------------------------- */

/* Saves the registers that a call preserves on the stack, the stack pointer in *save,
 * and goes on where `to` was saved. No library call: those switch signal masks, which
 * costs a system call, or are intercepted by sanitizers. */
void shim_switch(void **save, void *to) __attribute__((visibility("hidden")));
#if defined(__x86_64__)
__asm__(".text\n.globl shim_switch\n.hidden shim_switch\n.type shim_switch, @function\n"
        "shim_switch:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp, (%rdi)\n"
        "movq %rsi, %rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\n"
        "ret\n.size shim_switch, .-shim_switch\n");
enum { SAVED_WORDS = 8, RETURN_WORD = 6 }; /* one more, so that a stack is aligned as by a call */
#elif defined(__aarch64__)
__asm__(".text\n.globl shim_switch\n.hidden shim_switch\n.type shim_switch, %function\n"
        "shim_switch:\n"
        "sub sp, sp, #160\n"
        "stp x19, x20, [sp]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\n"
        "stp x25, x26, [sp, #48]\nstp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\n"
        "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\n"
        "stp d14, d15, [sp, #144]\n"
        "mov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
        "ldp x19, x20, [sp]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\n"
        "ldp x25, x26, [sp, #48]\nldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\n"
        "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\n"
        "ldp d14, d15, [sp, #144]\n"
        "add sp, sp, #160\nret\n.size shim_switch, .-shim_switch\n");
enum { SAVED_WORDS = 20, RETURN_WORD = 11 };
#else
#error "fibers are written for x86-64 and AArch64"
#endif

typedef enum { FRESH, READY, AT_BARRIER, AT_MEETING, EXITED } fiber_state;

typedef struct {
    void *stack; /* its saved stack pointer */
    struct shim_index index;
    fiber_state state;
    bool has_waited; /* for the launch before */
    int kind;        /* what it waits for */
    int vote, source;
    unsigned mask;
    unsigned long long value; /* given, then taken */
} fiber;

/* Lanes of a warp, as bits: who waits for others, and whom nobody waits for. */
typedef struct {
    unsigned met, absent;
} warp_lanes;

static struct {
    fiber fibers[MOST_FIBERS]; /* of the blocks of a cluster */
    warp_lanes warps[MOST_FIBERS / LANES];
    unsigned count;          /* threads of a block */
    unsigned first, current; /* fiber: of the block that runs, and that one */
    char *away[MOST_BLOCKS]; /* shared memory of blocks that do not run */
    char *stacks;
    void *scheduler;
    int result;      /* CUresult of the launch */
    bool has_waited; /* has any thread, for the launch before? */
    fake_function *function;
    const fake_launch_shape *shape;
    struct shim_link link;
    uint64_t random;
} run;

static pthread_mutex_t launch_lock = PTHREAD_MUTEX_INITIALIZER;

static unsigned draw(unsigned below)
{
    run.random = run.random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((run.random >> 33) % below);
}

static void wait_here(void)
{
    shim_switch(&run.fibers[run.current].stack, run.scheduler);
}

/* Ends the launch, from a fiber or the scheduler. */
static void report(int result, const char *message)
{
    const struct shim_index b = run.link.block, t = run.fibers[run.current].index;
    if (!run.result)
        fprintf(stderr,
                "cuda shim: %s<<<(%u,%u,%u),(%u,%u,%u),%zu>>>, block (%u,%u,%u), "
                "thread (%u,%u,%u): %s\n",
                run.function->name, run.shape->grid.x, run.shape->grid.y, run.shape->grid.z,
                run.shape->block.x, run.shape->block.y, run.shape->block.z, run.shape->shared_bytes,
                b.x, b.y, b.z, t.x, t.y, t.z, message);
    run.result = result;
}

/* From a fiber, which never goes on. */
static void fail_fiber(const char *message)
{
    report(CUDA_LAUNCH_FAILED, message);
    wait_here();
}

/* Others run, then this fiber again. */
static void pause_fiber(void)
{
    wait_here();
}

static void await_launch(void)
{
    run.fibers[run.current].has_waited = run.has_waited = true;
}

static void fiber_main(void);

static void start_fiber(unsigned index)
{
    fiber *f = &run.fibers[index];
    /* Stacks that begin at the same place of a page would share a few lines of the cache. */
    char *top = run.stacks + (size_t)(index + 1) * STACK_BYTES - (index * 320 % 4096 & ~63u);
    void **words = (void **)top - SAVED_WORDS;
    memset(words, 0, SAVED_WORDS * sizeof *words);
    words[RETURN_WORD] = (void *)(uintptr_t)fiber_main;
    f->stack = words;
    f->state = READY;
    f->has_waited = false;
}

static void resume(unsigned index)
{
    fiber *f = &run.fibers[index];
    if (f->state == FRESH)
        start_fiber(index);
    run.current = index;
    run.link.thread = f->index;
    shim_switch(&run.scheduler, f->stack);
}

/* ---- waiting for others ------------------------------------------------------------- */

static int wait_barrier(int kind, int vote)
{
    fiber *f = &run.fibers[run.current];
    f->state = AT_BARRIER;
    f->kind = kind;
    f->vote = vote;
    wait_here();
    return f->vote;
}

/* All threads wait at the barrier: lets them go. */
static void release_barrier(void)
{
    int count = 0, all = 1;
    fiber *fibers = &run.fibers[run.first];
    for (unsigned i = 0; i < run.count; i++) {
        run.current = run.first + i;
        if (fibers[i].kind != fibers[0].kind) {
            report(CUDA_LAUNCH_FAILED, "is at another kind of barrier than thread 0");
            return;
        }
        count += fibers[i].vote != 0;
        all &= fibers[i].vote != 0;
    }
    for (unsigned i = 0; i < run.count; i++) {
        fiber *f = &fibers[i];
        f->vote = f->kind == SHIM_BARRIER_AND  ? all
                  : f->kind == SHIM_BARRIER_OR ? count > 0
                                               : count;
        f->state = READY;
    }
    fake_check_barrier();
}

/* The lanes of mask that exist and have not exited all wait for each other: gives each
 * its value and lets them go. False: one is not there yet. */
static bool release_meeting(unsigned first, unsigned mask, int kind)
{
    unsigned long long given[LANES], ballot = 0;
    unsigned present = 0;
    warp_lanes *warp = &run.warps[first / LANES];
    if (mask & ~(warp->met | warp->absent)) /* what follows, most lanes need not find out */
        return false;
    for (unsigned lane = 0; lane < LANES && first + lane < run.first + run.count; lane++) {
        const fiber *f = &run.fibers[first + lane];
        if (!(mask >> lane & 1) || f->state == EXITED)
            continue;
        if (f->state != AT_MEETING || f->mask != mask || f->kind != kind)
            return false;
        given[lane] = f->value;
        ballot |= (unsigned long long)(f->value != 0) << lane;
        present |= 1u << lane;
    }
    warp->met &= ~present;
    for (unsigned lane = 0; lane < LANES; lane++) {
        if (!(present >> lane & 1))
            continue;
        fiber *f = &run.fibers[first + lane];
        f->state = READY;
        if (kind == SHIM_BALLOT)
            f->value = ballot;
        else if (kind == SHIM_SHUFFLE && (f->source < 0 || !(present >> f->source & 1)))
            f->value = ~0ull;
        else if (kind == SHIM_SHUFFLE)
            f->value = given[f->source];
    }
    if (mask == ~0u)
        fake_check_warp(first / LANES);
    return true;
}

static unsigned long long wait_meeting(int kind, unsigned mask, int source,
                                       unsigned long long value)
{
    fiber *f = &run.fibers[run.current];
    unsigned lane = run.current % LANES;
    if (!(mask >> lane & 1))
        fail_fiber("is not in the mask it gives");
    f->state = AT_MEETING;
    run.warps[run.current / LANES].met |= 1u << lane;
    f->kind = kind;
    f->mask = mask;
    f->source = source;
    f->value = value;
    if (!release_meeting(run.current - lane, mask, kind))
        wait_here();
    return f->value;
}

/* One lane less to wait for: whoever does may go on. */
static void leave_warp(void)
{
    unsigned first = run.current - run.current % LANES;
    run.fibers[run.current].state = EXITED;
    run.warps[first / LANES].absent |= 1u << run.current % LANES;
    for (unsigned i = first; i < first + LANES && i < run.first + run.count; i++)
        if (run.fibers[i].state == AT_MEETING)
            release_meeting(first, run.fibers[i].mask, run.fibers[i].kind);
}

static void fiber_main(void)
{
    run.function->entry(run.shape->parameters);
    leave_warp();
    wait_here();
    abort(); /* nobody resumes it */
}

/* ---- faults ---------------------------------------------------------------------------- */

static void describe_address(const volatile void *address, char *text, size_t bytes)
{
    bool inside;
    const fake_block *b = fake_is_device(address) ? fake_find(address, 1, &inside) : NULL;
    if (b)
        snprintf(text, bytes, "touches byte %td of a block of %zu bytes",
                 (const volatile char *)address - b->data, b->bytes);
    else
        snprintf(text, bytes, "touches %p, which is not device memory", (const void *)address);
}

static void catch_fault(int signal, siginfo_t *info, void *context)
{
    char text[160];
    (void)context;
    if (signal == SIGSEGV || signal == SIGBUS)
        describe_address(info->si_addr, text, sizeof text);
    else
        snprintf(text, sizeof text, "signal %d%s", signal,
                 signal == SIGILL ? ": a misaligned access, an index or a shift out of range" : "");
    report(CUDA_ILLEGAL_ADDRESS, text);
    wait_here(); /* for ever: the launch ends */
}

static void touch(const volatile void *address, unsigned long bytes, int write)
{
    if ((uintptr_t)address - (uintptr_t)&run.link < sizeof run.link) /* threadIdx and the like */
        return;
    /* Of a cluster's shared memory there is one record, for all its blocks. */
    if (run.function->cluster > 1 && !fake_is_device(address))
        return;
    bool early = run.shape->overlaps && !run.fibers[run.current].has_waited;
    const char *wrong = fake_check_touch(address, bytes, write != 0, run.current, early);
    if (wrong)
        fail_fiber(wrong);
}

/* ---- blocks ---------------------------------------------------------------------------- */

static void explain_deadlock(void)
{
    unsigned waiting = 0, exited = 0, meeting = 0;
    for (unsigned i = run.first; i < run.first + run.count; i++) {
        waiting += run.fibers[i].state == AT_BARRIER;
        exited += run.fibers[i].state == EXITED;
        meeting += run.fibers[i].state == AT_MEETING;
        if (run.fibers[i].state == AT_MEETING || (run.fibers[i].state == AT_BARRIER && !meeting))
            run.current = i;
    }
    char text[200];
    if (meeting)
        snprintf(text, sizeof text,
                 "waits for lanes of mask %08x that never come (%u threads wait "
                 "for lanes, %u at a barrier, %u have exited)",
                 run.fibers[run.current].mask, meeting, waiting, exited);
    else
        snprintf(text, sizeof text, "barrier reached by %u of %u threads, %u have exited", waiting,
                 run.count, exited);
    report(CUDA_LAUNCH_FAILED, text);
}

/* Random order of warps, lanes up or down; the same for the whole block. */
static void draw_order(unsigned *order)
{
    unsigned warps = (run.count + LANES - 1) / LANES, warp_order[MOST_THREADS / LANES] = {0}, n = 0;
    for (unsigned i = 0; i < warps; i++) {
        unsigned other = draw(i + 1);
        warp_order[i] = warp_order[other];
        warp_order[other] = i;
    }
    bool down = draw(2);
    for (unsigned i = 0; i < warps; i++)
        for (unsigned l = 0; l < LANES; l++) {
            unsigned t = warp_order[i] * LANES + (down ? LANES - 1 - l : l);
            if (t < run.count)
                order[n++] = run.first + t;
        }
}

/* Threads of the block run, each until it waits. Have all exited? */
static bool run_round(const unsigned *order)
{
    unsigned waiting = 0, exited = 0, progress = 0;
    for (unsigned i = 0; i < run.count && !run.result; i++) {
        fiber *f = &run.fibers[order[i]];
        if (f->state == FRESH || f->state == READY) {
            resume(order[i]);
            progress++;
        }
    }
    for (unsigned i = run.first; i < run.first + run.count; i++) {
        waiting += run.fibers[i].state == AT_BARRIER;
        exited += run.fibers[i].state == EXITED;
    }
    if (waiting == run.count && !run.result)
        release_barrier();
    else if (!progress && exited < run.count && !run.result)
        explain_deadlock();
    return exited == run.count;
}

static void poison_shared(const fake_module *m, size_t bytes)
{
    if (m->shared.from)
        memset(m->shared.from, POISON, (size_t)(m->shared.to - m->shared.from));
    memset(m->shared.dynamic, POISON, bytes);
    memset(m->shared.dynamic + bytes, PATTERN, PATTERN_BYTES);
}

static void check_shared(const fake_module *m, size_t bytes)
{
    for (size_t i = 0; i < PATTERN_BYTES && !run.result; i++)
        if ((unsigned char)m->shared.dynamic[bytes + i] != PATTERN) {
            report(CUDA_ILLEGAL_ADDRESS, "the block wrote beyond its dynamic shared memory");
            return;
        }
}

/* Where block rank of the cluster, which does not run, has `shared`: dynamic shared memory, static,
 * and the rest. */
static void *find_away(unsigned rank, const void *shared)
{
    const struct shim_shared *of = &run.function->module->shared;
    const char *at = shared;
    char *away = run.away[rank] + SHIM_SHARED_BYTES + PATTERN_BYTES;
    if (at >= of->from && at < of->to)
        return away + (at - of->from);
    if (at >= of->dynamic && at < of->dynamic + SHIM_SHARED_BYTES + PATTERN_BYTES)
        return run.away[rank] + (at - of->dynamic);
    return away + (of->to - of->from) + (at - of->zeros_from);
}

/* The end of what is the block's from `from` on; *next: where that begins again. */
static char *find_end(char *from, char **next)
{
    const struct shim_shared *of = &run.function->module->shared;
    char *end = *next = of->zeros_to;
    for (int i = 0; i < SHIM_NOT_BLOCKS; i++)
        if (of->not_blocks[i].from >= from && of->not_blocks[i].from < end) {
            end = of->not_blocks[i].from;
            *next = end + of->not_blocks[i].bytes;
        }
    return end;
}

static void *find_in_block(unsigned rank, const void *shared)
{
    return rank == run.link.rank ? (void *)(uintptr_t)shared : find_away(rank, shared);
}

static void move_part(unsigned rank, char *part, size_t bytes, bool away)
{
    char *there = bytes ? find_away(rank, part) : NULL;
    if (bytes && away)
        memcpy(there, part, bytes);
    else if (bytes)
        memcpy(part, there, bytes);
}

static void move_shared(unsigned rank, bool away)
{
    const struct shim_shared *shared = &run.function->module->shared;
    char *next;
    move_part(rank, shared->dynamic, run.shape->shared_bytes + PATTERN_BYTES, away);
    move_part(rank, shared->from, (size_t)(shared->to - shared->from), away);
    for (char *from = shared->zeros_from; from < shared->zeros_to; from = next) {
        char *end = find_end(from, &next);
        move_part(rank, from, (size_t)(end - from), away);
    }
}

/* From one block of a cluster to the next. */
static void switch_block(void)
{
    const unsigned rank = run.link.rank, next = (rank + 1) % run.link.cluster;
    move_shared(rank, true);
    move_shared(next, false);
    run.link.block.x += next - rank;
    run.link.rank = next;
    run.link.other_shared = run.away[(next + 1) % run.link.cluster];
    run.first = next * run.count;
}

/* The cluster whose first block is run.link.block, or this block alone: blocks have their rounds
 * in turn, and are checked in turn. */
static void run_cluster(void)
{
    const fake_module *m = run.function->module;
    const unsigned blocks = run.function->cluster;
    unsigned order[MOST_FIBERS], exited = 0;
    for (unsigned b = 0; b < blocks; b++) {
        draw_order(order + run.first);
        for (unsigned i = 0; i < run.count; i++)
            run.fibers[run.first + i].state = FRESH;
        for (unsigned i = 0; i < run.count; i += LANES)
            run.warps[(run.first + i) / LANES] =
                (warp_lanes){.absent = run.count - i < LANES ? ~0u << (run.count - i) : 0};
        poison_shared(m, run.shape->shared_bytes);
        if (blocks > 1)
            switch_block();
    }
    fake_check_block(run.function, run.shape->shared_bytes, run.stacks,
                     (size_t)MOST_FIBERS * STACK_BYTES);
    while (exited < blocks && !run.result) {
        exited = 0;
        for (unsigned b = 0; b < blocks && !run.result; b++) {
            exited += run_round(order + run.first);
            if (blocks > 1)
                switch_block();
        }
    }
    for (unsigned b = 0; b < blocks; b++) {
        check_shared(m, run.shape->shared_bytes);
        if (blocks > 1)
            switch_block();
    }
}

static uint64_t find_step(uint64_t count)
{
    for (;;) { /* any step without a common divisor visits all */
        uint64_t step = 1 + draw(count < 1000000 ? (unsigned)count : 1000000), a = step, b = count;
        while (b) {
            uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1)
            return step;
    }
}

static void run_grid(void)
{
    const struct shim_index g = run.shape->grid;
    const unsigned blocks = run.function->cluster, x = g.x / blocks;
    uint64_t count = (uint64_t)x * g.y * g.z, step = find_step(count), at = draw(1000) % count;
    for (uint64_t i = 0; i < count && !run.result; i++, at = (at + step) % count) {
        run.link.block = (struct shim_index){(unsigned)(at % x) * blocks, (unsigned)(at / x % g.y),
                                             (unsigned)(at / x / g.y)};
        run_cluster();
    }
    /* One that waits for this launch would not have waited for those before it. */
    if (run.shape->overlaps && !run.has_waited && !run.result)
        report(CUDA_LAUNCH_FAILED, "overlaps the launch before it and never waits for it");
    const fake_block *damaged = run.result ? NULL : fake_find_damage();
    if (damaged) {
        char text[120];
        snprintf(text, sizeof text, "the grid wrote next to a block of %zu bytes", damaged->bytes);
        report(CUDA_ILLEGAL_ADDRESS, text);
    }
}

static bool make_stacks(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (run.stacks)
        return true;
    char *stacks = mmap(NULL, (size_t)MOST_FIBERS * STACK_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED)
        return false;
    for (size_t i = 0; i < MOST_FIBERS; i++)
        mprotect(stacks + i * STACK_BYTES, page, PROT_NONE);
    run.stacks = stacks;
    return true;
}

/* Room for what each block of a cluster has. */
static bool make_away(const fake_function *function)
{
    const struct shim_shared *shared = &function->module->shared;
    bool made = true;
    for (unsigned b = 0; b < MOST_BLOCKS; b++) {
        free(run.away[b]);
        run.away[b] = NULL;
        if (function->cluster > 1 && b < function->cluster)
            run.away[b] =
                calloc(1, SHIM_SHARED_BYTES + PATTERN_BYTES + (size_t)(shared->to - shared->from) +
                              (size_t)(shared->zeros_to - shared->zeros_from));
        made &= run.away[b] || function->cluster == 1 || b >= function->cluster;
    }
    return made;
}

/* Clusters are of blocks of whole warps. */
static bool can_launch(const fake_function *function, const fake_launch_shape *shape)
{
    unsigned threads = shape->block.x * shape->block.y * shape->block.z;
    return function->cluster == 1 || (function->cluster <= MOST_BLOCKS && threads % LANES == 0 &&
                                      function->cluster * threads <= MOST_FIBERS);
}

int fake_launch(fake_function *function, const fake_launch_shape *shape)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
    struct sigaction action = {.sa_sigaction = catch_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    struct sigaction before[4];
    if (!can_launch(function, shape))
        return CUDA_INVALID_VALUE;
    pthread_mutex_lock(&launch_lock);
    if (!make_stacks() || !make_away(function)) {
        pthread_mutex_unlock(&launch_lock);
        return CUDA_OUT_OF_MEMORY;
    }
    run.function = function;
    run.shape = shape;
    run.result = CUDA_OK;
    run.has_waited = false;
    run.count = shape->block.x * shape->block.y * shape->block.z;
    run.first = 0;
    run.random++;
    for (unsigned f = 0; f < run.count * function->cluster; f++) {
        const unsigned i = f % run.count;
        run.fibers[f].index =
            (struct shim_index){i % shape->block.x, i / shape->block.x % shape->block.y,
                                i / shape->block.x / shape->block.y};
    }
    run.link = (struct shim_link){.cluster = function->cluster,
                                  .other_shared = function->cluster > 1 ? run.away[1] : NULL,
                                  .find_in_block = find_in_block,
                                  .block_size = shape->block,
                                  .grid_size = shape->grid,
                                  .barrier = wait_barrier,
                                  .meet = wait_meeting,
                                  .touch = touch,
                                  .fail = fail_fiber,
                                  .pause = pause_fiber,
                                  .settle = fake_check_barrier,
                                  .await_launch = await_launch,
                                  .add_products = fake_add_products,
                                  .multiply = fake_multiply,
                                  .read_row = fake_read_row};
    fake_check_launch(shape->overlaps);
    *function->module->link = &run.link;
    for (int i = 0; i < 4; i++)
        sigaction(signals[i], &action, &before[i]);
    run_grid();
    for (int i = 0; i < 4; i++)
        sigaction(signals[i], &before[i], NULL);
    int result = run.result;
    pthread_mutex_unlock(&launch_lock);
    return result;
}
