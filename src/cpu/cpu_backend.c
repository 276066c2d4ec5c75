/* SPDX-License-Identifier: MIT
 *
 * cpu_backend.c - the CPU as a backend of the plan, and what explain says of it.
 */
#include "cpu/cpu_packed.h"
#include "cpu/cpu_product_run.h"
#include "cpu/cpu_slabs.h"
#include "plan/backend.h"

#include <inttypes.h>

static ogive_status prepare(const og_plan *plan, const og_placement *placement,
                            const ogive_options *options, void **state, size_t *workspace_bytes,
                            ogive_error *error)
{
    OG_TRY(og_cpu_prepare(plan, options, state, workspace_bytes, error));
    og_cpu_state *made = *state;
    made->input_names = placement->input_names;
    ogive_status status = og_cpu_check_packed(plan, made, error);
    if (status != OGIVE_OK) {
        og_cpu_release(made);
        *state = NULL;
    }
    return status;
}

static int32_t count_threads(const og_plan *plan, const void *state, int32_t kernel)
{
    (void)plan;
    return ((const og_cpu_state *)state)->compiled[kernel].threads;
}

static void explain_pieces(const og_cpu_kernel *k, og_text *text)
{
    if (k->layout == OG_CPU_COLUMNS)
        og_text_add(text, "%" PRId64 " columns a tile", k->tile_rows);
    else if (k->layout == OG_CPU_ROWS && k->many)
        og_text_add(text, "%" PRId64 " row%s of %" PRId64 " a tile", k->tile_rows,
                    k->tile_rows == 1 ? "" : "s", k->n);
    else if (k->layout == OG_CPU_ROWS)
        og_text_add(text, "a row a tile, in pieces of %" PRId64, k->piece_inner);
    else if (k->piece_outer > 1)
        og_text_add(text, "pieces of %" PRId64 " x %" PRId64, k->piece_outer, k->piece_inner);
    else
        og_text_add(text, "pieces of %" PRId64, k->piece_inner);
}

static void explain_slabs(const og_cpu_state *s, int32_t kernel, og_text *text)
{
    for (const og_cpu_slabs *slabs = s->slabs; slabs; slabs = slabs->next) {
        if (kernel >= slabs->first && kernel < slabs->first + slabs->count)
            og_text_add(text,
                        "  with kernels %d to %d in %" PRId64 " slabs of %" PRId64
                        " rows, of which a cache keeps %zu bytes, %d thread%s\n",
                        (int)slabs->first, (int)(slabs->first + slabs->count - 1), slabs->slabs,
                        og_cpu_count_slab_rows(slabs), slabs->kept_bytes, (int)slabs->threads,
                        slabs->threads == 1 ? "" : "s");
    }
}

static void explain(const og_plan *plan, const void *state, int32_t kernel, og_text *text)
{
    const og_cpu_state *s = state;
    const og_cpu_kernel *k = &s->compiled[kernel];
    const og_product *product = plan->kernels[kernel].products;
    int64_t tiles = k->product ? k->product->tile_count : k->tile_count;
    if (tiles == 0) {
        og_text_add(text, "nothing to do\n");
        return;
    }
    if (k->product)
        og_cpu_explain_product(k, text);
    else
        explain_pieces(k, text);
    og_text_add(text, ", %" PRId64 " tile%s", tiles, tiles == 1 ? "" : "s");
    if (k->split)
        og_text_add(text, ", each split into %" PRId64 " parts", k->part_count);
    og_text_add(text, ", %d block register%s, %d thread%s, %s\n", (int)k->register_count,
                k->register_count == 1 ? "" : "s", (int)k->threads, k->threads == 1 ? "" : "s",
                s->level);
    if (k->product && product->left.dtype == OG_FLOAT32 && product->right.dtype == OG_FLOAT32)
        og_text_add(text, "  each sum is within %" PRId64 " * 2^-24 of sum |x||w|\n",
                    og_strict_units(product->k));
    explain_slabs(s, kernel, text);
}

const og_backend og_cpu_backend = {
    .name = "cpu",
    .prepare = prepare,
    .release = og_cpu_release,
    .run = og_cpu_run,
    .threads = count_threads,
    .explain = explain,
    .packed_bytes = og_cpu_packed_bytes,
    .pack = og_cpu_pack,
};
