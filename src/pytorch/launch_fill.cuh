/* SPDX-License-Identifier: MIT
 *
 * launch_fill.cuh - what the launches of every unit that serves all layouts share: arguments that
 * the call has, and parts of the scratch.
 */
#include "cuda/emit/cuda_shapes.h"
#include "pytorch/call.cuh"
#include "pytorch/launch.cuh"

static void og_fill(og_args &a, const Args &c);

static og_divisor og_make_divisor(int64_t extent)
{
    const og_division by = og_divide_by(extent, OG_INDEX_BITS - 1);
    og_divisor divisor;
    divisor.extent = (og_index)extent;
    divisor.magic = (og_unsigned)by.magic;
    divisor.shift = by.shift;
    return divisor;
}

/* What the call has for every body. */
static og_args og_bind(const Args &c)
{
    og_args a = {};
    for (int n = 0; n < OG_OPERANDS; n++) {
        a.p[n] = c.data[n];
        for (int d = 0; d < OG_DIMS; d++)
            a.strides[n][d] = (og_index)c.stride[n][d];
    }
    for (int d = 0; d < OG_DIMS; d++)
        a.dims[d] = og_make_divisor(c.extent[d]);
    og_fill(a, c);
    return a;
}

static int64_t og_count_dims(const Args &c, int from, int to)
{
    int64_t count = 1;
    for (int d = from; d < to; d++)
        count *= c.extent[d];
    return count;
}

/* a.NAME: the next part of the scratch. */
#define OG_REGION(name, count)                                                                     \
    a.name = scratch + bytes;                                                                      \
    bytes += ((count) + 63) / 64 * 64;
