// softmax(x, 1)  [400x1024]
// rows, a warp a row, kept, scratch 0
// og_rows<<<50, 256>>>, 56 bytes of arguments, pointers at 0:0+0 8:1+0
#ifdef __CUDACC_RTC__
#pragma nv_diag_suppress 177 /* a function is not used */
#endif
#include "math/scalar_base.h"
#include "math/half.h"
#include "math/scalar_f32.h"

enum { OG_GROUP = 32, OG_VECTORS = 4, OG_STEPS = 2, OG_FLIGHT = 2, OG_KEEPS = 1, OG_FLAT = 1, OG_WHOLE = 2 };
enum { OG_V = 4, OG_THREADS = 256 };
typedef int32_t og_index;
typedef uint32_t og_unsigned;

#include "cuda/kernels/prologue.cuh"

struct og_args {
    void *p[2];
    og_index strides[2][1];
    og_divisor dims[2];
    og_index n;
    og_index rows;
};
#include "cuda/kernels/reduce.cuh"

enum { OG_OPERANDS = 2, OG_WINDOWS = 0, OG_VECTOR_DIM = 1, OG_SEVERAL_ROWS = 0, OG_BF16_BY_TWO = 1, OG_MENDS = 1, OG_WHOLE_IS_SEEN = 0 };
typedef og_indices<0, 1> og_all_places;
#include "cuda/kernels/operands.cuh"

template <> struct og_operand<0> : og_float32 {
    enum { moves = 0x3, motion = OG_UNIT };
};
template <> struct og_operand<1> : og_float32 {
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
    float v1;
    float v2;
    float v3;
    float v4;
    float v5;
};

/* What is read or computed once for several passes. */
typedef og_indices<0> og_kept_operands;

struct og_kept : og_loads<0> {
    og_pack<float> t0;
};

#include "cuda/kernels/sums.cuh"

struct og_values0 {
    float v0;
};

struct og_pass0 : og_results<og_values0> {
    typedef og_loads<> loads;

    OG_FN void compute(const og_args &a, const og_row &row, const og_kept &kept, const loads &x,
                       int i, og_values0 &y)
    {
        const float v0 = og_get<0>(kept, i);
        y.v0 = v0;
    }
};
typedef og_pass0::loads og_loads0;

typedef og_all_sums<og_pass0, og_none, false,
    og_reduction<0, OG_PEAK, float, &og_values0::v0, &og_row::v1, 1>>
    og_sums0;

typedef og_all_sums<og_pass0, og_sums0::sums, false,
    og_term<1, float, &og_values0::v0, &og_row::v2, 0, &og_kept::t0>>
    og_terms0;

OG_FN void og_rows0(const og_args &a, const og_offsets &at, int i, bool writes, og_row &row)
{
    row.v3 = row.v1 - row.v1;
    row.v4 = row.v2 + row.v3;
    row.v5 = og_reciprocal_f32(row.v4);
}

struct og_values1 {
    float v9;
};

struct og_pass1 : og_results<og_values1, og_result<1, &og_values1::v9>> {
    typedef og_loads<> loads;

    OG_FN void compute(const og_args &a, const og_row &row, const og_kept &kept, const loads &x,
                       int i, og_values1 &y)
    {
        const float v6 = og_get<0>(kept, i);
        const float v7 = v6 - row.v1;
        const float v8 = kept.t0.e[i];
        const float v9 = v8 * row.v5;
        y.v9 = v9;
    }
};
typedef og_pass1::loads og_loads1;

typedef og_all_sums<og_pass1, og_none, true>
    og_sums1;

#include "cuda/kernels/rows.cuh"

OG_KERNEL(og_rows, OG_THREADS)
{
    og_group g = og_find_row(a);
    og_row row;
    og_kept_row kept;
    og_keep(a, g, kept);
    og_sums0::sums s0 = og_reduce<og_sums0>(a, g, row, og_none(), kept);
    og_terms0::sums t0 = og_reduce<og_terms0>(a, g, row, s0, kept);
    og_sums0::finish(a, s0, row);
    og_terms0::finish(a, t0, row);
    og_rows0(a, g.at, 0, g.writes, row);
    og_sums1::sums s1 = og_reduce<og_sums1>(a, g, row, og_none(), kept);
    og_sums1::finish(a, s1, row);
}
