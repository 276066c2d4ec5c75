/* SPDX-License-Identifier: MIT
 *
 * cuda_image.c - source to image, by cache or compiler; see cuda_image.h.
 */
#define _GNU_SOURCE /* secure_getenv */
#include "cuda/host/cuda_image.h"
#include "base/embedded.h"
#include "cuda/host/cuda_cache.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A new number makes all that is cached unknown. */
static const char format_version[] = "ogive image 1";

void og_cuda_image_key(const char *source, const og_cuda_target *target,
                       unsigned char key[OG_SHA256_BYTES])
{
    og_sha256 hash;
    og_sha256_start(&hash);
    /* With the NULs, so that no two lists of parts are the same text. */
    og_sha256_add(&hash, format_version, sizeof format_version);
    og_sha256_add(&hash, target->name, strlen(target->name) + 1);
    for (int i = 0; i < og_cuda_option_count; i++)
        og_sha256_add(&hash, og_cuda_options[i], strlen(og_cuda_options[i]) + 1);
    og_sha256_add(&hash, source, strlen(source) + 1);
    og_sha256_finish(&hash, key);
}

/* Writes text to KEY-TARGET.SUFFIX in the folder OGIVE_DUMP, which is made if it is not
 * there. It is for looking at: nothing depends on it. */
static void dump(const og_cuda_image *image, const char *suffix, const char *text, size_t bytes)
{
    const char *folder = secure_getenv("OGIVE_DUMP");
    char path[PATH_MAX], key[OG_SHA256_TEXT];
    if (!folder || !*folder || !text)
        return;
    og_sha256_text(image->key, key);
    int length =
        snprintf(path, sizeof path, "%s/%.16s-%s.%s", folder, key, image->target.name, suffix);
    if (length >= (int)sizeof path)
        return;
    (void)mkdir(folder, 0777);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    while (fd >= 0 && bytes) {
        ssize_t part = write(fd, text, bytes);
        if (part <= 0)
            break;
        text += part;
        bytes -= (size_t)part;
    }
    if (fd >= 0)
        close(fd);
}

static ogive_status compile(const og_cuda_nvrtc *nvrtc, const char *source, og_cuda_image *out,
                            ogive_error *error)
{
    og_text log = {0};
    ogive_status status =
        og_cuda_compile(nvrtc, source, &out->target, &out->data, &out->bytes, &log, error);
    dump(out, "log", log.data, log.length);
    og_text_free(&log);
    if (status != OGIVE_OK)
        return status;
    dump(out, out->target.is_ptx ? "ptx" : "cubin", (const char *)out->data, out->bytes);
    out->is_kept = og_cuda_cache_store(out->key, nvrtc->major, nvrtc->minor, out->data, out->bytes,
                                       out->not_kept);
    return OGIVE_OK;
}

/* Looks for source's image for out->target in the cache. */
static bool load(const char *source, og_cuda_image *out)
{
    og_cuda_image_key(source, &out->target, out->key);
    out->was_cached =
        og_cuda_cache_load(out->key, out->nvrtc_major, out->nvrtc_minor, &out->data, &out->bytes);
    if (out->was_cached && out->target.is_ptx && out->data[out->bytes - 1] != 0) {
        og_cuda_image_free(out);
        out->was_cached = false;
    }
    return out->was_cached;
}

/* The same where there is no NVRTC to say what it would make: PTX will do. */
static bool load_any(const char *source, int32_t arch, og_cuda_image *out)
{
    enum { OLDEST_ARCH = 70 };
    bool found = load(source, out);
    for (int32_t older = arch; !found && older >= OLDEST_ARCH; older--) {
        og_cuda_ptx_target(older, &out->target);
        found = load(source, out);
    }
    return found;
}

static ogive_status build(const char *source, int32_t arch, og_cuda_image *out, ogive_error *error)
{
    const og_cuda_nvrtc *nvrtc;
    ogive_status status = og_cuda_find_nvrtc(&nvrtc, error);
    if (nvrtc) {
        OG_TRY(og_cuda_choose_target(nvrtc, arch, &out->target, error));
        out->nvrtc_major = nvrtc->major;
        out->nvrtc_minor = nvrtc->minor;
    } else {
        og_cuda_exact_target(arch, &out->target);
    }
    og_cuda_image_key(source, &out->target, out->key);
    dump(out, "cu", source, strlen(source));
    if (nvrtc ? load(source, out) : load_any(source, arch, out)) {
        og_error_clear(error);
        out->is_kept = true;
        return OGIVE_OK;
    }
    return nvrtc ? compile(nvrtc, source, out, error) : status;
}

ogive_status og_cuda_build(const char *source, int32_t arch, og_cuda_image *out, ogive_error *error)
{
    og_text resolved = {0};
    memset(out, 0, sizeof *out);
    og_add_resolved(source, &resolved);
    ogive_status status = resolved.failed ? og_fail_memory(error, resolved.length)
                                          : build(resolved.data, arch, out, error);
    og_text_free(&resolved);
    return status;
}

void og_cuda_image_free(og_cuda_image *image)
{
    free(image->data);
    image->data = NULL;
    image->bytes = 0;
}
