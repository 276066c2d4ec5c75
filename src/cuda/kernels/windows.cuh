/* SPDX-License-Identifier: MIT
 *
 * windows.cuh - reductions over windows of few taps (OG_COLUMNS, one pass). A thread takes a column
 * of OG_TALL windows, one below the other along dim OG_DOWN, and its neighbours the columns beside.
 * What the windows see lies in layers: at tap t of those that go down, window r sees layer
 * r * OG_STEP + t * OG_REACH. Layers are read one after the other, once each, and all windows that
 * see a layer add its taps, so that every window adds its own in the formula's order. Taps are
 * known to the compiler, which has many loads under way; a thread whose windows see all their taps
 * looks no further after any of them. Maxima are found in any order first; a zero among them may
 * have to be taken from its own.
 *
 * Where it may, a thread takes OG_ACROSS columns side by side along the last kept dim, and reads
 * lines of cells by vectors, each of which is seen as a whole or not at all. OG_LANES threads then
 * have neighbouring columns of one line, and exchange their sums before these become results, so
 * that neighbours write what lies side by side.
 *
 * PARAMETERS
 *   OG_BLOCKS           blocks that a multiprocessor should hold
 *   OG_KEPT             dims of the space that are not reduced
 *   OG_TALL, OG_DOWN    windows of a column, 1 where OG_DOWN is -1: there is no such dim
 *   OG_DEEP, OG_DEPTH   taps that go down, and their dim, or 1 and -1
 *   OG_STEP, OG_REACH   see above; 1 where no taps go down
 *   OG_FLAT             taps of a layer
 *   OG_ACROSS           1, or OG_VECTOR; then og_layer is of one operand, number OG_IMAGE, and
 *   OG_LANES            threads of a warp that have columns of one line: 8, 16 or 32
 *   OG_SIDE_TAPS, OG_SIDE_STEP, OG_SIDE_REACH   the taps of a line, what a window and what a tap
 *                       takes it on by
 *   OG_PHASE            cells of a line before the first that is seen: vectors are aligned
 *   OG_SIDE_WINDOW      the place of the window that goes along lines, or -1
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
#include "cuda/kernels/windows_cells.cuh"

/* ---- sums ---------------------------------------------------------------------------------- */

/* The value of a cell, for which og_fixed is known. */
OG_FN void og_compute_cell(const og_args &a, const og_layer &x, const og_fixed &fixed,
                           og_sweep::values &y)
{
    og_row row;
    og_kept kept;
    og_sweep::loads all;
    og_hand_on(x, all);
    og_hand_on(fixed, all);
    og_sweep::compute(a, row, kept, all, 0, y);
}

/* Adds tap number `tap` to a window's sums. */
OG_FN void og_add_tap(const og_sweep::values &y, int tap, og_sums0::sums &s, og_sums0::sums &total)
{
    const og_none none = {};
    og_row row;
    og_sums0::add(s, row, none, y);
    if (OG_TAPS > OG_RUN && (tap % OG_RUN == OG_RUN - 1 || tap == OG_TAPS - 1)) {
        og_sums0::merge(total, s);
        s = og_sums0::neutral();
    }
}

/* What is seen of a layer that is_there. */
template <bool inside, int across>
OG_FN void og_read_layer(const og_args &a, const og_offsets &at, bool is_there, const og_view &view,
                         og_layer (&x)[og_cells<across>::count])
{
    if constexpr (across > 1)
        og_see_lines<OG_IMAGE, inside>(a, at, inside || is_there, view, x);
    else
        og_see_layer<inside>(a, at, inside || is_there, view, x);
}

template <bool inside, int across>
OG_FN void og_look_ahead(const og_args &a, const og_offsets &first, int wide, og_view &view)
{
    if constexpr (across > 1)
        og_view_vectors<OG_IMAGE>(a, first, wide, view);
    else if constexpr (!inside)
        og_view_all(a, first, view, og_layer());
}

