/* SPDX-License-Identifier: MIT
 *
 * test_cli_failures.c - the command when the machine lets it down: its Nth allocation fails, or
 * all from the Nth on; its Nth operation on a file fails. It then does all that it should and
 * exits with 0, or says what happened and exits with 1 to 4, having printed and left nothing that
 * could be taken for a result. Every command runs in a child, linked with --wrap for the functions
 * that fail (CMakeLists.txt): those that the command and the library call, jansson's allocations
 * among them.
 *
 * N is the last, which ends a text of --json, and then drawn at random, MOST times for a command;
 * OGIVE_TEST_FULL=1 tries every N.
 */
#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

int cli_main(int argc, char **argv); /* cli/main.c */

/* ---- what fails ---------------------------------------------------------------------- */

static struct {
    bool files, onwards; /* fails: files, else allocations; all from the Nth on */
    long at, calls;      /* the Nth, from 1, or 0; calls so far */
} failing;

static bool fails(bool file)
{
    if (file != failing.files)
        return false;
    failing.calls++;
    return failing.at &&
           (failing.onwards ? failing.calls >= failing.at : failing.calls == failing.at);
}

#define WRAP(type, name, parameters, arguments, file, reason, failure)                             \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        if (!fails(file))                                                                          \
            return __real_##name arguments;                                                        \
        errno = reason;                                                                            \
        return failure;                                                                            \
    }

WRAP(void *, malloc, (size_t bytes), (bytes), false, ENOMEM, NULL)
WRAP(void *, calloc, (size_t count, size_t bytes), (count, bytes), false, ENOMEM, NULL)
WRAP(void *, realloc, (void *old, size_t bytes), (old, bytes), false, ENOMEM, NULL)
WRAP(void *, aligned_alloc, (size_t a, size_t bytes), (a, bytes), false, ENOMEM, NULL)
WRAP(char *, strdup, (const char *text), (text), false, ENOMEM, NULL)
WRAP(char *, strndup, (const char *text, size_t n), (text, n), false, ENOMEM, NULL)
WRAP(char *, realpath, (const char *path, char *out), (path, out), false, ENOMEM, NULL)
WRAP(ssize_t, write, (int fd, const void *from, size_t n), (fd, from, n), true, ENOSPC, -1)
WRAP(int, fsync, (int fd), (fd), true, EIO, -1)
WRAP(int, mkstemp, (char *name), (name), true, EACCES, -1)
WRAP(int, rename, (const char *from, const char *to), (from, to), true, EACCES, -1)
WRAP(int, fstat, (int fd, struct stat *info), (fd, info), true, EIO, -1)
WRAP(void *, mmap, (void *at, size_t n, int protection, int flags, int fd, off_t offset),
     (at, n, protection, flags, fd, offset), true, EIO, MAP_FAILED)

/* jansson's seed of its tables, which it can do without: where jansson is linked statically, its calls
 * come here, too. */
static int seed = -1;

/* open() takes a third argument or none. */
int __real_open(const char *path, int flags, mode_t mode);
int __wrap_open(const char *path, int flags, mode_t mode);
int __wrap_open(const char *path, int flags, mode_t mode)
{
    bool is_seed = !strcmp(path, "/dev/urandom");
    if (is_seed || !fails(true)) {
        int fd = __real_open(path, flags, mode);
        seed = is_seed ? fd : fd == seed ? -1 : seed;
        return fd;
    }
    errno = EMFILE;
    return -1;
}

ssize_t __real_read(int fd, void *to, size_t n);
ssize_t __wrap_read(int fd, void *to, size_t n);
ssize_t __wrap_read(int fd, void *to, size_t n)
{
    if (fd == seed || !fails(true))
        return __real_read(fd, to, n);
    errno = EIO;
    return -1;
}

/* A stream in memory, and where its text and the text's length go. glibc 2.36 allocates the text once
 * more when the stream is closed; where that fails there is none, and fclose() returns 0. */
static struct {
    FILE *stream;
    char **text;
    size_t *length;
} in_memory;

FILE *__real_open_memstream(char **text, size_t *length);
FILE *__wrap_open_memstream(char **text, size_t *length);
FILE *__wrap_open_memstream(char **text, size_t *length)
{
    if (fails(false)) {
        errno = ENOMEM;
        return NULL;
    }
    in_memory.text = text;
    in_memory.length = length;
    return in_memory.stream = __real_open_memstream(text, length);
}

int __real_fclose(FILE *stream);
int __wrap_fclose(FILE *stream);
int __wrap_fclose(FILE *stream)
{
    bool loses = stream == in_memory.stream && fails(false);
    int status = __real_fclose(stream);
    if (stream == in_memory.stream)
        in_memory.stream = NULL;
    if (loses) {
        free(*in_memory.text);
        *in_memory.text = NULL;
        *in_memory.length = 0;
    }
    return status;
}

