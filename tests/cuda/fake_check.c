/* SPDX-License-Identifier: MIT
 *
 * fake_check.c - what every load and store of a kernel is held against, when modules
 * are compiled for it (OGIVE_SHIM_CHECK=1):
 *   - device memory: inside one block, to the byte; before a launch that overlaps those before
 *     it has waited for them, nothing that they wrote, and no writing of what they read;
 *   - shared memory: inside the launch's bytes, and no race: of two threads that touch
 *     a byte, one of them writing, one does so before and one after a barrier (or, in
 *     one warp, a __syncwarp or shuffle of all lanes);
 *   - anything else: the module's own constants and the thread's own stack, never
 *     other memory of the host.
 */
#include "fake_cuda.h"

#include <stdio.h>
#include <string.h>

enum { LANES = 32, WARPS = 128 }; /* of all blocks of a cluster */
/* A reader that is not one thread: several lanes of warp x (SEVERAL_LANES + x), several
 * warps. */
enum { SEVERAL_LANES = 0x8000, SEVERAL_WARPS = 0xffff };

/* Who touched a byte last, and when: epochs of the block and of the thread's warp. */
typedef struct {
    uint16_t writer, reader;
    uint32_t write_epoch, read_epoch, write_warp_epoch, read_warp_epoch;
} shadow;

static shadow shadows[SHIM_SHARED_BYTES * 2]; /* dynamic, then static */
static uint32_t epoch, warp_epochs[WARPS];
static struct {
    const fake_module *module;
    size_t shared_bytes;
    const char *stacks;
    size_t stack_bytes;
} now;

static uint32_t launch, first_launch; /* this one; the first that may still run when it begins */

/* One that does not overlap begins when all have ended. */
void fake_check_launch(bool overlaps)
{
    launch++;
    first_launch = overlaps ? first_launch : launch;
}

void fake_check_block(const fake_function *function, size_t shared_bytes, const char *stacks,
                      size_t stack_bytes)
{
    epoch++; /* 0 is never */
    now.module = function->module;
    now.shared_bytes = shared_bytes;
    now.stacks = stacks;
    now.stack_bytes = stack_bytes;
}

void fake_check_barrier(void)
{
    epoch++;
}

void fake_check_warp(unsigned warp)
{
    warp_epochs[warp]++;
}

static unsigned warp_of(uint16_t who)
{
    return who & SEVERAL_LANES ? who - SEVERAL_LANES : who / LANES;
}

static bool is_racing(uint16_t other, uint32_t other_epoch, uint32_t other_warp_epoch,
                      unsigned thread)
{
    if (other_epoch != epoch || other == thread)
        return false;
    if (other == SEVERAL_WARPS || warp_of(other) != thread / LANES)
        return true;
    return other_warp_epoch == warp_epochs[thread / LANES];
}

static uint16_t join_readers(const shadow *s, unsigned thread)
{
    uint16_t before = s->reader;
    if (s->read_epoch != epoch || before == thread)
        return (uint16_t)thread;
    if (before == SEVERAL_WARPS || warp_of(before) != thread / LANES)
        return SEVERAL_WARPS;
    /* What a warp read before it met matters to other warps alone, and to them it is
     * one warp. */
    return s->read_warp_epoch == warp_epochs[thread / LANES]
               ? (uint16_t)(SEVERAL_LANES + thread / LANES)
               : (uint16_t)thread;
}

static const char *touch_shared(shadow *s, bool write, unsigned thread)
{
    static char text[160];
    uint32_t warp_epoch = warp_epochs[thread / LANES];
    bool after_write = is_racing(s->writer, s->write_epoch, s->write_warp_epoch, thread);
    bool after_read = write && is_racing(s->reader, s->read_epoch, s->read_warp_epoch, thread);
    if (after_write || after_read) {
        snprintf(text, sizeof text,
                 "race in shared memory: %s what thread %d %s, no barrier between",
                 write ? "writes" : "reads", after_write ? s->writer : s->reader,
                 after_write ? "wrote" : "read");
        return text;
    }
    if (write) {
        s->writer = (uint16_t)thread;
        s->write_epoch = epoch;
        s->write_warp_epoch = warp_epoch;
        return NULL;
    }
    s->reader = join_readers(s, thread);
    s->read_epoch = epoch;
    s->read_warp_epoch = warp_epoch;
    return NULL;
}

static bool is_before(uint32_t other)
{
    return other >= first_launch && other < launch;
}

static const char *touch_device(fake_stamp *s, size_t bytes, bool write, bool early)
{
    static char text[160];
    for (size_t i = 0; i < bytes; i++) {
        if (early && (is_before(s[i].write) || (write && is_before(s[i].read)))) {
            snprintf(text, sizeof text, "%s what a launch before it %s, without waiting for it",
                     write ? "writes" : "reads", is_before(s[i].write) ? "wrote" : "read");
            return text;
        }
        *(write ? &s[i].write : &s[i].read) = launch;
    }
    return NULL;
}

static bool is_within(uintptr_t address, size_t bytes, const void *from, size_t length)
{
    return address - (uintptr_t)from < length && address - (uintptr_t)from + bytes <= length;
}

const char *fake_check_touch(const volatile void *address, size_t bytes, bool write,
                             unsigned thread, bool early)
{
    static char text[160];
    uintptr_t at = (uintptr_t)address;
    const struct shim_shared *shared = &now.module->shared;
    size_t static_bytes = (size_t)(shared->to - shared->from);
    const bool is_own = is_within(at, bytes, now.stacks, now.stack_bytes);
    shadow *first = NULL;
    if (is_own) /* where a variable lies there is the compiler's affair: two of 8 bytes it copies as 16 */
        return NULL;
    if (bytes <= 16 && (bytes & (bytes - 1)) == 0 && at % bytes) {
        snprintf(text, sizeof text, "%zu bytes at %p are not aligned", bytes, (const void *)at);
        return text;
    }
    if (fake_is_device(address)) {
        bool inside;
        const fake_block *b = fake_find(address, bytes, &inside);
        if (inside)
            return b->stamps
                       ? touch_device(b->stamps + (at - (uintptr_t)b->data), bytes, write, early)
                       : NULL;
        snprintf(text, sizeof text, "%s %zu bytes at byte %td of a block of %zu",
                 write ? "writes" : "reads", bytes, (const char *)at - (b ? b->data : NULL),
                 b ? b->bytes : 0);
        return text;
    }
    if (is_within(at, bytes, shared->dynamic, SHIM_SHARED_BYTES)) {
        if (!is_within(at, bytes, shared->dynamic, now.shared_bytes)) {
            snprintf(text, sizeof text, "%s byte %zu of %zu bytes of dynamic shared memory",
                     write ? "writes" : "reads", (size_t)(at - (uintptr_t)shared->dynamic),
                     now.shared_bytes);
            return text;
        }
        first = &shadows[at - (uintptr_t)shared->dynamic];
    } else if (is_within(at, bytes, shared->from, static_bytes)) {
        first = &shadows[SHIM_SHARED_BYTES + (at - (uintptr_t)shared->from)];
    }
    if (first) {
        const char *wrong = NULL;
        for (size_t i = 0; i < bytes && !wrong; i++)
            wrong = touch_shared(&first[i], write, thread);
        return wrong;
    }
    if (is_within(at, bytes, now.module->image_from,
                  (size_t)(now.module->image_to - now.module->image_from)))
        return NULL;
    snprintf(text, sizeof text, "%s %p, memory of the host", write ? "writes" : "reads",
             (const void *)at);
    return text;
}
