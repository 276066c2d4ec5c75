/* SPDX-License-Identifier: MIT
 *
 * cpu_prepare.c - how a kernel's space is cut: axes, pieces that fit the L1
 * cache, tiles for threads, parts of long rows; and where everything lies in the
 * workspace. None of these choices can change a result (plan.h fixes the order).
 */
#include "cpu/cpu_prepare.h"

#include "cpu/cpu_packed.h"
#include "cpu/cpu_places.h"
#include "cpu/cpu_product_run.h"
#include "cpu/cpu_slabs.h"
#include "cpu/cpu_threads.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_BLOCK = 4096, /* elements: more does not pay for dispatch any better */
    MIN_BLOCK = OG_LANES,
    WHOLE_ROWS = 2048, /* sums of rows of 1024: 135 -> 84 ns a row, Zen 4 */
    TRANSPOSED = 64,   /* sides of a transposed piece; half of it when registers are many */
    MAX_COLUMNS = 4096,
    MOST_OF_LINES = 1 << 14,
    SUMEXP_COLUMNS = 512, /* a run of 64 is staged: 128 KiB, half of a small L2 cache */
    STREAMED = 1 << 22,   /* elements (16 MiB) from which on rows come from memory, not a cache */
    LEAST_SCRATCH = 200 << 10, /* bytes: a fifth of a small L2 cache */
    LINE = 64
};

/* Most of a 32 KiB L1 cache; 8 microseconds, which waking a thread may take; an L2 cache, and some
 * of the next: softmax(q @ k.mT) @ v of 8 x 2048 x 64 takes 149, 77, 74, 73 ms of a Zen 5 with slabs
 * of 1/2, 1, 2, 4 MiB, and 217 without. */
static const og_cpu_tuning default_tuning = {.block_bytes = 24 * 1024,
                                             .thread_ps = 8000000,
                                             .slab_least = 1 << 20,
                                             .slab_bytes = 2 << 20,
                                             .slab_rows = 32};

/* ---- axes -------------------------------------------------------------------- */

static void add_dim(og_cpu_geometry *g, int axis, int32_t dim)
{
    g->dims[axis][g->rank[axis]++] = dim;
}

static int64_t count_dims(const og_space *space, const og_cpu_geometry *g, int axis)
{
    int64_t count = 1;
    for (int32_t k = 0; k < g->rank[axis]; k++)
        count *= space->extent[g->dims[axis][k]];
    return count;
}

/* A dim other than the last along which some access is contiguous, where it is
 * not along the last; -1 if there is none. */
static int32_t find_transposed_dim(const og_kernel *kernel)
{
    int32_t last = kernel->space.rank - 1;
    for (int32_t a = 0; a < kernel->access_count; a++) {
        const og_access *access = &kernel->accesses[a];
        if (last < 1 || access->stride[last] == 0 || access->stride[last] == 1)
            continue;
        for (int32_t d = last - 1; d >= 0; d--)
            if (access->stride[d] == 1 && kernel->space.extent[d] > 1)
                return d;
    }
    return -1;
}

static bool choose_pointwise(const og_kernel *kernel, og_cpu_geometry *g)
{
    const og_space *space = &kernel->space;
    int32_t transposed = find_transposed_dim(kernel), last = space->rank - 1;
    for (int32_t d = 0; d < last; d++)
        add_dim(g, transposed < 0 || transposed == d ? OG_CPU_OUTER : OG_CPU_BASE, d);
    if (last >= 0)
        add_dim(g, OG_CPU_INNER, last);
    g->layout = OG_CPU_POINTWISE;
    g->many = last > 0 && (transposed >= 0 || space->extent[last] < MIN_BLOCK);
    g->whole = transposed < 0;
    return transposed >= 0;
}

/* One pass that leaves nothing but row values, and no sumexp, besides those that few rows need:
 * several rows may be a block, for no row value has to be repeated along them. */
static bool only_reduces(const og_kernel *kernel)
{
    const og_pass *pass = &kernel->passes[0];
    bool only = true;
    for (int32_t p = 1; p < kernel->pass_count; p++)
        only &= kernel->passes[p].guard_count > 0;
    for (int32_t i = 0; i < pass->element_count; i++)
        only &= pass->elements[i].op != OG_OP_STORE;
    for (int32_t r = 0; r < pass->reduction_count; r++)
        only &= og_op_fold(pass->reductions[r].op) != OG_FOLD_SUMEXP;
    return only;
}

