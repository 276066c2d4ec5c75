/* SPDX-License-Identifier: MIT
 *
 * graph.h - a formula as nodes in SSA form: arguments come before their users,
 * equal nodes are one node (hash-consing), composites are already replaced by
 * their meaning, constant expressions are folded. No shapes and no devices:
 * infer.h adds shapes and types for given inputs.
 */
#ifndef OG_GRAPH_H
#define OG_GRAPH_H

#include "formula/functions.h"

enum {
    OG_MAX_TEXT = 1 << 20, /* bytes of formula text */
    OG_MAX_NESTING = 256,  /* parentheses, calls, unary operators, ** */
    OG_MAX_NODES = 65535,
    OG_MAX_RESULTS = 64
};

/* Windows along the last dims of a tensor, or along those before as many dims of taps; or those of
 * a convolution. */
typedef struct {
    int32_t rank;                                              /* of these dims; 0: no windows */
    int32_t size[OG_MAX_WINDOWS], stride[OG_MAX_WINDOWS];      /* size, of a convolution: that the
                                                             weight's; here its output_padding */
    int32_t padding[OG_MAX_WINDOWS], dilation[OG_MAX_WINDOWS]; /* padding: or OG_SAME */
    int32_t ceil_mode; /* one more window where the last would see some of the tensor: 1 or 0 */
} og_sliding;

typedef struct {
    og_op op;     /* a SCALAR, MASK, REDUCTION or SPECIAL row, OG_OP_INPUT or OG_OP_NUMBER */
    og_op called; /* what the user wrote (a composite's op, say), for messages */
    og_op rule;   /* whose derivative holds: op, or the DERIVED row that became this node */
    int32_t args[OG_MAX_ARGS]; /* nodes; -1 beyond the op's arguments */
    int32_t arg_count;
    int32_t index;                  /* OG_OP_INPUT: which */
    double numbers[OG_MAX_NUMBERS]; /* constants of a SCALAR; OG_OP_NUMBER; count's
                                       correction; full_like's value; of group_sum and
                                       group_spread how many groups there are */

    /* Reductions, count, expand: dims as written (negative counts from the end); with all_dims
     * every dim but these. transpose: dims[0], dims[1]. */
    bool all_dims;
    bool keepdim;
    int32_t dim_count;
    int32_t dims[OG_MAX_RANK];
    /* layer_norm and the like: the sizes that dims (then -n..-1) must have. */
    bool has_sizes;
    int64_t sizes[OG_MAX_RANK];

    og_sliding sliding; /* windows, slide, slide_back; numbers[1] is what windows are filled with,
                           of a convolution how many groups it has */

    bool is_real;     /* OG_OP_NUMBER: an integer, written as a float, 2.0; pow and clamp: a
                         constant was. PyTorch makes floats of integers that meet one */
    bool is_product;  /* the value of a linear or matmul that the user wrote */
    bool is_constant; /* computed from numbers alone */
    bool keeps_type;  /* the first argument's dtype is the result's, whatever the
                         second's: the weight and bias of layer_norm and rms_norm */
    int64_t offset;   /* byte in the text of the operator or name the user wrote */
} og_node;

/* layer_norm and the like: a tensor that must have exactly these sizes, of which one may be
 * OG_CHANNELS. */
typedef struct {
    int32_t node;
    int32_t input;  /* node of the call's first argument */
    int32_t before; /* nodes from this one on rely on it; never decreases */
    int32_t rank;
    int64_t sizes[OG_MAX_RANK];
    og_op called;
    const char *parameter; /* "weight" */
    int64_t offset;
} og_size_check;

typedef struct {
    const char *name;
    int64_t offset; /* of its first appearance */
} og_input;

typedef struct {
    og_arena arena;   /* owns everything below */
    const char *text; /* the formula's, NUL-terminated copy */
    size_t length;
    bool differs;                  /* from text: a gradient, a part, with casts */
    bool calls[OG_FUNCTION_COUNT]; /* functions and operators in text; none of a gradient, a part */
    og_node *nodes;
    int32_t node_count;
    og_input *inputs;
    int32_t input_count;
    og_size_check *checks;
    int32_t check_count;
    int32_t results[OG_MAX_RESULTS]; /* nodes; never a number or a mask */
    int32_t result_count;
} og_graph;

/* Parses text into *graph; on failure *graph needs no freeing. */
ogive_status og_graph_parse(const char *text, size_t length, og_graph *graph, ogive_error *error);
void og_graph_free(og_graph *graph);

/* derive.c: the gradient of graph, whose results are one per name: the sum over
 * graph's results of (gradient of the result) * (derivative by that input). Its
 * inputs are graph's, then one per result, named grad, or grad.0, grad.1, ... if
 * there are several; grad2, grad3, ... if an input has that name already. On
 * failure *gradient needs no freeing. */
ogive_status og_graph_gradient(const og_graph *graph, const char *const *names, size_t count,
                               og_graph *gradient, ogive_error *error);

/* graph_parse.c: graph, which must not differ from its text, with casts: each argument of
 * function f that is a tensor and depends on an input is cast by casts[f] first.
 * OG_FUNCTION_COUNT: none is. On failure *out needs no freeing. */
ogive_status og_graph_cast(const og_graph *graph, const og_op casts[OG_FUNCTION_COUNT],
                           og_graph *out, ogive_error *error);

/* part.c: what computes the nodes wanted (1 to OG_MAX_RESULTS, neither numbers nor masks)
 * from the inputs and the nodes given. Those that it needs are its inputs, in the order of
 * their nodes; given[i] is named value.i, or value2.i, ... if an input has such a name. On
 * failure *part needs no freeing. */
ogive_status og_graph_part(const og_graph *graph, const int32_t *wanted, size_t wanted_count,
                           const int32_t *given, size_t given_count, og_graph *part,
                           ogive_error *error);
/* part.c: word, or word2, word3, ... if an input is called so, or so with a dot and more. */
enum { OG_NEW_NAME = 32 };
void og_graph_new_name(const og_graph *graph, const char *word, char name[OG_NEW_NAME]);

/* part.c: the matrix product that node is, or adds linear's bias to; NULL if it does neither
 * or the user did not write it. */
const og_node *og_graph_product(const og_graph *graph, const og_node *node);

/* part.c: are elements of the input read, or only its shape and dtype? */
bool og_graph_reads(const og_graph *graph, int32_t input);
/* part.c: the node that a result is, but for sums over what broadcasting added and for casts. */
int32_t og_graph_source(const og_graph *graph, int32_t result);

/* What to call a node in a message: the operator ("+") or the function ("mean")
 * that the user wrote. */
const char *og_node_label(const og_graph *graph, const og_node *node);

/* graph_text.c: the graph as a formula for people, which may have functions without a group. */
ogive_status og_graph_text(const og_graph *graph, og_arena *scratch, og_text *text,
                           ogive_error *error);

/* One line per node, then the results:
 *     n0 = input x
 *     n1 = sum n0 dim=(1) keepdim
 *     n2 = count n0 dim=(1) 0 [mean]        [what the user wrote, where that differs]
 *     results n1 n2 */
void og_graph_print(const og_graph *graph, og_text *text);

#endif
