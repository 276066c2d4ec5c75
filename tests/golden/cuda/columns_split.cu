// softmax(x, 0)  [50000x40]
// columns, a block a tile, scratch 5248
// og_part0<<<13, 512>>>, 104 bytes of arguments, pointers at 0:0+0 8:1+0 72:-1+0 80:-1+2112 88:-1+4224 96:-1+4416
// og_combine0<<<1, 512>>>, 104 bytes of arguments, pointers at 0:0+0 8:1+0 72:-1+0 80:-1+2112 88:-1+4224 96:-1+4416
// og_part_terms0<<<13, 512>>>, 104 bytes of arguments, pointers at 0:0+0 8:1+0 72:-1+0 80:-1+2112 88:-1+4224 96:-1+4416
// og_combine_terms0<<<1, 512>>>, 104 bytes of arguments, pointers at 0:0+0 8:1+0 72:-1+0 80:-1+2112 88:-1+4224 96:-1+4416
// og_part1<<<13, 512>>>, 104 bytes of arguments, pointers at 0:0+0 8:1+0 72:-1+0 80:-1+2112 88:-1+4224 96:-1+4416
#ifdef __CUDACC_RTC__
#pragma nv_diag_suppress 177 /* a function is not used */
#endif
#include "math/scalar_base.h"
#include "math/half.h"
#include "math/scalar_f32.h"

enum { OG_X = 16, OG_Y = 32, OG_RUNS = 64, OG_FLIGHT = 4, OG_SHARED_BYTES = 32768, OG_BLOCKS = 2 };
enum { OG_V = 4, OG_THREADS = 512 };
typedef int32_t og_index;
typedef uint32_t og_unsigned;

#include "cuda/kernels/prologue.cuh"

struct og_args {
    const float *p0;
    float *p1;
    og_index n;
    og_index columns;
    og_index vectors;
    og_index tiles;
    og_divisor per_row;
    og_index s0_1;
    og_index s1_1;
    og_divisor blocks;
    og_index tiles_of_tiles;
    void *sums0;
    void *terms0;
    void *totals0;
    void *row_values;
};
#include "cuda/kernels/reduce.cuh"

/* Where each access is, in elements from its pointer. */
struct og_offsets {
    og_index o0;
    og_index o1;
};

OG_FN og_offsets og_start()
{
    og_offsets at;
    at.o0 = 0;
    at.o1 = 0;
    return at;
}

OG_FN void og_seek_outer(const og_args &a, og_index index, og_offsets &at)
{
}

OG_FN void og_step_column(const og_args &a, og_index index, og_offsets &at)
{
    at.o0 += index;
    at.o1 += index;
}

OG_FN void og_step_row(const og_args &a, og_index index, og_offsets &at)
{
    at.o0 += index * a.s0_1;
    at.o1 += index * a.s1_1;
}

/* Values of a row. */
struct og_row {
    float v1;
    float v2;
    float v3;
    float v4;
    float v5;
};

/* What is read once for several passes. */
struct og_kept {

    OG_FN bool is_aligned(const og_args &a, const og_offsets &at)
    {
        return true;
    }
    OG_FN void load(const og_args &a, const og_offsets &at, bool whole, const og_span &span,
                    og_kept &x)
    {
    }
};

struct og_loads0 {
    og_pack<float> x0;

    OG_FN bool is_aligned(const og_args &a, const og_offsets &at)
    {
        return true && og_is_aligned(a.p0 + at.o0);
    }
    OG_FN void load(const og_args &a, const og_offsets &at, bool whole, const og_span &span,
                    og_loads0 &x)
    {
        const float *p0 = a.p0 + at.o0;
        if (whole) {
            x.x0 = og_load_pack(p0);
        } else {
            x.x0 = og_gather(p0, 1, span);
        }
    }
};

struct og_pass0 {
    typedef og_loads0 loads;
    struct values {
        float v0;
    };
    OG_FN void compute(const og_args &a, const og_row &row, const og_kept &kept, const loads &x,
                       int i, values &y)
    {
        const float v0 = x.x0.e[i];
        y.v0 = v0;
    }
    template <int count>
    OG_FN void compute_all(const og_args &a, const og_row *row, int each, const og_kept *kept, int apart,
                           const loads *x, values (*y)[OG_V])
    {
#pragma unroll
        for (int v = 0; v < count; v++)
#pragma unroll
            for (int i = 0; i < OG_V; i++)
                compute(a, row[i * each], kept[v * apart], x[v], i, y[v][i]);
    }
    OG_FN void store(const og_args &a, const og_offsets &at, const og_span &span,
                     const og_row *row, const values *y)
    {
    }
};

