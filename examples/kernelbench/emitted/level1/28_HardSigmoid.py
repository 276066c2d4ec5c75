# SPDX-License-Identifier: MIT
# Made by `ogive emit --pytorch` 0.1.0 from
#
#     hardsigmoid(x)
#
# It needs PyTorch (2.3 or later) alone, and nvcc for tensors on a GPU, whose kernels are
# built at the first call (half a minute; PyTorch keeps them for the next process).
#
# Tensors (sizes of one name must be equal; everything is checked at run time):
#   x            any shape
# float32, float16, bfloat16 (computed in float32, rounded once) or float64, one dtype
# for all; any strides. On a GPU always these kernels, on the tensors' device and its
# current stream; on the CPU plain PyTorch operations (_plain below).
#
# What is here, in this order (where home cannot be written to, set TORCH_EXTENSIONS_DIR):
#   ARGS, CUDA_SHARED           what kernels are given; templates of kernels, functions
#   CUDA_FORWARD, _BACKWARD     the formula and its derivative, element by element
#   LAUNCH_*                    grids and scratch: the end of the CUDA source
#   HOST_*                      the C++ source: checks tensors, binds them, launches
#   _build, _Formula            what compiles both, and records gradients
#   _plain, _call, the module   the formula in PyTorch's operations; which of the two
#
# Kernels, and those of the gradient, which is computed from the inputs again:
#   Forward0   pointwise
#   Backward0   pointwise
import functools
import hashlib
import inspect
import math
import os
import shutil

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable
from torch.utils import cpp_extension

# What launches are given.
ARGS = r'''#ifdef __CUDACC_RTC__
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#else
#include <stdint.h>
#endif

/* What every kernel below stands on. A kernel visits a space: `kept` dims, whose indices
 * are rows, then `reduced` dims, the elements of a row. Operands (inputs, results, and
 * what one kernel keeps for the next) are read and written by strides over these dims,
 * so that any shape, stride and broadcast is the same code. Sizes and strides are
 * arguments: nothing is compiled again for another shape. */
constexpr int MAX_DIMS = 8, MAX_OPERANDS = 24, MAX_NUMBERS = 16, THREADS = 256;

struct Args {
    int kept, reduced;
    long long extent[MAX_DIMS];                 /* kept dims, then reduced ones */
    void *data[MAX_OPERANDS];
    long long stride[MAX_OPERANDS][MAX_DIMS];   /* in elements; 0: broadcast */
    unsigned vectors;                           /* bit i: operand i moves by 16 bytes */
    double number[MAX_NUMBERS];                 /* scalars, and counts of elements */
};

/* What launches are given besides: memory that stays until they have run. */
struct Launching {
    void *stream;
    void *(*allocate)(void *held, long long bytes);
    void *held;
};
'''

