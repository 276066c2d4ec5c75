/* SPDX-License-Identifier: MIT
 *
 * cuda_emit_hopper_weights.c - a convolution's gradient by its weight, on Hopper's tensor
 * cores: the launches around hopper_weights.cuh.
 *
 *     og_lay_weights       factors go to the scratch, filters and channels side by side, if they do not
 *                          lie so; of float32 as three bfloat16 each
 *     og_multiply_weights  sums of parts of k go there
 *     og_add_weight_parts  adds them up, and pass 0
 *     og_redo_weights      instead of both, if a factor's address is no multiple of 16
 */
#include "cuda/emit/cuda_choose.h"
#include "cuda/emit/cuda_emit_product.h"
#include "cuda/emit/cuda_weight_tile.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    LAY_THREADS = 256,
    LAY_PLACES = 64,
    LAY_CHANNELS = 64,
    LAID_NUMBERS = 18,       /* og_laid of hopper_lay_weights.cuh */
    ADD_ROWS = 4,            /* of a block of og_add_weight_parts */
    MOST_BLOCKS = INT32_MAX, /* more are refused */
    MANY_PARTS = 16
};

/* Of float32, and of halves two to a bank. */
static size_t lay_bytes(const og_weight_shape *s)
{
    return s->planes > 1 ? LAY_CHANNELS * (LAY_PLACES + 1) * sizeof(float)
                         : LAY_CHANNELS * (LAY_PLACES + 2) * sizeof(uint16_t);
}

static int64_t copy_elements(const og_weight_factor *f)
{
    int64_t count = f->pitch;
    for (int32_t i = 0; i < OG_WEIGHT_DIMS; i++)
        count = og_times(count, f->laid_extent[i]);
    return count;
}

static int64_t copy_blocks(const og_weight_factor *f, int64_t planes)
{
    const int64_t lines =
        og_times(f->laid_extent[0], og_times(f->laid_extent[1], f->laid_extent[2]));
    return og_times(lines, og_times(og_divide_up(f->laid_extent[3], LAY_PLACES),
                                    og_divide_up(f->pitch / planes, LAY_CHANNELS)));
}

/* Threads that share the parts of a sum: some, where there are many. */
static int32_t add_lanes(const og_weight_shape *s)
{
    return s->parts >= MANY_PARTS ? OG_WEIGHT_ADD_LANES : 1;
}

static int64_t padded_rows(const og_weight_shape *s)
{
    return s->row_blocks * s->height * 64;
}

/* Columns of a row of sums. */
static int64_t pitch_of(const og_weight_shape *s)
{
    return og_times(s->column_blocks * s->warpgroups, (int64_t)s->sixtyfours * 64);
}

/* ---- arguments ------------------------------------------------------------------------------- */

/* A factor, or its copy, as TMA has it. extents: of its dims; lines: of a box along dim 2. */
static og_cuda_map map_of(const og_weight_shape *s, const og_weight_factor *f, int32_t buffer,
                          const int64_t *extents, const int64_t *steps, int64_t lines)
{
    const og_weight_dim *dims = s->dims;
    return (og_cuda_map){.buffer = f->is_laid ? OG_CUDA_SCRATCH : buffer,
                         .offset = f->is_laid ? 0 : (size_t)f->offset * sizeof(uint16_t),
                         .dtype = OG_FLOAT16,
                         .columns = f->is_laid ? f->pitch : s->groups * f->channels,
                         .rows = extents[0],
                         .depth = extents[1],
                         .pitch_bytes = f->map_stride[0] * 2,
                         .slab_bytes = f->map_stride[1] * 2,
                         .box_columns = 64,
                         .box_rows = dims[0].box,
                         .box_depth = dims[1].box,
                         .rows_between = (int32_t)steps[0] - 1,
                         .depth_between = (int32_t)steps[1] - 1,
                         .more_between = (int32_t)steps[2] - 1,
                         .more = 2,
                         .more_extent = {extents[2], extents[3]},
                         .more_bytes = {f->map_stride[2] * 2, f->map_stride[3] * 2},
                         .more_box = (int32_t)lines,
                         .fetches_256 = true};
}

