/* SPDX-License-Identifier: MIT
 *
 * divide.c - what each process has of every value of a graph while one index is divided;
 * see divide.h. One walk over the nodes answers that. A sum over the index leaves
 * contributions, which linear ops hand on; at anything else they have to be reduced first:
 * a cut, and the walk begins again. A bias or a residual that meets a sum would be added by
 * every process: it is given as contributions, too, if that makes cuts unnecessary.
 */
#include "formula/divide.h"

#include <string.h>

/* Of a value inside of a walk, beside what ogive_share has. */
enum {
    ZERO = OGIVE_MIN + 1, /* the number 0: the same everywhere, and a contribution */
    NEITHER               /* nothing that another op could go on with */
};

typedef struct {
    og_indices *x;
    int32_t index;   /* OG_NOTHING: nothing is divided, some inputs are contributions */
    uint8_t *shares; /* [node] */
    uint8_t *cuts;   /* [node]: what it is where it is reduced, 0 where it is not */
    bool *given;     /* [input]: as contributions */
    bool *marked;    /* [node], scratch */
    bool may_give, may_cut;
    bool at_sums;       /* sums are reduced where they are made */
    bool again;         /* something was given or cut: walk again */
    const char *reason; /* why the index must be whole */
} walk;

static bool is_contribution(uint8_t share)
{
    return share == OGIVE_SUM || share == OGIVE_MAX || share == OGIVE_MIN;
}

/* ---- what ops hand on ------------------------------------------------------------ */

/* What a reduction over the index leaves. */
static uint8_t reduced_share(og_op op)
{
    if (op == OG_OP_sum_like)
        return OGIVE_SUM;
    switch (og_op_fold(op)) {
    case OG_FOLD_SUM:
        return OGIVE_SUM;
    case OG_FOLD_MAX:
    case OG_FOLD_PEAK:
        return OGIVE_MAX;
    case OG_FOLD_MIN:
        return OGIVE_MIN;
    default: /* OG_FOLD_SUMEXP: og_spread() makes a sum of it */
        return NEITHER;
    }
}

static bool is_product(og_op op)
{
    return op == OG_OP_linear_product || op == OG_OP_matmul || op == OG_OP_product_t ||
           og_op_convolves(op);
}

/* Hands its first argument's elements on: views, casts, what spreads a value out. */
static bool is_view(og_op op)
{
    switch ((int)op) {
    case OG_OP_t:
    case OG_OP_transpose:
    case OG_OP_narrow:
    case OG_OP_portion:
    case OG_OP_row:
    case OG_OP_column:
    case OG_OP_reshape_like:
    case OG_OP_channel_like:
    case OG_OP_bias_of:
    case OG_OP_broadcast_like:
    case OG_OP_expand:
    case OG_OP_cast_like:
    case OG_OP_float32:
    case OG_OP_float16:
    case OG_OP_bfloat16:
    case OG_OP_float64:
    case OG_OP_boolean:
        return true;
    default:
        return false;
    }
}

/* The arguments of a node, counted by what they are. */
typedef struct {
    uint8_t kind; /* of the first contribution; OGIVE_SAME if there is none */
    int kinds, parts, same;
    bool mixed; /* contributions of different kinds */
} arguments;

static arguments count_arguments(const walk *w, const og_node *node)
{
    arguments found = {.kind = OGIVE_SAME};
    for (int a = 0; a < og_op_value_count(node->op, node->arg_count); a++) {
        uint8_t share = w->shares[node->args[a]];
        if (is_contribution(share)) {
            found.mixed |= found.kinds && share != found.kind;
            found.kind = share;
            found.kinds++;
        }
        found.parts += share == OGIVE_PART;
        found.same += share == OGIVE_SAME;
    }
    return found;
}

