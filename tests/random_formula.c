/* SPDX-License-Identifier: MIT
 *
 * random_formula.c - see random_formula.h: grows and prints formulas.
 */
#include "function_call.h"
#include "random_formula.h"

const char *const formula_input_names[FORMULA_INPUTS] = {"x", "y", "fc.weight", "layers.0.bias"};

/* ---- shapes and dtypes ------------------------------------------------------- */

static int64_t below(test_random *random, int64_t n)
{
    return test_random_below(random, n);
}

static bool chance(test_random *random, int percent)
{
    return below(random, 100) < percent;
}

void formula_set_count(formula_node *node)
{
    node->count = 1;
    for (int d = 0; d < node->rank; d++)
        node->count *= node->shape[d];
}

/* Makes node's shape the one that it and other broadcast to. */
static bool broadcast(formula_node *node, const formula_node *other)
{
    int rank = node->rank > other->rank ? node->rank : other->rank;
    int64_t shape[8] = {0};
    for (int d = 1; d <= rank; d++) {
        int64_t a = d <= node->rank ? node->shape[node->rank - d] : 1;
        int64_t b = d <= other->rank ? other->shape[other->rank - d] : 1;
        if (a != b && a != 1 && b != 1)
            return false;
        shape[rank - d] = a == 1 ? b : a;
    }
    node->rank = rank;
    memcpy(node->shape, shape, sizeof shape);
    formula_set_count(node);
    return true;
}

static og_dtype promote(og_dtype a, og_dtype b)
{
    if (a == b)
        return a;
    if (a == OG_FLOAT64 || b == OG_FLOAT64)
        return OG_FLOAT64;
    return OG_FLOAT32; /* float16 and bfloat16 meet there, too */
}

og_dtype formula_promote(const random_formula *f, const formula_node *node, int first)
{
    og_dtype found[2] = {OG_DTYPE_COUNT, OG_DTYPE_COUNT}; /* 0-d, with dims */
    for (int a = first; a < 4; a++) {
        const formula_node *arg = node->args[a] < 0 ? NULL : &f->nodes[node->args[a]];
        if (!arg || arg->kind == NODE_NUMBER)
            continue;
        og_dtype *to = &found[arg->rank > 0];
        *to = *to == OG_DTYPE_COUNT ? arg->dtype : promote(*to, arg->dtype);
    }
    return found[1] != OG_DTYPE_COUNT ? found[1] : found[0];
}

/* ---- growing ------------------------------------------------------------------- */

static const double positive_numbers[] = {0.1, 0.25, 0.5, 1, 1.5, 2, 3};
static const double exponents[] = {2, 3, 0.5, -1, -0.5, -2, 1.5, 2.5, 0, 1, 4, -3};

static double pick_number(test_random *random)
{
    double number = positive_numbers[below(random, (int64_t)TEST_COUNT(positive_numbers))];
    return chance(random, 30) ? -number : number;
}

/* A tensor, rather a late one and one that nobody uses yet. */
static int pick_tensor(test_random *random, const random_formula *f)
{
    for (int tries = 0;; tries++) {
        int back = (int)below(random, f->node_count);
        if (chance(random, 50))
            back = (int)below(random, back + 1);
        const formula_node *node = &f->nodes[f->node_count - 1 - back];
        if (node->kind != NODE_NUMBER && (tries > 6 || !node->uses))
            return f->node_count - 1 - back;
    }
}

static formula_node new_node(node_kind kind, og_op op)
{
    return (formula_node){.kind = kind, .op = op, .args = {-1, -1, -1, -1}, .numbers = {-1, -1}};
}

/* node over the shape of tensor. */
static void take_shape(const random_formula *f, formula_node *node, int tensor)
{
    const formula_node *arg = &f->nodes[tensor];
    node->args[0] = tensor;
    node->rank = arg->rank;
    node->dtype = arg->dtype;
    memcpy(node->shape, arg->shape, sizeof arg->shape);
    formula_set_count(node);
}

static int add_node(random_formula *f, const formula_node *node)
{
    for (int a = 0; a < 4; a++)
        if (node->args[a] >= 0)
            f->nodes[node->args[a]].uses++;
    f->nodes[f->node_count] = *node;
    return f->node_count++;
}

