// x - mean(x, 1, true)  [400x5001d]
// rows, a block a row, kept, scratch 0
// og_rows<<<400, 512>>>, 64 bytes of arguments, pointers at 0:0+0 8:1+0
#ifdef __CUDACC_RTC__
#pragma nv_diag_suppress 177 /* a function is not used */
#endif
#include "math/scalar_base.h"
#include "math/half.h"
#include "math/scalar_f32.h"
#include "math/scalar_f64.h"

enum { OG_GROUP = 512, OG_VECTORS = 1, OG_STEPS = 10, OG_FLIGHT = 10, OG_KEEPS = 1, OG_FLAT = 1, OG_WHOLE = 8 };
enum { OG_V = 1, OG_THREADS = 512 };
typedef int32_t og_index;
typedef uint32_t og_unsigned;

#include "cuda/kernels/prologue.cuh"

struct og_args {
    void *p[2];
    og_index strides[2][1];
    og_divisor dims[2];
    double c0;
    og_index n;
    og_index rows;
};
#include "cuda/kernels/reduce.cuh"

enum { OG_OPERANDS = 2, OG_WINDOWS = 0, OG_VECTOR_DIM = 1, OG_SEVERAL_ROWS = 0, OG_BF16_BY_TWO = 1, OG_MENDS = 1, OG_WHOLE_IS_SEEN = 0 };
typedef og_indices<0, 1> og_all_places;
#include "cuda/kernels/operands.cuh"

template <> struct og_operand<0> : og_float64 {
    enum { moves = 0x3, motion = OG_UNIT };
};
template <> struct og_operand<1> : og_float64 {
    enum { moves = 0x3, motion = OG_UNIT };
};

OG_FN void og_seek_rows(const og_args &a, og_index index, og_offsets &at)
{
    og_seek<0>(a, index, at);
}

OG_FN void og_step_row(const og_args &a, og_index index, og_offsets &at)
{
    og_seek<1>(a, index, at);
}

/* Values of a row. */
struct og_row {
    double v1;
    double v2;
    double v3;
};

/* What is read or computed once for several passes. */
typedef og_indices<0> og_kept_operands;

struct og_kept : og_loads<0> {
};

#include "cuda/kernels/sums.cuh"

struct og_values0 {
    double v0;
};

struct og_pass0 : og_results<og_values0> {
    typedef og_loads<> loads;

    OG_FN void compute(const og_args &a, const og_row &row, const og_kept &kept, const loads &x,
                       int i, og_values0 &y)
    {
        const double v0 = og_get<0>(kept, i);
        y.v0 = v0;
    }
};
typedef og_pass0::loads og_loads0;

typedef og_all_sums<og_pass0, og_none, false,
    og_reduction<0, OG_SUM, double, &og_values0::v0, &og_row::v1>>
    og_sums0;

OG_FN void og_rows0(const og_args &a, const og_offsets &at, int i, bool writes, og_row &row)
{
    row.v2 = a.c0;
    row.v3 = row.v1 / row.v2;
}

struct og_values1 {
    double v5;
};

struct og_pass1 : og_results<og_values1, og_result<1, &og_values1::v5>> {
    typedef og_loads<> loads;

    OG_FN void compute(const og_args &a, const og_row &row, const og_kept &kept, const loads &x,
                       int i, og_values1 &y)
    {
        const double v4 = og_get<0>(kept, i);
        const double v5 = v4 - row.v3;
        y.v5 = v5;
    }
};
typedef og_pass1::loads og_loads1;

typedef og_all_sums<og_pass1, og_none, true>
    og_sums1;

#include "cuda/kernels/rows.cuh"

OG_KERNEL(og_rows, OG_THREADS, 1)
{
    og_group g = og_find_row(a);
    og_row row;
    og_kept_row kept;
    og_keep(a, g, kept);
    og_sums0::sums s0 = og_reduce<og_sums0>(a, g, row, og_none(), kept);
    og_sums0::finish(a, s0, row);
    og_rows0(a, g.at, 0, g.writes, row);
    og_sums1::sums s1 = og_reduce<og_sums1>(a, g, row, og_none(), kept);
    og_sums1::finish(a, s1, row);
}
