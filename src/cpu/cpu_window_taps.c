/* SPDX-License-Identifier: MIT
 *
 * cpu_window_taps.c - which reductions over windows cpu_window_spots.c makes, and what taps see there:
 * found when a kernel is prepared.
 */
#include "cpu/cpu_window_spots.h"

enum {
    MOST_WEIGHTS = 1 << 17, /* elements that a thread keeps of weights of columns */
    FAR = 64, /* elements between taps of a row, where no window says which dim they are along */
    MOST_RUNS = 16 /* whose taps are kept */
};

/* ---- taps ---------------------------------------------------------------------- */

/* Do taps see the same row, whose first tap is a? */
static bool shares_row(const og_cpu_access *x, const og_cpu_window *window, bool turned,
                       const og_cpu_share *a, const og_cpu_share *b)
{
    bool same = window ? a->x == b->x : turned && b->x >= a->x && b->x - a->x < FAR;
    for (int32_t i = 0; i < x->window_count; i++)
        same &= &x->windows[i] == window || a->places[i] == b->places[i];
    return same;
}

/* Elements of a row that m spots see, at most. */
static int64_t count_seen(const og_cpu_window_fold *of, const og_cpu_window *window, int64_t span,
                          int64_t m)
{
    const int64_t places = og_times(m - 1, of->step);
    return og_cpu_is_plain(window) ? places + span + 1 : (places + span) / window->divisor + 2;
}

/* The same of all rows, as if all had as many. */
int64_t og_cpu_count_seen(const og_cpu_window_fold *of, const og_cpu_window *window,
                          const og_cpu_taps *taps, int64_t m)
{
    int64_t most = 0;
    for (int64_t r = 0; r < taps->rows; r++)
        most = og_max(most, count_seen(of, window, taps->span[r], m));
    return og_times(taps->rows, most);
}

/* Taps [first, first + count); apart: each is a row of its own. */
static void find_rows(const og_cpu_program *program, const og_cpu_window_fold *of, int64_t first,
                      int64_t count, bool apart, og_cpu_taps *to)
{
    const og_cpu_access *x = &program->accesses[of->x];
    const og_cpu_access *w = of->w < 0 ? NULL : &program->accesses[of->w];
    const og_cpu_window *window = og_cpu_window_along(x, of);
    to->count = count;
    to->rows = 0;
    for (int64_t t = 0; t < count; t++) {
        og_cpu_share *tap = &to->share[t];
        *tap = (og_cpu_share){0};
        og_cpu_add_axis(x, w, OG_CPU_OUTER, first + t, tap);
        const og_cpu_share *of_row = to->rows ? &to->share[to->row_tap[to->rows - 1]] : NULL;
        if (!of_row || apart || !shares_row(x, window, of->turned, of_row, tap))
            to->row_tap[to->rows++] = (int32_t)t;
        const int64_t row = to->rows - 1;
        to->row[t] = (int32_t)row;
        to->along[t] =
            window ? tap->places[window - x->windows] : tap->x - to->share[to->row_tap[row]].x;
        if (to->row_tap[row] == t) {
            to->least[row] = to->along[t];
            to->span[row] = 0;
        }
        const int64_t least = og_min(to->least[row], to->along[t]);
        to->span[row] = og_max(to->least[row] + to->span[row], to->along[t]) - least;
        to->least[row] = least;
    }
}

/* Of the run that begins with tap `first`. */
void og_cpu_find_taps(const og_cpu_program *program, const og_cpu_window_fold *of, int64_t first,
                      og_cpu_taps *to)
{
    const og_cpu_window *window = og_cpu_window_along(&program->accesses[of->x], of);
    const int64_t count = og_min(of->taps - first, OG_RUN);
    find_rows(program, of, first, count, false, to);
    if (og_cpu_count_seen(of, window, to, 1) > OG_CPU_BAND)
        find_rows(program, of, first, count, true, to);
    for (int32_t t = 0; t < count; t++)
        for (to->like[t] = 0; to->along[to->like[t]] != to->along[t];)
            to->like[t]++;
}

/* ---- which folds --------------------------------------------------------------- */

/* The window that moves from line to line of channels, if one does. */
static int32_t find_along(const og_cpu_access *x, int64_t width)
{
    for (int32_t i = 0; i < x->window_count; i++) {
        const og_cpu_axis *axis = &x->windows[i].axes[OG_CPU_INNER];
        const int32_t last = axis->rank - 1;
        if (last >= 1 && axis->extent[last] == width && axis->stride[last - 1] > 0)
            return i;
    }
    return -1;
}

/* The farthest element in memory. */
static int64_t find_last(const og_cpu_access *x)
{
    int64_t last = x->offset;
    for (int a = 0; a < OG_CPU_AXES; a++)
        for (int32_t d = 0; d < x->axes[a].rank; d++)
            last += (x->axes[a].extent[d] - 1) * og_max(x->axes[a].stride[d], 0);
    for (int32_t i = 0; i < x->window_count; i++)
        last += (x->windows[i].extent - 1) * og_max(x->windows[i].stride, 0);
    return last;
}

ogive_status og_cpu_find_window_spots(const og_cpu_program *program, og_cpu_window_fold *fold,
                                      bool *can, og_arena *arena, ogive_error *error)
{
    const og_cpu_access *x = &program->accesses[fold->x];
    const og_cpu_axis *w = fold->w < 0 ? NULL : &program->accesses[fold->w].axes[OG_CPU_INNER];
    const int64_t stride = og_cpu_last_stride(&x->axes[OG_CPU_INNER]);
    const bool by_columns = w && og_cpu_last_stride(w) != 0;
    *can = false;
    fold->turned = fold->moving >= 0 || stride != 1 || (w && !by_columns);
    fold->along = fold->turned ? -1 : find_along(x, fold->width);
    fold->last = find_last(x);
    const og_cpu_window *window = og_cpu_window_along(x, fold);
    if (by_columns) {
        fold->w_pitch = fold->width;
        if (fold->turned || w->extent[w->rank - 1] != fold->width ||
            og_times(fold->taps, fold->w_pitch) > MOST_WEIGHTS)
            return OGIVE_OK;
    }
    fold->step = fold->turned ? stride : 1;
    if (window)
        fold->step = fold->turned
                         ? og_cpu_last_stride(&window->axes[OG_CPU_INNER])
                         : window->axes[OG_CPU_INNER].stride[window->axes[OG_CPU_INNER].rank - 2];
    if (fold->taps < 1 || fold->step < 1 || (window && fold->turned && stride))
        return OGIVE_OK;
    *can = true;
    const int64_t runs = og_divide_up(fold->taps, OG_RUN);
    if (runs > MOST_RUNS)
        return OGIVE_OK;
    og_cpu_taps *taps = OG_ARENA_NEW(arena, og_cpu_taps, (size_t)runs);
    if (!taps)
        return og_fail_memory(error, (size_t)runs * sizeof *taps);
    for (int64_t i = 0; i < runs; i++)
        og_cpu_find_taps(program, fold, i * OG_RUN, &taps[i]);
    fold->runs = taps;
    return OGIVE_OK;
}
