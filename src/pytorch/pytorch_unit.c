/* SPDX-License-Identifier: MIT
 *
 * pytorch_unit.c - kernels as units: the library's own source (og_cuda_emit()), the launches around
 * it (launch_any.cuh, hopper_launch.cuh) and a few lines that bind the formula's operands. What
 * depends on sizes, strides and dtypes is defined by number, when the file is called.
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

int og_pytorch_unit_number(const char *source, const char *name)
{
    char define[64];
    snprintf(define, sizeof define, "#define %s ", name);
    const char *found = strstr(source, define);
    return found ? atoi(found + strlen(define)) : 0;
}

/* ---- what binds it ------------------------------------------------------------------------ */

static void add_constant(og_text *text, double number, const char *type)
{
    if (isnan(number))
        og_text_add(text, "__builtin_nanf(\"\")");
    else if (isinf(number))
        og_text_add(text, number < 0 ? "-__builtin_inff()" : "__builtin_inff()");
    else
        og_text_add(text, "(%s)%a", type, number);
}

/* What a unit fills in of the formula: constants, and numbers that the caller gives. */
static void add_fill(const og_pytorch_program *program, const og_pytorch_role *roles,
                     const og_kernel *kernel, const char *type, og_text *text)
{
    int32_t numbers = og_pytorch_number(program, roles, program->graph.input_count);
    for (int32_t i = 0; i < numbers; i++)
        og_text_add(text, "    a.numbers[%d] = c.number[%d];\n", (int)i, (int)i);
    for (int32_t c = 0; c < kernel->constant_count; c++) {
        og_text_add(text, "    a.c%d = ", (int)c);
        add_constant(text, kernel->constants[c], type);
        og_text_add(text, ";\n");
    }
}

/* The places of a program's inputs among its numbers: og_cuda_wishes.numbers. */
static const int32_t *list_numbers(const og_pytorch_program *program, const og_pytorch_role *roles,
                                   og_arena *arena)
{
    const int32_t inputs = program->graph.input_count;
    int32_t *numbers = OG_ARENA_NEW(arena, int32_t, (size_t)inputs);
    for (int32_t i = 0; numbers && i < inputs; i++) {
        bool is_number = i >= program->tensor_count || roles[i] == OG_PYTORCH_SCALAR;
        numbers[i] = is_number ? og_pytorch_number(program, roles, i) : -1;
    }
    return numbers;
}

/* Moves text into the arena; NULL: there is no memory. */
static const char *keep_text(og_text *text, og_arena *arena)
{
    char *kept = text->failed ? NULL : og_arena_alloc(arena, text->length + 1, 1);
    if (kept)
        memcpy(kept, text->data, text->length + 1);
    og_text_free(text);
    return kept;
}

/* ---- products on Hopper ------------------------------------------------------------------- */

static void add_hopper_fill(const og_pytorch_program *program, const og_pytorch_role *roles,
                            const og_kernel *kernel, og_text *text)
{
    og_text_add(text, "\nstatic void og_fill(og_args &a, const og_hopper_call &c)\n{\n");
    for (int32_t i = 0; i < kernel->access_count; i++)
        og_text_add(text, "    og_bind(a, c, %d);\n", (int)i);
    for (int32_t d = 0; d < kernel->space.rank; d++)
        og_text_add(text, "    a.dims[%d] = og_make_divisor(c.extent[%d]);\n", (int)d, (int)d);
    for (int32_t d = 0; d + 1 < kernel->space.rank; d++)
        og_text_add(text, "    a.x_%d = (og_index)c.x_stride[%d];\n", (int)d, (int)d);
    add_fill(program, roles, kernel, "float", text);
    og_text_add(text, "}\n");
}