/* A pointwise op of sums and of what is the same everywhere: linear in the sums, or nothing. */
static uint8_t share_of_sums(const walk *w, const og_node *node, const arguments *args)
{
    uint8_t first = w->shares[node->args[0]];
    switch ((int)node->op) {
    case OG_OP_neg:
        return OGIVE_SUM;
    case OG_OP_add:
    case OG_OP_sub:
        return args->same ? NEITHER : OGIVE_SUM;
    case OG_OP_mul:
        return args->kinds == 1 ? OGIVE_SUM : NEITHER;
    case OG_OP_div:
        return args->kinds == 1 && first == OGIVE_SUM ? OGIVE_SUM : NEITHER;
    case OG_OP_where:
        return first == OGIVE_SAME && args->same == 1 ? OGIVE_SUM : NEITHER;
    default:
        return NEITHER;
    }
}

/* The same of maxima or minima: what keeps their order. */
static uint8_t share_of_extremes(const walk *w, const og_node *node, const arguments *args)
{
    uint8_t kind = args->kind, other = kind == OGIVE_MAX ? OGIVE_MIN : OGIVE_MAX;
    bool is_first = w->shares[node->args[0]] == kind, is_alone = args->kinds == 1;
    switch ((int)node->op) {
    case OG_OP_neg:
        return other;
    case OG_OP_add:
        return is_alone ? kind : NEITHER;
    case OG_OP_sub:
        return !is_alone ? NEITHER : is_first ? kind : other;
    case OG_OP_mul:
    case OG_OP_div: {
        const og_node *by = &w->x->graph->nodes[node->args[1]];
        bool positive = by->op == OG_OP_NUMBER && by->numbers[0] > 0;
        return is_alone && is_first && positive ? kind : NEITHER;
    }
    case OG_OP_maximum:
        return kind == OGIVE_MAX ? kind : NEITHER;
    case OG_OP_minimum:
        return kind == OGIVE_MIN ? kind : NEITHER;
    default:
        return NEITHER;
    }
}

static uint8_t share_reduction(const walk *w, int32_t n, const arguments *args, uint8_t plain)
{
    uint8_t left = reduced_share(w->x->graph->nodes[n].op);
    if (og_index_summed(w->x, n, w->index))
        return args->kinds ? NEITHER : left;
    return !args->kinds ? plain : left == args->kind ? left : NEITHER;
}

static uint8_t share_product(const walk *w, int32_t n, const arguments *args, uint8_t plain)
{
    if (og_index_summed(w->x, n, w->index))
        return args->kinds ? NEITHER : OGIVE_SUM;
    if (!args->kinds)
        return plain;
    bool linear = args->kinds == 1 && args->kind == OGIVE_SUM && !args->parts;
    return linear && plain == OGIVE_SAME ? OGIVE_SUM : NEITHER;
}

/* What a process has of node n, by what it has of its arguments. */
static uint8_t share_node(const walk *w, int32_t n)
{
    const og_node *node = &w->x->graph->nodes[n];
    bool has = og_index_dim(w->x, n, w->index) != OG_NO_INDEX;
    uint8_t plain = has ? OGIVE_PART : OGIVE_SAME;
    if (node->op == OG_OP_NUMBER || node->op == OG_OP_full_like)
        return node->numbers[0] == 0 && !has ? ZERO : plain;
    if (node->op == OG_OP_count)
        return OGIVE_SAME;
    arguments args = count_arguments(w, node);
    if (args.mixed || (w->at_sums && args.kinds && args.kind == OGIVE_SUM))
        return NEITHER;
    if (og_op_is_reduction(node->op) || node->op == OG_OP_sum_like)
        return share_reduction(w, n, &args, plain);
    if (is_product(node->op))
        return share_product(w, n, &args, plain);
    if (is_view(node->op) && !has && w->shares[node->args[0]] != OGIVE_PART)
        return w->shares[node->args[0]];
    if (!args.kinds)
        return plain;
    if (has || args.parts)
        return NEITHER;
    return args.kind == OGIVE_SUM ? share_of_sums(w, node, &args)
                                  : share_of_extremes(w, node, &args);
}

