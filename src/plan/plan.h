/* SPDX-License-Identifier: MIT
 *
 * plan.h - the waist: what the planner hands to a backend, and all that a
 * backend may know of a formula. The CPU, CUDA and the tests' float64
 * interpreter read this and nothing else.
 *
 * A kernel visits a *space*: kept dims, then reduced dims. One index of the
 * kept dims is a *row*; its elements are the reduced dims, flattened in the
 * order given (last dim fastest). With n_reduced == 0 there is one pass, of
 * element instructions only. A kernel makes one or more *passes* over the same
 * rows. A pass computes its element instructions for every element of the row,
 * then reduces some of their values over the row, then computes its row
 * instructions once. Values of element instructions live for their pass;
 * values of reductions and row instructions (level OG_ROW) live on to the
 * kernel's end and may be arguments of later element and row instructions.
 * A pass may have guards, values of the row before it: where all of them are 1, what it
 * reduces is not read (plan_guards.c), so that a backend leaves it out there, but for
 * its row instructions, and as a rule it is left out everywhere.
 * Whether the row stays in a cache or is read again for the next pass is the
 * backend's affair; what it computes is not:
 *
 *  - float16 and bfloat16 are read into float32 and rounded once, when stored
 *    (or where OG_OP_CONVERT says so);
 *  - reductions follow the order below, a function of extents and of
 *    kernel->order alone: never of the device, the CPU level or the threads.
 *
 * ORDER of a reduction over the n elements of a row (float32; for float64 any):
 *   OG_ROWS     Chunks of OG_CHUNK elements. In a chunk, lane l of OG_LANES adds
 *               elements l, l + OG_LANES, ... one after the other; the lanes meet
 *               in a tree of neighbours ((0+1)+(2+3))+...; a missing element is
 *               -0.0 (it changes nothing). The chunks' sums are a row again,
 *               summed the same way.
 *   OG_COLUMNS  Runs of OG_RUN elements, one after the other; the runs' sums are
 *               a row again, summed the same way.
 *   A kernel that reads through windows has order OG_COLUMNS, wherever its tensors lie, and its
 *   reduced dims are in the formula's order. (One window that sees all is none: plan_whole.c.)
 *   A kernel with a product has order OG_ROWS and rows of one dim, but chunks of
 *   OG_RUN elements: each meets in the tree, and the chunks' sums are a row again,
 *   summed in OG_ROWS order with chunks of OG_CHUNK. This goes for all its reductions,
 *   whether the product feeds them or not.
 *   sum         as above; of no elements +0.
 *   amax, amin, row_max   the same order with og_maximum / og_minimum of src/math
 *               in place of +, accumulator first, so that the sign of a zero is
 *               fixed too; a missing element changes nothing. NaN if any element
 *               is NaN. Of no elements: row_max is -inf (amax and amin never meet it).
 *   sumexp      with u(m) = 0 if m is infinite, else m. For each chunk (OG_ROWS) or
 *               run (OG_COLUMNS) c: m_c = its greatest element, s_c = sum of
 *               exp(x - u(m_c)) in the order above within the chunk or run. One
 *               chunk or run: the result is s_0. More: M = greatest m_c; the
 *               results s_c * exp(m_c - u(M)) are a row again, summed (sum, not
 *               sumexp) in the order above. Of no elements +0.
 *   sqdev       the sum of (x - m)^2, m the row's mean, in one pass. Only of order OG_ROWS,
 *               without products, beside the sum of the same value: plan_deviations.c says when.
 *               A lane of a chunk has k elements, p the first of them. d = x - p of each: a = the
 *               sum of d, b = that of d * d, one after the other from +0; u = a / k; v = b - a * u,
 *               or 0 if that is negative, or b if it is NaN: of numbers where b and a * u are too
 *               large. With m_c = s_c / n_c, s_c the chunk's sum and n_c its elements, and
 *               e = (p - m_c) + u, the lane's result is v + (k * e) * e. Lanes meet as above: t_c.
 *               With m = s / n, s the row's sum, and e = m_c - m, the results t_c + (n_c * e) * e
 *               are a row again, summed in the order above.
 */
#ifndef OG_PLAN_H
#define OG_PLAN_H

#include "formula/functions.h"

enum { OG_LANES = 512, OG_CHUNK = 16384, OG_RUN = 64 };
enum { OG_PRODUCT_BLOCK = 256, OG_PRODUCT_GROUP = 4096, OG_MAX_PRODUCTS = 2 };

/* A float32 sum over k in this order is within so many * 2^-24 of sum |x||w|: no product is part of
 * more roundings (docs/accuracy.md). */
