/* SPDX-License-Identifier: MIT
 *
 * cpu_window_fold.c - reductions over windows along lines: of elements (pooling), or sums of elements
 * times a weight that stands still along the line (convolutions of a channel each). What programs do
 * step by step, with blocks between them, is one loop here, and sums stay in registers.
 *
 * All taps that differ in the place along the line alone see the same *row* of the tensor. A row
 * becomes one or more arrays, in which what a tap sees of a line are neighbours:
 *
 *   windows side by side, inside   none: the tensor itself
 *   `step` elements apart          step arrays, of every step-th element
 *   of uneven parts, or between    one for each place along the line, by a table
 *   elements
 *
 * Rows that were copied are kept until their memory is needed: the next line sees most of them again.
 */
#include "cpu/cpu_window_walk.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    LINES = 4096 * 4, /* bytes of arrays: fits the L1 cache, and a thread's stack */
    WHOLE = 8,        /* elements that can be read from every tap on: a vector of any type */
    MOST_STEP = 8,
    NEAR = 32 /* elements between taps of a row, where no window says which dim they are along */
};

/* ---- which programs ------------------------------------------------------------ */

/* From the least to the greatest element of an axis. */
static int64_t span_of(const og_cpu_axis *axis)
{
    int64_t span = 0;
    for (int32_t d = 0; d < axis->rank; d++)
        span += og_times(axis->extent[d] - 1, llabs(axis->stride[d]));
    return span;
}

static int64_t count_of(const og_cpu_axis *axis)
{
    int64_t count = 1;
    for (int32_t d = 0; d < axis->rank; d++)
        count = og_times(count, axis->extent[d]);
    return count;
}

/* Different offsets along an axis, at most. */
static int64_t count_places(const og_cpu_axis *axis)
{
    int64_t count = 1;
    for (int32_t d = 0; d < axis->rank; d++)
        count = og_times(count, axis->stride[d] ? axis->extent[d] : 1);
    return og_min(count, OG_RUN);
}

/* Does a window see an element wherever it is inside? */
static bool is_plain(const og_cpu_window *window)
{
    return window->divisor == 1 && !window->uneven.bits;
}

/* Elements of a line that there is room for. */
static int64_t find_room(int64_t slots, int64_t arrays, int64_t extra, size_t bytes)
{
    return LINES / (int64_t)bytes / ((slots + 1) * arrays) - extra - (WHOLE - 1);
}

/* Can a table have the offsets of all that a window sees? */
static bool is_near(const og_cpu_window *window)
{
    return window->stride >= 0 && og_times(window->extent, og_max(window->stride, 1)) <= INT32_MAX;
}

/* Taps of a row, at least, but for the first and last one of a run: `outer` are the offsets along a
 * line, which the innermost taps differ in alone. */
static int64_t count_along(const og_cpu_access *x, const og_cpu_axis *outer, int64_t span)
{
    const int32_t last = outer->rank - 1;
    const og_cpu_axis *other = &x->axes[OG_CPU_OUTER];
    if (last < 0 || !outer->stride[last] ||
        og_times(outer->extent[last] - 1, outer->stride[last]) > span)
        return 1;
    for (int32_t i = 0;; i++) {
        if (other != outer && other->rank &&
            (og_cpu_last_stride(other) || other->extent[other->rank - 1] < outer->extent[last]))
            return 1;
        if (i == x->window_count)
            return og_min(outer->extent[last], OG_RUN);
        other = &x->windows[i].axes[OG_CPU_OUTER];
    }
}

/* Is there room for what a run of taps sees, whose offsets along a line are those of `outer`? */
static bool has_room(const og_cpu_access *x, const og_cpu_axis *outer, int64_t step, bool plain,
                     int64_t span, size_t bytes)
{
    const int64_t taps = og_min(count_of(outer), OG_RUN);
    if (!taps) /* a part of nothing */
        return false;
    const int64_t rows = og_min(taps, taps / count_along(x, outer, span) + 2);
    const int64_t arrays = plain ? og_min(step, span + 1) : count_places(outer);
    const int64_t extra = plain ? span / step : 0;
    return extra < LINES && find_room(rows, arrays, extra, bytes) >= WHOLE;
}

