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
 *     OGIVE_SHIM_CACHE  folder of compiled kernels, by hash; default: under TMPDIR
 *     OGIVE_SHIM_CHECK  1: every load and store is checked (see fake_check.c)
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

/* The end of the comment or string that begins at text, or text. */
static const char *skip_quiet(const char *text)
{
    const char *end = NULL;
    if (text[0] == '/' && text[1] == '/')
        end = strchr(text, '\n');
    else if (text[0] == '/' && text[1] == '*')
        end = (end = strstr(text + 2, "*/")) ? end + 2 : NULL;
    else if (text[0] == '"')
        for (end = text + 1; *end && *end != '"'; end++)
            end += *end == '\\';
    else
        return text;
    return end && *end ? end + (text[0] == '"') : text + strlen(text);
}

static bool starts_with_word(const char *text, const char *word)
{
    size_t length = strlen(word);
    return strncmp(text, word, length) == 0 && !is_word(text[length]);
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

/* text is behind a __global__: writes the kernel's entry. */
static void write_entry(const char *text, FILE *out)
{
    char name[256] = "", bounds[256] = "0";
    for (; *text && *text != '{' && *text != ';'; text++) {
        if (starts_with_word(text, "__launch_bounds__")) {
            text = strchr(text, '(');
            const char *end = skip_parentheses(text);
            /* Of two arguments a comma expression takes the second: so as an array's first. */
            snprintf(bounds, sizeof bounds, "(const unsigned[]){%.*s}[0]", (int)(end - text - 2),
                     text + 1);
            text = end - 1;
        } else if (*text == '(') {
            break;
        } else if (is_word(*text)) {
            size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                         "0123456789_");
            snprintf(name, sizeof name, "%.*s", (int)length, text);
            text += length - 1;
        }
    }
    fprintf(out,
            "\nextern \"C\" __attribute__((visibility(\"default\"))) unsigned og_bounds_%s = %s;\n"
            "extern \"C\" __attribute__((visibility(\"default\"))) void og_entry_%s(void **p)\n"
            "{\n    shim_call(%s, p);\n}\n",
            name, bounds, name, name);
}

/* text is behind an extern __shared__: its name is another one of the dynamic memory. */
static void write_dynamic(const char *text, FILE *out, char *known, size_t known_bytes)
{
    const char *end = text + strcspn(text, "[;"), *start;
    while (end > text && !is_word(end[-1]))
        end--;
    for (start = end; start > text && is_word(start[-1]); start--)
        continue;
    char entry[256];
    snprintf(entry, sizeof entry, " %.*s ", (int)(end - start), start);
    if (strstr(known, entry))
        return;
    snprintf(known + strlen(known), known_bytes - strlen(known), "%s", entry);
    fprintf(out, "\nasm(\".globl %s\\n.hidden %s\\n.set %s, og_dynamic_shared\\n\");\n", entry,
            entry, entry);
}

/* The source as C++: without the __shared__ of dynamic memory, with entries behind it. */
static char *translate(const char *source)
{
    stream s, tail;
    open_stream(&s);
    open_stream(&tail);
    char known[1024] = "";
    fprintf(s.file, "#line 1 \"kernel.cu\"\n");
    for (const char *text = source; *text;) {
        const char *quiet = skip_quiet(text);
        if (quiet != text) {
            fwrite(text, 1, (size_t)(quiet - text), s.file);
            text = quiet;
            continue;
        }
        bool first = text == source || !is_word(text[-1]);
        if (first && starts_with_word(text, "__global__")) {
            write_entry(text + strlen("__global__"), tail.file);
        } else if (first && starts_with_word(text, "extern")) {
            const char *next = text + strlen("extern");
            next += strspn(next, " \t\n");
            if (starts_with_word(next, "__shared__")) {
                fprintf(s.file, "extern ");
                text = next + strlen("__shared__");
                write_dynamic(text, tail.file, known, sizeof known);
                continue;
            }
        }
        fputc(*text++, s.file);
    }
    char *end = close_stream(&tail);
    fputs(end, s.file);
    free(end);
    return close_stream(&s);
}

/* ---- the compiler --------------------------------------------------------------------- */

static bool is_checking(void)
{
    const char *text = getenv("OGIVE_SHIM_CHECK");
    return text && strcmp(text, "1") == 0;
}

