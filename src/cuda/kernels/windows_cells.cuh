/* SPDX-License-Identifier: MIT
 *
 * windows_cells.cuh - where a thread's windows are, and the cells that they see: what windows.cuh
 * stands on, whose PARAMETERS these are.
 */
#include "cuda/kernels/sums.cuh"

enum {
    OG_TAPS = OG_DEEP * OG_FLAT,
    OG_WINDOWS_EACH = OG_TALL * OG_ACROSS,
    OG_VECTOR = 4, /* cells */
};

typedef og_sums0::sweep og_sweep;

template <int... n> OG_FN constexpr bool og_is_empty(og_indices<n...>)
{
    return sizeof...(n) == 0;
}

/* Do windows see the same values, and are maxima of them found in any order first, since that is
 * worth it? */
enum {
    OG_SHARES = og_is_empty(og_fixed_places()),
    OG_HURRIES = OG_TAPS > 4 && OG_SHARES &&og_sums0::are_most
};

/* ---- places -------------------------------------------------------------------------------- */

OG_FN og_thread og_cut_off(og_thread index, const og_cut &by)
{
    const og_unsigned_thread quotient =
        og_multiply_high((og_unsigned_thread)index, by.magic) >> by.shift;
    return by.magic ? (og_thread)quotient : index;
}

/* A thread's windows: those of its columns are beside `left` others, and below `above`. */
struct og_site {
    og_offsets at; /* of the first */
    og_thread left, above;
};

/* Finds the columns by their number over dims [0, d]. */
template <int d> OG_FN void og_seek_columns(const og_args &a, og_thread index, og_site &to)
{
    const og_thread slower = d ? og_cut_off(index, a.cuts[d]) : 0;
    og_thread i = index - slower * a.cuts[d].extent;
    if constexpr (d == OG_DOWN)
        to.above = i *= OG_TALL;
    if constexpr (d == OG_KEPT - 1)
        to.left = i *= OG_ACROSS;
    og_move_all<d>(a, i, to.at, og_all_places());
    if constexpr (d > 0)
        og_seek_columns<d - 1>(a, slower, to);
}

OG_FN og_site og_find_site(const og_args &a, og_thread thread)
{
    og_site site = {og_start(), 0, 0};
    if constexpr (OG_KEPT > 0)
        og_seek_columns<OG_KEPT - 1>(a, thread, site);
    return site;
}

/* The same once more, where that is rare: no registers keep it meanwhile. */
OG_FN og_site og_find_site_again(const og_args &a)
{
    uint32_t thread = threadIdx.x;
#if defined(__CUDA_ARCH__)
    asm volatile("" : "+r"(thread));
#endif
    return og_find_site(a, (og_thread)blockIdx.x * OG_THREADS + thread);
}

/* How many of `most` there are, from `first` on along dim d. */
template <int d> OG_FN int og_count_along(const og_args &a, og_thread first, int most)
{
    if constexpr (d < 0) {
        return 1;
    } else {
        const og_thread rest = (og_thread)a.dims[d].extent - first;
        return rest < most ? (int)rest : most;
    }
}

/* A layer's cells: one for each tap, or lines of vectors. */
template <int across> struct og_cells {
    enum {
        lines = OG_FLAT / OG_SIDE_TAPS,
        reach = OG_PHASE + (across - 1) * OG_SIDE_STEP + (OG_SIDE_TAPS - 1) * OG_SIDE_REACH + 1,
        vectors = (reach + OG_VECTOR - 1) / OG_VECTOR, /* of a line */
        count = across == 1 ? (int)OG_FLAT : lines * vectors * OG_VECTOR
    };

    /* The cell that window v sees at tap f. */
    OG_FN int of(int f, int v)
    {
        return across == 1 ? f
                           : f / OG_SIDE_TAPS * vectors * OG_VECTOR + OG_PHASE + v * OG_SIDE_STEP +
                                 f % OG_SIDE_TAPS * OG_SIDE_REACH;
    }
};

/* Words with a bit for each tap of a layer, or for each vector. */
enum {
    OG_BITS =
        OG_ACROSS == 1 ? (int)OG_FLAT : og_cells<OG_ACROSS>::lines * og_cells<OG_ACROSS>::vectors,
    OG_WORDS = ((OG_BITS > OG_FLAT ? (int)OG_BITS : (int)OG_FLAT) + 31) / 32
};

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

