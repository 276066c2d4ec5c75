/* SPDX-License-Identifier: MIT
 *
 * json_output.h - what --json prints.
 */
#ifndef OGIVE_CLI_JSON_OUTPUT_H
#define OGIVE_CLI_JSON_OUTPUT_H

#include <jansson.h>

/* Prints value and a newline to standard output and releases it. */
void print_json(json_t *value);

/* A number, or "nan", "inf", "-inf", for which JSON has no number. */
json_t *json_number_or_text(double value);

#endif
