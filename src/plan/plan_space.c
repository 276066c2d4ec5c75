/* SPDX-License-Identifier: MIT
 *
 * plan_space.c - contiguous layouts, the order of a kernel's dims, and which neighbours
 * are one dim.
 *
 * The order is part of a reduction's definition (plan.h), so it follows from
 * shapes and strides of the inputs alone: the *lead* is the load that touches the
 * most elements (the first of several); dims are visited as they lie in its
 * memory, and a row whose elements are the nearest neighbours there is reduced in
 * OG_ROWS order, any other in OG_COLUMNS order.
 */
#include "plan/planner.h"

#include <string.h>

bool og_layout_contiguous(og_layout *layout)
{
    int64_t stride = 1, count;
    bool fits = true;
    for (int32_t d = layout->rank - 1; d >= 0; d--) {
        layout->stride[d] = fits ? stride : 0;
        int64_t extent = layout->shape[d] > 1 ? layout->shape[d] : 1;
        fits &= !__builtin_mul_overflow(stride, extent, &stride);
    }
    return og_shape_count(layout->rank, layout->shape, &count);
}

static int64_t magnitude(int64_t stride)
{
    return stride < 0 ? -stride : stride;
}

/* How far dim d leads in memory, windows included. */
static int64_t step_along(const og_access *access, int32_t d)
{
    int64_t step = access->stride[d];
    for (int32_t w = 0; w < access->window_count; w++) {
        const og_window *window = &access->windows[w];
        int64_t by = og_window_step(window, d);
        if (window->uneven.bits && by) /* of parts, on the average */
            by = og_max(1, magnitude(by) / window->divisor);
        step += by * window->stride;
    }
    return magnitude(step);
}

/* Elements that an access touches, as a double: only compared. */
static double touched(const og_space *space, const og_access *access)
{
    double count = 1;
    for (int32_t d = 0; d < space->rank; d++)
        if (step_along(access, d) != 0)
            count *= (double)space->extent[d];
    return count;
}

/* The access by whose strides dims are ordered: the largest load of a kernel that
 * reduces, else the first store. */
static const og_access *find_lead(const og_plan *plan, const og_kernel *kernel, bool reduces)
{
    const og_access *lead = NULL;
    for (int32_t a = 0; a < kernel->access_count; a++) {
        const og_access *at = &kernel->accesses[a];
        if (at->buffer < 0)
            continue;
        bool stored = plan->buffers[at->buffer].kind == OG_BUFFER_OUTPUT;
        if (!reduces && stored)
            return at;
        if (!stored && (!lead || touched(&kernel->space, at) > touched(&kernel->space, lead)))
            lead = at;
    }
    return lead;
}

/* Kept dims come first; in each group, dims that the lead does not move along,
 * then those of falling stride; but what windows reduce stays as it is. */
static bool comes_before(const og_kernel *kernel, const og_access *lead, uint32_t reduced,
                         int32_t a, int32_t b)
{
    bool a_reduced = reduced >> a & 1, b_reduced = reduced >> b & 1;
    if (a_reduced != b_reduced)
        return b_reduced;
    if (kernel->slides && a_reduced)
        return false;
    int64_t a_step = lead ? step_along(lead, a) : 0;
    int64_t b_step = lead ? step_along(lead, b) : 0;
    return b_step != 0 && (a_step == 0 || a_step > b_step);
}

/* Stable, so that ties keep the formula's order. */
static void sort_dims(const og_kernel *kernel, const og_access *lead, uint32_t reduced,
                      int32_t *order, int32_t count)
{
    for (int32_t i = 1; i < count; i++) {
        int32_t dim = order[i], at = i;
        for (; at > 0 && comes_before(kernel, lead, reduced, dim, order[at - 1]); at--)
            order[at] = order[at - 1];
        order[at] = dim;
    }
}

