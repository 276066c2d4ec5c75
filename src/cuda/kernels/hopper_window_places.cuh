/* SPDX-License-Identifier: MIT
 *
 * hopper_window_places.cuh - the products of a convolution on Hopper's tensor cores whose threads split
 * the places that they read: each of them 64 k at a time, while the tensor cores work on the 64 k before.
 * Part of hopper_windows.cuh, which includes it.
 */

/* Steps of 16 k of a tile's first block, of those with odd numbers, of those with even ones that follow
 * these, and of a last one that does: where the last is known when this is compiled, without padding. */
enum {
    OG_FIRST_STEPS = OG_CHUNK_BLOCKS == 1 ? OG_LAST_STEPS : 4,
    OG_ODD_STEPS = OG_CHUNK_BLOCKS == 2 ? OG_LAST_STEPS : 4,
    OG_EVEN_STEPS = OG_CHUNK_BLOCKS == 3 ? OG_LAST_STEPS : 4,
    OG_END_STEPS = OG_CHUNK_BLOCKS == 1 ? OG_LAST_STEPS : OG_EVEN_STEPS
};

/* taps[step][i]: the word of a thread's elements 2 i and 2 i + 1 of a step. */
OG_FN void og_read_taps(const og_window_consumer &c, uint32_t (&taps)[4][2])
{
    const int words = OG_STEP_TAPS == 1 ? 1 : 2; /* of a thread's, of a step */
    const uint32_t at = c.table + 16 * words * c.block;
    const og_four_words first = og_load_shared_words(at);
    const og_four_words second = words == 1 ? first : og_load_shared_words(at + 16);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int word = words == 1 ? i / 2 : i;
        taps[i / 2][i % 2] = word < 4 ? first.e[word % 4] : second.e[word % 4];
    }
}

/* Reads the next block of places. All of it is in registers before the first conversion. */
template <int steps> OG_FN void og_read_places(og_window_consumer &c, og_fragment &f)
{
    og_four v[4][2]; /* [step][place] */
    const uint32_t stage = c.patch.stage;
    if (c.block == 0)
        og_barrier_wait(c.rings.patch_full + 8 * stage, c.patch.phase);
    uint32_t taps[4][2];
    og_read_taps(c, taps);
    const uint32_t at = c.rings.patches + stage * OG_PATCH_STAGE + c.at;
#pragma unroll
    for (int step = 0; step < steps; step++)
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                v[step][i].e[j] = og_load_shared_one(
                    at + taps[step][j / 2] + 4 * 8 * OG_STEP_W * i +
                    og_channel_at((j / 2 * 8 + j % 2) % OG_STEP_CHANNELS) * OG_PATCH_PITCH);
    if (++c.block == (OG_TILE_PHASES > 1 ? c.blocks : (int)OG_CHUNK_BLOCKS)) {
        og_finish_loads();
        og_release_stage(c.rings.patch_empty + 8 * stage);
        og_advance<OG_PATCH_STAGES>(c.patch);
        c.block = 0;
    }
    og_split_block<steps>(v, f, c.found);
}

/* What follows may not overwrite the block's registers earlier. */
template <int steps> OG_FN void og_hold(const og_fragment &f)
{
#if defined(__CUDA_ARCH__)
#pragma unroll
    for (int i = 0; i < 4 * steps; i++)
        asm volatile("" ::"r"(f.hi[i]), "r"(f.lo[i]));
#endif
}

/* Starts the products of block f, where groups have turns (OG_ORDERS) when the other has started its own:
 * one multiplies while the other reads, or is at the end of a tile. */
template <int steps>
OG_FN void og_start_products(const og_window_rings &rings, og_window_consumer &c, og_held &chain,
                             const og_fragment &f)
{
    if (OG_ORDERS)
        og_await_other(rings.order, c.turn);
    og_multiply_block<false, steps>(chain, f, rings.x + c.x.stage * OG_X_BOX_BYTES);
    if (OG_ORDERS)
        og_let_other(rings.order);
}

/* Ends the products of block f; meanwhile the next one is read, if there is one. See og_end_block()
 * of hopper_pairs.cuh. */
template <int steps, int next_steps>
OG_FN void og_end_places(og_window_consumer &c, og_held &sum, og_held &chain, const og_fragment &f,
                         bool more, og_fragment &next)
{
    if (more) {
        og_read_places<next_steps>(c, next);
        og_ring_turn following = c.x;
        og_advance<OG_X_STAGES>(following);
        og_barrier_wait(c.rings.x_full + 8 * following.stage, OG_KEEPS ? 0 : following.phase);
    }
    og_products_wait<0>();
    og_pin(chain);
    og_hold<steps>(f);
    if (!OG_KEEPS && threadIdx.x % 32 == 0)
        og_barrier_arrive(c.rings.x_empty + 8 * c.x.stage);
    og_advance<OG_X_STAGES>(c.x);
    og_add_scaled_chain(sum, chain, f);
}

/* All of a tile is read: what is found next is in another's. */
OG_FN void og_end_findings(const og_args &a, og_window_consumer &c, int thread, og_index next,
                           og_findings &found)
{
    found = c.found;
    c.found = {0, 0};
    og_enter_tile(a, c, thread, next);
}

OG_FN void og_consume_places(const og_args &a, const og_window_rings &rings)
{
    const int thread = threadIdx.x - 128;
    const og_index first = og_first_tile(thread / 128), step = og_tile_step();
    og_window_consumer c = og_start_window_consumer(rings, thread);
    og_held chain, sum;
    og_fragment f, g;
    og_findings found = {0, 0}; /* in the tile that is multiplied, once all of it is read */
    og_window_ends ends = {-1, 0};
    if (first >= a.items)
        return;
    if (OG_ALTERNATES && thread >= 128)
        og_barrier_wait(rings.begun + 8 * (thread / 128 - 1), 0);
    og_clear_sums(chain);
    og_enter_tile(a, c, thread, first);
    og_read_places<OG_FIRST_STEPS>(c, f);
    og_barrier_wait(rings.x_full, 0);
    for (og_index i = first; i < a.items; i += step) {
        const bool is_last = i + step >= a.items;
        const int blocks = OG_TILE_PHASES == 1 ? (int)(a.k_padded / 64) : (int)a.chunks * c.blocks;
        int b = 0;
        og_clear_sums(sum);
        for (; b + 1 < blocks; b += 2) {
            og_start_products<4>(rings, c, chain, f);
            og_end_places<4, OG_ODD_STEPS>(c, sum, chain, f, true, g);
            og_start_products<OG_ODD_STEPS>(rings, c, chain, g);
            if (b + 2 == blocks)
                og_end_findings(a, c, og_thread() - 128, i + step, found);
            og_end_places<OG_ODD_STEPS, OG_EVEN_STEPS>(c, sum, chain, g,
                                                       b + 2 < blocks || !is_last, f);
        }
        if (b < blocks) {
            og_start_products<OG_END_STEPS>(rings, c, chain, f);
            og_end_findings(a, c, og_thread() - 128, i + step, found);
            og_end_places<OG_END_STEPS, OG_FIRST_STEPS>(c, sum, chain, f, !is_last, g);
            f = g;
        }
        if (OG_ALTERNATES && i < step)
            og_release_stage(rings.begun + 8 * ((og_thread() - 128) / 128));
        og_end_window_tile(a, i, rings, og_thread() - 128, found, sum, ends);
    }
}
