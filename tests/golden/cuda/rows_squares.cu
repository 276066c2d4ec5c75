// layer_norm(x, 140000)  [40x140000b]
// rows, a block a chunk, scratch 6272
// og_part0<<<360, 64>>>, 120 bytes of arguments, pointers at 0:0+0 8:1+0 88:-1+0 96:-1+1600 104:-1+3200 112:-1+4800
// og_combine0<<<90, 128>>>, 120 bytes of arguments, pointers at 0:0+0 8:1+0 88:-1+0 96:-1+1600 104:-1+3200 112:-1+4800
// og_part2<<<360, 64>>>, 120 bytes of arguments, pointers at 0:0+0 8:1+0 88:-1+0 96:-1+1600 104:-1+3200 112:-1+4800
#ifdef __CUDACC_RTC__
#pragma nv_diag_suppress 177 /* a function is not used */
#endif
#include "math/scalar_base.h"
#include "math/half.h"
#include "math/scalar_f32.h"

enum { OG_GROUP = 64, OG_VECTORS = 1, OG_STEPS = 32, OG_FLIGHT = 4, OG_KEEPS = 0, OG_FLAT = 1, OG_WHOLE = 0 };
#define OG_COMBINERS 32
#define OG_COMBINE_THREADS 128
enum { OG_V = 8, OG_THREADS = 64 };
typedef int32_t og_index;
typedef uint32_t og_unsigned;

#include "cuda/kernels/prologue.cuh"

struct og_args {
    void *p[2];
    og_index strides[2][1];
    og_divisor dims[2];
    float c0;
    float c1;
    float c2;
    float c3;
    og_index n;
    og_index rows;
    og_divisor chunks;
    og_index partials;
    void *sums0;
    void *squares0;
    void *sums1;
    void *row_values;
};
#include "cuda/kernels/reduce.cuh"

enum { OG_OPERANDS = 2, OG_WINDOWS = 0, OG_VECTOR_DIM = 1, OG_SEVERAL_ROWS = 0, OG_BF16_BY_TWO = 1, OG_MENDS = 1, OG_WHOLE_IS_SEEN = 0 };
typedef og_indices<0, 1> og_all_places;
#include "cuda/kernels/operands.cuh"

template <> struct og_operand<0> : og_bfloat16 {
    enum { moves = 0x3, motion = OG_UNIT };
};
template <> struct og_operand<1> : og_bfloat16 {
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
    float v7;
    float v8;
    float v12;
    float v13;
    float v14;
    float v15;
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
    og_reduction<0, OG_SUM, float, &og_values0::v0, &og_row::v1>>
    og_sums0;
#include "cuda/kernels/squares.cuh"

typedef og_all_squares<og_sums0,
    og_square<1, float, &og_values0::v0, &og_row::v7, 0>>
    og_squares0;

OG_FN void og_rows0(const og_args &a, const og_offsets &at, int i, bool writes, og_row &row)
{
    row.v2 = a.c0;
    row.v3 = row.v1 / row.v2;
    row.v8 = og_square_scale_f32(row.v7, a.c1);
}

struct og_values1 {
    float v11;
};

struct og_pass1 : og_results<og_values1> {
    typedef og_loads<0> loads;

    OG_FN void compute(const og_args &a, const og_row &row, const og_kept &kept, const loads &x,
                       int i, og_values1 &y)
    {
        const float v9 = og_get<0>(x, i);
        const float v10 = v9 - row.v3;
        const float v11 = og_scaled_square_f32(v10, row.v8);
        y.v11 = v11;
    }
};
typedef og_pass1::loads og_loads1;

typedef og_all_sums<og_pass1, og_none, false,
    og_reduction<0, OG_SUM, float, &og_values1::v11, &og_row::v12>>
    og_sums1;

OG_FN void og_rows1(const og_args &a, const og_offsets &at, int i, bool writes, og_row &row)
{
    row.v13 = og_rescaled_f32(row.v7, row.v12, a.c2);
    row.v14 = row.v13 / row.v2;
    row.v15 = og_scaled_rsqrt_f32(row.v14, row.v8, a.c3);
}

/* Does a row need og_sums1? */
OG_FN bool og_again1(const og_row &row)
{
    return row.v8 != 1;
}

struct og_values2 {
    float v18;
};

struct og_pass2 : og_results<og_values2, og_result<1, &og_values2::v18>> {
    typedef og_loads<0> loads;

    OG_FN void compute(const og_args &a, const og_row &row, const og_kept &kept, const loads &x,
                       int i, og_values2 &y)
    {
        const float v16 = og_get<0>(x, i);
        const float v17 = v16 - row.v3;
        const float v18 = v17 * row.v15;
        y.v18 = v18;
    }
};
typedef og_pass2::loads og_loads2;

typedef og_all_sums<og_pass2, og_none, true>
    og_sums2;

#include "cuda/kernels/rows.cuh"
#include "cuda/kernels/combine.cuh"
#include "cuda/kernels/rows_squares.cuh"
#include "cuda/kernels/rows_again.cuh"

OG_KERNEL(og_part0, OG_THREADS)
{
    og_index chunk;
    og_group g = og_find_chunk(a, chunk);
    og_row row;
    og_admit_next();
    og_kept_row kept;
    og_keep(a, g, kept);
    og_sums0::sums s0;
    og_squares0::sums u0;
    og_reduce_with_squares<og_sums0, og_squares0>(a, g, row, kept, s0, u0);
    if (g.writes)
        ((og_sums0::sums *)a.sums0)[chunk] = s0;
    if (g.writes)
        ((og_squares0::sums *)a.squares0)[chunk] = u0;
    og_begin_count<og_sums1>(a, g, chunk, a.sums1);
}

OG_KERNEL(og_combine0, OG_COMBINE_THREADS, 1)
{
    og_shared_row g = og_find_shared_row(a);
    og_row row;
    og_admit_next();
    og_await_launch();
    og_partial_sums<og_sums0> p0;
    p0.own = (og_sums0::sums *)a.sums0 + g.row * a.partials;
    og_sums0::sums s0 = og_combine<og_sums0>(p0, g.thread, a.chunks.extent);
    og_partial_squares<og_sums0, og_squares0> v0;
    v0.own = (og_squares0::sums *)a.squares0 + g.row * a.partials;
    v0.sums = p0.own;
    v0.all = s0;
    v0.n = a.n;
    og_squares0::sums u0 = og_combine<og_squares0>(v0, g.thread, a.chunks.extent);
    og_sums0::finish(a, s0, row);
    og_squares0::finish(a, u0, row);
    og_rows0(a, g.at, 0, g.writes, row);
    og_sums1::sums s1 = og_combine_again<og_sums1>(a, g, row, a.sums1, og_again1(row));
    og_sums1::finish(a, s1, row);
    og_rows1(a, g.at, 0, g.writes, row);
    if (g.writes)
        ((og_row *)a.row_values)[g.row] = row;
}

OG_KERNEL(og_part2, OG_THREADS)
{
    og_index chunk;
    og_group g = og_find_chunk(a, chunk);
    og_row row;
    og_await_launch();
    row = ((const og_row *)a.row_values)[g.row];
    og_kept_row kept;
    og_keep(a, g, kept);
    og_sums2::sums s2 = og_reduce<og_sums2>(a, g, row, og_none(), kept);
}