/* The same of a vector. */
template <class T>
OG_FN void og_load_vector_if(const T *p, uint32_t is_there, og_some<T, OG_VECTOR> &x)
{
#if defined(__CUDA_ARCH__)
    uint32_t *words = (uint32_t *)x.e;
    if constexpr (sizeof(T) == 4) {
        asm("{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n"
            "@p ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
            : "+r"(words[0]), "+r"(words[1]), "+r"(words[2]), "+r"(words[3])
            : "l"(p), "r"(is_there));
        return;
    } else if constexpr (sizeof(T) == 2) {
        asm("{\n.reg .pred p;\nsetp.ne.b32 p, %3, 0;\n@p ld.global.nc.v2.b32 {%0, %1}, [%2];\n}"
            : "+r"(words[0]), "+r"(words[1])
            : "l"(p), "r"(is_there));
        return;
    }
#endif
    if (is_there)
        x = *(const og_some<T, OG_VECTOR> *)p;
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

/* Do windows of operand n see an element, those that go down or (goes_down is false) the others? */
template <int n, bool goes_down> OG_FN bool og_sees_with(const og_args &a, const og_offsets &at)
{
    if constexpr (og_operand<n>::motion == OG_SEEN)
        return og_are_within<n, goes_down>(a, at, og_windows_of<n>());
    else
        return true;
}

/* The same of vectors: vector i of line l is bit l * vectors + i. Those that no window needs, of
 * which `wide` are there, are not seen. */
template <int n>
OG_FN void og_view_vectors(const og_args &a, const og_offsets &first, int wide, og_view &view)
{
    typedef og_cells<OG_ACROSS> cells;
    const int last = OG_PHASE + (wide - 1) * OG_SIDE_STEP + (OG_SIDE_TAPS - 1) * OG_SIDE_REACH;
    uint32_t(&words)[OG_WORDS] = view.words[n];
#pragma unroll
    for (int w = 0; w < OG_WORDS; w++)
        words[w] = 0;
#pragma unroll
    for (int bit = 0; bit < OG_BITS; bit++) {
        const int cell = bit % cells::vectors * OG_VECTOR;
        og_offsets at = first;
        og_move_flat(a, bit / cells::vectors * OG_SIDE_TAPS, at, og_layer_places());
        if constexpr (OG_SIDE_WINDOW >= 0)
            at.o[OG_SIDE_WINDOW] += cell - OG_PHASE;
        const bool sees = wide > 0 && cell <= last && og_sees_with<n, false>(a, at);
        words[bit / 32] |= (uint32_t)sees << bit % 32;
    }
#pragma unroll
    for (int w = 0; w < OG_WORDS; w++)
        og_settle(words[w]);
}

/* What a cell is that nothing sees. */
template <int n, class Args> OG_FN og_stored<n> og_unseen(const Args &a)
{
    if constexpr (og_operand<n>::motion == OG_SEEN)
        return og_operand<n>::narrow(a.windows[og_operand<n>::first_window].fill);
    else
        return (og_stored<n>)0;
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
                          og_unseen<n>(a));
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

/* The same by vectors. */
template <int n, bool inside>
OG_FN void og_see_lines(const og_args &a, const og_offsets &first, bool is_there,
                        const og_view &view, og_loads<n> (&x)[og_cells<OG_ACROSS>::count])
{
    enum { vectors = og_cells<OG_ACROSS>::vectors };
    const bool sees = is_there && og_sees_with<n, true>(a, first);
#pragma unroll
    for (int bit = 0; bit < OG_BITS; bit++) {
        og_offsets at = first;
        og_some<og_stored<n>, OG_VECTOR> vector;
        uint32_t word = sees ? view.words[n][bit / 32] : 0;
        og_settle(word);
        og_move_flat(a, bit / vectors * OG_SIDE_TAPS, at, og_layer_places());
        const og_stored<n> *p = og_address<n>(a, at) + (bit % vectors * OG_VECTOR - OG_PHASE);
#pragma unroll
        for (int i = 0; i < OG_VECTOR; i++)
            vector.e[i] = og_unseen<n>(a);
        og_load_vector_if(p, inside ? 1u : word & 1u << bit % 32, vector);
#pragma unroll
        for (int i = 0; i < OG_VECTOR; i++)
            og_put_one<n>(x[bit * OG_VECTOR + i], vector.e[i]);
    }
}

/* Can vectors be moved from where the image is? */
template <int n = OG_IMAGE> OG_FN bool og_is_in_line(const og_args &a)
{
    if constexpr (n < 0 || OG_ACROSS == 1)
        return true;
    else
        return (uint64_t)((const og_stored<n> *)a.p[n] - OG_PHASE) %
                   alignof(og_some<og_stored<n>, OG_VECTOR>) ==
               0;
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
