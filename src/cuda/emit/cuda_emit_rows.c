/* SPDX-License-Identifier: MIT
 *
 * cuda_emit_rows.c - kernels that reduce rows (OG_ROWS): how many threads take a row,
 * what stays in registers, and the entry points around rows.cuh.
 *
 *     n <= 16384   one launch for all passes
 *     longer       for each pass a launch of chunks, and one that combines them; passes with a
 *                  guard are the combining launch's before them
 */
#include "cuda/emit/cuda_emit.h"

#include <string.h>

/* ---- what a kernel does to a row ---------------------------------------------------- */

int32_t og_cuda_mark_kept(og_cuda_emitter *e)
{
    int32_t registers = 0;
    for (int32_t a = 0; a < e->kernel->access_count; a++) {
        int32_t reads = 0;
        for (int32_t p = 0; p < e->kernel->pass_count; p++) {
            const og_pass *pass = &e->kernel->passes[p];
            bool read = false;
            for (int32_t i = 0; i < pass->element_count; i++)
                read |= pass->elements[i].op == OG_OP_LOAD && pass->elements[i].index == a;
            reads += read ? og_cuda_traversals(pass) : 0;
        }
        const og_access *access = &e->kernel->accesses[a];
        e->is_kept[a] = reads > 1 && og_cuda_motion_of(e, access) != OG_CUDA_STILL;
        if (e->is_kept[a])
            registers += og_cuda_kept_registers(og_dtype_bytes(access->dtype) == 8);
    }
    return registers;
}

void og_cuda_keep_nothing(og_cuda_emitter *e)
{
    memset(e->is_kept, 0, (size_t)e->kernel->access_count * sizeof *e->is_kept);
}

/* Are all kept operands halves? Of a source that serves every dtype: would they be? */
static bool keeps_halves(const og_cuda_emitter *e)
{
    bool all = true;
    for (int32_t a = 0; a < e->kernel->access_count; a++) {
        const og_access *access = &e->kernel->accesses[a];
        bool is_half = access->dtype == OG_FLOAT16 || access->dtype == OG_BFLOAT16;
        if (og_cuda_serves(e))
            is_half =
                access->buffer >= 0 && e->plan->buffers[access->buffer].kind != OG_BUFFER_TEMPORARY;
        all &= !e->is_kept[a] || is_half;
    }
    return all;
}

/* Does a pass load anything else? */
static bool loads_more(const og_cuda_emitter *e)
{
    bool any = false;
    for (int32_t p = 0; p < e->kernel->pass_count; p++)
        for (int32_t i = 0; i < e->kernel->passes[p].element_count; i++) {
            const og_instr *at = &e->kernel->passes[p].elements[i];
            any |=
                at->op == OG_OP_LOAD && !e->is_kept[at->index] && !e->kernel->passes[p].guard_count;
        }
    return any;
}

/* Does it compute costly functions, besides the terms of sumexp? */
static bool is_costly(const og_cuda_emitter *e)
{
    bool any = false;
    for (int32_t p = 0; p < e->kernel->pass_count; p++)
        for (int32_t i = 0; i < e->kernel->passes[p].element_count; i++) {
            const og_instr *at = &e->kernel->passes[p].elements[i];
            any |= og_cuda_is_costly(at->op) && e->kept_terms[at->dst] < 0;
        }
    return any;
}

/* Registers of all accumulators of a lane, in the pass that has the most. */
static int32_t sum_registers(const og_cuda_emitter *e)
{
    int32_t most = 1;
    for (int32_t p = 0; p < e->kernel->pass_count; p++)
        for (int terms = 0; terms < 2; terms++) {
            int32_t size = (int32_t)(og_cuda_sums_bytes(&e->kernel->passes[p], terms) / 4);
            if (!terms) /* og_moments */
                size += 3 * (int32_t)(og_cuda_square_bytes(&e->kernel->passes[p]) / 4);
            most = size > most ? size : most;
        }
    return most;
}

/* What og_shape_rows() chooses by. og_cuda_mark_kept() and og_cuda_find_terms() have been called. */
static og_reduced_facts see_facts(og_cuda_emitter *e, int32_t kept)
{
    bool *is_kept = e->is_kept;
    og_reduced_facts f = {.kept = kept,
                          .keeps_halves = keeps_halves(e),
                          .is_costly = is_costly(e),
                          .has_terms = og_cuda_any_terms(e->kernel),
                          .loads_more = loads_more(e),
                          .sum_bytes = 4 * sum_registers(e),
                          .all_bytes = og_cuda_all_sum_bytes(e->kernel),
                          .loads_beside = og_cuda_load_registers(e, 1)};
    e->is_kept = e->none_kept;
    f.loads = og_cuda_load_registers(e, 1);
    e->is_kept = is_kept;
    return f;
}

