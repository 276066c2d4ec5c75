/* SPDX-License-Identifier: MIT
 *
 * cuda_emit_mma_windows.c - convolutions on tensor cores by mma.sync, of any GPU from sm_80 on: the
 * launches around mma_windows.cuh.
 *
 *     og_lay_seen_image    the image goes to the scratch, channels side by side, zeros around it
 *     og_lay_seen_filters  filters go there, in the kernel's order of k
 *     og_split             those of float32 become pairs of float16
 *     og_convolve_mma      the convolution and pass 0
 */
#include "cuda/emit/cuda_choose.h"
#include "cuda/emit/cuda_emit_mma.h"
#include "cuda/emit/cuda_window_tile.h"

#include <stdlib.h>

enum {
    LEAST_CHANNELS = 3,
    LEAST_FILTERS = 16, /* of 32 */
    LEAST_K = 24,       /* of 64 */
    LEAST_SCALE_K = 32, /* 16 channels took 17.5 ms, 15.8 split in each tile (L1-63, H200) */
    MOST_EXTENT = 1 << 30,
    LAY_THREADS = 256,
    LAID = 4096,            /* elements that a block of og_lay_seen_image turns, */
    MOST_LAY_CHANNELS = 64, /* of so many channels */
    AHEAD = 1               /* stages that are fetched beyond the last */
};
static const int64_t MOST_UNITS = UINT32_MAX; /* of the image's copy: 32 GiB or 64 */

/* A dim of the image's copy, which begins at element `from` and has every apart-th. Place i and
 * tap j see its element step * i + back + reach * j. */
typedef struct {
    int64_t from, apart, extent, step, back, reach;
} laid_dim;

typedef struct {
    og_window_shape of; /* what og_cuda_see_image() has */
    laid_dim dims[OG_WINDOW_DIMS];
    int64_t unit;                    /* channels that are copied at once */
    int32_t scale_k;                 /* that have a scale in the copy; 0: it has no pairs */
    int64_t pitch, volume;           /* channels of an element of the copy; its elements */
    int64_t k_padded;                /* of taps and pitches */
    int64_t line, image_of, columns; /* columns of a line, of an image, of all: whole fours */
} laid_shape;

/* ---- shapes ---------------------------------------------------------------------------------- */

static laid_dim lay_dim(const og_image_dim *of)
{
    const int64_t step = of->places > 1 ? of->step : 0, reach = of->taps > 1 ? of->reach : 0;
    const int64_t common = og_greatest_divisor(step, llabs(reach)), apart = common ? common : 1;
    laid_dim to = {.apart = apart, .step = step / apart, .reach = reach / apart};
    to.back = reach < 0 ? -to.reach * (of->taps - 1) : 0;
    to.from = of->start - to.back * apart;
    to.extent = og_times(of->places - 1, to.step) + og_times(of->taps - 1, llabs(to.reach));
    to.extent = og_min(to.extent, INT64_MAX - 1) + 1;
    return to;
}

static int64_t copy_elements(const laid_shape *s)
{
    return og_times(og_times(s->of.batch, s->of.groups), og_times(s->volume, s->pitch));
}

/* From the first element that windows see to the last, in the copy, in units. */
static int64_t most_distance(const laid_shape *s)
{
    int64_t span = 0;
    for (int i = 0; i < OG_WINDOW_DIMS; i++)
        span = og_min(og_times(span, s->dims[i].extent), INT64_MAX / 2) +
               og_min(og_times(llabs(s->dims[i].reach), s->of.dims[i].taps - 1), INT64_MAX / 4);
    return og_times(span + 1, s->pitch / s->unit);
}

/* The most channels of 64 and 32 that leave no more than an eighth to be padded. */
static void choose_scale(laid_shape *s)
{
    for (int32_t k = OG_MMA_STEP; k >= LEAST_SCALE_K && !s->scale_k; k /= 2) {
        const int64_t pitch = og_divide_up(s->of.channels, k) * k;
        if (pitch - s->pitch > s->pitch / 8)
            continue;
        s->scale_k = k;
        s->pitch = pitch;
    }
}

/* NULL, or why the kernel's convolution is not taken: by its filters alone, unless its images lie
 * oddly. */
