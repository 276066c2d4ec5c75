/* SPDX-License-Identifier: MIT
 *
 * pytorch_launch.c - the C++ function that checks tensors, makes results and runs the
 * kernels of a program. Sizes are n0, n1, ...; tensors have the names that are given,
 * what is kept between kernels is kept<n>, results are result<n>.
 */
#include "pytorch/pytorch_program.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    const og_pytorch_program *program;
    const og_pytorch_sizes *sizes;
    const og_pytorch_role *roles;
    const char *const *names;
    bool is_gradient;
    uint64_t *needs; /* [kernel] */
    og_text *text;
} writer;

static bool is_tensor(const writer *w, int32_t input)
{
    return input < w->program->tensor_count && w->roles[input] != OG_PYTORCH_SCALAR;
}

static int32_t first_tensor(const writer *w)
{
    int32_t first = 0;
    while (!is_tensor(w, first))
        first++;
    return first;
}

static void add_size(const writer *w, int64_t value)
{
    char text[OG_SIZE_TEXT];
    og_text_add(w->text, "%s", og_pytorch_size_text(w->sizes, value, text));
}

/* "{n0, 1}" */
static void add_sizes(const writer *w, int32_t rank, const int64_t *shape)
{
    og_text_add(w->text, "{");
    for (int32_t d = 0; d < rank; d++) {
        og_text_add(w->text, d ? ", " : "");
        add_size(w, shape[d]);
    }
    og_text_add(w->text, "}");
}

/* ---- checks --------------------------------------------------------------------------- */

static void add_dim_check(const writer *w, int32_t input, int32_t d, bool *known)
{
    int64_t value = w->program->plan.buffers[input].shape[d];
    int32_t c = 0;
    while (c < w->sizes->count && (w->sizes->is_fixed[c] || w->sizes->value[c] != value))
        c++;
    if (c < w->sizes->count && !known[c]) {
        known[c] = true;
        og_text_add(w->text, "    const int64_t n%d = %s.size(%d);\n", (int)c, w->names[input],
                    (int)d);
        return;
    }
    og_text_add(w->text, "    check_size(%s, \"%s\", %d, ", w->names[input],
                w->program->graph.inputs[input].name, (int)d);
    add_size(w, value);
    og_text_add(w->text, ");\n");
}

static void add_checks(const writer *w)
{
    const og_pytorch_program *p = w->program;
    bool known[OG_MAX_RANK * OG_MAX_RESULTS] = {false};
    const char *first = w->names[first_tensor(w)];
    for (int32_t i = 0; i < p->tensor_count; i++) {
        const og_buffer *buffer = &p->plan.buffers[i];
        if (!is_tensor(w, i))
            continue;
        bool any_rank = p->is_uniform && buffer->rank;
        og_text_add(w->text, "    check_tensor(%s, \"%s\", ", w->names[i], p->graph.inputs[i].name);
        if (any_rank)
            og_text_add(w->text, "%s.dim(), %s);\n", first, first);
        else
            og_text_add(w->text, "%d, %s);\n", (int)buffer->rank, first);
        for (int32_t d = 0; d < buffer->rank && !p->is_uniform; d++)
            add_dim_check(w, i, d, known);
        if (any_rank && i != first_tensor(w))
            og_text_add(w->text,
                        "    for (int64_t d = 0; d < %s.dim(); d++)\n"
                        "        check_size(%s, \"%s\", d, %s.size(d));\n",
                        first, w->names[i], p->graph.inputs[i].name, first);
    }
    if (p->is_uniform)
        og_text_add(w->text,
                    "    TORCH_CHECK_VALUE(%s.dim() <= MAX_DIMS, \"%s has \", %s.dim(), \" dims: "
                    "expected at most 8\");\n",
                    first, p->graph.inputs[first_tensor(w)].name, first);
}

