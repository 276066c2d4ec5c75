/* SPDX-License-Identifier: MIT
 *
 * pytorch_sizes.c - which sizes of the inputs' shapes a formula wants to be equal: those
 * that meet by broadcasting, or that a product sums over. Found on the example shapes,
 * which say what is broadcast (what is 1) and nothing else.
 */
#include "pytorch/pytorch_program.h"

#include <stdio.h>
#include <string.h>

enum { NONE = -1 };

/* Sizes are known by input * OG_MAX_RANK + dim; equal ones share a root. */
typedef struct {
    const og_graph *graph;
    const og_typed *types;
    int32_t *parent;               /* [size] */
    int64_t *fixed;                /* [size]: what the formula names, or 0; of roots */
    int32_t (*sizes)[OG_MAX_RANK]; /* [node][dim]: a size, or NONE where it is 1 */
} finding;

static int32_t find_root(finding *f, int32_t size)
{
    while (f->parent[size] != size)
        size = f->parent[size] = f->parent[f->parent[size]];
    return size;
}

/* *to and from are the same size. */
static void meet(finding *f, int32_t *to, int32_t from)
{
    if (from == NONE)
        return;
    if (*to == NONE) {
        *to = from;
        return;
    }
    int32_t a = find_root(f, *to), b = find_root(f, from);
    int32_t first = a < b ? a : b, second = a < b ? b : a;
    f->parent[second] = first;
    if (!f->fixed[first])
        f->fixed[first] = f->fixed[second];
}

/* Dims of arg meet those of node, from the last on. */
static void meet_broadcast(finding *f, int32_t node, int32_t arg)
{
    int32_t rank = f->types[node].rank, own = f->types[arg].rank;
    for (int32_t d = 0; d < own; d++)
        if (rank - own + d >= 0)
            meet(f, &f->sizes[node][rank - own + d], f->sizes[arg][d]);
}

static void find_reduced(finding *f, int32_t node, int32_t arg)
{
    const og_typed *type = &f->types[node], *from = &f->types[arg];
    bool keepdim = type->rank == from->rank;
    for (int32_t d = 0, to = 0; d < from->rank; d++) {
        bool kept = !(type->reduced >> d & 1);
        if (kept)
            f->sizes[node][to] = f->sizes[arg][d];
        to += kept || keepdim;
    }
}

static void find_swapped(finding *f, int32_t node, int32_t arg)
{
    const og_typed *type = &f->types[node];
    memcpy(f->sizes[node], f->sizes[arg], sizeof f->sizes[node]);
    f->sizes[node][type->swap[0]] = f->sizes[arg][type->swap[1]];
    f->sizes[node][type->swap[1]] = f->sizes[arg][type->swap[0]];
}

static void find_linear(finding *f, int32_t node, int32_t x, int32_t w)
{
    int32_t x_rank = f->types[x].rank, w_rank = f->types[w].rank;
    for (int32_t d = 0; d + 1 < x_rank; d++)
        f->sizes[node][d] = f->sizes[x][d];
    if (w_rank == 2)
        f->sizes[node][x_rank - 1] = f->sizes[w][0];
    meet(f, &f->sizes[x][x_rank - 1], f->sizes[w][w_rank - 1]);
}

static void find_matmul(finding *f, int32_t node, int32_t x, int32_t y)
{
    int32_t rank = f->types[node].rank, x_rank = f->types[x].rank, y_rank = f->types[y].rank;
    int32_t has_m = x_rank > 1, has_n = y_rank > 1;
    meet(f, &f->sizes[x][x_rank - 1], f->sizes[y][has_n ? y_rank - 2 : 0]);
    if (has_n)
        f->sizes[node][rank - 1] = f->sizes[y][y_rank - 1];
    if (has_m)
        f->sizes[node][rank - 1 - has_n] = f->sizes[x][x_rank - 2];
    for (int side = 0; side < 2; side++) {
        int32_t batch = (side ? y_rank : x_rank) - 2, to = rank - has_m - has_n - batch;
        for (int32_t d = 0; d < batch; d++)
            meet(f, &f->sizes[node][to + d], f->sizes[side ? y : x][d]);
    }
}