static void choose_rows(const og_kernel *kernel, og_cpu_geometry *g, og_cpu_geometry *rows)
{
    const og_space *space = &kernel->space;
    int32_t kept = space->rank - space->n_reduced;
    for (int32_t d = 0; d < space->rank; d++)
        add_dim(g, d < kept ? OG_CPU_OUTER : OG_CPU_INNER, d);
    for (int32_t d = 0; d < kept; d++)
        add_dim(rows, OG_CPU_INNER, d);
    int64_t n = count_dims(space, g, OG_CPU_INNER);
    g->layout = OG_CPU_ROWS;
    g->many = n <= (only_reduces(kernel) ? WHOLE_ROWS : OG_LANES);
    g->whole = g->many;
    g->keeps = n <= OG_CHUNK;
    g->row_form = n == 1 ? OG_CPU_ROW_SAME : g->many ? OG_CPU_ROW_REPEAT : OG_CPU_ROW_ONE;
}

static void choose_columns(const og_kernel *kernel, og_cpu_geometry *g, og_cpu_geometry *rows)
{
    const og_space *space = &kernel->space;
    int32_t kept = space->rank - space->n_reduced, inner = kept - 1;
    /* Lines of an image may be short, and what they see is copied anyway: several make a block.
     * avg_pool2d by 2 of 8 x 64 x 56 x 56: 13.0 -> 2.8 ms, one thread of a busy Zen 4. */
    for (int64_t count = inner >= 0 ? space->extent[inner] : 0;
         kernel->slides && inner > 0 && count < MOST_OF_LINES;)
        count *= space->extent[--inner];
    for (int32_t d = 0; d < space->rank; d++)
        add_dim(g, d >= kept ? OG_CPU_OUTER : d >= inner ? OG_CPU_INNER : OG_CPU_BASE, d);
    for (int32_t d = 0; d < kept; d++)
        add_dim(rows, d >= inner ? OG_CPU_INNER : OG_CPU_BASE, d);
    g->layout = OG_CPU_COLUMNS;
    g->many = count_dims(space, g, OG_CPU_INNER) < MIN_BLOCK;
    g->whole = g->many;
    g->row_form = g->many ? OG_CPU_ROW_TILE : OG_CPU_ROW_SAME;
}

/* ---- work -------------------------------------------------------------------- */

/* Picoseconds of an instruction for one element: rough, measured on Zen 4 at
 * x86-64-v4 within a factor of two. Only the number of threads follows from it. */
static int64_t guess_cost(const og_instr *instr)
{
    static const int64_t of_function[][2] = {/* float32 and masks, float64 */
                                             [OG_COST_FEW] = {40, 80},
                                             [OG_COST_ROOT] = {150, 600},
                                             [OG_COST_CURVE] = {250, 4000}};
    bool is_double = instr->type == OG_F64;
    if (instr->op < OG_FUNCTION_COUNT)
        return of_function[og_op_cost(instr->op)][is_double];
    return instr->op == OG_OP_CONSTANT ? 0 : is_double ? 120 : 60;
}

static int64_t guess_work(const og_kernel *kernel)
{
    int64_t cost = 0, count = 1;
    for (int32_t p = 0; p < kernel->pass_count; p++) {
        const og_pass *pass = &kernel->passes[p];
        if (pass->guard_count)
            continue;
        for (int32_t i = 0; i < pass->element_count; i++)
            cost += guess_cost(&pass->elements[i]);
        for (int32_t r = 0; r < pass->reduction_count; r++)
            cost += og_op_fold(pass->reductions[r].op) == OG_FOLD_SUMEXP ? 400 : 60;
    }
    for (int32_t d = 0; d < kernel->space.rank; d++)
        count = og_min(count * og_min(kernel->space.extent[d], 1 << 20), (int64_t)1 << 40);
    return og_min(cost, 1 << 20) * count;
}

/* ---- pieces and tiles ---------------------------------------------------------- */

static bool has_sumexp(const og_kernel *kernel)
{
    for (int32_t p = 0; p < kernel->pass_count; p++)
        for (int32_t r = 0; r < kernel->passes[p].reduction_count; r++)
            if (og_op_fold(kernel->passes[p].reductions[r].op) == OG_FOLD_SUMEXP)
                return true;
    return false;
}

