/* SPDX-License-Identifier: MIT
 *
 * builder.c - a graph while it grows; see builder.h.
 */
#include "formula/builder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void og_builder_init(og_builder *builder, ogive_error *error)
{
    builder->error = error;
    builder->nodes = builder->first_nodes;
    builder->node_count = 0;
    builder->node_capacity = OG_FIRST_NODES;
    builder->slots = builder->first_slots;
    builder->slot_count = OG_FIRST_SLOTS;
    memset(builder->first_slots, 0, sizeof builder->first_slots);
    builder->inputs = builder->first_inputs;
    builder->input_count = 0;
    builder->input_capacity = OG_FIRST_INPUTS;
    builder->checks = NULL;
    builder->check_count = builder->check_capacity = 0;
    builder->dims = builder->first_dims;
    builder->dim_count = 0;
    builder->dim_capacity = OG_FIRST_DIMS;
    builder->operands = builder->first_operands;
    builder->operand_count = 0;
    builder->operand_capacity = OG_FIRST_OPERANDS;
    builder->casts = NULL;
    memset(builder->calls, 0, sizeof builder->calls);
    builder->composite = OG_FUNCTION_COUNT;
    builder->composite_offset = -1;
    builder->composite_checks = 0;
    builder->rule = OG_FUNCTION_COUNT;
}

void og_builder_free(og_builder *builder)
{
    if (builder->nodes != builder->first_nodes)
        free(builder->nodes);
    if (builder->slots != builder->first_slots)
        free(builder->slots);
    if (builder->inputs != builder->first_inputs)
        free(builder->inputs);
    if (builder->dims != builder->first_dims)
        free(builder->dims);
    if (builder->operands != builder->first_operands)
        free(builder->operands);
    free(builder->checks);
}

void og_builder_stand_at(og_builder *builder, const og_node *node)
{
    builder->composite = node->called < OG_FUNCTION_COUNT ? node->called : OG_OP_add;
    builder->composite_offset = node->offset;
    builder->composite_checks = builder->check_count;
}

og_operand og_node_operand(int32_t node)
{
    return (og_operand){.kind = OG_OPERAND_NODE, .index = node, .offset = -1};
}

/* Room for one more item in an array that starts in first. */
static ogive_status make_room(og_builder *builder, const void *first, void **items,
                              size_t *capacity, size_t count, size_t size)
{
    if (!og_grow_from(first, items, capacity, count + 1, size))
        return og_fail_memory(builder->error, 2 * (count + 1) * size);
    return OGIVE_OK;
}

/* ---- hash-consing -------------------------------------------------------- */

static uint64_t get_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

/* Sizes are left out: see is_same. */
static size_t hash_node(const og_node *node)
{
    uint64_t hash = mix((uint64_t)node->op << 32 | (uint32_t)node->index,
                        (uint64_t)(uint32_t)node->args[0] << 32 | (uint32_t)node->args[1]);
    hash = mix(hash, (uint32_t)node->args[2]);
    hash = mix(hash, get_bits(node->numbers[0]));
    hash = mix(hash, get_bits(node->numbers[1]));
    hash = mix(hash, (uint64_t)node->dim_count << 2 | (uint64_t)node->all_dims << 1 |
                         (uint64_t)node->keepdim);
    for (int d = 0; d < node->dim_count; d++)
        hash = mix(hash, (uint32_t)node->dims[d]);
    return (size_t)(hash ^ hash >> 32);
}

/* A reduction whose sizes are checked is the same as one whose are not. */
static bool is_same(const og_node *a, const og_node *b)
{
    if (a->op != b->op || a->rule != b->rule || a->index != b->index ||
        memcmp(a->args, b->args, sizeof a->args) ||
        get_bits(a->numbers[0]) != get_bits(b->numbers[0]) ||
        get_bits(a->numbers[1]) != get_bits(b->numbers[1]) || a->all_dims != b->all_dims ||
        a->keepdim != b->keepdim || a->keeps_type != b->keeps_type || a->is_real != b->is_real ||
        a->dim_count != b->dim_count || memcmp(a->dims, b->dims, sizeof a->dims) ||
        memcmp(&a->sliding, &b->sliding, sizeof a->sliding))
        return false;
    return !a->has_sizes || !b->has_sizes || !memcmp(a->sizes, b->sizes, sizeof a->sizes);
}

