/* SPDX-License-Identifier: MIT
 *
 * ogive.h - run a one-line formula as fused kernels, mostly a single one.
 *
 *     ogive_formula *f;
 *     ogive_error error;
 *     if (ogive_formula_create("x * sigmoid(x) + y", OGIVE_TEXT, &f, &error) ||
 *         ogive_run(f, inputs, 2, outputs, 1, NULL, &error))
 *         fprintf(stderr, "%s\n", error.message);
 *     ogive_formula_release(f);
 *
 * A *formula* is text made into a graph. A *plan* is a formula bound to the
 * shapes, strides, dtypes and device of its inputs (and of its outputs, if they
 * are given). *Running* a plan takes pointers and workspace. ogive_run() does
 * all three and keeps recent plans inside the formula.
 *
 * Threads: formulas and plans are immutable; any number of threads may use one
 * at once. Two runs at the same time need different workspaces and outputs.
 * A thread that calls needs 512 KiB of stack (formulas may be nested 256 deep).
 *
 * Errors: every call that can fail returns a status and fills *error, which the
 * caller owns and which may be NULL. On failure *out is NULL and nothing leaks.
 * The library never prints, exits, aborts or changes the floating-point state.
 *
 * Bits: for float32, float16 and bfloat16, a formula gives the same bits on
 * every CPU, for every number of threads and CPU level, and on every GPU if it has
 * no product or the precision is strict. They may change only
 * with a new minor version before 1.0 and a new major version after it; the
 * changelog then says "bits". float64 makes no such promise.
 */
#ifndef OGIVE_H
#define OGIVE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* DLPack's tensor, exactly as <dlpack/dlpack.h> lays it out. Include that
 * header first if the program uses it too. */
#ifndef DLPACK_DLPACK_H_
typedef enum { kDLCPU = 1, kDLCUDA = 2 } DLDeviceType;

typedef struct {
    DLDeviceType device_type;
    int32_t device_id;
} DLDevice;

typedef enum {
    kDLInt = 0,
    kDLUInt = 1,
    kDLFloat = 2,
    kDLOpaqueHandle = 3,
    kDLBfloat = 4,
    kDLComplex = 5,
    kDLBool = 6
} DLDataTypeCode;

typedef struct {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
} DLDataType;

typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: contiguous, last dim fastest */
    uint64_t byte_offset;
} DLTensor;
#endif

#define OGIVE_VERSION_MAJOR 0
#define OGIVE_VERSION_MINOR 1
#define OGIVE_VERSION_PATCH 0

#define OGIVE_API __attribute__((visibility("default")))

/* "0.1.0", of the library that is running. */
OGIVE_API const char *ogive_version(void);

/* ---- errors -------------------------------------------------------------- */

/* Values never change. */
typedef enum {
    OGIVE_OK = 0,
    OGIVE_FORMULA = 1,     /* the text is wrong: offset says where */
    OGIVE_SHAPE = 2,       /* shapes that do not fit each other or the formula */
    OGIVE_DTYPE = 3,       /* a dtype that is not taken here */
    OGIVE_ARGUMENT = 4,    /* NULL, wrong count, overlap, bad option */
    OGIVE_UNSUPPORTED = 5, /* right, but not available */
    OGIVE_MEMORY = 6,      /* memory could not be had */
    OGIVE_DEVICE = 7       /* what the device reported */
} ogive_status;

typedef struct {
    ogive_status status;
    int64_t offset;     /* byte offset into the formula's text, or -1 */
    char message[1000]; /* UTF-8, one line: what, expected, got */
} ogive_error;

/* "ok", "formula", "shape", ... */
OGIVE_API const char *ogive_status_name(ogive_status status);

/* ---- formulas ------------------------------------------------------------ */

typedef struct ogive_formula ogive_formula;

/* As a length: text ends at its NUL. */
#define OGIVE_TEXT ((size_t)-1)

/* Parses text (not kept; a copy is). Release with ogive_formula_release(). */
OGIVE_API ogive_status ogive_formula_create(const char *text, size_t length, ogive_formula **out,
                                            ogive_error *error);
