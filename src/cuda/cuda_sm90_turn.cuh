/* SPDX-License-Identifier: MIT
 *
 * cuda_sm90_turn.cuh - w of float32 goes to the scratch, so that TMA can fetch it: a row of k for
 * each column of the product, a.w_pitch apart. A block takes 64 k of 64 columns through shared
 * memory, and reads and writes neighbours in memory.
 *
 * PARAMETERS
 *   OG_W_ACROSS  1: neighbours in memory are columns; 0: k
 */
enum { OG_TURN_THREADS = 256, OG_TURN = 64 };
static_assert(OG_TURN_BYTES == OG_TURN * (OG_TURN + 1) * 4, "the launch gives it");

OG_KERNEL(og_turn_w, OG_TURN_THREADS)
{
    extern __shared__ __align__(16) char og_turn_memory[];
    float (*box)[OG_TURN + 1] = (float (*)[OG_TURN + 1])og_turn_memory; /* [k][column] */
    const og_index boxes = (a.k + OG_TURN - 1) / OG_TURN, number = (og_index)blockIdx.x;
    const og_index n = number / boxes * OG_TURN, k = number % boxes * OG_TURN;
    const int first = threadIdx.x % OG_TURN, second = threadIdx.x / OG_TURN;
#pragma unroll 4
    for (int i = second; i < OG_TURN; i += OG_TURN_THREADS / OG_TURN) {
        const int at_n = OG_W_ACROSS ? first : i, at_k = OG_W_ACROSS ? i : first;
        if (n + at_n < a.n && k + at_k < a.k)
            box[at_k][at_n] = a.w[(n + at_n) * (int64_t)a.w_n + (k + at_k) * (int64_t)a.w_k];
    }
    __syncthreads();
#pragma unroll 4
    for (int i = second; i < OG_TURN; i += OG_TURN_THREADS / OG_TURN)
        if (n + i < a.n && k + first < a.k)
            ((float *)a.w_copy)[(n + i) * (int64_t)a.w_pitch + k + first] = box[first][i];
}
