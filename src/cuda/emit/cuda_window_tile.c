/* SPDX-License-Identifier: MIT
 *
 * cuda_window_tile.c - see cuda_window_tile.h.
 */
#include "cuda/emit/cuda_window_tile.h"

#include <stdlib.h>

enum {
    LEAST_CHANNELS = 3, /* 4 are multiplied */
    LEAST_FILTERS = 16, /* of 32 */
    LEAST_K = 24,       /* of 64 */
    MOST_K = 16384,     /* sums of 64 k are added up one after the other */
    MOST_TAPS = 256,
    MOST_BOX = 256,
    MOST_EXTENT = 1 << 30,
    LEAST_WIDTH = 16, /* of a tile: neighbouring threads read neighbours */
    SHARED_BYTES = 227 * 1024,
    MOST_PATCH_STAGES = 4, /* of a ring */
    CELL_BYTES = 4 * OG_CELL_CHANNELS + 16,
    CELL_STAGES = 2,
    GROUPS = 2,                            /* of warps that multiply */
    SCALE_BYTES = 8,                       /* of a filter: og_row_scale */
    BOUNDED = 32,                          /* filters that have one more in common */
    X_BOX_ROW = 2 * 2 * OG_HOPPER_BLOCK_K, /* bytes of a filter's 64 k, hi and lo */
    PIECE_ROWS = 16,                       /* OG_PIECE_ROWS, OG_ENDS_PIECE_BYTES */
    PIECE_BYTES = 4 * PIECE_ROWS * (64 + 4),
    TRAY_ROW = 4 * (64 + 4), /* of OG_TRAY_BYTES */
    ORDER_BYTES = 16         /* two barriers: whose turn it is */
};

int32_t og_tile_phases_of(const og_window_shape *s, int dim)
{
    return dim == OG_WINDOW_DIMS - 1 && s->row_phases > 1 ? 1 : s->dims[dim].phase_count;
}

/* ---- the image ------------------------------------------------------------------------------- */

/* The window of dim p of the space, or NULL: windows that see all of a dim are strides. */
static const og_window *find_window(const og_access *image, int32_t p)
{
    for (int32_t w = 0; w < image->window_count; w++)
        if (image->windows[w].place == p)
            return &image->windows[w];
    return NULL;
}

/* How many times the lesser the greater of two strides is. */
static int64_t ratio_of(int64_t a, int64_t b)
{
    const int64_t least = og_min(llabs(a), llabs(b));
    return least ? og_max(llabs(a), llabs(b)) / least : INT64_MAX;
}

/* tap_of[p]: the dim of k that is the taps of dim p of the space, or -1. Of windows that are strides
 * any pairing gives the same elements; strides that are alike are of one dim of the image, whose
 * patches are least. Returns false if a dim of k remains, if a window has no places (there is one
 * only, which the space does not have), or if taps are not in the order of their places: filters
 * and patches count taps alike. */
static bool pair_taps(const og_kernel *kernel, int32_t tap_of[OG_MAX_RANK])
{
    const og_product *product = &kernel->products[0];
    const og_k_dims *k = &product->k_dims;
    const og_access *image = &product->right;
    const int32_t rank = kernel->space.rank, first = rank - kernel->matrices.n_rank;
    for (int32_t p = first; p < rank; p++) {
        const og_window *window = find_window(image, p);
        tap_of[p] = window ? window->tap : -1;
    }
    if (find_window(image, -1))
        return false;
    for (int32_t d = 1; d < k->rank; d++) {
        int32_t best = -1;
        if (og_access_has_tap(image, d))
            continue;
        for (int32_t p = first; p < rank; p++)
            if (tap_of[p] < 0 && !find_window(image, p) &&
                (best < 0 || ratio_of(image->stride[p], k->stride[1][d]) <
                                 ratio_of(image->stride[best], k->stride[1][d])))
                best = p;
        if (best < 0)
            return false;
        tap_of[best] = d;
    }
    int32_t last = -1;
    for (int32_t p = first; p < rank; p++) {
        if (tap_of[p] >= 0 && tap_of[p] < last)
            return false;
        last = og_max(last, tap_of[p]);
    }
    return true;
}

/* The phases of a dim whose window has a divisor; of more than OG_MOST_PHASES only their number, since
 * the first tap of one would be sought among as many. */
