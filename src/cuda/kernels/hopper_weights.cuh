/* SPDX-License-Identifier: MIT
 *
 * hopper_weights.cuh - a convolution's gradient by its weight on Hopper's tensor cores, and pass 0: for
 * every filter, channel and tap the sum over images and places of two factors, the left one with filters
 * and the image with channels. Products of halves are exact in float32; the tensor cores sum them 16 by
 * 16 and truncate what they add. A float32 is the sum of three bfloat16, of different size, whose six
 * greatest products are summed, the least first, in chains of a stage; what is left out is 2^-23 of it.
 *
 * Both factors have their filters and channels side by side, as PyTorch's channels-last has them, or
 * are brought into that form first (hopper_lay_weights.cuh). A box of places is k then, and as TMA
 * leaves it in shared memory an operand of wgmma that lies across k: of the left factor at the places
 * themselves, of the image where a tap sees them, with zeros where it ends. A stage has a box of the
 * left factor, 64 filters wide or 128, and for each warpgroup 64 columns as often as OG_SIXTYFOURS says:
 *
 *   OG_SLIDES 1   taps along dim 2, the outermost of a box. Each sees the places of the one before,
 *                 a.tap_step taps away, OG_SHIFT lines further on: all of them read one patch.
 *   OG_SLIDES 0   64 channels each of one tap, a box apart
 *
 * These are a unit. k is cut into parts, a block's each; a block sums a chain of a.chain_boxes boxes on
 * tensor cores, and adds it to its part's sums in the scratch. og_add_weight_parts adds up parts in order.
 *
 * A box may have places beyond the last. The left factor is 0 there; where the image has something that
 * is not finite, the sum is not, and is computed again, from its own terms alone. So is every sum of
 * float32 that is not finite.
 *
 * PARAMETERS
 *   OG_MMA_TYPE     "f16" or "bf16"
 *   OG_PLANES       halves that a number is: 1, or 3 of a float32
 *   OG_HEIGHT       64 filters that a block has: 1 or 2
 *   OG_SIXTYFOURS   64 columns that a warpgroup has: 1 to 4; OG_WIDTH: these columns
 *   OG_WARPGROUPS   that multiply: 2 or 3
 *   OG_SLIDES       see above
 *   OG_BOX_0 .. OG_BOX_2   places of a box along dims 0, 1 and 2; it has one of dim 3
 *   OG_STEP_0 .. OG_STEP_3 elements of the image from a place to the next
 *   OG_SHIFT        see above
 *   OG_STAGES       that shared memory has room for
 *   OG_ADD_LANES    threads that share the parts of a sum
 *   OG_OWN_REGISTERS    of a thread that multiplies
 */
#include "cuda/kernels/finish.cuh"
#include "cuda/kernels/hopper_ring.cuh"
#include "cuda/kernels/hopper_ptx.cuh"
#include "cuda/kernels/hopper_lay_weights.cuh"
#include "cuda/kernels/seen.cuh"

enum {
    OG_INNER = OG_BOX_0 * OG_BOX_1,
    OG_BOX_K = OG_INNER * OG_BOX_2,
    OG_WEIGHT_LINE = 128,                      /* 64 filters or channels of a place */
    OG_LEFT_BYTES = OG_BOX_K * OG_WEIGHT_LINE, /* of 64 filters, of a plane */
    OG_LEFT_PLANE = OG_HEIGHT * OG_LEFT_BYTES,
    OG_APART_BYTES = (OG_SLIDES ? OG_SHIFT * OG_INNER : OG_BOX_K) * OG_WEIGHT_LINE,
    OG_UNIT_BYTES =
        OG_SLIDES ? OG_INNER * OG_BOX_2 * OG_WEIGHT_LINE + (OG_SIXTYFOURS - 1) * OG_APART_BYTES
                  : OG_SIXTYFOURS * OG_APART_BYTES,
    OG_IMAGE_AT = OG_PLANES * OG_LEFT_PLANE,
    OG_WEIGHT_STAGE = OG_IMAGE_AT + OG_WARPGROUPS * OG_PLANES * OG_UNIT_BYTES,
    OG_WEIGHT_BARRIERS_AT = OG_STAGES * OG_WEIGHT_STAGE,
    OG_WEIGHT_SHARED = OG_WEIGHT_BARRIERS_AT + 8 * 2 * OG_STAGES,
    OG_WEIGHT_THREADS = 128 * (1 + OG_WARPGROUPS),
    OG_ADD_COLUMNS = 256 / OG_ADD_LANES,
    OG_ADD_ROWS = 4 /* that share what is found out about their columns */
};
static_assert(OG_SHARED_BYTES == OG_WEIGHT_SHARED, "the launch gives it");
static_assert(OG_WEIGHT_STAGE % 1024 == 0 && OG_UNIT_BYTES % 1024 == 0,
              "the swizzle is by address");

