/* SPDX-License-Identifier: MIT
 *
 * pointwise_table.cuh - a big tensor of halves through a table. A formula of one float16 or
 * bfloat16 has 65536 results: og_fill_table computes them all, by the formula's own pass,
 * og_table keeps them in shared memory and looks each element up. Same bits, whatever the
 * formula costs.
 *
 * One block a multiprocessor, which stays. Memory does not serve all of them equally (H200: with
 * equal parts the first is done after 573 us, the last after 814), so blocks take tiles as they
 * come. Which block looks an element up makes no difference to the result. A tile is of the
 * whole block: what is under way at a time then lies close together (H200, sigmoid of
 * 4096 x 196608 float16: 777 us, with tiles of 8 KiB for each warp 798, a copy 754).
 *
 * PARAMETERS  OG_FLIGHT  vectors of a tile for each thread
 *             a.whole    vectors of whole tiles, if all is aligned
 *             a.table, a.next: scratch
 *             OG_FROM, OG_TO: the operands that move, one read and one written
 */
#include "cuda/kernels/lead.cuh"

enum { OG_CODES = 65536, OG_FILL_THREADS = 128, OG_TILE = OG_THREADS * OG_FLIGHT };

/* The formula's pass over all codes, with the table for its result. */
OG_KERNEL(og_fill_table, OG_FILL_THREADS)
{
    const og_index first = ((og_index)blockIdx.x * OG_FILL_THREADS + (og_index)threadIdx.x) * OG_V;
    const og_span whole = {0, OG_V}, none = {0, 0};
    og_offsets at = og_start();
    og_loads0 x;
    og_pass0::values y[OG_V];
    og_kept kept;
    og_row row;
    og_args to = a;
    to.p[OG_TO] = a.table;
    og_loads0::load(a, at, false, none, x); /* only operands that stand still */
#pragma unroll
    for (int i = 0; i < OG_V; i++)
        x.og_loaded<OG_FROM>::x.e[i] = (og_half)(first + i);
#pragma unroll
    for (int i = 0; i < OG_V; i++)
        og_pass0::compute(a, row, kept, x, i, y[i]);
    og_step_inner(a, first, at);
    og_pass0::store(to, at, whole, &row, y);
    if (first == 0)
        *a.next = 0;
}

/*
 * In shared memory, words of two results are permuted within each 32, by the number of the
 * 32: codes whose last bits are the same (few bits of mantissa, as of integers or of what was
 * bfloat16) else meet in one bank. H200, float16 with 4 bits of mantissa: 2.9 ms, so 0.83.
 */
OG_FN uint32_t og_permute_codes(uint32_t two)
{
    return two ^ (two >> 5 & 0x003e003eu);
}

OG_FN void og_fill_shared(const og_args &a, uint32_t *table)
{
    const uint4 *from = (const uint4 *)a.table;
#pragma unroll
    for (int i = 0; i < OG_CODES / 8 / OG_THREADS; i++) {
        uint32_t at = (uint32_t)(i * OG_THREADS) + threadIdx.x;
        uint4 four = from[at];
        uint32_t word = at * 4, flip = word / 32 % 32;
        table[word ^ flip] = four.x;
        table[(word + 1) ^ flip] = four.y;
        table[(word + 2) ^ flip] = four.z;
        table[(word + 3) ^ flip] = four.w;
    }
    __syncthreads();
}

OG_FN uint32_t og_look_up_two(const og_half *table, uint32_t two)
{
    two = og_permute_codes(two);
    return (uint32_t)table[two & 0xffffu] | (uint32_t)table[two >> 16] << 16;
}

union og_codes {
    og_pack<og_half> pack;
    uint32_t two[OG_V / 2];
};

OG_FN og_pack<og_half> og_look_up(const og_half *table, const og_pack<og_half> &x)
{
    og_codes y;
    y.pack = x;
#pragma unroll
    for (int i = 0; i < OG_V / 2; i++)
        y.two[i] = og_look_up_two(table, y.two[i]);
    return y.pack;
}

OG_FN void og_load_tile(const og_half *from, og_index vector, og_pack<og_half> *x)
{
#pragma unroll
    for (int i = 0; i < OG_FLIGHT; i++)
        x[i] = og_load_pack(from + (vector + i * OG_THREADS) * OG_V);
}

/* Vectors [0, n), whole tiles and aligned. The next tile's loads, and the number of the one after
 * it, are under way while a tile is looked up. */
OG_FN void og_stream(const og_args &a, const og_half *from, og_half *to, og_index n,
                     uint32_t *table)
{
    __shared__ uint32_t taken[2]; /* written in one turn, read until the barrier of the next */
    const og_index thread = (og_index)threadIdx.x, blocks = (og_index)gridDim.x;
    og_index at = (og_index)blockIdx.x * OG_TILE + thread, after = at + blocks * OG_TILE;
    og_pack<og_half> x[OG_FLIGHT], next[OG_FLIGHT];
    uint32_t tile = 0;
    if (at < n)
        og_load_tile(from, at, x);
    og_fill_shared(a, table);
#pragma unroll 1
    for (int turn = 0; at < n; turn ^= 1) {
        if (thread == 0)
            tile = atomicAdd(a.next, 1u);
        if (after < n)
            og_load_tile(from, after, next);
#pragma unroll
        for (int i = 0; i < OG_FLIGHT; i++)
            og_store_pack(to + (at + i * OG_THREADS) * OG_V,
                          og_look_up((const og_half *)table, x[i]));
        if (thread == 0)
            taken[turn] = tile;
        __syncthreads();
        at = after;
        after = (2 * blocks + (og_index)taken[turn]) * OG_TILE + thread;
#pragma unroll
        for (int i = 0; i < OG_FLIGHT; i++)
            x[i] = next[i];
    }
}

OG_KERNEL(og_table, OG_THREADS, 1)
{
    extern __shared__ uint4 og_shared[];
    const og_offsets start = og_start();
    const bool aligned = og_loads0::is_aligned(a, start) && og_lead_is_aligned(a, start);
    const og_index whole = aligned ? a.whole : 0;
    const og_half *from = og_address<OG_FROM>(a, start);
    og_half *to = og_address<OG_TO>(a, start);
    og_stream(a, from, to, whole, (uint32_t *)og_shared);
    /* What is not a whole tile, or all of it. */
    for (og_index vector = whole + (og_index)(blockIdx.x * OG_THREADS + threadIdx.x);
         vector < a.vectors; vector += (og_index)(gridDim.x * OG_THREADS)) {
        const og_index first = vector * OG_V - og_lead(a, start);
        const og_span span = og_span_of(first, a.n);
        og_pack<og_half> x = og_gather(from + first, 1, span);
        og_scatter(to + first, 1, span, og_look_up((const og_half *)og_shared, x));
    }
}
