/* SPDX-License-Identifier: MIT
 *
 * pytorch_kernel.c - what a kernel of the plan computes, as a struct for the templates in
 * pytorch_*.cuh: one specialisation a sweep (a pass of the plan) with
 *
 *     loaded, stored, row_loaded, row_stored    which operands, by place
 *     kind, row_of                              how terms are reduced, and where they go
 *     element(), finish()                       the formula, per element and per row
 *
 * Values of elements are v<n>, of rows r<n>; those that later sweeps need are row[slot].
 */
#include "pytorch/pytorch_program.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_LISTED = 64, NO_SLOT = -1 };

typedef struct {
    const og_pytorch_program *program;
    const og_pytorch_role *roles;
    const og_kernel *kernel;
    og_pytorch_operand *operands; /* [access] */
    int32_t operand_count;
    int32_t *slot; /* [value] in row[], or NO_SLOT */
    int32_t slot_count;
    og_text *text;
} writer;

/* ---- slots --------------------------------------------------------------------------- */

static void keep_value(writer *w, int32_t value, int32_t pass)
{
    const og_value *of = &w->kernel->values[value];
    if (of->level == OG_ROW && of->pass < pass && w->slot[value] == NO_SLOT)
        w->slot[value] = w->slot_count++;
}

static void keep_arguments(writer *w, const og_instr *instrs, int32_t count, int32_t pass)
{
    for (int32_t i = 0; i < count; i++)
        for (int a = 0; a < OG_MAX_ARGS; a++)
            if (instrs[i].args[a] >= 0)
                keep_value(w, instrs[i].args[a], pass);
}

/* What reductions give, and what later sweeps need of rows. */
static void assign_slots(writer *w)
{
    for (int32_t p = 0; p < w->kernel->pass_count; p++) {
        const og_pass *pass = &w->kernel->passes[p];
        keep_arguments(w, pass->elements, pass->element_count, p);
        for (int32_t r = 0; r < pass->reduction_count; r++) {
            keep_value(w, pass->reductions[r].source, p);
            w->slot[pass->reductions[r].dst] = w->slot_count++;
        }
        keep_arguments(w, pass->rows, pass->row_count, p);
    }
}

/* ---- instructions ---------------------------------------------------------------------- */

/* is_finish: in finish() of pass, where row values of that pass are r<n>. */
static void add_value(const writer *w, int32_t value, int32_t pass, bool is_finish)
{
    const og_value *of = &w->kernel->values[value];
    bool is_mask = of->type == OG_MASK32;
    if (of->level == OG_ELEMENT)
        og_text_add(w->text, "v%d", (int)value);
    else if (is_finish && of->pass == pass)
        og_text_add(w->text, "r%d", (int)value);
    else
        og_text_add(w->text, is_mask ? "(row[%d] != 0)" : "row[%d]", (int)w->slot[value]);
}

static void add_number(og_text *text, double number)
{
    char digits[OG_NUMBER_TEXT];
    if (isnan(number))
        og_text_add(text, "(C)og_float_bits(0x7fc00000u)");
    else if (isinf(number))
        og_text_add(text, number < 0 ? "-infinity<C>()" : "infinity<C>()");
    else
        og_text_add(text, "(C)%s", og_number_text(number, digits));
}

static void add_call(writer *w, const og_instr *instr, int32_t pass, bool is_finish)
{
    const og_function *function = og_function_of(instr->op);
    const char *infix = og_op_infix(instr->op);
    if (infix) {
        add_value(w, instr->args[0], pass, is_finish);
        og_text_add(w->text, " %s ", infix);
        add_value(w, instr->args[1], pass, is_finish);
        return;
    }
    if (instr->op == OG_OP_where) {
        for (int a = 0; a < 3; a++) {
            og_text_add(w->text, a == 0 ? "" : a == 1 ? " ? " : " : ");
            add_value(w, instr->args[a], pass, is_finish);
        }
        return;
    }
    og_text_add(w->text, "f_%s(", function->name);
    for (int a = 0; a < function->args; a++) {
        og_text_add(w->text, a ? ", " : "");
        add_value(w, instr->args[a], pass, is_finish);
    }
    for (int32_t c = 0; c < function->constants; c++) {
        og_text_add(w->text, ", ");
        add_number(w->text, w->kernel->constants[instr->index + c]);
    }
    og_text_add(w->text, ")");
}

/* The name of the tensor behind an access, for a comment. */
static const char *access_name(const writer *w, int32_t access)
{
    const og_buffer *buffer = &w->program->plan.buffers[w->kernel->accesses[access].buffer];
    return buffer->kind == OG_BUFFER_INPUT    ? w->program->graph.inputs[buffer->index].name
           : buffer->kind == OG_BUFFER_OUTPUT ? "a result"
                                              : "kept";
}

