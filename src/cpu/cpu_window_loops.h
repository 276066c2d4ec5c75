/* SPDX-License-Identifier: MIT
 *
 * cpu_window_loops.h - sums over windows of several lines at once, which cpu_window_lines.c
 * prepares; included by cpu_loops.h once for float and once for double, behind cpu_pad_rows.h, with
 * its parameters and
 *   MOST_WIDE   vectors of sums of a line; OG_CPU_LINES times as many are in registers
 *
 * A sum adds its terms one after the other, in the order of its taps: what is done side by side are
 * sums, of neighbours along a line and of lines. Sums stay in registers, and of lines that see the
 * same row of an image each vector of it is loaded once for all of them.
 */

/* ---- sums of lines ----------------------------------------------------------- */

/* A tap of a row, of lines [first, last], the last vector `tail` further on; vectors, weighs and
 * these are constants. */
OG_INLINE void L(add_tap)(L(wide) sums[OG_CPU_LINES][MOST_WIDE], const REAL *from, const REAL *w,
                          int64_t back, int64_t tail, const int first, const int last,
                          const int vectors, const bool weighs)
{
    const int64_t lanes = WIDE_BYTES / sizeof(REAL);
    L(wide) term[MOST_WIDE];
    UNROLL for (int v = 0; v < vectors; v++) term[v] =
        *(const L(wide) *)(const void *)(from + (v + 1 < vectors ? v * lanes : tail));
    HOLD_LOADS();
    UNROLL for (int r = first; r <= last; r++)
    {
        const REAL weight = weighs ? w[(first - r) * back] : (REAL)1;
        UNROLL for (int v = 0; v < vectors; v++)
        {
            sums[r][v] += term[v] * weight;
            HOLD(sums[r][v]);
        }
    }
}

/* A row of taps; three, if that is what `taps` says. */
OG_INLINE void L(add_row)(L(wide) sums[OG_CPU_LINES][MOST_WIDE], const REAL *x, const REAL *w,
                          const og_cpu_lines *of, int64_t tail, const int taps, const int first,
                          const int last, const int vectors, const bool weighs)
{
    const int64_t back = of->back, *shift = of->shift;
    if (taps == 3) {
        L(add_tap)(sums, x + shift[0], w, back, tail, first, last, vectors, weighs);
        L(add_tap)(sums, x + shift[1], w + 1, back, tail, first, last, vectors, weighs);
        L(add_tap)(sums, x + shift[2], w + 2, back, tail, first, last, vectors, weighs);
        return;
    }
    for (int64_t t = 0; t < of->row_taps; t++)
        L(add_tap)
    (sums, x + shift[t], weighs ? w + t : NULL, back, tail, first, last, vectors, weighs);
}

/* Taps of lines by weights of columns, which are loaded once for all lines. */
OG_INLINE void L(add_columns)(L(wide) sums[OG_CPU_LINES][MOST_WIDE], const REAL *x, const REAL *w,
                              const og_cpu_lines *of, int64_t tail, const int lines,
                              const int vectors)
{
    const int64_t lanes = WIDE_BYTES / sizeof(REAL);
    for (int64_t s = 0; s < of->step_count[0]; s++) {
        const og_cpu_line_step *step = &of->steps[0][s];
        const REAL *weights = w + step->w * of->w_pitch;
        for (int64_t t = 0; t < of->row_taps; t++, weights += of->w_pitch) {
            const REAL *from = x + step->x + of->shift[t];
            L(wide) weight[MOST_WIDE];
            UNROLL for (int v = 0; v < vectors; v++) weight[v] =
                *(const L(wide) *)(const void *)(weights + (v + 1 < vectors ? v * lanes : tail));
            HOLD_LOADS();
            UNROLL for (int r = 0; r < lines; r++, from += of->x_line)
                UNROLL for (int v = 0; v < vectors; v++)
            {
                sums[r][v] +=
                    weight[v] *
                    *(const L(wide) *)(const void *)(from + (v + 1 < vectors ? v * lanes : tail));
                HOLD(sums[r][v]);
            }
        }
    }
}

/* Sums of `lines` lines (a constant) in vectors from `at` on, the last of which end with the line.
 * weighs: 1 by a weight that all of a line has, 2 by one of each column. */
