/* SPDX-License-Identifier: MIT
 *
 * cpu_window.c - loads through windows (og_window of plan.h), and of elements' numbers.
 *
 * Along a stretch of inner indices everything that an access depends on moves evenly: its
 * offset, and the place of each window. What a window sees of the stretch is then every
 * period-th index between two ends; the rest is filled. But of windows that cut a dim, whose parts
 * are of different lengths, every index is looked at.
 */
#include "cpu/cpu_run.h"

#include <string.h>

enum { SCATTERED = 128 }; /* elements that are read before they are spread */

/* Indices first, first + period, ... below end, of a stretch. */
typedef struct {
    int64_t first, end, period;
} seen;

/* A quantity along a stretch. */
typedef struct {
    int64_t start, step;
} line;

/* a / b, b > 0, rounded down, by one division. */
static int64_t divide_down(int64_t a, int64_t b, int64_t *rest)
{
    int64_t quotient = a / b;
    *rest = a - quotient * b;
    if (*rest < 0) {
        *rest += b;
        quotient--;
    }
    return quotient;
}

static int64_t remainder_of(int64_t a, int64_t b)
{
    int64_t rest;
    divide_down(a, b, &rest);
    return rest;
}

/* Where axes lead to before inner indices count. */
static int64_t find_start(const og_cpu_axis *axes, const og_cpu_piece *at)
{
    return og_cpu_find_offset(&axes[OG_CPU_BASE], at->base) +
           og_cpu_find_offset(&axes[OG_CPU_OUTER], at->outer);
}

/* Shortens *count to indices from `inner` on along which axes move evenly. */
static line find_line(const og_cpu_axis *axes, int64_t start, int64_t inner, int64_t *count)
{
    line of = {start + og_cpu_find_offset(&axes[OG_CPU_INNER], inner), 0};
    *count = og_cpu_find_stretch(&axes[OG_CPU_INNER], inner, *count, &of.step);
    return of;
}

/* Which of count indices a window sees whose places are p. */
static seen look(const og_cpu_window *window, line p, int64_t count)
{
    seen none = {0, 0, 1}, all = {0, count, 1};
    int64_t limit = window->extent * window->divisor; /* places from 0 on below it */
    if (p.step == 0 || count == 1)
        return p.start >= 0 && p.start < limit &&
                       og_uneven_sees(&window->uneven, p.start % window->divisor)
                   ? all
                   : none;
    if (p.step > 0) {
        all.first = og_divide_up(og_max(0, -p.start), p.step);
        all.end = og_min(count, og_divide_up(og_max(0, limit - p.start), p.step));
    } else {
        all.first = og_divide_up(og_max(0, p.start - limit + 1), -p.step);
        all.end = og_min(count, p.start < 0 ? 0 : p.start / -p.step + 1);
    }
    /* Of divisor neighbours one is a multiple, or, if step has a divisor in common, none. */
    int64_t tried = 0;
    while (tried < window->divisor && all.first < all.end &&
           remainder_of(p.start + all.first * p.step, window->divisor)) {
        all.first++;
        tried++;
    }
    if (tried == window->divisor || all.first >= all.end)
        return none;
    while (all.period < window->divisor && remainder_of(all.period * p.step, window->divisor))
        all.period++;
    return all;
}

static void fill(const og_cpu_access *access, const og_cpu_step *step, char *to, int64_t count)
{
    if (count > 0)
        step->loops->splat(to, &access->fill, count);
}

/* Elements memory[0], memory[stride], ... become every period-th element of to. */
static void spread(const og_cpu_step *step, char *to, const char *memory, int64_t stride,
                   int64_t count, int64_t period, size_t bytes, size_t memory_bytes)
{
    double some[SCATTERED];
    for (int64_t at = 0; at < count; at += SCATTERED) {
        int64_t n = og_min(SCATTERED, count - at);
        step->run.load(some, memory + at * stride * (int64_t)memory_bytes, 0, stride, 1, n);
        for (int64_t i = 0; i < n; i++)
            memcpy(to + (size_t)((at + i) * period) * bytes, (char *)some + (size_t)i * bytes,
                   bytes);
    }
}

/* An element of 1, 2, 4 or 8 bytes, without a call of memcpy(). */
static void copy_element(char *to, const char *from, size_t bytes)
{
    if (bytes == 4)
        memcpy(to, from, 4);
    else if (bytes == 8)
        memcpy(to, from, 8);
    else if (bytes == 2)
        memcpy(to, from, 2);
    else
        *to = *from;
}

/* A stretch of count elements, which are at `offset` and what `window` sees further, which cuts a dim;
 * its places are p. Those that are seen are gathered, converted, and dealt out. */
