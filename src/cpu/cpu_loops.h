/* SPDX-License-Identifier: MIT
 *
 * cpu_loops.h - the loops of one type; included by cpu_kernels_template.c once
 * for float and once for double.
 *
 * PARAMETERS (all undefined at the end)
 *   REAL     float or double
 *   F(name)  name_f32 or name_f64: the functions of src/math
 *   L(name)  name of a loop of this type
 *   LOADS    X(dtype, memory type, conversion to REAL, contiguous copy)
 *   STORES   X(dtype, memory type, conversion from REAL, contiguous copy)
 *   ROUNDS   X(dtype, result type, conversion)
 */

/* ---- maps ------------------------------------------------------------------- */

#define MAP(name, form, R, a_type, b_type, c_type, expression)                                     \
    static void L(name##_##form)(void *dst, const void *a, const void *b, const void *c,           \
                                 const void *constants, int64_t n)                                 \
    {                                                                                              \
        R *r = dst;                                                                                \
        const a_type *x = a;                                                                       \
        const b_type *y = b;                                                                       \
        const c_type *z = c;                                                                       \
        const REAL *k = constants;                                                                 \
        (void)y, (void)z, (void)k;                                                                 \
        expression                                                                                 \
    }

#define MAP_1_0(name) MAP(name, 0, REAL, REAL, REAL, REAL, LOOP(i, n) r[i] = F(og_##name)(x[i]);)
#define MAP_1_1(name)                                                                              \
    MAP(name, 0, REAL, REAL, REAL, REAL, REAL k0 = k[0]; LOOP(i, n) r[i] = F(og_##name)(x[i], k0);)
#define MAP_1_2(name)                                                                              \
    MAP(name, 0, REAL, REAL, REAL, REAL, REAL k0 = k[0]; REAL k1 = k[1];                           \
        LOOP(i, n) r[i] = F(og_##name)(x[i], k0, k1);)
#define MAP_2(name, R)                                                                             \
    MAP(name, 0, R, REAL, REAL, REAL, LOOP(i, n) r[i] = F(og_##name)(x[i], y[i]);)                 \
    MAP(name, 1, R, REAL, REAL, REAL, REAL y0 = y[0]; LOOP(i, n) r[i] = F(og_##name)(x[i], y0);)   \
    MAP(name, 2, R, REAL, REAL, REAL, REAL x0 = x[0]; LOOP(i, n) r[i] = F(og_##name)(x0, y[i]);)
#define MAP_2_0(name) MAP_2(name, REAL)
#define MAP_2_1(name)                                                                              \
    MAP(name, 0, REAL, REAL, REAL, REAL, REAL k0 = k[0];                                           \
        LOOP(i, n) r[i] = F(og_##name)(x[i], y[i], k0);)                                           \
    MAP(name, 1, REAL, REAL, REAL, REAL, REAL k0 = k[0]; REAL y0 = y[0];                           \
        LOOP(i, n) r[i] = F(og_##name)(x[i], y0, k0);)                                             \
    MAP(name, 2, REAL, REAL, REAL, REAL, REAL k0 = k[0]; REAL x0 = x[0];                           \
        LOOP(i, n) r[i] = F(og_##name)(x0, y[i], k0);)

#define SCALAR(name, args, constants, ...) MAP_##args##_##constants(name)
#define MASK(name, ...) MAP_2(name, uint32_t)
#include "formula/functions.def"

MAP(where, 0, REAL, uint32_t, REAL, REAL, LOOP(i, n) r[i] = F(og_where)(x[i], y[i], z[i]);)
MAP(where, 1, REAL, uint32_t, REAL, REAL, REAL z0 = z[0];
    LOOP(i, n) r[i] = F(og_where)(x[i], y[i], z0);)
MAP(where, 2, REAL, uint32_t, REAL, REAL, REAL y0 = y[0];
    LOOP(i, n) r[i] = F(og_where)(x[i], y0, z[i]);)
MAP(where, 3, REAL, uint32_t, REAL, REAL, REAL y0 = y[0]; REAL z0 = z[0];
    LOOP(i, n) r[i] = F(og_where)(x[i], y0, z0);)

#define X(dtype, R, conversion)                                                                    \
    MAP(round_##dtype, 0, R, REAL, REAL, REAL, LOOP(i, n) r[i] = conversion(x[i]);)
ROUNDS
#undef X

/* ---- memory ----------------------------------------------------------------- */

#define X(dtype, memory_type, from, copy)                                                          \
    static void L(load_##dtype)(void *block, const void *memory, int64_t outer_stride,             \
                                int64_t inner_stride, int64_t outer, int64_t inner)                \
    {                                                                                              \
        REAL *dst = block;                                                                         \
        const memory_type *src = memory;                                                           \
        if (inner_stride == 1) {                                                                   \
            for (int64_t o = 0; o < outer; o++)                                                    \
                copy(dst + o * inner, src + o * outer_stride, inner);                              \
        } else if (inner_stride == 0) {                                                            \
            for (int64_t o = 0; o < outer; o++) {                                                  \
                REAL one = from(src[o * outer_stride]);                                            \
                LOOP(i, inner) dst[o * inner + i] = one;                                           \
            }                                                                                      \
        } else if (outer_stride == 1) { /* transposed: read as it lies in memory */                \
            for (int64_t i = 0; i < inner; i++)                                                    \
                LOOP(o, outer) dst[o * inner + i] = from(src[i * inner_stride + o]);               \
        } else {                                                                                   \
            for (int64_t o = 0; o < outer; o++)                                                    \
                LOOP(i, inner)                                                                     \
            dst[o * inner + i] = from(src[o * outer_stride + i * inner_stride]);                   \
        }                                                                                          \
    }
LOADS
#undef X

#define X(dtype, memory_type, to, copy)                                                            \
    static void L(store_##dtype)(const void *block, void *memory, int64_t outer_stride,            \
                                 int64_t inner_stride, int64_t outer, int64_t inner)               \
    {                                                                                              \
        const REAL *src = block;                                                                   \
        memory_type *dst = memory;                                                                 \
        if (inner_stride == 1) {                                                                   \
            for (int64_t o = 0; o < outer; o++)                                                    \
                copy(dst + o * outer_stride, src + o * inner, inner);                              \
        } else if (inner_stride == 2 && dtype == OG_FLOAT32 && sizeof(REAL) == 4) {                \
            for (int64_t o = 0; o < outer; o++)                                                    \
                store_every_second((float *)memory + o * outer_stride,                             \
                                   (const float *)block + o * inner, inner);                       \
        } else if (outer_stride == 1) {                                                            \
            for (int64_t i = 0; i < inner; i++)                                                    \
                LOOP(o, outer) dst[i * inner_stride + o] = to(src[o * inner + i]);                 \
        } else {                                                                                   \
            for (int64_t o = 0; o < outer; o++)                                                    \
                LOOP(i, inner)                                                                     \
            dst[o * outer_stride + i * inner_stride] = to(src[o * inner + i]);                     \
        }                                                                                          \
    }
STORES
#undef X

static void L(splat)(void *dst, const void *x, int64_t n)
{
    REAL *r = dst;
    REAL one = *(const REAL *)x;
    LOOP(i, n) r[i] = one;
}

static void L(repeat)(void *dst, const void *x, int64_t count, int64_t times)
{
    REAL *r = dst;
    const REAL *s = x;
#define REPEAT(fixed)                                                                              \
    case fixed:                                                                                    \
        for (int64_t c = 0; c < count; c++)                                                        \
            LOOP(i, fixed) r[c * fixed + i] = s[c];                                                \
        break;
    switch (times) {
        REPEAT(2)
        REPEAT(3)
        REPEAT(4)
        REPEAT(8) default : for (int64_t c = 0; c < count; c++) LOOP(i, times) r[c * times + i] =
                                s[c];
    }
#undef REPEAT
}

/* ---- reductions ------------------------------------------------------------- */

/* The lowest power of two that holds the lanes of a chunk of n elements: above it
 * all lanes are missing elements. */
static int64_t L(tree_width)(int64_t n)
{
    int64_t width = 1;
    while (width < n && width < OG_LANES)
        width *= 2;
    return width;
}

#define ADD(a, b) ((a) + (b))

#define FOLD(name, OP, NEUTRAL)                                                                    \
    static void L(name##_lanes)(void *lanes, const void *x, int64_t n, bool first)                 \
    {                                                                                              \
        REAL *acc = lanes;                                                                         \
        const REAL *s = x;                                                                         \
        int64_t i = 0;                                                                             \
        if (first && n >= 2 * OG_LANES) {                                                          \
            const REAL *t = s + OG_LANES;                                                          \
            LOOP(l, OG_LANES) acc[l] = OP(s[l], t[l]);                                             \
            i = 2 * OG_LANES;                                                                      \
        } else if (first) {                                                                        \
            i = n < OG_LANES ? n : OG_LANES;                                                       \
            memcpy(acc, s, (size_t)i * sizeof *acc);                                               \
            for (int64_t l = i, width = L(tree_width)(n); l < width; l++)                          \
                acc[l] = (REAL)(NEUTRAL);                                                          \
        }                                                                                          \
        for (; i + OG_LANES <= n; i += OG_LANES) /* one stream: see cpu_kernels_template.c */      \
            for (int64_t group = 0; group < OG_LANES; group += 128) {                              \
                REAL *r = acc + group;                                                             \
                const REAL *a = s + i + group;                                                     \
                LOOP(l, 128) r[l] = OP(r[l], a[l]);                                                \
            }                                                                                      \
        const REAL *rest = s + i;                                                                  \
        int64_t count = n - i;                                                                     \
        LOOP(l, count) acc[l] = OP(acc[l], rest[l]);                                               \
    }                                                                                              \
                                                                                                   \
    static void L(name##_pairs)(void *dst, const void *x, int64_t rows, int64_t n, int64_t half)   \
    {                                                                                              \
        REAL *restrict r = dst;                                                                    \
        const REAL *restrict s = x;                                                                \
        if (n == 2 * half) {                                                                       \
            int64_t count = rows * half;                                                           \
            LOOP(i, count) r[i] = OP(s[2 * i], s[2 * i + 1]);                                      \
            return;                                                                                \
        }                                                                                          \
        for (; rows > 0; rows--, r += half, s += n) {                                              \
            int64_t full = n / 2, i = full;                                                        \
            LOOP(j, full) r[j] = OP(s[2 * j], s[2 * j + 1]);                                       \
            if (n % 2)                                                                             \
                r[i++] = s[n - 1];                                                                 \
            for (; i < half; i++)                                                                  \
                r[i] = (REAL)(NEUTRAL);                                                            \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    static void L(name##_tree)(void *lanes, int64_t n, void *out)                                  \
    {                                                                                              \
        REAL *a = lanes, b[OG_LANES / 2];                                                          \
        int64_t width = L(tree_width)(n);                                                          \
        if (width == OG_LANES) { /* fixed lengths: the loops are unrolled */                       \
            LOOP(i, 256) b[i] = OP(a[2 * i], a[2 * i + 1]);                                        \
            LOOP(i, 128) a[i] = OP(b[2 * i], b[2 * i + 1]);                                        \
            LOOP(i, 64) b[i] = OP(a[2 * i], a[2 * i + 1]);                                         \
            LOOP(i, 32) a[i] = OP(b[2 * i], b[2 * i + 1]);                                         \
            LOOP(i, 16) b[i] = OP(a[2 * i], a[2 * i + 1]);                                         \
            LOOP(i, 8) a[i] = OP(b[2 * i], b[2 * i + 1]);                                          \
            *(REAL *)out =                                                                         \
                OP(OP(OP(a[0], a[1]), OP(a[2], a[3])), OP(OP(a[4], a[5]), OP(a[6], a[7])));        \
            return;                                                                                \
        }                                                                                          \
        for (; width > 1; width /= 2) {                                                            \
            for (int64_t i = 0; i < width / 2; i++)                                                \
                b[i] = OP(a[2 * i], a[2 * i + 1]);                                                 \
            memcpy(a, b, (size_t)(width / 2) * sizeof *a);                                         \
        }                                                                                          \
        *(REAL *)out = a[0];                                                                       \
    }                                                                                              \
                                                                                                   \
    static void L(name##_columns)(void *sums, const void *x, int64_t stride, int64_t steps,        \
                                  int64_t width, bool first)                                       \
    {                                                                                              \
        REAL *acc = sums;                                                                          \
        const REAL *a = x;                                                                         \
        if (first) {                                                                               \
            memcpy(acc, a, (size_t)width * sizeof *acc);                                           \
            a += stride;                                                                           \
            steps--;                                                                               \
        }                                                                                          \
        for (; steps >= 7; steps -= 7, a += 7 * stride) { /* 63 = 9 * 7 follow the first */        \
            const REAL *b = a + stride, *c = b + stride, *d = c + stride, *e = d + stride,         \
                       *f = e + stride, *g = f + stride;                                           \
            LOOP(w, width)                                                                         \
            acc[w] = OP(OP(OP(OP(OP(OP(OP(acc[w], a[w]), b[w]), c[w]), d[w]), e[w]), f[w]), g[w]); \
        }                                                                                          \
        for (; steps > 0; steps--, a += stride)                                                    \
            LOOP(w, width) acc[w] = OP(acc[w], a[w]);                                              \
    }

FOLD(sum, ADD, -0.0)
FOLD(max, F(og_maximum), -INFINITY)
FOLD(min, F(og_minimum), INFINITY)

#include "cpu/cpu_pad_rows.h"
#include "cpu/cpu_window_loops.h"

/* What sumexp subtracts: the greatest element, or 0 if that is infinite. */
static inline __attribute__((always_inline)) REAL L(shift)(REAL m)
{
    return F(og_abs)(m) == (REAL)INFINITY ? (REAL)0 : m;
}

static void L(exp_below)(void *dst, const void *x, const void *m, int64_t n)
{
    REAL *r = dst;
    const REAL *s = x, *t = m;
    LOOP(i, n) r[i] = F(og_exp)(s[i] - L(shift)(t[i]));
}

static void L(exp_lanes)(void *lanes, void *terms, const void *x, const void *m, int64_t n)
{
    REAL *acc = lanes, unkept[OG_LANES], *e = terms ? terms : unkept;
    const REAL *s = x;
    REAL u = L(shift)(*(const REAL *)m);
    int64_t step = terms ? OG_LANES : 0, i = n < OG_LANES ? n : OG_LANES;
    LOOP(l, i) e[l] = F(og_exp)(s[l] - u);
    memcpy(acc, e, (size_t)i * sizeof *acc);
    for (int64_t l = i, width = L(tree_width)(n); l < width; l++)
        acc[l] = (REAL)-0.0;
    for (e += step; i + OG_LANES <= n; i += OG_LANES, e += step) {
        const REAL *a = s + i;
        LOOP(l, OG_LANES)
        {
            e[l] = F(og_exp)(a[l] - u);
            acc[l] += e[l];
        }
    }
    const REAL *rest = s + i;
    int64_t count = n - i;
    LOOP(l, count)
    {
        e[l] = F(og_exp)(rest[l] - u);
        acc[l] += e[l];
    }
}

static void L(exp_columns)(void *sums, const void *x, const void *m, int64_t steps, int64_t width)
{
    REAL *acc = sums;
    const REAL *s = x, *t = m;
    LOOP(w, width) acc[w] = F(og_exp)(s[w] - L(shift)(t[w]));
    for (s += width, steps--; steps > 0; steps--, s += width)
        LOOP(w, width) acc[w] += F(og_exp)(s[w] - L(shift)(t[w]));
}

static void L(exp_scale)(void *sums, const void *m, const void *greatest, bool one, int64_t n)
{
    REAL *s = sums;
    const REAL *t = m, *g = greatest;
    REAL u = L(shift)(g[0]);
    if (one) {
        LOOP(i, n) s[i] *= F(og_exp)(t[i] - u);
    } else {
        LOOP(i, n) s[i] *= F(og_exp)(t[i] - L(shift)(g[i]));
    }
}

static void L(square_lanes)(void *lanes, const void *x, int64_t n, bool first)
{
    REAL *restrict p = lanes, *restrict a = p + OG_LANES, *restrict b = a + OG_LANES;
    const REAL *restrict s = x;
    if (first) {
        memcpy(p, s, (size_t)(n < OG_LANES ? n : OG_LANES) * sizeof *p);
        memset(a, 0, 2 * OG_LANES * sizeof *a);
    }
    for (; n >= 4 * OG_LANES; n -= 4 * OG_LANES, s += 4 * OG_LANES)
        LOOP(l, OG_LANES)
        {
            REAL c = s[l] - p[l], d = s[l + OG_LANES] - p[l];
            REAL e = s[l + 2 * OG_LANES] - p[l], f = s[l + 3 * OG_LANES] - p[l];
            a[l] = (((a[l] + c) + d) + e) + f;
            b[l] = (((b[l] + c * c) + d * d) + e * e) + f * f;
        }
    for (; n > 0; n -= OG_LANES, s += OG_LANES) {
        int64_t count = n < OG_LANES ? n : OG_LANES;
        LOOP(l, count)
        {
            REAL d = s[l] - p[l];
            a[l] += d;
            b[l] += d * d;
        }
    }
}

/* Lanes [0, lanes), which have k elements each. */
static void L(settle_some)(REAL *restrict p, REAL mean, int64_t lanes, int64_t k)
{
    const REAL *restrict a = p + OG_LANES, *restrict b = a + OG_LANES;
    const REAL count = (REAL)k;
    LOOP(l, lanes)
    {
        REAL u = a[l] / count, v = b[l] - a[l] * u, e = (p[l] - mean) + u;
        REAL w = v < (REAL)0 ? (REAL)0 : v;
        p[l] = (w == w ? w : b[l]) + (count * e) * e;
    }
}

static void L(square_settle)(void *lanes, const void *sum, int64_t n)
{
    REAL *p = lanes, mean = *(const REAL *)sum / (REAL)n;
    int64_t more = n % OG_LANES, k = n / OG_LANES;
    L(settle_some)(p, mean, more, k + 1);
    if (k > 0)
        L(settle_some)(p + more, mean, OG_LANES - more, k);
    for (int64_t l = n, width = L(tree_width)(n); l < width; l++)
        p[l] = (REAL)-0.0;
}

static void L(square_shift)(void *t, const void *sums, const void *sum, int64_t n)
{
    REAL *r = t, mean = *(const REAL *)sum / (REAL)n;
    const REAL *s = sums;
    for (int64_t c = 0; n > 0; c++, n -= OG_CHUNK) {
        REAL count = (REAL)(n < OG_CHUNK ? n : OG_CHUNK), e = s[c] / count - mean;
        r[c] += (count * e) * e;
    }
}

/* ---- the table -------------------------------------------------------------- */

#define ROW_1_0(name) [OG_OP_##name] = {L(name##_0)},
#define ROW_1_1(name) [OG_OP_##name] = {L(name##_0)},
#define ROW_1_2(name) [OG_OP_##name] = {L(name##_0)},
#define ROW_2_0(name) [OG_OP_##name] = {L(name##_0), L(name##_1), L(name##_2)},
#define ROW_2_1(name) ROW_2_0(name)
#define FOLD_ROW(name, neutral, empty)                                                             \
    {                                                                                              \
        neutral, empty, L(name##_lanes), L(name##_tree), L(name##_pairs), L(name##_columns)        \
    }

static const og_cpu_loops L(loops) = {
    .map =
        {
#define SCALAR(name, args, constants, ...) ROW_##args##_##constants(name)
#define MASK(name, ...) ROW_2_0(name)
#include "formula/functions.def"
            [OG_OP_where] = {L(where_0), L(where_1), L(where_2), L(where_3)},
        },
#define X(dtype, R, conversion) [dtype] = L(round_##dtype##_0),
    .round = {ROUNDS},
#undef X
#define X(dtype, memory_type, from, copy) [dtype] = L(load_##dtype),
    .load = {LOADS},
#undef X
#define X(dtype, memory_type, to, copy) [dtype] = L(store_##dtype),
    .store = {STORES},
#undef X
    .splat = L(splat),
    .repeat = L(repeat),
    .fold = {FOLD_ROW(sum, -0.0, 0.0), FOLD_ROW(max, -INFINITY, -INFINITY),
             FOLD_ROW(min, INFINITY, INFINITY)},
    .pad_rows = L(pad_rows),
    .fold_lines = L(fold_lines),
    .fold_spots = L(fold_spots),
    .turn = L(turn),
    .turn_back = L(turn_back),
    .exp_below = L(exp_below),
    .exp_lanes = L(exp_lanes),
    .exp_columns = L(exp_columns),
    .exp_scale = L(exp_scale),
    .square_lanes = L(square_lanes),
    .square_settle = L(square_settle),
    .square_shift = L(square_shift),
};

#undef MAP
#undef MAP_1_0
#undef MAP_1_1
#undef MAP_1_2
#undef MAP_2
#undef MAP_2_0
#undef ADD
#undef FOLD
#undef ROW_1_0
#undef ROW_1_1
#undef ROW_1_2
#undef ROW_2_0
#undef FOLD_ROW
#undef REAL
#undef BITS
#undef WIDE_HALVES
#undef WIDE_LANES
#undef F
#undef L
#undef LOADS
#undef STORES
#undef ROUNDS
