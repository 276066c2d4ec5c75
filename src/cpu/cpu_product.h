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

/* Rows of an image become rows of `length` elements in arrays, of every step-th element each:
 * element i of array a is at place first + a + i * step of its row, those below 0 and from extent
 * on being fill. Pitches are in elements. `to` may be written to for a vector more. */
typedef struct {
    void *to;
    int64_t row_pitch, array_pitch;
    const void *from; /* place 0 of the first row */
    int64_t from_pitch, rows, first, extent, step, arrays, length;
    const void *fill;
} og_cpu_padding;

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

typedef enum {
    OG_CPU_PRODUCT_PACKED, /* right in slabs, left in panels */
    OG_CPU_PRODUCT_DIRECT, /* few rows at a time: right is read as it lies in memory */
    OG_CPU_PRODUCT_DOTS,   /* paired factors, both packed in slivers */
    OG_CPU_PRODUCT_EMPTY   /* k is 0 */
} og_cpu_product_way;

/* How a product is cut. The last tiles along m and n are smaller. */
typedef struct {
    int64_t m, n, k;
    og_cpu_product_way way;
    int64_t tile_m, tile_n; /* tile_n: a multiple of OG_PRODUCT_COLUMNS, and a row's stride */
    int64_t slab_n;         /* columns of right packed at a time */
    bool slab;              /* there is memory for them: not all rights can be used as they are */
    size_t sum_bytes;       /* of the sums of a tile, and of the memory needed beside them to */
    size_t work_bytes;      /* make them: multiples of 64 */
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
} og_cpu_product_kernels;

#if defined(__x86_64__)
extern const og_cpu_product_kernels og_cpu_product_kernels_x86_64;
extern const og_cpu_product_kernels og_cpu_product_kernels_x86_64_v3;
extern const og_cpu_product_kernels og_cpu_product_kernels_x86_64_v4;
#elif defined(__aarch64__)
extern const og_cpu_product_kernels og_cpu_product_kernels_aarch64;
#endif

#endif
