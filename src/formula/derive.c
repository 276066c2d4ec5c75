/* SPDX-License-Identifier: MIT
 *
 * derive.c - the gradient of a graph is another graph, made before shapes are
 * known. The nodes are copied; then, from the last node to the first, what a
 * node's change is worth (its adjoint) is handed on to its arguments by the
 * derivative's text in functions.def. A node used several times adds up what its
 * users hand it, the last user first: the order is that of the nodes alone.
 *
 * Where broadcasting or promotion changed an argument on the way in, sum_like and
 * cast_like change the gradient back on the way out; infer.c finds out whether
 * there is anything to do. Since the result is made of the table's rows again, it
 * has a gradient too.
 */
#include "formula/nearest.h"
#include "formula/parser.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GRADIENT_NAME = OG_NEW_NAME + 16 }; /* "grad65535.63" */

typedef struct {
    const og_graph *graph;
    og_builder builder;
    int32_t *wanted;              /* [count]: nodes of the inputs to derive by */
    int32_t *adjoint;             /* [node of graph]: a node of the builder, or -1 */
    bool *active;                 /* [node of graph]: depends on a wanted input */
    char (*names)[GRADIENT_NAME]; /* of the new inputs */
} derivation;

/* ---- names ----------------------------------------------------------------- */

static ogive_status fail_unknown(const og_graph *graph, const char *name, ogive_error *error)
{
    const char *nearest = NULL;
    int best = -1;
    for (int32_t i = 0; i < graph->input_count; i++) {
        int distance = og_name_distance(name, strlen(name), graph->inputs[i].name);
        if (distance >= 0 && (best < 0 || distance < best)) {
            best = distance;
            nearest = graph->inputs[i].name;
        }
    }
    if (nearest)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "the formula has no input '%.200s'; did you mean '%s'?",
                name, nearest);
    OG_FAIL(error, OGIVE_ARGUMENT, -1, "the formula has no input '%.200s'; its inputs are %.200s%s",
            name, graph->inputs[0].name, graph->input_count > 1 ? ", ..." : "");
}

static ogive_status find_input(const og_graph *graph, const char *name, int32_t *node,
                               ogive_error *error)
{
    if (!name)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "a name is NULL");
    for (*node = 0; *node < graph->node_count; ++*node) {
        const og_node *at = &graph->nodes[*node];
        if (at->op == OG_OP_INPUT && !strcmp(graph->inputs[at->index].name, name))
            return OGIVE_OK;
    }
    return fail_unknown(graph, name, error);
}

static ogive_status find_inputs(derivation *d, const char *const *names, size_t count,
                                ogive_error *error)
{
    for (size_t i = 0; i < count; i++) {
        OG_TRY(find_input(d->graph, names[i], &d->wanted[i], error));
        if (d->active[d->wanted[i]])
            OG_FAIL(error, OGIVE_ARGUMENT, -1, "the name '%.200s' is given twice", names[i]);
        d->active[d->wanted[i]] = true;
    }
    return OGIVE_OK;
}

/* grad, or grad2, grad3, ... for a gradient's gradient. */
static void name_gradients(derivation *d)
{
    char prefix[OG_NEW_NAME];
    og_graph_new_name(d->graph, "grad", prefix);
    for (int32_t i = 0; i < d->graph->result_count; i++)
        snprintf(d->names[i], GRADIENT_NAME, d->graph->result_count == 1 ? "%s" : "%s.%d", prefix,
                 (int)i);
}

/* ---- building -------------------------------------------------------------- */

static ogive_status build_like(og_builder *builder, og_op op, og_operand value, int32_t like,
                               og_operand *out)
{
    og_operand args[2] = {value, og_node_operand(like)};
    return og_build_plain(builder, op, args, 2, -1, out);
}

/* Adds a contribution to what node's change is worth. */
static ogive_status add_to_adjoint(derivation *d, int32_t node, const og_operand *contribution)
{
    og_operand args[2] = {og_node_operand(d->adjoint[node]), *contribution}, sum = *contribution;
    if (d->adjoint[node] >= 0) {
        d->builder.composite = OG_OP_add; /* not linear, whose sums infer.c checks */
        OG_TRY(og_build_scalar(&d->builder, OG_OP_add, args, NULL, OG_OP_add, -1, &sum));
    }
    d->adjoint[node] = sum.index;
    return OGIVE_OK;
}

static void bind_dims(og_bound_name *name, const og_node *node, int first, int count,
                      og_builder *builder, ogive_status *status)
{
    og_dim_list list = {.all = node->all_dims, .count = count};
    for (int i = 0; i < list.count; i++)
        list.values[i] = node->dims[first + i];
    name->operand.kind = OG_OPERAND_DIMS;
    if (!*status)
        *status = og_build_dims(builder, &list, &name->operand.index);
}