/* ---- walking --------------------------------------------------------------------- */

/* Has the inputs that node depends on given as contributions. */
static void give_inputs(walk *w, int32_t node)
{
    const og_graph *graph = w->x->graph;
    memset(w->marked, 0, (size_t)graph->node_count);
    w->marked[node] = true;
    for (int32_t n = node; n >= 0; n--) {
        const og_node *at = &graph->nodes[n];
        if (!w->marked[n])
            continue;
        if (at->op == OG_OP_INPUT && !w->given[at->index])
            w->given[at->index] = w->again = true;
        for (int a = 0; a < at->arg_count; a++)
            w->marked[at->args[a]] = true;
    }
}

/* Node n cannot go on with what its arguments are: they are given otherwise, or reduced
 * before it, or the index has to be whole. */
static void refuse(walk *w, int32_t n)
{
    const og_node *node = &w->x->graph->nodes[n];
    if (w->may_give && (node->op == OG_OP_add || node->op == OG_OP_sub))
        for (int a = 0; a < 2; a++)
            if (w->shares[node->args[a]] == OGIVE_SAME && w->shares[node->args[1 - a]] == OGIVE_SUM)
                give_inputs(w, node->args[a]);
    if (w->again)
        return;
    for (int a = 0; w->may_cut && a < og_op_value_count(node->op, node->arg_count); a++)
        if (is_contribution(w->shares[node->args[a]])) {
            w->cuts[node->args[a]] = w->shares[node->args[a]];
            w->again = true;
        }
    if (!w->again)
        w->reason = "an operation on the way needs it whole";
}

static void walk_once(walk *w)
{
    const og_graph *graph = w->x->graph;
    w->again = false;
    w->reason = NULL;
    for (int32_t n = 0; n < graph->node_count && !w->again && !w->reason; n++) {
        const og_node *node = &graph->nodes[n];
        int32_t dim = og_index_dim(w->x, n, w->index);
        if (dim ==
            OG_INDEX_TWICE) /* shapes of parts would not fit, even if they alone are needed */
            w->reason = "a value has it in two dims";
        if (w->reason || !w->x->live[n])
            continue;
        if (node->op == OG_OP_INPUT)
            w->shares[n] = dim != OG_NO_INDEX      ? OGIVE_PART
                           : w->given[node->index] ? OGIVE_SUM
                                                   : OGIVE_SAME;
        else if ((w->shares[n] = share_node(w, n)) == NEITHER)
            refuse(w, n);
        if (w->cuts[n] && !w->again) /* unless an earlier cut has made it the same everywhere */
            w->cuts[n] = is_contribution(w->shares[n]) ? w->shares[n] : 0;
        if (w->cuts[n])
            w->shares[n] = OGIVE_SAME;
    }
}

static void walk_on(walk *w)
{
    do
        walk_once(w);
    while (w->again);
}

/* Tries without cuts first; only then are contributions of inputs of use. */
static void walk_all(walk *w, bool may_cut)
{
    w->may_give = w->index != OG_NOTHING && !w->at_sums;
    w->may_cut = false;
    walk_on(w);
    if (!w->reason || !may_cut)
        return;
    memset(w->given, 0, (size_t)w->x->graph->input_count);
    w->may_give = false;
    w->may_cut = true;
    walk_on(w);
}

/* ---- divisions --------------------------------------------------------------------- */

/* Cuts in the order of their nodes, each with the stage that ends in it: behind all stages
 * whose reduced values it needs. */
