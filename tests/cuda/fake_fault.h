/* SPDX-License-Identifier: MIT
 *
 * fake_fault.h - failures on request, for the fake driver and compiler:
 *
 *     OGIVE_SHIM_FAIL=NAME[:nth[:code]][,NAME...]
 *
 * makes function NAME fail: every call, or the nth alone (from 1), with that code or
 * the one it would most likely fail with. Read at every call, so that a test may change
 * it; a change of the text starts the count again.
 */
#ifndef OG_FAKE_FAULT_H
#define OG_FAKE_FAULT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The code to fail with, or 0. Not for several threads at once when it is set. */
static inline int fake_fault(const char *name, int code)
{
    static char seen[200];
    static int calls[16];
    const char *text = getenv("OGIVE_SHIM_FAIL");
    if (!text || !*text)
        return 0;
    if (strcmp(text, seen) != 0) {
        memset(calls, 0, sizeof calls);
        snprintf(seen, sizeof seen, "%s", text);
    }
    for (int entry = 0; *text && entry < 16; entry++) {
        size_t length = strcspn(text, ":,");
        int nth = 0, given = 0;
        if (text[length] == ':')
            sscanf(text + length, ":%d:%d", &nth, &given);
        if (length == strlen(name) && strncmp(text, name, length) == 0 &&
            (++calls[entry] == nth || nth == 0))
            return given ? given : code;
        text += strcspn(text, ",");
        text += *text == ',';
    }
    return 0;
}

#define FAKE_FAULT(name, code)                                                                     \
    do {                                                                                           \
        int fake_code_ = fake_fault(name, code);                                                   \
        if (fake_code_)                                                                            \
            return fake_code_;                                                                     \
    } while (0)

#endif
