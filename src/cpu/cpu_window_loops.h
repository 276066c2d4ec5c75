/* SPDX-License-Identifier: MIT
 *
 * cpu_window_loops.h - sums over windows of several lines at once, which cpu_window_lines.c
 * prepares; included by cpu_loops.h once for float and once for double (REAL, L(name)).
 *
 * A sum adds its terms one after the other, in the order of its taps: what is done side by side are
 * sums, of neighbours along a line and of lines. Sums stay in registers, and of lines that see the
 * same row of an image each vector of it is loaded once for all of them.
 */
typedef REAL L(wide) __attribute__((vector_size(WIDE_BYTES), aligned(sizeof(REAL)), may_alias));

/* ---- rows of an image, copied ------------------------------------------------ */

OG_INLINE void L(copy_run)(REAL *to, const REAL *from, int64_t n)
{
    const int64_t lanes = WIDE_BYTES / sizeof(REAL);
    for (int64_t i = 0; n < lanes && i < n; i++)
        to[i] = from[i];
    for (int64_t i = 0; n >= lanes && i < n; i += lanes) {
        const int64_t at = i < n - lanes ? i : n - lanes;
        *(L(wide) *)(void *)(to + at) = *(const L(wide) *)(const void *)(from + at);
    }
}

/* even[i], odd[i] = from[2 i], from[2 i + 1]. */
OG_INLINE void L(deal_pairs)(REAL *even, REAL *odd, const REAL *from, int64_t n)
{
    const int64_t lanes = WIDE_BYTES / sizeof(REAL);
    for (int64_t i = 0; n < lanes && i < n; i++)
        even[i] = from[2 * i], odd[i] = from[2 * i + 1];
    for (int64_t i = 0; n >= lanes && i < n; i += lanes) {
        const int64_t at = i < n - lanes ? i : n - lanes;
        const L(wide) a = *(const L(wide) *)(const void *)(from + 2 * at);
        const L(wide) b = *(const L(wide) *)(const void *)(from + 2 * at + lanes);
        *(L(wide) *)(void *)(even + at) = __builtin_shufflevector(a, b, EVEN);
        *(L(wide) *)(void *)(odd + at) = __builtin_shufflevector(a, b, ODD);
    }
}

/* Elements [begin, end) of array a of a row, one by one. */
OG_INLINE void L(pad_ends)(const og_cpu_padding *p, const REAL *from, int64_t a, int64_t begin,
                           int64_t end, REAL *to)
{
    for (int64_t i = begin; i < end; i++) {
        const int64_t further = a + i * p->step, place = p->first + further;
        to[i] = place >= 0 && place < p->extent ? from[further] : *(const REAL *)p->fill;
    }
}

static void L(pad_rows)(const og_cpu_padding *p)
{
    const int64_t step = p->step, length = p->length, before = p->first < 0 ? -p->first : 0;
    const bool pairs = step == 2 && p->arrays == 2;
    /* Elements [begin, end) of all arrays are there. */
    int64_t begin = (before + step - 1) / step, end = (p->extent - p->first - p->arrays) / step + 1;
    begin = begin < length ? begin : length;
    end = p->extent - p->first < p->arrays ? begin : end < length ? end : length;
    end = end < begin ? begin : end;
    for (int64_t row = 0; row < p->rows; row++) {
        const REAL *from = (const REAL *)p->from + row * p->from_pitch + p->first;
        REAL *to = (REAL *)p->to + row * p->row_pitch;
        if (pairs)
            L(deal_pairs)(to + begin, to + p->array_pitch + begin, from + 2 * begin, end - begin);
        for (int64_t a = 0; a < p->arrays; a++, to += p->array_pitch) {
            if (step == 1)
                L(copy_run)(to + begin, from + begin, end - begin);
            else if (!pairs)
                L(pad_ends)(p, from, a, begin, end, to);
            L(pad_ends)(p, from, a, 0, begin, to);
            L(pad_ends)(p, from, a, end, length, to);
        }
    }
}

/* ---- sums of lines ----------------------------------------------------------- */

