/* SPDX-License-Identifier: MIT
 *
 * plan_product.c - the operands of a product: where their dims lie in the space of
 * its result, and along which they are summed. A product sums over one dim with
 * one stride per operand (plan.h); product_t, which sums over several, has them
 * only if they lie in memory as one. And which two products share a kernel, and how its
 * space is seen as matrices.
 */
#include "plan/planner.h"

#include <string.h>

enum { K_DIM = 100 }; /* in a mapping: K_DIM + i is dim i of those that are summed */

/* The dims that a product sums over, outermost first. */
typedef struct {
    int32_t rank;
    int64_t extent[OG_MAX_RANK];
    int64_t stride[OG_MAX_RANK]; /* of one operand */
} summed_dims;

static og_mapping linear_mapping(const og_typed *out, const og_typed *operand, int side)
{
    og_mapping mapping;
    memset(&mapping, -1, sizeof mapping);
    for (int32_t d = 0; d < operand->rank; d++)
        if (d == operand->rank - 1)
            mapping.at[d] = K_DIM;
        else if (operand->shape[d] != 1)
            mapping.at[d] = (int8_t)(side ? out->rank - 1 : d);
    return mapping;
}

/* Dims of the result after the batch: m unless left is a vector, n likewise. */
static og_mapping matmul_mapping(const og_typed *out, const og_typed *left, const og_typed *right,
                                 int side)
{
    const og_typed *operand = side ? right : left;
    int32_t has_m = left->rank > 1, has_n = right->rank > 1;
    og_mapping mapping;
    memset(&mapping, -1, sizeof mapping);
    for (int32_t d = 0; d < operand->rank; d++) {
        int32_t from_end = operand->rank - d; /* 1: the last dim */
        int32_t to;
        if (from_end == 1)
            to = side && has_n ? out->rank - 1 : K_DIM;
        else if (from_end == 2)
            to = side ? K_DIM : out->rank - 1 - has_n;
        else
            to = out->rank - has_m - has_n - (from_end - 2);
        if (operand->shape[d] != 1 || to == K_DIM)
            mapping.at[d] = (int8_t)to;
    }
    return mapping;
}

/* operand (.., k, m or n); batch dims that the result lacks are summed. */
static og_mapping product_t_mapping(const og_typed *out, const og_typed *operand, int32_t rank,
                                    int side)
{
    og_mapping mapping;
    memset(&mapping, -1, sizeof mapping);
    for (int32_t d = 0; d < operand->rank; d++) {
        int32_t from_end = operand->rank - d, to = out->rank - from_end;
        if (operand->shape[d] == 1)
            continue;
        if (from_end == 1)
            mapping.at[d] = (int8_t)(out->rank - 2 + side);
        else if (from_end == 2 || to < 0 || out->shape[to] == 1)
            mapping.at[d] = (int8_t)(K_DIM + rank - from_end);
        else
            mapping.at[d] = (int8_t)to;
    }
    return mapping;
}

/* Which dims of operand side (0 or 1) are the result's and which are summed. */
static og_mapping operand_mapping(const og_planner *b, int32_t node, int side, summed_dims *k)
{
    const og_node *of = &b->graph->nodes[node];
    const og_typed *out = &b->types[node];
    const og_typed *left = &b->types[of->args[0]], *right = &b->types[of->args[1]];
    *k = (summed_dims){.rank = 1, .extent = {left->shape[left->rank - 1]}};
    if (of->op == OG_OP_linear_product)
        return linear_mapping(out, side ? right : left, side);
    if (of->op == OG_OP_matmul)
        return matmul_mapping(out, left, right, side);
    int32_t rank = left->rank > right->rank ? left->rank : right->rank;
    k->rank = rank - 1;
    for (int32_t i = 0; i < rank - 1; i++) {
        int32_t a = i - (rank - left->rank), c = i - (rank - right->rank),
                to = i + out->rank - rank;
        int64_t a_size = a < 0 ? 1 : left->shape[a], c_size = c < 0 ? 1 : right->shape[c];
        bool summed = i == rank - 2 || to < 0 || out->shape[to] == 1;
        k->extent[i] = !summed ? 1 : a_size == 1 ? c_size : a_size;
    }
    return product_t_mapping(out, side ? right : left, rank, side);
}

