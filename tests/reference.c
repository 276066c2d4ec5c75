/* SPDX-License-Identifier: MIT
 *
 * reference.c - a plan in float64, as plainly as it can be written: one loop over
 * rows, in it the passes, in these the elements. See reference.h.
 *
 * BOUNDS. An op of exact arguments (bound 0) that IEEE rounds once is exact. Any
 * other op is evaluated over the box its arguments may lie in (its corners, and
 * zero where that is inside), and gets its own error in ULP on top. Reductions
 * add the bound of their order (ORDER in plan.h: 40 levels of 2^-24 for rows of up
 * to 16384 elements, 63 for columns of up to 64, and so on).
 */
#include "reference.h"

#include "math/scalar_f32.h"
#include "math/scalar_f64.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers --------------------------------------------------------------- */

/* value = mantissa * 2^exponent, mantissa of this many bits, exponent at least this. */
typedef struct {
    int bits, least_exponent;
    double overflow; /* from here on the nearest "number" is infinity */
} format;

static const format formats[OG_DTYPE_COUNT] = {
    [OG_FLOAT32] = {24, -149, 0x1.ffffffp127},
    [OG_FLOAT16] = {11, -24, 65520},
    [OG_BFLOAT16] = {8, -133, 0x1.ffp127},
    [OG_FLOAT64] = {53, -1074, DBL_MAX},
};

double reference_round(double value, og_dtype dtype)
{
    const format *f = &formats[dtype];
    if (dtype == OG_FLOAT64 || value == 0 || !isfinite(value))
        return value;
    if (fabs(value) >= f->overflow)
        return copysign(INFINITY, value);
    int exponent;
    frexp(value, &exponent);
    int last = exponent - f->bits < f->least_exponent ? f->least_exponent : exponent - f->bits;
    return ldexp(nearbyint(ldexp(value, -last)), last);
}

/* ---- bounds ------------------------------------------------------------------ */

static const reference_value undecided = {0, INFINITY};

static reference_value exactly(double value)
{
    return (reference_value){value, 0};
}

static bool is_exact(reference_value x)
{
    return x.bound == 0;
}

static og_dtype held_in(og_type type)
{
    return type == OG_F64 ? OG_FLOAT64 : OG_FLOAT32;
}

/* x, computed with an error of ulps units in the last place, in a register of
 * dtype: adds that error, and finds out whether it is infinite there. */
static reference_value settle(reference_value x, double ulps, og_dtype dtype)
{
    const format *f = &formats[dtype];
    if (isnan(x.value) || isinf(x.value) || isinf(x.bound))
        return x;
    double size = fabs(x.value) + x.bound;
    x.bound += ulps * (ldexp(size, 1 - f->bits) + ldexp(1, f->least_exponent));
    if (fabs(x.value) - x.bound >= f->overflow)
        return exactly(copysign(INFINITY, x.value));
    return fabs(x.value) + x.bound >= f->overflow ? undecided : x;
}

/* x rounded to dtype: exactly, if it is known exactly. */
static reference_value round_to(reference_value x, og_dtype dtype)
{
    return is_exact(x) ? exactly(reference_round(x.value, dtype)) : settle(x, 0.5, dtype);
}

/* ---- instructions -------------------------------------------------------------- */

/* Is op one IEEE operation or a selection, rounded once? */
static bool rounds_once(og_op op)
{
    const og_function *function = og_function_of(op);
    bool has_steps = op == OG_OP_scaled_rsqrt || op == OG_OP_scaled_square || op == OG_OP_unscaled;
    return function->cost != OG_COST_CURVE && function->max_ulp <= 0.5 && !has_steps;
}

/* The error of op itself. A function with constants is measured for their defaults
 * only, and unmeasured ones are trusted to 4. */
static double ulps_of(og_op op, og_type type)
{
    const og_function *function = og_function_of(op);
    if (rounds_once(op))
        return 0.5;
    if (type == OG_F64)
        return 8;
    if (function->max_ulp < 0 || (function->constants && function->max_ulp < 4))
        return 4;
    return function->max_ulp;
}

