/* SPDX-License-Identifier: MIT
 *
 * cuda_floor.c - see cuda_floor.h. Speeds are NVIDIA's, of the fastest GPU of an architecture: an
 * H100's 989 TFLOP/s of float16 are 2048 multiply-adds of 132 multiprocessors at 1.83 GHz.
 */
#include "cuda/host/cuda_floor.h"

double og_cuda_multiplies(const og_kernel *kernel)
{
    double count = kernel->product_count ? og_product_terms(&kernel->products[0]) : 0;
    for (int32_t d = 0; d < kernel->space.rank; d++)
        count *= (double)kernel->space.extent[d];
    return count * kernel->product_count;
}

/* Multiply-adds of a multiprocessor in a cycle: float16 or bfloat16, summed in float32. */
static double tensor_speed(int32_t arch)
{
    return arch < 80    ? 0
           : arch < 86  ? 1024
           : arch < 90  ? 512
           : arch < 100 ? 2048
           : arch < 120 ? 4096
                        : 512;
}

/* The same of CUDA cores. */
static double core_speed(int32_t arch, bool is_double)
{
    if (is_double)
        return arch < 86 ? 32 : arch < 90 ? 2 : arch < 120 ? 64 : 2;
    return arch <= 80 ? 64 : 128;
}

double og_cuda_multiply_seconds(const og_kernel *kernel, const og_cuda_work *work,
                                const og_cuda_limits *limits)
{
    if (!kernel->product_count)
        return 0;
    double speed = work->tensor_products
                       ? tensor_speed(limits->arch) / work->tensor_products
                       : core_speed(limits->arch, kernel->products[0].dtype == OG_FLOAT64);
    speed *= limits->clock_hz * limits->multiprocessors;
    return speed > 0 ? og_cuda_multiplies(kernel) / speed : 0;
}
