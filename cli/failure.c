/* SPDX-License-Identifier: MIT
 *
 * failure.c - fills a failure; see failure.h.
 */
#include "failure.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "text.h"

bool failed(failure *why, int status, const char *format, ...)
{
    va_list arguments;

    why->status = status;
    why->library = 0;
    why->offset = -1;
    va_start(arguments, format);
    vsnprintf(why->message, sizeof(why->message), format, arguments);
    va_end(arguments);
    return false;
}

bool fail_prefix(failure *why, const char *prefix)
{
    char message[sizeof(why->message)];

    memcpy(message, why->message, sizeof(message));
    /* A path longer than this says enough with its end. */
    size_t length = strlen(prefix);
    if (length > 300)
        prefix += length - 300;
    size_t room = sizeof(why->message) - strlen(prefix) - 3;
    snprintf(why->message, sizeof(why->message), "%s: %.*s", prefix, (int)room, message);
    return false;
}

bool fail_memory(failure *why, double bytes, const char *what)
{
    char amount[32];

    text_binary_bytes(amount, sizeof(amount), bytes);
    return failed(why, STATUS_DEVICE, "cannot get %s of memory for %s", amount, what);
}
