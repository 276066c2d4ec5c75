/* SPDX-License-Identifier: MIT
 *
 * cuda_emit_code.c - what a kernel computes, as CUDA C: og_row, the values of a row; og_kept, what
 * is read or computed once for several passes; og_pass<p>, a struct whose compute() is the
 * formula (see results.cuh); og_rows<p>(), a pass's row instructions. Loops, loads, stores and
 * reductions are the kernels'. Element values are v<n>, row values row.v<n>; functions are those
 * of src/math, by the names in functions.def.
 */
#include "cuda/emit/cuda_emit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *og_cuda_number_type(const og_cuda_emitter *e, bool is_double)
{
    return og_cuda_serves(e) ? "og_real" : is_double ? "double" : "float";
}

static const char *type_of(const og_cuda_emitter *e, int32_t value)
{
    og_type type = e->kernel->values[value].type;
    return type == OG_MASK32 ? "uint32_t" : og_cuda_number_type(e, type == OG_F64);
}

static bool is_row_value(const og_kernel *kernel, int32_t value)
{
    return kernel->values[value].level == OG_ROW;
}

/* ---- one instruction ------------------------------------------------------------ */

static void print_value(const og_kernel *kernel, int32_t value, og_text *text)
{
    og_text_add(text, is_row_value(kernel, value) ? "row.v%d" : "v%d", (int)value);
}

static const char *half_name(og_dtype dtype)
{
    return dtype == OG_FLOAT16 ? "f16" : "bf16";
}

static void print_convert(const og_kernel *kernel, const og_instr *instr, og_text *text)
{
    og_dtype to = (og_dtype)instr->index;
    const char *from = kernel->values[instr->args[0]].type == OG_F64 ? "f64" : "f32";
    bool is_half = to == OG_FLOAT16 || to == OG_BFLOAT16;
    if (is_half)
        og_text_add(text, "og_f32_from_%s(og_%s_from_%s(", half_name(to), half_name(to), from);
    else
        og_text_add(text, "(%s)(", to == OG_FLOAT64 ? "double" : "float");
    print_value(kernel, instr->args[0], text);
    og_text_add(text, is_half ? "))" : ")");
}

/* What a function is called in src/math. Its numbers are arguments: NVRTC does not know that bounds are
 * no NaN, which to ask takes a third of a clamp, or that a beta is 1. */
static const char *name_of(const og_kernel *kernel, const og_instr *instr)
{
    const double *of = kernel->constants;
    const int32_t first = instr->index;
    if (instr->op == OG_OP_clamp && !isnan(of[first]) && !isnan(of[first + 1]))
        return "clamp_ordered";
    if (instr->op == OG_OP_softplus && of[first] == 1 && instr->type == OG_F32)
        return "softplus_plain";
    return og_function_of(instr->op)->name;
}

/* A function of functions.def. A mask's type is that of what it compares. */
static void print_call(const og_cuda_emitter *e, const og_instr *instr, og_text *text)
{
    const og_kernel *kernel = e->kernel;
    const og_function *function = og_function_of(instr->op);
    const char *infix = function->kind == OG_SCALAR ? og_op_infix(instr->op) : NULL;
    int32_t by = -1;
    if (og_cuda_divides_by(e, instr, &by)) {
        og_text_add(text, "og_divide_by_f32(");
        print_value(kernel, instr->args[0], text);
        og_text_add(text, ", a.c%d, a.c%d_high, a.c%d_low)", (int)by, (int)by, (int)by);
        return;
    }
    if (infix) {
        print_value(kernel, instr->args[0], text);
        og_text_add(text, " %s ", infix);
        print_value(kernel, instr->args[1], text);
        return;
    }
    if (og_cuda_serves(e))
        og_text_add(text, "OG_REAL(%s)(", function->name);
    else
        og_text_add(text, "og_%s_%s(", name_of(kernel, instr),
                    instr->type == OG_F64 ? "f64" : "f32");
    for (int a = 0; a < OG_MAX_ARGS && instr->args[a] >= 0; a++) {
        og_text_add(text, a ? ", " : "");
        print_value(kernel, instr->args[a], text);
    }
    for (int32_t c = 0; c < function->constants; c++)
        og_text_add(text, ", a.c%d", (int)(instr->index + c));
    og_text_add(text, ")");
}

