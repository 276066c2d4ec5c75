/* SPDX-License-Identifier: MIT
 *
 * redo.cuh - what tensor cores have left: 64 columns of a row at a time, in plan.h's
 * order on CUDA cores, with pass 0.
 *
 * Of 128 neighbouring rows and 64 columns, those rows are computed that are marked (a.redo, a byte
 * for each 64 columns of a row), 4 or 32 of them at once: og_redo_work. Where more than 64 are marked, a
 * block computes a whole tile, of 128 rows and of these 64 columns and 64 neighbours: og_redo_tile.
 * Each sum has plan.h's order in both.
 */
#include "cuda/kernels/pairs.cuh"
#include "cuda/kernels/finish.cuh"

/* Of the body: is all of the product left to og_redo, for its tensor cores cannot be given the
 * factors as they lie in memory? Else those 64 columns of a row that a.redo marks. */
OG_FN bool og_redoes_all(const og_args &a);

enum {
    OG_REDO_THREADS = 256,
    OG_REDO_FEW = 4,
    OG_REDO_ROWS = 32,  /* that pass 0 is applied to at once */
    OG_REDO_TILE = 128, /* rows and columns */
    OG_REDO_PITCH = 68, /* floats; no conflicts */
    OG_REDO_STEP = 16,  /* k of a tile's steps */
    /* A line has a k of all rows; four lines are shifted against the next four, so that a warp writes
     * 4 x 4 k of 8 rows to 32 banks. */
    OG_REDO_SHIFT = 8,
    OG_REDO_PART = OG_REDO_STEP * OG_REDO_TILE + OG_REDO_STEP / 4 * OG_REDO_SHIFT
};

typedef float og_redone[OG_RUN]; /* columns of a row */

/* Of og_redo_work; product: of one product after the other. */
struct og_redo_some {
    float x[OG_REDO_ROWS][OG_REDO_PITCH], w[OG_RUN][OG_REDO_PITCH];
    og_redone product[OG_PRODUCTS][OG_REDO_ROWS];
    const og_element *rows[OG_REDO_ROWS];
};

/* Of og_redo_tile: two steps of both factors; sums of either half of the columns. */
struct og_redo_all {
    float steps[2][2][OG_REDO_PART];
    og_redone product[OG_PRODUCTS][2][OG_REDO_TILE];
};

struct og_redo_shared {
    union {
        alignas(16) og_redo_some some;
        og_redo_all all;
    };
    int list[OG_REDO_TILE], counts[4]; /* marked rows, those of each 32 */
};
static_assert(OG_REDO_BYTES == sizeof(og_redo_shared), "the launch gives it");

/* Lists the rows (of 128 from m on, before end) that are marked, in order; returns how many. Of a run
 * beyond the last there are none. */
