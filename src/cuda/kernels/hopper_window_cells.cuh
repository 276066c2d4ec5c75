/* SPDX-License-Identifier: MIT
 *
 * hopper_window_cells.cuh - the products of a convolution on Hopper's tensor cores of which warps
 * beside those that multiply split the patches. Part of hopper_windows.cuh, which includes it.
 *
 * An element of a patch is seen by many taps, and would be split by as many. Here each place of a
 * patch becomes a *cell*: its 32 channels times the power of two that brings the greatest of them into
 * [2^14, 2^15), hi, then lo; then what has been found in them. The cell of a place is the same in every
 * window and tile. A thread that multiplies loads its part of the left factor from cells as it
 * is (ldmatrix), and a chain of products is a cell long:
 *
 *     hi | lo | word: 16 bits of the greatest magnitude; in how many halves of 16 channels an element is
 *     64   64   small (pairs.cuh). 16 bytes, so that neighbours begin in different banks
 */

/* ---- patches become cells ---------------------------------------------------------------------- */

struct og_cell {
    float e[OG_PATCH_CHANNELS];
};

/* What is found in a cell: its word. */
OG_FN uint32_t og_look_at_cell(const og_cell &v)
{
    const uint32_t below = (uint32_t)OG_SMALL << 7;
    uint32_t most = 0, least[2] = {0x7fff7fffu, 0x7fff7fffu};
#pragma unroll
    for (int i = 0; i < OG_PATCH_CHANNELS; i += 2) {
        const uint32_t both =
            __byte_perm(og_bits_f32(v.e[i]), og_bits_f32(v.e[i + 1]), 0x7632) & 0x7fff7fffu;
        uint32_t &under = least[i / 16];
        most = og_max_halves(most, both);
        under = og_min_halves(og_add_halves(both, 0xffffffffu), under); /* 0 - 1 is great */
    }
    most = most >> 16 > (most & 0xffff) ? most >> 16 : most & 0xffff;
    const uint32_t exponent = og_bits_f32(og_find_undo(most << 16)) >> 16;
    uint32_t small = 0;
#pragma unroll
    for (int i = 0; i < 2; i++)
        small += (least[i] >> 16) + below < exponent || (least[i] & 0xffff) + below < exponent;
    return most << 16 | small;
}

/* Makes the cell of place p of a patch. */
OG_FN void og_split_cell(uint32_t patch, char *cells, int p)
{
    og_cell v;
#pragma unroll
    for (int i = 0; i < OG_PATCH_CHANNELS; i++)
        v.e[i] = og_load_shared_one(patch + 4 * p + i * OG_PATCH_PITCH);
    const uint32_t word = og_look_at_cell(v);
    const float scale = og_find_scale(og_find_undo(word & 0xffff0000u));
    og_four_words *to = (og_four_words *)(cells + p * OG_CELL_PITCH);
#pragma unroll
    for (int i = 0; i < OG_PATCH_CHANNELS / 8; i++) {
        og_four_words hi, lo;
#pragma unroll
        for (int j = 0; j < 4; j++)
            og_split_scaled(v.e[8 * i + 2 * j], v.e[8 * i + 2 * j + 1], scale, hi.e[j], lo.e[j]);
        to[i] = hi;
        to[OG_PATCH_CHANNELS / 8 + i] = lo;
    }
    *(uint32_t *)(to + OG_PATCH_CHANNELS / 4) = word;
}

/* Which patch is next: a tile's, of a chunk of channels. */
struct og_next_patch {
    og_index tile;
    int chunk;
};

OG_FN void og_pass_patch(const og_args &a, og_next_patch &at)
{
    if (++at.chunk < (int)a.chunks)
        return;
    at.chunk = 0;
    at.tile += gridDim.x;
}

/* The first of the threads that split brings patches. */
OG_FN void og_bring_next(const og_args &a, const og_window_rings &rings, int thread,
                         og_next_patch &at, og_ring_turn &turn)
{
    if (thread == 0 && at.tile < a.items)
        og_bring_patch(a, rings, og_find_window_tile(a, at.tile), at.chunk, turn);
    og_pass_patch(a, at);
    __syncwarp();
}

