/* SPDX-License-Identifier: MIT
 *
 * arena.c - memory that is freed in one go, and arrays that double; see base.h.
 */
#include "base/base.h"

#include <stdlib.h>
#include <string.h>

enum {
    ALIGNMENT = 16,
    BLOCK_BYTES = 4096 /* holds a short formula's graph whole */
};

struct og_arena_block {
    og_arena_block *next;
    size_t used, capacity;
    _Alignas(ALIGNMENT) char data[];
};

/* calloc: the pages of a large block come zeroed from the system. */
static og_arena_block *add_block(og_arena *arena, size_t bytes)
{
    size_t capacity = BLOCK_BYTES - sizeof(og_arena_block), total;
    if (capacity < bytes)
        capacity = bytes;
    if (!og_add_size(capacity, sizeof(og_arena_block), &total))
        return NULL;
    og_arena_block *block = calloc(1, total);
    if (!block)
        return NULL;
    block->capacity = capacity;
    /* A block of its own goes behind the first, whose rest stays in use. */
    if (arena->first && bytes > BLOCK_BYTES / 2) {
        block->next = arena->first->next;
        arena->first->next = block;
    } else {
        block->next = arena->first;
        arena->first = block;
    }
    return block;
}

void *og_arena_alloc(og_arena *arena, size_t count, size_t size)
{
    size_t bytes;
    if (!og_mul_size(count, size, &bytes) || !og_add_size(bytes, ALIGNMENT - 1, &bytes))
        return NULL;
    bytes &= ~(size_t)(ALIGNMENT - 1);

    og_arena_block *block = arena->first;
    if (!block || block->capacity - block->used < bytes) {
        block = add_block(arena, bytes);
        if (!block)
            return NULL;
    }
    void *memory = block->data + block->used;
    block->used += bytes;
    return memory;
}

void og_arena_free(og_arena *arena)
{
    og_arena_block *block = arena->first;
    while (block) {
        og_arena_block *next = block->next;
        free(block);
        block = next;
    }
    arena->first = NULL;
}

bool og_grow(void **items, size_t *capacity, size_t needed, size_t size)
{
    if (needed <= *capacity)
        return true;
    size_t wanted = *capacity ? *capacity : 8, bytes;
    while (wanted < needed) {
        if (!og_mul_size(wanted, 2, &wanted))
            return false;
    }
    if (!og_mul_size(wanted, size, &bytes))
        return false;
    void *larger = realloc(*items, bytes);
    if (!larger)
        return false;
    *items = larger;
    *capacity = wanted;
    return true;
}

bool og_grow_from(const void *first, void **items, size_t *capacity, size_t needed, size_t size)
{
    if (needed <= *capacity)
        return true;
    if (*items != first)
        return og_grow(items, capacity, needed, size);
    void *heap = NULL;
    size_t heap_capacity = 0;
    if (!og_grow(&heap, &heap_capacity, needed, size))
        return false;
    memcpy(heap, first, *capacity * size);
    *items = heap;
    *capacity = heap_capacity;
    return true;
}
