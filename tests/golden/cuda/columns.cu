// sum(sigmoid(x), 1)  [30x40x50]
// columns, scratch 0
// og_columns<<<6, 128>>>, 104 bytes of arguments, pointers at 0:0+0 8:1+0
#ifdef __CUDACC_RTC__
#pragma nv_diag_suppress 177 /* a function is not used */
#endif
#include "math/scalar_base.h"
#include "math/half.h"
#include "math/scalar_f32.h"

enum { OG_X = 128, OG_Y = 1, OG_RUNS = 1, OG_FLIGHT = 8, OG_SHARED_BYTES = 1024, OG_BLOCKS = 1 };
enum { OG_V = 2, OG_THREADS = 128 };
typedef int32_t og_index;
typedef uint32_t og_unsigned;

#include "cuda/kernels/prologue.cuh"

struct og_args {
    void *p[2];
    og_index strides[2][3];
    og_divisor dims[3];
    og_index n;
    og_index columns;
    og_index vectors;
    og_index tiles;
    og_divisor per_row;
};
#include "cuda/kernels/reduce.cuh"

enum { OG_OPERANDS = 2, OG_WINDOWS = 0, OG_VECTOR_DIM = 1, OG_SEVERAL_ROWS = 1, OG_BF16_BY_TWO = 1, OG_MENDS = 1, OG_WHOLE_IS_SEEN = 0 };
typedef og_indices<0, 1> og_all_places;
#include "cuda/kernels/operands.cuh"

template <> struct og_operand<0> : og_float32 {
    enum { moves = 0x7, motion = OG_UNIT };
};
template <> struct og_operand<1> : og_float32 {
    enum { moves = 0x3, motion = OG_UNIT };
};

OG_FN void og_seek_outer(const og_args &a, og_index index, og_offsets &at)
{
    og_seek<0>(a, index, at);
}

OG_FN void og_step_column(const og_args &a, og_index index, og_offsets &at)
{
    og_seek<1>(a, index, at);
}

OG_FN void og_step_row(const og_args &a, og_index index, og_offsets &at)
{
    og_seek<2>(a, index, at);
}

/* Values of a row. */
struct og_row {
    float v2;
};

/* What is read or computed once for several passes. */
typedef og_indices<> og_kept_operands;

struct og_kept : og_loads<> {
};

#include "cuda/kernels/sums.cuh"

struct og_values0 {
    float v1;
};

struct og_pass0 : og_results<og_values0> {
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

typedef og_all_sums<og_pass0, og_none, false,
    og_reduction<0, OG_SUM, float, &og_values0::v1, &og_row::v2>>
    og_sums0;

OG_FN void og_rows0(const og_args &a, const og_offsets &at, int i, bool writes, og_row &row)
{
    if (writes)
        og_row_place<1>(a, at, i) = og_operand<1>::narrow(row.v2);
}

#include "cuda/kernels/columns.cuh"

OG_KERNEL(og_columns, OG_THREADS, OG_BLOCKS)
{
    og_column c = og_find_column(a, blockIdx.x);
    og_row row[OG_V];
    og_sums0::sums s0[OG_V];
    og_plain_run<og_sums0> r0;
    og_reduce_columns<og_sums0>(a, c, row, r0, a.n, 0, a.tiles, s0);
#pragma unroll
    for (int i = 0; i < OG_V; i++) {
        og_sums0::finish(a, s0[i], row[i]);
        bool there = i < c.span.end;
        og_rows0(a, c.at, there ? i : 0, c.writes && there, row[i]);
    }
}
