/* SPDX-License-Identifier: MIT
 *
 * cuda_sm90.cuh - a float32 product on Hopper's tensor cores, with float32's accuracy, and
 * pass 0 on its tiles of 128 rows and 128 columns.
 *
 * With v s = hi + lo (v scaled by a power of two s, hi and lo float16), x w is hi hi + hi lo +
 * lo hi up to 2^-22: three tensor-core products whose sum is kept in float32. x was split
 * before (cuda_sm90_split.cuh); w is read as it is, and split in registers: each 64 k of a row
 * of w take the power of two that brings their greatest magnitude into [2^14, 2^15). Tensor
 * cores truncate what they add, so a chain of products is 64 k long, its small terms first;
 * then the float32 sum takes it, with w's scale undone.
 *
 * A block stays on its multiprocessor and takes tile after tile. Of its three warpgroups the
 * first brings boxes of w and x into rings in shared memory (TMA), the other two multiply 64
 * columns each; while the tensor cores work on one block of k, a thread splits the next one
 * of w. Thread 4 g + t of a warp holds columns rho(g) and rho(g) + 8 of the warp's 16, and
 * rows 2 t and 2 t + 1 of each 8; rho makes its reads of w free of bank conflicts.
 *
 * A sum that is not finite or too small to be trusted has all 64 columns of its row left to
 * cuda_sm90_redo.cuh. So bits depend on a row of x and on w, never on other rows.
 *
 * PARAMETERS
 *   OG_REDUCES   1: pass 0 reduces, og_sums0; OG_TERMS 1: and has og_terms0
 *   OG_SUM_BYTES the larger of their sums, at most 8
 */
enum {
    OG_W_STAGES = 6,
    OG_W_BYTES = 128 * 32 * 4, /* a box of w: 128 rows of 32 */
    OG_X_STAGES = 4,
    OG_X_BYTES = 2 * 128 * 64 * 2, /* a box of x: 128 rows of 64 hi, then of lo */
    OG_X_RING = OG_W_STAGES * OG_W_BYTES,
    OG_SUMS_AT = OG_X_RING + OG_X_STAGES * OG_X_BYTES, /* [group][warp][row of 8][t] */
    OG_VOTES_AT = OG_SUMS_AT + 256 * OG_SUM_BYTES,      /* [turn][group][warp][t] */
    OG_BARRIERS_AT = OG_VOTES_AT + 256,
    OG_TENSOR_SHARED = OG_BARRIERS_AT + 16 * (OG_W_STAGES + OG_X_STAGES),
    OG_TENSOR_THREADS = 384,
    OG_BAND = 8 /* tiles of rows that neighbouring blocks share */
};
static_assert(OG_SHARED_BYTES == OG_TENSOR_SHARED, "the launch gives it");

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

struct og_tile {
    og_index m, n;
};

OG_FN og_tile og_find_tile(const og_args &a, og_index i)
{
    og_tile tile;
    og_index first = i / (OG_BAND * a.n_tiles) * OG_BAND;
    og_index height = a.m_tiles - first < OG_BAND ? a.m_tiles - first : OG_BAND;
    i -= first * a.n_tiles;
    tile.m = (first + i % height) * 128;
    tile.n = i / height * 128;
    return tile;
}

/* Where a ring is: a stage, and the parity of the barriers' phase there. */
struct og_turn {
    uint32_t stage, phase;
};

template <int stages> OG_FN void og_advance(og_turn &turn)
{
    if (++turn.stage == stages) {
        turn.stage = 0;
        turn.phase ^= 1;
    }
}

/* Shared memory of a block, and its barriers: a stage is full, a stage is empty. */
struct og_rings {
    uint32_t w, x, w_full, w_empty, x_full, x_empty;
};

/* ---- the producers ----------------------------------------------------------------------- */

OG_FN void og_produce_w(const og_args &a, const og_rings &rings)
{
    /* Read once, w need not stay in L2. These are createpolicy's results for all of a box. */
    const uint64_t first = 0x12f0000000000000ull, normal = 0x1000000000000000ull;
    og_turn turn = {0, 1};
    og_fetch_map(&a.w_map);
    for (og_index i = blockIdx.x; i < a.tiles; i += gridDim.x) {
        og_tile tile = og_find_tile(a, i);
        for (int k = 0; k < (int)a.k_padded; k += 32) {
            og_barrier_wait(rings.w_empty + 8 * turn.stage, turn.phase);
            og_barrier_expect(rings.w_full + 8 * turn.stage, OG_W_BYTES);
            og_copy_box(rings.w + turn.stage * OG_W_BYTES, &a.w_map, k, (int)tile.n,
                        rings.w_full + 8 * turn.stage, a.m_tiles == 1 ? first : normal);
            og_advance<OG_W_STAGES>(turn);
        }
    }
}

