/* SPDX-License-Identifier: MIT
 *
 * dlpack_abi.h - the parts of DLPack 1.x that travel between Python packages and
 * that ogive.h does not need: owned tensors, and the table of C functions that a
 * framework puts on its tensor type (__dlpack_c_exchange_api__, DLPack 1.2 and
 * later). Laid out exactly as <dlpack/dlpack.h> does.
 */
#ifndef DLPACK_ABI_H
#define DLPACK_ABI_H

#include "ogive.h"

enum { DLPACK_MAJOR = 1, DLPACK_MINOR = 1 }; /* what __dlpack__ is asked for */
enum { DLPACK_READ_ONLY = 1 };               /* a bit of flags */

typedef struct {
    uint32_t major, minor;
} DLPackVersion;

typedef struct DLManagedTensor {
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;

typedef struct DLManagedTensorVersioned {
    DLPackVersion version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    DLTensor dl_tensor;
} DLManagedTensorVersioned;

typedef struct DLPackExchangeAPIHeader {
    DLPackVersion version;
    struct DLPackExchangeAPIHeader *prev_api; /* an older table, or NULL */
} DLPackExchangeAPIHeader;

/* Functions return 0, or -1 with a Python exception set (the allocator: reports
 * through set_error). None of them waits for a stream. */
typedef struct {
    DLPackExchangeAPIHeader header;
    /* A new tensor of prototype's dtype, shape and device. */
    int (*managed_tensor_allocator)(DLTensor *prototype, DLManagedTensorVersioned **out,
                                    void *error_context,
                                    void (*set_error)(void *error_context, const char *kind,
                                                      const char *message));
    int (*managed_tensor_from_py_object_no_sync)(void *py_object, DLManagedTensorVersioned **out);
    /* Takes the tensor over. */
    int (*managed_tensor_to_py_object_no_sync)(DLManagedTensorVersioned *tensor,
                                               void **out_py_object);
    /* A view that lives as long as the object; may be NULL. */
    int (*dltensor_from_py_object_no_sync)(void *py_object, DLTensor *out);
    int (*current_work_stream)(DLDeviceType type, int32_t id, void **out_stream);
} DLPackExchangeAPI;

#endif
