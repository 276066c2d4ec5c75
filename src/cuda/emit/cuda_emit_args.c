/* SPDX-License-Identifier: MIT
 *
 * cuda_emit_args.c - struct og_args, as text and as bytes side by side, and what operands.cuh is
 * told of the kernel's accesses: operand n is access n of the plan. Which of them move along which
 * dim, and which are neighbours along the vector dim, is part of the source; by how much is not.
 */
#include "cuda/emit/cuda_emit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- members -------------------------------------------------------------------- */

/* Room for a member of this size, aligned to it; its bytes. What does not fit is
 * only counted: og_cuda_emit() refuses it in the end. */
static void add_bytes(og_cuda_emitter *e, const void *bytes, size_t size)
{
    og_cuda_arguments *to = &e->arguments;
    to->size = (to->size + size - 1) / size * size;
    if (to->size + size <= sizeof to->bytes)
        memcpy(to->bytes + to->size, bytes, size);
    to->size += size;
}

static void add_pointer_bytes(og_cuda_emitter *e, int32_t buffer, size_t offset)
{
    og_cuda_arguments *to = &e->arguments;
    uint64_t none = 0;
    add_bytes(e, &none, sizeof none);
    if (!og_grow((void **)&to->pointers, &to->pointer_capacity, to->pointer_count + 1,
                 sizeof *to->pointers)) {
        to->members.failed = true;
        return;
    }
    to->pointers[to->pointer_count++] =
        (og_cuda_pointer){.at = to->size - sizeof none, .buffer = buffer, .offset = offset};
}

void og_cuda_add_pointer(og_cuda_emitter *e, const char *type, const char *name, int32_t buffer,
                         size_t offset)
{
    add_pointer_bytes(e, buffer, offset);
    og_text_add(&e->arguments.members, "    %s *%s;\n", type, name);
}

og_cuda_map *og_cuda_add_map(og_cuda_emitter *e, const char *name, const og_cuda_map *map)
{
    static const unsigned char none[OG_CUDA_MAP_BYTES];
    og_cuda_arguments *to = &e->arguments;
    if (to->map_count == 0)
        og_text_add(&e->numbers, "struct alignas(64) og_map {\n    uint64_t opaque[16];\n};\n");
    og_cuda_map *own = &to->maps[to->map_count++];
    add_bytes(e, none, sizeof none);
    og_text_add(&to->members, "    og_map %s;\n", name);
    *own = *map;
    own->at = to->size - sizeof none;
    return own;
}

/* A number of 64 bits, or 32. */
static void add_number_bytes(og_cuda_emitter *e, uint64_t value, bool wide)
{
    uint32_t narrow = (uint32_t)value;
    if (wide)
        add_bytes(e, &value, sizeof value);
    else
        add_bytes(e, &narrow, sizeof narrow);
}

static void add_index_bytes(og_cuda_emitter *e, int64_t value)
{
    add_number_bytes(e, (uint64_t)value, e->wide);
}

ogive_status og_cuda_copy_maps(const og_cuda_emitter *e, const og_cuda_map **out)
{
    size_t count = (size_t)e->arguments.map_count;
    og_cuda_map *maps = OG_ARENA_NEW(e->arena, og_cuda_map, count);
    if (!maps)
        return og_fail_memory(e->error, count * sizeof *maps);
    memcpy(maps, e->arguments.maps, count * sizeof *maps);
    *out = maps;
    return OGIVE_OK;
}

void og_cuda_add_index(og_cuda_emitter *e, const char *name, int64_t value)
{
    add_index_bytes(e, value);
    og_text_add(&e->arguments.members, "    og_index %s;\n", name);
}

void og_cuda_add_indices(og_cuda_emitter *e, const char *name, const int64_t *values, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        add_index_bytes(e, values[i]);
    og_text_add(&e->arguments.members, "    og_index %s[%d];\n", name, (int)count);
}

void og_cuda_add_dim_index(og_cuda_emitter *e, const char *name, int i, int64_t value)
{
    char full[16];
    snprintf(full, sizeof full, "%s_%c", name, "dhw"[i]);
    og_cuda_add_index(e, full, value);
}

