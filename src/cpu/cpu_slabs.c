/* SPDX-License-Identifier: MIT
 *
 * cpu_slabs.c - see cpu_slabs.h: which kernels of a plan have the same rows, how many rows are a
 * slab, and what runs them. Knows nothing of how a kernel runs.
 *
 * In the address arithmetic a row is an index of all dims that rows are made of; a kernel whose
 * dims were joined (plan_space.c) has several of them in one.
 */
#include "cpu/cpu_slabs.h"

#include "cpu/cpu_packed.h"
#include "cpu/cpu_threads.h"

#include <stdatomic.h>
#include <string.h>

enum {
    MOST_KERNELS = 16,
    MOST_TIMES = 8, /* slab_bytes, where rows are long: as yet in a cache that cores share */
    FEW = 8,        /* slabs of a thread, whose number is then the same for all */
    PACKED = 4,     /* bytes of factors that a slab may pack for each byte that it keeps: with one
                     * thread of a Zen 5 linear(gelu(linear(x, a)), c) of 256 x 256 x 32768
                     * takes 46 ms whole, 89, 63, 55 in slabs of 28, 52, 86 rows; 4 is 128 rows */
    LINE = 64
};

/* ---- rows ------------------------------------------------------------------------ */

/* A kernel's first dims, whose indices are rows; of the last one `times` indices are one row. */
typedef struct {
    const og_kernel *kernel;
    int32_t rank;
    int64_t times;
} row_dims;

/* Dims that may be rows: one kernel's row never needs another one's. Of a convolution they are the
 * images', of a product all but its columns'. */
static int32_t count_row_dims(const og_kernel *kernel)
{
    const og_matrices *of = &kernel->matrices;
    int32_t kept = kernel->space.rank - kernel->space.n_reduced;
    if (og_kernel_convolves(kernel))
        return (int32_t)og_min(kept, of->batch_rank);
    if (kernel->product_count)
        return (int32_t)og_min(kept, kernel->space.rank - og_max(of->n_rank, 1));
    return kept;
}

static bool moves_by_windows(const og_access *access, int32_t dims)
{
    for (int32_t w = 0; w < access->window_count; w++)
        if ((access->windows[w].place >= 0 && access->windows[w].place < dims) ||
            (access->windows[w].tap >= 0 && access->windows[w].tap < dims))
            return true;
    return false;
}

/* Does an access see what is the same distance away from row to row? */
static bool is_even(const og_access *access, int32_t dims)
{
    bool even = !moves_by_windows(access, dims);
    for (int32_t d = 0; d < dims && access->buffer < 0; d++)
        even &= access->stride[d] == 0; /* an element's number is another in a slab */
    return even;
}

static bool find_rows(const og_kernel *kernel, int64_t rows, row_dims *to)
{
    int32_t most = count_row_dims(kernel);
    int64_t left = rows;
    *to = (row_dims){kernel, 0, 1};
    if (rows < 2)
        return false;
    for (int32_t d = 0; d < most && left > 1; d++, to->rank++) {
        int64_t extent = kernel->space.extent[d];
        if (extent > left && extent % left == 0) {
            to->times = extent / left;
            left = 1;
        } else if (extent > 0 && left % extent == 0) {
            left /= extent;
        } else {
            return false;
        }
    }
    bool even = left == 1;
    for (int32_t a = 0; a < kernel->access_count && even; a++)
        even = is_even(&kernel->accesses[a], to->rank);
    for (int32_t p = 0; p < kernel->product_count && even; p++)
        even = is_even(&kernel->products[p].left, to->rank) &&
               is_even(&kernel->products[p].right, to->rank);
    return even;
}

/* ---- a group of kernels ------------------------------------------------------------ */

/* An access of one of the kernels. */
typedef struct {
    const og_access *access;
    int32_t kernel; /* of the group */
    int64_t stride[OG_MAX_RANK];
} seen;

