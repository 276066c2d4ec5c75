// softmax(x, 0)  [50000x40]
// columns, a block a tile, scratch 5248
// og_part0<<<26, 512>>>, 136 bytes of arguments, pointers at 0:0+0 8:1+0 104:-1+0 112:-1+2112 120:-1+4224 128:-1+4416
// og_combine0<<<2, 512>>>, 136 bytes of arguments, pointers at 0:0+0 8:1+0 104:-1+0 112:-1+2112 120:-1+4224 128:-1+4416
// og_part_terms0<<<26, 512>>>, 136 bytes of arguments, pointers at 0:0+0 8:1+0 104:-1+0 112:-1+2112 120:-1+4224 128:-1+4416
// og_combine_terms0<<<2, 512>>>, 136 bytes of arguments, pointers at 0:0+0 8:1+0 104:-1+0 112:-1+2112 120:-1+4224 128:-1+4416
// og_part1<<<26, 512>>>, 136 bytes of arguments, pointers at 0:0+0 8:1+0 104:-1+0 112:-1+2112 120:-1+4224 128:-1+4416
#ifdef __CUDACC_RTC__
#pragma nv_diag_suppress 177 /* a function is not used */
#endif
#include "math/scalar_base.h"
#include "math/half.h"
#include "math/scalar_f32.h"

enum { OG_X = 8, OG_Y = 64, OG_RUNS = 64, OG_FLIGHT = 4, OG_SHARED_BYTES = 16384, OG_BLOCKS = 2 };
enum { OG_V = 4, OG_THREADS = 512 };
typedef int32_t og_index;
typedef uint32_t og_unsigned;

#include "cuda/kernels/prologue.cuh"

struct og_args {
    void *p[2];
    og_index strides[2][2];
    og_divisor dims[2];
    og_index n;
    og_index columns;
    og_index vectors;
    og_index tiles;
    og_divisor per_row;
    og_divisor blocks;
    og_index tiles_of_tiles;
    void *sums0;
    void *terms0;
    void *totals0;
    void *row_values;
};
#include "cuda/kernels/reduce.cuh"

enum { OG_OPERANDS = 2, OG_WINDOWS = 0, OG_VECTOR_DIM = 0, OG_SEVERAL_ROWS = 1, OG_BF16_BY_TWO = 1, OG_MENDS = 1, OG_WHOLE_IS_SEEN = 0 };
typedef og_indices<0, 1> og_all_places;
#include "cuda/kernels/operands.cuh"

template <> struct og_operand<0> : og_float32 {
    enum { moves = 0x3, motion = OG_UNIT };
};
template <> struct og_operand<1> : og_float32 {
    enum { moves = 0x3, motion = OG_UNIT };
};

OG_FN void og_seek_outer(const og_args &a, og_index index, og_offsets &at)
{
}

OG_FN void og_step_column(const og_args &a, og_index index, og_offsets &at)
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
    row.v3 = row.v1 - row.v1;
    row.v4 = row.v2 + row.v3;
    row.v5 = og_reciprocal_f32(row.v4);
}

struct og_values1 {
    float v9;
};

struct og_pass1 : og_results<og_values1, og_result<1, &og_values1::v9>> {
    typedef og_loads<0> loads;

    OG_FN void compute(const og_args &a, const og_row &row, const og_kept &kept, const loads &x,
                       int i, og_values1 &y)
    {
        const float v6 = og_get<0>(x, i);
        const float v7 = v6 - row.v1;
        const float v8 = og_fall_f32(v7);
        const float v9 = v8 * row.v5;
        y.v9 = v9;
    }
};
typedef og_pass1::loads og_loads1;

typedef og_all_sums<og_pass1, og_none, true>
    og_sums1;

#include "cuda/kernels/columns.cuh"
#include "cuda/kernels/columns_split.cuh"

OG_KERNEL(og_part0, OG_THREADS, OG_BLOCKS)
{
    og_index tile = og_divide(blockIdx.x, a.blocks);
    og_column c = og_find_column(a, blockIdx.x - tile * a.blocks.extent);
    og_row row[OG_V];
    og_admit_next();
    og_await_launch();
    og_sums0::sums s0[OG_V];
    og_plain_run<og_sums0> r0;
    og_reduce_columns<og_sums0>(a, c, row, r0, a.n, tile, tile + 1, s0);
    og_store_columns(a.sums0, c, tile * a.vectors * OG_V, s0);
}

OG_KERNEL(og_combine0, OG_THREADS, OG_BLOCKS)
{
    og_column c = og_find_column(a, blockIdx.x);
    og_row row[OG_V];
    og_admit_next();
    og_await_launch();
    og_sums0::sums s0[OG_V];
    og_partial_run<og_sums0> r0;
    r0.first = (const og_sums0::sums *)a.sums0 + c.vector * OG_V;
    r0.stride = a.vectors * OG_V;
    og_reduce_columns<og_sums0>(a, c, row, r0, a.tiles, 0, a.tiles_of_tiles, s0);
    og_store_columns(a.totals0, c, 0, s0);
}

OG_KERNEL(og_part_terms0, OG_THREADS, OG_BLOCKS)
{
    og_index tile = og_divide(blockIdx.x, a.blocks);
    og_column c = og_find_column(a, blockIdx.x - tile * a.blocks.extent);
    og_row row[OG_V];
    og_admit_next();
    og_await_launch();
    og_sums0::sums s0[OG_V];
    og_load_columns(a.totals0, c, 0, s0);
    og_terms0::sums t0[OG_V];
    og_scaled_run<og_sums0, og_terms0> q0;
    for (int i = 0; i < OG_V; i++)
        q0.most[i] = s0[i];
    og_reduce_columns<og_terms0>(a, c, row, q0, a.n, tile, tile + 1, t0);
    og_store_columns(a.terms0, c, tile * a.vectors * OG_V, t0);
}

OG_KERNEL(og_combine_terms0, OG_THREADS, OG_BLOCKS)
{
    og_column c = og_find_column(a, blockIdx.x);
    og_row row[OG_V];
    og_admit_next();
    og_await_launch();
    og_sums0::sums s0[OG_V];
    og_load_columns(a.totals0, c, 0, s0);
    og_terms0::sums t0[OG_V];
    og_partial_run<og_terms0> r0;
    r0.first = (const og_terms0::sums *)a.terms0 + c.vector * OG_V;
    r0.stride = a.vectors * OG_V;
    og_reduce_columns<og_terms0>(a, c, row, r0, a.tiles, 0, a.tiles_of_tiles, t0);
#pragma unroll
    for (int i = 0; i < OG_V; i++) {
        og_sums0::finish(a, s0[i], row[i]);
        og_terms0::finish(a, t0[i], row[i]);
        bool there = i < c.span.end;
        og_rows0(a, c.at, there ? i : 0, c.writes && there, row[i]);
    }
    og_store_columns(a.row_values, c, 0, row);
}

OG_KERNEL(og_part1, OG_THREADS, OG_BLOCKS)
{
    og_index tile = og_divide(blockIdx.x, a.blocks);
    og_column c = og_find_column(a, blockIdx.x - tile * a.blocks.extent);
    og_row row[OG_V];
    og_await_launch();
    og_load_columns(a.row_values, c, 0, row);
    og_sums1::sums s1[OG_V];
    og_plain_run<og_sums1> r1;
    og_reduce_columns<og_sums1>(a, c, row, r1, a.n, tile, tile + 1, s1);
}
