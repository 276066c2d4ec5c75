/* SPDX-License-Identifier: MIT */
/* Products: left (m, k) times right (n, k), summed over k. The space's dims are batch dims,
 * then m's, then n's; a block computes one tile of m x n and applies the rest of the formula
 * to it while it is in shared memory. A reduction over n leaves one term a row and tile, and
 * finish_rows() adds those up: the product itself is stored only if the formula says so. */
struct Factor {
    const void *data;
    long long stride[MAX_DIMS]; /* over the space */
    long long k_stride;
};

struct ProductArgs {
    Args a;
    Factor factor[4]; /* left and right; of a second product, if there is one */
    long long k, m, n;
    int batch_dims, m_dims, n_dims;
    long long m_tiles, n_tiles, rows; /* rows: batch * m */
    void *terms;                      /* [term][tile of n][row] */
};

__device__ __forceinline__ long long factor_offset(const ProductArgs &p, const Factor &f,
                                                   long long index, int first, int count)
{
    long long at = 0;
    for (int d = first + count - 1; d >= first; d--) {
        long long here = index;
        if (d > first) {
            index /= p.a.extent[d];
            here -= index * p.a.extent[d];
        }
        at += here * f.stride[d];
    }
    return at;
}

/* The rest of the formula, over a finished tile. product[i]: (ROWS, PITCH) of product i;
 * a warp takes a row, its lanes every 32nd column. */
template <template <int> class K, class T, class C, int ROWS, int COLS, int PITCH>
__device__ __forceinline__ void finish_tile(const ProductArgs &p, const C *tile, long long batch,
                                            long long m_tile, long long n_tile)
{
    typedef K<0> S;
    constexpr int EACH = COLS / 32, WARPS = THREADS / 32;
    const Args &a = p.a;
    const int lane = threadIdx.x % 32, n_first = p.batch_dims + p.m_dims;
    long long columns[EACH][S::OPERANDS];
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        const long long n = n_tile * COLS + lane + 32 * j;
#pragma unroll
        for (int i = 0; i < S::OPERANDS; i++)
            columns[j][i] = 0;
        if (n < p.n) {
            move<S::OPERANDS>(a, n, n_first, p.n_dims, columns[j]);
            move<S::OPERANDS>(a, batch, 0, p.batch_dims, columns[j]);
        }
    }
    for (int r = threadIdx.x / 32; r < ROWS; r += WARPS) {
        const long long m = m_tile * ROWS + r;
        if (m >= p.m)
            break;
        long long at[S::OPERANDS] = {};
        move<S::OPERANDS>(a, m, p.batch_dims, p.m_dims, at);
        Partial<C> terms[S::TERMS ? S::TERMS : 1];
#pragma unroll
        for (int t = 0; t < S::TERMS; t++)
            terms[t] = start_term<C>(S::kind(t));
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            if (n_tile * COLS + lane + 32 * j >= p.n)
                continue;
            C in[S::LOADS ? S::LOADS : 1], product[S::PRODUCTS];
            C out[S::STORES ? S::STORES : 1], term[S::TERMS ? S::TERMS : 1];
#pragma unroll
            for (int i = 0; i < S::PRODUCTS; i++)
                product[i] = tile[(i * ROWS + r) * PITCH + lane + 32 * j];
#pragma unroll
            for (int l = 0; l < S::LOADS; l++) {
                const int i = S::loaded(l);
                in[l] = load<T, C>(a.data[i], at[i] + columns[j][i], (S::KEPT >> i & 1));
            }
            S::template element<C>(a.number, in, product, (const C *)0, out, term);
#pragma unroll
            for (int s = 0; s < S::STORES; s++) {
                const int i = S::stored(s);
                store<T, C>(a.data[i], at[i] + columns[j][i], (S::KEPT >> i & 1), out[s]);
            }
#pragma unroll
            for (int t = 0; t < S::TERMS; t++)
                add_term(S::kind(t), terms[t], term[t]);
        }
