/* SPDX-License-Identifier: MIT */
/* Rows: what is reduced, and what follows from it, in one or more sweeps over the same
 * rows. `lanes` threads share a row; a block holds THREADS / lanes rows. In memory the
 * neighbours of an element are in its own row, or (by_columns) in the next rows: threads
 * are numbered so that a warp reads neighbours either way. */
template <class S, class T, class C>
__device__ __forceinline__ void sweep_elements(const Args &a, const long long *at, const C *row,
                                               long long begin, long long end, long long step,
                                               Partial<C> *terms)
{
    constexpr int UNROLL = 4;
    for (long long first = begin; first < end; first += UNROLL * step) {
        C in[UNROLL][S::LOADS ? S::LOADS : 1];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            const long long e = first + u * step;
            if (e >= end)
                continue;
            long long here[S::OPERANDS];
#pragma unroll
            for (int i = 0; i < S::OPERANDS; i++)
                here[i] = at[i];
            move<S::OPERANDS>(a, e, a.kept, a.reduced, here);
#pragma unroll
            for (int l = 0; l < S::LOADS; l++) {
                const int i = S::loaded(l);
                in[u][l] = load<T, C>(a.data[i], here[i], (S::KEPT >> i & 1));
            }
        }
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            const long long e = first + u * step;
            if (e >= end)
                continue;
            C out[S::STORES ? S::STORES : 1], term[S::TERMS ? S::TERMS : 1];
            S::template element<C>(a.number, in[u], (const C *)0, row, out, term);
#pragma unroll
            for (int t = 0; t < S::TERMS; t++)
                add_term(S::kind(t), terms[t], term[t]);
            if (S::STORES) {
                long long here[S::OPERANDS];
#pragma unroll
                for (int i = 0; i < S::OPERANDS; i++)
                    here[i] = at[i];
                move<S::OPERANDS>(a, e, a.kept, a.reduced, here);
#pragma unroll
                for (int s = 0; s < S::STORES; s++) {
                    const int i = S::stored(s);
                    store<T, C>(a.data[i], here[i], (S::KEPT >> i & 1), out[s]);
                }
            }
        }
    }
}

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

template <template <int> class K, int sweep, class T, class C>
__device__ __forceinline__ void run_sweeps(const Args &a, bool valid, const long long *at,
                                           long long elements, int slot, int lane, int lanes,
                                           C *row)
{
    typedef K<sweep> S;
    Partial<C> terms[S::TERMS ? S::TERMS : 1];
#pragma unroll
    for (int t = 0; t < S::TERMS; t++)
        terms[t] = start_term<C>(S::kind(t));
    if (valid)
        sweep_elements<S, T, C>(a, at, row, lane, elements, lanes, terms);
    meet<S, C>(terms, slot, lane, lanes);
    if (valid)
        finish_row<S, T, C>(a, at, terms, lane == 0, row);
    if constexpr (sweep + 1 < S::SWEEPS)
        run_sweeps<K, sweep + 1, T, C>(a, valid, at, elements, slot, lane, lanes, row);
}

__device__ __forceinline__ long long count_elements(const Args &a, int first, int count)
{
    long long n = 1;
    for (int d = first; d < first + count; d++)
        n *= a.extent[d];
    return n;
}

/* Which row a thread is of, and its place in it. */
struct Place {
    long long row;
    int lane, slot; /* slot: in the block, lanes of a row side by side */
};

__device__ __forceinline__ Place find_place(long long block, int lanes, bool by_columns)
{
    const int rows_here = THREADS / lanes, thread = threadIdx.x;
    const int in_block = by_columns ? thread % rows_here : thread / lanes;
    Place place;
    place.lane = by_columns ? thread / rows_here : thread % lanes;
    place.row = block * rows_here + in_block;
    place.slot = in_block * lanes + place.lane;
    return place;
}

/* Every sweep of a row by the threads of one block. */
template <template <int> class K, class T>
__global__ void __launch_bounds__(THREADS) whole_rows(const Args a, int lanes, bool by_columns)
{
    typedef K<0> S;
    typedef typename ComputedIn<T>::type C;
    const Place place = find_place(blockIdx.x, lanes, by_columns);
    const bool valid = place.row < count_elements(a, 0, a.kept);
    const long long elements = count_elements(a, a.kept, a.reduced);
    long long at[S::OPERANDS] = {};
    C row[S::ROW_VALUES ? S::ROW_VALUES : 1] = {};
    if (valid)
        move<S::OPERANDS>(a, place.row, 0, a.kept, at);
    run_sweeps<K, 0, T, C>(a, valid, at, elements, place.slot, place.lane, lanes, row);
}

/* Few long rows: a sweep is divided among blocks (x: segments of the rows, y: blocks of
 * rows), whose terms meet in finish_rows() below. terms: [term][segment][row]; values:
 * [row][value], what earlier sweeps found. */
template <template <int> class K, int sweep, class T>
__global__ void __launch_bounds__(THREADS)
    sweep_segments(const Args a, int lanes, bool by_columns, long long segment, void *terms_data,
                   const void *values_data)
{
    typedef K<sweep> S;
    typedef typename ComputedIn<T>::type C;
    const Place place = find_place(blockIdx.y, lanes, by_columns);
    const long long rows = count_elements(a, 0, a.kept);
    const long long elements = count_elements(a, a.kept, a.reduced);
    const long long begin = blockIdx.x * segment;
    const long long end = begin + segment < elements ? begin + segment : elements;
    const bool valid = place.row < rows;
    const C *values = (const C *)values_data;
    long long at[S::OPERANDS] = {};
    C row[S::ROW_VALUES ? S::ROW_VALUES : 1] = {};
    Partial<C> terms[S::TERMS ? S::TERMS : 1];
    if (sweep > 0 && valid)
        for (int v = 0; v < S::ROW_VALUES; v++)
            row[v] = values[place.row * S::ROW_VALUES + v];
#pragma unroll
    for (int t = 0; t < S::TERMS; t++)
        terms[t] = start_term<C>(S::kind(t));
    if (valid) {
        move<S::OPERANDS>(a, place.row, 0, a.kept, at);
        sweep_elements<S, T, C>(a, at, row, begin + place.lane, end, lanes, terms);
    }
    meet<S, C>(terms, place.slot, place.lane, lanes);
    if (valid && place.lane == 0)
        for (int t = 0; t < S::TERMS; t++)
            ((Partial<C> *)terms_data)[((long long)t * gridDim.x + blockIdx.x) * rows +
                                       place.row] = terms[t];
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
