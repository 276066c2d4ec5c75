/* SPDX-License-Identifier: MIT */
/* Tensor cores, for float, float16 and bfloat16 (compute capability 8.0 and later).
 *
 * float: x is scaled by a power of two and written as a pair of halves, hi = half(x) and lo =
 * half(x - hi). Three products, lo*hi + hi*lo + hi*hi, are summed by tensor cores over 32 k,
 * the small ones first, unscaled (exactly: powers of two) and added to a float, which after
 * RUN k is added to the tile. Scales bring the greatest magnitude into [2^14, 2^15), of RUN k
 * of a row of the one factor, of 32 k of a row of the other. What a pair loses of an element
 * is below 2^-22 of itself or 2^-40 of that greatest, whichever is more; and tensor cores
 * truncate, but over 32 k only. What pairs cannot hold (infinities, magnitudes beyond 2^100 or
 * below 2^-100, nonzero elements below 2^-30 of the greatest) is multiplied in float instead,
 * by the warp that meets it.
 *
 * Halves: their products are exact, the same without the split.
 *
 * The factor of fewer rows is arranged beforehand, by arrange(), and comes as pairs; the other
 * is read as it lies, if that is along k by 16 bytes, and split on its way from shared memory
 * to registers. A block of 8 warps computes 128 x 128; a warp 32 rows of the direct factor and
 * 64 of the arranged. A stage of shared memory is a line of 128 bytes of each row: 32 k. */
constexpr int TILE = 128, LINE = 128, RUN = 512, FINISH_PITCH = TILE + 1;
constexpr int STAGE_BYTES = 2 * TILE * LINE; /* direct, then arranged */

/* k of a line, of `size` bytes each; a line has four fragments of 16 halves: hi, hi, lo, lo of
 * pairs, or the halves themselves. */
__host__ __device__ constexpr int line_k(int size) { return LINE / size; }

struct TensorArgs {
    ProductArgs p;
    int arranged;                   /* the factor that is: 0 left, 1 right */
    int stages, steps;              /* of shared memory; lines that k takes */
    Factor direct[2];               /* [product], along k by 16 bytes */
    const unsigned short *lines[2]; /* [product]: [row of all batches][step][64] */
    const float *scales[2];         /* [run][row]: to multiply sums by; 0: not held */
    float *tiles;                   /* [block], where shared memory has no room */
};

/* Where in its line element k is: of the direct factor, lane 4 g + t of a warp reads neighbours,
 * line_k / 4 of them, and these are to meet their like. */
template <class P> __device__ __forceinline__ int place_of(int k)
{
    constexpr int EACH = line_k(sizeof(P)) / 4;
    return k % EACH / 4 * 16 + k / 2 % 2 * 8 + k / EACH * 2 + k % 2;
}

/* 2^14 <= greatest * up < 2^15, up * down = 1; false if pairs cannot hold that. */
__device__ __forceinline__ bool find_scale(float greatest, float &up, float &down)
{
    const unsigned exponent = og_bits_f32(greatest) >> 23;
    const bool scales = exponent >= 27 && exponent < 227;
    up = scales ? og_float_bits((268u - exponent) << 23) : 1.0f;
    down = scales ? og_float_bits((exponent - 14u) << 23) : 1.0f;
    return scales || greatest == 0.0f;
}

/* Does a pair lose more of x than it should? */
__device__ __forceinline__ bool is_lost(float x, float greatest)
{
    return x != 0.0f && fabsf(x) < greatest * 0x1p-30f;
}

/* The rows of p.factor[which], of all batches, arranged: as lines of fragments, or (is_direct) as
 * they are, along k. A warp takes RUN k of a row. P is what is multiplied: T, or float. */
