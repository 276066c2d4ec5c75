/* SPDX-License-Identifier: MIT
 *
 * cli.h - the program's commands, one per cmd_*.c.
 *
 * The program uses the library through ogive.h alone.
 */
#ifndef OGIVE_CLI_H
#define OGIVE_CLI_H

typedef struct {
    const char *name;
    const char *summary; /* one line of `ogive --help` */
    const char *help;    /* all of `ogive NAME --help` */
    /* argv without the program and the command; returns the exit status. */
    int (*run)(int argc, char **argv);
} command;

extern const command command_run;
extern const command command_explain;
extern const command command_grad;
extern const command command_functions;
extern const command command_check;
extern const command command_bench;
extern const command command_emit;
extern const command command_warm;
extern const command command_info;

#endif
