/* SPDX-License-Identifier: MIT
 *
 * traffic.c - the least that a plan moves, computes and takes; see traffic.h.
 */
#include "traffic.h"

#include <stdio.h>
#include <string.h>

#include "memory_limit.h"
#include "report.h"

bool traffic_count(const ogive_plan *plan, traffic *out, failure *why)
{
    ogive_error error;

    *out = (traffic){.threads = 1, .kernels = ogive_plan_kernel_count(plan)};
    for (size_t i = 0; i < out->kernels; i++) {
        ogive_kernel_info info;
        if (ogive_plan_kernel(plan, i, &info, &error))
            return fail_library(why, &error);
        out->read += (double)info.bytes_read;
        out->written += (double)info.bytes_written;
        out->operations += info.operations;
        out->has_product |= strstr(info.name, "product") != NULL;
        if (info.threads > out->threads)
            out->threads = info.threads;
    }
    return true;
}

/* A kernel's bytes and multiplications may overlap, those of two kernels do not. */
static void find_floor(const ogive_plan *plan, traffic *t)
{
    for (size_t i = 0; i < t->kernels && t->limit > 0; i++) {
        ogive_kernel_info k;
        if (ogive_plan_kernel(plan, i, &k, NULL))
            continue;
        double moves = (double)(k.bytes_read + k.bytes_written) / t->limit;
        t->multiplies |= k.multiply_seconds > moves;
        t->floor += k.multiply_seconds > moves ? k.multiply_seconds : moves;
    }
}

bool traffic_limit(const request *r, double seconds, traffic *t, failure *why)
{
    ogive_cuda_device_info gpu;

    if (t->read + t->written <= 0)
        return true;
    if (r->device.device_type == kDLCPU) {
        if (!memory_limit_measure(t->read, t->written, t->threads, seconds, &t->limit, why))
            return false;
    } else {
        t->threads = 0;
        if (!r->options.cuda_arch && !ogive_cuda_device(r->device.device_id, &gpu, NULL))
            t->limit = gpu.memory_bytes_per_second;
    }
    find_floor(r->plan, t);
    return true;
}

static void operations_text(char *buffer, size_t capacity, double operations)
{
    static const char *const units[] = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"};
    size_t unit = 0;

    while (operations >= 1000 && unit < 4) {
        operations /= 1000;
        unit++;
    }
    snprintf(buffer, capacity, unit ? "%.1f %s" : "%.0f %s", operations, units[unit]);
}

void traffic_line(const request *r, const traffic *t, char *buffer, size_t capacity)
{
    char bytes[32], operations[32], floor[32], least[96] = "";
    const char *unit = "memory";

    text_bytes(bytes, sizeof(bytes), t->read + t->written);
    operations_text(operations, sizeof(operations), t->operations);
    if (t->multiplies)
        unit = "multiplying";
    else if (t->has_product && r->device.device_type == kDLCPU)
        unit = "memory; multiplying is not counted";
    if (t->floor > 0) {
        text_seconds(floor, sizeof(floor), t->floor);
        snprintf(least, sizeof(least), ", at least %s (%s)", floor, unit);
    }
    snprintf(buffer, capacity, "%zu kernel%s, %s, %s%s", t->kernels, t->kernels == 1 ? "" : "s",
             bytes, operations, least);
}
