/* SPDX-License-Identifier: MIT
 *
 * pytorch_fold.c - branches of #if that no unit of a file takes are left out of its texts: those of
 * convolutions in a file without one, of TF32, of reductions. A macro is 0 where every #define of it
 * in the file says so, or where there is none; of all others, and of what a compiler or a test
 * defines, nothing is known, and their branches stay.
 */
#include "pytorch/pytorch_program.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MACROS = 1000, MAX_DEPTH = 32 };

typedef struct {
    const char *name;
    size_t length;
} macro;

/* Macros that are not 0, and (defined) all that have a #define. */
typedef struct {
    macro others[MAX_MACROS], defined[MAX_MACROS];
    int other_count, defined_count;
    bool is_full;
} macros;

static const char *line_end(const char *line)
{
    const char *end = strchr(line, '\n');
    return end ? end + 1 : line + strlen(line);
}

static size_t name_length(const char *at)
{
    size_t length = 0;
    while (isalnum((unsigned char)at[length]) || at[length] == '_')
        length++;
    return length;
}

static bool is_listed(const macro *list, int count, const char *name, size_t length)
{
    for (int i = 0; i < count; i++)
        if (list[i].length == length && memcmp(list[i].name, name, length) == 0)
            return true;
    return false;
}

static void list(macros *to, macro *in, int *count, const char *name)
{
    const size_t length = name_length(name);
    if (is_listed(in, *count, name, length))
        return;
    to->is_full |= *count == MAX_MACROS;
    if (*count < MAX_MACROS)
        in[(*count)++] = (macro){name, length};
}

/* What is found for a call, and so may be anything: "NAME ..." in a string of C++'s, X(NAME, ...) in a
 * list of such numbers. */
static void read_numbers(macros *to, const char *text, const char *mark)
{
    const size_t length = strlen(mark);
    for (const char *at = text; (at = strstr(at, mark)); at++)
        list(to, to->others, &to->other_count, at + length - 3);
}

static void read_macros(macros *to, const char *text)
{
    read_numbers(to, text, "\"OG_");
    read_numbers(to, text, "X(OG_");
    for (const char *line = text; *line; line = line_end(line)) {
        if (strncmp(line, "#define ", 8) != 0)
            continue;
        const char *value = line + 8 + name_length(line + 8);
        list(to, to->defined, &to->defined_count, line + 8);
        if (strncmp(value, " 0\n", 3) != 0 && strncmp(value, " 0x0\n", 5) != 0)
            list(to, to->others, &to->other_count, line + 8);
    }
}

/* ---- what is known of a condition --------------------------------------------------------- */

typedef struct {
    const macros *of;
    const char *at, *end;
    bool failed; /* it has what is not understood */
} reader;

typedef struct {
    bool is_known;
    long number;
} value;

static value read_any(reader *r);

static bool take(reader *r, const char *token)
{
    while (r->at < r->end && isspace((unsigned char)*r->at))
        r->at++;
    const size_t length = strlen(token);
    if (strncmp(r->at, token, length) != 0 || r->at + length > r->end)
        return false;
    r->at += length;
    return true;
}

/* Macros of ours, but those that say where a text is compiled. */
static bool is_ours(const char *name)
{
    return strncmp(name, "OG_", 3) == 0 && strncmp(name, "OG_CUDA_SHIM", 12) != 0 &&
           strncmp(name, "OG_SHIM", 7) != 0;
}

static value read_name(reader *r, bool is_asked)
{
    const char *name = r->at;
    const size_t length = name_length(name);
    r->at += length;
    r->failed |= length == 0;
    const macros *of = r->of;
    const bool is_known = is_ours(name) && !is_listed(of->others, of->other_count, name, length) &&
                          (!is_asked || !is_listed(of->defined, of->defined_count, name, length));
    return (value){is_known, 0};
}

static value read_one(reader *r)
{
    if (take(r, "!")) {
        value v = read_one(r);
        return (value){v.is_known, !v.number};
    }
    if (take(r, "defined")) {
        const bool has_brackets = take(r, "(");
        value v = read_name(r, true);
        r->failed |= has_brackets && !take(r, ")");
        return v;
    }
    if (take(r, "(")) {
        value v = read_any(r);
        r->failed |= !take(r, ")");
        return v;
    }
    if (isdigit((unsigned char)*r->at)) {
        char *behind;
        value v = {true, strtol(r->at, &behind, 0)};
        r->at = behind;
        return v;
    }
    return read_name(r, false);
}

