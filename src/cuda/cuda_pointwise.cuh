/* SPDX-License-Identifier: MIT
 *
 * cuda_pointwise.cuh - a thread takes one vector along the last dim. Vectors are cut
 * where the lead (a store, if one is contiguous) is aligned, so that a row's first
 * and last vector may be partial; others are read by elements where they disagree.
 *
 * One vector a thread and as many blocks as that takes: measured on an H200, several
 * vectors a thread or a grid that stays were slower (4096x393216 float32: 3.02 ms,
 * a copy 3.006).
 *
 * PARAMETERS  OG_OUTER: are there dims before the last?
 */
OG_FN void og_apply(const og_args &a, const og_offsets &at, bool whole, const og_span &span)
{
    og_loads0 x;
    og_loads0::load(a, at, whole, span, x);
    OG_AFTER_LOADS();
    og_pass0::values y[OG_V];
    og_kept kept;
    og_row row;
#pragma unroll
    for (int i = 0; i < OG_V; i++)
        og_pass0::compute(a, row, kept, x, i, y[i]);
    og_pass0::store(a, at, span, &row, y);
}

OG_KERNEL(og_pointwise, OG_THREADS)
{
    og_index vector = (og_index)blockIdx.x * OG_THREADS + (og_index)threadIdx.x;
    og_offsets at = og_start();
    og_span span;
    if constexpr (!OG_OUTER) { /* the usual case, in few instructions */
        if (vector < a.whole && og_loads0::is_aligned(a, at) && og_lead(a, at) == 0) {
            span.begin = 0;
            span.end = OG_V;
            og_step_inner(a, vector * OG_V, at);
            og_apply(a, at, true, span);
            return;
        }
    }
    if (vector >= a.vectors)
        return;
    og_index outer = OG_OUTER ? og_divide(vector, a.per_row) : 0;
    og_seek_outer(a, outer, at);
    og_index first = (vector - outer * a.per_row.extent) * OG_V - og_lead(a, at);
    span = og_span_of(first, a.n);
    if (span.begin >= span.end)
        return;
    og_step_inner(a, first, at);
    og_apply(a, at, og_is_full(span) && og_loads0::is_aligned(a, at), span);
}
