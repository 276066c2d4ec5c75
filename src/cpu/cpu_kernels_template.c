/* SPDX-License-Identifier: MIT
 *
 * cpu_kernels_template.c - the loops of one CPU level, as og_cpu_kernels_<level>.
 * Plain C that the compiler vectorises; only conversions of blocks of float16
 * (math/half_block.h) and stores of every second element name instructions. The bits are the
 * same at every level: all loops are element by element or in the order of plan.h.
 *
 * PARAMETERS
 *   OG_CPU_LEVEL   x86_64, x86_64_v3, x86_64_v4 or aarch64; the build sets it along
 *                  with the level's flags, and compiles this file once for each.
 */
#if defined(__clang__) /* float64 functions call libm: nothing to vectorise there */
#pragma clang diagnostic ignored "-Wpass-failed"
#endif
#include "cpu/cpu_kernels.h"
#include "math/half_block.h"
#include "math/scalar_f32.h"
#include "math/scalar_f64.h"
#include "plan/plan.h"

#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

/* Iterations may run side by side: see cpu_kernels.h on what may overlap. */
#if defined(__clang__)
#define PRAGMA(text) _Pragma(#text)
#define LOOP(i, n) PRAGMA(clang loop vectorize(assume_safety)) for (int64_t i = 0; i < (n); i++)
#else
#define LOOP(i, n) _Pragma("GCC ivdep") for (int64_t i = 0; i < (n); i++)
#endif

#if defined(OG_NO_UNROLLING) /* for a compiler that should be done soon */
#define UNROLL
#define UNROLL_WIDE
#elif defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#define UNROLL_WIDE UNROLL
#else
#define UNROLL _Pragma("GCC unroll 8") /* else gcc 12 keeps sums on the stack */
#define UNROLL_WIDE _Pragma("GCC unroll 16")
#endif
/* What has been added is added before anything else: gcc 12 would load and multiply first all that
 * comes in between, and keep it on the stack. Of 3 x 3 taps and 56 x 56 sums 586 -> 425 ns, Zen 5. */
#if defined(__aarch64__)
#define HOLD(x) __asm__("" : "+w"(x))
#elif defined(__AVX512F__)
#define HOLD(x) __asm__("" : "+v"(x))
#else
#define HOLD(x) __asm__("" : "+x"(x))
#endif
#define HOLD_LOADS() __asm__ volatile("" ::: "memory")

/* Vectors of sums over windows: OG_CPU_LINES times MOST_WIDE of them, as many more of terms and a
 * weight are in registers. */
#if defined(__AVX512F__)
#define WIDE_BYTES 64
#define WIDE_FLOATS 16
#define WIDE_DOUBLES 8
#define MOST_WIDE 4
#elif defined(__AVX__)
#define WIDE_BYTES 32
#define WIDE_FLOATS 8
#define WIDE_DOUBLES 4
#define MOST_WIDE 2
#else
#define WIDE_BYTES 16
#define WIDE_FLOATS 4
#define WIDE_DOUBLES 2
#if defined(__aarch64__)
#define MOST_WIDE 4
#else
#define MOST_WIDE 2
#endif
#endif

/* How memory is read matters more than how often accumulators in L1 are touched. One
 * Zen 4 core, GB/s: a row by 512 lanes as it lies 23, in four streams 2 KiB apart 13,
 * with software prefetches 17; columns row by row 12, four rows at a time 23,
 * eight 26. */

/* In place is an exact copy onto itself, hence memmove. */
static inline void copy_f32(float *dst, const float *src, int64_t n)
{
    memmove(dst, src, (size_t)n * sizeof *dst);
}

static inline void copy_f64(double *dst, const double *src, int64_t n)
{
    memmove(dst, src, (size_t)n * sizeof *dst);
}

/* dst[2 i] = src[i]: a phase of a transposed convolution's lines. What lies between is not touched.
 * Of Zen 5, masked stores of whole vectors take a fifth of the time of single elements. */
static inline void store_every_second(float *dst, const float *src, int64_t n)
{
    int64_t i = 0;
#if defined(__AVX512F__)
    const __m512i low = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    for (; i + 16 <= n; i += 16) {
        const __m512 x = _mm512_loadu_ps(src + i);
        _mm512_mask_storeu_ps(dst + 2 * i, 0x5555, _mm512_permutexvar_ps(low, x));
        _mm512_mask_storeu_ps(dst + 2 * i + 16, 0x5555, _mm512_permutexvar_ps(high, x));
    }
#endif
    for (; i < n; i++)
        dst[2 * i] = src[i];
}

static inline void load_block_f16(float *dst, const uint16_t *src, int64_t n)
{
    og_load_f16(dst, src, (size_t)n);
}

static inline void load_block_bf16(float *dst, const uint16_t *src, int64_t n)
{
    og_load_bf16(dst, src, (size_t)n);
}

static inline void store_block_f16(uint16_t *dst, const float *src, int64_t n)
{
    og_store_f16(dst, src, (size_t)n);
}

