/* SPDX-License-Identifier: MIT
 *
 * cuda_window_halves.c - see cuda_window_halves.h.
 */
#include "cuda/emit/cuda_window_halves.h"

#include "cuda/emit/cuda_emit_product.h"

#include <stdlib.h>

enum {
    LEAST_FILTERS = 16, /* of 64 */
    LEAST_K = 16,       /* a step of the tensor cores */
    LONG_K = 8192,      /* above, they do not sum all: cuda_emit_hopper_halves.c */
    MOST_K = 1 << 20,
    FEW_CHANNELS = 16, /* below, taps along a line are channels, too */
    MOST_BOX = 256,
    MOST_STEP = 8, /* of TMA */
    MOST_EXTENT = 1 << 30,
    TMA_UNIT = 8, /* elements of 16 bytes */
    BLOCK_K = 64,
    BLOCK_CYCLES = 420, /* that a warpgroup needs for a block at least, however small its tile is */
    SHARED_BYTES = 227 * 1024,
    STAGING_BYTES = 8 * 16 * 64 * 4,
    LEAST_STAGES = 3,
    MOST_STAGES = 8,
    MOST_PATCHES = 4
};

/* ---- the image ------------------------------------------------------------------------------- */

/* Does pass 0 store one result of halves whose lines of filters are whole vectors, and read nothing but
 * what is the same for all places? Costly functions, of all of a thread's sums in a row, would be more
 * code than its cache holds. */
static bool may_pack(const og_kernel *kernel, const og_window_halves *s)
{
    const int32_t filters = kernel->matrices.batch_rank;
    int32_t stores = 0;
    bool may =
        s->is_last && s->of.filters % TMA_UNIT == 0 && !og_cuda_is_costly_pass(&kernel->passes[0]);
    for (int32_t i = 0; i < kernel->access_count; i++) {
        const og_access *access = &kernel->accesses[i];
        stores += access->is_store;
        may &= access->is_store ? og_dtype_bytes(access->dtype) == 2 : og_access_is_plain(access);
        for (int32_t d = 0; d < kernel->space.rank; d++)
            may &= d == filters || kernel->space.extent[d] == 1 ||
                   access->stride[d] % (access->is_store ? TMA_UNIT : INT64_MAX) == 0;
    }
    return may && stores == 1;
}

/* Few channels are those of all taps along a line: of the copy, whose places are the result's. */
static void fold_line(og_window_halves *s)
{
    og_image_dim *line = &s->of.dims[OG_WINDOW_DIMS - 1];
    s->line = *line;
    s->folded = 1;
    s->channels = s->of.channels;
    s->all_taps = s->of.taps;
    if (s->of.channels >= FEW_CHANNELS || line->taps == 1)
        return;
    s->folded = line->taps;
    s->channels *= line->taps;
    s->of.taps /= line->taps;
    line->extent = line->places;
    line->taps = 1;
    line->start = line->reach = 0;
    line->step = 1;
}

/* Channels of a box: those that leave the least to be padded, then the most. */
static void choose_line(og_window_halves *s)
{
    s->k_padded = 0;
    for (int32_t line = BLOCK_K; line >= FEW_CHANNELS; line /= 2) {
        const int64_t chunks = og_divide_up(s->channels, line);
        const int64_t pieces = og_times(chunks, s->of.taps);
        const int64_t k = og_times(og_divide_up(og_times(pieces, line), BLOCK_K), BLOCK_K);
        if (s->k_padded && k >= s->k_padded)
            continue;
        s->line_channels = line;
        s->chunks = chunks;
        s->pieces = pieces;
        s->k_padded = k;
    }
}

/* Can TMA take such steps through the image? Those of one element do not matter. */
static bool is_step(int64_t extent, int64_t stride)
{
    return extent == 1 || (stride > 0 && stride % TMA_UNIT == 0 && stride < INT32_MAX);
}

/* Can it fetch lines of channels as they lie? */
static bool is_fetchable(const og_window_halves *s)
{
    const og_window_shape *of = &s->of;
    const og_image_dim *width = &of->dims[OG_WINDOW_DIMS - 1];
    const int64_t channels = of->groups * of->channels;
    bool fits = s->folded == 1 && of->channel_stride == 1 && of->offset % TMA_UNIT == 0 &&
                (of->groups == 1 || of->channels % s->line_channels == 0) &&
                is_step(of->batch, of->batch_stride) &&
                (width->extent == 1 || width->stride >= channels);
    for (int i = 0; i < OG_WINDOW_DIMS; i++)
        fits &= is_step(of->dims[i].extent, of->dims[i].stride);
    return fits;
}

