/* SPDX-License-Identifier: MIT
 *
 * options.c - reads a command's options and arguments; see options.h.
 */
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool fail_unknown(const char *argument, const option *options, failure *why)
{
    const char *names[64];
    size_t count = 0;

    for (; options->name && count < 63; options++)
        names[count++] = options->name;
    names[count++] = "--help";
    const char *nearest = argument[1] == '-' ? text_nearest(argument, names, count) : NULL;
    if (nearest)
        return failed(why, STATUS_USAGE, "unknown option '%s'; did you mean '%s'?", argument,
                      nearest);
    /* -x*2 is more likely a formula than a letter that does not exist. */
    if (argument[1] != '-')
        return failed(why, STATUS_USAGE,
                      "unknown option '%s' (a formula that begins with '-' goes after '--')",
                      argument);
    return failed(why, STATUS_USAGE, "unknown option '%s' (see --help)", argument);
}

static bool store_value(const option *o, const char *text, failure *why)
{
    if (o->kind == OPTION_TEXT) {
        *(const char **)o->value = text;
        return true;
    }
    if (o->kind == OPTION_LIST)
        return text_list_add(o->value, text) ||
               fail_memory(why, (double)strlen(text), "the command line");

    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (!*text || isspace((unsigned char)*text) || *end || errno || number < o->least ||
        number > o->greatest)
        return failed(why, STATUS_USAGE, "%s: expected a whole number from %lld to %lld, got '%s'",
                      o->name, (long long)o->least, (long long)o->greatest, text);
    *(int64_t *)o->value = number;
    return true;
}

/* The option that argument names; *inline_value is what follows '=' or a
 * letter, NULL if nothing does. */
static const option *find_option(const char *argument, const option *options,
                                 const char **inline_value)
{
    const char *equals = strchr(argument, '=');
    size_t length = equals ? (size_t)(equals - argument) : strlen(argument);

    *inline_value = NULL;
    for (; options->name; options++) {
        if (argument[1] == '-') {
            if (strlen(options->name) == length && !memcmp(options->name, argument, length)) {
                *inline_value = equals ? equals + 1 : NULL;
                return options;
            }
        } else if (options->letter && argument[1] == options->letter) {
            if (argument[2] && options->kind == OPTION_FLAG)
                continue;
            *inline_value = argument[2] ? argument + 2 : NULL;
            return options;
        }
    }
    return NULL;
}

bool options_parse(int argc, char **argv, const option *options, text_list *arguments, failure *why)
{
    bool ended = false;

    for (int i = 0; i < argc; i++) {
        const char *argument = argv[i], *value;

        if (!ended && !strcmp(argument, "--")) {
            ended = true;
            continue;
        }
        if (ended || argument[0] != '-' || !argument[1]) {
            if (!text_list_add(arguments, argument))
                return fail_memory(why, (double)argc, "the command line");
            continue;
        }
        const option *o = find_option(argument, options, &value);
        if (!o)
            return fail_unknown(argument, options, why);
        if (o->kind == OPTION_FLAG) {
            if (value)
                return failed(why, STATUS_USAGE, "option '%s' takes no value", o->name);
            *(bool *)o->value = true;
            continue;
        }
        if (!value && i + 1 == argc)
            return failed(why, STATUS_USAGE, "option '%s' needs a value", argument);
        if (!store_value(o, value ? value : argv[++i], why))
            return false;
    }
    return true;
}

bool check_cpu_level(const char *level, failure *why)
{
    char known[256] = "";
    size_t used = 0;

    for (size_t i = 0; ogive_cpu_level_name(i); i++) {
        const char *name = ogive_cpu_level_name(i);
        if (!strcmp(name, level))
            return true;
        if (used < sizeof(known))
            used +=
                (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "", name);
    }
    return failed(why, STATUS_USAGE, "--cpu: this machine has no level '%s'; it has %s", level,
                  known);
}

/* cpu, cuda, cuda:N */
static bool read_device(const char *text, DLDevice *out, failure *why)
{
    const char *rest = text + 4;

    *out = (DLDevice){kDLCPU, 0};
    if (!strcmp(text, "cpu"))
        return true;
    out->device_type = kDLCUDA;
    if (!strcmp(text, "cuda"))
        return true;
    if (!strncmp(text, "cuda:", 5) && rest[1] && strlen(rest) < 6 &&
        strspn(rest + 1, "0123456789") == strlen(rest + 1)) {
        out->device_id = (int32_t)strtol(rest + 1, NULL, 10);
        return true;
    }
    return failed(why, STATUS_USAGE, "--device: unknown device '%s'; expected cpu, cuda or cuda:N",
                  text);
}

static bool read_precision(const char *text, ogive_precision *out, failure *why)
{
    static const char *const names[] = {
        [OGIVE_FLOAT32] = "float32", [OGIVE_STRICT] = "strict", [OGIVE_TF32] = "tf32"};
    for (int i = 0; text && i < 3; i++)
        if (!strcmp(text, names[i])) {
            *out = (ogive_precision)i;
            return true;
        }
    return !text ||
           failed(why, STATUS_USAGE,
                  "--precision: unknown precision '%s'; expected float32, strict or tf32", text);
}

bool device_options_apply(const device_options *device, ogive_options *out, DLDevice *where,
                          failure *why)
{
    *out = (ogive_options){.size = sizeof(*out), .threads = (int32_t)device->threads};
    if (device->cpu && !check_cpu_level(device->cpu, why))
        return false;
    if (!read_device(device->device ? device->device : "cpu", where, why) ||
        !read_precision(device->precision, &out->precision, why))
        return false;
    if (device->arch && where->device_type == kDLCPU)
        return failed(why, STATUS_USAGE, "--arch is for GPUs, --device is cpu");
    out->cpu_level = device->cpu;
    out->cuda_arch = device->arch;
    return true;
}

bool check_function_names(const text_list *names, failure *why)
{
    size_t count = ogive_function_count();
    const char **known = calloc(count + 1, sizeof(*known));
    ogive_function_info info;
    bool good = known || fail_memory(why, (double)count, "the functions");

    for (size_t i = 0; good && i < count; i++)
        known[i] = ogive_function(i, &info, NULL) ? "" : info.name;
    for (size_t i = 0; good && i < names->count; i++) {
        const char *name = names->items[i];
        size_t at = 0;
        while (at < count && strcmp(known[at], name))
            at++;
        if (at < count)
            continue;
        const char *nearest = text_nearest(name, known, count);
        good = nearest
                   ? failed(why, STATUS_USAGE, "unknown function '%s'; did you mean '%s'?", name,
                            nearest)
                   : failed(why, STATUS_USAGE, "unknown function '%s' (see ogive functions)", name);
    }
    free(known);
    return good;
}
