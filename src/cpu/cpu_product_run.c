/* SPDX-License-Identifier: MIT
 *
 * cpu_product_run.c - see cpu_product_run.h. Allocates nothing; the sums
 * themselves are made by cpu_product_template.c, everything after them by programs,
 * as in any other kernel.
 */
#include "cpu/cpu_product_run.h"

#include "cpu/cpu_packed.h"
#include "cpu/cpu_places.h"
#include "cpu/cpu_threads.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

/* ---- how the space is seen --------------------------------------------------------- */

/* turned: left is the plan's right. */
static void see_factors(const og_kernel *kernel, int32_t index, int32_t m_dim, int32_t n_dim,
                        bool turned, og_cpu_product *out)
{
    og_cpu_factors *factors = &out->factors[index];
    factors->paired = n_dim >= 0 && !kernel->matrices.n_rank;
    for (int side = 0; side < 2; side++) {
        og_factor from = og_factor_of(kernel, index, side != turned);
        og_cpu_factor *to = side ? &factors->right : &factors->left;
        int32_t dim = side != turned || factors->paired ? n_dim : m_dim;
        to->dtype = from.access->dtype;
        to->stride = dim >= 0 ? from.access->stride[dim] : 0;
        to->k_stride = from.k_stride;
        to->offset = from.access->offset;
        out->buffers[index][side] = from.access->buffer;
        memcpy(out->base_stride[index][side], from.access->stride, sizeof from.access->stride);
    }
    out->places[index] = -1;
}

/* Do dims d and d + 1 move everything as one dim would? */
static bool are_one(const og_cpu_line *line, int32_t windows, int32_t d)
{
    int64_t extent = line->extent[d + 1];
    bool one = line->stride[d] == extent * line->stride[d + 1];
    for (int32_t w = 0; w < windows; w++)
        one &= line->step[w][d] == extent * line->step[w][d + 1];
    return one;
}

/* Longer dims, fewer of them: lines are cut where the last ends. */
static void join_dims(og_cpu_line *line, int32_t windows)
{
    for (int32_t d = line->rank - 2; d >= 0; d--) {
        if (!are_one(line, windows, d))
            continue;
        line->extent[d] *= line->extent[d + 1];
        line->rank--;
        for (int32_t e = d; e < line->rank; e++) {
            line->extent[e] = e > d ? line->extent[e + 1] : line->extent[e];
            line->stride[e] = line->stride[e + 1];
            for (int32_t w = 0; w < windows; w++)
                line->step[w][e] = line->step[w][e + 1];
        }
    }
}

/* A factor of joined dims, seen through no window, may be a matrix. */
static void see_matrix(og_cpu_factor *factor)
{
    const og_cpu_line *rows = &factor->view->rows, *k = &factor->view->k;
    if (factor->view->window_count || rows->rank > 1 || k->rank > 1)
        return;
    factor->stride = rows->rank ? rows->stride[0] : 0;
    factor->k_stride = k->rank ? k->stride[0] : 0;
    factor->view = NULL;
}

/* Windows that always see an element are strides in a plan. Where rows are places of an image they
 * become windows again, which see everything: taps of the last dim of rows are the last dim of k
 * that does not lead beyond a line, and so on. (What they are taken for changes no bit.) */
static void find_windows(og_cpu_view *view, int64_t *places)
{
    const int64_t far = INT64_C(1) << 40;
    og_cpu_line *rows = &view->rows, *k = &view->k;
    int32_t d = rows->rank - 1;
    for (int32_t t = k->rank - 1; t > 0 && view->window_count < OG_MAX_WINDOWS; t--) {
        const int64_t step = k->stride[t] < 0 ? -k->stride[t] : k->stride[t];
        const int64_t reach = step * (k->extent[t] - 1);
        bool seen = false;
        for (int32_t w = 0; w < view->window_count; w++)
            seen |= k->step[w][t] != 0;
        for (; d >= 0 && !seen; d--) {
            bool moves = rows->stride[d] <= 0;
            for (int32_t w = 0; w < view->window_count; w++)
                moves |= rows->step[w][d] != 0;
            if (!moves && (d == 0 || reach < rows->stride[d - 1]))
                break;
        }
        if (seen || d < 0)
            continue;
        int64_t unit = og_greatest_divisor(rows->stride[d], step);
        int32_t w = view->window_count++;
        view->extent[w] = 2 * far;
        places[w] = far;
        rows->step[w][d] = rows->stride[d] / unit;
        k->step[w][t] = k->stride[t] / unit;
        d--;
    }
}

