/* SPDX-License-Identifier: MIT
 *
 * fake_nvrtc.c - a library that stands in for libnvrtc (OGIVE_NVRTC=) where there is no
 * GPU: compiles CUDA C with the machine's C++ compiler, behind shim_device.h, into a
 * shared object whose bytes are the "cubin" that the fake driver loads.
 *
 * Refused as the real one would not be: a missing --fmad=false, without which a GPU
 * gives other bits.
 *
 *     OGIVE_SHIM_CXX    the compiler; default: what the build found
 *     OGIVE_SHIM_CACHE  folder of compiled kernels, by hash; default: in the build folder
 *     OGIVE_SHIM_CHECK  1: every load and store is checked (see fake_check.c)
 *     OGIVE_SHIM_IDLE   1: nothing is compiled, and launches do nothing (see shim_link.h): for
 *                       what looks at the library alone, as sanitizers do
 *     OGIVE_SHIM_NVRTC  the version it claims to be; default 13.0
 *     OGIVE_SHIM_FAIL   see fake_fault.h
 *
 * The test is the only user: errors of the machine (no disk, no memory) may end it.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "fake_fault.h"
#include "shim_link.h"

#include <ctype.h>
#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

extern char **environ;

/* nvrtcResult */
enum {
    NVRTC_OK = 0,
    NVRTC_OUT_OF_MEMORY = 1,
    NVRTC_INVALID_INPUT = 3,
    NVRTC_INVALID_OPTION = 5,
    NVRTC_COMPILATION = 6
};

typedef struct {
    char *source, *log;
    char *image;
    size_t image_bytes;
} program;

/* ---- text ---------------------------------------------------------------------------- */

typedef struct {
    char *text;
    size_t length;
    FILE *file;
} stream;

static void open_stream(stream *s)
{
    s->file = open_memstream(&s->text, &s->length);
    if (!s->file)
        abort();
}

static char *close_stream(stream *s)
{
    fclose(s->file);
    return s->text;
}

static char *read_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    stream s;
    open_stream(&s);
    char part[4096];
    size_t got;
    while ((got = fread(part, 1, sizeof part, file)))
        fwrite(part, 1, got, s.file);
    fclose(file);
    char *text = close_stream(&s);
    *bytes = s.length;
    return text;
}

static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return hash;
}

/* ---- what C++ does not know ------------------------------------------------------------ */

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static size_t word_length(const char *text)
{
    size_t length = 0;
    while (is_word(text[length]))
        length++;
    return length;
}

static bool starts_with_word(const char *text, const char *word)
{
    return word_length(text) == strlen(word) && strncmp(text, word, strlen(word)) == 0;
}

/* text is at a '(': what is behind its ')'. */
static const char *skip_parentheses(const char *text)
{
    int depth = 0;
    for (; *text; text++) {
        depth += (*text == '(') - (*text == ')');
        if (depth == 0)
            return text + 1;
    }
    return text;
}

/* text is at a mark with arguments: the first of them is a number, which C++ computes. Returns what
 * is behind. */
static const char *read_number(const char *text, char *number, size_t bytes)
{
    text += strcspn(text, "(");
    const char *end = skip_parentheses(text);
    /* A comma expression would be its last number: so an array's first. */
    snprintf(number, bytes, "(const unsigned[]){%.*s}[0]", (int)(end - text - 2), text + 1);
    return end;
}

/* text is behind a __global__: writes the kernel's entry. */
static void write_entry(const char *text, FILE *out)
{
    char name[256] = "", bounds[256] = "0", cluster[256] = "1";
    while (*text && *text != '(' && *text != ';') {
        size_t length = word_length(text);
        if (starts_with_word(text, "shim_mark_bounds")) {
            text = read_number(text, bounds, sizeof bounds);
        } else if (starts_with_word(text, "shim_mark_cluster")) {
            text = read_number(text, cluster, sizeof cluster);
        } else if (length) {
            snprintf(name, sizeof name, "%.*s", (int)length, text);
            text += length;
        } else {
            text++;
        }
    }
    fprintf(out,
            "\nextern \"C\" __attribute__((visibility(\"default\"))) unsigned og_bounds_%s = %s;\n"
            "extern \"C\" __attribute__((visibility(\"default\"))) unsigned og_cluster_%s = %s;\n"
            "extern \"C\" __attribute__((visibility(\"default\"))) void og_entry_%s(void **p)\n"
            "{\n    shim_call(%s, p);\n}\n",
            name, bounds, name, cluster, name, name);
}

