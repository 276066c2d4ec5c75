/* SPDX-License-Identifier: MIT
 *
 * cpu_places.c - see cpu_places.h.
 */
#include "cpu/cpu_places.h"

#include <string.h>

enum {
    TILE = 512,             /* places: of 256 filters half as many */
    LEAST_TILE = 64,        /* and half of the least */
    MOST_PATCHES = 1 << 17, /* elements: patches and sums of a tile should stay in the L2 cache */
    SET = 16,               /* elements, in REALs of 4 bytes a line of the L1 cache */
    LEAST_LINE = 4          /* places: a line is a panel at least */
};

/* ---- how the image is seen ----------------------------------------------------- */

/* Lines are the last dim of rows, planes the last two; false: they are not apart. */
static bool see_lines(const og_cpu_view *view, og_cpu_scene *s)
{
    const og_cpu_line *rows = &view->rows;
    const int32_t last = rows->rank - 1;
    *s = (og_cpu_scene){.x = -1, .y = -1, .height = 1, .x_step = 1, .y_step = 1};
    if (last < 0)
        return false;
    for (int32_t w = 0; w < view->window_count; w++) {
        const bool along = rows->step[w][last] != 0, across = last && rows->step[w][last - 1] != 0;
        if ((along && (across || s->x >= 0)) || (across && s->y >= 0))
            return false;
        s->x = along ? w : s->x;
        s->y = across ? w : s->y;
    }
    s->width = rows->extent[last];
    s->x_step = s->x < 0 ? 1 : rows->step[s->x][last];
    s->x_stride = s->x_step < 1 ? 0 : rows->stride[last] / s->x_step;
    if (s->x_step < 1 || s->x_stride * s->x_step != rows->stride[last] || s->width < LEAST_LINE)
        return false;
    if (last == 0)
        return true;
    s->height = rows->extent[last - 1];
    s->y_step = s->y < 0 ? 1 : rows->step[s->y][last - 1];
    s->y_stride = s->y_step < 1 ? 0 : rows->stride[last - 1] / s->y_step;
    return s->y_step >= 1 && s->y_stride * s->y_step == rows->stride[last - 1];
}

/* A k, and the places of windows x and y there. */
typedef struct {
    og_cpu_channel channel;
    int64_t x, y;
} term;

static term find_term(const og_cpu_view *view, const og_cpu_scene *s, int64_t k)
{
    term t = {.x = 0};
    for (int32_t d = view->k.rank - 1; d >= 0; d--) {
        const int64_t at = k % view->k.extent[d];
        k /= view->k.extent[d];
        t.channel.base += at * view->k.stride[d];
        for (int32_t w = 0; w < view->window_count; w++)
            t.channel.places[w] += at * view->k.step[w][d];
    }
    if (s->x >= 0)
        t.x = t.channel.places[s->x], t.channel.places[s->x] = 0;
    if (s->y >= 0)
        t.y = t.channel.places[s->y], t.channel.places[s->y] = 0;
    t.channel.base -= t.x * s->x_stride + t.y * s->y_stride;
    return t;
}

/* Block b, whose channels go to `channels`, which has room for all. */
static void see_block(const og_cpu_view *view, const og_cpu_scene *s, int64_t k0,
                      og_cpu_channel *channels, og_cpu_block *b)
{
    term terms[OG_PRODUCT_BLOCK];
    int64_t x_most = INT64_MIN, y_most = INT64_MIN;
    b->x_least = b->y_least = INT64_MAX;
    b->neighbours = true;
    b->channels = channels;
    b->x_unit = s->x_step, b->y_unit = s->y_step;
    for (int64_t i = 0; i < b->count; i++) {
        const term t = terms[i] = find_term(view, s, k0 + i);
        const og_cpu_channel *last = channels + b->channel_count - 1;
        if (i == 0 || memcmp(last, &t.channel, sizeof *last) != 0) {
            b->neighbours &= i == 0 || t.channel.base == last->base + 1;
            channels[b->channel_count++] = t.channel;
        }
        b->k[i].channel = (int32_t)b->channel_count - 1;
        b->x_least = og_min(b->x_least, t.x), x_most = og_max(x_most, t.x);
        b->y_least = og_min(b->y_least, t.y), y_most = og_max(y_most, t.y);
    }
    for (int64_t i = 0; i < b->count; i++) {
        b->x_unit = og_greatest_divisor(b->x_unit, terms[i].x - b->x_least);
        b->y_unit = og_greatest_divisor(b->y_unit, terms[i].y - b->y_least);
    }
    b->x_units = s->x_step / b->x_unit;
    b->x_span = (x_most - b->x_least) / b->x_unit;
    b->y_span = (y_most - b->y_least) / b->y_unit;
    for (int64_t i = 0; i < b->count; i++) {
        b->k[i].x = (int32_t)((terms[i].x - b->x_least) / b->x_unit);
        b->k[i].row = (int32_t)((terms[i].y - b->y_least) / b->y_unit);
    }
    b->arrays = og_min(b->x_units, b->x_span + 1);
    b->line_rows = s->y_step / b->y_unit;
}

