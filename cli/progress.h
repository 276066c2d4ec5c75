/* SPDX-License-Identifier: MIT
 *
 * progress.h - a progress bar on standard error, where that is a terminal.
 *
 * Everywhere else these calls do nothing, so callers need not ask. One bar at
 * a time; used from one thread.
 */
#ifndef OGIVE_CLI_PROGRESS_H
#define OGIVE_CLI_PROGRESS_H

#include <stdbool.h>

/* label is kept, not copied. total is in whatever unit done will be. */
void progress_start(const char *label, double total);
/* Redraws at most ten times a second. */
void progress_update(double done);
/* A new label, drawn at once. */
void progress_label(const char *label, double done);
/* Takes the bar off the screen. */
void progress_end(void);
/* The same, for whoever has to print while a bar may be up. */
void progress_clear(void);

#endif
