/* SPDX-License-Identifier: MIT
 *
 * divide_indices.c - which dims of a graph's values have to be divided together; see
 * divide.h. One pass over the nodes joins the dims of each with those of its arguments, by
 * what its op does with them.
 */
#include "formula/divide.h"

#include <string.h>

/* ---- joining ------------------------------------------------------------------- */

int32_t og_index_root(og_indices *x, int32_t index)
{
    while (index >= 0 && x->parent[index] != index)
        index = x->parent[index] = x->parent[x->parent[index]];
    return index;
}

/* Makes two indices one; either may be none. */
static int32_t join(og_indices *x, int32_t a, int32_t b)
{
    if (a < 0 || b < 0)
        return a < 0 ? b : a;
    a = og_index_root(x, a);
    b = og_index_root(x, b);
    int32_t first = a < b ? a : b, other = a < b ? b : a;
    x->parent[other] = first;
    x->pinned[first] |= x->pinned[other];
    return first;
}

/* The last dims of a value, one by one, with those of what it is broadcast to. */
static void join_last(og_indices *x, int32_t *to, int rank, const int32_t *from, int count)
{
    for (int i = 0; i < count; i++)
        if (rank - count + i >= 0)
            to[rank - count + i] = join(x, to[rank - count + i], from[i]);
}

static void add_sum(og_indices *x, int32_t node, int32_t index)
{
    int32_t *at = x->sums[node];
    if (index < 0)
        return;
    while (*at != OG_NO_INDEX)
        at++;
    *at = index;
}

/* ---- nodes --------------------------------------------------------------------- */

static void find_reduction(og_indices *x, int32_t n, int32_t arg)
{
    const og_typed *type = &x->types[n], *from = &x->types[arg];
    for (int i = 0, to = 0; i < from->rank; i++) {
        bool kept = !(type->reduced >> i & 1);
        if (kept)
            x->of[n][to] = x->of[arg][i];
        else
            add_sum(x, n, x->of[arg][i]);
        to += kept || type->rank == from->rank;
    }
}

/* input (.., k), weight (n, k) or (k,): (.., n) or (..) */
static void find_linear(og_indices *x, int32_t n, const og_node *node)
{
    int32_t a = node->args[0], b = node->args[1];
    int a_rank = x->types[a].rank, b_rank = x->types[b].rank;
    memcpy(x->of[n], x->of[a], sizeof(int32_t) * (size_t)(a_rank - 1));
    if (b_rank == 2)
        x->of[n][a_rank - 1] = x->of[b][0];
    add_sum(x, n, join(x, x->of[a][a_rank - 1], x->of[b][b_rank - 1]));
}

/* a (.., m, k) times b (.., k, n); either may be a vector, which leaves no dim. */
static void find_matmul(og_indices *x, int32_t n, const og_node *node)
{
    int32_t a = node->args[0], b = node->args[1], *own = x->of[n];
    int a_rank = x->types[a].rank, b_rank = x->types[b].rank, rank = x->types[n].rank;
    int rows = a_rank > 1, columns = b_rank > 1, lead = rank - rows - columns;
    add_sum(x, n, join(x, x->of[a][a_rank - 1], x->of[b][columns ? b_rank - 2 : 0]));
    if (columns)
        own[rank - 1] = x->of[b][b_rank - 1];
    if (rows)
        own[rank - 1 - columns] = x->of[a][a_rank - 2];
    join_last(x, own, lead, x->of[a], a_rank > 2 ? a_rank - 2 : 0);
    join_last(x, own, lead, x->of[b], b_rank > 2 ? b_rank - 2 : 0);
}

/* a (.., k, m) transposed times b (.., k, n), like (.., m, n): also summed over the batch
 * dims that like does not have. */
static void find_product_t(og_indices *x, int32_t n, const og_node *node)
{
    int32_t a = node->args[0], b = node->args[1], like = node->args[2], *own = x->of[n];
    int a_rank = x->types[a].rank, b_rank = x->types[b].rank, rank = x->types[n].rank;
    int lead = (a_rank > b_rank ? a_rank : b_rank) - 2;
    int32_t batch[OG_MAX_RANK];
    memset(batch, OG_NO_INDEX, sizeof batch);
    add_sum(x, n, join(x, x->of[a][a_rank - 2], x->of[b][b_rank - 2]));
    join_last(x, batch, lead, x->of[a], a_rank - 2);
    join_last(x, batch, lead, x->of[b], b_rank - 2);
    own[rank - 2] = join(x, x->of[a][a_rank - 1], x->of[like][rank - 2]);
    own[rank - 1] = join(x, x->of[b][b_rank - 1], x->of[like][rank - 1]);
    for (int i = 0; i < lead; i++) {
        int to = i - lead + rank - 2;
        if (to >= 0 && x->types[n].shape[to] != 1)
            own[to] = join(x, batch[i], x->of[like][to]);
        else
            add_sum(x, n, batch[i]);
    }
}

