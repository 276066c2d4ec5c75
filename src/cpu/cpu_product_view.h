/* SPDX-License-Identifier: MIT
 *
 * cpu_product_view.h - a factor that is not a matrix (og_cpu_view), copied into the order of the
 * micro-kernel; included by cpu_product_template.c once for float and once for double.
 *
 * Copied are lines, along rows or along k, whichever costs less. Lines are cut where
 * the last dim of their axis ends; of such a stretch a window sees some in the middle, and what it
 * does not see is 0.
 *
 * PARAMETERS
 *   REAL                              float or double
 *   P(name)                           name of a function of this type
 *   P(load_element)(dtype, from, i)   element i, as REAL
 *   LINE_DTYPES(X)                    X(dtype) for all dtypes that are computed in this type
 *   MOST_SLIVER                       columns of a sliver
 *   LINE_VECTOR, LINE_LANES           a vector of LINE_LANES REALs anywhere in memory
 *   P(load_second)(from)              from[0], from[2], ...: such a vector, nothing behind it is read
 *   PACK_MATRIX(matrix, columns, count, to)   packs a sliver of a factor that has no view
 */

/* Some indices of an axis one after the other, all in its last dim: to[first..] of a line. */
typedef struct {
    int64_t first, count, offset, places[OG_MAX_WINDOWS];
} P(stretch);

OG_FN void P(move)(const og_cpu_line *axis, int32_t windows, int32_t dim, int64_t by,
                   P(stretch) * s)
{
    s->offset += by * axis->stride[dim];
    for (int32_t w = 0; w < windows; w++)
        s->places[w] += by * axis->step[w][dim];
}

/* Where indices [from, from + count) of an axis are: one by one, or (stretches) as such. Returns
 * how many. */
static int64_t P(list_places)(const og_cpu_line *axis, int32_t windows, int64_t from, int64_t count,
                              bool stretches, P(stretch) * to)
{
    int64_t at[OG_MAX_RANK] = {0}, listed = 0;
    int32_t last = axis->rank - 1;
    P(stretch) here = {.first = 0};
    for (int32_t d = last; d >= 0; d--) {
        at[d] = from % axis->extent[d];
        from /= axis->extent[d];
        P(move)(axis, windows, d, at[d], &here);
    }
    for (int64_t done = 0, some; done < count; done += some) {
        some = stretches && last >= 0 ? og_min(count - done, axis->extent[last] - at[last]) : 1;
        here.first = done, here.count = some;
        to[listed++] = here;
        if (last < 0)
            continue;
        at[last] += some;
        P(move)(axis, windows, last, some, &here);
        for (int32_t d = last; d > 0 && at[d] == axis->extent[d]; d--) {
            P(move)(axis, windows, d, -at[d], &here);
            P(move)(axis, windows, d - 1, 1, &here);
            at[d] = 0;
            at[d - 1]++;
        }
    }
    return listed;
}

/* Elements [*first, *end) of a stretch become those of them that a window sees, which is at `place`
 * and moves by step. */
OG_FN void P(look)(int64_t place, int64_t step, int64_t extent, int64_t *first, int64_t *end)
{
    int64_t most = *end;
    if (step == 0) {
        *end = (uint64_t)place < (uint64_t)extent ? *end : *first;
    } else if (step == 1) {
        *first = og_max(*first, -place);
        *end = og_min(*end, extent - place);
    } else if (step == 2) { /* whose divisions are shifts */
        *first = og_max(*first, (1 - place) >> 1);
        *end = og_min(*end, (extent - place + 1) >> 1);
    } else if (step > 0) {
        *first = og_max(*first, og_divide_up(og_max(0, -place), step));
        *end = og_min(*end, og_divide_up(og_max(0, extent - place), step));
    } else {
        *first = og_max(*first, og_divide_up(og_max(0, place - extent + 1), -step));
        *end = og_min(*end, place < 0 ? 0 : place / -step + 1);
    }
    *first = og_min(*first, most); /* far outside, it lies beyond them all */
    *end = og_max(*first, *end);
}

/* to[i] = from[i], or (every_second) from[2 i], by vectors, the last of which may cover some again:
 * lines are short, and memcpy() would take longer to find out than to copy. */
