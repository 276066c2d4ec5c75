/* SPDX-License-Identifier: MIT
 *
 * cuda_product_tile.h - which body computes a matrix product and which tile a block takes,
 * by shape. Results never depend on it.
 */
#ifndef OG_CUDA_PRODUCT_TILE_H
#define OG_CUDA_PRODUCT_TILE_H

#include "cuda/emit/cuda_work.h"

typedef struct {
    og_matrices of;
    int32_t products; /* in one kernel */
    bool is_double;
    bool reduces;       /* rows */
    size_t table_bytes; /* of shared memory for each k of a step: a convolution's; else 0 */
} og_cuda_product_shape;

typedef struct {
    bool is_few;                    /* product_few.cuh, else product_tiles.cuh */
    int32_t thread_m, thread_n;     /* rows and columns of a thread */
    int32_t lanes_n;                /* threads of a warp along a row */
    int32_t warps_m, warps_n;       /* few: blocks of k, and 1 */
    int32_t step;                   /* k */
    int32_t blocks;                 /* of a multiprocessor, that registers are kept for */
    int32_t rows, columns, threads; /* of a block */
    int32_t part_blocks;            /* blocks of k of a part, where k is split; else 0 */
    bool leaves_groups;             /* parts leave the sums of groups of k; else those of blocks */
    int64_t sums;                   /* of a result, that parts leave */
    size_t shared_bytes;
} og_cuda_tile;

/* 1: k is one block of OG_PRODUCT_BLOCK, 2: one group, 3: more. */
int32_t og_cuda_product_levels(int64_t k);
/* Columns of what parts leave, and its bytes. */
int64_t og_cuda_split_pitch(const og_cuda_product_shape *shape);
double og_cuda_split_bytes(const og_cuda_product_shape *shape, int64_t sums);
og_cuda_tile og_cuda_choose_tile(const og_cuda_product_shape *shape, const og_cuda_limits *limits);

#endif
