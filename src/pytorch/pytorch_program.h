/* SPDX-License-Identifier: MIT
 *
 * pytorch_program.h - between the files of this folder: a formula (or its gradient) as
 * kernels that know which sizes are equal, but no size.
 *
 * Every size of an input's shape, unless it is 1, belongs to a class: sizes that the
 * formula wants to be equal. The planner is run with a prime per class, so that the
 * extents in its plan say which class they are of; a formula that names a size itself
 * (layer_norm(x, 64)) has that size.
 */
#ifndef OG_PYTORCH_PROGRAM_H
#define OG_PYTORCH_PROGRAM_H

#include "cuda/emit/cuda_work.h"
#include "plan/planner.h"
#include "pytorch/pytorch.h"

typedef struct {
    int32_t count;
    int64_t *value;           /* [class] the prime, or the size that the formula names */
    bool *is_fixed;           /* [class] it names it */
    int32_t *input;           /* [class] an input that has it, */
    int32_t *dim;             /* [class] in this dim */
    og_pytorch_shape *shapes; /* [input] with the values above */
} og_pytorch_sizes;

/* "n0", or "8" where the value is fixed or 1. */
enum { OG_SIZE_TEXT = 32 };
const char *og_pytorch_size_text(const og_pytorch_sizes *sizes, int64_t value,
                                 char text[OG_SIZE_TEXT]);

ogive_status og_pytorch_find_sizes(const og_graph *graph, const og_pytorch_shape *examples,
                                   og_arena *arena, og_pytorch_sizes *sizes, ogive_error *error);

/* The same, where some shapes are not given. */
ogive_status og_pytorch_guess_sizes(const og_graph *graph, const og_pytorch_role *roles,
                                    const og_pytorch_shape *given, og_arena *arena,
                                    og_pytorch_sizes *sizes, ogive_error *error);

/* Is a file of the formula made for its shapes? They are then checked, all of one dtype, and those
 * of the inputs copied, scalars being tensors without dims. */
bool og_pytorch_needs_shapes(const og_graph *graph);
ogive_status og_pytorch_check_shapes(const og_graph *graph, const og_pytorch_role *roles,
                                     const og_pytorch_shape *given, og_pytorch_shape *shapes,
                                     og_arena *arena, og_typed **types, ogive_error *error);

/* pytorch_python.c: `_inline(text, seen)`, a text of kernels with what it includes. */
extern const char og_pytorch_inline[];

/* How many elements a reduction takes, less a correction: a number at run time. */
typedef struct {
    int32_t rank;
    int64_t factors[OG_MAX_RANK]; /* values of sizes */
    double correction;
} og_pytorch_count;

typedef struct {
    const char *name; /* "Forward", "Backward": what its kernels are called */
    og_graph graph;   /* counts are inputs, after the formula's (and the gradients) */
    og_typed *types;
    og_plan plan;
    int32_t tensor_count; /* inputs before the counts */
    og_pytorch_count *counts;
    int32_t count_count;
    bool is_uniform;               /* pointwise, every tensor of one shape: any rank will do */
    bool is_short;                 /* all of the file's kernels are pointwise: it has no units */
    struct og_pytorch_unit *units; /* [kernel] */
} og_pytorch_program;

/* The library's kernels for one of a program. */
typedef struct og_pytorch_unit {
    const char *source;  /* of all bodies */
    const char *hopper;  /* of a product of float32 on Hopper, or NULL */
    og_cuda_facts facts; /* of a kernel without products */
} og_pytorch_unit;

/* Plans graph, whose inputs have these shapes (values of sizes). The arena keeps what the
 * program points to. Release with og_pytorch_program_free(). */
ogive_status og_pytorch_program_make(const og_graph *graph, const char *name,
                                     const og_pytorch_shape *shapes, const og_pytorch_role *roles,
                                     og_arena *arena, og_pytorch_program *program,
                                     ogive_error *error);
void og_pytorch_program_free(og_pytorch_program *program);

/* ---- a kernel's operands -------------------------------------------------------- */

typedef enum { OG_KERNEL_POINTWISE, OG_KERNEL_ROWS, OG_KERNEL_PRODUCT } og_kernel_form;
og_kernel_form og_pytorch_form(const og_kernel *kernel);

/* Is what an access reads a number that the caller gives, a scalar or a count, and no tensor? */
bool og_pytorch_is_number(const og_pytorch_program *program, const og_pytorch_role *roles,
                          const og_access *access);
/* The number of input, a scalar or a count, among the program's numbers. */
int32_t og_pytorch_number(const og_pytorch_program *program, const og_pytorch_role *roles,
                          int32_t input);

/* For every dim of the space the dim of the buffer that the access moves along, or -1. */
void og_pytorch_access_dims(const og_plan *plan, const og_kernel *kernel, const og_access *access,
                            int32_t dims[OG_MAX_RANK]);

