/* SPDX-License-Identifier: MIT
 *
 * pointwise.cuh - a thread takes vectors along the last dim. They are cut where the
 * lead (a store, if one is contiguous) is aligned, so that a row's first and last vector
 * may be partial; others are read by elements where they disagree.
 *
 * As many blocks as it takes, each of which touches a few KiB of a tensor: measured on an
 * H200, blocks that touch more, or that stay, are slower (sigmoid of 4096x393216 float32:
 * 128 threads of two vectors 3.02 ms as a copy, 256 of two 3.12, 1024 of one 3.22, 1056
 * blocks that stay 3.37).
 *
 * PARAMETERS
 *   OG_OUTER   are there dims before the last?
 *   OG_BATCH   vectors a thread, OG_THREADS apart; 1 if OG_OUTER
 */
#include "cuda/kernels/lead.cuh"

OG_FN void og_finish(const og_args &a, const og_offsets &at, const og_span &span,
                     const og_loads0 &x)
{
    og_pass0::values y[OG_V];
    og_kept kept;
    og_row row;
#pragma unroll
    for (int i = 0; i < OG_V; i++)
        og_pass0::compute(a, row, kept, x, i, y[i]);
    og_pass0::store(a, at, span, &row, y);
}

/* Whole vectors of a block, of aligned tensors: the usual case, in few instructions. */
OG_FN void og_apply_batch(const og_args &a)
{
    og_loads0 x[OG_BATCH];
    og_offsets at[OG_BATCH];
    const og_span span = {0, OG_V};
#pragma unroll
    for (int i = 0; i < OG_BATCH; i++) {
        at[i] = og_start();
        og_step_inner(a, (og_index)blockIdx.x * (OG_BATCH * OG_THREADS * OG_V), at[i]);
        og_step_inner(a, (i * OG_THREADS + (int)threadIdx.x) * OG_V, at[i]);
        og_loads0::load(a, at[i], true, span, x[i]);
    }
    OG_AFTER_LOADS();
#pragma unroll
    for (int i = 0; i < OG_BATCH; i++) {
        OG_ASSUME(og_lead_is_aligned(a, at[i]));
        og_finish(a, at[i], span, x[i]);
    }
}

/* Any vector. */
OG_FN void og_apply(const og_args &a, og_index vector)
{
    og_offsets at = og_start();
    og_index outer = OG_OUTER ? og_divide(vector, a.per_row) : 0;
    og_seek_outer(a, outer, at);
    og_index first = (vector - outer * a.per_row.extent) * OG_V - og_lead(a, at);
    og_span span = og_span_of(first, a.n);
    if (span.begin >= span.end)
        return;
    og_step_inner(a, first, at);
    og_loads0 x;
    og_loads0::load(a, at, og_is_full(span) && og_loads0::is_aligned(a, at), span, x);
    OG_AFTER_LOADS();
    og_finish(a, at, span, x);
}

OG_KERNEL(og_pointwise, OG_THREADS)
{
    if constexpr (!OG_OUTER) {
        const og_offsets start = og_start();
        if (blockIdx.x < (uint32_t)a.full && og_loads0::is_aligned(a, start) &&
            og_lead_is_aligned(a, start)) {
            og_apply_batch(a);
            return;
        }
    }
    og_index vector = (og_index)blockIdx.x * (OG_THREADS * OG_BATCH) + (og_index)threadIdx.x;
#pragma unroll 1
    for (int i = 0; i < OG_BATCH && vector < a.vectors; i++, vector += OG_THREADS)
        og_apply(a, vector);
}
