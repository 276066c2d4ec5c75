/* SPDX-License-Identifier: MIT
 *
 * cuda_nvrtc.c - finds NVRTC and compiles with it; see cuda_nvrtc.h. The order of the
 * search is that of NVIDIA's cuda-pathfinder.
 */
#define _GNU_SOURCE /* secure_getenv, dladdr, dl_iterate_phdr */
#include "cuda/host/cuda_nvrtc.h"
#include "cuda/host/cuda_driver.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct og_nvrtc_program og_nvrtc_program;

#define NVRTC_FUNCTIONS(F)                                                                         \
    F(nvrtcVersion, (int *major, int *minor))                                                      \
    F(nvrtcGetNumSupportedArchs, (int *count))                                                     \
    F(nvrtcGetSupportedArchs, (int *archs))                                                        \
    F(nvrtcCreateProgram,                                                                          \
      (og_nvrtc_program * *program, const char *source, const char *name, int header_count,        \
       const char *const *headers, const char *const *header_names))                               \
    F(nvrtcDestroyProgram, (og_nvrtc_program * *program))                                          \
    F(nvrtcCompileProgram,                                                                         \
      (og_nvrtc_program * program, int option_count, const char *const *options))                  \
    F(nvrtcGetProgramLogSize, (og_nvrtc_program * program, size_t * bytes))                        \
    F(nvrtcGetProgramLog, (og_nvrtc_program * program, char *log))                                 \
    F(nvrtcGetCUBINSize, (og_nvrtc_program * program, size_t * bytes))                             \
    F(nvrtcGetCUBIN, (og_nvrtc_program * program, char *cubin))                                    \
    F(nvrtcGetPTXSize, (og_nvrtc_program * program, size_t * bytes))                               \
    F(nvrtcGetPTX, (og_nvrtc_program * program, char *ptx))

static struct {
    pthread_mutex_t lock; /* guards the rest until found is set */
    bool found;
    og_cuda_nvrtc info;
#define MEMBER(name, arguments) int(*name) arguments;
    NVRTC_FUNCTIONS(MEMBER)
#undef MEMBER
    const char *(*nvrtcGetErrorString)(int result);
} nvrtc = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void renew_lock(void)
{
    pthread_mutex_init(&nvrtc.lock, NULL);
}

/* ---- finding -------------------------------------------------------------------- */

enum { OLDEST_MAJOR = 12, NEWEST_MAJOR = 15 };

/* Versions to look for. The driver's own comes first: it may refuse what a newer
 * compiler makes. */
typedef struct {
    int majors[NEWEST_MAJOR - OLDEST_MAJOR + 1];
    int count;
    char problem[1200]; /* the last library that was there and could not be used */
} search;

static void start_search(search *s)
{
    int own = og_cuda_driver()->version / 1000;
    *s = (search){0};
    if (own >= OLDEST_MAJOR && own <= NEWEST_MAJOR)
        s->majors[s->count++] = own;
    for (int major = NEWEST_MAJOR; major >= OLDEST_MAJOR; major--)
        if (major != own)
            s->majors[s->count++] = major;
}

