/* SPDX-License-Identifier: MIT
 *
 * pytorch_cut.c - of the texts that a file could hold (src/math, the templates of this folder),
 * what its kernels need and nothing else: a file that computes a sigmoid holds one function, not
 * a library.
 *
 * Texts are cut at blank lines outside of functions and #if (but for an #if that stands around much of
 * a file), and behind a definition of one line.
 * A block declares the functions, structs, enums, constants and macros at its outermost level; it
 * needs the blocks that declare the names in it. This is no parser: a name that means something
 * else (a member called like a function) makes a file longer, never wrong.
 */
#include "pytorch/pytorch_program.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BLOCKS = 1500, MAX_NAMES = 3000 }; /* of all texts together: twice what there is */
enum { CHAINS = 1024 };

typedef struct {
    const char *text;
    size_t length;
} span;

typedef struct {
    span of;
    int source;          /* the text it was cut from */
    bool is_after_blank; /* in that text */
    bool needed, done;
} block;

typedef struct {
    block blocks[MAX_BLOCKS];
    int count;
    struct {
        span name;
        int block;
        int next; /* in its chain; -1: none */
    } names[MAX_NAMES];
    int name_count;
    int chains[CHAINS]; /* the first name of each hash, in the order of declaration; -1: none */
    bool is_full;
    bool takes_all; /* texts that declare a name; else the first of them */
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

static bool is_name_character(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* ---- words ------------------------------------------------------------------------------ */

/* The next name or other character at or behind *at, without comments, strings and numbers;
 * an empty one at the end. */
static span next_word(const char **at, const char *end)
{
    while (*at < end) {
        const char *from = *at;
        if (starts(from, "/*")) {
            const char *close = strstr(from + 2, "*/");
            *at = close && close < end ? close + 2 : end;
        } else if (*from == '"') {
            do
                *at += 1 + (**at == '\\');
            while (*at < end && **at != '"');
            ++*at;
        } else if (is_name_character(*from)) {
            while (*at < end && is_name_character(**at))
                ++*at;
            if (!isdigit((unsigned char)*from))
                return (span){from, (size_t)(*at - from)};
        } else {
            ++*at;
            if (!isspace((unsigned char)*from))
                return (span){from, 1};
        }
    }
    return (span){end, 0};
}

static bool is_word(span word, const char *text)
{
    return word.length == strlen(text) && memcmp(word.text, text, word.length) == 0;
}

static void declare(blocks *all, span name)
{
    bool is_name =
        is_name_character(*name.text) && !starts(name.text, "__") && !is_word(name, "alignas");
    if (!is_name)
        return;
    if (all->name_count == MAX_NAMES) {
        all->is_full = true;
        return;
    }
    all->names[all->name_count].name = name;
    all->names[all->name_count++].block = all->count - 1;
}

/* Behind the '>' that closes the '<' at *at. */
static void skip_parameters(const char **at, const char *end)
{
    int depth = 0;
    do {
        span word = next_word(at, end);
        depth += is_word(word, "<") - is_word(word, ">");
    } while (depth > 0 && *at < end);
}

/* Lists what the last block declares. */
static void list_names(blocks *all)
{
    span of = all->blocks[all->count - 1].of, before = {"", 0};
    const char *at = of.text, *end = of.text + of.length;
    int depth = 0;                           /* of brackets */
    bool is_struct = false, is_enum = false; /* its name is to come; in its braces */
    while (at < end) {
        span word = next_word(&at, end);
        bool opens = word.length == 1 && strchr("({", *word.text);
        bool closes = word.length == 1 && strchr(")}", *word.text);
        if (is_word(word, "#")) {
            if (is_word(next_word(&at, end), "define"))
                declare(all, next_word(&at, end));
            do
                at = line_end(at);
            while (at < end && at[-2] == '\\');
            at = at < end ? at : end;
        } else if (is_word(before, "OG_KERNEL")) {
            declare(all, next_word(&at, end)); /* OG_KERNEL(name, ...) */
            depth++;
        } else if (depth == 0 && is_word(word, "template")) {
            skip_parameters(&at, end);
        } else if (depth == 0 && (is_word(word, "(") || is_word(word, "=")) &&
                   *before.text != '>') {
            declare(all, before);
        } else if (depth == 0 && is_word(word, ";") && before.length) {
            declare(all, before); /* } name; */
        } else if (is_enum || (is_struct && depth == 0 && !is_word(word, "alignas"))) {
            declare(all, word);
        }
        is_enum = (is_enum || is_word(before, "enum")) && !closes;
        is_struct =
            is_word(word, "struct") || (is_struct && (depth || is_word(word, "alignas") || opens));
        depth += opens - closes;
        before = word;
    }
}

/* ---- blocks -------------------------------------------------------------------------------- */

/* What follows the include guard and the includes of a header. */
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

static void add_block(blocks *to, const char *from, const char *end, int source,
                      bool is_after_blank)
{
    if (end <= from)
        return;
    if (to->count == MAX_BLOCKS) {
        to->is_full = true;
        return;
    }
    to->blocks[to->count++] = (block){
        .of = {from, (size_t)(end - from)}, .source = source, .is_after_blank = is_after_blank};
    list_names(to);
}

/* A definition that begins and ends on this line. */
static bool is_whole(const char *line)
{
    const char *end = line_end(line);
    size_t length = (size_t)(end - line) - (end > line && end[-1] == '\n');
    if (starts(line, "#define"))
        return length && line[length - 1] != '\\';
    return isalpha((unsigned char)*line) && length && line[length - 1] == '}';
}

/* Does the body of a function or struct begin here? Its end is a line that begins with }. */
static bool opens_body(const char *line)
{
    const char *end = line_end(line);
    return *line == '{' || (isalpha((unsigned char)*line) && end - line > 1 && end[-2] == '{');
}

/* Does this #if divide a file, and stand around whole definitions? */
static bool is_frame(const char *line)
{
    return starts(line, "#ifndef OG_CUDA_SHIM") || starts(line, "#ifdef __CUDA_ARCH_FEAT_SM90_ALL");
}

static void cut(blocks *to, const char *text, int source)
{
    const char *from = text;
    bool inside = false; /* a body */
    bool is_after_blank = true;
    int depth = 0, frames = 0; /* of #if; those that divide the file are no depth */
    for (const char *line = text; *line; line = line_end(line)) {
        const bool ends = depth == 0 && frames && starts(line, "#endif");
        inside = opens_body(line) || (inside && *line != '}');
        if (!inside && depth == 0 && (is_frame(line) || ends || (frames && starts(line, "#el")))) {
            add_block(to, from, line, source, is_after_blank);
            add_block(to, line, line_end(line), source, line == from && is_after_blank);
            to->blocks[to->count - 1].needed = true;
            from = line_end(line);
            is_after_blank = false;
            frames += is_frame(line) - ends;
            continue;
        }
        depth += starts(line, "#if") - starts(line, "#endif");
        if (inside || depth > 0)
            continue;
        bool is_blank = *line == '\n';
        if (is_blank || is_whole(line) || !*line_end(line)) {
            add_block(to, from, is_blank ? line : line_end(line), source, is_after_blank);
            from = line_end(line);
            is_after_blank = is_blank;
        }
    }
}

/* Includes and types of the templates, which declare nothing of their own. */
static bool is_opening(const block *b)
{
    const char *at = b->of.text;
    while (starts(at, "/*"))
        at = line_end(strstr(at, "*/"));
    return starts(at, "#if") || starts(at, "#include") ||
           (starts(at, "typedef ") && !starts(at, "typedef struct"));
}

/* ---- what is needed ---------------------------------------------------------------------- */

/* FNV-1a */
static uint32_t hash_name(span name)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < name.length; i++)
        hash = (hash ^ (unsigned char)name.text[i]) * 16777619u;
    return hash % CHAINS;
}

