/* SPDX-License-Identifier: MIT
 *
 * cuda_emit_rows_shared.c - kernels that reduce rows which several passes read and registers
 * cannot keep: a block a row, kept in shared memory, or a cluster of blocks, and the entry
 * point around rows_shared.cuh and rows_cluster.cuh. One launch for all passes; as many blocks
 * as there is room for.
 */
#include "cuda/emit/cuda_emit.h"

#include <stdio.h>
#include <string.h>

enum {
    MOST_THREADS = 512,    /* so that each has 128 registers */
    MOST_OF_CLUSTER = 768, /* where wants_threads() */
    MOST_HELD = 32,        /* registers for what shared memory has no room for */
    FLIGHT_REGISTERS = 16, /* of what is computed at a time */
    FLIGHT_BYTES = 32,     /* of what the largest blocks keep and compute at a time: softmax of
                              4096x65536 float32 on an H200 583 us, with 64 608; but layer_norm
                              of 4096x20000, by half as many threads, 239, with 64 228 */
    REGISTERS = 80,        /* that a thread is expected to need */
    ALL_REGISTERS = 65536, /* of a multiprocessor */
    MOST_CLUSTER = 8       /* blocks, which every GPU with clusters has room for */
};

typedef struct {
    int32_t cluster, parts, group, flight, held, shelved, quarter, blocks;
    size_t shared_bytes;
} shared_shape;

/* ---- what is kept --------------------------------------------------------------------- */

/* Does a pass after the terms' need what access loads, for anything but them? */
static bool is_needed_later(const og_cuda_emitter *e, int32_t access, int32_t pass, bool *needed)
{
    const og_kernel *kernel = e->kernel;
    for (int32_t p = pass + 1; p < kernel->pass_count; p++) {
        const og_pass *at = &kernel->passes[p];
        memset(needed, 0, (size_t)kernel->value_count * sizeof *needed);
        for (int32_t r = 0; r < at->reduction_count; r++)
            needed[at->reductions[r].source] = true;
        for (int32_t i = at->element_count - 1; i >= 0; i--) {
            const og_instr *instr = &at->elements[i];
            if (instr->dst >= 0 && (!needed[instr->dst] || e->kept_terms[instr->dst] >= 0))
                continue;
            if (instr->op == OG_OP_LOAD && instr->index == access)
                return true;
            for (int a = 0; a < OG_MAX_ARGS && instr->args[a] >= 0; a++)
                needed[instr->args[a]] = true;
        }
    }
    return false;
}

/* Sets e->lender if the kernel has one sumexp whose terms can take the place of an operand
 * that is needed no more; else no terms are kept. */
static ogive_status lend_to_terms(og_cuda_emitter *e)
{
    const og_kernel *kernel = e->kernel;
    bool *needed = OG_ARENA_NEW(e->arena, bool, (size_t)kernel->value_count + 1);
    int32_t pass = -1;
    bool is_double = false;
    OG_TRY(og_cuda_find_terms(e, true));
    if (!needed)
        return og_fail_memory(e->error, (size_t)kernel->value_count);
    for (int32_t v = 0; v < kernel->value_count; v++)
        if (e->kept_terms[v] == 0 && kernel->values[v].level == OG_ROW) {
            pass = kernel->values[v].pass;
            is_double = kernel->values[v].type == OG_F64;
        }
    for (int32_t a = 0; e->kept_term_count == 1 && a < kernel->access_count; a++)
        if (e->is_kept[a] && og_dtype_is_float(kernel->accesses[a].dtype) &&
            (kernel->accesses[a].dtype == OG_FLOAT64) == is_double &&
            !is_needed_later(e, a, pass, needed))
            e->lender = a;
    if (e->lender < 0)
        e->kept_term_count = 0;
    return OGIVE_OK;
}

/* Bytes of shared memory that an element of all kept operands takes, with room for terms. */
static size_t element_bytes(const og_cuda_emitter *e, bool terms)
{
    size_t bytes = 0;
    for (int32_t a = 0; a < e->kernel->access_count; a++)
        if (e->is_kept[a]) {
            size_t own = og_dtype_bytes(e->kernel->accesses[a].dtype);
            bytes += terms && own < sizeof(float) ? sizeof(float) : own;
        }
    return bytes;
}

static int32_t element_registers(const og_cuda_emitter *e)
{
    int32_t registers = 0;
    for (int32_t a = 0; a < e->kernel->access_count; a++)
        if (e->is_kept[a])
            registers += og_dtype_bytes(e->kernel->accesses[a].dtype) == 8 ? 2 : 1;
    return registers + og_cuda_load_registers(e, 1) - 1;
}

/* Shared memory for the sums of warps and of chunks, of these twice those of all blocks of a
 * cluster. */
