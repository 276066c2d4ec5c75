/* SPDX-License-Identifier: MIT
 *
 * torch_shim.h - as much of PyTorch's C++ and of CUDA's runtime as files of `ogive emit --pytorch`
 * use, for tensors in a CPU's memory: emulated.py puts it before the C++ of such a file.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

typedef void *cudaStream_t;
enum cudaDeviceAttr {
    cudaDevAttrMultiProcessorCount,
    cudaDevAttrComputeCapabilityMajor,
    cudaDevAttrComputeCapabilityMinor,
    cudaDevAttrMaxThreadsPerMultiProcessor,
    cudaDevAttrMaxSharedMemoryPerBlockOptin
};

typedef int cudaError_t;
enum { cudaSuccess };
static inline cudaError_t cudaGetDevice(int *device)
{
    return *device = 0;
}

/* EMULATOR_SHARED: bytes of a block's shared memory; 232448 (H100) if not set. EMULATOR_HOPPER=1: it
 * is one, for kernels that only Hopper has; else something newer. */
static int cudaDeviceGetAttribute(int *value, cudaDeviceAttr which, int)
{
    const char *shared = getenv("EMULATOR_SHARED");
    *value = which == cudaDevAttrMultiProcessorCount           ? 4
             : which == cudaDevAttrComputeCapabilityMajor      ? 9
             : which == cudaDevAttrComputeCapabilityMinor      ? !getenv("EMULATOR_HOPPER")
             : which == cudaDevAttrMaxThreadsPerMultiProcessor ? 64
             : shared                                          ? atoi(shared)
                                                               : 232448;
    return 0;
}

namespace at
{
enum ScalarType { kFloat, kHalf, kBFloat16, kDouble, kByte };
enum Layout { kStrided };
struct Device {
    bool operator==(const Device &) const
    {
        return true;
    }
};
static inline std::ostream &operator<<(std::ostream &out, const Device &)
{
    return out << "cuda:0";
}
struct IntArrayRef : std::vector<int64_t> {
    using std::vector<int64_t>::vector;
};
static inline std::ostream &operator<<(std::ostream &out, const IntArrayRef &sizes)
{
    for (int64_t size : sizes)
        out << size << ' ';
    return out;
}
struct TensorOptions {
    ScalarType type;
    TensorOptions dtype(ScalarType t) const
    {
        return {t};
    }
    ScalarType dtype() const
    {
        return type;
    }
};
static inline ScalarType typeMetaToScalarType(ScalarType t)
{
    return t;
}
static inline int64_t size_of(ScalarType t)
{
    return t == kDouble ? 8 : t == kFloat ? 4 : t == kByte ? 1 : 2;
}

struct Tensor {
    std::shared_ptr<std::vector<unsigned char>> owned;
    void *data = NULL;
    IntArrayRef size_list, stride_list;
    ScalarType type = kFloat;
    bool is_defined = false;

