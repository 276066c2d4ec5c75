/* SPDX-License-Identifier: MIT
 *
 * cpu_window_sum.c - sums over windows along lines: of elements (average pooling), or of elements
 * times a weight that stands still along the line (convolutions of a channel each). What programs do
 * step by step, with blocks between them, is one loop here, and sums stay in registers.
 */
#include "cpu/cpu_run.h"

#include <stdlib.h>
#include <string.h>

enum {
    LINES = 4096 * 4, /* bytes of copies of lines: fits the L1 cache, and a thread's stack */
    MOST_SPAN =
        16 /* of taps along a line: a copy of a line for each of 64 taps has room for more */
};

/* ---- which programs ------------------------------------------------------------ */

/* From an element of the innermost dim to the next. */
static int64_t last_stride(const og_cpu_axis *axis)
{
    return axis->rank ? axis->stride[axis->rank - 1] : 0;
}

/* From the least to the greatest element of an axis. */
static int64_t span_of(const og_cpu_axis *axis)
{
    int64_t span = 0;
    for (int32_t d = 0; d < axis->rank; d++)
        span += og_times(axis->extent[d] - 1, llabs(axis->stride[d]));
    return span;
}

/* Do windows see neighbours along a line, one window at most moving, whose taps are near? */
static bool sees_neighbours(const og_cpu_access *x)
{
    int64_t stride = last_stride(&x->axes[OG_CPU_INNER]);
    int32_t moving = 0;
    for (int32_t i = 0; i < x->window_count; i++) {
        const og_cpu_window *window = &x->windows[i];
        int64_t step = last_stride(&window->axes[OG_CPU_INNER]);
        if (window->divisor != 1 || window->uneven.bits || (step != 0 && step != 1) ||
            (step && span_of(&window->axes[OG_CPU_OUTER]) > MOST_SPAN))
            return false;
        stride += step * window->stride;
        moving += step != 0;
    }
    return stride == 1 && moving <= 1;
}

/* Does a step read blocks of the type that it computes in, from memory? */
static bool reads_own_type(const og_cpu_program *program, const og_cpu_step *step, size_t bytes)
{
    const og_dtype own = bytes == sizeof(double) ? OG_FLOAT64 : OG_FLOAT32;
    return (step->kind == OG_CPU_SEE || step->kind == OG_CPU_LOAD) &&
           program->accesses[step->access].buffer >= 0 &&
           step->run.load == step->loops->load[own] && !step->one;
}

/* Is a step the product of two places, blocks or one of them one element? */
static bool multiplies(const og_cpu_step *step, int32_t x, int32_t w)
{
    const og_cpu_map *forms = step->loops->map[OG_OP_mul], run = step->run.map;
    return step->kind == OG_CPU_MAP && (run == forms[0] || run == forms[1] || run == forms[2]) &&
           ((step->args[0] == x && step->args[1] == w) ||
            (step->args[0] == w && step->args[1] == x));
}

/* The access and place of what a program reads beside what it sees: memory, or a block of it. */
static bool find_weights(const og_cpu_program *program, og_cpu_direct *to)
{
    int32_t count = program->direct_count;
    if (count == 1)
        *to = program->directs[0];
    for (int32_t i = 0; i < program->step_count; i++) {
        const og_cpu_step *step = &program->steps[i];
        if (step->kind != OG_CPU_LOAD)
            continue;
        *to = (og_cpu_direct){step->dst, step->access};
        count++;
    }
    return count == 1;
}

void og_cpu_find_window_sum(og_cpu_program *program)
{
    const og_cpu_reduction *r = program->reductions;
    const og_cpu_step *x = NULL;
    og_cpu_direct w = {-1, -1};
    if (program->reduction_count != 1 || r->is_sumexp || r->fold != OG_CPU_SUM || r->strided ||
        program->stage_count || program->kept_count || !program->step_count)
        return;
    const og_cpu_step *last = &program->steps[program->step_count - 1];
    bool is = last->dst == r->source, weighs = last->kind == OG_CPU_MAP;
    for (int32_t i = 0; i < program->step_count; i++) {
        const og_cpu_step *step = &program->steps[i];
        is &= step->kind == OG_CPU_MAP ? step == last : reads_own_type(program, step, r->bytes);
        x = step->kind == OG_CPU_SEE ? step : x;
    }
    if (!is || !x || program->step_count + program->direct_count != (weighs ? 3 : 1) ||
        !sees_neighbours(&program->accesses[x->access]))
        return;
    if (weighs && (!find_weights(program, &w) || !multiplies(last, x->dst, w.place) ||
                   last_stride(&program->accesses[w.access].axes[OG_CPU_INNER]) != 0))
        return;
    program->window_sum = (og_cpu_window_sum){true, x->access, w.access};
}

