/* SPDX-License-Identifier: MIT
 *
 * drawing.c - a plan as a picture; see drawing.h. The plan is read off its explanation: a kernel's
 * heading, then its instructions, a line each. Kernels stand below each other in the order in which
 * they run. Inputs come from the left, results go to the right, and what one kernel keeps for
 * another runs down on a line of its own beside them.
 */
#include "drawing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "svg.h"

enum {
    MOST_TENSORS = 64, /* of a kernel; further ones are not drawn */
    NAME = 64,
    LINES = 40, /* of a box */
    LINE = 76,  /* characters */
    BOX_WIDTH = 560,
    BOX_LEFT = 190,
    ROW_HEIGHT = 17,
    GAP = 34,  /* between boxes */
    LANE = 18, /* between the lines of what is kept, and how many these are */
    LANES = 6,
    MARGIN = 16
};

static const char *const ink = "#24292f", *const faint = "#57606a";
static const char *const read_colour = "#0969da", *const written_colour = "#1a7f37",
                         *const kept_colour = "#bc4c00";

typedef struct drawn_tensor {
    char name[NAME];
    bool written;
    const struct drawn_tensor *from; /* what a kernel before wrote and this one reads, or NULL */
    double y;                        /* of its arrow */
} drawn_tensor;

typedef struct {
    char heading[200];
    char lines[LINES][LINE + 4];
    int line_count;
    drawn_tensor tensors[MOST_TENSORS];
    int tensor_count;
    double top, height;
} drawn_kernel;

typedef struct {
    drawn_kernel *kernels;
    size_t count;
} drawn_plan;

/* ---- reading -------------------------------------------------------------------------- */

static void add_tensor(drawn_kernel *k, const char *name, bool written)
{
    char copy[NAME];
    int length = (int)strcspn(name, " ,\n");

    snprintf(copy, sizeof(copy), "%.*s", length, name);
    for (int i = 0; i < k->tensor_count; i++)
        if (!strcmp(k->tensors[i].name, copy) && k->tensors[i].written == written)
            return;
    if (k->tensor_count == MOST_TENSORS)
        return;
    drawn_tensor *tensor = &k->tensors[k->tensor_count++];
    snprintf(tensor->name, sizeof(tensor->name), "%s", copy);
    tensor->written = written;
}

static void add_line(drawn_kernel *k, const char *text)
{
    if (k->line_count < LINES)
        snprintf(k->lines[k->line_count++], sizeof(k->lines[0]), "%.*s%s", LINE, text,
                 strlen(text) > LINE ? "..." : "");
}

/* A word more in the box's last line, or in a new one. */
static void add_word(drawn_kernel *k, const char *word, int length)
{
    char *last = k->lines[k->line_count - 1];
    size_t used = strlen(last);
    bool begins = used && last[used - 1] == ':';

    if (used + (size_t)length + 2 > LINE && k->line_count < LINES) {
        add_line(k, "             ");
        last = k->lines[k->line_count - 1];
        used = strlen(last);
        begins = true;
    }
    snprintf(last + used, sizeof(k->lines[0]) - used, "%s%.*s", begins ? " " : ", ", length, word);
}

/* "%2 = add.f32 %1 %0", "store.f32 %1 y float32 ...". */
static void read_instruction(drawn_kernel *k, const char *line)
{
    const char *op = line[0] == '%' ? strstr(line, " = ") : NULL;
    op = op ? op + 3 : line;
    int length = (int)strcspn(op, ". \n");
    const char *operand = strchr(op, ' ');

    if (!strncmp(op, "load.", 5) && operand) {
        add_tensor(k, operand + 1, false);
    } else if (!strncmp(op, "store.", 6) && operand) {
        operand = strchr(operand + 1, ' ');
        if (operand)
            add_tensor(k, operand + 1, true);
    } else if (strncmp(op, "constant.", 9) != 0 && k->line_count) {
        add_word(k, op, length);
    }
}

/* "product: k 128, left x float32 ..., right w float32 ...". */
static void read_factors(drawn_kernel *k, const char *line)
{
    const char *left = strstr(line, "left "), *right = strstr(line, "right ");
    if (left)
        add_tensor(k, left + 5, false);
    if (right)
        add_tensor(k, right + 6, false);
}

static void read_line(drawn_kernel *k, const char *line)
{
    const char *text = line + strspn(line, " ");
    char short_line[LINE + 4];

    if (!strncmp(text, "product:", 8)) {
        read_factors(k, text);
    } else if (!strncmp(text, "pass ", 5) || !strncmp(text, "must read", 9)) {
        add_line(k, text);
    } else if (!strcmp(text, "each element") || !strcmp(text, "reduce") ||
               !strcmp(text, "each row")) {
        snprintf(short_line, sizeof(short_line), "%12s:", text);
        add_line(k, short_line);
    } else if (text[0] == '%' || !strncmp(text, "store.", 6)) {
        read_instruction(k, text);
    }
}

static bool read_plan(const char *text, drawn_plan *plan, failure *why)
{
    for (const char *line = text; *line;) {
        size_t length = strcspn(line, "\n");
        char copy[600];
        snprintf(copy, sizeof(copy), "%.*s", (int)(length < 590 ? length : 590), line);
        if (!strncmp(copy, "kernel ", 7)) {
            drawn_kernel *grown = realloc(plan->kernels, (plan->count + 1) * sizeof(*grown));
            if (!grown)
                return fail_memory(why, (double)((plan->count + 1) * sizeof(*grown)),
                                   "the drawing");
            plan->kernels = grown;
            plan->kernels[plan->count] = (drawn_kernel){0};
            snprintf(plan->kernels[plan->count++].heading, sizeof(grown->heading), "%.190s", copy);
        } else if (plan->count) {
            read_line(&plan->kernels[plan->count - 1], copy);
        }
        line += length + (line[length] == '\n');
    }
    return true;
}

