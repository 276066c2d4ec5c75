/* SPDX-License-Identifier: MIT
 *
 * fake_driver.c - a library that stands in for libcuda (OGIVE_LIBCUDA=) where there is
 * no GPU. It exports exactly what cuda_driver.h lists, and behaves as the driver does
 * where Ogive could go wrong: no call without a current context, no launch beyond a
 * device's limits, of another device's module or on its stream, copies inside of one
 * block only. Streams run at once; one is any number that is not 0, device * 256 and up.
 * Devices look like an H200 with 8 GiB.
 *
 *     OGIVE_SHIM_DEVICES          how many (1)
 *     OGIVE_SHIM_ARCH             compute capability (90)
 *     OGIVE_SHIM_MULTIPROCESSORS  (132)
 *     OGIVE_SHIM_L2               bytes of the L2 cache
 *     OGIVE_SHIM_MEMORY           bytes, over all devices
 *     OGIVE_SHIM_CAPTURING        1: every stream is being captured
 *     OGIVE_SHIM_LOST             contexts are lost, by this CUresult
 *     OGIVE_SHIM_FAIL             see fake_fault.h; by names without _v2
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "cuda/host/cuda_driver.h"
#include "fake_cuda.h"
#include "fake_fault.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Each function under the name that the driver exports it by. */
#define DECLARE(name, symbol, arguments)                                                           \
    int name arguments __asm__(symbol) __attribute__((visibility("default")));
OG_CUDA_FUNCTIONS(DECLARE)
OG_CUDA_OPTIONAL_FUNCTIONS(DECLARE)
#undef DECLARE

enum { MOST_DEVICES = 64, DEFAULT_SHARED = 48 * 1024 };

struct og_cu_context {
    int device;
};
struct og_cu_pool {
    int device;
};

static struct og_cu_context contexts[MOST_DEVICES];
static bool started;
static _Thread_local struct {
    og_cu_context *stack[16];
    int depth, capture_mode;
} current;

static int setting(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text && *text ? atoi(text) : otherwise;
}

static int count_devices(void)
{
    int count = setting("OGIVE_SHIM_DEVICES", 1);
    return count < 0 ? 0 : count > MOST_DEVICES ? MOST_DEVICES : count;
}

/* For calls that need a context. */
#define ENTER(name, code)                                                                          \
    do {                                                                                           \
        if (!started)                                                                              \
            return CUDA_NOT_INITIALIZED;                                                           \
        FAKE_FAULT(name, code);                                                                    \
        if (!current.depth)                                                                        \
            return CUDA_INVALID_CONTEXT;                                                           \
        if (setting("OGIVE_SHIM_LOST", 0))                                                         \
            return setting("OGIVE_SHIM_LOST", 0);                                                  \
    } while (0)

/* For those that are not allowed while a stream is captured, but in relaxed mode. */
#define ENTER_UNCAPTURED(name, code)                                                               \
    do {                                                                                           \
        ENTER(name, code);                                                                         \
        if (setting("OGIVE_SHIM_CAPTURING", 0) && current.capture_mode != 2)                       \
            return CUDA_CAPTURE_UNSUPPORTED;                                                       \
    } while (0)

static int current_device(void)
{
    return current.stack[current.depth - 1]->device;
}

/* ---- errors and devices ------------------------------------------------------------- */

