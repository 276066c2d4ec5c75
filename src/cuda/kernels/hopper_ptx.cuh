/* SPDX-License-Identifier: MIT
 *
 * hopper_ptx.cuh - Hopper's own instructions that hopper_float32.cuh uses, one function each:
 * barriers in shared memory, the tensor copy engine (TMA), tensor-core products of a
 * warpgroup (wgmma). Addresses are those of shared memory, as 32 bits.
 *
 * tests/cuda/shim_hopper.h has the same functions for a CPU.
 *
 * PARAMETERS
 *   OG_WIDTH     columns of a product: 32, 64, 128, 256 or, of described factors, 192
 *   OG_MMA_TYPE  "f16" or "bf16" where both factors are described; else the left one is float16
 *                in registers
 *   OG_ACROSS    with OG_MMA_TYPE, "0, 0": is left across k, is right? See og_describe()
 */
#include "cuda/kernels/clusters.cuh"
#include "cuda/kernels/pairs.cuh"

enum { OG_HELD = OG_WIDTH / 2 }; /* elements of a product that a thread holds */

typedef float og_held[OG_HELD];

struct alignas(16) og_four_words {
    uint32_t e[4];
};

/* Boxes of halves in shared memory, lines of 64 (128 bytes, swizzled): the address in units of
 * 16 bytes, 1024 bytes from 8 lines to the next 8, swizzling over 128 bytes. Lines are along k,
 * and a step of 16 k adds 2; or across it: 64 lines are then 64 k of 64 rows or columns, 8192
 * bytes from these to the next 64, and a step of 16 k adds 128. */
template <int across> OG_FN uint64_t og_describe(uint32_t address)
{
    return (uint64_t)1 << 62 | (uint64_t)64 << 32 | (uint64_t)(across ? 512 : 1) << 16 |
           (uint64_t)((address & 0x3ffff) >> 4);
}

#ifndef OG_CUDA_SHIM /* its stand-ins are in tests/cuda/shim_hopper.h */

/* Of two numbers of 16 bits, without signs: the greater ones, the smaller ones, the sums. */
OG_FN uint32_t og_max_halves(uint32_t a, uint32_t b)
{
    asm("max.u16x2 %0, %1, %2;" : "=r"(a) : "r"(a), "r"(b));
    return a;
}

OG_FN uint32_t og_min_halves(uint32_t a, uint32_t b)
{
    asm("min.u16x2 %0, %1, %2;" : "=r"(a) : "r"(a), "r"(b));
    return a;
}

OG_FN uint32_t og_add_halves(uint32_t a, uint32_t b)
{
    asm("add.u16x2 %0, %1, %2;" : "=r"(a) : "r"(a), "r"(b));
    return a;
}

/* The lesser and the greater number; NaN if one is. */
OG_FN float og_lesser(float a, float b)
{
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(a) : "f"(a), "f"(b));
    return a;
}

OG_FN float og_greater(float a, float b)
{
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(a) : "f"(a), "f"(b));
    return a;
}

OG_FN void og_barrier_init(uint32_t barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}

/* Barriers that this thread has made are there for TMA. */
OG_FN void og_publish_barriers()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Arrives, and announces bytes that TMA will bring. */
OG_FN void og_barrier_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

OG_FN void og_barrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

OG_FN void og_barrier_wait(uint32_t barrier, uint32_t parity)
{
    asm volatile("{\n .reg .pred done;\n"
                 "again:\n mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 " @done bra over;\n bra again;\nover:\n}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* Eviction priorities of L2: createpolicy's results for all of a box. */
#define OG_READ_ONCE 0x12f0000000000000ull
#define OG_READ_NORMALLY 0x1000000000000000ull
#define OG_READ_OFTEN 0x14f0000000000000ull

/* The box at (column, row) of matrix `base` of map goes to shared memory. */
OG_FN void og_copy_box(uint32_t to, const og_map *map, int column, int row, int base,
                       uint32_t barrier, uint64_t policy)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%2,%3,%4}], [%5], %6;" ::"r"(to),
                 "l"(map), "r"(column), "r"(row), "r"(base), "r"(barrier), "l"(policy)
                 : "memory");
}

/* The same of a map of five dims. */
OG_FN void og_copy_patch(uint32_t to, const og_map *map, int w, int h, int d, int c, int b,
                         uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2,%3,%4,%5,%6}], [%7];" ::"r"(to),
                 "l"(map), "r"(w), "r"(h), "r"(d), "r"(c), "r"(b), "r"(barrier)
                 : "memory");
}

