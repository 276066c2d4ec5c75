/* SPDX-License-Identifier: MIT
 *
 * cpu_reduce.c - the orders of plan.h, from the loops of cpu_kernels.h.
 *
 * Short rows  Several rows a tile: their trees grow level by level over the whole
 *             block, rows side by side.
 * Long rows   A chunk at a time: lanes, then their tree gives the chunk's partial
 *             result; the partial results are a row again.
 * Columns     Accumulators are blocks as wide as the tile, one per level: the run
 *             under way, the run of runs under way, and so on. A finished run is
 *             added to the level above.
 * sumexp      Its companion finds the maximum of each chunk or run; the chunk's
 *             elements are then read again from memory or from their stage.
 * sqdev       Only of long rows. Its companion is the sum: a chunk's lanes have moments
 *             about their first elements, which the chunk's mean, then the row's, settles.
 */
#include "cpu/cpu_run.h"

#include <math.h>
#include <string.h>

enum { AHEAD_BYTES = 4096 }; /* more is fetched by the hardware once it is read */

static const og_cpu_fold *fold_of(const og_cpu_reduction *r)
{
    return &r->loops->fold[r->fold];
}

static char *partial_of(const og_cpu_worker *w, const og_cpu_reduction *r, int64_t index)
{
    return w->tile + r->partials + (size_t)index * r->bytes;
}

/* Has the beginning of the next row (or tile) fetched while this one's trees grow:
 * without, memory is idle meanwhile (sums of rows of 1024: 325 -> 188 ns, Zen 4).
 * Fetching what will be written, or the whole row during exponentials, costs more than
 * it brings. */
static void fetch_ahead(const og_cpu_worker *w)
{
    for (int at = 0; w->ahead && at < AHEAD_BYTES; at += 64)
        __builtin_prefetch(w->ahead + at);
}

/* Where the terms of r over a piece are kept. */
static char *kept_of(const og_cpu_worker *w, const og_cpu_program *program,
                     const og_cpu_reduction *r, const og_cpu_piece *piece)
{
    if (r->kept_access >= 0)
        return og_cpu_address(w->job, &program->accesses[r->kept_access], piece);
    return w->memory + w->kernel->kept_offset + (size_t)r->kept * w->kernel->kept_bytes;
}

static bool is_infinite(const void *x, size_t bytes)
{
    return bytes == 4 ? isinf(*(const float *)x) : isinf(*(const double *)x);
}

/* Kept terms of a row are exp(x - m). The sum's own are exp(x - 0) if m is infinite. */
static void correct_kept(const og_cpu_reduction *r, char *kept, const void *x, const void *m,
                         int64_t n)
{
    if (!is_infinite(m, r->bytes))
        return;
    r->loops->map[OG_OP_sub][1](kept, x, m, NULL, NULL, n);
    r->loops->map[OG_OP_exp][0](kept, kept, NULL, NULL, NULL, n);
}

/* ---- several whole rows -------------------------------------------------------- */

/* out[rows] = the trees over rows of n <= OG_CHUNK elements. */
static void grow_trees(og_cpu_worker *w, const og_cpu_fold *fold, const void *x, int64_t rows,
                       int64_t n, void *out, size_t bytes)
{
    char *halves[2] = {w->memory + w->kernel->fold_offset,
                       w->memory + w->kernel->fold_offset + w->kernel->fold_bytes};
    int64_t half = 1;
    for (int64_t row = 0; row < rows && n > OG_LANES; row++) {
        fold->lanes(halves[0], (const char *)x + (size_t)(row * n) * bytes, n, true);
        fold->tree(halves[0], n, (char *)out + (size_t)row * bytes);
    }
    if (n > OG_LANES)
        return;
    while (2 * half < n)
        half *= 2;
    if (n == 1) {
        memcpy(out, x, (size_t)rows * bytes);
        return;
    }
    for (int i = 0; half >= 1; half /= 2, i ^= 1) {
        void *dst = half == 1 ? out : halves[i];
        fold->pairs(dst, x, rows, n, half);
        x = dst;
        n = half;
    }
}

