/* SPDX-License-Identifier: MIT
 *
 * device_data.c - memory on the device; see device_data.h.
 */
#include "device_data.h"

#include <stdio.h>
#include <stdlib.h>

#include "progress.h"
#include "report.h"

enum { COPY_BYTES = 64 << 20 }; /* a bar moves after each */

bool device_copy(DLDevice device, void *to, const void *from, size_t bytes, const char *label,
                 failure *why)
{
    ogive_error error;
    bool good = true;
    char text[40];

    snprintf(text, sizeof(text), "copying %.30s", label);
    if (bytes > COPY_BYTES)
        progress_start(text, (double)bytes);
    for (size_t at = 0; good && at < bytes; at += COPY_BYTES) {
        size_t part = bytes - at < COPY_BYTES ? bytes - at : COPY_BYTES;
        if (ogive_device_copy(device, (char *)to + at, (const char *)from + at, part, &error))
            good = fail_library(why, &error);
        progress_update((double)(at + part));
    }
    if (bytes > COPY_BYTES)
        progress_end();
    return good;
}

static size_t layout_bytes(const host_layout *layout)
{
    return (size_t)host_layout_elements(layout) * layout->dtype->bytes;
}

static bool allocate(DLDevice device, size_t bytes, const char *what, void **out, failure *why)
{
    ogive_error error;

    if (!ogive_device_allocate(device, bytes, out, &error))
        return true;
    if (error.status == OGIVE_MEMORY && device.device_type == kDLCPU)
        return fail_memory(why, (double)bytes, what);
    fail_library(why, &error);
    return fail_prefix(why, what);
}

/* The inputs lie dense in the process's memory, in whatever order of dims. */
static bool place_inputs(device_data *d, const request *r, failure *why)
{
    for (size_t i = 0; i < r->in.count; i++) {
        const input *item = &r->in.items[i];
        size_t bytes = layout_bytes(&item->layout);
        void *copy = NULL;
        if (d->device.device_type == kDLCPU) {
            d->inputs[i] = item->data;
            continue;
        }
        if (!allocate(d->device, bytes, item->name, &copy, why))
            return false;
        d->inputs[i] = copy;
        if (!device_copy(d->device, copy, item->data, bytes, item->name, why))
            return false;
    }
    return true;
}

bool device_data_make(device_data *d, const request *r, failure *why)
{
    size_t outputs = ogive_formula_result_count(r->formula);

    *d = (device_data){.device = r->device,
                       .inputs = calloc(r->in.count + 1, sizeof(*d->inputs)),
                       .outputs = calloc(outputs + 1, sizeof(*d->outputs)),
                       .input_count = r->in.count,
                       .output_count = outputs};
    if (!d->inputs || !d->outputs)
        return fail_memory(why, (double)outputs, "the results");
    if (!allocate(d->device, ogive_plan_workspace(r->plan), "the workspace", &d->workspace, why))
        return false;
    for (size_t i = 0; i < outputs; i++) {
        host_layout layout = host_layout_from(ogive_plan_result(r->plan, i));
        size_t bytes = layout_bytes(&layout);
        /* A result of no elements still has an address. */
        if (!allocate(d->device, bytes ? bytes : 1, "a result", &d->outputs[i], why))
            return false;
    }
    return place_inputs(d, r, why);
}

bool device_data_wait(const device_data *d, failure *why)
{
    ogive_error error;

    return !ogive_device_synchronize(d->device, NULL, &error) || fail_library(why, &error);
}

bool device_data_take(device_data *d, size_t index, size_t bytes, void **out, failure *why)
{
    if (d->device.device_type == kDLCPU) {
        *out = d->outputs[index];
        d->outputs[index] = NULL;
        return true;
    }
    *out = host_allocate(bytes);
    return *out ? device_copy(d->device, *out, d->outputs[index], bytes, "results", why)
                : fail_memory(why, (double)bytes, "a result");
}

void device_data_release(device_data *d)
{
    for (size_t i = 0; d->inputs && i < d->input_count; i++)
        if (d->device.device_type != kDLCPU)
            ogive_device_free(d->device, (void *)(uintptr_t)d->inputs[i], NULL);
    for (size_t i = 0; d->outputs && i < d->output_count; i++)
        ogive_device_free(d->device, d->outputs[i], NULL);
    if (d->workspace)
        ogive_device_free(d->device, d->workspace, NULL);
    free(d->inputs);
    free(d->outputs);
    *d = (device_data){0};
}
