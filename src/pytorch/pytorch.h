/* SPDX-License-Identifier: MIT
 *
 * pytorch.h - a formula as a Python file of its own: CUDA source, launches, gradients and
 * a module, for PyTorch alone. See pytorch_file.c for what it is made of.
 */
#ifndef OG_PYTORCH_H
#define OG_PYTORCH_H

#include "formula/graph.h"

/* What an input of the formula is in the file. */
typedef enum {
    OG_PYTORCH_ARGUMENT, /* of forward() */
    OG_PYTORCH_OWNED,    /* a tensor of a module, or a parameter, that the model owns */
    OG_PYTORCH_SCALAR    /* a number given to the constructor */
} og_pytorch_role;

/* Shapes are examples: only their ranks count, which sizes are 1, and which the formula
 * wants to be equal; but files with windows are made for them, for the dtype and for the strides.
 * rank < 0: not given. */
typedef struct {
    og_dtype dtype;
    int32_t rank;
    int64_t shape[OG_MAX_RANK];
    int64_t stride[OG_MAX_RANK]; /* no two elements are in one place */
} og_pytorch_shape;

/* Adds the file to text. Of the options size has been checked. */
ogive_status og_pytorch_emit(const og_graph *graph, const og_pytorch_shape *shapes,
                             const ogive_pytorch_options *options, og_text *text,
                             ogive_error *error);

#endif
