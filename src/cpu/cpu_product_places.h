/* SPDX-License-Identifier: MIT
 *
 * cpu_product_places.h - a convolution's product of one type, whose rows are places of an image;
 * included by cpu_product_template.c between cpu_product_core.h and cpu_product_few.h, with their
 * parameters, those of cpu_product_view.h and
 *
 *   TRANSPOSE(dtype, rows, element, t)   t[j][i] = element + j of rows[i], LANES x LANES of them
 *   UNALIGNED                            a vector anywhere in memory
 *
 * What windows of a tile's places see of an image is copied once for all taps, as lines of
 * neighbours with zeros around: a patch of each channel. The places of a line are then neighbours
 * whatever the tap, and the register tile reads a panel of them as they lie there, by a table of
 * where each k is. The filters were packed before (og_cpu_product_kernels.pack): nothing else is
 * copied.
 *
 * A tile, outside in:
 *   block of k
 *    part             the tile's places in a plane of the image; its patches
 *     sliver          filters
 *      line, panel    at most PANEL places: the register tile, all of the block
 * A line's part of the patches and a sliver fit the L1 cache, patches and tile the L2 cache.
 */

/* Places of a tile in a plane: lines from `line` on, the first of them from place x on. */
typedef struct {
    int64_t plane, line, x, count, lines;
    int64_t left, length; /* of a line: the first place that patches have, and how many */
} P(part);

/* ---- patches ----------------------------------------------------------------- */

/* The part of a tile's places [from, end) that begins with the first of them. */
static P(part) P(find_part)(const og_cpu_scene *s, int64_t from, int64_t end)
{
    const int64_t plane = s->width * s->height, at = from % plane;
    P(part) p = {.plane = from / plane, .line = at / s->width, .x = at % s->width};
    p.count = og_min(end - from, plane - at);
    if (p.count < s->width) /* of two lines patches would be as long as whole ones */
        p.count = og_min(p.count, s->width - p.x);
    p.lines = (p.x + p.count - 1) / s->width + 1;
    p.left = p.lines > 1 ? 0 : p.x;
    p.length = p.lines > 1 ? s->width : p.count;
    return p;
}

/* Places of a patch's array, of all channels: elements [first, end) of length are in memory from
 * offset on, step elements apart; the others are 0. */
typedef struct {
    int64_t offset, step, first, end, length;
    int64_t ahead; /* elements to what is copied next of a channel: it is fetched */
} P(run);

/* Of channels that lie side by side, of which vectors change sides: where there are fewer than a
 * vector has, `before` of those that lie before them are read, too. */
OG_FN void P(turn_run)(const og_dtype dtype, const char *data, const P(run) * r, int64_t channels,
                       int64_t before, int64_t pitch, REAL *to)
{
    const int64_t bytes = bytes_of(dtype), count = r->end - r->first;
    for (int64_t i = 0; i < count; i += LANES) {
        const int64_t place = og_max(0, og_min(i, count - LANES));
        const char *rows[LANES];
        for (int64_t u = 0; u < LANES; u++)
            rows[u] = data + (r->offset + og_min(place + u, count - 1) * r->step) * bytes;
        for (int64_t c = 0; c < channels; c += LANES) {
            const int64_t channel = og_min(c, channels - LANES);
            VECTOR t[LANES];
            for (int64_t u = 0; u < LANES; u++)
                __builtin_prefetch(rows[u] + (channel + r->ahead) * bytes);
            TRANSPOSE(dtype, rows, channel, t);
            UNROLL for (int u = 0; u < LANES; u++) if (u >= before) *
                (UNALIGNED *)(to + (channel + u) * pitch + r->first + place) = t[u];
        }
    }
    for (int64_t c = before; c < channels; c++) {
        for (int64_t i = 0; i < r->first; i++)
            to[c * pitch + i] = 0;
        for (int64_t i = r->end; i < r->length; i++)
            to[c * pitch + i] = 0;
    }
}

/* Does another window than x and y see nothing of the channel? */
static inline bool P(misses)(const og_cpu_factor *image, const og_cpu_scene *s,
                             const P(stretch) * plane, const og_cpu_channel *channel)
{
    for (int32_t w = 0; w < image->view->window_count; w++) {
        const int64_t place = image->places[w] + plane->places[w] + channel->places[w];
        if (w != s->x && w != s->y && (uint64_t)place >= (uint64_t)image->view->extent[w])
            return true;
    }
    return false;
}