static int32_t count_reductions(const og_cpu_kernel *k)
{
    int32_t most = 0;
    for (int32_t p = 0; p < k->pass_count; p++)
        for (int aliased = 0; aliased < 2; aliased++)
            most = (int32_t)og_max(most, k->passes[p].elements[aliased]->reduction_count);
    return most;
}

/* Blocks of the caller's memory that a piece reads and writes in place, where there are
 * registers for it to push out of the cache. */
static int32_t count_directs(const og_cpu_kernel *k)
{
    return k->register_count > 0 ? k->passes[0].elements[0]->direct_count : 0;
}

/* Elements of a block such that `blocks` of them fit the cache: a power of two. */
static int64_t choose_block(const og_cpu_state *state, const og_cpu_kernel *k, int64_t blocks)
{
    int64_t block = MAX_BLOCK;
    while (block > MIN_BLOCK &&
           blocks * block * (int64_t)k->element_bytes > state->tuning.block_bytes)
        block /= 2;
    return block;
}

static void cut_pointwise(const og_cpu_state *state, og_cpu_kernel *k, bool transposed)
{
    int64_t block = choose_block(state, k, k->register_count + count_directs(k));
    k->piece_inner = og_min(k->inner_count, block);
    k->piece_outer = 1;
    if (transposed) {
        k->piece_inner = og_min(k->inner_count, block == MAX_BLOCK ? TRANSPOSED : TRANSPOSED / 2);
        k->piece_outer = og_min(k->outer_count, og_max(block / k->piece_inner, 1));
    } else if (k->many) {
        k->piece_outer = og_min(k->outer_count, og_max(block / k->piece_inner, 1));
    }
    k->inner_tiles = og_divide_up(k->inner_count, k->piece_inner);
    k->outer_tiles = og_divide_up(k->outer_count, k->piece_outer);
    k->tile_count = k->base_count * k->outer_tiles * k->inner_tiles;
    k->tile_rows = 1;
}

static void cut_rows(const og_cpu_state *state, og_cpu_kernel *k, const og_kernel *kernel)
{
    /* Several rows meet in two halves of a block; sumexp needs one more. */
    int64_t extra = 1;
    if (k->many && has_sumexp(kernel))
        extra += k->kept_count ? k->kept_count : 1;
    /* Many short rows: dispatch weighs more than the L1 cache (10 % of a layer_norm). */
    int64_t blocks = (k->register_count + extra) / (k->many ? 2 : 1);
    int64_t block = choose_block(state, k, blocks);
    k->row_count = k->outer_count;
    k->n = k->inner_count;
    k->tile_rows = k->piece_outer = 1;
    k->piece_inner = og_min(block, k->n);
    if (k->many) {
        k->piece_inner = k->n;
        k->tile_rows = og_min(k->row_count, og_max(block / og_max(k->n, 1), 1));
        k->piece_outer = k->tile_rows;
    }
    k->tile_count = og_divide_up(k->row_count, k->tile_rows);
    k->streams = k->row_count > STREAMED / og_max(k->n, 1);
    k->part_length = OG_CHUNK;
    k->part_count = og_divide_up(k->n, OG_CHUNK);
    k->split =
        !k->many && k->part_count > 1 &&
        (k->tile_count < k->threads || (k->tile_count < 4 * k->threads && k->part_count >= 8));
}

/* Are there no blocks between its steps? Then a piece can be a whole run. */
static bool has_no_blocks(const og_cpu_program *program)
{
    return program->only_loads || program->window_fold.is;
}

/* Steps along outer of a piece: divides a run, so that no piece crosses its end. */
static void choose_outer_steps(og_cpu_kernel *k, int64_t block)
{
    for (int32_t p = 0; p < k->pass_count; p++)
        for (int aliased = 0; aliased < 2; aliased++) {
            og_cpu_program *program = k->passes[p].elements[aliased];
            int64_t step = 1;
            while (k->many && step < OG_RUN && 2 * step * k->tile_rows <= block)
                step *= 2;
            program->outer_step = has_no_blocks(program) ? OG_RUN : step;
        }
}

/* Columns of a tile of a fold over windows: whole images, or whole lines, if it has any; of what no
 * block is made several, so that a thread need not begin anew in the middle of one. */
