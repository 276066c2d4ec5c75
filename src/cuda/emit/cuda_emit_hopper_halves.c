/* SPDX-License-Identifier: MIT
 *
 * cuda_emit_hopper_halves.c - products of float16 and bfloat16 on Hopper's tensor cores: the launches
 * around hopper_halves.cuh.
 *
 *     og_copy_x, og_copy_w, og_copy_v   a factor that TMA cannot fetch as it lies goes to the
 *                    scratch; x also if its address is no multiple of 16
 *     og_multiply_halves   the product, or x times w and x times v, and pass 0
 *     og_redo        instead, if w's or v's address is no multiple of 16: in plan.h's order
 *     og_combine0    if the pass reduces more than OG_RUN columns
 */
#include "cuda/emit/cuda_emit_product.h"
#include "cuda/emit/cuda_half_tile.h"

enum {
    BOX = 64,          /* k of a box; rows of one that lies across k */
    LONG = 8192,       /* k above which tensor cores do not sum all: 512 truncations, 5e-5 of
                          positive numbers */
    CHAIN = 512,       /* k that they sum then */
    TMA_UNIT = 8,      /* elements of 16 bytes */
    COPY_THREADS = 256 /* of hopper_copy.cuh */
};

/* How TMA sees a factor: lines of neighbours in memory. */
typedef struct {
    og_factor factor;
    bool is_across;               /* lines are across k */
    bool is_copied;               /* to the scratch first */
    int64_t length, lines, pitch; /* of a line, of them in a matrix, from one to the next */
    int64_t matrices, slab;       /* of a batch, from one to the next */
} operand;

typedef struct {
    const og_matrices *of;
    operand x, w[OG_MAX_PRODUCTS]; /* the second, v, lies like the first */
    int32_t products;
    og_cuda_half_tile tile;
    int32_t x_rows;           /* of a tile that there are at most: a power of two */
    bool is_later;            /* results are written while the next tile is multiplied */
    int32_t ahead;            /* steps of 16 columns that are then read ahead */
    int64_t m_tiles, n_tiles; /* of clusters, where there are */
} halves;

/* ---- factors ------------------------------------------------------------------------------- */

static bool fits(int64_t stride, int64_t least)
{
    return stride >= least && stride % TMA_UNIT == 0 && stride < INT32_MAX;
}

static operand see_operand(const og_kernel *kernel, int32_t product, bool is_right)
{
    const og_matrices *s = &kernel->matrices;
    operand o = {.factor = og_factor_of(kernel, product, is_right)};
    const int64_t *stride = o.factor.access->stride;
    int32_t row_dims = is_right ? 1 : s->m_rank;
    int64_t rows = is_right ? s->n : s->m;
    int64_t row_stride = is_right        ? stride[og_column_dim(kernel)]
                         : row_dims == 1 ? stride[s->batch_rank]
                                         : 0;
    o.slab = s->batch_rank == 1 ? stride[0] : 0;
    o.matrices = o.slab ? s->batch : 1;
    o.is_across = o.factor.k_stride != 1 && s->k > 1 && row_dims == 1 && row_stride == 1;
    o.length = o.is_across ? rows : s->k;
    o.lines = o.is_across ? s->k : rows;
    o.pitch = o.is_across ? o.factor.k_stride : row_stride;
    o.is_copied = row_dims > 1 || s->batch_rank > 1 || (o.factor.k_stride != 1 && !o.is_across) ||
                  (o.lines > 1 && !fits(o.pitch, o.length)) ||
                  (o.matrices > 1 && !fits(o.slab, o.pitch));
    if (o.is_copied || o.lines == 1)
        o.pitch = og_divide_up(o.length, TMA_UNIT) * TMA_UNIT;
    if (o.is_copied) {
        o.matrices = 1;
        for (int32_t d = 0; d < s->batch_rank; d++)
            o.matrices = stride[d] ? s->batch : o.matrices;
        o.slab = o.lines * o.pitch;
    }
    if (o.matrices == 1)
        o.slab = o.pitch;
    return o;
}

