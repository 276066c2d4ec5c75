/* SPDX-License-Identifier: MIT
 *
 * seen.cuh - where an element of a convolution's factor is, and whether its windows see one.
 *
 * PARAMETERS
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
