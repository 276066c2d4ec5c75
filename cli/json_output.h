/* SPDX-License-Identifier: MIT
 *
 * json_output.h - what --json prints.
 */
#ifndef OGIVE_CLI_JSON_OUTPUT_H
#define OGIVE_CLI_JSON_OUTPUT_H

#include <jansson.h>
#include <stdbool.h>

/* From here on, allocations of jansson's that fail are noticed: a list or object that is put
 * together would else just lack what there was no memory for. */
void json_watch_memory(void);
/* Did one fail since this was asked for last? */
bool json_take_loss(void);

/* Prints value and a newline to standard output and releases it. Where memory was lost, nothing
 * is printed; main() then says so. */
void print_json(json_t *value);

/* A number, or "nan", "inf", "-inf", for which JSON has no number. */
json_t *json_number_or_text(double value);

#endif