static int add_number(test_random *random, random_formula *f)
{
    formula_node node = new_node(NODE_NUMBER, OG_OP_NUMBER);
    node.numbers[0] = pick_number(random);
    node.count = 1;
    return add_node(f, &node);
}

static bool grow_unary(test_random *random, random_formula *f, formula_node *node)
{
    og_op op;
    const og_function *function;
    do {
        op = (og_op)below(random, OG_FUNCTION_COUNT);
        function = og_function_of(op);
    } while (!(function->kind == OG_SCALAR && function->args == 1 && op != OG_OP_square_scale) &&
             !(function->kind == OG_COMPOSITE && function->group &&
               !strcmp(function->group, "activation") && op != OG_OP_prelu));
    *node = new_node(function->kind == OG_SCALAR ? NODE_SCALAR : NODE_ACTIVATION, op);
    take_shape(f, node, pick_tensor(random, f));
    node->numbers[0] = positive_numbers[below(random, (int64_t)TEST_COUNT(positive_numbers))];
    node->numbers[1] = node->numbers[0] + below(random, 3); /* bounds must not cross */
    if (op == OG_OP_pow)
        node->numbers[0] = exponents[below(random, (int64_t)TEST_COUNT(exponents))];
    if ((op == OG_OP_clamp || op == OG_OP_hardtanh) && chance(random, 50))
        node->numbers[0] = -node->numbers[0];
    /* Where half of the line gives NaN, mostly stay on the other half. */
    bool half =
        function->kind == OG_SCALAR && (op == OG_OP_pow || is_for_positive(op, node->numbers));
    if (half && chance(random, 80)) {
        formula_node positive = new_node(NODE_SCALAR, OG_OP_abs);
        take_shape(f, &positive, node->args[0]);
        node->args[0] = add_node(f, &positive);
    }
    return true;
}

static bool grow_binary(test_random *random, random_formula *f, formula_node *node)
{
    og_op op = chance(random, 50) ? OG_OP_add : OG_OP_mul;
    if (chance(random, 75)) /* else any of them */
        do
            op = (og_op)below(random, OG_FUNCTION_COUNT);
        while (og_function_of(op)->kind != OG_SCALAR || og_function_of(op)->args != 2 ||
               !(og_function_of(op)->group || op == OG_OP_power));
    *node = new_node(NODE_SCALAR, op);
    take_shape(f, node, pick_tensor(random, f));
    bool has_number = op != OG_OP_power && chance(random, 25); /* a number is pow's exponent */
    node->args[1] = has_number ? add_number(random, f) : pick_tensor(random, f);
    if (!broadcast(node, &f->nodes[node->args[1]]))
        return false;
    if (op == OG_OP_power && chance(random, 80)) { /* of negative numbers mostly NaN */
        formula_node positive = new_node(NODE_SCALAR, OG_OP_abs);
        take_shape(f, &positive, node->args[0]);
        node->args[0] = add_node(f, &positive);
    } else if (op != OG_OP_power && chance(random, 30)) {
        int first = node->args[0];
        node->args[0] = node->args[1];
        node->args[1] = first;
    }
    node->dtype = formula_promote(f, node, 0);
    return true;
}

static bool grow_where(test_random *random, random_formula *f, formula_node *node)
{
    *node = new_node(NODE_WHERE, (og_op)(OG_OP_lt + below(random, 6)));
    take_shape(f, node, pick_tensor(random, f));
    for (int a = 1; a < 4; a++) {
        node->args[a] =
            chance(random, 30) && a != 3 ? add_number(random, f) : pick_tensor(random, f);
        if (!broadcast(node, &f->nodes[node->args[a]]))
            return false;
    }
    node->dtype = formula_promote(f, node, 2);
    return true;
}

