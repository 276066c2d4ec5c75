/* SPDX-License-Identifier: MIT
 *
 * cuda_emit_sm90.c - products of float32 on Hopper's tensor cores: the launches around
 * cuda_sm90.cuh.
 *
 *     og_turn_w     w goes to the scratch, if TMA cannot fetch it as it lies
 *     og_split      x becomes pairs of float16 in the scratch
 *     og_tensor     the product and pass 0
 *     og_redo       what tensor cores cannot hold, in plan.h's order; mostly nothing
 *     og_combine0   if the pass reduces
 *
 * The last dim of the space is the columns, a row each of w, the right factor; all others
 * together are the rows.
 */
#include "cuda/cuda_choose.h"
#include "cuda/cuda_emit_product.h"

#include <stdio.h>
#include <stdlib.h>

extern const char og_text_of_cuda_tensor[], og_text_of_cuda_sm90_base[],
    og_text_of_cuda_tensor_split[], og_text_of_cuda_tensor_redo[], og_text_of_cuda_sm90_ptx[],
    og_text_of_cuda_sm90_pairs[], og_text_of_cuda_sm90[], og_text_of_cuda_sm90_redo[],
    og_text_of_cuda_sm90_turn[];

enum {
    TILE = 128,   /* the most rows of a tile */
    GROUP = 64,   /* columns of a warpgroup */
    BLOCK_K = 64, /* k of a box, of 128 bytes; of w in float32 half of that */
    TURN = 64,    /* k and columns of a box of cuda_sm90_turn.cuh */
    TURN_THREADS = 256,
    TURN_BYTES = TURN * (TURN + 1) * 4,
    /* Shared memory: the kernels assert that it is theirs. */
    RING_BYTES = 14 * 16384,
    FIXED_BYTES = 256 + 8 * 64 /* votes, barriers */
};

/* ---- arguments ----------------------------------------------------------------------------- */

typedef struct {
    int64_t rows, n, k, m_tiles, n_tiles, k_padded, runs, redo_groups;
    int32_t tile_rows; /* of x: few rows leave time only for w */
    int32_t groups;    /* of GROUP columns; 1 if there is a multiprocessor for each */
    bool turns_w;      /* w goes to the scratch first */
    int64_t w_pitch;   /* elements from a row of w, or of its copy, to the next */
} matrices;

static int64_t count_rows(const og_space *space)
{
    return og_cuda_count(space, 0, space->rank - 1);
}

static matrices see_matrices(const og_kernel *kernel, const og_cuda_limits *limits)
{
    matrices s = {.rows = count_rows(&kernel->space),
                  .n = kernel->space.extent[kernel->space.rank - 1],
                  .k = kernel->products[0].k};
    s.tile_rows = s.rows <= 32 ? 32 : s.rows <= 64 ? 64 : TILE;
    s.m_tiles = (s.rows + s.tile_rows - 1) / s.tile_rows;
    s.redo_groups = (s.rows + OG_CUDA_REDO_GROUP - 1) / OG_CUDA_REDO_GROUP;
    s.groups = s.m_tiles * ((s.n + GROUP - 1) / GROUP) <= limits->multiprocessors ? 1 : 2;
    s.n_tiles = (s.n + s.groups * GROUP - 1) / (s.groups * GROUP);
    s.k_padded = (s.k + BLOCK_K - 1) / BLOCK_K * BLOCK_K;
    s.runs = (s.n + OG_RUN - 1) / OG_RUN;
    og_cuda_product_facts facts = og_cuda_product_facts_of(kernel);
    s.turns_w = og_cuda_turns_right(&facts);
    s.w_pitch = s.turns_w ? og_divide_up(s.k, 4) * 4 : facts.right_pitch;
    return s;
}

