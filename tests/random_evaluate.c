/* SPDX-License-Identifier: MIT
 *
 * random_evaluate.c - the values of a random formula, node by node; see
 * random_formula.h.
 */
#include "random_formula.h"

#include "reference.h"

#include <assert.h>
#include <float.h>

static og_dtype computed_in(const formula_node *node)
{
    return node->dtype == OG_FLOAT64 ? OG_FLOAT64 : OG_FLOAT32;
}

/* Where element (index of node) of an argument lies, dims aligned at the end. */
static int64_t find_broadcast(const formula_node *node, const int64_t *index,
                              const formula_node *arg)
{
    int64_t at = 0;
    for (int d = 0; d < arg->rank; d++)
        at = at * arg->shape[d] + (arg->shape[d] == 1 ? 0 : index[d + node->rank - arg->rank]);
    return at;
}

/* An argument as a node of dtype takes it. */
static double take(const random_formula *f, const formula_node *node, int a, const int64_t *index,
                   og_dtype dtype)
{
    const formula_node *arg = &f->nodes[node->args[a]];
    return reference_round(arg->values[find_broadcast(node, index, arg)], dtype);
}

static double evaluate_scalar(const formula_node *node, double a, double b)
{
    og_dtype type = computed_in(node);
    double constants[2];
    for (int c = 0; c < 2; c++)
        constants[c] = reference_round(node->numbers[c], type);
#define OF(op, x, y) reference_round(og_function_value(op, (double[]){x, y}, constants), type)
    double low = constants[0], high = constants[1];
    switch ((int)node->op) {
    case OG_OP_pow: /* by the steps that PyTorch takes */
        return low == 1      ? a
               : low == 2    ? OF(OG_OP_mul, a, a)
               : low == 3    ? OF(OG_OP_mul, OF(OG_OP_mul, a, a), a)
               : low == 0.5  ? OF(OG_OP_sqrt, a, 0)
               : low == -0.5 ? OF(OG_OP_rsqrt, a, 0)
               : low == -1   ? OF(OG_OP_div, 1, a)
               : low == -2   ? OF(OG_OP_div, 1, OF(OG_OP_mul, a, a))
                             : OF(OG_OP_pow, a, 0);
    case OG_OP_relu6:
        return a < 0 ? 0 : a > 6 ? 6 : a;
    case OG_OP_hardtanh:
        return a < low ? low : a > high ? high : a;
    case OG_OP_hardswish: {
        double gate = OF(OG_OP_add, a, 3);
        gate = gate < 0 ? 0 : gate > 6 ? 6 : gate;
        return OF(OG_OP_div, OF(OG_OP_mul, a, gate), 6);
    }
    case OG_OP_softsign:
        return OF(OG_OP_div, a, OF(OG_OP_add, 1, fabs(a)));
    default:
        assert(node->kind == NODE_SCALAR);
        return OF(node->op, a, b);
    }
#undef OF
}

static bool compare(og_op op, double a, double b)
{
    return op == OG_OP_lt   ? a < b
           : op == OG_OP_le ? a <= b
           : op == OG_OP_gt ? a > b
           : op == OG_OP_ge ? a >= b
           : op == OG_OP_eq ? a == b
                            : a != b;
}

/* The elements [*first, *end) of a dim of extent elements, every *step-th, that window number `at` of
 * a pooling sees. */
static void find_seen(const formula_node *node, int i, int64_t at, int64_t extent, int64_t *first,
                      int64_t *end, int64_t *step)
{
    int64_t places = node->shape[node->rank - node->slides + i];
    *step = node->dilation[i];
    if (formula_is_adaptive(node)) {
        *first = at * extent / places;
        *end = ((at + 1) * extent + places - 1) / places;
        *step = 1;
        return;
    }
    *first = at * node->stride[i] - node->padding[i];
    *end = *first + (node->size[i] - 1) * *step + 1;
    while (*first < 0)
        *first += *step;
    *end = *end < extent ? *end : extent;
}

