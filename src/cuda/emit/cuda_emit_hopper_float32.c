/* SPDX-License-Identifier: MIT
 *
 * cuda_emit_hopper_float32.c - products of float32 on Hopper's tensor cores: the launches around
 * hopper_float32.cuh.
 *
 *     og_turn_w     w goes to the scratch, if TMA cannot fetch it as it lies
 *     og_turn_x     x goes there, if its k are not side by side in memory
 *     og_split      x becomes pairs of float16 in the scratch
 *     og_multiply_float32   the product and pass 0; or only sums of segments of k, for more blocks,
 *                   then
 *     og_add_segments   adds them up, if they are many for
 *     og_join       which does so too, a block a tile, with pass 0
 *     og_redo       what tensor cores cannot hold, in plan.h's order; mostly nothing
 *     og_combine0   if the pass reduces
 *
 * The last dim of the space is the columns, of w, the right factor; all others together are the
 * rows, those of a product after those of the one before.
 */
#include "cuda/emit/cuda_choose.h"
#include "cuda/emit/cuda_emit_product.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    TILE = 128,   /* the most rows of a tile */
    GROUP = 64,   /* columns of a warpgroup */
    BLOCK_K = 64, /* k of a box, of 128 bytes; of w in float32 half of that */
    TURN = 64,    /* k and columns of a box of hopper_turn.cuh */
    TURN_THREADS = 256,
    TURN_BYTES = TURN * (TURN + 1) * 4,
    SEGMENT = 4096,                      /* k whose sums are added up: bits depend on it */
    MOST_PART_BYTES = 256 * 1024 * 1024, /* of scratch */
    MANY_SEGMENTS = 16, /* for og_join alone: 128 of 4 tiles took 0.14 ms longer (H200) */
    /* Shared memory: the kernels assert that it is theirs. */
    STAGE_BYTES = 16384,
    RING_STAGES = 14,
    HALF_RING_STAGES = 6,      /* of two blocks of a multiprocessor */
    FIXED_BYTES = 256 + 8 * 64 /* votes, barriers */
};

/* ---- arguments ----------------------------------------------------------------------------- */

typedef struct {
    const og_matrices *of;
    int64_t rows;   /* of all products */
    int64_t x_rows; /* of x: m if all products have the same */
    int64_t m_tiles, n_tiles, tiles, k_padded, runs, redo_groups;
    int32_t tile_rows; /* of x: few rows leave time only for w */
    int32_t groups;    /* of GROUP columns; 1 if there is a block for each */
    int32_t blocks;    /* of a multiprocessor; 2 hide more of each other's waiting */
    int64_t segments;  /* of k */
    bool in_parts;     /* segments are multiplied apart */
    bool adds_first;   /* ... and added up before og_join */
    og_cuda_fetch fetch;
    bool turns_x;
    int64_t x_pitch;        /* of its copy */
    int64_t w_pitch;        /* elements from a row of w, or of its copy, to the next */
    int64_t w_slab, w_last; /* see og_cuda_product_facts */
} matrices;

static int64_t part_bytes(const matrices *s)
{
    return s->tile_rows * s->groups * GROUP * 4;
}

static int64_t count_blocks(const matrices *s, const og_cuda_limits *limits)
{
    int64_t items = s->tiles * (s->in_parts ? s->segments : 1);
    return og_min(items, (int64_t)limits->multiprocessors * s->blocks);
}

static size_t ring_bytes(const matrices *s)
{
    return (size_t)(s->blocks == 1 ? RING_STAGES : HALF_RING_STAGES) * STAGE_BYTES;
}