# Device code.
CUDA_SHARED = r'''
/* Functions are Ogive's own: explicit fused multiply-adds, no approximate instructions,
 * compiled with --fmad=false. They give the same bits on every GPU. */
#define OG_FN static __device__ __forceinline__

OG_FN uint32_t og_bits_f32(float x) { return (uint32_t)__float_as_int(x); }
OG_FN float og_float_bits(uint32_t u) { return __int_as_float((int)u); }

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

/* A true division by six: PyTorch's CPU bits (its CUDA kernel multiplies). */
OG_FN float og_hardsigmoid_f32(float x)
{
    float y = x + 3.0f;
    y = y < 0.0f ? 0.0f : y;
    y = y > 6.0f ? 6.0f : y;
    return y / 6.0f;
}

OG_FN double og_hardsigmoid_f64(double x)
{
    double y = x + 3.0;
    y = y < 0.0 ? 0.0 : y;
    y = y > 6.0 ? 6.0 : y;
    return y / 6.0;
}

OG_FN float f_hardsigmoid(float x0) { return og_hardsigmoid_f32(x0); }
OG_FN double f_hardsigmoid(double x0) { return og_hardsigmoid_f64(x0); }

/* Pointwise: a thread takes a vector of 16 bytes along the innermost dim. Each operand moves
 * as a whole vector where it lies so (a.vectors), else element by element. */
template <class E, int V> struct alignas(sizeof(E) * V < 16 ? sizeof(E) * V : 16) Vector {
    E e[V];
};

template <class E, class C, int V>
__device__ __forceinline__ void load_vector(const E *from, bool whole, long long step, int count,
                                            C *to)
{
    if (whole) {
        Vector<E, V> v = *(const Vector<E, V> *)from;
#pragma unroll
        for (int e = 0; e < V; e++)
            to[e] = (C)number_of(v.e[e]);
    } else {
#pragma unroll
        for (int e = 0; e < V; e++)
            to[e] = e < count ? (C)number_of(from[e * step]) : (C)0;
    }
}

/* In so many words: the compiler else makes several stores of it, to share them with those
 * element by element. */
__device__ __forceinline__ void store_words(void *to, const uint4 &w)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(w.x), "r"(w.y),
                 "r"(w.z), "r"(w.w)
                 : "memory");
}

template <class E, class C, int V>
__device__ __forceinline__ void store_vector(E *to, bool whole, long long step, int count,
                                             const C *from)
{
    if (whole) {
        union {
            Vector<E, V> v;
            uint4 words[sizeof(E) * V / 16];
        } x;
#pragma unroll
        for (int e = 0; e < V; e++)
            put(from[e], x.v.e[e]);
#pragma unroll
        for (int w = 0; w < (int)sizeof(E) * V / 16; w++)
            store_words((uint4 *)to + w, x.words[w]);
    } else {
#pragma unroll
        for (int e = 0; e < V; e++)
            if (e < count)
                put(from[e], to[e * step]);
    }
}

/* The vector whose first element is at at[], of which count elements are there. flat: all that
 * moves moves by 16 bytes. in: [load][element] */
template <class S, class T, class C, bool flat>
__device__ __forceinline__ void load_operands(const Args &a, const long long *at, int inner,
                                              int count, C (*in)[16 / sizeof(T)])
{
    constexpr int V = 16 / sizeof(T);
#pragma unroll
    for (int l = 0; l < S::LOADS; l++) {
        const int i = S::loaded(l);
        const long long step = a.stride[i][inner];
        const bool whole = flat ? step != 0 : (a.vectors >> i & 1) && count == V;
        if (S::KEPT >> i & 1)
            load_vector<C, C, V>((const C *)a.data[i] + at[i], whole, step, count, in[l]);
        else
            load_vector<T, C, V>((const T *)a.data[i] + at[i], whole, step, count, in[l]);
    }
}

template <class S, class T, class C, bool flat>
__device__ __forceinline__ void finish_vector(const Args &a, const long long *at, int inner,
                                              int count, const C (*in)[16 / sizeof(T)])
{
    constexpr int V = 16 / sizeof(T);
    C out[S::STORES][V];
#pragma unroll
    for (int v = 0; v < V; v++) {
        C x[S::LOADS ? S::LOADS : 1], y[S::STORES];
#pragma unroll
        for (int l = 0; l < S::LOADS; l++)
            x[l] = in[l][v];
        S::template element<C>(a.number, x, (const C *)0, (const C *)0, y, (C *)0);
#pragma unroll
        for (int s = 0; s < S::STORES; s++)
            out[s][v] = y[s];
    }
#pragma unroll
    for (int s = 0; s < S::STORES; s++) {
        const int i = S::stored(s);
        const long long step = a.stride[i][inner];
        const bool whole = flat || ((a.vectors >> i & 1) && count == V);
        if (S::KEPT >> i & 1)
            store_vector<C, C, V>((C *)a.data[i] + at[i], whole, step, count, out[s]);
        else
            store_vector<T, C, V>((T *)a.data[i] + at[i], whole, step, count, out[s]);
    }
}

template <class S, class T>
__device__ __forceinline__ void apply_vector(const Args &a, const long long *at, int inner,
                                             int count)
{
    typedef typename ComputedIn<T>::type C;
    C in[S::LOADS ? S::LOADS : 1][16 / sizeof(T)];
    load_operands<S, T, C, false>(a, at, inner, count, in);
    finish_vector<S, T, C, false>(a, at, inner, count, in);
}

/* One dim, along which every operand lies in vectors or stands still. Small blocks, of one or
 * two vectors a thread, whose loads are all under way before anything is computed. On an H200,
 * 4096 x 393216 floats, a block of 128 vectors as 64 threads of two takes 3.02 ms for a sigmoid
 * and for a hardsigmoid, 128 threads of two 3.03, 128 of one 3.05 and 3.00, 64 of one 3.8. */
template <class S> struct Flat {
    static constexpr int BATCH = S::LOADS > 1 ? 1 : 2, THREADS = 128 / BATCH;
};

template <template <int> class K, class T>
__global__ void __launch_bounds__(Flat<K<0>>::THREADS) pointwise_flat(const Args a)
{
    typedef K<0> S;
    typedef typename ComputedIn<T>::type C;
    constexpr int V = 16 / sizeof(T), BATCH = Flat<S>::BATCH, EACH = Flat<S>::THREADS;
    const long long first = (long long)blockIdx.x * (EACH * BATCH * V);
    long long at[BATCH][S::OPERANDS];
#pragma unroll
    for (int b = 0; b < BATCH; b++)
#pragma unroll
        for (int i = 0; i < S::OPERANDS; i++)
            at[b][i] = (first + (b * EACH + (int)threadIdx.x) * V) * a.stride[i][0];
    if (a.extent[0] - first >= EACH * BATCH * V) {
        C in[BATCH][S::LOADS ? S::LOADS : 1][V];
#pragma unroll
        for (int b = 0; b < BATCH; b++)
            load_operands<S, T, C, true>(a, at[b], 0, V, in[b]);
#pragma unroll
        for (int b = 0; b < BATCH; b++)
            finish_vector<S, T, C, true>(a, at[b], 0, V, in[b]);
        return;
    }
#pragma unroll
    for (int b = 0; b < BATCH; b++) {
        const long long left = a.extent[0] - first - (b * EACH + (int)threadIdx.x) * V;
        if (left > 0)
            apply_vector<S, T>(a, at[b], 0, left < V ? (int)left : V);
    }
}

/* Any strides. Index is int where that is enough. */
template <template <int> class K, class T, class Index>
__global__ void __launch_bounds__(THREADS) pointwise(const Args a)
{
    typedef K<0> S;
    constexpr int V = 16 / sizeof(T);
    const int inner = a.kept - 1;
    const Index extent = (Index)a.extent[inner], along = (extent + V - 1) / V;
    const Index vector = (Index)blockIdx.x * THREADS + threadIdx.x;
    const Index line = vector / along, e = (vector - line * along) * V;
    Index lines = 1;
    for (int d = 0; d < inner; d++)
        lines *= (Index)a.extent[d];
    if (line >= lines)
        return;
    long long at[S::OPERANDS] = {};
    move<S::OPERANDS>(a, line, 0, inner, at);
#pragma unroll
    for (int i = 0; i < S::OPERANDS; i++)
        at[i] += e * a.stride[i][inner];
    apply_vector<S, T>(a, at, inner, extent - e < V ? (int)(extent - e) : V);
}
'''