/* ---- tiles ----------------------------------------------------------------------------------- */

static int32_t places_of(const og_window_halves *s)
{
    return (s->filter_rows ? s->width : 64 * s->height) * (s->alternates ? 1 : 2);
}

/* Bytes of a patch: what is brought, and what the last tap's operand reads beyond. */
static int64_t patch_bytes_of(const og_window_halves *s)
{
    const int64_t lines = (int64_t)s->patch[0] * s->patch[1] * s->patch[2];
    const int64_t operand = ((int64_t)places_of(s) / 8 - 1) * s->apart + 8;
    const int64_t last =
        ((int64_t)s->patch[0] * s->patch[1] - s->tile[1] + 1) * s->patch[2] - s->tile[2];
    return og_divide_up(og_max(lines * s->tile_b, operand + last) * s->line_channels * 2, 1024) *
           1024;
}

/* Shared memory of the tile; filters are in its stages, or stay beside them. */
static int64_t shared_of(const og_window_halves *s)
{
    const int64_t filters = (int64_t)s->filters * BLOCK_K * 2;
    const int64_t image = s->patches ? 0 : (int64_t)places_of(s) * BLOCK_K * 2;
    return s->stages * (image + (s->keeps ? 0 : filters)) +
           (s->keeps ? s->k_padded / BLOCK_K * filters : 0) +
           (s->patches ? s->patches * patch_bytes_of(s) : 0) + STAGING_BYTES +
           8 * (2 * s->stages + 2 * s->patches + 3);
}

/* As many stages as there is room for; then patches, of two at least. */
static bool give_stages(og_window_halves *s)
{
    const bool has_patches = s->patches > 0, is_free = has_patches && s->keeps;
    if (has_patches)
        s->patches = 2;
    for (s->stages = is_free ? 1 : MOST_STAGES; s->stages >= (is_free ? 1 : LEAST_STAGES);
         s->stages--) {
        s->shared_bytes = shared_of(s);
        if (s->shared_bytes > SHARED_BYTES)
            continue;
        while (has_patches && s->patches < MOST_PATCHES) {
            s->patches++;
            if (shared_of(s) > SHARED_BYTES) {
                s->patches--;
                break;
            }
        }
        s->shared_bytes = shared_of(s);
        return true;
    }
    return false;
}

/* Takes the box of places, if it is one; the number of such tiles. */
static double count_tiles(og_window_halves *s, const int32_t tile[OG_WINDOW_DIMS])
{
    int64_t most = places_of(s);
    double tiles = 1;
    for (int i = 0; i < OG_WINDOW_DIMS; i++) {
        if (tile[i] * s->of.dims[i].step > MOST_BOX)
            return 0;
        s->tile[i] = tile[i];
        s->tiles[i] = og_divide_up(s->of.dims[i].places, tile[i]);
        tiles *= (double)s->tiles[i];
        most /= tile[i];
    }
    s->tile_b = (int32_t)og_min(og_min(most, MOST_BOX), s->of.batch);
    s->tiles_b = og_divide_up(s->of.batch, s->tile_b);
    return tiles * (double)s->tiles_b;
}

/* Cycles that the end of a warpgroup's tile takes: of few neighbours in memory, the more. */
static double end_of(const og_window_halves *s)
{
    const double results = 64.0 * s->height * s->width;
    const double shortness = s->is_last ? 0 : 8.0 / s->tile[OG_WINDOW_DIMS - 1];
    const double each = s->packs ? 0.22 : s->is_last == s->filter_rows ? 0.5 : 0.35;
    return results * (each + 0.6 * shortness);
}

static double more_of(double a, double b)
{
    return a > b ? a : b;
}

/* Cycles in which a tile's boxes or patches, and filters, come from L2: of the image 40 bytes each, less
 * of short lines; of filters, which all multiprocessors read at once, three times as many. */
static double fetches_of(const og_window_halves *s)
{
    const double filters = s->keeps ? 0 : (double)s->k_padded * s->filters * 2;
    const double line = s->line_channels * 2.0;
    const double rate = s->line_channels == 64 ? 40 : s->line_channels == 32 ? 34 : 25;
    const double places =
        s->patches ? (double)s->chunks * s->tile_b * s->patch[0] * s->patch[1] * s->patch[2]
                   : (double)s->pieces * places_of(s);
    return (places * line + 0.3 * filters) / rate;
}

