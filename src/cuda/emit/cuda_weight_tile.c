/* SPDX-License-Identifier: MIT
 *
 * cuda_weight_tile.c - see cuda_weight_tile.h.
 */
#include "cuda/emit/cuda_weight_tile.h"

#include <stdlib.h>
#include <string.h>

enum {
    LEAST_FILTERS = 16,
    LEAST_K = 256,
    LINE = 64,      /* filters or channels of a box */
    TMA_UNIT = 8,   /* halves of 16 bytes */
    MOST_BOX = 256, /* elements that a box of TMA spans along a dim */
    MOST_STEP = 8,
    MOST_STAGE_K = 128,
    MOST_CHAIN_K = 64, /* of float32, where a stage is a chain */
    CHAIN_K = 8192,    /* that tensor cores sum: cuda_emit_hopper_halves.c */
    MOST_EXTENT = 1 << 30,
    MULTIPROCESSORS = 132, /* of an H200, whatever the device has: bits depend on parts */
    MOST_STAGES = 6,
    SHARED_BYTES = 227 * 1024 - 1024
};

/* A sum over images and places that has become a product of matrices, of 1x1 taps, has one dim. */
static og_k_dims k_dims_of(const og_product *product)
{
    og_k_dims k = product->k_dims;
    if (k.rank)
        return k;
    k = (og_k_dims){.rank = 1, .extent = {product->k}};
    k.stride[0][0] = product->left_k_stride;
    k.stride[1][0] = product->right_k_stride;
    return k;
}

/* ---- what is summed -------------------------------------------------------------------------- */

static const og_window *find_window(const og_access *image, int32_t place, int32_t tap)
{
    for (int32_t w = 0; w < image->window_count; w++)
        if ((place >= 0 && image->windows[w].place == place) ||
            (tap >= 0 && image->windows[w].tap == tap))
            return &image->windows[w];
    return NULL;
}

/* How many times the lesser the greater of two strides is. */
static int64_t ratio_of(int64_t a, int64_t b)
{
    const int64_t least = og_min(llabs(a), llabs(b));
    return least ? og_max(llabs(a), llabs(b)) / least : INT64_MAX;
}

/* The dim of k, of those that are free and no window's, whose stride is most like that of dim p of the
 * space, or -1. */
static int32_t find_alike(const og_kernel *kernel, int32_t p, const bool *taken)
{
    const og_product *product = &kernel->products[0];
    const og_k_dims k = k_dims_of(product);
    int32_t best = -1;
    for (int32_t d = 0; d < k.rank; d++) {
        const int64_t *stride = k.stride[1];
        if (!taken[d] && !og_access_has_tap(&product->right, d) &&
            (best < 0 || ratio_of(product->right.stride[p], stride[d]) <
                             ratio_of(product->right.stride[p], stride[best])))
            best = d;
    }
    return best;
}

/* The dim of columns that is the channels: no window's, and if there are several, the one whose stride
 * is least like that of a dim of k, since taps step as places do. */
static int32_t find_channels(const og_kernel *kernel)
{
    const og_product *product = &kernel->products[0];
    const og_k_dims k = k_dims_of(product);
    const bool none[OG_MAX_K] = {false};
    const int32_t rank = kernel->space.rank;
    int32_t best = -1;
    int64_t most = 0;
    for (int32_t p = rank - kernel->matrices.n_rank; p < rank; p++) {
        if (find_window(&product->right, p, -1))
            continue;
        const int32_t d = find_alike(kernel, p, none);
        const int64_t ratio =
            d < 0 ? INT64_MAX : ratio_of(product->right.stride[p], k.stride[1][d]);
        if (best >= 0 && ratio <= most)
            continue;
        best = p;
        most = ratio;
    }
    return best;
}