/* Factor `from_side` of a convolution's plan as factor `side`, whose rows are dims
 * [first, first + rank) of the space. */
static void see_view(const og_kernel *kernel, int from_side, int side, int32_t first, int32_t rank,
                     og_cpu_product *out)
{
    og_factor from = og_factor_of(kernel, 0, from_side);
    const og_k_dims *k = &kernel->products[0].k_dims;
    og_cpu_factor *to = side ? &out->factors[0].right : &out->factors[0].left;
    og_cpu_view *view = &out->views[side];
    to->view = view;
    to->stride = to->k_stride = 0;
    view->window_count = from.access->window_count;
    view->rows.rank = rank;
    for (int32_t d = 0; d < kernel->space.rank; d++)
        out->base_stride[0][side][d] = og_factor_step(from.access, d);
    for (int32_t d = 0; d < rank; d++) {
        view->rows.extent[d] = kernel->space.extent[first + d];
        view->rows.stride[d] = out->base_stride[0][side][first + d];
    }
    view->k.rank = k->rank;
    memcpy(view->k.extent, k->extent, sizeof k->extent);
    memcpy(view->k.stride, k->stride[from_side], sizeof k->stride[from_side]);
    to->offset = from.access->offset;
    for (int32_t w = 0; w < view->window_count; w++) {
        const og_window *window = &from.access->windows[w];
        view->extent[w] = window->extent;
        to->places[w] = window->start;
        to->offset += window->start * window->stride;
        if (window->place >= 0)
            out->base_step[side][w][window->place] = window->step;
        memcpy(view->rows.step[w], out->base_step[side][w] + first, (size_t)rank * sizeof(int64_t));
        if (window->tap >= 0) {
            view->k.stride[window->tap] += window->reach * window->stride;
            view->k.step[w][window->tap] = window->reach;
        }
    }
    og_cpu_view plain = *view;
    join_dims(&plain.rows, plain.window_count);
    join_dims(&plain.k, plain.window_count);
    if (side == out->image && (plain.rows.rank > 1 || plain.k.rank > 1))
        find_windows(view, to->places);
    join_dims(&view->rows, view->window_count);
    join_dims(&view->k, view->window_count);
    see_matrix(to);
}

/* Which factor of the plan has the windows of a convolution's places, or -1. Filters are packed
 * before tiles are made: not so many that they would take much of the memory. */
static int32_t find_image(const og_kernel *kernel)
{
    enum { MOST_TERMS = 1 << 16, MOST_WEIGHTS = 1 << 26 };
    const og_product *product = &kernel->products[0];
    const og_access *filters = product->exchanged ? &product->left : &product->right;
    double weights = (double)product->k;
    for (int32_t d = 0; d < kernel->space.rank; d++)
        weights *= filters->stride[d] ? (double)kernel->space.extent[d] : 1;
    if (!og_kernel_convolves(kernel) || product->by_places || !kernel->matrices.n_rank ||
        product->k > MOST_TERMS || weights > MOST_WEIGHTS)
        return -1;
    return product->exchanged;
}

/* Are neighbours of every result rows, which are filters? Then places, which are columns, become
 * rows. */
static bool stores_along_rows(const og_kernel *kernel, int32_t m_dim)
{
    bool does = m_dim >= 0 && find_image(kernel) == 1 && !kernel->space.n_reduced;
    for (int32_t i = 0; does && i < kernel->access_count; i++) {
        const int64_t *stride = kernel->accesses[i].stride;
        does = !kernel->accesses[i].is_store ||
               (stride[m_dim] == 1 && stride[kernel->space.rank - 1] != 1);
    }
    return does;
}

