/* SPDX-License-Identifier: MIT
 *
 * scope.c - names and what they stand for; see scope.h. A few names are
 * searched one by one, more by a hash table.
 */
#include "formula/scope.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void og_scope_init(og_scope *scope)
{
    scope->names = scope->first_names;
    scope->count = 0;
    scope->capacity = OG_FIRST_NAMES;
    scope->slots = NULL;
    scope->slot_count = 0;
}

void og_scope_free(og_scope *scope)
{
    if (scope->names != scope->first_names)
        free(scope->names);
    free(scope->slots);
}

static size_t hash_name(const char *name, size_t length)
{
    uint64_t hash = length;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)name[i]) * UINT64_C(0x100000001b3);
    return (size_t)(hash ^ hash >> 32);
}

static bool is_named(const og_named *named, const char *name, size_t length)
{
    return named->length == length && !memcmp(named->name, name, length);
}

og_named *og_scope_find(const og_scope *scope, const char *name, size_t length)
{
    if (!scope->slots) {
        for (size_t i = 0; i < scope->count; i++) {
            if (is_named(&scope->names[i], name, length))
                return &scope->names[i];
        }
        return NULL;
    }
    size_t mask = scope->slot_count - 1;
    for (size_t slot = hash_name(name, length) & mask; scope->slots[slot];
         slot = (slot + 1) & mask) {
        og_named *named = &scope->names[scope->slots[slot] - 1];
        if (is_named(named, name, length))
            return named;
    }
    return NULL;
}

static void fill_slot(const og_scope *scope, size_t index)
{
    const og_named *named = &scope->names[index];
    size_t mask = scope->slot_count - 1, slot = hash_name(named->name, named->length) & mask;
    while (scope->slots[slot])
        slot = (slot + 1) & mask;
    scope->slots[slot] = (uint32_t)index + 1;
}

/* At least twice as many slots as names, one more of which is about to come. */
static bool grow_slots(og_scope *scope)
{
    if ((scope->count + 1) * 2 <= scope->slot_count || scope->count < OG_FIRST_NAMES)
        return true;
    size_t slot_count = scope->slot_count ? scope->slot_count * 4 : 64;
    uint32_t *slots = calloc(slot_count, sizeof *slots);
    if (!slots)
        return false;
    free(scope->slots);
    scope->slots = slots;
    scope->slot_count = slot_count;
    for (size_t i = 0; i < scope->count; i++)
        fill_slot(scope, i);
    return true;
}

ogive_status og_scope_add(og_scope *scope, const og_named *named, ogive_error *error)
{
    void *names = scope->names;
    if (!grow_slots(scope) || !og_grow_from(scope->first_names, &names, &scope->capacity,
                                            scope->count + 1, sizeof *named))
        return og_fail_memory(error, 2 * (scope->count + 1) * sizeof *named);
    scope->names = names;
    scope->names[scope->count++] = *named;
    if (scope->slots)
        fill_slot(scope, scope->count - 1);
    return OGIVE_OK;
}

/* ---- words --------------------------------------------------------------- */

bool og_find_word(const char *name, size_t length, og_operand *out)
{
    static const struct {
        const char *name;
        og_operand operand;
    } words[] = {
        {"inf", {.kind = OG_OPERAND_NUMBER, .number = INFINITY}},
        {"nan", {.kind = OG_OPERAND_NUMBER, .number = NAN}},
        {"true", {.kind = OG_OPERAND_FLAG, .flag = true}},
        {"True", {.kind = OG_OPERAND_FLAG, .flag = true}},
        {"false", {.kind = OG_OPERAND_FLAG}},
        {"False", {.kind = OG_OPERAND_FLAG}},
        {"None", {.kind = OG_OPERAND_NONE}},
        {"none", {.kind = OG_OPERAND_NONE}},
    };
    if (length < 3 || length > 5)
        return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strlen(words[i].name) == length && !memcmp(words[i].name, name, length)) {
            *out = words[i].operand;
            return true;
        }
    }
    return false;
}

bool og_is_reserved(const char *text, size_t length, bool in_meaning)
{
    switch ((int)og_function_find(text, length, in_meaning)) {
    case OG_FUNCTION_COUNT:
    case OG_OP_t:
    case OG_OP_min:
    case OG_OP_max:
    case OG_OP_norm:
        return false;
    default:
        return true;
    }
}