/* Of a tile of the result. */
static int32_t count_columns(const halves *h)
{
    return h->tile.width / h->products;
}

/* asked: a tile to be taken instead of the best one, if the product can have it. */
static halves see_halves(const og_kernel *kernel, const og_cuda_limits *limits,
                         const og_cuda_half_tile *asked)
{
    halves h = {.of = &kernel->matrices, .products = kernel->product_count};
    h.x = see_operand(kernel, 0, false);
    for (int32_t p = 0; p < h.products; p++)
        h.w[p] = see_operand(kernel, p, true);
    const og_cuda_half_shape shape = {.of = *h.of,
                                      .products = h.products,
                                      .x_is_across = h.x.is_across,
                                      .w_is_across = h.w[0].is_across,
                                      .is_long = h.of->k > LONG};
    h.tile = og_cuda_choose_half_tile(&shape, limits->multiprocessors);
    if (asked->groups && og_cuda_takes_half_tile(&shape, asked, limits->multiprocessors))
        h.tile = *asked;
    h.x_rows = h.tile.groups * 64;
    if (!h.x.is_across && h.of->m < h.x_rows)
        h.x_rows = og_cuda_power_above(h.of->m);
    h.m_tiles = og_divide_up(h.of->m, (int64_t)(h.tile.shares_w ? 2 : 1) * h.tile.groups * 64);
    h.n_tiles = og_divide_up(h.of->n, (int64_t)(h.tile.shares_x ? 2 : 1) * count_columns(&h));
    return h;
}

/* ---- arguments ----------------------------------------------------------------------------- */

/* Elements from a line of a copy to the next. */
static int64_t copied_pitch(const operand *o)
{
    return og_divide_up(o->length, TMA_UNIT) * TMA_UNIT;
}

/* x has room for a copy in any case: its address may be one that TMA does not take. */
static double copied_bytes(const operand *o)
{
    bool may = o->is_copied || !o->factor.is_right;
    return may ? 2.0 * (double)o->matrices * (double)o->lines * (double)copied_pitch(o) : 0;
}

/* Rows of x, or columns of w, of a box. */
static int32_t box_rows(const halves *h, const operand *o)
{
    if (o->is_across)
        return BOX;
    if (!o->factor.is_right)
        return h->tile.shares_x ? h->x_rows / 2 : h->x_rows;
    return count_columns(h) / (h->tile.shares_w || h->is_later ? 2 : 1);
}

static og_cuda_map *add_map(og_cuda_emitter *e, const halves *h, const operand *o, const char *name)
{
    return og_cuda_add_map(
        e, name,
        &(og_cuda_map){.buffer = o->is_copied ? OG_CUDA_SCRATCH : o->factor.access->buffer,
                       .dtype = o->factor.access->dtype,
                       .columns = o->length,
                       .rows = o->lines,
                       .depth = o->matrices,
                       .pitch_bytes = o->pitch * 2,
                       .slab_bytes = o->slab * 2,
                       .may_copy = !o->is_copied && !o->factor.is_right,
                       .copy_pitch_bytes = copied_pitch(o) * 2,
                       .fetches_256 = true,
                       .box_columns = BOX,
                       .box_rows = box_rows(h, o),
                       .box_depth = 1,
                       .rows_between = o->factor.is_right && h->is_later});
}

/* Room for a copy of the factor, of which its map is then. */
static ogive_status add_room(og_cuda_emitter *e, const operand *o, const char *name,
                             og_cuda_map *map)
{
    double bytes = copied_bytes(o);
    if (bytes > 0x1p62 - (double)e->out->scratch_bytes)
        OG_FAIL(e->error, OGIVE_MEMORY, -1, "a factor's copy is larger than any memory");
    map->copy_offset = og_cuda_add_region(e, "void", name, (int64_t)bytes);
    map->offset = o->is_copied ? map->copy_offset : 0;
    return OGIVE_OK;
}

static int64_t count_clusters(const halves *h)
{
    return h->of->batch * h->m_tiles * h->n_tiles;
}

