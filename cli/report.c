/* SPDX-License-Identifier: MIT
 *
 * report.c - prints errors; see report.h.
 */
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "progress.h"
#include "text.h"

/* Characters of a long line that are shown before and after the caret. */
enum { CONTEXT_BEFORE = 60, CONTEXT_AFTER = 30 };

static size_t step_forward(const char *line, size_t length, size_t at)
{
    size_t n = text_utf8_length(line + at, length - at);
    return at + (n ? n : 1);
}

/* line[0, length) with a caret under byte `at` of it. The padding before the
 * caret repeats the line's tabs, so that it ends under the same column. */
static void print_caret_line(const char *gutter, const char *line, size_t length, size_t at)
{
    size_t start = 0, end = length, characters = 0;

    for (size_t i = 0; i < at; i = step_forward(line, length, i))
        characters++;
    for (; characters > CONTEXT_BEFORE; characters--)
        start = step_forward(line, length, start);
    characters = 0;
    for (size_t i = at; i < length; i = step_forward(line, length, i)) {
        if (characters++ == CONTEXT_AFTER) {
            end = i;
            break;
        }
    }
    fprintf(stderr, "%s%s", gutter, start ? "..." : "");
    text_print_safe(stderr, line + start, end - start);
    fprintf(stderr, "%s\n", end < length ? "..." : "");

    for (const char *c = gutter; *c; c++)
        fputc(*c == '|' ? '|' : ' ', stderr);
    fputs(start ? "   " : "", stderr);
    for (size_t i = start; i < at; i = step_forward(line, length, i))
        fputc(line[i] == '\t' ? '\t' : ' ', stderr);
    fputs("^\n", stderr);
}

static void print_place(const char *formula, size_t length, size_t offset)
{
    size_t start = 0, number = 1;
    char gutter[32] = "  ";

    if (offset > length)
        offset = length;
    for (size_t i = 0; i < offset; i++) {
        if (formula[i] == '\n') {
            start = i + 1;
            number++;
        }
    }
    const char *newline = memchr(formula + start, '\n', length - start);
    size_t end = newline ? (size_t)(newline - formula) : length;
    if (end > start && formula[end - 1] == '\r' && offset < end)
        end--;

    /* A number only helps where there are several lines (one that merely ends
     * in a newline is still one). */
    const char *first = memchr(formula, '\n', length);
    if (first && first != formula + length - 1)
        snprintf(gutter, sizeof(gutter), "%4zu | ", number);
    print_caret_line(gutter, formula + start, end - start, offset - start);
}

/* A terminal that shows colours, and a user who has not said otherwise (no-color.org). */
static bool wants_colour(void)
{
    const char *no = getenv("NO_COLOR"), *terminal = getenv("TERM");

    return isatty(STDERR_FILENO) && !(no && *no) && terminal && strcmp(terminal, "dumb") != 0;
}

int report_failure(const failure *why, const char *formula, size_t length)
{
    progress_clear();
    fflush(stdout);
    fputs(wants_colour() ? "\033[1;31merror:\033[0m " : "error: ", stderr);
    text_print_safe(stderr, why->message, strlen(why->message));
    fputc('\n', stderr);
    if (formula && why->offset >= 0)
        print_place(formula, length, (size_t)why->offset);
    return why->status;
}

bool fail_library(failure *why, const ogive_error *error)
{
    int status = STATUS_USAGE;

    if (error->status == OGIVE_MEMORY || error->status == OGIVE_DEVICE ||
        error->status == OGIVE_UNSUPPORTED)
        status = STATUS_DEVICE;
    failed(why, status, "%s", error->message);
    why->library = (int)error->status;
    why->offset = error->offset;
    return false;
}
