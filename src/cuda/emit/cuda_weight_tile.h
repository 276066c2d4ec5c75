/* SPDX-License-Identifier: MIT
 *
 * cuda_weight_tile.h - a convolution's gradient by its weight as hopper_weights.cuh sees it: a sum over
 * images and places of a factor that has filters and one, the image, that has channels and is seen
 * through windows; and the tiles that it takes.
 */
#ifndef OG_CUDA_WEIGHT_TILE_H
#define OG_CUDA_WEIGHT_TILE_H

#include "cuda/emit/cuda_emit.h"

enum {
    OG_WEIGHT_DIMS = 4,     /* of places, images among them; those that are not there have one */
    OG_WEIGHT_SLIDES = 2,   /* the dim whose taps may share what is fetched */
    OG_WEIGHT_LONE = 3,     /* the dim of which a box has one place */
    OG_WEIGHT_ADD_LANES = 8 /* threads that share the parts of a sum, where there are many */
};

/* Products of tensor cores for one: of three halves each those that count. */
static inline int32_t og_weight_products(int32_t planes)
{
    return planes == 1 ? 1 : 6;
}

/* A dim that is summed over. Place i and tap j see element start + step * i + reach * j. */
typedef struct {
    int32_t n_dim; /* of the space: its taps; -1: it has one */
    int64_t places, taps;
    int64_t left_stride;    /* from a place to the next, of the factor with filters */
    int64_t extent, stride; /* of the image, in elements; what lies beyond the extent is 0 */
    int64_t start, step, reach;
    int32_t box; /* places of a stage */
    int64_t boxes;
} og_weight_dim;

/* A factor: how its filters or channels lie, and whether it goes to the scratch to have them side by
 * side. Strides are in elements. */
typedef struct {
    int64_t channels; /* of a group */
    int64_t stride, group_stride, offset;
    bool is_laid;
    int64_t map_group, pitch;            /* channels from a group to the next, of all */
    int64_t map_stride[OG_WEIGHT_DIMS];  /* of the dims, as TMA finds it */
    int64_t laid_stride[OG_WEIGHT_DIMS]; /* of what is copied: source strides, outermost first, */
    int64_t laid_extent[OG_WEIGHT_DIMS]; /* dims that are one joined */
} og_weight_factor;

typedef struct {
    int32_t planes; /* halves that a number is the sum of: 1, or 3 bfloat16 of a float32 */
    og_weight_dim dims[OG_WEIGHT_DIMS];
    og_weight_factor left, image;
    int32_t channel_dim, group_dim; /* of the space; -1: there is one */
    int64_t groups;
    int64_t folded; /* taps of `fold`, which are channels of the image's copy; 1: none are */
    og_weight_dim fold;

    /* What a block has. Bits depend on it, it follows from shapes alone: k is images and places, and
     * there is no batch beside them. */
    int32_t height;     /* 64 filters of a warpgroup */
    int32_t sixtyfours; /* of its columns: taps of a line, or 64 channels */
    int32_t warpgroups; /* that multiply */
    bool slides;        /* its columns are taps along dims[OG_WEIGHT_SLIDES], which share a patch */
    int64_t tap_step, shift, classes; /* taps that are tap_step apart see places `shift` apart */
    int64_t slide_units;
    int64_t chunks, units, column_blocks, row_blocks;
    int32_t stage_k, stages;
    int64_t boxes, parts, part_boxes, chain_boxes;
    int64_t shared_bytes;
    int64_t error_units; /* of float32: units of og_cuda_work */
    bool overhangs;      /* boxes have places that are none, where the image has elements */
} og_weight_shape;

/* NULL, or why hopper_weights.cuh does not take the kernel, whose product is a convolution's. */
const char *og_cuda_see_weights(const og_kernel *kernel, og_weight_shape *to);

#endif