/* Finds the window that moves along lines, or -1; false, if there are several. */
static bool find_moving(const og_cpu_access *x, int32_t *moving)
{
    *moving = -1;
    for (int32_t i = 0; i < x->window_count; i++) {
        if (!og_cpu_last_stride(&x->windows[i].axes[OG_CPU_INNER]))
            continue;
        if (*moving >= 0)
            return false;
        *moving = i;
    }
    return true;
}

/* Can lines be seen as arrays? */
static bool sees_lines(const og_cpu_access *x, bool own, size_t bytes, int32_t moving)
{
    const int64_t stride = og_cpu_last_stride(&x->axes[OG_CPU_INNER]);
    if (moving < 0)
        return stride >= 1 && stride <= MOST_STEP &&
               has_room(x, &x->axes[OG_CPU_OUTER], stride, true, NEAR, bytes);
    const og_cpu_window *window = &x->windows[moving];
    const og_cpu_axis *outer = &window->axes[OG_CPU_OUTER];
    const int64_t step = og_cpu_last_stride(&window->axes[OG_CPU_INNER]);
    const bool fits = is_plain(window) ? step >= 1 && step <= MOST_STEP : own && is_near(window);
    return stride == 0 && fits && has_room(x, outer, step, is_plain(window), span_of(outer), bytes);
}

/* What a program reads: a block that a step loads, or memory. */
typedef struct {
    int32_t place, access;
    og_cpu_load load;
} reading;

/* All that is read, two at most: returns how many there are, or -1 if there is more to the program
 * than these and (weighs) a last step. */
static int32_t find_readings(const og_cpu_program *program, bool weighs, reading to[2])
{
    const og_cpu_reduction *r = &program->reductions[0];
    const og_dtype own = r->bytes == sizeof(double) ? OG_FLOAT64 : OG_FLOAT32;
    int32_t count = 0;
    if (program->step_count + program->direct_count != (weighs ? 3 : 1))
        return -1;
    for (int32_t i = 0; i < program->direct_count; i++) {
        const og_cpu_direct *direct = &program->directs[i];
        to[count++] = (reading){direct->place, direct->access, r->loops->load[own]};
    }
    for (int32_t i = 0; i < program->step_count - weighs; i++) {
        const og_cpu_step *step = &program->steps[i];
        if ((step->kind != OG_CPU_SEE && step->kind != OG_CPU_LOAD) || step->loops != r->loops ||
            program->accesses[step->access].buffer < 0)
            return -1;
        to[count++] = (reading){step->dst, step->access, step->run.load};
    }
    return count;
}

/* Is a step the product of two places, blocks or one of them one element? */
static bool multiplies(const og_cpu_step *step, int32_t x, int32_t w)
{
    const og_cpu_map *forms = step->loops->map[OG_OP_mul], run = step->run.map;
    return step->kind == OG_CPU_MAP && (run == forms[0] || run == forms[1] || run == forms[2]) &&
           ((step->args[0] == x && step->args[1] == w) ||
            (step->args[0] == w && step->args[1] == x));
}

/* Does an access stand still along lines, so that it can be weights? */
static bool stands_still(const og_cpu_access *access)
{
    return !access->window_count && og_cpu_last_stride(&access->axes[OG_CPU_INNER]) == 0;
}

/* Do all lines have the same, so that it can be weights of columns? */
static bool stands_by_lines(const og_cpu_access *access)
{
    const og_cpu_axis *inner = &access->axes[OG_CPU_INNER];
    return !access->window_count && inner->rank == 2 && inner->stride[0] == 0;
}

