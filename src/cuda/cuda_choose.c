/* SPDX-License-Identifier: MIT
 *
 * cuda_choose.c - see cuda_choose.h.
 */
#include "cuda/cuda_choose.h"

#include <string.h>

enum {
    LEAST_N = 128,             /* a tile of columns: fewer would idle the tensor cores */
    LEAST_K = 128,             /* shorter sums gain nothing: x has to be split first */
    MOST_SUM_BYTES = 8,        /* that shared memory has room for beside the rings */
    SHARED_BYTES = 227 * 1024, /* of an H100 */
    MOST = 1 << 30
};

/* What TMA can fetch: see cuTensorMapEncodeTiled(). */
static const char *refuse_layout(const og_cuda_product_facts *facts)
{
    if (facts->right_k_stride != 1)
        return "the right factor's k are not side by side in memory";
    if (facts->right_pitch < facts->k)
        return "the right factor's rows overlap or run backwards";
    if (facts->right_pitch > MOST || facts->n > MOST || facts->k > MOST || facts->m > MOST)
        return "an extent or a stride beyond 30 bits";
    if (facts->right_pitch * (int64_t)og_dtype_bytes(facts->right) % 16 != 0)
        return "the right factor's rows are not a multiple of 16 bytes apart";
    return NULL;
}

const char *og_cuda_refuse_sm90(const og_cuda_product_facts *facts, const og_cuda_limits *limits,
                                bool strict, const char *forced)
{
    if (strict)
        return "strict";
    if (forced && strcmp(forced, "cores") == 0)
        return "OGIVE_PRODUCT=cores";
    if (limits->arch != 90)
        return "tensor cores are used on sm_90 only";
    if (limits->shared_per_block < SHARED_BYTES)
        return "too little shared memory for tensor cores";
    if (facts->right == OG_FLOAT64)
        return "float64";
    if (facts->left != facts->right)
        return "factors of two dtypes";
    if (facts->products != 1)
        return "two products in one kernel";
    if (facts->passes != 1)
        return "several passes";
    if (!facts->has_plain_dims)
        return "a batch of products, or a transposed result";
    if (facts->n < LEAST_N || facts->k < LEAST_K)
        return "too small for tensor cores";
    if (facts->sum_bytes > MOST_SUM_BYTES)
        return "more reductions than shared memory has room for";
    return refuse_layout(facts);
}
