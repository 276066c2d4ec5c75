/* SPDX-License-Identifier: MIT
 *
 * cpu_window_spots.c - reductions over windows (cpu_window_fold.c) of columns that stand side by side
 * in memory. A *spot* is where all of some columns see the same elements, or rather, the vector of
 * them; a tap of a spot is where that vector is. Windows may be of any kind: a spot's taps are a list.
 *
 *   channels-last images   columns are channels, and a line is a spot. What is of the type computed
 *                          in is read where it lies, other types from converted rows.
 *   turned                 columns are lines, as many as a vector has elements, and a place along
 *                          them is a spot. Rows of as many lines as that are turned, and results
 *                          are turned back.
 *
 * All taps that differ in the place along the spots alone see the same *row* of the tensor. What a
 * window does not see is a vector of `fill`; a plain window's rows that are turned have it at both
 * ends instead, so that all spots are alike.
 */
#include "cpu/cpu_window_spots.h"

#include <string.h>

enum {
    MORE = 16,           /* that turning may write beyond */
    MOST_LANES = 16,     /* floats of such a vector */
    MOST_SPOTS = 128,    /* that results are turned back of */
    MOST_SEEN = 4096,    /* elements of lists of taps */
    MOST_COLUMNS = 1024, /* of which a vector is filled */
    LEAST_PART = 16,     /* spots of a part of a line that is a column of its own */
    MEMOS = 128
};

/* ---- what is seen -------------------------------------------------------------- */

typedef struct {
    int64_t p, element;
    int32_t window;
} memo;

typedef struct {
    const og_cpu_window_fold *of;
    const og_cpu_loops *loops;
    og_cpu_fold_kind fold;
    const og_cpu_access *x, *w;  /* w: or NULL */
    const og_cpu_window *window; /* the one that moves along the spots, or NULL */
    const og_cpu_taps *taps;
    const char *memory, *w_memory;
    og_cpu_weights *kept; /* weights of columns: the thread's */
    size_t bytes;         /* of an element of results */
    int64_t lanes;        /* elements of OG_CPU_TURNED bytes */
    int64_t stride;       /* elements of x from element to element along the spots */
    int64_t first_tap;
    bool is_plain;
    bool halves;     /* loops read x, of bfloat16, as it is */
    const char *end; /* of results */
    int64_t row_at[OG_RUN], row_first[OG_RUN], row_count[OG_RUN]; /* of a row in the band: its first
                           * vector; the first of the elements there, and how many there are */
    int64_t laid_place, laid_count; /* of turned lines: what rows and list[] are of */
    int64_t seen_place, seen_count; /* whose elements seen[] has */
    int32_t seen[MOST_SEEN];        /* of spots and taps: an element, or -1 */
    const void *list[MOST_SEEN];    /* of turned lines: the same as vectors */
    og_cpu_taps run;
    memo memos[MEMOS];
    uint16_t half_fill[MOST_COLUMNS + MORE];
    _Alignas(64) char fill[(MOST_COLUMNS + MORE) * sizeof(double)];
    _Alignas(64) char band[(OG_CPU_BAND + OG_RUN + MORE) * OG_CPU_TURNED];
    _Alignas(64) char rows[(OG_CPU_BAND + 2 * MORE) * OG_CPU_TURNED];
    _Alignas(64) char results[MOST_SPOTS * OG_CPU_TURNED];
    _Alignas(64) char weights[OG_RUN * OG_CPU_TURNED];
} spots;

/* The element that a window sees at place p, or -1. */
static int64_t find_element(const og_cpu_window *window, int64_t p)
{
    if (p < 0)
        return -1;
    if (og_cpu_is_plain(window))
        return p < window->extent ? p : -1;
    const int64_t element = p / window->divisor;
    return element < window->extent &&
                   og_uneven_sees(&window->uneven, p - element * window->divisor)
               ? element
               : -1;
}

/* The same of a window that does not move along the spots, with fewer divisions. */
static int64_t look_up(spots *s, int32_t window, int64_t p)
{
    const og_cpu_window *of = &s->x->windows[window];
    if (og_cpu_is_plain(of))
        return find_element(of, p);
    const uint64_t hash = ((uint64_t)p + (uint64_t)window) * 0x9e3779b97f4a7c15;
    memo *at = &s->memos[hash >> 57];
    if (at->p != p || at->window != window)
        *at = (memo){p, find_element(of, p), window};
    return at->element;
}

