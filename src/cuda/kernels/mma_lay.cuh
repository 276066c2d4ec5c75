/* SPDX-License-Identifier: MIT
 *
 * mma_lay.cuh - what goes to the scratch before mma_windows.cuh multiplies: the image, channels side
 * by side and zeros around it; filters, in the same order; the table of distances.
 *
 * Of float32 whose channels are about a multiple of 64 or 32 (OG_SCALE_K) the k that share a scale are
 * channels of one element, whichever tap sees it: then the copy has them as pairs of float16 already,
 * scaled, of each OG_SCALE_K channels the hi and then the lo, in the place of as many float32; and
 * a.image_scales of each a word: the upper half of the greatest magnitude's bits, and in how many
 * quarters (pairs.cuh) there is a small element.
 *
 * PARAMETERS
 *   OG_GRAIN          channels that are copied at once: 16 bytes of them, or 4 halves, if that is all
 *   OG_LAID_CHANNELS  of a block of og_lay_seen_image: a power of two, from a grain up to 64
 *   OG_LAID_LAST      1: they are neighbours in memory
 *   OG_TABLE_K        k that the table has an entry for: those of 16 bytes, or OG_GRAIN
 *   OG_SCALE_K        if it is defined: see above; OG_PAIRS is 1
 */
#include "cuda/kernels/pairs.cuh"
#include "cuda/kernels/seen.cuh"
#include "cuda/kernels/tf32.cuh"

/* ---- the image ------------------------------------------------------------------------------- */

enum {
    OG_LAID = 4096, /* elements that a block turns */
    OG_LAY_THREADS = 256,
    OG_BLOCK_PLACES = OG_LAID / OG_LAID_CHANNELS,
    OG_LAID_EACH = OG_LAID / OG_LAY_THREADS,
    /* Of places that are read side by side: those of a thread, and channels to its next of one. */
    OG_OWN_PLACES = OG_BLOCK_PLACES > OG_LAY_THREADS ? OG_BLOCK_PLACES / OG_LAY_THREADS : 1,
    OG_LAID_STEP = OG_BLOCK_PLACES > OG_LAY_THREADS ? 1 : OG_LAY_THREADS / OG_BLOCK_PLACES
};

/* Where element `at` of a channel's copy is, from the channel's first; false: nowhere, it is 0. */
OG_FN bool og_find_laid_place(const og_args &a, og_index at, int64_t &offset)
{
    const og_index line = og_divide(at, a.laid_w), plane = og_divide(line, a.laid_h);
    const og_index w = (at - line * a.laid_w.extent) * a.apart_w + a.from_w;
    const og_index h = (line - plane * a.laid_h.extent) * a.apart_h + a.from_h;
    const og_index d = plane * a.apart_d + a.from_d;
    offset = d * (int64_t)a.image_d + h * (int64_t)a.image_h + w * (int64_t)a.image_w;
    return at < a.volume && d >= 0 && d < a.image_depth && h >= 0 && h < a.image_height && w >= 0 &&
           w < a.image_width;
}

/* A block's part: OG_BLOCK_PLACES elements, from `first` on, of OG_LAID_CHANNELS channels of a group
 * of an image. */
struct og_laid_part {
    og_index first, channel;
    const og_element *from; /* the first channel's; */
    og_element *to;         /* of the first element */
};

OG_FN og_laid_part og_find_laid_part(const og_args &a)
{
    const og_index deep = (a.pitch + OG_LAID_CHANNELS - 1) / OG_LAID_CHANNELS;
    const og_index across = (a.volume + OG_BLOCK_PLACES - 1) / OG_BLOCK_PLACES;
    const og_index block = (og_index)blockIdx.x, rest = block / deep, number = rest / across;
    const og_index b = number / a.groups, group = number - b * a.groups;
    og_laid_part of;
    of.channel = (block - rest * deep) * OG_LAID_CHANNELS;
    of.first = (rest - number * across) * OG_BLOCK_PLACES;
    of.from = a.image + b * (int64_t)a.image_b +
              (group * a.channels + of.channel) * (int64_t)a.image_c;
    of.to = (og_element *)a.image_copy +
            ((int64_t)number * a.volume + of.first) * (int64_t)a.pitch + of.channel;
    return of;
}

