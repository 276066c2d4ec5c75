/* SPDX-License-Identifier: MIT */
/* Functions are Ogive's own: explicit fused multiply-adds, no approximate instructions,
 * compiled with --fmad=false. They give the same bits on every GPU. */
#define OG_FN static __device__ __forceinline__

OG_FN uint32_t og_bits_f32(float x) { return (uint32_t)__float_as_int(x); }
OG_FN float og_float_bits(uint32_t u) { return __int_as_float((int)u); }
OG_FN uint64_t og_bits_f64(double x) { return (uint64_t)__double_as_longlong(x); }
OG_FN double og_double_bits(uint64_t u) { return __longlong_as_double((long long)u); }
OG_FN float og_fma_f32(float a, float b, float c) { return __fmaf_rn(a, b, c); }
OG_FN float og_fma_near_f32(float a, float b, float c) { return __fmaf_rn(a, b, c); }

/* 1 / x rounded to nearest, where 2^-100 < |x| < 2^100 (or x is NaN). */
OG_FN float og_reciprocal_normal_f32(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return __fmaf_rn(y, __fmaf_rn(-x, y, 1.0f), y);
}

OG_FN float og_f32_from_f16(unsigned short h)
{
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
    return x;
}

OG_FN unsigned short og_f16_from_f32(float x)
{
    unsigned short h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
}

OG_FN float og_f32_from_bf16(unsigned short h) { return og_float_bits((uint32_t)h << 16); }

OG_FN unsigned short og_bf16_from_f32(float x)
{
    const uint32_t u = og_bits_f32(x);
    return x != x ? 0x7fff : (unsigned short)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

template <class C> OG_FN C infinity() { return (C)og_float_bits(0x7f800000u); }

/* Bits of a half in memory. Halves are computed in float and rounded once, when stored. */
struct Float16 {
    unsigned short bits;
};
struct Bfloat16 {
    unsigned short bits;
};

template <class T> struct ComputedIn {
    typedef float type;
};
template <> struct ComputedIn<double> {
    typedef double type;
};

__device__ __forceinline__ float number_of(float x) { return x; }
__device__ __forceinline__ double number_of(double x) { return x; }
__device__ __forceinline__ float number_of(Float16 x) { return og_f32_from_f16(x.bits); }
__device__ __forceinline__ float number_of(Bfloat16 x) { return og_f32_from_bf16(x.bits); }
__device__ __forceinline__ void put(float x, float &to) { to = x; }
__device__ __forceinline__ void put(double x, double &to) { to = x; }
__device__ __forceinline__ void put(float x, Float16 &to) { to.bits = og_f16_from_f32(x); }
__device__ __forceinline__ void put(float x, Bfloat16 &to) { to.bits = og_bf16_from_f32(x); }

/* Element `at` of an operand: T in memory, but what a kernel keeps for the next is C. */
template <class T, class C>
__device__ __forceinline__ C load(const void *data, long long at, bool is_kept)
{
    return is_kept ? ((const C *)data)[at] : (C)number_of(((const T *)data)[at]);
}

template <class T, class C>
__device__ __forceinline__ void store(void *data, long long at, bool is_kept, C x)
{
    if (is_kept)
        ((C *)data)[at] = x;
    else
        put(x, ((T *)data)[at]);
}

/* Adds to at[] where index, counted over dims [first, first + count), is. */
template <int OPERANDS>
__device__ __forceinline__ void move(const Args &a, long long index, int first, int count,
                                     long long *at)
{
    for (int d = first + count - 1; d >= first; d--) {
        long long here = index;
        if (d > first) {
            index /= a.extent[d];
            here -= index * a.extent[d];
        }
#pragma unroll
        for (int i = 0; i < OPERANDS; i++)
            at[i] += here * a.stride[i][d];
    }
}

/* What a kernel computes is a struct for each sweep over its rows (a pointwise kernel has one).
 * It says which operands a sweep loads and stores, by place, has element() and, after it,
 * finish() for a row, and leaves out what is as here. */
struct Sweep {
    static constexpr int SWEEPS = 1, LOADS = 0, STORES = 0, TERMS = 0, MOST_TERMS = 0;
    static constexpr int ROW_LOADS = 0, ROW_STORES = 0, ROW_VALUES = 0;
    static constexpr int KEPT = 0;                       /* bit i: operand i is kept between kernels */
    static constexpr int PRODUCTS = 0, KEPT_FACTORS = 0; /* bit 2p, 2p + 1: so is a factor of product p */
    static __device__ constexpr int loaded(int) { return 0; }
    static __device__ constexpr int stored(int) { return 0; }
    static __device__ constexpr int row_loaded(int) { return 0; }
    static __device__ constexpr int row_stored(int) { return 0; }
    static __device__ constexpr int kind(int) { return 0; }   /* how term i is reduced */
    static __device__ constexpr int row_of(int) { return 0; } /* row[] that takes it */
    template <class C> static __device__ void finish(const double *, const C *, C *, C *) {}
};