/* Where the row of a line's taps is, its element 0 along the spots; false: it is nowhere. */
static bool find_row(spots *s, const og_cpu_share *line, int64_t row, int64_t *offset)
{
    const og_cpu_share *tap = &s->taps->share[s->taps->row_tap[row]];
    *offset = line->x + tap->x;
    for (int32_t i = 0; i < s->x->window_count; i++) {
        if (&s->x->windows[i] == s->window)
            continue;
        const int64_t element = look_up(s, i, line->places[i] + tap->places[i]);
        if (element < 0)
            return false;
        *offset += element * s->x->windows[i].stride;
    }
    return true;
}

/* a / b, b > 0, rounded down. */
static int64_t divide_down(int64_t a, int64_t b, int64_t *rest)
{
    const int64_t quotient = a / b - (a % b < 0);
    *rest = a - quotient * b;
    return quotient;
}

/* Of a spot at `place`: the elements of its taps, by one division and not one each. */
static void find_spot(const spots *s, int64_t place, int32_t *seen)
{
    const og_cpu_taps *taps = s->taps;
    const og_cpu_window *window = s->window;
    int64_t rest, at = place + taps->along[0], element = divide_down(at, window->divisor, &rest);
    int64_t by = 0, more = 0, more_rest = 0; /* from tap to tap */
    for (int64_t t = 0; t < taps->count; t++) {
        const int64_t step = place + taps->along[t] - at;
        if (taps->like[t] < t) {
            seen[t] = seen[taps->like[t]];
            continue;
        }
        if (step != by)
            more = divide_down(by = step, window->divisor, &more_rest);
        at += step;
        rest += more_rest;
        element += more + (rest >= window->divisor);
        rest -= rest >= window->divisor ? window->divisor : 0;
        const bool sees =
            element >= 0 && element < window->extent && og_uneven_sees(&window->uneven, rest);
        seen[t] = sees ? (int32_t)element : -1;
    }
}

/* Of m spots from place `place` on: the elements of a window that is not plain. */
static void find_seen(spots *s, int64_t place, int64_t m)
{
    if (s->seen_place == place && s->seen_count >= m)
        return;
    s->seen_place = place;
    s->seen_count = m;
    for (int64_t i = 0; i < m; i++)
        find_spot(s, place + i * s->of->step, &s->seen[i * s->taps->count]);
}

/* Elements of rows that m spots see from place `place` on (of no window: element), one row behind
 * the other in the band. padded: what a plain window does not see is among them. */
static void lay_out(spots *s, int64_t place, int64_t m, bool padded)
{
    const og_cpu_taps *taps = s->taps;
    int64_t at = 0;
    for (int64_t r = 0; r < taps->rows; r++) {
        int64_t first = place + taps->least[r];
        int64_t last = first + (m - 1) * s->of->step + taps->span[r];
        if (!s->is_plain) {
            first = og_max(first, 0) / s->window->divisor;
            last = last < 0 ? -1 : last / s->window->divisor;
        }
        if (s->window && !(padded && s->is_plain)) {
            first = og_max(first, 0);
            last = og_min(last, s->window->extent - 1);
        }
        s->row_first[r] = first;
        s->row_count[r] = og_max(last - first + 1, 0);
        s->row_at[r] = at;
        at += s->row_count[r];
    }
}

/* How many of m spots there is room for. */
static int64_t count_spots(const spots *s, int64_t m, int64_t vectors, int64_t most)
{
    const int64_t one = og_cpu_count_seen(s->of, s->window, s->taps, 1);
    const int64_t divisor = s->is_plain ? 1 : s->window->divisor;
    const int64_t more = og_times(vectors - one, divisor) / og_times(s->taps->rows, s->of->step);
    m = og_min(m, og_min(most, 1 + og_max(more, 0)));
    return s->is_plain ? m : og_min(m, MOST_SEEN / s->taps->count);
}

/* Element number `at` of x, which is in memory or nowhere near it. */
static const char *element_at(const spots *s, int64_t at)
{
    return (const char *)((uintptr_t)s->memory + (uintptr_t)(at * s->x->bytes));
}

/* ---- channels side by side ------------------------------------------------------ */

/* Weights of tap t, of count taps or columns `stride` apart from offset on. */
static void load_weights(const spots *s, int64_t offset, int64_t stride, int64_t count, char *to)
{
    s->of->load_w(to, s->w_memory + offset * s->w->bytes, 0, stride, 1, count);
}

