/* SPDX-License-Identifier: MIT
 *
 * cuda_driver.h - the CUDA driver, found at run time, and its devices. No CUDA header
 * and no CUDA library is needed to build or to start; where the driver is missing,
 * og_cuda_driver() says why and everything else fails with that reason.
 *
 * Ogive works in a device's primary context, the one that PyTorch and the CUDA runtime
 * use, and leaves the caller's current context as it was: og_cuda_enter() pushes,
 * og_cuda_leave() pops. A primary context is retained at its first use and never
 * released: at exit the driver may be gone before we are.
 */
#ifndef OG_CUDA_DRIVER_H
#define OG_CUDA_DRIVER_H

#include "cuda/emit/cuda_work.h"

typedef struct og_cu_context og_cu_context;
typedef struct og_cu_module og_cu_module;
typedef struct og_cu_function og_cu_function;
typedef struct og_cu_stream og_cu_stream;
typedef struct og_cu_pool og_cu_pool;
typedef uint64_t og_cu_address;

/* CUmemPoolProps: memory of one device that stays in this process. */
typedef struct {
    int allocation_type; /* 1: pinned, the only one */
    int handle_types;    /* 0: not shared */
    int location_type;   /* 1: a device */
    int location_id;
    void *security;
    size_t max_bytes;
    unsigned short usage;
    unsigned char reserved[54];
} og_cu_pool_properties;

typedef struct { /* CUlaunchAttribute */
    int id;
    _Alignas(8) union {
        int allowed;
        char bytes[64];
    } value;
} og_cu_launch_attribute;

typedef struct { /* CUlaunchConfig */
    unsigned grid[3], block[3], shared_bytes;
    og_cu_stream *stream;
    og_cu_launch_attribute *attributes;
    unsigned attribute_count;
} og_cu_launch_config;

/* F(name, symbol, arguments): symbols are those that cuda.h of CUDA 12 and 13 means by
 * the name. All return a CUresult. */
#define OG_CUDA_FUNCTIONS(F)                                                                       \
    F(cuInit, "cuInit", (unsigned flags))                                                          \
    F(cuDriverGetVersion, "cuDriverGetVersion", (int *version))                                    \
    F(cuGetErrorName, "cuGetErrorName", (int result, const char **name))                           \
    F(cuGetErrorString, "cuGetErrorString", (int result, const char **text))                       \
    F(cuDeviceGetCount, "cuDeviceGetCount", (int *count))                                          \
    F(cuDeviceGet, "cuDeviceGet", (int *device, int ordinal))                                      \
    F(cuDeviceGetName, "cuDeviceGetName", (char *name, int capacity, int device))                  \
    F(cuDeviceGetAttribute, "cuDeviceGetAttribute", (int *value, int attribute, int device))       \
    F(cuDeviceTotalMem, "cuDeviceTotalMem_v2", (size_t * bytes, int device))                       \
    F(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain",                                        \
      (og_cu_context * *context, int device))                                                      \
    F(cuCtxPushCurrent, "cuCtxPushCurrent_v2", (og_cu_context * context))                          \
    F(cuCtxPopCurrent, "cuCtxPopCurrent_v2", (og_cu_context * *context))                           \
    F(cuCtxSynchronize, "cuCtxSynchronize", (void))                                                \
    F(cuStreamSynchronize, "cuStreamSynchronize", (og_cu_stream * stream))                         \
    F(cuStreamIsCapturing, "cuStreamIsCapturing", (og_cu_stream * stream, int *status))            \
    F(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", (int *mode))         \
    F(cuModuleLoadDataEx, "cuModuleLoadDataEx",                                                    \
      (og_cu_module * *module, const void *image, unsigned option_count, int *options,             \
       void **option_values))                                                                      \
    F(cuModuleUnload, "cuModuleUnload", (og_cu_module * module))                                   \
    F(cuModuleGetFunction, "cuModuleGetFunction",                                                  \
      (og_cu_function * *function, og_cu_module * module, const char *name))                       \
    F(cuFuncGetAttribute, "cuFuncGetAttribute",                                                    \
      (int *value, int attribute, og_cu_function *function))                                       \
    F(cuFuncSetAttribute, "cuFuncSetAttribute",                                                    \
      (og_cu_function * function, int attribute, int value))                                       \
    F(cuLaunchKernel, "cuLaunchKernel",                                                            \
      (og_cu_function * function, unsigned grid_x, unsigned grid_y, unsigned grid_z,               \
       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,                \
       og_cu_stream *stream, void **parameters, void **extra))                                     \
    F(cuMemAlloc, "cuMemAlloc_v2", (og_cu_address * address, size_t bytes))                        \
    F(cuMemFree, "cuMemFree_v2", (og_cu_address address))                                          \
    F(cuMemGetInfo, "cuMemGetInfo_v2", (size_t * free_bytes, size_t * total_bytes))                \
    F(cuMemcpy, "cuMemcpy", (og_cu_address to, og_cu_address from, size_t bytes))                  \
    F(cuPointerGetAttributes, "cuPointerGetAttributes",                                            \
      (unsigned count, int *attributes, void **values, og_cu_address address))

/* May be missing: cuFuncLoad came with CUDA 12.4, memory pools with 11.2, tensor maps
 * with 12.0, cuLaunchKernelEx with 11.8. */
