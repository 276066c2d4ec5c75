/* SPDX-License-Identifier: MIT
 *
 * cpu_product_view.h - a factor that is not a matrix (og_cpu_view), copied into the order of the
 * micro-kernel; included by cpu_product_template.c once for float and once for double.
 *
 * Copied are lines, along rows or along k, whichever lies closer in memory. Lines are cut where
 * the last dim of their axis ends; of such a stretch a window sees some in the middle, and what it
 * does not see is 0.
 *
 * PARAMETERS
 *   REAL                              float or double
 *   P(name)                           name of a function of this type
 *   P(load_element)(dtype, from, i)   element i, as REAL
 *   LINE_DTYPES(X)                    X(dtype) for all dtypes that are computed in this type
 *   MOST_SLIVER                       columns of a sliver
 *   PACK_MATRIX(matrix, columns, count, to)   packs a sliver of a factor that has no view
 */

/* Some indices of an axis one after the other, all in its last dim: to[first..] of a line. */
typedef struct {
    int64_t first, count, offset, places[OG_MAX_WINDOWS];
} P(stretch);

/* Where indices [from, from + count) of an axis are: one by one, or (stretches) as such. Returns
 * how many. */
static int64_t P(list_places)(const og_cpu_line *axis, int32_t windows, int64_t from, int64_t count,
                              bool stretches, P(stretch) * to)
{
    int64_t at[OG_MAX_RANK] = {0}, listed = 0;
    int32_t last = axis->rank - 1;
    for (int32_t d = last; d >= 0; d--) {
        at[d] = from % axis->extent[d];
        from /= axis->extent[d];
    }
    for (int64_t done = 0, some; done < count; done += some, listed++) {
        some = stretches && last >= 0 ? og_min(count - done, axis->extent[last] - at[last]) : 1;
        P(stretch) *s = &to[listed];
        *s = (P(stretch)){.first = done, .count = some};
        for (int32_t d = 0; d <= last; d++) {
            s->offset += at[d] * axis->stride[d];
            for (int32_t w = 0; w < windows; w++)
                s->places[w] += at[d] * axis->step[w][d];
        }
        if (last >= 0)
            at[last] += some;
        for (int32_t d = last; d > 0 && at[d] == axis->extent[d]; d--) {
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
    if (step == 1) {
        *first = og_max(*first, -place);
        *end = og_min(*end, extent - place);
    } else if (step == 0) {
        *end = place >= 0 && place < extent ? *end : *first;
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

/* to[i * to_step] = element i of count, those in [first, end) from memory; the others are 0. */
OG_FN void P(copy_stretch)(const og_dtype dtype, const char *data, int64_t offset, int64_t stride,
                           int64_t count, int64_t first, int64_t end, REAL *to, int64_t to_step)
{
    const void *from = data + (first < end ? offset + first * stride : 0) * bytes_of(dtype);
    for (int64_t i = 0; i < first; i++)
        to[i * to_step] = 0;
    for (int64_t i = end; i < count; i++)
        to[i * to_step] = 0;
    to += first * to_step;
    if (stride == 1 && to_step == 1 && bytes_of(dtype) == sizeof(REAL))
        memcpy(to, from, (size_t)(end - first) * sizeof(REAL));
    else if (stride == 1 && to_step == 1)
        for (int64_t i = 0; i < end - first; i++)
            to[i] = P(load_element)(dtype, from, i);
    else
        for (int64_t i = 0; i < end - first; i++)
            to[i * to_step] = P(load_element)(dtype, from, i * stride);
}

/* One line, of stretches, for each of count places of the other axis. */
OG_FN void P(copy_lines)(const og_dtype dtype, const og_cpu_factor *factor,
                         const og_cpu_line *along, const P(stretch) * stretches,
                         int64_t stretch_count, const P(stretch) * others, int64_t count, REAL *to,
                         int64_t to_other, int64_t to_step)
{
    const og_cpu_view *view = factor->view;
    int32_t last = along->rank - 1;
    int64_t stride = last < 0 ? 0 : along->stride[last];
    for (int64_t i = 0; i < count; i++)
        for (int64_t s = 0; s < stretch_count; s++) {
            int64_t first = 0, end = stretches[s].count;
            for (int32_t w = 0; w < view->window_count; w++)
                P(look)
                (factor->places[w] + others[i].places[w] + stretches[s].places[w],
                 last < 0 ? 0 : along->step[w][last], view->extent[w], &first, &end);
            P(copy_stretch)
            (dtype, factor->data, factor->offset + others[i].offset + stretches[s].offset, stride,
             stretches[s].count, first, end, to + i * to_other + stretches[s].first * to_step,
             to_step);
        }
}

static int64_t P(reach_of)(const og_cpu_line *axis)
{
    int64_t stride = axis->rank ? axis->stride[axis->rank - 1] : 0;
    return stride < 0 ? -stride : stride ? stride : INT64_MAX;
}

/* to[row * to_row + k * to_k] = element (row0 + row, k0 + k), of rows and a block of k at most. */
static void P(copy_view)(const og_cpu_factor *factor, int64_t row0, int64_t rows, int64_t k0,
                         int64_t count, REAL *to, int64_t to_row, int64_t to_k)
{
    const og_cpu_view *view = factor->view;
    P(stretch) of_rows[OG_PRODUCT_BLOCK], of_k[OG_PRODUCT_BLOCK];
    bool by_k = P(reach_of)(&view->k) < P(reach_of)(&view->rows);
    int64_t row_count = P(list_places)(&view->rows, view->window_count, row0, rows, !by_k, of_rows);
    int64_t k_count = P(list_places)(&view->k, view->window_count, k0, count, by_k, of_k);
    switch (factor->dtype) {
#define CASE(type)                                                                                 \
    case type:                                                                                     \
        if (by_k)                                                                                  \
            P(copy_lines)                                                                          \
            (type, factor, &view->k, of_k, k_count, of_rows, row_count, to, to_row, to_k);         \
        else                                                                                       \
            P(copy_lines)                                                                          \
            (type, factor, &view->rows, of_rows, row_count, of_k, k_count, to, to_k, to_row);      \
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

/* Columns [n0, n0 + columns) of right, at most OG_PRODUCT_WHOLE, as slivers of `sliver` columns, each
 * of OG_PRODUCT_BLOCK k: a line goes over all of them, and is cut then. What is beyond the last
 * column is 0. */
static void P(pack_view)(const og_cpu_factor *right, int64_t n0, int64_t columns, int64_t k0,
                         int64_t count, REAL *to, const int64_t sliver)
{
    const og_cpu_view *view = right->view;
    REAL line[OG_PRODUCT_WHOLE + 64];
    if (P(reach_of)(&view->k) < P(reach_of)(&view->rows)) {
        P(turn_view)(right, n0, columns, k0, count, to, sliver);
        return;
    }
    P(stretch) of_rows[OG_PRODUCT_WHOLE], of_k[OG_PRODUCT_BLOCK];
    int64_t row_count =
        P(list_places)(&view->rows, view->window_count, n0, columns, true, of_rows);
    int64_t k_count = P(list_places)(&view->k, view->window_count, k0, count, false, of_k);
    memset(line + columns, 0, 64 * sizeof *line);
    for (int64_t k = 0; k < k_count; k++) {
        switch (right->dtype) {
#define CASE(type)                                                                                 \
    case type:                                                                                     \
        P(copy_lines)(type, right, &view->rows, of_rows, row_count, of_k + k, 1, line, 0, 1);      \
        break;
            LINE_DTYPES(CASE)
#undef CASE
        default:
            break;
        }
        for (int64_t s = 0; s < columns; s += sliver)
            memcpy(to + s * OG_PRODUCT_BLOCK + k * sliver, line + s,
                   (size_t)sliver * sizeof *line);
    }
}
#undef LINE_DTYPES
#undef MOST_SLIVER
#undef PACK_MATRIX
#undef REAL
#undef P
