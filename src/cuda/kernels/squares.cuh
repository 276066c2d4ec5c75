/* SPDX-License-Identifier: MIT
 *
 * squares.cuh - a pass's reductions by sqdev, as plan.h defines it. A pass with some has, besides
 * og_sums<p>, emitted as a type,
 *
 *     og_squares<p>   sums of squared deviations from the means of values that og_sums<p> adds up
 *
 * and a body that goes through elements once has both: og_with_squares.
 */
#include "cuda/kernels/sums.cuh"

/* What a lane knows of its elements: the first of them, and of differences from it the sum and that
 * of squares. */
template <int r, class T> struct og_moments {
    T first, sum, square;
};

/* Reduction number r of a pass, of values `from`, of which reduction number `of` is the sum. */
template <int r, class T, auto from, auto to, int of>
struct og_square : og_reduction<r, OG_SUM, T, from, to> {
    typedef og_moments<r, T> moments;

    template <class Values> OG_FN void begin(moments &m, const og_row &row, const Values &y)
    {
        m.first = og_take(&row, &y, 0, from);
    }

    template <class Values> OG_FN void add(moments &m, const og_row &row, const Values &y)
    {
        const T d = og_take(&row, &y, 0, from) - m.first;
        m.sum = m.sum + d;
        m.square = m.square + d * d;
    }

    /* The lane's result, of k elements in a chunk of n. */
    template <class Sums> OG_FN T settle(const moments &m, const Sums &sums, int k, int n)
    {
        const T count = (T)k, u = m.sum / count, v = m.square - m.sum * u;
        const T e = (m.first - og_sum_of(sums) / (T)n) + u;
        return (v < (T)0 ? (T)0 : v == v ? v : m.square) + (count * e) * e;
    }

    /* A chunk's result about the row's mean: its n_c elements have the sums `own`, the row's n
     * `all`. */
    template <class Sums>
    OG_FN T shift(T s, const Sums &own, og_index n_c, const Sums &all, og_index n)
    {
        const T count = (T)n_c, e = og_sum_of(own) / count - og_sum_of(all) / (T)n;
        return s + (count * e) * e;
    }

    OG_FN T og_sum_of(const og_summed<of, T> &sums)
    {
        return sums.x;
    }
};

template <class... Moments> struct og_all_moments : Moments... {
};

/* All such reductions R of a pass, whose sums are P. */
template <class P, class... R>
struct og_all_squares
    : og_all_sums<typename P::sweep, typename P::sums, false, typename R::template as<OG_SUM>...> {
    typedef og_all_sums<typename P::sweep, typename P::sums, false,
                        typename R::template as<OG_SUM>...>
        base;
    typedef typename base::sums sums;
    typedef og_all_moments<typename R::moments...> moments;
    typedef typename P::sweep::values values;

    OG_FN moments none()
    {
        return {{(typename R::number)0, (typename R::number)0, (typename R::number)0}...};
    }

    OG_FN void begin(moments &m, const og_row &row, const values &y)
    {
        (R::begin(m, row, y), ...);
    }

    OG_FN void add_moments(moments &m, const og_row &row, const values &y)
    {
        (R::add(m, row, y), ...);
    }

    OG_FN sums settle(const moments &m, const typename P::sums &of, int k, int n)
    {
        return {{R::settle(m, of, k, n)}...};
    }

    OG_FN void shift(sums &s, const typename P::sums &own, og_index n_c,
                     const typename P::sums &all, og_index n)
    {
        ((s.R::summed::x = R::shift(s.R::summed::x, own, n_c, all, n)), ...);
    }
};

/* The sums P and, of a lane, the moments of Q. */
template <class P, class Q> struct og_with_squares {
    typedef typename P::sweep sweep;
    typedef og_none peaks;
    enum { stores = P::stores, keeps = 0 };

    struct sums {
        typename P::sums s;
        typename Q::moments m;
    };

    OG_FN void add(sums &to, const og_row &row, const peaks &none, const typename sweep::values &y)
    {
        P::add(to.s, row, none, y);
        Q::add_moments(to.m, row, y);
    }
};