template <class T, class P, bool is_direct>
__global__ void __launch_bounds__(THREADS)
    arrange(const ProductArgs p, int which, bool is_kept, int steps, void *to, float *scales)
{
    constexpr int K = line_k(sizeof(P)), WARPS = THREADS / 32;
    const Factor &f = p.factor[which];
    const bool right = which % 2;
    const int lane = threadIdx.x % 32;
    const long long rows = right ? p.n : p.m, all = p.rows / p.m * rows;
    const long long groups = (all + WARPS - 1) / WARPS, run = blockIdx.x / groups;
    const long long row = blockIdx.x % groups * WARPS + threadIdx.x / 32;
    if (row >= all)
        return;
    const long long first = factor_offset(p, f, row / rows, 0, p.batch_dims) +
                            factor_offset(p, f, row % rows, p.batch_dims + (right ? p.m_dims : 0),
                                          right ? p.n_dims : p.m_dims);
    P x[RUN / 32];
#pragma unroll
    for (int i = 0; i < RUN / 32; i++) {
        const long long k = run * RUN + 32 * i + lane, at = first + k * f.k_stride;
        if (k >= p.k)
            x[i] = P{};
        else if constexpr (sizeof(P) == 4)
            x[i] = load<T, float>(f.data, at, is_kept);
        else
            x[i] = ((const P *)f.data)[at];
    }
    float up = 1.0f;
    if constexpr (sizeof(P) == 4 && !is_direct) {
        float greatest = 0.0f, down;
#pragma unroll
        for (int i = 0; i < RUN / 32; i++)
            greatest = fmaxf(greatest, fabsf(x[i]));
#pragma unroll
        for (int delta = 16; delta > 0; delta /= 2)
            greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, delta));
        bool fails = !find_scale(greatest, up, down);
#pragma unroll
        for (int i = 0; i < RUN / 32; i++)
            fails = fails || is_lost(x[i], greatest);
        fails = __any_sync(0xffffffffu, fails);
        up = fails ? 0.0f : up; /* nothing may come of it: see multiply_plainly() */
        if (lane == 0)
            scales[run * all + row] = fails ? 0.0f : down;
    }
#pragma unroll
    for (int i = 0; i < RUN / 32; i++) {
        const long long k = run * RUN + 32 * i + lane, step = k / K;
        if (step >= steps)
            break;
        if constexpr (is_direct) {
            ((P *)to)[row * steps * K + k] = x[i];
        } else {
            unsigned short *line = (unsigned short *)to + (row * steps + step) * 64;
            const int place = place_of<P>((int)(k % K));
            if constexpr (sizeof(P) == 4) {
                const float y = up == 0.0f ? 0.0f : x[i] * up;
                line[place] = og_f16_from_f32(y);
                line[32 + place] = og_f16_from_f32(y - og_f32_from_f16(line[place]));
            } else {
                line[place] = *(const unsigned short *)&x[i];
            }
        }
    }
}

/* 16 bytes, of which the first `bytes` are read, the others 0. */
__device__ __forceinline__ void copy_async(void *to, const void *from, int bytes)
{
    const unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes)
                 : "memory");
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

/* threadIdx.x, for places that the compiler shall find anew at every use: kept in registers,
 * they would leave too few for what is multiplied. */
__device__ __forceinline__ int this_thread()
{
    int thread = threadIdx.x;
    asm volatile("" : "+r"(thread));
    return thread;
}

/* 16 bytes of a line: 8 neighbouring rows have them in different banks. */
__device__ __forceinline__ int unit_at(int row, int unit)
{
    return row * LINE + ((unit ^ row % 8) << 4);
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

__device__ __forceinline__ void load_matrices(unsigned *to, const unsigned char *from)
{
    const unsigned at = (unsigned)__cvta_generic_to_shared(from);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
}

template <class P> struct IsBfloat16 {
    static constexpr int value = 0;
};
template <> struct IsBfloat16<Bfloat16> {
    static constexpr int value = 1;
};

/* sum (16 x 8) = left (16 x 16) right (16 x 8), added to what it was unless this is first.
 * volatile: in the order of the text, chains in turn. */
template <class P>
__device__ __forceinline__ void multiply(float *sum, const unsigned *left, const unsigned *right,
                                         bool first)
{
#define MULTIPLY(type, c0, c1, c2, c3)                                                         \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"         \
                 : "=f"(sum[0]), "=f"(sum[1]), "=f"(sum[2]), "=f"(sum[3])                      \
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]),      \
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