enum { MOST_CORNERS = 4, STEPS = 16 };

/* The places where an argument is tried, x.value first; returns how many. */
static int list_corners(reference_value x, double corners[MOST_CORNERS])
{
    int count = 0;
    corners[count++] = x.value;
    if (is_exact(x))
        return count;
    corners[count++] = x.value - x.bound;
    corners[count++] = x.value + x.bound;
    if (fabs(x.value) <= x.bound)
        corners[count++] = 0;
    return count;
}

/* Does op rise and fall, or jump back, within what argument a may be? Then its corners do
 * not say between what its values are. */
static bool turns_back(og_op op, const reference_value *args, int a, const double *constants)
{
    double x[2] = {args[0].value, args[1].value}, last = 0;
    bool rises = false, falls = false, is_curve = og_op_cost(op) == OG_COST_CURVE;
    for (int step = -STEPS; step <= STEPS && is_curve && !is_exact(args[a]); step++) {
        x[a] = args[a].value + args[a].bound * step / STEPS;
        double y = og_function_value(op, x, constants);
        rises |= step > -STEPS && y > last;
        falls |= step > -STEPS && y < last;
        last = y;
    }
    return rises && falls;
}

/* square_scale, whose numbers are the type's. */
static reference_value compute_scale(og_type type, reference_value s, double eps)
{
    double least = s.value - s.bound, most = s.value + s.bound;
    if (isinf(s.bound))
        return undecided;
    if (type == OG_F64) {
        least = og_square_scale_f64(least, eps);
        most = og_square_scale_f64(most, eps);
    } else {
        least = og_square_scale_f32((float)least, (float)eps);
        most = og_square_scale_f32((float)most, (float)eps);
    }
    return least == most ? exactly(least) : undecided;
}

static reference_value compute_rescaled(og_type type, const reference_value *args, double eps)
{
    reference_value scale = compute_scale(type, args[0], eps);
    return !is_exact(scale) ? undecided : scale.value == 1 ? args[0] : args[1];
}

/* A SCALAR row of functions.def. */
static reference_value compute_scalar(og_op op, og_type type, const reference_value *args,
                                      const double *numbers)
{
    const og_function *function = og_function_of(op);
    double constants[OG_MAX_NUMBERS] = {0};
    for (int c = 0; c < function->constants; c++)
        constants[c] = reference_round(numbers[c], held_in(type));
    if (op == OG_OP_scaled_rsqrt && isnan(constants[0])) /* the machine epsilon of the type */
        constants[0] = type == OG_F64 ? DBL_EPSILON : FLT_EPSILON;
    if (op == OG_OP_square_scale)
        return compute_scale(type, args[0], constants[0]);
    if (op == OG_OP_rescaled || op == OG_OP_rescaled_once)
        return compute_rescaled(type, args, constants[0]);

    double corners[2][MOST_CORNERS] = {{0}, {0}};
    int counts[2] = {1, 1};
    bool exact = true;
    for (int a = 0; a < function->args; a++) {
        if (isinf(args[a].bound))
            return undecided;
        exact &= is_exact(args[a]);
        reference_value at = args[a];
        if (function->constants && !rounds_once(op)) /* x * beta is rounded, inside */
            at.bound += fabs(at.value) * (type == OG_F64 ? 0x1p-53 : 0x1p-24);
        counts[a] = isfinite(at.value) ? list_corners(at, corners[a]) : 1;
        corners[a][0] = at.value;
    }

    reference_value result =
        exactly(og_function_value(op, (double[]){corners[0][0], corners[1][0], 0}, constants));
    if (exact && rounds_once(op))
        return exactly(reference_round(result.value, held_in(type)));
    for (int i = 0; i < counts[0]; i++)
        for (int j = 0; j < counts[1]; j++) {
            double at =
                og_function_value(op, (double[]){corners[0][i], corners[1][j], 0}, constants);
            if (isfinite(at) && isfinite(result.value))
                result.bound = fmax(result.bound, fabs(at - result.value));
            else if (!(isnan(at) && isnan(result.value)) && at != result.value)
                return undecided;
        }
    for (int a = 0; a < function->args; a++)
        if (turns_back(op, args, a, constants))
            return undecided;
    /* Over a wave and more, all steps of turns_back() may fall on the same phases. */
    if ((op == OG_OP_sin || op == OG_OP_cos) && args[0].bound > 1)
        return undecided;
    /* What a division leaves says nothing once its quotient is not known, nor a power of a negative
     * number once it is not known whether its exponent is whole. */
    if (!exact && op == OG_OP_power && !(args[0].value - args[0].bound > 0))
        return undecided;
    /* 1 to the power of NaN is 1, of its neighbours NaN. */
    if (op == OG_OP_power && isnan(args[1].value) && fabs(args[0].value - 1) <= args[0].bound &&
        !is_exact(args[0]))
        return undecided;
    if (!exact && (op == OG_OP_fmod || op == OG_OP_remainder))
        return undecided;
    /* A subnormal on the way may be magnified by a constant, as in f(x beta) / beta. */
    for (int c = 0; c < function->constants && !rounds_once(op); c++)
        if (constants[c] != 0 && isfinite(constants[c]) && isfinite(result.value))
            result.bound += ldexp(fmax(fabs(constants[c]), 1 / fabs(constants[c])),
                                  formats[held_in(type)].least_exponent);
    return settle(result, ulps_of(op, type), held_in(type));
}