/* ---- runs --------------------------------------------------------------------------- */

enum { ARGUMENTS = 12, MOST = 30, MOST_SLOW = 3 };

typedef struct {
    const char *arguments[ARGUMENTS];
    bool slow; /* explain measures the machine */
    bool
        says; /* a file that fails is no failure of the command, which says what is wrong with it */
} command_case;

static const command_case cases[] = {
    {.arguments = {"run", "softmax(x, dim=1), sum(x)", "x=in.npy", "-o", "o1.npy", "-o", "o2.npy"}},
    {.arguments = {"run", "a + b.w", "in.safetensors", "-o", "o1.npy"}},
    {.arguments = {"run", "a + b.w, a", "in.safetensors", "-o", "o1.safetensors"}},
    {.arguments = {"run", "a + b.w", "in.safetensors", "--json"}},
    {.arguments = {"run", "a + b.w", "in.safetensors"}},
    {.arguments = {"run", "mean((x - y)**2)", "x=2x3", "y=2x3", "--gradient", "x", "--json"}},
    {.arguments = {"explain", "softmax(x, 1)", "x=64x64"}, .slow = true},
    {.arguments = {"explain", "softmax(x, 1)", "x=64x64", "--json"}, .slow = true},
    {.arguments = {"emit", "--pytorch", "linear(x, fc.weight, fc.bias)", "x=2x2", "--module",
                   "fc=nn.Linear(2, 2)", "-o", "o.py"}},
    {.arguments = {"emit", "--cuda", "softmax(x, 1)", "x=4x4"}},
    {.arguments = {"functions", "--json"}},
    {.arguments = {"functions"}},
    {.arguments = {"info", "--json"}, .says = true}, /* of the cache's folder */
};

typedef struct {
    int status;        /* exit status, or 1000 + signal */
    long calls;        /* that could have failed */
    char *out, *err;   /* what was printed */
    char files[8][40]; /* names of files that are new, sorted by readdir() */
    char *contents[8]; /* of these */
    int file_count;
} outcome;

/* Where children run: read-only inputs, and what they write. */
static char folder[64];

static char *read_whole(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    char *bytes = calloc(1, 1 << 20);
    size_t length = fread(bytes + 8, 1, (1 << 20) - 9, file);
    memcpy(bytes, &length, 8); /* contents may have zeros in them */
    fclose(file);
    return bytes;
}

static bool is_same(const char *a, const char *b)
{
    size_t length;
    memcpy(&length, a, 8);
    return memcmp(a, b, length + 8) == 0;
}

static void run_child(const command_case *of, long at)
{
    char name[] = "ogive", *argv[ARGUMENTS + 2] = {name};
    int argc = 1;
    for (; argc <= ARGUMENTS && of->arguments[argc - 1]; argc++)
        argv[argc] = (char *)(uintptr_t)of->arguments[argc - 1];
    int out = __real_open("../out", O_CREAT | O_TRUNC | O_WRONLY, 0600);
    int err = __real_open("../err", O_CREAT | O_TRUNC | O_WRONLY, 0600);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    alarm(60);
    failing.calls = 0;
    failing.at = at;
    int status = cli_main(argc, argv);
    failing.at = 0;
    FILE *calls = fopen("../calls", "w");
    fprintf(calls, "%ld", failing.calls);
    fclose(calls);
    _exit(status);
}

/* The Nth call fails; none for 0. */
static outcome run_command(const command_case *of, long at)
{
    outcome o = {0};
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        run_child(of, at);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    o.status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    o.out = read_whole("../out");
    o.err = read_whole("../err");
    char *calls = read_whole("../calls");
    o.calls = calls ? atol(calls + 8) : 0;
    free(calls);
    DIR *listing = opendir(".");
    for (struct dirent *entry; (entry = readdir(listing));)
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") &&
            strncmp(entry->d_name, "in.", 3) && o.file_count < 8) {
            snprintf(o.files[o.file_count], 40, "%.39s", entry->d_name);
            o.contents[o.file_count++] = read_whole(entry->d_name);
            unlink(entry->d_name);
        }
    closedir(listing);
    return o;
}

static void end_outcome(outcome *o)
{
    free(o->out);
    free(o->err);
    for (int i = 0; i < o->file_count; i++)
        free(o->contents[i]);
}

/* Times and bandwidths differ from run to run: digits become 0, of a file's size too. */
static void blank_numbers(char *text)
{
    char *to = text + 8;
    memset(text, 0, 8);
    for (const char *c = text + 8; *c; c++) {
        if (*c >= '0' && *c <= '9')
            continue;
        *to++ = *c;
    }
    *to = 0;
}