/* The sums of `across` columns of `tall` windows, of which `wide` and `count` are there. */
template <bool inside, int tall, int across>
OG_FN void og_sum_columns(const og_args &a, const og_offsets &first, int count, int wide,
                          og_sums0::sums (&s)[tall * across])
{
    typedef og_cells<across> cells;
    enum { layers = (tall - 1) * OG_STEP + (OG_DEEP - 1) * OG_REACH + 1 };
    const int last = (count - 1) * OG_STEP + (OG_DEEP - 1) * OG_REACH;
    og_sums0::sums total[tall * across];
    og_fixed fixed[OG_TAPS];
    og_offsets at = first;
    og_view view;
    og_see_fixed(a, first, fixed);
    og_look_ahead<inside, across>(a, first, wide, view);
#pragma unroll
    for (int w = 0; w < tall * across; w++)
        s[w] = total[w] = og_sums0::neutral();
#pragma unroll
    for (int j = 0; j < layers; j++, og_next_layer(a, at)) {
        og_layer x[cells::count];
        og_sweep::values y[cells::count], one;
        if (!og_is_layer<tall>(j))
            continue;
        og_read_layer<inside, across>(a, at, j <= last, view, x);
        if constexpr (OG_SHARES) {
#pragma unroll
            for (int c = 0; c < cells::count; c++)
                og_compute_cell(a, x[c], fixed[0], y[c]);
        }
#pragma unroll
        for (int v = 0; v < across; v++) {
#pragma unroll
            for (int r = 0; r < tall; r++) {
                const int t = og_tap_of(j, r), w = r * across + v;
                if (t < 0)
                    continue;
#pragma unroll
                for (int f = 0; f < OG_FLAT; f++) {
                    const int tap = t * OG_FLAT + f, c = cells::of(f, v);
                    if constexpr (OG_SHARES)
                        one = y[c];
                    else
                        og_compute_cell(a, x[c], fixed[tap], one);
                    og_add_tap(one, tap, s[w], total[w]);
                }
            }
        }
    }
#pragma unroll
    for (int w = 0; w < tall * across; w++)
        s[w] = OG_TAPS > OG_RUN ? total[w] : s[w];
}

/* ---- maxima -------------------------------------------------------------------------------- */

typedef og_sums0::as<OG_GREATEST> og_maxima; /* in any order */

/* greatest[w]: of `taps` elements from number first + w * step on, every reach-th. Those of 2, 4,
 * ... are found once for all windows; of them a window needs what the binary digits of taps say,
 * and the compiler leaves out what none does. */
template <int count, int windows, int step, int taps, int reach>
OG_FN void og_slide_along(const og_sums0::sums (&elements)[count], int first,
                          og_sums0::sums (&greatest)[windows])
{
    og_sums0::sums m[count];
#pragma unroll
    for (int i = 0; i < count; i++)
        m[i] = elements[i];
#pragma unroll
    for (int width = 1; width <= taps; width *= 2) {
#pragma unroll
        for (int w = 0; w < windows && (taps & width); w++) {
            const int i = first + w * step + (taps & ~(2 * width - 1)) * reach;
            if (taps & (width - 1))
                og_maxima::merge(greatest[w], m[i]);
            else
                greatest[w] = m[i];
        }
#pragma unroll
        for (int i = 0; i + width * reach < count; i++)
            og_maxima::merge(m[i], m[i + width * reach]);
    }
}