/* What instr computes; operand: the text of what a LOAD has read. */
static void print_expression(const og_cuda_emitter *e, const og_instr *instr, const char *operand,
                             og_text *text)
{
    switch ((int)instr->op) {
    case OG_OP_LOAD:
        og_text_add(text, "%s", operand);
        break;
    case OG_OP_CONSTANT:
        og_text_add(text, "a.c%d", (int)instr->index);
        break;
    case OG_OP_CONVERT:
        print_convert(e->kernel, instr, text);
        break;
    case OG_OP_PRODUCT:
        og_text_add(text, "kept.product[%d]", (int)instr->index);
        break;
    default:
        print_call(e, instr, text);
    }
}

/* exp(x - m), which sumexp has computed before. */
static void print_term(const og_cuda_emitter *e, const og_instr *instr, og_text *text)
{
    if (e->kept_term_count)
        og_text_add(text, "kept.t%d.e[i]", (int)e->kept_terms[instr->dst]);
    else if (og_cuda_serves(e))
        og_text_add(text, "og_fall_of(v%d)", (int)instr->args[0]);
    else
        og_text_add(text, "og_%s(v%d)", instr->type == OG_F64 ? "exp_f64" : "fall_f32",
                    (int)instr->args[0]);
}

/* "const float v5 = ...;", element i of a vector. */
static void add_element(og_cuda_emitter *e, const og_instr *instr, og_text *to)
{
    char operand[32] = "";
    if (instr->op == OG_OP_LOAD && og_cuda_number_of(e, instr->index) >= 0)
        snprintf(operand, sizeof operand, "a.numbers[%d]", (int)og_cuda_number_of(e, instr->index));
    else if (instr->op == OG_OP_LOAD)
        snprintf(operand, sizeof operand, "og_get<%d>(%s, i)", (int)instr->index,
                 e->is_kept[instr->index] ? "kept" : "x");
    og_text_add(to, "        const %s v%d = ", type_of(e, instr->dst), (int)instr->dst);
    if (e->kept_terms && e->kept_terms[instr->dst] >= 0)
        print_term(e, instr, to);
    else
        print_expression(e, instr, operand, to);
    og_text_add(to, ";\n");
}

/* ---- a row's values, what is kept ------------------------------------------------------- */

size_t og_cuda_row_bytes(const og_kernel *kernel)
{
    size_t bytes = 0, alignment = 4;
    for (int32_t v = 0; v < kernel->value_count; v++) {
        size_t size = kernel->values[v].type == OG_F64 ? 8 : 4;
        if (!is_row_value(kernel, v))
            continue;
        bytes = (bytes + size - 1) / size * size + size;
        alignment = size > alignment ? size : alignment;
    }
    bytes = (bytes + alignment - 1) / alignment * alignment;
    return bytes ? bytes : 1;
}

/* A vector of each kept or derived value that has a number. */
static void add_kept_values(og_cuda_emitter *e)
{
    for (int32_t number = 0; number < e->kept_term_count; number++)
        for (int32_t v = 0; v < e->kernel->value_count; v++)
            if (e->kept_terms[v] == number && is_row_value(e->kernel, v))
                og_text_add(&e->passes, "    og_pack<%s> t%d;\n", type_of(e, v), (int)number);
    for (int32_t v = 0, next = 0; next < e->derived_count; v++)
        if (e->derived[v] == next)
            og_text_add(&e->passes, "    og_pack<%s> d%d;\n", type_of(e, v), (int)next++);
}

static void add_kept(og_cuda_emitter *e)
{
    og_text *to = &e->passes;
    int32_t *kept = e->list, count = 0;
    for (int32_t a = 0; a < e->kernel->access_count; a++)
        if (e->is_kept[a])
            kept[count++] = a;
    og_text_add(to, "\n/* What is read or computed once for several passes. */\n"
                    "typedef og_indices<");
    og_cuda_print_indices(kept, count, to);
    og_text_add(to, "> og_kept_operands;\n\nstruct og_kept : og_loads<");
    og_cuda_print_indices(kept, count, to);
    og_text_add(to, "> {\n%s",
                e->kernel->product_count ? "    og_number product[OG_PRODUCTS];\n" : "");
    add_kept_values(e);
    og_text_add(to, "};\n\n");
}

