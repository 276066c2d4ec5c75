/* SPDX-License-Identifier: MIT
 *
 * failure.h - what went wrong, as the text for the user and the exit status.
 *
 * Functions that can fail return bool and fill the caller's failure; only the
 * command itself prints it, so that a test can look at the text and no message
 * appears twice.
 */
#ifndef OGIVE_CLI_FAILURE_H
#define OGIVE_CLI_FAILURE_H

#include <stdbool.h>
#include <stdint.h>

/* Scripts rely on these: they never change. */
enum {
    STATUS_DONE = 0,
    STATUS_CHECK_FAILED = 1, /* a check or comparison failed */
    STATUS_USAGE = 2,        /* the command line or the formula is wrong */
    STATUS_FILE = 3,         /* a file cannot be read, written or understood */
    STATUS_DEVICE = 4,       /* device or memory */
    STATUS_INTERRUPTED = 130
};

typedef struct {
    int status;         /* one of the above */
    int library;        /* ogive_status, where it was the library that refused */
    int64_t offset;     /* byte of the formula that message is about, or -1 */
    char message[1400]; /* one line, without "error:" */
} failure;

/* Fills why and returns false, so that a check is one line:
 * return failed(why, STATUS_FILE, "..."); */
bool failed(failure *why, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "PREFIX: " before the message; for the name of the file it is about.
 * Returns false. */
bool fail_prefix(failure *why, const char *prefix);

/* Fills why with "cannot get 4.0 GiB of memory for WHAT". Returns false. */
bool fail_memory(failure *why, double bytes, const char *what);

#endif
