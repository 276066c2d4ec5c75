/* SPDX-License-Identifier: MIT
 *
 * product_windows.cuh - steps of k of a convolution's factors come into shared memory for
 * product_tiles.cuh: k is several dims, and what windows do not see is 0.
 *
 * An element is where its row (a column, of the right factor) and its k lead to. What rows add is
 * in the thread's registers; what a step's k add is found by a few threads, two steps ahead, and
 * left in shared memory.
 *
 * PARAMETERS
 *   og_left0, og_right0  the factors; F::is_seen: this is how it is read, and it has
 *     F::windows                  how many windows it is seen through
 *     F::data(a)                  the tensor
 *     F::find_row(a, base, i, p)  p, where row i of product base of the batch is
 *     F::find_k(a, k, p)          what k adds to it
 *     F::extent(a, w)             of the dim that window w slides along
 *   OG_K_TABLE           where shared memory has room for four tables, in og_numbers
 */
#include "cuda/kernels/product.cuh"
#include "cuda/kernels/seen.cuh"

/* The table of a side (0: left) for a step. */
OG_FN og_seen_place *og_k_table(og_number *shared, int side, og_index step)
{
    return (og_seen_place *)(shared + OG_K_TABLE) + (side * 2 + step % 2) * OG_BK;
}

template <class F, int rows, int threads> struct og_seen_loader {
    typedef typename F::element T;
    enum {
        by_k = F::along == OG_ALONG_K, /* neighbouring threads have neighbouring k, else rows */
        lines = by_k ? OG_BK : rows,
        count = rows * OG_BK,
        each = (count + threads - 1) / threads,
        pointers = by_k              ? each
                   : lines > threads ? lines / threads
                                     : 1,                 /* rows of a thread, */
        between = by_k ? threads / lines : threads,       /* so far apart, */
        further = lines > threads ? 1 : threads / lines   /* and so far its k */
    };
    static_assert(count < threads || (count % threads == 0 && each % pointers == 0), "");

    og_seen_place at[pointers];
    bool there[pointers];
    T x[each];
    const og_seen_place *table; /* of the step to come */
    int row, k;                 /* of the first item */
    bool aligned, idle;

    OG_FN void start(og_seen_loader &l, const og_args &a, og_index base, og_index first,
                     og_index limit, og_index)
    {
        const int item = threadIdx.x % threads;
        l.idle = item >= count;
        l.row = by_k ? item / lines : item % lines;
        l.k = by_k ? item % lines : item / lines;
        l.aligned = true;
#pragma unroll
        for (int i = 0; i < pointers; i++) {
            const og_index row = first + l.row + i * between;
            l.there[i] = row < limit && F::find_row(a, base, row, l.at[i]);
        }
    }

    /* Reads the next step, of which so many k are there. */
    OG_FN void fetch_part(og_seen_loader &l, const og_args &a, int there)
    {
        if (count < threads && l.idle)
            return;
#pragma unroll
        for (int i = 0; i < each; i++) {
            const int k = l.k + i / pointers * further;
            const og_seen_place &row = l.at[i % pointers];
            T x = k < there ? (T)0 : F::missing();
            if (k < there && l.there[i % pointers]) {
                const og_seen_place by = l.table[k];
                if (og_sees<F>(a, row, by))
                    x = __ldg(F::data(a) + row.offset + by.offset);
            }
            l.x[i] = x;
        }
    }

    OG_FN void fetch_whole(og_seen_loader &l, const og_args &a)
    {
        fetch_part(l, a, OG_BK);
    }

    OG_FN void place(const og_seen_loader &l, og_number *to)
    {
        if (count < threads && l.idle)
            return;
#pragma unroll
        for (int i = 0; i < each; i++) {
            const int row = l.row + i % pointers * between, k = l.k + i / pointers * further;
            to[og_line(k, rows) + row] = F::widen(l.x[i]);
        }
    }
};

/* Fills the table of F for a step, which may be beyond the last. */
template <class F> OG_FN void og_fill_k_table(const og_args &a, og_number *shared, og_index step)
{
    if constexpr (F::is_seen) {
        for (int i = threadIdx.x; i < OG_BK; i += OG_THREADS)
            F::find_k(a, step * OG_BK + i, og_k_table(shared, F::is_right, step)[i]);
    }
}

/* The loader of F reads by the table of that step next. */
template <class F, class L> OG_FN void og_take_k_table(L &l, og_number *shared, og_index step)
{
    if constexpr (F::is_seen)
        l.table = og_k_table(shared, F::is_right, step);
}