OG_FN void P(copy_run)(const REAL *from, int64_t count, bool every_second, REAL *to)
{
    const int64_t step = every_second ? 2 : 1;
    if (count < LINE_LANES) {
        for (int64_t i = 0; i < count; i++)
            to[i] = from[i * step];
        return;
    }
    for (int64_t i = 0; i < count; i += LINE_LANES) {
        int64_t at = og_min(i, count - LINE_LANES);
        if (every_second)
            *(LINE_VECTOR *)(to + at) = P(load_second)(from + 2 * at);
        else
            *(LINE_VECTOR *)(to + at) = *(const LINE_VECTOR *)(from + at);
    }
}

/* to[i * to_step] = element i of count, those in [first, end) from memory; the others are 0. */
OG_FN void P(copy_stretch)(const og_dtype dtype, const char *data, int64_t offset, int64_t stride,
                           int64_t count, int64_t first, int64_t end, REAL *to, int64_t to_step)
{
    const void *from = data + (first < end ? offset + first * stride : 0) * bytes_of(dtype);
    if (end - first < count) {
        for (int64_t i = 0; i < first; i++)
            to[i * to_step] = 0;
        for (int64_t i = end; i < count; i++)
            to[i * to_step] = 0;
    }
    to += first * to_step;
    if ((stride == 1 || stride == 2) && to_step == 1 && bytes_of(dtype) == sizeof(REAL))
        P(copy_run)(from, end - first, stride == 2, to);
    else if (stride == 1 && to_step == 1)
        for (int64_t i = 0; i < end - first; i++)
            to[i] = P(load_element)(dtype, from, i);
    else
        for (int64_t i = 0; i < end - first; i++)
            to[i * to_step] = P(load_element)(dtype, from, i * stride);
}

/* A line of stretches at `other`, a place of the other axis. Windows that move along the line,
 * which is one at most but for strange strides, cut stretches; the others see all or nothing. */
OG_FN void P(copy_line)(const og_dtype dtype, const og_cpu_factor *factor, const og_cpu_line *along,
                        const P(stretch) * stretches, int64_t stretch_count,
                        const P(stretch) * other, REAL *to, int64_t to_step)
{
    const og_cpu_view *view = factor->view;
    const int32_t last = along->rank - 1, windows = view->window_count;
    const int64_t stride = last < 0 ? 0 : along->stride[last];
    const int64_t offset = factor->offset + other->offset;
    int64_t places[OG_MAX_WINDOWS], steps[OG_MAX_WINDOWS];
    for (int32_t w = 0; w < windows; w++) {
        places[w] = factor->places[w] + other->places[w];
        steps[w] = last < 0 ? 0 : along->step[w][last];
    }
    for (int64_t s = 0; s < stretch_count; s++) {
        const P(stretch) *at = &stretches[s];
        int64_t first = 0, end = at->count;
        for (int32_t w = 0; w < windows; w++)
            P(look)(places[w] + at->places[w], steps[w], view->extent[w], &first, &end);
        P(copy_stretch)
        (dtype, factor->data, offset + at->offset, stride, at->count, first, end,
         to + at->first * to_step, to_step);
    }
}

/* One line for each of count places of the other axis. */
OG_FN void P(copy_lines)(const og_dtype dtype, const og_cpu_factor *factor,
                         const og_cpu_line *along, const P(stretch) * stretches,
                         int64_t stretch_count, const P(stretch) * others, int64_t count, REAL *to,
                         int64_t to_other, int64_t to_step)
{
    for (int64_t i = 0; i < count; i++)
        P(copy_line)
    (dtype, factor, along, stretches, stretch_count, others + i, to + i * to_other, to_step);
}

/* What an element of a line of this axis costs, about, in eighths of one that is copied alone: its
 * share of the line's beginning, and more where neighbours lie in other lines of the cache. */
static int64_t P(cost_of)(const og_cpu_line *axis)
{
    int32_t last = axis->rank - 1;
    if (last < 0)
        return INT64_MAX;
    int64_t reach = og_max(axis->stride[last], -axis->stride[last]);
    return 64 / og_max(1, axis->extent[last]) + (reach <= 2 ? 1 : reach < 16 ? 8 : 16);
}

static bool P(lies_along_k)(const og_cpu_view *view)
{
    return P(cost_of)(&view->k) < P(cost_of)(&view->rows);
}

