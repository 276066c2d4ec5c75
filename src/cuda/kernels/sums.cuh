/* SPDX-License-Identifier: MIT
 *
 * sums.cuh - the reductions of a pass. A pass with reductions has, emitted as types,
 *
 *     og_sums<p>    all but sumexp, and the greatest element that sumexp subtracts
 *     og_terms<p>   sumexp: terms exp(x - u(m)), where m is one of the peaks, og_sums<p>'s sums
 *                   over the chunk or run that both go through
 *
 * Each has functions over `sums`, one number for each reduction. In what order a body calls them
 * is its affair; see ORDER in plan.h.
 *
 * PARAMETERS
 *   OG_MENDS   1: sumexp adds exp(x - m) even if m is infinite, and the body calls mend()
 */
#include "cuda/kernels/reduce.cuh"
#include "cuda/kernels/results.cuh"

/* OG_PEAK: no result shows the sign of a zero. OG_GREATEST: the order does not matter, since of two
 * zeros +0 is the greater one; where that is the result, OG_MOST may be -0. */
enum { OG_SUM, OG_MOST, OG_LEAST, OG_PEAK, OG_GREATEST };

OG_FN float og_exp_of(float x)
{
    return og_exp_f32(x);
}

OG_FN float og_most_of(float a, float b)
{
    return og_maximum_f32(a, b);
}

OG_FN float og_least_of(float a, float b)
{
    return og_minimum_f32(a, b);
}

OG_FN float og_fall_of(float x)
{
    return og_fall_f32(x);
}

#ifdef OG_MATH_SCALAR_F64_H
OG_FN double og_exp_of(double x)
{
    return og_exp_f64(x);
}

OG_FN double og_most_of(double a, double b)
{
    return og_maximum_f64(a, b);
}

OG_FN double og_least_of(double a, double b)
{
    return og_minimum_f64(a, b);
}

OG_FN double og_fall_of(double x)
{
    return og_exp_f64(x);
}
#endif

/* The number that reduction r of a pass is, or has been so far. */
template <int r, class T> struct og_summed {
    T x;
};

/* Where a member could be named: there is none. */
enum og_nowhere { OG_NOWHERE };

template <auto member> struct og_is_member {
    enum { value = 1 };
};
template <> struct og_is_member<OG_NOWHERE> {
    enum { value = 0 };
};

/* Reduction number r of a pass, of values `from`, becomes the row's value `to`, if it is one. Of
 * no elements that is 0, or -infinity (falls). Folding has the accumulator first. */
template <int r, int kind, class T, auto from, auto to, int falls = 0> struct og_reduction {
    typedef T number;
    typedef og_summed<r, T> summed;
    enum { keeps = 0, is_most = kind == OG_MOST && sizeof(T) == sizeof(float) };
    template <int other> using as = og_reduction<r, other, T, from, to, falls>;

    OG_FN T fold(T s, T x)
    {
        if constexpr (kind == OG_SUM)
            return s + x;
        else if constexpr (kind == OG_MOST)
            return og_most_of(s, x);
        else if constexpr (kind == OG_LEAST)
            return og_least_of(s, x);
        else if constexpr (kind == OG_GREATEST)
            return og_greatest_f32(s, x);
        else
            return og_peak_f32(s, x);
    }

    /* What a missing element is. */
    OG_FN T neutral()
    {
        return kind == OG_SUM ? (T)-0.0f : kind == OG_LEAST ? (T)OG_INF_F32 : (T)-OG_INF_F32;
    }

    template <class Peaks, class Values>
    OG_FN T term(const og_row &row, const Peaks &, const Values &y)
    {
        return og_take(&row, &y, 0, from);
    }

    template <class Peaks> OG_FN T scale(T s, const Peaks &, const Peaks &)
    {
        return s;
    }

    template <class Peaks> OG_FN T mend(T s, const Peaks &)
    {
        return s;
    }

    template <class Peaks, class Values>
    OG_FN void keep(og_kept &, int, const Peaks &, const Values &)
    {
    }

    OG_FN void give(T s, og_row &row)
    {
        if constexpr (og_is_member<to>::value)
            row.*to = s;
    }

    OG_FN void finish(const og_args &a, T s, og_row &row)
    {
        give(a.n ? s : falls ? (T)-OG_INF_F32 : (T)0, row);
    }
};

