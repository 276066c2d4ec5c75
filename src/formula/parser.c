/* SPDX-License-Identifier: MIT
 *
 * parser.c - formula text to nodes, by recursive descent:
 *
 *     program := { name [ "," name ] "=" expr ";" } expr { "," expr } [ ";" ]
 *     expr    := sum [ ( "<" | "<=" | ">" | ">=" | "==" | "!=" ) sum ]
 *     sum     := product { ( "+" | "-" ) product }
 *     product := unary { ( "*" | "/" | "@" ) unary }
 *     unary   := ( "+" | "-" ) unary | primary { ".T" | ".mT" } [ "**" unary ]
 *     primary := number | string | name | name "(" [ argument { "," argument } ] ")"
 *              | "(" expr ")" | list
 *
 * Recursion is bounded by OG_MAX_NESTING; chains of operators and of statements
 * are loops. A composite's meaning is parsed by the same code into the same
 * graph, with the call's arguments as its names.
 */
#include "formula/lexer.h"
#include "formula/nearest.h"
#include "formula/parser.h"
#include "formula/scope.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { QUOTED = 60, DESCRIPTION = 96 };

typedef struct {
    og_lexer lexer;
    og_builder *builder;
    og_scope *scope;
    int nesting;
    bool in_meaning; /* text is a composite's: hidden functions, no inputs */
} parser;

static ogive_status parse_expression(parser *p, og_operand *out);

/* ---- helpers ------------------------------------------------------------- */

static og_token_kind peek(const parser *p)
{
    return p->lexer.token.kind;
}

static ogive_status advance(parser *p)
{
    return og_lexer_next(&p->lexer);
}

/* Where the user's text has the token: a meaning's tokens stand at its call. */
static int64_t get_place(const parser *p, const og_token *token)
{
    return p->in_meaning ? p->builder->composite_offset : (int64_t)token->offset;
}

static const char *get_text(const parser *p, const og_token *token)
{
    return p->lexer.text + token->offset;
}

/* For "%.*s": a name may be as long as the text. */
static int get_shown(size_t length)
{
    return length < QUOTED ? (int)length : QUOTED;
}

static ogive_status fail_expected(const parser *p, const char *expected)
{
    const og_token *token = &p->lexer.token;
    if (token->kind == OG_TOKEN_END)
        OG_FAIL(p->lexer.error, OGIVE_FORMULA, get_place(p, token),
                "expected %s, got the end of the formula", expected);
    OG_FAIL(p->lexer.error, OGIVE_FORMULA, get_place(p, token), "expected %s, got '%.*s'", expected,
            get_shown(token->length), get_text(p, token));
}

/* Counts one level more; leave() counts it back. */
static ogive_status enter(parser *p)
{
    if (p->nesting >= OG_MAX_NESTING)
        OG_FAIL(p->lexer.error, OGIVE_FORMULA, get_place(p, &p->lexer.token),
                "nested too deeply: more than %d levels", OG_MAX_NESTING);
    p->nesting++;
    return OGIVE_OK;
}

static void leave(parser *p)
{
    p->nesting--;
}

/* True, with both read, if a name and then '=' come next. */
static ogive_status accept_assignment(parser *p, og_token *name, bool *accepted)
{
    *accepted = false;
    if (peek(p) != OG_TOKEN_NAME)
        return OGIVE_OK;
    og_lexer before = p->lexer;
    OG_TRY(advance(p));
    if (peek(p) == OG_TOKEN_ASSIGN) {
        *accepted = true;
        *name = before.token;
        return advance(p);
    }
    p->lexer = before;
    return OGIVE_OK;
}

/* ---- lists --------------------------------------------------------------- */

static ogive_status add_entry(parser *p, og_dim_list *list, const og_operand *entry)
{
    char number[OG_NUMBER_TEXT];
    if (list->count == OG_MAX_RANK)
        OG_FAIL(p->lexer.error, OGIVE_FORMULA, entry->offset, "a list holds at most %d integers",
                OG_MAX_RANK);
    if (entry->kind == OG_OPERAND_NONE) {
        list->nones |= 1u << list->count;
        list->values[list->count++] = OG_KEPT;
        return OGIVE_OK;
    }
    if (entry->kind != OG_OPERAND_NUMBER)
        OG_FAIL(p->lexer.error, OGIVE_FORMULA, entry->offset,
                "a list holds constant integers; several results are written without parentheses");
    if (!(fabs(entry->number) <= 9007199254740992.0) || entry->number != floor(entry->number))
        OG_FAIL(p->lexer.error, OGIVE_FORMULA, entry->offset, "a list holds integers, %s is none",
                og_number_text(entry->number, number));
    list->values[list->count++] = (int64_t)entry->number;
    return OGIVE_OK;
}

