/* SPDX-License-Identifier: MIT
 *
 * calls.c - a call's arguments against the function's signature, and the nodes
 * that the call becomes. Composites go back to the parser with their meaning.
 */
#include "formula/parser.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { DESCRIPTION = 96 };

/* ---- messages ------------------------------------------------------------ */

static const char *describe_operand(const og_operand *operand, char text[DESCRIPTION])
{
    char number[OG_NUMBER_TEXT];
    switch (operand->kind) {
    case OG_OPERAND_NODE:
        return "a tensor";
    case OG_OPERAND_NUMBER:
        snprintf(text, DESCRIPTION, "the number %s", og_number_text(operand->number, number));
        return text;
    case OG_OPERAND_DIMS:
        return "a list";
    case OG_OPERAND_FLAG:
        return operand->flag ? "true" : "false";
    case OG_OPERAND_PAIR:
        return "two values: bind them to two names first, as in s, m = std_mean(x);";
    case OG_OPERAND_STRING:
        snprintf(text, DESCRIPTION, "the string '%.*s'",
                 operand->length < 40 ? (int)operand->length : 40, operand->string);
        return text;
    default:
        return "None";
    }
}

/* The function that the user wrote where it became this row: a row without a group is
 * somebody's overload. */
static og_op get_called(og_op row)
{
    if (row == OG_OP_clamp_beyond)
        return OG_OP_clamp;
    for (int op = 0; op < OG_FUNCTION_COUNT && !og_function_of(row)->group; op++)
        if (og_function_of((og_op)op)->overload == 1 + (int)row)
            return (og_op)op;
    return row;
}

const char *og_call_label(const og_builder *builder, og_op op)
{
    bool in_composite = builder->composite != OG_FUNCTION_COUNT;
    return og_function_of(in_composite ? builder->composite : get_called(op))->name;
}

static ogive_status fail_kind(const og_builder *builder, og_op op, const og_parameter *parameter,
                              const og_operand *operand, const char *expected)
{
    char text[DESCRIPTION];
    OG_FAIL(builder->error, OGIVE_FORMULA, operand->offset, "%s: %s must be %s, got %s",
            og_call_label(builder, op), parameter->name, expected, describe_operand(operand, text));
}

ogive_status og_take_value(og_builder *builder, og_operand *operand, const char *label)
{
    char text[DESCRIPTION];
    if (og_operand_is_mask(builder, operand)) {
        og_operand mask = *operand;
        return og_build_boolean(builder, &mask, operand);
    }
    if (operand->kind != OG_OPERAND_NODE && operand->kind != OG_OPERAND_NUMBER)
        OG_FAIL(builder->error, OGIVE_FORMULA, operand->offset,
                "%s must be a tensor or a number, got %s", label, describe_operand(operand, text));
    return OGIVE_OK;
}

/* ---- one argument -------------------------------------------------------- */

/* A comparison, or a tensor that infer.c finds to be of bool or not, becomes a mask. */
static ogive_status bind_mask(og_builder *builder, og_op op, const og_parameter *parameter,
                              og_operand *operand)
{
    if (og_operand_is_mask(builder, operand))
        return OGIVE_OK;
    if (operand->kind != OG_OPERAND_NODE)
        return fail_kind(
            builder, op, parameter, operand,
            op == OG_OP_where ? "a comparison or a tensor of bool"
            : op == OG_OP_logical_xor
                ? "a comparison in brackets or a tensor of bool (a power is written **)"
                : "a comparison in brackets, as in (x > 0) & m, or a tensor of bool");
    og_operand tensor = *operand;
    return og_build_truth(builder, &tensor, operand);
}

static ogive_status bind_tensor(og_builder *builder, og_op op, const og_parameter *parameter,
                                og_operand *operand)
{
    og_function_kind kind = og_function_of(op)->kind;
    if (parameter->is_mask)
        return bind_mask(builder, op, parameter, operand);
    if (og_operand_is_mask(builder, operand)) {
        og_operand mask = *operand;
        OG_TRY(og_build_boolean(builder, &mask, operand));
    }
    if (operand->kind != OG_OPERAND_NODE && operand->kind != OG_OPERAND_NUMBER)
        return fail_kind(builder, op, parameter, operand, "a tensor");
    bool takes_numbers = kind == OG_SCALAR || kind == OG_MASKING || kind == OG_COMPOSITE ||
                         op == OG_OP_where || op == OG_OP_bias_of || op == OG_OP_per_channel;
    if (!takes_numbers && og_operand_is_constant(builder, operand))
        OG_FAIL(builder->error, OGIVE_FORMULA, operand->offset,
                "%s: %s must be a tensor that depends on an input, got a constant",
                og_call_label(builder, op), parameter->name);
    return OGIVE_OK;
}

