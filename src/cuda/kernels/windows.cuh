/* SPDX-License-Identifier: MIT
 *
 * windows.cuh - reductions over windows of few taps (OG_COLUMNS, one pass). A thread takes a column
 * of OG_TALL windows, one below the other along dim OG_DOWN, and its neighbours the columns beside.
 * What the windows see lies in layers: at tap t of those that go down, window r sees layer
 * r * OG_STEP + t * OG_REACH. Layers are read one after the other, once each, and all windows that
 * see a layer add its taps, so that every window adds its own in the formula's order. Taps are
 * known to the compiler, which has many loads under way; a thread whose windows see all their taps
 * looks no further after any of them.
 *
 * PARAMETERS
 *   OG_BLOCKS           blocks that a multiprocessor should hold
 *   OG_KEPT             dims of the space that are not reduced
 *   OG_TALL, OG_DOWN    windows of a column, 1 where OG_DOWN is -1: there is no such dim
 *   OG_DEEP, OG_DEPTH   taps that go down, and their dim, or 1 and -1
 *   OG_STEP, OG_REACH   see above; 1 where no taps go down
 *   OG_FLAT             taps of a layer
 *   OG_WHOLE_IS_SEEN    1
 *   og_thread           numbers of threads, og_cut an og_divisor of them; a.threads have a column,
 *                       a.cuts[d] of them are one after the other along dim d
 *   og_near             numbers of windows' places
 *   og_layer, og_fixed  og_loads<> of what moves down, and of what all windows of a column share;
 *   og_layer_places, og_fixed_places  where these are. A window that divides nothing only says
 *                       whether it sees: its operand moves as if it saw everything
 *   og_move_flat(a, f, at, places)  emitted: on to tap f of a layer, the last dim fastest
 *   og_next_layer(a, at)     emitted: on to the next layer
 *   og_sees_all(a, at)       emitted: do the windows of a column see all their taps?
 */
#include "cuda/kernels/sums.cuh"

enum {
    OG_TAPS = OG_DEEP * OG_FLAT,
    OG_WORDS = (OG_FLAT + 31) / 32, /* a bit for each */
    /* Maxima are found in any order first, if that is worth it. */
    OG_HURRIES = OG_TAPS > 4 && og_sums0::are_most
};

typedef og_sums0::sweep og_sweep;

/* ---- places -------------------------------------------------------------------------------- */

OG_FN og_thread og_cut_off(og_thread index, const og_cut &by)
{
    const og_unsigned_thread quotient =
        og_multiply_high((og_unsigned_thread)index, by.magic) >> by.shift;
    return by.magic ? (og_thread)quotient : index;
}

/* Moves at to the first window of a column, by its number over dims [0, d]; how many windows are
 * above it. */
template <int d> OG_FN og_thread og_seek_column(const og_args &a, og_thread index, og_offsets &at)
{
    const og_thread slower = d ? og_cut_off(index, a.cuts[d]) : 0;
    const og_thread i = (index - slower * a.cuts[d].extent) * (d == OG_DOWN ? (int)OG_TALL : 1);
    og_thread above = i;
    og_move_all<d>(a, i, at, og_all_places());
    if constexpr (d > 0) {
        const og_thread found = og_seek_column<d - 1>(a, slower, at);
        above = d == OG_DOWN ? i : found;
    }
    return above;
}

/* Taps lead a window on by so much at most. */
OG_FN void og_reach_on(og_near by, og_near &least, og_near &most)
{
    least += by < 0 ? by : 0;
    most += by < 0 ? 0 : by;
}

/* The tap by which window r sees layer j, or -1. */
OG_FN int og_tap_of(int j, int r)
{
    const int down = j - r * OG_STEP;
    return down >= 0 && down % OG_REACH == 0 && down / OG_REACH < OG_DEEP ? down / OG_REACH : -1;
}

template <int tall> OG_FN bool og_is_layer(int j)
{
    bool is_one = false;
#pragma unroll
    for (int r = 0; r < tall; r++)
        is_one |= og_tap_of(j, r) >= 0;
    return is_one;
}

/* ---- loads --------------------------------------------------------------------------------- */

