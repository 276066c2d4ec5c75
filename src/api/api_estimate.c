/* SPDX-License-Identifier: MIT
 *
 * api_estimate.c - how long a kernel of Ogive's, or a call of PyTorch's, takes: the time of a call,
 * and the longer of moving its bytes and computing, by the rates of rates.def. The estimate is good
 * for choosing between the two, which are measured alike; it is no promise of a time. Of
 * convolutions, which move and compute by turns (images are transposed, tiles end), it is the sum of
 * both.
 */
#include "ogive.h"

#include <stdbool.h>
#include <string.h>

typedef enum { ANY, ALONG, ACROSS, BATCH } form;
typedef enum { ALL, HALVES, BFLOAT16, FLOAT32, FLOAT64 } dtypes;

typedef struct {
    const char *machine;
    ogive_worker by;
    ogive_work_kind kind;
    dtypes of;
    form form;
    double m_least, m_most, nk_least;
    double call, launch, bytes, operations, multiplications;
} rate;

typedef struct {
    int64_t least, most; /* most 0: any */
} range;

/* Of poolings and convolutions: those whose form is among the forms, each of them a bit. */
typedef struct {
    const char *machine;
    ogive_worker by;
    dtypes of;
    uint32_t forms;
    range dims, channels, taps, span, n, k;
    bool exact;      /* only for those that must not take TF32 */
    bool contiguous; /* not for those that lie channels last */
    bool last;       /* only for these */
    bool hides;      /* moves while it computes */
    bool dense;      /* computes all groups as if there were one */
    int32_t tile; /* filters that are computed at once, with 64 terms of 128 places; 0: no tiles */
    double call, launch, bytes, operations, multiplications;
    double biases; /* bytes of results a second that get a bias afterwards */
} windows_rate;

#include "api/rates.def"

static const rate rates[] = {
#define RATE(machine, by, kind, ...) {machine, OGIVE_BY_##by, OGIVE_WORK_##kind, __VA_ARGS__},
#include "api/rates.def"
};

static const windows_rate windows_rates[] = {
#define WINDOWS(machine, by, ...) {machine, OGIVE_BY_##by, __VA_ARGS__},
#include "api/rates.def"
};

/* Multiplications of the least batch that was measured on a GPU: 512 of 128 x 128 x 64. */
static const double least_batch = 536870912.0;

/* Whether a machine of this name is one of the other: "cpu-bf16" is a "cpu". */
static bool is_machine(const char *name, const char *other)
{
    size_t length = strlen(other);
    return strncmp(name, other, length) == 0 && strchr("-_", name[length]);
}

static bool has_dtype(dtypes of, DLDataType dtype)
{
    switch (of) {
    case HALVES:
        return dtype.bits == 16;
    case BFLOAT16:
        return dtype.code == kDLBfloat;
    case FLOAT32:
        return dtype.code == kDLFloat && dtype.bits == 32;
    case FLOAT64:
        return dtype.code == kDLFloat && dtype.bits == 64;
    default:
        return true;
    }
}

static bool fits_product(const rate *r, const ogive_work *work)
{
    double m = (double)work->m, n = (double)work->n, k = (double)work->k;
    form is = work->batch > 1 ? BATCH : work->across ? ACROSS : ALONG;
    if (r->form != ANY && r->form != is)
        return false;
    if (r->form == BATCH && (double)work->batch * m * n * k < least_batch)
        return false;
    return m >= r->m_least && m <= r->m_most && n >= r->nk_least &&
           k >= (is == BATCH ? r->nk_least / 2 : r->nk_least);
}

/* Whether the rate holds for what a reduction walks along: neighbours in memory, or others. */
static bool fits_sum(const rate *r, const ogive_work *work)
{
    return r->form == ANY || r->form == (work->across ? ACROSS : ALONG);
}