OG_FN void og_produce_x(const og_args &a, const og_rings &rings)
{
    const uint64_t last = 0x14f0000000000000ull; /* x stays in L2 */
    og_turn turn = {0, 1};
    og_fetch_map(&a.x_map);
    for (og_index i = blockIdx.x; i < a.tiles; i += gridDim.x) {
        og_tile tile = og_find_tile(a, i);
        for (int k = 0; k < (int)a.k_padded; k += 64) {
            og_barrier_wait(rings.x_empty + 8 * turn.stage, turn.phase);
            og_barrier_expect(rings.x_full + 8 * turn.stage, OG_X_BYTES);
            og_copy_box(rings.x + turn.stage * OG_X_BYTES, &a.x_map, k, (int)tile.m * 2,
                        rings.x_full + 8 * turn.stage, last);
            og_advance<OG_X_STAGES>(turn);
        }
    }
}

/* ---- a block of 64 k ----------------------------------------------------------------------- */

/* A thread's part of w: registers of 4 steps of 16 k; what undoes the scales of its rows. */
struct og_fragment {
    uint32_t hi[16], lo[16];
    float undo[2];
};

/* greatest * scale is in [2^14, 2^15), by its exponent. Of 0 and of what is below 2^-112 the
 * scale is 2^126; og_is_doubtful() finds what that may lose. */
OG_FN void og_find_scale(float greatest, float &scale, float &undo)
{
    uint32_t exponent = og_bits_f32(greatest) & 0x7f800000u;
    exponent = exponent < 0x07800000u ? 0x07800000u : exponent;
    scale = og_float_bits(0x86000000u - exponent);
    undo = og_float_bits(exponent - 0x07000000u);
}

OG_FN float og_greatest(float m, const og_four &v)
{
    return og_greater(og_greater(og_greater(m, og_magnitude(v.e[0])),
                                 og_greater(og_magnitude(v.e[1]), og_magnitude(v.e[2]))),
                      og_magnitude(v.e[3]));
}

struct og_reader {
    uint32_t even, odd; /* where the thread reads the even and odd steps of stage 0 */
    uint32_t full, empty;
    og_turn turn;
};

OG_FN void og_release(uint32_t barrier)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        og_barrier_arrive(barrier);
}

/* The next block of w. All of it is in registers before the first conversion. */
OG_FN void og_read_block(og_reader &r, og_fragment &f)
{
    og_four v[4][2]; /* [step][row] */
    uint32_t stages[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        og_barrier_wait(r.full + 8 * r.turn.stage, r.turn.phase);
        uint32_t at = r.turn.stage * OG_W_BYTES;
        v[2 * h][0] = og_load_shared(r.even + at);
        v[2 * h][1] = og_load_shared(r.even + at + 1024);
        v[2 * h + 1][0] = og_load_shared(r.odd + at);
        v[2 * h + 1][1] = og_load_shared(r.odd + at + 1024);
        stages[h] = r.turn.stage;
        og_advance<OG_W_STAGES>(r.turn);
    }
    og_finish_loads();
    og_release(r.empty + 8 * stages[0]);
    og_release(r.empty + 8 * stages[1]);
    float scale[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float m = 0.0f;
#pragma unroll
        for (int k = 0; k < 4; k++)
            m = og_greatest(m, v[k][i]);
        m = og_greater(m, __shfl_xor_sync(0xffffffffu, m, 1));
        m = og_greater(m, __shfl_xor_sync(0xffffffffu, m, 2));
        og_find_scale(m, scale[i], f.undo[i]);
    }
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *pair = &v[k][i % 2].e[i / 2 * 2];
            og_split_scaled(pair[0], pair[1], scale[i % 2], f.hi[4 * k + i], f.lo[4 * k + i]);
        }
}

/* Starts the products of a block: small terms first. */
OG_FN void og_multiply_block(float (&chain)[64], const og_fragment &f, uint32_t x)
{
    uint64_t hi = og_describe(x), lo = og_describe(x + OG_X_BYTES / 2);
    og_pin(chain);
    og_products_fence();
    og_multiply_16<0>(chain, f.lo, hi);
    og_multiply_16<1>(chain, f.hi, lo);
#pragma unroll
    for (int k = 1; k < 4; k++) {
        og_multiply_16<1>(chain, f.lo + 4 * k, hi + 2 * k);
        og_multiply_16<1>(chain, f.hi + 4 * k, lo + 2 * k);
    }
#pragma unroll
    for (int k = 0; k < 4; k++)
        og_multiply_16<1>(chain, f.hi + 4 * k, hi + 2 * k);
    og_products_commit();
}

