# SPDX-License-Identifier: MIT
# Made by `ogive emit --pytorch` 0.1.0 from
#
#     sigmoid(x)
#
# It needs PyTorch (2.3 or later) alone, and nvcc for tensors on a GPU, whose kernels are
# built when they are first needed (20 s; PyTorch keeps them for the next process).
#
# Tensors (sizes of one name must be equal; everything is checked at run time):
#   x            any shape
# float32, float16, bfloat16 (computed in float32, rounded once) or float64, one dtype
# for all; any strides. On a GPU always these kernels, on the tensors' device and its
# current stream; on the CPU plain PyTorch operations (_plain below).
#
# What is here, in this order (where home cannot be written to, set TORCH_EXTENSIONS_DIR):
#   ARGS                        what kernels are given
#   MATH                        functions of Ogive's that the formula calls
#   KERNELS                     loops over tensors; the formula and its derivative
#   HOST                        C++: checks tensors, binds them, launches kernels
#   _build, _Formula            what compiles them, and records gradients
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

# What kernels are given.
ARGS = r'''
#include <stdint.h>

constexpr int MAX_DIMS = 8, MAX_OPERANDS = 24, MAX_NUMBERS = 16;

struct Args {
    int dims;
    int64_t extent[MAX_DIMS], stride[MAX_OPERANDS][MAX_DIMS]; /* in elements */
    void *data[MAX_OPERANDS];                                 /* tensors, then results */
    double number[MAX_NUMBERS];                               /* that are no tensors */
    int64_t vectors, per_row; /* of 16 bytes: all, and of the last dim */
    int64_t whole_blocks; /* whose vectors are aligned and full */
};
'''

# Ogive's functions that the formula calls.
MATH = r'''
#define OG_FN static __device__ __forceinline__
#define og_bits_f32(x) __float_as_uint(x)
#define og_float_bits(u) __uint_as_float(u)

#define og_fma_near_f32(a, b, c) __fmaf_rn(a, b, c)

#define og_magnitude_f32(x, limit) (fabsf(x) > (limit) ? (limit) : fabsf(x))

#define og_restore_nan_f32(x, y) (y)

OG_FN float og_reciprocal_normal_f32(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return __fmaf_rn(y, __fmaf_rn(-x, y, 1.0f), y);
}

OG_FN float og_f32_from_f16(uint16_t h)
{
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(h));
    return y;
}

OG_FN uint16_t og_f16_from_f32(float x)
{
    uint16_t h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
}

OG_FN float og_f32_from_bf16(uint16_t h)
{
    return og_float_bits((uint32_t)h << 16);
}

OG_FN uint16_t og_bf16_from_f32(float x)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint16_t h;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
#else
    uint32_t u = og_bits_f32(x);
    uint32_t r = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    r = (u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : r;
    return (uint16_t)r;
#endif
}

#define OG_LOG2E_F32 0x1.715476p+0f
/* ln 2 = HI + LO; n*HI + x is exact in one fma when n = round(-x log2 e). */
#define OG_LN2_HI_F32 0x1.62e430p-1f
#define OG_LN2_LO_F32 -0x1.05c610p-29f

OG_FN float og_exp_q_f32(float r)
{
    float r2 = r * r;
    return og_fma_near_f32(
        og_fma_near_f32(0x1.6ac682p-10f, r2, og_fma_near_f32(0x1.123ddep-7f, r, 0x1.555858p-5f)),
        r2, og_fma_near_f32(0x1.55548cp-3f, r, 0x1.fffffcp-2f));
}

#define OG_MAGIC_DOWN_F32 0x1.80017ep23f

/* f of 1/(1 + e^(a+al)) = scale * 2^-64 * f, scale * 2^-64 = 2^-n, for 0 <= a <= 120. */
OG_FN float og_sigmoid_split_f32(float a, float al, float *scale)
{
    float nf = og_fma_near_f32(a, -OG_LOG2E_F32, OG_MAGIC_DOWN_F32);
    *scale = og_float_bits(og_bits_f32(nf) << 23);
    float sc = *scale * 0x1p-64f;
    nf -= OG_MAGIC_DOWN_F32;
    float rh = og_fma_near_f32(nf, OG_LN2_HI_F32, a);
    float rl = og_fma_near_f32(nf, OG_LN2_LO_F32, al);
    float r = rh + rl;
    float w = og_fma_near_f32(r * r, og_exp_q_f32(r), rl);
    float e = (1.0f + sc) + (rh + w);
    float el = (((1.0f - e) + sc) + rh) + w;
    float d = og_reciprocal_normal_f32(e);
    float residual = og_fma_near_f32(-el, d, og_fma_near_f32(-e, d, 1.0f));
    return og_fma_near_f32(d, residual, d);
}

OG_FN float og_sigmoid_f32(float x)
{
    float scale, f = og_sigmoid_split_f32(og_magnitude_f32(x, 104.0f), 0.0f, &scale);
    float s = scale * 0x1p-64f; /* 2^-n, exact down to the least subnormal, then 0 */
    float above = og_fma_near_f32(s, -f, og_restore_nan_f32(x, 1.0f));
    return x < 0.0f ? f * s : above;
}

/* 1/(1 + e^-x); below -40 the 1 is lost and e^x is the answer. */
OG_FN double og_sigmoid_f64(double x)
{
    return x < -40.0 ? exp(x) : 1.0 / (1.0 + exp(-x));
}
'''

