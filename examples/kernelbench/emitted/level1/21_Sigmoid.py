# SPDX-License-Identifier: MIT
# Made by `ogive emit --pytorch` 0.1.0 from
#
#     sigmoid(x)
#
# It needs PyTorch (2.3 or later) alone, and nvcc for tensors on a GPU, whose kernels are
# built when they are first needed (20 s; PyTorch keeps them for the next process).
#
# Tensors of any shape, one for all (it is checked): x
# float32, float16, bfloat16 (computed in float32, rounded once) or float64, one dtype
# for all; any strides. On a GPU always these kernels, on the tensors' device and its
# current stream; on the CPU plain PyTorch operations (_plain below).
#
# Contents (where home cannot be written to, set TORCH_EXTENSIONS_DIR):
#   ARGS                        what kernels are given
#   KERNELS                     CUDA: functions; the formula, its derivative; loops over tensors
#   HOST                        C++: checks tensors, lays out results, launches kernels
#   _build, _Formula            what compiles them, and records gradients
#   _plain, _call, the module   the formula in PyTorch's operations, for CPUs; which of the two
import functools
import hashlib
import inspect

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable
from torch.utils import cpp_extension

ARGS = r'''
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

struct Args {
    int dims;
    int64_t extent[8], stride[3][8]; /* of dims, neighbours first; in bytes */
    char *data[3];                   /* of results, then of tensors */
    int64_t vectors, whole_blocks;   /* of 16 bytes; without gaps or a rest */
};
/* By direction, dtype, and layout: flat with a vector a thread, with several; any. */
extern const void *const ogive_kernels[2][4][3];
'''

