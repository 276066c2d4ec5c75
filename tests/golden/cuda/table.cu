// gelu(x) * y  [30000000b -]
// contiguous, by table, scratch 131136
// og_fill_table<<<64, 128>>>, 72 bytes of arguments, pointers at 0:0+0 8:1+0 16:2+0 48:-1+0 56:-1+131072
// og_table<<<132, 1024>>>, 72 bytes of arguments, pointers at 0:0+0 8:1+0 16:2+0 48:-1+0 56:-1+131072
#ifdef __CUDACC_RTC__
#pragma nv_diag_suppress 177 /* a function is not used */
#endif
#include "math/scalar_base.h"
#include "math/half.h"
#include "math/scalar_f32.h"

enum { OG_FLIGHT = 4 };
enum { OG_V = 8, OG_THREADS = 1024 };
typedef int32_t og_index;
typedef uint32_t og_unsigned;

#include "cuda/kernels/prologue.cuh"

struct og_args {
    const og_half *p0;
    const float *p1;
    og_half *p2;
    og_index n;
    og_index vectors;
    og_divisor per_row;
    og_half *table;
    uint32_t *next;
    og_index whole;
};

/* Where each access is, in elements from its pointer. */
struct og_offsets {
    og_index o0;
    og_index o2;
};

OG_FN og_offsets og_start()
{
    og_offsets at;
    at.o0 = 0;
    at.o2 = 0;
    return at;
}

OG_FN void og_seek_outer(const og_args &a, og_index index, og_offsets &at)
{
}

OG_FN void og_step_inner(const og_args &a, og_index index, og_offsets &at)
{
    at.o0 += index;
    at.o2 += index;
}

OG_FN int og_lead(const og_args &a, const og_offsets &at)
{
    return og_elements_past(a.p2 + at.o2);
}

OG_FN bool og_lead_is_aligned(const og_args &a, const og_offsets &at)
{
    return og_is_aligned(a.p2 + at.o2);
}

/* Values of a row. */
struct og_row {
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
    og_pack<og_half> x0;
    float x1;

    OG_FN bool is_aligned(const og_args &a, const og_offsets &at)
    {
        return true && og_is_aligned(a.p0 + at.o0);
    }
    OG_FN void load(const og_args &a, const og_offsets &at, bool whole, const og_span &span,
                    og_loads0 &x)
    {
        const og_half *p0 = a.p0 + at.o0;
        const float *p1 = a.p1;
        if (whole) {
            x.x0 = og_load_pack(p0);
        } else {
            x.x0 = og_gather(p0, 1, span);
        }
        x.x1 = *p1;
    }
};

struct og_pass0 {
    typedef og_loads0 loads;
    struct values {
        float v3;
    };
    OG_FN void compute(const og_args &a, const og_row &row, const og_kept &kept, const loads &x,
                       int i, values &y)
    {
        const float v0 = og_f32_from_bf16(x.x0.e[i]);
        const float v1 = og_gelu_f32(v0);
        const float v2 = x.x1;
        const float v3 = v1 * v2;
        y.v3 = v3;
    }
    OG_FN void store(const og_args &a, const og_offsets &at, const og_span &span,
                     const og_row *row, const values *y)
    {
        og_half *p2 = a.p2 + at.o2;
        og_pack<og_half> x2;
#pragma unroll
        for (int i = 0; i < OG_V; i++)
            x2.e[i] = og_bf16_from_f32(y[i].v3);
        if (og_is_full(span) && og_is_aligned(p2)) {
            og_store_pack(p2, x2);
        } else {
            og_scatter(p2, 1, span, x2);
        }
    }
};


OG_FN og_pack<og_half> &og_table_codes(og_loads0 &x)
{
    return x.x0;
}

OG_FN const og_half *og_table_from(const og_args &a)
{
    return a.p0;
}

OG_FN og_half *&og_table_to(og_args &a)
{
    return a.p2;
}

#include "cuda/kernels/pointwise_table.cuh"
