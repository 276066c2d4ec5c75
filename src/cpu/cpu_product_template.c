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

#if defined(OG_NO_UNROLLING) /* for a compiler that should be done soon */
#define UNROLL
#define UNROLL_STEPS
#elif defined(__clang__)
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
    TILE_M = 512,
    DIRECT_K = 16384, /* longest rows of left that are converted as a whole */
    AHEAD = 1024      /* bytes of a row that is read once; 512 and 2048 are as good, on Zen 4 */
};

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
typedef vector_f64 unaligned_f64 __attribute__((aligned(8), may_alias));
typedef uint32_t vector_u32 __attribute__((vector_size(VECTOR_BYTES)));
typedef uint16_t vector_u16 __attribute__((vector_size(VECTOR_BYTES / 2), may_alias, aligned(2)));

#if defined(__AVX512F__)
#define FMA_F32(a, b, c) _mm512_fmadd_ps(a, b, c)
#define FMA_F64(a, b, c) _mm512_fmadd_pd(a, b, c)
#define FMA_ONE_F64(a, b, c) __builtin_fma(a, b, c)
#define SPLAT_F32(x) ((vector_f32)_mm512_set1_ps(x))
#define SPLAT_F64(x) ((vector_f64)_mm512_set1_pd(x))
#elif defined(__FMA__)
#define FMA_F32(a, b, c) _mm256_fmadd_ps(a, b, c)
#define FMA_F64(a, b, c) _mm256_fmadd_pd(a, b, c)
#define FMA_ONE_F64(a, b, c) __builtin_fma(a, b, c)
#define SPLAT_F32(x) ((vector_f32)_mm256_set1_ps(x))
#define SPLAT_F64(x) ((vector_f64)_mm256_set1_pd(x))
#elif defined(__aarch64__)
#define FMA_F32(a, b, c) vfmaq_f32(c, a, b)
#define FMA_F64(a, b, c) vfmaq_f64(c, a, b)
#define FMA_ONE_F64(a, b, c) __builtin_fma(a, b, c)
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
#define FMA_ONE_F64(a, b, c) ((a) * (b) + (c))
#define SPLAT_F32(x) ((vector_f32)_mm_set1_ps(x))
#define SPLAT_F64(x) ((vector_f64)_mm_set1_pd(x))
#endif

/* LANES elements of a dtype next to each other, as float32. */
OG_FN vector_f32 load_vector_f32(const og_dtype dtype, const void *from)
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

OG_FN float load_element_f32(const og_dtype dtype, const void *from, int64_t index)
{
    if (dtype == OG_FLOAT32)
        return ((const float *)from)[index];
    uint16_t half = ((const uint16_t *)from)[index];
    return dtype == OG_FLOAT16 ? og_f32_from_f16(half) : og_f32_from_bf16(half);
}

OG_FN double load_element_f64(const og_dtype dtype, const void *from, int64_t index)
{
    (void)dtype;
    return ((const double *)from)[index];
}

OG_FN int64_t bytes_of(const og_dtype dtype)
{
    return dtype == OG_FLOAT64 ? 8 : dtype == OG_FLOAT32 ? 4 : 2;
}

OG_FN const char *find_row(const og_dtype dtype, const og_cpu_factor *of, int64_t row, int64_t k)
{
    return (const char *)of->data + (row * of->stride + k * of->k_stride) * bytes_of(dtype);
}

/* Few rows, in all and of left: those that must be converted are converted as a whole, not
 * block by block, so that right is read in one go. */
static bool copies_rows(const og_cpu_tiling *t)
{
    return t->m <= DIRECT_ROWS && t->k <= DIRECT_K;
}