static int64_t round_to_lines(const og_cpu_kernel *k, const og_kernel *kernel, int64_t columns)
{
    const int32_t last = kernel->space.rank - kernel->space.n_reduced - 1;
    const int64_t share = k->base_count * k->inner_count / (4 * (int64_t)k->threads);
    const int64_t most = og_max(columns, og_min(og_min(MOST_OF_LINES, share), k->inner_count));
    int64_t whole = 1;
    if (!k->passes[0].elements[0]->window_fold.is)
        return columns;
    for (int32_t d = last; d >= 0 && d > last - 2; d--)
        if (og_times(whole, kernel->space.extent[d]) <= most)
            whole *= kernel->space.extent[d];
    const bool lines = k->passes[0].elements[0]->window_lines != NULL;
    return og_max(whole, (lines ? columns : most) / whole * whole);
}

/* Where a fold over windows is all there is, and what it makes is stored as it lies: there. */
static const og_cpu_access *find_straight(const og_cpu_kernel *k)
{
    const og_cpu_program *fold = k->passes[0].elements[0], *rows = k->passes[0].rows[0];
    if (k->pass_count != 1 || !fold->window_fold.is || k->n > OG_RUN || rows->step_count != 1)
        return NULL;
    const og_cpu_step *step = &rows->steps[0];
    const og_cpu_reduction *r = &fold->reductions[0];
    const og_dtype own = r->bytes == sizeof(double) ? OG_FLOAT64 : OG_FLOAT32;
    const bool stores = step->kind == OG_CPU_STORE && step->dst == r->result && r->result >= 0 &&
                        step->loops == r->loops && step->run.store == r->loops->store[own];
    if (!stores || !og_cpu_is_contiguous(&rows->accesses[step->access].axes[OG_CPU_INNER]))
        return NULL;
    return &rows->accesses[step->access];
}

static void cut_columns(const og_cpu_state *state, og_cpu_kernel *k, const og_kernel *kernel)
{
    k->row_count = k->base_count * k->inner_count;
    k->n = k->outer_count;
    k->straight = find_straight(k);
    int64_t block = choose_block(state, k, k->register_count + count_reductions(k));
    int64_t width = og_min(block, has_sumexp(kernel) ? SUMEXP_COLUMNS : MAX_COLUMNS);
    while (width > MIN_BLOCK &&
           k->base_count * og_divide_up(k->inner_count, width) < 4 * (int64_t)k->threads)
        width /= 2;
    k->tile_rows = round_to_lines(k, kernel, og_min(width, k->inner_count));
    k->piece_inner = k->tile_rows;
    k->inner_tiles = og_divide_up(k->inner_count, k->tile_rows);
    k->tile_count = k->base_count * k->inner_tiles;
    choose_outer_steps(k, block);
    k->total_levels = 1;
    for (int64_t runs = og_divide_up(k->n, OG_RUN); runs > 1; runs = og_divide_up(runs, OG_RUN))
        k->total_levels++;
    k->levels = k->total_levels;
    k->part_length = og_max(k->n, 1);
    k->part_count = k->n > 0;
    k->split = k->tile_count < 2 * (int64_t)k->threads && k->n >= 2 * OG_RUN && k->threads > 1 &&
               k->tile_count % k->threads != 0;
    if (!k->split)
        return;
    /* The largest runs of runs of which there are enough. */
    k->levels = 1;
    k->part_length = OG_RUN;
    while (k->n / (k->part_length * OG_RUN) * k->tile_count >= 4 * (int64_t)k->threads) {
        k->part_length *= OG_RUN;
        k->levels++;
    }
    k->part_count = og_divide_up(k->n, k->part_length);
}

static bool reduces(const og_kernel *kernel)
{
    for (int32_t p = 0; p < kernel->pass_count; p++)
        if (kernel->passes[p].reduction_count > 0 || kernel->passes[p].row_count > 0)
            return true;
    return kernel->space.n_reduced > 0;
}

/* Does anything of the size of the product leave the kernel? */
static bool stores_elements(const og_kernel *kernel)
{
    for (int32_t p = 0; p < kernel->pass_count; p++)
        for (int32_t i = 0; i < kernel->passes[p].element_count; i++)
            if (kernel->passes[p].elements[i].op == OG_OP_STORE)
                return true;
    return false;
}

/* a * b * c, at most SIZE_MAX / 2. */
static size_t multiply_bounded(size_t a, size_t b, size_t c)
{
    size_t product;
    bool fits = og_mul_size(a, b, &product) && og_mul_size(product, c, &product);
    return fits && product < SIZE_MAX / 2 ? product : SIZE_MAX / 2;
}