static void find_sum_like(og_indices *x, int32_t n, int32_t arg, int32_t like)
{
    const og_typed *type = &x->types[n], *from = &x->types[arg];
    int first = from->rank - type->rank;
    for (int i = 0; i < from->rank; i++)
        if (type->reduced >> i & 1)
            add_sum(x, n, x->of[arg][i]);
        else if (i >= first)
            x->of[n][i - first] = join(x, x->of[arg][i], x->of[like][i - first]);
}

static void find_expand(og_indices *x, int32_t n, int32_t arg, const og_node *node)
{
    const og_typed *type = &x->types[n];
    for (int i = 0, at = 0; i < type->rank; i++) {
        bool reduced = type->reduced >> i & 1;
        if (!reduced)
            x->of[n][i] = join(x, x->of[n][i], x->of[arg][at]);
        at += !reduced || node->keepdim;
    }
}

static void find_reshape(og_indices *x, int32_t n, int32_t arg)
{
    const og_typed *type = &x->types[n], *from = &x->types[arg];
    for (int i = 0, at = 0; i < type->rank; i++) {
        if (type->shape[i] == 1)
            continue;
        while (from->shape[at] == 1)
            at++;
        x->of[n][i] = join(x, x->of[n][i], x->of[arg][at++]);
    }
}

/* The ops of derivatives that take the shape of their last argument. */
static void find_like(og_indices *x, int32_t n, const og_node *node)
{
    int32_t arg = node->args[0], like = node->args[node->arg_count - 1];
    if (node->op == OG_OP_sum_like) {
        find_sum_like(x, n, arg, like);
        return;
    }
    memcpy(x->of[n], x->of[like], sizeof x->of[n]);
    if (node->op == OG_OP_expand)
        find_expand(x, n, arg, node);
    else if (node->op == OG_OP_reshape_like)
        find_reshape(x, n, arg);
    else /* broadcast_like, cast_like */
        join_last(x, x->of[n], x->types[n].rank, x->of[arg], x->types[arg].rank);
}

/* A vector as a row or a column; what has more dims stays. */
static void find_matrix(og_indices *x, int32_t n, int32_t arg, bool row)
{
    if (x->types[arg].rank > 1)
        memcpy(x->of[n], x->of[arg], sizeof x->of[n]);
    else if (x->types[arg].rank)
        x->of[n][row] = x->of[arg][0];
}

static void find_pointwise(og_indices *x, int32_t n, const og_node *node)
{
    for (int a = 0; a < node->arg_count; a++)
        join_last(x, x->of[n], x->types[n].rank, x->of[node->args[a]],
                  x->types[node->args[a]].rank);
}

/* Dims from `first` on, before `end`, of what node n reads must be whole, and so must what meets
 * its own. */
static void find_pinned(og_indices *x, int32_t n, const og_node *node, int32_t first, int32_t end)
{
    for (int a = 0; a < node->arg_count; a++)
        for (int32_t i = first; i < x->types[node->args[a]].rank && i < end; i++)
            if (x->of[node->args[a]][i] >= 0)
                x->pinned[og_index_root(x, x->of[node->args[a]][i])] = true;
    for (int32_t i = first; i < x->types[n].rank && i < end; i++)
        if (x->types[n].shape[i] != 1) {
            x->of[n][i] = (x->graph->input_count + n) * OG_MAX_RANK + i;
            x->pinned[x->of[n][i]] = true;
        }
}

static void find_count(og_indices *x, int32_t n, const og_node *node)
{
    int32_t arg = node->args[0], rank = x->types[arg].rank;
    for (int32_t i = 0; i < rank; i++) {
        bool named = false;
        for (int d = 0; d < node->dim_count; d++)
            named |= (node->dims[d] + rank) % rank == i;
        if (named != node->all_dims)
            add_sum(x, n, x->of[arg][i]);
    }
}