static ogive_status fail_unclosed(const parser *p, const og_token *open, const char *expected)
{
    char text[DESCRIPTION];
    snprintf(text, sizeof text, "%s to close the '%c' at byte %lld", expected, *get_text(p, open),
             (long long)get_place(p, open));
    return fail_expected(p, text);
}

/* The entries from list->count on, up to and with the closing bracket. */
static ogive_status parse_entries(parser *p, const og_token *open, og_dim_list *list)
{
    og_token_kind close = open->kind == OG_TOKEN_OPEN ? OG_TOKEN_CLOSE : OG_TOKEN_CLOSE_LIST;
    while (peek(p) != close) {
        og_operand entry;
        OG_TRY(parse_expression(p, &entry));
        OG_TRY(add_entry(p, list, &entry));
        if (peek(p) == OG_TOKEN_COMMA)
            OG_TRY(advance(p));
        else if (peek(p) != close)
            return fail_unclosed(p, open, close == OG_TOKEN_CLOSE ? "',' or ')'" : "',' or ']'");
    }
    return advance(p);
}

/* A list, or a value in parentheses. */
static ogive_status parse_bracket(parser *p, og_operand *out)
{
    og_token open = p->lexer.token;
    og_dim_list list = {0};
    OG_TRY(enter(p));
    OG_TRY(advance(p));
    if (open.kind == OG_TOKEN_OPEN && peek(p) != OG_TOKEN_CLOSE) {
        OG_TRY(parse_expression(p, out));
        if (peek(p) == OG_TOKEN_CLOSE) {
            leave(p);
            if (!p->in_meaning)
                out->offset = (int64_t)open.offset;
            return advance(p);
        }
        if (peek(p) != OG_TOKEN_COMMA)
            return fail_unclosed(p, &open, "an operator or ')'");
        OG_TRY(add_entry(p, &list, out));
        OG_TRY(advance(p));
    }
    OG_TRY(parse_entries(p, &open, &list));
    leave(p);
    *out = (og_operand){.kind = OG_OPERAND_DIMS, .offset = get_place(p, &open)};
    return og_build_dims(p->builder, &list, &out->index);
}

/* ---- calls --------------------------------------------------------------- */

static ogive_status fail_unknown_keyword(const parser *p, const og_function *function,
                                         const og_token *name)
{
    const char *text = get_text(p, name);
    const char *nearest = og_parameter_nearest(function, text, name->length);
    int shown = get_shown(name->length);
    if (name->length == strlen("unbiased") && !memcmp(text, "unbiased", name->length) &&
        og_parameter_nearest(function, "correction", strlen("correction")))
        OG_FAIL(p->lexer.error, OGIVE_FORMULA, get_place(p, name),
                "%s: unbiased=true is written correction=1, unbiased=false correction=0",
                function->name);
    if (nearest)
        OG_FAIL(p->lexer.error, OGIVE_FORMULA, get_place(p, name),
                "%s has no parameter '%.*s'; did you mean '%s'?", function->name, shown, text,
                nearest);
    char signature[160];
    og_function_signature(function, signature, sizeof signature);
    OG_FAIL(p->lexer.error, OGIVE_FORMULA, get_place(p, name),
            "%s has no parameter '%.*s'; the call is %s(%s)", function->name, shown, text,
            function->name, signature);
}

/* The parameter's place in the signature, or in that of the function's overload. */
static ogive_status find_keyword(const parser *p, const og_function *function, const og_token *name,
                                 size_t *position)
{
    const char *text = get_text(p, name);
    for (const og_function *row = function; row;
         row = row->overload ? og_function_of((og_op)(row->overload - 1)) : NULL) {
        for (size_t i = 0; row->parameters[i].kind != OG_PARAMETER_NONE; i++) {
            if (og_parameter_is_called(&row->parameters[i], text, name->length)) {
                *position = i;
                return OGIVE_OK;
            }
        }
    }
    return fail_unknown_keyword(p, function, name);
}