/* Dim p of the space, taps, and dim d of k, places, that no window joins: -1 where there is none. */
static og_weight_dim see_strides(const og_kernel *kernel, int32_t p, int32_t d)
{
    const og_product *product = &kernel->products[0];
    const og_k_dims k = k_dims_of(product);
    const int64_t along = p < 0 ? 0 : product->right.stride[p];
    const int64_t across = d < 0 ? 0 : k.stride[1][d];
    og_weight_dim to = {.n_dim = p, .stride = og_greatest_divisor(llabs(along), llabs(across))};
    to.taps = p < 0 ? 1 : kernel->space.extent[p];
    to.places = d < 0 ? 1 : k.extent[d];
    to.left_stride = d < 0 ? 0 : k.stride[0][d];
    to.step = to.stride ? across / to.stride : 1;
    to.reach = to.stride ? along / to.stride : 0;
    if (d < 0)
        to.step = 1;
    to.extent = (to.places - 1) * to.step + (to.taps - 1) * to.reach + 1;
    return to;
}

static og_weight_dim see_window(const og_kernel *kernel, const og_window *window)
{
    const og_product *product = &kernel->products[0];
    const int32_t p = window->place, d = window->tap;
    return (og_weight_dim){.n_dim = p,
                           .places = d < 0 ? 1 : product->k_dims.extent[d],
                           .taps = p < 0 ? 1 : kernel->space.extent[p],
                           .left_stride = d < 0 ? 0 : product->k_dims.stride[0][d],
                           .extent = window->extent,
                           .stride = window->stride,
                           .start = window->start,
                           .step = d < 0 ? 1 : window->reach,
                           .reach = p < 0 ? 0 : window->step};
}

/* All dims that are summed over; NULL, or what is odd. */
static const char *see_dims(const og_kernel *kernel, og_weight_shape *to)
{
    const og_product *product = &kernel->products[0];
    const int32_t rank = kernel->space.rank, k_rank = k_dims_of(product).rank;
    bool taken[OG_MAX_K] = {false};
    int32_t count = 0;
    for (int32_t w = 0; w < product->right.window_count; w++) {
        const og_window *window = &product->right.windows[w];
        if (window->divisor != 1 || window->uneven.bits ||
            (window->place >= 0 && product->right.stride[window->place]) ||
            (window->tap >= 0 && product->k_dims.stride[1][window->tap]))
            return "an odd shape";
        to->dims[count++] = see_window(kernel, window);
    }
    for (int32_t p = rank - kernel->matrices.n_rank; p < rank; p++) {
        if (p == to->channel_dim || find_window(&product->right, p, -1))
            continue;
        const int32_t d = find_alike(kernel, p, taken);
        if (d >= 0)
            taken[d] = true;
        if (count == OG_WEIGHT_DIMS)
            return "more than four dims";
        to->dims[count++] = see_strides(kernel, p, d);
    }
    for (int32_t d = 0; d < k_rank; d++) {
        if (taken[d] || og_access_has_tap(&product->right, d))
            continue;
        if (count == OG_WEIGHT_DIMS)
            return "more than four dims";
        to->dims[count++] = see_strides(kernel, -1, d);
    }
    for (; count < OG_WEIGHT_DIMS; count++)
        to->dims[count] =
            (og_weight_dim){.n_dim = -1, .places = 1, .taps = 1, .extent = 1, .step = 1};
    return NULL;
}

static const char *see_factors(const og_kernel *kernel, og_weight_shape *to)
{
    const og_product *product = &kernel->products[0];
    const og_matrices *of = &kernel->matrices;
    if (!product->by_places || product->left.window_count || of->m_rank != 1 ||
        of->batch_rank > 1 || of->n_rank < 1 || kernel->product_count != 1)
        return "an odd shape";
    *to = (og_weight_shape){.planes = product->right.dtype == OG_FLOAT32 ? 3 : 1,
                            .channel_dim = find_channels(kernel),
                            .group_dim = of->batch_rank - 1,
                            .groups = of->batch,
                            .folded = 1};
    if (to->channel_dim < 0)
        return "one channel";
    const int32_t m_dim = of->batch_rank;
    to->left = (og_weight_factor){
        .channels = of->m, .stride = product->left.stride[m_dim], .offset = product->left.offset};
    to->image = (og_weight_factor){.channels = kernel->space.extent[to->channel_dim],
                                   .stride = product->right.stride[to->channel_dim],
                                   .offset = product->right.offset};
    if (to->group_dim >= 0) {
        to->left.group_stride = product->left.stride[to->group_dim];
        to->image.group_stride = product->right.stride[to->group_dim];
    }
    return see_dims(kernel, to);
}

