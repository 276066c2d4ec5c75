/* SPDX-License-Identifier: MIT
 *
 * shim_device.h - CUDA C as a C++ compiler for the CPU sees it. fake_nvrtc.c includes
 * it before a kernel's source. There is what NVRTC offers without a header and what
 * emitted kernels use. Of libm's float32 functions the most are missing on purpose:
 * only IEEE operations give the same bits on a GPU. (float64 promises no bits.)
 *
 * Each thread of a block is a fiber (fake_launch.c); all of them, and all blocks, run
 * in one thread of the CPU, so shared memory is a static variable in a section of its
 * own and an atomic is an ordinary operation.
 */
#include "shim_link.h"

extern "C" {
__attribute__((visibility("default"))) struct shim_link *og_shim_link;
extern char __start_shim_static[] __attribute__((weak, visibility("hidden")));
extern char __stop_shim_static[] __attribute__((weak, visibility("hidden")));
__attribute__((aligned(1024), used,
               visibility("hidden"))) char og_dynamic_shared[SHIM_SHARED_BYTES + 1024];
extern char __bss_start[] __attribute__((visibility("hidden")));
extern char _end[] __attribute__((visibility("hidden")));
__attribute__((visibility("default"))) extern struct shim_shared og_shim_shared;

float fmaf(float, float, float) noexcept;
double fma(double, double, double) noexcept;
float fabsf(float) noexcept;
double fabs(double) noexcept;
float sqrtf(float) noexcept;
double sqrt(double) noexcept;
double exp(double) noexcept;
double expm1(double) noexcept;
double log(double) noexcept;
double log1p(double) noexcept;
double exp2(double) noexcept;
double log2(double) noexcept;
double log10(double) noexcept;
double sin(double) noexcept;
double cos(double) noexcept;
double atan(double) noexcept;
double floor(double) noexcept;
double ceil(double) noexcept;
double trunc(double) noexcept;
double rint(double) noexcept;
double fmod(double, double) noexcept;
double tanh(double) noexcept;
double erf(double) noexcept;
double erfc(double) noexcept;
double pow(double, double) noexcept;
void *memcpy(void *, const void *, decltype(sizeof 0)) noexcept;
void *memset(void *, int, decltype(sizeof 0)) noexcept;
}

/* Of a float32 NVRTC would take its own. */
float exp(float) = delete;
float expm1(float) = delete;
float log(float) = delete;
float log1p(float) = delete;
float exp2(float) = delete;
float log2(float) = delete;
float log10(float) = delete;
float sin(float) = delete;
float cos(float) = delete;
float atan(float) = delete;
float floor(float) = delete;
float ceil(float) = delete;
float trunc(float) = delete;
float rint(float) = delete;
float fmod(float, float) = delete;
float tanh(float) = delete;
float erf(float) = delete;
float erfc(float) = delete;
float pow(float, float) = delete;
float fma(float, float, float) = delete;
float fabs(float) = delete;
float sqrt(float) = delete;

typedef decltype(sizeof 0) size_t;

/* ---- where ---------------------------------------------------------------------- */

/* Marks that fake_nvrtc.c finds in the preprocessed text. */
#define __global__ shim_mark_global
#define __shared__ shim_mark_shared
#define __launch_bounds__(...) shim_mark_bounds(__VA_ARGS__)
#define __cluster_dims__(...) shim_mark_cluster(__VA_ARGS__)

#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline /* always inlined, kernels take a fifth longer to compile */
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))

#define threadIdx (og_shim_link->thread)
#define blockIdx (og_shim_link->block)
#define blockDim (og_shim_link->block_size)
#define gridDim (og_shim_link->grid_size)
#define warpSize 32

/* ---- vectors -------------------------------------------------------------------- */

#define SHIM_VECTOR2(name, T, alignment)                                                           \
    struct alignas(alignment) name {                                                               \
        T x, y;                                                                                    \
    };                                                                                             \
    static inline name make_##name(T x, T y)                                                       \
    {                                                                                              \
        return {x, y};                                                                             \
    }
#define SHIM_VECTOR4(name, T, alignment)                                                           \
    struct alignas(alignment) name {                                                               \
        T x, y, z, w;                                                                              \
    };                                                                                             \
    static inline name make_##name(T x, T y, T z, T w)                                             \
    {                                                                                              \
        return {x, y, z, w};                                                                       \
    }
