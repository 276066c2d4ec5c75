/* SPDX-License-Identifier: MIT
 *
 * hopper_ring.cuh - where a thread is in a ring of stages in shared memory, which one thread fills
 * and others empty, with a barrier for each.
 */
#include "cuda/kernels/prologue.cuh"

/* A stage of a ring, and the parity of the barriers' phase there. */
struct og_ring_turn {
    uint32_t stage, phase;
};

template <int stages> OG_FN void og_advance(og_ring_turn &turn)
{
    if (++turn.stage == stages) {
        turn.stage = 0;
        turn.phase ^= 1;
    }
}
