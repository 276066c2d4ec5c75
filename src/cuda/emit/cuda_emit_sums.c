/* SPDX-License-Identifier: MIT
 *
 * cuda_emit_sums.c - the reductions of a pass, as types of sums.cuh: og_sums<p>, and og_terms<p>
 * if the pass has a sumexp; of squares.cuh: og_squares<p> if it has a sqdev.
 */
#include "cuda/emit/cuda_emit.h"

#include <string.h>

/* MEMBER_PEAK: a maximum of which no result shows the sign of a zero, as that of softmax. */
typedef enum { MEMBER_SUM, MEMBER_MAX, MEMBER_MIN, MEMBER_PEAK } member_kind;

/* One member of sums. */
typedef struct {
    int32_t number; /* of the pass's reductions */
    member_kind kind;
    bool is_double;
    int32_t source; /* value */
    int32_t dst;    /* row value, or -1 */
    bool falls;     /* of no elements it is -infinity, not 0 */
    int32_t peak;   /* og_terms: the number of the maximum */
} member;

/* How a fold's sums are added up; a sumexp's stands for the maximum that it subtracts. */
static const member_kind kind_of_fold[] = {
    [OG_FOLD_SUM] = MEMBER_SUM,   [OG_FOLD_MAX] = MEMBER_MAX,     [OG_FOLD_MIN] = MEMBER_MIN,
    [OG_FOLD_PEAK] = MEMBER_PEAK, [OG_FOLD_SUMEXP] = MEMBER_PEAK,
};

bool og_cuda_has_terms(const og_pass *pass)
{
    for (int32_t r = 0; r < pass->reduction_count; r++)
        if (og_op_fold(pass->reductions[r].op) == OG_FOLD_SUMEXP)
            return true;
    return false;
}

static bool is_square(const og_reduce *reduce)
{
    return og_op_fold(reduce->op) == OG_FOLD_SQDEV;
}

int32_t og_cuda_square_count(const og_pass *pass)
{
    int32_t count = 0;
    for (int32_t r = 0; r < pass->reduction_count; r++)
        count += is_square(&pass->reductions[r]);
    return count;
}

bool og_cuda_any_squares(const og_kernel *kernel)
{
    bool any = false;
    for (int32_t p = 0; p < kernel->pass_count; p++)
        any |= og_cuda_square_count(&kernel->passes[p]) > 0;
    return any;
}

bool og_cuda_any_terms(const og_kernel *kernel)
{
    bool any = false;
    for (int32_t p = 0; p < kernel->pass_count; p++)
        any |= og_cuda_has_terms(&kernel->passes[p]);
    return any;
}

bool og_cuda_any_guards(const og_kernel *kernel)
{
    bool any = false;
    for (int32_t p = 0; p < kernel->pass_count; p++)
        any |= kernel->passes[p].guard_count > 0;
    return any;
}

int32_t og_cuda_next_pass(const og_kernel *kernel, int32_t p)
{
    do
        p++;
    while (p < kernel->pass_count && kernel->passes[p].guard_count);
    return p;
}

bool og_cuda_has_row_values(const og_pass *pass)
{
    return pass->reduction_count || pass->row_count;
}

/* The reduction that finds the maximum of r's source, or -1. */
static int32_t find_companion(const og_pass *pass, const og_reduce *r)
{
    for (int32_t i = 0; i < pass->reduction_count; i++) {
        const og_reduce *other = &pass->reductions[i];
        if (other->source == r->source && other->type == r->type && og_op_is_maximum(other->op))
            return i;
    }
    return -1;
}

/* Member i of the sums or the terms of a pass; false beyond the last. */
static bool find_member(const og_pass *pass, bool terms, int32_t i, member *out)
{
    for (int32_t k = 0; k < pass->reduction_count; k++) {
        const og_reduce *r = &pass->reductions[k];
        og_fold fold = og_op_fold(r->op);
        if (is_square(r))
            continue;
        int32_t companion = fold == OG_FOLD_SUMEXP ? find_companion(pass, r) : -1;
        if ((fold == OG_FOLD_SUMEXP) != terms && !(fold == OG_FOLD_SUMEXP && companion < 0))
            continue;
        if (i-- > 0)
            continue;
        *out = (member){.number = k,
                        .kind = terms ? MEMBER_SUM : kind_of_fold[fold],
                        .is_double = r->type == OG_F64,
                        .source = r->source,
                        .dst = terms || fold != OG_FOLD_SUMEXP ? r->dst : -1,
                        .falls = fold == OG_FOLD_PEAK,
                        .peak = companion >= 0 ? companion : k};
        if (out->is_double && out->kind == MEMBER_PEAK)
            out->kind = MEMBER_MAX;
        return true;
    }
    return false;
}

ogive_status og_cuda_find_terms(og_cuda_emitter *e, bool keep)
{
    size_t count = (size_t)e->kernel->value_count + 1;
    int32_t *stores = OG_ARENA_NEW(e->arena, int32_t, count);
    e->kept_terms = OG_ARENA_NEW(e->arena, int32_t, count);
    if (!e->kept_terms || !stores)
        return og_fail_memory(e->error, count * sizeof *stores);
    memset(e->kept_terms, -1, count * sizeof *e->kept_terms);
    OG_TRY(og_find_kept_terms(e->kernel, e->arena, e->kept_terms, stores, &e->kept_term_count,
                              e->error));
    e->kept_term_count = keep ? e->kept_term_count : 0;
    return OGIVE_OK;
}

