/* SPDX-License-Identifier: MIT
 *
 * plot.h - lines over a logarithmic axis of sizes, as an SVG file.
 */
#ifndef OGIVE_CLI_PLOT_H
#define OGIVE_CLI_PLOT_H

#include <stddef.h>

#include "failure.h"

enum { PLOT_SERIES = 4, PLOT_POINTS = 16 };

typedef struct {
    const char *name;
    const char *colour;
    bool dashed;           /* a limit, not a measurement */
    double y[PLOT_POINTS]; /* 0: none here */
} plot_series;

/* One above the other; all have the same sizes. */
typedef struct {
    const char *unit; /* of y, over the axis */
    plot_series series[PLOT_SERIES];
    size_t series_count;
} plot_panel;

typedef struct {
    const char *title, *subtitle;
    double bytes[PLOT_POINTS]; /* moved, ascending */
    size_t count;
    plot_panel panels[2];
    size_t panel_count;
} plot;

bool plot_write(const plot *p, const char *path, failure *why);

#endif