static ogive_status list_cuts(const walk *w, og_arena *arena, og_division *out, ogive_error *error)
{
    const og_graph *graph = w->x->graph;
    size_t nodes = (size_t)graph->node_count;
    int32_t *stage = OG_ARENA_NEW(arena, int32_t, nodes);
    out->cuts = OG_ARENA_NEW(arena, og_cut, nodes);
    if (!stage || !out->cuts)
        return og_fail_memory(error, nodes * sizeof *out->cuts);
    out->stage_count = 1;
    for (int32_t n = 0; n < graph->node_count; n++) {
        const og_node *node = &graph->nodes[n];
        for (int a = 0; a < node->arg_count; a++) {
            int32_t arg = node->args[a], after = stage[arg] + (w->cuts[arg] != 0);
            stage[n] = stage[n] > after ? stage[n] : after;
        }
        if (!w->cuts[n])
            continue;
        out->cuts[out->cut_count++] = (og_cut){n, (ogive_share)w->cuts[n], stage[n]};
        if (out->stage_count < stage[n] + 2)
            out->stage_count = stage[n] + 2;
    }
    return OGIVE_OK;
}

static ogive_placement place(ogive_share share, int32_t dim)
{
    return (ogive_placement){share, share == OGIVE_PART ? dim : -1};
}

static void place_values(walk *w, og_division *out)
{
    const og_graph *graph = w->x->graph;
    for (int32_t n = 0; n < graph->node_count; n++)
        if (graph->nodes[n].op == OG_OP_INPUT) {
            int32_t input = graph->nodes[n].index, dim = og_index_dim(w->x, n, w->index);
            ogive_share share = w->given[input] ? OGIVE_SUM : OGIVE_SAME;
            out->inputs[input] = place(dim >= 0 ? OGIVE_PART : share, dim);
        }
    for (int32_t r = 0; r < graph->result_count && !out->reason; r++) {
        int32_t n = graph->results[r];
        uint8_t share = w->shares[n] == ZERO ? OGIVE_SAME : w->shares[n];
        out->results[r] = place((ogive_share)share, og_index_dim(w->x, n, w->index));
    }
}

static ogive_status divide_by(og_indices *x, int32_t index, const bool *given, bool at_sums,
                              og_arena *arena, og_division *out, ogive_error *error)
{
    const og_graph *graph = x->graph;
    size_t nodes = (size_t)graph->node_count, inputs = (size_t)graph->input_count;
    walk w = {.x = x, .index = index, .at_sums = at_sums};
    w.shares = OG_ARENA_NEW(arena, uint8_t, nodes);
    w.cuts = OG_ARENA_NEW(arena, uint8_t, nodes);
    w.given = OG_ARENA_NEW(arena, bool, inputs);
    w.marked = OG_ARENA_NEW(arena, bool, nodes);
    out->inputs = OG_ARENA_NEW(arena, ogive_placement, inputs);
    out->results = OG_ARENA_NEW(arena, ogive_placement, (size_t)graph->result_count);
    if (!w.shares || !w.cuts || !w.given || !w.marked || !out->inputs || !out->results)
        return og_fail_memory(error, 3 * nodes + inputs * sizeof *out->inputs);
    out->index = index;
    for (int32_t i = 0; given && i < graph->input_count; i++)
        w.given[i] = given[i];
    for (int32_t n = 0; n < graph->node_count && index >= 0; n++) {
        int32_t dim = og_index_dim(x, n, index);
        if (graph->nodes[n].op == OG_OP_INPUT && dim >= 0)
            out->extent = x->types[n].shape[dim];
    }
    if (index >= 0 && x->pinned[og_index_root(x, index)])
        w.reason = "an operation on the way needs it whole";
    else
        walk_all(&w, index != OG_NOTHING);
    out->reason = w.reason;
    place_values(&w, out);
    return out->reason ? OGIVE_OK : list_cuts(&w, arena, out, error);
}

/* Does a node of this op, whose value is needed, sum over the index or count it? */
static bool has_op_over(og_indices *x, og_op op, int32_t index)
{
    for (int32_t n = 0; n < x->graph->node_count; n++)
        if (x->graph->nodes[n].op == op && x->live[n] && og_index_summed(x, n, index))
            return true;
    return false;
}

