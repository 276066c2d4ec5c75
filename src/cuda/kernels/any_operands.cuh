/* SPDX-License-Identifier: MIT
 *
 * any_operands.cuh - the operands of a source that serves every layout and dtype, by lists.
 *
 * PARAMETERS
 *   OG_FORM           the dtype of tensors: og_float32, ...
 *   OG_KEPT_NUMBERS   bit n: operand n was kept by another kernel, as numbers
 *   OG_MOVES, OG_MOTIONS   of all operands, then of windows: see operands.cuh
 *   OG_FIRST_WINDOWS, OG_WINDOW_COUNTS, OG_DIVIDES   of operands; of windows. Where there are any
 *   OG_DIMS, OG_KEPT_DIMS   of the space; of these, the first, which are not reduced
 */
#include "cuda/kernels/operands.cuh"

template <int... values> struct og_list {
    static constexpr int of[] = {values...};
};

typedef og_list<OG_MOVES> og_moves;
typedef og_list<OG_MOTIONS> og_motions;

template <bool is_number> struct og_form : OG_FORM {};
#if OG_IS_DOUBLE
template <> struct og_form<true> : og_float64 {};
#else
template <> struct og_form<true> : og_float32 {};
#endif

#ifdef OG_FIRST_WINDOWS
typedef og_list<OG_FIRST_WINDOWS> og_first_windows;
typedef og_list<OG_WINDOW_COUNTS> og_window_counts;
typedef og_list<OG_DIVIDES> og_divides;

/* Operands, then windows. */
template <int n> struct og_operand : og_form<(OG_KEPT_NUMBERS >> n & 1) != 0> {
    static constexpr int moves = og_moves::of[n], motion = og_motions::of[n];
    static constexpr int first_window = og_first_windows::of[n < OG_OPERANDS ? n : 0];
    static constexpr int windows = og_window_counts::of[n < OG_OPERANDS ? n : 0];
    static constexpr int divides = og_divides::of[n < OG_OPERANDS ? 0 : n - OG_OPERANDS];
    static constexpr int ones = 0, is_unit = 0; /* it depends on the tensor */
};
#else
template <int n> struct og_operand : og_form<(OG_KEPT_NUMBERS >> n & 1) != 0> {
    static constexpr int moves = og_moves::of[n], motion = og_motions::of[n];
};
#endif

/* Moves every operand by index over dims [from, to), the last fastest. */
template <int from, int to>
OG_FN void og_seek_between(const og_args &a, og_index index, og_offsets &at)
{
    if constexpr (to - from == 1) {
        og_move_all<from>(a, index, at, og_all_places());
    } else if constexpr (to > from) {
        const og_index rest = og_divide(index, a.dims[to - 1]);
        og_move_all<to - 1>(a, index - rest * a.dims[to - 1].extent, at, og_all_places());
        og_seek_between<from, to - 1>(a, rest, at);
    }
}
