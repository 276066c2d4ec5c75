/* SPDX-License-Identifier: MIT
 *
 * cpu_pad_rows.h - rows of an image as rows of arrays (og_cpu_padding); included by cpu_loops.h
 * once for float and once for double.
 *
 * PARAMETERS
 *   REAL         float or double
 *   L(name)      name of a function of this type
 *   WIDE_BYTES   of a vector: 16, 32 or 64, as a number that the preprocessor knows
 *   WIDE_LANES   REALs in it, likewise
 */
#ifndef OG_CPU_PAD_ROWS_H
#define OG_CPU_PAD_ROWS_H
#define OG_INLINE static inline __attribute__((always_inline))
/* Every second of two vectors' elements. */
#define EVEN_2 0, 2
#define EVEN_4 EVEN_2, 4, 6
#define EVEN_8 EVEN_4, 8, 10, 12, 14
#define EVEN_16 EVEN_8, 16, 18, 20, 22, 24, 26, 28, 30
#define ODD_2 1, 3
#define ODD_4 ODD_2, 5, 7
#define ODD_8 ODD_4, 9, 11, 13, 15
#define ODD_16 ODD_8, 17, 19, 21, 23, 25, 27, 29, 31
#define CHOOSE_(list, lanes) list##lanes
#define CHOOSE(list, lanes) CHOOSE_(list, lanes)
#endif

typedef REAL L(wide) __attribute__((vector_size(WIDE_BYTES), aligned(sizeof(REAL)), may_alias));

/* to[i] = from[i]. */
OG_INLINE void L(pad_run)(REAL *to, const REAL *from, int64_t n)
{
    const int64_t lanes = WIDE_BYTES / sizeof(REAL), bytes = n * (int64_t)sizeof(REAL);
    for (int64_t i = 0; n >= lanes && i < n; i += lanes) {
        const int64_t at = i < n - lanes ? i : n - lanes;
        *(L(wide) *)(void *)(to + at) = *(const L(wide) *)(const void *)(from + at);
    }
    if (n >= lanes)
        return;
    if (bytes >= 32) { /* two that may overlap */
        memcpy(to, from, 32);
        memcpy((char *)to + bytes - 32, (const char *)from + bytes - 32, 32);
    } else if (bytes >= 16) {
        memcpy(to, from, 16);
        memcpy((char *)to + bytes - 16, (const char *)from + bytes - 16, 16);
    } else {
        for (int64_t i = 0; i < n; i++)
            to[i] = from[i];
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
        *(L(wide) *)(void *)(even + at) = __builtin_shufflevector(a, b, CHOOSE(EVEN_, WIDE_LANES));
        *(L(wide) *)(void *)(odd + at) = __builtin_shufflevector(a, b, CHOOSE(ODD_, WIDE_LANES));
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

/* At least n elements, and whole vectors. */
OG_INLINE void L(fill_run)(REAL *to, const L(wide) fill, int64_t n)
{
    for (int64_t i = 0; i < n; i += WIDE_BYTES / (int64_t)sizeof(REAL))
        *(L(wide) *)(void *)(to + i) = fill;
}

/* A row in two arrays, elements [begin, end) of which are there in both: of one array one more may be,
 * and what is beyond an array's end is overwritten by the next one. */
OG_INLINE void L(pad_pairs)(const og_cpu_padding *p, const REAL *from, int64_t begin, int64_t end,
                            const L(wide) fill, REAL *to)
{
    const int64_t length = p->length, inside = p->extent - p->first;
    REAL *odd = to + p->array_pitch;
    L(fill_run)(to + end, fill, length - end);
    L(fill_run)(to, fill, begin);
    L(fill_run)(odd + end, fill, length - end);
    L(fill_run)(odd, fill, begin);
    L(deal_pairs)(to + begin, odd + begin, from + 2 * begin, end - begin);
    if (p->extent > 0 && p->first < 0 && p->first % 2 && (1 - p->first) / 2 <= length)
        odd[(1 - p->first) / 2 - 1] = from[-p->first];
    if (p->extent > 0 && inside > 0 && inside % 2 && inside / 2 < length)
        to[inside / 2] = from[inside - 1];
}

static void L(pad_rows)(const og_cpu_padding *p)
{
    const int64_t step = p->step, length = p->length, before = p->first < 0 ? -p->first : 0;
    const bool pairs = step == 2 && p->arrays == 2;
    const L(wide) fill = *(const REAL *)p->fill - (L(wide)){0};
    /* Elements [begin, end) of all arrays are there. */
    int64_t begin = (before + step - 1) / step, end = (p->extent - p->first - p->arrays) / step + 1;
    begin = begin < length ? begin : length;
    end = p->extent - p->first < p->arrays ? begin : end < length ? end : length;
    end = end < begin ? begin : end;
    for (int64_t row = 0; row < p->rows; row++) {
        const REAL *from = (const REAL *)p->from + row * p->from_pitch + p->first;
        REAL *to = (REAL *)p->to + row * p->row_pitch;
        if (step == 1) { /* what is beyond a row's end is overwritten by the next one */
            L(fill_run)(to, fill, begin);
            L(pad_run)(to + begin, from + begin, end - begin);
            L(fill_run)(to + end, fill, length - end);
            continue;
        }
        if (pairs) {
            L(pad_pairs)(p, from, begin, end, fill, to);
            continue;
        }
        for (int64_t a = 0; a < p->arrays; a++, to += p->array_pitch) {
            L(pad_ends)(p, from, a, begin, end, to);
            L(pad_ends)(p, from, a, 0, begin, to);
            L(pad_ends)(p, from, a, end, length, to);
        }
    }
}
