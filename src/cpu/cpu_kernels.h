/* SPDX-License-Identifier: MIT
 *
 * cpu_kernels.h - the vectorised loops, as a table of pointers: one table per CPU
 * level, all compiled from cpu_kernels_template.c. Everything else in this folder
 * is compiled once and does no arithmetic on elements.
 *
 * Loops over "blocks": n elements next to each other. A destination may be the
 * very same block as a source of the same element size, never overlap it partly.
 */
#ifndef OG_CPU_KERNELS_H
#define OG_CPU_KERNELS_H

#include "cpu/cpu_levels.h"
#include "cpu/cpu_product.h"
#include "formula/functions.h"

/* Which arguments of a map are one element instead of a block. Bit 0: the last;
 * bit 1: the one before it. (The mask of where is always a block.) */
enum { OG_CPU_FORMS = 4 };

/* dst[i] = f(a[i], b[i], c[i], constants). Arguments that f lacks are NULL; the
 * constants are of f's own type. */
typedef void (*og_cpu_map)(void *dst, const void *a, const void *b, const void *c,
                           const void *constants, int64_t n);

/* A block of outer x inner elements from (to) strided memory; strides in elements. */
typedef void (*og_cpu_load)(void *block, const void *memory, int64_t outer_stride,
                            int64_t inner_stride, int64_t outer, int64_t inner);
typedef void (*og_cpu_store)(const void *block, void *memory, int64_t outer_stride,
                             int64_t inner_stride, int64_t outer, int64_t inner);

/* The orders of plan.h, for + and for og_maximum and og_minimum in its place.
 * "first": the accumulator is undefined and starts with the first element. */
typedef struct {
    double neutral; /* a missing element */
    double empty;   /* the result of no elements */
    /* lanes[OG_LANES] (+)= a piece of a chunk that starts at a multiple of OG_LANES. */
    void (*lanes)(void *lanes, const void *x, int64_t n, bool first);
    /* *out = the tree over the lanes of a chunk of n elements. Destroys lanes. */
    void (*tree)(void *lanes, int64_t n, void *out);
    /* The tree's lowest level for rows x n elements: rows x half neighbours meet,
     * half a power of two, n <= 2 * half; dst and x are apart. */
    void (*pairs)(void *dst, const void *x, int64_t rows, int64_t n, int64_t half);
    /* acc[width] (+)= `steps` blocks of width, one after the other. */
    void (*columns)(void *acc, const void *x, int64_t stride, int64_t steps, int64_t width,
                    bool first);
} og_cpu_fold;

typedef enum { OG_CPU_SUM, OG_CPU_MAX, OG_CPU_MIN, OG_CPU_FOLDS } og_cpu_fold_kind;

/* Of so many lines sums are made at a time, or of one. */
enum { OG_CPU_LINES = 4 };

/* Rows of an image become rows of `length` elements in arrays, of every step-th element each:
 * element i of array a is at place first + a + i * step of its row, those below 0 and from extent
 * on being fill. Pitches are in elements. `to` may be written to for a vector more. */
typedef struct {
    void *to;
    int64_t row_pitch, array_pitch;
    const void *from; /* place 0 of the first row */
    int64_t from_pitch, rows, first, extent, step, arrays, length;
    const void *fill;
} og_cpu_padding;

/* A row of taps that lines [first, last] have. */
typedef struct {
    int64_t x;     /* elements, from the first line's x on */
    int32_t w;     /* the first weight of line `first` */
    int32_t lines; /* first * OG_CPU_LINES + last */
} og_cpu_line_step;

/* Folds over windows: each line folds the taps of its steps, in their order. */
typedef struct {
    const og_cpu_line_step *steps[2]; /* of one line, and of OG_CPU_LINES */
    int64_t step_count[2];
    const int64_t *shift; /* elements, of a row's taps */
    int64_t row_taps;
    bool is_three;  /* three rows of three taps, and lines a row apart */
    int64_t back;   /* weights that a step's next line is before */
    int64_t x_line; /* elements from a line's x to that of the next */
} og_cpu_lines;