/* Maps come first: they are aligned more than all others. */
static void add_maps(og_cuda_emitter *e, const og_weight_shape *s)
{
    const og_product *product = &e->kernel->products[0];
    const int64_t one[OG_WEIGHT_DIMS] = {1, 1, 1, 1};
    int64_t places[OG_WEIGHT_DIMS], extents[OG_WEIGHT_DIMS], steps[OG_WEIGHT_DIMS];
    for (int32_t i = 0; i < OG_WEIGHT_DIMS; i++) {
        places[i] = s->dims[i].places;
        extents[i] = s->dims[i].extent;
        steps[i] = s->dims[i].step;
    }
    const int64_t lines = s->dims[OG_WEIGHT_SLIDES].box,
                  patch = lines + (s->slides ? (s->sixtyfours - 1) * s->shift : 0);
    const og_cuda_map left = map_of(s, &s->left, product->left.buffer, places, one, lines);
    const og_cuda_map image = map_of(s, &s->image, product->right.buffer, extents, steps, patch);
    og_cuda_map *left_at = og_cuda_add_map(e, "left_map", &left);
    og_cuda_map *image_at = og_cuda_add_map(e, "image_map", &image);
    const size_t left_copy = og_cuda_add_region(
        e, "void", "left_copy", s->left.is_laid ? og_times(copy_elements(&s->left), 2) : 0);
    const size_t image_copy = og_cuda_add_region(
        e, "void", "image_copy", s->image.is_laid ? og_times(copy_elements(&s->image), 2) : 0);
    if (s->left.is_laid)
        left_at->offset = left_copy;
    if (s->image.is_laid)
        image_at->offset = image_copy;
}

/* og_laid of a factor. */
static void add_laid(og_cuda_emitter *e, const og_weight_factor *f, const char *name,
                     int64_t planes, int64_t folded, const og_weight_dim *fold)
{
    const int64_t *extent = f->laid_extent, *stride = f->laid_stride;
    const int64_t numbers[LAID_NUMBERS] = {
        extent[0],         extent[1], extent[2],   extent[3],       stride[0],   stride[1],
        stride[2],         stride[3], f->stride,   f->group_stride, f->channels, f->map_group,
        f->pitch / planes, folded,    fold->start, fold->step,      fold->reach, fold->extent};
    og_cuda_add_indices(e, name, numbers, LAID_NUMBERS);
}

/* a.columns: what a tap along each dim, one that is a channel, and a channel add to the number of a
 * column of the product. */
static void add_columns(og_cuda_emitter *e, const og_weight_shape *s)
{
    const og_kernel *kernel = e->kernel;
    int64_t step[OG_MAX_RANK], columns[OG_WEIGHT_DIMS + 2] = {0}, next = 1;
    for (int32_t d = kernel->space.rank - 1; d >= kernel->space.rank - kernel->matrices.n_rank;
         d--) {
        step[d] = next;
        next = og_times(next, d + 1 == kernel->space.rank ? og_cuda_line_of(kernel)
                                                          : kernel->space.extent[d]);
    }
    for (int32_t i = 0; i < OG_WEIGHT_DIMS; i++)
        if (s->dims[i].n_dim >= 0)
            columns[i] = step[s->dims[i].n_dim];
    if (s->folded > 1)
        columns[OG_WEIGHT_DIMS] = step[s->fold.n_dim];
    columns[OG_WEIGHT_DIMS + 1] = step[s->channel_dim];
    og_cuda_add_indices(e, "columns", columns, OG_WEIGHT_DIMS + 2);
}

