// logsumexp(x, 1)  [40x50000]
// rows, a block a chunk, scratch 1664
// og_part0<<<160, 128>>>, 104 bytes of arguments, pointers at 0:0+0 8:1+0 88:-1+0 96:-1+832
// og_combine0<<<10, 128>>>, 104 bytes of arguments, pointers at 0:0+0 8:1+0 88:-1+0 96:-1+832
#ifdef __CUDACC_RTC__
#pragma nv_diag_suppress 177 /* a function is not used */
#endif
#include "math/scalar_base.h"
#include "math/half.h"
#include "math/scalar_f32.h"

enum { OG_GROUP = 128, OG_VECTORS = 1, OG_STEPS = 32, OG_FLIGHT = 8, OG_KEEPS = 0, OG_FLAT = 1, OG_WHOLE = 0 };
#define OG_COMBINERS 32
#define OG_COMBINE_THREADS 128
enum { OG_V = 4, OG_THREADS = 128 };
typedef int32_t og_index;
typedef uint32_t og_unsigned;

#include "cuda/kernels/prologue.cuh"

struct og_args {
    void *p[2];
    og_index strides[2][2];
    og_divisor dims[2];
    float c0;
    float c1;
    og_index n;
    og_index rows;
    og_divisor chunks;
    og_index partials;
    void *sums0;
    void *terms0;
};
#include "cuda/kernels/reduce.cuh"

enum { OG_OPERANDS = 2, OG_WINDOWS = 0, OG_VECTOR_DIM = 1, OG_SEVERAL_ROWS = 0, OG_BF16_BY_TWO = 1, OG_MENDS = 1, OG_WHOLE_IS_SEEN = 0 };
typedef og_indices<0, 1> og_all_places;
#include "cuda/kernels/operands.cuh"

template <> struct og_operand<0> : og_float32 {
    enum { moves = 0x3, motion = OG_UNIT };
};
template <> struct og_operand<1> : og_float32 {
    enum { moves = 0x1, motion = OG_STILL };
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
    uint32_t v6;
    float v7;
    float v8;
    float v9;
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
    og_reduction<0, OG_PEAK, float, &og_values0::v0, &og_row::v1, 1>>
    og_sums0;

typedef og_all_sums<og_pass0, og_sums0::sums, false,
    og_term<1, float, &og_values0::v0, &og_row::v2, 0, OG_NOWHERE>>
    og_terms0;

OG_FN void og_rows0(const og_args &a, const og_offsets &at, int i, bool writes, og_row &row)
{
    row.v3 = og_log_f32(row.v2);
    row.v4 = og_abs_f32(row.v1);
    row.v5 = a.c0;
    row.v6 = og_eq_f32(row.v4, row.v5);
    row.v7 = a.c1;
    row.v8 = og_where_f32(row.v6, row.v7, row.v1);
    row.v9 = row.v3 + row.v8;
    if (writes)
        og_row_place<1>(a, at, i) = og_operand<1>::narrow(row.v9);
}

#include "cuda/kernels/rows.cuh"
#include "cuda/kernels/combine.cuh"
#include "cuda/kernels/rows_split.cuh"

OG_KERNEL(og_part0, OG_THREADS)
{
    og_index chunk;
    og_group g = og_find_chunk(a, chunk);
    og_row row;
    og_admit_next();
    og_kept_row kept;
    og_keep(a, g, kept);
    og_sums0::sums s0 = og_reduce<og_sums0>(a, g, row, og_none(), kept);
    og_terms0::sums t0 = og_reduce<og_terms0>(a, g, row, s0, kept);
    if (g.writes)
        ((og_sums0::sums *)a.sums0)[chunk] = s0;
    if (g.writes)
        ((og_terms0::sums *)a.terms0)[chunk] = t0;
}

OG_KERNEL(og_combine0, OG_COMBINE_THREADS)
{
    og_combined g = og_find_combined(a);
    og_row row;
    og_await_launch();
    og_partial_sums<og_sums0> p0;
    p0.own = (og_sums0::sums *)a.sums0 + g.row * a.partials;
    og_sums0::sums s0 = og_combine<og_sums0>(p0, g.thread, a.chunks.extent);
    og_partial_terms<og_terms0> q0;
    q0.own = (og_terms0::sums *)a.terms0 + g.row * a.partials;
    q0.peaks = p0.own;
    q0.most = s0;
    og_terms0::sums t0 = og_combine<og_terms0>(q0, g.thread, a.chunks.extent);
    og_sums0::finish(a, s0, row);
    og_terms0::finish(a, t0, row);
    og_rows0(a, g.at, 0, g.writes, row);
}
