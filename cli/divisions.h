/* SPDX-License-Identifier: MIT
 *
 * divisions.h - ogive explain --divide N: how a formula is divided among processes.
 */
#ifndef OGIVE_CLI_DIVISIONS_H
#define OGIVE_CLI_DIVISIONS_H

#include <jansson.h>

#include "failure.h"
#include "request.h"

/* One line per set of dims that are divided together, for people. */
bool divisions_print(const request *r, int64_t processes, failure *why);
/* The same as JSON, a new reference in *out. */
bool divisions_json(const request *r, int64_t processes, json_t **out, failure *why);

#endif
