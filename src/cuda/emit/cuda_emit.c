/* SPDX-License-Identifier: MIT
 *
 * cuda_emit.c - one kernel of a plan as CUDA C and launches: chooses the body, has
 * the parts written and puts them together. See cuda_emit.h.
 */
#include "cuda/emit/cuda_emit.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BLOCKS = 0x7fffffff };                  /* of gridDim.x */
static const size_t MOST_SCRATCH = (size_t)1 << 62; /* bytes: more than any memory */

/* ---- geometry -------------------------------------------------------------------- */

int64_t og_cuda_count(const og_space *space, int32_t from, int32_t to)
{
    int64_t count = 1;
    for (int32_t d = from; d < to; d++)
        if (space->extent[d] == 0)
            return 0;
    for (int32_t d = from; d < to; d++)
        count = og_times(count, space->extent[d]);
    return count;
}

int32_t og_cuda_power_above(int64_t n)
{
    int32_t power = 1;
    while (power < n)
        power *= 2;
    return power;
}

enum { MOST_REACH = INT32_MAX / 4 };

/* Adds what extent steps come to; false if that is too far for 31 bits. */
static bool add_reach(int64_t step, int64_t extent, int64_t *reach)
{
    int64_t span;
    return !__builtin_mul_overflow(step, extent + 16, &span) &&
           !__builtin_add_overflow(*reach, span, reach) && *reach <= MOST_REACH;
}

bool og_cuda_moves_far(const og_kernel *kernel, const og_window *window)
{
    const int64_t *extent = kernel->space.extent;
    int64_t reach = llabs(window->start);
    return !add_reach(window->step, window->place >= 0 ? extent[window->place] : 1, &reach) ||
           !add_reach(llabs(window->reach), window->tap >= 0 ? extent[window->tap] : 1, &reach) ||
           !add_reach(window->divisor, window->extent, &reach);
}

bool og_cuda_needs_wide(const og_kernel *kernel, int32_t rank)
{
    const int64_t most = MOST_REACH;
    int64_t count = 1;
    for (int32_t d = 0; d < rank; d++)
        if (kernel->space.extent[d] > most ||
            __builtin_mul_overflow(count, kernel->space.extent[d] + 16, &count) || count > most)
            return true;
    for (int32_t i = 0; i < kernel->access_count; i++) {
        const og_access *access = &kernel->accesses[i];
        int64_t reach = 0;
        for (int32_t d = 0; d < kernel->space.rank; d++)
            if (!add_reach(llabs(access->stride[d]), kernel->space.extent[d], &reach))
                return true;
        for (int32_t w = 0; w < access->window_count; w++)
            if (!add_reach(llabs(access->windows[w].stride), access->windows[w].extent, &reach) ||
                og_cuda_moves_far(kernel, &access->windows[w]))
                return true;
    }
    return false;
}

/* Do vectors of this many elements start where all contiguous operands are aligned
 * (if their pointers are)? */
static bool is_vector(const og_cuda_emitter *e, int32_t vector)
{
    const og_space *space = &e->kernel->space;
    /* A row of several dims is cut into vectors as if it were one. */
    if (space->n_reduced > 1 && e->vector_dim == space->rank - 1 &&
        space->extent[e->vector_dim] % vector)
        return false;
    for (int32_t a = 0; a < e->kernel->access_count; a++) {
        const og_access *access = &e->kernel->accesses[a];
        if (og_cuda_motion_of(e, access) != OG_CUDA_UNIT)
            continue;
        for (int32_t d = 0; d < space->rank; d++)
            if (d != e->vector_dim && access->stride[d] % vector)
                return false;
    }
    return true;
}

int32_t og_cuda_best_vector(const og_cuda_emitter *e)
{
    size_t narrowest = 16;
    for (int32_t a = 0; a < e->kernel->access_count; a++)
        if (og_cuda_motion_of(e, &e->kernel->accesses[a]) == OG_CUDA_UNIT &&
            og_dtype_bytes(e->kernel->accesses[a].dtype) < narrowest)
            narrowest = og_dtype_bytes(e->kernel->accesses[a].dtype);
    int32_t vector = (int32_t)(16 / (narrowest < 2 ? 2 : narrowest)); /* 8 at most */
    while (vector > 1 && !is_vector(e, vector))
        vector /= 2;
    return vector;
}