/* Weights of columns, from `column` on, at line's: turned once, and kept. */
static const void *find_column_weights(spots *s, const og_cpu_share *line, int64_t column)
{
    const og_cpu_window_fold *of = s->of;
    const og_cpu_axis *taps = &s->w->axes[OG_CPU_OUTER];
    const int64_t stride = og_cpu_last_stride(&s->w->axes[OG_CPU_INNER]);
    const int64_t first = line->w - column * stride;
    char *at = (char *)s->kept + 64;
    if (s->kept->fold != of || s->kept->of != first) {
        *s->kept = (og_cpu_weights){of, first};
        for (int64_t t = 0; t < of->taps; t++)
            load_weights(s, first + og_cpu_find_offset(taps, t), stride, of->width,
                         at + (size_t)(t * of->w_pitch) * s->bytes);
    }
    return at + (size_t)(s->first_tap * of->w_pitch + column) * s->bytes;
}

/* Rows of a block: where their element 0 along the spots is, NULL if it is nowhere; bytes from
 * element to element. */
typedef struct {
    const char *row[OG_RUN];
    int64_t pitch[OG_RUN];
    bool all;           /* none is NULL */
    const void *unseen; /* what taps see of nothing */
    int64_t bytes;      /* of an element */
} block_rows;

/* Where m spots at the place see rows in memory, in which n columns begin at line's. */
static void find_rows_of(spots *s, const og_cpu_share *line, block_rows *rows)
{
    rows->all = true;
    for (int64_t r = 0; r < s->taps->rows; r++) {
        int64_t offset;
        const bool sees = find_row(s, line, r, &offset);
        rows->row[r] = sees ? element_at(s, offset) : NULL;
        rows->pitch[r] = s->stride * s->x->bytes;
        rows->all &= sees;
    }
}

/* The same after the elements that spots see have been converted, n columns of each. */
static void convert_rows(spots *s, int64_t n, block_rows *rows)
{
    char *to = s->band;
    for (int64_t r = 0; r < s->taps->rows; r++) {
        if (!rows->row[r])
            continue;
        const int64_t first = s->row_first[r], count = s->row_count[r];
        const char *from =
            (const char *)((uintptr_t)rows->row[r] + (uintptr_t)(first * s->stride * s->x->bytes));
        if (count)
            s->of->load(to, from, s->stride, 1, count, n);
        rows->pitch[r] = n * (int64_t)s->bytes;
        rows->row[r] = (const char *)((uintptr_t)to - (uintptr_t)(first * rows->pitch[r]));
        to += count * rows->pitch[r];
    }
}

/* The vector that a tap of spot i sees, place being the first spot's. */
static const void *see_tap(const spots *s, const block_rows *rows, int64_t place, int64_t i,
                           int64_t t)
{
    const int64_t r = s->taps->row[t];
    int64_t element = place + i * s->of->step + s->taps->along[t];
    if (!s->is_plain)
        element = s->seen[i * s->taps->count + t];
    if (!rows->row[r] || (s->window && (element < 0 || element >= s->window->extent)))
        return rows->unseen;
    return (const void *)((uintptr_t)rows->row[r] + (uintptr_t)(element * rows->pitch[r]));
}

/* Spots [from, end) of a block; alike: they see all that there is to see. */
static void fold_some(spots *s, const block_rows *rows, og_cpu_spots *to, int64_t place,
                      int64_t from, int64_t end, bool alike, const void *w, char *results)
{
    const int64_t apart = to->to_step * (int64_t)s->bytes;
    to->x_step = alike ? s->of->step * rows->pitch[0] / rows->bytes : 0;
    to->x_pitch = alike ? 0 : to->taps;
    for (int64_t i = from, some; i < end; i += some) {
        some = alike ? end - from : og_min(end - i, MOST_SEEN / to->taps);
        const void **x = s->list;
        for (int64_t k = i; k < (alike ? i + 1 : i + some); k++)
            for (int64_t t = 0; t < to->taps; t++)
                *x++ = see_tap(s, rows, place, k, t);
        s->loops->fold_spots(to, s->fold, results + i * apart, s->list, w, some);
    }
}