OG_FN void og_split_patches(const og_args &a, const og_window_rings &rings, int thread)
{
    og_ring_turn patch = {0, 0}, brought = {0, 1}, cells = {0, 1};
    og_next_patch at = {(og_index)blockIdx.x, 0}, next = at;
    if (OG_COPIES_IMAGE)
        og_await_launch();
    for (int i = 0; i < OG_PATCH_STAGES; i++)
        og_bring_next(a, rings, thread, next, brought);
    for (; at.tile < a.items; og_pass_patch(a, at)) {
        const uint32_t from = rings.patches + patch.stage * OG_PATCH_STAGE;
        char *to = rings.memory + OG_CELLS_AT + cells.stage * OG_CELLS_STAGE;
        og_barrier_wait(rings.patch_full + 8 * patch.stage, patch.phase);
        og_barrier_wait(rings.cells_empty + 8 * cells.stage, cells.phase);
        for (int p = thread; p < OG_PATCH_PITCH / 4; p += 32 * OG_SPLIT_WARPS)
            og_split_cell(from, to, p);
        og_finish_loads();
        og_release_stage(rings.cells_full + 8 * cells.stage);
        og_release_stage(rings.patch_empty + 8 * patch.stage);
        og_bring_next(a, rings, thread, next, brought);
        og_advance<OG_PATCH_STAGES>(patch);
        og_advance<OG_CELLS>(cells);
    }
}

/* ---- cells are multiplied ---------------------------------------------------------------------- */

/* A thread's part of 32 k of the left factor: registers of 2 steps of 16 k; the words of its two places. */
struct og_two_cells {
    uint32_t hi[8], lo[8], words[2];
};

/* Of a patch. */
OG_FN int og_count_taps(const og_window_consumer &c)
{
    return OG_TILE_PHASES > 1 ? c.blocks : (int)OG_STEPS / 2;
}

/* Reads the next tap's cells of the warp's places, and where those of the tap after it are. */
OG_FN void og_read_cells(og_window_consumer &c, og_two_cells &f)
{
    const uint32_t stage = c.patch.stage;
    if (c.slot == 0)
        og_barrier_wait(c.rings.cells_full + 8 * stage, c.patch.phase);
    const uint32_t tap = c.rings.cells + stage * OG_CELLS_STAGE + c.tap;
#pragma unroll
    for (int step = 0; step < 2; step++) {
        og_load_matrices_at(f.hi + 4 * step, tap + c.at + 32 * step);
        og_load_matrices_at(f.lo + 4 * step, tap + c.at + 64 + 32 * step);
    }
#pragma unroll
    for (int i = 0; i < 2; i++)
        f.words[i] =
            og_bits_f32(og_load_shared_one(tap + c.word + 8 * OG_STEP_W * OG_CELL_PITCH * i));
    if (++c.slot == og_count_taps(c)) {
        og_release_stage(c.rings.cells_empty + 8 * stage);
        og_advance<OG_CELLS>(c.patch);
        c.slot = 0;
    }
    c.tap = og_bits_f32(og_load_shared_one(c.table + 4 * c.slot));
}

/* 64 k of filters: what describes their hi; their stage. */
struct og_filters {
    uint64_t hi;
    uint32_t stage;
};

OG_FN og_filters og_await_filters(og_window_consumer &c)
{
    const og_filters w = {og_describe<0>(c.rings.x + c.x.stage * OG_X_BOX_BYTES), c.x.stage};
    og_barrier_wait(c.rings.x_full + 8 * c.x.stage, c.x.phase);
    og_advance<OG_X_STAGES>(c.x);
    return w;
}

OG_FN void og_release_filters(const og_window_consumer &c, const og_filters &w)
{
    if (threadIdx.x % 32 == 0)
        og_barrier_arrive(c.rings.x_empty + 8 * w.stage);
}

/* Sums of a chain of products: of 64 filters, if there are 128. */
enum {
    OG_PART_HELD = OG_BM > 64 ? 32 : OG_HELD,
    OG_PART_FILTERS = 64 * 128 / 16 /* from the first 64 to the next, as og_describe() counts */
};
typedef float og_chain_part[OG_PART_HELD];

/* og_pin() of a part. */
OG_FN void og_pin_part(og_chain_part &chain)
{
#if defined(__CUDA_ARCH__)
#pragma unroll
    for (int i = 0; i < OG_PART_HELD; i++)
        asm volatile("" : "+f"(chain[i])::"memory");
#endif
}