/* A fold whose x and w stand where they should: is any of it done by lines? */
static ogive_status choose_fold(og_cpu_program *program, og_cpu_window_fold *of, bool own_w,
                                int64_t taps, int64_t width, og_arena *arena, ogive_error *error)
{
    const og_cpu_reduction *r = program->reductions;
    const og_cpu_access *x = &program->accesses[of->x];
    if (!find_moving(x, &of->moving))
        return OGIVE_OK;
    of->is = own_w && sees_lines(x, of->own, r->bytes, of->moving);
    if (r->fold == OG_CPU_SUM) {
        og_cpu_window_lines *lines = OG_ARENA_NEW(arena, og_cpu_window_lines, 1);
        if (!lines)
            return og_fail_memory(error, sizeof *lines);
        if (og_cpu_find_window_lines(program, of, taps, width, lines))
            program->window_lines = lines;
    }
    of->is |= program->window_lines != NULL;
    program->window_fold = *of;
    return OGIVE_OK;
}

ogive_status og_cpu_find_window_fold(og_cpu_program *program, int64_t taps, int64_t width,
                                     og_arena *arena, ogive_error *error)
{
    const og_cpu_reduction *r = program->reductions;
    reading all[2];
    if (program->reduction_count != 1 || r->is_sumexp || r->strided || program->stage_count ||
        program->kept_count || !program->step_count)
        return OGIVE_OK;
    const og_cpu_load own = r->loops->load[r->bytes == sizeof(double) ? OG_FLOAT64 : OG_FLOAT32];
    const og_cpu_step *last = &program->steps[program->step_count - 1];
    const bool weighs = last->kind == OG_CPU_MAP;
    if (last->dst != r->source || find_readings(program, weighs, all) != (weighs ? 2 : 1))
        return OGIVE_OK;
    const og_cpu_access *first = &program->accesses[all[0].access];
    const bool first_stands = weighs && (stands_still(first) || stands_by_lines(first));
    const reading *x = &all[first_stands], *w = weighs ? &all[!first_stands] : NULL;
    const og_cpu_access *weights = w ? &program->accesses[w->access] : NULL;
    if (w && (r->fold != OG_CPU_SUM || !multiplies(last, x->place, w->place) ||
              !(stands_still(weights) || stands_by_lines(weights))))
        return OGIVE_OK;
    og_cpu_window_fold of = {.x = x->access, .w = w ? w->access : -1, .load = x->load};
    of.own = x->load == own;
    of.load_w = w ? w->load : NULL;
    const bool own_w = !w || (w->load == own && stands_still(weights));
    return choose_fold(program, &of, own_w, taps, width, arena, error);
}

/* ---- lines --------------------------------------------------------------------- */

/* A row that was copied, for lines of count windows the first of which is at `first`; places from 0
 * on, below extent, are in memory. */
typedef struct {
    const char *from; /* NULL: none */
    int64_t first, count, extent;
    int64_t line; /* the last one that saw it */
} slot;

typedef struct {
    const og_cpu_window_fold *of;
    const og_cpu_loops *loops;
    const og_cpu_access *x, *w;  /* w: or NULL */
    const og_cpu_window *window; /* the one that moves along lines, or NULL */
    const char *memory, *w_memory;
    size_t bytes;        /* of an element of arrays */
    int64_t step;        /* of windows along a line */
    int64_t least, span; /* the first of the places of taps along it; from there to the last */
    int64_t taps, rows, arrays; /* arrays: of a row */
    int64_t extra, pitch;       /* elements of an array: more than windows; in memory */
    int64_t line, table_place, table_count, unseen_count;
    bool is_plain, has_unseen, has_weights; /* is_plain: there is no table */
    int64_t weights_of;                     /* the share of w of the lines that weights[] are of */
    union {
        float f32[OG_RUN];
        double f64[OG_RUN];
    } weights;
    og_cpu_share tap[OG_RUN];
    int32_t row[OG_RUN], row_tap[OG_RUN]; /* of a tap its row, of a row its first tap */
    int64_t along[OG_RUN];                /* of a tap: its place along the line */
    int64_t reach[OG_RUN];   /* of a row that no window moves along: that of its farthest tap */
    int64_t place[OG_RUN];   /* by table: of an array, from `least` on */
    size_t shift[OG_RUN];    /* of a tap: bytes from its row's first array on */
    int32_t slot_of[OG_RUN]; /* of a row: where it was last */
    slot slots[OG_RUN];      /* as many as rows */
    union {
        char bytes[LINES];
        double aligned;
    } lines;                               /* a slot's each, then what is not seen */
    int32_t table[LINES / sizeof(float)];  /* of arrays: offsets in the row */
    int32_t unseen[LINES / sizeof(float)]; /* elements of arrays that see none */
} folds;