/* found stands for wanted too, so what is checked of wanted is checked of found. */
static void merge_checks(og_node *found, const og_node *wanted)
{
    bool gains_sizes = wanted->has_sizes && !found->has_sizes;
    if (gains_sizes) {
        found->has_sizes = true;
        memcpy(found->sizes, wanted->sizes, sizeof found->sizes);
    }
    /* infer checks the bias of an add that is called linear */
    if (gains_sizes || (wanted->called == OG_OP_linear && found->op == OG_OP_add)) {
        found->called = wanted->called;
        found->offset = wanted->offset;
    }
}

static ogive_status grow_slots(og_builder *builder)
{
    size_t count = builder->slot_count * 4;
    int32_t *slots = calloc(count, sizeof *slots);
    if (!slots)
        return og_fail_memory(builder->error, count * sizeof *slots);
    for (size_t i = 0; i < builder->node_count; i++) {
        size_t slot = hash_node(&builder->nodes[i]) & (count - 1);
        while (slots[slot])
            slot = (slot + 1) & (count - 1);
        slots[slot] = (int32_t)i + 1;
    }
    if (builder->slots != builder->first_slots)
        free(builder->slots);
    builder->slots = slots;
    builder->slot_count = count;
    return OGIVE_OK;
}

static ogive_status add_node(og_builder *builder, const og_node *node, size_t slot)
{
    if (builder->node_count >= OG_MAX_NODES)
        OG_FAIL(builder->error, OGIVE_FORMULA, node->offset,
                "the formula is too large: more than %d nodes", OG_MAX_NODES);
    void *nodes = builder->nodes;
    OG_TRY(make_room(builder, builder->first_nodes, &nodes, &builder->node_capacity,
                     builder->node_count, sizeof *node));
    builder->nodes = nodes;
    builder->nodes[builder->node_count++] = *node;
    builder->slots[slot] = (int32_t)builder->node_count;
    return OGIVE_OK;
}

static bool depends_on_input(const og_builder *builder, const og_node *node)
{
    if (node->op == OG_OP_INPUT)
        return true;
    for (int i = 0; i < node->arg_count; i++) {
        if (!builder->nodes[node->args[i]].is_constant)
            return true;
    }
    return false;
}

/* True for input * weight in a composite whose weight has the sizes given to it. */
static bool takes_parameter(const og_builder *builder, const og_node *node)
{
    for (size_t i = builder->composite_checks; i < builder->check_count; i++) {
        if (node->arg_count == 2 && builder->checks[i].node == node->args[1])
            return true;
    }
    return false;
}

ogive_status og_build_node(og_builder *builder, og_node *wanted, og_op called, int64_t offset,
                           og_operand *out)
{
    bool in_composite = builder->composite != OG_FUNCTION_COUNT;
    wanted->called = in_composite ? builder->composite : called;
    wanted->offset = in_composite ? builder->composite_offset : offset;
    wanted->rule = builder->rule != OG_FUNCTION_COUNT ? builder->rule : wanted->op;
    wanted->keeps_type = in_composite && takes_parameter(builder, wanted);
    wanted->is_constant = !depends_on_input(builder, wanted);
    for (int i = wanted->arg_count; i < OG_MAX_ARGS; i++)
        wanted->args[i] = -1;

    if (builder->node_count * 2 >= builder->slot_count)
        OG_TRY(grow_slots(builder));
    size_t mask = builder->slot_count - 1, slot = hash_node(wanted) & mask;
    for (; builder->slots[slot]; slot = (slot + 1) & mask) {
        og_node *found = &builder->nodes[builder->slots[slot] - 1];
        if (is_same(found, wanted)) {
            merge_checks(found, wanted);
            break;
        }
    }
    if (!builder->slots[slot])
        OG_TRY(add_node(builder, wanted, slot));
    *out = (og_operand){.kind = OG_OPERAND_NODE, .index = builder->slots[slot] - 1};
    out->offset = wanted->offset;
    return OGIVE_OK;
}

/* ---- operands ------------------------------------------------------------ */

bool og_operand_is_mask(const og_builder *builder, const og_operand *operand)
{
    if (operand->kind != OG_OPERAND_NODE)
        return false;
    og_op op = builder->nodes[operand->index].op;
    return op < OG_FUNCTION_COUNT && og_function_of(op)->kind == OG_MASKING;
}

bool og_operand_is_constant(const og_builder *builder, const og_operand *operand)
{
    return operand->kind == OG_OPERAND_NUMBER ||
           (operand->kind == OG_OPERAND_NODE && builder->nodes[operand->index].is_constant);
}

static ogive_status add_input(og_builder *builder, const char *name, size_t length, int64_t offset)
{
    void *inputs = builder->inputs;
    OG_TRY(make_room(builder, builder->first_inputs, &inputs, &builder->input_capacity,
                     builder->input_count, sizeof *builder->inputs));
    builder->inputs = inputs;
    builder->inputs[builder->input_count++] = (og_input_name){name, length, offset};
    return OGIVE_OK;
}

