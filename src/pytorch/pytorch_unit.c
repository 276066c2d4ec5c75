/* SPDX-License-Identifier: MIT
 *
 * pytorch_unit.c - a product's kernels for Hopper as a unit: the library's own source for it
 * (og_cuda_emit()), the launches around it (hopper_launch.cuh) and og_fill(), a few lines that bind
 * the formula's operands. The source is made for some sizes; what it defines by number is changed
 * for others when the file is called, and nothing else depends on them.
 */
#include "base/embedded.h"
#include "cuda/emit/cuda_work.h"
#include "pytorch/pytorch_program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the source --------------------------------------------------------------------------- */

/* An H100: what a source depends on. */
static const og_cuda_limits hopper = {.arch = 90,
                                      .multiprocessors = 132,
                                      .threads_per_multiprocessor = 2048,
                                      .shared_per_block = 227 * 1024,
                                      .shared_per_multiprocessor = 228 * 1024,
                                      .l2_bytes = 50 * 1024 * 1024};

static bool same_motion(const og_kernel *a, const og_access *of_a, const og_access *of_b)
{
    const int32_t last = a->space.rank - 1;
    bool same = of_a->buffer == of_b->buffer && of_a->is_store == of_b->is_store &&
                (of_a->stride[last] == 1) == (of_b->stride[last] == 1);
    for (int32_t d = 0; d <= last; d++)
        same &= (of_a->stride[d] == 0) == (of_b->stride[d] == 0);
    return same;
}

/* Do two plans of one formula, for different sizes, have the same kernel? */
static bool is_same_kernel(const og_kernel *a, const og_kernel *b)
{
    bool same = a->access_count == b->access_count && a->product_count == b->product_count &&
                a->pass_count == b->pass_count && a->space.rank == b->space.rank &&
                a->matrices.batch_rank == b->matrices.batch_rank &&
                a->matrices.m_rank == b->matrices.m_rank &&
                a->matrices.n_rank == b->matrices.n_rank;
    for (int32_t i = 0; same && i < a->access_count; i++)
        same = same_motion(a, &a->accesses[i], &b->accesses[i]);
    for (int32_t p = 0; same && p < a->product_count; p++)
        same = same_motion(a, &a->products[p].left, &b->products[p].left) &&
               same_motion(a, &a->products[p].right, &b->products[p].right);
    return same;
}

const char *og_pytorch_find_unit(const og_pytorch_program *program, const og_pytorch_program *sized,
                                 const og_pytorch_role *roles, int32_t k, og_arena *arena)
{
    const og_kernel *kernel = &program->plan.kernels[k];
    const int32_t inputs = program->graph.input_count;
    og_cuda_work work;
    if (k >= sized->plan.kernel_count || kernel->product_count != 1 ||
        kernel->matrices.n_rank != 1 || kernel->matrices.batch_rank > 1 ||
        !is_same_kernel(kernel, &sized->plan.kernels[k]))
        return NULL;
    int32_t *numbers = OG_ARENA_NEW(arena, int32_t, (size_t)inputs);
    for (int32_t i = 0; numbers && i < inputs; i++) {
        bool is_number = i >= program->tensor_count || roles[i] == OG_PYTORCH_SCALAR;
        numbers[i] = is_number ? og_pytorch_number(program, roles, i) : -1;
    }
    og_cuda_wishes wishes = {.units = OG_CUDA_WGMMA,
                             .numbers = numbers,
                             .number_count = og_pytorch_number(program, roles, inputs)};
    if (!numbers || og_cuda_emit(&sized->plan, k, &hopper, &wishes, arena, &work, NULL))
        return NULL;
    return work.tensor_products ? work.source : NULL; /* else CUDA cores would serve it */
}

int og_pytorch_unit_number(const char *source, const char *name)
{
    char define[64];
    snprintf(define, sizeof define, "#define %s ", name);
    const char *found = strstr(source, define);
    return found ? atoi(found + strlen(define)) : 0;
}

/* ---- what binds it ------------------------------------------------------------------------ */

static void add_constant(og_text *text, double number)
{
    if (isnan(number))
        og_text_add(text, "__builtin_nanf(\"\")");
    else if (isinf(number))
        og_text_add(text, number < 0 ? "-__builtin_inff()" : "__builtin_inff()");
    else
        og_text_add(text, "(float)%a", number);
}

