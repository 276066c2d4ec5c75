/* SPDX-License-Identifier: MIT
 *
 * backend.h - how a device is driven. prepare does everything that can be done
 * before pointers are known (compiling and loading too); run only runs.
 */
#ifndef OG_BACKEND_H
#define OG_BACKEND_H

#include "plan/plan.h"

typedef struct {
    const char *name;
    /* Makes *state for plan, which outlives it, and says how many bytes of
     * workspace a run needs in all: plan->temporary_bytes and its own scratch.
     * options is NULL or valid. On failure *state is NULL. */
    ogive_status (*prepare)(const og_plan *plan, const ogive_options *options, void **state,
                            size_t *workspace_bytes, ogive_error *error);
    void (*release)(void *state);
    /* Pointers are checked (not NULL where they are used, overlaps legal), the
     * workspace is aligned to 64. aliased: some output is also an input. Allocates
     * nothing; any number of threads may run one state at once. */
    ogive_status (*run)(const og_plan *plan, const void *state, const void *const *inputs,
                        void *const *outputs, void *workspace, void *stream, bool aliased,
                        ogive_error *error);
    /* Threads (or blocks) that kernel index uses; a line of text about how it runs. */
    int32_t (*threads)(const og_plan *plan, const void *state, int32_t kernel);
    void (*explain)(const og_plan *plan, const void *state, int32_t kernel, og_text *text);
} og_backend;

extern const og_backend og_cpu_backend;

#endif