/* ---- how factors lie --------------------------------------------------------------------------- */

static int64_t round_up(int64_t a, int64_t unit)
{
    return og_times(og_divide_up(a, unit), unit);
}

/* Of few channels, the taps of a dim become channels, too: of the innermost that has some. Returns the
 * dim, or -1. */
static int32_t fold_taps(og_weight_shape *s)
{
    const int64_t channels = s->image.channels;
    int32_t best = -1;
    for (int32_t i = 0; i < OG_WEIGHT_DIMS; i++) {
        const og_weight_dim *dim = &s->dims[i];
        if (dim->taps > 1 && dim->taps * channels <= 4 * LINE &&
            (best < 0 || llabs(dim->stride) < llabs(s->dims[best].stride)))
            best = i;
    }
    /* Of halves the copy of 24 channels and more takes longer than what is multiplied for nothing: on an
     * H200 32 channels of 5x9 taps 1.5 ms of 2.2. */
    if (best < 0 || channels >= (s->planes > 1 ? LINE : 24))
        return -1;
    og_weight_dim *dim = &s->dims[best];
    const double alone = (double)LINE / (double)channels;
    const double folded =
        (double)round_up(channels * dim->taps, LINE) / (double)(channels * dim->taps);
    if (folded > 0.7 * alone)
        return -1;
    s->fold = *dim;
    s->folded = dim->taps;
    dim->n_dim = -1;
    dim->taps = 1;
    dim->extent = dim->places;
    dim->start = 0;
    dim->step = 1;
    dim->reach = 0;
    s->image.is_laid = true;
    return best;
}

/* Can TMA fetch a factor as it lies? strides: of the dims, of which so many elements there are. */
static bool is_fetchable(const og_weight_factor *f, int64_t groups, const int64_t *strides,
                         const int64_t *extents)
{
    bool fits = f->stride == 1 && f->offset % TMA_UNIT == 0 &&
                (groups == 1 || (f->group_stride == f->channels && f->channels % TMA_UNIT == 0));
    for (int32_t i = 0; i < OG_WEIGHT_DIMS; i++)
        fits &= extents[i] == 1 ||
                (strides[i] > 0 && strides[i] % TMA_UNIT == 0 && strides[i] <= OG_HOPPER_MOST_STEP);
    return fits;
}

/* What is copied: dims from the farthest apart to the nearest, joined where they follow each other;
 * and where that puts the dims. */
static void lay_out(og_weight_factor *f, const int64_t *strides, const int64_t *extents,
                    int32_t last)
{
    int32_t order[OG_WEIGHT_DIMS] = {0, 1, 2, 3}, count = 0;
    for (int32_t i = 0; i < OG_WEIGHT_DIMS; i++)
        for (int32_t j = i; j > 0; j--) {
            const int32_t a = order[j - 1], b = order[j];
            const int64_t far_a = a == last ? -1 : extents[a] == 1 ? INT64_MAX : llabs(strides[a]);
            const int64_t far_b = b == last ? -1 : extents[b] == 1 ? INT64_MAX : llabs(strides[b]);
            if (far_b <= far_a)
                break;
            order[j - 1] = b;
            order[j] = a;
        }
    int64_t at = f->pitch;
    for (int32_t i = OG_WEIGHT_DIMS - 1; i >= 0; i--) {
        f->map_stride[order[i]] = at;
        at = og_times(at, extents[order[i]]);
    }
    for (int32_t i = 0; i < OG_WEIGHT_DIMS; i++) {
        const int32_t d = order[i];
        const bool joins =
            count && (f->laid_extent[count - 1] == 1 ||
                      (d != last && f->laid_stride[count - 1] == og_times(strides[d], extents[d])));
        count -= joins;
        f->laid_extent[count] = joins ? og_times(f->laid_extent[count], extents[d]) : extents[d];
        f->laid_stride[count++] = strides[d];
    }
    /* Those that are not there come first. */
    const int32_t missing = OG_WEIGHT_DIMS - count;
    memmove(f->laid_extent + missing, f->laid_extent, (size_t)count * sizeof *f->laid_extent);
    memmove(f->laid_stride + missing, f->laid_stride, (size_t)count * sizeof *f->laid_stride);
    for (int32_t i = 0; i < missing; i++) {
        f->laid_extent[i] = 1;
        f->laid_stride[i] = 0;
    }
}