static const struct {
    int result;
    const char *name, *text;
} results[] = {
    {CUDA_OK, "CUDA_SUCCESS", "no error"},
    {CUDA_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {CUDA_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CUDA_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {CUDA_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {CUDA_LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
     "too many resources requested for launch"},
    {CUDA_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
};

static int find_result(int result, const char **name, const char **text)
{
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        if (results[i].result == result) {
            *name = results[i].name;
            *text = results[i].text;
            return CUDA_OK;
        }
    *name = *text = NULL;
    return CUDA_INVALID_VALUE;
}

int cuGetErrorName(int result, const char **name)
{
    const char *text;
    return find_result(result, name, &text);
}

int cuGetErrorString(int result, const char **text)
{
    const char *name;
    return find_result(result, &name, text);
}

int cuInit(unsigned flags)
{
    FAKE_FAULT("cuInit", CUDA_NO_DEVICE);
    if (flags)
        return CUDA_INVALID_VALUE;
    if (!count_devices())
        return CUDA_NO_DEVICE;
    for (int i = 0; i < MOST_DEVICES; i++)
        contexts[i].device = i;
    started = true;
    return CUDA_OK;
}

int cuDriverGetVersion(int *version)
{
    FAKE_FAULT("cuDriverGetVersion", CUDA_INVALID_VALUE);
    *version = 13000;
    return CUDA_OK;
}

int cuDeviceGetCount(int *count)
{
    FAKE_FAULT("cuDeviceGetCount", CUDA_NOT_INITIALIZED);
    *count = count_devices();
    return started ? CUDA_OK : CUDA_NOT_INITIALIZED;
}

int cuDeviceGet(int *device, int ordinal)
{
    FAKE_FAULT("cuDeviceGet", CUDA_INVALID_DEVICE);
    *device = ordinal;
    return !started                                    ? CUDA_NOT_INITIALIZED
           : ordinal < 0 || ordinal >= count_devices() ? CUDA_INVALID_DEVICE
                                                       : CUDA_OK;
}

int cuDeviceGetName(char *name, int capacity, int device)
{
    FAKE_FAULT("cuDeviceGetName", CUDA_INVALID_DEVICE);
    snprintf(name, (size_t)capacity, "shim of an H200 (%d)", device);
    return CUDA_OK;
}

int cuDeviceTotalMem(size_t *bytes, int device)
{
    (void)device;
    FAKE_FAULT("cuDeviceTotalMem", CUDA_INVALID_DEVICE);
    *bytes = fake_memory_total();
    return CUDA_OK;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    int arch = setting("OGIVE_SHIM_ARCH", 90);
    const int attributes[][2] = {
        {1, 1024}, /* threads of a block */
        {8, DEFAULT_SHARED},
        {10, 32}, /* lanes of a warp */
        {16, setting("OGIVE_SHIM_MULTIPROCESSORS", 132)},
        {13, 1980000}, /* clock, kHz */
        {36, 3201000}, /* memory clock, kHz */
        {37, 6144},    /* bus width, bits */
        {38, setting("OGIVE_SHIM_L2", 60 << 20)},
        {39, 2048}, /* threads of a multiprocessor */
        {41, 1},    /* unified addressing */
        {75, arch / 10},
        {76, arch % 10},
        {81, 228 * 1024}, /* shared memory of a multiprocessor */
        {88, 0},          /* pageable memory */
        {97, SHIM_SHARED_BYTES},
        {115, 1}, /* memory pools */
    };
    (void)device;
    FAKE_FAULT("cuDeviceGetAttribute", CUDA_INVALID_DEVICE);
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        if (attributes[i][0] == attribute) {
            *value = attributes[i][1];
            return CUDA_OK;
        }
    return CUDA_INVALID_VALUE;
}

/* ---- contexts and streams -------------------------------------------------------------- */

int cuDevicePrimaryCtxRetain(og_cu_context **context, int device)
{
    FAKE_FAULT("cuDevicePrimaryCtxRetain", CUDA_OUT_OF_MEMORY);
    if (!started || device < 0 || device >= count_devices())
        return started ? CUDA_INVALID_DEVICE : CUDA_NOT_INITIALIZED;
    *context = &contexts[device];
    return CUDA_OK;
}

int cuCtxPushCurrent(og_cu_context *context)
{
    FAKE_FAULT("cuCtxPushCurrent", CUDA_INVALID_CONTEXT);
    if (!context || current.depth == (int)(sizeof current.stack / sizeof *current.stack))
        return CUDA_INVALID_CONTEXT;
    current.stack[current.depth++] = context;
    return CUDA_OK;
}

int cuCtxPopCurrent(og_cu_context **context)
{
    FAKE_FAULT("cuCtxPopCurrent", CUDA_INVALID_CONTEXT);
    if (!current.depth) /* a lost one can be left */
        return CUDA_INVALID_CONTEXT;
    og_cu_context *popped = current.stack[--current.depth];
    if (context)
        *context = popped;
    return CUDA_OK;
}

int cuCtxSynchronize(void)
{
    ENTER_UNCAPTURED("cuCtxSynchronize", CUDA_LAUNCH_FAILED);
    return CUDA_OK;
}

int cuStreamSynchronize(og_cu_stream *stream)
{
    (void)stream;
    ENTER("cuStreamSynchronize", CUDA_LAUNCH_FAILED);
    return CUDA_OK;
}

int cuStreamIsCapturing(og_cu_stream *stream, int *status)
{
    (void)stream;
    ENTER("cuStreamIsCapturing", CUDA_INVALID_HANDLE);
    *status = setting("OGIVE_SHIM_CAPTURING", 0) != 0;
    return CUDA_OK;
}

int cuThreadExchangeStreamCaptureMode(int *mode)
{
    FAKE_FAULT("cuThreadExchangeStreamCaptureMode", CUDA_INVALID_VALUE);
    if (*mode < 0 || *mode > 2)
        return CUDA_INVALID_VALUE;
    int before = current.capture_mode;
    current.capture_mode = *mode;
    *mode = before;
    return CUDA_OK;
}

/* ---- memory ---------------------------------------------------------------------------- */

static int allocate(og_cu_address *address, size_t bytes, int device)
{
    if (!bytes)
        return CUDA_INVALID_VALUE;
    void *data = fake_allocate(bytes, device);
    *address = (og_cu_address)(uintptr_t)data;
    return data ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}

int cuMemAlloc(og_cu_address *address, size_t bytes)
{
    ENTER_UNCAPTURED("cuMemAlloc", CUDA_OUT_OF_MEMORY);
    return allocate(address, bytes, current_device());
}

int cuMemFree(og_cu_address address)
{
    ENTER_UNCAPTURED("cuMemFree", CUDA_INVALID_VALUE);
    if (!address)
        return CUDA_OK;
    return fake_free((void *)(uintptr_t)address) ? CUDA_OK : CUDA_INVALID_VALUE;
}

int cuMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    ENTER("cuMemGetInfo", CUDA_INVALID_CONTEXT);
    *total_bytes = fake_memory_total();
    *free_bytes = *total_bytes - fake_memory_used();
    return CUDA_OK;
}

int cuMemcpy(og_cu_address to, og_cu_address from, size_t bytes)
{
    void *target = (void *)(uintptr_t)to;
    const void *source = (const void *)(uintptr_t)from;
    ENTER_UNCAPTURED("cuMemcpy", CUDA_ILLEGAL_ADDRESS);
    if ((fake_is_device(target) && !fake_is_inside(target, bytes)) ||
        (fake_is_device(source) && !fake_is_inside(source, bytes)))
        return CUDA_INVALID_VALUE;
    memmove(target, source, bytes);
    return CUDA_OK;
}

int cuMemPoolCreate(og_cu_pool **pool, const og_cu_pool_properties *properties)
{
    static og_cu_pool pools[MOST_DEVICES];
    ENTER_UNCAPTURED("cuMemPoolCreate", CUDA_OUT_OF_MEMORY);
    if (properties->allocation_type != 1 || properties->location_type != 1 ||
        properties->location_id < 0 || properties->location_id >= count_devices())
        return CUDA_INVALID_VALUE;
    pools[properties->location_id].device = properties->location_id;
    *pool = &pools[properties->location_id];
    return CUDA_OK;
}

int cuMemPoolSetAttribute(og_cu_pool *pool, int attribute, void *value)
{
    (void)pool, (void)value;
    ENTER("cuMemPoolSetAttribute", CUDA_INVALID_VALUE);
    return attribute == 4 ? CUDA_OK : CUDA_INVALID_VALUE; /* the release threshold */
}

int cuMemAllocFromPoolAsync(og_cu_address *address, size_t bytes, og_cu_pool *pool,
                            og_cu_stream *stream)
{
    (void)stream;
    ENTER("cuMemAllocFromPoolAsync", CUDA_OUT_OF_MEMORY);
    return allocate(address, bytes, pool->device);
}

int cuMemFreeAsync(og_cu_address address, og_cu_stream *stream)
{
    (void)stream;
    ENTER("cuMemFreeAsync", CUDA_INVALID_VALUE);
    return fake_free((void *)(uintptr_t)address) ? CUDA_OK : CUDA_INVALID_VALUE;
}

/* Of a pointer that CUDA does not know, every attribute is 0. */
int cuPointerGetAttributes(unsigned count, int *attributes, void **values, og_cu_address address)
{
    enum { CONTEXT = 1, MEMORY_TYPE, DEVICE_POINTER, HOST_POINTER, IS_MANAGED = 8, DEVICE_ORDINAL };
    enum { RANGE_START = 11, RANGE_BYTES = 12, DEVICE_MEMORY = 2 };
    bool inside = false;
    ENTER("cuPointerGetAttributes", CUDA_INVALID_VALUE);
    const fake_block *b = fake_find((void *)(uintptr_t)address, 1, &inside);
    for (unsigned i = 0; i < count; i++) {
        if (attributes[i] == MEMORY_TYPE)
            *(unsigned *)values[i] = inside ? DEVICE_MEMORY : 0;
        else if (attributes[i] == DEVICE_ORDINAL)
            *(int *)values[i] = inside ? b->device : -2;
        else if (attributes[i] == IS_MANAGED)
            *(unsigned *)values[i] = 0;
        else if (attributes[i] == CONTEXT)
            *(void **)values[i] = inside ? &contexts[b->device] : NULL;
        else if (attributes[i] == DEVICE_POINTER)
            *(og_cu_address *)values[i] = inside ? address : 0;
        else if (attributes[i] == HOST_POINTER)
            *(void **)values[i] = NULL;
        else if (attributes[i] == RANGE_START)
            *(og_cu_address *)values[i] = inside ? (og_cu_address)(uintptr_t)b->data : 0;
        else if (attributes[i] == RANGE_BYTES)
            *(size_t *)values[i] = inside ? b->bytes : 0;
        else
            return CUDA_INVALID_VALUE;
    }
    return CUDA_OK;
}

/* ---- modules ---------------------------------------------------------------------------- */

struct og_cu_module {
    fake_module module;
    fake_function *functions;
    int device;
};

/* 400 of a function of another device's module. */
static int check_function(const fake_function *f)
{
    return ((const og_cu_module *)f->module)->device == current_device() ? CUDA_OK
                                                                         : CUDA_INVALID_HANDLE;
}

/* The bytes of the shared object that fake_nvrtc.c made: it ends with its sections. */
static size_t measure_image(const void *image)
{
    Elf64_Ehdr header;
    memcpy(&header, image, EI_NIDENT);
    if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64)
        return 0;
    memcpy(&header, image, sizeof header);
    return header.e_shoff + (size_t)header.e_shnum * header.e_shentsize;
}

static void *open_image(const void *image, size_t bytes)
{
    char path[64];
    int file = memfd_create("kernel", MFD_CLOEXEC);
    if (file < 0)
        return NULL;
    void *library = NULL;
    if (write(file, image, bytes) == (ssize_t)bytes) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    /* dlopen() would take another image under the same path for this one, so the number
     * stays taken while the module is loaded. */
    if (!library)
        close(file);
    return library;
}

static int measure_object(struct dl_phdr_info *info, size_t size, void *data)
{
    fake_module *m = data;
    const struct link_map *map = m->library;
    (void)size;
    if (info->dlpi_addr != map->l_addr)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        char *from = (char *)info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        char *to = from + info->dlpi_phdr[i].p_memsz;
        if (info->dlpi_phdr[i].p_type != PT_LOAD)
            continue;
        m->image_from = !m->image_from || from < m->image_from ? from : m->image_from;
        m->image_to = to > m->image_to ? to : m->image_to;
    }
    return 1;
}

static int load_idle(og_cu_module **module, const char *source)
{
    og_cu_module *m = calloc(1, sizeof *m);
    if (m) {
        m->device = current_device();
        m->module.source = strdup(source);
    }
    *module = m;
    return m ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}

int cuModuleLoadDataEx(og_cu_module **module, const void *image, unsigned option_count,
                       int *options, void **option_values)
{
    (void)option_count, (void)options, (void)option_values;
    ENTER_UNCAPTURED("cuModuleLoadDataEx", CUDA_INVALID_IMAGE);
    if (memcmp(image, SHIM_IDLE, strlen(SHIM_IDLE)) == 0)
        return load_idle(module, (const char *)image + strlen(SHIM_IDLE));
    size_t bytes = measure_image(image);
    void *library = bytes ? open_image(image, bytes) : NULL;
    struct shim_link **link = library ? dlsym(library, "og_shim_link") : NULL;
    const struct shim_shared *shared = library ? dlsym(library, "og_shim_shared") : NULL;
    og_cu_module *m = link && shared ? calloc(1, sizeof *m) : NULL;
    if (!m) {
        if (library)
            dlclose(library);
        return CUDA_INVALID_IMAGE;
    }
    m->device = current_device();
    m->module.library = library;
    m->module.link = link;
    m->module.shared = *shared;
    dl_iterate_phdr(measure_object, &m->module);
    *module = m;
    return CUDA_OK;
}

int cuModuleUnload(og_cu_module *module)
{
    ENTER("cuModuleUnload", CUDA_INVALID_HANDLE);
    for (fake_function *f = module->functions, *next; f; f = next) {
        next = f->next;
        free(f);
    }
    int file = -1;
    const struct link_map *map = module->module.library;
    if (map) {
        sscanf(map->l_name, "/proc/self/fd/%d", &file);
        dlclose(module->module.library);
    }
    if (file >= 0)
        close(file);
    free(module->module.source);
    free(module);
    return CUDA_OK;
}

/* Finds the entry, bounds and cluster of the kernel that f is named after; false: there is none. */
static bool find_kernel(const fake_module *m, fake_function *f)
{
    char symbol[200];
    if (!m->library) {
        f->cluster = 1;
        return strstr(m->source, f->name) != NULL;
    }
    snprintf(symbol, sizeof symbol, "og_entry_%s", f->name);
    void *entry = dlsym(m->library, symbol);
    snprintf(symbol, sizeof symbol, "og_bounds_%s", f->name);
    const unsigned *bounds = dlsym(m->library, symbol);
    snprintf(symbol, sizeof symbol, "og_cluster_%s", f->name);
    const unsigned *cluster = dlsym(m->library, symbol);
    if (!entry || !bounds || !cluster)
        return false;
    *(void **)&f->entry = entry;
    f->bounds = *bounds;
    f->cluster = *cluster;
    return true;
}

static fake_function *make_function(og_cu_module *module, const char *name)
{
    fake_function *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    snprintf(f->name, sizeof f->name, "%s", name);
    if (!find_kernel(&module->module, f)) {
        free(f);
        return NULL;
    }
    f->module = &module->module;
    f->shared_limit = DEFAULT_SHARED;
    f->next = module->functions;
    module->functions = f;
    return f;
}

/* A module has one function of a name, however often it is asked for. */
int cuModuleGetFunction(og_cu_function **function, og_cu_module *module, const char *name)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    ENTER("cuModuleGetFunction", CUDA_NOT_FOUND);
    if (module->device != current_device())
        return CUDA_INVALID_HANDLE;
    pthread_mutex_lock(&lock);
    fake_function *f = module->functions;
    while (f && strcmp(f->name, name) != 0)
        f = f->next;
    f = f ? f : make_function(module, name);
    pthread_mutex_unlock(&lock);
    *function = (og_cu_function *)f;
    return f ? CUDA_OK : CUDA_NOT_FOUND;
}