/* Groups, tiles and parts, so that all multiprocessors have something to do. */
static void choose_tiles(matrices *s, int64_t processors)
{
    int64_t columns = og_divide_up(s->of->n, GROUP), narrow;
    s->tile_rows = s->of->m <= 32 ? 32 : s->of->m <= 64 ? 64 : TILE;
    for (;; s->tile_rows /= 2) {
        s->m_tiles = og_divide_up(s->of->m, s->tile_rows);
        narrow = s->of->batch * s->m_tiles * columns;
        if (s->tile_rows == 32 || 2 * narrow * s->segments > processors)
            break;
    }
    s->blocks = s->tile_rows == 32 && narrow <= 2 * processors ? 2 : 1;
    processors *= s->blocks;
    s->groups = narrow <= processors ? 1 : 2;
    if (s->blocks == 1 && 2 * narrow <= processors && narrow * s->segments > processors)
        s->groups = 2; /* in parts */
    s->n_tiles = og_divide_up(s->of->n, s->groups * GROUP);
    s->tiles = s->of->batch * s->m_tiles * s->n_tiles;
    /* Segments that a multiprocessor has at most; sums that wait take a tenth of its time. */
    int64_t whole = s->segments * og_divide_up(s->tiles, processors);
    int64_t apart = og_divide_up(s->tiles * s->segments, processors);
    s->in_parts =
        10 * whole > 11 * apart && s->tiles * s->segments <= MOST_PART_BYTES / part_bytes(s);
    s->adds_first = s->in_parts && s->segments >= MANY_SEGMENTS && 2 * s->tiles <= processors;
}

static matrices see_matrices(const og_kernel *kernel, const og_cuda_limits *limits)
{
    og_cuda_product_facts facts = og_cuda_product_facts_of(kernel);
    matrices s = {.of = &kernel->matrices,
                  .rows = facts.of.batch * facts.of.m,
                  .fetch = og_cuda_fetch_right(&facts)};
    s.redo_groups = og_divide_up(s.of->m, OG_CUDA_REDO_GROUP);
    s.k_padded = og_divide_up(s.of->k, BLOCK_K) * BLOCK_K;
    s.segments = og_divide_up(s.of->k, SEGMENT);
    s.runs = og_divide_up(s.of->n, OG_RUN);
    choose_tiles(&s, limits->multiprocessors > 0 ? limits->multiprocessors : 1);
    s.w_pitch = s.fetch == OG_CUDA_TURNED  ? og_divide_up(s.of->k, 4) * 4
                : s.fetch == OG_CUDA_ALONG ? facts.right_pitch
                                           : facts.right_k_stride;
    s.w_slab = facts.right_slab;
    s.w_last = facts.right_last;
    s.x_rows = s.of->m;
    for (int32_t d = 0; d < s.of->batch_rank; d++)
        s.x_rows = kernel->products[0].left.stride[d] ? s.rows : s.x_rows;
    s.turns_x = kernel->products[0].left_k_stride != 1;
    s.x_pitch = og_divide_up(s.of->k, 4) * 4;
    return s;
}

