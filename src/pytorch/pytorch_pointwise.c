/* SPDX-License-Identifier: MIT
 *
 * pytorch_pointwise.c - the CUDA source of a file whose kernels are all pointwise: the functions of
 * src/math that it needs, the formula as a struct a kernel, the templates of pointwise_vectors.cuh,
 * and C++ (pointwise_host.cuh). It is built once, for every dtype and layout. Files with reductions
 * or products have units instead (pytorch_unit.c).
 */
#include "base/embedded.h"
#include "pytorch/pytorch_program.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- operands: results, then all tensors ------------------------------------------------------- */

static int32_t count_tensors(const og_pytorch_role *roles, int32_t inputs)
{
    int32_t count = 0;
    for (int32_t i = 0; i < inputs; i++)
        count += roles[i] != OG_PYTORCH_SCALAR;
    return count;
}

static int32_t count_operands(const og_pytorch_program *program, const og_pytorch_role *roles)
{
    return program->plan.output_count + count_tensors(roles, program->tensor_count);
}

enum { MAX_OPERANDS = 48 }; /* a kernel's arguments have 4 KiB */

bool og_pytorch_is_pointwise(const og_pytorch_program *program, const og_pytorch_role *roles)
{
    const og_plan *plan = &program->plan;
    if (!program->is_uniform || plan->kernel_count != 1 || plan->kernels[0].pass_count != 1 ||
        program->count_count || count_operands(program, roles) > MAX_OPERANDS)
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

/* ---- a kernel's formula ---------------------------------------------------------------------- */

static void add_constant(og_text *text, double number)
{
    if (isnan(number))
        og_text_add(text, "R(__uint_as_float(0x7fc00000u))");
    else if (isinf(number))
        og_text_add(text, "R(__uint_as_float(0x%su))", number < 0 ? "ff800000" : "7f800000");
    else if (fabs(number) <= INT32_MAX && number == floor(number) && (number || !signbit(number)))
        og_text_add(text, "R(%d)", (int)number);
    else
        og_text_add(text, "R(%a)", number);
}

typedef struct {
    const og_pytorch_program *program;
    const og_pytorch_role *roles;
} writer;

static void add_operand(const writer *w, const og_access *access, og_text *text)
{
    const og_plan *plan = &w->program->plan;
    const og_buffer *buffer = &plan->buffers[access->buffer];
    if (buffer->kind == OG_BUFFER_OUTPUT)
        og_text_add(text, "x[%d]", (int)buffer->index);
    else if (og_pytorch_is_number(w->program, w->roles, access))
        og_text_add(text, "R(a.number[%d])",
                    (int)og_pytorch_number(w->program, w->roles, buffer->index));
    else
        og_text_add(text, "x[%d]",
                    (int)(plan->output_count + count_tensors(w->roles, buffer->index)));
}

static void add_call(const writer *w, const og_instr *instr, og_text *text);

/* Is it computed for a result alone? */
static bool is_for_store(const og_pass *pass, int32_t value)
{
    int32_t stores = 0;
    for (int32_t i = 0; i < pass->element_count; i++) {
        const og_instr *instr = &pass->elements[i];
        for (int a = 0; a < OG_MAX_ARGS && instr->args[a] >= 0; a++) {
            if (instr->args[a] == value && instr->op != OG_OP_STORE)
                return false;
            stores += instr->args[a] == value;
        }
    }
    return stores == 1;
}

/* A value where it is needed: tensors, numbers and constants have no name of their own, nor has what
 * is stored and no more. */
static void add_value(const writer *w, int32_t value, og_text *text)
{
    const og_kernel *kernel = &w->program->plan.kernels[0];
    const og_pass *pass = &kernel->passes[0];
    for (int32_t i = 0; i < pass->element_count; i++) {
        const og_instr *instr = &pass->elements[i];
        if (instr->op == OG_OP_STORE || instr->dst != value)
            continue;
        if (instr->op == OG_OP_CONSTANT)
            add_constant(text, kernel->constants[instr->index]);
        else if (instr->op != OG_OP_LOAD && is_for_store(pass, value))
            add_call(w, instr, text);
        else if (instr->op != OG_OP_LOAD)
            break;
        else
            add_operand(w, &kernel->accesses[instr->index], text);
        return;
    }
    og_text_add(text, "v%d", (int)value);
}

/* What C has an operator for, or NULL. */
static const char *find_infix(og_op op)
{
    return op == OG_OP_truth ? "!=" : og_op_infix(op);
}

/* A function of functions.def. */
static void add_call(const writer *w, const og_instr *instr, og_text *text)
{
    const og_function *function = og_function_of(instr->op);
    const char *infix = find_infix(instr->op);
    if (instr->op == OG_OP_where) {
        add_value(w, instr->args[0], text);
        og_text_add(text, " ? ");
        add_value(w, instr->args[1], text);
        og_text_add(text, " : ");
        add_value(w, instr->args[2], text);
        return;
    }
    if (!infix)
        og_text_add(text, "og_%s(", function->name);
    for (int a = 0; a < OG_MAX_ARGS && instr->args[a] >= 0; a++) {
        if (a)
            og_text_add(text, infix ? " %s " : ", ", infix);
        add_value(w, instr->args[a], text);
    }
    for (int32_t c = 0; c < function->constants; c++) {
        og_text_add(text, ", ");
        add_constant(text, w->program->plan.kernels[0].constants[instr->index + c]);
    }
    if (!infix)
        og_text_add(text, ")");
}

static void add_instr(const writer *w, const og_instr *instr, og_text *text)
{
    const og_kernel *kernel = &w->program->plan.kernels[0];
    if (instr->op == OG_OP_STORE) {
        og_text_add(text, "        ");
        add_operand(w, &kernel->accesses[instr->index], text);
        og_text_add(text, " = ");
        add_value(w, instr->args[0], text);
    } else if (instr->op != OG_OP_LOAD && instr->op != OG_OP_CONSTANT &&
               !is_for_store(&kernel->passes[0], instr->dst)) {
        og_text_add(text, "        const %s v%d = ",
                    kernel->values[instr->dst].type == OG_MASK32 ? "bool" : "R",
                    (int)instr->dst);
        add_call(w, instr, text);
    } else {
        return;
    }
    og_text_add(text, ";\n");
}

/* struct Forward: what one element is. */
static void add_formula(const og_pytorch_program *program, const og_pytorch_role *roles,
                        og_text *text)
{
    const writer w = {program, roles};
    const og_pass *pass = &program->plan.kernels[0].passes[0];
    og_text_add(text,
                "\nstruct %s {\n    enum { results = %d, operands = %d };\n"
                "    template <class R> OG_FN void compute(const Args &a, R *x)\n    {\n",
                program->name, (int)program->plan.output_count,
                (int)count_operands(program, roles));
    for (int32_t i = 0; i < pass->element_count; i++)
        add_instr(&w, &pass->elements[i], text);
    og_text_add(text, "    }\n};\n");
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
            if (!is_own && op != OG_OP_where && !find_infix(op))
                all->is_called[op] = true;
        }
    }
}

