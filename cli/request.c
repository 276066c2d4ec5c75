/* SPDX-License-Identifier: MIT
 *
 * request.c - formula, inputs and plan of a command; see request.h.
 */
#include "request.h"

#include <errno.h>
#include <fcntl.h>
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

bool request_prepare(request *r, const char *formula_file, const text_list *arguments,
                     const device_options *device, failure *why)
{
    text_list rest = *arguments;
    ogive_error error;

    *r = (request){0};
    if (!device_options_apply(device, &r->options, why))
        return false;
    if (formula_file) {
        if (!read_formula(r, formula_file, why))
            return false;
    } else if (!arguments->count) {
        return failed(why, STATUS_USAGE,
                      "no formula; for example 'sigmoid(x)' x=3x4:float32 (see --help)");
    } else {
        r->text = arguments->items[0];
        r->length = strlen(r->text);
        rest.items++;
        rest.count--;
    }
    for (size_t i = 0; i < rest.count; i++)
        if (strchr(rest.items[i], '(') && !inputs_is_input(rest.items[i]))
            return failed(why, STATUS_USAGE, "'%s' is not an input; the formula comes first%s",
                          rest.items[i], formula_file ? " or from -f, not both" : "");
    if (ogive_formula_create(r->text, r->length, &r->formula, &error)) {
        if (!formula_file && inputs_is_input(r->text) && !strchr(r->text, ';'))
            return failed(why, STATUS_USAGE, "'%s' is an input; the formula comes first", r->text);
        return fail_library(why, &error);
    }
    if (!inputs_resolve(r->formula, &rest, &r->in, why))
        return false;
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