static void add_numbers(const writer *w)
{
    const og_pytorch_program *p = w->program;
    char number[OG_NUMBER_TEXT];
    bool any = false;
    if (!og_pytorch_number(p, w->roles, p->graph.input_count))
        return;
    og_text_add(w->text, "    const double numbers[] = {");
    for (int32_t i = 0; i < p->tensor_count; i++)
        if (w->roles[i] == OG_PYTORCH_SCALAR) {
            og_text_add(w->text, "%s%s", any ? ", " : "", w->names[i]);
            any = true;
        }
    for (int32_t c = 0; c < p->count_count; c++) {
        const og_pytorch_count *count = &p->counts[c];
        og_text_add(w->text, "%sstd::max(1.0", any ? ", " : "");
        for (int32_t d = 0; d < count->rank; d++) {
            og_text_add(w->text, " * ");
            add_size(w, count->factors[d]);
        }
        og_text_add(w->text, " - %s, 0.0)", og_number_text(count->correction, number));
        any = true;
    }
    og_text_add(w->text, "};\n");
}

/* ---- which kernels a result needs -------------------------------------------------------- */

static bool reads(const og_kernel *kernel, int32_t buffer)
{
    for (int32_t a = 0; a < kernel->access_count; a++)
        if (kernel->accesses[a].buffer == buffer && !og_kernel_stores(kernel, a))
            return true;
    for (int32_t p = 0; p < kernel->product_count; p++)
        if (kernel->products[p].left.buffer == buffer || kernel->products[p].right.buffer == buffer)
            return true;
    return false;
}

/* Bit r: kernel k has to run for result r. of: those of the kernels after it. */
static uint64_t find_needs(const og_plan *plan, int32_t k, const uint64_t *of)
{
    const og_kernel *kernel = &plan->kernels[k];
    uint64_t needs = 0;
    for (int32_t a = 0; a < kernel->access_count; a++) {
        const og_buffer *buffer = &plan->buffers[kernel->accesses[a].buffer];
        if (!og_kernel_stores(kernel, a))
            continue;
        if (buffer->kind == OG_BUFFER_OUTPUT)
            needs |= UINT64_C(1) << buffer->index;
        for (int32_t later = k + 1; later < plan->kernel_count; later++)
            if (reads(&plan->kernels[later], kernel->accesses[a].buffer))
                needs |= of[later];
    }
    return needs;
}

void og_pytorch_find_needs(const og_plan *plan, uint64_t *needs)
{
    for (int32_t k = plan->kernel_count - 1; k >= 0; k--)
        needs[k] = find_needs(plan, k, needs);
}

/* ---- a kernel -------------------------------------------------------------------------------- */

static void add_buffer_name(const writer *w, int32_t index)
{
    const og_buffer *buffer = &w->program->plan.buffers[index];
    if (buffer->kind == OG_BUFFER_INPUT)
        og_text_add(w->text, "%s", w->names[buffer->index]);
    else if (buffer->kind == OG_BUFFER_OUTPUT)
        og_text_add(w->text, "result%d", (int)buffer->index);
    else
        og_text_add(w->text, "kept%d",
                    (int)(index - w->program->plan.input_count - w->program->plan.output_count));
}

/* What the kernel stores is made first. */
static void add_results(const writer *w, const og_kernel *kernel)
{
    const og_plan *plan = &w->program->plan;
    for (int32_t a = 0; a < kernel->access_count; a++) {
        int32_t index = kernel->accesses[a].buffer;
        const og_buffer *buffer = &plan->buffers[index];
        if (!og_kernel_stores(kernel, a))
            continue;
        og_text_add(w->text, "        ");
        add_buffer_name(w, index);
        bool is_kept = buffer->kind == OG_BUFFER_TEMPORARY;
        bool any_rank = w->program->is_uniform && buffer->rank;
        og_text_add(w->text, is_kept ? " = at::empty(" : " = new_result(");
        if (any_rank)
            og_text_add(w->text, "%s.sizes()", w->names[first_tensor(w)]);
        else
            add_sizes(w, buffer->rank, buffer->shape);
        if (!is_kept) {
            bool any = false;
            og_text_add(w->text, ", {");
            for (int32_t i = 0; i < w->program->tensor_count; i++) {
                const og_buffer *like = &plan->buffers[i];
                if (is_tensor(w, i) && like->rank && like->rank == buffer->rank &&
                    !memcmp(like->shape, buffer->shape, sizeof like->shape)) {
                    og_text_add(w->text, "%s%s", any ? ", " : "", w->names[i]);
                    any = true;
                }
            }
            og_text_add(w->text, "}");
        }
        og_text_add(w->text, ", %s);\n", is_kept ? "kept_options" : "options");
    }
}

