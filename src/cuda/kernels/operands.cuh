/* SPDX-License-Identifier: MIT
 *
 * operands.cuh - a kernel's operands (the accesses of the plan), by number: where they are and how
 * elements of them are read. Everything here is resolved by the compiler: an operand that stands
 * still along a dim costs nothing there.
 *
 * PARAMETERS
 *   OG_OPERANDS      how many there are
 *   OG_WINDOWS       windows that they are seen through. Window w is place OG_OPERANDS + w, which
 *                    moves as operands do; og_all_places: og_indices<0, 1, ...>
 *   OG_VECTOR_DIM    the dim of the space that vectors of OG_V elements lie in
 *   OG_WHOLE_IS_SEEN 1: windows of what is loaded whole see all of it
 *   OG_BF16_BY_TWO   1: elements of bfloat16 vectors are taken from words of two
 *   og_operand<n>    emitted below, a dtype's struct with
 *                      moves    bit d: along dim d it moves
 *                      motion   along the vector dim: OG_STILL, OG_UNIT (neighbours) or
 *                               OG_STRIDED; or OG_SEEN, through windows [first_window, first_window
 *                               + windows); or OG_NUMBERED: its offset is its value
 *                    and of a window: moves, motion OG_STRIDED, divides: 1 if divisor is not 1, 2 if
 *                    it cuts a dim; ones, bit d: along dim d it moves by 1; is_unit: its elements are
 *                    neighbours
 *   a.p[n]           its first element, a.strides[n][d] what it moves by, a.dims[d] the extents
 *   a.windows[w]     see og_window
 *   a.uneven[w]        of one that cuts a dim: see og_uneven
 */
#include "cuda/kernels/prologue.cuh"

#include "math/half.h"

enum { OG_STILL, OG_UNIT, OG_STRIDED, OG_SEEN, OG_NUMBERED };

/* A dtype: how it is stored, and as what numbers it is computed with. */
struct og_float32 {
    typedef float stored;
    typedef float number;
    enum { is_bfloat16 = 0 };
    OG_FN float widen(float x)
    {
        return x;
    }
    template <class T> OG_FN float narrow(T x)
    {
        return x;
    }
};

struct og_float64 {
    typedef double stored;
    typedef double number;
    enum { is_bfloat16 = 0 };
    OG_FN double widen(double x)
    {
        return x;
    }
    template <class T> OG_FN double narrow(T x)
    {
        return x;
    }
};

struct og_float16 {
    typedef og_half stored;
    typedef float number;
    enum { is_bfloat16 = 0 };
    OG_FN float widen(og_half x)
    {
        return og_f32_from_f16(x);
    }
    OG_FN og_half narrow(float x)
    {
        return og_f16_from_f32(x);
    }
    OG_FN og_half narrow(double x)
    {
        return og_f16_from_f64(x);
    }
};

struct og_bfloat16 {
    typedef og_half stored;
    typedef float number;
    enum { is_bfloat16 = 1 };
    OG_FN float widen(og_half x)
    {
        return og_f32_from_bf16(x);
    }
    OG_FN og_half narrow(float x)
    {
        return og_bf16_from_f32(x);
    }
    OG_FN og_half narrow(double x)
    {
        return og_bf16_from_f64(x);
    }
};

/* Integers, as numbers that hold all of them (but the largest of 64 bits); they are only read. */
template <class Stored, class Number> struct og_integer {
    typedef Stored stored;
    typedef Number number;
    enum { is_bfloat16 = 0 };
    OG_FN Number widen(Stored x)
    {
        return (Number)x;
    }
};

struct og_uint8 : og_integer<uint8_t, float> {};
struct og_int8 : og_integer<int8_t, float> {};
struct og_int16 : og_integer<int16_t, float> {};
struct og_int32 : og_integer<int32_t, double> {};
struct og_int64 : og_integer<int64_t, double> {};

struct og_bool {
    typedef uint8_t stored;
    typedef float number;
    enum { is_bfloat16 = 0 };
    OG_FN float widen(uint8_t x)
    {
        return x ? 1.0f : 0.0f;
    }
    template <class T> OG_FN uint8_t narrow(T x)
    {
        return x != 0;
    }
};

template <int n> struct og_operand;

template <int n> using og_stored = typename og_operand<n>::stored;

/* ---- places -------------------------------------------------------------------------------- */

/* Where each operand is, in elements from its first, and each window, from its start; of one that
 * never moves it stays 0. */
struct og_offsets {
    og_index o[OG_OPERANDS + OG_WINDOWS];
};

OG_FN og_offsets og_start()
{
    og_offsets at;
#pragma unroll
    for (int n = 0; n < OG_OPERANDS + OG_WINDOWS; n++)
        at.o[n] = 0;
    return at;
}

