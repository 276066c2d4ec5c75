/* SPDX-License-Identifier: MIT
 *
 * json_output.c - what --json prints; see json_output.h.
 */
#include "json_output.h"

#include <math.h>
#include <stdio.h>

void print_json(json_t *value)
{
    json_dumpf(value, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    putchar('\n');
    json_decref(value);
}

json_t *json_number_or_text(double value)
{
    if (isfinite(value))
        return json_real(value);
    return json_string(isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
}
