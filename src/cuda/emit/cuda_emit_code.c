/* SPDX-License-Identifier: MIT
 *
 * cuda_emit_code.c - a pass as CUDA C: struct og_pass<p> with
 *
 *     loads     a vector of every operand that the pass reads, as it lies in memory
 *     values    of one element: what is stored or reduced
 *     compute (of element i of a vector), compute_all (of reductions, all i), store,
 *     store_whole (of kernels with products, or rows in shared memory), pack, place
 *
 * and og_rows<p>(), its row instructions. Element values are v<n>, row values
 * row.v<n>; functions are those of src/math, by the names in functions.def.
 */
#include "cuda/emit/cuda_emit.h"

#include <stdio.h>
#include <string.h>

static const char *const type_names[] = {
    [OG_F32] = "float", [OG_F64] = "double", [OG_MASK32] = "uint32_t"};

static bool is_row_value(const og_kernel *kernel, int32_t value)
{
    return kernel->values[value].level == OG_ROW;
}

/* Vectors along a dim that is kept are of several rows. */
static int32_t first_reduced(const og_kernel *kernel)
{
    return kernel->space.rank - kernel->space.n_reduced;
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

/* A function of functions.def. A mask's type is that of what it compares. */
static void print_call(const og_kernel *kernel, const og_instr *instr, og_text *text)
{
    const og_function *function = og_function_of(instr->op);
    const char *infix = function->kind == OG_SCALAR ? og_op_infix(instr->op) : NULL;
    if (infix) {
        print_value(kernel, instr->args[0], text);
        og_text_add(text, " %s ", infix);
        print_value(kernel, instr->args[1], text);
        return;
    }
    og_text_add(text, "og_%s_%s(", function->name, instr->type == OG_F64 ? "f64" : "f32");
    for (int a = 0; a < OG_MAX_ARGS && instr->args[a] >= 0; a++) {
        og_text_add(text, a ? ", " : "");
        print_value(kernel, instr->args[a], text);
    }
    for (int32_t c = 0; c < function->constants; c++)
        og_text_add(text, ", a.c%d", (int)(instr->index + c));
    og_text_add(text, ")");
}

/* What instr computes; operand: the text of what a LOAD has read. */
static void print_expression(const og_kernel *kernel, const og_instr *instr, const char *operand,
                             og_text *text)
{
    og_dtype dtype;
    switch ((int)instr->op) {
    case OG_OP_LOAD:
        dtype = kernel->accesses[instr->index].dtype;
        if (dtype == OG_FLOAT16 || dtype == OG_BFLOAT16)
            og_text_add(text, "og_f32_from_%s(%s)", half_name(dtype), operand);
        else
            og_text_add(text, "%s", operand);
        break;
    case OG_OP_CONSTANT:
        og_text_add(text, "a.c%d", (int)instr->index);
        break;
    case OG_OP_CONVERT:
        print_convert(kernel, instr, text);
        break;
    case OG_OP_PRODUCT:
        og_text_add(text, "kept.product[%d]", (int)instr->index);
        break;
    default:
        print_call(kernel, instr, text);
    }
}

/* A value as it is stored in memory of dtype. */
static void print_stored(og_type type, og_dtype dtype, const char *value, og_text *text)
{
    if (dtype == OG_FLOAT16 || dtype == OG_BFLOAT16)
        og_text_add(text, "og_%s_from_%s(%s)", half_name(dtype), type == OG_F64 ? "f64" : "f32",
                    value);
    else
        og_text_add(text, "%s", value);
}

/* ---- loads and stores of a pass -------------------------------------------------- */

/* "a.p0 + at.o0"; an operand that never moves has no offset. */
static void print_address(const og_cuda_emitter *e, int32_t access, og_text *text)
{
    og_text_add(text, "a.p%d", (int)access);
    for (int32_t d = 0; d < e->kernel->space.rank; d++)
        if (e->kernel->accesses[access].stride[d] != 0) {
            og_text_add(text, " + at.o%d", (int)access);
            return;
        }
}

static og_cuda_motion motion_of(const og_cuda_emitter *e, int32_t access)
{
    return og_cuda_motion_of(e, &e->kernel->accesses[access]);
}

/* Is instruction i the first of its list that has this op on its access? */
static bool is_first(const og_pass *pass, int32_t i)
{
    for (int32_t j = 0; j < i; j++)
        if (pass->elements[j].op == pass->elements[i].op &&
            pass->elements[j].index == pass->elements[i].index)
            return false;
    return true;
}

/* The accesses that are loaded, once each: of pass p those that are not kept, of
 * p = -1 those that are. */
static int32_t list_loads(const og_cuda_emitter *e, int32_t p, int32_t *accesses)
{
    int32_t count = 0;
    for (int32_t a = 0; p < 0 && a < e->kernel->access_count; a++)
        if (e->is_kept[a])
            accesses[count++] = a;
    for (int32_t i = 0; p >= 0 && i < e->kernel->passes[p].element_count; i++) {
        const og_instr *instr = &e->kernel->passes[p].elements[i];
        if (instr->op == OG_OP_LOAD && !e->is_kept[instr->index] &&
            is_first(&e->kernel->passes[p], i))
            accesses[count++] = instr->index;
    }
    return count;
}

static void add_pointer(og_cuda_emitter *e, int32_t access, bool written)
{
    og_text_add(&e->passes, "        %s%s *p%d = ", written ? "" : "const ",
                og_cuda_type_of(e->kernel->accesses[access].dtype), (int)access);
    print_address(e, access, &e->passes);
    og_text_add(&e->passes, ";\n");
}

/* is_aligned(): may load(), or store(), move whole vectors? */
static void add_is_aligned(og_cuda_emitter *e, const int32_t *accesses, int32_t count)
{
    og_text *to = &e->passes;
    og_text_add(to, "    OG_FN bool is_aligned(const og_args &a, const og_offsets &at)\n    {\n"
                    "        return true");
    for (int32_t i = 0; i < count; i++)
        if (motion_of(e, accesses[i]) == OG_CUDA_UNIT) {
            og_text_add(to, " && og_is_aligned(");
            print_address(e, accesses[i], to);
            og_text_add(to, ")");
        }
    og_text_add(to, ";\n    }\n");
}

/* Members of a struct of loads. */
static void add_loads_members(og_cuda_emitter *e, const int32_t *accesses, int32_t count)
{
    og_text *to = &e->passes;
    for (int32_t i = 0; i < count; i++) {
        const char *type = og_cuda_type_of(e->kernel->accesses[accesses[i]].dtype);
        if (motion_of(e, accesses[i]) == OG_CUDA_STILL)
            og_text_add(to, "    %s x%d;\n", type, (int)accesses[i]);
        else
            og_text_add(to, "    og_pack<%s> x%d;\n", type, (int)accesses[i]);
    }
    og_text_add(to, "\n");
    add_is_aligned(e, accesses, count);
}

/* Those that are kept of all values with a number: a vector each. */
static void add_kept_values(og_cuda_emitter *e)
{
    for (int32_t number = 0; number < e->kept_term_count; number++)
        for (int32_t v = 0; v < e->kernel->value_count; v++)
            if (e->kept_terms[v] == number && is_row_value(e->kernel, v))
                og_text_add(&e->passes, "    og_pack<%s> t%d;\n",
                            type_names[e->kernel->values[v].type], (int)number);
    for (int32_t v = 0, next = 0; next < e->derived_count; v++)
        if (e->derived[v] == next)
            og_text_add(&e->passes, "    og_pack<%s> d%d;\n", type_names[e->kernel->values[v].type],
                        (int)next++);
}

/* og_renew() of all halves. */
static void add_renew(og_cuda_emitter *e, const int32_t *accesses, int32_t count)
{
    og_text_add(&e->passes, "    OG_FN void renew(og_kept &x)\n    {\n");
    for (int32_t i = 0; i < count; i++)
        if (og_dtype_bytes(e->kernel->accesses[accesses[i]].dtype) == 2)
            og_text_add(&e->passes, "        og_renew(x.x%d);\n", (int)accesses[i]);
    og_text_add(&e->passes, "    }\n");
}

static void add_loads(og_cuda_emitter *e, const char *name, int32_t p)
{
    og_text *to = &e->passes;
    int32_t *accesses = e->list, count = list_loads(e, p, accesses), units = 0;
    og_text_add(to, "\nstruct %s {\n", name);
    if (p < 0 && e->kernel->product_count)
        og_text_add(to, "    og_number product[OG_PRODUCTS];\n");
    if (p < 0)
        add_kept_values(e);
    add_loads_members(e, accesses, count);
    og_text_add(to,
                "    OG_FN void load(const og_args &a, const og_offsets &at, bool whole, const "
                "og_span &span,\n                    %s &x)\n    {\n",
                name);
    for (int32_t i = 0; i < count; i++) {
        add_pointer(e, accesses[i], false);
        units += motion_of(e, accesses[i]) == OG_CUDA_UNIT;
    }
    for (int whole = 1; units && whole >= 0; whole--) {
        og_text_add(to, whole ? "        if (whole) {\n" : "        } else {\n");
        for (int32_t i = 0; i < count; i++)
            if (motion_of(e, accesses[i]) == OG_CUDA_UNIT)
                og_text_add(to, "            x.x%d = og_%s(p%d%s);\n", (int)accesses[i],
                            whole ? "load_pack" : "gather", (int)accesses[i],
                            whole ? "" : ", 1, span");
    }
    og_text_add(to, units ? "        }\n" : "");
    for (int32_t i = 0; i < count; i++) {
        int32_t at = accesses[i];
        if (motion_of(e, at) == OG_CUDA_STILL) {
            og_text_add(to, "        x.x%d = *p%d;\n", (int)at, (int)at);
        } else if (motion_of(e, at) == OG_CUDA_STRIDED) {
            og_text_add(to, "        x.x%d = og_gather(p%d, ", (int)at, (int)at);
            og_cuda_print_stride(e, at, to);
            og_text_add(to, ", span);\n");
        }
    }
    og_text_add(to, "    }\n");
    if (p < 0 && e->by_rows)
        add_renew(e, accesses, count);
    og_text_add(to, "};\n");
}

/* struct og_shelf: what of og_kept is in shared memory, of one step and all threads. */
static void add_shelf(og_cuda_emitter *e)
{
    og_text *to = &e->passes;
    int32_t *accesses = e->list, count = list_loads(e, -1, accesses);
    og_text_add(to, "\nstruct og_shelf {\n");
    for (int32_t i = 0; i < count; i++) {
        const char *type = og_cuda_type_of(e->kernel->accesses[accesses[i]].dtype);
        og_text_add(to, "    union {\n        og_pack<%s> x;\n", type);
        if (accesses[i] == e->lender)
            og_text_add(to, "        og_pack<%s> t;\n", strcmp(type, "double") ? "float" : type);
        og_text_add(to, "    } x%d[OG_THREADS];\n", (int)accesses[i]);
    }
    og_text_add(to,
                "\n    OG_FN void copy(const og_args &a, const og_offsets &at, bool whole, const "
                "og_span &span,\n                    og_shelf &shelf)\n    {\n");
    for (int32_t i = 0; i < count; i++) {
        const int at = (int)accesses[i];
        bool unit = motion_of(e, at) == OG_CUDA_UNIT;
        add_pointer(e, at, false);
        if (unit)
            og_text_add(to,
                        "        if (whole)\n"
                        "            og_copy_pack(shelf.x%d[threadIdx.x].x, p%d);\n"
                        "        else\n    ",
                        at, at);
        og_text_add(to, "        shelf.x%d[threadIdx.x].x = og_gather(p%d, ", at, at);
        if (unit)
            og_text_add(to, "1");
        else
            og_cuda_print_stride(e, at, to);
        og_text_add(to, ", span);\n");
    }
    og_text_add(to, "    }\n    OG_FN void take(const og_shelf &shelf, og_kept &kept)\n    {\n");
    for (int32_t i = 0; i < count; i++)
        og_text_add(to, "        kept.x%d = og_load_pack(shelf.x%d[threadIdx.x].x.e);\n",
                    (int)accesses[i], (int)accesses[i]);
    if (e->lender >= 0)
        og_text_add(to, "        kept.t0 = og_load_pack(shelf.x%d[threadIdx.x].t.e);\n",
                    (int)e->lender);
    og_text_add(to, "    }\n    OG_FN void put(const og_kept &kept, og_shelf &shelf)\n    {\n");
    if (e->lender >= 0)
        og_text_add(to, "        shelf.x%d[threadIdx.x].t = kept.t0;\n", (int)e->lender);
    og_text_add(to, "    }\n};\n");
}

/* Contiguous stores: whole vectors where all of them can. */
static void add_unit_stores(og_cuda_emitter *e, const og_pass *pass)
{
    og_text *to = &e->passes;
    bool any = false;
    for (int32_t i = 0; i < pass->element_count; i++) {
        const og_instr *instr = &pass->elements[i];
        if (instr->op != OG_OP_STORE || motion_of(e, instr->index) != OG_CUDA_UNIT)
            continue;
        og_text_add(to, any ? "" : "        if (og_is_full(span)");
        og_text_add(to, " && og_is_aligned(p%d)", (int)instr->index);
        any = true;
    }
    for (int whole = 1; any && whole >= 0; whole--) {
        og_text_add(to, whole ? ") {\n" : "        } else {\n");
        for (int32_t i = 0; i < pass->element_count; i++) {
            int32_t at = pass->elements[i].index;
            if (pass->elements[i].op == OG_OP_STORE && motion_of(e, at) == OG_CUDA_UNIT)
                og_text_add(to, "            og_%s(p%d%s, x%d);\n",
                            whole ? "store_pack" : "scatter", (int)at, whole ? "" : ", 1, span",
                            (int)at);
        }
    }
    og_text_add(to, any ? "        }\n" : "");
}

/* A vector that is stored: x<access>. */
static void add_packed(og_cuda_emitter *e, const og_instr *instr)
{
    og_text *to = &e->passes;
    og_dtype dtype = e->kernel->accesses[instr->index].dtype;
    char value[32];
    snprintf(value, sizeof value, "%s.v%d",
             !is_row_value(e->kernel, instr->args[0])   ? "y[i]"
             : e->vector_dim < first_reduced(e->kernel) ? "row[i]"
                                                        : "row[0]",
             (int)instr->args[0]);
    og_text_add(to,
                "        og_pack<%s> x%d;\n#pragma unroll\n"
                "        for (int i = 0; i < OG_V; i++)\n            x%d.e[i] = ",
                og_cuda_type_of(dtype), (int)instr->index, (int)instr->index);
    print_stored(instr->type, dtype, value, to);
    og_text_add(to, ";\n");
}

/* All of them, and where: p<access>. */
static void add_stored(og_cuda_emitter *e, const og_pass *pass)
{
    for (int32_t i = 0; i < pass->element_count; i++) {
        const og_instr *instr = &pass->elements[i];
        if (instr->op != OG_OP_STORE)
            continue;
        add_pointer(e, instr->index, true);
        add_packed(e, instr);
    }
}

/* Stores along other dims than neighbours' go element by element. */
static void add_strided_stores(og_cuda_emitter *e, const og_pass *pass)
{
    og_text *to = &e->passes;
    for (int32_t i = 0; i < pass->element_count; i++) {
        int32_t at = pass->elements[i].index;
        if (pass->elements[i].op != OG_OP_STORE || motion_of(e, at) == OG_CUDA_UNIT)
            continue;
        og_text_add(to, "        og_scatter(p%d, ", (int)at);
        og_cuda_print_stride(e, at, to);
        og_text_add(to, ", span, x%d);\n", (int)at);
    }
}

static void add_store(og_cuda_emitter *e, const og_pass *pass)
{
    og_text_add(&e->passes,
                "    OG_FN void store(const og_args &a, const og_offsets &at, const og_span "
                "&span,\n                     const og_row *row, const values *y)\n    {\n");
    add_stored(e, pass);
    add_unit_stores(e, pass);
    add_strided_stores(e, pass);
    og_text_add(&e->passes, "    }\n");
}

/* store_whole(): store() of a full vector where is_aligned() was true, without branches. */
static void add_store_whole(og_cuda_emitter *e, const og_pass *pass)
{
    og_text *to = &e->passes;
    int32_t count = 0;
    for (int32_t i = 0; i < pass->element_count; i++)
        if (pass->elements[i].op == OG_OP_STORE)
            e->list[count++] = pass->elements[i].index;
    add_is_aligned(e, e->list, count);
    og_text_add(to, "    OG_FN void store_whole(const og_args &a, const og_offsets &at, "
                    "const og_row *row,\n                           const values *y)\n    {\n"
                    "        const og_span span = {0, OG_V};\n");
    add_stored(e, pass);
    for (int32_t i = 0; i < pass->element_count; i++) {
        int32_t at = pass->elements[i].index;
        if (pass->elements[i].op == OG_OP_STORE && motion_of(e, at) == OG_CUDA_UNIT)
            og_text_add(to, "        og_store_pack(p%d, x%d);\n", (int)at, (int)at);
    }
    add_strided_stores(e, pass);
    og_text_add(to, "    }\n");
}

/* pack(), which makes the one vector that is stored, and place(), where it goes. */
static void add_pack(og_cuda_emitter *e, const og_pass *pass)
{
    og_text *to = &e->passes;
    for (int32_t i = 0; i < pass->element_count; i++) {
        const og_instr *instr = &pass->elements[i];
        const int at = (int)instr->index;
        if (instr->op != OG_OP_STORE)
            continue;
        const char *type = og_cuda_type_of(e->kernel->accesses[at].dtype);
        og_text_add(to, "    OG_FN og_pack<%s> pack(const values *y)\n    {\n", type);
        add_packed(e, instr);
        og_text_add(to,
                    "        return x%d;\n    }\n"
                    "    OG_FN %s *place(const og_args &a, const og_offsets &at)\n    {\n",
                    at, type);
        add_pointer(e, at, true);
        og_text_add(to, "        return p%d;\n    }\n", at);
    }
}

/* ---- computing ----------------------------------------------------------------------- */

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

static void add_values(og_cuda_emitter *e, const og_pass *pass)
{
    og_text *to = &e->passes;
    og_text_add(to, "    struct values {\n");
    for (int32_t i = 0; i < pass->element_count; i++) {
        int32_t v = pass->elements[i].dst;
        if (v >= 0 && is_wanted(pass, v))
            og_text_add(to, "        %s v%d;\n", type_names[e->kernel->values[v].type], (int)v);
    }
    og_text_add(to, "    };\n");
}

/* An element by what is its row's: og_divide_quickly() saves most of a division. */
static bool divides_by_row(const og_kernel *kernel, const og_instr *instr)
{
    return instr->op == OG_OP_div && instr->type == OG_F32 &&
           !is_row_value(kernel, instr->args[0]) && is_row_value(kernel, instr->args[1]);
}

bool og_cuda_divides_by_row(const og_kernel *kernel)
{
    for (int32_t p = 0; p < kernel->pass_count; p++)
        for (int32_t i = 0; i < kernel->passes[p].element_count; i++)
            if (divides_by_row(kernel, &kernel->passes[p].elements[i]))
                return true;
    return false;
}

static void print_quick_division(const og_kernel *kernel, const og_instr *instr, og_text *text)
{
    og_text_add(text, "og_divide_quickly(");
    print_value(kernel, instr->args[0], text);
    og_text_add(text, ", ");
    print_value(kernel, instr->args[1], text);
    og_text_add(text, ", farthest)");
}

/* exp(x - m), which sumexp has computed before. */
static void print_term(const og_cuda_emitter *e, const og_instr *instr, og_text *text)
{
    if (e->kept_term_count)
        og_text_add(text, "kept.t%d.e[i]", (int)e->kept_terms[instr->dst]);
    else
        og_text_add(text, "og_%s(v%d)", instr->type == OG_F64 ? "exp_f64" : "fall_f32",
                    (int)instr->args[0]);
}

/* Does it load a vector of bfloat16, for a reduction? */
static bool is_pair(const og_cuda_emitter *e, const og_instr *instr)
{
    return e->kernel->space.n_reduced && !e->kernel->product_count && instr->op == OG_OP_LOAD &&
           e->kernel->accesses[instr->index].dtype == OG_BFLOAT16 &&
           motion_of(e, instr->index) != OG_CUDA_STILL;
}

/* "const float v5 = ...;", element i of a vector. */
static void add_element(og_cuda_emitter *e, const og_instr *instr, bool quick, og_text *to)
{
    char operand[32] = "";
    bool still = instr->op != OG_OP_LOAD || motion_of(e, instr->index) == OG_CUDA_STILL;
    if (instr->op == OG_OP_LOAD)
        snprintf(operand, sizeof operand, "%s.x%d%s", e->is_kept[instr->index] ? "kept" : "x",
                 (int)instr->index, still || is_pair(e, instr) ? "" : ".e[i]");
    og_text_add(to, "        const %s v%d = ", type_names[e->kernel->values[instr->dst].type],
                (int)instr->dst);
    if (e->kept_terms && e->kept_terms[instr->dst] >= 0)
        print_term(e, instr, to);
    else if (is_pair(e, instr))
        og_text_add(to, "og_f32_at_bf16(%s, i)", operand);
    else if (quick && divides_by_row(e->kernel, instr))
        print_quick_division(e->kernel, instr, to);
    else
        print_expression(e->kernel, instr, operand, to);
    og_text_add(to, ";\n");
}

static bool is_derived(const og_cuda_emitter *e, int32_t value)
{
    return e->derived_count && e->derived[value] >= 0;
}

/* compute(), or compute_quickly(). */
static void add_compute(og_cuda_emitter *e, const og_pass *pass, bool quick)
{
    og_text *to = &e->passes;
    og_text_add(to,
                "    OG_FN void compute%s(const og_args &a, const og_row &row, const og_kept "
                "&kept, const loads &x,\n                       int i, values &y%s)\n    {\n",
                quick ? "_quickly" : "", quick ? ", uint32_t &farthest" : "");
    for (int32_t i = 0; i < pass->element_count; i++) {
        const og_instr *instr = &pass->elements[i];
        if (instr->op == OG_OP_STORE)
            continue;
        if (is_derived(e, instr->dst))
            og_text_add(to, "        const %s v%d = kept.d%d.e[i];\n",
                        type_names[e->kernel->values[instr->dst].type], (int)instr->dst,
                        (int)e->derived[instr->dst]);
        else
            add_element(e, instr, quick, to);
        if (is_wanted(pass, instr->dst))
            og_text_add(to, "        y.v%d = v%d;\n", (int)instr->dst, (int)instr->dst);
    }
    og_text_add(to, "    }\n");
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
            add_element(e, instr, false, to);
            if (e->derived[instr->dst] == next)
                og_text_add(to, "            kept.d%d.e[i] = v%d;\n", (int)next++, (int)instr->dst);
        }
    og_text_add(to, "        }\n    }\n}\n");
}