static void see_parts(const og_cpu_access *access, const og_cpu_window *window,
                      const og_cpu_step *step, const char *memory, line offset, line p,
                      int64_t count, char *to, size_t bytes)
{
    char gathered[SCATTERED * sizeof(double)];
    double some[SCATTERED];
    bool sees[SCATTERED];
    const size_t memory_bytes = (size_t)access->bytes;
    const int64_t divisor = window->divisor;
    int64_t rest, rest_by, element = divide_down(p.start, divisor, &rest);
    const int64_t by = divide_down(p.step, divisor, &rest_by);
    for (int64_t at = 0; at < count; at += SCATTERED) {
        int64_t n = og_min(SCATTERED, count - at), found = 0;
        for (int64_t i = 0; i < n; i++) {
            sees[i] =
                element >= 0 && element < window->extent && og_uneven_sees(&window->uneven, rest);
            int64_t from = offset.start + (at + i) * offset.step + element * window->stride;
            if (sees[i])
                copy_element(gathered + (size_t)found++ * memory_bytes,
                             memory + from * (int64_t)memory_bytes, memory_bytes);
            rest += rest_by;
            element += by + (rest >= divisor);
            rest -= rest >= divisor ? divisor : 0;
        }
        step->run.load(some, gathered, 0, 1, 1, found);
        found = 0;
        for (int64_t i = 0; i < n; i++, to += bytes)
            copy_element(
                to, sees[i] ? (char *)some + (size_t)found++ * bytes : (const char *)&access->fill,
                bytes);
    }
}

/* A stretch of count elements: offset is where they would be without windows, places[] where
 * windows are. */
static void see_stretch(const og_cpu_access *access, const og_cpu_step *step, const char *memory,
                        line offset, const line *places, int64_t count, char *to, size_t bytes)
{
    seen of = {0, count, 1};
    int32_t parts = -1; /* the window that moves, if it cuts a dim */
    for (int32_t i = 0; i < access->window_count && of.first < of.end; i++) {
        if (access->windows[i].uneven.bits && places[i].step && count > 1) {
            parts = i;
            continue;
        }
        seen by = look(&access->windows[i], places[i], count);
        bool narrows = by.period > 1 || by.first > 0 || by.end < count;
        of = narrows ? by : of; /* at most one of them moves: see see_row() */
    }
    int64_t seen_count = of.first < of.end ? (of.end - of.first - 1) / of.period + 1 : 0;
    if (of.period > 1 || seen_count == 0) {
        fill(access, step, to, count);
    } else {
        fill(access, step, to, of.first);
        fill(access, step, to + (size_t)of.end * bytes, count - of.end);
    }
    if (seen_count == 0)
        return;
    int64_t at = offset.start + of.first * offset.step, stride = offset.step * of.period;
    for (int32_t i = 0; i < access->window_count; i++) {
        const og_cpu_window *window = &access->windows[i];
        if (i == parts)
            continue;
        at += (places[i].start + of.first * places[i].step) / window->divisor * window->stride;
        stride += of.period * places[i].step / window->divisor * window->stride;
    }
    if (parts >= 0) {
        see_parts(access, &access->windows[parts], step, memory, (line){at, stride}, places[parts],
                  count, to, bytes);
        return;
    }
    const char *from = memory + at * access->bytes;
    to += (size_t)of.first * bytes;
    if (of.period == 1)
        step->run.load(to, from, 0, stride, 1, seen_count);
    else
        spread(step, to, from, stride, seen_count, of.period, bytes, (size_t)access->bytes);
}

static void count_up(line offset, int64_t count, char *to, size_t bytes)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t number = offset.start + i * offset.step;
        if (bytes == sizeof(double))
            ((double *)to)[i] = (double)number;
        else
            ((float *)to)[i] = (float)number;
    }
}

/* A row of a piece: everything at one outer index, which *at has. */
static void see_row(const og_cpu_access *access, const og_cpu_step *step, const char *memory,
                    const og_cpu_piece *at, char *to, size_t bytes)
{
    line places[OG_MAX_WINDOWS];
    int64_t start = access->offset + find_start(access->axes, at), starts[OG_MAX_WINDOWS];
    for (int32_t k = 0; k < access->window_count; k++)
        starts[k] = access->windows[k].start + find_start(access->windows[k].axes, at);
    for (int64_t i = 0, count; i < at->inner_count; i += count, to += (size_t)count * bytes) {
        count = at->inner_count - i;
        line offset = find_line(access->axes, start, at->inner + i, &count);
        int32_t moving = 0;
        for (int32_t k = 0; k < access->window_count; k++) {
            places[k] = find_line(access->windows[k].axes, starts[k], at->inner + i, &count);
            moving += places[k].step != 0;
        }
        if (moving > 1) /* two windows along one dim: rare enough to go one by one */
            count = 1;
        if (memory)
            see_stretch(access, step, memory, offset, places, count, to, bytes);
        else
            count_up(offset, count, to, bytes);
    }
}

void og_cpu_see(const og_cpu_worker *w, const og_cpu_access *access, const og_cpu_step *step,
                const og_cpu_piece *piece)
{
    size_t bytes = step->loops == w->kernel->loops_f64 ? sizeof(double) : sizeof(float);
    const char *memory = access->buffer < 0 ? NULL : og_cpu_find_buffer(w->job, access->buffer);
    og_cpu_piece at = *piece;
    for (int64_t o = 0; o < piece->outer_count; o++) {
        at.outer = piece->outer + o;
        see_row(access, step, memory, &at,
                (char *)w->places[step->dst] + (size_t)(o * piece->inner_count) * bytes, bytes);
    }
}
