/* SPDX-License-Identifier: MIT
 *
 * product_data.c - see product_data.h. In most of the adversarial inputs small elements of a factor
 * are all that a sum consists of, beside great ones that meet zeros.
 */
#include "product_data.h"

#include <math.h>
#include <string.h>

/* ---- numbers --------------------------------------------------------------------------------- */

/* Splitmix64. */
static uint64_t draw(product_data *d)
{
    uint64_t z = d->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* In [0, 1). */
static double draw_part(product_data *d)
{
    return (double)(draw(d) >> 11) * 0x1p-53;
}

static int64_t draw_below(product_data *d, int64_t end)
{
    return (int64_t)(draw_part(d) * (double)end);
}

static double draw_normal(product_data *d)
{
    double r = sqrt(-2 * log(1 - draw_part(d)));
    return r * cos(6.283185307179586 * draw_part(d));
}

/* A magnitude of 2^u, u uniform in [-bits, 0), and a sign. */
static double draw_wide(product_data *d, double bits)
{
    double magnitude = exp2(-bits * draw_part(d));
    return draw(d) & 1 ? magnitude : -magnitude;
}

/* Of float32, what bfloat16 holds. */
static float cut(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    bits = (bits + 0x8000) & 0xffff0000;
    memcpy(&x, &bits, 4);
    return x;
}

static void fill_normal(product_data *d)
{
    for (int64_t i = 0; i < d->m * d->k; i++)
        d->x[i] = (float)draw_normal(d);
    for (int64_t i = 0; i < d->n * d->k; i++)
        d->w[i] = (float)draw_normal(d);
}

/* Column at of a factor of so many rows, times `by`. */
static void scale_column(float *factor, int64_t rows, int64_t k, int64_t at, double by)
{
    for (int64_t i = 0; i < rows; i++)
        factor[i * k + at] *= (float)by;
}

static void scale_both(product_data *d, int64_t at, double x, double w)
{
    scale_column(d->x, d->m, d->k, at, x);
    scale_column(d->w, d->n, d->k, at, w);
}

/* ---- small elements of w ------------------------------------------------------------------------ */

/* A column in each 64 of w is 2^power times the others, x is `meets` times itself there. */
static void make_peaks(product_data *d, double power, double meets)
{
    fill_normal(d);
    for (int64_t at = 31; at < d->k; at += 64)
        scale_both(d, at, meets, exp2(power));
}

static void make_peaks_in_odd_rows(product_data *d, double power, double unused)
{
    (void)unused;
    make_peaks(d, power, 1);
    for (int64_t i = 1; i < d->m; i += 2)
        for (int64_t at = 31; at < d->k; at += 64)
            d->x[i * d->k + at] = 0;
}

/* All of each sum is in the first 64 k, which have the peak. */
static void make_one_block(product_data *d, double power, double unused)
{
    (void)unused;
    fill_normal(d);
    scale_both(d, 5, 0, exp2(power));
    for (int64_t at = 64; at < d->k; at++)
        scale_both(d, at, 0, 1);
}

/* The only element of a row of x meets small ones. */
static void make_lone(product_data *d, double power, double unused)
{
    (void)unused;
    fill_normal(d);
    memset(d->x, 0, (size_t)(d->m * d->k) * 4);
    for (int64_t i = 0; i < d->m; i++) {
        int64_t at = draw_below(d, d->k);
        d->x[i * d->k + at] = (float)draw_normal(d);
        scale_column(d->w, d->n, d->k, at, exp2(power));
    }
}

static void make_graded(product_data *d, double first, double unused)
{
    (void)unused;
    fill_normal(d);
    for (int64_t at = 0; at < d->k; at++)
        scale_both(d, at, (double)(at % 64) < first ? 0 : 1, exp2(-(double)(at % 64)));
}

/* Elements 2^-power of their peak, each of which loses 3/4 of the most, all downwards. */
static void make_aligned(product_data *d, double power, double unused)
{
    const double size = exp2(38 - power); /* in units of a subnormal lo's last bit */
    (void)unused;
    for (int64_t i = 0; i < d->m * d->k; i++)
        d->x[i] = i % d->k % 64 == 31 ? 0 : 1;
    for (int64_t i = 0; i < d->n * d->k; i++)
        d->w[i] = i % d->k % 64 == 31
                      ? 1
                      : (float)((size + floor(draw_part(d) * size / 4) + 0.375) * 0x1p-38);
}

static void make_bfloat_peaks(product_data *d, double power, double unused)
{
    (void)unused;
    make_peaks(d, power, 0);
    for (int64_t i = 0; i < d->m * d->k; i++)
        d->x[i] = cut(d->x[i]);
    for (int64_t i = 0; i < d->n * d->k; i++)
        d->w[i] = cut(d->w[i]);
}

static void make_subnormal(product_data *d, double unused, double also)
{
    (void)unused;
    (void)also;
    fill_normal(d);
    for (int64_t i = 0; i < d->m * d->k; i++)
        d->x[i] *= i % d->k % 64 ? 0x1p60f : 0;
    for (int64_t i = 0; i < d->n * d->k; i++)
        d->w[i] = i % d->k % 64 ? d->w[i] * 0x1p-128f : 1;
}

/* ---- small elements of x ------------------------------------------------------------------------ */

/* w an identity, x normal; 1 in 64 elements of x is `by` times itself, those below `least` are 0. */
static void make_identity(product_data *d, double by, double least)
{
    fill_normal(d);
    for (int64_t i = 0; i < d->n * d->k; i++)
        d->w[i] = i / d->k == i % d->k;
    for (int64_t i = 0; i < d->m * d->k; i++)
        d->x[i] = d->x[i] < least ? 0 : d->x[i] * (float)(i % d->k % 64 ? 1 : by);
}

/* The same; 1 in 64 elements of x is by 2^few, the others by 2^most. */
static void make_far(product_data *d, double most, double few)
{
    make_identity(d, 1, -INFINITY);
    for (int64_t i = 0; i < d->m * d->k; i++)
        d->x[i] *= (float)exp2(i % d->k % 64 ? most : few);
}

static void make_peak_of_x(product_data *d, double power, double unused)
{
    (void)unused;
    fill_normal(d);
    for (int64_t at = 0; at < d->k; at++)
        scale_both(d, at, at % 64 == 1 ? exp2(-power) : 1, at % 64 == 1 ? 1 : 0);
}

/* Nothing is lost in pairs, but tensor cores align a subnormal float16 as if it were 2^-14. */
static void make_exact(product_data *d, double power, double unused)
{
    (void)unused;
    fill_normal(d);
    for (int64_t i = 0; i < d->m * d->k; i++)
        d->x[i] = i % d->k % 64 == 0 ? (float)exp2(power) : i % 2 ? 0 : (float)(1 + draw(d) % 2);
    for (int64_t at = 0; at < d->k; at += 64)
        scale_column(d->w, d->n, d->k, at, 0);
}

static void make_peaks_of_both(product_data *d, double of_w, double of_x)
{
    make_peaks(d, of_w, 0);
    for (int64_t at = 7; at < d->k; at += 512)
        scale_both(d, at, exp2(of_x), 0);
}

/* ---- wide data ----------------------------------------------------------------------------------- */

static void make_columns(product_data *d, double bits, double x_follows)
{
    fill_normal(d);
    for (int64_t at = 0; at < d->k; at++) {
        double e = (double)draw_below(d, 2 * (int64_t)bits + 1) - bits;
        scale_both(d, at, x_follows ? exp2(-e) : e > 2 ? 0 : 1, exp2(e));
    }
}

static void make_sparse(product_data *d, double bits, double density)
{
    for (int64_t i = 0; i < d->m * d->k; i++)
        d->x[i] = draw_part(d) < density ? (float)draw_wide(d, bits) : 0;
    for (int64_t i = 0; i < d->n * d->k; i++)
        d->w[i] = draw_part(d) < density ? (float)draw_wide(d, bits) : 0;
}

/* What is added to the greatest product is below its last bit: float32's own error. */
static void make_dust(product_data *d, double unused, double also)
{
    (void)unused;
    (void)also;
    for (int64_t i = 0; i < d->m * d->k; i++)
        d->x[i] = i % d->k == 5 ? (float)(1 + (double)(i / d->k % 7) / 7) : (float)(0.99 * 0x1p-25);
    for (int64_t i = 0; i < d->n * d->k; i++)
        d->w[i] = (float)(1 + (double)(i / d->k % 5) / 5);
}

static void make_dust_of_products(product_data *d, double bits, double unused)
{
    (void)unused;
    for (int64_t i = 0; i < d->m * d->k; i++)
        d->x[i] = (float)(1 + draw_part(d));
    for (int64_t i = 0; i < d->n * d->k; i++)
        d->w[i] = (float)(1 + draw_part(d));
    for (int64_t at = 0; at < d->k; at++) {
        double e = (double)draw_below(d, 2 * (int64_t)bits + 1) - bits;
        scale_both(d, at, exp2(at ? e - 24 : e), exp2(-e));
    }
}

static void make_cancelling(product_data *d, double unused, double also)
{
    (void)unused;
    (void)also;
    fill_normal(d);
    for (int64_t i = 0; i < d->m * d->k; i++)
        d->x[i] = i % d->k % 2 ? d->x[i - 1] : d->x[i];
    for (int64_t i = 0; i < d->n * d->k; i++)
        d->w[i] = i % d->k % 2 ? -d->w[i - 1] * (1 + 0x1p-18f) : d->w[i];
    for (int64_t i = 0; i < d->n; i++) {
        d->w[i * d->k] *= 0x1p12f;
        d->w[i * d->k + 1] *= 0x1p12f;
    }
}

static void make_limits(product_data *d, double unused, double also)
{
    (void)unused;
    (void)also;
    fill_normal(d);
    for (int64_t i = 0; i < d->m * d->k; i++)
        d->x[i] *= i / d->k % 2 ? 0x1p60f : 0x1p-90f;
    for (int64_t i = 0; i < d->n * d->k; i++)
        d->w[i] *= i / d->k % 2 ? 0x1p-110f : 0x1p60f;
}

/* ---- ordinary data -------------------------------------------------------------------------------- */

static void make_normal(product_data *d, double unused, double also)
{
    (void)unused;
    (void)also;
    fill_normal(d);
}

static void make_positive(product_data *d, double unused, double also)
{
    (void)unused;
    (void)also;
    for (int64_t i = 0; i < d->m * d->k; i++)
        d->x[i] = (float)draw_part(d);
    for (int64_t i = 0; i < d->n * d->k; i++)
        d->w[i] = (float)draw_part(d);
}

/* Rows of x are softmax(spread * normal). */
static void make_softmax(product_data *d, double spread, double unused)
{
    (void)unused;
    fill_normal(d);
    for (int64_t i = 0; i < d->m; i++) {
        float *row = d->x + i * d->k, most = -INFINITY;
        double sum = 0;
        for (int64_t k = 0; k < d->k; k++)
            most = row[k] > most ? row[k] : most;
        for (int64_t k = 0; k < d->k; k++)
            sum += exp(spread * (row[k] - most));
        for (int64_t k = 0; k < d->k; k++)
            row[k] = (float)(exp(spread * (row[k] - most)) / sum);
    }
}

static void make_lognormal(product_data *d, double sigma, double unused)
{
    (void)unused;
    fill_normal(d);
    for (int64_t i = 0; i < d->m * d->k; i++)
        d->x[i] *= (float)exp(sigma * draw_normal(d));
    for (int64_t i = 0; i < d->n * d->k; i++)
        d->w[i] *= (float)exp(sigma * draw_normal(d));
}

/* ---- all of them ----------------------------------------------------------------------------------- */

static const product_kind kinds[] = {
    {"w peaks 2^16, x 0", make_peaks, 16, 0},
    {"w peaks 2^17, x 0", make_peaks, 17, 0},
    {"w peaks 2^18, x 0", make_peaks, 18, 0},
    {"w peaks 2^19, x 0", make_peaks, 19, 0},
    {"w peaks 2^20, x 0", make_peaks, 20, 0},
    {"w peaks 2^22, x 0", make_peaks, 22, 0},
    {"w peaks 2^24, x 0", make_peaks, 24, 0},
    {"w peaks 2^30, x 0", make_peaks, 30, 0},
    {"w peaks 2^45, x 0", make_peaks, 45, 0},
    {"w peaks 2^60, x 0", make_peaks, 60, 0},
    {"w peaks 2^20, x 2^-20", make_peaks, 20, 0x1p-20},
    {"w peaks 2^24, x 2^-24", make_peaks, 24, 0x1p-24},
    {"w peaks 2^30, x 2^-30", make_peaks, 30, 0x1p-30},
    {"w peaks 2^50, x 2^-50", make_peaks, 50, 0x1p-50},
    {"w peaks 2^30, x 0 in odd rows", make_peaks_in_odd_rows, 30, 0},
    {"w peaks 2^30 in one block of k", make_one_block, 30, 0},
    {"w small where x has its only one", make_lone, -31, 0},
    {"w graded by 2^-(k % 64)", make_graded, 30, 0},
    {"w aligned losses, 2^-16 of peaks", make_aligned, 16, 0},
    {"w aligned losses, 2^-17 of peaks", make_aligned, 17, 0},
    {"w aligned losses, 2^-18 of peaks", make_aligned, 18, 0},
    {"w aligned losses, 2^-19 of peaks", make_aligned, 19, 0},
    {"w aligned losses, 2^-22 of peaks", make_aligned, 22, 0},
    {"w of bfloat16's, peaks 2^28", make_bfloat_peaks, 28, 0},
    {"w subnormal beside 1, x 0 there", make_subnormal, 0, 0},
    {"x 1 in 64 is 1e-6, w identity", make_identity, 1e-6, -INFINITY},
    {"x 1 in 64 is 1e-8, w identity", make_identity, 1e-8, -INFINITY},
    {"x 1 in 64 is 1e-11, w identity", make_identity, 1e-11, -INFINITY},
    {"x 1 in 64 is 1e-14, w identity", make_identity, 1e-14, -INFINITY},
    {"x 1 in 64 is 1e-30, w identity", make_identity, 1e-30, -INFINITY},
    {"x 2^-70 beside 2^100, w identity", make_far, 100, -70},
    {"x small, others meet zeros of w", make_peak_of_x, 30, 0},
    {"x float16's subnormals, exactly", make_exact, 37, 0},
    {"x and w, peaks meet zeros", make_peaks_of_both, 26, 16},
    {"columns 2^+-8", make_columns, 8, 1},
    {"columns 2^+-12", make_columns, 12, 1},
    {"columns 2^+-20", make_columns, 20, 1},
    {"columns 2^+-40", make_columns, 40, 1},
    {"columns 2^+-12 of w, x 0 at peaks", make_columns, 12, 0},
    {"log-uniform 2^30, 0.3 nonzero", make_sparse, 30, 0.3},
    {"log-uniform 2^60, 0.1 nonzero", make_sparse, 60, 0.1},
    {"log-uniform 2^60, 0.05 nonzero", make_sparse, 60, 0.05},
    {"dust of 2^-25 beside one product", make_dust, 0, 0},
    {"dust of 2^-24, columns 2^+-12", make_dust_of_products, 12, 0},
    {"great sums cancel", make_cancelling, 0, 0},
    {"x 2^-90, w 2^60; x 2^60, w 2^-110", make_limits, 0, 0},
    {"normal", make_normal, 0, 0},
    {"all positive", make_positive, 0, 0},
    {"x softmax of 3 normal", make_softmax, 3, 0},
    {"x softmax of 6 normal", make_softmax, 6, 0},
    {"lognormal(1)", make_lognormal, 1, 0},
    {"lognormal(3)", make_lognormal, 3, 0},
    {"x after ReLU, w identity", make_identity, 1, 0},
};

const product_kind *product_kind_at(size_t index)
{
    return index < sizeof(kinds) / sizeof(*kinds) ? &kinds[index] : NULL;
}

void product_data_fill(product_data *data, const product_kind *kind)
{
    data->random = (uint64_t)data->k;
    for (const char *c = kind->name; *c; c++)
        data->random = data->random * 31 + (unsigned char)*c;
    kind->make(data, kind->a, kind->b);
}

/* ---- random structure ------------------------------------------------------------------------------ */

/* A factor of normal or of like numbers, of float32, bfloat16's or integers; then exponents. */
static void fill_factor(product_data *d, float *factor, int64_t rows)
{
    static const int spans[] = {0, 4, 16, 17, 18, 19, 20, 24, 28, 29, 30, 40, 60};
    static const double parts[] = {0, 0, 0.1, 0.5, 0.9};
    const double zeros = parts[draw_below(d, 5)];
    const int64_t span = spans[draw_below(d, 13)], by = draw_below(d, 4), kind = draw_below(d, 4);
    const uint64_t base = draw(d), is_normal = draw(d) % 3;
    for (int64_t i = 0; i < rows * d->k; i++) {
        product_data own = {.random = base + (uint64_t)(by == 0   ? i % d->k
                                                        : by == 1 ? i / d->k
                                                                  : i)};
        double e =
            by == 3 ? (double)(draw_below(&own, 2) * span) : (double)draw_below(&own, span + 1);
        double value = is_normal ? draw_normal(d) : draw_part(d) + 0.5;
        value = kind == 1 ? cut((float)value) : kind == 2 ? rint(value * 8) : value;
        factor[i] = draw_part(d) < zeros ? 0 : (float)(value * exp2(-e));
    }
}

/* Some k of one factor are great, and the other is small there, or 0, or 0 in half of its rows. */
static void add_peaks(product_data *d, float *factor, int64_t rows, float *other, int64_t others)
{
    static const double parts[] = {1.0 / 64, 1.0 / 16, 0.5};
    const double part = parts[draw_below(d, 3)];
    const double great = exp2(10 + (double)draw_below(d, 35));
    const double small = exp2(-10 - (double)draw_below(d, 35));
    const int64_t meets = draw_below(d, 3);
    for (int64_t at = 0; at < d->k; at++) {
        if (draw_part(d) >= part)
            continue;
        scale_column(factor, rows, d->k, at, great);
        for (int64_t i = 0; i < others; i++)
            other[i * d->k + at] *= meets == 0 ? 0 : meets == 1 ? (float)small : i % 2 ? 1 : 0;
    }
}

static void scale_rows(product_data *d, float *factor, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++) {
        float by = (float)exp2((double)draw_below(d, 100) - 60);
        for (int64_t at = 0; at < d->k; at++)
            factor[i * d->k + at] *= by;
    }
}

void product_data_fill_at_random(product_data *data, uint64_t seed)
{
    data->random = seed;
    fill_factor(data, data->x, data->m);
    fill_factor(data, data->w, data->n);
    if (draw(data) % 2)
        add_peaks(data, data->x, data->m, data->w, data->n);
    if (draw(data) % 2)
        add_peaks(data, data->w, data->n, data->x, data->m);
    if (draw_part(data) < 0.3) {
        scale_rows(data, data->x, data->m);
        scale_rows(data, data->w, data->n);
    }
}
