/* SPDX-License-Identifier: MIT
 *
 * cuda_emit_columns.c - kernels that reduce columns (OG_COLUMNS): how a block lies
 * across them, and the entry points around columns.cuh.
 *
 *     enough columns for all multiprocessors, or
 *     n <= 4096, one tile         one launch for all passes; where these read more than caches
 *                                 hold, columns stay in shared memory (columns_shared.cuh)
 *     else                        a launch of tiles and one that combines them, for
 *                                 sums and again for terms, pass by pass; passes with a
 *                                 guard are the combining launch's before them
 *
 * Most kernels ask for one block a multiprocessor: ptxas (13.4) would rather spill than take
 * more than 64 registers.
 */
#include "cuda/emit/cuda_emit.h"

enum {
    MOST_SHARED_BYTES = 48 * 1024, /* without asking the driver */
    /* Of loads under way and accumulators. Gradients of layer_norm of 16384x1024 bfloat16 on an H200: 33
     * us with 88, 34.5 with 48; 109 with 168, which spills. */
    MOST_REGISTERS = 96
};

/* ---- shapes --------------------------------------------------------------------------- */

/* What og_shape_columns() chooses by. */
static og_reduced_facts see_facts(const og_cuda_emitter *e)
{
    return (og_reduced_facts){.all_bytes = og_cuda_all_sum_bytes(e->kernel),
                              .loads = og_cuda_load_registers(e, 1)};
}

/* Elements whose loads are under way at once; og_shape_columns() knows only how many loads there are.
 * Costly functions, which hide loads themselves, would be in the source as often. */
static int32_t choose_flight(const og_cuda_emitter *e, const og_columns_shape *s)
{
    int32_t flight = 16;
    for (int32_t p = 0; p < e->kernel->pass_count; p++)
        if (og_cuda_is_costly_pass(&e->kernel->passes[p]))
            return s->flight;
    const int32_t each = og_cuda_load_registers(e, s->vector);
    const int32_t sums = s->vector * e->out->facts.reduced.all_bytes / 4;
    while (flight > s->flight && flight * each + sums > MOST_REGISTERS)
        flight /= 2;
    return flight;
}

/* Shall what peaks have computed of an element wait for terms, in shared memory? It pays where that are
 * costly functions, of columns of one run; a thread then has one, lest few threads fit. */
static bool holds_values(const og_cuda_emitter *e)
{
    const og_kernel *kernel = e->kernel;
    const og_pass *pass = &kernel->passes[0];
    if (og_cuda_serves(e) || kernel->pass_count != 1 || !og_cuda_has_terms(pass) ||
        !og_cuda_is_costly_pass(pass) ||
        og_cuda_count(&kernel->space, e->vector_dim + 1, kernel->space.rank) > OG_RUN)
        return false;
    for (int32_t i = 0; i < pass->element_count; i++)
        if (pass->elements[i].type != OG_F32 || pass->elements[i].op == OG_OP_STORE)
            return false;
    return pass->reduction_count == 2;
}

/* Sets e->vector and e->threads. */
static og_columns_shape choose_shape(og_cuda_emitter *e, int32_t widest)
{
    const og_space *space = &e->kernel->space;
    const og_cuda_body body = e->wishes->body;
    const int32_t last = e->vector_dim;
    og_columns_shape s =
        og_shape_columns(&e->out->facts.reduced, og_cuda_count(space, last + 1, space->rank),
                         last < 0 ? 1 : space->extent[last], og_cuda_count(space, 0, last), widest,
                         e->limits->multiprocessors);
    if (og_cuda_serves(e)) {
        s.tiles = body == OG_CUDA_COLUMNS ? 1 : 2;
        s.split = body == OG_CUDA_COLUMNS_SPLIT;
    } else {
        s.flight = choose_flight(e, &s);
    }
    e->vector = s.vector;
    e->threads = s.threads;
    return s;
}

/* Blocks that a multiprocessor should hold. Softmax fits 64 registers if it has to, and must:
 * 4096x65536 of float32 took 1139 us on an H200, and 1347 when it took more, with divisions
 * as they are now. */
static int32_t wanted_blocks(const og_cuda_emitter *e)
{
    enum { SIMPLE = 8 }; /* instructions of a pass that leave registers to spare */
    bool terms = false, simple = og_cuda_load_registers(e, 1) == 1;
    for (int32_t p = 0; p < e->kernel->pass_count; p++) {
        terms |= og_cuda_has_terms(&e->kernel->passes[p]);
        simple &= e->kernel->passes[p].element_count <= SIMPLE;
    }
    return terms && simple ? 2 : 1;
}

