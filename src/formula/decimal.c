/* SPDX-License-Identifier: MIT
 *
 * decimal.c - decimal text to the nearest float64, independent of the locale:
 * short numbers by one exact operation, others by strtod on text that holds no
 * decimal point.
 */
#include "formula/lexer.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    /* 768 digits decide how any decimal rounds to a float64, if a later digit
     * that is not 0 leaves its mark. */
    MAX_DIGITS = 780,
    MAX_EXPONENT = 100000000, /* larger ones read as this */
    DECIDED_EXPONENT = 9999   /* with at most MAX_DIGITS digits: infinity or 0 */
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* mantissa: digits with at most one point. */
static double convert_digits(const char *mantissa, size_t length, int64_t exponent)
{
    char buffer[MAX_DIGITS + 32];
    int count = 0;
    bool in_fraction = false, dropped = false;
    for (size_t i = 0; i < length; i++) {
        char c = mantissa[i];
        if (c == '.') {
            in_fraction = true;
            continue;
        }
        if (count == MAX_DIGITS) {
            dropped |= c != '0';
            exponent += !in_fraction;
            continue;
        }
        exponent -= in_fraction;
        if (count > 0 || c != '0')
            buffer[count++] = c;
    }
    if (count == 0)
        return 0;
    if (dropped) {
        buffer[count++] = '1';
        exponent--;
    }
    if (exponent > DECIDED_EXPONENT || exponent < -DECIDED_EXPONENT)
        exponent = exponent > 0 ? DECIDED_EXPONENT : -DECIDED_EXPONENT;
    snprintf(buffer + count, sizeof buffer - (size_t)count, "e%d", (int)exponent);
    int saved = errno;
    double value = strtod(buffer, NULL);
    errno = saved;
    return value;
}

/* m * 10^e is exact in one float64 operation for m <= 2^53 and |e| <= 22. */
static bool convert_exactly(uint64_t m, int64_t exponent, double *value)
{
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    if (m > UINT64_C(1) << 53 || exponent > 22 || exponent < -22)
        return false;
    *value = exponent < 0 ? (double)m / powers[-exponent] : (double)m * powers[exponent];
    return true;
}

og_decimal_status og_decimal_read(const char *text, size_t length, size_t *used, double *value)
{
    size_t at = 0;
    uint64_t small = 0; /* the digits as an integer, while there are at most 18 */
    int digits = 0;
    int64_t fraction_digits = 0, exponent = 0;
    bool in_fraction = false, is_zero = true;
    for (; at < length && (is_digit(text[at]) || (text[at] == '.' && !in_fraction)); at++) {
        if (text[at] == '.') {
            in_fraction = true;
            continue;
        }
        fraction_digits += in_fraction;
        is_zero &= text[at] == '0';
        if (!is_zero && ++digits <= 18)
            small = small * 10 + (uint64_t)(text[at] - '0');
    }
    size_t mantissa_length = at;
    if (at < length && (text[at] == 'e' || text[at] == 'E')) {
        at++;
        bool is_negative = at < length && text[at] == '-';
        at += at < length && (text[at] == '-' || text[at] == '+');
        *used = at;
        if (at == length || !is_digit(text[at]))
            return OG_DECIMAL_NO_EXPONENT;
        for (; at < length && is_digit(text[at]); at++) {
            if (exponent < MAX_EXPONENT)
                exponent = exponent * 10 + (text[at] - '0');
        }
        exponent = is_negative ? -exponent : exponent;
    }
    *used = at;
    if (is_zero)
        *value = 0;
    else if (digits > 18 || !convert_exactly(small, exponent - fraction_digits, value))
        *value = convert_digits(text, mantissa_length, exponent);
    return isinf(*value) || (*value == 0 && !is_zero) ? OG_DECIMAL_RANGE : OG_DECIMAL_OK;
}