KERNELS = r'''
#define OG_FN static __device__ __forceinline__
#define og_bits_f32(x) __float_as_uint(x)
#define og_float_bits(u) __uint_as_float(u)
#define og_fma_near_f32(a, b, c) __fmaf_rn(a, b, c)
#define og_magnitude_f32(x, limit) (fabsf(x) > (limit) ? (limit) : fabsf(x))
#define og_restore_nan_f32(x, y) (y)
#define OG_LOG2E_F32 0x1.715476p+0f
/* ln 2 = HI + LO; n*HI + x is exact in one fma when n = round(-x log2 e). */
#define OG_LN2_HI_F32 0x1.62e430p-1f
#define OG_LN2_LO_F32 -0x1.05c610p-29f
#define OG_MAGIC_DOWN_F32 0x1.80017ep23f

OG_FN float og_reciprocal_normal_f32(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return __fmaf_rn(y, __fmaf_rn(-x, y, 1.0f), y);
}

OG_FN float og_exp_q_f32(float r)
{
    float r2 = r * r;
    return og_fma_near_f32(
        og_fma_near_f32(0x1.6ac682p-10f, r2, og_fma_near_f32(0x1.123ddep-7f, r, 0x1.555858p-5f)),
        r2, og_fma_near_f32(0x1.55548cp-3f, r, 0x1.fffffcp-2f));
}

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

OG_FN float og_sigmoid(float x)
{
    float scale, f = og_sigmoid_split_f32(og_magnitude_f32(x, 104.0f), 0.0f, &scale);
    float s = scale * 0x1p-64f; /* 2^-n, exact down to the least subnormal, then 0 */
    float above = og_fma_near_f32(s, -f, og_restore_nan_f32(x, 1.0f));
    return x < 0.0f ? f * s : above;
}

/* 1/(1 + e^-x); below -40 the 1 is lost and e^x is the answer. */
OG_FN double og_sigmoid(double x)
{
    return x < -40.0 ? exp(x) : 1.0 / (1.0 + exp(-x));
}

struct Forward {
    enum { results = 1, operands = 2 };
    template <class R> OG_FN void compute(const Args &a, R *x)
    {
        x[0] = og_sigmoid(x[1]);
    }
};

struct Backward {
    enum { results = 1, operands = 3 };
    template <class R> OG_FN void compute(const Args &a, R *x)
    {
        const R v1 = og_sigmoid(x[1]);
        const R v4 = R(1) - v1;
        const R v5 = x[2] * v4;
        x[0] = v5 * v1;
    }
};

template <int from, int to, class Body> OG_FN void each(Body body, int end = to)
{
#pragma unroll
    for (int i = from; i < to; i++)
        if (i < end)
            body(i);
}

/* A thread's vectors of 16 bytes, 128 apart: anyhow; of neighbours; these aligned and all there. */
enum { ANY, FLAT, WHOLE };
template <class Formula, class T, int batch, int mode>
OG_FN void apply(const Args &a, int64_t first)
{
    constexpr int count = 16 / sizeof(T), results = Formula::results, operands = Formula::operands;
    alignas(16) T x[batch][operands][count];
    int64_t to[batch][operands]; /* bytes */
    int n[batch];                /* elements */
    auto stride = [&](int t) { return mode == ANY ? a.stride[t][0] : (int64_t)sizeof(T); };
    each<0, batch>([&](int b) {
        const int64_t vector = first + b * 128, per_row = (a.extent[0] + count - 1) / count;
        uint32_t row = mode != ANY || a.dims == 1 ? 0 : (uint32_t)vector / (uint32_t)per_row;
        const int64_t e = (vector - row * per_row) * count; /* its first element */
        n[b] = vector < a.vectors ? (int)min(a.extent[0] - e, (int64_t)count) : 0;
        each<0, operands>([&](int t) { to[b][t] = e * stride(t); });
        for (int d = 1; mode == ANY && d < a.dims; d++) {
            const uint32_t extent = (uint32_t)a.extent[d], i = row % extent;
            each<0, operands>([&](int t) { to[b][t] += i * a.stride[t][d]; });
            row /= extent;
        }
    });
    auto at = [&](int b, int t, int i) { return (T *)(a.data[t] + to[b][t] + i * stride(t)); };
    auto is_vector = [&](int b, int t) {
        return mode == WHOLE || (n[b] == count && stride(t) == sizeof(T) &&
                                 (uint64_t)at(b, t, 0) % 16 == 0);
    };
    each<0, batch>([&](int b) {
        each<results, operands>([&](int t) {
            if (is_vector(b, t))
                *(uint4 *)x[b][t] = *(const uint4 *)at(b, t, 0);
            else
                each<0, count>([&](int i) { x[b][t][i] = *at(b, t, i); }, n[b]);
        });
    });
    asm volatile("" ::: "memory"); /* all are read before one is computed */
    each<0, batch>([&](int b) {
        each<0, count>([&](int i) {
            decltype(T() + 0.0f) v[operands]; /* float, or double */
            each<results, operands>([&](int t) { v[t] = x[b][t][i]; });
            Formula::compute(a, v);
            each<0, results>([&](int t) { x[b][t][i] = v[t]; });
        });
        each<0, results>([&](int t) {
            if (is_vector(b, t))
                *(uint4 *)at(b, t, 0) = *(const uint4 *)x[b][t];
            else
                each<0, count>([&](int i) { *at(b, t, i) = x[b][t][i]; }, n[b]);
        });
    });
}

template <class Formula, class T, int batch, bool is_flat>
__global__ void __launch_bounds__(128) kernel(const __grid_constant__ Args a)
{
    const int64_t first = (int64_t)blockIdx.x * (batch * 128) + threadIdx.x;
    if (is_flat && blockIdx.x < a.whole_blocks)
        return apply<Formula, T, batch, WHOLE>(a, first);
#pragma unroll 1
    for (int b = 0; b < batch; b++)
        apply<Formula, T, 1, is_flat ? FLAT : ANY>(a, first + b * 128);
}

#define OF(F, T, many)                                                                             \
    {(void *)kernel<F, T, 1, 1>, (void *)kernel<F, T, many, 1>, (void *)kernel<F, T, 1, 0>}
#define KERNELS(F)                                                                                 \
    {OF(F, float, 2), OF(F, c10::Half, 4), OF(F, c10::BFloat16, 4), OF(F, double, 2)}
const void *const ogive_kernels[2][4][3] = {KERNELS(Forward), KERNELS(Backward)};
'''