size_t og_cuda_sums_bytes(const og_pass *pass, bool terms)
{
    size_t bytes = 0, alignment = 4;
    member m;
    for (int32_t i = 0; find_member(pass, terms, i, &m); i++) {
        size_t size = m.is_double ? 8 : 4;
        bytes = (bytes + size - 1) / size * size + size;
        alignment = size > alignment ? size : alignment;
    }
    bytes = (bytes + alignment - 1) / alignment * alignment;
    return bytes ? bytes : 1; /* an empty struct */
}

size_t og_cuda_square_bytes(const og_pass *pass)
{
    size_t widest = 4;
    for (int32_t r = 0; r < pass->reduction_count; r++)
        if (is_square(&pass->reductions[r]) && pass->reductions[r].type == OG_F64)
            widest = 8;
    return (size_t)og_cuda_square_count(pass) * widest;
}

size_t og_cuda_most_sum_bytes(const og_pass *pass)
{
    size_t sums = og_cuda_has_row_values(pass) ? og_cuda_sums_bytes(pass, false) : 0;
    size_t terms = og_cuda_has_terms(pass) ? og_cuda_sums_bytes(pass, true) : 0;
    return sums > terms ? sums : terms;
}

int32_t og_cuda_all_sum_bytes(const og_kernel *kernel)
{
    size_t most = 4;
    for (int32_t p = 0; p < kernel->pass_count; p++) {
        const og_pass *pass = &kernel->passes[p];
        size_t bytes = og_cuda_sums_bytes(pass, false);
        if (og_cuda_has_terms(pass))
            bytes += og_cuda_sums_bytes(pass, true);
        most = bytes > most ? bytes : most;
    }
    return (int32_t)most;
}

int32_t og_cuda_sums_count(const og_pass *pass, bool terms)
{
    member m;
    int32_t count = 0;
    while (find_member(pass, terms, count, &m))
        count++;
    return count;
}

/* ---- types ------------------------------------------------------------------------------ */

/* "og_reduction<0, OG_SUM, float, &og_values0::v1, &og_row::v2>", or og_term<...>. */
static void print_reduction(const og_cuda_emitter *e, int32_t p, const member *m, bool terms,
                            og_text *to)
{
    const char *const kinds[] = {[MEMBER_SUM] = "OG_SUM",
                                 [MEMBER_MAX] = "OG_MOST",
                                 [MEMBER_MIN] = "OG_LEAST",
                                 [MEMBER_PEAK] = og_cuda_serves(e) ? "OG_ANY_PEAK" : "OG_PEAK"};
    og_text_add(to, ",\n    og_%s<%d, ", terms ? "term" : "reduction", (int)m->number);
    if (!terms)
        og_text_add(to, "%s, ", kinds[m->kind]);
    og_text_add(to, "%s, ", og_cuda_number_type(e, m->is_double));
    og_cuda_print_member(e->kernel, p, m->source, to);
    og_text_add(to, ", ");
    if (m->dst >= 0)
        og_cuda_print_member(e->kernel, p, m->dst, to);
    else
        og_text_add(to, "OG_NOWHERE");
    if (!terms) {
        og_text_add(to, m->falls ? ", 1>" : ">");
        return;
    }
    og_text_add(to, ", %d, ", (int)m->peak);
    if (e->kept_term_count && e->kept_terms[m->dst] >= 0)
        og_text_add(to, "&og_kept::t%d>", (int)e->kept_terms[m->dst]);
    else
        og_text_add(to, "OG_NOWHERE>");
}

static bool stores(const og_pass *pass)
{
    for (int32_t i = 0; i < pass->element_count; i++)
        if (pass->elements[i].op == OG_OP_STORE)
            return true;
    return false;
}

static void add_type(og_cuda_emitter *e, int32_t p, bool terms)
{
    const og_pass *pass = &e->kernel->passes[p];
    og_text *to = &e->passes;
    bool is_last = terms || !og_cuda_has_terms(pass);
    member m;
    og_text_add(to, "\ntypedef og_all_sums<og_pass%d, ", (int)p);
    if (terms)
        og_text_add(to, "og_sums%d::sums", (int)p);
    else
        og_text_add(to, "og_none");
    og_text_add(to, ", %s", is_last && stores(pass) ? "true" : "false");
    for (int32_t i = 0; find_member(pass, terms, i, &m); i++)
        print_reduction(e, p, &m, terms, to);
    og_text_add(to, ">\n    og_%s%d;\n", terms ? "terms" : "sums", (int)p);
}

static void add_squares(og_cuda_emitter *e, int32_t p)
{
    const og_pass *pass = &e->kernel->passes[p];
    og_cuda_include(&e->passes, "squares");
    og_text_add(&e->passes, "\ntypedef og_all_squares<og_sums%d", (int)p);
    for (int32_t i = 0; i < pass->reduction_count; i++) {
        const og_reduce *r = &pass->reductions[i];
        if (!is_square(r))
            continue;
        og_text_add(&e->passes, ",\n    og_square<%d, %s, ", (int)i,
                    og_cuda_number_type(e, r->type == OG_F64));
        og_cuda_print_member(e->kernel, p, r->source, &e->passes);
        og_text_add(&e->passes, ", ");
        og_cuda_print_member(e->kernel, p, r->dst, &e->passes);
        og_text_add(&e->passes, ", %d>", (int)og_find_sum(pass, r));
    }
    og_text_add(&e->passes, ">\n    og_squares%d;\n", (int)p);
}

void og_cuda_add_sums(og_cuda_emitter *e, int32_t p)
{
    add_type(e, p, false);
    if (og_cuda_square_count(&e->kernel->passes[p]))
        add_squares(e, p);
    if (og_cuda_has_terms(&e->kernel->passes[p]))
        add_type(e, p, true);
}