/* compute_all(): `count` vectors, of kept[v * apart] and x[v], element i with row[i * each]. */
static void add_compute_all(og_cuda_emitter *e, const og_pass *pass)
{
    static const char loop[] = "#pragma unroll\n        for (int v = 0; v < count; v++)\n"
                               "#pragma unroll\n            for (int i = 0; i < OG_V; i++)\n";
    static const char arguments[] = "(a, row[i * each], kept[v * apart], x[v], i, y[v][i]";
    og_text *to = &e->passes;
    bool divides = false;
    for (int32_t i = 0; i < pass->element_count; i++)
        divides |= divides_by_row(e->kernel, &pass->elements[i]);
    if (divides)
        add_compute(e, pass, true);
    og_text_add(to, "    template <int count>\n"
                    "    OG_FN void compute_all(const og_args &a, const og_row *row, int each, "
                    "const og_kept *kept, int apart,\n                           const loads *x, "
                    "values (*y)[OG_V])\n    {\n");
    if (divides) {
        og_text_add(to, "        uint32_t farthest = 0;\n"
                        "#pragma unroll\n        for (int i = 0; i < OG_V; i++)\n"
                        "            farthest |= 0");
        for (int32_t i = 0; i < pass->element_count; i++)
            if (divides_by_row(e->kernel, &pass->elements[i]))
                og_text_add(to, " | og_is_far(row[i * each].v%d)", (int)pass->elements[i].args[1]);
        og_text_add(to,
                    ";\n%s                compute_quickly%s, farthest);\n"
                    "        if (farthest <= OG_QUICK_RANGE)\n            return;\n",
                    loop, arguments);
    }
    og_text_add(to, "%s                compute%s);\n    }\n", loop, arguments);
}

