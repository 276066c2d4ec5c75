/* SPDX-License-Identifier: MIT
 *
 * fake_cuda.h - between the files of the library that stands in for libcuda
 * (OGIVE_LIBCUDA=) where there is no GPU:
 *     fake_memory.c   device memory, between guard pages
 *     fake_launch.c   runs a grid: each thread of a block is a fiber
 *     fake_check.c    exact bounds and races, if OGIVE_SHIM_CHECK=1
 *     fake_driver.c   what libcuda exports
 */
#ifndef OG_FAKE_CUDA_H
#define OG_FAKE_CUDA_H

#include "shim_link.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* CUresult */
enum {
    CUDA_OK = 0,
    CUDA_INVALID_VALUE = 1,
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_NOT_INITIALIZED = 3,
    CUDA_NO_DEVICE = 100,
    CUDA_INVALID_DEVICE = 101,
    CUDA_INVALID_IMAGE = 200,
    CUDA_INVALID_CONTEXT = 201,
    CUDA_INVALID_HANDLE = 400,
    CUDA_NOT_FOUND = 500,
    CUDA_ILLEGAL_ADDRESS = 700,
    CUDA_LAUNCH_OUT_OF_RESOURCES = 701,
    CUDA_LAUNCH_FAILED = 719,
    CUDA_CAPTURE_UNSUPPORTED = 900
};

/* ---- memory ----------------------------------------------------------------------- */

/* The launches, counted from 1, that touched a byte last, where modules are checked. */
typedef struct {
    uint32_t write, read;
} fake_stamp;

typedef struct {
    char *data; /* aligned to 64 if bytes is a multiple of it, else to 16 or more */
    size_t bytes;
    char *map; /* pages that may be touched */
    size_t map_bytes;
    int device;
    fake_stamp *stamps; /* of each byte; NULL: too many */
} fake_block;

/* NULL: out of memory (OGIVE_SHIM_MEMORY bytes, 8 GiB if not given). */
void *fake_allocate(size_t bytes, int device);
/* False if data is not the start of a block, or what lies around it was written. */
bool fake_free(void *data);
/* The block whose memory, or guards, address lies in or next to; NULL. *inside: bytes
 * from address on are its own. Any thread. */
const fake_block *fake_find(const volatile void *address, size_t bytes, bool *inside);
/* Is address in the part of memory that blocks come from? */
bool fake_is_device(const volatile void *address);
/* Data at address is in one block. */
bool fake_is_inside(const volatile void *address, size_t bytes);
/* The first block with something written around it, or NULL. */
const fake_block *fake_find_damage(void);
size_t fake_memory_total(void);
size_t fake_memory_used(void);

/* ---- modules and launches ------------------------------------------------------------ */

typedef struct {
    void *library; /* NULL: it is idle */
    char *source;  /* of an idle module, else NULL */
    struct shim_link **link;
    struct shim_shared shared;
    char *image_from, *image_to; /* where its code, constants and variables are */
} fake_module;

typedef struct fake_function {
    fake_module *module;
    char name[128];
    void (*entry)(void **parameters);
    unsigned bounds;     /* most threads of a block, 0: 1024 */
    unsigned cluster;    /* blocks of one, side by side: 1 to 8 */
    size_t shared_limit; /* dynamic, as set by an attribute */
    struct fake_function *next;
} fake_function;

typedef struct {
    struct shim_index grid, block;
    size_t shared_bytes;
    void **parameters;
    bool overlaps; /* it may begin before the one before has ended */
} fake_launch_shape;

/* Runs all blocks, or none of an idle module's; a CUresult. What went wrong is on standard error. */
int fake_launch(fake_function *function, const fake_launch_shape *shape);

/* What tensor cores do: see shim_link.h. */
float fake_add_products(float sum, const float *x, const float *w, int least);
void fake_multiply(float *d, int n, int adds, int least, const float (*left)[16],
                   const float (*right)[16], int lane);
void fake_read_row(const struct shim_factor *from, int row, float *to);

/* ---- checks ---------------------------------------------------------------------------- */

/* The next launch begins. */
void fake_check_launch(bool overlaps);
/* Of the block that runs; all of them are reset by fake_check_block(). */
void fake_check_block(const fake_function *function, size_t shared_bytes, const char *stacks,
                      size_t stack_bytes);
void fake_check_barrier(void);
void fake_check_warp(unsigned warp);
/* NULL, or what is wrong with this access of thread. early: launches before this one may still
 * run. */
const char *fake_check_touch(const volatile void *address, size_t bytes, bool write,
                             unsigned thread, bool early);

#endif