static void see_phases(const og_window *window, int64_t taps, og_image_dim *to)
{
    const int64_t divisor = window->divisor, dilation = window->tap < 0 ? 0 : -window->reach;
    const int64_t common = og_greatest_divisor(llabs(dilation), divisor);
    to->extent = window->extent;
    to->stride = window->stride;
    to->places = og_divide_up(to->results, divisor);
    to->phase_count = divisor > INT32_MAX ? INT32_MAX : (int32_t)divisor;
    to->tap_step = divisor / common;
    to->tap_count = taps;
    to->phase_reach = -dilation / common;
    to->reach = to->phase_reach;
    for (int32_t r = 0; divisor <= OG_MOST_PHASES && r < to->phase_count; r++) {
        og_window_phase *phase = &to->phase[r];
        const int64_t from = window->start + r, tried = og_min(taps, to->tap_step);
        while (phase->first_tap < tried && (from - phase->first_tap * dilation) % divisor)
            phase->first_tap++;
        phase->taps =
            phase->first_tap < tried ? (taps - 1 - phase->first_tap) / to->tap_step + 1 : 0;
        phase->first_tap = phase->taps ? phase->first_tap : 0;
        phase->start = phase->taps ? (from - phase->first_tap * dilation) / divisor : 0;
    }
}

/* Dim p of the space, whose taps are dim `tap` of k. */
static og_image_dim see_dim(const og_kernel *kernel, int32_t p, int32_t tap)
{
    const og_product *product = &kernel->products[0];
    const og_access *image = &product->right;
    const og_window *window = find_window(image, p);
    const int64_t taps = tap < 0 ? 1 : product->k_dims.extent[tap];
    og_image_dim to = {.places = kernel->space.extent[p], .taps = taps, .step = 1};
    to.results = to.places;
    to.phase_count = 1;
    if (window && window->divisor > 1) {
        see_phases(window, taps, &to);
        return to;
    }
    if (window) {
        to.extent = window->extent;
        to.stride = window->stride;
        to.start = window->start;
        to.step = window->step;
        to.reach = tap < 0 ? 0 : window->reach;
        return to;
    }
    const int64_t across = image->stride[p], along = tap < 0 ? 0 : product->k_dims.stride[1][tap];
    to.stride = og_greatest_divisor(llabs(across), llabs(along));
    to.stride = to.stride ? to.stride : 1;
    to.step = across / to.stride;
    to.reach = along / to.stride;
    if (to.step < 0) { /* both ways from there */
        to.stride = -to.stride;
        to.step = -to.step;
        to.reach = -to.reach;
    }
    to.start = to.reach < 0 ? -to.reach * (taps - 1) : 0;
    to.extent = to.start + (to.places - 1) * to.step + og_max(0, to.reach) * (taps - 1) + 1;
    return to;
}