void og_cuda_add_row(og_cuda_emitter *e)
{
    og_text_add(&e->passes, "\n/* Values of a row. */\nstruct og_row {\n");
    for (int32_t v = 0; v < e->kernel->value_count; v++)
        if (is_row_value(e->kernel, v))
            og_text_add(&e->passes, "    %s v%d;\n", type_of(e, v), (int)v);
    og_text_add(&e->passes, "};\n");
    add_kept(e);
    og_cuda_include(&e->passes, e->kernel->space.n_reduced ? "sums" : "results");
}

static bool is_derived(const og_cuda_emitter *e, int32_t value)
{
    return e->derived_count && e->derived[value] >= 0;
}

void og_cuda_add_derive(og_cuda_emitter *e)
{
    og_text *to = &e->body;
    int32_t next = 0;
    og_text_add(to, "\n/* What several passes need of a row, once. */\n"
                    "OG_FN void og_derive(const og_args &a, og_kept_row &row)\n{\n"
                    "#pragma unroll\n    for (int v = 0; v < OG_STEPS * OG_VECTORS; v++) {\n"
                    "        og_kept &kept = (&row.of[0][0])[v];\n"
                    "#pragma unroll\n        for (int i = 0; i < OG_V; i++) {\n");
    for (int32_t p = 0; p < e->kernel->pass_count; p++)
        for (int32_t i = 0; i < e->kernel->passes[p].element_count; i++) {
            const og_instr *instr = &e->kernel->passes[p].elements[i];
            if (instr->dst < 0 || !e->derives[instr->dst])
                continue;
            og_text_add(to, "    ");
            add_element(e, instr, to);
            if (e->derived[instr->dst] == next)
                og_text_add(to, "            kept.d%d.e[i] = v%d;\n", (int)next++, (int)instr->dst);
        }
    og_text_add(to, "        }\n    }\n}\n");
}

/* ---- a pass -------------------------------------------------------------------------------- */

/* Is element value v stored or reduced? */
static bool is_wanted(const og_pass *pass, int32_t v)
{
    for (int32_t i = 0; i < pass->element_count; i++)
        if (pass->elements[i].op == OG_OP_STORE && pass->elements[i].args[0] == v)
            return true;
    for (int32_t r = 0; r < pass->reduction_count; r++)
        if (pass->reductions[r].source == v)
            return true;
    return false;
}

static void add_values(og_cuda_emitter *e, const og_pass *pass, int32_t p)
{
    og_text *to = &e->passes;
    og_text_add(to, "\nstruct og_values%d {\n", (int)p);
    for (int32_t i = 0; i < pass->element_count; i++) {
        int32_t v = pass->elements[i].dst;
        if (v >= 0 && is_wanted(pass, v))
            og_text_add(to, "    %s v%d;\n", type_of(e, v), (int)v);
    }
    og_text_add(to, "};\n");
}

/* Is instruction i the first of its pass that loads its operand? */
static bool is_first_load(const og_pass *pass, int32_t i)
{
    for (int32_t j = 0; j < i; j++)
        if (pass->elements[j].op == OG_OP_LOAD &&
            pass->elements[j].index == pass->elements[i].index)
            return false;
    return true;
}

/* The operands that a pass loads and that are not kept, once each. */
static void print_loads(const og_cuda_emitter *e, const og_pass *pass, og_text *to)
{
    int32_t count = 0;
    for (int32_t i = 0; i < pass->element_count; i++) {
        const og_instr *instr = &pass->elements[i];
        if (instr->op == OG_OP_LOAD && !e->is_kept[instr->index] && is_first_load(pass, i) &&
            og_cuda_number_of(e, instr->index) < 0)
            e->list[count++] = instr->index;
    }
    og_cuda_print_indices(e->list, count, to);
}

void og_cuda_print_member(const og_kernel *kernel, int32_t p, int32_t value, og_text *text)
{
    if (is_row_value(kernel, value))
        og_text_add(text, "&og_row::v%d", (int)value);
    else
        og_text_add(text, "&og_values%d::v%d", (int)p, (int)value);
}

