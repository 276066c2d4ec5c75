/* SPDX-License-Identifier: MIT
 *
 * cuda_sm90_ptx.cuh - Hopper's own instructions that cuda_sm90.cuh uses, one function each:
 * barriers in shared memory, the tensor copy engine (TMA), tensor-core products of a
 * warpgroup (wgmma). Addresses are those of shared memory, as 32 bits.
 */
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

/* The box at (column, row) of map goes to shared memory; policy: an L2 eviction priority. */
OG_FN void og_copy_box(uint32_t to, const og_map *map, int column, int row, uint32_t barrier,
                       uint64_t policy)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%2,%3}], [%4], %5;" ::"r"(to),
                 "l"(map), "r"(column), "r"(row), "r"(barrier), "l"(policy)
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

/* What this thread has read from shared memory is read before TMA may overwrite it. An
 * arrival alone does not wait for the loads: some schedules gave wrong rows (H200). */
OG_FN void og_finish_loads()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Before the first product after registers were written that products use. */
OG_FN void og_products_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

OG_FN void og_products_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

OG_FN void og_products_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

/* The compiler may neither read d before this place nor move what it writes across. */
OG_FN void og_pin(og_held &d)
{
#pragma unroll
    for (int i = 0; i < OG_HELD; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

/* A tile of float16 in shared memory, rows of 64 (128 bytes, swizzled): the address in units
 * of 16 bytes, 1024 bytes from 8 rows to the next 8, swizzling over 128 bytes. A step of 16
 * along k adds 2. */
OG_FN uint64_t og_describe(uint32_t address)
{
    return (uint64_t)1 << 62 | (uint64_t)64 << 32 | (uint64_t)1 << 16 |
           (uint64_t)((address & 0x3ffff) >> 4);
}

/* How a product of OG_BM columns is written: d's registers come first, then its operands. */
#define OG_EIGHT(d, b)                                                                             \
    "+f"(d[b]), "+f"(d[b + 1]), "+f"(d[b + 2]), "+f"(d[b + 3]), "+f"(d[b + 4]), "+f"(d[b + 5]),    \
        "+f"(d[b + 6]), "+f"(d[b + 7])
#if OG_BM == 128
#define OG_SHAPE "m64n128k16"
#define OG_D                                                                                       \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                      \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"                             \
    "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"                             \
    "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}"
#define OG_D_OPERANDS(d)                                                                           \
    OG_EIGHT(d, 0), OG_EIGHT(d, 8), OG_EIGHT(d, 16), OG_EIGHT(d, 24),                              \
        OG_EIGHT(d, 32), OG_EIGHT(d, 40), OG_EIGHT(d, 48), OG_EIGHT(d, 56)
#define OG_REGISTERS "{%64,%65,%66,%67}, %68"
#define OG_REGISTERS_ADDS "%69"
#define OG_DESCRIBED "%64, %65"
#define OG_DESCRIBED_ADDS "%66"
#elif OG_BM == 64
#define OG_SHAPE "m64n64k16"
#define OG_D                                                                                       \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                      \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}"
#define OG_D_OPERANDS(d)                                                                           \
    OG_EIGHT(d, 0), OG_EIGHT(d, 8), OG_EIGHT(d, 16), OG_EIGHT(d, 24)
#define OG_REGISTERS "{%32,%33,%34,%35}, %36"
#define OG_REGISTERS_ADDS "%37"
#define OG_DESCRIBED "%32, %33"
#define OG_DESCRIBED_ADDS "%34"
#else
#define OG_SHAPE "m64n32k16"
#define OG_D                                                                                       \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}"
#define OG_D_OPERANDS(d)                                                                           \
    OG_EIGHT(d, 0), OG_EIGHT(d, 8)
#define OG_REGISTERS "{%16,%17,%18,%19}, %20"
#define OG_REGISTERS_ADDS "%21"
#define OG_DESCRIBED "%16, %17"
#define OG_DESCRIBED_ADDS "%18"
#endif

/* d (64 x OG_BM, float32) = left (64 x 16, float16 in registers) * right (16 x OG_BM,
 * described); adds: + d. */
template <int adds> OG_FN void og_multiply_16(og_held &d, const uint32_t *left, uint64_t right)
{
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, " OG_REGISTERS_ADDS ", 0;\n"
                 "wgmma.mma_async.sync.aligned." OG_SHAPE ".f32.f16.f16 " OG_D ", " OG_REGISTERS
                 ", p, 1, 1, 0;\n}"
                 : OG_D_OPERANDS(d)
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "n"(adds));
}

#ifdef OG_MMA_TYPE
/* The same with left described as well, of OG_MMA_TYPE. */
template <int adds> OG_FN void og_multiply_shared_16(og_held &d, uint64_t left, uint64_t right)
{
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, " OG_DESCRIBED_ADDS ", 0;\n"
                 "wgmma.mma_async.sync.aligned." OG_SHAPE ".f32." OG_MMA_TYPE "." OG_MMA_TYPE
                 " " OG_D ", " OG_DESCRIBED ", p, 1, 1, 0, 0;\n}"
                 : OG_D_OPERANDS(d)
                 : "l"(left), "l"(right), "n"(adds));
}
#endif
