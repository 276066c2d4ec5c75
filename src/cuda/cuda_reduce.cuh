/* SPDX-License-Identifier: MIT
 *
 * cuda_reduce.cuh - what bodies that reduce share. Their orders are plan.h's ORDER.
 */
enum { OG_CHUNK = 16384, OG_RUN = 64 };

struct og_none {}; /* the peaks of sums that need none */

/* What sumexp subtracts: the greatest element, or 0 if that is infinite. */
OG_FN float og_shift(float m)
{
    return (og_bits_f32(m) & 0x7fffffffu) == 0x7f800000u ? 0.0f : m;
}

OG_FN double og_shift(double m)
{
    return (og_bits_f64(m) & 0x7fffffffffffffffull) == 0x7ff0000000000000ull ? 0.0 : m;
}

/* exp(x - m), where term is exp(x - og_shift(m)) and no x is greater than m. */
template <class T> OG_FN T og_kept_term(T term, T x, T m)
{
    T difference = x - m;
    T beside = difference == difference ? (T)0 : difference; /* x is not infinite, or is */
    return og_shift(m) == m || m != m ? term : beside;
}

/* s[0] = the tree of neighbours over s[0 .. n), n a power of two. */
template <class P, int n> OG_FN void og_grow_tree(typename P::sums *s)
{
#pragma unroll
    for (int width = 1; width < n; width *= 2)
#pragma unroll
        for (int i = 0; i < n; i += 2 * width)
            P::merge(s[i], s[i + width]);
}

/* The tree over a warp's first `width` threads, or groups of as many; right in the
 * first thread of each. */
template <class P, int width> OG_FN void og_grow_over_warp(typename P::sums &s)
{
#pragma unroll
    for (int delta = 1; delta < width; delta *= 2)
        P::merge(s, P::down(s, delta, width));
}

/* The tree over the sums of a block's warps, each right in its first thread; the result
 * is every thread's. */
template <class P, int warps> OG_FN typename P::sums og_grow_over_block(const typename P::sums &s)
{
    __shared__ typename P::sums shared[warps];
    typename P::sums all[warps];
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = s;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < warps; w++)
        all[w] = shared[w];
    __syncthreads(); /* before the next one writes */
    og_grow_tree<P, warps>(all);
    return all[0];
}
