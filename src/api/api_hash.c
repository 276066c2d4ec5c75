/* SPDX-License-Identifier: MIT
 *
 * api_hash.c - ogive_function_hash(): a function over all float32 inputs on a device, as
 * one number, which src/math/accuracy.def documents.
 */
#include "api/api.h"

#include <stdio.h>
#include <string.h>

enum { MOST_ELEMENTS = 1 << 24 }; /* of a run */

typedef struct {
    DLDevice device;
    const og_device_services *services; /* NULL: the CPU */
    uint32_t block;                     /* elements of a run */
    ogive_formula *formula;
    ogive_plan *plan;
    void *x, *y, *workspace, *partials;
} sweep;

/* See src/math/accuracy.def. */
static uint64_t mix(uint32_t input, uint32_t result)
{
    if ((result & 0x7fffffff) > 0x7f800000)
        result = 0x7fffffff;
    uint64_t v = (uint64_t)input << 32 | result;
    v *= 0x9e3779b97f4a7c15u;
    v ^= v >> 32;
    v *= 0xd6e8feb86659fd93u;
    return v ^ v >> 29;
}

static ogive_status fill(const sweep *s, uint32_t first, uint32_t step, uint32_t count,
                         ogive_error *error)
{
    if (s->services)
        return s->services->fill(s->device.device_id, s->x, first, step, count, error);
    uint32_t *x = s->x;
    for (uint32_t i = 0; i < count; i++)
        x[i] = first + i * step;
    return OGIVE_OK;
}

static ogive_status hash(const sweep *s, uint32_t first, uint32_t step, uint32_t count,
                         uint64_t *sum, ogive_error *error)
{
    if (s->services)
        return s->services->hash(s->device.device_id, s->y, first, step, count, s->partials, sum,
                                 error);
    const uint32_t *y = s->y;
    *sum = 0;
    for (uint32_t i = 0; i < count; i++)
        *sum += mix(first + i * step, y[i]);
    return OGIVE_OK;
}

static ogive_status start_sweep(sweep *s, const char *name, ogive_error *error)
{
    char text[64];
    int64_t shape[] = {s->block};
    size_t bytes = s->block * sizeof(float);
    DLTensor tensor = {
        .device = s->device, .ndim = 1, .dtype = og_dtype_dlpack(OG_FLOAT32), .shape = shape};
    const DLTensor *inputs[] = {&tensor};
    snprintf(text, sizeof text, "%s(x)", name);
    OG_TRY(ogive_formula_create(text, OGIVE_TEXT, &s->formula, error));
    OG_TRY(ogive_plan_create(s->formula, inputs, 1, NULL, 0, NULL, &s->plan, error));
    OG_TRY(ogive_device_allocate(s->device, bytes, &s->x, error));
    OG_TRY(ogive_device_allocate(s->device, bytes, &s->y, error));
    OG_TRY(ogive_device_allocate(s->device, OG_SWEEP_PARTIALS * sizeof(uint64_t), &s->partials,
                                 error));
    return ogive_device_allocate(s->device, ogive_plan_workspace(s->plan), &s->workspace, error);
}

static void end_sweep(sweep *s)
{
    void *const memory[] = {s->x, s->y, s->partials, s->workspace};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        (void)ogive_device_free(s->device, memory[i], NULL);
    ogive_plan_release(s->plan);
    ogive_formula_release(s->formula);
}

static ogive_status run_sweep(sweep *s, const char *name, uint32_t step, uint64_t *out,
                              ogive_error *error)
{
    uint64_t total = UINT32_MAX / step + 1ull, sum = 0;
    s->block = total < MOST_ELEMENTS ? (uint32_t)total : MOST_ELEMENTS;
    OG_TRY(start_sweep(s, name, error));
    for (uint64_t start = 0; start < total; start += s->block) {
        uint32_t count = total - start < s->block ? (uint32_t)(total - start) : s->block;
        uint32_t first = (uint32_t)(start * step);
        uint64_t part;
        /* The plan is for whole blocks: what x holds beyond a last one is run too. */
        OG_TRY(fill(s, first, step, s->block, error));
        OG_TRY(ogive_plan_run(s->plan, (const void *const[]){s->x}, (void *const[]){s->y},
                              s->workspace, NULL, error));
        OG_TRY(hash(s, first, step, count, &part, error));
        sum += part;
    }
    *out = sum;
    return OGIVE_OK;
}

ogive_status ogive_function_hash(size_t index, DLDevice device, uint32_t step, uint64_t *out,
                                 ogive_error *error)
{
    ogive_function_info info;
    OG_TRY(ogive_function(index, &info, error));
    if (!out || step == 0)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "%s",
                out ? "step is 0: expected 1 or more" : "hash is NULL");
    *out = 0;
    if (info.hash == 0)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "'%s' has no documented hash", info.name);
    sweep s = {.device = device,
               .services = device.device_type == kDLCUDA ? &og_cuda_services : NULL};
    ogive_status status = run_sweep(&s, info.name, step, out, error);
    end_sweep(&s);
    return status;
}
