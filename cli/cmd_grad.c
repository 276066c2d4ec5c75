/* SPDX-License-Identifier: MIT
 *
 * cmd_grad.c - ogive grad: the gradient of a formula, as a formula.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "report.h"
#include "request.h"

static const char help[] =
    "usage: ogive grad FORMULA NAME... [OPTION]...\n"
    "\n"
    "Prints the gradient of FORMULA by the inputs of these names: one result each, from the\n"
    "formula's inputs and grad, what a change of its result is worth (grad.0, grad.1, ... of\n"
    "several results). ogive run FORMULA --gradient NAME computes it.\n"
    "\n"
    "It is for reading: casts are left out, and functions may be in it that the language keeps\n"
    "to itself:\n"
    "  expand(g, x, dim)   what a reduction of x over dim gave, spread over x's shape\n"
    "  sum_like(v, x)      v summed over the dims that broadcasting x added\n"
    "  count(x, dim)       the number of elements that a reduction over dim takes\n"
    "  product_t(a, b, w)  a transposed times b, summed over batches that w has not\n"
    "\n"
    "options:\n"
    "  -f, --file FILE     read the formula from FILE, '-' for standard input\n"
    "\n"
    "examples:\n"
    "  ogive grad 'x * sigmoid(x)' x\n"
    "  ogive grad 'mean((linear(x, w) - y)**2)' w\n";

static bool print_gradient(const ogive_formula *formula, const text_list *names, failure *why)
{
    ogive_formula *gradient = NULL;
    ogive_error error;

    if (ogive_formula_gradient(formula, names->items, names->count, &gradient, &error))
        return fail_library(why, &error);
    size_t length = ogive_formula_text(gradient, NULL, 0);
    char *text = malloc(length + 1);
    if (text) {
        ogive_formula_text(gradient, text, length + 1);
        for (char *end; (end = strstr(text, "; ")); text[end - text] = '\n')
            memmove(end + 1, end + 2, strlen(end + 2) + 1);
        puts(text);
    }
    ogive_formula_release(gradient);
    free(text);
    return text || fail_memory(why, (double)length, "the gradient");
}

static int run_grad(int argc, char **argv)
{
    text_list arguments = {0};
    const char *file = NULL;
    const option options[] = {
        {.name = "--file", .letter = 'f', .kind = OPTION_TEXT, .value = &file},
        {0},
    };
    request r = {0};
    failure why = {0};

    bool good = options_parse(argc, argv, options, &arguments, &why);
    size_t taken = good && !file && arguments.count ? 1 : 0;
    text_list formula = {.items = arguments.items, .count = taken};
    text_list names = {.items = arguments.items + taken, .count = arguments.count - taken};
    good = good && request_read(&r, file, &formula, &why);
    if (good && !names.count)
        good = failed(&why, STATUS_USAGE, "by which input? For example: ogive grad 'x * y' x");
    good = good && print_gradient(r.formula, &names, &why);
    if (!good)
        report_failure(&why, r.text, r.length);
    request_release(&r);
    text_list_release(&arguments);
    return good ? STATUS_DONE : why.status;
}

const command command_grad = {"grad", "print the gradient of a formula, a formula too", help,
                              run_grad};