static ogive_status fail_too_many(const parser *p, const og_function *function, size_t most,
                                  int64_t offset)
{
    char signature[160];
    const og_parameter *parameter = &function->parameters[most];
    if (parameter->kind == OG_PARAMETER_KEYWORD)
        OG_FAIL(p->lexer.error, OGIVE_FORMULA, offset, "%s: '%s' is given by name: %s=...",
                function->name, parameter[1].name, parameter[1].name);
    og_function_signature(function, signature, sizeof signature);
    OG_FAIL(p->lexer.error, OGIVE_FORMULA, offset,
            "%s takes at most %zu argument%s; the call is %s(%s)", function->name, most,
            most == 1 ? "" : "s", function->name, signature);
}

/* One argument into its place of builder->operands; *positional counts those
 * without a name and is SIZE_MAX once one had a name. */
static ogive_status parse_argument(parser *p, const og_function *function, size_t base,
                                   size_t *positional)
{
    og_token name = p->lexer.token;
    int64_t offset = get_place(p, &name);
    bool by_name;
    size_t position = 0;
    OG_TRY(accept_assignment(p, &name, &by_name));
    if (by_name) {
        OG_TRY(find_keyword(p, function, &name, &position));
        *positional = SIZE_MAX;
    } else {
        if (*positional == SIZE_MAX)
            OG_FAIL(p->lexer.error, OGIVE_FORMULA, offset,
                    "%s: an argument without a name follows one with a name", function->name);
        position = (*positional)++;
        og_parameter_kind kind = function->parameters[position].kind;
        if (kind == OG_PARAMETER_NONE || kind == OG_PARAMETER_KEYWORD)
            return fail_too_many(p, function, position, offset);
    }
    if (p->builder->operands[base + position].kind != OG_OPERAND_MISSING)
        OG_FAIL(p->lexer.error, OGIVE_FORMULA, offset, "%s: '%s' is given twice", function->name,
                function->parameters[position].name);
    og_operand value;
    OG_TRY(parse_expression(p, &value));
    p->builder->operands[base + position] = value;
    return OGIVE_OK;
}

static ogive_status parse_call(parser *p, og_op op, const og_token *name, og_operand *out)
{
    const og_function *function = og_function_of(op);
    og_builder *builder = p->builder;
    og_token open = p->lexer.token;
    size_t base, count = 0, positional = 0, dim_count = builder->dim_count;
    while (function->parameters[count].kind != OG_PARAMETER_NONE)
        count++;
    OG_TRY(enter(p));
    OG_TRY(og_build_operands(builder, count, &base));
    OG_TRY(advance(p));
    while (peek(p) != OG_TOKEN_CLOSE) {
        OG_TRY(parse_argument(p, function, base, &positional));
        if (peek(p) == OG_TOKEN_COMMA)
            OG_TRY(advance(p));
        else if (peek(p) != OG_TOKEN_CLOSE)
            return fail_unclosed(p, &open, "',' or ')'");
    }
    OG_TRY(advance(p));
    OG_TRY(og_call_function(builder, op, base, get_place(p, name), out));
    builder->operand_count = base;
    if (out->kind == OG_OPERAND_DIMS) { /* all_but's list stays */
        builder->dims[dim_count] = builder->dims[out->index];
        out->index = (int32_t)dim_count++;
    }
    builder->dim_count = dim_count;
    leave(p);
    return OGIVE_OK;
}

static ogive_status fail_unknown_function(const parser *p, const og_token *name)
{
    const char *text = get_text(p, name);
    int shown = get_shown(name->length);
    const og_named *named = og_scope_find(p->scope, text, name->length);
    if (named)
        OG_FAIL(p->lexer.error, OGIVE_FORMULA, get_place(p, name),
                "'%.*s' is not a function but %s; a product is written with *", shown, text,
                named->is_input ? "an input" : "a bound name");
    char advice[DESCRIPTION];
    og_function_advise(text, name->length, advice, sizeof advice);
    OG_FAIL(p->lexer.error, OGIVE_FORMULA, get_place(p, name), "unknown function '%.*s'%s", shown,
            text, advice);
}

