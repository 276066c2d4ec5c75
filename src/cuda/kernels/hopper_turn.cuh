/* SPDX-License-Identifier: MIT
 *
 * hopper_turn.cuh - a factor of float32 goes to the scratch, so that TMA can fetch it (w) or
 * threads can read neighbours (x): a line of k for each column of w, or row of x. A block takes
 * 64 k of 64 lines through shared memory, and reads and writes neighbours in memory.
 *
 * PARAMETERS
 *   OG_TURNS_W, OG_TURNS_X  1: this factor is turned
 *   OG_W_LINES              1: w's neighbours in memory are of neighbouring lines; 0: k of one
 */
#include "cuda/kernels/prologue.cuh"

enum { OG_TURN_THREADS = 256, OG_TURN = 64 };
static_assert(OG_TURN_BYTES == OG_TURN * (OG_TURN + 1) * 4, "the launch gives it");

/* F::line(): the k of a line, F::stride() apart. */
template <class F, int across>
OG_FN void og_turn_lines(const og_args &a, og_index lines, og_index pitch, void *to)
{
    extern __shared__ __align__(16) char og_turn_memory[];
    float (*box)[OG_TURN + 1] = (float (*)[OG_TURN + 1])og_turn_memory; /* [k][line] */
    const og_index boxes = (a.k + OG_TURN - 1) / OG_TURN, number = (og_index)blockIdx.x;
    const og_index line = number / boxes * OG_TURN, k = number % boxes * OG_TURN;
    const int first = threadIdx.x % OG_TURN, second = threadIdx.x / OG_TURN;
#pragma unroll 4
    for (int i = second; i < OG_TURN; i += OG_TURN_THREADS / OG_TURN) {
        const int at = across ? first : i, at_k = across ? i : first;
        if (line + at < lines && k + at_k < a.k)
            box[at_k][at] = F::line(a, line + at)[(k + at_k) * F::stride(a)];
    }
    __syncthreads();
#pragma unroll 4
    for (int i = second; i < OG_TURN; i += OG_TURN_THREADS / OG_TURN)
        if (line + i < lines && k + first < a.k)
            ((float *)to)[(line + i) * (int64_t)pitch + k + first] = box[first][i];
}

#if OG_TURNS_W
struct og_w_lines {
    OG_FN const og_element *line(const og_args &a, og_index i)
    {
        return og_w_row(a, i / a.n, i % a.n);
    }
    OG_FN int64_t stride(const og_args &a)
    {
        return og_w_stride(a);
    }
};

OG_KERNEL(og_turn_w, OG_TURN_THREADS)
{
    og_turn_lines<og_w_lines, OG_W_LINES>(a, a.w_lines, a.w_pitch, a.w_copy);
}
#endif

#if OG_TURNS_X
struct og_x_lines {
    OG_FN const og_element *line(const og_args &a, og_index i)
    {
        return og_x_line(a, i);
    }
    OG_FN int64_t stride(const og_args &a)
    {
        return a.x_line_k;
    }
};

OG_KERNEL(og_turn_x, OG_TURN_THREADS)
{
    og_turn_lines<og_x_lines, 1>(a, a.split_rows, a.x_pitch, a.x_copy);
}
#endif