static double evaluate_pool(const random_formula *f, const formula_node *node, const int64_t *index)
{
    const formula_node *arg = &f->nodes[node->args[0]];
    og_dtype type = computed_in(node);
    int64_t first[2] = {0, 0}, end[2] = {1, 1}, step[2] = {1, 1}, at[8], count = 1;
    int dim = node->rank - node->slides;
    for (int i = 0; i < node->slides; i++) {
        find_seen(node, i, index[dim + i], arg->shape[dim + i], &first[i], &end[i], &step[i]);
        count *= formula_is_adaptive(node) ? end[i] - first[i] : node->size[i];
    }
    double most = -INFINITY;
    bool nan = false;
    long double sum = -0.0L;
    memcpy(at, index, sizeof at);
    for (int64_t a = first[0]; a < end[0]; a += step[0])
        for (int64_t b = first[1]; b < end[1]; b += step[1]) {
            at[dim] = a;
            if (node->slides > 1)
                at[dim + 1] = b;
            double x = arg->values[find_broadcast(arg, at, arg)];
            nan |= isnan(x);
            most = fmax(most, x);
            sum += x;
        }
    if (formula_takes_most(node))
        return nan ? NAN : most;
    return reference_round(reference_round((double)sum, type) / (double)count, type);
}

/* Which place of the input tap `tap` of a convolution sees from place `at`; hole: none at all. */
static int64_t find_place(const formula_node *node, int i, int64_t at, int64_t tap, bool *hole)
{
    if (!formula_is_transposed(node))
        return at * node->stride[i] - node->padding[i] + tap * node->dilation[i];
    int64_t p = at + node->padding[i] - tap * node->dilation[i], stride = node->stride[i];
    *hole |= ((p % stride) + stride) % stride != 0;
    return p < 0 ? -1 : p / stride;
}

/* A sum over channels of a group and over taps: what lies outside is 0, and multiplied. */
static double evaluate_convolution(const random_formula *f, const formula_node *node,
                                   const int64_t *index)
{
    const formula_node *arg = &f->nodes[node->args[0]], *w = &f->nodes[node->args[1]];
    int dim = node->rank - node->slides;
    bool transposed = formula_is_transposed(node);
    int64_t channels = arg->shape[dim - 1] / node->groups;
    int64_t group = index[dim - 1] / (node->shape[dim - 1] / node->groups);
    int64_t filter = index[dim - 1] % (node->shape[dim - 1] / node->groups);
    int64_t taps[2] = {node->size[0], node->slides > 1 ? node->size[1] : 1};
    long double sum = 0;
    for (int64_t c = 0; c < channels; c++)
        for (int64_t t = 0; t < taps[0] * taps[1]; t++) {
            int64_t at[8], tap[2] = {t / taps[1], t % taps[1]};
            bool hole = false, outside = false;
            memcpy(at, index, sizeof at);
            at[dim - 1] = group * channels + c;
            for (int i = 0; i < node->slides; i++) {
                at[dim + i] = find_place(node, i, index[dim + i], tap[i], &hole);
                outside |= at[dim + i] < 0 || at[dim + i] >= arg->shape[dim + i];
            }
            int64_t of[4] = {transposed ? at[dim - 1] : index[dim - 1], transposed ? filter : c,
                             tap[0], tap[1]};
            double x = outside ? 0 : arg->values[find_broadcast(arg, at, arg)];
            if (!hole)
                sum += (long double)x * w->values[find_broadcast(w, of, w)];
        }
    return reference_round((double)sum, computed_in(node));
}

static double evaluate_part(const random_formula *f, const formula_node *node, const int64_t *index)
{
    const formula_node *arg = &f->nodes[node->args[0]];
    int64_t at[8];
    memcpy(at, index, sizeof at);
    int d = node->swap[0];
    at[d] = node->op == OG_OP_narrow ? index[d] + (int64_t)node->numbers[0]
                                     : index[d] * (int64_t)node->numbers[1] + index[node->rank - 1];
    return arg->values[find_broadcast(arg, at, arg)];
}

static double evaluate_element(const random_formula *f, const formula_node *node,
                               const int64_t *index)
{
    og_dtype type = computed_in(node);
    switch (node->kind) {
    case NODE_NUMBER:
        return node->numbers[0];
    case NODE_WHERE: {
        formula_node compared = *node;
        compared.args[2] = compared.args[3] = -1;
        og_dtype at = formula_promote(f, &compared, 0);
        at = at == OG_FLOAT64 ? OG_FLOAT64 : OG_FLOAT32;
        bool mask = compare(node->op, take(f, node, 0, index, at), take(f, node, 1, index, at));
        return take(f, node, mask ? 2 : 3, index, type);
    }
    case NODE_TRANSPOSE: {
        int64_t swapped[8];
        memcpy(swapped, index, sizeof swapped);
        swapped[node->swap[0]] = index[node->swap[1]];
        swapped[node->swap[1]] = index[node->swap[0]];
        const formula_node *arg = &f->nodes[node->args[0]];
        return arg->values[find_broadcast(arg, swapped, arg)];
    }
    case NODE_PART:
        return evaluate_part(f, node, index);
    case NODE_POOL:
        return evaluate_pool(f, node, index);
    case NODE_CONVOLVE:
        return evaluate_convolution(f, node, index);
    case NODE_CAST:
        return take(f, node, 0, index, node->dtype);
    default:
        return evaluate_scalar(node, take(f, node, 0, index, type),
                               node->args[1] < 0 ? 0 : take(f, node, 1, index, type));
    }
}

