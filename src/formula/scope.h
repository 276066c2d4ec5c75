/* SPDX-License-Identifier: MIT
 *
 * scope.h - the names of a formula (or of a composite's meaning) and what they
 * stand for.
 */
#ifndef OG_SCOPE_H
#define OG_SCOPE_H

#include "formula/builder.h"

typedef struct {
    const char *name; /* in the text */
    size_t length;
    bool is_input;
    int64_t offset; /* of its binding, or of an input's first appearance */
    og_operand operand;
} og_named;

/* A meaning has at most OG_MAX_PARAMETERS names and a few of its own. */
enum { OG_FIRST_NAMES = 12 };

typedef struct {
    og_named *names;
    size_t count, capacity;
    uint32_t *slots; /* hash table of 1 + name, while there are more than OG_FIRST_NAMES */
    size_t slot_count;
    og_named first_names[OG_FIRST_NAMES];
} og_scope;

void og_scope_init(og_scope *scope);
void og_scope_free(og_scope *scope);
/* NULL if there is none; valid until the next name is added. */
og_named *og_scope_find(const og_scope *scope, const char *name, size_t length);
ogive_status og_scope_add(og_scope *scope, const og_named *named, ogive_error *error);

/* The operand of true, inf, None and the like; false if the name is none of them. */
bool og_find_word(const char *name, size_t length, og_operand *out);
/* Is the name a function's alone? t, min, max and norm are good names of values, too. */
bool og_is_reserved(const char *text, size_t length, bool in_meaning);

#endif