/* ---- shapes --------------------------------------------------------------------------- */

/* May registers keep a row, even by single elements, but not by single halves? If not, shared
 * memory does. 4096x16384 on an H200: softmax of float32 135 us by single elements, in shared
 * memory 154; layer_norm of bfloat16 84 by single elements, in shared memory 75. */
static bool keeps_in_registers(og_cuda_emitter *e, int64_t n)
{
    const og_reduced_facts *facts = &e->out->facts.reduced;
    int32_t least = (int32_t)og_min(og_cuda_best_vector(e), facts->keeps_halves ? 2 : 1);
    return n <= OG_CHUNK && og_divide_up(n, OG_LANES) * least <= og_most_kept(facts);
}

/* How n elements are shared out; sets e->vector and e->threads. */
static og_rows_shape choose_shape(og_cuda_emitter *e, int64_t n, bool may_keep)
{
    const og_reduced_facts *facts = &e->out->facts.reduced;
    og_rows_shape s = og_shape_rows(facts, n, og_cuda_best_vector(e), may_keep);
    if (og_cuda_serves(e))
        s.keeps = may_keep && facts->kept > 0;
    if (!s.keeps)
        og_cuda_keep_nothing(e);
    e->vector = s.vector;
    e->threads = s.threads;
    return s;
}

/* ---- entries --------------------------------------------------------------------------- */

/* The reductions of pass p over group g: s<p>, t<p>, u<p>. */
static void add_reduce(og_cuda_emitter *e, int32_t p)
{
    const int n = (int)p;
    if (e->kernel->passes[p].guard_count) {
        og_text_add(&e->body,
                    "    og_sums%d::sums s%d = og_sums%d::neutral();\n"
                    "    if (og_any_again(og_again%d(row)))\n"
                    "        s%d = og_reduce<og_sums%d>(a, g, row, og_none(), kept);\n",
                    n, n, n, n, n, n);
        return;
    }
    if (og_cuda_square_count(&e->kernel->passes[p]))
        og_text_add(
            &e->body,
            "    og_sums%d::sums s%d;\n    og_squares%d::sums u%d;\n"
            "    og_reduce_with_squares<og_sums%d, og_squares%d>(a, g, row, kept, s%d, u%d);\n",
            n, n, n, n, n, n, n, n);
    else
        og_text_add(&e->body,
                    "    og_sums%d::sums s%d = og_reduce<og_sums%d>(a, g, row, og_none(), kept);\n",
                    n, n, n);
    if (og_cuda_has_terms(&e->kernel->passes[p]))
        og_text_add(&e->body,
                    "    og_terms%d::sums t%d = og_reduce<og_terms%d>(a, g, row, s%d, kept);\n",
                    (int)p, (int)p, (int)p, (int)p);
}

static bool has_doubles(const og_kernel *kernel)
{
    bool any = false;
    for (int32_t v = 0; v < kernel->value_count; v++)
        any |= kernel->values[v].type == OG_F64;
    return any;
}

static ogive_status add_rows_entry(og_cuda_emitter *e, int64_t rows, const og_rows_shape *s)
{
    /* ptxas 13.4 spills up to 24 bytes on sm_100 and later, for more blocks than it has to
     * (64 registers instead of 56 of sum(rsqrt(x)) in halves); of float64 also before. */
    og_text_add(&e->body,
                "\nOG_KERNEL(og_rows, OG_THREADS%s)\n{\n"
                "    og_group g = og_find_row(a);\n"
                "    og_row row;\n    og_kept_row kept;\n    og_keep(a, g, kept);\n%s",
                e->limits->arch >= 100 || has_doubles(e->kernel) ? ", 1" : "",
                e->derived_count ? "    og_derive(a, kept);\n" : "");
    for (int32_t p = 0; p < e->kernel->pass_count; p++) {
        add_reduce(e, p);
        og_cuda_add_finish(e, p);
    }
    og_text_add(&e->body, "}\n");
    int64_t each = e->threads / s->group;
    OG_TRY(og_cuda_make_launches(e, 1));
    return og_cuda_add_launch(e, "og_rows", -1, og_divide_up(rows, each), e->threads);
}

