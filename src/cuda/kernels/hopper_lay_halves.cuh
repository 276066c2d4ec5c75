/* SPDX-License-Identifier: MIT
 *
 * hopper_lay_halves.cuh - what goes to the scratch before hopper_windows_halves.cuh multiplies: filters
 * in its order of k, and an image whose channels do not lie side by side.
 *
 * PARAMETERS
 *   OG_LINE          channels of a box
 *   OG_FOLDS         1: taps along a line are channels
 *   OG_COPIES_IMAGE  1: the image is copied
 */
#include "cuda/kernels/prologue.cuh"
#include "cuda/kernels/seen.cuh"

template <class F>
OG_FN typename F::element og_find_half(const og_args &a, og_index base, og_index i, og_index k)
{
    return og_find_element<F>(a, base, i, k);
}

/* Where k of a filter, in this kernel's order, is in that of its memory; -1: nowhere, it is 0. */
OG_FN og_index og_find_filter_k(const og_args &a, int k)
{
    const int piece = k / OG_LINE, taps = (int)(a.taps_d * a.taps_h * a.taps_w);
    int tap = piece % taps, channel = piece / taps * OG_LINE + k % OG_LINE;
    bool is_there = piece < a.pieces;
    if (OG_FOLDS) { /* taps along a line are outside the channels */
        const int along = channel / (int)a.channels;
        is_there &= along < a.folded;
        tap = tap * (int)a.folded + along;
        channel -= along * (int)a.channels;
    }
    return is_there && channel < a.channels ? (og_index)channel * a.all_taps + tap : -1;
}

/* Filters go to the scratch, a row of k in this kernel's order each. A thread has 8 of a row, of one
 * tap unless lines are folded. */
OG_KERNEL(og_lay_half_filters, 256)
{
    og_admit_next();
    const int64_t number = ((int64_t)blockIdx.x * 256 + threadIdx.x) * 8;
    if (number >= (int64_t)a.filter_rows * a.k_padded)
        return;
    const og_index row = (og_index)(number / a.k_padded);
    const int k = (int)(number - (int64_t)row * a.k_padded);
    const og_index group = row / a.m, m = row - group * a.m, first = og_find_filter_k(a, k);
    og_some<og_half, 8> eight;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const bool follows = !OG_FOLDS && first >= 0; /* the next channels of the same tap */
        const og_index at = follows ? first + i * a.all_taps : og_find_filter_k(a, k + i);
        const bool is_there = at >= 0 && at < a.channels * a.all_taps;
        eight.e[i] = is_there ? og_find_half<og_left0>(a, group, m, at) : (og_half)0;
    }
    *(og_some<og_half, 8> *)((og_half *)a.filters + number) = eight;
}

#if OG_COPIES_IMAGE
enum {
    OG_LAY_PLACES = 64,
    OG_LAY_CHANNELS = 64,
    OG_LAY_PITCH = OG_LAY_PLACES + 2, /* in different banks */
    OG_LAY_SHARED = 2 * OG_LAY_CHANNELS * OG_LAY_PITCH
};
static_assert(OG_LAY_SHARED_BYTES == OG_LAY_SHARED, "the launch gives it");

/* A channel of the copy: where its line (d, h) of image b is, or NULL; the element that place w sees is
 * start + step * w, if that is one of the line's. */
struct og_laid_line {
    const og_half *line;
    og_index start;
};

OG_FN og_laid_line og_find_laid_line(const og_args &a, int64_t b, int64_t d, int64_t h,
                                     og_index channel)
{
    const og_index group = channel / a.copy_group, inner = channel - group * a.copy_group;
    const og_index tap = OG_FOLDS ? inner / a.channels : 0, c = inner - tap * a.channels;
    og_laid_line to = {0, OG_FOLDS ? a.fold_start + tap * a.fold_reach : 0};
    if (channel < a.copy_pitch && c < a.channels && tap < a.folded)
        to.line = a.image + b * a.image_b + (int64_t)(group * a.channels + c) * a.image_c +
                  d * a.image_d + h * a.image_h;
    return to;
}

OG_FN og_half og_find_laid(const og_args &a, const og_laid_line &of, og_index w)
{
    const og_index at = OG_FOLDS ? of.start + w * a.fold_step : w;
    const bool is_there = of.line && w < a.copy_width && at >= 0 && at < a.image_width;
    return is_there ? of.line[at * (int64_t)a.image_w] : (og_half)0;
}

/* The image goes to the scratch: (batch, depth, height, width, channels of all groups). A block has
 * 64 places of a line and 64 channels, of which a warp reads 8. */
OG_KERNEL(og_lay_half_image, 256)
{
    extern __shared__ __align__(1024) char og_shared[];
    og_half(*part)[OG_LAY_PITCH] = (og_half(*)[OG_LAY_PITCH])og_shared;
    const uint32_t across = (uint32_t)((a.copy_width + OG_LAY_PLACES - 1) / OG_LAY_PLACES);
    const uint32_t deep = (uint32_t)((a.copy_pitch + OG_LAY_CHANNELS - 1) / OG_LAY_CHANNELS);
    const uint32_t line = blockIdx.x / deep / across;
    const og_index first_channel = (og_index)(blockIdx.x % deep) * OG_LAY_CHANNELS;
    const og_index first = (og_index)(blockIdx.x / deep % across) * OG_LAY_PLACES;
    const uint32_t h = line % (uint32_t)a.image_height, rest = line / (uint32_t)a.image_height;
    const uint32_t d = rest % (uint32_t)a.image_depth, b = rest / (uint32_t)a.image_depth;
    const int lane = threadIdx.x % 32, own = threadIdx.x / 32 * 8;
    og_half read[8][2];
    og_admit_next();
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const og_laid_line of = og_find_laid_line(a, b, d, h, first_channel + own + i);
        read[i][0] = og_find_laid(a, of, first + lane);
        read[i][1] = og_find_laid(a, of, first + lane + 32);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        part[own + i][lane] = read[i][0];
        part[own + i][lane + 32] = read[i][1];
    }
    __syncthreads();
#pragma unroll
    for (int i = threadIdx.x; i < OG_LAY_PLACES * OG_LAY_CHANNELS / 8; i += 256) {
        const int w = i / (OG_LAY_CHANNELS / 8), c = i % (OG_LAY_CHANNELS / 8) * 8;
        og_some<og_half, 8> eight;
#pragma unroll
        for (int j = 0; j < 8; j++)
            eight.e[j] = part[c + j][w];
        if (first + w < a.copy_width && first_channel + c < a.copy_pitch)
            *(og_some<og_half, 8> *)((og_half *)a.image_copy +
                                     ((int64_t)line * a.copy_width + first + w) * a.copy_pitch +
                                     first_channel + c) = eight;
    }
}
#endif
