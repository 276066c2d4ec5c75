/* SPDX-License-Identifier: MIT
 *
 * planner.h - from a typed graph to kernels, for given layouts. plan_build.c
 * decides which nodes share a kernel, by what plan_visit.c finds that they need;
 * plan_emit.c writes its passes, plan_space.c orders and collapses its dims, plan_deviations.c
 * takes a pass away, plan_traffic.c finds where in place is legal. plan_mapping.c knows how nodes
 * read their arguments, plan_product.c products, plan_convolution.c those over windows,
 * plan_small.c what is computed once for them. Before all of these plan_lower.c replaces nodes.
 */
#ifndef OG_PLANNER_H
#define OG_PLANNER_H

#include "formula/infer.h"
#include "plan/plan.h"

/* A tensor as the caller lays it out; strides in elements. */
typedef struct {
    og_dtype dtype;
    int32_t rank;
    int64_t shape[OG_MAX_RANK];
    int64_t stride[OG_MAX_RANK];
} og_layout;

/* Contiguous strides for layout's shape. False if it has more than INT64_MAX elements;
 * an empty one never fails: a stride that would not fit, and leads nowhere, is 0. */
bool og_layout_contiguous(og_layout *layout);

/* Which two products that are computed in float32 may share a kernel; of float64 any two may. */
typedef enum {
    OG_SHARE_ANY,
    OG_SHARE_ALIKE, /* two of halves with the same left factor: for devices that take such at once */
    OG_SHARE_NONE
} og_sharing;

/* What is asked of a plan besides results. Zeroes: as few kernels as can be. */
typedef struct {
    og_sharing sharing;
    /* Of a transposed stride in float32: one kernel has all phases, and windows with divisors; for
     * devices that take such. */
    bool gathers_phases;
    bool keeps_dims; /* neighbouring dims are never made one: for code that serves every size */
} og_plan_rules;

/* inputs and outputs: one layout per input and result of graph, outputs with the
 * shapes and dtypes that types gives them. On failure *plan needs no freeing. */
ogive_status og_plan_build(const og_graph *graph, const og_typed *types, const og_layout *inputs,
                           const og_layout *outputs, og_plan_rules rules, og_plan *plan,
                           ogive_error *error);
void og_plan_free(og_plan *plan);

/* ---- between the planner's files ------------------------------------------ */

/* Where a node's dims lie in a kernel's logical space: dim j of the node is dim
 * at[j] of the space, or -1 (extent 1, or broadcast). Or windows slide along it: those along dim
 * i of the sliding dims of node n, one of windows, slide and slide_back, are window[j] = n *
 * OG_MAX_WINDOWS + i; at[j] are their places, tap[j] their taps. A slice (narrow, portion, and back)
 * is a window, too: window[j] = n * OG_MAX_WINDOWS, without taps, and so is a group_spread. Or the
 * space has dim j in parts: at[j] is the part, tap[j] the element in it, of which a part has -1 -
 * window[j], two or more. */
typedef struct {
    int8_t at[OG_MAX_RANK];
    int8_t tap[OG_MAX_RANK];     /* or -1 */
    int32_t window[OG_MAX_RANK]; /* or -1 */
} og_mapping;

/* How many elements of dim d a part has; 0: the dim is in one piece. */
static inline int64_t og_mapping_part(const og_mapping *mapping, int32_t d)
{
    return mapping->window[d] < -1 ? -1 - (int64_t)mapping->window[d] : 0;
}

typedef enum {
    OG_INSTANCE_CONSTANT, /* a number */
    OG_INSTANCE_LOAD,     /* an input, or a value kept by an earlier kernel */
    OG_INSTANCE_INDEX,    /* the number of an element */
    OG_INSTANCE_REDUCED,  /* a reduction of this kernel */
    OG_INSTANCE_PRODUCT,  /* a product of this kernel */
    OG_INSTANCE_VIEW,     /* its argument under another mapping */
    OG_INSTANCE_COMPUTED
} og_instance_kind;

/* A node under a mapping, inside one kernel. */
typedef struct {
    int32_t node;
    int32_t next; /* instance of the same node, or -1 */
    og_mapping mapping;
    int32_t args[OG_MAX_ARGS]; /* instances */
    uint8_t kind;
    bool varies;                         /* along the row */
    bool reduced;                        /* depends on a reduction of this kernel */
    bool has_product;                    /* depends on a product of this kernel */
    int32_t stage;                       /* first pass in which it can be computed */
    bool needed;                         /* scratch of plan_emit.c */
    int32_t element_value, element_pass; /* value in element_pass */
    int32_t row_value;                   /* value at row level, or -1 */
} og_instance;