/* The dims as one, which has *stride; false if they do not lie like that. */
static bool join_dims(const summed_dims *k, int64_t *extent, int64_t *stride)
{
    bool fits = true;
    *stride = 0;
    if (og_shape_count(k->rank, k->extent, extent) && *extent == 0)
        return true;
    *extent = 1;
    for (int32_t i = k->rank - 1; i >= 0; i--) {
        if (k->extent[i] == 1)
            continue;
        if (*extent == 1)
            *stride = k->stride[i];
        else
            fits &= k->stride[i] == *stride * *extent;
        *extent *= k->extent[i];
    }
    return fits;
}

bool og_product_operand(const og_planner *b, int32_t node, int side, og_access *access, int64_t *k,
                        int64_t *k_stride)
{
    summed_dims summed;
    og_mapping mapping = operand_mapping(b, node, side, &summed);
    int32_t at = b->graph->nodes[node].args[side], buffer = b->copies[node][side];
    if (buffer < 0) {
        for (; b->buffer[at] < 0; at = b->graph->nodes[at].args[0]) /* views of what is kept */
            mapping = og_argument_mapping(b, at, 0, &mapping);
        buffer = b->buffer[at];
    }
    const og_buffer *of = &b->buffers[buffer];
    *access = (og_access){.buffer = buffer, .dtype = of->dtype};
    for (int32_t d = 0; d < of->rank; d++)
        if (mapping.at[d] >= K_DIM)
            summed.stride[mapping.at[d] - K_DIM] += of->stride[d];
        else if (mapping.at[d] >= 0)
            access->stride[mapping.at[d]] += of->stride[d];
    return join_dims(&summed, k, k_stride);
}

/* The last dim is innermost, then come those that are summed, then the others. */
void og_lay_out_operand(const og_planner *b, int32_t node, int side, og_buffer *buffer)
{
    summed_dims summed;
    og_mapping mapping = operand_mapping(b, node, side, &summed);
    int64_t stride = 1, count;
    int32_t last = buffer->rank - 1;
    if (og_shape_count(buffer->rank, buffer->shape, &count) && count == 0)
        return; /* nothing to lay out */
    for (int pass = 0; pass < 3; pass++)
        for (int32_t d = last; d >= 0; d--) {
            int in_pass = d == last ? 0 : mapping.at[d] >= K_DIM ? 1 : 2;
            if (in_pass != pass)
                continue;
            buffer->stride[d] = stride;
            stride *= buffer->shape[d] > 1 ? buffer->shape[d] : 1;
        }
}

/* Columns of a product's right factor: linear's w is (n, k), others are (.., k, n) or (k). */
static int64_t count_columns(const og_planner *b, int32_t node)
{
    const og_typed *right = &b->types[b->graph->nodes[node].args[1]];
    if (b->graph->nodes[node].op == OG_OP_linear_product)
        return right->shape[0];
    return right->rank > 1 ? right->shape[right->rank - 1] : 1;
}

ogive_status og_emit_products(og_planner *b, const og_draft *draft, og_kernel *kernel)
{
    if (!draft->product_count)
        return OGIVE_OK;
    kernel->products = OG_ARENA_NEW(&b->plan->arena, og_product, (size_t)draft->product_count);
    if (!kernel->products)
        return og_fail_memory(b->error, sizeof *kernel->products);
    for (int32_t p = 0; p < draft->product_count; p++) {
        og_product *to = &kernel->products[kernel->product_count++];
        int32_t node = draft->products[p];
        to->dtype = b->types[node].dtype;
        if (og_node_convolves(b, node))
            continue; /* og_emit_convolution() knows the rest */
        to->n = count_columns(b, node);
        og_product_operand(b, node, 0, &to->left, &to->k, &to->left_k_stride);
        og_product_operand(b, node, 1, &to->right, &to->k, &to->right_k_stride);
    }
    return OGIVE_OK;
}

/* ---- matrices ------------------------------------------------------------------- */

static bool moves(const og_access *access, int32_t dim)
{
    bool does = access->stride[dim] != 0;
    for (int32_t w = 0; w < access->window_count; w++)
        does |= access->windows[w].place == dim;
    return does;
}

static bool any_moves(const og_kernel *kernel, bool is_right, int32_t dim)
{
    for (int32_t p = 0; p < kernel->product_count; p++)
        if (moves(og_factor_of(kernel, p, is_right).access, dim))
            return true;
    return false;
}