int32_t og_cuda_load_registers(const og_cuda_emitter *e, int32_t vector)
{
    int32_t most = 1;
    for (int32_t p = 0; p < e->kernel->pass_count; p++) {
        const og_pass *pass = &e->kernel->passes[p];
        int32_t size = 0;
        for (int32_t i = 0; i < pass->element_count; i++) {
            if (pass->elements[i].op != OG_OP_LOAD || e->is_kept[pass->elements[i].index])
                continue;
            const og_access *access = &e->kernel->accesses[pass->elements[i].index];
            int32_t count = og_cuda_motion_of(e, access) == OG_CUDA_STILL ? 1 : vector;
            size += count * (int32_t)((og_dtype_bytes(access->dtype) + 3) / 4);
        }
        most = size > most ? size : most;
    }
    return most;
}

/* ---- putting together -------------------------------------------------------------- */

static bool uses_float64(const og_kernel *kernel)
{
    for (int32_t v = 0; v < kernel->value_count; v++)
        if (kernel->values[v].type == OG_F64)
            return true;
    return false;
}

void og_cuda_include(og_text *to, const char *name)
{
    og_text_add(to, "#include \"cuda/kernels/%s.cuh\"\n", name);
}

void og_cuda_add_enum(og_text *to, const og_cuda_number *numbers)
{
    for (const og_cuda_number *n = numbers; n->name; n++)
        og_text_add(to, "%s%s = %lld", n == numbers ? "enum { " : ", ", n->name,
                    (long long)n->value);
    og_text_add(to, " };\n");
}

void og_cuda_add_defines(og_text *to, const og_cuda_number *numbers)
{
    for (const og_cuda_number *n = numbers; n->name; n++)
        og_text_add(to, "#define %s %lld\n", n->name, (long long)n->value);
}

void og_cuda_add_numbers(og_cuda_emitter *e, const og_cuda_number *numbers)
{
    if (!og_cuda_serves(e))
        og_cuda_add_enum(&e->numbers, numbers);
}

/* What comes before the arguments: functions of numbers, the body's numbers, the prologue. */
static void add_opening(const og_cuda_emitter *e, og_text *source)
{
    static const char quiet[] = "#ifdef __CUDACC_RTC__\n"
                                "#pragma nv_diag_suppress 177 /* a function is not used */\n"
                                "#endif\n";
    if (og_cuda_serves(e)) {
        og_text_add(source, "%s", e->numbers.data);
        og_cuda_include(source, "any_dtype");
        return;
    }
    og_text_add(source,
                "%s#include \"math/scalar_base.h\"\n#include \"math/half.h\"\n"
                "#include \"math/scalar_f32.h\"\n%s",
                quiet, uses_float64(e->kernel) ? "#include \"math/scalar_f64.h\"\n" : "");
    og_text_add(source, "\n%s\n", e->numbers.data);
    og_cuda_include(source, "prologue");
}

/* Moves text into the arena. */
static ogive_status keep_source(og_cuda_emitter *e)
{
    const og_text *const parts[] = {&e->numbers, &e->arguments.members, &e->places, &e->passes,
                                    &e->body};
    og_text source = {0};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i]->failed)
            return og_fail_memory(e->error, parts[i]->length);
    add_opening(e, &source);
    og_text_add(&source, "\nstruct og_args {\n%s};\n%s%s\n%s", e->arguments.members.data,
                e->places.data, e->passes.data, e->body.data);
    char *kept = source.failed ? NULL : og_arena_alloc(e->arena, source.length + 1, 1);
    if (kept)
        memcpy(kept, source.data, source.length + 1);
    og_text_free(&source);
    if (!kept)
        return og_fail_memory(e->error, source.length);
    e->out->source = kept;
    return OGIVE_OK;
}

static ogive_status refuse_arguments(const og_cuda_emitter *e, size_t size)
{
    OG_FAIL(e->error, OGIVE_UNSUPPORTED, -1,
            "a CUDA kernel takes at most %d bytes of arguments, this one has %zu (%d operands, "
            "%d numbers): cut the formula into several",
            OG_CUDA_ARGUMENT_BYTES, size, (int)e->kernel->access_count,
            (int)e->kernel->constant_count);
}

