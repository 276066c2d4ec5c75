/* SPDX-License-Identifier: MIT
 *
 * cuda_choose.c - see cuda_choose.h.
 */
#include "cuda/emit/cuda_choose.h"

#include "cuda/emit/cuda_emit.h"
#include "cuda/emit/cuda_window_tile.h"

#include <stdlib.h>

enum {
    /* Float32: x has to be split first. On an H200 8192 x 64 x 8192 took 0.264 ms by wgmma, 0.234
     * on CUDA cores, 32768 x 32768 x 64 1.95 and 4.02, 32768 x 32768 x 32 4.16 (when k = 64 took
     * 3.36) and 2.37. */
    LEAST_N = 128,
    LEAST_K = 64,                 /* by wgmma */
    LEAST_MMA_K = 128,            /* by mma.sync */
    LEAST_HALF_N = 16,            /* one result a thread would be a dot product */
    LEAST_HALF_K = 16,            /* a step of the tensor cores */
    MOST_SUM_BYTES = 8,           /* that shared memory has room for beside the rings */
    SHARED_BYTES = 227 * 1024,    /* of an H100 */
    MMA_SHARED_BYTES = 99 * 1024, /* of sm_86: the least from sm_80 on */
    MOST = 1 << 30
};

/* A sum that would not fit is INT64_MAX: too far for TMA. */
static void see_slabs(const og_kernel *kernel, og_cuda_product_facts *facts)
{
    const og_access *right = &kernel->products[0].right;
    bool is_back = false, fits = true;
    for (int32_t d = 0; d < facts->of.batch_rank; d++) {
        facts->right_slab = og_greatest_divisor(facts->right_slab, llabs(right->stride[d]));
        is_back |= right->stride[d] < 0;
    }
    facts->right_slab = is_back ? -facts->right_slab : facts->right_slab;
    for (int32_t d = 0; facts->right_slab && d < facts->of.batch_rank; d++) {
        int64_t steps;
        fits &= !__builtin_mul_overflow(llabs(right->stride[d] / facts->right_slab),
                                        kernel->space.extent[d] - 1, &steps) &&
                !__builtin_add_overflow(facts->right_last, steps, &facts->right_last);
    }
    facts->right_last = fits ? facts->right_last : INT64_MAX;
}

static bool lie_alike(const og_kernel *kernel, const og_access *a, const og_access *b)
{
    bool same = a->dtype == b->dtype;
    for (int32_t d = 0; d < kernel->space.rank; d++)
        same &= a->stride[d] == b->stride[d];
    return same;
}

static bool are_alike(const og_kernel *kernel)
{
    const og_product *a = &kernel->products[0], *b = &kernel->products[kernel->product_count - 1];
    return a->left.buffer == b->left.buffer && lie_alike(kernel, &a->left, &b->left) &&
           a->left_k_stride == b->left_k_stride && lie_alike(kernel, &a->right, &b->right) &&
           a->right_k_stride == b->right_k_stride && a->n == b->n && a->k == b->k;
}

og_cuda_product_facts og_cuda_product_facts_of(const og_kernel *kernel)
{
    const og_product *product = &kernel->products[0];
    int32_t n_dim = og_column_dim(kernel);
    og_cuda_product_facts facts = {.left = product->left.dtype,
                                   .right = product->right.dtype,
                                   .products = kernel->product_count,
                                   .passes = kernel->pass_count,
                                   .convolves = og_kernel_convolves(kernel),
                                   .by_places = product->by_places,
                                   .of = kernel->matrices,
                                   .own_n = product->n,
                                   .right_k_stride = product->right_k_stride,
                                   .right_pitch = n_dim < 0 ? 0 : product->right.stride[n_dim],
                                   .is_alike = are_alike(kernel),
                                   .sum_bytes = og_cuda_most_sum_bytes(&kernel->passes[0])};
    facts.has_columns = facts.right_pitch != 0 && !product->exchanged;
    see_slabs(kernel, &facts);
    return facts;
}