/* Maps come first: they are aligned more than all others. */
static void add_maps(og_cuda_emitter *e, const matrices *s)
{
    const og_access *w = &e->kernel->products[0].right;
    bool turns = s->fetch == OG_CUDA_TURNED, across = s->fetch == OG_CUDA_ACROSS;
    int64_t w_bytes = turns ? s->of->batch * s->of->n * s->w_pitch * 4 : 0;
    int64_t slab = turns ? s->of->n * s->w_pitch : s->of->batch_rank ? s->w_slab : s->w_pitch;
    int64_t places = s->in_parts       ? s->tiles * s->segments
                     : s->segments > 1 ? count_blocks(s, e->limits)
                                       : 0;
    og_text_add(&e->numbers, "struct alignas(64) og_map {\n    uint64_t opaque[16];\n};\n");
    og_cuda_map *w_map =
        og_cuda_add_map(e, "w_map",
                        &(og_cuda_map){.buffer = turns ? OG_CUDA_SCRATCH : w->buffer,
                                       .dtype = w->dtype,
                                       .columns = across ? s->of->n : s->of->k,
                                       .rows = across ? s->of->k : s->of->n,
                                       .depth = turns ? s->of->batch : s->w_last + 1,
                                       .slab_bytes = slab * 4,
                                       .fetches_256 = true,
                                       .pitch_bytes = s->w_pitch * 4,
                                       .box_columns = BLOCK_K / 2,
                                       .box_rows = across ? BLOCK_K / 2 : s->groups * GROUP,
                                       .box_depth = 1});
    og_cuda_map *x_map = og_cuda_add_map(e, "x_map",
                                         &(og_cuda_map){.buffer = OG_CUDA_SCRATCH,
                                                        .dtype = OG_FLOAT16,
                                                        .columns = s->k_padded,
                                                        .rows = s->of->m,
                                                        .depth = 2 * (s->x_rows / s->of->m),
                                                        .slab_bytes = s->of->m * s->k_padded * 2,
                                                        .fetches_256 = true,
                                                        .pitch_bytes = s->k_padded * 2,
                                                        .box_columns = BLOCK_K,
                                                        .box_rows = s->tile_rows,
                                                        .box_depth = 2}); /* hi and lo */
    size_t w_copy = og_cuda_add_region(e, "void", "w_copy", w_bytes);
    w_map->offset = turns ? w_copy : 0;
    x_map->offset = og_cuda_add_region(e, "void", "x_pairs", s->x_rows * s->k_padded * 4);
    og_cuda_add_region(e, "void", "x_copy", s->turns_x ? s->x_rows * s->x_pitch * 4 : 0);
    og_cuda_add_region(e, "void", "segments", places * part_bytes(s));
    og_cuda_add_region(e, "void", "x_scales", (s->x_rows + TILE) * 4); /* all of the last tile */
    og_cuda_add_region(e, "void", "redo", s->runs * s->rows);
    og_cuda_add_region(e, "void", "any_redo", 4);
}

/* og_x_line(): where a row of x begins; og_x_row(): there, or in the copy. */
static void add_x(og_cuda_emitter *e, const matrices *s)
{
    const og_product *product = &e->kernel->products[0];
    og_text *to = &e->passes;
    og_cuda_add_pointer(e, "const og_element", "x", product->left.buffer, 0);
    og_cuda_add_index(e, "x_k", s->turns_x ? 1 : product->left_k_stride);
    og_cuda_add_index(e, "x_line_k", product->left_k_stride);
    og_cuda_add_index(e, "x_pitch", s->x_pitch);
    og_text_add(to, "\nOG_FN const og_element *og_x_line(const og_args &a, og_index index)\n{\n"
                    "    int64_t at = 0;\n    og_index rest;\n");
    for (int32_t d = e->kernel->space.rank - 2; d >= 0; d--) {
        char stride[16], divisor[16];
        snprintf(stride, sizeof stride, "x_%d", (int)d);
        og_cuda_add_index(e, stride, product->left.stride[d]);
        if (d == 0) {
            og_text_add(to, "    at += (int64_t)index * a.%s;\n", stride);
            break;
        }
        og_cuda_print_dim_divisor(d, divisor);
        og_text_add(to,
                    "    rest = og_divide(index, a.%s);\n"
                    "    at += (int64_t)(index - rest * a.%s.extent) * a.%s;\n"
                    "    index = rest;\n",
                    divisor, divisor, stride);
    }
    og_text_add(to, "    return a.x + at;\n}\n"
                    "\nOG_FN const og_element *og_x_row(const og_args &a, og_index index)\n{\n");
    if (s->turns_x)
        og_text_add(to,
                    "    return (const og_element *)a.x_copy + index%s * (int64_t)a.x_pitch;\n}\n",
                    s->x_rows < s->rows ? " % a.m" : "");
    else
        og_text_add(to, "    return og_x_line(a, index);\n}\n");
}

