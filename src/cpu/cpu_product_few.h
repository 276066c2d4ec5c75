/* SPDX-License-Identifier: MIT
 *
 * cpu_product_few.h - products of few rows, of one type: right is read as it lies in
 * memory, once for all of them. Included by cpu_product_template.c after
 * cpu_product_core.h, with its parameters and these (all undefined at the end):
 *
 *   FMA_ONE(a, b, c)    a * b + c, of elements
 * and functions:
 *   P(load_element)(dtype, from, index)         as REAL
 *   P(turn)(dtype, rows, element, t)            t[j][i] = element + j of rows[i],
 *       count_turned(dtype) of them
 */

/* LANES columns, all of k: right changes sides in registers and is used at once. */
OG_FN void P(multiply_direct)(const og_dtype dtype, const int rows, int64_t k,
                           const REAL *const left[DIRECT_ROWS], const char *const right[LANES],
                           REAL *c, int64_t stride)
{
    VECTOR groups[DIRECT_ROWS] = {{0}}, blocks[DIRECT_ROWS] = {{0}}, sum[DIRECT_ROWS];
    bool long_rows = k * bytes_of(dtype) >= 4 * AHEAD;
    for (int64_t k0 = 0; k0 < k; k0 += OG_PRODUCT_BLOCK) {
        int64_t at = k0, end = og_min(k, k0 + OG_PRODUCT_BLOCK);
        UNROLL for (int i = 0; i < rows; i++) sum[i] = SPLAT(0);
        for (; at + count_turned(dtype) <= end; at += count_turned(dtype)) {
            VECTOR t[2 * LANES];
            P(turn)(dtype, right, at, t);
            for (int u = 0; u < LANES && long_rows; u++)
                __builtin_prefetch(right[u] + at * bytes_of(dtype) + AHEAD, 0, 2);
            UNROLL for (int u = 0; u < count_turned(dtype); u++)
                UNROLL for (int i = 0; i < rows; i++) sum[i] =
                    FMA(SPLAT(left[i][at + u]), t[u], sum[i]);
        }
        for (; at < end; at++) {
            VECTOR t = {0}; /* gcc 12 with -fsanitize=thread does not see that all is set */
            for (int i = 0; i < LANES; i++)
                t[i] = P(load_element)(dtype, right[i], at);
            UNROLL for (int i = 0; i < rows; i++) sum[i] =
                FMA(SPLAT(left[i][at]), t, sum[i]);
        }
        bool first = k0 % OG_PRODUCT_GROUP == 0;
        if (first && k0)
            UNROLL for (int i = 0; i < rows; i++) groups[i] =
                k0 == OG_PRODUCT_GROUP ? blocks[i] : groups[i] + blocks[i];
        UNROLL for (int i = 0; i < rows; i++) blocks[i] = first ? sum[i] : blocks[i] + sum[i];
    }
    UNROLL for (int i = 0; i < rows; i++) * (MEMORY *)(c + i * stride) =
        k > OG_PRODUCT_GROUP ? groups[i] + blocks[i] : blocks[i];
}

typedef void P(multiply_direct_fn)(int64_t k, const REAL *const left[DIRECT_ROWS],
                                   const char *const right[LANES], REAL *c, int64_t stride);

#define DEFINE(rows, dtype)                                                                        \
    static void P(multiply_direct_##rows##_##dtype)(                                               \
        int64_t k, const REAL *const left[DIRECT_ROWS], const char *const right[LANES], REAL *c,   \
        int64_t stride)                                                                            \
    {                                                                                              \
        P(multiply_direct)(dtype, rows, k, left, right, c, stride);                                \
    }
#define X(rows, one) DTYPES(DEFINE, rows)
DIRECT_KERNELS(X)
#undef X
#undef DEFINE

#define ENTER(rows, dtype) [rows][dtype] = P(multiply_direct_##rows##_##dtype),
#define X(rows, one) DTYPES(ENTER, rows)
static P(multiply_direct_fn) *const P(direct_kernels)[DIRECT_ROWS + 1][OG_DTYPE_COUNT] = {
    DIRECT_KERNELS(X)};
#undef X
#undef ENTER

/* Columns next to each other in memory, one block of k: nothing changes sides. The
 * columns to the right of these are next: they are fetched. */
