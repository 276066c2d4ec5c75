/* SPDX-License-Identifier: MIT
 *
 * lexer.c - formula text as tokens; see lexer.h. Whatever is not ASCII outside
 * of comments is an error that names the character.
 */
#include "formula/lexer.h"

#include <string.h>

enum { QUOTED = 60 }; /* bytes of the text that a message shows */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_name_start(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_name_char(char c)
{
    return is_name_start(c) || is_digit(c);
}

static bool is_control(char c)
{
    return (unsigned char)c < 0x20 || c == 0x7f;
}

/* The byte at place, or NUL behind the end. */
static char look(const og_lexer *lexer, size_t place)
{
    return place < lexer->length ? lexer->text[place] : '\0';
}

/* Bytes of the character at place; 0 if it is not UTF-8. */
static int decode_utf8(const og_lexer *lexer, size_t place, uint32_t *code)
{
    unsigned char c = (unsigned char)lexer->text[place];
    int count = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
    if (count == 0 || (size_t)count > lexer->length - place)
        return 0;
    uint32_t value = count == 1 ? c : c & (0x7fu >> count);
    for (int i = 1; i < count; i++) {
        unsigned char next = (unsigned char)lexer->text[place + (size_t)i];
        if ((next & 0xc0) != 0x80)
            return 0;
        value = value << 6 | (next & 0x3f);
    }
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (value < least[count] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
        return 0;
    *code = value;
    return count;
}

/* What to write for characters that come from typeset text. */
static const char *find_replacement(uint32_t code)
{
    switch (code) {
    case 0xd7: /* multiplication sign */
    case 0xb7: /* middle dot */
    case 0x22c5:
        return "; write *";
    case 0xf7:
        return "; write /";
    case 0x2212: /* minus sign */
    case 0x2013: /* en dash */
        return "; write -";
    case 0x2264:
        return "; write <=";
    case 0x2265:
        return "; write >=";
    case 0x2260:
        return "; write !=";
    default:
        return "";
    }
}

static ogive_status fail_at_character(const og_lexer *lexer, size_t place)
{
    uint32_t code = 0;
    const char *c = lexer->text + place;
    int bytes = decode_utf8(lexer, place, &code);
    if (bytes == 0)
        OG_FAIL(lexer->error, OGIVE_FORMULA, (int64_t)place, "byte 0x%02X is not UTF-8",
                (unsigned)(unsigned char)*c);
    if (code < 0x20 || (code >= 0x7f && code < 0xa0))
        OG_FAIL(lexer->error, OGIVE_FORMULA, (int64_t)place, "unexpected control character U+%04X",
                (unsigned)code);
    if (code < 0x80)
        OG_FAIL(lexer->error, OGIVE_FORMULA, (int64_t)place, "unexpected character '%c'%s", *c,
                find_replacement(code));
    OG_FAIL(lexer->error, OGIVE_FORMULA, (int64_t)place, "unexpected character '%.*s' (U+%04X)%s",
            bytes, c, (unsigned)code, find_replacement(code));
}

/* Leaves lexer->at at the next token or at the end. */
static ogive_status skip_blanks(og_lexer *lexer)
{
    bool in_comment = false;
    while (lexer->at < lexer->length) {
        char c = lexer->text[lexer->at];
        uint32_t code;
        int bytes = 1;
        if (c == '\n')
            in_comment = false;
        else if (c == '#')
            in_comment = true;
        else if (c != ' ' && c != '\t' && c != '\r') {
            if (!in_comment)
                return OGIVE_OK;
            bytes = decode_utf8(lexer, lexer->at, &code);
            if (bytes == 0 || is_control(c))
                return fail_at_character(lexer, lexer->at);
        }
        lexer->at += (size_t)bytes;
    }
    return OGIVE_OK;
}

static bool is_transpose(const char *word, size_t length)
{
    return (length == 1 && word[0] == 'T') || (length == 2 && word[0] == 'm' && word[1] == 'T');
}

/* Where the name from start to end is over if the parts .T and .mT at its end, each a token of
 * its own, are left out: PyTorch's attributes, not keys of a state dict. */
static size_t leave_out_transposes(const og_lexer *lexer, size_t start, size_t end)
{
    for (;;) {
        size_t point = end;
        while (point > start && lexer->text[point - 1] != '.')
            point--;
        if (point == start || !is_transpose(lexer->text + point, end - point))
            return end;
        end = point - 1;
    }
}

static ogive_status read_name(og_lexer *lexer)
{
    size_t at = lexer->at;
    for (;;) {
        bool is_number = is_digit(look(lexer, at));
        while (is_number ? is_digit(look(lexer, at)) : is_name_char(look(lexer, at)))
            at++;
        if (is_number && is_name_char(look(lexer, at)))
            OG_FAIL(lexer->error, OGIVE_FORMULA, (int64_t)at,
                    "a part of a dotted name is a word or digits alone");
        if (look(lexer, at) != '.')
            break;
        if (!is_name_char(look(lexer, at + 1)))
            OG_FAIL(lexer->error, OGIVE_FORMULA, (int64_t)at,
                    "expected a word or digits after '.'");
        at++;
    }
    lexer->token.kind = OG_TOKEN_NAME;
    lexer->at = leave_out_transposes(lexer, lexer->at, at);
    return OGIVE_OK;
}

/* .T or .mT; the place of the point is lexer->at. */
static ogive_status read_attribute(og_lexer *lexer)
{
    size_t start = lexer->at + 1, end = start;
    while (is_name_char(look(lexer, end)))
        end++;
    if (!is_transpose(lexer->text + start, end - start)) {
        int shown = end - start < QUOTED ? (int)(end - start) : QUOTED;
        const char *name = lexer->text + start;
        OG_FAIL(lexer->error, OGIVE_FORMULA, (int64_t)lexer->at,
                "'.%.*s': a value has .T and .mT only; a function is written %.*s(...)", shown,
                name, shown, name);
    }
    lexer->token.kind = OG_TOKEN_TRANSPOSE;
    lexer->at = end;
    return OGIVE_OK;
}

static ogive_status read_number(og_lexer *lexer)
{
    size_t start = lexer->at, used;
    og_decimal_status status =
        og_decimal_read(lexer->text + start, lexer->length - start, &used, &lexer->token.number);
    size_t end = start + used;
    while (is_name_char(look(lexer, end)) || look(lexer, end) == '.')
        end++;
    int shown = end - start < QUOTED ? (int)(end - start) : QUOTED;
    const char *more = end - start > QUOTED ? "..." : "";
    if (status == OG_DECIMAL_NO_EXPONENT)
        OG_FAIL(lexer->error, OGIVE_FORMULA, (int64_t)start, "'%.*s%s': the exponent has no digits",
                shown, lexer->text + start, more);
    if (end != start + used)
        OG_FAIL(lexer->error, OGIVE_FORMULA, (int64_t)start,
                "'%.*s%s' is neither a number nor a name", shown, lexer->text + start, more);
    if (status == OG_DECIMAL_RANGE)
        OG_FAIL(lexer->error, OGIVE_FORMULA, (int64_t)start,
                "the number %.*s%s is out of float64's range", shown, lexer->text + start, more);
    lexer->token.kind = OG_TOKEN_NUMBER;
    size_t at = start;
    while (at < end && is_digit(look(lexer, at)))
        at++;
    lexer->token.is_real = at < end;
    lexer->at = end;
    return OGIVE_OK;
}

static ogive_status read_string(og_lexer *lexer)
{
    size_t at = lexer->at + 1;
    char quote = lexer->text[lexer->at];
    for (;; at++) {
        if (at >= lexer->length || lexer->text[at] == '\n')
            OG_FAIL(lexer->error, OGIVE_FORMULA, (int64_t)lexer->at,
                    "the string that starts here has no closing %c", quote);
        if (lexer->text[at] == quote)
            break;
        if (is_control(lexer->text[at]) || (unsigned char)lexer->text[at] >= 0x80)
            return fail_at_character(lexer, at);
    }
    lexer->token.kind = OG_TOKEN_STRING;
    lexer->at = at + 1;
    return OGIVE_OK;
}

static ogive_status read_symbol(og_lexer *lexer)
{
    static const struct {
        char text[3];
        og_token_kind kind;
    } symbols[] = {
        /* the longer of two that begin alike comes first */
        {"(", OG_TOKEN_OPEN},      {")", OG_TOKEN_CLOSE},      {",", OG_TOKEN_COMMA},
        {"+", OG_TOKEN_PLUS},      {"-", OG_TOKEN_MINUS},      {"**", OG_TOKEN_POWER},
        {"*", OG_TOKEN_TIMES},     {"/", OG_TOKEN_DIVIDE},     {"==", OG_TOKEN_EQ},
        {"=", OG_TOKEN_ASSIGN},    {";", OG_TOKEN_SEMICOLON},  {"@", OG_TOKEN_AT},
        {"[", OG_TOKEN_OPEN_LIST}, {"]", OG_TOKEN_CLOSE_LIST}, {"<=", OG_TOKEN_LE},
        {"<", OG_TOKEN_LT},        {">=", OG_TOKEN_GE},        {">", OG_TOKEN_GT},
        {"!=", OG_TOKEN_NE},       {"&", OG_TOKEN_AND},        {"|", OG_TOKEN_OR},
        {"^", OG_TOKEN_XOR},       {"~", OG_TOKEN_NOT},
    };
    char first = lexer->text[lexer->at], second = look(lexer, lexer->at + 1);
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        const char *text = symbols[i].text;
        if (text[0] == first && (text[1] == '\0' || text[1] == second)) {
            lexer->token.kind = symbols[i].kind;
            lexer->at += text[1] ? 2 : 1;
            return OGIVE_OK;
        }
    }
    return fail_at_character(lexer, lexer->at);
}

ogive_status og_lexer_next(og_lexer *lexer)
{
    size_t end = lexer->token.offset + lexer->token.length;
    OG_TRY(skip_blanks(lexer));
    if (lexer->at >= lexer->length) {
        lexer->token = (og_token){.kind = OG_TOKEN_END, .offset = end};
        return OGIVE_OK;
    }
    size_t start = lexer->at;
    char c = lexer->text[start];
    if (is_name_start(c))
        OG_TRY(read_name(lexer));
    else if (is_digit(c) || (c == '.' && is_digit(look(lexer, start + 1))))
        OG_TRY(read_number(lexer));
    else if (c == '\'' || c == '"')
        OG_TRY(read_string(lexer));
    else if (c == '.' && is_name_start(look(lexer, start + 1)))
        OG_TRY(read_attribute(lexer));
    else
        OG_TRY(read_symbol(lexer));
    lexer->token.offset = start;
    lexer->token.length = lexer->at - start;
    return OGIVE_OK;
}