# The formula, kernel by kernel.
CUDA_FORWARD = r'''
/* Forward0: pointwise */
template <int sweep> struct Forward0;
template <> struct Forward0<0> : Sweep {
    static constexpr int OPERANDS = 2, LOADS = 1, STORES = 1;
    static __device__ constexpr int loaded(int i) { return 0; }
    static __device__ constexpr int stored(int i) { return 1; }
    template <class C> static __device__ __forceinline__ void
    element(const double *number, const C *in, const C *product, const C *row, C *out,
            C *term)
    {
        const C v0 = in[0]; /* x */
        const C v1 = f_hardsigmoid(v0);
        out[0] = v1;
    }
};
'''

# Its derivative.
CUDA_BACKWARD = r'''
/* Backward0: pointwise */
template <int sweep> struct Backward0;
template <> struct Backward0<0> : Sweep {
    static constexpr int OPERANDS = 3, LOADS = 2, STORES = 1;
    static __device__ constexpr int loaded(int i) { return i == 0 ? 0 : 1; }
    static __device__ constexpr int stored(int i) { return 2; }
    template <class C> static __device__ __forceinline__ void
    element(const double *number, const C *in, const C *product, const C *row, C *out,
            C *term)
    {
        const C v0 = in[0]; /* x */
        const C v1 = in[1]; /* grad */
        const C v2 = (C)-3;
        const bool v3 = v0 > v2;
        const C v4 = (C)3;
        const bool v5 = v0 < v4;
        const C v6 = (C)6;
        const C v7 = v1 / v6;
        const C v8 = (C)0;
        const C v9 = v5 ? v7 : v8;
        const C v10 = v3 ? v9 : v8;
        out[0] = v10;
    }
};
'''

