/* SPDX-License-Identifier: MIT
 *
 * plot.c - lines over a logarithmic axis of sizes, as an SVG file; see plot.h.
 */
#include "plot.h"

#include <math.h>
#include <stdio.h>

#include "svg.h"
#include "text.h"

#define INK "#1f2937"
#define FAINT "#9ca3af"
#define GRID "#e5e7eb"

enum { LEFT = 64, RIGHT = 660, PANEL = 250, TOP = 84, GAP = 52, LABELS = 110 };

static double x_of(const plot *p, size_t i)
{
    double first = log2(p->bytes[0]), last = log2(p->bytes[p->count - 1]);
    return last > first ? LEFT + (RIGHT - LEFT) * (log2(p->bytes[i]) - first) / (last - first)
                        : 0.5 * (LEFT + RIGHT);
}

static double greatest(const plot *p, const plot_panel *panel)
{
    double most = 0;

    for (size_t s = 0; s < panel->series_count; s++)
        for (size_t i = 0; i < p->count; i++)
            most = fmax(most, panel->series[s].y[i]);
    return most;
}

/* 1, 2 or 5 times a power of ten, of which up to six reach most. */
static double find_step(double most)
{
    double power = pow(10, floor(log10(most / 6)));
    double part = most / 6 / power;

    return power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
}

static void draw_axes(svg *s, const plot *p, const plot_panel *panel, double top, double most)
{
    char label[32];
    double bottom = top + PANEL, step = find_step(most);

    svg_text(s, LEFT - 6, top - 10, 11, "end", INK, panel->unit);
    for (double y = 0; y <= most * 1.0001; y += step) {
        double at = bottom - PANEL * y / most;
        svg_add(s, "<line x1='%d' y1='%.1f' x2='%d' y2='%.1f' stroke='" GRID "'/>\n", LEFT, at,
                RIGHT, at);
        snprintf(label, sizeof(label), "%g", y);
        svg_text(s, LEFT - 6, at + 4, 10, "end", FAINT, label);
    }
    for (size_t i = 0; i < p->count; i++) {
        text_bytes(label, sizeof(label), p->bytes[i]);
        svg_text(s, x_of(p, i), bottom + 16, 10, "middle", FAINT, label);
    }
}

/* Names stand at the lines' ends, one below the other where these are near. */
static void draw_names(svg *s, const plot *p, const plot_panel *panel, double top, double most)
{
    double taken[PLOT_SERIES];

    for (size_t n = 0; n < panel->series_count; n++) {
        const plot_series *series = &panel->series[n];
        double at = top + PANEL * (1 - series->y[p->count - 1] / most);
        double lowest = top + PANEL - 14 * (double)(panel->series_count - n);
        at = fmin(at, lowest);
        for (size_t other = 0; other < n; other++)
            if (fabs(at - taken[other]) < 14)
                at = taken[other] + 14, other = (size_t)-1;
        taken[n] = at;
        svg_text(s, RIGHT + 10, at + 4, 11, "start", series->colour, series->name);
    }
}

static void draw_panel(svg *s, const plot *p, const plot_panel *panel, double top)
{
    double most = 1.08 * greatest(p, panel);

    if (most <= 0)
        return;
    draw_axes(s, p, panel, top, most);
    for (size_t n = 0; n < panel->series_count; n++) {
        const plot_series *series = &panel->series[n];
        svg_add(s, "<polyline fill='none' stroke-width='2' stroke='%s'%s points='", series->colour,
                series->dashed ? " stroke-dasharray='5 4'" : "");
        for (size_t i = 0; i < p->count; i++)
            if (series->y[i] > 0)
                svg_add(s, "%.1f,%.1f ", x_of(p, i), top + PANEL * (1 - series->y[i] / most));
        svg_add(s, "'/>\n");
        for (size_t i = 0; i < p->count && !series->dashed; i++)
            if (series->y[i] > 0)
                svg_add(s, "<circle cx='%.1f' cy='%.1f' r='3' fill='%s'/>\n", x_of(p, i),
                        top + PANEL * (1 - series->y[i] / most), series->colour);
    }
    draw_names(s, p, panel, top, most);
}

bool plot_write(const plot *p, const char *path, failure *why)
{
    svg s = {0};
    double height = TOP + (double)p->panel_count * (PANEL + GAP);

    svg_begin(&s, RIGHT + LABELS + 20, height);
    svg_text(&s, 16, 24, 15, "start", INK, p->title);
    svg_text(&s, 16, 42, 10, "start", FAINT, p->subtitle);
    for (size_t i = 0; i < p->panel_count; i++)
        draw_panel(&s, p, &p->panels[i], TOP + (double)i * (PANEL + GAP));
    svg_text(&s, RIGHT, height - 8, 10, "end", FAINT, "bytes that must move");
    return svg_end(&s, path, why);
}