static int64_t count_dims(const og_space *space, int32_t first, int32_t rank)
{
    int64_t count = 1;
    for (int32_t d = first; d < first + rank; d++)
        count *= space->extent[d];
    return count;
}

static void add_dims(og_cpu_geometry *to, int axis, int32_t first, int32_t rank)
{
    for (int32_t d = first; d < first + rank; d++)
        to->dims[axis][to->rank[axis]++] = d;
}

/* Rows of several dims are many products: m is the last of them. Columns may be several. */
void og_cpu_see_product(const og_kernel *kernel, const og_cpu_kernels *kernels,
                        og_cpu_geometry *elements, og_cpu_geometry *rows, og_cpu_product *out)
{
    const og_space *space = &kernel->space;
    int32_t n_rank = kernel->matrices.n_rank ? kernel->matrices.n_rank : space->rank > 0;
    int32_t n_dim = space->rank - n_rank, m_dim = kernel->matrices.m_rank ? n_dim - 1 : -1;
    const bool turned = stores_along_rows(kernel, m_dim);
    const int32_t first[2] = {m_dim >= 0 ? m_dim : 0, n_dim}, rank[2] = {m_dim >= 0, n_rank};

    out->kernels = kernels->product;
    out->count = kernel->product_count;
    for (int32_t p = 0; p < out->count; p++)
        see_factors(kernel, p, m_dim, n_rank ? n_dim : -1, turned, out);
    out->image = find_image(kernel) < 0 ? -1 : find_image(kernel) != turned;
    bool paired = out->factors[0].paired;
    for (int side = 0; side < 2 && og_kernel_convolves(kernel); side++) {
        const int from = side != turned, dims = paired ? 1 : from;
        see_view(kernel, from, side, first[dims], rank[dims], out);
    }
    out->m = count_dims(space, first[turned], rank[turned]);
    out->n = count_dims(space, first[!turned], rank[!turned]);
    out->k = kernel->matrices.k;
    out->bytes = kernel->products[0].dtype == OG_FLOAT64 ? sizeof(double) : sizeof(float);
    out->groups = og_divide_up(out->n, OG_PRODUCT_COLUMNS);
    out->base_rank = n_dim - (m_dim >= 0);
    add_dims(elements, OG_CPU_BASE, 0, out->base_rank);
    memcpy(out->base_extent, space->extent, sizeof out->base_extent);
    add_dims(elements, OG_CPU_OUTER, first[turned], rank[turned]);
    add_dims(elements, OG_CPU_INNER, first[!turned], rank[!turned]);
    add_dims(rows, OG_CPU_INNER, 0, space->rank - space->n_reduced);
    elements->layout = OG_CPU_PRODUCT;
    elements->many = elements->whole = out->n <= OG_PRODUCT_WHOLE;
    elements->row_form = out->n == 1      ? OG_CPU_ROW_SAME
                         : elements->many ? OG_CPU_ROW_REPEAT
                                          : OG_CPU_ROW_ONE;
}

int64_t og_cpu_guess_product(const og_cpu_product *product, int64_t base_count)
{
    double terms = (double)product->m * (double)product->n * (double)product->k *
                   (double)base_count * product->count;
    return (int64_t)(terms * 20 < 1e15 ? terms * 20 : 1e15);
}

/* Filters are packed once for each index of the base dims that they move along. */
static void size_filters(og_cpu_product *p)
{
    const int side = !p->image;
    const int64_t sliver = p->kernels->sliver_columns / (p->bytes == sizeof(double) ? 2 : 1);
    const int64_t slivers = og_divide_up(side ? p->n : p->m, sliver);
    p->filter_bytes = (size_t)(slivers * sliver * p->k) * p->bytes;
    p->filter_count = 1;
    for (int32_t d = p->base_rank - 1; d >= 0; d--) {
        const bool moves = p->base_stride[0][side][d] != 0;
        p->filter_step[d] = moves ? p->filter_count : 0;
        p->filter_count *= moves ? p->base_extent[d] : 1;
    }
}

