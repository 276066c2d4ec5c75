/* SPDX-License-Identifier: MIT
 *
 * builder.h - a graph while it grows: hash-consing, constant folding, exact
 * simplification. Knows operands, not text; the parser fills it.
 */
#ifndef OG_BUILDER_H
#define OG_BUILDER_H

#include "formula/graph.h"

typedef enum {
    OG_OPERAND_MISSING,
    OG_OPERAND_NODE,   /* index: the node */
    OG_OPERAND_NUMBER, /* a constant that has no node yet */
    OG_OPERAND_DIMS,   /* index: into builder->dims */
    OG_OPERAND_FLAG,
    OG_OPERAND_STRING,
    OG_OPERAND_PAIR, /* index and second: the nodes of a function of two results */
    OG_OPERAND_NONE  /* None, written out */
} og_operand_kind;

/* What an expression or an argument stands for while parsing. */
typedef struct {
    og_operand_kind kind;
    int32_t index, second;
    double number;
    bool is_real; /* OG_OPERAND_NUMBER: a float to PyTorch, 2.0 or 0.5 */
    bool flag;
    const char *string; /* not NUL-terminated */
    size_t length;
    int64_t offset; /* of its first byte in the user's text */
} og_operand;

/* A SCALAR row's numbers after its values. */
typedef struct {
    double numbers[OG_MAX_NUMBERS];
    bool is_real; /* see og_node */
} og_constants;

typedef struct {
    bool all;       /* every dim; count is 0 */
    bool has_sizes; /* values are the sizes of the last count dims, else dims */
    int32_t count;
    uint32_t nones; /* bit i: entry i is None, and its value OG_KEPT */
    int64_t values[OG_MAX_RANK];
} og_dim_list;

typedef struct {
    const char *name; /* in the text */
    size_t length;
    int64_t offset;
} og_input_name;

enum {
    OG_FIRST_NODES = 32,
    OG_FIRST_SLOTS = 128,
    OG_FIRST_INPUTS = 16,
    OG_FIRST_DIMS = 8,
    OG_FIRST_OPERANDS = 32
};

typedef struct {
    ogive_error *error;
    og_node *nodes;
    size_t node_count, node_capacity;
    int32_t *slots; /* hash table of 1 + node, 0 for none; slot_count is a power of two */
    size_t slot_count;
    og_input_name *inputs;
    size_t input_count, input_capacity;
    og_size_check *checks;
    size_t check_count, check_capacity;
    og_dim_list *dims; /* a stack: a call's lists are dropped at its end */
    size_t dim_count, dim_capacity;
    og_operand *operands; /* a stack: the arguments of the calls being parsed */
    size_t operand_count, operand_capacity;

    const og_op *casts; /* [function]: og_graph_cast()'s, or NULL */
    bool calls[OG_FUNCTION_COUNT];

    /* The composite being expanded (OG_FUNCTION_COUNT: none) and where the user
     * called it: nodes made meanwhile are named after it. */
    og_op composite;
    int64_t composite_offset;
    size_t composite_checks; /* the first of its checks */
    og_op rule;              /* of the DERIVED composite being expanded, else OG_FUNCTION_COUNT */

    /* Enough for a short formula without malloc. */
    og_node first_nodes[OG_FIRST_NODES];
    int32_t first_slots[OG_FIRST_SLOTS];
    og_input_name first_inputs[OG_FIRST_INPUTS];
    og_dim_list first_dims[OG_FIRST_DIMS];
    og_operand first_operands[OG_FIRST_OPERANDS];
} og_builder;

void og_builder_init(og_builder *builder, ogive_error *error);
void og_builder_free(og_builder *builder);
/* Nodes made from now on are called what this node is called, at its place. */
void og_builder_stand_at(og_builder *builder, const og_node *node);
og_operand og_node_operand(int32_t node);
/* Fills an empty builder with the nodes, inputs and checks of graph. */
ogive_status og_builder_load(og_builder *builder, const og_graph *graph);
/* One node of another graph, whose arguments are nodes of this one, as it is. */
ogive_status og_build_copy(og_builder *builder, const og_node *node, int32_t *index);
/* Moves what was built into *graph, whose arena then owns it. */
ogive_status og_builder_finish(const og_builder *builder, const char *text, size_t length,
                               const int32_t *results, int32_t result_count, og_graph *graph);

/* A number of our own: a float to PyTorch only if it is no integer. */
static inline og_operand og_number_operand(double number, int64_t offset)
{
    return (og_operand){.kind = OG_OPERAND_NUMBER, .number = number, .offset = offset};
}

/* Of a number: would PyTorch take it for a float? */
bool og_is_real(const og_operand *operand);

/* A comparison's result. */
bool og_operand_is_mask(const og_builder *builder, const og_operand *operand);
/* A comparison as a tensor of bool, and back: a tensor that must be of bool as a mask. */
ogive_status og_build_boolean(og_builder *builder, const og_operand *mask, og_operand *out);
ogive_status og_build_truth(og_builder *builder, const og_operand *tensor, og_operand *out);
/* A number, or a node that depends on no input. */
bool og_operand_is_constant(const og_builder *builder, const og_operand *operand);

/* A node for wanted, whose op, args and attributes are set: the one there is, or
 * a new one. called is what the user wrote, at offset, outside of composites. */
ogive_status og_build_node(og_builder *builder, og_node *wanted, og_op called, int64_t offset,
                           og_operand *out);
ogive_status og_build_input(og_builder *builder, const char *name, size_t length, int64_t offset,
                            og_operand *out);
/* An argument of op that is a tensor or a number. Where the user wrote the call, that is
 * noted, and the argument cast as builder->casts wants it. */
ogive_status og_build_argument(og_builder *builder, og_op op, og_operand *argument);
/* value is that of a call of op: if the user wrote a product, its node says so. */
void og_note_product(og_builder *builder, og_op op, const og_operand *value);
/* A SCALAR row of operands that are numbers or tensors: folded, simplified, or a node. constants
 * may be NULL. */
ogive_status og_build_scalar(og_builder *builder, og_op op, const og_operand *args,
                             const og_constants *constants, og_op called, int64_t offset,
                             og_operand *out);
/* pow as PyTorch's CPU computes it: a few exponents that are numbers by multiplication, sqrt,
 * division. */
ogive_status og_build_pow(og_builder *builder, const og_operand *base, const og_operand *power,
                          int64_t offset, og_operand *out);
/* MASK rows, where, products, casts, views: nodes of count operands, never folded. */
ogive_status og_build_plain(og_builder *builder, og_op op, const og_operand *args, int count,
                            int64_t offset, og_operand *out);
/* A list at the top of builder->dims; *index says where. */
ogive_status og_build_dims(og_builder *builder, const og_dim_list *list, int32_t *index);
/* count missing operands on top of builder->operands, the first at *base. */
ogive_status og_build_operands(og_builder *builder, size_t count, size_t *base);
ogive_status og_build_check(og_builder *builder, const og_size_check *check);

#endif
