/* SPDX-License-Identifier: MIT
 *
 * cuda_emit_hopper_windows.c - convolutions of float32 on Hopper's tensor cores: the launches around
 * hopper_windows.cuh.
 *
 *     og_lay_image     the image goes to the scratch, if TMA cannot fetch it as it lies
 *     og_lay_filters   filters go there, in the kernel's order of k
 *     og_split         and become pairs of float16
 *     og_multiply_windows  the convolution and pass 0
 *     og_redo_windows  what tensor cores cannot hold, in plan.h's order; mostly nothing
 */
#include "cuda/emit/cuda_choose.h"
#include "cuda/emit/cuda_emit_product.h"
#include "cuda/emit/cuda_window_tile.h"

#include <stdio.h>
#include <stdlib.h>

enum { LAY_THREADS = 256 };

/* Elements of a line of the image's copy: whole fours. */
static int64_t line_of(const og_window_shape *s)
{
    return og_divide_up(s->dims[2].extent, 4) * 4;
}

static int64_t copy_elements(const og_window_shape *s)
{
    int64_t count = og_times(s->batch, s->groups * s->channels);
    for (int i = 0; i < OG_WINDOW_DIMS - 1; i++)
        count = og_times(count, s->dims[i].extent);
    return og_times(count, line_of(s));
}

/* Rows of filters, of all groups and phases. */
static int64_t rows_of(const og_window_shape *s)
{
    return og_times(s->groups * s->filters, (int64_t)s->row_phases * s->tile_phases);
}

/* ---- arguments ------------------------------------------------------------------------------- */

/* The image, or its copy at `copy`, as TMA has it. */
static og_cuda_map image_map(const og_cuda_emitter *e, const og_window_shape *s)
{
    const og_image_dim *depth = &s->dims[0], *height = &s->dims[1], *width = &s->dims[2];
    const int64_t pitch = s->copies ? line_of(s) : height->extent > 1 ? height->stride : line_of(s);
    const int64_t slab = s->copies ? pitch * height->extent : depth->extent > 1 ? depth->stride : 4;
    const int64_t channel = s->copies                     ? slab * depth->extent
                            : s->groups * s->channels > 1 ? s->channel_stride
                                                          : 4;
    const int64_t batch = s->copies      ? channel * s->groups * s->channels
                          : s->batch > 1 ? s->batch_stride
                                         : 4;
    return (og_cuda_map){.buffer =
                             s->copies ? OG_CUDA_SCRATCH : e->kernel->products[0].right.buffer,
                         .offset = s->copies ? 0 : (size_t)s->offset * sizeof(float),
                         .dtype = OG_FLOAT32,
                         .columns = width->extent,
                         .rows = height->extent,
                         .depth = depth->extent,
                         .pitch_bytes = pitch * 4,
                         .slab_bytes = slab * 4,
                         .box_columns = s->patch[2],
                         .box_rows = s->patch[1],
                         .box_depth = s->patch[0],
                         .more = 2,
                         .more_extent = {s->groups * s->channels, s->batch},
                         .more_bytes = {channel * 4, batch * 4},
                         .more_box = s->chunk,
                         .is_plain = true,
                         .fetches_256 = true};
}

static og_cuda_map filter_map(const og_window_shape *s)
{
    return (og_cuda_map){.buffer = OG_CUDA_SCRATCH,
                         .dtype = OG_FLOAT16,
                         .columns = s->k_padded,
                         .rows = s->filters * s->row_phases,
                         .depth = 2 * s->groups * s->tile_phases, /* hi and lo */
                         .pitch_bytes = s->k_padded * 2,
                         .slab_bytes = s->filters * s->row_phases * s->k_padded * 2,
                         .box_columns = OG_HOPPER_BLOCK_K,
                         .box_rows = s->rows,
                         .box_depth = 2,
                         .fetches_256 = true};
}

/* Threads that have a tile's sums. */
static int64_t tile_threads(const og_window_shape *s)
{
    return s->alternates ? 128 : 256;
}

