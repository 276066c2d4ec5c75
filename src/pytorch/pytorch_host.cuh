/* SPDX-License-Identifier: MIT */
/* Launches: from PyTorch's tensors to kernel arguments. Everything runs on the tensors'
 * device and its current stream; errors are raised in Python. */
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <string.h>
#include <algorithm>
#include <initializer_list>
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
    TORCH_CHECK_VALUE(blocks < INT64_C(1) << 31, "a tensor too large for one launch: ", blocks,
                      " blocks");
    return (unsigned)blocks;
}

/* Of the current device. */
static int attribute(cudaDeviceAttr which)
{
    int value = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, c10::cuda::current_device()));
    return value;
}

/* f(element of that dtype) */
template <class F> static void by_dtype(at::ScalarType dtype, F f)
{
    if (dtype == at::kFloat)
        f(float());
    else if (dtype == at::kHalf)
        f(Float16());
    else if (dtype == at::kBFloat16)
        f(Bfloat16());
    else
        f(double());
}
