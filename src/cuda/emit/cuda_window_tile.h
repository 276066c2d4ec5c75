/* SPDX-License-Identifier: MIT
 *
 * cuda_window_tile.h - a convolution as hopper_windows.cuh sees it: filters times an image of up to
 * three dims of places, and the tiles that it takes.
 */
#ifndef OG_CUDA_WINDOW_TILE_H
#define OG_CUDA_WINDOW_TILE_H

#include "cuda/emit/cuda_emit.h"

enum {
    OG_WINDOW_DIMS = 3,     /* depth, height and width; those that are not there have extent 1 */
    OG_WINDOW_PLACES = 128, /* of a tile; half of them where groups alternate */
    OG_WINDOW_STEP = 16,    /* k that are multiplied at once: channels, or taps of few */
    OG_CELL_CHANNELS = 32,  /* of a cell: hopper_window_cells.cuh */
    OG_MOST_PHASES = 8,     /* of a dim */
    OG_MOST_TILE_PHASES = 32
};

/* A phase of a dim: its results, that are as far apart as there are phases, meet taps first_tap + j *
 * tap_step, j below taps; result u of them sees element start + u + reach * j. */
typedef struct {
    int64_t first_tap, taps, start;
    int64_t from, back; /* of the patches of its tiles: see og_image_dim */
} og_window_phase;

/* A dim of the image. Place i and tap j see element start + step * i + reach * j. */
typedef struct {
    int64_t extent, stride; /* in elements; what lies beyond the extent is 0 */
    int64_t places, taps;
    int64_t start, step, reach;
    int64_t from; /* where the patch of the first places begins; */
    int64_t back; /* what tap 0 of them sees is so far into it */

    /* Where the window has a divisor: the results, whose phases are places of their own, each with its
     * own start and taps. Along a line they may be rows of the product instead (row_phases): then
     * places have the taps that any of them meets, one element apart, and a filter is 0 where its phase
     * meets none. */
    int64_t results;     /* elements of the space; places of its largest phase */
    int32_t phase_count; /* 1: there is no divisor */
    int64_t tap_step, tap_count, phase_reach; /* of phases; taps of all of them together */
    og_window_phase phase[OG_MOST_PHASES];
} og_image_dim;

typedef struct {
    og_image_dim dims[OG_WINDOW_DIMS];
    int64_t filters, channels, groups, batch;     /* filters and channels of a group */
    int64_t channel_stride, batch_stride, offset; /* of the image, in elements */
    bool copies;                                  /* TMA cannot fetch the image as it lies */

    bool gathers;         /* all phases of a transposed stride are here */
    int32_t row_phases;   /* rows of a filter: phases along a line, padded to 2, 4 or 8, or 1 */
    uint32_t empty_rows;  /* those (bit r) that are padding, or meet no tap: sums are 0 */
    int32_t tile_phases;  /* phases that are tiles of their own */
    bool has_empty_tiles; /* some of them meet no tap */
    int32_t vector;       /* neighbours that a thread stores at once */
    int64_t taps;         /* the most of a phase's */
    int32_t phase_steps[OG_MOST_TILE_PHASES]; /* steps of a chunk of each */
    int32_t tile[OG_WINDOW_DIMS], patch[OG_WINDOW_DIMS];
    int64_t tiles[OG_WINDOW_DIMS]; /* that the places take */
    int32_t rows;                  /* filters of a tile */
    int32_t alternates;            /* so many groups of warps have tiles of their own, or 0 */
    int32_t step_taps;             /* taps of 16 k: 1, or 2 or 4 of 8 or 4 channels */
    int32_t chunk;                 /* channels of a patch */
    bool spreads;                  /* in each 16 of k, a thread's channels are 4 apart */
    int32_t steps;                 /* of 16 k, of a chunk */
    int32_t last_steps;            /* of a tile's last 64 k, no padding: see OG_LAST_STEPS */
    int32_t patch_stages, x_stages;
    int32_t cell_stages; /* patches that are split once for all taps, by warps of their own; or 0 */
    bool trays;          /* other warps do the ends of tiles: hopper_window_trays.cuh */
    bool keeps;          /* all blocks of filters stay in shared memory */
    int32_t pieces; /* of a group's results on their way to memory; 0: threads write their own */
    int64_t row_tiles, chunks, k_padded, items;
    int64_t shared_bytes;
} og_window_shape;

/* What the kernel's product convolves: dims, sizes and strides of *to, and its taps. NULL, or why it is
 * none such. */
const char *og_cuda_see_image(const og_kernel *kernel, og_window_shape *to);

/* Is there no tap that phase q of tiles meets? */
bool og_is_empty_phase(const og_window_shape *s, int32_t q);

/* Phases of a dim that are tiles of their own. */
int32_t og_tile_phases_of(const og_window_shape *s, int dim);

/* NULL, or why hopper_windows.cuh does not take the kernel, whose product is a convolution. The batch
 * never decides, and how the image lies only where it is expanded, or where planning has made one dim
 * of two that others keep. */
const char *og_cuda_see_windows(const og_kernel *kernel, og_window_shape *to);

#endif