/* ---- names --------------------------------------------------------------- */

static ogive_status add_input(parser *p, const og_token *name, og_operand *out)
{
    const char *text = get_text(p, name);
    int shown = get_shown(name->length);
    if (og_is_reserved(text, name->length, p->in_meaning))
        OG_FAIL(p->lexer.error, OGIVE_FORMULA, get_place(p, name),
                "'%.*s' is a function: write %.*s(...)", shown, text, shown, text);
    if (p->in_meaning) /* a slip in functions.def, found by its tests */
        OG_FAIL(p->lexer.error, OGIVE_FORMULA, get_place(p, name),
                "'%.*s' is not a name of the function's meaning", shown, text);
    OG_TRY(og_build_input(p->builder, text, name->length, (int64_t)name->offset, out));
    og_named named = {.name = text,
                      .length = name->length,
                      .is_input = true,
                      .offset = (int64_t)name->offset,
                      .operand = *out};
    return og_scope_add(p->scope, &named, p->lexer.error);
}

/* A name alone or a call. */
static ogive_status parse_name(parser *p, og_operand *out)
{
    og_token name = p->lexer.token;
    const char *text = get_text(p, &name);
    OG_TRY(advance(p));
    if (peek(p) == OG_TOKEN_OPEN) {
        og_op op = og_function_find(text, name.length, p->in_meaning);
        if (op == OG_FUNCTION_COUNT)
            return fail_unknown_function(p, &name);
        return parse_call(p, op, &name, out);
    }
    const og_named *named = og_scope_find(p->scope, text, name.length);
    if (named) {
        *out = named->operand;
        if (p->in_meaning)
            return OGIVE_OK; /* out->offset stays the argument's */
    } else if (!og_find_word(text, name.length, out)) {
        OG_TRY(add_input(p, &name, out));
    } else {
        out->is_real = out->kind == OG_OPERAND_NUMBER && !p->in_meaning;
    }
    out->offset = get_place(p, &name);
    return OGIVE_OK;
}

/* ---- operators ----------------------------------------------------------- */

static ogive_status parse_primary(parser *p, og_operand *out)
{
    og_token token = p->lexer.token;
    switch (token.kind) {
    case OG_TOKEN_NAME:
        return parse_name(p, out);
    case OG_TOKEN_NUMBER:
        *out = og_number_operand(token.number, get_place(p, &token));
        out->is_real = token.is_real && !p->in_meaning;
        return advance(p);
    case OG_TOKEN_STRING:
        *out = (og_operand){.kind = OG_OPERAND_STRING,
                            .string = get_text(p, &token) + 1,
                            .length = token.length - 2,
                            .offset = get_place(p, &token)};
        return advance(p);
    case OG_TOKEN_OPEN:
    case OG_TOKEN_OPEN_LIST:
        return parse_bracket(p, out);
    case OG_TOKEN_CLOSE:
    case OG_TOKEN_CLOSE_LIST:
        if (p->nesting == 0)
            OG_FAIL(p->lexer.error, OGIVE_FORMULA, get_place(p, &token),
                    "'%c' closes nothing that is open", *get_text(p, &token));
        return fail_expected(p, "a value");
    case OG_TOKEN_ASSIGN:
        return fail_expected(p, "a value (a binding is a name, '=', a value and ';')");
    default:
        return fail_expected(p, "a value");
    }
}

static ogive_status parse_unary(parser *p, og_operand *out);

/* value.T is t(value), value.mT transpose(value, -2, -1). */
static ogive_status parse_transposes(parser *p, og_operand *out)
{
    og_builder *builder = p->builder;
    while (peek(p) == OG_TOKEN_TRANSPOSE) {
        og_token name = p->lexer.token;
        int64_t place = get_place(p, &name);
        bool of_two_dims = name.length == strlen(".T");
        size_t base, dim_count = builder->dim_count;
        OG_TRY(og_build_operands(builder, of_two_dims ? 1 : 3, &base));
        builder->operands[base] = *out;
        for (size_t i = 1; !of_two_dims && i < 3; i++)
            builder->operands[base + i] = og_number_operand(i == 1 ? -2 : -1, place);
        OG_TRY(
            og_call_function(builder, of_two_dims ? OG_OP_t : OG_OP_transpose, base, place, out));
        builder->operand_count = base;
        builder->dim_count = dim_count;
        OG_TRY(advance(p));
    }
    return OGIVE_OK;
}