/* Most scratch memory that a kernel with products should need: a tenth of what is reduced
 * and never stored, or what a cache can spare. */
static size_t limit_scratch(const og_cpu_kernel *k, const og_kernel *kernel)
{
    if (stores_elements(kernel))
        return SIZE_MAX / 2;
    size_t tenth = multiply_bounded((size_t)k->row_count, (size_t)k->n, k->product->bytes) / 10;
    return tenth > LEAST_SCRATCH ? tenth : LEAST_SCRATCH;
}

static void cut_product(const og_cpu_state *state, og_cpu_kernel *k, const og_kernel *kernel,
                        bool lean)
{
    og_cpu_product *p = k->product;
    k->row_count = k->base_count * k->outer_count;
    k->n = k->inner_count;
    p->reduces = reduces(kernel);
    /* Partial results, and what programs need (a guess). */
    size_t rest = multiply_bounded((size_t)k->row_count, (size_t)p->groups,
                                   (size_t)count_reductions(k) * p->bytes) +
                  (size_t)k->threads * 4096;
    size_t limit = limit_scratch(k, kernel);
    if (k->n > 0)
        og_cpu_cut_product(k, limit > rest ? limit - rest : 0, lean);
    k->piece_outer = 1;
    k->piece_inner = p->tiling.tile_n;
    if (k->many) {
        int64_t block = choose_block(state, k, k->register_count + 3);
        k->piece_inner = k->n;
        k->piece_outer = og_min(k->outer_count, og_max(block / og_max(k->n, 1), 1));
    }
    k->tile_rows = k->piece_outer * og_divide_up(og_max(k->piece_inner, 1), OG_PRODUCT_COLUMNS);
    k->threads = (int32_t)og_min(k->threads, og_max(p->tile_count, 1));
}

static void choose_threads(const og_cpu_state *state, og_cpu_kernel *k, int64_t work)
{
    k->threads = (int32_t)og_max(1, og_min(state->max_threads, work / state->tuning.thread_ps));
}

/* ---- the workspace ------------------------------------------------------------- */

/* Adds count * bytes, rounded up to a cache line, to *total; *at is where it is. */
static bool add_bytes(size_t *total, int64_t count, size_t bytes, size_t *at)
{
    size_t size;
    *at = *total;
    return og_mul_size((size_t)count, bytes, &size) && og_add_size(size, LINE - 1, &size) &&
           og_add_size(*total, size / LINE * LINE, total);
}

/* Accumulators, partial results and stages of one program; they live for a pass. */
static bool lay_out_program(const og_cpu_kernel *k, og_cpu_program *program, size_t *thread_bytes,
                            size_t *tile_bytes)
{
    bool fits = true;
    for (int32_t r = 0; r < program->reduction_count; r++) {
        og_cpu_reduction *at = &program->reductions[r];
        if (k->layout == OG_CPU_PRODUCT) {
            fits &= add_bytes(thread_bytes, OG_LANES, at->bytes, &at->accumulators);
        } else if (k->layout == OG_CPU_COLUMNS) {
            int64_t runs = og_divide_up(k->n, OG_RUN);
            int64_t partials = at->is_sumexp ? 2 * runs : k->part_count;
            fits &= add_bytes(thread_bytes, k->total_levels * k->tile_rows, at->bytes,
                              &at->accumulators);
            fits &= add_bytes(tile_bytes, og_max(partials, 1), (size_t)k->tile_rows * at->bytes,
                              &at->partials);
        } else if (!k->many) {
            int64_t lanes = at->is_sqdev ? 3 * OG_LANES : OG_LANES; /* see square_lanes */
            int64_t partials = at->is_sqdev ? 2 * k->part_count : k->part_count;
            fits &= add_bytes(thread_bytes, lanes, at->bytes, &at->accumulators);
            fits &= add_bytes(tile_bytes, og_max(partials, 1), at->bytes, &at->partials);
        }
    }
    return fits;
}