static void add_division_bytes(og_cuda_emitter *e, int64_t extent, bool wide)
{
    og_division by = og_divide_by(extent, wide ? 63 : 31);
    uint32_t padding = 0;
    add_number_bytes(e, (uint64_t)extent, wide);
    add_number_bytes(e, by.magic, wide);
    add_bytes(e, &by.shift, sizeof by.shift);
    if (wide)
        add_bytes(e, &padding, sizeof padding);
}

static void add_divisor_bytes(og_cuda_emitter *e, int64_t extent)
{
    add_division_bytes(e, extent, e->wide);
}

void og_cuda_add_cuts(og_cuda_emitter *e, const char *name, const int64_t *extents, int32_t count,
                      bool far)
{
    for (int32_t i = 0; i < count; i++)
        add_division_bytes(e, extents[i], far);
    og_text_add(&e->arguments.members, "    og_cut %s[%d];\n", name, (int)count);
}

void og_cuda_add_divisor(og_cuda_emitter *e, const char *name, int64_t extent)
{
    add_divisor_bytes(e, extent);
    og_text_add(&e->arguments.members, "    og_divisor %s;\n", name);
}

void og_cuda_print_dim_divisor(int32_t dim, char name[16])
{
    snprintf(name, 16, "dims[%d]", (int)dim);
}

size_t og_cuda_offset_of(const og_access *access)
{
    return access->buffer < 0 ? 0
                              : (size_t)(access->offset * (int64_t)og_dtype_bytes(access->dtype));
}

int64_t og_cuda_line_of(const og_kernel *kernel)
{
    int64_t extent = kernel->space.extent[kernel->space.rank - 1];
    bool has_lines = og_kernel_convolves(kernel) && kernel->matrices.n_rank > 1;
    return has_lines ? og_divide_up(extent, 4) * 4 : extent;
}

/* ---- operands --------------------------------------------------------------------- */

const char *og_cuda_type_of(og_dtype dtype)
{
    static const char *const types[OG_DTYPE_COUNT] = {
        [OG_FLOAT32] = "float",  [OG_FLOAT16] = "og_half", [OG_BFLOAT16] = "og_half",
        [OG_FLOAT64] = "double", [OG_BOOL] = "uint8_t",    [OG_UINT8] = "uint8_t",
        [OG_INT8] = "int8_t",    [OG_INT16] = "int16_t",   [OG_INT32] = "int32_t",
        [OG_INT64] = "int64_t",
    };
    return types[dtype];
}

og_cuda_motion og_cuda_motion_of(const og_cuda_emitter *e, const og_access *access)
{
    if (!og_access_is_plain(access))
        return access->window_count ? OG_CUDA_SEEN : OG_CUDA_NUMBERED;
    if (e->vector_dim < 0)
        return OG_CUDA_UNIT;
    int64_t stride = access->stride[e->vector_dim];
    return stride == 0 ? OG_CUDA_STILL : stride == 1 ? OG_CUDA_UNIT : OG_CUDA_STRIDED;
}

/* Instruction number i of a kernel's, or NULL: it has no more. */
static const og_instr *find_instr(const og_kernel *kernel, int32_t i)
{
    for (int32_t p = 0; p < kernel->pass_count; p++) {
        const og_pass *pass = &kernel->passes[p];
        if (i < pass->element_count)
            return &pass->elements[i];
        i -= pass->element_count;
        if (i < pass->row_count)
            return &pass->rows[i];
        i -= pass->row_count;
    }
    return NULL;
}

/* The type of constant c, by the only instruction that uses it. */
static og_type constant_type(const og_kernel *kernel, int32_t c)
{
    const og_instr *instr;
    for (int32_t i = 0; (instr = find_instr(kernel, i)) != NULL; i++) {
        int32_t constants = instr->op == OG_OP_CONSTANT     ? 1
                            : instr->op < OG_FUNCTION_COUNT ? og_function_of(instr->op)->constants
                                                            : 0;
        if (instr->index <= c && c < instr->index + constants)
            return instr->type;
    }
    return OG_F32;
}

