/* SPDX-License-Identifier: MIT
 *
 * cuda_emit_hopper_float32.c - products of float32 on Hopper's tensor cores: the launches around
 * hopper_float32.cuh.
 *
 *     og_turn_w     w goes to the scratch, if TMA cannot fetch it as it lies
 *     og_turn_x     x goes there, if its k are not side by side in memory
 *     og_split      x becomes pairs of float16 in the scratch; or, with tf32,
 *     og_round_rows     it is rounded to TF32
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

static og_hopper_shape see_shape(const og_kernel *kernel, const og_cuda_limits *limits, bool tf32)
{
    const og_product *product = &kernel->products[0];
    const og_matrices *of = &kernel->matrices;
    og_cuda_product_facts facts = og_cuda_product_facts_of(kernel);
    og_hopper_shape s = {.batch = of->batch,
                         .m = of->m,
                         .n = of->n,
                         .k = of->k,
                         .x_stride_k = product->left_k_stride,
                         .w_stride_k = facts.right_k_stride,
                         .w_stride_n = facts.right_pitch,
                         .w_slab = facts.right_slab,
                         .w_last = facts.right_last,
                         .has_batch = of->batch_rank > 0,
                         .tf32 = tf32,
                         .multiprocessors =
                             limits->multiprocessors > 0 ? limits->multiprocessors : 1,
                         .sum_bytes = (int64_t)og_cuda_most_sum_bytes(&kernel->passes[0])};
    for (int32_t d = 0; d < of->batch_rank; d++)
        s.x_moves |= product->left.stride[d] != 0;
    og_shape_hopper(&s);
    return s;
}

/* ---- arguments ----------------------------------------------------------------------------- */

static og_cuda_map *add_map(og_cuda_emitter *e, const char *name, const og_hopper_map *map,
                            int32_t buffer)
{
    return og_cuda_add_map(
        e, name,
        &(og_cuda_map){.buffer = buffer,
                       .dtype = map->element_bytes == 4 ? OG_FLOAT32 : OG_FLOAT16,
                       .columns = map->columns,
                       .rows = map->rows,
                       .depth = map->depth,
                       .slab_bytes = map->slab_bytes,
                       .fetches_256 = true,
                       .pitch_bytes = map->pitch_bytes,
                       .box_columns = map->box_columns,
                       .box_rows = map->box_rows,
                       .box_depth = map->box_depth});
}

/* Maps come first: they are aligned more than all others. */
static void add_maps(og_cuda_emitter *e, const og_hopper_shape *s)
{
    bool turns = s->fetch == OG_CUDA_TURNED;
    const og_hopper_map w = og_hopper_w_map(s), x = og_hopper_x_map(s);
    struct {
        size_t w_copy, x_pairs, x_copy, segments, findings, x_scales, redo, any_redo;
    } at;
    og_cuda_map *w_map =
        add_map(e, "w_map", &w, turns ? OG_CUDA_SCRATCH : e->kernel->products[0].right.buffer);
    og_cuda_map *x_map = add_map(e, "x_map", &x, OG_CUDA_SCRATCH);
#define ADD(name, bytes) at.name = og_cuda_add_region(e, "void", #name, bytes);
    OG_HOPPER_REGIONS(ADD)
#undef ADD
    w_map->offset = turns ? at.w_copy : 0;
    x_map->offset = at.x_pairs;
}

/* og_x_line(): where a row of x begins; og_x_row(): there, or in the copy. */
static void add_x(og_cuda_emitter *e)
{
    const og_product *product = &e->kernel->products[0];
    og_text *to = &e->passes;
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
                    "\nOG_FN const og_element *og_x_row(const og_args &a, og_index index)\n{\n"
                    "    if (!OG_TURNS_X)\n        return og_x_line(a, index);\n"
                    "    const og_index row = OG_X_MOVES ? index : index %% a.m;\n"
                    "    return (const og_element *)a.x_copy + row * (int64_t)a.x_pitch;\n}\n");
}