/* 16 rows of the direct factor: of lane 4 g + t, rows g and g + 8. */
struct Fragments {
    unsigned part[4][4];
    float scale[2]; /* to multiply sums of that row by */
    bool doubts;    /* pairs may not hold them: see fails() */
};

/* Of rows g and g + 8 (half) of those that start at `row`: two of the eight 16 bytes. */
__device__ __forceinline__ void read_line(const unsigned char *stage, int row, int half, uint4 *to)
{
    const int lane = threadIdx.x % 32, at = unit_at(row + lane / 4, lane % 4 * 2) + half * 8 * LINE;
    to[0] = *(const uint4 *)(stage + at);
    to[1] = *(const uint4 *)(stage + (at ^ 16));
}

/* Of 32 k of a row, of which four lanes have 8 each. A NaN is none. */
__device__ __forceinline__ float find_greatest(const float *x)
{
    float greatest = 0.0f;
#pragma unroll
    for (int q = 0; q < 8; q++)
        greatest = fmaxf(greatest, fabsf(x[q]));
    greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, 1));
    return fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, 2));
}

__device__ __forceinline__ void take_rows(const unsigned char *stage, int row, Fragments &f, float)
{
    unsigned least = 0x7bff7bffu;
    f.doubts = false;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        alignas(16) float x[8];
        float up;
        read_line(stage, row, h, (uint4 *)x);
        f.doubts |= !find_scale(find_greatest(x), up, f.scale[h]);
#pragma unroll
        for (int q = 0; q < 8; q += 2) {
            const float x0 = x[q] * up, x1 = x[q + 1] * up;
            const unsigned hi = pack_halves(x0, x1);
            f.part[q / 4][q % 4 + h] = hi;
            f.part[2 + q / 4][q % 4 + h] =
                pack_halves(x0 - og_f32_from_f16((unsigned short)hi),
                            x1 - og_f32_from_f16((unsigned short)(hi >> 16)));
            least = lesser_halves(least, hi);
        }
    }
    /* 2^-14, the least normal half: something here is small, or 0. */
    f.doubts |= (least & 0xffffu) < 0x0400u || least >> 16 < 0x0400u;
}

template <class P>
__device__ __forceinline__ void take_rows(const unsigned char *stage, int row, Fragments &f, P)
{
    f.doubts = false;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        alignas(16) unsigned x[8];
        read_line(stage, row, h, (uint4 *)x);
        f.scale[h] = 1.0f;
#pragma unroll
        for (int q = 0; q < 8; q++)
            f.part[q / 2][q % 2 * 2 + h] = x[q];
    }
}

/* Can pairs not hold those 16 rows? (NaN they do: the product is NaN.) */
__device__ __forceinline__ bool fails(const unsigned char *stage, int row)
{
    bool any = false;
#pragma unroll 1
    for (int h = 0; h < 2; h++) {
        alignas(16) float x[8];
        float up, down;
        read_line(stage, row, h, (uint4 *)x);
        const float greatest = find_greatest(x);
        any = any || !find_scale(greatest, up, down);
#pragma unroll
        for (int q = 0; q < 8; q++)
            any = any || is_lost(x[q], greatest);
    }
    return __any_sync(0xffffffffu, any);
}

/* sum += the products of a stage, for this warp's 32 x 64. Sixteen chains take turns, so that
 * none waits for itself (H200: a product then takes 6 cycles, in one chain 33). */
