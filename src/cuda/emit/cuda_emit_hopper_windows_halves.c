/* SPDX-License-Identifier: MIT
 *
 * cuda_emit_hopper_windows_halves.c - convolutions of float16 and bfloat16 on Hopper's tensor cores:
 * the launches around hopper_windows_halves.cuh.
 *
 *     og_lay_half_image     the image goes to the scratch, channels side by side, if they do not lie so
 *     og_lay_half_filters   filters go there, in the kernel's order of k
 *     og_convolve_halves   the convolution and pass 0
 *     og_redo_convolution  instead, if the image's address is no multiple of 16
 */
#include "cuda/emit/cuda_choose.h"
#include "cuda/emit/cuda_emit_product.h"
#include "cuda/emit/cuda_window_halves.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    THREADS = 3 * 128,
    CHAIN = 512, /* k that tensor cores sum of many: cuda_emit_hopper_halves.c */
    LAY_THREADS = 256,
    LAY_PLACES = 64,
    LAY_CHANNELS = 64,
    LAY_SHARED_BYTES = LAY_CHANNELS * (LAY_PLACES + 2) * 2
};

/* Elements of the image's copy, and blocks that make it. */
static int64_t copy_lines(const og_window_halves *s)
{
    return og_times(s->of.batch, og_times(s->of.dims[0].extent, s->of.dims[1].extent));
}

static int64_t copy_elements(const og_window_halves *s)
{
    return og_times(copy_lines(s), og_times(s->of.dims[2].extent, s->copy_pitch));
}

static int64_t copy_blocks(const og_window_halves *s)
{
    return og_times(copy_lines(s), og_times(og_divide_up(s->of.dims[2].extent, LAY_PLACES),
                                            og_divide_up(s->copy_pitch, LAY_CHANNELS)));
}

/* How far apart elements of the image may be. */
static int64_t image_reach(const og_window_halves *s)
{
    const og_window_shape *of = &s->of;
    int64_t reach = og_times(of->batch, llabs(of->batch_stride));
    for (int i = 0; i < OG_WINDOW_DIMS; i++)
        reach = og_min(reach, INT64_MAX / 8) +
                og_times(of->dims[i].extent + llabs(of->dims[i].start), llabs(of->dims[i].stride));
    return og_min(reach, INT64_MAX / 8) + og_times(of->groups * of->channels, of->channel_stride);
}

/* ---- arguments ------------------------------------------------------------------------------- */

/* Elements from one of a dim to the next, of the image or its copy; 8 where there is one. */
static int64_t step_of(const og_window_halves *s, int i)
{
    const og_image_dim *dim = &s->of.dims[i];
    if (!s->copies)
        return dim->extent > 1 ? dim->stride : 8 * og_divide_up(s->of.groups * s->of.channels, 8);
    int64_t step = s->copy_pitch;
    for (int d = OG_WINDOW_DIMS - 1; d > i; d--)
        step *= s->of.dims[d].extent;
    return step;
}

/* The image, or its copy, as TMA has it. */
static og_cuda_map image_map(const og_cuda_emitter *e, const og_window_halves *s)
{
    const og_window_shape *of = &s->of;
    const og_image_dim *dims = of->dims;
    const int32_t *box = s->patches ? s->patch : s->tile;
    const int64_t batch = s->copies       ? step_of(s, 0) * dims[0].extent
                          : of->batch > 1 ? of->batch_stride
                                          : 8;
    return (og_cuda_map){.buffer =
                             s->copies ? OG_CUDA_SCRATCH : e->kernel->products[0].right.buffer,
                         .offset = s->copies ? 0 : (size_t)of->offset * sizeof(uint16_t),
                         .dtype = OG_FLOAT16,
                         .columns = s->copies ? s->copy_pitch : of->groups * of->channels,
                         .rows = dims[2].extent,
                         .depth = dims[1].extent,
                         .pitch_bytes = step_of(s, 2) * 2,
                         .slab_bytes = step_of(s, 1) * 2,
                         .box_columns = s->line_channels,
                         .box_rows = box[2],
                         .box_depth = box[1],
                         .rows_between = (int32_t)dims[2].step - 1,
                         .depth_between = (int32_t)dims[1].step - 1,
                         .more_between = (int32_t)dims[0].step - 1,
                         .more = 2,
                         .more_extent = {dims[0].extent, of->batch},
                         .more_bytes = {step_of(s, 0) * 2, batch * 2},
                         .more_box = box[0],
                         .last_box = s->tile_b,
                         .swizzle_bytes = s->line_channels * 2,
                         .fetches_256 = true};
}

