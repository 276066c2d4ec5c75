/* SPDX-License-Identifier: MIT
 *
 * any_dtype.cuh - a source that serves every dtype of tensors: numbers are og_real, functions of
 * them OG_REAL(name).
 *
 * PARAMETERS
 *   OG_IS_DOUBLE   1: tensors are float64, and so are numbers; 0: numbers are float32
 */
#include "cuda/kernels/prologue.cuh"

#if OG_IS_DOUBLE
typedef double og_real;
#define OG_REAL(name) og_##name##_f64
#define OG_ANY_PEAK OG_MOST
#else
typedef float og_real;
#define OG_REAL(name) og_##name##_f32
#define OG_ANY_PEAK OG_PEAK
#endif
