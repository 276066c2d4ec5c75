/* SPDX-License-Identifier: MIT
 *
 * pairs_split.cuh - x as pairs of float16, for products on tensor cores: a.split_lanes
 * threads a row.
 *
 * A row is scaled by a power of two that brings its greatest magnitude into [2^14, 2^15);
 * hi = float16(scaled), lo = float16(scaled - hi). What small elements lose by that is the row's
 * weight, and goes with its scale (og_row_scale of pairs.cuh): sums are tested with it. Where too
 * many sums would fail, the row is made wide. A row that is
 * not finite, or whose greatest is below 2^-98, cannot be held like this: its scale is NaN, and
 * redo.cuh computes it.
 *
 * Scratch: a.x_pairs, the rows of hi and of lo, a.k_padded each, with zeros from a.k on.
 *
 * PARAMETERS
 *   OG_SPLIT_KEEPS     threads keep so many fours, their part of a row, in registers: 4 or 16;
 *                      0: they read it twice
 *   OG_SPLIT_PLANES    p > 0: the hi of a product's p a.m rows come before their lo; 0: those of a row
 *   OG_SPLIT_SHUFFLES  1: in each 16 of k, 4t and 4t+1 are at 2t, 4t+2 and 4t+3 at 2t+8: what
 *                      a thread of a tensor-core product holds is then four neighbours of w.
 *                      2: the same, but from k = 8 on these two pairs have changed places
 *   OG_SPLIT_WIDENS    1: a product can take wide rows (pairs.cuh)
 *   OG_SPLIT_PADS      if it is defined, a row that og_x_row() finds is padded, and has a.k_padded
 *                      elements; else a.k
 */
#include "cuda/kernels/pairs.cuh"

enum {
    OG_SPLIT_THREADS = 512, /* at most; a launch may have fewer */
    /* The least weight of a wide row. With a w of normal numbers about one sum in 700
     * should fail at this weight, and to compute these again take a sixth of a product's time (an
     * estimate). A tile with rows of both kinds is multiplied twice, so less would cost more than
     * it saves. */
    OG_WIDE_WEIGHT = 1 << 17
};

/* Or 2^32 - 1, where that is less. */
OG_FN uint32_t og_add_weights(uint32_t a, uint32_t b)
{
    return a + b < a ? ~0u : a + b;
}

/* The sum, or (greatest) the greatest, of the numbers of a row's threads; every thread's. */
OG_FN uint32_t og_meet_row(const og_args &a, uint32_t x, bool greatest)
{
    __shared__ uint32_t met[OG_SPLIT_THREADS / 32];
    const int lanes = (int)a.split_lanes, warps = lanes / 32, warp = threadIdx.x / 32;
    for (int delta = lanes < 32 ? lanes / 2 : 16; delta; delta /= 2) {
        uint32_t other = __shfl_xor_sync(0xffffffffu, x, delta);
        x = !greatest ? og_add_weights(x, other) : x > other ? x : other;
    }
    if (warps <= 1)
        return x;
    if (threadIdx.x % 32 == 0)
        met[warp] = x;
    __syncthreads();
    x = 0;
    for (int w = warp / warps * warps; w < (warp / warps + 1) * warps; w++)
        x = !greatest ? og_add_weights(x, met[w]) : x > met[w] ? x : met[w];
    __syncthreads(); /* before the next one writes */
    return x;
}

/* The bits of the greatest magnitude: NaN is above infinity. */
OG_FN uint32_t og_find_most(uint32_t most, const og_four &v)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t bits = og_bits_f32(v.e[i]) & 0x7fffffffu;
        most = bits > most ? bits : most;
    }
    return most;
}

/* How a row is scaled, where it goes, and what has been found in it. */
struct og_splitting {
    float scale;
    uint32_t *hi, *lo;
    uint32_t weight;
};

/* The weight of an element x, y when it is scaled, and one half of these pairs: what the pair has lost
 * of it, exactly, rounded up. Of x: y may be 0. */
OG_FN uint32_t og_weigh_element(float x, float y, uint32_t hi, uint32_t lo, int half)
{
    const bool is_small = (fabsf(y) < 0x1p-4f) & (x != 0.0f);
    const float held = og_f32_from_f16((uint16_t)(hi >> 16 * half));
    const float rest = y - held - og_f32_from_f16((uint16_t)(lo >> 16 * half));
    const float lost = is_small ? fabsf(rest) : 0.0f;
    return (uint32_t)(lost * 0x1p34f) + (lost != 0.0f) + (is_small & (fabsf(y) < 0x1p-14f));
}

/* Where the two pairs of elements k .. k + 3 go. */
struct og_pair_places {
    og_index first, second;
};

OG_FN og_pair_places og_find_pairs(og_index k)
{
    const og_index at = OG_SPLIT_SHUFFLES ? k / 16 * 8 + k % 16 / 4 : k / 2;
    const og_index next = at + (OG_SPLIT_SHUFFLES ? 4 : 1);
    if (OG_SPLIT_SHUFFLES == 2 && k % 16 >= 8)
        return {next, at};
    return {at, next};
}

/* Splits elements k .. k + 3 of a row. */
OG_FN void og_split_four(og_splitting &s, og_index k, const og_four &v, bool writes)
{
    const og_pair_places at = og_find_pairs(k);
    uint32_t hi[2], lo[2];
    og_split_scaled(v.e[0], v.e[1], s.scale, hi[0], lo[0]);
    og_split_scaled(v.e[2], v.e[3], s.scale, hi[1], lo[1]);
#pragma unroll
    for (int i = 0; i < 4; i++)
        s.weight += og_weigh_element(v.e[i], v.e[i] * s.scale, hi[i / 2], lo[i / 2], i % 2);
    if (!writes)
        return;
    s.hi[at.first] = hi[0];
    s.lo[at.first] = lo[0];
    s.hi[at.second] = hi[1];
    s.lo[at.second] = lo[1];
}

