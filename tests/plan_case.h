/* SPDX-License-Identifier: MIT
 *
 * plan_case.h - a formula and shapes in one line each become a plan; text is compared with
 * a file of tests/golden.
 *
 * Shapes are written "4x5", separated by blanks, one per input; a suffix says 't' (last two
 * dims transposed in memory), 's' (every second element of the last dim), 'h' (float16),
 * 'b' (bfloat16), 'd' (float64), 'm' (bool), 'c', 'n', 'i', 'l' (integers of 8 to 64 bits).
 */
#ifndef OG_PLAN_CASE_H
#define OG_PLAN_CASE_H

#include "test.h"

#include "plan/planner.h"

static inline const char *read_layout(const char *text, og_layout *layout)
{
    memset(layout, 0, sizeof *layout);
    text += *text == '-'; /* a 0-d tensor */
    while (*text >= '0' && *text <= '9') {
        char *end;
        layout->shape[layout->rank++] = strtoll(text, &end, 10);
        text = end + (*end == 'x');
    }
    assert_true(og_layout_contiguous(layout));
    for (; *text && *text != ' '; text++) {
        int32_t last = layout->rank - 1;
        if (*text == 't') {
            layout->stride[last] = layout->shape[last - 1];
            layout->stride[last - 1] = 1;
        }
        for (int32_t d = 0; *text == 's' && d < layout->rank; d++)
            layout->stride[d] *= 2;
        layout->dtype = *text == 'h'   ? OG_FLOAT16
                        : *text == 'b' ? OG_BFLOAT16
                        : *text == 'd' ? OG_FLOAT64
                        : *text == 'm' ? OG_BOOL
                        : *text == 'c' ? OG_INT8
                        : *text == 'n' ? OG_INT16
                        : *text == 'i' ? OG_INT32
                        : *text == 'l' ? OG_INT64
                                       : layout->dtype;
    }
    return text + (*text == ' ');
}

static inline og_layout result_layout(const og_typed *type)
{
    og_layout layout = {.dtype = type->dtype, .rank = type->rank};
    memcpy(layout.shape, type->shape, sizeof layout.shape);
    assert_true(og_layout_contiguous(&layout));
    return layout;
}

/* "d(x w) FORMULA" is the gradient of FORMULA by x and w. */
static inline void make_graph(const char *formula, og_graph *graph)
{
    char names[64], *items[8];
    int length = 0;
    size_t count = 0;
    ogive_error error;
    if (sscanf(formula, "d(%63[^)]) %n", names, &length) != 1)
        length = 0;
    if (og_graph_parse(formula + length, OGIVE_TEXT, graph, &error))
        fail_msg("%s: %s", formula, error.message);
    if (!length)
        return;
    for (char *name = strtok(names, " "); name; name = strtok(NULL, " "))
        items[count++] = name;
    og_graph gradient;
    TEST_OK(og_graph_gradient(graph, (const char *const *)items, count, &gradient, &error), error);
    og_graph_free(graph);
    *graph = gradient;
}

/* Plans formula for shapes. Free with og_plan_free and og_graph_free. */
static inline void make_plan_by(og_plan_rules rules, const char *formula, const char *shapes,
                                og_graph *graph, og_plan *plan)
{
    ogive_error error;
    make_graph(formula, graph);
    og_layout *inputs = calloc((size_t)graph->input_count + 1, sizeof *inputs);
    og_layout *outputs = calloc((size_t)graph->result_count, sizeof *outputs);
    og_input_type *types = calloc((size_t)graph->input_count + 1, sizeof *types);
    for (int32_t i = 0; i < graph->input_count; i++) {
        shapes = read_layout(shapes, &inputs[i]);
        types[i].dtype = inputs[i].dtype;
        types[i].rank = inputs[i].rank;
        memcpy(types[i].shape, inputs[i].shape, sizeof types[i].shape);
    }
    og_typed *typed = calloc((size_t)graph->node_count, sizeof *typed);
    if (og_infer(graph, types, typed, &error))
        fail_msg("%s: %s", formula, error.message);
    for (int32_t i = 0; i < graph->result_count; i++)
        outputs[i] = result_layout(&typed[graph->results[i]]);
    if (og_plan_build(graph, typed, inputs, outputs, rules, plan, &error))
        fail_msg("%s: %s", formula, error.message);
    free(typed);
    free(inputs);
    free(outputs);
    free(types);
}

static inline void make_plan(const char *formula, const char *shapes, og_graph *graph,
                             og_plan *plan)
{
    make_plan_by((og_plan_rules){0}, formula, shapes, graph, plan);
}

static inline char *read_golden(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    og_text text = {0};
    for (int c; (c = getc(file)) != EOF;)
        og_text_add(&text, "%c", c);
    fclose(file);
    return text.data;
}

/* Fails at the first line by which text differs from tests/golden/NAME; with
 * OGIVE_UPDATE_GOLDEN=1 the file becomes the text. */
static inline void compare_golden(const char *name, const og_text *text)
{
    const char *here = __FILE__, *slash = strrchr(here, '/');
    char path[4096];
    snprintf(path, sizeof path, "%.*s/golden/%s", (int)(slash - here), here, name);
    if (getenv("OGIVE_UPDATE_GOLDEN")) {
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        fputs(text->data, file);
        fclose(file);
    }
    char *want = read_golden(path);
    if (!want)
        fail_msg("%s cannot be read", path);
    const char *got_line = text->data, *want_line = want;
    for (int line = 1; *got_line || *want_line; line++) {
        size_t got_length = strcspn(got_line, "\n"), want_length = strcspn(want_line, "\n");
        if (got_length != want_length || memcmp(got_line, want_line, got_length) != 0)
            fail_msg("%s line %d:\n  got  %.*s\n  want %.*s", name, line, (int)got_length, got_line,
                     (int)want_length, want_line);
        got_line += got_length + (got_line[got_length] != 0);
        want_line += want_length + (want_line[want_length] != 0);
    }
    free(want);
}

#endif