static bool grow_reduction(test_random *random, random_formula *f, formula_node *node)
{
    static const og_op ops[] = {OG_OP_sum,  OG_OP_sum, OG_OP_mean, OG_OP_amax,
                                OG_OP_amin, OG_OP_var, OG_OP_std,  OG_OP_logsumexp};
    *node = new_node(NODE_REDUCE, ops[below(random, (int64_t)TEST_COUNT(ops))]);
    take_shape(f, node, pick_tensor(random, f));
    const formula_node *arg = &f->nodes[node->args[0]];
    node->dims = (uint32_t)below(random, 1 << arg->rank);
    if (chance(random, 50) && arg->rank)
        node->dims = 1u << below(random, arg->rank);
    node->all = node->op != OG_OP_logsumexp && (!node->dims || chance(random, 10));
    if (node->all)
        node->dims = (1u << arg->rank) - 1;
    node->keepdim = chance(random, 70);
    node->numbers[0] = (double)below(random, 3) - 1; /* -1: not given */
    int64_t row = 1;
    int rank = 0;
    for (int d = 0; d < arg->rank; d++) {
        bool reduced = node->dims >> d & 1;
        row *= reduced ? arg->shape[d] : 1;
        if (!reduced || node->keepdim)
            node->shape[rank++] = reduced ? 1 : arg->shape[d];
    }
    node->rank = rank;
    formula_set_count(node);
    if (node->op == OG_OP_logsumexp && !node->dims)
        return false;
    f->reduces = true;
    return row > 0 || (node->op != OG_OP_amax && node->op != OG_OP_amin);
}

/* A node of exactly these dims and dtype, for a weight; or -1. */
static int find_weight(test_random *random, const random_formula *f, const formula_node *node,
                       int rank)
{
    for (int tries = 0; tries < 12; tries++) {
        int at = pick_tensor(random, f);
        const formula_node *other = &f->nodes[at];
        if (other->rank == rank && other->dtype == node->dtype &&
            memcmp(other->shape, node->shape + node->rank - rank,
                   (size_t)rank * sizeof *node->shape) == 0)
            return at;
    }
    return -1;
}

static bool grow_normalisation(test_random *random, random_formula *f, formula_node *node)
{
    static const og_op ops[] = {OG_OP_softmax, OG_OP_log_softmax, OG_OP_layer_norm, OG_OP_rms_norm};
    *node = new_node(NODE_NORMALISE, ops[below(random, (int64_t)TEST_COUNT(ops))]);
    take_shape(f, node, pick_tensor(random, f));
    if (node->rank == 0)
        return false;
    f->reduces = true;
    if (node->op == OG_OP_softmax || node->op == OG_OP_log_softmax) {
        node->dims = 1u << below(random, node->rank);
        return true;
    }
    int last = 1 + (int)below(random, node->rank);
    node->dims = ((1u << last) - 1) << (node->rank - last);
    node->args[1] = chance(random, 60) ? find_weight(random, f, node, last) : -1;
    if (node->op == OG_OP_layer_norm && node->args[1] >= 0)
        node->args[2] = chance(random, 60) ? find_weight(random, f, node, last) : -1;
    if (chance(random, 50))
        node->numbers[0] = chance(random, 50) ? 1e-3 : 0.25;
    return true;
}

/* A tensor of node's dtype whose last dim is that of node's argument; or -1. */
static int find_factor(test_random *random, const random_formula *f, const formula_node *node)
{
    for (int tries = 0; tries < 12; tries++) {
        int at = pick_tensor(random, f);
        const formula_node *other = &f->nodes[at], *left = &f->nodes[node->args[0]];
        if (other->rank && other->dtype == node->dtype &&
            other->shape[other->rank - 1] == left->shape[left->rank - 1])
            return at;
    }
    return -1;
}

/* linear(x, w), perhaps with a bias; w (n, k) or (k). */
static bool grow_linear(test_random *random, random_formula *f, formula_node *node)
{
    const formula_node *weight = &f->nodes[node->args[1]];
    if (weight->rank > 2)
        return false;
    node->rank -= weight->rank == 1;
    if (weight->rank == 2) {
        node->shape[node->rank - 1] = weight->shape[0];
        node->args[2] = chance(random, 60) ? find_weight(random, f, node, 1) : -1;
    }
    return true;
}

