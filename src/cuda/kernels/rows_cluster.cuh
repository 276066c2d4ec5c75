/* SPDX-License-Identifier: MIT
 *
 * rows_cluster.cuh - a row in the shared memory of a cluster's blocks, which each have OG_PARTS chunks
 * of it (rows_shared.cuh). What a chunk comes to goes to every block, and every warp joins all of
 * them: a row takes one meeting of the cluster for each pass with reductions.
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

/* Sums of a pass without any other. */
struct og_no_others {
    typedef og_none sums;
};

/* What a chunk comes to: its sums, and terms or squares about its own peak or mean. */
template <class P, class T> struct og_part_sums {
    typename P::sums s;
    typename T::sums t;
};

/* What all chunks of a row come to. round: 0 and 1 by turns, from row to row: a block may be a meeting
 * ahead of others that still read. */
template <class P, class T>
OG_FN const og_part_sums<P, T> *og_exchange_parts(const og_group &g, int round,
                                                  const typename P::sums &s,
                                                  const typename T::sums &t)
{
    __shared__ og_part_sums<P, T> all[2][OG_ALL_PARTS];
    const og_part_sums<P, T> own = {s, t};
    if (g.thread < OG_CLUSTER)
        og_put_in_block(&all[round][blockIdx.x % OG_CLUSTER * OG_PARTS + threadIdx.x / OG_GROUP],
                        g.thread, own);
    og_meet_cluster();
    return all[round];
}

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

/* The sums of a row, from those of the thread's chunk. */
template <class P>
OG_FN typename P::sums og_join_cluster(const og_args &a, const og_group &g, int round,
                                       const typename P::sums &s)
{
    if constexpr (P::count == 0) {
        return s;
    } else {
        const og_part_sums<P, og_no_others> *all =
            og_exchange_parts<P, og_no_others>(g, round, s, og_none());
        return og_join_all_parts<P>(a, [=](int i) { return all[i].s; });
    }
}

/* The sums and terms of a row. */
template <class P, class T>
OG_FN typename P::sums og_join_terms_in_cluster(const og_args &a, const og_group &g, int round,
                                                const typename P::sums &s,
                                                typename T::sums &terms)
{
    const og_part_sums<P, T> *all = og_exchange_parts<P, T>(g, round, s, terms);
    const typename P::sums most = og_join_all_parts<P>(a, [=](int i) { return all[i].s; });
    terms = og_join_all_parts<T>(a, [=](int i) {
        typename T::sums t = all[i].t;
        T::scale(t, all[i].s, most);
        return t;
    });
    return most;
}