/* layer_norm(x, 64): the formula says what the last sizes are. */
static void fix_sizes(finding *f, const og_node *node)
{
    int32_t arg = node->args[0], first = f->types[arg].rank - node->dim_count;
    for (int32_t d = 0; d < node->dim_count; d++)
        if (f->sizes[arg][first + d] != NONE)
            f->fixed[find_root(f, f->sizes[arg][first + d])] = node->sizes[d];
}

/* Are these windows of adaptive_avg_pool(x, 1), a mean whatever the sizes are (plan_whole.c)? A
 * maximum's gradient asks for elements' numbers, which files do not have. */
static bool is_mean(const og_node *node)
{
    if (node->op != OG_OP_windows || node->numbers[1] != 0)
        return false;
    for (int32_t i = 0; i < node->sliding.rank; i++)
        if (node->sliding.stride[i] != 0 || node->sliding.size[i] != 1)
            return false;
    return true;
}

/* (.., h, w) becomes (.., 1, 1, h, w). */
static void find_taps(finding *f, int32_t node, int32_t arg)
{
    int32_t rank = f->types[arg].rank, taps = f->graph->nodes[node].sliding.rank;
    for (int32_t d = 0; d < rank; d++)
        f->sizes[node][d < rank - taps ? d : d + taps] = f->sizes[arg][d];
}

static ogive_status find_node(finding *f, int32_t n, ogive_error *error)
{
    const og_node *node = &f->graph->nodes[n];
    if (node->has_sizes)
        fix_sizes(f, node);
    switch ((int)node->op) {
    case OG_OP_INPUT:
        for (int32_t d = 0; d < f->types[n].rank; d++)
            if (f->types[n].shape[d] != 1)
                f->sizes[n][d] = node->index * OG_MAX_RANK + d;
        return OGIVE_OK;
    case OG_OP_NUMBER:
    case OG_OP_count:
    case OG_OP_part_size: /* of adaptive_avg_pool(x, 1): all others are refused before */
        return OGIVE_OK;
    case OG_OP_expand:
        memcpy(f->sizes[n], f->sizes[node->args[1]], sizeof f->sizes[n]);
        return OGIVE_OK;
    case OG_OP_t:
    case OG_OP_transpose:
        find_swapped(f, n, node->args[0]);
        return OGIVE_OK;
    case OG_OP_linear_product:
        find_linear(f, n, node->args[0], node->args[1]);
        return OGIVE_OK;
    case OG_OP_matmul:
        find_matmul(f, n, node->args[0], node->args[1]);
        return OGIVE_OK;
    case OG_OP_where:
        break;
    default:
        if (og_op_is_reduction(node->op)) {
            find_reduced(f, n, node->args[0]);
            return OGIVE_OK;
        }
        if (is_mean(node)) {
            find_taps(f, n, node->args[0]);
            return OGIVE_OK;
        }
        if (og_function_of(node->op)->kind == OG_SPECIAL)
            OG_FAIL(error, OGIVE_UNSUPPORTED, node->offset,
                    "%s: a PyTorch file computes in one dtype, that of its inputs",
                    og_node_label(f->graph, node));
    }
    for (int32_t a = 0; a < node->arg_count; a++)
        meet_broadcast(f, n, node->args[a]);
    return OGIVE_OK;
}

/* The least prime above *last that no formula's size is. */
static int64_t next_prime(const finding *f, int32_t count, int64_t *last)
{
    for (;;) {
        int64_t candidate = ++*last;
        bool is_good = true;
        for (int64_t d = 2; d * d <= candidate; d++)
            is_good &= candidate % d != 0;
        for (int32_t s = 0; s < count; s++)
            is_good &= f->fixed[s] != candidate;
        if (is_good)
            return candidate;
    }
}