/* What all indices of the axis add, at index. */
static void add_axis(const folds *s, int axis, int64_t index, og_cpu_share *to)
{
    to->x += og_cpu_find_offset(&s->x->axes[axis], index);
    for (int32_t i = 0; i < s->x->window_count; i++)
        to->places[i] += og_cpu_find_offset(&s->x->windows[i].axes[axis], index);
    if (s->w)
        to->w += og_cpu_find_offset(&s->w->axes[axis], index);
}

/* Do taps see the same row, whose first tap is a? */
static bool shares_row(const folds *s, const og_cpu_share *a, const og_cpu_share *b)
{
    bool same = s->window ? a->x == b->x : b->x >= a->x && b->x - a->x <= NEAR;
    for (int32_t i = 0; i < s->x->window_count; i++)
        same &= i == s->of->moving || a->places[i] == b->places[i];
    return same;
}

static void find_taps(folds *s, const og_cpu_piece *piece)
{
    int64_t most = INT64_MIN;
    s->least = INT64_MAX;
    for (int64_t t = 0; t < s->taps; t++) {
        og_cpu_share *tap = &s->tap[t];
        *tap = (og_cpu_share){0};
        add_axis(s, OG_CPU_OUTER, piece->outer + t, tap);
        if (t == 0 || !shares_row(s, &s->tap[s->row_tap[s->rows - 1]], tap))
            s->row_tap[s->rows++] = (int32_t)t;
        s->row[t] = (int32_t)s->rows - 1;
        s->along[t] =
            s->window ? tap->places[s->of->moving] : tap->x - s->tap[s->row_tap[s->row[t]]].x;
        s->reach[s->row[t]] =
            og_max(s->row_tap[s->row[t]] == t ? 0 : s->reach[s->row[t]], s->along[t]);
        s->least = og_min(s->least, s->along[t]);
        most = og_max(most, s->along[t]);
    }
    s->span = most - s->least;
}

/* The array whose place is `place`; a new one if there is none. */
static int64_t find_array(folds *s, int64_t place)
{
    int64_t array = 0;
    while (array < s->arrays && s->place[array] != place)
        array++;
    s->arrays += array == s->arrays;
    s->place[array] = place;
    return array;
}

/* Windows of a line, at most `most`. */
static int64_t find_longest(const folds *s, int64_t most)
{
    const og_cpu_axis *inner = &s->x->axes[OG_CPU_INNER];
    for (int32_t i = 0;; i++) {
        if (inner->rank > 1)
            most = og_min(most, inner->extent[inner->rank - 1]);
        if (i == s->x->window_count)
            return most;
        inner = &s->x->windows[i].axes[OG_CPU_INNER];
    }
}

/* Arrays, and where in them taps are. */
static void find_arrays(folds *s, int64_t inner_count)
{
    const bool plain = s->is_plain;
    int64_t array[OG_RUN], at[OG_RUN];
    s->arrays = plain ? og_min(s->step, s->span + 1) : 0;
    s->extra = plain ? s->span / s->step : 0;
    for (int64_t t = 0; t < s->taps; t++) {
        const int64_t further = s->along[t] - s->least;
        array[t] = plain ? further % s->step : find_array(s, further);
        at[t] = plain ? further / s->step : 0;
    }
    const int64_t room = find_room(s->rows, s->arrays, s->extra, s->bytes);
    assert(room >= WHOLE); /* see has_room() */
    const int64_t count = og_max(find_longest(s, og_min(room, inner_count)), WHOLE);
    s->pitch = (count + s->extra + WHOLE - 1) / WHOLE * WHOLE;
    for (int64_t t = 0; t < s->taps; t++)
        s->shift[t] = (size_t)(array[t] * s->pitch + at[t]) * s->bytes;
    for (int64_t i = 0; i < s->rows; i++)
        s->slots[i] = (slot){.line = -1}, s->slot_of[i] = 0;
}

