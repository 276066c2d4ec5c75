/* SPDX-License-Identifier: MIT
 *
 * cuda_product.cuh - a block computes a tile of one or two matrix products on CUDA cores,
 * in the order of plan.h, and applies pass 0 to it.
 *
 * Steps of OG_BK k go from memory through registers, where halves become float32, into
 * one of two shared buffers; meanwhile the other one is multiplied. A warp is 4 x 8
 * threads; a thread's rows and columns come in fours, those of its neighbours between
 * them, so that a warp reads 16 bytes a thread from shared memory without conflicts and
 * OG_RUN neighbouring columns are one warp's. The sum of a block of k (OG_PRODUCT_BLOCK) is
 * in registers, so is that of a group; the sum of groups waits in shared memory, in slots
 * that only their thread touches.
 *
 * What is missing: rows and columns beyond the last are the last one's, and are never
 * stored or reduced; a missing k is 0 * -0, which changes no sum.
 *
 * PARAMETERS
 *   og_number               float or double: what is multiplied and summed
 *   OG_PRODUCTS             1 or 2
 *   OG_TM, OG_TN            rows and columns of a thread: multiples of 4 and of 8
 *   OG_WARPS_M, OG_WARPS_N  warps of a block
 *   OG_BK                   k of a step, dividing OG_PRODUCT_BLOCK
 *   OG_BLOCKS               blocks that a multiprocessor should hold
 *   OG_LEVELS               1: k is a block at most; 2: a group at most; 3: any
 *   og_left<p>, og_right<p> the factors of product p
 */
enum {
    OG_BM = 4 * OG_TM * OG_WARPS_M,
    OG_BN = 8 * OG_TN * OG_WARPS_N,
    OG_SHIFT = 8,                        /* see og_line() */
    OG_LEFT = OG_BK * OG_BM + OG_BK / 4 * OG_SHIFT, /* numbers of a buffer's left part */
    OG_BUFFER = OG_LEFT + OG_BK * OG_BN + OG_BK / 4 * OG_SHIFT,
    OG_QUADS = OG_TN / 4,                /* of a thread's row */
    OG_BAND = 8                          /* tiles of rows that neighbouring blocks share */
};

struct alignas(16) og_quad {
    og_number e[4];
};

OG_FN float og_fma(float a, float b, float c)
{
    return og_fma_f32(a, b, c);
}

OG_FN double og_fma(double a, double b, double c)
{
    return fma(a, b, c);
}

/* ---- places ---------------------------------------------------------------------------- */

/* A tile's first row and column, of product `base` of the batch. */
struct og_tile {
    og_index base, m, n;
};

/* Tiles lie in bands: what blocks that run at the same time read is read from L2. */
OG_FN og_tile og_find_tile(const og_args &a)
{
    og_tile tile;
    og_index each = a.m_tiles * a.n_tiles, i = (og_index)blockIdx.x;
    tile.base = i / each;
    i -= tile.base * each;
    og_index first = i / (OG_BAND * a.n_tiles) * OG_BAND;
    og_index height = a.m_tiles - first < OG_BAND ? a.m_tiles - first : OG_BAND;
    i -= first * a.n_tiles;
    tile.m = (first + i % height) * OG_BM;
    tile.n = i / height * OG_BN;
    return tile;
}

/* A thread's first row and column in the tile; row i is 16 (i / 4) + i % 4 further, quad h
 * of columns 32 h. */
struct og_place {
    int row, column;
};

OG_FN og_place og_find_place()
{
    og_place place;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    place.row = warp % OG_WARPS_M * (4 * OG_TM) + lane / 8 * 4;
    place.column = warp / OG_WARPS_M * (8 * OG_TN) + lane % 8 * 4;
    return place;
}

/* ---- from memory to shared memory -------------------------------------------------------- */

/* Where the rows of k are in their part of a buffer. Four k are shifted against the next
 * four, so that a warp writes 4 x 4 k of 8 rows (or 2 x 8 of 16) to 32 banks. */
OG_FN int og_line(int k, int rows)
{
    return k * rows + k / 4 * OG_SHIFT;
}

template <class T, int n> struct alignas(n * sizeof(T)) og_some {
    T e[n];
};

/* A thread's share of the rows of F: items of vk k or vr rows, `lines` of them side by side
 * and OG_THREADS at a time. */