# Grids and scratch.
LAUNCH_SHARED = r'''
/* Launches: from operands to grids, on the current device, without PyTorch. */
#include <cuda_runtime.h>
#include <stdlib.h>
#include <algorithm>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>

static void check_cuda(cudaError_t error)
{
    if (error != cudaSuccess)
        throw std::runtime_error(std::string("CUDA error: ") + cudaGetErrorString(error));
}

static void swap_dims(Args &a, int operands, int d, int e)
{
    std::swap(a.extent[d], a.extent[e]);
    for (int i = 0; i < operands; i++)
        std::swap(a.stride[i][d], a.stride[i][e]);
}

static void drop_dim(Args &a, int operands, int d, int dims)
{
    for (; d + 1 < dims; d++)
        swap_dims(a, operands, d, d + 1);
}

/* Of dims [first, first + count), of all `dims`: those of size 1 go, neighbours that every
 * operand walks as one become one; lead >= 0: in the order of that operand's memory. Returns
 * how many are left. */
static int simplify(Args &a, int operands, int first, int count, int dims, int lead)
{
    for (int d = first + count - 1; d >= first; d--)
        if (a.extent[d] == 1) {
            drop_dim(a, operands, d, dims--);
            count--;
        }
    for (int d = first + 1; lead >= 0 && d < first + count; d++)
        for (int e = d; e > first && std::abs(a.stride[lead][e]) > std::abs(a.stride[lead][e - 1]);
             e--)
            swap_dims(a, operands, e, e - 1);
    for (int d = first + count - 2; d >= first; d--) {
        bool joins = true;
        for (int i = 0; i < operands; i++)
            joins = joins && a.stride[i][d] == a.stride[i][d + 1] * a.extent[d + 1];
        if (!joins)
            continue;
        a.extent[d + 1] *= a.extent[d];
        drop_dim(a, operands, d, dims--);
        count--;
    }
    return count;
}

static int64_t count_of(const Args &a, int first, int count)
{
    int64_t n = 1;
    for (int d = first; d < first + count; d++)
        n *= a.extent[d];
    return n;
}

static int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

static unsigned grid_of(int64_t blocks)
{
    if (blocks >= INT64_C(1) << 31)
        throw std::invalid_argument("a tensor too large for one launch: " + std::to_string(blocks) +
                                    " blocks");
    return (unsigned)blocks;
}

/* f(element of that dtype), for dtype_number(dtype) */
template <class F> static void by_dtype(int dtype, F f)
{
    if (dtype == 0)
        f(float());
    else if (dtype == 1)
        f(Float16());
    else if (dtype == 2)
        f(Bfloat16());
    else
        f(double());
}

template <template <int> class K, class T>
static void run_pointwise(const Launching &l, Args a, int lead)
{
    typedef K<0> S;
    typedef typename ComputedIn<T>::type C;
    const int V = 16 / (int)sizeof(T);
    if (count_of(a, 0, a.kept) == 0)
        return;
    a.kept = simplify(a, S::OPERANDS, 0, a.kept, a.kept, lead);
    if (a.kept == 0) {
        a.extent[a.kept++] = 1;
        for (int i = 0; i < S::OPERANDS; i++)
            a.stride[i][0] = 1;
    }
    const int inner = a.kept - 1;
    bool is_flat = a.kept == 1;
    for (int i = 0; i < S::OPERANDS; i++) {
        const int64_t size = (S::KEPT >> i & 1) ? sizeof(C) : sizeof(T);
        bool whole = a.stride[i][inner] == 1 && (uintptr_t)a.data[i] % 16 == 0;
        for (int d = 0; d < inner; d++)
            whole = whole && a.stride[i][d] * size % 16 == 0;
        a.vectors |= (unsigned)whole << i;
        is_flat = is_flat && (whole || a.stride[i][inner] == 0);
    }
    const int64_t all = count_of(a, 0, inner) * divide_up(a.extent[inner], V);
    const int each = is_flat ? Flat<S>::THREADS * Flat<S>::BATCH : THREADS;
    const unsigned grid = grid_of(divide_up(all, each));
    const cudaStream_t stream = (cudaStream_t)l.stream;
    if (is_flat)
        pointwise_flat<K, T><<<grid, Flat<S>::THREADS, 0, stream>>>(a);
    else if (std::max(all + THREADS, (int64_t)a.extent[inner] + V) < INT64_C(1) << 31)
        pointwise<K, T, int><<<grid, THREADS, 0, stream>>>(a);
    else
        pointwise<K, T, long long><<<grid, THREADS, 0, stream>>>(a);
    check_cuda(cudaGetLastError());
}
'''

