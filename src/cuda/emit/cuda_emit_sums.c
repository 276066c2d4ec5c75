/* SPDX-License-Identifier: MIT
 *
 * cuda_emit_sums.c - the reductions of a pass as CUDA C. A pass with reductions has
 *
 *     og_sums<p>    all but sumexp, and the greatest element that sumexp subtracts
 *     og_terms<p>   sumexp: terms exp(x - u(m)), where m (peaks) is of og_sums<p>,
 *                   over the chunk or run that both go through
 *
 * Each is a struct of functions over `sums`, one member per reduction, named v<n>
 * like the row value it becomes (m<n>: a maximum that is no row value). In what order
 * they are called is the body's affair; see ORDER in plan.h.
 */
#include "cuda/emit/cuda_emit.h"

#include <stdio.h>
#include <string.h>

/* MEMBER_PEAK: a maximum of which no result shows the sign of a zero, as that of softmax. */
typedef enum { MEMBER_SUM, MEMBER_MAX, MEMBER_MIN, MEMBER_PEAK } member_kind;

/* One member of sums. */
typedef struct {
    char name[16];
    member_kind kind;
    bool is_double;
    int32_t source;    /* value */
    int32_t dst;       /* row value, or -1 */
    const char *empty; /* its value if a row has no elements */
    char peak[16];     /* og_terms: the maximum's name */
} member;

static const char *const kind_functions[] = {
    [MEMBER_MAX] = "og_maximum", [MEMBER_MIN] = "og_minimum", [MEMBER_PEAK] = "og_peak"};

/* Of OG_FOLD_SUMEXP: of the maximum that it subtracts. */
static const member_kind kind_of_fold[] = {
    [OG_FOLD_SUM] = MEMBER_SUM,   [OG_FOLD_MAX] = MEMBER_MAX,     [OG_FOLD_MIN] = MEMBER_MIN,
    [OG_FOLD_PEAK] = MEMBER_PEAK, [OG_FOLD_SUMEXP] = MEMBER_PEAK,
};

static const og_pass *pass_of(const og_cuda_emitter *e, int32_t p)
{
    return &e->kernel->passes[p];
}

bool og_cuda_has_terms(const og_pass *pass)
{
    for (int32_t r = 0; r < pass->reduction_count; r++)
        if (og_op_fold(pass->reductions[r].op) == OG_FOLD_SUMEXP)
            return true;
    return false;
}