static bool lay_out_passes(og_cpu_kernel *k)
{
    size_t thread_start = k->thread_bytes, tile_start = k->tile_bytes;
    bool fits = true;
    int64_t staged =
        k->layout == OG_CPU_COLUMNS ? og_min(k->n, OG_RUN) * k->tile_rows : og_min(k->n, OG_CHUNK);
    k->stage_bytes = (size_t)staged * k->element_bytes;
    k->stage_bytes = (k->stage_bytes + LINE - 1) / LINE * LINE;
    for (int32_t p = 0; p < k->pass_count; p++)
        for (int aliased = 0; aliased < 2; aliased++) {
            size_t thread_bytes = thread_start, tile_bytes = tile_start;
            og_cpu_program *program = k->passes[p].elements[aliased];
            fits &= add_bytes(&thread_bytes, program->stage_count, k->stage_bytes,
                              &k->passes[p].stages);
            fits &= lay_out_program(k, program, &thread_bytes, &tile_bytes);
            k->thread_bytes = (size_t)og_max((int64_t)thread_bytes, (int64_t)k->thread_bytes);
            k->tile_bytes = (size_t)og_max((int64_t)tile_bytes, (int64_t)k->tile_bytes);
        }
    return fits;
}

static int64_t count_block(const og_cpu_kernel *k)
{
    if (k->layout != OG_CPU_COLUMNS)
        return og_max(k->piece_outer * k->piece_inner, k->tile_rows);
    int64_t steps = 1;
    for (int32_t p = 0; p < k->pass_count; p++)
        for (int aliased = 0; aliased < 2; aliased++)
            if (!has_no_blocks(k->passes[p].elements[aliased]))
                steps = og_max(steps, k->passes[p].elements[aliased]->outer_step);
    return steps * k->tile_rows;
}

/* Elements of weights of columns. */
static int64_t count_weights(const og_cpu_kernel *k)
{
    int64_t most = 0;
    for (int32_t p = 0; p < k->pass_count; p++)
        for (int aliased = 0; aliased < 2; aliased++) {
            const og_cpu_window_fold *fold = &k->passes[p].elements[aliased]->window_fold;
            most = fold->is ? og_max(most, fold->taps * fold->w_pitch) : most;
        }
    return most;
}

static bool lay_out(og_cpu_kernel *k, bool sumexp)
{
    size_t registers, slots, rows, at;
    int64_t block = count_block(k);
    k->thread_bytes = k->tile_bytes = 0;
    bool fits = add_bytes(&k->thread_bytes, k->place_count, sizeof(void *), &at);
    fits &= add_bytes(&k->thread_bytes, k->slot_count, sizeof(double), &slots);
    size_t register_bytes = ((size_t)block * k->element_bytes + LINE - 1) / LINE * LINE;
    fits &= add_bytes(&k->thread_bytes, k->register_count, register_bytes, &registers);
    if ((k->layout == OG_CPU_ROWS && k->many) || k->product) { /* see cpu_reduce.c */
        k->fold_bytes = register_bytes;
        fits &= add_bytes(&k->thread_bytes, sumexp ? 3 : 2, register_bytes, &k->fold_offset);
    }
    k->kept_bytes = k->many ? register_bytes : (size_t)k->n * k->element_bytes;
    k->kept_bytes = (k->kept_bytes + LINE - 1) / LINE * LINE;
    fits &= add_bytes(&k->thread_bytes, k->kept_count, k->kept_bytes, &k->kept_offset);
    int64_t weights = count_weights(k);
    if (weights)
        fits &= add_bytes(&k->thread_bytes, LINE + weights, k->element_bytes, &k->weights);
    size_t row_bytes = ((size_t)k->tile_rows * k->element_bytes + LINE - 1) / LINE * LINE;
    fits &= add_bytes(&k->tile_bytes, k->row_value_count, row_bytes, &rows);
    fits &= lay_out_passes(k);
    for (int32_t p = 0; p < k->place_count; p++) {
        og_cpu_place *place = &k->places[p];
        if (place->kind == OG_CPU_PLACE_TILE)
            place->offset = rows + (size_t)place->index * row_bytes;
        else if (place->kind == OG_CPU_PLACE_THREAD)
            place->offset = place->index >= 0 ? registers + (size_t)place->index * register_bytes
                                              : slots + (size_t)(-1 - place->index) * 8;
    }
    if (k->product)
        fits &= add_bytes(&k->thread_bytes, k->product->count, k->product->tiling.sum_bytes,
                          &k->product->sums) &&
                add_bytes(&k->thread_bytes, 1, k->product->tiling.work_bytes, &k->product->work);
    /* Threads have tile memory of their own, unless all share every tile's. */
    size_t tiles = k->split ? (size_t)k->tile_count : (size_t)k->threads, threads, shared;
    fits &= og_mul_size(k->thread_bytes, (size_t)k->threads, &threads);
    fits &= og_mul_size(k->tile_bytes, tiles, &shared);
    fits &= og_add_size(threads, shared, &k->scratch_bytes);
    if (k->product) {
        size_t row = (size_t)k->product->groups * k->element_bytes;
        fits &= og_mul_size(row, (size_t)count_reductions(k), &row) &&
                add_bytes(&k->scratch_bytes, k->row_count, row, &k->product->partials) &&
                add_bytes(&k->scratch_bytes, k->product->filter_count, k->product->filter_bytes,
                          &k->product->filters);
    }
    return fits && k->scratch_bytes < SIZE_MAX / 4;
}