/* The box goes to both blocks of a cluster, at the same place; each one's barrier counts it. */
OG_FN void og_copy_box_to_both(uint32_t to, const og_map *map, int column, int row, int base,
                               uint32_t barrier, uint64_t policy)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster.L2::cache_hint [%0], [%1, {%2,%3,%4}], [%5], %6, %7;" ::"r"(
                     to),
                 "l"(map), "r"(column), "r"(row), "r"(base), "r"(barrier), "h"((uint16_t)3),
                 "l"(policy)
                 : "memory");
}

/* Arrives at the barrier that is there in block `rank` of the cluster. With .release.cluster
 * kernels took twice as long (H200). */
OG_FN void og_barrier_arrive_at(uint32_t barrier, uint32_t rank)
{
    asm volatile("{\n .reg .b32 there;\n mapa.shared::cluster.u32 there, %0, %1;\n"
                 " mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(barrier),
                 "r"(rank)
                 : "memory");
}

OG_FN void og_fetch_map(const og_map *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* The 128 threads of consumer group 0 or 1 meet. */
OG_FN void og_meet_group(int group)
{
    asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
}

OG_FN og_four og_load_shared(uint32_t at)
{
    og_four v;
    asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(v.e[0]), "=f"(v.e[1]), "=f"(v.e[2]), "=f"(v.e[3])
                 : "r"(at)
                 : "memory");
    return v;
}

OG_FN float2 og_load_shared_two(uint32_t at)
{
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(at) : "memory");
    return v;
}

OG_FN float og_load_shared_one(uint32_t at)
{
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(at) : "memory");
    return v;
}

OG_FN og_four_words og_load_shared_words(uint32_t at)
{
    og_four_words v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.e[0]), "=r"(v.e[1]), "=r"(v.e[2]), "=r"(v.e[3])
                 : "r"(at)
                 : "memory");
    return v;
}

/* Four matrices of 8 rows of 16 bytes, as og_load_matrices() of mma_ptx.cuh. */
OG_FN void og_load_matrices_at(uint32_t *to, uint32_t row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
}

/* What this thread has read from shared memory is read before TMA may overwrite it. An
 * arrival alone does not wait for the loads: some schedules gave wrong rows (H200). */
OG_FN void og_finish_loads()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Registers go from threads that only copy to those that compute; all of a warpgroup come. */
template <int registers> OG_FN void og_give_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

template <int registers> OG_FN void og_take_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

/* Comes before the first product after registers were written that products use. */
OG_FN void og_products_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

OG_FN void og_products_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until at most so many groups of products are under way. */
template <int groups> OG_FN void og_products_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory");
}

/* The compiler may not read from memory earlier what is read after this place. */
OG_FN void og_pin_memory()
{
    asm volatile("" ::: "memory");
}