/* ---- units of columns -------------------------------------------------------------------------- */

/* The first of a unit's 64 channels, and its taps. */
struct og_unit {
    int chunk, tap[4];
};

OG_FN og_unit og_find_unit(const og_args &a, int u)
{
    og_unit to;
    int rest = u / (int)a.slide_units;
    const int slide = u - rest * (int)a.slide_units, classes = (int)a.classes;
    to.tap[2] =
        slide % classes + slide / classes * (OG_SLIDES ? OG_SIXTYFOURS * (int)a.tap_step : 1);
    u = rest / (int)a.taps[0];
    to.tap[0] = rest - u * (int)a.taps[0];
    rest = u / (int)a.taps[1];
    to.tap[1] = u - rest * (int)a.taps[1];
    u = rest / (int)a.taps[3];
    to.tap[3] = rest - u * (int)a.taps[3];
    to.chunk = u * (OG_SLIDES ? 1 : OG_SIXTYFOURS);
    return to;
}

/* A result: its place in the weight, and the product's column that it is. */
struct og_weight {
    og_index group, filter, channel, fold, column;
    int tap0, tap1, tap2, tap3;
    bool is_there;
};

/* What column `column` of a row of the scratch is, but for the row. */
OG_FN og_weight og_find_weight(const og_args &a, int column)
{
    og_weight to;
    const og_unit unit = og_find_unit(a, column / OG_WIDTH);
    const int j = column % OG_WIDTH / 64;
    const int channel = (unit.chunk + (OG_SLIDES ? 0 : j)) * 64 + column % 64;
    const int fold = channel / (int)a.channels;
    to.group = to.filter = 0;
    to.fold = fold;
    to.channel = channel - fold * (int)a.channels;
    to.tap0 = unit.tap[0];
    to.tap1 = unit.tap[1];
    to.tap2 = unit.tap[2] + (OG_SLIDES ? j * (int)a.tap_step : 0);
    to.tap3 = unit.tap[3];
    to.column = to.channel * a.columns[5] + to.fold * a.columns[4] + to.tap0 * a.columns[0] +
                to.tap1 * a.columns[1] + to.tap2 * a.columns[2] + to.tap3 * a.columns[3];
    to.is_there = column / OG_WIDTH < a.units && to.fold < a.folded && to.tap2 < a.taps[2];
    return to;
}

/* ---- what is computed again ---------------------------------------------------------------------- */

/* A thread's share of a result's sum, every 256th term, in blocks and groups of plan.h's size. */
OG_FN float og_sum_share(const og_args &a, const og_weight &of)
{
    float sum = 0.0f;
    for (og_index k = threadIdx.x; k < a.k;) {
        float group = 0.0f;
        for (int block = 0; block < 16 && k < a.k; block++) {
            float p = 0.0f;
            for (int i = 0; i < 256 && k < a.k; i++, k += 256)
                p = fmaf(og_find_term<og_left0>(a, of.group, of.filter, k),
                         og_find_term<og_right0>(a, of.group, of.column, k), p);
            group += p;
        }
        sum += group;
    }
    return sum;
}

/* A result's sum, by all threads of a block. */
OG_FN float og_sum_again(const og_args &a, const og_weight &of)
{
    __shared__ float shares[256];
    shares[threadIdx.x] = og_sum_share(a, of);
    for (int width = 128; width > 0; width /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < width)
            shares[threadIdx.x] += shares[threadIdx.x + width];
    }
    __syncthreads();
    const float sum = shares[0];
    __syncthreads();
    return sum;
}

/* ---- adding parts, and pass 0 -------------------------------------------------------------------- */

/* One result, for finish.cuh. */
struct og_weight_part {
    enum { rows = 1, vectors = 1, apart = 0 };
    static const bool whole = false;

    const og_weight &of;
    float total;
    const og_kept (&kept)[1];