static void add_compute(og_cuda_emitter *e, const og_pass *pass, int32_t p)
{
    og_text *to = &e->passes;
    og_text_add(to,
                "    OG_FN void compute(const og_args &a, const og_row &row, const og_kept &kept, "
                "const loads &x,\n                       int i, og_values%d &y)\n    {\n",
                (int)p);
    for (int32_t i = 0; i < pass->element_count; i++) {
        const og_instr *instr = &pass->elements[i];
        if (instr->op == OG_OP_STORE)
            continue;
        if (is_derived(e, instr->dst))
            og_text_add(to, "        const %s v%d = kept.d%d.e[i];\n", type_of(e, instr->dst),
                        (int)instr->dst, (int)e->derived[instr->dst]);
        else
            add_element(e, instr, to);
        if (is_wanted(pass, instr->dst))
            og_text_add(to, "        y.v%d = v%d;\n", (int)instr->dst, (int)instr->dst);
    }
    og_text_add(to, "    }\n");
}

static void add_rows(og_cuda_emitter *e, const og_pass *pass, int32_t p)
{
    og_text *to = &e->passes;
    og_text_add(to,
                "\nOG_FN void og_rows%d(const og_args &a, const og_offsets &at, int i, bool "
                "writes, og_row &row)\n{\n",
                (int)p);
    for (int32_t i = 0; i < pass->row_count; i++) {
        const og_instr *instr = &pass->rows[i];
        char operand[48];
        if (instr->op == OG_OP_STORE) {
            og_text_add(to,
                        "    if (writes)\n"
                        "        og_row_place<%d>(a, at, i) = og_operand<%d>::narrow(row.v%d);\n",
                        (int)instr->index, (int)instr->index, (int)instr->args[0]);
            continue;
        }
        if (instr->op == OG_OP_LOAD && og_cuda_number_of(e, instr->index) >= 0)
            snprintf(operand, sizeof operand, "a.numbers[%d]",
                     (int)og_cuda_number_of(e, instr->index));
        else
            snprintf(operand, sizeof operand, "og_get_of_row<%d>(a, at, i)", (int)instr->index);
        og_text_add(to, "    row.v%d = ", (int)instr->dst);
        print_expression(e, instr, operand, to);
        og_text_add(to, ";\n");
    }
    og_text_add(to, "}\n");
}

static void add_guards(const og_pass *pass, int32_t p, og_text *to)
{
    og_text_add(to,
                "\n/* Does a row need og_sums%d? */\n"
                "OG_FN bool og_again%d(const og_row &row)\n{\n    return ",
                (int)p, (int)p);
    for (int32_t g = 0; g < pass->guard_count; g++)
        og_text_add(to, "%srow.v%d != 1", g ? " || " : "", (int)pass->guards[g]);
    og_text_add(to, ";\n}\n");
}

void og_cuda_add_pass(og_cuda_emitter *e, int32_t p)
{
    const og_pass *pass = &e->kernel->passes[p];
    og_text *to = &e->passes;
    add_values(e, pass, p);
    og_text_add(to, "\nstruct og_pass%d : og_%s<og_values%d", (int)p,
                e->packs ? "one_result" : "results", (int)p);
    for (int32_t i = 0; i < pass->element_count; i++) {
        const og_instr *instr = &pass->elements[i];
        if (instr->op != OG_OP_STORE)
            continue;
        og_text_add(to, ", og_result<%d, ", (int)instr->index);
        og_cuda_print_member(e->kernel, p, instr->args[0], to);
        og_text_add(to, ">");
    }
    og_text_add(to, "> {\n    typedef og_loads<");
    print_loads(e, pass, to);
    og_text_add(to, "> loads;\n\n");
    add_compute(e, pass, p);
    og_text_add(to, "};\ntypedef og_pass%d::loads og_loads%d;\n", (int)p, (int)p);
    if (e->kernel->space.n_reduced)
        og_cuda_add_sums(e, p);
    if (pass->row_count)
        add_rows(e, pass, p);
    if (pass->guard_count)
        add_guards(pass, p, to);
}
