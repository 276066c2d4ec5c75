/* SPDX-License-Identifier: MIT
 *
 * base_text.c - text that grows, and shapes and numbers as text; see base.h.
 * Nothing here depends on the locale.
 */
#include "base/base.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *og_shape_text(int rank, const int64_t *shape, char text[OG_SHAPE_TEXT])
{
    /* 8 dims of at most 20 characters, each with ", ": OG_SHAPE_TEXT is enough. */
    size_t length = 0;
    text[length++] = '(';
    for (int d = 0; d < rank && d < OG_MAX_RANK; d++)
        length += (size_t)snprintf(text + length, OG_SHAPE_TEXT - length, "%s%lld", d ? ", " : "",
                                   (long long)shape[d]);
    snprintf(text + length, OG_SHAPE_TEXT - length, rank == 1 ? ",)" : ")");
    return text;
}

/* The fewest digits that read back as value; returns how many. snprintf and
 * strtod agree on the locale's decimal point, which is dropped here. */
static int shortest_digits(double value, char digits[20], int *exponent)
{
    char buffer[48];
    for (int places = 0; places <= 16; places++) {
        snprintf(buffer, sizeof buffer, "%.*e", places, value);
        if (places == 16 || strtod(buffer, NULL) == value)
            break;
    }
    int count = 0;
    const char *c = buffer;
    for (; *c && *c != 'e'; c++) {
        if (*c >= '0' && *c <= '9')
            digits[count++] = *c;
    }
    *exponent = atoi(c + 1);
    return count;
}

const char *og_number_text(double value, char text[OG_NUMBER_TEXT])
{
    if (isnan(value) || isinf(value)) {
        snprintf(text, OG_NUMBER_TEXT, "%s", isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
        return text;
    }
    char digits[20];
    int exponent, count = shortest_digits(fabs(value), digits, &exponent);
    char *out = text;
    if (signbit(value))
        *out++ = '-';
    if (exponent < -4 || exponent >= 16) {
        *out++ = digits[0];
        if (count > 1)
            *out++ = '.';
        memcpy(out, digits + 1, (size_t)count - 1);
        out += count - 1;
        snprintf(out, 8, "e%+03d", exponent);
        return text;
    }
    if (exponent < 0)
        out += snprintf(out, 8, "0.%.*s", -exponent - 1, "000");
    for (int place = 0; place < count || place <= exponent; place++) {
        if (exponent >= 0 && place == exponent + 1)
            *out++ = '.';
        *out++ = place < count ? digits[place] : '0';
    }
    *out = '\0';
    return text;
}

/* Room for added more characters and the end. */
static bool make_room(og_text *text, size_t added)
{
    size_t needed;
    void *data = text->data;
    if (text->failed) /* what another try would get has no end yet */
        return false;
    text->failed = !og_add_size(text->length + 1, added, &needed) ||
                   !og_grow(&data, &text->capacity, needed, 1);
    text->data = data;
    return !text->failed;
}

static void append(og_text *text, const char *characters, size_t count)
{
    if (!make_room(text, count))
        return;
    memcpy(text->data + text->length, characters, count);
    text->length += count;
    text->data[text->length] = '\0';
}

/* Characters of the conversion at a '%', if it is %s or %.*s, else 0. */
static size_t string_conversion(const char *at)
{
    return at[1] == 's' ? 2 : strncmp(at + 1, ".*s", 3) == 0 ? 4 : 0;
}

/* Has format no other conversions? */
static bool has_only_strings(const char *format)
{
    while ((format = strchr(format, '%')) && string_conversion(format))
        format += string_conversion(format);
    return !format;
}

/* A kernel's source is pages of text put together like that, over which vsnprintf() takes ten
 * times as long. */
static void add_strings(og_text *text, const char *format, va_list list)
{
    for (const char *next; (next = strchr(format, '%')); format = next + string_conversion(next)) {
        int most = next[1] == 's' ? -1 : va_arg(list, int);
        const char *string = va_arg(list, const char *);
        append(text, format, (size_t)(next - format));
        append(text, string, most < 0 ? strlen(string) : strnlen(string, (size_t)most));
    }
    append(text, format, strlen(format));
}

void og_text_add(og_text *text, const char *format, ...)
{
    if (text->failed)
        return;
    va_list list, again;
    va_start(list, format);
    va_copy(again, list);
    if (has_only_strings(format)) {
        add_strings(text, format, list);
    } else {
        int added = vsnprintf(NULL, 0, format, list);
        text->failed = added < 0;
        if (added >= 0 && make_room(text, (size_t)added)) {
            vsnprintf(text->data + text->length, (size_t)added + 1, format, again);
            text->length += (size_t)added;
        }
    }
    va_end(list);
    va_end(again);
}

void og_text_free(og_text *text)
{
    free(text->data);
    *text = (og_text){0};
}