SHIM_VECTOR2(uchar2, unsigned char, 2)
SHIM_VECTOR4(uchar4, unsigned char, 4)
SHIM_VECTOR2(short2, short, 4)
SHIM_VECTOR4(short4, short, 8)
SHIM_VECTOR2(ushort2, unsigned short, 4)
SHIM_VECTOR4(ushort4, unsigned short, 8)
SHIM_VECTOR2(int2, int, 8)
SHIM_VECTOR4(int4, int, 16)
SHIM_VECTOR2(uint2, unsigned, 8)
SHIM_VECTOR4(uint4, unsigned, 16)
SHIM_VECTOR2(longlong2, long long, 16)
SHIM_VECTOR2(ulonglong2, unsigned long long, 16)
SHIM_VECTOR2(float2, float, 8)
SHIM_VECTOR4(float4, float, 16)
SHIM_VECTOR2(double2, double, 16)

/* ---- bits ----------------------------------------------------------------------- */

template <class To, class From> static inline To shim_cast(From from)
{
    static_assert(sizeof(To) == sizeof(From), "a cast of bits");
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}
static inline int __float_as_int(float x)
{
    return shim_cast<int>(x);
}
static inline unsigned __float_as_uint(float x)
{
    return shim_cast<unsigned>(x);
}
static inline float __int_as_float(int x)
{
    return shim_cast<float>(x);
}
static inline float __uint_as_float(unsigned x)
{
    return shim_cast<float>(x);
}
static inline long long __double_as_longlong(double x)
{
    return shim_cast<long long>(x);
}
static inline double __longlong_as_double(long long x)
{
    return shim_cast<double>(x);
}

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}
static inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
static inline int __clzll(long long x)
{
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((unsigned long long)a * b >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector)
{
    unsigned long long bytes = (unsigned long long)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++)
        r |= (unsigned)(bytes >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return r;
}

template <class A, class B> static inline auto min(A a, B b) -> decltype(a + b)
{
    static_assert(decltype(a + b)(0.5) == decltype(a + b)(0), "min and max of integers only");
    return b < a ? b : a;
}
template <class A, class B> static inline auto max(A a, B b) -> decltype(a + b)
{
    static_assert(decltype(a + b)(0.5) == decltype(a + b)(0), "min and max of integers only");
    return a < b ? b : a;
}

/* ---- arithmetic, rounded to nearest ----------------------------------------------- */

static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fsub_rn(float a, float b)
{
    return a - b;
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline float __fsqrt_rn(float a)
{
    return sqrtf(a);
}
static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
static inline double __dadd_rn(double a, double b)
{
    return a + b;
}
static inline double __dsub_rn(double a, double b)
{
    return a - b;
}
static inline double __dmul_rn(double a, double b)
{
    return a * b;
}
static inline double __ddiv_rn(double a, double b)
{
    return a / b;
}
static inline double __dsqrt_rn(double a)
{
    return sqrt(a);
}
static inline double __fma_rn(double a, double b, double c)
{
    return fma(a, b, c);
}

/* ---- memory --------------------------------------------------------------------- */

#define SHIM_LOAD(name)                                                                            \
    template <class T> static inline T name(const T *p)                                            \
    {                                                                                              \
        return *p;                                                                                 \
    }
SHIM_LOAD(__ldg)
SHIM_LOAD(__ldcs)
SHIM_LOAD(__ldcg)
SHIM_LOAD(__ldca)
SHIM_LOAD(__ldlu)
SHIM_LOAD(__ldcv)
#define SHIM_STORE(name)                                                                           \
    template <class T> static inline void name(T *p, T value)                                      \
    {                                                                                              \
        *p = value;                                                                                \
    }
SHIM_STORE(__stcs)
SHIM_STORE(__stcg)
SHIM_STORE(__stwb)
SHIM_STORE(__stwt)

static inline void __threadfence()
{
}
static inline void __threadfence_block()
{
}

/* Blocks and threads take turns only where they wait, so nothing comes between. */
template <class T, class U> static inline T atomicAdd(T *p, U value)
{
    static_assert(T(0.5) == T(0), "no floating-point atomics: their order is not fixed");
    T old = *p;
    *p = old + (T)value;
    return old;
}
/* Of shared memory, too, where it is no race. */
template <class T, class U>
__attribute__((no_sanitize_thread)) static inline T atomicOr(T *p, U value)
{
    T old = *p;
    *p = old | (T)value;
    return old;
}
template <class T, class U> static inline T atomicExch(T *p, U value)
{
    T old = *p;
    *p = (T)value;
    return old;
}
template <class T, class U> static inline T atomicMax(T *p, U value)
{
    T old = *p;
    *p = old < (T)value ? (T)value : old;
    return old;
}
static inline unsigned atomicInc(unsigned *p, unsigned last)
{
    unsigned old = *p;
    *p = old >= last ? 0 : old + 1;
    return old;
}

/* ---- waiting for others ------------------------------------------------------------ */

static inline void __syncthreads()
{
    og_shim_link->barrier(SHIM_BARRIER, 0);
}
static inline int __syncthreads_and(int vote)
{
    return og_shim_link->barrier(SHIM_BARRIER_AND, vote);
}
static inline int __syncthreads_or(int vote)
{
    return og_shim_link->barrier(SHIM_BARRIER_OR, vote);
}
static inline int __syncthreads_count(int vote)
{
    return og_shim_link->barrier(SHIM_BARRIER_COUNT, vote);
}

static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    og_shim_link->meet(SHIM_WARP, mask, 0, 0);
}
static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    return (unsigned)og_shim_link->meet(SHIM_BALLOT, mask, 0, predicate != 0);
}
static inline int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}
static inline int __all_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, !predicate) == 0;
}