/* The gradient of formula by the inputs called names: a formula with one result
 * per name, of that input's shape and dtype, that share their work. Its inputs are
 * the formula's, then one per result of it: the gradient of the loss by that
 * result, of the result's shape and any dtype. These are named grad, or grad.0,
 * grad.1, ... if there are several results; if an input has that name already (a
 * gradient's gradient), grad2, grad3, ... Kinks and ties are PyTorch's; a name that
 * no result depends on has a gradient of zeros.
 *     ogive_formula_gradient(f, (const char *[]){"w", "b"}, 2, &gradient, &error)
 * A name that is no input or is given twice: OGIVE_ARGUMENT. More than 65535 nodes:
 * OGIVE_UNSUPPORTED. The formula may be released before its gradient. */
OGIVE_API ogive_status ogive_formula_gradient(const ogive_formula *formula,
                                              const char *const *names, size_t count,
                                              ogive_formula **out, ogive_error *error);
/* What items make of formula; with its text they say all of it, so that it can be sent or
 * kept. Items are one of
 *     w b                 Names: the gradient by w and b, as of ogive_formula_gradient().
 *     linear=bfloat16 exp=float32
 *                         Casts: the same formula with casts, as PyTorch's autocast makes
 *                         them. The arguments of every linear that are tensors and depend on an
 *                         input are cast to bfloat16 first. Operators go by their functions'
 *                         names: @ is matmul. What the formula does not call changes nothing.
 *                         Of what was made of a formula: OGIVE_UNSUPPORTED.
 *     0 1 <3              Values: the part of it that computes 0 and 1, given 3.
 * A formula's values are numbered: its results; then for each product in its text (linear
 * with its bias, matmul), in the order in which they are computed, the product and its left
 * factor, whose last dim is what it sums over. The inputs of a part are those inputs and given
 * values that it needs; the ith value given is named value.i (value2.i, ... if there is an
 * input of such a name). So products can be kept for the gradient. Of
 * "z = linear(x, w); z * tanh(z)":
 *     0 1     x, w: z * tanh(z), z
 *     0 <1    value.0: value.0 * tanh(value.0)
 *     1       x, w: z
 * What there is not (a function, an input, a value), more than 64 values: OGIVE_ARGUMENT. */
OGIVE_API ogive_status ogive_formula_make(const ogive_formula *formula, const char *const *items,
                                          size_t count, ogive_formula **out, ogive_error *error);
/* Does formula's text call function, by name or by an operator? 0 or 1; 0 of a gradient
 * and a part. */
OGIVE_API int ogive_formula_calls(const ogive_formula *formula, const char *function);
/* The products written in formula's text that formula computes. */
OGIVE_API size_t ogive_formula_product_count(const ogive_formula *formula);
/* Are elements of the input read? 0: the results depend on its shape and dtype alone, so that
 * any tensor with these will do. Of the gradient of x + y that is so of x and y. */
OGIVE_API int ogive_formula_reads(const ogive_formula *formula, size_t input);
/* The first result that has the same elements as this one if both have the same shape and
 * dtype; of most results themselves. Of the gradient of x + y by x and y, result 1: 0. */
OGIVE_API size_t ogive_formula_twin(const ogive_formula *formula, size_t result);
/* The same of an input: the number of the one that the result is if both have the same shape
 * and dtype; (size_t)-1 if it is none. */
OGIVE_API size_t ogive_formula_passed(const ogive_formula *formula, size_t result);

/* One more owner; returns its argument. */
OGIVE_API ogive_formula *ogive_formula_retain(ogive_formula *formula);
/* One owner less; the last frees it. NULL is fine. Plans outlive their formula. */
OGIVE_API void ogive_formula_release(ogive_formula *formula);

/* The free names, in order of first appearance: the order of inputs. Names live
 * as long as the formula; NULL when index is out of range. */
OGIVE_API size_t ogive_formula_input_count(const ogive_formula *formula);
OGIVE_API const char *ogive_formula_input_name(const ogive_formula *formula, size_t index);
OGIVE_API size_t ogive_formula_result_count(const ogive_formula *formula);

