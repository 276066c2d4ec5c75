/* SPDX-License-Identifier: MIT
 *
 * plan_build.c - which nodes share a kernel.
 *
 * Pointwise nodes belong nowhere: they are computed again wherever they are
 * needed. What anchors a kernel is a reduction, a product or a result. Anchors
 * are placed in the graph's order, each into the first kernel that can take it:
 *
 *  - a reduction fits a kernel that reduces the same dims of the same shape, if
 *    all it depends on is computed there (in an earlier pass) or kept by an
 *    earlier kernel. So softmax, layer_norm and var are one kernel;
 *  - a product starts a kernel, two where something needs both at the same index
 *    (og_find_pairs); what follows at the same index joins it, and a reduction over
 *    its last dim too, but never a second pass: that reads the kept product instead;
 *  - a result fits a kernel over its own shape (stored per element), or one whose
 *    rows have its shape (stored per row).
 *
 * Whether something fits is found out by visiting what it needs (plan_visit.c). That
 * grows with the formula, and so would every pass of its kernel: where a reduction needs too
 * much that is computed for others already, or too many passes, it begins a kernel of its own,
 * and what it reads is kept.
 */
#include "plan/planner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    LONG_VISIT = 512,    /* instances; a softmax after a softmax adds 8 */
    MUCH_WORK = 1 << 18, /* instances visited in all, from which on none are visited twice */
    MOST_PASSES = 64,
    MOST_KERNELS = 1 << 16
};

/* ---- buffers ----------------------------------------------------------------- */

static ogive_status add_buffer(og_planner *b, og_buffer_kind kind, int32_t index,
                               const og_layout *layout, int32_t *out)
{
    size_t at = b->buffer_count;
    if (!og_grow((void **)&b->buffers, &b->buffer_capacity, at + 1, sizeof *b->buffers))
        return og_fail_memory(b->error, (at + 1) * sizeof *b->buffers);
    og_buffer *buffer = &b->buffers[at];
    memset(buffer, 0, sizeof *buffer);
    buffer->kind = kind;
    buffer->index = index;
    buffer->dtype = layout->dtype;
    buffer->rank = layout->rank;
    memcpy(buffer->shape, layout->shape, sizeof buffer->shape);
    memcpy(buffer->stride, layout->stride, sizeof buffer->stride);
    b->buffer_count++;
    *out = (int32_t)at;
    return OGIVE_OK;
}

/* Is number one of the dtype, a half? */
static bool is_number_of(og_dtype dtype, double number)
{
    const bool is_wide = dtype == OG_BFLOAT16; /* 8 bits, and float32's exponents; else 11 */
    const int bits = is_wide ? 8 : 11, least = is_wide ? -133 : -24;
    int exponent;
    if (number == 0 || isinf(number))
        return true;
    if (!(fabs(number) <= (is_wide ? 0x1.fep127 : 65504.0)))
        return false;
    frexp(number, &exponent);
    const double scaled = ldexp(number, -(exponent - bits > least ? exponent - bits : least));
    return scaled == floor(scaled);
}

/* Which arguments of a function are its only results, maybe with another sign, besides its numbers: a
 * bit each; 0: it computes. */
static uint32_t find_selected(const og_node *node)
{
    switch (node->op) {
    case OG_OP_relu:
    case OG_OP_abs:
    case OG_OP_neg:
    case OG_OP_clamp:
    case OG_OP_amax:
    case OG_OP_amin:
    case OG_OP_max_of_dim:
    case OG_OP_min_of_dim:
    case OG_OP_first_amax:
        return 1;
    case OG_OP_maximum:
    case OG_OP_minimum:
    case OG_OP_at_least:
    case OG_OP_at_most:
        return 3;
    case OG_OP_where:
        return 6;
    default:
        return 0;
    }
}

enum { MOST_SELECTED = 6 }; /* functions of functions that are looked at */

/* Is the value of node one of dtype, a half say, whatever it is computed in? So are casts, what is read
 * from a tensor, and what functions like relu select of these. */