/* The first and the last kernel of a plan that sees a buffer. */
typedef struct {
    int32_t first, last;
} kernel_span;

typedef struct {
    const og_plan *plan;
    const kernel_span *spans; /* of the plan's buffers */
    int32_t first, count;
    row_dims rows[MOST_KERNELS];
    int32_t rank; /* of the dims that all rows are made of */
    int64_t extent[OG_MAX_RANK];
    seen seen[OG_CPU_MOST_MOVES];
    int32_t seen_count;
} group;

/* Indices of a kernel's first d dims: those behind are rows of the last of these. */
static int64_t count_before(const row_dims *rows, int32_t d)
{
    int64_t count = 1;
    for (int32_t e = 0; e < d; e++)
        count *= rows->kernel->space.extent[e];
    return d == rows->rank ? count / rows->times : count;
}

/* Dims of which those of every kernel are products; false if there are none. */
static bool find_dims(group *g)
{
    int64_t ends[OG_MAX_RANK + 1] = {1};
    int32_t count = 1;
    for (int32_t i = 0; i < g->count; i++)
        for (int32_t d = 1; d <= g->rows[i].rank; d++) {
            int64_t end = count_before(&g->rows[i], d);
            int32_t at = 0;
            while (at < count && ends[at] < end)
                at++;
            if (at < count && ends[at] == end)
                continue;
            if (count > OG_MAX_RANK)
                return false;
            memmove(ends + at + 1, ends + at, (size_t)(count - at) * sizeof *ends);
            ends[at] = end;
            count++;
        }
    g->rank = count - 1;
    for (int32_t d = 0; d < g->rank; d++) {
        g->extent[d] = ends[d + 1] / ends[d];
        if (ends[d + 1] % ends[d])
            return false;
    }
    return true;
}

/* Dims [*from, *to) of the group that dim d of a kernel is. */
static void find_span(const group *g, const row_dims *rows, int32_t d, int32_t *from, int32_t *to)
{
    int64_t begin = count_before(rows, d), end = count_before(rows, d + 1), count = 1;
    *from = *to = 0;
    for (int32_t e = 0; e < g->rank; e++) {
        *from += count < begin;
        count *= g->extent[e];
        *to += count <= end;
    }
}

static bool see(group *g, int32_t kernel, const og_access *access)
{
    if (access->buffer < 0)
        return true;
    if (g->seen_count == OG_CPU_MOST_MOVES)
        return false;
    seen *s = &g->seen[g->seen_count++];
    *s = (seen){.access = access, .kernel = kernel};
    for (int32_t d = 0; d < g->rows[kernel].rank; d++) {
        int32_t from, to;
        find_span(g, &g->rows[kernel], d, &from, &to);
        int64_t step =
            access->stride[d] * (d == g->rows[kernel].rank - 1 ? g->rows[kernel].times : 1);
        for (int32_t e = to - 1; e >= from; e--) {
            s->stride[e] = step;
            step *= g->extent[e];
        }
    }
    return true;
}

static bool see_all(group *g)
{
    g->seen_count = 0;
    for (int32_t i = 0; i < g->count; i++) {
        const og_kernel *kernel = g->rows[i].kernel;
        for (int32_t a = 0; a < kernel->access_count; a++)
            if (!see(g, i, &kernel->accesses[a]))
                return false;
        for (int32_t p = 0; p < kernel->product_count; p++)
            if (!see(g, i, &kernel->products[p].left) || !see(g, i, &kernel->products[p].right))
                return false;
    }
    return true;
}

/* May any slab begin before or after any other? What one writes, no other may read: all kernels
 * that see a buffer which one of them writes go the same way in it from row to row. Since these are
 * all the rows that it has, what lies between one and the next is the first one's. (Two buffers
 * share no memory: plan.h.) */
