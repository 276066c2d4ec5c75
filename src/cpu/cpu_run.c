/* SPDX-License-Identifier: MIT
 *
 * cpu_run.c - runs prepared kernels: pieces through programs, tiles over threads.
 * Allocates nothing and keeps nothing: everything lies in the workspace.
 */
#include "cpu/cpu_run.h"

#include "cpu/cpu_packed.h"
#include "cpu/cpu_product_run.h"
#include "cpu/cpu_slabs.h"
#include "cpu/cpu_threads.h"
#include "cpu/cpu_window_walk.h"

#include <string.h>

/* ---- memory of the caller ------------------------------------------------------ */

char *og_cpu_find_buffer(const og_cpu_job *job, int32_t index)
{
    const og_buffer *buffer = &job->plan->buffers[index];
    if (buffer->kind == OG_BUFFER_INPUT)
        return (char *)(uintptr_t)job->inputs[buffer->index]; /* read only */
    if (buffer->kind == OG_BUFFER_OUTPUT)
        return job->outputs[buffer->index];
    return job->workspace + buffer->offset;
}

char *og_cpu_address(const og_cpu_job *job, const og_cpu_access *access, const og_cpu_piece *piece)
{
    int64_t offset = access->offset + og_cpu_find_offset(&access->axes[OG_CPU_BASE], piece->base) +
                     og_cpu_find_offset(&access->axes[OG_CPU_OUTER], piece->outer) +
                     og_cpu_find_offset(&access->axes[OG_CPU_INNER], piece->inner);
    char *memory = access->table ? (char *)(uintptr_t)access->table /* read only */
                                 : og_cpu_find_buffer(job, access->buffer);
    return memory + offset * access->bytes;
}

/* Moves block elements to or from memory, at one call of the loop for all that two
 * strides describe. */
static void copy_rectangle(const og_cpu_step *step, char *block, char *memory,
                           const int64_t strides[2], int64_t outer, int64_t inner)
{
    if (step->kind == OG_CPU_LOAD)
        step->run.load(block, memory, strides[0], strides[1], outer, inner);
    else
        step->run.store(block, memory, strides[0], strides[1], outer, inner);
}

/* Whole lines of an axis of two dims that begin there. */
static int64_t count_lines(const og_cpu_walk *at, int64_t most)
{
    return at->axis->rank == 2 && at->index[1] == 0 ? most / at->axis->extent[1] : 0;
}

static void copy_piece(const og_cpu_worker *w, const og_cpu_program *program,
                       const og_cpu_step *step, const og_cpu_piece *piece)
{
    const og_cpu_access *access = &program->accesses[step->access];
    const og_cpu_axis *outer = &access->axes[OG_CPU_OUTER], *inner = &access->axes[OG_CPU_INNER];
    size_t bytes = step->loops == w->kernel->loops_f64 ? 8 : 4;
    char *block = w->places[step->dst];
    if (step->one) {
        const int64_t still[2] = {0, 0};
        copy_rectangle(step, block, og_cpu_address(w->job, access, piece), still, 1, 1);
        return;
    }
    int64_t strides[2] = {0, og_cpu_last_stride(inner)};
    const og_cpu_walk start = og_cpu_start_walk(inner, piece->inner);
    const og_cpu_piece first = {.base = piece->base};
    char *memory = og_cpu_address(w->job, access, &first);
    for (int64_t o = 0, rows; o < piece->outer_count; o += rows) {
        rows = og_cpu_find_stretch(outer, piece->outer + o, piece->outer_count - o, &strides[0]);
        if (inner->rank > 1)
            rows = 1;
        const int64_t row = og_cpu_find_offset(outer, piece->outer + o);
        og_cpu_walk at = start;
        for (int64_t i = 0, count; i < piece->inner_count; i += count) {
            char *to = block + (size_t)(o * piece->inner_count + i) * bytes;
            char *there = memory + (row + at.offset) * access->bytes;
            const int64_t lines = count_lines(&at, piece->inner_count - i);
            if (lines > 1) {
                const int64_t across[2] = {inner->stride[0], strides[1]};
                count = lines * inner->extent[1];
                copy_rectangle(step, to, there, across, lines, inner->extent[1]);
                at.offset += lines * inner->stride[0];
                continue;
            }
            count = og_cpu_count_left(&at, piece->inner_count - i);
            copy_rectangle(step, to, there, strides, rows, count);
            og_cpu_move_on(&at, count);
        }
    }
}