ogive_status og_cpu_see_scene(const og_cpu_factor *image, int64_t k, og_arena *arena,
                              og_cpu_scene **scene, ogive_error *error)
{
    og_cpu_scene seen;
    *scene = NULL;
    if (!image->view || k == 0 || !see_lines(image->view, &seen))
        return OGIVE_OK;
    const int64_t count = og_divide_up(k, OG_PRODUCT_BLOCK);
    og_cpu_scene *s = OG_ARENA_NEW(arena, og_cpu_scene, 1);
    og_cpu_block *blocks = OG_ARENA_NEW(arena, og_cpu_block, (size_t)count);
    og_cpu_channel *channels = OG_ARENA_NEW(arena, og_cpu_channel, (size_t)k);
    if (!s || !blocks || !channels)
        return og_fail_memory(error, (size_t)k * sizeof *channels);
    *s = seen;
    s->blocks = blocks;
    for (int64_t b = 0; b < count; b++) {
        const int64_t k0 = b * OG_PRODUCT_BLOCK;
        blocks[b].count = og_min(OG_PRODUCT_BLOCK, k - k0);
        see_block(image->view, s, k0, channels, &blocks[b]);
        channels += blocks[b].channel_count;
    }
    *scene = s;
    return OGIVE_OK;
}

/* ---- tiles ------------------------------------------------------------------- */

/* Patches for parts of at most so many lines, of each of which `length` places are seen; returns
 * their elements. */
static int64_t size_block(og_cpu_block *b, int64_t lines, int64_t length)
{
    b->array_pitch = length + b->x_span / b->x_units;
    b->row_pitch = b->arrays * b->array_pitch;
    /* A vector behind the last row may be written to. Channels begin in different sets of the L1
     * cache: an odd number of its lines apart. */
    const int64_t rows = (lines - 1) * b->line_rows + b->y_span + 1;
    b->channel_pitch = ((rows * b->row_pitch / SET + 2) | 1) * SET;
    for (int64_t i = 0; i < b->count; i++)
        b->at[i] = (int32_t)(b->k[i].channel * b->channel_pitch + b->k[i].row * b->row_pitch +
                             b->k[i].x % b->x_units * b->array_pitch + b->k[i].x / b->x_units);
    return b->channel_count * b->channel_pitch;
}

/* Do the patches of a tile of so many places fit? (og_cpu_find_part() says how it is seen.) */
static bool fit_patches(og_cpu_scene *s, og_cpu_tiling *t, int64_t places)
{
    const int64_t lines = places < s->width ? 1 : og_min(s->height, (places - 2) / s->width + 2);
    t->patches = 0;
    for (int64_t k = 0; k < t->k; k += OG_PRODUCT_BLOCK) {
        og_cpu_block *b = &s->blocks[k / OG_PRODUCT_BLOCK];
        t->patches = og_max(t->patches, size_block(b, lines, og_min(places, s->width)));
    }
    return t->patches <= MOST_PATCHES;
}

static int64_t count_tiles(const og_cpu_tiling *t)
{
    return og_divide_up(t->m, t->tile_m) * og_divide_up(t->n, t->tile_n);
}

/* So many places or fewer, whole lines if these are short enough, and tiles as even as can be. */
static int64_t round_places(const og_cpu_tiling *t, int64_t width, int64_t places)
{
    places = og_min(t->m, places < width ? places : places - places % width);
    const int64_t even = og_divide_up(t->m, og_divide_up(t->m, places));
    return places < width ? even : og_divide_up(even, width) * width;
}

bool og_cpu_cut_places(og_cpu_scene *scene, bool turns, bool whole, int64_t tile_count,
                       size_t bytes, og_cpu_tiling *t)
{
    if (t->m == 0 || t->n == 0)
        return false;
    const int64_t filters = turns ? t->m : t->n;
    const int64_t least =
        !turns ? LEAST_TILE : og_max(whole ? t->n : LEAST_TILE, OG_PRODUCT_COLUMNS);
    int64_t *places = turns ? &t->tile_n : &t->tile_m;
    t->way = OG_CPU_PRODUCT_PLACES;
    t->scene = scene;
    t->turns = turns;
    t->tile_m = og_min(t->m, OG_PRODUCT_WHOLE); /* of filters; of columns as many at least */
    t->tile_n = OG_PRODUCT_WHOLE;
    while (t->tile_n > OG_PRODUCT_COLUMNS && t->tile_n / 2 >= t->n)
        t->tile_n /= 2;
    if (!turns)
        t->tile_m = round_places(t, scene->width, filters > OG_PRODUCT_WHOLE / 2 ? TILE / 2 : TILE);
    else if (t->n > OG_PRODUCT_WHOLE && filters <= OG_PRODUCT_WHOLE / 2)
        t->tile_n = TILE;
    while (*places / 2 >= least && (count_tiles(t) < tile_count || !fit_patches(scene, t, *places)))
        *places /= 2;
    if (!fit_patches(scene, t, *places))
        return false;
    /* Sums that are not turned yet have rows of whole vectors: 64 bytes. */
    const int64_t columns =
        turns ? og_divide_up(t->tile_m, OG_PRODUCT_COLUMNS) * OG_PRODUCT_COLUMNS : t->tile_n;
    const int64_t sums = (turns ? t->tile_n : t->tile_m) * columns;
    t->sum_stride = columns;
    t->sum_bytes = (size_t)(t->tile_m * t->tile_n) * bytes;
    t->work_bytes =
        (size_t)((turns ? sums : 0) + (t->k > OG_PRODUCT_GROUP ? sums : 0) + t->patches) * bytes;
    t->work_bytes = (t->work_bytes + 63) / 64 * 64;
    return true;
}
