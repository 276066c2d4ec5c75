/* SPDX-License-Identifier: MIT
 *
 * infer_node.h - what infer.c, infer_product.c and infer_like.c share. Everybody else calls
 * og_infer() of infer.h.
 */
#ifndef OG_INFER_NODE_H
#define OG_INFER_NODE_H

#include "formula/infer.h"

const char *og_infer_shape(const og_typed *type, char text[OG_SHAPE_TEXT]);
/* False if a and b do not broadcast; shape may not be a or b. */
bool og_infer_broadcast(int a_rank, const int64_t *a, int b_rank, const int64_t *b, int32_t *rank,
                        int64_t *shape);

/* Which dims of input a node with dims reduces, one bit each. */
ogive_status og_infer_reduced(const og_graph *graph, const og_node *node, const og_typed *input,
                              uint32_t *reduced, ogive_error *error);

/* The dim that number d names. A 0-d tensor has a dim 0, as in PyTorch. */
ogive_status og_infer_dim(const og_graph *graph, const og_node *node, int32_t d, int rank,
                          int32_t *dim, ogive_error *error);

/* Only floats are computed with. */
ogive_status og_infer_float(const og_graph *graph, const og_node *node, const og_typed *type,
                            ogive_error *error);

/* *out is zero at entry; types are those of the nodes before. */
ogive_status og_infer_matmul(const og_graph *graph, const og_node *node, const og_typed *types,
                             og_typed *out, ogive_error *error);
ogive_status og_infer_linear(const og_graph *graph, const og_node *node, const og_typed *types,
                             og_typed *out, ogive_error *error);
ogive_status og_infer_product_t(const og_graph *graph, const og_node *node, const og_typed *types,
                                og_typed *out, ogive_error *error);
ogive_status og_infer_windows(const og_graph *graph, const og_node *node, const og_typed *types,
                              og_typed *out, ogive_error *error);
ogive_status og_infer_part_size(const og_graph *graph, const og_node *node, const og_typed *types,
                                og_typed *out, ogive_error *error);
ogive_status og_infer_slice(const og_graph *graph, const og_node *node, const og_typed *types,
                            og_typed *out, ogive_error *error);
ogive_status og_infer_convolution(const og_graph *graph, const og_node *node, const og_typed *types,
                                  og_typed *out, ogive_error *error);
ogive_status og_infer_bias(const og_graph *graph, const og_node *node, const og_typed *types,
                           og_typed *out, ogive_error *error);
ogive_status og_infer_groups(const og_graph *graph, const og_node *node, const og_typed *types,
                             og_typed *out, ogive_error *error);
ogive_status og_infer_like(const og_graph *graph, const og_node *node, const og_typed *types,
                           og_typed *out, ogive_error *error);

#endif
