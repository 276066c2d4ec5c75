/* SPDX-License-Identifier: MIT
 *
 * cpu_product_core.h - the blocked product of one type; included by
 * cpu_product_template.c once for float and once for double.
 *
 * A tile, outside in:
 *   block of k
 *    slab of right    packed, or packed beforehand: slivers of SLIVER columns, [k][SLIVER] each
 *     panel of left   at most PANEL rows, copied to [row][LEFT_STRIDE]
 *      sliver         micro-kernel: panel x sliver sums in registers, all of the block
 * Panel and sliver fit the L1 cache, slab and tile the L2 cache.
 *
 * PARAMETERS (cpu_product_few.h undefines them)
 *   REAL                float or double
 *   VECTOR, MEMORY      a vector of LANES of them; the same in memory
 *   LANES
 *   PANEL, VECTORS      rows and vectors of sums in registers
 *   KERNELS(X)          X(rows, vectors) for all rows <= PANEL, vectors <= VECTORS
 *   FMA(a, b, c)        a * b + c, of vectors
 *   SPLAT(x)            a vector of x
 *   DTYPES(X, a)        X(a, dtype) for all dtypes that are computed in this type
 *   P(name)             name of a function of this type
 * and functions:
 *   P(load_vector)(dtype, from)                         LANES neighbours
 *   P(copy_panel)(left, m0, rows, limit, k0, count, to) to[row][LEFT_STRIDE]; left has
 *       limit rows from m0 on, of which more than rows may be read
 *   P(pack_sliver)(right, n0, columns, k0, count, to)   to[k][SLIVER]; columns past the
 *       last, up to a whole vector, hold anything that may be multiplied
 */

/* Sums of rows x vectors over count k, to (first) or onto c. b: [k][SLIVER] of dtype. ahead:
 * memory that will be packed or used next; a row of it, of a block of REALs, is fetched with
 * every 8 k. */
static inline __attribute__((always_inline)) void
P(multiply)(const og_dtype dtype, const int rows, const int vectors, int64_t count,
            const REAL *restrict a, const char *restrict b, REAL *restrict c, int64_t stride,
            bool first, const char *ahead, int64_t ahead_stride)
{
    const int64_t bytes = bytes_of(dtype), step = VECTORS * LANES * bytes;
    VECTOR sum[PANEL][VECTORS];
    UNROLL for (int i = 0; i < rows; i++)
        UNROLL for (int j = 0; j < vectors; j++) sum[i][j] = SPLAT(0);
    int64_t k = 0;
#define STEP(u)                                                                                    \
    do {                                                                                           \
        VECTOR right[VECTORS];                                                                     \
        UNROLL for (int j = 0; j < vectors; j++) right[j] =                                        \
            P(load_vector)(dtype, b + (u) * step + j * LANES * bytes);                             \
        UNROLL for (int i = 0; i < rows; i++)                                                      \
        {                                                                                          \
            VECTOR left = SPLAT(a[(u) + i * LEFT_STRIDE]);                                         \
            UNROLL for (int j = 0; j < vectors; j++) sum[i][j] = FMA(left, right[j], sum[i][j]);   \
        }                                                                                          \
    } while (0)
    for (; k + 8 <= count; k += 8, a += 8, b += 8 * step, ahead += ahead_stride) {
        UNROLL_STEPS for (int u = 0; u < 8; u++)
        {
            STEP(u);
            __builtin_prefetch(ahead + u * 128, 0, 2);
            __builtin_prefetch(ahead + u * 128 + 64, 0, 2);
        }
    }
    for (; k < count; k++, a++, b += step)
        STEP(0);
#undef STEP
    UNROLL for (int i = 0; i < rows; i++)
        UNROLL for (int j = 0; j < vectors; j++)
        {
            MEMORY *to = (MEMORY *)(c + i * stride + j * LANES);
            if (!first)
                sum[i][j] = *to + sum[i][j];
            *to = sum[i][j];
        }
}

typedef void P(multiply_fn)(og_dtype dtype, int64_t count, const REAL *a, const char *b, REAL *c,
                            int64_t stride, bool first, const char *ahead, int64_t ahead_stride);

/* Halves: whole slivers only, for the sake of the code's size. */
#define CASE(none, dtype)                                                                          \
    case dtype:                                                                                    \
        if (bytes_of(dtype) == sizeof(REAL) || v == VECTORS)                                       \
            P(multiply)(dtype, m, v, count, a, b, c, stride, first, ahead, ahead_stride);          \
        break;
#define X(rows, vectors)                                                                           \
    static void P(multiply_##rows##_##vectors)(                                                    \
        og_dtype of, int64_t count, const REAL *a, const char *b, REAL *c, int64_t stride,         \
        bool first, const char *ahead, int64_t ahead_stride)                                       \
    {                                                                                              \
        const int m = rows, v = vectors;                                                           \
        switch (of) {                                                                              \
            DTYPES(CASE, none)                                                                     \
        default:                                                                                   \
            break;                                                                                 \
        }                                                                                          \
    }