static ogive_status check_number(const og_builder *builder, og_op op, const og_parameter *parameter,
                                 const og_operand *operand)
{
    if (operand->kind == OG_OPERAND_NUMBER)
        return OGIVE_OK;
    return fail_kind(builder, op, parameter, operand,
                     operand->kind == OG_OPERAND_NODE ? "a constant" : "a number");
}

/* 2^53: below it float64 holds every integer. */
static bool get_integer(double number, int64_t *value)
{
    if (!(fabs(number) <= 9007199254740992.0) || number != floor(number))
        return false;
    *value = (int64_t)number;
    return true;
}

static ogive_status check_entries(const og_builder *builder, og_op op,
                                  const og_parameter *parameter, const og_operand *operand,
                                  const og_dim_list *list)
{
    for (int i = 0; i < list->count; i++) {
        int64_t value = list->values[i];
        if (list->has_sizes ? value < 0 : value < INT32_MIN || value > INT32_MAX)
            OG_FAIL(builder->error, OGIVE_FORMULA, operand->offset,
                    list->has_sizes ? "%s: %s has the negative size %lld"
                                    : "%s: %s %lld is out of range",
                    og_call_label(builder, op), parameter->name, (long long)value);
    }
    return OGIVE_OK;
}

static ogive_status refuse_nones(const og_builder *builder, og_op op, const og_parameter *parameter,
                                 const og_operand *operand, const og_dim_list *list)
{
    if (list->nones)
        OG_FAIL(builder->error, OGIVE_FORMULA, operand->offset,
                "%s: %s holds None, expected integers", og_call_label(builder, op),
                parameter->name);
    return OGIVE_OK;
}

/* dims or sizes, given as one integer or as a list, become a list. */
static ogive_status bind_dims(og_builder *builder, og_op op, const og_parameter *parameter,
                              og_operand *operand)
{
    bool single = parameter->kind == OG_PARAMETER_DIM,
         sizes = parameter->kind == OG_PARAMETER_SIZES;
    const char *expected = single ? "an integer" : "an integer or a list of integers";
    og_dim_list list = {.count = 1};
    if (operand->kind == OG_OPERAND_DIMS) {
        list = builder->dims[operand->index];
        if (builder->composite != OG_FUNCTION_COUNT)
            return OGIVE_OK; /* checked when the composite was called */
        if (single)
            return fail_kind(builder, op, parameter, operand, expected);
        OG_TRY(refuse_nones(builder, op, parameter, operand, &list));
    } else if (operand->kind != OG_OPERAND_NUMBER ||
               !get_integer(operand->number, &list.values[0])) {
        return fail_kind(builder, op, parameter, operand, expected);
    }
    if (sizes && list.count == 0)
        OG_FAIL(builder->error, OGIVE_FORMULA, operand->offset, "%s: %s is empty",
                og_call_label(builder, op), parameter->name);
    list.has_sizes = sizes;
    list.all = list.count == 0; /* as in PyTorch */
    OG_TRY(check_entries(builder, op, parameter, operand, &list));
    operand->kind = OG_OPERAND_DIMS;
    return og_build_dims(builder, &list, &operand->index);
}

/* operand->index becomes the number of the choice. */
static ogive_status bind_choice(const og_builder *builder, og_op op, const og_parameter *parameter,
                                og_operand *operand)
{
    const char *const *choices = parameter->choices;
    char expected[DESCRIPTION] = "";
    for (int i = 0; i < OG_MAX_CHOICES && choices[i]; i++) {
        bool is_last = i + 1 == OG_MAX_CHOICES || !choices[i + 1];
        size_t length = strlen(expected);
        snprintf(expected + length, sizeof expected - length, "%s'%s'",
                 i == 0    ? ""
                 : is_last ? " or "
                           : ", ",
                 choices[i]);
        if (operand->kind == OG_OPERAND_STRING && strlen(choices[i]) == operand->length &&
            !memcmp(choices[i], operand->string, operand->length)) {
            operand->index = i;
            return OGIVE_OK;
        }
    }
    return fail_kind(builder, op, parameter, operand, expected);
}

