/* SPDX-License-Identifier: MIT
 *
 * cpu_window_lines.c - reductions over windows along lines (cpu_window_fold.c), of several lines at
 * once: of windows that are one element apart, or two, and see rows of an image (depthwise
 * convolutions, poolings).
 *
 * A line has taps in rows, which differ in the place along the line alone, and rows of
 * taps in *sheets*, which differ in the row of the image that they see. A *band* is lines each of
 * which sees every row so many rows further than the one before. What a band sees of an image is
 * copied, padded, converted, and dealt out to arrays of every step-th element, unless it lies in
 * memory as these would; then all taps of a line are neighbours that begin somewhere in these, and
 * loops need know nothing else (cpu_window_loops.h).
 *
 * Which taps there are, and which of them neighbouring lines share, is found when a kernel is
 * prepared.
 */
#include "cpu/cpu_window_walk.h"

#include <stdlib.h>
#include <string.h>

enum {
    BAND = 32 * 1024, /* bytes of what is copied: most of an L1 cache, on a thread's stack */
    WHOLE = 16,       /* elements that may be read from every tap on: a vector of any type */
    MOST_STEP = 2,    /* from 3 on lines are better turned */
    NEAR = 32,  /* elements between taps of a row, where no window says which dim they are along */
    FAR = 8     /* lines between rows of taps from which on they are in sheets of their own */
};

/* ---- what taps there are ----------------------------------------------------- */

typedef struct {
    const og_cpu_access *x;
    og_cpu_window_lines *to;
    int64_t row_x[OG_RUN]; /* of a row of taps: its place among its sheet's rows */
    int32_t sheet[OG_RUN];
} finding;

static int64_t tap_at(const finding *f, int64_t t, int32_t window)
{
    const og_cpu_axis *axis =
        window < 0 ? &f->x->axes[OG_CPU_OUTER] : &f->x->windows[window].axes[OG_CPU_OUTER];
    return og_cpu_find_offset(axis, t);
}

/* Does the axis move from line to line, of `width`, by the same step, and along none of them? */
static bool steps_by_lines(const og_cpu_axis *axis, bool moves, int64_t width)
{
    const int32_t last = axis->rank - 1;
    return last >= 1 && axis->extent[last] == width && (axis->stride[last] != 0) == moves &&
           axis->stride[last - 1] > 0;
}

/* What moves from line to line, if that is one window, or x itself, alone. */
static void find_along(finding *f, int32_t moving)
{
    og_cpu_window_lines *to = f->to;
    const og_cpu_axis *axis = &f->x->axes[OG_CPU_INNER];
    to->along = -1;
    to->line_step = 0;
    for (int32_t i = -1; i < f->x->window_count; i++) {
        axis = i < 0 ? axis : &f->x->windows[i].axes[OG_CPU_INNER];
        if (!steps_by_lines(axis, i == moving, to->width) || (i == moving && i >= 0))
            continue;
        to->along = i;
        to->line_step = axis->stride[axis->rank - 2];
    }
}

/* Taps of a row: the innermost dim's, if these differ in the place along the line. */
static int64_t count_row_taps(const finding *f, int32_t moving)
{
    const og_cpu_axis *outer =
        moving < 0 ? &f->x->axes[OG_CPU_OUTER] : &f->x->windows[moving].axes[OG_CPU_OUTER];
    const int32_t last = outer->rank - 1;
    if (last < 0 || outer->stride[last] <= 0 ||
        (moving < 0 && og_times(outer->extent[last] - 1, outer->stride[last]) > NEAR))
        return 1;
    return outer->extent[last];
}

/* Places along the line of a row's taps, and the same of all rows. */
static bool find_row_taps(finding *f, int32_t moving)
{
    og_cpu_window_lines *to = f->to;
    for (int64_t t = 0; t < to->taps; t++) {
        const int64_t first = t - t % to->row_taps;
        const int64_t place =
            moving < 0 ? tap_at(f, t, -1) - tap_at(f, first, -1) : tap_at(f, t, moving);
        bool same = moving < 0 || tap_at(f, t, -1) == tap_at(f, first, -1);
        for (int32_t i = 0; i < f->x->window_count; i++)
            same &= i == moving || tap_at(f, t, i) == tap_at(f, first, i);
        if (t < to->row_taps)
            to->place[t] = place;
        if (!same || place != to->place[t % to->row_taps] || place < to->place[0])
            return false;
        to->span = og_max(to->span, place - to->place[0]);
    }
    return true;
}

