/* SPDX-License-Identifier: MIT
 *
 * plan_print.c - a plan as text: one line per kernel, instruction and reduction.
 * Values are %n, accesses are named by their buffer. Read by explain and by the
 * golden tests.
 */
#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

int64_t og_space_count(const og_space *space, bool rows_only)
{
    int64_t count = 1;
    int32_t rank = rows_only ? space->rank - space->n_reduced : space->rank;
    for (int32_t d = 0; d < rank; d++)
        count *= space->extent[d];
    return count;
}

/* Of what repeats itself in memory, bytes may be more than there are: INT64_MAX at most. */
static int64_t times(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

static int64_t plus(int64_t a, int64_t b)
{
    return a > INT64_MAX - b ? INT64_MAX : a + b;
}

static int64_t access_bytes(const og_space *space, const og_access *access)
{
    int64_t bytes = (int64_t)og_dtype_bytes(access->dtype);
    for (int32_t d = 0; d < space->rank; d++)
        bytes = times(bytes, access->stride[d] || !space->extent[d] ? space->extent[d] : 1);
    return bytes;
}

static int64_t factor_bytes(const og_space *space, const og_product *product, bool is_right)
{
    int64_t k_stride = is_right ? product->right_k_stride : product->left_k_stride;
    return times(access_bytes(space, is_right ? &product->right : &product->left),
                 k_stride || !product->k ? product->k : 1);
}

bool og_kernel_stores(const og_kernel *kernel, int32_t access)
{
    for (int32_t p = 0; p < kernel->pass_count; p++) {
        const og_pass *pass = &kernel->passes[p];
        for (int32_t i = 0; i < pass->element_count; i++)
            if (pass->elements[i].op == OG_OP_STORE && pass->elements[i].index == access)
                return true;
        for (int32_t i = 0; i < pass->row_count; i++)
            if (pass->rows[i].op == OG_OP_STORE && pass->rows[i].index == access)
                return true;
    }
    return false;
}

/* Two accesses of one buffer (x and its transpose) may touch the same elements:
 * only the largest counts. */
void og_kernel_traffic(const og_plan *plan, const og_kernel *kernel, int64_t *bytes_read,
                       int64_t *bytes_written)
{
    *bytes_read = *bytes_written = 0;
    for (int32_t b = 0; b < plan->buffer_count; b++) {
        int64_t read = 0, written = 0;
        for (int32_t a = 0; a < kernel->access_count; a++) {
            if (kernel->accesses[a].buffer != b)
                continue;
            int64_t bytes = access_bytes(&kernel->space, &kernel->accesses[a]);
            int64_t *most = og_kernel_stores(kernel, a) ? &written : &read;
            *most = bytes > *most ? bytes : *most;
        }
        for (int32_t p = 0; p < kernel->product_count; p++)
            for (int side = 0; side < 2; side++) {
                const og_product *product = &kernel->products[p];
                const og_access *at = side ? &product->right : &product->left;
                int64_t bytes = factor_bytes(&kernel->space, product, side);
                read = at->buffer == b && bytes > read ? bytes : read;
            }
        *bytes_read = plus(*bytes_read, read);
        *bytes_written = plus(*bytes_written, written);
    }
}

static void append(char name[64], const char *text)
{
    size_t length = strlen(name);
    snprintf(name + length, 64 - length, "%s%s", length ? " " : "", text);
}

void og_kernel_name(const og_kernel *kernel, char name[64])
{
    bool seen[OG_FUNCTION_COUNT] = {false};
    bool reduces = false;
    name[0] = 0;
    if (kernel->product_count)
        append(name, kernel->product_count > 1 ? "two products" : "product");
    for (int32_t p = 0; p < kernel->pass_count; p++)
        for (int32_t r = 0; r < kernel->passes[p].reduction_count; r++) {
            og_op op = kernel->passes[p].reductions[r].op;
            if (!reduces)
                append(name, kernel->order == OG_ROWS ? "rows" : "columns");
            if (!seen[op])
                append(name, og_function_of(op)->name);
            reduces = seen[op] = true;
        }
    if (!name[0])
        append(name, "pointwise");
}

static void print_buffer(const og_plan *plan, const char *const *names, int32_t buffer,
                         og_text *text)
{
    static const char *const kinds[] = {"input", "output", "temporary"};
    const og_buffer *at = &plan->buffers[buffer];
    int32_t index = at->kind == OG_BUFFER_TEMPORARY
                        ? buffer - plan->input_count - plan->output_count
                        : at->index;
    if (names && at->kind == OG_BUFFER_INPUT)
        og_text_add(text, "%s", names[index]);
    else
        og_text_add(text, "%s%d", kinds[at->kind], (int)index);
}

static void print_access(const og_plan *plan, const char *const *names, const og_kernel *kernel,
                         const og_access *access, og_text *text)
{
    char strides[OG_SHAPE_TEXT];
    print_buffer(plan, names, access->buffer, text);
    og_text_add(text, " %s strides %s", og_dtype_name(access->dtype),
                og_shape_text(kernel->space.rank, access->stride, strides));
}

static const char *op_name(og_op op)
{
    switch (op) {
    case OG_OP_LOAD:
        return "load";
    case OG_OP_CONSTANT:
        return "constant";
    case OG_OP_PRODUCT:
        return "product";
    case OG_OP_CONVERT:
        return "convert";
    case OG_OP_STORE:
        return "store";
    default:
        return op < OG_FUNCTION_COUNT ? og_function_of(op)->name : "?";
    }
}

static void print_instr(const og_plan *plan, const char *const *names, const og_kernel *kernel,
                        const og_instr *instr, og_text *text)
{
    static const char *const types[] = {"f32", "f64", "mask"};
    og_text_add(text, "      ");
    if (instr->dst >= 0)
        og_text_add(text, "%%%d = ", (int)instr->dst);
    og_text_add(text, "%s.%s", op_name(instr->op), types[instr->type]);
    for (int32_t a = 0; a < OG_MAX_ARGS && instr->args[a] >= 0; a++)
        og_text_add(text, " %%%d", (int)instr->args[a]);
    if (instr->op == OG_OP_PRODUCT && kernel->product_count > 1) {
        og_text_add(text, " %d", (int)instr->index);
    } else if (instr->op == OG_OP_LOAD || instr->op == OG_OP_STORE) {
        og_text_add(text, " ");
        print_access(plan, names, kernel, &kernel->accesses[instr->index], text);
    } else if (instr->op == OG_OP_CONVERT) {
        og_text_add(text, " %s", og_dtype_name((og_dtype)instr->index));
    } else if (instr->op == OG_OP_CONSTANT) {
        og_text_add(text, " %.17g", kernel->constants[instr->index]);
    } else if (instr->op < OG_FUNCTION_COUNT) {
        for (int32_t c = 0; c < og_function_of(instr->op)->constants; c++)
            og_text_add(text, " %.17g", kernel->constants[instr->index + c]);
    }
    og_text_add(text, "\n");
}

static void print_pass(const og_plan *plan, const char *const *names, const og_kernel *kernel,
                       const og_pass *pass, og_text *text)
{
    if (pass->element_count)
        og_text_add(text, "    each element\n");
    for (int32_t i = 0; i < pass->element_count; i++)
        print_instr(plan, names, kernel, &pass->elements[i], text);
    if (pass->reduction_count)
        og_text_add(text, "    reduce\n");
    for (int32_t r = 0; r < pass->reduction_count; r++) {
        const og_reduce *reduce = &pass->reductions[r];
        og_text_add(text, "      %%%d = %s.%s %%%d\n", (int)reduce->dst, op_name(reduce->op),
                    reduce->type == OG_F64 ? "f64" : "f32", (int)reduce->source);
    }
    if (pass->row_count)
        og_text_add(text, "    each row\n");
    for (int32_t i = 0; i < pass->row_count; i++)
        print_instr(plan, names, kernel, &pass->rows[i], text);
}

void og_kernel_print(const og_plan *plan, int32_t index, const char *const *names, og_text *text)
{
    const og_kernel *kernel = &plan->kernels[index];
    const og_space *space = &kernel->space;
    int32_t kept = space->rank - space->n_reduced;
    char name[64], rows[OG_SHAPE_TEXT], row[OG_SHAPE_TEXT];
    og_kernel_name(kernel, name);
    og_text_add(text, "kernel %d: %s, space %s", (int)index, name,
                og_shape_text(kept, space->extent, rows));
    if (space->n_reduced)
        og_text_add(text, " rows of %s",
                    og_shape_text(space->n_reduced, space->extent + kept, row));
    og_text_add(text, "\n");
    for (int32_t p = 0; p < kernel->product_count; p++) {
        const og_product *product = &kernel->products[p];
        og_text_add(text, "  product");
        if (kernel->product_count > 1)
            og_text_add(text, " %d", (int)p);
        og_text_add(text, ": k %lld, left ", (long long)product->k);
        print_access(plan, names, kernel, &product->left, text);
        og_text_add(text, " k stride %lld, right ", (long long)product->left_k_stride);
        print_access(plan, names, kernel, &product->right, text);
        og_text_add(text, " k stride %lld\n", (long long)product->right_k_stride);
    }
    for (int32_t p = 0; p < kernel->pass_count; p++) {
        if (kernel->pass_count > 1)
            og_text_add(text, "  pass %d\n", (int)p);
        print_pass(plan, names, kernel, &kernel->passes[p], text);
    }
}
