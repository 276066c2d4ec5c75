/* SPDX-License-Identifier: MIT
 *
 * lead.cuh - the operand by which a row is cut into vectors, so that its vectors are aligned: the
 * first contiguous store, else load.
 *
 * PARAMETERS
 *   OG_LEAD   its number, or -1: there is none, or it never moves
 */
#include "cuda/kernels/results.cuh"

/* By how many elements vectors are shifted. */
template <int n = OG_LEAD> OG_FN int og_lead(const og_args &a, const og_offsets &at)
{
    if constexpr (n < 0)
        return 0;
    else
        return og_elements_past(og_address<n>(a, at));
}

/* By none? */
template <int n = OG_LEAD> OG_FN bool og_lead_is_aligned(const og_args &a, const og_offsets &at)
{
    if constexpr (n < 0)
        return true;
    else
        return og_is_aligned(og_address<n>(a, at));
}