/* og_w_slabs(): how many slabs the w of a product is from the first one. */
static void add_slabs(og_cuda_emitter *e, const og_hopper_shape *s)
{
    og_text *to = &e->passes;
    og_text_add(to, "\nOG_FN og_index og_w_slabs(const og_args &a, og_index base)\n{\n");
    if (e->kernel->matrices.batch_rank <= 1) {
        og_text_add(to, "    return base;\n}\n");
        return;
    }
    og_text_add(to, "    og_index at = 0, rest;\n");
    for (int32_t d = e->kernel->matrices.batch_rank - 1; d >= 0; d--) {
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
static void add_w(og_cuda_emitter *e, const og_hopper_shape *s)
{
    add_slabs(e, s);
    og_text_add(&e->passes,
                "\nOG_FN const og_element *og_w_row(const og_args &a, og_index base, og_index n)\n"
                "{\n    return a.w + %sn * (int64_t)a.w_n;\n}\n"
                "\nOG_FN int64_t og_w_stride(const og_args &a)\n{\n"
                "    return OG_W_LINES ? a.w_k : 1;\n}\n",
                s->has_batch ? "og_w_slabs(a, base) * (int64_t)a.w_slab + " : "");
}

void og_cuda_keep_still(og_cuda_emitter *e)
{
    const og_kernel *kernel = e->kernel;
    const og_pass *pass = &kernel->passes[0];
    for (int32_t i = 0; i < pass->element_count; i++) {
        const og_instr *instr = &pass->elements[i];
        if (instr->op != OG_OP_LOAD)
            continue;
        bool still =
            !og_kernel_stores(kernel, instr->index) && og_cuda_number_of(e, instr->index) < 0;
        for (int32_t d = 0; d < kernel->space.rank - 1; d++)
            still &= kernel->accesses[instr->index].stride[d] == 0;
        e->is_kept[instr->index] = still;
    }
}

/* Indices are 64 bits wide if an operand, a stride of a factor or the number of rows needs it. */
static void widen(og_cuda_emitter *e, const og_hopper_shape *s)
{
    const int64_t most = INT32_MAX / 2;
    const og_product *product = &e->kernel->products[0];
    e->wide = og_hopper_is_wide(s, og_cuda_has_row_values(&e->kernel->passes[0]));
    for (int32_t d = 0; d < e->kernel->space.rank - 1; d++)
        e->wide |= llabs(product->left.stride[d]) > most;
    for (int32_t i = 0; i < e->kernel->access_count; i++)
        e->wide |= og_cuda_reach_of(&e->kernel->space, &e->kernel->accesses[i]) > INT32_MAX;
}

static void add_arguments(og_cuda_emitter *e, const og_hopper_shape *s)
{
    int32_t last = e->kernel->space.rank - 1;
    const og_access *w = &e->kernel->products[0].right;
    add_maps(e, s);
    og_cuda_add_pointer(e, "const og_element", "w", w->buffer, 0);
    og_cuda_add_pointer(e, "const og_element", "x", e->kernel->products[0].left.buffer, 0);
    og_cuda_add_operands(e);
#define ADD(name, value) og_cuda_add_index(e, #name, value);
    OG_HOPPER_INDICES(ADD)
#undef ADD
    og_cuda_add_seek_range(e, "og_seek_rows", 0, last);
    og_cuda_add_seek_range(e, "og_seek_product", 0, e->kernel->matrices.batch_rank);
    og_cuda_add_seek_range(e, "og_step_rows", e->kernel->matrices.batch_rank, last);
    og_cuda_add_seek_range(e, "og_step_row", last, last + 1);
    add_x(e);
    add_w(e, s);
}

/* ---- entry --------------------------------------------------------------------------------- */

static ogive_status add_turn(og_cuda_emitter *e, const char *entry, int64_t lines, int64_t k)
{
    OG_TRY(og_cuda_add_launch(e, entry, -1,
                              og_divide_up(lines, OG_HOPPER_TURN) * og_divide_up(k, OG_HOPPER_TURN),
                              OG_HOPPER_TURN_THREADS));
    e->out->launches[e->out->launch_count - 1].shared_bytes = OG_HOPPER_TURN_BYTES;
    return OGIVE_OK;
}

static ogive_status add_launches(og_cuda_emitter *e, const og_hopper_shape *s)
{
    OG_TRY(og_cuda_make_launches(e, 8));
    if (s->fetch == OG_CUDA_TURNED)
        OG_TRY(add_turn(e, "og_turn_w", s->batch * s->n, s->k));
    if (s->turns_x)
        OG_TRY(add_turn(e, "og_turn_x", s->x_rows, s->k));
    OG_TRY(og_cuda_add_split(e, s->tf32 ? "og_round_rows" : "og_split", s->x_rows, s->k_padded));
    OG_TRY(og_cuda_add_launch(e, "og_multiply_float32", -1, og_hopper_blocks(s),
                              128 * (s->groups + 1)));
    og_cuda_launch *tensor = og_cuda_overlap_last(e); /* w comes meanwhile */
    OG_TRY(og_cuda_copy_maps(e, &tensor->maps));
    tensor->map_count = e->arguments.map_count;
    tensor->shared_bytes = (size_t)og_hopper_shared_bytes(s);
    if (s->adds_first) {
        OG_TRY(og_cuda_add_launch(e, "og_add_segments", -1,
                                  s->tiles * og_hopper_part_bytes(s) / (16 * 128), 128));
        og_cuda_overlap_last(e);
    }
    if (s->in_parts) {
        OG_TRY(og_cuda_add_launch(e, "og_join", -1, s->tiles, 128 * s->groups));
        og_cuda_overlap_last(e)->shared_bytes =
            (size_t)(og_hopper_shared_bytes(s) - og_hopper_ring_bytes(s));
    }
    OG_TRY(og_cuda_add_redo(e, og_hopper_redo_items(s)));
    og_cuda_overlap_last(e);
    return OGIVE_OK;
}

static ogive_status name_body(og_cuda_emitter *e, const og_hopper_shape *s)
{
    return og_cuda_name_body(e, "product, float32 as %s on tensor cores, tiles of %d x %d%s",
                             s->tf32 ? "TF32" : "pairs of float16", (int)s->tile_rows,
                             (int)s->groups * OG_HOPPER_GROUP, s->in_parts ? ", k in parts" : "");
}

static void add_numbers(og_cuda_emitter *e, const og_hopper_shape *s)
{
#define NUMBER(name, value) {#name, value},
    const og_cuda_number numbers[] = {{"OG_PRODUCTS", 1}, OG_HOPPER_NUMBERS(NUMBER){0}};
#undef NUMBER
    og_text_add(&e->numbers, "typedef float og_number;\n");
    og_cuda_add_defines(&e->numbers, numbers);
    if (s->tf32)
        og_text_add(&e->numbers, "#define OG_TF32 1\n");
    og_text_add(&e->numbers, "typedef float og_element;\nOG_FN float og_widen(og_element x)\n{\n"
                             "    return x;\n}\n");
}

ogive_status og_cuda_emit_hopper_float32(og_cuda_emitter *e)
{
    const og_pass *pass = &e->kernel->passes[0];
    og_hopper_shape s = see_shape(e->kernel, e->limits, e->wishes->tf32);
    bool reduces = og_cuda_has_row_values(pass);
    int64_t x_bytes, w_bytes;
    if (__builtin_mul_overflow(s.x_rows * 4, s.k_padded, &x_bytes) || x_bytes > INT64_MAX / 4)
        OG_FAIL(e->error, OGIVE_MEMORY, -1, "the left factor's copy is larger than any memory");
    if (s.fetch == OG_CUDA_TURNED &&
        (__builtin_mul_overflow(s.batch * s.n, s.w_pitch * 4, &w_bytes) || w_bytes > INT64_MAX / 4))
        OG_FAIL(e->error, OGIVE_MEMORY, -1, "the right factor's copy is larger than any memory");
    e->out->tensor_products = s.tf32 ? 1 : 3;
    e->out->units =
        (s.tf32 ? OG_TF32_UNITS : OG_PAIR_UNITS) +
        og_divide_up(s.k < OG_HOPPER_SEGMENT ? s.k : OG_HOPPER_SEGMENT, OG_HOPPER_BLOCK_K) +
        s.segments;
    e->vector = 1;
    e->threads = OG_CUDA_SPLIT_THREADS;
    widen(e, &s);
    og_cuda_keep_still(e);
    add_numbers(e, &s);
    og_cuda_add_finish_numbers(e, false);
    og_cuda_include(&e->places, "reduce");
    add_arguments(e, &s);
    og_cuda_add_row(e);
    og_cuda_add_pass(e, 0);
    og_cuda_include(&e->body, s.tf32 ? "tf32_round" : "pairs_split");
    if (s.fetch == OG_CUDA_TURNED || s.turns_x || e->wishes->numbers)
        og_cuda_include(&e->body, "hopper_turn");
    og_cuda_include(&e->body, "hopper_float32");
    OG_TRY(name_body(e, &s));
    OG_TRY(add_launches(e, &s));
    if (!reduces)
        return OGIVE_OK;
    og_cuda_begin_combine(e, s.rows, s.runs);
    return og_cuda_add_combine(e, 0, s.rows, s.runs);
}