OG_FN void P(copy_channels)(const og_dtype dtype, const og_cpu_factor *image, const og_cpu_scene *s,
                            const og_cpu_block *b, const P(stretch) * plane, const P(run) * run,
                            REAL *to)
{
    const bool others = image->view->window_count > (s->x >= 0) + (s->y >= 0);
    const int64_t before = og_max(0, LANES - b->channel_count);
    const int64_t first = b->channels->base - s->blocks->channels->base;
    if (run->step > 2 && b->neighbours && !others && b->channel_count >= FEWEST_TURNED &&
        (!before || first >= before)) {
        P(run) turned = *run;
        turned.offset += b->channels->base - before;
        P(turn_run)
        (dtype, image->data, &turned, b->channel_count + before, before, b->channel_pitch,
         to - before * b->channel_pitch);
        return;
    }
    const int64_t bytes = bytes_of(dtype), lines = (run->end - run->first) * run->step * bytes;
    for (int64_t c = 0; c < b->channel_count; c++) {
        const char *next =
            (const char *)image->data + (b->channels[c].base + run->offset + run->ahead) * bytes;
        for (int64_t line = 0; line < lines + LINE - 1; line += LINE)
            __builtin_prefetch(next + line);
        const bool none = others && P(misses)(image, s, plane, &b->channels[c]);
        P(copy_stretch)
        (dtype, image->data, b->channels[c].base + run->offset - run->first * run->step, run->step,
         run->length, none ? 0 : run->first, none ? 0 : run->end, to + c * b->channel_pitch, 1);
    }
}

/* All channels of a block, of what windows of a part see. */
OG_FN void P(copy_patches)(const og_dtype dtype, const og_cpu_factor *image, const og_cpu_scene *s,
                           const og_cpu_block *b, const P(part) * part, REAL *to)
{
    const og_cpu_view *view = image->view;
    const int64_t rows = (part->lines - 1) * b->line_rows + b->y_span + 1;
    P(stretch) plane;
    P(list_places)
    (&view->rows, view->window_count, part->plane * s->width * s->height, 1, false, &plane);
    for (int64_t row = 0; row < rows; row++) {
        if (row % b->line_rows > b->y_span) /* between what lines see */
            continue;
        const int64_t down = part->line * s->y_step + b->y_least + row * b->y_unit;
        const bool there = s->y < 0 || (uint64_t)(image->places[s->y] + plane.places[s->y] + down) <
                                           (uint64_t)view->extent[s->y];
        for (int64_t a = 0; a < b->arrays; a++) {
            const int64_t right = part->left * s->x_step + b->x_least + a * b->x_unit;
            P(run) run = {.step = s->x_step * s->x_stride};
            run.length = part->length + (b->x_span - a) / b->x_units;
            run.end = there ? run.length : 0;
            if (s->x >= 0)
                P(look)
            (image->places[s->x] + plane.places[s->x] + right, s->x_step, view->extent[s->x],
             &run.first, &run.end);
            run.offset = image->offset + plane.offset + down * s->y_stride + right * s->x_stride +
                         run.first * run.step;
            run.ahead = b->y_unit * s->y_stride;
            P(copy_channels)
            (dtype, image, s, b, &plane, &run, to + row * b->row_pitch + a * b->array_pitch);
        }
    }
}

/* ---- register tile ----------------------------------------------------------- */

/* Sums of rows x vectors over count k, to c (first) or onto it: row i of left is a[at[k] + i]. */
static inline __attribute__((always_inline)) void
P(multiply_places)(const int rows, const int vectors, int64_t count, const REAL *restrict a,
                   const int32_t *restrict at, const REAL *restrict b, REAL *restrict c,
                   int64_t stride, bool first)
{
    VECTOR sum[PANEL][VECTORS];
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < vectors; j++) sum[i][j] =
        SPLAT(0);
    for (int64_t k = 0; k < count; k++, b += VECTORS * LANES) {
        const REAL *left = a + at[k];
        VECTOR right[VECTORS];
        UNROLL for (int j = 0; j < vectors; j++) right[j] = *(const MEMORY *)(b + j * LANES);
        UNROLL for (int i = 0; i < rows; i++)
        {
            VECTOR one = SPLAT(left[i]);
            UNROLL for (int j = 0; j < vectors; j++) sum[i][j] = FMA(one, right[j], sum[i][j]);
        }
    }
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < vectors; j++)
    {
        MEMORY *to = (MEMORY *)(c + i * stride + j * LANES);
        if (!first)
            sum[i][j] = *to + sum[i][j];
        *to = sum[i][j];
    }
}

typedef void P(multiply_places_fn)(int64_t count, const REAL *a, const int32_t *at, const REAL *b,
                                   REAL *c, int64_t stride, bool first);

#define X(rows, vectors)                                                                           \
    static void P(multiply_places_##rows##_##vectors)(int64_t count, const REAL *a,                \
                                                      const int32_t *at, const REAL *b, REAL *c,   \
                                                      int64_t stride, bool first)                  \
    {                                                                                              \
        P(multiply_places)(rows, vectors, count, a, at, b, c, stride, first);                      \
    }
KERNELS(X)
#undef X

#define X(rows, vectors) [rows][vectors] = P(multiply_places_##rows##_##vectors),
static P(multiply_places_fn) *const P(place_kernels)[PANEL + 1][VECTORS + 1] = {KERNELS(X)};
#undef X

/* ---- tiles ------------------------------------------------------------------- */