void og_pytorch_add_unit(const og_pytorch_program *program, const og_pytorch_role *roles, int32_t k,
                         const char *source, og_text *text)
{
    const og_kernel *kernel = &program->plan.kernels[k];
    og_pytorch_operand operands[64];
    int32_t count, numbers = og_pytorch_number(program, roles, program->graph.input_count);
    og_pytorch_operands(program, roles, kernel, operands, &count);
    og_text_add(text, "%s\n#include \"pytorch/hopper_launch.cuh\"\n", source);
    og_text_add(text, "\nstatic void og_fill(og_args &a, const og_hopper_call &c)\n{\n");
    for (int32_t i = 0; i < kernel->access_count; i++)
        if (!operands[i].is_number)
            og_text_add(text, "    og_bind(a, c, %d, %d);\n", (int)i, (int)operands[i].index);
    for (int32_t d = 0; d < kernel->space.rank; d++)
        og_text_add(text, "    a.dims[%d] = og_make_divisor(c.extent[%d]);\n", (int)d, (int)d);
    for (int32_t d = 0; d + 1 < kernel->space.rank; d++)
        og_text_add(text, "    a.x_%d = (og_index)c.x_stride[%d];\n", (int)d, (int)d);
    for (int32_t i = 0; i < numbers; i++)
        og_text_add(text, "    a.numbers[%d] = c.number[%d];\n", (int)i, (int)i);
    for (int32_t c = 0; c < kernel->constant_count; c++) {
        og_text_add(text, "    a.c%d = ", (int)c);
        add_constant(text, kernel->constants[c]);
        og_text_add(text, ";\n");
    }
    og_text_add(text, "}\n");
}

/* ---- the files that units include --------------------------------------------------------- */

enum { MOST_FILES = 48 };

typedef struct {
    const char *paths[MOST_FILES];
    int count;
} file_list;

/* Adds the embedded files that source includes, and those that they do, to the list. */
static void list_files(const char *source, file_list *list)
{
    static const char include[] = "#include \"";
    for (const char *at = source; (at = strstr(at, include));) {
        at += sizeof include - 1;
        for (size_t f = 0; f < og_embedded_count; f++) {
            const og_embedded_file *file = &og_embedded_files[f];
            size_t length = strlen(file->path);
            bool is_new = strncmp(file->path, at, length) == 0 && at[length] == '"';
            for (int i = 0; i < list->count; i++)
                is_new &= list->paths[i] != file->path;
            if (!is_new || list->count == MOST_FILES)
                continue;
            list->paths[list->count++] = file->path;
            list_files(file->text, list);
        }
    }
}

/* Where a comment that begins at `at` ends. */
static const char *skip_comment(const char *at)
{
    const char *end = strstr(at + 2, "*/");
    return end ? end + 2 : at + strlen(at);
}

/* May a comment stay? It is of one line, and has no word that is refused. */
static bool is_short(const char *at, const char *end)
{
    char line[128];
    size_t length = (size_t)(end - at);
    if (memchr(at, '\n', length) || length >= sizeof line)
        return false;
    memcpy(line, at, length);
    line[length] = 0;
    return !og_pytorch_find_refused(line);
}

/* The text without long comments, and without the blanks and empty lines that they leave. */
static void add_without_comments(const char *source, og_text *text)
{
    og_text line = {0};
    bool is_after_blank = true;
    for (const char *at = source; *at;) {
        const char *end = at + 1;
        if (at[0] == '/' && at[1] == '*') {
            end = skip_comment(at);
            if (is_short(at, end))
                og_text_add(&line, "%.*s", (int)(end - at), at);
            at = end;
            continue;
        }
        if (*at != '\n') {
            og_text_add(&line, "%c", *at++);
            continue;
        }
        size_t length = line.length;
        while (length && strchr(" \t", line.data[length - 1]))
            length--;
        bool was_blank = at == source || at[-1] == '\n';
        if (length || (was_blank && !is_after_blank))
            og_text_add(text, "%.*s\n", (int)length, line.data ? line.data : "");
        is_after_blank = !length && (was_blank || is_after_blank);
        text->failed |= line.failed;
        og_text_free(&line);
        line = (og_text){0};
        at = end;
    }
    og_text_free(&line);
}

/* Of src/math what the others need. */
static void add_math(const file_list *list, const char *units, og_text *text)
{
    og_text roots = {0};
    const og_pytorch_source sources[] = {{og_embedded("math/scalar_f32.h"), true},
                                         {og_embedded("math/scalar_whole_f32.h"), true}};
    og_text cut = {0};
    og_text_add(&roots, "%s", units);
    for (int i = 0; i < list->count; i++)
        if (strncmp(list->paths[i], "math/", 5) != 0)
            og_text_add(&roots, "%s", og_embedded(list->paths[i]));
    text->failed |= roots.failed;
    if (!text->failed)
        og_pytorch_add_needed(sources, 2, roots.data, &cut);
    text->failed |= cut.failed;
    if (!text->failed)
        add_without_comments(cut.data ? cut.data : "", text);
    og_text_free(&cut);
    og_text_free(&roots);
}

void og_pytorch_add_unit_files(const char *units, og_text *text)
{
    file_list list = {.count = 0};
    list_files(units, &list);
    for (int i = 0; i < list.count; i++) {
        const char *path = list.paths[i];
        if (!strcmp(path, "math/scalar_whole_f32.h"))
            continue; /* part of scalar_f32.h here */
        og_text_add(text, "    \"%s\": r'''\n", path);
        if (!strcmp(path, "math/scalar_f32.h"))
            add_math(&list, units, text);
        else
            add_without_comments(og_embedded(path), text);
        og_text_add(text, "''',\n");
    }
}
