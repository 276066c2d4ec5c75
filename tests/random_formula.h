/* SPDX-License-Identifier: MIT
 *
 * random_formula.h - random formulas that make sense: text, and the value they
 * ought to have, found by a second way through the language.
 *
 * A formula is grown as a list of nodes, each over earlier ones, with shapes and
 * dtypes by the rules of the language as restated here. It is printed as text
 * for the library, and evaluated node by node, whole tensors at a time, each op
 * rounded to float32: no parser, no inference, no planner, no fusion.
 */
#ifndef OG_RANDOM_FORMULA_H
#define OG_RANDOM_FORMULA_H

#include "test.h"

#include "formula/functions.h"

enum { FORMULA_NODES = 40, FORMULA_INPUTS = 4, FORMULA_RESULTS = 3, FORMULA_TEXT = 1 << 14 };

typedef enum {
    NODE_INPUT,
    NODE_NUMBER,
    NODE_SCALAR,     /* a SCALAR row */
    NODE_ACTIVATION, /* a composite of one tensor and numbers */
    NODE_WHERE,      /* where(a OP b, c, d) */
    NODE_REDUCE,     /* sum mean amax amin var std logsumexp */
    NODE_NORMALISE,  /* softmax log_softmax layer_norm rms_norm */
    NODE_PRODUCT,    /* linear matmul */
    NODE_TRANSPOSE,
    NODE_PART, /* narrow unfold */
    NODE_POOL, /* max, avg, adaptive */
    NODE_CONVOLVE /* conv1d conv2d conv_transpose1d conv_transpose2d */,
    NODE_CAST
} node_kind;

enum { FORMULA_SLIDES = 2 }; /* dims that windows slide along, at most */

typedef struct {
    node_kind kind;
    og_op op;
    int args[4]; /* nodes; -1 for none */
    int uses;
    double numbers[2]; /* a NUMBER's value; a SCALAR's constants; correction; eps (-1: none) */
    uint32_t dims;     /* bit d: of REDUCE, NORMALISE */
    bool all, keepdim; /* REDUCE */
    int swap[2];       /* TRANSPOSE; PART: the first is the dim, numbers are the two others */
    int slides;        /* POOL, CONVOLVE: the last dims; what windows are along each */
    int64_t size[FORMULA_SLIDES], stride[FORMULA_SLIDES], padding[FORMULA_SLIDES];
    int64_t dilation[FORMULA_SLIDES], groups;
    int input; /* INPUT: its number, for its name */
    og_dtype dtype;
    int rank;
    int64_t shape[8], count;
    double *values; /* of formula_evaluate(), last dim fastest */
} formula_node;

typedef struct {
    formula_node nodes[FORMULA_NODES];
    int node_count;
    int input_count; /* nodes 0 .. input_count - 1, used or not */
    int results[FORMULA_RESULTS], result_count;
    bool has_float64, reduces;
    char text[FORMULA_TEXT];
} random_formula;

extern const char *const formula_input_names[FORMULA_INPUTS];

/* A formula of inputs of at most max_count elements each. */
void formula_generate(test_random *random, int64_t max_count, random_formula *f);
/* Makes node, which is none of the inputs and no number, the only result. */
void formula_keep(random_formula *f, int node);
/* Is it an adaptive pooling, a maximum? */
bool formula_is_adaptive(const formula_node *node);
bool formula_takes_most(const formula_node *node);
/* Is it a transposed convolution? */
bool formula_is_transposed(const formula_node *node);
void formula_set_count(formula_node *node);
/* The dtype of args [first, 4): tensors with dims, else 0-d tensors, decide. */
og_dtype formula_promote(const random_formula *f, const formula_node *node, int first);
/* Values of all nodes, from those of the inputs (nodes[i].values, given). */
void formula_evaluate(random_formula *f);
/* Frees what formula_evaluate() made, and the inputs' values. */
void formula_free(random_formula *f);

#endif