/* ---- programs ------------------------------------------------------------------ */

enum { SLICE = 128 }; /* elements: as many lines at once as a core can wait for */

/* Runs a step of one argument on one row of elements, and has what later steps touch
 * come into the cache meanwhile. */
static void run_slices(const og_cpu_worker *w, const og_cpu_program *program,
                       const og_cpu_step *step, const og_cpu_piece *piece)
{
    int64_t n = piece->inner_count, bytes = step->loops == w->kernel->loops_f64 ? 8 : 4;
    char *to = w->places[step->dst];
    const char *from = w->places[step->args[0]], *late[OG_CPU_LATE];
    int64_t sizes[OG_CPU_LATE];
    for (int32_t l = 0; l < program->late_count; l++) {
        const og_cpu_access *access = &program->accesses[program->late[l]];
        late[l] = og_cpu_address(w->job, access, piece);
        sizes[l] = access->bytes;
    }
    for (int64_t at = 0; at < n; at += SLICE) {
        int64_t count = og_min(SLICE, n - at);
        for (int32_t l = 0; l < program->late_count; l++)
            for (int64_t b = at * sizes[l]; b < (at + count) * sizes[l]; b += 64)
                __builtin_prefetch(late[l] + b);
        step->run.map(to + at * bytes, from + at * bytes, NULL, NULL, &step->constants, count);
    }
}

void og_cpu_run_program(const og_cpu_worker *w, const og_cpu_program *program,
                        const og_cpu_piece *piece)
{
    void **places = w->places;
    int64_t n = piece->outer_count * piece->inner_count;
    for (int32_t d = 0; d < program->direct_count; d++) {
        const og_cpu_direct *direct = &program->directs[d];
        places[direct->place] = og_cpu_address(w->job, &program->accesses[direct->access], piece);
    }
    const og_cpu_step *end = program->steps + program->step_count;
    const og_cpu_step *sliced =
        program->sliced < 0 || piece->outer_count > 1 ? NULL : program->steps + program->sliced;
    for (const og_cpu_step *step = program->steps; step < end; step++) {
        switch (step->kind) {
        case OG_CPU_MAP:
            if (step == sliced) {
                run_slices(w, program, step, piece);
                break;
            }
            step->run.map(places[step->dst], places[step->args[0]], places[step->args[1]],
                          places[step->args[2]], &step->constants, step->one ? 1 : n);
            break;
        case OG_CPU_LOAD:
        case OG_CPU_STORE:
            copy_piece(w, program, step, piece);
            break;
        case OG_CPU_SEE:
            og_cpu_see(w, &program->accesses[step->access], step, piece);
            break;
        case OG_CPU_SPLAT:
            step->loops->splat(places[step->dst], places[step->args[0]], n);
            break;
        case OG_CPU_REPEAT:
            step->loops->repeat(places[step->dst], places[step->args[0]], piece->outer_count,
                                piece->inner_count);
            break;
        case OG_CPU_COPY:
            step->run.load(places[step->dst], places[step->args[0]],
                           w->kernel->product->tiling.tile_n, 1, piece->outer_count,
                           piece->inner_count);
            break;
        case OG_CPU_TILE: {
            size_t bytes = step->loops == w->kernel->loops_f64 ? 8 : 4;
            size_t row = (size_t)piece->inner_count * bytes;
            for (int64_t o = 0; o < piece->outer_count; o++)
                memcpy((char *)places[step->dst] + (size_t)o * row, places[step->args[0]], row);
            break;
        }
        }
    }
}

/* Points the program's stages, and what it reads of kept terms, at element `position`
 * of theirs. */
static void move_stages(const og_cpu_worker *w, const og_cpu_program *program, char *stages,
                        int64_t position)
{
    for (int32_t s = 0; s < program->stage_count; s++) {
        const og_cpu_stage *at = &program->stages[s];
        w->places[at->place] = stages + (size_t)at->number * w->kernel->stage_bytes +
                               (size_t)position * (size_t)at->bytes;
    }
    for (int32_t s = 0; s < program->kept_count; s++) {
        const og_cpu_stage *at = &program->kept[s];
        w->places[at->place] = w->memory + w->kernel->kept_offset +
                               (size_t)at->number * w->kernel->kept_bytes +
                               (size_t)position * (size_t)at->bytes;
    }
}