static int32_t blocks_of_cluster(const halves *h)
{
    return h->tile.shares_w || h->tile.shares_x ? 2 : 1;
}

/* Blocks of og_multiply_halves: whole clusters that stay on their multiprocessors. */
static int64_t count_blocks(const og_cuda_emitter *e, const halves *h)
{
    int32_t each = blocks_of_cluster(h);
    return each * og_min(count_clusters(h), e->limits->multiprocessors / each);
}

/* Do quads of a result lie side by side, each where one instruction can write it? */
static bool lies_in_quads(const og_access *access, const og_kernel *kernel)
{
    int32_t n_dim = og_column_dim(kernel);
    bool quads = access->stride[n_dim] == 1 && kernel->matrices.n % 4 == 0;
    for (int32_t d = 0; d < n_dim; d++)
        quads &= access->stride[d] % 4 == 0;
    return quads;
}

/* Is there a next tile, and are there registers for results until then: one of halves, from sums
 * and up to 4 bytes a column that all rows share, by a formula of which each sum has its own code?
 * ahead: the more bytes, the fewer steps are read ahead.
 * H200: 4096 x 4096 x 4096 0.193, 0.187 ms; 8192 x 8192 x 1024 0.233, 0.207. */
static bool is_later(const og_cuda_emitter *e, const halves *h, int32_t *ahead)
{
    const og_kernel *kernel = e->kernel;
    const og_pass *pass = &kernel->passes[0];
    size_t bytes = 0, stores = 0;
    if (count_clusters(h) * blocks_of_cluster(h) == count_blocks(e, h) || h->tile.groups == 1 ||
        h->products != 1 || h->tile.alternates || h->w[0].is_across || h->of->k > LONG || e->wide ||
        kernel->space.n_reduced || og_cuda_is_costly_pass(pass))
        return false;
    for (int32_t i = 0; i < pass->element_count; i++) {
        const og_instr *instr = &pass->elements[i];
        if (instr->op == OG_OP_LOAD && !e->is_kept[instr->index])
            return false;
        if (instr->op == OG_OP_LOAD)
            bytes += og_dtype_bytes(kernel->accesses[instr->index].dtype);
        if (instr->op != OG_OP_STORE)
            continue;
        if (og_dtype_bytes(kernel->accesses[instr->index].dtype) != 2 ||
            !lies_in_quads(&kernel->accesses[instr->index], kernel))
            return false;
        stores++;
    }
    *ahead = bytes > 2 ? 2 : 4;
    return stores == 1 && bytes <= 4;
}

/* Maps come first: they are aligned more than all others. */
static ogive_status add_arguments(og_cuda_emitter *e, const halves *h)
{
    const og_matrices *s = h->of;
    int64_t groups = og_divide_up(s->m, OG_CUDA_REDO_GROUP), runs = og_divide_up(s->n, OG_RUN);
    og_cuda_map *x = add_map(e, h, &h->x, "x_map"), *w[2];
    for (int32_t p = 0; p < h->products; p++)
        w[p] = add_map(e, h, &h->w[p], p ? "v_map" : "w_map");
    OG_TRY(add_room(e, &h->x, "x_copy", x));
    for (int32_t p = 0; p < h->products; p++)
        OG_TRY(add_room(e, &h->w[p], p ? "v_copy" : "w_copy", w[p]));
    og_cuda_add_region(e, "void", "redo", 0);
    og_cuda_add_region(e, "void", "any_redo", 0);
    og_cuda_add_product_parts(e);
    og_cuda_add_index(e, "x_pitch", copied_pitch(&h->x));
    og_cuda_add_index(e, "w_pitch", copied_pitch(&h->w[0]));
    og_cuda_add_index(e, "x_moves", h->x.matrices > 1);
    og_cuda_add_index(e, "w_moves", h->w[0].matrices > 1);
    og_cuda_add_index(e, "m_tiles", h->m_tiles);
    og_cuda_add_index(e, "n_tiles", h->n_tiles);
    og_cuda_add_index(e, "tiles", count_clusters(h));
    og_cuda_add_index(e, "runs", runs);
    og_cuda_add_index(e, "redo_pitch", 0);
    og_cuda_add_index(e, "redo_groups", groups);
    og_cuda_add_index(e, "redo_items", s->batch * groups * runs);
    og_cuda_add_index(e, "x_k", h->x.factor.k_stride);
    return OGIVE_OK;
}