/* The formula as text, NUL-terminated and cut to capacity; returns the length of all of it, 0
 * without memory. As it was given; a gradient's says what it computes, and may use functions that
 * the language keeps to itself (expand, sum_like, ...), so that it is for people to read. */
OGIVE_API size_t ogive_formula_text(const ogive_formula *formula, char *buffer, size_t capacity);

/* What a PyTorch file's class is made of. Set size to sizeof(ogive_pytorch_options);
 * anything else may be 0. */
typedef struct {
    size_t size;
    const char *init; /* the constructor's parameters, in Python: "in_features, scale=2.0" */
    const char *const *modules; /* what it owns: "fc=nn.Linear(in_features, out_features)". An
                                   input fc.weight is then the model's own, not an argument */
    size_t module_count;
    const char *const *scalars; /* inputs that are numbers given to the constructor */
    size_t scalar_count;
    const char *name; /* of the class; NULL: ModelNew */
    int for_shapes;   /* not 0: made for the inputs' shapes and dtype, as with windows (below) */
    const char *arch; /* "90": such a file for GPUs of compute capability 9.0 alone, which is
                         shorter; NULL: for all */
} ogive_pytorch_options;

/* A Python file that needs PyTorch but not Ogive: CUDA source for load_inline(), gradients,
 * and the class, whose forward() takes the inputs that the options do not speak of.
 * inputs are examples, of which rank and shape alone are read: which sizes are 1, nothing
 * else, makes a difference. NULL: the weight or bias of a linear, or 2 dims. A formula with windows,
 * parts of tensors or a vector of a channel, or with options.for_shapes, needs all shapes: its file is
 * made for them, and for their dtype (bits 0: float32), and takes no others on a GPU; tensors with the
 * examples' strides (if no two elements are in one place; else contiguous ones) are taken as they lie,
 * others copied. Writes
 * NUL-terminated text, cut to capacity; *length is that of all of it. What has no form as such
 * a file (casts, for one): OGIVE_UNSUPPORTED. */
OGIVE_API ogive_status ogive_formula_pytorch(const ogive_formula *formula,
                                             const DLTensor *const *inputs, size_t input_count,
                                             const ogive_pytorch_options *options, char *buffer,
                                             size_t capacity, size_t *length, ogive_error *error);

/* ---- dividing among processes --------------------------------------------- */

/* How a formula is divided among processes that each have a part of some inputs. Nothing
 * here starts processes or moves data: that is MPI's, NCCL's or PyTorch's. An *index* is a set
 * of dims that must be divided together, since they meet by broadcasting, are summed over by
 * one product, or are the same dim of a view. Dims of 1 belong to none. For linear(x, w, b) of
 * x (m, k), w (n, k), b (n,) there are three:
 *     m   x a part of dim 0                   the result a part of dim 0
 *     k   x and w parts of dim 1, b a sum     the result a sum
 *     n   w and b parts of dim 0              the result a part of dim 1 */

/* What a process has of a tensor. Values never change. */
typedef enum {
    OGIVE_SAME = 0, /* all of it, as every other process has */
    OGIVE_PART = 1, /* its part of one dim */
    OGIVE_SUM = 2,  /* a tensor of the whole's shape: the sum of all processes' is the whole.
                       Of an input: it is the same everywhere (a bias), but must be given so,
                       divided by the number of processes, say, or it would be added by each */
    OGIVE_MAX = 3,  /* the same with the maximum of all, NaN if one is NaN */
    OGIVE_MIN = 4
} ogive_share;

typedef struct {
    ogive_share share;
    int32_t dim; /* of OGIVE_PART, else -1 */
} ogive_placement;

/* Set size to sizeof(ogive_division). */
typedef struct {
    size_t size;
    int64_t extent;  /* of the dims */
    int32_t stages;  /* formulas to run one after the other; 0: the index must be whole */
    int32_t cuts;    /* values that the processes reduce between them */
    int32_t counts;  /* 1: a mean or the like counts elements along it, so that parts need the
                        formula that ogive_formula_stage() gives, even of one stage */
    char reason[96]; /* why it must be whole, or "" */
} ogive_division;

