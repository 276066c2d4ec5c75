/* SPDX-License-Identifier: MIT
 *
 * fuzz_cache.c - any bytes as a file in the folder of compiled kernels. The first byte says how
 * much of its header is made right, so that what follows it is looked at, too. What is loaded is
 * an image whose header is right in all; all else is ignored.
 */
#include "cuda/host/cuda_cache.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEADER = 80 }; /* cuda_cache.h */

static const unsigned char key[OG_SHA256_BYTES] = {1, 2, 3};
static char folder[64], path[256];

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void end_folder(void)
{
    unlink(path);
    rmdir(folder);
}

/* A folder of its own, in memory where there is one such. */
static void make_folder(void)
{
    snprintf(folder, sizeof folder, "%s/ogive-fuzz.XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    require(mkdtemp(folder) != NULL);
    setenv("OGIVE_CACHE_DIR", folder, 1);
    size_t used = (size_t)snprintf(path, sizeof path, "%s/", folder);
    for (int i = 0; i < OG_SHA256_BYTES; i++)
        used += (size_t)snprintf(path + used, sizeof path - used, "%02x", key[i]);
    snprintf(path + used, sizeof path - used, "-12.8.image");
    atexit(end_folder);
}

/* Makes the parts of the header right that bits ask for. */
static void mend(unsigned bits, unsigned char *file, size_t size)
{
    uint64_t image = size - HEADER;
    if (bits & 1)
        memcpy(file, "OGIVEIM1", 8);
    for (int i = 0; bits & 2 && i < 8; i++)
        file[8 + i] = (unsigned char)(image >> (8 * i));
    if (bits & 4)
        memcpy(file + 16, key, OG_SHA256_BYTES);
    if (bits & 8) {
        og_sha256 hash;
        og_sha256_start(&hash);
        og_sha256_add(&hash, file + HEADER, size - HEADER);
        og_sha256_finish(&hash, file + 48);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!folder[0])
        make_folder();
    if (size < 1)
        return 0;
    unsigned bits = data[0];
    size_t bytes = --size, loaded_bytes = 0;
    unsigned char *file = malloc(bytes + 1), *loaded = NULL;
    require(file);
    memcpy(file, data + 1, bytes);
    if (bytes >= HEADER)
        mend(bits, file, bytes);
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    require(fd >= 0 && write(fd, file, bytes) == (ssize_t)bytes && close(fd) == 0);
    bool any = bits & 16;
    bool found = og_cuda_cache_load(key, any ? 0 : 12, any ? 0 : 8, &loaded, &loaded_bytes);
    if (bytes > HEADER && (bits & 15) == 15)
        require(found);
    if (found) {
        require(bytes >= HEADER && loaded_bytes == bytes - HEADER);
        require(memcmp(loaded, file + HEADER, loaded_bytes) == 0);
    }
    free(loaded);
    free(file);
    return 0;
}
