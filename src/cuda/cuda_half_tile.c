/* SPDX-License-Identifier: MIT
 *
 * cuda_half_tile.c - see cuda_half_tile.h. A large tile fetches its operands less often, small
 * ones fill all multiprocessors: the least estimated time wins.
 */
#include "cuda/cuda_half_tile.h"

/* Cycles that blocks need for 64 k of all their tiles: multiplying 2048 elements a cycle, or
 * fetching bytes from L2, of which a multiprocessor gets 32 a cycle at most (H200: 7.8 TB/s were
 * seen). */
static double estimate(const og_cuda_half_shape *shape, const og_cuda_half_tile *tile,
                       int32_t multiprocessors)
{
    int64_t rows = tile->groups * 64, each = tile->shares_w ? 2 : 1;
    int64_t m_tiles = og_divide_up(shape->m, rows * each);
    int64_t n_tiles = og_divide_up(shape->n, tile->width);
    int64_t waves = og_divide_up(shape->batch * m_tiles * n_tiles, multiprocessors / each);
    /* Narrow products wait for shared memory. */
    double speed = tile->width == 256 ? 1.0 : tile->width == 128 ? 0.9 : 0.7;
    double multiplies = (double)rows * tile->width * 64 / (2048 * speed);
    double x = (double)og_min(rows, shape->m);
    double w = (double)og_min(tile->width, shape->n) / (double)each;
    double fetches = (x + w) * 128 / 32;
    return (double)waves * (multiplies > fetches ? multiplies : fetches);
}

og_cuda_half_tile og_cuda_choose_half_tile(const og_cuda_half_shape *shape, int32_t multiprocessors)
{
    static const og_cuda_half_tile tiles[] = {{2, 256, true},  {2, 256, false}, {2, 128, true},
                                              {2, 128, false}, {1, 256, true},  {1, 256, false},
                                              {1, 128, true},  {1, 128, false}, {2, 64, true},
                                              {2, 64, false},  {1, 64, true},   {1, 64, false}};
    og_cuda_half_tile best = {1, 64, false};
    double least = 0;
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
        const og_cuda_half_tile *tile = &tiles[i];
        if ((tile->shares_w && (shape->m <= tile->groups * 64 || multiprocessors < 2)) ||
            (tile->shares_w && tile->width == 64 && shape->w_is_across) ||
            (tile->groups == 2 && shape->m <= 64))
            continue;
        double time = estimate(shape, tile, multiprocessors);
        if (least == 0 || time < least * 0.99) {
            least = time;
            best = *tile;
        }
    }
    return best;
}