/* As many of at most `most` threads as the limit of scratch memory allows, and one. */
static bool try_product(const og_cpu_state *state, const og_kernel *kernel, og_cpu_kernel *k,
                        int32_t most, bool lean)
{
    for (k->threads = most;; k->threads--) {
        int32_t tried = k->threads;
        cut_product(state, k, kernel, lean);
        if (!lay_out(k, has_sumexp(kernel)))
            return false;
        if (tried == 1 || k->scratch_bytes <= limit_scratch(k, kernel))
            return true;
        k->threads = tried;
    }
}

/* Packed, or, if that leaves no memory for some threads, lean, which needs little and 1.4
 * times the time. */
static bool fit_product(const og_cpu_state *state, const og_kernel *kernel, og_cpu_kernel *k)
{
    int32_t most = k->threads;
    if (!try_product(state, kernel, k, most, false))
        return false;
    int32_t packed = k->threads;
    if (3 * packed >= 2 * most || stores_elements(kernel))
        return true;
    return try_product(state, kernel, k, most, true) &&
           (2 * k->threads > 3 * packed || try_product(state, kernel, k, packed, false));
}

/* ---- all of it ----------------------------------------------------------------- */

static size_t find_element_bytes(const og_kernel *kernel)
{
    for (int32_t v = 0; v < kernel->value_count; v++)
        if (kernel->values[v].type == OG_F64)
            return 8;
    return 4;
}

static ogive_status prepare_kernel(og_cpu_state *state, const og_plan *plan,
                                   const og_kernel *kernel, og_cpu_kernel *k, ogive_error *error)
{
    k->threads = 1;
    og_cpu_geometry g = {0}, rows = {.row_form = OG_CPU_ROW_SAME};
    bool transposed = false;
    if (kernel->product_count) {
        k->product = OG_ARENA_NEW(&state->arena, og_cpu_product, 1);
        if (!k->product)
            return og_fail_memory(error, sizeof *k->product);
        og_cpu_see_product(kernel, state->kernels, &g, &rows, k->product);
        if (k->product->image >= 0)
            OG_TRY(og_cpu_see_scene(k->product->image ? &k->product->factors->right
                                                      : &k->product->factors->left,
                                    k->product->k, &state->arena, &k->product->scene, error));
        for (int32_t p = 0; p < kernel->product_count; p++)
            k->product->factors[p].prepacked =
                og_cpu_is_packed(state, &plan->buffers[k->product->buffers[p][1]]);
    } else if (!reduces(kernel))
        transposed = choose_pointwise(kernel, &g);
    else if (kernel->order == OG_ROWS)
        choose_rows(kernel, &g, &rows);
    else
        choose_columns(kernel, &g, &rows);
    k->loops_f64 = state->kernels->f64;
    k->layout = g.layout;
    k->many = g.many;
    k->base_count = count_dims(&kernel->space, &g, OG_CPU_BASE);
    k->outer_count = count_dims(&kernel->space, &g, OG_CPU_OUTER);
    k->inner_count = count_dims(&kernel->space, &g, OG_CPU_INNER);
    k->element_bytes = find_element_bytes(kernel);
    OG_TRY(og_cpu_compile(plan, kernel, state->kernels, &g, &rows, &state->arena, k, error));
    int64_t work = guess_work(kernel);
    if (k->product)
        work += og_cpu_guess_product(k->product, k->base_count);
    choose_threads(state, k, work);
    int64_t rows_left =
        k->layout == OG_CPU_POINTWISE ? k->base_count * k->outer_count * k->inner_count
        : k->layout == OG_CPU_ROWS    ? k->outer_count
        : k->layout == OG_CPU_PRODUCT
            ? k->base_count * k->outer_count * (reduces(kernel) ? 1 : k->inner_count)
            : k->base_count * k->inner_count;
    if (rows_left == 0) /* nothing to do: tile_count stays 0 */
        return OGIVE_OK;
    if (k->layout == OG_CPU_POINTWISE)
        cut_pointwise(state, k, transposed);
    else if (k->layout == OG_CPU_ROWS)
        cut_rows(state, k, kernel);
    else if (k->layout == OG_CPU_COLUMNS)
        cut_columns(state, k, kernel);
    int64_t units = k->split ? k->tile_count * k->part_count : k->tile_count;
    if (!k->product)
        k->threads = (int32_t)og_min(k->threads, units);
    if (k->product ? !fit_product(state, kernel, k) : !lay_out(k, has_sumexp(kernel)))
        OG_FAIL(error, OGIVE_MEMORY, -1, "the workspace would be larger than the address space");
    return OGIVE_OK;
}