static og_cuda_map filter_map(const og_window_halves *s)
{
    return (og_cuda_map){.buffer = OG_CUDA_SCRATCH,
                         .dtype = OG_FLOAT16,
                         .columns = s->k_padded,
                         .rows = s->of.filters,
                         .depth = s->of.groups,
                         .pitch_bytes = s->k_padded * 2,
                         .slab_bytes = s->of.filters * s->k_padded * 2,
                         .box_columns = 64,
                         .box_rows = s->filters,
                         .box_depth = 1,
                         .fetches_256 = true};
}

/* Maps come first: they are aligned more than all others. */
static void add_maps(og_cuda_emitter *e, const og_window_halves *s)
{
    const og_cuda_map image = image_map(e, s), filters = filter_map(s);
    og_cuda_map *image_at = og_cuda_add_map(e, "image_map", &image);
    og_cuda_map *filters_at = og_cuda_add_map(e, "filter_map", &filters);
    filters_at->offset =
        og_cuda_add_region(e, "void", "filters", s->of.groups * s->of.filters * s->k_padded * 2);
    const size_t copy =
        og_cuda_add_region(e, "void", "image_copy", s->copies ? og_times(copy_elements(s), 2) : 0);
    if (s->copies)
        image_at->offset = copy;
}

static void add_copy_indices(og_cuda_emitter *e, const og_window_halves *s)
{
    og_cuda_add_index(e, "copy_group", s->copy_group);
    og_cuda_add_index(e, "copy_pitch", s->copy_pitch);
    og_cuda_add_index(e, "copy_width", s->of.dims[2].extent);
    og_cuda_add_index(e, "image_depth", s->of.dims[0].extent);
    og_cuda_add_index(e, "image_height", s->of.dims[1].extent);
    og_cuda_add_index(e, "image_width", s->line.extent);
    og_cuda_add_index(e, "fold_step", s->line.step);
    og_cuda_add_index(e, "fold_start", s->line.start);
    og_cuda_add_index(e, "fold_reach", s->line.reach);
    og_cuda_add_index(e, "image_b", s->of.batch_stride);
    og_cuda_add_index(e, "image_c", s->of.channel_stride);
    for (int i = 0; i < OG_WINDOW_DIMS; i++)
        og_cuda_add_dim_index(e, "image", i, s->of.dims[i].stride);
}

/* og_step_depth() and so on: moves along each dim of the result. */
static void add_steps(og_cuda_emitter *e, const og_window_halves *s)
{
    static const char *const names[] = {"og_step_depth", "og_step_height", "og_step_width"};
    const og_matrices *of = &e->kernel->matrices;
    const int32_t rank = e->kernel->space.rank;
    const bool has_groups = s->of.groups > 1, has_batch = of->batch_rank == 1 + has_groups;
    for (int32_t i = 0; i < OG_WINDOW_DIMS; i++) {
        const int32_t dim = rank - OG_WINDOW_DIMS + i;
        const bool is_there = i >= OG_WINDOW_DIMS - of->n_rank;
        og_cuda_add_seek_range(e, names[i], is_there ? dim : 0, is_there ? dim + 1 : 0);
    }
    og_cuda_add_seek_range(e, "og_step_batch", 0, has_batch);
    og_cuda_add_seek_range(e, "og_step_group", of->batch_rank - has_groups, of->batch_rank);
    og_cuda_add_seek_range(e, "og_step_filters", of->batch_rank, of->batch_rank + of->m_rank);
}

static void add_arguments(og_cuda_emitter *e, const og_window_halves *s)
{
    const og_window_shape *of = &s->of;
    add_maps(e, s);
    og_cuda_add_pointer(e, "const og_half", "image", e->kernel->products[0].right.buffer,
                        (size_t)of->offset * sizeof(uint16_t));
    og_cuda_add_index(e, "filter_rows", of->groups * of->filters);
    og_cuda_add_index(e, "k_padded", s->k_padded);
    og_cuda_add_index(e, "pieces", s->pieces);
    og_cuda_add_index(e, "chunks", s->chunks);
    og_cuda_add_index(e, "channels", of->channels);
    og_cuda_add_index(e, "folded", s->folded);
    og_cuda_add_index(e, "all_taps", s->all_taps);
    og_cuda_add_index(e, "groups", of->groups);
    og_cuda_add_index(e, "map_group", s->copies ? s->copy_group : of->channels);
    og_cuda_add_index(e, "items", s->items);
    og_cuda_add_index(e, "m_tiles", s->row_tiles);
    og_cuda_add_index(e, "batch", of->batch);
    og_cuda_add_index(e, "depth", of->dims[0].places);
    og_cuda_add_index(e, "height", of->dims[1].places);
    og_cuda_add_index(e, "width", of->dims[2].places);
    og_cuda_add_index(e, "line_pitch", og_cuda_line_of(e->kernel));
    og_cuda_add_index(e, "tiles_b", s->tiles_b);
    for (int i = 0; i < OG_WINDOW_DIMS; i++) {
        const og_image_dim *dim = &of->dims[i];
        og_cuda_add_dim_index(e, "tiles", i, s->tiles[i]);
        og_cuda_add_dim_index(e, "start", i, dim->start);
        og_cuda_add_dim_index(e, "taps", i, dim->taps);
        og_cuda_add_dim_index(e, "reach", i, dim->reach);
    }
    if (s->copies)
        add_copy_indices(e, s);
    if (s->is_last)
        og_cuda_add_product_parts_across(e);
    else
        og_cuda_add_product_parts(e);
    add_steps(e, s);
}

