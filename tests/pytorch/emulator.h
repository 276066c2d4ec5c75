/* SPDX-License-Identifier: MIT
 *
 * emulator.h - as much of CUDA and of PyTorch's C++ as files of `ogive emit --pytorch` use,
 * for a C++ compiler and a CPU: emulated.py puts it before the sources in such a file, whose
 * kernels and launches then run in the tests of a machine without a GPU.
 *
 * Each thread of a block is a fiber; a block after the other. EMULATOR_ORDER=1 runs a block's
 * threads from the last to the first, EMULATOR_LATE=1 makes asynchronous copies only when they
 * are waited for: a missing barrier or wait shows in one of these.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

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

/* ---- a block ------------------------------------------------------------------------- */

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c)
    {
    }
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return {x, y, z, w};
}

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static /* one block at a time */

static dim3 threadIdx, blockIdx, gridDim, blockDim;
static unsigned char *emulator_shared; /* dynamic */

struct Copy {
    void *to;
    const void *from;
    int bytes; /* of 16; the others are 0 */
};
struct Fiber {
    ucontext_t context;
    std::vector<unsigned char> stack;
    std::vector<std::vector<Copy>> groups; /* of copies under way; the last is open */
    int barriers, warp_barriers;           /* passed so far */
    bool done;
};
static std::vector<Fiber> fibers;
static ucontext_t scheduler;
static int current;
static std::function<void()> body;
static unsigned char exchanged[1024][64]; /* what a lane shows the others of its warp */

static void start_fiber()
{
    body();
    fibers[current].done = true;
    swapcontext(&fibers[current].context, &scheduler);
}

static void yield_fiber()
{
    swapcontext(&fibers[current].context, &scheduler);
}

/* Until fibers [first, first + count) have come as far; those that ended count too. */
static void wait_for(int first, int count, int Fiber::*counter)
{
    const int mine = ++(fibers[current].*counter);
    for (;;) {
        bool all = true;
        for (int i = first; i < first + count; i++)
            all = all && (fibers[i].done || fibers[i].*counter >= mine);
        if (all)
            return;
        yield_fiber();
    }
}

static void __syncthreads()
{
    wait_for(0, (int)blockDim.x, &Fiber::barriers);
}
static void sync_warp()
{
    wait_for(current / 32 * 32, 32, &Fiber::warp_barriers);
}

template <class T> static T __shfl_xor_sync(unsigned, T value, int delta)
{
    memcpy(exchanged[current], &value, sizeof value);
    sync_warp();
    T other;
    memcpy(&other, exchanged[current ^ delta], sizeof other);
    sync_warp();
    return other;
}

static bool __any_sync(unsigned, bool vote)
{
    bool any = vote;
    for (int delta = 1; delta < 32; delta *= 2)
        any |= __shfl_xor_sync(0xffffffffu, any, delta);
    return any;
}

/* What the environment asks for, read at every launch. */
static bool backwards, late;

static void run_block(int threads)
{
    for (int i = 0; i < threads; i++) {
        Fiber &f = fibers[i];
        f.barriers = f.warp_barriers = 0;
        f.done = false;
        f.groups.assign(1, {});
        f.stack.resize(256 << 10);
        getcontext(&f.context);
        f.context.uc_stack.ss_sp = f.stack.data();
        f.context.uc_stack.ss_size = f.stack.size();
        f.context.uc_link = &scheduler;
        makecontext(&f.context, start_fiber, 0);
    }
    for (int left = threads; left > 0;) {
        left = 0;
        for (int i = 0; i < threads; i++) {
            current = backwards ? threads - 1 - i : i;
            if (fibers[current].done)
                continue;
            threadIdx.x = (unsigned)current;
            swapcontext(&scheduler, &fibers[current].context);
            left += !fibers[current].done;
        }
    }
}

static void emulate(dim3 grid, int threads, size_t shared, std::function<void()> kernel)
{
    std::vector<unsigned char> memory(shared + 16, 0xff); /* NaN */
    emulator_shared = (unsigned char *)(((uintptr_t)memory.data() + 15) & ~(uintptr_t)15);
    backwards = getenv("EMULATOR_ORDER");
    late = getenv("EMULATOR_LATE");
    body = kernel;
    gridDim = grid;
    blockDim = dim3((unsigned)threads);
    if ((int)fibers.size() < threads)
        fibers.resize(threads);
    for (blockIdx.y = 0; blockIdx.y < grid.y; blockIdx.y++)
        for (blockIdx.x = 0; blockIdx.x < grid.x; blockIdx.x++)
            run_block(threads);
}

/* ---- device functions, in place of those with assembly ---------------------------------- */