template <class F, int rows> struct og_loader {
    typedef typename F::element T;
    enum {
        wide = 16 / (int)sizeof(T),
        by_k = F::along == OG_ALONG_K,
        vk = by_k ? wide : 1,
        vr = F::along == OG_ALONG_ROWS ? wide : 1,
        size = vk * vr,
        lines = by_k ? OG_BK / vk : rows / vr,
        count = rows * OG_BK / size,
        each = (count + OG_THREADS - 1) / OG_THREADS,
        /* a thread's items: `pointers` of them for a k, then those `further` k on */
        pointers = by_k ? each : lines > OG_THREADS ? lines / OG_THREADS : 1,
        between = by_k ? OG_THREADS / lines : OG_THREADS * vr, /* rows */
        further = by_k || lines > OG_THREADS ? 1 : OG_THREADS / lines
    };
    static_assert(count < OG_THREADS || (count % OG_THREADS == 0 && each % pointers == 0), "");

    const T *p[pointers]; /* at the thread's k of the step to come */
    int after[pointers];  /* rows that follow it, up to vr */
    og_some<T, size> x[each];
    int row, k; /* of the first item */
    bool aligned, idle;

    OG_FN void start(og_loader &l, const og_args &a, og_index base, og_index first, og_index limit)
    {
        int item = threadIdx.x;
        l.idle = item >= count;
        l.row = by_k ? item / lines : item % lines * vr;
        l.k = by_k ? item % lines * vk : item / lines;
        l.aligned = by_k || F::k_stride(a) * sizeof(T) % 16 == 0;
#pragma unroll
        for (int i = 0; i < pointers; i++) {
            og_index at = first + l.row + i * between;
            at = at < limit ? at : limit - 1;
            l.after[i] = limit - 1 - at < vr ? (int)(limit - 1 - at) : vr;
            l.p[i] = F::row(a, base, at) + l.k * F::k_stride(a);
            l.aligned = l.aligned && (uint64_t)l.p[i] % 16 == 0 && l.after[i] >= vr - 1;
        }
    }

    /* Reads the next step, all of which is there, if it is aligned. */
    OG_FN void fetch_whole(og_loader &l, const og_args &a)
    {
        if (count < OG_THREADS && l.idle)
            return;
#pragma unroll
        for (int i = 0; i < each; i++) {
            const T *p = l.p[i % pointers] + i / pointers * further * F::k_stride(a);
            if constexpr (size > 1)
                *(uint4 *)&l.x[i] = __ldg((const uint4 *)p);
            else
                l.x[i].e[0] = __ldg(p);
        }
        advance(l, a);
    }

    /* The same, of which so many k are there. */
    OG_FN void fetch_part(og_loader &l, const og_args &a, int there)
    {
        if (count < OG_THREADS && l.idle)
            return;
#pragma unroll
        for (int i = 0; i < each; i++) {
            const int on = i / pointers * further;
            const T *p = l.p[i % pointers] + on * F::k_stride(a);
            int after = l.after[i % pointers];
#pragma unroll
            for (int j = 0; j < size; j++)
                l.x[i].e[j] = l.k + on + (by_k ? j : 0) >= there ? F::missing()
                              : by_k                             ? __ldg(p + j)
                                     : __ldg(p + (j < after ? j : after));
        }
        advance(l, a);
    }

    OG_FN void advance(og_loader &l, const og_args &a)
    {
#pragma unroll
        for (int i = 0; i < pointers; i++)
            l.p[i] += OG_BK * F::k_stride(a);
    }

    OG_FN void place(const og_loader &l, og_number *to)
    {
        if (count < OG_THREADS && l.idle)
            return;
#pragma unroll
        for (int i = 0; i < each; i++) {
            int row = l.row + i % pointers * between, k = l.k + i / pointers * further;
            if constexpr (vr % 4 == 0) {
#pragma unroll
                for (int q = 0; q < vr; q += 4) {
                    og_quad y;
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        y.e[j] = F::widen(l.x[i].e[q + j]);
                    *(og_quad *)&to[og_line(k, rows) + row + q] = y;
                }
            } else {
#pragma unroll
                for (int j = 0; j < size; j++) {
                    int kj = by_k ? k + j : k, rj = by_k ? row : row + j;
                    to[og_line(kj, rows) + rj] = F::widen(l.x[i].e[j]);
                }
            }
        }
    }
};

/* ---- sums -------------------------------------------------------------------------------- */

typedef og_number og_sum[OG_TM][OG_TN]; /* a thread's, in registers */

OG_FN og_quad &og_slot(og_number *slots, int i, int h)
{
    return ((og_quad *)slots)[(i * OG_QUADS + h) * OG_THREADS + threadIdx.x];
}

