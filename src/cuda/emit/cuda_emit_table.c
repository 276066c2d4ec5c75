/* SPDX-License-Identifier: MIT
 *
 * cuda_emit_table.c - which contiguous kernels look their results up (pointwise_table.cuh), and
 * what those have besides the arguments and the pass of any other (cuda_emit_pointwise.c).
 */
#include "cuda/emit/cuda_emit.h"

enum {
    CODES = 65536,
    TABLE_BYTES = 2 * CODES,
    TABLE_THREADS = 1024,
    FILL_THREADS = 128, /* OG_FILL_THREADS */
    /* Elements of a multiprocessor for each code of its table. H200, sigmoid of float16, without
     * and with a table: 2^24 elements 27 and 31 us, 2^25 46 and 46, 2^26 86 and 78; gelu of 2^24
     * 48 and 31. */
    LEAST_PER_CODE = 3,
    FLIGHT = 4 /* H200, sigmoid of 4096 x 196608 float16: 782 us, with 5 791 */
};

bool og_cuda_table_pays(int64_t n, const og_cuda_limits *limits)
{
    return limits->shared_per_block >= TABLE_BYTES &&
           n / LEAST_PER_CODE / CODES >= limits->multiprocessors;
}

static bool is_half(og_dtype dtype)
{
    return dtype == OG_FLOAT16 || dtype == OG_BFLOAT16;
}

/* The access that is read, or written, at each element; -1: there is none, or several. */
static int32_t find_moving(const og_cuda_emitter *e, bool stored)
{
    int32_t found = -1, count = 0;
    for (int32_t i = 0; i < e->kernel->access_count; i++)
        if (og_kernel_stores(e->kernel, i) == stored &&
            og_cuda_motion_of(e, &e->kernel->accesses[i]) != OG_CUDA_STILL) {
            found = i;
            count++;
        }
    return count == 1 && is_half(e->kernel->accesses[found].dtype) ? found : -1;
}

ogive_status og_cuda_refuse_table(og_cuda_emitter *e, const char **why)
{
    const og_space *space = &e->kernel->space;
    bool takes = space->rank == 1 && og_cuda_is_contiguous(e) &&
                 og_cuda_is_costly_pass(&e->kernel->passes[0]) && find_moving(e, false) >= 0 &&
                 find_moving(e, true) >= 0 && og_cuda_table_pays(space->extent[0], e->limits);
    *why = takes ? NULL : "";
    return OGIVE_OK;
}

ogive_status og_cuda_emit_table(og_cuda_emitter *e)
{
    og_cuda_begin_vectors(e);
    int64_t n = e->kernel->space.extent[0], blocks = e->limits->multiprocessors;
    int64_t tile = TABLE_THREADS * FLIGHT; /* vectors */
    e->threads = TABLE_THREADS;
    og_cuda_add_region(e, "og_half", "table", TABLE_BYTES);
    og_cuda_add_region(e, "uint32_t", "next", sizeof(uint32_t));
    og_cuda_add_index(e, "whole", n / (tile * e->vector) * tile);
    og_text_add(&e->numbers, "enum { OG_FLIGHT = %d, OG_FROM = %d, OG_TO = %d };\n", FLIGHT,
                (int)find_moving(e, false), (int)find_moving(e, true));
    og_cuda_include(&e->body, "pointwise_table");
    e->out->body = "contiguous, by table";
    OG_TRY(og_cuda_make_launches(e, 2));
    OG_TRY(og_cuda_add_launch(e, "og_fill_table", -1, CODES / (FILL_THREADS * e->vector),
                              FILL_THREADS));
    OG_TRY(og_cuda_add_launch(e, "og_table", -1, blocks, TABLE_THREADS));
    e->out->launches[1].shared_bytes = TABLE_BYTES;
    return OGIVE_OK;
}
