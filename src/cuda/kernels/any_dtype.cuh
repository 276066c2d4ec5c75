/* SPDX-License-Identifier: MIT
 *
 * any_dtype.cuh - how a source begins that serves every dtype of tensors: numbers are og_real,
 * functions of them OG_REAL(name).
 *
 * PARAMETERS
 *   OG_IS_DOUBLE    1: tensors are float64, and so are numbers; 0: numbers are float32
 *   OG_INDEX_BITS   32 or 64
 */
#include "math/scalar_base.h"

#include "math/half.h"

#include "math/scalar_f32.h"
#if OG_IS_DOUBLE
#include "math/scalar_f64.h"
typedef double og_real;
#define OG_REAL(name) og_##name##_f64
#define OG_ANY_PEAK OG_MOST
#else
typedef float og_real;
#define OG_REAL(name) og_##name##_f32
#define OG_ANY_PEAK OG_PEAK
#endif

#if OG_INDEX_BITS == 64
typedef int64_t og_index;
typedef uint64_t og_unsigned;
#else
typedef int32_t og_index;
typedef uint32_t og_unsigned;
#endif

#include "cuda/kernels/prologue.cuh"