/* x @ transpose(y, -2, -1), or x @ y where y is a vector. */
static bool grow_matmul(random_formula *f, formula_node *node)
{
    formula_node turned = new_node(NODE_TRANSPOSE, OG_OP_transpose), left = f->nodes[node->args[0]];
    take_shape(f, &turned, node->args[1]);
    int64_t m = left.rank > 1 ? left.shape[left.rank - 2] : 0, n = 0;
    if (turned.rank > 1) {
        turned.swap[0] = turned.rank - 2;
        turned.swap[1] = turned.rank - 1;
        n = turned.shape[turned.rank - 2];
        turned.shape[turned.rank - 2] = turned.shape[turned.rank - 1];
        turned.shape[turned.rank - 1] = n;
        node->args[1] = add_node(f, &turned);
    }
    bool has_n = turned.rank > 1;
    node->rank = left.rank > 2 ? left.rank - 2 : 0;
    turned.rank = turned.rank > 2 ? turned.rank - 2 : 0;
    if (!broadcast(node, &turned))
        return false;
    if (left.rank > 1)
        node->shape[node->rank++] = m;
    if (has_n)
        node->shape[node->rank++] = n;
    return true;
}

static bool grow_product(test_random *random, random_formula *f, formula_node *node,
                         int64_t max_count)
{
    *node = new_node(NODE_PRODUCT, chance(random, 50) ? OG_OP_linear : OG_OP_matmul);
    take_shape(f, node, pick_tensor(random, f));
    if (node->rank == 0)
        return false;
    int64_t k = node->shape[node->rank - 1];
    node->args[1] = find_factor(random, f, node);
    if (node->args[1] < 0)
        return false;
    if (!(node->op == OG_OP_linear ? grow_linear(random, f, node) : grow_matmul(f, node)))
        return false;
    formula_set_count(node);
    return node->count * k <= 100 * max_count; /* the oracle is slow */
}

static bool grow_transpose(test_random *random, random_formula *f, formula_node *node)
{
    *node = new_node(NODE_TRANSPOSE, OG_OP_transpose);
    take_shape(f, node, pick_tensor(random, f));
    if (node->rank < 2)
        return false;
    for (int i = 0; i < 2; i++)
        node->swap[i] = (int)below(random, node->rank);
    int64_t first = node->shape[node->swap[0]];
    node->shape[node->swap[0]] = node->shape[node->swap[1]];
    node->shape[node->swap[1]] = first;
    return true;
}

static bool grow_cast(test_random *random, random_formula *f, formula_node *node)
{
    static const og_op ops[] = {OG_OP_float32, OG_OP_float16, OG_OP_bfloat16, OG_OP_float64};
    static const og_dtype dtypes[] = {OG_FLOAT32, OG_FLOAT16, OG_BFLOAT16, OG_FLOAT64};
    int which = (int)below(random, chance(random, 20) ? 4 : 3);
    *node = new_node(NODE_CAST, ops[which]);
    take_shape(f, node, pick_tensor(random, f));
    node->dtype = dtypes[which];
    return true;
}

static bool grow_part(test_random *random, random_formula *f, formula_node *node)
{
    *node = new_node(NODE_PART, chance(random, 50) ? OG_OP_narrow : OG_OP_unfold);
    take_shape(f, node, pick_tensor(random, f));
    if (node->rank == 0 || node->rank > 5)
        return false;
    int d = node->swap[0] = (int)below(random, node->rank);
    int64_t extent = node->shape[d];
    if (extent == 0)
        return false;
    if (node->op == OG_OP_narrow) {
        int64_t start = below(random, extent + 1), rest = extent - start;
        node->shape[d] = rest && chance(random, 95) ? 1 + below(random, rest) : 0;
        node->numbers[0] = (double)start;
        node->numbers[1] = (double)node->shape[d];
    } else {
        int64_t size = 1 + below(random, extent < 5 ? extent : 5), step = 1 + below(random, 3);
        node->shape[d] = (extent - size) / step + 1;
        node->shape[node->rank++] = size;
        node->numbers[0] = (double)size;
        node->numbers[1] = (double)step;
    }
    formula_set_count(node);
    return true;
}

bool formula_is_adaptive(const formula_node *node)
{
    return !strncmp(og_function_of(node->op)->name, "adaptive", 8);
}

bool formula_takes_most(const formula_node *node)
{
    return strstr(og_function_of(node->op)->name, "max_pool");
}