/* Is there room for an inverse of every number? Half of it is left to what bodies add. */
static bool has_room_for_inverses(const og_kernel *kernel)
{
    enum { NUMBER_BYTES = 3 * 8, OPERAND_BYTES = 128 }; /* pointer and strides */
    return (int64_t)kernel->constant_count * NUMBER_BYTES +
               (int64_t)kernel->access_count * OPERAND_BYTES <=
           OG_CUDA_ARGUMENT_BYTES / 2;
}

bool og_cuda_divides_by(const og_cuda_emitter *e, const og_instr *division, int32_t *constant)
{
    const og_instr *instr;
    if (division->op != OG_OP_div || division->type != OG_F32 || og_cuda_serves(e) ||
        e->kernel->values[division->dst].level == OG_ROW || !has_room_for_inverses(e->kernel))
        return false;
    for (int32_t i = 0; (instr = find_instr(e->kernel, i)) != NULL; i++)
        if (instr->op == OG_OP_CONSTANT && instr->dst == division->args[1]) {
            const float by = (float)e->kernel->constants[instr->index];
            *constant = instr->index;
            return isfinite(by) && by != 0;
        }
    return false;
}

/* Is something divided by constant c? */
static bool is_divisor(const og_cuda_emitter *e, int32_t c)
{
    const og_instr *instr;
    int32_t by = -1;
    for (int32_t i = 0; (instr = find_instr(e->kernel, i)) != NULL; i++)
        if (og_cuda_divides_by(e, instr, &by) && by == c)
            return true;
    return false;
}

void og_cuda_find_inverse(float by, double *high, double *low)
{
    *high = nextafter(1 / (double)by, 0);
    *low = fma(-*high, by, 1) / by;
}

static void add_inverse(og_cuda_emitter *e, int32_t c)
{
    double high, low;
    og_cuda_find_inverse((float)e->kernel->constants[c], &high, &low);
    add_bytes(e, &high, sizeof high);
    add_bytes(e, &low, sizeof low);
    og_text_add(&e->arguments.members, "    double c%d_high, c%d_low; /* 1 / c%d */\n", (int)c,
                (int)c, (int)c);
}

static void add_constants(og_cuda_emitter *e)
{
    for (int32_t c = 0; c < e->kernel->constant_count; c++) {
        double value = e->kernel->constants[c];
        float narrow = (float)value;
        bool is_double = constant_type(e->kernel, c) == OG_F64;
        if (is_double)
            add_bytes(e, &value, sizeof value);
        else
            add_bytes(e, &narrow, sizeof narrow);
        og_text_add(&e->arguments.members, "    %s c%d;\n", og_cuda_number_type(e, is_double),
                    (int)c);
        if (is_divisor(e, c))
            add_inverse(e, c);
    }
}

/* Is the stride along the vector dim, the space's last, needed of any operand? */
static bool needs_last_stride(const og_cuda_emitter *e)
{
    const int32_t last = e->kernel->space.rank - 1;
    for (int32_t i = 0; e->vector_dim == last && i < e->kernel->access_count; i++) {
        og_cuda_motion motion = og_cuda_motion_of(e, &e->kernel->accesses[i]);
        if (motion >= OG_CUDA_STRIDED ||
            (motion == OG_CUDA_STILL && og_kernel_stores(e->kernel, i)))
            return true;
    }
    return e->vector_dim != last;
}

int32_t og_cuda_number_of(const og_cuda_emitter *e, int32_t access)
{
    int32_t buffer = e->kernel->accesses[access].buffer;
    bool may_be =
        e->wishes->numbers && buffer >= 0 && e->plan->buffers[buffer].kind == OG_BUFFER_INPUT;
    return may_be ? e->wishes->numbers[e->plan->buffers[buffer].index] : -1;
}

static int32_t count_windows(const og_kernel *kernel)
{
    int32_t count = 0;
    for (int32_t i = 0; i < kernel->access_count; i++)
        count += kernel->accesses[i].window_count;
    return count;
}