const char *og_cuda_see_image(const og_kernel *kernel, og_window_shape *to)
{
    const og_product *product = &kernel->products[0];
    const og_matrices *of = &kernel->matrices;
    const int32_t rank = kernel->space.rank, grouped = of->batch_rank - 1;
    const og_access *image = &product->right;
    int32_t tap_of[OG_MAX_RANK];
    if (product->left.window_count || og_access_has_tap(image, 0) || of->n_rank < 1 ||
        of->n_rank > OG_WINDOW_DIMS || of->m_rank != 1 || of->batch_rank > 2 ||
        !pair_taps(kernel, tap_of))
        return "a gradient by filters, or an odd shape";
    const bool has_groups = grouped >= 0 && product->left.stride[grouped] != 0;
    const bool has_batch = of->batch_rank == 1 + has_groups;
    *to = (og_window_shape){.filters = of->m,
                            .channels = product->k_dims.extent[0],
                            .groups = has_groups ? kernel->space.extent[grouped] : 1,
                            .batch = has_batch ? kernel->space.extent[0] : 1,
                            .channel_stride = product->k_dims.stride[1][0],
                            .batch_stride = has_batch ? image->stride[0] : 0,
                            .offset = image->offset,
                            .row_phases = 1,
                            .tile_phases = 1,
                            .vector = 1,
                            .taps = 1};
    if ((of->batch_rank == 2 && (!has_groups || product->left.stride[0] != 0)) ||
        (has_groups && image->stride[grouped] != to->channels * to->channel_stride))
        return "batches of several dims";
    for (int32_t i = 0; i < OG_WINDOW_DIMS; i++) {
        const int32_t p = rank - OG_WINDOW_DIMS + i;
        to->dims[i] = (og_image_dim){.extent = 1,
                                     .stride = 1,
                                     .places = 1,
                                     .results = 1,
                                     .phase_count = 1,
                                     .taps = 1,
                                     .step = 1};
        if (i < OG_WINDOW_DIMS - of->n_rank)
            continue;
        to->dims[i] = see_dim(kernel, p, tap_of[p]);
        if (!find_window(image, p))
            to->offset -= to->dims[i].start * to->dims[i].stride;
        to->gathers |= to->dims[i].phase_count > 1;
        to->taps = og_times(to->taps, to->dims[i].taps);
    }
    return NULL;
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Can TMA take such steps through the image? Those of one element do not matter. */
static bool is_step(int64_t extent, int64_t stride)
{
    return extent == 1 || (stride > 0 && stride % 4 == 0 && stride <= OG_HOPPER_MOST_STEP);
}

static bool is_fetchable(const og_window_shape *s)
{
    const og_image_dim *width = &s->dims[OG_WINDOW_DIMS - 1], *height = width - 1;
    bool fits = width->stride == 1 && is_step(s->groups * s->channels, s->channel_stride) &&
                is_step(s->batch, s->batch_stride) &&
                (height->extent == 1 || height->stride >= width->extent);
    for (int i = 0; i < OG_WINDOW_DIMS - 1; i++)
        fits &= is_step(s->dims[i].extent, s->dims[i].stride);
    return fits;
}

static void place_patch(int64_t start, int64_t taps, int64_t reach, bool is_line, int64_t *from,
                        int64_t *back)
{
    *back = reach < 0 ? -reach * (taps - 1) : 0;
    *from = start - *back;
    const int64_t lead = is_line ? *from & 3 : 0;
    *from -= lead;
    *back += lead;
}

/* Where patches begin. Along a line that is a multiple of 16 bytes: TMA takes no other (H200). */
static void place_patches(og_window_shape *s)
{
    for (int i = 0; i < OG_WINDOW_DIMS; i++) {
        og_image_dim *dim = &s->dims[i];
        const bool is_line = i == OG_WINDOW_DIMS - 1;
        place_patch(dim->start, dim->taps, dim->reach, is_line, &dim->from, &dim->back);
        for (int32_t r = 0; s->gathers && r < og_tile_phases_of(s, i); r++) {
            og_window_phase *phase = &dim->phase[r];
            if (og_tile_phases_of(s, i) > 1)
                place_patch(phase->start, og_max(1, phase->taps), dim->reach, is_line, &phase->from,
                            &phase->back);
        }
    }
}

/* What the windows of so many places see. Threads that read at once, of four channels that are one
 * or two apart, should have different banks of shared memory: lines have a number of fours that is
 * no multiple of four, and the number of lines is odd. Those that make cells read neighbours. */
static int64_t patch_of(const og_image_dim *dim, int32_t phases, int32_t places, bool is_line,
                        bool has_cells)
{
    const int64_t ahead = og_max(0, dim->reach) * (dim->taps - 1);
    int64_t back = dim->back;
    for (int32_t r = 0; r < phases && phases > 1; r++)
        back = og_max(r ? back : 0, dim->phase[r].back);
    const int64_t seen = back + (places - 1) * dim->step + ahead + 1;
    const int64_t fours = og_divide_up(seen, 4);
    if (has_cells)
        return is_line ? fours * 4 : seen;
    return is_line ? (fours + (fours % 4 == 0)) * 4 : seen | 1;
}

/* Channels of a step, all of whose taps have them. */
static int32_t step_channels(const og_window_shape *s)
{
    return OG_WINDOW_STEP / s->step_taps;
}

/* Steps of 16 k of a chunk that has so many taps. */
static int64_t plain_steps_of(const og_window_shape *s, int64_t taps, int32_t chunk)
{
    return og_divide_up(taps, s->step_taps) * (chunk / step_channels(s));
}

/* With padding. */
static int32_t steps_of(const og_window_shape *s, int64_t taps, int32_t chunk)
{
    const int64_t steps = plain_steps_of(s, taps, chunk);
    return (int32_t)(s->cell_stages ? steps : og_divide_up(steps, 4) * 4);
}

/* Taps of phase q of tiles; 0: it is empty. */
static int64_t taps_of(const og_window_shape *s, int32_t q)
{
    int64_t taps = 1;
    for (int i = OG_WINDOW_DIMS - 1; i >= 0; i--) {
        const int32_t phases = og_tile_phases_of(s, i);
        taps *= phases > 1 ? s->dims[i].phase[q % phases].taps : s->dims[i].taps;
        q /= phases;
    }
    return taps;
}

bool og_is_empty_phase(const og_window_shape *s, int32_t q)
{
    return taps_of(s, q) == 0;
}

/* Steps of a chunk of phase q of tiles: a block of zeros, if it is empty. */
static int32_t phase_steps(const og_window_shape *s, int32_t q, int32_t chunk)
{
    return og_max(s->cell_stages ? 2 : 4, steps_of(s, taps_of(s, q), chunk));
}

/* Those of all phases. */
static int64_t all_steps(const og_window_shape *s, int32_t chunk)
{
    int64_t steps = 0;
    for (int32_t q = 0; q < s->tile_phases; q++)
        steps += phase_steps(s, q, chunk);
    return steps;
}

static int64_t patch_bytes(const og_window_shape *s, int32_t chunk)
{
    const int64_t pitch = (int64_t)s->patch[0] * s->patch[1] * s->patch[2] * 4;
    return og_divide_up(chunk * pitch, 128) * 128;
}

/* Of a patch whose places are cells. */
static int64_t cells_bytes(const og_window_shape *s)
{
    return (int64_t)s->patch[0] * s->patch[1] * s->patch[2] * CELL_BYTES;
}

/* Blocks of 64 k of filters that shared memory holds: all of a tile's, where they stay. */
static int64_t x_stages_of(const og_window_shape *s, int32_t chunk)
{
    if (!s->keeps)
        return s->rows < 128 && !s->trays ? 4 : 3;
    return og_divide_up(s->channels, chunk) * (steps_of(s, s->taps, chunk) / 4);
}

/* Places of a tile. */
static int32_t places_of(const og_window_shape *s)
{
    return s->alternates ? OG_WINDOW_PLACES / GROUPS : OG_WINDOW_PLACES;
}

/* Rings of patches. */
static int32_t rings_of(const og_window_shape *s)
{
    return s->alternates ? s->alternates : 1;
}

/* Shared memory of everything but patches and their barriers. */
static int64_t other_bytes(const og_window_shape *s, int32_t chunk)
{
    const int32_t steps = steps_of(s, s->taps, chunk);
    const int32_t words = s->cell_stages ? (steps / 2 + 3) / 4 * 4 : steps * s->step_taps;
    return x_stages_of(s, chunk) * (s->rows * X_BOX_ROW + 16) + 4 * s->tile_phases * words +
           s->cell_stages * (cells_bytes(s) + 16) + s->trays * GROUPS * (s->rows * TRAY_ROW + 16) +
           (s->alternates ? s->alternates : GROUPS) * (s->rows + s->rows / BOUNDED) * SCALE_BYTES +
           8 * s->alternates;
}

static int32_t stages_of(const og_window_shape *s, int32_t chunk)
{
    const int64_t room = SHARED_BYTES - other_bytes(s, chunk);
    const int64_t stages = room / (rings_of(s) * (patch_bytes(s, chunk) + 16));
    return (int32_t)og_min(s->cell_stages ? CELL_STAGES : MOST_PATCH_STAGES, stages);
}

static void give_stages(og_window_shape *s)
{
    s->patch_stages = stages_of(s, s->chunk);
    s->shared_bytes =
        other_bytes(s, s->chunk) + rings_of(s) * s->patch_stages * (patch_bytes(s, s->chunk) + 16);
}

/* Channels of a patch: those that leave the least to be padded, then the most. */
static bool choose_chunk(og_window_shape *s)
{
    const int32_t step = step_channels(s);
    const int64_t all = og_divide_up(s->channels, step);
    int64_t best = 0;
    const int32_t least = s->cell_stages ? 1 : 2; /* patches that there is room for */
    enum { LAST_BLOCKS = 3 }; /* of 64 k: which is the last one is compiled in */
    for (int32_t count = 1; count <= all && count * step <= MOST_BOX; count++) {
        const int32_t chunk = count * step;
        const int64_t steps = all / count * all_steps(s, chunk);
        if (all % count || stages_of(s, chunk) < least || (best && steps > best) ||
            (s->cell_stages && chunk != OG_CELL_CHANNELS))
            continue;
        best = steps;
        s->chunk = chunk;
    }
    if (!best)
        return false;
    s->steps = steps_of(s, s->taps, s->chunk);
    for (int32_t q = 0; q < s->tile_phases; q++)
        s->phase_steps[q] = phase_steps(s, q, s->chunk);
    s->chunks = all * step / s->chunk;
    s->last_steps = 4;
    if (s->chunks == 1 && s->tile_phases == 1 && !s->cell_stages && s->steps <= 4 * LAST_BLOCKS)
        s->last_steps = (int32_t)(plain_steps_of(s, s->taps, s->chunk) - (s->steps - 4));
    s->k_padded = og_divide_up(s->chunks * s->steps, 4) * OG_HOPPER_BLOCK_K;
    s->x_stages = (int32_t)x_stages_of(s, s->chunk);
    give_stages(s);
    return true;
}

/* Patches and tiles of so many filters and places; false if there can be none. */
static bool take_tile(og_window_shape *s, int32_t rows, const int32_t tile[OG_WINDOW_DIMS])
{
    s->rows = rows;
    s->row_tiles = og_divide_up(s->filters * s->row_phases, rows);
    for (int i = 0; i < OG_WINDOW_DIMS; i++) {
        const int64_t patch = patch_of(&s->dims[i], og_tile_phases_of(s, i), tile[i],
                                       i == OG_WINDOW_DIMS - 1, s->cell_stages > 0);
        if (patch > MOST_BOX)
            return false;
        s->tile[i] = tile[i];
        s->patch[i] = (int32_t)patch;
        s->tiles[i] = og_divide_up(s->dims[i].places, tile[i]);
    }
    s->spreads = !s->cell_stages && s->step_taps < 4 && s->patch[OG_WINDOW_DIMS - 1] % 8 == 0;
    return choose_chunk(s);
}

/* Filters of a tile, and what 64 k of it cost: of fewer, threads spend more of their time with
 * places. Units of 10 ns of a multiprocessor (H200). Of so many groups that alternate; of fewer
 * filters than 32 there are no tiles, and of more their ends are bound by what L2 takes. */
static const struct {
    int32_t rows, block;
    int32_t cells; /* what a block costs whose places are cells; 0: they never are */
    int32_t alternates;
} kinds[] = {{128, 90, 80, 0}, {64, 52, 42, 0}, {32, 47, 0, 0}, {32, 40, 0, 3}};

/* Of the end of a tile, what it takes where other warps do it; what the shorter of products and ends adds
 * to the longer one then. */
#define TRAY_SHARE 0.6
#define BESIDE_SHARE 0.2

/* Time of all tiles, in those units (from L1-55, 57, 63 and 71 of KernelBench with tiles of every
 * width): blocks of 64 k; patches, by their elements; the end of a tile, which takes the longer, the
 * shorter the pieces of lines are that it writes. */
static double cost_of(const og_window_shape *s, int32_t block)
{
    const double share = s->rows / 128.0 * (s->alternates ? 0.8 : 1);
    const int32_t apart = og_tile_phases_of(s, OG_WINDOW_DIMS - 1); /* stores, if not 1 */
    const double end = share * (370 + 5000.0 / s->tile[OG_WINDOW_DIMS - 1]) * apart;
    double tiles = (double)s->row_tiles, patch = 0.01 * (double)s->chunks * s->chunk;
    for (int i = 0; i < OG_WINDOW_DIMS; i++) {
        tiles *= (double)s->tiles[i];
        patch *= s->patch[i];
    }
    tiles *= (double)places_of(s) / OG_WINDOW_PLACES;
    const double blocks = (double)(s->chunks * all_steps(s, s->chunk)) / 4;
    const double products = blocks * block + s->tile_phases * patch, ends = s->tile_phases * end;
    if (!s->trays)
        return tiles * (products + ends);
    const double least = og_min(products, ends * TRAY_SHARE);
    return tiles * (og_max(products, ends * TRAY_SHARE) + BESIDE_SHARE * least);
}

/* Could blocks keep their filters? There are few tiles of these then. */
static bool could_keep(const og_window_shape *s)
{
    enum { MOST_ROW_TILES = 4 }; /* more would leave too many multiprocessors without tiles */
    return s->groups == 1 && s->tile_phases == 1 && s->row_tiles <= MOST_ROW_TILES;
}

/* Are all blocks of 64 k of filters so few that they stay beside trays? */
static bool keeps_beside_trays(const og_window_shape *s)
{
    enum { MOST_BLOCKS = 4 };
    const int64_t channels = og_divide_up(s->channels, step_channels(s)) * step_channels(s);
    return s->trays && could_keep(s) && channels <= MOST_BOX &&
           steps_of(s, s->taps, (int32_t)channels) <= 4 * MOST_BLOCKS;
}

/* A tile of so many filters and places; other warps do its ends, if they may, and registers and shared
 * memory have room for that. H200, ms, without and with them: 64 filters of 8 channels (2 blocks of 64 k)
 * 1.85, 1.15, of 3 (L1-54) 0.92, 0.69, L1-74 (5) 1.06, 0.90; but 128 as two tiles of 64 beside one without
 * trays L1-55 3.55, 4.79, L2-2 1.85, 2.45; to 32 filters as a tile of 64 L2-48 1.06, 1.43, L1-70 7.7, 9.7;
 * and beside cells, whose threads need the registers, L1-57 4.1, 8.8, L1-62 1.9, 4.1. Phases that are
 * tiles, none of them rows, were not timed with them. */
static bool take_tile_of(og_window_shape *s, int32_t rows, const int32_t tile[OG_WINDOW_DIMS],
                         bool may_have_trays)
{
    enum { ROWS = 64 }; /* threads that multiply fewer rows than 128 leave registers to others */
    const int64_t filled = s->filters * s->row_phases;
    const bool has_one = rows == ROWS && filled > ROWS / 2 && filled <= ROWS &&
                         (s->tile_phases == 1 || s->row_phases > 1) && !s->cell_stages;
    for (s->trays = may_have_trays && has_one && !s->alternates;; s->trays = false) {
        s->row_tiles = og_divide_up(s->filters * s->row_phases, rows);
        s->keeps = s->alternates > 0 || keeps_beside_trays(s);
        if (s->alternates && !could_keep(s))
            return false;
        if (take_tile(s, rows, tile))
            return true;
        if (!s->trays)
            return false;
    }
}

/* Do other warps split its patches? Where channels fill cells and a place is seen by several taps, but
 * for few filters, of which groups alternate, and short k, where ends of tiles matter more. H200, ms: of
 * 64 filters L1-62 2.47, 1.88, L1-65 2.51, 1.96, L1-57 (9 blocks of 64 k) 5.2, 4.5; of 128, whose chains
 * leave no registers for a second one, L1-56 (35 blocks) 2.82, 2.63, L1-69 (15) 3.04, 2.94, but L1-55 (9)
 * 3.76, 3.84 and L1-64 (6) 2.59, 3.05. Tiles of 8 lines must have room for patches: bits depend on all
 * this, and not on the tile that is taken. */
static bool could_have_cells(const og_window_shape *s)
{
    const int64_t rows = s->filters * s->row_phases, least_blocks = rows > 64 ? 12 : 4;
    const int32_t tile[] = {1, 8, LEAST_WIDTH};
    og_window_shape tried = *s;
    tried.cell_stages = CELL_STAGES;
    return s->channels % OG_CELL_CHANNELS == 0 && rows > 32 &&
           take_tile_of(&tried, rows > 64 ? 128 : 64, tile, false) &&
           tried.chunks * all_steps(&tried, tried.chunk) / 4 >= least_blocks * s->tile_phases;
}

/* The tile that takes the least time, which is returned; 0: there is none. */
static double choose_tile(og_window_shape *s, bool may_have_trays)
{
    og_window_shape best = {0};
    double least = 0;
    s->alternates = 0;
    s->cell_stages = could_have_cells(s) ? CELL_STAGES : 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const int32_t block = s->cell_stages ? kinds[i].cells : kinds[i].block;
        s->alternates = kinds[i].alternates;
        if (!block)
            continue;
        for (int32_t width = LEAST_WIDTH; width <= places_of(s); width *= 2)
            for (int32_t height = 1; width * height <= places_of(s); height *= 2) {
                const int32_t tile[] = {places_of(s) / width / height, height, width};
                og_window_shape tried = *s;
                if (!take_tile_of(&tried, kinds[i].rows, tile, may_have_trays))
                    continue;
                const double cost = cost_of(&tried, block);
                if (best.rows && cost >= least)
                    continue;
                best = tried;
                least = cost;
            }
    }
    if (best.rows)
        *s = best;
    return best.rows ? least : 0;
}