ogive_status og_pytorch_hopper_unit(const og_pytorch_program *program,
                                    const og_pytorch_program *sized, const og_pytorch_role *roles,
                                    int32_t k, og_arena *arena, const char **out,
                                    ogive_error *error)
{
    const og_kernel *kernel = &program->plan.kernels[k];
    og_cuda_work work;
    og_text text = {0};
    *out = NULL;
    if (k >= sized->plan.kernel_count || kernel->product_count != 1 ||
        kernel->matrices.n_rank != 1 || kernel->matrices.batch_rank > 1 ||
        !is_same_kernel(kernel, &sized->plan.kernels[k]))
        return OGIVE_OK;
    og_cuda_wishes wishes = {.units = OG_CUDA_WGMMA,
                             .numbers = list_numbers(program, roles, arena),
                             .number_count =
                                 og_pytorch_number(program, roles, program->graph.input_count)};
    if (!wishes.numbers)
        return og_fail_memory(error, sizeof *wishes.numbers);
    ogive_status status = og_cuda_emit(&sized->plan, k, &hopper, &wishes, arena, &work, NULL);
    if (status == OGIVE_MEMORY)
        return og_fail_memory(error, sizeof work);
    if (status != OGIVE_OK || !work.tensor_products) /* CUDA cores would serve it */
        return OGIVE_OK;
    og_text_add(&text, "%s\n#include \"pytorch/hopper_launch.cuh\"\n", work.source);
    add_hopper_fill(program, roles, kernel, &text);
    *out = keep_text(&text, arena);
    return *out ? OGIVE_OK : og_fail_memory(error, text.length);
}

/* ---- kernels that serve every layout and dtype ------------------------------------------------ */

/* Sums of parts that wait in the scratch, as og_cuda_add_scratch() has them. */
static void add_place(const og_kernel *kernel, og_cuda_body body, og_text *text)
{
    const bool by_columns = body == OG_CUDA_COLUMNS_SPLIT;
    og_text_add(text, "\nstatic int64_t og_place(og_args &a, char *scratch, const og_grid &grid)\n"
                      "{\n    int64_t bytes = 0;\n");
    for (int32_t p = 0; p < kernel->pass_count; p++) {
        const og_pass *of = &kernel->passes[p];
        bool has_terms = false;
        for (int32_t r = 0; r < of->reduction_count; r++)
            has_terms |= og_op_fold(of->reductions[r].op) == OG_FOLD_SUMEXP;
        const int n = (int)p;
        if (of->reduction_count || of->row_count)
            og_text_add(text,
                        "    OG_REGION(sums%d, grid.partials * (int64_t)sizeof(og_sums%d::sums))\n",
                        n, n);
        if (has_terms)
            og_text_add(
                text, "    OG_REGION(terms%d, grid.partials * (int64_t)sizeof(og_terms%d::sums))\n",
                n, n);
        if (has_terms && by_columns)
            og_text_add(text,
                        "    OG_REGION(totals%d, grid.rows * (int64_t)sizeof(og_sums%d::sums))\n",
                        n, n);
    }
    if (kernel->pass_count > 1)
        og_text_add(text, "    OG_REGION(row_values, grid.rows * (int64_t)sizeof(og_row))\n");
    og_text_add(text, "    return bytes;\n}\n");
}

static void add_launches(const og_cuda_work *work, og_cuda_body body, og_text *text)
{
    og_text_add(text, "\nstatic int og_launch_all(og_args &a, const og_grid &grid, void *stream)\n"
                      "{\n    int error = 0;\n");
    for (int32_t l = 0; l < work->launch_count; l++) {
        const char *entry = work->launches[l].entry;
        const bool combines = strncmp(entry, "og_combine", 10) == 0;
        og_text_add(text, "    OG_NEXT(%s, grid.%s, %s, %s)\n", entry,
                    combines ? "combines" : "parts",
                    combines && body == OG_CUDA_ROWS_SPLIT ? "OG_COMBINE_THREADS" : "OG_THREADS",
                    l ? "true" : "false");
    }
    og_text_add(text, "    return error;\n}\n");
}

/* A factor's strides over the space's dims, as cuda_emit_product.c has them. */
static void add_factors(const og_kernel *kernel, og_text *text)
{
    for (int side = 0; side < 2; side++) {
        og_factor f = og_factor_of(kernel, 0, side);
        for (int32_t d = 0; d < kernel->space.rank; d++)
            if (f.access->stride[d])
                og_text_add(text, "    a.%s0_%d = (og_index)c.stride[%d][%d];\n",
                            side ? "right" : "left", (int)d, (int)kernel->access_count + side,
                            (int)d);
    }
}

