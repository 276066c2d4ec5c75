/* SPDX-License-Identifier: MIT
 *
 * columns_split.cuh - what the launches over tiles of columns leave to others: a
 * struct for every column, those of a thread side by side, tile after tile.
 */
#include "cuda/kernels/columns.cuh"

template <class T>
OG_FN void og_load_columns(const void *from, const og_column &c, og_index first, T (&x)[OG_V])
{
#pragma unroll
    for (int i = 0; i < OG_V; i++)
        x[i] = ((const T *)from)[first + c.vector * OG_V + i];
}

/* Columns that are not there are stored, too: no two threads have the same. */
template <class T>
OG_FN void og_store_columns(void *to, const og_column &c, og_index first, const T (&x)[OG_V])
{
#pragma unroll
    for (int i = 0; i < OG_V; i++)
        if (c.writes && c.span.end > 0)
            ((T *)to)[first + c.vector * OG_V + i] = x[i];
}