#pragma unroll
        for (int t = 0; t < S::TERMS; t++) {
#pragma unroll
            for (int delta = 16; delta > 0; delta /= 2)
                terms[t] = join_terms(S::kind(t), terms[t], other_term(terms[t], delta));
            if (lane == 0)
                ((Partial<C> *)p.terms)[(t * p.n_tiles + n_tile) * p.rows + batch * p.m + m] =
                    terms[t];
        }
    }
}

/* CUDA cores: for double, and for GPUs that lack what product_tensor() needs. Tiles of
 * 64 x 64, a thread 4 x 4 of it; k is summed in runs of 256, whose sums are added. */
constexpr int PLAIN_TILE = 64, PLAIN_K = 16, PLAIN_RUN = 256, PLAIN_PITCH = PLAIN_TILE + 1;

template <template <int> class K, class T>
__global__ void __launch_bounds__(THREADS) product_plain(const ProductArgs p)
{
    typedef K<0> S;
    typedef typename ComputedIn<T>::type C;
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ C x[2][PLAIN_K][PLAIN_PITCH];
    C *tile = (C *)shared;
    const int thread = threadIdx.x, tr = thread / 16, tc = thread % 16;
    const long long m_tile = blockIdx.x % p.m_tiles, n_tile = blockIdx.x / p.m_tiles % p.n_tiles;
    const long long batch = blockIdx.x / p.m_tiles / p.n_tiles;
#pragma unroll 1
    for (int i = 0; i < S::PRODUCTS; i++) {
        C total[4][4] = {}, run[4][4] = {};
        for (long long k = 0; k < p.k; k += PLAIN_K) {
            for (int e = thread; e < 2 * PLAIN_TILE * PLAIN_K; e += THREADS) {
                const int side = e / (PLAIN_TILE * PLAIN_K);
                const Factor &f = p.factor[2 * i + side];
                const int by_k = f.k_stride == 1, in_side = e % (PLAIN_TILE * PLAIN_K);
                const int r = by_k ? in_side / PLAIN_K : in_side % PLAIN_TILE;
                const int q = by_k ? in_side % PLAIN_K : in_side / PLAIN_TILE;
                const long long row = (side ? n_tile : m_tile) * PLAIN_TILE + r;
                C value = (C)0;
                if (row < (side ? p.n : p.m) && k + q < p.k) {
                    const int first = p.batch_dims + (side ? p.m_dims : 0);
                    const long long at =
                        factor_offset(p, f, batch, 0, p.batch_dims) +
                        factor_offset(p, f, row, first, side ? p.n_dims : p.m_dims);
                    value = load<T, C>(f.data, at + (k + q) * f.k_stride,
                                       S::KEPT_FACTORS >> (2 * i + side) & 1);
                }
                x[side][q][r] = value;
            }
            __syncthreads();
            for (int q = 0; q < PLAIN_K; q++)
#pragma unroll
                for (int r = 0; r < 4; r++)
#pragma unroll
                    for (int c = 0; c < 4; c++)
                        run[r][c] = fma(x[0][q][tr + 16 * r], x[1][q][tc + 16 * c], run[r][c]);
            __syncthreads();
            if ((k + PLAIN_K) % PLAIN_RUN == 0 || k + PLAIN_K >= p.k)
#pragma unroll
                for (int r = 0; r < 4; r++)
#pragma unroll
                    for (int c = 0; c < 4; c++) {
                        total[r][c] += run[r][c];
                        run[r][c] = (C)0;
                    }
        }
#pragma unroll
        for (int r = 0; r < 4; r++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                tile[(i * PLAIN_TILE + tr + 16 * r) * PLAIN_PITCH + tc + 16 * c] = total[r][c];
    }
    __syncthreads();
    finish_tile<K, T, C, PLAIN_TILE, PLAIN_TILE, PLAIN_PITCH>(p, tile, batch, m_tile, n_tile);
}
