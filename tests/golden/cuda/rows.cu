// x - mean(x, 1, true)  [400x5001d]
// rows, a block a row, kept, scratch 0
// og_rows<<<400, 512>>>, 40 bytes of arguments, pointers at 0:0+0 8:1+0
#ifdef __CUDACC_RTC__
#pragma nv_diag_suppress 177 /* a function is not used */
#endif
#include "math/scalar_base.h"
#include "math/half.h"
#include "math/scalar_f32.h"
#include "math/scalar_f64.h"

enum { OG_GROUP = 512, OG_VECTORS = 1, OG_STEPS = 10, OG_FLIGHT = 10, OG_TOGETHER = 1,
       OG_KEEPS = 1, OG_FLAT = 1, OG_WHOLE = 8 };
enum { OG_V = 1, OG_THREADS = 512 };
typedef int32_t og_index;
typedef uint32_t og_unsigned;

#include "cuda/kernels/prologue.cuh"

struct og_args {
    const double *p0;
    double *p1;
    double c0;
    og_index n;
    og_index rows;
    og_index s0_0;
    og_index s1_0;
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

OG_FN void og_seek_rows(const og_args &a, og_index index, og_offsets &at)
{
    at.o0 += index * a.s0_0;
    at.o1 += index * a.s1_0;
}

OG_FN void og_step_row(const og_args &a, og_index index, og_offsets &at)
{
    at.o0 += index;
    at.o1 += index;
}

/* Values of a row. */
struct og_row {
    double v1;
    double v2;
    double v3;
};

/* What is read once for several passes. */
struct og_kept {
    og_pack<double> x0;

    OG_FN bool is_aligned(const og_args &a, const og_offsets &at)
    {
        return true && og_is_aligned(a.p0 + at.o0);
    }
    OG_FN void load(const og_args &a, const og_offsets &at, bool whole, const og_span &span,
                    og_kept &x)
    {
        const double *p0 = a.p0 + at.o0;
        if (whole) {
            x.x0 = og_load_pack(p0);
        } else {
            x.x0 = og_gather(p0, 1, span);
        }
    }
    OG_FN void renew(og_kept &x)
    {
    }
};

struct og_loads0 {

    OG_FN bool is_aligned(const og_args &a, const og_offsets &at)
    {
        return true;
    }
    OG_FN void load(const og_args &a, const og_offsets &at, bool whole, const og_span &span,
                    og_loads0 &x)
    {
    }
};

struct og_pass0 {
    typedef og_loads0 loads;
    struct values {
        double v0;
    };
    OG_FN void compute(const og_args &a, const og_row &row, const og_kept &kept, const loads &x,
                       int i, values &y)
    {
        const double v0 = kept.x0.e[i];
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
    OG_FN bool is_aligned(const og_args &a, const og_offsets &at)
    {
        return true;
    }
    OG_FN void store_whole(const og_args &a, const og_offsets &at, const og_row *row,
                           const values *y)
    {
        const og_span span = {0, OG_V};
    }
};

struct og_sums0 {
    typedef og_pass0 pass;
    enum { count = 1, stores = 0 };
    typedef og_none peaks;
    struct sums {
        double v1;
    };
    OG_FN sums neutral()
    {
        sums s;
        s.v1 = -0.0f;
        return s;
    }
    OG_FN void add(sums &s, const og_row &row, const peaks &m, const pass::values &y)
    {
        s.v1 = s.v1 + y.v0;
    }
    enum { keeps = 0 };
    OG_FN void merge(sums &s, const sums &other)
    {
        s.v1 = s.v1 + other.v1;
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
        row.v1 = a.n ? s.v1 : 0;
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
    row.v2 = a.c0;
    row.v3 = row.v1 / row.v2;
}

struct og_loads1 {

    OG_FN bool is_aligned(const og_args &a, const og_offsets &at)
    {
        return true;
    }
    OG_FN void load(const og_args &a, const og_offsets &at, bool whole, const og_span &span,
                    og_loads1 &x)
    {
    }
};

struct og_pass1 {
    typedef og_loads1 loads;
    struct values {
        double v5;
    };
    OG_FN void compute(const og_args &a, const og_row &row, const og_kept &kept, const loads &x,
                       int i, values &y)
    {
        const double v4 = kept.x0.e[i];
        const double v5 = v4 - row.v3;
        y.v5 = v5;
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
        double *p1 = a.p1 + at.o1;
        og_pack<double> x1;
#pragma unroll
        for (int i = 0; i < OG_V; i++)
            x1.e[i] = y[i].v5;
        if (og_is_full(span) && og_is_aligned(p1)) {
            og_store_pack(p1, x1);
        } else {
            og_scatter(p1, 1, span, x1);
        }
    }
    OG_FN bool is_aligned(const og_args &a, const og_offsets &at)
    {
        return true && og_is_aligned(a.p1 + at.o1);
    }
    OG_FN void store_whole(const og_args &a, const og_offsets &at, const og_row *row,
                           const values *y)
    {
        const og_span span = {0, OG_V};
        double *p1 = a.p1 + at.o1;
        og_pack<double> x1;
#pragma unroll
        for (int i = 0; i < OG_V; i++)
            x1.e[i] = y[i].v5;
        og_store_pack(p1, x1);
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