/* Is this a dim of a map that the driver takes? The limits are those in its manual. */
static bool is_map_dim(uint64_t extent, uint64_t pitch, uint32_t box, uint32_t step)
{
    return extent > 0 && extent >> 32 == 0 && pitch > 0 && pitch % 16 == 0 && pitch >> 40 == 0 &&
           box > 0 && box <= 256 && step > 0 && step <= 8;
}

/* Of three or five dims without interleaving. */
int cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *address,
                           const uint64_t *extents, const uint64_t *pitches, const uint32_t *box,
                           const uint32_t *steps, int interleave, int swizzle, int promotion,
                           int fill)
{
    const uint32_t bytes = type == 6 ? 2 : 4;
    ENTER("cuTensorMapEncodeTiled", CUDA_INVALID_VALUE);
    bool is_good = (rank == 3 || rank == 5) && (type == 6 || type == 7) &&
                   (uintptr_t)map % 64 == 0 && (uintptr_t)address % 16 == 0;
    for (uint32_t d = 0; is_good && d < rank; d++)
        is_good = is_map_dim(extents[d], d ? pitches[d - 1] : 16, box[d], steps[d]);
    if (!is_good || pitches[0] < extents[0] * bytes || box[0] * bytes % 16 ||
        (swizzle && box[0] * bytes > 16u << swizzle) || steps[0] != 1 || interleave ||
        promotion < 0 || promotion > 3 || fill)
        return CUDA_INVALID_VALUE;
    struct shim_map made = {.magic = SHIM_MAP_MAGIC,
                            .bytes = bytes,
                            .address = (uintptr_t)address,
                            .swizzle = (unsigned)swizzle};
    for (uint32_t d = 0; d < rank; d++) {
        made.extents[d] = extents[d];
        made.box[d] = box[d];
        made.steps[d] = (unsigned char)steps[d];
        if (d)
            made.pitches[d - 1] = pitches[d - 1];
    }
    memset(map, 0x5a, OG_CUDA_MAP_BYTES);
    memcpy(map, &made, sizeof made);
    return CUDA_OK;
}

