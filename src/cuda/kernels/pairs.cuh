/* SPDX-License-Identifier: MIT
 *
 * pairs.cuh - what products on tensor cores share, whichever instructions they use: rows
 * read by fours, float32 numbers as scaled pairs of float16, and which sums to doubt.
 *
 * PARAMETERS
 *   og_element  of x and w: float, or og_half; og_widen() makes a float of it
 */
#include "cuda/kernels/prologue.cuh"

struct alignas(16) og_four {
    float e[4];
};

struct alignas(4 * sizeof(og_element)) og_raw_four {
    og_element e[4];
};

/* Elements k .. k + 3 of a row of `limit`; those beyond are `missing`. */
OG_FN og_four og_load_four(const og_element *row, int64_t stride, bool aligned, og_index k,
                           og_index limit, float missing)
{
    og_four x;
    if (aligned && k + 4 <= limit) {
        og_raw_four raw = *(const og_raw_four *)(row + k);
#pragma unroll
        for (int i = 0; i < 4; i++)
            x.e[i] = og_widen(raw.e[i]);
        return x;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        x.e[i] = k + i < limit ? og_widen(row[(k + i) * stride]) : missing;
    return x;
}

OG_FN bool og_is_by_fours(const og_element *row, int64_t stride)
{
    return stride == 1 && (uint64_t)row % sizeof(og_raw_four) == 0;
}

/* ---- pairs of float16 ------------------------------------------------------------------------ */

/* The greater of two, by PTX's max: a NaN loses against a number. */
OG_FN float og_greater(float a, float b)
{
#if defined(__CUDA_ARCH__)
    asm("max.f32 %0, %1, %2;" : "=f"(a) : "f"(a), "f"(b));
    return a;
#else
    return b > a || a != a ? b : a;
#endif
}

/* greatest * scale is in [2^14, 2^15), by its exponent; undo is 2^14 / scale, so that sums stay
 * above what is flushed to 0 where they are added up: x, scaled like this, times 2^14 * 2^-149 is
 * 2^-121. Of 0 and of what is below 2^-112 the scale is 2^126; og_is_doubtful() finds what that
 * may lose. */
OG_FN void og_find_scale(float greatest, float &scale, float &undo)
{
    uint32_t exponent = og_bits_f32(greatest) & 0x7f800000u;
    exponent = exponent < 0x07800000u ? 0x07800000u : exponent;
    scale = og_float_bits(0x86000000u - exponent);
    undo = og_float_bits(exponent);
}

OG_FN float og_greatest(float m, const og_four &v)
{
    return og_greater(og_greater(og_greater(m, fabsf(v.e[0])),
                                 og_greater(fabsf(v.e[1]), fabsf(v.e[2]))),
                      fabsf(v.e[3]));
}

/* Splits two neighbours; x0 is the lower half. */
OG_FN void og_split_pair(float x0, float x1, uint32_t &hi, uint32_t &lo)
{
    uint16_t h0 = og_f16_from_f32(x0), h1 = og_f16_from_f32(x1);
    uint16_t l0 = og_f16_from_f32(x0 - og_f32_from_f16(h0));
    uint16_t l1 = og_f16_from_f32(x1 - og_f32_from_f16(h1));
    hi = (uint32_t)h1 << 16 | h0;
    lo = (uint32_t)l1 << 16 | l0;
}

/* Splits x0 and x1 times scale; x0 is the lower half. */
OG_FN void og_split_scaled(float x0, float x1, float scale, uint32_t &hi, uint32_t &lo)
{
#if defined(__CUDA_ARCH__)
    float y0 = x0 * scale, y1 = x1 * scale, h0, h1;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(hi) : "f"(y1), "f"(y0));
    asm("{\n .reg .b16 a, b;\n mov.b32 {a, b}, %2;\n cvt.f32.f16 %0, a;\n cvt.f32.f16 %1, b;\n}"
        : "=f"(h0), "=f"(h1)
        : "r"(hi));
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(lo) : "f"(y1 - h1), "f"(y0 - h0));
#else
    og_split_pair(x0 * scale, x1 * scale, hi, lo);
#endif
}

/* Is a sum not finite, or so small that elements of w below 2^-112 may have lost bits that count?
 * 2^-85 is 2^22 times their greatest error over all k, times 2^14. */
OG_FN bool og_is_doubtful(float sum)
{
    uint32_t bits = og_bits_f32(sum) & 0x7fffffffu;
    return bits >= 0x7f800000u || bits - 1u < 0x15000000u - 1u;
}
