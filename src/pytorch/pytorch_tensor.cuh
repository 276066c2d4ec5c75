/* SPDX-License-Identifier: MIT */
/* Tensor cores, for float, float16 and bfloat16 (compute capability 8.0 and later).
 *
 * float: each row of a chunk of 32 k is scaled by the power of two that brings its greatest
 * magnitude into [2^14, 2^15) and written as a pair of halves, hi = half(x) and lo =
 * half(x - hi). Three products, lo*hi + hi*lo + hi*hi, are summed over the chunk, unscaled
 * (exactly: powers of two) and added to a float, which after 16 chunks is added to the tile
 * in shared memory, where there is room for it (H100, B200). What a pair loses of an element is
 * below 2^-22 of itself or 2^-40 of the greatest in its chunk of the row, whichever is more;
 * and tensor cores truncate, but over 32 k only. A chunk that pairs cannot hold (infinities,
 * magnitudes beyond 2^100 or below 2^-100, nonzero elements below 2^-30 of its greatest) is
 * multiplied in float instead, by the same block. On an H200, of k = 8192 and weights of either
 * sign, the largest error was 2e-7 of the largest result; of PyTorch's float product 3e-6.
 *
 * Halves: their products are exact, the same tile without the split.
 *
 * A block of 8 warps computes 128 x 128, a warp 64 x 32 of it. While tensor cores work on
 * chunk c, chunk c + 1 is split (thread t takes row t of the 128 + 128) and chunk c + 2 is on
 * its way from memory (cp.async). */
constexpr int TILE = 128, CHUNK = 32, PAIR_PITCH = CHUNK + 8, FINISH_PITCH = TILE + 4;

template <class T> struct RawTile {
    /* Rows of k (ways 0, 1) or k's of rows (ways 2, 3); pitches keep 16-byte alignment and
     * spread rows over the banks. */
    static constexpr int PITCH = CHUNK + 16 / sizeof(T), ROW_PITCH = TILE + 16 / sizeof(T);
    static constexpr int COUNT = TILE * PITCH;
};

template <class P> struct TensorShared {
    static constexpr int PARTS = sizeof(P) == 4 ? 2 : 1; /* hi and lo, or the half itself */
    P raw[2][2][RawTile<P>::COUNT];          /* [stage][left, right] */
    unsigned short half[2][PARTS][2 * TILE][PAIR_PITCH];
    float scale[2][2 * TILE]; /* to multiply the chunk's sums by */
    long long row_offset[2 * TILE];
};

__device__ __forceinline__ void copy_async(void *to, const void *from, int bytes, int size)
{
    const unsigned at = (unsigned)__cvta_generic_to_shared(to);
    if (size == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from),
                     "r"(bytes));
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at), "l"(from),
                     "r"(bytes));
}

/* What was copied since the last of these is a group; all but the last `under_way` groups are
 * there after wait_copies(). */
__device__ __forceinline__ void end_copies()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int under_way> __device__ __forceinline__ void wait_copies()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(under_way) : "memory");
}

/* One factor's way into shared memory, chunk by chunk. way: 1 rows of k by 16 bytes, 2 k's
 * of rows by 16 bytes, of which a thread moves COPIES a chunk, always the same place of it;
 * 0 and 3 the same by elements. E is what lies in memory, P what is multiplied. */