/* The lo of a wide row, for an element y, scaled; weight grows by its own. Of x: y may be 0. */
OG_FN uint32_t og_widen_element(float x, float y, uint32_t &weight)
{
    const float rest = y - og_f32_from_f16(og_f16_from_f32(y));
    const uint16_t lo = og_f16_from_f32(rest * 0x1p11f);
    const bool is_small = (fabsf(y) < 0x1p-14f) & (x != 0.0f);
    const float lost = is_small ? fabsf(rest - og_f32_from_f16(lo) * 0x1p-11f) : 0.0f;
    weight += (uint32_t)(lost * 0x1p34f) + (lost != 0.0f) + is_small;
    return lo;
}

/* The same elements of a row that turns out to be wide: lo is written again. */
OG_FN void og_widen_four(og_splitting &s, og_index k, const og_four &v, bool writes)
{
    const og_pair_places at = og_find_pairs(k);
    uint32_t lo[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        lo[i] = og_widen_element(v.e[i], v.e[i] * s.scale, s.weight);
    if (!writes)
        return;
    s.lo[at.first] = lo[1] << 16 | lo[0];
    s.lo[at.second] = lo[3] << 16 | lo[2];
}

OG_FN og_splitting og_start_splitting(const og_args &a, og_index row, uint32_t most, bool holds)
{
    uint32_t exponent = most & 0x7f800000u;
    og_splitting s;
    s.scale = holds && most ? og_float_bits(0x86000000u - exponent) : 1.0f;
    s.weight = 0;
    const og_index rows = OG_SPLIT_PLANES ? OG_SPLIT_PLANES * a.m : 1;
    s.hi = (uint32_t *)a.x_pairs + ((int64_t)row + row / rows * rows) * (a.k_padded / 2);
    s.lo = s.hi + rows * (int64_t)(a.k_padded / 2);
    return s;
}

OG_KERNEL(og_split, OG_SPLIT_THREADS)
{
    const int lanes = (int)a.split_lanes, lane = threadIdx.x % lanes;
    const og_index number = (og_index)blockIdx.x * (blockDim.x / lanes) + threadIdx.x / lanes;
    const bool there = number < a.split_rows;
    const og_index row = there ? number : a.split_rows - 1;
    const og_element *x = og_x_row(a, row);
#ifdef OG_SPLIT_PADS
    const og_index terms = a.k_padded;
#else
    const og_index terms = a.k;
#endif
    const bool aligned = og_is_by_fours(x, a.x_k);
    uint32_t most = 0;
    og_admit_next();
    if (number == 0 && lane == 0)
        *(uint32_t *)a.any_redo = 0;
#if OG_SPLIT_KEEPS
    og_four kept[OG_SPLIT_KEEPS];
#pragma unroll
    for (int i = 0; i < OG_SPLIT_KEEPS; i++) {
        kept[i] = og_load_four(x, a.x_k, aligned, 4 * (lane + i * lanes), terms, 0.0f);
        most = og_find_most(most, kept[i]);
    }
#else
    for (og_index k = 4 * lane; k < terms; k += 4 * lanes)
        most = og_find_most(most, og_load_four(x, a.x_k, aligned, k, terms, 0.0f));
#endif
    most = og_meet_row(a, most, true);
    uint32_t exponent = most & 0x7f800000u;
    const bool holds = most == 0 || (exponent >= 0x0e800000u && exponent < 0x7f800000u);
    og_splitting s = og_start_splitting(a, row, most, holds);
#if OG_SPLIT_KEEPS
#pragma unroll
    for (int i = 0; i < OG_SPLIT_KEEPS; i++)
        if (4 * (lane + i * lanes) < a.k_padded)
            og_split_four(s, 4 * (lane + i * lanes), kept[i], there);
#else
    for (og_index k = 4 * lane; k < a.k_padded; k += 4 * lanes)
        og_split_four(s, k, og_load_four(x, a.x_k, aligned, k, terms, 0.0f), there);
#endif
    uint32_t lost = og_meet_row(a, s.weight, false);
    float undo = !holds ? OG_NAN_F32 : most ? og_float_bits(exponent - 0x0e000000u) : 1.0f;
#if OG_SPLIT_WIDENS
    const bool widens = holds && lost >= OG_WIDE_WEIGHT;
    if (__syncthreads_or(widens)) { /* a block may have several rows */
        s.weight = 0;
#if OG_SPLIT_KEEPS == 4 /* of 16 this would be too much code for what is rare */
#pragma unroll
        for (int i = 0; i < OG_SPLIT_KEEPS; i++)
            if (4 * (lane + i * lanes) < a.k_padded)
                og_widen_four(s, 4 * (lane + i * lanes), kept[i], there && widens);
#else
        for (og_index k = 4 * lane; k < a.k_padded; k += 4 * lanes)
            og_widen_four(s, k, og_load_four(x, a.x_k, aligned, k, terms, 0.0f), there && widens);
#endif
        const uint32_t less = og_meet_row(a, s.weight, false);
        lost = widens ? less : lost;
        undo = widens ? -undo : undo;
    }
#endif
    /* A row of zeros has lost nothing, whatever w has. */
    const float weight = most ? (float)lost : -0x1p100f;
    if (lane == 0 && there)
        ((og_row_scale *)a.x_scales)[row] = {undo, weight};
}
