/* SPDX-License-Identifier: MIT
 *
 * request.c - formula, inputs and plan of a command; see request.h.
 */
#include "request.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mapped_file.h"
#include "report.h"

/* The library's limit, and one more so that it is the library that says so. */
enum { MAX_FORMULA = (1 << 20) + 1 };

static bool read_formula(request *r, const char *path, failure *why)
{
    bool standard = !strcmp(path, "-");
    int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return failed(why, STATUS_FILE, "cannot open '%s': %s", path, strerror(errno));
    bool good = read_descriptor(fd, standard ? "standard input" : path, MAX_FORMULA, &r->text_owned,
                                &r->length, why);
    if (!standard)
        close(fd);
    r->text = r->text_owned;
    return good;
}

/* The gradient of a loss by a result of no dims is 1 if none is given: the result
 * is the loss. */
static bool fill_gradients(request *r, const ogive_formula *forward, failure *why)
{
    size_t first = ogive_formula_input_count(forward);
    ogive_plan *plan = NULL;
    ogive_error error;
    bool good = true;

    for (size_t i = first; good && i < r->in.count; i++) {
        input *item = &r->in.items[i];
        if (item->kind != INPUT_MISSING)
            continue;
        /* On the CPU: only the results' dims are asked for. */
        if (!plan && ogive_plan_create(forward, r->in.tensors, first, NULL, 0, NULL, &plan, &error))
            return fail_library(why, &error);
        const DLTensor *result = ogive_plan_result(plan, i - first);
        if (result->ndim == 0)
            inputs_set_number(item, 1.0);
        else
            good = inputs_fail_missing(item, why);
    }
    ogive_plan_release(plan);
    return good;
}

/* w=16 beside x=8x16 is a number, but may be meant as a shape. */
static void note_size(const inputs *in)
{
    const input *item = inputs_find_maybe_size(in, false);

    if (item)
        fprintf(stderr,
                "note: %s=%.0f is the number %.0f; a tensor of %.0f elements is %s=%.0f:%s\n",
                item->name, item->number, item->number, item->number, item->name, item->number,
                item->layout.dtype->name);
}

/* The inputs of the formula, or of its gradient, which takes its place. */
static bool resolve(request *r, const text_list *gradient, const text_list *arguments, failure *why)
{
    ogive_formula *forward = r->formula;
    size_t required = ogive_formula_input_count(forward);
    ogive_error error;

    if (!gradient || !gradient->count)
        return inputs_resolve(forward, arguments, required, &r->in, why);
    r->formula = NULL;
    bool good =
        !ogive_formula_gradient(forward, gradient->items, gradient->count, &r->formula, &error) ||
        fail_library(why, &error);
    good = good && inputs_resolve(r->formula, arguments, required, &r->in, why) &&
           fill_gradients(r, forward, why);
    ogive_formula_release(forward);
    return good;
}

/* The formula's text, from formula_file or else the first argument; rest: what follows. */
static bool read_text(request *r, const char *formula_file, const text_list *arguments,
                      text_list *rest, failure *why)
{
    ogive_error error;

    *rest = *arguments;
    if (formula_file) {
        if (!read_formula(r, formula_file, why))
            return false;
    } else if (!arguments->count) {
        return failed(why, STATUS_USAGE,
                      "no formula; for example 'sigmoid(x)' x=3x4:float32 (see --help)");
    } else {
        r->text = arguments->items[0];
        r->length = strlen(r->text);
        rest->items++;
        rest->count--;
    }
    for (size_t i = 0; i < rest->count; i++)
        if (strchr(rest->items[i], '(') && !inputs_is_input(rest->items[i]))
            return failed(why, STATUS_USAGE, "'%s' is not an input; the formula comes first%s",
                          rest->items[i], formula_file ? " or from -f, not both" : "");
    if (!ogive_formula_create(r->text, r->length, &r->formula, &error))
        return true;
    if (!formula_file && inputs_is_input(r->text) && !strchr(r->text, ';'))
        return failed(why, STATUS_USAGE, "'%s' is an input; the formula comes first", r->text);
    return fail_library(why, &error);
}

bool request_read(request *r, const char *formula_file, const text_list *arguments, failure *why)
{
    text_list rest;

    *r = (request){0};
    return read_text(r, formula_file, arguments, &rest, why) &&
           inputs_resolve(r->formula, &rest, 0, &r->in, why);
}

bool request_prepare(request *r, const char *formula_file, const text_list *arguments,
                     const text_list *gradient, const device_options *device, failure *why)
{
    text_list rest;
    ogive_error error;

    *r = (request){0};
    if (!device_options_apply(device, &r->options, &r->device, why) ||
        !read_text(r, formula_file, arguments, &rest, why) || !resolve(r, gradient, &rest, why))
        return false;
    note_size(&r->in);
    for (size_t i = 0; i < r->in.count; i++)
        r->in.items[i].tensor.device = r->device;
    if (ogive_plan_create(r->formula, r->in.tensors, r->in.count, NULL, 0, &r->options, &r->plan,
                          &error))
        return fail_library(why, &error);
    return true;
}

void request_release(request *r)
{
    ogive_plan_release(r->plan);
    inputs_release(&r->in);
    ogive_formula_release(r->formula);
    free(r->text_owned);
    *r = (request){0};
}