/* Maps come first: they are aligned more than all others. */
static void add_maps(og_cuda_emitter *e, const matrices *s)
{
    const og_access *w = &e->kernel->products[0].right;
    int32_t box_rows = 2 * s->tile_rows; /* hi, then lo */
    int64_t w_bytes = s->turns_w ? s->n * s->w_pitch * 4 : 0;
    og_text_add(&e->numbers, "struct alignas(64) og_map {\n    uint64_t opaque[16];\n};\n");
    og_cuda_add_map(e, "w_map",
                    &(og_cuda_map){.buffer = s->turns_w ? OG_CUDA_SCRATCH : w->buffer,
                                   .dtype = w->dtype,
                                   .columns = s->k,
                                   .rows = s->n,
                                   .depth = 1,
                                   .slab_bytes = s->w_pitch * 4,
                                   .fetches_256 = true,
                                   .pitch_bytes = s->w_pitch * 4,
                                   .box_columns = BLOCK_K / 2,
                                   .box_rows = s->groups * GROUP});
    og_cuda_add_map(e, "x_map",
                    &(og_cuda_map){.buffer = OG_CUDA_SCRATCH,
                                   .offset = ((size_t)w_bytes + 63) / 64 * 64,
                                   .dtype = OG_FLOAT16,
                                   .columns = s->k_padded,
                                   .rows = s->m_tiles * box_rows,
                                   .depth = 1,
                                   .slab_bytes = s->k_padded * 2,
                                   .fetches_256 = true,
                                   .pitch_bytes = s->k_padded * 2,
                                   .box_columns = BLOCK_K,
                                   .box_rows = box_rows});
    og_cuda_add_region(e, "void", "w_copy", w_bytes);
    og_cuda_add_region(e, "void", "x_pairs", s->m_tiles * box_rows * s->k_padded * 2);
    og_cuda_add_region(e, "void", "x_scales", s->rows * 4);
    og_cuda_add_region(e, "void", "redo", s->runs * s->m_tiles * s->tile_rows);
    og_cuda_add_region(e, "void", "any_redo", 4);
}

/* og_x_row(): where a row of x begins; og_w_row(), og_w_stride(): the same of w. */
static void add_x(og_cuda_emitter *e)
{
    const og_product *product = &e->kernel->products[0];
    og_text *to = &e->passes;
    og_cuda_add_pointer(e, "const og_element", "x", product->left.buffer, 0);
    og_cuda_add_index(e, "x_k", product->left_k_stride);
    og_text_add(to, "\nOG_FN const og_element *og_x_row(const og_args &a, og_index index)\n{\n"
                    "    int64_t at = 0;\n    og_index rest;\n");
    for (int32_t d = e->kernel->space.rank - 2; d >= 0; d--) {
        char stride[16], divisor[16];
        snprintf(stride, sizeof stride, "x_%d", (int)d);
        snprintf(divisor, sizeof divisor, "d%d", (int)d);
        og_cuda_add_index(e, stride, product->left.stride[d]);
        if (d == 0) {
            og_text_add(to, "    at += (int64_t)index * a.%s;\n", stride);
            break;
        }
        if (!e->has_divisor[d])
            og_cuda_add_divisor(e, divisor, e->kernel->space.extent[d]);
        e->has_divisor[d] = true;
        og_text_add(to,
                    "    rest = og_divide(index, a.%s);\n"
                    "    at += (int64_t)(index - rest * a.%s.extent) * a.%s;\n"
                    "    index = rest;\n",
                    divisor, divisor, stride);
    }
    og_text_add(to, "    return a.x + at;\n}\n");
    og_text_add(to, "\nOG_FN const og_element *og_w_row(const og_args &a, og_index, og_index n)\n"
                    "{\n    return (OG_TURNS_W ? (const og_element *)a.w_copy : a.w) + n * "
                    "(int64_t)a.w_pitch;\n}\n"
                    "\nOG_FN int64_t og_w_stride(const og_args &)\n{\n    return 1;\n}\n");
}

