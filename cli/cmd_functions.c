/* SPDX-License-Identifier: MIT
 *
 * cmd_functions.c - ogive functions: the functions of the language.
 */
#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "json_output.h"
#include "options.h"
#include "report.h"

static const char help[] =
    "usage: ogive functions [NAME]... [--markdown | --json]\n"
    "\n"
    "Lists the functions of the formula language with their arguments, by group, or only\n"
    "those named. A function means what PyTorch's function of that name means.\n"
    "\n"
    "options:\n"
    "  --markdown   print tables for the documentation\n"
    "  --json       print all that is known about each\n"
    "\n"
    "example:\n"
    "  ogive functions softmax layer_norm\n";

static bool is_wanted(const char *name, const text_list *names)
{
    for (size_t i = 0; i < names->count; i++)
        if (!strcmp(names->items[i], name))
            return true;
    return names->count == 0;
}

/* Text for a table cell: '|' would end it. */
static void print_cell(const char *text)
{
    for (; *text; text++)
        printf(*text == '|' ? "\\|" : "%c", *text);
}

static void print_markdown_row(const ogive_function_info *f)
{
    printf("| `");
    print_cell(f->name);
    putchar('(');
    print_cell(f->signature);
    printf(")` | ");
    if (f->meaning) {
        putchar('`');
        print_cell(f->meaning);
        putchar('`');
    }
    if (f->max_ulp >= 0)
        printf(" | %.3g |\n", f->max_ulp);
    else
        printf(" | |\n");
}

static void print_row(const ogive_function_info *f)
{
    printf("  %s(%s)\n", f->name, f->signature);
    if (f->meaning)
        printf("      = %s\n", f->meaning);
}

static void print_heading(const char *group, bool first, bool markdown)
{
    if (!first)
        putchar('\n');
    if (markdown)
        printf("### %c%s\n\n| function | meaning | largest float32 error (ULP) |\n|---|---|---|\n",
               group[0] >= 'a' && group[0] <= 'z' ? group[0] - 'a' + 'A' : group[0],
               group[0] ? group + 1 : "");
    else
        printf("%s\n", group);
}

static json_t *function_json(const ogive_function_info *f)
{
    char hash[24];
    json_t *item =
        json_pack("{s:s, s:s, s:s}", "name", f->name, "signature", f->signature, "group", f->group);

    if (f->meaning)
        json_object_set_new(item, "meaning", json_string(f->meaning));
    if (f->max_ulp >= 0) {
        snprintf(hash, sizeof(hash), "%016llx", (unsigned long long)f->hash);
        json_object_set_new(item, "max_ulp", json_real(f->max_ulp));
        json_object_set_new(item, "hash", json_string(hash));
    }
    return item;
}

static bool list_functions(const text_list *names, bool markdown, bool json, failure *why)
{
    json_t *list = json ? json_array() : NULL;
    const char *group = NULL;
    ogive_error error;

    for (size_t i = 0; i < ogive_function_count(); i++) {
        ogive_function_info f;
        if (ogive_function(i, &f, &error))
            return fail_library(why, &error);
        if (!is_wanted(f.name, names))
            continue;
        if (json) {
            json_array_append_new(list, function_json(&f));
            continue;
        }
        if (!group || strcmp(group, f.group))
            print_heading(f.group, !group, markdown);
        group = f.group;
        if (markdown)
            print_markdown_row(&f);
        else
            print_row(&f);
    }
    if (json)
        print_json(list);
    return true;
}

static int run_functions(int argc, char **argv)
{
    text_list names = {0};
    bool markdown = false, json = false;
    const option options[] = {{.name = "--markdown", .kind = OPTION_FLAG, .value = &markdown},
                              {.name = "--json", .kind = OPTION_FLAG, .value = &json},
                              {0}};
    failure why = {0};

    bool good = options_parse(argc, argv, options, &names, &why);
    if (good && markdown && json)
        good = failed(&why, STATUS_USAGE, "either --markdown or --json, not both");
    good =
        good && check_function_names(&names, &why) && list_functions(&names, markdown, json, &why);
    if (!good)
        report_failure(&why, NULL, 0);
    text_list_release(&names);
    return good ? STATUS_DONE : why.status;
}

const command command_functions = {"functions", "list the functions of the language", help,
                                   run_functions};