/* A mask is 1 or 0, or undecided. */
static reference_value compute_mask(og_op op, reference_value a, reference_value b)
{
    bool close = fabs(a.value - b.value) <= a.bound + b.bound;
    if (isinf(a.bound) || isinf(b.bound) || (close && !(is_exact(a) && is_exact(b))))
        return undecided;
    switch (op) {
    case OG_OP_lt:
        return exactly(a.value < b.value);
    case OG_OP_le:
        return exactly(a.value <= b.value);
    case OG_OP_gt:
        return exactly(a.value > b.value);
    case OG_OP_ge:
        return exactly(a.value >= b.value);
    case OG_OP_eq:
        return exactly(a.value == b.value);
    default:
        assert(op == OG_OP_ne);
        return exactly(a.value != b.value);
    }
}

/* If it is not known which, then both. */
static reference_value compute_where(reference_value mask, reference_value a, reference_value b)
{
    if (is_exact(mask))
        return mask.value != 0 ? a : b;
    if (is_exact(a) && is_exact(b) && (a.value == b.value || (isnan(a.value) && isnan(b.value))))
        return a;
    if (!isfinite(a.value) || !isfinite(b.value))
        return undecided;
    return (reference_value){a.value, fabs(a.value - b.value) + fmax(a.bound, b.bound)};
}

/* ---- reductions ---------------------------------------------------------------- */

/* Levels of additions that an element goes through at most: NUMERICS' factor. */
static double levels_of(og_order order, int64_t n)
{
    int64_t width = order == OG_ROWS ? OG_CHUNK : OG_RUN;
    double per_level = order == OG_ROWS ? OG_CHUNK / OG_LANES - 1 + 9 : OG_RUN - 1;
    double levels = 0;
    for (; n > 1; n = (n + width - 1) / width)
        levels += per_level;
    return levels;
}

static double unit_roundoff(og_type type)
{
    return type == OG_F64 ? 0x1p-53 : 0x1p-24;
}

static bool find_nan(const reference_value *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (isnan(x[i].value))
            return true;
    return false;
}

static bool find_undecided(const reference_value *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (isinf(x[i].bound))
            return true;
    return false;
}

