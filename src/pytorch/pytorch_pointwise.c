/* SPDX-License-Identifier: MIT
 *
 * pytorch_pointwise.c - the CUDA source of a file whose kernels are all pointwise: the functions of
 * src/math that it needs, the templates of pointwise_vectors.cuh, and the formula as a struct a kernel. It
 * is built once, for every dtype and layout. Files with reductions or products have units instead
 * (pytorch_unit.c).
 */
#include "base/embedded.h"
#include "pytorch/pytorch_program.h"

#include <math.h>
#include <string.h>

bool og_pytorch_is_pointwise(const og_pytorch_program *program, const og_pytorch_role *roles)
{
    const og_plan *plan = &program->plan;
    if (!program->is_uniform || plan->kernel_count != 1 || plan->kernels[0].pass_count != 1 ||
        program->count_count)
        return false;
    for (int32_t a = 0; a < plan->kernels[0].access_count; a++) {
        const og_access *access = &plan->kernels[0].accesses[a];
        if (plan->buffers[access->buffer].kind == OG_BUFFER_TEMPORARY ||
            (plan->buffers[access->buffer].rank == 0 &&
             !og_pytorch_is_number(program, roles, access)))
            return false;
    }
    return true;
}

/* ---- operands: tensors that the kernel reads, then its results -------------------------------- */

static bool is_read(const og_pytorch_program *program, const og_pytorch_role *roles, int32_t access)
{
    const og_kernel *kernel = &program->plan.kernels[0];
    return !og_kernel_stores(kernel, access) &&
           !og_pytorch_is_number(program, roles, &kernel->accesses[access]);
}

static int32_t count_reads(const og_pytorch_program *program, const og_pytorch_role *roles,
                           int32_t before)
{
    int32_t count = 0;
    for (int32_t a = 0; a < before; a++)
        count += is_read(program, roles, a);
    return count;
}

static int32_t find_operand(const og_pytorch_program *program, const og_pytorch_role *roles,
                            int32_t access)
{
    const og_kernel *kernel = &program->plan.kernels[0];
    if (is_read(program, roles, access))
        return count_reads(program, roles, access);
    return count_reads(program, roles, kernel->access_count) +
           program->plan.buffers[kernel->accesses[access].buffer].index;
}

/* ---- a kernel's formula ---------------------------------------------------------------------- */

static void add_constant(og_text *text, double number)
{
    if (isnan(number))
        og_text_add(text, "R(og_float_bits(0x7fc00000u))");
    else if (isinf(number))
        og_text_add(text,
                    number < 0 ? "R(og_float_bits(0xff800000u))" : "R(og_float_bits(0x7f800000u))");
    else if (!signbit(number) && number <= INT32_MAX && number == floor(number))
        og_text_add(text, "R(%d)", (int)number);
    else
        og_text_add(text, "R(%a)", number);
}

/* A function of functions.def. */
static void add_call(const og_kernel *kernel, const og_instr *instr, og_text *text)
{
    const og_function *function = og_function_of(instr->op);
    const char *infix = function->kind == OG_SCALAR ? og_op_infix(instr->op) : NULL;
    if (infix) {
        og_text_add(text, "v%d %s v%d", (int)instr->args[0], infix, (int)instr->args[1]);
        return;
    }
    og_text_add(text, "og_%s<R>(", function->name);
    for (int a = 0; a < OG_MAX_ARGS && instr->args[a] >= 0; a++)
        og_text_add(text, "%sv%d", a ? ", " : "", (int)instr->args[a]);
    for (int32_t c = 0; c < function->constants; c++) {
        og_text_add(text, ", ");
        add_constant(text, kernel->constants[instr->index + c]);
    }
    og_text_add(text, ")");
}