bool og_cuda_any_terms(const og_kernel *kernel)
{
    bool any = false;
    for (int32_t p = 0; p < kernel->pass_count; p++)
        any |= og_cuda_has_terms(&kernel->passes[p]);
    return any;
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
        int32_t companion = fold == OG_FOLD_SUMEXP ? find_companion(pass, r) : -1;
        if ((fold == OG_FOLD_SUMEXP) != terms && !(fold == OG_FOLD_SUMEXP && companion < 0))
            continue;
        if (i-- > 0)
            continue;
        memset(out, 0, sizeof *out);
        out->is_double = r->type == OG_F64;
        out->source = r->source;
        out->dst = r->dst;
        out->empty = "0";
        snprintf(out->name, sizeof out->name, "v%d", (int)r->dst);
        if (terms) {
            if (companion >= 0)
                snprintf(out->peak, sizeof out->peak, "v%d", (int)pass->reductions[companion].dst);
            else
                snprintf(out->peak, sizeof out->peak, "m%d", (int)r->dst);
            return true;
        }
        out->kind = kind_of_fold[fold];
        if (out->kind == MEMBER_PEAK && out->is_double)
            out->kind = MEMBER_MAX;
        if (fold == OG_FOLD_PEAK)
            out->empty = out->is_double ? "-OG_INF_F64" : "-OG_INF_F32";
        if (fold == OG_FOLD_SUMEXP) {
            out->dst = -1;
            snprintf(out->name, sizeof out->name, "m%d", (int)r->dst);
        }
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

size_t og_cuda_most_sum_bytes(const og_pass *pass)
{
    size_t sums = og_cuda_has_row_values(pass) ? og_cuda_sums_bytes(pass, false) : 0;
    size_t terms = og_cuda_has_terms(pass) ? og_cuda_sums_bytes(pass, true) : 0;
    return sums > terms ? sums : terms;
}

int32_t og_cuda_sums_count(const og_pass *pass, bool terms)
{
    member m;
    int32_t count = 0;
    while (find_member(pass, terms, count, &m))
        count++;
    return count;
}

/* ---- functions over sums --------------------------------------------------------- */

static const char *suffix_of(const member *m)
{
    return m->is_double ? "f64" : "f32";
}

/* "s.v3 = s.v3 + x", accumulator first. */
static void print_fold(const member *m, const char *into, const char *x, og_text *to)
{
    if (m->kind == MEMBER_SUM)
        og_text_add(to, "%s.%s = %s.%s + %s", into, m->name, into, m->name, x);
    else
        og_text_add(to, "%s.%s = %s_%s(%s.%s, %s)", into, m->name, kind_functions[m->kind],
                    suffix_of(m), into, m->name, x);
}

static void add_members(og_text *to, const og_pass *pass, bool terms)
{
    member m;
    og_text_add(to, "    struct sums {\n");
    for (int32_t i = 0; find_member(pass, terms, i, &m); i++)
        og_text_add(to, "        %s %s;\n", m.is_double ? "double" : "float", m.name);
    og_text_add(to, "    };\n");
}

/* What a missing element is. */
static void add_neutral(og_text *to, const og_pass *pass, bool terms)
{
    static const char *const neutral[] = {[MEMBER_SUM] = "-0.0f",
                                          [MEMBER_MAX] = "-OG_INF_F32",
                                          [MEMBER_MIN] = "OG_INF_F32",
                                          [MEMBER_PEAK] = "-OG_INF_F32"};
    member m;
    og_text_add(to, "    OG_FN sums neutral()\n    {\n        sums s;\n");
    for (int32_t i = 0; find_member(pass, terms, i, &m); i++)
        og_text_add(to, "        s.%s = %s;\n", m.name, neutral[m.kind]);
    og_text_add(to, "        return s;\n    }\n");
}

/* The term of an element. */
static void print_term(const og_cuda_emitter *e, const member *m, const char *value, char *text,
                       size_t capacity)
{
    if (e->mends)
        snprintf(text, capacity, "og_%s(%s - m.%s)", m->is_double ? "exp_f64" : "fall_f32", value,
                 m->peak);
    else
        snprintf(text, capacity, "og_exp_%s(%s - og_shift(m.%s))", suffix_of(m), value, m->peak);
}

static void add_add(const og_cuda_emitter *e, og_text *to, const og_pass *pass, bool terms)
{
    member m;
    og_text_add(to, "    OG_FN void add(sums &s, const og_row &row, const peaks &m, const "
                    "pass::values &y)\n    {\n");
    for (int32_t i = 0; find_member(pass, terms, i, &m); i++) {
        bool is_row = e->kernel->values[m.source].level == OG_ROW;
        char x[96], value[32];
        snprintf(value, sizeof value, is_row ? "row.v%d" : "y.v%d", (int)m.source);
        if (terms)
            print_term(e, &m, value, x, sizeof x);
        else
            snprintf(x, sizeof x, "%s", value);
        og_text_add(to, "        ");
        print_fold(&m, "s", x, to);
        og_text_add(to, ";\n");
    }
    og_text_add(to, "    }\n");
}

/* The number under which the terms of a member are kept, or -1. */
static int32_t kept_number(const og_cuda_emitter *e, const member *m, bool terms)
{
    return terms && e->kept_term_count ? e->kept_terms[m->dst] : -1;
}

/* keep(): the terms that later passes use, in og_kept. */
static void add_keep(const og_cuda_emitter *e, og_text *to, const og_pass *pass, bool terms)
{
    member m;
    bool any = false;
    char x[96], value[32];
    for (int32_t i = 0; find_member(pass, terms, i, &m); i++) {
        int32_t number = kept_number(e, &m, terms);
        if (number < 0)
            continue;
        if (!any)
            og_text_add(to, "    enum { keeps = 1 };\n"
                            "    OG_FN void keep(og_kept &kept, int i, const peaks &m, const "
                            "pass::values &y)\n    {\n");
        any = true;
        snprintf(value, sizeof value, "y.v%d", (int)m.source);
        print_term(e, &m, value, x, sizeof x);
        og_text_add(to, "        kept.t%d.e[i] = %s;\n", (int)number, x);
    }
    og_text_add(to, any ? "    }\n" : "    enum { keeps = 0 };\n");
}

/* A line per member, with its name twice. */
static void add_each(og_text *to, const og_pass *pass, bool terms, const char *head,
                     const char *format, const char *tail)
{
    member m;
    og_text_add(to, "%s", head);
    for (int32_t i = 0; find_member(pass, terms, i, &m); i++)
        og_text_add(to, format, m.name, m.name);
    og_text_add(to, "%s", tail);
}

static void add_merge(og_text *to, const og_pass *pass, bool terms)
{
    member m;
    og_text_add(to, "    OG_FN void merge(sums &s, const sums &other)\n    {\n");
    for (int32_t i = 0; find_member(pass, terms, i, &m); i++) {
        char x[32];
        snprintf(x, sizeof x, "other.%s", m.name);
        og_text_add(to, "        ");
        print_fold(&m, "s", x, to);
        og_text_add(to, ";\n");
    }
    og_text_add(to, "    }\n");
    add_each(to, pass, terms,
             "    OG_FN sums down(const sums &s, int delta, int width)\n    {\n        sums r;\n",
             "        r.%s = __shfl_down_sync(0xffffffffu, s.%s, delta, width);\n",
             "        return r;\n    }\n");
    add_each(
        to, pass, terms, "    OG_FN sums first(const sums &s, int width)\n    {\n        sums r;\n",
        "        r.%s = __shfl_sync(0xffffffffu, s.%s, 0, width);\n", "        return r;\n    }\n");
}

/* finish: sums become row values; scale: a chunk's or run's terms, to be added to
 * those of others; mend: sums of exp(x - m) become those of sumexp. */
static void add_finish(og_text *to, const og_pass *pass, bool terms)
{
    member m;
    og_text_add(to, "    OG_FN void finish(const og_args &a, const sums &s, og_row &row)\n    {\n");
    for (int32_t i = 0; find_member(pass, terms, i, &m); i++)
        if (m.dst >= 0)
            og_text_add(to, "        row.v%d = a.n ? s.%s : %s;\n", (int)m.dst, m.name, m.empty);
    og_text_add(to, "    }\n");
    og_text_add(to, "    OG_FN void scale(sums &s, const peaks &m, const peaks &most)\n    {\n");
    for (int32_t i = 0; terms && find_member(pass, terms, i, &m); i++)
        og_text_add(to, "        s.%s = s.%s * og_exp_%s(m.%s - og_shift(most.%s));\n", m.name,
                    m.name, suffix_of(&m), m.peak, m.peak);
    og_text_add(to, "    }\n    OG_FN void mend(sums &s, const peaks &m)\n    {\n");
    for (int32_t i = 0; terms && find_member(pass, terms, i, &m); i++)
        og_text_add(to, "        s.%s = og_mend(s.%s, m.%s);\n", m.name, m.name, m.peak);
    og_text_add(to, "    }\n");
}

static bool stores(const og_pass *pass)
{
    for (int32_t i = 0; i < pass->element_count; i++)
        if (pass->elements[i].op == OG_OP_STORE)
            return true;
    return false;
}

static void add_struct(og_cuda_emitter *e, int32_t p, bool terms)
{
    const og_pass *pass = pass_of(e, p);
    og_text *to = &e->passes;
    bool last = terms || !og_cuda_has_terms(pass);
    og_text_add(to, "\nstruct og_%s%d {\n    typedef og_pass%d pass;\n", terms ? "terms" : "sums",
                (int)p, (int)p);
    og_text_add(to, "    enum { count = %d, stores = %d };\n", (int)og_cuda_sums_count(pass, terms),
                last && stores(pass));
    if (terms)
        og_text_add(to, "    typedef og_sums%d::sums peaks;\n", (int)p);
    else
        og_text_add(to, "    typedef og_none peaks;\n");
    add_members(to, pass, terms);
    add_neutral(to, pass, terms);
    add_add(e, to, pass, terms);
    add_keep(e, to, pass, terms);
    add_merge(to, pass, terms);
    add_finish(to, pass, terms);
    og_text_add(to, "};\n");
}

void og_cuda_add_sums(og_cuda_emitter *e, int32_t p)
{
    add_struct(e, p, false);
    if (og_cuda_has_terms(pass_of(e, p)))
        add_struct(e, p, true);
}