bool formula_is_transposed(const formula_node *node)
{
    return strstr(og_function_of(node->op)->name, "transpose");
}

/* Windows of node along dim i of those that they slide along, which becomes as many as fit; false if
 * none does. */
static bool draw_window(test_random *random, formula_node *node, int i, bool dilated)
{
    int64_t *extent = &node->shape[node->rank - node->slides + i];
    node->stride[i] = 1 + below(random, 3);
    node->dilation[i] = dilated ? 1 + below(random, 2) : 1;
    int64_t span = (node->size[i] - 1) * node->dilation[i] + 1;
    node->padding[i] = below(random, node->size[i] / 2 + 1);
    if (formula_is_transposed(node))
        *extent = (*extent - 1) * node->stride[i] - 2 * node->padding[i] + span;
    else
        *extent = *extent + 2 * node->padding[i] < span
                      ? 0
                      : (*extent + 2 * node->padding[i] - span) / node->stride[i] + 1;
    return *extent > 0;
}

static bool grow_pooling(test_random *random, random_formula *f, formula_node *node)
{
    static const og_op ops[][FORMULA_SLIDES] = {
        {OG_OP_max_pool1d, OG_OP_max_pool2d},
        {OG_OP_avg_pool1d, OG_OP_avg_pool2d},
        {OG_OP_adaptive_avg_pool1d, OG_OP_adaptive_avg_pool2d},
        {OG_OP_adaptive_max_pool1d, OG_OP_adaptive_max_pool2d}};
    int slides = 1 + (int)below(random, FORMULA_SLIDES);
    *node = new_node(NODE_POOL, ops[below(random, (int64_t)TEST_COUNT(ops))][slides - 1]);
    take_shape(f, node, pick_tensor(random, f));
    node->slides = slides;
    if (node->rank < slides + 1 || node->rank > slides + 2)
        return false;
    for (int i = 0; i < slides; i++) {
        int64_t *extent = &node->shape[node->rank - slides + i];
        if (*extent == 0)
            return false;
        if (formula_is_adaptive(node))
            *extent = node->size[i] = 1 + below(random, *extent < 9 ? *extent + 3 : 12);
        else {
            node->size[i] = 1 + below(random, 4);
            if (!draw_window(random, node, i, formula_takes_most(node)))
                return false;
        }
    }
    f->reduces = true;
    formula_set_count(node);
    return true;
}

/* A weight of node's channels, (n, c / groups, taps) or, transposed, (c, n / groups, taps); or -1. */
static int find_filter(test_random *random, const random_formula *f, formula_node *node)
{
    int64_t channels = node->shape[node->rank - node->slides - 1];
    bool transposed = formula_is_transposed(node);
    for (int tries = 0; tries < 20; tries++) {
        int at = pick_tensor(random, f);
        const formula_node *w = &f->nodes[at];
        if (w->rank != node->slides + 2 || w->dtype != node->dtype || !w->count || !channels)
            continue;
        node->groups = transposed ? 1 + below(random, 2) : channels / w->shape[1];
        bool fits = transposed
                        ? w->shape[0] == channels && channels % node->groups == 0
                        : node->groups * w->shape[1] == channels && w->shape[0] % node->groups == 0;
        if (fits && node->groups)
            return at;
    }
    return -1;
}

static bool grow_convolution(test_random *random, random_formula *f, formula_node *node,
                             int64_t max_count)
{
    static const og_op ops[][FORMULA_SLIDES] = {{OG_OP_conv1d, OG_OP_conv2d},
                                                {OG_OP_conv_transpose1d, OG_OP_conv_transpose2d}};
    int slides = 1 + (int)below(random, FORMULA_SLIDES);
    *node = new_node(NODE_CONVOLVE, ops[chance(random, 30)][slides - 1]);
    take_shape(f, node, pick_tensor(random, f));
    node->slides = slides;
    if (node->rank < slides + 1 || node->rank > slides + 2)
        return false;
    node->args[1] = find_filter(random, f, node);
    if (node->args[1] < 0)
        return false;
    const formula_node *w = &f->nodes[node->args[1]];
    int64_t terms = w->shape[1];
    for (int i = 0; i < slides; i++) {
        node->size[i] = w->shape[2 + i];
        terms *= node->size[i];
        if (node->size[i] > 6 || node->shape[node->rank - slides + i] == 0 ||
            !draw_window(random, node, i, true))
            return false;
    }
    node->shape[node->rank - slides - 1] =
        formula_is_transposed(node) ? w->shape[1] * node->groups : w->shape[0];
    formula_set_count(node);
    return node->count * terms <= 30 * max_count;
}