    bool defined() const
    {
        return is_defined;
    }
    bool is_cuda() const
    {
        return true;
    }
    Layout layout() const
    {
        return kStrided;
    }
    Device device() const
    {
        return {};
    }
    ScalarType scalar_type() const
    {
        return type;
    }
    TensorOptions options() const
    {
        return {type};
    }
    int64_t dim() const
    {
        return (int64_t)size_list.size();
    }
    int64_t size(int64_t d) const
    {
        return size_list[d];
    }
    int64_t stride(int64_t d) const
    {
        return stride_list[d];
    }
    const IntArrayRef &sizes() const
    {
        return size_list;
    }
    const IntArrayRef &strides() const
    {
        return stride_list;
    }
    void *data_ptr() const
    {
        return data;
    }
    int64_t numel() const
    {
        int64_t n = 1;
        for (int64_t size : size_list)
            n *= size;
        return n;
    }
    bool is_non_overlapping_and_dense() const
    {
        std::vector<std::pair<int64_t, int64_t>> dims;
        for (size_t d = 0; d < size_list.size(); d++)
            if (size_list[d] != 1)
                dims.push_back({stride_list[d], size_list[d]});
        std::sort(dims.begin(), dims.end());
        int64_t expected = 1;
        for (auto &d : dims) {
            if (d.first != expected)
                return false;
            expected *= d.second;
        }
        return true;
    }
    Tensor contiguous() const;
};

/* Filled with 0xff, a NaN in every dtype: what is not written shows. */
static inline Tensor empty_strided(const IntArrayRef &sizes, const IntArrayRef &strides,
                                   const TensorOptions &options)
{
    Tensor t;
    int64_t last = 1;
    t.size_list = sizes;
    t.stride_list = strides;
    for (size_t d = 0; d < sizes.size(); d++)
        last += std::max<int64_t>(sizes[d] - 1, 0) * strides[d];
    t.owned = std::make_shared<std::vector<unsigned char>>(last * size_of(options.type) + 16, 0xff);
    t.data = (void *)(((uintptr_t)t.owned->data() + 15) & ~(uintptr_t)15);
    t.type = options.type;
    t.is_defined = true;
    return t;
}

static inline Tensor empty(const IntArrayRef &sizes, const TensorOptions &options)
{
    IntArrayRef strides(sizes.size());
    int64_t stride = 1;
    for (size_t d = sizes.size(); d-- > 0;) {
        strides[d] = stride;
        stride *= std::max<int64_t>(sizes[d], 1);
    }
    return empty_strided(sizes, strides, options);
}

inline Tensor Tensor::contiguous() const
{
    Tensor t = empty(size_list, options());
    for (int64_t i = 0; i < numel(); i++) {
        int64_t at = 0, rest = i, size = size_of(type);
        for (size_t d = size_list.size(); d-- > 0;) {
            at += rest % size_list[d] * stride_list[d];
            rest /= size_list[d];
        }
        memcpy((char *)t.data + i * size, (char *)data + at * size, size);
    }
    return t;
}
} // namespace at

namespace c10
{
namespace cuda
{
static inline cudaStream_t getCurrentCUDAStream()
{
    return NULL;
}
} // namespace cuda
struct DeviceGuard {
    explicit DeviceGuard(at::Device)
    {
    }
};
} // namespace c10

template <class... Parts> static void check(bool good, const char *kind, const Parts &...parts)
{
    std::ostringstream text;
    if (good)
        return;
    text << kind;
    int unused[] = {0, ((void)(text << parts), 0)...};
    (void)unused;
    throw std::runtime_error(text.str());
}
#define TORCH_CHECK_VALUE(good, ...) check(good, "ValueError: ", __VA_ARGS__)
#define TORCH_CHECK_TYPE(good, ...) check(good, "TypeError: ", __VA_ARGS__)
#define C10_CUDA_CHECK(call) check((int)(call) == 0, "CUDA error: ", #call)

/* ---- the way in ---------------------------------------------------------------------------- */

struct View {
    void *data;
    int64_t dtype, rank, sizes[8], strides[8];
};

static at::Tensor tensor_of(const View &v)
{
    at::Tensor t;
    t.data = v.data;
    t.type = (at::ScalarType)v.dtype;
    t.size_list.assign(v.sizes, v.sizes + v.rank);
    t.stride_list.assign(v.strides, v.strides + v.rank);
    t.is_defined = true;
    return t;
}

static void show(const std::vector<at::Tensor> &tensors, View *views)
{
    static std::vector<at::Tensor> kept;
    kept = tensors;
    for (size_t i = 0; i < tensors.size(); i++) {
        const at::Tensor &t = tensors[i];
        views[i] = View();
        if (!t.defined())
            continue;
        views[i].data = t.data;
        views[i].dtype = t.type;
        views[i].rank = t.dim();
        std::copy(t.size_list.begin(), t.size_list.end(), views[i].sizes);
        std::copy(t.stride_list.begin(), t.stride_list.end(), views[i].strides);
    }
}
