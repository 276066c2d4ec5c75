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

#include "cuda/emit/cuda_half_tile.h"
#include "cuda/emit/cuda_reduce_shapes.h"
#include "plan/plan.h"

/* What a kernel's shape may depend on. Its results never do, but for products of float32
 * that need not be strict: those depend on arch. */
typedef struct {
    int32_t arch; /* compute capability: 80, 90, 100 */
    int32_t multiprocessors;
    int32_t threads_per_multiprocessor;
    size_t shared_per_block; /* the opt-in limit */
    size_t shared_per_multiprocessor;
    size_t l2_bytes;
    double clock_hz; /* the highest; 0: not known */
} og_cuda_limits;

/* Units that multiply. */
typedef enum { OG_CUDA_ANY_UNITS, OG_CUDA_CORES, OG_CUDA_MMA, OG_CUDA_WGMMA } og_cuda_units;

/* Bodies, one of which may be asked for. */
typedef enum {
    OG_CUDA_BEST_BODY,
    OG_CUDA_VECTORS,       /* a pointwise kernel */
    OG_CUDA_ROWS,          /* rows that registers keep, or nothing reads twice */
    OG_CUDA_ROWS_SPLIT,    /* chunk by chunk */
    OG_CUDA_COLUMNS,       /* of one tile */
    OG_CUDA_COLUMNS_TILES, /* tile by tile, */
    OG_CUDA_COLUMNS_SPLIT, /* each by a block of its own */
    OG_CUDA_TILES,         /* a product, in the CPU's order on CUDA cores */
    OG_CUDA_MMA_PAIRS,     /* on tensor cores, of float32 as pairs of float16 */
    OG_CUDA_MMA_HALVES,    /* of halves */
    OG_CUDA_BODY_COUNT
} og_cuda_body;

/* What is asked of emission. Zeroes: nothing. */
typedef struct {
    bool strict;         /* products in plan.h's order, whatever it costs */
    bool tf32;           /* products of float32 on tensor cores: of factors rounded to TF32 */
    og_cuda_units units; /* no others multiply, but CUDA cores what these cannot */
    og_cuda_half_tile
        tile; /* of products of halves on Hopper that can have it; groups 0: the best */
    /* NULL, or the source is to serve every size: who compiles it changes what it defines by
     * `#define` as other sizes want it, and who runs it fills in the arguments. numbers[input]: its
     * place among a.numbers, or -1 if it is a tensor; number_count: of all. */
    const int32_t *numbers;
    int32_t number_count;
    /* Not OG_CUDA_BEST_BODY: the source has this body, and serves every layout and dtype as well
     * (any_operands.cuh), where tensors have one dtype. Who compiles it defines its numbers. */
    og_cuda_body body;
} og_cuda_wishes;

enum { OG_CUDA_ARGUMENT_BYTES = 4096 }; /* the most a parameter may take before CUDA 12.1 */
enum { OG_CUDA_BLOCK_BYTES = 1024 };    /* shared memory that the driver takes of each block */
enum { OG_CUDA_SCRATCH = -1 };

/* An address that a run writes into a launch's argument. */
typedef struct {
    size_t at;      /* byte in the argument */
    int32_t buffer; /* of the plan; OG_CUDA_SCRATCH: the kernel's scratch */
    size_t offset;  /* bytes into it */
} og_cuda_pointer;

/* A tensor map (CUtensorMap) that a run makes in a launch's argument: matrices whose rows
 * are pitch_bytes apart, fetched in boxes, swizzled by 128 bytes or plain; what lies beyond a
 * matrix is 0. Where the address is no multiple of 16 there can be none: it is made of a copy in
 * the scratch, if the matrices may be copied; else it stays zeros, and the kernel has to know by
 * itself, or is not launched. */
