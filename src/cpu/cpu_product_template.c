/* SPDX-License-Identifier: MIT
 *
 * cpu_product_template.c - matrix products of one CPU level, as
 * og_cpu_product_kernels_<level>. plan.h has the order of the sums: they are
 * vectorised over columns, never over k, so every level gives the same bits.
 *
 * PARAMETERS
 *   OG_CPU_LEVEL   x86_64, x86_64_v3, x86_64_v4 or aarch64; the build sets it along
 *                  with the level's flags, and compiles this file once for each.
 */
#include "cpu/cpu_product.h"
#include "math/half_block.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
/* clang 14 would load all that the steps need before the first, and spill the sums. */
#define UNROLL_STEPS _Pragma("clang loop unroll(disable)")
#else
#define UNROLL _Pragma("GCC unroll 32") /* else gcc 12 keeps the sums on the stack */
#define UNROLL_STEPS UNROLL
#endif

enum {
    LEFT_STRIDE = OG_PRODUCT_BLOCK + 16, /* rows of a panel are in different sets of the cache */
    LINE = 64,
    AHEAD = 1024 /* bytes of a row that is read once; 512 and 2048 are as good, on Zen 4 */
};

static inline int64_t min_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline size_t round_up(size_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

/* ---- vectors ----------------------------------------------------------------- */

/* Registers: panel x sliver sums, a sliver's row and one element of left. DIRECT and
 * ACROSS: see "few rows"; ACROSS_VECTORS are those of a single row. */
#define ROWS_2(X, v) X(1, v) X(2, v)
#define ROWS_6(X, v) ROWS_2(X, v) X(3, v) X(4, v) X(5, v) X(6, v)
#define ROWS_14(X, v)                                                                              \
    ROWS_6(X, v) X(7, v) X(8, v) X(9, v) X(10, v) X(11, v) X(12, v) X(13, v) X(14, v)

#if defined(__AVX512F__)
enum { VECTOR_BYTES = 64, F32_PANEL = 14, F32_VECTORS = 2 };
enum { DIRECT_ROWS = 10, ACROSS_ROWS = 4, ACROSS_VECTORS = 16 };
#define ALL_KERNELS(X) ROWS_14(X, 1) ROWS_14(X, 2)
#define DIRECT_KERNELS(X) ROWS_6(X, 1) X(7, 1) X(8, 1) X(9, 1) X(10, 1)
#define ACROSS_KERNELS(X) ROWS_2(X, 1) X(3, 1) X(4, 1)
#elif defined(__FMA__)
enum { VECTOR_BYTES = 32, F32_PANEL = 6, F32_VECTORS = 2 };
enum { DIRECT_ROWS = 4, ACROSS_ROWS = 2, ACROSS_VECTORS = 8 };
#define ALL_KERNELS(X) ROWS_6(X, 1) ROWS_6(X, 2)
#define DIRECT_KERNELS(X) ROWS_2(X, 1) X(3, 1) X(4, 1)
#define ACROSS_KERNELS(X) ROWS_2(X, 1)
#elif defined(__aarch64__)
enum { VECTOR_BYTES = 16, F32_PANEL = 6, F32_VECTORS = 4 };
enum { DIRECT_ROWS = 4, ACROSS_ROWS = 4, ACROSS_VECTORS = 16 };
#define ALL_KERNELS(X) ROWS_6(X, 1) ROWS_6(X, 2) ROWS_6(X, 3) ROWS_6(X, 4)
#define DIRECT_KERNELS(X) ROWS_2(X, 1) X(3, 1) X(4, 1)
#define ACROSS_KERNELS(X) ROWS_2(X, 1) X(3, 1) X(4, 1)
#else
enum { VECTOR_BYTES = 16, F32_PANEL = 2, F32_VECTORS = 4 };
enum { DIRECT_ROWS = 2, ACROSS_ROWS = 2, ACROSS_VECTORS = 8 };
#define ALL_KERNELS(X) ROWS_2(X, 1) ROWS_2(X, 2) ROWS_2(X, 3) ROWS_2(X, 4)
#define DIRECT_KERNELS(X) ROWS_2(X, 1)
#define ACROSS_KERNELS(X) ROWS_2(X, 1)
#endif

enum { F32_LANES = VECTOR_BYTES / 4, F64_LANES = VECTOR_BYTES / 8 };
enum { F32_SLIVER = F32_VECTORS * F32_LANES, F64_SLIVER = F32_VECTORS * F64_LANES };

typedef float vector_f32 __attribute__((vector_size(VECTOR_BYTES)));
typedef double vector_f64 __attribute__((vector_size(VECTOR_BYTES)));
/* In memory. */
typedef vector_f32 memory_f32 __attribute__((may_alias));
typedef vector_f64 memory_f64 __attribute__((may_alias));
typedef vector_f32 unaligned_f32 __attribute__((aligned(2), may_alias)); /* pairs of halves too */
typedef uint32_t vector_u32 __attribute__((vector_size(VECTOR_BYTES)));
typedef uint16_t vector_u16 __attribute__((vector_size(VECTOR_BYTES / 2), may_alias, aligned(2)));

#if defined(__AVX512F__)
#define FMA_F32(a, b, c) _mm512_fmadd_ps(a, b, c)
#define FMA_F64(a, b, c) _mm512_fmadd_pd(a, b, c)
#define SPLAT_F32(x) ((vector_f32)_mm512_set1_ps(x))
#define SPLAT_F64(x) ((vector_f64)_mm512_set1_pd(x))
#elif defined(__FMA__)
#define FMA_F32(a, b, c) _mm256_fmadd_ps(a, b, c)
#define FMA_F64(a, b, c) _mm256_fmadd_pd(a, b, c)
#define SPLAT_F32(x) ((vector_f32)_mm256_set1_ps(x))
#define SPLAT_F64(x) ((vector_f64)_mm256_set1_pd(x))
#elif defined(__aarch64__)
#define FMA_F32(a, b, c) vfmaq_f32(c, a, b)
#define FMA_F64(a, b, c) vfmaq_f64(c, a, b)
#define SPLAT_F32(x) ((vector_f32)vdupq_n_f32(x))
#define SPLAT_F64(x) ((vector_f64)vdupq_n_f64(x))
#else
/* Without the instruction: the bits that it would give, at about a fortieth of its speed. */
OG_FN vector_f32 emulate_fma(vector_f32 a, vector_f32 b, vector_f32 c)
{
    vector_f32 r;
    for (int i = 0; i < F32_LANES; i++)
        r[i] = og_fma_f32(a[i], b[i], c[i]);
    return r;
}
#define FMA_F32(a, b, c) emulate_fma(a, b, c)
#define FMA_F64(a, b, c) ((a) * (b) + (c))
#define SPLAT_F32(x) ((vector_f32)_mm_set1_ps(x))
#define SPLAT_F64(x) ((vector_f64)_mm_set1_pd(x))
#endif

/* LANES elements of a dtype next to each other, as float32. */
OG_FN vector_f32 load_vector(const og_dtype dtype, const void *from)
{
    if (dtype == OG_FLOAT32)
        return *(const unaligned_f32 *)from;
    if (dtype == OG_BFLOAT16)
        return (vector_f32)(__builtin_convertvector(*(const vector_u16 *)from, vector_u32) << 16);
#if defined(__AVX512F__)
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
#elif defined(__F16C__)
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
#else
    float block[F32_LANES];
    og_load_f16(block, from, F32_LANES);
    return *(const unaligned_f32 *)block;
#endif
}

OG_FN float load_element(const og_dtype dtype, const void *from, int64_t index)
{
    if (dtype == OG_FLOAT32)
        return ((const float *)from)[index];
    uint16_t half = ((const uint16_t *)from)[index];
    return dtype == OG_FLOAT16 ? og_f32_from_f16(half) : og_f32_from_bf16(half);
}

OG_FN int64_t bytes_of(const og_dtype dtype)
{
    return dtype == OG_FLOAT32 ? 4 : 2;
}

OG_FN const char *find_row(const og_dtype dtype, const og_cpu_factor *of, int64_t row, int64_t k)
{
    return (const char *)of->data + (row * of->stride + k * of->k_stride) * bytes_of(dtype);
}

/* t[j][i] = element j from rows[i]: LANES x LANES elements change sides in
 * registers. Every shuffle is within 128 bits or of whole 128 bits: first pairs of
 * elements, then pairs of pairs, which makes lane L of v[q + j] the rows q to q + 3 at
 * element 4 L + j, then the lanes themselves. */
#define SHUFFLE(x, y, ...) __builtin_shufflevector(x, y, __VA_ARGS__)
#if defined(__AVX512F__)
#define IN_LANES(a, b, c, d)                                                                       \
    a, b, c, d, a + 4, b + 4, c + 4, d + 4, a + 8, b + 8, c + 8, d + 8, a + 12, b + 12, c + 12,    \
        d + 12
#define LANES_OF(x, y, a, b, c, d)                                                                 \
    SHUFFLE(x, y, 4 * a, 4 * a + 1, 4 * a + 2, 4 * a + 3, 4 * b, 4 * b + 1, 4 * b + 2, 4 * b + 3,  \
            4 * c, 4 * c + 1, 4 * c + 2, 4 * c + 3, 4 * d, 4 * d + 1, 4 * d + 2, 4 * d + 3)
#elif defined(__FMA__)
#define IN_LANES(a, b, c, d) a, b, c, d, a + 4, b + 4, c + 4, d + 4
#else
#define IN_LANES(a, b, c, d) a, b, c, d
#endif

OG_FN void transpose(const og_dtype dtype, const char *const rows[F32_LANES], int64_t element,
                     vector_f32 t[F32_LANES])
{
    enum { N = F32_LANES };
    vector_f32 v[N];
    int64_t at = element * bytes_of(dtype);
    UNROLL for (int q = 0; q < N; q += 4)
    {
        vector_f32 a = load_vector(dtype, rows[q] + at), b = load_vector(dtype, rows[q + 1] + at);
        vector_f32 c = load_vector(dtype, rows[q + 2] + at);
        vector_f32 d = load_vector(dtype, rows[q + 3] + at);
        vector_f32 ab = SHUFFLE(a, b, IN_LANES(0, N, 1, N + 1));
        vector_f32 cd = SHUFFLE(c, d, IN_LANES(0, N, 1, N + 1));
        v[q] = SHUFFLE(ab, cd, IN_LANES(0, 1, N, N + 1));
        v[q + 1] = SHUFFLE(ab, cd, IN_LANES(2, 3, N + 2, N + 3));
        ab = SHUFFLE(a, b, IN_LANES(2, N + 2, 3, N + 3));
        cd = SHUFFLE(c, d, IN_LANES(2, N + 2, 3, N + 3));
        v[q + 2] = SHUFFLE(ab, cd, IN_LANES(0, 1, N, N + 1));
        v[q + 3] = SHUFFLE(ab, cd, IN_LANES(2, 3, N + 2, N + 3));
    }
    UNROLL for (int j = 0; j < 4; j++)
    {
#if defined(__AVX512F__)
        vector_f32 a = LANES_OF(v[j], v[j + 4], 0, 2, 4, 6);
        vector_f32 b = LANES_OF(v[j], v[j + 4], 1, 3, 5, 7);
        vector_f32 c = LANES_OF(v[j + 8], v[j + 12], 0, 2, 4, 6);
        vector_f32 d = LANES_OF(v[j + 8], v[j + 12], 1, 3, 5, 7);
        t[j] = LANES_OF(a, c, 0, 2, 4, 6);
        t[j + 4] = LANES_OF(b, d, 0, 2, 4, 6);
        t[j + 8] = LANES_OF(a, c, 1, 3, 5, 7);
        t[j + 12] = LANES_OF(b, d, 1, 3, 5, 7);
#elif defined(__FMA__)
        t[j] = SHUFFLE(v[j], v[j + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        t[j + 4] = SHUFFLE(v[j], v[j + 4], 4, 5, 6, 7, 12, 13, 14, 15);
#else
        t[j] = v[j];
#endif
    }
}

/* Elements that change sides at a time. Two bfloat16 do it as one float32, and then
 * are its upper and its lower half. */
OG_FN int count_turned(const og_dtype dtype)
{
    return dtype == OG_BFLOAT16 ? 2 * F32_LANES : F32_LANES;
}

/* As transpose, of count_turned(dtype) elements. */
OG_FN void turn(const og_dtype dtype, const char *const rows[F32_LANES], int64_t element,
                vector_f32 t[2 * F32_LANES])
{
    if (dtype != OG_BFLOAT16) {
        transpose(dtype, rows, element, t);
        return;
    }
    vector_f32 pairs[F32_LANES];
    const char *from[F32_LANES];
    UNROLL for (int i = 0; i < F32_LANES; i++) from[i] = rows[i] + element * 2;
    transpose(OG_FLOAT32, from, 0, pairs);
    UNROLL for (int i = 0; i < F32_LANES; i++)
    {
        t[2 * i] = (vector_f32)((vector_u32)pairs[i] << 16);
        t[2 * i + 1] = (vector_f32)((vector_u32)pairs[i] & 0xffff0000u);
    }
}

/* ---- copying operands into the order of the micro-kernel ------------------------ */

/* to[i * to_stride + j] = element (a0 + i, b0 + j), rows x columns of them, from
 * memory where neighbours along i lie next to each other. Whole vectors are read up
 * to i = limit; to has room for whole vectors along i. */
OG_FN void copy_transposed(const og_dtype dtype, const char *from, int64_t j_stride, int64_t rows,
                           int64_t limit, int64_t columns, float *to, int64_t to_stride)
{
    int64_t bytes = bytes_of(dtype), i = 0;
    for (; i < rows && i + F32_LANES <= limit; i += F32_LANES) {
        int64_t j = 0;
        for (; j + F32_LANES <= columns; j += F32_LANES) {
            const char *p[F32_LANES];
            vector_f32 t[F32_LANES];
            for (int u = 0; u < F32_LANES; u++)
                p[u] = from + (i + (j + u) * j_stride) * bytes;
            transpose(dtype, p, 0, t);
            for (int u = 0; u < F32_LANES; u++)
                *(unaligned_f32 *)(to + (i + u) * to_stride + j) = t[u];
        }
        for (; j < columns; j++)
            for (int64_t u = i; u < i + F32_LANES; u++)
                to[u * to_stride + j] = load_element(dtype, from, u + j * j_stride);
    }
    for (; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            to[i * to_stride + j] = load_element(dtype, from, i + j * j_stride);
}

OG_FN void copy_row(const og_dtype dtype, const char *from, int64_t stride, int64_t count,
                    float *to)
{
    if (stride != 1) {
        for (int64_t k = 0; k < count; k++)
            to[k] = load_element(dtype, from, k * stride);
    } else if (dtype == OG_FLOAT32) {
        memcpy(to, from, (size_t)count * sizeof *to);
    } else if (dtype == OG_FLOAT16) {
        og_load_f16(to, (const uint16_t *)(const void *)from, (size_t)count);
    } else {
        og_load_bf16(to, (const uint16_t *)(const void *)from, (size_t)count);
    }
}

OG_FN void copy_panel_of(const og_dtype dtype, const og_cpu_factor *left, int64_t m0, int64_t rows,
                         int64_t k0, int64_t count, float *to)
{
    if (left->stride == 1 && left->k_stride != 1) {
        copy_transposed(dtype, find_row(dtype, left, m0, k0), left->k_stride, rows, rows, count, to,
                        LEFT_STRIDE);
        return;
    }
    for (int64_t i = 0; i < rows; i++)
        copy_row(dtype, find_row(dtype, left, m0 + i, k0), left->k_stride, count,
                 to + i * LEFT_STRIDE);
}

OG_FN void pack_sliver_of(const og_dtype dtype, const og_cpu_factor *right, int64_t n0,
                          int64_t columns, int64_t k0, int64_t count, float *to)
{
    int64_t padded = (columns + F32_LANES - 1) / F32_LANES * F32_LANES;
    if (right->k_stride == 1) {
        for (int64_t g = 0; g < columns; g += F32_LANES) {
            const char *rows[F32_LANES];
            for (int64_t i = 0; i < F32_LANES; i++) /* the last column again, for want of more */
                rows[i] = find_row(dtype, right, n0 + min_of(g + i, columns - 1), k0);
            int64_t k = 0;
            for (; k + count_turned(dtype) <= count; k += count_turned(dtype)) {
                vector_f32 t[2 * F32_LANES];
                turn(dtype, rows, k, t);
                UNROLL for (int u = 0; u < count_turned(dtype); u++) *
                    (memory_f32 *)(to + (k + u) * F32_SLIVER + g) = t[u];
            }
            for (; k < count; k++)
                for (int i = 0; i < F32_LANES; i++)
                    to[k * F32_SLIVER + g + i] = load_element(dtype, rows[i], k);
        }
        return;
    }
    bool whole = right->stride == 1 && columns % F32_LANES == 0;
    for (int64_t k = 0; k < count; k++, to += F32_SLIVER) {
        const char *from = find_row(dtype, right, n0, k0 + k);
        if (whole) {
            for (int64_t n = 0; n < columns; n += F32_LANES)
                *(memory_f32 *)(to + n) = load_vector(dtype, from + n * bytes_of(dtype));
            continue;
        }
        for (int64_t n = 0; n < padded; n++)
            to[n] = load_element(dtype, from, min_of(n, columns - 1) * right->stride);
    }
}

static void copy_panel_f32(const og_cpu_factor *left, int64_t m0, int64_t rows, int64_t k0,
                           int64_t count, float *to)
{
    if (left->dtype == OG_FLOAT32)
        copy_panel_of(OG_FLOAT32, left, m0, rows, k0, count, to);
    else if (left->dtype == OG_FLOAT16)
        copy_panel_of(OG_FLOAT16, left, m0, rows, k0, count, to);
    else
        copy_panel_of(OG_BFLOAT16, left, m0, rows, k0, count, to);
}

static void pack_sliver_f32(const og_cpu_factor *right, int64_t n0, int64_t columns, int64_t k0,
                            int64_t count, float *to)
{
    if (right->dtype == OG_FLOAT32)
        pack_sliver_of(OG_FLOAT32, right, n0, columns, k0, count, to);
    else if (right->dtype == OG_FLOAT16)
        pack_sliver_of(OG_FLOAT16, right, n0, columns, k0, count, to);
    else
        pack_sliver_of(OG_BFLOAT16, right, n0, columns, k0, count, to);
}

static void copy_panel_f64(const og_cpu_factor *left, int64_t m0, int64_t rows, int64_t k0,
                           int64_t count, double *to)
{
    const double *from = (const double *)left->data + m0 * left->stride + k0 * left->k_stride;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < count; k++)
            to[i * LEFT_STRIDE + k] = from[i * left->stride + k * left->k_stride];
}

static void pack_sliver_f64(const og_cpu_factor *right, int64_t n0, int64_t columns, int64_t k0,
                            int64_t count, double *to)
{
    const double *from = (const double *)right->data + n0 * right->stride + k0 * right->k_stride;
    for (int64_t n = 0; n < F64_SLIVER; n++) {
        const double *column = from + min_of(n, columns - 1) * right->stride;
        for (int64_t k = 0; k < count; k++)
            to[k * F64_SLIVER + n] = column[k * right->k_stride];
    }
}

/* ---- the blocked product ---------------------------------------------------------- */

#define REAL float
#define VECTOR vector_f32
#define MEMORY memory_f32
#define LANES F32_LANES
#define PANEL F32_PANEL
#define VECTORS F32_VECTORS
#define KERNELS ALL_KERNELS
#define FMA FMA_F32
#define SPLAT SPLAT_F32
#define P(name) name##_f32
#include "cpu/cpu_product_core.h"

#define REAL double
#define VECTOR vector_f64
#define MEMORY memory_f64
#define LANES F64_LANES
#define PANEL F32_PANEL
#define VECTORS F32_VECTORS
#define KERNELS ALL_KERNELS
#define FMA FMA_F64
#define SPLAT SPLAT_F64
#define P(name) name##_f64
#include "cpu/cpu_product_core.h"

/* ---- few rows ---------------------------------------------------------------------- */

/* LANES columns, all of k: right changes sides in registers and is used at once. */
OG_FN void multiply_direct(const og_dtype dtype, const int rows, int64_t k,
                           const float *const left[DIRECT_ROWS], const char *const right[F32_LANES],
                           float *c, int64_t stride)
{
    vector_f32 groups[DIRECT_ROWS] = {{0}}, blocks[DIRECT_ROWS] = {{0}}, sum[DIRECT_ROWS];
    bool long_rows = k * bytes_of(dtype) >= 4 * AHEAD;
    for (int64_t k0 = 0; k0 < k; k0 += OG_PRODUCT_BLOCK) {
        int64_t at = k0, end = min_of(k, k0 + OG_PRODUCT_BLOCK);
        UNROLL for (int i = 0; i < rows; i++) sum[i] = SPLAT_F32(0);
        for (; at + count_turned(dtype) <= end; at += count_turned(dtype)) {
            vector_f32 t[2 * F32_LANES];
            turn(dtype, right, at, t);
            for (int u = 0; u < F32_LANES && long_rows; u++)
                __builtin_prefetch(right[u] + at * bytes_of(dtype) + AHEAD, 0, 2);
            UNROLL for (int u = 0; u < count_turned(dtype); u++)
                UNROLL for (int i = 0; i < rows; i++) sum[i] =
                    FMA_F32(SPLAT_F32(left[i][at + u]), t[u], sum[i]);
        }
        for (; at < end; at++) {
            vector_f32 t;
            for (int i = 0; i < F32_LANES; i++)
                t[i] = load_element(dtype, right[i], at);
            UNROLL for (int i = 0; i < rows; i++) sum[i] =
                FMA_F32(SPLAT_F32(left[i][at]), t, sum[i]);
        }
        bool first = k0 % OG_PRODUCT_GROUP == 0;
        if (first && k0)
            UNROLL for (int i = 0; i < rows; i++) groups[i] =
                k0 == OG_PRODUCT_GROUP ? blocks[i] : groups[i] + blocks[i];
        UNROLL for (int i = 0; i < rows; i++) blocks[i] = first ? sum[i] : blocks[i] + sum[i];
    }
    UNROLL for (int i = 0; i < rows; i++) * (memory_f32 *)(c + i * stride) =
        k > OG_PRODUCT_GROUP ? groups[i] + blocks[i] : blocks[i];
}

typedef void multiply_direct_fn(int64_t k, const float *const left[DIRECT_ROWS],
                                const char *const right[F32_LANES], float *c, int64_t stride);

#define DEFINE(rows, dtype)                                                                        \
    static void multiply_direct_##rows##_##dtype(int64_t k, const float *const left[DIRECT_ROWS],  \
                                                 const char *const right[F32_LANES], float *c,     \
                                                 int64_t stride)                                   \
    {                                                                                              \
        multiply_direct(dtype, rows, k, left, right, c, stride);                                   \
    }
#define X(rows, one) DEFINE(rows, OG_FLOAT32) DEFINE(rows, OG_FLOAT16) DEFINE(rows, OG_BFLOAT16)
DIRECT_KERNELS(X)
#undef X
#undef DEFINE

#define X(rows, one)                                                                               \
    [rows] = {[OG_FLOAT32] = multiply_direct_##rows##_OG_FLOAT32,                                  \
              [OG_FLOAT16] = multiply_direct_##rows##_OG_FLOAT16,                                  \
              [OG_BFLOAT16] = multiply_direct_##rows##_OG_BFLOAT16},
static multiply_direct_fn *const direct_kernels[DIRECT_ROWS + 1][OG_DTYPE_COUNT] = {
    DIRECT_KERNELS(X)};
#undef X

/* Columns next to each other in memory, one block of k: nothing changes sides. The
 * columns to the right of these are next: they are fetched. */
OG_FN void multiply_across(const og_dtype dtype, const int rows, const int vectors, int64_t count,
                           const float *const *left, const char *right, int64_t step, float *c,
                           int64_t stride, bool first)
{
    vector_f32 sum[ACROSS_ROWS][ACROSS_VECTORS];
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < vectors; j++) sum[i][j] =
        SPLAT_F32(0);
    const int bytes = F32_LANES * (int)bytes_of(dtype);
    for (int64_t k = 0; k < count; k++, right += step) {
        vector_f32 t[ACROSS_VECTORS];
        UNROLL for (int j = 0; j < vectors; j++) t[j] = load_vector(dtype, right + j * bytes);
        UNROLL for (int at = 0; at < vectors * bytes; at += LINE)
            __builtin_prefetch(right + vectors * bytes + at, 0, 2);
        UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < vectors; j++) sum[i][j] =
            FMA_F32(SPLAT_F32(left[i][k]), t[j], sum[i][j]);
    }
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < vectors; j++)
    {
        memory_f32 *to = (memory_f32 *)(c + i * stride + j * F32_LANES);
        if (!first)
            sum[i][j] = *to + sum[i][j];
        *to = sum[i][j];
    }
}