/* Maps come first: they are aligned more than all others. */
static void add_maps(og_cuda_emitter *e, const og_window_shape *s)
{
    const og_cuda_map image = image_map(e, s), filters = filter_map(s);
    const int64_t rows = rows_of(s);
    og_cuda_map *image_at = og_cuda_add_map(e, "image_map", &image);
    og_cuda_map *filters_at = og_cuda_add_map(e, "x_map", &filters);
    filters_at->offset = og_cuda_add_region(e, "void", "x_pairs", rows * s->k_padded * 4);
    og_cuda_add_region(e, "void", "x_copy", rows * s->k_padded * 4);
    og_cuda_add_region(e, "void", "x_scales", (rows + OG_HOPPER_TILE) * 8);
    og_cuda_add_region(e, "void", "any_redo", 4);
    og_cuda_add_region(e, "void", "flags", s->items * (tile_threads(s) / 32));
    og_cuda_add_region(e, "void", "marks", s->items * tile_threads(s) * (s->rows > 64 ? 8 : 4));
    const size_t copy =
        og_cuda_add_region(e, "void", "image_copy", s->copies ? og_times(copy_elements(s), 4) : 0);
    if (s->copies)
        image_at->offset = copy;
}

/* The numbers of a dim's phases, of which one is asked for. */
typedef struct {
    const char *name; /* of the function, and of the arguments that it chooses from */
    int64_t of[OG_MOST_TILE_PHASES];
} phase_numbers;

/* OG_FN int og_from_w(const og_args &a, int phase) */
static void add_choice(og_cuda_emitter *e, const phase_numbers *numbers, int32_t count)
{
    og_text_add(&e->passes, "\nOG_FN int og_%s(const og_args &a, int phase)\n{\n    return (int)(",
                numbers->name);
    for (int32_t r = 0; r < count; r++) {
        char name[48];
        snprintf(name, sizeof name, "%s_%d", numbers->name, (int)r);
        og_cuda_add_index(e, name, numbers->of[r]);
        if (r + 1 < count)
            og_text_add(&e->passes, "phase == %d ? a.%s : ", (int)r, name);
        else
            og_text_add(&e->passes, "a.%s);\n}\n", name);
    }
}

static void add_letter_choice(og_cuda_emitter *e, phase_numbers numbers, int i, int32_t count)
{
    char name[32];
    snprintf(name, sizeof name, "%s_%c", numbers.name, "dhw"[i]);
    numbers.name = name;
    add_choice(e, &numbers, count);
}

/* What hopper_phases.cuh asks of phases. */
static void add_phases(og_cuda_emitter *e, const og_window_shape *s)
{
    phase_numbers steps = {.name = "steps_of"};
    for (int i = 0; i < OG_WINDOW_DIMS; i++) {
        const og_image_dim *dim = &s->dims[i];
        const int32_t tiles = og_tile_phases_of(s, i);
        phase_numbers from = {"from", {dim->from}}, back = {"back", {dim->back}};
        phase_numbers slots = {"slots", {dim->taps}};
        for (int32_t r = 0; r < tiles && tiles > 1; r++) {
            from.of[r] = dim->phase[r].from;
            back.of[r] = dim->phase[r].back;
            slots.of[r] = og_max(1, dim->phase[r].taps);
        }
        add_letter_choice(e, from, i, tiles);
        add_letter_choice(e, back, i, tiles);
        add_letter_choice(e, slots, i, tiles);
        og_cuda_add_dim_index(e, "reach", i, dim->reach);
    }
    for (int32_t q = 0; q < s->tile_phases; q++)
        steps.of[q] = s->phase_steps[q];
    add_choice(e, &steps, s->tile_phases);
}

/* What it asks of the results of a transposed stride. */
static void add_results(og_cuda_emitter *e, const og_window_shape *s)
{
    /* Of a segment: see og_find_window_tile(). One where phases share what L2 writes at once. */
    const int64_t turns = og_tile_phases_of(s, OG_WINDOW_DIMS - 1) > 1 ? 1 : 4;
    for (int i = 0; i < OG_WINDOW_DIMS; i++) {
        const og_image_dim *dim = &s->dims[i];
        const bool has = dim->phase_count > 1;
        phase_numbers first = {"first_tap", {0}}, taps = {"taps_of", {dim->taps}};
        phase_numbers start = {"start", {dim->start}};
        for (int32_t r = 0; has && r < dim->phase_count; r++) {
            first.of[r] = dim->phase[r].first_tap;
            taps.of[r] = dim->phase[r].taps;
            start.of[r] = dim->phase[r].start;
        }
        add_letter_choice(e, first, i, dim->phase_count);
        add_letter_choice(e, taps, i, dim->phase_count);
        add_letter_choice(e, start, i, dim->phase_count);
        og_cuda_add_dim_index(e, "tap_step", i, has ? dim->tap_step : 1);
        og_cuda_add_dim_index(e, "all_taps", i, has ? dim->tap_count : dim->taps);
        og_cuda_add_dim_index(e, "gather", i, has ? dim->phase_reach : dim->reach);
    }
    og_cuda_add_index(e, "top_w", s->dims[OG_WINDOW_DIMS - 1].start);
    og_cuda_add_index(e, "segment", og_max(1, e->limits->multiprocessors) * turns);
}

