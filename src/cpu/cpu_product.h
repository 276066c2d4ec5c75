/* SPDX-License-Identifier: MIT
 *
 * cpu_product.h - a tile of a matrix product: c[m, n] = sum over k of
 * left[m, k] * right[n, k]. One table per CPU level, all compiled from
 * cpu_product_template.c. Which tiles there are, on which thread each is made and
 * what is done with it while it is in the cache is the caller's affair: tiles
 * depend on nothing but the operands. Two products of a kernel are cut alike.
 *
 * The order of the sum is that of plan.h. It is part of the result's definition,
 * never a matter of tuning: the same bits at every level, for every tiling, position,
 * stride and dtype.
 */
#ifndef OG_CPU_PRODUCT_H
#define OG_CPU_PRODUCT_H

#include "cpu/cpu_levels.h"
#include "plan/plan.h"

enum {
    OG_PRODUCT_COLUMNS = OG_RUN, /* tiles begin at multiples of it */
    OG_PRODUCT_WHOLE = 256       /* most columns of a tile */
};

/* Dims, the last fastest: what is added to an offset, and to the place of each window, for one step
 * along each of them. */
typedef struct {
    int32_t rank;
    int64_t extent[OG_MAX_RANK], stride[OG_MAX_RANK];
    int64_t step[OG_MAX_WINDOWS][OG_MAX_RANK];
} og_cpu_line;

/* A factor that is no matrix: rows and k are several dims, and an element is 0 unless the place of
 * each of its windows is in [0, extent). */
typedef struct {
    og_cpu_line rows, k;
    int32_t window_count;
    int64_t extent[OG_MAX_WINDOWS];
} og_cpu_view;

/* Element (i, k) is at element i * stride + k * k_stride of data; or, with a view, as that says,
 * offset and places being those of (0, 0). */
typedef struct {
    const void *data;
    og_dtype dtype;
    int64_t stride, k_stride; /* with a view 0 */
    const og_cpu_view *view;  /* or NULL */
    int64_t offset, places[OG_MAX_WINDOWS];
} og_cpu_factor;

typedef struct {
    og_cpu_factor left, right;
    bool paired; /* m is 1, and sum n is of left[n, k] * right[n, k]: many dot products */
    /* right's data is aligned to 64 and in slivers, [n / sliver][k][sliver], of its own
     * dtype; its strides do not matter. */
    bool prepacked;
} og_cpu_factors;

/* One of those that k goes through: its offset and the places of windows, but what x and y of the
 * scene do. */
typedef struct {
    int64_t base, places[OG_MAX_WINDOWS];
} og_cpu_channel;

/* A block of k of a scene. What a tile's windows see of a channel is its patch: rows of arrays,
 * array a of every x_units-th unit of a line from unit a on. */
typedef struct {
    int64_t count, channel_count;
    const og_cpu_channel *channels;
    bool neighbours; /* each channel is an element from the one before */
    /* Taps in units, which are so many places, from the first one on. */
    int64_t x_least, x_unit, x_span, y_least, y_unit, y_span;
    int64_t x_units, line_rows; /* from a place of the rows to the next, and from line to line */
    int64_t arrays, array_pitch, row_pitch, channel_pitch;
    struct {
        int32_t channel, x, row;
    } k[OG_PRODUCT_BLOCK];
    int32_t at[OG_PRODUCT_BLOCK]; /* where that is, of place 0 */
} og_cpu_block;

/* A factor whose rows are lines of places, which windows see x_step places apart. */
typedef struct {
    int32_t x, y;               /* windows along a line and from line to line; -1: none */
    int64_t width, height;      /* places of a line, lines of a plane */
    int64_t x_step, y_step;     /* from one to the next, in places of these windows */
    int64_t x_stride, y_stride; /* elements from a window's place to the next */
    og_cpu_block *blocks;
} og_cpu_scene;

typedef enum {
    OG_CPU_PRODUCT_PACKED, /* right in slabs, left in panels */
    OG_CPU_PRODUCT_DIRECT, /* few rows at a time: right is read as it lies in memory */
    OG_CPU_PRODUCT_DOTS,   /* paired factors, both packed in slivers */
    OG_CPU_PRODUCT_PLACES, /* filters packed before the run, what windows see in patches */
    OG_CPU_PRODUCT_EMPTY   /* k is 0 */
} og_cpu_product_way;

/* How a product is cut. The last tiles along m and n are smaller. */
typedef struct {
    int64_t m, n, k;
    og_cpu_product_way way;
    int64_t tile_m, tile_n; /* tile_n: a multiple of OG_PRODUCT_COLUMNS, and a row's stride */
    int64_t slab_n;         /* columns of right packed at a time */
    bool slab;              /* there is memory for them: not all rights can be used as they are */
    /* PLACES: turns, the image is right, and sums are turned at a tile's end */
    const og_cpu_scene *scene;
    bool turns;
    int64_t patches, sum_stride; /* elements of all patches, and of a place's sums */
    size_t sum_bytes;  /* of the sums of a tile, and of the memory needed beside them to */
    size_t work_bytes; /* make them: multiples of 64 */
} og_cpu_tiling;

/* All factors are float64, or none is; all are paired, or none, and then none prepacked. */
typedef struct {
    /* float32 sums that are in registers at a time; of float64 half the columns */
    int32_t panel_rows, sliver_columns;
    /* factors, of count products, without data: dtypes and strides matter. whole: a tile
     * has all n columns, at most OG_PRODUCT_WHOLE. As far as it can be had at little cost:
     * at least tile_count tiles, so that no thread waits long for another, and at most
     * thread_bytes for the sums of all products and the work. lean: nothing is packed, if
     * the factors can be read as they are: 1.4 times the time of many rows, on Zen 4; of
     * prepacked ones tiles have few rows. */
    og_cpu_tiling (*cut)(int64_t m, int64_t n, int64_t k, const og_cpu_factors *factors, int count,
                         bool whole, bool lean, int64_t tile_count, size_t thread_bytes);
    /* Computes rows x columns sums, of float or double, from row m0 and column n0 on;
     * their rows are tile_n apart. sums and work are aligned to 64. */
    void (*tile)(const og_cpu_tiling *tiling, const og_cpu_factors *factors, int64_t m0,
                 int64_t rows, int64_t n0, int64_t columns, void *sums, void *work);
    /* Sliver number `sliver` of n filters, as PLACES reads them: at to, which is aligned to 64,
     * [n / sliver][k][sliver] of float or double. */
    void (*pack)(const og_cpu_factor *filters, int64_t n, int64_t k, int64_t sliver, void *to);
} og_cpu_product_kernels;

#if defined(__x86_64__)
extern const og_cpu_product_kernels og_cpu_product_kernels_x86_64;
extern const og_cpu_product_kernels og_cpu_product_kernels_x86_64_v3;
extern const og_cpu_product_kernels og_cpu_product_kernels_x86_64_v4;
#elif defined(__aarch64__)
extern const og_cpu_product_kernels og_cpu_product_kernels_aarch64;
#endif

#endif