/* ---- entries --------------------------------------------------------------------------- */

static bool has_terms(const og_cuda_emitter *e, int32_t p)
{
    return og_cuda_has_terms(&e->kernel->passes[p]);
}

/* Does shared memory keep anything? */
static bool keeps(const og_cuda_emitter *e)
{
    bool any = false;
    for (int32_t a = 0; a < e->kernel->access_count; a++)
        any |= e->is_kept[a];
    return any;
}

/* total = the sums of pass p over tiles [first, end): s<p>. */
static void add_sums(og_cuda_emitter *e, int32_t p, const char *first, const char *end)
{
    const int n = (int)p;
    og_text_add(&e->body,
                "    og_sums%d::sums s%d[OG_V];\n    og_plain_run<og_sums%d%s> r%d%s;\n"
                "    og_reduce_columns<og_sums%d>(a, c, row, r%d, a.n, %s, %s, s%d);\n",
                n, n, n, keeps(e) ? ", og_held_runs" : "", n, keeps(e) ? " = {held}" : "", n, n,
                first, end, n);
}

/* The same of a pass with a guard, by the whole column's block. */
static void add_again(og_cuda_emitter *e, int32_t p)
{
    const int n = (int)p;
    og_text_add(&e->body,
                "    og_sums%d::sums s%d[OG_V];\n    bool again%d = false;\n"
                "    for (int i = 0; i < OG_V; i++)\n"
                "        again%d |= i < c.span.end && og_again%d(row[i]);\n"
                "    og_reduce_columns_again<og_sums%d>(a, c, row, again%d, s%d%s);\n",
                n, n, n, n, n, n, n, n, keeps(e) ? ", held" : "");
}

/* The same of terms, t<p>, where s<p> is that of the whole column. */
static void add_terms(og_cuda_emitter *e, int32_t p, const char *first, const char *end)
{
    const int n = (int)p;
    og_text_add(&e->body,
                "    og_terms%d::sums t%d[OG_V];\n"
                "    og_scaled_run<og_sums%d, og_terms%d> q%d;\n"
                "    for (int i = 0; i < OG_V; i++)\n        q%d.most[i] = s%d[i];\n"
                "    og_reduce_columns<og_terms%d>(a, c, row, q%d, a.n, %s, %s, t%d);\n",
                n, n, n, n, n, n, n, n, n, first, end, n);
}

/* Row values of the thread's columns; one that is not there computes the first's. */
static void add_finish(og_cuda_emitter *e, int32_t p)
{
    og_text *to = &e->body;
    og_text_add(to,
                "#pragma unroll\n    for (int i = 0; i < OG_V; i++) {\n"
                "        og_sums%d::finish(a, s%d[i], row[i]);\n",
                (int)p, (int)p);
    if (has_terms(e, p))
        og_text_add(to, "        og_terms%d::finish(a, t%d[i], row[i]);\n", (int)p, (int)p);
    if (e->kernel->passes[p].row_count)
        og_text_add(to,
                    "        bool there = i < c.span.end;\n"
                    "        og_rows%d(a, c.at, there ? i : 0, c.writes && there, row[i]);\n",
                    (int)p);
    og_text_add(to, "    }\n");
}

static ogive_status add_columns_entry(og_cuda_emitter *e, const og_columns_shape *s)
{
    og_text_add(&e->body,
                "\nOG_KERNEL(og_columns, OG_THREADS, OG_BLOCKS)\n{\n%s"
                "    og_column c = og_find_column(a, blockIdx.x);\n"
                "    og_row row[OG_V];\n%s",
                keeps(e) ? "    extern __shared__ __align__(128) uint4 og_shelves[];\n" : "",
                keeps(e) ? "    const og_held_runs held = og_hold_runs(a, c, og_shelves);\n" : "");
    for (int32_t p = 0; p < e->kernel->pass_count; p++) {
        const int n = (int)p;
        if (e->kernel->passes[p].guard_count) {
            add_again(e, p);
        } else if (has_terms(e, p) && s->tiles <= 1) {
            og_text_add(&e->body,
                        "    og_sums%d::sums s%d[OG_V];\n    og_terms%d::sums t%d[OG_V];\n"
                        "    og_reduce_with_terms<og_sums%d, og_terms%d>(a, c, row, s%d, t%d%s);\n",
                        n, n, n, n, n, n, n, n, keeps(e) ? ", held" : "");
        } else {
            add_sums(e, p, "0", "a.tiles");
            if (has_terms(e, p))
                add_terms(e, p, "0", "a.tiles");
        }
        add_finish(e, p);
    }
    og_text_add(&e->body, "}\n");
    e->out->body = s->tiles <= 1 ? "columns" : "columns, tile by tile";
    OG_TRY(og_cuda_make_launches(e, 1));
    return og_cuda_add_launch(e, "og_columns", -1, s->blocks, e->threads);
}