static void add_image_indices(og_cuda_emitter *e, const og_window_shape *s)
{
    og_cuda_add_index(e, "image_batch", s->batch);
    og_cuda_add_index(e, "image_channels", s->groups * s->channels);
    og_cuda_add_index(e, "image_depth", s->dims[0].extent);
    og_cuda_add_index(e, "image_height", s->dims[1].extent);
    og_cuda_add_index(e, "image_width", s->dims[2].extent);
    og_cuda_add_index(e, "image_line", line_of(s));
    og_cuda_add_index(e, "image_b", s->batch_stride);
    og_cuda_add_index(e, "image_c", s->channel_stride);
    for (int i = 0; i < OG_WINDOW_DIMS; i++)
        og_cuda_add_dim_index(e, "image", i, s->dims[i].stride);
}

/* Of a filter. */
static int64_t all_taps(const og_window_shape *s)
{
    int64_t taps = 1;
    for (int i = 0; i < OG_WINDOW_DIMS; i++)
        taps *= s->dims[i].phase_count > 1 ? s->dims[i].tap_count : s->dims[i].taps;
    return taps;
}

/* Bits of all steps of the result but those along lines: which powers of two divide all of them. */
static int64_t result_steps(const og_kernel *kernel)
{
    const og_pass *pass = &kernel->passes[0];
    int64_t steps = 0;
    for (int32_t i = 0; i < pass->element_count; i++)
        for (int32_t d = 0; d < kernel->space.rank - 1; d++)
            if (pass->elements[i].op == OG_OP_STORE)
                steps |= kernel->accesses[pass->elements[i].index].stride[d];
    return steps & 3;
}

static void add_arguments(og_cuda_emitter *e, const og_window_shape *s)
{
    const og_matrices *of = &e->kernel->matrices;
    add_maps(e, s);
    og_cuda_add_pointer(e, "const float", "image", e->kernel->products[0].right.buffer,
                        (size_t)s->offset * sizeof(float));
    og_cuda_add_index(e, "k_padded", s->k_padded);
    og_cuda_add_index(e, "x_k", 1);
    og_cuda_add_index(e, "chunks", s->chunks);
    og_cuda_add_index(e, "channels", s->channels);
    og_cuda_add_index(e, "groups", s->groups);
    og_cuda_add_index(e, "taps", all_taps(s));
    og_cuda_add_index(e, "items", s->items);
    og_cuda_add_index(e, "m_tiles", s->row_tiles);
    og_cuda_add_index(e, "depth", s->dims[0].results);
    og_cuda_add_index(e, "height", s->dims[1].results);
    og_cuda_add_index(e, "width", s->dims[2].results);
    og_cuda_add_index(e, "line_pitch", og_cuda_line_of(e->kernel));
    for (int i = 0; i < OG_WINDOW_DIMS; i++)
        og_cuda_add_dim_index(e, "tiles", i, s->tiles[i]);
    if (s->pieces)
        og_cuda_add_index(e, "result_steps", result_steps(e->kernel));
    if (s->copies || s->gathers)
        add_image_indices(e, s);
    add_phases(e, s);
    if (s->gathers)
        add_results(e, s);
    og_cuda_add_product_parts(e);
    og_cuda_add_seek_range(e, "og_seek_product", 0, of->batch_rank);
    og_cuda_add_seek_range(e, "og_step_filters", of->batch_rank, of->batch_rank + of->m_rank);
}

/* See OG_END_BATCHES: mish(mish()) of 32 copies waited for instructions half of its time (H200). */
static int32_t end_batches(const og_cuda_emitter *e, const og_window_shape *s)
{
    return og_cuda_is_costly_pass(&e->kernel->passes[0]) ? 1 : s->rows / 16;
}