template <class E, class P> struct Stream {
    static constexpr int V = 16 / sizeof(P), COPIES = TILE * CHUNK / V / THREADS;
    static constexpr int K_LINE = CHUNK / V, ROW_LINE = TILE / V; /* threads along k, along rows */
    const P *from[COPIES];

    /* first: of the batch; offset: [row] */
    __device__ __forceinline__ void start(const Factor &f, long long first, const long long *offset,
                                          int rows)
    {
#pragma unroll
        for (int i = 0; i < COPIES; i++) {
            const int t = threadIdx.x;
            const int r = f.way == 2 ? t % ROW_LINE * V : t / K_LINE + i * (THREADS / K_LINE);
            const int q = f.way == 2 ? t / ROW_LINE + i * (THREADS / ROW_LINE)
                                     : t % K_LINE * V;
            from[i] = (const P *)f.data;
            if (f.way == 1 || f.way == 2)
                from[i] += first + (r < rows ? offset[r] + q * f.k_stride : 0);
        }
    }

    /* Chunk k .. k + CHUNK into raw, zeros beyond the rows and the last k. */
    __device__ __forceinline__ void load(const Factor &f, long long first, const long long *offset,
                                         int rows, long long k, long long k_end, P *raw)
    {
        const long long left = k_end - k; /* > 0 */
        const int ks = left < CHUNK ? (int)left : CHUNK, t = threadIdx.x;
        if (f.way == 1) {
            const int q = t % K_LINE * V, count = min(max(ks - q, 0), V);
#pragma unroll
            for (int i = 0; i < COPIES; i++) {
                const int r = t / K_LINE + i * (THREADS / K_LINE);
                copy_async(raw + r * RawTile<P>::PITCH + q, from[i] + (count ? k : 0),
                           r < rows ? count * (int)sizeof(P) : 0, 16);
            }
        } else if (f.way == 2) {
            const int r = t % ROW_LINE * V, count = min(max(rows - r, 0), V);
#pragma unroll
            for (int i = 0; i < COPIES; i++) {
                const int q = t / ROW_LINE + i * (THREADS / ROW_LINE);
                copy_async(raw + q * RawTile<P>::ROW_PITCH + r,
                           from[i] + (q < ks ? k * f.k_stride : 0),
                           q < ks ? count * (int)sizeof(P) : 0, 16);
            }
        } else {
            load_elements(f, first, offset, rows, k, ks, raw);
        }
    }

    __device__ __forceinline__ static void load_elements(const Factor &f, long long first,
                                                      const long long *offset, int rows,
                                                      long long k, int ks, P *raw)
    {
        const bool by_rows = f.way == 3;
        const E *base = (const E *)f.data + first;
        for (int i = threadIdx.x; i < TILE * CHUNK; i += THREADS) {
            const int r = by_rows ? i % TILE : i / CHUNK, q = by_rows ? i / TILE : i % CHUNK;
            P *to = raw + (by_rows ? q * RawTile<P>::ROW_PITCH + r : r * RawTile<P>::PITCH + q);
            const bool inside = r < rows && q < ks;
            const E *source = inside ? base + offset[r] + (k + q) * f.k_stride : base;
            if constexpr (sizeof(E) != sizeof(P))
                *to = inside ? (P)number_of(*source) : (P)0;
            else if constexpr (sizeof(P) == 4)
                copy_async(to, source, inside ? 4 : 0, 4);
            else
                *to = inside ? *(const P *)source : P{};
        }
    }
};

template <class T> __device__ __forceinline__ T raw_at(const T *raw, int way, int r, int q)
{
    return raw[way >= 2 ? q * RawTile<T>::ROW_PITCH + r : r * RawTile<T>::PITCH + q];
}

/* The 32 elements of row r. */
template <class T>
__device__ __forceinline__ void read_row(const T *raw, int way, int r, T *x)
{
    constexpr int V = 16 / sizeof(T);
    if (way >= 2) {
#pragma unroll
        for (int q = 0; q < CHUNK; q++)
            x[q] = raw[q * RawTile<T>::ROW_PITCH + r];
    } else {
#pragma unroll
        for (int q = 0; q < CHUNK; q += V)
            *(uint4 *)(x + q) = *(const uint4 *)(raw + r * RawTile<T>::PITCH + q);
    }
}