template <int r, class T> OG_FN T og_peak_of(const og_summed<r, T> &peaks)
{
    return peaks.x;
}

/* A sumexp, whose peak is reduction number `peak` of the pass; its terms stay in the member `kept`
 * of og_kept, if there is one. */
template <int r, class T, auto from, auto to, int peak, auto kept>
struct og_term : og_reduction<r, OG_SUM, T, from, to> {
    enum { keeps = og_is_member<kept>::value };

    template <class Peaks, class Values>
    OG_FN T term(const og_row &row, const Peaks &peaks, const Values &y)
    {
        const T x = og_take(&row, &y, 0, from), m = og_peak_of<peak, T>(peaks);
        return OG_MENDS ? og_fall_of(x - m) : og_exp_of(x - og_shift(m));
    }

    /* A chunk's or run's terms, to be added to those of others. */
    template <class Peaks> OG_FN T scale(T s, const Peaks &own, const Peaks &most)
    {
        return s * og_exp_of(og_peak_of<peak, T>(own) - og_shift(og_peak_of<peak, T>(most)));
    }

    /* The sum of exp(x - m) becomes that of sumexp. */
    template <class Peaks> OG_FN T mend(T s, const Peaks &peaks)
    {
        return og_mend(s, og_peak_of<peak, T>(peaks));
    }

    template <class Peaks, class Values>
    OG_FN void keep(og_kept &to_keep, int i, const Peaks &peaks, const Values &y)
    {
        if constexpr (keeps) {
            og_row unused;
            (to_keep.*kept).e[i] = term(unused, peaks, y);
        }
    }
};

template <class... Summed> struct og_numbers : Summed... {
};

/* All reductions R of Sweep; can_store: nothing that the pass stores waits for another traversal. */
template <class Sweep, class Peaks, bool can_store, class... R> struct og_all_sums {
    typedef Sweep sweep;
    typedef Peaks peaks;
    typedef og_numbers<typename R::summed...> sums;
    enum { count = sizeof...(R), stores = can_store, keeps = (0 | ... | R::keeps) };
    enum { are_most = (1 & ... & R::is_most) }; /* maxima of float32 */
    /* The same values, reduced otherwise. */
    template <int kind>
    using as = og_all_sums<Sweep, Peaks, can_store, typename R::template as<kind>...>;

    OG_FN sums neutral()
    {
        return {{R::neutral()}...};
    }

    /* The values of one element. */
    OG_FN sums only(const og_row &row, const peaks &m, const typename Sweep::values &y)
    {
        return {{R::term(row, m, y)}...};
    }

    OG_FN void add(sums &s, const og_row &row, const peaks &m, const typename Sweep::values &y)
    {
        ((s.R::summed::x = R::fold(s.R::summed::x, R::term(row, m, y))), ...);
    }

    OG_FN void keep(og_kept &kept, int i, const peaks &m, const typename Sweep::values &y)
    {
        (R::keep(kept, i, m, y), ...);
    }

    OG_FN void merge(sums &s, const sums &other)
    {
        ((s.R::summed::x = R::fold(s.R::summed::x, other.R::summed::x)), ...);
    }

    /* Has one of them these bits? */
    OG_FN bool has_bits(const sums &s, uint32_t bits)
    {
        return (false | ... | (og_bits_f32(s.R::summed::x) == bits));
    }

    OG_FN sums down(const sums &s, int delta, int width)
    {
        return {{__shfl_down_sync(0xffffffffu, s.R::summed::x, delta, width)}...};
    }

    OG_FN sums first(const sums &s, int width)
    {
        return {{__shfl_sync(0xffffffffu, s.R::summed::x, 0, width)}...};
    }

    OG_FN void finish(const og_args &a, const sums &s, og_row &row)
    {
        (R::finish(a, s.R::summed::x, row), ...);
    }

    /* The same of sums that have elements. */
    OG_FN void give(const sums &s, og_row &row)
    {
        (R::give(s.R::summed::x, row), ...);
    }

    OG_FN void scale(sums &s, const peaks &own, const peaks &most)
    {
        ((s.R::summed::x = R::scale(s.R::summed::x, own, most)), ...);
    }

    OG_FN void mend(sums &s, const peaks &m)
    {
        ((s.R::summed::x = R::mend(s.R::summed::x, m)), ...);
    }
};