/* What a unit has of one body. */
static ogive_status write_body(const og_pytorch_program *program, const og_pytorch_role *roles,
                               int32_t k, const og_cuda_wishes *wishes, og_arena *arena,
                               og_pytorch_unit *unit, const char **out, ogive_error *error)
{
    const og_kernel *kernel = &program->plan.kernels[k];
    og_cuda_work work;
    og_text text = {0};
    OG_TRY(og_cuda_emit(&program->plan, k, &hopper, wishes, arena, &work, error));
    if (wishes->body == OG_CUDA_VECTORS || wishes->body == OG_CUDA_ROWS)
        unit->facts = work.facts;
    unit->facts.wanted_blocks = work.facts.wanted_blocks;
    og_text_add(&text, "%s\n#include \"pytorch/launch_%s.cuh\"\n", work.source,
                kernel->product_count ? "product" : "any");
    og_text_add(&text, "\nstatic void og_fill(og_args &a, const Args &c)\n{\n");
    add_fill(program, roles, kernel, "og_real", &text);
    if (kernel->product_count)
        add_factors(kernel, &text);
    og_text_add(&text, "}\n");
    if (wishes->body == OG_CUDA_ROWS_SPLIT || wishes->body == OG_CUDA_COLUMNS_SPLIT) {
        add_place(kernel, wishes->body, &text);
        add_launches(&work, wishes->body, &text);
    }
    *out = keep_text(&text, arena);
    return *out ? OGIVE_OK : og_fail_memory(error, text.length);
}

enum { MOST_PARAGRAPHS = 2000 };

typedef struct {
    const char *text;
    size_t length;
    unsigned bodies; /* bits: that have it */
    bool follows;    /* without an empty line */
} paragraph;

typedef struct {
    paragraph of[MOST_PARAGRAPHS];
    int count;
} paragraphs;

static bool is_same(const paragraph *a, const paragraph *b)
{
    return a->length == b->length && memcmp(a->text, b->text, a->length) == 0;
}

/* The paragraph that begins at text: up to an empty line; of og_args, whose members bodies share in
 * part, a line. */
static paragraph cut_paragraph(const char *text, unsigned bodies, bool *in_args)
{
    *in_args |= strncmp(text, "struct og_args {", 16) == 0;
    const char *end = strstr(text, *in_args ? "\n" : "\n\n");
    size_t length = end ? (size_t)(end - text) + 1 : strlen(text);
    *in_args &= strncmp(text, "};", 2) != 0;
    return (paragraph){text, length, bodies, false};
}

/* Adds the paragraphs of a body's text to those of others: one that is there already has one more
 * body. Paragraphs stay in the order of each text. */
static bool merge(paragraphs *all, const char *text, unsigned body)
{
    int at = 0;
    bool in_args = false, follows = false;
    while (*text) {
        paragraph next = cut_paragraph(text, body, &in_args);
        int same = at;
        next.follows = follows;
        while (same < all->count && !is_same(&all->of[same], &next))
            same++;
        if (same < all->count) {
            all->of[same].bodies |= body;
            at = same + 1;
        } else if (all->count == MOST_PARAGRAPHS) {
            return false;
        } else {
            memmove(&all->of[at + 1], &all->of[at], (size_t)(all->count++ - at) * sizeof next);
            all->of[at++] = next;
        }
        text += next.length;
        follows = *text != '\n';
        text += !follows;
    }
    return true;
}

/* A line "#for rows columns" comes before what these bodies have. */
static void add_paragraphs(const paragraphs *all, unsigned bodies, og_text *text)
{
    static const char *const names[] = {[OG_CUDA_VECTORS] = "vectors",
                                        [OG_CUDA_ROWS] = "rows",
                                        [OG_CUDA_ROWS_SPLIT] = "rows_split",
                                        [OG_CUDA_COLUMNS] = "columns",
                                        [OG_CUDA_COLUMNS_TILES] = "columns_tiles",
                                        [OG_CUDA_COLUMNS_SPLIT] = "columns_split",
                                        [OG_CUDA_TILES] = "product_tiles",
                                        [OG_CUDA_MMA_PAIRS] = "mma_pairs",
                                        [OG_CUDA_MMA_HALVES] = "mma_halves"};
    unsigned last = bodies;
    for (int i = 0; i < all->count; i++) {
        const paragraph *p = &all->of[i];
        og_text_add(text, i && !p->follows ? "\n" : "");
        if (p->bodies != last) {
            og_text_add(text, "#for%s", p->bodies == bodies ? " all" : "");
            for (int body = 1; p->bodies != bodies && body < OG_CUDA_BODY_COUNT; body++)
                if (p->bodies >> body & 1)
                    og_text_add(text, " %s", names[body]);
            og_text_add(text, "\n");
        }
        last = p->bodies;
        og_text_add(text, "%.*s", (int)p->length, p->text);
    }
}

