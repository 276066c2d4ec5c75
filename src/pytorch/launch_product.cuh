/* SPDX-License-Identifier: MIT
 *
 * launch_product.cuh - the launches of a product, as cuda_emit_product.c and cuda_emit_mma.c have
 * them, for sizes that are known when they are called. Before it comes the kernel's source, after it
 * og_fill(), which knows the formula's operands.
 */
#include "pytorch/launch_fill.cuh"

enum {
    OG_PLACE_MN = OG_DIMS - OG_N_DIMS, /* dims of the batch and of rows */
    OG_STEP = 64                       /* k of a step on tensor cores */
};

static int64_t og_place(og_args &a, char *scratch, int64_t rows, int64_t runs, int64_t k_padded)
{
    int64_t bytes = 0;
#if OG_BODY == 256 || OG_BODY == 512
    OG_REGION(x_pairs, (rows + OG_BM) * (OG_PAIRS ? 4 : 2) * k_padded)
    OG_REGION(any_redo, 4)
#endif
#if OG_BODY == 256
    OG_REGION(x_scales, rows * 8)
    OG_REGION(redo, rows * runs)
#endif
#if OG_REDUCES
    OG_REGION(sums0, rows * og_count_partials(runs) * (int64_t)sizeof(og_sums0::sums))
#endif
#if OG_TERMS
    OG_REGION(terms0, rows * og_count_partials(runs) * (int64_t)sizeof(og_terms0::sums))
#endif
    return bytes;
}

#if OG_BODY == 128 /* CUDA cores */
static int og_multiply(og_args &a, const Args &c, int64_t, int64_t, int64_t blocks)
{
    const int64_t buffers = 2 * OG_BUFFER, slots = OG_BM * OG_BN;
    const int64_t most = buffers > slots ? buffers : slots;
    return OG_LAUNCH(og_tiles, blocks, OG_THREADS,
                     (OG_LEVELS == 3 ? buffers + slots : most) * (int64_t)sizeof(og_number), false,
                     c.stream, a);
}
#elif OG_BODY == 256 /* pairs */
static int og_multiply(og_args &a, const Args &c, int64_t rows, int64_t runs, int64_t blocks)
{
    const int64_t groups = og_count_parts(a.m, OG_CUDA_REDO_GROUP);
    const int64_t items = rows / a.m * groups * runs, most = c.multiprocessors * OG_CUDA_REDO_BLOCKS;
    const int lanes = og_split_lanes(rows, a.k_padded, c.multiprocessors);
    const int threads = og_split_threads(lanes);
    int error;
    a.runs = (og_index)runs;
    a.redo_pitch = (og_index)rows;
    a.redo_groups = (og_index)groups;
    a.redo_items = (og_index)items;
    a.split_rows = (og_index)rows;
    a.split_lanes = lanes;
    error = OG_LAUNCH(og_split, og_count_parts(rows, threads / lanes), threads, 0, false, c.stream, a);
    if (!error)
        error = OG_LAUNCH(og_multiply_mma, blocks, OG_THREADS, OG_SHARED_BYTES, false, c.stream, a);
    return error ? error
                 : OG_LAUNCH(og_redo, items < most ? items : most, OG_CUDA_REDO_THREADS,
                             OG_CUDA_REDO_BYTES, false, c.stream, a);
}
#else /* halves */
static int og_multiply(og_args &a, const Args &c, int64_t rows, int64_t, int64_t blocks)
{
    const int threads = c.k >= 4 * OG_CUDA_SPLIT_THREADS ? OG_CUDA_SPLIT_THREADS
                                                         : (int)og_count_parts(c.k, 128) * 32;
    const int error = OG_LAUNCH(og_copy_rows, rows, threads, 0, false, c.stream, a);
    return error ? error
                 : OG_LAUNCH(og_multiply_mma, blocks, OG_THREADS, OG_SHARED_BYTES, false, c.stream, a);
}
#endif

/* A cudaError_t; or, without scratch, how many bytes of it there must be. */
extern "C" __attribute__((visibility("default"))) int64_t ogive_run(const Args *c)
{
    const int64_t batch = og_count_dims(*c, 0, OG_BATCH_DIMS);
    const int64_t m = og_count_dims(*c, OG_BATCH_DIMS, OG_PLACE_MN), rows = batch * m;
    const int64_t n = og_count_dims(*c, OG_PLACE_MN, OG_DIMS), runs = og_count_parts(n, OG_RUN);
    const int64_t k_padded = og_count_parts(c->k, OG_STEP) * OG_STEP;
    og_args a = og_bind(*c);
    const int64_t bytes = og_place(a, (char *)c->scratch, rows, runs, k_padded);
    if (!c->scratch)
        return bytes ? bytes : 1;
    a.left0 = (const OG_LEFT *)c->data[OG_OPERANDS];
    a.right0 = (const OG_RIGHT *)c->data[OG_OPERANDS + 1];
    a.left0_k = (og_index)c->k_stride[0];
    a.right0_k = (og_index)c->k_stride[1];
    a.m = (og_index)m;
    a.n = (og_index)n;
    a.k = (og_index)c->k;
    a.rows = (og_index)rows;
    a.m_tiles = (og_index)og_count_parts(m, OG_BM);
    a.n_tiles = (og_index)og_count_parts(n, OG_BN);
#if OG_BODY == 256 || OG_BODY == 512
    a.x_k = (og_index)c->k_stride[0];
    a.k_padded = (og_index)k_padded;
#endif
#if OG_REDUCES
    a.chunks = og_make_divisor(runs);
    a.partials = (og_index)og_count_partials(runs);
#endif
    int error = 0;
    if (n > 0)
        error = og_multiply(a, *c, rows, runs, batch * a.m_tiles * a.n_tiles);
#if OG_REDUCES && !OG_ENDS_ROWS
    if (!error)
        error = OG_LAUNCH(og_combine0, og_count_parts(rows, OG_COMBINE_THREADS / OG_COMBINERS),
                          OG_COMBINE_THREADS, 0, false, c->stream, a);
#endif
    return error;
}