int32_t og_lead_input(const og_plan *plan, const og_kernel *kernel)
{
    const og_access *lead = kernel->product_count ? NULL : find_lead(plan, kernel, true);
    bool is_input = lead && plan->buffers[lead->buffer].kind == OG_BUFFER_INPUT;
    return is_input ? plan->buffers[lead->buffer].index : -1;
}

static void permute(int64_t *values, const int32_t *order, int32_t count)
{
    int64_t old[OG_MAX_RANK];
    memcpy(old, values, sizeof old);
    memset(values, 0, sizeof old);
    for (int32_t d = 0; d < count; d++)
        values[d] = old[order[d]];
}

/* Where dim is in order, or -1: its extent is 1. */
static int32_t find_dim(const int32_t *order, int32_t count, int32_t dim)
{
    for (int32_t d = 0; d < count; d++)
        if (order[d] == dim)
            return d;
    return -1;
}

static void permute_access(og_access *access, const int32_t *order, int32_t count)
{
    permute(access->stride, order, count);
    for (int32_t w = 0; w < access->window_count; w++) {
        og_window *window = &access->windows[w];
        window->place = find_dim(order, count, window->place);
        window->tap = find_dim(order, count, window->tap);
    }
}

void og_permute_dims(og_kernel *kernel, const int32_t *order, int32_t count)
{
    permute(kernel->space.extent, order, count);
    for (int32_t a = 0; a < kernel->access_count; a++)
        permute_access(&kernel->accesses[a], order, count);
    for (int32_t p = 0; p < 2 * kernel->product_count; p++) {
        og_access *access = p % 2 ? &kernel->products[p / 2].right : &kernel->products[p / 2].left;
        permute(access->stride, order, count);
        for (int32_t w = 0; w < access->window_count; w++) /* their taps are dims of k */
            access->windows[w].place = find_dim(order, count, access->windows[w].place);
    }
    kernel->space.rank = count;
}

static bool mergeable(const int64_t *stride, const int64_t *extent, int32_t d)
{
    return stride[d] == stride[d + 1] * extent[d + 1];
}

static bool has_window_along(const og_access *access, int32_t d)
{
    for (int32_t w = 0; w < access->window_count; w++)
        if (access->windows[w].place == d || access->windows[w].tap == d)
            return true;
    return false;
}

static bool has_place_along(const og_access *access, int32_t d)
{
    for (int32_t w = 0; w < access->window_count; w++)
        if (access->windows[w].place == d)
            return true;
    return false;
}

static bool kernel_mergeable(const og_kernel *kernel, int32_t d)
{
    const int64_t *extent = kernel->space.extent;
    for (int32_t a = 0; a < kernel->access_count; a++)
        if (!mergeable(kernel->accesses[a].stride, extent, d) ||
            has_window_along(&kernel->accesses[a], d) ||
            has_window_along(&kernel->accesses[a], d + 1))
            return false;
    for (int32_t p = 0; p < 2 * kernel->product_count; p++) {
        const og_access *access = og_factor_of(kernel, p / 2, p % 2).access;
        if (!mergeable(access->stride, extent, d) || has_place_along(access, d) ||
            has_place_along(access, d + 1))
            return false;
    }
    return true;
}

void og_collapse_dims(og_kernel *kernel)
{
    og_space *space = &kernel->space;
    for (int32_t d = space->rank - 2; d >= 0; d--) {
        int32_t kept = space->rank - space->n_reduced;
        if (d + 1 == kept || !kernel_mergeable(kernel, d))
            continue;
        space->n_reduced -= d >= kept;
        int64_t merged = space->extent[d] * space->extent[d + 1];
        int32_t order[OG_MAX_RANK], count = 0;
        for (int32_t i = 0; i < space->rank; i++)
            if (i != d)
                order[count++] = i;
        og_permute_dims(kernel, order, count); /* keeps the inner strides */
        space->extent[d] = merged;
    }
}

/* Dims from..to of the space, one of them empty, become one dim without elements: the
 * others may be of any size, and their product of none that fits. */