/* maxima and the result may be the same row values, unless terms are kept. */
static void sum_exponentials(og_cpu_worker *w, const og_cpu_program *program,
                             const og_cpu_reduction *r, const char *maxima,
                             const og_cpu_piece *piece)
{
    int64_t rows = piece->outer_count, n = piece->inner_count;
    char *block = w->memory + w->kernel->fold_offset + 2 * w->kernel->fold_bytes;
    const char *x = w->places[r->source];
    char *terms = r->kept >= 0 ? kept_of(w, program, r, piece) : block;
    r->loops->repeat(block, maxima, rows, n);
    r->loops->exp_below(terms, x, block, rows * n);
    grow_trees(w, fold_of(r), terms, rows, n, w->places[r->result], r->bytes);
    for (int64_t i = 0; i < rows && r->kept >= 0; i++) {
        size_t row = (size_t)(i * n) * r->bytes;
        correct_kept(r, terms + row, x + row, maxima + (size_t)i * r->bytes, n);
    }
}

void og_cpu_reduce_rows(og_cpu_worker *w, const og_cpu_program *program, const og_cpu_piece *piece)
{
    int64_t rows = piece->outer_count, n = piece->inner_count;
    fetch_ahead(w);
    for (int32_t i = 0; i < program->reduction_count; i++) {
        const og_cpu_reduction *r = &program->reductions[i];
        if (!r->is_sumexp && r->result >= 0)
            grow_trees(w, fold_of(r), w->places[r->source], rows, n, w->places[r->result],
                       r->bytes);
    }
    for (int32_t i = 0; i < program->reduction_count; i++) {
        const og_cpu_reduction *r = &program->reductions[i];
        if (!r->is_sumexp)
            continue;
        const og_cpu_reduction *companion = &program->reductions[r->companion];
        void *maxima = w->places[r->result]; /* free until the sums are known */
        if (companion->result >= 0)
            maxima = w->places[companion->result];
        else
            grow_trees(w, fold_of(companion), w->places[companion->source], rows, n, maxima,
                       r->bytes);
        sum_exponentials(w, program, r, maxima, piece);
    }
}

/* ---- one row in chunks ----------------------------------------------------------- */

void og_cpu_reduce_chunk(og_cpu_worker *w, const og_cpu_program *program, int64_t count, bool first)
{
    for (int32_t i = 0; i < program->reduction_count; i++) {
        const og_cpu_reduction *r = &program->reductions[i];
        char *lanes = w->memory + r->accumulators;
        if (r->is_sqdev)
            r->loops->square_lanes(lanes, w->places[r->source], count, first);
        else if (!r->is_sumexp)
            fold_of(r)->lanes(lanes, w->places[r->source], count, first);
    }
}

void og_cpu_end_chunk(og_cpu_worker *w, const og_cpu_program *program, const og_cpu_piece *chunk,
                      const char *stages, int64_t part)
{
    int64_t n = chunk->inner_count;
    fetch_ahead(w);
    for (int32_t i = 0; i < program->reduction_count; i++) {
        const og_cpu_reduction *r = &program->reductions[i];
        if (!r->is_sumexp && !r->is_sqdev)
            fold_of(r)->tree(w->memory + r->accumulators, n, partial_of(w, r, part));
    }
    for (int32_t i = 0; i < program->reduction_count; i++) {
        const og_cpu_reduction *r = &program->reductions[i];
        if (!r->is_sqdev)
            continue;
        char *lanes = w->memory + r->accumulators;
        const char *sum = partial_of(w, &program->reductions[r->companion], part);
        r->loops->square_settle(lanes, sum, n);
        fold_of(r)->tree(lanes, n, partial_of(w, r, part));
        memcpy(partial_of(w, r, w->kernel->part_count + part), sum, r->bytes);
    }
    for (int32_t i = 0; i < program->reduction_count; i++) {
        const og_cpu_reduction *r = &program->reductions[i];
        if (!r->is_sumexp)
            continue;
        const void *m = partial_of(w, &program->reductions[r->companion], part);
        const void *x = r->access >= 0
                            ? og_cpu_address(w->job, &program->accesses[r->access], chunk)
                            : stages + (size_t)r->stage * w->kernel->stage_bytes;
        char *lanes = w->memory + r->accumulators;
        char *kept = r->kept >= 0 ? kept_of(w, program, r, chunk) : NULL;
        r->loops->exp_lanes(lanes, kept, x, m, n);
        fold_of(r)->tree(lanes, n, partial_of(w, r, part));
        if (kept)
            correct_kept(r, kept, x, m, n);
    }
}