static void settle_factor(og_weight_factor *f, int64_t planes, int64_t groups, int64_t folded,
                          const int64_t *strides, const int64_t *extents, int32_t last)
{
    f->is_laid = f->is_laid || planes > 1 || !is_fetchable(f, groups, strides, extents);
    f->map_group = f->channels;
    if (!f->is_laid) {
        const int64_t whole = round_up(og_times(groups, f->channels), TMA_UNIT);
        for (int32_t i = 0; i < OG_WEIGHT_DIMS; i++)
            f->map_stride[i] = extents[i] > 1 ? strides[i] : whole;
        return;
    }
    f->map_group = round_up(og_times(f->channels, folded), TMA_UNIT);
    f->pitch = og_times(f->map_group, groups * planes);
    lay_out(f, strides, extents, last);
}

/* folds: the dim whose taps are channels, or -1. */
static void settle_factors(og_weight_shape *s, int32_t folds)
{
    int64_t left[OG_WEIGHT_DIMS], image[OG_WEIGHT_DIMS];
    int64_t places[OG_WEIGHT_DIMS], extents[OG_WEIGHT_DIMS];
    for (int32_t i = 0; i < OG_WEIGHT_DIMS; i++) {
        left[i] = s->dims[i].left_stride;
        image[i] = s->dims[i].stride;
        places[i] = s->dims[i].places;
        extents[i] = s->dims[i].extent;
    }
    settle_factor(&s->left, s->planes, s->groups, 1, left, places, -1);
    settle_factor(&s->image, s->planes, s->groups, s->folded, image, extents, folds);
}

/* ---- tiles ------------------------------------------------------------------------------------- */

static int64_t patch_lines(const og_weight_shape *s)
{
    const int64_t inner = (int64_t)s->dims[0].box * s->dims[1].box;
    return s->slides ? inner * (s->dims[OG_WEIGHT_SLIDES].box + (s->sixtyfours - 1) * s->shift)
                     : (int64_t)s->sixtyfours * s->stage_k;
}

static int64_t stage_bytes(const og_weight_shape *s)
{
    return 128 * s->planes * ((int64_t)s->height * s->stage_k + s->warpgroups * patch_lines(s));
}

/* Units of columns, each a warpgroup's. */
static void count_units(og_weight_shape *s)
{
    const og_weight_dim *slide = &s->dims[OG_WEIGHT_SLIDES];
    const int64_t common = og_greatest_divisor(slide->reach, slide->step);
    s->tap_step = s->slides ? slide->step / common : 1;
    s->shift = s->slides ? slide->reach / common : 0;
    s->classes = s->slides ? og_min(s->tap_step, slide->taps) : 1;
    s->slide_units =
        s->slides ? s->classes * og_divide_up(og_divide_up(slide->taps, s->classes), s->sixtyfours)
                  : slide->taps;
    s->chunks = og_divide_up(s->image.channels * s->folded, LINE);
    s->units =
        og_times(s->slide_units, s->slides ? s->chunks : og_divide_up(s->chunks, s->sixtyfours));
    for (int32_t i = 0; i < OG_WEIGHT_DIMS; i++)
        s->units = og_times(s->units, i == OG_WEIGHT_SLIDES ? 1 : s->dims[i].taps);
    s->column_blocks = og_divide_up(s->units, s->warpgroups);
    s->row_blocks = og_divide_up(s->left.channels, (int64_t)LINE * s->height);
}