/* ---- phases ---------------------------------------------------------------------------------- */

/* Phases along a line become rows of the product: places have the taps that any of them meets. A
 * thread's rows, two neighbours of each eight, are of one filter: there is padding, if need be. */
static bool take_rows(og_window_shape *s)
{
    og_image_dim *line = &s->dims[OG_WINDOW_DIMS - 1];
    int64_t low = INT64_MAX, high = INT64_MIN;
    s->row_phases = line->phase_count > 4 ? 8 : line->phase_count > 2 ? 4 : 2;
    s->empty_rows = (1u << s->row_phases) - 1;
    for (int32_t r = 0; r < line->phase_count; r++) {
        const og_window_phase *phase = &line->phase[r];
        if (!phase->taps)
            continue;
        s->empty_rows &= ~(1u << r);
        high = og_max(high, phase->start);
        low = og_min(low, phase->start + line->phase_reach * (phase->taps - 1));
    }
    if (line->phase_count < 2 || low > high) /* no phases, or none that meets a tap */
        return false;
    line->start = high;
    line->taps = high - low + 1;
    line->reach = -1;
    return line->taps <= MOST_TAPS;
}

/* Tiles and taps, by how phases along a line are taken. */
static double try_phases(og_window_shape *s, bool may_have_trays)
{
    s->tile_phases = 1;
    for (int i = 0; i < OG_WINDOW_DIMS; i++)
        s->tile_phases *= og_tile_phases_of(s, i);
    if (s->tile_phases > OG_MOST_TILE_PHASES)
        return 0;
    s->taps = 0;
    for (int32_t q = 0; q < s->tile_phases; q++) {
        s->taps = og_max(s->taps, taps_of(s, q));
        s->has_empty_tiles |= og_is_empty_phase(s, q);
    }
    place_patches(s);
    return s->taps < 1 || s->taps > MOST_TAPS ? 0 : choose_tile(s, may_have_trays);
}