static bool is_rounded_to(const og_planner *b, int32_t node, og_dtype dtype, int32_t most)
{
    const og_node *of = &b->graph->nodes[node];
    if (of->op == OG_OP_NUMBER)
        return is_number_of(dtype, of->numbers[0]);
    if (b->types[node].dtype != dtype)
        return false;
    if (b->buffer[node] >= 0)
        return b->buffers[b->buffer[node]].dtype == dtype;
    if (og_node_is_view(b, node))
        return is_rounded_to(b, of->args[0], dtype, most);
    if (of->op == OG_OP_float16 || of->op == OG_OP_bfloat16)
        return true;
    const uint32_t selected = find_selected(of);
    bool is = selected && most > 0;
    if (of->op == OG_OP_clamp)
        is &= is_number_of(dtype, of->numbers[0]) && is_number_of(dtype, of->numbers[1]);
    for (int32_t i = 0; is && i < of->arg_count; i++)
        is = !(selected >> i & 1) || is_rounded_to(b, of->args[i], dtype, most - 1);
    return is;
}

static bool is_rounded(const og_planner *b, int32_t node)
{
    return is_rounded_to(b, node, b->types[node].dtype, MOST_SELECTED);
}

/* A place in the workspace for the value of node, unrounded: fusion never changes
 * a result. What is rounded already, as autocast's casts before a product are, or relu of a half, is
 * kept as it is: products of halves are faster. */
static ogive_status keep_node(og_planner *b, int32_t node, int32_t *buffer)
{
    const og_typed *type = &b->types[node];
    bool is_kept_as_it_is =
        og_dtype_bytes(type->dtype) == 2 && og_dtype_is_float(type->dtype) && is_rounded(b, node);
    og_layout layout = {.dtype = is_kept_as_it_is                         ? type->dtype
                                 : og_compute_type(type->dtype) == OG_F64 ? OG_FLOAT64
                                                                          : OG_FLOAT32,
                        .rank = type->rank};
    size_t bytes;
    int64_t count;
    memcpy(layout.shape, type->shape, sizeof layout.shape);
    if (!og_layout_contiguous(&layout) || !og_shape_count(type->rank, type->shape, &count) ||
        !og_mul_size((size_t)count, og_dtype_bytes(layout.dtype), &bytes))
        return og_fail_memory(b->error, SIZE_MAX);
    OG_TRY(add_buffer(b, OG_BUFFER_TEMPORARY, 0, &layout, buffer));
    size_t offset = b->plan->temporary_bytes;
    b->buffers[*buffer].offset = offset;
    if (!og_add_size(offset, bytes, &offset) || !og_add_size(offset, 63, &offset))
        return og_fail_memory(b->error, SIZE_MAX);
    b->plan->temporary_bytes = offset & ~(size_t)63;
    return OGIVE_OK;
}

static ogive_status add_root(og_planner *b, int32_t draft, og_root root)
{
    og_draft *to = &b->drafts[draft];
    if (!og_grow((void **)&to->roots, &to->root_capacity, to->root_count + 1, sizeof *to->roots))
        return og_fail_memory(b->error, (to->root_count + 1) * sizeof *to->roots);
    to->roots[to->root_count++] = root;
    return OGIVE_OK;
}

/* Keeps a reduction, the tail of one, or a product, which has its kernel. */
static ogive_status keep_anchor(og_planner *b, int32_t node)
{
    og_root root = {.node = node, .row = b->tail_of[node] >= 0};
    root.mapping =
        root.row ? og_reduced_mapping(b, b->tail_of[node]) : og_identity_mapping(&b->types[node]);
    OG_TRY(keep_node(b, node, &root.buffer));
    b->buffer[node] = root.buffer;
    b->home[node] = og_find_home(b, node);
    return add_root(b, b->home[node], root);
}

/* The values of earlier kernels that the instances just visited load: each is kept. */
static ogive_status keep_loads(og_planner *b)
{
    for (size_t i = 0; i < b->instance_count; i++) {
        const og_instance *at = &b->instances[i];
        int32_t node = at->node;
        if (at->kind != OG_INSTANCE_LOAD || b->buffer[node] >= 0)
            continue;
        OG_TRY(keep_anchor(b, node));
    }
    return OGIVE_OK;
}

