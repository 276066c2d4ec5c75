/* SPDX-License-Identifier: MIT
 *
 * cuda_driver.c - loads the CUDA driver and knows its devices; see cuda_driver.h.
 */
#define _GNU_SOURCE /* secure_getenv, dladdr */
#include "cuda/host/cuda_driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- forks ---------------------------------------------------------------------- */

/* CUDA does not survive fork(): a child that inherits a started driver can use none of
 * it. It may still release what it inherited, so locks that a thread of the parent held
 * are made anew. */
enum { MAX_FORK_HANDLERS = 8 };
static void (*fork_handlers[MAX_FORK_HANDLERS])(void);
static pthread_mutex_t fork_lock = PTHREAD_MUTEX_INITIALIZER; /* of writing them */
static atomic_int fork_handler_count;
static atomic_bool is_started, is_forked;

static void handle_fork(void)
{
    if (atomic_load_explicit(&is_started, memory_order_relaxed))
        atomic_store_explicit(&is_forked, true, memory_order_relaxed);
    pthread_mutex_init(&fork_lock, NULL);
    int count = atomic_load_explicit(&fork_handler_count, memory_order_acquire);
    for (int i = 0; i < count; i++)
        fork_handlers[i]();
}

static void watch_forks(void)
{
    /* Without memory for it, only forks amid other threads' work are at risk. */
    (void)pthread_atfork(NULL, NULL, handle_fork);
}

void og_cuda_on_fork(void (*child)(void))
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&fork_lock);
    int count = atomic_load_explicit(&fork_handler_count, memory_order_relaxed);
    bool known = !child || count == MAX_FORK_HANDLERS;
    for (int i = 0; i < count; i++)
        known |= fork_handlers[i] == child;
    if (!known) {
        fork_handlers[count] = child;
        atomic_store_explicit(&fork_handler_count, count + 1, memory_order_release);
    }
    pthread_mutex_unlock(&fork_lock);
}

bool og_cuda_is_forked(void)
{
    return atomic_load_explicit(&is_forked, memory_order_relaxed);
}

/* ---- loading ---------------------------------------------------------------------- */

static og_cuda_driver_state driver;

const char *og_cuda_result_name(int result)
{
    const char *name = NULL;
    if (!driver.call.cuGetErrorName || driver.call.cuGetErrorName(result, &name) != 0 || !name)
        return "an unknown CUDA error";
    return name;
}

static const char *result_text(int result)
{
    const char *text = NULL;
    if (!driver.call.cuGetErrorString || driver.call.cuGetErrorString(result, &text) != 0 || !text)
        return "no description";
    return text;
}

/* The name of a function that the library lacks, or NULL. */
static const char *find_functions(void *library)
{
    /* A data pointer becomes a function pointer, as POSIX has it for dlsym. */
#define FIND(name, symbol, arguments) *(void **)&driver.call.name = dlsym(library, symbol);
    OG_CUDA_FUNCTIONS(FIND)
    OG_CUDA_OPTIONAL_FUNCTIONS(FIND)
#undef FIND
#define CHECK(name, symbol, arguments)                                                             \
    if (!driver.call.name)                                                                         \
        return symbol;
    OG_CUDA_FUNCTIONS(CHECK)
#undef CHECK
    return NULL;
}

static void start_driver(const char *path)
{
    int version = 0;
    if (driver.call.cuDriverGetVersion(&version) == 0)
        driver.version = version;
    int result = driver.call.cuInit(0);
    if (result == 0)
        result = driver.call.cuDeviceGetCount(&driver.device_count);
    if (result == OG_CUDA_NO_DEVICE || (result == 0 && driver.device_count == 0))
        snprintf(driver.problem, sizeof driver.problem,
                 "the CUDA driver (%s) finds no GPU; CUDA_VISIBLE_DEVICES is %s", path,
                 getenv("CUDA_VISIBLE_DEVICES") ? getenv("CUDA_VISIBLE_DEVICES") : "not set");
    else if (result != 0)
        snprintf(driver.problem, sizeof driver.problem,
                 "the CUDA driver (%s) does not start: %s (%s)%s", path,
                 og_cuda_result_name(result), result_text(result),
                 result == OG_CUDA_NOT_INITIALIZED
                     ? ", as after a fork of a process that had started CUDA"
                     : "");
    if (result != 0)
        driver.device_count = 0;
}

