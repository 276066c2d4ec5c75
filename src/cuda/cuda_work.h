/* SPDX-License-Identifier: MIT
 *
 * cuda_work.h - what emission (cuda_emit*.c) hands to the host side (cuda_backend.c):
 * the source of one plan kernel and its launches. Emission knows no driver and runs
 * without a GPU; the host side knows nothing of kernels' insides.
 *
 * Every entry point takes one parameter, a struct by value. Its bytes are made while
 * planning; a run copies them, fills in the pointers and launches. Shapes, strides
 * and constants are in that struct, so two plans that differ in these alone have the
 * same source, and the compiled module is shared.
 */
#ifndef OG_CUDA_WORK_H
#define OG_CUDA_WORK_H

#include "plan/plan.h"

/* What a kernel's shape may depend on; its results never do. */
typedef struct {
    int32_t arch; /* compute capability: 80, 90, 100 */
    int32_t multiprocessors;
    int32_t threads_per_multiprocessor;
    size_t shared_per_block; /* the opt-in limit */
    size_t shared_per_multiprocessor;
    size_t l2_bytes;
} og_cuda_limits;

enum { OG_CUDA_ARGUMENT_BYTES = 4096 }; /* the most a parameter may take before CUDA 12.1 */
enum { OG_CUDA_SCRATCH = -1 };

/* An address that a run writes into a launch's argument. */
typedef struct {
    size_t at;      /* byte in the argument */
    int32_t buffer; /* of the plan; OG_CUDA_SCRATCH: the kernel's scratch */
    size_t offset;  /* bytes into it */
} og_cuda_pointer;

typedef struct {
    const char *entry; /* extern "C" name in the source */
    uint32_t grid[3];
    uint32_t block[3];
    size_t shared_bytes; /* dynamic */
    unsigned char *argument;
    size_t argument_bytes;
    og_cuda_pointer *pointers;
    int32_t pointer_count;
} og_cuda_launch;

typedef struct {
    const char *source;   /* complete, needs no header; the same for all shapes of its kind */
    const char *body;     /* "contiguous", "rows, a warp a row", ...: for explain */
    og_cuda_launch *launches; /* in order; none for an empty kernel */
    int32_t launch_count;
    size_t scratch_bytes; /* a multiple of 64; undefined at entry */
} og_cuda_work;

/* Emits one kernel of plan. Everything in *out lives in arena. */
ogive_status og_cuda_emit(const og_plan *plan, int32_t kernel, const og_cuda_limits *limits,
                          og_arena *arena, og_cuda_work *out, ogive_error *error);

#endif