/* bind(a, number, tensor, {its dim of each of the space's}) */
static void add_bind(const writer *w, const og_kernel *kernel, const og_access *access,
                     int32_t number, const char *tensor)
{
    int32_t dims[OG_MAX_RANK];
    og_pytorch_access_dims(&w->program->plan, kernel, access, dims);
    og_text_add(w->text, "        bind(a, %d, ", (int)number);
    if (tensor)
        og_text_add(w->text, "%s", tensor);
    else
        add_buffer_name(w, access->buffer);
    og_text_add(w->text, ", {");
    for (int32_t d = 0; d < kernel->space.rank; d++)
        og_text_add(w->text, "%s%d", d ? ", " : "", (int)dims[d]);
    og_text_add(w->text, "});\n");
}

static void add_operands(const writer *w, const og_kernel *kernel)
{
    for (int32_t i = 0; i < kernel->access_count; i++) {
        if (og_pytorch_is_number(w->program, w->roles, &kernel->accesses[i]))
            continue;
        int32_t rank = w->program->plan.buffers[kernel->accesses[i].buffer].rank;
        if (!w->program->is_uniform) {
            add_bind(w, kernel, &kernel->accesses[i], i, NULL);
            continue;
        }
        og_text_add(w->text, rank ? "        bind_all(a, %d, " : "        bind(a, %d, ", (int)i);
        add_buffer_name(w, kernel->accesses[i].buffer);
        og_text_add(w->text, rank ? ");\n" : ", {});\n");
    }
}

static void add_space(const writer *w, const og_kernel *kernel)
{
    int32_t rank = kernel->space.rank, kept = rank - kernel->space.n_reduced;
    if (w->program->is_uniform) {
        og_text_add(w->text,
                    "        a.kept = (int)%s.dim();\n"
                    "        std::copy(%s.sizes().begin(), %s.sizes().end(), a.extent);\n",
                    w->names[first_tensor(w)], w->names[first_tensor(w)],
                    w->names[first_tensor(w)]);
    } else {
        og_text_add(w->text, "        a.kept = %d;\n        a.reduced = %d;\n        ", (int)kept,
                    (int)(rank - kept));
        og_text_add(w->text, "set_extents(a, ");
        add_sizes(w, rank, kernel->space.extent);
        og_text_add(w->text, ");\n");
    }
    if (og_pytorch_number(w->program, w->roles, w->program->graph.input_count))
        og_text_add(w->text,
                    "        std::copy(std::begin(numbers), std::end(numbers), a.number);\n");
}

/* "{"Forward0", 2, ...}": what Facts holds. */
static void add_facts(const writer *w, const og_kernel *kernel, const char *name)
{
    const og_plan *plan = &w->program->plan;
    const og_cuda_facts *facts = &w->program->units[kernel - plan->kernels].facts;
    const og_reduced_facts *r = &facts->reduced;
    unsigned results = 0, stored = 0, kept = 0, numbers = 0;
    for (int32_t a = 0; a < kernel->access_count; a++) {
        og_buffer_kind kind = plan->buffers[kernel->accesses[a].buffer].kind;
        results |= (unsigned)(kind == OG_BUFFER_OUTPUT) << a;
        stored |= (unsigned)og_kernel_stores(kernel, a) << a;
        kept |= (unsigned)(kind == OG_BUFFER_TEMPORARY) << a;
        numbers |= (unsigned)og_pytorch_is_number(w->program, w->roles, &kernel->accesses[a]) << a;
    }
    og_text_add(w->text, "{\"%s\", %d, 0x%x, 0x%x, 0x%x, 0x%x, %d, %d", name,
                (int)kernel->access_count, results, stored, kept, numbers, facts->is_costly,
                (int)facts->wanted_blocks);
    if (kernel->space.n_reduced && !kernel->product_count)
        og_text_add(w->text, ",\n            {%d, %d, %d, %d, %d, %d, %d, %d, %d}", (int)r->kept,
                    r->keeps_halves, r->is_costly, r->has_terms, r->loads_more, (int)r->sum_bytes,
                    (int)r->all_bytes, (int)r->loads, (int)r->loads_beside);
    og_text_add(w->text, "}");
}