static void number_classes(finding *f, og_pytorch_sizes *sizes)
{
    int32_t count = f->graph->input_count * OG_MAX_RANK;
    int64_t last = 4;
    for (int32_t n = 0; n < f->graph->node_count; n++) {
        const og_node *node = &f->graph->nodes[n];
        if (node->op != OG_OP_INPUT)
            continue;
        og_pytorch_shape *shape = &sizes->shapes[node->index];
        shape->rank = f->types[n].rank;
        for (int32_t d = 0; d < shape->rank; d++) {
            shape->shape[d] = 1;
            if (f->sizes[n][d] == NONE)
                continue;
            int32_t root = find_root(f, f->sizes[n][d]), c = 0;
            while (c < sizes->count &&
                   find_root(f, sizes->input[c] * OG_MAX_RANK + sizes->dim[c]) != root)
                c++;
            if (c == sizes->count) {
                sizes->input[c] = node->index;
                sizes->dim[c] = d;
                sizes->is_fixed[c] = f->fixed[root] != 0;
                sizes->value[c] = f->fixed[root] ? f->fixed[root] : next_prime(f, count, &last);
                sizes->count++;
            }
            shape->shape[d] = sizes->value[c];
        }
    }
}

static ogive_status new_finding(const og_graph *graph, og_arena *arena, finding *f,
                                og_pytorch_sizes *sizes, ogive_error *error)
{
    size_t nodes = (size_t)graph->node_count, inputs = (size_t)graph->input_count;
    size_t count = inputs * OG_MAX_RANK;
    *f = (finding){.graph = graph};
    f->parent = OG_ARENA_NEW(arena, int32_t, count);
    f->fixed = OG_ARENA_NEW(arena, int64_t, count);
    f->sizes = og_arena_alloc(arena, nodes, sizeof *f->sizes);
    sizes->value = OG_ARENA_NEW(arena, int64_t, count);
    sizes->is_fixed = OG_ARENA_NEW(arena, bool, count);
    sizes->input = OG_ARENA_NEW(arena, int32_t, count);
    sizes->dim = OG_ARENA_NEW(arena, int32_t, count);
    sizes->shapes = OG_ARENA_NEW(arena, og_pytorch_shape, inputs);
    if (!f->parent || !f->fixed || !f->sizes || !sizes->value || !sizes->is_fixed ||
        !sizes->input || !sizes->dim || !sizes->shapes)
        return og_fail_memory(error, nodes * sizeof *f->sizes);
    memset(f->sizes, -1, nodes * sizeof *f->sizes);
    for (size_t s = 0; s < count; s++)
        f->parent[s] = (int32_t)s;
    return OGIVE_OK;
}

ogive_status og_pytorch_find_sizes(const og_graph *graph, const og_pytorch_shape *examples,
                                   og_arena *arena, og_pytorch_sizes *sizes, ogive_error *error)
{
    finding f;
    og_typed *types = OG_ARENA_NEW(arena, og_typed, (size_t)graph->node_count);
    og_input_type *inputs = OG_ARENA_NEW(arena, og_input_type, (size_t)graph->input_count);
    if (!types || !inputs)
        return og_fail_memory(error, (size_t)graph->node_count * sizeof *types);
    OG_TRY(new_finding(graph, arena, &f, sizes, error));
    for (int32_t i = 0; i < graph->input_count; i++) {
        inputs[i].rank = examples[i].rank;
        memcpy(inputs[i].shape, examples[i].shape, sizeof inputs[i].shape);
    }
    OG_TRY(og_infer(graph, inputs, types, error));
    f.types = types;
    for (int32_t n = 0; n < graph->node_count; n++)
        OG_TRY(find_node(&f, n, error));
    number_classes(&f, sizes);
    return OGIVE_OK;
}

/* ---- what is not given --------------------------------------------------------------------- */

static int32_t find_input_node(const og_graph *graph, int32_t input)
{
    int32_t n = 0;
    while (graph->nodes[n].op != OG_OP_INPUT || graph->nodes[n].index != input)
        n++;
    return n;
}

