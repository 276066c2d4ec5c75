/* SPDX-License-Identifier: MIT
 *
 * cuda_image.h - a kernel's source made into what the driver loads: from the disk cache,
 * or compiled and then kept there. Needs no GPU.
 *
 * OGIVE_DUMP=folder writes each source, and what the compiler says of it, to that folder.
 */
#ifndef OG_CUDA_IMAGE_H
#define OG_CUDA_IMAGE_H

#include "cuda/host/cuda_nvrtc.h"
#include "cuda/host/cuda_sha256.h"

typedef struct {
    unsigned char *data; /* malloc'ed; PTX ends in a NUL */
    size_t bytes;
    unsigned char key[OG_SHA256_BYTES]; /* of source, target and options */
    og_cuda_target target;
    int nvrtc_major, nvrtc_minor; /* that made it, 0: not known (it was cached) */
    bool was_cached;
    bool is_kept;       /* is in the cache now */
    char not_kept[160]; /* why not */
} og_cuda_image;

/* The key that og_cuda_build() gives a resolved source for target. */
void og_cuda_image_key(const char *source, const og_cuda_target *target,
                       unsigned char key[OG_SHA256_BYTES]);

/* Makes source's image for arch, once its includes are resolved. Without NVRTC, one that another NVRTC made and that is
 * cached will do. Release with og_cuda_image_free(). */
ogive_status og_cuda_build(const char *source, int32_t arch, og_cuda_image *out,
                           ogive_error *error);
void og_cuda_image_free(og_cuda_image *image);

#endif