static void add_numbers(og_cuda_emitter *e, const og_window_shape *s)
{
    const og_cuda_number numbers[] = {{"OG_PRODUCTS", 1},
                                      {"OG_BM", s->rows},
                                      {"OG_WIDTH", s->rows},
                                      {"OG_STEP_TAPS", s->step_taps},
                                      {"OG_PATCH_CHANNELS", s->chunk},
                                      {"OG_STEPS", s->steps},
                                      {"OG_LAST_STEPS", s->last_steps},
                                      {"OG_SPREADS", s->spreads},
                                      {"OG_END_BATCHES", end_batches(e, s)},
                                      {"OG_ALTERNATES", s->alternates},
                                      {"OG_TRAYS", s->trays},
                                      {"OG_KEEPS", s->keeps},
                                      {"OG_TILE_D", s->tile[0]},
                                      {"OG_TILE_H", s->tile[1]},
                                      {"OG_TILE_W", s->tile[2]},
                                      {"OG_STEP_D", s->dims[0].step},
                                      {"OG_STEP_H", s->dims[1].step},
                                      {"OG_STEP_W", s->dims[2].step},
                                      {"OG_PATCH_D", s->patch[0]},
                                      {"OG_PATCH_H", s->patch[1]},
                                      {"OG_PATCH_W", s->patch[2]},
                                      {"OG_PIECES", s->pieces},
                                      {"OG_PATCH_STAGES", s->patch_stages},
                                      {"OG_X_STAGES", s->x_stages},
                                      {"OG_CELLS", s->cell_stages},
                                      {"OG_SHARED_BYTES", s->shared_bytes},
                                      {"OG_COPIES_IMAGE", s->copies},
                                      {"OG_GATHERS", s->gathers},
                                      {"OG_PHASES_D", og_tile_phases_of(s, 0)},
                                      {"OG_PHASES_H", og_tile_phases_of(s, 1)},
                                      {"OG_PHASES_W", og_tile_phases_of(s, 2)},
                                      {"OG_ROW_PHASES", s->row_phases},
                                      {"OG_STRIDE_W", s->dims[2].phase_count},
                                      {"OG_EMPTY_ROWS", (int32_t)s->empty_rows},
                                      {"OG_EMPTY_TILES", s->has_empty_tiles},
                                      {"OG_SPLIT_PLANES", s->row_phases},
                                      {"OG_SPLIT_SHUFFLES", 0},
                                      {"OG_SPLIT_WIDENS", 0},
                                      {"OG_SPLIT_PADS", 1},
                                      {"OG_SPLIT_KEEPS", og_cuda_split_keeps(s->k_padded)},
                                      {0}};
    og_text_add(&e->numbers, "typedef float og_number;\n");
    og_cuda_add_defines(&e->numbers, numbers);
    og_text_add(&e->numbers, "typedef float og_element;\nOG_FN float og_widen(og_element x)\n{\n"
                             "    return x;\n}\n");
}

/* ---- entry ----------------------------------------------------------------------------------- */

ogive_status og_cuda_refuse_hopper_windows(og_cuda_emitter *e, const char **why)
{
    const og_cuda_product_facts facts = og_cuda_product_facts_of(e->kernel);
    og_window_shape s;
    *why = og_cuda_refuse_convolution(&facts, e->limits, e->wishes);
    if (!*why && facts.right != OG_FLOAT32)
        *why = ""; /* hopper_windows_halves.cuh's */
    if (!*why)
        *why = og_cuda_see_windows(e->kernel, &s);
    return OGIVE_OK;
}

/* Blocks that keep their filters have tiles of these alone: every so many of the tiles. */
static int64_t blocks_of(const og_window_shape *s, int64_t processors)
{
    const int64_t blocks = og_min(s->items, processors);
    return s->keeps ? og_max(s->row_tiles, blocks / s->row_tiles * s->row_tiles) : blocks;
}