void og_cuda_keep_still(og_cuda_emitter *e)
{
    const og_kernel *kernel = e->kernel;
    const og_pass *pass = &kernel->passes[0];
    for (int32_t i = 0; i < pass->element_count; i++) {
        const og_instr *instr = &pass->elements[i];
        if (instr->op != OG_OP_LOAD)
            continue;
        bool still = !og_kernel_stores(kernel, instr->index);
        for (int32_t d = 0; d < kernel->space.rank - 1; d++)
            still &= kernel->accesses[instr->index].stride[d] == 0;
        e->is_kept[instr->index] = still;
    }
}

/* Indices are 64 bits wide if a stride of x or the number of rows needs it. */
static void widen(og_cuda_emitter *e, const matrices *s)
{
    const int64_t most = INT32_MAX / 2;
    const og_product *product = &e->kernel->products[0];
    e->wide |= s->rows > most || s->runs * s->m_tiles > most || s->n_tiles * s->m_tiles > most ||
               llabs(product->left_k_stride) > most || llabs(product->right_k_stride) > most ||
               llabs(product->right.stride[e->kernel->space.rank - 1]) > most ||
               (og_cuda_has_row_values(&e->kernel->passes[0]) && s->rows > most / (s->runs + 2));
    for (int32_t d = 0; d < e->kernel->space.rank - 1; d++)
        e->wide |= llabs(product->left.stride[d]) > most;
}

static void add_arguments(og_cuda_emitter *e, const matrices *s)
{
    int32_t last = e->kernel->space.rank - 1;
    const og_access *w = &e->kernel->products[0].right;
    add_maps(e, s);
    og_cuda_add_pointer(e, "const og_element", "w", w->buffer, 0);
    og_cuda_add_operands(e);
    og_cuda_add_index(e, "w_pitch", s->w_pitch);
    og_cuda_add_index(e, "w_n", w->stride[last]);
    og_cuda_add_index(e, "w_k", e->kernel->products[0].right_k_stride);
    og_cuda_add_index(e, "rows", s->rows);
    og_cuda_add_index(e, "n", s->n);
    og_cuda_add_index(e, "k", s->k);
    og_cuda_add_index(e, "k_padded", s->k_padded);
    og_cuda_add_index(e, "m_tiles", s->m_tiles);
    og_cuda_add_index(e, "n_tiles", s->n_tiles);
    og_cuda_add_index(e, "tiles", s->m_tiles * s->n_tiles);
    og_cuda_add_index(e, "runs", s->runs);
    og_cuda_add_index(e, "redo_pitch", s->m_tiles * s->tile_rows);
    og_cuda_add_index(e, "m", s->rows);
    og_cuda_add_index(e, "redo_groups", s->redo_groups);
    og_cuda_add_index(e, "redo_items", s->runs * s->redo_groups);
    og_cuda_add_seek_range(e, "og_seek_rows", 0, last);
    og_cuda_add_seek_range(e, "og_step_row", last, last + 1);
    add_x(e);
}

/* ---- entry --------------------------------------------------------------------------------- */

static ogive_status add_launches(og_cuda_emitter *e, const matrices *s, size_t shared_bytes)
{
    int64_t processors = e->limits->multiprocessors, tiles = s->m_tiles * s->n_tiles;
    OG_TRY(og_cuda_make_launches(e, 5));
    if (s->turns_w)
        OG_TRY(og_cuda_add_launch(
            e, "og_turn_w", -1, og_divide_up(s->n, TURN) * og_divide_up(s->k, TURN), TURN_THREADS));
    OG_TRY(og_cuda_add_launch(e, "og_split", -1, s->rows, og_cuda_split_threads(s->k)));
    OG_TRY(og_cuda_add_launch(e, "og_tensor", -1, tiles < processors ? tiles : processors,
                              128 * (s->groups + 1)));
    og_cuda_launch *tensor = &e->out->launches[e->out->launch_count - 1];
    OG_TRY(og_cuda_copy_maps(e, &tensor->maps));
    tensor->map_count = e->arguments.map_count;
    tensor->shared_bytes = shared_bytes;
    if (s->turns_w)
        e->out->launches[0].shared_bytes = TURN_BYTES;
    return og_cuda_add_redo(e, s->runs * s->redo_groups);
}

