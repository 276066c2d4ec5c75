/* SPDX-License-Identifier: MIT
 *
 * cuda_product_tile.c - see cuda_product_tile.h. A large tile reads its operands less often
 * and multiplies at full speed, small ones fill all multiprocessors, and the smallest, of
 * product_few.cuh, wait for memory the least: the least estimated time wins.
 */
#include "cuda/emit/cuda_product_tile.h"

enum {
    MOST_FEW_ROWS = 8,
    MOST_SUMS = 8192,                     /* of parts of k, in a product that is split */
    MOST_SPLIT_BYTES = 512 * 1024 * 1024, /* of scratch, that they take */
    MOST_PART = 1 << 20,                  /* blocks of k */
    GROUP_BLOCKS = OG_PRODUCT_GROUP / OG_PRODUCT_BLOCK,
    START_CYCLES = 2000,  /* until a block multiplies */
    END_CYCLES = 4500,    /* of pass 0; 32768 x 32768 x 32 in any tile, H200 */
    LAUNCH_CYCLES = 4000, /* 2 us: a launch that overlaps, and the wait for the one before it */
    SUM_CYCLES = 80,      /* of a sum that waits to be added to those before it */
    MOST_FEW_TILES = 4,   /* of a multiprocessor, of more than few rows: more were not measured */
    FEW_CYCLES = 5000,    /* from the first block's begin to the last one's end, besides k */
    FEW_ADD_CYCLES = 4400 /* of adding groups up, which begins before the first launch ends */
};

typedef struct {
    int32_t thread_m, thread_n, lanes_n, warps_m, warps_n, step, blocks; /* as in og_cuda_tile */
    double speed;  /* of a multiprocessor full of them, against the first's: of the second (0.92
                     to 0.96), of short and narrow ones measured on an H200, else estimated */
    bool is_short; /* for one block of k: sums of several would spill registers */
} candidate;

static const candidate float_tiles[] = {
    {8, 8, 8, 4, 2, 16, 1, 1.0, false},  {8, 8, 8, 2, 2, 16, 2, 0.95, false},
    {8, 8, 8, 4, 1, 16, 4, 0.85, true},  {8, 8, 8, 2, 1, 16, 4, 0.85, false},
    {4, 8, 8, 2, 2, 16, 2, 0.65, false}, {4, 8, 8, 1, 2, 16, 4, 0.6, false},
    {8, 4, 8, 4, 1, 32, 3, 0.75, false}, {4, 4, 4, 2, 1, 32, 8, 0.4, false}, /* narrow */
    {4, 8, 8, 1, 1, 16, 8, 0.5, false},
};

static const candidate double_tiles[] = {
    {4, 8, 8, 4, 1, 8, 2, 1.0, false},
    {4, 8, 8, 1, 2, 8, 4, 0.9, false},
    {4, 8, 8, 1, 1, 8, 8, 0.8, false},
};

int32_t og_cuda_product_levels(int64_t k)
{
    return k <= OG_PRODUCT_BLOCK ? 1 : k <= OG_PRODUCT_GROUP ? 2 : 3;
}

/* Numbers that a step of so many rows takes: og_part() of product.cuh. */
static size_t count_part(int32_t step, int32_t rows)
{
    return (size_t)step * (size_t)rows + (size_t)step / 4 * 8;
}

/* The slots of the last product lie where the buffers were, unless sums wait in them. */
static size_t count_shared(const og_cuda_tile *tile, const og_cuda_product_shape *shape)
{
    size_t number = shape->is_double ? sizeof(double) : sizeof(float);
    size_t buffers =
        2 * (count_part(tile->step, tile->rows) + count_part(tile->step, tile->columns)) * number;
    size_t slots = (size_t)tile->rows * (size_t)tile->columns * number;
    if (tile->part_blocks)
        return buffers;
    if (og_cuda_product_levels(shape->of.k) == 3)
        return buffers + (size_t)shape->products * slots;
    return (buffers > slots ? buffers : slots) + (size_t)(shape->products - 1) * slots;
}

static og_cuda_tile fill_tile(const candidate *from, const og_cuda_product_shape *shape,
                              int32_t part_blocks)
{
    og_cuda_tile tile = {.thread_m = from->thread_m,
                         .thread_n = from->thread_n,
                         .lanes_n = from->lanes_n,
                         .warps_m = from->warps_m,
                         .warps_n = from->warps_n,
                         .step = from->step,
                         .blocks = from->blocks,
                         .rows = 32 / from->lanes_n * from->thread_m * from->warps_m,
                         .columns = from->lanes_n * from->thread_n * from->warps_n,
                         .threads = 32 * from->warps_m * from->warps_n,
                         .part_blocks = part_blocks,
                         .leaves_groups = part_blocks % GROUP_BLOCKS == 0};
    tile.sums = og_divide_up(shape->of.k, tile.leaves_groups ? OG_PRODUCT_GROUP : OG_PRODUCT_BLOCK);
    tile.shared_bytes = count_shared(&tile, shape) + (size_t)tile.step * shape->table_bytes;
    return tile;
}