/* ---- entries of split columns ------------------------------------------------------------ */

static void begin_split(og_cuda_emitter *e, int32_t p, bool part, bool terms)
{
    og_text *to = &e->body;
    bool is_last =
        part ? !og_cuda_has_row_values(&e->kernel->passes[p])
             : og_cuda_next_pass(e->kernel, p) == e->kernel->pass_count && terms == has_terms(e, p);
    og_text_add(to, "\nOG_KERNEL(og_%s%s%d, OG_THREADS, OG_BLOCKS)\n{\n", part ? "part" : "combine",
                terms ? "_terms" : "", (int)p);
    if (part)
        og_text_add(to,
                    "    og_index tile = og_divide(blockIdx.x, a.blocks);\n"
                    "    og_column c = og_find_column(a, blockIdx.x - tile * a.blocks.extent);\n");
    else
        og_text_add(to, "    og_column c = og_find_column(a, blockIdx.x);\n");
    og_text_add(to, "    og_row row[OG_V];\n%s    og_await_launch();\n",
                is_last ? "" : "    og_admit_next();\n");
    if (p > 0)
        og_text_add(to, "    og_load_columns(a.row_values, c, 0, row);\n");
}

/* A launch over tiles, of sums or of terms. */
static void add_part(og_cuda_emitter *e, int32_t p, bool terms)
{
    const int n = (int)p;
    begin_split(e, p, true, terms);
    if (terms) {
        og_text_add(&e->body,
                    "    og_sums%d::sums s%d[OG_V];\n    og_load_columns(a.totals%d, c, 0, s%d);\n",
                    n, n, n, n);
        add_terms(e, p, "tile", "tile + 1");
        og_text_add(&e->body, "    og_store_columns(a.terms%d, c, tile * a.vectors * OG_V, t%d);\n",
                    n, n);
    } else {
        add_sums(e, p, "tile", "tile + 1");
        if (e->kernel->passes[p].reduction_count)
            og_text_add(&e->body,
                        "    og_store_columns(a.sums%d, c, tile * a.vectors * OG_V, s%d);\n", n, n);
    }
    og_text_add(&e->body, "}\n");
}

/* name<p>[OG_V] = what the tiles of struct<p> at a.source<p> come to. */
static void add_combined(og_cuda_emitter *e, int32_t p, const char *kind, const char *name)
{
    const int n = (int)p;
    og_text_add(&e->body,
                "    og_%s%d::sums %s%d[OG_V];\n    og_partial_run<og_%s%d> r%d;\n"
                "    r%d.first = (const og_%s%d::sums *)a.%s%d + c.vector * OG_V;\n"
                "    r%d.stride = a.vectors * OG_V;\n"
                "    og_reduce_columns<og_%s%d>(a, c, row, r%d, a.tiles, 0, a.tiles_of_tiles, "
                "%s%d);\n",
                kind, n, name, n, kind, n, n, n, kind, n, kind, n, n, kind, n, n, name, n);
}

static void add_combine(og_cuda_emitter *e, int32_t p, bool terms)
{
    const int n = (int)p;
    const int32_t next = og_cuda_next_pass(e->kernel, p);
    bool last = terms || !has_terms(e, p);
    begin_split(e, p, false, terms);
    if (terms)
        og_text_add(&e->body,
                    "    og_sums%d::sums s%d[OG_V];\n    og_load_columns(a.totals%d, c, 0, s%d);\n",
                    n, n, n, n);
    add_combined(e, p, terms ? "terms" : "sums", terms ? "t" : "s");
    if (!last)
        og_text_add(&e->body, "    og_store_columns(a.totals%d, c, 0, s%d);\n", n, n);
    else
        add_finish(e, p);
    for (int32_t again = p + 1; last && again < next; again++) {
        add_again(e, again);
        add_finish(e, again);
    }
    if (last && next < e->kernel->pass_count)
        og_text_add(&e->body, "    og_store_columns(a.row_values, c, 0, row);\n");
    og_text_add(&e->body, "}\n");
}