OG_FN int og_list_rows(const og_args &a, og_index run, og_index m, og_index end,
                       og_redo_shared &shared)
{
    const int thread = threadIdx.x, warp = thread / 32;
    bool marked = false;
    if (thread < 128) {
        const uint8_t *redo = (const uint8_t *)a.redo + run * (int64_t)a.redo_pitch;
        marked = run < a.runs && m + thread < end && (og_redoes_all(a) || redo[m + thread]);
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

/* Rows [m, end) of all, those of product `base` of a batch, of which og_redo looks at 128. */
struct og_band {
    og_index base, m, end;
};

OG_FN og_band og_find_band(const og_args &a, og_index i)
{
    og_index base = i / a.redo_groups;
    return {base, base * a.m + (i - base * a.redo_groups) * 128, (base + 1) * a.m};
}

/* The products of 4 or 32 rows with 64 columns: a thread has EACH rows, ROW_STEP apart, of a column.
 * Steps of 64 k go from memory through registers into shared memory. */
template <int EACH> struct og_redo_work {
    enum {
        ROW_STEP = OG_REDO_THREADS / OG_RUN,
        LOADS = EACH == 1 ? 1 : ROW_STEP * EACH / 8, /* rows of x that a warp reads in a step */
        AHEAD = EACH == 1 ? 3 : 1                    /* steps on their way: few rows wait for w */
    };
    /* A thread's part of a step: two k of 8 columns of w and of some rows of x. */
    struct step {
        float w[8][2], x[LOADS][2];
    };
    typedef float sums[EACH];

    /* Reads a step from memory. Columns of the second of two products follow the first's. */
    OG_FN void fetch(const og_args &a, int product, og_index base, og_index n, og_index k,
                     const og_redo_some &shared, step &s)
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

    OG_FN void place(const step &s, og_redo_some &shared)
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
    OG_FN void multiply(const og_redo_some &shared, int row, int column, sums &p)
    {
#pragma unroll 1
        for (int j = 0; j < 64; j += 4) {
            const og_four w = *(const og_four *)&shared.w[column][j];
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                const og_four v = *(const og_four *)&shared.x[row + ROW_STEP * i][j];
#pragma unroll
                for (int e = 0; e < 4; e++)
                    p[i] = og_fma_f32(v.e[e], w.e[e], p[i]);
            }
        }
    }

    /* After k: p joins the block's sum, that the group's, which is in shared memory, in places
     * that only this thread touches. -0 + v is v, also of v = -0. */
    OG_FN void join(og_redone *product, int row, int column, og_index k, bool last, sums &p,
                    sums &block)
    {
        if (!last && k % 256 != 0)
            return;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            block[i] = block[i] + p[i];
            p[i] = 0.0f;
        }
        if (!last && k % 4096 != 0)
            return;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            float &total = product[row + ROW_STEP * i][column];
            total = total + block[i];
            block[i] = -0.0f;
        }
    }

    /* shared.some.product of one product = rows from `first` on of the list, of tile m, times
     * columns from n on; a row beyond the list is its last. */
    OG_FN void run_one(const og_args &a, int product, og_index base, og_index m, og_index n,
                       int first, int count, og_redo_shared &all)
    {
        og_redo_some &shared = all.some;
        og_redone *to = shared.product[product];
        const int column = threadIdx.x % OG_RUN, row = threadIdx.x / OG_RUN;
        step steps[AHEAD];
        sums p, block;
        if (threadIdx.x < 8 * LOADS) {
            int at = first + (int)threadIdx.x;
            shared.rows[threadIdx.x] = og_x_row(a, m + all.list[at < count ? at : count - 1]);
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            p[i] = 0.0f;
            block[i] = -0.0f;
            to[row + ROW_STEP * i][column] = -0.0f;
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

/* ---- whole tiles ----------------------------------------------------------------------------- */

/* A warp has 32 rows of 64 columns; a thread 8 x 8, in fours, those of its neighbours between them. */
struct og_redo_tile {
    enum { EACH = 8 };
    typedef float sums[EACH][EACH];

    /* What a thread reads of a step: four k of two rows of x and of two columns of w, from the next
     * step on. */
    struct loader {
        const og_element *x[2], *w[2];
        bool by_fours;
        og_four next[2][2]; /* [factor][row] */
    };

    /* Where a k is in a step. */
    OG_FN int line(int k)
    {
        return k * OG_REDO_TILE + k / 4 * OG_REDO_SHIFT;
    }

    /* Rows and columns that are not there are the last ones. Columns of the second of two products
     * follow the first's. */
    OG_FN void start(loader &l, const og_args &a, int product, const og_band &band, og_index n)
    {
        const og_index at = threadIdx.x / 4, k = threadIdx.x % 4 * 4;
        l.by_fours = true;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const og_index row = band.m + at + 64 * i, column = n + at + 64 * i;
            l.x[i] = og_x_row(a, row < band.end ? row : band.end - 1) + k * (int64_t)a.x_k;
            l.w[i] = og_w_row(a, band.base, (column < a.n ? column : a.n - 1) + product * a.n) +
                     k * og_w_stride(a);
            l.by_fours &= og_is_by_fours(l.x[i], a.x_k) & og_is_by_fours(l.w[i], og_w_stride(a));
        }
    }

    /* Reads the next step from memory, of which so many k are there; a missing one is 0 * -0, which
     * changes no sum. */
    OG_FN void fetch(loader &l, const og_args &a, og_index there)
    {
        if (l.by_fours && there >= OG_REDO_STEP) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                l.next[0][i] = og_load_four(l.x[i], 1, true, 0, 4, 0.0f);
                l.next[1][i] = og_load_four(l.w[i], 1, true, 0, 4, 0.0f);
            }
        } else {
            const og_index limit = there - threadIdx.x % 4 * 4;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                l.next[0][i] = og_load_four(l.x[i], a.x_k, false, 0, limit, 0.0f);
                l.next[1][i] = og_load_four(l.w[i], og_w_stride(a), false, 0, limit, -0.0f);
            }
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            l.x[i] += OG_REDO_STEP * (int64_t)a.x_k;
            l.w[i] += OG_REDO_STEP * og_w_stride(a);
        }
    }

    OG_FN void place(const loader &l, float (&to)[2][OG_REDO_PART])
    {
        const int at = line(threadIdx.x % 4 * 4) + threadIdx.x / 4;
#pragma unroll
        for (int i = 0; i < 16; i++)
            to[i / 8][at + i % 4 * OG_REDO_TILE + i / 4 % 2 * 64] =
                l.next[i / 8][i / 4 % 2].e[i % 4];
    }

    /* p += the products of a step */
    OG_FN void multiply(const float (&from)[2][OG_REDO_PART], int row, int column, sums &p)
    {
#pragma unroll
        for (int k = 0; k < OG_REDO_STEP; k++) {
            og_four x[2], w[2];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                x[h] = *(const og_four *)&from[0][line(k) + row + 16 * h];
                w[h] = *(const og_four *)&from[1][line(k) + column + 32 * h];
            }
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int c = 0; c < EACH; c++)
                    p[i][c] = og_fma_f32(x[i / 4].e[i % 4], w[c / 4].e[c % 4], p[i][c]);
        }
    }

    /* After k: p joins the block's sum, that the group's, which is in shared memory, in places
     * that only this thread touches. -0 + v is v, also of v = -0. */
    OG_FN void join(og_redone *to, int row, int column, og_index k, bool last, sums &p, sums &block)
    {
        if (!last && k % 256 != 0)
            return;
#pragma unroll
        for (int i = 0; i < EACH * EACH; i++) {
            block[i / EACH][i % EACH] = block[i / EACH][i % EACH] + p[i / EACH][i % EACH];
            p[i / EACH][i % EACH] = 0.0f;
        }
        if (!last && k % 4096 != 0)
            return;
#pragma unroll
        for (int i = 0; i < EACH * 2; i++) {
            og_four &total = *(og_four *)&to[row + i / 8 * 16 + i / 2 % 4][column + i % 2 * 32];
            og_four sum = total;
#pragma unroll
            for (int c = 0; c < 4; c++) {
                float &more = block[i / 2][i % 2 * 4 + c];
                sum.e[c] = k > 4096 ? sum.e[c] + more : more;
                more = -0.0f;
            }
            total = sum;
        }
    }

    /* shared.all.product = a band of rows times 128 columns from n on, for one product. */
    OG_FN void run_one(const og_args &a, int product, const og_band &band, og_index n,
                       og_redo_all &shared)
    {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        const int row = warp % 4 * 32 + lane / 8 * 4, column = lane % 8 * 4;
        loader l;
        sums p, block;
#pragma unroll
        for (int i = 0; i < EACH * EACH; i++) {
            p[i / EACH][i % EACH] = 0.0f;
            block[i / EACH][i % EACH] = -0.0f;
        }
        start(l, a, product, band, n);
        int buffer = 0;
        /* The first fetch is in the loop, too: for two copies NVRTC would take longer. */
#pragma unroll 1
        for (og_index k = -OG_REDO_STEP; k < a.k; k += OG_REDO_STEP) {
            if (k + OG_REDO_STEP < a.k)
                fetch(l, a, a.k - k - OG_REDO_STEP);
            if (k >= 0) {
                multiply(shared.steps[buffer], row, warp / 4 * OG_RUN + column, p);
                join(shared.product[product][warp / 4], row, column, k + OG_REDO_STEP,
                     k + OG_REDO_STEP >= a.k, p, block);
            }
            buffer ^= 1;
            place(l, shared.steps[buffer]);
            __syncthreads(); /* what is written next is the buffer that was multiplied before this */
        }
    }

    OG_FN void run(const og_args &a, const og_band &band, og_index n, og_redo_all &shared)
    {
#pragma unroll 1
        for (int product = 0; product < OG_PRODUCTS; product++)
            run_one(a, product, band, n, shared);
    }
};

