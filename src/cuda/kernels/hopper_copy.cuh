/* SPDX-License-Identifier: MIT
 *
 * hopper_copy.cuh - a factor of halves goes to the scratch, line by line, so that TMA can fetch
 * it: neighbours in memory, lines a multiple of 16 bytes apart. A block takes a line.
 *
 * PARAMETERS
 *   OG_COPIES_W                  1: w may be copied, and v, that of a second product
 *   OG_X_ACROSS, OG_W_ACROSS     1: a line has one k of all rows (columns); 0: all k of one
 */
#include "cuda/kernels/pairs.cuh"

enum { OG_COPY_THREADS = 256 };

struct alignas(16) og_eight {
    og_element e[8];
};

/* Elements from, from + stride, ... become a line of `pitch`, zeros from `length` on. */
OG_FN void og_copy_line(const og_element *from, int64_t stride, og_index length, og_index pitch,
                        og_element *to)
{
    const bool aligned = stride == 1 && (uint64_t)from % 16 == 0;
    for (og_index i = 8 * threadIdx.x; i < pitch; i += 8 * OG_COPY_THREADS) {
        og_eight x;
        if (aligned && i + 8 <= length)
            x = *(const og_eight *)(from + i);
        else
#pragma unroll
            for (int j = 0; j < 8; j++)
                x.e[j] = i + j < length ? from[(i + j) * stride] : (og_element)0;
        *(og_eight *)(to + i) = x;
    }
}

template <class F, int across>
OG_FN void og_copy_factor(const og_args &a, og_index rows, og_index pitch, void *to)
{
    const og_index line = (og_index)blockIdx.x, lines = across ? a.k : rows;
    const og_index base = line / lines, i = line - base * lines;
    const og_element *from =
        across ? F::row(a, base, 0) + i * (int64_t)F::k_stride(a) : F::row(a, base, i);
    og_copy_line(from, across ? 1 : (int64_t)F::k_stride(a), across ? rows : a.k, pitch,
                 (og_element *)to + line * (int64_t)pitch);
}

OG_KERNEL(og_copy_x, OG_COPY_THREADS)
{
    og_copy_factor<og_left0, OG_X_ACROSS>(a, a.m, a.x_pitch, a.x_copy);
}

#if OG_COPIES_W
OG_KERNEL(og_copy_w, OG_COPY_THREADS)
{
    og_copy_factor<og_right0, OG_W_ACROSS>(a, a.n, a.w_pitch, a.w_copy);
}
#endif

#if OG_COPIES_W && OG_PRODUCTS == 2
OG_KERNEL(og_copy_v, OG_COPY_THREADS)
{
    og_copy_factor<og_right1, OG_W_ACROSS>(a, a.n, a.w_pitch, a.v_copy);
}
#endif
