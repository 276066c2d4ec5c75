/* SPDX-License-Identifier: MIT
 *
 * fuzz_safetensors.c - any bytes as a .safetensors file: parsed or refused, and
 * whatever is parsed covers the data exactly, without overlap.
 */
#include <stdint.h>
#include <stdlib.h>

#include "safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    safetensors_file file;
    failure why = {0};

    if (!safetensors_parse(data, size, &file, &why)) {
        if (!why.message[0])
            abort();
        return 0;
    }
    size_t covered = 0;
    for (size_t i = 0; i < file.count; i++) {
        const safetensors_entry *entry = &file.entries[i];
        host_layout layout;
        if (entry->data_offset > size || entry->bytes > size - entry->data_offset)
            abort();
        covered += entry->bytes;
        if (!safetensors_layout(entry, &layout, &why))
            continue;
        if ((size_t)host_layout_elements(&layout) * layout.dtype->bytes != entry->bytes)
            abort();
        if (safetensors_find(&file, entry->name) != entry)
            abort();
    }
    if (covered > size)
        abort();
    safetensors_release(&file);
    return 0;
}
