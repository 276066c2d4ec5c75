/* SPDX-License-Identifier: MIT
 *
 * svg.h - text that becomes an SVG file.
 */
#ifndef OGIVE_CLI_SVG_H
#define OGIVE_CLI_SVG_H

#include <stddef.h>

#include "failure.h"

typedef struct {
    char *data;
    size_t length, capacity;
    bool failed; /* no memory */
} svg;

void svg_add(svg *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* text at (x, y); anchor: "start", "middle", "end". */
void svg_text(svg *s, double x, double y, double size, const char *anchor, const char *colour,
              const char *text);
void svg_begin(svg *s, double width, double height);
/* Ends it, writes it to path ('-': standard output), and releases it. */
bool svg_end(svg *s, const char *path, failure *why);

#endif
