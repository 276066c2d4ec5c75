/* SPDX-License-Identifier: MIT
 *
 * cpu_packed.c - see cpu_packed.h. Elements keep their dtype and are only moved, so one
 * plain copy serves every CPU level.
 */
#include "cpu/cpu_packed.h"

#include <inttypes.h>
#include <string.h>

static const char magic[8] = {'o', 'g', 'i', 'v', 'e', 'p', 'k', '1'};

/* All that the memory depends on. No padding: it is compared as a whole. */
typedef struct {
    char magic[8];
    int64_t n, k;
    int32_t dtype, sliver; /* columns */
} header;

_Static_assert(sizeof(header) == 32 && sizeof(header) <= OG_CPU_PACKED_HEADER, "header");

bool og_cpu_is_packed(const og_cpu_state *state, const og_buffer *buffer)
{
    return buffer->kind == OG_BUFFER_INPUT && buffer->index < 64 &&
           (state->packed >> buffer->index & 1);
}

/* ---- what can be packed ---------------------------------------------------------------- */

/* The product that has the input on its right, as product *index of its kernel, or NULL. */
static const og_cpu_product *find_product(const og_plan *plan, const og_cpu_state *state,
                                          int32_t input, int32_t *index)
{
    for (int32_t i = 0; i < plan->kernel_count; i++) {
        const og_cpu_product *product = state->compiled[i].product;
        for (int32_t p = 0; product && p < product->count; p++)
            if (product->buffers[p][1] == input) {
                *index = p;
                return product;
            }
    }
    return NULL;
}

static int32_t count_uses(const og_plan *plan, int32_t input)
{
    int32_t uses = 0;
    for (int32_t i = 0; i < plan->kernel_count; i++) {
        const og_kernel *kernel = &plan->kernels[i];
        for (int32_t a = 0; a < kernel->access_count; a++)
            uses += kernel->accesses[a].buffer == input;
        for (int32_t p = 0; p < kernel->product_count; p++)
            uses += (kernel->products[p].left.buffer == input) +
                    (kernel->products[p].right.buffer == input);
    }
    return uses;
}

/* The matrix that is packed, by the input's own shape: a space without rows or k says
 * nothing of columns and strides. */
typedef struct {
    header header;
    int64_t stride, k_stride;
} matrix;

static matrix see_matrix(const og_plan *plan, const og_cpu_product *product, int32_t index)
{
    const og_buffer *of = &plan->buffers[product->buffers[index][1]];
    const og_cpu_factor *right = &product->factors[index].right;
    matrix m = {.header = {.n = 1, .k = product->k, .dtype = (int32_t)right->dtype}};
    memcpy(m.header.magic, magic, sizeof magic);
    m.header.sliver = product->kernels->sliver_columns / (right->dtype == OG_FLOAT64 ? 2 : 1);
    if (of->rank < 2)
        return m;
    /* Of a square without rows on the other side, k is known by its stride alone. */
    int32_t last = of->rank - 1;
    bool k_last = of->shape[last] == product->k &&
                  (of->shape[last - 1] != product->k || of->stride[last] == right->k_stride);
    if (!k_last && of->shape[last - 1] != product->k)
        return m;
    m.header.n = of->shape[k_last ? last - 1 : last];
    m.stride = of->stride[k_last ? last - 1 : last];
    m.k_stride = of->stride[k_last ? last : last - 1];
    return m;
}

/* Does the product use it as that matrix, for all of a batch? */
static bool uses_matrix(const og_cpu_product *product, int32_t index, const matrix *m)
{
    const og_cpu_factor *right = &product->factors[index].right;
    if (product->n == 0 || product->k == 0)
        return true; /* not at all */
    for (int32_t d = 0; d < product->base_rank; d++)
        if (product->base_stride[index][1][d] != 0)
            return false;
    return !product->factors[index].paired && product->n == m->header.n &&
           right->stride == m->stride && (product->k == 1 || right->k_stride == m->k_stride);
}

static bool count_bytes(const header *h, size_t *bytes)
{
    size_t columns = ((size_t)h->n + (size_t)h->sliver - 1) / (size_t)h->sliver * (size_t)h->sliver;
    bool fits = og_mul_size(columns, (size_t)h->k, bytes) &&
                og_mul_size(*bytes, og_dtype_bytes((og_dtype)h->dtype), bytes) &&
                og_add_size(*bytes, OG_CPU_PACKED_HEADER + 63, bytes);
    *bytes = *bytes / 64 * 64;
    return fits && *bytes <= SIZE_MAX / 4;
}

static const char *find_obstacle(const og_plan *plan, const og_cpu_state *state, int32_t input)
{
    int32_t index = 0;
    const og_cpu_product *product = find_product(plan, state, input, &index);
    size_t bytes;
    if (!product)
        return "it is not the right side of a product with two columns or more";
    if (count_uses(plan, input) > 1)
        return "it is used more than once";
    matrix m = see_matrix(plan, product, index);
    if (m.header.n < 2)
        return "the product has fewer than two columns";
    if (!uses_matrix(product, index, &m))
        return "it is not one matrix for all of the batch";
    return count_bytes(&m.header, &bytes) ? NULL : "that would be larger than the address space";
}