static ogive_status parse_power(parser *p, og_operand *out)
{
    OG_TRY(parse_primary(p, out));
    OG_TRY(parse_transposes(p, out));
    if (peek(p) != OG_TOKEN_POWER)
        return OGIVE_OK;
    int64_t start = out->offset, place = get_place(p, &p->lexer.token);
    og_operand exponent;
    OG_TRY(enter(p));
    OG_TRY(advance(p));
    OG_TRY(parse_unary(p, &exponent));
    leave(p);
    OG_TRY(og_take_value(p->builder, out, "the base of **"));
    OG_TRY(og_take_value(p->builder, &exponent, "the exponent of **"));
    OG_TRY(og_build_argument(p->builder, OG_OP_pow, out));
    OG_TRY(og_build_argument(p->builder, OG_OP_pow, &exponent));
    og_operand base = *out;
    OG_TRY(og_build_pow(p->builder, &base, &exponent, place, out));
    out->offset = start;
    return OGIVE_OK;
}

/* An operator that is a composite. */
static ogive_status call_operator(parser *p, og_op op, const og_operand *args, size_t count,
                                  int64_t place, og_operand *out)
{
    og_builder *builder = p->builder;
    size_t base, dim_count = builder->dim_count;
    OG_TRY(og_build_operands(builder, count, &base));
    memcpy(builder->operands + base, args, count * sizeof *args);
    OG_TRY(og_call_function(builder, op, base, place, out));
    builder->operand_count = base;
    builder->dim_count = dim_count;
    return OGIVE_OK;
}

static ogive_status parse_unary(parser *p, og_operand *out)
{
    og_token sign = p->lexer.token;
    if (sign.kind != OG_TOKEN_PLUS && sign.kind != OG_TOKEN_MINUS && sign.kind != OG_TOKEN_NOT)
        return parse_power(p, out);
    OG_TRY(enter(p));
    OG_TRY(advance(p));
    OG_TRY(parse_unary(p, out));
    leave(p);
    int64_t place = get_place(p, &sign);
    if (sign.kind == OG_TOKEN_NOT) {
        og_operand value = *out;
        OG_TRY(call_operator(p, OG_OP_logical_not, &value, 1, place, out));
    } else if (sign.kind == OG_TOKEN_PLUS) {
        OG_TRY(og_take_value(p->builder, out, "the operand of +"));
    } else {
        OG_TRY(og_take_value(p->builder, out, "the operand of -"));
        OG_TRY(og_build_argument(p->builder, OG_OP_neg, out));
        og_operand value = *out;
        OG_TRY(og_build_scalar(p->builder, OG_OP_neg, &value, NULL, OG_OP_neg, place, out));
    }
    out->offset = place;
    return OGIVE_OK;
}

typedef struct {
    og_op op;
    og_binding level;
    const char *symbol, *label;
} binary;

/* The operator between two operands that the token is, or NULL. */
static const binary *find_binary(const parser *p)
{
    static const binary all[] = {
#define OPERATOR(name, symbol, level)                                                              \
    {OG_OP_##name, OG_BINDS_##level, symbol, "an operand of " symbol},
#include "formula/functions.def"
    };
    const og_token *token = &p->lexer.token;
    if (token->kind < OG_TOKEN_FIRST_OPERATOR)
        return NULL;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].level < OG_BINDS_SIGN && strlen(all[i].symbol) == token->length &&
            !memcmp(all[i].symbol, p->lexer.text + token->offset, token->length))
            return &all[i];
    return NULL;
}