OG_FN void og_add_chain(float (&sum)[64], const float (&chain)[64], const og_fragment &f)
{
#pragma unroll
    for (int i = 0; i < 64; i++)
        sum[i] = fmaf(chain[i], f.undo[i / 2 % 2], sum[i]);
}

struct og_consumer {
    og_rings rings;
    og_reader reader;
    og_turn turn; /* of x */
};

/* Ends the products of block f, of b; meanwhile block next of w is read, if there is one.
 * The condition keeps its conversions where they are: without it ptxas 13 moves them behind
 * the wait, where the tensor cores idle. */
OG_FN void og_end_block(og_consumer &c, float (&sum)[64], float (&chain)[64], const og_fragment &f,
                        bool more, og_fragment &next)
{
    if (more) {
        og_read_block(c.reader, next);
        og_turn following = c.turn;
        og_advance<OG_X_STAGES>(following);
        og_barrier_wait(c.rings.x_full + 8 * following.stage, following.phase);
    }
    og_products_wait();
    og_pin(chain);
    if (threadIdx.x % 32 == 0)
        og_barrier_arrive(c.rings.x_empty + 8 * c.turn.stage);
    og_advance<OG_X_STAGES>(c.turn);
    og_add_chain(sum, chain, f);
}

/* sum = the products of a tile, x scaled. */
OG_FN void og_multiply_tile(og_consumer &c, int blocks, float (&sum)[64], float (&chain)[64])
{
    og_fragment f, g;
#pragma unroll
    for (int i = 0; i < 64; i++)
        sum[i] = 0.0f;
    og_read_block(c.reader, f);
    og_barrier_wait(c.rings.x_full + 8 * c.turn.stage, c.turn.phase);
    for (int b = 0; b < blocks; b += 2) {
        og_multiply_block(chain, f, c.rings.x + c.turn.stage * OG_X_BYTES);
        og_end_block(c, sum, chain, f, b + 1 < blocks, g);
        if (b + 1 >= blocks)
            break;
        og_multiply_block(chain, g, c.rings.x + c.turn.stage * OG_X_BYTES);
        og_end_block(c, sum, chain, g, b + 2 < blocks, f);
    }
}

/* ---- pass 0 ------------------------------------------------------------------------------ */

/* A thread's place in a tile: columns n and n + 8, rows m + 8 (i / 2) + i % 2, i below 32. */
struct og_place {
    og_index m, n, run; /* run: of OG_RUN columns, its group's */
    int group, warp, t;
    bool first; /* g is 0 */
};

OG_FN og_index og_row_of(const og_place &at, int i)
{
    return at.m + i / 2 * 8 + i % 2;
}

/* Not finite, or so small that elements of w below 2^-112 may have lost bits that count:
 * 2^-99 is 2^22 times their greatest error over all k. */
OG_FN bool og_is_doubtful(float sum)
{
    uint32_t bits = og_bits_f32(sum) & 0x7fffffffu;
    return bits >= 0x7f800000u || bits - 1u < 0x0e000000u - 1u;
}

/* Undoes x's scales; returns the rows (bit i) that are left to og_redo. */
OG_FN uint32_t og_unscale(const og_args &a, const og_place &at, float (&sum)[64])
{
    uint32_t doubtful = 0;
#pragma unroll
    for (int i = 0; i < 32; i++) {
        og_index m = og_row_of(at, i);
        float scale = ((const float *)a.x_scales)[m < a.rows ? m : a.rows - 1];
        bool any = false;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float &z = sum[i / 2 * 4 + 2 * h + i % 2];
            any |= og_is_doubtful(z);
            z = z * scale;
            any |= (og_bits_f32(z) & 0x7fffffffu) >= 0x7f800000u;
        }
        doubtful |= any && m < a.rows ? 1u << i : 0u;
    }
    return doubtful;
}

/* What any thread of the group that has these rows has found, and has it written down. Votes
 * of one tile are read before those of the next but one are written: two places will do. */