/* Quads of a thread that pass 0 has at once: fewer where it is costly, or reads at each place and sums
 * leave few registers. */
static int64_t count_quads(const og_cuda_emitter *e, const og_window_halves *s)
{
    const og_kernel *kernel = e->kernel;
    bool reads = false;
    for (int32_t i = 0; i < kernel->access_count; i++)
        reads |= !kernel->accesses[i].is_store && !e->is_kept[i];
    if (og_cuda_is_costly_pass(&kernel->passes[0]))
        return 2;
    return reads && s->height * s->width > 128 ? 4 : 8;
}

static void add_numbers(og_cuda_emitter *e, const og_window_halves *s)
{
    const char *type = e->kernel->products[0].right.dtype == OG_BFLOAT16 ? "bf16" : "f16";
    const int64_t pieces = 64 / s->line_channels;
    const og_cuda_number numbers[] = {{"OG_PRODUCTS", 1},
                                      {"OG_LAST", s->is_last},
                                      {"OG_FILTER_ROWS", s->filter_rows},
                                      {"OG_WIDTH", s->width},
                                      {"OG_HEIGHT", s->height},
                                      {"OG_ALTERNATES", s->alternates},
                                      {"OG_KEEPS", s->keeps},
                                      {"OG_FOLDS", s->folded > 1},
                                      {"OG_LINE", s->line_channels},
                                      {"OG_TILE_B", s->tile_b},
                                      {"OG_TILE_D", s->tile[0]},
                                      {"OG_TILE_H", s->tile[1]},
                                      {"OG_TILE_W", s->tile[2]},
                                      {"OG_STEP_D", s->of.dims[0].step},
                                      {"OG_STEP_H", s->of.dims[1].step},
                                      {"OG_STEP_W", s->of.dims[2].step},
                                      {"OG_LONG", s->is_long},
                                      {"OG_CHAIN", CHAIN},
                                      {"OG_STAGES", s->stages},
                                      {"OG_FIRST", og_min(s->pieces, pieces)},
                                      {"OG_TAIL", (s->pieces - 1) % pieces + 1},
                                      {"OG_PATCHES", s->patches},
                                      {"OG_PATCH_D", s->patch[0]},
                                      {"OG_PATCH_H", s->patch[1]},
                                      {"OG_PATCH_W", s->patch[2]},
                                      {"OG_APART", s->apart},
                                      {"OG_PACKS", s->packs},
                                      {"OG_BLOCKS", s->keeps ? s->k_padded / 64 : 0},
                                      {"OG_QUADS_AT_ONCE", count_quads(e, s)},
                                      {"OG_COPIES_IMAGE", s->copies},
                                      {"OG_SHARED_BYTES", s->shared_bytes},
                                      {"OG_LAY_SHARED_BYTES", LAY_SHARED_BYTES},
                                      {"OG_REDUCES", 0},
                                      {"OG_TERMS", 0},
                                      {"OG_LINES", !s->is_last && e->kernel->matrices.n_rank > 1},
                                      {"OG_ENDS_ROWS", 0},
                                      {0}};
    og_text_add(&e->numbers, "typedef float og_number;\ntypedef uint16_t og_element;\n");
    og_cuda_add_defines(&e->numbers, numbers);
    og_text_add(&e->numbers,
                "#define OG_MMA_TYPE \"%s\"\n#define OG_ACROSS \"0, 0\"\n"
                "OG_FN float og_widen(og_element x)\n{\n"
                "    return og_f32_from_%s(x);\n}\n",
                type, type);
}

/* ---- entry ----------------------------------------------------------------------------------- */

ogive_status og_cuda_refuse_hopper_windows_halves(og_cuda_emitter *e, const char **why)
{
    const og_cuda_product_facts facts = og_cuda_product_facts_of(e->kernel);
    og_window_halves s;
    *why =
        facts.right == OG_FLOAT32 ? "" : og_cuda_refuse_convolution(&facts, e->limits, e->wishes);
    if (!*why && e->kernel->space.n_reduced)
        *why = "a reduction of its result";
    if (!*why)
        *why = og_cuda_see_window_halves(e->kernel, e->limits->multiprocessors, &s);
    return OGIVE_OK;
}

