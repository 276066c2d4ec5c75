/* SPDX-License-Identifier: MIT
 *
 * svg.c - text that becomes an SVG file; see svg.h.
 */
#include "svg.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "output.h"

void svg_add(svg *s, const char *format, ...)
{
    va_list arguments;
    char *grown;

    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    size_t needed = s->length + (size_t)length + 1;
    if (!s->failed && needed > s->capacity) {
        grown = realloc(s->data, 2 * needed);
        s->failed = !grown;
        s->data = grown ? grown : s->data;
        s->capacity = grown ? 2 * needed : s->capacity;
    }
    if (s->failed)
        return;
    va_start(arguments, format);
    vsnprintf(s->data + s->length, (size_t)length + 1, format, arguments);
    va_end(arguments);
    s->length += (size_t)length;
}

void svg_text(svg *s, double x, double y, double size, const char *anchor, const char *colour,
              const char *text)
{
    svg_add(s,
            "<text x='%.1f' y='%.1f' font-size='%.1f' text-anchor='%s' fill='%s' "
            "font-family='ui-monospace, Menlo, Consolas, monospace' xml:space='preserve'>",
            x, y, size, anchor, colour);
    for (; *text; text++) {
        if (*text == '<' || *text == '&' || *text == '>')
            svg_add(s, "&#%d;", *text);
        else
            svg_add(s, "%c", (unsigned char)*text < ' ' ? ' ' : *text);
    }
    svg_add(s, "</text>\n");
}

void svg_begin(svg *s, double width, double height)
{
    svg_add(s,
            "<svg xmlns='http://www.w3.org/2000/svg' width='%.0f' height='%.0f' "
            "viewBox='0 0 %.0f %.0f'>\n<rect width='%.0f' height='%.0f' rx='6' fill='#ffffff'/>\n",
            width, height, width, height, width, height);
}

bool svg_end(svg *s, const char *path, failure *why)
{
    output_file file = {0};

    svg_add(s, "</svg>\n");
    bool good = !s->failed || fail_memory(why, (double)s->length, "the drawing");
    if (good && !strcmp(path, "-"))
        fwrite(s->data, 1, s->length, stdout);
    else if (good)
        good = output_open(path, &file, why) && output_write(&file, s->data, s->length, why) &&
               output_sync(&file, why) && output_commit(&file, why);
    output_discard(&file);
    free(s->data);
    *s = (svg){0};
    return good;
}