/* Element i of the vector dim, of an access that rows read or write. */
static void print_row_place(og_cuda_emitter *e, int32_t access, char *place, size_t capacity)
{
    og_text text = {0};
    og_text_add(&text, "(");
    print_address(e, access, &text);
    og_text_add(&text, ")[");
    if (motion_of(e, access) == OG_CUDA_STILL)
        og_text_add(&text, "0");
    else if (motion_of(e, access) == OG_CUDA_UNIT)
        og_text_add(&text, "i");
    else {
        og_text_add(&text, "i * ");
        og_cuda_print_stride(e, access, &text);
    }
    og_text_add(&text, "]");
    snprintf(place, capacity, "%s", text.data ? text.data : "");
    e->passes.failed |= text.failed;
    og_text_free(&text);
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
        char place[96] = "", value[32];
        if (instr->op == OG_OP_LOAD || instr->op == OG_OP_STORE)
            print_row_place(e, instr->index, place, sizeof place);
        if (instr->op == OG_OP_STORE) {
            snprintf(value, sizeof value, "row.v%d", (int)instr->args[0]);
            og_text_add(to, "    if (writes)\n        %s = ", place);
            print_stored(instr->type, e->kernel->accesses[instr->index].dtype, value, to);
        } else {
            og_text_add(to, "    row.v%d = ", (int)instr->dst);
            print_expression(e->kernel, instr, place, to);
        }
        og_text_add(to, ";\n");
    }
    og_text_add(to, "}\n");
}

