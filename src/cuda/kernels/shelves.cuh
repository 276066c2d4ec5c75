/* SPDX-License-Identifier: MIT
 *
 * shelves.cuh - og_kept in shared memory: a shelf has a vector of each operand for every thread
 * of a block. A thread copies what it needs itself, while it goes on.
 *
 * PARAMETERS
 *   OG_LENDER   the operand whose place terms of sumexp take, or -1
 */
#include "cuda/kernels/async_copies.cuh"
#include "cuda/kernels/operands.cuh"

/* What operand n has in shared memory, of one step and a thread. The terms of sumexp, if they are
 * kept, take the place of operand OG_LENDER, which is needed no more by then. */
template <int n, bool lends> struct og_shelved {
    og_pack<og_stored<n>> x;
};

template <int n> struct og_shelved<n, true> {
    union {
        og_pack<og_stored<n>> x;
        og_pack<typename og_operand<n>::number> t;
    };
};

template <int n> struct og_shelved_step {
    og_shelved<n, n == OG_LENDER> of[OG_THREADS];
};

template <class Operands> struct og_shelf_of;

/* What of og_kept is in shared memory, of one step and all threads. */
template <int... n> struct og_shelf_of<og_indices<n...>> : og_shelved_step<n>... {
    template <int m>
    OG_FN void copy_one(const og_args &a, const og_offsets &at, bool whole, const og_span &span,
                        og_shelved_step<m> &to)
    {
        og_pack<og_stored<m>> &x = to.of[threadIdx.x].x;
        if (og_operand<m>::motion == OG_UNIT && whole)
            og_copy_pack(x, og_address<m>(a, at));
        else
            x = og_gather(og_address<m>(a, at), og_stride<m, OG_VECTOR_DIM>(a), span);
    }

    OG_FN void copy(const og_args &a, const og_offsets &at, bool whole, const og_span &span,
                    og_shelf_of &shelf)
    {
        (copy_one<n>(a, at, whole, span, shelf), ...);
    }

    /* Kept is og_kept, which may have no t0. */
    template <int m, class Kept> OG_FN void take_one(const og_shelved_step<m> &from, Kept &kept)
    {
        kept.template og_loaded<m>::x = og_load_pack(from.of[threadIdx.x].x.e);
        if constexpr (m == OG_LENDER)
            kept.t0 = og_load_pack(from.of[threadIdx.x].t.e);
    }

    OG_FN void take(const og_shelf_of &shelf, og_kept &kept)
    {
        (take_one<n>(shelf, kept), ...);
    }

    template <int m, class Kept> OG_FN void put_one(const Kept &kept, og_shelved_step<m> &to)
    {
        if constexpr (m == OG_LENDER)
            to.of[threadIdx.x].t = kept.t0;
    }

    OG_FN void put(const og_kept &kept, og_shelf_of &shelf)
    {
        (put_one<n>(kept, shelf), ...);
    }
};

typedef og_shelf_of<og_kept_operands> og_shelf;