/* The bytes of a word that begins here, if it is a function of `all` with _f32 or _f64 behind it. */
static size_t match_called(const called *all, const char *text)
{
    for (int op = 0; op < OG_OP_COUNT; op++) {
        const char *name = all->is_called[op] ? og_function_of((og_op)op)->name : "";
        size_t length = 3 + strlen(name) + 4;
        if (*name && !strncmp(text, "og_", 3) && !strncmp(text + 3, name, length - 7) &&
            (!strncmp(text + length - 4, "_f32", 4) || !strncmp(text + length - 4, "_f64", 4)) &&
            !isalnum((unsigned char)text[length]) && text[length] != '_')
            return length;
    }
    return 0;
}

/* Functions of float and double that a formula calls have one name: og_sigmoid(x). */
static void add_overloads(const called *all, const char *math, og_text *text)
{
    for (const char *at = math; *at;) {
        size_t length = at == math || !isalnum((unsigned char)at[-1]) ? match_called(all, at) : 0;
        og_text_add(text, "%.*s", length ? (int)length - 4 : 1, at);
        at += length ? length : 1;
    }
}

/* Macros of one line come first, with a comment of one line that one has; then all else. */
static void add_macros_first(const char *math, og_text *text)
{
    for (int turn = 0; turn < 2; turn++) {
        bool is_after_blank = turn == 0;
        int depth = 0; /* of #if */
        for (const char *line = math; *line;) {
            const char *end = strchr(line, '\n') + 1, *macro = line;
            if (!strncmp(line, "/*", 2) && end[-2] == '/')
                macro = end;
            depth += !strncmp(line, "#if", 3) - !strncmp(line, "#endif", 6);
            const bool is_macro = !depth && !strncmp(macro, "#define ", 8) &&
                                  strchr(macro, '\n')[-1] != '\\';
            if (is_macro)
                end = strchr(macro, '\n') + 1;
            if (is_macro == !turn && (is_macro || *line != '\n' || !is_after_blank)) {
                og_text_add(text, "%.*s", (int)(end - line), line);
                is_after_blank = *line == '\n';
            }
            line = end;
        }
    }
}

/* src/math's text of what these need. */
static void add_math(const called *all, og_text *text)
{
    static const char *const paths[] = {"math/scalar_base.h", "math/scalar_f32.h",
                                        "math/scalar_logarithms_f32.h", "math/scalar_squares_f32.h",
                                        "math/scalar_whole_f32.h", "math/scalar_f64.h"};
    enum { COUNT = sizeof paths / sizeof *paths };
    og_pytorch_source sources[COUNT];
    og_text roots = {0}, whole = {0}, lean = {0}, sorted = {0};
    for (int i = 0; i < COUNT; i++)
        sources[i] = (og_pytorch_source){og_embedded(paths[i]), true};
    og_text_add(&roots, "OG_FN");
    for (int op = 0; op < OG_OP_COUNT; op++)
        if (all->is_called[op])
            og_text_add(&roots, " og_%s_f32 og_%s_f64", og_function_of((og_op)op)->name,
                        og_function_of((og_op)op)->name);
    text->failed |= roots.failed;
    if (!text->failed)
        og_pytorch_add_needed(sources, COUNT, roots.data, &whole);
    text->failed |= whole.failed;
    if (!text->failed)
        og_pytorch_add_without_comments(whole.data ? whole.data : "", &lean);
    text->failed |= lean.failed;
    if (!text->failed)
        add_macros_first(lean.data ? lean.data : "", &sorted);
    text->failed |= sorted.failed;
    if (!text->failed)
        add_overloads(all, sorted.data ? sorted.data : "", text);
    og_text_free(&sorted);
    og_text_free(&roots);
    og_text_free(&whole);
    og_text_free(&lean);
}