static ogive_status add_split_entries(og_cuda_emitter *e, const og_columns_shape *s)
{
    og_cuda_add_divisor(e, "blocks", s->blocks);
    og_cuda_add_index(e, "tiles_of_tiles", og_divide_up(s->tiles, OG_COLUMNS_TILE));
    int64_t columns = og_times(s->vectors, e->vector);
    og_cuda_add_scratch(e, og_times(s->tiles, columns), columns);
    og_cuda_include(&e->body, "columns_split");
    e->out->body = "columns, a block a tile";
    OG_TRY(og_cuda_make_launches(e, 4 * e->kernel->pass_count));
    for (int32_t p = 0; p < e->kernel->pass_count; p = og_cuda_next_pass(e->kernel, p))
        for (int terms = 0; terms <= has_terms(e, p); terms++) {
            add_part(e, p, terms);
            OG_TRY(og_cuda_add_launch(e, terms ? "og_part_terms" : "og_part", p,
                                      og_times(s->tiles, s->blocks), e->threads));
            og_cuda_overlap_last(e);
            if (!og_cuda_has_row_values(&e->kernel->passes[p]))
                continue;
            add_combine(e, p, terms);
            OG_TRY(og_cuda_add_launch(e, terms ? "og_combine_terms" : "og_combine", p, s->blocks,
                                      e->threads));
            og_cuda_overlap_last(e);
        }
    return OGIVE_OK;
}

/* ---- all of it --------------------------------------------------------------------------- */

/* Everything that comes before the entries. */
static ogive_status add_columns_parts(og_cuda_emitter *e, const og_columns_shape *s)
{
    int32_t bytes = e->out->facts.reduced.all_bytes, shared = s->runs * s->x * e->vector * bytes;
    if (s->runs > 1 && shared > MOST_SHARED_BYTES)
        OG_FAIL(e->error, OGIVE_UNSUPPORTED, -1,
                "a CUDA kernel keeps at most %d bytes of a column's sums, this one has %d: cut the "
                "formula into several",
                MOST_SHARED_BYTES / OG_RUN, (int)bytes);
    og_cuda_add_numbers(e,
                        (const og_cuda_number[]){
                            {"OG_X", s->x},
                            {"OG_Y", s->y},
                            {"OG_RUNS", s->runs},
                            {"OG_FLIGHT", s->flight},
                            {"OG_SHARED_BYTES", og_columns_shared_bytes(&e->out->facts.reduced, s)},
                            {"OG_BLOCKS", e->out->facts.wanted_blocks},
                            {0}});
    og_cuda_include(&e->places, "reduce");
    og_cuda_add_operands(e);
    og_cuda_add_index(e, "n", s->n);
    og_cuda_add_index(e, "columns", s->columns);
    og_cuda_add_index(e, "vectors", s->vectors);
    og_cuda_add_index(e, "tiles", s->tiles);
    og_cuda_add_divisor(e, "per_row", s->per_row);
    og_cuda_add_seek_between(e, "og_seek_outer", OG_CUDA_FIRST, OG_CUDA_LAST_KEPT);
    og_cuda_add_seek_between(e, "og_step_column", OG_CUDA_LAST_KEPT, OG_CUDA_REDUCED);
    og_cuda_add_seek_between(e, "og_step_row", OG_CUDA_REDUCED, OG_CUDA_END);
    og_cuda_add_row(e);
    for (int32_t p = 0; p < e->kernel->pass_count; p++)
        og_cuda_add_pass(e, p);
    return OGIVE_OK;
}

static ogive_status see_columns(og_cuda_emitter *e)
{
    e->vector_dim = e->kernel->space.rank - e->kernel->space.n_reduced - 1;
    e->mends = true;
    e->out->facts.reduced = see_facts(e);
    e->out->facts.wanted_blocks = wanted_blocks(e);
    return og_cuda_find_terms(e, false);
}

ogive_status og_cuda_emit_columns(og_cuda_emitter *e)
{
    OG_TRY(see_columns(e));
    og_columns_shape s = choose_shape(e, holds_values(e) ? 1 : og_cuda_best_vector(e));
    OG_TRY(add_columns_parts(e, &s));
    if (holds_values(e))
        og_cuda_add_defines(&e->numbers, (const og_cuda_number[]){{"OG_HOLDS", 1}, {0}});
    og_cuda_include(&e->body, "columns");
    return s.split ? add_split_entries(e, &s) : add_columns_entry(e, &s);
}

/* ---- kept in shared memory --------------------------------------------------------------- */

