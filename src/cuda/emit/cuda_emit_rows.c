/* SPDX-License-Identifier: MIT
 *
 * cuda_emit_rows.c - kernels that reduce rows (OG_ROWS): how many threads take a row,
 * what stays in registers, and the entry points around rows.cuh.
 *
 *     n <= 16384   one launch for all passes
 *     longer       for each pass a launch of chunks, and one that combines them
 */
#include "cuda/emit/cuda_emit.h"

#include <string.h>

enum {
    GROUPED_THREADS = 256, /* of a block of several groups */
    KEPT_REGISTERS = 64,   /* that og_kept may take */
    KEPT_ELEMENTS = 32,    /* of each operand, a thread, where they are no halves */
    COSTLY_ELEMENTS = 16,  /* of costly functions, for NVRTC's time: softmax(x * sigmoid(x)) of
                              4096x4096 225 ms instead of 359, and 39.9 us instead of 39.5 */
    SUM_REGISTERS = 48,    /* that accumulators may take */
    FLIGHT_REGISTERS = 32, /* that loads under way may take */
    FLIGHT_LOADS = 16,     /* 32 by single elements: 138 us, 16: 102 (100000x1001 on an H200) */
    WARP_ROW = 1024        /* the longest row that a warp takes; half of that if by 8 halves:
                              softmax of 4096x1024 on an H200 13.2 us, by a block 12.3 */
};

typedef struct {
    int32_t group, vectors, steps, flight;
    int32_t before; /* steps that rows of this shape have more than, if it keeps them */
    bool keeps, whole;
} rows_shape;

/* ---- what a kernel does to a row ---------------------------------------------------- */

/* Marks what is read in several traversals as kept; returns the registers that an element
 * of all of it takes. */
static int32_t mark_kept(og_cuda_emitter *e)
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

static void keep_nothing(og_cuda_emitter *e)
{
    memset(e->is_kept, 0, (size_t)e->kernel->access_count * sizeof *e->is_kept);
}

/* Are all kept operands halves? */
static bool keeps_halves(const og_cuda_emitter *e)
{
    bool all = true;
    for (int32_t a = 0; a < e->kernel->access_count; a++)
        all &= !e->is_kept[a] || e->kernel->accesses[a].dtype == OG_FLOAT16 ||
               e->kernel->accesses[a].dtype == OG_BFLOAT16;
    return all;
}

/* Does a pass load anything else? */
static bool loads_more(const og_cuda_emitter *e)
{
    bool any = false;
    for (int32_t p = 0; p < e->kernel->pass_count; p++)
        for (int32_t i = 0; i < e->kernel->passes[p].element_count; i++) {
            const og_instr *at = &e->kernel->passes[p].elements[i];
            any |= at->op == OG_OP_LOAD && !e->is_kept[at->index];
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
            most = size > most ? size : most;
        }
    return most;
}

/* ---- shapes --------------------------------------------------------------------------- */

/* Steps that sources are made for: 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, ...; the least
 * of them that is enough for so many, and the one before it. */
static int32_t steps_above(int64_t steps, int32_t *before)
{
    int32_t from = 0, to = 1;
    while (to < steps) {
        from = to;
        to += to < 4 ? 1 : og_cuda_power_above(to + 1) / 8;
    }
    *before = from;
    return to;
}

/* Elements that a thread may keep if one of all kept operands takes so many registers. Halves
 * take half of one, but terms of sumexp are floats; and twice as many loads of weights, which may
 * be unaligned too, take NVRTC too long (layer_norm of 16384 671 ms). */
static int32_t most_kept(const og_cuda_emitter *e, int32_t kept)
{
    int32_t most = KEPT_REGISTERS / kept;
    if (!keeps_halves(e) || is_costly(e))
        return (int32_t)og_min(most, KEPT_ELEMENTS);
    return og_cuda_any_terms(e->kernel) || loads_more(e) ? most : 2 * most;
}

/* The vector that a block would keep a row of so many steps by. 4096 rows on an H200: norms of
 * 4096 bfloat16 20.4 us by 8, 21.1 by 4; of 16384 67.4 by 4, 68.7 by 2, 84 by 1; softmax of 4096
 * 22.9 by 4, 23.5 by 8. */