# Loops over tensors, then the formula and its derivative.
KERNELS = r'''
/* Kernels of a file that has none but pointwise ones: one template for every dtype and layout. The
 * library's own (cuda/kernels/pointwise.cuh, which says what was measured) is compiled for a layout;
 * what an element is does not depend on who visits it. */
enum { THREADS = 128 };

/* Vectors that a thread takes of large tensors, as the library's own does. */
template <class T> constexpr int many = sizeof(T) == 2 ? 4 : 2;

/* Halves: computed with as float32, rounded once. */
struct float16 {
    uint16_t bits;
    float16() = default;
    __device__ float16(float x) : bits(og_f16_from_f32(x)) {}
    __device__ operator float() const { return og_f32_from_f16(bits); }
};

struct bfloat16 {
    uint16_t bits;
    bfloat16() = default;
    __device__ bfloat16(float x) : bits(og_bf16_from_f32(x)) {}
    __device__ operator float() const { return og_f32_from_bf16(bits); }
};

typedef float float32;
typedef double float64;

/* og_sigmoid<R>(x) is og_sigmoid_f32(x), or float64's. */
#define EITHER(name)                                                                               \
    template <class R, class... X> OG_FN auto name(X... x)                                         \
    {                                                                                              \
        if constexpr (sizeof(R) == 8)                                                              \
            return name##_f64(x...);                                                               \
        else                                                                                       \
            return name##_f32(x...);                                                               \
    }

/* What one instruction moves. */
template <class T> struct alignas(16) Vector {
    enum { count = 16 / sizeof(T) };
    T e[count];
};

template <class T> OG_FN bool is_vector(const T *p, int64_t step, int n)
{
    return step == 1 && n == Vector<T>::count && (uint64_t)p % 16 == 0;
}

/* n elements that lie `step` apart. */
template <class T> OG_FN Vector<T> gather(const T *p, int64_t step, int n)
{
    Vector<T> x;
#pragma unroll
    for (int i = 0; i < Vector<T>::count; i++)
        x.e[i] = p[i < n ? i * step : 0];
    return x;
}

template <class T> OG_FN void scatter(T *p, int64_t step, int n, const Vector<T> &x)
{
#pragma unroll
    for (int i = 0; i < Vector<T>::count; i++)
        if (i < n)
            p[i * step] = x.e[i];
}

/* As an instruction: nvcc (13) else makes several of it, to share some with scatter(). */
template <class T> OG_FN void store(T *p, const Vector<T> &x)
{
    const uint4 w = *(const uint4 *)&x;
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(w.x), "r"(w.y), "r"(w.z),
                 "r"(w.w)
                 : "memory");
}

/* How a vector lies: neighbours, aligned and all there; neighbours; anyhow. */
enum { WHOLE, FLAT, ANY };

/* A vector of every operand. */
template <class Formula, class T, int mode> struct Work {
    int64_t at[Formula::operands];
    Vector<T> x[Formula::operands];
    int n; /* elements */

    __device__ void seek(const Args &a, int64_t vector)
    {
        const int last = a.dims - 1;
        uint32_t row = mode == ANY ? (uint32_t)vector / (uint32_t)a.per_row : 0;
        const int64_t first = (vector - row * a.per_row) * Vector<T>::count;
        const int64_t left = vector < a.vectors ? a.extent[last] - first : 0;
        n = left < Vector<T>::count ? (int)left : Vector<T>::count;
#pragma unroll
        for (int t = 0; t < Formula::operands; t++)
            at[t] = mode == ANY ? first * a.stride[t][last] : first;
        for (int d = mode == ANY ? last - 1 : -1; d >= 0; d--) {
            const uint32_t rest = row / (uint32_t)a.extent[d], i = row - rest * (uint32_t)a.extent[d];
#pragma unroll
            for (int t = 0; t < Formula::operands; t++)
                at[t] += i * a.stride[t][d];
            row = rest;
        }
    }

    __device__ void read(const Args &a)
    {
#pragma unroll
        for (int t = 0; t < Formula::loads; t++) {
            const T *p = (const T *)a.data[t] + at[t];
            const int64_t step = mode == ANY ? a.stride[t][a.dims - 1] : 1;
            if (mode == WHOLE || is_vector(p, step, n))
                x[t] = *(const Vector<T> *)p;
            else if (n > 0)
                x[t] = gather(p, step, n);
        }
    }

    __device__ void compute(const Args &a)
    {
        decltype(T() + 0.0f) v[Formula::operands]; /* float, or double */
#pragma unroll
        for (int i = 0; i < Vector<T>::count; i++) {
#pragma unroll
            for (int t = 0; t < Formula::loads; t++)
                v[t] = x[t].e[i];
            Formula::compute(a, v);
#pragma unroll
            for (int t = Formula::loads; t < Formula::operands; t++)
                x[t].e[i] = v[t];
        }
    }

    __device__ void write(const Args &a)
    {
#pragma unroll
        for (int t = Formula::loads; t < Formula::operands; t++) {
            T *p = (T *)a.data[t] + at[t];
            const int64_t step = mode == ANY ? a.stride[t][a.dims - 1] : 1;
            if (mode == WHOLE || is_vector(p, step, n))
                store(p, x[t]);
            else
                scatter(p, step, n, x[t]);
        }
    }
};

/* Vectors of a thread, all of them read before the first is computed. */
template <class Formula, class T, int mode, int batch>
OG_FN void apply(const Args &a, int64_t first)
{
    Work<Formula, T, mode> work[batch];
#pragma unroll
    for (int i = 0; i < batch; i++) {
        work[i].seek(a, first + i * THREADS);
        work[i].read(a);
    }
    asm volatile("" ::: "memory");
#pragma unroll
    for (int i = 0; i < batch; i++) {
        work[i].compute(a);
        work[i].write(a);
    }
}

/* Tensors whose elements are all neighbours; most blocks have whole vectors only. */
template <class Formula, class T, int batch> OG_FN void apply_flat(const Args &a)
{
    const int64_t first = (int64_t)blockIdx.x * (batch * THREADS) + threadIdx.x;
    if (blockIdx.x < a.whole_blocks)
        apply<Formula, T, WHOLE, batch>(a, first);
    else
#pragma unroll 1
        for (int i = 0; i < batch; i++)
            apply<Formula, T, FLAT, 1>(a, first + i * THREADS);
}

#define KERNEL(formula, T, kind, ...)                                                              \
    extern "C" __global__ void __launch_bounds__(THREADS)                                          \
        formula##_##T##_##kind(const __grid_constant__ Args a)                                     \
    {                                                                                              \
        __VA_ARGS__;                                                                               \
    }
#define KERNELS_OF(formula, T)                                                                     \
    KERNEL(formula, T, one, apply_flat<formula, T, 1>(a))                                          \
    KERNEL(formula, T, many, (apply_flat<formula, T, many<T>>(a)))                                 \
    KERNEL(formula, T, any,                                                                        \
           apply<formula, T, ANY, 1>(a, (int64_t)blockIdx.x * THREADS + threadIdx.x))
#define LIST_OF(formula, T) formula##_##T##_one, formula##_##T##_many, formula##_##T##_any

/* A formula's kernels, and what launches one: of a dtype, flat with one vector a thread or
 * many, or any. */
#define KERNELS(formula)                                                                           \
    KERNELS_OF(formula, float32)                                                                   \
    KERNELS_OF(formula, float16)                                                                   \
    KERNELS_OF(formula, bfloat16)                                                                  \
    KERNELS_OF(formula, float64)                                                                   \
    extern "C" int launch_##formula(const Args &a, int dtype, int kind, int64_t blocks,            \
                                    void *stream)                                                  \
    {                                                                                              \
        void (*const kernels[])(Args) = {LIST_OF(formula, float32), LIST_OF(formula, float16),     \
                                         LIST_OF(formula, bfloat16), LIST_OF(formula, float64)};   \
        void *given[] = {(void *)&a};                                                              \
        return cudaLaunchKernel((const void *)kernels[3 * dtype + kind], dim3(blocks),             \
                                dim3(THREADS), given, 0, (cudaStream_t)stream);                    \
    }

EITHER(og_sigmoid)

struct Forward {
    enum { loads = 1, operands = 2 };
    template <class R> OG_FN void compute(const Args &a, R *x)
    {
        const R v0 = x[0];
        const R v1 = og_sigmoid<R>(v0);
        x[1] = v1;
    }
};
KERNELS(Forward)

struct Backward {
    enum { loads = 2, operands = 3 };
    template <class R> OG_FN void compute(const Args &a, R *x)
    {
        const R v0 = x[0];
        const R v1 = og_sigmoid<R>(v0);
        const R v2 = x[1];
        const R v3 = R(1);
        const R v4 = v3 - v1;
        const R v5 = v2 * v4;
        const R v6 = v5 * v1;
        x[2] = v6;
    }
};
KERNELS(Backward)
'''

