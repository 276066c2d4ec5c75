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
    bool is_negative = false; /* of what is in memory */

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
    std::string toString() const
    {
        const char *const names[] = {"Float", "Half", "BFloat16", "Double", "Byte"};
        return std::string("CUDA") + names[type] + "Type";
    }
    int64_t element_size() const
    {
        return size_of(type);
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
    Tensor resolve_neg() const;
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
        if (is_negative)
            ((unsigned char *)t.data)[(i + 1) * size - 1] ^= 0x80;
    }
    return t;
}

inline Tensor Tensor::resolve_neg() const
{
    return is_negative ? contiguous() : *this;
}

/* Dims in the order of the first result in memory, the last one first; those that all tensors walk as
 * one are one. Results lie as the first tensor without holes, else as a contiguous one. */
struct TensorIterator {
    std::vector<Tensor> all;
    std::vector<IntArrayRef> steps; /* in bytes */
    IntArrayRef extents;
    int results = 0;

    int ndim() const
    {
        return (int)extents.size();
    }
    int ntensors() const
    {
        return (int)all.size();
    }
    int noutputs() const
    {
        return results;
    }
    int64_t numel() const
    {
        return all[0].numel();
    }
    const IntArrayRef &shape() const
    {
        return extents;
    }
    const IntArrayRef &strides(int t) const
    {
        return steps[t];
    }
    void *data_ptr(int t) const
    {
        return all[t].data_ptr();
    }
    const Tensor &output(int r) const
    {
        return all[r];
    }
    bool is_contiguous() const
    {
        bool is_one = ndim() == 1;
        for (int t = 0; t < ntensors() && is_one; t++)
            is_one = steps[t][0] == all[t].element_size();
        return is_one || numel() == 1;
    }
    void order()
    {
        const Tensor &lead = all[0];
        std::vector<int64_t> dims;
        for (int64_t d = lead.dim(); d-- > 0;)
            if (lead.size(d) != 1)
                dims.push_back(d);
        std::stable_sort(dims.begin(), dims.end(), [&](int64_t d, int64_t e) {
            return lead.stride(d) < lead.stride(e);
        });
        steps.resize(all.size());
        for (int64_t d : dims) {
            bool joins = !extents.empty();
            for (size_t t = 0; t < all.size() && joins; t++)
                joins = all[t].stride(d) * all[t].element_size() == steps[t].back() * extents.back();
            for (size_t t = 0; t < all.size() && !joins; t++)
                steps[t].push_back(all[t].stride(d) * all[t].element_size());
            if (joins)
                extents.back() *= lead.size(d);
            else
                extents.push_back(lead.size(d));
        }
    }
};

struct TensorIteratorConfig {
    TensorIterator made;

    void add_owned_output(const Tensor &t)
    {
        made.all.push_back(t);
        made.results++;
    }
    void add_owned_input(const Tensor &t)
    {
        made.all.push_back(t);
    }
    TensorIterator build()
    {
        const Tensor &first = made.all[made.results];
        Tensor like = empty(first.sizes(), first.options());
        for (size_t t = made.all.size(); t-- > (size_t)made.results;)
            if (made.all[t].is_non_overlapping_and_dense())
                like = made.all[t];
        for (int r = 0; r < made.results; r++)
            made.all[r] = empty_strided(like.sizes(), like.strides(), like.options());
        made.order();
        return made;
    }
};
} // namespace at

namespace c10
{
namespace cuda
{
static inline cudaStream_t getCurrentCUDAStream()
{
    return NULL;
}
struct CUDAGuard {
    explicit CUDAGuard(at::Device)
    {
    }
};
} // namespace cuda
struct DeviceGuard {
    explicit DeviceGuard(at::Device)
    {
    }
};
} // namespace c10

/* Kernels are names here; emulated.py says what launches them. */
struct dim3 {
    int64_t x;
    dim3(int64_t count) : x(count)
    {
    }
};
extern "C" {
int (*og_launch)(const char *kernel, int64_t blocks, int threads, int64_t shared_bytes,
                 int overlaps, void *argument);
}
static inline cudaError_t cudaLaunchKernel(const void *kernel, dim3 blocks, dim3 threads,
                                           void **arguments, size_t shared_bytes, cudaStream_t)
{
    return og_launch((const char *)kernel, blocks.x, (int)threads.x, (int64_t)shared_bytes, 0,
                     arguments[0]);
}

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
    int64_t dtype, rank, sizes[8], strides[8], is_negative;
};

static at::Tensor tensor_of(const View &v)
{
    at::Tensor t;
    t.data = v.data;
    t.type = (at::ScalarType)v.dtype;
    t.size_list.assign(v.sizes, v.sizes + v.rank);
    t.stride_list.assign(v.strides, v.strides + v.rank);
    t.is_defined = true;
    t.is_negative = v.is_negative;
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