/* What operands.cuh calls divides. */
static int divides(const og_window *window)
{
    return window->uneven.bits ? 2 : window->divisor > 1;
}

/* a.uneven: og_uneven of prologue.cuh, one for each window, if there is one that cuts a dim. */
static void add_uneven(og_cuda_emitter *e)
{
    const og_kernel *kernel = e->kernel;
    bool has_uneven = false;
    for (int32_t i = 0; i < kernel->access_count; i++)
        for (int32_t w = 0; w < kernel->accesses[i].window_count; w++)
            has_uneven |= kernel->accesses[i].windows[w].uneven.bits > 0;
    for (int32_t i = 0; i < kernel->access_count && has_uneven; i++)
        for (int32_t w = 0; w < kernel->accesses[i].window_count; w++) {
            const og_uneven *uneven = &kernel->accesses[i].windows[w].uneven;
            const int64_t numbers[] = {uneven->bits, uneven->from, uneven->reach, uneven->width,
                                       uneven->count};
            for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
                add_index_bytes(e, numbers[n]);
        }
    if (has_uneven)
        og_text_add(&e->arguments.members, "    og_uneven uneven[%d];\n",
                    (int)count_windows(kernel));
}

/* a.windows: og_window of prologue.cuh, access by access. */
static void add_windows(og_cuda_emitter *e)
{
    const og_kernel *kernel = e->kernel;
    for (int32_t i = 0; i < kernel->access_count; i++)
        for (int32_t w = 0; w < kernel->accesses[i].window_count; w++) {
            const og_window *window = &kernel->accesses[i].windows[w];
            add_bytes(e, &kernel->accesses[i].fill, sizeof(double));
            add_index_bytes(e, window->start);
            add_index_bytes(e, window->extent);
            add_index_bytes(e, window->stride);
            add_divisor_bytes(e, window->divisor);
        }
    if (count_windows(kernel))
        og_text_add(&e->arguments.members, "    og_window windows[%d];\n",
                    (int)count_windows(kernel));
    add_uneven(e);
}

/* a.p, a.strides and a.dims. */
static void add_places(og_cuda_emitter *e)
{
    const og_kernel *kernel = e->kernel;
    const int32_t rank = kernel->space.rank, dims = rank - (rank && !needs_last_stride(e));
    og_text *members = &e->arguments.members;
    for (int32_t i = 0; i < kernel->access_count; i++) { /* of what is numbered nobody reads it */
        const og_access *access = &kernel->accesses[i];
        add_pointer_bytes(e, access->buffer < 0 ? 0 : access->buffer, og_cuda_offset_of(access));
    }
    og_text_add(members, "    void *p[%d];\n", (int)kernel->access_count);
    for (int32_t i = 0; i < kernel->access_count; i++)
        for (int32_t d = 0; d < dims; d++)
            add_index_bytes(e, kernel->accesses[i].stride[d]);
    for (int32_t i = 0; i < kernel->access_count; i++)
        for (int32_t w = 0; w < kernel->accesses[i].window_count; w++)
            for (int32_t d = 0; d < dims; d++)
                add_index_bytes(e, og_window_step(&kernel->accesses[i].windows[w], d));
    if (og_cuda_serves(e))
        og_text_add(members, "    og_index strides[%d][OG_DIMS];\n",
                    (int)(kernel->access_count + count_windows(kernel)));
    else if (dims)
        og_text_add(members, "    og_index strides[%d][%d];\n",
                    (int)(kernel->access_count + count_windows(kernel)), (int)dims);
    add_windows(e);
    for (int32_t d = 0; d < rank; d++)
        add_divisor_bytes(e, d + 1 == rank ? og_cuda_line_of(kernel) : kernel->space.extent[d]);
    if (!rank)
        add_divisor_bytes(e, 1);
    if (og_cuda_serves(e))
        og_text_add(members, "    og_divisor dims[OG_DIMS];\n");
    else
        og_text_add(members, "    og_divisor dims[%d];\n", rank ? (int)rank : 1);
    if (e->wishes->number_count)
        og_text_add(members, "    double numbers[%d];\n", (int)e->wishes->number_count);
}