/* ---- C++ -------------------------------------------------------------------------------------- */

/* What C++ and kernels share. */
static void add_arguments(const og_pytorch_program *const programs[2], const og_pytorch_role *roles,
                          og_text *text)
{
    const int32_t operands = (int32_t)og_max(count_operands(programs[0], roles),
                                             count_operands(programs[1], roles));
    const int32_t inputs = programs[0]->tensor_count;
    const int32_t numbers = inputs - count_tensors(roles, inputs);
    char number[64] = "";
    if (numbers)
        snprintf(number, sizeof number, "    double number[%d]; /* that are no tensors */\n",
                 (int)numbers);
    og_text_add(text, "#include <c10/util/BFloat16.h>\n#include <c10/util/Half.h>\n\n"
                      "struct Args {\n");
    og_text_add(text,
                "    int dims;\n"
                "    int64_t extent[8], stride[%d][8]; /* of dims, neighbours first; in bytes */\n"
                "    char *data[%d];                   /* of results, then of tensors */\n"
                "    int64_t vectors, whole_blocks;   /* of 16 bytes; without gaps or a rest */\n"
                "%s"
                "};\n"
                "/* By direction, dtype, and layout: flat with a vector a thread, with several; any. */\n"
                "extern const void *const ogive_kernels[2][4][3];\n",
                (int)operands, (int)operands, number);
}

/* What C++ has to know of both directions. */
static void add_tables(const og_pytorch_program *const programs[2], const og_pytorch_role *roles,
                       og_text *text)
{
    bool any = false;
    og_text_add(text, "\nstatic const char *const names[] = {");
    for (int32_t i = 0; i < programs[1]->tensor_count; i++)
        if (roles[i] != OG_PYTORCH_SCALAR) {
            og_text_add(text, "%s\"%s\"", any ? ", " : "", programs[1]->graph.inputs[i].name);
            any = true;
        }
    og_text_add(text,
                "};\nstatic const int results[] = {%d, %d}, is_costly[] = {%d, %d}; /* forward, "
                "backward */\n",
                (int)programs[0]->plan.output_count, (int)programs[1]->plan.output_count,
                programs[0]->units[0].facts.is_costly, programs[1]->units[0].facts.is_costly);
}

/* A template's text without its own first line, the licence's. */
static const char *body_of(const char *path)
{
    return strchr(og_embedded(path), '\n') + 1;
}

static bool has_word(const char *line, const char *word)
{
    const char *at = strstr(line, word);
    return at && at < line + strcspn(line, "\n");
}

/* The C++, of whose lines a formula without numbers needs those that have none. */
static void add_host(const og_pytorch_program *const programs[2], const og_pytorch_role *roles,
                     og_text *text)
{
    const int32_t inputs = programs[0]->tensor_count;
    const bool has_numbers = count_tensors(roles, inputs) < inputs;
    bool has_tables = false;
    for (const char *line = body_of("pytorch/pointwise_host.cuh"); *line;) {
        const char *end = strchr(line, '\n') + 1;
        if (*line == '\n' && !has_tables) {
            add_tables(programs, roles, text); /* behind what is included */
            has_tables = true;
        }
        if (!has_numbers && has_word(end, "numbers") && end[-2] == ',') /* the last parameter */
            og_text_add(text, "%.*s)\n", (int)(end - line) - 2, line);
        else if (has_numbers || !has_word(line, "numbers"))
            og_text_add(text, "%.*s", (int)(end - line), line);
        line = end;
    }
}

void og_pytorch_add_pointwise(const og_pytorch_program *const programs[2],
                              const og_pytorch_role *roles, og_text *text)
{
    called all = {0};
    for (int i = 0; i < 2; i++)
        list_called(programs[i], &all);
    og_text_add(text, "\nARGS = r'''\n");
    add_arguments(programs, roles, text);
    og_text_add(text, "'''\n\nKERNELS = r'''\n"
                      "#define OG_FN static __device__ __forceinline__\n");
    add_math(&all, text);
    for (int i = 0; i < 2; i++)
        add_formula(programs[i], roles, text);
    og_text_add(text, "\n%s'''\n\nHOST = r'''\n", body_of("pytorch/pointwise_vectors.cuh"));
    add_host(programs, roles, text);
    og_text_add(text, "'''\n");
}