static void load_driver(void)
{
    const char *given = secure_getenv("OGIVE_LIBCUDA");
    const char *name = given && *given ? given : "libcuda.so.1";
    og_cuda_on_fork(NULL);
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        snprintf(driver.problem, sizeof driver.problem, "no CUDA driver: %s",
                 why ? why : "libcuda.so.1 cannot be loaded");
        return;
    }
    const char *missing = find_functions(library);
    Dl_info where;
    if (driver.call.cuInit && dladdr(*(void **)&driver.call.cuInit, &where) && where.dli_fname)
        snprintf(driver.path, sizeof driver.path, "%s", where.dli_fname);
    if (missing)
        snprintf(driver.problem, sizeof driver.problem,
                 "the CUDA driver (%s) has no %s: it is too old", name, missing);
    else
        start_driver(name);
    if (!driver.problem[0])
        atomic_store_explicit(&is_started, true, memory_order_relaxed);
}

const og_cuda_driver_state *og_cuda_driver(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_driver);
    return &driver;
}

ogive_status og_cuda_need_driver(ogive_error *error)
{
    const og_cuda_driver_state *state = og_cuda_driver();
    if (og_cuda_is_forked())
        OG_FAIL(error, OGIVE_DEVICE, -1,
                "CUDA was started before this process was forked and does not work in it: start "
                "the process by exec (in Python: the 'spawn' start method) or use CUDA only after "
                "the fork");
    if (state->problem[0])
        OG_FAIL(error, OGIVE_DEVICE, -1, "%s", state->problem);
    return OGIVE_OK;
}

/* ---- errors ---------------------------------------------------------------------- */

/* After these every call in the context fails, with the same answer. */
static bool is_sticky(int result)
{
    static const int sticky[] = {
        214, /* CUDA_ERROR_ECC_UNCORRECTABLE */
        220, /* CUDA_ERROR_NVLINK_UNCORRECTABLE */
        226, /* CUDA_ERROR_CONTAINED */
        700, /* CUDA_ERROR_ILLEGAL_ADDRESS */
        702, /* CUDA_ERROR_LAUNCH_TIMEOUT */
        709, /* CUDA_ERROR_CONTEXT_IS_DESTROYED */
        710, /* CUDA_ERROR_ASSERT */
        714, /* CUDA_ERROR_HARDWARE_STACK_ERROR */
        715, /* CUDA_ERROR_ILLEGAL_INSTRUCTION */
        716, /* CUDA_ERROR_MISALIGNED_ADDRESS */
        717, /* CUDA_ERROR_INVALID_ADDRESS_SPACE */
        718, /* CUDA_ERROR_INVALID_PC */
        719, /* CUDA_ERROR_LAUNCH_FAILED */
        721, /* CUDA_ERROR_TENSOR_MEMORY_LEAK */
    };
    for (size_t i = 0; i < sizeof sticky / sizeof *sticky; i++)
        if (sticky[i] == result)
            return true;
    return false;
}

static const char *advice(int result)
{
    if (is_sticky(result))
        return "; this or an earlier kernel on the device, not necessarily Ogive's, failed: its "
               "context is lost and every CUDA call of this process will fail until it is started "
               "anew (compute-sanitizer finds the kernel)";
    if (result >= OG_CUDA_CAPTURE_UNSUPPORTED && result <= OG_CUDA_CAPTURE_LAST)
        return "; a stream is being captured into a CUDA graph: make the plan before, and run it "
               "on the stream that captures";
    if (result == OG_CUDA_DEINITIALIZED)
        return "; the CUDA driver is shutting down: the process is exiting";
    return "";
}

