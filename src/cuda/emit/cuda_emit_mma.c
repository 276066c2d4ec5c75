/* SPDX-License-Identifier: MIT
 *
 * cuda_emit_mma.c - products on tensor cores by mma.sync, of any GPU from sm_80 on: the
 * launches around mma.cuh.
 *
 *     og_split          x becomes pairs of float16 in the scratch; or
 *     og_copy_rows      x of float16 and bfloat16 goes there as it is, or x is rounded to TF32
 *     og_multiply_mma   the product and pass 0
 *     og_redo           what pairs of float16 cannot hold, in plan.h's order; mostly nothing
 *     og_combine0       if the pass reduces more than OG_RUN columns
 */
#include "cuda/emit/cuda_emit_mma.h"

/* ---- the tile ------------------------------------------------------------------------------ */

/* Shared memory of a tile. */
static size_t shared_of(const og_mma_tile *t, int32_t scale_k, bool is_half)
{
    const int32_t slots = og_mma_shared_bytes(t->rows, t->columns, 0, true);
    int32_t bytes = og_mma_shared_bytes(t->rows, t->columns, t->stages, is_half);
    if (scale_k) {
        bytes = t->stages *
                    (2 * (t->rows + t->columns) * 128 + OG_MMA_STEP / scale_k * t->columns * 4) +
                t->columns * 8;
        bytes = bytes > slots ? bytes : slots;
    }
    return (size_t)bytes;
}

/* Narrow tiles where wide ones would leave multiprocessors idle, or do not fit (sm_86); then as many
 * stages as fit, but of w that is split on its way. */
og_mma_tile og_cuda_choose_mma_tile(const og_matrices *s, int32_t rows, int32_t scale_k,
                                    const og_cuda_limits *limits, bool is_half)
{
    og_mma_tile t = {.rows = rows, .columns = 128, .stages = 2};
    t.m_tiles = og_divide_up(s->m, t.rows);
    if (s->batch * t.m_tiles * og_divide_up(s->n, t.columns) < limits->multiprocessors ||
        shared_of(&t, scale_k, is_half) > limits->shared_per_block)
        t.columns = 64;
    for (; (is_half || scale_k) && t.stages < 4; t.stages++) {
        og_mma_tile more = t;
        more.stages++;
        if (shared_of(&more, scale_k, is_half) > limits->shared_per_block)
            break;
    }
    t.n_tiles = og_divide_up(s->n, t.columns);
    t.count = s->batch * t.m_tiles * t.n_tiles;
    t.shared_bytes = shared_of(&t, scale_k, is_half);
    return t;
}

/* ---- what is emitted ----------------------------------------------------------------------- */

bool og_cuda_is_plain(const og_cuda_emitter *e, og_dtype dtype)
{
    return dtype != OG_FLOAT32 || e->wishes->tf32;
}

void og_cuda_add_mma_numbers(og_cuda_emitter *e, const og_mma_tile *tile, int64_t k, og_dtype dtype)
{
    static const char *const widen[OG_DTYPE_COUNT] = {
        [OG_FLOAT32] = "", [OG_FLOAT16] = "og_f32_from_f16", [OG_BFLOAT16] = "og_f32_from_bf16"};
    const og_cuda_number sizes[] = {{"OG_PRODUCTS", 1},
                                    {"OG_BK", OG_MMA_STEP},
                                    {"OG_QUADS", 2},
                                    {"OG_STAGES", tile->stages},
                                    {"OG_SHARED_BYTES", (int64_t)tile->shared_bytes},
                                    {"OG_REDO_BYTES", OG_CUDA_REDO_BYTES},
                                    {0}};
    const og_cuda_number defines[] = {{"OG_BM", tile->rows},
                                      {"OG_BN", tile->columns},
                                      {"OG_PAIRS", !og_cuda_is_plain(e, dtype)},
                                      {"OG_SPLIT_PLANES", 0},
                                      {"OG_SPLIT_SHUFFLES", 0},
                                      {"OG_SPLIT_WIDENS", 0},
                                      {"OG_SPLIT_KEEPS", og_cuda_split_keeps(og_mma_padded_k(k))},
                                      {"OG_BFLOAT", dtype == OG_BFLOAT16},
                                      {0}};
    if (og_cuda_serves(e))
        return;
    og_text_add(&e->numbers, "typedef float og_number;\ntypedef %s og_element;\n",
                dtype == OG_FLOAT32 ? "float" : "uint16_t");
    og_cuda_add_enum(&e->numbers, sizes);
    og_cuda_add_defines(&e->numbers, defines);
    if (e->wishes->tf32 && dtype == OG_FLOAT32)
        og_text_add(&e->numbers, "#define OG_TF32 1\n");
    og_text_add(&e->numbers, "OG_FN float og_widen(og_element x)\n{\n    return %s(x);\n}\n",
                widen[dtype]);
}

void og_cuda_tell_mma_units(og_cuda_emitter *e, int64_t k, bool is_plain, bool is_tf32)
{
    e->out->tensor_products = is_plain ? 1 : 3;
    if (!is_plain)
        e->out->units =
            (e->limits->arch < 90 ? OG_AMPERE_UNITS : OG_PAIR_UNITS) + og_divide_up(k, OG_MMA_STEP);
    else if (is_tf32)
        e->out->units = OG_TF32_UNITS + og_divide_up(k, OG_MMA_STEP / 2);
}