/* ---- rows and columns ------------------------------------------------------------ */

static og_cpu_piece find_tile(const og_cpu_kernel *k, int64_t tile)
{
    og_cpu_piece piece = {0, 0, 1, 0, 1};
    if (k->layout == OG_CPU_ROWS) {
        piece.outer = tile * k->tile_rows;
        piece.outer_count = og_min(k->tile_rows, k->row_count - piece.outer);
        piece.inner_count = k->n;
    } else {
        piece.base = tile / k->inner_tiles;
        piece.inner = tile % k->inner_tiles * k->tile_rows;
        piece.inner_count = og_min(k->tile_rows, k->inner_count - piece.inner);
        piece.outer_count = k->n;
    }
    return piece;
}

/* What is read after this piece, a chunk or a tile of whole rows. */
static void look_ahead(og_cpu_worker *w, const og_cpu_program *program, const og_cpu_piece *piece)
{
    const og_cpu_kernel *k = w->kernel;
    og_cpu_piece next = *piece;
    w->ahead = NULL;
    if (!k->streams || program->load < 0)
        return;
    next.inner += piece->inner_count;
    if (next.inner >= k->n) {
        next.inner = 0;
        next.outer += piece->outer_count;
    }
    if (next.outer < k->row_count)
        w->ahead = og_cpu_address(w->job, &program->accesses[program->load], &next);
}

static void run_chunk(og_cpu_worker *w, const og_cpu_pass *pass, og_cpu_piece piece, int64_t part)
{
    const og_cpu_kernel *k = w->kernel;
    const og_cpu_program *program = pass->elements[w->job->aliased];
    char *stages = w->memory + pass->stages;
    og_cpu_piece chunk = piece;
    chunk.inner = part * OG_CHUNK;
    chunk.inner_count = og_min(OG_CHUNK, k->n - chunk.inner);
    for (int64_t at = 0; at < chunk.inner_count; at += k->piece_inner) {
        piece.inner = chunk.inner + at;
        piece.inner_count = og_min(k->piece_inner, chunk.inner_count - at);
        move_stages(w, program, stages, at);
        og_cpu_run_program(w, program, &piece);
        og_cpu_reduce_chunk(w, program, piece.inner_count, at == 0);
    }
    look_ahead(w, program, &chunk);
    og_cpu_end_chunk(w, program, &chunk, stages, part);
}

static void run_runs(og_cpu_worker *w, const og_cpu_pass *pass, og_cpu_piece piece, int64_t part)
{
    const og_cpu_kernel *k = w->kernel;
    const og_cpu_program *program = pass->elements[w->job->aliased];
    char *stages = w->memory + pass->stages;
    int64_t begin = part * k->part_length, length = og_min(k->part_length, k->n - begin);
    for (int64_t run = 0; run < length; run += OG_RUN) {
        int64_t steps = og_min(OG_RUN, length - run);
        for (int64_t at = 0; at < steps; at += program->outer_step) {
            piece.outer = begin + run + at;
            piece.outer_count = og_min(program->outer_step, steps - at);
            if (program->window_fold.is) {
                og_cpu_run_window_fold(w, program, &piece);
                continue;
            }
            move_stages(w, program, stages, at * piece.inner_count);
            og_cpu_run_program(w, program, &piece);
            og_cpu_reduce_run(w, program, &piece, at);
        }
        if (program->reduction_count)
            og_cpu_end_run(w, program, stages, part, run, steps, piece.inner_count,
                           run + steps == length);
    }
}

static void run_part(og_cpu_worker *w, int32_t p, int64_t tile, int64_t part)
{
    const og_cpu_pass *pass = &w->kernel->passes[p];
    og_cpu_piece piece = find_tile(w->kernel, tile);
    if (w->kernel->layout == OG_CPU_COLUMNS) {
        run_runs(w, pass, piece, part);
    } else if (w->kernel->many) {
        move_stages(w, pass->elements[w->job->aliased], NULL, 0);
        og_cpu_run_program(w, pass->elements[w->job->aliased], &piece);
        look_ahead(w, pass->elements[w->job->aliased], &piece);
        og_cpu_reduce_rows(w, pass->elements[w->job->aliased], &piece);
    } else {
        run_chunk(w, pass, piece, part);
    }
}