/* ---- pass 0 ---------------------------------------------------------------------------------- */

/* Pass 0 on rows [first, first + OG_REDO_ROWS) of the list, those of tile m, in columns from n on.
 * from: their sums, or (whole) those of all rows of the tile; of the second product `apart` rows
 * further. A run is finished by 32 / OG_V threads. */
OG_FN void og_finish_redone(const og_args &a, og_index m, og_index n, int first, int count,
                            const og_redone *from, int apart, bool whole,
                            const og_redo_shared &shared)
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
        const int listed = shared.list[f.there ? first + row : count - 1];
        f.index = m + listed;
#pragma unroll
        for (int p = 0; p < OG_PRODUCTS; p++)
#pragma unroll
            for (int v = 0; v < part::vectors; v++)
                f.sums[p][v] = *(const og_vector_sums *)&from[p * apart + (whole ? listed : row)]
                                                             [column + part::apart * v];
        og_finish_fragment(a, f);
    }
}

/* Computes the tiles, of a band of rows and two runs of columns, of which a run has many marked rows.
 * Eight bands share columns: what blocks that run at the same time read is read from L2. */
OG_FN void og_redo_tiles(const og_args &a, og_redo_shared &shared)
{
    const og_index pairs = (a.runs + 1) / 2, each = a.redo_groups * pairs;
    for (og_index i = blockIdx.x; i < a.redo_items / a.runs * pairs; i += gridDim.x) {
        const og_index base = i / each, rest = i - base * each, first = rest / (8 * pairs) * 8;
        const og_index height = a.redo_groups - first < 8 ? a.redo_groups - first : 8;
        const og_index at = rest - first * pairs, run = at / height * 2;
        const og_band band = og_find_band(a, base * a.redo_groups + first + at % height);
        bool many = false;
        for (int r = 0; r < 2; r++)
            many |= og_list_rows(a, run + r, band.m, band.end, shared) > OG_REDO_TILE / 2;
        if (!many)
            continue;
        og_redo_tile::run(a, band, run * OG_RUN, shared.all);
#pragma unroll 1
        for (int r = 0; r < 2; r++) {
            const int count = og_list_rows(a, run + r, band.m, band.end, shared);
#pragma unroll 1
            for (int from = 0; from < count; from += OG_REDO_ROWS)
                og_finish_redone(a, band.m, (run + r) * OG_RUN, from, count,
                                 shared.all.product[0][r], 2 * OG_REDO_TILE, true, shared);
            __syncthreads();
        }
    }
}