/* ---- entries of split rows ------------------------------------------------------------ */

/* Stores what add_reduce() has found, at the chunk's place. */
static void add_part(og_cuda_emitter *e, int32_t p)
{
    og_text *to = &e->body;
    /* As in add_rows_entry(): var of float64 spilt 4 bytes on sm_100. */
    bool squares = og_cuda_square_count(&e->kernel->passes[p]) > 0;
    og_text_add(to,
                "\nOG_KERNEL(og_part%d, OG_THREADS%s)\n{\n    og_index chunk;\n"
                "    og_group g = og_find_chunk(a, chunk);\n    og_row row;\n%s",
                (int)p, squares && has_doubles(e->kernel) ? ", 1" : "",
                og_cuda_has_row_values(&e->kernel->passes[p]) ? "    og_admit_next();\n" : "");
    if (p > 0)
        og_text_add(to,
                    "    og_await_launch();\n    row = ((const og_row *)a.row_values)[g.row];\n");
    og_text_add(to, "    og_kept_row kept;\n    og_keep(a, g, kept);\n");
    add_reduce(e, p);
    if (e->kernel->passes[p].reduction_count)
        og_text_add(to,
                    "    if (g.writes)\n"
                    "        ((og_sums%d::sums *)a.sums%d)[chunk] = s%d;\n",
                    (int)p, (int)p, (int)p);
    if (og_cuda_has_terms(&e->kernel->passes[p]))
        og_text_add(to,
                    "    if (g.writes)\n"
                    "        ((og_terms%d::sums *)a.terms%d)[chunk] = t%d;\n",
                    (int)p, (int)p, (int)p);
    if (squares)
        og_text_add(to,
                    "    if (g.writes)\n"
                    "        ((og_squares%d::sums *)a.squares%d)[chunk] = u%d;\n",
                    (int)p, (int)p, (int)p);
    if (og_cuda_shares_combining(e, p))
        og_text_add(to, "    og_begin_count<og_sums%d>(a, g, chunk, a.sums%d);\n", (int)p + 1,
                    (int)p + 1);
    og_text_add(to, "}\n");
}

/* Shared memory that a block of a pass with sumexp asks for and leaves empty, so that only as many are
 * at work as the L2 cache has room for the chunks of: each is read twice. softmax of 4096x393216 float32
 * on an H200, 8, 6, 5, 4 and 3 blocks a multiprocessor: 6.18, 5.64, 5.64, 5.96, 6.57 ms; as many as fit
 * 6.05; of 4096x131072 bfloat16 0.914 and, with 5 to 12, 0.89. */
static size_t room_for_chunks(const og_cuda_emitter *e, const og_pass *pass)
{
    enum { LEAST = 2 }; /* blocks */
    const og_cuda_limits *limits = e->limits;
    size_t bytes = 0;
    for (int32_t i = 0; i < pass->element_count; i++)
        if (pass->elements[i].op == OG_OP_LOAD)
            bytes += OG_CHUNK * og_dtype_bytes(e->kernel->accesses[pass->elements[i].index].dtype);
    if (og_cuda_serves(e) || !bytes || !og_cuda_has_terms(pass))
        return 0;
    /* A quarter of the cache is what else goes through it. */
    size_t blocks = limits->l2_bytes / 4 * 3 / ((size_t)limits->multiprocessors * bytes);
    size_t most = (size_t)(limits->threads_per_multiprocessor / e->threads);
    if (blocks >= most)
        return 0;
    size_t room = limits->shared_per_multiprocessor / (blocks < LEAST ? LEAST : blocks);
    room -= OG_CUDA_BLOCK_BYTES;
    return room < limits->shared_per_block ? room : 0;
}

static ogive_status add_split_entries(og_cuda_emitter *e, int64_t rows, int64_t n)
{
    int64_t chunks = og_divide_up(n, OG_CHUNK);
    OG_TRY(og_cuda_check_blocks(e, og_times(rows, chunks)));
    og_cuda_begin_combine(e, rows, chunks);
    og_cuda_include(&e->body, og_cuda_any_squares(e->kernel) ? "rows_squares" : "rows_split");
    if (og_cuda_any_guards(e->kernel))
        og_cuda_include(&e->body, "rows_again");
    e->out->body = "rows, a block a chunk";
    OG_TRY(og_cuda_make_launches(e, 2 * e->kernel->pass_count));
    for (int32_t p = 0; p < e->kernel->pass_count; p = og_cuda_next_pass(e->kernel, p)) {
        add_part(e, p);
        OG_TRY(og_cuda_add_launch(e, "og_part", p, rows * chunks, e->threads));
        og_cuda_overlap_last(e)->shared_bytes = room_for_chunks(e, &e->kernel->passes[p]);
        if (!og_cuda_has_row_values(&e->kernel->passes[p]))
            continue;
        OG_TRY(og_cuda_add_combine(e, p, rows, chunks));
    }
    return OGIVE_OK;
}

