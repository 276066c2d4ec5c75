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

bool og_kernel_stores(const og_kernel *kernel, int32_t access)
{
    return kernel->accesses[access].is_store;
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

/* " window [i3 * 13 / 7, tap i5]": one that cuts a dim. */
static void print_cut(const og_window *window, og_text *text)
{
    int32_t bits = window->uneven.bits;
    og_text_add(text, " window [");
    if (window->place >= 0)
        og_text_add(text, "i%d * %lld / %lld", (int)window->place,
                    (long long)(window->step >> bits), (long long)(window->divisor >> bits));
    else
        og_text_add(text, "0");
    if (window->tap >= 0)
        og_text_add(text, ", tap i%d", (int)window->tap);
    og_text_add(text, "] of %lld stride %lld", (long long)window->extent,
                (long long)window->stride);
}

/* " window [2 i3 + i5 - 1] of 56 stride 1": what it sees of a dim at index i of the space. */
static void print_window(const og_window *window, bool is_factor, og_text *text)
{
    if (window->uneven.bits) {
        print_cut(window, text);
        return;
    }
    const int32_t dims[] = {window->place, window->tap};
    const int64_t factors[] = {window->step, window->reach};
    og_text_add(text, window->divisor > 1 ? " window [(" : " window [");
    bool first = true;
    for (int i = 0; i < 2; i++) {
        if (dims[i] < 0)
            continue;
        int64_t size = factors[i] < 0 ? -factors[i] : factors[i];
        og_text_add(text, "%s", factors[i] < 0 ? (first ? "-" : " - ") : first ? "" : " + ");
        if (size != 1)
            og_text_add(text, "%lld ", (long long)size);
        og_text_add(text, is_factor && i ? "k%d" : "i%d", (int)dims[i]);
        first = false;
    }
    if (window->start || first)
        og_text_add(text, first ? "%s%lld" : " %s %lld",
                    window->start < 0 ? "-"
                    : first           ? ""
                                      : "+",
                    (long long)(window->start < 0 ? -window->start : window->start));
    if (window->divisor > 1)
        og_text_add(text, ") / %lld", (long long)window->divisor);
    og_text_add(text, "] of %lld stride %lld", (long long)window->extent,
                (long long)window->stride);
}

static void print_access(const og_plan *plan, const char *const *names, const og_kernel *kernel,
                         const og_access *access, bool is_factor, og_text *text)
{
    char strides[OG_SHAPE_TEXT];
    if (access->buffer < 0)
        og_text_add(text, "number");
    else
        print_buffer(plan, names, access->buffer, text);
    og_text_add(text, " %s strides %s", og_dtype_name(access->dtype),
                og_shape_text(kernel->space.rank, access->stride, strides));
    if (access->offset)
        og_text_add(text, " from %lld", (long long)access->offset);
    for (int32_t w = 0; w < access->window_count; w++)
        print_window(&access->windows[w], is_factor, text);
    if (access->window_count)
        og_text_add(text, " else %g", access->fill);
}

static void print_k(const og_product *product, int side, og_text *text)
{
    char strides[OG_SHAPE_TEXT];
    const og_k_dims *k = &product->k_dims;
    if (k->rank)
        og_text_add(text, " k strides %s", og_shape_text(k->rank, k->stride[side], strides));
    else
        og_text_add(text, " k stride %lld",
                    (long long)(side ? product->right_k_stride : product->left_k_stride));
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
        print_access(plan, names, kernel, &kernel->accesses[instr->index], false, text);
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
        og_text_add(text, ": k %lld", (long long)product->k);
        if (product->k_dims.rank)
            og_text_add(text, " %s",
                        og_shape_text(product->k_dims.rank, product->k_dims.extent, row));
        og_text_add(text, ", left ");
        print_access(plan, names, kernel, &product->left, true, text);
        print_k(product, 0, text);
        og_text_add(text, ", right ");
        print_access(plan, names, kernel, &product->right, true, text);
        print_k(product, 1, text);
        og_text_add(text, "\n");
    }
    for (int32_t p = 0; p < kernel->pass_count; p++) {
        const og_pass *pass = &kernel->passes[p];
        if (kernel->pass_count > 1)
            og_text_add(text, "  pass %d", (int)p);
        for (int32_t g = 0; g < pass->guard_count; g++)
            og_text_add(text, "%s%%%d is not 1", g ? " or " : ", where ", (int)pass->guards[g]);
        if (kernel->pass_count > 1)
            og_text_add(text, "\n");
        print_pass(plan, names, kernel, &kernel->passes[p], text);
    }
}