/* to[row * to_row + k * to_k] = element (row0 + row, k0 + k), of rows and a block of k at most. */
static void P(copy_view)(const og_cpu_factor *factor, int64_t row0, int64_t rows, int64_t k0,
                         int64_t count, REAL *to, int64_t to_row, int64_t to_k)
{
    const og_cpu_view *view = factor->view;
    P(stretch) of_rows[OG_PRODUCT_BLOCK], of_k[OG_PRODUCT_BLOCK];
    bool by_k = P(lies_along_k)(view);
    int64_t row_count = P(list_places)(&view->rows, view->window_count, row0, rows, !by_k, of_rows);
    int64_t k_count = P(list_places)(&view->k, view->window_count, k0, count, by_k, of_k);
    switch (factor->dtype) {
#define CASE(type)                                                                                 \
    case type:                                                                                     \
        if (by_k)                                                                                  \
            P(copy_lines)                                                                          \
        (type, factor, &view->k, of_k, k_count, of_rows, row_count, to, to_row, to_k);             \
        else P(copy_lines)(type, factor, &view->rows, of_rows, row_count, of_k, k_count, to, to_k, \
                           to_row);                                                                \
        break;
        LINE_DTYPES(CASE)
#undef CASE
    default:
        break;
    }
}

/* pack_view() where lines lie along k: those of a sliver become a matrix, which is packed as such. */
static void P(turn_view)(const og_cpu_factor *right, int64_t n0, int64_t columns, int64_t k0,
                         int64_t count, REAL *to, const int64_t sliver)
{
    REAL lines[MOST_SLIVER * OG_PRODUCT_BLOCK];
    const og_cpu_factor matrix = {.data = lines,
                                  .dtype = sizeof(REAL) == 8 ? OG_FLOAT64 : OG_FLOAT32,
                                  .stride = OG_PRODUCT_BLOCK,
                                  .k_stride = 1};
    for (int64_t s = 0; s < columns; s += sliver) {
        int64_t some = og_min(sliver, columns - s);
        P(copy_view)(right, n0 + s, some, k0, count, lines, OG_PRODUCT_BLOCK, 1);
        PACK_MATRIX(&matrix, some, count, to + s * OG_PRODUCT_BLOCK);
    }
}

/* A line, and what is behind it, as a row of each sliver. */
OG_FN void P(cut_line)(const REAL *line, int64_t columns, const int64_t sliver, REAL *to)
{
    for (int64_t s = 0; s < columns; s += sliver)
        for (int64_t i = 0; i < sliver; i += LINE_LANES)
            *(LINE_VECTOR *)(to + s * OG_PRODUCT_BLOCK + i) = *(const LINE_VECTOR *)(line + s + i);
}

/* Columns [n0, n0 + columns) of right, at most OG_PRODUCT_WHOLE, as slivers of `sliver` columns,
 * each of OG_PRODUCT_BLOCK k: a line goes over all of them, and is cut then. What is beyond the
 * last column is 0. */
static void P(pack_view)(const og_cpu_factor *right, int64_t n0, int64_t columns, int64_t k0,
                         int64_t count, REAL *to, const int64_t sliver)
{
    const og_cpu_view *view = right->view;
    REAL line[OG_PRODUCT_WHOLE + 64];
    if (P(lies_along_k)(view)) {
        P(turn_view)(right, n0, columns, k0, count, to, sliver);
        return;
    }
    P(stretch) of_rows[OG_PRODUCT_WHOLE], of_k[OG_PRODUCT_BLOCK];
    int64_t row_count = P(list_places)(&view->rows, view->window_count, n0, columns, true, of_rows);
    int64_t k_count = P(list_places)(&view->k, view->window_count, k0, count, false, of_k);
    memset(line + columns, 0, 64 * sizeof *line);
    switch (right->dtype) {
#define CASE(type)                                                                                 \
    case type:                                                                                     \
        for (int64_t k = 0; k < k_count; k++) {                                                    \
            P(copy_line)(type, right, &view->rows, of_rows, row_count, of_k + k, line, 1);         \
            P(cut_line)(line, columns, sliver, to + k * sliver);                                   \
        }                                                                                          \
        break;
        LINE_DTYPES(CASE)
#undef CASE
    default:
        break;
    }
}
#undef LINE_DTYPES
#undef MOST_SLIVER
#undef LINE_VECTOR
#undef LINE_LANES
#undef PACK_MATRIX
#undef REAL
#undef P
