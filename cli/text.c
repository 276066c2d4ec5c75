/* SPDX-License-Identifier: MIT
 *
 * text.c - small things with text; see text.h.
 */
#include "text.h"

#include <stdlib.h>
#include <string.h>

bool text_list_add(text_list *list, const char *item)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 8;
        const char **items = realloc(list->items, capacity * sizeof(*items));
        if (!items)
            return false;
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = item;
    return true;
}

void text_list_release(text_list *list)
{
    free(list->items);
    *list = (text_list){0};
}

static void scale_bytes(char *buffer, size_t capacity, double bytes, double step,
                        const char *const *units)
{
    size_t unit = 0;

    while (bytes >= step && units[unit + 1]) {
        bytes /= step;
        unit++;
    }
    snprintf(buffer, capacity, unit && bytes < 99.95 ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
}

void text_binary_bytes(char *buffer, size_t capacity, double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", NULL};
    scale_bytes(buffer, capacity, bytes, 1024.0, units);
}

void text_bytes(char *buffer, size_t capacity, double bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB", NULL};
    scale_bytes(buffer, capacity, bytes, 1000.0, units);
}

void text_seconds(char *buffer, size_t capacity, double seconds)
{
    static const struct {
        double scale;
        const char *unit;
    } units[] = {{1e9, "ns"}, {1e6, "us"}, {1e3, "ms"}};

    for (size_t i = 0; i < 3; i++) {
        double value = seconds * units[i].scale;
        if (value < 999.5) {
            const char *format = value < 9.995 ? "%.2f %s" : value < 99.95 ? "%.1f %s" : "%.0f %s";
            snprintf(buffer, capacity, format, value, units[i].unit);
            return;
        }
    }
    snprintf(buffer, capacity, "%.2f s", seconds);
}

void text_shape(char *buffer, size_t capacity, const int64_t *shape, int32_t ndim)
{
    size_t used = (size_t)snprintf(buffer, capacity, "(");

    for (int32_t i = 0; i < ndim && used < capacity; i++) {
        const char *after = i + 1 < ndim ? ", " : ndim == 1 ? "," : "";
        used +=
            (size_t)snprintf(buffer + used, capacity - used, "%lld%s", (long long)shape[i], after);
    }
    if (used < capacity)
        snprintf(buffer + used, capacity - used, ")");
}

bool text_ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), n = strlen(end);
    return length >= n && !strcmp(text + length - n, end);
}

/* Edit distance with transpositions of neighbours; names longer than the table
 * are never near. */
static size_t edit_distance(const char *a, const char *b)
{
    enum { LONGEST = 63 };
    size_t rows = strlen(a), cols = strlen(b);
    size_t d[LONGEST + 1][LONGEST + 1];

    if (rows > LONGEST || cols > LONGEST)
        return SIZE_MAX;
    for (size_t i = 0; i <= rows; i++)
        d[i][0] = i;
    for (size_t j = 0; j <= cols; j++)
        d[0][j] = j;
    for (size_t i = 1; i <= rows; i++) {
        for (size_t j = 1; j <= cols; j++) {
            size_t best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best)
                best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best)
                best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    }
    return d[rows][cols];
}

const char *text_nearest(const char *name, const char *const *candidates, size_t count)
{
    const char *nearest = NULL;
    size_t length = strlen(name);
    /* One slip in a short name, two in a longer one, three in a long one. */
    size_t best = length < 3 ? 2 : length < 6 ? 3 : 4;

    for (size_t i = 0; i < count; i++) {
        size_t distance = edit_distance(name, candidates[i]);
        if (distance < best && distance < length) {
            best = distance;
            nearest = candidates[i];
        }
    }
    return nearest;
}

size_t text_utf8_length(const char *text, size_t available)
{
    const unsigned char *s = (const unsigned char *)text;

    if (!available)
        return 0;
    if (s[0] < 0x80)
        return 1;
    size_t length = s[0] >= 0xc2 && s[0] < 0xe0   ? 2
                    : s[0] >= 0xe0 && s[0] < 0xf0 ? 3
                    : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                                  : 0;
    if (!length || length > available)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    /* Overlong forms, surrogates and beyond U+10FFFF show in the second byte. */
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return length;
}

void text_print_safe(FILE *out, const char *text, size_t length)
{
    for (size_t i = 0; i < length;) {
        size_t n = text_utf8_length(text + i, length - i);
        unsigned char first = (unsigned char)text[i];
        bool control = (first < 0x20 && first != '\t') || first == 0x7f ||
                       (first == 0xc2 && n == 2 && (unsigned char)text[i + 1] < 0xa0);

        if (!n || control)
            fputc('?', out);
        else
            fwrite(text + i, 1, n, out);
        i += n ? n : 1;
    }
}
