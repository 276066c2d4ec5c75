/* SPDX-License-Identifier: MIT
 *
 * tf32.cuh - float32 rounded to TF32: 10 bits after the point, float32's exponents.
 */
#include "cuda/kernels/prologue.cuh"

/* To the nearest, away from 0 from the middle. */
OG_FN uint32_t og_round_tf32(float x)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint32_t rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
    return rounded;
#else
    const uint32_t bits = og_bits_f32(x);
    return x != x ? bits : (bits + 0x1000u) & 0xffffe000u;
#endif
}