/* The one argument that all launches share. */
static ogive_status keep_arguments(og_cuda_emitter *e)
{
    og_cuda_arguments *from = &e->arguments;
    size_t alignment = from->map_count ? OG_CUDA_MAP_ALIGNMENT : 8;
    size_t size = (from->size + alignment - 1) / alignment * alignment;
    size_t count = from->pointer_count;
    if (size > OG_CUDA_ARGUMENT_BYTES)
        return refuse_arguments(e, size);
    unsigned char *bytes = og_arena_alloc(e->arena, size, 1);
    og_cuda_pointer *pointers = OG_ARENA_NEW(e->arena, og_cuda_pointer, count);
    if (!bytes || !pointers)
        return og_fail_memory(e->error, size);
    memcpy(bytes, from->bytes, size);
    if (count)
        memcpy(pointers, from->pointers, count * sizeof *pointers);
    for (int32_t l = 0; l < e->out->launch_count; l++) {
        og_cuda_launch *launch = &e->out->launches[l];
        launch->argument = bytes;
        launch->argument_bytes = size;
        launch->pointers = pointers;
        launch->pointer_count = (int32_t)count;
    }
    return OGIVE_OK;
}

ogive_status og_cuda_make_launches(og_cuda_emitter *e, int32_t most)
{
    e->out->launches = OG_ARENA_NEW(e->arena, og_cuda_launch, (size_t)most);
    if (!e->out->launches)
        return og_fail_memory(e->error, (size_t)most * sizeof *e->out->launches);
    return OGIVE_OK;
}

ogive_status og_cuda_check_blocks(og_cuda_emitter *e, int64_t blocks)
{
    if (blocks > MOST_BLOCKS)
        OG_FAIL(e->error, OGIVE_UNSUPPORTED, -1, "a CUDA kernel has at most %d blocks, not %lld",
                MOST_BLOCKS, (long long)blocks);
    return OGIVE_OK;
}

ogive_status og_cuda_add_launch(og_cuda_emitter *e, const char *entry, int32_t pass, int64_t blocks,
                                int32_t threads)
{
    enum { ENTRY_BYTES = 32 };
    OG_TRY(og_cuda_check_blocks(e, blocks));
    char *name = og_arena_alloc(e->arena, ENTRY_BYTES, 1);
    if (!name)
        return og_fail_memory(e->error, ENTRY_BYTES);
    if (pass < 0)
        snprintf(name, ENTRY_BYTES, "%s", entry);
    else
        snprintf(name, ENTRY_BYTES, "%s%d", entry, (int)pass);
    og_cuda_launch *launch = &e->out->launches[e->out->launch_count++];
    launch->entry = name;
    launch->grid[0] = (uint32_t)blocks;
    launch->block[0] = (uint32_t)threads;
    launch->grid[1] = launch->grid[2] = launch->block[1] = launch->block[2] = 1;
    return OGIVE_OK;
}

og_cuda_launch *og_cuda_overlap_last(og_cuda_emitter *e)
{
    og_cuda_launch *last = &e->out->launches[e->out->launch_count - 1];
    last->overlaps = e->limits->arch >= 90 && e->out->launch_count > 1;
    return last;
}

ogive_status og_cuda_name_body(og_cuda_emitter *e, const char *format, ...)
{
    enum { NAME_BYTES = 160 };
    char *name = og_arena_alloc(e->arena, NAME_BYTES, 1);
    if (!name)
        return og_fail_memory(e->error, NAME_BYTES);
    va_list values;
    va_start(values, format);
    vsnprintf(name, NAME_BYTES, format, values);
    va_end(values);
    e->out->body = name;
    return OGIVE_OK;
}

/* ---- scratch ------------------------------------------------------------------------- */

size_t og_cuda_add_region(og_cuda_emitter *e, const char *type, const char *name, int64_t bytes)
{
    const size_t begin = e->out->scratch_bytes;
    og_cuda_add_pointer(e, type, name, OG_CUDA_SCRATCH, begin);
    size_t padded = ((size_t)bytes + 63) / 64 * 64;
    e->out->scratch_bytes = padded < MOST_SCRATCH - begin ? begin + padded : MOST_SCRATCH;
    return begin;
}

static void add_region(og_cuda_emitter *e, const char *name, int32_t pass, int64_t count,
                       size_t bytes)
{
    char member[32];
    if (pass < 0)
        snprintf(member, sizeof member, "%s", name);
    else
        snprintf(member, sizeof member, "%s%d", name, (int)pass);
    og_cuda_add_region(e, "void", member, og_times(count, (int64_t)bytes));
}

