/* SPDX-License-Identifier: MIT
 *
 * cuda_nvrtc.h - NVRTC, NVIDIA's compiler as a library, found at run time. Needs no GPU
 * and no driver.
 */
#ifndef OG_CUDA_NVRTC_H
#define OG_CUDA_NVRTC_H

#include "base/base.h"

enum { OG_CUDA_MAX_ARCHS = 64 };

typedef struct {
    char path[1024];
    int major, minor;
    int archs[OG_CUDA_MAX_ARCHS]; /* that it compiles for, ascending */
    int arch_count;
} og_cuda_nvrtc;

/* Finds and loads NVRTC 12.0 or later, in this order: the file OGIVE_NVRTC, which alone
 * counts if it is set; what the process has loaded already; Python packages that the
 * process has loaded libraries from, then those of VIRTUAL_ENV and CONDA_PREFIX; the
 * loader's path; CUDA_HOME, CUDA_PATH, /usr/local/cuda. A failure is not remembered: the next call looks
 * again. */
ogive_status og_cuda_find_nvrtc(const og_cuda_nvrtc **out, ogive_error *error);

/* What a source is compiled to. */
typedef struct {
    char name[24]; /* "sm_90a", or "compute_90" */
    bool is_ptx;   /* which the driver finishes: NVRTC does not know the GPU */
} og_cuda_target;

/* The machine code of arch, or PTX of the newest older one that NVRTC knows. */
ogive_status og_cuda_choose_target(const og_cuda_nvrtc *nvrtc, int32_t arch, og_cuda_target *out,
                                   ogive_error *error);
/* The target that og_cuda_choose_target() gives if NVRTC knows arch. */
void og_cuda_exact_target(int32_t arch, og_cuda_target *out);
void og_cuda_ptx_target(int32_t arch, og_cuda_target *out);

/* The options of every compilation, but the target: part of a cached image's key. */
extern const char *const og_cuda_options[];
extern const int og_cuda_option_count;

/* *image is malloc'ed; log gets what the compiler says, of failures too. */
ogive_status og_cuda_compile(const og_cuda_nvrtc *nvrtc, const char *source,
                             const og_cuda_target *target, unsigned char **image,
                             size_t *image_bytes, og_text *log, ogive_error *error);

#endif
