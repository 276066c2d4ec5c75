/* SPDX-License-Identifier: MIT */
/* What a row is reduced by: sums. No atomics: the same input gives the same bits every run. */
enum Kind { SUM };

template <class C> struct Partial {
    C a;
};

template <class C> __device__ __forceinline__ Partial<C> start_term(int) { return {(C)0}; }

template <class C> __device__ __forceinline__ void add_term(int, Partial<C> &p, C x) { p.a += x; }

template <class C>
__device__ __forceinline__ Partial<C> join_terms(int, const Partial<C> &p, const Partial<C> &q)
{
    return {p.a + q.a};
}

template <class C> __device__ __forceinline__ C term_value(int, const Partial<C> &p) { return p.a; }

/* The term of the lane that differs in bit `delta`. */
template <class C> __device__ __forceinline__ Partial<C> other_term(const Partial<C> &p, int delta)
{
    return {__shfl_xor_sync(0xffffffffu, p.a, delta)};
}