ogive_status og_build_input(og_builder *builder, const char *name, size_t length, int64_t offset,
                            og_operand *out)
{
    og_node node = {.op = OG_OP_INPUT, .index = (int32_t)builder->input_count};
    OG_TRY(og_build_node(builder, &node, OG_OP_INPUT, offset, out));
    return add_input(builder, name, length, offset);
}

/* One NaN for all, so that equal nodes have equal bits. */
static double make_plain(double number)
{
    return isnan(number) ? NAN : number;
}

bool og_is_real(const og_operand *operand)
{
    return operand->is_real || !og_is_whole(operand->number);
}

/* The operand's node; a number gets one. */
static ogive_status find_node(og_builder *builder, const og_operand *operand, int32_t *index)
{
    *index = operand->index;
    if (operand->kind == OG_OPERAND_NODE)
        return OGIVE_OK;
    /* What 0.5 is goes without saying: the user's and a meaning's are one node. */
    og_node node = {.op = OG_OP_NUMBER,
                    .is_real = operand->is_real && og_is_whole(operand->number)};
    node.numbers[0] = make_plain(operand->number);
    og_operand number;
    OG_TRY(og_build_node(builder, &node, OG_OP_NUMBER, operand->offset, &number));
    *index = number.index;
    return OGIVE_OK;
}

static ogive_status build_with_args(og_builder *builder, og_node *node, const og_operand *args,
                                    int count, og_op called, int64_t offset, og_operand *out)
{
    node->arg_count = count;
    for (int i = 0; i < count; i++)
        OG_TRY(find_node(builder, &args[i], &node->args[i]));
    return og_build_node(builder, node, called, offset, out);
}

ogive_status og_build_plain(og_builder *builder, og_op op, const og_operand *args, int count,
                            int64_t offset, og_operand *out)
{
    og_node node = {.op = op};
    return build_with_args(builder, &node, args, count, op, offset, out);
}

ogive_status og_build_boolean(og_builder *builder, const og_operand *mask, og_operand *out)
{
    int64_t offset = mask->offset;
    og_operand args[3] = {*mask, og_number_operand(1, offset), og_number_operand(0, offset)};
    og_operand number;
    OG_TRY(og_build_plain(builder, OG_OP_where, args, 3, offset, &number));
    OG_TRY(og_build_plain(builder, OG_OP_boolean, &number, 1, offset, out));
    out->offset = offset;
    return OGIVE_OK;
}

ogive_status og_build_truth(og_builder *builder, const og_operand *tensor, og_operand *out)
{
    const og_node *node = &builder->nodes[tensor->index];
    int64_t offset = tensor->offset;
    if (node->op == OG_OP_boolean) {
        *out = *tensor;
        out->index = builder->nodes[node->args[0]].args[0];
        return OGIVE_OK;
    }
    og_operand args[2] = {*tensor, og_number_operand(0, offset)};
    OG_TRY(og_build_plain(builder, OG_OP_truth, args, 2, offset, out));
    out->offset = offset;
    return OGIVE_OK;
}

ogive_status og_build_argument(og_builder *builder, og_op op, og_operand *argument)
{
    if (builder->composite != OG_FUNCTION_COUNT)
        return OGIVE_OK;
    builder->calls[op] = true;
    og_op cast = builder->casts ? builder->casts[op] : OG_FUNCTION_COUNT;
    if (cast == OG_FUNCTION_COUNT || og_operand_is_constant(builder, argument) ||
        og_operand_is_mask(builder, argument) ||
        builder->nodes[argument->index].op == OG_OP_boolean)
        return OGIVE_OK;
    og_operand value = *argument;
    return og_build_plain(builder, cast, &value, 1, value.offset, argument);
}

void og_note_product(og_builder *builder, og_op op, const og_operand *value)
{
    if (builder->composite == OG_FUNCTION_COUNT && (op == OG_OP_linear || op == OG_OP_matmul))
        builder->nodes[value->index].is_product = true;
}

/* ---- scalar functions ---------------------------------------------------- */

static bool is_number(const og_operand *operand, double number)
{
    return operand->kind == OG_OPERAND_NUMBER && !operand->is_real &&
           get_bits(operand->number) == get_bits(number);
}

/* The operand that op leaves bit for bit as it is, NaN and -0 included, because
 * the other is neutral; NULL if there is none. 1.0 is not: it makes floats of integers. */