int64_t og_cuda_split_pitch(const og_cuda_product_shape *shape)
{
    return og_times(og_divide_up(shape->of.n, 4), 4);
}

double og_cuda_split_bytes(const og_cuda_product_shape *shape, int64_t sums)
{
    return (double)sums * (double)shape->of.batch * (double)shape->of.m *
           (double)og_cuda_split_pitch(shape) * shape->products * (shape->is_double ? 8 : 4);
}

/* How much of a multiprocessor's speed so many warps reach: it has four schedulers, and a
 * warp alone waits for memory. Estimated. */
static double speed_of_warps(int64_t warps, int64_t most)
{
    return warps >= og_min(most, 12) ? 1.0 : warps >= 4 ? 0.8 : warps >= 2 ? 0.45 : 0.25;
}

/* Clock cycles, roughly: of multiplying, where a multiprocessor makes 128 multiply-adds a
 * cycle; of beginning and ending tiles, while others multiply; of writing and reading the sums
 * of parts, where it has 16 bytes a cycle of an H200's memory; of a launch. */
static double estimate(const og_cuda_tile *tile, double speed, const og_cuda_product_shape *shape,
                       const og_cuda_limits *limits)
{
    int64_t blocks = shape->of.k > 0 ? og_divide_up(shape->of.k, OG_PRODUCT_BLOCK) : 1;
    int64_t part = tile->part_blocks ? tile->part_blocks : blocks;
    double tiles = (double)shape->of.batch * (double)og_divide_up(shape->of.m, tile->rows) *
                   (double)og_divide_up(shape->of.n, tile->columns) *
                   (double)og_divide_up(blocks, part);
    int32_t processors = limits->multiprocessors > 0 ? limits->multiprocessors : 1;
    double each = tiles / processors; /* of a multiprocessor, rounded up */
    each = each < 1e15 ? (double)og_divide_up((int64_t)tiles, processors) : each;
    int64_t at_once = each < tile->blocks ? (int64_t)each : tile->blocks;
    int64_t warps = tile->threads / 32, k = og_times(part, OG_PRODUCT_BLOCK);
    if (shape->of.k < k)
        k = shape->of.k > 0 ? og_divide_up(shape->of.k, tile->step) * tile->step : tile->step;
    double cycles = (double)tile->rows * tile->columns * (double)k / 128 /
                    (speed * speed_of_warps(at_once * warps, tile->blocks * warps));
    double idle = START_CYCLES + (tile->part_blocks ? 0 : END_CYCLES);
    cycles = each * (cycles + idle / (double)(at_once > 0 ? at_once : 1));
    if (tile->part_blocks)
        cycles += LAUNCH_CYCLES + END_CYCLES + SUM_CYCLES * (double)tile->sums +
                  2 * og_cuda_split_bytes(shape, tile->sums) / (16.0 * processors);
    return cycles;
}

typedef struct {
    int32_t rows, lanes_n, step;
} few_candidate;

/* Steps of 64 k wait for memory half as often as 32, those of 128 took longer; 32 columns have
 * enough on the way. */
static const few_candidate few_tiles[] = {{4, 8, 64},   {8, 8, 64},  {4, 16, 64}, {8, 16, 64},
                                          {16, 16, 64}, {4, 32, 32}, {8, 32, 32}, {16, 32, 32}};

/* A warp for each block of k, of a group at most; is_split: a block for each group. */
static og_cuda_tile fill_few(const few_candidate *from, const og_cuda_product_shape *shape,
                             bool is_split)
{
    size_t number = shape->is_double ? sizeof(double) : sizeof(float);
    og_cuda_tile tile = {.is_few = true,
                         .thread_m = from->rows * from->lanes_n / 32,
                         .thread_n = shape->reduces ? 2 : 1, /* OG_RUN columns are one block's */
                         .lanes_n = from->lanes_n,
                         .warps_m = 1,
                         .warps_n = 1,
                         .step = shape->reduces     ? 16
                                 : shape->is_double ? from->step / 2
                                                    : from->step,
                         .blocks = 1,
                         .rows = from->rows,
                         .part_blocks = is_split ? GROUP_BLOCKS : 0,
                         .leaves_groups = true,
                         .sums = og_divide_up(shape->of.k, OG_PRODUCT_GROUP)};
    while (tile.warps_m * OG_PRODUCT_BLOCK < shape->of.k &&
           tile.warps_m * OG_PRODUCT_BLOCK < OG_PRODUCT_GROUP)
        tile.warps_m *= 2;
    tile.columns = tile.lanes_n * tile.thread_n;
    tile.threads = 32 * tile.warps_m;
    size_t pitch_bytes = (size_t)tile.step * number + 16; /* OG_ROW_PITCH */
    tile.shared_bytes = (size_t)(tile.warps_m * (tile.rows + tile.columns)) * pitch_bytes;
    return tile;
}