/* One column, which has too few neighbours for a vector. */
OG_FN void multiply_column(const og_dtype dtype, int64_t rows, int64_t count,
                           const float *const *left, const char *right, int64_t step, float *c,
                           int64_t stride, bool first)
{
    for (int64_t i = 0; i < rows; i++) {
        float sum = 0;
        for (int64_t k = 0; k < count; k++)
            sum = og_fma_f32(left[i][k], load_element(dtype, right + k * step, 0), sum);
        c[i * stride] = first ? sum : c[i * stride] + sum;
    }
}

/* One block of k of rows <= ACROSS_ROWS and columns next to each other. */
OG_FN void run_across_block(const og_dtype dtype, int64_t rows, int64_t columns, int64_t count,
                            const float *const *left, const char *right, int64_t step, float *c,
                            int64_t stride, bool first)
{
    int64_t bytes = bytes_of(dtype), n = 0, wide = 4 * F32_LANES;
    for (; rows == 1 && n + ACROSS_VECTORS * F32_LANES <= columns; n += ACROSS_VECTORS * F32_LANES)
        multiply_across(dtype, 1, ACROSS_VECTORS, count, left, right + n * bytes, step, c + n,
                        stride, first);
    for (; n + wide <= columns; n += wide)
        switch (rows) {
#define X(r, one)                                                                                  \
    case r:                                                                                        \
        multiply_across(dtype, r, 4, count, left, right + n * bytes, step, c + n, stride, first);  \
        break;
            ACROSS_KERNELS(X)
#undef X
        }
    for (; n + F32_LANES <= columns; n += F32_LANES)
        for (int64_t i = 0; i < rows; i++)
            multiply_across(dtype, 1, 1, count, left + i, right + n * bytes, step,
                            c + i * stride + n, stride, first);
    for (; n < columns; n++)
        multiply_column(dtype, rows, count, left, right + n * bytes, step, c + n, stride, first);
}