/* ---- entry --------------------------------------------------------------------------------- */

/* Quads that a thread finishes at once: all of its 16 rows, if the formula takes few registers. */
static int count_quads_at_once(const og_cuda_emitter *e)
{
    return og_cuda_is_costly_pass(&e->kernel->passes[0]) ? 2 : 8;
}

/* Shared memory of og_redo: sums of the second product, too. */
static size_t redo_bytes(const halves *h)
{
    size_t sums = sizeof(float) * OG_CUDA_REDO_GROUP * 2 * OG_RUN;
    return OG_CUDA_REDO_BYTES + (size_t)(h->products - 1) * sums;
}

/* Does pass 0 read what moves along rows, and is there room to read it for several at once? */
static bool reads_all(const og_cuda_emitter *e, const halves *h)
{
    const og_pass *pass = &e->kernel->passes[0];
    size_t bytes = 0;
    for (int32_t i = 0; i < pass->element_count; i++) {
        const og_instr *instr = &pass->elements[i];
        if (instr->op == OG_OP_LOAD && !e->is_kept[instr->index])
            bytes += og_dtype_bytes(e->kernel->accesses[instr->index].dtype);
    }
    return bytes > 0 && bytes <= 4 && h->products == 1 && !e->wide && h->of->k <= LONG &&
           !e->kernel->space.n_reduced && !og_cuda_is_costly_pass(pass);
}

static void add_numbers(og_cuda_emitter *e, const halves *h, size_t shared_bytes)
{
    const char *type = h->x.factor.access->dtype == OG_BFLOAT16 ? "bf16" : "f16";
    const og_cuda_number sizes[] = {{"OG_BK", BOX},
                                    {"OG_QUADS", e->kernel->space.n_reduced ? 2 : 1},
                                    {"OG_SHARED_BYTES", (int64_t)shared_bytes},
                                    {"OG_REDO_BYTES", (int64_t)redo_bytes(h)},
                                    {"OG_CHAIN", CHAIN},
                                    {"OG_EARLY", !e->wide},
                                    {"OG_QUADS_AT_ONCE", count_quads_at_once(e)},
                                    {0}};
    const og_cuda_number tile[] = {{"OG_PRODUCTS", h->products},
                                   {"OG_GROUPS", h->tile.groups},
                                   {"OG_WIDTH", h->tile.width},
                                   {"OG_X_ROWS", h->x_rows},
                                   {"OG_SHARES_W", h->tile.shares_w},
                                   {"OG_SHARES_X", h->tile.shares_x},
                                   {"OG_ALTERNATES", h->tile.alternates},
                                   {"OG_X_ACROSS", h->x.is_across},
                                   {"OG_W_ACROSS", h->w[0].is_across},
                                   {"OG_COPIES_W", h->w[0].is_copied},
                                   {"OG_LONG", h->of->k > LONG},
                                   {"OG_LATER", h->is_later},
                                   {"OG_AHEAD", h->ahead},
                                   {"OG_READS_ALL", reads_all(e, h)},
                                   {0}};
    og_text_add(&e->numbers, "typedef float og_number;\ntypedef uint16_t og_element;\n");
    og_cuda_add_enum(&e->numbers, sizes);
    og_cuda_add_defines(&e->numbers, tile);
    og_text_add(&e->numbers,
                "#define OG_MMA_TYPE \"%s\"\n#define OG_ACROSS \"%d, %d\"\n"
                "OG_FN float og_widen(og_element x)\n{\n    return og_f32_from_%s(x);\n}\n",
                type, h->x.is_across, h->w[0].is_across, type);
}

