/* SPDX-License-Identifier: MIT
 *
 * plan_traffic.c - what finished kernels do to memory: how many bytes each must move, and
 * which output may be an input. Takes time in proportion to the kernels' instructions (and
 * outputs, 64 at most), for a formula may have thousands of inputs.
 */
#include "plan/planner.h"

/* ---- bytes ---------------------------------------------------------------------- */

static int64_t plus(int64_t a, int64_t b)
{
    return a > INT64_MAX - b ? INT64_MAX : a + b;
}

/* All of a tensor; what a stride of 0 repeats is there once. */
static int64_t buffer_bytes(const og_buffer *of)
{
    int64_t bytes = (int64_t)og_dtype_bytes(of->dtype);
    for (int32_t d = 0; d < of->rank; d++)
        bytes = og_times(bytes, of->stride[d] || !of->shape[d] ? of->shape[d] : 1);
    return bytes;
}

/* No more than the tensor has: windows that are strides see elements several times. */
static int64_t access_bytes(const og_plan *plan, const og_space *space, const og_access *access)
{
    int64_t bytes = (int64_t)og_dtype_bytes(access->dtype);
    for (int32_t d = 0; d < space->rank; d++)
        bytes = og_times(bytes, access->stride[d] || !space->extent[d] ? space->extent[d] : 1);
    for (int32_t w = 0; w < access->window_count; w++)
        bytes = og_times(bytes, access->windows[w].extent);
    return og_min(bytes, buffer_bytes(&plan->buffers[access->buffer]));
}

/* Of a convolution: what the tensor has, for windows see most of it. */
static int64_t factor_bytes(const og_plan *plan, const og_kernel *kernel, og_factor factor)
{
    int64_t k = kernel->matrices.k;
    if (og_kernel_convolves(kernel))
        return k ? buffer_bytes(&plan->buffers[factor.access->buffer]) : 0;
    return og_times(access_bytes(plan, &kernel->space, factor.access),
                    factor.k_stride || !k ? k : 1);
}

/* Two accesses of one buffer (x and its transpose) may touch the same elements: only the
 * largest counts. most[buffer] is what was counted for it, and 0 before and after. */
static void count_bytes(int64_t bytes, int32_t buffer, int64_t *most, int64_t *total)
{
    if (bytes <= most[buffer])
        return;
    *total = *total == INT64_MAX ? INT64_MAX : plus(*total - most[buffer], bytes);
    most[buffer] = bytes;
}

/* most: two numbers for each buffer, for what is read and for what is written. */
static void measure_kernel(const og_plan *plan, og_kernel *kernel, int64_t *most_read,
                           int64_t *most_written)
{
    for (int32_t a = 0; a < kernel->access_count; a++) {
        const og_access *at = &kernel->accesses[a];
        if (at->buffer < 0)
            continue;
        count_bytes(access_bytes(plan, &kernel->space, at), at->buffer,
                    at->is_store ? most_written : most_read,
                    at->is_store ? &kernel->bytes_written : &kernel->bytes_read);
    }
    for (int32_t p = 0; p < 2 * kernel->product_count; p++) {
        og_factor factor = og_factor_of(kernel, p / 2, p % 2);
        count_bytes(factor_bytes(plan, kernel, factor), factor.access->buffer, most_read,
                    &kernel->bytes_read);
    }
    for (int32_t a = 0; a < kernel->access_count; a++)
        if (kernel->accesses[a].buffer >= 0)
            most_read[kernel->accesses[a].buffer] = most_written[kernel->accesses[a].buffer] = 0;
    for (int32_t p = 0; p < kernel->product_count; p++)
        most_read[kernel->products[p].left.buffer] = most_read[kernel->products[p].right.buffer] =
            0;
}

/* Loads, stores, constants and conversions do not count. */
static double count_operations(const og_kernel *kernel, const og_instr *instructions, int32_t count)
{
    double sum = 0;
    for (int32_t i = 0; i < count; i++) {
        if (instructions[i].op == OG_OP_PRODUCT)
            sum += 2.0 * og_product_terms(&kernel->products[instructions[i].index]);
        else
            sum += instructions[i].op < OG_FUNCTION_COUNT;
    }
    return sum;
}

double og_kernel_operations(const og_kernel *kernel)
{
    double elements = (double)og_space_count(&kernel->space, false);
    double rows = (double)og_space_count(&kernel->space, true), sum = 0;
    for (int32_t p = 0; p < kernel->pass_count; p++) {
        const og_pass *pass = &kernel->passes[p];
        if (!pass->guard_count)
            sum += elements * (count_operations(kernel, pass->elements, pass->element_count) +
                               pass->reduction_count);
        sum += rows * count_operations(kernel, pass->rows, pass->row_count);
    }
    return sum;
}

