/* SPDX-License-Identifier: MIT
 *
 * mapped_file.h - a file's bytes: mapped where that works, else read (pipes).
 */
#ifndef OGIVE_CLI_MAPPED_FILE_H
#define OGIVE_CLI_MAPPED_FILE_H

#include <stddef.h>

#include "failure.h"

typedef struct {
    const unsigned char *bytes;
    size_t size;
    bool mapped; /* else malloc'ed */
} mapped_file;

/* Release with mapped_file_close(). The mapping survives the file being
 * replaced by rename, so an output may be an input. */
bool mapped_file_open(const char *path, mapped_file *out, failure *why);
void mapped_file_close(mapped_file *file);

/* All of a stream, up to limit bytes; more is an error. name is for messages. */
bool read_descriptor(int fd, const char *name, size_t limit, char **out, size_t *size,
                     failure *why);

#endif
