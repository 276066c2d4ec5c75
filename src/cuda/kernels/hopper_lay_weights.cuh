/* SPDX-License-Identifier: MIT
 *
 * hopper_lay_weights.cuh - what goes to the scratch before hopper_weights.cuh multiplies: a factor
 * whose filters or channels do not lie side by side, or that is of float32: then each number becomes
 * three of bfloat16 whose sum it is, and the copy has the first of all channels, then the second ones,
 * then the third.
 *
 * PARAMETERS
 *   og_element, OG_PLANES        what is copied, and how many halves of it there are
 *   OG_LAYS_LEFT, OG_LAYS_IMAGE  1: that factor is copied
 *   OG_FOLDS                     1: taps along the last dim of the image are channels
 */
#include "cuda/kernels/prologue.cuh"

enum {
    OG_LAID_PLACES = 64,
    OG_LAID_CHANNELS = 64,
    OG_LAID_PITCH = OG_LAID_PLACES + (OG_PLANES > 1 ? 1 : 2), /* in different banks */
    OG_LAID_SHARED = (int)sizeof(og_element) * OG_LAID_CHANNELS * OG_LAID_PITCH
};
static_assert(OG_LAY_BYTES == OG_LAID_SHARED, "the launch gives it");

/* A factor's elements as they lie: dims of places outermost first, channels of groups. In this order
 * they are a.left_laid and a.image_laid. */
struct og_laid {
    og_index extent[4], stride[4], channel, group; /* strides in elements */
    og_index channels, copy_group, pitch; /* of a group, there and in the copy; of a plane there */
    og_index folded, start, step, reach, line; /* where taps are channels: as a window's */
};

OG_FN og_laid og_read_laid(const og_index (&v)[18])
{
    return {{v[0], v[1], v[2], v[3]},
            {v[4], v[5], v[6], v[7]},
            v[8],
            v[9],
            v[10],
            v[11],
            v[12],
            v[13],
            v[14],
            v[15],
            v[16],
            v[17]};
}

/* The bfloat16 next to x; of numbers beyond the greatest one that. What is not finite is all in the
 * first of three: sums with it are computed again. */
OG_FN og_half og_near_bf16(float x)
{
    const uint32_t bits = og_bits_f32(x), near = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (og_half)((near & 0x7f80) == 0x7f80 ? bits >> 16 : near);
}

OG_FN void og_part_number(float x, og_half (&to)[3])
{
    const bool is_finite = (og_bits_f32(x) & 0x7f800000u) != 0x7f800000u;
    to[0] = og_near_bf16(x);
    const float rest = is_finite ? x - og_f32_from_bf16(to[0]) : 0.0f;
    to[1] = og_near_bf16(rest);
    to[2] = og_near_bf16(rest - og_f32_from_bf16(to[1]));
}

OG_FN void og_part_number(og_half x, og_half (&to)[1])
{
    to[0] = x;
}

/* A channel of the copy: where its line is, or NULL; the element that place w sees is start + step * w,
 * if that is one of the line's. */
struct og_copied_line {
    const og_element *line;
    int64_t start;
};

template <bool folds>
OG_FN og_copied_line og_find_copied_line(const og_laid &of, const og_element *from,
                                         uint32_t channel)
{
    const uint32_t group = channel / (uint32_t)of.copy_group;
    const uint32_t inner = channel - group * (uint32_t)of.copy_group;
    const uint32_t tap = folds ? inner / (uint32_t)of.channels : 0;
    const uint32_t c = inner - tap * (uint32_t)of.channels;
    og_copied_line to = {0, folds ? of.start + (int64_t)tap * of.reach : 0};
    if (channel < of.pitch && c < of.channels && tap < of.folded)
        to.line = from + (int64_t)group * of.group + (int64_t)c * of.channel;
    return to;
}

template <bool folds>
OG_FN og_element og_find_copied(const og_laid &of, const og_copied_line &at, int64_t w)
{
    const int64_t element = folds ? at.start + w * of.step : w;
    const bool is_there =
        at.line && w < of.extent[3] && (!folds || (element >= 0 && element < of.line));
    return is_there ? at.line[element * of.stride[3]] : (og_element)0;
}

/* A factor goes to the scratch, its channels side by side. Block `number` has 64 places of a line and 64
 * channels, of which a warp reads 8. */
template <bool folds>
OG_FN void og_lay(const og_laid &of, uint32_t number, const og_element *from, og_half *to,
                  char *shared)
{
    og_element(*part)[OG_LAID_PITCH] = (og_element(*)[OG_LAID_PITCH])shared;
    const uint32_t across = (uint32_t)((of.extent[3] + OG_LAID_PLACES - 1) / OG_LAID_PLACES);
    const uint32_t deep = (uint32_t)((of.pitch + OG_LAID_CHANNELS - 1) / OG_LAID_CHANNELS);
    const uint32_t line = number / deep / across;
    const uint32_t first_channel = number % deep * OG_LAID_CHANNELS;
    const int64_t first = (int64_t)(number / deep % across) * OG_LAID_PLACES;
    const uint32_t height = (uint32_t)of.extent[2], depth = (uint32_t)of.extent[1];
    const uint32_t h = line % height, d = line / height % depth, b = line / height / depth;
    const int lane = threadIdx.x % 32, own = threadIdx.x / 32 * 8;
    og_element read[8][2];
    from += (int64_t)b * of.stride[0] + (int64_t)d * of.stride[1] + (int64_t)h * of.stride[2];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const og_copied_line at = og_find_copied_line<folds>(of, from, first_channel + own + i);
        read[i][0] = og_find_copied<folds>(of, at, first + lane);
        read[i][1] = og_find_copied<folds>(of, at, first + lane + 32);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        part[own + i][lane] = read[i][0];
        part[own + i][lane + 32] = read[i][1];
    }
    __syncthreads();
#pragma unroll
    for (int i = threadIdx.x; i < OG_LAID_PLACES * OG_LAID_CHANNELS / 8; i += 256) {
        const int w = i / (OG_LAID_CHANNELS / 8), c = i % (OG_LAID_CHANNELS / 8) * 8;
        og_some<og_half, 8> planes[OG_PLANES];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            og_half parts[OG_PLANES];
            og_part_number(part[c + j][w], parts);
#pragma unroll
            for (int p = 0; p < OG_PLANES; p++)
                planes[p].e[j] = parts[p];
        }
        if (first + w >= of.extent[3] || first_channel + c >= of.pitch)
            continue;
        og_half *at = to + ((int64_t)line * of.extent[3] + first + w) * of.pitch * OG_PLANES +
                      first_channel + c;
#pragma unroll
        for (int p = 0; p < OG_PLANES; p++)
            *(og_some<og_half, 8> *)(at + (int64_t)p * of.pitch) = planes[p];
    }
}

#if OG_LAYS_LEFT || OG_LAYS_IMAGE
/* The left factor's blocks come first. */
OG_KERNEL(og_lay_weights, 256)
{
    extern __shared__ __align__(1024) char og_shared[];
    og_admit_next();
#if OG_LAYS_LEFT
    if (blockIdx.x < (uint32_t)a.left_blocks) {
        og_lay<false>(og_read_laid(a.left_laid), blockIdx.x, a.left_from, (og_half *)a.left_copy,
                      og_shared);
        return;
    }
#endif
#if OG_LAYS_IMAGE
    og_lay<OG_FOLDS>(og_read_laid(a.image_laid), blockIdx.x - (uint32_t)a.left_blocks, a.image_from,
                     (og_half *)a.image_copy, og_shared);
#endif
}
#endif