static inline int shim_lane()
{
    const struct shim_link *link = og_shim_link;
    return (int)(link->thread.x +
                 link->block_size.x * (link->thread.y + link->block_size.y * link->thread.z)) &
           31;
}
/* Lane source, or the own one if source is outside of the segment of width lanes. */
template <class T> static inline T shim_shuffle(unsigned mask, T value, int source, bool inside)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles take 4 or 8 bytes");
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    bits = og_shim_link->meet(SHIM_SHUFFLE, mask, inside ? source : shim_lane(), bits);
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}
template <class T> static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32)
{
    return shim_shuffle(mask, value, (shim_lane() & -width) | (source & (width - 1)), true);
}
template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32)
{
    int lane = shim_lane(), source = lane - (int)delta;
    return shim_shuffle(mask, value, source, source >= (lane & -width));
}
template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32)
{
    int lane = shim_lane(), source = lane + (int)delta;
    return shim_shuffle(mask, value, source, source < (lane & -width) + width);
}
template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32)
{
    int lane = shim_lane(), source = lane ^ lanes;
    return shim_shuffle(mask, value, source, source < (lane & -width) + width);
}

static inline unsigned __reduce_or_sync(unsigned mask, unsigned x)
{
    for (int delta = 16; delta; delta /= 2)
        x |= __shfl_xor_sync(mask, x, delta);
    return x;
}

static inline void __trap()
{
    og_shim_link->fail("__trap()");
}

/* ---- tensor cores: what mma_ptx.cuh has on a GPU -------------------------------------- */

/* Every lane's numbers; all lanes of a warp come. */
template <int n> struct shim_lanes {
    unsigned of[32][n];
};
template <int n> static const shim_lanes<n> &shim_exchange(const unsigned *mine)
{
    static shim_lanes<n> met[32]; /* of each warp */
    shim_lanes<n> &warp = met[og_shim_link->thread.x / 32];
    __syncwarp(); /* whoever reads what was here before has done so */
    for (int i = 0; i < n; i++)
        warp.of[shim_lane()][i] = mine[i];
    __syncwarp();
    return warp;
}

/* A thread's copies that have not arrived. In every other block they arrive at once, in the
 * others as late as they may: what is overwritten too early, and what is read too early, both
 * show. */
struct shim_copies {
    struct {
        void *to;
        const void *from;
        int bytes, lot;
    } waiting[64];
    int count, lot;
};
static shim_copies shim_copies_of[1024];