/* Cycles of a multiprocessor for its share of all tiles: multiplying 2048 elements a cycle, less where
 * products are small and wait for shared memory; fetching; and the ends, which one warpgroup has while
 * the other multiplies. An image that is read for several tiles of filters comes from memory at times. */
static double cost_of(const og_window_halves *s, double tiles, int32_t multiprocessors)
{
    const double speed = s->height * s->width == 256 ? 1.0 : s->width == 128 ? 0.9 : 0.7;
    const double k = (double)s->pieces * s->line_channels;
    const double multiplies = k * 64 * s->height * s->width / (2048 * speed);
    const double fetches = fetches_of(s), end = end_of(s);
    const double items = tiles * (double)s->row_tiles * (double)s->of.groups;
    const double waves =
        (double)og_divide_up((int64_t)og_min((int64_t)items, INT32_MAX), multiprocessors);
    const double issued = (double)s->k_padded / BLOCK_K * BLOCK_CYCLES;
    const double both = more_of(s->alternates ? multiplies : 2 * multiplies, issued);
    const double busy = more_of(both, fetches), beside = 0.06 * fetches;
    const double again = (s->row_tiles > 1 ? 1.04 : 1) * (s->packs ? 1 : 1.02);
    if (!s->alternates)
        return again * waves * (busy + beside + end);
    return again * (waves * (more_of((both + end) / 2, busy) + beside) + (both + end) / 2);
}

/* Takes the tile, if it fits and costs less than the best one. */
static void try_places(og_window_halves *s, double tiles, double apart, int32_t multiprocessors,
                       og_window_halves *best, double *least)
{
    if (tiles <= 0 || !give_stages(s))
        return;
    const double cost = cost_of(s, tiles, multiprocessors) * (1 + apart);
    if (*least > 0 && cost > *least * 0.999)
        return;
    *least = cost;
    *best = *s;
}

/* The best box of places for the products that *s has. */
static void choose_places(og_window_halves *s, int32_t multiprocessors, og_window_halves *best,
                          double *least)
{
    const int32_t places = places_of(s);
    const og_image_dim *dims = s->of.dims;
    const int32_t unit = s->is_last ? 1 : 4; /* quads are of one line */
    const int32_t widest = (int32_t)og_min(places, og_divide_up(dims[2].places, unit) * unit);
    if (!give_stages(s))
        return;
    for (int32_t width = unit; width <= widest; width += unit)
        for (int32_t height = 1; height <= og_min(places / width, dims[1].places); height++) {
            const int32_t deep = (int32_t)og_min(places / width / height, dims[0].places);
            const double tiles = count_tiles(s, (int32_t[]){deep, height, width});
            /* of alike ones, lines and planes that lie together */
            const double images = s->tile_b == 1 ? 0 : s->is_last ? 0.005 : 0.08;
            const double apart = 0.1 / width + 0.02 / height + images;
            try_places(s, tiles, apart, multiprocessors, best, least);
        }
}

/* What windows see of a dim beyond their places. */
static int64_t halo_of(const og_image_dim *dim)
{
    return og_times(dim->taps - 1, llabs(dim->reach));
}

/* The number of tiles of so many lines, for which patches are brought; 0: they are none. `most`: images
 * of a tile. */
static double count_patches(og_window_halves *s, int32_t height, int32_t width, int64_t most)
{
    const og_image_dim *dims = s->of.dims;
    const int32_t tile[OG_WINDOW_DIMS] = {1, height, width};
    double tiles = 1;
    for (int i = 0; i < OG_WINDOW_DIMS; i++) {
        const int64_t extent = tile[i] + og_min(halo_of(&dims[i]), MOST_BOX);
        if (extent > MOST_BOX || dims[i].step != 1)
            return 0;
        s->tile[i] = tile[i];
        s->patch[i] = (int32_t)extent;
        s->tiles[i] = og_divide_up(dims[i].places, tile[i]);
        tiles *= (double)s->tiles[i];
    }
    s->tile_b = (int32_t)og_min(og_min(most, MOST_BOX), s->of.batch);
    s->tiles_b = og_divide_up(s->of.batch, s->tile_b);
    return tiles * (double)s->tiles_b;
}

