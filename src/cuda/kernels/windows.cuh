/* SPDX-License-Identifier: MIT
 *
 * windows.cuh - reductions over windows of few taps (OG_COLUMNS, one pass): a thread takes a window,
 * and its neighbours the next ones. Taps are known to the compiler, which has the loads of all of
 * them under way; a thread whose windows see every tap looks no further after any of them.
 *
 * PARAMETERS
 *   OG_BLOCKS           blocks that a multiprocessor should hold
 *   OG_WHOLE_IS_SEEN    1
 *   og_sees_all(a, at)  emitted: do the windows at `at` see all their taps?
 *   og_sum_window<inside>(a, at, row, s)
 *                       emitted: og_add_tap() of every tap, the last dim fastest; s becomes the
 *                       reductions' numbers. inside: og_sees_all()
 */
#include "cuda/kernels/sums.cuh"

/* Reads the elements of a tap, and adds them. */
template <bool inside>
OG_FN void og_add_tap(const og_args &a, const og_offsets &at, const og_row &row,
                      og_sums0::sums &s)
{
    const og_span one = {0, 1};
    const og_none none = {};
    og_kept kept;
    og_sums0::sweep::loads x;
    og_sums0::sweep::values y;
    og_sums0::sweep::loads::load(a, at, inside, one, x);
    og_sums0::sweep::compute(a, row, kept, x, 0, y);
    og_sums0::add(s, row, none, y);
}

/* Taps lead a window on by so much at most. */
OG_FN void og_reach_on(og_index by, og_index &least, og_index &most)
{
    least += by < 0 ? by : 0;
    most += by < 0 ? 0 : by;
}

OG_FN bool og_sees_all(const og_args &a, const og_offsets &at);
template <bool inside>
OG_FN void og_sum_window(const og_args &a, const og_offsets &at, const og_row &row,
                         og_sums0::sums &s);

OG_KERNEL(og_windows, OG_THREADS, OG_BLOCKS)
{
    const og_index index = (og_index)blockIdx.x * OG_THREADS + threadIdx.x;
    if (index >= a.rows)
        return;
    og_offsets at = og_start();
    og_row row;
    og_sums0::sums s;
    og_seek_rows(a, index, at);
    if (og_sees_all(a, at))
        og_sum_window<true>(a, at, row, s);
    else
        og_sum_window<false>(a, at, row, s);
    og_sums0::finish(a, s, row);
    og_rows0(a, at, 0, true, row);
}