typedef struct {
    size_t at;      /* byte in the argument, a multiple of OG_CUDA_MAP_ALIGNMENT */
    int32_t buffer; /* as in og_cuda_pointer */
    size_t offset;
    og_dtype dtype;                  /* copies are of bits: only its size counts */
    int64_t columns, rows, depth;    /* of a matrix, and how many: below 2^32 */
    int64_t pitch_bytes, slab_bytes; /* of a row, of a matrix: multiples of 16 below 2^40 */
    int32_t box_columns, box_rows, box_depth;
    int32_t rows_between; /* one row of a box and the next: up to 7; so of matrices, */
    int32_t depth_between, more_between; /* and of the first dim beyond */
    int32_t more;                        /* dims beyond these three, 0 or 2 */
    int64_t more_extent[2], more_bytes[2];
    int32_t more_box, last_box; /* of a box; of the last 0: 1 */
    bool is_plain;
    int32_t swizzle_bytes; /* 64 or 32; 0: 128 */
    bool fetches_256;      /* bytes that L2 reads from memory at a time; else 128 */
    bool may_copy;
    size_t copy_offset;
    int64_t copy_pitch_bytes; /* matrices follow each other */
} og_cuda_map;

enum { OG_CUDA_MAP_BYTES = 128, OG_CUDA_MAP_ALIGNMENT = 64 };

/* Is a launch left out? By whether all its maps can be made, or one is made of a copy. */
typedef enum {
    OG_CUDA_ALWAYS,
    OG_CUDA_IF_MAPPED,
    OG_CUDA_IF_UNMAPPED,
    OG_CUDA_IF_COPIED
} og_cuda_when;

typedef struct {
    const char *entry; /* extern "C" name in the source */
    uint32_t grid[3];
    uint32_t block[3];
    size_t shared_bytes; /* dynamic */
    size_t static_bytes; /* of shared memory too, where a block leaves little of it */
    int32_t cluster;     /* blocks of a cluster; 0: there are none */
    unsigned char *argument;
    size_t argument_bytes;
    og_cuda_pointer *pointers;
    int32_t pointer_count;
    const og_cuda_map *maps;
    int32_t map_count;
    og_cuda_when when;
    bool overlaps; /* begins while the launch before it runs, and waits itself where it must */
} og_cuda_launch;

/* What a source that serves every size leaves to be chosen by: see cuda_reduce_shapes.h. Registers
 * and bytes are those of float32. */
typedef struct {
    bool is_costly;        /* a pass computes costly functions */
    int32_t wanted_blocks; /* OG_BLOCKS of columns.cuh */
    og_reduced_facts reduced;
} og_cuda_facts;

typedef struct {
    const char *source; /* with includes (base/embedded.h); the same for all shapes of its kind */
    const char *body;   /* "contiguous", "rows, a warp a row", ...: for explain */
    const char *unused; /* the last better choice that refused and tells why, or NULL */
    const char *note;   /* ... and why */
    int32_t tensor_products;  /* of tensor cores, for one of the formula; 0: CUDA cores */
    int64_t units;            /* of tensor cores' float32: each sum is within so many * 2^-24 of
                                 sum |x||w| (docs/accuracy.md), or in plan.h's order */
    og_cuda_launch *launches; /* in order; none for an empty kernel */
    int32_t launch_count;
    size_t scratch_bytes; /* a multiple of 64; undefined at entry */
    og_cuda_facts facts;  /* of a body that was asked for */
} og_cuda_work;

/* Does hopper_windows.cuh take the kernel, which has all phases of a transposed stride? No other
 * kernel does. */
bool og_cuda_takes_phases(const og_kernel *kernel, const og_cuda_limits *limits,
                          const og_cuda_wishes *wishes);

/* Not strict: does hopper_halves.cuh take the kernel's two products at once? The bits are those
 * of one after the other. */
bool og_cuda_takes_two(const og_kernel *kernel, const og_cuda_limits *limits,
                       const og_cuda_wishes *wishes);

/* Emits one kernel of plan. Everything in *out lives in arena. */
ogive_status og_cuda_emit(const og_plan *plan, int32_t kernel, const og_cuda_limits *limits,
                          const og_cuda_wishes *wishes, og_arena *arena, og_cuda_work *out,
                          ogive_error *error);

#endif