/* Chains names of one hash: every word of every block that is needed is looked up. */
static void chain_names(blocks *all)
{
    for (int i = 0; i < CHAINS; i++)
        all->chains[i] = -1;
    for (int i = all->name_count - 1; i >= 0; i--) {
        int *first = &all->chains[hash_name(all->names[i].name)];
        all->names[i].next = *first;
        *first = i;
    }
}

static void need(blocks *all, span name)
{
    int source = -1;
    for (int i = all->chains[hash_name(name)]; i >= 0; i = all->names[i].next) {
        block *of = &all->blocks[all->names[i].block];
        if (all->names[i].name.length != name.length ||
            memcmp(all->names[i].name.text, name.text, name.length) != 0 ||
            (source >= 0 && of->source != source && !all->takes_all))
            continue;
        source = of->source;
        of->needed = true;
    }
}

static void need_all(blocks *all, span text)
{
    const char *at = text.text, *end = text.text + text.length;
    for (span word = next_word(&at, end); word.length; word = next_word(&at, end))
        if (is_name_character(*word.text))
            need(all, word);
}

/* Does what is for GPUs alone begin on this line? */
static bool begins_device(const char *line)
{
    return starts(line, "#ifdef __CUDA_ARCH__") ||
           starts(line, "#if defined(__CUDACC_RTC__) || defined(__CUDACC__)\n");
}