/* Sizes or steps of windows, given as one integer or as a list, become a list. */
static ogive_status bind_steps(og_builder *builder, og_op op, const og_parameter *parameter,
                               og_operand *operand)
{
    og_dim_list list = {.count = 1};
    bool in_composite = builder->composite != OG_FUNCTION_COUNT;
    bool is_output = strcmp(parameter->name, "output_size") == 0;
    if (operand->kind == OG_OPERAND_STRING && parameter->choices[0]) {
        OG_TRY(bind_choice(builder, op, parameter, operand));
        list.values[0] = operand->index ? OG_SAME : 0;
        operand->kind = OG_OPERAND_DIMS;
        return og_build_dims(builder, &list, &operand->index);
    }
    if (operand->kind == OG_OPERAND_DIMS) {
        list = builder->dims[operand->index];
        if (in_composite)
            return OGIVE_OK; /* checked when the composite was called */
        if (list.count == 0 && isnan(parameter->number)) { /* as in PyTorch */
            operand->kind = OG_OPERAND_NONE;
            return OGIVE_OK;
        }
        if (!is_output)
            OG_TRY(refuse_nones(builder, op, parameter, operand, &list));
    } else if (operand->kind != OG_OPERAND_NUMBER ||
               !get_integer(operand->number, &list.values[0])) {
        return fail_kind(builder, op, parameter, operand,
                         parameter->choices[0] ? "an integer, a list of them, 'valid' or 'same'"
                                               : "an integer or a list of integers");
    }
    int least = is_output || strstr(parameter->name, "padding") ? 0 : 1;
    for (int i = 0; i < list.count && !in_composite; i++)
        if (!(list.nones >> i & 1) && (list.values[i] < least || list.values[i] > INT32_MAX / 4))
            OG_FAIL(builder->error, OGIVE_FORMULA, operand->offset,
                    "%s: %s is %lld, expected %d or more%s", og_call_label(builder, op),
                    parameter->name, (long long)list.values[i], least,
                    list.values[i] > 0 ? ", less than 2^29" : "");
    operand->kind = OG_OPERAND_DIMS;
    return og_build_dims(builder, &list, &operand->index);
}

static ogive_status bind_default(og_builder *builder, og_op op, const og_parameter *parameter,
                                 int64_t offset, og_operand *operand)
{
    if (parameter->required) {
        char signature[160];
        const og_function *function = og_function_of(op);
        og_function_signature(function, signature, sizeof signature);
        OG_FAIL(builder->error, OGIVE_FORMULA, operand->kind ? operand->offset : offset,
                "%s: argument '%s' is missing; the call is %s(%s)", og_call_label(builder, op),
                parameter->name, og_call_label(builder, op), signature);
    }
    *operand = og_number_operand(parameter->number, offset);
    if (parameter->kind == OG_PARAMETER_FLAG) {
        operand->kind = OG_OPERAND_FLAG;
        operand->flag = parameter->number != 0;
    }
    if (parameter->kind == OG_PARAMETER_CHOICE) {
        operand->kind = OG_OPERAND_STRING;
        operand->string = parameter->choices[0];
        operand->length = strlen(operand->string);
    }
    if (parameter->kind == OG_PARAMETER_DIM)
        return bind_dims(builder, op, parameter, operand);
    if (parameter->kind == OG_PARAMETER_STEPS && isnan(parameter->number))
        operand->kind = OG_OPERAND_NONE;
    else if (parameter->kind == OG_PARAMETER_STEPS)
        return bind_steps(builder, op, parameter, operand);
    if (parameter->kind != OG_PARAMETER_DIMS)
        return OGIVE_OK;
    operand->kind = OG_OPERAND_DIMS;
    og_dim_list every_dim = {.all = true};
    return og_build_dims(builder, &every_dim, &operand->index);
}

/* Checks argument number `position` and gives it the form of its kind. */
static ogive_status bind_argument(og_builder *builder, og_op op, int position, int64_t offset,
                                  og_operand *operand)
{
    const og_parameter *parameter = &og_function_of(op)->parameters[position];
    if (parameter->kind == OG_PARAMETER_KEYWORD)
        return OGIVE_OK;
    if (operand->kind == OG_OPERAND_MISSING || operand->kind == OG_OPERAND_NONE)
        return bind_default(builder, op, parameter, offset, operand);
    switch (parameter->kind) {
    case OG_PARAMETER_TENSOR:
        return bind_tensor(builder, op, parameter, operand);
    case OG_PARAMETER_NUMBER:
        return check_number(builder, op, parameter, operand);
    case OG_PARAMETER_FLAG:
        if (operand->kind != OG_OPERAND_FLAG)
            return fail_kind(builder, op, parameter, operand, "true or false");
        if (operand->flag && strcmp(parameter->name, "return_indices") == 0)
            OG_FAIL(builder->error, OGIVE_UNSUPPORTED, operand->offset,
                    "%s: return_indices must be false: a formula gives the values alone",
                    og_call_label(builder, op));
        return OGIVE_OK;
    case OG_PARAMETER_CHOICE:
        return bind_choice(builder, op, parameter, operand);
    case OG_PARAMETER_STEPS:
        return bind_steps(builder, op, parameter, operand);
    default:
        return bind_dims(builder, op, parameter, operand);
    }
}