/* What the derivative calls one of the steps of node's windows, or taps: the last dims. */
static ogive_status bind_steps(og_bound_name *name, const og_node *node, const int32_t *steps,
                               og_builder *builder)
{
    og_dim_list list = {.count = node->sliding.rank};
    for (int i = 0; i < list.count; i++)
        list.values[i] = steps ? steps[i] : i - list.count;
    name->operand.kind = OG_OPERAND_DIMS;
    return og_build_dims(builder, &list, &name->operand.index);
}

/* The names of the derivative of node: its rule's signature, taps of windows, y and grad. */
static ogive_status bind_names(derivation *d, int32_t index, og_bound_name *names, int *count)
{
    const og_node *node = &d->graph->nodes[index];
    const og_sliding *sliding = &node->sliding;
    const int32_t *steps[] = {sliding->size, sliding->stride, sliding->padding, sliding->dilation};
    int args = 0, numbers = 0, dims = 0, step = 0;
    ogive_status status = OGIVE_OK;
    for (const og_parameter *p = og_function_of(node->rule)->parameters;
         p->kind != OG_PARAMETER_NONE; p++) {
        og_bound_name name = {.name = p->name, .operand.offset = node->offset};
        switch (p->kind) {
        case OG_PARAMETER_TENSOR:
            name.operand = og_node_operand(node->args[args++]);
            break;
        case OG_PARAMETER_NUMBER:
            name.operand = og_number_operand(node->numbers[numbers++], node->offset);
            break;
        case OG_PARAMETER_DIM:
            bind_dims(&name, node, dims++, 1, &d->builder, &status);
            break;
        case OG_PARAMETER_DIMS:
            bind_dims(&name, node, 0, node->dim_count, &d->builder, &status);
            break;
        case OG_PARAMETER_STEPS:
            if (!status)
                status = bind_steps(&name, node, steps[step++], &d->builder);
            break;
        case OG_PARAMETER_FLAG:
            name.operand.kind = OG_OPERAND_FLAG;
            name.operand.flag = sliding->rank ? sliding->ceil_mode : node->keepdim;
            break;
        default: /* a choice became an op of its own */
            continue;
        }
        names[(*count)++] = name;
    }
    if (sliding->rank) {
        og_bound_name taps = {.name = "taps", .operand.offset = node->offset};
        if (!status)
            status = bind_steps(&taps, node, NULL, &d->builder);
        names[(*count)++] = taps;
    }
    names[(*count)++] = (og_bound_name){"y", og_node_operand(index)};
    names[(*count)++] = (og_bound_name){"grad", og_node_operand(d->adjoint[index])};
    return status;
}

/* Broadcasts and promotes its arguments, so that their gradients must be brought
 * back to their shapes and dtypes. */
static bool is_broadcasting(const og_node *node)
{
    return node->op == OG_OP_where ||
           (og_function_of(node->op)->kind == OG_SCALAR && node->arg_count > 1);
}

/* Hands node's adjoint on to its arguments. */
static ogive_status derive_node(derivation *d, int32_t index)
{
    og_builder *builder = &d->builder;
    const og_node *node = &d->graph->nodes[index];
    og_bound_name names[OG_MAX_PARAMETERS + 3];
    og_operand results[OG_MAX_ARGS];
    int count = 0;
    builder->dim_count = 0;
    og_builder_stand_at(builder, node);
    OG_TRY(bind_names(d, index, names, &count));
    OG_TRY(og_parse_derivative(builder, og_function_of(node->rule)->derivative, names, count,
                               results, node->arg_count));
    for (int a = 0; a < node->arg_count; a++) {
        int32_t arg = node->args[a];
        if (!d->active[arg] || results[a].kind == OG_OPERAND_NONE)
            continue;
        og_builder_stand_at(builder, node);
        if (is_broadcasting(node)) {
            OG_TRY(build_like(builder, OG_OP_sum_like, results[a], arg, &results[a]));
            OG_TRY(build_like(builder, OG_OP_cast_like, results[a], arg, &results[a]));
        }
        OG_TRY(add_to_adjoint(d, arg, &results[a]));
    }
    return OGIVE_OK;
}

/* ---- sweeps ---------------------------------------------------------------- */

/* Forwards: which nodes depend on a wanted input so that it matters. */
static void find_active(derivation *d)
{
    for (int32_t n = 0; n < d->graph->node_count; n++) {
        const og_node *node = &d->graph->nodes[n];
        if (node->op >= OG_FUNCTION_COUNT || !og_function_of(node->rule)->derivative)
            continue;
        for (int a = 0; a < og_op_value_count(node->op, node->arg_count); a++)
            d->active[n] |= d->active[node->args[a]];
    }
}

/* The new inputs, each the first that its result's change is worth. */
static ogive_status add_gradients(derivation *d)
{
    for (int32_t i = 0; i < d->graph->result_count; i++) {
        int32_t result = d->graph->results[i];
        og_operand grad;
        d->builder.composite = OG_FUNCTION_COUNT;
        OG_TRY(og_build_input(&d->builder, d->names[i], strlen(d->names[i]), -1, &grad));
        if (!d->active[result])
            continue;
        og_builder_stand_at(&d->builder, &d->graph->nodes[result]);
        OG_TRY(build_like(&d->builder, OG_OP_cast_like, grad, result, &grad));
        OG_TRY(add_to_adjoint(d, result, &grad));
    }
    return OGIVE_OK;
}

