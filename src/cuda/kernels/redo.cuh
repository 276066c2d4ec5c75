/* SPDX-License-Identifier: MIT
 *
 * redo.cuh - what tensor cores have left: 64 columns of a row at a time, in plan.h's
 * order on CUDA cores, with pass 0.
 *
 * A block takes 64 columns and, of 128 neighbouring rows, those that are marked (a.redo, a byte
 * for each 64 columns of a row): 4 or 32 at once, or all of more than 64. Steps of 64 k go from
 * memory through registers into shared memory. A thread has EACH rows, 1 or 8, and COLUMNS
 * columns: four, where all 128 rows are computed, for fewer reads of shared memory.
 */
#include "cuda/kernels/pairs.cuh"
#include "cuda/kernels/finish.cuh"

/* Of the body: is all of the product left to og_redo, for its tensor cores cannot be given the
 * factors as they lie in memory? Else those 64 columns of a row that a.redo marks. */
OG_FN bool og_redoes_all(const og_args &a);

enum {
    OG_REDO_THREADS = 256,
    OG_REDO_FEW = 4,
    OG_REDO_ROWS = 32, /* that pass 0 is applied to at once */
    OG_REDO_MOST = 128,
    OG_REDO_PITCH = 68 /* floats; no conflicts */
};

struct og_redo_shared {
    alignas(16) float x[OG_REDO_MOST][OG_REDO_PITCH], w[OG_RUN][OG_REDO_PITCH];
    float product[OG_PRODUCTS * OG_REDO_MOST][OG_RUN]; /* one product after the other */
    const og_element *rows[OG_REDO_MOST];
    int list[128], counts[4]; /* marked rows of the tile, those of each 32 */
};
static_assert(OG_REDO_BYTES == sizeof(og_redo_shared), "the launch gives it");

/* Lists the rows (of 128 from m on, before end) that are marked, in order; returns how many. */
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

/* The products of ROWS rows; a thread's rows are ROW_STEP apart, its columns COLUMN_STEP. */
template <int COLUMNS, int EACH> struct og_redo_work {
    enum {
        ROW_STEP = 4 * COLUMNS,
        COLUMN_STEP = OG_RUN / COLUMNS,
        ROWS = ROW_STEP * EACH,
        LOADS = ROWS < 8 ? 1 : ROWS / 8, /* rows of x that a warp reads in a step */
        AHEAD = EACH == 1 ? 3 : 1        /* steps on their way: few rows wait for w */
    };
    /* A thread's part of a step: two k of 8 columns of w and of some rows of x. */
    struct step {
        float w[8][2], x[LOADS][2];
    };
    typedef float sums[EACH][COLUMNS];

    /* Reads a step from memory. Columns of the second of two products follow the first's. */
    OG_FN void fetch(const og_args &a, int product, og_index base, og_index n, og_index k,
                     const og_redo_shared &shared, step &s)
    {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        const og_index at[2] = {k + lane, k + lane + 32};
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const og_index column = n + 8 * i + warp;
            const og_element *w =
                og_w_row(a, base, (column < a.n ? column : a.n - 1) + product * a.n);
#pragma unroll
            for (int h = 0; h < 2; h++)
                s.w[i][h] = at[h] < a.k ? og_widen(w[at[h] * og_w_stride(a)]) : -0.0f;
        }
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            const og_element *x = shared.rows[8 * i + warp];
#pragma unroll
            for (int h = 0; h < 2; h++)
                s.x[i][h] = at[h] < a.k ? og_widen(x[at[h] * (int64_t)a.x_k]) : 0.0f;
        }
    }

    OG_FN void place(const step &s, og_redo_shared &shared)
    {
        const int warp = threadIdx.x / 32, k = threadIdx.x % 32;
#pragma unroll
        for (int h = 0; h < 2; h++) {
#pragma unroll
            for (int i = 0; i < 8; i++)
                shared.w[8 * i + warp][k + 32 * h] = s.w[i][h];
#pragma unroll
            for (int i = 0; i < LOADS; i++)
                shared.x[8 * i + warp][k + 32 * h] = s.x[i][h];
        }
    }

    /* p += the products of a step */
    OG_FN void multiply(const og_redo_shared &shared, int row, int column, sums &p)
    {
#pragma unroll 1
        for (int j = 0; j < 64; j += 4) {
            og_four w[COLUMNS];
#pragma unroll
            for (int c = 0; c < COLUMNS; c++)
                w[c] = *(const og_four *)&shared.w[column + COLUMN_STEP * c][j];
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                og_four v = *(const og_four *)&shared.x[row + ROW_STEP * i][j];
#pragma unroll
                for (int c = 0; c < COLUMNS; c++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        p[i][c] = og_fma_f32(v.e[e], w[c].e[e], p[i][c]);
            }
        }
    }

    /* After k: p joins the block's sum, that the group's, which is in shared memory, in places
     * that only this thread touches. -0 + v is v, also of v = -0. */
    OG_FN void join(float (*product)[OG_RUN], int row, int column, og_index k, bool last, sums &p,
                    sums &block)
    {
        if (!last && k % 256 != 0)
            return;
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                block[i][c] = block[i][c] + p[i][c];
                p[i][c] = 0.0f;
            }
        if (!last && k % 4096 != 0)
            return;
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                float &total = product[row + ROW_STEP * i][column + COLUMN_STEP * c];
                total = total + block[i][c];
                block[i][c] = -0.0f;
            }
    }

    /* shared.product, the part of one product = rows from `first` on of the list, of tile m, times
     * columns from n on; a row beyond the list is its last. */
    OG_FN void run_one(const og_args &a, int product, og_index base, og_index m, og_index n,
                       int first, int count, og_redo_shared &shared)
    {
        float (*to)[OG_RUN] = shared.product + product * OG_REDO_MOST;
        const int column = threadIdx.x % COLUMN_STEP, row = threadIdx.x / COLUMN_STEP;
        step steps[AHEAD];
        sums p, block;
        if (threadIdx.x < 8 * LOADS) {
            int at = first + (int)threadIdx.x;
            shared.rows[threadIdx.x] = og_x_row(a, m + shared.list[at < count ? at : count - 1]);
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                p[i][c] = 0.0f;
                block[i][c] = -0.0f;
                to[row + ROW_STEP * i][column + COLUMN_STEP * c] = -0.0f;
            }
        /* The first fetches are in the loop, too: NVRTC takes half as long as for two copies. */
#pragma unroll 1
        for (og_index k = -64 * AHEAD; k < a.k; k += 64 * AHEAD)
#pragma unroll
            for (int s = 0; s < AHEAD; s++) {
                const og_index at = k + 64 * s;
                if (at >= a.k)
                    break;
                if (at >= 0) {
                    __syncthreads();
                    place(steps[s], shared);
                    __syncthreads();
                }
                fetch(a, product, base, n, at + 64 * AHEAD, shared, steps[s]);
                if (at >= 0) {
                    multiply(shared, row, column, p);
                    join(to, row, column, at + 64, at + 64 >= a.k, p, block);
                }
            }
        __syncthreads();
    }

    OG_FN void run(const og_args &a, og_index base, og_index m, og_index n, int first, int count,
                   og_redo_shared &shared)
    {
#pragma unroll 1
        for (int product = 0; product < OG_PRODUCTS; product++)
            run_one(a, product, base, m, n, first, count, shared);
    }
};