/* ---- nodes --------------------------------------------------------------- */

static void set_dims(og_node *node, const og_dim_list *list)
{
    node->all_dims = list->all;
    node->dim_count = list->count;
    node->has_sizes = list->has_sizes;
    for (int i = 0; i < list->count; i++) {
        node->dims[i] = list->has_sizes ? i - list->count : (int32_t)list->values[i];
        if (list->has_sizes)
            node->sizes[i] = list->values[i];
    }
}

/* expand and part_size: two tensors, dims and, of expand, a flag. */
static ogive_status build_with_like(og_builder *builder, og_op op, const og_operand *args,
                                    int64_t offset, og_operand *out)
{
    og_node node = {.op = op, .arg_count = 2, .args = {args[0].index, args[1].index}};
    set_dims(&node, &builder->dims[args[2].index]);
    node.keepdim = op == OG_OP_expand && args[3].flag;
    return og_build_node(builder, &node, op, offset, out);
}

/* full_like: a tensor and a number. */
static ogive_status build_full(og_builder *builder, const og_operand *args, int64_t offset,
                               og_operand *out)
{
    og_node node = {.op = OG_OP_full_like, .arg_count = 1, .args = {args[0].index}};
    node.numbers[0] = args[1].number;
    return og_build_node(builder, &node, OG_OP_full_like, offset, out);
}

/* A list of steps, or one step, for each of rank dims; none: those of otherwise. */
static ogive_status spread_steps(og_builder *builder, og_op op, const og_parameter *parameter,
                                 const og_operand *operand, int32_t rank, const int32_t *otherwise,
                                 int32_t *to)
{
    if (operand->kind == OG_OPERAND_NONE) {
        memcpy(to, otherwise, OG_MAX_WINDOWS * sizeof *to);
        return OGIVE_OK;
    }
    const og_dim_list *list = &builder->dims[operand->index];
    if (list->count != 1 && list->count != rank)
        OG_FAIL(builder->error, OGIVE_FORMULA, operand->offset,
                rank == 1 ? "%s: %s has %d entries, expected %d"
                          : "%s: %s has %d entries, expected 1 or %d",
                og_call_label(builder, op), parameter->name, (int)list->count, (int)rank);
    for (int i = 0; i < rank; i++)
        to[i] = (int32_t)list->values[list->count == 1 ? 0 : i];
    return OGIVE_OK;
}

static bool is_windowed(og_op op)
{
    return op == OG_OP_windows || op == OG_OP_slide || op == OG_OP_slide_back ||
           og_op_convolves(op);
}

ogive_status og_check_count(const og_builder *builder, og_op op, const char *name, double number,
                            int least, int64_t offset)
{
    char text[OG_NUMBER_TEXT];
    if (number >= least && number <= INT32_MAX / 4 && og_is_whole(number))
        return OGIVE_OK;
    OG_FAIL(builder->error, OGIVE_FORMULA, offset,
            "%s: %s is %s, expected an integer of %d or more, less than 2^29",
            og_call_label(builder, op), name, og_number_text(number, text), least);
}

/* A number is added as it is: -0 where there is no bias. */
static ogive_status build_bias(og_builder *builder, const og_operand *args, int64_t offset,
                               og_operand *out)
{
    if (og_operand_is_constant(builder, &args[0])) {
        *out = args[0];
        return OGIVE_OK;
    }
    og_node node = {.op = OG_OP_bias_of, .arg_count = 2, .args = {args[0].index, args[1].index}};
    node.numbers[0] = args[2].number;
    return og_build_node(builder, &node, OG_OP_bias_of, offset, out);
}