static void add_instr(const og_pytorch_program *program, const og_pytorch_role *roles,
                      const og_kernel *kernel, const og_instr *instr, og_text *text)
{
    if (instr->op == OG_OP_STORE) {
        og_text_add(text, "        x[%d] = v%d;\n", (int)find_operand(program, roles, instr->index),
                    (int)instr->args[0]);
        return;
    }
    og_text_add(text, "        const %s v%d = ",
                kernel->values[instr->dst].type == OG_MASK32 ? "uint32_t" : "R", (int)instr->dst);
    if (instr->op == OG_OP_CONSTANT) {
        add_constant(text, kernel->constants[instr->index]);
    } else if (instr->op != OG_OP_LOAD) {
        add_call(kernel, instr, text);
    } else {
        const og_access *access = &kernel->accesses[instr->index];
        if (og_pytorch_is_number(program, roles, access))
            og_text_add(text, "R(a.number[%d])",
                        (int)og_pytorch_number(program, roles,
                                               program->plan.buffers[access->buffer].index));
        else
            og_text_add(text, "x[%d]", (int)find_operand(program, roles, instr->index));
    }
    og_text_add(text, ";\n");
}

/* struct Forward: what one element is. */
static void add_formula(const og_pytorch_program *program, const og_pytorch_role *roles,
                        og_text *text)
{
    const og_kernel *kernel = &program->plan.kernels[0];
    const og_pass *pass = &kernel->passes[0];
    const int32_t loads = count_reads(program, roles, kernel->access_count);
    og_text_add(text,
                "\nstruct %s {\n    enum { loads = %d, operands = %d };\n"
                "    template <class R> OG_FN void compute(const Args &a, R *x)\n    {\n",
                program->name, (int)loads, (int)(loads + program->plan.output_count));
    for (int32_t i = 0; i < pass->element_count; i++)
        add_instr(program, roles, kernel, &pass->elements[i], text);
    og_text_add(text, "    }\n};\nKERNELS(%s)\n", program->name);
}

/* ---- the functions it calls -------------------------------------------------------------------- */

typedef struct {
    bool is_called[OG_OP_COUNT];
} called;

static void list_called(const og_pytorch_program *program, called *all)
{
    for (int32_t k = 0; k < program->plan.kernel_count; k++) {
        const og_pass *pass = &program->plan.kernels[k].passes[0];
        for (int32_t i = 0; i < pass->element_count; i++) {
            const og_op op = pass->elements[i].op;
            bool is_own = op == OG_OP_LOAD || op == OG_OP_STORE || op == OG_OP_CONSTANT;
            if (!is_own && !(og_function_of(op)->kind == OG_SCALAR && og_op_infix(op)))
                all->is_called[op] = true;
        }
    }
}

/* src/math's text of what these need, and of halves. */
static void add_math(const called *all, og_text *text)
{
    static const char *const paths[] = {"math/scalar_base.h", "math/half.h", "math/scalar_f32.h",
                                        "math/scalar_logarithms_f32.h", "math/scalar_squares_f32.h",
                                        "math/scalar_whole_f32.h", "math/scalar_f64.h"};
    enum { COUNT = sizeof paths / sizeof *paths };
    og_pytorch_source sources[COUNT];
    og_text roots = {0}, whole = {0};
    for (int i = 0; i < COUNT; i++)
        sources[i] = (og_pytorch_source){og_embedded(paths[i]), true};
    og_text_add(&roots, "OG_FN og_f16_from_f32 og_f32_from_f16 og_bf16_from_f32 og_f32_from_bf16");
    for (int op = 0; op < OG_OP_COUNT; op++)
        if (all->is_called[op])
            og_text_add(&roots, " og_%s_f32 og_%s_f64", og_function_of((og_op)op)->name,
                        og_function_of((og_op)op)->name);
    text->failed |= roots.failed;
    if (!text->failed)
        og_pytorch_add_needed(sources, COUNT, roots.data, &whole);
    text->failed |= whole.failed;
    if (!text->failed)
        og_pytorch_add_without_comments(whole.data, text);
    og_text_free(&roots);
    og_text_free(&whole);
}

/* ---- C++ -------------------------------------------------------------------------------------- */