/* Cycles of a stage: tensor cores multiply 2048 elements a cycle, fewer of narrow products, whose
 * factors shared memory cannot give them fast enough; L2 brings 50 bytes. */
static double stage_cycles(const og_weight_shape *s)
{
    static const double speed[] = {0, 0.6, 0.8, 0.9, 0.95};
    const double multiplies = (double)s->warpgroups * s->height * s->sixtyfours * 2 * s->stage_k *
                              og_weight_products(s->planes) / speed[s->sixtyfours];
    const double fetches = (double)stage_bytes(s) / 50;
    return (multiplies > fetches ? multiplies : fetches) + 30;
}

/* Cycles that a block takes beside its stages: beginning, and writing its sums. */
static double block_cycles(const og_weight_shape *s)
{
    return 3000 + 64.0 * s->height * 64 * s->sixtyfours * s->warpgroups / 8;
}

static int64_t count_items(const og_weight_shape *s)
{
    return og_times(s->groups, og_times(s->column_blocks, s->row_blocks));
}

/* Cycles of all, if parts of k filled the device. */
static double cycles_of(const og_weight_shape *s)
{
    const double items = (double)count_items(s), waves = items / MULTIPROCESSORS;
    return waves * (double)s->boxes * stage_cycles(s) +
           block_cycles(s) * (waves > 1 ? waves : 1 + 1 / (double)s->boxes);
}

/* k in parts, so that blocks fill the device. */
static void choose_parts(og_weight_shape *s)
{
    const double each = stage_cycles(s), begin = block_cycles(s);
    const double sums = 64.0 * s->height * 64 * s->sixtyfours * s->warpgroups;
    const int64_t items = count_items(s), most = og_min(s->boxes, 2 * MULTIPROCESSORS);
    double least = 0;
    for (int64_t parts = 1; parts <= most; parts++) {
        const int64_t boxes = og_divide_up(s->boxes, parts);
        if (og_divide_up(s->boxes, boxes) != parts)
            continue; /* some of them would be empty */
        const double waves = (double)og_divide_up(og_times(items, parts), MULTIPROCESSORS);
        const double adds = (double)parts * (double)items * sums * 8 / 2000;
        const double cost = waves * ((double)boxes * each + begin) + adds;
        if (least > 0 && cost >= least)
            continue;
        least = cost;
        s->parts = parts;
        s->part_boxes = boxes;
    }
}

/* Has the box a place beyond the last, at which the image has an element? */
static bool overhangs(const og_weight_dim *dim)
{
    return dim->places % dim->box && dim->start + dim->step * dim->places < dim->extent;
}

/* Has a thread registers for its sums? Of float32 it has those of a chain, too. */
static bool fits_registers(const og_weight_shape *s)
{
    const int32_t held = s->height * s->sixtyfours;
    if (s->planes > 1)
        return held <= (s->warpgroups == 3 ? 1 : 3);
    return held <= (s->warpgroups == 3 ? 3 : 4);
}