/* og_w_slabs(): how many slabs the w of a product is from the first one. */
static void add_slabs(og_cuda_emitter *e, const matrices *s)
{
    og_text *to = &e->passes;
    og_text_add(to, "\nOG_FN og_index og_w_slabs(const og_args &a, og_index base)\n{\n");
    if (s->of->batch_rank <= 1) {
        og_text_add(to, "    return base;\n}\n");
        return;
    }
    og_text_add(to, "    og_index at = 0, rest;\n");
    for (int32_t d = s->of->batch_rank - 1; d >= 0; d--) {
        char step[16], divisor[16];
        snprintf(step, sizeof step, "w_%d", (int)d);
        og_cuda_add_index(e, step, e->kernel->products[0].right.stride[d] / s->w_slab);
        if (d == 0) {
            og_text_add(to, "    return at + base * a.%s;\n}\n", step);
            return;
        }
        og_cuda_print_dim_divisor(d, divisor);
        og_text_add(to,
                    "    rest = og_divide(base, a.%s);\n"
                    "    at += (base - rest * a.%s.extent) * a.%s;\n"
                    "    base = rest;\n",
                    divisor, divisor, step);
    }
}

/* og_w_row(): where a column of w begins; og_w_stride(): from one k to the next. */
static void add_w(og_cuda_emitter *e, const matrices *s)
{
    add_slabs(e, s);
    og_text_add(&e->passes,
                "\nOG_FN const og_element *og_w_row(const og_args &a, og_index base, og_index n)\n"
                "{\n    return a.w + %sn * (int64_t)a.w_n;\n}\n"
                "\nOG_FN int64_t og_w_stride(const og_args &a)\n{\n    return %s;\n}\n",
                s->of->batch_rank ? "og_w_slabs(a, base) * (int64_t)a.w_slab + " : "",
                e->kernel->products[0].right_k_stride == 1 ? "1" : "a.w_k");
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

/* Is an element of the access further than 31 bits from its first? No kernel looks beyond them. */
static bool is_far(const og_space *space, const og_access *access)
{
    int64_t reach = 0, span;
    for (int32_t d = 0; d < space->rank; d++)
        if (__builtin_mul_overflow(llabs(access->stride[d]), space->extent[d] - 1, &span) ||
            __builtin_add_overflow(reach, span, &reach) || reach > INT32_MAX)
            return true;
    return false;
}

/* Indices are 64 bits wide if an operand, a stride of a factor or the number of rows needs it. */
static void widen(og_cuda_emitter *e, const matrices *s)
{
    const int64_t most = INT32_MAX / 2;
    const og_product *product = &e->kernel->products[0];
    e->wide = s->rows > most || s->runs * s->of->batch * s->m_tiles > most ||
              s->of->batch * s->of->n > most || llabs(s->w_slab) > most || s->w_last > most ||
              s->tiles * s->segments > most || s->of->batch * s->runs * s->redo_groups > most ||
              llabs(product->left_k_stride) > most || llabs(product->right_k_stride) > most ||
              llabs(product->right.stride[e->kernel->space.rank - 1]) > most ||
              (og_cuda_has_row_values(&e->kernel->passes[0]) && s->rows > most / (s->runs + 2));
    for (int32_t d = 0; d < e->kernel->space.rank - 1; d++)
        e->wide |= llabs(product->left.stride[d]) > most;
    for (int32_t i = 0; i < e->kernel->access_count; i++)
        e->wide |= is_far(&e->kernel->space, &e->kernel->accesses[i]);
}

static void add_arguments(og_cuda_emitter *e, const matrices *s)
{
    int32_t last = e->kernel->space.rank - 1;
    const og_access *w = &e->kernel->products[0].right;
    add_maps(e, s);
    og_cuda_add_pointer(e, "const og_element", "w", w->buffer, 0);
    og_cuda_add_operands(e);
    og_cuda_add_index(e, "w_pitch", s->w_pitch);
    og_cuda_add_index(e, "w_slab", s->w_slab);
    og_cuda_add_index(e, "w_lines", s->of->batch * s->of->n);
    og_cuda_add_index(e, "w_n", w->stride[last]);
    og_cuda_add_index(e, "w_k", e->kernel->products[0].right_k_stride);
    og_cuda_add_index(e, "rows", s->rows);
    og_cuda_add_index(e, "n", s->of->n);
    og_cuda_add_index(e, "k", s->of->k);
    og_cuda_add_index(e, "k_padded", s->k_padded);
    og_cuda_add_index(e, "m_tiles", s->m_tiles);
    og_cuda_add_index(e, "n_tiles", s->n_tiles);
    og_cuda_add_index(e, "items", s->tiles * (s->in_parts ? s->segments : 1));
    og_cuda_add_index(e, "parts", s->segments);
    og_cuda_add_index(e, "join_parts", s->adds_first ? 1 : s->segments);
    og_cuda_add_index(e, "runs", s->runs);
    og_cuda_add_index(e, "redo_pitch", s->rows);
    og_cuda_add_index(e, "m", s->of->m);
    og_cuda_add_index(e, "redo_groups", s->redo_groups);
    og_cuda_add_index(e, "redo_items", s->of->batch * s->runs * s->redo_groups);
    og_cuda_add_seek_range(e, "og_seek_rows", 0, last);
    og_cuda_add_seek_range(e, "og_seek_product", 0, s->of->batch_rank);
    og_cuda_add_seek_range(e, "og_step_rows", s->of->batch_rank, last);
    og_cuda_add_seek_range(e, "og_step_row", last, last + 1);
    add_x(e, s);
    add_w(e, s);
}

/* ---- entry --------------------------------------------------------------------------------- */

static ogive_status add_turn(og_cuda_emitter *e, const char *entry, int64_t lines, int64_t k)
{
    OG_TRY(og_cuda_add_launch(e, entry, -1, og_divide_up(lines, TURN) * og_divide_up(k, TURN),
                              TURN_THREADS));
    e->out->launches[e->out->launch_count - 1].shared_bytes = TURN_BYTES;
    return OGIVE_OK;
}

static ogive_status add_launches(og_cuda_emitter *e, const matrices *s, size_t shared_bytes)
{
    OG_TRY(og_cuda_make_launches(e, 8));
    if (s->fetch == OG_CUDA_TURNED)
        OG_TRY(add_turn(e, "og_turn_w", s->of->batch * s->of->n, s->of->k));
    if (s->turns_x)
        OG_TRY(add_turn(e, "og_turn_x", s->x_rows, s->of->k));
    OG_TRY(og_cuda_add_split(e, s->x_rows, s->k_padded));
    OG_TRY(og_cuda_add_launch(e, "og_multiply_float32", -1, count_blocks(s, e->limits),
                              128 * (s->groups + 1)));
    og_cuda_launch *tensor = og_cuda_overlap_last(e); /* w comes meanwhile */
    OG_TRY(og_cuda_copy_maps(e, &tensor->maps));
    tensor->map_count = e->arguments.map_count;
    tensor->shared_bytes = shared_bytes;
    if (s->adds_first) {
        OG_TRY(og_cuda_add_launch(e, "og_add_segments", -1, s->tiles * part_bytes(s) / (16 * 128),
                                  128));
        og_cuda_overlap_last(e);
    }
    if (s->in_parts) {
        OG_TRY(og_cuda_add_launch(e, "og_join", -1, s->tiles, 128 * s->groups));
        og_cuda_overlap_last(e)->shared_bytes = shared_bytes - ring_bytes(s);
    }
    OG_TRY(og_cuda_add_redo(e, s->of->batch * s->runs * s->redo_groups));
    og_cuda_overlap_last(e);
    return OGIVE_OK;
}

static ogive_status name_body(og_cuda_emitter *e, const matrices *s)
{
    return og_cuda_name_body(
        e, "product, float32 as pairs of float16 on tensor cores, tiles of %d x %d%s",
        (int)s->tile_rows, (int)s->groups * GROUP, s->in_parts ? ", k in parts" : "");
}

static void add_numbers(og_cuda_emitter *e, const matrices *s, size_t shared_bytes)
{
    const og_pass *pass = &e->kernel->passes[0];
    const og_cuda_number sizes[] = {{"OG_PRODUCTS", 1},
                                    {"OG_SUM_BYTES", (int64_t)og_cuda_most_sum_bytes(pass)},
                                    {"OG_SHARED_BYTES", (int64_t)shared_bytes},
                                    {"OG_REDO_BYTES", OG_CUDA_REDO_BYTES},
                                    {"OG_TURN_BYTES", TURN_BYTES},
                                    {"OG_SEGMENT", SEGMENT},
                                    {"OG_RING_BYTES", (int64_t)ring_bytes(s)},
                                    {0}};
    const og_cuda_number tile[] = {{"OG_BM", s->tile_rows},
                                   {"OG_WIDTH", s->tile_rows},
                                   {"OG_GROUPS", s->groups},
                                   {"OG_SPLIT_PLANES", 1},
                                   {"OG_SPLIT_SHUFFLES", s->fetch == OG_CUDA_ACROSS ? 2 : 1},
                                   {"OG_SPLIT_KEEPS", og_cuda_split_keeps(s->k_padded)},
                                   {"OG_TURNS_W", s->fetch == OG_CUDA_TURNED},
                                   {"OG_W_LINES", e->kernel->products[0].right_k_stride != 1},
                                   {"OG_W_ACROSS", s->fetch == OG_CUDA_ACROSS},
                                   {"OG_TURNS_X", s->turns_x},
                                   {"OG_LONG", s->segments > 1},
                                   {"OG_BY_SEGMENTS", s->in_parts},
                                   {"OG_X_MOVES", s->x_rows > s->of->m},
                                   {"OG_TENSOR_BLOCKS", s->blocks},
                                   {0}};
    og_text_add(&e->numbers, "typedef float og_number;\n");
    og_cuda_add_enum(&e->numbers, sizes);
    og_cuda_add_defines(&e->numbers, tile);
    og_text_add(&e->numbers, "typedef float og_element;\nOG_FN float og_widen(og_element x)\n{\n"
                             "    return x;\n}\n");
}

ogive_status og_cuda_emit_hopper_float32(og_cuda_emitter *e)
{
    const og_pass *pass = &e->kernel->passes[0];
    matrices s = see_matrices(e->kernel, e->limits);
    bool reduces = og_cuda_has_row_values(pass);
    size_t shared_bytes = ring_bytes(&s) + 256 * og_cuda_most_sum_bytes(pass) + FIXED_BYTES;
    int64_t x_bytes, w_bytes;
    if (__builtin_mul_overflow(s.x_rows * 4, s.k_padded, &x_bytes) || x_bytes > INT64_MAX / 4)
        OG_FAIL(e->error, OGIVE_MEMORY, -1, "the left factor's copy is larger than any memory");
    if (s.fetch == OG_CUDA_TURNED &&
        (__builtin_mul_overflow(s.of->batch * s.of->n, s.w_pitch * 4, &w_bytes) ||
         w_bytes > INT64_MAX / 4))
        OG_FAIL(e->error, OGIVE_MEMORY, -1, "the right factor's copy is larger than any memory");
    e->out->tensor_products = 3;
    e->vector = 1;
    e->threads = OG_CUDA_SPLIT_THREADS;
    widen(e, &s);
    og_cuda_keep_still(e);
    add_numbers(e, &s, shared_bytes);
    og_cuda_add_finish_numbers(e, false);
    og_cuda_include(&e->places, "reduce");
    add_arguments(e, &s);
    og_cuda_add_row(e);
    og_cuda_add_pass(e, 0);
    og_cuda_include(&e->body, "pairs_split");
    if (s.fetch == OG_CUDA_TURNED || s.turns_x)
        og_cuda_include(&e->body, "hopper_turn");
    og_cuda_include(&e->body, "hopper_float32");
    OG_TRY(name_body(e, &s));
    OG_TRY(add_launches(e, &s, shared_bytes));
    if (!reduces)
        return OGIVE_OK;
    og_cuda_begin_combine(e, s.rows, s.runs);
    return og_cuda_add_combine(e, 0, s.rows, s.runs);
}