KERNELS(X)
#undef X
#undef CASE

#define X(rows, vectors) [rows][vectors] = P(multiply_##rows##_##vectors),
static P(multiply_fn) *const P(kernels)[PANEL + 1][VECTORS + 1] = {KERNELS(X)};
#undef X

/* A group of blocks is complete: onto the sums of the groups before it. */
static void P(close_group)(const REAL *restrict c, REAL *restrict groups, int64_t count, bool first)
{
    for (int64_t i = 0; i < count; i++)
        groups[i] = first ? c[i] : groups[i] + c[i];
}

/* Panel i of rows that are cut evenly, so that none is left nearly empty. */
static inline int64_t P(panel_at)(int64_t rows, int64_t panels, int64_t i)
{
    return i * (rows / panels) + og_min(i, rows % panels);
}

typedef struct {
    const og_cpu_tiling *tiling;
    const og_cpu_factor *left, *right;
    bool prepacked;
    int64_t m0, rows, n0, columns;
    REAL *c, *groups, *slab, *panel;
} P(tile_job);

/* Slivers of a block of k. */
typedef struct {
    const char *data;
    og_dtype dtype;
    int64_t step; /* bytes of a column, from one sliver to the next */
} P(slab);

/* Block k0 of columns from n (of the tile) on: packed now, or where they lie if they were
 * packed before. Halves are converted as they are used by a single panel, else now. */
static P(slab) P(find_slab)(const P(tile_job) * j, int64_t k0, int64_t count, int64_t n,
                            int64_t columns)
{
    enum { SLIVER = VECTORS * LANES };
    og_cpu_factor right = *j->right;
    int64_t bytes = bytes_of(right.dtype), k = j->tiling->k;
    if (j->prepacked && (bytes == sizeof(REAL) || j->rows <= PANEL)) {
        const char *data = right.data;
        return (P(slab)){data + ((j->n0 + n) * k + k0 * SLIVER) * bytes, right.dtype, k * bytes};
    }
    if (right.view)
        P(pack_view)(&right, j->n0 + n, columns, k0, count, j->slab, SLIVER);
    for (int64_t s = 0; s < columns && !right.view; s += SLIVER) {
        int64_t first = j->n0 + n + s, some = og_min(SLIVER, columns - s);
        if (j->prepacked) { /* a sliver is a matrix too, and whole */
            right.data = (const char *)j->right->data + first * k * bytes;
            right.stride = 1, right.k_stride = SLIVER;
            first = 0, some = SLIVER;
        }
        P(pack_sliver)(&right, first, some, k0, count, j->slab + s * OG_PRODUCT_BLOCK);
    }
    return (P(slab)){(const char *)j->slab, sizeof(REAL) == 8 ? OG_FLOAT64 : OG_FLOAT32,
                     OG_PRODUCT_BLOCK * sizeof(REAL)};
}

/* What to fetch ahead during block k0 of the sliver at column n + s: what is packed or used in
 * its stead next, of this slab's next block or of the next slab. *stride: of 8 k, or of a
 * column as it lies in memory. Where there is nothing to fetch, memory in use and 0. */
static const char *P(look_ahead)(const P(tile_job) * j, int64_t k0, int64_t n, int64_t s,
                                 int64_t *stride)
{
    enum { SLIVER = VECTORS * LANES };
    const og_cpu_tiling *t = j->tiling;
    int64_t bytes = bytes_of(j->right->dtype);
    int64_t row = n + t->slab_n < j->columns ? n + t->slab_n + s : s;
    int64_t k = n + t->slab_n < j->columns ? k0 : k0 + OG_PRODUCT_BLOCK;
    const char *data = j->right->data;
    *stride = 0;
    if (j->prepacked) {
        if (k >= t->k) /* the next tile */
            row += t->tile_n, k = 0;
        if (j->n0 + row >= t->n || k + OG_PRODUCT_BLOCK > t->k)
            return (const char *)j->slab;
        *stride = 8 * SLIVER * bytes;
        return data + ((j->n0 + row) * t->k + k * SLIVER) * bytes;
    }
    if (j->right->k_stride != 1 || k + OG_PRODUCT_BLOCK > t->k || row + SLIVER > j->columns)
        return (const char *)j->slab;
    *stride = j->right->stride * bytes;
    return data + (j->n0 + row) * *stride + k * bytes;
}