ogive_status og_cuda_fail(int result, const char *call, const og_cuda_device *device,
                          ogive_error *error)
{
    ogive_status status = result == OG_CUDA_OUT_OF_MEMORY ? OGIVE_MEMORY : OGIVE_DEVICE;
    char where[40] = "";
    if (device)
        snprintf(where, sizeof where, " on CUDA device %d", (int)device->index);
    OG_FAIL(error, status, -1, "%s%s: %s (%s)%s", call, where, og_cuda_result_name(result),
            result_text(result), advice(result));
}

ogive_status og_cuda_fail_full(const og_cuda_device *device, size_t bytes, ogive_error *error)
{
    size_t left = 0, total = 0;
    (void)driver.call.cuMemGetInfo(&left, &total);
    OG_FAIL(error, OGIVE_MEMORY, -1,
            "CUDA device %d (%s) has no %zu bytes of memory left: %zu of %zu are free",
            (int)device->index, device->name, bytes, left, total);
}

/* ---- devices ---------------------------------------------------------------------- */

enum { MAX_DEVICES = 64 };

/* CUdevice_attribute */
enum {
    ATTRIBUTE_MULTIPROCESSORS = 16,
    ATTRIBUTE_CLOCK = 13,        /* kHz */
    ATTRIBUTE_MEMORY_CLOCK = 36, /* kHz */
    ATTRIBUTE_BUS_WIDTH = 37,    /* bits */
    ATTRIBUTE_L2_BYTES = 38,
    ATTRIBUTE_THREADS_PER_MULTIPROCESSOR = 39,
    ATTRIBUTE_ARCH_MAJOR = 75,
    ATTRIBUTE_ARCH_MINOR = 76,
    ATTRIBUTE_SHARED_PER_MULTIPROCESSOR = 81,
    ATTRIBUTE_SHARED_PER_BLOCK = 97, /* the opt-in limit */
    ATTRIBUTE_MEMORY_POOLS = 115
};

static ogive_status read_limits(og_cuda_device *d, ogive_error *error)
{
    int major, minor, processors, threads, block, shared, l2;
    OG_CUDA_TRY(d, error, cuDeviceGetAttribute, &major, ATTRIBUTE_ARCH_MAJOR, d->handle);
    OG_CUDA_TRY(d, error, cuDeviceGetAttribute, &minor, ATTRIBUTE_ARCH_MINOR, d->handle);
    OG_CUDA_TRY(d, error, cuDeviceGetAttribute, &processors, ATTRIBUTE_MULTIPROCESSORS, d->handle);
    OG_CUDA_TRY(d, error, cuDeviceGetAttribute, &threads, ATTRIBUTE_THREADS_PER_MULTIPROCESSOR,
                d->handle);
    OG_CUDA_TRY(d, error, cuDeviceGetAttribute, &block, ATTRIBUTE_SHARED_PER_BLOCK, d->handle);
    OG_CUDA_TRY(d, error, cuDeviceGetAttribute, &shared, ATTRIBUTE_SHARED_PER_MULTIPROCESSOR,
                d->handle);
    OG_CUDA_TRY(d, error, cuDeviceGetAttribute, &l2, ATTRIBUTE_L2_BYTES, d->handle);
    d->limits = (og_cuda_limits){.arch = major * 10 + minor,
                                 .multiprocessors = processors,
                                 .threads_per_multiprocessor = threads,
                                 .shared_per_block = (size_t)block,
                                 .shared_per_multiprocessor = (size_t)shared,
                                 .l2_bytes = (size_t)l2};
    return OGIVE_OK;
}

/* What older drivers may not know is taken for 0. */
static int attribute_or_zero(const og_cuda_device *d, int attribute)
{
    int value = 0;
    return driver.call.cuDeviceGetAttribute(&value, attribute, d->handle) == 0 ? value : 0;
}

