/* SPDX-License-Identifier: MIT
 *
 * infer.h - shapes and dtypes of a graph's nodes for given inputs, by PyTorch's
 * rules: broadcasting, promotion (a 0-d tensor or a number never promotes a
 * tensor with dims), negative dims, keepdim.
 */
#ifndef OG_INFER_H
#define OG_INFER_H

#include "formula/graph.h"

typedef struct {
    og_dtype dtype; /* computed in float64 if OG_FLOAT64 or an integer of 32 bits or more, else
                       in float32. Only inputs, views of them and comparisons are no floats */
    bool is_number; /* OG_OP_NUMBER and what is computed from numbers alone: takes
                        the type of what it meets; rank 0 */
    bool is_real;   /* is_number: a float to PyTorch, as 2.0 is, so that integers become floats */
    bool is_weak;   /* where(c, 1, 0): a tensor of integers to PyTorch, so that its float32 yields
                       to any other floats */
    bool is_mask;   /* a comparison: dtype is that of the comparison itself */
    int32_t rank;
    int64_t shape[OG_MAX_RANK];
    /* Reductions, sum_like: bit d is set if dim d of the argument is reduced;
     * expand: of its own; group_sum: of the argument's with (groups, channels of a group) for dim
     * 1. */
    uint32_t reduced;
    /* transpose, t: the argument's dims that dim 0 and 1 of the swap name. */
    int32_t swap[2];
    /* is_number: its value, computed in float64 (of a mask: 1 or 0); full_like's. */
    double number;
} og_typed;

typedef struct {
    og_dtype dtype;
    int32_t rank;
    int64_t shape[OG_MAX_RANK];
} og_input_type;

/* The windows of node, one of windows, slide and slide_back, of types input and out: those of
 * stride 0 with the size and stride that they have, if they are all alike. */
og_sliding og_sliding_of(const og_node *node, const og_typed *input, const og_typed *out);

/* A dim of `extent` elements, cut into as many parts as there are places (see plan.h): the lengths of
 * a part and of an element in units that both are whole multiples of; pairs of a place and an
 * element's number that it sees, and how many of them a tap has. extent and places are 1 or more. */
typedef struct {
    int64_t part, element, pairs, width, taps;
} og_parts;

og_parts og_parts_of(int64_t extent, int64_t places);

/* The elements of a dim that narrow and portion take, or put back. */
typedef struct {
    int32_t dim;
    int64_t start, length;
} og_slice;

/* The slice of node, of which whole is the type of what it is taken of: its input, or, back, its
 * like. */
og_slice og_slice_of(const og_node *node, const og_typed *whole);
/* A convolution (see functions.def): whichever of x, w and g node gives, it has type out. */
typedef struct {
    const og_typed *x, *w, *g;
    int32_t rank; /* of places and taps; x and g may have no batch */
    int64_t groups;
    og_sliding sliding; /* its padding is a number */
} og_convolution;

og_convolution og_convolution_of(const og_node *node, const og_typed *types, const og_typed *out);

/* Fills types[0 .. graph->node_count). */
ogive_status og_infer(const og_graph *graph, const og_input_type *inputs, og_typed *types,
                      ogive_error *error);

#endif
