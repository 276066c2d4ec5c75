/* SPDX-License-Identifier: MIT
 *
 * launch_any.cuh - the launches of a kernel that any sizes, strides and dtypes may meet, as
 * cuda_emit_pointwise.c, cuda_emit_rows.c and cuda_emit_columns.c have them. Before it comes the
 * kernel's source, after it what is the formula's: og_fill() and, of bodies that are split,
 * og_place() and og_launch_all().
 *
 * PARAMETERS
 *   OG_BODY   1 << one of og_cuda_body: which body the source has
 */
#include "pytorch/launch_fill.cuh"

/* Blocks that find parts, and those that combine them. */
struct og_grid {
    int64_t rows, partials; /* row values; sums of parts */
    int64_t parts, combines;
};

#if OG_BODY == 2 /* vectors */
static og_grid og_shape(og_args &a, const Args &c)
{
    const int64_t n = c.extent[OG_DIMS - 1], per_row = og_count_parts(n - 1, OG_V) + 1;
    const int64_t vectors = og_count_dims(c, 0, OG_DIMS - 1) * per_row;
    og_grid grid = {0, 0, og_count_parts(vectors, OG_THREADS * OG_BATCH), 0};
    a.n = (og_index)n;
    a.vectors = (og_index)vectors;
    a.per_row = og_make_divisor(OG_OUTER ? per_row : 1);
    a.full = (og_index)(n / OG_V / (OG_THREADS * OG_BATCH));
    return grid;
}
#elif OG_BODY == 4 || OG_BODY == 8 /* rows, whole or chunk by chunk */
static og_grid og_shape(og_args &a, const Args &c)
{
    og_grid grid = {};
    const int64_t n = og_count_dims(c, OG_KEPT_DIMS, OG_DIMS);
    grid.rows = og_count_dims(c, 0, OG_KEPT_DIMS);
    a.n = (og_index)n;
    a.rows = (og_index)grid.rows;
#if OG_BODY == 4
    grid.parts = og_count_parts(grid.rows, OG_THREADS / OG_GROUP);
#else
    const int64_t chunks = n > OG_CHUNK ? og_count_parts(n, OG_CHUNK) : 1;
    a.chunks = og_make_divisor(chunks);
    a.partials = (og_index)og_count_partials(chunks);
    grid.partials = grid.rows * og_count_partials(chunks);
    grid.parts = grid.rows * chunks;
    grid.combines = og_count_parts(grid.rows, OG_COMBINE_THREADS / OG_COMBINERS);
#endif
    return grid;
}
#else /* columns */
static og_grid og_shape(og_args &a, const Args &c)
{
    og_grid grid = {};
    const int64_t n = og_count_dims(c, OG_KEPT_DIMS, OG_DIMS), columns = c.extent[OG_KEPT_DIMS - 1];
    const int64_t per_row = og_count_parts(columns, OG_V);
    const int64_t vectors = per_row * og_count_dims(c, 0, OG_KEPT_DIMS - 1);
    const int64_t tiles = og_count_parts(n, OG_RUN * OG_RUN);
    a.n = (og_index)n;
    a.columns = (og_index)columns;
    a.vectors = (og_index)vectors;
    a.tiles = (og_index)tiles;
    a.per_row = og_make_divisor(per_row);
    grid.combines = grid.parts = og_count_parts(vectors, OG_X);
#if OG_BODY == 64 /* each tile by a block of its own */
    a.blocks = og_make_divisor(grid.combines);
    a.tiles_of_tiles = (og_index)og_count_parts(tiles, OG_RUN * OG_RUN);
    grid.rows = vectors * OG_V;
    grid.partials = tiles * grid.rows;
    grid.parts = tiles * grid.combines;
#endif
    return grid;
}
#endif

#if OG_BODY == 8 || OG_BODY == 64
#define OG_NEXT(kernel, blocks, threads, overlaps)                                                 \
    if (!error)                                                                                    \
        error = OG_LAUNCH(kernel, blocks, threads, 0, overlaps, stream, a);

static int64_t og_place(og_args &a, char *scratch, const og_grid &grid);
static int og_launch_all(og_args &a, const og_grid &grid, void *stream);
#else
#if OG_BODY == 2
#define OG_ENTRY og_pointwise
#elif OG_BODY == 4
#define OG_ENTRY og_rows
#else
#define OG_ENTRY og_columns
#endif

static int64_t og_place(og_args &, char *, const og_grid &)
{
    return 0;
}

static int og_launch_all(og_args &a, const og_grid &grid, void *stream)
{
    return OG_LAUNCH(OG_ENTRY, grid.parts, OG_THREADS, 0, false, stream, a);
}
#endif

/* A cudaError_t; or, without scratch, how many bytes of it there must be. */
extern "C" __attribute__((visibility("default"))) int64_t ogive_run(const Args *c)
{
    og_args a = og_bind(*c);
    const og_grid grid = og_shape(a, *c);
    const int64_t bytes = og_place(a, (char *)c->scratch, grid);
    return c->scratch ? og_launch_all(a, grid, c->stream) : bytes;
}