static bool are_apart(const group *g)
{
    for (int32_t i = 0; i < g->seen_count; i++)
        for (int32_t j = 0; j < g->seen_count && g->seen[i].access->is_store; j++) {
            const seen *x = &g->seen[i], *y = &g->seen[j];
            if (x->access->buffer == y->access->buffer &&
                memcmp(x->stride, y->stride, (size_t)g->rank * sizeof *x->stride) != 0)
                return false;
        }
    return true;
}

/* Kernels g->first and those behind it as one group, if they can be. */
static bool make_group(group *g, int32_t count, int64_t rows)
{
    g->count = count;
    for (int32_t i = 0; i < count; i++)
        if (!find_rows(&g->plan->kernels[g->first + i], rows, &g->rows[i]))
            return false;
    return find_dims(g) && see_all(g) && are_apart(g);
}

/* ---- what is kept ------------------------------------------------------------------ */

static void extend_span(kernel_span *spans, int32_t buffer, int32_t kernel)
{
    if (buffer < 0)
        return;
    if (spans[buffer].first < 0)
        spans[buffer].first = kernel;
    spans[buffer].last = kernel;
}

static kernel_span *find_spans(const og_plan *plan, og_arena *scratch)
{
    kernel_span *spans = OG_ARENA_NEW(scratch, kernel_span, (size_t)plan->buffer_count + 1);
    for (int32_t b = 0; spans && b < plan->buffer_count; b++)
        spans[b] = (kernel_span){-1, -1};
    for (int32_t k = 0; spans && k < plan->kernel_count; k++) {
        const og_kernel *kernel = &plan->kernels[k];
        for (int32_t a = 0; a < kernel->access_count; a++)
            extend_span(spans, kernel->accesses[a].buffer, k);
        for (int32_t p = 0; p < kernel->product_count; p++) {
            extend_span(spans, kernel->products[p].left.buffer, k);
            extend_span(spans, kernel->products[p].right.buffer, k);
        }
    }
    return spans;
}

/* Is a buffer written and read by these kernels alone? */
static bool is_kept(const group *g, int32_t buffer)
{
    return g->plan->buffers[buffer].kind == OG_BUFFER_TEMPORARY &&
           g->spans[buffer].first >= g->first && g->spans[buffer].last < g->first + g->count;
}

/* The extent of dim d of a kernel in a slab of so many indices of dim `cut`. */
static int64_t find_extent(const group *g, int32_t kernel, int32_t d, int32_t cut, int64_t length)
{
    const row_dims *rows = &g->rows[kernel];
    int64_t count = 1;
    int32_t from, to;
    if (d >= rows->rank)
        return rows->kernel->space.extent[d];
    find_span(g, rows, d, &from, &to);
    for (int32_t e = from; e < to; e++)
        count *= e < cut ? 1 : e == cut ? length : g->extent[e];
    return count * (d == rows->rank - 1 ? rows->times : 1);
}

/* Bytes of a buffer from its beginning to the last that a slab's kernels write. */
static size_t count_kept(const group *g, int32_t buffer, int32_t cut, int64_t length)
{
    size_t most = 0;
    for (int32_t i = 0; i < g->seen_count; i++) {
        const seen *s = &g->seen[i];
        if (s->access->buffer != buffer || !s->access->is_store)
            continue;
        int64_t last = s->access->offset;
        for (int32_t d = 0; d < g->rows[s->kernel].kernel->space.rank; d++)
            last += (find_extent(g, s->kernel, d, cut, length) - 1) * s->access->stride[d];
        size_t bytes = (size_t)(last + 1) * og_dtype_bytes(s->access->dtype);
        most = bytes > most ? bytes : most;
    }
    return (most + LINE - 1) / LINE * LINE;
}

static bool is_first(const group *g, int32_t index)
{
    for (int32_t i = 0; i < index; i++)
        if (g->seen[i].access->buffer == g->seen[index].access->buffer)
            return false;
    return true;
}

