/* SPDX-License-Identifier: MIT
 *
 * cuda_cache.h - compiled images on disk, so that the second process starts without
 * compiling. Folder: OGIVE_CACHE_DIR, else $XDG_CACHE_HOME/ogive, else ~/.cache/ogive.
 *
 * One file an image, called KEY-MAJOR.MINOR.image: the key's hexadecimal digits and the
 * NVRTC that made it. Its bytes:
 *      8  "OGIVEIM1"
 *      8  bytes of the image, little-endian
 *     32  the key
 *     32  SHA-256 of the image
 *      .  the image
 *
 * What is in the folder runs on the GPU with the caller's rights, so the folder and its
 * files must belong to the caller, or to root, and be writable by nobody else; a folder
 * of root's is only read. Files are written under a temporary name and renamed, so any
 * number of processes may use it at once. Whatever is damaged or foreign is ignored. Where
 * images take more than 1 GiB, those that were used longest ago are removed.
 * Nothing here fails a plan: without a cache it is compiled anew.
 */
#ifndef OG_CUDA_CACHE_H
#define OG_CUDA_CACHE_H

#include "base/base.h"
#include "cuda/host/cuda_sha256.h"

enum { OG_CUDA_FOLDER_TEXT = 4096 };

/* Where images are kept (even if it is not usable), and whether that is so: NULL, or
 * why not. reason is room for it. */
const char *og_cuda_cache_state(char folder[OG_CUDA_FOLDER_TEXT], char reason[160]);

/* The image of key made by NVRTC major.minor; major 0: by any, the newest whole one.
 * *image is malloc'ed. False: there is none. */
bool og_cuda_cache_load(const unsigned char key[OG_SHA256_BYTES], int major, int minor,
                        unsigned char **image, size_t *bytes);

/* False: it is not kept, for the reason given. */
bool og_cuda_cache_store(const unsigned char key[OG_SHA256_BYTES], int major, int minor,
                         const void *image, size_t bytes, char reason[160]);

#endif
