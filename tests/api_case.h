/* SPDX-License-Identifier: MIT
 *
 * api_case.h - formulas and refusals of test_api.c and test_api_run.c.
 */
#ifndef OG_API_CASE_H
#define OG_API_CASE_H

#include "test.h"

static ogive_error error;

static ogive_formula *make(const char *text)
{
    ogive_formula *formula;
    TEST_OK(ogive_formula_create(text, OGIVE_TEXT, &formula, &error), error);
    assert_non_null(formula);
    assert_int_equal(error.status, OGIVE_OK);
    return formula;
}

/* The status and the whole message. */
#define REFUSED(call, want_status, want_message)                                                   \
    do {                                                                                           \
        memset(&error, 0x55, sizeof error);                                                        \
        assert_int_equal(call, want_status);                                                       \
        assert_int_equal(error.status, want_status);                                               \
        assert_string_equal(error.message, want_message);                                          \
    } while (0)

#endif
