/* SPDX-License-Identifier: MIT
 *
 * main.c - the ogive program: finds the command, prints help, makes sure that
 * what was printed has arrived.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "failure.h"
#include "json_output.h"
#include "ogive.h"
#include "output.h"
#include "report.h"
#include "text.h"

static const command *const commands[] = {
    &command_run,   &command_explain, &command_grad, &command_functions, &command_check,
    &command_bench, &command_emit,    &command_warm, &command_info,
};
enum { COMMAND_COUNT = sizeof(commands) / sizeof(commands[0]) };

static void print_help(FILE *out)
{
    fputs("ogive - run a one-line formula as fused kernels\n"
          "\n"
          "usage: ogive COMMAND [ARGUMENTS]\n"
          "\n"
          "commands:\n",
          out);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    fputs("\n"
          "  ogive COMMAND --help   all about one command\n"
          "  ogive --version        the library's version\n"
          "\n"
          "examples:\n"
          "  ogive run 'sigmoid(x)' x=3x4:float32                 try it, on random numbers\n"
          "  ogive run 'x * sigmoid(x) + y' x=a.npy y=b.npy -o out.npy\n"
          "  ogive run 'softmax(x, dim=-1)' x=weights.safetensors:scores\n"
          "  ogive explain 'mean(x, dim=1)' x=4096x4096:float32   how it will be run\n"
          "\n"
          "exit status: 0 done; 1 a check failed; 2 usage or formula; 3 a file;\n"
          "4 device or memory; 130 interrupted\n",
          out);
}

static const command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (!strcmp(commands[i]->name, name))
            return commands[i];
    return NULL;
}

static int report_unknown(const char *name)
{
    const char *names[COMMAND_COUNT + 3];
    const char *kind = name[0] == '-' ? "option" : "command";
    size_t count = 0;
    failure why;

    while (count < COMMAND_COUNT) {
        names[count] = commands[count]->name;
        count++;
    }
    names[count++] = "help";
    names[count++] = "--help";
    names[count++] = "--version";
    const char *nearest = text_nearest(name, names, count);
    if (nearest)
        failed(&why, STATUS_USAGE, "unknown %s '%s'; did you mean '%s'?", kind, name, nearest);
    else if (strpbrk(name, "()+*/= "))
        failed(&why, STATUS_USAGE,
               "unknown %s '%s'; a formula follows a command: "
               "ogive run 'FORMULA' x=in.npy",
               kind, name);
    else
        failed(&why, STATUS_USAGE, "unknown %s '%s' (see ogive --help)", kind, name);
    return report_failure(&why, NULL, 0);
}

static bool asks_for_help(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--"); i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            return true;
    return false;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return STATUS_USAGE;
    }
    const char *name = argv[1];
    /* `ogive help NAME` is `ogive NAME --help`. */
    bool about_command = !strcmp(name, "help") && argc > 2;
    if (about_command)
        name = argv[2];
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        print_help(stdout);
        return STATUS_DONE;
    }
    if (!strcmp(name, "--version") || !strcmp(name, "-V")) {
        printf("ogive %s\n", ogive_version());
        return STATUS_DONE;
    }
    const command *found = find_command(name);
    if (!found)
        return report_unknown(name);
    if (about_command || asks_for_help(argc - 2, argv + 2)) {
        fputs(found->help, stdout);
        return STATUS_DONE;
    }
    return found->run(argc - 2, argv + 2);
}

int main(int argc, char **argv)
{
    output_handle_signals();
    json_watch_memory();
    errno = 0;
    int status = dispatch(argc, argv);

    if (json_take_loss() && status == STATUS_DONE) {
        failure why;
        fail_memory(&why, 0, "the JSON");
        return report_failure(&why, NULL, 0);
    }
    /* A full disk shows here at the latest. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        failure why;
        failed(&why, STATUS_FILE, "cannot write to standard output: %s",
               errno ? strerror(errno) : "write error");
        return report_failure(&why, NULL, 0);
    }
    return status;
}