/* half(low) | half(high) << 16 */
__device__ __forceinline__ unsigned pack_halves(float low, float high)
{
    unsigned pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

/* The lesser magnitude of either half. */
__device__ __forceinline__ unsigned lesser_halves(unsigned a, unsigned b)
{
    asm("{.reg .b32 m; abs.f16x2 m, %1; min.f16x2 %0, %0, m;}" : "+r"(a) : "r"(b));
    return a;
}

/* Row r as pairs of halves; true if they cannot hold it. (NaN they do: the product is NaN.) */
__device__ __forceinline__ bool prepare_row(const float *raw, int way, int r,
                                            unsigned short *hi, unsigned short *lo, float *scale)
{
    alignas(16) float x[CHUNK];
    read_row(raw, way, r, x);
    float greatest = 0.0f;
#pragma unroll
    for (int q = 0; q < CHUNK; q++)
        greatest = fmaxf(greatest, fabsf(x[q]));
    const unsigned exponent = og_bits_f32(greatest) >> 23;
    bool holds = greatest == 0.0f || (exponent >= 27 && exponent < 227);
    const bool scales = holds && greatest != 0.0f;
    const float up = scales ? og_float_bits((268u - exponent) << 23) : 1.0f;
    *scale = scales ? og_float_bits((exponent - 14u) << 23) : 1.0f;
    unsigned least = 0x7bff7bffu;
#pragma unroll
    for (int q = 0; q < CHUNK; q += 8) {
        unsigned h[4], l[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float x0 = x[q + 2 * i] * up, x1 = x[q + 2 * i + 1] * up;
            h[i] = pack_halves(x0, x1);
            l[i] = pack_halves(x0 - og_f32_from_f16((unsigned short)h[i]),
                               x1 - og_f32_from_f16((unsigned short)(h[i] >> 16)));
            least = lesser_halves(least, h[i]);
        }
        *(uint4 *)(hi + q) = make_uint4(h[0], h[1], h[2], h[3]);
        *(uint4 *)(lo + q) = make_uint4(l[0], l[1], l[2], l[3]);
    }
    /* 2^-14, the least normal half: something here is small, or 0. */
    if ((least & 0xffffu) < 0x0400u || least >> 16 < 0x0400u)
        for (int q = 0; q < CHUNK; q++) {
            const float magnitude = fabsf(raw_at(raw, way, r, q));
            holds = holds && (magnitude == 0.0f || !(magnitude < greatest * 0x1p-30f));
        }
    return !holds;
}

/* Halves are as they are. */
template <class T>
__device__ __forceinline__ bool prepare_row(const T *raw, int way, int r, unsigned short *to,
                                            unsigned short *, float *scale)
{
    alignas(16) T x[CHUNK];
    read_row(raw, way, r, x);
#pragma unroll
    for (int q = 0; q < CHUNK; q += 8)
        *(uint4 *)(to + q) = *(const uint4 *)(x + q);
    *scale = 1.0f;
    return false;
}

__device__ __forceinline__ void load_matrices(unsigned *to, const unsigned short *from)
{
    const unsigned at = (unsigned)__cvta_generic_to_shared(from);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at));
}

template <class P> struct IsBfloat16 {
    static constexpr int value = 0;
};
template <> struct IsBfloat16<Bfloat16> {
    static constexpr int value = 1;
};

/* sum (16 x 8) = left (16 x 16) right (16 x 8), added to what it was unless this is first. */
template <class P>
__device__ __forceinline__ void multiply(float *sum, const unsigned *left, const unsigned *right,
                                         bool first)
{
#define MULTIPLY(type, c0, c1, c2, c3)                                                         \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                         \
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"                  \
        : "=f"(sum[0]), "=f"(sum[1]), "=f"(sum[2]), "=f"(sum[3])                               \
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]),               \
          "r"(right[1]), "f"(c0), "f"(c1), "f"(c2), "f"(c3))
    if (IsBfloat16<P>::value && first)
        MULTIPLY("bf16", 0.0f, 0.0f, 0.0f, 0.0f);
    else if (IsBfloat16<P>::value)
        MULTIPLY("bf16", sum[0], sum[1], sum[2], sum[3]);
    else if (first)
        MULTIPLY("f16", 0.0f, 0.0f, 0.0f, 0.0f);
    else
        MULTIPLY("f16", sum[0], sum[1], sum[2], sum[3]);
#undef MULTIPLY
}

