/* SPDX-License-Identifier: MIT
 *
 * prologue.cuh - what every emitted kernel stands on: how a launch waits for the one
 * before, vectors of OG_V elements in memory, spans of valid elements, division by numbers
 * known at planning time.
 *
 * The only CUDA that emitted code uses: threadIdx, blockIdx, gridDim, __shared__,
 * __syncthreads, __shfl_down_sync, __shfl_sync, __all_sync, __launch_bounds__ and
 * __grid_constant__, __umul64hi, atomicAdd of integers; products on tensor cores use more. No
 * header is needed.
 *
 * PARAMETERS (defined before this text)
 *   OG_V         elements that a thread takes at once: 1, 2, 4 or 8
 *   OG_THREADS   threads of a block
 *   og_index     int32_t, or int64_t where an index or an offset needs it
 *   og_unsigned  the same, unsigned
 */
/* OG_KERNEL(name, threads, blocks) begins a kernel; blocks, how many of them a multiprocessor
 * should hold, may be left out. */
#define OG_KERNEL(name, ...)                                                                       \
    extern "C" __global__ void __launch_bounds__(__VA_ARGS__)                                      \
        name(const __grid_constant__ og_args a)

#ifndef OG_CUDA_SHIM /* tests/cuda/shim_device.h has the same two functions for a CPU */

/* Waits until the launch before this one, if they overlap, has ended and what it wrote can be
 * read. */
OG_FN void og_await_launch()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Once all blocks have come here, those of the launch after this one, if they overlap, may begin
 * where there is room. A formula's last launch does not call this: what comes then is not ours. */
OG_FN void og_admit_next()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

#endif

typedef uint16_t og_half; /* bits of a float16 or a bfloat16 */

template <int... n> struct og_indices {};

/* n neighbours in memory, moved by one access. */
template <class T, int n> struct alignas(n * sizeof(T)) og_some {
    T e[n];
};

/* index / extent = index * magic >> shift, for indices up to half of og_unsigned's
 * range; magic 0: extent is 1. */
struct og_divisor {
    og_index extent;
    og_unsigned magic;
    uint32_t shift;
};

OG_FN uint32_t og_multiply_high(uint32_t a, uint32_t b)
{
    return (uint32_t)(((uint64_t)a * b) >> 32);
}

OG_FN uint64_t og_multiply_high(uint64_t a, uint64_t b)
{
    return __umul64hi(a, b);
}

OG_FN og_index og_divide(og_index index, const og_divisor &by)
{
    og_unsigned quotient = og_multiply_high((og_unsigned)index, by.magic) >> by.shift;
    return by.magic ? (og_index)quotient : index;
}

/* A window of plan.h: at place p, which is start and what it has moved by, it sees element p /
 * divisor of `extent` elements that are stride apart; if it sees none, there is fill. */
struct og_window {
    double fill;
    og_index start, extent, stride;
    og_divisor divisor;
};

/* og_uneven of plan.h. */
struct og_uneven {
    og_index bits, from, reach, width, count;
};

/* Elements [begin, end) of a vector are there. */
struct og_span {
    int begin, end;
};

/* The part of vector [at, at + OG_V) that lies in [0, n). */
OG_FN og_span og_span_of(og_index at, og_index n)
{
    og_span span;
    span.begin = at < 0 ? (int)-at : 0;
    span.end = n - at < OG_V ? (int)(n - at) : OG_V;
    return span;
}

OG_FN bool og_is_full(const og_span &span)
{
    return span.begin == 0 && span.end == OG_V;
}

/* OG_V neighbours in memory, moved by accesses of up to 16 bytes. */
template <class T> struct alignas(OG_V * sizeof(T) < 16 ? OG_V * sizeof(T) : 16) og_pack {
    T e[OG_V];
};

template <class T> OG_FN bool og_is_aligned(const T *p)
{
    return OG_V == 1 || (uint64_t)p % alignof(og_pack<T>) == 0;
}

/* Element i as a float32, taken from a word of two: the way through 16 bits takes NVRTC (13.4) two
 * instructions. */