/* The greatest taps of a layer, for each column. Lines are one before windows slide along it. */
template <int across>
OG_FN void og_find_greatest(const og_args &a, const og_layer (&x)[og_cells<across>::count],
                            og_sums0::sums (&greatest)[across])
{
    enum { each = across == 1 ? 1 : og_cells<across>::vectors * OG_VECTOR };
    const og_none none = {};
    const og_fixed fixed = {};
    og_row row;
    og_sweep::values y;
    og_sums0::sums line[each];
#pragma unroll
    for (int c = 0; c < og_cells<across>::count; c++) {
        og_compute_cell(a, x[c], fixed, y);
        if (c < each)
            line[c] = og_maxima::only(row, none, y);
        else
            og_maxima::add(line[c % each], row, none, y);
    }
    if constexpr (across == 1)
        greatest[0] = line[0];
    else
        og_slide_along<each, across, OG_SIDE_STEP, OG_SIDE_TAPS, OG_SIDE_REACH>(line, OG_PHASE,
                                                                                greatest);
}

/* og_sum_columns() of maxima in any order, of values that all windows share. */
template <bool inside, int tall, int across>
OG_FN void og_find_maxima(const og_args &a, const og_offsets &first, int count, int wide,
                          og_sums0::sums (&s)[tall * across])
{
    enum { layers = (tall - 1) * OG_STEP + (OG_DEEP - 1) * OG_REACH + 1 };
    const int last = (count - 1) * OG_STEP + (OG_DEEP - 1) * OG_REACH;
    og_sums0::sums of[across][layers];
    og_offsets at = first;
    og_view view;
    og_look_ahead<inside, across>(a, first, wide, view);
#pragma unroll
    for (int j = 0; j < layers; j++, og_next_layer(a, at)) {
        og_layer x[og_cells<across>::count];
        og_sums0::sums greatest[across];
#pragma unroll
        for (int v = 0; v < across; v++)
            greatest[v] = og_maxima::neutral();
        if (og_is_layer<tall>(j)) {
            og_read_layer<inside, across>(a, at, j <= last, view, x);
            og_find_greatest<across>(a, x, greatest);
        }
#pragma unroll
        for (int v = 0; v < across; v++)
            of[v][j] = greatest[v];
    }
#pragma unroll
    for (int v = 0; v < across; v++) {
        og_sums0::sums greatest[tall];
        og_slide_along<layers, tall, OG_STEP, OG_DEEP, OG_REACH>(of[v], 0, greatest);
#pragma unroll
        for (int r = 0; r < tall; r++)
            s[r * across + v] = greatest[r];
    }
}

OG_FN bool og_sees_all(const og_args &a, const og_offsets &at);

/* Bit w: of window w maxima in any order are +0. */
OG_FN uint32_t og_find_zeros(const og_sums0::sums (&s)[OG_WINDOWS_EACH])
{
    uint32_t zeros = 0;
#if defined(__CUDA_ARCH__)
    asm volatile(""); /* nothing of this before it is known to be wanted */
#endif
#pragma unroll
    for (int w = 0; w < OG_WINDOWS_EACH; w++)
        zeros |= (uint32_t)og_sums0::has_bits(s[w], 0) << w;
    return zeros;
}

/* Is -0 among what the thread's windows see? */
template <int across> OG_FN bool og_sees_negative_zero(const og_args &a, int count, int wide)
{
    const og_offsets first = og_find_site_again(a).at;
    const int last = (count - 1) * OG_STEP + (OG_DEEP - 1) * OG_REACH;
    const og_none none = {};
    const og_fixed fixed = {};
    og_row row;
    og_offsets at = first;
    og_view view;
    bool any = false;
    og_look_ahead<false, across>(a, first, wide, view);
#pragma unroll(across == 1 ? 4 : 1)
    for (int j = 0; j <= last; j++, og_next_layer(a, at)) {
        og_layer x[og_cells<across>::count];
        og_read_layer<false, across>(a, at, true, view, x);
#pragma unroll
        for (int c = 0; c < og_cells<across>::count; c++) {
            og_sweep::values y;
            og_compute_cell(a, x[c], fixed, y);
            any |= og_sums0::has_bits(og_sums0::only(row, none, y), 0x80000000u);
        }
    }
    return any;
}