void og_cpu_cut_product(og_cpu_kernel *k, size_t scratch_bytes, bool lean)
{
    og_cpu_product *p = k->product;
    og_cpu_tiling *t = &p->tiling;
    int64_t tiles = og_divide_up(4 * (int64_t)k->threads, k->base_count);
    tiles = k->threads > 1 ? tiles : 1;
    *t = (og_cpu_tiling){.m = p->m, .n = p->n, .k = p->k};
    if (p->scene && og_cpu_cut_places(p->scene, p->image > 0, k->many, tiles, p->bytes, t))
        size_filters(p);
    else
        *t = p->kernels->cut(p->m, p->n, p->k, p->factors, p->count, k->many, lean, tiles,
                             scratch_bytes / (size_t)k->threads);
    p->m_tiles = og_divide_up(p->m, t->tile_m);
    p->n_tiles = og_divide_up(p->n, t->tile_n);
    p->tile_count = k->base_count * p->m_tiles * p->n_tiles;
}

/* ---- reductions ---------------------------------------------------------------------- */

/* Partial results of a row: as many as it has groups of OG_PRODUCT_COLUMNS columns. */
static char *find_partials(const og_cpu_worker *w, int32_t reduction, int64_t row)
{
    const og_cpu_kernel *k = w->kernel;
    size_t row_bytes = (size_t)k->product->groups * k->element_bytes;
    return w->job->scratch + k->product->partials +
           ((size_t)reduction * (size_t)k->row_count + (size_t)row) * row_bytes;
}

/* Moves every source (several reductions may share one) on. */
static void move_sources(og_cpu_worker *w, const og_cpu_program *program, int64_t elements)
{
    for (int32_t i = 0; i < program->reduction_count; i++) {
        const og_cpu_reduction *r = &program->reductions[i];
        bool seen = false;
        for (int32_t j = 0; j < i; j++)
            seen |= program->reductions[j].source == r->source;
        if (!seen)
            w->places[r->source] = (char *)w->places[r->source] + elements * (int64_t)r->bytes;
    }
}

/* Reduces `groups` groups of `columns` columns, which the sources hold one after the
 * other, to the partial results from group `first` of row on. */
static void reduce_groups(og_cpu_worker *w, const og_cpu_program *program, int64_t row,
                          int64_t first, int64_t groups, int64_t columns)
{
    og_cpu_piece piece = {0, 0, groups, 0, columns};
    og_cpu_reduce_rows(w, program, &piece);
    for (int32_t i = 0; i < program->reduction_count; i++) {
        const og_cpu_reduction *r = &program->reductions[i];
        int64_t per_row = w->kernel->product->groups;
        for (int64_t done = 0, some; done < groups; done += some) {
            some = og_min(groups - done, per_row - first);
            memcpy(find_partials(w, i, row + done / per_row) + (size_t)first * r->bytes,
                   (char *)w->places[r->result] + (size_t)done * r->bytes, (size_t)some * r->bytes);
        }
    }
}

/* A piece of whole rows, or of one row from a multiple of OG_PRODUCT_COLUMNS on. */
static void reduce_piece(og_cpu_worker *w, const og_cpu_program *program, const og_cpu_piece *piece,
                         int64_t row)
{
    int64_t columns = piece->inner_count, group = piece->inner / OG_PRODUCT_COLUMNS;
    int64_t full = columns / OG_PRODUCT_COLUMNS, rest = columns % OG_PRODUCT_COLUMNS;
    if (program->reduction_count == 0)
        return;
    if (full == 0) {
        reduce_groups(w, program, row, group, piece->outer_count, columns);
    } else if (rest == 0) {
        reduce_groups(w, program, row, group, piece->outer_count * full, OG_PRODUCT_COLUMNS);
    } else {
        for (int64_t i = 0; i < piece->outer_count; i++) {
            reduce_groups(w, program, row + i, group, full, OG_PRODUCT_COLUMNS);
            move_sources(w, program, columns - rest);
            reduce_groups(w, program, row + i, group + full, 1, rest);
            move_sources(w, program, rest);
        }
        move_sources(w, program, -piece->outer_count * columns);
    }
}