/* Reduces count partial results, which are a row again, in place to the first. */
static void reduce_partials(og_cpu_worker *w, const og_cpu_reduction *r, int64_t count)
{
    const og_cpu_fold *fold = fold_of(r);
    char *lanes = w->memory + r->accumulators;
    while (count > 1) {
        int64_t chunks = 0;
        for (int64_t at = 0; at < count; at += OG_CHUNK, chunks++) {
            int64_t n = count - at < OG_CHUNK ? count - at : OG_CHUNK;
            fold->lanes(lanes, partial_of(w, r, at), n, true);
            fold->tree(lanes, n, partial_of(w, r, chunks));
        }
        count = chunks;
    }
}

static void finish_row(og_cpu_worker *w, const og_cpu_program *program)
{
    int64_t parts = w->kernel->part_count;
    for (int32_t i = 0; i < program->reduction_count && parts > 1; i++) {
        const og_cpu_reduction *r = &program->reductions[i];
        if (!r->is_sumexp)
            continue;
        /* The order of a maximum cannot be seen here: +0 and -0 subtract alike. */
        const og_cpu_fold *max = &r->loops->fold[OG_CPU_MAX];
        const void *m = partial_of(w, &program->reductions[r->companion], 0);
        char *lanes = w->memory + r->accumulators;
        double greatest;
        max->lanes(lanes, m, parts, true);
        max->tree(lanes, parts, &greatest);
        r->loops->exp_scale(partial_of(w, r, 0), m, &greatest, true, parts);
    }
    for (int32_t i = 0; i < program->reduction_count; i++) {
        const og_cpu_reduction *r = &program->reductions[i];
        if (r->is_sqdev)
            continue;
        reduce_partials(w, r, parts);
        if (r->result >= 0)
            memcpy(w->places[r->result], partial_of(w, r, 0), r->bytes);
    }
    for (int32_t i = 0; i < program->reduction_count; i++) {
        const og_cpu_reduction *r = &program->reductions[i];
        if (!r->is_sqdev)
            continue;
        r->loops->square_shift(partial_of(w, r, 0), partial_of(w, r, parts),
                               partial_of(w, &program->reductions[r->companion], 0), w->kernel->n);
        reduce_partials(w, r, parts);
        memcpy(w->places[r->result], partial_of(w, r, 0), r->bytes);
    }
}

/* ---- columns --------------------------------------------------------------------- */

static char *level_of(const og_cpu_worker *w, const og_cpu_reduction *r, int64_t level)
{
    return w->memory + r->accumulators + (size_t)(level * w->kernel->tile_rows) * r->bytes;
}

/* Run number `run` of level 0 is complete: adds it to the levels above. last: no
 * run follows, so that those above are complete too. */
static void close_run(const og_cpu_worker *w, const og_cpu_reduction *r, int64_t run,
                      int32_t levels, int64_t width, bool last)
{
    for (int32_t level = 0; level + 1 < levels; level++) {
        fold_of(r)->columns(level_of(w, r, level + 1), level_of(w, r, level), width, 1, width,
                            run % OG_RUN == 0);
        if (!last && (run + 1) % OG_RUN != 0)
            break;
        run /= OG_RUN;
    }
}

/* Result: the accumulator of the highest level. */
static const char *reduce_blocks(const og_cpu_worker *w, const og_cpu_reduction *r,
                                 const char *blocks, int64_t count, int64_t width)
{
    int32_t levels = 1;
    for (int64_t runs = (count + OG_RUN - 1) / OG_RUN; runs > 1;
         runs = (runs + OG_RUN - 1) / OG_RUN)
        levels++;
    for (int64_t at = 0; at < count; at += OG_RUN) {
        int64_t steps = count - at < OG_RUN ? count - at : OG_RUN;
        fold_of(r)->columns(level_of(w, r, 0), blocks + (size_t)(at * width) * r->bytes, width,
                            steps, width, true);
        close_run(w, r, at / OG_RUN, levels, width, at + steps == count);
    }
    return level_of(w, r, levels - 1);
}

void og_cpu_reduce_run(og_cpu_worker *w, const og_cpu_program *program, const og_cpu_piece *piece,
                       int64_t step)
{
    int64_t width = piece->inner_count;
    for (int32_t i = 0; i < program->reduction_count; i++) {
        const og_cpu_reduction *r = &program->reductions[i];
        if (r->is_sumexp)
            continue;
        int64_t stride = width;
        if (r->strided) {
            const og_cpu_axis *outer = &program->accesses[r->access].axes[OG_CPU_OUTER];
            stride = outer->rank ? outer->stride[0] : 0;
        }
        fold_of(r)->columns(level_of(w, r, 0), w->places[r->source], stride, piece->outer_count,
                            width, step % OG_RUN == 0);
    }
}