typedef og_some<og_element, OG_GRAIN> og_laid_some; /* neighbouring channels */
typedef og_word<sizeof(og_laid_some)>::type og_laid_word;

/* Number i of a thread's: of which place of the block's, and of which channels. */
struct og_laid_item {
    unsigned place, c;
};

OG_FN og_laid_item og_find_laid_item(unsigned i)
{
    const unsigned item = threadIdx.x + i * OG_LAY_THREADS;
    return {item / (OG_LAID_CHANNELS / OG_GRAIN), item % (OG_LAID_CHANNELS / OG_GRAIN) * OG_GRAIN};
}

#ifdef OG_SCALE_K
/* The same as pairs: threads of OG_SCALE_K channels are neighbours, and share a scale. */
OG_FN void og_leave_laid(const og_args &a, const og_laid_part &of, const og_laid_item &at,
                         const og_laid_some &some)
{
    enum { LANES = OG_SCALE_K / 4 };
    const int lane = threadIdx.x % 32;
    uint32_t most = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const uint32_t bits = og_bits_f32(some.e[j]) & 0x7fffffffu;
        most = bits > most ? bits : most;
    }
#pragma unroll
    for (int delta = LANES / 2; delta; delta /= 2) {
        const uint32_t other = __shfl_xor_sync(0xffffffffu, most, delta);
        most = other > most ? other : most;
    }
    const float undo = og_find_undo(most), scale = og_find_scale(undo);
    bool any = false;
#pragma unroll
    for (int j = 0; j < 4; j++)
        any |= og_is_small(some.e[j], og_bits_f32(undo));
    uint32_t quarters = __ballot_sync(0xffffffffu, any) >> lane / LANES * LANES;
#pragma unroll
    for (int delta = LANES / 2; delta >= 4; delta /= 2)
        quarters |= quarters >> delta;
    uint2 hi, lo;
    og_split_scaled(some.e[0], some.e[1], scale, hi.x, lo.x);
    og_split_scaled(some.e[2], some.e[3], scale, hi.y, lo.y);
    if (of.first + (og_index)at.place >= a.volume || of.channel + (og_index)at.c >= a.pitch)
        return;
    const int c = (int)at.c % OG_SCALE_K;
    char *to = (char *)(of.to + at.place * (int64_t)a.pitch + (int)at.c - c) + 2 * c;
    og_store_word((uint2 *)to, hi);
    og_store_word((uint2 *)(to + 2 * OG_SCALE_K), lo);
    if (c == 0)
        ((uint32_t *)a.image_scales)[(of.to + at.place * (int64_t)a.pitch + at.c -
                                      (og_element *)a.image_copy) /
                                     OG_SCALE_K] =
            (most & 0xffff0000u) | (uint32_t)__popc(quarters & 15);
}
#else
OG_FN void og_leave_laid(const og_args &a, const og_laid_part &of, const og_laid_item &at,
                         const og_laid_some &some)
{
    og_element *to = of.to + at.place * (int64_t)a.pitch + at.c;
    if (of.first + (og_index)at.place >= a.volume || of.channel + (og_index)at.c >= a.pitch)
        return;
    og_store_word((og_laid_word *)to, *(const og_laid_word *)&some);
}
#endif

