/* SPDX-License-Identifier: MIT
 *
 * product.cuh - what the bodies of matrix products share: how steps of k come into
 * shared memory, and pass 0 applied to finished sums. Products are summed in the order of
 * plan.h.
 *
 * What is missing: rows and columns beyond the last are one of the last, and are never
 * stored or reduced; a missing k is 0 * -0, which changes no sum.
 *
 * PARAMETERS
 *   og_number                float or double: what is multiplied and summed
 *   OG_PRODUCTS              1 or 2
 *   OG_BK                    k of a step, dividing OG_PRODUCT_BLOCK
 *   og_left<p>, og_right<p>  the factors of product p
 */
#include "cuda/kernels/sums.cuh"

enum { OG_SHIFT = 8 }; /* see og_line() */

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

/* In the scratch, where a split product leaves it: sum i, of a.sums, of row and column. */
template <class Args>
OG_FN og_number *og_part_sum(const Args &a, int product, og_index i, og_index row, og_index n)
{
    og_index line = (product * a.sums + i) * a.rows + row;
    return a.part_sums + line * a.pitch + n;
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

/* The part of a buffer that so many rows take. */
OG_FN constexpr int og_part(int rows)
{
    return OG_BK * rows + OG_BK / 4 * OG_SHIFT;
}

/* Numbers of 16 bytes. */
enum { OG_SOME = 16 / (int)sizeof(og_number) };
typedef og_some<og_number, OG_SOME> og_vector;

/* From a row to the next where the k of a row are side by side in a buffer: neighbouring rows'
 * vectors, of up to 8, are in different banks. */
enum { OG_ROW_PITCH = OG_BK + OG_SOME };

/* A thread's share of the rows of F, which so many threads load: items of vk k or vr rows,
 * `lines` of them side by side. */
template <class F, int rows, int threads> struct og_loader {
    typedef typename F::element T;
    enum {
        wide = 16 / (int)sizeof(T),
        by_k = F::along == OG_ALONG_K,
        vk = by_k ? wide : 1,
        vr = F::along == OG_ALONG_ROWS && wide <= rows ? wide : 1,
        size = vk * vr,
        lines = by_k ? OG_BK / vk : rows / vr,
        count = rows * OG_BK / size,
        each = (count + threads - 1) / threads,
        /* a thread's items: `pointers` of them for a k, then those `further` k on */
        pointers = by_k ? each : lines > threads ? lines / threads : 1,
        between = by_k ? threads / lines : threads * vr, /* rows */
        further = by_k || lines > threads ? 1 : threads / lines
    };
    static_assert(count < threads || (count % threads == 0 && each % pointers == 0), "");

    const T *p[pointers]; /* at the thread's k of the step to come */
    int after[pointers];  /* rows that follow it, up to vr */
    og_some<T, size> x[each];
    int row, k; /* of the first item */
    bool aligned, idle;

    /* Rows first.., of limit; the first step begins at k. */
    OG_FN void start(og_loader &l, const og_args &a, og_index base, og_index first, og_index limit,
                     og_index k)
    {
        int item = threadIdx.x % threads;
        l.idle = item >= count;
        l.row = by_k ? item / lines : item % lines * vr;
        l.k = by_k ? item % lines * vk : item / lines;
        l.aligned = by_k || size == 1 || F::k_stride(a) * sizeof(T) % 16 == 0;
#pragma unroll
        for (int i = 0; i < pointers; i++) {
            og_index at = first + l.row + i * between;
            at = at < limit ? at : limit > vr ? limit - vr : 0; /* vr there, as aligned as others */
            l.after[i] = limit - 1 - at < vr ? (int)(limit - 1 - at) : vr;
            l.p[i] = F::row(a, base, at) + (k + l.k) * F::k_stride(a);
            l.aligned = l.aligned && (uint64_t)l.p[i] % (size * sizeof(T)) == 0 &&
                        l.after[i] >= vr - 1;
        }
    }

    /* Reads the next step, all of which is there, if it is aligned. */
    OG_FN void fetch_whole(og_loader &l, const og_args &a)
    {
        if (count < threads && l.idle)
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
        if (count < threads && l.idle)
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

    /* The k of a row side by side. */
    OG_FN void place_by_rows(const og_loader &l, og_number *to)
    {
        if (count < threads && l.idle)
            return;
#pragma unroll
        for (int i = 0; i < each; i++) {
            int row = l.row + i % pointers * between, k = l.k + i / pointers * further;
            if constexpr (by_k) {
#pragma unroll
                for (int q = 0; q < vk; q += OG_SOME) {
                    og_vector y;
#pragma unroll
                    for (int j = 0; j < OG_SOME; j++)
                        y.e[j] = F::widen(l.x[i].e[q + j]);
                    *(og_vector *)&to[row * OG_ROW_PITCH + k + q] = y;
                }
            } else {
#pragma unroll
                for (int j = 0; j < vr; j++)
                    to[(row + j) * OG_ROW_PITCH + k] = F::widen(l.x[i].e[j]);
            }
        }
    }

    /* The rows of a k side by side: og_line(). */
    OG_FN void place(const og_loader &l, og_number *to)
    {
        if (count < threads && l.idle)
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

/* A thread's share of both factors. */
template <class Left, class Right, int rows, int columns, int threads> struct og_loaders {
    typedef og_loader<Left, rows, threads> of_left;
    typedef og_loader<Right, columns, threads> of_right;
    of_left left;
    of_right right;

    OG_FN void fetch(og_loaders &l, const og_args &a, int there)
    {
        if (l.left.aligned && l.right.aligned && there >= OG_BK) {
            of_left::fetch_whole(l.left, a);
            of_right::fetch_whole(l.right, a);
        } else {
            of_left::fetch_part(l.left, a, there);
            of_right::fetch_part(l.right, a, there);
        }
    }

    OG_FN void place(const og_loaders &l, og_number *buffer)
    {
        of_left::place(l.left, buffer);
        of_right::place(l.right, buffer + og_part(rows));
    }
};

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

/* Emitted: what follows og_reduce_run() for columns n.. of a row. */
OG_FN void og_end_run(const og_args &a, const og_offsets &at, og_index index, og_index n,
                      bool writes, const og_pass0::values (*y)[4]);

/* Row m of product `base` of the batch: z are the thread's quads, the first at column n, each
 * 32 columns after the one before; two of them if the pass reduces. A thread whose row or
 * columns are not there takes part and writes nothing. */
template <int quads>
OG_FN void og_finish_row(const og_args &a, og_index base, og_index m, og_index n,
                         const og_quad (&z)[OG_PRODUCTS][quads])
{
    og_index limit = m < a.m ? a.n : 0; /* columns that the thread may write */
    og_index index = base * a.m + (m < a.m ? m : a.m - 1);
    og_offsets start = og_start();
    og_row row;
    og_pass0::values y[quads][4];
    og_seek_rows(a, index, start);
#pragma unroll
    for (int h = 0; h < quads; h++) {
        og_span span = og_span_of(n + 32 * h, limit);
        og_offsets at = start;
        og_loads0 x;
        og_step_row(a, n + 32 * h, at);
        og_loads0::load(a, at, og_is_full(span) && og_loads0::is_aligned(a, at), span, x);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            og_kept kept;
#pragma unroll
            for (int p = 0; p < OG_PRODUCTS; p++)
                kept.product[p] = z[p][h].e[j];
            og_pass0::compute(a, row, kept, x, j, y[h][j]);
        }
        og_pass0::store(a, at, span, &row, y[h]);
    }
#pragma unroll
    for (int h = 0; h < quads; h += 2) {
        bool first = threadIdx.x % 8 == 0;
        og_end_run(a, start, index, n + 32 * h, first && n + 32 * h < limit, y + h);
    }
}