/* ---- drafts ------------------------------------------------------------------ */

static ogive_status add_draft(og_planner *b, const og_typed *shape, uint32_t reduced, int32_t *out)
{
    size_t at = b->draft_count;
    if (!og_grow((void **)&b->drafts, &b->draft_capacity, at + 1, sizeof *b->drafts))
        return og_fail_memory(b->error, (at + 1) * sizeof *b->drafts);
    og_draft *draft = &b->drafts[at];
    memset(draft, 0, sizeof *draft);
    draft->rank = shape->rank;
    memcpy(draft->extent, shape->shape, sizeof draft->extent);
    draft->reduced = reduced;
    b->draft_count++;
    *out = (int32_t)at;
    return OGIVE_OK;
}

static bool same_shape(const og_draft *draft, const og_typed *type)
{
    return draft->rank == type->rank &&
           memcmp(draft->extent, type->shape, sizeof *type->shape * (size_t)type->rank) == 0;
}

/* May a reduction that visits space join draft, as far as shapes go? */
static bool reduction_matches(const og_planner *b, const og_draft *draft, const og_typed *space,
                              uint32_t reduced)
{
    if (!same_shape(draft, space))
        return false;
    if (draft->product_count && og_node_convolves(b, draft->products[0]))
        return false;
    if (draft->reduced == reduced && (draft->reduction_count || draft->product_count))
        return true;
    return draft->product_count && draft->reduced == 0 && reduced == 1u << (space->rank - 1);
}

/* *is_long: it would be valid, but what it needs should be kept instead. */
static ogive_status try_reduction(og_planner *b, int32_t draft, int32_t node, bool *valid,
                                  bool *is_long)
{
    const og_node *of = &b->graph->nodes[node];
    uint32_t before = b->drafts[draft].reduced;
    b->drafts[draft].reduced = b->types[node].reduced;
    og_typed space;
    og_mapping mapping = og_reduction_space(b, node, &space);
    int32_t source;
    *valid = true;
    OG_TRY(og_visit_begin(b));
    OG_TRY(og_visit(b, draft, of->args[0], &mapping, &source, valid));
    OG_TRY(og_visit_end(b, draft, valid));
    if (*valid) {
        const og_instance *at = &b->instances[source];
        bool again = b->drafts[draft].reduction_count > 0 || b->work > MUCH_WORK;
        *valid = at->varies || !at->reduced; /* a row value has nothing to reduce */
        *is_long = *valid && again && b->instance_count > LONG_VISIT;
        *valid &= !*is_long && at->stage < MOST_PASSES;
        b->pass[node] = at->stage;
    }
    if (!*valid) {
        b->drafts[draft].reduced = before;
        return OGIVE_OK;
    }
    return keep_loads(b);
}

/* The mapping of a root that is stored once per row of draft. Its dims are those
 * from dim `first` of the draft on, the reduced ones kept as 1 or dropped. False if
 * its shape is not that of a row. */
static bool fit_row(const og_draft *draft, const og_typed *type, int32_t first, bool keepdim,
                    og_mapping *mapping)
{
    memset(mapping, -1, sizeof *mapping);
    for (int32_t d = 0; d < first; d++)
        if (!(draft->reduced >> d & 1) && draft->extent[d] != 1)
            return false;
    int32_t to = 0;
    for (int32_t d = first; d < draft->rank; d++) {
        bool kept = !(draft->reduced >> d & 1);
        if (!kept && !keepdim)
            continue;
        int64_t want = kept ? draft->extent[d] : 1;
        if (to >= type->rank || type->shape[to] != want)
            return false;
        if (kept && want != 1)
            mapping->at[to] = (int8_t)d;
        to++;
    }
    return to == type->rank;
}

/* Reduced dims are kept or dropped, or (sum_like) those in front are dropped. */
static bool row_mapping(const og_draft *draft, const og_typed *type, og_mapping *mapping)
{
    return fit_row(draft, type, 0, false, mapping) ||
           (type->rank <= draft->rank &&
            fit_row(draft, type, draft->rank - type->rank, true, mapping));
}

