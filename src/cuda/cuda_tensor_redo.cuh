/* SPDX-License-Identifier: MIT
 *
 * cuda_tensor_redo.cuh - what tensor cores have left: 64 columns of a row at a time, in plan.h's
 * order on CUDA cores, with pass 0.
 *
 * A block takes 64 columns and, of 128 neighbouring rows, those that are marked (a.redo, a byte
 * for each 64 columns of a row), up to 32 at once. Steps of 64 k go from memory through registers
 * into shared memory. A thread has one column and 8 rows.
 */
enum { OG_REDO_THREADS = 256, OG_REDO_ROWS = 32, OG_REDO_PITCH = 68 /* floats; no conflicts */ };

struct og_redo_shared {
    alignas(16) float x[OG_REDO_ROWS][OG_REDO_PITCH], w[OG_RUN][OG_REDO_PITCH];
    float product[OG_REDO_ROWS][OG_RUN];
    int list[128], counts[4]; /* marked rows of the tile, those of each 32 */
};
static_assert(OG_REDO_BYTES == sizeof(og_redo_shared), "the launch gives it");

/* The rows (of 128 from m on, before end) that are marked, in order; how many. */
OG_FN int og_list_rows(const og_args &a, og_index run, og_index m, og_index end,
                       og_redo_shared &shared)
{
    const int thread = threadIdx.x, warp = thread / 32;
    bool marked = false;
    if (thread < 128) {
        const uint8_t *redo = (const uint8_t *)a.redo + run * (int64_t)a.redo_pitch;
        marked = m + thread < end && (og_redoes_all(a) || redo[m + thread]);
    }
    uint32_t found = __ballot_sync(0xffffffffu, marked);
    if (thread < 128 && thread % 32 == 0)
        shared.counts[warp] = __popc(found);
    __syncthreads();
    int before = __popc(found & ((1u << thread % 32) - 1)), count = 0;
    for (int w = 0; w < 4; w++) {
        before += w < warp ? shared.counts[w] : 0;
        count += shared.counts[w];
    }
    if (marked)
        shared.list[before] = thread;
    __syncthreads();
    return count;
}

/* A thread's part of a step: four k of 4 columns of w and of 2 rows of x. */
struct og_redo_step {
    og_four w[4], x[2];
};

OG_FN void og_fetch_step(const og_args &a, og_index base, og_index n, const og_element *const *x,
                         og_index k, og_redo_step &step)
{
    const og_index at = k + threadIdx.x % 16 * 4;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        og_index column = n + i * 16 + threadIdx.x / 16;
        const og_element *w = og_w_row(a, base, column < a.n ? column : a.n - 1);
        step.w[i] =
            og_load_four(w, og_w_stride(a), og_is_by_fours(w, og_w_stride(a)), at, a.k, -0.0f);
    }
#pragma unroll
    for (int i = 0; i < 2; i++)
        step.x[i] = og_load_four(x[i], a.x_k, og_is_by_fours(x[i], a.x_k), at, a.k, 0.0f);
}

OG_FN void og_place_step(const og_redo_step &step, og_redo_shared &shared)
{
    const int row = threadIdx.x / 16, k = threadIdx.x % 16 * 4;
#pragma unroll
    for (int i = 0; i < 4; i++)
        *(og_four *)&shared.w[i * 16 + row][k] = step.w[i];
#pragma unroll
    for (int i = 0; i < 2; i++)
        *(og_four *)&shared.x[i * 16 + row][k] = step.x[i];
}

/* shared.product = rows [first, first + 32) of the list, of tile m, times columns from n on;
 * a row beyond the list is its last. */
OG_FN void og_redo_products(const og_args &a, og_index base, og_index m, og_index n, int first,
                            int count, og_redo_shared &shared)
{
    const int column = threadIdx.x % OG_RUN, row = threadIdx.x / OG_RUN * 8;
    const og_element *x[2];
    og_redo_step step;
    float p[8], block[8], group[8]; /* -0 + v is v, also of v = -0 */
    for (int i = 0; i < 2; i++) {
        int at = first + i * 16 + (int)threadIdx.x / 16;
        x[i] = og_x_row(a, m + shared.list[at < count ? at : count - 1]);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        p[i] = 0.0f;
        block[i] = group[i] = -0.0f;
    }
    og_fetch_step(a, base, n, x, 0, step);
    for (og_index k = 0; k < a.k; k += 64) {
        __syncthreads();
        og_place_step(step, shared);
        __syncthreads();
        if (k + 64 < a.k)
            og_fetch_step(a, base, n, x, k + 64, step);
#pragma unroll 1
        for (int j = 0; j < 64; j += 4) {
            og_four w = *(const og_four *)&shared.w[column][j];
#pragma unroll
            for (int i = 0; i < 8; i++) {
                og_four v = *(const og_four *)&shared.x[row + i][j];
#pragma unroll
                for (int e = 0; e < 4; e++)
                    p[i] = og_fma_f32(v.e[e], w.e[e], p[i]);
            }
        }
        bool last = k + 64 >= a.k;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (last || (k + 64) % 256 == 0) {
                block[i] = block[i] + p[i];
                p[i] = 0.0f;
            }
            if (last || (k + 64) % 4096 == 0) {
                group[i] = group[i] + block[i];
                block[i] = -0.0f;
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        shared.product[row + i][column] = group[i];
    __syncthreads();
}

/* Of the body: pass 0 on shared.product, rows [first, first + 32) of the list. */
OG_FN void og_finish_redone(const og_args &a, og_index base, og_index m, og_index n, int first,
                            int count, og_redo_shared &shared);

OG_KERNEL(og_redo, OG_REDO_THREADS, OG_REDO_BLOCKS)
{
    extern __shared__ __align__(16) char og_redo_memory[];
    og_redo_shared &shared = *(og_redo_shared *)og_redo_memory;
    if (!og_redoes_all(a) && !*(const uint32_t *)a.any_redo)
        return;
    for (og_index i = blockIdx.x; i < a.redo_items; i += gridDim.x) {
        og_index run = i % a.runs;
        og_band band = og_find_band(a, i / a.runs);
        int count = og_list_rows(a, run, band.m, band.end, shared);
        for (int first = 0; first < count; first += OG_REDO_ROWS) {
            og_redo_products(a, band.base, band.m, run * OG_RUN, first, count, shared);
            og_finish_redone(a, band.base, band.m, run * OG_RUN, first, count, shared);
            __syncthreads();
        }
        __syncthreads();
    }
}