static bool grow_kind(test_random *random, random_formula *f, int64_t max_count, int kind,
                      formula_node *node)
{
    return kind < 23   ? grow_unary(random, f, node)
           : kind < 48 ? grow_binary(random, f, node)
           : kind < 54 ? grow_where(random, f, node)
           : kind < 65 ? grow_reduction(random, f, node)
           : kind < 71 ? grow_normalisation(random, f, node)
           : kind < 80 ? grow_product(random, f, node, max_count)
           : kind < 84 ? grow_transpose(random, f, node)
           : kind < 88 ? grow_cast(random, f, node)
           : kind < 91 ? grow_part(random, f, node)
           : kind < 95 ? grow_pooling(random, f, node)
                       : grow_convolution(random, f, node, max_count);
}

static void grow(test_random *random, random_formula *f, int64_t max_count)
{
    formula_node node;
    int kind = (int)below(random, 100);
    bool made = grow_kind(random, f, max_count, kind, &node);
    for (int tries = 0; !made && kind >= 91 && tries < 8; tries++) /* few tensors fit windows */
        made = grow_kind(random, f, max_count, kind, &node);
    if (made && node.count <= 4 * max_count)
        add_node(f, &node);
}

/* The shape that inputs broadcast to, or are parts of. */
static formula_node pick_base(test_random *random, int64_t max_count)
{
    static const int64_t extents[] = {1,  2,  3,   5,   7,   8,    16,   17,    33,
                                      64, 65, 129, 511, 513, 1000, 4097, 16385, 33000};
    formula_node base = new_node(NODE_INPUT, OG_OP_INPUT);
    base.rank = (int)below(random, 6);
    base.count = 1; /* as if an extent of 0 were 1, so that strides stay small */
    for (int d = 0; d < base.rank; d++) {
        int64_t extent;
        do
            extent = extents[below(random, (int64_t)TEST_COUNT(extents))];
        while (extent * base.count > max_count);
        base.shape[d] = chance(random, 1) ? 0 : extent;
        base.count *= extent;
    }
    for (int d = base.rank - 1; d > 0; d--) { /* long extents anywhere */
        int other = (int)below(random, d + 1);
        int64_t extent = base.shape[d];
        base.shape[d] = base.shape[other];
        base.shape[other] = extent;
    }
    return base;
}

/* A convolution's weight for base, with one or two dims of taps. */
static void take_filter(test_random *random, const formula_node *base, formula_node *node)
{
    int slides = base->rank < 3 ? 1 : base->rank > 3 ? 2 : 1 + (int)below(random, 2);
    int64_t channels = base->shape[base->rank - slides - 1];
    int64_t groups = chance(random, 30)                        ? channels
                     : channels % 2 == 0 && chance(random, 30) ? 2
                                                               : 1;
    node->rank = slides + 2;
    node->shape[0] = (groups ? groups : 1) * (groups > 8 ? 1 : 1 + below(random, 4));
    node->shape[1] = groups ? channels / groups : 1;
    for (int i = 0; i < slides; i++)
        node->shape[2 + i] = 1 + below(random, 3);
}