static const char *see_laid(const og_cuda_emitter *e, laid_shape *s)
{
    const og_kernel *kernel = e->kernel;
    const og_matrices padded = og_cuda_matrices_of(kernel);
    *s = (laid_shape){.volume = 1};
    const char *refused = og_cuda_see_image(kernel, &s->of);
    if (refused)
        return refused;
    if (s->of.gathers)
        return "phases of a transposed stride in one kernel";
    if (kernel->space.n_reduced || og_cuda_has_row_values(&kernel->passes[0]))
        return "a reduction of its result";
    if (s->of.channels < LEAST_CHANNELS || s->of.filters < LEAST_FILTERS ||
        og_times(s->of.channels, s->of.taps) < LEAST_K)
        return "too small for tensor cores";
    s->unit = kernel->products[0].right.dtype == OG_FLOAT32 || s->of.channels <= 4 ? 4 : 8;
    s->pitch = og_divide_up(s->of.channels, s->unit) * s->unit;
    if (!og_cuda_is_plain(e, kernel->products[0].right.dtype))
        choose_scale(s);
    for (int i = 0; i < OG_WINDOW_DIMS; i++) {
        s->dims[i] = lay_dim(&s->of.dims[i]);
        s->volume = og_times(s->volume, s->dims[i].extent);
    }
    s->line = og_divide_up(s->of.dims[OG_WINDOW_DIMS - 1].places, 4) * 4;
    s->image_of = og_divide_up(padded.n, 4) * 4;
    s->columns = og_times(s->of.batch, s->image_of);
    const int64_t k = og_times(s->of.taps, s->pitch);
    if (most_distance(s) > MOST_EXTENT || k > MOST_EXTENT || s->columns > MOST_EXTENT ||
        s->volume > MOST_EXTENT || og_times(s->of.groups, s->of.filters) > MOST_EXTENT ||
        copy_elements(s) / s->unit > MOST_UNITS)
        return "an extent beyond 30 bits";
    s->k_padded = og_mma_padded_k(k);
    return NULL;
}

/* k of an entry of the table. */
static int64_t table_k(const laid_shape *s)
{
    return s->scale_k ? 8 : s->unit;
}

static int64_t table_size(const laid_shape *s)
{
    return (s->k_padded + AHEAD * OG_MMA_STEP) / table_k(s);
}

/* Channels that a block of og_lay_seen_image has: the others are no more than those of a pitch. */
static int32_t lay_channels(const laid_shape *s)
{
    int32_t channels = MOST_LAY_CHANNELS;
    while (channels / 2 >= s->pitch)
        channels /= 2;
    return channels;
}

static int64_t lay_blocks(const laid_shape *s)
{
    const int32_t channels = lay_channels(s);
    return og_times(
        og_times(s->of.batch, s->of.groups),
        og_times(og_divide_up(s->volume, LAID / channels), og_divide_up(s->pitch, channels)));
}

/* Rows of a tile: of 129 filters, say, three times 64 are less than two times 128. */
static int32_t tile_rows(int64_t filters)
{
    if (filters <= 64)
        return filters <= 32 ? 32 : 64;
    return 5 * og_divide_up(filters, 64) <= 8 * og_divide_up(filters, 128) ? 64 : 128;
}

/* Are there elements of the image, or of its copy, beyond 31 bits? */
static bool needs_wide(const og_kernel *kernel, const laid_shape *s)
{
    const int64_t most = INT32_MAX / 4;
    bool is = llabs(s->of.batch_stride) > most || llabs(s->of.channel_stride) > most ||
              og_times(s->of.groups, s->of.channels) > most;
    for (int i = 0; i < OG_WINDOW_DIMS; i++)
        is |= llabs(s->of.dims[i].stride) > most || llabs(s->dims[i].from) > most ||
              og_times(s->dims[i].extent, s->dims[i].apart) > most || s->of.dims[i].extent > most;
    return is || copy_elements(s) > most || lay_blocks(s) > most ||
           og_cuda_product_needs_wide(kernel, false);
}

/* ---- what is emitted ------------------------------------------------------------------------- */

