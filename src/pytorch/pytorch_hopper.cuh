/* SPDX-License-Identifier: MIT */
/* The same for Hopper (compute capability 9.0; built for sm_90a with -DHOPPER), whose tensor cores
 * read both factors from shared memory themselves, for four warps at once, 64 x 128 (wgmma).
 *
 * A block's first four warps fill the stages, the other eight multiply. To fill one is to bring
 * the arranged factor's lines, which are copied as they are, and the direct factor's: floats are
 * split on their way. Each stage has two barriers, which open when it is full and when it is empty
 * again: none waits for another longer than it must. What pairs cannot hold is multiplied in
 * float, by the warp that multiplies: a scale of 0 tells it. */
constexpr int FILLERS = 128, HOPPER_THREADS = FILLERS + 256;
constexpr int HOPPER_PITCH = TILE + 4; /* a warp's sums are in different banks */
/* Beside a stage: scales of the direct factor's rows, two barriers. */
constexpr int HOPPER_BYTES = STAGE_BYTES + TILE * 4 + 2 * 8;

struct Stages {
    unsigned char *lines;
    float *scales;                    /* [stage][row of the direct factor] */
    unsigned long long *full, *empty; /* barriers, [stage] */
    int count, now, phase;            /* phase: changes when `now` begins again */
};

__device__ __forceinline__ Stages find_stages(unsigned char *shared, int count)
{
    Stages s = {shared, (float *)(shared + count * STAGE_BYTES), 0, 0, count, 0, 0};
    s.full = (unsigned long long *)(s.scales + count * TILE);
    s.empty = s.full + count;
    return s;
}

__device__ __forceinline__ void go_on(Stages &s)
{
    if (++s.now == s.count) {
        s.now = 0;
        s.phase ^= 1;
    }
}

__device__ __forceinline__ unsigned shared_address(const void *at)
{
    return (unsigned)__cvta_generic_to_shared(at);
}

/* A barrier opens after so many arrivals, when the bytes that were announced are there. */
__device__ __forceinline__ void make_barrier(unsigned long long *barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(arrivals)
                 : "memory");
}

__device__ __forceinline__ void arrive(unsigned long long *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
                 : "memory");
}

/* Has the barrier opened for the first, third, ... time (phase 0), the second, fourth, ... (1)? */
__device__ __forceinline__ bool is_open(unsigned long long *barrier, int phase)
{
    int open;
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.b32 %0, 1, 0, p;}"
                 : "=r"(open)
                 : "r"(shared_address(barrier)), "r"(phase)
                 : "memory");
    return open;
}

/* Seconds of waiting are a mistake: better an error than a kernel without end. */
__device__ __forceinline__ void wait_for(unsigned long long *barrier, int phase)
{
    for (int i = 0; !is_open(barrier, phase); i++)
        if (i == 1 << 22)
            __trap();
}

/* Copies a line, announced to the barrier. */
__device__ __forceinline__ void copy_line(void *to, const void *from, unsigned long long *barrier)
{
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;\n"
                 "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%2], [%3], %1, [%0];" ::"r"(shared_address(barrier)),
                 "r"(LINE), "r"(shared_address(to)), "l"(from)
                 : "memory");
}

/* What this thread has stored may be read by tensor cores. */
__device__ __forceinline__ void show_stores()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* sum = left right, 64 x 128 of four warps, added to what it was unless this is first. left (64 x
 * 16) and right (128 x 16) are 32 bytes of lines. Told of lines are: the first one's place, and
 * how far 8 of them are from the next 8, by 16 bytes; that units lie in them as unit_at() says. */
template <class P>
__device__ __forceinline__ void multiply_wide(float (*sum)[4], const unsigned char *left,
                                              const unsigned char *right, bool first)
{
    const unsigned long long lines = 1ull << 62 | 8ull * LINE / 16 << 32 | 1ull << 16;
    const unsigned long long a = lines | shared_address(left) / 16;
    const unsigned long long b = lines | shared_address(right) / 16;
#define FOUR(i) "+f"(sum[i][0]), "+f"(sum[i][1]), "+f"(sum[i][2]), "+f"(sum[i][3])
#define SIXTEEN(i) FOUR(i), FOUR(i + 1), FOUR(i + 2), FOUR(i + 3)
#define MULTIPLY(type)                                                                         \
    asm volatile("{.reg .pred adds; setp.eq.b32 adds, %66, 0;\n"                               \
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type                  \
                 " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "    \
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, " \
                 "%31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, " \
                 "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, " \
                 "%61, %62, %63}, %64, %65, adds, 1, 1, 0, 0;}"                                \
                 : SIXTEEN(0), SIXTEEN(4), SIXTEEN(8), SIXTEEN(12)                             \
                 : "l"(a), "l"(b), "r"((int)first))
    if (IsBfloat16<P>::value)
        MULTIPLY("bf16");
    else
        MULTIPLY("f16");
