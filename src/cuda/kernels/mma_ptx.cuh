/* SPDX-License-Identifier: MIT
 *
 * mma_ptx.cuh - instructions of tensor cores from sm_80 on, one function each: copies
 * into shared memory that a thread does not wait for (cp.async), fragments of matrices
 * (ldmatrix), products of a warp (mma.sync).
 *
 * tests/cuda/shim_device.h has the same functions for a CPU.
 */
#ifndef OG_CUDA_SHIM

OG_FN uint32_t og_shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* Starts to copy 16 bytes, both places aligned, past the L1 cache. */
OG_FN void og_copy_16(void *to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(og_shared_address(to)), "l"(from)
                 : "memory");
}

/* The same, of zeros where it is not there; from is an address in any case. */
OG_FN void og_copy_16_if(void *to, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(og_shared_address(to)),
                 "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}

/* The same of 8 bytes, through the L1 cache. */
OG_FN void og_copy_8_if(void *to, const void *from, bool there)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(og_shared_address(to)),
                 "l"(from), "r"(there ? 8 : 0)
                 : "memory");
}

/* What the thread has started to copy since the last time is one lot. */
OG_FN void og_end_copies()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until all of the thread's lots but the last `most` have arrived; other threads see them
 * after a barrier. */
template <int most> OG_FN void og_await_copies()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(most) : "memory");
}

/* Loads four matrices of 8 rows of 16 bytes; lane i gives row i % 8 of matrix i / 8 and gets, of
 * each, bytes 4 (i % 4) on of row i / 4. */
OG_FN void og_load_matrices(uint32_t *to, const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(og_shared_address(row))
                 : "memory");
}

/* d (16 x 8) += x (16 x 16) * w (8 x 16, transposed). Lane 4 g + t has of d rows g and g + 8,
 * columns 2 t and 2 t + 1; of x the same rows, k 2 t, 2 t + 1 and those 8 further; of w row g
 * and the same k. Factors are float16 or bfloat16. */
template <bool is_bfloat> OG_FN void og_mma_16(float *d, const uint32_t *x, const uint32_t *w)
{
#define OG_MULTIPLY(type)                                                                          \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0, %1, %2, %3}, "           \
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                            \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                           \
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(w[0]), "r"(w[1]))
    if constexpr (is_bfloat)
        OG_MULTIPLY("bf16");
    else
        OG_MULTIPLY("f16");
#undef OG_MULTIPLY
}

/* d (16 x 8) += x (16 x 8) * w (8 x 8, transposed), both TF32. Lane 4 g + t has of d what it has there;
 * of x rows g and g + 8, k t and t + 4; of w row g and the same k. */
OG_FN void og_mma_8(float *d, const uint32_t *x, const uint32_t *w)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(w[0]), "r"(w[1]));
}

#endif
