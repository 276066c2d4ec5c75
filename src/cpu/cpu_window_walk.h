/* SPDX-License-Identifier: MIT
 *
 * cpu_window_walk.h - what the files that reduce over windows share: walks along lines.
 */
#ifndef OG_CPU_WINDOW_WALK_H
#define OG_CPU_WINDOW_WALK_H

#include "cpu/cpu_run.h"

/* From an element of the innermost dim to the next. */
static inline int64_t og_cpu_last_stride(const og_cpu_axis *axis)
{
    return axis->rank ? axis->stride[axis->rank - 1] : 0;
}

/* An index that goes along an axis, and where it leads: without divisions. */
typedef struct {
    const og_cpu_axis *axis;
    int64_t index[OG_MAX_RANK], offset;
} og_cpu_walk;

static inline og_cpu_walk og_cpu_start_walk(const og_cpu_axis *axis, int64_t index)
{
    og_cpu_walk w = {.axis = axis, .offset = og_cpu_find_offset(axis, index)};
    for (int32_t d = axis->rank - 1; d > 0; d--) {
        w.index[d] = index % axis->extent[d];
        index /= axis->extent[d];
    }
    return w;
}

/* Indices up to the end of the innermost dim, or `most`. */
static inline int64_t og_cpu_count_left(const og_cpu_walk *w, int64_t most)
{
    const int32_t last = w->axis->rank - 1;
    return last < 1 ? most : og_min(most, w->axis->extent[last] - w->index[last]);
}

/* On by at most og_cpu_count_left(). */
static inline void og_cpu_move_on(og_cpu_walk *w, int64_t count)
{
    const og_cpu_axis *axis = w->axis;
    w->offset += count * og_cpu_last_stride(axis);
    for (int32_t d = axis->rank - 1; d > 0; d--, count = 1) {
        w->index[d] += count;
        if (w->index[d] < axis->extent[d])
            return;
        w->index[d] = 0;
        w->offset += axis->stride[d - 1] - axis->extent[d] * axis->stride[d];
    }
}

/* On by any number of indices. */
static inline void og_cpu_move_far(og_cpu_walk *w, int64_t count)
{
    const og_cpu_axis *axis = w->axis;
    for (int32_t d = axis->rank - 1; d > 0 && count; d--) {
        const int64_t extent = axis->extent[d];
        const int64_t at = w->index[d] + count, carried = at == extent ? 1 : at / extent;
        w->offset += (at - carried * extent - w->index[d]) * axis->stride[d];
        w->index[d] = at - carried * extent;
        count = carried;
    }
    w->offset += axis->rank ? count * axis->stride[0] : 0;
}

/* Where a line's, or a tap's, share of all offsets leads. */
typedef struct {
    int64_t x, w, places[OG_MAX_WINDOWS];
} og_cpu_share;

#endif
