/* SPDX-License-Identifier: MIT
 *
 * hopper_window_lost.cuh - which sums of a tile of a convolution on Hopper's tensor cores may have lost
 * too much, by what its filters and its places have (pairs.cuh), and how they are marked for
 * og_redo_windows. Part of hopper_windows.cuh, which includes it.
 */

const uint32_t OG_ALL_ROWS = OG_BM == 128 ? ~0u : (1u << OG_BM / 4 % 32) - 1; /* of a thread's */

/* What a thread keeps from the end of a tile to the next: the rows whose scales are in shared memory,
 * the parity of its tray's phase. */
struct og_window_ends {
    og_index scales_of;
    uint32_t phase;
};

/* Row i of a thread. Rows 2 j and 2 j + 1 are neighbours. */
OG_FN og_row_scale og_scale_of(uint32_t scales, int i)
{
    const og_four two = og_load_shared(scales + 8 * og_row_of(i / 2 * 2));
    return {two.e[i % 2 * 2], two.e[i % 2 * 2 + 1]};
}

/* What a tile's filters have at most. */
OG_FN og_row_scale og_find_bounds(const og_window_rings &rings, int thread)
{
    const uint32_t at = rings.bounds + thread / 128 * (OG_BM / 32 * 8);
    og_row_scale most = {og_load_shared_one(at), og_load_shared_one(at + 4)};
#pragma unroll
    for (int i = 1; i < OG_BM / 32; i++) {
        most.undo = og_greater(most.undo, og_load_shared_one(at + 8 * i));
        most.weight = og_greater(most.weight, og_load_shared_one(at + 8 * i + 4));
    }
    return most;
}

/* Whether (bits 0 and 1) the even and the odd rows of a thread's have no terms. */
OG_FN uint32_t og_find_empty(int thread)
{
    return OG_EMPTY_ROWS >> 2 * (thread % 4) % OG_ROW_PHASES & 3;
}

/* Sums without terms are +0, whatever zeros were multiplied with. */
OG_FN void og_clear_empty(const og_args &a, int phase, int thread, og_held &sum)
{
    if (!OG_EMPTY_ROWS && !OG_EMPTY_TILES)
        return;
    const uint32_t empty = og_meets_nothing(a, phase) ? 3 : og_find_empty(thread);
#pragma unroll
    for (int i = 0; i < OG_HELD; i++)
        sum[i] = empty >> i % 2 & 1 ? 0.0f : sum[i];
}

/* Could a sum of place v have lost too much, by og_is_lost() of the least and the greatest with what
 * the filters have at most? Where not, which is nearly always, no sum is looked at with its own. */
OG_FN bool og_could_be_lost(const og_held &sum, int v, const og_column_loss &column,
                            const og_row_scale &bounds, float least, uint32_t empty)
{
    float low = OG_INF_F32, high = 0.0f;
    if (OG_EMPTY_ROWS && empty == 3)
        return false;
#pragma unroll
    for (int i = 0; i < OG_BM / 4; i += 2) { /* two by two: each waits for the last */
        float y = fabsf(sum[i / 2 * 4 + 2 * v]), z = fabsf(sum[i / 2 * 4 + 2 * v + 1]);
        if (OG_EMPTY_ROWS) { /* no sum of these can be lost */
            y = empty & 1 ? z : y;
            z = empty & 2 ? y : z;
        }
        low = og_lesser(low, og_lesser(y, z));
        high = og_greater(high, og_greater(y, z));
    }
    return !(low >= fmaf(column.most, bounds.weight, column.limit)) | !(low >= least) |
           !(high * bounds.undo < OG_INF_F32);
}

/* The rows (bit i) of place v whose sums may have lost too much. */
OG_FN void og_find_lost(const og_args &a, const og_window_rings &rings, int thread, uint32_t scales,
                        const og_findings &found, const og_held &sum, const uint32_t (&there)[2],
                        uint32_t (&lost)[2])
{
    const og_column_loss columns[] = {og_weigh_found<!OG_CELLS>(found, 0),
                                      og_weigh_found<!OG_CELLS>(found, 1)};
    const float least = og_least_sum(a.k_padded);
    const og_row_scale bounds = og_find_bounds(rings, thread);
    const uint32_t empty = og_find_empty(thread);
    const bool could = (there[0] && og_could_be_lost(sum, 0, columns[0], bounds, least, empty)) |
                       (there[1] && og_could_be_lost(sum, 1, columns[1], bounds, least, empty));
    lost[0] = lost[1] = 0;
    if (!__ballot_sync(0xffffffffu, could))
        return;
#pragma unroll
    for (int i = 0; i < OG_BM / 4; i++) {
        const og_row_scale row = og_scale_of(scales, i);
#pragma unroll
        for (int v = 0; v < 2; v++) {
            const float y = sum[i / 2 * 4 + 2 * v + i % 2];
            lost[v] |= og_is_lost(y, y * row.undo, columns[v], row, least) ? 1u << i : 0u;
        }
    }
    lost[0] &= there[0];
    lost[1] &= there[1];
}

/* Leaves word of what is lost for og_redo_windows; is there anything? All of a warp come. */
OG_FN bool og_mark(const og_args &a, og_index tile, int thread, const uint32_t (&lost)[2])
{
    const bool any = __ballot_sync(0xffffffffu, (lost[0] | lost[1]) != 0) != 0;
    const int64_t at = (int64_t)tile * OG_TILE_THREADS + thread % OG_TILE_THREADS;
    if (thread % 32 == 0)
        ((uint8_t *)a.flags)[at / 32] = any;
    if (!any)
        return false;
    *(uint32_t *)a.any_redo = 1;
    if (OG_LOST_WORDS == 2) {
        ((uint32_t *)a.marks)[2 * at] = lost[0];
        ((uint32_t *)a.marks)[2 * at + 1] = lost[1];
    } else {
        ((uint32_t *)a.marks)[at] = lost[0] | lost[1] << 16;
    }
    return true;
}

/* Brings the scales of rows from `row` on, of which so many are there, and their bounds into the
 * group's part of shared memory, if they are not there. */
OG_FN void og_bring_scales(const og_args &a, og_index row, og_index count,
                           const og_window_rings &rings, int thread, og_index &there)
{
    const int group = thread / 128, i = thread % 128;
    if (row == there)
        return;
    there = row;
    og_await_launch(); /* og_split */
    og_meet_group(group);
    if (i < OG_BM) {
        og_row_scale scale = ((const og_row_scale *)a.x_scales)[row + i];
        ((og_row_scale *)(rings.memory + OG_SCALES_AT))[group * OG_BM + i] = scale;
        if (i >= count)
            scale = {0.0f, 0.0f};
#pragma unroll
        for (int by = 1; by < 32; by *= 2) {
            scale.undo = og_greater(scale.undo, __shfl_xor_sync(0xffffffffu, scale.undo, by));
            scale.weight = og_greater(scale.weight, __shfl_xor_sync(0xffffffffu, scale.weight, by));
        }
        if (i % 32 == 0)
            ((og_row_scale *)(rings.memory + OG_BOUNDS_AT))[group * (OG_BM / 32) + i / 32] = scale;
    }
    og_meet_group(group);
}