typedef struct {
    const og_cpu_tiling *tiling;
    const og_cpu_factor *image;
    const REAL *filters;            /* packed, from the tile's first on */
    int64_t first, places, columns; /* of the tile: places, and sums of each */
    REAL *c, *groups, *patches;
} P(place_job);

/* All filters of the tile with one part of its places, whose sums are at c. */
static void P(run_part)(const P(place_job) * j, const P(part) * part, int64_t k0, REAL *c)
{
    enum { SLIVER = VECTORS * LANES };
    const og_cpu_scene *s = j->tiling->scene;
    const og_cpu_block *b = &s->blocks[k0 / OG_PRODUCT_BLOCK];
    const int64_t stride = j->tiling->sum_stride;
    switch (j->image->dtype) {
#define CASE(none, type)                                                                           \
    case type:                                                                                     \
        P(copy_patches)(type, j->image, s, b, part, j->patches);                                   \
        break;
        DTYPES(CASE, none)
#undef CASE
    default:
        break;
    }
    for (int64_t n = 0; n < j->columns; n += SLIVER) {
        const REAL *filters = j->filters + n * j->tiling->k + k0 * SLIVER;
        const int64_t vectors = (og_min(SLIVER, j->columns - n) + LANES - 1) / LANES;
        int64_t x = part->x;
        for (int64_t done = 0, line = 0, some; done < part->count; done += some, line++, x = 0) {
            some = og_min(s->width - x, part->count - done);
            const REAL *left = j->patches + line * b->line_rows * b->row_pitch + x - part->left;
            const int64_t panels = (some + PANEL - 1) / PANEL;
            for (int64_t i = 0; i < panels; i++) {
                const int64_t m = P(panel_at)(some, panels, i);
                const int64_t rows = P(panel_at)(some, panels, i + 1) - m;
                P(place_kernels)
                [rows][vectors](b->count, left + m, b->at, filters, c + (done + m) * stride + n,
                                stride, k0 % OG_PRODUCT_GROUP == 0);
            }
        }
    }
}

/* Sums of places become those of filters: to[filter][place], rows of which are tile_n apart. */
static void P(turn_sums)(const P(place_job) * j, REAL *to)
{
    const int64_t stride = j->tiling->sum_stride;
    for (int64_t n = 0; n < j->columns; n += LANES)
        for (int64_t m = 0; m < j->places; m += LANES) {
            const char *rows[LANES];
            VECTOR t[LANES];
            for (int64_t u = 0; u < LANES; u++)
                rows[u] = (const char *)(j->c + (m + u) * stride + n);
            TRANSPOSE(sizeof(REAL) == 8 ? OG_FLOAT64 : OG_FLOAT32, rows, 0, t);
            for (int64_t u = 0; u < og_min(LANES, j->columns - n); u++)
                *(MEMORY *)(to + (n + u) * j->tiling->tile_n + m) = t[u];
        }
}

static void P(run_places)(const og_cpu_tiling *t, const og_cpu_factors *factors, int64_t m0,
                          int64_t rows, int64_t n0, int64_t columns, REAL *sums, REAL *work)
{
    const og_cpu_factor *filters = t->turns ? &factors->left : &factors->right;
    P(place_job) j = {.tiling = t, .image = t->turns ? &factors->right : &factors->left};
    j.filters = (const REAL *)filters->data + (t->turns ? m0 : n0) * t->k;
    j.first = t->turns ? n0 : m0;
    j.places = t->turns ? columns : rows;
    j.columns = t->turns ? rows : columns;
    const int64_t all = (t->turns ? t->tile_n : t->tile_m) * t->sum_stride;
    j.c = t->turns ? work : sums;
    j.groups = work + (t->turns ? all : 0);
    j.patches = j.groups + (t->k > OG_PRODUCT_GROUP ? all : 0);
    for (int64_t k0 = 0; k0 < t->k; k0 += OG_PRODUCT_BLOCK) {
        if (k0 && k0 % OG_PRODUCT_GROUP == 0)
            P(close_group)(j.c, j.groups, j.places * t->sum_stride, k0 == OG_PRODUCT_GROUP);
        for (int64_t done = 0; done < j.places;) {
            const P(part) part = P(find_part)(t->scene, j.first + done, j.first + j.places);
            P(run_part)(&j, &part, k0, j.c + done * t->sum_stride);
            done += part.count;
        }
    }
    for (int64_t i = 0; t->k > OG_PRODUCT_GROUP && i < j.places * t->sum_stride; i++)
        j.c[i] = j.groups[i] + j.c[i];
    if (t->turns)
        P(turn_sums)(&j, sums);
}

static void P(pack_filters)(const og_cpu_factor *filters, int64_t n, int64_t k, int64_t sliver,
                            REAL *to)
{
    enum { SLIVER = VECTORS * LANES };
    for (int64_t k0 = 0; k0 < k; k0 += OG_PRODUCT_BLOCK)
        P(pack_sliver)
    (filters, sliver * SLIVER, og_min(SLIVER, n - sliver * SLIVER), k0,
     og_min(OG_PRODUCT_BLOCK, k - k0), to + k0 * SLIVER);
}