static inline void shim_arrive(shim_copies &copies, int before)
{
    int kept = 0;
    for (int i = 0; i < copies.count; i++)
        if (copies.waiting[i].lot < before)
            memcpy(copies.waiting[i].to, copies.waiting[i].from, copies.waiting[i].bytes);
        else
            copies.waiting[kept++] = copies.waiting[i];
    copies.count = kept;
}
static inline void shim_copy(void *to, const void *from, int bytes)
{
    shim_copies &copies = shim_copies_of[og_shim_link->thread.x];
    if (copies.count == 64)
        og_shim_link->fail("copies that nothing waits for");
    copies.waiting[copies.count++] = {to, from, bytes, copies.lot};
    if (og_shim_link->block.x % 2)
        shim_arrive(copies, copies.lot + 1);
}
static inline void og_copy_16(void *to, const void *from)
{
    if (((unsigned long long)to | (unsigned long long)from) % 16)
        og_shim_link->fail("a copy of 16 bytes is not aligned");
    shim_copy(to, from, 16);
}
static const uint4 shim_zeros = {0, 0, 0, 0};
static inline void og_copy_16_if(void *to, const void *from, bool there)
{
    og_copy_16(to, there ? from : &shim_zeros);
}
static inline void og_copy_8_if(void *to, const void *from, bool there)
{
    if (((unsigned long long)to | (unsigned long long)from) % 8)
        og_shim_link->fail("a copy of 8 bytes is not aligned");
    shim_copy(to, there ? from : &shim_zeros, 8);
}
static inline void og_end_copies()
{
    shim_copies_of[og_shim_link->thread.x].lot++;
}
template <int most> static inline void og_await_copies()
{
    shim_copies &copies = shim_copies_of[og_shim_link->thread.x];
    shim_arrive(copies, copies.lot - most);
}

static inline void og_load_matrices(unsigned *to, const void *row)
{
    const unsigned long long address = (unsigned long long)row;
    const unsigned mine[] = {(unsigned)address, (unsigned)(address >> 32)};
    const shim_lanes<2> &rows = shim_exchange<2>(mine);
    for (int i = 0; i < 4; i++) {
        const unsigned *at = rows.of[8 * i + shim_lane() / 4];
        const char *from = (const char *)((unsigned long long)at[1] << 32 | at[0]);
        if ((unsigned long long)from % 16)
            og_shim_link->fail("a row of a matrix is not aligned");
        to[i] = ((const unsigned *)from)[shim_lane() % 4];
    }
}

/* Element 0 or 1 of a register. */
template <bool is_bfloat> static inline float shim_half(unsigned both, int element)
{
    unsigned bits = both >> 16 * element & 0xffff, exponent = bits >> 10 & 31;
    if (is_bfloat)
        return __uint_as_float(bits << 16);
    float magnitude = exponent == 31 ? ((bits & 1023) ? __builtin_nanf("") : __builtin_inff())
                      : exponent == 0
                          ? (float)(bits & 1023) * 0x1p-24f
                          : __uint_as_float((exponent + 112) << 23 | (bits & 1023) << 13);
    return bits & 0x8000 ? -magnitude : magnitude;
}

/* See shim_link.h. */
static inline float shim_add_products(float sum, const float *x, const float *w, int least)
{
    return og_shim_link->add_products(sum, x, w, least);
}

/* Each lane converts its own numbers, so that those that read them do not have to. */
template <bool is_bfloat>
static inline void og_mma_16(float *d, const unsigned *x, const unsigned *w)
{
    unsigned mine[12]; /* of x, then of w */
    for (int i = 0; i < 12; i++)
        mine[i] = __float_as_uint(shim_half<is_bfloat>(i < 8 ? x[i / 2] : w[i / 2 - 4], i % 2));
    const shim_lanes<12> &lanes = shim_exchange<12>(mine);
    for (int i = 0; i < 4; i++) { /* row g + 8 (i / 2), column 2 t + i % 2 */
        const int row = shim_lane() / 4 * 4, column = (shim_lane() % 4 * 2 + i % 2) * 4;
        float xs[16], ws[16];
        for (int k = 0; k < 16; k++) {
            const int t = k % 8 / 2, w_at = 8 + k / 8 * 2 + k % 2;
            const int x_at = k / 8 * 4 + i / 2 * 2 + k % 2;
            xs[k] = __uint_as_float(lanes.of[row + t][x_at]);
            ws[k] = __uint_as_float(lanes.of[column + t][w_at]);
        }
        d[i] = shim_add_products(d[i], xs, ws, is_bfloat ? -126 : -14);
    }
}