/* ---- placing -------------------------------------------------------------------------- */

/* The last kernel before kernel n that writes what is called name; NULL: none. */
static const drawn_tensor *find_writer(const drawn_plan *plan, size_t n, const char *name)
{
    for (size_t k = n; k-- > 0;)
        for (int i = 0; i < plan->kernels[k].tensor_count; i++) {
            const drawn_tensor *tensor = &plan->kernels[k].tensors[i];
            if (tensor->written && !strcmp(tensor->name, name))
                return tensor;
        }
    return NULL;
}

/* What is computed has its arrow on the right. */
static bool is_right(const drawn_tensor *tensor)
{
    return tensor->written || tensor->from;
}

/* A box is as high as its lines, or as its arrows; returns where the last ends. */
static double place(drawn_plan *plan, double top)
{
    for (size_t n = 0; n < plan->count; n++) {
        drawn_kernel *k = &plan->kernels[n];
        int sides[2] = {0, 0}, at[2] = {0, 0}, rows = k->line_count + 2;
        for (int i = 0; i < k->tensor_count; i++) {
            drawn_tensor *tensor = &k->tensors[i];
            tensor->from = tensor->written ? NULL : find_writer(plan, n, tensor->name);
            sides[is_right(tensor)]++;
        }
        rows = sides[0] + 1 > rows ? sides[0] + 1 : rows;
        rows = sides[1] + 1 > rows ? sides[1] + 1 : rows;
        k->top = top;
        k->height = rows * ROW_HEIGHT;
        for (int i = 0; i < k->tensor_count; i++) {
            bool side = is_right(&k->tensors[i]);
            k->tensors[i].y = top + k->height * ++at[side] / (sides[side] + 1);
        }
        top += k->height + GAP;
    }
    return top - GAP;
}

/* ---- drawing -------------------------------------------------------------------------- */

static void draw_arrow(svg *s, double x, double y, double to, const char *colour)
{
    svg_add(s,
            "<path d='M%.1f %.1f H%.1f' stroke='%s' fill='none'/>\n"
            "<path d='M%.1f %.1f l-7 -4 v8 z' fill='%s'/>\n",
            x, y, to - 6, colour, to, y, colour);
}

static void draw_box(svg *s, const drawn_kernel *k)
{
    svg_add(s,
            "<rect x='%d' y='%.1f' width='%d' height='%.1f' rx='5' fill='#f6f8fa' "
            "stroke='#8c959f'/>\n",
            BOX_LEFT, k->top, BOX_WIDTH, k->height);
    svg_text(s, BOX_LEFT + 10, k->top + ROW_HEIGHT, 12.5, "start", ink, k->heading);
    for (int i = 0; i < k->line_count; i++)
        svg_text(s, BOX_LEFT + 10, k->top + ROW_HEIGHT * (i + 2), 11.5, "start", faint,
                 k->lines[i]);
}

/* From the kernel that wrote it down a lane beside the boxes to the one that reads it. */
static void draw_kept(svg *s, const drawn_tensor *to, int lane)
{
    const int box = BOX_LEFT + BOX_WIDTH;
    const double x = box + 30 + LANE * (lane % LANES);

    svg_add(s,
            "<path d='M%d %.1f H%.1f V%.1f H%d' stroke='%s' fill='none' stroke-dasharray='4 3'/>\n"
            "<path d='M%d %.1f l7 -4 v8 z' fill='%s'/>\n",
            box, to->from->y, x, to->y, box + 6, kept_colour, box, to->y, kept_colour);
    /* Beyond all lanes, where nothing crosses it. */
    svg_text(s, box + 30 + LANE * LANES, to->y + 4, 11, "start", kept_colour, to->name);
}

static void draw_tensors(svg *s, const drawn_plan *plan, size_t n, int *lane)
{
    const drawn_kernel *k = &plan->kernels[n];

    for (int i = 0; i < k->tensor_count; i++) {
        const drawn_tensor *tensor = &k->tensors[i];
        if (tensor->from) {
            draw_kept(s, tensor, (*lane)++);
        } else if (!tensor->written) {
            svg_text(s, BOX_LEFT - 62, tensor->y + 4, 12, "end", read_colour, tensor->name);
            draw_arrow(s, BOX_LEFT - 56, tensor->y, BOX_LEFT, read_colour);
        } else if (strncmp(tensor->name, "temporary", 9) != 0) {
            double end = BOX_LEFT + BOX_WIDTH + 40 + LANE * LANES;
            draw_arrow(s, BOX_LEFT + BOX_WIDTH, tensor->y, end, written_colour);
            svg_text(s, end + 6, tensor->y + 4, 12, "start", written_colour, tensor->name);
        }
    }
}

bool draw_plan(const char *formula, const char *text, const char *path, failure *why)
{
    drawn_plan plan = {0};
    svg s = {0};
    int lane = 0;

    if (!read_plan(text, &plan, why)) {
        free(plan.kernels);
        return false;
    }
    double height = place(&plan, 3 * MARGIN) + MARGIN;
    svg_begin(&s, BOX_LEFT + BOX_WIDTH + 320, height);
    svg_text(&s, MARGIN, 1.7 * MARGIN, 13, "start", ink, formula);
    for (size_t n = 0; n < plan.count; n++)
        draw_box(&s, &plan.kernels[n]);
    for (size_t n = 0; n < plan.count; n++)
        draw_tensors(&s, &plan, n, &lane);
    free(plan.kernels);
    return svg_end(&s, path, why);
}