/* ---- options -------------------------------------------------------------------- */

/* pytorch_options.c. Of the formula's inputs only the names count. */
ogive_status og_pytorch_check_options(const og_graph *graph, const ogive_pytorch_options *options,
                                      ogive_error *error);
og_pytorch_role og_pytorch_role_of(const ogive_pytorch_options *options, const char *input);
/* The bytes of the name in "fc=nn.Linear(...)", and where what it is begins; 0: neither. */
size_t og_pytorch_module_name(const char *module, const char **value);
/* Does Python, or the file, use the name for something else? */
bool og_pytorch_is_taken(const char *name);
/* A word in text that the benchmark such files are submitted to refuses anywhere, or NULL. */
const char *og_pytorch_find_refused(const char *text);

/* ---- texts ------------------------------------------------------------------------ */

/* pytorch_cut.c: of sources, in their order, what is needed by what is needed by ... roots.
 * is_header: has an include guard and includes, which are left out. */
typedef struct {
    const char *text;
    bool is_header;
} og_pytorch_source;
void og_pytorch_add_needed(const og_pytorch_source *sources, int count, const char *roots,
                           og_text *text);
/* The same; apart: of each source by itself, into out[source]. */
void og_pytorch_cut(const og_pytorch_source *sources, int count, const char *roots, bool apart,
                    og_text *out);
/* pytorch_fold.c: sources without the branches of #if that are taken by no unit. */
void og_pytorch_fold(const char *units, const og_pytorch_source *sources, int count, og_text *out);
/* pytorch_pointwise.c: can a file of such programs be a short one? Its CUDA source and C++, as
 * strings of Python's. */
bool og_pytorch_is_pointwise(const og_pytorch_program *program, const og_pytorch_role *roles);
void og_pytorch_add_pointwise(const og_pytorch_program *const programs[2],
                              const og_pytorch_role *roles, og_text *text);
/* pytorch_unit.c: the source of product k for Hopper, in the arena, or NULL: it is none of float32
 * that Hopper's tensor cores take. sized: the same program, planned for larger sizes. */
ogive_status og_pytorch_hopper_unit(const og_pytorch_program *program,
                                    const og_pytorch_program *sized, const og_pytorch_role *roles,
                                    int32_t k, og_arena *arena, const char **out,
                                    ogive_error *error);
/* The unit of kernel k: one source of all bodies. */
ogive_status og_pytorch_any_unit(const og_pytorch_program *program, const og_pytorch_role *roles,
                                 int32_t k, og_arena *arena, og_pytorch_unit *unit,
                                 ogive_error *error);
/* A number that a unit's source defines. */
int og_pytorch_unit_number(const char *source, const char *name);
/* A text without long comments, and without the blanks and empty lines that they leave. */
void og_pytorch_add_without_comments(const char *source, og_text *text);
/* The files that units include, as entries of a dict in Python. */
void og_pytorch_add_unit_files(const char *units, og_text *text);
/* pytorch_launch.c: the C++ function that runs all kernels, and what it is declared as.
 * names: [tensor] in C++. */
void og_pytorch_add_signature(const og_pytorch_program *program, const og_pytorch_role *roles,
                              const char *const *names, bool is_gradient, og_text *text);
void og_pytorch_add_launches(const og_pytorch_program *program, const og_pytorch_sizes *sizes,
                             const og_pytorch_role *roles, const char *const *names,
                             bool is_gradient, og_text *text);
/* pytorch_launch.c: bit r of needs[kernel]: it has to run for result r. */
void og_pytorch_find_needs(const og_plan *plan, uint64_t *needs);
/* pytorch_shapes.c: strides of a result: those of the first input of its shape that has no holes;
 * of 4 and 5 dims channels last, as PyTorch's are, if the first input of as many dims lies so. */
void og_pytorch_lay_result(const og_pytorch_shape *inputs, int32_t count, og_pytorch_shape *result);
/* pytorch_shapes.c: all of a file that is made for its shapes up to what records gradients; graphs:
 * the formula and its gradient, shapes: of the inputs of the latter; is_for_all: GPUs, not only
 * Hopper's. */
ogive_status og_pytorch_add_shaped(const og_graph *const graphs[2], const og_pytorch_shape *shapes,
                                   const og_pytorch_role *roles, bool is_for_all, og_arena *arena,
                                   og_text *text, ogive_error *error);
/* pytorch_formula.c: the formula in Python, as lines of a function's body. names: [input]
 * in Python; is_number: [input] not a tensor there. */
ogive_status og_pytorch_add_formula(const og_graph *graph, const char *const *names,
                                    const bool *is_number, og_text *text, ogive_error *error);

#endif