static void add_dims(og_cuda_emitter *e, const laid_shape *s)
{
    const int64_t extents[] = {s->of.dims[0].extent, s->of.dims[1].extent, s->of.dims[2].extent};
    og_cuda_add_index(e, "image_depth", extents[0]);
    og_cuda_add_index(e, "image_height", extents[1]);
    og_cuda_add_index(e, "image_width", extents[2]);
    for (int i = 0; i < OG_WINDOW_DIMS; i++) {
        const laid_dim *dim = &s->dims[i];
        og_cuda_add_dim_index(e, "image", i, s->of.dims[i].stride);
        og_cuda_add_dim_index(e, "from", i, dim->from);
        og_cuda_add_dim_index(e, "apart", i, dim->apart);
        og_cuda_add_dim_index(e, "step", i, dim->step);
        og_cuda_add_dim_index(e, "back", i, dim->back);
        og_cuda_add_dim_index(e, "reach", i, dim->reach);
        og_cuda_add_dim_index(e, "taps", i, s->of.dims[i].taps);
    }
    og_cuda_add_divisor(e, "laid_h", s->dims[1].extent);
    og_cuda_add_divisor(e, "laid_w", s->dims[2].extent);
}

static void add_arguments(og_cuda_emitter *e, const laid_shape *s, const og_mma_tile *tile,
                          bool is_pairs)
{
    const og_access *image = &e->kernel->products[0].right;
    const int64_t rows = s->of.groups * s->of.filters;
    const int64_t bytes = (int64_t)og_dtype_bytes(image->dtype);
    const int64_t count = og_times(rows + tile->rows, s->k_padded);
    og_cuda_add_region(e, "void", "image_copy", og_times(copy_elements(s), bytes));
    if (s->scale_k)
        og_cuda_add_region(e, "void", "image_scales",
                           og_times(copy_elements(s) / s->scale_k, (int64_t)sizeof(uint32_t)));
    og_cuda_add_region(e, "void", "table", table_size(s) * (int64_t)sizeof(int32_t));
    og_cuda_add_region(e, "void", "x_pairs", og_times(count, bytes)); /* a pair of each: 4 */
    if (is_pairs) {
        og_cuda_add_region(e, "void", "x_copy", og_times(count, bytes));
        og_cuda_add_region(e, "void", "x_scales", rows * 8);
        og_cuda_add_region(e, "void", "any_redo", 4);
        og_cuda_add_index(e, "x_k", 1);
        og_cuda_add_divisor(e, "taps_of", s->of.taps);
    }
    og_cuda_add_pointer(e, "const og_element", "image", image->buffer,
                        (size_t)(s->of.offset * bytes));
    og_cuda_add_index(e, "image_b", s->of.batch_stride);
    og_cuda_add_index(e, "image_c", s->of.channel_stride);
    add_dims(e, s);
    og_cuda_add_index(e, "groups", s->of.groups);
    og_cuda_add_index(e, "channels", s->of.channels);
    og_cuda_add_index(e, "pitch", s->pitch);
    og_cuda_add_index(e, "volume", s->volume);
    og_cuda_add_index(e, "taps", s->of.taps);
    og_cuda_add_index(e, "table_size", table_size(s));
    og_cuda_add_index(e, "filter_rows", rows);
    og_cuda_add_index(e, "k_padded", s->k_padded);
    og_cuda_add_index(e, "width", s->of.dims[OG_WINDOW_DIMS - 1].places);
    og_cuda_add_index(e, "columns", s->columns);
    og_cuda_add_divisor(e, "image_of", s->image_of);
    og_cuda_add_divisor(e, "line_of", s->line);
    og_cuda_add_divisor(e, "plane_of", s->of.dims[1].places);
    og_cuda_add_index(e, "m_tiles", tile->m_tiles);
    og_cuda_add_index(e, "n_tiles", tile->n_tiles);
}

/* Pass 0, and how it moves: along filters, where these are neighbours in all results. */
static void add_places(og_cuda_emitter *e)
{
    const og_matrices *of = &e->kernel->matrices;
    const int32_t filters = of->batch_rank, places = filters + of->m_rank;
    const bool is_last = og_cuda_ends_in_filters(e->kernel);
    const og_cuda_number numbers[] = {{"OG_REDUCES", 0},
                                      {"OG_TERMS", 0},
                                      {"OG_LINES", !is_last && of->n_rank > 1},
                                      {"OG_ENDS_ROWS", 0},
                                      {is_last ? "OG_LAST" : NULL, 1},
                                      {0}};
    og_cuda_add_defines(&e->numbers, numbers);
    if (is_last) {
        e->vector_dim = filters;
        og_cuda_keep_filters(e);
        og_cuda_add_product_parts_across(e);
        og_cuda_add_seek_range(e, "og_step_places", places, e->kernel->space.rank);
    } else {
        og_cuda_add_product_parts(e);
        og_cuda_add_seek_range(e, "og_step_filters", filters, places);
    }
    og_cuda_add_seek_range(e, "og_seek_product", 0, filters);
}