ogive_status og_pytorch_any_unit(const og_pytorch_program *program, const og_pytorch_role *roles,
                                 int32_t k, og_arena *arena, og_pytorch_unit *unit,
                                 ogive_error *error)
{
    static const int firsts[] = {[OG_KERNEL_POINTWISE] = OG_CUDA_VECTORS,
                                 [OG_KERNEL_ROWS] = OG_CUDA_ROWS,
                                 [OG_KERNEL_PRODUCT] = OG_CUDA_TILES,
                                 [OG_KERNEL_PRODUCT + 1] = OG_CUDA_BODY_COUNT};
    const og_kernel_form form = og_pytorch_form(&program->plan.kernels[k]);
    const int first = firsts[form], end = firsts[form + 1];
    og_cuda_wishes wishes = {.numbers = list_numbers(program, roles, arena),
                             .number_count =
                                 og_pytorch_number(program, roles, program->graph.input_count)};
    paragraphs *all = OG_ARENA_NEW(arena, paragraphs, 1);
    og_text text = {0};
    unsigned bodies = 0;
    if (!wishes.numbers || !all)
        return og_fail_memory(error, sizeof *all);
    for (int body = first; body < end; body++) {
        const char *source;
        wishes.body = (og_cuda_body)body;
        OG_TRY(write_body(program, roles, k, &wishes, arena, unit, &source, error));
        if (!merge(all, source, 1u << body))
            OG_FAIL(error, OGIVE_UNSUPPORTED, -1, "a kernel too long for a PyTorch file");
        bodies |= 1u << body;
    }
    add_paragraphs(all, bodies, &text);
    unit->source = keep_text(&text, arena);
    return unit->source ? OGIVE_OK : og_fail_memory(error, text.length);
}

/* ---- the files that units include --------------------------------------------------------- */

enum { MOST_FILES = 80 };

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

void og_pytorch_add_without_comments(const char *source, og_text *text)
{
    og_text line = {0};
    bool is_after_blank = true;
    for (const char *at = source; *at;) {
        if (at[0] == '/' && at[1] == '*') {
            const char *end = skip_comment(at);
            if (is_short(at, end))
                og_text_add(&line, "%.*s", (int)(end - at), at);
            at = end;
            continue;
        }
        if (*at != '\n') {
            size_t run = 1 + strcspn(at + 1, "/\n");
            og_text_add(&line, "%.*s", (int)run, at);
            at += run;
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
        line.length = 0; /* its memory is the next line's */
        at++;
    }
    og_text_free(&line);
}

/* A file behind the #ifndef that guards it; the #endif at its end is nothing that is needed. */
static const char *skip_guard(const char *text)
{
    const char *guard = strstr(text, "#ifndef OG_");
    const char *body = guard ? strchr(guard, '\n') + 1 : text;
    return guard && strncmp(body, "#define OG_", 11) == 0 ? body : text;
}

/* What units need by itself, and the functions that OG_REAL(name) means. */
static void add_roots(const char *units, og_text *roots)
{
    static const char call[] = "OG_REAL(";
    og_text_add(roots, "%s\nogive_run og_float32 og_float16 og_bfloat16 og_float64", units);
    for (const char *at = units; (at = strstr(at, call));) {
        at += sizeof call - 1;
        const int length = (int)strcspn(at, ")");
        og_text_add(roots, " og_%.*s_f32 og_%.*s_f64", length, at, length, at);
    }
}

void og_pytorch_add_unit_files(const char *units, og_text *text)
{
    file_list list = {.count = 0};
    og_pytorch_source sources[MOST_FILES];
    og_text roots = {0}, folded[MOST_FILES] = {{0}}, cut[MOST_FILES] = {{0}};
    list_files(units, &list);
    for (int i = 0; i < list.count; i++)
        sources[i] = (og_pytorch_source){skip_guard(og_embedded(list.paths[i])), false};
    og_pytorch_fold(units, sources, list.count, folded);
    for (int i = 0; i < list.count; i++) {
        sources[i].text = folded[i].data ? folded[i].data : "\n";
        text->failed |= folded[i].failed;
    }
    add_roots(units, &roots);
    text->failed |= roots.failed;
    if (!text->failed)
        og_pytorch_cut(sources, list.count, roots.data, true, cut);
    for (int i = 0; i < list.count; i++) {
        og_text_add(text, "    \"%s\": r'''", list.paths[i]);
        og_pytorch_add_without_comments(cut[i].data ? cut[i].data : "\n", text);
        og_text_add(text, "''',\n");
        text->failed |= cut[i].failed;
        og_text_free(&cut[i]);
        og_text_free(&folded[i]);
    }
    og_text_free(&roots);
}