/* The mapping of a root that is stored once per element of draft. With a product or a reduction it
 * may be stored with dims of 1 added or dropped (a vector's gradient, or that of a maximum over a
 * whole image). */
static bool element_mapping(const og_draft *draft, const og_typed *type, og_mapping *mapping)
{
    *mapping = og_identity_mapping(type);
    if (same_shape(draft, type))
        return true;
    int32_t d = 0;
    for (int32_t to = 0; to <= type->rank; to++) {
        while (d < draft->rank && draft->extent[d] == 1)
            d++;
        if (to == type->rank || type->shape[to] == 1)
            continue;
        if (d == draft->rank || draft->extent[d] != type->shape[to])
            return false;
        mapping->at[to] = (int8_t)d++;
    }
    return d == draft->rank && (draft->product_count || draft->reduction_count);
}

/* The same of a convolution of halves whose result has its dims in another order, as channels-last has
 * them: tensor cores' kernel stores whole lines of either. Of float32 it would store single elements. */
static bool permuted_mapping(const og_planner *b, const og_draft *draft, int32_t node,
                             og_mapping *mapping)
{
    if (!draft->product_count || !og_node_convolves(b, draft->products[0]) ||
        og_dtype_bytes(b->types[node].dtype) != 2)
        return false;
    *mapping = og_identity_mapping(&b->types[node]);
    for (; b->graph->nodes[node].op == OG_OP_transpose; node = b->graph->nodes[node].args[0]) {
        const og_node *of = &b->graph->nodes[node];
        const int32_t rank = b->types[node].rank;
        const int32_t i = of->dims[0] + (of->dims[0] < 0 ? rank : 0);
        const int32_t j = of->dims[1] + (of->dims[1] < 0 ? rank : 0);
        for (int32_t d = 0; d < rank; d++)
            mapping->at[d] = (int8_t)(mapping->at[d] == i   ? j
                                      : mapping->at[d] == j ? i
                                                            : mapping->at[d]);
    }
    return same_shape(draft, &b->types[node]);
}

static ogive_status try_root(og_planner *b, int32_t draft, og_root *root, bool *valid)
{
    int32_t index;
    *valid = true;
    OG_TRY(og_visit_begin(b));
    OG_TRY(og_visit(b, draft, root->node, &root->mapping, &index, valid));
    OG_TRY(og_visit_end(b, draft, valid));
    if (*valid && root->row) /* a product is computed per element, even where n is 1 */
        *valid = !b->instances[index].varies && !b->instances[index].has_product;
    else if (*valid) /* and has one pass, even where nothing varies */
        *valid = !(b->drafts[draft].product_count && b->instances[index].stage > 0);
    return *valid ? keep_loads(b) : OGIVE_OK;
}

/* Stores it per row or else per element of draft, if possible. */
static ogive_status try_draft(og_planner *b, int32_t draft, og_root *root, bool *valid)
{
    const og_typed *type = &b->types[root->node];
    *valid = false;
    root->row = true;
    if (b->drafts[draft].reduction_count && row_mapping(&b->drafts[draft], type, &root->mapping))
        OG_TRY(try_root(b, draft, root, valid));
    if (!*valid && (element_mapping(&b->drafts[draft], type, &root->mapping) ||
                    permuted_mapping(b, &b->drafts[draft], root->node, &root->mapping))) {
        root->row = false;
        OG_TRY(try_root(b, draft, root, valid));
    }
    return OGIVE_OK;
}

/* The last kernel that computes something node needs, or -1. */
static ogive_status find_source(og_planner *b, int32_t node, int32_t *source)
{
    og_mapping identity = og_identity_mapping(&b->types[node]);
    int32_t root;
    bool valid = true;
    *source = -1;
    OG_TRY(og_visit_begin(b));
    OG_TRY(og_visit(b, (int32_t)b->draft_count, node, &identity, &root, &valid));
    for (size_t i = 0; i < b->instance_count; i++) {
        int32_t home = og_find_home(b, b->instances[i].node);
        *source = home > *source ? home : *source;
    }
    return OGIVE_OK;
}

