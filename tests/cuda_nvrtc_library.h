/* SPDX-License-Identifier: MIT
 *
 * cuda_nvrtc_library.h - the real NVRTC's own functions, for tests that compile sources of
 * theirs and read what it says of them.
 */
#ifndef OG_CUDA_NVRTC_LIBRARY_H
#define OG_CUDA_NVRTC_LIBRARY_H

#include "test.h"

#include "cuda/host/cuda_driver.h"
#include "cuda/host/cuda_nvrtc.h"

#include <dlfcn.h>

static struct {
    const og_cuda_nvrtc *info;
    int (*create)(void **, const char *, const char *, int, const char *const *,
                  const char *const *);
    int (*compile)(void *, int, const char *const *);
    int (*log_size)(void *, size_t *);
    int (*log)(void *, char *);
    int (*destroy)(void **);
} nvrtc;

/* The real one: CTest points OGIVE_NVRTC to another. */
static inline bool load_nvrtc(void)
{
    ogive_error error;
    if (getenv("OGIVE_TEST_NVRTC"))
        setenv("OGIVE_NVRTC", getenv("OGIVE_TEST_NVRTC"), 1);
    else
        unsetenv("OGIVE_NVRTC");
    if (og_cuda_find_nvrtc(&nvrtc.info, &error))
        return false;
    void *library = dlopen(nvrtc.info->path, RTLD_NOW);
    if (!library)
        return false;
    *(void **)&nvrtc.create = dlsym(library, "nvrtcCreateProgram");
    *(void **)&nvrtc.compile = dlsym(library, "nvrtcCompileProgram");
    *(void **)&nvrtc.log_size = dlsym(library, "nvrtcGetProgramLogSize");
    *(void **)&nvrtc.log = dlsym(library, "nvrtcGetProgramLog");
    *(void **)&nvrtc.destroy = dlsym(library, "nvrtcDestroyProgram");
    return nvrtc.create && nvrtc.compile && nvrtc.log_size && nvrtc.log && nvrtc.destroy;
}

/* *result: 0 if it compiled. Returns the log, to be freed. */
static inline char *compile_text(const char *source, const char *const *options, int count,
                                 int *result)
{
    void *program;
    size_t size;
    assert_int_equal(nvrtc.create(&program, source, "emitted.cu", 0, NULL, NULL), 0);
    *result = nvrtc.compile(program, count, options);
    assert_int_equal(nvrtc.log_size(program, &size), 0);
    char *log = calloc(size + 1, 1);
    assert_non_null(log);
    assert_int_equal(nvrtc.log(program, log), 0);
    nvrtc.destroy(&program);
    return log;
}

#endif
