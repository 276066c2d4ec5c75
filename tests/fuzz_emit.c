/* SPDX-License-Identifier: MIT
 *
 * fuzz_emit.c - any lines as a formula and the options of a PyTorch file: the formula, init, the
 * class's name, and then modules (with '=') and scalars. A file is written or refused with a
 * message, the same twice, whatever the room for it.
 */
#include "ogive.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_LINES = 12, MOST_BYTES = 4 << 20 };

static void require(bool condition)
{
    if (!condition)
        abort();
}

/* Ends each line of text with a zero; returns how many there are. */
static size_t split(char *text, char *lines[MOST_LINES])
{
    size_t count = 0;
    while (count < MOST_LINES && text) {
        lines[count++] = text;
        text = strchr(text, '\n');
        if (text)
            *text++ = 0;
    }
    return count;
}

/* Emits a file twice, since twice is slow enough: once into room for all of it, once into none, too
 * little or just enough. */
static void emit(const ogive_formula *formula, const ogive_pytorch_options *options, size_t choice)
{
    static char text[MOST_BYTES], other[MOST_BYTES];
    ogive_error error;
    size_t length, again;
    ogive_status status =
        ogive_formula_pytorch(formula, NULL, 0, options, text, sizeof text, &length, &error);
    if (status) {
        require(error.status == status && strlen(error.message) > 0);
        require(length == 0);
        return;
    }
    require(length < sizeof text && strlen(text) == length);
    const size_t rooms[] = {0, 16, length + 1};
    size_t room = rooms[choice % 3];
    require(ogive_formula_pytorch(formula, NULL, 0, options, room ? other : NULL, room, &again,
                                  &error) == OGIVE_OK);
    require(again == length);
    require(room == 0 || (strlen(other) == room - 1 && memcmp(other, text, room - 1) == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 2000)
        return 0;
    char *text = calloc(1, size + 1), *lines[MOST_LINES];
    const char *modules[MOST_LINES], *scalars[MOST_LINES];
    require(text);
    memcpy(text, data, size);
    size_t count = split(text, lines);
    ogive_pytorch_options options = {.size = sizeof options,
                                     .init = count > 1 && *lines[1] ? lines[1] : NULL,
                                     .name = count > 2 && *lines[2] ? lines[2] : NULL,
                                     .modules = modules,
                                     .scalars = scalars};
    for (size_t i = 3; i < count; i++) {
        if (strchr(lines[i], '='))
            modules[options.module_count++] = lines[i];
        else
            scalars[options.scalar_count++] = lines[i];
    }
    ogive_formula *formula;
    ogive_error error;
    if (ogive_formula_create(lines[0], OGIVE_TEXT, &formula, &error) == OGIVE_OK) {
        emit(formula, &options, size);
        ogive_formula_release(formula);
    }
    free(text);
    return 0;
}
