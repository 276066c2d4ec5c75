/* SPDX-License-Identifier: MIT
 *
 * cpu_window_loops.h - reductions over windows: of several lines at once, which cpu_window_lines.c
 * prepares, and of columns that stand side by side, which cpu_window_spots.c does; included by
 * cpu_loops.h once for float and once for double, behind cpu_pad_rows.h, with its parameters and
 *   MOST_WIDE   vectors of results of a line; OG_CPU_LINES times as many are in registers
 *   BITS        a signed integer as long as REAL
 *   WIDE_HALVES 1: terms may be of bfloat16
 *
 * A result folds its terms one after the other, in the order of its taps: what is done side by side
 * are results, of neighbours along a line and of lines. They stay in registers, and of lines that see
 * the same row of an image each vector of it is loaded once for all of them.
 */
#ifndef OG_CPU_WINDOW_LOOPS_H
#define OG_CPU_WINDOW_LOOPS_H
#if defined(__AVX__)
#include <immintrin.h>
#endif
/* What is done with terms. */
enum { SUM, WEIGHED, MOST, LEAST };
/* Elements of two vectors in turns: of their first halves, of their second ones. */
#define LOW_2 0, 2
#define LOW_4 0, 4, 1, 5
#define LOW_8 0, 8, 1, 9, 2, 10, 3, 11
#define LOW_16 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH_2 1, 3
#define HIGH_4 2, 6, 3, 7
#define HIGH_8 4, 12, 5, 13, 6, 14, 7, 15
#define HIGH_16 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#endif

typedef BITS L(bits) __attribute__((vector_size(WIDE_BYTES), aligned(sizeof(REAL)), may_alias));
typedef uint32_t L(unsigned_bits) __attribute__((vector_size(WIDE_BYTES), aligned(4), may_alias));

/* ---- folding ------------------------------------------------------------------ */

/* og_maximum(), or og_minimum(), of each element. What compilers make of these is twice as much. */
OG_INLINE L(wide) L(choose)(L(wide) a, L(wide) b, const bool most)
{
#if defined(__AVX512F__)
    const __m512 a4 = (__m512)a, b4 = (__m512)b;
    const __m512d a8 = (__m512d)a, b8 = (__m512d)b;
    if (sizeof(REAL) == sizeof(float))
        return (L(wide))_mm512_mask_mov_ps(most ? _mm512_max_ps(a4, b4) : _mm512_min_ps(a4, b4),
                                           _mm512_cmp_ps_mask(a4, a4, _CMP_UNORD_Q), a4);
    return (L(wide))_mm512_mask_mov_pd(most ? _mm512_max_pd(a8, b8) : _mm512_min_pd(a8, b8),
                                       _mm512_cmp_pd_mask(a8, a8, _CMP_UNORD_Q), a8);
#elif defined(__AVX__)
    const __m256 a4 = (__m256)a, b4 = (__m256)b;
    const __m256d a8 = (__m256d)a, b8 = (__m256d)b;
    if (sizeof(REAL) == sizeof(float))
        return (L(wide))_mm256_blendv_ps(most ? _mm256_max_ps(a4, b4) : _mm256_min_ps(a4, b4), a4,
                                         _mm256_cmp_ps(a4, a4, _CMP_UNORD_Q));
    return (L(wide))_mm256_blendv_pd(most ? _mm256_max_pd(a8, b8) : _mm256_min_pd(a8, b8), a8,
                                     _mm256_cmp_pd(a8, a8, _CMP_UNORD_Q));
#else
    const L(bits) further = most ? a > b : a < b, nan = a != a;
    const L(bits) chosen = ((L(bits))a & further) | ((L(bits))b & ~further);
    return (L(wide))(((L(bits))a & nan) | (chosen & ~nan));
#endif
}

OG_INLINE L(wide) L(fold)(L(wide) result, L(wide) term, const L(wide) weight, const int fold)
{
    if (fold == WEIGHED)
        return result + term * weight;
    if (fold == SUM)
        return result + term;
    return L(choose)(result, term, fold == MOST);
}