/* *p, or other if it is not to be read: without a branch, and p may be computed before. */
template <class T> OG_FN T og_load_if(const T *p, uint32_t is_there, T other)
{
#if defined(__CUDA_ARCH__)
    if constexpr (sizeof(T) == 4) {
        asm("{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\n@p ld.global.nc.b32 %0, [%1];\n}"
            : "+r"(*(uint32_t *)&other)
            : "l"(p), "r"(is_there));
        return other;
    } else if constexpr (sizeof(T) == 2) {
        asm("{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\n@p ld.global.nc.b16 %0, [%1];\n}"
            : "+h"(*(uint16_t *)&other)
            : "l"(p), "r"(is_there));
        return other;
    }
#endif
    return is_there ? __ldg(p) : other;
}

/* Does place n move from layer to layer? */
template <int n> OG_FN constexpr bool og_goes_down()
{
    if constexpr (OG_DOWN < 0)
        return false;
    else
        return og_operand<n>::moves >> OG_DOWN & 1;
}

/* Does window w see an element, if it goes down or (goes_down is false) if it does not? (There may
 * be no a.windows, which is why Args is a parameter.) */
template <int w, bool goes_down, class Args>
OG_FN bool og_is_within(const Args &a, const og_offsets &at)
{
    const og_near p = (og_near)(at.o[OG_OPERANDS + w] + a.windows[w].start);
    return og_goes_down<OG_OPERANDS + w>() != goes_down ||
           (p >= 0 && p < (og_near)a.windows[w].extent);
}

template <int n, bool goes_down, int... w>
OG_FN bool og_are_within(const og_args &a, const og_offsets &at, og_indices<w...>)
{
    return (true & ... & og_is_within<og_operand<n>::first_window + w, goes_down>(a, at));
}

template <int n, int... w> OG_FN constexpr bool og_divides_any(og_indices<w...>)
{
    return (false || ... || og_operand<OG_OPERANDS + og_operand<n>::first_window + w>::divides);
}

/* The windows of operand n; is it seen through some, none of which divides? */
template <int n> using og_windows_of = typename og_window_list<og_operand<n>::windows>::all;

template <int n> OG_FN constexpr bool og_slides()
{
    if constexpr (og_operand<n>::motion == OG_SEEN)
        return !og_divides_any<n>(og_windows_of<n>());
    else
        return false;
}

/* The compiler forgets how x was found: it else has a comparison for each bit, and no room for all
 * of them. */
OG_FN void og_settle(uint32_t &x)
{
#if defined(__CUDA_ARCH__)
    asm("" : "+r"(x));
#endif
}

/* Bit f % 32 of word f / 32: windows of operand n that do not go down see tap f. */
struct og_view {
    uint32_t words[OG_OPERANDS][OG_WORDS];
};

template <int n> OG_FN void og_view_one(const og_args &a, const og_offsets &first, og_view &view)
{
    if constexpr (og_slides<n>()) {
#pragma unroll
        for (int f = 0; f < OG_FLAT; f++) {
            og_offsets at = first;
            og_move_flat(a, f, at, og_layer_places());
            view.words[n][f / 32] = (f % 32 ? view.words[n][f / 32] : 0) |
                                    (uint32_t)og_are_within<n, false>(a, at, og_windows_of<n>())
                                        << f % 32;
        }
#pragma unroll
        for (int i = 0; i < OG_WORDS; i++)
            og_settle(view.words[n][i]);
    }
}

/* An element of operand n, at tap f of a layer; any if that is not there. */
template <int n, bool inside, class Args>
OG_FN og_stored<n> og_see_one(const Args &a, const og_offsets &at, int f, bool is_there,
                              const og_view &view)
{
    if constexpr (og_slides<n>() && inside) {
        return __ldg((const og_stored<n> *)og_address<n>(a, at));
    } else if constexpr (og_slides<n>()) {
        const bool sees = is_there && og_are_within<n, true>(a, at, og_windows_of<n>());
        uint32_t word = sees ? view.words[n][f / 32] : 0;
        og_settle(word);
        return og_load_if((const og_stored<n> *)og_address<n>(a, at), word & 1u << f % 32,
                          og_operand<n>::narrow(a.windows[og_operand<n>::first_window].fill));
    } else if constexpr (og_operand<n>::motion >= OG_SEEN) {
        return is_there ? og_see<n>(a, at, 0) : (og_stored<n>)0;
    } else {
        return is_there ? *og_address<n>(a, at) : (og_stored<n>)0;
    }
}