/* Is the index a dim of a tensor whose sizes the formula's text gives? They are the whole's, and are
 * checked even where only the tensor's shape is needed. */
static bool has_sizes_over(og_indices *x, int32_t index)
{
    const og_graph *graph = x->graph;
    for (int32_t n = 0; n < graph->node_count; n++)
        if (graph->nodes[n].has_sizes && og_index_summed(x, n, index))
            return true;
    for (int32_t i = 0; i < graph->check_count; i++)
        if (og_index_dim(x, graph->checks[i].node, index) != OG_NO_INDEX)
            return true;
    return false;
}

/* The indices of the graph in which such sums can be cut, made when first asked for. */
static ogive_status find_spread(og_divisions *all, const og_input_type *inputs, og_indices *spread,
                                ogive_error *error)
{
    if (all->spread.nodes)
        return OGIVE_OK;
    OG_TRY(og_spread(all->graph, &all->spread, error));
    all->spread_types = OG_ARENA_NEW(&all->arena, og_typed, (size_t)all->spread.node_count);
    if (!all->spread_types)
        return og_fail_memory(error, (size_t)all->spread.node_count * sizeof(og_typed));
    OG_TRY(og_infer(&all->spread, inputs, all->spread_types, error));
    return og_find_indices(&all->spread, all->spread_types, &all->arena, spread, error);
}

static bool is_of_input(og_indices *x, int32_t index)
{
    for (int32_t n = 0; n < x->graph->node_count; n++)
        if (x->graph->nodes[n].op == OG_OP_INPUT && og_index_dim(x, n, index) != OG_NO_INDEX)
            return true;
    return false;
}

static ogive_status divide(const og_graph *graph, const og_input_type *inputs, bool at_sums,
                           og_divisions *out, ogive_error *error)
{
    og_indices plain, spread = {0};
    int32_t dims = graph->input_count * OG_MAX_RANK;
    out->types = OG_ARENA_NEW(&out->arena, og_typed, (size_t)graph->node_count);
    out->divisions = OG_ARENA_NEW(&out->arena, og_division, (size_t)dims);
    if (!out->types || !out->divisions)
        return og_fail_memory(error, (size_t)graph->node_count * sizeof *out->types);
    OG_TRY(og_infer(graph, inputs, out->types, error));
    OG_TRY(og_find_indices(graph, out->types, &out->arena, &plain, error));
    for (int32_t i = 0; i < dims; i++) {
        if (og_index_root(&plain, i) != i || !is_of_input(&plain, i))
            continue;
        og_division *next = &out->divisions[out->count++];
        next->counts = has_op_over(&plain, OG_OP_count, i) || has_sizes_over(&plain, i);
        next->spread = has_op_over(&plain, OG_OP_sumexp, i);
        if (next->spread)
            OG_TRY(find_spread(out, inputs, &spread, error));
        OG_TRY(
            divide_by(next->spread ? &spread : &plain, i, NULL, at_sums, &out->arena, next, error));
    }
    return OGIVE_OK;
}

ogive_status og_divide(const og_graph *graph, const og_input_type *inputs, bool at_sums,
                       og_divisions *out, ogive_error *error)
{
    *out = (og_divisions){.graph = graph};
    ogive_status status = divide(graph, inputs, at_sums, out, error);
    if (status)
        og_divisions_free(out);
    return status;
}

ogive_status og_divide_given(const og_divisions *divisions, const bool *given, og_arena *arena,
                             og_division *out, ogive_error *error)
{
    og_indices x;
    *out = (og_division){0};
    OG_TRY(og_find_indices(divisions->graph, divisions->types, arena, &x, error));
    return divide_by(&x, OG_NOTHING, given, false, arena, out, error);
}

void og_divisions_free(og_divisions *divisions)
{
    og_graph_free(&divisions->spread);
    og_arena_free(&divisions->arena);
    *divisions = (og_divisions){0};
}
