/* SPDX-License-Identifier: MIT
 *
 * cuda_half_tile.c - see cuda_half_tile.h. A large tile fetches its operands less often, small
 * ones fill all multiprocessors: the least estimated time wins.
 */
#include "cuda/emit/cuda_half_tile.h"

#include <stdio.h>
#include <string.h>

/* Cycles that blocks need for 64 k of all their tiles: multiplying 2048 elements a cycle, or
 * fetching bytes from L2, of which a multiprocessor gets 64 a cycle at most (H200: 14 TB/s were
 * seen). Of two products, what comes after them takes about 10600 cycles for 128 x 128 results
 * (silu, k = 4096), or is hidden but at the ends. */
static double estimate(const og_cuda_half_shape *shape, const og_cuda_half_tile *tile,
                       int32_t multiprocessors)
{
    int64_t rows = tile->groups * 64, columns = tile->width / shape->products;
    int32_t of_w = tile->shares_w ? 2 : 1, of_x = tile->shares_x ? 2 : 1; /* that share it */
    int64_t tiles =
        og_divide_up(shape->of.m, rows * of_w) * og_divide_up(shape->of.n, columns * of_x);
    int64_t waves = og_divide_up(shape->of.batch * tiles, multiprocessors / (of_w * of_x));
    /* Narrow products wait for shared memory. */
    double speed = tile->width == 256 ? 1.0 : tile->width == 128 ? 0.9 : 0.7;
    double multiplies = (double)(rows * tile->width * 64) / (2048 * speed);
    double x = (double)og_min(rows, shape->of.m) / of_x;
    double w = (double)(og_min(columns, shape->of.n) * shape->products) / of_w;
    double fetches = (x + w) * 128 / 64;
    double after = shape->products == 2 ? (double)(rows * columns) / 100 : 0;
    double each = multiplies > fetches ? multiplies : fetches;
    return tile->alternates ? (double)waves * each + 3 * after : (double)waves * (each + after);
}

bool og_cuda_takes_half_tile(const og_cuda_half_shape *shape, const og_cuda_half_tile *tile,
                             int32_t multiprocessors)
{
    int64_t rows = tile->groups * 64, columns = tile->width / shape->products;
    /* Pass 0 takes 64 columns at a time. */
    if (columns < 64)
        return false;
    if ((tile->shares_w || tile->shares_x) && multiprocessors < 2)
        return false;
    /* Half of a box is at least 64 wide if it lies across k, else 8 lines. */
    if (tile->shares_w && (shape->of.m <= rows || (columns == 64 && shape->w_is_across)))
        return false;
    if (tile->shares_x &&
        (shape->of.n <= columns || shape->of.m <= 8 || (rows == 64 && shape->x_is_across)))
        return false;
    /* Registers: alternating, a warpgroup has two sums of 64 rows; of a long k, it has three. */
    if (tile->alternates && (tile->groups != 2 || tile->width != 128 || shape->is_long))
        return false;
    return !(tile->shares_w && tile->shares_x) && !(shape->is_long && tile->width == 256);
}

/* Blocks that share wait for each other. H200: sharing w takes 0.4 % off 4096 rows, and adds 1 to
 * 3 % to 256 to 1024; sharing x takes 2 to 4 % off 128 x 32768 x 32768, where w comes from memory
 * as fast as it can. Of two products, sharing w adds 1 to 2 %, sharing x 3 % to 128 x 11008 x 4096.
 * Of one there is less to hide by alternating. */
static bool is_worth_it(const og_cuda_half_shape *shape, const og_cuda_half_tile *tile)
{
    if (shape->products == 2)
        return !tile->shares_w && !tile->shares_x;
    return !tile->alternates && (!tile->shares_w || shape->of.m > 1024) &&
           (!tile->shares_x || shape->of.m <= 128);
}

og_cuda_half_tile og_cuda_choose_half_tile(const og_cuda_half_shape *shape, int32_t multiprocessors)
{
    static const og_cuda_half_tile tiles[] = {
        {2, 128, false, false, true},  {2, 256, true, false, false}, {2, 256, false, true, false},
        {2, 256, false, false, false}, {2, 128, true, false, false}, {2, 128, false, true, false},
        {2, 128, false, false, false}, {2, 64, false, false, false}, {1, 256, false, false, false},
        {1, 128, false, false, false}, {1, 64, false, false, false}};
    og_cuda_half_tile best = {1, 64 * shape->products, false, false, false};
    double least = 0;
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
        const og_cuda_half_tile *tile = &tiles[i];
        if (!og_cuda_takes_half_tile(shape, tile, multiprocessors) || !is_worth_it(shape, tile) ||
            (tile->groups == 2 && shape->of.m <= 64))
            continue;
        double time = estimate(shape, tile, multiprocessors);
        if (least == 0 || time < least * 0.99) {
            least = time;
            best = *tile;
        }
    }
    return best;
}

bool og_cuda_read_half_tile(const char *text, og_cuda_half_tile *out)
{
    int rows, width, length = 0;
    if (sscanf(text, "%3dx%3d%n", &rows, &width, &length) != 2 || (rows != 64 && rows != 128) ||
        (width != 64 && width != 128 && width != 256))
        return false;
    const char *rest = text + length;
    bool alternates = *rest == 'a';
    rest += alternates;
    *out = (og_cuda_half_tile){rows / 64, width, strcmp(rest, "w") == 0, strcmp(rest, "x") == 0,
                               alternates};
    return !*rest || out->shares_w || out->shares_x;
}
