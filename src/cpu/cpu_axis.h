/* SPDX-License-Identifier: MIT
 *
 * cpu_axis.h - an access along some dims of a space, walked by one flat index.
 */
#ifndef OG_CPU_AXIS_H
#define OG_CPU_AXIS_H

#include "plan/plan.h"

/* An access along one axis; dims that lie in memory like one are one. */
typedef struct {
    int32_t rank;
    int64_t extent[OG_MAX_RANK], stride[OG_MAX_RANK];
} og_cpu_axis;

/* strides: of the dims of the space. dims: those of them that the axis is made of; the last one is
 * the fastest. */
static inline void og_cpu_make_axis(const og_space *space, const int64_t *strides,
                                    const int32_t *dims, int32_t rank, og_cpu_axis *axis)
{
    axis->rank = 0;
    for (int32_t k = 0; k < rank; k++) {
        int64_t extent = space->extent[dims[k]], stride = strides[dims[k]];
        if (extent == 1)
            continue;
        int32_t last = axis->rank - 1;
        if (last >= 0 && axis->stride[last] == stride * extent) {
            axis->extent[last] *= extent;
            axis->stride[last] = stride;
        } else {
            axis->extent[axis->rank] = extent;
            axis->stride[axis->rank++] = stride;
        }
    }
}

static inline bool og_cpu_is_contiguous(const og_cpu_axis *axis)
{
    return axis->rank == 0 || (axis->rank == 1 && axis->stride[0] == 1);
}

static inline bool og_cpu_is_still(const og_cpu_axis *axis)
{
    return axis->rank == 0 || (axis->rank == 1 && axis->stride[0] == 0);
}

/* Elements from the axis's first to that at index. */
static inline int64_t og_cpu_find_offset(const og_cpu_axis *axis, int64_t index)
{
    if (axis->rank <= 1)
        return axis->rank ? index * axis->stride[0] : 0;
    int64_t offset = 0;
    for (int32_t d = axis->rank - 1; d > 0; d--) {
        offset += index % axis->extent[d] * axis->stride[d];
        index /= axis->extent[d];
    }
    return offset + index * axis->stride[0];
}

/* How many indices from index on are one stride apart, at most count. */
static inline int64_t og_cpu_find_stretch(const og_cpu_axis *axis, int64_t index, int64_t count,
                                          int64_t *stride)
{
    if (axis->rank == 0) {
        *stride = 0;
        return count;
    }
    *stride = axis->stride[axis->rank - 1];
    if (axis->rank == 1)
        return count;
    int64_t last = axis->extent[axis->rank - 1], left = last - index % last;
    return count < left ? count : left;
}

#endif