static size_t sums_bytes(const og_cuda_emitter *e, const shared_shape *s)
{
    const int32_t parts = s->cluster > 1 ? 2 * s->cluster * s->parts : s->parts;
    size_t bytes = 0;
    for (int32_t p = 0; p < e->kernel->pass_count; p++) {
        for (int terms = 0; terms < 2; terms++)
            bytes += (og_cuda_sums_bytes(&e->kernel->passes[p], terms) + 8) *
                     (size_t)(e->threads / 32 + parts);
        if (og_cuda_square_count(&e->kernel->passes[p]))
            bytes += (og_cuda_square_bytes(&e->kernel->passes[p]) + 8) *
                     (size_t)(e->threads / 32 + parts);
    }
    return (bytes + 127) / 128 * 128;
}

/* ---- shapes --------------------------------------------------------------------------- */

/* Is it a softmax of floats, or as simple? One block of a cluster is alone on a multiprocessor, and
 * exponentials leave it waiting: 4096x393216 on an H200 4.02 ms by 384 threads, 3.74 by 768, which
 * have 80 registers each. */
static bool wants_threads(const og_cuda_emitter *e)
{
    return og_cuda_any_terms(e->kernel) && !e->out->facts.reduced.is_costly && e->vector == 4 &&
           element_bytes(e, false) == sizeof(float) && element_registers(e) == 1;
}

/* False if a row does not fit a cluster of so many blocks. */
static bool fit_cluster(og_cuda_emitter *e, int64_t n, int32_t cluster, shared_shape *s)
{
    int32_t widest = og_cuda_best_vector(e);
    int32_t steps = (int32_t)og_divide_up(og_min(n, OG_CHUNK), OG_LANES);
    bool terms = n <= OG_CHUNK && og_cuda_any_terms(e->kernel);
    s->cluster = cluster;
    s->parts = (int32_t)og_divide_up(og_divide_up(og_min(n, OG_CHUNK * 512), OG_CHUNK), cluster);
    e->vector = widest < 4 ? widest : 4;
    while (e->vector < widest && s->parts * OG_LANES / e->vector > MOST_THREADS)
        e->vector *= 2;
    s->group = OG_LANES / e->vector;
    e->threads = s->parts * s->group;
    if (e->threads > MOST_THREADS)
        return false;
    if (cluster > 1 && 2 * e->threads <= MOST_OF_CLUSTER && wants_threads(e)) {
        e->vector /= 2;
        s->group *= 2;
        e->threads *= 2;
    }
    s->flight = 4;
    while (s->flight > 1 &&
           (s->flight * e->vector * element_registers(e) > FLIGHT_REGISTERS ||
            (e->threads == MOST_THREADS &&
             (size_t)(s->flight * e->vector) * element_bytes(e, false) > FLIGHT_BYTES)))
        s->flight /= 2;

    size_t step_bytes = (size_t)s->parts * OG_LANES * element_bytes(e, terms);
    size_t fixed = sums_bytes(e, s), room = e->limits->shared_per_block;
    if (room < fixed + step_bytes)
        return false;
    room -= fixed;
    s->shelved =
        (int32_t)og_min((int64_t)(room / step_bytes) / s->flight, og_divide_up(steps, s->flight)) *
        s->flight;
    s->held = (int32_t)og_divide_up(og_max(steps - s->shelved, 0), s->flight) * s->flight;
    if (s->shelved == 0 || s->held * e->vector * element_registers(e) > MOST_HELD)
        return false;
    s->quarter = (int32_t)og_divide_up(s->shelved / s->flight, 4) * s->flight;
    s->shared_bytes = (size_t)s->shelved * step_bytes;
    int64_t blocks = (int64_t)(e->limits->shared_per_multiprocessor /
                               (s->shared_bytes + fixed + OG_CUDA_BLOCK_BYTES));
    s->blocks = (int32_t)og_max(og_min(blocks, ALL_REGISTERS / (e->threads * REGISTERS)), 1);
    return true;
}

/* Clusters of one block a multiprocessor that are at work at once: multiprocessors are in groups of
 * different sizes, and clusters lie within these. An H200 with 132 has 66 of two, 30 of four, 15 of
 * eight. */
static int64_t count_places(const og_cuda_emitter *e, int32_t cluster)
{
    const int64_t all = e->limits->multiprocessors;
    return og_max((cluster > 2 ? all * 10 / 11 : all) / cluster, 1);
}

/* False if a row does not fit. The smallest cluster leaves the fewest multiprocessors over. */
static bool choose_shape(og_cuda_emitter *e, int64_t n, shared_shape *s)
{
    const int32_t most = e->limits->arch >= 90 && n > OG_CHUNK ? MOST_CLUSTER : 1;
    bool fits = false;
    for (int32_t cluster = 1; !fits && cluster <= most; cluster *= 2)
        fits = fit_cluster(e, n, cluster, s);
    return fits;
}