enum { OG_CPU_TURNED = 64 }; /* bytes: the widest vector */

/* Columns that stand side by side, at spots; each folds what taps see there. */
typedef struct {
    int64_t taps, columns;
    bool halves;             /* x is of bfloat16 */
    int64_t x_step, x_pitch; /* a spot sees elements so far behind those of the one before, or of a
                              * list of its own, so many behind; the other is 0 */
    int64_t to_step;         /* elements from a spot to the next */
    int64_t w_pitch;         /* from a tap's weights to the next one's */
    const void *end;         /* of fewer columns than a vector: what may be written up to */
} og_cpu_spots;

/* Loops of one type. Below u(m) is 0 where m is infinite, else m. */
typedef struct {
    og_cpu_map map[OG_FUNCTION_COUNT][OG_CPU_FORMS]; /* SCALAR and MASK rows, where */
    og_cpu_map round[OG_DTYPE_COUNT]; /* to a dtype; float64 gives float64, others float32 */
    og_cpu_load load[OG_DTYPE_COUNT]; /* into this type */
    og_cpu_store store[OG_DTYPE_COUNT];
    void (*splat)(void *dst, const void *x, int64_t n);
    /* Each of count elements, times times. */
    void (*repeat)(void *dst, const void *x, int64_t count, int64_t times);
    og_cpu_fold fold[OG_CPU_FOLDS];
    void (*pad_rows)(const og_cpu_padding *p);
    /* `lines` lines of n results, one behind the other; w: NULL for what is not weighed. x may
     * be read from where a line's taps begin on for a vector. */
    void (*fold_lines)(const og_cpu_lines *of, og_cpu_fold_kind fold, void *to, const void *x,
                       const void *w, int64_t lines, int64_t n);
    /* Columns of spots; x: of each tap, where the first spot sees it. w likewise, and x may be
     * read for a vector from there on. */
    void (*fold_spots)(const og_cpu_spots *of, og_cpu_fold_kind fold, void *to,
                       const void *const *x, const void *w, int64_t spots);
    /* Elements of OG_CPU_TURNED bytes of rows become so many columns: to[i][r] = rows[r][i]. n is
     * rounded up to whole vectors, of what is read and of what is written. */
    void (*turn)(void *to, const void *const *rows, int64_t n);
    /* The reverse, of the first `rows` rows: to[r][i] = from[i][r]. Where n is less than a vector, and
     * rows are one behind the other, elements up to end may be written that come later. */
    void (*turn_back)(void *const *to, const void *from, int64_t rows, int64_t n, const void *end);
    /* dst = exp(x - u(m)), blocks. */
    void (*exp_below)(void *dst, const void *x, const void *m, int64_t n);
    /* lanes[OG_LANES] = exp(x - u(*m)) of a chunk, as lanes above; the terms go to
     * terms[n] too, unless that is NULL. */
    void (*exp_lanes)(void *lanes, void *terms, const void *x, const void *m, int64_t n);
    /* acc[width] = sum over steps of exp(x - u(m[width])). */
    void (*exp_columns)(void *acc, const void *x, const void *m, int64_t steps, int64_t width);
    /* s *= exp(m - u(greatest)); greatest is one element or a block. */
    void (*exp_scale)(void *s, const void *m, const void *greatest, bool one, int64_t n);
    /* sqdev of plan.h. lanes[3][OG_LANES]: p, a and b of a chunk's lanes, as n elements more leave
     * them; first: they are its first. */
    void (*square_lanes)(void *lanes, const void *x, int64_t n, bool first);
    /* lanes[OG_LANES] = their results in a chunk of n elements with that sum, as lanes above. */
    void (*square_settle)(void *lanes, const void *sum, int64_t n);
    /* t[c] += what the mean of chunk c, whose sum is sums[c], is away from that of the row of n. */
    void (*square_shift)(void *t, const void *sums, const void *sum, int64_t n);
} og_cpu_loops;

struct og_cpu_kernels {
    const og_cpu_loops *f32, *f64;
    const og_cpu_product_kernels *product;
};

#endif