/* count partial results, which are a row again, to the first of them. */
static void reduce_partials(og_cpu_worker *w, const og_cpu_reduction *r, char *partials,
                            int64_t count)
{
    const og_cpu_fold *fold = &r->loops->fold[r->fold];
    char *lanes = w->memory + r->accumulators;
    while (count > 1) {
        int64_t chunks = 0;
        for (int64_t at = 0; at < count; at += OG_CHUNK, chunks++) {
            int64_t n = og_min(count - at, OG_CHUNK);
            fold->lanes(lanes, partials + (size_t)at * r->bytes, n, true);
            fold->tree(lanes, n, partials + (size_t)chunks * r->bytes);
        }
        count = chunks;
    }
}

/* The greatest of count maxima. Their order cannot be seen: +0 and -0 subtract alike. */
static void find_greatest(og_cpu_worker *w, const og_cpu_reduction *r, const char *maxima,
                          int64_t count, double *greatest)
{
    const og_cpu_fold *max = &r->loops->fold[OG_CPU_MAX];
    char *lanes = w->memory + r->accumulators;
    double both[2];
    char *pair = (char *)both;
    for (int64_t at = 0; at < count; at += OG_CHUNK) {
        int64_t n = og_min(count - at, OG_CHUNK);
        char *to = at ? pair + r->bytes : pair;
        max->lanes(lanes, maxima + (size_t)at * r->bytes, n, true);
        max->tree(lanes, n, to);
        if (at)
            max->pairs(greatest, pair, 1, 2, 1);
        else
            memcpy(greatest, pair, r->bytes);
        memcpy(pair, greatest, r->bytes);
    }
}

/* Row values of rows from the partial results; sums of exponentials need maxima that
 * are still partial results, so they come first. */
static void finish_rows(og_cpu_worker *w, const og_cpu_program *program, int64_t row, int64_t rows)
{
    int64_t groups = w->kernel->product->groups;
    if (w->kernel->n == 0) {
        og_cpu_finish_rows(w, program, rows);
        return;
    }
    for (int64_t i = 0; i < rows; i++) {
        for (int32_t j = 0; j < program->reduction_count && groups > 1; j++) {
            const og_cpu_reduction *r = &program->reductions[j];
            if (!r->is_sumexp)
                continue;
            const char *maxima = find_partials(w, r->companion, row + i);
            double greatest;
            find_greatest(w, r, maxima, groups, &greatest);
            r->loops->exp_scale(find_partials(w, j, row + i), maxima, &greatest, true, groups);
        }
        for (int32_t j = 0; j < program->reduction_count; j++) {
            const og_cpu_reduction *r = &program->reductions[j];
            char *partials = find_partials(w, j, row + i);
            reduce_partials(w, r, partials, groups);
            memcpy((char *)w->places[r->result] + (size_t)i * r->bytes, partials, r->bytes);
        }
    }
}

/* ---- passes ---------------------------------------------------------------------------- */

typedef struct {
    const og_cpu_job *job;
    _Atomic int64_t next; /* tile that no thread has yet */
} product_run;

/* Points a factor at its elements, which begin `offset` after what it says. */
static void find_factor(const og_cpu_job *job, int32_t buffer, int64_t offset, bool prepacked,
                        og_cpu_factor *factor)
{
    char *data = og_cpu_find_buffer(job, buffer);
    factor->data = data;
    factor->offset += offset;
    if (factor->view) /* what windows do not see may lie before the first element */
        return;
    offset = factor->offset * (int64_t)og_dtype_bytes(factor->dtype);
    offset += prepacked ? OG_CPU_PACKED_HEADER : 0;
    /* An operand without elements may be NULL, which must not be moved, not even by 0. */
    factor->data = data ? data + offset : NULL;
}

/* Points the factors of product p at index base. */
static void find_factors(const og_cpu_job *job, int32_t p, int64_t base, og_cpu_factors *factors)
{
    const og_cpu_product *product = job->kernel->product;
    int64_t offset[2] = {0, 0};
    *factors = product->factors[p];
    bool seen = factors->left.view || factors->right.view;
    for (int32_t d = product->base_rank - 1; d >= 0; d--) {
        int64_t at = base % product->base_extent[d];
        offset[0] += at * product->base_stride[p][0][d];
        offset[1] += at * product->base_stride[p][1][d];
        base /= product->base_extent[d];
        for (int32_t w = 0; seen && w < OG_MAX_WINDOWS; w++) {
            factors->left.places[w] += at * product->base_step[0][w][d];
            factors->right.places[w] += at * product->base_step[1][w][d];
        }
    }
    find_factor(job, product->buffers[p][0], offset[0], false, &factors->left);
    find_factor(job, product->buffers[p][1], offset[1], factors->prepacked, &factors->right);
}

