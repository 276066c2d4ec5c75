/* SPDX-License-Identifier: MIT
 *
 * failing_malloc.c - for LD_PRELOAD: the Nth allocation of the thread that called fail_at(N)
 * returns NULL, or, with OGIVE_FAIL_AT=N, that of a program's main thread, which says in the end how many
 * calls were left. test_memory.py builds and uses it.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static __thread long left; /* calls until the one that fails; 0: none does */

long fail_at(long n);

/* Returns what is left of the N before: not 0 if there were fewer calls. */
long fail_at(long n)
{
    long before = left;
    left = n;
    return before;
}

static int fails(void)
{
    if (left == 0 || --left > 0)
        return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t bytes)
{
    return fails() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return fails() ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
    return fails() ? NULL : __libc_realloc(old, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return fails() ? NULL : __libc_memalign(alignment, bytes);
}

__attribute__((constructor)) static void start(void)
{
    const char *at = getenv("OGIVE_FAIL_AT");
    left = at ? atol(at) : 0;
}

__attribute__((destructor)) static void end(void)
{
    if (getenv("OGIVE_FAIL_AT") && left)
        fprintf(stderr, "left %ld\n", left);
}
