/* SPDX-License-Identifier: MIT
 *
 * cpu_slabs.h - kernels that follow each other and have the same rows, run some rows at a time,
 * a *slab*, one kernel after the other, so that what they keep for each other stays in a cache:
 * the scores of softmax(q @ k.mT) @ v are never in memory. Threads take slabs, and each has
 * memory for what is kept in one.
 *
 * A slab is a kernel of the plan with fewer rows, made before anything runs. Since no row's bits
 * depend on other rows, none depends on slabs.
 */
#ifndef OG_CPU_SLABS_H
#define OG_CPU_SLABS_H

#include "cpu/cpu_run.h"

enum { OG_CPU_MOST_MOVES = 64 };

/* What an access of a slab's kernels sees: element sum(i[d] * stride[d]) of a buffer, i being where
 * the slab begins. */
typedef struct {
    int32_t buffer; /* of the plan; -1: in the slab's memory */
    int32_t bytes;  /* of an element */
    size_t at;      /* in the slab's memory */
    int64_t stride[OG_MAX_RANK];
} og_cpu_move;

/* Kernels [first, first + count) of a plan. Their rows have dims that all of them are made of, the
 * first slowest; one of these is cut, those before it are taken index by index. */
typedef struct og_cpu_slabs {
    int32_t first, count;
    int32_t rank, cut;
    int64_t extent[OG_MAX_RANK];
    int64_t length, slabs; /* indices of the dim that is cut in a slab; slabs in all */
    og_cpu_move moves[OG_CPU_MOST_MOVES];
    int32_t move_count;
    size_t kept_bytes, thread_bytes; /* kept in a slab; with the scratch of its kernels */
    int32_t threads;
    og_plan plans[2]; /* of a slab, and of the last along the dim where that is shorter */
    og_cpu_state states[2];
    struct og_cpu_slabs *next; /* of later kernels */
} og_cpu_slabs;

/* Finds state->slabs of a plan whose kernels are prepared; most_bytes: of memory for all threads. */
ogive_status og_cpu_find_slabs(const og_plan *plan, size_t most_bytes, og_cpu_state *state,
                               ogive_error *error);
void og_cpu_release_slabs(og_cpu_slabs *slabs);

int64_t og_cpu_count_slab_rows(const og_cpu_slabs *slabs);

/* job: of any of their kernels. Outputs are no inputs. */
void og_cpu_run_slabs(const og_cpu_slabs *slabs, const og_cpu_job *job);

/* cpu_run.c: one kernel, whatever its threads are. */
void og_cpu_run_kernel(og_cpu_job *job);

#endif