static uint32_t find_moves(const og_cuda_emitter *e, int32_t access)
{
    uint32_t moves = 0;
    for (int32_t d = 0; d < e->kernel->space.rank; d++)
        if (e->kernel->accesses[access].stride[d] != 0)
            moves |= 1u << d;
    return moves;
}

/* The windows of the kernel as places, the first of them number `place`. */
static void add_window_places(og_cuda_emitter *e, int32_t place)
{
    const og_kernel *kernel = e->kernel;
    for (int32_t i = 0; i < kernel->access_count; i++)
        for (int32_t w = 0; w < kernel->accesses[i].window_count; w++, place++) {
            const og_window *window = &kernel->accesses[i].windows[w];
            uint32_t moves = 0, ones = 0;
            for (int32_t d = 0; d < kernel->space.rank; d++) {
                moves |= (uint32_t)(og_window_step(window, d) != 0) << d;
                ones |= (uint32_t)(og_window_step(window, d) == 1) << d;
            }
            og_text_add(&e->places,
                        "template <> struct og_operand<%d> {\n"
                        "    enum { moves = 0x%x, motion = OG_STRIDED, divides = %d, ones = 0x%x, "
                        "is_unit = %d };\n};\n",
                        (int)place, (unsigned)moves, divides(window), (unsigned)ones,
                        window->stride == 1);
        }
}

void og_cuda_print_indices(const int32_t *indices, int32_t count, og_text *text)
{
    for (int32_t i = 0; i < count; i++)
        og_text_add(text, i ? ", %d" : "%d", (int)indices[i]);
}

/* Lists of windows, of a source that serves every layout and dtype: see any_operands.cuh. */
static void add_window_lists(og_cuda_emitter *e)
{
    const og_kernel *kernel = e->kernel;
    static const char *const names[] = {"FIRST_WINDOWS", "WINDOW_COUNTS", "DIVIDES"};
    for (int list = 0; list < 3; list++) {
        int32_t first = 0;
        og_text_add(&e->numbers, "#define OG_%s ", names[list]);
        for (int32_t i = 0; i < kernel->access_count; i++) {
            const og_access *access = &kernel->accesses[i];
            if (list < 2)
                og_text_add(&e->numbers, "%s%d", i ? "," : "",
                            (int)(list ? access->window_count : first));
            for (int32_t w = 0; w < access->window_count; w++, first++)
                if (list == 2)
                    og_text_add(&e->numbers, "%s%d", first ? "," : "",
                                divides(&access->windows[w]));
        }
        og_text_add(&e->numbers, "\n");
    }
}

/* What the layout of operands leaves: which of them are numbers that a kernel kept. */
static void add_any_operands(og_cuda_emitter *e)
{
    const og_kernel *kernel = e->kernel;
    uint32_t numbers = 0;
    for (int32_t i = 0; i < kernel->access_count; i++) {
        const int32_t buffer = kernel->accesses[i].buffer;
        bool is_number = buffer < 0 || e->plan->buffers[buffer].kind == OG_BUFFER_TEMPORARY;
        numbers |= (uint32_t)is_number << i;
    }
    og_text_add(&e->numbers, "#define OG_KEPT_NUMBERS 0x%x\n", (unsigned)numbers);
    if (count_windows(kernel))
        add_window_lists(e);
}