og_cuda_fetch og_cuda_fetch_right(const og_cuda_product_facts *facts)
{
    og_hopper_shape s = {.n = facts->of.n,
                         .k = facts->of.k,
                         .w_stride_k = facts->right_k_stride,
                         .w_stride_n = facts->right_pitch,
                         .w_slab = facts->right_slab,
                         .w_last = facts->right_last,
                         .has_batch = facts->of.batch_rank > 0};
    return og_hopper_fetch(&s);
}

/* What no tensor cores take. */
static const char *refuse_any(const og_cuda_product_facts *facts, const og_cuda_wishes *wishes)
{
    if (wishes->strict)
        return "strict";
    if (wishes->units == OG_CUDA_CORES)
        return "OGIVE_PRODUCT=cores";
    if (facts->right == OG_FLOAT64)
        return "float64";
    if (facts->left != facts->right)
        return "factors of two dtypes";
    if (facts->passes != 1)
        return "several passes";
    return NULL;
}

/* Of all products. */
static double count_rows(const og_cuda_product_facts *facts)
{
    return (double)facts->of.batch * (double)facts->of.m;
}

static bool is_beyond(const og_cuda_product_facts *facts)
{
    return facts->of.n > MOST || facts->of.k > MOST || count_rows(facts) > MOST;
}

static const char *refuse_shape(const og_cuda_product_facts *facts, int64_t least_k)
{
    if (!facts->has_columns)
        return "one column, or all the same";
    if (facts->own_n < LEAST_N || facts->of.k < least_k)
        return "too small for tensor cores";
    return NULL;
}

/* What TMA cannot fetch as it lies is copied first, so layouts do not matter. Of one column the
 * factors change places, and n would be the number of rows: that must not decide. */
static const char *refuse_half(const og_cuda_product_facts *facts)
{
    if (!facts->has_columns)
        return "one column, or all the same";
    if (facts->own_n < LEAST_HALF_N || facts->of.k < LEAST_HALF_K)
        return "too small for tensor cores";
    if (is_beyond(facts))
        return "an extent beyond 30 bits";
    return NULL;
}

const char *og_cuda_refuse_wgmma(const og_cuda_product_facts *facts, const og_cuda_limits *limits,
                                 const og_cuda_wishes *wishes)
{
    const char *refused = facts->convolves ? "" : refuse_any(facts, wishes);
    if (refused)
        return refused;
    if (wishes->units == OG_CUDA_MMA)
        return "OGIVE_PRODUCT=mma";
    if (limits->arch != 90)
        return "it is of sm_90 only";
    if (limits->shared_per_block < SHARED_BYTES)
        return "too little shared memory";
    if (facts->products != 1 && (facts->right == OG_FLOAT32 || !facts->is_alike))
        return "two products in one kernel";
    if (facts->right != OG_FLOAT32)
        return refuse_half(facts);
    refused = refuse_shape(facts, LEAST_K);
    if (refused)
        return refused;
    if (facts->sum_bytes > MOST_SUM_BYTES)
        return "more reductions than shared memory has room for";
    if (is_beyond(facts))
        return "an extent beyond 30 bits";
    /* Months of an H200; tiles and segments of less are counted in 63 bits. */
    if (count_rows(facts) * (double)facts->of.n * (double)facts->of.k > 0x1p70)
        return "more than 2^70 multiplications";
    return NULL;
}

/* A GPU, or a wish, that mma.sync is not for. */
static const char *refuse_gpu(const og_cuda_limits *limits, const og_cuda_wishes *wishes)
{
    if (wishes->units == OG_CUDA_WGMMA)
        return "OGIVE_PRODUCT=sm90";
    if (limits->arch < 80)
        return "they are used from sm_80 on";
    if (limits->shared_per_block < MMA_SHARED_BYTES)
        return "too little shared memory";
    return NULL;
}