static ogive_status add_launches(og_cuda_emitter *e, const laid_shape *s, const og_mma_tile *tile,
                                 bool is_pairs)
{
    const int64_t rows = s->of.groups * s->of.filters;
    const int64_t laid = og_max(og_times(rows, s->k_padded), table_size(s));
    OG_TRY(og_cuda_make_launches(e, 4));
    OG_TRY(og_cuda_add_launch(e, "og_lay_seen_image", -1, lay_blocks(s), LAY_THREADS));
    OG_TRY(og_cuda_add_launch(e, "og_lay_seen_filters", -1, og_divide_up(laid, LAY_THREADS),
                              LAY_THREADS));
    if (is_pairs)
        OG_TRY(og_cuda_add_split(e, "og_split", rows, s->k_padded));
    OG_TRY(og_cuda_add_launch(e, "og_convolve_mma", -1, tile->count, OG_MMA_THREADS));
    e->out->launches[e->out->launch_count - 1].shared_bytes = tile->shared_bytes;
    return OGIVE_OK;
}

/* ---- entry ----------------------------------------------------------------------------------- */

ogive_status og_cuda_refuse_mma_windows(og_cuda_emitter *e, const char **why)
{
    const og_cuda_product_facts facts = og_cuda_product_facts_of(e->kernel);
    laid_shape s;
    *why = og_cuda_refuse_mma_convolution(&facts, e->limits, e->wishes);
    if (!*why)
        *why = see_laid(e, &s);
    return OGIVE_OK;
}

ogive_status og_cuda_emit_mma_windows(og_cuda_emitter *e)
{
    const og_dtype dtype = e->kernel->products[0].right.dtype;
    const bool is_plain = og_cuda_is_plain(e, dtype);
    const bool is_tf32 = is_plain && dtype == OG_FLOAT32;
    laid_shape s;
    see_laid(e, &s);
    const og_matrices of = {
        .batch = s.of.groups, .m = s.of.filters, .n = s.columns, .k = s.k_padded};
    const og_mma_tile tile =
        og_cuda_choose_mma_tile(&of, tile_rows(s.of.filters), s.scale_k, e->limits, is_plain);
    const og_cuda_number lay[] = {{"OG_GRAIN", s.unit},
                                  {"OG_LAID_CHANNELS", lay_channels(&s)},
                                  {"OG_LAID_LAST", s.of.channel_stride == 1},
                                  {"OG_TABLE_K", table_k(&s)},
                                  {"OG_SPLIT_PADS", 1},
                                  {s.scale_k ? "OG_SCALE_K" : NULL, s.scale_k},
                                  {0}};
    e->wide |= needs_wide(e->kernel, &s);
    og_cuda_tell_mma_units(e, s.k_padded * (s.scale_k ? OG_MMA_STEP / s.scale_k : 1), is_plain,
                           is_tf32);
    e->vector = 4;
    e->threads = OG_MMA_THREADS;
    og_cuda_add_mma_numbers(e, &tile, s.k_padded, dtype);
    og_cuda_add_defines(&e->numbers, lay);
    add_places(e);
    add_arguments(e, &s, &tile, !is_plain);
    if (!is_plain)
        og_text_add(&e->passes,
                    "\nOG_FN const og_element *og_x_row(const og_args &a, og_index row)\n"
                    "{\n    return (const og_element *)a.x_copy + row * (int64_t)a.k_padded;\n}\n");
    og_cuda_include(&e->body, "mma_windows");
    if (!is_plain)
        og_cuda_include(&e->body, "pairs_split");
    OG_TRY(og_cuda_name_body(e, "convolution%s on tensor cores (mma.sync), tiles of %d x %d",
                             is_tf32    ? ", float32 as TF32"
                             : is_plain ? ""
                                        : ", float32 as pairs of float16",
                             (int)tile.rows, (int)tile.columns));
    return add_launches(e, &s, &tile, !is_plain);
}