static size_t count_all_kept(const group *g, int32_t cut, int64_t length)
{
    size_t bytes = 0;
    for (int32_t i = 0; i < g->seen_count; i++)
        if (is_first(g, i) && is_kept(g, g->seen[i].access->buffer))
            bytes += count_kept(g, g->seen[i].access->buffer, cut, length);
    return bytes;
}

/* ---- how many rows ------------------------------------------------------------------- */

static int64_t count_slabs(const group *g, int32_t cut, int64_t length)
{
    int64_t count = og_divide_up(g->extent[cut], length);
    for (int32_t d = 0; d < cut; d++)
        count *= g->extent[d];
    return count;
}

/* Bytes of the right factors of matrices that every slab packs anew, as float32. */
static int64_t count_factors(const group *g)
{
    const int64_t most = INT64_MAX / 8;
    int64_t count = 0;
    for (int32_t i = 0; i < g->count; i++) {
        const og_kernel *kernel = g->rows[i].kernel;
        int64_t one = og_min(og_times(kernel->matrices.n, kernel->matrices.k), most);
        for (int32_t p = 0; p < kernel->product_count && !og_kernel_convolves(kernel); p++)
            count = og_min(count + one, most);
    }
    return 4 * count;
}

/* The least rows of a slab that is cut along the last dim, each keeping so many bytes; 0: nothing
 * is multiplied. */
static int64_t find_least_rows(const group *g, const og_cpu_tuning *tuning, size_t each)
{
    int64_t factors = count_factors(g);
    return factors ? og_max(og_max(1, tuning->slab_rows), factors / PACKED / (int64_t)each) : 0;
}

/* As many rows as slab_bytes are kept for, and a slab for each thread; false: a product's rows are
 * too long, or too few for so many threads. panel: rows that a product takes at a time. */
static bool choose_slab(const group *g, const og_cpu_tuning *tuning, int32_t panel, int32_t threads,
                        og_cpu_slabs *to)
{
    const size_t most = (size_t)tuning->slab_bytes;
    int32_t cut = 0, last = g->rank - 1;
    while (cut < last && count_all_kept(g, cut, 1) > most)
        cut++;
    size_t each = count_all_kept(g, cut, 1);
    if (!each)
        return false;
    const int64_t least = cut == last ? find_least_rows(g, tuning, each) : 0;
    int64_t length = og_max((int64_t)(most / each), og_max(1, least));
    if (least) {
        if ((size_t)length > MOST_TIMES * most / each) /* length * each may be more than fits */
            return false;
        length -= length > 2 * panel ? length % panel : 0;
    }
    length = og_min(g->extent[cut], length);
    int64_t slabs = count_slabs(g, cut, length), lines = count_slabs(g, cut, g->extent[cut]);
    if (slabs < FEW * threads) { /* as many for each thread */
        slabs = og_divide_up(slabs, threads) * threads;
        length = og_divide_up(g->extent[cut], og_divide_up(slabs, lines));
    }
    to->cut = cut;
    to->length = length;
    to->slabs = count_slabs(g, cut, length);
    return to->slabs >= threads && to->slabs > 1 && length >= least - least / 4; /* near enough */
}

/* ---- a slab's kernels ------------------------------------------------------------------ */

static void shrink(const group *g, int32_t index, const og_cpu_slabs *to, int64_t length,
                   og_kernel *kernel)
{
    for (int32_t d = 0; d < kernel->space.rank; d++)
        kernel->space.extent[d] = find_extent(g, index, d, to->cut, length);
    og_matrices *of = &kernel->matrices;
    if (!kernel->product_count)
        return;
    of->batch = of->m = 1;
    for (int32_t d = 0; d < of->batch_rank + of->m_rank; d++)
        *(d < of->batch_rank ? &of->batch : &of->m) *= kernel->space.extent[d];
}

/* A plan of the kernels of a slab. Each access has a buffer of its own, in the order of
 * group.seen. */