# C++, of PyTorch's tensors.
HOST = r'''
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#include <pybind11/stl.h>
#include <stdlib.h>
#include <algorithm>
#include <vector>

typedef std::vector<at::Tensor> Tensors;
typedef int (*Launch)(const Args &a, int dtype, int kind, int64_t blocks, void *stream);

static int dtype_number(at::ScalarType dtype)
{
    const at::ScalarType all[] = {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble};
    return (int)(std::find(all, all + 4, dtype) - all);
}

static void check_tensor(const at::Tensor &t, const char *name, const at::Tensor &first)
{
    TORCH_CHECK_TYPE(t.defined() && t.is_cuda() && t.layout() == at::kStrided, name,
                     " must be a dense CUDA tensor, as the other tensors are");
    TORCH_CHECK_VALUE(t.device() == first.device(), name, " is on ", t.device(),
                      ", another tensor on ", first.device(), ": expected one device");
    TORCH_CHECK_TYPE(dtype_number(t.scalar_type()) < 4, name, " is ", t.scalar_type(),
                     ": expected float32, float16, bfloat16 or float64");
    TORCH_CHECK_TYPE(t.scalar_type() == first.scalar_type(), name, " is ", t.scalar_type(),
                     ", another tensor ", first.scalar_type(), ": expected one dtype");
    TORCH_CHECK_VALUE(t.sizes() == first.sizes() && t.dim() <= MAX_DIMS, name, " has shape ",
                      t.sizes(), ": expected that of the first tensor, ", first.sizes(),
                      ", of at most 8 dims");
}

/* A result like the first of these that has no holes, else contiguous. */
static at::Tensor new_result(const Tensors &likes)
{
    for (const at::Tensor &like : likes)
        if (like.is_non_overlapping_and_dense())
            return at::empty_strided(like.sizes(), like.strides(), like.options());
    return at::empty(likes[0].sizes(), likes[0].options());
}

/* Dims in the order of the first result in memory; those that all tensors walk as one are one. */
static void place(Args &a, const Tensors &tensors, const at::Tensor &lead)
{
    std::vector<int64_t> order;
    for (int64_t d = 0; d < lead.dim(); d++)
        if (lead.size(d) != 1)
            order.push_back(d);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t d, int64_t e) { return lead.stride(d) > lead.stride(e); });
    for (int64_t d : order) {
        bool joins = a.dims > 0;
        for (size_t t = 0; t < tensors.size() && joins; t++)
            joins = a.stride[t][a.dims - 1] == tensors[t].stride(d) * lead.size(d);
        const int64_t before = joins ? a.extent[--a.dims] : 1;
        for (size_t t = 0; t < tensors.size(); t++)
            a.stride[t][a.dims] = tensors[t].stride(d);
        a.extent[a.dims++] = before * lead.size(d);
    }
    if (a.dims == 0)
        a.extent[a.dims++] = 1;
    for (size_t t = 0; t < tensors.size(); t++)
        a.data[t] = tensors[t].data_ptr();
}

/* Blocks of 128 threads, each of which takes a vector of count elements, or of large tensors two, of
 * halves four; *kind: which kernel. */
static int64_t count_blocks(Args &a, size_t tensors, int64_t count, bool is_costly, int *kind)
{
    enum { ONE, MANY, ANY };
    const int64_t n = a.extent[a.dims - 1];
    bool is_flat = a.dims == 1;
    for (size_t t = 0; t < tensors; t++)
        is_flat = is_flat && a.stride[t][0] == 1 && (uint64_t)a.data[t] % 16 == 0;
    a.per_row = a.vectors = (n + count - 1) / count;
    for (int d = 0; d + 1 < a.dims; d++)
        a.vectors *= a.extent[d];
    *kind = !is_flat ? ANY : is_costly && n >> 22 ? MANY : ONE;
    const int64_t block = 128 * (*kind != MANY ? 1 : count < 8 ? 2 : 4); /* vectors */
    a.whole_blocks = n / count / block;
    TORCH_CHECK_VALUE(is_flat || a.vectors >> 32 == 0, "a tensor that is not contiguous, of ",
                      a.vectors * 16, " bytes: expected less than 64 GiB");
    return (a.vectors + block - 1) / block;
}

/* Runs a kernel on its tensors' device and current stream. reads: which of those given, in order. */
static Tensors run(Launch launch, bool is_costly, int results, const Tensors &given,
                   const std::vector<const char *> &names, const std::vector<int> &reads,
                   const std::vector<double> &numbers)
{
    for (size_t t = 0; t < given.size(); t++)
        check_tensor(given[t], names[t], given[0]);
    const c10::DeviceGuard guard(given[0].device());
    const int dtype = dtype_number(given[0].scalar_type());
    Args a = {};
    Tensors tensors, made;
    for (int read : reads)
        tensors.push_back(given[read]);
    for (int r = 0; r < results; r++)
        made.push_back(new_result(given));
    tensors.insert(tensors.end(), made.begin(), made.end());
    place(a, tensors, made[0]);
    std::copy(numbers.begin(), numbers.end(), a.number);
    const int64_t count = dtype == 3 ? 2 : dtype == 0 ? 4 : 8;
    int kind;
    const int64_t blocks = count_blocks(a, tensors.size(), count, is_costly, &kind);
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
    if (blocks)
        C10_CUDA_CHECK((cudaError_t)launch(a, dtype, kind, blocks, stream));
    return made;
}

extern "C" int launch_Forward(const Args &a, int dtype, int kind, int64_t blocks, void *stream);

std::vector<at::Tensor> forward(const at::Tensor &x_)
{
    return run(launch_Forward, true, 1, {x_}, {"x"}, {0}, {});
}

extern "C" int launch_Backward(const Args &a, int dtype, int kind, int64_t blocks, void *stream);

std::vector<at::Tensor> backward(const at::Tensor &x_, const at::Tensor &grad0_)
{
    return run(launch_Backward, true, 1, {x_, grad0_}, {"x", "grad"}, {0, 1}, {});
}
'''


@functools.lru_cache(maxsize=None)
def _build():
    home = cpp_extension.CUDA_HOME
    if home is None or shutil.which(os.path.join(home, "bin", "nvcc")) is None:
        raise RuntimeError(
            "tensors on a GPU need nvcc to build this file's kernels, and none was found: "
            "install the CUDA toolkit and set CUDA_HOME; on the CPU nothing is needed")
    cpp, cuda = ARGS + HOST, ARGS + MATH + KERNELS
    lean = "no_implicit_headers" in inspect.signature(cpp_extension.load_inline).parameters
    return cpp_extension.load_inline(
        name="ogive_" + hashlib.sha256((cpp + cuda).encode()).hexdigest()[:16],
        cpp_sources=cpp, cuda_sources=cuda, functions=["forward", "backward"],
        extra_cflags=["-O1"], extra_cuda_cflags=["-O3", "--fmad=false"],
        **({"no_implicit_headers": True} if lean else {}))


def _forward():
    return _build().forward


def _backward():
    return _build().backward


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
        grads = _backward()(x, grad0)
        return (grads[0], )


def _plain(x):
    # The same formula in PyTorch's own operations: tensors on the CPU.
    return F.sigmoid(x)


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
