// softmax(x + y, 1)  [400x16384b 400x16384b]
// rows, a block a row, kept in shared memory, scratch 0
// og_rows<<<132, 128>>>, 80 bytes of arguments, pointers at 0:0+0 8:1+0 16:2+0
#ifdef __CUDACC_RTC__
#pragma nv_diag_suppress 177 /* a function is not used */
#endif
#include "math/scalar_base.h"
#include "math/half.h"
#include "math/scalar_f32.h"

enum { OG_GROUP = 128, OG_VECTORS = 1, OG_STEPS = 1, OG_FLIGHT = 2, OG_KEEPS = 0,
       OG_FLAT = 1, OG_WHOLE = 0, OG_PARTS = 1, OG_JOINED = 1, OG_HELD = 0,
       OG_BLOCKS = 1, OG_LENDER = 1, OG_CLUSTER = 1 };
enum { OG_V = 4, OG_THREADS = 128 };
typedef int32_t og_index;
typedef uint32_t og_unsigned;

#include "cuda/kernels/prologue.cuh"

struct og_args {
    void *p[3];
    og_index strides[3][1];
    og_divisor dims[2];
    og_index n;
    og_index rows;
    og_index shelved;
    og_index quarter;
};
#include "cuda/kernels/reduce.cuh"

enum { OG_OPERANDS = 3, OG_WINDOWS = 0, OG_VECTOR_DIM = 1, OG_SEVERAL_ROWS = 0, OG_BF16_BY_TWO = 1, OG_MENDS = 1, OG_WHOLE_IS_SEEN = 0 };
typedef og_indices<0, 1, 2> og_all_places;
#include "cuda/kernels/operands.cuh"

template <> struct og_operand<0> : og_bfloat16 {
    enum { moves = 0x3, motion = OG_UNIT };
};
template <> struct og_operand<1> : og_bfloat16 {
    enum { moves = 0x3, motion = OG_UNIT };
};
template <> struct og_operand<2> : og_bfloat16 {
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
    float v3;
    float v4;
    float v5;
    float v6;
    float v7;
};

/* What is read or computed once for several passes. */
typedef og_indices<0, 1> og_kept_operands;

struct og_kept : og_loads<0, 1> {
    og_pack<float> t0;
};

#include "cuda/kernels/sums.cuh"

struct og_values0 {
    float v2;
};

struct og_pass0 : og_results<og_values0> {
    typedef og_loads<> loads;

    OG_FN void compute(const og_args &a, const og_row &row, const og_kept &kept, const loads &x,
                       int i, og_values0 &y)
    {
        const float v0 = og_get<0>(kept, i);
        const float v1 = og_get<1>(kept, i);
        const float v2 = v0 + v1;
        y.v2 = v2;
    }
};
typedef og_pass0::loads og_loads0;

typedef og_all_sums<og_pass0, og_none, false,
    og_reduction<0, OG_PEAK, float, &og_values0::v2, &og_row::v3, 1>>
    og_sums0;

typedef og_all_sums<og_pass0, og_sums0::sums, false,
    og_term<1, float, &og_values0::v2, &og_row::v4, 0, &og_kept::t0>>
    og_terms0;

OG_FN void og_rows0(const og_args &a, const og_offsets &at, int i, bool writes, og_row &row)
{
    row.v5 = row.v3 - row.v3;
    row.v6 = row.v4 + row.v5;
    row.v7 = og_reciprocal_f32(row.v6);
}

struct og_values1 {
    float v13;
};

struct og_pass1 : og_results<og_values1, og_result<2, &og_values1::v13>> {
    typedef og_loads<> loads;

    OG_FN void compute(const og_args &a, const og_row &row, const og_kept &kept, const loads &x,
                       int i, og_values1 &y)
    {
        const float v8 = og_get<0>(kept, i);
        const float v9 = og_get<1>(kept, i);
        const float v10 = v8 + v9;
        const float v11 = v10 - row.v3;
        const float v12 = kept.t0.e[i];
        const float v13 = v12 * row.v7;
        y.v13 = v13;
    }
};
typedef og_pass1::loads og_loads1;

typedef og_all_sums<og_pass1, og_none, true>
    og_sums1;

#include "cuda/kernels/rows.cuh"
#include "cuda/kernels/rows_shared.cuh"

OG_KERNEL(og_rows, OG_THREADS, OG_BLOCKS)
{
    extern __shared__ __align__(128) uint4 og_shared[];
    og_shelf *shelves = (og_shelf *)og_shared;
    og_group g = og_find_part(a, blockIdx.x);
    og_held_row held;
    og_shelve_row(a, g, held, shelves);
    for (;;) {
        og_row row;
        og_next_row next = og_find_next_row(a, g.row + (og_index)gridDim.x);
        og_sums0::sums c0 = og_reduce_part<og_sums0, true, false>(a, g, row, og_none(), held, shelves, next);
        og_terms0::sums d0 = og_reduce_part<og_terms0, false, false>(a, g, row, c0, held, shelves, next);
        og_sums0::sums s0 = og_join_chunks<og_sums0>(g, c0);
        og_terms0::sums t0 = og_join_terms<og_terms0>(g, d0, c0, s0);
    og_sums0::finish(a, s0, row);
    og_terms0::finish(a, t0, row);
    og_rows0(a, g.at, 0, g.writes, row);
        og_sums1::sums c1 = og_reduce_part<og_sums1, false, true>(a, g, row, og_none(), held, shelves, next);
        og_sums1::sums s1 = og_join_chunks<og_sums1>(g, c1);
    og_sums1::finish(a, s1, row);
        if (!next.more)
            break;
        g = next.g;
        __syncthreads(); /* before sums are written again */
    }
}
