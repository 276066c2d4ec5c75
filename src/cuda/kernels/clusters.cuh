/* SPDX-License-Identifier: MIT
 *
 * clusters.cuh - blocks of a cluster (Hopper and later), which see each other's shared memory.
 *
 * tests/cuda/shim_hopper.h has the same functions for a CPU.
 */
#include "cuda/kernels/prologue.cuh"

#ifndef OG_CUDA_SHIM

/* All threads of a cluster meet; what they wrote before, others read. */
OG_FN void og_meet_cluster()
{
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

/* Writes x to what block `rank` of the cluster has where `to` is in this one's shared memory. */
template <class T> OG_FN void og_put_in_block(T *to, uint32_t rank, const T &x)
{
    uint64_t there;
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(to), "r"(rank));
    *(T *)there = x;
}

#endif