static void add_inputs(test_random *random, random_formula *f, int64_t max_count)
{
    formula_node base = pick_base(random, max_count);
    int style = (int)below(random, 100);
    f->input_count = 1 + (int)below(random, FORMULA_INPUTS);
    for (int i = 0; i < f->input_count; i++) {
        formula_node node = base;
        int dropped = i && chance(random, 40) ? (int)below(random, base.rank + 1) : 0;
        node.input = i;
        node.rank -= dropped;
        memmove(node.shape, base.shape + dropped, (size_t)node.rank * sizeof *node.shape);
        for (int d = 0; i && d < node.rank; d++)
            node.shape[d] = chance(random, 20) ? 1 : node.shape[d];
        if (i && base.rank && chance(random, 20)) { /* a weight of the base's rows */
            node.rank = 2;
            node.shape[0] = 1 + below(random, 70);
            node.shape[1] = base.shape[base.rank - 1];
        } else if (i && base.rank > 1 && base.rank < 5 && chance(random, 30)) {
            take_filter(random, &base, &node);
        }
        formula_set_count(&node);
        node.dtype = style < 55   ? OG_FLOAT32
                     : style < 68 ? OG_FLOAT16
                     : style < 78 ? OG_BFLOAT16
                     : style < 85 ? OG_FLOAT64
                                  : (og_dtype)below(random, OG_FLOAT_COUNT);
        add_node(f, &node);
    }
}

/* ---- printing ------------------------------------------------------------------- */

static void print(random_formula *f, const char *format, ...)
{
    size_t length = strlen(f->text);
    va_list list;
    va_start(list, format);
    vsnprintf(f->text + length, sizeof f->text - length, format, list);
    va_end(list);
}

static void print_node(random_formula *f, int index, const bool *named);

static void print_use(random_formula *f, int index, const bool *named)
{
    const formula_node *node = &f->nodes[index];
    if (node->kind == NODE_INPUT)
        print(f, "%s", formula_input_names[node->input]);
    else if (node->kind == NODE_NUMBER)
        print(f, "%.17g", node->numbers[0]);
    else if (named[index])
        print(f, "v%d", index);
    else
        print_node(f, index, named);
}

static void print_dims(random_formula *f, const formula_node *node, int rank, bool sizes)
{
    print(f, "(");
    for (int d = 0; d < rank; d++)
        if (node->dims >> d & 1)
            print(f, "%lld, ", (long long)(sizes ? node->shape[d] : d % 2 ? d - rank : d));
    print(f, ")");
}

static void print_steps(random_formula *f, const formula_node *node, const char *name,
                        const int64_t *steps)
{
    print(f, ", %s(", name);
    for (int i = 0; i < node->slides; i++)
        print(f, "%lld, ", (long long)steps[i]);
    print(f, ")");
}

static void print_attributes(random_formula *f, const formula_node *node, const bool *named)
{
    const formula_node *arg = &f->nodes[node->args[0]];
    switch (node->kind) {
    case NODE_REDUCE:
        if (!node->all) {
            print(f, ", dim=");
            print_dims(f, node, arg->rank, false);
        }
        if (node->keepdim)
            print(f, ", keepdim=true");
        if ((node->op == OG_OP_var || node->op == OG_OP_std) && node->numbers[0] >= 0)
            print(f, ", correction=%g", node->numbers[0]);
        break;
    case NODE_NORMALISE:
        if (node->op == OG_OP_softmax || node->op == OG_OP_log_softmax) {
            print(f, ", dim=%d", __builtin_ctz(node->dims));
            break;
        }
        print(f, ", ");
        print_dims(f, node, arg->rank, true);
        for (int a = 1; a < 3; a++)
            if (node->args[a] >= 0) {
                print(f, ", %s=", a == 1 ? "weight" : "bias");
                print_use(f, node->args[a], named);
            }
        if (node->numbers[0] >= 0)
            print(f, ", eps=%g", node->numbers[0]);
        break;
    case NODE_PRODUCT:
        for (int a = 1; a < 3; a++)
            if (node->args[a] >= 0) {
                print(f, ", ");
                print_use(f, node->args[a], named);
            }
        break;
    case NODE_TRANSPOSE:
        print(f, ", %d, %d", node->swap[0], node->swap[1] - node->rank);
        break;
    case NODE_PART:
        print(f, ", %d, %.0f, %.0f", node->swap[0], node->numbers[0], node->numbers[1]);
        break;
    case NODE_POOL:
        print_steps(f, node, "", node->size);
        if (!formula_is_adaptive(node)) {
            print_steps(f, node, "stride=", node->stride);
            print_steps(f, node, "padding=", node->padding);
        }
        if (!formula_is_adaptive(node) && formula_takes_most(node))
            print_steps(f, node, "dilation=", node->dilation);
        break;
    case NODE_CONVOLVE:
        print(f, ", ");
        print_use(f, node->args[1], named);
        print_steps(f, node, "stride=", node->stride);
        print_steps(f, node, "padding=", node->padding);
        print_steps(f, node, "dilation=", node->dilation);
        print(f, ", groups=%lld", (long long)node->groups);
        break;
    default: /* numbers by name */
        for (int p = 1, n = 0; og_function_of(node->op)->parameters[p].kind; p++)
            if (og_function_of(node->op)->parameters[p].kind == OG_PARAMETER_NUMBER)
                print(f, ", %s=%.17g", og_function_of(node->op)->parameters[p].name,
                      node->numbers[n++]);
    }
}

