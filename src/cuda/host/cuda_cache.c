/* SPDX-License-Identifier: MIT
 *
 * cuda_cache.c - compiled images on disk; see cuda_cache.h.
 */
#define _GNU_SOURCE /* secure_getenv */
#include "cuda/host/cuda_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    HEADER_BYTES = 8 + 8 + 2 * OG_SHA256_BYTES,
    MAX_IMAGE_BYTES = 256 << 20,
    STALE_SECONDS = 3600, /* temporary files of processes that died are removed after this */
    USED_SECONDS = 86400, /* how exactly it is known when an image was last used */
    MOST_BYTES = 1 << 30, /* of all images: as the driver's own cache */
    MOST_REMOVED = 16     /* images, for one that comes */
};
static const char magic[8] = {'O', 'G', 'I', 'V', 'E', 'I', 'M', '1'};
static const char temporary_prefix[] = ".writing-";

/* ---- the folder ------------------------------------------------------------------- */

/* NULL, or why the environment does not say where. */
static const char *choose_folder(char folder[OG_CUDA_FOLDER_TEXT])
{
    const char *given = secure_getenv("OGIVE_CACHE_DIR");
    const char *xdg = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");
    int length = -1;
    if (given && *given)
        length = snprintf(folder, OG_CUDA_FOLDER_TEXT, "%s", given);
    else if (xdg && xdg[0] == '/') /* relative ones are invalid, says its specification */
        length = snprintf(folder, OG_CUDA_FOLDER_TEXT, "%s/ogive", xdg);
    else if (home && home[0] == '/')
        length = snprintf(folder, OG_CUDA_FOLDER_TEXT, "%s/.cache/ogive", home);
    if (length >= 0 && length < OG_CUDA_FOLDER_TEXT)
        return NULL;
    folder[0] = 0;
    return length < 0 ? "none of OGIVE_CACHE_DIR, XDG_CACHE_HOME and HOME is set"
                      : "the folder's name is too long";
}