/* A value in the middle that nothing can go on with before it is reduced: the maximum and the
 * sum in a softmax whose rows are divided. Set size to sizeof(ogive_cut). */
typedef struct {
    size_t size;
    ogive_share share; /* OGIVE_SUM, OGIVE_MAX or OGIVE_MIN */
    int32_t stage;     /* of which it is a result: the results of a stage are its cuts */
    char name[24];     /* of the input that it is in later stages */
    char function[32]; /* what the formula's text has there: "softmax" */
    int64_t offset;    /* and at which byte; -1: not known */
    int32_t constant;  /* 1: no gradient goes through it */
    DLDataType dtype;  /* halves are reduced in float32 */
    int32_t ndim;
    int64_t shape[8]; /* of the whole */
} ogive_cut;

/* As an index: nothing is divided, but inputs may be sums; see ogive_formula_division(). */
#define OGIVE_NOTHING ((size_t)-1)
/* Added to an index: no operation hands a sum on, each is a cut where it is made, or a result. So it
 * can be added in the order in which one process does; see ogive_plan_sums(). */
#define OGIVE_AT_SUMS ((size_t)1 << 30)

/* The number of indices, for inputs of these (whole) shapes and dtypes. */
OGIVE_API ogive_status ogive_formula_division_count(const ogive_formula *formula,
                                                    const DLTensor *const *inputs,
                                                    size_t input_count, size_t *count,
                                                    ogive_error *error);
/* One of them: what a process has of each input (of_inputs, one each) and of each result; a
 * gradient is a formula like any other. Indices are in the order of the inputs' dims. Of
 * OGIVE_NOTHING, of_inputs says which inputs are OGIVE_SUM; stages is 0 if the formula is not
 * linear in these. */
OGIVE_API ogive_status ogive_formula_division(const ogive_formula *formula,
                                              const DLTensor *const *inputs, size_t input_count,
                                              size_t index, ogive_division *division,
                                              ogive_placement *of_inputs,
                                              ogive_placement *of_results, ogive_error *error);
OGIVE_API ogive_status ogive_formula_cut(const ogive_formula *formula,
                                         const DLTensor *const *inputs, size_t input_count,
                                         size_t index, size_t cut, ogive_cut *info,
                                         ogive_error *error);
/* What a process runs on its parts. Its inputs are those that the stage needs, then cuts of
 * earlier stages, reduced; its results the cuts of this one, the last stage's the formula's.
 * means, whose count is that of the whole, are right on parts only so: of OGIVE_NOTHING and
 * stage 0, the whole formula with the counts of these inputs. inputs are whole. */
OGIVE_API ogive_status ogive_formula_stage(const ogive_formula *formula,
                                           const DLTensor *const *inputs, size_t input_count,
                                           size_t index, size_t stage, ogive_formula **out,
                                           ogive_error *error);

/* ---- plans --------------------------------------------------------------- */

typedef struct ogive_plan ogive_plan;

/* How products (linear, matmul) are computed. */
typedef enum {
    OGIVE_FLOAT32 = 0, /* float32's accuracy, in whatever way is fastest */
    OGIVE_STRICT = 1,  /* the same bits on every device */
    OGIVE_TF32 = 2 /* float32 factors rounded to TF32's 10 bits after the point, where tensor cores
                          multiply them: GPUs from sm_80 on; elsewhere an error */
} ogive_precision;

/* Set size to sizeof(ogive_options); zero in any other field is the default. */
typedef struct {
    size_t size;
    int32_t threads;       /* most threads a run may use; 0: OMP_NUM_THREADS, else all cores */
    const char *cpu_level; /* highest CPU level to use, as ogive_cpu_level_name() gives it */
    ogive_precision precision;
    void *stream;          /* of ogive_run() on a GPU: a CUstream or cudaStream_t; NULL: default */
    const char *cuda_arch; /* "90a": plan for such a GPU, which need not be there, instead of the
                              tensors' own. The plan can be looked at and warmed, not run */
    uint64_t packed;       /* bit i: runs get input i, below 64, as ogive_plan_pack() packs it */
} ogive_options;