/* Left and right change places where it is left that moves along the last dim. */
static void exchange_factors(og_kernel *kernel)
{
    int32_t last = kernel->space.rank - 1;
    for (int32_t p = 0; last >= 0 && p < kernel->product_count; p++) {
        og_product *product = &kernel->products[p], old = *product;
        if (!moves(&old.left, last) || moves(&old.right, last))
            continue;
        product->left = old.right;
        product->right = old.left;
        product->left_k_stride = old.right_k_stride;
        product->right_k_stride = old.left_k_stride;
        memcpy(product->k_dims.stride[0], old.k_dims.stride[1], sizeof old.k_dims.stride[1]);
        memcpy(product->k_dims.stride[1], old.k_dims.stride[0], sizeof old.k_dims.stride[0]);
        product->exchanged = !old.exchanged;
    }
}

static int32_t count_column_dims(const og_kernel *kernel)
{
    int32_t most = og_kernel_convolves(kernel) ? kernel->space.rank : 1, count = 0;
    while (count < most && count < kernel->space.rank &&
           !any_moves(kernel, false, kernel->space.rank - 1 - count))
        count++;
    return count;
}

/* Of the dims before columns, those along which a right factor moves come first. */
static void gather_rows(og_kernel *kernel)
{
    int32_t order[OG_MAX_RANK], count = 0, rank = kernel->space.rank;
    int32_t end = rank - count_column_dims(kernel);
    for (int turn = 0; turn < 2; turn++)
        for (int32_t d = 0; d < end; d++)
            if (any_moves(kernel, true, d) == (turn == 0))
                order[count++] = d;
    for (int32_t d = end; d < rank; d++)
        order[count++] = d;
    og_permute_dims(kernel, order, count);
}

static int64_t count_elements(const og_kernel *kernel, int32_t first, int32_t rank)
{
    int64_t count;
    return og_shape_count(rank, kernel->space.extent + first, &count) ? count : INT64_MAX;
}

/* A convolution that is nothing but a product of matrices becomes one. */
static void see_plain(og_kernel *kernel)
{
    og_product *product = &kernel->products[0];
    const og_k_dims *k = &product->k_dims;
    if (!og_kernel_convolves(kernel) || kernel->matrices.n_rank > 1 || k->rank > 1 ||
        product->left.window_count || product->right.window_count || product->left.offset ||
        product->right.offset)
        return;
    product->left_k_stride = k->stride[0][0];
    product->right_k_stride = k->stride[1][0];
    product->k_dims.rank = 0;
    product->exchanged = false; /* batches are apart, whichever factor is which */
    product->n = kernel->matrices.n;
}

static void find_matrices(og_kernel *kernel)
{
    og_matrices *to = &kernel->matrices;
    /* Gathering may bring another dim to the end, along which left alone moves. */
    for (int round = 0; round < 2; round++) {
        exchange_factors(kernel);
        gather_rows(kernel);
    }
    int32_t rank = kernel->space.rank;
    *to = (og_matrices){.n_rank = count_column_dims(kernel), .k = kernel->products[0].k};
    while (to->batch_rank < rank - to->n_rank && any_moves(kernel, true, to->batch_rank))
        to->batch_rank++;
    to->m_rank = rank - to->n_rank - to->batch_rank;
    to->batch = count_elements(kernel, 0, to->batch_rank);
    to->m = count_elements(kernel, to->batch_rank, to->m_rank);
    to->n = count_elements(kernel, rank - to->n_rank, to->n_rank);
}

/* Are neighbours of every result rows, and its columns apart? */
static bool stores_along_rows(const og_kernel *kernel)
{
    const og_matrices *of = &kernel->matrices;
    bool does = of->m_rank == 1 && of->n_rank == 1 && !kernel->space.n_reduced;
    for (int32_t i = 0; does && i < kernel->access_count; i++) {
        const int64_t *stride = kernel->accesses[i].stride + of->batch_rank;
        does = !kernel->accesses[i].is_store || (stride[0] == 1 && stride[1] > 1);
    }
    return does;
}

/* Rows and columns change places, and with them the factors: the images of a batch are more rows. The
 * product's own n remains: what a device chooses by it must not depend on how a result lies. */
static void turn_matrices(og_kernel *kernel)
{
    int32_t order[OG_MAX_RANK], rank = kernel->space.rank;
    for (int32_t d = 0; d < rank; d++)
        order[d] = d;
    order[rank - 2] = rank - 1;
    order[rank - 1] = rank - 2;
    og_permute_dims(kernel, order, rank);
    og_collapse_dims(kernel);
    find_matrices(kernel);
    kernel->products[0].exchanged = false;
}

void og_see_matrices(og_kernel *kernel)
{
    const bool convolved = og_kernel_convolves(kernel);
    find_matrices(kernel);
    see_plain(kernel);
    /* Of halves a sum's bits are the same either way. */
    if (convolved && !og_kernel_convolves(kernel) && stores_along_rows(kernel) &&
        og_dtype_bytes(kernel->products[0].left.dtype) == 2 &&
        og_dtype_bytes(kernel->products[0].right.dtype) == 2)
        turn_matrices(kernel);
}