static void run_across(const og_cpu_tiling *t, const float *const *left, const og_cpu_factor *right,
                       int64_t rows, int64_t n0, int64_t columns, float *c, float *groups)
{
    int64_t step = right->k_stride * bytes_of(right->dtype), tile = rows * t->tile_n;
    for (int64_t k0 = 0; k0 < t->k; k0 += OG_PRODUCT_BLOCK) {
        bool first = k0 % OG_PRODUCT_GROUP == 0;
        if (first && k0)
            close_group_f32(c, groups, tile, k0 == OG_PRODUCT_GROUP);
        int64_t count = min_of(OG_PRODUCT_BLOCK, t->k - k0);
        const char *from = find_row(right->dtype, right, n0, k0);
        for (int64_t i = 0, some; i < rows; i += some) {
            some = min_of(rows - i, ACROSS_ROWS);
            const float *at[ACROSS_ROWS];
            for (int64_t r = 0; r < some; r++)
                at[r] = left[i + r] + k0;
            float *to = c + i * t->tile_n;
            if (right->dtype == OG_FLOAT32)
                run_across_block(OG_FLOAT32, some, columns, count, at, from, step, to, t->tile_n,
                                 first);
            else if (right->dtype == OG_FLOAT16)
                run_across_block(OG_FLOAT16, some, columns, count, at, from, step, to, t->tile_n,
                                 first);
            else
                run_across_block(OG_BFLOAT16, some, columns, count, at, from, step, to, t->tile_n,
                                 first);
        }
    }
    if (t->k > OG_PRODUCT_GROUP)
        for (int64_t i = 0; i < tile; i++)
            c[i] = groups[i] + c[i];
}

