// t(x) + y  [300x200 200x300]
// transposing, scratch 0
// og_transpose<<<20, 256>>>, 104 bytes of arguments, pointers at 0:0+0 8:1+0 16:2+0
#ifdef __CUDACC_RTC__
#pragma nv_diag_suppress 177 /* a function is not used */
#endif
#include "math/scalar_base.h"
#include "math/half.h"
#include "math/scalar_f32.h"

enum { OG_TILE = 64 };
enum { OG_V = 4, OG_THREADS = 256 };
typedef int32_t og_index;
typedef uint32_t og_unsigned;

#include "cuda/kernels/prologue.cuh"

struct og_args {
    void *p[3];
    og_index strides[3][2];
    og_divisor dims[2];
    og_index inner;
    og_index turned;
    og_divisor inner_tiles;
    og_divisor turned_tiles;
};

enum { OG_OPERANDS = 3, OG_WINDOWS = 0, OG_VECTOR_DIM = 1, OG_SEVERAL_ROWS = 1, OG_BF16_BY_TWO = 0, OG_MENDS = 0, OG_WHOLE_IS_SEEN = 0 };
typedef og_indices<0, 1, 2> og_all_places;
#include "cuda/kernels/operands.cuh"

template <> struct og_operand<0> : og_float32 {
    enum { moves = 0x3, motion = OG_STRIDED };
};
template <> struct og_operand<1> : og_float32 {
    enum { moves = 0x3, motion = OG_UNIT };
};
template <> struct og_operand<2> : og_float32 {
    enum { moves = 0x3, motion = OG_UNIT };
};

OG_FN void og_seek_outer(const og_args &a, og_index index, og_offsets &at)
{
}

OG_FN void og_step_inner(const og_args &a, og_index index, og_offsets &at)
{
    og_seek<1>(a, index, at);
}

OG_FN void og_step_turned(const og_args &a, og_index index, og_offsets &at)
{
    og_seek<0>(a, index, at);
}

/* Values of a row. */
struct og_row {
};

/* What is read or computed once for several passes. */
typedef og_indices<0> og_kept_operands;

struct og_kept : og_loads<0> {
};

#include "cuda/kernels/results.cuh"

struct og_values0 {
    float v2;
};

struct og_pass0 : og_results<og_values0, og_result<2, &og_values0::v2>> {
    typedef og_loads<1> loads;

    OG_FN void compute(const og_args &a, const og_row &row, const og_kept &kept, const loads &x,
                       int i, og_values0 &y)
    {
        const float v0 = og_get<0>(kept, i);
        const float v1 = og_get<1>(x, i);
        const float v2 = v0 + v1;
        y.v2 = v2;
    }
};
typedef og_pass0::loads og_loads0;

#include "cuda/kernels/transpose.cuh"