template <class P>
__device__ __forceinline__ void multiply_stage(const unsigned char *arranged, int row,
                                               const Fragments *f, float (*sum)[8][4])
{
    constexpr bool PAIRS = sizeof(P) == 4;
    const int lane = threadIdx.x % 32, at = unit_at(row + lane % 8, lane / 8);
    unsigned right[8][8];
    float chain[2][8][4];
#pragma unroll
    for (int j = 0; j < 16; j++)
        load_matrices(right[j % 8] + j / 8 * 4, arranged + (at ^ j / 8 * 64) + j % 8 * 8 * LINE);
#pragma unroll
    for (int n = 0; n < (PAIRS ? 6 : 4); n++) { /* lo*hi, hi*lo, hi*hi, of 16 k each */
        const int a = !PAIRS ? n : n < 2 ? n + 2 : n % 2;
        const int b = !PAIRS || n / 2 == 1 ? n : n % 2;
#pragma unroll
        for (int j = 0; j < 8; j++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                multiply<P>(chain[i][j], f[i].part[a], right[j] + 2 * b, n == 0);
    }
#pragma unroll
    for (int n = 0; n < 64; n++) {
        const int i = n / 32, j = n / 4 % 8, e = n % 4;
        sum[i][j][e] = PAIRS ? fmaf(chain[i][j][e], f[i].scale[e / 2], sum[i][j][e])
                             : sum[i][j][e] + chain[i][j][e];
    }
}

/* A block's tile: rows r on of the direct factor, of r_end, and c on of the arranged. */
struct BlockTile {
    long long batch, m_tile, n_tile, r, r_end, c, c_end;
};

__device__ __forceinline__ BlockTile find_tile(const TensorArgs &a)
{
    const ProductArgs &p = a.p;
    BlockTile t;
    t.m_tile = blockIdx.x % p.m_tiles;
    t.n_tile = blockIdx.x / p.m_tiles % p.n_tiles;
    t.batch = blockIdx.x / p.m_tiles / p.n_tiles;
    t.r = (a.arranged ? t.m_tile : t.n_tile) * TILE;
    t.c = (a.arranged ? t.n_tile : t.m_tile) * TILE;
    t.r_end = a.arranged ? p.m : p.n;
    t.c_end = a.arranged ? p.n : p.m;
    return t;
}

/* Where this thread's sums go: rows r + 16 i and 8 more of the direct factor, c + 8 j and the
 * next of the arranged. */
struct TilePlace {
    float *tile;
    int r_step, c_step, r, c;
};

__device__ __forceinline__ TilePlace find_sums(const TensorArgs &a, float *tile)
{
    const int thread = this_thread();
    return {tile, a.arranged ? FINISH_PITCH : 1, a.arranged ? 1 : FINISH_PITCH,
            thread / 64 * 32 + thread % 32 / 4, thread / 32 % 2 * 64 + thread % 4 * 2};
}

__device__ __forceinline__ float *element_at(const TilePlace &p, int i, int j, int e)
{
    return p.tile + (p.r + 16 * i + e / 2 * 8) * p.r_step + (p.c + 8 * j + e % 2) * p.c_step;
}

/* tile += sums, each times its column's scale (none: 1); which are 0 then. */
__device__ __forceinline__ void add_sums(const TilePlace &place, const float *scales, int columns,
                                         float (*sum)[8][4])
{
    float scale[16];
#pragma unroll
    for (int c = 0; c < 16; c++) {
        const int column = place.c + c / 2 * 8 + c % 2;
        scale[c] = scales && column < columns ? scales[column] : 1.0f;
    }
#pragma unroll
    for (int j = 0; j < 8; j++) {
        float before[8]; /* all loads before a store, which the compiler cannot tell apart */
#pragma unroll
        for (int n = 0; n < 8; n++)
            before[n] = *element_at(place, n / 4, j, n % 4);
#pragma unroll
        for (int n = 0; n < 8; n++) {
            float &from = sum[n / 4][j][n % 4];
            *element_at(place, n / 4, j, n % 4) = fmaf(from, scale[2 * j + n % 2], before[n]);
            from = 0.0f;
        }
    }
}

/* tile += 16 rows of a stage (i: which of this warp's), in float, for what pairs cannot hold. */
template <class T>
__device__ __forceinline__ void multiply_plainly(const TensorArgs &a, const Factor &arranged,
                                                 bool is_kept, const BlockTile &t, long long k,
                                                 const unsigned char *direct, float *tile, int i)
{
    const ProductArgs &p = a.p;
    const TilePlace place = find_sums(a, tile);
    const int dim = p.batch_dims + (a.arranged ? p.m_dims : 0);
    const int dims = a.arranged ? p.n_dims : p.m_dims;
    const int ks = (int)min(p.k - k, (long long)line_k(sizeof(float)));
#pragma unroll 1
    for (int c = 0; c < 16; c++) {
        const long long row = t.c + place.c + c / 2 * 8 + c % 2;
        if (row >= t.c_end)
            continue;
        const long long at = factor_offset(p, arranged, t.batch, 0, p.batch_dims) +
                             factor_offset(p, arranged, row, dim, dims);
#pragma unroll 1
        for (int h = 0; h < 2; h++) {
            const int r = place.r + 16 * i + 8 * h;
            float sum = 0.0f;
            for (int q = 0; q < ks; q++)
                sum = fmaf(*(const float *)(direct + unit_at(r, q / 4) + q % 4 * 4),
                           load<T, float>(arranged.data, at + (k + q) * arranged.k_stride, is_kept),
                           sum);
            *element_at(place, i, c / 2, 2 * h + c % 2) += sum;
        }
    }
}

/* Where row `row` of the tile begins: TILE direct ones, then the arranged. Beyond a factor's last
 * it is that one, whose products count for nothing. */
template <class P>
__device__ __forceinline__ const unsigned char *find_row(const TensorArgs &a, int product,
                                                         const BlockTile &t, int row)
{
    const ProductArgs &p = a.p;
    const Factor &f = a.direct[product];
    if (row >= TILE)
        return (const unsigned char *)a.lines[product] +
               (t.batch * t.c_end + min(t.c + row - TILE, t.c_end - 1)) * a.steps * LINE;
    return (const unsigned char *)((const P *)f.data +
                                   factor_offset(p, f, t.batch, 0, p.batch_dims) +
                                   factor_offset(p, f, min(t.r + row, t.r_end - 1),
                                                 p.batch_dims + (a.arranged ? 0 : p.m_dims),
                                                 a.arranged ? p.m_dims : p.n_dims));
}

/* Starts to copy step `step` to a stage; nothing is under way for those that do not exist.
 * from: [row of the tile]; last_bytes: of this thread's 16 in the last step. */
__device__ __forceinline__ void copy_step(const unsigned char *const *from, int step, int steps,
                                          int last_bytes, unsigned char *stage)
{
    if (step < steps) {
        const int row = threadIdx.x / 8, unit = threadIdx.x % 8;
        const long long at = (long long)step * LINE + unit * 16;
        const int bytes = step + 1 < steps ? 16 : last_bytes;
#pragma unroll
        for (int i = 0; i < 2 * TILE; i += THREADS / 8)
            copy_async(stage + unit_at(row, unit) + i * LINE, from[row + i] + at,
                       i < TILE ? bytes : 16);
    }
    end_copies();
}

/* One product of a tile. P is what is multiplied: T, or float if a factor is kept. */
template <class T, class P>
__device__ __forceinline__ void multiply_tile(const TensorArgs &a, int product, bool is_kept,
                                              const BlockTile &t, unsigned char *shared,
                                              float *tile)
{
    constexpr int K = line_k(sizeof(P)), V = 16 / sizeof(P), STEPS_PER_RUN = RUN / K;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int columns = (int)min(t.c_end - t.c, (long long)TILE);
    const unsigned char **from = (const unsigned char **)(shared + a.stages * STAGE_BYTES);
    from[threadIdx.x] = find_row<P>(a, product, t, threadIdx.x);
    float sum[2][8][4];
    const TilePlace place = find_sums(a, tile);
#pragma unroll
    for (int i = 0; i < 64; i++) {
        sum[i / 32][i / 4 % 8][i % 4] = 0.0f;
        *element_at(place, i / 32, i / 4 % 8, i % 4) = 0.0f;
    }
    __syncthreads();

    const long long left = a.p.k - (a.steps - 1LL) * K - threadIdx.x % 8 * V;
    const int last_bytes = (int)(max(min(left, (long long)V), 0LL) * sizeof(P));
    for (int step = 0; step < a.stages - 1; step++)
        copy_step(from, step, a.steps, last_bytes, shared + step * STAGE_BYTES);

    const int r = warp / 2 * 32, c = warp % 2 * 64; /* this warp's */
    Fragments rows[2];
    const float *scales = (const float *)0;
    bool run_fails = false;
    int now = 0, filled = a.stages - 1; /* stages: of this step, to fill next */
    for (int step = 0; step < a.steps; step++) {
        if (a.stages > 3)
            wait_copies<1>(); /* this step and the next are there */
        else
            wait_copies<0>();
        __syncthreads();
        copy_step(from, step + a.stages - 1, a.steps, last_bytes, shared + filled * STAGE_BYTES);
        filled = now;
        const unsigned char *stage = shared + now * STAGE_BYTES;
        now = now + 1 == a.stages ? 0 : now + 1;
        const unsigned char *next = shared + now * STAGE_BYTES;
        if (step == 0) {
            take_rows(stage, r, rows[0], P{});
            take_rows(stage, r + 16, rows[1], P{});
        }
        if constexpr (sizeof(P) == 4) {
            if (step % STEPS_PER_RUN == 0) {
                scales = a.scales[product] + step / STEPS_PER_RUN * (a.p.rows / a.p.m * t.c_end) +
                         t.batch * t.c_end + t.c;
                run_fails = (c + lane < columns && scales[c + lane] == 0.0f) ||
                            (c + lane + 32 < columns && scales[c + lane + 32] == 0.0f);
                run_fails = __any_sync(0xffffffffu, run_fails);
            }
            if (__any_sync(0xffffffffu, rows[0].doubts || rows[1].doubts || run_fails))
#pragma unroll
                for (int i = 0; i < 2; i++)
                    if (fails(stage, r + 16 * i) || run_fails) {
                        multiply_plainly<T>(a, a.p.factor[2 * product + a.arranged], is_kept, t,
                                            (long long)step * K, stage, tile, i);
                        for (int n = 0; n < 16; n++)
                            rows[i].part[n / 4][n % 4] = 0;
                    }
        }
        multiply_stage<P>(stage + TILE * LINE, c, rows, sum);
        take_rows(next, r, rows[0], P{}); /* after the last: of no use, and no branch */
        take_rows(next, r + 16, rows[1], P{});
        if ((step + 1) % STEPS_PER_RUN == 0 || step + 1 == a.steps)
            add_sums(find_sums(a, tile), scales, columns, sum);
    }
    wait_copies<0>();
    __syncthreads();
}

template <class T, bool is_any_kept> struct Multiplied {
    typedef T type;
};
template <class T> struct Multiplied<T, true> {
    typedef float type;
};

template <template <int> class K, class T>
__global__ void __launch_bounds__(THREADS, 1) product_tensor(const TensorArgs a)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    typedef K<0> S;
    typedef typename Multiplied<T, S::KEPT_FACTORS != 0>::type P;
    extern __shared__ __align__(16) unsigned char shared[];
    constexpr int TILE_FLOATS = TILE * FINISH_PITCH;
    const BlockTile t = find_tile(a);
    float *tile = a.tiles ? a.tiles + blockIdx.x * (long long)(S::PRODUCTS * TILE_FLOATS)
                          : (float *)(shared + a.stages * STAGE_BYTES + 2 * TILE * sizeof(void *));
#pragma unroll 1
    for (int i = 0; i < S::PRODUCTS; i++)
        multiply_tile<T, P>(a, i, S::KEPT_FACTORS >> (2 * i + a.arranged) & 1, t, shared,
                            tile + i * TILE_FLOATS);
    finish_tile<K, T, float, TILE, TILE, FINISH_PITCH>(a.p, tile, t.batch, t.m_tile, t.n_tile);
#endif
}
