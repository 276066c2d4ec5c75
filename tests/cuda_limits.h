/* SPDX-License-Identifier: MIT
 *
 * cuda_limits.h - an H100, for tests that emit kernels without a GPU.
 */
#ifndef OG_TESTS_CUDA_LIMITS_H
#define OG_TESTS_CUDA_LIMITS_H

#include "cuda/emit/cuda_work.h"

static const og_cuda_limits hopper = {.arch = 90,
                                      .multiprocessors = 132,
                                      .threads_per_multiprocessor = 2048,
                                      .shared_per_block = 232448,
                                      .shared_per_multiprocessor = 233472,
                                      .l2_bytes = 50 << 20};

#endif
