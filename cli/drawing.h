/* SPDX-License-Identifier: MIT
 *
 * drawing.h - a plan as a picture: kernels as boxes, tensors as arrows between them.
 */
#ifndef OGIVE_CLI_DRAWING_H
#define OGIVE_CLI_DRAWING_H

#include "failure.h"

/* Draws what text, ogive_plan_explain()'s, says into the SVG file path ('-': standard output); the
 * formula goes above it. */
bool draw_plan(const char *formula, const char *text, const char *path, failure *why);

#endif
