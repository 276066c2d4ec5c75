/* SPDX-License-Identifier: MIT
 *
 * calls_norm.c - what calls.c makes of the calls that norms over channels consist of.
 */
#include "formula/parser.h"

/* A number a channel is that number. */
ogive_status og_build_per_channel(og_builder *builder, const og_operand *args, int64_t offset,
                                  og_operand *out)
{
    if (og_operand_is_constant(builder, &args[0])) {
        *out = args[0];
        return OGIVE_OK;
    }
    return og_build_plain(builder, OG_OP_channel_like, args, 2, offset, out);
}

/* group_sum and group_spread: tensors and the number of groups. */
ogive_status og_build_grouped(og_builder *builder, og_op op, const og_operand *args, int64_t offset,
                              og_operand *out)
{
    og_node node = {.op = op, .arg_count = op == OG_OP_group_sum ? 1 : 2};
    const og_operand *groups = &args[node.arg_count];
    for (int i = 0; i < node.arg_count; i++)
        node.args[i] = args[i].index;
    node.numbers[0] = groups->number;
    OG_TRY(og_check_count(builder, op, "num_groups", groups->number, 1, groups->offset));
    return og_build_node(builder, &node, op, offset, out);
}

/* all_but: a list, of dims that are left out. */
ogive_status og_build_all_but(og_builder *builder, const og_operand *args, og_operand *out)
{
    og_dim_list list = builder->dims[args[0].index];
    list.all = true;
    *out = (og_operand){.kind = OG_OPERAND_DIMS};
    return og_build_dims(builder, &list, &out->index);
}

/* batch_norm and instance_norm: running values, args[1] and args[2], are there if and only if
 * statistics of the input, args[5], are not asked for: those would change them. */
ogive_status og_check_running(const og_builder *builder, og_op op, const og_operand *args,
                              int64_t offset)
{
    const og_parameter *parameters = og_function_of(op)->parameters;
    bool of_input = og_is_absent(&args[5]) ? parameters[5].number != 0 : args[5].flag;
    for (int i = 1; i <= 2; i++) {
        if (of_input && !og_is_absent(&args[i]))
            OG_FAIL(builder->error, OGIVE_FORMULA, args[i].offset,
                    "%s: %s must be None where %s is true: a formula changes no tensor",
                    og_function_of(op)->name, parameters[i].name, parameters[5].name);
        if (!of_input && og_is_absent(&args[i]))
            OG_FAIL(builder->error, OGIVE_FORMULA, offset,
                    "%s: %s is missing, which is needed where %s is false",
                    og_function_of(op)->name, parameters[i].name, parameters[5].name);
    }
    return OGIVE_OK;
}