template <int n> OG_FN void og_put_one(og_loaded<n> &to, og_stored<n> x)
{
    if constexpr (og_operand<n>::motion == OG_STILL)
        to.x = x;
    else
        to.x.e[0] = x;
}

template <class To, int... n> OG_FN void og_hand_on(const og_loads<n...> &from, To &to)
{
    ((static_cast<og_loaded<n> &>(to) = from), ...);
}

template <int... n>
OG_FN void og_view_all(const og_args &a, const og_offsets &first, og_view &view, og_loads<n...>)
{
    (og_view_one<n>(a, first, view), ...);
}

template <bool inside, int... n>
OG_FN void og_see_all(const og_args &a, const og_offsets &at, int f, bool is_there,
                      const og_view &view, og_loads<n...> &x)
{
    (og_put_one<n>(x, og_see_one<n, inside>(a, at, f, is_there, view)), ...);
}

template <bool inside>
OG_FN void og_see_layer(const og_args &a, const og_offsets &first, bool is_there,
                        const og_view &view, og_layer (&x)[OG_FLAT])
{
#pragma unroll
    for (int f = 0; f < OG_FLAT; f++) {
        og_offsets at = first;
        og_move_flat(a, f, at, og_layer_places());
        og_see_all<inside>(a, at, f, is_there, view, x[f]);
    }
}

template <int... n>
OG_FN void og_load_fixed(const og_args &a, const og_offsets &at, og_loads<n...> &x)
{
    const og_span one = {0, 1};
    og_loads<n...>::load(a, at, false, one, x);
}

/* What all windows of a column share. */
OG_FN void og_see_fixed(const og_args &a, const og_offsets &first, og_fixed (&x)[OG_TAPS])
{
#pragma unroll
    for (int tap = 0; tap < OG_TAPS; tap++) {
        og_offsets at = first;
        if constexpr (OG_DEPTH >= 0)
            og_move_all<OG_DEPTH>(a, tap / OG_FLAT, at, og_fixed_places());
        og_move_flat(a, tap % OG_FLAT, at, og_fixed_places());
        og_load_fixed(a, at, x[tap]);
    }
}

/* ---- sums ---------------------------------------------------------------------------------- */

template <int... n> OG_FN constexpr bool og_is_empty(og_indices<n...>)
{
    return sizeof...(n) == 0;
}

/* The values of a layer's taps. */
OG_FN void og_compute_layer(const og_args &a, const og_layer (&x)[OG_FLAT], const og_fixed *fixed,
                            og_sweep::values (&y)[OG_FLAT])
{
    og_row row;
    og_kept kept;
#pragma unroll
    for (int f = 0; f < OG_FLAT; f++) {
        og_sweep::loads all;
        og_hand_on(x[f], all);
        og_hand_on(fixed[f], all);
        og_sweep::compute(a, row, kept, all, 0, y[f]);
    }
}

/* Adds them to a window's sums, as its taps number t * OG_FLAT and on. */
template <class P>
OG_FN void og_add_layer(const og_sweep::values (&y)[OG_FLAT], int t, og_sums0::sums &s,
                        og_sums0::sums &total)
{
    const og_none none = {};
    og_row row;
#pragma unroll
    for (int f = 0; f < OG_FLAT; f++) {
        const int tap = t * OG_FLAT + f;
        P::add(s, row, none, y[f]);
        if (OG_TAPS > OG_RUN && (tap % OG_RUN == OG_RUN - 1 || tap == OG_TAPS - 1)) {
            P::merge(total, s);
            s = P::neutral();
        }
    }
}

/* Those of a layer alone. */
template <class P> OG_FN og_sums0::sums og_sum_layer(const og_sweep::values (&y)[OG_FLAT])
{
    const og_none none = {};
    og_row row;
    og_sums0::sums s = P::neutral();
#pragma unroll
    for (int f = 0; f < OG_FLAT; f++)
        P::add(s, row, none, y[f]);
    return s;
}

/* The sums of a column of `tall` windows, of which `count` are there. in_any_order: a layer is
 * summed once for all that see it. */
