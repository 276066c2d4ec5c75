// sum(sigmoid(x), 1)  [30x40x50]
// columns, scratch 0
// og_columns<<<6, 128>>>, 56 bytes of arguments, pointers at 0:0+0 8:1+0
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
    const float *p0;
    float *p1;
    og_index n;
    og_index columns;
    og_index vectors;
    og_index tiles;
    og_divisor per_row;
    og_index s0_0;
    og_index s1_0;
    og_index s0_2;
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
    at.o0 += index * a.s0_0;
    at.o1 += index * a.s1_0;
}

OG_FN void og_step_column(const og_args &a, og_index index, og_offsets &at)
{
    at.o0 += index;
    at.o1 += index;
}

OG_FN void og_step_row(const og_args &a, og_index index, og_offsets &at)
{
    at.o0 += index * a.s0_2;
}

/* Values of a row. */
struct og_row {
    float v2;
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
        float v1;
    };
    OG_FN void compute(const og_args &a, const og_row &row, const og_kept &kept, const loads &x,
                       int i, values &y)
    {
        const float v0 = x.x0.e[i];
        const float v1 = og_sigmoid_f32(v0);
        y.v1 = v1;
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
        s.v2 = s.v2 + y.v1;
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
    }
    OG_FN void mend(sums &s, const peaks &m)
    {
    }
};

OG_FN void og_rows0(const og_args &a, const og_offsets &at, int i, bool writes, og_row &row)
{
    if (writes)
        (a.p1 + at.o1)[i] = row.v2;
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