/* Windows: dims before those that they slide along are the argument's. (slide_back's like has dims
 * that must be whole, too: it is what the windows slid along.) */
static void find_slid(og_indices *x, int32_t n, const og_node *node)
{
    int32_t first = x->types[n].rank - 2 * node->sliding.rank;
    memcpy(x->of[n], x->of[node->args[0]], (size_t)first * sizeof x->of[n][0]);
    find_pinned(x, n, node, first, OG_MAX_RANK);
}

/* A part of a dim, or where it belongs: the other dims are the argument's. */
static void find_sliced(og_indices *x, int32_t n, const og_node *node)
{
    int32_t dim = node->dims[0] + (node->dims[0] < 0 ? x->types[n].rank : 0);
    memcpy(x->of[n], x->of[node->args[0]], sizeof x->of[n]);
    x->of[n][dim] = OG_NO_INDEX;
    find_pinned(x, n, node, dim, dim + 1);
}

/* The last `count` dims of value must be whole. */
static void pin_last(og_indices *x, int32_t value, int32_t count)
{
    for (int32_t i = x->types[value].rank - count; i < x->types[value].rank; i++)
        if (x->of[value][i] >= 0)
            x->pinned[og_index_root(x, x->of[value][i])] = true;
}

/* A convolution, whose result is an image, or (gives_w) a weight. Batches and channels are divided
 * as those of a product; elements, taps and places must be whole, and so must channels in groups. */
static void find_convolution(og_indices *x, int32_t n, const og_node *node)
{
    bool gives_x = og_op_convolves_back(node->op), gives_w = node->op == OG_OP_convolve_weight;
    int32_t one = node->args[0], two = node->args[1], *own = x->of[n];
    int32_t rank = node->sliding.rank, has_groups = node->numbers[1] != 1;
    bool has_batch = x->types[one].rank > rank + 1;
    for (int32_t i = 0; i < x->types[n].rank; i++)
        if (x->types[n].shape[i] != 1 && (i >= x->types[n].rank - rank || has_groups))
            own[i] = (x->graph->input_count + n) * OG_MAX_RANK + i;
    if (has_batch && gives_w)
        add_sum(x, n, join(x, x->of[one][0], x->of[two][0]));
    else if (has_batch)
        own[0] = x->of[one][0];
    if (!has_groups && gives_w) {
        own[0] = x->of[two][has_batch];
        own[1] = x->of[one][has_batch];
    } else if (!has_groups) {
        own[has_batch] = x->of[two][gives_x];
        add_sum(x, n, join(x, x->of[one][has_batch], x->of[two][!gives_x]));
    }
    for (int a = 0; a < node->arg_count; a++)
        pin_last(x, node->args[a], rank + has_groups);
    if (has_groups && !gives_w)
        pin_last(x, two, rank + 2);
    pin_last(x, n, rank + (has_groups ? 1 + gives_w : 0));
}

static void find_special(og_indices *x, int32_t n, const og_node *node)
{
    int32_t arg = node->args[0], *own = x->of[n];
    switch ((int)node->op) {
    case OG_OP_count: /* a number, that of the whole */
        find_count(x, n, node);
        return;
    case OG_OP_t:
    case OG_OP_transpose:
        memcpy(own, x->of[arg], sizeof x->of[n]);
        own[x->types[n].swap[0]] = x->of[arg][x->types[n].swap[1]];
        own[x->types[n].swap[1]] = x->of[arg][x->types[n].swap[0]];
        return;
    case OG_OP_linear_product:
        find_linear(x, n, node);
        return;
    case OG_OP_matmul:
        find_matmul(x, n, node);
        return;
    case OG_OP_product_t:
        find_product_t(x, n, node);
        return;
    case OG_OP_sum_like:
    case OG_OP_broadcast_like:
    case OG_OP_expand:
    case OG_OP_cast_like:
    case OG_OP_reshape_like:
        find_like(x, n, node);
        return;
    case OG_OP_row:
    case OG_OP_column:
        find_matrix(x, n, arg, node->op == OG_OP_row);
        return;
    case OG_OP_windows:
    case OG_OP_slide:
    case OG_OP_slide_back:
        find_slid(x, n, node);
        return;
    case OG_OP_narrow:
    case OG_OP_narrow_back:
    case OG_OP_portion:
    case OG_OP_portion_back:
        find_sliced(x, n, node);
        return;
    case OG_OP_convolve:
    case OG_OP_convolve_like:
    case OG_OP_convolve_back:
    case OG_OP_convolve_back_like:
    case OG_OP_convolve_weight:
        find_convolution(x, n, node);
        return;
    case OG_OP_bias_of:
    case OG_OP_channel_like:
        if (x->types[arg].rank && x->types[n].rank)
            own[0] = x->of[arg][0];
        return;
    case OG_OP_full_like:
    case OG_OP_part_size: /* of windows, along whole dims */
        memcpy(own, x->of[arg], sizeof x->of[n]);
        return;
    case OG_OP_where:
    case OG_OP_float32:
    case OG_OP_float16:
    case OG_OP_bfloat16:
    case OG_OP_float64:
    case OG_OP_boolean:
        find_pointwise(x, n, node);
        return;
    default:
        find_pinned(x, n, node, 0, OG_MAX_RANK); /* nothing is known of it here */
    }
}