static void add_instr(writer *w, const og_instr *instr, int32_t place, int32_t pass, bool is_finish)
{
    const char *type =
        instr->op != OG_OP_STORE && w->kernel->values[instr->dst].type == OG_MASK32 ? "bool" : "C";
    og_text_add(w->text, "        ");
    if (instr->op == OG_OP_STORE) {
        og_text_add(w->text, "out[%d] = ", (int)place);
        add_value(w, instr->args[0], pass, is_finish);
        og_text_add(w->text, ";\n");
        return;
    }
    og_text_add(w->text, "const %s %s%d = ", type, is_finish ? "r" : "v", (int)instr->dst);
    if (instr->op == OG_OP_LOAD && w->operands[instr->index].is_number)
        og_text_add(w->text, "(C)number[%d]", (int)w->operands[instr->index].index);
    else if (instr->op == OG_OP_LOAD)
        og_text_add(w->text, "in[%d]", (int)place);
    else if (instr->op == OG_OP_PRODUCT)
        og_text_add(w->text, "product[%d]", (int)instr->index);
    else if (instr->op == OG_OP_CONSTANT)
        add_number(w->text, w->kernel->constants[instr->index]);
    else
        add_call(w, instr, pass, is_finish);
    og_text_add(w->text, ";");
    if (instr->op == OG_OP_LOAD)
        og_text_add(w->text, " /* %s */", access_name(w, instr->index));
    og_text_add(w->text, "\n");
}

/* ---- lists ------------------------------------------------------------------------------- */

typedef struct {
    int32_t items[MAX_LISTED];
    int32_t count;
} list;

/* The operands that instructions of this op move, in their order. */
static list list_moved(const writer *w, const og_instr *instrs, int32_t count, og_op op)
{
    list found = {.count = 0};
    for (int32_t i = 0; i < count; i++)
        if (instrs[i].op == op && !w->operands[instrs[i].index].is_number &&
            found.count < MAX_LISTED)
            found.items[found.count++] = w->operands[instrs[i].index].index;
    return found;
}

/* A function of a place in a list, as comparisons: the compiler folds them. What an empty
 * list gives is Sweep's. */
static void add_list(writer *w, const char *name, const list *of)
{
    if (!of->count)
        return;
    og_text_add(w->text, "    static __device__ constexpr int %s(int i) { return ", name);
    for (int32_t i = 0; i + 1 < of->count; i++)
        og_text_add(w->text, "i == %d ? %d : ", (int)i, (int)of->items[i]);
    og_text_add(w->text, "%d; }\n", (int)of->items[of->count - 1]);
}

static void add_section(writer *w, const og_instr *instrs, int32_t count, int32_t pass,
                        bool is_finish)
{
    int32_t loads = 0, stores = 0;
    for (int32_t i = 0; i < count; i++) {
        bool is_load = instrs[i].op == OG_OP_LOAD && !w->operands[instrs[i].index].is_number;
        bool is_store = instrs[i].op == OG_OP_STORE;
        add_instr(w, &instrs[i], is_store ? stores : loads, pass, is_finish);
        loads += is_load;
        stores += is_store;
    }
}

/* ---- a sweep -------------------------------------------------------------------------------- */

static const char *const kind_of_fold[] = {
    [OG_FOLD_SUM] = "SUM",   [OG_FOLD_MAX] = "MOST",       [OG_FOLD_MIN] = "LEAST",
    [OG_FOLD_PEAK] = "MOST", [OG_FOLD_SUMEXP] = "LOG_SUM",
};

static void add_terms(writer *w, const og_pass *pass)
{
    list rows = {.count = 0};
    if (!pass->reduction_count)
        return;
    og_text_add(w->text, "    static __device__ constexpr int kind(int i) { return ");
    for (int32_t r = 0; r < pass->reduction_count && rows.count < MAX_LISTED; r++) {
        bool is_last = r + 1 == pass->reduction_count;
        if (!is_last)
            og_text_add(w->text, "i == %d ? ", (int)r);
        og_text_add(w->text, "%s%s", kind_of_fold[og_op_fold(pass->reductions[r].op)],
                    is_last ? "; }\n" : " : ");
        rows.items[rows.count++] = w->slot[pass->reductions[r].dst];
    }
    add_list(w, "row_of", &rows);
}

static uint32_t kept_mask(const writer *w)
{
    uint32_t mask = 0;
    for (int32_t a = 0; a < w->kernel->access_count; a++) {
        const og_buffer *buffer = &w->program->plan.buffers[w->kernel->accesses[a].buffer];
        if (buffer->kind == OG_BUFFER_TEMPORARY)
            mask |= 1u << w->operands[a].index;
    }
    return mask;
}

/* Bit 2p + side: that factor of product p was kept by an earlier kernel. */
static uint32_t kept_factors(const writer *w)
{
    uint32_t mask = 0;
    for (int32_t p = 0; p < w->kernel->product_count; p++)
        for (int32_t side = 0; side < 2; side++) {
            int32_t buffer = og_factor_of(w->kernel, p, side).access->buffer;
            if (w->program->plan.buffers[buffer].kind == OG_BUFFER_TEMPORARY)
                mask |= 1u << (2 * p + side);
        }
    return mask;
}