/* Starts the products of cells f with 32 k of filters: small terms first. */
OG_FN void og_start_cells(og_chain_part &chain, const og_two_cells &f, uint64_t hi)
{
    const uint64_t lo = hi + OG_X_BOX_BYTES / 2 / 16;
    og_pin_part(chain);
    og_products_fence();
    og_multiply_part<0>(chain, f.lo, hi);
    og_multiply_part<1>(chain, f.hi, lo);
    og_multiply_part<1>(chain, f.lo + 4, hi + 2);
    og_multiply_part<1>(chain, f.hi + 4, lo + 2);
    og_multiply_part<1>(chain, f.hi, hi);
    og_multiply_part<1>(chain, f.hi + 4, hi + 2);
    og_products_commit();
}

/* Waits for a chain that cells f are in, when at most so many that were started later are under way. What
 * follows may not overwrite the cells' registers earlier. */
template <int later> OG_FN void og_await_cells(og_chain_part &chain, const og_two_cells &f)
{
    og_products_wait<later>();
    og_pin_part(chain);
#if defined(__CUDA_ARCH__)
#pragma unroll
    for (int i = 0; i < 8; i++)
        asm volatile("" ::"r"(f.hi[i]), "r"(f.lo[i]));
#endif
}

/* What the words of cells f say: what undoes their scales, and what was found. */
OG_FN float2 og_take_words(og_window_consumer &c, const og_two_cells &f)
{
    c.found.most = og_max_halves(c.found.most, __byte_perm(f.words[0], f.words[1], 0x7632));
    c.found.quarters = og_add_counts(c.found.quarters, __byte_perm(f.words[0], f.words[1], 0x5410));
    return {og_find_undo(f.words[0]), og_find_undo(f.words[1])};
}

template <int part>
OG_FN void og_add_cells(og_held &sum, const og_chain_part &chain, const float2 &undo)
{
#pragma unroll
    for (int i = 0; i < OG_PART_HELD; i++) {
        float &to = sum[part * OG_PART_HELD + i];
        to = fmaf(chain[i], i / 2 % 2 ? undo.y : undo.x, to);
    }
}

/* Two chains are under way, so that one's products are next while the other one's sums are added: of two
 * cells, or of the two halves of 128 filters. What loads cells waits behind products that were started
 * before, and so comes as early as their registers are free. */
struct og_cell_turns {
    og_two_cells even, odd; /* by their number in the tile */
    og_chain_part chains[2];
};

#if OG_BM > 64

OG_FN void og_begin_cells(og_window_consumer &c, og_cell_turns &t, uint64_t hi)
{
    og_read_cells(c, t.even);
    og_read_cells(c, t.odd);
    og_start_cells(t.chains[0], t.even, hi);
    og_start_cells(t.chains[1], t.even, hi + OG_PART_FILTERS);
}

/* Cells g take the chains of f, which are under way; then f are those after them, if there are more. */
OG_FN void og_follow_cells(og_window_consumer &c, og_held &sum, og_cell_turns &t, og_two_cells &f,
                           const og_two_cells &g, uint64_t hi, bool more)
{
    const float2 undo = og_take_words(c, f);
    og_await_cells<1>(t.chains[0], f);
    og_add_cells<0>(sum, t.chains[0], undo);
    og_start_cells(t.chains[0], g, hi);
    og_await_cells<1>(t.chains[1], f);
    if (more)
        og_read_cells(c, f);
    og_add_cells<1>(sum, t.chains[1], undo);
    og_start_cells(t.chains[1], g, hi + OG_PART_FILTERS);
}

OG_FN void og_end_cells(og_window_consumer &c, og_held &sum, og_cell_turns &t,
                        const og_two_cells &f)
{
    const float2 undo = og_take_words(c, f);
    og_await_cells<1>(t.chains[0], f);
    og_add_cells<0>(sum, t.chains[0], undo);
    og_await_cells<0>(t.chains[1], f);
    og_add_cells<1>(sum, t.chains[1], undo);
}