/* Pass 0 on shared.product from row `from` on: rows [first, first + OG_REDO_ROWS) of the list,
 * those of tile m, in columns from n on. A run is finished by 32 / OG_V threads. */
OG_FN void og_finish_redone(const og_args &a, og_index m, og_index n, int first, int count,
                            int from, const og_redo_shared &shared)
{
    typedef og_row_part<2> part;
    const int column = threadIdx.x % part::lanes * OG_V;
    part f;
    f.n = n + column;
    og_load_kept<part::apart, false>(a, f.n, f.kept);
#pragma unroll 1
    for (int row = threadIdx.x / part::lanes; row < OG_REDO_ROWS;
         row += OG_REDO_THREADS / part::lanes) {
        f.there = first + row < count;
        f.index = m + shared.list[f.there ? first + row : count - 1];
#pragma unroll
        for (int p = 0; p < OG_PRODUCTS; p++)
#pragma unroll
            for (int v = 0; v < part::vectors; v++)
                f.sums[p][v] =
                    *(const og_vector_sums *)&shared
                         .product[p * OG_REDO_MOST + from + row][column + part::apart * v];
        og_finish_fragment(a, f);
    }
}

/* Rows [m, end) of all, those of product `base` of a batch, of which og_redo looks at 128. */
struct og_band {
    og_index base, m, end;
};

OG_FN og_band og_find_band(const og_args &a, og_index i)
{
    og_index base = i / a.redo_groups;
    return {base, base * a.m + (i - base * a.redo_groups) * 128, (base + 1) * a.m};
}

OG_KERNEL(og_redo, OG_REDO_THREADS)
{
    extern __shared__ __align__(16) char og_redo_memory[];
    og_redo_shared &shared = *(og_redo_shared *)og_redo_memory;
    og_await_launch();
    if (!og_redoes_all(a) && !*(const uint32_t *)a.any_redo)
        return;
    for (og_index i = blockIdx.x; i < a.redo_items; i += gridDim.x) {
        og_index run = i % a.runs, n = run * OG_RUN;
        og_band band = og_find_band(a, i / a.runs);
        int count = og_list_rows(a, run, band.m, band.end, shared);
        const int rows = count <= OG_REDO_FEW        ? OG_REDO_FEW
                         : count <= OG_REDO_MOST / 2 ? OG_REDO_ROWS
                                                     : OG_REDO_MOST;
        for (int first = 0; first < count; first += rows) {
            if (rows == OG_REDO_FEW)
                og_redo_work<1, 1>::run(a, band.base, band.m, n, first, count, shared);
            else if (rows == OG_REDO_ROWS)
                og_redo_work<1, 8>::run(a, band.base, band.m, n, first, count, shared);
            else
                og_redo_work<4, 8>::run(a, band.base, band.m, n, first, count, shared);
#pragma unroll 1
            for (int from = 0; from < rows && first + from < count; from += OG_REDO_ROWS)
                og_finish_redone(a, band.m, n, first + from, count, from, shared);
            __syncthreads();
        }
        __syncthreads();
    }
}
