/* SPDX-License-Identifier: MIT */
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