OG_FN void og_fill(og_sum &sum, og_number x)
{
#pragma unroll
    for (int i = 0; i < OG_TM; i++)
#pragma unroll
        for (int j = 0; j < OG_TN; j++)
            sum[i][j] = x;
}

/* to += from; from = x */
OG_FN void og_move(og_sum &to, og_sum &from, og_number x)
{
#pragma unroll
    for (int i = 0; i < OG_TM; i++)
#pragma unroll
        for (int j = 0; j < OG_TN; j++)
            to[i][j] = to[i][j] + from[i][j];
    og_fill(from, x);
}

/* The slots become from, or (adds) slots + from. */
OG_FN void og_put(og_number *slots, const og_sum &from, bool adds)
{
#pragma unroll
    for (int i = 0; i < OG_TM; i++)
#pragma unroll
        for (int h = 0; h < OG_QUADS; h++) {
            og_quad &slot = og_slot(slots, i, h);
            og_quad y;
#pragma unroll
            for (int j = 0; j < 4; j++)
                y.e[j] = from[i][4 * h + j];
            if (adds) {
                og_quad x = slot;
#pragma unroll
                for (int j = 0; j < 4; j++)
                    y.e[j] = x.e[j] + y.e[j];
            }
            slot = y;
        }
}

/* One step. */
OG_FN void og_multiply(const og_number *left, const og_number *right, const og_place &at, og_sum &p)
{
#pragma unroll
    for (int k = 0; k < OG_BK; k++) {
        og_quad x[OG_TM / 4], w[OG_QUADS];
#pragma unroll
        for (int h = 0; h < OG_TM / 4; h++)
            x[h] = *(const og_quad *)&left[og_line(k, OG_BM) + at.row + 16 * h];
#pragma unroll
        for (int h = 0; h < OG_QUADS; h++)
            w[h] = *(const og_quad *)&right[og_line(k, OG_BN) + at.column + 32 * h];
#pragma unroll
        for (int i = 0; i < OG_TM; i++)
#pragma unroll
            for (int j = 0; j < OG_TN; j++)
                p[i][j] = og_fma(x[i / 4].e[i % 4], w[j / 4].e[j % 4], p[i][j]);
    }
}

/* A thread's share of both factors. */
template <class Left, class Right> struct og_loaders {
    og_loader<Left, OG_BM> left;
    og_loader<Right, OG_BN> right;

    OG_FN void start(og_loaders &l, const og_args &a, const og_tile &tile)
    {
        og_loader<Left, OG_BM>::start(l.left, a, tile.base, tile.m, a.m);
        og_loader<Right, OG_BN>::start(l.right, a, tile.base, tile.n, a.n);
    }

    OG_FN void fetch(og_loaders &l, const og_args &a, int there)
    {
        if (l.left.aligned && l.right.aligned && there == OG_BK) {
            og_loader<Left, OG_BM>::fetch_whole(l.left, a);
            og_loader<Right, OG_BN>::fetch_whole(l.right, a);
        } else {
            og_loader<Left, OG_BM>::fetch_part(l.left, a, there);
            og_loader<Right, OG_BN>::fetch_part(l.right, a, there);
        }
    }

    OG_FN void place(const og_loaders &l, og_number *buffer)
    {
        og_loader<Left, OG_BM>::place(l.left, buffer);
        og_loader<Right, OG_BN>::place(l.right, buffer + OG_LEFT);
    }
};

/* Leaves the product of a tile in the threads' slots; those may be where the buffers are,
 * unless OG_LEVELS is 3. */