typedef struct {
    int32_t node;
    int32_t buffer; /* where it is stored */
    bool row;       /* once per row */
    og_mapping mapping;
} og_root;

/* A kernel while nodes are being gathered. Its logical space has the dims of the
 * reductions' argument (or of the results). */
typedef struct {
    int32_t rank;
    int64_t extent[OG_MAX_RANK];
    uint32_t reduced;                                 /* bit d: dim d is reduced */
    int32_t products[OG_MAX_PRODUCTS], product_count; /* nodes */
    int32_t *reductions;
    size_t reduction_count, reduction_capacity;
    og_root *roots;
    size_t root_count, root_capacity;
} og_draft;

typedef struct {
    const og_graph *graph;
    const og_typed *types;
    og_plan *plan;
    ogive_error *error;
    og_plan_rules rules;
    og_arena scratch;

    int32_t *home;        /* node -> draft that computes and may keep it, or -1 */
    int32_t *pass;        /* reduction -> its pass */
    int32_t *buffer;      /* node -> buffer that holds it, or -1 */
    int32_t *copy;        /* node -> buffer that holds it for products to come, or -1 */
    int32_t (*copies)[2]; /* product -> those of its factors that it reads, or -1 */
    int32_t *pair;        /* product -> the other of its kernel, or -1 */
    int32_t *tail_of;     /* node -> reduction of whose row it follows, or -1; see plan_visit.c */

    og_buffer *buffers; /* grows; copied into the plan at the end */
    size_t buffer_count, buffer_capacity;
    og_draft *drafts;
    size_t draft_count, draft_capacity;

    /* One traversal: instances in order of discovery, lists by node. */
    og_instance *instances;
    size_t instance_count, instance_capacity;
    int32_t *first; /* node -> its instances, valid where stamp == epoch */
    uint32_t *stamp;
    uint32_t epoch;
    int32_t *stack;
    size_t stack_count, stack_capacity;
    int32_t *sorted; /* instances by node, arguments first */
    size_t sorted_capacity;
    int64_t work; /* instances visited in all, to bound planning time */
} og_planner;

/* The type that a node of this dtype is computed in. */
static inline og_type og_compute_type(og_dtype dtype)
{
    bool is_wide = dtype == OG_FLOAT64 || dtype == OG_INT32 || dtype == OG_INT64;
    return is_wide ? OG_F64 : OG_F32;
}

/* plan_visit.c: finds (or adds) the instances that node under mapping needs in
 * draft; *root is its own. */
ogive_status og_visit_begin(og_planner *b);
ogive_status og_visit(og_planner *b, int32_t draft, int32_t node, const og_mapping *mapping,
                      int32_t *root, bool *valid);
/* Sorts all instances (b->sorted) and fills varies, reduced, has_product, stage. */
ogive_status og_visit_end(og_planner *b, int32_t draft, bool *valid);
/* The draft that computes node, a reduction, the tail of one, a product, the end of a
 * convolution or something kept for a product; else -1. */
int32_t og_find_home(const og_planner *b, int32_t node);
/* Fills tail_of of node, whose arguments have it. */
void og_find_tail(og_planner *b, int32_t node);

/* plan_mapping.c */
og_mapping og_identity_mapping(const og_typed *type);
/* How argument arg of a node under mapping is read. */
og_mapping og_argument_mapping(const og_planner *b, int32_t node, int32_t arg,
                               const og_mapping *mapping);
/* The space that a reduction visits, of which its type says what is reduced: its argument's dims,
 * of group_sum with (groups, channels of a group) for dim 1. Gives where the argument lies. */
og_mapping og_reduction_space(const og_planner *b, int32_t node, og_typed *space);
/* Where a reduction's own result lies in the space it reduces. */
og_mapping og_reduced_mapping(const og_planner *b, int32_t node);
/* Is element i of node computed from element i of argument arg? */
bool og_reads_in_place(const og_planner *b, int32_t node, int32_t arg);
bool og_node_reduces(const og_planner *b, int32_t node);
bool og_node_is_product(const og_planner *b, int32_t node);
/* A scalar function of its arguments, element by element. */
bool og_node_is_scalar(const og_planner *b, int32_t node);
/* A product over windows. */
bool og_node_convolves(const og_planner *b, int32_t node);
/* Its first argument under another mapping, perhaps of another dtype. */
bool og_node_is_view(const og_planner *b, int32_t node);
/* Such a view through windows: of something in memory. */
bool og_node_slides(const og_planner *b, int32_t node);
/* Can a view be read under mapping? Not if it slides along a dim that is in parts. */
bool og_view_fits(const og_planner *b, int32_t node, const og_mapping *mapping);
/* Such a view that leaves the values in memory as they are. */
bool og_node_is_plain_view(const og_planner *b, int32_t node);
bool og_mapping_slides(const og_mapping *mapping);
/* window: as a mapping has it. Places, taps and stride are left out. */
og_window og_make_window(const og_planner *b, int32_t window);
/* What windows of node slide over in memory: its argument, or what that is a view of without
 * losing a dim that they slide along. */