/* Tensors, or scalars, by commas: as names in C++, or in quotes (NULL) as the formula has them. */
static void add_inputs(const og_pytorch_program *program, const og_pytorch_role *roles,
                       const char *const *names, bool scalars, og_text *text)
{
    bool any = false;
    for (int32_t i = 0; i < program->tensor_count; i++)
        if ((roles[i] == OG_PYTORCH_SCALAR) == scalars) {
            og_text_add(text, names ? "%s%s" : "%s\"%s\"", any ? ", " : "",
                        names ? names[i] : program->graph.inputs[i].name);
            any = true;
        }
}

/* Which of the tensors that are given the kernel reads, in its order. */
static void add_reads(const og_pytorch_program *program, const og_pytorch_role *roles,
                      og_text *text)
{
    const og_kernel *kernel = &program->plan.kernels[0];
    bool any = false;
    for (int32_t a = 0; a < kernel->access_count; a++) {
        int32_t place = 0;
        if (!is_read(program, roles, a))
            continue;
        for (int32_t i = 0; i < program->plan.buffers[kernel->accesses[a].buffer].index; i++)
            place += roles[i] != OG_PYTORCH_SCALAR;
        og_text_add(text, "%s%d", any ? ", " : "", (int)place);
        any = true;
    }
}

/* The C++ function that Python calls. names: [tensor] in C++. */
static void add_function(const og_pytorch_program *program, const og_pytorch_role *roles,
                         const char *const *names, bool is_gradient, og_text *text)
{
    og_text_add(text,
                "\nextern \"C\" int launch_%s(const Args &a, int dtype, int kind, int64_t blocks, "
                "void *stream);\n\n",
                program->name);
    og_pytorch_add_signature(program, roles, names, is_gradient, text);
    og_text_add(text, "\n{\n    return run(launch_%s, %s, %d, {", program->name,
                program->units[0].facts.is_costly ? "true" : "false",
                (int)program->plan.output_count);
    add_inputs(program, roles, names, false, text);
    og_text_add(text, "}, {");
    add_inputs(program, roles, NULL, false, text);
    og_text_add(text, "}, {");
    add_reads(program, roles, text);
    og_text_add(text, "}, {");
    add_inputs(program, roles, names, true, text);
    og_text_add(text, "});\n}\n");
}

/* ---- the strings ------------------------------------------------------------------------------ */

/* A template's text without its own first line, the licence's. */
static const char *body_of(const char *path)
{
    return strchr(og_embedded(path), '\n') + 1;
}

void og_pytorch_add_pointwise(const og_pytorch_program *const programs[2],
                              const og_pytorch_role *roles, const char *const *names, og_text *text)
{
    called all = {0};
    for (int i = 0; i < 2; i++)
        list_called(programs[i], &all);
    og_text_add(text, "\n# What kernels are given.\nARGS = r'''\n%s'''\n",
                body_of("pytorch/pointwise_call.cuh"));
    og_text_add(text, "\n# Ogive's functions that the formula calls.\nMATH = r'''\n"
                      "#define OG_FN static __device__ __forceinline__\n");
    add_math(&all, text);
    og_text_add(text,
                "'''\n\n# Loops over tensors, then the formula and its derivative.\n"
                "KERNELS = r'''\n%s\n",
                body_of("pytorch/pointwise_vectors.cuh"));
    for (int op = 0; op < OG_OP_COUNT; op++)
        if (all.is_called[op])
            og_text_add(text, "EITHER(og_%s)\n", og_function_of((og_op)op)->name);
    for (int i = 0; i < 2; i++)
        add_formula(programs[i], roles, text);
    og_text_add(text, "'''\n\n# C++, of PyTorch's tensors.\nHOST = r'''\n%s",
                body_of("pytorch/pointwise_host.cuh"));
    for (int i = 0; i < 2; i++)
        add_function(programs[i], roles, names, i, text);
    og_text_add(text, "'''\n");
}
