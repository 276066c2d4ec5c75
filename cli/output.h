/* SPDX-License-Identifier: MIT
 *
 * output.h - writes a file under a temporary name in its own folder and
 * renames it when it is complete: nobody ever sees half a file, and an output
 * may be an input.
 *
 * A target that exists and is not an ordinary file (a pipe, /dev/null), or that
 * is standard output, is written to directly.
 */
#ifndef OGIVE_CLI_OUTPUT_H
#define OGIVE_CLI_OUTPUT_H

#include <stddef.h>

#include "failure.h"

enum { MAX_OUTPUTS = 64 }; /* open at once */

typedef struct {
    char *path;      /* as the user wrote it, for messages */
    char *target;    /* where the file really goes: links followed */
    char *temporary; /* NULL: written directly */
    int fd;
} output_file;

/* Interrupts, terminations and closed pipes remove the temporary files and end
 * the program from now on. */
void output_handle_signals(void);

/* Whether path is written to directly: such names do not tell a format. */
bool output_is_direct(const char *path);
/* Makes the temporary file, so that a folder that cannot be written to is
 * known before the work begins. */
bool output_open(const char *path, output_file *out, failure *why);
bool output_write(output_file *file, const void *bytes, size_t size, failure *why);
/* Everything is on the disk after this. */
bool output_sync(output_file *file, failure *why);
/* Gives the file its name; then closes and releases as output_discard does. */
bool output_commit(output_file *file, failure *why);
/* Removes what was written. A zeroed or committed file is fine. */
void output_discard(output_file *file);

#endif