/* Plans formula for inputs (and outputs: their shapes are checked and their
 * strides planned for; NULL means new, contiguous results). Of the tensors only
 * device, dtype, shape and strides are read, never the data pointers.
 * All tensors are on one device: the CPU (kDLCPU, kDLCUDAHost) or one NVIDIA GPU
 * (kDLCUDA, kDLCUDAManaged). For a GPU this compiles the kernels, or finds them
 * in the cache on disk, and loads them. */
OGIVE_API ogive_status ogive_plan_create(const ogive_formula *formula,
                                         const DLTensor *const *inputs, size_t input_count,
                                         const DLTensor *const *outputs, size_t output_count,
                                         const ogive_options *options, ogive_plan **out,
                                         ogive_error *error);
OGIVE_API ogive_plan *ogive_plan_retain(ogive_plan *plan);
OGIVE_API void ogive_plan_release(ogive_plan *plan);

/* Result index: its device, dtype, shape and strides (never NULL) as planned,
 * data NULL. Lives as long as the plan; NULL when index is out of range. */
OGIVE_API const DLTensor *ogive_plan_result(const ogive_plan *plan, size_t index);
/* Bytes of scratch memory that a run needs. */
OGIVE_API size_t ogive_plan_workspace(const ogive_plan *plan);

/* Weights that do not change, packed once for the products of many runs: on the CPU such
 * runs take half to four fifths of the time if x of linear(x, w) has up to 32 rows of
 * float32, little less if it has more. Bits do not change. The plan is made with
 * options.packed. An input can be packed if it is the right side of one product, two
 * columns or more, the same matrix for all of a batch, and is used for nothing else; if
 * not, and on a GPU, planning says OGIVE_UNSUPPORTED.
 *     options.packed = 1 << 1;                     w of linear(x, w, b)
 *     void *packed = aligned_alloc(64, ogive_plan_packed_bytes(plan, 1));
 *     ogive_plan_pack(plan, 1, w, packed, &error)
 *     ogive_plan_run(plan, (const void *[]){x, packed, b}, ...) */
/* Bytes of an input once packed, a multiple of 64; 0 if options.packed did not ask for it. */
OGIVE_API size_t ogive_plan_packed_bytes(const ogive_plan *plan, size_t input);
/* Packs data, laid out as planned, into memory that the caller owns, of that size and aligned
 * to 64; that takes as long as a product of 50 to 150 rows. What it holds depends on the
 * input, its shape and dtype and the CPU level alone, never on the other inputs: plans for
 * other batches may share it. Runs check that it fits them. */
OGIVE_API ogive_status ogive_plan_pack(const ogive_plan *plan, size_t input, const void *data,
                                       void *packed, ogive_error *error);

/* Runs plan. inputs[i] and outputs[i] point at the first element (DLTensor's
 * data + byte_offset), those of packed inputs at what ogive_plan_pack() made.
 * workspace holds ogive_plan_workspace() bytes of the plan's device, aligned to 64,
 * undefined at entry and exit; NULL if that is 0. stream is
 * a CUDA stream of the plan's device (NULL: the default stream), and NULL on the
 * CPU. Allocates nothing. An output may be an input where every read of it happens
 * at the index being written (OGIVE_ARGUMENT otherwise, before anything is written).
 * On a GPU it queues kernels and returns: workspace and tensors stay as they are
 * until the stream has come that far. It may be captured into a CUDA graph, which
 * may outlive the plan. The caller's current CUDA context is left as it was. */
OGIVE_API ogive_status ogive_plan_run(const ogive_plan *plan, const void *const *inputs,
                                      void *const *outputs, void *workspace, void *stream,
                                      ogive_error *error);

/* Plans (or finds a recent plan for the same layouts and options), finds
 * workspace, runs, on options->stream if the tensors are on a GPU. Outputs must be
 * given, of the right shape and dtype. */
OGIVE_API ogive_status ogive_run(ogive_formula *formula, const DLTensor *const *inputs,
                                 size_t input_count, const DLTensor *const *outputs,
                                 size_t output_count, const ogive_options *options,
                                 ogive_error *error);