template <int n> OG_FN og_stored<n> *og_address(const og_args &a, const og_offsets &at)
{
    return (og_stored<n> *)a.p[n] + at.o[n];
}

/* What place n moves by along dim d, where that is part of the source; 0: it is an argument. */
template <int n, int d> struct og_known_stride {
    enum { value = 0 };
};

/* Of a window: does it move by 1? */
template <int n, int d> OG_FN constexpr bool og_moves_by_one()
{
    if constexpr (n >= OG_OPERANDS)
        return og_operand<n>::ones >> d & 1;
    else
        return false;
}

/* What operand n moves by along dim d. (There may be no a.strides, which is why Args is a
 * parameter.) */
template <int n, int d, class Args> OG_FN og_index og_stride(const Args &a)
{
    if constexpr (d == OG_VECTOR_DIM && og_operand<n>::motion == OG_UNIT)
        return 1;
    else if constexpr (og_moves_by_one<n, d>())
        return 1;
    else if constexpr (og_known_stride<n, d>::value != 0)
        return og_known_stride<n, d>::value;
    else
        return a.strides[n][d];
}

template <int n, int d> OG_FN void og_move_one(const og_args &a, og_index i, og_offsets &at)
{
    if constexpr (og_operand<n>::moves >> d & 1)
        at.o[n] += i * og_stride<n, d>(a);
}

template <int d, int... n>
OG_FN void og_move_all(const og_args &a, og_index i, og_offsets &at, og_indices<n...>)
{
    (og_move_one<n, d>(a, i, at), ...);
}

/* Moves every operand by index over some dims, the fastest of them first. */
template <int dim, int... slower>
OG_FN void og_seek(const og_args &a, og_index index, og_offsets &at)
{
    if constexpr (sizeof...(slower) == 0) {
        og_move_all<dim>(a, index, at, og_all_places());
    } else {
        const og_index rest = og_divide(index, a.dims[dim]);
        og_move_all<dim>(a, index - rest * a.dims[dim].extent, at, og_all_places());
        og_seek<slower...>(a, rest, at);
    }
}

/* ---- windows ------------------------------------------------------------------------------- */

/* og_uneven_sees() of plan.h. */
OG_FN bool og_uneven_sees(const og_uneven &uneven, og_index rest)
{
    const og_index tap = rest & (((og_index)1 << uneven.bits) - 1), left = rest >> uneven.bits;
    const og_index number = uneven.from + uneven.reach * tap - left;
    return left < uneven.width && number >= 0 && number < uneven.count;
}

/* Does window w see an element, i further along the vector dim? Moves offset there. */
template <int w, class Args>
OG_FN bool og_look(const Args &a, const og_offsets &at, int i, og_index &offset)
{
    enum { place = OG_OPERANDS + w };
    og_index p = at.o[place] + a.windows[w].start;
    if constexpr (og_operand<place>::moves >> OG_VECTOR_DIM & 1)
        p += i * og_stride<place, OG_VECTOR_DIM>(a);
    og_index seen = p;
    if constexpr (og_operand<place>::divides)
        seen = og_divide(p, a.windows[w].divisor);
    offset += og_operand<place>::is_unit ? seen : seen * a.windows[w].stride;
    const bool sees = p >= 0 && seen < a.windows[w].extent;
    if constexpr (og_operand<place>::divides == 2)
        return sees && og_uneven_sees(a.uneven[w], p - seen * a.windows[w].divisor.extent);
    else if constexpr (og_operand<place>::divides)
        return sees && seen * a.windows[w].divisor.extent == p;
    else
        return sees;
}

template <int first, class Args, int... w>
OG_FN bool og_look_through(const Args &a, const og_offsets &at, int i, og_index &offset,
                           og_indices<w...>)
{
    return (true & ... & og_look<first + w>(a, at, i, offset));
}

template <int count> struct og_window_list;
template <> struct og_window_list<1> {
    typedef og_indices<0> all;
};
template <> struct og_window_list<2> {
    typedef og_indices<0, 1> all;
};
template <> struct og_window_list<3> {
    typedef og_indices<0, 1, 2> all;
};

/* Element i along the vector dim of an operand that is seen through windows, or numbered. inside:
 * they are known to see it. */
template <int n, bool inside = false, class Args>
OG_FN og_stored<n> og_see(const Args &a, const og_offsets &at, int i)
{
    og_index offset = at.o[n];
    if constexpr (og_operand<n>::moves >> OG_VECTOR_DIM & 1)
        offset += i * og_stride<n, OG_VECTOR_DIM>(a);
    if constexpr (og_operand<n>::motion == OG_NUMBERED) {
        return (og_stored<n>)offset;
    } else {
        enum { first = og_operand<n>::first_window };
        typedef typename og_window_list<og_operand<n>::windows>::all all;
        if (og_look_through<first>(a, at, i, offset, all()) || inside)
            return __ldg((const og_stored<n> *)a.p[n] + offset);
        return og_operand<n>::narrow(a.windows[first].fill);
    }
}