/* Packed filters number `number`. */
static void *find_filters(const og_cpu_job *job, int64_t number)
{
    const og_cpu_product *product = job->kernel->product;
    return job->scratch + product->filters + (size_t)number * product->filter_bytes;
}

/* Points the filters of index base at what run_filters() packed. */
static void use_filters(const og_cpu_job *job, int64_t base, og_cpu_factors *factors)
{
    const og_cpu_product *product = job->kernel->product;
    int64_t number = 0;
    for (int32_t d = product->base_rank - 1; d >= 0; d--) {
        number += base % product->base_extent[d] * product->filter_step[d];
        base /= product->base_extent[d];
    }
    (product->image ? &factors->left : &factors->right)->data = find_filters(job, number);
}

/* Packs filters, sliver by sliver. */
static void run_filters(void *context, int thread, int threads)
{
    const og_cpu_job *job = ((product_run *)context)->job;
    const og_cpu_product *product = job->kernel->product;
    const int64_t sliver =
        product->kernels->sliver_columns / (product->bytes == sizeof(double) ? 2 : 1);
    const int64_t n = product->image ? product->m : product->n;
    const int64_t slivers = og_divide_up(n, sliver);
    for (int64_t i = thread; i < product->filter_count * slivers; i += threads) {
        int64_t number = i / slivers, base = 0, unit = 1;
        for (int32_t d = product->base_rank - 1; d >= 0; d--) {
            if (product->filter_step[d])
                base += number / product->filter_step[d] % product->base_extent[d] * unit;
            unit *= product->base_extent[d];
        }
        og_cpu_factors factors;
        find_factors(job, 0, base, &factors);
        product->kernels->pack(product->image ? &factors.left : &factors.right, n, product->k,
                               i % slivers,
                               (char *)find_filters(job, number) +
                                   (size_t)(i % slivers * sliver * product->k) * product->bytes);
    }
}

static char *find_sums(const og_cpu_worker *w, int32_t p)
{
    const og_cpu_product *product = w->kernel->product;
    return w->memory + product->sums + (size_t)p * product->tiling.sum_bytes;
}

/* Pass 0 over a tile. */
static void run_tail(og_cpu_worker *w, int64_t base, int64_t m0, int64_t rows, int64_t n0,
                     int64_t columns)
{
    const og_cpu_kernel *k = w->kernel;
    const og_cpu_product *product = k->product;
    const og_cpu_program *program = k->passes[0].elements[w->job->aliased];
    size_t row_bytes = (size_t)product->tiling.tile_n * product->bytes;
    for (int64_t m = 0; m < rows; m += k->piece_outer) {
        og_cpu_piece piece = {base, m0 + m, og_min(k->piece_outer, rows - m), n0, columns};
        for (int32_t p = 0; p < product->count; p++)
            if (product->places[p] >= 0)
                w->places[product->places[p]] = find_sums(w, p) + (size_t)m * row_bytes;
        og_cpu_run_program(w, program, &piece);
        reduce_piece(w, program, &piece, base * k->outer_count + m0 + m);
    }
}