/* A kernel without products. */
static void add_any(const writer *w, const og_kernel *kernel, const char *name)
{
    og_text_add(w->text, "        static const Facts facts = ");
    add_facts(w, kernel, name);
    og_text_add(w->text, ";\n        if (!run_%s(facts, a, options))\n            return {};\n",
                kernel->space.n_reduced ? "reduced" : "vectors");
}

/* The dims of a factor that are summed: all that are not the result's. */
static void add_summed(const writer *w, const og_kernel *kernel, const og_access *access,
                       bool sizes_only)
{
    const og_buffer *buffer = &w->program->plan.buffers[access->buffer];
    int32_t dims[OG_MAX_RANK];
    bool any = false;
    og_pytorch_access_dims(&w->program->plan, kernel, access, dims);
    for (int32_t e = 0; e < buffer->rank; e++) {
        bool is_kept = buffer->shape[e] == 1;
        for (int32_t d = 0; d < kernel->space.rank; d++)
            is_kept |= dims[d] == e;
        if (is_kept)
            continue;
        og_text_add(w->text, !any ? "" : sizes_only ? " * " : ", ");
        any = true;
        if (sizes_only)
            add_size(w, buffer->shape[e]);
        else
            og_text_add(w->text, "%d", (int)e);
    }
    if (!any && sizes_only)
        og_text_add(w->text, "1");
}

/* Hopper's kernels, if the product has any: they are asked first. */
static bool add_hopper(const writer *w, const og_kernel *kernel, const char *name)
{
    const og_pytorch_program *p = w->program;
    const int32_t last = kernel->space.rank - 1;
    unsigned neighbours = 0, still = 0;
    const char *source = p->units[kernel - p->plan.kernels].hopper;
    if (!source)
        return false;
    for (int32_t i = 0; i < kernel->access_count; i++) {
        neighbours |= (unsigned)(kernel->accesses[i].stride[last] == 1) << i;
        still |= (unsigned)(kernel->accesses[i].stride[last] == 0) << i;
    }
    og_text_add(w->text,
                "        const int hopper = run_hopper(\n            {\"%s\", \"%s_hopper\", %d, "
                "0x%x, 0x%x, %d, "
                "%s}, a, %d, %d, a.k, a.k_stride, options);\n"
                "        if (hopper < 0)\n            return {};\n",
                name, name, (int)kernel->access_count, neighbours, still,
                og_pytorch_unit_number(source, "OG_SUM_BYTES"),
                og_pytorch_unit_number(source, "OG_REDUCES") ? "true" : "false",
                (int)kernel->matrices.batch_rank, (int)kernel->matrices.m_rank);
    return true;
}

static void add_product(const writer *w, const og_kernel *kernel, const char *name)
{
    const og_plan *plan = &w->program->plan;
    const og_matrices *of = &kernel->matrices;
    bool is_kept[2];
    for (int32_t i = 0; i < 2; i++) {
        const og_access *factor = og_factor_of(kernel, 0, i).access;
        char tensor[32];
        is_kept[i] = plan->buffers[factor->buffer].kind == OG_BUFFER_TEMPORARY;
        snprintf(tensor, sizeof tensor, "factor%d", (int)i);
        og_text_add(w->text, "        Tensor %s = ", tensor);
        add_buffer_name(w, factor->buffer);
        og_text_add(w->text, ";\n        a.k_stride[%d] = join_summed(%s, {", (int)i, tensor);
        add_summed(w, kernel, factor, false);
        og_text_add(w->text, "});\n");
        add_bind(w, kernel, factor, kernel->access_count + i, tensor);
    }
    og_text_add(w->text, "        a.k = ");
    add_summed(w, kernel, &kernel->products[0].left, true);
    og_text_add(w->text, ";\n");
    bool has_hopper = add_hopper(w, kernel, name);
    og_text_add(w->text, "        static const ProductFacts facts = {");
    add_facts(w, kernel, name);
    og_text_add(w->text, ", %d, %d, %d, %d, {%d, %d}, %d, %d};\n", (int)of->batch_rank,
                (int)of->m_rank, (int)of->n_rank,
                (int)(kernel->space.rank - kernel->space.n_reduced), is_kept[0], is_kept[1],
                kernel->products[0].exchanged, kernel->space.n_reduced > 0);
    og_text_add(w->text, "        if (%s!run_product(facts, a, options))\n            return {};\n",
                has_hopper ? "hopper == 0 && " : "");
}