/* Tiles, or groups of them, of a multiprocessor. */
static double count_few(const og_cuda_tile *tile, const og_cuda_product_shape *shape,
                        int64_t processors)
{
    double tiles = (double)shape->of.batch * (double)og_divide_up(shape->of.m, tile->rows) *
                   (double)og_divide_up(shape->of.n, tile->columns) *
                   (tile->part_blocks ? (double)tile->sums : 1);
    return tiles < 1e15 ? (double)og_divide_up((int64_t)tiles, processors) : tiles / processors;
}

/* Clock cycles, as estimate() does: a warp's block of k costs for its sums and for what it reads
 * of x and w, all warps of a multiprocessor in turn. Fitted on an H200: products of 1 to 4096
 * rows, 8 to 128 columns and 256 to 65536 k in every one of these tiles; with 7000 for launching
 * it is within 20 % of them. */
static double estimate_few(const og_cuda_tile *tile, const og_cuda_product_shape *shape,
                           int64_t processors)
{
    double k = shape->of.k < OG_PRODUCT_BLOCK
                   ? (double)(og_divide_up(shape->of.k, tile->step) * tile->step)
                   : OG_PRODUCT_BLOCK;
    double sums = (double)tile->rows * tile->columns, lines = tile->rows + tile->columns;
    double block = (320 + 3.6 * sums + 30 * lines) * (k / OG_PRODUCT_BLOCK) * shape->products *
                   (shape->is_double ? 2 : 1);
    double groups = tile->part_blocks || tile->sums < 1 ? 1 : (double)tile->sums;
    double cycles =
        FEW_CYCLES + count_few(tile, shape, processors) * groups * tile->warps_m * block;
    if (tile->part_blocks)
        cycles += FEW_ADD_CYCLES +
                  2 * og_cuda_split_bytes(shape, tile->sums) / (16.0 * (double)processors);
    return cycles;
}

/* The best of few_tiles, or one without rows. */
static og_cuda_tile take_few(const og_cuda_product_shape *shape, const og_cuda_limits *limits,
                             double *least)
{
    og_cuda_tile best = {0};
    int64_t processors = limits->multiprocessors > 0 ? limits->multiprocessors : 1;
    for (size_t i = 0; i < sizeof few_tiles / sizeof *few_tiles; i++)
        for (int is_split = 0; is_split <= (shape->of.k > OG_PRODUCT_GROUP); is_split++) {
            og_cuda_tile tile = fill_few(&few_tiles[i], shape, is_split);
            double time = estimate_few(&tile, shape, processors);
            bool fits = tile.shared_bytes <= limits->shared_per_block &&
                        (!shape->reduces || (tile.lanes_n == 32 && tile.rows <= MOST_FEW_ROWS &&
                                             shape->of.m <= tile.rows)) &&
                        (shape->of.m <= MOST_FEW_ROWS ||
                         count_few(&tile, shape, processors) <= MOST_FEW_TILES) &&
                        (!is_split || og_cuda_split_bytes(shape, tile.sums) <= MOST_SPLIT_BYTES);
            if (fits && (best.rows == 0 || time < *least)) {
                best = tile;
                *least = time;
            }
        }
    return best;
}

/* The best tile of the candidates, whole or with k split in any way. */
static og_cuda_tile take_tile(const candidate *from, size_t count,
                              const og_cuda_product_shape *shape, const og_cuda_limits *limits,
                              double *least)
{
    og_cuda_tile best = {0};
    int64_t blocks = og_divide_up(shape->of.k, OG_PRODUCT_BLOCK);
    for (size_t i = 0; i < count; i++)
        for (int32_t part = 0; part < og_min(og_max(blocks, 1), MOST_PART);
             part = part ? 2 * part : 1) {
            og_cuda_tile tile = fill_tile(&from[i], shape, part);
            double time = estimate(&tile, from[i].speed, shape, limits);
            bool fits = tile.shared_bytes <= limits->shared_per_block &&
                        (!part || (tile.sums <= MOST_SUMS &&
                                   og_cuda_split_bytes(shape, tile.sums) <= MOST_SPLIT_BYTES)) &&
                        (blocks <= 1 || !from[i].is_short) &&
                        (part || !shape->reduces || tile.thread_n == 8); /* runs of columns */
            bool is_last = i + 1 == count && best.rows == 0;
            if ((fits && (best.rows == 0 || time < *least)) || is_last) {
                best = tile;
                *least = time;
            }
        }
    return best;
}

og_cuda_tile og_cuda_choose_tile(const og_cuda_product_shape *shape, const og_cuda_limits *limits)
{
    double few_time = 0, time = 0;
    og_cuda_tile few = {0};
    if (!shape->table_bytes)
        few = take_few(shape, limits, &few_time);
    if (few.rows && shape->of.m <= MOST_FEW_ROWS)
        return few;
    og_cuda_tile tile = shape->is_double
                            ? take_tile(double_tiles, sizeof double_tiles / sizeof *double_tiles,
                                        shape, limits, &time)
                            : take_tile(float_tiles, sizeof float_tiles / sizeof *float_tiles,
                                        shape, limits, &time);
    return few.rows && few_time < time ? few : tile;
}
