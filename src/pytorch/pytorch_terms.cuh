/* SPDX-License-Identifier: MIT */
/* What a row is reduced by. No atomics: the same input gives the same bits every run.
 * LOG_SUM keeps the greatest element seen (a) and the sum of exp(x - a) (b) together, so
 * that a softmax reads its row twice, not three times. */
enum Kind { SUM, MOST, LEAST, LOG_SUM };

template <class C> struct Partial {
    C a, b;
};

template <class C> __device__ __forceinline__ Partial<C> start_term(int kind)
{
    Partial<C> p;
    p.a = kind == SUM ? (C)0 : kind == LEAST ? infinity<C>() : -infinity<C>();
    p.b = (C)0;
    return p;
}

/* NaN once there, NaN it stays. */
template <class C> __device__ __forceinline__ C greater_of(C a, C b)
{
    return a != a ? a : a > b ? a : b;
}

template <class C> __device__ __forceinline__ C lesser_of(C a, C b)
{
    return a != a ? a : a < b ? a : b;
}

template <class C> __device__ __forceinline__ void add_term(int kind, Partial<C> &p, C x)
{
    if (kind == SUM) {
        p.a += x;
    } else if (kind == MOST) {
        p.a = greater_of(p.a, x);
    } else if (kind == LEAST) {
        p.a = lesser_of(p.a, x);
    } else if (x != -infinity<C>() && p.a == p.a) {
        const C d = x - p.a, e = f_exp(d <= 0 ? d : -d);
        p.b = d <= 0 ? p.b + e : p.b * e + (C)1;
        p.a = d <= 0 ? p.a : x;
    }
}

template <class C>
__device__ __forceinline__ Partial<C> join_terms(int kind, const Partial<C> &p, const Partial<C> &q)
{
    Partial<C> r = p;
    if (kind != LOG_SUM) {
        add_term(kind, r, q.a);
    } else {
        r.a = greater_of(p.a, q.a);
        const C base = r.a == infinity<C>() || r.a == -infinity<C>() ? (C)0 : r.a;
        r.b = p.b * f_exp(p.a - base) + q.b * f_exp(q.a - base);
    }
    return r;
}

template <class C> __device__ __forceinline__ C term_value(int kind, const Partial<C> &p)
{
    if (kind != LOG_SUM)
        return p.a;
    return p.a == infinity<C>() ? p.a : p.a != p.a ? p.a : p.b;
}

/* The term of the lane that differs in bit `delta`. */
template <class C> __device__ __forceinline__ Partial<C> other_term(const Partial<C> &p, int delta)
{
    Partial<C> other;
    other.a = __shfl_xor_sync(0xffffffffu, p.a, delta);
    other.b = __shfl_xor_sync(0xffffffffu, p.b, delta);
    return other;
}
