/* SPDX-License-Identifier: MIT
 *
 * fake_memory.c - device memory of the fake driver: host memory between pages that
 * cannot be touched, the end of every block against the second one. What alignment
 * leaves between the two is filled with a pattern that fake_free() and every launch
 * look at. A new block is full of NaNs, one of gigabytes full of zeros. Addresses are never used again, so that a
 * kernel or a copy that comes after a free is caught too.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "fake_cuda.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PATTERN = 0xc7 };
/* NaN as float32 and float64, and as each half of a float32. */
enum { POISON = 0xff, MOST_POISON = 1 << 30 };

static size_t arena_bytes = (size_t)1 << 40;
static char *arena, *arena_next;
static fake_block *blocks; /* ascending */
static size_t block_count, block_room, used;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

size_t fake_memory_total(void)
{
    const char *text = getenv("OGIVE_SHIM_MEMORY");
    return text ? (size_t)strtoull(text, NULL, 0) : (size_t)8 << 30;
}

size_t fake_memory_used(void)
{
    return used;
}

static bool grow_tables(void)
{
    if (!arena) {
        void *map = MAP_FAILED;
        /* The thread sanitizer leaves less room for it. */
        while (arena_bytes >> 34 &&
               (map = mmap(NULL, arena_bytes, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) == MAP_FAILED)
            arena_bytes /= 2;
        if (map == MAP_FAILED)
            return false;
        arena = arena_next = map;
    }
    if (block_count < block_room)
        return true;
    size_t room = block_room ? 2 * block_room : 64;
    fake_block *grown = realloc(blocks, room * sizeof *blocks);
    if (!grown)
        return false;
    blocks = grown;
    block_room = room;
    return true;
}

static fake_stamp *make_stamps(size_t bytes)
{
    void *map = mmap(NULL, (bytes + 1) * sizeof(fake_stamp), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return map == MAP_FAILED ? NULL : map;
}

void *fake_allocate(size_t bytes, int device)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t inside = (bytes + page - 1) / page * page, needed = inside + page;
    size_t alignment = bytes % 64 == 0 ? 64 : bytes % 32 == 0 ? 32 : 16;
    void *data = NULL;
    pthread_mutex_lock(&lock);
    if (bytes <= fake_memory_total() && used + bytes <= fake_memory_total() && grow_tables() &&
        (size_t)(arena + arena_bytes - arena_next) > needed + page &&
        mprotect(arena_next + page, inside, PROT_READ | PROT_WRITE) == 0) {
        fake_block *b = &blocks[block_count++];
        b->map = arena_next + page;
        b->map_bytes = inside;
        b->bytes = bytes;
        b->device = device;
        b->stamps = bytes < MOST_POISON ? make_stamps(bytes) : NULL;
        b->data = b->map + (inside - bytes) / alignment * alignment;
        size_t before = (size_t)(b->data - b->map);
        memset(b->map, PATTERN, before);
        memset(b->data + bytes, PATTERN, inside - before - bytes);
        if (bytes < MOST_POISON) /* pages that are never touched take no memory */
            memset(b->data, POISON, bytes);
        arena_next += needed;
        used += bytes;
        data = b->data;
    }
    pthread_mutex_unlock(&lock);
    return data;
}

static bool is_damaged(const fake_block *b)
{
    for (const char *p = b->map; p < b->data; p++)
        if ((unsigned char)*p != PATTERN)
            return true;
    for (const char *p = b->data + b->bytes; p < b->map + b->map_bytes; p++)
        if ((unsigned char)*p != PATTERN)
            return true;
    return false;
}

/* The last block that begins at or before address. */
static fake_block *search(const volatile void *address)
{
    size_t low = 0, high = block_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if ((uintptr_t)blocks[middle].map <= (uintptr_t)address)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? &blocks[low - 1] : NULL;
}

bool fake_free(void *data)
{
    pthread_mutex_lock(&lock);
    fake_block *b = search(data);
    bool good = b && b->data == data;
    if (good) {
        good = !is_damaged(b);
        mprotect(b->map, b->map_bytes, PROT_NONE);
        madvise(b->map, b->map_bytes, MADV_DONTNEED);
        if (b->stamps)
            munmap(b->stamps, (b->bytes + 1) * sizeof *b->stamps);
        used -= b->bytes;
        memmove(b, b + 1, (size_t)(blocks + block_count - b - 1) * sizeof *b);
        block_count--;
    }
    pthread_mutex_unlock(&lock);
    return good;
}

const fake_block *fake_find(const volatile void *address, size_t bytes, bool *inside)
{
    static _Thread_local fake_block found;
    pthread_mutex_lock(&lock);
    const fake_block *b = search(address);
    *inside = b && (const volatile char *)address >= b->data &&
              (const volatile char *)address + bytes <= b->data + b->bytes;
    if (!b && block_count)
        b = &blocks[0];
    if (b)
        found = *b;
    pthread_mutex_unlock(&lock);
    return b ? &found : NULL;
}

bool fake_is_device(const volatile void *address)
{
    return arena && (uintptr_t)address - (uintptr_t)arena < arena_bytes;
}

bool fake_is_inside(const volatile void *address, size_t bytes)
{
    bool inside = false;
    fake_find(address, bytes, &inside);
    return inside || bytes == 0;
}

const fake_block *fake_find_damage(void)
{
    static _Thread_local fake_block found;
    const fake_block *damaged = NULL;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < block_count && !damaged; i++)
        if (is_damaged(&blocks[i])) {
            found = blocks[i];
            damaged = &found;
        }
    pthread_mutex_unlock(&lock);
    return damaged;
}