HOST = r'''
#include <ATen/TensorIterator.h>
#include <c10/cuda/CUDAGuard.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

static const char *const names[] = {"x", "grad"};
static const int results[] = {1, 1}, is_costly[] = {1, 1}; /* forward, backward */

/* Checks tensors, and has a kernel compute results on their device and current stream. PyTorch's
 * iterator makes the results, orders dims as they lie, and joins those that are one in memory. */
std::vector<at::Tensor> run(bool is_backward, const std::vector<at::Tensor> &tensors)
{
    const at::ScalarType dtypes[] = {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble};
    const at::Tensor &first = tensors[0];
    const int dtype = (int)(std::find(dtypes, dtypes + 4, first.scalar_type()) - dtypes);
    at::TensorIteratorConfig config;
    for (int r = 0; r < results[is_backward]; r++)
        config.add_owned_output(at::Tensor());
    for (size_t i = 0; i < tensors.size(); i++) {
        const at::Tensor &t = tensors[i];
        TORCH_CHECK_TYPE(t.is_cuda() && t.layout() == at::kStrided && dtype < 4 &&
                             t.scalar_type() == first.scalar_type(),
                         names[i], " is a ", t.toString(), ", ", names[0], " a ", first.toString(),
                         ": expected CUDA tensors of float32, float16, bfloat16 or float64, alike");
        TORCH_CHECK_VALUE(t.device() == first.device() && t.sizes() == first.sizes(), names[i],
                          " has shape ", t.sizes(), " on ", t.device(), ": expected that of ",
                          names[0], ", ", first.sizes(), " on ", first.device());
        config.add_owned_input(t.resolve_neg()); /* its values, should it be a lazy negative */
    }
    const c10::cuda::CUDAGuard guard(first.device());
    at::TensorIterator iter = config.build();
    TORCH_CHECK_VALUE(iter.ndim() <= 8, "tensors that lie in ", iter.ndim(), " dims: at most 8");
    Args a = {1, {1}}; /* as a tensor without dims */
    a.dims = std::max(iter.ndim(), 1);
    std::copy(iter.shape().begin(), iter.shape().end(), a.extent);
    bool is_flat = iter.is_contiguous();
    std::vector<at::Tensor> made;
    for (int t = 0; t < iter.ntensors(); t++) {
        a.data[t] = (char *)iter.data_ptr(t);
        std::copy(iter.strides(t).begin(), iter.strides(t).end(), a.stride[t]);
        is_flat = is_flat && (uint64_t)a.data[t] % 16 == 0;
        if (t < iter.noutputs())
            made.push_back(iter.output(t));
    }
    const int64_t n = a.extent[0], count = 16 / first.element_size();
    const bool is_large = is_flat && is_costly[is_backward] && n >> 22;
    const int64_t block = 128 * (!is_large ? 1 : count == 8 ? 4 : 2); /* vectors */
    a.whole_blocks = is_flat ? n / count / block : 0;
    a.vectors = (n + count - 1) / count * (iter.numel() / std::max<int64_t>(n, 1));
    TORCH_CHECK_VALUE(a.dims == 1 || a.vectors >> 32 == 0, "a tensor that is not contiguous, of ",
                      a.vectors * 16, " bytes: expected less than 64 GiB");
    void *given[] = {&a};
    if (a.vectors)
        C10_CUDA_CHECK(cudaLaunchKernel(ogive_kernels[is_backward][dtype][is_flat ? is_large : 2],
                                        dim3((a.vectors + block - 1) / block), dim3(128), given, 0,
                                        c10::cuda::getCurrentCUDAStream()));
    return made;
}
'''


@functools.lru_cache(maxsize=None)
def _build():
    lean = {"no_implicit_headers"} & {*inspect.signature(cpp_extension.load_inline).parameters}
    return cpp_extension.load_inline(
        name="ogive_" + hashlib.sha256((ARGS + KERNELS + HOST).encode()).hexdigest()[:16],
        cpp_sources=ARGS + HOST, cuda_sources=ARGS + KERNELS, functions=["run"],
        extra_cflags=["-O1"], extra_cuda_cflags=["-O3", "--fmad=false"], **dict.fromkeys(lean, 1))


class _Formula(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return _build().run(False, [x])[0]

    @staticmethod
    @once_differentiable
    def backward(ctx, grad0):
        return tuple(_build().run(True, [*ctx.saved_tensors, grad0]))


def _plain(x):
    return F.sigmoid(x)


def _call(x):
    if not x.is_cuda:
        return _plain(x)
    if forward_ad._current_level >= 0 or torch.is_grad_enabled() and x.requires_grad:
        return _Formula.apply(x)
    return _build().run(False, [x])[0]


class ModelNew(nn.Module):
    def forward(self, x):
        return _call(x)