int cuFuncLoad(og_cu_function *function)
{
    (void)function;
    ENTER_UNCAPTURED("cuFuncLoad", CUDA_INVALID_IMAGE);
    return CUDA_OK;
}

static size_t static_shared(const fake_function *f)
{
    return (size_t)(f->module->shared.to - f->module->shared.from);
}

int cuFuncGetAttribute(int *value, int attribute, og_cu_function *function)
{
    const fake_function *f = (const fake_function *)function;
    ENTER("cuFuncGetAttribute", CUDA_INVALID_VALUE);
    switch (attribute) {
    case 0: /* most threads of a block */
        *value = f->bounds ? (int)f->bounds : 1024;
        return CUDA_OK;
    case 1: /* static shared memory; of the whole module, here */
        *value = (int)static_shared(f);
        return CUDA_OK;
    case 3: /* local memory */
        *value = 0;
        return CUDA_OK;
    case 4: /* registers */
        *value = 32;
        return CUDA_OK;
    case 8: /* dynamic shared memory, at most */
        *value = (int)f->shared_limit;
        return CUDA_OK;
    default:
        return CUDA_INVALID_VALUE;
    }
}

int cuFuncSetAttribute(og_cu_function *function, int attribute, int value)
{
    fake_function *f = (fake_function *)function;
    ENTER("cuFuncSetAttribute", CUDA_INVALID_VALUE);
    if (attribute == 9) /* the share of shared memory: a hint */
        return CUDA_OK;
    if (attribute != 8 || value < 0 || (size_t)value + static_shared(f) > SHIM_SHARED_BYTES)
        return CUDA_INVALID_VALUE;
    f->shared_limit = (size_t)value;
    return CUDA_OK;
}

