/* SPDX-License-Identifier: MIT
 *
 * cpu_window_spots.h - what cpu_window_taps.c finds when a kernel is prepared, and
 * cpu_window_spots.c runs.
 */
#ifndef OG_CPU_WINDOW_SPOTS_H
#define OG_CPU_WINDOW_SPOTS_H

#include "cpu/cpu_window_walk.h"

enum {
    OG_CPU_BAND = 512
}; /* vectors of OG_CPU_TURNED bytes that are copied: most of an L1 cache */

/* Taps of a run. */
struct og_cpu_taps {
    int64_t count, rows;
    og_cpu_share share[OG_RUN];
    int32_t row[OG_RUN], row_tap[OG_RUN]; /* of a tap its row, of a row its first tap */
    int64_t along[OG_RUN];                /* of a tap: its place along the spots */
    int32_t like[OG_RUN];                 /* of a tap: the first one with that */
    int64_t least[OG_RUN], span[OG_RUN];  /* of a row: the first of these; from there to the last */
};

/* Does a window (NULL: none) see an element wherever it is inside? */
static inline bool og_cpu_is_plain(const og_cpu_window *window)
{
    return !window || (window->divisor == 1 && !window->uneven.bits);
}

/* The window that moves along the spots, or NULL. */
static inline const og_cpu_window *og_cpu_window_along(const og_cpu_access *x,
                                                       const og_cpu_window_fold *of)
{
    const int32_t window = of->turned ? of->moving : of->along;
    return window < 0 ? NULL : &x->windows[window];
}

/* What all indices of the axis add to a share, at index. */
static inline void og_cpu_add_axis(const og_cpu_access *x, const og_cpu_access *w, int axis,
                                   int64_t index, og_cpu_share *to)
{
    to->x += og_cpu_find_offset(&x->axes[axis], index);
    for (int32_t i = 0; i < x->window_count; i++)
        to->places[i] += og_cpu_find_offset(&x->windows[i].axes[axis], index);
    if (w)
        to->w += og_cpu_find_offset(&w->axes[axis], index);
}

/* Elements that m spots see of all rows, at most. */
int64_t og_cpu_count_seen(const og_cpu_window_fold *of, const og_cpu_window *window,
                          const og_cpu_taps *taps, int64_t m);
/* Taps of the run that begins with tap `first`. */
void og_cpu_find_taps(const og_cpu_program *program, const og_cpu_window_fold *of, int64_t first,
                      og_cpu_taps *to);

#endif
