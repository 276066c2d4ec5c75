/* SPDX-License-Identifier: MIT
 *
 * memory_limit.h - how fast this machine's memory moves bytes, measured now,
 * and how large its caches are.
 */
#ifndef OGIVE_CLI_MEMORY_LIMIT_H
#define OGIVE_CLI_MEMORY_LIMIT_H

#include <stdint.h>

#include "failure.h"

/* Bytes per second, read and written together, of threads that do nothing but
 * read and write in this proportion: the best pass within about `seconds`. */
bool memory_limit_measure(double bytes_read, double bytes_written, int32_t threads, double seconds,
                          double *out, failure *why);

/* Bytes of the first CPU's data cache of this level (1, 2, 3); 0: not known. */
int64_t cache_bytes(int level);

#endif