static int start_launch(og_cu_function *function, const fake_launch_shape *shape,
                        const og_cu_stream *stream)
{
    fake_function *f = (fake_function *)function;
    const struct shim_index grid = shape->grid, block = shape->block;
    unsigned most = f->bounds ? f->bounds : 1024;
    ENTER("cuLaunchKernel", CUDA_LAUNCH_FAILED);
    if (!shape->parameters || !grid.x || !grid.y || !grid.z || !block.x || !block.y || !block.z ||
        grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535 || block.x > 1024 ||
        block.y > 1024 || block.z > 64 || (uint64_t)block.x * block.y * block.z > 1024 ||
        shape->shared_bytes > f->shared_limit || grid.x % f->cluster ||
        (shape->overlaps && setting("OGIVE_SHIM_ARCH", 90) < 90))
        return CUDA_INVALID_VALUE;
    if (block.x * block.y * block.z > most)
        return CUDA_LAUNCH_OUT_OF_RESOURCES;
    if (check_function(f) || (stream && (int)((uintptr_t)stream / 256) != current_device()))
        return CUDA_INVALID_HANDLE;
    return f->entry ? fake_launch(f, shape) : CUDA_OK;
}

int cuLaunchKernel(og_cu_function *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   og_cu_stream *stream, void **parameters, void **extra)
{
    void *buffer = NULL;
    if (!parameters && extra && extra[0] == (void *)1) /* CU_LAUNCH_PARAM_BUFFER_POINTER */
        parameters = &buffer, buffer = extra[1];
    const fake_launch_shape shape = {.grid = {grid_x, grid_y, grid_z},
                                     .block = {block_x, block_y, block_z},
                                     .shared_bytes = shared_bytes,
                                     .parameters = parameters};
    return start_launch(function, &shape, stream);
}

int cuLaunchKernelEx(const og_cu_launch_config *config, og_cu_function *function, void **parameters,
                     void **extra)
{
    enum { SERIALIZATION = 6 }; /* CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION */
    fake_launch_shape shape = {.grid = {config->grid[0], config->grid[1], config->grid[2]},
                               .block = {config->block[0], config->block[1], config->block[2]},
                               .shared_bytes = config->shared_bytes,
                               .parameters = extra ? NULL : parameters};
    for (unsigned i = 0; i < config->attribute_count; i++) {
        if (config->attributes[i].id != SERIALIZATION)
            return CUDA_INVALID_VALUE;
        shape.overlaps = config->attributes[i].value.allowed != 0;
    }
    return start_launch(function, &shape, config->stream);
}

/* None is forgotten: this would not link. */
const void *const fake_exports[] __attribute__((visibility("hidden"), used)) = {
#define REFER(name, symbol, arguments) (const void *)(uintptr_t)name,
    OG_CUDA_FUNCTIONS(REFER) OG_CUDA_OPTIONAL_FUNCTIONS(REFER)
#undef REFER
};