/* text is behind an extern __shared__: its name is another one of the dynamic memory. */
static void write_dynamic(const char *text, FILE *out, char *known, size_t known_bytes)
{
    const char *end = text + strcspn(text, "[;"), *start;
    while (end > text && !is_word(end[-1]))
        end--;
    for (start = end; start > text && is_word(start[-1]); start--)
        continue;
    char name[256];
    snprintf(name, sizeof name, " %.*s ", (int)(end - start), start);
    if (strstr(known, name))
        return;
    snprintf(known + strlen(known), known_bytes - strlen(known), "%s", name);
    fprintf(out, "\nasm(\".globl %s\\n.hidden %s\\n.set %s, og_dynamic_shared\\n\");\n", name, name,
            name);
}

/* Preprocessed text without shim_device.h's marks, with entries behind it. (A string with
 * a mark in it would be changed: kernels have none.) */
static char *translate(const char *source)
{
    stream s, tail;
    char known[1024] = "";
    bool is_extern = false;
    open_stream(&s);
    open_stream(&tail);
    for (const char *text = source; *text;) {
        size_t length = word_length(text);
        if (starts_with_word(text, "shim_mark_global")) {
            write_entry(text + length, tail.file);
        } else if (starts_with_word(text, "shim_mark_bounds") ||
                   starts_with_word(text, "shim_mark_cluster")) {
            text = skip_parentheses(text + strcspn(text, "("));
            continue;
        } else if (starts_with_word(text, "shim_mark_shared") && is_extern) {
            write_dynamic(text + length, tail.file, known, sizeof known);
        } else if (starts_with_word(text, "shim_mark_shared")) {
            /* used: what poisons it is not in this text. No kernel may have the section's name. */
            fputs("static __attribute__((used, section(\"shim_static\")))", s.file);
        } else {
            fwrite(text, 1, length ? length : 1, s.file);
        }
        if (length || !isspace((unsigned char)*text))
            is_extern = starts_with_word(text, "extern");
        text += length ? length : 1;
    }
    char *end = close_stream(&tail);
    fputs(end, s.file);
    free(end);
    return close_stream(&s);
}

static bool is_set(const char *name)
{
    const char *text = getenv(name);
    return text && strcmp(text, "1") == 0;
}

/* ---- the compiler --------------------------------------------------------------------- */

static bool is_checking(void)
{
    return is_set("OGIVE_SHIM_CHECK");
}

static const char *find_compiler(void)
{
    const char *compiler = getenv("OGIVE_SHIM_CXX");
    return compiler && *compiler ? compiler : OG_SHIM_CXX;
}

/* Runs a command, its messages into log. */
static bool spawn(const char *const *arguments, const char *log)
{
    posix_spawn_file_actions_t actions;
    pid_t child;
    int status = -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    bool good =
        posix_spawnp(&child, arguments[0], &actions, NULL, (char **)arguments, environ) == 0 &&
        waitpid(child, &status, 0) == child && status == 0;
    posix_spawn_file_actions_destroy(&actions);
    return good;
}

static bool write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    bool good = file && fputs(text, file) >= 0;
    return file && fclose(file) == 0 && good;
}

typedef struct {
    char source[1250], text[1250], library[1250], log[1250];
} paths;

static bool preprocess(const paths *path)
{
    const char *arguments[] = {find_compiler(),
                               "-E",
                               "-w",
                               "-x",
                               "c++",
                               "-std=c++17",
                               "-D__CUDACC_RTC__",
                               "-DOG_CUDA_SHIM",
                               "-D__CUDA_ARCH_FEAT_SM90_ALL",
                               is_checking() ? "-DOG_SHIM_CHECK" : "-w",
                               "-include",
                               OG_SHIM_FOLDER "/shim_device.h",
                               path->source,
                               "-o",
                               path->text,
                               NULL};
    size_t bytes;
    if (!spawn(arguments, path->log))
        return false;
    char *text = read_file(path->text, &bytes);
    char *translated = text ? translate(text) : NULL;
    bool good = translated && write_text(path->text, translated);
    free(text);
    free(translated);
    return good;
}

