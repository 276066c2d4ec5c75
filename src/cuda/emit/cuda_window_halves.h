/* SPDX-License-Identifier: MIT
 *
 * cuda_window_halves.h - a convolution as hopper_windows_halves.cuh sees it: an image whose channels
 * are neighbours, and the tiles that it takes.
 */
#ifndef OG_CUDA_WINDOW_HALVES_H
#define OG_CUDA_WINDOW_HALVES_H

#include "cuda/emit/cuda_window_tile.h"

typedef struct {
    og_window_shape of; /* what og_cuda_see_image() has; if lines are folded, dims[2] has one tap */
    bool is_last;       /* neighbours of the result are filters */
    bool may_pack;      /* there is one, of halves, and no operand but those of filters */
    bool copies;        /* the image goes to the scratch, its channels side by side */
    int64_t folded;     /* taps along a line, which are channels of the copy; 1: they are not */
    og_image_dim line;  /* dims[2] before */
    int64_t channels;   /* that a filter sees at a tap: of a group, times folded */
    int64_t all_taps;   /* in the order of the filters' memory */
    int64_t copy_group, copy_pitch; /* channels of the copy: of a group, of all */

    /* The order of k. */
    int32_t line_channels; /* of a box: 64, 32 or 16 */
    int64_t chunks, pieces, k_padded;
    bool is_long; /* tensor cores do not sum all of k */

    /* Tiles: no bit depends on them. */
    int32_t height, width; /* of a warpgroup's product: 64 rows, columns */
    bool filter_rows;      /* rows of it are filters; else places */
    bool alternates, keeps;
    bool packs;                           /* results are halves, which go to memory 8 at a time */
    int32_t filters;                      /* of a tile */
    int32_t tile_b, tile[OG_WINDOW_DIMS]; /* places */
    int64_t tiles_b, tiles[OG_WINDOW_DIMS], row_tiles, items;
    int32_t patches;               /* that shared memory has room for; 0: a box for each tap */
    int32_t patch[OG_WINDOW_DIMS]; /* places of one */
    int32_t apart;                 /* lines from 8 of an operand to the next 8 */
    int32_t stages;
    int64_t shared_bytes;
} og_window_halves;

/* NULL, or why hopper_windows_halves.cuh does not take the kernel, whose product is a convolution of
 * halves. The batch never decides, and how the image lies only where it is expanded, or where planning
 * has made one dim of two that others keep. */
const char *og_cuda_see_window_halves(const og_kernel *kernel, int32_t multiprocessors,
                                      og_window_halves *to);

#endif