/* What changes no term. */
OG_INLINE L(wide) L(neutral)(const int fold)
{
    const REAL from = fold == MOST ? (REAL)-INFINITY : fold == LEAST ? (REAL)INFINITY : (REAL)-0.0;
    return from - (L(wide)){0};
}

/* ---- lines -------------------------------------------------------------------- */

/* A tap of a row, of lines [first, last], the last vector `tail` further on; vectors, fold and
 * these are constants. */
OG_INLINE void L(add_tap)(L(wide) sums[OG_CPU_LINES][MOST_WIDE], const REAL *from, const REAL *w,
                          int64_t back, int64_t tail, const int first, const int last,
                          const int vectors, const int fold)
{
    const int64_t lanes = WIDE_BYTES / sizeof(REAL);
    L(wide) term[MOST_WIDE];
    UNROLL for (int v = 0; v < vectors; v++) term[v] =
        *(const L(wide) *)(const void *)(from + (v + 1 < vectors ? v * lanes : tail));
    HOLD_LOADS();
    UNROLL for (int r = first; r <= last; r++)
    {
        const L(wide) weight = (fold == WEIGHED ? w[(first - r) * back] : (REAL)1) - (L(wide)){0};
        UNROLL for (int v = 0; v < vectors; v++)
        {
            sums[r][v] = L(fold)(sums[r][v], term[v], weight, fold);
            HOLD(sums[r][v]);
        }
    }
}

/* A row of taps; three, if that is what `taps` says. */
OG_INLINE void L(add_row)(L(wide) sums[OG_CPU_LINES][MOST_WIDE], const REAL *x, const REAL *w,
                          const og_cpu_lines *of, int64_t tail, const int taps, const int first,
                          const int last, const int vectors, const int fold)
{
    const int64_t back = of->back, *shift = of->shift;
    if (taps == 3) {
        L(add_tap)(sums, x + shift[0], w, back, tail, first, last, vectors, fold);
        L(add_tap)(sums, x + shift[1], w + 1, back, tail, first, last, vectors, fold);
        L(add_tap)(sums, x + shift[2], w + 2, back, tail, first, last, vectors, fold);
        return;
    }
    for (int64_t t = 0; t < of->row_taps; t++)
        L(add_tap)
    (sums, x + shift[t], fold == WEIGHED ? w + t : NULL, back, tail, first, last, vectors, fold);
}

/* What goes beyond a short line is the next one's, which comes later, up to end. */
OG_INLINE void L(put)(REAL *to, const L(wide) result, int64_t n, const REAL *end)
{
    const int64_t lanes = WIDE_BYTES / sizeof(REAL);
    if (n >= lanes || to + lanes <= end) {
        *(L(wide) *)(void *)to = result;
    } else { /* by a copy: of what has an address nothing stays in a register */
        const L(wide) copy = result;
        memcpy(to, &copy, (size_t)n * sizeof *to);
    }
}

/* Results of `lines` lines (a constant) in vectors from `at` on, the last of which end with the
 * line. */