/* ---- looking inside ------------------------------------------------------ */

typedef struct {
    char name[64];         /* "pointwise", "rows sum", ... */
    int64_t elements;      /* of the kernel's space */
    int64_t bytes_read;    /* each input element once */
    int64_t bytes_written; /* each output element once */
    int32_t passes;        /* over the same rows */
    int32_t threads;       /* that a run uses; on a GPU those of its largest launch */
    /* that its matrix products take at least, by the units they run on and the GPU's highest
     * clock; 0: it has none, or that is not known, as on the CPU */
    double multiply_seconds;
    double operations; /* functions and sums of elements, each one; a product of k is 2 k */
    int32_t slides;    /* it reads through windows; one that sees all there is counts as none */
} ogive_kernel_info;

OGIVE_API size_t ogive_plan_kernel_count(const ogive_plan *plan);
OGIVE_API ogive_status ogive_plan_kernel(const ogive_plan *plan, size_t index,
                                         ogive_kernel_info *info, ogive_error *error);

/* In which order a kernel adds the n elements of a float32 sum (docs/distributed.md). Values never
 * change. */
typedef enum {
    OGIVE_ORDER_NONE = 0,    /* it has no sum but those of its products */
    OGIVE_ORDER_ROWS = 1,    /* chunks of 16384, each 512 lanes that meet in a tree */
    OGIVE_ORDER_COLUMNS = 2, /* runs of 64, one element after the other */
    OGIVE_ORDER_BEHIND = 3   /* behind a product: chunks of 64 that meet in a tree, then as rows */
} ogive_order;

/* What the bits of a kernel's sums depend on. Set size to sizeof(ogive_sums). */
typedef struct {
    size_t size;
    ogive_order order;
    int32_t lead;      /* the input by whose strides the dims are ordered; -1: a value, or none */
    int32_t reduced;   /* dims that are summed over, neighbours made one */
    int64_t extent[8]; /* theirs; the last is the fastest */
    int32_t exponentials; /* 1: of exponentials (softmax), each chunk or run by its own maximum,
                             or of squares (a long row's variance), each chunk by its own mean */
    int32_t products;
    int64_t k; /* that its products sum over, in blocks of 256 and groups of 4096; -1: windows */
} ogive_sums;

OGIVE_API ogive_status ogive_plan_sums(const ogive_plan *plan, size_t index, ogive_sums *sums,
                                       ogive_error *error);
/* The plan as text for people, NUL-terminated and cut to capacity. Returns the
 * length of the whole text, as snprintf does; 0 if there is no memory for it. buffer may be
 * NULL if capacity is 0. */
OGIVE_API size_t ogive_plan_explain(const ogive_plan *plan, char *buffer, size_t capacity);

/* The source of a kernel in CUDA C, NUL-terminated and cut to capacity; returns the
 * length of all of it. 0 if there is none (on the CPU, or a kernel that does nothing), or no
 * memory for it. */
OGIVE_API size_t ogive_plan_source(const ogive_plan *plan, size_t kernel, char *buffer,
                                   size_t capacity);
typedef struct {
    size_t kernels;  /* that are in the cache now: those that have something to do */
    size_t compiled; /* of these, were not there yet */
    char target[32]; /* "sm_90a"; "compute_120": PTX of that, which the driver finishes, since
                        NVRTC does not know the GPU; "": nothing is compiled */
} ogive_warm_info;

/* Compiles plan's kernels into the cache on disk, for processes to come; needs NVRTC
 * but no GPU (see ogive_options.cuda_arch). info may be NULL. Fails, unlike planning, if
 * they cannot be kept. */
OGIVE_API ogive_status ogive_plan_warm(const ogive_plan *plan, ogive_warm_info *info,
                                       ogive_error *error);

/* ---- estimates ------------------------------------------------------------ */

/* What a piece of work is: of elements; of rows (sums, maxima), softmax and the like, norms and
 * variances; a matrix product; poolings and convolutions. (A pooling with one window, which sees all
 * of the dims that are pooled, is one of rows to Ogive.) */