static reference_value reduce_sum(og_type type, og_order order, const reference_value *x, int64_t n)
{
    long double sum = -0.0L, size = 0, bound = 0; /* -0 changes nothing */
    double infinite = 0;                          /* +-infinity, or NaN, once there is one */
    for (int64_t i = 0; i < n; i++) {
        if (isinf(x[i].value)) {
            infinite += x[i].value;
            continue;
        }
        sum += x[i].value;
        size += fabs(x[i].value) + x[i].bound;
        bound += x[i].bound;
    }
    if (n == 1)
        return x[0];
    /* A sum on the way may overflow, whatever the whole sum is. */
    if (size >= (long double)formats[held_in(type)].overflow)
        return isnan(infinite) ? exactly(NAN) : undecided;
    if (infinite != 0)
        return exactly(infinite);
    if (size == 0) /* +0, unless all are -0 */
        return exactly(n ? (double)sum : 0);
    bound += levels_of(order, n) * 1.0001 * unit_roundoff(type) * size;
    return settle((reference_value){(double)sum, (double)bound}, 0, held_in(type));
}

/* sign -1: the least. Of no elements -infinity: only row_max meets that. */
static reference_value reduce_extreme(double sign, const reference_value *x, int64_t n)
{
    double nearest = -INFINITY, least = -INFINITY, most = -INFINITY;
    bool zeros[2] = {false, false}; /* +0, -0 */
    for (int64_t i = 0; i < n; i++) {
        nearest = fmax(nearest, sign * x[i].value);
        least = fmax(least, sign * x[i].value - x[i].bound);
        most = fmax(most, sign * x[i].value + x[i].bound);
        zeros[signbit(x[i].value) != 0] |= x[i].value == 0;
    }
    if (isinf(nearest)) /* most is, too */
        return nearest == least ? exactly(sign * nearest) : undecided;
    reference_value result = {sign * nearest, fmax(most - nearest, nearest - least)};
    if (nearest == 0 && zeros[0] && zeros[1]) /* which zero it is depends on the order */
        result.bound = fmax(result.bound, DBL_TRUE_MIN);
    if (nearest == 0 && !(zeros[0] && zeros[1]))
        result.value = copysign(0, zeros[1] ? -1 : 1);
    return result;
}

/* Sum of exp(x - m), m the greatest, or 0 if that is infinite. A chunk's own
 * greatest, if there are several, costs one more exp and one product. */
static reference_value reduce_sumexp(og_type type, og_order order, const reference_value *x,
                                     int64_t n)
{
    reference_value m = reduce_extreme(1, x, n), terms;
    double shift = isinf(m.value) ? 0 : m.value;
    double u = unit_roundoff(type), ulps = ulps_of(OG_OP_exp, type);
    long double sum = 0, bound = 0;
    if (isinf(m.bound))
        return undecided;
    for (int64_t i = 0; i < n; i++) {
        double d = x[i].value - shift;
        double error = isfinite(d) ? x[i].bound + m.bound + fabs(d) * u : 0;
        double e = exp(d);
        sum += e;
        bound += isfinite(e) ? exp(d + error) - e : 0;
    }
    if (isinf((double)sum))
        return exactly(INFINITY);
    terms.value = (double)sum;
    terms.bound = (double)bound;
    if (n == 0 || (sum == 0 && m.value == -INFINITY))
        return exactly(0);
    terms.bound += (2 * ulps + 1) * (2 * u * (terms.value + terms.bound) +
                                     (double)n * ldexp(1, formats[held_in(type)].least_exponent));
    terms.bound += levels_of(order, n) * 1.0001 * u * (terms.value + terms.bound);
    return settle(terms, 1, held_in(type));
}

/* Sum of (x - m)^2, m the mean. Roundings of sums of a lane, of whose squares the first element may
 * make 33 times as many as there are; and what a chunk's mean and the row's may be wrong by. */