/* ---- lines --------------------------------------------------------------------- */

/* Where a line's, or a tap's, share of all offsets leads. */
typedef struct {
    int64_t x, w, places[OG_MAX_WINDOWS];
} share;

typedef struct {
    const og_cpu_access *x, *w; /* w: or NULL */
    const char *memory, *w_memory;
    size_t bytes;   /* of an element */
    int32_t moving; /* the window that moves along lines, or -1 */
    int64_t least;  /* the first of the places of its taps */
    int64_t span;   /* from there to the last one */
    int64_t taps, rows;
    bool has_weights;
    int64_t weights_of; /* the share of w of the lines that weights[] are of */
    union {
        float f32[OG_RUN];
        double f64[OG_RUN];
    } weights;
    share tap[OG_RUN];
    int32_t row[OG_RUN]; /* of a tap: taps of a row differ in the place along the line alone */
    union {
        char bytes[LINES];
        double aligned;
    } lines; /* a row's each, then what is not seen */
} window_sums;

/* What all indices of the axis add, at index. */
static void add_axis(const window_sums *s, int axis, int64_t index, share *to)
{
    to->x += og_cpu_find_offset(&s->x->axes[axis], index);
    for (int32_t i = 0; i < s->x->window_count; i++)
        to->places[i] += og_cpu_find_offset(&s->x->windows[i].axes[axis], index);
    if (s->w)
        to->w += og_cpu_find_offset(&s->w->axes[axis], index);
}

/* How many indices from `inner` on are one line for all accesses. */
static int64_t find_count(const window_sums *s, int64_t inner, int64_t count)
{
    const int64_t room = LINES / (int64_t)s->bytes / (s->rows + 1) - s->span;
    int64_t stride;
    count = og_cpu_find_stretch(&s->x->axes[OG_CPU_INNER], inner, og_min(count, room), &stride);
    for (int32_t i = 0; i < s->x->window_count; i++)
        count = og_cpu_find_stretch(&s->x->windows[i].axes[OG_CPU_INNER], inner, count, &stride);
    return s->w ? og_cpu_find_stretch(&s->w->axes[OG_CPU_INNER], inner, count, &stride) : count;
}

static bool shares_row(const window_sums *s, const share *a, const share *b)
{
    bool same = a->x == b->x;
    for (int32_t i = 0; i < s->x->window_count; i++)
        same &= i == s->moving || a->places[i] == b->places[i];
    return same;
}

static void find_taps(window_sums *s, const og_cpu_piece *piece)
{
    int64_t most = INT64_MIN;
    s->moving = -1;
    for (int32_t i = 0; i < s->x->window_count; i++)
        if (last_stride(&s->x->windows[i].axes[OG_CPU_INNER]))
            s->moving = i;
    s->least = s->moving < 0 ? 0 : INT64_MAX;
    for (int64_t t = 0; t < s->taps; t++) {
        share *tap = &s->tap[t];
        *tap = (share){0};
        add_axis(s, OG_CPU_OUTER, piece->outer + t, tap);
        s->rows += t == 0 || !shares_row(s, tap - 1, tap);
        s->row[t] = (int32_t)s->rows - 1;
        if (s->moving >= 0) {
            s->least = og_min(s->least, tap->places[s->moving]);
            most = og_max(most, tap->places[s->moving]);
        }
    }
    s->span = s->moving < 0 ? 0 : most - s->least;
}

/* Elements begin.. of what a tap's row is, from the first place of a line on: as they lie there, or,
 * where some are not seen, a copy at `to`. */