static void run_product_tiles(void *context, int thread, int threads)
{
    product_run *run = context;
    const og_cpu_job *job = run->job;
    const og_cpu_product *product = job->kernel->product;
    const og_cpu_tiling *t = &product->tiling;
    og_cpu_worker w = og_cpu_start_worker(job, thread);
    int64_t index;
    (void)threads;
    while ((index = atomic_fetch_add_explicit(&run->next, 1, memory_order_relaxed)) <
           product->tile_count) {
        int64_t m0 = index % product->m_tiles * t->tile_m;
        int64_t rest = index / product->m_tiles;
        int64_t n0 = rest % product->n_tiles * t->tile_n, base = rest / product->n_tiles;
        int64_t rows = og_min(t->tile_m, t->m - m0), columns = og_min(t->tile_n, t->n - n0);
        for (int32_t p = 0; p < product->count; p++) {
            og_cpu_factors factors;
            if (product->places[p] < 0) /* nobody wants it */
                continue;
            find_factors(job, p, base, &factors);
            if (t->way == OG_CPU_PRODUCT_PLACES)
                use_filters(job, base, &factors);
            product->kernels->tile(t, &factors, m0, rows, n0, columns, find_sums(&w, p),
                                   w.memory + product->work);
        }
        run_tail(&w, base, m0, rows, n0, columns);
    }
}

/* A pass after the first, over rows of one base index. */
static void run_later_pass(og_cpu_worker *w, int32_t p, int64_t row, int64_t rows)
{
    const og_cpu_kernel *k = w->kernel;
    const og_cpu_program *program = k->passes[p].elements[w->job->aliased];
    int64_t base = row / k->outer_count, outer = row % k->outer_count;
    for (int64_t n = 0; n < k->inner_count; n += k->piece_inner) {
        og_cpu_piece piece = {base, outer, rows, n, og_min(k->piece_inner, k->inner_count - n)};
        og_cpu_run_program(w, program, &piece);
        reduce_piece(w, program, &piece, row);
    }
}

/* Everything after the first pass's elements. */
static void run_product_rows(void *context, int thread, int threads)
{
    const og_cpu_job *job = ((product_run *)context)->job;
    const og_cpu_kernel *k = job->kernel;
    og_cpu_worker w = og_cpu_start_worker(job, thread);
    int64_t begin = k->row_count * thread / threads, end = k->row_count * (thread + 1) / threads;
    for (int64_t row = begin, rows; row < end; row += rows) {
        rows = og_min(og_min(k->piece_outer, end - row), k->outer_count - row % k->outer_count);
        for (int32_t p = 0; p < k->pass_count; p++) {
            if (p > 0)
                run_later_pass(&w, p, row, rows);
            finish_rows(&w, k->passes[p].elements[job->aliased], row, rows);
            og_cpu_piece piece = {0, 0, 1, row, rows};
            og_cpu_run_program(&w, k->passes[p].rows[job->aliased], &piece);
        }
    }
}

void og_cpu_run_product(const og_cpu_job *job)
{
    const og_cpu_kernel *k = job->kernel;
    product_run run = {.job = job, .next = 0};
    if (k->product->tile_count > 0 && k->product->tiling.way == OG_CPU_PRODUCT_PLACES)
        og_cpu_parallel(k->threads, run_filters, &run);
    if (k->product->tile_count > 0)
        og_cpu_parallel(k->threads, run_product_tiles, &run);
    if (k->product->reduces)
        og_cpu_parallel(k->threads, run_product_rows, &run);
}

/* ---- explain ----------------------------------------------------------------------------- */

void og_cpu_explain_product(const og_cpu_kernel *k, og_text *text)
{
    const og_cpu_product *product = k->product;
    const og_cpu_tiling *t = &product->tiling;
    og_text_add(text, "tiles of %" PRId64 " x %" PRId64, t->tile_m, og_min(t->tile_n, t->n));
    if (t->way == OG_CPU_PRODUCT_DIRECT)
        og_text_add(text, ", operands as they lie in memory");
    else if (t->way == OG_CPU_PRODUCT_DOTS)
        og_text_add(text, " of dot products");
    else if (t->way == OG_CPU_PRODUCT_PLACES)
        og_text_add(text,
                    " by %d k, panels of %d places as they lie in copied lines, filters packed "
                    "once",
                    OG_PRODUCT_BLOCK, (int)product->kernels->panel_rows);
    else if (t->way == OG_CPU_PRODUCT_PACKED)
        og_text_add(text, " by %d k, panels of %d rows, %" PRId64 " columns %s", OG_PRODUCT_BLOCK,
                    (int)product->kernels->panel_rows, t->slab_n,
                    t->slab ? "packed" : "packed beforehand");
}