static inline int64_t og_strict_units(int64_t k)
{
    const int64_t group = k < OG_PRODUCT_GROUP ? k : OG_PRODUCT_GROUP;
    return (k < OG_PRODUCT_BLOCK ? k : OG_PRODUCT_BLOCK) +
           (group + OG_PRODUCT_BLOCK - 1) / OG_PRODUCT_BLOCK +
           (k + OG_PRODUCT_GROUP - 1) / OG_PRODUCT_GROUP;
}
enum { OG_MAX_K = 1 + OG_MAX_WINDOWS }; /* dims that a product sums over */

typedef enum { OG_ROWS, OG_COLUMNS } og_order;

/* What a register holds. A mask is all ones or all zeros. */
typedef enum { OG_F32, OG_F64, OG_MASK32 } og_type;

typedef enum { OG_ELEMENT, OG_ROW } og_level;

typedef struct {
    int32_t rank;      /* dims of extent 1 are gone, but a kernel that reduces keeps at
                          least one reduced dim; an empty space has extents 0 */
    int32_t n_reduced; /* the last n_reduced dims are the row */
    int64_t extent[OG_MAX_RANK];
} og_space;

/* A window slides along a dim of a tensor. At index i of the space it is at
 *
 *     p = start + step * i[place] + reach * i[tap]
 *
 * and sees element p / divisor of the dim; none, if p is negative or no multiple of divisor, or
 * if that is extent or more.
 *
 * Windows may also cut a dim into parts that are not all of one length (uneven.bits > 0), as adaptive
 * pooling does. Let a elements be as long as b parts: part i is [a i, a i + a), element e is
 * [b e, b e + b), and a window sees the elements that its part overlaps, those whose d = b e - a i
 * is one of -b + 1 .. a - 1. These numbers, counted from 0, are dealt out to taps in order, min(a, b)
 * to each, so that a place and a tap have one element at most, and an element and a tap one place,
 * which is what looking back needs. The element is a quotient by b (looking back, by a), and the
 * remainder, with the tap, says which d it has; therefore p is 2^bits times as much, and i[tap]
 * more, and the low bits of its remainder are the tap. */
typedef struct {
    int32_t bits;         /* 0: no such window */
    int64_t from, reach;  /* number of d: from + reach * tap - remainder, without its low bits */
    int64_t width, count; /* such remainders and numbers must be less, and none negative */
} og_uneven;

typedef struct {
    int32_t place, tap;     /* dims of the space; -1: its term is 0 */
    int64_t start;          /* -padding; looking back: padding */
    int64_t step, reach;    /* stride and dilation; looking back: 1 and -dilation */
    int64_t divisor;        /* 1; looking back: the stride */
    int64_t extent, stride; /* of the tensor's dim, in elements */
    og_uneven uneven;
} og_window;

/* Does a window see an element of the dim, if the remainder of p by divisor is rest? */
static inline bool og_uneven_sees(const og_uneven *uneven, int64_t rest)
{
    int64_t tap = rest & ((INT64_C(1) << uneven->bits) - 1), left = rest >> uneven->bits;
    int64_t number = uneven->from + uneven->reach * tap - left;
    return uneven->bits ? left < uneven->width && number >= 0 && number < uneven->count : rest == 0;
}

/* How far one step along dim d of the space takes the window. */
static inline int64_t og_window_step(const og_window *window, int32_t d)
{
    return (window->place == d ? window->step : 0) + (window->tap == d ? window->reach : 0);
}

/* Element i of the space is at element offset + sum(i[d] * stride[d]) of the buffer, and stride
 * times what each window sees further; if one of them sees none it is fill. */
typedef struct {
    int32_t buffer; /* -1: there is none, and the element's number is its value */
    og_dtype dtype;
    int64_t offset;
    int64_t stride[OG_MAX_RANK]; /* 0: broadcast; at row level 0 in reduced dims */
    bool is_store;               /* written through, by one instruction; else read */
    int32_t window_count;        /* of loads only. A window that always sees an element is none: */
    og_window windows[OG_MAX_WINDOWS]; /* it is in stride */
    double fill;
} og_access;

/* How far one step along dim d of the space takes a product's factor, windows included. (Their taps
 * are dims of k.) */
static inline int64_t og_factor_step(const og_access *access, int32_t d)
{
    int64_t step = access->stride[d];
    for (int32_t w = 0; w < access->window_count; w++)
        if (access->windows[w].place == d)
            step += access->windows[w].step * access->windows[w].stride;
    return step;
}

/* Is the dim the tap of one of its windows? */
static inline bool og_access_has_tap(const og_access *access, int32_t dim)
{
    for (int32_t w = 0; w < access->window_count; w++)
        if (access->windows[w].tap == dim)
            return true;
    return false;
}

/* Are there elements in memory at strides, and nothing else to it? */
static inline bool og_access_is_plain(const og_access *access)
{
    return access->window_count == 0 && access->buffer >= 0;
}