void og_cuda_add_scratch(og_cuda_emitter *e, int64_t partials, int64_t rows)
{
    const og_kernel *kernel = e->kernel;
    const bool has_totals =
        og_cuda_serves(e) ? e->wishes->body == OG_CUDA_COLUMNS_SPLIT : kernel->order == OG_COLUMNS;
    for (int32_t p = 0; p < kernel->pass_count; p++) {
        const og_pass *pass = &kernel->passes[p];
        if (og_cuda_has_row_values(pass))
            add_region(e, "sums", p, partials, og_cuda_sums_bytes(pass, false));
        if (og_cuda_has_terms(pass))
            add_region(e, "terms", p, partials, og_cuda_sums_bytes(pass, true));
        if (og_cuda_square_count(pass))
            add_region(e, "squares", p, partials, og_cuda_square_bytes(pass));
        if (og_cuda_has_terms(pass) && has_totals)
            add_region(e, "totals", p, rows, og_cuda_sums_bytes(pass, false));
    }
    if (kernel->pass_count > 1)
        add_region(e, "row_values", -1, rows, og_cuda_row_bytes(kernel));
}

static void add_numbers(og_cuda_emitter *e)
{
    og_cuda_add_numbers(
        e, (const og_cuda_number[]){{"OG_V", e->vector}, {"OG_THREADS", e->threads}, {0}});
    if (og_cuda_serves(e))
        return;
    if (e->wishes->numbers)
        og_text_add(&e->numbers, "#define OG_INDEX_BITS 32\n#if OG_INDEX_BITS == 64\n"
                                 "typedef int64_t og_index;\ntypedef uint64_t og_unsigned;\n"
                                 "#else\n"
                                 "typedef int32_t og_index;\ntypedef uint32_t og_unsigned;\n"
                                 "#endif\n");
    else
        og_text_add(&e->numbers, "typedef %s og_index;\ntypedef u%s og_unsigned;\n",
                    e->wide ? "int64_t" : "int32_t", e->wide ? "int64_t" : "int32_t");
}

/* ---- the choice ------------------------------------------------------------------------ */

typedef enum { POINTWISE, ROWS, COLUMNS, PRODUCT } kernel_kind;

static kernel_kind kind_of(const og_cuda_emitter *e)
{
    const og_kernel *kernel = e->kernel;
    const og_cuda_body body = e->wishes->body;
    if (kernel->product_count)
        return PRODUCT;
    if (!kernel->space.n_reduced)
        return POINTWISE;
    if (og_cuda_serves(e))
        return body == OG_CUDA_ROWS || body == OG_CUDA_ROWS_SPLIT ? ROWS : COLUMNS;
    return kernel->order == OG_COLUMNS ? COLUMNS : ROWS;
}

/* Of a kind, the first that does not refuse is taken. */
static const struct {
    kernel_kind kind;
    const char *name;       /* explain says "no NAME: why" */
    og_cuda_refuse *refuse; /* NULL: takes all */
    ogive_status (*emit)(og_cuda_emitter *e);
    bool sees; /* reads by og_loads, that is through windows, too */
} choices[] = {
    {POINTWISE, "transposing", og_cuda_refuse_transpose, og_cuda_emit_transpose, false},
    {POINTWISE, "table", og_cuda_refuse_table, og_cuda_emit_table, false},
    {POINTWISE, "vectors", NULL, og_cuda_emit_pointwise, true},
    {COLUMNS, "windows", og_cuda_refuse_windows, og_cuda_emit_windows, true},
    {COLUMNS, "shared memory", og_cuda_refuse_columns_shared, og_cuda_emit_columns_shared, false},
    {COLUMNS, "columns", NULL, og_cuda_emit_columns, true},
    {ROWS, "shared memory", og_cuda_refuse_rows_shared, og_cuda_emit_rows_shared, false},
    {ROWS, "rows", NULL, og_cuda_emit_rows, true},
    {PRODUCT, "tensor cores", og_cuda_refuse_hopper_weights, og_cuda_emit_hopper_weights, true},
    {PRODUCT, "tensor cores", og_cuda_refuse_hopper_windows, og_cuda_emit_hopper_windows, true},
    {PRODUCT, "tensor cores", og_cuda_refuse_hopper_windows_halves,
     og_cuda_emit_hopper_windows_halves, true},
    {PRODUCT, "wgmma", og_cuda_refuse_hopper_float32, og_cuda_emit_hopper_float32, true},
    {PRODUCT, "wgmma", og_cuda_refuse_hopper_halves, og_cuda_emit_hopper_halves, true},
    {PRODUCT, "tensor cores", og_cuda_refuse_mma_windows, og_cuda_emit_mma_windows, true},
    {PRODUCT, "tensor cores", og_cuda_refuse_mma, og_cuda_emit_mma, true},
    {PRODUCT, "CUDA cores", NULL, og_cuda_emit_product, true},
};

