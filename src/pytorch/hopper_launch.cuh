/* SPDX-License-Identifier: MIT
 *
 * hopper_launch.cuh - the launches around hopper_float32.cuh, as cuda_emit_hopper_float32.c has
 * them, for sizes that are known when they are called. Before it comes the kernel's source, after
 * it og_fill(), which knows the formula's operands.
 */
#include "pytorch/hopper_call.cuh"
#include "pytorch/launch.cuh"
#include "pytorch/launch_maps.cuh"

static void og_fill(og_args &a, const og_hopper_call &c);

static og_divisor og_make_divisor(int64_t extent)
{
    const og_division by = og_divide_by(extent, OG_INDEX_BITS - 1);
    og_divisor divisor;
    divisor.extent = (og_index)extent;
    divisor.magic = (og_unsigned)by.magic;
    divisor.shift = by.shift;
    return divisor;
}

/* Operand n. */
template <class Args> static void og_bind(Args &a, const og_hopper_call &c, int n)
{
    a.p[n] = c.data[n];
    for (int d = 0; d < (int)(sizeof a.strides[0] / sizeof a.strides[0][0]); d++)
        a.strides[n][d] = (og_index)c.stride[n][d];
}

/* The scratch's parts; their bytes in all. */
template <class Args>
static int64_t og_place_scratch(Args &a, const og_hopper_shape *s, char *scratch)
{
    int64_t bytes = 0;
#define OG_REGION(name, count)                                                                     \
    a.name = scratch + bytes;                                                                      \
    bytes += ((count) + 63) / 64 * 64;
    OG_HOPPER_REGIONS(OG_REGION)
#if OG_REDUCES
    OG_REGION(sums0, s->rows * og_count_partials(s->runs) * (int64_t)sizeof(og_sums0::sums))
#endif
#if OG_TERMS
    OG_REGION(terms0, s->rows * og_count_partials(s->runs) * (int64_t)sizeof(og_terms0::sums))
#endif
    return bytes;
}

static int64_t og_count_boxes(int64_t lines, int64_t k)
{
    return og_count_parts(lines, OG_HOPPER_TURN) * og_count_parts(k, OG_HOPPER_TURN);
}

/* What comes before the product: factors as it wants them. */
static int og_prepare(og_args &a, const og_hopper_shape *s, void *stream)
{
    const int32_t lanes = og_split_lanes(s->x_rows, s->k_padded, s->multiprocessors);
    const int threads = og_split_threads(lanes);
    int error = 0;
    a.split_rows = (og_index)s->x_rows;
    a.split_lanes = (og_index)lanes;
#if OG_TURNS_W
    error = OG_LAUNCH(og_turn_w, og_count_boxes(s->batch * s->n, s->k), OG_HOPPER_TURN_THREADS,
                      OG_HOPPER_TURN_BYTES, false, stream, a);
#endif
#if OG_TURNS_X
    if (!error)
        error = OG_LAUNCH(og_turn_x, og_count_boxes(s->x_rows, s->k), OG_HOPPER_TURN_THREADS,
                          OG_HOPPER_TURN_BYTES, false, stream, a);
#endif
    return error ? error
                 : OG_LAUNCH(og_split, og_count_parts(s->x_rows, threads / lanes), threads, 0,
                             false, stream, a);
}

/* What comes behind it. */
static int og_conclude(og_args &a, const og_hopper_shape *s, void *stream)
{
    int64_t most = s->multiprocessors * OG_CUDA_REDO_BLOCKS;
    const int64_t items = og_hopper_redo_items(s);
    int error = 0;
#if OG_BY_SEGMENTS
    if (s->adds_first)
        error = OG_LAUNCH(og_add_segments, s->tiles * og_hopper_part_bytes(s) / (16 * 128), 128, 0,
                          true, stream, a);
    if (!error)
        error = OG_LAUNCH(og_join, s->tiles, 128 * s->groups,
                          og_hopper_shared_bytes(s) - og_hopper_ring_bytes(s), true, stream, a);
#endif
    if (!error)
        error = OG_LAUNCH(og_redo, items < most ? items : most, OG_CUDA_REDO_THREADS,
                          OG_CUDA_REDO_BYTES, true, stream, a);
#if OG_REDUCES
    if (!error)
        error = OG_LAUNCH(og_combine0, og_count_parts(s->rows, OG_COMBINE_THREADS / OG_COMBINERS),
                          OG_COMBINE_THREADS, 0, true, stream, a);
#endif
    return error;
}

/* A cudaError_t; or, without scratch, how many bytes of it there must be. */
extern "C" __attribute__((visibility("default"))) int64_t ogive_run(const og_hopper_call *c)
{
    const og_hopper_shape *s = &c->shape;
    og_args a = {};
    const int64_t bytes = og_place_scratch(a, s, (char *)c->scratch);
    if (!c->scratch)
        return bytes;
    og_fill(a, *c);
    a.x = c->x;
    a.w = c->w;
#define OG_SET(name, value) a.name = (og_index)(value);
    OG_HOPPER_INDICES(OG_SET)
#if OG_REDUCES
    a.chunks = og_make_divisor(s->runs);
    a.partials = (og_index)og_count_partials(s->runs);
#endif
    int error = og_make_map(a.w_map, og_hopper_w_map(s),
                            s->fetch == OG_CUDA_TURNED ? a.w_copy : (const void *)c->w);
    if (!error)
        error = og_make_map(a.x_map, og_hopper_x_map(s), a.x_pairs);
    if (!error)
        error = og_prepare(a, s, c->stream);
    if (!error) /* w comes while x is split */
        error = OG_LAUNCH(og_multiply_float32, og_hopper_blocks(s), 128 * (s->groups + 1),
                          og_hopper_shared_bytes(s), true, c->stream, a);
    return error ? error : og_conclude(a, s, c->stream);
}