static const char *find_functions(void *library)
{
#define FIND(name, arguments)                                                                      \
    if (!(*(void **)&nvrtc.name = dlsym(library, #name)))                                          \
        return #name;
    NVRTC_FUNCTIONS(FIND)
#undef FIND
    *(void **)&nvrtc.nvrtcGetErrorString = dlsym(library, "nvrtcGetErrorString");
    return nvrtc.nvrtcGetErrorString ? NULL : "nvrtcGetErrorString";
}

/* NVRTC opens its builtins by name alone, which fails in a folder that the loader does
 * not search: a library of that name that is loaded already is taken instead. */
static void load_builtins(void)
{
    char path[sizeof nvrtc.info.path + 40];
    const char *slash = strrchr(nvrtc.info.path, '/');
    if (!slash)
        return;
    snprintf(path, sizeof path, "%.*s/libnvrtc-builtins.so.%d.%d", (int)(slash - nvrtc.info.path),
             nvrtc.info.path, nvrtc.info.major, nvrtc.info.minor);
    (void)dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static int compare_numbers(const void *left, const void *right)
{
    return *(const int *)left - *(const int *)right;
}

/* Takes a library that is open, if it will do. */
static bool take_library(void *library, const char *name, search *s)
{
    og_cuda_nvrtc *info = &nvrtc.info;
    memset(info, 0, sizeof *info);
    const char *missing = find_functions(library);
    if (missing) {
        snprintf(s->problem, sizeof s->problem, "%s has no %s", name, missing);
        return false;
    }
    Dl_info where;
    bool located = dladdr(*(void **)&nvrtc.nvrtcVersion, &where) && where.dli_fname;
    snprintf(info->path, sizeof info->path, "%s", located ? where.dli_fname : name);
    if (nvrtc.nvrtcVersion(&info->major, &info->minor) != 0 || info->major < OLDEST_MAJOR) {
        snprintf(s->problem, sizeof s->problem, "%s is NVRTC %d.%d, too old: 12.0 is needed",
                 info->path, info->major, info->minor);
        return false;
    }
    int count = 0;
    if (nvrtc.nvrtcGetNumSupportedArchs(&count) != 0 || count <= 0 || count > OG_CUDA_MAX_ARCHS ||
        nvrtc.nvrtcGetSupportedArchs(info->archs) != 0) {
        snprintf(s->problem, sizeof s->problem, "%s does not say what it compiles for", info->path);
        return false;
    }
    info->arch_count = count;
    qsort(info->archs, (size_t)count, sizeof *info->archs, compare_numbers);
    load_builtins();
    nvrtc.found = true;
    return true;
}

/* Opens name (a path, or what the loader finds). */
static bool try_name(const char *name, int flags, search *s)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL | flags);
    if (!library) {
        const char *why = dlerror();
        if (strchr(name, '/') && access(name, F_OK) == 0)
            snprintf(s->problem, sizeof s->problem, "%s", why ? why : name);
        return false;
    }
    if (take_library(library, name, s))
        return true;
    dlclose(library);
    return false;
}

static bool try_soname(int flags, search *s)
{
    char name[32];
    for (int i = 0; i < s->count; i++) {
        snprintf(name, sizeof name, "libnvrtc.so.%d", s->majors[i]);
        if (try_name(name, flags, s))
            return true;
    }
    return false;
}

static bool try_folder(const char *folder, search *s)
{
    char path[PATH_MAX];
    for (int i = 0; i < s->count; i++) {
        int length = snprintf(path, sizeof path, "%s/libnvrtc.so.%d", folder, s->majors[i]);
        if (length < (int)sizeof path && access(path, F_OK) == 0 && try_name(path, 0, s))
            return true;
    }
    return false;
}

/* Where PyPI's packages put it: nvidia-cuda-nvrtc from CUDA 13 on, -cu12 before. */
static bool try_packages(const char *site_packages, search *s)
{
    char folder[PATH_MAX];
    for (int i = 0; i < s->count; i++) {
        if (s->majors[i] >= 13)
            snprintf(folder, sizeof folder, "%s/nvidia/cu%d/lib", site_packages, s->majors[i]);
        else
            snprintf(folder, sizeof folder, "%s/nvidia/cuda_nvrtc/lib", site_packages);
        if (try_folder(folder, s))
            return true;
    }
    return false;
}

/* Folders of Python packages that the process has loaded something from: Ogive itself,
 * NumPy, PyTorch. A Python need not say in its environment where it is. */
typedef struct {
    char folders[4][1024];
    int count;
} packages;

/* Called for each loaded object, with the loader's lock held: only remembers. */
static int remember_packages(struct dl_phdr_info *object, size_t bytes, void *context)
{
    static const char *const names[] = {"/site-packages/", "/dist-packages/"};
    packages *p = context;
    (void)bytes;
    for (size_t i = 0; i < 2 && object->dlpi_name; i++) {
        const char *at = strstr(object->dlpi_name, names[i]);
        size_t length = at ? (size_t)(at - object->dlpi_name) + strlen(names[i]) - 1 : 0;
        if (!at || length >= sizeof p->folders[0])
            continue;
        int known = 0;
        while (known < p->count && (strncmp(p->folders[known], object->dlpi_name, length) != 0 ||
                                    p->folders[known][length]))
            known++;
        if (known == (int)(sizeof p->folders / sizeof *p->folders))
            return 1;
        memcpy(p->folders[known], object->dlpi_name, length);
        p->folders[known][length] = 0;
        p->count = known == p->count ? known + 1 : p->count;
    }
    return 0;
}

static bool try_loaded_packages(search *s)
{
    packages p = {.count = 0};
    dl_iterate_phdr(remember_packages, &p);
    for (int i = 0; i < p.count; i++)
        if (try_packages(p.folders[i], s))
            return true;
    return false;
}

/* The folder that variable names: its Python's packages, and its own libraries. */
static bool try_environment(const char *variable, search *s)
{
    char pattern[PATH_MAX];
    const char *root = secure_getenv(variable);
    if (!root || root[0] != '/')
        return false;
    glob_t found = {0};
    bool good = false;
    snprintf(pattern, sizeof pattern, "%s/lib/python3*/site-packages", root);
    if (glob(pattern, GLOB_NOSORT, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc && !good; i++)
            good = try_packages(found.gl_pathv[i], s);
    globfree(&found);
    snprintf(pattern, sizeof pattern, "%s/lib", root);
    return good || try_folder(pattern, s);
}

static bool try_toolkit(const char *root, search *s)
{
#if defined(__aarch64__)
    static const char *const folders[] = {"lib64", "targets/sbsa-linux/lib"};
#else
    static const char *const folders[] = {"lib64", "targets/x86_64-linux/lib"};
#endif
    char folder[PATH_MAX];
    for (size_t i = 0; root && root[0] == '/' && i < 2; i++) {
        snprintf(folder, sizeof folder, "%s/%s", root, folders[i]);
        if (try_folder(folder, s))
            return true;
    }
    return false;
}

static ogive_status search_nvrtc(ogive_error *error)
{
    search s;
    start_search(&s);
    const char *given = secure_getenv("OGIVE_NVRTC");
    if (given && *given) {
        if (try_name(given, 0, &s))
            return OGIVE_OK;
        OG_FAIL(error, OGIVE_DEVICE, -1, "OGIVE_NVRTC is '%s': %s", given,
                s.problem[0] ? s.problem : "there is no such library");
    }
    if (try_soname(RTLD_NOLOAD, &s) || try_loaded_packages(&s) ||
        try_environment("VIRTUAL_ENV", &s) || try_environment("CONDA_PREFIX", &s) ||
        try_soname(0, &s) || try_toolkit(secure_getenv("CUDA_HOME"), &s) ||
        try_toolkit(secure_getenv("CUDA_PATH"), &s) || try_toolkit("/usr/local/cuda", &s))
        return OGIVE_OK;
    OG_FAIL(error, OGIVE_DEVICE, -1,
            "NVRTC, NVIDIA's compiler library, was not found%s%s%s: looked for libnvrtc.so.12 and "
            "later in this process, in Python packages, VIRTUAL_ENV, CONDA_PREFIX, the loader's "
            "path, CUDA_HOME, CUDA_PATH and /usr/local/cuda; 'pip install nvidia-cuda-nvrtc' "
            "brings it, OGIVE_NVRTC names its file",
            s.problem[0] ? " (" : "", s.problem, s.problem[0] ? ")" : "");
}

ogive_status og_cuda_find_nvrtc(const og_cuda_nvrtc **out, ogive_error *error)
{
    og_cuda_on_fork(renew_lock);
    pthread_mutex_lock(&nvrtc.lock);
    ogive_status status = nvrtc.found ? OGIVE_OK : search_nvrtc(error);
    pthread_mutex_unlock(&nvrtc.lock);
    *out = status == OGIVE_OK ? &nvrtc.info : NULL;
    return status;
}

/* ---- compiling ------------------------------------------------------------------- */

/* Only IEEE operations, none contracted or flushed: the CPU's bits. The scalar
 * functions' text has no __device__. A thread of its own for each entry, with the same
 * instructions: a product has two large ones. */
const char *const og_cuda_options[] = {
    "--std=c++17",       "--fmad=false",     "--ftz=false",
    "--prec-div=true",   "--prec-sqrt=true", "--device-as-default-execution-space",
    "--split-compile=0",
};
const int og_cuda_option_count = sizeof og_cuda_options / sizeof *og_cuda_options;

void og_cuda_exact_target(int32_t arch, og_cuda_target *out)
{
    char text[OG_CUDA_ARCH_TEXT];
    snprintf(out->name, sizeof out->name, "sm_%s", og_cuda_arch_text(arch, text));
    out->is_ptx = false;
}

void og_cuda_ptx_target(int32_t arch, og_cuda_target *out)
{
    snprintf(out->name, sizeof out->name, "compute_%d", (int)arch);
    out->is_ptx = true;
}

ogive_status og_cuda_choose_target(const og_cuda_nvrtc *with, int32_t arch, og_cuda_target *out,
                                   ogive_error *error)
{
    int newest = 0;
    for (int i = 0; i < with->arch_count; i++)
        if (with->archs[i] <= arch)
            newest = with->archs[i];
    og_cuda_exact_target(arch, out);
    if (newest == arch)
        return OGIVE_OK;
    if (newest == 0)
        OG_FAIL(error, OGIVE_UNSUPPORTED, -1,
                "NVRTC %d.%d (%s) does not compile for sm_%d: sm_%d is the oldest", with->major,
                with->minor, with->path, (int)arch, with->archs[0]);
    og_cuda_ptx_target(newest, out);
    return OGIVE_OK;
}

/* The log from its first error on, as one line. */
static ogive_status fail_compile(int result, const og_cuda_target *target, const og_text *log,
                                 ogive_error *error)
{
    char line[700] = "";
    const char *text = log->data ? log->data : "";
    const char *first = strstr(text, "error");
    while (first && first > text && first[-1] != '\n')
        first--;
    snprintf(line, sizeof line, "%s", first ? first : text);
    for (char *at = line; *at; at++)
        *at = *at == '\n' ? ' ' : *at;
    OG_FAIL(error, OGIVE_DEVICE, -1,
            "NVRTC %d.%d does not compile a kernel for %s: %s: %s (OGIVE_DUMP=folder keeps the "
            "source)",
            nvrtc.info.major, nvrtc.info.minor, target->name, nvrtc.nvrtcGetErrorString(result),
            line);
}

static void read_log(og_nvrtc_program *program, og_text *log)
{
    size_t bytes = 0;
    if (nvrtc.nvrtcGetProgramLogSize(program, &bytes) != 0 || bytes <= 1)
        return;
    char *text = malloc(bytes + 1);
    if (text && nvrtc.nvrtcGetProgramLog(program, text) == 0) {
        text[bytes] = 0;
        og_text_add(log, "%s", text);
    }
    free(text);
}

static ogive_status read_image(og_nvrtc_program *program, const og_cuda_target *target,
                               unsigned char **image, size_t *image_bytes, ogive_error *error)
{
    size_t bytes = 0;
    int result = target->is_ptx ? nvrtc.nvrtcGetPTXSize(program, &bytes)
                                : nvrtc.nvrtcGetCUBINSize(program, &bytes);
    if (result != 0 || bytes == 0)
        OG_FAIL(error, OGIVE_DEVICE, -1, "NVRTC made no image for %s: %s", target->name,
                nvrtc.nvrtcGetErrorString(result));
    *image = malloc(bytes);
    if (!*image)
        return og_fail_memory(error, bytes);
    result = target->is_ptx ? nvrtc.nvrtcGetPTX(program, (char *)*image)
                            : nvrtc.nvrtcGetCUBIN(program, (char *)*image);
    if (result != 0) {
        free(*image);
        *image = NULL;
        OG_FAIL(error, OGIVE_DEVICE, -1, "NVRTC gave no image for %s: %s", target->name,
                nvrtc.nvrtcGetErrorString(result));
    }
    *image_bytes = bytes;
    return OGIVE_OK;
}

/* NVRTC takes calls of several threads, for different programs; since 12.3 it compiles them at the
 * same time. */
ogive_status og_cuda_compile(const og_cuda_nvrtc *with, const char *source,
                             const og_cuda_target *target, unsigned char **image,
                             size_t *image_bytes, og_text *log, ogive_error *error)
{
    char arch[64];
    const char *options[sizeof og_cuda_options / sizeof *og_cuda_options + 1];
    memcpy(options, og_cuda_options, sizeof og_cuda_options);
    snprintf(arch, sizeof arch, "--gpu-architecture=%s", target->name);
    options[og_cuda_option_count] = arch;
    (void)with; /* who has it has found NVRTC */
    *image = NULL;
    *image_bytes = 0;
    og_nvrtc_program *program = NULL;
    ogive_status status = OGIVE_OK;
    int result = nvrtc.nvrtcCreateProgram(&program, source, "ogive.cu", 0, NULL, NULL);
    if (result == 0) {
        result = nvrtc.nvrtcCompileProgram(program, og_cuda_option_count + 1, options);
        read_log(program, log);
    }
    if (result != 0)
        status = fail_compile(result, target, log, error);
    else
        status = read_image(program, target, image, image_bytes, error);
    if (program)
        (void)nvrtc.nvrtcDestroyProgram(&program);
    return status;
}