/* Is a fold over windows one run, so that what it makes is the result? */
static bool is_whole_fold(const og_cpu_kernel *k, const og_cpu_program *program)
{
    return program->window_fold.is && k->n > 0 && k->n <= OG_RUN &&
           program->reductions[0].result >= 0;
}

void og_cpu_run_window_fold(og_cpu_worker *w, const og_cpu_program *program,
                            const og_cpu_piece *piece)
{
    const og_cpu_reduction *r = &program->reductions[0];
    const bool whole = is_whole_fold(w->kernel, program);
    char *to = whole ? w->places[r->result] : level_of(w, r, 0);
    if (w->kernel->straight && !w->job->aliased) {
        const og_cpu_piece rows = {piece->base, 0, 1, piece->inner, piece->inner_count};
        to = og_cpu_address(w->job, w->kernel->straight, &rows);
    }
    og_cpu_fold_windows(w, program, piece, to);
}

void og_cpu_end_run(og_cpu_worker *w, const og_cpu_program *program, const char *stages,
                    int64_t part, int64_t step, int64_t steps, int64_t width, bool last)
{
    const og_cpu_kernel *k = w->kernel;
    int64_t runs = (k->n + OG_RUN - 1) / OG_RUN;
    int64_t run = (part * k->part_length + step) / OG_RUN; /* of the whole row */
    if (is_whole_fold(k, program))
        return;
    for (int32_t i = 0; i < program->reduction_count; i++) {
        const og_cpu_reduction *r = &program->reductions[i];
        if (!r->is_sumexp)
            continue;
        const void *m = level_of(w, &program->reductions[r->companion], 0);
        r->loops->exp_columns(partial_of(w, r, run * width),
                              stages + (size_t)r->stage * k->stage_bytes, m, steps, width);
        memcpy(partial_of(w, r, (runs + run) * width), m, (size_t)width * r->bytes);
    }
    for (int32_t i = 0; i < program->reduction_count; i++) {
        const og_cpu_reduction *r = &program->reductions[i];
        if (r->is_sumexp)
            continue;
        close_run(w, r, step / OG_RUN, k->levels, width, last);
        if (last)
            memcpy(partial_of(w, r, part * width), level_of(w, r, k->levels - 1),
                   (size_t)width * r->bytes);
    }
}

static void finish_columns(og_cpu_worker *w, const og_cpu_program *program, int64_t width)
{
    int64_t runs = (w->kernel->n + OG_RUN - 1) / OG_RUN;
    if (is_whole_fold(w->kernel, program))
        return;
    for (int32_t i = 0; i < program->reduction_count; i++) {
        const og_cpu_reduction *r = &program->reductions[i];
        const char *result = partial_of(w, r, 0);
        int64_t count = r->is_sumexp ? runs : w->kernel->part_count;
        if (r->is_sumexp && runs > 1) {
            char *greatest = level_of(w, r, 0);
            r->loops->fold[OG_CPU_MAX].columns(greatest, partial_of(w, r, runs * width), width,
                                               runs, width, true);
            for (int64_t run = 0; run < runs; run++)
                r->loops->exp_scale(partial_of(w, r, run * width),
                                    partial_of(w, r, (runs + run) * width), greatest, false, width);
        }
        if (count > 1)
            result = reduce_blocks(w, r, result, count, width);
        if (r->result >= 0)
            memcpy(w->places[r->result], result, (size_t)width * r->bytes);
    }
}

/* ---- all ------------------------------------------------------------------------- */

static void finish_empty(og_cpu_worker *w, const og_cpu_program *program, int64_t rows)
{
    for (int32_t i = 0; i < program->reduction_count; i++) {
        const og_cpu_reduction *r = &program->reductions[i];
        double empty = fold_of(r)->empty;
        float single = (float)empty;
        if (r->result >= 0)
            r->loops->splat(w->places[r->result], r->bytes == 4 ? (void *)&single : &empty, rows);
    }
}

void og_cpu_finish_rows(og_cpu_worker *w, const og_cpu_program *program, int64_t rows)
{
    const og_cpu_kernel *k = w->kernel;
    if (k->n == 0)
        finish_empty(w, program, rows);
    else if (k->layout == OG_CPU_COLUMNS)
        finish_columns(w, program, rows);
    else if (!k->many)
        finish_row(w, program);
}
