/* SPDX-License-Identifier: MIT
 *
 * cuda_choose.h - which kernel computes a matrix product. The choice decides bits, so it
 * depends on what a row's result may depend on (k, n, dtypes, w's layout, precision,
 * architecture) and, short of sizes that no memory holds, never on how many rows there are.
 */
#ifndef OG_CUDA_CHOOSE_H
#define OG_CUDA_CHOOSE_H

#include "cuda/cuda_work.h"

typedef struct {
    og_dtype left, right;
    int32_t products, passes;
    bool has_columns;                    /* the last dim is the right factor's and not the left's */
    bool has_plain_dims;                 /* and no other is the right factor's: no batch */
    bool has_any_columns;                /* the last dim is one factor's and not the other's */
    int64_t m, n, k;                     /* m: all rows */
    int64_t right_k_stride, right_pitch; /* of the right factor's rows; elements */
    size_t sum_bytes;                    /* of what a pass reduces to */
} og_cuda_product_facts;

og_cuda_product_facts og_cuda_product_facts_of(const og_kernel *kernel);

/* Float32: must w be brought into another layout before TMA can fetch it? */
bool og_cuda_turns_right(const og_cuda_product_facts *facts);

/* NULL: cuda_sm90.cuh takes it. Else why not, for explain: "strict", "sm_80", ... forced:
 * the value of OGIVE_PRODUCT ("cores", "mma", "sm90"), or NULL. */
const char *og_cuda_refuse_sm90(const og_cuda_product_facts *facts, const og_cuda_limits *limits,
                                bool strict, const char *forced);

/* The same of cuda_mma.cuh, for what cuda_sm90.cuh does not take. */
const char *og_cuda_refuse_mma(const og_cuda_product_facts *facts, const og_cuda_limits *limits,
                               bool strict, const char *forced);

#endif