static ogive_status build_binary(parser *p, const binary *infix, og_operand *args, int64_t place,
                                 og_operand *out)
{
    int64_t start = args[0].offset;
    if (og_function_of(infix->op)->kind == OG_COMPOSITE) {
        OG_TRY(call_operator(p, infix->op, args, 2, place, out));
        out->offset = start;
        return OGIVE_OK;
    }
    for (int i = 0; i < 2; i++) {
        OG_TRY(og_take_value(p->builder, &args[i], infix->label));
        if (infix->op == OG_OP_matmul && og_operand_is_constant(p->builder, &args[i]))
            OG_FAIL(p->lexer.error, OGIVE_FORMULA, args[i].offset,
                    "%s must be a tensor that depends on an input, got a constant", infix->label);
        OG_TRY(og_build_argument(p->builder, infix->op, &args[i]));
    }
    if (og_function_of(infix->op)->kind == OG_SCALAR)
        OG_TRY(og_build_scalar(p->builder, infix->op, args, NULL, infix->op, place, out));
    else
        OG_TRY(og_build_plain(p->builder, infix->op, args, 2, place, out));
    og_note_product(p->builder, infix->op, out);
    out->offset = start;
    return OGIVE_OK;
}

/* Operators of at least this level, from left to right. */
static ogive_status parse_binary(parser *p, og_binding level, og_operand *out)
{
    OG_TRY(parse_unary(p, out));
    for (;;) {
        const binary *infix = find_binary(p);
        if (!infix || infix->level < level)
            return OGIVE_OK;
        int64_t place = get_place(p, &p->lexer.token);
        OG_TRY(advance(p));
        og_operand args[2] = {*out};
        OG_TRY(parse_binary(p, infix->level + 1, &args[1]));
        OG_TRY(build_binary(p, infix, args, place, out));
        const binary *next = infix->level == OG_BINDS_COMPARISON ? find_binary(p) : NULL;
        if (next && next->level == OG_BINDS_COMPARISON)
            OG_FAIL(p->lexer.error, OGIVE_FORMULA, get_place(p, &p->lexer.token),
                    "comparisons do not chain: write (a < b) & (b < c)");
    }
}

static ogive_status parse_expression(parser *p, og_operand *out)
{
    return parse_binary(p, OG_BINDS_COMPARISON, out);
}

/* ---- programs ------------------------------------------------------------ */

static ogive_status check_new_name(const parser *p, const og_token *name)
{
    const char *text = get_text(p, name);
    int shown = get_shown(name->length);
    int64_t place = get_place(p, name);
    og_operand word;
    if (og_is_reserved(text, name->length, false))
        OG_FAIL(p->lexer.error, OGIVE_FORMULA, place,
                "'%.*s' is a function; give the value another name", shown, text);
    if (og_find_word(text, name->length, &word))
        OG_FAIL(p->lexer.error, OGIVE_FORMULA, place,
                "'%.*s' is a word of the language; give the value another name", shown, text);
    const og_named *named = og_scope_find(p->scope, text, name->length);
    if (named && named->is_input)
        OG_FAIL(p->lexer.error, OGIVE_FORMULA, place,
                "'%.*s' is bound after it is used (as an input, at byte %lld)", shown, text,
                (long long)named->offset);
    if (named)
        OG_FAIL(p->lexer.error, OGIVE_FORMULA, place, "'%.*s' is bound twice (first at byte %lld)",
                shown, text, (long long)named->offset);
    return OGIVE_OK;
}

static ogive_status bind_name(parser *p, const og_token *name, const og_operand *value)
{
    OG_TRY(check_new_name(p, name)); /* not used in its own value */
    og_named named = {.name = get_text(p, name),
                      .length = name->length,
                      .offset = get_place(p, name),
                      .operand = *value};
    return og_scope_add(p->scope, &named, p->lexer.error);
}

/* Half of a function of two results. */
static og_operand get_half(const og_operand *pair, int which)
{
    return (og_operand){.kind = OG_OPERAND_NODE,
                        .index = which ? pair->second : pair->index,
                        .offset = pair->offset};
}

static ogive_status bind_pair(parser *p, const og_token *names, const og_operand *value)
{
    if (value->kind != OG_OPERAND_PAIR)
        OG_FAIL(p->lexer.error, OGIVE_FORMULA, value->offset,
                "two names are bound to one value; std_mean and var_mean give two");
    for (int i = 0; i < 2; i++) {
        og_operand half = get_half(value, i);
        OG_TRY(bind_name(p, &names[i], &half));
    }
    return OGIVE_OK;
}