static inline void store_block_bf16(uint16_t *dst, const float *src, int64_t n)
{
    og_store_bf16(dst, src, (size_t)n);
}

#define IS_TRUE(x) ((x) != 0)

/* Integers and bool, into either type; bool also out of float32. */
#define DEFINE_LOAD(real, type, name, from)                                                        \
    static inline void load_block_##name(real *dst, const type *src, int64_t n)                    \
    {                                                                                              \
        LOOP(i, n) dst[i] = (real)from(src[i]);                                                    \
    }
#define DEFINE_LOADS(real, suffix)                                                                 \
    DEFINE_LOAD(real, uint8_t, bool_##suffix, IS_TRUE)                                             \
    DEFINE_LOAD(real, uint8_t, u8_##suffix, AS_IS)                                                 \
    DEFINE_LOAD(real, int8_t, i8_##suffix, AS_IS)                                                  \
    DEFINE_LOAD(real, int16_t, i16_##suffix, AS_IS)                                                \
    DEFINE_LOAD(real, int32_t, i32_##suffix, AS_IS)                                                \
    DEFINE_LOAD(real, int64_t, i64_##suffix, AS_IS)
#define INTEGER_LOADS(suffix)                                                                      \
    X(OG_BOOL, uint8_t, IS_TRUE, load_block_bool_##suffix)                                         \
    X(OG_UINT8, uint8_t, AS_IS, load_block_u8_##suffix)                                            \
    X(OG_INT8, int8_t, AS_IS, load_block_i8_##suffix)                                              \
    X(OG_INT16, int16_t, AS_IS, load_block_i16_##suffix)                                           \
    X(OG_INT32, int32_t, AS_IS, load_block_i32_##suffix)                                           \
    X(OG_INT64, int64_t, AS_IS, load_block_i64_##suffix)
#define AS_IS(x) (x)
DEFINE_LOADS(float, f32)
DEFINE_LOADS(double, f64)

static inline void store_block_bool(uint8_t *dst, const float *src, int64_t n)
{
    LOOP(i, n) dst[i] = IS_TRUE(src[i]);
}

#define TO_F16(x) og_f32_from_f16(og_f16_from_f32(x))
#define TO_BF16(x) og_f32_from_bf16(og_bf16_from_f32(x))
#define TO_F16_F64(x) og_f32_from_f16(og_f16_from_f64(x))
#define TO_BF16_F64(x) og_f32_from_bf16(og_bf16_from_f64(x))
#define TO_F32(x) ((float)(x))
#define TO_F64(x) ((double)(x))

#define REAL float
#define BITS int32_t
#define WIDE_HALVES 1
#define WIDE_LANES WIDE_FLOATS
#define F(name) name##_f32
#define L(name) name##_loop_f32
#define LOADS                                                                                      \
    X(OG_FLOAT32, float, AS_IS, copy_f32)                                                          \
    X(OG_FLOAT16, uint16_t, og_f32_from_f16, load_block_f16)                                       \
    X(OG_BFLOAT16, uint16_t, og_f32_from_bf16, load_block_bf16)                                    \
    INTEGER_LOADS(f32)
#define STORES                                                                                     \
    X(OG_FLOAT32, float, AS_IS, copy_f32)                                                          \
    X(OG_FLOAT16, uint16_t, og_f16_from_f32, store_block_f16)                                      \
    X(OG_BFLOAT16, uint16_t, og_bf16_from_f32, store_block_bf16)                                   \
    X(OG_BOOL, uint8_t, IS_TRUE, store_block_bool)
#define ROUNDS                                                                                     \
    X(OG_FLOAT32, float, AS_IS)                                                                    \
    X(OG_FLOAT16, float, TO_F16)                                                                   \
    X(OG_BFLOAT16, float, TO_BF16)                                                                 \
    X(OG_FLOAT64, double, TO_F64)
#include "cpu/cpu_loops.h"

#define REAL double
#define BITS int64_t
#define WIDE_HALVES 0
#define WIDE_LANES WIDE_DOUBLES
#define F(name) name##_f64
#define L(name) name##_loop_f64
#define LOADS X(OG_FLOAT64, double, AS_IS, copy_f64) INTEGER_LOADS(f64)
#define STORES X(OG_FLOAT64, double, AS_IS, copy_f64)
#define ROUNDS                                                                                     \
    X(OG_FLOAT32, float, TO_F32)                                                                   \
    X(OG_FLOAT16, float, TO_F16_F64)                                                               \
    X(OG_BFLOAT16, float, TO_BF16_F64)                                                             \
    X(OG_FLOAT64, double, AS_IS)
#include "cpu/cpu_loops.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
const og_cpu_kernels JOIN(og_cpu_kernels_, OG_CPU_LEVEL) = {
    &loops_loop_f32, &loops_loop_f64, &JOIN(og_cpu_product_kernels_, OG_CPU_LEVEL)};
