/* SPDX-License-Identifier: MIT
 *
 * json_output.c - what --json prints; see json_output.h.
 */
#include "json_output.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { INDENT = 2 };

static void print_value(const json_t *value, int depth);

static void begin_line(bool first, int depth)
{
    printf("%s\n%*s", first ? "" : ",", depth * INDENT, "");
}

static void print_object(const json_t *object, int depth)
{
    bool first = true;

    putchar('{');
    for (void *at = json_object_iter((json_t *)(uintptr_t)object); at;
         at = json_object_iter_next((json_t *)(uintptr_t)object, at)) {
        json_t *key = json_string(json_object_iter_key(at));
        begin_line(first, depth + 1);
        first = false;
        json_dumpf(key, stdout, JSON_ENCODE_ANY);
        json_decref(key);
        fputs(": ", stdout);
        print_value(json_object_iter_value(at), depth + 1);
    }
    printf("\n%*s}", depth * INDENT, "");
}

/* Objects, and each of an array of them, take a line an entry; a shape or a tensor is one line. */
static void print_value(const json_t *value, int depth)
{
    if (json_is_object(value) && json_object_size(value)) {
        print_object(value, depth);
    } else if (json_is_array(value) && json_is_object(json_array_get(value, 0))) {
        putchar('[');
        for (size_t i = 0; i < json_array_size(value); i++) {
            begin_line(i == 0, depth + 1);
            print_value(json_array_get(value, i), depth + 1);
        }
        printf("\n%*s]", depth * INDENT, "");
    } else {
        json_dumpf(value, stdout, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    }
}

void print_json(json_t *value)
{
    print_value(value, 0);
    putchar('\n');
    json_decref(value);
}

json_t *json_number_or_text(double value)
{
    if (isfinite(value))
        return json_real(value);
    return json_string(isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
}