/* ---- all of it --------------------------------------------------------------------------- */

static const char *body_name(const og_rows_shape *s)
{
    if (s->group > 32)
        return s->keeps ? "rows, a block a row, kept" : "rows, a block a row";
    if (s->group == 32)
        return s->keeps ? "rows, a warp a row, kept" : "rows, a warp a row";
    return s->keeps ? "rows, several a warp, kept" : "rows, several a warp";
}

static void add_shape(og_cuda_emitter *e, const og_rows_shape *s)
{
    og_cuda_add_numbers(e, (const og_cuda_number[]){{"OG_GROUP", s->group},
                                                    {"OG_VECTORS", s->vectors},
                                                    {"OG_STEPS", s->steps},
                                                    {"OG_FLIGHT", s->flight},
                                                    {"OG_KEEPS", s->keeps},
                                                    {"OG_FLAT", e->kernel->space.n_reduced == 1},
                                                    {"OG_WHOLE", og_whole_steps(s)},
                                                    {0}});
}

void og_cuda_add_rows_parts(og_cuda_emitter *e, int64_t rows, int64_t n)
{
    og_cuda_include(&e->places, "reduce");
    og_cuda_add_operands(e);
    og_cuda_add_index(e, "n", n);
    og_cuda_add_index(e, "rows", rows);
    og_cuda_add_seek_between(e, "og_seek_rows", OG_CUDA_FIRST, OG_CUDA_REDUCED);
    og_cuda_add_seek_between(e, "og_step_row", OG_CUDA_REDUCED, OG_CUDA_END);
    og_cuda_add_row(e);
    for (int32_t p = 0; p < e->kernel->pass_count; p++)
        og_cuda_add_pass(e, p);
    og_cuda_include(&e->body, "rows");
}

ogive_status og_cuda_see_rows(og_cuda_emitter *e, og_cuda_rows *out)
{
    const og_space *space = &e->kernel->space;
    int32_t kept_dims = space->rank - space->n_reduced;
    e->mends = true;
    *out = (og_cuda_rows){.rows = og_cuda_count(space, 0, kept_dims),
                          .n = og_cuda_count(space, kept_dims, space->rank),
                          .kept = og_cuda_mark_kept(e)};
    OG_TRY(og_cuda_find_terms(e, false));
    e->out->facts.reduced = see_facts(e, out->kept);
    return OGIVE_OK;
}

ogive_status og_cuda_refuse_rows_shared(og_cuda_emitter *e, const char **why)
{
    og_cuda_rows r;
    OG_TRY(og_cuda_see_rows(e, &r));
    bool takes = r.kept && !keeps_in_registers(e, r.n) && og_cuda_fits_rows_shared(e, r.rows, r.n);
    *why = takes ? NULL : "";
    return OGIVE_OK;
}

ogive_status og_cuda_emit_rows(og_cuda_emitter *e)
{
    og_cuda_rows r;
    OG_TRY(og_cuda_see_rows(e, &r));
    int64_t rows = r.rows, n = r.n;
    int32_t kept = r.kept;
    bool split = og_cuda_serves(e) ? e->wishes->body == OG_CUDA_ROWS_SPLIT : n > OG_CHUNK;
    /* A chunk that a pass reads twice is read again: softmax of 4096x65536 on an H200 1301 us
     * with all of it in registers, which only 512 single loads a block allow, 1040 without. */
    og_rows_shape s = choose_shape(e, split ? OG_CHUNK : n, !split);
    s.whole &= !split || n % OG_CHUNK == 0;
    OG_TRY(og_cuda_find_terms(e, s.keeps));
    if (s.keeps)
        OG_TRY(og_cuda_find_derived(e, kept));
    add_shape(e, &s);
    og_cuda_add_rows_parts(e, rows, n);
    if (e->derived_count)
        og_cuda_add_derive(e);
    if (split)
        return add_split_entries(e, rows, n);
    e->out->body = body_name(&s);
    return add_rows_entry(e, rows, &s);
}