/* Stores node into root->buffer: where the last of what it needs is computed, so that
 * this need not be kept, else in the latest kernel that can. */
static ogive_status place_root(og_planner *b, og_root *root, int32_t *home)
{
    const og_typed *type = &b->types[root->node];
    bool valid = false;
    OG_TRY(find_source(b, root->node, home));
    if (*home >= 0)
        OG_TRY(try_draft(b, *home, root, &valid));
    for (int32_t draft = (int32_t)b->draft_count - 1; !valid && draft > *home; draft--) {
        OG_TRY(try_draft(b, draft, root, &valid));
        if (valid)
            *home = draft;
    }
    if (!valid) {
        OG_TRY(add_draft(b, type, 0, home));
        root->row = false;
        root->mapping = og_identity_mapping(type);
        OG_TRY(try_root(b, *home, root, &valid));
    }
    return add_root(b, *home, *root);
}

/* What a product that reads node finds in memory. */
static int32_t find_kept(const og_planner *b, int32_t node)
{
    while (b->buffer[node] < 0 && og_node_is_plain_view(b, node))
        node = b->graph->nodes[node].args[0];
    return node;
}

/* A product reads its operands from memory, and so do windows: what is computed is kept first. So
 * is what a reduction reads, if it is long. */
static ogive_status keep_whole(og_planner *b, int32_t node)
{
    if (b->buffer[node] >= 0)
        return OGIVE_OK;
    if (og_find_home(b, node) >= 0)
        return keep_anchor(b, node);
    og_root root = {.node = node};
    OG_TRY(keep_node(b, node, &root.buffer));
    int32_t home = -1;
    OG_TRY(place_root(b, &root, &home));
    b->home[node] = home;
    b->buffer[node] = root.buffer;
    return OGIVE_OK;
}

static ogive_status keep_operand(og_planner *b, int32_t node)
{
    return keep_whole(b, find_kept(b, node));
}

static ogive_status place_reduction(og_planner *b, int32_t node)
{
    og_typed space;
    og_reduction_space(b, node, &space);
    uint32_t reduced = b->types[node].reduced;
    int32_t draft = (int32_t)b->draft_count, first = 0;
    bool valid = false, is_long = false;
    if (b->work > MUCH_WORK) /* kernels before that of what it needs are not worth a try */
        OG_TRY(find_source(b, b->graph->nodes[node].args[0], &first));
    while (!valid && !is_long && --draft >= first && draft >= 0)
        if (reduction_matches(b, &b->drafts[draft], &space, reduced))
            OG_TRY(try_reduction(b, draft, node, &valid, &is_long));
    if (!valid && !is_long) {
        OG_TRY(add_draft(b, &space, reduced, &draft));
        OG_TRY(try_reduction(b, draft, node, &valid, &is_long));
        is_long = !valid; /* or a group_sum of what slides along channels */
        b->draft_count -= is_long;
    }
    if (is_long) {
        OG_TRY(keep_operand(b, b->graph->nodes[node].args[0]));
        OG_TRY(add_draft(b, &space, reduced, &draft));
        OG_TRY(try_reduction(b, draft, node, &valid, &is_long));
    }
    b->home[node] = draft;
    og_draft *to = &b->drafts[draft];
    if (!og_grow((void **)&to->reductions, &to->reduction_capacity, to->reduction_count + 1,
                 sizeof *to->reductions))
        return og_fail_memory(b->error, (to->reduction_count + 1) * sizeof *to->reductions);
    to->reductions[to->reduction_count++] = node;
    return OGIVE_OK;
}

/* What does not lie in memory as a product reads it is copied. */
static ogive_status copy_operand(og_planner *b, int32_t product, int side)
{
    og_root root = {.node = b->graph->nodes[product].args[side]};
    OG_TRY(keep_node(b, root.node, &root.buffer));
    if (og_node_convolves(b, product))
        og_lay_out_weight(&b->buffers[root.buffer]);
    else
        og_lay_out_operand(b, product, side, &b->buffers[root.buffer]);
    int32_t home = -1;
    OG_TRY(place_root(b, &root, &home));
    b->copy[root.node] = root.buffer;
    return OGIVE_OK;
}