/* The weight of linear(x, ..) is (size, x's last), what is added to a linear (size,), what windows
 * slide over has a batch and channels, anything else is (size, size). */
static void guess_shape(const og_graph *graph, int32_t input, int64_t size,
                        og_pytorch_shape *shapes)
{
    int32_t node = find_input_node(graph, input);
    og_pytorch_shape *shape = &shapes[input];
    *shape = (og_pytorch_shape){.rank = 2, .shape = {size, size}};
    for (int32_t n = 0; n < graph->node_count; n++) {
        const og_node *of = &graph->nodes[n];
        if (of->op == OG_OP_linear_product && of->args[1] == node) {
            const og_node *x = &graph->nodes[of->args[0]];
            const og_pytorch_shape *given = x->op == OG_OP_INPUT ? &shapes[x->index] : NULL;
            if (given && given->rank > 0)
                shape->shape[1] = given->shape[given->rank - 1];
            return;
        }
        if (of->op == OG_OP_add && of->args[1] == node &&
            graph->nodes[of->args[0]].op == OG_OP_linear_product) {
            shape->rank = 1;
            return;
        }
        if (of->sliding.rank && of->args[0] == node)
            while (shape->rank < of->sliding.rank + 2)
                shape->shape[shape->rank++] = size;
    }
}

/* Tries size for what is not given. */
static ogive_status try_size(const og_graph *graph, const og_pytorch_role *roles,
                             const og_pytorch_shape *given, int64_t size, og_arena *arena,
                             og_pytorch_sizes *sizes, ogive_error *error)
{
    size_t count = (size_t)graph->input_count;
    og_pytorch_shape *shapes = OG_ARENA_NEW(arena, og_pytorch_shape, count);
    if (!shapes)
        return og_fail_memory(error, count * sizeof *shapes);
    memcpy(shapes, given, count * sizeof *shapes);
    for (int32_t i = 0; i < graph->input_count; i++) {
        if (roles[i] == OG_PYTORCH_SCALAR)
            shapes[i].rank = 0;
        else if (shapes[i].rank < 0)
            guess_shape(graph, i, size, shapes);
    }
    memset(sizes, 0, sizeof *sizes);
    return og_pytorch_find_sizes(graph, shapes, arena, sizes, error);
}

/* The first tensor whose shape is not given, or -1. */
static int32_t find_guessed(const og_graph *graph, const og_pytorch_role *roles,
                            const og_pytorch_shape *given)
{
    for (int32_t i = 0; i < graph->input_count; i++)
        if (given[i].rank < 0 && roles[i] != OG_PYTORCH_SCALAR)
            return i;
    return -1;
}

/* Sizes that are not given are new ones, or else the last of some shape that is. */
ogive_status og_pytorch_guess_sizes(const og_graph *graph, const og_pytorch_role *roles,
                                    const og_pytorch_shape *given, og_arena *arena,
                                    og_pytorch_sizes *sizes, ogive_error *error)
{
    enum { NEW = 5 };
    const int32_t guessed = find_guessed(graph, roles, given);
    ogive_status status = try_size(graph, roles, given, NEW, arena, sizes, error);
    ogive_error first = {.status = OGIVE_OK};
    if (error)
        first = *error;
    for (int32_t i = 0; status == OGIVE_SHAPE && i < graph->input_count; i++)
        if (given[i].rank > 0)
            status = try_size(graph, roles, given, given[i].shape[given[i].rank - 1], arena, sizes,
                              error);
    if (status == OGIVE_OK)
        og_error_clear(error);
    else if (error)
        *error = first;
    if (status == OGIVE_SHAPE && guessed >= 0) /* of what nobody gave nothing is said */
        OG_FAIL(error, OGIVE_SHAPE, first.offset,
                "the shape of '%.200s' is not given, and cannot be guessed: give one, such as "
                "%.200s=2x3x8x8",
                graph->inputs[guessed].name, graph->inputs[guessed].name);
    return status;
}