    OG_FN og_offsets find(const og_weight_part &f, const og_args &a, int)
    {
        og_offsets at = og_start();
        og_step_group(a, f.of.group, at);
        og_step_filter(a, f.of.filter, at);
        og_step_channel(a, f.of.channel, at);
        og_step_fold(a, f.of.fold, at);
        og_step_tap0(a, f.of.tap0, at);
        og_step_tap1(a, f.of.tap1, at);
        og_step_tap2(a, f.of.tap2, at);
        og_step_tap3(a, f.of.tap3, at);
        return at;
    }
    OG_FN og_offsets column(const og_weight_part &, const og_args &, int)
    {
        return og_start();
    }
    OG_FN og_span span(const og_weight_part &, const og_args &, int, int)
    {
        return {0, 1};
    }
    OG_FN float sum(const og_weight_part &f, int, int, int, int)
    {
        return f.total;
    }
};

OG_FN bool og_is_finite(float x)
{
    return (og_bits_f32(x) & 0x7f800000u) != 0x7f800000u;
}

/* Sums of parts of OG_ADD_ROWS results below each other, of those that are thread `lane`'s. */
OG_FN void og_add_some(const og_args &a, const float *from, int lane, float (&sums)[OG_ADD_ROWS])
{
    const int64_t apart = (int64_t)a.groups * a.padded_rows * a.pitch;
    const og_index each = (a.parts + OG_ADD_LANES - 1) / OG_ADD_LANES;
    const og_index end = each * (lane + 1) < a.parts ? each * (lane + 1) : a.parts;
#pragma unroll
    for (int r = 0; r < OG_ADD_ROWS; r++)
        sums[r] = -0.0f; /* changes no sum */
#pragma unroll 4
    for (og_index i = each * lane; i < end; i++)
#pragma unroll
        for (int r = 0; r < OG_ADD_ROWS; r++)
            sums[r] += from[i * apart + r * (int64_t)a.pitch];
}

/* A block's columns of OG_ADD_ROWS rows. */
typedef float og_weight_totals[OG_ADD_ROWS][OG_ADD_COLUMNS];

/* What is not finite may be, and is computed again; all of it, if there are no sums. */
template <bool again>
OG_FN void og_mend_totals(const og_args &a, const og_weight &first, int column,
                          og_weight_totals &totals)
{
    bool mends = false;
    for (int i = threadIdx.x; i < OG_ADD_ROWS * OG_ADD_COLUMNS; i += 256)
        mends = mends || !og_is_finite(totals[i / OG_ADD_COLUMNS][i % OG_ADD_COLUMNS]);
    if (!again && (!__syncthreads_or(mends) || (OG_PLANES == 1 && !a.overhangs)))
        return;
    for (int i = 0; i < OG_ADD_ROWS * OG_ADD_COLUMNS; i++) {
        float &total = totals[i / OG_ADD_COLUMNS][i % OG_ADD_COLUMNS];
        og_weight of = og_find_weight(a, column + i % OG_ADD_COLUMNS);
        of.group = first.group;
        of.filter = first.filter + i / OG_ADD_COLUMNS;
        if (!of.is_there || of.filter >= a.m || (!again && og_is_finite(total)))
            continue;
        const float sum = og_sum_again(a, of);
        if (threadIdx.x == 0)
            total = sum;
    }
    __syncthreads();
}

/* A block has some columns of OG_ADD_ROWS rows, and threads for the parts of each. again: there are
 * none, all is computed here. */
template <bool again> OG_FN void og_end_weights(const og_args &a)
{
    __shared__ float shared[OG_ADD_LANES][OG_ADD_ROWS][OG_ADD_COLUMNS];
    const int own = threadIdx.x % OG_ADD_COLUMNS, lane = threadIdx.x / OG_ADD_COLUMNS;
    const uint32_t across = (uint32_t)((a.pitch + OG_ADD_COLUMNS - 1) / OG_ADD_COLUMNS);
    const uint32_t down = (uint32_t)((a.m + OG_ADD_ROWS - 1) / OG_ADD_ROWS);
    const uint32_t row = blockIdx.x / across;
    const int column = (int)(blockIdx.x % across) * OG_ADD_COLUMNS;
    og_weight of = og_find_weight(a, column + own);
    of.group = row / down;
    of.filter = (og_index)(row % down) * OG_ADD_ROWS;
    float sums[OG_ADD_ROWS] = {};
    og_await_launch();
    if (!again && of.is_there)
        og_add_some(a,
                    (const float *)a.sums +
                        ((int64_t)of.group * a.padded_rows + of.filter) * a.pitch + column + own,
                    lane, sums);
#pragma unroll
    for (int r = 0; r < OG_ADD_ROWS; r++)
        shared[lane][r][own] = sums[r];
    __syncthreads();
    for (int i = 1; i < OG_ADD_LANES && lane < OG_ADD_ROWS; i++)
        shared[0][lane][own] += shared[i][lane][own];
    __syncthreads();
    og_mend_totals<again>(a, of, column, shared[0]);
    og_kept kept[1];
    for (int r = lane; r < OG_ADD_ROWS && of.is_there; r += OG_ADD_LANES) {
        og_weight result = of;
        result.filter += r;
        if (result.filter < a.m)
            og_finish_fragment(a, og_weight_part{result, shared[0][r][own], kept});
    }
}