/* names: count of them, 1 or 2. */
static ogive_status parse_binding(parser *p, const og_token *names, int count)
{
    og_operand value;
    for (int i = 0; i < count; i++)
        OG_TRY(check_new_name(p, &names[i]));
    OG_TRY(parse_expression(p, &value));
    if (peek(p) != OG_TOKEN_SEMICOLON)
        return fail_expected(p, "an operator or ';' after the bound value");
    if (count == 2) {
        OG_TRY(bind_pair(p, names, &value));
        return advance(p);
    }
    if (!og_operand_is_mask(p->builder, &value)) /* which where() may want */
        OG_TRY(og_take_value(p->builder, &value, "a bound value"));
    OG_TRY(bind_name(p, &names[0], &value));
    return advance(p);
}

/* "name =" or "name, name =": *count is how many were read, 0 if this is no binding. */
static ogive_status accept_binding(parser *p, og_token names[2], int *count)
{
    bool accepted;
    OG_TRY(accept_assignment(p, &names[0], &accepted));
    *count = accepted;
    if (accepted || peek(p) != OG_TOKEN_NAME)
        return OGIVE_OK;
    og_lexer before = p->lexer;
    names[0] = before.token;
    OG_TRY(advance(p));
    if (peek(p) == OG_TOKEN_COMMA) {
        OG_TRY(advance(p));
        OG_TRY(accept_assignment(p, &names[1], &accepted));
        *count = accepted ? 2 : 0;
    }
    if (!accepted)
        p->lexer = before;
    return OGIVE_OK;
}

static ogive_status parse_results(parser *p, og_operand *results, int32_t *count)
{
    for (*count = 0;;) {
        if (*count == OG_MAX_RESULTS)
            OG_FAIL(p->lexer.error, OGIVE_FORMULA, get_place(p, &p->lexer.token),
                    "more than %d results", OG_MAX_RESULTS);
        og_operand *result = &results[(*count)++];
        OG_TRY(parse_expression(p, result));
        if (result->kind == OG_OPERAND_PAIR && *count < OG_MAX_RESULTS) {
            results[(*count)++] = get_half(result, 1);
            *result = get_half(result, 0);
        }
        bool is_mask = og_operand_is_mask(p->builder, result);
        if (!p->in_meaning || (result->kind != OG_OPERAND_NONE && !is_mask))
            OG_TRY(og_take_value(p->builder, result, "a result"));
        if (peek(p) != OG_TOKEN_COMMA)
            break;
        OG_TRY(advance(p));
    }
    bool has_semicolon = peek(p) == OG_TOKEN_SEMICOLON;
    if (has_semicolon)
        OG_TRY(advance(p));
    if (peek(p) == OG_TOKEN_END)
        return OGIVE_OK;
    if (peek(p) == OG_TOKEN_CLOSE || peek(p) == OG_TOKEN_CLOSE_LIST)
        OG_FAIL(p->lexer.error, OGIVE_FORMULA, get_place(p, &p->lexer.token),
                "'%c' closes nothing that is open", *get_text(p, &p->lexer.token));
    return fail_expected(p, has_semicolon
                                ? "the end of the formula after its results (a value before them "
                                  "is bound by 'name = value;')"
                                : "an operator, ',', ';' or the end of the formula");
}

static ogive_status parse_program(parser *p, og_operand *results, int32_t *count)
{
    OG_TRY(advance(p));
    if (peek(p) == OG_TOKEN_END)
        OG_FAIL(p->lexer.error, OGIVE_FORMULA, 0, "the formula is empty");
    for (;;) {
        og_token names[2];
        int count_bound;
        OG_TRY(accept_binding(p, names, &count_bound));
        if (!count_bound)
            break;
        OG_TRY(parse_binding(p, names, count_bound));
    }
    if (peek(p) == OG_TOKEN_END)
        return fail_expected(p, "a result after the bindings");
    return parse_results(p, results, count);
}

ogive_status og_parse_program(og_builder *builder, og_scope *scope, const char *text, size_t length,
                              bool in_meaning, og_operand *results, int32_t *count)
{
    parser p = {.builder = builder, .scope = scope, .in_meaning = in_meaning};
    p.lexer = (og_lexer){.text = text, .length = length, .error = builder->error};
    return parse_program(&p, results, count);
}
