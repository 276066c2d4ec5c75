// sigmoid(x)  [4096x1000]
// contiguous, scratch 0
// og_pointwise<<<8001, 128>>>, 40 bytes of arguments, pointers at 0:0+0 8:1+0
#ifdef __CUDACC_RTC__
#pragma nv_diag_suppress 177 /* a function is not used */
#endif
#include "math/scalar_base.h"
#include "math/half.h"
#include "math/scalar_f32.h"

enum { OG_OUTER = 0, OG_BATCH = 1 };
enum { OG_V = 4, OG_THREADS = 128 };
typedef int32_t og_index;
typedef uint32_t og_unsigned;

#include "cuda/kernels/prologue.cuh"

struct og_args {
    const float *p0;
    float *p1;
    og_index n;
    og_index vectors;
    og_divisor per_row;
    og_index full;
};

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

OG_FN void og_step_inner(const og_args &a, og_index index, og_offsets &at)
{
    at.o0 += index;
    at.o1 += index;
}

OG_FN int og_lead(const og_args &a, const og_offsets &at)
{
    return og_elements_past(a.p1 + at.o1);
}

OG_FN bool og_lead_is_aligned(const og_args &a, const og_offsets &at)
{
    return og_is_aligned(a.p1 + at.o1);
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
    OG_FN void store(const og_args &a, const og_offsets &at, const og_span &span,
                     const og_row *row, const values *y)
    {
        float *p1 = a.p1 + at.o1;
        og_pack<float> x1;
#pragma unroll
        for (int i = 0; i < OG_V; i++)
            x1.e[i] = y[i].v1;
        if (og_is_full(span) && og_is_aligned(p1)) {
            og_store_pack(p1, x1);
        } else {
            og_scatter(p1, 1, span, x1);
        }
    }
};

#include "cuda/kernels/pointwise.cuh"