static ogive_status make_plan(const group *g, const og_cpu_slabs *to, int64_t length,
                              og_arena *arena, og_plan *plan, ogive_error *error)
{
    plan->kernel_count = g->count;
    plan->buffer_count = g->seen_count;
    plan->kernels = OG_ARENA_NEW(arena, og_kernel, (size_t)g->count);
    plan->buffers = OG_ARENA_NEW(arena, og_buffer, (size_t)g->seen_count);
    if (!plan->kernels || !plan->buffers)
        return og_fail_memory(error, (size_t)g->count * sizeof *plan->kernels);
    int32_t buffer = 0;
    for (int32_t i = 0; i < g->count; i++) {
        og_kernel *kernel = &plan->kernels[i];
        *kernel = *g->rows[i].kernel;
        shrink(g, i, to, length, kernel);
        kernel->accesses = OG_ARENA_NEW(arena, og_access, (size_t)kernel->access_count + 1);
        kernel->products = OG_ARENA_NEW(arena, og_product, (size_t)kernel->product_count + 1);
        if (!kernel->accesses || !kernel->products)
            return og_fail_memory(error, (size_t)kernel->access_count * sizeof *kernel->accesses);
        for (int32_t a = 0; a < kernel->access_count; a++) {
            kernel->accesses[a] = g->rows[i].kernel->accesses[a];
            if (kernel->accesses[a].buffer >= 0)
                kernel->accesses[a].buffer = buffer++;
        }
        for (int32_t p = 0; p < kernel->product_count; p++) {
            kernel->products[p] = g->rows[i].kernel->products[p];
            kernel->products[p].left.buffer = buffer++;
            kernel->products[p].right.buffer = buffer++;
        }
    }
    for (int32_t b = 0; b < buffer; b++) {
        plan->buffers[b].kind = OG_BUFFER_INPUT; /* og_cpu_find_buffer() takes it from a list */
        plan->buffers[b].index = b;
        plan->buffers[b].dtype = g->seen[b].access->dtype;
    }
    return OGIVE_OK;
}

static void place_kept(const group *g, og_cpu_slabs *to)
{
    for (int32_t i = 0; i < g->seen_count; i++) {
        int32_t buffer = g->seen[i].access->buffer;
        og_cpu_move *move = &to->moves[i];
        move->buffer = buffer;
        move->bytes = (int32_t)og_dtype_bytes(g->seen[i].access->dtype);
        memcpy(move->stride, g->seen[i].stride, sizeof move->stride);
        if (!is_kept(g, buffer))
            continue;
        move->buffer = -1;
        move->at = to->kept_bytes;
        if (is_first(g, i))
            to->kept_bytes += count_kept(g, buffer, to->cut, to->length);
        for (int32_t j = 0; j < i; j++)
            if (g->seen[j].access->buffer == buffer)
                move->at = to->moves[j].at;
    }
    to->move_count = g->seen_count;
}

/* Which accesses' buffers runs get packed, as og_cpu_state.packed has it. */
static uint64_t find_packed(const group *g, const og_cpu_state *state)
{
    uint64_t packed = 0;
    for (int32_t i = 0; i < g->seen_count; i++)
        if (og_cpu_is_packed(state, &g->plan->buffers[g->seen[i].access->buffer]))
            packed |= UINT64_C(1) << i;
    return packed;
}

