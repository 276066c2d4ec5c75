/* SPDX-License-Identifier: MIT
 *
 * lexer.h - formula text as tokens: names, numbers, strings, operators.
 */
#ifndef OG_LEXER_H
#define OG_LEXER_H

#include "base/base.h"

typedef enum {
    OG_TOKEN_END,
    OG_TOKEN_NAME,      /* dotted: fc.weight, layers.0.bias */
    OG_TOKEN_NUMBER,    /* token.number */
    OG_TOKEN_STRING,    /* the quotes are part of offset and length */
    OG_TOKEN_TRANSPOSE, /* .T or .mT */
    OG_TOKEN_OPEN,
    OG_TOKEN_CLOSE,
    OG_TOKEN_OPEN_LIST,
    OG_TOKEN_CLOSE_LIST,
    OG_TOKEN_COMMA,
    OG_TOKEN_SEMICOLON,
    OG_TOKEN_ASSIGN,
    OG_TOKEN_FIRST_OPERATOR,
    OG_TOKEN_PLUS = OG_TOKEN_FIRST_OPERATOR,
    OG_TOKEN_MINUS,
    OG_TOKEN_TIMES,
    OG_TOKEN_DIVIDE,
    OG_TOKEN_AT,
    OG_TOKEN_POWER,
    OG_TOKEN_AND,
    OG_TOKEN_OR,
    OG_TOKEN_XOR,
    OG_TOKEN_NOT,
    OG_TOKEN_LT,
    OG_TOKEN_LE,
    OG_TOKEN_GT,
    OG_TOKEN_GE,
    OG_TOKEN_EQ,
    OG_TOKEN_NE
} og_token_kind;

typedef struct {
    og_token_kind kind;
    size_t offset, length; /* of an end: right behind the last token */
    double number;
    bool is_real; /* a number with a point or an exponent */
} og_token;

typedef struct {
    const char *text;
    size_t length;
    size_t at; /* first byte not yet read */
    og_token token;
    ogive_error *error;
} og_lexer;

/* Reads the next token into lexer->token. Start with at = 0 and a zero token. */
ogive_status og_lexer_next(og_lexer *lexer);

/* ---- decimal.c ----------------------------------------------------------- */

typedef enum {
    OG_DECIMAL_OK,
    OG_DECIMAL_NO_EXPONENT, /* an e without digits behind it */
    OG_DECIMAL_RANGE        /* above float64's largest, or not 0 and below its least */
} og_decimal_status;

/* Reads digits, point, exponent from text (a digit, or a point and a digit) and
 * sets *used to their bytes. The nearest float64, whatever the locale. */
og_decimal_status og_decimal_read(const char *text, size_t length, size_t *used, double *value);

#endif
