/* SPDX-License-Identifier: MIT
 *
 * progress.c - a progress bar on standard error; see progress.h.
 */
#include "progress.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "clock.h"

enum { LONGEST_BAR = 40 };

static struct {
    const char *label;
    double total;
    double started, drawn; /* seconds */
    bool visible;
} bar;

static bool is_wanted(void)
{
    static int wanted = -1;

    if (wanted < 0)
        wanted = isatty(STDERR_FILENO);
    return wanted;
}

/* Columns of the bar itself, so that the line never wraps: a wrapped line
 * cannot be taken back with a carriage return. */
static int bar_width(int other)
{
    struct winsize size;
    int columns = 80;

    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col)
        columns = size.ws_col;
    int width = columns - other - 1;
    return width > LONGEST_BAR ? LONGEST_BAR : width < 0 ? 0 : width;
}

static void draw(double done)
{
    char filled[LONGEST_BAR + 1], eta[32] = "";
    double part = bar.total > 0 ? done / bar.total : 1;
    double elapsed = clock_seconds() - bar.started;

    part = part > 1 ? 1 : part < 0 ? 0 : part;
    /* The first moments predict nothing. */
    if (part > 0.005 && elapsed > 0.5) {
        double left = elapsed * (1 - part) / part + 0.5;
        if (left < 360000)
            snprintf(eta, sizeof(eta), " %d:%02d left", (int)left / 60, (int)left % 60);
    }
    int width = bar_width((int)strlen(bar.label) + 22);
    memset(filled, ' ', sizeof(filled));
    memset(filled, '#', (size_t)(part * width));
    fprintf(stderr, "\r\033[K%s [%.*s] %3d%%%s", bar.label, width, filled, (int)(100 * part), eta);
    fflush(stderr);
    bar.visible = true;
}

void progress_start(const char *label, double total)
{
    if (!is_wanted())
        return;
    bar.label = label;
    bar.total = total;
    bar.started = clock_seconds();
    bar.drawn = bar.started;
}

void progress_update(double done)
{
    if (!bar.label)
        return;
    double now = clock_seconds();
    if (now - bar.drawn < 0.1)
        return;
    bar.drawn = now;
    draw(done);
}

void progress_label(const char *label, double done)
{
    if (!bar.label)
        return;
    bar.label = label;
    bar.drawn = clock_seconds();
    draw(done);
}

void progress_clear(void)
{
    if (bar.visible)
        fputs("\r\033[K", stderr);
    bar.visible = false;
}

void progress_end(void)
{
    progress_clear();
    bar.label = NULL;
}
