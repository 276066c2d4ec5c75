/* SPDX-License-Identifier: MIT */
/* Rows of a product: what is reduced, and what follows from it. */
/* All lanes of a row get its terms: a tree in shared memory. */
template <class S, class C>
__device__ __forceinline__ void meet(Partial<C> *terms, int slot, int lane, int lanes)
{
    __shared__ Partial<C> met[THREADS];
#pragma unroll
    for (int t = 0; t < S::TERMS; t++) {
        met[slot] = terms[t];
        __syncthreads();
        for (int half = lanes / 2; half > 0; half /= 2) {
            if (lane < half)
                met[slot] = join_terms(S::kind(t), met[slot], met[slot + half]);
            __syncthreads();
        }
        terms[t] = met[slot - lane];
        __syncthreads();
    }
}

/* What is computed once a row, from its terms and operands; one thread of it stores. */
template <class S, class T, class C>
__device__ __forceinline__ void finish_row(const Args &a, const long long *at,
                                           const Partial<C> *terms, bool stores, C *row)
{
#pragma unroll
    for (int t = 0; t < S::TERMS; t++)
        row[S::row_of(t)] = term_value(S::kind(t), terms[t]);
    C in[S::ROW_LOADS ? S::ROW_LOADS : 1], out[S::ROW_STORES ? S::ROW_STORES : 1];
#pragma unroll
    for (int l = 0; l < S::ROW_LOADS; l++) {
        const int i = S::row_loaded(l);
        in[l] = load<T, C>(a.data[i], at[i], (S::KEPT >> i & 1));
    }
    S::template finish<C>(a.number, in, row, out);
#pragma unroll
    for (int s = 0; stores && s < S::ROW_STORES; s++) {
        const int i = S::row_stored(s);
        store<T, C>(a.data[i], at[i], (S::KEPT >> i & 1), out[s]);
    }
}

__device__ __forceinline__ long long count_elements(const Args &a, int first, int count)
{
    long long n = 1;
    for (int d = first; d < first + count; d++)
        n *= a.extent[d];
    return n;
}

/* A warp a row: its terms, and what follows from them. */
template <template <int> class K, int sweep, class T>
__global__ void __launch_bounds__(THREADS)
    finish_rows(const Args a, long long segments, const void *terms_data, void *values_data)
{
    typedef K<sweep> S;
    typedef typename ComputedIn<T>::type C;
    constexpr int LANES = 32;
    const long long rows = count_elements(a, 0, a.kept);
    const int lane = threadIdx.x % LANES;
    const long long number = (long long)blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES;
    const bool valid = number < rows;
    C *values = (C *)values_data;
    long long at[S::OPERANDS] = {};
    C row[S::ROW_VALUES ? S::ROW_VALUES : 1] = {};
    Partial<C> terms[S::TERMS ? S::TERMS : 1];
#pragma unroll
    for (int t = 0; t < S::TERMS; t++) {
        terms[t] = start_term<C>(S::kind(t));
        for (long long s = lane; valid && s < segments; s += LANES)
            terms[t] = join_terms(
                S::kind(t), terms[t],
                ((const Partial<C> *)terms_data)[((long long)t * segments + s) * rows + number]);
    }
    meet<S, C>(terms, threadIdx.x, lane, LANES);
    if (!valid)
        return;
    if (sweep > 0)
        for (int v = 0; v < S::ROW_VALUES; v++)
            row[v] = values[number * S::ROW_VALUES + v];
    move<S::OPERANDS>(a, number, 0, a.kept, at);
    finish_row<S, T, C>(a, at, terms, lane == 0, row);
    for (int v = 0; values && lane == 0 && v < S::ROW_VALUES; v++)
        values[number * S::ROW_VALUES + v] = row[v];
}
