/* SPDX-License-Identifier: MIT
 *
 * cuda_emit_windows.c - kernels that reduce windows of few taps: what windows.cuh is told of them.
 */
#include "cuda/emit/cuda_emit.h"

enum {
    THREADS = 256,
    MOST_TAPS = 128 /* that are unrolled */
};

/* Stores of elements, and sums of exponentials, are the columns' affair. */
ogive_status og_cuda_refuse_windows(og_cuda_emitter *e, const char **why)
{
    const og_kernel *kernel = e->kernel;
    const og_space *space = &kernel->space;
    const og_pass *pass = &kernel->passes[0];
    int64_t taps = og_cuda_count(space, space->rank - space->n_reduced, space->rank);
    bool stores = false;
    for (int32_t i = 0; i < pass->element_count; i++)
        stores |= pass->elements[i].op == OG_OP_STORE;
    bool fits = kernel->slides && kernel->pass_count == 1 && pass->reduction_count && !stores &&
                !og_cuda_has_terms(pass) && taps > 0 && taps <= MOST_TAPS && !og_cuda_serves(e);
    *why = fits ? NULL : "";
    return OGIVE_OK;
}

/* og_sees_all() */
static void add_sees_all(og_cuda_emitter *e)
{
    const og_kernel *kernel = e->kernel;
    const og_space *space = &kernel->space;
    int32_t place = kernel->access_count;
    og_text *to = &e->body;
    og_text_add(to, "\nOG_FN bool og_sees_all(const og_args &a, const og_offsets &at)\n{\n"
                    "    bool all = true;\n");
    for (int32_t i = 0; i < kernel->access_count; i++)
        for (int32_t w = 0; w < kernel->accesses[i].window_count; w++, place++) {
            const og_window *window = &kernel->accesses[i].windows[w];
            const int n = (int)place, number = n - (int)kernel->access_count;
            if (window->divisor > 1) {
                og_text_add(to, "    all = false;\n");
                continue;
            }
            og_text_add(to,
                        "    {\n        og_index least = at.o[%d] + a.windows[%d].start, most = "
                        "least;\n",
                        n, number);
            for (int32_t d = space->rank - space->n_reduced; d < space->rank; d++)
                if (og_window_step(window, d))
                    og_text_add(to,
                                "        og_reach_on(%d * og_stride<%d, %d>(a), least, most);\n",
                                (int)space->extent[d] - 1, n, (int)d);
            og_text_add(to,
                        "        all = all && least >= 0 && most < a.windows[%d].extent;\n    }\n",
                        number);
        }
    og_text_add(to, "    return all;\n}\n");
}

/* og_sum_window(): a loop for each dim of taps. */
static void add_sum_window(og_cuda_emitter *e, int64_t taps)
{
    const og_space *space = &e->kernel->space;
    const int32_t first = space->rank - space->n_reduced;
    og_text *to = &e->body;
    og_text_add(to,
                "\ntemplate <bool inside>\nOG_FN void og_sum_window(const og_args &a, const "
                "og_offsets &at%d, const og_row &row,\n                         "
                "og_sums0::sums &s)\n{\n    og_sums0::sums total = og_sums0::neutral();\n"
                "    s = og_sums0::neutral();\n",
                (int)first);
    for (int32_t d = first; d < space->rank; d++)
        og_text_add(to,
                    "#pragma unroll\n    for (int t%d = 0; t%d < %d; t%d++) {\n"
                    "        og_offsets at%d = at%d;\n"
                    "        og_move_all<%d>(a, t%d, at%d, og_all_places());\n",
                    (int)d, (int)d, (int)space->extent[d], (int)d, (int)d + 1, (int)d, (int)d,
                    (int)d, (int)d + 1);
    og_text_add(to, "        og_add_tap<inside>(a, at%d, row, s);\n", (int)space->rank);
    if (taps > OG_RUN) { /* runs of them, one after the other */
        og_text_add(to, "        const int tap = t%d", (int)first);
        for (int32_t d = first + 1; d < space->rank; d++)
            og_text_add(to, " * %d + t%d", (int)space->extent[d], (int)d);
        og_text_add(to,
                    ";\n        if (tap %% OG_RUN == OG_RUN - 1 || tap == %d) {\n"
                    "            og_sums0::merge(total, s);\n"
                    "            s = og_sums0::neutral();\n        }\n",
                    (int)taps - 1);
    }
    for (int32_t d = first; d < space->rank; d++)
        og_text_add(to, "    }\n");
    og_text_add(to, "%s}\n", taps > OG_RUN ? "    s = total;\n" : "");
}

ogive_status og_cuda_emit_windows(og_cuda_emitter *e)
{
    const og_space *space = &e->kernel->space;
    const int32_t kept_dims = space->rank - space->n_reduced;
    int64_t rows = og_cuda_count(space, 0, kept_dims);
    int64_t taps = og_cuda_count(space, kept_dims, space->rank);
    int64_t blocks = og_divide_up(rows, THREADS);
    OG_TRY(og_cuda_check_blocks(e, blocks));
    e->vector_dim = kept_dims - 1;
    e->vector = 1;
    e->threads = THREADS;
    e->sees_whole = true;
    OG_TRY(og_cuda_find_terms(e, false));
    og_cuda_add_numbers(e, (const og_cuda_number[]){{"OG_BLOCKS", 1}, {0}});
    og_cuda_include(&e->places, "reduce");
    og_cuda_add_operands(e);
    og_cuda_add_index(e, "n", taps);
    og_cuda_add_index(e, "rows", rows);
    og_cuda_add_seek_range(e, "og_seek_rows", 0, kept_dims);
    og_cuda_add_row(e);
    og_cuda_add_pass(e, 0);
    og_cuda_include(&e->body, "windows");
    add_sees_all(e);
    add_sum_window(e, taps);
    e->out->body = "windows, a thread each";
    OG_TRY(og_cuda_make_launches(e, 1));
    return og_cuda_add_launch(e, "og_windows", -1, blocks, e->threads);
}