template <int n, bool inside>
OG_FN og_pack<og_stored<n>> og_see_pack(const og_args &a, const og_offsets &at, const og_span &span)
{
    og_pack<og_stored<n>> x;
#pragma unroll
    for (int i = 0; i < OG_V; i++)
        x.e[i] = i >= span.begin && i < span.end ? og_see<n, inside>(a, at, i) : (og_stored<n>)0;
    return x;
}

/* ---- loads --------------------------------------------------------------------------------- */

/* What a thread reads of operand n at a time: a vector, or one element where it stands still. */
template <int n, int motion = og_operand<n>::motion> struct og_loaded {
    og_pack<og_stored<n>> x;
};

template <int n> struct og_loaded<n, OG_STILL> {
    og_stored<n> x;
};

/* Element i of it, as a number. */
template <int n>
OG_FN typename og_operand<n>::number og_get(const og_loaded<n> &loaded, int i)
{
    if constexpr (og_operand<n>::motion == OG_STILL)
        return og_operand<n>::widen(loaded.x);
    else if constexpr (OG_BF16_BY_TWO && og_operand<n>::is_bfloat16)
        return og_f32_at_bf16(loaded.x, i);
    else
        return og_operand<n>::widen(loaded.x.e[i]);
}

/* Is operand n where a whole vector can be moved, if it is one? */
template <int n> OG_FN bool og_is_in_place(const og_args &a, const og_offsets &at)
{
    if constexpr (og_operand<n>::motion == OG_UNIT)
        return og_is_aligned(og_address<n>(a, at));
    else
        return true;
}

template <int n, bool whole>
OG_FN void og_load_unit(const og_args &a, const og_offsets &at, const og_span &span,
                        og_loaded<n> &to)
{
    if constexpr (og_operand<n>::motion == OG_UNIT && whole)
        to.x = og_load_pack(og_address<n>(a, at));
    else if constexpr (og_operand<n>::motion == OG_UNIT)
        to.x = og_gather(og_address<n>(a, at), 1, span);
}

template <int n>
OG_FN void og_load_other(const og_args &a, const og_offsets &at, bool whole, const og_span &span,
                         og_loaded<n> &to)
{
    if constexpr (og_operand<n>::motion == OG_STILL)
        to.x = *og_address<n>(a, at);
    else if constexpr (og_operand<n>::motion == OG_STRIDED)
        to.x = og_gather(og_address<n>(a, at), og_stride<n, OG_VECTOR_DIM>(a), span);
    else if constexpr (og_operand<n>::motion >= OG_SEEN)
        to.x = OG_WHOLE_IS_SEEN && whole ? og_see_pack<n, true>(a, at, span)
                                         : og_see_pack<n, false>(a, at, span);
}

template <int n> OG_FN void og_renew_one(og_loaded<n> &of)
{
    if constexpr (sizeof(og_stored<n>) == 2 && og_operand<n>::motion != OG_STILL)
        og_renew(of.x);
}

/* A vector of each of these operands. */
template <int... n> struct og_loads : og_loaded<n>... {
    OG_FN bool is_aligned(const og_args &a, const og_offsets &at)
    {
        return (true && ... && og_is_in_place<n>(a, at));
    }

    /* whole: vectors that are neighbours in memory are aligned, and all of span is there. */
    OG_FN void load(const og_args &a, const og_offsets &at, bool whole, const og_span &span,
                    og_loads &x)
    {
        if constexpr ((false || ... || (og_operand<n>::motion == OG_UNIT))) {
            if (whole)
                (og_load_unit<n, true>(a, at, span, x), ...);
            else
                (og_load_unit<n, false>(a, at, span, x), ...);
        }
        (og_load_other<n>(a, at, whole, span, x), ...);
    }

    /* og_renew() of all halves. */
    OG_FN void renew(og_loads &x)
    {
        (og_renew_one<n>(x), ...);
    }
};

/* ---- rows ---------------------------------------------------------------------------------- */

/* Element i along the vector dim, of an operand that row instructions read or write. */
template <int n> OG_FN og_stored<n> &og_row_place(const og_args &a, const og_offsets &at, int i)
{
    if constexpr (og_operand<n>::motion == OG_STILL)
        return *og_address<n>(a, at);
    else
        return og_address<n>(a, at)[i * og_stride<n, OG_VECTOR_DIM>(a)];
}

template <int n>
OG_FN typename og_operand<n>::number og_get_of_row(const og_args &a, const og_offsets &at, int i)
{
    if constexpr (og_operand<n>::motion >= OG_SEEN)
        return og_operand<n>::widen(og_see<n>(a, at, i));
    else
        return og_operand<n>::widen(og_row_place<n>(a, at, i));
}