static ogive_status keep_operands(og_planner *b, int32_t node)
{
    const og_node *of = &b->graph->nodes[node];
    og_access access;
    int64_t k, k_stride;
    for (int side = 0; side < 2; side++) {
        int32_t arg = of->args[side], *copy = &b->copies[node][side];
        bool convolves = og_node_convolves(b, node);
        bool copies_weight = convolves && side == 1 && og_copies_weight(b, node);
        OG_TRY(keep_operand(b, arg));
        *copy = convolves && !copies_weight ? -1 : b->copy[arg];
        if (convolves ? copies_weight && *copy < 0
                      : !og_product_operand(b, node, side, &access, &k, &k_stride)) {
            OG_TRY(copy_operand(b, node, side));
            *copy = b->copy[arg];
        }
    }
    return OGIVE_OK;
}

/* The first of a pair waits for the second: nothing in between needs it. */
static ogive_status place_product(og_planner *b, int32_t node)
{
    int32_t other = b->pair[node];
    if (other > node)
        return OGIVE_OK;
    if (other >= 0)
        OG_TRY(keep_operands(b, other));
    OG_TRY(keep_operands(b, node));
    int32_t home = -1;
    OG_TRY(add_draft(b, &b->types[node], 0, &home));
    og_draft *draft = &b->drafts[home];
    if (other >= 0) {
        draft->products[draft->product_count++] = other;
        b->home[other] = home;
    }
    draft->products[draft->product_count++] = node;
    b->home[node] = home;
    return OGIVE_OK;
}

/* ---- all of it ----------------------------------------------------------------- */

/* Has a group_spread fewer elements than what is computed with it? Each would be looked up by
 * dividing its channel. */
static bool is_smaller(const og_planner *b, int32_t node)
{
    const og_typed *like = &b->types[b->graph->nodes[node].args[1]];
    for (int32_t d = 2; d < like->rank; d++)
        if (like->shape[d] != 1)
            return true;
    return false;
}

/* A convolution's end (plan_ends.c) is an element of its kernel; which keeps it when a later kernel loads
 * it, and only then. What it is computed of is kept now. */
static ogive_status place_end(og_planner *b, int32_t node)
{
    og_root root = {.node = node, .mapping = og_identity_mapping(&b->types[node])};
    int32_t home;
    bool valid = false;
    if (b->home[node] >= 0)
        return OGIVE_OK;
    OG_TRY(find_source(b, node, &home));
    if (home >= 0)
        OG_TRY(try_root(b, home, &root, &valid));
    if (valid)
        b->home[node] = home;
    return OGIVE_OK;
}

/* Before the products that compute with them have kernels. Code that serves every size does not know
 * what is small. */
static ogive_status keep_small(og_planner *b, const bool *live)
{
    bool *small = OG_ARENA_NEW(&b->scratch, bool, (size_t)b->graph->node_count);
    if (!small)
        return og_fail_memory(b->error, (size_t)b->graph->node_count);
    if (!b->rules.keeps_dims)
        OG_TRY(og_find_small(b, live, small));
    for (int32_t n = 0; n < b->graph->node_count; n++)
        if (small[n])
            OG_TRY(keep_operand(b, n));
    return OGIVE_OK;
}

/* Which nodes results need. */
static void find_live(const og_planner *b, bool *live)
{
    const og_graph *graph = b->graph;
    for (int32_t i = 0; i < graph->result_count; i++)
        live[graph->results[i]] = true;
    for (int32_t n = graph->node_count - 1; n >= 0; n--)
        for (int32_t a = 0;
             live[n] && a < og_op_value_count(graph->nodes[n].op, graph->nodes[n].arg_count); a++)
            live[graph->nodes[n].args[a]] = true;
}

