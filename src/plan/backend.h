/* SPDX-License-Identifier: MIT
 *
 * backend.h - how a device is driven. prepare does everything that can be done
 * before pointers are known (compiling and loading too); run only runs.
 */
#ifndef OG_BACKEND_H
#define OG_BACKEND_H

#include "plan/plan.h"

/* Where a plan runs, and what messages call its tensors. Lives as long as the plan. */
typedef struct {
    DLDevice device;
    const char *const *input_names;
} og_placement;

typedef struct {
    const char *name;
    bool has_streams; /* else a run's stream must be NULL */
    /* Does the device take both products of a kernel, which OG_SHARE_ALIKE made, at once? If not,
     * the plan is made with OG_SHARE_NONE. NULL, or strict: any two may share a kernel. */
    bool (*takes_two)(const og_kernel *kernel, const og_placement *placement,
                      const ogive_options *options);
    /* Does the device take a kernel with all phases of a transposed stride (og_plan_rules)? If not,
     * the plan is made with a kernel for each. NULL: never. */
    bool (*takes_phases)(const og_kernel *kernel, const og_placement *placement,
                         const ogive_options *options);
    /* Makes *state for plan, which outlives it, and says how many bytes of
     * workspace a run needs in all: plan->temporary_bytes and its own scratch.
     * options is NULL or valid. On failure *state is NULL. */
    ogive_status (*prepare)(const og_plan *plan, const og_placement *placement,
                            const ogive_options *options, void **state, size_t *workspace_bytes,
                            ogive_error *error);
    void (*release)(void *state);
    /* Pointers are checked (not NULL where they are used, aligned to their elements,
     * overlaps legal), the workspace is aligned to 64. aliased: some output is also an
     * input. Allocates nothing; any number of threads may run one state at once. */
    ogive_status (*run)(const og_plan *plan, const void *state, const void *const *inputs,
                        void *const *outputs, void *workspace, void *stream, bool aliased,
                        ogive_error *error);
    /* Seconds that the matrix products of kernel index take at least; 0: none, or not known. NULL:
     * never known. */
    double (*multiply_seconds)(const og_plan *plan, const void *state, int32_t kernel);
    /* Threads that kernel index uses; a line of text about how it runs. */
    int32_t (*threads)(const og_plan *plan, const void *state, int32_t kernel);
    void (*explain)(const og_plan *plan, const void *state, int32_t kernel, og_text *text);

    /* Inputs that are packed beforehand; NULL: none can be, options->packed is 0. Bytes of
     * input once packed, 0 if it is not; packs it, packed being aligned to 64. */
    size_t (*packed_bytes)(const og_plan *plan, const void *state, int32_t input);
    void (*pack)(const og_plan *plan, const void *state, int32_t input, const void *data,
                 void *packed);

    /* The rest is NULL for a backend whose memory is the process's own and whose code
     * is not made at run time. */

    /* Workspace for one run on stream, and back after it, while it may still be running:
     * returns status, or what failed itself. */
    ogive_status (*borrow)(const void *state, size_t bytes, void *stream, void **workspace,
                           ogive_error *error);
    ogive_status (*give_back)(const void *state, void *workspace, void *stream, ogive_status status,
                              ogive_error *error);
    /* Adds the source of kernel index to text, if it has one. */
    void (*source)(const og_plan *plan, const void *state, int32_t kernel, og_text *text);
    /* Compiles all kernels, for processes to come; *compiled: those that had not been. */
    ogive_status (*warm)(const og_plan *plan, const void *state, ogive_warm_info *info,
                         ogive_error *error);
} og_backend;

extern const og_backend og_cpu_backend;
extern const og_backend og_cuda_backend;

/* What is asked of a kind of device besides running plans, by the device's number.
 * bytes and count are not 0. */
typedef struct {
    /* Memory: see ogive_device_allocate() and so on. */
    ogive_status (*allocate)(int32_t device, size_t bytes, void **out, ogive_error *error);
    ogive_status (*free)(int32_t device, void *data, ogive_error *error);
    ogive_status (*copy)(int32_t device, void *to, const void *from, size_t bytes,
                         ogive_error *error);
    ogive_status (*synchronize)(int32_t device, void *stream, ogive_error *error);

    /* For ogive_function_hash(): x[i] = the float with the bits first + i * step, i below
     * count; *sum = the hash of src/math/accuracy.def over x[i] and y[i], whose partial sums take
     * OG_SWEEP_PARTIALS uint64_t. All memory is the device's. */
    ogive_status (*fill)(int32_t device, float *x, uint32_t first, uint32_t step, uint32_t count,
                         ogive_error *error);
    ogive_status (*hash)(int32_t device, const float *y, uint32_t first, uint32_t step,
                         uint32_t count, uint64_t *partials, uint64_t *sum, ogive_error *error);
} og_device_services;

enum { OG_SWEEP_PARTIALS = 65536 };

extern const og_device_services og_cuda_services;

#endif
