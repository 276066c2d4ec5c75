/* SPDX-License-Identifier: MIT
 *
 * seen.cuh - where an element of a convolution's factor is, and whether its windows see one.
 *
 * PARAMETERS
 *   F::is_seen       is factor F seen through windows?
 *   F::windows       how many windows factor F is seen through
 *   F::extent(a, w)  of the dim that window w slides along
 */
#include "cuda/kernels/prologue.cuh"

struct og_seen_place {
    og_index offset, place[3]; /* of an element; of its windows */
};

/* Is there an element where a row (a column, of the right factor) and a k lead to? */
template <class F>
OG_FN bool og_sees(const og_args &a, const og_seen_place &row, const og_seen_place &k)
{
    bool all = true;
#pragma unroll
    for (int w = 0; w < F::windows; w++) {
        const og_index place = row.place[w] + k.place[w];
        all = all && place >= 0 && place < F::extent(a, w);
    }
    return all;
}

/* Element k of row (column) i of product `base`; what a window does not see is 0. */
template <class F>
OG_FN typename F::element og_find_element(const og_args &a, og_index base, og_index i, og_index k)
{
    if constexpr (F::is_seen) {
        og_seen_place row, by;
        if (!F::find_row(a, base, i, row))
            return 0;
        F::find_k(a, k, by);
        return og_sees<F>(a, row, by) ? F::data(a)[row.offset + by.offset] : 0;
    } else {
        return F::row(a, base, i)[k * F::k_stride(a)];
    }
}

template <class F> OG_FN float og_find_term(const og_args &a, og_index base, og_index i, og_index k)
{
    return F::widen(og_find_element<F>(a, base, i, k));
}
