/* SPDX-License-Identifier: MIT
 *
 * device_data.h - the memory that a plan runs with: on the CPU the inputs where they
 * are, on a GPU copies of them; results and workspace on the device.
 */
#ifndef OGIVE_CLI_DEVICE_DATA_H
#define OGIVE_CLI_DEVICE_DATA_H

#include "failure.h"
#include "request.h"

typedef struct {
    DLDevice device;
    const void **inputs; /* first elements, on the device */
    void **outputs;
    void *workspace;
    size_t input_count, output_count;
} device_data;

/* Allocates everything and copies the inputs, which are loaded. On failure too: release
 * with device_data_release(). */
bool device_data_make(device_data *d, const request *r, failure *why);
/* Waits for the runs so far. */
bool device_data_wait(const device_data *d, failure *why);
/* Result index, a copy in the process's memory that the caller frees; its bytes. On the
 * CPU the result itself, which changes owner. */
bool device_data_take(device_data *d, size_t index, size_t bytes, void **out, failure *why);
void device_data_release(device_data *d);

/* Between the device and the process's memory, with a bar, "copying LABEL", where it
 * takes long. */
bool device_copy(DLDevice device, void *to, const void *from, size_t bytes, const char *label,
                 failure *why);

#endif
