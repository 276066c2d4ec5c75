/* SPDX-License-Identifier: MIT
 *
 * cuda_emit_args.c - struct og_args, as text and as bytes side by side, and the
 * functions that turn an index into an offset for each access.
 *
 * An access is a<n> in the plan's order: its pointer is a.p<n>, its offset at.o<n>, its
 * stride along dim d a.s<n>_<d>. Strides of 0, and of 1 along the vector dim, are part of
 * the source and no members.
 */
#include "cuda/emit/cuda_emit.h"

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

void og_cuda_add_pointer(og_cuda_emitter *e, const char *type, const char *name, int32_t buffer,
                         size_t offset)
{
    og_cuda_arguments *to = &e->arguments;
    uint64_t none = 0;
    add_bytes(e, &none, sizeof none);
    og_text_add(&to->members, "    %s *%s;\n", type, name);
    if (!og_grow((void **)&to->pointers, &to->pointer_capacity, to->pointer_count + 1,
                 sizeof *to->pointers)) {
        to->members.failed = true;
        return;
    }
    to->pointers[to->pointer_count++] =
        (og_cuda_pointer){.at = to->size - sizeof none, .buffer = buffer, .offset = offset};
}

og_cuda_map *og_cuda_add_map(og_cuda_emitter *e, const char *name, const og_cuda_map *map)
{
    static const unsigned char none[OG_CUDA_MAP_BYTES];
    og_cuda_arguments *to = &e->arguments;
    og_cuda_map *own = &to->maps[to->map_count++];
    add_bytes(e, none, sizeof none);
    og_text_add(&to->members, "    og_map %s;\n", name);
    *own = *map;
    own->at = to->size - sizeof none;
    return own;
}

static void add_index_bytes(og_cuda_emitter *e, int64_t value)
{
    int32_t narrow = (int32_t)value;
    if (e->wide)
        add_bytes(e, &value, sizeof value);
    else
        add_bytes(e, &narrow, sizeof narrow);
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

/* The round-up method: with b = 31 or 63 bits of index and 2^(k-1) < extent <= 2^k,
 * magic = floor(2^(b+k) / extent) + 1 fits b + 1 bits, and its error, at most
 * extent / 2^(b+k), is too small to be seen up to 2^b. */
void og_cuda_add_divisor(og_cuda_emitter *e, const char *name, int64_t extent)
{
    int bits = e->wide ? 63 : 31, k = 0;
    uint64_t magic = 0;
    while ((uint64_t)extent > 1ull << k)
        k++;
    if (extent > 1)
        magic = (uint64_t)(((unsigned __int128)1 << (bits + k)) / (uint64_t)extent) + 1;
    uint32_t shift = k ? (uint32_t)(k - 1) : 0, narrow = (uint32_t)magic, padding = 0;
    add_index_bytes(e, extent);
    if (e->wide)
        add_bytes(e, &magic, sizeof magic);
    else
        add_bytes(e, &narrow, sizeof narrow);
    add_bytes(e, &shift, sizeof shift);
    if (e->wide)
        add_bytes(e, &padding, sizeof padding);
    og_text_add(&e->arguments.members, "    og_divisor %s;\n", name);
}

void og_cuda_add_dim_divisor(og_cuda_emitter *e, int32_t dim, char name[16])
{
    snprintf(name, 16, "d%d", (int)dim);
    if (!e->has_divisor[dim])
        og_cuda_add_divisor(e, name, e->kernel->space.extent[dim]);
    e->has_divisor[dim] = true;
}

static void add_stride(og_cuda_emitter *e, int32_t access, int32_t dim)
{
    bool *has = &e->has_stride[access * OG_MAX_RANK + dim];
    char name[32];
    if (*has)
        return;
    *has = true;
    snprintf(name, sizeof name, "s%d_%d", (int)access, (int)dim);
    og_cuda_add_index(e, name, e->kernel->accesses[access].stride[dim]);
}

/* ---- operands --------------------------------------------------------------------- */

const char *og_cuda_type_of(og_dtype dtype)
{
    static const char *const types[OG_DTYPE_COUNT] = {
        [OG_FLOAT32] = "float",
        [OG_FLOAT16] = "og_half",
        [OG_BFLOAT16] = "og_half",
        [OG_FLOAT64] = "double",
    };
    return types[dtype];
}

og_cuda_motion og_cuda_motion_of(const og_cuda_emitter *e, const og_access *access)
{
    if (e->vector_dim < 0)
        return OG_CUDA_UNIT;
    int64_t stride = access->stride[e->vector_dim];
    return stride == 0 ? OG_CUDA_STILL : stride == 1 ? OG_CUDA_UNIT : OG_CUDA_STRIDED;
}

void og_cuda_print_stride(og_cuda_emitter *e, int32_t access, og_text *text)
{
    add_stride(e, access, e->vector_dim);
    og_text_add(text, "a.s%d_%d", (int)access, (int)e->vector_dim);
}

static bool is_moving(const og_cuda_emitter *e, int32_t access)
{
    for (int32_t d = 0; d < e->kernel->space.rank; d++)
        if (e->kernel->accesses[access].stride[d] != 0)
            return true;
    return false;
}

/* The type of constant c, by the only instruction that uses it. */
static og_type constant_type(const og_kernel *kernel, int32_t c)
{
    for (int32_t p = 0; p < kernel->pass_count; p++)
        for (int level = 0; level < 2; level++) {
            const og_pass *pass = &kernel->passes[p];
            const og_instr *instrs = level ? pass->rows : pass->elements;
            int32_t count = level ? pass->row_count : pass->element_count;
            for (int32_t i = 0; i < count; i++) {
                int32_t constants = instrs[i].op == OG_OP_CONSTANT ? 1
                                    : instrs[i].op < OG_FUNCTION_COUNT
                                        ? og_function_of(instrs[i].op)->constants
                                        : 0;
                if (instrs[i].index <= c && c < instrs[i].index + constants)
                    return instrs[i].type;
            }
        }
    return OG_F32;
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
        og_text_add(&e->arguments.members, "    %s c%d;\n", is_double ? "double" : "float", (int)c);
    }
}

