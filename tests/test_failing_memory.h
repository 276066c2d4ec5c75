/* SPDX-License-Identifier: MIT
 *
 * test_failing_memory.h - the Nth allocation returns NULL, for tests linked with --wrap for
 * malloc, calloc, realloc and free (CMakeLists.txt): only the library's and the test's own
 * calls are counted.
 */
#ifndef TEST_FAILING_MEMORY_H
#define TEST_FAILING_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The N that fails, or 0; what was allocated while counting and not freed. */
static struct {
    bool counting;
    int64_t calls, fail_at, live;
} memory;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void __real_free(void *block);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void __wrap_free(void *block);

/* True if this call is to fail. */
static bool fails(void)
{
    return memory.counting && ++memory.calls == memory.fail_at;
}

static void *count_block(void *block)
{
    memory.live += memory.counting && block;
    return block;
}

void *__wrap_malloc(size_t bytes)
{
    return fails() ? NULL : count_block(__real_malloc(bytes));
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return fails() ? NULL : count_block(__real_calloc(count, bytes));
}

void *__wrap_realloc(void *old, size_t bytes)
{
    if (fails())
        return NULL;
    void *block = __real_realloc(old, bytes);
    return old ? block : count_block(block);
}

void __wrap_free(void *block)
{
    memory.live -= memory.counting && block;
    __real_free(block);
}

#endif