/* ---- pairs ---------------------------------------------------------------------- */

/* The products that a node needs at its own index, at most two (-1: none). */
typedef struct {
    int32_t products[OG_MAX_PRODUCTS];
} needed_products;

/* Adds what argument needs; false if that is one too many. */
static bool add_needed(needed_products *to, const needed_products *from)
{
    for (int32_t i = 0; i < OG_MAX_PRODUCTS && from->products[i] >= 0; i++) {
        int32_t at = 0;
        while (at < OG_MAX_PRODUCTS && to->products[at] >= 0 &&
               to->products[at] != from->products[i])
            at++;
        if (at == OG_MAX_PRODUCTS)
            return false;
        to->products[at] = from->products[i];
    }
    return true;
}

/* anchor[n]: the first reduction, product or window that needs n, by way of pointwise nodes. */
static void find_anchors(const og_planner *b, const bool *live, int32_t *anchor)
{
    const og_graph *graph = b->graph;
    for (int32_t n = 0; n < graph->node_count; n++)
        anchor[n] = INT32_MAX;
    for (int32_t n = graph->node_count - 1; n >= 0; n--) {
        const og_node *of = &graph->nodes[n];
        bool is_anchor = og_node_reduces(b, n) || og_node_is_product(b, n) || og_node_slides(b, n);
        int32_t first = is_anchor ? n : anchor[n];
        for (int32_t a = 0; live[n] && a < og_op_value_count(of->op, of->arg_count); a++)
            if (first < anchor[of->args[a]])
                anchor[of->args[a]] = first;
    }
}

static int64_t count_terms(const og_planner *b, int32_t product)
{
    summed_dims summed;
    int64_t k, stride;
    operand_mapping(b, product, 0, &summed);
    join_dims(&summed, &k, &stride);
    return k;
}

/* Is the left factor, of halves, the same? */
static bool are_alike(const og_planner *b, int32_t first, int32_t second)
{
    int32_t left = b->graph->nodes[first].args[0];
    return left == b->graph->nodes[second].args[0] && og_dtype_bytes(b->types[left].dtype) == 2;
}

/* May one kernel have both, as far as the device goes? */
static bool may_meet(const og_planner *b, int32_t first, int32_t second)
{
    if (og_compute_type(b->types[first].dtype) != OG_F32)
        return true;
    return b->rules.sharing == OG_SHARE_ANY ||
           (b->rules.sharing == OG_SHARE_ALIKE && are_alike(b, first, second));
}

static void try_pair(og_planner *b, const needed_products *needed, const int32_t *anchor)
{
    int32_t first = needed->products[0], second = needed->products[1];
    if (first > second) {
        first = second;
        second = needed->products[0];
    }
    if (first < 0 || og_node_convolves(b, first) || og_node_convolves(b, second))
        return;
    if (b->pair[first] >= 0 || b->pair[second] >= 0 || anchor[first] <= second)
        return;
    if (!may_meet(b, first, second))
        return;
    if (og_compute_type(b->types[first].dtype) != og_compute_type(b->types[second].dtype) ||
        count_terms(b, first) != count_terms(b, second))
        return;
    b->pair[first] = second;
    b->pair[second] = first;
}

ogive_status og_find_pairs(og_planner *b, const bool *live)
{
    const og_graph *graph = b->graph;
    size_t count = (size_t)graph->node_count;
    needed_products *needed = OG_ARENA_NEW(&b->scratch, needed_products, count);
    int32_t *anchor = OG_ARENA_NEW(&b->scratch, int32_t, count);
    if (!needed || !anchor)
        return og_fail_memory(b->error, count * sizeof *needed);
    find_anchors(b, live, anchor);
    for (int32_t n = 0; n < graph->node_count; n++) {
        const og_node *of = &graph->nodes[n];
        memset(&needed[n], -1, sizeof needed[n]);
        if (!live[n] || og_node_reduces(b, n))
            continue;
        if (og_node_is_product(b, n)) {
            needed[n].products[0] = n;
            continue;
        }
        bool fits = true;
        for (int32_t a = 0; a < og_op_value_count(of->op, of->arg_count); a++)
            if (og_reads_in_place(b, n, a))
                fits &= add_needed(&needed[n], &needed[of->args[a]]);
        if (fits)
            try_pair(b, &needed[n], anchor);
    }
    return OGIVE_OK;
}