#undef MULTIPLY
#undef SIXTEEN
#undef FOUR
}

__device__ __forceinline__ void start_products()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/* Until the sum can be read. */
__device__ __forceinline__ void finish_products(float (*sum)[4])
{
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int i = 0; i < 64; i++)
        asm volatile("" : "+f"(sum[i / 4][i % 4])::"memory");
}

/* What a thread fills of a stage: 32 bytes of four rows' lines; four lanes have a row. In a warp's
 * 8 rows, 0 4 1 5 2 6 3 7 are neighbours: stored to different banks. */
struct Part {
    uint4 unit[4][2];
};

__device__ __forceinline__ int part_row(int i)
{
    const int lane = threadIdx.x % 32, row = lane / 4;
    return 32 * i + threadIdx.x / 32 * 8 + row % 2 * 4 + row / 2;
}

/* bytes: that are left of the row, from this thread's first; beyond them it is 0. */
template <class P>
__device__ __forceinline__ void load_part(const unsigned char *const *from, int step,
                                          long long bytes, Part &to)
{
    bytes -= (long long)step * LINE;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const unsigned char *at = from[i / 2] + (long long)step * LINE + i % 2 * 16;
        uint4 &unit = to.unit[i / 2][i % 2];
        if (bytes >= 32) {
            unit = __ldg((const uint4 *)at);
        } else {
            unit = make_uint4(0, 0, 0, 0);
#pragma unroll
            for (int q = 0; q < 16 / (int)sizeof(P); q++)
                if (i % 2 * 16 + q * (int)sizeof(P) < bytes)
                    ((P *)&unit)[q] = ((const P *)at)[q];
        }
    }
}

/* Four rows' 8 floats each as pairs of halves, hi and lo; scales: 0 if pairs do not hold a row. */
__device__ __forceinline__ void split_part(const Part &part, uint4 *hi, uint4 *lo, float *scales)
{
    float greatest[4];
    bool fails[4], doubts = false;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float *x = (const float *)part.unit[i];
        unsigned least = 0x7bff7bffu, *high = (unsigned *)&hi[i], *low = (unsigned *)&lo[i];
        float up;
        greatest[i] = find_greatest(x);
        fails[i] = !find_scale(greatest[i], up, scales[i]);
#pragma unroll
        for (int q = 0; q < 4; q++) {
            const float x0 = x[2 * q] * up, x1 = x[2 * q + 1] * up;
            high[q] = pack_halves(x0, x1);
            low[q] = pack_halves(x0 - og_f32_from_f16((unsigned short)high[q]),
                                 x1 - og_f32_from_f16((unsigned short)(high[q] >> 16)));
            least = lesser_halves(least, high[q]);
        }
        /* 2^-14, the least normal half: something here is small, or 0. */
        doubts = doubts || (least & 0xffffu) < 0x0400u || least >> 16 < 0x0400u;
    }
    if (doubts)
#pragma unroll
        for (int n = 0; n < 32; n++)
            fails[n / 8] = fails[n / 8] ||
                           is_lost(((const float *)part.unit[n / 8])[n % 8], greatest[n / 8]);
#pragma unroll
    for (int i = 0; i < 4; i++) { /* of a row's four lanes */
        const unsigned failed = __ballot_sync(0xffffffffu, fails[i]) >> threadIdx.x % 32 / 4 * 4;
        scales[i] = failed & 15u ? 0.0f : scales[i];
    }
}

template <class P>
__device__ __forceinline__ void store_part(const Part &part, unsigned char *lines, float *scales)
{
    const int quarter = threadIdx.x % 4;
    uint4 units[2][4];
    float scale[4];
    if constexpr (sizeof(P) == 4)
        split_part(part, units[0], units[1], scale);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = part_row(i);
        if constexpr (sizeof(P) == 4) { /* hi: a line's first half; lo: its second */
            *(uint4 *)(lines + unit_at(row, quarter)) = units[0][i];
            *(uint4 *)(lines + unit_at(row, quarter + 4)) = units[1][i];
            if (quarter == 0)
                scales[row] = scale[i];
        } else {
            *(uint4 *)(lines + unit_at(row, 2 * quarter)) = part.unit[i][0];
            *(uint4 *)(lines + unit_at(row, 2 * quarter + 1)) = part.unit[i][1];
        }
    }
}

