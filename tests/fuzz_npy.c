/* SPDX-License-Identifier: MIT
 *
 * fuzz_npy.c - any bytes as a .npy file: parsed or refused, and whatever is
 * parsed lies inside the bytes.
 */
#include <stdint.h>
#include <stdlib.h>

#include "npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    npy_array array;
    failure why = {0};

    if (!npy_parse(data, size, &array, &why)) {
        if (!why.message[0] || why.status != STATUS_FILE)
            abort();
        return 0;
    }
    const host_layout *layout = &array.layout;
    int64_t last = 0;
    for (int32_t i = 0; i < layout->ndim; i++)
        last += (layout->shape[i] - 1) * layout->strides[i];
    if (array.elements != host_layout_elements(layout))
        abort();
    if (!array.elements)
        return 0;
    if (last != array.elements - 1)
        abort();
    /* The sanitizer sees whether these are inside. */
    volatile double ends = host_value(layout->dtype, data + array.data_offset, 0) +
                           host_value(layout->dtype, data + array.data_offset, last);
    (void)ends;
    return 0;
}
