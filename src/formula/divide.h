/* SPDX-License-Identifier: MIT
 *
 * divide.h - how a formula is divided among processes: which dims of its inputs belong
 * together, what each process then has of every value, where contributions have to be
 * reduced on the way, and the formulas between those places. ogive.h has the meaning of
 * shares and placements (OGIVE_SUM of an input: it is given as contributions).
 *
 * divide_indices.c finds the indices, divide.c what a process has, divide_stage.c makes
 * the formulas. No devices, no processes: only what the graph says.
 */
#ifndef OG_DIVIDE_H
#define OG_DIVIDE_H

#include "formula/infer.h"

/* A value that has to be reduced before the formula can go on. */
typedef struct {
    int32_t node;
    ogive_share share; /* OGIVE_SUM, OGIVE_MAX or OGIVE_MIN */
    int32_t stage;     /* whose result it is */
} og_cut;

/* One index: dims that are divided together. */
typedef struct {
    int32_t index; /* the first of its dims: input * OG_MAX_RANK + dim */
    int64_t extent;
    const char *reason; /* why it must be whole; NULL: it can be divided */
    bool counts;        /* elements are counted along it */
    bool spread;        /* cuts are nodes of the graph that og_spread() makes */
    int32_t stage_count;
    og_cut *cuts;
    int32_t cut_count;
    ogive_placement *inputs;  /* [input_count] */
    ogive_placement *results; /* [result_count] */
} og_division;

/* A graph, its types for given inputs, and its divisions in the order of the inputs' dims. */
typedef struct {
    og_arena arena; /* owns what is below but for graph */
    const og_graph *graph;
    og_typed *types;
    og_graph spread; /* empty if no division needs it */
    og_typed *spread_types;
    og_division *divisions;
    int32_t count;
} og_divisions;

/* inputs are whole. at_sums: no op hands a sum on, each is reduced where it is made. On failure
 * *out needs no freeing. */
ogive_status og_divide(const og_graph *graph, const og_input_type *inputs, bool at_sums,
                       og_divisions *out, ogive_error *error);
void og_divisions_free(og_divisions *divisions);
/* Nothing is divided, but the given inputs are contributions: what the results are. reason is
 * set if they cannot be handed on. */
ogive_status og_divide_given(const og_divisions *divisions, const bool *given, og_arena *arena,
                             og_division *out, ogive_error *error);

/* The name of the input that a cut becomes: cut0, or cut0_2 if an input is called that. */
enum { OG_CUT_NAME = 24 };
void og_divide_name(const og_graph *graph, int32_t cut, char name[OG_CUT_NAME]);

/* The formula that stage of a division runs on parts; its results are the values to reduce
 * behind that stage, in the order of the cuts, those of the last one the formula's own. Its
 * inputs are those it needs of the formula's, then the reduced values. Halves
 * are reduced in float32. division NULL: all of the formula, in one stage. Elements are
 * counted as the whole inputs have them, and sizes, checked already, are not checked again. */
ogive_status og_divide_stage(const og_divisions *divisions, const og_division *division,
                             int32_t stage, og_graph *out, ogive_error *error);

/* ---- between the files of this topic --------------------------------------------- */

enum {
    OG_NO_INDEX = -1,
    OG_INDEX_TWICE = -2,
    OG_NOTHING = -3, /* in place of an index: no value has it */
    OG_MAX_SUMS = 2 * OG_MAX_RANK + 1
};

/* The indices of a graph's nodes: dims that meet by broadcasting, that a product sums over
 * or that a view hands on are one index. A dim of 1 has none. */
typedef struct {
    const og_graph *graph;
    const og_typed *types;
    int32_t *parent;              /* of (input or input_count + node) * OG_MAX_RANK + dim */
    int32_t (*of)[OG_MAX_RANK];   /* [node][dim]: an index, or OG_NO_INDEX */
    int32_t (*sums)[OG_MAX_SUMS]; /* [node]: indices it sums over or counts; OG_NO_INDEX ends */
    bool *pinned;                 /* [as parent]: must be whole, nothing is known of its op */
    bool *live;                   /* [node]: its value is needed, not only its shape */
} og_indices;

ogive_status og_find_indices(const og_graph *graph, const og_typed *types, og_arena *arena,
                             og_indices *out, ogive_error *error);
/* What stands for all dims of an index. */
int32_t og_index_root(og_indices *x, int32_t index);
/* The dim of node that has index; OG_NO_INDEX, or OG_INDEX_TWICE. */
int32_t og_index_dim(og_indices *x, int32_t node, int32_t index);
bool og_index_summed(og_indices *x, int32_t node, int32_t index);

/* graph with every sumexp as a sum of exp(x - m), m the greatest x: such a sum can be cut. */
ogive_status og_spread(const og_graph *graph, og_graph *out, ogive_error *error);

#endif
