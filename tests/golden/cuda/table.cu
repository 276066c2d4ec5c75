// gelu(x) * y  [30000000b -]
// contiguous, by table, scratch 131136
// og_fill_table<<<64, 128>>>, 80 bytes of arguments, pointers at 0:0+0 8:1+0 16:2+0 56:-1+0 64:-1+131072
// og_table<<<132, 1024>>>, 80 bytes of arguments, pointers at 0:0+0 8:1+0 16:2+0 56:-1+0 64:-1+131072
#ifdef __CUDACC_RTC__
#pragma nv_diag_suppress 177 /* a function is not used */
#endif
#include "math/scalar_base.h"
#include "math/half.h"
#include "math/scalar_f32.h"

enum { OG_LEAD = 2 };
enum { OG_FLIGHT = 4, OG_FROM = 0, OG_TO = 2 };
enum { OG_V = 8, OG_THREADS = 1024 };
typedef int32_t og_index;
typedef uint32_t og_unsigned;

#include "cuda/kernels/prologue.cuh"

struct og_args {
    void *p[3];
    og_divisor dims[1];
    og_index n;
    og_index vectors;
    og_divisor per_row;
    og_half *table;
    uint32_t *next;
    og_index whole;
};

enum { OG_OPERANDS = 3, OG_WINDOWS = 0, OG_VECTOR_DIM = 0, OG_SEVERAL_ROWS = 1, OG_BF16_BY_TWO = 0, OG_MENDS = 0, OG_WHOLE_IS_SEEN = 0 };
typedef og_indices<0, 1, 2> og_all_places;
#include "cuda/kernels/operands.cuh"

template <> struct og_operand<0> : og_bfloat16 {
    enum { moves = 0x1, motion = OG_UNIT };
};
template <> struct og_operand<1> : og_float32 {
    enum { moves = 0x0, motion = OG_STILL };
};
template <> struct og_operand<2> : og_bfloat16 {
    enum { moves = 0x1, motion = OG_UNIT };
};

OG_FN void og_seek_outer(const og_args &a, og_index index, og_offsets &at)
{
}

OG_FN void og_step_inner(const og_args &a, og_index index, og_offsets &at)
{
    og_seek<0>(a, index, at);
}

/* Values of a row. */
struct og_row {
};

/* What is read or computed once for several passes. */
typedef og_indices<> og_kept_operands;

struct og_kept : og_loads<> {
};

#include "cuda/kernels/results.cuh"

struct og_values0 {
    float v3;
};

struct og_pass0 : og_results<og_values0, og_result<2, &og_values0::v3>> {
    typedef og_loads<0, 1> loads;

    OG_FN void compute(const og_args &a, const og_row &row, const og_kept &kept, const loads &x,
                       int i, og_values0 &y)
    {
        const float v0 = og_get<0>(x, i);
        const float v1 = og_gelu_f32(v0);
        const float v2 = og_get<1>(x, i);
        const float v3 = v1 * v2;
        y.v3 = v3;
    }
};
typedef og_pass0::loads og_loads0;

#include "cuda/kernels/pointwise_table.cuh"