static void add_finish(writer *w, int32_t p)
{
    const og_pass *pass = &w->kernel->passes[p];
    if (!pass->row_count)
        return;
    og_text_add(w->text, "    template <class C> static __device__ __forceinline__ void\n"
                         "    finish(const double *number, const C *in, C *row, C *out)\n    {\n");
    for (int32_t r = 0; r < pass->reduction_count; r++)
        og_text_add(w->text, "        const C r%d = row[%d]; /* %s */\n",
                    (int)pass->reductions[r].dst, (int)w->slot[pass->reductions[r].dst],
                    og_function_of(pass->reductions[r].op)->name);
    add_section(w, pass->rows, pass->row_count, p, true);
    for (int32_t i = 0; i < pass->row_count; i++)
        if (pass->rows[i].op != OG_OP_STORE && w->slot[pass->rows[i].dst] != NO_SLOT)
            og_text_add(w->text, "        row[%d] = %sr%d;\n", (int)w->slot[pass->rows[i].dst],
                        w->kernel->values[pass->rows[i].dst].type == OG_MASK32 ? "(C)" : "",
                        (int)pass->rows[i].dst);
    og_text_add(w->text, "    }\n");
}

static void add_constant(writer *w, const char *name, int32_t value, int32_t usual)
{
    if (value != usual)
        og_text_add(w->text, ", %s = %d", name, (int)value);
}

static int32_t most_terms(const og_kernel *kernel)
{
    int32_t most = 0;
    for (int32_t p = 0; p < kernel->pass_count; p++)
        if (kernel->passes[p].reduction_count > most)
            most = kernel->passes[p].reduction_count;
    return most;
}

static void add_sweep(writer *w, const char *name, int32_t p)
{
    const og_pass *pass = &w->kernel->passes[p];
    list loads = list_moved(w, pass->elements, pass->element_count, OG_OP_LOAD);
    list stores = list_moved(w, pass->elements, pass->element_count, OG_OP_STORE);
    list row_loads = list_moved(w, pass->rows, pass->row_count, OG_OP_LOAD);
    list row_stores = list_moved(w, pass->rows, pass->row_count, OG_OP_STORE);
    og_text_add(w->text,
                "template <> struct %s<%d> : Sweep {\n    static constexpr int OPERANDS = %d", name,
                (int)p, (int)w->operand_count);
    add_constant(w, "SWEEPS", w->kernel->pass_count, 1);
    add_constant(w, "LOADS", loads.count, 0);
    add_constant(w, "STORES", stores.count, 0);
    add_constant(w, "TERMS", pass->reduction_count, 0);
    add_constant(w, "MOST_TERMS", most_terms(w->kernel), 0);
    add_constant(w, "ROW_LOADS", row_loads.count, 0);
    add_constant(w, "ROW_STORES", row_stores.count, 0);
    add_constant(w, "ROW_VALUES", w->slot_count, 0);
    add_constant(w, "PRODUCTS", w->kernel->product_count, 0);
    add_constant(w, "KEPT", (int32_t)kept_mask(w), 0);
    add_constant(w, "KEPT_FACTORS", (int32_t)kept_factors(w), 0);
    og_text_add(w->text, ";\n");
    add_list(w, "loaded", &loads);
    add_list(w, "stored", &stores);
    add_list(w, "row_loaded", &row_loads);
    add_list(w, "row_stored", &row_stores);
    add_terms(w, pass);
    og_text_add(w->text,
                "    template <class C> static __device__ __forceinline__ void\n"
                "    element(const double *number, const C *in, const C *product, const C *row, "
                "C *out,\n            C *term)\n    {\n");
    add_section(w, pass->elements, pass->element_count, p, false);
    for (int32_t r = 0; r < pass->reduction_count; r++) {
        og_text_add(w->text, "        term[%d] = ", (int)r);
        add_value(w, pass->reductions[r].source, p, false);
        og_text_add(w->text, ";\n");
    }
    og_text_add(w->text, "    }\n");
    add_finish(w, p);
    og_text_add(w->text, "};\n");
}

void og_pytorch_add_kernel(const og_pytorch_program *program, const og_pytorch_role *roles,
                           int32_t kernel, og_text *text)
{
    const og_kernel *of = &program->plan.kernels[kernel];
    og_arena arena = {0};
    writer w = {.program = program,
                .roles = roles,
                .kernel = of,
                .operands = OG_ARENA_NEW(&arena, og_pytorch_operand, (size_t)of->access_count),
                .slot = OG_ARENA_NEW(&arena, int32_t, (size_t)of->value_count + 1),
                .text = text};
    char name[32], kind[64];
    text->failed |= !w.operands || !w.slot;
    if (!text->failed) {
        memset(w.slot, -1, ((size_t)of->value_count + 1) * sizeof *w.slot);
        og_pytorch_operands(program, roles, of, w.operands, &w.operand_count);
        assign_slots(&w);
        og_kernel_name(of, kind);
        snprintf(name, sizeof name, "%s%d", program->name, (int)kernel);
        og_text_add(text, "\n/* %s: %s */\ntemplate <int sweep> struct %s;\n", name, kind, name);
        for (int32_t p = 0; p < of->pass_count; p++)
            add_sweep(&w, name, p);
    }
    og_arena_free(&arena);
}