static int32_t kept_vector(const og_cuda_emitter *e, int64_t steps, int32_t kept)
{
    bool halves = keeps_halves(e), costly = is_costly(e);
    int32_t least = costly ? 2 : halves ? 4 : 1, vector = og_cuda_best_vector(e);
    int32_t good = halves && !og_cuda_any_terms(e->kernel) ? 2 * KEPT_ELEMENTS : KEPT_ELEMENTS;
    good = costly ? COSTLY_ELEMENTS : good;
    while (vector > least && steps * vector > good)
        vector /= 2;
    while (vector > 1 && steps * vector > most_kept(e, kept))
        vector /= 2;
    return vector;
}

/* May registers keep a row, even by single elements, but not by single halves? If not, shared
 * memory does. 4096x16384 on an H200: softmax of float32 135 us by single elements, in shared
 * memory 154; layer_norm of bfloat16 84 by single elements, in shared memory 75. */
static bool keeps_in_registers(const og_cuda_emitter *e, int64_t n, int32_t kept)
{
    int32_t least = (int32_t)og_min(og_cuda_best_vector(e), keeps_halves(e) ? 2 : 1);
    return n <= OG_CHUNK && og_divide_up(n, OG_LANES) * least <= most_kept(e, kept);
}

/* A block of OG_LANES / vector threads, a step of 512 elements at a time. */
static rows_shape take_block(og_cuda_emitter *e, int64_t n, int32_t kept)
{
    rows_shape s = {.vectors = 1};
    s.steps = steps_above((n + OG_LANES - 1) / OG_LANES, &s.before);
    s.keeps = kept > 0 && s.steps <= most_kept(e, kept) && n > 0;
    if (s.keeps)
        e->vector = kept_vector(e, s.steps, kept);
    while (e->vector > 1 && !s.keeps && e->vector > SUM_REGISTERS / sum_registers(e))
        e->vector /= 2;
    s.group = OG_LANES / e->vector;
    return s;
}

/* Part of a warp, or a warp. */
static rows_shape take_warp(og_cuda_emitter *e, int64_t n, int32_t kept)
{
    rows_shape s = {.before = 0};
    s.steps = steps_above((n + OG_LANES - 1) / OG_LANES, &s.before);
    int32_t width = n < OG_LANES ? og_cuda_power_above(n) : OG_LANES;
    e->vector = e->vector < width ? e->vector : width;
    s.group = width / e->vector;
    if (s.group > 1 && s.group <= 32) /* two loads of a thread are better than two threads */
        s.group /= 2;
    s.group = s.group < 32 ? s.group : 32;
    s.vectors = width / e->vector / s.group;
    s.keeps = kept > 0 && s.steps * s.vectors * e->vector <= most_kept(e, kept) && n > 0;
    return s;
}

/* How n elements are shared out; sets e->vector and e->threads. */
static rows_shape choose_shape(og_cuda_emitter *e, int64_t n, int32_t kept)
{
    rows_shape s;
    int32_t widest = e->vector = og_cuda_best_vector(e);
    bool fits_warp = n <= (kept && widest > 4 ? WARP_ROW / 2 : WARP_ROW);
    if (fits_warp) {
        s = take_warp(e, n, kept);
        fits_warp =
            (s.keeps || kept == 0) && sum_registers(e) * s.vectors * e->vector <= SUM_REGISTERS;
    }
    if (!fits_warp) {
        e->vector = widest;
        s = take_block(e, n, kept);
    }
    if (!s.keeps)
        keep_nothing(e);
    e->threads = s.group > 32 ? s.group : GROUPED_THREADS;
    s.flight = s.steps;
    while (s.flight > 1 &&
           ((s.keeps && s.steps % s.flight) || s.flight * s.vectors > FLIGHT_LOADS ||
            s.flight * s.vectors * e->vector * og_cuda_load_registers(e) > FLIGHT_REGISTERS))
        s.flight--;
    int32_t width = s.group * s.vectors * e->vector;
    s.whole = n > 0 && n % width == 0 && n / width % (s.keeps ? s.steps : s.flight) == 0;
    if (s.whole)
        s.before = s.steps;
    return s;
}

/* ---- entries --------------------------------------------------------------------------- */