ogive_status og_measure_traffic(og_plan *plan, og_arena *scratch, ogive_error *error)
{
    size_t count = (size_t)plan->buffer_count;
    int64_t *most = OG_ARENA_NEW(scratch, int64_t, 2 * count);
    if (!most)
        return og_fail_memory(error, 2 * count * sizeof *most);
    for (int32_t k = 0; k < plan->kernel_count; k++)
        measure_kernel(plan, &plan->kernels[k], most, most + count);
    return OGIVE_OK;
}

/* ---- in place ------------------------------------------------------------------- */

/* Where in each kernel each access is used: elements of pass p at 2p, rows at 2p + 1. A load's
 * last use, a store's only one; -1 if it is not used. */
typedef struct {
    int32_t **last; /* [kernel][access] */
} uses;

static void find_last(const og_instr *instrs, int32_t count, int32_t time, int32_t *last)
{
    for (int32_t i = 0; i < count; i++)
        if (instrs[i].op == OG_OP_LOAD || instrs[i].op == OG_OP_STORE)
            last[instrs[i].index] = time;
}

static ogive_status find_uses(const og_plan *plan, og_arena *scratch, uses *out, ogive_error *error)
{
    out->last = OG_ARENA_NEW(scratch, int32_t *, (size_t)plan->kernel_count);
    if (!out->last)
        return og_fail_memory(error, (size_t)plan->kernel_count * sizeof *out->last);
    for (int32_t k = 0; k < plan->kernel_count; k++) {
        const og_kernel *kernel = &plan->kernels[k];
        int32_t *last = OG_ARENA_NEW(scratch, int32_t, (size_t)kernel->access_count);
        if (!last)
            return og_fail_memory(error, (size_t)kernel->access_count * sizeof *last);
        for (int32_t a = 0; a < kernel->access_count; a++)
            last[a] = -1;
        for (int32_t p = 0; p < kernel->pass_count; p++) {
            const og_pass *pass = &kernel->passes[p];
            find_last(pass->elements, pass->element_count, 2 * p, last);
            find_last(pass->rows, pass->row_count, 2 * p + 1, last);
        }
        out->last[k] = last;
    }
    return OGIVE_OK;
}

/* Is at, a read last used at time `last`, at the index that store writes at time `written`,
 * and no later? */
static bool reads_in_place(const og_kernel *kernel, const og_access *at, int32_t last,
                           const og_access *store, int32_t written)
{
    if (at->dtype != store->dtype || at->window_count || at->offset != store->offset ||
        last > written)
        return false;
    for (int32_t d = 0; d < kernel->space.rank; d++)
        if (at->stride[d] != store->stride[d])
            return false;
    return true;
}

/* Strikes out of may (by input) what kernel reads; but for a store of that kernel not what it
 * reads in place, if it is given. */
static void strike_reads(const og_plan *plan, const og_kernel *kernel, const int32_t *last,
                         int32_t store, bool *may)
{
    for (int32_t a = 0; a < kernel->access_count; a++) {
        const og_access *at = &kernel->accesses[a];
        if (at->buffer >= 0 && at->buffer < plan->input_count &&
            (store < 0 ||
             !reads_in_place(kernel, at, last[a], &kernel->accesses[store], last[store])))
            may[at->buffer] = false;
    }
    for (int32_t p = 0; p < 2 * kernel->product_count; p++) {
        int32_t buffer = og_factor_of(kernel, p / 2, p % 2).access->buffer;
        if (buffer < plan->input_count)
            may[buffer] = false;
    }
}

/* Fills may[input] for one output. */
static void find_output_aliases(const og_plan *plan, const uses *used, int32_t output, bool *may)
{
    bool written = false;
    for (int32_t i = 0; i < plan->input_count; i++)
        may[i] = true;
    for (int32_t k = 0; k < plan->kernel_count; k++) {
        const og_kernel *kernel = &plan->kernels[k];
        if (written)
            strike_reads(plan, kernel, used->last[k], -1, may);
        for (int32_t a = 0; a < kernel->access_count; a++)
            if (kernel->accesses[a].buffer == plan->input_count + output) {
                written = true;
                strike_reads(plan, kernel, used->last[k], a, may);
            }
    }
}

ogive_status og_find_aliases(og_plan *plan, og_arena *scratch, ogive_error *error)
{
    size_t count = (size_t)plan->input_count * (size_t)plan->output_count;
    uses used;
    plan->may_alias = OG_ARENA_NEW(&plan->arena, bool, count);
    if (!plan->may_alias)
        return og_fail_memory(error, count);
    OG_TRY(find_uses(plan, scratch, &used, error));
    for (int32_t o = 0; o < plan->output_count; o++)
        find_output_aliases(plan, &used, o,
                            plan->may_alias + (size_t)o * (size_t)plan->input_count);
    return OGIVE_OK;
}