/* What is_windowed(): tensors, steps, a flag and numbers, the first the rank. */
static ogive_status build_windows(og_builder *builder, og_op op, const og_operand *args,
                                  int64_t offset, og_operand *out)
{
    const og_parameter *parameters = og_function_of(op)->parameters;
    og_node node = {.op = op};
    og_sliding *sliding = &node.sliding;
    int32_t *steps[] = {sliding->size, sliding->stride, sliding->padding, sliding->dilation};
    int numbers = 0, step = 0;
    for (int i = 0; parameters[i].kind != OG_PARAMETER_NONE; i++) {
        if (parameters[i].kind == OG_PARAMETER_TENSOR)
            node.args[node.arg_count++] = args[i].index;
        else if (parameters[i].kind == OG_PARAMETER_NUMBER)
            node.numbers[numbers++] = args[i].number;
        else if (parameters[i].kind == OG_PARAMETER_FLAG)
            sliding->ceil_mode = args[i].flag;
    }
    sliding->rank = (int32_t)node.numbers[0];
    if (numbers > 1 && (op == OG_OP_convolve || op == OG_OP_convolve_back))
        OG_TRY(
            og_check_count(builder, op, "groups", node.numbers[1], 1, builder->composite_offset));
    for (int i = 0; parameters[i].kind != OG_PARAMETER_NONE; i++)
        if (parameters[i].kind == OG_PARAMETER_STEPS)
            OG_TRY(spread_steps(builder, op, &parameters[i], &args[i], sliding->rank, sliding->size,
                                steps[step++]));
    return og_build_node(builder, &node, op, offset, out);
}

/* A row of two operands of which at least one is a number or both are nodes. */
static ogive_status build_pair(og_builder *builder, og_op op, og_operand a, og_operand b,
                               og_operand *out)
{
    og_operand args[2] = {a, b};
    return og_build_scalar(builder, op, args, NULL, op, builder->composite_offset, out);
}

/* How many elements the windows along dim i of rank see or, with padding, reach: tensors, by the
 * place: the lesser of begin + size and the end, less begin. */
static ogive_status build_span(og_builder *builder, const og_operand *args, const og_sliding *s,
                               int i, bool padded, og_operand *out)
{
    og_node at = {.op = OG_OP_index, .arg_count = 1, .args = {args[0].index}, .dim_count = 1};
    og_node length = {.op = OG_OP_count, .arg_count = 1, .args = {args[1].index}, .dim_count = 1};
    at.dims[0] = length.dims[0] = i - s->rank;
    int64_t offset = builder->composite_offset;
    og_operand begin, end, number = og_number_operand(0, offset);
    OG_TRY(og_build_node(builder, &at, OG_OP_index, offset, &begin));
    OG_TRY(og_build_node(builder, &length, OG_OP_count, offset, &end));
    number.number = s->stride[i];
    OG_TRY(build_pair(builder, OG_OP_mul, begin, number, &begin));
    number.number = s->padding[i];
    OG_TRY(build_pair(builder, OG_OP_sub, begin, number, &begin));
    if (padded)
        OG_TRY(build_pair(builder, OG_OP_add, end, number, &end));
    og_operand reach;
    number.number = s->size[i];
    OG_TRY(build_pair(builder, OG_OP_add, begin, number, &reach));
    OG_TRY(build_pair(builder, OG_OP_minimum, reach, end, &end));
    number.number = 0;
    if (!padded)
        OG_TRY(build_pair(builder, OG_OP_maximum, begin, number, &begin));
    return build_pair(builder, OG_OP_sub, end, begin, out);
}

static ogive_status build_window_count(og_builder *builder, const og_operand *args, og_operand *out)
{
    const og_parameter *parameters = og_function_of(OG_OP_window_count)->parameters;
    bool ceil_mode = args[5].flag, padded = args[6].flag, is_cut = ceil_mode;
    og_sliding s = {.rank = (int32_t)args[7].number};
    int32_t *steps[] = {s.size, s.stride, s.padding};
    double whole = 1;
    for (int i = 0; i < 3; i++)
        OG_TRY(spread_steps(builder, OG_OP_window_count, &parameters[2 + i], &args[2 + i], s.rank,
                            s.size, steps[i]));
    for (int i = 0; i < s.rank; i++) {
        is_cut |= !padded && s.padding[i] > 0;
        whole *= s.size[i];
    }
    bool is_given = !isnan(args[8].number);
    if (is_given && args[8].number == 0)
        OG_FAIL(builder->error, OGIVE_FORMULA, args[8].offset, "%s: divisor_override is 0",
                og_call_label(builder, OG_OP_window_count));
    *out = og_number_operand(is_given ? args[8].number : whole, builder->composite_offset);
    for (int i = 0; i < s.rank && is_cut && !is_given; i++) {
        og_operand span;
        OG_TRY(build_span(builder, args, &s, i, padded, &span));
        if (i == 0)
            *out = span;
        else
            OG_TRY(build_pair(builder, OG_OP_mul, *out, span, out));
    }
    return OGIVE_OK;
}

