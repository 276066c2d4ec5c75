/* SPDX-License-Identifier: MIT */
#include <ATen/TensorIterator.h>
#include <c10/cuda/CUDAGuard.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

/* Checks tensors, and has a kernel compute results on their device and current stream. PyTorch's
 * iterator makes the results, orders dims as they lie, and joins those that are one in memory. */
std::vector<at::Tensor> run(bool is_backward, const std::vector<at::Tensor> &tensors,
                            const std::vector<double> &numbers)
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
    std::copy(numbers.begin(), numbers.end(), a.number);
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