/* ---- all of it ----------------------------------------------------------------------- */

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

void og_cuda_add_row(og_cuda_emitter *e)
{
    og_text_add(&e->passes, "\n/* Values of a row. */\nstruct og_row {\n");
    for (int32_t v = 0; v < e->kernel->value_count; v++)
        if (is_row_value(e->kernel, v))
            og_text_add(&e->passes, "    %s v%d;\n", type_names[e->kernel->values[v].type], (int)v);
    og_text_add(&e->passes, "};\n\n/* What is read once for several passes. */");
    add_loads(e, "og_kept", -1);
    if (e->shelves)
        add_shelf(e);
}

void og_cuda_add_pass(og_cuda_emitter *e, int32_t p)
{
    const og_pass *pass = &e->kernel->passes[p];
    char loads[32];
    snprintf(loads, sizeof loads, "og_loads%d", (int)p);
    add_loads(e, loads, p);
    og_text_add(&e->passes, "\nstruct og_pass%d {\n    typedef %s loads;\n", (int)p, loads);
    add_values(e, pass);
    add_compute(e, pass, false);
    if (e->kernel->space.n_reduced && !e->kernel->product_count)
        add_compute_all(e, pass);
    add_store(e, pass);
    if (e->kernel->product_count || e->by_rows)
        add_store_whole(e, pass);
    if (e->packs)
        add_pack(e, pass);
    og_text_add(&e->passes, "};\n");
    if (e->kernel->space.n_reduced)
        og_cuda_add_sums(e, p);
    if (pass->row_count)
        add_rows(e, pass, p);
}