/* The text without what is for CPUs. */
static void add_device_text(const char *text, og_text *to)
{
    bool is_divided = false, is_left_out = false;
    for (const char *line = text; *line; line = line_end(line)) {
        bool begins = begins_device(line);
        bool turns = is_divided && (starts(line, "#else") || starts(line, "#elif"));
        bool ends = is_divided && starts(line, "#endif");
        is_divided = begins || (is_divided && !ends);
        is_left_out = turns || (is_left_out && !ends);
        if (!begins && !ends && !is_left_out)
            og_text_add(to, "%.*s", (int)(line_end(line) - line), line);
    }
}

/* Marks what roots need, and what that needs. */
static void mark_needed(blocks *all, const og_pytorch_source *sources, const char *roots)
{
    need_all(all, (span){roots, strlen(roots)});
    for (int i = 0; i < all->count; i++)
        if (!sources[all->blocks[i].source].is_header && is_opening(&all->blocks[i]))
            all->blocks[i].needed = true;
    for (int i = 0; i < all->count; i++)
        if (all->blocks[i].needed && !all->blocks[i].done) {
            all->blocks[i].done = true;
            need_all(all, all->blocks[i].of);
            i = -1; /* what it needs may come before it */
        }
}

/* What is needed of source, or (-1) of all of them. */
static void add_marked(const blocks *all, int source, og_text *text)
{
    bool is_after_blank = false;
    for (int i = 0; i < all->count; i++) {
        const block *b = &all->blocks[i];
        is_after_blank |= b->is_after_blank;
        if (!b->needed || (source >= 0 && b->source != source))
            continue;
        og_text_add(text, "%s%.*s", is_after_blank ? "\n" : "", (int)b->of.length, b->of.text);
        is_after_blank = false;
    }
}

void og_pytorch_cut(const og_pytorch_source *sources, int count, const char *roots, bool apart,
                    og_text *out)
{
    blocks *all = calloc(1, sizeof *all);
    og_text *texts = calloc((size_t)count, sizeof *texts);
    bool failed = !all || !texts;
    for (int i = 0; !failed && i < count; i++) {
        add_device_text(sources[i].is_header ? skip_opening(sources[i].text) : sources[i].text,
                        &texts[i]);
        failed = texts[i].failed || !texts[i].data;
        if (!failed)
            cut(all, texts[i].data, i);
        failed |= all->is_full;
    }
    if (!failed) {
        all->takes_all = apart;
        chain_names(all);
        mark_needed(all, sources, roots);
    }
    for (int i = 0; !failed && i < (apart ? count : 1); i++)
        add_marked(all, apart ? i : -1, &out[i]);
    out->failed |= failed;
    for (int i = 0; texts && i < count; i++)
        og_text_free(&texts[i]);
    free(texts);
    free(all);
}

void og_pytorch_add_needed(const og_pytorch_source *sources, int count, const char *roots,
                           og_text *text)
{
    og_pytorch_cut(sources, count, roots, false, text);
}