OG_FN void P(multiply_across)(const og_dtype dtype, const int rows, const int vectors, int64_t count,
                           const REAL *const *left, const char *right, int64_t step, REAL *c,
                           int64_t stride, bool first)
{
    VECTOR sum[ACROSS_ROWS][ACROSS_VECTORS];
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < vectors; j++) sum[i][j] =
        SPLAT(0);
    const int bytes = LANES * (int)bytes_of(dtype);
    for (int64_t k = 0; k < count; k++, right += step) {
        VECTOR t[ACROSS_VECTORS];
        UNROLL for (int j = 0; j < vectors; j++) t[j] = P(load_vector)(dtype, right + j * bytes);
        UNROLL for (int at = 0; at < vectors * bytes; at += LINE)
            __builtin_prefetch(right + vectors * bytes + at, 0, 2);
        UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < vectors; j++) sum[i][j] =
            FMA(SPLAT(left[i][k]), t[j], sum[i][j]);
    }
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < vectors; j++)
    {
        MEMORY *to = (MEMORY *)(c + i * stride + j * LANES);
        if (!first)
            sum[i][j] = *to + sum[i][j];
        *to = sum[i][j];
    }
}

/* One column, which has too few neighbours for a vector. */
OG_FN void P(multiply_column)(const og_dtype dtype, int64_t rows, int64_t count,
                           const REAL *const *left, const char *right, int64_t step, REAL *c,
                           int64_t stride, bool first)
{
    for (int64_t i = 0; i < rows; i++) {
        REAL sum = 0;
        for (int64_t k = 0; k < count; k++)
            sum = FMA_ONE(left[i][k], P(load_element)(dtype, right + k * step, 0), sum);
        c[i * stride] = first ? sum : c[i * stride] + sum;
    }
}

/* One block of k of rows <= ACROSS_ROWS and columns next to each other. */
OG_FN void P(run_across_block)(const og_dtype dtype, int64_t rows, int64_t columns, int64_t count,
                            const REAL *const *left, const char *right, int64_t step, REAL *c,
                            int64_t stride, bool first)
{
    int64_t bytes = bytes_of(dtype), n = 0, wide = 4 * LANES;
    for (; rows == 1 && n + ACROSS_VECTORS * LANES <= columns; n += ACROSS_VECTORS * LANES)
        P(multiply_across)(dtype, 1, ACROSS_VECTORS, count, left, right + n * bytes, step, c + n,
                        stride, first);
    for (; n + wide <= columns; n += wide)
        switch (rows) {
#define X(r, one)                                                                                  \
    case r:                                                                                        \
        P(multiply_across)(dtype, r, 4, count, left, right + n * bytes, step, c + n, stride, first);  \
        break;
            ACROSS_KERNELS(X)
#undef X
        }
    for (; n + LANES <= columns; n += LANES)
        for (int64_t i = 0; i < rows; i++)
            P(multiply_across)(dtype, 1, 1, count, left + i, right + n * bytes, step,
                            c + i * stride + n, stride, first);
    for (; n < columns; n++)
        P(multiply_column)(dtype, rows, count, left, right + n * bytes, step, c + n, stride, first);
}

/* One block of k, of columns that are neighbours in memory: onto c. */
static void P(run_across)(const og_cpu_tiling *t, const REAL *const *left,
                          const og_cpu_factor *right, int64_t k0, int64_t count, int64_t rows,
                          int64_t n0, int64_t columns, REAL *c)
{
    int64_t step = right->k_stride * bytes_of(right->dtype);
    const char *from = find_row(right->dtype, right, n0, k0);
    for (int64_t i = 0; i < rows; i += ACROSS_ROWS) {
        int64_t some = og_min(rows - i, ACROSS_ROWS);
        REAL *to = c + i * t->tile_n;
        switch (right->dtype) {
#define X(none, dtype)                                                                             \
    case dtype:                                                                                    \
        P(run_across_block)(dtype, some, columns, count, left + i, from, step, to, t->tile_n,      \
                            k0 % OG_PRODUCT_GROUP == 0);                                           \
        break;
            DTYPES(X, none)
#undef X
        default:
            break;
        }
    }
}

