/* SPDX-License-Identifier: MIT
 *
 * async_copies.cuh - copies into shared memory that are under way while the thread goes on
 * (cp.async), in batches that it waits for. Before sm_80 they are plain loads and stores.
 */
#include "cuda/kernels/prologue.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define OG_COPIES_ASIDE 1
#endif

#ifdef OG_COPIES_ASIDE
#define OG_COPY(kind, bytes)                                                                       \
    asm volatile("cp.async." kind ".shared.global [%0], [%1], " bytes ";" ::"r"(                   \
                     (uint32_t)__cvta_generic_to_shared(to)),                                      \
                 "l"(from)                                                                         \
                 : "memory")
#else
#define OG_COPY(kind, bytes) *to = *from
#endif

OG_FN void og_copy_word(uint4 *to, const uint4 *from)
{
    OG_COPY("cg", "16");
}

OG_FN void og_copy_word(uint2 *to, const uint2 *from)
{
    OG_COPY("ca", "8");
}

OG_FN void og_copy_word(uint32_t *to, const uint32_t *from)
{
    OG_COPY("ca", "4");
}

OG_FN void og_copy_word(uint8_t *to, const uint8_t *from)
{
    *to = *from;
}

OG_FN void og_copy_word(uint16_t *to, const uint16_t *from) /* cp.async moves 4 bytes at least */
{
    *to = *from;
}

template <class T> OG_FN void og_copy_pack(og_pack<T> &to, const T *from)
{
    typedef typename og_words<T>::word word;
#pragma unroll
    for (int w = 0; w < og_words<T>::count; w++)
        og_copy_word((word *)&to + w, (const word *)from + w);
}

/* The end of a batch of copies. */
OG_FN void og_end_batch()
{
#ifdef OG_COPIES_ASIDE
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Waits for the thread's own copies, but for the latest `batches`, 3 at most. */
OG_FN void og_wait_for_batches(int batches)
{
#ifdef OG_COPIES_ASIDE
    if (batches == 3)
        asm volatile("cp.async.wait_group 3;" ::: "memory");
    else if (batches == 2)
        asm volatile("cp.async.wait_group 2;" ::: "memory");
    else if (batches == 1)
        asm volatile("cp.async.wait_group 1;" ::: "memory");
    else
        asm volatile("cp.async.wait_group 0;" ::: "memory");
#endif
}
