/* SPDX-License-Identifier: MIT
 *
 * cpu_run.h - what the files that run kernels share: a thread's view of a run.
 */
#ifndef OG_CPU_RUN_H
#define OG_CPU_RUN_H

#include "cpu/cpu_prepare.h"

/* One kernel with its pointers. */
typedef struct {
    const og_plan *plan;
    const og_cpu_kernel *kernel;
    const void *const *inputs;
    void *const *outputs;
    char *workspace, *scratch;
    bool aliased;
    int32_t pass; /* split kernels: the pass being run */
} og_cpu_job;

/* Whose weights of columns a thread has. */
typedef struct {
    const og_cpu_window_fold *fold; /* NULL: nobody's */
    int64_t of;                     /* where they begin */
} og_cpu_weights;

typedef struct {
    const og_cpu_job *job;
    const og_cpu_kernel *kernel;
    char *memory; /* the thread's */
    char *tile;   /* the tile's */
    void **places;
    const char *ahead; /* what the next tile or chunk reads, or NULL */
} og_cpu_worker;

typedef struct {
    int64_t base, outer, outer_count, inner, inner_count;
} og_cpu_piece;

/* Where the first element of a piece is. */
char *og_cpu_find_buffer(const og_cpu_job *job, int32_t index);
char *og_cpu_address(const og_cpu_job *job, const og_cpu_access *access, const og_cpu_piece *piece);

/* cpu_window.c: OG_CPU_SEE of a piece. */
void og_cpu_see(const og_cpu_worker *w, const og_cpu_access *access, const og_cpu_step *step,
                const og_cpu_piece *piece);

/* cpu_window_fold.c: the reduction of a run, which the piece is, for all its columns. */
void og_cpu_fold_windows(const og_cpu_worker *w, const og_cpu_program *program,
                         const og_cpu_piece *piece, char *to);
/* cpu_window_lines.c: the same, where the program has window_lines. */
void og_cpu_fold_window_lines(const og_cpu_worker *w, const og_cpu_program *program,
                              const og_cpu_piece *piece, char *to);
/* cpu_window_spots.c: where it has none. */
void og_cpu_fold_window_spots(const og_cpu_worker *w, const og_cpu_program *program,
                              const og_cpu_piece *piece, char *to);

og_cpu_worker og_cpu_start_worker(const og_cpu_job *job, int thread);
/* All elements of a piece; stages and kept terms are where they should be. */
void og_cpu_run_program(const og_cpu_worker *w, const og_cpu_program *program,
                        const og_cpu_piece *piece);

/* cpu_reduce.c: reductions of an element program. Rows and columns hand over what
 * a piece has computed, close each chunk or run, and finish each row. */

/* Several whole rows: everything at once. */
void og_cpu_reduce_rows(og_cpu_worker *w, const og_cpu_program *program, const og_cpu_piece *piece);

/* One row, in pieces of chunks. first: of the chunk. */
void og_cpu_reduce_chunk(og_cpu_worker *w, const og_cpu_program *program, int64_t count,
                         bool first);
/* chunk: all of it, as a piece. stages: the pass's. */
void og_cpu_end_chunk(og_cpu_worker *w, const og_cpu_program *program, const og_cpu_piece *chunk,
                      const char *stages, int64_t part);

/* Columns, in pieces of runs; step counts from the part's beginning. */
void og_cpu_reduce_run(og_cpu_worker *w, const og_cpu_program *program, const og_cpu_piece *piece,
                       int64_t step);
/* Both, of a whole run: og_cpu_run_program() and og_cpu_reduce_run(). */
void og_cpu_run_window_fold(og_cpu_worker *w, const og_cpu_program *program,
                            const og_cpu_piece *piece);
/* The run whose first step is `step` of the part has `steps` steps; last: of the part. */
void og_cpu_end_run(og_cpu_worker *w, const og_cpu_program *program, const char *stages,
                    int64_t part, int64_t step, int64_t steps, int64_t width, bool last);

/* Row values of `rows` rows from what the parts left (many: nothing to do). */
void og_cpu_finish_rows(og_cpu_worker *w, const og_cpu_program *program, int64_t rows);

ogive_status og_cpu_run(const og_plan *plan, const void *state, const void *const *inputs,
                        void *const *outputs, void *workspace, void *stream, bool aliased,
                        ogive_error *error);

#endif