LAUNCH_FORWARD = r'''
void launch_Forward0(int dtype, const Launching &l, const Args &a)
{
    by_dtype(dtype, [&](auto t) {
        run_pointwise<Forward0, decltype(t)>(l, a, 1);
    });
}
'''

LAUNCH_BACKWARD = r'''
void launch_Backward0(int dtype, const Launching &l, const Args &a)
{
    by_dtype(dtype, [&](auto t) {
        run_pointwise<Backward0, decltype(t)>(l, a, 2);
    });
}
'''

# C++, of PyTorch's tensors.
HOST_SHARED = r'''
/* From PyTorch's tensors to kernel arguments. Everything runs on the tensors' device and its
 * current stream; errors are raised in Python. */
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#include <pybind11/stl.h>
#include <string.h>
#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

typedef at::Tensor Tensor;

static void check_tensor(const Tensor &t, const char *name, int64_t rank, const Tensor &first)
{
    TORCH_CHECK_TYPE(t.defined() && t.is_cuda() && t.layout() == at::kStrided, name,
                     " must be a dense CUDA tensor, as the other tensors are");
    TORCH_CHECK_VALUE(t.device() == first.device(), name, " is on ", t.device(),
                      ", another tensor on ", first.device(), ": expected one device");
    TORCH_CHECK_TYPE(t.scalar_type() == at::kFloat || t.scalar_type() == at::kHalf ||
                         t.scalar_type() == at::kBFloat16 || t.scalar_type() == at::kDouble,
                     name, " is ", t.scalar_type(),
                     ": expected float32, float16, bfloat16 or float64");
    TORCH_CHECK_TYPE(t.scalar_type() == first.scalar_type(), name, " is ", t.scalar_type(),
                     ", another tensor ", first.scalar_type(), ": expected one dtype");
    TORCH_CHECK_VALUE(t.dim() == rank, name, " has shape ", t.sizes(), ": this file was made for ",
                      rank, " dims");
}

static void check_size(const Tensor &t, const char *name, int64_t dim, int64_t expected)
{
    TORCH_CHECK_VALUE(t.size(dim) == expected, name, " has shape ", t.sizes(), ": expected size ",
                      expected, " in dim ", dim);
}

/* A result like the first of these that has its sizes and no holes, else contiguous. */
static Tensor new_result(at::IntArrayRef sizes, std::initializer_list<Tensor> likes,
                         const at::TensorOptions &options)
{
    for (const Tensor &like : likes)
        if (like.sizes() == sizes && like.is_non_overlapping_and_dense())
            return at::empty_strided(sizes, like.strides(), options);
    return at::empty(sizes, options);
}

static void bind_all(Args &a, int i, const Tensor &t)
{
    a.data[i] = t.data_ptr();
    std::copy(t.strides().begin(), t.strides().end(), a.stride[i]);
}

/* Memory for launches, kept until all of them are under way. */
struct Held {
    at::TensorOptions options;
    std::vector<Tensor> tensors;
};

static void *allocate(void *held, long long bytes)
{
    Held *to = (Held *)held;
    to->tensors.push_back(at::empty({(int64_t)bytes}, to->options.dtype(at::kByte)));
    return to->tensors.back().data_ptr();
}

/* By which launchers know a dtype. */
static int dtype_number(at::ScalarType dtype)
{
    return dtype == at::kFloat ? 0 : dtype == at::kHalf ? 1 : dtype == at::kBFloat16 ? 2 : 3;
}
'''