static ogive_status name_body(og_cuda_emitter *e, const matrices *s)
{
    return og_cuda_name_body(
        e, "product, float32 as pairs of float16 on tensor cores, tiles of %d x %d",
        (int)s->tile_rows, (int)s->groups * GROUP);
}

static void add_numbers(og_cuda_emitter *e, const matrices *s, size_t shared_bytes)
{
    const og_pass *pass = &e->kernel->passes[0];
    og_text *to = &e->numbers;
    og_text_add(to,
                "typedef float og_number;\nenum { OG_PRODUCTS = 1, OG_SUM_BYTES = %d, "
                "OG_SHARED_BYTES = %d, OG_REDO_BYTES = %d, "
                "OG_TURN_BYTES = %d };\n"
                "#define OG_BM %d\n#define OG_WIDTH OG_BM\n#define OG_GROUPS %d\n"
                "#define OG_SPLIT_ROWS OG_BM\n#define OG_SPLIT_SHUFFLES 1\n"
                "#define OG_REDUCES %d\n#define OG_TERMS %d\n"
                "#define OG_TURNS_W %d\n#define OG_W_ACROSS %d\n",
                (int)og_cuda_most_sum_bytes(pass), (int)shared_bytes, OG_CUDA_REDO_BYTES,
                TURN_BYTES, (int)s->tile_rows, (int)s->groups, og_cuda_has_row_values(pass),
                og_cuda_has_terms(pass), s->turns_w, e->kernel->products[0].right_k_stride != 1);
    og_text_add(to, "typedef float og_element;\nOG_FN float og_widen(og_element x)\n{\n"
                    "    return x;\n}\n");
}

ogive_status og_cuda_emit_sm90(og_cuda_emitter *e)
{
    const og_pass *pass = &e->kernel->passes[0];
    if (e->kernel->products[0].right.dtype != OG_FLOAT32)
        return og_cuda_emit_halves(e);
    matrices s = see_matrices(e->kernel, e->limits);
    bool reduces = og_cuda_has_row_values(pass);
    size_t shared_bytes = RING_BYTES + 256 * og_cuda_most_sum_bytes(pass) + FIXED_BYTES;
    int64_t x_bytes;
    if (__builtin_mul_overflow(s.m_tiles * s.tile_rows * 4, s.k_padded, &x_bytes) ||
        x_bytes > INT64_MAX / 4)
        OG_FAIL(e->error, OGIVE_MEMORY, -1, "the left factor's copy is larger than any memory");
    e->vector_dim = e->kernel->space.rank - 1;
    e->vector = 1;
    e->threads = OG_CUDA_SPLIT_THREADS;
    widen(e, &s);
    og_cuda_keep_still(e);
    add_numbers(e, &s, shared_bytes);
    og_text_add(&e->places, "\n%s", og_text_of_cuda_reduce);
    add_arguments(e, &s);
    og_cuda_add_row(e);
    og_cuda_add_pass(e, 0);
    og_text_add(&e->body, "%s\n%s\n%s\n%s\n%s\n%s\n%s\n%s\n%s", og_text_of_cuda_tensor,
                og_text_of_cuda_sm90_base, og_text_of_cuda_tensor_split,
                s.turns_w ? og_text_of_cuda_sm90_turn : "", og_text_of_cuda_sm90_ptx,
                og_text_of_cuda_sm90_pairs, og_text_of_cuda_sm90, og_text_of_cuda_tensor_redo,
                og_text_of_cuda_sm90_redo);
    OG_TRY(name_body(e, &s));
    OG_TRY(add_launches(e, &s, shared_bytes));
    if (!reduces)
        return OGIVE_OK;
    og_cuda_begin_combine(e, s.rows, s.runs);
    return og_cuda_add_combine(e, 0, s.rows, s.runs);
}