OG_INLINE void L(fold_block)(REAL *to, const REAL *end, const REAL *x, const REAL *w,
                             const og_cpu_lines *of, int64_t n, int64_t at, const int taps,
                             const int lines, const int vectors, const int fold)
{
    const int64_t lanes = WIDE_BYTES / sizeof(REAL), last = n < lanes ? 0 : n - lanes;
    const og_cpu_line_step *steps = of->steps[lines > 1];
    L(wide) sums[OG_CPU_LINES][MOST_WIDE];
    const int64_t most = (vectors - 1) * lanes, tail = at + most < last ? most : last - at;
    x += at;
    UNROLL for (int r = 0; r < lines; r++) UNROLL for (int v = 0; v < vectors; v++) sums[r][v] =
        L(neutral)(fold);
#define ROW(s, first, last)                                                                        \
    L(add_row)                                                                                     \
    (sums, x + steps[s].x, fold == WEIGHED ? w + steps[s].w : NULL, of, tail, taps, first, last,   \
     vectors, fold)
#define CASE(first, last)                                                                          \
    case (first)*OG_CPU_LINES + (last):                                                            \
        if ((last) < lines)                                                                        \
            ROW(s, first, last);                                                                   \
        break
    if (taps == 3 && lines > 1) { /* three rows of three: no branch to predict */
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
        L(put)(to + r * n + at + (v + 1 < vectors ? v * lanes : tail), sums[r][v],
               vectors > 1 ? lanes : n, end);
}

/* Each a function of its own: of all of them in one gcc 12 keeps sums on the stack. */
typedef void L(fold_block_fn)(REAL *to, const REAL *end, const REAL *x, const REAL *w,
                              const og_cpu_lines *of, int64_t n, int64_t at);
#define BLOCK(taps, lines, vectors, fold)                                                          \
    static __attribute__((noinline)) void L(fold_##taps##_##lines##_##vectors##_##fold)(           \
        REAL * to, const REAL *end, const REAL *x, const REAL *w, const og_cpu_lines *of,          \
        int64_t n, int64_t at)                                                                     \
    {                                                                                              \
        L(fold_block)(to, end, x, w, of, n, at, taps, lines, vectors, fold);                       \
    }
#define NAME(taps, lines, vectors, fold) L(fold_##taps##_##lines##_##vectors##_##fold),
#if MOST_WIDE == 2
#define BLOCKS(X, taps, lines, fold) X(taps, lines, 1, fold) X(taps, lines, 2, fold)
#else
#define BLOCKS(X, taps, lines, fold)                                                               \
    X(taps, lines, 1, fold)                                                                        \
    X(taps, lines, 2, fold) X(taps, lines, 3, fold) X(taps, lines, 4, fold)
#endif
#define ALL_BLOCKS(X)                                                                              \
    X(0, 1, SUM)                                                                                   \
    X(0, 4, SUM)                                                                                   \
    X(0, 1, WEIGHED)                                                                               \
    X(0, 4, WEIGHED) X(0, 1, MOST) X(0, 4, MOST) X(0, 1, LEAST) X(0, 4, LEAST) X(3, 4, WEIGHED)
#define THESE(taps, lines, fold) BLOCKS(BLOCK, taps, lines, fold)
ALL_BLOCKS(THESE)
#undef THESE
#define THESE(taps, lines, fold) {BLOCKS(NAME, taps, lines, fold)},
static L(fold_block_fn) *const L(fold_blocks)[][MOST_WIDE] = {ALL_BLOCKS(THESE)};
#undef THESE
#undef BLOCK
#undef NAME

/* Of a kind of fold, by whether there are weights. */
OG_INLINE int L(name_fold)(og_cpu_fold_kind fold, bool weighs)
{
    return fold == OG_CPU_MAX ? MOST : fold == OG_CPU_MIN ? LEAST : weighs ? WEIGHED : SUM;
}

static void L(fold_lines)(const og_cpu_lines *of, og_cpu_fold_kind kind, void *to, const void *x,
                          const void *w, int64_t lines, int64_t n)
{
    const int64_t lanes = WIDE_BYTES / sizeof(REAL);
    const REAL *end = (REAL *)to + lines * n;
    const bool four = lines >= OG_CPU_LINES;
    L(fold_block_fn) *const *blocks =
        L(fold_blocks)[four && w && of->is_three ? 8 : 2 * L(name_fold)(kind, w) + four];
    for (int64_t l = 0; l < lines; l += four ? OG_CPU_LINES : 1) {
        const int64_t line = four && l > lines - OG_CPU_LINES ? lines - OG_CPU_LINES : l;
        for (int64_t i = 0, some; i < n; i += some * lanes) {
            some = (n - i + lanes - 1) / lanes;
            some = some < MOST_WIDE ? some : MOST_WIDE;
            blocks[some - 1]((REAL *)to + line * n, end, (const REAL *)x + line * of->x_line, w, of,
                             n, i);
        }
    }
}

/* ---- spots --------------------------------------------------------------------- */

/* A vector of elements from `place` on. */
OG_INLINE L(wide) L(load_term)(const void *x, int64_t place, const bool halves)
{
#if WIDE_HALVES
    if (halves) {
        typedef uint16_t half __attribute__((vector_size(WIDE_BYTES / 2), aligned(2), may_alias));
        const half of = *(const half *)(const void *)((const uint16_t *)x + place);
        return (L(wide))(__builtin_convertvector(of, L(unsigned_bits)) << 16);
    }
#endif
    (void)halves;
    return *(const L(wide) *)(const void *)((const REAL *)x + place);
}

/* Columns of `spots` spots (a constant) in vectors from `at` on, the last of which end with the
 * columns. */
OG_INLINE void L(fold_spot)(const og_cpu_spots *of, REAL *to, const void *const *x, const REAL *w,
                            int64_t further, int64_t at, const int spots, const int vectors,
                            const int fold, const bool halves)
{
    const int64_t lanes = WIDE_BYTES / sizeof(REAL), n = of->columns;
    const int64_t last = n < lanes ? 0 : n - lanes, most = (vectors - 1) * lanes;
    const int64_t tail = at + most < last ? most : last - at;
    const int64_t taps = of->taps, step = of->x_step, pitch = of->x_pitch;
    L(wide) sums[OG_CPU_LINES][MOST_WIDE];
    UNROLL for (int r = 0; r < spots; r++) UNROLL for (int v = 0; v < vectors; v++) sums[r][v] =
        L(neutral)(fold);
    for (int64_t t = 0; t < taps; t++) {
        L(wide) weight[MOST_WIDE] = {{0}};
        UNROLL for (int v = 0; fold == WEIGHED && v < vectors; v++) weight[v] = *(const L(
            wide) *)(const void *)(w + t * of->w_pitch + at + (v + 1 < vectors ? v * lanes : tail));
        HOLD_LOADS();
        UNROLL for (int r = 0; r < spots; r++) UNROLL for (int v = 0; v < vectors; v++)
        {
            const int64_t place = further + r * step + at + (v + 1 < vectors ? v * lanes : tail);
            const L(wide) term = L(load_term)(x[t + r * pitch], place, halves);
            sums[r][v] = L(fold)(sums[r][v], term, weight[v], fold);
            HOLD(sums[r][v]);
        }
    }
    UNROLL for (int r = 0; r < spots; r++) UNROLL for (int v = 0; v < vectors; v++)
        L(put)(to + r * of->to_step + at + (v + 1 < vectors ? v * lanes : tail), sums[r][v],
               vectors > 1 ? lanes : n, of->end);
}

typedef void L(fold_spot_fn)(const og_cpu_spots *of, REAL *to, const void *const *x, const REAL *w,
                             int64_t further, int64_t at);
#define BLOCK(halves, spots, vectors, fold)                                                        \
    static __attribute__((noinline)) void L(spot_##halves##_##spots##_##vectors##_##fold)(         \
        const og_cpu_spots *of, REAL *to, const void *const *x, const REAL *w, int64_t further,    \
        int64_t at)                                                                                \
    {                                                                                              \
        L(fold_spot)(of, to, x, w, further, at, spots, vectors, fold, halves);                     \
    }
#define NAME(halves, spots, vectors, fold) L(spot_##halves##_##spots##_##vectors##_##fold),
#define KIND_BLOCKS(X, halves)                                                                     \
    X(halves, 1, SUM)                                                                              \
    X(halves, 4, SUM)                                                                              \
    X(halves, 1, WEIGHED) X(halves, 4, WEIGHED) X(halves, 1, MOST) X(halves, 4, MOST)              \
        X(halves, 1, LEAST) X(halves, 4, LEAST)
#if WIDE_HALVES
#define SPOT_BLOCKS(X) KIND_BLOCKS(X, 0) KIND_BLOCKS(X, 1)
#else
#define SPOT_BLOCKS(X) KIND_BLOCKS(X, 0)
#endif
#define THESE(halves, spots, fold) BLOCKS(BLOCK, halves, spots, fold)
SPOT_BLOCKS(THESE)
#undef THESE
#define THESE(halves, spots, fold) {BLOCKS(NAME, halves, spots, fold)},
static L(fold_spot_fn) *const L(fold_spots_of)[][MOST_WIDE] = {SPOT_BLOCKS(THESE)};
#undef THESE
#undef BLOCK
#undef NAME
#undef BLOCKS
#undef ALL_BLOCKS
#undef KIND_BLOCKS
#undef SPOT_BLOCKS

static void L(fold_spots)(const og_cpu_spots *of, og_cpu_fold_kind kind, void *to,
                          const void *const *x, const void *w, int64_t spots)
{
    const int64_t lanes = WIDE_BYTES / sizeof(REAL), n = of->columns;
    const bool four = spots >= OG_CPU_LINES;
    const int which = 2 * L(name_fold)(kind, w) + four;
    L(fold_spot_fn) *const *blocks = L(fold_spots_of)[which + (of->halves ? 8 : 0)];
    /* Weights of some columns stay in the cache. */
    for (int64_t c = 0, some; c < n; c += some * lanes) {
        some = (n - c + lanes - 1) / lanes;
        some = some < MOST_WIDE ? some : MOST_WIDE;
        for (int64_t s = 0; s < spots; s += four ? OG_CPU_LINES : 1) {
            const int64_t spot = four && s > spots - OG_CPU_LINES ? spots - OG_CPU_LINES : s;
            blocks[some - 1](of, (REAL *)to + spot * of->to_step, x + spot * of->x_pitch, w,
                             spot * of->x_step, c);
        }
    }
}

/* ---- turning ------------------------------------------------------------------- */

/* to[i * to_pitch + r] = from[r][i], of as many of both as a vector has. */
OG_INLINE void L(turn_block)(REAL *to, int64_t to_pitch, const void *const *from, int64_t further)
{
    L(wide) a[WIDE_LANES], b[WIDE_LANES];
    UNROLL_WIDE for (int r = 0; r < WIDE_LANES; r++) a[r] =
        *(const L(wide) *)(const void *)((const REAL *)from[r] + further);
    UNROLL_WIDE for (int half = 1; half < WIDE_LANES; half *= 2)
    {
        UNROLL_WIDE for (int r = 0; r < WIDE_LANES / 2; r++)
        {
            const L(wide) p = a[r], q = a[r + WIDE_LANES / 2];
            b[2 * r] = __builtin_shufflevector(p, q, CHOOSE(LOW_, WIDE_LANES));
            b[2 * r + 1] = __builtin_shufflevector(p, q, CHOOSE(HIGH_, WIDE_LANES));
        }
        UNROLL_WIDE for (int r = 0; r < WIDE_LANES; r++) a[r] = b[r];
    }
    UNROLL_WIDE for (int r = 0; r < WIDE_LANES; r++) * (L(wide) *)(void *)(to + r * to_pitch) =
        a[r];
}

static void L(turn)(void *to, const void *const *rows, int64_t n)
{
    const int64_t lanes = WIDE_LANES, turned = OG_CPU_TURNED / sizeof(REAL);
    for (int64_t i = 0; i < n; i += lanes)
        for (int64_t r = 0; r < turned; r += lanes)
            L(turn_block)((REAL *)to + i * turned + r, turned, rows + r, i);
}

static void L(turn_back)(void *const *to, const void *from, int64_t rows, int64_t n,
                         const void *end)
{
    const int64_t lanes = WIDE_LANES, turned = OG_CPU_TURNED / sizeof(REAL);
    for (int64_t i = 0; i < n; i += lanes) {
        const int64_t at = n >= lanes && i > n - lanes ? n - lanes : i;
        for (int64_t r = 0; r < rows; r += lanes) {
            const void *x[WIDE_LANES];
            L(wide) block[WIDE_LANES];
            for (int64_t l = 0; l < lanes; l++)
                x[l] = (const REAL *)from + (at + l) * turned + r;
            L(turn_block)((REAL *)(void *)block, lanes, x, 0);
            for (int64_t l = 0; l < lanes && r + l < rows; l++)
                L(put)((REAL *)to[r + l] + at, block[l], n, end);
        }
    }
}