int32_t og_find_seen(const og_planner *b, int32_t node);

/* plan_product.c: how product node reads operand side (0 or 1), which is kept or a
 * view of what is; false if the k dims have no common stride. */
bool og_product_operand(const og_planner *b, int32_t node, int side, og_access *access, int64_t *k,
                        int64_t *k_stride);
/* The strides of buffer, a copy of that operand, so that the k dims have one. */
void og_lay_out_operand(const og_planner *b, int32_t node, int side, og_buffer *buffer);
/* Which live products share a kernel: fills b->pair. */
ogive_status og_find_pairs(og_planner *b, const bool *live);
ogive_status og_emit_products(og_planner *b, const og_draft *draft, og_kernel *kernel);
/* Exchanges factors and moves dims, as og_matrices has them, and fills kernel->matrices. */
void og_see_matrices(og_kernel *kernel);

/* plan_small.c: marks what is better kept than computed again for each result of a product. */
ogive_status og_find_small(og_planner *b, const bool *live, bool *small);

/* plan_ends.c: marks what the kernel of a convolution keeps instead of its sums, if later ones read it.
 * is_whole: of nodes that products or windows read from memory. */
ogive_status og_find_ends(og_planner *b, const bool *live, const bool *is_whole, bool *ends);

/* plan_lower.c: b->graph and b->types without nodes that shapes make others. */
ogive_status og_lower(og_planner *b);
/* A graph that is being made of another. */
typedef struct {
    og_node *nodes;
    og_typed *types;
    int32_t count;
} og_lowered;
/* The number of a new node, without arguments, in the place of like. */
int32_t og_add_lowered(og_lowered *to, const og_node *like, og_op op, const og_typed *type);
/* plan_depthwise.c: is node a convolution that is no product? */
bool og_is_depthwise(const og_graph *graph, const og_typed *types, int32_t node);
/* Nodes for such a one, whose arguments x and w have been added; the last is the sum. */
void og_add_depthwise(const og_graph *graph, const og_typed *types, int32_t node, int32_t x,
                      int32_t w, og_lowered *to);

/* plan_whole.c: for every node whether it has windows that see all there is, for og_add_whole(). */
ogive_status og_find_whole(const og_planner *b, og_arena *scratch, uint8_t **out);
/* Adds what becomes of node if it is such windows, or reads them; false: it stays as it is. now: the
 * new numbers of nodes before. */
bool og_add_whole(const og_graph *graph, const og_typed *types, const uint8_t *whole, int32_t node,
                  const int32_t *now, og_lowered *to);

/* plan_convolution.c: into how many kernels a product is cut. */
int64_t og_count_phases(const og_planner *b, int32_t node);
/* Is the weight copied first, so that k, (n, t) of an x, is one dim of it? */
bool og_copies_weight(const og_planner *b, int32_t node);
/* The strides of such a copy. */
void og_lay_out_weight(og_buffer *buffer);
/* Gives kernel, whose accesses are those of all of node, the space and product of one of them. */
void og_emit_convolution(og_planner *b, int32_t node, int64_t number, og_kernel *kernel);

/* plan_emit.c: phase: which of og_count_phases() of its product. */
ogive_status og_emit_kernel(og_planner *b, int32_t draft, int64_t phase, og_kernel *kernel);

/* plan_space.c */
/* Dim d becomes what was dim order[d]; the space has count dims then. */
void og_permute_dims(og_kernel *kernel, const int32_t *order, int32_t count);
/* Makes dims d and d + 1 one, wherever every access walks them as one. */
void og_collapse_dims(og_kernel *kernel);
void og_order_space(const og_plan *plan, og_kernel *kernel, uint32_t reduced, bool keeps_dims);

/* plan_deviations.c: sums of squared deviations from a long row's mean become sqdev, and a pass
 * less. */
ogive_status og_find_deviations(og_planner *b, og_kernel *kernel);
/* Sets the guards of its passes (plan_guards.c). */
ogive_status og_find_guards(og_planner *b, og_kernel *kernel);

/* plan_traffic.c: fill the kernels' bytes_read and bytes_written, and may_alias. */
ogive_status og_measure_traffic(og_plan *plan, og_arena *scratch, ogive_error *error);
ogive_status og_find_aliases(og_plan *plan, og_arena *scratch, ogive_error *error);

#endif