/* What the functions over rows make of a row: its sum, spread and so on. */
typedef struct {
    double most, least, sum, mean, sumexp;
    long double squares, mean_square; /* squares: of x - mean; neither is rounded */
} row_summary;

static row_summary summarise(const double *x, int64_t n, og_dtype type)
{
    row_summary s = {.most = -INFINITY, .least = INFINITY};
    long double sum = n ? -0.0L : 0, squares = 0, exps = 0, own_squares = 0; /* -0 + -0 is -0 */
    bool nan = false;
    for (int64_t i = 0; i < n; i++) {
        s.most = fmax(s.most, x[i]);
        s.least = fmin(s.least, x[i]);
        nan |= isnan(x[i]);
        sum += x[i];
        own_squares += (long double)x[i] * x[i];
    }
    s.most = nan ? NAN : s.most;
    s.least = nan ? NAN : s.least;
    s.sum = reference_round((double)sum, type);
    s.mean = reference_round(s.sum / (double)n, type);
    for (int64_t i = 0; i < n; i++) {
        double d = reference_round(x[i] - s.mean, type);
        squares += (long double)d * d;
        exps += reference_round(exp(x[i] - (isinf(s.most) ? 0 : s.most)), type);
    }
    s.squares = squares;
    s.sumexp = reference_round((double)exps, type);
    s.mean_square = own_squares / (long double)n;
    return s;
}

static double finish_reduction(const formula_node *node, const row_summary *s, int64_t n)
{
    og_dtype type = computed_in(node);
    double correction = node->numbers[0] < 0 ? 1 : node->numbers[0];
    long double variance = s->squares / fmaxl((long double)n - correction, 0);
    switch ((int)node->op) {
    case OG_OP_sum:
        return s->sum;
    case OG_OP_mean:
        return s->mean;
    case OG_OP_amax:
        return s->most;
    case OG_OP_amin:
        return s->least;
    case OG_OP_var:
        return reference_round((double)variance, type);
    case OG_OP_std:
        return reference_round((double)sqrtl(variance), type);
    default:
        assert(node->op == OG_OP_logsumexp);
        return reference_round(
            reference_round(log(s->sumexp), type) + (isinf(s->most) ? 0 : s->most), type);
    }
}

static double finish_normalisation(const random_formula *f, const formula_node *node,
                                   const int64_t *index, const row_summary *s)
{
    og_dtype type = computed_in(node);
    double x = take(f, node, 0, index, type);
    double weight = node->args[1] < 0 ? 1 : take(f, node, 1, index, type);
    double bias = node->args[2] < 0 ? 0 : take(f, node, 2, index, type);
    double eps = reference_round(node->numbers[0] >= 0          ? node->numbers[0]
                                 : node->op == OG_OP_layer_norm ? 1e-5
                                 : node->dtype == OG_FLOAT64    ? DBL_EPSILON
                                                                : FLT_EPSILON,
                                 type);
    double below_most = reference_round(x - s->most, type);
    double infinite = s->most - s->most; /* NaN, if it is */
#define ROUND(value) reference_round(value, type)
    switch ((int)node->op) {
    case OG_OP_softmax:
        return ROUND(ROUND(exp(below_most)) / (s->sumexp + infinite));
    case OG_OP_log_softmax:
        return ROUND(below_most - ROUND(log(s->sumexp + infinite)));
    case OG_OP_layer_norm: {
        double scale = ROUND((double)(1 / sqrtl(s->squares + eps)));
        return ROUND(ROUND(ROUND(ROUND(x - s->mean) * scale) * weight) + bias);
    }
    default:
        assert(node->op == OG_OP_rms_norm);
        return ROUND(ROUND(x * ROUND((double)(1 / sqrtl(s->mean_square + eps)))) * weight);
    }
#undef ROUND
}

static bool step_index(const formula_node *node, int64_t *index)
{
    for (int d = node->rank - 1; d >= 0; d--) {
        if (++index[d] < node->shape[d])
            return true;
        index[d] = 0;
    }
    return false;
}