/* Tries the box that *s has, with all products; better ones go to *best. */
static void try_box(const og_weight_shape *s, og_weight_shape *best, double *least)
{
    for (int32_t kind = 0; kind < 2 * 2 * 2 * 4; kind++) {
        og_weight_shape tried = *s;
        const og_weight_dim *slide = &s->dims[OG_WEIGHT_SLIDES];
        tried.sixtyfours = kind % 4 + 1;
        tried.height = kind / 4 % 2 + 1;
        tried.warpgroups = kind / 8 % 2 + 2;
        tried.slides = kind / 16;
        if (!fits_registers(&tried))
            continue;
        if (tried.slides && (tried.sixtyfours == 1 || slide->taps == 1 || slide->reach == 0 ||
                             s->dims[0].box * s->dims[1].box % 8))
            continue;
        count_units(&tried);
        if (tried.slides &&
            (slide->box + (tried.sixtyfours - 1) * tried.shift) * slide->step > MOST_BOX)
            continue;
        tried.stages = (int32_t)og_min(MOST_STAGES, SHARED_BYTES / stage_bytes(&tried));
        if (tried.stages < 2)
            continue;
        const double slow = tried.stages < 3 ? 1.2 : 1;
        const double cost = cycles_of(&tried) * slow * (tried.overhangs ? 1.02 : 1);
        if (*least > 0 && cost >= *least * 0.999)
            continue;
        *least = cost;
        *best = tried;
    }
}

/* Candidates for places of a box: powers of two, and what divides the dim. */
static bool is_size(const og_weight_dim *dim, int32_t box)
{
    return box <= og_max(dim->places, 8) && box * dim->step <= MOST_BOX &&
           (!(box & (box - 1)) || dim->places % box == 0);
}

static void try_boxes(og_weight_shape *s, og_weight_shape *best, double *least)
{
    og_weight_dim *dims = s->dims;
    const int32_t most = s->planes > 1 ? MOST_CHAIN_K : MOST_STAGE_K;
    for (int32_t a = 1; a <= most; a++)
        for (int32_t b = 1; is_size(&dims[0], a) && b <= most / a; b++)
            for (int32_t c = 1; is_size(&dims[1], b) && c <= most / a / b; c++) {
                s->stage_k = a * b * c;
                if (!is_size(&dims[2], c) || s->stage_k % 16 || s->stage_k < 32)
                    continue;
                const int32_t box[] = {a, b, c, 1};
                s->boxes = 1;
                s->overhangs = false;
                for (int32_t i = 0; i < OG_WEIGHT_DIMS; i++) {
                    dims[i].box = box[i];
                    dims[i].boxes = og_divide_up(dims[i].places, box[i]);
                    s->boxes = og_times(s->boxes, dims[i].boxes);
                    s->overhangs |= overhangs(&dims[i]);
                }
                try_box(s, best, least);
            }
}

static void exchange_dims(og_weight_shape *s, int32_t a, int32_t b)
{
    const og_weight_dim dim = s->dims[a];
    s->dims[a] = s->dims[b];
    s->dims[b] = dim;
    for (int32_t side = 0; side < 2; side++) {
        int64_t *strides = side ? s->image.map_stride : s->left.map_stride, stride = strides[a];
        strides[a] = strides[b];
        strides[b] = stride;
    }
}

/* Which dim slides and which is alone, and the box of places. */
static bool choose_tile(og_weight_shape *s)
{
    og_weight_shape best;
    double least = 0;
    for (int32_t lone = 0; lone < OG_WEIGHT_DIMS; lone++)
        for (int32_t slide = 0; slide < OG_WEIGHT_LONE; slide++) {
            og_weight_shape tried = *s;
            exchange_dims(&tried, lone, OG_WEIGHT_LONE);
            exchange_dims(&tried, slide, OG_WEIGHT_SLIDES);
            /* of dims that are not there one order will do */
            if (tried.dims[OG_WEIGHT_LONE].places > 1 && s->dims[OG_WEIGHT_LONE].places == 1 &&
                s->dims[OG_WEIGHT_LONE].taps == 1)
                continue;
            try_boxes(&tried, &best, &least);
        }
    if (least > 0)
        *s = best;
    return least > 0;
}

/* Of a product of matrices: has it tiles for the multiprocessors, with all of k each? */
static bool fills_device(const og_weight_shape *s)
{
    return og_times(s->groups, og_times(og_divide_up(s->left.channels, 128),
                                        og_divide_up(s->image.channels, 128))) >=
           MULTIPROCESSORS / 2;
}