/* Are so many neighbours of a result's line, wherever it is, in one vector, if the first line is? Of
 * everything that the kernel reads and writes. */
static bool are_vectors(const og_kernel *kernel, int32_t vector)
{
    const int32_t last = kernel->space.rank - 1;
    bool are = true;
    for (int32_t i = 0; i < kernel->access_count; i++) {
        const og_access *access = &kernel->accesses[i];
        are &= access->window_count == 0 && og_dtype_bytes(access->dtype) == sizeof(float);
        for (int32_t d = 0; d < last && access->stride[last] == 1; d++)
            are &= access->stride[d] % vector == 0;
    }
    return are;
}

/* Neighbours that a thread stores at once. Of a tray a warp takes vectors of a filter, 32 after 32, or of
 * as many filters as have 32: the one number divides the other. */
static int32_t vector_of(const og_kernel *kernel, const og_window_shape *s)
{
    const int32_t phases = s->dims[OG_WINDOW_DIMS - 1].phase_count;
    const int32_t each = s->row_phases > 1 ? phases : 1;
    int32_t vector = s->row_phases > 1 || phases == 1 ? 4 : 1;
    if (!s->trays)
        return s->row_phases == phases && phases > 1 && are_vectors(kernel, 2) ? 2 : 1;
    while (vector > 1 &&
           (!are_vectors(kernel, vector) || (64 * each / vector % 32 && 32 % (64 * each / vector))))
        vector /= 2;
    return vector;
}