/* The folder and those above it that are missing. */
static bool make_folder(const char *folder)
{
    char path[OG_CUDA_FOLDER_TEXT];
    snprintf(path, sizeof path, "%s", folder);
    for (char *at = path + 1; *at; at++) {
        if (*at != '/')
            continue;
        *at = 0;
        if (mkdir(path, 0700) != 0 && errno != EEXIST && errno != EISDIR && errno != EROFS &&
            errno != EACCES)
            return false;
        *at = '/';
    }
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

typedef struct {
    int fd;        /* of the folder, or -1 */
    bool writable; /* it is ours */
} cache;

/* Who may have put something there: the caller, or root. */
static bool is_trusted(const struct stat *about)
{
    return (about->st_uid == geteuid() || about->st_uid == 0) &&
           (about->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* Opens the folder, makes it if asked to; reason says why it cannot be used. */
static cache open_cache(bool make, char folder[OG_CUDA_FOLDER_TEXT], char reason[160])
{
    cache c = {.fd = -1};
    struct stat about;
    const char *nowhere = choose_folder(folder);
    if (nowhere) {
        snprintf(reason, 160, "%s", nowhere);
        return c;
    }
    c.fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (c.fd < 0 && errno == ENOENT && make && make_folder(folder))
        c.fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (c.fd < 0) {
        snprintf(reason, 160, "%s", strerror(errno));
        return c;
    }
    bool known = fstat(c.fd, &about) == 0;
    if (!known || !is_trusted(&about)) {
        snprintf(reason, 160, "%s",
                 known ? "it belongs to another user, or others can write to it" : strerror(errno));
        close(c.fd);
        c.fd = -1;
        return c;
    }
    c.writable = about.st_uid == geteuid();
    if (!c.writable)
        snprintf(reason, 160, "it belongs to root and is only read");
    return c;
}

/* Could the folder be made? It is not there. */
static bool can_be_made(const char *folder, char reason[160])
{
    char above[OG_CUDA_FOLDER_TEXT];
    snprintf(above, sizeof above, "%s", folder);
    for (bool there = false; !there;) {
        char *slash = strrchr(above, '/');
        bool is_last = !slash || slash == above;
        if (is_last)
            snprintf(above, sizeof above, "%s", slash ? "/" : ".");
        else
            *slash = 0;
        there = is_last || access(above, F_OK) == 0 || errno != ENOENT;
    }
    if (faccessat(AT_FDCWD, above, W_OK | X_OK, AT_EACCESS) == 0)
        return true;
    snprintf(reason, 160, "it cannot be made: %s", strerror(errno));
    return false;
}

const char *og_cuda_cache_state(char folder[OG_CUDA_FOLDER_TEXT], char reason[160])
{
    reason[0] = 0;
    cache c = open_cache(false, folder, reason);
    if (c.fd < 0)
        return folder[0] && access(folder, F_OK) != 0 && errno == ENOENT &&
                       can_be_made(folder, reason)
                   ? NULL
                   : reason;
    if (c.writable && faccessat(c.fd, ".", W_OK | X_OK, AT_EACCESS) != 0) {
        snprintf(reason, 160, "it is only read: %s", strerror(errno));
        c.writable = false;
    }
    close(c.fd);
    return c.writable ? NULL : reason;
}

/* ---- names ------------------------------------------------------------------------ */

enum { NAME_TEXT = OG_SHA256_TEXT + 40 };

static void name_image(const unsigned char *key, int major, int minor, char name[NAME_TEXT])
{
    char text[OG_SHA256_TEXT];
    snprintf(name, NAME_TEXT, "%s-%d.%d.image", og_sha256_text(key, text), major, minor);
}

/* The folder to be read by readdir(), or NULL. */
static DIR *list_folder(const cache *c)
{
    int fd = openat(c->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    if (fd >= 0 && !folder)
        close(fd);
    return folder;
}

/* The newest version of key in the folder that is older than *version, which it becomes;
 * false: none. */
static bool find_older(const cache *c, const unsigned char *key, int *version, char name[NAME_TEXT])
{
    char text[OG_SHA256_TEXT];
    int best = -1;
    DIR *folder = list_folder(c);
    if (!folder)
        return false;
    og_sha256_text(key, text);
    for (const struct dirent *entry; (entry = readdir(folder));) {
        int major, minor, end = 0;
        if (strncmp(entry->d_name, text, strlen(text)) != 0 ||
            sscanf(entry->d_name + strlen(text), "-%4d.%4d.image%n", &major, &minor, &end) != 2 ||
            end == 0 || entry->d_name[strlen(text) + (size_t)end] ||
            major * 10000 + minor <= best || major * 10000 + minor >= *version)
            continue;
        best = major * 10000 + minor;
    }
    closedir(folder);
    name_image(key, best / 10000, best % 10000, name);
    *version = best;
    return best >= 0;
}

/* ---- loading ------------------------------------------------------------------------ */

static bool read_all(int fd, void *to, size_t bytes)
{
    for (unsigned char *at = to; bytes;) {
        ssize_t part = read(fd, at, bytes);
        if (part < 0 && errno == EINTR)
            continue;
        if (part <= 0)
            return false;
        at += part;
        bytes -= (size_t)part;
    }
    return true;
}

static void write_size(unsigned char to[8], uint64_t size)
{
    for (int i = 0; i < 8; i++)
        to[i] = (unsigned char)(size >> (8 * i));
}

static void checksum(const void *image, size_t bytes, unsigned char out[OG_SHA256_BYTES])
{
    og_sha256 hash;
    og_sha256_start(&hash);
    og_sha256_add(&hash, image, bytes);
    og_sha256_finish(&hash, out);
}

static void make_header(const unsigned char *key, const void *image, size_t bytes,
                        unsigned char header[HEADER_BYTES])
{
    memcpy(header, magic, sizeof magic);
    write_size(header + 8, bytes);
    memcpy(header + 16, key, OG_SHA256_BYTES);
    checksum(image, bytes, header + 16 + OG_SHA256_BYTES);
}

/* The image in an open file, if every byte of it is as it was written. */
static bool read_image(int fd, const unsigned char *key, unsigned char **image, size_t *bytes)
{
    unsigned char header[HEADER_BYTES], wanted[HEADER_BYTES];
    struct stat about;
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) || !is_trusted(&about) ||
        about.st_size <= HEADER_BYTES || about.st_size > MAX_IMAGE_BYTES)
        return false;
    *bytes = (size_t)about.st_size - HEADER_BYTES;
    *image = malloc(*bytes);
    bool good = *image && read_all(fd, header, HEADER_BYTES) && read_all(fd, *image, *bytes);
    if (good) {
        make_header(key, *image, *bytes, wanted);
        good = memcmp(header, wanted, HEADER_BYTES) == 0;
    }
    if (!good) {
        free(*image);
        *image = NULL;
        *bytes = 0;
    }
    return good;
}

static bool load_file(const cache *c, const char *name, const unsigned char *key,
                      unsigned char **image, size_t *bytes)
{
    /* Not blocking: it could be a pipe. */
    int fd = openat(c->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat about;
    bool good = fd >= 0 && read_image(fd, key, image, bytes);
    if (good && c->writable && fstat(fd, &about) == 0 && time(NULL) - about.st_mtime > USED_SECONDS)
        (void)futimens(fd, NULL); /* now */
    if (fd >= 0)
        close(fd);
    return good;
}

bool og_cuda_cache_load(const unsigned char key[OG_SHA256_BYTES], int major, int minor,
                        unsigned char **image, size_t *bytes)
{
    char folder[OG_CUDA_FOLDER_TEXT], reason[160], name[NAME_TEXT];
    *image = NULL;
    *bytes = 0;
    cache c = open_cache(false, folder, reason);
    if (c.fd < 0)
        return false;
    bool good = false;
    int version = INT_MAX;
    if (major) {
        name_image(key, major, minor, name);
        good = load_file(&c, name, key, image, bytes);
    }
    while (!major && !good && find_older(&c, key, &version, name))
        good = load_file(&c, name, key, image, bytes);
    close(c.fd);
    return good;
}

/* ---- storing ------------------------------------------------------------------------ */

static bool write_all(int fd, const void *from, size_t bytes)
{
    for (const unsigned char *at = from; bytes;) {
        ssize_t part = write(fd, at, bytes);
        if (part < 0 && errno == EINTR)
            continue;
        if (part <= 0)
            return false;
        at += part;
        bytes -= (size_t)part;
    }
    return true;
}

/* Writing more than the process may would end it by a signal. */
static bool may_write(size_t bytes)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
           bytes <= limit.rlim_cur;
}

static bool is_temporary(const char *name)
{
    return strncmp(name, temporary_prefix, sizeof temporary_prefix - 1) == 0;
}

static bool is_image(const char *name)
{
    static const char suffix[] = ".image";
    size_t digits = strspn(name, "0123456789abcdef"), length = strlen(name);
    return digits == OG_SHA256_TEXT - 1 && name[digits] == '-' && length < NAME_TEXT &&
           strcmp(name + length - (sizeof suffix - 1), suffix) == 0;
}

/* Images of the folder. */
typedef struct {
    int64_t bytes;
    time_t used; /* when the oldest was */
    char oldest[NAME_TEXT];
} contents;

/* Removes what processes left that died while writing, too. */
static contents see_folder(const cache *c)
{
    contents seen = {0};
    DIR *folder = list_folder(c);
    if (!folder)
        return seen;
    for (const struct dirent *entry; (entry = readdir(folder));) {
        const char *name = entry->d_name;
        struct stat about;
        if ((!is_temporary(name) && !is_image(name)) ||
            fstatat(c->fd, name, &about, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (is_temporary(name)) {
            if (time(NULL) - about.st_mtime > STALE_SECONDS)
                (void)unlinkat(c->fd, name, 0);
            continue;
        }
        seen.bytes += about.st_size;
        if (!seen.oldest[0] || about.st_mtime < seen.used) {
            seen.used = about.st_mtime;
            memcpy(seen.oldest, name, strlen(name) + 1); /* is_image(): there is room */
        }
    }
    closedir(folder);
    return seen;
}

/* Before an image is written: those that were used longest ago make room. */
static void tidy_folder(const cache *c)
{
    contents seen = see_folder(c);
    for (int i = 0; i < MOST_REMOVED && seen.bytes > MOST_BYTES; i++) {
        if (unlinkat(c->fd, seen.oldest, 0) != 0 && errno != ENOENT)
            return;
        seen = see_folder(c);
    }
}

static bool write_image(const cache *c, const char *name, const unsigned char *header,
                        const void *image, size_t bytes)
{
    char temporary[64];
    uint64_t number; /* not the process's: other machines may share the folder */
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number)
        return false;
    snprintf(temporary, sizeof temporary, "%s%016" PRIx64, temporary_prefix, number);
    int fd = openat(c->fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    bool good =
        write_all(fd, header, HEADER_BYTES) && write_all(fd, image, bytes) && fsync(fd) == 0;
    int why = errno;
    if (close(fd) != 0 && good) {
        why = errno;
        good = false;
    }
    if (good && renameat(c->fd, temporary, c->fd, name) != 0) {
        why = errno;
        good = false;
    }
    if (!good)
        (void)unlinkat(c->fd, temporary, 0);
    errno = why;
    return good;
}

bool og_cuda_cache_store(const unsigned char key[OG_SHA256_BYTES], int major, int minor,
                         const void *image, size_t bytes, char reason[160])
{
    char folder[OG_CUDA_FOLDER_TEXT], name[NAME_TEXT];
    unsigned char header[HEADER_BYTES];
    reason[0] = 0;
    if (bytes == 0 || bytes > MAX_IMAGE_BYTES - HEADER_BYTES || !may_write(bytes + HEADER_BYTES)) {
        snprintf(reason, 160, "an image of %zu bytes is too large", bytes);
        return false;
    }
    cache c = open_cache(true, folder, reason);
    if (c.fd < 0 || !c.writable) {
        if (c.fd >= 0)
            close(c.fd);
        return false;
    }
    make_header(key, image, bytes, header);
    name_image(key, major, minor, name);
    tidy_folder(&c);
    bool good = write_image(&c, name, header, image, bytes);
    if (!good)
        snprintf(reason, 160, "%s", strerror(errno));
    close(c.fd);
    return good;
}