/* Do threads of a warp have zeros in no more than two of a thread's windows? */
OG_FN bool og_are_few(uint32_t zeros)
{
#pragma unroll
    for (int delta = 16; delta > 0; delta /= 2)
        zeros |= __shfl_down_sync(0xffffffffu, zeros, delta, 32);
    zeros = __shfl_sync(0xffffffffu, zeros, 0, 32);
    zeros &= zeros - 1;
    return (zeros & (zeros - 1)) == 0;
}

/* A maximum that was found in any order and is +0 has to be -0 if that is the last of the zeros
 * which its window sees. May that be so? Few windows are not worth the question. For all threads of
 * a warp. */
OG_FN bool og_depends_on_order(const og_args &a, int count, int wide,
                               const og_sums0::sums (&s)[OG_WINDOWS_EACH])
{
    bool none = true;
#pragma unroll
    for (int w = 0; w < OG_WINDOWS_EACH; w++)
        none &= !og_sums0::has_bits(s[w], 0);
    if (__all_sync(0xffffffffu, none))
        return false;
    if (og_are_few(og_find_zeros(s)))
        return true;
    none = !og_sees_negative_zero<OG_ACROSS>(a, count, wide);
    return !__all_sync(0xffffffffu, none);
}

template <bool inside>
OG_FN void og_sum_all(const og_args &a, const og_offsets &at, int count, int wide,
                      og_sums0::sums (&s)[OG_WINDOWS_EACH])
{
    if constexpr (OG_HURRIES)
        og_find_maxima<inside, OG_TALL, OG_ACROSS>(a, at, count, wide, s);
    else
        og_sum_columns<inside, OG_TALL, OG_ACROSS>(a, at, count, wide, s);
}

OG_FN void og_sum_windows(const og_args &a, const og_offsets &at, int count, int wide,
                          og_sums0::sums (&s)[OG_WINDOWS_EACH])
{
    const bool inside = count == OG_TALL && wide == OG_ACROSS && og_sees_all(a, at);
    /* A warp that went both ways would take the time of both. */
    if (__all_sync(0xffffffffu, inside))
        og_sum_all<true>(a, at, count, wide, s);
    else
        og_sum_all<false>(a, at, count, wide, s);
}

/* ---- results ------------------------------------------------------------------------------- */

OG_FN void og_move_down(const og_args &a, og_index by, og_offsets &at)
{
    if constexpr (OG_DOWN >= 0)
        og_move_all<OG_DOWN>(a, by, at, og_all_places());
}

OG_FN void og_move_aside(const og_args &a, og_index by, og_offsets &at)
{
    if constexpr (OG_ACROSS > 1)
        og_move_all<OG_KEPT - 1>(a, by, at, og_all_places());
}

/* Of OG_ACROSS columns beside each other, thread t of OG_LANES sums the t-th; then it gets columns t,
 * t + OG_LANES, ... of theirs. */
OG_FN void og_change_place(const og_args &a, og_site &place)
{
    const int by = -(int)(threadIdx.x % OG_LANES) * (OG_ACROSS - 1);
    place.left += by;
    og_move_aside(a, by, place.at);
}

OG_FN void og_exchange(og_sums0::sums (&s)[OG_WINDOWS_EACH])
{
    struct alignas(16) several {
        og_sums0::sums of[OG_ACROSS];
    };
    __shared__ several shared[OG_THREADS];
    const int lane = threadIdx.x % OG_LANES;
    const og_sums0::sums *first = shared[threadIdx.x - lane].of;
#pragma unroll
    for (int r = 0; r < OG_TALL; r++) {
        several own;
#pragma unroll
        for (int v = 0; v < OG_ACROSS; v++)
            own.of[v] = s[r * OG_ACROSS + v];
        shared[threadIdx.x] = own;
        __syncwarp();
#pragma unroll
        for (int v = 0; v < OG_ACROSS; v++)
            s[r * OG_ACROSS + v] = first[OG_LANES * v + lane];
        __syncwarp();
    }
}

