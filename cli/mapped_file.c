/* SPDX-License-Identifier: MIT
 *
 * mapped_file.c - a file's bytes; see mapped_file.h.
 */
#include "mapped_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

bool read_descriptor(int fd, const char *name, size_t limit, char **out, size_t *size, failure *why)
{
    size_t capacity = 0, used = 0;
    char *bytes = NULL;

    for (;;) {
        if (used == capacity) {
            size_t wanted = capacity ? 2 * capacity : 1 << 16;
            char *more = wanted > capacity ? realloc(bytes, wanted) : NULL;
            if (!more) {
                free(bytes);
                return fail_memory(why, (double)wanted, name);
            }
            bytes = more;
            capacity = wanted;
        }
        ssize_t n = read(fd, bytes + used, capacity - used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            int reason = errno;
            free(bytes);
            return failed(why, STATUS_FILE, "cannot read '%s': %s", name, strerror(reason));
        }
        if (n == 0)
            break;
        used += (size_t)n;
        if (used > limit) {
            free(bytes);
            return failed(why, STATUS_FILE, "'%s' has more than %zu bytes", name, limit);
        }
    }
    *out = bytes;
    *size = used;
    return true;
}

bool mapped_file_open(const char *path, mapped_file *out, failure *why)
{
    struct stat info;
    bool good = true;

    *out = (mapped_file){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0) {
        int reason = errno;
        if (fd >= 0)
            close(fd);
        return failed(why, STATUS_FILE, "cannot open '%s': %s", path, strerror(reason));
    }
    if (S_ISDIR(info.st_mode)) {
        good = failed(why, STATUS_FILE, "cannot read '%s': it is a folder", path);
    } else if (S_ISREG(info.st_mode) && info.st_size > 0) {
        void *bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (bytes == MAP_FAILED)
            good = failed(why, errno == ENOMEM ? STATUS_DEVICE : STATUS_FILE, "cannot map '%s': %s",
                          path, strerror(errno));
        else
            *out = (mapped_file){bytes, (size_t)info.st_size, true};
    } else {
        char *bytes = NULL;
        good = read_descriptor(fd, path, SIZE_MAX, &bytes, &out->size, why);
        out->bytes = (unsigned char *)bytes;
    }
    close(fd);
    return good;
}

void mapped_file_close(mapped_file *file)
{
    if (file->mapped)
        munmap((void *)(uintptr_t)file->bytes, file->size);
    else
        free((void *)(uintptr_t)file->bytes);
    *file = (mapped_file){0};
}
