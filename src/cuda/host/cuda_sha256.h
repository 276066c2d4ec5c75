/* SPDX-License-Identifier: MIT
 *
 * cuda_sha256.h - SHA-256 (FIPS 180-4), for the names and checksums of cached images:
 * strong, since a name that two sources share would run the wrong kernel.
 */
#ifndef OG_CUDA_SHA256_H
#define OG_CUDA_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { OG_SHA256_BYTES = 32, OG_SHA256_TEXT = 65 };

typedef struct {
    uint32_t state[8];
    uint64_t bytes; /* so far */
    unsigned char block[64];
} og_sha256;

void og_sha256_start(og_sha256 *hash);
void og_sha256_add(og_sha256 *hash, const void *data, size_t bytes);
void og_sha256_finish(og_sha256 *hash, unsigned char out[OG_SHA256_BYTES]);

/* In lower-case hexadecimal digits. */
const char *og_sha256_text(const unsigned char hash[OG_SHA256_BYTES], char text[OG_SHA256_TEXT]);

#endif