/* Are there phases that see_phases() has not looked at? */
static bool has_many_phases(const og_window_shape *s)
{
    bool has = false;
    for (int i = 0; i < OG_WINDOW_DIMS; i++)
        has |= s->dims[i].phase_count > OG_MOST_PHASES;
    return has;
}

/* Whether phases along a line are rows or tiles is chosen by what tiles without trays cost. Beside trays
 * 64 filters would be tiles of each phase, and not 128 rows: L2-2 as such rows 1.85 ms (H200), else 2.45.
 * Bits depend on this choice, which trays therefore leave alone. */
static const char *gather_phases(og_window_shape *s)
{
    og_window_shape rows = *s, tiles = *s;
    const double by_rows = take_rows(&rows) ? try_phases(&rows, false) : 0;
    const double by_tiles = try_phases(&tiles, false);
    if (by_rows == 0 && by_tiles == 0)
        return "windows larger than shared memory, or too many phases";
    *s = by_rows > 0 && (by_tiles == 0 || by_rows <= by_tiles) ? rows : tiles;
    try_phases(s, true);
    return NULL;
}

/* Steps of some elements that are neighbours' can be steps of neighbours: then the image is fetched as
 * it lies, in larger patches, if the tile has room for them; else it is copied. The tile and the order
 * of k stay what they are, so that bits do not depend on how the image lies. */