/* og_step_filter() and so on: moves along each dim of the result. */
static void add_steps(og_cuda_emitter *e, const og_weight_shape *s)
{
    static const char *const names[] = {"og_step_tap0", "og_step_tap1", "og_step_tap2",
                                        "og_step_tap3"};
    const int32_t filter_dim = e->kernel->matrices.batch_rank;
    for (int32_t i = 0; i < OG_WEIGHT_DIMS; i++) {
        const int32_t dim = s->dims[i].n_dim;
        og_cuda_add_seek_range(e, names[i], dim < 0 ? 0 : dim, dim + 1);
    }
    og_cuda_add_seek_range(e, "og_step_fold", s->folded > 1 ? s->fold.n_dim : 0,
                           s->folded > 1 ? s->fold.n_dim + 1 : 0);
    og_cuda_add_seek_range(e, "og_step_channel", s->channel_dim, s->channel_dim + 1);
    og_cuda_add_seek_range(e, "og_step_filter", filter_dim, filter_dim + 1);
    og_cuda_add_seek_range(e, "og_step_group", 0, s->group_dim + 1);
}

static void add_arguments(og_cuda_emitter *e, const og_weight_shape *s)
{
    const og_product *product = &e->kernel->products[0];
    int64_t taps[OG_WEIGHT_DIMS], starts[OG_WEIGHT_DIMS], reaches[OG_WEIGHT_DIMS],
        boxes[OG_WEIGHT_DIMS];
    for (int32_t i = 0; i < OG_WEIGHT_DIMS; i++) {
        taps[i] = s->dims[i].taps;
        starts[i] = s->dims[i].start;
        reaches[i] = s->dims[i].reach;
        boxes[i] = s->dims[i].boxes;
    }
    add_maps(e, s);
    og_cuda_add_region(e, "void", "sums",
                       og_times(og_times(s->parts * s->groups, padded_rows(s)),
                                og_times(pitch_of(s), (int64_t)sizeof(float))));
    og_cuda_add_pointer(e, "const og_element", "left_from", product->left.buffer,
                        og_cuda_offset_of(&product->left));
    og_cuda_add_pointer(e, "const og_element", "image_from", product->right.buffer,
                        og_cuda_offset_of(&product->right));
    og_cuda_add_index(e, "left_blocks",
                      s->left.is_laid ? og_min(copy_blocks(&s->left, s->planes), MOST_BLOCKS) : 0);
    if (s->left.is_laid)
        add_laid(e, &s->left, "left_laid", s->planes, 1, &s->fold);
    if (s->image.is_laid)
        add_laid(e, &s->image, "image_laid", s->planes, s->folded, &s->fold);
    og_cuda_add_index(e, "groups", s->groups);
    og_cuda_add_index(e, "left_group", s->left.map_group);
    og_cuda_add_index(e, "left_plane", s->left.map_group * s->groups);
    og_cuda_add_index(e, "image_plane", s->image.map_group * s->groups);
    og_cuda_add_index(e, "image_group", s->image.map_group);
    og_cuda_add_index(e, "channels", s->image.channels);
    og_cuda_add_index(e, "folded", s->folded);
    og_cuda_add_indices(e, "taps", taps, OG_WEIGHT_DIMS);
    og_cuda_add_indices(e, "starts", starts, OG_WEIGHT_DIMS);
    og_cuda_add_indices(e, "reaches", reaches, OG_WEIGHT_DIMS);
    og_cuda_add_indices(e, "dim_boxes", boxes, OG_WEIGHT_DIMS);
    add_columns(e, s);
    og_cuda_add_index(e, "tap_step", s->tap_step);
    og_cuda_add_index(e, "classes", s->classes);
    og_cuda_add_index(e, "slide_units", s->slide_units);
    og_cuda_add_index(e, "units", s->units);
    og_cuda_add_index(e, "column_blocks", s->column_blocks);
    og_cuda_add_index(e, "row_blocks", s->row_blocks);
    og_cuda_add_index(e, "boxes", s->boxes);
    og_cuda_add_index(e, "parts", s->parts);
    og_cuda_add_index(e, "part_boxes", s->part_boxes);
    og_cuda_add_index(e, "chain_boxes", s->chain_boxes);
    og_cuda_add_index(e, "padded_rows", padded_rows(s));
    og_cuda_add_index(e, "pitch", pitch_of(s));
    og_cuda_add_index(e, "overhangs", s->overhangs);
    og_cuda_add_product_parts(e);
    add_steps(e, s);
}