static char *slot_memory(folds *s, int64_t number)
{
    return s->lines.bytes + (size_t)(number * s->arrays * s->pitch) * s->bytes;
}

/* ---- rows ---------------------------------------------------------------------- */

/* Element number `at` from `from` on, which is in memory or nowhere near it. */
static const char *element_at(const folds *s, const char *from, int64_t at)
{
    return (const char *)((uintptr_t)from + (uintptr_t)(at * s->x->bytes));
}

/* Where the place p of a window that does not move along lines leads; false: it sees none. */
static bool see_place(const og_cpu_window *window, int64_t p, int64_t *offset)
{
    int64_t element = p;
    if (p < 0)
        return false;
    if (!is_plain(window)) {
        element = p / window->divisor;
        if (!og_uneven_sees(&window->uneven, p % window->divisor))
            return false;
    }
    *offset += element * window->stride;
    return element < window->extent;
}

/* Elements begin.. of array a, one by one. */
static void copy_ends(const folds *s, const slot *of, int64_t a, int64_t begin, int64_t end,
                      char *to)
{
    for (int64_t i = begin; i < end; i++) {
        const int64_t further = a + i * s->step, place = of->first + further;
        const bool sees = i < of->count + s->extra && place >= 0 && place < of->extent;
        const void *from = sees ? (const void *)element_at(s, of->from, further) : &s->x->fill;
        if (s->bytes == sizeof(double))
            ((double *)(void *)to)[i] = *(const double *)from;
        else
            ((float *)(void *)to)[i] = *(const float *)from;
    }
}

/* Arrays of neighbours in memory of the type computed in: all at once where every array has an
 * element. */
static void deal_row(const folds *s, const slot *of, char *to)
{
    const int64_t length = of->count + s->extra;
    const int64_t last = s->arrays - 1 + of->first;
    const int64_t begin = og_min(og_divide_up(og_max(0, -of->first), s->step), length);
    const int64_t seen = og_divide_up(og_max(0, of->extent - last), s->step);
    const int64_t end = og_max(begin, og_min(length, seen));
    if (begin < end)
        s->loops->deal(to + (size_t)begin * s->bytes, s->pitch,
                       element_at(s, of->from, begin * s->step), s->step, s->arrays, end - begin);
    for (int64_t a = 0; a < s->arrays; a++, to += (size_t)s->pitch * s->bytes) {
        copy_ends(s, of, a, 0, begin, to);
        copy_ends(s, of, a, end, s->pitch, to);
    }
}

/* Arrays of every step-th element from place `first` on, of which count + extra are needed. */
static void copy_row(const folds *s, const slot *of, char *to)
{
    const int64_t stride = s->window ? s->window->stride : 1, length = of->count + s->extra;
    if (s->of->own && stride == 1) {
        deal_row(s, of, to);
        return;
    }
    for (int64_t a = 0; a < s->arrays; a++, to += (size_t)s->pitch * s->bytes) {
        const int64_t place = of->first + a;
        const int64_t begin = og_min(og_divide_up(og_max(0, -place), s->step), length);
        const int64_t seen = og_divide_up(og_max(0, of->extent - place), s->step);
        const int64_t end = og_max(begin, og_min(length, seen));
        s->loops->splat(to, &s->x->fill, begin);
        if (begin < end)
            s->of->load(to + (size_t)begin * s->bytes,
                        element_at(s, of->from, (a + begin * s->step) * stride), 0,
                        s->step * stride, 1, end - begin);
        s->loops->splat(to + (size_t)end * s->bytes, &s->x->fill, s->pitch - end);
    }
}

/* The elements of arrays, for lines whose least place is `first`; where none is seen, any, if there
 * is one in memory at all. */
static void find_table(folds *s, int64_t first, int64_t count)
{
    const og_cpu_window *window = s->window;
    if (s->table_place == first && s->table_count == count)
        return;
    s->table_place = first;
    s->table_count = count;
    s->unseen_count = 0;
    for (int64_t a = 0; a < s->arrays; a++)
        for (int64_t i = 0; i < s->pitch; i++) {
            const int64_t p = first + s->place[a] + i * s->step, at = a * s->pitch + i;
            int64_t offset = 0;
            const bool sees = i < count && see_place(window, p, &offset);
            s->table[at] = sees ? (int32_t)offset : 0;
            if (!sees)
                s->unseen[s->unseen_count++] = (int32_t)at;
        }
}