static ogive_status add_arguments(og_cuda_emitter *e, const og_matrices *s, const og_mma_tile *tile,
                                  bool plain)
{
    int64_t k_padded = og_mma_padded_k(s->k), rows = s->batch * s->m, x_bytes;
    int64_t groups = og_divide_up(s->m, OG_CUDA_REDO_GROUP), runs = og_divide_up(s->n, OG_RUN);
    const bool tf32 = e->wishes->tf32 && e->kernel->products[0].right.dtype == OG_FLOAT32;
    const int64_t element = plain && !tf32 ? 2 : 4;
    if (__builtin_mul_overflow((rows + tile->rows) * element, k_padded, &x_bytes))
        OG_FAIL(e->error, OGIVE_MEMORY, -1, "the left factor's copy is larger than any memory");
    og_cuda_add_region(e, "void", "x_pairs", x_bytes);
    og_cuda_add_region(e, "void", "any_redo", 4);
    if (!plain) {
        og_cuda_add_region(e, "void", "x_scales", rows * 8);
        og_cuda_add_region(e, "void", "redo", rows * runs);
        og_cuda_add_index(e, "runs", runs);
        og_cuda_add_index(e, "redo_pitch", rows);
        og_cuda_add_index(e, "redo_groups", groups);
        og_cuda_add_index(e, "redo_items", s->batch * groups * runs);
    }
    og_cuda_add_index(e, "x_k", e->kernel->products[0].left_k_stride);
    og_cuda_add_index(e, "k_padded", k_padded);
    og_cuda_add_index(e, "m_tiles", tile->m_tiles);
    og_cuda_add_index(e, "n_tiles", tile->n_tiles);
    return OGIVE_OK;
}

static void add_body(og_cuda_emitter *e, bool plain)
{
    if (og_cuda_serves(e))
        og_text_add(&e->passes, "\ntypedef og_left0::element og_element;\n"
                                "\nOG_FN float og_widen(og_element x)\n{\n"
                                "    return og_left0::form::widen(x);\n}\n");
    og_cuda_add_tensor_factors(e);
    og_cuda_include(&e->body, plain ? "mma_copy" : "pairs_split");
    og_cuda_include(&e->body, "mma");
    if (!plain)
        og_cuda_include(&e->body, "redo");
}

static ogive_status add_launches(og_cuda_emitter *e, const og_matrices *s, const og_mma_tile *tile,
                                 bool plain)
{
    int64_t rows = s->batch * s->m, runs = og_divide_up(s->n, OG_RUN);
    int64_t items = s->batch * og_divide_up(s->m, OG_CUDA_REDO_GROUP) * runs;
    OG_TRY(og_cuda_make_launches(e, 4));
    if (plain)
        OG_TRY(og_cuda_add_launch(e, "og_copy_rows", -1, rows, og_cuda_copy_threads(s->k)));
    else
        OG_TRY(og_cuda_add_split(e, "og_split", rows, og_mma_padded_k(s->k)));
    OG_TRY(og_cuda_add_launch(e, "og_multiply_mma", -1, tile->count, OG_MMA_THREADS));
    e->out->launches[1].shared_bytes = tile->shared_bytes;
    if (!plain)
        OG_TRY(og_cuda_add_redo(e, items));
    if (!og_cuda_has_row_values(&e->kernel->passes[0]) || (runs == 1 && !og_cuda_serves(e)))
        return OGIVE_OK;
    return og_cuda_add_combine(e, 0, rows, runs);
}

ogive_status og_cuda_emit_mma(og_cuda_emitter *e)
{
    const og_matrices *s = &e->kernel->matrices;
    og_dtype dtype = e->kernel->products[0].right.dtype;
    bool plain =
        og_cuda_serves(e) ? e->wishes->body == OG_CUDA_MMA_HALVES : og_cuda_is_plain(e, dtype);
    bool tf32 = plain && dtype == OG_FLOAT32 && !og_cuda_serves(e);
    og_mma_tile tile = og_cuda_choose_mma_tile(s,
                                               s->m <= 32   ? 32
                                               : s->m <= 64 ? 64
                                                            : 128,
                                               0, e->limits, plain);
    int64_t runs = og_divide_up(s->n, OG_RUN);
    e->wide |= og_cuda_product_needs_wide(e->kernel, false);
    og_cuda_tell_mma_units(e, s->k, plain, tf32);
    e->vector = 4;
    e->threads = OG_MMA_THREADS;
    og_cuda_add_mma_numbers(e, &tile, s->k, dtype);
    og_cuda_add_product_parts(e);
    OG_TRY(add_arguments(e, s, &tile, plain));
    add_body(e, plain);
    if (og_cuda_has_row_values(&e->kernel->passes[0]) && (runs != 1 || og_cuda_serves(e)))
        og_cuda_begin_combine(e, s->batch * s->m, runs);
    og_cuda_add_finish_numbers(e, runs <= 1);
    OG_TRY(og_cuda_name_body(e, "product%s on tensor cores (mma.sync), tiles of %d x %d",
                             tf32    ? ", float32 as TF32"
                             : plain ? ""
                                     : ", float32 as pairs of float16",
                             (int)tile.rows, (int)tile.columns));
    return add_launches(e, s, &tile, plain);
}