/* REDUCE and NORMALISE: gathers every row of the argument, summarises it, and
 * writes one element, or the row's. */
static void evaluate_rows(const random_formula *f, formula_node *node)
{
    const formula_node *arg = &f->nodes[node->args[0]];
    formula_node rows = *arg, row = *arg; /* the kept dims, and the reduced ones */
    for (int d = 0; d < arg->rank; d++)
        *(node->dims >> d & 1 ? &rows.shape[d] : &row.shape[d]) = 1;
    formula_set_count(&rows);
    formula_set_count(&row);
    double *x = malloc((size_t)(row.count ? row.count : 1) * sizeof *x);
    int64_t kept[8] = {0}, written = 0;
    for (int64_t r = 0; r < rows.count; r++, step_index(&rows, kept)) {
        int64_t inside[8] = {0}, index[8];
        for (int64_t i = 0; i < row.count; i++, step_index(&row, inside)) {
            for (int d = 0; d < 8; d++)
                index[d] = kept[d] + inside[d];
            x[i] = arg->values[find_broadcast(arg, index, arg)];
        }
        row_summary summary = summarise(x, row.count, computed_in(node));
        if (node->kind == NODE_REDUCE) {
            node->values[written++] = finish_reduction(node, &summary, row.count);
            continue;
        }
        summary.squares /= (long double)row.count;
        memset(inside, 0, sizeof inside);
        for (int64_t i = 0; i < row.count; i++, step_index(&row, inside)) {
            for (int d = 0; d < 8; d++)
                index[d] = kept[d] + inside[d];
            node->values[find_broadcast(node, index, node)] =
                finish_normalisation(f, node, index, &summary);
        }
    }
    free(x);
}

/* Sums over k of left times right, of element number i of node. */
static double evaluate_product(const random_formula *f, const formula_node *node, int64_t i)
{
    const formula_node *left = &f->nodes[node->args[0]], *right = &f->nodes[node->args[1]];
    og_dtype type = computed_in(node);
    int64_t k = left->shape[left->rank - 1], step = 1, at[2] = {0, 0};
    bool linear = node->op == OG_OP_linear, has_m = left->rank > 1, has_n = right->rank > 1;
    int64_t column = has_n ? i % node->shape[node->rank - 1] : 0;
    int64_t row = has_n ? i / node->shape[node->rank - 1] : i;
    if (linear) {
        at[0] = row * k;
        at[1] = column * k;
    } else { /* left (batch.., m, k), right (batch.., k, n) */
        int64_t m = has_m ? node->shape[node->rank - 1 - has_n] : 1, batch = row / m;
        int64_t inside[2] = {row % m * k, column}, size[2] = {has_m ? m * k : k, k};
        step = has_n ? right->shape[right->rank - 1] : 1;
        size[1] *= step;
        for (int d = node->rank - 1 - has_m - has_n; d >= 0; d--) {
            int64_t index = batch % node->shape[d];
            batch /= node->shape[d];
            for (int side = 0; side < 2; side++) {
                const formula_node *of = side ? right : left;
                int own = d - (node->rank - has_m - has_n) + of->rank - 2;
                if (own < 0)
                    continue;
                at[side] += of->shape[own] == 1 ? 0 : index * size[side];
                size[side] *= of->shape[own];
            }
        }
        at[0] += inside[0];
        at[1] += inside[1];
    }
    long double sum = 0;
    for (int64_t j = 0; j < k; j++)
        sum += (long double)left->values[at[0] + j] * right->values[at[1] + j * step];
    double bias = node->args[2] < 0 ? -0.0 : f->nodes[node->args[2]].values[column];
    return reference_round(reference_round((double)sum, type) + bias, type);
}

void formula_evaluate(random_formula *f)
{
    for (int n = f->input_count; n < f->node_count; n++) {
        formula_node *node = &f->nodes[n];
        if (!node->uses)
            continue;
        node->values = calloc(node->count ? (size_t)node->count : 1, sizeof *node->values);
        assert_non_null(node->values);
        if (node->kind == NODE_REDUCE || node->kind == NODE_NORMALISE) {
            evaluate_rows(f, node);
            continue;
        }
        int64_t index[8] = {0};
        for (int64_t i = 0; i < node->count; i++, step_index(node, index))
            node->values[i] = node->kind == NODE_PRODUCT ? evaluate_product(f, node, i)
                                                         : evaluate_element(f, node, index);
    }
}