static const char *find_compiler(void)
{
    const char *compiler = getenv("OGIVE_SHIM_CXX");
    return compiler && *compiler ? compiler : OG_SHIM_CXX;
}

/* Runs the compiler over input, its messages into log. */
static bool spawn_compiler(const char *input, const char *output, const char *log)
{
    bool checking = is_checking(); /* "-w": an option that is there already */
    const char *touch = checking ? "-fsanitize=thread" : "-w";
    const char *trap = checking ? "-fsanitize=alignment,bounds,shift" : "-w";
    const char *how = checking ? "-fsanitize-undefined-trap-on-error" : "-w";
    const char *define = checking ? "-DOG_SHIM_CHECK" : "-w";
    char *object = NULL;
    if (asprintf(&object, "%s.o", output) < 0)
        abort();
    const char *compile[] = {find_compiler(),
                             "-x",
                             "c++",
                             "-std=c++17",
                             "-O1",
                             "-w",
                             touch,
                             trap,
                             how,
                             define,
                             "-fPIC",
                             "-fvisibility=hidden",
                             "-ffp-contract=off",
                             "-fno-strict-aliasing",
                             "-fno-exceptions",
                             "-fno-rtti",
                             "-D__CUDACC_RTC__",
                             "-DOG_CUDA_SHIM",
                             "-include",
                             OG_SHIM_FOLDER "/shim_device.h",
                             "-c",
                             input,
                             "-o",
                             object,
                             NULL};
    const char *link[] = {find_compiler(), "-shared", object, "-o", output, "-lm", NULL};
    bool good = true;
    for (int step = 0; step < 2 && good; step++) {
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
        posix_spawn_file_actions_adddup2(&actions, 1, 2);
        pid_t child;
        int status = -1;
        const char **arguments = step ? link : compile;
        good =
            posix_spawnp(&child, arguments[0], &actions, NULL, (char **)arguments, environ) == 0 &&
            waitpid(child, &status, 0) == child && status == 0;
        posix_spawn_file_actions_destroy(&actions);
    }
    unlink(object);
    free(object);
    return good;
}

static const char *find_folder(char *path, size_t bytes)
{
    const char *given = getenv("OGIVE_SHIM_CACHE"), *temporary = getenv("TMPDIR");
    if (given && *given)
        snprintf(path, bytes, "%s", given);
    else
        snprintf(path, bytes, "%s/ogive-shim-%u", temporary && *temporary ? temporary : "/tmp",
                 (unsigned)getuid());
    mkdir(path, 0700);
    return path;
}

/* Compiled before, or compiled now; p->image or p->log. */
static int compile(program *p)
{
    char folder[1024], path[1200], base[1200], source[1250], log[1250], object[1250];
    size_t header_bytes = 0, link_bytes = 0;
    char *header = read_file(OG_SHIM_FOLDER "/shim_device.h", &header_bytes);
    char *link = read_file(OG_SHIM_FOLDER "/shim_link.h", &link_bytes);
    uint64_t hash = hash_text(14695981039346656037u + is_checking(), find_compiler());
    hash = hash_text(hash_text(hash, header ? header : ""), link ? link : "");
    char *text = translate(p->source);
    hash = hash_text(hash, text);
    free(header);
    free(link);
    snprintf(path, sizeof path, "%s/%016" PRIx64 ".so", find_folder(folder, sizeof folder), hash);
    p->image = read_file(path, &p->image_bytes);
    if (!p->image) {
        snprintf(base, sizeof base, "%s/%016" PRIx64 "-%d", folder, hash, (int)getpid());
        snprintf(source, sizeof source, "%s.cpp", base);
        snprintf(log, sizeof log, "%s.log", base);
        snprintf(object, sizeof object, "%s.so", base);
        FILE *file = fopen(source, "w");
        if (file) {
            fputs(text, file);
            fclose(file);
        }
        unlink(log);
        if (file && spawn_compiler(source, object, log) && rename(object, path) == 0)
            p->image = read_file(path, &p->image_bytes);
        size_t bytes;
        p->log = read_file(log, &bytes);
        unlink(source);
        unlink(log);
    }
    free(text);
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
    *major = 13;
    *minor = 0;
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
    return compile(p);
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