/* The first warps: what a product of a tile reads. Loads are two steps ahead. */
template <class P>
__device__ __forceinline__ void fill_stages(const TensorArgs &a, int product, const BlockTile &t,
                                            Stages &s)
{
    const unsigned char *lines = find_row<P>(a, product, t, TILE + threadIdx.x), *from[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        from[i] = find_row<P>(a, product, t, part_row(i)) + threadIdx.x % 4 * 32;
    const long long bytes = a.p.k * sizeof(P) - threadIdx.x % 4 * 32;
    Part part[2];
    load_part<P>(from, 0, bytes, part[0]);
    load_part<P>(from, 1, bytes, part[1]);
    for (int first = 0; first < a.steps; first += 2)
#pragma unroll
        for (int i = 0; i < 2; i++)
            if (first + i < a.steps) {
                unsigned char *stage = s.lines + s.now * STAGE_BYTES;
                wait_for(&s.empty[s.now], s.phase ^ 1);
                copy_line(stage + (TILE + threadIdx.x) * LINE,
                          lines + (first + i) * (long long)LINE, &s.full[s.now]);
                store_part<P>(part[i], stage, s.scales + s.now * TILE);
                load_part<P>(from, first + i + 2, bytes, part[i]);
                show_stores();
                arrive(&s.full[s.now]);
                go_on(s);
            }
}

/* Where a thread's sums go: rows r and r + 8 of the direct factor, columns c + 8 j and the next
 * of the arranged. */
__device__ __forceinline__ TilePlace find_wide_sums(const TensorArgs &a, float *tile)
{
    const int thread = this_thread() - FILLERS;
    return {tile, a.arranged ? HOPPER_PITCH : 1, a.arranged ? 1 : HOPPER_PITCH,
            thread / 32 * 16 + thread % 32 / 4, thread % 4 * 2};
}

/* tile += sums, each times its column's scale (none: 1); which are 0 then. */
__device__ __forceinline__ void add_to_tile(const TilePlace &place, const float *scales,
                                            int columns, float (*sum)[4])
{
#pragma unroll
    for (int j = 0; j < 16; j += 2) {
        float before[8]; /* all loads before a store, which the compiler cannot tell apart */
#pragma unroll
        for (int e = 0; e < 8; e++)
            before[e] = *element_at(place, 0, j + e / 4, e % 4);
#pragma unroll
        for (int e = 0; e < 8; e++) {
            const int column = place.c + (j + e / 4) * 8 + e % 2;
            float &from = sum[j + e / 4][e % 4];
            *element_at(place, 0, j + e / 4, e % 4) =
                fmaf(from, scales && column < columns ? scales[column] : 1.0f, before[e]);
            from = 0.0f;
        }
    }
}

/* tile += this warp's products of a step, in float, for what pairs cannot hold. */
template <class T>
__device__ __forceinline__ void multiply_step_plainly(const TensorArgs &a, int product,
                                                      bool is_kept, const BlockTile &t, int step,
                                                      float *tile)
{
    const ProductArgs &p = a.p;
    const Factor &arranged = p.factor[2 * product + a.arranged];
    const TilePlace place = find_wide_sums(a, tile);
    const int dim = p.batch_dims + (a.arranged ? p.m_dims : 0);
    const int dims = a.arranged ? p.n_dims : p.m_dims;
    const long long k = (long long)step * line_k(sizeof(float));
    const int ks = (int)min(p.k - k, (long long)line_k(sizeof(float)));
#pragma unroll 1
    for (int i = 0; i < 64; i++) {
        const int row = place.r + i % 4 / 2 * 8, column = place.c + i / 4 * 8 + i % 2;
        if (t.c + column >= t.c_end)
            continue;
        const float *direct = (const float *)find_row<float>(a, product, t, row) + k;
        const long long at = factor_offset(p, arranged, t.batch, 0, p.batch_dims) +
                             factor_offset(p, arranged, t.c + column, dim, dims);
        float sum = 0.0f;
#pragma unroll 1
        for (int q = 0; q < ks; q++)
            sum = fmaf(direct[q],
                       load<T, float>(arranged.data, at + (k + q) * arranged.k_stride, is_kept),
                       sum);
        *element_at(place, 0, i / 4, i % 4) += sum;
    }
}

/* The other warps: tile = a product. */
template <class T, class P>
__device__ __forceinline__ void multiply_stages(const TensorArgs &a, int product, bool is_kept,
                                                const BlockTile &t, Stages &s, float *tile)
{
    constexpr bool PAIRS = sizeof(P) == 4;
    constexpr int STEPS_PER_RUN = RUN / line_k(sizeof(P));
    const int thread = threadIdx.x - FILLERS, lane = thread % 32;
    const int columns = (int)min(t.c_end - t.c, (long long)TILE);
    const float *scales = (const float *)0; /* of this run's columns */
    bool run_fails = false;
    float sum[16][4] = {};
    for (int step = 0; step < a.steps; step++) {
        if (PAIRS && step % STEPS_PER_RUN == 0) {
            scales = a.scales[product] + step / STEPS_PER_RUN * (a.p.rows / a.p.m * t.c_end) +
                     t.batch * t.c_end + t.c;
            run_fails = false;
            for (int i = lane; i < columns; i += 32)
                run_fails = run_fails || scales[i] == 0.0f;
        }
        const unsigned char *direct = s.lines + s.now * STAGE_BYTES + thread / 128 * 64 * LINE;
        const unsigned char *arranged = s.lines + s.now * STAGE_BYTES + TILE * LINE;
        const float *rows = s.scales + s.now * TILE + thread / 32 * 16 + lane / 4;
        float chain[16][4], scale[2] = {1.0f, 1.0f};
        wait_for(&s.full[s.now], s.phase);
        if (PAIRS) {
            scale[0] = rows[0];
            scale[1] = rows[8];
        }
        start_products();
#pragma unroll
        for (int n = 0; n < (PAIRS ? 6 : 4); n++) /* of pairs lo*hi, hi*lo, hi*hi, of 16 k each */
            multiply_wide<P>(chain, direct + 32 * (!PAIRS ? n : n < 2 ? n + 2 : n % 2),
                             arranged + 32 * (!PAIRS || n / 2 == 1 ? n : n % 2), n == 0);
        finish_products(chain);
        __syncwarp();
        if (lane == 0)
            arrive(&s.empty[s.now]);
        go_on(s);
        if (PAIRS && __any_sync(0xffffffffu, run_fails || scale[0] == 0.0f || scale[1] == 0.0f))
            multiply_step_plainly<T>(a, product, is_kept, t, step, tile);
        else
#pragma unroll
            for (int i = 0; i < 64; i++)
                sum[i / 4][i % 4] = fmaf(chain[i / 4][i % 4], scale[i % 4 / 2], sum[i / 4][i % 4]);
        if ((step + 1) % STEPS_PER_RUN == 0 || step + 1 == a.steps)
            add_to_tile(find_wide_sums(a, tile), scales, columns, sum);
    }
}

template <template <int> class K, class T>
__global__ void __launch_bounds__(HOPPER_THREADS, 1) product_hopper(const TensorArgs a)
{
    typedef K<0> S;
    typedef typename Multiplied<T, S::KEPT_FACTORS != 0>::type P;
    extern __shared__ __align__(1024) unsigned char stages[];
    constexpr int TILE_FLOATS = TILE * HOPPER_PITCH;
    const BlockTile t = find_tile(a);
    Stages s = find_stages(stages, a.stages);
    float *tile = a.tiles ? a.tiles + blockIdx.x * (long long)(S::PRODUCTS * TILE_FLOATS)
                          : (float *)(s.empty + a.stages);
    for (int i = threadIdx.x; i < S::PRODUCTS * TILE_FLOATS; i += HOPPER_THREADS)
        tile[i] = 0.0f;
    if (threadIdx.x < a.stages) {
        make_barrier(&s.full[threadIdx.x], FILLERS);
        make_barrier(&s.empty[threadIdx.x], 8); /* warps */
    }
    show_stores();
    __syncthreads();
#pragma unroll 1
    for (int i = 0; i < S::PRODUCTS; i++)
        if (threadIdx.x < FILLERS)
            fill_stages<P>(a, i, t, s);
        else
            multiply_stages<T, P>(a, i, S::KEPT_FACTORS >> (2 * i + a.arranged) & 1, t, s,
                                  tile + i * TILE_FLOATS);
    __syncthreads();
    if (threadIdx.x < THREADS)
        finish_tile<K, T, float, TILE, TILE, HOPPER_PITCH>(a.p, tile, t.batch, t.m_tile, t.n_tile);
}