/* Computes the marked rows of all other runs. */
OG_FN void og_redo_rows(const og_args &a, og_redo_shared &shared)
{
    for (og_index i = blockIdx.x; i < a.redo_items; i += gridDim.x) {
        const og_index run = i % a.runs, n = run * OG_RUN;
        const og_band band = og_find_band(a, i / a.runs);
        const int beside = og_list_rows(a, run ^ 1, band.m, band.end, shared);
        const int count = og_list_rows(a, run, band.m, band.end, shared);
        if (beside > OG_REDO_TILE / 2 || count > OG_REDO_TILE / 2)
            continue;
        const int rows = count <= OG_REDO_FEW ? OG_REDO_FEW : OG_REDO_ROWS;
#pragma unroll 1
        for (int first = 0; first < count; first += rows) {
            if (rows == OG_REDO_FEW)
                og_redo_work<1>::run(a, band.base, band.m, n, first, count, shared);
            else
                og_redo_work<8>::run(a, band.base, band.m, n, first, count, shared);
            og_finish_redone(a, band.m, n, first, count, shared.some.product[0], OG_REDO_ROWS,
                             false, shared);
            __syncthreads();
        }
    }
}

OG_KERNEL(og_redo, OG_REDO_THREADS)
{
    extern __shared__ __align__(16) char og_redo_memory[];
    og_redo_shared &shared = *(og_redo_shared *)og_redo_memory;
    og_await_launch();
    if (!og_redoes_all(a) && !*(const uint32_t *)a.any_redo)
        return;
    og_redo_tiles(a, shared);
    og_redo_rows(a, shared);
}