/* ---- files for some shapes ----------------------------------------------------------------- */

static bool is_cast(const og_node *node)
{
    const char *group = og_function_of(node->op)->group;
    return group && strcmp(group, "cast") == 0;
}

bool og_pytorch_needs_shapes(const og_graph *graph)
{
    for (int32_t n = 0; n < graph->node_count; n++) {
        const og_node *node = &graph->nodes[n];
        const og_op op = node->op;
        const bool serves_all = op == OG_OP_INPUT || op == OG_OP_NUMBER || op == OG_OP_count ||
                                op == OG_OP_part_size || op == OG_OP_t || op == OG_OP_transpose ||
                                op == OG_OP_linear_product || op == OG_OP_matmul ||
                                op == OG_OP_where || op == OG_OP_expand || og_op_is_reduction(op) ||
                                is_mean(node);
        if (!serves_all && (node->sliding.rank || op == OG_OP_index || og_op_slices(op) ||
                            (og_function_of(op)->kind == OG_SPECIAL && !is_cast(node))))
            return true;
    }
    return false;
}

ogive_status og_pytorch_check_shapes(const og_graph *graph, const og_pytorch_role *roles,
                                     const og_pytorch_shape *given, og_pytorch_shape *shapes,
                                     og_arena *arena, og_typed **types, ogive_error *error)
{
    const int32_t missing = find_guessed(graph, roles, given);
    og_input_type *inputs = OG_ARENA_NEW(arena, og_input_type, (size_t)graph->input_count);
    *types = OG_ARENA_NEW(arena, og_typed, (size_t)graph->node_count);
    if (!inputs || !*types)
        return og_fail_memory(error, (size_t)graph->node_count * sizeof **types);
    if (missing >= 0)
        OG_FAIL(error, OGIVE_ARGUMENT, graph->inputs[missing].offset,
                "the shape of '%.200s' is not given: a file with windows, parts of tensors or "
                "vectors of a channel is made for its shapes, as one that is asked to be; give it, "
                "such as %.200s=2x3x8x8",
                graph->inputs[missing].name, graph->inputs[missing].name);
    og_dtype dtype = OG_FLOAT32;
    for (int32_t i = graph->input_count; i-- > 0;)
        if (given[i].rank >= 0)
            dtype = given[i].dtype;
    for (int32_t i = 0; i < graph->input_count; i++) {
        shapes[i] = given[i];
        shapes[i].rank = given[i].rank < 0 ? 0 : given[i].rank; /* scalars */
        if (given[i].rank >= 0 && given[i].dtype != dtype)
            OG_FAIL(error, OGIVE_DTYPE, graph->inputs[i].offset,
                    "'%.200s' is of another dtype than the tensors before it: a PyTorch file "
                    "computes in one dtype",
                    graph->inputs[i].name);
        shapes[i].dtype = dtype;
        inputs[i] = (og_input_type){.dtype = dtype, .rank = shapes[i].rank};
        memcpy(inputs[i].shape, shapes[i].shape, sizeof inputs[i].shape);
    }
    OG_TRY(og_infer(graph, inputs, *types, error));
    for (int32_t n = 0; n < graph->node_count; n++)
        if (graph->nodes[n].op < OG_FUNCTION_COUNT && is_cast(&graph->nodes[n]))
            OG_FAIL(error, OGIVE_UNSUPPORTED, graph->nodes[n].offset,
                    "%s: a PyTorch file computes in one dtype, that of its inputs",
                    og_node_label(graph, &graph->nodes[n]));
    return OGIVE_OK;
}

const char *og_pytorch_size_text(const og_pytorch_sizes *sizes, int64_t value,
                                 char text[OG_SIZE_TEXT])
{
    snprintf(text, OG_SIZE_TEXT, "%lld", (long long)value);
    for (int32_t c = 0; c < sizes->count; c++)
        if (sizes->value[c] == value && !sizes->is_fixed[c])
            snprintf(text, OG_SIZE_TEXT, "n%d", (int)c);
    return text;
}