static const char *find_row(const window_sums *s, const og_cpu_loops *loops, const share *line,
                            const share *tap, int64_t count, char *to)
{
    int64_t at = line->x + tap->x, first = 0, end = count;
    for (int32_t i = 0; i < s->x->window_count; i++) {
        const og_cpu_window *window = &s->x->windows[i];
        const int64_t place = line->places[i] + (i == s->moving ? s->least : tap->places[i]);
        at += place * window->stride;
        if (i == s->moving) {
            first = og_min(og_max(0, -place), count);
            end = og_max(first, og_min(count, window->extent - place));
        } else if (place < 0 || place >= window->extent) {
            return NULL;
        }
    }
    const char *from = (const char *)((uintptr_t)s->memory + (uintptr_t)(at * (int64_t)s->bytes));
    if (first == 0 && end == count)
        return from;
    loops->splat(to, &s->x->fill, first);
    memcpy(to + (size_t)first * s->bytes,
           (const char *)((uintptr_t)from + (size_t)first * s->bytes),
           (size_t)(end - first) * s->bytes);
    loops->splat(to + (size_t)end * s->bytes, &s->x->fill, count - end);
    return to;
}

/* Weights of a line's taps; most lines have those of the one before. */
static void find_weights_of(window_sums *s, const share *line)
{
    if (!s->w || (s->has_weights && s->weights_of == line->w))
        return;
    s->has_weights = true;
    s->weights_of = line->w;
    for (int64_t t = 0; t < s->taps; t++) {
        const int64_t at = line->w + s->tap[t].w;
        if (s->bytes == sizeof(double))
            s->weights.f64[t] = ((const double *)(const void *)s->w_memory)[at];
        else
            s->weights.f32[t] = ((const float *)(const void *)s->w_memory)[at];
    }
}

static void sum_line(window_sums *s, const og_cpu_loops *loops, const share *line, int64_t count,
                     char *sums)
{
    const void *x[OG_RUN];
    const size_t pitch = (size_t)(count + s->span) * s->bytes;
    char *unseen = s->lines.bytes + (size_t)s->rows * pitch;
    const char *row = NULL;
    loops->splat(unseen, &s->x->fill, count + s->span);
    for (int64_t t = 0; t < s->taps; t++) {
        const share *tap = &s->tap[t];
        if (t == 0 || s->row[t] != s->row[t - 1])
            row = find_row(s, loops, line, tap, count + s->span,
                           s->lines.bytes + (size_t)s->row[t] * pitch);
        const int64_t further = s->moving < 0 ? 0 : tap->places[s->moving] - s->least;
        x[t] = row ? (const void *)((uintptr_t)row + (size_t)further * s->bytes) : unseen;
    }
    find_weights_of(s, line);
    loops->sum_taps(sums, x, s->w ? &s->weights : NULL, s->taps, count);
}

void og_cpu_sum_windows(const og_cpu_worker *w, const og_cpu_program *program,
                        const og_cpu_piece *piece, char *sums)
{
    const og_cpu_window_sum *of = &program->window_sum;
    window_sums s;
    s.x = &program->accesses[of->x];
    s.w = of->w < 0 ? NULL : &program->accesses[of->w];
    s.memory = og_cpu_find_buffer(w->job, s.x->buffer);
    s.w_memory = s.w ? og_cpu_find_buffer(w->job, s.w->buffer) : NULL;
    s.has_weights = false;
    s.bytes = program->reductions[0].bytes;
    s.taps = piece->outer_count;
    s.rows = 0;
    find_taps(&s, piece);
    for (int64_t i = 0, count; i < piece->inner_count; i += count) {
        share line = {.x = s.x->offset, .w = s.w ? s.w->offset : 0};
        for (int32_t k = 0; k < s.x->window_count; k++)
            line.places[k] = s.x->windows[k].start;
        count = find_count(&s, piece->inner + i, piece->inner_count - i);
        add_axis(&s, OG_CPU_BASE, piece->base, &line);
        add_axis(&s, OG_CPU_INNER, piece->inner + i, &line);
        sum_line(&s, program->reductions[0].loops, &line, count, sums + (size_t)i * s.bytes);
    }
}