const char *og_cuda_refuse_mma_sync(const og_cuda_product_facts *facts,
                                    const og_cuda_limits *limits, const og_cuda_wishes *wishes)
{
    const char *refused = facts->convolves ? "" : refuse_any(facts, wishes);
    if (!refused && facts->products != 1)
        refused = "two products in one kernel";
    if (!refused)
        refused = refuse_shape(facts, LEAST_MMA_K);
    if (!refused)
        refused = refuse_gpu(limits, wishes);
    if (!refused && is_beyond(facts))
        refused = "an extent beyond 30 bits";
    return refused;
}

/* What no kernel for convolutions takes. */
static const char *refuse_windows(const og_cuda_product_facts *facts, const og_cuda_limits *limits,
                                  const og_cuda_wishes *wishes)
{
    const char *refused = refuse_any(facts, wishes);
    if (refused)
        return refused;
    if (limits->arch != 90 || wishes->units == OG_CUDA_MMA)
        return ""; /* mma_windows.cuh's */
    if (limits->shared_per_block < SHARED_BYTES)
        return "too little shared memory";
    return NULL;
}

const char *og_cuda_refuse_convolution(const og_cuda_product_facts *facts,
                                       const og_cuda_limits *limits, const og_cuda_wishes *wishes)
{
    return facts->convolves && !facts->by_places ? refuse_windows(facts, limits, wishes) : "";
}

const char *og_cuda_refuse_by_places(const og_cuda_product_facts *facts,
                                     const og_cuda_limits *limits, const og_cuda_wishes *wishes)
{
    const bool takes = facts->by_places && (facts->convolves || facts->right != OG_FLOAT32);
    return takes ? refuse_windows(facts, limits, wishes) : "";
}

const char *og_cuda_refuse_mma_convolution(const og_cuda_product_facts *facts,
                                           const og_cuda_limits *limits,
                                           const og_cuda_wishes *wishes)
{
    const char *refused = facts->convolves ? refuse_any(facts, wishes) : "";
    if (refused)
        return refused;
    if (limits->arch == 90 && wishes->units != OG_CUDA_MMA)
        return ""; /* what wgmma does not take keeps its bits */
    return facts->by_places ? "a gradient by filters" : refuse_gpu(limits, wishes);
}

bool og_cuda_takes_two(const og_kernel *kernel, const og_cuda_limits *limits,
                       const og_cuda_wishes *wishes)
{
    og_cuda_product_facts facts = og_cuda_product_facts_of(kernel);
    return !og_cuda_refuse_wgmma(&facts, limits, wishes);
}

bool og_cuda_takes_phases(const og_kernel *kernel, const og_cuda_limits *limits,
                          const og_cuda_wishes *wishes)
{
    const og_cuda_product_facts facts = og_cuda_product_facts_of(kernel);
    og_window_shape s;
    return !og_cuda_refuse_convolution(&facts, limits, wishes) && !og_cuda_see_windows(kernel, &s);
}

/* ---- rows of the table of choices ------------------------------------------------------- */

/* Of another architecture there is nothing to tell, nor of another dtype. */
static const char *refuse_hopper(const og_cuda_emitter *e, bool is_half)
{
    og_cuda_product_facts facts = og_cuda_product_facts_of(e->kernel);
    const char *why = og_cuda_refuse_wgmma(&facts, e->limits, e->wishes);
    return (facts.right != OG_FLOAT32) != is_half || (why && e->limits->arch != 90) ? "" : why;
}

ogive_status og_cuda_refuse_hopper_float32(og_cuda_emitter *e, const char **why)
{
    *why = refuse_hopper(e, false);
    return OGIVE_OK;
}

ogive_status og_cuda_refuse_hopper_halves(og_cuda_emitter *e, const char **why)
{
    *why = refuse_hopper(e, true);
    return OGIVE_OK;
}

ogive_status og_cuda_refuse_mma(og_cuda_emitter *e, const char **why)
{
    og_cuda_product_facts facts = og_cuda_product_facts_of(e->kernel);
    *why = og_cuda_refuse_mma_sync(&facts, e->limits, e->wishes);
    return OGIVE_OK;
}