/* Copies what the table says: from is element 0 of the row. */
static void gather_row(const folds *s, const char *from, char *to)
{
    const int64_t count = s->window->extent ? s->arrays * s->pitch : 0;
    const int32_t *table = s->table, *unseen = s->unseen;
    if (s->bytes == sizeof(double)) {
        const double *f = (const void *)from;
        double *t = (void *)to;
        for (int64_t i = 0; i < count; i++)
            t[i] = f[table[i]];
        for (int64_t i = 0; i < s->unseen_count; i++)
            t[unseen[i]] = s->x->fill.f64;
    } else {
        const float *f = (const void *)from;
        float *t = (void *)to;
        for (int64_t i = 0; i < count; i++)
            t[i] = f[table[i]];
        for (int64_t i = 0; i < s->unseen_count; i++)
            t[unseen[i]] = s->x->fill.f32;
    }
}

static bool is_same(const slot *a, const slot *b)
{
    return a->from == b->from && a->first == b->first && a->count == b->count &&
           a->extent == b->extent;
}

/* The slot that has the row, or one that this line does not need; `guess` is the first to look at. */
static slot *find_slot(folds *s, const slot *of, slot *guess)
{
    slot *oldest = s->slots;
    if (is_same(guess, of))
        return guess;
    for (slot *each = s->slots; each < s->slots + s->rows; each++) {
        if (is_same(each, of))
            return each;
        oldest = each->line < oldest->line ? each : oldest;
    }
    return oldest;
}

static const char *find_unseen(folds *s)
{
    char *unseen = slot_memory(s, s->rows);
    if (!s->has_unseen)
        s->loops->splat(unseen, &s->x->fill, s->arrays * s->pitch);
    s->has_unseen = true;
    return unseen;
}

/* Row number i of a line as a copy. As a rule it was the next one of the line before. */
static const char *find_copy(folds *s, const slot *of, int64_t i)
{
    slot *at = find_slot(s, of, &s->slots[s->slot_of[i + 1 < s->rows ? i + 1 : i]]);
    char *to = slot_memory(s, at - s->slots);
    if (!is_same(at, of)) {
        if (s->is_plain) {
            copy_row(s, of, to);
        } else {
            find_table(s, of->first, of->count);
            gather_row(s, of->from, to);
        }
    }
    *at = *of;
    s->slot_of[i] = (int32_t)(at - s->slots);
    return to;
}

/* The arrays of a row, as a line of count windows sees it. */
static const char *find_row(folds *s, const og_cpu_share *line, int64_t number, int64_t count)
{
    const og_cpu_share *tap = &s->tap[s->row_tap[number]];
    const og_cpu_window *moving = s->window;
    int64_t offset = line->x + tap->x, first = 0;
    for (int32_t i = 0; i < s->x->window_count; i++) {
        const og_cpu_window *window = &s->x->windows[i];
        if (window == moving)
            first = line->places[i] + s->least;
        else if (!see_place(window, line->places[i] + tap->places[i], &offset))
            return find_unseen(s);
    }
    if (moving && s->is_plain)
        offset += first * moving->stride;
    const char *from = element_at(s, s->memory, offset);
    const bool lies_so = s->of->own && count >= WHOLE && s->step == 1 && s->is_plain &&
                         (!moving || (moving->stride == 1 && first >= 0 &&
                                      first + count + s->span <= moving->extent));
    const int64_t extent = moving ? moving->extent : (count - 1) * s->step + s->reach[number] + 1;
    const slot copy = {from, first, count, extent, s->line};
    return lies_so ? from : find_copy(s, &copy, number);
}

/* ---- folds --------------------------------------------------------------------- */

/* Weights of a line's taps; most lines have those of the one before. */
static void find_weights_of(folds *s, const og_cpu_share *line)
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