static ogive_status add_launches(og_cuda_emitter *e, const og_window_shape *s)
{
    const int64_t rows = rows_of(s), processors = og_max(1, e->limits->multiprocessors);
    OG_TRY(og_cuda_make_launches(e, 5));
    if (s->copies)
        OG_TRY(og_cuda_add_launch(e, "og_lay_image", -1,
                                  og_divide_up(copy_elements(s), LAY_THREADS), LAY_THREADS));
    OG_TRY(og_cuda_add_launch(e, "og_lay_filters", -1,
                              og_divide_up(rows * s->k_padded, LAY_THREADS), LAY_THREADS));
    OG_TRY(og_cuda_add_split(e, "og_split", rows, s->k_padded));
    OG_TRY(og_cuda_add_launch(e, "og_multiply_windows", -1, blocks_of(s, processors),
                              128 * (1 + (s->alternates ? s->alternates : 2) + s->trays)));
    og_cuda_launch *tensor = og_cuda_overlap_last(e); /* patches come meanwhile */
    OG_TRY(og_cuda_copy_maps(e, &tensor->maps));
    tensor->map_count = e->arguments.map_count;
    tensor->when = OG_CUDA_IF_MAPPED;
    tensor->shared_bytes = (size_t)s->shared_bytes;
    OG_TRY(og_cuda_add_launch(e, "og_redo_windows", -1,
                              og_min(s->items, processors * OG_CUDA_REDO_BLOCKS), LAY_THREADS));
    og_cuda_overlap_last(e);
    return OGIVE_OK;
}

/* Are there elements, or numbers of rows, columns or items, beyond 31 bits? What is not there has
 * numbers up to a tile beyond the last, and is not touched. */
static bool needs_wide(const og_kernel *kernel, const og_window_shape *s)
{
    const int64_t most = INT32_MAX - (1 << 16);
    const og_matrices padded = og_cuda_matrices_of(kernel);
    int64_t image =
        og_min(og_times(s->batch - 1, llabs(s->batch_stride)), most + 1) +
        og_min(og_times(s->groups * s->channels - 1, llabs(s->channel_stride)), most + 1);
    bool is = false;
    for (int i = 0; i < OG_WINDOW_DIMS; i++) {
        const og_image_dim *dim = &s->dims[i];
        image =
            og_min(image, most + 1) + og_min(og_times(dim->extent, llabs(dim->stride)), most + 1);
        is |= dim->extent > most / (1 + llabs(dim->stride));
    }
    for (int32_t i = 0; i < kernel->access_count; i++)
        is |= og_cuda_reach_of(&kernel->space, &kernel->accesses[i]) > most;
    return is || image > most || s->items > most / 8 || padded.n > most / 2 ||
           og_times(padded.batch, padded.m) > most || og_times(rows_of(s), s->k_padded) > most ||
           og_cuda_reach_of(&kernel->space, &kernel->products[0].left) > most / 2;
}

ogive_status og_cuda_emit_hopper_windows(og_cuda_emitter *e)
{
    og_window_shape s;
    og_cuda_see_windows(e->kernel, &s);
    if (og_times(rows_of(&s), s.k_padded) > INT64_MAX / 64)
        OG_FAIL(e->error, OGIVE_MEMORY, -1, "the filters' copy is larger than any memory");
    e->out->tensor_products = 3;
    e->out->units =
        OG_PAIR_UNITS + s.k_padded / (s.cell_stages ? OG_CELL_CHANNELS : OG_HOPPER_BLOCK_K);
    e->vector = s.vector;
    e->packs = s.pieces > 0;
    e->threads = OG_CUDA_SPLIT_THREADS;
    e->wide = needs_wide(e->kernel, &s);
    add_numbers(e, &s);
    og_cuda_add_finish_numbers(e, false);
    add_arguments(e, &s);
    og_cuda_include(&e->body, "hopper_windows");
    og_cuda_include(&e->body, "pairs_split");
    char phases[64] = "";
    if (s.gathers)
        snprintf(phases, sizeof phases, ", %d phases at once, %s",
                 (int)(s.dims[0].phase_count * s.dims[1].phase_count * s.dims[2].phase_count),
                 s.row_phases > 1 ? "those of a line beside each other" : "tiles of each");
    OG_TRY(og_cuda_name_body(
        e, "convolution, float32 as pairs of float16 on tensor cores, tiles of %d x (%d, %d, %d)%s",
        (int)s.rows, (int)s.tile[0], (int)s.tile[1], (int)s.tile[2], phases));
    return add_launches(e, &s);
}
