/* SPDX-License-Identifier: MIT
 *
 * functions.h - functions.def as data: one og_function per row, and the numbers
 * (og_op) by which graph, plan and backends name them.
 */
#ifndef OG_FUNCTIONS_H
#define OG_FUNCTIONS_H

#include "base/base.h"

typedef enum {
#define SCALAR(name, ...) OG_OP_##name,
#define MASK(name, ...) OG_OP_##name,
#define COMPOSITE(name, ...) OG_OP_##name,
#define DERIVED(name, ...) OG_OP_##name,
#define REDUCTION(name, ...) OG_OP_##name,
#define SPECIAL(name, ...) OG_OP_##name,
#include "formula/functions.def"
    OG_FUNCTION_COUNT,

    /* graph only */
    OG_OP_INPUT = OG_FUNCTION_COUNT, /* node.index: which */
    OG_OP_NUMBER,                    /* node.numbers[0] */

    /* plan only: see plan.h */
    OG_OP_LOAD,
    OG_OP_CONSTANT,
    OG_OP_PRODUCT,
    OG_OP_CONVERT,
    OG_OP_STORE,
    OG_OP_COUNT
} og_op;

typedef enum { OG_SCALAR, OG_MASKING, OG_COMPOSITE, OG_REDUCTION, OG_SPECIAL } og_function_kind;

/* functions.def says what these are. */
typedef enum { OG_COST_FEW, OG_COST_ROOT, OG_COST_CURVE } og_cost;
typedef enum {
    OG_FOLD_SUM,
    OG_FOLD_MAX,
    OG_FOLD_MIN,
    OG_FOLD_PEAK,
    OG_FOLD_SUMEXP,
    OG_FOLD_SQDEV
} og_fold;

/* How tight an operator binds. */
typedef enum {
    OG_BINDS_NOT, /* no operator */
    OG_BINDS_COMPARISON,
    OG_BINDS_OR,
    OG_BINDS_XOR,
    OG_BINDS_AND,
    OG_BINDS_ADDITION,
    OG_BINDS_PRODUCT,
    OG_BINDS_SIGN,
    OG_BINDS_POWER
} og_binding;

typedef enum {
    OG_PARAMETER_NONE, /* ends a list */
    OG_PARAMETER_TENSOR,
    OG_PARAMETER_NUMBER,
    OG_PARAMETER_DIM,
    OG_PARAMETER_DIMS,
    OG_PARAMETER_SIZES,
    OG_PARAMETER_STEPS,
    OG_PARAMETER_FLAG,
    OG_PARAMETER_CHOICE,
    OG_PARAMETER_KEYWORD /* no parameter: the following are by name only */
} og_parameter_kind;

enum {
    OG_MAX_PARAMETERS = 10,
    OG_MAX_ARGS = 3,
    OG_MAX_NUMBERS = 2,
    OG_MAX_CHOICES = 4,
    OG_MAX_CASES = 5
};

typedef struct {
    og_parameter_kind kind;
    bool required;
    bool is_mask;  /* of a tensor: a comparison, or a tensor of bool */
    bool is_count; /* of a number: an integer */
    bool selects;  /* one of the rows from this one on: CHOICE, CASES, *SWITCH */
    const char *name;
    double number;                       /* what a missing tensor, number or dim stands for */
    const char *choices[OG_MAX_CHOICES]; /* of OG_PARAMETER_CHOICE, WIDTHS; NULL after the last */
    double cases[OG_MAX_CASES];          /* of CASES */
    int32_t case_count;
} og_parameter;

enum { OG_MAX_WINDOWS = 3 }; /* dims that a window has */
enum { OG_KEPT = -1 };       /* adaptive pooling's output_size: as many as the input has */
enum { OG_SAME = -1 };       /* a convolution's padding: as many places as there are elements */
enum { OG_CHANNELS = -1 };   /* the size of a norm's weight: that of its input's dim 1 */

typedef struct {
    const char *name;
    og_function_kind kind;
    int args;      /* OG_SCALAR, OG_MASKING: values */
    int constants; /* OG_SCALAR: numbers after them */
    og_cost cost;  /* OG_SCALAR, others OG_COST_FEW */
    og_fold fold;  /* OG_REDUCTION */
    const char *group;
    const char *meaning;    /* OG_COMPOSITE */
    const char *derivative; /* see functions.def; NULL: none */
    og_parameter parameters[OG_MAX_PARAMETERS + 1];
    double max_ulp; /* measured (src/math/accuracy.def), < 0 if there is none */
    uint64_t hash;
    int overload;       /* 1 + the row of calls with a tensor for a number; 0: none */
    bool gives_floats;  /* of integers, in PyTorch */
    const char *symbol; /* of the operator that the function is, or NULL */
    og_binding level;   /* of symbol */
} og_function;

/* The row of a function; op < OG_FUNCTION_COUNT. */
const og_function *og_function_of(og_op op);
/* OG_FUNCTION_COUNT if there is none; hidden also finds rows without a group. */
og_op og_function_find(const char *name, size_t length, bool hidden);
/* The symbol of an op that is an operator of two numbers in C too, else NULL. */
const char *og_op_infix(og_op op);
/* The public name nearest to a misspelt one, or NULL if none is near. */
const char *og_function_nearest(const char *name, size_t length);
/* Is value an integer, of any size? */
bool og_is_whole(double value);
/* Of OG_SCALAR rows only: the float64 value, for folding constants. */
double og_function_value(og_op op, const double *args, const double *constants);
/* The meaning of a composite if it says something to a user: NULL if it names a row
 * without a group, and of any other row. */
const char *og_function_public_meaning(const og_function *function);
/* "input, negative_slope=0.01" */
void og_function_signature(const og_function *function, char *text, size_t capacity);

/* Where PyTorch has the function of that name: "torch", "F" for torch.nn.functional,
 * "torch.linalg". NULL: what it has there gives something else (max with a dim: indices, too). */
const char *og_function_module(og_op op);

/* Of integers PyTorch's function gives floats: exp, div. */
bool og_op_gives_floats(og_op op);
/* True for sum, amax, ... (og_function_kind OG_REDUCTION). */
bool og_op_is_reduction(og_op op);
/* Of a reduction. */
og_fold og_op_fold(og_op op);
/* Does the reduction find a row's greatest element? */
bool og_op_is_maximum(og_op op);
/* Of any op, those that are in no row included. */
og_cost og_op_cost(og_op op);
/* True for narrow and portion, and back: a dim of the argument under an offset. */
bool og_op_slices(og_op op);
/* One of the three sides of a convolution. */
bool og_op_convolves(og_op op);
/* That whose result is an image that windows slide over: a transposed convolution. */
bool og_op_convolves_back(og_op op);
/* How many of a node's count arguments have values that op computes with: all but
 * the `like` of sum_like and others, which comes last. */
int og_op_value_count(og_op op, int count);

#endif