struct og_sums0 {
    typedef og_pass0 pass;
    enum { count = 1, stores = 0 };
    typedef og_none peaks;
    struct sums {
        float v1;
    };
    OG_FN sums neutral()
    {
        sums s;
        s.v1 = -OG_INF_F32;
        return s;
    }
    OG_FN void add(sums &s, const og_row &row, const peaks &m, const pass::values &y)
    {
        s.v1 = og_peak_f32(s.v1, y.v0);
    }
    enum { keeps = 0 };
    OG_FN void merge(sums &s, const sums &other)
    {
        s.v1 = og_peak_f32(s.v1, other.v1);
    }
    OG_FN sums down(const sums &s, int delta, int width)
    {
        sums r;
        r.v1 = __shfl_down_sync(0xffffffffu, s.v1, delta, width);
        return r;
    }
    OG_FN sums first(const sums &s, int width)
    {
        sums r;
        r.v1 = __shfl_sync(0xffffffffu, s.v1, 0, width);
        return r;
    }
    OG_FN void finish(const og_args &a, const sums &s, og_row &row)
    {
        row.v1 = a.n ? s.v1 : -OG_INF_F32;
    }
    OG_FN void scale(sums &s, const peaks &m, const peaks &most)
    {
    }
    OG_FN void mend(sums &s, const peaks &m)
    {
    }
};

struct og_terms0 {
    typedef og_pass0 pass;
    enum { count = 1, stores = 0 };
    typedef og_sums0::sums peaks;
    struct sums {
        float v2;
    };
    OG_FN sums neutral()
    {
        sums s;
        s.v2 = -0.0f;
        return s;
    }
    OG_FN void add(sums &s, const og_row &row, const peaks &m, const pass::values &y)
    {
        s.v2 = s.v2 + og_fall_f32(y.v0 - m.v1);
    }
    enum { keeps = 0 };
    OG_FN void merge(sums &s, const sums &other)
    {
        s.v2 = s.v2 + other.v2;
    }
    OG_FN sums down(const sums &s, int delta, int width)
    {
        sums r;
        r.v2 = __shfl_down_sync(0xffffffffu, s.v2, delta, width);
        return r;
    }
    OG_FN sums first(const sums &s, int width)
    {
        sums r;
        r.v2 = __shfl_sync(0xffffffffu, s.v2, 0, width);
        return r;
    }
    OG_FN void finish(const og_args &a, const sums &s, og_row &row)
    {
        row.v2 = a.n ? s.v2 : 0;
    }
    OG_FN void scale(sums &s, const peaks &m, const peaks &most)
    {
        s.v2 = s.v2 * og_exp_f32(m.v1 - og_shift(most.v1));
    }
    OG_FN void mend(sums &s, const peaks &m)
    {
        s.v2 = og_mend(s.v2, m.v1);
    }
};

OG_FN void og_rows0(const og_args &a, const og_offsets &at, int i, bool writes, og_row &row)
{
    row.v3 = row.v1 - row.v1;
    row.v4 = row.v2 + row.v3;
    row.v5 = og_reciprocal_f32(row.v4);
}

struct og_loads1 {
    og_pack<float> x0;

    OG_FN bool is_aligned(const og_args &a, const og_offsets &at)
    {
        return true && og_is_aligned(a.p0 + at.o0);
    }
    OG_FN void load(const og_args &a, const og_offsets &at, bool whole, const og_span &span,
                    og_loads1 &x)
    {
        const float *p0 = a.p0 + at.o0;
        if (whole) {
            x.x0 = og_load_pack(p0);
        } else {
            x.x0 = og_gather(p0, 1, span);
        }
    }
};

struct og_pass1 {
    typedef og_loads1 loads;
    struct values {
        float v9;
    };
    OG_FN void compute(const og_args &a, const og_row &row, const og_kept &kept, const loads &x,
                       int i, values &y)
    {
        const float v6 = x.x0.e[i];
        const float v7 = v6 - row.v1;
        const float v8 = og_fall_f32(v7);
        const float v9 = v8 * row.v5;
        y.v9 = v9;
    }
    template <int count>
    OG_FN void compute_all(const og_args &a, const og_row *row, int each, const og_kept *kept, int apart,
                           const loads *x, values (*y)[OG_V])
    {
#pragma unroll
        for (int v = 0; v < count; v++)
#pragma unroll
            for (int i = 0; i < OG_V; i++)
                compute(a, row[i * each], kept[v * apart], x[v], i, y[v][i]);
    }
    OG_FN void store(const og_args &a, const og_offsets &at, const og_span &span,
                     const og_row *row, const values *y)
    {
        float *p1 = a.p1 + at.o1;
        og_pack<float> x1;
#pragma unroll
        for (int i = 0; i < OG_V; i++)
            x1.e[i] = y[i].v9;
        if (og_is_full(span) && og_is_aligned(p1)) {
            og_store_pack(p1, x1);
        } else {
            og_scatter(p1, 1, span, x1);
        }
    }
};

struct og_sums1 {
    typedef og_pass1 pass;
    enum { count = 0, stores = 1 };
    typedef og_none peaks;
    struct sums {
    };
    OG_FN sums neutral()
    {
        sums s;
        return s;
    }
    OG_FN void add(sums &s, const og_row &row, const peaks &m, const pass::values &y)
    {
    }
    enum { keeps = 0 };
    OG_FN void merge(sums &s, const sums &other)
    {
    }
    OG_FN sums down(const sums &s, int delta, int width)
    {
        sums r;
        return r;
    }
    OG_FN sums first(const sums &s, int width)
    {
        sums r;
        return r;
    }
    OG_FN void finish(const og_args &a, const sums &s, og_row &row)
    {
    }
    OG_FN void scale(sums &s, const peaks &m, const peaks &most)
    {
    }
    OG_FN void mend(sums &s, const peaks &m)
    {
    }
};

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