static int __float_as_int(float x)
{
    int u;
    memcpy(&u, &x, 4);
    return u;
}
static float __int_as_float(int u)
{
    float x;
    memcpy(&x, &u, 4);
    return x;
}
static long long __double_as_longlong(double x)
{
    long long u;
    memcpy(&u, &x, 8);
    return u;
}
static double __longlong_as_double(long long u)
{
    double x;
    memcpy(&x, &u, 8);
    return x;
}
static float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
template <class T> static T min(T a, T b)
{
    return b < a ? b : a;
}
template <class T> static T max(T a, T b)
{
    return a < b ? b : a;
}

static float og_reciprocal_normal_f32(float x)
{
    return 1.0f / x;
}
static float og_f32_from_f16(unsigned short h)
{
    _Float16 x;
    memcpy(&x, &h, 2);
    return (float)x;
}
static unsigned short og_f16_from_f32(float x)
{
    _Float16 h = (_Float16)x;
    unsigned short bits;
    memcpy(&bits, &h, 2);
    return bits;
}
static void store_words(void *to, const uint4 &w)
{
    memcpy(to, &w, 16);
}

static void finish_copy(const Copy &c)
{
    memset(c.to, 0, 16);
    memcpy(c.to, c.from, c.bytes);
}

static void copy_async(void *to, const void *from, int bytes)
{
    const Copy copy = {to, from, bytes};
    if ((uintptr_t)to % 16 || (uintptr_t)from % 16 || bytes < 0 || bytes > 16)
        throw std::logic_error("copy_async: alignment or size");
    if (late)
        fibers[current].groups.back().push_back(copy);
    else
        finish_copy(copy);
}

static void end_copies()
{
    fibers[current].groups.push_back({});
}

template <int under_way> static void wait_copies()
{
    auto &groups = fibers[current].groups;
    while ((int)groups.size() - 1 > under_way) {
        for (const Copy &copy : groups.front())
            finish_copy(copy);
        groups.erase(groups.begin());
    }
}

static unsigned pack_halves(float low, float high)
{
    return (unsigned)og_f16_from_f32(high) << 16 | og_f16_from_f32(low);
}

static unsigned lesser_halves(unsigned a, unsigned b)
{
    unsigned result = 0;
    for (int shift = 0; shift < 32; shift += 16) {
        const float x = og_f32_from_f16((unsigned short)(a >> shift));
        const float y = fabsf(og_f32_from_f16((unsigned short)(b >> shift)));
        result |= (unsigned)og_f16_from_f32(fminf(x, y)) << shift;
    }
    return result;
}

/* Lane l gets of matrix i the pair at row l / 4, column l % 4 * 2; row r's address is lane
 * 8 i + r's. */
static void load_matrices(unsigned *to, const unsigned char *from)
{
    if ((uintptr_t)from % 16)
        throw std::logic_error("load_matrices: alignment");
    memcpy(exchanged[current], &from, sizeof from);
    sync_warp();
    for (int i = 0; i < 4; i++) {
        const int lane = current % 32, source = current - lane + 8 * i + lane / 4;
        const unsigned short *row;
        memcpy(&row, exchanged[source], sizeof row);
        to[i] = (unsigned)row[lane % 4 * 2 + 1] << 16 | row[lane % 4 * 2];
    }
    sync_warp();
}

static float half_of(unsigned pair, int which, bool is_bfloat16)
{
    const unsigned short bits = (unsigned short)(pair >> 16 * which);
    return is_bfloat16 ? __int_as_float((int)bits << 16) : og_f32_from_f16(bits);
}

/* mma.m16n8k16: of lane 4 g + t, left[r] has rows g + r % 2 * 8 and k = 2 t + r / 2 * 8, right[r]
 * column g and k = 2 t + r * 8, sum[e] row g + e / 2 * 8 and column 2 t + e % 2. */
template <class P>
static void multiply(float *sum, const unsigned *left, const unsigned *right, bool first)
{
    const bool is_bfloat16 = IsBfloat16<P>::value;
    memcpy(exchanged[current], left, 16);
    memcpy(exchanged[current] + 16, right, 8);
    sync_warp();
    const int lane = current % 32, warp = current - lane;
    for (int e = 0; e < 4; e++) {
        const int column = lane % 4 * 2 + e % 2;
        double total = first ? 0.0 : (double)sum[e];
        for (int k = 0; k < 16; k++) {
            unsigned a[4], b[2];
            memcpy(a, exchanged[warp + lane / 4 * 4 + k % 8 / 2], 16);
            memcpy(b, exchanged[warp + column * 4 + k % 8 / 2] + 16, 8);
            total += (double)half_of(a[e / 2 + k / 8 * 2], k % 2, is_bfloat16) *
                     half_of(b[k / 8], k % 2, is_bfloat16);
        }
        sum[e] = (float)total;
    }
    sync_warp();
}

/* ---- PyTorch ---------------------------------------------------------------------------- */

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
static inline cudaError_t cudaGetLastError()
{
    return cudaSuccess;
}
static inline cudaError_t cudaGetDevice(int *device)
{
    return *device = 0;
}
static inline const char *cudaGetErrorString(cudaError_t)
{
    return "an error";
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
#define cudaFuncSetAttribute(...) 0

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
