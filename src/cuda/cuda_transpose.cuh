/* SPDX-License-Identifier: MIT
 *
 * cuda_transpose.cuh - pointwise kernels some of whose loads (og_kept) are contiguous
 * along another dim, `turned`, than the rest, `inner`. A block reads a tile of those as
 * they lie, leaves it in shared memory, and goes through it as the others lie. OG_V is 1:
 * a warp's 32 neighbours are enough for full speed, and no pitch has conflicts then.
 *
 * PARAMETERS  OG_TILE: elements of a tile's side, a multiple of 32
 */
enum { OG_TILE_ROWS = OG_THREADS / 32 };

OG_KERNEL(og_transpose, OG_THREADS)
{
    __shared__ og_kept tile[OG_TILE][OG_TILE + 1];
    const int x = threadIdx.x % 32, y = threadIdx.x / 32;
    og_index rest = og_divide((og_index)blockIdx.x, a.inner_tiles);
    const og_index inner = ((og_index)blockIdx.x - rest * a.inner_tiles.extent) * OG_TILE;
    const og_index outer = og_divide(rest, a.turned_tiles);
    const og_index turned = (rest - outer * a.turned_tiles.extent) * OG_TILE;
    og_span one;
    one.begin = 0;
    one.end = 1;
    og_offsets base = og_start();
    og_seek_outer(a, outer, base);
    og_step_inner(a, inner, base);
    og_step_turned(a, turned, base);
    const int width = a.inner - inner < OG_TILE ? (int)(a.inner - inner) : OG_TILE;
    const int height = a.turned - turned < OG_TILE ? (int)(a.turned - turned) : OG_TILE;

    og_kept read[OG_TILE / OG_TILE_ROWS][OG_TILE / 32];
#pragma unroll
    for (int i = 0; i < OG_TILE / OG_TILE_ROWS; i++)
#pragma unroll
        for (int t = 0; t < OG_TILE / 32; t++)
            if (i * OG_TILE_ROWS + y < width && 32 * t + x < height) {
                og_offsets at = base;
                og_step_inner(a, i * OG_TILE_ROWS + y, at);
                og_step_turned(a, 32 * t + x, at);
                og_kept::load(a, at, true, one, read[i][t]);
            }
#pragma unroll
    for (int i = 0; i < OG_TILE / OG_TILE_ROWS; i++)
#pragma unroll
        for (int t = 0; t < OG_TILE / 32; t++)
            tile[i * OG_TILE_ROWS + y][32 * t + x] = read[i][t];
    __syncthreads();
#pragma unroll
    for (int t = 0; t < OG_TILE; t += OG_TILE_ROWS)
#pragma unroll
        for (int i = 0; i < OG_TILE; i += 32)
            if (t + y < height && i + x < width) {
                og_offsets at = base;
                og_step_inner(a, i + x, at);
                og_step_turned(a, t + y, at);
                og_loads0 loads;
                og_loads0::load(a, at, true, one, loads);
                og_pass0::values values;
                og_row row;
                og_pass0::compute(a, row, tile[i + x][t + y], loads, 0, values);
                og_pass0::store(a, at, one, &row, &values);
            }
}