static bool is_plain(const og_cpu_factor *left)
{
    return left->dtype == OG_FLOAT32 && left->k_stride == 1;
}

static void run_direct(const og_cpu_tiling *t, const og_cpu_factors *factors, int64_t m0,
                       int64_t rows, int64_t n0, int64_t columns, float *c, float *work)
{
    const og_cpu_factor *left = &factors->left, *right = &factors->right;
    const float *from[DIRECT_ROWS];
    float *groups = work, *copy = work + (t->k > OG_PRODUCT_GROUP ? t->tile_m * t->tile_n : 0);
    for (int64_t i = 0; i < rows; i++, copy += t->k) {
        from[i] = (const float *)left->data + (m0 + i) * left->stride;
        if (is_plain(left))
            continue;
        og_cpu_factor row = *left;
        row.data = find_row(left->dtype, left, m0 + i, 0);
        for (int64_t k = 0; k < t->k; k += OG_PRODUCT_BLOCK)
            copy_panel_f32(&row, 0, 1, k, min_of(OG_PRODUCT_BLOCK, t->k - k), copy + k);
        from[i] = copy;
    }
    if (right->k_stride != 1) {
        run_across(t, from, right, rows, n0, columns, c, groups);
        return;
    }
    for (int64_t n = 0; n < columns; n += F32_LANES) {
        const char *to[F32_LANES];
        for (int64_t i = 0; i < F32_LANES; i++)
            to[i] = find_row(right->dtype, right, n0 + min_of(n + i, columns - 1), 0);
        direct_kernels[rows][right->dtype](t->k, from, to, c + n, t->tile_n);
    }
}