OG_KERNEL(og_add_weight_parts, 256, 4)
{
    og_end_weights<false>(a);
}

/* Instead of all, where addresses are none that TMA takes. */
OG_KERNEL(og_redo_weights, 256, 4)
{
    og_end_weights<true>(a);
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- blocks ---------------------------------------------------------------------------------------- */

/* Its first filter and unit, of group `group`; its part of k: boxes. */
struct og_weight_tile {
    int part, group, filter, unit, first, end;
};

OG_FN og_weight_tile og_find_weight_tile(const og_args &a)
{
    og_weight_tile to;
    const int boxes = (int)a.boxes, part_boxes = (int)a.part_boxes;
    int i = (int)blockIdx.x, rest = i / (int)a.column_blocks;
    to.unit = (i - rest * (int)a.column_blocks) * OG_WARPGROUPS;
    i = rest / (int)a.row_blocks;
    to.filter = (rest - i * (int)a.row_blocks) * 64 * OG_HEIGHT;
    to.part = i / (int)a.groups;
    to.group = i - to.part * (int)a.groups;
    to.first = to.part * part_boxes;
    to.end = to.first + part_boxes < boxes ? to.first + part_boxes : boxes;
    return to;
}

/* The first place of a box. */
struct og_weight_box {
    int at[4];
};

OG_FN og_weight_box og_find_weight_box(const og_args &a, int i)
{
    og_weight_box to;
    int rest = i / (int)a.dim_boxes[0];
    to.at[0] = (i - rest * (int)a.dim_boxes[0]) * OG_BOX_0;
    i = rest / (int)a.dim_boxes[1];
    to.at[1] = (rest - i * (int)a.dim_boxes[1]) * OG_BOX_1;
    rest = i / (int)a.dim_boxes[2];
    to.at[2] = (i - rest * (int)a.dim_boxes[2]) * OG_BOX_2;
    to.at[3] = rest;
    return to;
}

/* ---- the producer ---------------------------------------------------------------------------------- */

/* A unit's patch, or boxes. One that is not there brings the last one's. */
OG_FN void og_bring_unit(const og_args &a, const og_weight_tile &tile, const og_weight_box &box,
                         const og_unit &unit, uint32_t to, uint32_t full)
{
    const int at0 = (int)a.starts[0] + box.at[0] * OG_STEP_0 + unit.tap[0] * (int)a.reaches[0];
    const int at1 = (int)a.starts[1] + box.at[1] * OG_STEP_1 + unit.tap[1] * (int)a.reaches[1];
    const int at2 = (int)a.starts[2] + box.at[2] * OG_STEP_2 + unit.tap[2] * (int)a.reaches[2];
    const int at3 = (int)a.starts[3] + box.at[3] * OG_STEP_3 + unit.tap[3] * (int)a.reaches[3];
    const int channel = tile.group * (int)a.image_group + unit.chunk * 64;
#pragma unroll
    for (int p = 0; p < OG_PLANES; p++)
#pragma unroll
        for (int j = 0; j < (OG_SLIDES ? 1 : OG_SIXTYFOURS); j++)
            og_copy_patch(to + p * OG_UNIT_BYTES + j * OG_APART_BYTES, &a.image_map,
                          p * (int)a.image_plane + channel + 64 * j, at0, at1, at2, at3, full);
}

OG_FN void og_produce_weights(const og_args &a, uint32_t stages, uint32_t full, uint32_t empty)
{
    const og_weight_tile tile = og_find_weight_tile(a);
    og_unit units[OG_WARPGROUPS];
    og_ring_turn turn = {0, 1};
    og_fetch_map(&a.left_map);
    og_fetch_map(&a.image_map);
#pragma unroll
    for (int g = 0; g < OG_WARPGROUPS; g++)
        units[g] = og_find_unit(a, tile.unit + g < (int)a.units ? tile.unit + g : (int)a.units - 1);
    og_await_launch(); /* factors that were laid out */
    for (int i = tile.first; i < tile.end; i++) {
        const og_weight_box box = og_find_weight_box(a, i);
        const uint32_t to = stages + turn.stage * OG_WEIGHT_STAGE;
        og_barrier_wait(empty + 8 * turn.stage, turn.phase);
        og_barrier_expect(full + 8 * turn.stage, OG_WEIGHT_STAGE);
#pragma unroll
        for (int i = 0; i < OG_PLANES * OG_HEIGHT; i++)
            og_copy_patch(to + i * OG_LEFT_BYTES, &a.left_map,
                          i / OG_HEIGHT * (int)a.left_plane + tile.group * (int)a.left_group +
                              tile.filter + i % OG_HEIGHT * 64,
                          box.at[0], box.at[1], box.at[2], box.at[3], full + 8 * turn.stage);
#pragma unroll
        for (int g = 0; g < OG_WARPGROUPS; g++)
            og_bring_unit(a, tile, box, units[g], to + OG_IMAGE_AT + g * OG_PLANES * OG_UNIT_BYTES,
                          full + 8 * turn.stage);
        og_advance<OG_STAGES>(turn);
    }
}

/* ---- the consumers --------------------------------------------------------------------------------- */

typedef og_held og_weight_sums[OG_HEIGHT];

/* Boxes across k whose 64 columns are so many bytes from the next: see og_describe(). */
OG_FN uint64_t og_describe_apart(uint32_t address, uint32_t bytes)
{
    return (uint64_t)1 << 62 | (uint64_t)64 << 32 | (uint64_t)(bytes / 16) << 16 |
           (uint64_t)((address & 0x3ffff) >> 4);
}

/* d = or += the sums of a plane of each factor. */
OG_FN void og_multiply_planes(uint32_t left, uint32_t patch, og_weight_sums &d, bool adds)
{
    const uint64_t x = og_describe<1>(left), y = og_describe_apart(patch, OG_APART_BYTES);
#pragma unroll
    for (int i = 0; i < OG_BOX_K / 16; i++)
#pragma unroll
        for (int h = 0; h < OG_HEIGHT; h++)
            og_multiply_16(d[h], x + h * (OG_LEFT_BYTES / 16) + 128 * i, y + 128 * i,
                           adds || i > 0);
}

/* The same of a stage; of several planes the products that count, the least first. */
OG_FN void og_multiply_weight_stage(uint32_t left, uint32_t patch, og_weight_sums &d, bool adds)
{
#pragma unroll
    for (int sum = OG_PLANES - 1; sum >= 0; sum--)
#pragma unroll
        for (int p = 0; p <= sum; p++)
            og_multiply_planes(left + p * OG_LEFT_PLANE, patch + (sum - p) * OG_UNIT_BYTES, d,
                               adds || p > 0 || sum < OG_PLANES - 1);
    og_products_commit();
}

/* A thread's sums go to its part's, or are added to them. */
OG_FN void og_put_sums(const og_args &a, const og_weight_tile &tile, int own, bool adds,
                       const og_weight_sums &d)
{
    const int warp = threadIdx.x / 32 % 4, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const int64_t line =
        ((int64_t)tile.part * a.groups + tile.group) * a.padded_rows + tile.filter + 16 * warp + g;
    float *to = (float *)a.sums + line * a.pitch + (tile.unit + own) * (int64_t)OG_WIDTH + 2 * t;
    if (tile.unit + own >= a.units)
        return;
#pragma unroll
    for (int i = 0; i < OG_HEIGHT * OG_HELD / 2; i++) {
        const int h = i / (OG_HELD / 2), j = i % (OG_HELD / 2);
        float2 *at = (float2 *)(to + (64 * h + 8 * (j % 2)) * (int64_t)a.pitch + 8 * (j / 2));
        float2 sum = make_float2(d[h][2 * j], d[h][2 * j + 1]);
        if (adds) {
            const float2 before = *at;
            sum = make_float2(before.x + sum.x, before.y + sum.y);
        }
        *at = sum;
    }
}

struct og_weight_consumer {
    uint32_t stages, full, empty;
    og_ring_turn turn;
    uint32_t before; /* the stage that was multiplied last */
};

OG_FN void og_release_weight_stage(const og_weight_consumer &c, uint32_t stage)
{
    if (threadIdx.x % 32 == 0)
        og_barrier_arrive(c.empty + 8 * stage);
}

/* Begins to multiply the next stage. */
OG_FN void og_begin_stage(og_weight_consumer &c, og_weight_sums &d, bool adds)
{
    const uint32_t at = c.stages + c.turn.stage * OG_WEIGHT_STAGE;
    const uint32_t own = threadIdx.x / 128 - 1;
    og_barrier_wait(c.full + 8 * c.turn.stage, c.turn.phase);
    og_products_fence();
    og_multiply_weight_stage(at, at + OG_IMAGE_AT + own * OG_PLANES * OG_UNIT_BYTES, d, adds);
}

OG_FN void og_end_weight_stages(og_weight_consumer &c, og_weight_sums &d)
{
    og_products_wait<0>();
    og_release_weight_stage(c, c.before);
#pragma unroll
    for (int h = 0; h < OG_HEIGHT; h++)
        og_pin(d[h]);
}

#if OG_PLANES > 1

/* The sums of so many boxes: each is a chain. */
OG_FN void og_sum_boxes(og_weight_consumer &c, int boxes, og_weight_sums &z)
{
#pragma unroll
    for (int i = 0; i < OG_HEIGHT * OG_HELD; i++)
        z[i / OG_HELD][i % OG_HELD] = -0.0f; /* changes no sum */
#pragma unroll 1
    for (int box = 0; box < boxes; box++) {
        og_weight_sums d;
        og_begin_stage(c, d, false);
        c.before = c.turn.stage;
        og_advance<OG_STAGES>(c.turn);
        og_end_weight_stages(c, d);
#pragma unroll
        for (int i = 0; i < OG_HEIGHT * OG_HELD; i++)
            z[i / OG_HELD][i % OG_HELD] += d[i / OG_HELD][i % OG_HELD];
    }
}

#else

/* The sums of so many boxes, one chain. */
OG_FN void og_sum_boxes(og_weight_consumer &c, int boxes, og_weight_sums &z)
{
    for (int box = 0; box < boxes; box++) {
        og_begin_stage(c, z, box > 0);
        og_products_wait<1>();
        if (box > 0)
            og_release_weight_stage(c, c.before);
        c.before = c.turn.stage;
        og_advance<OG_STAGES>(c.turn);
    }
    og_end_weight_stages(c, z);
}

#endif

OG_FN void og_consume_weights(const og_args &a, uint32_t stages, uint32_t full, uint32_t empty)
{
    const og_weight_tile tile = og_find_weight_tile(a);
    og_weight_consumer c = {stages, full, empty, {0, 0}, 0};
    og_await_launch(); /* sums are nobody else's any more */
    const int chain = (int)a.chain_boxes;
    for (int first = tile.first; first < tile.end; first += chain) {
        const int boxes = tile.end - first < chain ? tile.end - first : chain;
        og_weight_sums z;
        og_sum_boxes(c, boxes, z);
        og_put_sums(a, tile, threadIdx.x / 128 - 1, first > tile.first, z);
    }
}

extern "C" __global__ void __launch_bounds__(OG_WEIGHT_THREADS, 1)
    og_multiply_weights(const __grid_constant__ og_args a)
{
    extern __shared__ __align__(1024) char og_shared[];
    const uint32_t base = (uint32_t)__cvta_generic_to_shared(og_shared);
    const uint32_t full = base + OG_WEIGHT_BARRIERS_AT, empty = full + 8 * OG_STAGES;
    if (base % 1024)
        __trap(); /* the swizzle is by address */
    for (int i = 0; threadIdx.x == 0 && i < OG_STAGES; i++) {
        og_barrier_init(full + 8 * i, 1);
        og_barrier_init(empty + 8 * i, 4 * OG_WARPGROUPS); /* warps that read */
    }
    og_publish_barriers();
    __syncthreads();
    og_admit_next();
    if (threadIdx.x < 128) {
        og_give_registers<40>();
        if (threadIdx.x == 0)
            og_produce_weights(a, base, full, empty);
    } else {
        og_take_registers<OG_OWN_REGISTERS>();
        og_consume_weights(a, base, full, empty);
    }
}

#else /* where there are no such instructions, the kernel is never asked */

OG_KERNEL(og_multiply_weights, OG_WEIGHT_THREADS)
{
    __trap();
}

#endif
