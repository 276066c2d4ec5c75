/* SPDX-License-Identifier: MIT
 *
 * hopper_order.cuh - two warpgroups that take turns: one finishes its tile while the other
 * multiplies. `order` is the first of two barriers: it is the turn of warpgroup 0, of 1.
 */
#include "cuda/kernels/hopper_ring.cuh"
#include "cuda/kernels/hopper_ptx.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* The number of the thread's warpgroup, of those that multiply. */
OG_FN int og_own_group()
{
    return threadIdx.x / 128 - 1;
}

/* Waits until the other warpgroup has come to its tile's last stage: before, a stage's barrier may be
 * two phases behind the one to wait for, which looks like its end. parity: of the next turn's phase. */
OG_FN void og_await_other(uint32_t order, uint32_t &parity)
{
    og_barrier_wait(order + 8 * og_own_group(), parity);
    parity ^= 1;
}

OG_FN void og_let_other(uint32_t order)
{
    if (threadIdx.x % 32 == 0)
        og_barrier_arrive(order + 8 * (1 - og_own_group()));
}

/* Leaves out so many stages of a ring: those of the other warpgroup's tiles. */
template <int stages> OG_FN void og_skip_stages(og_ring_turn &turn, uint32_t count)
{
    const uint32_t to = turn.stage + count;
    turn.stage = to % stages;
    turn.phase ^= to / stages & 1;
}

#endif