/* What a wanted input's change is worth: nothing, if no result depends on it. */
static ogive_status find_result(derivation *d, int32_t input, int32_t *result)
{
    *result = d->adjoint[input];
    if (*result >= 0)
        return OGIVE_OK;
    og_node zero = {.op = OG_OP_full_like, .arg_count = 1, .args = {input}};
    og_operand operand;
    d->builder.composite = OG_FUNCTION_COUNT;
    OG_TRY(og_build_node(&d->builder, &zero, OG_OP_full_like, -1, &operand));
    *result = operand.index;
    return OGIVE_OK;
}

/* Drops the new nodes that no result needs (gradients of arguments that were not
 * asked for). moved: one entry per node of the builder. */
static void drop_unused(derivation *d, int32_t *results, size_t count, int32_t *moved)
{
    og_builder *builder = &d->builder;
    int32_t old = d->graph->node_count, last = (int32_t)builder->node_count;
    for (int32_t n = 0; n < last; n++)
        moved[n] = n < old || builder->nodes[n].op == OG_OP_INPUT ? 0 : -1;
    for (size_t i = 0; i < count; i++)
        moved[results[i]] = 0;
    for (int32_t n = last - 1; n >= old; n--)
        for (int a = 0; moved[n] == 0 && a < builder->nodes[n].arg_count; a++)
            moved[builder->nodes[n].args[a]] = 0;
    int32_t kept = 0;
    for (int32_t n = 0; n < last; n++) {
        if (moved[n] < 0)
            continue;
        builder->nodes[kept] = builder->nodes[n];
        for (int a = 0; a < builder->nodes[kept].arg_count; a++)
            builder->nodes[kept].args[a] = moved[builder->nodes[kept].args[a]];
        moved[n] = kept++;
    }
    builder->node_count = (size_t)kept;
    for (size_t i = 0; i < count; i++)
        results[i] = moved[results[i]];
}

static ogive_status derive(derivation *d, size_t count, og_graph *gradient)
{
    const og_graph *graph = d->graph;
    int32_t results[OG_MAX_RESULTS];
    find_active(d);
    name_gradients(d);
    OG_TRY(og_builder_load(&d->builder, graph));
    OG_TRY(add_gradients(d));
    for (int32_t n = graph->node_count - 1; n >= 0; n--) {
        if (d->active[n] && d->adjoint[n] >= 0 && graph->nodes[n].op < OG_FUNCTION_COUNT)
            OG_TRY(derive_node(d, n));
    }
    for (size_t i = 0; i < count; i++)
        OG_TRY(find_result(d, d->wanted[i], &results[i]));
    int32_t *moved = malloc(d->builder.node_count * sizeof *moved);
    if (!moved)
        return og_fail_memory(d->builder.error, d->builder.node_count * sizeof *moved);
    drop_unused(d, results, count, moved);
    free(moved);
    return og_builder_finish(&d->builder, graph->text, graph->length, results, (int32_t)count,
                             gradient);
}

/* ---- entry ----------------------------------------------------------------- */

ogive_status og_graph_gradient(const og_graph *graph, const char *const *names, size_t count,
                               og_graph *gradient, ogive_error *error)
{
    *gradient = (og_graph){0};
    if (count == 0 || !names)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "no name of an input to derive by is given");
    if (count > OG_MAX_RESULTS)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "%zu names are given, at most %d are possible", count,
                OG_MAX_RESULTS);
    og_arena arena = {0};
    size_t nodes = (size_t)graph->node_count, results = (size_t)graph->result_count;
    derivation *d = OG_ARENA_NEW(&arena, derivation, 1);
    if (d) {
        d->graph = graph;
        d->wanted = OG_ARENA_NEW(&arena, int32_t, count);
        d->adjoint = OG_ARENA_NEW(&arena, int32_t, nodes);
        d->active = OG_ARENA_NEW(&arena, bool, nodes);
        d->names = og_arena_alloc(&arena, results, sizeof *d->names);
    }
    if (!d || !d->wanted || !d->adjoint || !d->active || !d->names) {
        og_arena_free(&arena);
        return og_fail_memory(error, sizeof *d + nodes * sizeof *d->adjoint);
    }
    memset(d->adjoint, -1, nodes * sizeof *d->adjoint);
    fenv_t state;
    og_float_state_enter(&state);
    og_builder_init(&d->builder, error);
    ogive_status status = find_inputs(d, names, count, error);
    if (!status)
        status = derive(d, count, gradient);
    if (status == OGIVE_FORMULA && d->builder.node_count >= OG_MAX_NODES)
        status = og_fail(error, OGIVE_UNSUPPORTED, -1,
                         "the gradient is too large: more than %d nodes", OG_MAX_NODES);
    og_builder_free(&d->builder);
    og_float_state_leave(&state);
    og_arena_free(&arena);
    return status;
}