static reference_value reduce_sqdev(og_type type, og_order order, const reference_value *x,
                                    int64_t n)
{
    const double u = unit_roundoff(type), levels = levels_of(order, n);
    long double sum = 0, squares = 0, bound = 0, chunks = 0, mean;
    double most = 0, wrong = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isinf(x[i].value))
            return exactly(NAN);
        sum += x[i].value;
        most = fmax(most, fabs(x[i].value) + x[i].bound);
        wrong = fmax(wrong, x[i].bound);
    }
    mean = sum / (long double)n;
    for (int64_t from = 0; from < n; from += OG_CHUNK) {
        int64_t end = from + OG_CHUNK < n ? from + OG_CHUNK : n;
        long double part = 0;
        for (int64_t i = from; i < end; i++) {
            long double d = x[i].value - mean;
            part += x[i].value;
            squares += d * d;
            bound += 2 * wrong * (2 * fabsl(d) + 2 * wrong);
        }
        chunks += (long double)(end - from) * fabsl(part / (long double)(end - from) - mean);
    }
    if (squares * 34 >= (long double)formats[held_in(type)].overflow ||
        most * (double)n >= formats[held_in(type)].overflow)
        return undecided;
    const double off = (levels + 4) * 1.0001 * u * most; /* of a mean */
    bound +=
        34 * (levels + 8) * 1.0001 * u * squares + 4 * off * chunks + 8 * (double)n * off * off;
    bound += (double)n * ldexp(1, formats[held_in(type)].least_exponent);
    return settle((reference_value){(double)squares, (double)bound}, 1, held_in(type));
}

static reference_value compute_reduction(const og_reduce *reduce, og_order order,
                                         const reference_value *x, int64_t n)
{
    if (find_nan(x, n))
        return exactly(NAN);
    if (find_undecided(x, n))
        return undecided;
    switch (reduce->op) {
    case OG_OP_sum:
        return reduce_sum(reduce->type, order, x, n);
    case OG_OP_amax:
    case OG_OP_row_max:
    case OG_OP_first_amax:
        return reduce_extreme(1, x, n);
    case OG_OP_amin:
        return reduce_extreme(-1, x, n);
    case OG_OP_sqdev:
        return reduce_sqdev(reduce->type, order, x, n);
    default:
        assert(reduce->op == OG_OP_sumexp);
        return reduce_sumexp(reduce->type, order, x, n);
    }
}

/* ---- the plan ------------------------------------------------------------------- */

/* Everything from the lowest to the highest element that a tensor reaches. */
typedef struct {
    reference_value *memory;
    reference_value *first; /* element 0, inside memory */
} reference_buffer;

struct reference {
    const og_plan *plan;
    reference_buffer *buffers;
};

typedef struct {
    const og_kernel *kernel;
    reference_buffer *buffers;
    reference_value *values;
    int64_t index[OG_MAX_RANK]; /* of the space */
} running;

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    assert(memory);
    return memory;
}

static int64_t find_offset(int32_t rank, const int64_t *index, const int64_t *stride)
{
    int64_t offset = 0;
    for (int32_t d = 0; d < rank; d++)
        offset += index[d] * stride[d];
    return offset;
}

static reference_value *find_element(const running *r, const og_access *access)
{
    return r->buffers[access->buffer].first + access->offset +
           find_offset(r->kernel->space.rank, r->index, access->stride);
}

/* The same of a window that cuts its dim, by what plan.h says of parts: of all elements, the one
 * that overlaps the part and whose number is the tap's. */
static int64_t look_at_parts(const running *r, const og_window *window)
{
    int64_t place = window->place >= 0 ? r->index[window->place] : 0;
    int64_t tap = window->tap >= 0 ? r->index[window->tap] : 0;
    int64_t a = window->step >> window->uneven.bits, b = window->divisor >> window->uneven.bits;
    for (int64_t e = 0; e < window->extent; e++) {
        int64_t d = b * e - a * place;
        int64_t number = window->reach > 0 ? d + b - 1 : a - 1 - d; /* back: e is the place */
        if (d > -b && d < a && number / (a < b ? a : b) == tap)
            return e;
    }
    return -1;
}

