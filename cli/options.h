/* SPDX-License-Identifier: MIT
 *
 * options.h - reads a command's options and arguments.
 *
 * Options and arguments may be mixed; "--" ends the options. A value follows
 * as the next argument or after '=': --seed 1, --seed=1; -o out.npy.
 */
#ifndef OGIVE_CLI_OPTIONS_H
#define OGIVE_CLI_OPTIONS_H

#include "failure.h"
#include "ogive.h"
#include "text.h"

typedef enum {
    OPTION_FLAG,  /* bool */
    OPTION_TEXT,  /* const char *, the last wins */
    OPTION_LIST,  /* text_list, each adds */
    OPTION_NUMBER /* int64_t, between least and greatest */
} option_kind;

typedef struct {
    const char *name; /* "--output"; NULL ends a table */
    char letter;      /* 'o', or 0 */
    option_kind kind;
    void *value; /* where it goes: of the type that kind says */
    int64_t least, greatest;
} option;

bool options_parse(int argc, char **argv, const option *options, text_list *arguments,
                   failure *why);

/* --device, --threads, --cpu, --precision: the same in every command that runs formulas. */
typedef struct {
    const char *device;
    const char *cpu;
    int64_t threads;
    const char *arch; /* of a GPU that need not be there; NULL: the device's own */
    const char *precision;
} device_options;

#define DEVICE_OPTIONS(d)                                                                          \
    {.name = "--device", .kind = OPTION_TEXT, .value = &(d)->device},                              \
        {.name = "--cpu", .kind = OPTION_TEXT, .value = &(d)->cpu},                                \
        {.name = "--precision", .kind = OPTION_TEXT, .value = &(d)->precision},                    \
    {                                                                                              \
        .name = "--threads", .kind = OPTION_NUMBER, .value = &(d)->threads, .least = 1,            \
        .greatest = 4096                                                                           \
    }

/* Checks them against this machine; *where is the device. */
bool device_options_apply(const device_options *device, ogive_options *out, DLDevice *where,
                          failure *why);
/* That every one of names is a function of the language. */
bool check_function_names(const text_list *names, failure *why);
/* That level is one of this machine's. */
bool check_cpu_level(const char *level, failure *why);

#endif
