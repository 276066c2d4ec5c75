// softmax(x + y, 1)  [400x16384b 400x16384b]
// rows, a block a row, kept in shared memory, scratch 0
// og_rows<<<132, 128>>>, 56 bytes of arguments, pointers at 0:0+0 8:1+0 16:2+0
#ifdef __CUDACC_RTC__
#pragma nv_diag_suppress 177 /* a function is not used */
#endif
#include "math/scalar_base.h"
#include "math/half.h"
#include "math/scalar_f32.h"

enum { OG_GROUP = 128, OG_VECTORS = 1, OG_STEPS = 1, OG_FLIGHT = 2, OG_TOGETHER = 2, OG_KEEPS = 0,
       OG_FLAT = 1, OG_WHOLE = 0, OG_PARTS = 1, OG_JOINED = 1, OG_HELD = 0, OG_BLOCKS = 1 };
enum { OG_V = 4, OG_THREADS = 128 };
typedef int32_t og_index;
typedef uint32_t og_unsigned;

#include "cuda/kernels/prologue.cuh"

struct og_args {
    const og_half *p0;
    const og_half *p1;
    og_half *p2;
    og_index n;
    og_index rows;
    og_index s0_0;
    og_index s1_0;
    og_index s2_0;
    og_index shelved;
    og_index quarter;
};
#include "cuda/kernels/async_copies.cuh"
#include "cuda/kernels/reduce.cuh"

/* Where each access is, in elements from its pointer. */
struct og_offsets {
    og_index o0;
    og_index o1;
    og_index o2;
};

OG_FN og_offsets og_start()
{
    og_offsets at;
    at.o0 = 0;
    at.o1 = 0;
    at.o2 = 0;
    return at;
}

OG_FN void og_seek_rows(const og_args &a, og_index index, og_offsets &at)
{
    at.o0 += index * a.s0_0;
    at.o1 += index * a.s1_0;
    at.o2 += index * a.s2_0;
}

OG_FN void og_step_row(const og_args &a, og_index index, og_offsets &at)
{
    at.o0 += index;
    at.o1 += index;
    at.o2 += index;
}

/* Values of a row. */
struct og_row {
    float v3;
    float v4;
    float v5;
    float v6;
    float v7;
};

/* What is read once for several passes. */
struct og_kept {
    og_pack<float> t0;
    og_pack<og_half> x0;
    og_pack<og_half> x1;

    OG_FN bool is_aligned(const og_args &a, const og_offsets &at)
    {
        return true && og_is_aligned(a.p0 + at.o0) && og_is_aligned(a.p1 + at.o1);
    }
    OG_FN void load(const og_args &a, const og_offsets &at, bool whole, const og_span &span,
                    og_kept &x)
    {
        const og_half *p0 = a.p0 + at.o0;
        const og_half *p1 = a.p1 + at.o1;
        if (whole) {
            x.x0 = og_load_pack(p0);
            x.x1 = og_load_pack(p1);
        } else {
            x.x0 = og_gather(p0, 1, span);
            x.x1 = og_gather(p1, 1, span);
        }
    }
    OG_FN void renew(og_kept &x)
    {
        og_renew(x.x0);
        og_renew(x.x1);
    }
};

struct og_shelf {
    union {
        og_pack<og_half> x;
    } x0[OG_THREADS];
    union {
        og_pack<og_half> x;
        og_pack<float> t;
    } x1[OG_THREADS];

