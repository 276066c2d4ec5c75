/* SPDX-License-Identifier: MIT
 *
 * cuda_sweep.h - inputs made and results hashed on the GPU, so that all 2^32 of a
 * function need not travel; see og_device_services.
 */
#ifndef OG_CUDA_SWEEP_H
#define OG_CUDA_SWEEP_H

#include "base/base.h"

ogive_status og_cuda_fill(int32_t device, float *x, uint32_t first, uint32_t step, uint32_t count,
                          ogive_error *error);
ogive_status og_cuda_hash(int32_t device, const float *y, uint32_t first, uint32_t step,
                          uint32_t count, uint64_t *partials, uint64_t *sum, ogive_error *error);

#endif