void og_cuda_add_operands(og_cuda_emitter *e)
{
    og_text *to = &e->places;
    og_text_add(to, "\n/* Where each access is, in elements from its pointer. */\n"
                    "struct og_offsets {\n");
    for (int32_t i = 0; i < e->kernel->access_count; i++) {
        const og_access *access = &e->kernel->accesses[i];
        char name[32], type[32];
        snprintf(name, sizeof name, "p%d", (int)i);
        snprintf(type, sizeof type, "%s%s", og_kernel_stores(e->kernel, i) ? "" : "const ",
                 og_cuda_type_of(access->dtype));
        og_cuda_add_pointer(e, type, name, access->buffer, 0);
        if (is_moving(e, i))
            og_text_add(to, "    og_index o%d;\n", (int)i);
    }
    add_constants(e);
    og_text_add(to, "};\n\nOG_FN og_offsets og_start()\n{\n    og_offsets at;\n");
    for (int32_t i = 0; i < e->kernel->access_count; i++)
        if (is_moving(e, i))
            og_text_add(to, "    at.o%d = 0;\n", (int)i);
    og_text_add(to, "    return at;\n}\n");
}

/* at += index * stride of one dim, for every access. */
static void add_moves(og_cuda_emitter *e, int32_t dim, const char *index)
{
    for (int32_t i = 0; i < e->kernel->access_count; i++) {
        int64_t stride = e->kernel->accesses[i].stride[dim];
        if (stride == 0)
            continue;
        if (dim == e->vector_dim && stride == 1) {
            og_text_add(&e->places, "    at.o%d += %s;\n", (int)i, index);
            continue;
        }
        add_stride(e, i, dim);
        og_text_add(&e->places, "    at.o%d += %s * a.s%d_%d;\n", (int)i, index, (int)i, (int)dim);
    }
}

void og_cuda_add_seek(og_cuda_emitter *e, const char *name, const int32_t *dims, int32_t count)
{
    og_text_add(&e->places,
                "\nOG_FN void %s(const og_args &a, og_index index, og_offsets &at)\n{\n", name);
    if (count > 1)
        og_text_add(&e->places, "    og_index rest, i;\n");
    for (int32_t k = count - 1; k > 0; k--) {
        char divisor[16];
        og_cuda_add_dim_divisor(e, dims[k], divisor);
        og_text_add(&e->places,
                    "    rest = og_divide(index, a.%s);\n"
                    "    i = index - rest * a.%s.extent;\n"
                    "    index = rest;\n",
                    divisor, divisor);
        add_moves(e, dims[k], "i");
    }
    if (count > 0)
        add_moves(e, dims[0], "index");
    og_text_add(&e->places, "}\n");
}

void og_cuda_add_seek_range(og_cuda_emitter *e, const char *name, int32_t from, int32_t to)
{
    int32_t dims[OG_MAX_RANK], count = 0;
    for (int32_t d = from; d < to; d++)
        dims[count++] = d;
    og_cuda_add_seek(e, name, dims, count);
}