static ogive_status build_window_size(og_builder *builder, const og_operand *args, og_operand *out)
{
    int32_t sizes[OG_MAX_WINDOWS], rank = (int32_t)args[1].number;
    OG_TRY(spread_steps(builder, OG_OP_window_size,
                        &og_function_of(OG_OP_window_size)->parameters[0], &args[0], rank, NULL,
                        sizes));
    *out = og_number_operand(1, builder->composite_offset);
    for (int i = 0; i < rank; i++)
        out->number *= sizes[i];
    return OGIVE_OK;
}

/* Reductions, count, index and transpose: one tensor and attributes. */
static ogive_status build_with_dims(og_builder *builder, og_op op, const og_operand *args,
                                    int64_t offset, og_operand *out)
{
    og_node node = {.op = op, .arg_count = 1};
    node.args[0] = args[0].index;
    set_dims(&node, &builder->dims[args[1].index]);
    if (op == OG_OP_transpose) {
        node.dims[1] = (int32_t)builder->dims[args[2].index].values[0];
        node.dim_count = 2;
    } else if (op == OG_OP_count) {
        node.numbers[0] = args[2].number;
    } else if (op != OG_OP_index) {
        node.keepdim = args[2].flag;
    }
    return og_build_node(builder, &node, op, offset, out);
}

/* narrow and portion, and back: tensors, a dim and two integers. */
static ogive_status build_slice(og_builder *builder, og_op op, const og_operand *args,
                                int64_t offset, og_operand *out)
{
    const og_parameter *parameters = og_function_of(op)->parameters;
    og_node node = {.op = op};
    int numbers = 0;
    for (int i = 0; parameters[i].kind != OG_PARAMETER_NONE; i++) {
        if (parameters[i].kind == OG_PARAMETER_TENSOR)
            node.args[node.arg_count++] = args[i].index;
        else if (parameters[i].kind == OG_PARAMETER_DIM)
            set_dims(&node, &builder->dims[args[i].index]);
        else
            node.numbers[numbers++] = args[i].number;
        const double limit = 9007199254740992; /* 2^53: integers that a double has */
        if (parameters[i].kind == OG_PARAMETER_NUMBER &&
            !(fabs(args[i].number) <= limit && floor(args[i].number) == args[i].number))
            OG_FAIL(builder->error, OGIVE_FORMULA, args[i].offset,
                    "%s: %s is %g, expected an integer", og_call_label(builder, op),
                    parameters[i].name, args[i].number);
    }
    return og_build_node(builder, &node, op, offset, out);
}

/* unfold: windows along the last dim, which `dimension` changes places with before and after. */
static ogive_status build_unfold(og_builder *builder, const og_operand *args, int64_t offset,
                                 og_operand *out)
{
    const og_parameter *parameters = og_function_of(OG_OP_unfold)->parameters;
    for (int i = 2; i < 4; i++)
        OG_TRY(og_check_count(builder, OG_OP_unfold, parameters[i].name, args[i].number, i - 2,
                              args[i].offset));
    int32_t dim = (int32_t)builder->dims[args[1].index].values[0];
    og_node to_last = {.op = OG_OP_transpose, .arg_count = 1, .dim_count = 2, .dims = {dim, -1}};
    og_node windows = {.op = OG_OP_windows, .arg_count = 1, .numbers = {1}};
    og_node back = {.op = OG_OP_transpose, .arg_count = 1, .dim_count = 2};
    back.dims[0] = dim < 0 ? dim - 1 : dim; /* there is one more dim at the end */
    back.dims[1] = -2;
    windows.sliding = (og_sliding){.rank = 1,
                                   .size = {(int32_t)args[2].number},
                                   .stride = {(int32_t)args[3].number},
                                   .dilation = {1}};
    to_last.args[0] = args[0].index;
    OG_TRY(og_build_node(builder, &to_last, OG_OP_unfold, offset, out));
    windows.args[0] = out->index;
    OG_TRY(og_build_node(builder, &windows, OG_OP_unfold, offset, out));
    back.args[0] = out->index;
    return og_build_node(builder, &back, OG_OP_unfold, offset, out);
}

/* The row that the call's choice, switch or case selects. */
static og_op select_row(const og_builder *builder, og_op op, const og_operand *args)
{
    const og_parameter *parameters = og_function_of(op)->parameters;
    int selected = 0;
    for (int i = 0; parameters[i].kind != OG_PARAMETER_NONE; i++) {
        if (!parameters[i].selects)
            continue;
        if (parameters[i].kind == OG_PARAMETER_CHOICE)
            selected = args[i].index;
        if (parameters[i].kind == OG_PARAMETER_FLAG)
            selected = args[i].flag;
        if (parameters[i].kind == OG_PARAMETER_DIMS)
            selected = !builder->dims[args[i].index].all;
        for (int c = 0; c < parameters[i].case_count; c++)
            if (args[i].number == parameters[i].cases[c])
                selected = 1 + c;
    }
    return (og_op)(op + selected);
}