ogive_status og_cuda_describe_device(int32_t index, og_cuda_device *out, ogive_error *error)
{
    memset(out, 0, sizeof *out);
    out->index = index;
    OG_TRY(og_cuda_need_driver(error));
    if (index < 0 || index >= driver.device_count || index >= MAX_DEVICES)
        OG_FAIL(error, OGIVE_DEVICE, -1, "there is no CUDA device %d: this machine has %d",
                (int)index, driver.device_count);
    OG_CUDA_TRY(out, error, cuDeviceGet, &out->handle, index);
    OG_CUDA_TRY(out, error, cuDeviceGetName, out->name, (int)sizeof out->name, out->handle);
    OG_CUDA_TRY(out, error, cuDeviceTotalMem, &out->memory_bytes, out->handle);
    OG_TRY(read_limits(out, error));
    out->limits.clock_hz = 1e3 * attribute_or_zero(out, ATTRIBUTE_CLOCK);
    /* Two transfers a clock. */
    out->memory_bytes_per_second = 2e3 * attribute_or_zero(out, ATTRIBUTE_MEMORY_CLOCK) *
                                   (attribute_or_zero(out, ATTRIBUTE_BUS_WIDTH) / 8.0);
    out->pools = attribute_or_zero(out, ATTRIBUTE_MEMORY_POOLS) != 0 &&
                 driver.call.cuMemPoolCreate && driver.call.cuMemPoolSetAttribute &&
                 driver.call.cuMemAllocFromPoolAsync && driver.call.cuMemFreeAsync;
    return OGIVE_OK;
}

static pthread_mutex_t device_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(og_cuda_device *) devices[MAX_DEVICES];

static void renew_device_lock(void)
{
    pthread_mutex_init(&device_lock, NULL);
}

/* A pool of our own, so that nobody else's settings change: ogive_run() takes its
 * workspace from it. A part of the GPU's memory stays with it between calls: what goes
 * back has to be mapped anew by the next one. Where the pool cannot be made, workspace is
 * allocated and freed at each call. */
static void make_pool(og_cuda_device *d)
{
    enum { KEPT_PART = 64, RELEASE_THRESHOLD = 4 };
    const og_cu_pool_properties properties = {
        .allocation_type = 1, .location_type = 1, .location_id = d->handle};
    uint64_t kept = d->memory_bytes / KEPT_PART;
    if (!d->pools || driver.call.cuMemPoolCreate(&d->pool, &properties) != 0)
        d->pool = NULL;
    else
        (void)driver.call.cuMemPoolSetAttribute(d->pool, RELEASE_THRESHOLD, &kept);
}

static ogive_status open_device(int32_t index, const og_cuda_device **out, ogive_error *error)
{
    og_cuda_device *d = calloc(1, sizeof *d);
    if (!d)
        return og_fail_memory(error, sizeof *d);
    ogive_status status = og_cuda_describe_device(index, d, error);
    if (status == OGIVE_OK) {
        int result = driver.call.cuDevicePrimaryCtxRetain(&d->context, d->handle);
        if (result != 0)
            status = og_cuda_fail(result, "cuDevicePrimaryCtxRetain", d, error);
    }
    if (status != OGIVE_OK) {
        free(d);
        return status;
    }
    int mode;
    if (og_cuda_enter_relaxed(d, &mode, NULL) == OGIVE_OK) {
        make_pool(d);
        (void)og_cuda_leave_relaxed(d, mode, OGIVE_OK, NULL);
    }
    atomic_store_explicit(&devices[index], d, memory_order_release);
    *out = d;
    return OGIVE_OK;
}

ogive_status og_cuda_find_device(int32_t index, const og_cuda_device **out, ogive_error *error)
{
    *out = NULL;
    OG_TRY(og_cuda_need_driver(error));
    if (index >= 0 && index < MAX_DEVICES)
        *out = atomic_load_explicit(&devices[index], memory_order_acquire);
    if (*out)
        return OGIVE_OK;
    og_cuda_on_fork(renew_device_lock);
    pthread_mutex_lock(&device_lock);
    if (index >= 0 && index < MAX_DEVICES)
        *out = atomic_load_explicit(&devices[index], memory_order_acquire);
    ogive_status status = *out ? OGIVE_OK : open_device(index, out, error);
    pthread_mutex_unlock(&device_lock);
    return status;
}

