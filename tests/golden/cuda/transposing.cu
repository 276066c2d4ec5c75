// t(x) + y  [300x200 200x300]
// transposing, scratch 0
// og_transpose<<<20, 256>>>, 72 bytes of arguments, pointers at 0:0+0 8:1+0 16:2+0
#ifdef __CUDACC_RTC__
#pragma nv_diag_suppress 177 /* a function is not used */
#endif
#include "math/scalar_base.h"
#include "math/half.h"
#include "math/scalar_f32.h"

enum { OG_TILE = 64 };
enum { OG_V = 4, OG_THREADS = 256 };
typedef int32_t og_index;
typedef uint32_t og_unsigned;

#include "cuda/kernels/prologue.cuh"

struct og_args {
    const float *p0;
    const float *p1;
    float *p2;
    og_index inner;
    og_index turned;
    og_divisor inner_tiles;
    og_divisor turned_tiles;
    og_index s0_1;
    og_index s0_0;
    og_index s1_0;
    og_index s2_0;
};

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

OG_FN void og_seek_outer(const og_args &a, og_index index, og_offsets &at)
{
}

OG_FN void og_step_inner(const og_args &a, og_index index, og_offsets &at)
{
    at.o0 += index * a.s0_1;
    at.o1 += index;
    at.o2 += index;
}

OG_FN void og_step_turned(const og_args &a, og_index index, og_offsets &at)
{
    at.o0 += index * a.s0_0;
    at.o1 += index * a.s1_0;
    at.o2 += index * a.s2_0;
}

/* Values of a row. */
struct og_row {
};

/* What is read once for several passes. */
struct og_kept {
    og_pack<float> x0;

    OG_FN bool is_aligned(const og_args &a, const og_offsets &at)
    {
        return true;
    }
    OG_FN void load(const og_args &a, const og_offsets &at, bool whole, const og_span &span,
                    og_kept &x)
    {
        const float *p0 = a.p0 + at.o0;
        x.x0 = og_gather(p0, a.s0_1, span);
    }
};

struct og_turned {
    float x0;

    OG_FN void load(const og_args &a, const og_offsets &at, og_turned &x)
    {
        x.x0 = a.p0[at.o0];
    }
    OG_FN void give(const og_turned &x, og_kept &kept, int i)
    {
        kept.x0.e[i] = x.x0;
    }
};

struct og_loads0 {
    og_pack<float> x1;

    OG_FN bool is_aligned(const og_args &a, const og_offsets &at)
    {
        return true && og_is_aligned(a.p1 + at.o1);
    }
    OG_FN void load(const og_args &a, const og_offsets &at, bool whole, const og_span &span,
                    og_loads0 &x)
    {
        const float *p1 = a.p1 + at.o1;
        if (whole) {
            x.x1 = og_load_pack(p1);
        } else {
            x.x1 = og_gather(p1, 1, span);
        }
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
        const float v0 = kept.x0.e[i];
        const float v1 = x.x1.e[i];
        const float v2 = v0 + v1;
        y.v2 = v2;
    }
    OG_FN void store(const og_args &a, const og_offsets &at, const og_span &span,
                     const og_row *row, const values *y)
    {
        float *p2 = a.p2 + at.o2;
        og_pack<float> x2;
#pragma unroll
        for (int i = 0; i < OG_V; i++)
            x2.e[i] = y[i].v2;
        if (og_is_full(span) && og_is_aligned(p2)) {
            og_store_pack(p2, x2);
        } else {
            og_scatter(p2, 1, span, x2);
        }
    }
};

#include "cuda/kernels/transpose.cuh"