/* Do rows of the tile need what the pass reduces? */
static bool is_needed(const og_cpu_worker *w, int32_t p, int64_t tile)
{
    const og_cpu_pass *pass = &w->kernel->passes[p];
    if (!pass->guard_count)
        return true;
    og_cpu_piece piece = find_tile(w->kernel, tile);
    int64_t rows = w->kernel->layout == OG_CPU_ROWS ? piece.outer_count : piece.inner_count;
    for (int32_t g = 0; g < pass->guard_count; g++)
        for (int64_t row = 0; row < rows; row++) {
            const void *guard = w->places[pass->guards[g].place];
            if (pass->guards[g].is_double ? ((const double *)guard)[row] != 1
                                          : ((const float *)guard)[row] != 1)
                return true;
        }
    return false;
}

/* The row values of a pass; needed: its reductions have been made. */
static void finish_pass(og_cpu_worker *w, int32_t p, int64_t tile, bool needed)
{
    const og_cpu_kernel *k = w->kernel;
    const og_cpu_pass *pass = &k->passes[p];
    og_cpu_piece piece = find_tile(k, tile), rows = {piece.base, 0, 1, 0, 0};
    rows.inner = k->layout == OG_CPU_ROWS ? piece.outer : piece.inner;
    rows.inner_count = k->layout == OG_CPU_ROWS ? piece.outer_count : piece.inner_count;
    if (needed)
        og_cpu_finish_rows(w, pass->elements[w->job->aliased], rows.inner_count);
    if (!k->straight || w->job->aliased)
        og_cpu_run_program(w, pass->rows[w->job->aliased], &rows);
}

/* ---- threads --------------------------------------------------------------------- */

static void set_tile(og_cpu_worker *w, char *tile)
{
    w->tile = tile;
    for (int32_t p = 0; p < w->kernel->place_count; p++)
        if (w->kernel->places[p].kind == OG_CPU_PLACE_TILE)
            w->places[p] = tile + w->kernel->places[p].offset;
}

static char *find_tile_memory(const og_cpu_job *job, int64_t index)
{
    const og_cpu_kernel *k = job->kernel;
    return job->scratch + (size_t)k->threads * k->thread_bytes + (size_t)index * k->tile_bytes;
}

og_cpu_worker og_cpu_start_worker(const og_cpu_job *job, int thread)
{
    const og_cpu_kernel *k = job->kernel;
    og_cpu_worker w = {.job = job, .kernel = k};
    w.memory = job->scratch + (size_t)thread * k->thread_bytes;
    w.tile = find_tile_memory(job, thread);
    w.places = (void **)w.memory;
    if (k->weights)
        *(og_cpu_weights *)(void *)(w.memory + k->weights) = (og_cpu_weights){NULL, 0};
    for (int32_t p = 0; p < k->place_count; p++) {
        const og_cpu_place *place = &k->places[p];
        w.places[p] = place->kind == OG_CPU_PLACE_CONSTANT ? (void *)(uintptr_t)place->pointer
                      : place->kind == OG_CPU_PLACE_TILE   ? w.tile + place->offset
                                                           : w.memory + place->offset;
    }
    return w;
}

/* Thread `thread`'s share of count things. */
static void find_share(int64_t count, int thread, int threads, int64_t *begin, int64_t *end)
{
    int64_t each = count / threads, more = count % threads;
    *begin = each * thread + og_min(thread, more);
    *end = *begin + each + (thread < more);
}

static void run_pointwise_tiles(og_cpu_worker *w, int64_t begin, int64_t end)
{
    const og_cpu_kernel *k = w->kernel;
    const og_cpu_program *program = k->passes[0].elements[w->job->aliased];
    int64_t inner = begin % k->inner_tiles, rest = begin / k->inner_tiles;
    int64_t outer = rest % k->outer_tiles, base = rest / k->outer_tiles;
    for (int64_t tile = begin; tile < end; tile++) {
        og_cpu_piece piece = {base, outer * k->piece_outer, 0, inner * k->piece_inner, 0};
        piece.outer_count = og_min(k->piece_outer, k->outer_count - piece.outer);
        piece.inner_count = og_min(k->piece_inner, k->inner_count - piece.inner);
        og_cpu_run_program(w, program, &piece);
        if (++inner == k->inner_tiles) {
            inner = 0;
            if (++outer == k->outer_tiles) {
                outer = 0;
                base++;
            }
        }
    }
}