static ogive_status prepare_slabs(const group *g, og_cpu_state *state, og_cpu_slabs *to,
                                  ogive_error *error)
{
    int64_t last = g->extent[to->cut] % to->length;
    size_t scratch = 0;
    to->first = g->first;
    to->count = g->count;
    to->rank = g->rank;
    memcpy(to->extent, g->extent, sizeof to->extent);
    place_kept(g, to);
    for (int32_t v = 0; v < (last ? 2 : 1); v++) {
        og_cpu_state *own = &to->states[v];
        size_t bytes;
        own->tuning = state->tuning;
        own->kernels = state->kernels;
        own->level = state->level;
        own->max_threads = 1;
        own->packed = find_packed(g, state);
        OG_TRY(make_plan(g, to, v ? last : to->length, &state->arena, &to->plans[v], error));
        OG_TRY(og_cpu_prepare_kernels(own, &to->plans[v], &bytes, error));
        scratch = bytes > scratch ? bytes : scratch;
    }
    to->thread_bytes = to->kept_bytes + (scratch + LINE - 1) / LINE * LINE;
    return OGIVE_OK;
}

/* ---- all groups of a plan ------------------------------------------------------------------ */

/* As many kernels from tried->first on as have so many rows and may be a group: *g. */
static bool grow_group(int64_t rows, group *g, group *tried)
{
    const og_plan *plan = tried->plan;
    bool found = false;
    for (int32_t count = 2; count <= MOST_KERNELS && tried->first + count <= plan->kernel_count;
         count++) {
        if (make_group(tried, count, rows)) {
            *g = *tried;
            found = true;
        } else if (!find_rows(&plan->kernels[tried->first + count - 1], rows, &tried->rows[0])) {
            break;
        }
    }
    return found;
}

/* The group from memory[1].first on whose whole temporaries take the most, if that is *most or
 * more. Its rows are those of kernel rows_of: of its first, or of the second, where the first one's
 * dims were joined. */
static void find_group(int32_t rows_of, size_t *most, group *best, group memory[2])
{
    const og_kernel *kernel = &memory[1].plan->kernels[rows_of];
    int64_t rows = 1;
    for (int32_t d = 0; d < count_row_dims(kernel); d++) {
        rows *= kernel->space.extent[d];
        if (!grow_group(rows, &memory[0], &memory[1]))
            continue;
        size_t bytes = count_all_kept(&memory[0], 0, memory[0].extent[0]);
        if (bytes < *most)
            continue;
        *best = memory[0];
        *most = bytes;
    }
}

static bool is_empty(const og_plan *plan)
{
    for (int32_t k = 0; k < plan->kernel_count; k++)
        if (og_space_count(&plan->kernels[k].space, false) == 0)
            return true;
    return false;
}

void og_cpu_release_slabs(og_cpu_slabs *slabs)
{
    for (int32_t v = 0; v < 2; v++)
        og_arena_free(&slabs->states[v].arena);
}

/* Makes the slabs that begin with a kernel: *to, NULL if it runs by itself. */
static ogive_status make_slabs(og_cpu_state *state, const og_plan *plan, const kernel_span *spans,
                               int32_t first, size_t most_bytes, group groups[3], og_cpu_slabs **to,
                               ogive_error *error)
{
    const int32_t panel = state->kernels->product->panel_rows;
    size_t most = (size_t)state->tuning.slab_least;
    og_cpu_slabs chosen = {.threads = 1};
    groups[0].count = 0;
    groups[2] = (group){.plan = plan, .spans = spans, .first = first};
    find_group(first, &most, &groups[0], &groups[1]);
    find_group(first + 1, &most, &groups[0], &groups[1]);
    for (int32_t i = 0; i < groups[0].count; i++)
        chosen.threads = (int32_t)og_max(chosen.threads, state->compiled[first + i].threads);
    if (!groups[0].count ||
        !choose_slab(&groups[0], &state->tuning, panel, chosen.threads, &chosen))
        return OGIVE_OK;
    og_cpu_slabs *made = OG_ARENA_NEW(&state->arena, og_cpu_slabs, 1);
    if (!made)
        return og_fail_memory(error, sizeof *made);
    *made = chosen;
    *to = made; /* what is prepared is released, whatever happens */
    OG_TRY(prepare_slabs(&groups[0], state, made, error));
    if (made->thread_bytes > most_bytes / (size_t)made->threads) {
        og_cpu_release_slabs(made);
        *to = NULL;
    }
    return OGIVE_OK;
}