/* m spots at place, n columns of each. */
static void fold_block(spots *s, const block_rows *rows, og_cpu_spots *to, int64_t place, int64_t m,
                       const void *w, char *results)
{
    int64_t begin = 0, end = rows->all && s->is_plain ? m : 0;
    if (!s->is_plain)
        find_seen(s, place, m);
    for (int64_t r = 0; s->window && r < s->taps->rows && end; r++) {
        const int64_t before = -(place + s->taps->least[r]);
        const int64_t after = s->window->extent - 1 + before - s->taps->span[r];
        begin = og_max(begin, og_divide_up(og_max(before, 0), s->of->step));
        end = after < 0 ? 0 : og_min(end, after / s->of->step + 1);
    }
    begin = og_min(begin, end);
    fold_some(s, rows, to, place, 0, begin, false, w, results);
    fold_some(s, rows, to, place, begin, end, true, w, results);
    fold_some(s, rows, to, place, end, m, false, w, results);
}

/* n columns of `count` lines from this one on, which lie evenly, and whose results are `apart`
 * elements from each other; w: their weights, or NULL. */
static void fold_columns(spots *s, const og_cpu_share *line, int64_t n, int64_t count,
                         int64_t apart, const void *w, char *results)
{
    const int64_t place = s->window ? line->places[s->window - s->x->windows] : 0;
    const bool halves = s->halves && n >= s->lanes,
               in_place = halves || (s->of->own && n >= s->lanes);
    og_cpu_spots to = {.taps = s->taps->count,
                       .columns = n,
                       .halves = halves,
                       .to_step = apart,
                       .w_pitch = s->of->w_pitch,
                       .end = n == apart ? s->end : NULL};
    block_rows rows = {.unseen = halves ? (const void *)s->half_fill : s->fill,
                       .bytes = halves ? s->x->bytes : (int64_t)s->bytes};
    for (int64_t i = 0, m; i < count; i += m) {
        m = in_place ? count - i : count_spots(s, count - i, OG_CPU_BAND * s->lanes / n, count);
        m = s->is_plain ? m : og_min(m, MOST_SEEN / s->taps->count);
        const int64_t from = place + i * s->of->step;
        find_rows_of(s, line, &rows);
        if (!in_place) {
            lay_out(s, from, m, false);
            convert_rows(s, n, &rows);
        }
        fold_block(s, &rows, &to, from, m, w, results + i * apart * (int64_t)s->bytes);
    }
}

/* The same of all n columns: as many at a time as there is room for; column: the first of a line's. */
static void fold_channels(spots *s, const og_cpu_share *line, int64_t column, int64_t n,
                          int64_t count, char *results)
{
    const int64_t divisor = s->is_plain ? 1 : s->window->divisor;
    const int64_t one = og_cpu_count_seen(s->of, s->window, s->taps, 1) +
                        s->taps->rows * (s->of->step / divisor + 1);
    const bool converts = !s->of->own && !s->halves;
    int64_t some = og_min(n, MOST_COLUMNS);
    while (converts && some > s->lanes && og_times(one, some) > OG_CPU_BAND * s->lanes)
        some = (some / 2 + s->lanes - 1) / s->lanes * s->lanes;
    for (int64_t c = 0; c < n; c += some) {
        const int64_t first = og_min(c, n - some); /* some may be done twice */
        og_cpu_share at = *line;
        at.x += first;
        const char *w = s->w ? find_column_weights(s, line, column) : NULL;
        fold_columns(s, &at, some, count, n, w ? w + first * (int64_t)s->bytes : NULL,
                     results + first * (int64_t)s->bytes);
    }
}

/* ---- lines turned ---------------------------------------------------------------- */

typedef struct {
    og_cpu_share at;
    char *to;
} lane;

/* Weights of lanes, by taps. */
static void find_lane_weights(spots *s, const lane *lanes, int64_t count)
{
    const og_cpu_axis *axis = &s->w->axes[OG_CPU_OUTER];
    char some[OG_RUN * sizeof(double)];
    for (int64_t l = 0; l < s->lanes; l++) {
        if (!l || (l < count && lanes[l].at.w != lanes[l - 1].at.w))
            for (int64_t t = 0, n; t < s->taps->count; t += n) {
                int64_t stride;
                n = og_cpu_find_stretch(axis, s->first_tap + t, s->taps->count - t, &stride);
                load_weights(s, lanes[l].at.w + s->taps->share[t].w, stride, n,
                             some + (size_t)t * s->bytes);
            }
        for (int64_t t = 0; t < s->taps->count; t++)
            memcpy(s->weights + (size_t)(t * s->lanes + l) * s->bytes, some + (size_t)t * s->bytes,
                   s->bytes);
    }
}

