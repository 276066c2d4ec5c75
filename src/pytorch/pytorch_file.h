/* SPDX-License-Identifier: MIT
 *
 * pytorch_file.h - a file as it is written: between pytorch_file.c, which has it from end to end,
 * and pytorch_python.c.
 */
#ifndef OG_PYTORCH_FILE_H
#define OG_PYTORCH_FILE_H

#include "pytorch/pytorch_program.h"

enum { OG_PYTORCH_MAX_INPUTS = 32 };

typedef struct {
    const og_graph *graph;
    const ogive_pytorch_options *options;
    og_arena arena;
    og_pytorch_role *roles; /* [input], then those of the gradient's */
    const char **arguments; /* [input] in Python: "x", "fc_weight" */
    const char **owners;    /* [input] "self.fc.weight"; of an argument itself */
    const char **cpp_names; /* [input of the gradient] "x_" */
    bool *is_number;        /* [input] */
    og_text plain;          /* the formula in Python */
    og_pytorch_sizes sizes;
    og_graph gradient_graph;
    og_pytorch_program forward, backward;
    bool has_hopper;   /* some product has kernels for Hopper */
    bool has_products; /* there are products */
    og_text *text;
    ogive_error *error;
} og_pytorch_file;

/* pytorch_python.c: what has the kernels built, _build(); the rest of the file from _Formula on. */
void og_pytorch_add_builders(const og_pytorch_file *file);
void og_pytorch_add_module(const og_pytorch_file *file);

#endif