/* Are operands seen through windows, or numbered? */
static bool has_windows(const og_kernel *kernel)
{
    for (int32_t a = 0; a < kernel->access_count; a++)
        if (!og_access_is_plain(&kernel->accesses[a]))
            return true;
    return false;
}

static ogive_status emit_best(og_cuda_emitter *e)
{
    kernel_kind kind = kind_of(e);
    const bool has_seen = has_windows(e->kernel), serves = og_cuda_serves(e);
    size_t i = 0;
    e->vector_dim = e->kernel->space.rank - 1;
    if (e->wishes->body == OG_CUDA_MMA_PAIRS || e->wishes->body == OG_CUDA_MMA_HALVES)
        return og_cuda_emit_mma(e);
    for (;; i++) {
        const char *why = NULL;
        if (choices[i].kind != kind || (serves && choices[i].refuse) ||
            (has_seen && !choices[i].sees))
            continue;
        if (choices[i].refuse)
            OG_TRY(choices[i].refuse(e, &why));
        if (!why)
            return choices[i].emit(e);
        if (*why) {
            e->out->unused = choices[i].name;
            e->out->note = why;
        }
    }
}

/* ---- entry ------------------------------------------------------------------------------- */

static ogive_status emit(og_cuda_emitter *e)
{
    const og_kernel *kernel = e->kernel;
    size_t accesses = (size_t)kernel->access_count * (1 + OG_MAX_WINDOWS) + 1; /* and windows */
    e->is_kept = OG_ARENA_NEW(e->arena, bool, accesses);
    e->none_kept = OG_ARENA_NEW(e->arena, bool, accesses);
    e->list = OG_ARENA_NEW(e->arena, int32_t, accesses);
    if (!e->is_kept || !e->none_kept || !e->list)
        return og_fail_memory(e->error, accesses);
    if (og_cuda_count(&kernel->space, 0, kernel->space.rank - kernel->space.n_reduced) == 0 ||
        (!kernel->space.n_reduced && og_cuda_count(&kernel->space, 0, kernel->space.rank) == 0)) {
        e->out->source = "/* nothing to compute */\n";
        e->out->body = "empty";
        return OGIVE_OK;
    }
    e->wide = og_cuda_needs_wide(kernel, kernel->space.rank);
    size_t least = (size_t)kernel->constant_count * sizeof(float);
    if (least > OG_CUDA_ARGUMENT_BYTES) /* now, since emission takes the square of their number */
        return refuse_arguments(e, least);
    OG_TRY(emit_best(e));
    if (e->out->scratch_bytes == MOST_SCRATCH)
        OG_FAIL(e->error, OGIVE_MEMORY, -1, "a kernel's scratch is larger than any memory");
    add_numbers(e);
    OG_TRY(keep_arguments(e));
    return keep_source(e);
}

ogive_status og_cuda_emit(const og_plan *plan, int32_t kernel, const og_cuda_limits *limits,
                          const og_cuda_wishes *wishes, og_arena *arena, og_cuda_work *out,
                          ogive_error *error)
{
    og_cuda_emitter e = {.plan = plan,
                         .kernel = &plan->kernels[kernel],
                         .limits = limits,
                         .wishes = wishes,
                         .arena = arena,
                         .error = error,
                         .lender = -1,
                         .out = out};
    *out = (og_cuda_work){0};
    ogive_status status = emit(&e);
    og_text_free(&e.arguments.members);
    og_text_free(&e.numbers);
    og_text_free(&e.places);
    og_text_free(&e.passes);
    og_text_free(&e.body);
    free(e.arguments.pointers);
    return status;
}