OG_FN uint32_t og_vote(const og_args &a, const og_place &at, uint32_t mine, uint32_t *votes)
{
    mine |= __shfl_xor_sync(0xffffffffu, mine, 4);
    mine |= __shfl_xor_sync(0xffffffffu, mine, 8);
    mine |= __shfl_xor_sync(0xffffffffu, mine, 16);
    if (at.first)
        votes[at.warp * 4 + at.t] = mine;
    og_meet_group(at.group);
    uint32_t all = votes[at.t] | votes[4 + at.t] | votes[8 + at.t] | votes[12 + at.t];
    if (at.warp == 0 && at.first && at.run < a.runs) {
        uint16_t *redo = (uint16_t *)a.redo + (at.run * (int64_t)(a.m_tiles * 128) + at.m) / 2;
#pragma unroll
        for (int j = 0; j < 16; j++)
            redo[4 * j] = (uint16_t)((all >> 2 * j & 1) | (all >> (2 * j + 1) & 1) << 8);
        if (all)
            *(uint32_t *)a.any_redo = 1;
    }
    return all;
}

#if OG_REDUCES
/* s[r] = the reductions of the group's 64 columns of 8 rows: a tree over the columns of a
 * warp, then over warps; every thread's. */
template <class P>
OG_FN void og_reduce_rows(const og_args &a, const og_place &at, const typename P::peaks *peaks,
                          const typename P::pass::values (*y)[2], typename P::sums *shared,
                          typename P::sums *s)
{
    og_row row;
#pragma unroll
    for (int r = 0; r < 8; r++) {
        typename P::sums lanes[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            lanes[h] = P::neutral();
            if (at.n + 8 * h < a.n)
                P::add(lanes[h], row, peaks[r], y[r][h]);
            P::merge(lanes[h], P::down(lanes[h], 8, 32)); /* neighbours, by rho */
            P::merge(lanes[h], P::down(lanes[h], 16, 32));
            P::merge(lanes[h], P::down(lanes[h], 4, 32));
        }
        P::merge(lanes[0], lanes[1]);
        if (at.first)
            shared[(at.warp * 8 + r) * 4 + at.t] = lanes[0];
    }
    og_meet_group(at.group);
#pragma unroll
    for (int r = 0; r < 8; r++) {
        typename P::sums warps[4];
#pragma unroll
        for (int w = 0; w < 4; w++)
            warps[w] = shared[(w * 8 + r) * 4 + at.t];
        og_grow_tree<P, 4>(warps);
        s[r] = warps[0];
    }
    og_meet_group(at.group); /* before the next one writes */
}

OG_FN void og_keep_rows(const og_args &a, const og_place &at, int batch, uint32_t redo,
                        const og_pass0::values (*y)[2], void *shared)
{
    og_none none[8];
    og_sums0::sums s[8];
    og_reduce_rows<og_sums0>(a, at, none, y, (og_sums0::sums *)shared, s);
#if OG_TERMS
    og_terms0::sums terms[8];
    og_reduce_rows<og_terms0>(a, at, s, y, (og_terms0::sums *)shared, terms);
#endif
#pragma unroll
    for (int r = 0; r < 8; r++) {
        og_index m = og_row_of(at, 8 * batch + r), part = m * a.partials + at.run;
        if (at.warp != 0 || !at.first || m >= a.rows || at.run >= a.runs ||
            (redo >> (8 * batch + r) & 1))
            continue;
        ((og_sums0::sums *)a.sums0)[part] = s[r];
#if OG_TERMS
        ((og_terms0::sums *)a.terms0)[part] = terms[r];
#endif
    }
}
#endif

/* Pass 0 on 8 rows: what it reads is read before the first is written. */
template <int batch>
OG_FN void og_finish_rows(const og_args &a, const og_place &at, const float (&sum)[64],
                          uint32_t redo, og_kept *kept, void *shared)
{
    og_offsets to[8][2];
    og_loads0 x[8][2];
    og_pass0::values y[8][2];
    og_row row;
#pragma unroll
    for (int r = 0; r < 8; r++) {
        og_index m = og_row_of(at, 8 * batch + r);
        og_offsets start = og_start();
        og_seek_rows(a, m < a.rows ? m : a.rows - 1, start);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            og_index n = at.n + 8 * h;
            to[r][h] = start;
            og_step_row(a, n < a.n ? n : a.n - 1, to[r][h]);
            og_loads0::load(a, to[r][h], true, {0, 1}, x[r][h]);
        }
    }
#pragma unroll
    for (int r = 0; r < 8; r++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            kept[h].product[0] = sum[(4 * batch + r / 2) * 4 + 2 * h + r % 2];
            og_pass0::compute(a, row, kept[h], x[r][h], 0, y[r][h]);
        }
