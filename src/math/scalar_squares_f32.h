/* SPDX-License-Identifier: MIT */
/*
 * Sums of squares that float32 has no room for: what functions.def takes them by again.
 * In the manner of scalar_f32.h, which includes this file.
 *
 * The root of a sum of squares may be a number where the sum is none: of (1e30, 1e30) the squares are
 * infinite, of (1e-30, 1e-30) zero. Such a sum is taken again, of numbers multiplied by a power of two.
 * Three are enough: with 2^-80 any 2^31 numbers' squares have a finite sum, and with 2^80 what is lost
 * of one below 2^-90 is nothing to speak of; what the roots' derivatives have on the way stays within
 * float32, too.
 */
#ifndef OG_MATH_SCALAR_SQUARES_F32_H
#define OG_MATH_SCALAR_SQUARES_F32_H

#include "math/scalar_base.h"

/* By what numbers are multiplied whose squares have the sum s; NaN may come of numbers, too (sqdev of
 * plan.h). eps is added to their mean, and beside one that large (or NaN, its default) no small sum
 * matters. */
OG_FN float og_square_scale_f32(float s, float eps)
{
    float least = eps < 0x1p-60f ? 0x1p-90f : 0.0f;
    return s <= 0x1p110f ? (s < least ? 0x1p80f : 1.0f) : 0x1p-80f;
}

/* The sum of squares, once, or again of scaled numbers where it has to be. */
OG_FN float og_rescaled_f32(float once, float again, float eps)
{
    return og_square_scale_f32(once, eps) == 1.0f ? once : again;
}

OG_FN float og_rescaled_once_f32(float once, float again, float eps)
{
    return og_rescaled_f32(once, again, eps);
}

OG_FN float og_scaled_square_f32(float x, float scale)
{
    return (x * scale) * (x * scale);
}

OG_FN float og_unscaled_f32(float x, float scale)
{
    return (x / scale) / scale;
}

/* 1 / sqrt(x + eps) of what has not been scaled; x has, twice. eps = NaN stands for the machine
 * epsilon of the computing type. */
OG_FN float og_scaled_rsqrt_f32(float x, float scale, float eps)
{
    float more = ((eps != eps ? 0x1p-23f : eps) * scale) * scale;
    return scale * og_rsqrt_f32(x + more);
}

#endif