/* The dims that a convolution sums over, the last fastest. */
typedef struct {
    int32_t rank; /* 0: k is one dim, and no factor is seen through windows */
    int64_t extent[OG_MAX_K], stride[2][OG_MAX_K]; /* of left and of right */
} og_k_dims;

/* left (.., m, k) times right (.., k, n), summed over k. The strides of left and
 * right run over the kernel's space, the k strides are apart; og_matrices says how they
 * move. Only element instructions of pass 0 are products.
 *
 * Of a convolution k may be several dims, and the taps of its factors' windows are dims of k; what
 * a window does not see is +0, whatever it is multiplied with. But where a window has a divisor,
 * terms whose place is no multiple of it are none: a sum counts its own terms only, and its k are these.
 *
 * ORDER of the sum (float32 and halves, whose products are exact; for float64 any):
 * k is cut at multiples of OG_PRODUCT_BLOCK. A block: p = +0, then p = fma(left[k],
 * right[k], p), k ascending. The blocks' sums are added one after the other within
 * groups of OG_PRODUCT_GROUP k, the groups' sums likewise. Of no k: +0. */
typedef struct {
    og_access left, right;
    int64_t k, left_k_stride, right_k_stride;
    og_k_dims k_dims;
    bool exchanged; /* left is the formula's right factor, and right its left */
    bool by_places; /* of a convolution: k are images and places, and the result is its weight's
                     * gradient, or that of a transposed one's */
    int64_t n;      /* columns of the formula's right factor, whatever the space's dims are; of a
                     * convolution that is a product of matrices, those of a contiguous result */
    og_dtype dtype;
} og_product;

/* The space of a kernel with products, seen as matrices. Its dims are, in this order,
 *
 *     batch   some right factor moves along each of them
 *     m       rows: no right factor moves along them
 *     n       columns: no left factor moves along them. At most the last dim, and always a
 *             dim that is reduced; of a convolution as many as there are at the end
 *
 * Planning has exchanged factors for it, where left alone moved along the last dim, and
 * brought dims of the batch before those of rows: x (2, 3, m, k) times w (3, k, n) is 3
 * products of 2 m rows. If left and right both move along every dim that could be columns
 * (many dot products), n_rank and m_rank are 0. */
typedef struct {
    int32_t batch_rank, m_rank, n_rank; /* dims of each: together the space's rank */
    int64_t batch, m, n;                /* elements of these dims: of no dims 1 */
    int64_t k;                          /* of every product */
} og_matrices;

typedef struct {
    og_op op;
    og_type type; /* of dst; of a comparison: of its arguments; of STORE: of its argument */
    int32_t dst;  /* value, or -1 (STORE) */
    int32_t args[OG_MAX_ARGS]; /* values, -1 beyond the op's. where: mask, then, else */
    int32_t index; /* LOAD, STORE: access. CONSTANT: constant. PRODUCT: product. A SCALAR
                      row with constants: the first of them. CONVERT: the og_dtype to
                      round to (float16 and bfloat16 stay in a float32 register) */
} og_instr;

typedef struct {
    og_op op;       /* sum, amax, amin, row_max, sumexp, sqdev */
    og_type type;   /* OG_F32 or OG_F64 */
    int32_t source; /* element (or row) value of this pass */
    int32_t dst;    /* row value */
} og_reduce;

typedef struct {
    og_instr *elements;
    int32_t element_count;
    og_reduce *reductions;
    int32_t reduction_count;
    og_instr *rows;
    int32_t row_count;
    /* Row values of earlier passes. Where all of a row's are 1, nobody reads what the pass reduces: it
     * need compute no elements there. 0: the pass is needed everywhere. */
    int32_t *guards;
    int32_t guard_count;
} og_pass;

typedef struct {
    og_type type;
    og_level level;
    int32_t pass; /* that computes it */
} og_value;

typedef struct {
    og_space space;
    og_order order;
    bool slides; /* there are windows, or were: some access has them in its strides */
    og_access *accesses;
    int32_t access_count;
    og_product *products;  /* two: of the same k and compute type, and pass 0 needs both */
    int32_t product_count; /* <= OG_MAX_PRODUCTS */
    og_matrices matrices;  /* where there are products */
    og_pass *passes;
    int32_t pass_count;
    og_value *values;
    int32_t value_count;
    double *constants; /* arguments of the kernel, never part of its source */
    int32_t constant_count;
    /* What explain and benchmarks count: every element that an access touches, once. */
    int64_t bytes_read, bytes_written;
} og_kernel;