/* The reductions of pass p over group g: s<p>, t<p>. */
static void add_reduce(og_cuda_emitter *e, int32_t p)
{
    og_text_add(&e->body,
                "    og_sums%d::sums s%d = og_reduce<og_sums%d>(a, g, row, og_none(), kept);\n",
                (int)p, (int)p, (int)p);
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

static ogive_status add_rows_entry(og_cuda_emitter *e, int64_t rows, const rows_shape *s)
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
    og_text_add(to,
                "\nOG_KERNEL(og_part%d, OG_THREADS)\n{\n    og_index chunk;\n"
                "    og_group g = og_find_chunk(a, chunk);\n    og_row row;\n%s",
                (int)p,
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
    og_text_add(to, "}\n");
}

static ogive_status add_split_entries(og_cuda_emitter *e, int64_t rows, int64_t n)
{
    int64_t chunks = og_divide_up(n, OG_CHUNK);
    OG_TRY(og_cuda_check_blocks(e, og_cuda_times(rows, chunks)));
    og_cuda_begin_combine(e, rows, chunks);
    og_cuda_include(&e->body, "rows_split");
    e->out->body = "rows, a block a chunk";
    OG_TRY(og_cuda_make_launches(e, 2 * e->kernel->pass_count));
    for (int32_t p = 0; p < e->kernel->pass_count; p++) {
        add_part(e, p);
        OG_TRY(og_cuda_add_launch(e, "og_part", p, rows * chunks, e->threads));
        og_cuda_overlap_last(e);
        if (!og_cuda_has_row_values(&e->kernel->passes[p]))
            continue;
        OG_TRY(og_cuda_add_combine(e, p, rows, chunks));
    }
    return OGIVE_OK;
}

/* ---- all of it --------------------------------------------------------------------------- */

static const char *body_name(const rows_shape *s)
{
    if (s->group > 32)
        return s->keeps ? "rows, a block a row, kept" : "rows, a block a row";
    if (s->group == 32)
        return s->keeps ? "rows, a warp a row, kept" : "rows, a warp a row";
    return s->keeps ? "rows, several a warp, kept" : "rows, several a warp";
}

static void add_shape(og_cuda_emitter *e, const rows_shape *s)
{
    og_text_add(&e->numbers,
                "enum { OG_GROUP = %d, OG_VECTORS = %d, OG_STEPS = %d, OG_FLIGHT = %d,\n"
                "       OG_KEEPS = %d, OG_FLAT = %d, OG_WHOLE = %d };\n",
                (int)s->group, (int)s->vectors, (int)s->steps, (int)s->flight, s->keeps,
                e->kernel->space.n_reduced == 1,
                s->keeps   ? (int)s->before
                : s->whole ? OG_CHUNK
                           : 0);
}

void og_cuda_add_rows_parts(og_cuda_emitter *e, int64_t rows, int64_t n)
{
    const og_space *space = &e->kernel->space;
    int32_t kept_dims = space->rank - space->n_reduced;
    og_cuda_include(&e->places, "reduce");
    og_cuda_add_operands(e);
    og_cuda_add_index(e, "n", n);
    og_cuda_add_index(e, "rows", rows);
    og_cuda_add_seek_range(e, "og_seek_rows", 0, kept_dims);
    og_cuda_add_seek_range(e, "og_step_row", kept_dims, space->rank);
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
                          .kept = mark_kept(e)};
    return og_cuda_find_terms(e, false);
}

ogive_status og_cuda_refuse_rows_shared(og_cuda_emitter *e, const char **why)
{
    og_cuda_rows r;
    OG_TRY(og_cuda_see_rows(e, &r));
    bool takes =
        r.kept && !keeps_in_registers(e, r.n, r.kept) && og_cuda_fits_rows_shared(e, r.rows, r.n);
    *why = takes ? NULL : "";
    return OGIVE_OK;
}

ogive_status og_cuda_emit_rows(og_cuda_emitter *e)
{
    og_cuda_rows r;
    OG_TRY(og_cuda_see_rows(e, &r));
    int64_t rows = r.rows, n = r.n;
    int32_t kept = r.kept;
    bool split = n > OG_CHUNK;
    /* A chunk that a pass reads twice is read again: softmax of 4096x65536 on an H200 1301 us
     * with all of it in registers, which only 512 single loads a block allow, 1040 without. */
    rows_shape s = choose_shape(e, split ? OG_CHUNK : n, split ? 0 : kept);
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
