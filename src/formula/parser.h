/* SPDX-License-Identifier: MIT
 *
 * parser.h - what parser.c (text to calls), graph_parse.c (what is parsed) and calls.c (calls to
 * nodes) want of each other. Everybody else parses by og_graph_parse() of graph.h.
 */
#ifndef OG_PARSER_H
#define OG_PARSER_H

#include "formula/builder.h"
#include "formula/scope.h"

/* calls.c: the value of a call of op. Its arguments are builder->operands[base],
 * ..., one per entry of the function's parameter list, missing ones included. */
ogive_status og_call_function(og_builder *builder, og_op op, size_t base, int64_t offset,
                              og_operand *out);
/* calls.c: a tensor or a number, which is what operators take (a mask becomes a tensor of bool);
 * label names the operator or whatever else asks. */
ogive_status og_take_value(og_builder *builder, og_operand *operand, const char *label);
/* parser.c: the results of text, at most OG_MAX_RESULTS. in_meaning: it is a composite's, or a
 * derivative, which may call functions without a group and has no inputs. */
ogive_status og_parse_program(og_builder *builder, og_scope *scope, const char *text, size_t length,
                              bool in_meaning, og_operand *results, int32_t *count);

/* A name of a meaning or of a derivative and what it stands for. */
typedef struct {
    const char *name;
    og_operand operand;
} og_bound_name;

/* graph_parse.c: the results of a derivative's text over count names; None where there
 * is none. There must be result_count of them. */
ogive_status og_parse_derivative(og_builder *builder, const char *text, const og_bound_name *names,
                                 int count, og_operand *results, int32_t result_count);

/* graph_parse.c: the value of a composite's meaning, or its two, its parameters being
 * builder->operands[base], ... */
ogive_status og_parse_meaning(og_builder *builder, const og_function *function, size_t base,
                              og_operand *out);

/* ---- between calls.c and calls_norm.c --------------------------------------- */

/* What the user called: inside of a meaning that is the composite. */
const char *og_call_label(const og_builder *builder, og_op op);

/* Is a call's argument `name` an integer from `least` on that counts something? */
ogive_status og_check_count(const og_builder *builder, og_op op, const char *name, double number,
                            int least, int64_t offset);

/* An argument that was not given, or given as None. */
static inline bool og_is_absent(const og_operand *operand)
{
    return operand->kind == OG_OPERAND_MISSING || operand->kind == OG_OPERAND_NONE;
}

ogive_status og_build_per_channel(og_builder *builder, const og_operand *args, int64_t offset,
                                  og_operand *out);
ogive_status og_build_grouped(og_builder *builder, og_op op, const og_operand *args, int64_t offset,
                              og_operand *out);
ogive_status og_build_all_but(og_builder *builder, const og_operand *args, og_operand *out);
ogive_status og_check_running(const og_builder *builder, og_op op, const og_operand *args,
                              int64_t offset);

#endif
