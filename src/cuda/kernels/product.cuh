/* SPDX-License-Identifier: MIT
 *
 * product.cuh - what matrix products on CUDA cores share: how steps of k come into shared
 * memory. Products are summed in the order of plan.h.
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
#include "cuda/kernels/finish.cuh"

enum { OG_SHIFT = 8 }; /* see og_line() */

static_assert(OG_V == 4, "a thread's columns come in fours");
typedef og_vector_sums og_quad;

OG_FN float og_fma(float a, float b, float c)
{
    return og_fma_f32(a, b, c);
}

OG_FN double og_fma(double a, double b, double c)
{
    return fma(a, b, c);
}

/* Where a split product leaves sum i, of a.sums, of a row and column: in the scratch. */
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

/* The part of a buffer that so many rows take. */
OG_FN constexpr int og_part(int rows)
{
    return OG_BK * rows + OG_BK / 4 * OG_SHIFT;
}

enum { OG_SOME = 16 / (int)sizeof(og_number) }; /* numbers of 16 bytes */
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

    /* Finds the thread's items of rows first.., of limit; the first step begins at k. */
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

    /* Reads the next step, of which so many k are there. */
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

    /* Writes a step to shared memory, the k of a row side by side. */
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

    /* Writes a step to shared memory, the rows of a k side by side: og_line(). */
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

/* Of a factor that is_seen: product_windows.cuh. */
template <class F, int rows, int threads> struct og_seen_loader;

template <bool is_seen, class Seen, class Plain> struct og_either {
    typedef Seen type;
};
template <class Seen, class Plain> struct og_either<false, Seen, Plain> {
    typedef Plain type;
};

/* A thread's share of both factors. */
template <class Left, class Right, int rows, int columns, int threads> struct og_loaders {
    typedef typename og_either<Left::is_seen, og_seen_loader<Left, rows, threads>,
                               og_loader<Left, rows, threads>>::type of_left;
    typedef typename og_either<Right::is_seen, og_seen_loader<Right, columns, threads>,
                               og_loader<Right, columns, threads>>::type of_right;
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