static ogive_status add_launches(og_cuda_emitter *e, const og_window_halves *s)
{
    const int64_t processors = og_max(1, e->limits->multiprocessors);
    const int64_t filters = og_times(s->of.groups * s->of.filters, s->k_padded);
    OG_TRY(og_cuda_make_launches(e, 4));
    if (s->copies) {
        OG_TRY(og_cuda_add_launch(e, "og_lay_half_image", -1, copy_blocks(s), LAY_THREADS));
        e->out->launches[0].shared_bytes = LAY_SHARED_BYTES;
    }
    OG_TRY(og_cuda_add_launch(e, "og_lay_half_filters", -1, og_divide_up(filters, 8 * LAY_THREADS),
                              LAY_THREADS));
    OG_TRY(og_cuda_add_launch(e, "og_convolve_halves", -1, og_min(s->items, processors), THREADS));
    og_cuda_launch *tensor = og_cuda_overlap_last(e);
    OG_TRY(og_cuda_copy_maps(e, &tensor->maps));
    tensor->map_count = e->arguments.map_count;
    tensor->when = OG_CUDA_IF_MAPPED;
    tensor->shared_bytes = (size_t)s->shared_bytes;
    if (s->copies)
        return OGIVE_OK;
    OG_TRY(og_cuda_add_launch(e, "og_redo_convolution", -1,
                              og_min(s->items, processors * OG_CUDA_REDO_BLOCKS), LAY_THREADS));
    og_cuda_launch *redo = tensor + 1;
    redo->maps = tensor->maps;
    redo->map_count = tensor->map_count;
    redo->when = OG_CUDA_IF_UNMAPPED;
    return OGIVE_OK;
}

/* Are there steps through the image, or elements of a line whose taps are folded, beyond 31 bits? What
 * copies it multiplies these in 64, but has them as indices. */
static bool has_far_steps(const og_window_halves *s)
{
    const int64_t most = INT32_MAX / 4;
    bool has = llabs(s->of.batch_stride) > most || llabs(s->of.channel_stride) > most ||
               s->line.extent > most || llabs(s->line.start) > most;
    for (int i = 0; i < OG_WINDOW_DIMS; i++)
        has |= llabs(s->of.dims[i].stride) > most;
    return has;
}

/* Are there elements, or numbers of tiles, beyond 31 bits? What TMA fetches is not counted. */
static bool needs_wide(const og_kernel *kernel, const og_window_halves *s)
{
    const int64_t most = INT32_MAX - (1 << 16);
    const og_product *product = &kernel->products[0];
    int64_t filter = og_cuda_reach_of(&kernel->space, &product->left);
    bool is = s->items > most || og_cuda_matrices_of(kernel).n > most || product->k > most;
    for (int32_t d = 0; d < product->k_dims.rank; d++)
        filter = og_min(filter, most) +
                 og_times(product->k_dims.extent[d], llabs(product->k_dims.stride[0][d]));
    for (int32_t i = 0; i < kernel->access_count; i++)
        is |= og_cuda_reach_of(&kernel->space, &kernel->accesses[i]) > most;
    return is || filter > most || (s->copies ? has_far_steps(s) : image_reach(s) > most);
}

ogive_status og_cuda_emit_hopper_windows_halves(og_cuda_emitter *e)
{
    og_window_halves s;
    og_cuda_see_window_halves(e->kernel, e->limits->multiprocessors, &s);
    if (og_times(s.of.groups * s.of.filters, s.k_padded) > INT64_MAX / 64)
        OG_FAIL(e->error, OGIVE_MEMORY, -1, "the filters' copy is larger than any memory");
    e->out->tensor_products = 1;
    e->vector = 4;
    e->threads = LAY_THREADS;
    e->packs = s.packs;
    e->wide = needs_wide(e->kernel, &s);
    if (s.is_last) {
        e->vector_dim = e->kernel->matrices.batch_rank;
        og_cuda_keep_filters(e);
    }
    add_numbers(e, &s);
    add_arguments(e, &s);
    og_cuda_include(&e->body, "hopper_windows_halves");
    OG_TRY(og_cuda_name_body(e, "convolution on tensor cores, tiles of %d x (%d, %d, %d, %d)%s%s%s",
                             (int)s.filters, (int)s.tile_b, (int)s.tile[0], (int)s.tile[1],
                             (int)s.tile[2], s.alternates ? ", two alternating" : "",
                             s.patches ? ", patches" : "", s.copies ? ", copied" : ""));
    return add_launches(e, &s);
}