/* Is its product a transposed convolution all of whose phases are here (og_plan_rules)? */
static inline bool og_kernel_gathers(const og_kernel *kernel)
{
    for (int32_t p = 0; p < kernel->product_count; p++)
        for (int side = 0; side < 2; side++) {
            const og_access *factor = side ? &kernel->products[p].right : &kernel->products[p].left;
            for (int32_t w = 0; w < factor->window_count; w++)
                if (factor->windows[w].divisor > 1)
                    return true;
        }
    return false;
}

/* How many terms a sum of the product has, on the average of phases. */
static inline double og_product_terms(const og_product *product)
{
    double terms = (double)product->k;
    for (int side = 0; side < 2; side++) {
        const og_access *factor = side ? &product->right : &product->left;
        for (int32_t w = 0; w < factor->window_count; w++)
            terms /= (double)factor->windows[w].divisor;
    }
    return terms;
}

/* One factor of a product of a kernel. */
typedef struct {
    const og_access *access;
    int64_t k_stride;
    int32_t product;
    bool is_right;
} og_factor;

static inline og_factor og_factor_of(const og_kernel *kernel, int32_t product, bool is_right)
{
    const og_product *of = &kernel->products[product];
    return (og_factor){is_right ? &of->right : &of->left,
                       is_right ? of->right_k_stride : of->left_k_stride, product, is_right};
}

/* Does it sum over several dims, or over windows? Such a kernel has one product and no reduction. */
static inline bool og_kernel_convolves(const og_kernel *kernel)
{
    return kernel->product_count && kernel->products[0].k_dims.rank > 0;
}

/* The dim of a product's columns, or -1. */
static inline int32_t og_column_dim(const og_kernel *kernel)
{
    return kernel->matrices.n_rank ? kernel->space.rank - 1 : -1;
}

typedef enum { OG_BUFFER_INPUT, OG_BUFFER_OUTPUT, OG_BUFFER_TEMPORARY } og_buffer_kind;

typedef struct {
    og_buffer_kind kind;
    int32_t index; /* of the input or output */
    size_t offset; /* OG_BUFFER_TEMPORARY: byte in the workspace, a multiple of 64; it shares no
                      memory with another, as cpu_slabs.c relies on */
    og_dtype dtype;
    int32_t rank; /* the tensor as the caller (or, for a temporary, the planner) lays it out */
    int64_t shape[OG_MAX_RANK];
    int64_t stride[OG_MAX_RANK];
} og_buffer;

typedef struct {
    og_arena arena;     /* owns everything below */
    og_kernel *kernels; /* run in this order, each after the one before */
    int32_t kernel_count;
    og_buffer *buffers; /* inputs, outputs, then temporaries */
    int32_t input_count, output_count, buffer_count;
    size_t temporary_bytes; /* the temporaries' part of the workspace, at its start */
    bool *may_alias;        /* [output * input_count + input]: in place is legal */
} og_plan;

/* Does the plan multiply matrices, or convolve? */
static inline bool og_plan_has_products(const og_plan *plan)
{
    for (int32_t i = 0; i < plan->kernel_count; i++)
        if (plan->kernels[i].product_count)
            return true;
    return false;
}

/* Kernel index as text, for explain and golden tests; inputs by names, if not NULL. */
void og_kernel_print(const og_plan *plan, int32_t index, const char *const *names, og_text *text);

/* The input by whose strides the dims of a kernel that reduces are ordered; -1: none. */
int32_t og_lead_input(const og_plan *plan, const og_kernel *kernel);
/* Functions and reductions of elements and rows, each one; a product of k is 2 k. */
double og_kernel_operations(const og_kernel *kernel);
/* Does some instruction write through the access? */
bool og_kernel_stores(const og_kernel *kernel, int32_t access);
int64_t og_space_count(const og_space *space, bool rows_only);
/* "pointwise", "rows sum", "columns amax sumexp", "two products": fits name[64]. */
void og_kernel_name(const og_kernel *kernel, char name[64]);

/* For every value: (*by_value)[value], the element instruction that computes it, or NULL;
 * (*same)[value], the first value, of any pass, that is the same for every element, or
 * itself. */
ogive_status og_find_same(const og_kernel *kernel, og_arena *scratch, const og_instr ***by_value,
                          int32_t **same, ogive_error *error);

/* The reduction of a pass that is the sum of what sqdev, another of it, takes. */
int32_t og_find_sum(const og_pass *pass, const og_reduce *sqdev);

/* Sets kept[value] of the sumexp values whose terms later passes use, and of these uses,
 * to their number from 0; *count: how many. kept[] comes filled with -1. stores[number]:
 * the kernel's access that they may be kept in (unless an output is an input), or -1. */
ogive_status og_find_kept_terms(const og_kernel *kernel, og_arena *scratch, int32_t *kept,
                                int32_t *stores, int32_t *count, ogive_error *error);

#endif