/* Sheets of rows of taps, ascending in each. */
static void find_sheets(finding *f, int32_t moving)
{
    og_cpu_window_lines *to = f->to;
    for (int64_t q = 0; q < to->tap_rows; q++) {
        og_cpu_sheet here = {.x = tap_at(f, q * to->row_taps, -1)};
        for (int32_t i = 0; i < f->x->window_count; i++)
            here.places[i] = i == moving ? 0 : tap_at(f, q * to->row_taps, i);
        const og_cpu_sheet *at = to->sheet_count ? &to->sheets[to->sheet_count - 1] : NULL;
        int64_t row = !at             ? 0
                      : to->along < 0 ? here.x - at->x
                                      : here.places[to->along] - at->places[to->along];
        bool same = at && to->line_step && row > f->row_x[q - 1] &&
                    row - f->row_x[q - 1] <= FAR * to->line_step &&
                    (to->along < 0 || here.x == at->x);
        for (int32_t i = 0; same && i < f->x->window_count; i++)
            same &= i == to->along || here.places[i] == at->places[i];
        if (!same) {
            row = 0;
            to->sheets[to->sheet_count++] = here;
        }
        f->sheet[q] = to->sheet_count - 1;
        f->row_x[q] = row;
    }
}

static int64_t find_divisor(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The row of taps of sheet `sheet` that is at row x, or -1. */
static int64_t find_tap_row(const finding *f, int32_t sheet, int64_t x)
{
    for (int64_t q = 0; q < f->to->tap_rows; q++)
        if (f->sheet[q] == sheet && f->row_x[q] == x)
            return q;
    return -1;
}

/* Steps of `lines` lines, sheet by sheet and row by row: each line has its taps in their order. */
static void find_steps(finding *f, int64_t lines)
{
    og_cpu_window_lines *to = f->to;
    const int many = lines > 1;
    const int64_t row_taps = to->row_taps;
    for (int32_t s = 0; s < to->sheet_count; s++)
        for (int64_t row = 0; row <= to->row_span + (lines - 1) * to->line_step; row++) {
            int64_t before = -1;
            for (int64_t line = 0; line < lines; line++) {
                const int64_t q = find_tap_row(f, s, row - line * to->line_step);
                og_cpu_window_step *next = &to->steps[many][to->step_count[many]];
                if (q >= 0 && before >= 0 && to->back && (before - q) * row_taps == to->back) {
                    next[-1].last = (int32_t)line;
                } else if (q >= 0) {
                    *next = (og_cpu_window_step){s, (int32_t)row, (int32_t)(q * row_taps),
                                                 (int32_t)line, (int32_t)line};
                    to->step_count[many]++;
                }
                before = q;
            }
        }
}

/* Rows in units of what rows and lines are multiples of, and steps. */
static void find_rows(finding *f)
{
    og_cpu_window_lines *to = f->to;
    to->row_unit = to->along < 0 ? to->line_step : 1;
    for (int64_t q = 0; to->along < 0 && q < to->tap_rows; q++)
        to->row_unit = find_divisor(to->row_unit, f->row_x[q]);
    to->row_unit = og_max(to->row_unit, 1);
    to->line_step /= to->row_unit;
    for (int64_t q = 0; q < to->tap_rows; q++) {
        f->row_x[q] /= to->row_unit;
        to->row_span = og_max(to->row_span, f->row_x[q]);
    }
    const int64_t apart = to->tap_rows > 1 ? f->row_x[1] : 0;
    to->back = apart > 0 && to->line_step % apart == 0 ? to->line_step / apart * to->row_taps : 0;
    find_steps(f, 1);
    find_steps(f, OG_CPU_LINES);
}

/* Elements of a row's array beyond its windows. */
static int64_t extra_of(const og_cpu_window_lines *of)
{
    return of->span / of->step;
}

/* Bytes of a band of lines of n windows. */
static int64_t count_bytes(const og_cpu_window_lines *of, int64_t lines, int64_t n, size_t bytes)
{
    const int64_t pitch = og_divide_up(og_max(n, WHOLE) + extra_of(of), WHOLE) * WHOLE;
    const int64_t rows = og_times(of->sheet_count, of->row_span + 1 + (lines - 1) * of->line_step);
    return og_times(og_times(rows, of->arrays), og_times(pitch, (int64_t)bytes));
}

bool og_cpu_find_window_lines(const og_cpu_program *program, const og_cpu_window_fold *fold,
                              og_cpu_window_lines *to)
{
    const og_cpu_access *x = &program->accesses[fold->x];
    const int32_t moving = fold->moving;
    finding f = {.x = x, .to = to};
    const og_cpu_axis *line =
        moving < 0 ? &x->axes[OG_CPU_INNER] : &x->windows[moving].axes[OG_CPU_INNER];
    const int64_t taps = fold->taps;
    to->width = fold->width;
    to->taps = taps;
    to->step = og_cpu_last_stride(line);
    for (int32_t i = 0; i < x->window_count; i++)
        if (x->windows[i].divisor != 1 || x->windows[i].uneven.bits)
            return false;
    if (taps < 1 || taps > OG_RUN || to->step < 1 || to->step > MOST_STEP ||
        (moving >= 0 &&
         (x->windows[moving].stride != 1 || og_cpu_last_stride(&x->axes[OG_CPU_INNER]))))
        return false;
    to->row_taps = count_row_taps(&f, moving);
    to->tap_rows = taps / to->row_taps;
    if (taps % to->row_taps || !find_row_taps(&f, moving))
        return false;
    if (fold->w_pitch || (!fold->turned && to->row_taps == 1)) /* channels side by side */
        return false;
    find_along(&f, moving);
    find_sheets(&f, moving);
    find_rows(&f);
    to->arrays = og_min(to->step, to->span + 1);
    if (!fold->own && to->arrays < to->step) /* much would be converted that nobody sees */
        return false;
    return count_bytes(to, 1, 2 * WHOLE, program->reductions[0].bytes) <= BAND;
}

/* ---- bands ------------------------------------------------------------------- */

/* Where rows and taps of a band are. */
typedef struct {
    int64_t rows;             /* of a sheet */
    int64_t count, row_pitch; /* windows of a line, at least; elements of a row */
    int64_t shift[OG_RUN];
    og_cpu_line_step steps[2][OG_RUN * OG_CPU_LINES];
    og_cpu_lines lines;
} bands_layout;

typedef struct {
    const og_cpu_window_fold *fold;
    const og_cpu_window_lines *of;
    const og_cpu_loops *loops;
    og_cpu_fold_kind kind;
    const og_cpu_access *x, *w; /* w: or NULL */
    const char *memory, *w_memory;
    size_t bytes; /* of an element of sums */
    bands_layout copied, in_place, *now;
    bool has_weights;
    int64_t weights_of;
    double weights[OG_RUN];
    _Alignas(64) double band[BAND / sizeof(double) + WHOLE];
    double converted[BAND / sizeof(double)];
} bands;

/* Elements from row to row of an image. */
static int64_t row_stride_of(const bands *b)
{
    return b->of->along < 0 ? b->of->row_unit : b->x->windows[b->of->along].stride;
}

/* The loops' steps, of sheets that begin at sheet_x[]. */
static void lay_out_steps(const og_cpu_window_lines *of, const int64_t *sheet_x, bands_layout *to)
{
    for (int many = 0; many < 2; many++)
        for (int64_t s = 0; s < of->step_count[many]; s++) {
            const og_cpu_window_step *step = &of->steps[many][s];
            to->steps[many][s] =
                (og_cpu_line_step){sheet_x[step->sheet] + step->row * to->row_pitch, step->w,
                                   step->first * OG_CPU_LINES + step->last};
        }
    to->lines = (og_cpu_lines){.steps = {to->steps[0], to->steps[1]},
                               .step_count = {of->step_count[0], of->step_count[1]},
                               .shift = to->shift,
                               .row_taps = of->row_taps,
                               .is_three = of->taps == 9 && of->row_taps == 3 && of->back == 3 &&
                                           of->row_span == 2 && of->sheet_count == 1,
                               .back = of->back,
                               .x_line = of->line_step * to->row_pitch};
}

/* A band of lines of n windows, whose sheets have so many rows, as it is copied. */
static void lay_out_copied(bands *b, int64_t n, int64_t rows)
{
    const og_cpu_window_lines *of = b->of;
    bands_layout *to = b->now = &b->copied;
    int64_t sheet_x[OG_RUN];
    if (to->count == og_max(n, WHOLE) && to->rows == rows)
        return;
    to->count = og_max(n, WHOLE);
    to->rows = rows;
    const int64_t pitch = og_divide_up(to->count + extra_of(of), WHOLE) * WHOLE;
    to->row_pitch = pitch * of->arrays;
    for (int64_t t = 0; t < of->row_taps; t++) {
        const int64_t further = of->place[t] - of->place[0];
        to->shift[t] = further % of->step * pitch + further / of->step;
    }
    for (int32_t s = 0; s < of->sheet_count; s++)
        sheet_x[s] = s * rows * to->row_pitch;
    lay_out_steps(of, sheet_x, to);
}

/* Elements from the first sheet's first row to that of sheet s, which is wholly there. */
static int64_t find_sheet(const bands *b, int32_t s)
{
    const og_cpu_sheet *first = b->of->sheets, *sheet = &first[s];
    int64_t offset = sheet->x - first->x;
    for (int32_t i = 0; i < b->x->window_count; i++)
        offset += (sheet->places[i] - first->places[i]) * b->x->windows[i].stride;
    return offset;
}

/* A band where it lies. */
static void lay_out_in_place(bands *b)
{
    const og_cpu_window_lines *of = b->of;
    bands_layout *to = b->now = &b->in_place;
    int64_t sheet_x[OG_RUN];
    if (to->rows)
        return;
    to->rows = 1;
    to->row_pitch = row_stride_of(b);
    for (int64_t t = 0; t < of->row_taps; t++)
        to->shift[t] = of->place[t];
    for (int32_t s = 0; s < of->sheet_count; s++)
        sheet_x[s] = find_sheet(b, s);
    lay_out_steps(of, sheet_x, to);
}

/* Element number `at` of x, which is in memory or nowhere near it. */
static const char *element_at(const bands *b, int64_t at)
{
    return (const char *)((uintptr_t)b->memory + (uintptr_t)(at * b->x->bytes));
}

/* Rows of halves and integers, as of the type computed in: what arrays need of them. */
static void convert_rows(bands *b, og_cpu_padding *p)
{
    const int64_t first = og_max(p->first, 0);
    const int64_t last = p->first + (p->length - 1) * p->step + p->arrays - 1;
    const int64_t width = og_max(0, og_min(p->extent, last + 1) - first);
    const char *from = (const char *)((uintptr_t)p->from + (uintptr_t)(first * b->x->bytes));
    if (width > 0)
        b->fold->load(b->converted, from, p->from_pitch, 1, p->rows, width);
    p->from = (const char *)((uintptr_t)b->converted - (uintptr_t)(first * (int64_t)b->bytes));
    p->from_pitch = width;
}

/* All that a sheet's taps see of a band, at `line`, the share of its first line. */
static void copy_sheet(bands *b, const og_cpu_share *line, int32_t number, int64_t n)
{
    const og_cpu_window_lines *of = b->of;
    const bands_layout *at = &b->copied;
    const og_cpu_sheet *sheet = &of->sheets[number];
    const int32_t moving = b->fold->moving;
    char *to = (char *)b->band + (size_t)(number * at->rows * at->row_pitch) * b->bytes;
    int64_t offset = line->x + sheet->x, first = 0, begin = 0, end = at->rows;
    bool sees = true;
    const int64_t row_stride = row_stride_of(b);
    for (int32_t i = 0; i < b->x->window_count; i++) {
        const og_cpu_window *window = &b->x->windows[i];
        const int64_t place = line->places[i] + sheet->places[i];
        if (i == moving) {
            first = line->places[i] + of->place[0];
            continue;
        }
        offset += place * window->stride;
        if (i == of->along) {
            begin = og_min(og_max(0, -place), at->rows);
            end = og_max(begin, og_min(at->rows, window->extent - place));
        } else if (place < 0 || place >= window->extent) {
            sees = false;
        }
    }
    begin = sees ? begin : 0;
    end = sees ? end : 0;
    og_cpu_padding p = {.row_pitch = at->row_pitch,
                        .array_pitch = at->row_pitch / of->arrays,
                        .from_pitch = row_stride,
                        .rows = end - begin,
                        .first = first,
                        .step = of->step,
                        .arrays = of->arrays,
                        .length = at->count + extra_of(of),
                        .fill = &b->x->fill};
    p.extent = moving < 0 ? (n - 1) * of->step + of->span + 1 : b->x->windows[moving].extent;
    p.from = element_at(b, offset + begin * row_stride);
    p.to = to + (size_t)(begin * at->row_pitch) * b->bytes;
    b->loops->splat(to, p.fill, begin * at->row_pitch);
    b->loops->splat(to + (size_t)(end * at->row_pitch) * b->bytes, p.fill,
                    (at->rows - end) * at->row_pitch);
    if (begin < end && !b->fold->own)
        convert_rows(b, &p);
    if (begin < end)
        b->loops->pad_rows(&p);
}

/* Weights of tap t, of count taps or columns `stride` apart from offset on. */
static void load_weights(const bands *b, int64_t offset, int64_t stride, int64_t count, char *to)
{
    b->fold->load_w(to, b->w_memory + offset * b->w->bytes, 0, stride, 1, count);
}

/* Of a band's taps; most have those of the one before. */
static const void *find_weights(bands *b, const og_cpu_share *line)
{
    const og_cpu_axis *taps = &b->w->axes[OG_CPU_OUTER];
    if (b->has_weights && b->weights_of == line->w)
        return b->weights;
    b->has_weights = true;
    b->weights_of = line->w;
    for (int64_t t = 0, count; t < b->of->taps; t += count) {
        int64_t stride;
        count = og_cpu_find_stretch(taps, t, b->of->taps - t, &stride);
        load_weights(b, line->w + og_cpu_find_offset(taps, t), stride, count,
                     (char *)b->weights + (size_t)t * b->bytes);
    }
    return b->weights;
}

/* ---- a piece ----------------------------------------------------------------- */

/* How many lines there are from the beginning of one on along which an axis stands still, or
 * (along) moves by its step. */
static int64_t count_lines(const og_cpu_walk *walk, bool along, int64_t width, int64_t most)
{
    const og_cpu_axis *axis = walk->axis;
    const int32_t last = axis->rank - 1;
    if (!along && og_cpu_last_stride(axis) == 0)
        return last < 1 ? most : og_min(most, (axis->extent[last] - walk->index[last]) / width);
    if (last < 1 || axis->extent[last] != width || (!along && axis->stride[last - 1]))
        return 1;
    return last < 2 ? most : og_min(most, axis->extent[last - 1] - walk->index[last - 1]);
}

/* Lines of a piece: walks over all that moves along them. */
typedef struct {
    og_cpu_walk x, w, places[OG_MAX_WINDOWS];
} walks;

/* Windows of a line from here on, n, and how many such lines. */
static int64_t find_lines(const bands *b, const walks *at, int64_t left, int64_t *lines)
{
    const int32_t windows = b->x->window_count;
    const og_cpu_window_lines *of = b->of;
    int64_t n = og_cpu_count_left(&at->x, og_min(left, of->width));
    for (int32_t i = 0; i < windows; i++)
        n = og_cpu_count_left(&at->places[i], n);
    n = b->w ? og_cpu_count_left(&at->w, n) : n;
    *lines = 1;
    if (n != of->width || !of->line_step)
        return n;
    int64_t most = count_lines(&at->x, of->along < 0, n, left / n);
    for (int32_t i = 0; i < windows; i++)
        most = count_lines(&at->places[i], of->along == i, n, most);
    *lines = b->w ? count_lines(&at->w, false, n, most) : most;
    return n;
}

/* Of `lines` lines from this one on: how many see all that there is to see, and lie as arrays
 * would; or 0, and *lines becomes how many of the first do not. */
static int64_t count_in_place(const bands *b, const og_cpu_share *line, int64_t n, int64_t *lines)
{
    const og_cpu_window_lines *of = b->of;
    if (!b->fold->own || of->step != 1 || b->fold->moving >= 0 || n < WHOLE)
        return 0;
    for (int32_t s = 0; s < of->sheet_count; s++)
        for (int32_t i = 0; i < b->x->window_count; i++) {
            const int64_t place = line->places[i] + of->sheets[s].places[i];
            const int64_t extent = b->x->windows[i].extent;
            if (i != of->along && (place < 0 || place >= extent))
                return 0;
        }
    if (of->along < 0)
        return *lines;
    const og_cpu_window *window = &b->x->windows[of->along];
    const int64_t place = line->places[of->along] + of->sheets[0].places[of->along];
    const int64_t last = window->extent - 1 - of->row_span - place;
    for (int32_t s = 1; s < of->sheet_count; s++)
        if (of->sheets[s].places[of->along] != of->sheets[0].places[of->along])
            return 0;
    if (place < 0)
        *lines = og_min(*lines, of->line_step ? og_divide_up(-place, of->line_step) : 1);
    return place < 0 || last < 0 ? 0 : of->line_step ? og_min(*lines, last / of->line_step + 1) : 1;
}

/* Windows and lines of the next band, which is copied unless it is read in place. */
static int64_t find_band(bands *b, const walks *at, const og_cpu_share *line, int64_t left,
                         int64_t *lines)
{
    const og_cpu_window_lines *of = b->of;
    int64_t n = find_lines(b, at, left, lines), in_place = count_in_place(b, line, n, lines);
    if (in_place) {
        *lines = in_place;
        lay_out_in_place(b);
        return n;
    }
    for (; count_bytes(of, 1, n, b->bytes) > BAND; n /= 2)
        *lines = 1;
    const int64_t one = count_bytes(of, 1, n, b->bytes);
    const int64_t more = count_bytes(of, 2, n, b->bytes) - one;
    *lines = og_min(*lines, more ? (BAND - one) / more + 1 : 1);
    lay_out_copied(b, n, of->row_span + 1 + (*lines - 1) * of->line_step);
    return n;
}

/* The band from its first sheet's first row on. */
static const void *read_band(bands *b, const og_cpu_share *line, int64_t n)
{
    const og_cpu_sheet *first = b->of->sheets;
    int64_t offset = line->x + first->x;
    for (int32_t s = 0; b->now == &b->copied && s < b->of->sheet_count; s++)
        copy_sheet(b, line, s, n);
    for (int32_t i = 0; i < b->x->window_count; i++)
        offset += (line->places[i] + first->places[i]) * b->x->windows[i].stride;
    return b->now == &b->in_place ? (const void *)element_at(b, offset) : b->band;
}

/* A piece's bands: base is the share of all that is not along lines. */
static void fold_bands(bands *b, const og_cpu_share *base, const og_cpu_piece *piece, char *to)
{
    const int32_t windows = b->x->window_count;
    walks at;
    at.x = at.w = og_cpu_start_walk(&b->x->axes[OG_CPU_INNER], piece->inner);
    if (b->w)
        at.w = og_cpu_start_walk(&b->w->axes[OG_CPU_INNER], piece->inner);
    for (int32_t i = 0; i < windows; i++)
        at.places[i] = og_cpu_start_walk(&b->x->windows[i].axes[OG_CPU_INNER], piece->inner);
    for (int64_t i = 0, lines, n; i < piece->inner_count; i += lines * n) {
        og_cpu_share line = {.x = base->x + at.x.offset, .w = base->w + at.w.offset};
        for (int32_t k = 0; k < windows; k++)
            line.places[k] = base->places[k] + at.places[k].offset;
        n = find_band(b, &at, &line, piece->inner_count - i, &lines);
        const void *weights = b->w ? find_weights(b, &line) : NULL;
        const void *band = read_band(b, &line, n);
        b->loops->fold_lines(&b->now->lines, b->kind, to + (size_t)i * b->bytes, band, weights,
                             lines, n);
        og_cpu_move_far(&at.x, lines * n);
        og_cpu_move_far(&at.w, lines * n);
        for (int32_t k = 0; k < windows; k++)
            og_cpu_move_far(&at.places[k], lines * n);
    }
}

void og_cpu_fold_window_lines(const og_cpu_worker *worker, const og_cpu_program *program,
                              const og_cpu_piece *piece, char *to)
{
    const og_cpu_window_fold *fold = &program->window_fold;
    bands b;
    b.fold = fold;
    b.of = program->window_lines;
    b.loops = program->reductions[0].loops;
    b.bytes = program->reductions[0].bytes;
    b.x = &program->accesses[fold->x];
    b.w = fold->w < 0 ? NULL : &program->accesses[fold->w];
    b.memory = og_cpu_find_buffer(worker->job, b.x->buffer);
    b.w_memory = b.w ? og_cpu_find_buffer(worker->job, b.w->buffer) : NULL;
    b.has_weights = false;
    b.kind = program->reductions[0].fold;
    b.copied.rows = b.copied.count = b.in_place.rows = 0;
    og_cpu_share base = {.x = b.x->offset};
    base.x += og_cpu_find_offset(&b.x->axes[OG_CPU_BASE], piece->base);
    if (b.w)
        base.w = b.w->offset + og_cpu_find_offset(&b.w->axes[OG_CPU_BASE], piece->base);
    for (int32_t i = 0; i < b.x->window_count; i++)
        base.places[i] = b.x->windows[i].start +
                         og_cpu_find_offset(&b.x->windows[i].axes[OG_CPU_BASE], piece->base);
    fold_bands(&b, &base, piece, to);
}