/* What a window sees of its dim at r->index, or -1. */
static int64_t look(const running *r, const og_window *window)
{
    if (window->uneven.bits)
        return look_at_parts(r, window);
    int64_t p = window->start;
    if (window->place >= 0)
        p += window->step * r->index[window->place];
    if (window->tap >= 0)
        p += window->reach * r->index[window->tap];
    bool sees = p >= 0 && p % window->divisor == 0 && p / window->divisor < window->extent;
    return sees ? p / window->divisor : -1;
}

static reference_value load_element(const running *r, const og_access *access)
{
    int64_t offset = access->offset + find_offset(r->kernel->space.rank, r->index, access->stride);
    if (access->buffer < 0)
        return exactly((double)offset);
    for (int32_t w = 0; w < access->window_count; w++) {
        int64_t seen = look(r, &access->windows[w]);
        if (seen < 0)
            return exactly(access->fill);
        offset += seen * access->windows[w].stride;
    }
    return r->buffers[access->buffer].first[offset];
}

/* Steps index through dims [from, to) of the space, the last fastest; false at the end. */
static bool step(running *r, int32_t from, int32_t to)
{
    for (int32_t d = to - 1; d >= from; d--) {
        if (++r->index[d] < r->kernel->space.extent[d])
            return true;
        r->index[d] = 0;
    }
    return false;
}

/* Roundings that a term goes through at most: ORDER of og_product. */
static double product_levels(og_type type, int64_t k)
{
    if (type == OG_F64 || k <= OG_PRODUCT_BLOCK)
        return (double)k;
    int64_t blocks = (k - 1) / OG_PRODUCT_BLOCK, groups = (k - 1) / OG_PRODUCT_GROUP;
    int64_t most = OG_PRODUCT_GROUP / OG_PRODUCT_BLOCK;
    return (double)(OG_PRODUCT_BLOCK + (blocks < most ? blocks : most) + groups);
}

/* Where a factor's first term at r->index is: left has no n, right no m. */
static const reference_value *find_factor(const running *r, og_factor factor)
{
    const og_matrices *s = &r->kernel->matrices;
    int32_t first = s->batch_rank + (factor.is_right ? 0 : s->m_rank);
    int32_t count = factor.is_right ? s->m_rank : s->n_rank;
    running at = *r;
    memset(at.index + first, 0, (size_t)count * sizeof *at.index);
    return find_element(&at, factor.access);
}

/* Where term k of a convolution finds a factor's element, whose first one is at from; NULL: its
 * windows do not see it. */
static const reference_value *find_term(const running *r, const og_factor *factor, int64_t k,
                                        const reference_value *from)
{
    const og_k_dims *dims = &r->kernel->products[factor->product].k_dims;
    int64_t at[OG_MAX_K];
    for (int32_t d = dims->rank - 1; d >= 0; d--) {
        at[d] = k % dims->extent[d];
        k /= dims->extent[d];
        from += at[d] * dims->stride[factor->is_right][d];
    }
    for (int32_t w = 0; w < factor->access->window_count; w++) {
        const og_window *window = &factor->access->windows[w];
        int64_t p = window->start;
        if (window->place >= 0)
            p += window->step * r->index[window->place];
        if (window->tap >= 0)
            p += window->reach * at[window->tap];
        if (p < 0 || p >= window->extent)
            return NULL;
        from += p * window->stride;
    }
    return from;
}