/* Elements of a lane's row: where they are, or copied to `to`, with what is not seen at both ends. */
static const void *read_row(spots *s, const og_cpu_share *at, int64_t row, char *to)
{
    const int64_t count = s->row_count[row], whole = (count + s->lanes - 1) / s->lanes * s->lanes;
    int64_t first = s->row_first[row], offset, begin = 0, end = count;
    if (s->window && s->is_plain) /* where lanes begin differs */
        first += at->places[s->window - s->x->windows];
    if (!find_row(s, at, row, &offset))
        end = 0;
    else if (s->window && s->is_plain) {
        begin = og_min(og_max(0, -first), count);
        end = og_max(begin, og_min(count, s->window->extent - first));
    }
    offset += (first + begin) * s->stride;
    if (s->of->own && s->stride == 1 && begin == 0 && end == count && offset + whole <= s->of->last)
        return element_at(s, offset);
    if (begin > 0)
        s->loops->splat(to, s->fill, begin);
    if (begin < end)
        s->of->load(to + (size_t)begin * s->bytes, element_at(s, offset), 0, s->stride, 1,
                    end - begin);
    if (end < count)
        s->loops->splat(to + (size_t)end * s->bytes, s->fill, count - end);
    return to;
}

/* The rows of all lanes, turned; what is beyond a row's end is overwritten by the next one. */
static void read_rows(spots *s, const lane *lanes, int64_t count)
{
    const void *rows[MOST_LANES];
    for (int64_t r = 0; r < s->taps->rows; r++) {
        const int64_t whole = (s->row_count[r] + s->lanes - 1) / s->lanes * s->lanes;
        for (int64_t l = 0; l < s->lanes; l++)
            rows[l] = l < count
                          ? read_row(s, &lanes[l].at, r, s->rows + (size_t)(l * whole) * s->bytes)
                          : rows[0];
        s->loops->turn(s->band + s->row_at[r] * OG_CPU_TURNED, rows, s->row_count[r]);
    }
}

/* Where m spots at place have their taps in the band; of a plain window the first of them. */
static void lay_out_turned(spots *s, int64_t place, int64_t m)
{
    const og_cpu_taps *taps = s->taps;
    if (s->laid_place == place && s->laid_count == m)
        return;
    s->laid_place = place;
    s->laid_count = m;
    lay_out(s, place, m, true);
    if (!s->is_plain)
        find_seen(s, place, m);
    const void **list = s->list;
    for (int64_t i = 0; i < (s->is_plain ? 1 : m); i++)
        for (int64_t t = 0; t < taps->count; t++) {
            const int64_t r = taps->row[t], at = s->row_at[r] - s->row_first[r];
            const int64_t element =
                s->is_plain ? place + taps->along[t] : s->seen[i * taps->count + t];
            *list++ =
                !s->is_plain && element < 0 ? s->fill : s->band + (at + element) * OG_CPU_TURNED;
        }
}

/* Results of m spots, in s->results. */
static void fold_turned(spots *s, int64_t m)
{
    const og_cpu_spots to = {.taps = s->taps->count,
                             .columns = s->lanes,
                             .x_step = s->is_plain ? s->of->step * s->lanes : 0,
                             .x_pitch = s->is_plain ? 0 : s->taps->count,
                             .to_step = s->lanes,
                             .w_pitch = s->lanes};
    const void *w = s->w ? s->weights : NULL;
    s->loops->fold_spots(&to, s->fold, s->results, s->list, w, m);
}

/* n spots of each lane. whole: lanes are one behind the other. */
static void fold_lanes(spots *s, const lane *lanes, int64_t count, int64_t n, bool whole)
{
    const int64_t place = s->is_plain ? 0 : lanes[0].at.places[s->window - s->x->windows];
    if (s->w)
        find_lane_weights(s, lanes, count);
    for (int64_t i = 0, m; i < n; i += m) {
        void *to[MOST_LANES];
        m = count_spots(s, n - i, OG_CPU_BAND, MOST_SPOTS);
        lay_out_turned(s, place + i * s->of->step, m);
        read_rows(s, lanes, count);
        fold_turned(s, m);
        for (int64_t l = 0; l < count; l++)
            to[l] = lanes[l].to + (size_t)i * s->bytes;
        s->loops->turn_back(to, s->results, count, m, whole && m == n ? s->end : NULL);
    }
}