bool og_cuda_fits_rows_shared(og_cuda_emitter *e, int64_t rows, int64_t n)
{
    enum { LEAST_ROWS = 4 }; /* of a cluster, so that one is read while another is stored */
    shared_shape s;
    if (!choose_shape(e, n, &s) || (s.cluster == 1 && og_cuda_any_squares(e->kernel)))
        return false;
    /* Fewer long rows than multiprocessors: all of these share the chunks instead. */
    const int64_t least = count_places(e, s.cluster);
    return n <= OG_CHUNK || rows >= (s.cluster > 1 ? LEAST_ROWS * least : least);
}

/* ---- entry ------------------------------------------------------------------------------ */

/* s<p> and the row's t<p> and u<p>, from c<p>, and from t<p> and u<p> of a chunk. */
static void add_join_in_cluster(og_cuda_emitter *e, int32_t p)
{
    const og_pass *pass = &e->kernel->passes[p];
    char terms[2][24] = {"og_no_others", "none"}, squares[2][24] = {"og_no_others", "none"};
    if (og_cuda_has_terms(pass)) {
        snprintf(terms[0], sizeof terms[0], "og_terms%d", (int)p);
        snprintf(terms[1], sizeof terms[1], "t%d", (int)p);
        og_text_add(&e->body, "        og_terms%d::sums t%d = d%d;\n", (int)p, (int)p, (int)p);
    }
    if (og_cuda_square_count(pass)) {
        snprintf(squares[0], sizeof squares[0], "og_squares%d", (int)p);
        snprintf(squares[1], sizeof squares[1], "u%d", (int)p);
    }
    og_text_add(
        &e->body,
        "        og_sums%d::sums s%d = og_join_cluster<og_sums%d, %s, %s>(a, g, round, c%d, "
        "%s, %s);\n",
        (int)p, (int)p, (int)p, terms[0], squares[0], (int)p, terms[1], squares[1]);
}

static void add_again(og_cuda_emitter *e, int32_t p, bool in_cluster)
{
    const int n = (int)p;
    char join[64];
    snprintf(join, sizeof join,
             in_cluster ? "cluster<og_sums%d, og_no_others, og_no_others>" : "chunks<og_sums%d>",
             n);
    og_text_add(&e->body,
                "        og_sums%d::sums s%d = og_sums%d::neutral();\n"
                "        if (og_again%d(row))\n"
                "            s%d = og_join_%s(%s, og_reduce_part_again<og_sums%d>(a, g, row)%s);\n",
                n, n, n, n, n, join, in_cluster ? "a, g, round" : "g", n,
                in_cluster ? ", none, none" : "");
}

/* The reductions of pass p over a row: s<p>, t<p>; c<p>, d<p> those of a chunk. */
static void add_reduce(og_cuda_emitter *e, int32_t p, bool in_cluster)
{
    const int n = (int)p;
    bool terms = og_cuda_has_terms(&e->kernel->passes[p]);
    const char *first = p == 0 ? "true" : "false";
    const char *last = og_cuda_next_pass(e->kernel, p) == e->kernel->pass_count ? "true" : "false";
    if (e->kernel->passes[p].guard_count) {
        add_again(e, p, in_cluster);
        return;
    }
    if (og_cuda_square_count(&e->kernel->passes[p]))
        og_text_add(
            &e->body,
            "        og_squares%d::sums u%d;\n"
            "        og_sums%d::sums c%d = og_reduce_part_with_squares<og_sums%d, og_squares%d, "
            "%s, %s>(a, g, row, held, shelves, next, u%d);\n",
            n, n, n, n, n, n, first, terms ? "false" : last, n);
    else
        og_text_add(&e->body,
                    "        og_sums%d::sums c%d = og_reduce_part<og_sums%d, %s, %s>(a, g, row, "
                    "og_none(), held, shelves, next);\n",
                    n, n, n, first, terms ? "false" : last);
    if (terms)
        og_text_add(&e->body,
                    "        og_terms%d::sums d%d = og_reduce_part<og_terms%d, false, %s>(a, g, "
                    "row, c%d, held, shelves, next);\n",
                    n, n, n, last, n);
    if (in_cluster) {
        add_join_in_cluster(e, p);
        return;
    }
    og_text_add(&e->body, "        og_sums%d::sums s%d = og_join_chunks<og_sums%d>(g, c%d);\n", n,
                n, n, n);
    if (terms)
        og_text_add(&e->body,
                    "        og_terms%d::sums t%d = og_join_terms<og_terms%d>(g, d%d, c%d, s%d);\n",
                    n, n, n, n, n, n);
}