HOST_FORWARD = r'''
void launch_Forward0(int dtype, const Launching &l, const Args &a);

std::vector<at::Tensor> forward(const at::Tensor & x_)
{
    check_tensor(x_, "x", x_.dim(), x_);
    TORCH_CHECK_VALUE(x_.dim() <= MAX_DIMS, "x has ", x_.dim(), " dims: expected at most 8");
    const c10::DeviceGuard guard(x_.device());
    const at::ScalarType dtype = x_.scalar_type();
    const at::TensorOptions options = x_.options();
    Held held = {options, {}};
    const Launching launching = {c10::cuda::getCurrentCUDAStream(), allocate, &held};
    Tensor result0;
    { /* Forward0: pointwise */
        result0 = new_result(x_.sizes(), {x_}, options);
        Args a = {};
        a.kept = (int)x_.dim();
        std::copy(x_.sizes().begin(), x_.sizes().end(), a.extent);
        bind_all(a, 0, x_);
        bind_all(a, 1, result0);
        launch_Forward0(dtype_number(dtype), launching, a);
    }
    return {result0};
}
'''

HOST_BACKWARD = r'''
void launch_Backward0(int dtype, const Launching &l, const Args &a);

std::vector<at::Tensor> backward(const at::Tensor & x_, const at::Tensor & grad0_, const std::vector<bool> &needs)
{
    check_tensor(x_, "x", x_.dim(), x_);
    check_tensor(grad0_, "grad", x_.dim(), x_);
    for (int64_t d = 0; d < x_.dim(); d++)
        check_size(grad0_, "grad", d, x_.size(d));
    TORCH_CHECK_VALUE(x_.dim() <= MAX_DIMS, "x has ", x_.dim(), " dims: expected at most 8");
    const c10::DeviceGuard guard(x_.device());
    const at::ScalarType dtype = x_.scalar_type();
    const at::TensorOptions options = x_.options();
    Held held = {options, {}};
    const Launching launching = {c10::cuda::getCurrentCUDAStream(), allocate, &held};
    Tensor result0;
    { /* Backward0: pointwise */
        result0 = new_result(x_.sizes(), {x_, grad0_}, options);
        Args a = {};
        a.kept = (int)x_.dim();
        std::copy(x_.sizes().begin(), x_.sizes().end(), a.extent);
        bind_all(a, 0, x_);
        bind_all(a, 1, grad0_);
        bind_all(a, 2, result0);
        launch_Backward0(dtype_number(dtype), launching, a);
    }
    return {result0};
}
'''


def _build(kernels, launches, host, function):
    home = cpp_extension.CUDA_HOME
    if home is None or shutil.which(os.path.join(home, "bin", "nvcc")) is None:
        raise RuntimeError(
            "tensors on a GPU need nvcc to build this file's kernels, and none was found: "
            "install the CUDA toolkit and set CUDA_HOME; on the CPU nothing is needed")
    # Two sources, of which the CUDA has nothing of PyTorch: that takes nvcc a minute.
    cuda = ARGS + CUDA_SHARED + kernels + LAUNCH_SHARED + launches
    cpp = ARGS + HOST_SHARED + host
    lean = inspect.signature(cpp_extension.load_inline).parameters
    extension = cpp_extension.load_inline(
        name="ogive_" + hashlib.sha256((cuda + cpp).encode()).hexdigest()[:16],
        cpp_sources=cpp, cuda_sources=cuda, functions=[function],
        extra_cflags=["-O1"], extra_cuda_cflags=["-O3", "--fmad=false"],
        **{name: True for name in ("no_implicit_headers",) if name in lean})
    return getattr(extension, function)


@functools.lru_cache(maxsize=None)
def _forward():
    return _build(CUDA_FORWARD, LAUNCH_FORWARD, HOST_FORWARD, "forward")


@functools.lru_cache(maxsize=None)
def _backward():
    return _build(CUDA_BACKWARD, LAUNCH_BACKWARD, HOST_BACKWARD, "backward")


class _Formula(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        results = _forward()(x)
        return results[0]

    @staticmethod
    @once_differentiable
    def backward(ctx, grad0):
        x, = ctx.saved_tensors
        needs = [ctx.needs_input_grad[0]]
        grads = _backward()(x, grad0, needs)
        return (grads[0], )


def _plain(x):
    # The same formula in PyTorch's own operations: tensors on the CPU.
    return F.hardsigmoid(x)


def _call(x):
    if not (x.is_cuda):
        return _plain(x)
    if forward_ad._current_level >= 0 or torch.is_grad_enabled() and (
            x.requires_grad):
        return _Formula.apply(x)
    return _forward()(x)[0]


class ModelNew(nn.Module):
    def forward(self, x):
        return _call(x)
