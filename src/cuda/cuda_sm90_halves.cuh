/* SPDX-License-Identifier: MIT
 *
 * cuda_sm90_halves.cuh - a tile of a product of float16 or bfloat16 on Hopper's tensor cores.
 * Products of halves are exact in float32; a chain of 128 k is summed by the tensor cores,
 * which truncate, chains in float32.
 *
 * x was copied before (cuda_tensor_copy.cuh), with zeros from a.k on; w is read as it is. Both
 * stay in shared memory.
 *
 * PARAMETERS
 *   OG_MMA_TYPE  "f16" or "bf16"
 */
enum {
    OG_W_BYTES = OG_BN * 64 * 2, /* a box of w: OG_BN rows of 64 */
    OG_X_BYTES = OG_BM * 64 * 2, /* of x */
    OG_STAGE_BYTES = OG_W_BYTES + OG_X_BYTES,
    OG_STAGES = OG_RING_BYTES / OG_STAGE_BYTES
};
static_assert(2 * OG_STAGES <= OG_BARRIERS, "");

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Shared memory of a block, and its barriers: a stage is full, a stage is empty. */
struct og_rings {
    uint32_t stages, full, empty;
};

OG_FN og_rings og_start_rings(uint32_t base, uint32_t barriers)
{
    og_rings rings = {base, barriers, barriers + 8 * OG_STAGES};
    for (int i = 0; threadIdx.x == 0 && i < OG_STAGES; i++) {
        og_barrier_init(rings.full + 8 * i, 1);
        og_barrier_init(rings.empty + 8 * i, 4 * OG_GROUPS); /* warps that read */
    }
    return rings;
}

/* All of the first warpgroup comes here. */
OG_FN void og_produce(const og_args &a, const og_rings &rings)
{
    const uint64_t normal = 0x1000000000000000ull; /* createpolicy's evict_normal */
    og_turn turn = {0, 1};
    if (threadIdx.x != 0)
        return;
    og_fetch_map(&a.w_map);
    og_fetch_map(&a.x_map);
    for (og_index i = blockIdx.x; i < a.tiles; i += gridDim.x) {
        og_tile tile = og_find_tile(a, i);
        for (int k = 0; k < (int)a.k_padded; k += 64) {
            uint32_t to = rings.stages + turn.stage * OG_STAGE_BYTES;
            uint32_t full = rings.full + 8 * turn.stage;
            og_barrier_wait(rings.empty + 8 * turn.stage, turn.phase);
            og_barrier_expect(full, OG_STAGE_BYTES);
            og_copy_box(to, &a.w_map, k, (int)tile.n, full, normal);
            og_copy_box(to + OG_W_BYTES, &a.x_map, k, (int)tile.m, full, normal);
            og_advance<OG_STAGES>(turn);
        }
    }
}

struct og_consumer {
    og_rings rings;
    og_turn turn;
    uint32_t w; /* of the group, from a stage's beginning */
};

OG_FN og_consumer og_start_consumer(const og_rings &rings, int column, int t)
{
    (void)t;
    return {rings, {0, 0}, (uint32_t)(column / 64 * 64 * 128)};
}

/* Starts the products of a stage. */
template <int adds> OG_FN void og_multiply_stage(const og_consumer &c, og_held &chain)
{
    uint32_t at = c.rings.stages + c.turn.stage * OG_STAGE_BYTES;
    uint64_t w = og_describe(at + c.w), x = og_describe(at + OG_W_BYTES);
    og_barrier_wait(c.rings.full + 8 * c.turn.stage, c.turn.phase);
    og_products_fence();
    og_multiply_shared_16<adds>(chain, w, x);
#pragma unroll
    for (int k = 1; k < 4; k++)
        og_multiply_shared_16<1>(chain, w + 2 * k, x + 2 * k);
    og_products_commit();
}

OG_FN void og_multiply_tile(const og_args &a, og_consumer &c, og_held &sum, og_held &chain)
{
#pragma unroll
    for (int i = 0; i < OG_HELD; i++)
        sum[i] = 0.0f;
    for (int k = 0; k < (int)a.k_padded; k += 128) {
        og_pin(chain);
        og_turn first = c.turn;
        og_multiply_stage<0>(c, chain);
        og_advance<OG_STAGES>(c.turn);
        og_multiply_stage<1>(c, chain);
        og_products_wait();
        og_pin(chain);
        if (threadIdx.x % 32 == 0) {
            og_barrier_arrive(c.rings.empty + 8 * first.stage);
            og_barrier_arrive(c.rings.empty + 8 * c.turn.stage);
        }
        og_advance<OG_STAGES>(c.turn);
#pragma unroll
        for (int i = 0; i < OG_HELD; i++)
            sum[i] = sum[i] + chain[i];
    }
}

/* ---- for pass 0: see cuda_sm90_pairs.cuh ---------------------------------------------------- */

OG_FN int og_column_of(int g)
{
    return g;
}

enum { OG_STEP_1 = 4, OG_STEP_2 = 8, OG_STEP_4 = 16 };

/* Halves need no scales: nothing is left to og_redo. */
OG_FN uint32_t og_end_sums(const og_args &, const og_place &, og_held &, uint32_t *)
{
    return 0;
}

#endif