static const rate *find_rate(const char *machine, ogive_worker by, const ogive_work *work)
{
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        const rate *r = &rates[i];
        if (r->by == by && r->kind == work->kind && is_machine(machine, r->machine) &&
            has_dtype(r->of, work->dtype) &&
            (work->kind == OGIVE_WORK_PRODUCT ? fits_product(r, work) : fits_sum(r, work)))
            return r;
    }
    return NULL;
}

/* ---- windows --------------------------------------------------------------------------------- */

static bool is_in(range of, int64_t value)
{
    return value >= of.least && (!of.most || value <= of.most);
}

static bool fits_windows(const windows_rate *r, const ogive_work *work)
{
    const ogive_windows *w = &work->windows;
    const int64_t span = w->span > 0 ? w->span : w->taps;
    return (r->forms >> w->form & 1) && is_in(r->dims, w->dims) &&
           is_in(r->channels, w->channels) && is_in(r->taps, w->taps) && is_in(r->span, span) &&
           is_in(r->n, work->n) && is_in(r->k, work->k) && (w->exact || !r->exact) &&
           !(w->channels_last && r->contiguous) && (w->channels_last || !r->last);
}

static const windows_rate *find_windows_rate(const char *machine, ogive_worker by,
                                             const ogive_work *work)
{
    if ((unsigned)work->windows.form > OGIVE_WINDOWS_AVERAGES)
        return NULL;
    for (size_t i = 0; i < sizeof windows_rates / sizeof *windows_rates; i++) {
        const windows_rate *r = &windows_rates[i];
        if (r->by == by && is_machine(machine, r->machine) && has_dtype(r->of, work->dtype) &&
            fits_windows(r, work))
            return r;
    }
    return NULL;
}

/* value made a multiple of step, over value. */
static double round_up(int64_t value, int64_t step)
{
    return value > 0 ? (double)((value - 1) / step + 1) * (double)step / (double)value : 1;
}

/* How many times what is asked for a kernel computes whose tiles are 128 places, 16 at least side by
 * side, and so many filters. */
static double fill_tiles(const ogive_work *work, int32_t filters)
{
    const int64_t *places = work->windows.places;
    double best = 0;
    for (int width = 16; width <= 128; width *= 2)
        for (int height = 1; width * height <= 128; height *= 2) {
            double share = round_up(places[0], 128 / width / height) * round_up(places[1], height) *
                           round_up(places[2], width);
            best = best == 0 || share < best ? share : best;
        }
    return best * round_up(work->n, filters) * round_up(work->k, 64);
}

static double estimate_windows(const char *machine, ogive_worker by, const ogive_work *work)
{
    const windows_rate *r = find_windows_rate(machine, by, work);
    if (!r)
        return 0;
    double product =
        2.0 * (double)work->batch * (double)work->m * (double)work->n * (double)work->k;
    product *= r->tile ? fill_tiles(work, r->tile) : 1;
    product *= r->dense ? (double)work->batch : 1;
    double computing = (r->operations > 0 ? work->operations / r->operations : 0) +
                       (r->multiplications > 0 ? product / r->multiplications : 0);
    double moving = work->bytes / r->bytes;
    double adding = r->biases > 0 ? work->windows.biased / r->biases : 0;
    double longer = moving > computing ? moving : computing;
    return (work->follows ? r->launch : r->call) + adding +
           (r->hides ? longer : moving + computing);
}

double ogive_estimate(const char *machine, ogive_worker by, const ogive_work *work)
{
    if (!machine || !work || work->size < sizeof *work)
        return 0;
    double recording = work->records && by == OGIVE_BY_OGIVE ? RECORDING : 0;
    if (work->kind == OGIVE_WORK_WINDOWS) {
        double windows = estimate_windows(machine, by, work);
        return windows > 0 ? recording + windows : 0;
    }
    const rate *r = find_rate(machine, by, work);
    if (!r)
        return 0;
    double product =
        2.0 * (double)work->batch * (double)work->m * (double)work->n * (double)work->k;
    double computing = work->operations / r->operations + product / r->multiplications;
    double moving = work->bytes / r->bytes;
    return recording + (work->follows ? r->launch : r->call) +
           (moving > computing ? moving : computing);
}
