/* SPDX-License-Identifier: MIT
 *
 * cuda_host.h - for tests of the CUDA backend's host side on the stand-in libraries of
 * tests/cuda. A process finds its driver once, so every test is a child of its own, with
 * its own environment.
 */
#ifndef OG_CUDA_HOST_H
#define OG_CUDA_HOST_H

#include "test.h"

#include "cuda/host/cuda_driver.h"

#include <sys/wait.h>

/* ---- children ------------------------------------------------------------------------- */

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition,                    \
                    getenv("FAULT") ? getenv("FAULT") : "");                                       \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define CHECK_OK(call)                                                                             \
    do {                                                                                           \
        if ((call) != OGIVE_OK) {                                                                  \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, error.message);          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define CHECK_FAILS(call, want, part)                                                              \
    do {                                                                                           \
        ogive_status got_ = (call);                                                                \
        if (got_ != (want) || error.status != (want) || !strstr(error.message, part)) {            \
            fprintf(stderr, "%s:%d: %s: %s, \"%s\": expected %s, \"%s\"\n", __FILE__, __LINE__,    \
                    #call, ogive_status_name(got_), error.message, ogive_status_name(want), part); \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static char folder[256]; /* of the cache */

static inline int make_folder(void **unused)
{
    (void)unused;
    const char *temporary = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/ogive-host-XXXXXX", temporary ? temporary : "/tmp");
    if (!mkdtemp(folder))
        return -1;
    return setenv("OGIVE_CACHE_DIR", folder, 1);
}

static inline int remove_folder(void **unused)
{
    (void)unused;
    char command[400];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

/* Runs body in a child with "NAME=value" set; ends with NULL. "NAME" alone unsets. */
static inline void in_child(void (*body)(void), ...)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        va_list list;
        va_start(list, body);
        for (char *text; (text = va_arg(list, char *));)
            putenv(text); /* "NAME" removes it */
        va_end(list);
        body();
        exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- formulas on the device --------------------------------------------------------------- */

enum { N = 1000 };
static const DLDevice gpu = {kDLCUDA, 0};
static _Thread_local ogive_error error;

static inline ogive_formula *parse(const char *text)
{
    ogive_formula *formula = NULL;
    CHECK_OK(ogive_formula_create(text, OGIVE_TEXT, &formula, &error));
    return formula;
}

static inline float value_of(int i)
{
    return (float)(i % 37) * 0.25f - 3;
}

/* A tensor (4, n / 4) on device; NULL data. */
static inline DLTensor *describe(test_tensor *t, DLDevice device, int64_t n)
{
    test_tensor_init(t, NULL, test_float32, 2, (int64_t[]){4, n / 4}, NULL);
    t->tensor.device = device;
    return &t->tensor;
}

static inline void *upload(DLDevice device)
{
    float values[N];
    void *data = NULL;
    for (int i = 0; i < N; i++)
        values[i] = value_of(i);
    CHECK_OK(ogive_device_allocate(device, sizeof values, &data, &error));
    CHECK_OK(ogive_device_copy(device, data, values, sizeof values, &error));
    return data;
}

static inline ogive_status plan_text(const char *text, int64_t n, const ogive_options *options,
                                     ogive_plan **plan)
{
    test_tensor x;
    const DLTensor *inputs[] = {describe(&x, gpu, n)};
    ogive_formula *formula = parse(text);
    ogive_status status = ogive_plan_create(formula, inputs, 1, NULL, 0, options, plan, &error);
    ogive_formula_release(formula);
    return status;
}

/* A formula of one input on the device and on the CPU: the same bits. */
static inline ogive_status run_formula(ogive_formula *formula, void *stream)
{
    test_tensor x, y, host_x, host_y;
    float values[N], want[N] = {0}, got[N];
    const ogive_options options = {.size = sizeof options, .stream = stream};
    ogive_status status;
    const DLDevice cpu = {kDLCPU, 0};
    DLTensor *gpu_x = describe(&x, gpu, N), *gpu_y = describe(&y, gpu, N);
    DLTensor *cpu_x = describe(&host_x, cpu, N), *cpu_y = describe(&host_y, cpu, N);
    for (int i = 0; i < N; i++)
        values[i] = value_of(i);
    cpu_x->data = values;
    cpu_y->data = want;
    CHECK_OK(ogive_run(formula, (const DLTensor *const[]){cpu_x}, 1,
                       (const DLTensor *const[]){cpu_y}, 1, NULL, &error));
    status = ogive_device_allocate(gpu, sizeof values, &gpu_x->data, &error);
    if (status == OGIVE_OK)
        status = ogive_device_allocate(gpu, sizeof values, &gpu_y->data, &error);
    if (status == OGIVE_OK)
        status = ogive_device_copy(gpu, gpu_x->data, values, sizeof values, &error);
    if (status == OGIVE_OK)
        status = ogive_run(formula, (const DLTensor *const[]){gpu_x}, 1,
                           (const DLTensor *const[]){gpu_y}, 1, &options, &error);
    if (status == OGIVE_OK)
        status = ogive_device_synchronize(gpu, stream, &error);
    if (status == OGIVE_OK)
        status = ogive_device_copy(gpu, got, gpu_y->data, sizeof got, &error);
    if (status == OGIVE_OK)
        CHECK(memcmp(got, want, sizeof got) == 0);
    ogive_error kept = error;
    (void)ogive_device_free(gpu, gpu_x->data, NULL);
    (void)ogive_device_free(gpu, gpu_y->data, NULL);
    error = kept;
    return status;
}

static inline ogive_status run_text(const char *text, void *stream)
{
    ogive_formula *formula = parse(text);
    ogive_status status = run_formula(formula, stream);
    ogive_formula_release(formula);
    return status;
}

/* Two kernels and a temporary between them. */
static const char two_kernels[] = "x + sum(x, dim=0) + sum(x, dim=1, keepdim=true)";

/* The driver's context of this thread: none may be left by us. */
static inline void expect_no_context(void)
{
    og_cu_context *context = NULL;
    CHECK(og_cuda_driver()->call.cuCtxPopCurrent(&context) != 0);
    int mode = 0;
    CHECK(og_cuda_driver()->call.cuThreadExchangeStreamCaptureMode(&mode) == 0 && mode == 0);
}

static inline size_t free_bytes(void)
{
    const og_cuda_device *device;
    size_t free = 0, total;
    CHECK_OK(og_cuda_find_device(0, &device, &error));
    CHECK_OK(og_cuda_enter(device, &error));
    CHECK(og_cuda_driver()->call.cuMemGetInfo(&free, &total) == 0);
    CHECK_OK(og_cuda_leave(device, OGIVE_OK, &error));
    return free;
}

#define HOST_TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

#endif