static ogive_status add_copy(og_cuda_emitter *e, const operand *o, const char *entry,
                             const og_cuda_map *map)
{
    if (!o->is_copied && !map->may_copy)
        return OGIVE_OK;
    OG_TRY(og_cuda_add_launch(e, entry, -1, o->matrices * o->lines, COPY_THREADS));
    og_cuda_launch *launch = &e->out->launches[e->out->launch_count - 1];
    if (!o->is_copied) {
        launch->maps = map;
        launch->map_count = 1;
        launch->when = OG_CUDA_IF_COPIED;
    }
    return OGIVE_OK;
}

static ogive_status add_launches(og_cuda_emitter *e, const halves *h, size_t shared_bytes)
{
    const og_matrices *s = h->of;
    int64_t groups = og_divide_up(s->m, OG_CUDA_REDO_GROUP), runs = og_divide_up(s->n, OG_RUN);
    const og_cuda_map *maps;
    OG_TRY(og_cuda_copy_maps(e, &maps));
    OG_TRY(og_cuda_make_launches(e, 6));
    OG_TRY(add_copy(e, &h->x, "og_copy_x", &maps[0]));
    for (int32_t p = 0; p < h->products; p++)
        OG_TRY(add_copy(e, &h->w[p], p ? "og_copy_v" : "og_copy_w", &maps[1 + p]));
    OG_TRY(og_cuda_add_launch(e, "og_multiply_halves", -1, count_blocks(e, h),
                              128 * (h->tile.groups + 1)));
    OG_TRY(og_cuda_add_redo(e, s->batch * groups * runs));
    og_cuda_launch *redo = &e->out->launches[e->out->launch_count - 1], *tensor = redo - 1;
    tensor->maps = redo->maps = maps;
    tensor->map_count = redo->map_count = e->arguments.map_count;
    tensor->when = OG_CUDA_IF_MAPPED;
    redo->when = OG_CUDA_IF_UNMAPPED;
    tensor->shared_bytes = shared_bytes;
    redo->shared_bytes = redo_bytes(h);
    if (!og_cuda_has_row_values(&e->kernel->passes[0]) || runs == 1)
        return OGIVE_OK;
    return og_cuda_add_combine(e, 0, s->batch * s->m, runs);
}

static ogive_status name_body(og_cuda_emitter *e, const halves *h)
{
    return og_cuda_name_body(e, "%s on tensor cores, tiles of %d x %d%s",
                             h->products == 2 ? "two products" : "product",
                             (int)h->tile.groups * 64, (int)count_columns(h),
                             h->tile.shares_w     ? ", two sharing their columns"
                             : h->tile.shares_x   ? ", two sharing their rows"
                             : h->tile.alternates ? ", two alternating"
                                                  : "");
}

ogive_status og_cuda_emit_hopper_halves(og_cuda_emitter *e)
{
    halves h = see_halves(e->kernel, e->limits, &e->wishes->tile);
    int64_t runs = og_divide_up(h.of->n, OG_RUN);
    /* The ring, what warps pass through shared memory, barriers: the kernel asserts it. */
    size_t shared_bytes = 12 * 16384 + (size_t)h.tile.groups * 4 * 4096 + 8 * 64;
    e->wide |= og_cuda_product_needs_wide(e->kernel, false);
    e->out->tensor_products = 1;
    e->vector = 4;
    e->threads = COPY_THREADS;
    og_cuda_keep_still(e);
    h.is_later = e->packs = is_later(e, &h, &h.ahead);
    add_numbers(e, &h, shared_bytes);
    OG_TRY(add_arguments(e, &h));
    og_cuda_add_tensor_factors(e);
    og_cuda_include(&e->body, "hopper_copy");
    og_cuda_include(&e->body, "hopper_halves");
    if (og_cuda_has_row_values(&e->kernel->passes[0]) && runs != 1)
        og_cuda_begin_combine(e, h.of->batch * h.of->m, runs);
    og_cuda_add_finish_numbers(e, runs <= 1);
    OG_TRY(name_body(e, &h));
    return add_launches(e, &h, shared_bytes);
}
