/* SPDX-License-Identifier: MIT
 *
 * nearest.h - what a misspelt name most likely means.
 */
#ifndef OG_NEAREST_H
#define OG_NEAREST_H

#include "formula/functions.h"

/* How far name is from a known one: 0 is the same but for case, -1 too far to
 * be meant. */
int og_name_distance(const char *name, size_t length, const char *known);
/* The function's parameter nearest to name, or NULL. */
const char *og_parameter_nearest(const og_function *function, const char *name, size_t length);

#endif