OG_FN void og_finish_window(const og_args &a, const og_sums0::sums &s, const og_offsets &at)
{
    og_row row;
    og_sums0::give(s, row);
    og_rows0(a, at, 0, true, row);
}

/* Bit r * OG_ACROSS + v: the thread's window r of column v is there. */
OG_FN uint32_t og_find_windows(const og_args &a, const og_site &place, int count)
{
    uint32_t all = 0, first = 0;
#pragma unroll
    for (int r = 0; r < OG_TALL; r++)
        first |= (uint32_t)1 << r * OG_ACROSS;
#pragma unroll
    for (int v = 0; v < OG_ACROSS; v++) {
        const bool is_there =
            OG_ACROSS == 1 ||
            og_count_along<OG_KEPT - 1>(a, place.left, OG_LANES * OG_ACROSS) > OG_LANES * v;
        all |= is_there ? first << v : 0;
    }
    return all & (((uint32_t)1 << count * OG_ACROSS) - 1);
}

/* Makes results of sums, of these windows. */
OG_FN void og_finish_columns(const og_args &a, const og_site &place, uint32_t windows,
                             const og_sums0::sums (&s)[OG_WINDOWS_EACH])
{
#pragma unroll
    for (int v = 0; v < OG_ACROSS; v++) {
        og_offsets at = place.at;
        og_move_aside(a, OG_LANES * v, at);
#pragma unroll
        for (int r = 0; r < OG_TALL; r++, og_move_down(a, 1, at))
            if (windows >> (r * OG_ACROSS + v) & 1)
                og_finish_window(a, s[r * OG_ACROSS + v], at);
    }
}

/* These windows one after the other, each in its own order and by single elements. */
OG_FN void og_take_one_by_one(const og_args &a, uint32_t windows)
{
    og_site place = og_find_site_again(a);
    if constexpr (OG_ACROSS > 1)
        og_change_place(a, place);
#pragma unroll 1
    for (int w = 0; w < OG_WINDOWS_EACH; w++) {
        og_offsets at = place.at;
        og_sums0::sums s[1];
        if (!(windows >> w & 1))
            continue;
        og_move_down(a, w / OG_ACROSS, at);
        og_move_aside(a, w % OG_ACROSS * OG_LANES, at);
        og_sum_columns<false, 1, 1>(a, at, 1, 1, s);
        og_finish_window(a, s[0], at);
    }
}

OG_KERNEL(og_windows, OG_THREADS, OG_BLOCKS)
{
    const og_thread thread = (og_thread)blockIdx.x * OG_THREADS + threadIdx.x;
    if (thread >= (og_thread)a.threads)
        return;
    og_site place = og_find_site(a, thread);
    og_sums0::sums s[OG_WINDOWS_EACH];
    const int count = og_count_along<OG_DOWN>(a, place.above, OG_TALL);
    const int wide = OG_ACROSS == 1 ? 1 : og_count_along<OG_KEPT - 1>(a, place.left, OG_ACROSS);
    bool waits = false;
    if (og_is_in_line(a)) {
        og_sum_windows(a, place.at, count, wide, s);
        if constexpr (OG_HURRIES)
            waits = og_depends_on_order(a, count, wide, s);
    }
    if constexpr (OG_ACROSS > 1)
        og_change_place(a, place);
    uint32_t windows = og_find_windows(a, place, count), waiting = windows;
    if (og_is_in_line(a)) {
        if constexpr (OG_ACROSS > 1)
            og_exchange(s);
        waiting = 0;
        if (waits)
            waiting = windows & og_find_zeros(s);
        og_finish_columns(a, place, windows & ~waiting, s);
    }
    if constexpr (OG_HURRIES || OG_ACROSS > 1)
        if (waiting)
            og_take_one_by_one(a, waiting);
}