static ogive_status build_scalar_call(og_builder *builder, og_op op, const og_operand *args,
                                      int64_t offset, og_operand *out)
{
    const og_function *function = og_function_of(op);
    if (op == OG_OP_pow || op == OG_OP_power)
        return og_build_pow(builder, &args[0], &args[1], offset, out);
    og_constants constants = {{0}, false};
    for (int i = 0; i < function->constants; i++) {
        constants.numbers[i] = args[function->args + i].number;
        /* A bound that was not given is infinite, and no float. */
        constants.is_real |=
            op == OG_OP_clamp &&
            (args[function->args + i].is_real ||
             (isfinite(constants.numbers[i]) && !og_is_whole(constants.numbers[i])));
    }
    return og_build_scalar(builder, select_row(builder, op, args), args, &constants, op, offset,
                           out);
}

/* Does the function have parameters a channel of its input? */
static bool is_channel_norm(og_op op)
{
    return op == OG_OP_batch_norm || op == OG_OP_instance_norm || op == OG_OP_group_norm;
}

/* weight and bias of a function that is given sizes have exactly those; of a norm over channels,
 * as many elements as there are channels. */
static ogive_status add_size_checks(og_builder *builder, og_op op, const og_operand *args)
{
    const og_parameter *parameters = og_function_of(op)->parameters;
    static const og_dim_list a_channel = {.count = 1, .values = {OG_CHANNELS}};
    int sizes = 0;
    while (parameters[sizes].kind != OG_PARAMETER_NONE &&
           parameters[sizes].kind != OG_PARAMETER_SIZES)
        sizes++;
    if (parameters[sizes].kind == OG_PARAMETER_NONE && !is_channel_norm(op))
        return OGIVE_OK;
    const og_dim_list *list = is_channel_norm(op) ? &a_channel : &builder->dims[args[sizes].index];
    for (int i = 0; parameters[i].kind != OG_PARAMETER_NONE; i++) {
        if (parameters[i].kind != OG_PARAMETER_TENSOR || parameters[i].required ||
            args[i].kind != OG_OPERAND_NODE || args[0].kind != OG_OPERAND_NODE)
            continue;
        og_size_check check = {.node = args[i].index,
                               .input = args[0].index,
                               .before = (int32_t)builder->node_count,
                               .rank = list->count,
                               .called = op,
                               .parameter = parameters[i].name,
                               .offset = args[i].offset};
        memcpy(check.sizes, list->values, sizeof check.sizes);
        OG_TRY(og_build_check(builder, &check));
    }
    return OGIVE_OK;
}

static ogive_status build_composite(og_builder *builder, og_op op, size_t base, int64_t offset,
                                    og_operand *out)
{
    og_op outer = builder->composite;
    if (outer == OG_FUNCTION_COUNT) {
        builder->composite_checks = builder->check_count;
        OG_TRY(add_size_checks(builder, op, builder->operands + base));
        builder->composite = get_called(op);
        builder->composite_offset = offset;
    }
    const og_function *row = og_function_of(select_row(builder, op, builder->operands + base));
    og_op rule = builder->rule;
    builder->rule = row->derivative ? op : OG_FUNCTION_COUNT;
    ogive_status status = og_parse_meaning(builder, row, base, out);
    builder->composite = outer;
    builder->rule = rule;
    return status;
}

static ogive_status build_call(og_builder *builder, og_op op, size_t base, int64_t offset,
                               og_operand *out)
{
    const og_function *function = og_function_of(op);
    /* Nothing but a composite parses, so builder->operands stays where it is. */
    const og_operand *args = builder->operands + base;
    switch (function->kind) {
    case OG_SCALAR:
        return build_scalar_call(builder, op, args, offset, out);
    case OG_MASKING:
        return og_build_plain(builder, op, args, 2, offset, out);
    case OG_COMPOSITE:
        return build_composite(builder, op, base, offset, out);
    case OG_REDUCTION:
        return build_with_dims(builder, op, args, offset, out);
    default:
        if (is_windowed(op))
            return build_windows(builder, op, args, offset, out);
        if (og_op_slices(op))
            return build_slice(builder, op, args, offset, out);
        if (op == OG_OP_unfold)
            return build_unfold(builder, args, offset, out);
        if (op == OG_OP_bias_of)
            return build_bias(builder, args, offset, out);
        if (op == OG_OP_per_channel)
            return og_build_per_channel(builder, args, offset, out);
        if (op == OG_OP_group_sum || op == OG_OP_group_spread)
            return og_build_grouped(builder, op, args, offset, out);
        if (op == OG_OP_all_but)
            return og_build_all_but(builder, args, out);
        if (op == OG_OP_window_count)
            return build_window_count(builder, args, out);
        if (op == OG_OP_window_size)
            return build_window_size(builder, args, out);
        if (op == OG_OP_count || op == OG_OP_transpose || op == OG_OP_index)
            return build_with_dims(builder, op, args, offset, out);
        if (op == OG_OP_expand || op == OG_OP_part_size)
            return build_with_like(builder, op, args, offset, out);
        if (op == OG_OP_full_like)
            return build_full(builder, args, offset, out);
        int count = 0;
        while (function->parameters[count].kind == OG_PARAMETER_TENSOR)
            count++;
        return og_build_plain(builder, op, args, count, offset, out);
    }
}

