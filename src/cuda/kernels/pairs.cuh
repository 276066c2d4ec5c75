/* SPDX-License-Identifier: MIT
 *
 * pairs.cuh - what products on tensor cores share, whichever instructions they use: rows
 * read by fours, float32 numbers as scaled pairs of float16, and which sums to doubt.
 *
 * PARAMETERS
 *   og_element  of x and w: float, or og_half; og_widen() makes a float of it
 */
#include "cuda/kernels/prologue.cuh"

/* threadIdx.x, for what the compiler shall find anew in each step: kept in registers, it would make
 * it spill others. */
OG_FN int og_thread()
{
    int thread = threadIdx.x;
#if defined(__CUDA_ARCH__)
    asm volatile("" : "+r"(thread));
#endif
    return thread;
}

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

/* What undoes the scale of 64 k of w whose greatest magnitude has these bits: its exponent, at least
 * 2^-112, as a float. That is 2^14 / og_find_scale(), so that sums stay above what is flushed to 0
 * where they are added up: x, scaled to 2^14, times 2^14 * 2^-149 is 2^-121. */
OG_FN float og_find_undo(uint32_t greatest)
{
    const uint32_t exponent = greatest & 0x7f800000u;
    return og_float_bits(exponent < 0x07800000u ? 0x07800000u : exponent);
}

/* Brings the greatest into [2^14, 2^15). */
OG_FN float og_find_scale(float undo)
{
    return og_float_bits(0x86000000u - og_bits_f32(undo));
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

/* ---- what pairs may have lost ------------------------------------------------------------------ */

/* docs/accuracy.md derives these numbers. Scaled, an element other than 0 that is below 2^-4 is
 * small: the pair may lose 2^-25 of it, and where it is below 2^-14, tensor cores 2^-34 of it as
 * well, which align a subnormal float16 as if it were 2^-14. All others lose a part of themselves
 * that float32 would not miss. So that
 *   a row of x may have lost 2^-34 times its weight: for a small element what its pair has lost
 *   of it, and 1 if it is below 2^-14;
 *   a column of w may have lost 16 * OG_LOST * 2^-34 for each quarter of 64 k (k % 16 / 4 is the
 *   same) in which an element is small.
 * x is below 2^15 when it is scaled, and a sum is of w times 2^14. With W, the greatest element of
 * the column, it has lost at most W 2^-20 (weight + OG_WEIGH quarters), and is good if it is 2^20
 * times that. Neither depends on an order. Elements of w below 2^-133 are not looked at: a sum that
 * these could spoil is below og_least_sum().
 *
 * Of a wide row of x lo is stored times 2^11, and multiplied with hi of w times 2^-11: elements are
 * small below 2^-14 alone, and their pairs lose 2^-36. Small elements of w then lose twice as much:
 * where hi is subnormal after that, it is rounded. */
enum { OG_SMALL = 18, OG_LOST = 514, OG_WEIGH = 2 * 16 * OG_LOST };

/* How a row of x was scaled, undone; its weight. A wide row's undo is below 0. */
struct alignas(8) og_row_scale {
    float undo, weight;
};

/* Of a column of w. */
struct og_column_loss {
    float most;  /* W, or a little more */
    float limit; /* of sums, where the weight of the row of x is 0 */
};

/* With the bits of 2 to the exponent of the greatest of its 64 k: is an element of w small? Upper
 * halves of bits are compared, as in hopper_pairs.cuh. */
OG_FN bool og_is_small(float w, uint32_t exponent)
{
    const uint32_t half = og_bits_f32(w) >> 16 & 0x7fffu;
    return half && half - 1 + ((uint32_t)OG_SMALL << 7) < exponent >> 16;
}

/* most: the upper half of the greatest magnitude's bits. */
OG_FN og_column_loss og_weigh_column(uint32_t most, float quarters)
{
    og_column_loss c;
    c.most = most ? og_float_bits(most << 16 | 0xffffu) : 0.0f;
    c.limit = c.most * ((float)OG_WEIGH * quarters);
    return c;
}

/* 2^20 times what elements of w below 2^-133 can add to a sum: 2^15 * 2^14 * 2^-133 each. */
OG_FN float og_least_sum(og_index k)
{
    return (float)k * 0x1p-84f;
}

/* May a sum have lost too much? z: it, with x's scale undone. What is not finite has, and a 0 only
 * where something was lost. Nothing branches: the row would be read when it is needed, one after the
 * other, which took a tenth of a product's time (H200). */
OG_FN bool og_is_lost(float sum, float z, const og_column_loss &c, const og_row_scale &row,
                      float least)
{
    const uint32_t bits = og_bits_f32(sum) & 0x7fffffffu;
    return !(fabsf(sum) >= fmaf(c.most, row.weight, c.limit)) |
           (bits - 1 < og_bits_f32(least) - 1) | !(fabsf(z) < OG_INF_F32);
}
