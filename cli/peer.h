/* SPDX-License-Identifier: MIT
 *
 * peer.h - the same formula by PyTorch, for `ogive bench --peer torch`: a Python process runs the
 * functions of the same names, eagerly and by torch.compile.
 */
#ifndef OGIVE_CLI_PEER_H
#define OGIVE_CLI_PEER_H

#include <jansson.h>

#include "failure.h"
#include "request.h"

typedef struct {
    double eager, compiled; /* seconds; 0: not measured */
    char version[32];
} peer_time;

/* {"shape": [..], "dtype": ".."} of each input, for peer_measure(). */
json_t *peer_describe(const inputs *in);
/* Measures r's formula on each of cases, a list of such descriptions, of which times has as many.
 * device: "cpu", "cuda:0"; threads: 0 are PyTorch's own. */
bool peer_measure(const request *r, const json_t *cases, const char *device, int64_t threads,
                  peer_time *times, failure *why);

#endif