static void add_numbers(og_cuda_emitter *e, const og_weight_shape *s)
{
    const bool splits = s->planes > 1;
    const char *type = splits || e->kernel->products[0].right.dtype == OG_BFLOAT16 ? "bf16" : "f16";
    const og_cuda_number numbers[] = {{"OG_PRODUCTS", 1},
                                      {"OG_PLANES", s->planes},
                                      {"OG_HEIGHT", s->height},
                                      {"OG_SIXTYFOURS", s->sixtyfours},
                                      {"OG_WIDTH", 64 * s->sixtyfours},
                                      {"OG_WARPGROUPS", s->warpgroups},
                                      {"OG_SLIDES", s->slides},
                                      {"OG_BOX_0", s->dims[0].box},
                                      {"OG_BOX_1", s->dims[1].box},
                                      {"OG_BOX_2", s->dims[2].box},
                                      {"OG_STEP_0", s->dims[0].step},
                                      {"OG_STEP_1", s->dims[1].step},
                                      {"OG_STEP_2", s->dims[2].step},
                                      {"OG_STEP_3", s->dims[3].step},
                                      {"OG_SHIFT", s->shift},
                                      {"OG_STAGES", s->stages},
                                      {"OG_ADD_LANES", add_lanes(s)},
                                      {"OG_OWN_REGISTERS", s->warpgroups == 3 ? 152 : 232},
                                      {"OG_LAYS_LEFT", s->left.is_laid},
                                      {"OG_LAYS_IMAGE", s->image.is_laid},
                                      {"OG_FOLDS", s->folded > 1},
                                      {"OG_SHARED_BYTES", s->shared_bytes},
                                      {"OG_LAY_BYTES", (int64_t)lay_bytes(s)},
                                      {"OG_REDUCES", 0},
                                      {"OG_TERMS", 0},
                                      {"OG_LINES", 0},
                                      {"OG_ENDS_ROWS", 0},
                                      {0}};
    og_text_add(&e->numbers, "typedef float og_number;\ntypedef %s og_element;\n",
                splits ? "float" : "uint16_t");
    og_cuda_add_defines(&e->numbers, numbers);
    og_text_add(&e->numbers,
                "#define OG_MMA_TYPE \"%s\"\n#define OG_ACROSS \"1, 1\"\n"
                "OG_FN float og_widen(og_element x)\n{\n"
                "    return %s%s(x);\n}\n",
                type, splits ? "" : "og_f32_from_", splits ? "" : type);
}

/* ---- entry ----------------------------------------------------------------------------------- */

/* A source that is to serve every size has no tiles that follow from one. */
ogive_status og_cuda_refuse_hopper_weights(og_cuda_emitter *e, const char **why)
{
    const og_cuda_product_facts facts = og_cuda_product_facts_of(e->kernel);
    og_weight_shape s;
    *why = e->wishes->numbers ? "" : og_cuda_refuse_by_places(&facts, e->limits, e->wishes);
    if (!*why && e->kernel->space.n_reduced)
        *why = "a reduction of its result";
    if (!*why)
        *why = og_cuda_see_weights(e->kernel, &s);
    return OGIVE_OK;
}

/* Blocks that copy a factor. */
static int64_t lay_blocks(const og_weight_shape *s, const og_weight_factor *f)
{
    return f->is_laid ? copy_blocks(f, s->planes) : 0;
}

static ogive_status add_lay(og_cuda_emitter *e, const og_weight_shape *s)
{
    const int64_t blocks = og_min(lay_blocks(s, &s->left), INT64_MAX / 2) +
                           og_min(lay_blocks(s, &s->image), INT64_MAX / 2);
    if (!blocks)
        return OGIVE_OK;
    OG_TRY(og_cuda_add_launch(e, "og_lay_weights", -1, blocks, LAY_THREADS));
    e->out->launches[0].shared_bytes = lay_bytes(s);
    return OGIVE_OK;
}