/* Adds up a tile's chains, of so many cells, two at least; w: its filters. */
OG_FN void og_multiply_tile(og_window_consumer &c, og_held &sum, int count, og_filters &w)
{
    og_cell_turns t;
    og_begin_cells(c, t, w.hi);
    for (int k = 2; k < count; k += 2) {
        og_follow_cells(c, sum, t, t.even, t.odd, w.hi + 4, true);
        const og_filters next = og_await_filters(c);
        og_follow_cells(c, sum, t, t.odd, t.even, next.hi, k + 1 < count);
        og_release_filters(c, w);
        w = next;
    }
    if (count % 2 == 0) {
        og_follow_cells(c, sum, t, t.even, t.odd, w.hi + 4, false);
        og_end_cells(c, sum, t, t.odd);
    } else {
        og_end_cells(c, sum, t, t.even);
    }
}

#else

/* Cells f, of the chain that is older, make room for the next ones. */
OG_FN void og_follow_cells(og_window_consumer &c, og_held &sum, og_chain_part &chain,
                           og_two_cells &f, uint64_t hi)
{
    const float2 undo = og_take_words(c, f);
    og_await_cells<1>(chain, f);
    og_read_cells(c, f);
    og_add_cells<0>(sum, chain, undo);
    og_start_cells(chain, f, hi);
}

template <int later>
OG_FN void og_end_cells(og_window_consumer &c, og_held &sum, og_chain_part &chain,
                        const og_two_cells &f)
{
    const float2 undo = og_take_words(c, f);
    og_await_cells<later>(chain, f);
    og_add_cells<0>(sum, chain, undo);
}

/* Adds up a tile's chains, of so many cells, two at least; w: its filters. */
OG_FN void og_multiply_tile(og_window_consumer &c, og_held &sum, int count, og_filters &w)
{
    og_cell_turns t;
    og_read_cells(c, t.even);
    og_start_cells(t.chains[0], t.even, w.hi);
    og_read_cells(c, t.odd);
    og_start_cells(t.chains[1], t.odd, w.hi + 4);
    for (int k = 3; k < count; k += 2) {
        const og_filters next = og_await_filters(c);
        og_follow_cells(c, sum, t.chains[0], t.even, next.hi);
        og_follow_cells(c, sum, t.chains[1], t.odd, next.hi + 4);
        og_release_filters(c, w); /* products with them have ended */
        w = next;
    }
    if (count % 2) {
        const og_filters next = og_await_filters(c);
        og_follow_cells(c, sum, t.chains[0], t.even, next.hi);
        og_end_cells<1>(c, sum, t.chains[1], t.odd);
        og_end_cells<0>(c, sum, t.chains[0], t.even);
        og_release_filters(c, w);
        w = next;
    } else {
        og_end_cells<1>(c, sum, t.chains[0], t.even);
        og_end_cells<0>(c, sum, t.chains[1], t.odd);
    }
}

#endif

/* The same of one cell. */
OG_FN void og_multiply_cell(og_window_consumer &c, og_held &sum, const og_filters &w)
{
    og_two_cells f;
    og_chain_part chain;
    og_read_cells(c, f);
    const float2 undo = og_take_words(c, f);
    og_start_cells(chain, f, w.hi);
    og_await_cells<0>(chain, f);
    og_add_cells<0>(sum, chain, undo);
    if (OG_BM > 64) {
        og_start_cells(chain, f, w.hi + OG_PART_FILTERS);
        og_await_cells<0>(chain, f);
        og_add_cells<OG_BM / 128>(sum, chain, undo);
    }
}

OG_FN void og_consume_cells(const og_args &a, const og_window_rings &rings)
{
    og_window_consumer c = og_start_window_consumer(rings, threadIdx.x - 128);
    og_window_ends ends = {-1, 0};
    for (og_index i = blockIdx.x; i < a.items; i += gridDim.x) {
        og_held sum;
        og_enter_tile(a, c, og_thread() - 128, i);
        c.tap = og_bits_f32(og_load_shared_one(c.table));
        c.found = {0, 0};
        og_clear_sums(sum);
        const int count = (int)a.chunks * og_count_taps(c);
        og_filters w = og_await_filters(c);
        if (count == 1)
            og_multiply_cell(c, sum, w);
        else
            og_multiply_tile(c, sum, count, w);
        og_release_filters(c, w);
        og_end_window_tile(a, i, rings, og_thread() - 128, c.found, sum, ends);
    }
}