/* Files are those of a run without failures, or, of one that failed, some of them. */
static bool are_whole(const outcome *got, const outcome *want)
{
    for (int i = 0; i < got->file_count; i++) {
        bool found = false;
        for (int j = 0; j < want->file_count; j++)
            found |= strcmp(got->files[i], want->files[j]) == 0 &&
                     is_same(got->contents[i], want->contents[j]);
        if (!found)
            return false;
    }
    return got->status != 0 || got->file_count == want->file_count;
}

/* NULL, or what is wrong. */
static const char *judge(const command_case *of, outcome *got, outcome *want)
{
    if (got->status > 4)
        return got->status >= 1000 ? "killed by a signal" : "strange exit status";
    if (!are_whole(got, want))
        return "other files than without failures";
    if (got->status == 0) {
        if (of->says && failing.files)
            return strstr(got->out + 8, strerror(EMFILE)) || strstr(got->out + 8, strerror(EIO))
                       ? NULL
                       : "the file that failed is not named";
        if (of->slow || strstr(of->arguments[0], "info") || strstr(got->out + 8, "seconds")) {
            blank_numbers(got->out);
            blank_numbers(want->out);
            return of->slow || strcmp(got->out + 8, want->out + 8) == 0 ? NULL : "other output";
        }
        return is_same(got->out, want->out) ? NULL : "other output";
    }
    if (!failing.files && !strstr(got->err + 8, "memory"))
        return "an error that does not speak of memory";
    return got->err[8] ? NULL : "no error message";
}

static void try_case(const command_case *of, long at, outcome *want)
{
    outcome got = run_command(of, at);
    const char *problem = judge(of, &got, want);
    if (problem)
        fail_msg("ogive %s %s, %s %ld%s: %s (status %d)\n%.300s\n%.300s", of->arguments[0],
                 of->arguments[1] ? of->arguments[1] : "", failing.files ? "file" : "allocation",
                 at, failing.onwards ? " and on" : "", problem, got.status, got.err + 8,
                 got.out + 8);
    end_outcome(&got);
}

static void try_all(bool files, bool onwards)
{
    test_random random = test_random_named(files ? "files" : onwards ? "onwards" : "one");
    failing.files = files;
    failing.onwards = onwards;
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        outcome want = run_command(&cases[i], 0);
        long calls = want.calls, most = cases[i].slow ? MOST_SLOW : MOST;
        if (want.status)
            fail_msg("%s", want.err + 8);
        if (test_full() || calls <= most)
            for (long at = 1; at <= calls; at++)
                try_case(&cases[i], at, &want);
        else
            for (long n = 0; n < most; n++)
                try_case(&cases[i], n ? 1 + test_random_below(&random, calls) : calls, &want);
        end_outcome(&want);
    }
}

static void test_one_allocation_fails(void **state)
{
    (void)state;
    try_all(false, false);
}

static void test_allocations_fail_from_there(void **state)
{
    (void)state;
    try_all(false, true);
}

static void test_one_file_operation_fails(void **state)
{
    (void)state;
    try_all(true, false);
}

static int make_inputs(void **state)
{
    (void)state;
    static const command_case inputs[] = {
        {.arguments = {"run", "x + 1", "x=4x4", "-o", "in.npy"}},
        {.arguments = {"run", "x + 1, x * 2", "x=4x4", "-o", "in.safetensors:a", "-o",
                       "in.safetensors:b.w"}}};
    strcpy(folder, "/tmp/ogive-failures.XXXXXX");
    unsetenv("OGIVE_CPU");
    setenv("OGIVE_LIBCUDA", "/no/libcuda.so.1", 1);
    setenv("OGIVE_NVRTC", "/no/libnvrtc.so", 1);
    if (!__real_mkstemp(folder) || unlink(folder) || mkdir(folder, 0700) || chdir(folder) ||
        mkdir("work", 0700) || mkdir("cache", 0700) || chdir("work"))
        return -1;
    char cache[80];
    snprintf(cache, sizeof cache, "%s/cache", folder);
    setenv("OGIVE_CACHE_DIR", cache, 1); /* the user's own may be there or not */
    for (size_t i = 0; i < TEST_COUNT(inputs); i++) {
        outcome o = run_command(&inputs[i], 0);
        if (o.status)
            return -1;
        end_outcome(&o);
    }
    return 0;
}

static int remove_inputs(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return chdir("/") || system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_allocation_fails),
        cmocka_unit_test(test_allocations_fail_from_there),
        cmocka_unit_test(test_one_file_operation_fails),
    };
    return test_report(cmocka_run_group_tests(tests, make_inputs, remove_inputs));
}