/* is_operand: of products. is_whole: these, and what windows see: they are read from memory. */
static void find_operands(const og_planner *b, const bool *live, bool *is_operand, bool *is_whole)
{
    const og_graph *graph = b->graph;
    for (int32_t n = 0; n < graph->node_count; n++)
        for (int side = 0; live[n] && og_node_is_product(b, n) && side < 2; side++)
            is_operand[find_kept(b, graph->nodes[n].args[side])] = true;
    memcpy(is_whole, is_operand, (size_t)graph->node_count * sizeof *is_whole);
    for (int32_t n = 0; n < graph->node_count; n++)
        if (live[n] && og_node_slides(b, n))
            is_whole[og_find_seen(b, n)] = true;
}

static ogive_status place_anchors(og_planner *b)
{
    const og_graph *graph = b->graph;
    const size_t count = (size_t)graph->node_count;
    bool *live = OG_ARENA_NEW(&b->scratch, bool, count);
    /* What a product will read may as well be kept for the reductions before it: a
     * gradient whose columns are summed is then all that is kept of its kernel. */
    bool *is_operand = OG_ARENA_NEW(&b->scratch, bool, count);
    bool *is_whole = OG_ARENA_NEW(&b->scratch, bool, count);
    bool *is_end = OG_ARENA_NEW(&b->scratch, bool, count);
    if (!live || !is_operand || !is_whole || !is_end)
        return og_fail_memory(b->error, count);
    find_live(b, live);
    find_operands(b, live, is_operand, is_whole);
    OG_TRY(og_find_ends(b, live, is_whole, is_end));
    OG_TRY(og_find_pairs(b, live));
    OG_TRY(keep_small(b, live));
    for (int32_t n = 0; n < graph->node_count; n++) {
        if (is_end[n])
            OG_TRY(place_end(b, n));
        if (live[n] && og_node_slides(b, n))
            OG_TRY(keep_whole(b, og_find_seen(b, n)));
        if (live[n] && graph->nodes[n].op == OG_OP_group_spread && is_smaller(b, n))
            OG_TRY(keep_whole(b, n));
        if (live[n] && og_node_reduces(b, n)) {
            int32_t arg = find_kept(b, graph->nodes[n].args[0]);
            if (is_operand[arg] && !og_node_reduces(b, arg) && !og_node_is_product(b, arg))
                OG_TRY(keep_operand(b, arg));
            OG_TRY(place_reduction(b, n));
        }
        if (live[n] && og_node_is_product(b, n))
            OG_TRY(place_product(b, n));
        og_find_tail(b, n);
    }
    for (int32_t i = 0; i < graph->result_count; i++) {
        og_root root = {.node = graph->results[i], .buffer = graph->input_count + i};
        int32_t home = -1;
        OG_TRY(place_root(b, &root, &home));
    }
    return OGIVE_OK;
}

static ogive_status start(og_planner *b, const og_layout *inputs, const og_layout *outputs)
{
    const og_graph *graph = b->graph;
    size_t count = (size_t)graph->node_count;
    b->home = OG_ARENA_NEW(&b->scratch, int32_t, count);
    b->pass = OG_ARENA_NEW(&b->scratch, int32_t, count);
    b->buffer = OG_ARENA_NEW(&b->scratch, int32_t, count);
    b->copy = OG_ARENA_NEW(&b->scratch, int32_t, count);
    b->copies = (int32_t(*)[2])OG_ARENA_NEW(&b->scratch, int32_t, 2 * count);
    b->pair = OG_ARENA_NEW(&b->scratch, int32_t, count);
    b->tail_of = OG_ARENA_NEW(&b->scratch, int32_t, count);
    b->first = OG_ARENA_NEW(&b->scratch, int32_t, count);
    b->stamp = OG_ARENA_NEW(&b->scratch, uint32_t, count);
    if (!b->home || !b->pass || !b->buffer || !b->copy || !b->copies || !b->pair || !b->tail_of ||
        !b->first || !b->stamp)
        return og_fail_memory(b->error, count * sizeof(int32_t));
    memset(b->home, -1, count * sizeof *b->home);
    memset(b->buffer, -1, count * sizeof *b->buffer);
    memset(b->copy, -1, count * sizeof *b->copy);
    memset(b->copies, -1, count * sizeof *b->copies);
    memset(b->pair, -1, count * sizeof *b->pair);
    memset(b->tail_of, -1, count * sizeof *b->tail_of);
    int32_t at;
    for (int32_t i = 0; i < graph->input_count; i++)
        OG_TRY(add_buffer(b, OG_BUFFER_INPUT, i, &inputs[i], &at));
    for (int32_t i = 0; i < graph->result_count; i++)
        OG_TRY(add_buffer(b, OG_BUFFER_OUTPUT, i, &outputs[i], &at));
    for (int32_t n = 0; n < graph->node_count; n++)
        if (graph->nodes[n].op == OG_OP_INPUT)
            b->buffer[n] = graph->nodes[n].index;
    b->plan->input_count = graph->input_count;
    b->plan->output_count = graph->result_count;
    return OGIVE_OK;
}