static const og_operand *find_unchanged(og_op op, const og_operand *args)
{
    switch (op) {
    case OG_OP_mul:
        return is_number(&args[1], 1) ? &args[0] : is_number(&args[0], 1) ? &args[1] : NULL;
    case OG_OP_div:
        return is_number(&args[1], 1) ? &args[0] : NULL;
    case OG_OP_add:
        return is_number(&args[1], -0.0) ? &args[0] : is_number(&args[0], -0.0) ? &args[1] : NULL;
    case OG_OP_sub:
        return is_number(&args[1], 0.0) ? &args[0] : NULL;
    case OG_OP_at_least:
        return is_number(&args[1], -INFINITY) ? &args[0] : NULL;
    case OG_OP_at_most:
        return is_number(&args[1], INFINITY) ? &args[0] : NULL;
    default:
        return NULL;
    }
}

/* A division by a power of two is the multiplication by its inverse, bit for bit, as long as both are
 * normal numbers of float32; a GPU divides many times slower. */
static bool is_power_of_two(const og_operand *operand)
{
    int exponent;
    return operand->kind == OG_OPERAND_NUMBER && isfinite(operand->number) &&
           fabs(frexp(operand->number, &exponent)) == 0.5 && exponent > -125 && exponent < 127;
}

ogive_status og_build_scalar(og_builder *builder, og_op op, const og_operand *args,
                             const og_constants *constants, og_op called, int64_t offset,
                             og_operand *out)
{
    static const og_constants none;
    const og_function *function = og_function_of(op);
    constants = constants ? constants : &none;
    double values[OG_MAX_ARGS] = {0};
    bool all_numbers = true, is_real = constants->is_real || og_op_gives_floats(op);
    for (int i = 0; i < function->args; i++) {
        all_numbers &= args[i].kind == OG_OPERAND_NUMBER;
        is_real |= args[i].is_real;
        values[i] = args[i].number;
    }
    if (all_numbers) {
        *out = og_number_operand(og_function_value(op, values, constants->numbers), offset);
        out->is_real = is_real;
        return OGIVE_OK;
    }
    const og_operand *unchanged = find_unchanged(op, args);
    if (unchanged) {
        *out = *unchanged;
        return OGIVE_OK;
    }
    if (op == OG_OP_div && is_power_of_two(&args[1])) {
        og_operand factors[2] = {args[0], args[1]};
        factors[1].number = 1 / args[1].number;
        factors[1].is_real = true; /* a division gives floats */
        return og_build_scalar(builder, OG_OP_mul, factors, constants, called, offset, out);
    }
    og_node node = {.op = op, .is_real = constants->is_real};
    for (int i = 0; i < function->constants; i++)
        node.numbers[i] = make_plain(constants->numbers[i]);
    return build_with_args(builder, &node, args, function->args, called, offset, out);
}

ogive_status og_build_pow(og_builder *builder, const og_operand *base, const og_operand *power,
                          int64_t offset, og_operand *out)
{
    og_operand args[2] = {*base, *base};
    double exponent = power->number;
    og_constants constants = {{exponent}, og_is_real(power)};
    if (power->kind == OG_OPERAND_NODE) {
        args[1] = *power;
        return og_build_scalar(builder, OG_OP_power, args, NULL, OG_OP_pow, offset, out);
    }
    if (exponent == 1) {
        args[1] = *power;
        return og_build_scalar(builder, OG_OP_mul, args, NULL, OG_OP_pow, offset, out);
    }
    if (exponent == 3) {
        OG_TRY(og_build_scalar(builder, OG_OP_mul, args, &constants, OG_OP_pow, offset, &args[0]));
        return og_build_scalar(builder, OG_OP_mul, args, NULL, OG_OP_pow, offset, out);
    }
    /* -2 is not 1 / (x * x): its derivative through x * x overflows early. */
    constants.is_real |= exponent < 0 && base->kind == OG_OPERAND_NUMBER; /* 1 ** -2 is 1.0 */
    og_op op = exponent == 2      ? OG_OP_square
               : exponent == 0.5  ? OG_OP_sqrt
               : exponent == -0.5 ? OG_OP_rsqrt
               : exponent == -1   ? OG_OP_reciprocal
                                  : OG_OP_pow;
    return og_build_scalar(builder, op, args, &constants, OG_OP_pow, offset, out);
}

/* ---- lists and checks ---------------------------------------------------- */

ogive_status og_build_dims(og_builder *builder, const og_dim_list *list, int32_t *index)
{
    void *dims = builder->dims;
    OG_TRY(make_room(builder, builder->first_dims, &dims, &builder->dim_capacity,
                     builder->dim_count, sizeof *list));
    builder->dims = dims;
    *index = (int32_t)builder->dim_count;
    builder->dims[builder->dim_count++] = *list;
    return OGIVE_OK;
}