/* ---- contexts --------------------------------------------------------------------- */

ogive_status og_cuda_enter(const og_cuda_device *device, ogive_error *error)
{
    OG_TRY(og_cuda_need_driver(error));
    OG_CUDA_TRY(device, error, cuCtxPushCurrent, device->context);
    return OGIVE_OK;
}

ogive_status og_cuda_leave(const og_cuda_device *device, ogive_status status, ogive_error *error)
{
    og_cu_context *popped;
    int result = driver.call.cuCtxPopCurrent(&popped);
    if (status == OGIVE_OK && result != 0)
        return og_cuda_fail(result, "cuCtxPopCurrent", device, error);
    return status;
}

ogive_status og_cuda_enter_relaxed(const og_cuda_device *device, int *mode, ogive_error *error)
{
    *mode = 2; /* CU_STREAM_CAPTURE_MODE_RELAXED */
    OG_TRY(og_cuda_enter(device, error));
    int result = driver.call.cuThreadExchangeStreamCaptureMode(mode);
    if (result == 0)
        return OGIVE_OK;
    ogive_status status = og_cuda_fail(result, "cuThreadExchangeStreamCaptureMode", device, error);
    return og_cuda_leave(device, status, error);
}

ogive_status og_cuda_leave_relaxed(const og_cuda_device *device, int mode, ogive_status status,
                                   ogive_error *error)
{
    int result = driver.call.cuThreadExchangeStreamCaptureMode(&mode);
    if (status == OGIVE_OK && result != 0)
        status = og_cuda_fail(result, "cuThreadExchangeStreamCaptureMode", device, error);
    return og_cuda_leave(device, status, error);
}

/* ---- architectures ---------------------------------------------------------------- */

int32_t og_cuda_read_arch(const char *text)
{
    if (!strncmp(text, "sm_", 3))
        text += 3;
    size_t digits = strspn(text, "0123456789");
    if (digits < 2 || digits > 3 || (text[digits] && strcmp(text + digits, "a") != 0))
        return 0;
    return (int32_t)strtol(text, NULL, 10);
}

const char *og_cuda_arch_text(int32_t arch, char text[OG_CUDA_ARCH_TEXT])
{
    snprintf(text, OG_CUDA_ARCH_TEXT, "%d%s", (int)arch, arch >= 90 ? "a" : "");
    return text;
}

void og_cuda_assume_limits(int32_t arch, og_cuda_limits *out, const char **like)
{
    enum { KIB = 1024, MIB = 1024 * 1024 };
    /* The largest common GPU of each architecture; newer ones are taken for the last. */
    static const struct {
        const char *name;
        og_cuda_limits limits;
    } known[] = {
        {"a T4", {75, 40, 1024, 64 * KIB, 64 * KIB, 4 * MIB, 1.59e9}},
        {"an A100", {80, 108, 2048, 163 * KIB, 164 * KIB, 40 * MIB, 1.41e9}},
        {"an A40", {86, 84, 1536, 99 * KIB, 100 * KIB, 6 * MIB, 1.74e9}},
        {"an L40", {89, 142, 1536, 99 * KIB, 100 * KIB, 96 * MIB, 2.49e9}},
        {"an H100", {90, 132, 2048, 227 * KIB, 228 * KIB, 50 * MIB, 1.98e9}},
        {"a B200", {100, 148, 2048, 227 * KIB, 228 * KIB, 126 * MIB, 1.965e9}},
        {"an RTX 5090", {120, 170, 1536, 99 * KIB, 100 * KIB, 96 * MIB, 2.407e9}},
    };
    size_t best = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].limits.arch <= arch)
            best = i;
    *out = known[best].limits;
    out->arch = arch;
    *like = known[best].name;
}