/* clamp's bounds, args[1] and args[2], are two of a kind, as in PyTorch. */
static ogive_status check_bounds(const og_builder *builder, const og_operand *args, int64_t offset)
{
    if (og_is_absent(&args[1]) && og_is_absent(&args[2]))
        OG_FAIL(builder->error, OGIVE_FORMULA, offset, "clamp: give min, max or both");
    for (int i = 1; i <= 2; i++) {
        const og_operand *other = &args[3 - i];
        if (args[i].kind == OG_OPERAND_NUMBER && other->kind == OG_OPERAND_NODE &&
            builder->composite == OG_FUNCTION_COUNT)
            OG_FAIL(builder->error, OGIVE_FORMULA, args[i].offset,
                    "clamp: %s is a number, but %s a tensor; use maximum() or minimum() for one",
                    i == 1 ? "min" : "max", i == 1 ? "max" : "min");
    }
    return OGIVE_OK;
}

/* The row of a call with a tensor in place of a number or of dims: op's overload, if it has one. */
static ogive_status find_overload(const og_builder *builder, og_op op, const og_operand *args,
                                  og_op *row)
{
    const og_function *function = og_function_of(op);
    const og_parameter *parameters = function->parameters;
    if (!function->overload)
        return OGIVE_OK;
    const og_function *other = og_function_of((og_op)(function->overload - 1));
    bool is_other = false, has_ended = false;
    for (int i = 0; parameters[i].kind != OG_PARAMETER_NONE; i++)
        is_other |= parameters[i].kind != OG_PARAMETER_TENSOR && args[i].kind == OG_OPERAND_NODE;
    if (!is_other)
        return OGIVE_OK;
    for (int i = 0; parameters[i].kind != OG_PARAMETER_NONE; i++) {
        has_ended |= other->parameters[i].kind == OG_PARAMETER_NONE;
        if (has_ended && args[i].kind != OG_OPERAND_MISSING)
            OG_FAIL(builder->error, OGIVE_FORMULA, args[i].offset,
                    "%s: of two tensors, it has no %s", function->name, parameters[i].name);
    }
    *row = (og_op)(function->overload - 1);
    if (op == OG_OP_clamp && (og_is_absent(&args[1]) || og_is_absent(&args[2])))
        *row = OG_OP_clamp_beyond;
    return OGIVE_OK;
}

ogive_status og_call_function(og_builder *builder, og_op op, size_t base, int64_t offset,
                              og_operand *out)
{
    const og_operand *args = builder->operands + base;
    if (op == OG_OP_clamp && args[0].kind != OG_OPERAND_MISSING)
        OG_TRY(check_bounds(builder, args, offset));
    if ((op == OG_OP_batch_norm || op == OG_OP_instance_norm) &&
        args[0].kind != OG_OPERAND_MISSING && builder->composite == OG_FUNCTION_COUNT)
        OG_TRY(og_check_running(builder, op, args, offset));
    og_op row = op;
    OG_TRY(find_overload(builder, op, args, &row));
    const og_function *function = og_function_of(row);
    op = function->group ? row : op;
    for (int i = 0; function->parameters[i].kind != OG_PARAMETER_NONE; i++) {
        og_operand *argument = &builder->operands[base + (size_t)i];
        OG_TRY(bind_argument(builder, row, i, offset, argument));
        if (function->parameters[i].kind == OG_PARAMETER_TENSOR)
            OG_TRY(og_build_argument(builder, op, argument));
    }
    OG_TRY(build_call(builder, row, base, offset, out));
    og_note_product(builder, op, out);
    out->offset = offset;
    return OGIVE_OK;
}