/* The best tile whose places see patches: 8 places wide; or lines of which each follows the one before. */
static void choose_patch(og_window_halves *s, int32_t multiprocessors, og_window_halves *best,
                         double *least)
{
    const int32_t places = places_of(s), most = (int32_t)og_min(places, MOST_BOX);
    const og_image_dim *dims = s->of.dims;
    const bool is_flat = dims[0].taps == 1;
    if (s->of.taps == 1 || (s->chunks > 1 && s->line_channels < BLOCK_K))
        return;
    double tiles = count_patches(s, places / 8, 8, 1);
    s->apart = s->patch[2];
    try_places(s, tiles, 0.01, multiprocessors, best, least);
    s->apart = 8;
    for (int32_t width = 1; s->is_last && width <= og_min(most, dims[2].places); width++) {
        const int64_t line = width + og_min(halo_of(&dims[2]), MOST_BOX);
        const int64_t height = og_min((places - width) / line + 1, dims[1].places);
        const int64_t used = (height - 1) * line + width;
        const int64_t image = (height + og_min(halo_of(&dims[1]), MOST_BOX)) * line;
        const int64_t images =
            is_flat && height == dims[1].places ? (places - used) / image + 1 : 1;
        tiles = count_patches(s, (int32_t)height, width, images);
        try_places(s, tiles, 0.02 + 0.1 / width, multiprocessors, best, least);
    }
}

static const struct {
    int32_t height, width;
} products[] = {{2, 128}, {1, 256}, {1, 128}, {2, 64}, {1, 64}};

static bool choose_tile(og_window_halves *s, int32_t multiprocessors)
{
    og_window_halves best = {0};
    double least = 0;
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        for (int kind = 0; kind < 16; kind++) {
            og_window_halves tried = *s;
            if (s->is_long && products[i].height * products[i].width > 128)
                continue;
            tried.height = products[i].height;
            tried.width = products[i].width;
            tried.filter_rows = kind / 4 % 2 == s->is_last;
            tried.filters = tried.filter_rows ? 64 * tried.height : tried.width;
            tried.row_tiles = og_divide_up(s->of.filters, tried.filters);
            tried.alternates = kind % 2 == 0;
            tried.keeps = kind / 2 % 2 == 0;
            tried.packs = tried.filter_rows && s->may_pack;
            tried.apart = 8;
            tried.patches = kind / 8;
            if (tried.keeps && (tried.row_tiles > 1 || s->of.groups > 1))
                continue;
            if (tried.patches)
                choose_patch(&tried, multiprocessors, &best, &least);
            else
                choose_places(&tried, multiprocessors, &best, &least);
        }
    if (least > 0)
        *s = best;
    return least > 0;
}

static bool is_beyond(const og_window_halves *s)
{
    const og_window_shape *of = &s->of;
    double items = (double)s->tiles_b * (double)of->groups * (double)s->row_tiles;
    bool is = of->batch > MOST_EXTENT || (double)of->groups * (double)of->channels > MOST_EXTENT;
    for (int i = 0; i < OG_WINDOW_DIMS; i++) {
        const og_image_dim *dim = &of->dims[i];
        items *= (double)s->tiles[i];
        is |= dim->extent > MOST_EXTENT || llabs(dim->start) > MOST_EXTENT ||
              dim->places > MOST_EXTENT;
    }
    return is || items > 0x1p40;
}

const char *og_cuda_see_window_halves(const og_kernel *kernel, int32_t multiprocessors,
                                      og_window_halves *to)
{
    *to = (og_window_halves){0};
    const char *refused = og_cuda_see_image(kernel, &to->of);
    if (refused)
        return refused;
    if (to->of.filters < LEAST_FILTERS)
        return "few filters";
    if (kernel->products[0].k < LEAST_K)
        return "few terms";
    fold_line(to);
    choose_line(to);
    if (to->k_padded > MOST_K)
        return "many terms";
    to->is_long = to->k_padded > LONG_K;
    for (int i = 0; i < OG_WINDOW_DIMS; i++)
        if (to->of.dims[i].step < 1 || to->of.dims[i].step > MOST_STEP)
            return to->of.dims[i].step < 1 ? "an expanded image" : "a stride beyond 8";
    to->is_last = og_cuda_ends_in_filters(kernel);
    to->may_pack = may_pack(kernel, to);
    to->copies = !is_fetchable(to);
    to->copy_group = og_divide_up(to->channels, TMA_UNIT) * TMA_UNIT;
    if (to->of.groups > 1)
        to->copy_group = to->chunks * to->line_channels;
    to->copy_pitch = og_times(to->copy_group, to->of.groups);
    if (!choose_tile(to, og_max(1, multiprocessors)))
        return "windows larger than shared memory";
    if (is_beyond(to))
        return "an extent beyond 30 bits";
    to->items = to->tiles_b * to->of.groups * to->row_tiles;
    for (int i = 0; i < OG_WINDOW_DIMS; i++)
        to->items *= to->tiles[i];
    return NULL;
}