#define OG_CUDA_OPTIONAL_FUNCTIONS(F)                                                              \
    F(cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled",                                            \
      (void *map, int type, uint32_t rank, void *address, const uint64_t *extents,                 \
       const uint64_t *pitches, const uint32_t *box, const uint32_t *steps, int interleave,        \
       int swizzle, int promotion, int fill))                                                      \
    F(cuLaunchKernelEx, "cuLaunchKernelEx",                                                        \
      (const og_cu_launch_config *config, og_cu_function *function, void **parameters,             \
       void **extra))                                                                              \
    F(cuFuncLoad, "cuFuncLoad", (og_cu_function * function))                                       \
    F(cuMemPoolCreate, "cuMemPoolCreate",                                                          \
      (og_cu_pool * *pool, const og_cu_pool_properties *properties))                               \
    F(cuMemPoolSetAttribute, "cuMemPoolSetAttribute",                                              \
      (og_cu_pool * pool, int attribute, void *value))                                             \
    F(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync",                                          \
      (og_cu_address * address, size_t bytes, og_cu_pool * pool, og_cu_stream * stream))           \
    F(cuMemFreeAsync, "cuMemFreeAsync", (og_cu_address address, og_cu_stream * stream))

typedef struct {
#define OG_CUDA_MEMBER(name, symbol, arguments) int(*name) arguments;
    OG_CUDA_FUNCTIONS(OG_CUDA_MEMBER)
    OG_CUDA_OPTIONAL_FUNCTIONS(OG_CUDA_MEMBER)
#undef OG_CUDA_MEMBER
} og_cuda_functions;

/* CUresults that are told apart. */
enum {
    OG_CUDA_INVALID_VALUE = 1,
    OG_CUDA_OUT_OF_MEMORY = 2,
    OG_CUDA_NOT_INITIALIZED = 3,
    OG_CUDA_DEINITIALIZED = 4,
    OG_CUDA_NO_DEVICE = 100,
    OG_CUDA_INVALID_IMAGE = 200,
    OG_CUDA_NO_BINARY = 209,
    OG_CUDA_INVALID_PTX = 218,
    OG_CUDA_UNSUPPORTED_PTX = 222,
    OG_CUDA_INVALID_HANDLE = 400,
    OG_CUDA_CAPTURE_UNSUPPORTED = 900,
    OG_CUDA_CAPTURE_LAST = 908
};

typedef struct {
    og_cuda_functions call;
    char problem[512]; /* "" if the driver can be used */
    char path[512];    /* of the library; "" if there is none */
    int version;       /* 12040: CUDA 12.4; 0: not known */
    int device_count;
} og_cuda_driver_state;

/* Loads the driver at the first call: OGIVE_LIBCUDA, else libcuda.so.1. */
const og_cuda_driver_state *og_cuda_driver(void);
/* OGIVE_DEVICE with the driver's problem, if it has one; also in a forked child, where
 * the parent's CUDA does not work. */
ogive_status og_cuda_need_driver(ogive_error *error);
/* Did this process begin as a fork of one that had started the driver? */
bool og_cuda_is_forked(void);

/* Calls register at most once each a function that makes a forked child's locks anew. */
void og_cuda_on_fork(void (*child)(void));

typedef struct {
    int32_t index;
    int handle; /* CUdevice */
    char name[128];
    og_cuda_limits limits;
    size_t memory_bytes;
    double memory_bytes_per_second; /* bus width times clock; 0: not known */
    bool pools;                     /* memory pools work */
    og_cu_context *context;         /* NULL in what og_cuda_describe_device() fills */
    og_cu_pool *pool;               /* NULL: none */
} og_cuda_device;

/* What the driver says of device index; makes no context. */
ogive_status og_cuda_describe_device(int32_t index, og_cuda_device *out, ogive_error *error);
/* Device index with its primary context, for the rest of the process. */
ogive_status og_cuda_find_device(int32_t index, const og_cuda_device **out, ogive_error *error);

/* Makes the device's context current, until og_cuda_leave(), which returns what failed
 * first: status or itself. */
ogive_status og_cuda_enter(const og_cuda_device *device, ogive_error *error);
ogive_status og_cuda_leave(const og_cuda_device *device, ogive_status status, ogive_error *error);

/* The same for what must not disturb a stream capture, by this thread or another, and
 * may allocate: loading modules, allocating memory. *mode is kept for leaving. */
ogive_status og_cuda_enter_relaxed(const og_cuda_device *device, int *mode, ogive_error *error);
ogive_status og_cuda_leave_relaxed(const og_cuda_device *device, int mode, ogive_status status,
                                   ogive_error *error);

/* Fills error with what result of a call means: "cuLaunchKernel on CUDA device 0:
 * CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered); ...". */
ogive_status og_cuda_fail(int result, const char *call, const og_cuda_device *device,
                          ogive_error *error);

const char *og_cuda_result_name(int result); /* "CUDA_ERROR_INVALID_VALUE" */
/* The device has no bytes left; its context is current. */
ogive_status og_cuda_fail_full(const og_cuda_device *device, size_t bytes, ogive_error *error);

#define OG_CUDA_TRY(device, error, name, ...)                                                      \
    do {                                                                                           \
        int og_result_ = og_cuda_driver()->call.name(__VA_ARGS__);                                 \
        if (og_result_ != 0)                                                                       \
            return og_cuda_fail(og_result_, #name, device, error);                                 \
    } while (0)

/* ---- architectures ------------------------------------------------------------- */

/* "90", "90a", "sm_90a": its number (90), or 0 if it is none. */
int32_t og_cuda_read_arch(const char *text);
/* "90a" of 90: architectures that have instructions of their own get the 'a'. */
enum { OG_CUDA_ARCH_TEXT = 16 };
const char *og_cuda_arch_text(int32_t arch, char text[OG_CUDA_ARCH_TEXT]);
/* Limits of a typical GPU of arch, to plan without having one; *like: "an H100". */
void og_cuda_assume_limits(int32_t arch, og_cuda_limits *out, const char **like);

#endif