static void empty_dims(og_kernel *kernel, int32_t from, int32_t to)
{
    int32_t order[OG_MAX_RANK], count = 0;
    for (int32_t d = 0; d < kernel->space.rank; d++)
        if (d <= from || d >= to)
            order[count++] = d;
    og_permute_dims(kernel, order, count);
    kernel->space.extent[from] = 0;
}

static bool stores_rows(const og_kernel *kernel)
{
    for (int32_t p = 0; p < kernel->pass_count; p++)
        for (int32_t i = 0; i < kernel->passes[p].row_count; i++)
            if (kernel->passes[p].rows[i].op == OG_OP_STORE)
                return true;
    return false;
}

/* Rows without elements of which nothing is stored, softmax's of shape (0, 2^40), are not
 * computed: there are no rows, too. */
static void collapse_empty(og_kernel *kernel)
{
    og_space *space = &kernel->space;
    int32_t kept = space->rank - space->n_reduced;
    int64_t rows, elements;
    bool no_rows = og_shape_count(kept, space->extent, &rows) && rows == 0;
    bool no_elements =
        og_shape_count(space->n_reduced, space->extent + kept, &elements) && elements == 0;
    no_rows |= kept && no_elements && !stores_rows(kernel);
    if (space->n_reduced && (no_rows || no_elements)) {
        empty_dims(kernel, kept, space->rank);
        space->n_reduced = 1;
    }
    if (no_rows)
        empty_dims(kernel, 0, kept);
}

/* Windows reduce columns, so that there must be a dim of them: the last kept one if all are of
 * extent 1; else -1, others serve. */
static int32_t find_lone_column(const og_kernel *kernel, uint32_t reduced)
{
    int32_t last = -1;
    for (int32_t d = 0; d < kernel->space.rank && kernel->slides; d++) {
        if (reduced >> d & 1)
            continue;
        if (kernel->space.extent[d] != 1)
            return -1;
        last = d;
    }
    return last;
}

/* The same where no dim is kept: one more, of extent 1. */
static void add_column(og_kernel *kernel)
{
    og_space *space = &kernel->space;
    int32_t order[OG_MAX_RANK], rank = space->rank;
    if (!kernel->slides || !space->n_reduced || space->n_reduced < rank || rank == OG_MAX_RANK)
        return;
    for (int32_t d = 0; d <= rank; d++)
        order[d] = d ? d - 1 : rank;
    space->extent[rank] = 1;
    og_permute_dims(kernel, order, rank + 1);
}

void og_order_space(const og_plan *plan, og_kernel *kernel, uint32_t reduced, bool keeps_dims)
{
    og_space *space = &kernel->space;
    bool reduces = false;
    for (int32_t p = 0; p < kernel->pass_count; p++)
        reduces |= kernel->passes[p].reduction_count > 0;
    int32_t order[OG_MAX_RANK], count = 0;
    const og_access *lead = find_lead(plan, kernel, reduces);
    int64_t row_step = INT64_MAX, kept_step = INT64_MAX;
    int32_t lone_column = find_lone_column(kernel, reduced);
    for (int32_t d = 0; d < space->rank; d++) {
        if (space->extent[d] == 1 && d != lone_column)
            continue;
        bool in_row = reduced >> d & 1;
        int64_t step = lead ? step_along(lead, d) : 0;
        int64_t *least = in_row ? &row_step : &kept_step;
        if (step && step < *least)
            *least = step;
        order[count++] = d;
        space->n_reduced += in_row;
    }
    kernel->order =
        kernel->product_count || (row_step <= kept_step && !kernel->slides) ? OG_ROWS : OG_COLUMNS;
    if (kernel->product_count == 0)
        sort_dims(kernel, lead, reduced, order, count);
    og_permute_dims(kernel, order, count);
    if (reduces && space->n_reduced == 0) { /* a row of one element */
        space->extent[space->rank++] = 1;
        space->n_reduced = 1;
    }
    if (keeps_dims)
        return;
    collapse_empty(kernel);
    og_collapse_dims(kernel);
    add_column(kernel);
}