/* Terms are exact, as those of fused multiply-adds are, or nearly so (float64). */
static reference_value compute_product(const running *r, int32_t index)
{
    const og_product *product = &r->kernel->products[index];
    const og_factor factors[] = {og_factor_of(r->kernel, index, false),
                                 og_factor_of(r->kernel, index, true)};
    const reference_value *left = find_factor(r, factors[0]);
    const reference_value *right = find_factor(r, factors[1]);
    og_type type = product->dtype == OG_FLOAT64 ? OG_F64 : OG_F32;
    const format *f = &formats[held_in(type)];
    const double no_constants[OG_MAX_NUMBERS] = {0};
    long double sum = 0, size = 0, bound = 0;
    double infinite = 0; /* +-infinity, or NaN, once there is one */
    bool is_nan = false, is_undecided = false;
    for (int64_t k = 0; k < product->k; k++) {
        reference_value pair[2];
        if (og_kernel_convolves(r->kernel)) {
            const reference_value *one = find_term(r, &factors[0], k, left);
            const reference_value *two = find_term(r, &factors[1], k, right);
            pair[0] = one ? *one : exactly(0);
            pair[1] = two ? *two : exactly(0);
        } else {
            pair[0] = left[k * product->left_k_stride];
            pair[1] = right[k * product->right_k_stride];
        }
        reference_value term = compute_scalar(OG_OP_mul, OG_F64, pair, no_constants);
        is_nan |= isnan(term.value);
        is_undecided |= isinf(term.bound);
        if (isinf(term.value)) {
            infinite += term.value;
            continue;
        }
        sum += term.value;
        size += fabs(term.value) + term.bound;
        bound += term.bound;
    }
    if (is_nan || isnan(infinite))
        return exactly(NAN);
    if (is_undecided || size >= (long double)f->overflow) /* on the way, perhaps */
        return undecided;
    if (infinite != 0)
        return exactly(infinite);
    if (size == 0)
        return exactly(0); /* the sum begins with +0 */
    bound += product_levels(type, product->k) *
             (1.0001 * unit_roundoff(type) * size + ldexp(1, f->least_exponent));
    return settle((reference_value){(double)sum, (double)bound}, 0, held_in(type));
}

static void run_instr(running *r, const og_instr *instr)
{
    const og_kernel *kernel = r->kernel;
    reference_value args[OG_MAX_ARGS] = {{0, 0}};
    for (int a = 0; a < OG_MAX_ARGS && instr->args[a] >= 0; a++)
        args[a] = r->values[instr->args[a]];
    reference_value result;
    switch ((int)instr->op) {
    case OG_OP_LOAD:
        result = load_element(r, &kernel->accesses[instr->index]);
        break;
    case OG_OP_STORE:
        *find_element(r, &kernel->accesses[instr->index]) =
            kernel->accesses[instr->index].dtype == held_in(instr->type)
                ? args[0]
                : round_to(args[0], kernel->accesses[instr->index].dtype);
        return;
    case OG_OP_CONSTANT:
        result = round_to(exactly(kernel->constants[instr->index]), held_in(instr->type));
        break;
    case OG_OP_CONVERT: {
        /* Within a register type there is nothing to round but to a half. */
        og_dtype from = held_in(kernel->values[instr->args[0]].type);
        og_dtype to = (og_dtype)instr->index;
        result = to == from || to == OG_FLOAT64 ? args[0] : round_to(args[0], to);
        break;
    }
    case OG_OP_PRODUCT:
        result = compute_product(r, instr->index);
        break;
    case OG_OP_where:
        result = compute_where(args[0], args[1], args[2]);
        break;
    default:
        if (og_function_of(instr->op)->kind == OG_MASKING)
            result = compute_mask(instr->op, args[0], args[1]);
        else
            result = compute_scalar(instr->op, instr->type, args,
                                    instr->index < 0 ? NULL : kernel->constants + instr->index);
    }
    r->values[instr->dst] = result;
}

/* One pass over the row at r->index; sources has room for every reduction's row. */
static void run_pass(running *r, const og_pass *pass, reference_value *sources, int64_t n)
{
    const og_space *space = &r->kernel->space;
    int32_t kept = space->rank - space->n_reduced;
    for (int64_t e = 0; e < n; e++) {
        for (int32_t i = 0; i < pass->element_count; i++)
            run_instr(r, &pass->elements[i]);
        for (int32_t i = 0; i < pass->reduction_count; i++)
            sources[i * n + e] = r->values[pass->reductions[i].source];
        step(r, kept, space->rank);
    }
    for (int32_t i = 0; i < pass->reduction_count; i++)
        r->values[pass->reductions[i].dst] =
            compute_reduction(&pass->reductions[i], r->kernel->order, sources + i * n, n);
    for (int32_t i = 0; i < pass->row_count; i++)
        run_instr(r, &pass->rows[i]);
}

