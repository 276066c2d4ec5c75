/* SPDX-License-Identifier: MIT
 *
 * pytorch_math.c - of src/math's text, what some functions need and nothing else: a file
 * that computes a sigmoid holds one function, not a library.
 *
 * The text is cut at blank lines outside of functions and #if. A block defines the names behind
 * "OG_FN type", "#define" and a struct's "}"; it needs what defines the og_ and OG_ names in it.
 */
#include "pytorch/pytorch_program.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

extern const char og_text_of_scalar_base[], og_text_of_scalar_f32[], og_text_of_scalar_f64[],
    og_text_of_pytorch_base[];

enum { MAX_BLOCKS = 400 };

typedef struct {
    const char *text;
    size_t length;
    bool needed, done;
} block;

typedef struct {
    block blocks[MAX_BLOCKS];
    int count;
} blocks;

static bool starts(const char *line, const char *with)
{
    return strncmp(line, with, strlen(with)) == 0;
}

static const char *line_end(const char *line)
{
    const char *end = strchr(line, '\n');
    return end ? end + 1 : line + strlen(line);
}

/* What follows the include guard and the includes. */
static const char *skip_opening(const char *text)
{
    const char *last = text;
    for (const char *line = text; *line; line = line_end(line)) {
        if (starts(line, "OG_FN") || starts(line, "#define OG_L") || starts(line, "#define OG_I"))
            break;
        if (*line == '\n')
            last = line;
    }
    return last;
}

static void cut(blocks *to, const char *text)
{
    const char *from = skip_opening(text);
    bool inside = false; /* a function's body */
    int depth = 0;       /* of #if */
    for (const char *line = from; *line; line = line_end(line)) {
        inside = starts(line, "{") || (inside && !starts(line, "}"));
        depth += starts(line, "#if") - starts(line, "#endif");
        bool blank = *line == '\n', last = !*line_end(line);
        if (inside || depth > 0 || (!blank && !last))
            continue;
        if (line > from && to->count < MAX_BLOCKS)
            to->blocks[to->count++] = (block){.text = from, .length = (size_t)(line - from)};
        from = line + 1;
    }
}

static bool is_name_character(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Does the block define the name of this length? */
static bool defines(const block *b, const char *name, size_t length)
{
    const char *end = b->text + b->length;
    for (const char *line = b->text; line < end; line = line_end(line)) {
        const char *at = line;
        if (starts(line, "#define ")) {
            at += 8;
        } else if (starts(line, "} ")) {
            at += 2;
        } else if (starts(line, "OG_FN ")) {
            at = line + strcspn(line, "(");
            while (at > line && is_name_character(at[-1]))
                at--;
        } else {
            continue;
        }
        if (strncmp(at, name, length) == 0 && !is_name_character(at[length]))
            return true;
    }
    return false;
}

static void need(blocks *all, const char *name, size_t length)
{
    const block base = {.text = og_text_of_pytorch_base, .length = strlen(og_text_of_pytorch_base)};
    if (defines(&base, name, length)) /* which every file has */
        return;
    for (int i = 0; i < all->count; i++)
        if (defines(&all->blocks[i], name, length))
            all->blocks[i].needed = true;
}

/* Marks what the names in a block need. */
static void follow(blocks *all, block *b)
{
    b->done = true;
    for (size_t i = 0; i < b->length;) {
        size_t length = 0;
        while (i + length < b->length && is_name_character(b->text[i + length]))
            length++;
        if (length > 3 && (starts(b->text + i, "og_") || starts(b->text + i, "OG_")))
            need(all, b->text + i, length);
        i += length ? length : 1;
    }
}

static const char *const type_names[] = {"float", "double"}, *const suffixes[] = {"f32", "f64"};

/* f_NAME, of float and of double. */
static void add_overloads(const og_function *function, og_text *text)
{
    int count = function->args + function->constants;
    for (int type = 0; type < 2; type++) {
        og_text_add(text, "OG_FN %s f_%s(", type_names[type], function->name);
        for (int i = 0; i < count; i++)
            og_text_add(text, "%s%s x%d", i ? ", " : "", type_names[type], i);
        og_text_add(text, ") { return og_%s_%s(", function->name, suffixes[type]);
        for (int i = 0; i < count; i++)
            og_text_add(text, "%sx%d", i ? ", " : "", i);
        og_text_add(text, "); }\n");
    }
}

void og_pytorch_add_math(const bool *used, og_text *text)
{
    blocks *all = calloc(1, sizeof *all);
    if (!all) {
        text->failed = true;
        return;
    }
    cut(all, og_text_of_scalar_base);
    cut(all, og_text_of_scalar_f32);
    cut(all, og_text_of_scalar_f64);
    for (og_op op = 0; op < OG_FUNCTION_COUNT; op++)
        for (int type = 0; used[op] && type < 2; type++) {
            char name[64] = "og_";
            strncat(name, og_function_of(op)->name, 48);
            strcat(name, type ? "_f64" : "_f32");
            need(all, name, strlen(name));
        }
    for (int i = 0; i < all->count; i++)
        if (all->blocks[i].needed && !all->blocks[i].done) {
            follow(all, &all->blocks[i]);
            i = -1; /* what it needs may come before it */
        }
    for (int i = 0; i < all->count; i++)
        if (all->blocks[i].needed)
            og_text_add(text, "%.*s\n", (int)all->blocks[i].length, all->blocks[i].text);
    for (og_op op = 0; op < OG_FUNCTION_COUNT; op++)
        if (used[op])
            add_overloads(og_function_of(op), text);
    free(all);
}
