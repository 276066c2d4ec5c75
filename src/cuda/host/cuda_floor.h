/* SPDX-License-Identifier: MIT
 *
 * cuda_floor.h - the least time that a kernel's matrix products can take: for explain. No choice
 * depends on it.
 */
#ifndef OG_CUDA_FLOOR_H
#define OG_CUDA_FLOOR_H

#include "cuda/emit/cuda_work.h"

/* Multiply-adds of all products of a kernel, as the formula has them. */
double og_cuda_multiplies(const og_kernel *kernel);

/* Seconds, if every multiprocessor multiplied in every clock cycle; 0 without products, and where
 * the clock is not known. */
double og_cuda_multiply_seconds(const og_kernel *kernel, const og_cuda_work *work,
                                const og_cuda_limits *limits);

#endif