static value read_equal(reader *r)
{
    value a = read_one(r);
    if (!take(r, "=="))
        return a;
    value b = read_one(r);
    return (value){a.is_known && b.is_known, a.number == b.number};
}

static value read_both(reader *r)
{
    value a = read_equal(r);
    while (take(r, "&&")) {
        value b = read_equal(r);
        const bool is_no = (a.is_known && !a.number) || (b.is_known && !b.number);
        a = (value){is_no || (a.is_known && b.is_known), !is_no};
    }
    return a;
}

static value read_any(reader *r)
{
    value a = read_both(r);
    while (take(r, "||")) {
        value b = read_both(r);
        const bool is_yes = (a.is_known && a.number) || (b.is_known && b.number);
        a = (value){is_yes || (a.is_known && b.is_known), is_yes};
    }
    return a;
}

/* A condition of #if or #elif. */
static value read_condition(const macros *of, const char *at)
{
    const char *end = line_end(at), *comment = strstr(at, "/*");
    reader r = {of, at, comment && comment < end ? comment : end, false};
    value v = read_any(&r);
    take(&r, "");
    return (value){v.is_known && !r.failed && r.at == r.end, v.number};
}

static value read_opening(const macros *of, const char *line)
{
    const bool is_negative = strncmp(line, "#ifndef ", 8) == 0;
    if (strncmp(line, "#if ", 4) == 0)
        return read_condition(of, line + 4);
    reader r = {of, line + (is_negative ? 8 : 7), line_end(line), false};
    value v = read_name(&r, true);
    return (value){v.is_known, is_negative};
}

/* ---- lines ------------------------------------------------------------------------------------ */

typedef struct {
    bool is_folded; /* else its lines stay as they are */
    bool has_had;   /* the branch that is taken */
    bool is_out;    /* what stands here now */
} level;

/* Writes what there is of a line. */
static void fold_line(const macros *of, level *levels, int *depth, const char *line, og_text *out)
{
    const int length = (int)(line_end(line) - line);
    level *top = &levels[*depth];
    bool is_out = top->is_out;
    if (strncmp(line, "#if", 3) == 0) {
        value v = read_opening(of, line);
        level *next = &levels[++*depth];
        *next = (level){is_out || v.is_known, v.number != 0, is_out || (v.is_known && !v.number)};
        is_out |= v.is_known;
    } else if (*depth && strncmp(line, "#endif", 6) == 0) {
        is_out = top->is_folded;
        --*depth;
    } else if (*depth && top->is_folded && strncmp(line, "#el", 3) == 0) {
        const bool is_else = strncmp(line, "#else", 5) == 0;
        value v = is_else ? (value){true, 1} : read_condition(of, line + 5);
        top->is_out = levels[*depth - 1].is_out || top->has_had || (v.is_known && !v.number);
        is_out = true;
        if (!top->is_out && !v.is_known) { /* #elif becomes #if */
            og_text_add(out, "#%.*s", length - 3, line + 3);
            top->is_folded = false;
        }
        top->has_had |= !top->is_out;
    }
    if (!is_out)
        og_text_add(out, "%.*s", length, line);
}

void og_pytorch_fold(const char *units, const og_pytorch_source *sources, int count, og_text *out)
{
    macros *of = calloc(1, sizeof *of);
    bool failed = !of;
    if (!failed)
        read_macros(of, units);
    for (int i = 0; i < count && !failed; i++)
        read_macros(of, sources[i].text);
    failed |= of && of->is_full;
    for (int i = 0; i < count && !failed; i++) {
        level levels[MAX_DEPTH] = {{0}};
        int depth = 0;
        for (const char *line = sources[i].text; *line && !failed; line = line_end(line)) {
            fold_line(of, levels, &depth, line, &out[i]);
            failed = depth == MAX_DEPTH - 1 || out[i].failed;
        }
    }
    if (count)
        out[0].failed |= failed;
    free(of);
}