/* total += the products of a prepared chunk, for this warp's 64 x 32. */
template <class T>
__device__ __forceinline__ void multiply_chunk(const TensorShared<T> &s, int stage, int warp_m,
                                               int warp_n, float (*total)[4][4])
{
    constexpr int PARTS = TensorShared<T>::PARTS;
    const int lane = threadIdx.x % 32;
    float sum[4][4][4];
#pragma unroll
    for (int q = 0; q < CHUNK; q += 16) {
        unsigned left[PARTS][4][4], right[PARTS][2][4];
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            const unsigned short(*half)[PAIR_PITCH] = s.half[stage][part];
#pragma unroll
            for (int i = 0; i < 4; i++)
                load_matrices(left[part][i],
                              &half[64 * warp_m + 16 * i + lane % 16][q + lane / 16 * 8]);
#pragma unroll
            for (int j = 0; j < 2; j++)
                load_matrices(right[part][j], &half[TILE + 32 * warp_n + 16 * j + lane / 16 * 8 +
                                                    lane % 8][q + lane / 8 % 2 * 8]);
        }
#pragma unroll
        for (int which = PARTS == 2 ? 0 : 2; which < 3; which++) /* lo*hi, hi*lo, hi*hi */
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    multiply<T>(sum[i][j], left[which == 0 ? PARTS - 1 : 0][i],
                                right[which == 1 ? PARTS - 1 : 0][j / 2] + j % 2 * 2,
                                q == 0 && which == (PARTS == 2 ? 0 : 2));
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int r = 64 * warp_m + 16 * i + lane / 4 + e / 2 * 8;
                const int c = 32 * warp_n + 8 * j + lane % 4 * 2 + e % 2;
                total[i][j][e] =
                    PARTS == 1 ? total[i][j][e] + sum[i][j][e]
                               : fmaf(sum[i][j][e] * s.scale[stage][r], s.scale[stage][TILE + c],
                                      total[i][j][e]);
            }
}