ogive_status og_build_operands(og_builder *builder, size_t count, size_t *base)
{
    void *operands = builder->operands;
    OG_TRY(make_room(builder, builder->first_operands, &operands, &builder->operand_capacity,
                     builder->operand_count + count, sizeof *builder->operands));
    builder->operands = operands;
    *base = builder->operand_count;
    memset(builder->operands + *base, 0, count * sizeof *builder->operands);
    builder->operand_count += count;
    return OGIVE_OK;
}

ogive_status og_build_check(og_builder *builder, const og_size_check *check)
{
    void *checks = builder->checks;
    if (!og_grow(&checks, &builder->check_capacity, builder->check_count + 1, sizeof *check))
        return og_fail_memory(builder->error, 2 * (builder->check_count + 1) * sizeof *check);
    builder->checks = checks;
    builder->checks[builder->check_count++] = *check;
    return OGIVE_OK;
}

/* ---- an existing graph --------------------------------------------------- */

ogive_status og_build_copy(og_builder *builder, const og_node *node, int32_t *index)
{
    if (builder->node_count * 2 >= builder->slot_count)
        OG_TRY(grow_slots(builder));
    size_t mask = builder->slot_count - 1, slot = hash_node(node) & mask;
    while (builder->slots[slot])
        slot = (slot + 1) & mask;
    *index = (int32_t)builder->node_count;
    return add_node(builder, node, slot);
}

ogive_status og_builder_load(og_builder *builder, const og_graph *graph)
{
    int32_t copy;
    for (int32_t i = 0; i < graph->node_count; i++)
        OG_TRY(og_build_copy(builder, &graph->nodes[i], &copy));
    for (int32_t i = 0; i < graph->input_count; i++) {
        const og_input *input = &graph->inputs[i];
        OG_TRY(add_input(builder, input->name, strlen(input->name), input->offset));
    }
    for (int32_t i = 0; i < graph->check_count; i++)
        OG_TRY(og_build_check(builder, &graph->checks[i]));
    return OGIVE_OK;
}

/* ---- the finished graph -------------------------------------------------- */

static char *copy_text(og_arena *arena, const char *text, size_t length)
{
    char *copy = OG_ARENA_NEW(arena, char, length + 1);
    if (copy)
        memcpy(copy, text, length); /* the arena's memory is zeroed */
    return copy;
}

static void *copy_items(og_arena *arena, const void *items, size_t count, size_t size)
{
    void *copy = og_arena_alloc(arena, count, size);
    if (copy && count)
        memcpy(copy, items, count * size);
    return copy;
}

static bool copy_inputs(const og_builder *builder, og_graph *graph)
{
    graph->inputs = OG_ARENA_NEW(&graph->arena, og_input, builder->input_count);
    if (!graph->inputs)
        return false;
    graph->input_count = (int32_t)builder->input_count;
    for (size_t i = 0; i < builder->input_count; i++) {
        const og_input_name *name = &builder->inputs[i];
        graph->inputs[i].name = copy_text(&graph->arena, name->name, name->length);
        graph->inputs[i].offset = name->offset;
        if (!graph->inputs[i].name)
            return false;
    }
    return true;
}

ogive_status og_builder_finish(const og_builder *builder, const char *text, size_t length,
                               const int32_t *results, int32_t result_count, og_graph *graph)
{
    *graph = (og_graph){0};
    graph->text = copy_text(&graph->arena, text, length);
    graph->length = length;
    graph->differs = true; /* the parser knows better */
    memcpy(graph->calls, builder->calls, sizeof graph->calls);
    graph->nodes = copy_items(&graph->arena, builder->nodes, builder->node_count, sizeof(og_node));
    graph->node_count = (int32_t)builder->node_count;
    graph->checks =
        copy_items(&graph->arena, builder->checks, builder->check_count, sizeof(og_size_check));
    graph->check_count = (int32_t)builder->check_count;
    memcpy(graph->results, results, (size_t)result_count * sizeof *results);
    graph->result_count = result_count;
    if (!graph->text || !graph->nodes || !graph->checks || !copy_inputs(builder, graph)) {
        og_graph_free(graph);
        return og_fail_memory(builder->error, builder->node_count * sizeof(og_node) + length);
    }
    return OGIVE_OK;
}

void og_graph_free(og_graph *graph)
{
    og_arena_free(&graph->arena);
    *graph = (og_graph){0};
}