template <class Left, class Right>
OG_FN void og_product(const og_args &a, const og_tile &tile, const og_place &at, og_number *buffers,
                      og_number *slots)
{
    typedef og_loaders<Left, Right> loaders;
    loaders l;
    og_sum p, group;
    og_index steps = (a.k + OG_BK - 1) / OG_BK;
    const int last = (int)(a.k - (steps - 1) * OG_BK); /* k of the last step */
    og_fill(p, 0);
    if (OG_LEVELS > 1)
        og_fill(group, (og_number)-0.0f); /* -0 + x is x, also of x = -0 */
    if (steps > 0) {
        loaders::start(l, a, tile);
        loaders::fetch(l, a, steps == 1 ? last : OG_BK);
        loaders::place(l, buffers);
        __syncthreads();
    }
#pragma unroll 1
    for (og_index step = 0; step < steps; step++) {
        const og_number *now = buffers + step % 2 * OG_BUFFER;
        bool ends = step + 1 == steps;
        if (!ends)
            loaders::fetch(l, a, step + 2 == steps ? last : OG_BK);
        og_multiply(now, now + OG_LEFT, at, p);
        if (OG_LEVELS > 1 && (ends || (step + 1) % (256 / OG_BK) == 0)) {
            og_move(group, p, 0);
            if (OG_LEVELS > 2 && (ends || (step + 1) % (4096 / OG_BK) == 0)) {
                og_put(slots, group, step >= 4096 / OG_BK);
                og_fill(group, (og_number)-0.0f);
            }
        }
        if (!ends)
            loaders::place(l, buffers + (step + 1) % 2 * OG_BUFFER);
        __syncthreads();
    }
    if (OG_LEVELS == 1)
        og_put(slots, p, false);
    if (OG_LEVELS == 2)
        og_put(slots, group, false);
}

/* ---- pass 0 ------------------------------------------------------------------------------ */

/* The reductions of a pass over OG_RUN columns from n on, of which 8 neighbouring threads
 * have two quads each; every thread's. */
template <class P>
OG_FN typename P::sums og_reduce_run(const og_args &a, const og_row &row,
                                     const typename P::peaks &peaks,
                                     const typename P::pass::values (*y)[4], og_index n)
{
    typename P::sums s[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        typename P::sums lanes[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            lanes[j] = P::neutral();
            if (n + 32 * h + j < a.n)
                P::add(lanes[j], row, peaks, y[h][j]);
        }
        og_grow_tree<P, 4>(lanes);
        s[h] = lanes[0];
        og_grow_over_warp<P, 8>(s[h]);
    }
    P::merge(s[0], s[1]);
    return P::first(s[0], 8);
}

/* Emitted: all products of a tile, and where the slots of product p are; what follows
 * og_reduce_run() for columns n.. of a row. */
OG_FN void og_multiply_all(const og_args &a, const og_tile &tile, const og_place &at,
                           og_number *shared);
OG_FN og_number *og_slots_of(og_number *shared, int p);
OG_FN void og_end_run(const og_args &a, const og_offsets &at, og_index index, og_index n,
                      bool writes, const og_pass0::values (*y)[4]);

/* Row i of a thread. The row of a thread that has none is the last. */
OG_FN void og_finish_row(const og_args &a, const og_tile &tile, const og_place &place, int i,
                         og_number *shared)
{
    og_index m = tile.m + place.row + i / 4 * 16 + i % 4;
    og_index limit = m < a.m ? a.n : 0; /* columns that the thread may write */
    og_index index = tile.base * a.m + (m < a.m ? m : a.m - 1);
    og_offsets start = og_start();
    og_row row;
    og_pass0::values y[OG_QUADS][4];
    og_seek_rows(a, index, start);
#pragma unroll
    for (int h = 0; h < OG_QUADS; h++) {
        og_index n = tile.n + place.column + 32 * h;
        og_span span = og_span_of(n, limit);
        og_offsets at = start;
        og_loads0 x;
        og_quad z[OG_PRODUCTS];
        og_step_row(a, n, at);
        og_loads0::load(a, at, og_is_full(span) && og_loads0::is_aligned(a, at), span, x);
#pragma unroll
        for (int p = 0; p < OG_PRODUCTS; p++)
            z[p] = og_slot(og_slots_of(shared, p), i, h);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            og_kept kept;
#pragma unroll
            for (int p = 0; p < OG_PRODUCTS; p++)
                kept.product[p] = z[p].e[j];
            og_pass0::compute(a, row, kept, x, j, y[h][j]);
        }
        og_pass0::store(a, at, span, &row, y[h]);
    }
#pragma unroll
    for (int h = 0; h < OG_QUADS; h += 2) {
        og_index n = tile.n + place.column + 32 * h;
        bool first = threadIdx.x % 8 == 0;
        og_end_run(a, start, index, n, first && n < limit, y + h);
    }
}

extern "C" __global__ void __launch_bounds__(OG_THREADS, OG_BLOCKS)
    og_tiles(const __grid_constant__ og_args a)
{
    extern __shared__ og_quad og_shared[];
    og_number *shared = (og_number *)og_shared;
    og_tile tile = og_find_tile(a);
    og_place place = og_find_place();
    og_multiply_all(a, tile, place, shared);
#pragma unroll 1
    for (int i = 0; i < OG_TM; i++)
        og_finish_row(a, tile, place, i, shared);
}