#pragma unroll
    for (int r = 0; r < 8; r++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            bool writes = og_row_of(at, 8 * batch + r) < a.rows && at.n + 8 * h < a.n &&
                          !(redo >> (8 * batch + r) & 1);
            og_pass0::store(a, to[r][h], {0, writes}, &row, &y[r][h]);
        }
#if OG_REDUCES
    og_keep_rows(a, at, batch, redo, y, shared);
#endif
}

OG_FN void og_finish_tile(const og_args &a, const og_place &at, float (&sum)[64], uint32_t *votes,
                          void *shared)
{
    og_kept kept[2]; /* what is the same for all rows */
#pragma unroll
    for (int h = 0; h < 2; h++) {
        og_offsets to = og_start();
        og_step_row(a, at.n + 8 * h < a.n ? at.n + 8 * h : a.n - 1, to);
        og_kept::load(a, to, true, {0, 1}, kept[h]);
    }
    uint32_t redo = og_vote(a, at, og_unscale(a, at, sum), votes);
    og_finish_rows<0>(a, at, sum, redo, kept, shared);
    og_finish_rows<1>(a, at, sum, redo, kept, shared);
    og_finish_rows<2>(a, at, sum, redo, kept, shared);
    og_finish_rows<3>(a, at, sum, redo, kept, shared);
}

/* ---- the kernel ---------------------------------------------------------------------------- */

OG_FN void og_consume(const og_args &a, const og_rings &rings, char *shared)
{
    og_place at;
    const int lane = threadIdx.x % 32, g = lane / 4, rho = g / 2 | g % 2 * 4;
    const int column = (int)(threadIdx.x / 32 - 4) * 16 + rho; /* of the tile */
    at.warp = threadIdx.x / 32 % 4;
    at.group = threadIdx.x / 128 - 1;
    at.t = lane % 4;
    at.first = g == 0;
    og_consumer c;
    c.rings = rings;
    c.reader.even = rings.w + column * 128 + ((at.t ^ rho) << 4); /* 16-byte columns, swizzled */
    c.reader.odd = c.reader.even ^ 64;
    c.reader.full = rings.w_full;
    c.reader.empty = rings.w_empty;
    c.reader.turn = {0, 0};
    c.turn = {0, 0};
    float chain[64], sum[64];
#pragma unroll
    for (int i = 0; i < 64; i++)
        chain[i] = 0.0f;
    int turn = 0;
    for (og_index i = blockIdx.x; i < a.tiles; i += gridDim.x) {
        og_multiply_tile(c, (int)(a.k_padded / 64), sum, chain);
        og_tile tile = og_find_tile(a, i);
        at.m = tile.m + 2 * at.t;
        at.n = tile.n + column;
        at.run = tile.n / 64 + at.group;
        og_finish_tile(a, at, sum, (uint32_t *)(shared + OG_VOTES_AT) + turn * 32 + at.group * 16,
                       shared + OG_SUMS_AT + at.group * 128 * OG_SUM_BYTES);
        turn ^= 1;
    }
}

extern "C" __global__ void __launch_bounds__(OG_TENSOR_THREADS, 1)
    og_tensor(const __grid_constant__ og_args a)
{
    extern __shared__ __align__(1024) char og_shared[];
    og_rings rings;
    const uint32_t base = (uint32_t)__cvta_generic_to_shared(og_shared);
    if (og_redoes_all(a))
        return;
    if (base % 1024)
        __trap(); /* the swizzle is by address */
    rings.w = base;
    rings.x = base + OG_X_RING;
    rings.w_full = base + OG_BARRIERS_AT;
    rings.w_empty = rings.w_full + 8 * OG_W_STAGES;
    rings.x_full = rings.w_empty + 8 * OG_W_STAGES;
    rings.x_empty = rings.x_full + 8 * OG_X_STAGES;
    if (threadIdx.x == 0) {
        for (int i = 0; i < OG_W_STAGES; i++) {
            og_barrier_init(rings.w_full + 8 * i, 1);
            og_barrier_init(rings.w_empty + 8 * i, 8); /* warps that read */
        }
        for (int i = 0; i < OG_X_STAGES; i++) {
            og_barrier_init(rings.x_full + 8 * i, 1);
            og_barrier_init(rings.x_empty + 8 * i, 8);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    /* Registers go from those that only copy to those that compute. */
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0)
            og_produce_w(a, rings);
        else if (threadIdx.x == 32)
            og_produce_x(a, rings);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        og_consume(a, rings, og_shared);
    }
}

#else /* where there are no such instructions, w is never where og_tensor would be asked */

OG_KERNEL(og_tensor, OG_TENSOR_THREADS)
{
    if (!og_redoes_all(a))
        __trap();
}

#endif
