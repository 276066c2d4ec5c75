// max_pool2d(x, 3, 2, 1)  [2x30x40x50]
// windows, a thread each, scratch 0
// og_windows<<<118, 256>>>, 264 bytes of arguments, pointers at 0:0+18446744073709551412 8:1+0
#ifdef __CUDACC_RTC__
#pragma nv_diag_suppress 177 /* a function is not used */
#endif
#include "math/scalar_base.h"
#include "math/half.h"
#include "math/scalar_f32.h"

enum { OG_BLOCKS = 2, OG_KEPT = 3, OG_TALL = 1, OG_DOWN = -1, OG_DEEP = 1, OG_DEPTH = -1, OG_STEP = 1, OG_REACH = 1, OG_FLAT = 9, OG_ACROSS = 1, OG_LANES = 32, OG_IMAGE = -1, OG_SIDE_TAPS = 1, OG_SIDE_STEP = 1, OG_SIDE_REACH = 1, OG_PHASE = 0, OG_SIDE_WINDOW = -1 };
typedef int32_t og_near;
typedef int32_t og_thread;
typedef uint32_t og_unsigned_thread;
struct og_cut {
    og_thread extent;
    og_unsigned_thread magic;
    uint32_t shift;
};
enum { OG_V = 1, OG_THREADS = 256 };
typedef int32_t og_index;
typedef uint32_t og_unsigned;

#include "cuda/kernels/prologue.cuh"

struct og_args {
    void *p[2];
    og_index strides[4][5];
    og_window windows[2];
    og_divisor dims[5];
    og_index n;
    og_index threads;
    og_cut cuts[3];
};
#include "cuda/kernels/reduce.cuh"

enum { OG_OPERANDS = 2, OG_WINDOWS = 2, OG_VECTOR_DIM = 2, OG_SEVERAL_ROWS = 1, OG_BF16_BY_TWO = 1, OG_MENDS = 0, OG_WHOLE_IS_SEEN = 1 };
typedef og_indices<0, 1, 2, 3> og_all_places;
#include "cuda/kernels/operands.cuh"

template <> struct og_operand<0> : og_float32 {
    enum { moves = 0x1f, motion = OG_SEEN, first_window = 0, windows = 2 };
};
template <> struct og_operand<1> : og_float32 {
    enum { moves = 0x7, motion = OG_UNIT };
};
template <> struct og_operand<2> {
    enum { moves = 0xa, motion = OG_STRIDED, divides = 0, ones = 0x8, is_unit = 0 };
};
template <> struct og_operand<3> {
    enum { moves = 0x14, motion = OG_STRIDED, divides = 0, ones = 0x10, is_unit = 0 };
};
template <> struct og_known_stride<0, 4> {
    enum { value = 1 };
};
template <> struct og_known_stride<2, 3> {
    enum { value = 1 };
};
template <> struct og_known_stride<3, 4> {
    enum { value = 1 };
};

/* Values of a row. */
struct og_row {
    float v1;
};

/* What is read or computed once for several passes. */
typedef og_indices<> og_kept_operands;

struct og_kept : og_loads<> {
};

#include "cuda/kernels/sums.cuh"

struct og_values0 {
    float v0;
};

struct og_pass0 : og_results<og_values0> {
    typedef og_loads<0> loads;

    OG_FN void compute(const og_args &a, const og_row &row, const og_kept &kept, const loads &x,
                       int i, og_values0 &y)
    {
        const float v0 = og_get<0>(x, i);
        y.v0 = v0;
    }
};
typedef og_pass0::loads og_loads0;

typedef og_all_sums<og_pass0, og_none, false,
    og_reduction<0, OG_MOST, float, &og_values0::v0, &og_row::v1>>
    og_sums0;

OG_FN void og_rows0(const og_args &a, const og_offsets &at, int i, bool writes, og_row &row)
{
    if (writes)
        og_row_place<1>(a, at, i) = og_operand<1>::narrow(row.v1);
}

typedef og_loads<0> og_layer;
typedef og_indices<0, 2, 3> og_layer_places;
typedef og_loads<> og_fixed;
typedef og_indices<> og_fixed_places;

template <class Places>
OG_FN void og_move_flat(const og_args &a, int f, og_offsets &at, Places places)
{
    og_move_all<4>(a, f / 1 % 3, at, places);
    og_move_all<3>(a, f / 3 % 3, at, places);
}

OG_FN void og_next_layer(const og_args &a, og_offsets &at)
{
}

#include "cuda/kernels/windows.cuh"

OG_FN bool og_sees_all(const og_args &a, const og_offsets &at)
{
    bool all = true;
    {
        og_near least = (og_near)(at.o[2] + a.windows[0].start), most = least;
        og_reach_on((og_near)(2 * og_stride<2, 3>(a)), least, most);
        all = all && least >= 0 && most < (og_near)a.windows[0].extent;
    }
    {
        og_near least = (og_near)(at.o[3] + a.windows[1].start), most = least;
        og_reach_on((og_near)(2 * og_stride<3, 4>(a)), least, most);
        all = all && least >= 0 && most < (og_near)a.windows[1].extent;
    }
    return all;
}