/* Bytes that an element of all kept operands takes. */
static size_t kept_bytes(const og_cuda_emitter *e)
{
    size_t bytes = 0;
    for (int32_t a = 0; a < e->kernel->access_count; a++)
        if (e->is_kept[a])
            bytes += og_dtype_bytes(e->kernel->accesses[a].dtype);
    return bytes;
}

/* What moves along columns only is better read again. */
static void mark_kept(og_cuda_emitter *e)
{
    const og_space *space = &e->kernel->space;
    og_cuda_mark_kept(e);
    for (int32_t a = 0; a < e->kernel->access_count; a++) {
        bool moves = false;
        for (int32_t d = e->vector_dim + 1; d < space->rank; d++)
            moves |= e->kernel->accesses[a].stride[d] != 0;
        e->is_kept[a] &= moves;
    }
}

/* Bytes of shared memory that a block's columns take. */
static size_t held_bytes(const og_cuda_emitter *e, const og_columns_shape *s)
{
    const int64_t shelves = og_divide_up(s->runs, s->y) * og_min(s->n, OG_RUN);
    return (size_t)shelves * (size_t)(s->x * s->y * s->vector) * kept_bytes(e);
}

enum { HELD_BLOCKS = 3 }; /* of a multiprocessor: some copy while others compute and store */

/* Blocks for which a multiprocessor has room. */
static int32_t count_held_blocks(const og_cuda_emitter *e, const og_columns_shape *s)
{
    enum { REGISTERS = 80, ALL_REGISTERS = 65536 };
    const size_t bytes = held_bytes(e, s) + OG_CUDA_BLOCK_BYTES +
                         (size_t)og_columns_shared_bytes(&e->out->facts.reduced, s);
    const int32_t most = (int32_t)og_min(HELD_BLOCKS, ALL_REGISTERS / (s->threads * REGISTERS));
    return (int32_t)og_min((int64_t)(e->limits->shared_per_multiprocessor / bytes), most);
}

/* False if there is no shape of which a multiprocessor has room for several blocks, or if caches
 * hold what is read: all of it, or a few elements of the columns that are under way (of fewer than
 * 64 nothing was measured). */
static bool choose_held_shape(og_cuda_emitter *e, og_columns_shape *s)
{
    /* RMS norm over 64 of 112 x 512 x 512 columns of float32 on an H200: 4.18 ms by 4 bytes, 3.67 by
     * 8 or 16. */
    enum { LEAST_BLOCKS = 2, VECTOR_BYTES = 8, LEAST = OG_RUN };
    int32_t widest = og_cuda_best_vector(e);
    while (widest > 1 && (size_t)widest * kept_bytes(e) > VECTOR_BYTES)
        widest /= 2;
    *s = choose_shape(e, widest);
    const double bytes = (double)s->n * (double)s->vectors * s->vector * (double)kept_bytes(e);
    if (s->n < LEAST || s->tiles > 1 || bytes < (double)e->limits->l2_bytes / 2)
        return false;
    while (count_held_blocks(e, s) < HELD_BLOCKS && s->x * s->vector > OG_COLUMNS_LEAST &&
           s->threads > 32) {
        s->x /= 2;
        s->threads = s->x * s->y;
    }
    e->threads = s->threads;
    s->blocks = og_divide_up(s->vectors, s->x);
    return count_held_blocks(e, s) >= LEAST_BLOCKS;
}

ogive_status og_cuda_refuse_columns_shared(og_cuda_emitter *e, const char **why)
{
    og_columns_shape s;
    OG_TRY(see_columns(e));
    mark_kept(e);
    *why = kept_bytes(e) == 0 || holds_values(e) || !choose_held_shape(e, &s) ? "" : NULL;
    if (*why)
        og_cuda_keep_nothing(e);
    return OGIVE_OK;
}

ogive_status og_cuda_emit_columns_shared(og_cuda_emitter *e)
{
    og_columns_shape s;
    choose_held_shape(e, &s);
    e->out->facts.wanted_blocks = count_held_blocks(e, &s);
    OG_TRY(add_columns_parts(e, &s));
    og_cuda_add_enum(&e->numbers, (const og_cuda_number[]){{"OG_LENDER", -1}, {0}});
    og_cuda_include(&e->body, "columns_shared");
    OG_TRY(add_columns_entry(e, &s));
    e->out->body = "columns, kept in shared memory";
    e->out->launches[0].shared_bytes = held_bytes(e, &s);
    e->out->launches[0].static_bytes = (size_t)og_columns_shared_bytes(&e->out->facts.reduced, &s);
    return OGIVE_OK;
}