/* ---- entries ------------------------------------------------------------------------ */

enum {
    TILE_M = 512,
    DIRECT_K = 16384 /* longest rows of left that are converted as a whole */
};

static size_t count_work(const og_cpu_tiling *t, bool f64, bool plain)
{
    if (t->way == OG_CPU_PRODUCT_EMPTY)
        return 0;
    if (t->way == OG_CPU_PRODUCT_PACKED)
        return round_up(f64 ? count_work_f64(t) : count_work_f32(t));
    return round_up((size_t)(t->tile_m * (t->k > OG_PRODUCT_GROUP ? t->tile_n : 0) +
                             t->tile_m * (plain ? 0 : t->k)) *
                    sizeof(float));
}

static int64_t count_tiles(const og_cpu_tiling *t)
{
    return ((t->m + t->tile_m - 1) / t->tile_m) * ((t->n + t->tile_n - 1) / t->tile_n);
}

/* Rows of float32, or short ones that are converted as a whole. */
static bool can_be_direct(int64_t k, const og_cpu_factors *of)
{
    return of->left.dtype != OG_FLOAT64 && (of->right.k_stride == 1 || of->right.stride == 1) &&
           (is_plain(&of->left) || k <= DIRECT_K);
}

static og_cpu_tiling cut(int64_t m, int64_t n, int64_t k, const og_cpu_factors *factors, int count,
                         bool whole, bool lean, int64_t tile_count, size_t thread_bytes)
{
    og_cpu_tiling t = {.m = m, .n = n, .k = k};
    bool f64 = factors[0].left.dtype == OG_FLOAT64, direct = true, plain = true, in_rows = true;
    for (int i = 0; i < count; i++) {
        direct &= can_be_direct(k, &factors[i]);
        plain &= is_plain(&factors[i].left);
        in_rows &= factors[i].right.k_stride == 1;
    }
    direct &= m <= DIRECT_ROWS || (lean && plain);
    t.way = k == 0 ? OG_CPU_PRODUCT_EMPTY : direct ? OG_CPU_PRODUCT_DIRECT : OG_CPU_PRODUCT_PACKED;
    t.tile_m = min_of(m, direct ? DIRECT_ROWS : TILE_M / count);
    t.tile_n = OG_PRODUCT_WHOLE;
    while (t.tile_n > OG_PRODUCT_COLUMNS && t.tile_n / 2 >= n)
        t.tile_n /= 2;
    int64_t least_n = whole ? t.tile_n : OG_PRODUCT_COLUMNS;
    if ((m <= 32 && in_rows) || lean)
        t.tile_n = least_n;
    while (t.tile_n > least_n && count_tiles(&t) < tile_count)
        t.tile_n /= 2;
    while (t.tile_m > 4 * F32_PANEL && count_tiles(&t) < tile_count / 2)
        t.tile_m = (t.tile_m + 1) / 2;
    for (;; t.tile_n /= 2) {
        t.slab_n = t.tile_n;
        t.sum_bytes = (size_t)(t.tile_m * t.tile_n) * (f64 ? sizeof(double) : sizeof(float));
        t.work_bytes = count_work(&t, f64, plain);
        if (t.tile_n == least_n || (size_t)count * t.sum_bytes + t.work_bytes <= thread_bytes)
            break;
    }
    if ((size_t)count * t.sum_bytes + t.work_bytes > thread_bytes) {
        t.slab_n = f64 ? F64_SLIVER : F32_SLIVER;
        t.work_bytes = count_work(&t, f64, plain);
    }
    return t;
}

static void make_tile(const og_cpu_tiling *t, const og_cpu_factors *factors, int64_t m0,
                      int64_t rows, int64_t n0, int64_t columns, void *sums, void *work)
{
    bool f64 = factors->left.dtype == OG_FLOAT64;
    if (t->way == OG_CPU_PRODUCT_EMPTY) {
        memset(sums, 0, (size_t)(rows * t->tile_n) * (f64 ? sizeof(double) : sizeof(float)));
    } else if (t->way == OG_CPU_PRODUCT_DIRECT) {
        run_direct(t, factors, m0, rows, n0, columns, sums, work);
    } else if (f64) {
        tile_job_f64 j = start_tile_f64(t, factors, sums, work);
        j.m0 = m0, j.rows = rows, j.n0 = n0, j.columns = columns;
        run_packed_f64(&j);
    } else {
        tile_job_f32 j = start_tile_f32(t, factors, sums, work);
        j.m0 = m0, j.rows = rows, j.n0 = n0, j.columns = columns;
        run_packed_f32(&j);
    }
}

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
const og_cpu_product_kernels JOIN(og_cpu_product_kernels_, OG_CPU_LEVEL) = {F32_PANEL, F32_SLIVER,
                                                                            cut, make_tile};
