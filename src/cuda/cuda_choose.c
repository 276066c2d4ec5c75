/* SPDX-License-Identifier: MIT
 *
 * cuda_choose.c - see cuda_choose.h.
 */
#include "cuda/cuda_choose.h"

#include "cuda/cuda_emit.h"
#include "cuda/cuda_matrices.h"

#include <string.h>

enum {
    LEAST_N = 128,                /* a tile of columns: fewer would idle the tensor cores */
    LEAST_K = 128,                /* shorter sums gain nothing: x has to be split first */
    LEAST_HALF_N = 16,            /* one result a thread would be a dot product */
    LEAST_HALF_K = 16,            /* a step of the tensor cores */
    MOST_SUM_BYTES = 8,           /* that shared memory has room for beside the rings */
    SHARED_BYTES = 227 * 1024,    /* of an H100 */
    MMA_SHARED_BYTES = 99 * 1024, /* of sm_86: the least from sm_80 on */
    MOST_TURNED = 1 << 28,        /* elements of w: 1 GiB of workspace */
    MOST = 1 << 30
};

static bool has_columns(const og_kernel *kernel)
{
    const og_product *product = &kernel->products[0];
    int32_t last = kernel->space.rank - 1;
    return last >= 0 && kernel->space.n_reduced <= 1 && product->left.stride[last] == 0 &&
           product->right.stride[last] != 0;
}

static bool has_batch(const og_kernel *kernel)
{
    for (int32_t d = 0; d < kernel->space.rank - 1; d++)
        if (kernel->products[0].right.stride[d] != 0)
            return true;
    return false;
}

og_cuda_product_facts og_cuda_product_facts_of(const og_kernel *kernel)
{
    const og_product *product = &kernel->products[0];
    int32_t last = kernel->space.rank - 1;
    og_cuda_matrices s = og_cuda_see_matrices(kernel);
    og_cuda_product_facts facts = {.left = product->left.dtype,
                                   .right = product->right.dtype,
                                   .products = kernel->product_count,
                                   .passes = kernel->pass_count,
                                   .has_columns = has_columns(kernel),
                                   .k = product->k,
                                   .right_k_stride = product->right_k_stride,
                                   .sum_bytes = og_cuda_most_sum_bytes(&kernel->passes[0])};
    facts.has_plain_dims = facts.has_columns && !has_batch(kernel);
    facts.has_any_columns = s.n_dim >= 0 && kernel->space.n_reduced <= 1;
    if (facts.has_any_columns) {
        facts.m = s.base * s.m;
        facts.n = s.n;
    }
    if (facts.has_columns)
        facts.right_pitch = product->right.stride[last];
    return facts;
}

/* What TMA can fetch: see cuTensorMapEncodeTiled(). */
static const char *refuse_layout(const og_cuda_product_facts *facts)
{
    if (facts->right_k_stride != 1)
        return "the right factor's k are not side by side in memory";
    if (facts->right_pitch < facts->k)
        return "the right factor's rows overlap or run backwards";
    if (facts->right_pitch > MOST)
        return "a stride beyond 30 bits";
    if (facts->right_pitch * (int64_t)og_dtype_bytes(facts->right) % 16 != 0)
        return "the right factor's rows are not a multiple of 16 bytes apart";
    return NULL;
}

bool og_cuda_turns_right(const og_cuda_product_facts *facts)
{
    return refuse_layout(facts) != NULL;
}

/* What no tensor cores take. */
static const char *refuse_any(const og_cuda_product_facts *facts, bool strict, const char *forced)
{
    if (strict)
        return "strict";
    if (forced && strcmp(forced, "cores") == 0)
        return "OGIVE_PRODUCT=cores";
    if (facts->right == OG_FLOAT64)
        return "float64";
    if (facts->left != facts->right)
        return "factors of two dtypes";
    if (facts->products != 1)
        return "two products in one kernel";
    if (facts->passes != 1)
        return "several passes";
    return NULL;
}

static const char *refuse_shape(const og_cuda_product_facts *facts)
{
    if (!facts->has_columns)
        return "a transposed result";
    if (facts->n < LEAST_N || facts->k < LEAST_K)
        return "too small for tensor cores";
    return NULL;
}

/* What TMA cannot fetch as it lies is copied first, so layouts do not matter. */
static const char *refuse_half(const og_cuda_product_facts *facts)
{
    if (!facts->has_any_columns)
        return "no dim is of one factor alone and last";
    if (facts->n < LEAST_HALF_N || facts->k < LEAST_HALF_K)
        return "too small for tensor cores";
    if (facts->n > MOST || facts->k > MOST || facts->m > MOST)
        return "an extent beyond 30 bits";
    return NULL;
}

const char *og_cuda_refuse_sm90(const og_cuda_product_facts *facts, const og_cuda_limits *limits,
                                bool strict, const char *forced)
{
    const char *refused = refuse_any(facts, strict, forced);
    if (refused)
        return refused;
    if (forced && strcmp(forced, "mma") == 0)
        return "OGIVE_PRODUCT=mma";
    if (limits->arch != 90)
        return "it is of sm_90 only";
    if (limits->shared_per_block < SHARED_BYTES)
        return "too little shared memory";
    if (facts->right != OG_FLOAT32)
        return refuse_half(facts);
    refused = refuse_shape(facts);
    if (refused)
        return refused;
    if (!facts->has_plain_dims)
        return "a batch of products";
    if (facts->sum_bytes > MOST_SUM_BYTES)
        return "more reductions than shared memory has room for";
    if (facts->n > MOST || facts->k > MOST || facts->m > MOST)
        return "an extent beyond 30 bits";
    /* Turning w first has been tested, but not measured: only where it is asked for. */
    if (forced && strcmp(forced, "sm90") == 0 && facts->n <= MOST_TURNED / facts->k)
        return NULL;
    return refuse_layout(facts);
}

const char *og_cuda_refuse_mma(const og_cuda_product_facts *facts, const og_cuda_limits *limits,
                               bool strict, const char *forced)
{
    const char *refused = refuse_any(facts, strict, forced);
    if (!refused)
        refused = refuse_shape(facts);
    if (refused)
        return refused;
    if (forced && strcmp(forced, "sm90") == 0)
        return "OGIVE_PRODUCT=sm90";
    if (limits->arch < 80)
        return "they are used from sm_80 on";
    if (limits->shared_per_block < MMA_SHARED_BYTES)
        return "too little shared memory";
    if (facts->n > MOST || facts->k > MOST || facts->m > MOST)
        return "an extent beyond 30 bits";
    return NULL;
}