typedef enum {
    OGIVE_WORK_ELEMENTS = 0,
    OGIVE_WORK_ROWS = 1,
    OGIVE_WORK_SOFTMAX = 2,
    OGIVE_WORK_NORM = 3,
    OGIVE_WORK_PRODUCT = 4,
    OGIVE_WORK_WINDOWS = 5
} ogive_work_kind;

typedef enum { OGIVE_BY_OGIVE = 0, OGIVE_BY_PYTORCH = 1 } ogive_worker;

/* What is done with windows: a convolution; one that is transposed; with strides; transposed and with
 * strides; of one tap; of a channel each (depthwise); its gradient by the weight; a pooling that
 * takes maxima, or averages. */
typedef enum {
    OGIVE_WINDOWS_PLAIN = 0,
    OGIVE_WINDOWS_TRANSPOSED = 1,
    OGIVE_WINDOWS_STRIDED = 2,
    OGIVE_WINDOWS_PHASES = 3,
    OGIVE_WINDOWS_POINTS = 4,
    OGIVE_WINDOWS_DEPTHWISE = 5,
    OGIVE_WINDOWS_BY_WEIGHT = 6,
    OGIVE_WINDOWS_MAXIMA = 7,
    OGIVE_WINDOWS_AVERAGES = 8
} ogive_windows_form;

typedef struct {
    ogive_windows_form form;
    int32_t dims;           /* that windows move along, 1 to 3 */
    int64_t channels, taps; /* of a convolution's group; of a window */
    int64_t span;      /* elements from a window's first to its last: with dilation more than taps;
                             * 0: as many */
    int64_t places[3]; /* of results along depth, height, width; 1: there is no such dim */
    int32_t exact;     /* PyTorch must not take TF32 */
    int32_t channels_last; /* in memory */
    double biased; /* bytes of results that get a bias; PyTorch has a kernel for that on a GPU */
} ogive_windows;

/* A kernel of a plan, or a call of PyTorch's. Set size to sizeof(ogive_work). */
typedef struct {
    size_t size;
    ogive_work_kind kind;
    DLDataType dtype;  /* of what it reads most of */
    double bytes;      /* that it must read and write */
    double operations; /* as in ogive_kernel_info, those of a product left out */
    /* of a product, batch times x (m, k) by w; of a convolution groups, places of all images, filters
     * of a group, terms that a result has (with phases: on average); else 0 */
    int64_t batch, m, n, k;
    int32_t across;        /* w's neighbours in memory lie along n, as in x @ w, not along k; of
                            * OGIVE_WORK_ROWS: what is summed are no neighbours */
    int32_t follows;       /* it is not the first kernel of its run */
    int32_t records;       /* PyTorch records its gradient, in place of one function's */
    ogive_windows windows; /* of poolings and convolutions */
} ogive_work;

/* The seconds that work takes, by rates that were measured (src/api/rates.def names the sources);
 * 0: none are known, or Ogive's were not measured for a product or a convolution like this one.
 * operations of poolings: elements that windows see, of all windows. machine: "cpu";
 * "cpu-bf16", one whose instructions for bfloat16 PyTorch uses; "sm_90"; "sm_80", a GPU from compute
 * capability 8.0 on; "sm", any other. */
OGIVE_API double ogive_estimate(const char *machine, ogive_worker by, const ogive_work *work);

/* CPU levels this machine can run, lowest first ("x86-64", "x86-64-v3",
 * "x86-64-v4"; "aarch64"). NULL when index is out of range. OGIVE_CPU in the
 * environment names the highest level to use. */
OGIVE_API const char *ogive_cpu_level_name(size_t index);
/* The level and the number of threads that runs use by default. */
OGIVE_API const char *ogive_cpu_level(void);
OGIVE_API int32_t ogive_cpu_threads(void);