static ogive_status add_launches(og_cuda_emitter *e, const og_weight_shape *s)
{
    const int64_t items = og_times(s->parts * s->groups, s->column_blocks * s->row_blocks);
    const int64_t ends = og_times(s->groups * og_divide_up(s->left.channels, ADD_ROWS),
                                  og_divide_up(pitch_of(s), LAY_THREADS / add_lanes(s)));
    OG_TRY(og_cuda_make_launches(e, 4));
    OG_TRY(add_lay(e, s));
    OG_TRY(og_cuda_add_launch(e, "og_multiply_weights", -1, items, 128 * (1 + s->warpgroups)));
    og_cuda_launch *tensor = og_cuda_overlap_last(e);
    OG_TRY(og_cuda_copy_maps(e, &tensor->maps));
    tensor->map_count = e->arguments.map_count;
    tensor->when = OG_CUDA_IF_MAPPED;
    tensor->shared_bytes = (size_t)s->shared_bytes;
    OG_TRY(og_cuda_add_launch(e, "og_add_weight_parts", -1, ends, LAY_THREADS));
    og_cuda_launch *adds = og_cuda_overlap_last(e);
    adds->maps = tensor->maps;
    adds->map_count = tensor->map_count;
    adds->when = OG_CUDA_IF_MAPPED;
    if (s->left.is_laid && s->image.is_laid)
        return OGIVE_OK;
    OG_TRY(og_cuda_add_launch(e, "og_redo_weights", -1, ends, LAY_THREADS));
    og_cuda_launch *redo = adds + 1;
    redo->maps = tensor->maps;
    redo->map_count = tensor->map_count;
    redo->when = OG_CUDA_IF_UNMAPPED;
    return OGIVE_OK;
}

/* How far from its first element a factor is read. */
static int64_t reach_of(const og_kernel *kernel, const og_access *access, int side)
{
    const og_product *product = &kernel->products[0];
    int64_t reach = og_cuda_reach_of(&kernel->space, access);
    if (!product->k_dims.rank)
        return og_min(reach, INT64_MAX / 8) +
               og_min(INT64_MAX / 8, og_times(product->k, llabs(side ? product->right_k_stride
                                                                     : product->left_k_stride)));
    for (int32_t d = 0; d < product->k_dims.rank; d++)
        reach = og_min(reach, INT64_MAX / 8) +
                og_min(INT64_MAX / 8,
                       og_times(product->k_dims.extent[d], llabs(product->k_dims.stride[side][d])));
    for (int32_t w = 0; w < access->window_count; w++)
        reach = og_min(reach, INT64_MAX / 8) +
                og_min(INT64_MAX / 8,
                       og_times(llabs(access->windows[w].start) + access->windows[w].extent,
                                2 * llabs(access->windows[w].stride)));
    return reach;
}

/* Are there elements beyond 31 bits? What is counted otherwise is below 30. */
static bool needs_wide(const og_kernel *kernel, const og_weight_shape *s)
{
    const int64_t most = INT32_MAX - (1 << 16);
    const og_product *product = &kernel->products[0];
    bool is = product->k > most || og_times(s->groups, padded_rows(s)) > most ||
              reach_of(kernel, &product->left, 0) > most ||
              reach_of(kernel, &product->right, 1) > most;
    for (int32_t i = 0; i < kernel->access_count; i++)
        is |= og_cuda_reach_of(&kernel->space, &kernel->accesses[i]) > most;
    return is;
}

ogive_status og_cuda_emit_hopper_weights(og_cuda_emitter *e)
{
    og_weight_shape s;
    og_cuda_see_weights(e->kernel, &s);
    e->out->tensor_products = og_weight_products(s.planes);
    e->out->units = s.error_units;
    e->vector = 1;
    e->threads = LAY_THREADS;
    e->wide = needs_wide(e->kernel, &s);
    add_numbers(e, &s);
    add_arguments(e, &s);
    og_cuda_include(&e->body, "hopper_weights");
    OG_TRY(og_cuda_name_body(
        e, "gradient by a weight%s on tensor cores, tiles of %d x %d, k in %d%s%s",
        s.planes > 1 ? ", float32 as three bfloat16" : "", (int)s.height * 64,
        (int)(s.sixtyfours * 64 * s.warpgroups), (int)s.parts, s.parts == 1 ? " part" : " parts",
        s.left.is_laid || s.image.is_laid ? ", copied" : ""));
    return add_launches(e, &s);
}