/* Of TF32, of which tensor cores see 19 bits: 8 k. */
static inline void og_mma_8(float *d, const unsigned *x, const unsigned *w)
{
    unsigned mine[6]; /* of x, then of w */
    for (int i = 0; i < 6; i++)
        mine[i] = (i < 4 ? x[i] : w[i - 4]) & 0xffffe000u;
    const shim_lanes<6> &lanes = shim_exchange<6>(mine);
    for (int i = 0; i < 4; i++) { /* row g + 8 (i / 2), column 2 t + i % 2 */
        const int row = shim_lane() / 4 * 4, column = (shim_lane() % 4 * 2 + i % 2) * 4;
        float xs[16] = {0}, ws[16] = {0};
        for (int k = 0; k < 8; k++) {
            xs[k] = __uint_as_float(lanes.of[row + k % 4][k / 4 * 2 + i / 2]);
            ws[k] = __uint_as_float(lanes.of[column + k % 4][4 + k / 4]);
        }
        d[i] = shim_add_products(d[i], xs, ws, -126);
    }
}

/* Launches run one after the other here; fake_check.c finds what could not overlap. */
static inline void og_await_launch()
{
    og_shim_link->await_launch();
}
static inline void og_admit_next()
{
}

#include "shim_hopper.h"

/* ---- entries ------------------------------------------------------------------------ */

/* A kernel has one parameter, by value (cuda_work.h); the caller's bytes may lie anywhere,
 * and reading them is no access of the kernel's. Not inlined: that is the kernel. */
template <class T>
__attribute__((no_sanitize_thread)) static void shim_call(void (*volatile kernel)(T),
                                                          void **parameters)
{
    T argument;
    __builtin_memcpy(&argument, parameters[0], sizeof argument);
    kernel(argument);
}

#ifdef OG_SHIM_CHECK
/* Compiled with -fsanitize=thread but not linked with its library: these are called at
 * every load and store of memory that the compiler cannot keep to itself. */
#define SHIM_TOUCH(bytes)                                                                          \
    __attribute__((no_sanitize_thread, visibility("hidden"))) void __tsan_read##bytes(void *p)     \
    {                                                                                              \
        og_shim_link->touch(p, bytes, 0);                                                          \
    }                                                                                              \
    __attribute__((no_sanitize_thread, visibility("hidden"))) void __tsan_write##bytes(void *p)    \
    {                                                                                              \
        og_shim_link->touch(p, bytes, 1);                                                          \
    }                                                                                              \
    __attribute__((no_sanitize_thread, visibility("hidden"))) void __tsan_unaligned_read##bytes(   \
        void *p)                                                                                   \
    {                                                                                              \
        shim_touch_parts(p, bytes, 0);                                                             \
    }                                                                                              \
    __attribute__((no_sanitize_thread, visibility("hidden"))) void __tsan_unaligned_write##bytes(  \
        void *p)                                                                                   \
    {                                                                                              \
        shim_touch_parts(p, bytes, 1);                                                             \
    }
/* What is copied at once but has a type of a smaller alignment, as a struct of two floats. */
__attribute__((no_sanitize_thread)) static void shim_touch_parts(void *p, unsigned long bytes,
                                                                 int write)
{
    for (unsigned long i = 0; i < bytes; i++)
        og_shim_link->touch((char *)p + i, 1, write);
}
extern "C" {
SHIM_TOUCH(1)
SHIM_TOUCH(2)
SHIM_TOUCH(4)
SHIM_TOUCH(8)
SHIM_TOUCH(16)
__attribute__((no_sanitize_thread, visibility("hidden"))) void __tsan_read_range(void *p,
                                                                                 unsigned long n)
{
    shim_touch_parts(p, n, 0);
}
__attribute__((no_sanitize_thread, visibility("hidden"))) void __tsan_write_range(void *p,
                                                                                  unsigned long n)
{
    shim_touch_parts(p, n, 1);
}
__attribute__((visibility("hidden"))) void __tsan_init()
{
}
__attribute__((visibility("hidden"))) void __tsan_func_entry(void *)
{
}
__attribute__((visibility("hidden"))) void __tsan_func_exit()
{
}
}
#endif
