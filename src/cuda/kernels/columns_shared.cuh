/* SPDX-License-Identifier: MIT
 *
 * columns_shared.cuh - columns of one tile that several passes read stay in shared memory from
 * pass to pass (shelves.cuh): a thread has its own runs there. Blocks share a multiprocessor, so
 * that some copy while others compute and store.
 *
 * PARAMETERS are those of columns.cuh and shelves.cuh
 */
#include "cuda/kernels/columns.cuh"
#include "cuda/kernels/shelves.cuh"

/* The runs of a thread, one after the other: every OG_Y-th of its columns. */
struct og_held_runs {
    og_shelf *shelves;

    /* The shelf of an element. */
    OG_FN og_shelf *find(const og_held_runs &held, og_index element)
    {
        return held.shelves + element / (OG_RUN * OG_Y) * OG_RUN + element % OG_RUN;
    }

    OG_FN void take(const og_held_runs &held, og_index element, og_kept &kept)
    {
        og_shelf::take(*find(held, element), kept);
    }
};

/* Nobody but the thread itself looks at what it copies, so it alone waits for it. */
OG_FN og_held_runs og_hold_runs(const og_args &a, const og_column &c, void *shared)
{
    const bool whole = og_is_full(c.span) && og_kept::is_aligned(a, c.at);
    og_held_runs held = {(og_shelf *)shared};
#pragma unroll 1
    for (og_index from = c.y * OG_RUN; from < a.n; from += OG_Y * OG_RUN) {
        const int count = og_count_of(a.n, from, OG_RUN);
        og_shelf *run = og_held_runs::find(held, from);
#pragma unroll 4
        for (int e = 0; e < count; e++) {
            og_offsets at = c.at;
            og_step_row(a, from + e, at);
            og_shelf::copy(a, at, whole, c.span, run[e]);
        }
    }
    og_end_batch();
    og_wait_for_batches(0);
    return held;
}