/* Lanes of n spots each, of parts of their lines where there are few. */
static void fold_group(spots *s, const lane *lanes, int64_t count, int64_t n)
{
    const int64_t parts = og_min(s->lanes / og_max(count, 1), n / LEAST_PART);
    if (!s->is_plain || parts < 2) {
        if (count)
            fold_lanes(s, lanes, count, n, true);
        return;
    }
    const int64_t part = og_divide_up(n, parts);
    lane all[MOST_LANES];
    for (int64_t l = 0; l < count; l++)
        for (int64_t i = 0; i < parts; i++) { /* the last two may have results in common */
            const int64_t first = og_min(i * part, n - part);
            lane *to = &all[l * parts + i];
            *to = lanes[l];
            to->to += (size_t)first * s->bytes;
            if (s->window)
                to->at.places[s->window - s->x->windows] += first * s->of->step;
            else
                to->at.x += first * s->of->step;
        }
    fold_lanes(s, all, count * parts, part, false);
}

/* ---- a piece --------------------------------------------------------------------- */

/* Lines of a piece: walks over all that moves along them. */
typedef struct {
    og_cpu_walk x, w, places[OG_MAX_WINDOWS];
} walks;

static void start_walks(const spots *s, int64_t index, walks *at)
{
    at->x = at->w = og_cpu_start_walk(&s->x->axes[OG_CPU_INNER], index);
    if (s->w)
        at->w = og_cpu_start_walk(&s->w->axes[OG_CPU_INNER], index);
    for (int32_t i = 0; i < s->x->window_count; i++)
        at->places[i] = og_cpu_start_walk(&s->x->windows[i].axes[OG_CPU_INNER], index);
}

/* The share of what is at the walks, base being that of all that is not along lines; the rest of
 * the line, at most `left`, and the width. */
static int64_t see_line(const spots *s, const walks *at, const og_cpu_share *base, int64_t left,
                        og_cpu_share *line)
{
    int64_t n = og_cpu_count_left(&at->x, og_min(left, s->of->width));
    line->x = base->x + at->x.offset;
    line->w = base->w + at->w.offset;
    for (int32_t i = 0; i < s->x->window_count; i++) {
        line->places[i] = base->places[i] + at->places[i].offset;
        n = og_cpu_count_left(&at->places[i], n);
    }
    return s->w ? og_cpu_count_left(&at->w, n) : n;
}

static void move_on(const spots *s, walks *at, int64_t count)
{
    og_cpu_move_far(&at->x, count);
    for (int32_t i = 0; i < s->x->window_count; i++)
        og_cpu_move_far(&at->places[i], count);
    if (s->w)
        og_cpu_move_far(&at->w, count);
}

static void fold_turned_lines(spots *s, const og_cpu_share *base, const og_cpu_piece *piece,
                              char *to)
{
    lane lanes[MOST_LANES];
    int64_t count = 0, width = 0;
    const int64_t moving = s->window ? s->window - s->x->windows : 0;
    walks at;
    start_walks(s, piece->inner, &at);
    for (int64_t i = 0, n; i < piece->inner_count; i += n) {
        lane next = {.to = to + (size_t)i * s->bytes};
        n = see_line(s, &at, base, piece->inner_count - i, &next.at);
        const bool other = n != width || (!s->is_plain && count &&
                                          next.at.places[moving] != lanes[0].at.places[moving]);
        if (count == s->lanes || (other && count)) {
            fold_group(s, lanes, count, width);
            count = 0;
        }
        width = n;
        lanes[count++] = next;
        move_on(s, &at, n);
    }
    fold_group(s, lanes, count, width);
}

/* How many lines there are from this one on along which an axis moves evenly, by *step each. */
static int64_t count_even(const og_cpu_walk *walk, int64_t width, int64_t most, int64_t *step)
{
    const og_cpu_axis *axis = walk->axis;
    const int32_t last = axis->rank - 1;
    *step = last < 0 ? 0 : axis->stride[last] * width;
    if (last < 1)
        return most;
    if (axis->extent[last] > width)
        return og_min(most, (axis->extent[last] - walk->index[last]) / width);
    *step = axis->stride[last - 1];
    return last < 2 ? most : og_min(most, axis->extent[last - 1] - walk->index[last - 1]);
}