/* A row of taps, of lines [first, last]; vectors, weighs and these are constants. */
OG_INLINE void L(add_row)(L(wide) sums[OG_CPU_LINES][MOST_WIDE], const REAL *x, const REAL *w,
                          const og_cpu_lines *of, const int64_t *place, const int first,
                          const int last, const int vectors, const bool weighs)
{
    const int64_t back = of->back;
    for (int64_t t = 0; t < of->row_taps; t++) {
        const REAL *from = x + of->shift[t];
        L(wide) term[MOST_WIDE];
        UNROLL for (int v = 0; v < vectors; v++) term[v] =
            *(const L(wide) *)(const void *)(from + place[v]);
        UNROLL for (int r = first; r <= last; r++)
        {
            const REAL weight = weighs ? w[t - (r - first) * back] : (REAL)1;
            UNROLL for (int v = 0; v < vectors; v++) sums[r][v] += term[v] * weight;
        }
    }
}

/* Sums of `lines` lines (a constant) in vectors from `at` on, the last of which end with the line. */
OG_INLINE void L(sum_block)(REAL *to, const REAL *end, const REAL *x, const REAL *w,
                            const og_cpu_lines *of, int64_t n, int64_t at, const int lines,
                            const int vectors, const bool weighs)
{
    const int64_t lanes = WIDE_BYTES / sizeof(REAL), last = n < lanes ? 0 : n - lanes;
    const og_cpu_line_step *steps = of->steps[lines > 1];
    L(wide) sums[OG_CPU_LINES][MOST_WIDE];
    int64_t place[MOST_WIDE];
    UNROLL for (int v = 0; v < vectors; v++) place[v] =
        at + v * lanes < last ? at + v * lanes : last;
    UNROLL for (int r = 0; r < lines; r++)
        UNROLL for (int v = 0; v < vectors; v++) sums[r][v] = -(L(wide)){0}; /* changes no term */
    for (int64_t s = 0; s < of->step_count[lines > 1]; s++) {
        const REAL *row = x + steps[s].x, *weights = weighs ? w + steps[s].w : NULL;
#define LINES(first, last)                                                                         \
    case (first) * OG_CPU_LINES + (last):                                                          \
        if ((last) < lines)                                                                        \
            L(add_row)(sums, row, weights, of, place, first, last, vectors, weighs);               \
        break
        switch (steps[s].lines) {
            LINES(0, 0);
            LINES(0, 1);
            LINES(0, 2);
            LINES(0, 3);
            LINES(1, 1);
            LINES(1, 2);
            LINES(1, 3);
            LINES(2, 2);
            LINES(2, 3);
            LINES(3, 3);
        }
#undef LINES
    }
    UNROLL for (int r = 0; r < lines; r++)
        UNROLL for (int v = 0; v < vectors; v++)
        {
            REAL *there = to + r * n + place[v];
            /* What goes beyond a short line is the next one's, which comes later. */
            if (n >= lanes || there + lanes <= end)
                *(L(wide) *)(void *)there = sums[r][v];
            else
                memcpy(there, &sums[r][v], (size_t)n * sizeof *there);
        }
}

OG_INLINE void L(sum_lines)(const og_cpu_lines *of, REAL *to, const REAL *x, const REAL *w,
                            int64_t lines, int64_t n, const bool weighs)
{
    const int64_t lanes = WIDE_BYTES / sizeof(REAL);
    const REAL *end = to + lines * n;
    const bool four = lines >= OG_CPU_LINES;
    for (int64_t l = 0; l < lines; l += four ? OG_CPU_LINES : 1) {
        const int64_t line = four && l > lines - OG_CPU_LINES ? lines - OG_CPU_LINES : l;
        REAL *there = to + line * n;
        const REAL *from = x + line * of->x_line;
        for (int64_t i = 0, some; i < n; i += some * lanes) {
            some = (n - i + lanes - 1) / lanes;
            some = some < MOST_WIDE ? some : MOST_WIDE;
#define VECTORS(count)                                                                             \
    case count:                                                                                    \
        if (four)                                                                                  \
            L(sum_block)(there, end, from, w, of, n, i, OG_CPU_LINES, count, weighs);              \
        else                                                                                       \
            L(sum_block)(there, end, from, w, of, n, i, 1, count, weighs);                         \
        break
            switch (some) {
                VECTORS(1);
                VECTORS(2);
#if MOST_WIDE > 2
                VECTORS(3);
                VECTORS(4);
#endif
            }
#undef VECTORS
        }
    }
}

static void L(weigh_lines)(const og_cpu_lines *of, void *to, const void *x, const void *w,
                           int64_t lines, int64_t n)
{
    if (w)
        L(sum_lines)(of, to, x, w, lines, n, true);
    else
        L(sum_lines)(of, to, x, w, lines, n, false);
}