static bool build(const paths *path)
{
    bool checking = is_checking(); /* "-w": an option that is there already */
    /* By Og kernels run as fast as by O1, and take two thirds of its time to compile. Without
     * start files and libstdc++ the linker takes half the time. */
    const char *arguments[] = {find_compiler(),
                               "-shared",
                               "-nostdlib",
                               "-pipe",
                               "-x",
                               "c++",
                               "-fpreprocessed",
                               "-std=c++17",
                               "-Og",
                               "-w",
                               checking ? "-fsanitize=thread" : "-w",
                               checking ? "-fsanitize=alignment,bounds,shift" : "-w",
                               checking ? "-fsanitize-undefined-trap-on-error" : "-w",
                               "-fPIC",
                               "-fvisibility=hidden",
                               "-ffp-contract=off",
                               "-fno-strict-aliasing",
                               "-fno-exceptions",
                               "-fno-rtti",
                               path->text,
                               "-o",
                               path->library,
                               "-lm",
                               "-lgcc",
                               NULL};
    return preprocess(path) && spawn(arguments, path->log);
}

static const char *find_folder(void)
{
    const char *given = getenv("OGIVE_SHIM_CACHE");
    const char *folder = given && *given ? given : OG_SHIM_CACHE;
    mkdir(folder, 0700);
    return folder;
}

static uint64_t hash_file(uint64_t hash, const char *path)
{
    size_t bytes;
    char *text = read_file(path, &bytes);
    hash = hash_text(hash, text ? text : "");
    free(text);
    return hash;
}

static int leave_idle(program *p)
{
    stream s;
    open_stream(&s);
    fputs(SHIM_IDLE, s.file);
    fwrite(p->source, 1, strlen(p->source) + 1, s.file);
    p->image = close_stream(&s);
    p->image_bytes = s.length;
    return NVRTC_OK;
}

/* Compiled before, or compiled now: p->image, or p->log. */
static int compile(program *p)
{
    const char *folder = find_folder();
    char kept[1200], base[1200];
    paths path;
    uint64_t hash = hash_text(14695981039346656037u + is_checking(), find_compiler());
    hash = hash_file(hash, OG_SHIM_FOLDER "/shim_device.h");
    hash = hash_file(hash, OG_SHIM_FOLDER "/shim_hopper.h");
    hash = hash_file(hash, OG_SHIM_FOLDER "/shim_link.h");
    hash = hash_text(hash, p->source);
    snprintf(kept, sizeof kept, "%s/%016" PRIx64 ".so", folder, hash);
    p->image = read_file(kept, &p->image_bytes);
    if (p->image)
        return NVRTC_OK;
    snprintf(base, sizeof base, "%s/%016" PRIx64 "-%d", folder, hash, (int)getpid());
    snprintf(path.source, sizeof path.source, "%s.cu", base);
    snprintf(path.text, sizeof path.text, "%s.cpp", base);
    snprintf(path.library, sizeof path.library, "%s.so", base);
    snprintf(path.log, sizeof path.log, "%s.log", base);
    if (write_text(path.source, p->source) && build(&path) && rename(path.library, kept) == 0)
        p->image = read_file(kept, &p->image_bytes);
    size_t bytes;
    free(p->log);
    p->log = read_file(path.log, &bytes);
    unlink(path.source);
    unlink(path.text);
    unlink(path.log);
    return p->image ? NVRTC_OK : NVRTC_COMPILATION;
}

/* ---- what libnvrtc exports -------------------------------------------------------------- */

EXPORT const char *nvrtcGetErrorString(int result);
EXPORT int nvrtcVersion(int *major, int *minor);
EXPORT int nvrtcGetNumSupportedArchs(int *count);
EXPORT int nvrtcGetSupportedArchs(int *archs);
EXPORT int nvrtcCreateProgram(program **out, const char *source, const char *name, int headers,
                              const char *const *texts, const char *const *names);
EXPORT int nvrtcDestroyProgram(program **p);
EXPORT int nvrtcCompileProgram(program *p, int count, const char *const *options);
EXPORT int nvrtcGetCUBINSize(program *p, size_t *bytes);
EXPORT int nvrtcGetCUBIN(program *p, char *image);
EXPORT int nvrtcGetPTXSize(program *p, size_t *bytes);
EXPORT int nvrtcGetPTX(program *p, char *image);
EXPORT int nvrtcGetProgramLogSize(program *p, size_t *bytes);
EXPORT int nvrtcGetProgramLog(program *p, char *log);