/* The same of all of them, where nothing but the window along spots moves, or x alone. */
static int64_t count_lines(spots *s, const walks *at, int64_t most)
{
    int64_t step, x_step, count = count_even(&at->x, s->of->width, most, &x_step);
    bool even = !s->window || x_step == 0;
    for (int32_t i = 0; i < s->x->window_count; i++) {
        count = count_even(&at->places[i], s->of->width, count, &step);
        even &= step == (&s->x->windows[i] == s->window ? s->of->step : 0);
    }
    if (s->w)
        count = count_even(&at->w, s->of->width, count, &step);
    if (!s->window)
        s->stride = x_step;
    return even ? og_max(count, 1) : 1;
}

static void fold_channel_lines(spots *s, const og_cpu_share *base, const og_cpu_piece *piece,
                               char *to)
{
    walks at;
    start_walks(s, piece->inner, &at);
    for (int64_t i = 0, n, count; i < piece->inner_count; i += count * n) {
        og_cpu_share line;
        n = see_line(s, &at, base, piece->inner_count - i, &line);
        count = n < s->of->width ? 1 : count_lines(s, &at, (piece->inner_count - i) / n);
        fold_channels(s, &line, (piece->inner + i) % s->of->width, n, count,
                      to + (size_t)i * s->bytes);
        move_on(s, &at, count * n);
    }
}

/* Of bfloat16, unless that cannot be. */
static void find_half_fill(spots *s, const og_cpu_window_fold *of)
{
    uint32_t fill;
    memcpy(&fill, &s->x->fill.f32, sizeof fill);
    s->halves = !of->turned && s->bytes == sizeof(float) &&
                of->load == s->loops->load[OG_BFLOAT16] && (fill & 0xffff) == 0;
    for (int64_t i = 0; s->halves && i < og_min(of->width, MOST_COLUMNS) + MORE; i++)
        s->half_fill[i] = (uint16_t)(fill >> 16);
}

void og_cpu_fold_window_spots(const og_cpu_worker *worker, const og_cpu_program *program,
                              const og_cpu_piece *piece, char *to)
{
    const og_cpu_reduction *r = &program->reductions[0];
    const og_cpu_window_fold *of = &program->window_fold;
    spots s;
    s.of = of;
    s.loops = r->loops;
    s.fold = r->fold;
    s.bytes = r->bytes;
    s.lanes = OG_CPU_TURNED / (int64_t)r->bytes;
    s.x = &program->accesses[of->x];
    s.w = of->w < 0 ? NULL : &program->accesses[of->w];
    s.window = og_cpu_window_along(s.x, of);
    s.is_plain = og_cpu_is_plain(s.window);
    s.stride = s.window ? s.window->stride : 1;
    s.memory = og_cpu_find_buffer(worker->job, s.x->buffer);
    s.w_memory = s.w ? og_cpu_find_buffer(worker->job, s.w->buffer) : NULL;
    s.kept = (og_cpu_weights *)(void *)(worker->memory + worker->kernel->weights);
    s.end = to + (size_t)piece->inner_count * s.bytes;
    s.first_tap = piece->outer;
    s.taps = &s.run;
    if (of->runs)
        s.taps = &of->runs[piece->outer / OG_RUN];
    else
        og_cpu_find_taps(program, of, piece->outer, &s.run);
    s.seen_count = s.laid_count = 0;
    for (int32_t i = 0; i < s.x->window_count; i++)
        for (int m = 0; m < MEMOS && !og_cpu_is_plain(&s.x->windows[i]); m++)
            s.memos[m].window = -1;
    s.loops->splat(s.fill, &s.x->fill,
                   of->turned ? OG_CPU_BAND : og_min(of->width, MOST_COLUMNS) + MORE);
    find_half_fill(&s, of);
    og_cpu_share base = {.x = s.x->offset, .w = s.w ? s.w->offset : 0};
    for (int32_t i = 0; i < s.x->window_count; i++)
        base.places[i] = s.x->windows[i].start;
    og_cpu_add_axis(s.x, s.w, OG_CPU_BASE, piece->base, &base);
    if (of->turned)
        fold_turned_lines(&s, &base, piece, to);
    else
        fold_channel_lines(&s, &base, piece, to);
}