    OG_FN void copy(const og_args &a, const og_offsets &at, bool whole, const og_span &span,
                    og_shelf &shelf)
    {
        const og_half *p0 = a.p0 + at.o0;
        if (whole)
            og_copy_pack(shelf.x0[threadIdx.x].x, p0);
        else
            shelf.x0[threadIdx.x].x = og_gather(p0, 1, span);
        const og_half *p1 = a.p1 + at.o1;
        if (whole)
            og_copy_pack(shelf.x1[threadIdx.x].x, p1);
        else
            shelf.x1[threadIdx.x].x = og_gather(p1, 1, span);
    }
    OG_FN void take(const og_shelf &shelf, og_kept &kept)
    {
        kept.x0 = og_load_pack(shelf.x0[threadIdx.x].x.e);
        kept.x1 = og_load_pack(shelf.x1[threadIdx.x].x.e);
        kept.t0 = og_load_pack(shelf.x1[threadIdx.x].t.e);
    }
    OG_FN void put(const og_kept &kept, og_shelf &shelf)
    {
        shelf.x1[threadIdx.x].t = kept.t0;
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
        float v2;
    };
    OG_FN void compute(const og_args &a, const og_row &row, const og_kept &kept, const loads &x,
                       int i, values &y)
    {
        const float v0 = og_f32_at_bf16(kept.x0, i);
        const float v1 = og_f32_at_bf16(kept.x1, i);
        const float v2 = v0 + v1;
        y.v2 = v2;
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
        float v3;
    };
    OG_FN sums neutral()
    {
        sums s;
        s.v3 = -OG_INF_F32;
        return s;
    }
    OG_FN void add(sums &s, const og_row &row, const peaks &m, const pass::values &y)
    {
        s.v3 = og_peak_f32(s.v3, y.v2);
    }
    enum { keeps = 0 };
    OG_FN void merge(sums &s, const sums &other)
    {
        s.v3 = og_peak_f32(s.v3, other.v3);
    }
    OG_FN sums down(const sums &s, int delta, int width)
    {
        sums r;
        r.v3 = __shfl_down_sync(0xffffffffu, s.v3, delta, width);
        return r;
    }
    OG_FN sums first(const sums &s, int width)
    {
        sums r;
        r.v3 = __shfl_sync(0xffffffffu, s.v3, 0, width);
        return r;
    }
    OG_FN void finish(const og_args &a, const sums &s, og_row &row)
    {
        row.v3 = a.n ? s.v3 : -OG_INF_F32;
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
        float v4;
    };
    OG_FN sums neutral()
    {
        sums s;
        s.v4 = -0.0f;
        return s;
    }
    OG_FN void add(sums &s, const og_row &row, const peaks &m, const pass::values &y)
    {
        s.v4 = s.v4 + og_fall_f32(y.v2 - m.v3);
    }
    enum { keeps = 1 };
    OG_FN void keep(og_kept &kept, int i, const peaks &m, const pass::values &y)
    {
        kept.t0.e[i] = og_fall_f32(y.v2 - m.v3);
    }
    OG_FN void merge(sums &s, const sums &other)
    {
        s.v4 = s.v4 + other.v4;
    }
    OG_FN sums down(const sums &s, int delta, int width)
    {
        sums r;
        r.v4 = __shfl_down_sync(0xffffffffu, s.v4, delta, width);
        return r;
    }
    OG_FN sums first(const sums &s, int width)
    {
        sums r;
        r.v4 = __shfl_sync(0xffffffffu, s.v4, 0, width);
        return r;
    }
    OG_FN void finish(const og_args &a, const sums &s, og_row &row)
    {
        row.v4 = a.n ? s.v4 : 0;
    }
    OG_FN void scale(sums &s, const peaks &m, const peaks &most)
    {
        s.v4 = s.v4 * og_exp_f32(m.v3 - og_shift(most.v3));
    }
    OG_FN void mend(sums &s, const peaks &m)
    {
        s.v4 = og_mend(s.v4, m.v3);
    }
};

OG_FN void og_rows0(const og_args &a, const og_offsets &at, int i, bool writes, og_row &row)
{
    row.v5 = row.v3 - row.v3;
    row.v6 = row.v4 + row.v5;
    row.v7 = og_reciprocal_f32(row.v6);
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
        float v13;
    };
    OG_FN void compute(const og_args &a, const og_row &row, const og_kept &kept, const loads &x,
                       int i, values &y)
    {
        const float v8 = og_f32_at_bf16(kept.x0, i);
        const float v9 = og_f32_at_bf16(kept.x1, i);
        const float v10 = v8 + v9;
        const float v11 = v10 - row.v3;
        const float v12 = kept.t0.e[i];
        const float v13 = v12 * row.v7;
        y.v13 = v13;
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
        og_half *p2 = a.p2 + at.o2;
        og_pack<og_half> x2;
#pragma unroll
        for (int i = 0; i < OG_V; i++)
            x2.e[i] = og_bf16_from_f32(y[i].v13);
        if (og_is_full(span) && og_is_aligned(p2)) {
            og_store_pack(p2, x2);
        } else {
            og_scatter(p2, 1, span, x2);
        }
    }
    OG_FN bool is_aligned(const og_args &a, const og_offsets &at)
    {
        return true && og_is_aligned(a.p2 + at.o2);
    }
    OG_FN void store_whole(const og_args &a, const og_offsets &at, const og_row *row,
                           const values *y)
    {
        const og_span span = {0, OG_V};
        og_half *p2 = a.p2 + at.o2;
        og_pack<og_half> x2;
#pragma unroll
        for (int i = 0; i < OG_V; i++)
            x2.e[i] = og_bf16_from_f32(y[i].v13);
        og_store_pack(p2, x2);
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
#include "cuda/kernels/rows_shared.cuh"

OG_KERNEL(og_rows, OG_THREADS, OG_BLOCKS)
{
    extern __shared__ uint4 og_shared[];
    og_shelf *shelves = (og_shelf *)og_shared;
    og_group g = og_find_part(a, blockIdx.x);
    og_held held;
    og_shelve_row(a, g, held, shelves);
    for (;;) {
        og_row row;
        og_turn next = og_find_turn(a, g.row + (og_index)gridDim.x);
        og_sums0::sums c0 = og_reduce_part<og_sums0, true, false>(a, g, row, og_none(), held, shelves, next);
        og_terms0::sums d0 = og_reduce_part<og_terms0, false, false>(a, g, row, c0, held, shelves, next);
        og_sums0::sums s0 = og_join<og_sums0>(g, c0);
        og_terms0::sums t0 = og_join_terms<og_terms0>(g, d0, c0, s0);
    og_sums0::finish(a, s0, row);
    og_terms0::finish(a, t0, row);
    og_rows0(a, g.at, 0, g.writes, row);
        og_sums1::sums c1 = og_reduce_part<og_sums1, false, true>(a, g, row, og_none(), held, shelves, next);
        og_sums1::sums s1 = og_join<og_sums1>(g, c1);
    og_sums1::finish(a, s1, row);
        if (!next.more)
            break;
        g = next.g;
        __syncthreads(); /* before sums are written again */
    }
}
