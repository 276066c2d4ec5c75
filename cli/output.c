/* SPDX-License-Identifier: MIT
 *
 * output.c - files that appear whole or not at all; see output.h.
 */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a signal handler has to remove. */
static char *volatile temporaries[MAX_OUTPUTS];

static void remove_temporaries(void)
{
    for (size_t i = 0; i < MAX_OUTPUTS; i++)
        if (temporaries[i])
            unlink(temporaries[i]);
}

static void write_all(const char *text)
{
    ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
    (void)ignored;
}

/* Only calls that are safe in a handler. */
static void handle_signal(int number)
{
    remove_temporaries();
    if (isatty(STDERR_FILENO))
        write_all("\r\033[K");
    if (number == SIGBUS) {
        write_all("error: a file that was being read became shorter\n");
        _exit(STATUS_FILE);
    }
    if (number == SIGINT)
        write_all("interrupted\n");
    _exit(number == SIGINT ? STATUS_INTERRUPTED : 128 + number);
}

void output_handle_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGXCPU, SIGBUS};
    struct sigaction action = {.sa_handler = handle_signal};

    sigfillset(&action.sa_mask);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        struct sigaction old;
        /* nohup and shells' background jobs ignore signals on purpose. */
        if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
    }
    /* Whoever closes a pipe has read enough: end, without a message. */
    sigaction(SIGPIPE, &action, NULL);
    /* A file over the limit of its size is then an error of write(). */
    signal(SIGXFSZ, SIG_IGN);
}

static void block_signals(sigset_t *old)
{
    sigset_t all;

    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, old);
}

/* Makes the temporary file and its entry for the signal handler in one go. */
static int make_temporary(output_file *file, mode_t mode)
{
    sigset_t old;
    size_t slot = 0;

    while (slot < MAX_OUTPUTS && temporaries[slot])
        slot++;
    if (slot == MAX_OUTPUTS) {
        errno = EMFILE;
        return -1;
    }
    block_signals(&old);
    int fd = mkstemp(file->temporary);
    int reason = errno;
    if (fd >= 0) {
        fchmod(fd, mode);
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        temporaries[slot] = file->temporary;
    }
    sigprocmask(SIG_SETMASK, &old, NULL);
    errno = reason;
    return fd;
}

static void forget_temporary(const output_file *file)
{
    for (size_t i = 0; i < MAX_OUTPUTS; i++)
        if (temporaries[i] == file->temporary)
            temporaries[i] = NULL;
}

static bool fail_write(const output_file *file, int reason, failure *why)
{
    return failed(why, STATUS_FILE, "cannot write '%s': %s", file->path, strerror(reason));
}

/* target + ".XXXXXX", with a dot before the name so that it is hidden and no
 * pattern such as *.npy finds it. The end of a long name is left out: file systems
 * take 255 bytes. */
static char *temporary_name(const char *target)
{
    const char *slash = strrchr(target, '/');
    int folder = slash ? (int)(slash + 1 - target) : 0;
    size_t capacity = strlen(target) + 16;
    char *name = malloc(capacity);

    if (name)
        snprintf(name, capacity, "%.*s.%.200s.XXXXXX", folder, target, target + folder);
    return name;
}

static bool is_standard_output(const struct stat *info)
{
    struct stat standard;
    return fstat(STDOUT_FILENO, &standard) == 0 && standard.st_dev == info->st_dev &&
           standard.st_ino == info->st_ino;
}

bool output_is_direct(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && !S_ISDIR(info.st_mode) &&
           (!S_ISREG(info.st_mode) || is_standard_output(&info));
}

/* Standard output is not opened again: a socket cannot be, and a file would be
 * written from its beginning. */
static bool open_direct(output_file *out, const struct stat *info, failure *why)
{
    out->fd = is_standard_output(info) ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0)
                                       : open(out->path, O_WRONLY | O_CLOEXEC);
    return out->fd >= 0 || fail_write(out, errno, why);
}

/* path, a file that is not there yet, with its folder's real name before it. */
static char *resolve_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *given = slash ? strndup(path, (size_t)(slash + 1 - path)) : strdup(".");
    char *folder = given ? realpath(given, NULL) : NULL, *out = NULL;
    size_t capacity = folder ? strlen(folder) + strlen(path) + 2 : 0;

    if (folder && (out = malloc(capacity)))
        snprintf(out, capacity, "%s/%s", folder, slash ? slash + 1 : path);
    free(given);
    free(folder);
    return out;
}

bool output_open(const char *path, output_file *out, failure *why)
{
    struct stat info;
    mode_t mask = umask(0);
    mode_t mode = 0666 & ~mask;

    umask(mask);
    *out = (output_file){.path = strdup(path), .fd = -1};
    if (!out->path)
        return fail_memory(why, (double)strlen(path), "a file's name");
    bool exists = stat(path, &info) == 0;
    if (!exists && lstat(path, &info) == 0)
        return failed(why, STATUS_FILE, "cannot write '%s': it is a link that leads to no file",
                      path);
    if (exists && S_ISDIR(info.st_mode))
        return fail_write(out, EISDIR, why);
    if (exists && output_is_direct(path))
        return open_direct(out, &info, why);
    /* Through a link, the file behind it is replaced, not the link. */
    out->target = exists ? realpath(path, NULL) : resolve_folder(path);
    if (!out->target)
        return fail_write(out, errno, why);
    if (exists) {
        mode = info.st_mode & 0777; /* new content is no reason to trust it as another user */
        /* rename() asks the folder alone; a write-protected file stays. */
        if (access(path, W_OK) != 0)
            return fail_write(out, errno, why);
    }
    out->temporary = temporary_name(out->target);
    if (!out->temporary)
        return fail_memory(why, (double)strlen(path), "a file's name");
    out->fd = make_temporary(out, mode);
    if (out->fd < 0) {
        int reason = errno;
        free(out->temporary);
        out->temporary = NULL;
        return fail_write(out, reason, why);
    }
    return true;
}

bool output_write(output_file *file, const void *bytes, size_t size, failure *why)
{
    const char *at = bytes;

    while (size) {
        /* Linux takes at most 2^31 - 4096 bytes a call. */
        size_t part = size < (1u << 30) ? size : 1u << 30;
        ssize_t n = write(file->fd, at, part);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return fail_write(file, n ? errno : ENOSPC, why);
        at += n;
        size -= (size_t)n;
    }
    return true;
}

bool output_sync(output_file *file, failure *why)
{
    if (file->temporary && fsync(file->fd) != 0)
        return fail_write(file, errno, why);
    return true;
}

bool output_commit(output_file *file, failure *why)
{
    bool good = true;
    int closed = close(file->fd);

    file->fd = -1;
    if (closed != 0)
        good = fail_write(file, errno, why);
    else if (file->temporary && rename(file->temporary, file->target) != 0)
        good = fail_write(file, errno, why);
    if (good && file->temporary) {
        forget_temporary(file);
        free(file->temporary);
        file->temporary = NULL;
    }
    output_discard(file);
    return good;
}

void output_discard(output_file *file)
{
    if (file->path && file->fd >= 0)
        close(file->fd);
    if (file->temporary) {
        unlink(file->temporary);
        forget_temporary(file);
        free(file->temporary);
    }
    free(file->path);
    free(file->target);
    *file = (output_file){.fd = -1};
}