template <class P, bool in_any_order, bool inside, int tall>
OG_FN void og_sum_column(const og_args &a, const og_offsets &first, int count,
                         og_sums0::sums (&s)[tall])
{
    enum { layers = (tall - 1) * OG_STEP + (OG_DEEP - 1) * OG_REACH + 1 };
    constexpr bool shares = og_is_empty(og_fixed_places()), by_layers = shares && in_any_order;
    const int last = (count - 1) * OG_STEP + (OG_DEEP - 1) * OG_REACH;
    og_sums0::sums total[tall], own;
    og_fixed fixed[OG_TAPS];
    og_offsets at = first;
    og_view view;
    og_see_fixed(a, first, fixed);
    if constexpr (!inside)
        og_view_all(a, first, view, og_layer());
#pragma unroll
    for (int r = 0; r < tall; r++)
        s[r] = total[r] = P::neutral();
#pragma unroll
    for (int j = 0; j < layers; j++, og_next_layer(a, at)) {
        og_layer x[OG_FLAT];
        og_sweep::values y[OG_FLAT];
        if (!og_is_layer<tall>(j))
            continue;
        og_see_layer<inside>(a, at, inside || j <= last, view, x);
        if (shares)
            og_compute_layer(a, x, fixed, y);
        if (by_layers)
            own = og_sum_layer<P>(y);
#pragma unroll
        for (int r = 0; r < tall; r++) {
            const int t = og_tap_of(j, r);
            if (t < 0)
                continue;
            if (!shares)
                og_compute_layer(a, x, fixed + t * OG_FLAT, y);
            if (by_layers)
                P::merge(s[r], own);
            else
                og_add_layer<P>(y, t, s[r], total[r]);
        }
    }
#pragma unroll
    for (int r = 0; r < tall; r++)
        s[r] = OG_TAPS > OG_RUN && !by_layers ? total[r] : s[r];
}

OG_FN bool og_sees_all(const og_args &a, const og_offsets &at);

template <class P, bool in_any_order>
OG_FN void og_sum_windows(const og_args &a, const og_offsets &at, int count,
                          og_sums0::sums (&s)[OG_TALL])
{
    /* A warp that went both ways would take the time of both. */
    if (__all_sync(0xffffffffu, count == OG_TALL && og_sees_all(a, at)))
        og_sum_column<P, in_any_order, true>(a, at, count, s);
    else
        og_sum_column<P, in_any_order, false>(a, at, count, s);
}

/* ---- results ------------------------------------------------------------------------------- */

/* What becomes of a window's sums; at moves on to the one below. */
OG_FN void og_finish_window(const og_args &a, const og_sums0::sums &s, og_offsets &at)
{
    og_row row;
    og_sums0::finish(a, s, row);
    og_rows0(a, at, 0, true, row);
    if constexpr (OG_DOWN >= 0)
        og_move_all<OG_DOWN>(a, 1, at, og_all_places());
}

/* A column, one window after the other. */
OG_FN void og_take_one_by_one(const og_args &a, og_offsets at, int count)
{
#pragma unroll 1
    for (int r = 0; r < count; r++) {
        og_sums0::sums s[1];
        og_sum_column<og_sums0, false, false>(a, at, 1, s);
        og_finish_window(a, s[0], at);
    }
}

OG_FN bool og_has_zero(const og_sums0::sums (&s)[OG_TALL])
{
    bool any = false;
#pragma unroll
    for (int r = 0; r < OG_TALL; r++)
        any |= og_sums0::has_zero(s[r]);
    return any;
}

OG_KERNEL(og_windows, OG_THREADS, OG_BLOCKS)
{
    const og_thread thread = (og_thread)blockIdx.x * OG_THREADS + threadIdx.x;
    if (thread >= a.threads)
        return;
    og_offsets at = og_start();
    og_sums0::sums s[OG_TALL];
    int count = 1;
    if constexpr (OG_KEPT > 0) {
        const og_thread above = og_seek_column<OG_KEPT - 1>(a, thread, at);
        if constexpr (OG_DOWN >= 0) {
            const og_index below = a.dims[OG_DOWN].extent - above;
            count = below < OG_TALL ? (int)below : OG_TALL;
        }
    }
    if constexpr (OG_HURRIES) {
        og_sum_windows<og_sums0::as<OG_GREATEST>, true>(a, at, count, s);
        if (og_has_zero(s)) { /* the order decides on its sign */
            og_take_one_by_one(a, at, count);
            return;
        }
    } else {
        og_sum_windows<og_sums0, false>(a, at, count, s);
    }
#pragma unroll
    for (int r = 0; r < OG_TALL; r++) {
        if (r >= count)
            break;
        og_finish_window(a, s[r], at);
    }
}