/* Block k0 of the slab at column n (of the tile). */
static void P(run_slab)(const P(tile_job) * j, int64_t k0, int64_t n)
{
    enum { SLIVER = VECTORS * LANES };
    const og_cpu_tiling *t = j->tiling;
    int64_t count = og_min(OG_PRODUCT_BLOCK, t->k - k0);
    int64_t columns = og_min(t->slab_n, j->columns - n);
    int64_t panels = (j->rows + PANEL - 1) / PANEL;
    P(slab) slab = P(find_slab)(j, k0, count, n, columns);
    for (int64_t i = 0; i < panels; i++) {
        int64_t m = P(panel_at)(j->rows, panels, i);
        int64_t rows = P(panel_at)(j->rows, panels, i + 1) - m;
        if (panels > 1 || n == 0)
            P(copy_panel)(j->left, j->m0 + m, rows, t->m - j->m0 - m, k0, count, j->panel);
        for (int64_t s = 0; s < columns; s += SLIVER) {
            int64_t vectors = (og_min(SLIVER, columns - s) + LANES - 1) / LANES;
            if (bytes_of(slab.dtype) < (int64_t)sizeof(REAL))
                vectors = VECTORS;
            const char *ahead = slab.data;
            int64_t ahead_stride = 0;
            if (i == 0)
                ahead = P(look_ahead)(j, k0, n, s, &ahead_stride);
            P(kernels)[rows][vectors](slab.dtype, count, j->panel, slab.data + s * slab.step,
                                      j->c + m * t->tile_n + n + s, t->tile_n,
                                      k0 % OG_PRODUCT_GROUP == 0, ahead, ahead_stride);
        }
    }
}

static void P(run_packed)(const P(tile_job) * j)
{
    const og_cpu_tiling *t = j->tiling;
    int64_t count = j->rows * t->tile_n;
    for (int64_t k0 = 0; k0 < t->k; k0 += OG_PRODUCT_BLOCK) {
        if (k0 && k0 % OG_PRODUCT_GROUP == 0)
            P(close_group)(j->c, j->groups, count, k0 == OG_PRODUCT_GROUP);
        for (int64_t n = 0; n < j->columns; n += t->slab_n)
            P(run_slab)(j, k0, n);
    }
    if (t->k > OG_PRODUCT_GROUP)
        for (int64_t i = 0; i < count; i++)
            j->c[i] = j->groups[i] + j->c[i];
}

/* Dot products of paired factors, SLIVER of them at a time. */
static void P(run_dots)(const P(tile_job) * j)
{
    enum { SLIVER = VECTORS * LANES };
    const og_cpu_tiling *t = j->tiling;
    REAL *left = j->slab, *right = j->slab + OG_PRODUCT_BLOCK * SLIVER;
    for (int64_t n = 0; n < j->columns; n += SLIVER) {
        int64_t columns = og_min(SLIVER, j->columns - n);
        int64_t vectors = (columns + LANES - 1) / LANES;
        for (int64_t k0 = 0; k0 < t->k; k0 += OG_PRODUCT_BLOCK) {
            int64_t count = og_min(OG_PRODUCT_BLOCK, t->k - k0);
            if (k0 && k0 % OG_PRODUCT_GROUP == 0)
                P(close_group)(j->c + n, j->groups + n, SLIVER, k0 == OG_PRODUCT_GROUP);
            P(pack_sliver)(j->left, j->n0 + n, columns, k0, count, left);
            P(pack_sliver)(j->right, j->n0 + n, columns, k0, count, right);
            for (int64_t v = 0; v < vectors * LANES; v += LANES) {
                VECTOR sum = SPLAT(0);
                for (int64_t k = 0; k < count; k++)
                    sum = FMA(*(const MEMORY *)(left + k * SLIVER + v),
                              *(const MEMORY *)(right + k * SLIVER + v), sum);
                MEMORY *to = (MEMORY *)(j->c + n + v);
                if (k0 % OG_PRODUCT_GROUP != 0)
                    sum = *to + sum;
                *to = sum;
            }
        }
        for (int64_t i = n; t->k > OG_PRODUCT_GROUP && i < n + columns; i++)
            j->c[i] = j->groups[i] + j->c[i];
    }
}

static size_t P(count_work)(const og_cpu_tiling *t)
{
    int64_t groups = t->k > OG_PRODUCT_GROUP ? t->tile_m * t->tile_n : 0;
    int64_t panel = (PANEL + LANES - 1) / LANES * LANES * LEFT_STRIDE;
    int64_t slab = t->slab ? t->slab_n * OG_PRODUCT_BLOCK : 0;
    return (size_t)(groups + slab + panel) * sizeof(REAL);
}

static P(tile_job) P(start_tile)(const og_cpu_tiling *t, const og_cpu_factors *factors, REAL *sums,
                                 REAL *work)
{
    P(tile_job) j = {.tiling = t, .left = &factors->left, .right = &factors->right, .c = sums};
    j.prepacked = factors->prepacked;
    j.groups = work;
    j.slab = work + (t->k > OG_PRODUCT_GROUP ? t->tile_m * t->tile_n : 0);
    j.panel = j.slab + (t->slab ? t->slab_n * OG_PRODUCT_BLOCK : 0);
    return j;
}