static void take_neighbours(og_window_shape *s)
{
    enum { MOST = 4 };
    og_window_shape tried = *s;
    og_image_dim *dim = &tried.dims[OG_WINDOW_DIMS - 1];
    if (s->cell_stages || dim->stride <= 1 || dim->stride > MOST ||
        dim->extent > MOST_EXTENT / MOST || llabs(dim->start) > MOST_EXTENT / MOST)
        return;
    dim->start *= dim->stride;
    dim->step *= dim->stride;
    dim->reach *= dim->stride;
    dim->extent = (dim->extent - 1) * dim->stride + 1;
    dim->stride = 1;
    place_patches(&tried);
    const int64_t patch = patch_of(dim, 1, s->tile[OG_WINDOW_DIMS - 1], true, false);
    tried.patch[OG_WINDOW_DIMS - 1] = (int32_t)patch;
    if (patch > MOST_BOX || stages_of(&tried, s->chunk) < 2)
        return;
    give_stages(&tried);
    *s = tried;
}

/* Are most of the places of its tiles a result's? */
static bool fills_tiles(const og_window_shape *s)
{
    double share = 1;
    for (int i = 0; i < OG_WINDOW_DIMS; i++)
        share *= (double)s->dims[i].places / ((double)s->tiles[i] * s->tile[i]);
    return share >= 0.2; /* CUDA cores have a fifth of the speed */
}

static bool is_beyond(const og_window_shape *s)
{
    double items =
        (double)s->batch * (double)s->groups * (double)s->row_tiles * (double)s->tile_phases;
    bool is = s->batch > MOST_EXTENT || (double)s->groups * (double)s->channels > MOST_EXTENT;
    for (int i = 0; i < OG_WINDOW_DIMS; i++) {
        items *= (double)s->tiles[i];
        is |= s->dims[i].extent > MOST_EXTENT || llabs(s->dims[i].start) > MOST_EXTENT ||
              s->dims[i].results > MOST_EXTENT;
    }
    return is || items > 0x1p40;
}