/* count k from k0 on, of columns whose k are neighbours: to c, whose rows are stride apart. */
static void P(run_turned)(const REAL *const *left, const og_cpu_factor *right, int64_t k0,
                          int64_t count, int64_t rows, int64_t n, int64_t columns, REAL *c,
                          int64_t stride)
{
    const char *from[LANES];
    for (int64_t i = 0; i < LANES; i++)
        from[i] = find_row(right->dtype, right, n + og_min(i, columns - 1), k0);
    P(direct_kernels)[rows][right->dtype](count, left, from, c, stride);
}

static const REAL *P(find_plain)(const og_cpu_factor *left, int64_t row, int64_t k)
{
    return (const REAL *)left->data + row * left->stride + k;
}

/* Block by block: left is converted as far as it is needed. */
static void P(run_blocks)(const og_cpu_tiling *t, const og_cpu_factors *factors, int64_t m0,
                          int64_t rows, int64_t n0, int64_t columns, REAL *c, REAL *groups,
                          REAL *copy)
{
    const og_cpu_factor *left = &factors->left, *right = &factors->right;
    const REAL *from[DIRECT_ROWS];
    REAL *sums = copy + t->tile_m * OG_PRODUCT_BLOCK; /* of a block, rows x LANES */
    for (int64_t k0 = 0; k0 < t->k; k0 += OG_PRODUCT_BLOCK) {
        int64_t count = og_min(OG_PRODUCT_BLOCK, t->k - k0);
        bool first = k0 % OG_PRODUCT_GROUP == 0;
        if (first && k0)
            P(close_group)(c, groups, rows * t->tile_n, k0 == OG_PRODUCT_GROUP);
        for (int64_t i = 0; i < rows; i++) {
            from[i] = is_plain(left) ? P(find_plain)(left, m0 + i, k0) : copy + i * OG_PRODUCT_BLOCK;
            if (!is_plain(left))
                P(copy_panel)(left, m0 + i, 1, 1, k0, count, copy + i * OG_PRODUCT_BLOCK);
        }
        if (right->k_stride != 1) {
            P(run_across)(t, from, right, k0, count, rows, n0, columns, c);
            continue;
        }
        for (int64_t n = 0; n < columns; n += LANES) {
            P(run_turned)(from, right, k0, count, rows, n0 + n, columns - n, sums, LANES);
            for (int64_t i = 0; i < rows; i++) {
                MEMORY *to = (MEMORY *)(c + i * t->tile_n + n);
                VECTOR sum = *(const MEMORY *)(sums + i * LANES);
                if (!first)
                    sum = *to + sum;
                *to = sum;
            }
        }
    }
    for (int64_t i = 0; t->k > OG_PRODUCT_GROUP && i < rows * t->tile_n; i++)
        c[i] = groups[i] + c[i];
}

static void P(run_direct)(const og_cpu_tiling *t, const og_cpu_factors *factors, int64_t m0,
                          int64_t rows, int64_t n0, int64_t columns, REAL *c, REAL *work)
{
    const og_cpu_factor *left = &factors->left, *right = &factors->right;
    const REAL *from[DIRECT_ROWS];
    REAL *groups = work, *copy = work + (t->k > OG_PRODUCT_GROUP ? t->tile_m * t->tile_n : 0);
    if (right->k_stride != 1 || !(is_plain(left) || copies_rows(t))) {
        P(run_blocks)(t, factors, m0, rows, n0, columns, c, groups, copy);
        return;
    }
    for (int64_t i = 0; i < rows; i++, copy += t->k) {
        from[i] = is_plain(left) ? P(find_plain)(left, m0 + i, 0) : copy;
        for (int64_t k = 0; !is_plain(left) && k < t->k; k += OG_PRODUCT_BLOCK)
            P(copy_panel)(left, m0 + i, 1, 1, k, og_min(OG_PRODUCT_BLOCK, t->k - k), copy + k);
    }
    for (int64_t n = 0; n < columns; n += LANES)
        P(run_turned)(from, right, 0, t->k, rows, n0 + n, columns - n, c + n, t->tile_n);
}

#undef REAL
#undef VECTOR
#undef MEMORY
#undef LANES
#undef PANEL
#undef VECTORS
#undef KERNELS
#undef FMA
#undef FMA_ONE
#undef SPLAT
#undef DTYPES
#undef TRANSPOSE
#undef UNALIGNED
#undef P