/* The same in float, for what pairs cannot hold. */
template <class P>
__device__ __forceinline__ void multiply_plainly(const TensorShared<P> &s, int stage, int left_way,
                                                 int right_way, int warp_m, int warp_n,
                                                 float (*total)[4][4])
{
    const int lane = threadIdx.x % 32;
    float sum[4][4][4] = {};
#pragma unroll 1
    for (int q = 0; q < CHUNK; q++) {
        float left[8], right[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            left[i] = number_of(
                raw_at(s.raw[stage][0], left_way, 64 * warp_m + 8 * i + lane / 4, q));
            right[i] = number_of(raw_at(s.raw[stage][1], right_way,
                                        32 * warp_n + i / 2 * 8 + lane % 4 * 2 + i % 2, q));
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    sum[i][j][e] =
                        fmaf(left[2 * i + e / 2], right[2 * j + e % 2], sum[i][j][e]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                total[i][j][e] += sum[i][j][e];
}

/* This warp's 64 x 32 of a tile (TILE, FINISH_PITCH): set, or added to. */
__device__ __forceinline__ void put_total(float *tile, bool adds, const float (*total)[4][4])
{
    const int lane = threadIdx.x % 32, warp_m = threadIdx.x / 128, warp_n = threadIdx.x / 32 % 4;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int r = 64 * warp_m + 16 * i + lane / 4 + e / 2 * 8;
                const int c = 32 * warp_n + 8 * j + lane % 4 * 2 + e % 2;
                float *to = &tile[r * FINISH_PITCH + c];
                *to = adds ? *to + total[i][j][e] : total[i][j][e];
            }
}

template <class T, bool is_kept> struct Held {
    typedef T type;
};
template <class T> struct Held<T, true> {
    typedef float type;
};

/* One product of the tile, left in registers; if tile is not NULL, runs of RUN chunks are
 * added up there, and true says that something is. kept: which of its factors is a float that
 * an earlier kernel kept (1: left, 2: right); P is what is multiplied, float if either is. */
template <int kept, class T, class P>
__device__ __forceinline__ bool multiply_tile(const ProductArgs &p, const Factor *f,
                                              TensorShared<P> &s, long long batch,
                                              long long m_tile, long long n_tile, float *tile,
                                              float (*total)[4][4])
{
    constexpr int PARTS = TensorShared<P>::PARTS, RUN = 16;
    const int thread = threadIdx.x, warp = thread / 32, warp_m = warp / 4, warp_n = warp % 4;
    const int side = thread / TILE, mine = thread % TILE; /* the row that this thread splits */
    const long long rows = side ? p.n - n_tile * TILE : p.m - m_tile * TILE;
    if (mine < rows)
        s.row_offset[thread] =
            factor_offset(p, f[side], (side ? n_tile : m_tile) * TILE + mine,
                          p.batch_dims + (side ? p.m_dims : 0), side ? p.n_dims : p.m_dims);
    __syncthreads();
    Stream<typename Held<T, (kept & 1) != 0>::type, P> left;
    Stream<typename Held<T, (kept & 2) != 0>::type, P> right;
    const int left_rows = (int)min(p.m - m_tile * TILE, (long long)TILE);
    const int right_rows = (int)min(p.n - n_tile * TILE, (long long)TILE);
    const long long left_first = factor_offset(p, f[0], batch, 0, p.batch_dims);
    const long long right_first = factor_offset(p, f[1], batch, 0, p.batch_dims);
    left.start(f[0], left_first, s.row_offset, left_rows);
    right.start(f[1], right_first, s.row_offset + TILE, right_rows);
    const int chunks = (int)((p.k + CHUNK - 1) / CHUNK);
    const int my_way = side ? f[1].way : f[0].way;
    bool put = false;
    /* Chunk c into stage c % 2; nothing is under way for those that do not exist. */
#define LOAD(c)                                                                                \
    do {                                                                                       \
        if ((c) < chunks) {                                                                    \
            left.load(f[0], left_first, s.row_offset, left_rows, (long long)(c) * CHUNK, p.k,  \
                      s.raw[(c) % 2][0]);                                                      \
            right.load(f[1], right_first, s.row_offset + TILE, right_rows,                     \
                       (long long)(c) * CHUNK, p.k, s.raw[(c) % 2][1]);                        \
        }                                                                                      \
        end_copies();                                                                          \
    } while (0)
#define PREPARE(c)                                                                             \
    prepare_row(s.raw[(c) % 2][side], my_way, mine, s.half[(c) % 2][0][thread],                \
                s.half[(c) % 2][PARTS - 1][thread], &s.scale[(c) % 2][thread])
    LOAD(0);
    LOAD(1);
    wait_copies<1>();
    __syncthreads();
    bool mine_fails = chunks > 0 && PREPARE(0);
    for (int c = 0; c < chunks; c++) {
        wait_copies<0>(); /* chunk c + 1 is there */
        const bool fails = __syncthreads_or(mine_fails);
        if (fails) {
            multiply_plainly(s, c % 2, f[0].way, f[1].way, warp_m, warp_n, total);
            __syncthreads(); /* before the chunk's stage is written again */
        }
        LOAD(c + 2);
        /* Half of the warps split first, half multiply first: both units are busy. */
        mine_fails = false;
        if (warp % 2 && c + 1 < chunks)
            mine_fails = PREPARE(c + 1);
        if (!fails)
            multiply_chunk(s, c % 2, warp_m, warp_n, total);
        if (warp % 2 == 0 && c + 1 < chunks)
            mine_fails = PREPARE(c + 1);
        if (tile && c % RUN == RUN - 1) {
            put_total(tile, put, total);
            put = true;
#pragma unroll
            for (int i = 0; i < 64; i++)
                total[i / 16][i / 4 % 4][i % 4] = 0.0f;
        }
    }
    wait_copies<0>();
    __syncthreads();
    return put;
#undef LOAD
#undef PREPARE
}

template <class T, bool is_any_kept> struct Multiplied {
    typedef T type;
};
template <class T> struct Multiplied<T, true> {
    typedef float type;
};

template <template <int> class K, class T>
__global__ void __launch_bounds__(THREADS, 1) product_tensor(const ProductArgs p, bool has_room)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    typedef K<0> S;
    typedef typename Multiplied<T, S::KEPT_FACTORS != 0>::type P;
    extern __shared__ __align__(16) unsigned char shared[];
    TensorShared<P> &s = *(TensorShared<P> *)shared;
    const long long m_tile = blockIdx.x % p.m_tiles, n_tile = blockIdx.x / p.m_tiles % p.n_tiles;
    const long long batch = blockIdx.x / p.m_tiles / p.n_tiles;
    float total[S::PRODUCTS][4][4][4] = {};
    float *tile = (float *)(shared + (has_room ? sizeof(TensorShared<P>) : 0));
    const bool put = multiply_tile<(S::KEPT_FACTORS & 3), T, P>(
        p, p.factor, s, batch, m_tile, n_tile, has_room ? tile : (float *)0, total[0]);
    if constexpr (S::PRODUCTS > 1)
        multiply_tile<(S::KEPT_FACTORS >> 2), T, P>(p, p.factor + 2, s, batch, m_tile, n_tile,
                                                    (float *)0, total[1]);
#pragma unroll
    for (int i = 0; i < S::PRODUCTS; i++)
        put_total(tile + i * TILE * FINISH_PITCH, i == 0 && put, total[i]);
    __syncthreads();
    finish_tile<K, T, float, TILE, TILE, FINISH_PITCH>(p, tile, batch, m_tile, n_tile);
#endif
}