static void run_tiles(void *context, int thread, int threads)
{
    const og_cpu_job *job = context;
    og_cpu_worker w = og_cpu_start_worker(job, thread);
    int64_t begin, end;
    find_share(w.kernel->tile_count, thread, threads, &begin, &end);
    if (w.kernel->layout == OG_CPU_POINTWISE) {
        run_pointwise_tiles(&w, begin, end);
        return;
    }
    for (int64_t tile = begin; tile < end; tile++)
        for (int32_t p = 0; p < w.kernel->pass_count; p++) {
            bool needed = is_needed(&w, p, tile);
            for (int64_t part = 0; needed && part < w.kernel->part_count; part++)
                run_part(&w, p, tile, part);
            finish_pass(&w, p, tile, needed);
        }
}

/* One pass of a split kernel: parts of all tiles over threads. */
static void run_parts(void *context, int thread, int threads)
{
    const og_cpu_job *job = context;
    const og_cpu_kernel *k = job->kernel;
    og_cpu_worker w = og_cpu_start_worker(job, thread);
    int64_t begin, end, current = -1;
    find_share(k->tile_count * k->part_count, thread, threads, &begin, &end);
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t tile = unit / k->part_count;
        if (tile != current)
            set_tile(&w, find_tile_memory(job, tile));
        current = tile;
        if (is_needed(&w, job->pass, tile))
            run_part(&w, job->pass, tile, unit % k->part_count);
    }
}

/* Does some tile need the pass? If not, no thread is woken for it. */
static bool is_needed_somewhere(const og_cpu_job *job)
{
    og_cpu_worker w = og_cpu_start_worker(job, 0);
    bool any = false;
    for (int64_t tile = 0; tile < job->kernel->tile_count && !any; tile++) {
        set_tile(&w, find_tile_memory(job, tile));
        any = is_needed(&w, job->pass, tile);
    }
    return any;
}

static void run_split(og_cpu_job *job)
{
    const og_cpu_kernel *k = job->kernel;
    for (job->pass = 0; job->pass < k->pass_count; job->pass++) {
        if (is_needed_somewhere(job))
            og_cpu_parallel(k->threads, run_parts, job);
        og_cpu_worker w = og_cpu_start_worker(job, 0);
        for (int64_t tile = 0; tile < k->tile_count; tile++) {
            set_tile(&w, find_tile_memory(job, tile));
            finish_pass(&w, job->pass, tile, is_needed(&w, job->pass, tile));
        }
    }
}

void og_cpu_run_kernel(og_cpu_job *job)
{
    const og_cpu_kernel *k = job->kernel;
    if (k->product)
        og_cpu_run_product(job);
    if (k->tile_count == 0)
        return;
    if (k->split)
        run_split(job);
    else if (k->threads == 1)
        run_tiles(job, 0, 1);
    else
        og_cpu_parallel(k->threads, run_tiles, job);
}

ogive_status og_cpu_run(const og_plan *plan, const void *state, const void *const *inputs,
                        void *const *outputs, void *workspace, void *stream, bool aliased,
                        ogive_error *error)
{
    const og_cpu_state *s = state;
    (void)stream;
    OG_TRY(og_cpu_check_headers(plan, s, inputs, error));
    og_cpu_float_state saved = og_cpu_float_enter();
    const og_cpu_slabs *slabs = aliased ? NULL : s->slabs; /* the next ones */
    for (int32_t i = 0; i < plan->kernel_count; i++) {
        og_cpu_job job = {.plan = plan,
                          .kernel = &s->compiled[i],
                          .inputs = inputs,
                          .outputs = outputs,
                          .workspace = workspace,
                          .aliased = aliased};
        if (workspace) /* none where none is needed */
            job.scratch = job.workspace + s->scratch_offset;
        if (slabs && slabs->first == i) {
            og_cpu_run_slabs(slabs, &job);
            i += slabs->count - 1;
            slabs = slabs->next;
        } else {
            og_cpu_run_kernel(&job);
        }
    }
    og_cpu_float_leave(saved);
    return OGIVE_OK;
}