static int64_t count_phases(const og_planner *b, const og_draft *draft)
{
    return draft->product_count ? og_count_phases(b, draft->products[0]) : 1;
}

static ogive_status finish(og_planner *b)
{
    og_plan *plan = b->plan;
    int64_t count = 0, offset = -1;
    for (size_t k = 0; k < b->draft_count; k++) {
        int64_t phases = count_phases(b, &b->drafts[k]);
        if (phases > 1)
            offset = b->graph->nodes[b->drafts[k].products[0]].offset;
        count += phases;
        if (count > MOST_KERNELS)
            OG_FAIL(b->error, OGIVE_UNSUPPORTED, offset,
                    "more than %d kernels: a transposed convolution takes one for each phase of "
                    "its strides",
                    MOST_KERNELS);
    }
    plan->buffers = OG_ARENA_NEW(&plan->arena, og_buffer, b->buffer_count);
    plan->kernels = OG_ARENA_NEW(&plan->arena, og_kernel, (size_t)count);
    if (!plan->buffers || !plan->kernels)
        return og_fail_memory(b->error, (size_t)count * sizeof *plan->kernels);
    memcpy(plan->buffers, b->buffers, b->buffer_count * sizeof *plan->buffers);
    plan->buffer_count = (int32_t)b->buffer_count;
    for (size_t k = 0; k < b->draft_count; k++)
        for (int64_t phase = 0; phase < count_phases(b, &b->drafts[k]); phase++) {
            og_kernel *kernel = &plan->kernels[plan->kernel_count++];
            OG_TRY(og_emit_kernel(b, (int32_t)k, phase, kernel));
            og_order_space(plan, kernel, b->drafts[k].reduced, b->rules.keeps_dims);
            if (kernel->product_count)
                og_see_matrices(kernel);
            OG_TRY(og_find_deviations(b, kernel));
            OG_TRY(og_find_guards(b, kernel));
        }
    OG_TRY(og_measure_traffic(plan, &b->scratch, b->error));
    return og_find_aliases(plan, &b->scratch, b->error);
}

ogive_status og_plan_build(const og_graph *graph, const og_typed *types, const og_layout *inputs,
                           const og_layout *outputs, og_plan_rules rules, og_plan *plan,
                           ogive_error *error)
{
    og_planner b = {.graph = graph, .types = types, .rules = rules, .plan = plan, .error = error};
    memset(plan, 0, sizeof *plan);
    ogive_status status = og_lower(&b);
    if (status == OGIVE_OK)
        status = start(&b, inputs, outputs);
    if (status == OGIVE_OK)
        status = place_anchors(&b);
    if (status == OGIVE_OK)
        status = finish(&b);
    for (size_t k = 0; k < b.draft_count; k++) {
        free(b.drafts[k].reductions);
        free(b.drafts[k].roots);
    }
    free(b.buffers);
    free(b.drafts);
    free(b.instances);
    free(b.stack);
    free(b.sorted);
    og_arena_free(&b.scratch);
    if (status != OGIVE_OK)
        og_plan_free(plan);
    return status;
}

void og_plan_free(og_plan *plan)
{
    og_arena_free(&plan->arena);
    memset(plan, 0, sizeof *plan);
}