/* Of a sum; of phases, of the one that has most. */
static int64_t most_terms(const og_window_shape *s)
{
    int64_t terms = s->channels;
    for (int i = 0; i < OG_WINDOW_DIMS; i++) {
        int64_t taps = s->dims[i].phase_count > 1 ? 0 : s->dims[i].taps;
        for (int32_t r = 0; r < s->dims[i].phase_count; r++)
            taps = og_max(taps, s->dims[i].phase[r].taps);
        terms = og_times(terms, taps);
    }
    return terms;
}

/* Without phases. */
static const char *take_plain(og_window_shape *s)
{
    if (s->taps > MOST_TAPS)
        return "too few or too many terms";
    place_patches(s);
    return choose_tile(s, true) > 0 ? NULL : "windows larger than shared memory";
}

/* Does pass 0 store one result, of float32, whose lines' elements are neighbours, two of them in one
 * word wherever the line is? */
static bool stores_lines(const og_kernel *kernel)
{
    const og_pass *pass = &kernel->passes[0];
    int32_t stores = 0;
    bool are_lines = kernel->space.n_reduced == 0;
    for (int32_t i = 0; i < pass->element_count; i++) {
        const og_access *access = &kernel->accesses[pass->elements[i].index];
        if (pass->elements[i].op != OG_OP_STORE)
            continue;
        are_lines &= access->dtype == OG_FLOAT32 && access->stride[kernel->space.rank - 1] == 1;
        for (int32_t d = 0; d < kernel->space.rank - 1; d++)
            are_lines &= access->stride[d] % 2 == 0;
        stores++;
    }
    return are_lines && stores == 1;
}

/* Where k is short, the end of a tile takes more time than its products: other warps then write the
 * results, if shared memory has room for all of a tile's beside two patches. The products of two groups
 * come one after the other there. H200, ms: L1-63 (3 blocks of 64 k) 7.03, 6.50; 3x3 of 8 channels (2)
 * 2.06, 1.87; L1-54 (2) 1.10, 0.96; but of L1-62 (23) 2.59, 2.87, where nothing waits for ends; with half
 * a tile's room L1-67 (3) 1.75, 1.79. Neither tiles nor bits depend on it. */
static void give_pieces(const og_kernel *kernel, og_window_shape *s)
{
    enum { MOST_BLOCKS = 3 };
    const int64_t patch = patch_bytes(s, s->chunk) + 16;
    const int32_t pieces = s->rows / PIECE_ROWS;
    const int64_t bytes = ORDER_BYTES + GROUPS * pieces * (PIECE_BYTES + 16);
    if (s->alternates || s->trays || s->cell_stages || s->gathers ||
        s->k_padded / OG_HOPPER_BLOCK_K > MOST_BLOCKS || !stores_lines(kernel))
        return;
    const int64_t other = s->shared_bytes - s->patch_stages * patch;
    const int64_t stages = (SHARED_BYTES - other - bytes) / patch;
    if (stages < 2)
        return;
    s->pieces = pieces;
    s->patch_stages = (int32_t)og_min(s->patch_stages, stages);
    s->shared_bytes = other + bytes + s->patch_stages * patch;
}

const char *og_cuda_see_windows(const og_kernel *kernel, og_window_shape *to)
{
    const char *refused = og_cuda_see_image(kernel, to);
    if (refused)
        return refused;
    if (to->filters < LEAST_FILTERS)
        return "few filters";
    to->step_taps = to->channels > 8 ? 1 : to->channels > 4 ? 2 : 4;
    if (to->channels < LEAST_CHANNELS || (to->groups > 1 && to->channels % step_channels(to)))
        return "few channels";
    if (has_many_phases(to))
        return "more phases than one kernel takes";
    if (most_terms(to) < LEAST_K || most_terms(to) > MOST_K)
        return "too few or too many terms";
    refused = to->gathers ? gather_phases(to) : take_plain(to);
    if (refused)
        return refused;
    if (!fills_tiles(to))
        return "few places";
    if (is_beyond(to))
        return "an extent beyond 30 bits";
    if (!to->gathers)
        take_neighbours(to);
    give_pieces(kernel, to);
    to->vector = vector_of(kernel, to);
    to->copies = !is_fetchable(to) || to->offset % 4;
    to->items = to->batch * to->groups * to->row_tiles * to->tile_phases;
    for (int i = 0; i < OG_WINDOW_DIMS; i++)
        to->items *= to->tiles[i];
    return NULL;
}
