/* SPDX-License-Identifier: MIT
 *
 * json_output.c - what --json prints; see json_output.h.
 */
#include "json_output.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* An allocation of jansson's failed: some value is missing somewhere. */
static bool lost;

static void *allocate(size_t bytes)
{
    void *block = malloc(bytes);

    lost |= !block;
    return block;
}

void json_watch_memory(void)
{
    json_set_alloc_funcs(allocate, free);
}

bool json_take_loss(void)
{
    bool was = lost;

    lost = false;
    return was;
}

static void print_value(FILE *out, const json_t *value, int depth);

static void dump(FILE *out, const json_t *value, size_t flags)
{
    lost |= json_dumpf(value, out, flags) != 0;
}

/* Where a stream in memory cannot grow, fputs() says so; the blanks of a "%*s" are lost without a
 * word (glibc 2.36: ferror() is 0 then). */
static void put(FILE *out, const char *text)
{
    lost |= fputs(text, out) < 0;
}

/* before, and a new line, indented. */
static void begin_line(FILE *out, const char *before, int depth)
{
    put(out, before);
    put(out, "\n");
    while (depth-- > 0)
        put(out, "  ");
}

static void print_object(FILE *out, const json_t *object, int depth)
{
    const char *before = "{";

    for (void *at = json_object_iter((json_t *)(uintptr_t)object); at;
         at = json_object_iter_next((json_t *)(uintptr_t)object, at)) {
        json_t *key = json_string(json_object_iter_key(at));
        begin_line(out, before, depth + 1);
        before = ",";
        dump(out, key, JSON_ENCODE_ANY);
        json_decref(key);
        put(out, ": ");
        print_value(out, json_object_iter_value(at), depth + 1);
    }
    begin_line(out, "", depth);
    put(out, "}");
}

/* Objects, and each of an array of them, take a line an entry; a shape or a tensor is one line. */
static void print_value(FILE *out, const json_t *value, int depth)
{
    if (json_is_object(value) && json_object_size(value)) {
        print_object(out, value, depth);
    } else if (json_is_array(value) && json_is_object(json_array_get(value, 0))) {
        for (size_t i = 0; i < json_array_size(value); i++) {
            begin_line(out, i ? "," : "[", depth + 1);
            print_value(out, json_array_get(value, i), depth + 1);
        }
        begin_line(out, "", depth);
        put(out, "]");
    } else {
        dump(out, value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    }
}

void print_json(json_t *value)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);

    if (out) {
        print_value(out, value, 0);
        put(out, "\n");
    }
    lost |= !out || ferror(out);
    lost |= out && fclose(out) != 0;
    lost |= !text; /* glibc 2.36 has no memory to hand it over, and says nothing */
    json_decref(value);
    if (!lost)
        fwrite(text, 1, length, stdout);
    free(text);
}

json_t *json_number_or_text(double value)
{
    if (isfinite(value))
        return json_real(value);
    return json_string(isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
}