/* Its rows can be read as they are. */
static bool is_plain(const og_cpu_factor *left)
{
    return (left->dtype == OG_FLOAT32 || left->dtype == OG_FLOAT64) && left->k_stride == 1;
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

OG_FN void transpose_f32(const og_dtype dtype, const char *const rows[F32_LANES], int64_t element,
                         vector_f32 t[F32_LANES])
{
    enum { N = F32_LANES };
    vector_f32 v[N];
    int64_t at = element * bytes_of(dtype);
    UNROLL for (int q = 0; q < N; q += 4)
    {
        vector_f32 a = load_vector_f32(dtype, rows[q] + at),
                   b = load_vector_f32(dtype, rows[q + 1] + at);
        vector_f32 c = load_vector_f32(dtype, rows[q + 2] + at);
        vector_f32 d = load_vector_f32(dtype, rows[q + 3] + at);
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
    return dtype == OG_FLOAT64 ? F64_LANES : dtype == OG_BFLOAT16 ? 2 * F32_LANES : F32_LANES;
}

/* As transpose, of count_turned(dtype) elements. */
OG_FN void turn_f32(const og_dtype dtype, const char *const rows[F32_LANES], int64_t element,
                    vector_f32 t[2 * F32_LANES])
{
    if (dtype != OG_BFLOAT16) {
        transpose_f32(dtype, rows, element, t);
        return;
    }
    vector_f32 pairs[F32_LANES];
    const char *from[F32_LANES];
    UNROLL for (int i = 0; i < F32_LANES; i++) from[i] = rows[i] + element * 2;
    transpose_f32(OG_FLOAT32, from, 0, pairs);
    UNROLL for (int i = 0; i < F32_LANES; i++)
    {
        t[2 * i] = (vector_f32)((vector_u32)pairs[i] << 16);
        t[2 * i + 1] = (vector_f32)((vector_u32)pairs[i] & 0xffff0000u);
    }
}

/* The same of float64: pairs of rows first, then 128 bits at a time. */
OG_FN void transpose_f64(const char *const rows[F64_LANES], int64_t element,
                         vector_f64 t[F64_LANES])
{
    vector_f64 v[F64_LANES];
    UNROLL for (int q = 0; q < F64_LANES; q += 2)
    {
        vector_f64 a = *(const unaligned_f64 *)(rows[q] + element * 8);
        vector_f64 b = *(const unaligned_f64 *)(rows[q + 1] + element * 8);
#if defined(__AVX512F__)
        v[q] = SHUFFLE(a, b, 0, 8, 2, 10, 4, 12, 6, 14);
        v[q + 1] = SHUFFLE(a, b, 1, 9, 3, 11, 5, 13, 7, 15);
#elif defined(__FMA__)
        v[q] = SHUFFLE(a, b, 0, 4, 2, 6);
        v[q + 1] = SHUFFLE(a, b, 1, 5, 3, 7);
#else
        v[q] = SHUFFLE(a, b, 0, 2);
        v[q + 1] = SHUFFLE(a, b, 1, 3);
#endif
    }
    UNROLL for (int j = 0; j < 2; j++)
    {
#if defined(__AVX512F__)
        vector_f64 a = SHUFFLE(v[j], v[j + 2], 0, 1, 4, 5, 8, 9, 12, 13);
        vector_f64 b = SHUFFLE(v[j], v[j + 2], 2, 3, 6, 7, 10, 11, 14, 15);
        vector_f64 c = SHUFFLE(v[j + 4], v[j + 6], 0, 1, 4, 5, 8, 9, 12, 13);
        vector_f64 d = SHUFFLE(v[j + 4], v[j + 6], 2, 3, 6, 7, 10, 11, 14, 15);
        t[j] = SHUFFLE(a, c, 0, 1, 4, 5, 8, 9, 12, 13);
        t[j + 2] = SHUFFLE(b, d, 0, 1, 4, 5, 8, 9, 12, 13);
        t[j + 4] = SHUFFLE(a, c, 2, 3, 6, 7, 10, 11, 14, 15);
        t[j + 6] = SHUFFLE(b, d, 2, 3, 6, 7, 10, 11, 14, 15);
#elif defined(__FMA__)
        t[j] = SHUFFLE(v[j], v[j + 2], 0, 1, 4, 5);
        t[j + 2] = SHUFFLE(v[j], v[j + 2], 2, 3, 6, 7);
#else
        t[j] = v[j];
#endif
    }
}

OG_FN void turn_f64(const og_dtype dtype, const char *const rows[F64_LANES], int64_t element,
                    vector_f64 t[2 * F64_LANES])
{
    (void)dtype;
    transpose_f64(rows, element, t);
}

/* Every second element, of LANES from here and of as many from the last of these on. */
#define SECOND_OF_2 0, 3
#define SECOND_OF_4 0, 2, 5, 7
#define SECOND_OF_8 0, 2, 4, 6, 9, 11, 13, 15
#define SECOND_OF_16 0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31
#if defined(__AVX512F__)
#define SECOND_F32 SECOND_OF_16
#define SECOND_F64 SECOND_OF_8
#elif defined(__FMA__)
#define SECOND_F32 SECOND_OF_8
#define SECOND_F64 SECOND_OF_4
#else
#define SECOND_F32 SECOND_OF_4
#define SECOND_F64 SECOND_OF_2
#endif

OG_FN vector_f32 load_second_f32(const float *from)
{
    return SHUFFLE(*(const unaligned_f32 *)from, *(const unaligned_f32 *)(from + F32_LANES - 1),
                   SECOND_F32);
}

OG_FN vector_f64 load_second_f64(const double *from)
{
    return SHUFFLE(*(const unaligned_f64 *)from, *(const unaligned_f64 *)(from + F64_LANES - 1),
                   SECOND_F64);
}

/* ---- copying operands into the order of the micro-kernel ------------------------ */

/* Rows of a panel for which turning vectors pays: fewer are copied one by one. */
enum { FEWEST_TURNED = 4 };

/* As transpose_f32, of the first `some` elements of each row, which may be all that there is. */
OG_FN void transpose_some(const og_dtype dtype, const char *const rows[F32_LANES], int64_t some,
                          vector_f32 t[F32_LANES])
{
    char padded[F32_LANES][VECTOR_BYTES] = {{0}};
    const char *from[F32_LANES];
    for (int u = 0; u < F32_LANES; u++) {
        memcpy(padded[u], rows[u], (size_t)(some * bytes_of(dtype)));
        from[u] = padded[u];
    }
    transpose_f32(dtype, from, 0, t);
}

/* to[i * to_stride + j] = element (a0 + i, b0 + j), rows x columns of them, from
 * memory where neighbours along i lie next to each other, up to i = limit. From
 * FEWEST_TURNED rows on `to` has room for whole vectors along i. */
OG_FN void copy_transposed(const og_dtype dtype, const char *from, int64_t j_stride, int64_t rows,
                           int64_t limit, int64_t columns, float *to, int64_t to_stride)
{
    int64_t bytes = bytes_of(dtype),
            turned = rows < FEWEST_TURNED ? 0 : columns / F32_LANES * F32_LANES;
    for (int64_t i = 0; i < rows; i += F32_LANES) {
        int64_t some = og_min(F32_LANES, limit - i);
        for (int64_t j = 0; j < turned; j += F32_LANES) {
            const char *p[F32_LANES];
            vector_f32 t[F32_LANES];
            for (int u = 0; u < F32_LANES; u++)
                p[u] = from + (i + (j + u) * j_stride) * bytes;
            if (some == F32_LANES)
                transpose_f32(dtype, p, 0, t);
            else
                transpose_some(dtype, p, some, t);
            for (int u = 0; u < F32_LANES; u++)
                *(unaligned_f32 *)(to + (i + u) * to_stride + j) = t[u];
        }
        for (int64_t u = i; u < og_min(rows, i + F32_LANES); u++)
            for (int64_t j = turned; j < columns; j++)
                to[u * to_stride + j] = load_element_f32(dtype, from, u + j * j_stride);
    }
}

OG_FN void copy_row(const og_dtype dtype, const char *from, int64_t stride, int64_t count,
                    float *to)
{
    if (stride != 1) {
        for (int64_t k = 0; k < count; k++)
            to[k] = load_element_f32(dtype, from, k * stride);
    } else if (dtype == OG_FLOAT32) {
        memcpy(to, from, (size_t)count * sizeof *to);
    } else if (dtype == OG_FLOAT16) {
        og_load_f16(to, (const uint16_t *)(const void *)from, (size_t)count);
    } else {
        og_load_bf16(to, (const uint16_t *)(const void *)from, (size_t)count);
    }
}

OG_FN void copy_panel_of(const og_dtype dtype, const og_cpu_factor *left, int64_t m0, int64_t rows,
                         int64_t limit, int64_t k0, int64_t count, float *to)
{
    if (left->stride == 1 && left->k_stride != 1) {
        copy_transposed(dtype, find_row(dtype, left, m0, k0), left->k_stride, rows, limit, count,
                        to, LEFT_STRIDE);
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
                rows[i] = find_row(dtype, right, n0 + og_min(g + i, columns - 1), k0);
            int64_t k = 0;
            for (; k + count_turned(dtype) <= count; k += count_turned(dtype)) {
                vector_f32 t[2 * F32_LANES];
                turn_f32(dtype, rows, k, t);
                UNROLL for (int u = 0; u < count_turned(dtype); u++) *
                    (memory_f32 *)(to + (k + u) * F32_SLIVER + g) = t[u];
            }
            for (; k < count; k++)
                for (int i = 0; i < F32_LANES; i++)
                    to[k * F32_SLIVER + g + i] = load_element_f32(dtype, rows[i], k);
        }
        return;
    }
    bool whole = right->stride == 1 && columns % F32_LANES == 0;
    for (int64_t k = 0; k < count; k++, to += F32_SLIVER) {
        const char *from = find_row(dtype, right, n0, k0 + k);
        if (whole) {
            for (int64_t n = 0; n < columns; n += F32_LANES)
                *(memory_f32 *)(to + n) = load_vector_f32(dtype, from + n * bytes_of(dtype));
            continue;
        }
        for (int64_t n = 0; n < padded; n++)
            to[n] = load_element_f32(dtype, from, og_min(n, columns - 1) * right->stride);
    }
}

#define REAL float
#define P(name) name##_f32
#define LINE_DTYPES(X) X(OG_FLOAT32) X(OG_FLOAT16) X(OG_BFLOAT16)
#define LINE_VECTOR unaligned_f32
#define LINE_LANES F32_LANES
#define MOST_SLIVER F32_SLIVER
#define PACK_MATRIX(matrix, columns, count, to)                                                    \
    pack_sliver_of(OG_FLOAT32, matrix, 0, columns, 0, count, to)
#include "cpu/cpu_product_view.h"

/* A sliver holds whole vectors: columns that are not there are 0. */
#define PACK_VIEW(type, lanes, sliver)                                                             \
    do {                                                                                           \
        int64_t padded = (columns + (lanes)-1) / (lanes) * (lanes);                                \
        for (int64_t k = 0; k < count && columns < padded; k++)                                    \
            memset(to + k * (sliver) + columns, 0, (size_t)(padded - columns) * sizeof *to);       \
        copy_view_##type(right, n0, columns, k0, count, to, 1, sliver);                            \
    } while (0)

static void copy_panel_f32(const og_cpu_factor *left, int64_t m0, int64_t rows, int64_t limit,
                           int64_t k0, int64_t count, float *to)
{
    if (left->view)
        copy_view_f32(left, m0, rows, k0, count, to, LEFT_STRIDE, 1);
    else if (left->dtype == OG_FLOAT32)
        copy_panel_of(OG_FLOAT32, left, m0, rows, limit, k0, count, to);
    else if (left->dtype == OG_FLOAT16)
        copy_panel_of(OG_FLOAT16, left, m0, rows, limit, k0, count, to);
    else
        copy_panel_of(OG_BFLOAT16, left, m0, rows, limit, k0, count, to);
}

static void pack_sliver_f32(const og_cpu_factor *right, int64_t n0, int64_t columns, int64_t k0,
                            int64_t count, float *to)
{
    if (right->view)
        PACK_VIEW(f32, F32_LANES, F32_SLIVER);
    else if (right->dtype == OG_FLOAT32)
        pack_sliver_of(OG_FLOAT32, right, n0, columns, k0, count, to);
    else if (right->dtype == OG_FLOAT16)
        pack_sliver_of(OG_FLOAT16, right, n0, columns, k0, count, to);
    else
        pack_sliver_of(OG_BFLOAT16, right, n0, columns, k0, count, to);
}

#define REAL double
#define P(name) name##_f64
#define LINE_DTYPES(X) X(OG_FLOAT64)
#define LINE_VECTOR unaligned_f64
#define LINE_LANES F64_LANES
#define MOST_SLIVER F64_SLIVER
#define PACK_MATRIX(matrix, columns, count, to) pack_sliver_f64(matrix, 0, columns, 0, count, to)
static void pack_sliver_f64(const og_cpu_factor *right, int64_t n0, int64_t columns, int64_t k0,
                            int64_t count, double *to);
#include "cpu/cpu_product_view.h"

static void copy_panel_f64(const og_cpu_factor *left, int64_t m0, int64_t rows, int64_t limit,
                           int64_t k0, int64_t count, double *to)
{
    (void)limit;
    if (left->view) {
        copy_view_f64(left, m0, rows, k0, count, to, LEFT_STRIDE, 1);
        return;
    }
    const double *from = (const double *)left->data + m0 * left->stride + k0 * left->k_stride;
    for (int64_t i = 0; i < rows; i++, from += left->stride, to += LEFT_STRIDE) {
        if (left->k_stride == 1)
            memcpy(to, from, (size_t)count * sizeof *to);
        else
            for (int64_t k = 0; k < count; k++)
                to[k] = from[k * left->k_stride];
    }
}

/* F64_LANES columns, of which the last may be there several times for want of more. */
OG_FN void pack_columns_f64(const char *const columns[F64_LANES], int64_t k_stride, int64_t count,
                            double *to)
{
    int64_t k = 0;
    for (; k_stride == 1 && k + F64_LANES <= count; k += F64_LANES) {
        vector_f64 t[F64_LANES];
        transpose_f64(columns, k, t);
        UNROLL for (int u = 0; u < F64_LANES; u++) * (memory_f64 *)(to + (k + u) * F64_SLIVER) =
            t[u];
    }
    for (; k < count; k++)
        for (int i = 0; i < F64_LANES; i++)
            to[k * F64_SLIVER + i] = ((const double *)(const void *)columns[i])[k * k_stride];
}

static void pack_sliver_f64(const og_cpu_factor *right, int64_t n0, int64_t columns, int64_t k0,
                            int64_t count, double *to)
{
    if (right->view) {
        PACK_VIEW(f64, F64_LANES, F64_SLIVER);
        return;
    }
    for (int64_t n = 0; n < columns; n += F64_LANES) {
        const char *from[F64_LANES];
        for (int64_t i = 0; i < F64_LANES; i++)
            from[i] = find_row(OG_FLOAT64, right, n0 + og_min(n + i, columns - 1), k0);
        if (right->stride == 1 && n + F64_LANES <= columns)
            for (int64_t k = 0; k < count; k++)
                *(memory_f64 *)(to + k * F64_SLIVER + n) =
                    ((const unaligned_f64 *)(const void *)(from[0] + k * right->k_stride * 8))[0];
        else
            pack_columns_f64(from, right->k_stride, count, to + n);
    }
}

OG_FN vector_f64 load_vector_f64(const og_dtype dtype, const void *from)
{
    (void)dtype;
    return *(const unaligned_f64 *)from;
}

/* ---- products of one type ---------------------------------------------------------- */

#define REAL float
#define VECTOR vector_f32
#define MEMORY memory_f32
#define LANES F32_LANES
#define PANEL F32_PANEL
#define VECTORS F32_VECTORS
#define KERNELS ALL_KERNELS
#define FMA FMA_F32
#define FMA_ONE og_fma_f32
#define SPLAT SPLAT_F32
#define DTYPES(X, a) X(a, OG_FLOAT32) X(a, OG_FLOAT16) X(a, OG_BFLOAT16)
#define TRANSPOSE(dtype, rows, element, t) transpose_f32(dtype, rows, element, t)
#define UNALIGNED unaligned_f32
#define P(name) name##_f32
#include "cpu/cpu_product_core.h"
#include "cpu/cpu_product_places.h"
#include "cpu/cpu_product_few.h"

#define REAL double
#define VECTOR vector_f64
#define MEMORY memory_f64
#define LANES F64_LANES
#define PANEL F32_PANEL
#define VECTORS F32_VECTORS
#define KERNELS ALL_KERNELS
#define FMA FMA_F64
#define FMA_ONE FMA_ONE_F64
#define SPLAT SPLAT_F64
#define DTYPES(X, a) X(a, OG_FLOAT64)
#define TRANSPOSE(dtype, rows, element, t) transpose_f64(rows, element, t)
#define UNALIGNED unaligned_f64
#define P(name) name##_f64
#include "cpu/cpu_product_core.h"
#include "cpu/cpu_product_places.h"
#include "cpu/cpu_product_few.h"

/* ---- entries ------------------------------------------------------------------------ */

static size_t count_work(const og_cpu_tiling *t, bool f64, bool plain)
{
    if (t->way == OG_CPU_PRODUCT_EMPTY)
        return 0;
    if (t->way == OG_CPU_PRODUCT_PACKED || t->way == OG_CPU_PRODUCT_DOTS)
        return round_up(f64 ? count_work_f64(t) : count_work_f32(t));
    int64_t groups = t->k > OG_PRODUCT_GROUP ? t->tile_n : 0;
    int64_t copied = plain ? 0 : OG_PRODUCT_BLOCK + (f64 ? F64_LANES : F32_LANES);
    if (!plain && copies_rows(t) && t->k > copied)
        copied = t->k;
    return round_up((size_t)(t->tile_m * (groups + copied)) *
                    (f64 ? sizeof(double) : sizeof(float)));
}

static int64_t count_tiles(const og_cpu_tiling *t)
{
    return ((t->m + t->tile_m - 1) / t->tile_m) * ((t->n + t->tile_n - 1) / t->tile_n);
}

static og_cpu_tiling cut(int64_t m, int64_t n, int64_t k, const og_cpu_factors *factors, int count,
                         bool whole, bool lean, int64_t tile_count, size_t thread_bytes)
{
    og_cpu_tiling t = {.m = m, .n = n, .k = k};
    bool f64 = factors[0].left.dtype == OG_FLOAT64, direct = true, plain = true, in_rows = true;
    bool prepacked = false, packs = false, converts = false;
    for (int i = 0; i < count; i++) {
        prepacked |= factors[i].prepacked;
        packs |= !factors[i].prepacked;
        converts |= bytes_of(factors[i].right.dtype) == 2;
        direct &= factors[i].right.k_stride == 1 || factors[i].right.stride == 1;
        direct &= !factors[i].left.view && !factors[i].right.view;
        plain &= is_plain(&factors[i].left);
        in_rows &= factors[i].right.k_stride == 1;
    }
    direct &= m <= DIRECT_ROWS || lean;
    direct &= !factors[0].paired && !prepacked;
    t.way = k == 0              ? OG_CPU_PRODUCT_EMPTY
            : factors[0].paired ? OG_CPU_PRODUCT_DOTS
            : direct            ? OG_CPU_PRODUCT_DIRECT
                                : OG_CPU_PRODUCT_PACKED;
    t.tile_m = og_min(m, direct ? DIRECT_ROWS : lean && prepacked ? F32_PANEL : TILE_M / count);
    t.tile_n = OG_PRODUCT_WHOLE;
    while (t.tile_n > OG_PRODUCT_COLUMNS && t.tile_n / 2 >= n)
        t.tile_n /= 2;
    int64_t least_n = whole ? t.tile_n : OG_PRODUCT_COLUMNS;
    if ((m <= 32 && in_rows && !prepacked) || lean)
        t.tile_n = least_n;
    while (t.tile_n > least_n && count_tiles(&t) < tile_count)
        t.tile_n /= 2;
    while (t.tile_m > 4 * F32_PANEL && count_tiles(&t) < tile_count / 2)
        t.tile_m = (t.tile_m + 1) / 2;
    t.slab = packs || (converts && t.tile_m > F32_PANEL);
    for (;; t.tile_n /= 2) {
        t.slab_n = t.tile_n;
        t.sum_bytes = (size_t)(t.tile_m * t.tile_n) * (f64 ? sizeof(double) : sizeof(float));
        t.work_bytes = count_work(&t, f64, plain);
        if (t.tile_n == least_n || (size_t)count * t.sum_bytes + t.work_bytes <= thread_bytes)
            break;
    }
    int64_t sliver = f64 ? F64_SLIVER : F32_SLIVER;
    if (t.way == OG_CPU_PRODUCT_DOTS) {
        t.slab_n = 2 * sliver; /* of left and of right */
        t.work_bytes = count_work(&t, f64, plain);
    } else if ((size_t)count * t.sum_bytes + t.work_bytes > thread_bytes) {
        t.slab_n = sliver;
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
    } else if (t->way == OG_CPU_PRODUCT_DIRECT && f64) {
        run_direct_f64(t, factors, m0, rows, n0, columns, sums, work);
    } else if (t->way == OG_CPU_PRODUCT_DIRECT) {
        run_direct_f32(t, factors, m0, rows, n0, columns, sums, work);
    } else if (t->way == OG_CPU_PRODUCT_PLACES && f64) {
        run_places_f64(t, factors, m0, rows, n0, columns, sums, work);
    } else if (t->way == OG_CPU_PRODUCT_PLACES) {
        run_places_f32(t, factors, m0, rows, n0, columns, sums, work);
    } else if (f64) {
        tile_job_f64 j = start_tile_f64(t, factors, sums, work);
        j.m0 = m0, j.rows = rows, j.n0 = n0, j.columns = columns;
        if (t->way == OG_CPU_PRODUCT_DOTS)
            run_dots_f64(&j);
        else
            run_packed_f64(&j);
    } else {
        tile_job_f32 j = start_tile_f32(t, factors, sums, work);
        j.m0 = m0, j.rows = rows, j.n0 = n0, j.columns = columns;
        if (t->way == OG_CPU_PRODUCT_DOTS)
            run_dots_f32(&j);
        else
            run_packed_f32(&j);
    }
}

static void pack(const og_cpu_factor *filters, int64_t n, int64_t k, int64_t sliver, void *to)
{
    if (filters->dtype == OG_FLOAT64)
        pack_filters_f64(filters, n, k, sliver, to);
    else
        pack_filters_f32(filters, n, k, sliver, to);
}

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
const og_cpu_product_kernels JOIN(og_cpu_product_kernels_, OG_CPU_LEVEL) = {F32_PANEL, F32_SLIVER,
                                                                            cut, make_tile, pack};