const char *nvrtcGetErrorString(int result)
{
    return result == NVRTC_OK               ? "NVRTC_SUCCESS"
           : result == NVRTC_OUT_OF_MEMORY  ? "NVRTC_ERROR_OUT_OF_MEMORY"
           : result == NVRTC_INVALID_INPUT  ? "NVRTC_ERROR_INVALID_INPUT"
           : result == NVRTC_INVALID_OPTION ? "NVRTC_ERROR_INVALID_OPTION"
           : result == NVRTC_COMPILATION    ? "NVRTC_ERROR_COMPILATION"
                                            : "NVRTC_ERROR unknown";
}

int nvrtcVersion(int *major, int *minor)
{
    FAKE_FAULT("nvrtcVersion", NVRTC_INVALID_INPUT);
    const char *given = getenv("OGIVE_SHIM_NVRTC");
    *major = 13;
    *minor = 0;
    if (given)
        sscanf(given, "%d.%d", major, minor);
    return NVRTC_OK;
}

static const int supported[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};

int nvrtcGetNumSupportedArchs(int *count)
{
    *count = (int)(sizeof supported / sizeof *supported);
    return NVRTC_OK;
}

int nvrtcGetSupportedArchs(int *archs)
{
    memcpy(archs, supported, sizeof supported);
    return NVRTC_OK;
}

int nvrtcCreateProgram(program **out, const char *source, const char *name, int headers,
                       const char *const *texts, const char *const *names)
{
    (void)name, (void)texts, (void)names;
    FAKE_FAULT("nvrtcCreateProgram", NVRTC_OUT_OF_MEMORY);
    if (!out || !source || headers)
        return NVRTC_INVALID_INPUT;
    program *p = calloc(1, sizeof *p);
    if (p)
        p->source = strdup(source);
    *out = p;
    return p ? NVRTC_OK : NVRTC_OUT_OF_MEMORY;
}

int nvrtcDestroyProgram(program **p)
{
    free((*p)->source);
    free((*p)->log);
    free((*p)->image);
    free(*p);
    *p = NULL;
    return NVRTC_OK;
}

static int refuse(program *p, int result, const char *text, const char *option)
{
    free(p->log);
    if (asprintf(&p->log, "%s%s\n", text, option) < 0)
        abort();
    return result;
}

int nvrtcCompileProgram(program *p, int count, const char *const *options)
{
    bool fused = true, arch = false;
    if (fake_fault("nvrtcCompileProgram", NVRTC_COMPILATION))
        return refuse(p, NVRTC_COMPILATION, "kernel.cu(1): error: asked to fail", "");
    for (int i = 0; i < count; i++) {
        if (strcmp(options[i], "--fmad=false") == 0 || strcmp(options[i], "-fmad=false") == 0)
            fused = false;
        else if (strncmp(options[i], "--gpu-architecture=sm_", 22) == 0 ||
                 strncmp(options[i], "-arch=sm_", 9) == 0 ||
                 strncmp(options[i], "--gpu-architecture=compute_", 27) == 0)
            arch = true;
        else if (strstr(options[i], "fast") || strstr(options[i], "ftz=true") ||
                 strstr(options[i], "prec-div=false") || strstr(options[i], "prec-sqrt=false"))
            return refuse(p, NVRTC_INVALID_OPTION, "changes bits: ", options[i]);
    }
    if (fused || !arch)
        return refuse(p, NVRTC_INVALID_OPTION,
                      "missing option: ", fused ? "--fmad=false" : "--gpu-architecture=");
    return is_set("OGIVE_SHIM_IDLE") ? leave_idle(p) : compile(p);
}

int nvrtcGetCUBINSize(program *p, size_t *bytes)
{
    *bytes = p->image_bytes;
    return p->image ? NVRTC_OK : NVRTC_INVALID_INPUT;
}

int nvrtcGetCUBIN(program *p, char *image)
{
    FAKE_FAULT("nvrtcGetCUBIN", NVRTC_INVALID_INPUT);
    if (!p->image)
        return NVRTC_INVALID_INPUT;
    memcpy(image, p->image, p->image_bytes);
    return NVRTC_OK;
}

int nvrtcGetPTXSize(program *p, size_t *bytes)
{
    return nvrtcGetCUBINSize(p, bytes);
}

int nvrtcGetPTX(program *p, char *image)
{
    return nvrtcGetCUBIN(p, image);
}

int nvrtcGetProgramLogSize(program *p, size_t *bytes)
{
    *bytes = p->log ? strlen(p->log) + 1 : 1;
    return NVRTC_OK;
}

int nvrtcGetProgramLog(program *p, char *log)
{
    strcpy(log, p->log ? p->log : "");
    return NVRTC_OK;
}
