/* SPDX-License-Identifier: MIT
 *
 * test_parse.h - what the tests of the parser share.
 */
#ifndef OG_TEST_PARSE_H
#define OG_TEST_PARSE_H

#include "test.h"

#include "formula/graph.h"

/* The text is refused with this message at this byte. */
static inline void expect_error(const char *text, size_t length, int64_t offset,
                                const char *message)
{
    og_graph graph;
    ogive_error error;
    ogive_status status = og_graph_parse(text, length, &graph, &error);
    if (!status)
        og_graph_free(&graph);
    if (status != OGIVE_FORMULA || error.status != OGIVE_FORMULA || error.offset != offset ||
        strcmp(error.message, message))
        fail_msg("%.200s\n  got  %s %lld: %s\n  want formula %lld: %s", text,
                 ogive_status_name(status), (long long)error.offset, status ? error.message : "",
                 (long long)offset, message);
}

#endif
