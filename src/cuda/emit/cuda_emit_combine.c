/* SPDX-License-Identifier: MIT
 *
 * cuda_emit_combine.c - the end of a reduction of rows: sums become row values, and what
 * comes before that where a row was reduced in parts (combine.cuh).
 */
#include "cuda/emit/cuda_emit.h"

void og_cuda_add_finish(og_cuda_emitter *e, int32_t p)
{
    og_text_add(&e->body, "    og_sums%d::finish(a, s%d, row);\n", (int)p, (int)p);
    if (og_cuda_has_terms(&e->kernel->passes[p]))
        og_text_add(&e->body, "    og_terms%d::finish(a, t%d, row);\n", (int)p, (int)p);
    if (og_cuda_square_count(&e->kernel->passes[p]))
        og_text_add(&e->body, "    og_squares%d::finish(a, u%d, row);\n", (int)p, (int)p);
    if (e->kernel->passes[p].row_count)
        og_text_add(&e->body, "    og_rows%d(a, g.at, 0, g.writes, row);\n", (int)p);
}

void og_cuda_begin_combine(og_cuda_emitter *e, int64_t rows, int64_t parts)
{
    int64_t partials = og_count_partials(parts);
    og_cuda_add_divisor(e, "chunks", parts);
    og_cuda_add_index(e, "partials", partials);
    og_cuda_add_scratch(e, rows * partials, rows);
    const og_cuda_number numbers[] = {{"OG_COMBINERS", og_combiners_of(parts)},
                                      {"OG_COMBINE_THREADS", og_combine_threads(parts)},
                                      {0}};
    if (!og_cuda_serves(e))
        og_cuda_add_defines(&e->numbers, numbers);
    og_cuda_include(&e->body, "combine");
}

/* A pass with a guard, after the one before it has been finished. */
static void add_again(og_cuda_emitter *e, int32_t p)
{
    const int n = (int)p;
    og_text_add(&e->body,
                "    og_sums%d::sums s%d = og_combine_again<og_sums%d>(a, g, row, a.sums%d, "
                "og_again%d(row));\n",
                n, n, n, n, n);
    og_cuda_add_finish(e, p);
}

/* u<p>: the squares of a row, from those of its chunks. */
static void add_squares(og_cuda_emitter *e, int32_t p)
{
    const int n = (int)p;
    og_text_add(
        &e->body,
        "    og_partial_squares<og_sums%d, og_squares%d> v%d;\n"
        "    v%d.own = (og_squares%d::sums *)a.squares%d + g.row * a.partials;\n"
        "    v%d.sums = p%d.own;\n    v%d.all = s%d;\n    v%d.n = a.n;\n"
        "    og_squares%d::sums u%d = og_combine<og_squares%d>(v%d, g.thread, a.chunks.extent);\n",
        n, n, n, n, n, n, n, n, n, n, n, n, n, n, n);
}

static void add_entry(og_cuda_emitter *e, int32_t p)
{
    const og_pass *pass = &e->kernel->passes[p];
    og_text *to = &e->body;
    const int n = (int)p;
    const int32_t next = og_cuda_next_pass(e->kernel, p);
    /* ptxas 13.4 spills 4 bytes of instance_norm in float64 on sm_100, for more blocks, and 16 of two
     * variances of halves with a guard on sm_90a. */
    bool wide = og_cuda_square_bytes(pass) > sizeof(float) * (size_t)og_cuda_square_count(pass) ||
                next > p + 1;
    og_text_add(to,
                "\nOG_KERNEL(og_combine%d, OG_COMBINE_THREADS%s)\n{\n"
                "    %s;\n    og_row row;\n%s"
                "    og_await_launch();\n",
                n, wide ? ", 1" : "",
                next > p + 1 ? "og_shared_row g = og_find_shared_row(a)"
                             : "og_combined g = og_find_combined(a)",
                next < e->kernel->pass_count ? "    og_admit_next();\n" : "");
    if (p > 0)
        og_text_add(to, "    row = ((const og_row *)a.row_values)[g.row];\n");
    og_text_add(
        to,
        "    og_partial_sums<og_sums%d> p%d;\n"
        "    p%d.own = (og_sums%d::sums *)a.sums%d + g.row * a.partials;\n"
        "    og_sums%d::sums s%d = og_combine<og_sums%d>(p%d, g.thread, a.chunks.extent);\n",
        n, n, n, n, n, n, n, n, n);
    if (og_cuda_has_terms(pass))
        og_text_add(
            to,
            "    og_partial_terms<og_terms%d> q%d;\n"
            "    q%d.own = (og_terms%d::sums *)a.terms%d + g.row * a.partials;\n"
            "    q%d.peaks = p%d.own;\n    q%d.most = s%d;\n"
            "    og_terms%d::sums t%d = og_combine<og_terms%d>(q%d, g.thread, a.chunks.extent);\n",
            n, n, n, n, n, n, n, n, n, n, n, n, n);
    if (og_cuda_square_count(pass))
        add_squares(e, p);
    og_cuda_add_finish(e, p);
    for (int32_t again = p + 1; again < next; again++)
        add_again(e, again);
    if (next < e->kernel->pass_count)
        og_text_add(to, "    if (g.writes)\n        ((og_row *)a.row_values)[g.row] = row;\n");
    og_text_add(to, "}\n");
}

bool og_cuda_shares_combining(const og_cuda_emitter *e, int32_t p)
{
    return p == 0 && og_cuda_next_pass(e->kernel, p) == p + 2;
}

/* How many times the blocks that the rows take. Beyond 16384 parts, sums of chunks of chunks are where
 * the blocks count themselves (og_count_of). */
static int64_t count_helpers(const og_cuda_emitter *e, int32_t p, int64_t blocks, int64_t parts)
{
    enum { BLOCKS = 2 }; /* a multiprocessor */
    if (!og_cuda_shares_combining(e, p) || parts > OG_CHUNK || blocks < 1)
        return 1;
    return og_max(og_min(BLOCKS * (int64_t)e->limits->multiprocessors / blocks, parts), 1);
}

ogive_status og_cuda_add_combine(og_cuda_emitter *e, int32_t p, int64_t rows, int64_t parts)
{
    int64_t each = og_combine_threads(parts) / og_combiners_of(parts);
    int64_t blocks = (rows + each - 1) / each;
    add_entry(e, p);
    OG_TRY(og_cuda_add_launch(e, "og_combine", p, blocks * count_helpers(e, p, blocks, parts),
                              og_combine_threads(parts)));
    og_cuda_overlap_last(e);
    return OGIVE_OK;
}
