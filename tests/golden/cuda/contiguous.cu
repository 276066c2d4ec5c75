// sigmoid(x)  [4096x1000]
// contiguous, scratch 0
// og_pointwise<<<8001, 128>>>, 56 bytes of arguments, pointers at 0:0+0 8:1+0
#ifdef __CUDACC_RTC__
#pragma nv_diag_suppress 177 /* a function is not used */
#endif
#include "math/scalar_base.h"
#include "math/half.h"
#include "math/scalar_f32.h"

enum { OG_LEAD = 1 };
enum { OG_OUTER = 0, OG_BATCH = 1 };
enum { OG_V = 4, OG_THREADS = 128 };
typedef int32_t og_index;
typedef uint32_t og_unsigned;

#include "cuda/kernels/prologue.cuh"

struct og_args {
    void *p[2];
    og_divisor dims[1];
    og_index n;
    og_index vectors;
    og_divisor per_row;
    og_index full;
};

enum { OG_OPERANDS = 2, OG_WINDOWS = 0, OG_VECTOR_DIM = 0, OG_SEVERAL_ROWS = 1, OG_BF16_BY_TWO = 0, OG_MENDS = 0, OG_WHOLE_IS_SEEN = 0 };
typedef og_indices<0, 1> og_all_places;
#include "cuda/kernels/operands.cuh"

template <> struct og_operand<0> : og_float32 {
    enum { moves = 0x1, motion = OG_UNIT };
};
template <> struct og_operand<1> : og_float32 {
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
    float v1;
};

struct og_pass0 : og_results<og_values0, og_result<1, &og_values0::v1>> {
    typedef og_loads<0> loads;

    OG_FN void compute(const og_args &a, const og_row &row, const og_kept &kept, const loads &x,
                       int i, og_values0 &y)
    {
        const float v0 = og_get<0>(x, i);
        const float v1 = og_sigmoid_f32(v0);
        y.v1 = v1;
    }
};
typedef og_pass0::loads og_loads0;

#include "cuda/kernels/pointwise.cuh"