/* The compiler may neither read d before this place nor move what it writes across. */
OG_FN void og_pin(og_held &d)
{
#pragma unroll
    for (int i = 0; i < OG_HELD; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

/* How a product of OG_WIDTH columns is written: d's registers come first, then its operands. */
#define OG_D16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define OG_D32 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define OG_D64                                                                                     \
    "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"                             \
    "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define OG_D96                                                                                     \
    "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"                             \
    "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define OG_D128                                                                                    \
    "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"                             \
    "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"                             \
    "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,"                 \
    "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define OG_EIGHT(d, b)                                                                             \
    "+f"(d[b]), "+f"(d[b + 1]), "+f"(d[b + 2]), "+f"(d[b + 3]), "+f"(d[b + 4]), "+f"(d[b + 5]),    \
        "+f"(d[b + 6]), "+f"(d[b + 7])
#define OG_SIXTEEN(d, b) OG_EIGHT(d, b), OG_EIGHT(d, b + 8)
#if OG_WIDTH == 256
#define OG_SHAPE "m64n256"
#define OG_D "{" OG_D16 "," OG_D32 "," OG_D64 "," OG_D128 "}"
#define OG_D_OPERANDS(d)                                                                           \
    OG_SIXTEEN(d, 0), OG_SIXTEEN(d, 16), OG_SIXTEEN(d, 32), OG_SIXTEEN(d, 48),                     \
        OG_SIXTEEN(d, 64), OG_SIXTEEN(d, 80), OG_SIXTEEN(d, 96), OG_SIXTEEN(d, 112)
#define OG_DESCRIBED "%128, %129"
#define OG_DESCRIBED_ADDS "%130"
#elif OG_WIDTH == 192
#define OG_SHAPE "m64n192"
#define OG_D "{" OG_D16 "," OG_D32 "," OG_D64 "," OG_D96 "}"
#define OG_D_OPERANDS(d)                                                                           \
    OG_SIXTEEN(d, 0), OG_SIXTEEN(d, 16), OG_SIXTEEN(d, 32), OG_SIXTEEN(d, 48),                     \
        OG_SIXTEEN(d, 64), OG_SIXTEEN(d, 80)
#define OG_DESCRIBED "%96, %97"
#define OG_DESCRIBED_ADDS "%98"
#elif OG_WIDTH == 128
#define OG_SHAPE "m64n128"
#define OG_D "{" OG_D16 "," OG_D32 "," OG_D64 "}"
#define OG_D_OPERANDS(d)                                                                           \
    OG_SIXTEEN(d, 0), OG_SIXTEEN(d, 16), OG_SIXTEEN(d, 32), OG_SIXTEEN(d, 48)
#define OG_REGISTERS "{%64,%65,%66,%67}, %68"
#define OG_REGISTERS_ADDS "%69"
#define OG_DESCRIBED "%64, %65"
#define OG_DESCRIBED_ADDS "%66"
#elif OG_WIDTH == 64
#define OG_SHAPE "m64n64"
#define OG_D "{" OG_D16 "," OG_D32 "}"
#define OG_D_OPERANDS(d) OG_SIXTEEN(d, 0), OG_SIXTEEN(d, 16)
#define OG_REGISTERS "{%32,%33,%34,%35}, %36"
#define OG_REGISTERS_ADDS "%37"
#define OG_DESCRIBED "%32, %33"
#define OG_DESCRIBED_ADDS "%34"
#else
#define OG_SHAPE "m64n32"
#define OG_D "{" OG_D16 "}"
#define OG_D_OPERANDS(d) OG_SIXTEEN(d, 0)
#define OG_REGISTERS "{%16,%17,%18,%19}, %20"
#define OG_REGISTERS_ADDS "%21"
#endif

#ifdef OG_MMA_TYPE
/* d (64 x OG_WIDTH, float32) = left (64 x 16) * right (16 x OG_WIDTH), both of OG_MMA_TYPE and
 * described; adds: + d. */
OG_FN void og_multiply_16(og_held &d, uint64_t left, uint64_t right, uint32_t adds)
{
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, " OG_DESCRIBED_ADDS ", 0;\n"
                 "wgmma.mma_async.sync.aligned." OG_SHAPE "k16.f32." OG_MMA_TYPE "." OG_MMA_TYPE
                 " " OG_D ", " OG_DESCRIBED ", p, 1, 1, " OG_ACROSS ";\n}"
                 : OG_D_OPERANDS(d)
                 : "l"(left), "l"(right), "r"(adds));
}
#else
/* d (64 x OG_WIDTH, float32) = left (64 x 16, float16 in registers) * right (16 x OG_WIDTH,
 * described); adds: + d. */
template <int adds> OG_FN void og_multiply_16(og_held &d, const uint32_t *left, uint64_t right)
{
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, " OG_REGISTERS_ADDS ", 0;\n"
                 "wgmma.mma_async.sync.aligned." OG_SHAPE "k16.f32.f16.f16 " OG_D ", " OG_REGISTERS
                 ", p, 1, 1, 0;\n}"
                 : OG_D_OPERANDS(d)
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "n"(adds));
}

/* The same of 64 columns, if there are 128: half of the sums. */
template <int adds> OG_FN void og_multiply_part(float (&d)[OG_WIDTH > 64 ? 32 : OG_HELD],
                                                const uint32_t *left, uint64_t right)
{
#if OG_WIDTH > 64
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" OG_D16 "," OG_D32
                 "}, {%32,%33,%34,%35}, %36, p, 1, 1, 0;\n}"
                 : OG_SIXTEEN(d, 0), OG_SIXTEEN(d, 16)
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "n"(adds));
#else
    og_multiply_16<adds>(d, left, right);
#endif
}

/* The same of 8 k of TF32. */
template <int adds> OG_FN void og_multiply_8(og_held &d, const uint32_t *left, uint64_t right)
{
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, " OG_REGISTERS_ADDS ", 0;\n"
                 "wgmma.mma_async.sync.aligned." OG_SHAPE "k8.f32.tf32.tf32 " OG_D
                 ", " OG_REGISTERS ", p, 1, 1;\n}"
                 : OG_D_OPERANDS(d)
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "n"(adds));
}
#endif

#elif defined(OG_MMA_TYPE)

OG_FN void og_multiply_16(og_held &d, uint64_t left, uint64_t right, uint32_t adds)
{
    shim_multiply_described(d, left, right, adds, OG_MMA_TYPE, OG_ACROSS);
}

#endif