ogive_status og_cpu_find_slabs(const og_plan *plan, size_t most_bytes, og_cpu_state *state,
                               ogive_error *error)
{
    if (plan->temporary_bytes < (size_t)state->tuning.slab_least || is_empty(plan))
        return OGIVE_OK;
    og_arena scratch = {0};
    group *groups = OG_ARENA_NEW(&scratch, group, 3);
    const kernel_span *spans = find_spans(plan, &scratch);
    ogive_status status = groups && spans ? OGIVE_OK : og_fail_memory(error, 3 * sizeof *groups);
    og_cpu_slabs **end = &state->slabs;
    for (int32_t k = 0; k + 1 < plan->kernel_count && status == OGIVE_OK;) {
        status = make_slabs(state, plan, spans, k, most_bytes, groups, end, error);
        k += *end ? (*end)->count : 1;
        end = *end ? &(*end)->next : end;
    }
    og_arena_free(&scratch);
    return status;
}

int64_t og_cpu_count_slab_rows(const og_cpu_slabs *slabs)
{
    int64_t rows = slabs->length;
    for (int32_t d = slabs->cut + 1; d < slabs->rank; d++)
        rows *= slabs->extent[d];
    return rows;
}

/* ---- running --------------------------------------------------------------------------------- */

typedef struct {
    const og_cpu_slabs *slabs;
    const og_cpu_job *job;
    _Atomic int64_t next;
} slab_run;

/* Where a slab's accesses begin; memory: of what it keeps. Returns whether it is the last along
 * the dim that is cut, and shorter. */
static bool find_buffers(const slab_run *run, int64_t slab, char *memory, void **buffers)
{
    const og_cpu_slabs *s = run->slabs;
    int64_t at[OG_MAX_RANK] = {0}, along = og_divide_up(s->extent[s->cut], s->length);
    at[s->cut] = slab % along * s->length;
    slab /= along;
    for (int32_t d = s->cut - 1; d >= 0; d--) {
        at[d] = slab % s->extent[d];
        slab /= s->extent[d];
    }
    for (int32_t i = 0; i < s->move_count; i++) {
        const og_cpu_move *move = &s->moves[i];
        int64_t offset = 0;
        for (int32_t d = 0; d <= s->cut; d++)
            offset += at[d] * move->stride[d];
        buffers[i] = move->buffer < 0
                         ? memory + move->at
                         : og_cpu_find_buffer(run->job, move->buffer) + offset * move->bytes;
    }
    return at[s->cut] + s->length > s->extent[s->cut];
}

static void run_slab(slab_run *run, int64_t slab, char *memory)
{
    const og_cpu_slabs *s = run->slabs;
    void *buffers[OG_CPU_MOST_MOVES];
    bool short_one = find_buffers(run, slab, memory, buffers);
    for (int32_t i = 0; i < s->count; i++) {
        og_cpu_job job = {.plan = &s->plans[short_one],
                          .kernel = &s->states[short_one].compiled[i],
                          .inputs = (const void *const *)buffers,
                          .scratch = memory + s->kept_bytes};
        og_cpu_run_kernel(&job);
    }
}

static void run_slabs(void *context, int thread, int threads)
{
    slab_run *run = context;
    char *memory = run->job->scratch + (size_t)thread * run->slabs->thread_bytes;
    (void)threads;
    for (int64_t slab; (slab = atomic_fetch_add_explicit(&run->next, 1, memory_order_relaxed)) <
                       run->slabs->slabs;)
        run_slab(run, slab, memory);
}

void og_cpu_run_slabs(const og_cpu_slabs *slabs, const og_cpu_job *job)
{
    slab_run run = {.slabs = slabs, .job = job};
    og_cpu_parallel(slabs->threads, run_slabs, &run);
}
