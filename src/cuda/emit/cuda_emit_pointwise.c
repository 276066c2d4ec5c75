/* SPDX-License-Identifier: MIT
 *
 * cuda_emit_pointwise.c - kernels that reduce nothing: a vector a thread, along the last
 * dim (pointwise.cuh), or tile by tile where a load lies across that
 * (transpose.cuh).
 */
#include "cuda/emit/cuda_emit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STRIDED_THREADS = 256,
    CONTIGUOUS_THREADS = 128,
    BIG_ROUNDS = 16, /* elements for each thread that a GPU holds: fewer are no batches */
    TRANSPOSE_THREADS = 256,
    TRANSPOSE_VECTOR = 4,
    TRANSPOSE_LEAST = 16,        /* extents for which a tile pays */
    TRANSPOSE_BYTES = 40 * 1024, /* of shared memory */
    SECTOR_BYTES = 32            /* what an access that lies across takes of memory */
};

/* The widest vector whose narrowest contiguous operand takes 16 bytes, but of 8 elements at most. */
static int32_t widest_vector(const og_cuda_emitter *e)
{
    size_t narrowest = 8;
    bool found = false;
    for (int32_t i = 0; i < e->kernel->access_count; i++) {
        const og_access *access = &e->kernel->accesses[i];
        if (og_cuda_motion_of(e, access) == OG_CUDA_STILL)
            continue;
        size_t bytes = og_dtype_bytes(access->dtype);
        narrowest = !found || bytes < narrowest ? bytes : narrowest;
        found = true;
    }
    return (int32_t)(16 / (narrowest < 2 ? 2 : narrowest));
}

/* OG_LEAD of lead.cuh. */
static void add_lead(og_cuda_emitter *e)
{
    int32_t lead = -1;
    for (int32_t i = 0; e->vector_dim >= 0 && i < e->kernel->access_count; i++) {
        bool stored = og_kernel_stores(e->kernel, i);
        if (og_cuda_motion_of(e, &e->kernel->accesses[i]) == OG_CUDA_UNIT &&
            (lead < 0 || (stored && !og_kernel_stores(e->kernel, lead))))
            lead = i;
    }
    og_cuda_add_numbers(e, (const og_cuda_number[]){{"OG_LEAD", lead}, {0}});
}

bool og_cuda_is_contiguous(const og_cuda_emitter *e)
{
    for (int32_t i = 0; i < e->kernel->access_count; i++)
        if (og_cuda_motion_of(e, &e->kernel->accesses[i]) >= OG_CUDA_STRIDED)
            return false;
    return e->kernel->space.rank <= 1;
}

/* OG_BATCH. H200, ms, with 1, 2 and 4: 4096 x 393216 float32, -x 3.017, 3.037 and 3.155, sigmoid
 * 3.063, 3.027 and 3.034 (copies took 3.02); 4096 x 196608, tanh 1.70, 1.53 and 1.51, float16
 * x * sigmoid(x) + y 1.25, 1.18 and 1.11. */
static int32_t choose_batch(const og_cuda_emitter *e, bool contiguous, bool costly, int64_t n)
{
    const og_cuda_limits *limits = e->limits;
    int64_t threads = (int64_t)limits->multiprocessors * limits->threads_per_multiprocessor;
    if (!contiguous || !costly || n / BIG_ROUNDS < threads)
        return 1;
    return e->vector < 8 ? 2 : 4;
}

/* Elements of the last dim. */
static int64_t count_last(const og_space *space)
{
    return space->rank ? space->extent[space->rank - 1] : 1;
}

/* A row that starts anywhere in a vector touches so many. */
static int64_t count_vectors(const og_cuda_emitter *e)
{
    return og_divide_up(count_last(&e->kernel->space) - 1, e->vector) + 1;
}

void og_cuda_begin_vectors(og_cuda_emitter *e)
{
    const og_space *space = &e->kernel->space;
    e->vector = widest_vector(e);
    int64_t rows = og_cuda_count(space, 0, space->rank - 1), per_row = count_vectors(e);

    og_cuda_add_operands(e);
    og_cuda_add_index(e, "n", count_last(space));
    og_cuda_add_index(e, "vectors", og_times(rows, per_row));
    og_cuda_add_divisor(e, "per_row", space->rank > 1 ? per_row : 1);
    og_cuda_add_seek_between(e, "og_seek_outer", OG_CUDA_FIRST, OG_CUDA_LAST_KEPT);
    og_cuda_add_seek_between(e, "og_step_inner", OG_CUDA_LAST_KEPT, OG_CUDA_END);
    add_lead(e);
    og_cuda_add_row(e);
    og_cuda_add_pass(e, 0);
}

