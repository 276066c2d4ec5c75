/* SPDX-License-Identifier: MIT
 *
 * api_estimate.c - how long a kernel of Ogive's, or a call of PyTorch's, takes: the time of a call,
 * and the longer of moving its bytes and computing, by the rates of rates.def. The estimate is good
 * for choosing between the two, which are measured alike; it is no promise of a time.
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

#include "api/rates.def"

static const rate rates[] = {
#define RATE(machine, by, kind, ...) {machine, OGIVE_BY_##by, OGIVE_WORK_##kind, __VA_ARGS__},
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

static const rate *find_rate(const char *machine, ogive_worker by, const ogive_work *work)
{
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        const rate *r = &rates[i];
        if (r->by == by && r->kind == work->kind && is_machine(machine, r->machine) &&
            has_dtype(r->of, work->dtype) &&
            (work->kind != OGIVE_WORK_PRODUCT || fits_product(r, work)))
            return r;
    }
    return NULL;
}

double ogive_estimate(const char *machine, ogive_worker by, const ogive_work *work)
{
    if (!machine || !work || work->size < sizeof *work)
        return 0;
    const rate *r = find_rate(machine, by, work);
    if (!r)
        return 0;
    double product =
        2.0 * (double)work->batch * (double)work->m * (double)work->n * (double)work->k;
    double computing = work->operations / r->operations + product / r->multiplications;
    double moving = work->bytes / r->bytes;
    double recording = work->records && by == OGIVE_BY_OGIVE ? RECORDING : 0;
    return recording + (work->follows ? r->launch : r->call) +
           (moving > computing ? moving : computing);
}
