/* SPDX-License-Identifier: MIT */
/* From PyTorch's tensors to kernel arguments. Everything runs on the tensors' device and its
 * current stream; errors are raised in Python. */
#include "pytorch/call.cuh"
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#include <pybind11/stl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

typedef at::Tensor Tensor;

/* Of a lazy negative (a part of what is conjugated) t becomes the values. */
static void check_tensor(Tensor &t, const char *name, int64_t rank, const Tensor &first)
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
    t = t.resolve_neg();
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

/* Operand i of the space: dim d of the space is dim dims[d] of t, or -1. */
static void bind(Args &a, int i, const Tensor &t, std::initializer_list<int> dims)
{
    int d = 0;
    a.data[i] = t.data_ptr();
    for (int dim : dims)
        a.stride[i][d++] = dim < 0 ? 0 : t.stride(dim);
}

static void bind_all(Args &a, int i, const Tensor &t)
{
    a.data[i] = t.data_ptr();
    std::copy(t.strides().begin(), t.strides().end(), a.stride[i]);
}

static void set_extents(Args &a, std::initializer_list<int64_t> extents)
{
    std::copy(extents.begin(), extents.end(), a.extent);
}

/* Dims `dims` of t as the one dim that is summed; its stride, or t is copied so that it
 * has one. */
static int64_t join_summed(Tensor &t, std::initializer_list<int> dims)
{
    for (int round = 0; round < 2; round++) {
        int64_t stride = 0, extent = 1;
        bool joins = true;
        for (const int *d = dims.end(); d-- != dims.begin();) {
            if (t.size(*d) == 1)
                continue;
            joins = joins && (extent == 1 || t.stride(*d) == stride * extent);
            stride = extent == 1 ? t.stride(*d) : stride;
            extent *= t.size(*d);
        }
        if (joins || t.numel() == 0)
            return stride;
        t = t.contiguous();
    }
    return 0;
}

/* By which units know a dtype. */
static int dtype_number(at::ScalarType dtype)
{
    return dtype == at::kFloat ? 0 : dtype == at::kHalf ? 1 : dtype == at::kBFloat16 ? 2 : 3;
}