ogive_status og_cuda_emit_pointwise(og_cuda_emitter *e)
{
    const og_space *space = &e->kernel->space;
    og_cuda_begin_vectors(e);
    int64_t n = count_last(space), rows = og_cuda_count(space, 0, space->rank - 1);
    bool contiguous = og_cuda_is_contiguous(e),
         costly = og_cuda_is_costly_pass(&e->kernel->passes[0]);
    e->threads = contiguous ? CONTIGUOUS_THREADS : STRIDED_THREADS;
    int32_t batch = choose_batch(e, contiguous, costly, n);
    int64_t per_block = (int64_t)e->threads * batch;         /* vectors */
    og_cuda_add_index(e, "full", n / e->vector / per_block); /* blocks, of what is aligned */
    og_cuda_add_numbers(
        e, (const og_cuda_number[]){{"OG_OUTER", space->rank > 1}, {"OG_BATCH", batch}, {0}});
    e->out->facts.is_costly = costly;
    og_cuda_include(&e->body, "pointwise");
    e->out->body = contiguous ? "contiguous" : "strided";
    OG_TRY(og_cuda_make_launches(e, 1));
    return og_cuda_add_launch(e, "og_pointwise", -1,
                              og_divide_up(og_times(rows, count_vectors(e)), per_block),
                              e->threads);
}

/* ---- transposing ------------------------------------------------------------------------ */

/* Does a load lie across the last dim, contiguous along dim? */
static bool is_turned(const og_cuda_emitter *e, int32_t access, int32_t dim)
{
    const og_access *at = &e->kernel->accesses[access];
    int64_t across = llabs(at->stride[e->kernel->space.rank - 1]);
    return !og_kernel_stores(e->kernel, access) && at->stride[dim] == 1 &&
           og_times(across, (int64_t)og_dtype_bytes(at->dtype)) >= SECTOR_BYTES;
}

/* The dim that the loads to be turned are contiguous along, or -1. */
static int32_t find_turned(const og_cuda_emitter *e)
{
    const og_space *space = &e->kernel->space;
    int32_t last = space->rank - 1;
    for (int32_t a = 0; last > 0 && a < e->kernel->access_count; a++)
        for (int32_t d = 0; d < last; d++)
            if (is_turned(e, a, d) && space->extent[d] >= TRANSPOSE_LEAST &&
                space->extent[last] >= TRANSPOSE_LEAST)
                return d;
    return -1;
}

/* Bytes of an element of all loads to be turned. */
static int64_t count_turned(const og_cuda_emitter *e, int32_t turned)
{
    int64_t bytes = 0;
    for (int32_t a = 0; a < e->kernel->access_count; a++)
        if (is_turned(e, a, turned))
            bytes += (int64_t)og_dtype_bytes(e->kernel->accesses[a].dtype);
    return bytes;
}

ogive_status og_cuda_refuse_transpose(og_cuda_emitter *e, const char **why)
{
    int32_t turned = find_turned(e);
    *why = turned >= 0 && count_turned(e, turned) * 32 * 33 <= TRANSPOSE_BYTES ? NULL : "";
    return OGIVE_OK;
}

ogive_status og_cuda_emit_transpose(og_cuda_emitter *e)
{
    const og_space *space = &e->kernel->space;
    int32_t last = space->rank - 1, outer[OG_MAX_RANK], count = 0, tile = 64;
    int32_t turned = find_turned(e);
    int64_t blocks = 1;
    e->vector = widest_vector(e) < TRANSPOSE_VECTOR ? widest_vector(e) : TRANSPOSE_VECTOR;
    e->threads = TRANSPOSE_THREADS;
    for (int32_t d = 0; d < last; d++)
        if (d != turned) {
            outer[count++] = d;
            blocks = og_times(blocks, space->extent[d]);
        }
    for (int32_t a = 0; a < e->kernel->access_count; a++)
        e->is_kept[a] = is_turned(e, a, turned);
    if (count_turned(e, turned) * tile * (tile + 1) > TRANSPOSE_BYTES)
        tile = 32;
    int64_t inner_tiles = og_divide_up(space->extent[last], tile);
    int64_t turned_tiles = og_divide_up(space->extent[turned], tile);
    og_cuda_add_operands(e);
    og_cuda_add_index(e, "inner", space->extent[last]);
    og_cuda_add_index(e, "turned", space->extent[turned]);
    og_cuda_add_divisor(e, "inner_tiles", inner_tiles);
    og_cuda_add_divisor(e, "turned_tiles", turned_tiles);
    og_cuda_add_seek(e, "og_seek_outer", outer, count);
    og_cuda_add_seek(e, "og_step_inner", &last, 1);
    og_cuda_add_seek(e, "og_step_turned", &turned, 1);
    og_cuda_add_row(e);
    og_cuda_add_pass(e, 0);
    og_text_add(&e->numbers, "enum { OG_TILE = %d };\n", (int)tile);
    og_cuda_include(&e->body, "transpose");
    e->out->body = "transposing";
    OG_TRY(og_cuda_make_launches(e, 1));
    blocks = og_times(blocks, og_times(inner_tiles, turned_tiles));
    return og_cuda_add_launch(e, "og_transpose", -1, blocks, e->threads);
}