static void run_kernel(const og_kernel *kernel, reference_buffer *buffers)
{
    const og_space *space = &kernel->space;
    int32_t kept = space->rank - space->n_reduced, most = 0;
    int64_t rows = 1, n = 1;
    for (int32_t d = 0; d < space->rank; d++)
        *(d < kept ? &rows : &n) *= space->extent[d];
    for (int32_t p = 0; p < kernel->pass_count; p++)
        most = kernel->passes[p].reduction_count > most ? kernel->passes[p].reduction_count : most;
    running r = {.kernel = kernel, .buffers = buffers};
    r.values = allocate((size_t)kernel->value_count, sizeof *r.values);
    reference_value *sources = allocate((size_t)most * (size_t)n, sizeof *sources);
    for (int64_t row = 0; row < rows; row++) {
        for (int32_t p = 0; p < kernel->pass_count; p++)
            run_pass(&r, &kernel->passes[p], sources, n);
        step(&r, 0, kept);
    }
    free(sources);
    free(r.values);
}

static void make_buffer(const og_buffer *of, const void *input, reference_buffer *buffer)
{
    int64_t low = 0, high = 0, count = 1;
    for (int32_t d = 0; d < of->rank; d++) {
        int64_t span = (of->shape[d] - 1) * of->stride[d];
        *(span < 0 ? &low : &high) += span;
        count *= of->shape[d];
    }
    if (count == 0)
        low = high = 0;
    buffer->memory = allocate((size_t)(high - low + 1), sizeof *buffer->memory);
    buffer->first = buffer->memory - low;
    int64_t index[OG_MAX_RANK] = {0};
    for (int64_t i = 0; input && i < count; i++) {
        int64_t offset = find_offset(of->rank, index, of->stride);
        buffer->first[offset] = exactly(reference_load(input, of->dtype, offset));
        for (int32_t d = of->rank - 1; d >= 0 && ++index[d] == of->shape[d]; d--)
            index[d] = 0;
    }
}

reference *reference_run(const og_plan *plan, const void *const *inputs)
{
    reference *r = allocate(1, sizeof *r);
    r->plan = plan;
    r->buffers = allocate((size_t)plan->buffer_count, sizeof *r->buffers);
    for (int32_t b = 0; b < plan->buffer_count; b++)
        make_buffer(&plan->buffers[b], b < plan->input_count ? inputs[b] : NULL, &r->buffers[b]);
    for (int32_t k = 0; k < plan->kernel_count; k++)
        run_kernel(&plan->kernels[k], r->buffers);
    return r;
}

void reference_free(reference *r)
{
    for (int32_t b = 0; b < r->plan->buffer_count; b++)
        free(r->buffers[b].memory);
    free(r->buffers);
    free(r);
}

reference_value reference_result(const reference *r, int32_t result, const int64_t *index)
{
    int32_t buffer = r->plan->input_count + result;
    const og_buffer *of = &r->plan->buffers[buffer];
    return r->buffers[buffer].first[find_offset(of->rank, index, of->stride)];
}

reference_verdict reference_check(reference_value want, double got)
{
    bool right;
    if (isinf(want.bound))
        return REFERENCE_UNDECIDED;
    if (isnan(want.value))
        right = isnan(got);
    else if (isinf(want.value))
        right = got == want.value;
    else /* 1.001: second-order terms */
        right = fabs(got - want.value) <= 1.001 * want.bound;
    return right ? REFERENCE_RIGHT : REFERENCE_WRONG;
}