static void find_node(og_indices *x, int32_t n)
{
    const og_node *node = &x->graph->nodes[n];
    const og_typed *type = &x->types[n];
    memset(x->of[n], OG_NO_INDEX, sizeof x->of[n]);
    memset(x->sums[n], OG_NO_INDEX, sizeof x->sums[n]);
    if (node->op == OG_OP_INPUT) {
        for (int i = 0; i < type->rank; i++)
            if (type->shape[i] != 1)
                x->of[n][i] = node->index * OG_MAX_RANK + i;
        return;
    }
    if (node->op == OG_OP_NUMBER)
        return;
    switch (og_function_of(node->op)->kind) {
    case OG_SCALAR:
    case OG_MASKING:
        find_pointwise(x, n, node);
        return;
    case OG_REDUCTION:
        find_reduction(x, n, node->args[0]);
        return;
    default:
        find_special(x, n, node);
    }
}

static void find_live(og_indices *x)
{
    const og_graph *graph = x->graph;
    for (int32_t r = 0; r < graph->result_count; r++)
        x->live[graph->results[r]] = true;
    for (int32_t n = graph->node_count; n-- > 0;) {
        const og_node *node = &graph->nodes[n];
        if (!x->live[n] || node->op == OG_OP_count || node->op == OG_OP_full_like)
            continue;
        for (int a = 0; a < og_op_value_count(node->op, node->arg_count); a++)
            x->live[node->args[a]] = true;
    }
}

/* ---- answers ------------------------------------------------------------------- */

int32_t og_index_dim(og_indices *x, int32_t node, int32_t index)
{
    int32_t found = OG_NO_INDEX;
    for (int i = 0; i < x->types[node].rank; i++)
        if (og_index_root(x, x->of[node][i]) == index)
            found = found == OG_NO_INDEX ? i : OG_INDEX_TWICE;
    return found;
}

bool og_index_summed(og_indices *x, int32_t node, int32_t index)
{
    for (const int32_t *at = x->sums[node]; *at != OG_NO_INDEX; at++)
        if (og_index_root(x, *at) == index)
            return true;
    return false;
}

ogive_status og_find_indices(const og_graph *graph, const og_typed *types, og_arena *arena,
                             og_indices *out, ogive_error *error)
{
    size_t nodes = (size_t)graph->node_count;
    size_t dims = ((size_t)graph->input_count + nodes) * OG_MAX_RANK;
    *out = (og_indices){.graph = graph, .types = types};
    out->parent = OG_ARENA_NEW(arena, int32_t, dims);
    out->of = og_arena_alloc(arena, nodes, sizeof *out->of);
    out->sums = og_arena_alloc(arena, nodes, sizeof *out->sums);
    out->pinned = OG_ARENA_NEW(arena, bool, dims);
    out->live = OG_ARENA_NEW(arena, bool, nodes);
    if (!out->parent || !out->of || !out->sums || !out->pinned || !out->live)
        return og_fail_memory(error, dims * sizeof *out->parent + nodes * sizeof *out->sums);
    for (size_t i = 0; i < dims; i++)
        out->parent[i] = (int32_t)i;
    for (int32_t n = 0; n < graph->node_count; n++)
        find_node(out, n);
    find_live(out);
    return OGIVE_OK;
}
