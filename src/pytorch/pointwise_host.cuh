/* SPDX-License-Identifier: MIT */
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
