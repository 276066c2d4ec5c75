/* SPDX-License-Identifier: MIT
 *
 * embedded.c - see embedded.h.
 */
#include "base/embedded.h"

#include <string.h>

enum { MOST_FILES = 128 };

/* The file whose path is the next length characters; og_embedded_count: none. */
static size_t find_file(const char *path, size_t length)
{
    size_t f = 0;
    while (f < og_embedded_count && (strlen(og_embedded_files[f].path) != length ||
                                     memcmp(og_embedded_files[f].path, path, length) != 0))
        f++;
    return f;
}

const char *og_embedded(const char *path)
{
    size_t f = find_file(path, strlen(path));
    return f < og_embedded_count ? og_embedded_files[f].text : NULL;
}

static void resolve(const char *source, bool *inlined, og_text *text)
{
    static const char include[] = "#include \"";
    while (*source) {
        size_t length = strcspn(source, "\n");
        const char *path = source + sizeof include - 1;
        size_t f = og_embedded_count;
        length += source[length] != 0;
        if (strncmp(source, include, sizeof include - 1) == 0)
            f = find_file(path, strcspn(path, "\"\n"));
        if (f == og_embedded_count) {
            og_text_add(text, "%.*s", (int)length, source);
        } else if (!inlined[f]) {
            inlined[f] = true;
            resolve(og_embedded_files[f].text, inlined, text);
        }
        source += length;
    }
}

void og_add_resolved(const char *source, og_text *text)
{
    bool inlined[MOST_FILES] = {false};
    text->failed |= og_embedded_count > MOST_FILES;
    if (!text->failed)
        resolve(source, inlined, text);
}