static void add_kernel(const writer *w, int32_t k)
{
    const og_kernel *kernel = &w->program->plan.kernels[k];
    char name[32], kind[64];
    snprintf(name, sizeof name, "%s%d", w->program->name, (int)k);
    og_kernel_name(kernel, kind);
    uint64_t needs = w->needs[k], all = 0;
    for (int32_t r = 0; r < w->program->plan.output_count; r++)
        all |= UINT64_C(1) << r;
    og_text_add(w->text, "    ");
    if (w->is_gradient && needs != all) {
        bool any = false;
        og_text_add(w->text, "if (");
        for (int32_t r = 0; r < w->program->plan.output_count; r++)
            if (needs >> r & 1) {
                og_text_add(w->text, "%sneeds[%d]", any ? " || " : "", (int)r);
                any = true;
            }
        og_text_add(w->text, ") ");
    }
    og_text_add(w->text, "{ /* %s: %s */\n", name, kind);
    add_results(w, kernel);
    og_text_add(w->text, "        Args a = {};\n");
    add_space(w, kernel);
    add_operands(w, kernel);
    if (og_pytorch_form(kernel) == OG_KERNEL_PRODUCT)
        add_product(w, kernel, name);
    else
        add_any(w, kernel, name);
    og_text_add(w->text, "    }\n");
}

/* ---- all of it ---------------------------------------------------------------------------------- */

void og_pytorch_add_signature(const og_pytorch_program *program, const og_pytorch_role *roles,
                              const char *const *names, bool is_gradient, og_text *text)
{
    og_text_add(text, "std::vector<at::Tensor> %s(", is_gradient ? "backward" : "forward");
    for (int32_t i = 0; i < program->tensor_count; i++)
        og_text_add(text, "%s%s%s", i ? ", " : "",
                    roles[i] == OG_PYTORCH_SCALAR ? "double " : "at::Tensor ", names[i]);
    og_text_add(text, is_gradient ? ", const std::vector<bool> &needs)" : ")");
}

void og_pytorch_add_launches(const og_pytorch_program *program, const og_pytorch_sizes *sizes,
                             const og_pytorch_role *roles, const char *const *names,
                             bool is_gradient, og_text *text)
{
    writer w = {.program = program,
                .sizes = sizes,
                .roles = roles,
                .names = names,
                .is_gradient = is_gradient,
                .text = text};
    const og_plan *plan = &program->plan;
    const char *first = names[first_tensor(&w)];
    og_arena arena = {0};
    og_text_add(text, "\n");
    w.needs = OG_ARENA_NEW(&arena, uint64_t, (size_t)plan->kernel_count);
    if (!w.needs) {
        text->failed = true;
        return;
    }
    og_pytorch_find_needs(plan, w.needs);
    og_text_add(text, "\n");
    og_pytorch_add_signature(program, roles, names, is_gradient, text);
    og_text_add(text, "\n{\n");
    add_checks(&w);
    add_numbers(&w);
    og_text_add(text,
                "    const c10::DeviceGuard guard(%s.device());\n"
                "    const at::TensorOptions options = %s.options();\n",
                first, first);
    if (plan->buffer_count > plan->input_count + plan->output_count)
        og_text_add(
            text,
            "    const at::TensorOptions kept_options =\n"
            "        options.dtype(%s.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);\n",
            first);
    for (int32_t b = plan->input_count; b < plan->buffer_count; b++) {
        og_text_add(text, b == plan->input_count ? "    Tensor " : ", ");
        add_buffer_name(&w, b);
    }
    og_text_add(text, ";\n");
    for (int32_t k = 0; k < plan->kernel_count; k++)
        add_kernel(&w, k);
    og_text_add(text, "    return {");
    for (int32_t r = 0; r < plan->output_count; r++)
        og_text_add(text, "%sresult%d", r ? ", " : "", (int)r);
    og_text_add(text, "};\n}\n");
    og_arena_free(&arena);
}