void og_cuda_add_operands(og_cuda_emitter *e)
{
    static const char *const motions[] = {
        [OG_CUDA_STILL] = "OG_STILL",       [OG_CUDA_UNIT] = "OG_UNIT",
        [OG_CUDA_STRIDED] = "OG_STRIDED",   [OG_CUDA_SEEN] = "OG_SEEN",
        [OG_CUDA_NUMBERED] = "OG_NUMBERED",
    };
    const og_kernel *kernel = e->kernel;
    const int32_t windows = count_windows(kernel);
    int32_t first_window = 0;
    og_text *to = &e->places;
    int32_t tensors = 0;
    add_places(e);
    add_constants(e);
    og_text_add(to, "\nenum { OG_OPERANDS = %d, OG_WINDOWS = %d, ", (int)kernel->access_count,
                (int)windows);
    if (og_cuda_serves(e))
        og_text_add(to, "OG_SEVERAL_ROWS = OG_VECTOR_DIM < OG_KEPT_DIMS");
    else
        og_text_add(to, "OG_VECTOR_DIM = %d, OG_SEVERAL_ROWS = %d", (int)e->vector_dim,
                    e->vector_dim < kernel->space.rank - kernel->space.n_reduced);
    og_text_add(to,
                ", OG_BF16_BY_TWO = %d, OG_MENDS = %d, OG_WHOLE_IS_SEEN = %d };\n"
                "typedef og_indices<",
                kernel->space.n_reduced && !kernel->product_count, e->mends, e->sees_whole);
    for (int32_t i = 0; i < kernel->access_count; i++)
        if (og_cuda_number_of(e, i) < 0)
            e->list[tensors++] = i;
    for (int32_t w = 0; w < windows; w++)
        e->list[tensors + w] = kernel->access_count + w;
    og_cuda_print_indices(e->list, tensors + windows, to);
    og_text_add(to, "> og_all_places;\n");
    og_cuda_include(to, og_cuda_serves(e) ? "any_operands" : "operands");
    if (og_cuda_serves(e)) {
        add_any_operands(e);
        return;
    }
    og_text_add(to, "\n");
    for (int32_t t = 0; t < tensors; t++) {
        const int32_t i = e->list[t];
        const og_access *access = &kernel->accesses[i];
        og_text_add(to,
                    "template <> struct og_operand<%d> : og_%s {\n"
                    "    enum { moves = 0x%x, motion = %s",
                    (int)i, og_dtype_name(access->dtype), (unsigned)find_moves(e, i),
                    motions[og_cuda_motion_of(e, access)]);
        if (access->window_count)
            og_text_add(to, ", first_window = %d, windows = %d", (int)first_window,
                        (int)access->window_count);
        og_text_add(to, " };\n};\n");
        first_window += access->window_count;
    }
    add_window_places(e, kernel->access_count);
}

void og_cuda_add_seek(og_cuda_emitter *e, const char *name, const int32_t *dims, int32_t count)
{
    int32_t fastest_first[OG_MAX_RANK];
    for (int32_t d = 0; d < count; d++)
        fastest_first[d] = dims[count - 1 - d];
    og_text_add(&e->places,
                "\nOG_FN void %s(const og_args &a, og_index index, og_offsets &at)\n{\n", name);
    if (count) {
        og_text_add(&e->places, "    og_seek<");
        og_cuda_print_indices(fastest_first, count, &e->places);
        og_text_add(&e->places, ">(a, index, at);\n");
    }
    og_text_add(&e->places, "}\n");
}

void og_cuda_add_seek_between(og_cuda_emitter *e, const char *name, og_cuda_bound from,
                              og_cuda_bound to)
{
    static const char *const names[] = {"0", "OG_KEPT_DIMS - 1", "OG_KEPT_DIMS", "OG_DIMS"};
    const og_space *space = &e->kernel->space;
    const int32_t kept = space->rank - space->n_reduced;
    const int32_t bounds[] = {0, kept > 0 ? kept - 1 : 0, kept, space->rank};
    if (!og_cuda_serves(e)) {
        og_cuda_add_seek_range(e, name, bounds[from], bounds[to]);
        return;
    }
    og_text_add(&e->places,
                "\nOG_FN void %s(const og_args &a, og_index index, og_offsets &at)\n{\n"
                "    og_seek_between<%s, %s>(a, index, at);\n}\n",
                name, names[from], names[to]);
}

void og_cuda_add_seek_range(og_cuda_emitter *e, const char *name, int32_t from, int32_t to)
{
    int32_t dims[OG_MAX_RANK], count = 0;
    for (int32_t d = from; d < to; d++)
        dims[count++] = d;
    og_cuda_add_seek(e, name, dims, count);
}