/* How many clusters rows are shared out to, of which `most` are at work at once on an H200. On a
 * GPU that has room for fewer a last one would work alone: where rows are many, so are clusters. */
static int64_t count_clusters(int64_t rows, int64_t most)
{
    enum { ROWS = 32, TIMES = 8 }; /* rows of a cluster, for each of which the first waits */
    return most * og_max(og_min(rows / (most * ROWS), TIMES), 1);
}

/* The row lies at a multiple of 128, whatever the sums before it take: cp.async brings sectors of 32
 * bytes, and where these do not fall on such of shared memory, std of 4096x65536 float32 takes an H200
 * 288 us, not 250. sums_bytes() has room for that. */
static ogive_status add_entry(og_cuda_emitter *e, int64_t rows, const shared_shape *s)
{
    const bool in_cluster = s->cluster > 1;
    og_text_add(
        &e->body,
        "\n%s(og_rows, OG_THREADS, OG_BLOCKS)\n{\n"
        "    extern __shared__ __align__(128) uint4 og_shared[];\n"
        "    og_shelf *shelves = (og_shelf *)og_shared;\n"
        "    og_group g = og_find_part(a, blockIdx.x%s);\n"
        "    og_held_row held;\n    og_shelve_row(a, g, held, shelves);\n%s"
        "    for (%s;;%s) {\n        og_row row;\n"
        "        og_next_row next = og_find_next_row(a, g.row + (og_index)gridDim.x%s);\n",
        in_cluster ? "OG_KERNEL_IN_CLUSTERS" : "OG_KERNEL", in_cluster ? " / OG_CLUSTER" : "",
        in_cluster ? "    og_none none;\n"
                     "    og_meet_cluster(); /* all are there, before they are written to */\n"
                   : "",
        in_cluster ? "int round = 0" : "", in_cluster ? " round ^= 1" : "",
        in_cluster ? " / OG_CLUSTER" : "");
    for (int32_t p = 0; p < e->kernel->pass_count; p++) {
        add_reduce(e, p, in_cluster);
        og_cuda_add_finish(e, p);
    }
    og_text_add(&e->body, "        if (!next.more)\n            break;\n"
                          "        g = next.g;\n"
                          "        __syncthreads(); /* before sums are written again */\n"
                          "    }\n}\n");
    const int64_t most = s->blocks * count_places(e, s->cluster);
    OG_TRY(og_cuda_make_launches(e, 1));
    OG_TRY(og_cuda_add_launch(
        e, "og_rows", -1, og_min(rows, in_cluster ? count_clusters(rows, most) : most) * s->cluster,
        e->threads));
    e->out->launches[0].shared_bytes = s->shared_bytes;
    e->out->launches[0].static_bytes = sums_bytes(e, s);
    e->out->launches[0].cluster = in_cluster ? s->cluster : 0;
    return OGIVE_OK;
}

ogive_status og_cuda_emit_rows_shared(og_cuda_emitter *e)
{
    shared_shape s;
    og_cuda_rows r;
    OG_TRY(og_cuda_see_rows(e, &r));
    int64_t rows = r.rows, n = r.n;
    choose_shape(e, n, &s);
    e->out->body = s.cluster > 1 ? "rows, a cluster a row, kept in shared memory"
                                 : "rows, a block a row, kept in shared memory";
    if (n <= OG_CHUNK)
        OG_TRY(lend_to_terms(e));
    else
        OG_TRY(og_cuda_find_terms(e, false));
    og_text_add(
        &e->numbers,
        "enum { OG_GROUP = %d, OG_VECTORS = 1, OG_STEPS = 1, OG_FLIGHT = %d, OG_KEEPS = 0,\n"
        "       OG_FLAT = %d, OG_WHOLE = 0, OG_PARTS = %d, OG_JOINED = %d, OG_HELD = %d,\n"
        "       OG_BLOCKS = %d, OG_LENDER = %d, OG_CLUSTER = %d };\n",
        (int)s.group, (int)s.flight, e->kernel->space.n_reduced == 1, (int)s.parts,
        (int)og_cuda_power_above(s.parts), (int)s.held, (int)s.blocks, (int)e->lender,
        (int)s.cluster);
    og_cuda_add_rows_parts(e, rows, n);
    og_cuda_add_index(e, "shelved", s.shelved);
    og_cuda_add_index(e, "quarter", s.quarter);
    og_cuda_include(&e->body, s.cluster == 1                   ? "rows_shared"
                              : og_cuda_any_squares(e->kernel) ? "rows_cluster_squares"
                                                               : "rows_cluster");
    return add_entry(e, rows, &s);
}
