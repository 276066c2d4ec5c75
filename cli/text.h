/* SPDX-License-Identifier: MIT
 *
 * text.h - small things with text: sizes and times for people, the nearest of
 * several names, lists of strings, and printing what others wrote safely.
 */
#ifndef OGIVE_CLI_TEXT_H
#define OGIVE_CLI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Pointers to strings that others own. */
typedef struct {
    const char **items;
    size_t count;
    size_t capacity;
} text_list;

/* false: no memory. */
bool text_list_add(text_list *list, const char *item);
void text_list_release(text_list *list);

/* "512 B", "64.0 MiB": for sizes of memory. */
void text_binary_bytes(char *buffer, size_t capacity, double bytes);
/* "512 B", "67.1 MB": for amounts that move, to go with GB/s. */
void text_bytes(char *buffer, size_t capacity, double bytes);
/* "812 ns", "6.30 ms", "2.41 s". */
void text_seconds(char *buffer, size_t capacity, double seconds);
/* "(128, 4096)", "(3,)", "()" as Python writes a shape. */
void text_shape(char *buffer, size_t capacity, const int64_t *shape, int32_t ndim);

bool text_ends_with(const char *text, const char *end);

/* The candidate nearest to name by edits, NULL if none is near enough to be a
 * slip of the finger. */
const char *text_nearest(const char *name, const char *const *candidates, size_t count);

/* Length of the UTF-8 character at text (1 to 4), 0 if it is not one. */
size_t text_utf8_length(const char *text, size_t available);

/* Prints text with control characters and bytes that are not UTF-8 as '?':
 * names from files must not reach the terminal as escape sequences. Tabs stay. */
void text_print_safe(FILE *out, const char *text, size_t length);

#endif