/* What is multiplied for one result and place that is there. */
static double waste_of(const og_weight_shape *s, double terms)
{
    const double done = (double)s->groups * (double)s->row_blocks * s->height * LINE *
                        (double)s->column_blocks * s->warpgroups * s->sixtyfours * LINE *
                        (double)s->boxes * s->stage_k;
    return done / terms;
}

static double copied_bytes(const og_weight_factor *f)
{
    double bytes = 2 * (double)f->pitch;
    for (int32_t i = 0; i < OG_WEIGHT_DIMS; i++)
        bytes *= (double)f->laid_extent[i];
    return f->is_laid ? bytes : 0;
}

/* Are CUDA cores slower? Of halves 10 times. Of float32 they took 31 TF on an H200 (1x1, 64 to 256), tensor
 * cores 105 as such, with six products each, after factors were copied at 1.5 TB of copies a second. */
static bool pays(const og_weight_shape *s, double terms)
{
    const double waste = waste_of(s, terms);
    if (s->planes == 1)
        return waste <= 8;
    const double copies = copied_bytes(&s->left) + copied_bytes(&s->image);
    return copies / 1.5e12 + 2 * terms * waste / 105e12 < 2 * terms / 31e12;
}

/* Of float32, in units of 2^-24 of sum |x||w|: 11 for each 16 k of a chain, 4 for what three bfloat16
 * lose, then roundings: of chains in a part's sums, of these, of parts (docs/accuracy.md). */
static void count_units_of_error(og_weight_shape *s)
{
    const int64_t chains = og_min(s->chain_boxes, s->part_boxes);
    s->error_units = s->planes == 1
                         ? 0
                         : 4 + 11 * (s->stage_k / 16) + chains +
                               og_divide_up(s->part_boxes, s->chain_boxes) +
                               og_divide_up(s->parts, OG_WEIGHT_ADD_LANES) + OG_WEIGHT_ADD_LANES;
}

const char *og_cuda_see_weights(const og_kernel *kernel, og_weight_shape *to)
{
    const char *refused = see_factors(kernel, to);
    if (refused)
        return refused;
    if (to->left.channels < LEAST_FILTERS)
        return "few filters";
    if (kernel->products[0].k < LEAST_K)
        return "few terms";
    for (int32_t i = 0; i < OG_WEIGHT_DIMS; i++) {
        const og_weight_dim *dim = &to->dims[i];
        if (dim->step < 1 || dim->step > MOST_STEP)
            return dim->step < 1 ? "an expanded image" : "a stride beyond 8";
        if (dim->reach < 0)
            return "an odd shape";
        if (dim->places > MOST_EXTENT || dim->extent > MOST_EXTENT || dim->extent < 1 ||
            llabs(dim->start) > MOST_EXTENT || dim->taps > MOST_EXTENT ||
            og_times(dim->reach, dim->taps) > MOST_EXTENT)
            return "an extent beyond 30 bits";
    }
    if (og_times(to->groups, og_max(to->left.channels, to->image.channels)) > MOST_EXTENT)
        return "an extent beyond 30 bits";
    settle_factors(to, fold_taps(to));
    if (!og_kernel_convolves(kernel) && fills_device(to))
        return "a product that is large enough";
    if (!choose_tile(to))
        return "windows larger than shared memory";
    if (to->boxes > MOST_EXTENT || og_times(count_items(to), MULTIPROCESSORS) > MOST_EXTENT ||
        og_times(to->units + 1, 4 * LINE) > MOST_EXTENT)
        return "an extent beyond 30 bits";
    choose_parts(to);
    to->chain_boxes = og_max(1, CHAIN_K / to->stage_k);
    const og_matrices *of = &kernel->matrices;
    const double terms = (double)of->batch * (double)of->m * (double)of->n * (double)of->k;
    if (!pays(to, terms))
        return "few channels, filters or places";
    count_units_of_error(to);
    to->shared_bytes = to->stages * stage_bytes(to) + 8 * 2 * to->stages;
    return NULL;
}