ogive_status og_cpu_prepare_kernels(og_cpu_state *state, const og_plan *plan, size_t *bytes,
                                    ogive_error *error)
{
    size_t scratch = 0;
    state->compiled = OG_ARENA_NEW(&state->arena, og_cpu_kernel, (size_t)plan->kernel_count + 1);
    if (!state->compiled)
        return og_fail_memory(error, (size_t)plan->kernel_count * sizeof *state->compiled);
    for (int32_t i = 0; i < plan->kernel_count; i++) {
        og_cpu_kernel *k = &state->compiled[i];
        OG_TRY(prepare_kernel(state, plan, &plan->kernels[i], k, error));
        scratch = k->scratch_bytes > scratch ? k->scratch_bytes : scratch;
    }
    /* The kernels run one after the other and share the scratch memory. */
    state->scratch_offset = (plan->temporary_bytes + LINE - 1) / LINE * LINE;
    if (!og_add_size(state->scratch_offset, scratch, bytes))
        OG_FAIL(error, OGIVE_MEMORY, -1, "the workspace would be larger than the address space");
    return OGIVE_OK;
}

/* Slabs lie where kernels have their scratch, which needs its place for runs whose outputs are inputs.
 * Many threads have many slabs: where that would take twice as much memory, kernels run one by one. */
static ogive_status add_slabs(og_cpu_state *state, const og_plan *plan, size_t *bytes,
                              ogive_error *error)
{
    if (*bytes > SIZE_MAX / 4) /* which nobody has */
        return OGIVE_OK;
    OG_TRY(og_cpu_find_slabs(plan, 2 * *bytes, state, error));
    for (const og_cpu_slabs *slabs = state->slabs; slabs; slabs = slabs->next) {
        size_t all = state->scratch_offset + slabs->thread_bytes * (size_t)slabs->threads;
        *bytes = all > *bytes ? all : *bytes;
    }
    return OGIVE_OK;
}

ogive_status og_cpu_prepare_tuned(const og_plan *plan, const ogive_options *options,
                                  const og_cpu_tuning *tuning, void **out, size_t *workspace_bytes,
                                  ogive_error *error)
{
    *out = NULL;
    og_cpu_state *state = calloc(1, sizeof *state);
    if (!state)
        return og_fail_memory(error, sizeof *state);
    state->tuning = *tuning;
    state->max_threads = og_cpu_thread_count(options ? options->threads : 0);
    state->packed = options ? options->packed : 0;
    ogive_status status =
        og_cpu_select(options ? options->cpu_level : NULL, &state->kernels, &state->level, error);
    if (status == OGIVE_OK)
        status = og_cpu_prepare_kernels(state, plan, workspace_bytes, error);
    if (status == OGIVE_OK)
        status = add_slabs(state, plan, workspace_bytes, error);
    if (status != OGIVE_OK) {
        og_cpu_release(state);
        return status;
    }
    *out = state;
    return OGIVE_OK;
}

ogive_status og_cpu_prepare(const og_plan *plan, const ogive_options *options, void **state,
                            size_t *workspace_bytes, ogive_error *error)
{
    return og_cpu_prepare_tuned(plan, options, &default_tuning, state, workspace_bytes, error);
}

void og_cpu_release(void *state)
{
    og_cpu_state *s = state;
    for (og_cpu_slabs *slabs = s ? s->slabs : NULL; slabs; slabs = slabs->next)
        og_cpu_release_slabs(slabs);
    if (s)
        og_arena_free(&s->arena);
    free(s);
}