ogive_status og_cpu_check_packed(const og_plan *plan, const og_cpu_state *state, ogive_error *error)
{
    for (int32_t i = 0; i < plan->input_count; i++) {
        const char *obstacle = NULL;
        if (og_cpu_is_packed(state, &plan->buffers[i]))
            obstacle = find_obstacle(plan, state, i);
        if (obstacle)
            OG_FAIL(error, OGIVE_UNSUPPORTED, -1, "input '%s' cannot be packed: %s",
                    state->input_names[i], obstacle);
    }
    return OGIVE_OK;
}

/* ---- packing ------------------------------------------------------------------------------ */

size_t og_cpu_packed_bytes(const og_plan *plan, const void *state, int32_t input)
{
    int32_t index = 0;
    size_t bytes = 0;
    if (!og_cpu_is_packed(state, &plan->buffers[input]))
        return 0;
    const og_cpu_product *product = find_product(plan, state, input, &index);
    matrix m = see_matrix(plan, product, index);
    (void)count_bytes(&m.header, &bytes); /* it fitted when the plan was made */
    return bytes;
}

/* to[k][sliver] = from[n][k], n below columns, count k: neighbours in memory one after the
 * other. type: any of the elements' size. */
#define DEFINE_COPY(name, type)                                                                    \
    static void name(type *to, const type *from, const matrix *m, int64_t columns, int64_t count)  \
    {                                                                                              \
        for (int64_t k = 0; k < count && m->stride == 1; k++)                                      \
            for (int64_t n = 0; n < columns; n++)                                                  \
                to[k * m->header.sliver + n] = from[n + k * m->k_stride];                          \
        for (int64_t n = 0; n < columns && m->stride != 1; n++)                                    \
            for (int64_t k = 0; k < count; k++)                                                    \
                to[k * m->header.sliver + n] = from[n * m->stride + k * m->k_stride];              \
    }
DEFINE_COPY(copy_2, uint16_t)
DEFINE_COPY(copy_4, uint32_t)
DEFINE_COPY(copy_8, uint64_t)
#undef DEFINE_COPY

void og_cpu_pack(const og_plan *plan, const void *state, int32_t input, const void *data,
                 void *packed)
{
    enum { BLOCK = 256 }; /* k at a time: what is written stays in the L1 cache */
    int32_t index = 0;
    const og_cpu_product *product = find_product(plan, state, input, &index);
    matrix m = see_matrix(plan, product, index);
    const header *h = &m.header;
    int64_t bytes = (int64_t)og_dtype_bytes((og_dtype)h->dtype);
    memset(packed, 0, og_cpu_packed_bytes(plan, state, input)); /* columns that are not there */
    memcpy(packed, h, sizeof *h);
    for (int64_t n = 0; n < h->n; n += h->sliver)
        for (int64_t k = 0; k < h->k; k += BLOCK) {
            void *to = (char *)packed + OG_CPU_PACKED_HEADER + (n * h->k + k * h->sliver) * bytes;
            const void *from = (const char *)data + (n * m.stride + k * m.k_stride) * bytes;
            int64_t columns = og_min(h->sliver, h->n - n), count = og_min(BLOCK, h->k - k);
            if (bytes == 2)
                copy_2(to, from, &m, columns, count);
            else if (bytes == 4)
                copy_4(to, from, &m, columns, count);
            else
                copy_8(to, from, &m, columns, count);
        }
}

/* ---- running ------------------------------------------------------------------------------ */

ogive_status og_cpu_check_headers(const og_plan *plan, const og_cpu_state *state,
                                  const void *const *inputs, ogive_error *error)
{
    for (int32_t i = 0; i < plan->input_count && state->packed; i++) {
        if (!og_cpu_is_packed(state, &plan->buffers[i]))
            continue;
        int32_t index = 0;
        const og_cpu_product *product = find_product(plan, state, i, &index);
        header want = see_matrix(plan, product, index).header, got;
        memcpy(&got, inputs[i], sizeof got);
        if (memcmp(&got, &want, sizeof want) == 0)
            continue;
        if (memcmp(got.magic, magic, sizeof magic) != 0)
            OG_FAIL(error, OGIVE_ARGUMENT, -1,
                    "input '%s' is not packed: expected what ogive_plan_pack() made of it",
                    state->input_names[i]);
        bool known = got.dtype >= 0 && got.dtype < OG_DTYPE_COUNT;
        OG_FAIL(error, OGIVE_ARGUMENT, -1,
                "input '%s' was packed for another plan: expected %" PRId64 " columns by %" PRId64
                " of %s, %d at a time; got %" PRId64 " by %" PRId64 " of %s, %d at a time",
                state->input_names[i], want.n, want.k, og_dtype_name((og_dtype)want.dtype),
                (int)want.sliver, got.n, got.k,
                known ? og_dtype_name((og_dtype)got.dtype) : "nothing known", (int)got.sliver);
    }
    return OGIVE_OK;
}