OG_INLINE void L(sum_block)(REAL *to, const REAL *end, const REAL *x, const REAL *w,
                            const og_cpu_lines *of, int64_t n, int64_t at, const int taps,
                            const int lines, const int vectors, const int weighs)
{
    const int64_t lanes = WIDE_BYTES / sizeof(REAL), last = n < lanes ? 0 : n - lanes;
    const og_cpu_line_step *steps = of->steps[lines > 1];
    L(wide) sums[OG_CPU_LINES][MOST_WIDE];
    const int64_t most = (vectors - 1) * lanes, tail = at + most < last ? most : last - at;
    x += at;
    UNROLL for (int r = 0; r < lines; r++) UNROLL for (int v = 0; v < vectors; v++) sums[r][v] =
        -(L(wide)){0}; /* changes no term */
#define ROW(s, first, last)                                                                        \
    L(add_row)                                                                                     \
    (sums, x + steps[s].x, weighs ? w + steps[s].w : NULL, of, tail, taps, first, last, vectors,   \
     weighs)
#define CASE(first, last)                                                                          \
    case (first)*OG_CPU_LINES + (last):                                                            \
        if ((last) < lines)                                                                        \
            ROW(s, first, last);                                                                   \
        break
    if (weighs == 2) {
        L(add_columns)(sums, x, w + at, of, tail, lines, vectors);
    } else if (taps == 3 && lines > 1) { /* three rows of three: no branch to predict */
        ROW(0, 0, 0);
        ROW(1, 0, 1);
        ROW(2, 0, 2);
        ROW(3, 1, 3);
        ROW(4, 2, 3);
        ROW(5, 3, 3);
    } else {
        for (int64_t s = 0; s < of->step_count[lines > 1]; s++)
            switch (steps[s].lines) {
                CASE(0, 0);
                CASE(0, 1);
                CASE(0, 2);
                CASE(0, 3);
                CASE(1, 1);
                CASE(1, 2);
                CASE(1, 3);
                CASE(2, 2);
                CASE(2, 3);
                CASE(3, 3);
            }
    }
#undef CASE
#undef ROW
    UNROLL for (int r = 0; r < lines; r++) UNROLL for (int v = 0; v < vectors; v++)
    {
        REAL *there = to + r * n + at + (v + 1 < vectors ? v * lanes : tail);
        /* What goes beyond a short line is the next one's, which comes later. */
        if (n >= lanes || there + lanes <= end) {
            *(L(wide) *)(void *)there = sums[r][v];
        } else { /* by a copy: of what has an address nothing stays in a register */
            const L(wide) sum = sums[r][v];
            memcpy(there, &sum, (size_t)n * sizeof *there);
        }
    }
}

/* Each a function of its own: of all of them in one gcc 12 keeps sums on the stack. */
typedef void L(sum_block_fn)(REAL *to, const REAL *end, const REAL *x, const REAL *w,
                             const og_cpu_lines *of, int64_t n, int64_t at);
#define BLOCK(taps, lines, vectors, weighs)                                                        \
    static __attribute__((noinline)) void L(sum_##taps##_##lines##_##vectors##_##weighs)(          \
        REAL * to, const REAL *end, const REAL *x, const REAL *w, const og_cpu_lines *of,          \
        int64_t n, int64_t at)                                                                     \
    {                                                                                              \
        L(sum_block)(to, end, x, w, of, n, at, taps, lines, vectors, weighs);                      \
    }
#define NAME(taps, lines, vectors, weighs) L(sum_##taps##_##lines##_##vectors##_##weighs),
#if MOST_WIDE == 2
#define BLOCKS(X, taps, lines, weighs) X(taps, lines, 1, weighs) X(taps, lines, 2, weighs)
#else
#define BLOCKS(X, taps, lines, weighs)                                                             \
    X(taps, lines, 1, weighs)                                                                      \
    X(taps, lines, 2, weighs) X(taps, lines, 3, weighs) X(taps, lines, 4, weighs)
#endif
BLOCKS(BLOCK, 0, 1, 0)
BLOCKS(BLOCK, 0, 4, 0)
BLOCKS(BLOCK, 0, 1, 1)
BLOCKS(BLOCK, 0, 4, 1)
BLOCKS(BLOCK, 0, 1, 2)
BLOCKS(BLOCK, 0, 4, 2)
BLOCKS(BLOCK, 3, 4, 1)
static L(sum_block_fn) *const L(sum_blocks)[7][MOST_WIDE] = {
    {BLOCKS(NAME, 0, 1, 0)}, {BLOCKS(NAME, 0, 4, 0)}, {BLOCKS(NAME, 0, 1, 1)},
    {BLOCKS(NAME, 0, 4, 1)}, {BLOCKS(NAME, 0, 1, 2)}, {BLOCKS(NAME, 0, 4, 2)},
    {BLOCKS(NAME, 3, 4, 1)}};
#undef BLOCK
#undef NAME
#undef BLOCKS

static void L(weigh_lines)(const og_cpu_lines *of, void *to, const void *x, const void *w,
                           int64_t lines, int64_t n)
{
    const int64_t lanes = WIDE_BYTES / sizeof(REAL);
    const REAL *end = (REAL *)to + lines * n;
    const bool four = lines >= OG_CPU_LINES;
    const int weighs = !w ? 0 : of->w_pitch ? 2 : 1;
    L(sum_block_fn) *const *blocks =
        L(sum_blocks)[four && weighs == 1 && of->is_three ? 6 : 2 * weighs + four];
    /* Weights of columns are read for each block of lines: of some columns they stay in the cache. */
    const int64_t width = weighs == 2 ? MOST_WIDE * lanes : n;
    for (int64_t c = 0; c < n; c += width)
        for (int64_t l = 0; l < lines; l += four ? OG_CPU_LINES : 1) {
            const int64_t line = four && l > lines - OG_CPU_LINES ? lines - OG_CPU_LINES : l;
            for (int64_t i = c, some; i < n && i < c + width; i += some * lanes) {
                some = (n - i + lanes - 1) / lanes;
                some = some < MOST_WIDE ? some : MOST_WIDE;
                blocks[some - 1]((REAL *)to + line * n, end, (const REAL *)x + line * of->x_line, w,
                                 of, n, i);
            }
        }
}
