/* SPDX-License-Identifier: MIT
 *
 * hopper_redo.cuh - pass 0 on what redo.cuh has computed: a thread has a column
 * of one row after the other.
 */
#include "cuda/kernels/redo.cuh"

#if OG_REDUCES
/* The reductions of a row over the columns of two warps; every thread's. */
template <class P>
OG_FN typename P::sums og_reduce_columns(const typename P::peaks &peaks,
                                         const typename P::pass::values &y, bool there)
{
    __shared__ typename P::sums met[OG_REDO_THREADS / 32];
    const int warp = threadIdx.x / 32;
    og_row row;
    typename P::sums s = P::neutral();
    if (there)
        P::add(s, row, peaks, y);
    og_grow_over_warp<P, 32>(s);
    if (threadIdx.x % 32 == 0)
        met[warp] = s;
    __syncthreads();
    s = met[warp / 2 * 2];
    P::merge(s, met[warp / 2 * 2 + 1]);
    __syncthreads(); /* before the next one writes */
    return s;
}
#endif

/* Pass 0 on row m and the thread's column n. */
OG_FN void og_redo_row(const og_args &a, og_index m, og_index n, bool there, float product)
{
    og_offsets at = og_start();
    og_loads0 x;
    og_kept kept;
    og_pass0::values y;
    og_row row;
    og_seek_rows(a, m, at);
    og_step_row(a, n < a.n ? n : a.n - 1, at);
    og_kept::load(a, at, true, {0, 1}, kept);
    og_loads0::load(a, at, true, {0, 1}, x);
    kept.product[0] = product;
    og_pass0::compute(a, row, kept, x, 0, y);
    og_pass0::store(a, at, {0, there && n < a.n}, &row, &y);
#if OG_REDUCES
    og_index part = m * a.partials + n / OG_RUN;
    bool writes = there && threadIdx.x % OG_RUN == 0;
    og_sums0::sums s = og_reduce_columns<og_sums0>(og_none(), y, n < a.n);
    if (writes)
        ((og_sums0::sums *)a.sums0)[part] = s;
#if OG_TERMS
    og_terms0::sums terms = og_reduce_columns<og_terms0>(s, y, n < a.n);
    if (writes)
        ((og_terms0::sums *)a.terms0)[part] = terms;
#endif
#endif
}

OG_FN void og_finish_redone(const og_args &a, og_index base, og_index m, og_index n, int first,
                            int count, int from, const og_redo_shared &shared)
{
    (void)base;
#pragma unroll 1
    for (int r = 0; r < 8; r++) {
        int row = threadIdx.x / OG_RUN * 8 + r, at = first + row;
        og_redo_row(a, m + shared.list[at < count ? at : count - 1], n + threadIdx.x % OG_RUN,
                    at < count, shared.product[from + row][threadIdx.x % OG_RUN]);
    }
}