static void fold_line(folds *s, og_cpu_fold_kind fold, const og_cpu_share *line, int64_t count,
                      char *to)
{
    const char *rows[OG_RUN];
    const void *x[OG_RUN];
    double whole[WHOLE];
    char *result = count < WHOLE ? (char *)whole : to;
    const int64_t n = og_max(count, WHOLE);
    s->line++;
    for (int64_t i = 0; i < s->rows; i++)
        rows[i] = find_row(s, line, i, count);
    for (int64_t t = 0; t < s->taps; t++)
        x[t] = rows[s->row[t]] + s->shift[t];
    find_weights_of(s, line);
    if (s->w)
        s->loops->weigh_taps(result, x, &s->weights, s->taps, n);
    else
        s->loops->fold[fold].taps(result, x, s->taps, n);
    if (result != to)
        memcpy(to, result, (size_t)count * s->bytes);
}

/* A run's lines: base is the share of all that is not along them. */
static void fold_lines(folds *s, const og_cpu_share *base, const og_cpu_piece *piece,
                       og_cpu_fold_kind fold, char *to)
{
    const int32_t windows = s->x->window_count;
    const int64_t most = s->pitch - s->extra;
    og_cpu_walk x = og_cpu_start_walk(&s->x->axes[OG_CPU_INNER], piece->inner), w = x;
    og_cpu_walk places[OG_MAX_WINDOWS];
    for (int32_t i = 0; i < windows; i++)
        places[i] = og_cpu_start_walk(&s->x->windows[i].axes[OG_CPU_INNER], piece->inner);
    if (s->w)
        w = og_cpu_start_walk(&s->w->axes[OG_CPU_INNER], piece->inner);
    for (int64_t i = 0, count; i < piece->inner_count; i += count) {
        og_cpu_share line = {.x = base->x + x.offset, .w = base->w + w.offset};
        count = og_cpu_count_left(&x, og_min(most, piece->inner_count - i));
        for (int32_t k = 0; k < windows; k++) {
            line.places[k] = base->places[k] + places[k].offset;
            count = og_cpu_count_left(&places[k], count);
        }
        count = s->w ? og_cpu_count_left(&w, count) : count;
        fold_line(s, fold, &line, count, to + (size_t)i * s->bytes);
        og_cpu_move_on(&x, count);
        for (int32_t k = 0; k < windows; k++)
            og_cpu_move_on(&places[k], count);
        if (s->w)
            og_cpu_move_on(&w, count);
    }
}

void og_cpu_fold_windows(const og_cpu_worker *worker, const og_cpu_program *program,
                         const og_cpu_piece *piece, char *to)
{
    const og_cpu_window_fold *of = &program->window_fold;
    const og_cpu_reduction *r = &program->reductions[0];
    if (program->window_lines) {
        og_cpu_sum_window_lines(worker, program, piece, to);
        return;
    }
    folds s;
    s.of = of;
    s.loops = r->loops;
    s.bytes = r->bytes;
    s.x = &program->accesses[of->x];
    s.w = of->w < 0 ? NULL : &program->accesses[of->w];
    s.window = of->moving < 0 ? NULL : &s.x->windows[of->moving];
    s.step =
        og_cpu_last_stride(s.window ? &s.window->axes[OG_CPU_INNER] : &s.x->axes[OG_CPU_INNER]);
    s.is_plain = !s.window || is_plain(s.window);
    s.memory = og_cpu_find_buffer(worker->job, s.x->buffer);
    s.w_memory = s.w ? og_cpu_find_buffer(worker->job, s.w->buffer) : NULL;
    s.has_weights = s.has_unseen = false;
    s.taps = piece->outer_count;
    s.rows = s.line = s.table_place = 0;
    s.table_count = -1;
    find_taps(&s, piece);
    find_arrays(&s, piece->inner_count);
    og_cpu_share base = {.x = s.x->offset, .w = s.w ? s.w->offset : 0};
    for (int32_t i = 0; i < s.x->window_count; i++)
        base.places[i] = s.x->windows[i].start;
    add_axis(&s, OG_CPU_BASE, piece->base, &base);
    fold_lines(&s, &base, piece, r->fold, to);
}