OG_FN float og_f32_at_bf16(const og_pack<og_half> &x, int i)
{
    if constexpr (OG_V == 1) {
        return og_f32_from_bf16(x.e[0]);
    } else {
        uint32_t pair;
        memcpy(&pair, &x.e[i / 2 * 2], sizeof pair);
        return og_float_bits(i % 2 ? pair & 0xffff0000u : pair << 16);
    }
}

/* The compiler forgets what it has computed from x, so that words of two are what it keeps:
 * NVRTC (13.4) else takes them apart where two branches meet, or keeps floats. */
OG_FN void og_renew(og_pack<og_half> &x)
{
#if defined(__CUDA_ARCH__)
#pragma unroll
    for (int i = 0; i + 1 < OG_V; i += 2) {
        uint32_t pair;
        memcpy(&pair, &x.e[i], sizeof pair);
        asm("" : "+r"(pair));
        memcpy(&x.e[i], &pair, sizeof pair);
    }
#endif
}

template <class T> OG_FN void og_renew(og_pack<T> &)
{
}

/* How many elements p is past a multiple of a vector. */
template <class T> OG_FN int og_elements_past(const T *p)
{
    return (int)((uint64_t)p / sizeof(T) % OG_V);
}

/* Words that one instruction moves. */
template <int bytes> struct og_word {
    typedef uint4 type;
};
template <> struct og_word<8> {
    typedef uint2 type;
};
template <> struct og_word<4> {
    typedef uint32_t type;
};
template <> struct og_word<2> {
    typedef uint16_t type;
};
template <> struct og_word<1> {
    typedef uint8_t type;
};

template <class T> union og_words {
    enum { bytes = alignof(og_pack<T>), count = sizeof(og_pack<T>) / bytes };
    typedef typename og_word<bytes>::type word;
    og_pack<T> pack;
    word words[count];
};

/* Stores of several words are written as instructions: NVRTC (13.4) else makes several of one, in
 * order to share some with og_scatter(), which takes 0.5 ms of 3.5 (sigmoid of 4096x393216 on an
 * H200). */
template <class W> OG_FN void og_store_word(W *p, const W &w)
{
    *p = w;
}
#if defined(__CUDA_ARCH__)
OG_FN void og_store_word(uint4 *p, const uint4 &w)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(w.x), "r"(w.y), "r"(w.z),
                 "r"(w.w)
                 : "memory");
}

OG_FN void og_store_word(uint2 *p, const uint2 &w)
{
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(w.x), "r"(w.y) : "memory");
}
#endif

template <class T> OG_FN og_pack<T> og_load_pack(const T *p)
{
    og_words<T> x;
#pragma unroll
    for (int w = 0; w < og_words<T>::count; w++)
        x.words[w] = ((const typename og_words<T>::word *)p)[w];
    return x.pack;
}

template <class T> OG_FN void og_store_pack(T *p, const og_pack<T> &pack)
{
    og_words<T> x;
    x.pack = pack;
#pragma unroll
    for (int w = 0; w < og_words<T>::count; w++)
        og_store_word((typename og_words<T>::word *)p + w, x.words[w]);
}

/* Loads before this are issued before what follows is computed. NVRTC (13.4) else moves each
 * down to where it is used, behind the branches of divisions before, and a thread waits
 * for one after the other: sigmoid of x[:, ::2] on an H200 2460 us, so 2204. */
#if defined(__CUDA_ARCH__)
#define OG_AFTER_LOADS() asm volatile("" ::: "memory")
#else
#define OG_AFTER_LOADS()
#endif

/* Something that the compiler may rely on. */
#if defined(__CUDA_ARCH__)
#define OG_ASSUME(condition) __builtin_assume(condition)
#else
#define OG_ASSUME(condition)
#endif

/* OG_V elements that lie `stride` apart; missing ones are 0. */
template <class T> OG_FN og_pack<T> og_gather(const T *p, og_index stride, const og_span &span)
{
    og_pack<T> x;
#pragma unroll
    for (int i = 0; i < OG_V; i++)
        x.e[i] = i >= span.begin && i < span.end ? p[i * stride] : (T)0;
    return x;
}

template <class T>
OG_FN void og_scatter(T *p, og_index stride, const og_span &span, const og_pack<T> &x)
{
#pragma unroll
    for (int i = 0; i < OG_V; i++)
        if (i >= span.begin && i < span.end)
            p[i * stride] = x.e[i];
}
