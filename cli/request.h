/* SPDX-License-Identifier: MIT
 *
 * request.h - what `run` and `explain` have in common: a formula from the
 * command line, its inputs, and the plan for them.
 */
#ifndef OGIVE_CLI_REQUEST_H
#define OGIVE_CLI_REQUEST_H

#include "failure.h"
#include "inputs.h"
#include "ogive.h"
#include "options.h"
#include "text.h"

typedef struct {
    const char *text; /* of the formula */
    size_t length;
    char *text_owned;
    ogive_formula *formula;
    inputs in;
    ogive_options options;
    DLDevice device; /* of the plan; the inputs' data is in the process's memory */
    ogive_plan *plan;
} request;

/* formula_file is the value of -f, NULL if the formula is the first of the
 * arguments. gradient: the values of --gradient; if there are any, the formula is
 * its gradient by these inputs. On failure too: release with request_release(). */
bool request_prepare(request *r, const char *formula_file, const text_list *arguments,
                     const text_list *gradient, const device_options *device, failure *why);
/* Formula and inputs, which may be missing, but no plan. */
bool request_read(request *r, const char *formula_file, const text_list *arguments, failure *why);
void request_release(request *r);

#endif