#if OG_LAID_LAST
/* A thread reads what it writes. */
OG_KERNEL(og_lay_seen_image, OG_LAY_THREADS)
{
    const og_laid_part of = og_find_laid_part(a);
#pragma unroll
    for (unsigned i = 0; i < OG_LAID_EACH / OG_GRAIN; i++) {
        const og_laid_item at = og_find_laid_item(i);
        const og_index left = a.channels - of.channel - (og_index)at.c;
        int64_t offset;
        og_laid_some some = {};
        if (og_find_laid_place(a, of.first + (og_index)at.place, offset)) {
            const og_element *from = of.from + at.c + offset;
            if (left >= OG_GRAIN && (uint64_t)from % sizeof some == 0)
                *(og_laid_word *)&some = __ldg((const og_laid_word *)from);
            else
#pragma unroll
                for (int j = 0; j < OG_GRAIN; j++)
                    some.e[j] = j < left ? from[j] : (og_element)0;
        }
        og_leave_laid(a, of, at, some);
    }
}
#else
/* Neighbouring threads read neighbouring places, and write neighbouring channels. */
OG_KERNEL(og_lay_seen_image, OG_LAY_THREADS)
{
    __shared__ og_element part[OG_LAID_CHANNELS][OG_BLOCK_PLACES + 1]; /* in different banks */
    const og_laid_part of = og_find_laid_part(a);
    og_element read[OG_OWN_PLACES][OG_LAID_EACH / OG_OWN_PLACES];
    const int own = threadIdx.x % OG_BLOCK_PLACES, lowest = threadIdx.x / OG_BLOCK_PLACES;
#pragma unroll
    for (int q = 0; q < OG_OWN_PLACES; q++) {
        int64_t offset;
        const bool is_seen = og_find_laid_place(a, of.first + own + q * OG_LAY_THREADS, offset);
        const og_element *from = of.from + offset + lowest * (int64_t)a.image_c;
        const og_index left = is_seen ? a.channels - of.channel - lowest : 0;
#pragma unroll
        for (int i = 0; i < OG_LAID_EACH / OG_OWN_PLACES; i++) {
            read[q][i] = i * OG_LAID_STEP < left ? *from : (og_element)0;
            from += OG_LAID_STEP * (int64_t)a.image_c;
        }
    }
#pragma unroll
    for (int q = 0; q < OG_OWN_PLACES; q++)
#pragma unroll
        for (int i = 0; i < OG_LAID_EACH / OG_OWN_PLACES; i++)
            part[lowest + i * OG_LAID_STEP][own + q * OG_LAY_THREADS] = read[q][i];
    __syncthreads();
#pragma unroll
    for (unsigned i = 0; i < OG_LAID_EACH / OG_GRAIN; i++) {
        const og_laid_item at = og_find_laid_item(i);
        og_laid_some some;
#pragma unroll
        for (unsigned j = 0; j < OG_GRAIN; j++)
            some.e[j] = part[at.c + j][at.place];
        og_leave_laid(a, of, at, some);
    }
}
#endif

/* ---- filters and the table -------------------------------------------------------------------- */

/* How many elements tap number i is from the first that a place's windows see. */
OG_FN int og_find_distance(const og_args &a, og_index tap)
{
    const og_index line = tap / a.taps_w, w = tap - line * a.taps_w;
    const og_index d = line / a.taps_h, h = line - d * a.taps_h;
    return (int)(((a.back_d + d * a.reach_d) * a.laid_h.extent + a.back_h + h * a.reach_h) *
                     a.laid_w.extent +
                 a.back_w + w * a.reach_w);
}

/* Where channel c of an element is, in units. */
OG_FN int og_find_seen_unit(int c)
{
#ifdef OG_SCALE_K
    return c / OG_SCALE_K * (OG_SCALE_K / 4) + c % OG_SCALE_K / 8;
#else
    return c / OG_GRAIN;
#endif
}

/* Filters go to the scratch in this kernel's order of k, padded with zeros; and the table, up to
 * where nothing is fetched any more: below 0 there is nothing to be seen. */
OG_KERNEL(og_lay_seen_filters, OG_LAY_THREADS)
{
    const int64_t number = (int64_t)blockIdx.x * OG_LAY_THREADS + threadIdx.x;
    if (number < a.table_size) {
        const og_index k = (og_index)number * OG_TABLE_K, tap = k / a.pitch;
        ((int *)a.table)[number] =
            tap < a.taps ? og_find_distance(a, tap) * (int)(a.pitch / OG_GRAIN) +
                               og_find_seen_unit((int)(k % a.pitch))
                         : -1;
    }
    if (number >= (int64_t)a.filter_rows * a.k_padded)
        return;
    const og_index row = (og_index)(number / a.k_padded);
    const og_index k = (og_index)(number - (int64_t)row * a.k_padded);
    const og_index tap = k / a.pitch, channel = k - tap * a.pitch, group = row / a.m;
    og_element x = 0;
    if (tap < a.taps && channel < a.channels)
        x = og_find_element<og_left0>(a, group, row - group * a.m, channel * a.taps + tap);
#if OG_PAIRS
    ((float *)a.x_copy)[number] = x;
#elif defined(OG_TF32)
    ((float *)a.x_pairs)[number] = og_float_bits(og_round_tf32(x));
#else
    ((og_element *)a.x_pairs)[number] = x;
#endif
}
