/* SPDX-License-Identifier: MIT
 *
 * report.h - prints errors: the message, and for errors inside a formula its
 * line with a caret under the place.
 */
#ifndef OGIVE_CLI_REPORT_H
#define OGIVE_CLI_REPORT_H

#include <stddef.h>

#include "failure.h"
#include "ogive.h"

/* Prints "error: MESSAGE" to standard error, and below it the line of formula
 * (may be NULL) that why->offset lies in. Returns why->status. */
int report_failure(const failure *why, const char *formula, size_t length);

/* Makes a library error the program's. Returns false. */
bool fail_library(failure *why, const ogive_error *error);

#endif
