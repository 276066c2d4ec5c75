/* SPDX-License-Identifier: MIT
 *
 * rows_cluster.cuh - a row in the shared memory of a cluster's blocks, which each have OG_PARTS
 * chunks of it (rows_shared.cuh). What a chunk comes to goes to every block, and every warp joins
 * all of them: a row takes one meeting of the cluster for each pass with reductions.
 *
 * PARAMETERS
 *   OG_CLUSTER   blocks of a cluster: 2, 4 or 8, side by side, that start with a meeting
 */
#include "cuda/kernels/clusters.cuh"
#include "cuda/kernels/rows_shared.cuh"

#define OG_KERNEL_IN_CLUSTERS(name, ...)                                                           \
    extern "C" __global__ void __cluster_dims__(OG_CLUSTER, 1, 1) __launch_bounds__(__VA_ARGS__)   \
        name(const __grid_constant__ og_args a)

enum {
    OG_ALL_PARTS = OG_CLUSTER * OG_PARTS,
    OG_ALL_JOINED = OG_CLUSTER * OG_JOINED,
    OG_LANE_PARTS = OG_ALL_JOINED > 32 ? OG_ALL_JOINED / 32 : 1 /* that a lane of a warp joins */
};

/* Instead of terms or squares that a pass does not have. */
struct og_no_others {
    typedef og_none sums;
    enum { count = 0 };
};

/* The sums of S, if there are any; k: their place. */
template <class S, int k, bool any = (S::count > 0)> struct og_one_part {
    typename S::sums x;
};
template <class S, int k> struct og_one_part<S, k, false> {};

/* What a chunk comes to: its sums, terms about its own peak, squares about its own mean. */
template <class P, class T, class Q>
struct og_part_sums : og_one_part<P, 0>, og_one_part<T, 1>, og_one_part<Q, 2> {};

/* The tree over what get() gives of all chunks, right in every thread. */
template <class P, class Get>
OG_FN typename P::sums og_join_all_parts(const og_args &a, const Get &get)
{
    enum { WIDTH = OG_ALL_JOINED < 32 ? OG_ALL_JOINED : 32 };
    typename P::sums s[OG_LANE_PARTS];
#pragma unroll
    for (int j = 0; j < OG_LANE_PARTS; j++) {
        const int part = threadIdx.x % 32 * OG_LANE_PARTS + j;
        s[j] = P::neutral();
        if (part < (a.n + (OG_CHUNK - 1)) / OG_CHUNK)
            s[j] = get(part);
    }
    og_grow_tree<P, OG_LANE_PARTS>(s);
    og_grow_over_warp<P, WIDTH>(s[0]);
    return P::first(s[0], 32);
}

/* The sums of a row, from those of the thread's chunk, of which t and q become the row's, too.
 * round: 0 and 1 by turns, from row to row: a block may be a meeting ahead of others that still
 * read. */
template <class P, class T, class Q>
OG_FN typename P::sums og_join_cluster(const og_args &a, const og_group &g, int round,
                                       const typename P::sums &s, typename T::sums &t,
                                       typename Q::sums &q)
{
    if constexpr (P::count == 0) {
        return s;
    } else {
        __shared__ og_part_sums<P, T, Q> parts[2][OG_ALL_PARTS];
        og_part_sums<P, T, Q> own;
        own.template og_one_part<P, 0>::x = s;
        if constexpr (T::count > 0)
            own.template og_one_part<T, 1>::x = t;
        if constexpr (Q::count > 0)
            own.template og_one_part<Q, 2>::x = q;
        const og_part_sums<P, T, Q> *all = parts[round];
        const int number = blockIdx.x % OG_CLUSTER * OG_PARTS + threadIdx.x / OG_GROUP;
        if (g.thread < OG_CLUSTER)
            og_put_in_block(&parts[round][number], g.thread, own);
        og_meet_cluster();
        const typename P::sums total =
            og_join_all_parts<P>(a, [=](int i) { return all[i].template og_one_part<P, 0>::x; });
        if constexpr (T::count > 0)
            t = og_join_all_parts<T>(a, [=](int i) {
                typename T::sums x = all[i].template og_one_part<T, 1>::x;
                T::scale(x, all[i].template og_one_part<P, 0>::x, total);
                return x;
            });
        if constexpr (Q::count > 0) {
            const og_index n = a.n;
            q = og_join_all_parts<Q>(a, [=](int i) {
                typename Q::sums x = all[i].template og_one_part<Q, 2>::x;
                const og_index rest = n - i * OG_CHUNK;
                Q::shift(x, all[i].template og_one_part<P, 0>::x, rest < OG_CHUNK ? rest : OG_CHUNK,
                         total, n);
                return x;
            });
        }
        return total;
    }
}
