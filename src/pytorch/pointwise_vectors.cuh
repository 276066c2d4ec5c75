/* SPDX-License-Identifier: MIT */
template <int from, int to, class Body> OG_FN void each(Body body, int end = to)
{
#pragma unroll
    for (int i = from; i < to; i++)
        if (i < end)
            body(i);
}

/* A thread's vectors of 16 bytes, 128 apart: anyhow; of neighbours; these aligned and all there. */
enum { ANY, FLAT, WHOLE };
template <class Formula, class T, int batch, int mode>
OG_FN void apply(const Args &a, int64_t first)
{
    constexpr int count = 16 / sizeof(T), results = Formula::results, operands = Formula::operands;
    alignas(16) T x[batch][operands][count];
    int64_t to[batch][operands]; /* bytes */
    int n[batch];                /* elements */
    auto stride = [&](int t) { return mode == ANY ? a.stride[t][0] : (int64_t)sizeof(T); };
    each<0, batch>([&](int b) {
        const int64_t vector = first + b * 128, per_row = (a.extent[0] + count - 1) / count;
        uint32_t row = mode != ANY || a.dims == 1 ? 0 : (uint32_t)vector / (uint32_t)per_row;
        const int64_t e = (vector - row * per_row) * count; /* its first element */
        n[b] = vector < a.vectors ? (int)min(a.extent[0] - e, (int64_t)count) : 0;
        each<0, operands>([&](int t) { to[b][t] = e * stride(t); });
        for (int d = 1; mode == ANY && d < a.dims; d++) {
            const uint32_t extent = (uint32_t)a.extent[d], i = row % extent;
            each<0, operands>([&](int t) { to[b][t] += i * a.stride[t][d]; });
            row /= extent;
        }
    });
    auto at = [&](int b, int t, int i) { return (T *)(a.data[t] + to[b][t] + i * stride(t)); };
    auto is_vector = [&](int b, int t) {
        return mode == WHOLE || (n[b] == count && stride(t) == sizeof(T) &&
                                 (uint64_t)at(b, t, 0) % 16 == 0);
    };
    each<0, batch>([&](int b) {
        each<results, operands>([&](int t) {
            if (is_vector(b, t))
                *(uint4 *)x[b][t] = *(const uint4 *)at(b, t, 0);
            else
                each<0, count>([&](int i) { x[b][t][i] = *at(b, t, i); }, n[b]);
        });
    });
    asm volatile("" ::: "memory"); /* all are read before one is computed */
    each<0, batch>([&](int b) {
        each<0, count>([&](int i) {
            decltype(T() + 0.0f) v[operands]; /* float, or double */
            each<results, operands>([&](int t) { v[t] = x[b][t][i]; });
            Formula::compute(a, v);
            each<0, results>([&](int t) { x[b][t][i] = v[t]; });
        });
        each<0, results>([&](int t) {
            if (is_vector(b, t))
                *(uint4 *)at(b, t, 0) = *(const uint4 *)x[b][t];
            else
                each<0, count>([&](int i) { *at(b, t, i) = x[b][t][i]; }, n[b]);
        });
    });
}

template <class Formula, class T, int batch, bool is_flat>
__global__ void __launch_bounds__(128) kernel(const __grid_constant__ Args a)
{
    const int64_t first = (int64_t)blockIdx.x * (batch * 128) + threadIdx.x;
    if (is_flat && blockIdx.x < a.whole_blocks)
        return apply<Formula, T, batch, WHOLE>(a, first);
#pragma unroll 1
    for (int b = 0; b < batch; b++)
        apply<Formula, T, 1, is_flat ? FLAT : ANY>(a, first + b * 128);
}

#define OF(F, T, many)                                                                             \
    {(void *)kernel<F, T, 1, 1>, (void *)kernel<F, T, many, 1>, (void *)kernel<F, T, 1, 0>}
#define KERNELS(F)                                                                                 \
    {OF(F, float, 2), OF(F, c10::Half, 4), OF(F, c10::BFloat16, 4), OF(F, double, 2)}
const void *const ogive_kernels[2][4][3] = {KERNELS(Forward), KERNELS(Backward)};