static void print_node(random_formula *f, int index, const bool *named)
{
    const formula_node *node = &f->nodes[index];
    const char *name = og_function_of(node->op == OG_OP_power ? OG_OP_pow : node->op)->name;
    bool is_infix = og_op_infix(node->op) || (index % 2 && node->op == OG_OP_matmul);
    const char *symbol = og_function_of(node->op)->symbol;
    if (node->kind == NODE_WHERE) {
        for (int a = 0; a < 4; a++) {
            print(f, a == 0 ? "where(" : a == 1 ? " %s " : ", ", symbol);
            print_use(f, node->args[a], named);
        }
        print(f, ")");
    } else if (is_infix) {
        print(f, "(");
        print_use(f, node->args[0], named);
        print(f, " %s ", symbol);
        print_use(f, node->args[1], named);
        print(f, ")");
    } else if (node->kind == NODE_SCALAR && og_function_of(node->op)->args == 2) {
        print(f, "%s(", name);
        print_use(f, node->args[0], named);
        print(f, ", ");
        print_use(f, node->args[1], named);
        print(f, ")");
    } else {
        print(f, "%s(", node->op == OG_OP_gelu_tanh ? "gelu" : name);
        print_use(f, node->args[0], named);
        print(f, "%s", node->op == OG_OP_gelu_tanh ? ", approximate='tanh'" : "");
        print_attributes(f, node, named);
        print(f, ")");
    }
}

static void print_formula(random_formula *f)
{
    int uses[FORMULA_NODES] = {0};
    bool named[FORMULA_NODES] = {false};
    for (int r = 0; r < f->result_count; r++)
        uses[f->results[r]]++;
    for (int n = f->node_count - 1; n >= 0; n--) {
        named[n] = uses[n] > 1;
        for (int a = 0; uses[n] && a < 4; a++)
            if (f->nodes[n].args[a] >= 0)
                uses[f->nodes[n].args[a]]++;
        f->nodes[n].uses = uses[n];
        f->has_float64 |= uses[n] && f->nodes[n].dtype == OG_FLOAT64;
    }
    f->text[0] = 0;
    for (int n = f->input_count; n < f->node_count; n++)
        if (named[n] && f->nodes[n].kind != NODE_NUMBER) {
            print(f, "v%d = ", n);
            print_node(f, n, named);
            print(f, "; ");
        }
    for (int r = 0; r < f->result_count; r++) {
        print(f, r ? ", " : "");
        print_use(f, f->results[r], named);
    }
}

void formula_generate(test_random *random, int64_t max_count, random_formula *f)
{
    memset(f, 0, sizeof *f);
    add_inputs(random, f, max_count);
    int wanted = f->input_count + 1 + (int)below(random, 18);
    for (int tries = 0; tries < 100 && f->node_count < wanted; tries++)
        grow(random, f, max_count);
    int results = chance(random, 70) ? 1 : FORMULA_RESULTS;
    for (int n = f->node_count - 1; n >= f->input_count && f->result_count < results; n--)
        if (f->nodes[n].kind != NODE_NUMBER && !f->nodes[n].uses)
            f->results[f->result_count++] = n;
    if (!f->result_count)
        f->results[f->result_count++] = 0;
    print_formula(f);
}

void formula_keep(random_formula *f, int node)
{
    f->has_float64 = false;
    f->result_count = 1;
    f->results[0] = node;
    print_formula(f);
}

void formula_free(random_formula *f)
{
    for (int n = 0; n < f->node_count; n++)
        free(f->nodes[n].values);
    f->node_count = 0;
}