/* Runs on the CPU have threads of Ogive's own, which sleep between runs. A program whose threads
 * spin between their tasks, as those of OpenMP do, is faster if it lends these: both would take
 * each other's cores. With OpenMP:
 *
 *     static void run(void (*task)(void *argument), void *argument, int32_t threads)
 *     {
 *         #pragma omp parallel num_threads(threads)
 *         task(argument);
 *     }
 *     ogive_cpu_use_threads(run, &error);
 *
 * run() calls the task on at most that many threads at once, or on fewer, and returns when all
 * calls have; each takes parts of the work until none is left. It is called by any thread that
 * runs a plan, several at a time. NULL, and any child of fork(), has Ogive's own threads again.
 * Results do not depend on it. */
typedef void (*ogive_run_on_threads)(void (*task)(void *argument), void *argument, int32_t threads);
OGIVE_API ogive_status ogive_cpu_use_threads(ogive_run_on_threads run, ogive_error *error);

/* ---- devices ------------------------------------------------------------- */

/* For programs without a CUDA toolkit. Those that have memory and streams of their
 * own (PyTorch's, the CUDA runtime's) need none of this. */

/* What was found for NVIDIA GPUs. A problem is "" or one line that says what is
 * missing. Versions are as CUDA's: 12040 is 12.4; 0: not known. */
typedef struct {
    char driver_problem[512]; /* no driver, no GPU: nothing runs on a GPU */
    char driver_path[512];
    int32_t driver_version;
    int32_t device_count;
    char nvrtc_problem[1000]; /* only what is in the cache can be used */
    char nvrtc_path[1024];
    int32_t nvrtc_version;
    char cache_problem[256]; /* compiled kernels are not kept, or only read */
    char cache_folder[1024];
} ogive_cuda_info;

/* Loads the driver and NVRTC if that has not been done. */
OGIVE_API void ogive_cuda_describe(ogive_cuda_info *info);

typedef struct {
    char name[128];
    int32_t arch; /* compute capability: 90 is 9.0 */
    int32_t multiprocessors;
    int64_t memory_bytes, l2_bytes;
    double memory_bytes_per_second; /* by bus and clock, never reached; 0: not known */
} ogive_cuda_device_info;

OGIVE_API ogive_status ogive_cuda_device(int32_t index, ogive_cuda_device_info *info,
                                         ogive_error *error);

/* Memory of device, aligned to 64 or more; of 0 bytes NULL. */
OGIVE_API ogive_status ogive_device_allocate(DLDevice device, size_t bytes, void **out,
                                             ogive_error *error);
/* NULL is fine. Waits for what still uses it. */
OGIVE_API ogive_status ogive_device_free(DLDevice device, void *data, ogive_error *error);
/* Copies between device and the process's memory, or within either, after all that
 * was queued on the default stream; done when it returns. */
OGIVE_API ogive_status ogive_device_copy(DLDevice device, void *to, const void *from, size_t bytes,
                                         ogive_error *error);
/* Waits for what was queued on stream; NULL: on any stream of the device. Reports what
 * went wrong there, whoever queued it. */
OGIVE_API ogive_status ogive_device_synchronize(DLDevice device, void *stream, ogive_error *error);

/* ---- functions ----------------------------------------------------------- */

/* The functions of the language, in the order of the documentation. */
typedef struct {
    const char *name;
    char signature[128]; /* "input, negative_slope=0.01" */
    const char *group;   /* "activation", "reduction", ... */
    const char *meaning; /* formula text for a composite that has one, else NULL */
    const char *symbol;  /* "+" of add: the operator that it may be written as, else NULL */
    double max_ulp;      /* largest float32 error over all 2^32 inputs; < 0: not of that kind */
    uint64_t hash;       /* of all 2^32 results, 0 if max_ulp < 0 */
} ogive_function_info;

OGIVE_API size_t ogive_function_count(void);
OGIVE_API ogive_status ogive_function(size_t index, ogive_function_info *info, ogive_error *error);
/* The hash of what function index, one with a hash, gives on device for every step-th
 * of all 2^32 float32 inputs. For step 1 it must be ogive_function_info's: then device
 * gives the documented bits. On a CPU this takes its time. */
OGIVE_API ogive_status ogive_function_hash(size_t index, DLDevice device, uint32_t step,
                                           uint64_t *hash, ogive_error *error);

#ifdef __cplusplus
}
#endif
#endif
