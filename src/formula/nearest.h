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
/* What to say about a function that is not known, to be put behind "unknown function 'name'":
 * what to write for it, that the language cannot do it, or where all are listed. */
void og_function_advise(const char *name, size_t length, char *text, size_t capacity);
/* Whether name means this parameter: its own, or NumPy's (axis, keepdims), which PyTorch takes. */
bool og_parameter_is_called(const og_parameter *parameter, const char *name, size_t length);
/* The function's parameter nearest to name, or NULL. */
const char *og_parameter_nearest(const og_function *function, const char *name, size_t length);

#endif
